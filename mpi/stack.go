package mpi

import "unsafe"

// The buffer of a blocking call is often a local variable. If the compiler saw
// it go into the engine, where other goroutines fill it, it would move every
// such variable to the heap: an allocation per message. It is hidden from the
// compiler instead, and then looked at: memory on a stack, which may move, is
// never given away but copied through the heap.

// noescape returns b in a way that escape analysis does not follow.
func noescape(b []byte) []byte {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), len(b))
}

// stable returns memory for b's contents that does not move: b itself unless it
// is on the goroutine's stack. If fill is set, a copy holds what b does.
func stable(b []byte, fill bool) (data []byte, copied bool) {
	if !onStack(unsafe.Pointer(unsafe.SliceData(b))) {
		return b, false
	}
	data = make([]byte, len(b))
	if fill {
		copy(data, b)
	}
	return data, true
}
