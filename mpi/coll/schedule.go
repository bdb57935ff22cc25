package coll

// Topo says where ranks are. Equal numbers mean the same host or site; what the
// numbers are does not matter. Nil means: every rank on a host of its own, all
// at one site. The slices are indexed by rank, shared and never written to.
//
// Crowded says that the ranks of some host are twice as many as its processors, or
// more; it is the same at all ranks.
type Topo struct {
	Rank, Size int
	Host, Site []int32
	Crowded    bool
}

// Buf names a buffer of the caller's.
type Buf uint8

// The buffers of a collective operation.
const (
	Send Buf = iota // what the rank gives; only read
	Recv            // what the rank gets; with Args.InPlace its input as well
	Tmp             // scratch of Schedule.Tmp bytes, aligned as make aligns it
)

// Ref is N bytes of a buffer from byte Off on, always on borders of elements.
type Ref struct {
	Buf    Buf
	Off, N int
}

// from returns n bytes of r from byte off on.
func (r Ref) from(off, n int) Ref { return Ref{r.Buf, r.Off + off, n} }

// Kind says what a step does.
type Kind uint8

// The kinds of steps.
const (
	SendStep   Kind = iota // Src to Peer
	RecvStep               // Dst from Peer
	ReduceStep             // Dst = Src op Dst: Src is the operand of the lower ranks
	CopyStep               // Dst = Src
	ShowStep               // Src to all ranks, and theirs, as long, to Dst by rank; only where they have a board
)

// Step is one thing that a rank does. The two sides of a message give the same
// length, and messages from one rank to another match in the order in which they
// are started.
//
// Wait is how many further rounds may begin before the message has to be
// complete: 0 is its own round, and 2 means that the local steps of the round
// after the next are the first that must not run without it. Until then what
// Src or Dst names is left alone. To wait earlier, even in the message's own
// round, is right too, and merely slower.
type Step struct {
	Kind     Kind
	Wait     int32
	Peer     int
	Src, Dst Ref
}

// Round is a set of messages that start together, in order, and the local steps
// that run in order when all messages that end with this round are complete. A
// round may be empty: then it does nothing but wait for earlier ones' messages.
type Round []Step

// Schedule is one rank's part in a collective operation. It is immutable.
type Schedule struct {
	Rounds []Round
	Tmp    int       // bytes of scratch
	Name   string    // of the algorithm
	Board  *Schedule // the same for ranks that have a board; nil: they do as well without
	Far    bool      // what it waits for is the way from another site, not bytes: none of its messages is more than a packet
}

// Args describe a collective operation. Counts and displacements are in
// elements of Elem bytes, except for the two w operations, where they are in
// bytes. Count is what one rank contributes or gets:
//
//	Bcast, Reduce, Allreduce, Scan, Exscan   the whole buffer
//	Gather, Allgather, NeighborAllgather     what each rank sends
//	Scatter, ReduceScatterBlock              what each rank receives
//	Alltoall, NeighborAlltoall               what each rank sends to each
//	Gatherv, NeighborAllgatherv              what this rank sends
//	Scatterv                                 what this rank receives
//
// Counts and Displs, by rank, describe the longer buffer: of Gatherv at the root,
// Scatterv at the root, Allgatherv and ReduceScatter; and the send buffer of the
// Alltoallv kind, whose receive buffer is in RecvCounts and RecvDispls. In the
// neighbourhood's operations they are by neighbour. Nil displacements mean that
// blocks follow each other. Displacements and the counts of Gatherv and Scatterv
// matter at the rank that has them only.
//
// InPlace is MPI_IN_PLACE: the input is in Recv, where MPI 4.1 chapter 6 has it:
// at the rank's own block for Gather, Allgather and their kin; the whole of it for
// Reduce, Allreduce, Scan, Exscan, ReduceScatter and Alltoall. In Scatter the root
// keeps its block in Send and Recv is not touched. Where there is a root, InPlace
// counts at the root only. Bcast has but one buffer, Recv.
type Args struct {
	Count, Elem int
	Commutes    bool // the operation does; ranks' order is kept otherwise
	InPlace     bool
	Root        int

	Counts, Displs         []int
	RecvCounts, RecvDispls []int

	// Sources and Dests are the neighbours; one below 0 (MPI_PROC_NULL) is
	// skipped, and so is its block. Paired says that they come in pairs of a
	// negative and a positive direction, those of a Cartesian topology: what goes
	// in one direction arrives from the other, even where both neighbours are the
	// same rank (MPI 4.1 §8.6).
	Sources, Dests []int
	Paired         bool
}

// bytes is the size of Count elements.
func (a *Args) bytes() int { return a.Count * a.Elem }
