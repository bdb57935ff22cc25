package mpi

import (
	"reflect"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

// Bufs in collective operations: what only moves is packed before and unpacked
// after, unless it lies in one piece; what is combined stays as it lies in memory.

// zero reports whether a Buf is the zero one, which means in place.
func (b Buf) zero() bool {
	return b.mem == nil && b.typ == nil && b.count == 0 && b.err == nil
}

// moving returns the items as they travel, which are parts contributions, and what
// takes a received message to its place; nil if it is there. Schedules cut between
// elements only: basic ones, where there is but one kind, or contributions.
func (b Buf) moving(op string, parts int) (v vec, place func() error, err error) {
	if b.zero() {
		return vec{}, nil, nil
	}
	m, err := b.packed(op)
	if err != nil {
		return vec{}, nil, err
	}
	v = vec{b: m, n: parts, swap: b.typ, each: len(m) / parts}
	if kind, ok := b.uniform(); ok {
		v.each = kind.Size()
		v.n = len(m) / v.each
	} else if len(m)%parts != 0 {
		return vec{}, nil, fail(op, ErrCount, "%d bytes are no multiple of %d ranks", len(m), parts)
	}
	if _, ok := b.direct(); ok {
		return v, nil, nil
	}
	return v, func() error {
		_, err := b.typ.Unpack(b.mem, m, b.origin, b.count)
		return err
	}, nil
}

// uniform returns the kind of all basic elements, if there is but one.
func (b Buf) uniform() (kind datatype.Kind, ok bool) {
	n := 0
	for k := range b.typ.SignatureRuns() {
		if n++; n > 1 {
			return kind, false
		}
		kind = k
	}
	return kind, n == 1
}

// combined returns the items where they are, as elements of a Go type.
func (b Buf) combined(op string) (vec, error) {
	if b.zero() {
		return vec{}, nil
	}
	if err := b.check(op); err != nil {
		return vec{}, err
	}
	off, ok := b.typ.Contiguous(b.count)
	if b.elem == nil && !ok {
		return vec{}, fail(op, ErrType, "%v is combined only as a slice of a Go type, by BufOf", b.typ)
	}
	size := b.typ.Size()
	if b.elem != nil {
		off, size = 0, int(b.elem.Size())
	}
	if n := len(b.mem) - b.origin; b.elem != nil && (b.origin < 0 || size > 0 && b.count > n/size || b.origin%b.elem.Align() != 0) {
		return vec{}, fail(op, ErrBuffer, "%d items of %v are not elements of a slice at byte %d of a buffer of %d", b.count, b.elem, b.origin, len(b.mem))
	}
	v := vec{b: b.mem[b.origin+off:][:size*b.count], n: b.count, typ: b.typ, elem: b.elem, each: size, swap: b.typ}
	if !ok || size != b.typ.Size() {
		v.swap = padded{b.typ, size}
	}
	return v, nil
}

// padded converts items that have travelled with the gaps in them.
type padded struct {
	t    *Type
	size int
}

// Swap implements engine.Swapper.
func (p padded) Swap(b []byte) {
	m := make([]byte, p.t.Size())
	for ; len(b) >= p.size; b = b[p.size:] {
		if _, err := p.t.Pack(m, b[:p.size], 0, 1); err != nil {
			return // cannot be: the size is the type's
		}
		p.t.Swap(m)
		_, _ = p.t.Unpack(b[:p.size], m, 0, 1)
	}
}

// swapper is what converts the messages of an operation.
func swapper(send, recv vec) engine.Swapper {
	for _, v := range []vec{send, recv} {
		if v.swap != nil {
			return v.swap
		}
		if v.typ != nil {
			return v.typ
		}
	}
	return nil
}

// landingIn has a run put what it received where it belongs.
func landingIn(r *run, place func() error, err error) (*run, error) {
	if err == nil {
		r.finish = place
	}
	return r, err
}

func (c *Comm) bcastBuf(op string, b Buf, root int) (*run, error) {
	v, place, err := b.moving(op, 1)
	if err != nil {
		return nil, err
	}
	if root == Root || c.rank == root && !c.Inter() {
		place = nil
	}
	r, err := c.bcast(op, v, root)
	return landingIn(r, place, err)
}

// both looks at two Bufs of an operation that moves so many contributions each.
func both(op string, send, recv Buf, sends, recvs int) (s, r vec, place func() error, err error) {
	if s, _, err = send.moving(op, sends); err == nil {
		r, place, err = recv.moving(op, recvs)
	}
	if s.b == nil && !send.zero() {
		s.b = []byte{} // nothing, but not in place
	}
	return s, r, place, err
}

// insignificant forgets what MPI does not look at: what only the root uses (all) of others,
// and what only others use (each) of the root of an intercommunicator, and of its neighbours.
func (c *Comm) insignificant(root int, all, each *Buf) {
	if c.Inter() && root != Root || !c.Inter() && root != c.rank {
		*all = Buf{}
	}
	if c.Inter() && root < 0 {
		*each = Buf{}
	}
}

func (c *Comm) gatherBuf(op string, send, recv Buf, root int) (*run, error) {
	c.insignificant(root, &recv, &send)
	s, v, place, err := both(op, send, recv, 1, len(c.peers().procs))
	if err != nil {
		return nil, err
	}
	r, err := c.gather(op, s, v, root)
	return landingIn(r, place, err)
}

func (c *Comm) scatterBuf(op string, send, recv Buf, root int) (*run, error) {
	c.insignificant(root, &send, &recv)
	s, v, place, err := both(op, send, recv, len(c.peers().procs), 1)
	if err != nil {
		return nil, err
	}
	r, err := c.scatter(op, s, v, root)
	return landingIn(r, place, err)
}

func (c *Comm) allgatherBuf(op string, send, recv Buf) (*run, error) {
	s, v, place, err := both(op, send, recv, 1, len(c.peers().procs))
	if err != nil {
		return nil, err
	}
	r, err := c.allgather(op, s, v)
	return landingIn(r, place, err)
}

func (c *Comm) alltoallBuf(op string, send, recv Buf) (*run, error) {
	s, v, place, err := both(op, send, recv, len(c.peers().procs), len(c.peers().procs))
	if err != nil {
		return nil, err
	}
	r, err := c.alltoall(op, s, v)
	return landingIn(r, place, err)
}

// combinedBoth looks at two Bufs of an operation that combines.
func combinedBoth(op string, send, recv Buf) (s, r vec, err error) {
	if s, err = send.combined(op); err == nil {
		r, err = recv.combined(op)
	}
	return s, r, err
}

func (c *Comm) reduceBuf(op string, send, recv Buf, o Op, root int) (*run, error) {
	c.insignificant(root, &recv, &send)
	s, r, err := combinedBoth(op, send, recv)
	if err != nil {
		return nil, err
	}
	return c.reduce(op, s, r, o, root)
}

func (c *Comm) allreduceBuf(op string, send, recv Buf, o Op) (*run, error) {
	s, r, err := combinedBoth(op, send, recv)
	if err != nil {
		return nil, err
	}
	return c.allreduce(op, s, r, o)
}

func (c *Comm) scanBuf(op string, k coll.Collective, send, recv Buf, o Op) (*run, error) {
	if k == coll.OpExscan && c.rank == 0 && !send.zero() {
		recv = Buf{}
	}
	s, r, err := combinedBoth(op, send, recv)
	if err != nil {
		return nil, err
	}
	return c.scan(op, k, s, r, o)
}

func (c *Comm) reduceScatterBlockBuf(op string, send, recv Buf, o Op) (*run, error) {
	s, r, err := combinedBoth(op, send, recv)
	if err != nil {
		return nil, err
	}
	return c.reduceScatterBlock(op, s, r, o)
}

// blocks are Bufs packed behind each other.
func blocks(op string, bufs []Buf) (v vec, l Layout, err error) {
	v.each, v.b = 1, []byte{}
	for _, b := range bufs {
		m, err := b.packed(op)
		if err != nil {
			return v, l, err
		}
		v.b = append(v.b, m...)
		l.Counts = append(l.Counts, len(m))
		l.Displs = append(l.Displs, len(v.b)-len(m))
	}
	v.n = len(v.b)
	return v, l, nil
}

// scatterBlocks is the inverse of blocks.
func scatterBlocks(bufs []Buf, v vec, l Layout) error {
	for i, b := range bufs {
		m := v.b[l.Displs[i] : l.Displs[i]+l.Counts[i]]
		if _, err := b.typ.Unpack(b.mem, m, b.origin, b.count); err != nil {
			return err
		}
	}
	return nil
}

func (c *Comm) alltoallw(op string, send, recv []Buf) (*run, error) {
	n := len(c.peers().procs)
	if send == nil {
		if c.Inter() {
			return nil, inPlaceInter(op)
		}
		send = recv
	}
	if len(send) != n || len(recv) != n {
		return nil, fail(op, ErrCount, "%d and %d buffers for %d ranks", len(send), len(recv), n)
	}
	s, sl, err := blocks(op, send)
	if err != nil {
		return nil, err
	}
	v, rl, err := blocks(op, recv)
	if err != nil {
		return nil, err
	}
	a := coll.Args{Counts: sl.Counts, Displs: sl.Displs, RecvCounts: rl.Counts, RecvDispls: rl.Displs}
	var r *run
	if c.Inter() {
		r, err = c.interAlltoall(op, a, s, v)
	} else if err = c.ownBlock(op, a, "bytes"); err == nil {
		r = c.paced(hint.Alltoallw, c.scheduled(coll.OpAlltoallw, a, s, v))
	}
	if err != nil {
		return nil, err
	}
	c.placing(r, recv, v, rl)
	return r, nil
}

func (c *Comm) neighborAlltoallw(op string, send, recv []Buf) (*run, error) {
	a, err := c.neighborArgs(op)
	if err != nil {
		return nil, err
	}
	if len(send) != len(a.Dests) || len(recv) != len(a.Sources) {
		return nil, fail(op, ErrCount, "%d and %d buffers for %d and %d neighbours", len(send), len(recv), len(a.Dests), len(a.Sources))
	}
	s, sl, err := blocks(op, send)
	if err != nil {
		return nil, err
	}
	v, rl, err := blocks(op, recv)
	if err != nil {
		return nil, err
	}
	a.Counts, a.Displs, a.RecvCounts, a.RecvDispls = sl.Counts, sl.Displs, rl.Counts, rl.Displs
	r := c.scheduled(coll.OpNeighborAlltoallw, a, s, v)
	c.placing(r, recv, v, rl)
	return r, nil
}

// placing has a run take its blocks apart at the end, and each message be
// converted by the type of the block it lands in.
func (c *Comm) placing(r *run, recv []Buf, v vec, l Layout) {
	r.finish = func() error { return scatterBlocks(recv, v, l) }
	r.swapAt = func(off int) engine.Swapper {
		for i := range recv {
			if off >= l.Displs[i] && off < l.Displs[i]+l.Counts[i] {
				return recv[i].typ
			}
		}
		return nil
	}
}

// goType is the Go type of the elements.
func (v vec) goType() reflect.Type { return v.elem }

// typeName says what the elements are, for people.
func (v vec) typeName() string {
	if v.elem != nil {
		return v.elem.String()
	}
	if v.typ != nil {
		return v.typ.String()
	}
	return "nothing"
}
