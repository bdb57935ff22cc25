package wan

import (
	"sync/atomic"
	"time"
)

// direction holds the frames that are under way from one interface to the
// other. The emulator's thread owns everything but the counters.
type direction struct {
	in, out  *socket
	line     *line
	slot     int // bytes of a buffer
	room     int // buffers that may still be made
	idle     [][]byte
	queue    fifo
	counters counters
	recorder atomic.Pointer[recorder] // nil: nothing is recorded

	laze time.Duration // frames may lie in the kernel for so long before they are read
	look time.Duration // when to read those that lie there; never: none do
	due  time.Duration // when to send the next; never: there is none

	frames [][]byte // scratch for one batch
	sizes  [batch]int
	ages   [batch]time.Duration
}

// counters mirrors Counters for one writer and any number of readers.
type counters struct {
	frames, bytes, late, queueFull, lost, swallowed, overrun, refused atomic.Uint64
}

func (c *counters) read() Counters {
	return Counters{
		Frames: c.frames.Load(), Bytes: c.bytes.Load(), Late: c.late.Load(), QueueFull: c.queueFull.Load(), Lost: c.lost.Load(),
		Swallowed: c.swallowed.Load(), Overrun: c.overrun.Load(), Refused: c.refused.Load(),
	}
}

func newDirection(in, out *socket, p Pipe, slot, room int) *direction {
	return &direction{in: in, out: out, line: newLine(p), slot: slot, room: max(room, 2*batch), look: never, due: never, frames: make([][]byte, 0, batch)}
}

// maxLaze bounds how long frames lie in the kernel before they are read, and with it
// how late a change of the link is seen.
const maxLaze = 2 * time.Millisecond

// set changes the pipe. What comes by a delayed one is not due for the delay, so that
// half of it is no time lost: read together, frames wake the thread once.
func (d *direction) set(p Pipe) {
	d.line.set(p)
	d.laze = min(p.Delay/2, maxLaze)
}

// step reads frames if it is time to and sends those that are due. It reports whether
// that has moved any that matter now, and whether there are more to be read.
func (d *direction) step(start time.Time) (moved, more bool) {
	now := time.Since(start)
	n := 0
	if d.laze == 0 || d.look <= now {
		n = d.take(start)
		now = time.Since(start)
	}
	moved = d.laze == 0 && n > 0 || d.due <= now
	d.due = d.deliver(now)
	switch {
	case d.laze > 0 && n == batch:
		d.look = now
	case d.laze > 0 && n > 0:
		d.look = now + d.laze // more may come
	case d.laze == 0 || d.look <= now:
		d.look = never // the kernel will tell
	}
	return moved, n == batch
}

// next is when there is something to do if nothing comes before.
func (d *direction) next() time.Duration { return min(d.look, d.due) }

// asks reports whether frames are read only after the kernel has told of them.
func (d *direction) asks() bool { return d.laze > 0 && d.look == never }

// awaited is the descriptor by which the kernel tells of frames, or -1 where they may lie.
func (d *direction) awaited() int32 {
	if d.asks() || d.laze == 0 {
		return int32(d.in.fd)
	}
	return -1
}

// came is to be called when the kernel has something.
func (d *direction) came(now time.Duration) { d.look = now + d.laze }

// take reads one batch and returns how many frames it was. A direction whose
// memory is used up reads into its last buffers and drops what it read, so that
// the drop is counted here and not hidden in the kernel.
func (d *direction) take(start time.Time) int {
	d.frames = d.frames[:0]
	for len(d.frames) < batch {
		d.frames = append(d.frames, d.buffer())
	}
	n := d.in.receive(d.frames, d.sizes[:], d.ages[:])
	now := time.Since(start)
	for i, f := range d.frames {
		if i < n && d.accept(f, d.sizes[i], now-d.ages[i]) {
			continue
		}
		d.idle = append(d.idle, f)
	}
	return n
}

// buffer returns an idle buffer or makes one. Up to one batch is made beyond room.
func (d *direction) buffer() []byte {
	if n := len(d.idle); n > 0 {
		b := d.idle[n-1]
		d.idle = d.idle[:n-1]
		return b
	}
	d.room--
	return make([]byte, d.slot)
}

// accept puts a frame under way and reports whether it kept the buffer.
func (d *direction) accept(buf []byte, size int, arrived time.Duration) bool {
	if size > len(buf) || d.room <= 0 && len(d.idle) < batch {
		d.counters.overrun.Add(1)
		return false
	}
	due, fate := d.line.offer(arrived, size)
	if r := d.recorder.Load(); r != nil {
		r.note(d.line, arrived, size, fate)
	}
	switch fate {
	case dropQueue:
		d.counters.queueFull.Add(1)
		return false
	case dropLoss:
		d.counters.lost.Add(1)
		return false
	case dropBlackHole:
		d.counters.swallowed.Add(1)
		return false
	}
	d.queue.push(flight{due: due, buf: buf, size: size})
	return true
}

// deliver sends what is due and returns when the next frame will be: never, if there is
// none.
func (d *direction) deliver(now time.Duration) (next time.Duration) {
	for {
		d.frames = d.frames[:0]
		for len(d.frames) < batch && d.queue.n > 0 && d.queue.at(len(d.frames), now) != nil {
			f := d.queue.at(len(d.frames), now)
			d.frames = append(d.frames, f.buf[:f.size])
		}
		if len(d.frames) == 0 {
			break
		}
		sent := d.out.send(d.frames)
		for i, f := range d.frames {
			if i < sent {
				d.counters.frames.Add(1)
				d.counters.bytes.Add(uint64(len(f)))
				if now-d.queue.ring[d.queue.head].due >= LateBy {
					d.counters.late.Add(1)
				}
			} else if i == sent { // the one that failed; the rest is tried again
				d.counters.refused.Add(1)
			} else {
				break
			}
			d.idle = append(d.idle, f[:d.slot])
			d.queue.pop()
		}
	}
	if d.queue.n == 0 {
		return never
	}
	return d.queue.ring[d.queue.head].due
}

// flight is a frame under way.
type flight struct {
	due  time.Duration
	buf  []byte
	size int
}

// fifo is a growing ring. Frames leave in the order they came, so dues ascend.
type fifo struct {
	ring    []flight // its length is a power of two
	head, n int
}

func (q *fifo) push(f flight) {
	if q.n == len(q.ring) {
		grown := make([]flight, max(64, 2*len(q.ring)))
		k := copy(grown, q.ring[q.head:])
		copy(grown[k:], q.ring[:q.head])
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = f
	q.n++
}

// at returns the i-th frame if there is one and it is due.
func (q *fifo) at(i int, now time.Duration) *flight {
	if i >= q.n {
		return nil
	}
	f := &q.ring[(q.head+i)&(len(q.ring)-1)]
	if f.due > now {
		return nil
	}
	return f
}

func (q *fifo) pop() {
	q.ring[q.head] = flight{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
}
