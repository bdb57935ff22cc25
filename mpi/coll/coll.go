package coll

// The constructors below choose the algorithm by the number of ranks, the number
// of bytes and the topology. What they read of Args is said there.

// Barrier: nobody leaves before everybody has entered.
func Barrier(t *Topo, a Args) Schedule { return choose(OpBarrier, t, a) }

// Bcast: Recv of the root to Recv of all. Reads Count, Elem, Root.
func Bcast(t *Topo, a Args) Schedule { return choose(OpBcast, t, a) }

// Gather: Count elements of each to Recv of the root, by rank. Reads Count, Elem,
// Root, InPlace.
func Gather(t *Topo, a Args) Schedule { return choose(OpGather, t, a) }

// Gatherv is Gather of a number of each rank's own. Reads Elem, Root, InPlace; at
// the root Counts, Displs; elsewhere Count.
func Gatherv(t *Topo, a Args) Schedule { return choose(OpGatherv, t, a) }

// Scatter: blocks of Count elements in Send of the root to Recv of each, by rank.
// Reads Count, Elem, Root, InPlace.
func Scatter(t *Topo, a Args) Schedule { return choose(OpScatter, t, a) }

// Scatterv is Scatter of a number of each rank's own. Reads Elem, Root, InPlace;
// at the root Counts, Displs; elsewhere Count.
func Scatterv(t *Topo, a Args) Schedule { return choose(OpScatterv, t, a) }

// Allgather: Count elements of each to Recv of all, by rank. Reads Count, Elem,
// InPlace.
func Allgather(t *Topo, a Args) Schedule { return choose(OpAllgather, t, a) }

// Allgatherv is Allgather of a number of each rank's own. Reads Counts, the same
// at all ranks, Displs, Elem, InPlace.
func Allgatherv(t *Topo, a Args) Schedule { return choose(OpAllgatherv, t, a) }

// Alltoall: block i of Send to rank i, whose Recv has it as block of this rank.
// Reads Count, Elem, InPlace.
func Alltoall(t *Topo, a Args) Schedule { return choose(OpAlltoall, t, a) }

// Alltoallv is Alltoall with blocks of any size and place. Reads Counts, Displs,
// RecvCounts, RecvDispls, Elem; with InPlace the latter two and Elem.
func Alltoallv(t *Topo, a Args) Schedule { return choose(OpAlltoallv, t, a) }

// Alltoallw is Alltoallv with counts and displacements in bytes, for blocks whose
// types differ and that have been packed.
func Alltoallw(t *Topo, a Args) Schedule { return choose(OpAlltoallw, t, a) }

// Reduce combines the inputs of all into Recv of the root. Reads Count, Elem,
// Commutes, Root, InPlace.
func Reduce(t *Topo, a Args) Schedule { return choose(OpReduce, t, a) }

// Allreduce combines the inputs of all into Recv of all; all get the same bits.
// Reads Count, Elem, Commutes, InPlace.
func Allreduce(t *Topo, a Args) Schedule { return choose(OpAllreduce, t, a) }

// ReduceScatter combines the inputs of all, and each rank gets its block of
// Counts elements at the beginning of Recv. Reads Counts, the same at all ranks,
// Elem, Commutes, InPlace.
func ReduceScatter(t *Topo, a Args) Schedule { return choose(OpReduceScatter, t, a) }

// ReduceScatterBlock is ReduceScatter with blocks of Count elements.
func ReduceScatterBlock(t *Topo, a Args) Schedule { return choose(OpReduceScatterBlock, t, a) }

// Scan combines the inputs of ranks up to and including this one. Reads Count,
// Elem, InPlace.
func Scan(t *Topo, a Args) Schedule { return choose(OpScan, t, a) }

// Exscan combines the inputs of the ranks below this one; Recv of rank 0 is not
// touched. Reads Count, Elem, InPlace.
func Exscan(t *Topo, a Args) Schedule { return choose(OpExscan, t, a) }

// NeighborAllgather: Count elements of Send to each of Dests, and one such block
// from each of Sources. Reads Count, Elem, Sources, Dests, Paired.
func NeighborAllgather(t *Topo, a Args) Schedule { return choose(OpNeighborAllgather, t, a) }

// NeighborAllgatherv is NeighborAllgather with blocks of Counts, Displs in Recv.
func NeighborAllgatherv(t *Topo, a Args) Schedule { return choose(OpNeighborAllgatherv, t, a) }

// NeighborAlltoall: block i of Send to Dests[i], block i of Recv from Sources[i].
// Reads Count, Elem, Sources, Dests, Paired.
func NeighborAlltoall(t *Topo, a Args) Schedule { return choose(OpNeighborAlltoall, t, a) }

// NeighborAlltoallv is NeighborAlltoall with blocks of any size and place. Reads
// Counts, Displs, RecvCounts, RecvDispls, Elem, Sources, Dests, Paired.
func NeighborAlltoallv(t *Topo, a Args) Schedule { return choose(OpNeighborAlltoallv, t, a) }

// NeighborAlltoallw is NeighborAlltoallv with counts and displacements in bytes.
func NeighborAlltoallw(t *Topo, a Args) Schedule { return choose(OpNeighborAlltoallw, t, a) }
