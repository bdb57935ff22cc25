package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
)

// lostLinks is how many links of e to a peer are lost.
func lostLinks(e *Engine, p Proc) (n int) {
	e.Do(func(*Op) {
		for _, c := range e.peers[p].conns {
			if c.lost {
				n++
			}
		}
	})
	return n
}

// settled waits until nothing that was sent is kept any more, but for what is not
// acknowledged one by one.
func settled(t *testing.T, es []*Engine) {
	t.Helper()
	for i, e := range es {
		for under := 1; under > 0; {
			es[0].Poll()
			es[1].Poll()
			e.Do(func(*Op) {
				under = 0
				for _, c := range e.peers[1-i].conns {
					under += c.gauge.under
					if c.lost && c.over == nil {
						under++
					}
				}
			})
		}
		e.Do(func(*Op) {
			p := e.peers[1-i]
			if p.state != up || p.cut != 0 || p.backlog != 0 {
				t.Errorf("%d: peer in state %d, %d frames cut, %d bytes left", i, p.state, p.cut, p.backlog)
			}
			for k, c := range p.conns {
				if c.trail.forgotten != 0 || c.trail.many > 2*tellFrames {
					t.Errorf("%d: link %d keeps %d frames and has forgotten %d", i, k, c.trail.many, c.trail.forgotten)
				}
			}
		})
	}
}

// TestLostLink resets one of several links in the middle of a large message: it
// arrives once and whole, and so does what follows.
func TestLostLink(t *testing.T) {
	const n = 8 << 20
	for _, links := range []int{2, 3} {
		for _, at := range []int64{1, 100, 300_000, 1 << 20} {
			es, v := linked(t, links)
			v.at(1).fuse.Store(at)
			buf := make([]byte, n)
			in := irecv(t, es[1], 0, 1, buf)
			out := isend(t, es[0], 1, 1, pattern(n, 3))
			if st := wait(t, es[1], in); st.Bytes != n || !bytes.Equal(buf, pattern(n, 3)) {
				t.Fatalf("%d links, lost after %d bytes: other contents", links, at)
			}
			wait(t, es[0], out)
			for tag := range int32(40) { // over whichever link they took
				send(t, es[0], 1, tag, pattern(100, int(tag)))
				send(t, es[1], 0, tag, pattern(100, int(tag)))
			}
			for tag := range int32(40) {
				for i := range es {
					if got, _ := recv(t, es[i], Proc(1-i), tag, 100); !bytes.Equal(got, pattern(100, int(tag))) {
						t.Fatalf("tag %d: other contents", tag)
					}
				}
			}
			for i := range es {
				if got := lostLinks(es[i], Proc(1-i)); got != 1 {
					t.Errorf("%d has lost %d links, want 1", i, got)
				}
			}
			settled(t, es)
			closeAll(t, es)
		}
	}
}

// TestLastLink loses one link after the other: with the last the peer fails.
func TestLastLink(t *testing.T) {
	es, v := linked(t, 3)
	for k, link := range []int{2, 0} {
		v.at(link).reset()
		out := isend(t, es[0], 1, 1, pattern(300_000, k))
		if got, _ := recv(t, es[1], 0, 1, 300_000); !bytes.Equal(got, pattern(300_000, k)) {
			t.Fatal("other contents")
		}
		wait(t, es[0], out)
	}
	in, out := irecv(t, es[1], 0, 1, make([]byte, 10)), irecv(t, es[0], 1, 1, make([]byte, 10))
	v.at(1).reset()
	for i, id := range []ID{out, in} {
		if _, err := es[i].Wait(id); !errors.As(err, &ErrProcFailed{}) {
			t.Errorf("%d: got %v, want that the other has failed", i, err)
		}
	}
	for i, e := range es {
		e.Do(func(*Op) {
			if p := e.peers[1-i]; p.backlog != 0 || p.streams.first != nil || len(p.conns) != 0 {
				t.Errorf("%d: left behind: %d bytes, %d links", i, p.backlog, len(p.conns))
			}
		})
	}
	crash(t, es)
}

