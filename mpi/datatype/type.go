package datatype

// Type is a datatype: a type map, that is a sequence of basic kinds with their
// displacements, and the bounds within which it repeats (MPI 4.1 section 5.1).
// It is immutable. The zero Type is empty: it has no data and extent 0.
type Type struct {
	lay    placed
	mark   mark
	lb, ub int
	align  int // the strictest of its kinds; 0 without data
	made   recipe
}

// mark is a pair of explicit bounds, MPI's lb_marker and ub_marker. They are
// inherited: in a type map with markers only the markers count.
type mark struct {
	set    bool
	lb, ub int
}

// shifted is the mark d bytes on.
func (c *calc) shifted(m mark, d int) mark {
	if m.set {
		m.lb, m.ub = c.add(m.lb, d), c.add(m.ub, d)
	}
	return m
}

// repeated bounds count marks that are stride bytes apart.
func (c *calc) repeated(m mark, count, stride int) mark {
	if !m.set || count <= 0 {
		return mark{}
	}
	last := c.mul(count-1, stride)
	m.lb, m.ub = c.add(m.lb, min(0, last)), c.add(m.ub, max(0, last))
	return m
}

// with is the union of two marks.
func (m mark) with(o mark) mark {
	if !m.set {
		return o
	}
	if o.set {
		m.lb, m.ub = min(m.lb, o.lb), max(m.ub, o.ub)
	}
	return m
}

// assemble finishes a type: without markers its bounds are those of its data,
// and its extent is rounded up to the strictest alignment (MPI 4.1 section 5.1,
// the ε of the definition of ub). Every constructor ends here.
func (c *calc) assemble(lay placed, m mark, align int, made recipe) (*Type, error) {
	t := &Type{lay: lay, mark: m, align: align, made: made}
	if lay.n == nil {
		t.align = 0
	}
	switch {
	case m.set:
		t.lb, t.ub = m.lb, m.ub
	case lay.n != nil:
		t.lb, t.ub = c.add(lay.at, lay.n.lo), c.add(lay.at, lay.n.hi)
		if r := c.add(t.ub, -t.lb) % align; r > 0 {
			t.ub = c.add(t.ub, align-r)
		}
	}
	if t.lb == -maxInt-1 || lay.n != nil && c.add(lay.at, lay.n.lo) == -maxInt-1 { // which has no negative
		c.over = true
	}
	c.add(t.ub, -t.lb)           // the extent
	if lay.n != nil && !c.over { // and the true bounds
		c.add(c.add(lay.at, lay.n.hi), -c.add(lay.at, lay.n.lo))
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return t, nil
}

// basics are the types of the kinds, so that each exists once.
var basics = func() (all [numKinds]*Type) {
	for k := Byte; k < numKinds; k++ {
		var c calc
		t, err := c.assemble(placed{n: c.run(k, 1)}, mark{}, kinds[k].align, recipe{combiner: Named})
		if err != nil {
			panic(err) // a kind whose size does not fit an int
		}
		all[k] = t
	}
	return all
}()

// Basic is the type of one value of k, the same pointer every time. It is nil
// for an invalid kind, and every constructor refuses nil.
func Basic(k Kind) *Type {
	if !k.Valid() {
		return nil
	}
	return basics[k]
}

// Size is the bytes of data in an item, which is what it takes in a message.
func (t *Type) Size() int {
	if t.lay.n == nil {
		return 0
	}
	return t.lay.n.size
}

// Extent is the distance in bytes from an item to the next: UB - LB. It may be
// negative for a resized type.
func (t *Type) Extent() int { return t.ub - t.lb }

// LB is the displacement of the lower bound, in bytes.
func (t *Type) LB() int { return t.lb }

// UB is the displacement of the upper bound, in bytes.
func (t *Type) UB() int { return t.ub }

// TrueExtent returns the bounds of the data alone, without markers and padding
// (MPI_Type_get_true_extent): the displacement of its first byte in memory and
// how many bytes there are from there to its last.
func (t *Type) TrueExtent() (lb, extent int) {
	if t.lay.n == nil {
		return 0, 0
	}
	return t.lay.at + t.lay.n.lo, t.lay.n.hi - t.lay.n.lo
}

// Elems is the number of basic elements in an item.
func (t *Type) Elems() int {
	if t.lay.n == nil {
		return 0
	}
	return t.lay.n.sig.n
}

// Uniform is the kind of all elements of t; ok is false if there are several
// kinds or no element.
func (t *Type) Uniform() (k Kind, ok bool) {
	if t.lay.n == nil || t.lay.n.kind == Invalid {
		return Invalid, false
	}
	return t.lay.n.kind, true
}

// Contiguous reports whether count items are one block of memory in packed
// order, so that a message may leave from it or land in it directly. The block
// has PackSize(count) bytes and begins off bytes from the items' origin. A type
// with a Bool is contiguous like any other: what lands directly is not looked at, so who
// sends must have sent booleans, as MPI wants (4.1 §3.3.1).
func (t *Type) Contiguous(count int) (off int, ok bool) {
	n := t.lay.n
	if n == nil || count <= 0 {
		return 0, true
	}
	return t.lay.at, n.dense && (count == 1 || t.Extent() == n.size)
}

// Span returns the bytes that count items touch, from lo up to and without hi,
// relative to the items' origin; both are 0 if they touch none.
func (t *Type) Span(count int) (lo, hi int, err error) {
	if count < 0 {
		return 0, 0, ErrCount
	}
	if count == 0 || t.lay.n == nil {
		return 0, 0, nil
	}
	var c calc
	last := c.mul(count-1, t.Extent())
	lo = c.add(c.add(t.lay.at, t.lay.n.lo), min(0, last))
	hi = c.add(c.add(t.lay.at, t.lay.n.hi), max(0, last))
	return lo, hi, c.err()
}

// Elements is the number of basic elements in the first bytes of a packed
// message of items of t (MPI_Get_elements). ok is false if the last element is
// cut, or if t has no data and there are bytes.
func (t *Type) Elements(bytes int) (n int, ok bool) {
	if bytes <= 0 {
		return 0, bytes == 0
	}
	at := t.lay.n
	if at == nil {
		return 0, false
	}
	n, bytes = bytes/at.size*at.sig.n, bytes%at.size
	for bytes > 0 {
		var sub *node
		switch at.op {
		case opRun:
			each := at.kind.Size()
			return n + bytes/each, bytes%each == 0
		case opLoop:
			sub = at.body
			n, bytes = n+bytes/sub.size*sub.sig.n, bytes%sub.size
		case opList:
			i := at.find(bytes)
			sub = at.parts[i].n
			for _, p := range at.parts[:i] {
				n += p.n.sig.n
			}
			bytes -= at.parts[i].pos
		}
		at = sub
	}
	return n, true
}

// find is the index of the part in which packed byte pos of a list lies.
func (n *node) find(pos int) int {
	i, j := 0, len(n.parts)
	for j-i > 1 {
		if m := int(uint(i+j) >> 1); n.parts[m].pos <= pos {
			i = m
		} else {
			j = m
		}
	}
	return i
}
