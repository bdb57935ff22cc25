package datatype

import "iter"

// Run is Count values of one kind, one after the other from displacement Off on.
type Run struct {
	Off   int // bytes from the item's origin
	Count int
	Kind  Kind
}

// Runs yields the layout of one item in packed order as the fewest runs that
// the type's structure gives: neighbours that touch are one. Vectors are not
// expanded in memory, only while they are walked.
func (t *Type) Runs() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		if t.lay.n != nil {
			t.lay.n.runs(t.lay.at, yield)
		}
	}
}

func (n *node) runs(at int, yield func(Run) bool) bool {
	switch n.op {
	case opRun:
		return yield(Run{at, n.count, n.kind})
	case opLoop:
		for i := range n.count {
			if !n.body.runs(at+i*n.stride, yield) {
				return false
			}
		}
	case opList:
		for i := range n.parts {
			if !n.parts[i].n.runs(at+n.parts[i].at, yield) {
				return false
			}
		}
	}
	return true
}

// Blocks yields the memory of count items in packed order as blocks that need
// one copy each: displacement from the items' origin, and bytes. Blocks that
// touch are joined. A count of 0 or less has none.
func (t *Type) Blocks(count int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		off, size, stopped := 0, 0, false
		block := func(at, n int) bool {
			if size > 0 && off+size == at {
				size += n
				return true
			}
			if size > 0 && !yield(off, size) {
				stopped = true
				return false
			}
			off, size = at, n
			return true
		}
		if at, ok := t.Contiguous(count); ok && count > 0 && t.lay.n != nil {
			yield(at, count*t.lay.n.size)
			return
		}
		for i := 0; i < count && t.lay.n != nil; i++ {
			if !t.lay.n.blocks(t.lay.at+i*t.Extent(), block) {
				return
			}
		}
		if size > 0 && !stopped {
			yield(off, size)
		}
	}
}

func (n *node) blocks(at int, yield func(int, int) bool) bool {
	if n.dense {
		return yield(at, n.size)
	}
	if n.op == opLoop {
		for i := range n.count {
			if !n.body.blocks(at+i*n.stride, yield) {
				return false
			}
		}
		return true
	}
	for i := range n.parts {
		if !n.parts[i].n.blocks(at+n.parts[i].at, yield) {
			return false
		}
	}
	return true
}
