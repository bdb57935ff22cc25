package engine

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

func init() { nearAhead = time.Hour } // however slow this machine is

// aheadOf is what goes ahead to a peer; nil: nothing does. The engine is held.
func aheadOf(e *Engine, p Proc) *ahead { return e.peers[p].conns[0].wire.(*tcpWire).ahead }

// play has two engines send each other messages in turns, one or two at a time.
func play(t *testing.T, es []*Engine, rounds int, size func(*rand.Rand) int, before func(*Engine)) {
	t.Helper()
	each(es, func(i int, e *Engine) {
		same := rand.New(rand.NewPCG(3, 4))
		peer := Proc(1 - i)
		buf := make([]byte, 1<<20)
		for k := range rounds {
			for m := range 2 + same.IntN(3) {
				want := pattern(size(same), k+m)
				if m%2 == i {
					before(e)
					if err := e.Send(&SendArgs{To: peer, Context: world, Data: want}); err != nil {
						t.Errorf("round %d: %v", k, err)
					}
					continue
				}
				st, err := e.Recv(&RecvArgs{From: peer, Context: world, Buf: buf})
				if err != nil || !bytes.Equal(buf[:st.Bytes], want) {
					t.Errorf("round %d: %d bytes, %v, want %d", k, st.Bytes, err, len(want))
				}
			}
		}
	})
}

func small(r *rand.Rand) int { return r.IntN(1000) }

// mixed is small for the most part.
func mixed(r *rand.Rand) int {
	if r.IntN(4) > 0 {
		return small(r)
	}
	return r.IntN(1 << r.IntN(19))
}

func nothing(*Engine) {}

// spoiler makes datagrams of an engine nobody's, or the peer's again.
func spoiler(e *Engine) func(lose bool) {
	e.gate.lock()
	defer e.gate.unlock()
	a := aheadOf(e, 1-e.self)
	right := a.theirs
	return func(lose bool) {
		e.gate.lock()
		defer e.leave()
		if a.theirs = right; lose {
			a.theirs ^= 1
		}
	}
}

// TestAhead: small messages that answer each other go ahead, and arrive so; larger ones
// between them are where they belong.
func TestAhead(t *testing.T) {
	for name, size := range map[string]func(*rand.Rand) int{"small": small, "mixed": mixed} {
		es := processes()(t, 2)
		play(t, es, 1000, size, nothing)
		for i, e := range es {
			e.gate.lock()
			if a := aheadOf(e, Proc(1-i)); a == nil || !a.on || a.thrown < 500 || a.arrived < a.thrown-20 {
				t.Errorf("%s: process %d: %+v", name, i, a)
			}
			e.leave()
		}
	}
}

// TestAheadLoses: what does not arrive comes with the stream, whatever is lost.
func TestAheadLoses(t *testing.T) {
	for name, size := range map[string]func(*rand.Rand) int{"small": small, "mixed": mixed} {
		es := processes()(t, 2)
		play(t, es, 10, small, nothing)
		spoil := []func(bool){spoiler(es[0]), spoiler(es[1])}
		play(t, es, 300, size, func(e *Engine) { spoil[e.self](rand.IntN(10) == 0) })
		for i, e := range es {
			e.gate.lock()
			if a := aheadOf(e, Proc(1-i)); a.thrown == a.arrived {
				t.Errorf("%s: process %d: nothing was lost", name, i)
			}
			e.leave()
		}
	}
}

// TestAheadInVain: where datagrams do not arrive any more they are given up.
func TestAheadInVain(t *testing.T) {
	es := processes()(t, 2)
	play(t, es, 500, small, nothing)
	spoiler(es[0])(true)
	play(t, es, 100, small, nothing)
	es[0].gate.lock()
	a := aheadOf(es[0], 1)
	if lost := a.thrown - a.arrived - a.excused; a.on || lost <= mostVain || lost > 2*mostVain {
		t.Errorf("%d were lost, and it goes on: %v (%d went ahead, %d arrived, %d need not have; looked at %d times, turn %v, helper asleep %v)",
			lost, a.on, a.thrown, a.arrived, a.excused, a.looks, a.turn, es[0].helper.asleep)
	}
	es[0].leave()
}

// TestAheadBurst: many messages in a row are no reason to give datagrams up.
func TestAheadBurst(t *testing.T) {
	es := processes()(t, 2)
	play(t, es, 100, small, nothing)
	each(es, func(i int, e *Engine) {
		var b [1]byte
		for range 4 * mostVain {
			if i == 0 {
				if err := e.Send(&SendArgs{To: 1, Context: world, Data: b[:]}); err != nil {
					t.Error(err)
				}
			} else if _, err := e.Recv(&RecvArgs{From: 0, Context: world, Buf: b[:]}); err != nil {
				t.Error(err)
			}
		}
	})
	play(t, es, 100, small, nothing)
	es[0].gate.lock()
	if a := aheadOf(es[0], 1); !a.on {
		t.Errorf("given up: %+v", a)
	}
	es[0].leave()
}

