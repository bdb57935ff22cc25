package datatype

import (
	"fmt"
	"slices"
)

// fail gives an error of a constructor its name.
func fail(op string, err error, format string, args ...any) error {
	if format == "" {
		return fmt.Errorf("datatype: %s: %w", op, err)
	}
	return fmt.Errorf("datatype: %s: "+format+": %w", append(append([]any{op}, args...), err)...)
}

// finish is assemble with the constructor's name on its error.
func (c *calc) finish(op string, lay placed, m mark, align int, made recipe) (*Type, error) {
	t, err := c.assemble(lay, m, align, made)
	if err != nil {
		return nil, fail(op, err, "")
	}
	return t, nil
}

// block is n items of t one extent apart, the first at displacement at.
func (c *calc) block(t *Type, n, at int) (placed, mark) {
	p := c.loop(n, t.Extent(), t.lay)
	p.at = c.add(p.at, at)
	return p, c.shifted(c.repeated(t.mark, n, t.Extent()), at)
}

// Dup makes a type of the same map and bounds (MPI_Type_dup).
func Dup(t *Type) (*Type, error) {
	if t == nil {
		return nil, fail("dup", ErrType, "nil type")
	}
	d := *t
	d.made = recipe{combiner: DupOf, types: []*Type{t}}
	return &d, nil
}

// Contiguous is count items of t, one extent apart (MPI_Type_contiguous).
func Contiguous(count int, t *Type) (*Type, error) {
	const op = "contiguous"
	if err := check(op, t, count); err != nil {
		return nil, err
	}
	var c calc
	lay, m := c.block(t, count, 0)
	return c.finish(op, lay, m, t.align, recipe{ContiguousOf, []int{count}, nil, []*Type{t}})
}

// Vector is count blocks of blocklen items of t, which begin stride extents
// apart (MPI_Type_vector).
func Vector(count, blocklen, stride int, t *Type) (*Type, error) {
	const op = "vector"
	if err := check(op, t, count, blocklen); err != nil {
		return nil, err
	}
	var c calc
	made := recipe{VectorOf, []int{count, blocklen, stride}, nil, []*Type{t}}
	return c.vector(op, count, blocklen, c.mul(stride, t.Extent()), t, made)
}

// Hvector is Vector with the stride in bytes (MPI_Type_create_hvector).
func Hvector(count, blocklen, stride int, t *Type) (*Type, error) {
	const op = "hvector"
	if err := check(op, t, count, blocklen); err != nil {
		return nil, err
	}
	var c calc
	made := recipe{HvectorOf, []int{count, blocklen}, []int{stride}, []*Type{t}}
	return c.vector(op, count, blocklen, stride, t, made)
}

func (c *calc) vector(op string, count, blocklen, stride int, t *Type, made recipe) (*Type, error) {
	b, m := c.block(t, blocklen, 0)
	return c.finish(op, c.loop(count, stride, b), c.repeated(m, count, stride), t.align, made)
}

// Indexed is blocks of items of t: block i has blocklens[i] items and begins
// displs[i] extents from the origin (MPI_Type_indexed). The slices are copied.
func Indexed(blocklens, displs []int, t *Type) (*Type, error) {
	const op = "indexed"
	if err := checkLists(op, t, blocklens, displs); err != nil {
		return nil, err
	}
	var c calc
	ints := slices.Concat([]int{len(displs)}, blocklens, displs)
	return c.indexed(op, blocklens, displs, t.Extent(), t, recipe{IndexedOf, ints, nil, []*Type{t}})
}

// Hindexed is Indexed with the displacements in bytes (MPI_Type_create_hindexed).
func Hindexed(blocklens, displs []int, t *Type) (*Type, error) {
	const op = "hindexed"
	if err := checkLists(op, t, blocklens, displs); err != nil {
		return nil, err
	}
	var c calc
	ints := slices.Concat([]int{len(displs)}, blocklens)
	return c.indexed(op, blocklens, displs, 1, t, recipe{HindexedOf, ints, slices.Clone(displs), []*Type{t}})
}

