//go:build amd64 || arm64

package mpi

import "unsafe"

// stackBounds returns where the stack of the calling goroutine is: the first
// two words of the runtime's g.
func stackBounds() (lo, hi uintptr)

// onStack reports whether p points into the caller's stack.
func onStack(p unsafe.Pointer) bool {
	lo, hi := stackBounds()
	return uintptr(p) >= lo && uintptr(p) < hi
}
