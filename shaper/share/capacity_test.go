package share

import (
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestCapacityRises: a node that sends without a pause, the only one of four, follows an
// uplink whose measured rate changes, and has all of it each time.
func TestCapacityRises(t *testing.T) {
	b := int64(100 * mbit)
	caps := map[Site]int64{"": b, "x": b}
	s := newSite(t, 4, 1, caps)
	s.want(0, "x", 1<<50)
	s.run(s.now + 20*ms)
	for _, factor := range []float64{1.06, 1.06, 3, 0.5, 0.2, 1.06, 1.5} {
		b = int64(float64(b) * factor)
		s.calm = s.now + 2*Lease // until all have heard of it
		for to := range caps {
			caps[to] = b
		}
		for i, m := range s.nodes {
			m.Uplink(s.now, b)
			m.Capacity(s.now, "x", b)
			s.step(i)
		}
		s.run(s.now + 2*Lease)
		for _, to := range []Site{"", "x"} {
			if got := s.nodes[0].Rate(to); got < b*95/100 || got > b {
				t.Errorf("of %.1f Mb/s it has %.1f towards %q", float64(b)/mbit, float64(got)/mbit, to)
			}
		}
	}
}

// TestCapEndsOnUplink: a node that began to send while the receiver allowed little has the
// uplink when that is over; and while it is, another may use what it leaves of the uplink.
func TestCapEndsOnUplink(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 2, 1, map[Site]int64{"": b, "x": b, "y": 0})
	allow := func(seq uint64) {
		data := (&notice{kind: kindCap, lease: uint16(CapLease / (100 * time.Microsecond)), seq: seq, entries: []entry{{kind: entryCap, a: 10 * mbit}}}).append(nil)
		for i, m := range s.nodes {
			if err := m.Capped(s.now, peer.ID{99}, "x", data); err != nil {
				t.Fatal(err)
			}
			s.step(i)
		}
	}
	all := func(i int, to Site) {
		t.Helper()
		if up := s.nodes[i].Rate(""); up < b*85/100 {
			t.Errorf("node %d, which alone sends much, has %.1f Mb/s of the uplink towards %q", i, float64(up)/mbit, to)
		}
	}
	allow(1)
	s.want(0, "x", 1<<50)
	s.run(s.now + CapLease + 20*ms)
	all(0, "x")

	allow(2)
	s.want(1, "y", 1<<50)
	for i := range 10 {
		s.run(s.now + CapLease/4)
		allow(uint64(3 + i))
	}
	all(1, "y")
}

// TestManyLittleSites: a downlink that is overfilled by sites of which each sends little
// is divided among them as well.
func TestManyLittleSites(t *testing.T) {
	const d = 100 * mbit
	for _, tc := range []struct {
		name   string
		sites  int
		rates  func(i int) int64
		capped int   // so many sites
		most   int64 // of all caps, with what the others send
	}{
		{"all alike", 62, func(int) int64 { return d * 95 / 100 / 62 }, 62, d * 101 / 100},
		{"two that are large", 6, func(i int) int64 { return []int64{60 * mbit, 60 * mbit, mbit, mbit, mbit, mbit}[i] }, 2, d * 101 / 100},
	} {
		m := New(nodeID(0), Config{})
		m.Downlink(0, d)
		var list []Arrival
		for i := range tc.sites {
			list = append(list, Arrival{From: peer.ID{1, byte(i)}, Site: string(rune('A'+i)) + "site", Rate: tc.rates(i)})
		}
		for now := time.Duration(0); now < 100*ms; now += 10 * ms {
			m.Arriving(now, list)
			m.Step(now)
		}
		caps, sum := m.Caps(), int64(0)
		for _, a := range list {
			if c := caps[a.Site]; c > 0 {
				sum += c
			} else {
				sum += a.Rate
			}
		}
		if len(caps) != tc.capped || sum > tc.most {
			t.Errorf("%s: %d sites are capped, want %d; all may send %.1f Mb/s of %.1f", tc.name, len(caps), tc.capped, float64(sum)/mbit, float64(d)/mbit)
		}
	}
}

// TestManySenders: a site of more senders than a node tells caps fills its downlink all the same.
func TestManySenders(t *testing.T) {
	const d, n = 100 * mbit, 400
	m := New(nodeID(0), Config{})
	m.Downlink(0, d)
	var list []Arrival
	for i := range n {
		list = append(list, Arrival{From: peer.ID{1, byte(i), byte(i >> 8)}, Site: []Site{"x", "y"}[i%2], Rate: d / n})
	}
	m.Arriving(ms, list)
	m.Step(ms)
	if caps := m.Caps(); len(caps) != 2 || caps["x"] > d*60/100 {
		t.Errorf("the caps are %v", caps)
	}
}

// TestOneName: of sites whose names are the same in notices each node has its share, and
// nobody is lent one's as the other's.
func TestOneName(t *testing.T) {
	const b = 100 * mbit
	x, y := twins()
	s := newSite(t, 2, 1, map[Site]int64{x: b, y: b})
	s.want(0, x, 1<<50)
	s.want(1, y, 1<<50)
	s.run(50 * ms)
	for i, m := range s.nodes {
		for _, to := range []Site{x, y} {
			if got := m.Rate(to); got != Safe(b, 2) {
				t.Errorf("node %d has %d towards %q, want its share", i, got, to)
			}
		}
	}
}

// twins returns two sites whose names are the same in notices.
func twins() (x, y Site) {
	for i, seen := 0, map[uint32]Site{}; ; i++ {
		s := fmt.Sprintf("site-%d", i)
		if other, ok := seen[PoolName(s)]; ok {
			return other, s
		}
		seen[PoolName(s)] = s
	}
}
