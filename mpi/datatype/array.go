package datatype

import "slices"

// Order is how an array lies in memory.
type Order uint8

// C: the last index changes fastest. Fortran: the first does.
const (
	C Order = iota
	Fortran
)

// String is "C" or "Fortran".
func (o Order) String() string {
	if o == Fortran {
		return "Fortran"
	}
	return "C"
}

// Dist is how one dimension of a distributed array is dealt to processes.
type Dist uint8

// The distributions of MPI 4.1 section 5.1.4: the dimension is not distributed,
// in one block for each process, or in blocks dealt round and round.
const (
	None Dist = iota
	Block
	Cyclic
)

// DefaultArg asks for the default block: ⌈size/processes⌉ for Block, 1 for Cyclic.
const DefaultArg = -1

// fastest yields the dimensions from the one that changes fastest in memory on.
func (o Order) fastest(ndims int) []int {
	ds := make([]int, ndims)
	for i := range ds {
		ds[i] = i
		if o == C {
			ds[i] = ndims - 1 - i
		}
	}
	return ds
}

// Subarray is the part of an n-dimensional array of t that begins at starts and
// has subsizes items in each dimension; its extent is that of the whole array of
// sizes (MPI_Type_create_subarray). Starts count from 0 in either order.
func Subarray(sizes, subsizes, starts []int, order Order, t *Type) (*Type, error) {
	const op = "subarray"
	if err := check(op, t); err != nil {
		return nil, err
	}
	n := len(sizes)
	if n == 0 || len(subsizes) != n || len(starts) != n {
		return nil, fail(op, ErrArg, "%d sizes, %d subsizes, %d starts", n, len(subsizes), len(starts))
	}
	if order > Fortran {
		return nil, fail(op, ErrArg, "order %d", order)
	}
	for i, size := range sizes {
		if size < 1 || subsizes[i] < 1 || subsizes[i] > size || starts[i] < 0 || starts[i] > size-subsizes[i] {
			return nil, fail(op, ErrArg, "dimension %d: %d items from %d on, of %d", i, subsizes[i], starts[i], size)
		}
	}
	var c calc
	lay, stride := t.lay, t.Extent()
	for _, d := range order.fastest(n) {
		lay = c.loop(subsizes[d], stride, lay)
		lay.at = c.add(lay.at, c.mul(starts[d], stride))
		stride = c.mul(stride, sizes[d])
	}
	ints := slices.Concat([]int{n}, sizes, subsizes, starts, []int{int(order)})
	return c.finish(op, lay, mark{true, 0, stride}, t.align, recipe{SubarrayOf, ints, nil, []*Type{t}})
}

// Darray is the part of a global array of gsizes items of t that belongs to
// process rank of a grid of size processes, psizes in each dimension (ranks in C
// order, whatever the array's), as HPF deals it: dists and dargs, the block
// lengths, say how (MPI_Type_create_darray). Its extent is the whole array's.
func Darray(size, rank int, gsizes []int, dists []Dist, dargs, psizes []int, order Order, t *Type) (*Type, error) {
	const op = "darray"
	if err := check(op, t); err != nil {
		return nil, err
	}
	n := len(gsizes)
	if n == 0 || len(dists) != n || len(dargs) != n || len(psizes) != n {
		return nil, fail(op, ErrArg, "%d sizes, %d distributions, %d arguments, %d process counts", n, len(dists), len(dargs), len(psizes))
	}
	if order > Fortran {
		return nil, fail(op, ErrArg, "order %d", order)
	}
	coords, err := grid(size, rank, psizes)
	if err != nil {
		return nil, err
	}
	var c calc
	lay, stride := t.lay, t.Extent()
	for _, d := range order.fastest(n) {
		b, err := share(dists[d], gsizes[d], dargs[d], psizes[d])
		if err != nil {
			return nil, err
		}
		lay = c.deal(lay, stride, gsizes[d], psizes[d], coords[d], b)
		stride = c.mul(stride, gsizes[d])
	}
	ints := slices.Concat([]int{size, rank, n}, gsizes)
	for _, d := range dists {
		ints = append(ints, int(d))
	}
	ints = slices.Concat(ints, dargs, psizes, []int{int(order)})
	return c.finish(op, lay, mark{true, 0, stride}, t.align, recipe{DarrayOf, ints, nil, []*Type{t}})
}

// grid returns the coordinates of rank among psizes processes.
func grid(size, rank int, psizes []int) ([]int, error) {
	const op = "darray"
	var c calc
	all := 1
	for i, p := range psizes {
		if p < 1 {
			return nil, fail(op, ErrArg, "dimension %d has %d processes", i, p)
		}
		all = c.mul(all, p)
	}
	if c.over || all != size || rank < 0 || rank >= size {
		return nil, fail(op, ErrArg, "rank %d of %d in a grid of %v", rank, size, psizes)
	}
	coords := make([]int, len(psizes))
	for i := len(psizes) - 1; i >= 0; i-- {
		coords[i], rank = rank%psizes[i], rank/psizes[i]
	}
	return coords, nil
}

// share returns the block length of one dimension of gsize items for procs processes.
func share(dist Dist, gsize, arg, procs int) (int, error) {
	const op = "darray"
	if gsize < 1 {
		return 0, fail(op, ErrArg, "a dimension of %d items", gsize)
	}
	b := arg
	switch dist {
	case None:
		if procs != 1 { // arg is ignored
			return 0, fail(op, ErrArg, "%d processes for a dimension that is not distributed", procs)
		}
		return gsize, nil
	case Block:
		if arg == DefaultArg {
			b = (gsize-1)/procs + 1
		}
		if b < 1 || b <= (gsize-1)/procs {
			return 0, fail(op, ErrArg, "%d processes with blocks of %d do not hold %d items", procs, arg, gsize)
		}
	case Cyclic:
		if arg == DefaultArg {
			b = 1
		}
		if b < 1 {
			return 0, fail(op, ErrArg, "cyclic blocks of %d", arg)
		}
	default:
		return 0, fail(op, ErrArg, "distribution %d", dist)
	}
	return min(b, gsize), nil
}

// deal lays out one dimension: of gsize items, stride bytes apart, those in
// blocks of b that the process at coord of procs gets. Block and None are
// cyclic with a single round.
func (c *calc) deal(item placed, stride, gsize, procs, coord, b int) placed {
	if coord > (gsize-1)/b { // its first block lies behind the end
		return placed{}
	}
	first, round := coord*b, c.mul(procs, b)
	if c.over {
		return placed{}
	}
	blocks := (gsize-first-1)/round + 1
	rest := min(b, gsize-first-(blocks-1)*round) // items in the last block
	full := blocks
	if rest < b {
		full--
	}
	step := c.mul(round, stride)
	head := c.loop(full, step, c.loop(b, stride, item))
	tail := c.loop(rest, stride, item)
	tail.at = c.add(tail.at, c.mul(full, step))
	if full == blocks {
		tail = placed{}
	}
	out := c.list([]placed{head, tail})
	out.at = c.add(out.at, c.mul(first, stride))
	return out
}
