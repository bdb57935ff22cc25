package datatype

import "math/bits"

type nodeOp uint8

const (
	opRun  nodeOp = iota // count values of one kind, one after the other
	opLoop               // count times body, stride bytes apart
	opList               // parts, each at its displacement
)

// node is a piece of layout that is not empty. Its origin is the first byte
// that it packs, so that equal shapes are equal wherever they lie. Nodes are
// immutable and shared between types.
type node struct {
	op    nodeOp
	dense bool // packs as one copy: packed byte i is byte i of memory
	bools bool // has a Bool somewhere
	kind  Kind // the only kind below, Invalid if there are several
	word  int  // bytes of every word below that byte order concerns, 0 if they differ
	depth int  // of the tree

	size   int // packed bytes, > 0
	lo, hi int // first byte touched and the one after the last; lo ≤ 0
	sig    sig

	count  int   // opRun: values; opLoop: repetitions, ≥ 2
	stride int   // opLoop: bytes
	body   *node // opLoop
	parts  []part
}

// placed is a node with the displacement of its origin; no node is no data.
type placed struct {
	at int
	n  *node
}

// part is an element of a list: at is its displacement from the list's origin,
// pos where its packed bytes begin.
type part struct {
	placed
	pos int
}

// calc does integer arithmetic and remembers whether a result did not fit.
type calc struct{ over bool }

func (c *calc) add(a, b int) int {
	s := a + b
	if (s > a) != (b > 0) {
		c.over = true
	}
	return s
}

func (c *calc) mul(a, b int) int {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if hi != 0 || lo > uint64(maxInt) {
		c.over = true
	}
	return a * b
}

const maxInt = int(^uint(0) >> 1)

func magnitude(a int) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

// err turns a remembered overflow into ErrOverflow.
func (c *calc) err() error {
	if c.over {
		return ErrOverflow
	}
	return nil
}

// run is count ≥ 1 values of k.
func (c *calc) run(k Kind, count int) *node {
	size := c.mul(count, k.Size())
	return &node{
		op: opRun, dense: true, bools: k == Bool, kind: k, word: kinds[k].word, depth: 1,
		size: size, hi: size, sig: sigOf(k).times(count), count: count,
	}
}

// loop repeats p count times, stride bytes apart.
func (c *calc) loop(count, stride int, p placed) placed {
	if count <= 0 || p.n == nil {
		return placed{}
	}
	if count == 1 {
		return p
	}
	b := p.n
	if b.op == opRun && stride == b.size {
		return placed{p.at, c.run(b.kind, c.mul(count, b.count))}
	}
	if b.op == opLoop && stride == c.mul(b.count, b.stride) {
		count, stride, b = c.mul(count, b.count), b.stride, b.body
	}
	last := c.mul(count-1, stride)
	n := &node{
		op: opLoop, dense: b.dense && stride == b.size, bools: b.bools, kind: b.kind, word: b.word, depth: b.depth + 1,
		size: c.mul(count, b.size), lo: c.add(b.lo, min(0, last)), hi: c.add(b.hi, max(0, last)),
		count: count, stride: stride, body: b,
	}
	if !c.over {
		n.sig = b.sig.times(count)
	}
	return placed{p.at, n}
}

// list puts parts together in the order given. It overwrites the slice.
func (c *calc) list(ps []placed) placed {
	ps = c.coalesce(ps)
	if len(ps) == 0 {
		return placed{}
	}
	if len(ps) == 1 {
		return ps[0]
	}
	if stride, ok := c.regular(ps); ok {
		return c.loop(len(ps), stride, ps[0])
	}
	ps = c.group(ps)
	if len(ps) == 1 { // dense as a whole
		return ps[0]
	}
	return c.listOf(ps)
}

// listOf makes the node of a list that needs no more simplification.
func (c *calc) listOf(ps []placed) placed {
	first, base := ps[0].n, ps[0].at
	n := &node{op: opList, dense: true, kind: first.kind, word: first.word, parts: make([]part, len(ps))}
	for i, p := range ps {
		p.at = c.add(p.at, -base)
		n.parts[i] = part{p, n.size}
		n.dense = n.dense && p.n.dense && p.at == n.size
		n.bools = n.bools || p.n.bools
		if p.n.kind != n.kind {
			n.kind = Invalid
		}
		if p.n.word != n.word {
			n.word = 0
		}
		n.depth = max(n.depth, p.n.depth+1)
		n.size = c.add(n.size, p.n.size)
		n.lo = min(n.lo, c.add(p.at, p.n.lo))
		n.hi = max(n.hi, c.add(p.at, p.n.hi))
		n.sig = n.sig.then(p.n.sig)
	}
	return placed{base, n}
}

// coalesce drops what is empty and joins runs of a kind that touch, in place.
func (c *calc) coalesce(ps []placed) []placed {
	out := ps[:0]
	for i := 0; i < len(ps); i++ {
		p := ps[i]
		if p.n == nil {
			continue
		}
		if p.n.op != opRun {
			out = append(out, p)
			continue
		}
		count, end := p.n.count, c.add(p.at, p.n.size)
		for i+1 < len(ps) {
			q := ps[i+1]
			if q.n != nil {
				if q.n.op != opRun || q.n.kind != p.n.kind || q.at != end {
					break
				}
				count, end = c.add(count, q.n.count), c.add(end, q.n.size)
			}
			i++
		}
		if count != p.n.count {
			p.n = c.run(p.n.kind, count)
		}
		out = append(out, p)
	}
	return out
}

// regular reports whether the parts are one shape at equal distances.
func (c *calc) regular(ps []placed) (stride int, ok bool) {
	stride = c.add(ps[1].at, -ps[0].at)
	for i := 1; i < len(ps); i++ {
		if c.add(ps[i].at, -ps[i-1].at) != stride || !same(ps[0].n, ps[i].n) {
			return 0, false
		}
	}
	return stride, true
}

// same reports whether two nodes are plainly of one shape. Lists that were made
// apart are not compared.
func same(a, b *node) bool {
	for {
		if a == b {
			return true
		}
		if a.op != b.op || a.op == opList || a.count != b.count {
			return false
		}
		if a.op == opRun {
			return a.kind == b.kind
		}
		if a.stride != b.stride {
			return false
		}
		a, b = a.body, b.body
	}
}

// group makes one dense list of each stretch of neighbours that could be moved
// by one copy, such as the fields of a struct between two gaps.
func (c *calc) group(ps []placed) []placed {
	var out []placed
	for i := 0; i < len(ps); {
		j, end := i+1, c.add(ps[i].at, ps[i].n.size)
		for ps[i].n.dense && j < len(ps) && ps[j].n.dense && ps[j].at == end {
			end = c.add(end, ps[j].n.size)
			j++
		}
		if j-i > 1 {
			out = append(out, c.listOf(ps[i:j]))
		} else {
			out = append(out, ps[i])
		}
		i = j
	}
	return out
}
