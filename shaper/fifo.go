package shaper

import "slices"

// Sizes of chunks, which are what is allocated at a time for packets that wait, bytes. The
// largest holds the largest packet there is, the smallest two of the usual ones: with a
// thousand peers most queues are short.
const (
	chunkSize    = 1 << 16
	chunkClasses = 3 // each is a quarter of the next
)

// classSize is how much the chunks of a class hold.
func classSize(class int) int { return chunkSize >> (2 * (chunkClasses - 1 - class)) }

// classFor is the first whose chunks hold n bytes, or else the last.
func classFor(n int) int {
	class := 0
	for class < chunkClasses-1 && classSize(class) < n {
		class++
	}
	return class
}

// maxSpare is how much of unused chunks is kept of each class, bytes.
const maxSpare = 4 << 20

// chunk holds packets back to back, so that a run of them can leave by one
// system call without being moved.
type chunk struct {
	next  *chunk
	class int
	data  []byte
	recs  []rec
	head  int // recs before it are gone
}

// rec is one packet of a chunk.
type rec struct {
	at      int64 // when it came, ns
	carried int64 // in stage 1: what its link could have carried by then; see linkState.carried
	from    uint32
	to      uint32
}

// pool keeps chunks for reuse, by class.
type pool [chunkClasses]struct {
	spare *chunk
	n     int
}

// get returns an empty chunk of a class.
func (p *pool) get(class int) *chunk {
	kept := &p[class]
	c := kept.spare
	if c == nil {
		size := classSize(class)
		return &chunk{class: class, data: make([]byte, 0, size), recs: make([]rec, 0, size/1024)}
	}
	kept.spare, c.next = c.next, nil
	kept.n--
	return c
}

func (p *pool) put(c *chunk) {
	kept := &p[c.class]
	if kept.n >= maxSpare/classSize(c.class) {
		return
	}
	c.data, c.recs, c.head = c.data[:0], c.recs[:0], 0
	c.next, kept.spare = kept.spare, c
	kept.n++
}

// fifo is a queue of packets, and a place in a round.
type fifo struct {
	flow        *Flow
	first, last *chunk
	packets     int
	bytes       int // as the packets count on the wire
	most        int // of bytes since it was last empty
	mostBefore  int // and in the time before that

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
		// What waits lies in few pieces, since a path joins what does: a new one is as
		// large as what there was the last time, or four times what is there already.
		c = p.get(classFor(max(len(pkt), 4*q.bytes, q.mostBefore)))
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
	q.most = max(q.most, q.bytes)
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
		q.most, q.mostBefore = 0, q.most
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
	q.first, q.last, q.packets, q.bytes, q.most = nil, nil, 0, 0, 0
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
// is fresh, for freshBytes at first, less what others are still to be served for what
// it had before.
func (r *round) addFresh(q *fifo) {
	i := slices.Index(r.queues, q)
	switch {
	case i < 0:
		q.in, q.credit = true, 0
	case i < r.fresh || q.credit <= -freshBytes:
		return
	default:
		r.cut(q)
	}
	q.credit, q.topped = min(q.credit, 0)+freshBytes, true
	r.queues = slices.Insert(r.queues, r.fresh, q)
	r.fresh++
}

// turn returns the queue whose turn it is to send its first packet, of a size; nil if all
// that have one are busy. What a queue may send in a turn besides what is left of its last
// is by quantum.
func (r *round) turn(size func(*fifo) int, quantum func(left int) int, busy func(*fifo) bool) *fifo {
	for i := 0; i < len(r.queues); {
		q := r.queues[i]
		if busy(q) {
			i++
			continue
		}
		if !q.topped {
			q.credit, q.topped = quantum(q.credit), true
		}
		switch {
		case !q.empty() && size(q) <= q.credit:
			return q
		case q.empty() && q.credit >= 0 && i >= r.fresh:
			r.remove(q)
		default:
			r.yield(q)
		}
	}
	return nil
}

// remove takes a queue out.
func (r *round) remove(q *fifo) {
	if q.in {
		r.cut(q)
		q.in = false
	}
}

// yield ends the turn of a queue. Has it been fresh, others are served as much as that was
// for before it is again.
func (r *round) yield(q *fifo) {
	if r.cut(q) {
		q.credit -= freshBytes
	}
	r.queues = append(r.queues, q)
	q.topped = false
}

// cut takes a queue from its place and reports whether it was fresh.
func (r *round) cut(q *fifo) bool {
	i := slices.Index(r.queues, q)
	r.queues = slices.Delete(r.queues, i, i+1)
	if i >= r.fresh {
		return false
	}
	r.fresh--
	return true
}

// clear takes all out.
func (r *round) clear() {
	for _, q := range r.queues {
		q.in = false
	}
	clear(r.queues)
	r.queues, r.fresh = r.queues[:0], 0
}
