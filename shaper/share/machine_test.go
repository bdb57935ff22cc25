package share

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const mbit = 1_000_000

func TestAloneHasEverythingAndSaysNothing(t *testing.T) {
	s := newSite(t, 1, 1, map[Site]int64{"b": 100 * mbit})
	s.want(0, "b", 1000*mbit)
	s.run(time.Second)
	if got := s.nodes[0].Rate("b"); got != 100*mbit {
		t.Errorf("rate %d, want all of 100 Mb/s", got)
	}
	if s.sent != 0 || s.wakes[0] != 0 {
		t.Errorf("%d notices and a wake at %v from a node alone", s.sent, s.wakes[0])
	}
}

func TestNoLimit(t *testing.T) {
	s := newSite(t, 3, 1, map[Site]int64{"b": 0})
	s.want(0, "b", 1000*mbit)
	s.run(time.Second)
	if got := s.nodes[0].Rate("b"); got != 0 || s.sent != 0 {
		t.Errorf("rate %d after %d notices, want no limit and silence", got, s.sent)
	}
}

// TestLoneSender: all of the link within 20 ms, at sites of all sizes.
func TestLoneSender(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8, 16, 32} {
		for _, d := range []time.Duration{50 * time.Microsecond, 300 * time.Microsecond, ms} {
			t.Run(fmt.Sprintf("%d nodes %v", n, d), func(t *testing.T) {
				b := int64(100 * mbit)
				s := newSite(t, n, 1, map[Site]int64{"b": b})
				s.delay = func() time.Duration { return d }
				s.run(30 * ms)
				if s.sent != 0 {
					t.Fatalf("%d notices while nobody sends", s.sent)
				}
				s.want(0, "b", b)
				if got := s.nodes[0].Rate("b"); got != Safe(b, n) {
					t.Errorf("at once %d, want the safe share %d", got, Safe(b, n))
				}
				s.run(s.now + 2*d + ms)
				if got := s.nodes[0].Rate("b"); got < b*95/100 {
					t.Errorf("after a round trip %.3f of the link, want 0.95", float64(got)/float64(b))
				}
				for range 100 {
					s.run(s.now + 7*ms)
					if got := s.nodes[0].Rate("b"); got < b*95/100 {
						t.Fatalf("at %v %.3f of the link", s.now, float64(got)/float64(b))
					}
				}
				s.want(0, "b", 0)
				s.run(s.now + 200*ms)
				before := s.sent
				s.run(s.now + 10*time.Second)
				if s.sent != before {
					t.Errorf("%d notices after the end", s.sent-before)
				}
			})
		}
	}
}

// TestContended: who is hungry is known to the others, in the pool and where the uplink
// implies it, and to them alone; and from whom nothing is to be had but what is lent.
func TestContended(t *testing.T) {
	for _, up := range []int64{0, 100 * mbit} {
		s := newSite(t, 3, 1, map[Site]int64{"": up, "b": 100 * mbit, "c": 100 * mbit})
		check := func(when string, want ...bool) {
			t.Helper()
			for i, w := range want {
				if got := s.nodes[i].Contended("b"); got != w {
					t.Errorf("uplink %d, %s: node %d says %v of others", up, when, i, got)
				}
				if got := s.nodes[i].Contended("c"); got != (w && up > 0) {
					t.Errorf("uplink %d, %s: node %d says %v of others elsewhere", up, when, i, got)
				}
			}
		}
		check("at first", false, false, false)
		s.want(0, "b", 1000*mbit)
		s.run(s.now + 10*ms)
		check("with one", false, true, true)
		if m := s.nodes[2]; !m.Hungry(nodeID(0), "b") || m.Hungry(nodeID(1), "b") || m.Hungry(nodeID(0), "c") != (up > 0) || m.Hungry(nodeID(2), "b") || m.Hungry(nodeID(0), "d") {
			t.Errorf("uplink %d: node 2 does not know that node 0 alone is hungry", up)
		}
		s.want(1, "b", 1000*mbit)
		s.run(s.now + 10*ms)
		check("with two", true, true, true)
		s.want(0, "b", 0)
		s.want(1, "b", 0)
		s.run(s.now + time.Second)
		check("afterwards", false, false, false)
	}
}

