package datatype

import (
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is one element of a type map, or a marker if its kind is Invalid.
type entry struct {
	off  int
	kind Kind
}

// model is a type as MPI 4.1 section 5.1 writes it down: the whole sequence of
// (kind, displacement), and explicit bounds if it has any.
type model struct {
	entries []entry
	marks   []int // displacements of lb_marker and ub_marker, alternating
}

func (m model) bounds() (lb, ub int) {
	if len(m.marks) > 0 {
		lb, ub = m.marks[0], m.marks[1]
		for i := 0; i < len(m.marks); i += 2 {
			lb, ub = min(lb, m.marks[i]), max(ub, m.marks[i+1])
		}
		return lb, ub
	}
	if len(m.entries) == 0 {
		return 0, 0
	}
	align := 1
	lb, ub = m.trueBounds()
	for _, e := range m.entries {
		align = max(align, kinds[e.kind].align)
	}
	for (ub-lb)%align != 0 {
		ub++
	}
	return lb, ub
}

func (m model) trueBounds() (lo, hi int) {
	if len(m.entries) == 0 {
		return 0, 0
	}
	lo, hi = m.entries[0].off, m.entries[0].off
	for _, e := range m.entries {
		lo, hi = min(lo, e.off), max(hi, e.off+e.kind.Size())
	}
	return lo, hi
}

func (m model) extent() int { lb, ub := m.bounds(); return ub - lb }

// at is the model d bytes on; plus is the concatenation.
func (m model) at(d int) model {
	var out model
	for _, e := range m.entries {
		out.entries = append(out.entries, entry{e.off + d, e.kind})
	}
	for _, x := range m.marks {
		out.marks = append(out.marks, x+d)
	}
	return out
}

func (m model) plus(o model) model {
	return model{slices.Concat(m.entries, o.entries), slices.Concat(m.marks, o.marks)}
}

// times is n copies, stride bytes apart.
func (m model) times(n, stride int) model {
	var out model
	for i := range n {
		out = out.plus(m.at(i * stride))
	}
	return out
}

// blocks is what every indexed constructor makes.
func (m model) blocks(lens, bytes []int) model {
	var out model
	for i, d := range bytes {
		out = out.plus(m.times(lens[i], m.extent()).at(d))
	}
	return out
}

func (m model) resized(lb, extent int) model {
	return model{m.entries, []int{lb, lb + extent}}
}

// pack is the message of count items, and unpack its inverse.
func (m model) pack(src []byte, origin, count int) []byte {
	var out []byte
	for i := range count {
		for _, e := range m.entries {
			at := origin + i*m.extent() + e.off
			out = append(out, src[at:at+e.kind.Size()]...)
		}
	}
	return out
}

func (m model) unpack(dst, packed []byte, origin, count int) {
	for i := range count {
		for _, e := range m.entries {
			at := origin + i*m.extent() + e.off
			n := copy(dst[at:at+e.kind.Size()], packed)
			if e.kind == Bool && n > 0 {
				fixBools(dst[at : at+1])
			}
			packed = packed[n:]
		}
	}
}

// swap reverses the words of a packed message of count items.
func (m model) swap(packed []byte, count int) {
	for range count {
		for _, e := range m.entries {
			size, word := e.kind.Size(), kinds[e.kind].word
			for i := 0; i < size; i += word {
				slices.Reverse(packed[i : i+word])
			}
			packed = packed[size:]
		}
	}
}

// generator draws random types together with their models.
type generator struct {
	*rand.Rand
	t testing.TB
}

func (g generator) must(t *Type, err error) *Type {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	return t
}

func (g generator) kind() Kind { return Kind(1 + g.IntN(int(numKinds)-1)) }

// few draws a number up to n, and rarely 0.
func (g generator) few(n int) int {
	if g.IntN(16) == 0 {
		return 0
	}
	return 1 + g.IntN(n)
}

// ints draws n numbers from lo up to and without hi.
func (g generator) ints(n, lo, hi int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = lo + g.IntN(hi-lo)
	}
	return out
}

func scale(xs []int, by int) []int {
	out := make([]int, len(xs))
	for i, x := range xs {
		out[i] = x * by
	}
	return out
}

// draw makes a type of at most depth constructors over a kind.
func (g generator) draw(depth int) (*Type, model) {
	if depth == 0 || g.IntN(12) == 0 {
		k := g.kind()
		return Basic(k), model{entries: []entry{{0, k}}}
	}
	if g.IntN(4) == 0 {
		return g.drawStruct(depth)
	}
	t, m := g.draw(depth - 1)
	if len(m.entries) > 2000 {
		return t, m
	}
	ext := m.extent()
	switch g.IntN(11) {
	case 0:
		n := g.few(3)
		return g.must(Contiguous(n, t)), m.times(n, ext)
	case 1:
		n, b, s := g.few(4), g.few(3), g.IntN(9)-4
		return g.must(Vector(n, b, s, t)), m.times(b, ext).times(n, s*ext)
	case 2:
		n, b, s := g.few(4), g.few(3), g.IntN(80)-40
		return g.must(Hvector(n, b, s, t)), m.times(b, ext).times(n, s)
	case 3, 4, 5, 6:
		return g.drawIndexed(t, m)
	case 7:
		lb, e := g.IntN(40)-20, g.IntN(80)-20
		return g.must(Resized(t, lb, e)), m.resized(lb, e)
	case 8:
		return g.must(Dup(t)), m
	case 9:
		return g.drawDarray(t, m)
	}
	return g.drawSubarray(t, m)
}

