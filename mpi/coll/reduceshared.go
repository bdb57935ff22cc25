package coll

// Reduction between sites, shared: each site combines, every rank a part; the
// ranks send their parts to those of the root's site who have the same; these
// combine and hand the result to the root, segment by segment. For large buffers.
//
// Cost: one latency between sites, m bytes (for each run) from each other site,
// sent by all its ranks at once; one round crosses sites for each segment, and
// none waits for another. Inside the sites 2mβ. Source: GridMPI.
func reduceShared(b *builder) {
	c := newCrew(b)
	root, _ := c.siteOf(b.a.Root)
	rs, _ := c.runs(b.a.Commutes)
	members := c.members(b.a.Commutes, rs)
	in, dst := b.atRoot()
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
		if c.site != root {
			x.to(c.group(root), mine, mlo, mhi, lo, hi-lo)
			b.next()
			continue
		}
		into := b.alloc((mhi - mlo) * b.a.Elem)
		var slots [][]Ref
		alls[g], slots = x.slots(mine, into.N, into)
		c.others(func(s int, ranks []int) { x.from(ranks, slots[s], mlo, mhi, lo, hi-lo) })
		alls[g] = append(alls[g], into)
		b.next()
	}
	if c.site == root {
		b.reduceHome(&c, xs, alls, dst)
	}
}

// reduceHome combines what all sites have sent for each segment; alls are the runs'
// results and, last, where they go.
func (b *builder) reduceHome(c *crew, xs []exchange, alls [][]Ref, dst Ref) {
	n := len(xs)
	for g := range n {
		lo, hi := cut(b.a.Count, n, g)
		into := alls[g][len(alls[g])-1]
		xs[g].finish(alls[g][:len(alls[g])-1], into)
		if b.me != b.a.Root {
			b.isend(b.a.Root, into)
			b.next()
			continue
		}
		parts := b.partsOf(dst, lo, hi, len(c.ranks))
		b.copy(into, parts[c.me])
		for i, r := range c.ranks {
			if i != c.me {
				b.irecv(r, parts[i])
			}
		}
		b.next()
	}
}

// partsOf divides elements [lo, hi) of r into n blocks.
func (b *builder) partsOf(r Ref, lo, hi, n int) []Ref {
	return b.parts(r.Buf, r.Off/max(1, b.a.Elem)+lo, hi-lo, n)
}
