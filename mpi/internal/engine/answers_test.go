//go:build linux

package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// forever is longer than a test, in microseconds.
const forever = int(time.Hour / time.Microsecond)

// readings counts what is read across.
type readings struct {
	puller
	calls int
}

func (r *readings) pull(name, addr uint64, off int, dst []byte) error {
	r.calls++
	return r.puller.pull(name, addr, off, dst)
}

// sharing makes two engines that share memory. The second waits so many microseconds
// for the answer to what it asks; what it reads is counted.
func sharing(t *testing.T, patience int) ([]*Engine, *readings) {
	t.Helper()
	es := processes(func(c *Config) { c.SharedMemory = true })(t, 2)
	send(t, es[0], 1, 9, nil)
	recv(t, es[1], 0, 9, 0)
	count := &readings{}
	es[1].Do(func(*Op) {
		c := es[1].peers[0].conns[0]
		count.puller, c.pull = c.pull, count
		es[1].answers.most = patience
		for i := range es[1].ways { // what is sent is the faster
			es[1].ways[i].tries = [3]int{bySending: tryWays, byReading: tryWays}
			es[1].ways[i].took[byReading] = 1e9
		}
	})
	return es, count
}

// TestSentByWaiting: a large message whose sender waits for it to go is sent, not read.
func TestSentByWaiting(t *testing.T) {
	const n = 3 * pullPiece
	es, count := sharing(t, forever)
	for i := range 10 {
		done := make(chan bool)
		go func() {
			send(t, es[0], 1, 1, pattern(n, i))
			close(done)
		}()
		if got, _ := recv(t, es[1], 0, 1, n); !bytes.Equal(got, pattern(n, i)) {
			t.Error("other contents")
		}
		<-done
	}
	if count.calls > 0 {
		t.Errorf("%d pieces were read", count.calls)
	}
	wantShown(t, es[0], 0)
}

// TestReadFromBusy: a large message whose sender does something else is read. That was
// asked for it comes out later.
func TestReadFromBusy(t *testing.T) {
	const n = 3 * pullPiece
	for _, patience := range []int{0, 1, answerTime} {
		es, count := sharing(t, patience)
		for i := range 10 {
			out := isend(t, es[0], 1, 1, pattern(n, i))
			es[0].Do(func(*Op) { // and nobody else does anything
				if got, _ := recv(t, es[1], 0, 1, n); !bytes.Equal(got, pattern(n, i)) {
					t.Error("other contents")
				}
			})
			wait(t, es[0], out)
		}
		if want := 10 * n / pullPiece; count.calls != want {
			t.Errorf("patience of %d µs: %d pieces were read, want %d", patience, count.calls, want)
		}
		wantShown(t, es[0], 0)
	}
}

// TestAskedTwice: what was asked for, could not be read, and is asked for again comes
// once.
func TestAskedTwice(t *testing.T) {
	const n = 3 * pullPiece
	for _, after := range []int{0, pullPiece} {
		es, _ := sharing(t, 1)
		for i := range 10 {
			es[1].Do(func(*Op) {
				c := es[1].peers[0].conns[0]
				c.pull, es[1].answers.vain = &brokenPull{c.pull, after, errNoPull}, 0
			})
			out := isend(t, es[0], 1, 1, pattern(n, i))
			var in ID
			es[0].Do(func(*Op) {
				a := RecvArgs{From: 0, Context: world, Tag: 1, Buf: make([]byte, n)}
				var err error
				if in, err = es[1].Irecv(&a); err != nil {
					t.Fatal(err)
				}
				eventually.Holds(t, "it is asked for again", func() bool {
					es[1].Poll()
					asked := false
					es[1].Do(func(*Op) { r := es[1].lookup(in); asked = r.state == moving && r.addr == 0 })
					return asked
				})
			})
			if _, err := es[1].Wait(in); err != nil {
				t.Errorf("reading fails after %d bytes: %v", after, err)
			}
			wait(t, es[0], out)
		}
		wantShown(t, es[0], 0)
	}
}

// TestSentOrRead: whoever of the two begins a little earlier moves a message, once.
func TestSentOrRead(t *testing.T) {
	const messages = 600
	es, count := sharing(t, 1)
	random := rand.New(rand.NewPCG(1, 2))
	lengths := make([]int, messages)
	for i := range lengths {
		lengths[i] = 16<<10 + random.IntN(100<<10)
	}
	each(es, func(i int, e *Engine) {
		for k, n := range lengths {
			out := isend(t, e, Proc(1-i), 1, pattern(n, k))
			if got, _ := recv(t, e, Proc(1-i), 1, n); !bytes.Equal(got, pattern(n, k)) {
				t.Fatalf("message %d of %d bytes: other contents", k, n)
			}
			wait(t, e, out)
			e.Do(func(*Op) { e.answers.vain, e.answers.most = 0, 1+k%4*100 })
		}
	})
	t.Logf("%d of %d messages were read", count.calls, messages)
	for _, e := range es {
		wantShown(t, e, 0)
	}
}

// TestClaim: a message is either claimed or withdrawn.
func TestClaim(t *testing.T) {
	es, _ := sharing(t, 0)
	var from, to *sharedWire
	es[0].Do(func(*Op) { from = es[0].peers[1].conns[0].wire.(*sharedWire) })
	es[1].Do(func(*Op) { to = es[1].peers[0].conns[0].wire.(*sharedWire) })
	const name = 7<<32 | 3
	data, got := []byte("contents"), make([]byte, 8)
	addr := from.expose(name, data)
	switch {
	case addr == 0:
		t.Fatal("it is not shown")
	case from.expose(name+1, data) != 0:
		t.Error("another is shown in its place")
	case to.claim(name + 1):
		t.Error("another can be claimed")
	case !to.claim(name):
		t.Error("it cannot be claimed")
	case to.claim(name):
		t.Error("it can be claimed again")
	case from.withdraw(name):
		t.Error("it is withdrawn while it is claimed")
	}
	if err := to.pull(name, addr, 0, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read %q, %v", got, err)
	}
	if to.unclaim(name); !from.withdraw(name) {
		t.Error("it cannot be withdrawn")
	}
	if to.claim(name) {
		t.Error("it can be claimed after it was withdrawn")
	}
	from.expose(name, data)
	to.claim(name)
	from.conceal(name)
	if err := to.pull(name, addr, 0, got); err != ErrRefused {
		t.Errorf("%v for what is not shown any more", err)
	}
}
