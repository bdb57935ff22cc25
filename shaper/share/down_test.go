package share

import (
	"testing"
	"time"
)

// incast is two sites of senders, "x" with one node and "y" with two, and a site
// of two receivers: x and one of y send to the first, the other of y to the
// second. One-way delay is 5 ms.
type incast struct {
	t     *testing.T
	s     *site // the receivers, nodes 0 and 1
	nodes []*Machine
	sites []Site
	to    []int
	wants []int64
}

func newIncast(t *testing.T, down int64) *incast {
	c := &incast{t: t, s: newSite(t, 2, 1, nil), sites: []Site{"x", "y", "y"}, to: []int{0, 0, 1}, wants: make([]int64, 3)}
	c.s.abroad = c.deliver
	for i := range c.sites {
		m := New(nodeID(10+i), Config{})
		m.Capacity(0, "r", 90*mbit) // of each link alone
		c.nodes = append(c.nodes, m)
	}
	for _, m := range c.s.nodes {
		m.Downlink(0, down)
	}
	return c
}

// run plays for a time, measuring arrivals every 10 ms.
func (c *incast) run(d time.Duration) {
	for end := c.s.now + d; c.s.now < end; c.s.run(c.s.now + 10*ms) {
		for r, m := range c.s.nodes {
			var list []Arrival
			for i := range c.nodes {
				if c.to[i] == r && c.wants[i] > 0 {
					list = append(list, Arrival{nodeID(10 + i), c.sites[i], c.sends(i)})
				}
			}
			m.Arriving(c.s.now, list)
			c.s.step(r)
		}
	}
}

// deliver carries a cap to its sender.
func (c *incast) deliver(r int, msg Message) {
	c.s.at(c.s.now+5*ms, func() {
		if err := c.nodes[int(msg.To[0])-11].Capped(c.s.now, nodeID(r), "r", msg.Data); err != nil {
			c.t.Error(err)
		}
	})
}

func (c *incast) sends(i int) int64 {
	c.nodes[i].Step(c.s.now)
	return min(c.wants[i], c.nodes[i].Rate("r"))
}

func TestIncastIsShared(t *testing.T) {
	const d = 90 * mbit
	c := newIncast(t, d)
	c.wants = []int64{d, d, d}
	c.run(100 * ms)
	for i := range c.nodes { // three senders: a third each; the nodes of y are alone in their own view
		want := int64(d / 3)
		if c.sites[i] == "y" {
			want = d * 2 / 3
		}
		if got := c.nodes[i].Rate("r"); got < want*9/10 || got > want*11/10 {
			t.Errorf("sender %d may send %.1f Mb/s, want %.1f", i, float64(got)/mbit, float64(want)/mbit)
		}
	}
	if caps := c.s.nodes[0].Caps(); len(caps) != 2 {
		t.Errorf("the receiver's caps are %v", caps)
	}
	c.wants[1], c.wants[2] = 0, 0
	c.run(700 * ms)
	if got := c.nodes[0].Rate("r"); got != d {
		t.Errorf("alone again, it may send %d, want its link's %d", got, int64(d))
	}
}

// TestOneSiteIsNoIncast: the sending site's own limit does.
func TestOneSiteIsNoIncast(t *testing.T) {
	c := newIncast(t, 90*mbit)
	c.wants = []int64{0, 90 * mbit, 90 * mbit}
	c.run(200 * ms)
	if got := c.nodes[1].Rate("r"); got != 90*mbit {
		t.Errorf("capped at %d", got)
	}
}

// TestCapExpires: without word there is no cap.
func TestCapExpires(t *testing.T) {
	m := New(nodeID(0), Config{})
	m.Capacity(0, "r", 90*mbit)
	capOf := func(seq uint64, rate int64) []byte {
		return (&notice{kind: kindCap, lease: 1500, seq: seq, entries: []entry{{kind: entryCap, a: rate}}}).append(nil)
	}
	for _, step := range []struct {
		at   time.Duration
		data []byte
		want int64
	}{
		{0, capOf(5, 30*mbit), 30 * mbit},
		{ms, capOf(4, 10*mbit), 30 * mbit}, // late
		{100 * ms, capOf(6, 40*mbit), 40 * mbit},
		{100*ms + CapLease, nil, 90 * mbit},
	} {
		if step.data != nil {
			if err := m.Capped(step.at, nodeID(9), "r", step.data); err != nil {
				t.Fatal(err)
			}
		}
		_, wake := m.Step(step.at)
		if got := m.Rate("r"); got != step.want || (step.data != nil) != (wake > 0) {
			t.Errorf("at %v: %d, want %d; wake at %v", step.at, got, step.want, wake)
		}
	}
}