func (g generator) drawIndexed(t *Type, m model) (*Type, model) {
	n, ext := g.few(5), m.extent()
	lens, displs, same := g.ints(n, 0, 4), g.ints(n, -6, 7), g.few(3)
	if g.IntN(2) == 0 {
		slices.Sort(displs) // gives neighbours that touch
	}
	sames := make([]int, n)
	for i := range sames {
		sames[i] = same
	}
	switch g.IntN(4) {
	case 0:
		return g.must(Indexed(lens, displs, t)), m.blocks(lens, scale(displs, ext))
	case 1:
		return g.must(Hindexed(lens, scale(displs, 3), t)), m.blocks(lens, scale(displs, 3))
	case 2:
		return g.must(IndexedBlock(same, displs, t)), m.blocks(sames, scale(displs, ext))
	}
	return g.must(HindexedBlock(same, scale(displs, 5), t)), m.blocks(sames, scale(displs, 5))
}

func (g generator) drawStruct(depth int) (*Type, model) {
	n := g.few(5)
	types, lens, displs := make([]*Type, n), g.ints(n, 0, 3), make([]int, n)
	var out model
	at := g.IntN(20) - 10
	for i := range n {
		t, m := g.draw(depth - 1)
		types[i], displs[i] = t, at
		out = out.plus(m.times(lens[i], m.extent()).at(at))
		if at += lens[i] * m.extent(); g.IntN(2) == 0 { // half of the fields touch
			at += g.IntN(30) - 10
		}
	}
	return g.must(Struct(lens, displs, types)), out
}

func (g generator) drawSubarray(t *Type, m model) (*Type, model) {
	n := 1 + g.IntN(3)
	sizes, subs, starts := g.ints(n, 1, 5), make([]int, n), make([]int, n)
	for i, s := range sizes {
		subs[i] = 1 + g.IntN(s)
		starts[i] = g.IntN(s - subs[i] + 1)
	}
	order := Order(g.IntN(2))
	sub := g.must(Subarray(sizes, subs, starts, order, t))
	return sub, m.elements(sizes, order, func(index []int) bool {
		for d, i := range index {
			if i < starts[d] || i >= starts[d]+subs[d] {
				return false
			}
		}
		return true
	})
}

func (g generator) drawDarray(t *Type, m model) (*Type, model) {
	n := 1 + g.IntN(3)
	sizes, dists, args, procs := g.ints(n, 1, 6), make([]Dist, n), make([]int, n), make([]int, n)
	all := 1
	for d, size := range sizes {
		dists[d], args[d], procs[d] = Dist(g.IntN(3)), DefaultArg, 1+g.IntN(3)
		switch {
		case dists[d] == None:
			procs[d] = 1
		case dists[d] == Cyclic && g.IntN(2) == 0:
			args[d] = 1 + g.IntN(3)
		case dists[d] == Block && g.IntN(2) == 0:
			args[d] = (size+procs[d]-1)/procs[d] + g.IntN(2)
		}
		all *= procs[d]
	}
	rank, order := g.IntN(all), Order(g.IntN(2))
	coords := make([]int, n)
	for d, r := n-1, rank; d >= 0; d-- {
		coords[d], r = r%procs[d], r/procs[d]
	}
	arr := g.must(Darray(all, rank, sizes, dists, args, procs, order, t))
	return arr, m.elements(sizes, order, func(index []int) bool {
		for d, i := range index {
			b := args[d]
			switch {
			case dists[d] == None:
				continue
			case b == DefaultArg && dists[d] == Block:
				b = (sizes[d] + procs[d] - 1) / procs[d]
			case b == DefaultArg:
				b = 1
			}
			if i/b%procs[d] != coords[d] {
				return false
			}
		}
		return true
	})
}

// elements takes those of an array of items that the index passes, in memory
// order, within the bounds of the whole array.
func (m model) elements(sizes []int, order Order, in func(index []int) bool) model {
	all := 1
	for _, s := range sizes {
		all *= s
	}
	var out model
	for i := range all {
		index := make([]int, len(sizes))
		rest := i
		for _, d := range order.fastest(len(sizes)) {
			index[d], rest = rest%sizes[d], rest/sizes[d]
		}
		if in(index) {
			out = out.plus(m.at(i * m.extent()))
		}
	}
	return out.resized(0, all*m.extent())
}
