package mpi

import "github.com/meshmpi/meshmpi/mpi/coll"

// Collective operations on Bufs.

// BcastBuf is Bcast of a Buf.
func (c *Comm) BcastBuf(b Buf, root int) error {
	return c.do("BcastBuf", func(op string) (*run, error) { return c.bcastBuf(op, b, root) })
}

// IbcastBuf begins a BcastBuf.
func (c *Comm) IbcastBuf(b Buf, root int) (Request, error) {
	return c.start("IbcastBuf", func(op string) (*run, error) { return c.bcastBuf(op, b, root) })
}

// BcastBufInit sets up a BcastBuf.
func (c *Comm) BcastBufInit(b Buf, root int) (*Persistent, error) {
	return c.set("BcastBufInit", func(op string) (*run, error) { return c.bcastBuf(op, b, root) })
}

// ReduceBuf is Reduce of Bufs made by BufOf, such as those of Loc and of structs
// that a NewOp is for. A zero send means in place.
func (c *Comm) ReduceBuf(send, recv Buf, o Op, root int) error {
	return c.do("ReduceBuf", func(op string) (*run, error) { return c.reduceBuf(op, send, recv, o, root) })
}

// IreduceBuf begins a ReduceBuf.
func (c *Comm) IreduceBuf(send, recv Buf, o Op, root int) (Request, error) {
	return c.start("IreduceBuf", func(op string) (*run, error) { return c.reduceBuf(op, send, recv, o, root) })
}

// ReduceBufInit sets up a ReduceBuf.
func (c *Comm) ReduceBufInit(send, recv Buf, o Op, root int) (*Persistent, error) {
	return c.set("ReduceBufInit", func(op string) (*run, error) { return c.reduceBuf(op, send, recv, o, root) })
}

// AllreduceBuf is Allreduce, as ReduceBuf is Reduce.
func (c *Comm) AllreduceBuf(send, recv Buf, o Op) error {
	return c.do("AllreduceBuf", func(op string) (*run, error) { return c.allreduceBuf(op, send, recv, o) })
}

// IallreduceBuf begins an AllreduceBuf.
func (c *Comm) IallreduceBuf(send, recv Buf, o Op) (Request, error) {
	return c.start("IallreduceBuf", func(op string) (*run, error) { return c.allreduceBuf(op, send, recv, o) })
}

// AllreduceBufInit sets up an AllreduceBuf.
func (c *Comm) AllreduceBufInit(send, recv Buf, o Op) (*Persistent, error) {
	return c.set("AllreduceBufInit", func(op string) (*run, error) { return c.allreduceBuf(op, send, recv, o) })
}

// ScanBuf is Scan, as ReduceBuf is Reduce.
func (c *Comm) ScanBuf(send, recv Buf, o Op) error {
	return c.do("ScanBuf", func(op string) (*run, error) { return c.scanBuf(op, coll.OpScan, send, recv, o) })
}

// IscanBuf begins a ScanBuf.
func (c *Comm) IscanBuf(send, recv Buf, o Op) (Request, error) {
	return c.start("IscanBuf", func(op string) (*run, error) { return c.scanBuf(op, coll.OpScan, send, recv, o) })
}

// ScanBufInit sets up a ScanBuf.
func (c *Comm) ScanBufInit(send, recv Buf, o Op) (*Persistent, error) {
	return c.set("ScanBufInit", func(op string) (*run, error) { return c.scanBuf(op, coll.OpScan, send, recv, o) })
}

// ExscanBuf is Exscan, as ReduceBuf is Reduce.
func (c *Comm) ExscanBuf(send, recv Buf, o Op) error {
	return c.do("ExscanBuf", func(op string) (*run, error) { return c.scanBuf(op, coll.OpExscan, send, recv, o) })
}

// IexscanBuf begins an ExscanBuf.
func (c *Comm) IexscanBuf(send, recv Buf, o Op) (Request, error) {
	return c.start("IexscanBuf", func(op string) (*run, error) { return c.scanBuf(op, coll.OpExscan, send, recv, o) })
}

// ExscanBufInit sets up an ExscanBuf.
func (c *Comm) ExscanBufInit(send, recv Buf, o Op) (*Persistent, error) {
	return c.set("ExscanBufInit", func(op string) (*run, error) { return c.scanBuf(op, coll.OpExscan, send, recv, o) })
}

