package datatype

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unsafe"
)

// hostBig says that this platform stores the big end first.
var hostBig = func() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 0
}()

// Swap converts a packed message of items of t, in place, from the other byte
// order to this one or back. It takes as many items as b holds and a part of one
// at the end, so a message shorter than the receiver expected needs no other
// treatment; a word that the end cuts is left alone. A Type thereby is what the
// engine calls a Swapper.
func (t *Type) Swap(b []byte) {
	if t.lay.n != nil {
		swapItems(b, t.lay.n)
	}
}

// swapItems swaps packed repetitions of n.
func swapItems(b []byte, n *node) {
	if n.word != 0 {
		swapWords(b, n.word)
		return
	}
	for len(b) > 0 {
		k := min(len(b), n.size)
		swapItem(b[:k], n)
		b = b[k:]
	}
}

// swapItem swaps what stands at the beginning of n's packed form.
func swapItem(b []byte, n *node) {
	switch {
	case n.word != 0:
		swapWords(b, n.word)
	case n.op == opLoop:
		swapItems(b, n.body)
	case n.op == opList:
		for i := range n.parts {
			p := n.parts[i].n
			k := min(len(b), p.size)
			swapItem(b[:k], p)
			if b = b[k:]; len(b) == 0 {
				return
			}
		}
	}
}

// swapWords reverses the bytes of every whole word of b.
func swapWords(b []byte, word int) {
	switch word {
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.NativeEndian.PutUint64(b, bits.ReverseBytes64(binary.NativeEndian.Uint64(b)))
		}
	case 4:
		for ; len(b) >= 8; b = b[8:] { // two at a time
			v := bits.ReverseBytes64(binary.NativeEndian.Uint64(b))
			binary.NativeEndian.PutUint64(b, bits.RotateLeft64(v, 32))
		}
		if len(b) >= 4 {
			binary.NativeEndian.PutUint32(b, bits.ReverseBytes32(binary.NativeEndian.Uint32(b)))
		}
	case 2:
		const low = 0x00ff00ff00ff00ff
		for ; len(b) >= 8; b = b[8:] { // four at a time
			v := binary.NativeEndian.Uint64(b)
			binary.NativeEndian.PutUint64(b, v>>8&low|v&low<<8)
		}
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	}
}

// ExternalSize is the bytes of count items in external32 (MPI 4.1 section
// 14.5.2). All kinds have their native sizes there: two's complement integers
// and IEEE 754 numbers, one byte for a bool.
func (t *Type) ExternalSize(count int) (int, error) { return t.PackSize(count) }

// PackExternal is Pack into external32, the portable form: no gaps, the big end
// first. Any MPI reads it.
func (t *Type) PackExternal(dst, src []byte, origin, count int) (int, error) {
	n, err := t.Pack(dst, src, origin, count)
	if !hostBig {
		t.Swap(dst[:n])
	}
	return n, err
}

// UnpackExternal is Unpack from external32. src is left as it is.
func (t *Type) UnpackExternal(dst, src []byte, origin, count int) (int, error) {
	n, err := t.ready("unpack external", dst, origin, count)
	if err != nil {
		return 0, err
	}
	if len(src) < n {
		return 0, fmt.Errorf("datatype: unpack external: %d bytes of %d: %w", len(src), n, ErrShort)
	}
	w := convert
	if hostBig {
		w = scatter
	}
	t.move(w, src[:n], dst, origin, 0)
	return n, nil
}