// TestLostModel has both sides send messages of all kinds and random sizes while
// links are reset at random moments, all but one: each arrives once, whole, and in
// the order of its tag.
func TestLostModel(t *testing.T) {
	lost := 0
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 11))
		links := 2 + int(seed%3)
		es, v := linked(t, links, func(c *Config) { c.EagerLimit = 16 << 10; c.Credit = 128 << 10 })
		for k := range links - 1 {
			v.at((k + int(seed)) % links).fuse.Store(1 + rng.Int64N(4<<20))
		}
		var posted [2]atomic.Int64
		for i, e := range es {
			e.Handle(9, func(_ *Op, _ Proc, hdr *[24]byte, b []byte) {
				k := int(binary.LittleEndian.Uint32(hdr[:]))
				if want := int(posted[i].Add(1)) - 1; k != want || len(b) != k || !bytes.Equal(b, pattern(k, k)) {
					t.Errorf("seed %d: %d: active message %d with %d bytes, want number %d", seed, i, k, len(b), want)
				}
			})
		}
		const many = 400
		type planned struct {
			tag  int32
			mode Mode
			size int
			wild bool
		}
		var plan [2][]planned
		for i := range plan {
			for range many {
				plan[i] = append(plan[i], planned{int32(rng.IntN(5)), Mode(rng.IntN(2)), rng.IntN(1 << rng.IntN(18)), rng.IntN(4) == 0})
			}
		}
		each(es, func(i int, e *Engine) {
			var outs, ins []ID
			var bufs [][]byte
			for k := range many {
				out, in := plan[i][k], plan[1-i][k]
				id, err := e.Isend(&SendArgs{To: Proc(1 - i), Context: world, Tag: out.tag, Mode: out.mode, Data: pattern(out.size, k)})
				if err != nil {
					t.Error(err)
					return
				}
				outs = append(outs, id)
				e.Do(func(op *Op) {
					var hdr [24]byte
					binary.LittleEndian.PutUint32(hdr[:], uint32(k))
					if err := op.Post(Proc(1-i), 9, &hdr, pattern(k, k), nil); err != nil {
						t.Error(err)
					}
				})
				from := Proc(1 - i)
				if in.wild {
					from = AnyProc
				}
				bufs = append(bufs, make([]byte, in.size))
				ins = append(ins, irecv(t, e, from, in.tag, bufs[k]))
			}
			for k, id := range ins {
				if st, err := e.Wait(id); err != nil || st.Bytes != int64(plan[1-i][k].size) || !bytes.Equal(bufs[k], pattern(plan[1-i][k].size, k)) {
					t.Errorf("seed %d: %d: message %d of tag %d: %d bytes, want %d; %v", seed, i, k, plan[1-i][k].tag, st.Bytes, plan[1-i][k].size, err)
					return
				}
			}
			for _, id := range outs {
				if _, err := e.Wait(id); err != nil {
					t.Errorf("seed %d: %d: send: %v", seed, i, err)
					return
				}
			}
		})
		if t.Failed() {
			crash(t, es)
			return
		}
		for i := range es {
			for posted[i].Load() < many {
				es[0].Poll()
				es[1].Poll()
			}
		}
		settled(t, es) // by then what comes twice has come
		for i := range es {
			if got := posted[i].Load(); got != many {
				t.Errorf("seed %d: %d: %d active messages, want %d", seed, i, got, many)
			}
		}
		n := lostLinks(es[0], 1)
		t.Logf("seed %d: %d links, lost %d", seed, links, n)
		lost += n
		closeAll(t, es)
	}
	if lost == 0 {
		t.Error("no link was lost")
	}
}

// TestRerouteWakes moves a lost link's frames to another while the driver sleeps: it
// wakes and sends them, nobody else comes by.
func TestRerouteWakes(t *testing.T) {
	es, _ := linked(t, 2)
	id, n := irecv(t, es[0], 1, 7, make([]byte, 1)), 3
	done := make(chan error, 1)
	go func() { // the driver of 0
		_, err := es[0].Wait(id)
		done <- err
	}()
	for asleep := false; !asleep; {
		es[0].Do(func(*Op) { asleep = es[0].driver != nil && es[0].driver != &es[0].helper && es[0].driver.asleep })
	}
	es[0].Do(func(op *Op) {
		p := es[0].peers[1]
		c := p.quick[0]
		for range n { // what waits for the link that is lost
			f := es[0].newFrame(&header{kind: kindPost, tag: 9}, nil, 0)
			(&header{kind: kindPost, tag: 9, link: c.index}).encode(&f.hdr)
			c.out.push(f)
		}
		c.broken, c.lost, c.trail.answered = true, true, true
		es[0].unlist(c)
		if err := es[0].reroute(c); err != nil {
			t.Error(err)
		}
	})
	for left := true; left; { // looked at without polling
		es[0].Do(func(*Op) {
			w := es[0].peers[1].live() // nil: the other side has seen what it was sent, and wants none of it
			left = w != nil && w.out.first != nil
		})
	}
	crash(t, es)
	<-done
}

// TestBrokenTwice: a link that breaks and in the same moment has brought what the peer
// cannot go on after fails the peer, though there are others.
func TestBrokenTwice(t *testing.T) {
	for _, first := range []error{errPeerClosed, errForgotten} {
		es, _ := linked(t, 3)
		es[0].Do(func(*Op) {
			c := es[0].peers[1].conns[1]
			es[0].breakLink(c, first)
			es[0].breakLink(c, errForgotten)
			es[0].breakLink(c, errPeerClosed)
		})
		if err := es[0].Failed(1); !errors.Is(err, errForgotten) {
			t.Errorf("%v: the peer is failed with %v, want %v", first, err, errForgotten)
		}
		crash(t, es)
	}
}

// TestOrderlyLoss: that a peer which has said goodbye closes one link before the other
// is nothing to warn of.
func TestOrderlyLoss(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		var log bytes.Buffer
		es, _ := linked(t, 2, func(c *Config) {
			if c.Self == 0 {
				c.Log = slog.New(slog.NewTextHandler(&log, nil))
			}
		})
		var warned bool
		es[0].Do(func(*Op) {
			p := es[0].peers[1]
			c := p.conns[1]
			c.bye, p.saidBye = orderly, orderly
			es[0].breakLink(c, errPeerClosed)
			es[0].settle()
			warned = strings.Contains(log.String(), "link lost")
			c.bye, p.saidBye = false, false
		})
		if warned == orderly {
			t.Errorf("after goodbye %v: warned %v", orderly, warned)
		}
		crash(t, es)
	}
}
