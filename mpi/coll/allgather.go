package coll

func allgathers() []algorithm {
	return []algorithm{
		byBoard(once, allgatherBoard),
		{name: "direct", best: func(t *Topo, _ *Args) bool { return crowded(t) }, build: allgatherDirect},
		{name: "levels", best: bestLevels, build: allgatherLevels},
		{name: "sites", best: func(t *Topo, _ *Args) bool { return manySites(t) }, build: allgatherSites},
		{name: "ring", best: func(t *Topo, a *Args) bool { return t.Size > 2 && a.bytes() >= ringBlock }, build: allgatherRing},
		{name: "recursive_doubling", applies: func(t *Topo, _ *Args) bool { return t.Size&(t.Size-1) == 0 }, build: allgatherDoubling},
		{name: "bruck", build: allgatherBruck},
	}
}

// bestLevels: between sites, for little in all.
func bestLevels(t *Topo, a *Args) bool { return manySites(t) && total(t, a)*a.Elem <= smallBytes }

func allgathervs() []algorithm {
	return []algorithm{
		{name: "direct", best: func(t *Topo, _ *Args) bool { return crowded(t) }, build: allgatherDirect},
		{name: "levels", best: bestLevels, build: allgatherLevels},
		{name: "sites", best: func(t *Topo, _ *Args) bool { return manySites(t) }, build: allgatherSites},
		{name: "bruck", best: func(t *Topo, a *Args) bool { return total(t, a)*a.Elem < t.Size*ringBlock }, build: allgathervBruck},
		{name: "ring", build: allgatherRing},
	}
}

// gathered names all blocks in Recv by rank, and puts this rank's own there.
func (b *builder) gathered() []Ref {
	all := b.blockRefs(Recv, b.a.Counts, b.a.Displs, b.size)
	if !b.a.InPlace {
		b.copy(Ref{Send, 0, all[b.me].N}, all[b.me])
		b.next()
	}
	return all
}

// Allgather around a ring, whose neighbours are neighbours on hosts. For large
// blocks.
//
// Cost: (N-1) (α + mβ) for blocks of m bytes; each byte enters and leaves a host
// once.
func allgatherRing(b *builder) {
	l := bySite(b.t)
	all := b.gathered()
	inOrder := make([]Ref, b.size)
	for p, r := range l.order {
		inOrder[p] = all[r]
	}
	b.ring(team{l.order, l.pos[b.me], -1}, inOrder)
}

// Allgather by recursive doubling: pairs at distance 2^k exchange what they have,
// which lies together. For small blocks and N a power of two.
//
// Cost: log2 N α + (N-1) mβ.
func allgatherDoubling(b *builder) {
	all := b.gathered()
	for d := 1; d < b.size; d *= 2 {
		peer := b.me ^ d
		have, want := b.me&^(d-1), peer&^(d-1)
		b.send(peer, joined(all[have:have+d]))
		b.recv(peer, joined(all[want:want+d]))
		b.next()
	}
}

// Allgather after Bruck: see team.bruck. For small blocks.
//
// Cost: ceil(log2 N) α + (N-1) mβ.
func allgatherBruck(b *builder) {
	b.bruck(team{flat(b.t).order, b.me, -1}, b.gathered())
}

// allgathervBruck works on a copy without gaps: where blocks belong is each rank's
// own affair, and what one sends as one message the other has to receive as one.
func allgathervBruck(b *builder) {
	all := b.gathered()
	at := borders(b.t, &b.a)
	base := b.alloc(at[b.size] * b.a.Elem)
	packed := make([]Ref, b.size)
	for i := range packed {
		packed[i] = b.within(base, at[i], at[i+1])
	}
	b.copy(all[b.me], packed[b.me])
	b.bruck(team{flat(b.t).order, b.me, -1}, packed)
	for i := range packed {
		if i != b.me {
			b.copy(packed[i], all[i])
		}
	}
}