// TestNewSender: the others come down within a notice's delay, and a new sender has its
// share after that of the answer. Nothing is in use twice.
func TestNewSender(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	s.delay = func() time.Duration { return 300 * time.Microsecond }
	s.want(0, "b", b)
	s.run(20 * ms)
	for i := 1; i < 4; i++ {
		s.want(i, "b", b)
	}
	if got := s.nodes[1].Rate("b"); got < Safe(b, 4)/Reserve || got > b/4/Reserve*2 {
		t.Errorf("a new sender has %d at once, want what it does not lend", got)
	}
	s.run(s.now + 301*time.Microsecond)
	if got := s.nodes[0].Rate("b"); got > b/4 {
		t.Errorf("after a notice's delay the first still has %d", got)
	}
	s.run(s.now + 301*time.Microsecond)
	if got := s.nodes[1].Rate("b"); got != Safe(b, 4) {
		t.Errorf("a new sender has %d after a round trip, want %d", got, Safe(b, 4))
	}
	s.run(s.now + 50*ms)
	if got := s.excess["b"]; got > 0 {
		t.Errorf("%.0f bytes beyond the capacity", got)
	}
	for i := range 4 {
		if got := s.nodes[i].Rate("b"); got != Safe(b, 4) {
			t.Errorf("node %d has %d, want %d", i, got, Safe(b, 4))
		}
	}
}

// TestAllHungry: where nobody has anything to lend, nodes say little; and if the notice
// by which one would end that is lost, the others have its share as soon as they say the
// next.
func TestAllHungry(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	for i := range 4 {
		s.want(i, "b", b)
	}
	s.run(200 * ms)
	before := s.sent
	s.run(s.now + time.Second)
	if n := s.sent - before; n < 4*3*10 || n > 4*3*14 {
		t.Errorf("%d notices in a second, want one to each other every 80 ms", n)
	}
	s.loss = 1
	s.want(3, "b", 0)
	s.run(s.now + 5*ms)
	s.loss = 0
	s.run(s.now + 85*ms)
	for i := range 3 {
		if got := s.nodes[i].Rate("b"); got < b*31/100 {
			t.Errorf("node %d has %d of what is left, want %d", i, got, b/3)
		}
	}
	s.up[3] = false
	s.run(s.now + Lease + 5*ms)
	for i := range 3 {
		if got := s.nodes[i].Rate("b"); got != Safe(b, 4) {
			t.Errorf("node %d has %d of the dead one's share", i, got-Safe(b, 4))
		}
	}
}

// TestMoreThanFits: what finds no room in a notice is no reason for more of them; and what
// was borrowed and is pushed out by others, in whichever order they come, is given back.
func TestMoreThanFits(t *testing.T) {
	const b = 100 * mbit
	caps := map[Site]int64{}
	for i := range maxEntries + 2 {
		caps[fmt.Sprint("s", i)] = b
	}
	for seed := range uint64(4) {
		s := newSite(t, 4, seed, caps)
		order := sites(caps)
		s.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i, to := range order {
			s.want(0, to, b)
			if i%8 == 7 {
				s.run(s.now + ms)
			}
		}
		s.run(200 * ms)
		before := s.sent
		s.run(s.now + time.Second)
		if n := s.sent - before; n > 2*3*50+30 {
			t.Errorf("seed %d: %d notices in a second, want one to each other every 20 ms, and their answers", seed, n)
		}
	}
}

// TestIdleShareIsUsed: what a node leaves, others have within 20 ms.
func TestIdleShareIsUsed(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	for i := range 4 {
		s.want(i, "b", b)
	}
	s.run(100 * ms)
	s.want(2, "b", 0)
	s.want(3, "b", 0)
	s.run(s.now + 20*ms)
	for i := range 2 {
		if got := s.nodes[i].Rate("b"); got < b*47/100 {
			t.Errorf("node %d has %d of %d, want half", i, got, int64(b))
		}
	}
}

