package coll

// gatherBytes is how large a block may be to travel with others through ranks on
// the way; each of them costs its time on the line again.
const gatherBytes = 16 << 10

func gathers(c Collective) []algorithm {
	if c == OpGatherv {
		return []algorithm{{name: "linear", build: gatherLinear}}
	}
	small := func(_ *Topo, a *Args) bool { return a.bytes() < gatherBytes }
	return []algorithm{
		{name: "levels", best: func(t *Topo, a *Args) bool { return small(t, a) && levels(t) }, build: func(b *builder) { gatherTree(b, bySite(b.t)) }},
		{name: "binomial", best: func(t *Topo, a *Args) bool { return small(t, a) && !crowded(t) }, build: func(b *builder) { gatherTree(b, flat(b.t)) }},
		{name: "linear", build: gatherLinear},
	}
}

func scatters(c Collective) []algorithm {
	if c == OpScatterv {
		return []algorithm{{name: "linear", build: scatterLinear}}
	}
	small := func(_ *Topo, a *Args) bool { return a.bytes() < gatherBytes }
	return []algorithm{
		{name: "levels", best: func(t *Topo, a *Args) bool { return small(t, a) && levels(t) }, build: func(b *builder) { scatterTree(b, bySite(b.t)) }},
		{name: "binomial", best: func(t *Topo, a *Args) bool { return small(t, a) && !crowded(t) }, build: func(b *builder) { scatterTree(b, flat(b.t)) }},
		{name: "linear", build: scatterLinear},
	}
}

// blockRefs are the blocks by rank in a buffer of blocks of Counts, Displs or of
// Count each.
func (b *builder) blockRefs(buf Buf, counts, displs []int, n int) []Ref {
	refs := make([]Ref, n)
	at := 0
	for i := range refs {
		c := b.a.Count
		if counts != nil {
			c = counts[i]
		}
		if displs != nil {
			at = displs[i]
		}
		refs[i] = b.ref(buf, at, at+c)
		at += c
	}
	return refs
}

// Gather along a tree: each rank collects the blocks of the ranks below it. With
// sites and hosts each host collects, then each site, and one rank of each site
// sends to the root. For small blocks.
//
// Cost: ceil(log2 n) α + nmβ inside a site of n ranks, one latency and the site's
// blocks from each other site, in one message; one round crosses sites. Source:
// MagPIe.
func gatherTree(b *builder, l *layout) {
	t := l.tree(0, b.size, l.pos[b.a.Root], l.pos[b.me])
	own := b.ref(Send, 0, b.a.Count)
	if t.parent >= 0 && len(t.kids) == 0 {
		b.send(t.parent, own)
		return
	}
	direct := t.parent < 0 && l.identity()
	blocks := b.subtree(t, direct, Recv)
	for _, k := range t.kids {
		b.recv(k.rank, joined(blocks[k.lo-t.lo:k.hi-t.lo]))
	}
	b.next()
	if t.parent >= 0 {
		b.copy(own, blocks[t.me-t.lo])
		b.send(t.parent, joined(blocks))
		return
	}
	if !b.a.InPlace {
		b.copy(own, b.ref(Recv, b.me*b.a.Count, (b.me+1)*b.a.Count))
	}
	if !direct {
		for p, r := range l.order {
			if r != b.me {
				b.copy(blocks[p], b.ref(Recv, r*b.a.Count, (r+1)*b.a.Count))
			}
		}
	}
}

// subtree names the blocks of a subtree by position: in the root's own buffer where
// that has them in this order, otherwise in scratch.
func (b *builder) subtree(t tree, direct bool, buf Buf) []Ref {
	base := Ref{Buf: buf}
	if !direct {
		base = b.alloc((t.hi - t.lo) * b.a.bytes())
	}
	blocks := make([]Ref, t.hi-t.lo)
	for i := range blocks {
		blocks[i] = base.from(i*b.a.bytes(), b.a.bytes())
	}
	return blocks
}

// Linear gather: everybody sends to the root, which posts all receives at once. For
// large blocks, and where a rank does not know the others' counts.
//
// Cost: α + (N-1)mβ at the root; one latency between sites, no byte twice.
func gatherLinear(b *builder) {
	if b.me != b.a.Root {
		b.send(b.a.Root, b.ref(Send, 0, b.a.Count))
		return
	}
	blocks := b.blockRefs(Recv, b.a.Counts, b.a.Displs, b.size)
	for d := 1; d < b.size; d++ {
		r := (b.me + d) % b.size
		b.recv(r, blocks[r])
	}
	if !b.a.InPlace {
		b.copy(Ref{Send, 0, blocks[b.me].N}, blocks[b.me])
	}
}

// Scatter along a tree: gatherTree the other way round. For small blocks.
//
// Cost: as gatherTree.
func scatterTree(b *builder, l *layout) {
	t := l.tree(0, b.size, l.pos[b.a.Root], l.pos[b.me])
	own := b.ref(Recv, 0, b.a.Count)
	if t.parent >= 0 && len(t.kids) == 0 {
		b.recv(t.parent, own)
		return
	}
	direct := t.parent < 0 && l.identity()
	blocks := b.subtree(t, direct, Send)
	switch {
	case t.parent >= 0:
		b.recv(t.parent, joined(blocks))
		b.next()
	case !direct:
		for p, r := range l.order {
			b.copy(b.ref(Send, r*b.a.Count, (r+1)*b.a.Count), blocks[p])
		}
	}
	for _, k := range t.kids {
		b.send(k.rank, joined(blocks[k.lo-t.lo:k.hi-t.lo]))
	}
	if t.parent >= 0 || !b.a.InPlace {
		b.copy(blocks[t.me-t.lo], own)
	}
}

// Linear scatter: the root sends to everybody at once, to other sites first. For
// large blocks, and where a rank does not know the others' counts.
//
// Cost: α + (N-1)mβ at the root; one latency between sites, no byte twice.
func scatterLinear(b *builder) {
	if b.me != b.a.Root {
		b.recv(b.a.Root, b.ref(Recv, 0, b.a.Count))
		return
	}
	blocks := b.blockRefs(Send, b.a.Counts, b.a.Displs, b.size)
	for _, far := range []bool{true, false} {
		for d := 1; d < b.size; d++ {
			if r := (b.me + d) % b.size; b.far(r) == far {
				b.send(r, blocks[r])
			}
		}
	}
	if !b.a.InPlace {
		b.copy(blocks[b.me], Ref{Recv, 0, blocks[b.me].N})
	}
}

// far reports whether a rank is at another site.
func (b *builder) far(rank int) bool { return b.t.Site != nil && b.t.Site[rank] != b.t.Site[b.me] }
