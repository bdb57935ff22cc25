package coll

// Allreduce between sites, shared: each site combines, every rank a part; ranks
// exchange their parts with those of the other sites who have the same; each
// combines all sites' in the same order; each site puts the parts together. All
// segment by segment. For large buffers.
//
// Cost: one latency between sites, m bytes (for each run) from each site to each
// other one, sent by all ranks at once; one round crosses sites for each segment,
// and none waits for another. Inside the sites 2mβ, of which a segment's share is
// not overlapped. Source: GridMPI.
func allreduceShared(b *builder) {
	c := newCrew(b)
	rs, _ := c.runs(b.a.Commutes)
	members := c.members(b.a.Commutes, rs)
	in := b.input()
	n := segments(b.t, b.a.bytes())
	xs := make([]exchange, n)
	alls := make([][]Ref, n)
	for g := range n {
		lo, hi := cut(b.a.Count, n, g)
		mlo, mhi := cut(hi-lo, len(c.ranks), c.me)
		mlo, mhi = lo+mlo, lo+mhi
		mine := b.combine(c.team, members, b.partsOf(in, lo, hi, len(c.ranks)), Ref{})
		b.next()
		x := &xs[g]
		*x = exchange{b: b, c: &c, runs: rs}
		var slots [][]Ref
		alls[g], slots = x.slots(mine, (mhi-mlo)*b.a.Elem, b.ref(Recv, mlo, mhi))
		c.others(func(s int, ranks []int) {
			x.to(ranks, mine, mlo, mhi, lo, hi-lo)
			x.from(ranks, slots[s], mlo, mhi, lo, hi-lo)
		})
		b.next()
	}
	for g := range n {
		lo, hi := cut(b.a.Count, n, g)
		parts := b.parts(Recv, lo, hi-lo, len(c.ranks))
		xs[g].finish(alls[g], parts[c.me])
		b.next()
		b.allgather(c.team, parts)
	}
}
