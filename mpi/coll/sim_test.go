package coll

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// world runs the schedules of all ranks on real bytes, in whatever order chance
// has it; only messages between the same two ranks stay in order.
type world struct {
	size   int
	scheds []Schedule
	bufs   [][3][]byte
	op     func(in, inout []byte)

	// rendezvous: a send is complete when its receive has been started, not before.
	// early: a message ends with its own round, not Wait rounds later.
	rendezvous, early bool
	// held is a rank that enters when nobody else can go on; below 0 there is none.
	held int
	// barrier: nobody may be through before held has entered.
	barrier bool
	rng     *rand.Rand
}

// actor is a rank's progress.
type actor struct {
	round   int
	started bool
	ends    []int // messages that have to end before each round's local steps
}

// message is a send or receive under way.
type message struct {
	rank, ends int
	ref        Ref
	data       []byte // what a send has copied; nil: it is at ref
}

// fly is the state of a run.
type fly struct {
	*world
	actors []actor
	sends  map[[2]int][]message // by from and to, unmatched, data still at the sender's
	recvs  map[[2]int][]message
	open   [][]open    // by rank: what is being read or written
	free   [][]byte    // copies of messages that have been delivered
	shown  [][]message // by rank: what it has shown, and where what others show is to go
	seen   int         // how many of these all have shown
}

type open struct {
	ref     Ref
	written bool
	ends    int
}

// run drives all ranks to the end of their schedules, or says why it cannot.
func (w *world) run() error {
	f := &fly{world: w, actors: make([]actor, w.size), sends: map[[2]int][]message{}, recvs: map[[2]int][]message{}, open: make([][]open, w.size), shown: make([][]message, w.size)}
	for r := range f.actors {
		f.actors[r].ends = make([]int, len(w.scheds[r].Rounds))
	}
	held := w.held
	ready := slices.DeleteFunc(w.rng.Perm(w.size), func(r int) bool { return r == held })
	for len(ready) > 0 || held >= 0 {
		if len(ready) == 0 {
			if err := f.entered(held); err != nil {
				return err
			}
			ready, held = append(ready, held), -1
		}
		i := w.rng.IntN(len(ready))
		r := ready[i]
		ready[i] = ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		woken, err := f.step(r)
		if err != nil {
			return err
		}
		for _, x := range woken {
			if x != held && !slices.Contains(ready, x) {
				ready = append(ready, x)
			}
		}
	}
	for r := range f.actors {
		if f.actors[r].round < len(w.scheds[r].Rounds) {
			return fmt.Errorf("rank %d is stuck in round %d of %d: %v", r, f.actors[r].round, len(w.scheds[r].Rounds), w.scheds[r].Rounds[f.actors[r].round])
		}
	}
	for pair, q := range f.sends {
		if len(q) > 0 {
			return fmt.Errorf("%d messages from %d to %d were never received", len(q), pair[0], pair[1])
		}
	}
	return nil
}

// entered checks what held's entering as the last one is good for.
func (f *fly) entered(held int) error {
	for r := range f.actors {
		if f.barrier && r != held && f.actors[r].round == len(f.scheds[r].Rounds) {
			return fmt.Errorf("rank %d has left before %d has entered", r, held)
		}
	}
	return nil
}

// step starts a rank's round, or ends it where it can, and returns who may go on.
func (f *fly) step(r int) (woken []int, err error) {
	a := &f.actors[r]
	if a.round >= len(f.scheds[r].Rounds) {
		return nil, nil
	}
	if !a.started {
		a.started = true
		woken = append(woken, r)
		for i := range f.scheds[r].Rounds[a.round] {
			w, err := f.start(r, &f.scheds[r].Rounds[a.round][i])
			if err != nil {
				return nil, err
			}
			woken = append(woken, w...)
		}
		return woken, nil
	}
	if a.ends[a.round] > 0 {
		return nil, nil
	}
	f.open[r] = slices.DeleteFunc(f.open[r], func(o open) bool { return o.ends <= a.round })
	for i := range f.scheds[r].Rounds[a.round] {
		if err := f.local(r, &f.scheds[r].Rounds[a.round][i]); err != nil {
			return nil, err
		}
	}
	a.round++
	a.started = false
	return []int{r}, nil
}

