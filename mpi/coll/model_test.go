package coll

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// problem is a collective operation with inputs and the answers of a sequential
// model.
type problem struct {
	c    Collective
	args []Args
	bufs [][3][]byte
	work [][3][]byte // what the algorithms get, one after another
	want []answer
	op   func(in, inout []byte)
}

// answer is what Recv has to begin with; nothing is asked of what follows.
type answer struct{ recv []byte }

// unused fills what nobody should write to.
const unused = 0xEE

// ordered reports whether the operation is the one that does not commute.
func ordered(a *Args) bool { return !a.Commutes && a.Elem >= 16 }

// put writes element i of a rank's contribution to v. Of an operation that does
// not commute it is an interval of ranks [lo, hi) and the element's number. What
// follows these 8 or 16 bytes stays as it is: elements may be fat, so that large
// buffers have few of them.
func put(v []byte, a *Args, rank, i int) {
	if ordered(a) {
		binary.LittleEndian.PutUint32(v, uint32(rank))
		binary.LittleEndian.PutUint32(v[4:], uint32(rank+1))
		binary.LittleEndian.PutUint64(v[8:], uint64(i))
		return
	}
	h := uint64(rank)<<40 ^ uint64(i+1)*0x9E3779B97F4A7C15
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	if len(v) >= 8 {
		binary.LittleEndian.PutUint64(v, h)
		return
	}
	for k := range v {
		v[k] = byte(h >> (8 * k))
	}
}

// operation is the sum of 64-bit numbers, or the union of intervals that follow
// each other: an interval is spoilt where they do not.
func operation(a *Args) func(in, inout []byte) {
	step := a.Elem
	if !ordered(a) {
		return func(in, inout []byte) {
			for i := 0; i+8 <= len(in); i += step {
				binary.LittleEndian.PutUint64(inout[i:], binary.LittleEndian.Uint64(in[i:])+binary.LittleEndian.Uint64(inout[i:]))
			}
		}
	}
	return func(in, inout []byte) {
		for i := 0; i < len(in); i += step {
			x, y := in[i:i+16], inout[i:i+16]
			follow := binary.LittleEndian.Uint32(x[4:]) == binary.LittleEndian.Uint32(y)
			if !follow || string(x[8:]) != string(y[8:]) {
				binary.LittleEndian.PutUint64(y, 1<<63|binary.LittleEndian.Uint64(y))
				continue
			}
			copy(y[:4], x[:4])
		}
	}
}

// values is elements [lo, hi) of a rank's contribution.
func values(a *Args, rank, lo, hi int) []byte {
	out := make([]byte, (hi-lo)*a.Elem)
	for i := range hi - lo {
		put(out[i*a.Elem:(i+1)*a.Elem], a, rank, lo+i)
	}
	return out
}

// results is elements [lo, hi) of what ranks [from, to) combine to.
func results(a *Args, from, to, lo, hi int) []byte {
	out, op := values(a, from, lo, hi), operation(a)
	for r := from + 1; r < to; r++ {
		in := out
		out = values(a, r, lo, hi)
		op(in, out)
	}
	return out
}

func blank(n int) []byte {
	return bytes.Repeat([]byte{unused}, n)
}

// pose makes a problem for n ranks.
func pose(c Collective, n int, base Args, rng *rand.Rand) *problem {
	p := &problem{c: c, args: make([]Args, n), bufs: make([][3][]byte, n), want: make([]answer, n), op: operation(&base)}
	for r := range p.args {
		p.args[r] = base
	}
	switch c {
	case OpBarrier:
	case OpBcast:
		for r := range n {
			p.bufs[r][Recv] = blank(base.bytes())
			p.want[r].recv = values(&base, base.Root, 0, base.Count)
		}
		copy(p.bufs[base.Root][Recv], p.want[base.Root].recv)
	case OpReduce, OpAllreduce, OpScan, OpExscan:
		p.combine(n, &base)
	case OpReduceScatter, OpReduceScatterBlock:
		p.reduceScatter(n, &base, rng)
	case OpGather, OpGatherv, OpAllgather, OpAllgatherv:
		p.gather(n, &base, rng)
	case OpScatter, OpScatterv:
		p.scatter(n, &base, rng)
	case OpAlltoall, OpAlltoallv, OpAlltoallw:
		p.alltoall(n, &base, rng)
	}
	return p
}

// input puts a contribution into Send, or into Recv at an offset.
func (p *problem) input(r int, in []byte, inPlace bool, at int) {
	if inPlace {
		copy(p.bufs[r][Recv][at:], in)
	} else {
		p.bufs[r][Send] = in
	}
}

func (p *problem) combine(n int, base *Args) {
	whole := p.c == OpReduce || p.c == OpAllreduce
	var all []byte
	if whole {
		all = results(base, 0, n, 0, base.Count)
	}
	var upTo []byte // what the ranks before this one combine to
	for r := range n {
		lone := p.c == OpReduce && r != base.Root
		if !lone {
			p.bufs[r][Recv] = blank(base.bytes())
		}
		in := values(base, r, 0, base.Count)
		p.input(r, in, base.InPlace && !lone, 0)
		p.want[r].recv = all
		if whole {
			if lone {
				p.want[r].recv = nil
			}
			continue
		}
		with := bytes.Clone(in)
		if r > 0 {
			p.op(upTo, with)
		}
		switch {
		case p.c == OpScan:
			p.want[r].recv = with
		case r == 0: // nobody may touch it
			p.want[r].recv = bytes.Clone(p.bufs[r][Recv])
		default:
			p.want[r].recv = upTo
		}
		upTo = with
	}
}

