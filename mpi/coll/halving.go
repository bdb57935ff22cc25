package coll

// halving is the shape of algorithms for a power of two ranks. Where there are
// more, the lowest pairs of neighbours become one: the even rank gives its input
// to the odd one. Places number the ranks that are left; they keep the order.
type halving struct {
	power  int // places
	extra  int // ranks that are not
	place  int // mine, or -1
	lo, hi int // the elements that are mine after scatter
	ranges [][2]int
}

func newHalving(b *builder) halving {
	h := halving{power: 1}
	for h.power*2 <= b.size {
		h.power *= 2
	}
	h.extra = b.size - h.power
	switch {
	case b.me >= 2*h.extra:
		h.place = b.me - h.extra
	case b.me%2 == 1:
		h.place = b.me / 2
	default:
		h.place = -1
	}
	return h
}

// rank returns the rank at a place.
func (h *halving) rank(place int) int {
	if place < h.extra {
		return 2*place + 1
	}
	return place + h.extra
}

// part returns the elements that a place ends up with after scatter.
func (h *halving) part(count, place int) (lo, hi int) {
	hi = count
	for mask := 1; mask < h.power; mask *= 2 {
		lo, hi = half(lo, hi, place&mask != 0)
	}
	return lo, hi
}

func half(lo, hi int, upper bool) (int, int) {
	mid := (lo + hi) / 2
	if upper {
		return mid, hi
	}
	return lo, mid
}

// scatter combines all inputs, in the order of ranks, and leaves this place's part
// of the result in work. Ranks without a place send their input and do not call it.
func (h *halving) scatter(b *builder, in, work Ref) {
	spare := b.alloc(in.N)
	b.copy(in, work)
	if b.me < 2*h.extra {
		b.recv(b.me-1, spare)
		b.reduce(spare, work)
	}
	h.lo, h.hi = 0, b.a.Count
	for mask := 1; mask < h.power; mask *= 2 {
		peer := h.rank(h.place ^ mask)
		upper := h.place&mask != 0
		lo, hi := half(h.lo, h.hi, upper)
		olo, ohi := half(h.lo, h.hi, !upper)
		h.ranges = append(h.ranges, [2]int{h.lo, h.hi})
		h.lo, h.hi = lo, hi
		mine, theirs := b.within(work, lo, hi), b.within(spare, lo, hi)
		b.send(peer, b.within(work, olo, ohi))
		b.recv(peer, theirs)
		if upper || b.a.Commutes {
			b.reduce(theirs, mine)
		} else {
			b.reduce(mine, theirs)
			b.copy(theirs, mine)
		}
		b.next()
	}
}

// gather undoes the halving: all places get the whole result in work.
func (h *halving) gather(b *builder, work Ref) {
	for i := len(h.ranges) - 1; i >= 0; i-- {
		mask := 1 << i
		peer := h.rank(h.place ^ mask)
		lo, hi := h.ranges[i][0], h.ranges[i][1]
		olo, ohi := half(lo, hi, h.place&mask == 0)
		b.send(peer, b.within(work, h.lo, h.hi))
		b.recv(peer, b.within(work, olo, ohi))
		b.next()
		h.lo, h.hi = lo, hi
	}
}
