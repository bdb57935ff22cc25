//go:build !linux

package mpi

import "runtime"

// processors returns those that this process may run on.
func processors() room { return room{runtime.NumCPU(), "all"} }
