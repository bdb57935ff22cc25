package engine

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"testing"
)

var errTest = errors.New("test")

func testFail(t *testing.T, newWorld maker) {
	told := make(chan Proc, 4)
	es := newWorld(t, 3, func(c *Config) {
		if c.Self == 0 {
			c.OnFailure = func(p Proc, _ error) { told <- p }
		}
	})
	e := es[0]
	send(t, e, 1, 1, nil)
	send(t, es[1], 0, 7, pattern(5, 0)) // what has come stays
	if _, err := e.Probe(1, world, 7); err != nil {
		t.Fatal(err)
	}
	named := irecv(t, e, 1, 1, make([]byte, 8))
	wild := irecv(t, e, AnyProc, 2, make([]byte, 8))
	out := isend(t, e, 1, 1, make([]byte, 1<<20))
	e.Fail(1, errTest)
	if p := <-told; p != 1 {
		t.Errorf("told of %d", p)
	}
	for _, id := range []ID{named, out} {
		if _, err := e.Wait(id); !errors.Is(err, ErrProcFailed{1, errTest}) || !errors.Is(err, errTest) {
			t.Errorf("got %v", err)
		}
	}
	for range 2 {
		if _, err := e.Wait(wild); err != (ErrProcFailedPending{1}) {
			t.Errorf("got %v, want it pending", err)
		}
	}
	if _, err := e.Recv(&RecvArgs{From: AnyProc, Context: world, Tag: 3}); !errors.As(err, &ErrProcFailed{}) {
		t.Errorf("blocking receive from any: %v", err)
	}
	if err := e.Send(&SendArgs{To: 1, Context: world}); !errors.As(err, &ErrProcFailed{}) {
		t.Errorf("send: %v", err)
	}
	if _, err := e.Recv(&RecvArgs{From: 1, Context: world, Tag: 1}); !errors.As(err, &ErrProcFailed{}) {
		t.Errorf("receive: %v", err)
	}
	if got, _ := recv(t, e, 1, 7, 5); len(got) != 5 {
		t.Errorf("what had come is lost")
	}
	e.Acknowledge(world)
	send(t, es[2], 0, 2, pattern(8, 0))
	if st := wait(t, e, wild); st.Source != 2 || st.Bytes != 8 {
		t.Errorf("after acknowledgement: %+v", st)
	}
}