// TestMaxMin: shares are within 10 % of weighted max–min 50 ms after a change.
func TestMaxMin(t *testing.T) {
	const b = 120 * mbit
	for name, c := range map[string]struct {
		nodes   int
		wants   []int64 // 0: idle
		weights []int
		shares  []int64
	}{
		"two of four":           {4, []int64{b, b}, []int{1, 1}, []int64{60 * mbit, 60 * mbit}},
		"one wants little":      {4, []int64{b, b, 12 * mbit}, []int{1, 1, 1}, []int64{54 * mbit, 54 * mbit, 12 * mbit}},
		"one wants some":        {4, []int64{b, 40 * mbit}, []int{1, 1}, []int64{80 * mbit, 40 * mbit}},
		"weights":               {4, []int64{b, b}, []int{1, 2}, []int64{40 * mbit, 80 * mbit}},
		"weights above a floor": {4, []int64{b, b}, []int{1, 9}, []int64{30 * mbit, 90 * mbit}},
		"weights of three":      {8, []int64{b, b, b}, []int{1, 2, 3}, []int64{20 * mbit, 40 * mbit, 60 * mbit}},
		"all":                   {4, []int64{b, b, b, b}, []int{1, 1, 1, 5}, []int64{30 * mbit, 30 * mbit, 30 * mbit, 30 * mbit}},
		"sixteen of 32": {32, []int64{b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b},
			[]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int64{7.5 * mbit}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, c.nodes, 1, map[Site]int64{"b": b})
			s.delay = func() time.Duration { return ms/2 + upTo(s.rng, ms/2) }
			s.want(c.nodes-1, "b", b) // somebody has it all, then ends
			s.run(100 * ms)
			s.want(c.nodes-1, "b", 0)
			for i, w := range c.wants {
				s.weight[i] = c.weights[i]
				s.want(i, "b", w)
			}
			s.run(s.now + 50*ms)
			for i := range c.wants {
				want := c.shares[min(i, len(c.shares)-1)]
				if got := s.use(i, "b"); got < want*9/10 || got > want*11/10 {
					t.Errorf("node %d sends %.2f Mb/s, want %.2f", i, float64(got)/mbit, float64(want)/mbit)
				}
			}
		})
	}
}

// TestDeadMember: one that does not answer costs its own share only.
func TestDeadMember(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	s.up[3] = false // the directory still says otherwise
	s.want(0, "b", b)
	s.run(50 * ms)
	if got := s.nodes[0].Rate("b"); got < 73*mbit || got > 75*mbit {
		t.Errorf("beside a dead member %.1f Mb/s, want 75 less the reserve", float64(got)/mbit)
	}
	s.members() // now it knows
	s.run(s.now + 50*ms)
	if got := s.nodes[0].Rate("b"); got < 95*mbit {
		t.Errorf("once it is known to be down %.1f Mb/s", float64(got)/mbit)
	}
}

// TestPartition: everyone is back at the safe share within a lease, and all is
// well after it.
func TestPartition(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	s.want(0, "b", b)
	s.run(103 * ms)
	s.cut = []int{0, 1, 2, 3}
	s.run(s.now + Lease)
	if got := s.nodes[0].Rate("b"); got != Safe(b, 4) {
		t.Errorf("a lease after the partition %d, want %d", got, Safe(b, 4))
	}
	s.run(s.now + 100*ms)
	s.cut = []int{0, 0, 0, 0}
	s.run(s.now + 20*ms)
	if got := s.nodes[0].Rate("b"); got < b*95/100 {
		t.Errorf("20 ms after it has healed %d", got)
	}
}

