package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestStrangers has others than peers at the listener.
func TestStrangers(t *testing.T) {
	es := processes()(t, 2)
	addr := es[0].me.card.addrs[0]
	junk := make([]byte, helloSize)
	other := &card{key: [16]byte{1}}
	for name, words := range map[string][]byte{
		"nothing":       nil,
		"http":          []byte("GET / HTTP/1.1\r\n\r\n"),
		"junk":          junk,
		"other key":     es[1].offer(es[0].me.card.uid, credit{1, 1}).encode(es[1].helloKey(other)),
		"other process": es[1].offer(uid{9}, credit{1, 1}).encode(es[1].helloKey(&es[0].me.card)),
	} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(words); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(words) == helloSize {
			if n, err := nc.Read(junk[:1]); n != 0 || err == nil {
				t.Errorf("%s: was answered", name)
			}
		}
		defer nc.Close() // the others are left open: they hold nobody up
	}
	each(es, func(i int, e *Engine) {
		out := isend(t, e, Proc(1-i), 1, pattern(9, 0))
		recv(t, e, Proc(1-i), 1, 9)
		wait(t, e, out)
	})
}

// TestUnknown answers a process of our job that is not known yet, and takes in
// one of another job.
func TestUnknown(t *testing.T) {
	es := processes()(t, 1)
	nc, err := net.Dial("tcp", es[0].me.card.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	h := &hello{status: offered, count: 1, from: uid{7}, to: es[0].me.card.uid, proc: 5, job: es[0].me.card.job}
	key := es[0].helloKey(&es[0].me.card)
	if _, err := nc.Write(h.encode(key)); err != nil {
		t.Fatal(err)
	}
	a, err := readHello(nc, key)
	if err != nil || !errors.Is(h.heed(a), errNotYet{}) {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v, want it closed", err)
	}
	foreign, err := net.Dial("tcp", es[0].me.card.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	h.job, h.grants = [8]byte{1}, credit{1, 1}
	if _, err := foreign.Write(h.encode(key)); err != nil {
		t.Fatal(err)
	}
	if a, err := readHello(foreign, key); err != nil || h.heed(a) != nil {
		t.Errorf("a process of another job: %+v, %v", a, err)
	}
}

// TestManyLeft: processes of other jobs that are gone do not count among those that there
// may be.
func TestManyLeft(t *testing.T) {
	es := newWorld(t, 1)
	c := &card{uid: uid{7}, job: [8]byte{1}}
	es[0].Do(func(op *Op) {
		e := op.e
		for range mostForeign {
			e.peers = append(e.peers, newPeer(Proc(len(e.peers))))
		}
		if _, ok := e.strangerFor(c, 0); ok {
			t.Errorf("one more than %d processes of other jobs may connect", mostForeign)
		}
		for i, p := range e.peers[1:] {
			p.state, p.err = [...]peerState{departed, failed}[i%2], errTest
		}
		if _, ok := e.strangerFor(c, 0); !ok {
			t.Error("who connects is refused, where all others have left")
		}
	})
}

// TestRefused sends to a process that is not there any more.
func TestRefused(t *testing.T) {
	for _, shared := range []bool{false, true} {
		dead, err := New(Config{Addresses: []string{"127.0.0.1"}, SharedMemory: shared})
		if err != nil {
			t.Fatal(err)
		}
		c := dead.Card()
		if err := dead.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e, err := New(Config{
			Size: 2, Addresses: []string{"127.0.0.1"}, SharedMemory: shared,
			Resolve: func(context.Context, Proc) ([]byte, error) { return c, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		e.OpenContext(world, []Proc{0, 1})
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = e.Send(&SendArgs{To: 1, Context: world, Data: make([]byte, 1<<20)})
		if !errors.As(err, &ErrProcFailed{}) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
		closeAll(t, []*Engine{e})
	}
}

// TestReset resets a connection under a receive.
func TestReset(t *testing.T) {
	es := processes()(t, 2)
	send(t, es[0], 1, 1, nil)
	recv(t, es[1], 0, 1, 0)
	in := irecv(t, es[0], 1, 2, make([]byte, 1))
	es[1].Do(func(*Op) { es[1].breakLink(es[1].peers[0].conns[0], errTest) })
	var failed ErrProcFailed
	if _, err := es[0].Wait(in); !errors.As(err, &failed) || failed.Proc != 1 {
		t.Errorf("got %v", err)
	}
}

// TestMeet has all engines connect to all others at the same time.
func TestMeet(t *testing.T) {
	const n = 4
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for range 5 {
				es := k.make(t, n)
				each(es, func(i int, e *Engine) {
					var ids []ID
					bufs := make([]byte, n)
					for j := range n {
						ids = append(ids, irecv(t, e, Proc(j), 3, bufs[j:j+1]), isend(t, e, Proc(j), 3, []byte{byte(i)}))
					}
					for _, id := range ids {
						wait(t, e, id)
					}
					for j, b := range bufs {
						if int(b) != j {
							t.Errorf("%d got %d from %d", i, b, j)
						}
					}
				})
				closeAll(t, es)
			}
		})
	}
}

// TestOrder has messages of many tags overtake each other on several sockets,
// with receives of any tag among them.
func TestOrder(t *testing.T) {
	es := processes(func(c *Config) { c.Links = 4 })(t, 2)
	const n = 3000
	each(es, func(i int, e *Engine) {
		for k := range n {
			if i == 0 {
				send(t, e, 1, int32(k%17), pattern(k%5000, k))
				continue
			}
			tag := AnyTag
			if k%3 == 0 { // it is the next of its tag as well
				tag = int32(k % 17)
			}
			got, st := recv(t, e, 0, tag, 5000)
			if st.Tag != int32(k%17) || string(got) != string(pattern(k%5000, k)) {
				t.Fatalf("message %d: got %+v", k, st)
			}
		}
	})
}

// TestPatience gives up on a connection that does not come about.
func TestPatience(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	id, err := newIdentity(nil)
	if err != nil {
		t.Fatal(err)
	}
	id.card.addrs, id.card.arch = []string{l.Addr().String()}, NativeArch()
	e, err := New(Config{
		Size: 2, Addresses: []string{"127.0.0.1"}, Patience: 50 * time.Millisecond,
		Resolve: func(context.Context, Proc) ([]byte, error) { return id.card.encode(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	e.OpenContext(world, []Proc{0, 1})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Send(&SendArgs{To: 1, Context: world, Mode: Synchronous}); !errors.As(err, &ErrProcFailed{}) {
		t.Errorf("got %v", err)
	}
	closeAll(t, []*Engine{e})
}
