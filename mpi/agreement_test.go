package mpi

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// simulated is a member of an agreement whose messages are delivered, and whose lost links
// are noticed, in an order drawn at random.
type simulated struct {
	*agreement
	round   int
	crashed bool
	over    bool // it has told its last

	// By the other's rank: what is under way to this one; what has come, by round; whether
	// their link is broken; and whether this one has noticed.
	underway [][]sent
	come     []map[int][]int64
	broken   []bool
	noticed  []bool
}

type sent struct {
	round int
	words []int64
}

// simulation runs an agreement of n in which up to so many members crash, and so many
// links between the living break.
type simulation struct {
	rng           *rand.Rand
	members       []*simulated
	crashes, cuts int
	trouble       int // comes after so many steps
}

func simulate(seed uint64, n, crashes, cuts int) *simulation {
	s := &simulation{rng: rand.New(rand.NewPCG(seed, uint64(n))), crashes: crashes, cuts: cuts}
	for i := range n {
		m := &simulated{
			agreement: newAgreement(i, n),
			underway:  make([][]sent, n), come: make([]map[int][]int64, n), broken: make([]bool, n), noticed: make([]bool, n),
		}
		m.and = s.rng.Int64()
		for k := range m.most {
			m.most[k] = s.rng.Int64()
		}
		for k := range n {
			m.come[k] = map[int][]int64{}
			if s.rng.IntN(2) == 0 {
				m.acked.add(k)
			}
		}
		s.members = append(s.members, m)
	}
	for i := range s.members {
		s.tell(i)
	}
	for s.step() {
	}
	return s
}

// step has one thing happen, and reports whether there was any.
func (s *simulation) step() bool {
	if s.trouble--; s.trouble < 0 {
		s.trouble = s.rng.IntN(3 * len(s.members) * len(s.members))
		s.harm()
	}
	var can []func()
	for i, m := range s.members {
		if m.ready() {
			can = append(can, func() { s.end(i) })
		}
		for k := range s.members {
			if len(m.underway[k]) > 0 {
				can = append(can, func() {
					m.come[k][m.underway[k][0].round] = m.underway[k][0].words
					m.underway[k] = m.underway[k][1:]
				})
			}
			if m.broken[k] && !m.noticed[k] && !m.crashed {
				can = append(can, func() { m.noticed[k] = true })
			}
		}
	}
	if len(can) == 0 {
		return false
	}
	can[s.rng.IntN(len(can))]()
	return true
}

// harm breaks a link, or all of a member's.
func (s *simulation) harm() {
	i, k := s.rng.IntN(len(s.members)), s.rng.IntN(len(s.members))
	switch crash := s.rng.IntN(s.crashes+s.cuts+1) < s.crashes; {
	case crash:
		s.crashes--
		s.crash(i)
	case s.cuts > 0 && i != k:
		s.cuts--
		s.cut(i, k)
	}
}

func (s *simulation) crash(i int) {
	s.members[i].crashed = true
	for k := range s.members {
		if k != i {
			s.cut(i, k)
		}
	}
}

// cut breaks a link; of what is under way the last is lost, or all, or nothing.
func (s *simulation) cut(i, k int) {
	a, b := s.members[i], s.members[k]
	a.broken[k], b.broken[i] = true, true
	a.underway[k] = a.underway[k][:s.rng.IntN(len(a.underway[k])+1)]
	b.underway[i] = b.underway[i][:s.rng.IntN(len(b.underway[i])+1)]
}

// ready reports whether a member has all that it waits for.
func (m *simulated) ready() bool {
	for i := range m.come {
		if m.with(i) && m.come[i][m.round] == nil && !m.noticed[i] {
			return false
		}
	}
	return !m.crashed && !m.over
}

// end has a member end its round and begin the next.
func (s *simulation) end(i int) {
	m := s.members[i]
	heard := make([][]int64, len(s.members))
	for k := range heard {
		heard[k] = m.come[k][m.round]
	}
	m.agreement.end(m.round, heard)
	m.round++
	s.tell(i)
}

// tell has a member send a round's messages, some of them if it crashes amid them.
func (s *simulation) tell(i int) {
	m := s.members[i]
	for _, k := range s.rng.Perm(len(s.members)) {
		if s.crashes > 0 && s.rng.IntN(50*len(s.members)) == 0 {
			s.crashes--
			s.crash(i)
			return
		}
		if m.with(k) && !m.broken[k] {
			s.members[k].underway[i] = append(s.members[k].underway[i], sent{m.round, m.words()})
		}
	}
	m.over = m.state != inRounds
}

// values are what a member that is done has come to.
func (m *simulated) values() []any { return []any{m.and, m.most, m.dead, m.fresh} }

func (m *simulated) String() string {
	return fmt.Sprintf("rank %d round %d state %d crashed %v over %v dead %b found %b broken %v", m.rank, m.round, m.state, m.crashed, m.over, m.dead, m.found, m.broken)
}

// Where who cannot be reached is dead, all the living come to the same values.
func TestAgreementOfTheLiving(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n := 2 + rng.IntN(7)
		s := simulate(seed, n, min(rng.IntN(4), n-1), 0)
		for _, m := range s.members {
			if !m.crashed && m.state != done {
				t.Fatalf("seed %d: %v does not come back\nof %v", seed, m, s.members)
			}
			if p, q := s.differ(m); q != nil {
				t.Fatalf("seed %d: %v has come to %v\nbut %v to %v", seed, p, p.values(), q, q.values())
			}
		}
	}
}

// Where members that live lose each other besides, all come back, and hardly ever with
// values that another does not share whom they count among the living and still reach: only
// when several links broke in the moment in which some had decided.
func TestAgreementOfTheSevered(t *testing.T) {
	t.Parallel()
	const runs, most = 8000, 1
	var torn []uint64
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 9))
		n := 2 + rng.IntN(7)
		s := simulate(seed, n, min(rng.IntN(3), n-1), 1+rng.IntN(10))
		for _, m := range s.members {
			if !m.crashed && !m.over {
				t.Fatalf("seed %d: %v waits forever\nof %v", seed, m, s.members)
			}
			if _, q := s.differ(m); q != nil && !slices.Contains(torn, seed) {
				torn = append(torn, seed)
			}
		}
	}
	if t.Logf("torn: %d of %d, seeds %v", len(torn), runs, torn); len(torn) > most {
		t.Errorf("more than %d of %d: members differ that reach each other", most, runs)
	}
}

// differ returns a member that is done and another that it counts among the living and
// reaches, but that has not come to the same values.
func (s *simulation) differ(m *simulated) (p, q *simulated) {
	if m.crashed || m.state != done {
		return nil, nil
	}
	for k, other := range s.members {
		if k == m.rank || m.dead.has(k) || other.crashed || m.broken[k] {
			continue
		}
		if other.state != done || !reflect.DeepEqual(m.values(), other.values()) {
			return m, other
		}
	}
	return nil, nil
}