// TestPauses: a program that sends in turns with computing keeps its leases while
// nobody else wants them, and gives them up at once to one who does.
func TestPauses(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	s.want(0, "b", b)
	for range 20 {
		s.run(s.now + ms)
		s.want(0, "b", 0)
		s.run(s.now + 30*ms)
		if got := s.nodes[0].Rate("b"); got < b*95/100 {
			t.Fatalf("after a pause of 30 ms it has %d", got)
		}
		s.want(0, "b", b)
	}
	s.want(0, "b", 0)
	s.run(s.now + 5*ms)
	s.want(1, "b", b)
	s.run(s.now + 2*sendGap)
	if got := s.nodes[1].Rate("b"); got < b*95/100 {
		t.Errorf("beside one that pauses another has %d after %v", got, 2*sendGap)
	}
}

// TestUplink: the uplink is shared over all destinations.
func TestUplink(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"": b, "x": 80 * mbit, "y": 0})
	s.want(0, "x", b)
	s.run(20 * ms)
	if up, x := s.nodes[0].Rate(""), s.nodes[0].Rate("x"); up < 76*mbit || x < 76*mbit {
		t.Errorf("alone towards x: uplink %d, link %d", up, x)
	}
	s.want(1, "y", b)
	s.run(s.now + 50*ms)
	for i := range 2 {
		if up := s.nodes[i].Rate(""); up < 45*mbit || up > 55*mbit {
			t.Errorf("node %d has %d of the uplink, want half", i, up)
		}
	}
	if y := s.nodes[1].Rate("y"); y != 0 {
		t.Errorf("a link without limit has %d", y)
	}
}

// TestImplied: where the uplink is as narrow as a link, one loan of it is enough, and
// comes with one question and its answer.
func TestImplied(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"": b, "x": b})
	s.delay = func() time.Duration { return ms }
	s.want(0, "x", b)
	s.run(3 * ms)
	if up, x := s.nodes[0].Rate(""), s.nodes[0].Rate("x"); up < 95*mbit || x != up {
		t.Errorf("after a round trip: uplink %d, link %d", up, x)
	}
	if n := s.nodes[0].Counters().Sent; n > 3 {
		t.Errorf("it took %d notices to three", n)
	}
	for i, m := range s.nodes {
		lent := m.Lent("")
		if lent > 0 != (i > 0) || m.Lent("x") != lent {
			t.Errorf("node %d lends %d of the uplink, %d of the link", i, lent, m.Lent("x"))
		}
		if i > 0 && (m.Rate("") > b/4-lent || m.Rate("x") != m.Rate("")) {
			t.Errorf("node %d lends %d and has %d of the uplink, %d of the link", i, lent, m.Rate(""), m.Rate("x"))
		}
	}
	for _, e := range s.nodes[0].Explain() {
		if e.To == "x" && (e.Leased < 70*mbit || e.Senders != 1) {
			t.Errorf("it is explained by %+v", e)
		}
	}
	s.want(1, "x", b)
	s.run(s.now + 20*ms)
	for i := range 2 {
		if x := s.nodes[i].Rate("x"); x < 45*mbit || x > 55*mbit {
			t.Errorf("node %d has %d, want half", i, x)
		}
	}
	for i := range 2 {
		s.want(i, "x", 0)
	}
	s.run(s.now + linger + 2*Lease)
	for i, m := range s.nodes {
		if lent := m.Lent(""); lent > 0 || m.Rate("") != Safe(b, 4) {
			t.Errorf("node %d still lends %d and has %d", i, lent, m.Rate(""))
		}
	}
}

// TestRestart: a node that starts anew is not taken for its earlier life.
func TestRestart(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 3, 1, map[Site]int64{"b": b})
	s.want(0, "b", b)
	s.run(50 * ms)
	m := New(nodeID(0), Config{Start: 1_000_000_000})
	m.Capacity(s.now, "b", b)
	m.Members(s.now, s.alive())
	s.nodes[0] = m
	if got := m.Rate("b"); got != Safe(b, 3) {
		t.Errorf("a fresh node has %d, want %d", got, Safe(b, 3))
	}
	s.want(0, "b", b)
	s.run(s.now + 20*ms)
	if got := m.Rate("b"); got < b*95/100 {
		t.Errorf("20 ms after a restart %d", got)
	}
}

