package mpi

import (
	"slices"

	"github.com/meshmpi/meshmpi/mpi/coll"
)

// Collective operations of intercommunicators (MPI 4.1 §6.2.2): each side does
// its part as an ordinary communicator would, and the two ranks 0 exchange what
// crosses. Where there is a root, its side gives Root at the root and ProcNull
// elsewhere; the other side gives the root's rank. The buffers of one side belong
// to the input of the other.

// stages puts a schedule together from parts. Its peers are numbers in both
// groups: the own side's first.
type stages struct {
	c      *Comm
	rounds []coll.Round
	tmp    int // bytes of scratch given away
	leader bool
}

func (c *Comm) stages() *stages { return &stages{c: c, leader: c.rank == 0} }

// scratch gives n bytes, aligned for any element.
func (s *stages) scratch(n int) coll.Ref {
	at := s.tmp
	s.tmp += (n + 15) &^ 15
	return coll.Ref{Buf: coll.Tmp, Off: at, N: n}
}

// far is the number of a rank of the other side.
func (s *stages) far(rank int) int { return s.c.Size() + rank }

// round adds steps.
func (s *stages) round(steps ...coll.Step) { s.rounds = append(s.rounds, steps) }

func sendTo(peer int, src coll.Ref) coll.Step {
	return coll.Step{Kind: coll.SendStep, Peer: peer, Src: src}
}
func recvFrom(peer int, dst coll.Ref) coll.Step {
	return coll.Step{Kind: coll.RecvStep, Peer: peer, Dst: dst}
}

// own adds an operation among our side, with the buffers it is to use.
func (s *stages) own(k coll.Collective, a coll.Args, send, recv coll.Ref) {
	sched := s.c.schedules.Get(k, a)
	tmp := s.scratch(sched.Tmp)
	base := [...]coll.Ref{coll.Send: send, coll.Recv: recv, coll.Tmp: tmp}
	moved := func(r coll.Ref) coll.Ref { return coll.Ref{Buf: base[r.Buf].Buf, Off: base[r.Buf].Off + r.Off, N: r.N} }
	for i, steps := range sched.Rounds {
		round := slices.Clone(steps)
		for j := range round {
			st := &round[j]
			st.Src, st.Dst = moved(st.Src), moved(st.Dst)
			st.Wait = min(st.Wait, int32(len(sched.Rounds)-1-i))
		}
		s.rounds = append(s.rounds, round)
	}
}

// run is what the stages make, on the caller's buffers.
func (s *stages) run(send, recv vec) *run {
	r := &run{sched: &coll.Schedule{Rounds: s.rounds, Tmp: s.tmp, Name: "intercommunicator"}, swap: swapper(send, recv)}
	r.bufs[coll.Send], r.bufs[coll.Recv] = send.b, recv.b
	r.demand.whose = between
	return r
}

// ref is all of a caller's buffer.
func (v vec) ref(b coll.Buf) coll.Ref { return coll.Ref{Buf: b, N: len(v.b)} }

// checkFarRoot looks at the root of an operation, which is on the other side.
func (c *Comm) checkFarRoot(op string, root int) error {
	if root != Root && root != ProcNull && (root < 0 || root >= c.RemoteSize()) {
		return fail(op, ErrRoot, "root %d of %d on the other side", root, c.RemoteSize())
	}
	return nil
}

func (c *Comm) interBarrier() (*run, error) {
	s := c.stages()
	s.own(coll.OpBarrier, coll.Args{}, coll.Ref{}, coll.Ref{})
	if s.leader {
		s.round(sendTo(s.far(0), coll.Ref{}), recvFrom(s.far(0), coll.Ref{}))
	}
	s.own(coll.OpBarrier, coll.Args{}, coll.Ref{}, coll.Ref{})
	return s.run(vec{}, vec{}), nil
}

func (c *Comm) interBcast(op string, buf vec, root int) (*run, error) {
	if err := c.checkFarRoot(op, root); err != nil {
		return nil, err
	}
	s := c.stages()
	all := buf.ref(coll.Recv)
	switch {
	case root == Root:
		s.round(sendTo(s.far(0), all))
	case root >= 0:
		if s.leader {
			s.round(recvFrom(s.far(root), all))
		}
		s.own(coll.OpBcast, coll.Args{Count: buf.n, Elem: buf.size()}, coll.Ref{}, all)
	}
	return s.run(vec{}, buf), nil
}

