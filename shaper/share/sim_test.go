package share

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

const ms = time.Millisecond

// site is a simulated site: nodes, and a LAN that delays, loses, doubles and
// reorders their notices.
type site struct {
	t      testing.TB
	rng    *rand.Rand
	now    time.Duration
	nodes  []*Machine
	up     []bool // takes part; the others are dead and silent
	cut    []int  // which part of a partition a node is in
	wants  []map[Site]int64
	weight []int
	caps   map[Site]int64
	delay  func() time.Duration
	loss   float64
	double float64
	events eventQueue
	stamp  int
	checks int
	sent   int // notices
	bytes  int
	wakes  []time.Duration
	excess map[Site]float64            // bytes sent beyond the capacity
	most   map[Site]int64              // the most that was ever in use
	calm   time.Duration               // no check of sums before: views differ
	since  map[Site]time.Duration      // in excess since
	abroad func(from int, msg Message) // carries notices to other sites
	kept   map[*pool]kept
	strict time.Duration // the longest that an excess may last; 0: unchecked, since one may follow another
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func nodeID(i int) peer.ID { return peer.ID{0: byte(i + 1), 31: 7} }

// newSite makes n nodes that all know each other and the capacities.
func newSite(t testing.TB, n int, seed uint64, caps map[Site]int64) *site {
	s := &site{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), caps: caps, cut: make([]int, n), up: make([]bool, n),
		wants: make([]map[Site]int64, n), weight: make([]int, n), wakes: make([]time.Duration, n),
		excess: map[Site]float64{}, most: map[Site]int64{}, since: map[Site]time.Duration{}, kept: map[*pool]kept{},
		delay: func() time.Duration { return 200 * time.Microsecond },
	}
	for i := range n {
		m := New(nodeID(i), Config{Start: uint64(1000 + i)})
		s.nodes = append(s.nodes, m)
		s.wants[i] = map[Site]int64{}
		s.weight[i], s.up[i] = 1, true
		for _, to := range sites(caps) {
			m.Capacity(0, to, caps[to])
		}
	}
	s.members()
	return s
}

func sites(caps map[Site]int64) []Site {
	var list []Site
	for to := range caps {
		list = append(list, to)
	}
	slices.Sort(list)
	return list
}

// members tells every node at once who is up.
func (s *site) members() {
	for i, m := range s.nodes {
		m.Members(s.now, s.alive())
		s.step(i)
	}
}

func (s *site) alive() []peer.ID {
	var ids []peer.ID
	for i := range s.nodes {
		if s.up[i] {
			ids = append(ids, nodeID(i))
		}
	}
	return ids
}

func (s *site) at(t time.Duration, do func()) {
	s.stamp++
	heap.Push(&s.events, event{t, s.stamp, do})
}

// want changes what a node could send.
func (s *site) want(i int, to Site, rate int64) {
	s.wants[i][to] = rate
	s.nodes[i].Demand(s.now, to, rate, s.weight[i])
	s.step(i)
}

// step lets a node do what is due and carries its notices.
func (s *site) step(i int) {
	if !s.up[i] {
		return
	}
	out, wake := s.nodes[i].Step(s.now)
	for _, msg := range out {
		s.carry(i, msg)
	}
	if wake != 0 && wake != s.wakes[i] {
		if wake <= s.now {
			s.t.Fatalf("node %d at %v wants to be woken at %v", i, s.now, wake)
		}
		s.wakes[i] = wake
		s.at(wake, func() {
			if s.wakes[i] == wake {
				s.wakes[i] = 0
				s.step(i)
			}
		})
	}
}

func (s *site) carry(from int, msg Message) {
	s.sent++
	s.bytes += len(msg.Data)
	to := int(msg.To[0]) - 1
	if to >= len(s.nodes) {
		s.abroad(from, msg)
		return
	}
	copies := 1
	switch r := s.rng.Float64(); {
	case r < s.loss:
		return
	case r < s.loss+s.double:
		copies = 2
	}
	if s.cut[from] != s.cut[to] {
		return
	}
	for range copies {
		s.at(s.now+s.delay(), func() {
			if !s.up[to] || s.cut[from] != s.cut[to] {
				return
			}
			if err := s.nodes[to].Receive(s.now, nodeID(from), msg.Data); err != nil && s.now >= s.calm {
				s.t.Fatalf("node %d refuses a notice of node %d: %v", to, from, err)
			}
			s.step(to)
		})
	}
}

