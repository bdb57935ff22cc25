package shaper

import "slices"

// chunkSize is what is allocated at a time for packets that wait. It holds the
// largest packet there is.
const chunkSize = 1 << 16

// maxSpare is how many unused chunks are kept, 4 MiB.
const maxSpare = 64

// chunk holds packets back to back, so that a run of them can leave by one
// system call without being moved.
type chunk struct {
	next *chunk
	data []byte
	recs []rec
	head int // recs before it are gone
}

// rec is one packet of a chunk.
type rec struct {
	at      int64 // when it came, ns
	carried int64 // in stage 1: what its link could have carried by then; see linkState.carried
	from    uint32
	to      uint32
}

// pool keeps chunks for reuse.
type pool struct {
	spare *chunk
	n     int
}

func (p *pool) get() *chunk {
	c := p.spare
	if c == nil {
		return &chunk{data: make([]byte, 0, chunkSize), recs: make([]rec, 0, 64)}
	}
	p.spare, c.next = c.next, nil
	p.n--
	return c
}

func (p *pool) put(c *chunk) {
	if p.n >= maxSpare {
		return
	}
	c.data, c.recs, c.head = c.data[:0], c.recs[:0], 0
	c.next, p.spare = p.spare, c
	p.n++
}

// fifo is a queue of packets, and a place in a round.
type fifo struct {
	flow        *Flow
	first, last *chunk
	packets     int
	bytes       int // as the packets count on the wire

	credit int  // deficit round robin: bytes that may still be served
	topped bool // the credit of this turn has been given
	in     bool // the fifo is in a round
}

func (q *fifo) empty() bool { return q.packets == 0 }

// push copies a packet to the end, with when it came. wire is its size for the count of
// bytes.
func (q *fifo) push(p *pool, came rec, pkt []byte, wire int) {
	c := q.last
	if c == nil || len(c.data)+len(pkt) > cap(c.data) {
		c = p.get()
		if q.last == nil {
			q.first = c
		} else {
			q.last.next = c
		}
		q.last = c
	}
	came.from = uint32(len(c.data))
	c.data = append(c.data, pkt...)
	came.to = uint32(len(c.data))
	c.recs = append(c.recs, came)
	q.packets++
	q.bytes += wire
}

// head returns the first packet, which stays in the queue's memory, and its record. The
// queue must not be empty.
func (q *fifo) head() (pkt []byte, r rec) {
	r = q.first.recs[q.first.head]
	return q.first.data[r.from:r.to:r.to], r
}

// next is the size of the first packet.
func (q *fifo) next() int {
	r := q.first.recs[q.first.head]
	return int(r.to - r.from)
}

// pop removes the first packet.
func (q *fifo) pop(p *pool, wire int) {
	c := q.first
	c.head++
	q.packets--
	q.bytes -= wire
	if c.head < len(c.recs) {
		return
	}
	q.first = c.next
	if q.first == nil {
		q.last = nil
	}
	c.next = nil
	p.put(c)
}

// drain removes everything and returns how many packets that were.
func (q *fifo) drain(p *pool) (packets int) {
	packets = q.packets
	for c := q.first; c != nil; {
		next := c.next
		p.put(c)
		c = next
	}
	q.first, q.last, q.packets, q.bytes = nil, nil, 0, 0
	return packets
}

// round serves queues by deficit round robin (Shreedhar and Varghese, 1995): over time
// each that has something waiting gets as many bytes as any other. Some are fresh: they
// go first for a while, as in RFC 8290, but only on credit.
type round struct {
	queues []*fifo
	fresh  int // how many of them are, from the front
}

// add puts a queue that has something to be served now at the end.
func (r *round) add(q *fifo) {
	if !q.in {
		q.in, q.credit, q.topped = true, 0, false
		r.queues = append(r.queues, q)
	}
}

// addFresh puts an empty queue that has something to be served now after the last that
// is fresh, for so many bytes at first, less what others are still to be served for what
// it had before.
func (r *round) addFresh(q *fifo, bytes int) {
	i := slices.Index(r.queues, q)
	switch {
	case i < 0:
		q.in, q.credit = true, 0
	case i < r.fresh || q.credit <= -bytes:
		return
	default:
		r.cut(q)
	}
	q.credit, q.topped = min(q.credit, 0)+bytes, true
	r.queues = slices.Insert(r.queues, r.fresh, q)
	r.fresh++
}

// aged ends the first turn of the first queue, which is fresh, and has the others served
// as much before it is again.
func (r *round) aged(bytes int) {
	q := r.queues[0]
	q.credit -= bytes
	r.yield(q)
}

// remove takes a queue out.
func (r *round) remove(q *fifo) {
	if q.in {
		r.cut(q)
		q.in = false
	}
}

// yield ends the turn of a queue.
func (r *round) yield(q *fifo) {
	r.cut(q)
	r.queues = append(r.queues, q)
	q.topped = false
}

func (r *round) cut(q *fifo) {
	i := slices.Index(r.queues, q)
	r.queues = slices.Delete(r.queues, i, i+1)
	if i < r.fresh {
		r.fresh--
	}
}

// clear takes all out.
func (r *round) clear() {
	for _, q := range r.queues {
		q.in = false
	}
	clear(r.queues)
	r.queues, r.fresh = r.queues[:0], 0
}