// Allgather between sites: every rank sends its block to one rank of each other
// site (or parts of it to several, where there are more there), and while that is
// on its way the site gathers its own blocks; then it gathers those that have
// come, segment by segment where they are large. For all sizes.
//
// Cost: one latency between sites, and a site's blocks once to each other site,
// sent by all ranks at once; one round crosses sites, in several messages where
// blocks are large, and none waits for another. Inside a site 1, ceil(log2 n) or
// n-1 rounds for its own and as many for each segment. Source: MagPIe, GridMPI.
func allgatherSites(b *builder) {
	c := newCrew(b)
	g := newGathering(b, &c)
	v := g.vector
	n := segments(b.t, v.largest()*b.a.Elem)
	waiting := b.startSites(&c, v, n)
	b.allgather(c.team, v.blocks(c.site))
	for s := range n {
		b.await(waiting[s]...)
		b.next()
		var parts [][]Ref
		c.others(func(o int, _ []int) { parts = append(parts, v.slices(o, len(c.ranks), n, s)) })
		b.allgather(c.team, parts...)
	}
	g.handOut()
}

// gathering is what ranks gather, in the order of a layout: in Recv where that is its
// order, otherwise in scratch.
type gathering struct {
	*vector
	all    []Ref // where blocks belong, by rank
	direct bool
}

// newGathering has this rank's own block in its place.
func newGathering(b *builder, c *crew) gathering {
	g := gathering{vector: emptyVector(b, c), all: b.gathered(), direct: c.identity() && b.packed()}
	if g.direct {
		g.base = Ref{Recv, 0, g.at[b.size] * b.a.Elem}
	} else {
		g.base = b.alloc(g.at[b.size] * b.a.Elem)
	}
	p := c.pos[b.me]
	b.copy(g.all[b.me], g.span(p, p+1))
	return g
}

// span is the blocks at positions [lo, hi).
func (g *gathering) span(lo, hi int) Ref { return g.b.within(g.base, g.at[lo], g.at[hi]) }

// handOut puts blocks where they belong.
func (g *gathering) handOut() {
	if g.direct {
		return
	}
	for p, r := range g.c.order {
		if r != g.b.me {
			g.b.copy(g.span(p, p+1), g.all[r])
		}
	}
}

// packed reports whether this rank's blocks follow each other.
func (b *builder) packed() bool {
	if b.a.Displs == nil {
		return true
	}
	at := 0
	for i, d := range b.a.Displs {
		if d != at {
			return false
		}
		at += b.a.Counts[i]
	}
	return true
}

// startSites starts all messages between sites. It returns those to be received,
// by segment.
func (b *builder) startSites(c *crew, v *vector, n int) [][]pending {
	lo, hi := v.block(c.pos[b.me])
	waiting := make([][]pending, n)
	for g := range n {
		c.others(func(s int, ranks []int) {
			slo, shi := v.site(c.site)
			for j, r := range ranks {
				plo, phi := slice(slo, shi, len(ranks), j, n, g)
				clo, chi := common(lo, hi, plo, phi)
				b.isend(r, b.within(v.base, clo, chi))
			}
			slo, shi = v.site(s)
			plo, phi := slice(slo, shi, len(c.ranks), c.me, n, g)
			for j, r := range ranks {
				blo, bhi := v.block(c.sites[s] + j)
				clo, chi := common(blo, bhi, plo, phi)
				waiting[g] = append(waiting[g], b.irecv(r, b.within(v.base, clo, chi)))
			}
		})
	}
	b.next()
	return waiting
}

// slice returns segment g of n of part j of parts of elements [lo, hi).
func slice(lo, hi, parts, j, n, g int) (int, int) {
	plo, phi := cut(hi-lo, parts, j)
	glo, ghi := cut(phi-plo, n, g)
	return lo + plo + glo, lo + plo + ghi
}

// slices names segment g of each of parts of a site's blocks.
func (v *vector) slices(s, parts, n, g int) []Ref {
	lo, hi := v.site(s)
	refs := make([]Ref, parts)
	for j := range refs {
		glo, ghi := slice(lo, hi, parts, j, n, g)
		refs[j] = v.b.within(v.base, glo, ghi)
	}
	return refs
}

// blocks names the blocks of a site's ranks.
func (v *vector) blocks(s int) []Ref {
	refs := make([]Ref, v.c.sites[s+1]-v.c.sites[s])
	for i := range refs {
		lo, hi := v.block(v.c.sites[s] + i)
		refs[i] = v.b.within(v.base, lo, hi)
	}
	return refs
}
