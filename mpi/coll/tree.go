package coll

// tree is a rank's place in a tree over an interval of positions. Every subtree
// is an interval, so that what a gather brings together lies together and a
// reduction along the tree keeps the order of positions.
//
// The root talks to one representative of every other site directly: one latency
// between sites. Within a site intervals of hosts are quartered, within a host
// intervals of ranks are halved: trees that are ceil(log4 n) and ceil(log2 n) deep.
// Neither needs the root at an end of its interval. Where hosts are crowded, a host's
// ranks hang directly below their first one.
type tree struct {
	parent int // rank, -1 at the root
	me     int // my position
	lo, hi int // positions of my subtree
	kids   []kid
}

// kid is a child: its rank and the positions below it. Children stand in the
// order in which a broadcast should serve them, the far ones first; backwards it
// is the order in which a reduction meets neighbouring intervals.
type kid struct{ rank, lo, hi int }

// tree returns the place of the rank at position me in the tree over positions
// [lo, hi) with that root.
func (l *layout) tree(lo, hi, root, me int) tree {
	w := walk{l: l, root: root, me: me, tree: tree{parent: -1, me: me, lo: lo, hi: hi}}
	lo, hi = w.star(l.sites, lo, hi)
	lo, hi = w.quarter(l.hosts, lo, hi)
	if l.wide {
		w.star(nil, lo, hi)
	} else {
		w.halve(lo, hi)
	}
	return w.tree
}

// walk follows the branch of the tree that leads to me, and on to my children.
type walk struct {
	l        *layout
	root, me int
	tree     tree
}

// child notes that the interval, led by its first position, hangs below the root.
// It reports whether the way to me goes there.
func (w *walk) child(lo, hi int) bool {
	if w.me == w.root {
		w.tree.kids = append(w.tree.kids, kid{w.l.order[lo], lo, hi})
		return false
	}
	if w.me < lo || w.me >= hi {
		return false
	}
	if w.me == lo {
		w.tree.parent, w.tree.lo, w.tree.hi = w.l.order[w.root], lo, hi
	}
	w.root = lo
	return true
}

// star hangs all other intervals between borders directly below the root, and
// returns the one in which the way to me goes on. No borders means that each
// position is an interval.
func (w *walk) star(borders []int, lo, hi int) (int, int) {
	a, z, r := lo, hi-1, w.root
	at := func(i int) (int, int) { return i, i + 1 }
	if borders != nil {
		a, z, r = within(borders, a), within(borders, z), within(borders, r)
		at = func(i int) (int, int) { return max(lo, borders[i]), min(hi, borders[i+1]) }
	}
	for i := z; i > r; i-- {
		if x, y := at(i); w.child(x, y) {
			return x, y
		}
	}
	for i := a; i < r; i++ {
		if x, y := at(i); w.child(x, y) {
			return x, y
		}
	}
	return at(r)
}

// quarter hangs three quarters of the intervals between borders below the root, then
// of the rest, until one is left: between hosts a sender is done with a message in a
// fraction of the time that it takes, some 20 of 70 µs over an overlay.
func (w *walk) quarter(borders []int, lo, hi int) (int, int) {
	for {
		a, z := within(borders, lo), within(borders, hi-1)
		if a == z {
			return lo, hi
		}
		parts := min(4, z-a+1)
		quarters := make([]int, parts+1)
		for i := range quarters {
			quarters[i] = borders[a+i*(z-a+1)/parts]
		}
		lo, hi = w.star(quarters, lo, hi)
	}
}

// halve hangs half of the positions below the root, then half of the rest, until one
// is left.
func (w *walk) halve(lo, hi int) {
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		near, far := [2]int{lo, mid}, [2]int{mid, hi}
		if w.root >= mid {
			near, far = far, near
		}
		if w.child(far[0], far[1]) {
			near = far
		}
		lo, hi = near[0], near[1]
	}
}

// treeBcast sends buf down the tree, to all children at once: two rounds.
func (b *builder) treeBcast(t tree, buf Ref) {
	if t.parent >= 0 {
		b.recv(t.parent, buf)
		b.next()
	}
	for _, k := range t.kids {
		b.send(k.rank, buf)
	}
	b.next()
}

// treeReduce combines what in names at all ranks, in the order of positions, up
// the tree. At the root it returns where the result is, elsewhere it sends it on.
// dst is where the root would like the result and may be written to at once,
// also where it is the input; it is empty where there is no such place.
func (b *builder) treeReduce(t tree, in, dst Ref) Ref {
	acc, writable := in, in == dst
	from := make([]Ref, len(t.kids))
	for i := len(t.kids) - 1; i >= 0; i-- {
		if i == len(t.kids)-1 && in != dst && dst.N == in.N {
			from[i] = dst
		} else {
			from[i] = b.alloc(in.N)
		}
		b.recv(t.kids[i].rank, from[i])
	}
	for i := len(t.kids) - 1; i >= 0; i-- {
		left := t.kids[i].hi <= t.me
		switch {
		case writable && (left || b.a.Commutes):
			b.reduce(from[i], acc)
			continue
		case left && !b.a.Commutes:
			own := b.alloc(in.N)
			b.copy(acc, own)
			b.reduce(from[i], own)
			acc = own
		default:
			b.reduce(acc, from[i])
			acc = from[i]
		}
		writable = true
	}
	if t.parent >= 0 {
		b.next()
		b.send(t.parent, acc)
		b.next()
	}
	return acc
}

// treeUp and treeDown pass word up to the root, and down from it, with empty
// messages.
func (b *builder) treeUp(t tree) {
	for _, k := range t.kids {
		b.expect(k.rank)
	}
	b.next()
	if t.parent >= 0 {
		b.signal(t.parent)
		b.next()
	}
}

func (b *builder) treeDown(t tree) {
	if t.parent >= 0 {
		b.expect(t.parent)
		b.next()
	}
	for _, k := range t.kids {
		b.signal(k.rank)
	}
	b.next()
}
