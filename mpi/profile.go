package mpi

import (
	"strings"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
	shimrecord "github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// What this process records for meshrun --profile: how many bytes the program gives
// each other rank. The preload library does the same for programs in C and Fortran,
// and counts alike: an operation's demand, not the messages of its schedule. Without
// a profile all of it is a look at a nil pointer.

// envProfile is the folder in which ranks record (WithProfile).
const envProfile = "MESH_PROFILE"

// WithProfile has the process record what it sends to each other rank in a file in
// dir, as meshrun --profile has all ranks do; empty: it does not. Without the option
// it is what MESH_PROFILE names; ranks of a test record nothing then. A program whose
// file cannot be made runs the same.
func WithProfile(dir string) Option { return func(o *options) { o.profile = &dir } }

// openProfile makes the record of a rank, a process of its own or one of a test; nil
// where none is asked for, or none can be made.
func openProfile(o *options, process bool, env func(string) string, l Launcher) *shimrecord.Writer {
	dir := ""
	switch {
	case o.profile != nil:
		dir = *o.profile
	case process && !l.Spawned(): // a spawned job's ranks have the numbers of the first's
		dir = env(envProfile)
	}
	if dir == "" {
		return nil
	}
	w, err := shimrecord.Create(dir, l.Rank(), l.Size())
	if err != nil {
		if o.log != nil {
			o.log.Warn("this process records nothing", "err", err)
		}
		return nil
	}
	return w
}

// worldRank is a process's rank in the job; -1 for one of another job.
func (w *World) worldRank(p engine.Proc) int {
	if p < 0 || int(p) >= w.launcher.Size() {
		return -1
	}
	return int(p)
}

// sends notes a message of an operation.
func (c *Comm) sends(op string, to engine.Proc, bytes int) {
	o := shimrecord.Send
	switch {
	case strings.HasPrefix(op, "Sendrecv"):
		o = shimrecord.Sendrecv
	case strings.HasPrefix(op, "I"):
		o = shimrecord.Isend
	case strings.HasSuffix(op, "Init"):
		o = shimrecord.Start
	}
	c.w.profile.Message(o, c.w.worldRank(to), int64(bytes))
}

// Whose a run is. The library's own, by which communicators are made, do not count;
// those of intercommunicators count by the steps of their schedules.
const (
	libraries = iota
	programs
	between
)

// demand is a collective operation as its caller gave it.
type demand struct {
	whose int8
	op    coll.Collective
	rank  int
	args  coll.Args
}

// demanded notes a run that begins.
func (r *run) demanded() {
	w := r.o.w.profile
	switch r.demand.whose {
	case libraries:
		return
	case between:
		var parts []shimrecord.Part
		for _, round := range r.sched.Rounds {
			for _, st := range round {
				if st.Kind == coll.SendStep {
					parts = append(parts, r.part(st.Peer, st.Src.N))
				}
			}
		}
		w.Collective(shimrecord.Other, parts...)
		return
	}
	w.Collective(recorded(r.demand.op), r.spread()...)
}

// part is bytes for a member.
func (r *run) part(member, bytes int) shimrecord.Part {
	return shimrecord.Part{Rank: r.o.w.worldRank(r.o.procs[member]), Bytes: int64(bytes)}
}

// recorded is what an operation counts as.
func recorded(c coll.Collective) shimrecord.Op {
	switch c {
	case coll.OpBarrier:
		return shimrecord.Barrier
	case coll.OpBcast:
		return shimrecord.Bcast
	case coll.OpGather, coll.OpGatherv:
		return shimrecord.Gather
	case coll.OpScatter, coll.OpScatterv:
		return shimrecord.Scatter
	case coll.OpAllgather, coll.OpAllgatherv:
		return shimrecord.Allgather
	case coll.OpAlltoall:
		return shimrecord.Alltoall
	case coll.OpAlltoallv:
		return shimrecord.Alltoallv
	case coll.OpAlltoallw:
		return shimrecord.Alltoallw
	case coll.OpReduce:
		return shimrecord.Reduce
	case coll.OpAllreduce:
		return shimrecord.Allreduce
	case coll.OpReduceScatter, coll.OpReduceScatterBlock:
		return shimrecord.ReduceScatter
	case coll.OpScan, coll.OpExscan:
		return shimrecord.Scan
	case coll.OpNeighborAllgather, coll.OpNeighborAllgatherv:
		return shimrecord.NeighborAllgather
	}
	return shimrecord.NeighborAlltoall
}

// spread is what an operation gives each member, as MPI 4.1 chapters 6 and 8 say. A
// reduction to all counts as a reduce-scatter and an allgather, the least it takes; a
// scan as one message to the next.
func (r *run) spread() (parts []shimrecord.Part) {
	a, me, n := r.demand.args, r.demand.rank, len(r.o.procs)
	give := func(to, elements int) { parts = append(parts, r.part(to, elements*a.Elem)) }
	others := func(elements func(to int) int) {
		for to := range n {
			if to != me {
				give(to, elements(to))
			}
		}
	}
	plain := func(int) int { return a.Count }
	listed := func(to int) int { return a.Counts[to] }
	switch r.demand.op {
	case coll.OpBcast, coll.OpScatter:
		if me == a.Root {
			others(plain)
		}
	case coll.OpScatterv:
		if me == a.Root {
			others(listed)
		}
	case coll.OpGather, coll.OpGatherv, coll.OpReduce:
		if me != a.Root {
			give(a.Root, a.Count)
		}
	case coll.OpAllgather, coll.OpAlltoall, coll.OpReduceScatterBlock:
		others(plain)
	case coll.OpAllgatherv:
		others(func(int) int { return a.Counts[me] })
	case coll.OpAlltoallv, coll.OpAlltoallw:
		if a.InPlace {
			listed = func(to int) int { return a.RecvCounts[to] }
		}
		others(listed)
	case coll.OpReduceScatter:
		others(listed)
	case coll.OpAllreduce:
		others(func(to int) int { return block(a.Count, n, to) + block(a.Count, n, me) })
	case coll.OpScan, coll.OpExscan:
		if me+1 < n {
			give(me+1, a.Count)
		}
	case coll.OpNeighborAllgather, coll.OpNeighborAllgatherv, coll.OpNeighborAlltoall:
		for _, to := range a.Dests {
			if to >= 0 {
				give(to, a.Count)
			}
		}
	case coll.OpNeighborAlltoallv, coll.OpNeighborAlltoallw:
		for i, to := range a.Dests {
			if to >= 0 {
				give(to, a.Counts[i])
			}
		}
	}
	return parts
}

// block is the i-th of n shares of count elements.
func block(count, n, i int) int {
	if i < count%n {
		return count/n + 1
	}
	return count / n
}
