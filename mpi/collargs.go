package mpi

import (
	"fmt"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

// Layout says where the blocks of ranks, or of neighbours, are in a buffer, in
// elements. Nil Displs: the blocks follow each other.
type Layout struct{ Counts, Displs []int }

// check looks whether n blocks are described that lie within a buffer.
func (l Layout) check(op, what string, n, elements int) error {
	if len(l.Counts) != n || l.Displs != nil && len(l.Displs) != n {
		return fail(op, ErrCount, "the layout of %s has %d counts and %d displacements for %d blocks", what, len(l.Counts), len(l.Displs), n)
	}
	at := 0
	for i, c := range l.Counts {
		if l.Displs != nil {
			at = l.Displs[i]
		}
		switch {
		case c < 0:
			return fail(op, ErrCount, "block %d of %s has %d elements", i, what, c)
		case c > 0 && (at < 0 || c > elements || at > elements-c):
			return fail(op, ErrBuffer, "block %d of %s is %d elements at %d of %d", i, what, c, at, elements)
		}
		at += c
	}
	return nil
}

// scheduled makes the run of an operation on buffers that have been looked at.
func (c *Comm) scheduled(k coll.Collective, a coll.Args, send, recv vec) *run {
	a.Elem = max(send.size(), recv.size())
	r := c.idle.Swap(nil)
	if r == nil {
		r = new(run)
	}
	r.sched, r.swap = c.schedules.Get(k, a), swapper(send, recv)
	if send.n > 0 && recv.n > 0 && send.size() != recv.size() {
		r.err = errElements{send.size(), recv.size()}
	}
	r.bufs[coll.Send], r.bufs[coll.Recv] = send.b, recv.b
	if c.w.profile != nil {
		r.demand = demand{programs, k, c.rank, a}
	}
	return r
}

// errElements is how an operation ends whose buffers' elements have so many bytes.
type errElements struct{ send, recv int }

func (e errElements) Error() string {
	return fmt.Sprintf("elements of %d bytes are sent and such of %d received", e.send, e.recv)
}

// checkRoot looks at a root.
func (c *Comm) checkRoot(op string, root int) error {
	if root < 0 || root >= c.Size() {
		return fail(op, ErrRoot, "root %d of %d", root, c.Size())
	}
	return nil
}

// same looks whether a buffer has as many elements as it should.
func same(op, what string, v vec, want int) error {
	if v.n != want {
		return fail(op, ErrCount, "%s has %d elements, want %d", what, v.n, want)
	}
	return nil
}

func (c *Comm) barrier(op string) (*run, error) {
	if c.Inter() {
		return c.interBarrier()
	}
	return c.scheduled(coll.OpBarrier, coll.Args{}, vec{}, vec{}), nil
}

func (c *Comm) bcast(op string, buf vec, root int) (*run, error) {
	if c.Inter() {
		return c.interBcast(op, buf, root)
	}
	if err := c.checkRoot(op, root); err != nil {
		return nil, err
	}
	return c.scheduled(coll.OpBcast, coll.Args{Count: buf.n, Root: root}, vec{}, buf), nil
}

func (c *Comm) reduce(op string, send, recv vec, o Op, root int) (*run, error) {
	if c.Inter() {
		return c.interReduce(op, send, recv, o, root)
	}
	if err := c.checkRoot(op, root); err != nil {
		return nil, err
	}
	in := send
	inPlace := c.rank == root && send.none()
	switch {
	case inPlace:
		in = recv
	case c.rank == root:
		if err := same(op, "recv", recv, send.n); err != nil {
			return nil, err
		}
	default:
		recv = vec{}
	}
	return c.combining(op, coll.OpReduce, coll.Args{Count: in.n, Root: root, InPlace: inPlace}, send, recv, in, o)
}

// combining is scheduled with the operation's kernel for the elements of in.
func (c *Comm) combining(op string, k coll.Collective, a coll.Args, send, recv, in vec, o Op) (*run, error) {
	kernel, err := o.kernel(op, in)
	if err != nil {
		return nil, err
	}
	a.Commutes = o.commutes
	r := c.scheduled(k, a, send, recv)
	r.reduce = kernel
	return r, nil
}

// input is what an operation in which all ranks may be in place combines.
func input(op string, send, recv vec) (in vec, inPlace bool, err error) {
	if send.none() {
		return recv, true, nil
	}
	return send, false, same(op, "recv", recv, send.n)
}

func (c *Comm) allreduce(op string, send, recv vec, o Op) (*run, error) {
	if c.Inter() {
		return c.interAllreduce(op, send, recv, o)
	}
	in, inPlace, err := input(op, send, recv)
	if err != nil {
		return nil, err
	}
	return c.combining(op, coll.OpAllreduce, coll.Args{Count: in.n, InPlace: inPlace}, send, recv, in, o)
}

func (c *Comm) scan(op string, k coll.Collective, send, recv vec, o Op) (*run, error) {
	if c.Inter() {
		return nil, fail(op, ErrComm, "there is no scan on intercommunicators (MPI 4.1 §6.2.3)")
	}
	if k == coll.OpExscan && c.rank == 0 && !send.none() {
		recv = send // it is of no significance (MPI 4.1 §6.11.2), and stays as it is
	}
	in, inPlace, err := input(op, send, recv)
	if err != nil {
		return nil, err
	}
	return c.combining(op, k, coll.Args{Count: in.n, InPlace: inPlace}, send, recv, in, o)
}

func (c *Comm) reduceScatterBlock(op string, send, recv vec, o Op) (*run, error) {
	if c.Inter() {
		return c.interReduceScatter(op, send, recv, slices.Repeat([]int{recv.n}, c.Size()), o)
	}
	if send.none() {
		if recv.n%c.Size() != 0 {
			return nil, fail(op, ErrCount, "recv has %d elements, which is no multiple of %d ranks", recv.n, c.Size())
		}
		return c.combining(op, coll.OpReduceScatterBlock, coll.Args{Count: recv.n / c.Size(), InPlace: true}, send, recv, recv, o)
	}
	if err := same(op, "send", send, recv.n*c.Size()); err != nil {
		return nil, err
	}
	return c.combining(op, coll.OpReduceScatterBlock, coll.Args{Count: recv.n}, send, recv, send, o)
}

func (c *Comm) reduceScatter(op string, send, recv vec, counts []int, o Op) (*run, error) {
	if c.Inter() {
		return c.interReduceScatter(op, send, recv, counts, o)
	}
	in, inPlace := send, false
	if send.none() {
		in, inPlace = recv, true
	}
	if err := (Layout{Counts: counts}).check(op, "the input", c.Size(), in.n); err != nil {
		return nil, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	if err := same(op, "the input", in, total); err != nil {
		return nil, err
	}
	if recv.n < counts[c.rank] {
		return nil, fail(op, ErrCount, "recv has %d elements, want %d", recv.n, counts[c.rank])
	}
	return c.combining(op, coll.OpReduceScatter, coll.Args{Counts: counts, InPlace: inPlace}, send, recv, in, o)
}

func (c *Comm) gather(op string, send, recv vec, root int) (*run, error) {
	if c.Inter() {
		return c.interGather(op, send, recv, root)
	}
	if err := c.checkRoot(op, root); err != nil {
		return nil, err
	}
	a := coll.Args{Count: send.n, Root: root}
	if c.rank != root {
		return c.scheduled(coll.OpGather, a, send, vec{}), nil
	}
	if a.InPlace = send.none(); a.InPlace {
		a.Count = recv.n / c.Size()
	}
	if err := same(op, "recv", recv, a.Count*c.Size()); err != nil {
		return nil, err
	}
	return c.scheduled(coll.OpGather, a, send, recv), nil
}

func (c *Comm) gatherv(op string, send, recv vec, l Layout, root int) (*run, error) {
	if c.Inter() {
		return c.interGatherv(op, send, recv, l, root)
	}
	if err := c.checkRoot(op, root); err != nil {
		return nil, err
	}
	a := coll.Args{Count: send.n, Root: root}
	if c.rank != root {
		return c.scheduled(coll.OpGatherv, a, send, vec{}), nil
	}
	if err := l.check(op, "recv", c.Size(), recv.n); err != nil {
		return nil, err
	}
	a.InPlace, a.Counts, a.Displs = send.none(), l.Counts, l.Displs
	if !a.InPlace {
		if err := same(op, "send", send, l.Counts[root]); err != nil {
			return nil, err
		}
	}
	return c.scheduled(coll.OpGatherv, a, send, recv), nil
}

func (c *Comm) scatter(op string, send, recv vec, root int) (*run, error) {
	if c.Inter() {
		return c.interScatter(op, send, recv, root)
	}
	if err := c.checkRoot(op, root); err != nil {
		return nil, err
	}
	a := coll.Args{Count: recv.n, Root: root}
	if c.rank != root {
		return c.scheduled(coll.OpScatter, a, vec{}, recv), nil
	}
	if a.InPlace = recv.none(); a.InPlace {
		a.Count = send.n / c.Size()
	}
	if err := same(op, "send", send, a.Count*c.Size()); err != nil {
		return nil, err
	}
	return c.scheduled(coll.OpScatter, a, send, recv), nil
}

func (c *Comm) scatterv(op string, send vec, l Layout, recv vec, root int) (*run, error) {
	if c.Inter() {
		return c.interScatterv(op, send, l, recv, root)
	}
	if err := c.checkRoot(op, root); err != nil {
		return nil, err
	}
	a := coll.Args{Count: recv.n, Root: root}
	if c.rank != root {
		return c.scheduled(coll.OpScatterv, a, vec{}, recv), nil
	}
	if err := l.check(op, "send", c.Size(), send.n); err != nil {
		return nil, err
	}
	a.InPlace, a.Counts, a.Displs = recv.none(), l.Counts, l.Displs
	if !a.InPlace {
		if err := same(op, "recv", recv, l.Counts[root]); err != nil {
			return nil, err
		}
	}
	return c.scheduled(coll.OpScatterv, a, send, recv), nil
}

func (c *Comm) allgather(op string, send, recv vec) (*run, error) {
	if c.Inter() {
		return c.interAllgather(op, send, recv)
	}
	a := coll.Args{Count: send.n, InPlace: send.none()}
	if a.InPlace {
		a.Count = recv.n / c.Size()
	}
	if err := same(op, "recv", recv, a.Count*c.Size()); err != nil {
		return nil, err
	}
	return c.scheduled(coll.OpAllgather, a, send, recv), nil
}

func (c *Comm) allgatherv(op string, send, recv vec, l Layout) (*run, error) {
	if c.Inter() {
		return c.interAllgatherv(op, send, recv, l)
	}
	if err := l.check(op, "recv", c.Size(), recv.n); err != nil {
		return nil, err
	}
	a := coll.Args{Counts: l.Counts, Displs: l.Displs, InPlace: send.none()}
	if !a.InPlace {
		if err := same(op, "send", send, l.Counts[c.rank]); err != nil {
			return nil, err
		}
	}
	return c.scheduled(coll.OpAllgatherv, a, send, recv), nil
}

func (c *Comm) alltoall(op string, send, recv vec) (*run, error) {
	n := len(c.peers().procs)
	if recv.n%n != 0 {
		return nil, fail(op, ErrCount, "recv has %d elements, which is no multiple of %d ranks", recv.n, n)
	}
	a := coll.Args{Count: recv.n / n, InPlace: send.none() && (recv.n > 0 || !c.Inter())}
	if c.Inter() { // as much may go one way as another (MPI 4.1 §6.8), or nothing
		if send.n%n != 0 {
			return nil, fail(op, ErrCount, "send has %d elements, which is no multiple of %d ranks", send.n, n)
		}
		a.Counts, a.RecvCounts = slices.Repeat([]int{send.n / n}, n), slices.Repeat([]int{a.Count}, n)
		return c.interAlltoall(op, a, send, recv)
	}
	if !a.InPlace {
		if err := same(op, "send", send, recv.n); err != nil {
			return nil, err
		}
	}
	return c.paced(hint.Alltoall, c.scheduled(coll.OpAlltoall, a, send, recv)), nil
}

func (c *Comm) alltoallv(op string, send vec, sl Layout, recv vec, rl Layout) (*run, error) {
	n := len(c.peers().procs)
	if err := rl.check(op, "recv", n, recv.n); err != nil {
		return nil, err
	}
	a := coll.Args{RecvCounts: rl.Counts, RecvDispls: rl.Displs, InPlace: send.none() && sl.Counts == nil}
	if !a.InPlace {
		if err := sl.check(op, "send", n, send.n); err != nil {
			return nil, err
		}
		a.Counts, a.Displs = sl.Counts, sl.Displs
	}
	if c.Inter() {
		return c.interAlltoall(op, a, send, recv)
	}
	if err := c.ownBlock(op, a, "elements"); err != nil {
		return nil, err
	}
	return c.paced(hint.Alltoallv, c.scheduled(coll.OpAlltoallv, a, send, recv)), nil
}

// ownBlock looks whether what a rank sends itself fits where it receives it: no message
// tells.
func (c *Comm) ownBlock(op string, a coll.Args, what string) error {
	if a.InPlace || a.Counts[c.rank] <= a.RecvCounts[c.rank] {
		return nil
	}
	return fail(op, ErrTruncate, "rank %d sends itself %d %s and receives %d", c.rank, a.Counts[c.rank], what, a.RecvCounts[c.rank])
}
