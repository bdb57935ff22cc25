package datatype

import (
	"fmt"
	"slices"
	"strings"
)

// Combiner is the constructor that made a type.
type Combiner uint8

// The combiners of MPI 4.1 section 5.1.13, and Received for a type that Decode
// has rebuilt, whose making is not known here.
const (
	Named Combiner = iota
	DupOf
	ContiguousOf
	VectorOf
	HvectorOf
	IndexedOf
	HindexedOf
	IndexedBlockOf
	HindexedBlockOf
	StructOf
	SubarrayOf
	DarrayOf
	ResizedOf
	Received
)

var combiners = [...]string{
	Named: "named", DupOf: "dup", ContiguousOf: "contiguous", VectorOf: "vector", HvectorOf: "hvector",
	IndexedOf: "indexed", HindexedOf: "hindexed", IndexedBlockOf: "indexed_block", HindexedBlockOf: "hindexed_block",
	StructOf: "struct", SubarrayOf: "subarray", DarrayOf: "darray", ResizedOf: "resized", Received: "received",
}

// String is MPI's name of the combiner in lower case, without its prefix.
func (c Combiner) String() string {
	if int(c) >= len(combiners) {
		return "invalid"
	}
	return combiners[c]
}

// recipe is how a type was made. ints are MPI's integer arguments in the order
// of MPI_Type_get_contents, addrs the ones in bytes.
type recipe struct {
	combiner Combiner
	ints     []int
	addrs    []int
	types    []*Type
}

// Contents are the arguments of the call that made a type (MPI 4.1 section
// 5.1.13, MPI_Type_get_contents), in that section's order. The slices are the
// caller's.
type Contents struct {
	Combiner Combiner
	Ints     []int   // counts, block lengths, displacements in items, order, …
	Addrs    []int   // displacements, strides and bounds in bytes
	Types    []*Type // what it was made from; types are immutable, so these are the very ones
}

// Envelope returns the combiner and how many integers, addresses and types
// Contents has.
func (t *Type) Envelope() (c Combiner, ints, addrs, types int) {
	return t.made.combiner, len(t.made.ints), len(t.made.addrs), len(t.made.types)
}

// Contents returns how t was made; a named or received type has no arguments.
func (t *Type) Contents() Contents {
	return Contents{t.made.combiner, slices.Clone(t.made.ints), slices.Clone(t.made.addrs), slices.Clone(t.made.types)}
}

// String shows how the type was made, in the manner of vector(2 3 4; int32),
// shortened where it is long or deep.
func (t *Type) String() string {
	var b strings.Builder
	t.describe(&b, 4)
	return b.String()
}

const shownArgs = 8

func (t *Type) describe(b *strings.Builder, depth int) {
	switch {
	case t == nil:
		b.WriteString("nil")
		return
	case t.made.combiner == Named && t.lay.n == nil:
		b.WriteString("empty")
		return
	case t.made.combiner == Named:
		b.WriteString(t.lay.n.kind.String())
		return
	case depth == 0:
		b.WriteString("…")
		return
	}
	b.WriteString(t.made.combiner.String() + "(")
	if t.made.combiner == Received {
		fmt.Fprintf(b, "%d bytes, extent %d)", t.Size(), t.Extent())
		return
	}
	sep := ""
	for _, args := range [][]int{t.made.ints, t.made.addrs} {
		if len(args) == 0 {
			continue
		}
		shown := args[:min(len(args), shownArgs)]
		b.WriteString(sep + strings.Trim(fmt.Sprint(shown), "[]"))
		if len(shown) < len(args) {
			b.WriteString(" …")
		}
		sep = "; "
	}
	for i, sub := range t.made.types {
		b.WriteString(sep)
		if i == shownArgs {
			b.WriteString("…")
			break
		}
		sub.describe(b, depth-1)
		sep = ", "
	}
	b.WriteString(")")
}
