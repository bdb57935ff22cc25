package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

func send(t testing.TB, e *Engine, to Proc, tag int32, data []byte) {
	t.Helper()
	if err := e.Send(&SendArgs{To: to, Context: world, Tag: tag, Data: data}); err != nil {
		t.Errorf("send to %d: %v", to, err)
	}
}

func isend(t testing.TB, e *Engine, to Proc, tag int32, data []byte) ID {
	t.Helper()
	id, err := e.Isend(&SendArgs{To: to, Context: world, Tag: tag, Data: data})
	if err != nil {
		t.Errorf("isend to %d: %v", to, err)
	}
	return id
}

func irecv(t testing.TB, e *Engine, from Proc, tag int32, buf []byte) ID {
	t.Helper()
	id, err := e.Irecv(&RecvArgs{From: from, Context: world, Tag: tag, Buf: buf})
	if err != nil {
		t.Errorf("irecv from %d: %v", from, err)
	}
	return id
}

func recv(t testing.TB, e *Engine, from Proc, tag int32, n int) ([]byte, Status) {
	t.Helper()
	buf := make([]byte, n)
	st, err := e.Recv(&RecvArgs{From: from, Context: world, Tag: tag, Buf: buf})
	if err != nil {
		t.Errorf("recv from %d: %v", from, err)
	}
	return buf[:st.Bytes], st
}

func wait(t testing.TB, e *Engine, id ID) Status {
	t.Helper()
	st, err := e.Wait(id)
	if err != nil {
		t.Errorf("wait: %v", err)
	}
	return st
}

// testUnexpected sends before the receives are there.
func testUnexpected(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	for k, n := range sizes {
		want := pattern(n, k)
		id := isend(t, es[0], 1, int32(k), want)
		st, err := es[1].Probe(AnyProc, world, int32(k))
		if err != nil || st.Bytes != int64(n) || st.Source != 0 || st.Tag != int32(k) {
			t.Errorf("probe: got %+v, %v", st, err)
		}
		if got, st := recv(t, es[1], AnyProc, AnyTag, n); !bytes.Equal(got, want) || st.Source != 0 || st.Tag != int32(k) {
			t.Errorf("%d bytes: got other contents, or %+v", n, st)
		}
		wait(t, es[0], id)
	}
}

func testTruncate(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	for _, late := range []bool{false, true} {
		for _, n := range []int{10, 1000, 100_000} {
			var id, in ID
			buf := make([]byte, n)
			if late {
				id = isend(t, es[0], 1, 3, pattern(n, 1))
				if _, err := es[1].Probe(0, world, 3); err != nil {
					t.Error(err)
				}
				in = irecv(t, es[1], 0, 3, buf[:n-4])
			} else {
				in = irecv(t, es[1], 0, 3, buf[:n-4])
				id = isend(t, es[0], 1, 3, pattern(n, 1))
			}
			st, err := es[1].Wait(in)
			var trunc ErrTruncate
			if !errors.As(err, &trunc) || trunc.Message != int64(n) || trunc.Buffer != int64(n-4) || st.Bytes != int64(n-4) {
				t.Errorf("%d bytes: got %+v, %v", n, st, err)
			}
			if !bytes.Equal(buf[:n-4], pattern(n, 1)[:n-4]) || !bytes.Equal(buf[n-4:], make([]byte, 4)) {
				t.Errorf("%d bytes: other contents", n)
			}
			wait(t, es[0], id)
			send(t, es[0], 1, 3, nil) // the message is gone, and the next is the next
			if got, _ := recv(t, es[1], 0, 3, 1); len(got) != 0 {
				t.Errorf("got %d bytes", len(got))
			}
		}
	}
}

func testSelf(t *testing.T, newWorld maker) {
	e := newWorld(t, 1)[0]
	for k, n := range sizes {
		want := pattern(n, k)
		out := isend(t, e, 0, 1, want)
		if got, st := recv(t, e, AnyProc, 1, n); !bytes.Equal(got, want) || st.Source != 0 {
			t.Errorf("late receive of %d bytes: %+v", n, st)
		}
		wait(t, e, out)
		buf := make([]byte, n)
		in := irecv(t, e, 0, AnyTag, buf)
		out, err := e.Isend(&SendArgs{To: 0, Context: world, Tag: 9, Mode: Synchronous, Data: want})
		if err != nil {
			t.Error(err)
		}
		wait(t, e, out)
		if st := wait(t, e, in); !bytes.Equal(buf, want) || st.Tag != 9 {
			t.Errorf("early receive of %d bytes: %+v", n, st)
		}
	}
}

