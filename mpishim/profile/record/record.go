// Package record is what one rank of a profiled job writes: a file of fixed size,
// mapped into memory, in which the bytes that it gives each other rank add up, in
// all and over time. The preload library (mpishim/preload/profile) and package mpi
// write it, meshrun --profile reads it.
//
// It exists because a profile must cost a rank nothing that grows: no list of calls,
// no message, no thread. A file that is mapped is also there when its rank has died.
//
// It does not say what the numbers mean; package profile does.
//
// # Layout, version 1, in the writer's byte order
//
//	0    magic "MSPF" as a number, version           uint32 each
//	8    ranks of the job, the rank                  uint32 each
//	16   buckets of time, flags (1: ended well)      uint32 each
//	24   width of a bucket, ns; start, ns since 1970; last entry, ns since the start
//	48   bytes to processes of other jobs; operations that could not be told apart
//	64   32 × {calls, bytes} by Op                   uint64 each, as all that follows
//	576  ranks × {bytes in messages, bytes in collective operations, messages}
//	…    buckets × ranks: bytes
//
// When time runs past the last bucket, two become one each and the width doubles, so
// it is always a power of two.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// MaxRanks is of how many ranks a job may be to be recorded: a file is 600 KiB then.
const MaxRanks = 4096

// Op is a kind of operation.
type Op uint8

// The operations that are counted apart. Those with counts of each rank's own are
// with the plain ones, except for Alltoallv.
const (
	Send Op = iota + 1
	Isend
	Sendrecv
	Start // of a persistent send
	Barrier
	Bcast
	Gather
	Scatter
	Allgather
	Alltoall
	Alltoallv
	Alltoallw
	Reduce
	Allreduce
	ReduceScatter
	Scan
	NeighborAllgather
	NeighborAlltoall
	Other // collective operations of intercommunicators
	Ops   // one more than the last
)

var names = [Ops]string{"", "Send", "Isend", "Sendrecv", "Start", "Barrier", "Bcast", "Gather", "Scatter", "Allgather", "Alltoall", "Alltoallv",
	"Alltoallw", "Reduce", "Allreduce", "Reduce_scatter", "Scan", "Neighbor_allgather", "Neighbor_alltoall", "intercommunicators"}

// String is MPI's name without its prefix.
func (o Op) String() string {
	if o == 0 || o >= Ops {
		return "op " + strconv.Itoa(int(o))
	}
	return names[o]
}

// Peer is what one rank gave another: bytes by messages and by collective
// operations, and how many messages.
type Peer struct{ Messages, Collective, Count uint64 }

// Calls is how often an operation was called, and the bytes it gave others.
type Calls struct{ Calls, Bytes uint64 }

// Record is a file's content.
type Record struct {
	Rank    int
	Ended   bool          // the rank came to MPI_Finalize
	Began   time.Time     // when MPI_Init returned, by the node's clock
	Elapsed time.Duration // from then to the last entry
	Outside uint64        // bytes to processes of other jobs
	Missed  uint64        // operations that could not be told apart
	Ops     [Ops]Calls
	Peers   []Peer        // by rank
	Width   time.Duration // of a bucket
	Cells   [][]uint64    // bytes by bucket since Began and by rank
}

const (
	magic   = 0x4650534d
	version = 1
	opSlots = 32
	head    = 64 + 16*opSlots
	perPeer = 24
	ended   = 1

	firstWidth = 22 // log2 of ns: 4.2 ms
	lastWidth  = 62
)

// buckets is how many a file for so many ranks has.
func buckets(ranks int) int { return min(max(65536/ranks, 16), 256) &^ 1 }

// Size is how long a file for so many ranks is, in bytes.
func Size(ranks int) int { return head + perPeer*ranks + 8*buckets(ranks)*ranks }

// FileName is what the file of a rank is called.
func FileName(rank int) string { return "rank-" + strconv.Itoa(rank) }

// errRecord is wrapped by all that Parse complains of.
var errRecord = errors.New("record: no record of a rank")

// Parse reads a file. It may be of a rank that died while it wrote; the sums are
// right then, and times by a bucket. The numbers are only bounded, not believed.
func Parse(b []byte) (*Record, error) {
	if len(b) < head {
		return nil, fmt.Errorf("%w: %d bytes", errRecord, len(b))
	}
	var order binary.ByteOrder = binary.LittleEndian
	if order.Uint32(b) != magic {
		order = binary.BigEndian
	}
	u32 := func(at int) uint32 { return order.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return order.Uint64(b[at:]) }
	if u32(0) != magic || u32(4) != version {
		return nil, fmt.Errorf("%w: begins with %x", errRecord, b[:8])
	}
	ranks, rank := u32(8), u32(12)
	if ranks < 1 || ranks > MaxRanks || rank >= ranks {
		return nil, fmt.Errorf("%w: rank %d of %d", errRecord, rank, ranks)
	}
	n := int(ranks)
	width := u64(24)
	if len(b) != Size(n) || int64(u32(16)) != int64(buckets(n)) || width < 1<<firstWidth || width > 1<<lastWidth || width&(width-1) != 0 {
		return nil, fmt.Errorf("%w: %d bytes, %d buckets of %d ns", errRecord, len(b), u32(16), width)
	}
	r := &Record{
		Rank: int(rank), Ended: u32(20)&ended != 0, Began: time.Unix(0, int64(u64(32))), Elapsed: time.Duration(min(u64(40), 1<<lastWidth)),
		Outside: u64(48), Missed: u64(56), Peers: make([]Peer, n), Width: time.Duration(width), Cells: make([][]uint64, buckets(n)),
	}
	for i := range r.Ops {
		r.Ops[i] = Calls{u64(64 + 16*i), u64(72 + 16*i)}
	}
	for i := range r.Peers {
		at := head + perPeer*i
		r.Peers[i] = Peer{u64(at), u64(at + 8), u64(at + 16)}
	}
	for i := range r.Cells {
		row := make([]uint64, n)
		for j := range row {
			row[j] = u64(head + perPeer*n + 8*(i*n+j))
		}
		r.Cells[i] = row
	}
	return r, nil
}
