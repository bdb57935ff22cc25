package coll

// Where the ranks of one host have a board (engine.Board), each shows the others a few
// bytes in one step, and all see all of them: on a crowded host that takes one turn of
// each rank, while messages take two.

const (
	// BoardRanks and BoardBytes are how many ranks a board may have for these algorithms,
	// which look at what each of them shows, and how many bytes each may show.
	BoardRanks = 16
	BoardBytes = 240
)

// boardFits reports whether the ranks can have a board and show so many bytes each.
func boardFits(t *Topo, bytes int) bool {
	return t.Size > 1 && t.Size <= BoardRanks && bytes <= BoardBytes && !manyHosts(t) && !manySites(t)
}

// Boardable reports whether ranks would have operations by a board if they had one.
func Boardable(t *Topo) bool { return crowded(t) && boardFits(t, 0) }

// boarded is the same operation by a board; nil: it does not fit on one, or is as well
// done by messages.
func boarded(rows []algorithm, t *Topo, a *Args) *Schedule {
	if !crowded(t) {
		return nil
	}
	for i := range rows {
		if r := &rows[i]; r.name == "board" && r.right(t, a) {
			s := r.make(t, *a)
			return &s
		}
	}
	return nil
}

// byBoard is an algorithm that nobody chooses who has no board: a Schedule brings it
// besides the one that was chosen.
func byBoard(bytes func(*Topo, *Args) int, build func(*builder)) algorithm {
	return algorithm{
		name:    "board",
		applies: func(t *Topo, a *Args) bool { return boardFits(t, bytes(t, a)) },
		best:    func(*Topo, *Args) bool { return false },
		build:   build,
	}
}

// once is what a rank shows that shows its contribution.
func once(_ *Topo, a *Args) int { return a.bytes() }

// show has all ranks show src, and puts what they show into dst, by rank.
func (b *builder) show(src, dst Ref) {
	b.next()
	b.add(Step{Kind: ShowStep, Src: src, Dst: dst})
}

// shown is show into scratch. It returns where it is, by rank.
func (b *builder) shown(src Ref) []Ref {
	all := b.alloc(b.size * src.N)
	b.show(src, all)
	refs := make([]Ref, b.size)
	for r := range refs {
		refs[r] = all.from(r*src.N, src.N)
	}
	return refs
}

// Barrier by a board: all show that they are there.
func barrierBoard(b *builder) { b.show(Ref{}, Ref{}) }

// Allreduce by a board: everybody combines what everybody shows.
//
// Cost: one turn of each rank, N(m + mγ).
func allreduceBoard(b *builder) {
	all := b.shown(b.input())
	b.fold(all)
	b.copy(all[b.size-1], b.ref(Recv, 0, b.a.Count))
}

// Scan and exscan by a board: a rank combines what those up to it, or before it, show.
func scanBoard(b *builder, exclusive bool) {
	all := b.shown(b.input())[:b.me+1]
	if exclusive {
		all = all[:b.me]
	}
	if len(all) > 0 {
		b.fold(all)
		b.copy(all[len(all)-1], b.ref(Recv, 0, b.a.Count))
	}
}

// Allgather by a board.
func allgatherBoard(b *builder) {
	m := b.a.bytes()
	src, dst := Ref{Send, 0, m}, Ref{Recv, 0, b.size * m}
	if b.a.InPlace {
		src = b.alloc(m)
		b.copy(dst.from(b.me*m, m), src)
	}
	b.show(src, dst)
}

// Alltoall by a board: each rank shows all its blocks, and takes what is for it.
func alltoallBoard(b *builder) {
	m := b.a.bytes()
	src := Ref{Send, 0, b.size * m}
	if b.a.InPlace {
		src.Buf = Recv
	}
	for r, blocks := range b.shown(src) {
		b.copy(blocks.from(b.me*m, m), Ref{Recv, r * m, m})
	}
}
