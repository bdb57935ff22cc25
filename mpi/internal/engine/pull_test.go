package engine

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// brokenPull is a puller that fails after so many bytes.
type brokenPull struct {
	puller
	left int
	err  error
}

func (b *brokenPull) pull(name, addr uint64, off int, dst []byte) error {
	if b.left -= len(dst); b.left < 0 {
		return b.err
	}
	return b.puller.pull(name, addr, off, dst)
}

// breakPull has 1 fail to read the memory of 0.
func breakPull(t *testing.T, es []*Engine, after int, err error) {
	t.Helper()
	send(t, es[0], 1, 9, nil)
	recv(t, es[1], 0, 9, 0)
	es[1].Do(func(*Op) {
		c := es[1].peers[0].conns[0]
		c.pull = &brokenPull{c.pull, after, err}
	})
}

// TestPullFails: what cannot be read from the sender's memory is sent instead, even
// if some of it was read before.
func TestPullFails(t *testing.T) {
	const n = 3 * pullPiece
	for _, after := range []int{0, pullPiece} {
		for _, err := range []error{errNoPull, ErrRefused, syscall.EFAULT} {
			es := newWorld(t, 2)
			breakPull(t, es, after, err)
			out := isend(t, es[0], 1, 1, pattern(n, 5))
			if got, st := recv(t, es[1], 0, 1, n+1); st.Bytes != n || !bytes.Equal(got, pattern(n, 5)) {
				t.Errorf("%v after %d bytes: other contents", err, after)
			}
			wait(t, es[0], out)
			wantShown(t, es[0], 0)
		}
	}
}

// wantShown checks how many sends an engine takes to be readable by others.
func wantShown(t *testing.T, e *Engine, want int) {
	t.Helper()
	e.Do(func(*Op) {
		if e.shown != want {
			t.Errorf("%d sends may be read, want %d", e.shown, want)
		}
	})
}

// TestShown: a send that is given up, or whose receiver dies, is not shown any more.
func TestShown(t *testing.T) {
	const n = 3 * pullPiece
	es := newWorld(t, 2)
	send(t, es[0], 1, 9, nil) // there is a link
	recv(t, es[1], 0, 9, 0)
	first, second := isend(t, es[0], 1, 1, pattern(n, 5)), isend(t, es[0], 1, 2, pattern(n, 6))
	wantShown(t, es[0], 2)
	es[0].Do(func(op *Op) { op.Abandon(first) })
	wait(t, es[0], first)
	wantShown(t, es[0], 1)
	es[0].Do(func(*Op) { es[0].fail(es[0].peers[1], errTest) })
	if _, err := es[0].Wait(second); !errors.As(err, &ErrProcFailed{}) {
		t.Errorf("got %v, want that the receiver has failed", err)
	}
	wantShown(t, es[0], 0)
	crash(t, es)
}

// TestPullFromDead: a receive whose sender dies while it is being read ends with that
// death, not as if the sender had given the message up.
func TestPullFromDead(t *testing.T) {
	const n = 3 * pullPiece
	es := newWorld(t, 2)
	breakPull(t, es, pullPiece, syscall.ESRCH)
	isend(t, es[0], 1, 1, pattern(n, 5))
	if _, err := es[1].Probe(0, world, 1); err != nil {
		t.Fatal(err)
	}
	var in ID
	es[1].Do(func(op *Op) {
		r, err := es[1].irecv(&RecvArgs{From: 0, Context: world, Tag: 1, Buf: make([]byte, n)})
		if err != nil {
			t.Fatal(err)
		}
		in = r.id()
		for es[1].pulls.first != nil {
			es[1].pullAll()
		}
		if r.state != moving {
			t.Errorf("the receive is in state %d before the death is noticed", r.state)
		}
		es[1].fail(es[1].peers[0], errTest)
	})
	if _, err := es[1].Wait(in); !errors.As(err, &ErrProcFailed{}) {
		t.Errorf("got %v, want that the sender has failed", err)
	}
	crash(t, es)
}

// TestPullBesideSleeper: a large message is read at once although another goroutine of
// the receiver drives, and sleeps for a message that nobody sends yet.
func TestPullBesideSleeper(t *testing.T) {
	const n = 3 * pullPiece
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			es := kind.make(t, 2)
			big := isend(t, es[0], 1, 2, pattern(n, 5))
			if _, err := es[1].Probe(0, world, 2); err != nil {
				t.Fatal(err)
			}
			slept := make(chan bool)
			go func() {
				recv(t, es[1], 0, 1, 1)
				close(slept)
			}()
			eventually.Holds(t, "the other goroutine sleeps", func() (asleep bool) {
				es[1].Do(func(*Op) { d := es[1].driver; asleep = d != nil && d != &es[1].helper && d.asleep })
				return asleep
			})
			read := make(chan bool)
			go func() {
				if got, _ := recv(t, es[1], 0, 2, n); !bytes.Equal(got, pattern(n, 5)) {
					t.Error("other contents")
				}
				close(read)
			}()
			select {
			case <-read:
			case <-time.After(20 * time.Second):
				t.Error("it is not read")
			}
			send(t, es[0], 1, 1, []byte{1})
			<-slept
			<-read
			wait(t, es[0], big)
		})
	}
}