// TestNewMemberLowersOthers: a node that has come and is not in all directories
// yet makes those who hear it count it.
func TestNewMemberLowersOthers(t *testing.T) {
	const b = 120 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	three := s.alive()[:3]
	s.nodes[0].Members(0, three)
	s.want(0, "b", b)
	s.run(10 * ms)
	if got := s.nodes[0].safeOf("b"); got != Safe(b, 4) {
		t.Errorf("safe share %d after a notice from one who counts four, want %d", got, Safe(b, 4))
	}
}

func (m *Machine) safeOf(to Site) int64 { return m.bySite[to].safe }

// TestLossRecall: with notices lost, what a lender takes back is given up before it is used.
func TestLossRecall(t *testing.T) {
	const b = 100 * mbit
	worst := 0.0
	for seed := range uint64(200) {
		s := newSite(t, 4, seed, map[Site]int64{"b": b})
		s.delay = func() time.Duration { return 300 * time.Microsecond }
		s.loss, s.strict = 0.2, Lease
		s.want(0, "b", b)
		s.run(50 * ms)
		for i := 1; i < 4; i++ {
			s.want(i, "b", b)
		}
		s.run(s.now + 60*ms)
		worst = max(worst, s.excess["b"])
	}
	t.Logf("most bytes in excess: %.0f", worst)
	if worst > 0 {
		t.Errorf("%.0f bytes in excess", worst)
	}
}

// deafSite is one of four nodes of which the first has borrowed all there is and then hears
// nobody.
func deafSite(t *testing.T, b int64) *site {
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	s.want(0, "b", b)
	s.run(20 * ms)
	s.cut[0] = 1
	return s
}

// TestDeafBorrower: a lender waits for who does not acknowledge, but not until the lease
// ends; until then no more is in excess than was lent.
func TestDeafBorrower(t *testing.T) {
	const b = 100 * mbit
	s := deafSite(t, b)
	s.want(1, "b", b/4)
	s.run(s.now + deaf - ms)
	if got := s.nodes[1].Rate("b"); got > b/4/Reserve*2 {
		t.Errorf("before %v have passed it has %d", deaf, got)
	}
	s.run(s.now + 2*ms)
	if got := s.nodes[1].Rate("b"); got != Safe(b, 4) {
		t.Errorf("after %v it has %d, want %d", deaf, got, Safe(b, 4))
	}
	s.run(s.now + Lease)
	if got, most := s.excess["b"], b/4/8*(Lease-deaf).Seconds(); got == 0 || got > most {
		t.Errorf("%.0f bytes in excess, want some and at most %.0f", got, most)
	}
}

// TestCutAgain: a loan of which more is taken back is waited for, and asked for, anew.
func TestCutAgain(t *testing.T) {
	const b = 100 * mbit
	s := deafSite(t, b)
	s.want(1, "b", b/16)
	s.run(s.now + 8*ms)
	sent := s.nodes[1].Counters().Sent
	s.want(1, "b", b/4)
	s.run(s.now + retryGap + ms/2)
	if n := s.nodes[1].Counters().Sent - sent; n < 2 {
		t.Errorf("%d notices after it, want it repeated after %v", n, retryGap)
	}
	s.run(s.now + deaf - 3*ms)
	if got := s.nodes[1].Rate("b"); got > b/4/2 {
		t.Errorf("before %v have passed it has %d", deaf, got)
	}
	s.run(s.now + 3*ms)
	if got := s.nodes[1].Rate("b"); got != Safe(b, 4) {
		t.Errorf("after %v it has %d, want %d", deaf, got, Safe(b, 4))
	}
}

