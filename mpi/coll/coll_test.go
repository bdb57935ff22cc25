package coll

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// solve runs a problem by one algorithm.
func (p *problem) solve(t *testing.T, name string, s *shape, rng *rand.Rand) error {
	t.Helper()
	n := len(p.args)
	w := &world{size: n, op: p.op, rng: rng, rendezvous: rng.IntN(2) == 0, early: rng.IntN(2) == 0, held: rng.IntN(2*n) - n, barrier: p.c == OpBarrier}
	w.scheds = build(t, p.c, name, s, n, func(r int) Args { return p.args[r] })
	if p.work == nil {
		p.work = make([][3][]byte, n)
	}
	w.bufs = p.work
	for r := range n {
		for _, buf := range []Buf{Send, Recv} {
			w.bufs[r][buf] = append(w.bufs[r][buf][:0], p.bufs[r][buf]...)
		}
		tmp := slices.Grow(w.bufs[r][Tmp][:0], w.scheds[r].Tmp)[:w.scheds[r].Tmp]
		for i := range tmp {
			tmp[i] = unused
		}
		w.bufs[r][Tmp] = tmp
	}
	if err := w.run(); err != nil {
		return fmt.Errorf("rendezvous %v, early %v: %w", w.rendezvous, w.early, err)
	}
	for r := range n {
		got, want := w.bufs[r][Recv], p.want[r].recv
		if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			return fmt.Errorf("rank %d: from byte %d on got % x, want % x", r, i, clip(got[i:]), clip(want[i:]))
		}
		if !bytes.Equal(w.bufs[r][Send], p.bufs[r][Send]) {
			return fmt.Errorf("rank %d: the send buffer has changed", r)
		}
	}
	return nil
}

func clip(b []byte) []byte { return b[:min(len(b), 24)] }

// kinds are the variants of arguments that an operation has.
func kinds(c Collective) (rooted, combines, inPlace bool) {
	switch c {
	case OpBcast, OpGather, OpGatherv, OpScatter, OpScatterv, OpReduce:
		rooted = true
	}
	switch c {
	case OpReduce, OpAllreduce, OpReduceScatter, OpReduceScatterBlock, OpScan, OpExscan:
		combines = true
	}
	return rooted, combines, c != OpBarrier && c != OpBcast
}

// global are the operations that are not among neighbours.
func global() []Collective { return Collectives()[:OpNeighborAllgather] }

// variants calls f with the arguments of one count and root in all ways that make
// a difference.
func variants(c Collective, count, root int, f func(Args)) {
	_, combines, inPlace := kinds(c)
	for _, a := range []Args{
		{Elem: 8, Commutes: true}, {Elem: 8, Commutes: true, InPlace: true},
		{Elem: 16}, {Elem: 16, InPlace: true},
	} {
		if a.InPlace && !inPlace || !combines && !a.Commutes {
			continue
		}
		a.Count, a.Root = count, root
		f(a)
	}
}

// try solves one problem by all algorithms.
func try(t *testing.T, c Collective, s *shape, n int, a Args, rng *rand.Rand) {
	t.Helper()
	p := pose(c, n, a, rng)
	for _, name := range Names(c) {
		if !Applies(c, name, s.topo(0, n), a) {
			continue
		}
		if err := p.solve(t, name, s, rng); err != nil {
			t.Fatalf("%v by %s, %s, %d ranks, count %d, root %d, commutes %v, in place %v: %v", c, name, s.name, n, a.Count, a.Root, a.Commutes, a.InPlace, err)
		}
	}
}

// TestModel compares all algorithms with the sequential model: 1 to 17 ranks, all
// topologies, counts, in place, ordered operations. Counts take turns, and there are
// fewer of them where ranks are many.
func TestModel(t *testing.T) {
	for _, c := range global() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			for n := 1; n <= 17; n++ {
				for i, s := range shapes(n) {
					for _, count := range [][]int{{0, 17}, {1, 3}, {17}, {3}}[(n+i)%2+n/10*2] {
						variants(c, count, rng.IntN(n), func(a Args) { try(t, c, &s, n, a, rng) })
					}
				}
			}
		})
	}
}

// TestRoots has every rank be the root.
func TestRoots(t *testing.T) {
	for _, c := range global() {
		rooted, _, _ := kinds(c)
		if !rooted {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(c), 2))
			for n := 2; n <= 17; n += 3 {
				for _, s := range shapes(n) {
					for root := range n {
						variants(c, 2, root, func(a Args) { try(t, c, &s, n, a, rng) })
					}
				}
			}
		})
	}
}

// TestBarrier has every rank be late.
func TestBarrier(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for n := 2; n <= 17; n++ {
		for _, s := range shapes(n) {
			for _, name := range Names(OpBarrier) {
				if !Applies(OpBarrier, name, s.topo(0, n), Args{}) {
					continue
				}
				scheds := build(t, OpBarrier, name, &s, n, func(int) Args { return Args{} })
				for late := range n {
					w := &world{size: n, scheds: scheds, bufs: make([][3][]byte, n), rng: rng, rendezvous: late%2 == 0, held: late, barrier: true}
					if err := w.run(); err != nil {
						t.Fatalf("%s, %s: %v", name, s.name, err)
					}
				}
			}
		}
	}
}

// TestLarge has buffers that are cut into segments and travel around rings, of few
// and fat elements.
func TestLarge(t *testing.T) {
	const elem = 1 << 10
	for _, c := range global() {
		if c == OpBarrier {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(c), 3))
			for _, n := range []int{3, 6} {
				count := 19 // enough for rings
				switch c {
				case OpBcast, OpReduce, OpAllreduce:
					count = 2*n*segmentPart/elem + 37
				case OpAllgather, OpAllgatherv:
					count = 2*segmentPart/elem + 37
				}
				all := shapes(n)
				picked := []shape{all[4+rng.IntN(len(all)-4)]} // several sites
				if n == 3 {
					picked = append(picked, all[rng.IntN(4)])
				}
				for _, s := range picked {
					variants(c, count, rng.IntN(n), func(a Args) {
						if a.Elem = elem; rng.IntN(2) == 0 {
							try(t, c, &s, n, a, rng)
						}
					})
				}
			}
		})
	}
}
