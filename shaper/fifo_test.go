package shaper

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// holds is how much memory a queue has for packets, and in how many pieces.
func (q *fifo) holds() (size, pieces int) {
	for c := q.first; c != nil; c = c.next {
		size, pieces = size+cap(c.data), pieces+1
	}
	return size, pieces
}

// burst pushes n packets of 1452 bytes.
func (q *fifo) burst(p *pool, n int) {
	pkt := make([]byte, 1452)
	for range n {
		q.push(p, rec{}, pkt, queued(len(pkt)))
	}
}

// empties pops all.
func (q *fifo) empties(p *pool) {
	for !q.empty() {
		q.pop(p, queued(q.next()))
	}
}

// TestFIFO: packets of any size leave as they came, and nothing is left.
func TestFIFO(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var (
		p    pool
		q    fifo
		want [][]byte
	)
	for step := range 200_000 {
		more := 1 // of five steps, or 3 while it grows
		if step/500%2 == 0 {
			more = 3
		}
		if len(want) == 0 || rnd.IntN(5) < more {
			size := 1 + rnd.IntN(1500)
			if rnd.IntN(50) == 0 {
				size = chunkSize - rnd.IntN(chunkSize)
			}
			pkt := bytes.Repeat([]byte{byte(step)}, size)
			want = append(want, pkt)
			q.push(&p, rec{at: int64(step)}, pkt, queued(size))
			continue
		}
		if pkt, _ := q.head(); !bytes.Equal(pkt, want[0]) || q.next() != len(pkt) {
			t.Fatalf("step %d: %d bytes of %d, want %d of %d", step, len(pkt), pkt[0], len(want[0]), want[0][0])
		}
		q.pop(&p, queued(len(want[0])))
		want = want[1:]
	}
	q.empties(&p)
	if size, _ := q.holds(); size != 0 || q.bytes != 0 || q.packets != 0 {
		t.Errorf("empty, it holds %d bytes of memory for %d bytes of %d packets", size, q.bytes, q.packets)
	}
}

// TestFIFOMemory: a queue takes memory as befits what waits in it, and a burst like the
// one before lies in one piece.
func TestFIFOMemory(t *testing.T) {
	for _, c := range []struct{ packets, most int }{{1, 4 << 10}, {2, 4 << 10}, {12, 20 << 10}, {40, 84 << 10}, {400, (20 + 10*64) << 10}} {
		var (
			p pool
			q fifo
		)
		q.burst(&p, c.packets)
		if size, _ := q.holds(); size > c.most {
			t.Errorf("%d packets take %d bytes, want %d at most", c.packets, size, c.most)
		}
		q.empties(&p)
		q.burst(&p, c.packets)
		if _, pieces := q.holds(); pieces > 1+c.packets/45 {
			t.Errorf("%d packets lie in %d pieces the second time", c.packets, pieces)
		}
		for range 2 {
			q.empties(&p)
			q.burst(&p, 1)
		}
		if size, _ := q.holds(); size != 4<<10 {
			t.Errorf("after %d packets at once, one takes %d bytes", c.packets, size)
		}
	}
}

// TestFIFOAllocates nothing once it has held as much.
func TestFIFOAllocates(t *testing.T) {
	var p pool
	qs := make([]fifo, 1000)
	if n := testing.AllocsPerRun(20, func() {
		for i := range qs {
			qs[i].burst(&p, 1)
		}
		qs[0].burst(&p, 300)
		for i := range qs {
			qs[i].empties(&p)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFIFO(b *testing.B) {
	for _, n := range []int{1, 4, 45, 400} {
		b.Run(fmt.Sprintf("bursts of %d", n), func(b *testing.B) {
			var (
				p   pool
				q   fifo
				pkt = make([]byte, 1452)
			)
			b.ReportAllocs()
			b.SetBytes(int64(n * len(pkt)))
			for b.Loop() {
				for range n {
					q.push(&p, rec{}, pkt, queued(len(pkt)))
				}
				for !q.empty() {
					q.pop(&p, queued(len(pkt)))
				}
			}
		})
	}
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("standing at %d", n), func(b *testing.B) {
			var (
				p   pool
				q   fifo
				pkt = make([]byte, 1452)
			)
			q.burst(&p, n)
			b.ReportAllocs()
			b.SetBytes(int64(len(pkt)))
			for b.Loop() {
				q.push(&p, rec{}, pkt, queued(len(pkt)))
				q.pop(&p, queued(len(pkt)))
			}
		})
	}
}
