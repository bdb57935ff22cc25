package mpi

// Collective operations that move data.

// Gather puts send of all ranks into recv at the root, by rank. In place at the root.
func Gather[T Scalar](c *Comm, send, recv []T, root int) error {
	return c.do("Gather", func(op string) (*run, error) { return c.gather(op, vecOf(send), vecOf(recv), root) })
}

// Igather begins a Gather.
func Igather[T Scalar](c *Comm, send, recv []T, root int) (Request, error) {
	return c.start("Igather", func(op string) (*run, error) { return c.gather(op, vecOf(send), vecOf(recv), root) })
}

// GatherInit sets up a Gather.
func GatherInit[T Scalar](c *Comm, send, recv []T, root int) (*Persistent, error) {
	return c.set("GatherInit", func(op string) (*run, error) { return c.gather(op, vecOf(send), vecOf(recv), root) })
}

// Gatherv is Gather of different amounts: l says where each rank's block goes. Only
// the root's recv and l are used.
func Gatherv[T Scalar](c *Comm, send, recv []T, l Layout, root int) error {
	return c.do("Gatherv", func(op string) (*run, error) { return c.gatherv(op, vecOf(send), vecOf(recv), l, root) })
}

// Igatherv begins a Gatherv.
func Igatherv[T Scalar](c *Comm, send, recv []T, l Layout, root int) (Request, error) {
	return c.start("Igatherv", func(op string) (*run, error) { return c.gatherv(op, vecOf(send), vecOf(recv), l, root) })
}

// GathervInit sets up a Gatherv.
func GathervInit[T Scalar](c *Comm, send, recv []T, l Layout, root int) (*Persistent, error) {
	return c.set("GathervInit", func(op string) (*run, error) { return c.gatherv(op, vecOf(send), vecOf(recv), l, root) })
}

// Scatter gives each rank its block of the root's send. With a nil recv the root
// keeps its own block where it is.
func Scatter[T Scalar](c *Comm, send, recv []T, root int) error {
	return c.do("Scatter", func(op string) (*run, error) { return c.scatter(op, vecOf(send), vecOf(recv), root) })
}

// Iscatter begins a Scatter.
func Iscatter[T Scalar](c *Comm, send, recv []T, root int) (Request, error) {
	return c.start("Iscatter", func(op string) (*run, error) { return c.scatter(op, vecOf(send), vecOf(recv), root) })
}

// ScatterInit sets up a Scatter.
func ScatterInit[T Scalar](c *Comm, send, recv []T, root int) (*Persistent, error) {
	return c.set("ScatterInit", func(op string) (*run, error) { return c.scatter(op, vecOf(send), vecOf(recv), root) })
}

// Scatterv is Scatter of different amounts: l says where each rank's block is. Only
// the root's send and l are used.
func Scatterv[T Scalar](c *Comm, send []T, l Layout, recv []T, root int) error {
	return c.do("Scatterv", func(op string) (*run, error) { return c.scatterv(op, vecOf(send), l, vecOf(recv), root) })
}

// Iscatterv begins a Scatterv.
func Iscatterv[T Scalar](c *Comm, send []T, l Layout, recv []T, root int) (Request, error) {
	return c.start("Iscatterv", func(op string) (*run, error) { return c.scatterv(op, vecOf(send), l, vecOf(recv), root) })
}

// ScattervInit sets up a Scatterv.
func ScattervInit[T Scalar](c *Comm, send []T, l Layout, recv []T, root int) (*Persistent, error) {
	return c.set("ScattervInit", func(op string) (*run, error) { return c.scatterv(op, vecOf(send), l, vecOf(recv), root) })
}

// Allgather puts send of all ranks into recv of all ranks, by rank.
func Allgather[T Scalar](c *Comm, send, recv []T) error {
	return c.do("Allgather", func(op string) (*run, error) { return c.allgather(op, vecOf(send), vecOf(recv)) })
}

// Iallgather begins an Allgather.
func Iallgather[T Scalar](c *Comm, send, recv []T) (Request, error) {
	return c.start("Iallgather", func(op string) (*run, error) { return c.allgather(op, vecOf(send), vecOf(recv)) })
}

// AllgatherInit sets up an Allgather.
func AllgatherInit[T Scalar](c *Comm, send, recv []T) (*Persistent, error) {
	return c.set("AllgatherInit", func(op string) (*run, error) { return c.allgather(op, vecOf(send), vecOf(recv)) })
}