// TestAheadWithoutDriver: what is sent while nobody but the helper drives, and asleep,
// arrives whatever becomes of datagrams, and nobody has to wait for that.
func TestAheadWithoutDriver(t *testing.T) {
	es := processes()(t, 2)
	play(t, es, 100, small, nothing)
	spoiler(es[0])(true)
	eventually.Holds(t, "the helper sleeps", func() bool {
		es[0].gate.lock()
		defer es[0].leave()
		return es[0].helper.asleep
	})
	if err := es[0].Send(&SendArgs{To: 1, Context: world, Data: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := es[1].Recv(&RecvArgs{From: 0, Context: world, Buf: make([]byte, 1)}); err != nil {
		t.Error(err)
	}
}

// TestAheadBeforeTheEnd: what a process has sent before it dies arrives, as by TCP.
func TestAheadBeforeTheEnd(t *testing.T) {
	for range 20 {
		es := processes()(t, 2)
		play(t, es, 20, small, nothing)
		es[1].gate.lock() // both the datagram and the end are there when it looks
		aheadOf(es[1], 0).last = false
		es[0].gate.lock()
		a := aheadOf(es[0], 1)
		a.turn = true
		es[0].leave()
		if err := es[0].Send(&SendArgs{To: 1, Context: world, Data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
		es[0].gate.lock()
		a.kept = nil // who is killed writes nothing any more
		_ = unix.Shutdown(a.w.fd, unix.SHUT_RDWR)
		es[0].leave()
		es[1].leave()
		if _, err := es[1].Recv(&RecvArgs{From: 0, Context: world, Buf: make([]byte, 1)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAheadWaits: what has come early is delivered in its turn, and what comes again is
// not.
func TestAheadWaits(t *testing.T) {
	es := processes()(t, 2)
	play(t, es, 10, small, nothing)
	var got []byte
	frame := func(what uint64) []byte {
		var b [longHeader]byte
		h := header{kind: kindPost, tag: 7, x: what}
		return b[:h.encode(&b)]
	}
	e := es[0]
	e.Handle(7, func(_ *Op, _ Proc, hdr *[24]byte, _ []byte) { got = append(got, hdr[0]) })
	e.gate.lock()
	defer e.leave()
	a := aheadOf(e, 1)
	first, size := a.came, uint64(longHeader)
	for _, x := range []struct{ place, what uint64 }{{1, 1}, {0, 0}, {1, 1}, {0, 0}, {3, 3}, {2, 2}, {3, 3}} {
		b := make([]byte, aheadHeader)
		binary.LittleEndian.PutUint64(b, a.own)
		binary.LittleEndian.PutUint64(b[8:], first+x.place*size)
		if _, err := a.hear(e, append(b, frame(x.what)...)); err != nil {
			t.Error(err)
		}
	}
	if want := []byte{0, 1, 2, 3}; !bytes.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	a.came, a.read = first, first // the stream knows nothing of this
}

// TestStreamsOnly: who wants no datagrams gets none, and sends none.
func TestStreamsOnly(t *testing.T) {
	es := processes(func(c *Config) { c.StreamsOnly = c.Self == 1 })(t, 2)
	play(t, es, 10, small, nothing)
	for i, e := range es {
		e.gate.lock()
		if a := aheadOf(e, Proc(1-i)); a != nil {
			t.Errorf("process %d has them", i)
		}
		e.leave()
	}
}

// FuzzAhead gives a link whatever datagrams its peer might send.
func FuzzAhead(f *testing.F) {
	datagram := func(place uint64, frames ...byte) []byte {
		b := binary.LittleEndian.AppendUint64(make([]byte, 8), place)
		return append(append(b, 0, 0, 0, 0, aheadHeard, 0, 0, 0), frames...)
	}
	var b [longHeader]byte
	h := header{kind: kindEager, n: 1, ctx: world, tag: 1}
	frame := append(append([]byte(nil), b[:h.encode(&b)]...), 5)
	f.Add(datagram(0, frame...), datagram(uint64(len(frame)), frame...))
	f.Add(datagram(uint64(len(frame)), frame...), datagram(0, frame...))
	f.Add(datagram(0, frame[:7]...), datagram(0))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		e, links := deaf(t, 1)
		c := links[0]
		a := &ahead{fd: -1, w: &tcpWire{fd: -1, c: c}}
		e.Do(func(*Op) {
			for _, b := range [][]byte{first, second, first} {
				if len(b) > len(a.buf) {
					b = b[:len(a.buf)]
				}
				if _, err := a.hear(e, b); err != nil {
					break
				}
			}
			if len(a.early) > aheadMost {
				t.Errorf("%d bytes are kept", len(a.early))
			}
			e.breakLink(c, errViolation)
		})
	})
}
