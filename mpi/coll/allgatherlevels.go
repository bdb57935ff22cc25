package coll

// smallBytes is up to where the blocks of all ranks are worth going through one rank of
// each site, its leader: there a message costs more than all that may be in it.
const smallBytes = 8 << 10

// Allgather by levels: each site gathers up a tree, the leaders of all sites tell each
// other directly, and all blocks go down again. For small blocks.
//
// Cost: 2 ceil(log4 n) α + 2Nmβ inside a site of n ranks, one latency between sites, and a
// site's blocks once to each other site; one round crosses sites, with S(S-1) messages.
// Source: MagPIe.
func allgatherLevels(b *builder) {
	c := newCrew(b)
	g := newGathering(b, &c)
	t := c.tree(c.sites[c.site], c.sites[c.site+1], c.sites[c.site], c.pos[b.me])
	for _, k := range t.kids {
		b.recv(k.rank, g.span(k.lo, k.hi))
	}
	b.next()
	if t.parent >= 0 {
		b.send(t.parent, g.span(t.lo, t.hi))
	} else {
		c.others(func(s int, ranks []int) {
			b.send(ranks[0], g.span(t.lo, t.hi))
			b.recv(ranks[0], g.span(c.sites[s], c.sites[s+1]))
		})
	}
	b.next()
	b.treeBcast(t, g.span(0, b.size))
	g.handOut()
}
