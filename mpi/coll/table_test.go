package coll

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestChoice pins which algorithm is taken where: a change of a threshold should
// be seen to be one.
func TestChoice(t *testing.T) {
	one, many, two := sited("one site", 8, func(int) int { return 0 }), shapes(12)[2], sited("4+4", 8, func(r int) int { return r / 4 })
	crowd := crowd(shape{name: "crowded", host: make([]int32, 8), site: make([]int32, 8)})
	wide := sited("8+8", 16, func(r int) int { return r % 2 })
	for _, x := range []struct {
		c    Collective
		s    shape
		m    int
		want string
	}{
		{OpBarrier, one, 0, "dissemination"},
		{OpBarrier, many, 0, "levels"},
		{OpBarrier, crowd, 0, "star"},
		{OpBarrier, two, 0, "levels"},
		{OpBcast, one, 8, "binomial"},
		{OpBcast, many, 8, "levels"},
		{OpBcast, two, 8, "levels"},
		{OpBcast, crowd, 4 << 20, "star"},
		{OpBcast, one, 64 << 10, "scatter_allgather"},
		{OpBcast, two, 64 << 10, "shared"},
		{OpBcast, one, 4 << 20, "chain"},
		{OpBcast, two, 4 << 20, "shared"},
		{OpReduce, one, 8, "binomial"},
		{OpReduce, crowd, 8, "star"},
		{OpReduce, crowd, 1 << 20, "direct"},
		{OpReduce, one, 1 << 20, "rabenseifner"},
		{OpReduce, two, 8, "levels"},
		{OpReduce, two, 1 << 20, "shared"},
		{OpAllreduce, one, 8, "recursive_doubling"},
		{OpAllreduce, many, 8, "levels"},
		{OpAllreduce, crowd, 4, "star"},
		{OpAllreduce, crowd, 64 << 10, "direct"},
		{OpAllreduce, one, 64 << 10, "rabenseifner"},
		{OpAllreduce, one, 4 << 20, "ring"},
		{OpAllreduce, two, 4 << 20, "shared"},
		{OpAllgather, one, 8, "recursive_doubling"},
		{OpAllgather, many, 8, "bruck"},
		{OpAllgather, crowd, 8, "direct"},
		{OpAllgather, one, 1 << 20, "ring"},
		{OpAllgather, two, 8, "levels"},
		{OpAllgather, two, 8 << 10, "sites"},
		{OpAlltoall, one, 8, "bruck"},
		{OpAlltoall, crowd, 8, "linear"},
		{OpAlltoall, crowd, 1 << 20, "linear"},
		{OpAlltoall, one, 8 << 10, "linear"},
		{OpAlltoall, one, 1 << 20, "pairwise"},
		{OpAlltoall, two, 8, "leaders"},
		{OpAlltoall, two, 8 << 10, "linear"},
		{OpAlltoall, wide, 8, "agents"},
		{OpGather, one, 8, "binomial"},
		{OpGather, crowd, 8, "linear"},
		{OpGather, two, 8, "levels"},
		{OpGather, two, 1 << 20, "linear"},
		{OpReduceScatterBlock, one, 8, "recursive_halving"},
		{OpReduceScatterBlock, crowd, 8, "pairwise"},
		{OpReduceScatterBlock, one, 1 << 20, "pairwise"},
		{OpReduceScatterBlock, two, 8, "sites"},
		{OpScan, one, 8, "recursive_doubling"},
		{OpScan, two, 8, "sites"},
	} {
		s, err := Build(x.c, "", x.s.topo(0, len(x.s.site)), Args{Count: x.m, Elem: 1, Commutes: true})
		if err != nil || s.Name != x.want {
			t.Errorf("%s of %d bytes, %s: got %q, %v, want %q", x.c, x.m, x.s.name, s.Name, err, x.want)
		}
	}
}

// TestDocumented: the table in the package's documentation has all algorithms, in
// the order in which they are considered.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	const column = 24
	got := map[string][]string{}
	var heads []string
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(line, "//\t")
		if !ok || strings.HasPrefix(row, "operation") {
			continue
		}
		if head := strings.TrimSpace(row[:column]); head != "" {
			heads = strings.Split(head, ", ")
		}
		for _, h := range heads {
			got[h] = append(got[h], strings.Fields(row[column:])[0])
		}
	}
	for _, c := range Collectives() {
		head := c.String()
		switch {
		case c >= OpNeighborAllgather:
			head = "neighbor_*"
		case c == OpReduceScatter || c == OpReduceScatterBlock:
			head = "reduce_scatter(_block)"
		}
		if !slices.Equal(got[head], Names(c)) {
			t.Errorf("%s is documented to have %q, got %q", c, got[head], Names(c))
		}
	}
}

