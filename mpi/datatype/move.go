package datatype

import "unsafe"

// way is which way bytes are moved between memory and a packed message.
type way uint8

const (
	gather  way = iota // memory to message
	scatter            // message to memory
	convert            // message to memory, from the other byte order
)

// whole reports whether a dense node is one copy: it is not where its bytes have
// to be looked at.
func (w way) whole(n *node) bool {
	switch {
	case w == gather || n.op == opRun:
		return true
	case n.bools:
		return false
	}
	return w == scatter || n.word != 0
}

// copy moves bytes of a dense node for which whole is true.
func (w way) copy(n *node, packed, mem []byte) {
	if w == gather {
		copy(packed, mem)
		return
	}
	copy(mem, packed)
	if n.bools {
		fixBools(mem)
	}
	if w == convert && n.word > 1 {
		swapWords(mem, n.word)
	}
}

// fixBools makes every byte of b that is not 0 a 1. Go's compiler relies on a
// bool being one of the two, which what a program unpacks need not be.
func fixBools(b []byte) {
	for i, v := range b {
		if v > 1 {
			b[i] = 1
		}
	}
}

// node moves packed bytes of n, those that stand at from in n's packed form; the
// origin of n is mem[at].
func (w way) node(packed, mem []byte, at int, n *node, from int) {
	if n.dense && w.whole(n) {
		at += from
		w.copy(n, packed, mem[at:at+len(packed)])
		return
	}
	if n.op == opLoop {
		w.loop(packed, mem, at, n.stride, n.body, from)
		return
	}
	i := 0
	if from > 0 {
		i = n.find(from)
		from -= n.parts[i].pos
	}
	for ; len(packed) > 0; i++ {
		p := &n.parts[i]
		k := min(len(packed), p.n.size-from)
		if w == gather && p.n.dense { // the common case, without a call
			copy(packed[:k], mem[at+p.at+from:])
		} else {
			w.node(packed[:k], mem, at+p.at, p.n, from)
		}
		packed, from = packed[k:], 0
	}
}

// loop moves packed bytes of repetitions of body, stride apart, those that stand
// at from in the packed form of all of them.
func (w way) loop(packed, mem []byte, at, stride int, body *node, from int) {
	size := body.size
	if from > 0 {
		at += from / size * stride
		from %= size
	}
	if from > 0 { // the rest of one that an earlier fragment began
		k := min(len(packed), size-from)
		w.node(packed[:k], mem, at, body, from)
		packed, at = packed[k:], at+stride
	}
	if body.dense && w.whole(body) {
		whole := len(packed) / size
		w.blocks(packed[:whole*size], mem, at, stride, body)
		packed, at = packed[whole*size:], at+whole*stride
	}
	for len(packed) > 0 { // the last may be the beginning of one that a later fragment ends
		k := min(len(packed), size)
		w.node(packed[:k], mem, at, body, 0)
		packed, at = packed[k:], at+stride
	}
}

// blocks moves whole repetitions of a dense body.
func (w way) blocks(packed, mem []byte, at, stride int, body *node) {
	switch {
	case w == gather:
		gatherBlocks(packed, mem, at, stride, body.size)
	case w == scatter && !body.bools:
		scatterBlocks(packed, mem, at, stride, body.size)
	default:
		for ; len(packed) > 0; at += stride {
			w.copy(body, packed[:body.size], mem[at:at+body.size])
			packed = packed[body.size:]
		}
	}
}

// gatherBlocks packs blocks of size bytes that are stride apart in mem. Small
// sizes are worth their own loops: a call of memmove costs more than the copy.
func gatherBlocks(packed, mem []byte, at, stride, size int) {
	switch size {
	case 1:
		gatherFixed[[1]byte](packed, mem, at, stride)
	case 2:
		gatherFixed[[2]byte](packed, mem, at, stride)
	case 4:
		gatherFixed[[4]byte](packed, mem, at, stride)
	case 8:
		gatherFixed[[8]byte](packed, mem, at, stride)
	case 12:
		gatherFixed[[12]byte](packed, mem, at, stride)
	case 16:
		gatherFixed[[16]byte](packed, mem, at, stride)
	case 24:
		gatherFixed[[24]byte](packed, mem, at, stride)
	case 32:
		gatherFixed[[32]byte](packed, mem, at, stride)
	default:
		for len(packed) >= size {
			copy(packed[:size], mem[at:at+size])
			packed, at = packed[size:], at+stride
		}
	}
}

// scatterBlocks is the inverse of gatherBlocks.
func scatterBlocks(packed, mem []byte, at, stride, size int) {
	switch size {
	case 1:
		scatterFixed[[1]byte](packed, mem, at, stride)
	case 2:
		scatterFixed[[2]byte](packed, mem, at, stride)
	case 4:
		scatterFixed[[4]byte](packed, mem, at, stride)
	case 8:
		scatterFixed[[8]byte](packed, mem, at, stride)
	case 12:
		scatterFixed[[12]byte](packed, mem, at, stride)
	case 16:
		scatterFixed[[16]byte](packed, mem, at, stride)
	case 24:
		scatterFixed[[24]byte](packed, mem, at, stride)
	case 32:
		scatterFixed[[32]byte](packed, mem, at, stride)
	default:
		for len(packed) >= size {
			copy(mem[at:at+size], packed[:size])
			packed, at = packed[size:], at+stride
		}
	}
}

// gatherFixed copies blocks the size of A, an array of bytes, for which the
// compiler emits one or two moves. Four at a time share the checks: if the first
// and the last lie in mem, those between do.
func gatherFixed[A any](packed, mem []byte, at, stride int) {
	size := int(unsafe.Sizeof(*new(A)))
	for len(packed) >= 4*size {
		to, from, last := packed[:4*size], mem[at:at+size], mem[at+3*stride:at+3*stride+size]
		t, f := unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0])
		*(*A)(t) = *(*A)(f)
		*(*A)(unsafe.Add(t, size)) = *(*A)(unsafe.Add(f, stride))
		*(*A)(unsafe.Add(t, 2*size)) = *(*A)(unsafe.Add(f, 2*stride))
		*(*A)(unsafe.Add(t, 3*size)) = *(*A)(unsafe.Pointer(&last[0]))
		packed, at = packed[4*size:], at+4*stride
	}
	for len(packed) >= size {
		copy(packed[:size], mem[at:at+size])
		packed, at = packed[size:], at+stride
	}
}

func scatterFixed[A any](packed, mem []byte, at, stride int) {
	size := int(unsafe.Sizeof(*new(A)))
	for len(packed) >= 4*size {
		from, to, last := packed[:4*size], mem[at:at+size], mem[at+3*stride:at+3*stride+size]
		f, t := unsafe.Pointer(&from[0]), unsafe.Pointer(&to[0])
		*(*A)(t) = *(*A)(f)
		*(*A)(unsafe.Add(t, stride)) = *(*A)(unsafe.Add(f, size))
		*(*A)(unsafe.Add(t, 2*stride)) = *(*A)(unsafe.Add(f, 2*size))
		*(*A)(unsafe.Pointer(&last[0])) = *(*A)(unsafe.Add(f, 3*size))
		packed, at = packed[4*size:], at+4*stride
	}
	for len(packed) >= size {
		copy(mem[at:at+size], packed[:size])
		packed, at = packed[size:], at+stride
	}
}
