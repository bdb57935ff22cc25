package coll

// vector is a buffer of one block for each rank, in the order of a layout. Where
// positions are ranks it is the caller's buffer, otherwise a copy in scratch.
type vector struct {
	b    *builder
	c    *crew
	at   []int // where the block at each position begins, in elements, and the end
	base Ref
}

// newVector puts the blocks of in, which follow each other by rank, in order.
func newVector(b *builder, c *crew, in Ref) *vector {
	v := emptyVector(b, c)
	v.base = in
	if c.identity() {
		return v
	}
	v.base = b.alloc(in.N)
	from := borders(b.t, &b.a)
	for p, r := range c.order {
		b.copy(b.within(in, from[r], from[r+1]), b.within(v.base, v.at[p], v.at[p+1]))
	}
	b.next()
	return v
}

// emptyVector only says where blocks would be.
func emptyVector(b *builder, c *crew) *vector {
	v := &vector{b: b, c: c, at: make([]int, b.size+1)}
	for p, r := range c.order {
		n := b.a.Count
		if b.a.Counts != nil {
			n = b.a.Counts[r]
		}
		v.at[p+1] = v.at[p] + n
	}
	return v
}

// site returns the elements of a site's ranks, block those of the rank at a
// position.
func (v *vector) site(s int) (lo, hi int)  { return v.at[v.c.sites[s]], v.at[v.c.sites[s+1]] }
func (v *vector) block(p int) (lo, hi int) { return v.at[p], v.at[p+1] }

// largest is the number of elements of the site that has most.
func (v *vector) largest() int {
	most := 0
	for s := range v.c.nsites() {
		lo, hi := v.site(s)
		most = max(most, hi-lo)
	}
	return most
}

// toOwners starts sending results, which cover elements [lo, hi), to the ranks of a
// site whose blocks they are.
func (v *vector) toOwners(ranks []int, s int, results []Ref, lo, hi int) {
	for j, r := range ranks {
		blo, bhi := v.block(v.c.sites[s] + j)
		clo, chi := common(lo, hi, blo, bhi)
		for _, res := range results {
			v.b.isend(r, v.b.within(res, clo-lo, chi-lo))
		}
	}
}