func testRevoke(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	const c = Context(3)
	for _, e := range es {
		e.OpenContext(c, []Proc{0, 1})
	}
	in, err := es[0].Irecv(&RecvArgs{From: 1, Context: c, Buf: make([]byte, 9)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := es[0].Isend(&SendArgs{To: 1, Context: c, Data: make([]byte, 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := es[1].Probe(0, c, 0); err != nil { // the other side has heard of the message
		t.Fatal(err)
	}
	es[0].Revoke(c, errTest)
	for _, id := range []ID{in, out} {
		if _, err := es[0].Wait(id); !errors.Is(err, errTest) {
			t.Errorf("got %v, want %v", err, errTest)
		}
	}
	if err := es[0].Send(&SendArgs{To: 1, Context: c}); !errors.Is(err, errTest) {
		t.Errorf("send: got %v", err)
	}
	// It has not heard of the revocation and asks for the data.
	if _, err := es[1].Recv(&RecvArgs{From: 0, Context: c, Buf: make([]byte, 1<<20)}); !errors.Is(err, ErrRefused) || !errors.Is(err, ErrRevoked) {
		t.Errorf("receive: got %v, want %v", err, errRevokedThere)
	}
	const other = Context(4)
	for _, e := range es {
		e.OpenContext(other, []Proc{0, 1})
	}
	if out, err = es[0].Isend(&SendArgs{To: 1, Context: other, Data: make([]byte, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	if _, err := es[1].Probe(0, other, 0); err != nil {
		t.Fatal(err)
	}
	es[1].Revoke(other, errTest)
	if _, err := es[0].Wait(out); !errors.Is(err, ErrRefused) || !errors.Is(err, ErrRevoked) {
		t.Errorf("send whose receiver revokes: got %v, want %v", err, errRevokedThere)
	}
	send(t, es[0], 1, 1, nil) // other contexts live on
	recv(t, es[1], 0, 1, 0)
}

// TestRevokeSeized: a message to oneself that a matched probe has taken is lost with its
// send, whose request may be another's by then.
func TestRevokeSeized(t *testing.T) {
	e := newWorld(t, 1)[0]
	const c = Context(3)
	e.OpenContext(c, []Proc{0})
	out, err := e.Isend(&SendArgs{To: 0, Context: c, Tag: 1, Mode: Synchronous, Data: pattern(4, 0)})
	if err != nil {
		t.Fatal(err)
	}
	msg, _, err := e.Mprobe(0, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	e.Revoke(c, nil)
	if _, err := e.Wait(out); !errors.Is(err, ErrRevoked) {
		t.Errorf("send: got %v, want %v", err, ErrRevoked)
	}
	other := irecv(t, e, 0, 3, pattern(4, 1))
	if st, err := e.Mrecv(msg, &RecvArgs{Buf: make([]byte, 4)}); !errors.Is(err, ErrRevoked) {
		t.Errorf("receive: got %+v, %v, want %v", st, err, ErrRevoked)
	}
	if _, done, err := e.Test(other); done {
		t.Errorf("another receive has ended: %v", err)
	}
	if _, err := e.Mrecv(msg, &RecvArgs{}); !errors.Is(err, ErrMessage) {
		t.Errorf("second receive: got %v, want %v", err, ErrMessage)
	}
}

// TestAcknowledgedBefore: who waits for one of several requests goes on if the warning
// that wakes it is acknowledged before it has looked.
func TestAcknowledgedBefore(t *testing.T) {
	es := newWorld(t, 3)
	e := es[0]
	wild := irecv(t, e, AnyProc, 2, make([]byte, 8))
	over := make(chan error)
	go func() {
		_, _, err := e.WaitAny([]ID{{}, wild})
		over <- err
	}()
	for waits := false; !waits; runtime.Gosched() {
		e.gate.lock()
		waits = e.lookup(wild).waiter != nil
		e.leave()
	}
	e.gate.lock()
	e.fail(e.peers[1], errTest)
	e.acknowledge(world)
	e.leave()
	send(t, es[2], 0, 2, pattern(8, 0))
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestAllOrNone: while one of several requests goes on none is collected, also when it
// had been warned.
func TestAllOrNone(t *testing.T) {
	es := newWorld(t, 3)
	e := es[0]
	ids := []ID{irecv(t, e, 0, 1, make([]byte, 8)), {}, irecv(t, e, AnyProc, 2, make([]byte, 8))}
	send(t, e, 0, 1, pattern(8, 0))
	e.Fail(1, errTest)
	e.Acknowledge(world)
	if _, _, done := e.TestAll(ids); done {
		t.Error("a receive goes on, and all have ended")
	}
	e.Fail(2, errTest)
	for range 2 {
		sts, errs, done := e.TestAll(ids)
		if !done || sts[1] != empty || errs[1] != nil || errs[2] != (ErrProcFailedPending{2}) {
			t.Errorf("got %v, %+v, %v", done, sts, errs)
		} else if first := errs[0]; ids[0] != (ID{}) && (first != nil || sts[0].Bytes != 8) {
			t.Errorf("the one that has ended: got %+v, %v", sts[0], first)
		}
		ids[0] = ID{}
	}
	if _, errs, _ := e.TestAll([]ID{{slot: 1 << 20, gen: 1}}); len(errs) != 1 || errs[0] != ErrRequest {
		t.Errorf("no such request: got %v", errs)
	}
}

func testLeave(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	send(t, es[0], 1, 1, pattern(4, 0))
	recv(t, es[1], 0, 1, 4)
	send(t, es[0], 1, 2, pattern(4, 0))
	closed := make(chan error)
	go func() { closed <- es[0].Close(t.Context()) }()
	// What was sent before is received; what is asked of it then fails.
	recv(t, es[1], 0, 2, 4)
	if _, err := es[1].Recv(&RecvArgs{From: 0, Context: world, Tag: 3}); !errors.As(err, &ErrProcFailed{}) {
		t.Errorf("receive from who has left: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	if err := es[0].Send(&SendArgs{To: 1, Context: world}); !errors.Is(err, ErrClosed) {
		t.Errorf("send: got %v, want %v", err, ErrClosed)
	}
}

// TestManyFailures: all processes that fail at once are told, as those of a host do.
func TestManyFailures(t *testing.T) {
	const n = 200
	told := make(chan Proc, n)
	e, err := New(Config{Self: 0, Size: n, Hub: NewHub(), OnFailure: func(p Proc, _ error) { told <- p }})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	e.gate.lock()
	for _, p := range e.peers[1:] {
		e.fail(p, errors.New("its host died"))
	}
	e.leave()
	seen := map[Proc]bool{}
	for range n - 1 {
		seen[<-told] = true
	}
	if len(seen) != n-1 {
		t.Errorf("%d of %d failures are told", len(seen), n-1)
	}
}

// brokenWire finds at the first write that its other end is gone.
type brokenWire struct{ wire }

func (brokenWire) write(_, _ []byte, _ int) (int, error) { return 0, syscall.EPIPE }

// TestSendFindsDeath: a small message whose own sending finds out that the receiver has
// died fails, and is not taken for sent.
func TestSendFindsDeath(t *testing.T) {
	es := processes()(t, 2)
	send(t, es[0], 1, 1, []byte{1}) // so that there is a link
	recv(t, es[1], 0, 1, 1)
	es[0].gate.lock()
	c := es[0].peers[1].conns[0]
	c.wire = brokenWire{c.wire}
	es[0].gate.unlock()
	if err := es[0].Send(&SendArgs{To: 1, Context: world, Tag: 2, Data: []byte{2}}); !errors.As(err, new(ErrProcFailed)) {
		t.Errorf("the send says %v, want that the process has failed", err)
	}
}