func (f *fly) at(r int, ref Ref) []byte { return f.bufs[r][ref.Buf][ref.Off : ref.Off+ref.N] }

// claim checks that nobody else is writing, or reading where this writes.
func (f *fly) claim(r int, ref Ref, write bool) error {
	if ref.N == 0 {
		return nil
	}
	if write && ref.Buf == Send {
		return fmt.Errorf("rank %d writes to its send buffer: %v", r, ref)
	}
	for _, o := range f.open[r] {
		if (write || o.written) && o.ref.Buf == ref.Buf && o.ref.Off < ref.Off+ref.N && ref.Off < o.ref.Off+o.ref.N {
			return fmt.Errorf("rank %d, round %d: %v is used (write %v) while %v is (write %v)", r, f.actors[r].round, ref, write, o.ref, o.written)
		}
	}
	return nil
}

// show has a rank show something. When all have, all get it.
func (f *fly) show(r int, s *Step) ([]int, error) {
	if s.Dst.N != f.size*s.Src.N || s.Src.N > BoardBytes {
		return nil, fmt.Errorf("rank %d shows %d bytes and wants %d of %d ranks", r, s.Src.N, s.Dst.N, f.size)
	}
	a := &f.actors[r]
	a.ends[a.round]++
	for _, use := range []struct {
		ref   Ref
		write bool
	}{{s.Src, false}, {s.Dst, true}} {
		if err := f.claim(r, use.ref, use.write); err != nil {
			return nil, err
		}
		f.open[r] = append(f.open[r], open{ref: use.ref, written: use.write, ends: a.round})
	}
	f.shown[r] = append(f.shown[r], message{rank: r, ends: a.round, ref: s.Dst, data: slices.Clone(f.at(r, s.Src))})
	for _, shown := range f.shown {
		if len(shown) <= f.seen {
			return nil, nil
		}
	}
	var woken []int
	for to := range f.size {
		m := f.shown[to][f.seen]
		for from := range f.size {
			data := f.shown[from][f.seen].data
			copy(f.at(to, m.ref)[from*len(data):], data)
		}
		f.actors[to].ends[m.ends]--
		woken = append(woken, to)
	}
	f.seen++
	return woken, nil
}

func (f *fly) start(r int, s *Step) ([]int, error) {
	if s.Kind == ShowStep {
		return f.show(r, s)
	}
	if s.Kind != SendStep && s.Kind != RecvStep {
		return nil, nil
	}
	a := &f.actors[r]
	ends := a.round
	if s.Wait < 0 || ends+int(s.Wait) >= len(a.ends) {
		return nil, fmt.Errorf("rank %d, round %d: bad wait of %v", r, a.round, *s)
	}
	if !f.early {
		ends += int(s.Wait)
	}
	write := s.Kind == RecvStep
	ref := s.Src
	if write {
		ref = s.Dst
	}
	if err := f.claim(r, ref, write); err != nil {
		return nil, err
	}
	f.open[r] = append(f.open[r], open{ref: ref, written: write, ends: ends})
	m := message{rank: r, ends: ends, ref: ref}
	pair := [2]int{r, s.Peer}
	if write {
		pair = [2]int{s.Peer, r}
	}
	if s.Peer == r && f.scheds[r].Name != "direct" {
		return nil, fmt.Errorf("rank %d talks to itself", r)
	}
	if write {
		a.ends[ends]++
		f.recvs[pair] = append(f.recvs[pair], m)
	} else {
		if f.rendezvous {
			a.ends[ends]++
		} else { // the engine has copied it: what happens to the buffer does not matter
			m.data = append(f.spare(ref.N), f.at(r, ref)...)
		}
		f.sends[pair] = append(f.sends[pair], m)
	}
	return f.match(pair)
}

// spare returns an empty buffer for n bytes, which may have been used before: under
// -race fresh memory is dear.
func (f *fly) spare(n int) []byte {
	for i, b := range f.free {
		if cap(b) >= n {
			f.free = slices.Delete(f.free, i, i+1)
			return b[:0]
		}
	}
	return make([]byte, 0, n)
}