// ragged returns counts around Count, some of them 0.
func ragged(n int, base *Args, rng *rand.Rand) []int {
	counts := make([]int, n)
	for i := range counts {
		if rng.IntN(4) > 0 {
			counts[i] = rng.IntN(2*base.Count + 1)
		}
	}
	return counts
}

// places scatters blocks over a buffer: in any order, with gaps. It returns nil
// displacements at times, where there are none.
func places(counts []int, rng *rand.Rand) (displs []int, size int) {
	if rng.IntN(3) == 0 {
		for _, c := range counts {
			size += c
		}
		return nil, size
	}
	displs = make([]int, len(counts))
	for _, i := range rng.Perm(len(counts)) {
		size += rng.IntN(3)
		displs[i] = size
		size += counts[i]
	}
	return displs, size
}

// spots returns where blocks are.
func spots(counts, displs []int) []int {
	if displs != nil {
		return displs
	}
	at := make([]int, len(counts))
	for i := 1; i < len(at); i++ {
		at[i] = at[i-1] + counts[i-1]
	}
	return at
}

func equal(n, count int) []int {
	counts := make([]int, n)
	for i := range counts {
		counts[i] = count
	}
	return counts
}

func (p *problem) reduceScatter(n int, base *Args, rng *rand.Rand) {
	counts := equal(n, base.Count)
	if p.c == OpReduceScatter {
		counts = ragged(n, base, rng)
	}
	at := spots(counts, nil)
	all := at[n-1] + counts[n-1]
	for r := range n {
		if p.c == OpReduceScatter {
			p.args[r].Counts = counts
		}
		size := counts[r]
		if base.InPlace {
			size = all
		}
		p.bufs[r][Recv] = blank(size * base.Elem)
		p.input(r, values(base, r, 0, all), base.InPlace, 0)
		p.want[r].recv = results(base, 0, n, at[r], at[r]+counts[r])
	}
}

func (p *problem) gather(n int, base *Args, rng *rand.Rand) {
	rooted := p.c == OpGather || p.c == OpGatherv
	counts := equal(n, base.Count)
	ragged_ := p.c == OpGatherv || p.c == OpAllgatherv
	if ragged_ {
		counts = ragged(n, base, rng)
	}
	for r := range n {
		var displs []int
		size := n * base.Count
		if ragged_ {
			displs, size = places(counts, rng)
			p.args[r].Counts, p.args[r].Displs, p.args[r].Count = counts, displs, counts[r]
		}
		mine := values(base, r, 0, counts[r])
		if rooted && r != base.Root {
			p.bufs[r][Send] = mine
			p.args[r].Counts, p.args[r].Displs = nil, nil
			continue
		}
		at := spots(counts, displs)
		p.bufs[r][Recv] = blank(size * base.Elem)
		p.input(r, mine, base.InPlace, at[r]*base.Elem)
		p.want[r].recv = blank(size * base.Elem)
		for i := range n {
			copy(p.want[r].recv[at[i]*base.Elem:], values(base, i, 0, counts[i]))
		}
	}
}

func (p *problem) scatter(n int, base *Args, rng *rand.Rand) {
	counts, size := equal(n, base.Count), n*base.Count
	var displs []int
	if p.c == OpScatterv {
		counts = ragged(n, base, rng)
		displs, size = places(counts, rng)
	}
	at := spots(counts, displs)
	all := blank(size * base.Elem)
	for r := range n {
		p.args[r].Count = counts[r]
		mine := values(base, r, 0, counts[r])
		copy(all[at[r]*base.Elem:], mine)
		if r != base.Root || !base.InPlace {
			p.bufs[r][Recv] = blank(len(mine))
			p.want[r].recv = mine
		}
	}
	p.bufs[base.Root][Send] = all
	if p.c == OpScatterv {
		p.args[base.Root].Counts, p.args[base.Root].Displs = counts, displs
	}
}

func (p *problem) alltoall(n int, base *Args, rng *rand.Rand) {
	counts := make([][]int, n) // by sender and receiver
	for r := range counts {
		counts[r] = equal(n, base.Count)
		if p.c != OpAlltoall {
			counts[r] = ragged(n, base, rng)
		}
		for s := 0; base.InPlace && s < r; s++ {
			counts[r][s] = counts[s][r]
		}
	}
	e := base.Elem
	if p.c == OpAlltoallw {
		e = 1
	}
	block := func(from, to int) []byte { return values(base, from*n+to, 0, counts[from][to])[:counts[from][to]*e] }
	for r := range n {
		in := make([]int, n)
		for s := range n {
			in[s] = counts[s][r]
		}
		var sd, rd []int
		ssize, rsize := n*base.Count, n*base.Count
		if p.c != OpAlltoall {
			sd, ssize = places(counts[r], rng)
			rd, rsize = places(in, rng)
			p.args[r].Counts, p.args[r].Displs, p.args[r].RecvCounts, p.args[r].RecvDispls = counts[r], sd, in, rd
		}
		sat, rat := spots(counts[r], sd), spots(in, rd)
		p.bufs[r][Recv], p.want[r].recv = blank(rsize*e), blank(rsize*e)
		if !base.InPlace {
			p.bufs[r][Send] = blank(ssize * e)
		}
		for s := range n {
			copy(p.want[r].recv[rat[s]*e:], block(s, r))
			if base.InPlace {
				copy(p.bufs[r][Recv][rat[s]*e:], block(r, s))
			} else {
				copy(p.bufs[r][Send][sat[s]*e:], block(r, s))
			}
		}
	}
}