// run plays until a time, checking at every event.
func (s *site) run(until time.Duration) {
	s.t.Helper()
	for len(s.events) > 0 && s.events[0].at <= until {
		e := heap.Pop(&s.events).(event)
		s.pass(e.at)
		e.do()
		s.check()
	}
	s.pass(until)
}

// use is what a node sends now.
func (s *site) use(i int, to Site) int64 {
	if !s.up[i] {
		return 0
	}
	if to == "" { // over all destinations
		sum := int64(0)
		for other := range s.caps {
			if other != "" {
				sum += s.use(i, other)
			}
		}
		return min(sum, s.nodes[i].Rate(""))
	}
	return min(s.wants[i][to], s.nodes[i].Rate(to))
}

func (s *site) total(to Site) (sum int64) {
	for i := range s.nodes {
		sum += s.use(i, to)
	}
	return sum
}

// pass lets time go by, adding up what exceeds the capacity.
func (s *site) pass(t time.Duration) {
	for to, b := range s.caps {
		sum := s.total(to)
		s.most[to] = max(s.most[to], sum)
		if over := sum - b; over > 0 {
			s.excess[to] += float64(over) / 8 * (t - s.now).Seconds()
		}
	}
	s.now = t
}

// check wants at this instant what the package comment proves: nobody uses more
// of a lender's share than that one believes, and the sum exceeds the capacity
// by no more than what has been taken back from nodes that are deaf, and no longer than
// strict.
func (s *site) check() {
	s.t.Helper()
	if s.checks++; s.now < s.calm || len(s.nodes) > 8 && s.checks%len(s.nodes) != 0 {
		clear(s.kept) // it compares successive events only
		return
	}
	for to, b := range s.caps {
		unheard := int64(0)
		for i, m := range s.nodes {
			if s.up[i] {
				unheard += s.checkLender(i, m.bySite[to])
				if m.bySite[to].implied { // what it uses is the uplink's, too
					unheard += s.checkLender(i, m.pools[0])
				}
			}
		}
		sum := s.total(to)
		if sum > b+unheard {
			s.t.Fatalf("at %v %d is in use towards %q of %d, with %d taken back unheard", s.now, sum, to, b, unheard)
		}
		switch began, over := s.since[to]; {
		case sum <= b:
			delete(s.since, to)
		case !over:
			s.since[to] = s.now
		case s.strict > 0 && s.now > began+s.strict:
			s.t.Fatalf("at %v more than %d has been in use towards %q since %v", s.now, b, to, began)
		}
	}
}

// checkLender returns what a node has taken back in a pool from those who are deaf.
func (s *site) checkLender(i int, p *pool) int64 {
	s.t.Helper()
	m := s.nodes[i]
	held, unheard := int64(0), int64(0)
	for j, other := range s.nodes {
		if i == j || !s.up[j] {
			continue
		}
		var hold, lease int64
		if t := m.byID[nodeID(j)]; t != nil && t.sides[p] != nil && t.sides[p].holdEnd > s.now {
			hold = t.sides[p].hold
			unheard += hold - t.sides[p].held(s.now)
		}
		if t := other.byID[nodeID(i)]; t != nil {
			if d := t.sides[other.bySite[p.site]]; d != nil && d.leaseEnd > s.now {
				lease = d.lease
			}
		}
		if lease > hold {
			s.t.Fatalf("at %v node %d uses %d of node %d's share towards %q, which believes %d", s.now, j, lease, i, p.site, hold)
		}
		held += hold
	}
	if used := s.use(i, p.site); !p.hungry && !p.implied && used > p.own {
		s.t.Fatalf("at %v node %d uses %d of its own share and keeps %d", s.now, i, used, p.own)
	}
	back := max(held+p.own-p.lending, 0)
	was, checked := s.kept[p]
	s.kept[p] = kept{back, p.own, p.lending}
	// Only the lender's own use takes back; what it holds for others must not grow
	// beyond what is there.
	if allowed := was.back + max(p.own-was.own, 0) + max(was.lending-p.lending, 0); checked && back > allowed {
		s.t.Fatalf("at %v node %d lends %d more than it has towards %q", s.now, i, back-allowed, p.site)
	}
	return unheard
}

// kept is what a lender kept at the check before.
type kept struct{ back, own, lending int64 }

// upTo is a random time below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}