// IndexedBlock is Indexed with one length for all blocks (MPI_Type_create_indexed_block).
func IndexedBlock(blocklen int, displs []int, t *Type) (*Type, error) {
	const op = "indexed_block"
	if err := check(op, t, blocklen); err != nil {
		return nil, err
	}
	var c calc
	ints := slices.Concat([]int{len(displs), blocklen}, displs)
	made := recipe{IndexedBlockOf, ints, nil, []*Type{t}}
	return c.indexed(op, []int{blocklen}, displs, t.Extent(), t, made)
}

// HindexedBlock is IndexedBlock with the displacements in bytes
// (MPI_Type_create_hindexed_block).
func HindexedBlock(blocklen int, displs []int, t *Type) (*Type, error) {
	const op = "hindexed_block"
	if err := check(op, t, blocklen); err != nil {
		return nil, err
	}
	var c calc
	made := recipe{HindexedBlockOf, []int{len(displs), blocklen}, slices.Clone(displs), []*Type{t}}
	return c.indexed(op, []int{blocklen}, displs, 1, t, made)
}

// indexed places blocks at displs, each unit bytes. One block length serves all.
func (c *calc) indexed(op string, lens, displs []int, unit int, t *Type, made recipe) (*Type, error) {
	ps := make([]placed, 0, len(displs))
	var bounds, m mark
	var b placed
	last := -1
	for i, d := range displs {
		n := lens[min(i, len(lens)-1)]
		if n == 0 {
			continue
		}
		if n != last { // blocks of one length share their nodes
			b, m = c.block(t, n, 0)
			last = n
		}
		d = c.mul(d, unit)
		ps = append(ps, placed{c.add(b.at, d), b.n})
		bounds = bounds.with(c.shifted(m, d))
	}
	return c.finish(op, c.list(ps), bounds, t.align, made)
}

// Struct is blocks of several types: block i has blocklens[i] items of types[i]
// and begins displs[i] bytes from the origin (MPI_Type_create_struct). The
// slices are copied.
func Struct(blocklens, displs []int, types []*Type) (*Type, error) {
	const op = "struct"
	if len(types) != len(displs) {
		return nil, fail(op, ErrCount, "%d displacements, %d types", len(displs), len(types))
	}
	if err := checkLists(op, &Type{}, blocklens, displs); err != nil {
		return nil, err
	}
	var c calc
	var bounds mark
	ps, align := make([]placed, 0, len(types)), 0
	for i, t := range types {
		if t == nil {
			return nil, fail(op, ErrType, "type %d is nil", i)
		}
		if blocklens[i] == 0 {
			continue
		}
		b, m := c.block(t, blocklens[i], displs[i])
		ps = append(ps, b)
		bounds = bounds.with(m)
		align = max(align, t.align)
	}
	ints := slices.Concat([]int{len(types)}, blocklens)
	return c.finish(op, c.list(ps), bounds, align, recipe{StructOf, ints, slices.Clone(displs), slices.Clone(types)})
}

// Resized is t with other bounds: lower bound lb and extent in bytes, which its
// data may exceed on either side (MPI_Type_create_resized).
func Resized(t *Type, lb, extent int) (*Type, error) {
	const op = "resized"
	if t == nil {
		return nil, fail(op, ErrType, "nil type")
	}
	var c calc
	m := mark{true, lb, c.add(lb, extent)}
	return c.finish(op, t.lay, m, t.align, recipe{ResizedOf, nil, []int{lb, extent}, []*Type{t}})
}

// check refuses a nil type and negative counts.
func check(op string, t *Type, counts ...int) error {
	if t == nil {
		return fail(op, ErrType, "nil type")
	}
	for _, n := range counts {
		if n < 0 {
			return fail(op, ErrCount, "%d", n)
		}
	}
	return nil
}

func checkLists(op string, t *Type, blocklens, displs []int) error {
	if len(blocklens) != len(displs) {
		return fail(op, ErrCount, "%d block lengths, %d displacements", len(blocklens), len(displs))
	}
	for i, n := range blocklens {
		if n < 0 {
			return fail(op, ErrCount, "block %d has length %d", i, n)
		}
	}
	return check(op, t)
}
