package coll

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomShape places up to 24 ranks at random on 1 to 4 sites of 1 to 3 hosts each:
// in blocks, or anywhere. Some ranks may be alone, some sites empty, and hosts of
// different sites may bear the same number.
func randomShape(rng *rand.Rand) (s shape, n int) {
	n = 1 + rng.IntN(24)
	hosts := make([]int, 1+rng.IntN(4))
	for i := range hosts {
		hosts[i] = 1 + rng.IntN(3)
	}
	blocks, alike := rng.IntN(3) == 0, rng.IntN(4) == 0
	site := 0
	for r := range n {
		if !blocks || r == 0 || rng.IntN(4) == 0 {
			site = rng.IntN(len(hosts))
		}
		host := rng.IntN(hosts[site])
		if !alike {
			host += 10 * site
		}
		s.host, s.site = append(s.host, int32(host)), append(s.site, int32(site))
	}
	switch rng.IntN(8) {
	case 0:
		s.host = nil
	case 1:
		s.site = nil
	}
	s.name = fmt.Sprintf("hosts %v, sites %v", s.host, s.site)
	return s, n
}

// randomArgs are arguments that no other test has thought of.
func randomArgs(c Collective, n int, rng *rand.Rand) Args {
	_, combines, inPlace := kinds(c)
	a := Args{Count: rng.IntN(40), Elem: 8 * (1 + rng.IntN(3)), Commutes: true, Root: rng.IntN(n), InPlace: inPlace && rng.IntN(2) == 0}
	if combines && rng.IntN(2) == 0 {
		a.Elem, a.Commutes = 16+8*rng.IntN(3), false
	}
	switch k := rng.IntN(32); {
	case k == 0 && n <= 6: // several segments
		if a.Elem, a.Count = 16<<10, 2*n*segmentPart>>14+rng.IntN(8); c != OpBcast && c != OpReduce && c != OpAllreduce {
			a.Count /= n
		}
	case k < 4 && n <= 12: // messages large enough for rings
		a.Elem, a.Count = 1<<10, 14+rng.IntN(8)
	case k < 8: // about as many elements as ranks, or parts of them
		a.Count = max(0, n/(1+rng.IntN(3))+rng.IntN(3)-1)
	}
	return a
}

// TestProperty solves random problems by a random algorithm, which at times is the
// one that would be chosen.
func TestProperty(t *testing.T) {
	const rounds = 800 // FuzzProperty goes on from there
	for part := range uint64(2) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := range rounds {
				rng := rand.New(rand.NewPCG(part, uint64(i)))
				if err := random(t, rng); err != nil {
					t.Fatalf("seed %d, %d: %v", part, i, err)
				}
			}
		})
	}
}

// random solves one random problem.
func random(t *testing.T, rng *rand.Rand) error {
	t.Helper()
	c := Collectives()[rng.IntN(int(ncollectives))]
	s, n := randomShape(rng)
	var p *problem
	var a Args
	if c >= OpNeighborAllgather {
		g := randomGraph(n, rng)
		p = g.pose(c, rng)
	} else {
		a = randomArgs(c, n, rng)
		p = pose(c, n, a, rng)
	}
	names := append(Names(c), "")
	name := names[rng.IntN(len(names))]
	if name != "" && !Applies(c, name, s.topo(0, n), p.args[0]) {
		return nil
	}
	if err := p.solve(t, name, &s, rng); err != nil {
		return fmt.Errorf("%v by %q, %d ranks, %s, count %d of %d bytes, root %d, commutes %v, in place %v: %w",
			c, name, n, s.name, a.Count, a.Elem, a.Root, a.Commutes, a.InPlace, err)
	}
	return nil
}

// FuzzProperty is TestProperty for any seed.
func FuzzProperty(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, x, y uint64) {
		if err := random(t, rand.New(rand.NewPCG(x, y))); err != nil {
			t.Fatal(err)
		}
	})
}
