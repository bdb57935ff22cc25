package coll

// Broadcast between sites, shared: the root scatters inside its site, every rank
// there sends its part on to the ranks of the other sites, and each site puts the
// parts together by an allgather, segment by segment. For large buffers.
//
// Cost: one latency between sites, m bytes to each other site, sent by all ranks
// of the root's site at once; one round crosses sites for each segment, and none
// waits for another. Inside the sites 2mβ, of which a segment's share is not
// overlapped. Source: GridMPI.
func bcastShared(b *builder) {
	c := newCrew(b)
	root, at := c.siteOf(b.a.Root)
	n := segments(b.t, b.a.bytes())
	if root == c.site {
		c.full = at
		b.bcastHome(&c, n)
	} else {
		b.bcastAway(&c, c.group(root), n)
	}
}

// bcastHome is the part of the ranks at the root's site.
func (b *builder) bcastHome(c *crew, n int) {
	for g := range n {
		lo, hi := cut(b.a.Count, n, g)
		parts := b.parts(Recv, lo, hi-lo, len(c.ranks))
		if c.me != c.full {
			b.recv(b.a.Root, parts[c.me])
			b.next()
		}
		c.others(func(_ int, ranks []int) {
			x := exchange{b: b, c: c}
			mlo, mhi := cut(hi-lo, len(c.ranks), c.me)
			x.to(ranks, parts[c.me:c.me+1], lo+mlo, lo+mhi, lo, hi-lo)
		})
		if c.me == c.full {
			for d := 1; d < len(c.ranks); d++ {
				i := (c.me + d) % len(c.ranks)
				b.send(c.ranks[i], parts[i])
			}
		}
		b.next()
	}
	for g := range n {
		lo, hi := cut(b.a.Count, n, g)
		b.allgather(c.team, b.parts(Recv, lo, hi-lo, len(c.ranks)))
	}
}

// bcastAway is the part of the ranks elsewhere.
func (b *builder) bcastAway(c *crew, home []int, n int) {
	waiting := make([][]pending, n)
	for g := range n {
		lo, hi := cut(b.a.Count, n, g)
		mlo, mhi := cut(hi-lo, len(c.ranks), c.me)
		x := exchange{b: b, c: c}
		x.from(home, []Ref{b.ref(Recv, lo+mlo, lo+mhi)}, lo+mlo, lo+mhi, lo, hi-lo)
		waiting[g] = x.waiting
	}
	b.next()
	for g := range n {
		lo, hi := cut(b.a.Count, n, g)
		b.await(waiting[g]...)
		b.next()
		b.allgather(c.team, b.parts(Recv, lo, hi-lo, len(c.ranks)))
	}
}
