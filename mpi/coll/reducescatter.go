package coll

// halvingBytes is up to where recursive halving is taken: above, the copying of
// the whole vector that it needs costs more than the messages it saves.
const halvingBytes = 512 << 10

func reduceScatters() []algorithm {
	return []algorithm{
		{name: "sites", best: func(t *Topo, _ *Args) bool { return manySites(t) }, build: reduceScatterSites},
		{name: "recursive_halving", applies: func(_ *Topo, a *Args) bool { return a.Commutes }, best: func(t *Topo, a *Args) bool {
			return t.Size > 2 && total(t, a)*a.Elem < halvingBytes && !crowded(t)
		}, build: reduceScatterHalving},
		{name: "pairwise", build: reduceScatterPairs},
	}
}

// borders returns where each rank's block begins, in elements, and the end.
func borders(t *Topo, a *Args) []int {
	at := make([]int, t.Size+1)
	for i := range t.Size {
		n := a.Count
		if a.Counts != nil {
			n = a.Counts[i]
		}
		at[i+1] = at[i] + n
	}
	return at
}

// total is the number of elements of all blocks.
func total(t *Topo, a *Args) int {
	if a.Counts == nil {
		return a.Count * t.Size
	}
	n := 0
	for _, c := range a.Counts {
		n += c
	}
	return n
}

// whole is where a rank's contribution to all blocks is.
func (b *builder) whole(elems int) Ref {
	if b.a.InPlace {
		return b.ref(Recv, 0, elems)
	}
	return b.ref(Send, 0, elems)
}

// own is where a rank's block of the result goes at once: nowhere where that is
// input as well.
func (b *builder) own(elems int) Ref {
	if b.a.InPlace {
		return Ref{}
	}
	return b.ref(Recv, 0, elems)
}

// Reduce-scatter by pairs: everybody sends each rank its block and combines what
// comes in the order of ranks. For large vectors, and for operations that do not
// commute.
//
// Cost: ceil((N-1)/32) α + mβ (N-1)/N + mγ.
func reduceScatterPairs(b *builder) {
	l := bySite(b.t)
	t := team{l.order, l.pos[b.me], -1}
	at := borders(b.t, &b.a)
	in := b.whole(at[b.size])
	parts, order := make([]Ref, b.size), make([]int, b.size)
	for i, r := range l.order {
		parts[i] = b.within(in, at[r], at[r+1])
		order[r] = i
	}
	if b.a.Commutes {
		order = t.mineFirst()
	}
	n := at[b.me+1] - at[b.me]
	mine := b.combine(t, [][]int{order}, parts, b.own(n))
	b.copy(mine[0], b.ref(Recv, 0, n))
}

// Reduce-scatter by recursive halving: ranks half of N apart exchange the halves
// of the vector that the other's half of the ranks wants, then a quarter, and so
// on. Where N is no power of two, the lowest pairs of neighbours become one first.
// For operations that commute, on small and medium vectors.
//
// Cost: log2 N α + mβ (N-1)/N + mγ, and m(2β+γ) more where N is no power of two.
// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005.
func reduceScatterHalving(b *builder) {
	at := borders(b.t, &b.a)
	in := b.whole(at[b.size])
	mine := b.ref(Recv, 0, at[b.me+1]-at[b.me])
	h := newHalving(b)
	if h.place < 0 {
		b.send(b.me+1, in)
		b.next()
		b.recv(b.me+1, mine)
		return
	}
	work, spare := b.alloc(in.N), b.alloc(in.N)
	b.copy(in, work)
	if b.me < 2*h.extra {
		b.recv(b.me-1, spare)
		b.reduce(spare, work)
	}
	// Places [lo, hi) have the same blocks left; a place below extra stands for
	// itself and the rank before it.
	border := func(place int) int { return at[min(place, h.extra)+place] }
	lo, hi := 0, h.power
	for hi-lo > 1 {
		d := (hi - lo) / 2
		upper := h.place >= lo+d
		peer := h.rank(h.place ^ d)
		keep, give := [2]int{lo, lo + d}, [2]int{lo + d, hi}
		if upper {
			keep, give = give, keep
		}
		b.send(peer, b.within(work, border(give[0]), border(give[1])))
		b.recv(peer, b.within(spare, border(keep[0]), border(keep[1])))
		b.reduce(b.within(spare, border(keep[0]), border(keep[1])), b.within(work, border(keep[0]), border(keep[1])))
		b.next()
		lo, hi = keep[0], keep[1]
	}
	if b.me < 2*h.extra {
		b.send(b.me-1, b.within(work, at[b.me-1], at[b.me]))
	}
	b.copy(b.within(work, at[b.me], at[b.me+1]), mine)
}

// Reduce-scatter between sites: for each other site, the ranks of a site combine
// what that site's ranks want, every rank a part, and send it to whose it is. For
// all sizes.
//
// Cost: one latency between sites, and to each other site the bytes that its ranks
// want (for each run), sent by all ranks at once; one round crosses sites. Inside
// a site one round for each site, mβ. Source: GridMPI.
func reduceScatterSites(b *builder) {
	c := newCrew(b)
	rs, _ := c.runs(b.a.Commutes)
	members := c.members(b.a.Commutes, rs)
	v := newVector(b, &c, b.whole(total(b.t, &b.a)))
	results := make([][]Ref, c.nsites())
	c.others(func(s int, _ []int) {
		lo, hi := v.site(s)
		results[s] = b.combine(c.team, members, b.partsOf(v.base, lo, hi, len(c.ranks)), Ref{})
		b.next()
	})
	lo, hi := v.block(c.pos[b.me])
	slo, shi := v.site(c.site)
	dst := b.orScratch(b.own(hi-lo), (hi-lo)*b.a.Elem)
	x := exchange{b: b, c: &c, runs: rs}
	all, slots := x.slots(make([]Ref, len(members)), dst.N, dst)
	c.others(func(s int, ranks []int) {
		tlo, thi := v.site(s)
		mlo, mhi := cut(thi-tlo, len(c.ranks), c.me)
		v.toOwners(ranks, s, results[s], tlo+mlo, tlo+mhi)
		x.from(ranks, slots[s], lo, hi, slo, shi-slo)
	})
	b.next()
	parts := make([]Ref, len(c.ranks))
	for i := range parts {
		plo, phi := v.block(c.sites[c.site] + i)
		parts[i] = b.within(v.base, plo, phi)
	}
	mine := b.combine(c.team, members, parts, Ref{})
	for i, r := range rs {
		if r.site == c.site {
			all[i] = mine[r.k]
		}
	}
	b.next()
	x.finish(all, dst)
	b.copy(dst, b.ref(Recv, 0, hi-lo))
}
