package coll

func reduces() []algorithm {
	return []algorithm{
		{name: "star", best: func(t *Topo, a *Args) bool { return crowded(t) && a.bytes() < starBytes }, build: func(b *builder) { reduceTree(b, star(b.t)) }},
		{name: "direct", best: func(t *Topo, a *Args) bool { return crowded(t) && a.Count >= t.Size }, build: reduceDirect},
		{name: "shared", best: bestShared, build: reduceShared},
		{name: "levels", best: func(t *Topo, a *Args) bool {
			return levels(t) && (a.bytes() < treeBytes || manySites(t))
		}, build: func(b *builder) { reduceTree(b, b.combining()) }},
		{name: "rabenseifner", best: func(t *Topo, a *Args) bool {
			return t.Size > 2 && a.bytes() >= treeBytes && a.Count >= t.Size
		}, build: reduceHalving},
		{name: "binomial", build: func(b *builder) { reduceTree(b, flat(b.t)) }},
	}
}

// combining is the layout in which this operation may combine: that of ranks,
// with runs for sites and hosts, where it does not commute.
func (b *builder) combining() *layout {
	if b.a.Commutes {
		return bySite(b.t)
	}
	return byRank(b.t)
}

// atRoot is where the input is of an operation in which InPlace counts at the
// root only, and where the root's result goes; that is empty elsewhere.
func (b *builder) atRoot() (in, dst Ref) {
	in = b.ref(Send, 0, b.a.Count)
	if b.me != b.a.Root {
		return in, Ref{}
	}
	dst = b.ref(Recv, 0, b.a.Count)
	if b.a.InPlace {
		in = dst
	}
	return in, dst
}

// Reduction up a tree: binomial where the layout is flat; with sites and hosts
// each host combines, then each site, and one rank of each site sends to the root.
// An operation that does not commute is combined in runs of consecutive ranks of
// a site. For small buffers.
//
// Cost: ceil(log2 n) (α + m(β+γ)) inside a site, one latency and m bytes (for each
// run) from each other site; one round crosses sites. Source: MagPIe.
func reduceTree(b *builder, l *layout) {
	in, dst := b.atRoot()
	t := l.tree(0, b.size, l.pos[b.a.Root], l.pos[b.me])
	acc := b.treeReduce(t, in, dst)
	if t.parent < 0 {
		b.copy(acc, dst)
	}
}

// Reduction by halving: pairs of ranks exchange halves, then halves of halves,
// until each has combined one part, and sends it to the root. Distances double,
// so that what is combined is always consecutive ranks' and order is kept. For
// large buffers among ranks that are near.
//
// Cost: (log2 N + N-1) α + 2mβ (N-1)/N + mγ; as much again as m(β+γ) where N is no
// power of two. Source: Rabenseifner, ICCS 2004.
func reduceHalving(b *builder) {
	in, dst := b.atRoot()
	h := newHalving(b)
	if h.place >= 0 {
		work := b.orScratch(dst, in.N)
		h.scatter(b, in, work)
		if b.me != b.a.Root {
			b.send(b.a.Root, b.within(work, h.lo, h.hi))
			b.next()
		}
	} else {
		b.send(b.me+1, in)
		b.next()
	}
	if b.me == b.a.Root {
		for i := range h.power {
			if i != h.place {
				lo, hi := h.part(b.a.Count, i)
				b.recv(h.rank(i), b.within(dst, lo, hi))
			}
		}
	}
}

// within returns elements [lo, hi) of r.
func (b *builder) within(r Ref, lo, hi int) Ref { return r.from(lo*b.a.Elem, (hi-lo)*b.a.Elem) }
