package coll

func barriers() []algorithm {
	return []algorithm{
		byBoard(once, barrierBoard),
		{name: "star", best: func(t *Topo, _ *Args) bool { return crowded(t) }, build: barrierStar},
		{name: "levels", best: func(t *Topo, _ *Args) bool { return levels(t) }, build: barrierLevels},
		{name: "dissemination", build: barrierDissemination},
	}
}

// Dissemination barrier: in round k every rank sends to the rank 2^k above it and
// hears from the one 2^k below. For ranks that are all equally far apart.
//
// Cost: ceil(log2 N) α. Source: Hensgen, Finkel, Manber 1988.
func barrierDissemination(b *builder) {
	b.disseminate(b.size, b.me, func(i int) int { return i })
}

func (b *builder) disseminate(n, me int, rank func(int) int) {
	for d := 1; d < n; d *= 2 {
		b.signal(rank((me + d) % n))
		b.expect(rank((me - d + n) % n))
		b.next()
	}
}

// Barrier by levels: up a tree inside each site, all sites' leaders tell each
// other directly, and down again. With one site, hosts take the place of sites
// and their leaders use dissemination, since messages between hosts cost the
// sender more than the line.
//
// Cost: 2 ceil(log2 n) α inside a site of n ranks, and one latency between sites;
// one round crosses sites, with S(S-1) empty messages. Source: MagPIe.
func barrierLevels(b *builder) {
	l := bySite(b.t)
	tops := l.sites
	if l.nsites() == 1 {
		tops = l.hosts
	}
	p := l.pos[b.me]
	top := within(tops, p)
	leader := func(i int) int { return l.order[tops[i]] }
	t := l.tree(tops[top], tops[top+1], tops[top], p)
	b.treeUp(t)
	if t.parent < 0 {
		if l.nsites() == 1 {
			b.disseminate(len(tops)-1, top, leader)
		} else {
			b.tellAll(len(tops)-1, top, leader)
		}
	}
	b.treeDown(t)
}

// tellAll exchanges empty messages between all of n in one round.
func (b *builder) tellAll(n, me int, rank func(int) int) {
	for d := 1; d < n; d++ {
		b.signal(rank((me + d) % n))
		b.expect(rank((me - d + n) % n))
	}
	b.next()
}