func testSynchronous(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	for _, n := range []int{0, 10, 100_000} {
		id, err := es[0].Isend(&SendArgs{To: 1, Context: world, Tag: 1, Mode: Synchronous, Data: pattern(n, 0)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := es[1].Probe(0, world, 1); err != nil {
			t.Fatal(err)
		}
		if _, done, err := es[0].Test(id); done || err != nil {
			t.Errorf("%d bytes: done before the receive, %v", n, err)
		}
		recv(t, es[1], 0, 1, n)
		wait(t, es[0], id)
	}
}

func testCancel(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	id := irecv(t, es[1], 0, 1, make([]byte, 4))
	if err := es[1].Cancel(id); err != nil {
		t.Error(err)
	}
	if st := wait(t, es[1], id); !st.Cancelled {
		t.Errorf("got %+v, want it cancelled", st)
	}
	if _, err := es[1].Wait(id); !errors.Is(err, ErrRequest) {
		t.Errorf("second wait: got %v, want %v", err, ErrRequest)
	}
	out := isend(t, es[0], 1, 1, pattern(4, 0))
	if err := es[0].Cancel(out); err != nil {
		t.Error(err)
	}
	if st := wait(t, es[0], out); st.Cancelled {
		t.Error("a send was cancelled")
	}
	recv(t, es[1], 0, 1, 4)
}

func testWaitAny(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	bufs := [3][]byte{make([]byte, 8), make([]byte, 8), make([]byte, 8)}
	ids := make([]ID, 4)
	for i := range bufs {
		ids[i] = irecv(t, es[1], 0, int32(i), bufs[i])
	}
	if i, _, done, err := es[1].TestAny(ids); i != -1 || done || err != nil {
		t.Errorf("got %d, %v, %v before anything was sent", i, done, err)
	}
	send(t, es[0], 1, 2, pattern(8, 0))
	if i, st, err := es[1].WaitAny(ids); i != 2 || st.Bytes != 8 || err != nil {
		t.Errorf("got %d, %+v, %v, want 2", i, st, err)
	}
	ids[2] = ID{}
	send(t, es[0], 1, 0, pattern(8, 0))
	send(t, es[0], 1, 1, pattern(8, 0))
	var all []int
	for len(all) < 2 {
		some, _, errs := es[1].WaitSome(ids, nil, nil, nil)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, i := range some {
			ids[i] = ID{}
		}
		all = append(all, some...)
	}
	if i, _, err := es[1].WaitAny(ids); i != -1 || err != nil {
		t.Errorf("got %d, %v of nothing", i, err)
	}
	if i, _, done, err := es[1].TestAny(ids); i != -1 || !done || err != nil {
		t.Errorf("got %d, %v, %v of nothing", i, done, err)
	}
}

func testMprobe(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	for _, n := range []int{3, 300, 100_000} {
		a, b := isend(t, es[0], 1, 5, pattern(n, 1)), isend(t, es[0], 1, 5, pattern(n, 2))
		msg, st, err := es[1].Mprobe(AnyProc, world, 5)
		if err != nil || st.Bytes != int64(n) {
			t.Fatalf("got %+v, %v", st, err)
		}
		if got, _ := recv(t, es[1], 0, 5, n); !bytes.Equal(got, pattern(n, 2)) {
			t.Error("a receive got what the probe had taken")
		}
		buf := make([]byte, n)
		if st, err := es[1].Mrecv(msg, &RecvArgs{Buf: buf}); err != nil || st.Tag != 5 || !bytes.Equal(buf, pattern(n, 1)) {
			t.Errorf("got %+v, %v", st, err)
		}
		if _, err := es[1].Mrecv(msg, &RecvArgs{Buf: buf}); !errors.Is(err, ErrMessage) {
			t.Errorf("second receive: got %v, want %v", err, ErrMessage)
		}
		wait(t, es[0], a)
		wait(t, es[0], b)
	}
}

// testBeforeOpen sends in a context that the receiver opens later.
func testBeforeOpen(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	const c = Context(7)
	es[0].OpenContext(c, []Proc{0, 1})
	id, err := es[0].Isend(&SendArgs{To: 1, Context: c, Tag: 1, Data: pattern(10, 0)})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, es[0], id)
	send(t, es[0], 1, 1, nil)
	recv(t, es[1], 0, 1, 0) // so the other has come as well
	if _, err := es[1].Recv(&RecvArgs{From: 0, Context: c, Buf: make([]byte, 10)}); !errors.Is(err, ErrContext) {
		t.Errorf("got %v, want %v", err, ErrContext)
	}
	es[1].OpenContext(c, []Proc{0, 1})
	buf := make([]byte, 10)
	if _, err := es[1].Recv(&RecvArgs{From: 0, Context: c, Tag: 1, Buf: buf}); err != nil || !bytes.Equal(buf, pattern(10, 0)) {
		t.Errorf("got %v, %v", buf, err)
	}
	es[1].CloseContext(c)
	es[0].CloseContext(c)
	if _, err := es[0].Isend(&SendArgs{To: 1, Context: c}); !errors.Is(err, ErrContext) {
		t.Errorf("got %v, want %v", err, ErrContext)
	}
}

func testPost(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	got := make(chan string, 8) // more than are on their way
	for _, e := range es {
		e.Handle(3, func(op *Op, from Proc, hdr *[24]byte, payload []byte) {
			if hdr[0] == 1 { // answer
				hdr := [24]byte{2, hdr[1]}
				if err := op.Post(from, 3, &hdr, append([]byte("re: "), payload...), nil); err != nil {
					t.Error(err)
				}
				return
			}
			got <- string(payload)
		})
	}
	for _, to := range []Proc{1, 0} {
		es[0].Do(func(op *Op) {
			for _, s := range []string{"one", "", "three"} {
				if err := op.Post(to, 3, &[24]byte{1}, []byte(s), nil); err != nil {
					t.Error(err)
				}
			}
		})
		for _, want := range []string{"re: one", "re: ", "re: three"} {
			if s := <-got; s != want {
				t.Errorf("got %q, want %q", s, want)
			}
		}
	}
}

// testCallback runs a chain of requests, each begun by the end of the last.
func testCallback(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	const hops = 1000
	done := [2]ID{}
	for i, e := range es {
		done[i], _ = e.General()
		other := Proc(1 - i)
		buf := make([]byte, 8)
		n := 0
		var next func(op *Op, st Status, err error)
		next = func(op *Op, st Status, err error) {
			if err != nil || st.Bytes != 8 {
				t.Errorf("hop %d: %+v, %v", n, st, err)
			}
			if n++; n > hops {
				op.Complete(done[i], Status{Bytes: int64(n)}, nil)
				return
			}
			if _, err := op.Irecv(&RecvArgs{From: other, Context: world, Buf: buf, Done: next}); err != nil {
				t.Error(err)
			}
			if _, err := op.Isend(&SendArgs{To: other, Context: world, Data: buf}); err != nil {
				t.Error(err)
			}
		}
		e.Do(func(op *Op) { next(op, Status{Bytes: 8}, nil) })
	}
	each(es, func(i int, e *Engine) {
		if st := wait(t, e, done[i]); st.Bytes != hops+1 {
			t.Errorf("got %+v", st)
		}
	})
}

func testCallbackPanic(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	id, err := es[1].Irecv(&RecvArgs{From: 0, Context: world, Done: func(*Op, Status, error) { panic("no") }})
	if err != nil {
		t.Fatal(err)
	}
	send(t, es[0], 1, 0, nil)
	var p ErrPanic
	if _, err := es[1].Wait(id); !errors.As(err, &p) || p.Value != "no" {
		t.Errorf("got %v, want a panic", err)
	}
}

// testDone waits at channels only: the helper has to drive.
func testDone(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	buf := make([]byte, 1<<20)
	in := irecv(t, es[1], 0, 1, buf)
	c := es[1].Done(in)
	out := isend(t, es[0], 1, 1, pattern(1<<20, 0))
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("no end")
	}
	<-es[0].Done(out)
	wait(t, es[0], out)
	if st := wait(t, es[1], in); st.Bytes != 1<<20 || !bytes.Equal(buf, pattern(1<<20, 0)) {
		t.Errorf("got %+v", st)
	}
	<-es[0].Done(ID{})
}