// Allgatherv is Allgather of different amounts: l, the same at all ranks but for its
// displacements, says where each rank's block goes.
func Allgatherv[T Scalar](c *Comm, send, recv []T, l Layout) error {
	return c.do("Allgatherv", func(op string) (*run, error) { return c.allgatherv(op, vecOf(send), vecOf(recv), l) })
}

// Iallgatherv begins an Allgatherv.
func Iallgatherv[T Scalar](c *Comm, send, recv []T, l Layout) (Request, error) {
	return c.start("Iallgatherv", func(op string) (*run, error) { return c.allgatherv(op, vecOf(send), vecOf(recv), l) })
}

// AllgathervInit sets up an Allgatherv.
func AllgathervInit[T Scalar](c *Comm, send, recv []T, l Layout) (*Persistent, error) {
	return c.set("AllgathervInit", func(op string) (*run, error) { return c.allgatherv(op, vecOf(send), vecOf(recv), l) })
}

// Alltoall gives block i of send to rank i, whose recv gets it as the block of this
// rank.
func Alltoall[T Scalar](c *Comm, send, recv []T) error {
	return c.do("Alltoall", func(op string) (*run, error) { return c.alltoall(op, vecOf(send), vecOf(recv)) })
}

// Ialltoall begins an Alltoall.
func Ialltoall[T Scalar](c *Comm, send, recv []T) (Request, error) {
	return c.start("Ialltoall", func(op string) (*run, error) { return c.alltoall(op, vecOf(send), vecOf(recv)) })
}

// AlltoallInit sets up an Alltoall.
func AlltoallInit[T Scalar](c *Comm, send, recv []T) (*Persistent, error) {
	return c.set("AlltoallInit", func(op string) (*run, error) { return c.alltoall(op, vecOf(send), vecOf(recv)) })
}

// Alltoallv is Alltoall of different amounts: sl and rl say where the blocks of ranks
// are in send and recv.
func Alltoallv[T Scalar](c *Comm, send []T, sl Layout, recv []T, rl Layout) error {
	return c.do("Alltoallv", func(op string) (*run, error) { return c.alltoallv(op, vecOf(send), sl, vecOf(recv), rl) })
}

// Ialltoallv begins an Alltoallv.
func Ialltoallv[T Scalar](c *Comm, send []T, sl Layout, recv []T, rl Layout) (Request, error) {
	return c.start("Ialltoallv", func(op string) (*run, error) { return c.alltoallv(op, vecOf(send), sl, vecOf(recv), rl) })
}

// AlltoallvInit sets up an Alltoallv.
func AlltoallvInit[T Scalar](c *Comm, send []T, sl Layout, recv []T, rl Layout) (*Persistent, error) {
	return c.set("AlltoallvInit", func(op string) (*run, error) { return c.alltoallv(op, vecOf(send), sl, vecOf(recv), rl) })
}

// Alltoallw is Alltoall of buffers of any type, one for each rank. A nil send means
// that recv holds what goes out as well.
func Alltoallw(c *Comm, send, recv []Buf) error {
	return c.do("Alltoallw", func(op string) (*run, error) { return c.alltoallw(op, send, recv) })
}

// Ialltoallw begins an Alltoallw.
func Ialltoallw(c *Comm, send, recv []Buf) (Request, error) {
	return c.start("Ialltoallw", func(op string) (*run, error) { return c.alltoallw(op, send, recv) })
}

// AlltoallwInit sets up an Alltoallw.
func AlltoallwInit(c *Comm, send, recv []Buf) (*Persistent, error) {
	return c.set("AlltoallwInit", func(op string) (*run, error) { return c.alltoallw(op, send, recv) })
}

// NeighborAllgather gives send to all neighbours of the topology, and puts what comes
// from them into recv, in their order (MPI 4.1 §8.6). Cartesian neighbours come in
// the order of dimensions, the negative direction first.
func NeighborAllgather[T Scalar](c *Comm, send, recv []T) error {
	return c.do("NeighborAllgather", func(op string) (*run, error) { return c.neighborAllgather(op, vecOf(send), vecOf(recv)) })
}

// IneighborAllgather begins a NeighborAllgather.
func IneighborAllgather[T Scalar](c *Comm, send, recv []T) (Request, error) {
	return c.start("IneighborAllgather", func(op string) (*run, error) { return c.neighborAllgather(op, vecOf(send), vecOf(recv)) })
}

