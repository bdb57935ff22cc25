package coll

import (
	"math"
	"slices"
	"testing"
	"time"
)

// network is a model of time: every rank has a line to its site's switch and every
// site one to the others, each as fast up as down. What shares a line shares it
// fairly (max-min), as bytes do that flow side by side in TCP. Messages between
// the same two ranks flow one after another. Local steps cost nothing.
type network struct {
	lan, wan           float64 // bytes per second
	lanDelay, wanDelay float64 // seconds

	// eager is the largest message that is sent unasked; 0: all are. Larger ones are
	// announced and flow when the receiver wants them, which takes two latencies more.
	eager int
}

// wide is the network of the issue: 5 Gb/s and 50 µs inside sites, 100 Mb/s and
// 10 ms between.
func wide() network { return network{lan: 5e9 / 8, wan: 100e6 / 8, lanDelay: 50e-6, wanDelay: 10e-3} }

func (n network) bound() WAN {
	return WAN{Latency: time.Duration(n.wanDelay * 1e9), Bandwidth: n.wan}
}

// flow is a message in the model.
type flow struct {
	from, to  int
	left      float64 // bytes
	rate      float64
	delay     float64 // of its lines
	lines     []int
	ends      int     // round of the sender that waits for it
	told      float64 // when the receiver knows that it is coming
	begins    float64 // when its first byte may leave; Inf: the receiver has not asked yet
	arrives   float64 // when its last byte does; 0 as long as it has not left
	delivered bool
}

// line is what goes from one rank to another.
type line struct {
	sent   []*flow   // all messages
	wanted []float64 // when receives were started, all of them
	queue  []*flow   // in order; the first one flows
	recvs  []int     // rounds that wait, in order
	here   int       // messages that have arrived and nobody has asked for yet
}

// clock runs schedules in time.
type clock struct {
	network
	scheds  []Schedule
	now     float64
	round   []int
	started []bool
	ends    [][]int // by rank and round: messages that have to end before it does
	between map[[2]int]*line
	flows   []*flow   // at the head of their queues, or on their way
	crossed [][]int64 // bytes from site to site, as numbered by bySite
	places  []int     // site by rank
}

// elapsed returns how long the slowest rank takes, and the bytes between sites.
func elapsed(t *testing.T, n network, topo *Topo, scheds []Schedule) (float64, [][]int64) {
	t.Helper()
	size := len(scheds)
	l := bySite(topo)
	c := &clock{network: n, scheds: scheds, round: make([]int, size), started: make([]bool, size), ends: make([][]int, size),
		between: map[[2]int]*line{}, crossed: make([][]int64, l.nsites()), places: make([]int, size)}
	for s := range c.crossed {
		c.crossed[s] = make([]int64, l.nsites())
	}
	for r := range size {
		c.places[r], _ = l.siteOf(r)
		c.ends[r] = make([]int, len(scheds[r].Rounds))
	}
	for r := range size {
		c.advance(r)
	}
	for len(c.flows) > 0 {
		c.tick()
	}
	for r := range size {
		if c.round[r] < len(scheds[r].Rounds) {
			t.Fatalf("rank %d is stuck", r)
		}
	}
	return c.now, c.crossed
}

// advance takes a rank through as many rounds as it can.
func (c *clock) advance(r int) {
	for c.round[r] < len(c.scheds[r].Rounds) {
		if !c.started[r] {
			c.started[r] = true
			for i := range c.scheds[r].Rounds[c.round[r]] {
				c.start(r, &c.scheds[r].Rounds[c.round[r]][i])
			}
		}
		if c.ends[r][c.round[r]] > 0 {
			return
		}
		c.round[r]++
		c.started[r] = false
	}
}

func (c *clock) line(from, to int) *line {
	pair := [2]int{from, to}
	if c.between[pair] == nil {
		c.between[pair] = &line{}
	}
	return c.between[pair]
}