// TestThirdBorrower: who wants more while others borrow all there is has its part of it two
// round trips later: one in which its lender learns of it and takes it back, and another in
// which it is granted.
func TestThirdBorrower(t *testing.T) {
	const b = 100 * mbit
	s := newSite(t, 4, 1, map[Site]int64{"b": b})
	s.delay = func() time.Duration { return ms }
	s.want(0, "b", b)
	s.want(1, "b", b)
	s.want(2, "b", b/5)
	s.run(50 * ms)
	s.want(2, "b", b)
	s.run(s.now + 4*ms + ms/2)
	for i := range 3 {
		if got := s.nodes[i].Rate("b"); got < b*32/100 {
			t.Errorf("node %d has %d, want a third", i, got)
		}
	}
}

// TestRandom plays random sites; check stands in at every event.
func TestRandom(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 500
	}
	for seed := range runs {
		randomRun(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomRun(t *testing.T, seed uint64) *site {
	rng := rand.New(rand.NewPCG(seed, 2))
	n := 1 + rng.IntN(8)
	if seed%100 == 99 {
		n = 32
	}
	b := int64(10*mbit + rng.IntN(1000)*mbit)
	caps := map[Site]int64{"b": b, "c": b / 2}
	if seed%3 == 0 {
		caps[""] = b
	}
	s := newSite(t, n, seed, caps)
	base := 50*time.Microsecond + upTo(rng, 5*ms)
	s.delay = func() time.Duration { return base/2 + upTo(s.rng, base) } // reorders
	if seed%2 == 0 {
		s.loss, s.double = rng.Float64()*0.2, rng.Float64()*0.2
	}
	for range 12 {
		s.upset(rng)
		s.run(s.now + upTo(rng, 15*ms))
	}
	return s
}

// upset changes something.
func (s *site) upset(rng *rand.Rand) {
	i := rng.IntN(len(s.nodes))
	to := Site([]string{"b", "c"}[rng.IntN(2)])
	switch rng.IntN(12) {
	case 0:
		s.cut[i] = 1 - s.cut[i]
	case 1, 2, 3:
		s.want(i, to, 0)
	case 4:
		s.weight[i] = 1 + rng.IntN(5)
	case 5, 6, 7:
		s.want(i, to, rng.Int64N(s.caps[to]))
	default:
		s.want(i, to, s.caps[to])
	}
}

// TestChurn: nodes die and come, and are noticed late; no sum is checked while
// views differ, but once they agree it must hold again, a lease later.
func TestChurn(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := newSite(t, 6, seed, map[Site]int64{"b": 100 * mbit, "c": 30 * mbit})
		for range 20 {
			i := rng.IntN(6)
			s.up[i] = !s.up[i]
			if s.up[i] {
				s.nodes[i] = New(nodeID(i), Config{Start: uint64(s.now/time.Microsecond) + 1_000_000})
				s.wakes[i] = 0
				clear(s.wants[i])
				for _, to := range sites(s.caps) {
					s.nodes[i].Capacity(s.now, to, s.caps[to])
				}
			}
			s.calm = s.now + 10*ms + Lease + 5*ms
			for j := range s.nodes {
				s.at(s.now+upTo(rng, 10*ms), func() {
					s.nodes[j].Members(s.now, s.alive())
					s.step(j)
				})
			}
			for range 5 {
				s.upset(rng)
				s.run(s.now + upTo(rng, 20*ms))
			}
			clear(s.cut)
		}
		if s.most["b"] > 2*100*mbit {
			t.Fatalf("seed %d: %d in use, more than twice the capacity", seed, s.most["b"])
		}
	}
}

func TestDeterministic(t *testing.T) {
	for seed := range uint64(20) {
		a, b := randomRun(t, seed), randomRun(t, seed)
		if a.sent != b.sent || a.bytes != b.bytes || a.excess["b"] != b.excess["b"] || a.total("b") != b.total("b") {
			t.Fatalf("seed %d: %d notices, %v and %d notices, %v", seed, a.sent, a.excess, b.sent, b.excess)
		}
	}
}