// NeighborAllgatherInit sets up a NeighborAllgather.
func NeighborAllgatherInit[T Scalar](c *Comm, send, recv []T) (*Persistent, error) {
	return c.set("NeighborAllgatherInit", func(op string) (*run, error) { return c.neighborAllgather(op, vecOf(send), vecOf(recv)) })
}

// NeighborAllgatherv is NeighborAllgather of different amounts: l says where what comes
// from each neighbour goes.
func NeighborAllgatherv[T Scalar](c *Comm, send, recv []T, l Layout) error {
	return c.do("NeighborAllgatherv", func(op string) (*run, error) { return c.neighborAllgatherv(op, vecOf(send), vecOf(recv), l) })
}

// IneighborAllgatherv begins a NeighborAllgatherv.
func IneighborAllgatherv[T Scalar](c *Comm, send, recv []T, l Layout) (Request, error) {
	return c.start("IneighborAllgatherv", func(op string) (*run, error) { return c.neighborAllgatherv(op, vecOf(send), vecOf(recv), l) })
}

// NeighborAllgathervInit sets up a NeighborAllgatherv.
func NeighborAllgathervInit[T Scalar](c *Comm, send, recv []T, l Layout) (*Persistent, error) {
	return c.set("NeighborAllgathervInit", func(op string) (*run, error) { return c.neighborAllgatherv(op, vecOf(send), vecOf(recv), l) })
}

// NeighborAlltoall gives block i of send to neighbour i.
func NeighborAlltoall[T Scalar](c *Comm, send, recv []T) error {
	return c.do("NeighborAlltoall", func(op string) (*run, error) { return c.neighborAlltoall(op, vecOf(send), vecOf(recv)) })
}

// IneighborAlltoall begins a NeighborAlltoall.
func IneighborAlltoall[T Scalar](c *Comm, send, recv []T) (Request, error) {
	return c.start("IneighborAlltoall", func(op string) (*run, error) { return c.neighborAlltoall(op, vecOf(send), vecOf(recv)) })
}

// NeighborAlltoallInit sets up a NeighborAlltoall.
func NeighborAlltoallInit[T Scalar](c *Comm, send, recv []T) (*Persistent, error) {
	return c.set("NeighborAlltoallInit", func(op string) (*run, error) { return c.neighborAlltoall(op, vecOf(send), vecOf(recv)) })
}

// NeighborAlltoallv is NeighborAlltoall of different amounts.
func NeighborAlltoallv[T Scalar](c *Comm, send []T, sl Layout, recv []T, rl Layout) error {
	return c.do("NeighborAlltoallv", func(op string) (*run, error) { return c.neighborAlltoallv(op, vecOf(send), sl, vecOf(recv), rl) })
}

// IneighborAlltoallv begins a NeighborAlltoallv.
func IneighborAlltoallv[T Scalar](c *Comm, send []T, sl Layout, recv []T, rl Layout) (Request, error) {
	return c.start("IneighborAlltoallv", func(op string) (*run, error) { return c.neighborAlltoallv(op, vecOf(send), sl, vecOf(recv), rl) })
}

// NeighborAlltoallvInit sets up a NeighborAlltoallv.
func NeighborAlltoallvInit[T Scalar](c *Comm, send []T, sl Layout, recv []T, rl Layout) (*Persistent, error) {
	return c.set("NeighborAlltoallvInit", func(op string) (*run, error) { return c.neighborAlltoallv(op, vecOf(send), sl, vecOf(recv), rl) })
}

// NeighborAlltoallw is NeighborAlltoall of buffers of any type, one for each neighbour.
func NeighborAlltoallw(c *Comm, send, recv []Buf) error {
	return c.do("NeighborAlltoallw", func(op string) (*run, error) { return c.neighborAlltoallw(op, send, recv) })
}

// IneighborAlltoallw begins a NeighborAlltoallw.
func IneighborAlltoallw(c *Comm, send, recv []Buf) (Request, error) {
	return c.start("IneighborAlltoallw", func(op string) (*run, error) { return c.neighborAlltoallw(op, send, recv) })
}

// NeighborAlltoallwInit sets up a NeighborAlltoallw.
func NeighborAlltoallwInit(c *Comm, send, recv []Buf) (*Persistent, error) {
	return c.set("NeighborAlltoallwInit", func(op string) (*run, error) { return c.neighborAlltoallw(op, send, recv) })
}