func (c *clock) start(r int, s *Step) {
	ends := c.round[r] + int(s.Wait)
	switch s.Kind {
	case RecvStep:
		l := c.line(s.Peer, r)
		l.wanted = append(l.wanted, c.now)
		l.match(len(l.wanted) - 1)
		if l.here > 0 {
			l.here--
			return
		}
		c.ends[r][ends]++
		l.recvs = append(l.recvs, ends)
	case SendStep:
		c.ends[r][ends]++
		l := c.line(r, s.Peer)
		f := &flow{from: r, to: s.Peer, left: float64(s.Src.N), ends: ends, delay: c.lanDelay, begins: c.now, lines: []int{2 * r, 2*s.Peer + 1}}
		if x, y := c.places[r], c.places[s.Peer]; x != y {
			c.crossed[x][y] += int64(s.Src.N)
			n := len(c.scheds)
			f.delay = c.wanDelay
			f.lines = append(f.lines, 2*(n+x), 2*(n+y)+1)
		}
		if c.eager > 0 && s.Src.N > c.eager {
			f.told, f.begins = c.now+f.delay, math.Inf(1)
		}
		l.sent = append(l.sent, f)
		l.match(len(l.sent) - 1)
		l.queue = append(l.queue, f)
		if len(l.queue) == 1 {
			c.flows = append(c.flows, f)
		}
	}
}

// match answers the announcement of message i once there is a receive for it.
func (l *line) match(i int) {
	if i < len(l.sent) && i < len(l.wanted) && math.IsInf(l.sent[i].begins, 1) {
		l.sent[i].begins = max(l.sent[i].told, l.wanted[i]) + l.sent[i].delay
	}
}

// flowing reports whether bytes of a message are leaving.
func (c *clock) flowing(f *flow) bool { return f.arrives == 0 && f.begins <= c.now }

// share gives flows their rates: again and again the line with the least for each
// of its flows is divided among them.
func (c *clock) share() {
	n := len(c.scheds)
	capacity := make([]float64, 2*(n+len(c.crossed)))
	users := make([]int, len(capacity))
	for i := range capacity {
		capacity[i] = c.lan
		if i >= 2*n {
			capacity[i] = c.wan
		}
	}
	var todo []*flow
	for _, f := range c.flows {
		if c.flowing(f) {
			todo = append(todo, f)
			for _, l := range f.lines {
				users[l]++
			}
		}
	}
	for len(todo) > 0 {
		tight, least := -1, math.Inf(1)
		for l, u := range users {
			if u > 0 && capacity[l]/float64(u) < least {
				tight, least = l, capacity[l]/float64(u)
			}
		}
		todo = slices.DeleteFunc(todo, func(f *flow) bool {
			if !slices.Contains(f.lines, tight) {
				return false
			}
			f.rate = least
			for _, l := range f.lines {
				capacity[l] -= least
				users[l]--
			}
			return true
		})
	}
}

// next is the moment at which the next message begins, or its last byte leaves or
// arrives; Inf where all wait for receivers.
func (c *clock) next() float64 {
	next := math.Inf(1)
	for _, f := range c.flows {
		switch {
		case f.arrives > 0:
			next = min(next, f.arrives)
		case c.flowing(f):
			next = min(next, c.now+f.left/f.rate)
		default:
			next = min(next, f.begins)
		}
	}
	return next
}

// tick goes on to the next moment.
func (c *clock) tick() {
	c.share()
	next := c.next()
	if math.IsInf(next, 1) {
		c.flows = nil // elapsed will say who is stuck
		return
	}
	const nothing = 1e-3 // of a byte
	var woken []int
	for _, f := range c.flows {
		switch {
		case f.arrives > 0 && f.arrives <= next:
			f.delivered = true
			woken = append(woken, c.deliver(f))
		case c.flowing(f):
			if f.left -= f.rate * (next - c.now); f.left <= nothing {
				f.arrives = next + f.delay
				c.ends[f.from][f.ends]--
				woken = append(woken, f.from)
			}
		}
	}
	c.now = next
	c.flows = slices.DeleteFunc(c.flows, func(f *flow) bool { return f.delivered })
	for _, l := range c.between { // whoever comes after one that has left
		if len(l.queue) > 0 && l.queue[0].arrives > 0 {
			if l.queue = l.queue[1:]; len(l.queue) > 0 {
				c.flows = append(c.flows, l.queue[0])
			}
		}
	}
	for _, r := range woken {
		c.advance(r)
	}
}

// deliver ends the receive that a message is for, and returns the receiver.
func (c *clock) deliver(f *flow) int {
	l := c.line(f.from, f.to)
	if len(l.recvs) > 0 {
		c.ends[f.to][l.recvs[0]]--
		l.recvs = l.recvs[1:]
	} else {
		l.here++
	}
	return f.to
}