// gathered has rank 0 of our side reduce or gather what all of it give, and
// returns where that is.
func (s *stages) gathered(k coll.Collective, a coll.Args, send vec, size int) coll.Ref {
	var sum coll.Ref
	if s.leader {
		sum = s.scratch(size)
	}
	s.own(k, a, send.ref(coll.Send), sum)
	return sum
}

func (c *Comm) interReduce(op string, send, recv vec, o Op, root int) (*run, error) {
	if err := c.checkFarRoot(op, root); err != nil {
		return nil, err
	}
	s := c.stages()
	in := send
	switch root {
	case Root:
		in = recv
	case ProcNull: // whose buffers are of no significance
		return s.run(send, recv), nil
	}
	kernel, err := o.kernel(op, in)
	if err != nil {
		return nil, err
	}
	switch {
	case root == Root:
		s.round(recvFrom(s.far(0), recv.ref(coll.Recv)))
	case root >= 0:
		sum := s.gathered(coll.OpReduce, coll.Args{Count: send.n, Elem: send.size(), Commutes: o.commutes}, send, len(send.b))
		if s.leader {
			s.round(sendTo(s.far(root), sum))
		}
	}
	r := s.run(send, recv)
	r.reduce = kernel
	return r, nil
}

func (c *Comm) interAllreduce(op string, send, recv vec, o Op) (*run, error) {
	if err := same(op, "recv", recv, send.n); err != nil {
		return nil, err
	}
	kernel, err := o.kernel(op, send)
	if err != nil {
		return nil, err
	}
	s := c.stages()
	sum := s.gathered(coll.OpReduce, coll.Args{Count: send.n, Elem: send.size(), Commutes: o.commutes}, send, len(send.b))
	s.exchange(sum, recv.ref(coll.Recv))
	s.own(coll.OpBcast, coll.Args{Count: recv.n, Elem: recv.size()}, coll.Ref{}, recv.ref(coll.Recv))
	r := s.run(send, recv)
	r.reduce = kernel
	return r, nil
}

// exchange has the two ranks 0 exchange what their sides have.
func (s *stages) exchange(ours, theirs coll.Ref) {
	if s.leader {
		s.round(sendTo(s.far(0), ours), recvFrom(s.far(0), theirs))
	}
}

