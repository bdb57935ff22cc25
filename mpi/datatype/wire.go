package datatype

import (
	"encoding/binary"
	"fmt"
)

// A type travels when one process describes another's memory: the target's
// datatype of a put, get or accumulate (MPI 4.1 section 12.3). What travels is
// the layout, not how it was made:
//
//	version   1 byte, encodingVersion
//	lb        varint   lower bound, bytes
//	extent    varint   bytes
//	at        varint   displacement of the root
//	nodes     uvarint  how many follow; 0 is a type without data. The last is the root
//	run       0, kind (1 byte), uvarint count
//	loop      1, uvarint count, varint stride, uvarint back
//	list      2, uvarint parts, and for each: varint distance from the one before, uvarint back
//
// back says how many nodes earlier the one meant stands, at least 1, so there
// are no cycles.
const (
	encodingVersion = 1
	maxDepth        = 256 // of a tree that travels; moving data recurses that deep
)

// AppendBinary appends a description of t from which Decode makes an equal type
// on any architecture (encoding.BinaryAppender). Its length follows the number
// of different blocks, not the amount of data: a vector takes some 20 bytes. A
// type nested more than 256 deep is refused with ErrOverflow.
func (t *Type) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, encodingVersion)
	b = binary.AppendVarint(b, int64(t.lb))
	b = binary.AppendVarint(b, int64(t.Extent()))
	b = binary.AppendVarint(b, int64(t.lay.at))
	if t.lay.n == nil {
		return append(b, 0), nil
	}
	if t.lay.n.depth > maxDepth {
		return nil, fmt.Errorf("datatype: encode: %d levels deep: %w", t.lay.n.depth, ErrOverflow)
	}
	e := encoder{index: map[*node]int{}}
	e.node(t.lay.n)
	b = binary.AppendUvarint(b, uint64(len(e.index)))
	return append(b, e.out...), nil
}

// encoder writes each node once, after those it refers to.
type encoder struct {
	index map[*node]int
	out   []byte
}

func (e *encoder) node(n *node) {
	if _, ok := e.index[n]; ok {
		return
	}
	if n.op == opLoop {
		e.node(n.body)
	}
	for i := range n.parts {
		e.node(n.parts[i].n)
	}
	self := len(e.index)
	back := func(o *node) uint64 { return uint64(self - e.index[o]) }
	e.out = append(e.out, byte(n.op))
	switch n.op {
	case opRun:
		e.out = append(e.out, byte(n.kind))
		e.out = binary.AppendUvarint(e.out, uint64(n.count))
	case opLoop:
		e.out = binary.AppendUvarint(e.out, uint64(n.count))
		e.out = binary.AppendVarint(e.out, int64(n.stride))
		e.out = binary.AppendUvarint(e.out, back(n.body))
	case opList:
		e.out = binary.AppendUvarint(e.out, uint64(len(n.parts)))
		last := 0
		for i := range n.parts {
			p := &n.parts[i]
			e.out = binary.AppendVarint(e.out, int64(p.at-last))
			e.out = binary.AppendUvarint(e.out, back(p.n))
			last = p.at
		}
	}
	e.index[n] = self
}

// Decode makes a type of a description that AppendBinary wrote, which must fill
// b. It takes memory in proportion to len(b) whatever the bytes say, and what it
// returns is as safe to use as any type. The error is ErrEncoding, or
// ErrOverflow for a type that this platform cannot address.
func Decode(b []byte) (*Type, error) {
	d := decoder{rest: b}
	if v := d.byte(); v != encodingVersion {
		d.bad = true
	}
	lb, extent, at := d.varint(), d.varint(), d.varint()
	count := d.uvarint()
	if d.bad || count > len(d.rest) {
		return nil, fmt.Errorf("datatype: decode: %w", ErrEncoding)
	}
	root := placed{}
	d.nodes = make([]placed, 0, count)
	for range count {
		root = d.node()
		if d.bad || d.over || root.n == nil || root.n.depth > maxDepth {
			d.bad = d.bad || !d.over
			break
		}
		d.nodes = append(d.nodes, root)
	}
	switch {
	case d.over:
		return nil, fmt.Errorf("datatype: decode: %w", ErrOverflow)
	case d.bad || len(d.rest) > 0:
		return nil, fmt.Errorf("datatype: decode: %w", ErrEncoding)
	}
	root.at = d.add(root.at, at)
	m := mark{true, lb, d.add(lb, extent)}
	return d.finish("decode", root, m, alignOf(d.nodes), recipe{combiner: Received})
}

// alignOf is the strictest alignment of the kinds that nodes consist of.
func alignOf(nodes []placed) int {
	align := 1
	for _, p := range nodes {
		if p.n.op == opRun {
			align = max(align, kinds[p.n.kind].align)
		}
	}
	return align
}

// decoder reads a description. Both its flags stay once they are set.
type decoder struct {
	calc
	bad   bool
	rest  []byte
	nodes []placed
}

func (d *decoder) node() placed {
	switch nodeOp(d.byte()) {
	case opRun:
		k, count := Kind(d.byte()), d.uvarint()
		if d.bad || !k.Valid() || count == 0 {
			break
		}
		return placed{n: d.run(k, count)}
	case opLoop:
		count, stride, body := d.uvarint(), d.varint(), d.back()
		if d.bad {
			break
		}
		return d.loop(count, stride, body)
	case opList:
		return d.parts()
	}
	d.bad = true
	return placed{}
}

func (d *decoder) parts() placed {
	count := d.uvarint()
	if d.bad || count > len(d.rest)/2 { // each takes two bytes or more
		d.bad = true
		return placed{}
	}
	ps, at := make([]placed, count), 0
	for i := range ps {
		at = d.add(at, d.varint())
		p := d.back()
		ps[i] = placed{d.add(p.at, at), p.n}
	}
	if d.bad {
		return placed{}
	}
	return d.list(ps)
}

// back reads a reference to an earlier node.
func (d *decoder) back() placed {
	n := d.uvarint()
	if d.bad || n < 1 || n > len(d.nodes) {
		d.bad = true
		return placed{}
	}
	return d.nodes[len(d.nodes)-n]
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.bad = true
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

func (d *decoder) uvarint() int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	if v > uint64(maxInt) {
		d.over = true
		return 0
	}
	return int(v)
}

func (d *decoder) varint() int {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	if int64(int(v)) != v {
		d.over = true
		return 0
	}
	return int(v)
}
