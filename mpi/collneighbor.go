package mpi

import "github.com/meshmpi/meshmpi/mpi/coll"

// neighborArgs are those of an operation on the communicator's topology.
func (c *Comm) neighborArgs(op string) (coll.Args, error) {
	sources, dests, err := c.neighbors(op)
	return coll.Args{Sources: sources, Dests: dests, Paired: c.cart != nil}, err
}

func (c *Comm) neighborAllgather(op string, send, recv vec) (*run, error) {
	a, err := c.neighborArgs(op)
	if err != nil {
		return nil, err
	}
	if a.Count = send.n; len(a.Dests) == 0 && len(a.Sources) > 0 {
		a.Count = recv.n / len(a.Sources)
	}
	if err := same(op, "recv", recv, a.Count*len(a.Sources)); err != nil {
		return nil, err
	}
	return c.scheduled(coll.OpNeighborAllgather, a, send, recv), nil
}

func (c *Comm) neighborAllgatherv(op string, send, recv vec, l Layout) (*run, error) {
	a, err := c.neighborArgs(op)
	if err != nil {
		return nil, err
	}
	if err := l.check(op, "recv", len(a.Sources), recv.n); err != nil {
		return nil, err
	}
	a.Count, a.Counts, a.Displs = send.n, l.Counts, l.Displs
	return c.scheduled(coll.OpNeighborAllgatherv, a, send, recv), nil
}

func (c *Comm) neighborAlltoall(op string, send, recv vec) (*run, error) {
	a, err := c.neighborArgs(op)
	if err != nil {
		return nil, err
	}
	if n := len(a.Dests); n > 0 {
		a.Count = send.n / n
	} else if m := len(a.Sources); m > 0 {
		a.Count = recv.n / m
	}
	if err := same(op, "send", send, a.Count*len(a.Dests)); err != nil {
		return nil, err
	}
	if err := same(op, "recv", recv, a.Count*len(a.Sources)); err != nil {
		return nil, err
	}
	return c.scheduled(coll.OpNeighborAlltoall, a, send, recv), nil
}

func (c *Comm) neighborAlltoallv(op string, send vec, sl Layout, recv vec, rl Layout) (*run, error) {
	a, err := c.neighborArgs(op)
	if err != nil {
		return nil, err
	}
	if err := sl.check(op, "send", len(a.Dests), send.n); err != nil {
		return nil, err
	}
	if err := rl.check(op, "recv", len(a.Sources), recv.n); err != nil {
		return nil, err
	}
	a.Counts, a.Displs, a.RecvCounts, a.RecvDispls = sl.Counts, sl.Displs, rl.Counts, rl.Displs
	return c.scheduled(coll.OpNeighborAlltoallv, a, send, recv), nil
}
