package coll

// ringBytes is from where on a ring is taken, whose 2(N-1) rounds are worth that a
// byte enters and leaves a host once and that N need not be a power of two.
const ringBytes = 512 << 10

func allreduces() []algorithm {
	return []algorithm{
		byBoard(once, allreduceBoard),
		{name: "star", best: func(t *Topo, a *Args) bool { return crowded(t) && a.bytes() < starBytes }, build: allreduceStar},
		{name: "direct", best: func(t *Topo, a *Args) bool { return crowded(t) && a.Count >= t.Size }, build: allreduceDirect},
		{name: "shared", best: bestShared, build: allreduceShared},
		{name: "levels", best: func(t *Topo, a *Args) bool {
			return levels(t) && (a.bytes() < treeBytes || manySites(t))
		}, build: allreduceLevels},
		{name: "ring", applies: func(_ *Topo, a *Args) bool { return a.Commutes }, best: func(t *Topo, a *Args) bool {
			return t.Size > 2 && a.bytes() >= ringBytes && a.bytes() >= t.Size*ringBlock
		}, build: allreduceRing},
		{name: "rabenseifner", best: func(t *Topo, a *Args) bool {
			return t.Size > 2 && a.bytes() >= treeBytes && a.Count >= t.Size
		}, build: allreduceHalving},
		{name: "recursive_doubling", build: func(b *builder) {
			all := b.ref(Recv, 0, b.a.Count)
			b.copy(b.input(), all)
			acc := b.doubling(flat(b.t).order, b.me, all)
			b.copy(acc, all)
		}},
	}
}

// Allreduce by recursive doubling: in round k pairs of ranks at distance 2^k
// exchange all they have. Where n is no power of two, the lowest pairs of
// neighbours become one first. Order is kept. For small buffers.
//
// Cost: ceil(log2 n) (α + m(β+γ)), and two more messages where n is no power of
// two. Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005.
//
// doubling does it for a group, on acc, which it may write to, and returns where
// the result is.
func (b *builder) doubling(ranks []int, me int, acc Ref) Ref {
	power := 1
	for power*2 <= len(ranks) {
		power *= 2
	}
	extra := len(ranks) - power
	at := func(place int) int {
		if place < extra {
			return 2*place + 1
		}
		return place + extra
	}
	place := me - extra
	if me < 2*extra {
		if me%2 == 0 {
			b.send(ranks[me+1], acc)
			b.next()
			b.recv(ranks[me+1], acc)
			b.next()
			return acc
		}
		place = me / 2
	}
	spare := b.alloc(acc.N)
	if me < 2*extra {
		b.recv(ranks[me-1], spare)
		b.reduce(spare, acc)
	}
	for mask := 1; mask < power; mask *= 2 {
		peer := at(place ^ mask)
		b.send(ranks[peer], acc)
		b.recv(ranks[peer], spare)
		if peer < me {
			b.reduce(spare, acc)
		} else {
			b.reduce(acc, spare)
			acc, spare = spare, acc
		}
		b.next()
	}
	if me < 2*extra {
		b.send(ranks[me-1], acc)
		b.next()
	}
	return acc
}

// Allreduce by halving and doubling: see reduceHalving; the parts are brought
// together the way they came. For large buffers among ranks that are near.
//
// Cost: 2 log2 N α + 2mβ (N-1)/N + mγ; as much again as m(2β+γ) where N is no power
// of two. Source: Rabenseifner, ICCS 2004.
func allreduceHalving(b *builder) {
	all := b.ref(Recv, 0, b.a.Count)
	h := newHalving(b)
	if h.place < 0 {
		b.send(b.me+1, b.input())
		b.next()
		b.recv(b.me+1, all)
		return
	}
	h.scatter(b, b.input(), all)
	h.gather(b, all)
	if b.me < 2*h.extra {
		b.send(b.me-1, all)
	}
}

// Allreduce around a ring: each part is combined on its way around, then carried
// around once more; neighbours in the ring are neighbours on hosts. For operations
// that commute, on large buffers.
//
// Cost: 2(N-1) (α + mβ/N) + mγ, and each byte enters and leaves a host twice.
// Source: Patarasuk, Yuan, JPDC 2009.
func allreduceRing(b *builder) {
	l := bySite(b.t)
	t := team{l.order, l.pos[b.me], -1}
	if b.size == 1 {
		b.copy(b.input(), b.ref(Recv, 0, b.a.Count))
		return
	}
	parts := b.parts(Recv, 0, b.a.Count, b.size)
	dst := parts[t.me]
	if b.a.InPlace {
		dst = Ref{} // it is input as well
	}
	mine := b.combineRing(t, b.parts(b.input().Buf, 0, b.a.Count, b.size), dst)
	b.copy(mine, parts[t.me])
	b.ring(t, parts)
}