// ReduceScatterBlockBuf is ReduceScatterBlock, as ReduceBuf is Reduce.
func (c *Comm) ReduceScatterBlockBuf(send, recv Buf, o Op) error {
	return c.do("ReduceScatterBlockBuf", func(op string) (*run, error) { return c.reduceScatterBlockBuf(op, send, recv, o) })
}

// IreduceScatterBlockBuf begins a ReduceScatterBlockBuf.
func (c *Comm) IreduceScatterBlockBuf(send, recv Buf, o Op) (Request, error) {
	return c.start("IreduceScatterBlockBuf", func(op string) (*run, error) { return c.reduceScatterBlockBuf(op, send, recv, o) })
}

// ReduceScatterBlockBufInit sets up a ReduceScatterBlockBuf.
func (c *Comm) ReduceScatterBlockBufInit(send, recv Buf, o Op) (*Persistent, error) {
	return c.set("ReduceScatterBlockBufInit", func(op string) (*run, error) { return c.reduceScatterBlockBuf(op, send, recv, o) })
}

// GatherBuf is Gather of Bufs; all have the same signature, times the number of ranks
// at the root. A zero send means in place.
func (c *Comm) GatherBuf(send, recv Buf, root int) error {
	return c.do("GatherBuf", func(op string) (*run, error) { return c.gatherBuf(op, send, recv, root) })
}

// IgatherBuf begins a GatherBuf.
func (c *Comm) IgatherBuf(send, recv Buf, root int) (Request, error) {
	return c.start("IgatherBuf", func(op string) (*run, error) { return c.gatherBuf(op, send, recv, root) })
}

// GatherBufInit sets up a GatherBuf.
func (c *Comm) GatherBufInit(send, recv Buf, root int) (*Persistent, error) {
	return c.set("GatherBufInit", func(op string) (*run, error) { return c.gatherBuf(op, send, recv, root) })
}

// ScatterBuf is Scatter of Bufs. A zero recv means in place.
func (c *Comm) ScatterBuf(send, recv Buf, root int) error {
	return c.do("ScatterBuf", func(op string) (*run, error) { return c.scatterBuf(op, send, recv, root) })
}

// IscatterBuf begins a ScatterBuf.
func (c *Comm) IscatterBuf(send, recv Buf, root int) (Request, error) {
	return c.start("IscatterBuf", func(op string) (*run, error) { return c.scatterBuf(op, send, recv, root) })
}

// ScatterBufInit sets up a ScatterBuf.
func (c *Comm) ScatterBufInit(send, recv Buf, root int) (*Persistent, error) {
	return c.set("ScatterBufInit", func(op string) (*run, error) { return c.scatterBuf(op, send, recv, root) })
}

// AllgatherBuf is Allgather of Bufs. A zero send means in place.
func (c *Comm) AllgatherBuf(send, recv Buf) error {
	return c.do("AllgatherBuf", func(op string) (*run, error) { return c.allgatherBuf(op, send, recv) })
}

// IallgatherBuf begins an AllgatherBuf.
func (c *Comm) IallgatherBuf(send, recv Buf) (Request, error) {
	return c.start("IallgatherBuf", func(op string) (*run, error) { return c.allgatherBuf(op, send, recv) })
}

// AllgatherBufInit sets up an AllgatherBuf.
func (c *Comm) AllgatherBufInit(send, recv Buf) (*Persistent, error) {
	return c.set("AllgatherBufInit", func(op string) (*run, error) { return c.allgatherBuf(op, send, recv) })
}

// AlltoallBuf is Alltoall of Bufs. A zero send means in place.
func (c *Comm) AlltoallBuf(send, recv Buf) error {
	return c.do("AlltoallBuf", func(op string) (*run, error) { return c.alltoallBuf(op, send, recv) })
}

// IalltoallBuf begins an AlltoallBuf.
func (c *Comm) IalltoallBuf(send, recv Buf) (Request, error) {
	return c.start("IalltoallBuf", func(op string) (*run, error) { return c.alltoallBuf(op, send, recv) })
}

// AlltoallBufInit sets up an AlltoallBuf.
func (c *Comm) AlltoallBufInit(send, recv Buf) (*Persistent, error) {
	return c.set("AlltoallBufInit", func(op string) (*run, error) { return c.alltoallBuf(op, send, recv) })
}