// interReduceScatter: counts are of our side, which gets what the other combines;
// their sum is the same on both (MPI 4.1 §6.10.2).
func (c *Comm) interReduceScatter(op string, send, recv vec, counts []int, o Op) (*run, error) {
	l := Layout{Counts: counts}
	if err := l.check(op, "the result", c.Size(), send.n); err != nil {
		return nil, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	if err := same(op, "send", send, total); err != nil {
		return nil, err
	}
	if recv.n < counts[c.rank] {
		return nil, fail(op, ErrCount, "recv has %d elements, want %d", recv.n, counts[c.rank])
	}
	kernel, err := o.kernel(op, send)
	if err != nil {
		return nil, err
	}
	s := c.stages()
	sum := s.gathered(coll.OpReduce, coll.Args{Count: send.n, Elem: send.size(), Commutes: o.commutes}, send, len(send.b))
	var theirs coll.Ref
	if s.leader {
		theirs = s.scratch(len(send.b))
	}
	s.exchange(sum, theirs)
	s.own(coll.OpScatterv, coll.Args{Count: counts[c.rank], Counts: counts, Elem: send.size()}, theirs, recv.ref(coll.Recv))
	r := s.run(send, recv)
	r.reduce = kernel
	return r, nil
}

func (c *Comm) interGather(op string, send, recv vec, root int) (*run, error) {
	if err := c.checkFarRoot(op, root); err != nil {
		return nil, err
	}
	s := c.stages()
	switch {
	case root == Root:
		s.round(recvFrom(s.far(0), recv.ref(coll.Recv)))
	case root >= 0:
		all := s.gathered(coll.OpGather, coll.Args{Count: send.n, Elem: send.size()}, send, len(send.b)*c.Size())
		if s.leader {
			s.round(sendTo(s.far(root), all))
		}
	}
	return s.run(send, recv), nil
}

func (c *Comm) interScatter(op string, send, recv vec, root int) (*run, error) {
	if err := c.checkFarRoot(op, root); err != nil {
		return nil, err
	}
	s := c.stages()
	switch {
	case root == Root:
		s.round(sendTo(s.far(0), send.ref(coll.Send)))
	case root >= 0:
		var all coll.Ref
		if s.leader {
			all = s.scratch(len(recv.b) * c.Size())
			s.round(recvFrom(s.far(root), all))
		}
		s.own(coll.OpScatter, coll.Args{Count: recv.n, Elem: recv.size()}, all, recv.ref(coll.Recv))
	}
	return s.run(send, recv), nil
}

func (c *Comm) interAllgather(op string, send, recv vec) (*run, error) {
	s := c.stages()
	all := s.gathered(coll.OpGather, coll.Args{Count: send.n, Elem: send.size()}, send, len(send.b)*c.Size())
	s.exchange(all, recv.ref(coll.Recv))
	s.own(coll.OpBcast, coll.Args{Count: recv.n, Elem: recv.size()}, coll.Ref{}, recv.ref(coll.Recv))
	return s.run(send, recv), nil
}

// parts are the blocks of a buffer of elements of size bytes, by rank of the
// other side.
func (l Layout) parts(b coll.Buf, size int) []coll.Ref {
	refs := make([]coll.Ref, len(l.Counts))
	at := 0
	for i, n := range l.Counts {
		if l.Displs != nil {
			at = l.Displs[i]
		}
		if n > 0 { // the place of an empty block means nothing
			refs[i] = coll.Ref{Buf: b, Off: at * size, N: n * size}
		}
		at += n
	}
	return refs
}

// directly adds one round: to and from each rank of the other side, those parts
// that there are.
func (s *stages) directly(out, in []coll.Ref) {
	var steps []coll.Step
	for i, r := range out {
		steps = append(steps, sendTo(s.far(i), r))
	}
	for i, r := range in {
		steps = append(steps, recvFrom(s.far(i), r))
	}
	s.round(steps...)
}

func (c *Comm) interGatherv(op string, send, recv vec, l Layout, root int) (*run, error) {
	if err := c.checkFarRoot(op, root); err != nil {
		return nil, err
	}
	s := c.stages()
	switch {
	case root == Root:
		if err := l.check(op, "recv", c.RemoteSize(), recv.n); err != nil {
			return nil, err
		}
		s.directly(nil, l.parts(coll.Recv, recv.size()))
	case root >= 0:
		s.round(sendTo(s.far(root), send.ref(coll.Send)))
	}
	return s.run(send, recv), nil
}

func (c *Comm) interScatterv(op string, send vec, l Layout, recv vec, root int) (*run, error) {
	if err := c.checkFarRoot(op, root); err != nil {
		return nil, err
	}
	s := c.stages()
	switch {
	case root == Root:
		if err := l.check(op, "send", c.RemoteSize(), send.n); err != nil {
			return nil, err
		}
		s.directly(l.parts(coll.Send, send.size()), nil)
	case root >= 0:
		s.round(recvFrom(s.far(root), recv.ref(coll.Recv)))
	}
	return s.run(send, recv), nil
}

func (c *Comm) interAllgatherv(op string, send, recv vec, l Layout) (*run, error) {
	if err := l.check(op, "recv", c.RemoteSize(), recv.n); err != nil {
		return nil, err
	}
	s := c.stages()
	s.directly(slices.Repeat([]coll.Ref{send.ref(coll.Send)}, c.RemoteSize()), l.parts(coll.Recv, recv.size()))
	return s.run(send, recv), nil
}

// interAlltoall is Alltoall and Alltoallv: a has layouts.
func (c *Comm) interAlltoall(op string, a coll.Args, send, recv vec) (*run, error) {
	if a.InPlace {
		return nil, inPlaceInter(op)
	}
	out, in := Layout{a.Counts, a.Displs}, Layout{a.RecvCounts, a.RecvDispls}
	s := c.stages()
	s.directly(out.parts(coll.Send, send.size()), in.parts(coll.Recv, recv.size()))
	return s.run(send, recv), nil
}

// everybody are the members of both sides, as stages number them.
func (c *comm) everybody(tag int32) circle {
	o := circle{w: c.w, procs: c.group.procs, topo: c.topo, of: c, id: c.id, ctx: c.base + ctxCollective, tag: tag}
	if c.remote != nil {
		o.own = len(o.procs)
		o.procs = append(slices.Clone(o.procs), c.remote.procs...)
	}
	return o
}

// inPlaceInter is the error of an operation that would be in place there.
func inPlaceInter(op string) error {
	return fail(op, ErrBuffer, "there is no in place on intercommunicators")
}