func testArguments(t *testing.T, newWorld maker) {
	e := newWorld(t, 1)[0]
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"process", e.Send(&SendArgs{To: 1, Context: world}), ErrRankRange{1}},
		{"negative process", e.Send(&SendArgs{To: -2, Context: world}), ErrRankRange{-2}},
		{"tag", e.Send(&SendArgs{To: 0, Context: world, Tag: -1}), ErrTag},
		{"context", e.Send(&SendArgs{To: 0, Context: 5}), ErrContext},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, c.err, c.want)
		}
	}
}

// testCloseBusy: the number of a context is in use while a message moves there.
func testCloseBusy(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	const c, n = Context(7), 4 << 20 // more than is sent unasked
	for _, e := range es {
		e.OpenContext(c, []Proc{0, 1})
	}
	out, err := es[0].Isend(&SendArgs{To: 1, Context: c, Tag: 1, Data: pattern(n, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if es[0].CloseContext(c) {
		t.Error("the context of a send under way is idle")
	}
	if _, err := es[1].Recv(&RecvArgs{From: 0, Context: c, Tag: 1, Buf: make([]byte, n)}); err != nil {
		t.Error(err)
	}
	wait(t, es[0], out)
	for i, e := range es {
		if !e.CloseContext(c) {
			t.Errorf("the context is not idle at %d, where all is done", i)
		}
	}
}
