package mpi

import "github.com/meshmpi/meshmpi/mpi/coll"

// Collective operations that combine.

// Barrier returns when all ranks have called it.
func Barrier(c *Comm) error { return c.do("Barrier", c.barrier) }

// Ibarrier begins a Barrier.
func Ibarrier(c *Comm) (Request, error) { return c.start("Ibarrier", c.barrier) }

// BarrierInit sets up a Barrier.
func BarrierInit(c *Comm) (*Persistent, error) { return c.set("BarrierInit", c.barrier) }

// Bcast gives all ranks what buf holds at the root.
func Bcast[T Scalar](c *Comm, buf []T, root int) error {
	return c.do("Bcast", func(op string) (*run, error) { return c.bcast(op, vecOf(buf), root) })
}

// Ibcast begins a Bcast.
func Ibcast[T Scalar](c *Comm, buf []T, root int) (Request, error) {
	return c.start("Ibcast", func(op string) (*run, error) { return c.bcast(op, vecOf(buf), root) })
}

// BcastInit sets up a Bcast.
func BcastInit[T Scalar](c *Comm, buf []T, root int) (*Persistent, error) {
	return c.set("BcastInit", func(op string) (*run, error) { return c.bcast(op, vecOf(buf), root) })
}

// Reduce combines send of all ranks into recv at the root, element by element, in
// the order of ranks. Only the root's recv is used. In place at the root.
func Reduce[T Scalar](c *Comm, send, recv []T, o Op, root int) error {
	return c.do("Reduce", func(op string) (*run, error) { return c.reduce(op, vecOf(send), vecOf(recv), o, root) })
}

// Ireduce begins a Reduce.
func Ireduce[T Scalar](c *Comm, send, recv []T, o Op, root int) (Request, error) {
	return c.start("Ireduce", func(op string) (*run, error) { return c.reduce(op, vecOf(send), vecOf(recv), o, root) })
}

// ReduceInit sets up a Reduce.
func ReduceInit[T Scalar](c *Comm, send, recv []T, o Op, root int) (*Persistent, error) {
	return c.set("ReduceInit", func(op string) (*run, error) { return c.reduce(op, vecOf(send), vecOf(recv), o, root) })
}

// Allreduce combines send of all ranks into recv of all ranks.
func Allreduce[T Scalar](c *Comm, send, recv []T, o Op) error {
	return c.do("Allreduce", func(op string) (*run, error) { return c.allreduce(op, vecOf(send), vecOf(recv), o) })
}

// Iallreduce begins an Allreduce.
func Iallreduce[T Scalar](c *Comm, send, recv []T, o Op) (Request, error) {
	return c.start("Iallreduce", func(op string) (*run, error) { return c.allreduce(op, vecOf(send), vecOf(recv), o) })
}

// AllreduceInit sets up an Allreduce.
func AllreduceInit[T Scalar](c *Comm, send, recv []T, o Op) (*Persistent, error) {
	return c.set("AllreduceInit", func(op string) (*run, error) { return c.allreduce(op, vecOf(send), vecOf(recv), o) })
}

// ReduceScatterBlock combines send of all ranks, which holds a block for each, and
// gives each rank its block. In place, recv is as long as send would be, and the
// result is at its beginning.
func ReduceScatterBlock[T Scalar](c *Comm, send, recv []T, o Op) error {
	return c.do("ReduceScatterBlock", func(op string) (*run, error) { return c.reduceScatterBlock(op, vecOf(send), vecOf(recv), o) })
}

// IreduceScatterBlock begins a ReduceScatterBlock.
func IreduceScatterBlock[T Scalar](c *Comm, send, recv []T, o Op) (Request, error) {
	return c.start("IreduceScatterBlock", func(op string) (*run, error) { return c.reduceScatterBlock(op, vecOf(send), vecOf(recv), o) })
}

// ReduceScatterBlockInit sets up a ReduceScatterBlock.
func ReduceScatterBlockInit[T Scalar](c *Comm, send, recv []T, o Op) (*Persistent, error) {
	return c.set("ReduceScatterBlockInit", func(op string) (*run, error) { return c.reduceScatterBlock(op, vecOf(send), vecOf(recv), o) })
}

// ReduceScatter is ReduceScatterBlock with blocks of counts[rank] elements.
func ReduceScatter[T Scalar](c *Comm, send, recv []T, counts []int, o Op) error {
	return c.do("ReduceScatter", func(op string) (*run, error) { return c.reduceScatter(op, vecOf(send), vecOf(recv), counts, o) })
}

// IreduceScatter begins a ReduceScatter.
func IreduceScatter[T Scalar](c *Comm, send, recv []T, counts []int, o Op) (Request, error) {
	return c.start("IreduceScatter", func(op string) (*run, error) { return c.reduceScatter(op, vecOf(send), vecOf(recv), counts, o) })
}

// ReduceScatterInit sets up a ReduceScatter.
func ReduceScatterInit[T Scalar](c *Comm, send, recv []T, counts []int, o Op) (*Persistent, error) {
	return c.set("ReduceScatterInit", func(op string) (*run, error) { return c.reduceScatter(op, vecOf(send), vecOf(recv), counts, o) })
}

// Scan combines send of the ranks up to and including this one into recv.
func Scan[T Scalar](c *Comm, send, recv []T, o Op) error {
	return c.do("Scan", func(op string) (*run, error) { return c.scan(op, coll.OpScan, vecOf(send), vecOf(recv), o) })
}

// Iscan begins a Scan.
func Iscan[T Scalar](c *Comm, send, recv []T, o Op) (Request, error) {
	return c.start("Iscan", func(op string) (*run, error) { return c.scan(op, coll.OpScan, vecOf(send), vecOf(recv), o) })
}

// ScanInit sets up a Scan.
func ScanInit[T Scalar](c *Comm, send, recv []T, o Op) (*Persistent, error) {
	return c.set("ScanInit", func(op string) (*run, error) { return c.scan(op, coll.OpScan, vecOf(send), vecOf(recv), o) })
}

// Exscan combines send of the ranks below this one into recv, which rank 0 keeps as
// it was: there it may be anything, unless the operation is in place.
func Exscan[T Scalar](c *Comm, send, recv []T, o Op) error {
	return c.do("Exscan", func(op string) (*run, error) { return c.scan(op, coll.OpExscan, vecOf(send), vecOf(recv), o) })
}

// Iexscan begins an Exscan.
func Iexscan[T Scalar](c *Comm, send, recv []T, o Op) (Request, error) {
	return c.start("Iexscan", func(op string) (*run, error) { return c.scan(op, coll.OpExscan, vecOf(send), vecOf(recv), o) })
}

// ExscanInit sets up an Exscan.
func ExscanInit[T Scalar](c *Comm, send, recv []T, o Op) (*Persistent, error) {
	return c.set("ExscanInit", func(op string) (*run, error) { return c.scan(op, coll.OpExscan, vecOf(send), vecOf(recv), o) })
}