// match delivers the oldest message of a pair of ranks.
func (f *fly) match(pair [2]int) (woken []int, err error) {
	if len(f.sends[pair]) == 0 || len(f.recvs[pair]) == 0 {
		return nil, nil
	}
	s, r := f.sends[pair][0], f.recvs[pair][0]
	f.sends[pair], f.recvs[pair] = f.sends[pair][1:], f.recvs[pair][1:]
	if s.ref.N != r.ref.N {
		return nil, fmt.Errorf("%d sends %d bytes to %d, who wants %d", s.rank, s.ref.N, r.rank, r.ref.N)
	}
	if s.data == nil {
		copy(f.at(r.rank, r.ref), f.at(s.rank, s.ref))
	} else {
		copy(f.at(r.rank, r.ref), s.data)
		f.free = append(f.free, s.data)
	}
	f.actors[r.rank].ends[r.ends]--
	if f.rendezvous {
		f.actors[s.rank].ends[s.ends]--
	}
	return []int{s.rank, r.rank}, nil
}

func (f *fly) local(r int, s *Step) error {
	if s.Kind != ReduceStep && s.Kind != CopyStep {
		return nil
	}
	if err := f.claim(r, s.Src, false); err != nil {
		return err
	}
	if err := f.claim(r, s.Dst, true); err != nil {
		return err
	}
	if s.Src.N != s.Dst.N {
		return fmt.Errorf("rank %d: unequal lengths in %v", r, *s)
	}
	if s.Kind == CopyStep {
		copy(f.at(r, s.Dst), f.at(r, s.Src))
	} else {
		f.op(f.at(r, s.Src), f.at(r, s.Dst))
	}
	return nil
}

// shape is a topology without a rank.
type shape struct {
	name       string
	host, site []int32
	crowded    bool
}

// shapes are topologies of n ranks.
func shapes(n int) []shape {
	by := func(name string, f func(r int) (host, site int)) shape {
		s := shape{name: fmt.Sprintf("%s/%d", name, n)}
		for r := range n {
			h, t := f(r)
			s.host, s.site = append(s.host, int32(h)), append(s.site, int32(t))
		}
		return s
	}
	return []shape{
		{name: fmt.Sprintf("none/%d", n)},
		by("onehost", func(int) (int, int) { return 7, 3 }),
		by("hosts", func(r int) (int, int) { return r / 3, 0 }),
		by("hosts interleaved", func(r int) (int, int) { return r % 3, 0 }),
		by("two sites", func(r int) (int, int) { return r, r * 2 / n }),
		by("two sites interleaved", func(r int) (int, int) { return r, 1 - r%2 }),
		by("two sites, hosts", func(r int) (int, int) { return r / 2, r * 2 / n }),
		by("two sites interleaved, hosts", func(r int) (int, int) { return 10*(r%2) + r/2%2, r % 2 }),
		by("one and the rest", func(r int) (int, int) { return r, min(1, r) }),
		by("the rest and one", func(r int) (int, int) { return r, r / max(1, n-1) }),
		by("three sites", func(r int) (int, int) { return r / 2, r * 3 / n }),
		by("three sites interleaved", func(r int) (int, int) { return r / 4, (r*r + r/3) % 3 }),
		by("all apart", func(r int) (int, int) { return r, r }),
		crowd(by("one crowded host", func(int) (int, int) { return 0, 0 })),
		crowd(by("crowded hosts", func(r int) (int, int) { return r / 5, 0 })),
		crowd(by("two sites, crowded hosts interleaved", func(r int) (int, int) { return r % 4, r % 2 })),
	}
}

func crowd(s shape) shape {
	s.crowded = true
	return s
}

func (s *shape) topo(rank, n int) *Topo {
	return &Topo{Rank: rank, Size: n, Host: s.host, Site: s.site, Crowded: s.crowded}
}

// build makes the schedules of all ranks; args gives each rank's arguments.
func build(t *testing.T, c Collective, name string, s *shape, n int, args func(rank int) Args) []Schedule {
	t.Helper()
	scheds := make([]Schedule, n)
	for r := range n {
		var err error
		if scheds[r], err = Build(c, name, s.topo(r, n), args(r)); err != nil {
			t.Fatal(err)
		}
	}
	return scheds
}