// TestForce asks for algorithms by name.
func TestForce(t *testing.T) {
	topo := &Topo{Size: 5}
	for _, c := range Collectives() {
		names := Names(c)
		if len(names) == 0 {
			t.Errorf("%s has no algorithms", c)
		}
		for _, name := range names {
			a := Args{Count: 1, Elem: 8, Commutes: true}
			switch c {
			case OpGatherv, OpScatterv, OpAllgatherv, OpReduceScatter:
				a.Counts = []int{1, 1, 1, 1, 1}
			case OpAlltoallv, OpAlltoallw:
				a.Counts, a.RecvCounts = []int{1, 1, 1, 1, 1}, []int{1, 1, 1, 1, 1}
			}
			s, err := Build(c, name, topo, a)
			if possible := Applies(c, name, topo, a); possible != (err == nil) {
				t.Errorf("%s by %s: possible %v, but %v", c, name, possible, err)
			}
			if err == nil && s.Name != name {
				t.Errorf("%s by %s: got %s", c, name, s.Name)
			}
		}
	}
	for _, x := range []struct {
		c    Collective
		name string
		a    Args
		want string
	}{
		{OpBcast, "magic", Args{}, "binomial"},
		{OpAllreduce, "ring", Args{Count: 1, Elem: 8}, "not possible"},
		{ncollectives, "ring", Args{}, "collective(22)"},
	} {
		if _, err := Build(x.c, x.name, topo, x.a); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s by %s: got %v, want it to say %q", x.c, x.name, err, x.want)
		}
	}
	if Applies(OpBcast, "magic", topo, Args{}) {
		t.Error("magic applies")
	}
}

// TestConstructors: each chooses for its own operation.
func TestConstructors(t *testing.T) {
	topo := sited("2+3", 5, func(r int) int { return r / 2 })
	counts := []int{1, 1, 1, 1, 1}
	a := Args{Count: 1, Elem: 8, Counts: counts, RecvCounts: counts}
	for c, f := range []func(*Topo, Args) Schedule{Barrier, Bcast, Gather, Gatherv, Scatter, Scatterv, Allgather, Allgatherv, Alltoall, Alltoallv, Alltoallw,
		Reduce, Allreduce, ReduceScatter, ReduceScatterBlock, Scan, Exscan,
		NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw} {
		want, err := Build(Collective(c), "", topo.topo(1, 5), a)
		if got := f(topo.topo(1, 5), a); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v (%v)", Collective(c), got, want, err)
		}
	}
}

// TestFar: a schedule says whether messages cross between sites and all of the rank's own
// are short.
func TestFar(t *testing.T) {
	for _, s := range append(sites(), shapes(8)...) {
		for _, c := range bounded() {
			for _, count := range []int{1, 64 << 10} {
				crosses := false
				scheds := build(t, c, "", &s, len(s.site), func(int) Args { return Args{Count: count, Elem: 1, Commutes: true} })
				longest := make([]int, len(scheds))
				for r, sched := range scheds {
					for _, step := range slices.Concat(sched.Rounds...) {
						if step.Kind == SendStep || step.Kind == RecvStep {
							crosses = crosses || s.site[step.Peer] != s.site[r]
							longest[r] = max(longest[r], step.Src.N+step.Dst.N)
						}
					}
				}
				for r, sched := range scheds {
					if want := crosses && longest[r] <= 1024; sched.Far != want {
						t.Errorf("%s, %s of %d, rank %d: far %v, but messages cross: %v, the longest of its own has %d bytes", s.name, c, count, r, sched.Far, crosses, longest[r])
					}
				}
			}
		}
	}
}

// TestCache: what is kept is what would be built, from any goroutine, and there is
// not more of it than was said.
func TestCache(t *testing.T) {
	s := sited("4+4", 8, func(r int) int { return r % 2 })
	topo := s.topo(3, 8)
	k := NewCache(topo)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for count := range 2 * cacheEntries {
				a := Args{Count: count, Elem: 8, Commutes: true, Root: count % 8}
				if got, want := k.Get(OpReduce, a), Reduce(topo, a); !reflect.DeepEqual(*got, want) {
					t.Errorf("count %d: got %v, want %v", count, *got, want)
				}
			}
		})
	}
	wg.Wait()
	if n := len(k.known); n > cacheEntries {
		t.Errorf("%d schedules are kept", n)
	}
	counts := []int{1, 2, 3, 4, 5, 6, 7, 8}
	a := Args{Counts: counts, Elem: 8}
	if got, want := k.Get(OpAllgatherv, a), Allgatherv(topo, a); !reflect.DeepEqual(*got, want) {
		t.Errorf("got %v, want %v", *got, want)
	}
	a = Args{Count: 1, Elem: 8}
	k.Get(OpBarrier, a)
	if n := testing.AllocsPerRun(100, func() { k.Get(OpBarrier, a) }); n != 0 {
		t.Errorf("%v allocations for what is known", n)
	}
}
