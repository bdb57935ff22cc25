package coll

// On a crowded host a message costs little and a round much: who waits gives its
// processor to the others, and goes on when it is its turn again. There, the fewest
// rounds are best, whatever they cost in messages; and no byte crosses a line.

// starBytes is up to where one rank combines for all; above, each combines a part.
const starBytes = 8 << 10

// crowded reports whether all ranks are on one host that has not enough processors.
func crowded(t *Topo) bool { return t.Crowded && !manyHosts(t) && !manySites(t) }

// star is the layout for which trees are one level deep: each rank is a site.
func star(t *Topo) *layout {
	l := newLayout(t.Size)
	for r := range t.Size {
		l.place(r, r, true, true)
	}
	return l.ended()
}

// Barrier by a star: all tell rank 0, and rank 0 tells all.
//
// Cost: 2 rounds, 2(N-1) empty messages at rank 0.
func barrierStar(b *builder) {
	t := star(b.t).tree(0, b.size, 0, b.me)
	b.treeUp(t)
	b.treeDown(t)
}

// Allreduce by a star: rank 0 combines everything. For small buffers.
//
// Cost: 2 rounds, 2(N-1) (α/16 + mβ) + (N-1)mγ at rank 0.
func allreduceStar(b *builder) {
	t := star(b.t).tree(0, b.size, 0, b.me)
	all := b.ref(Recv, 0, b.a.Count)
	if t.parent < 0 {
		b.copy(b.treeReduce(t, b.input(), all), all)
	} else {
		b.treeReduce(t, b.input(), Ref{})
	}
	b.treeBcast(t, all)
}

// Allreduce by parts: each rank combines one, which all others send it at once, and
// sends it to all at once.
//
// Cost: 2 rounds, 2(N-1) (α/16 + mβ/N) + mγ.
func allreduceDirect(b *builder) {
	parts := b.parts(Recv, 0, b.a.Count, b.size)
	b.copy(b.combineDirect(b.input()), parts[b.me])
	b.exchange(parts)
}

// Reduce by parts: each rank combines one and sends it to the root.
//
// Cost: 2 rounds, (N-1) (α/16 + mβ/N) + mγ, and as much at the root again.
func reduceDirect(b *builder) {
	in, dst := b.atRoot()
	mine := b.combineDirect(in)
	if b.me != b.a.Root {
		b.send(b.a.Root, mine)
		return
	}
	for r, part := range b.partsOf(dst, 0, b.a.Count, b.size) {
		if r == b.me {
			b.copy(mine, part)
		} else {
			b.recv(r, part)
		}
	}
}

// combineDirect combines this rank's part of all inputs, in scratch.
func (b *builder) combineDirect(in Ref) Ref {
	t := team{flat(b.t).order, b.me, -1}
	return b.combinePairs(t, [][]int{t.ranks}, b.partsOf(in, 0, b.a.Count, b.size), Ref{})[0]
}

// Allgather at once: each rank sends its block to all others.
//
// Cost: 1 round, (N-1) (α/16 + mβ).
func allgatherDirect(b *builder) { b.exchange(b.gathered()) }

// exchange sends this rank's block to all others and receives theirs.
func (b *builder) exchange(blocks []Ref) {
	b.next()
	b.swap(team{flat(b.t).order, b.me, -1}, blocks)
}
