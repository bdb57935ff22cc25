package coll

// ringBlock is from where on blocks travel around a ring, whose links join
// neighbours, unless they are sent to all at once: their time on the line is then near
// a message's latency. Smaller ones take ceil(log2 n) rounds instead of n-1.
const ringBlock = 16 << 10

// directRanks is up to how many ranks on hosts of their own send blocks between
// ringBlock and directBlock to each other at once: a byte enters and leaves a host as
// often as around a ring, in one round, which takes less by a few per cent as long as
// blocks are sent unasked. For smaller ones fewer messages count more than rounds.
const (
	directRanks = 8
	directBlock = 256 << 10
)

// team is a group of ranks, usually those of a site, that do a step together.
type team struct {
	ranks []int
	me    int // my place among them
	full  int // the place of one who has everything already and is sent nothing; or -1
}

// parts divides count elements, from element off of a buffer on, into n blocks.
func (b *builder) parts(buf Buf, off, count, n int) []Ref {
	ps := make([]Ref, n)
	for i := range ps {
		lo, hi := cut(count, n, i)
		ps[i] = b.ref(buf, off+lo, off+hi)
	}
	return ps
}

// largest is the size of the largest block: what members choose by has to be the
// same for all, while their own blocks differ.
func largest(ps []Ref) int {
	n := 0
	for _, p := range ps {
		n = max(n, p.N)
	}
	return n
}

// joined returns consecutive parts as one.
func joined(ps []Ref) Ref {
	first, last := ps[0], ps[len(ps)-1]
	return Ref{first.Buf, first.Off, last.Off + last.N - first.Off}
}

// allgather gives all members all blocks of some vectors, of which each has its
// own. The blocks of a vector have to lie next to each other at all members where
// they do at one.
func (b *builder) allgather(t team, vectors ...[]Ref) {
	most := 0
	for _, v := range vectors {
		most = max(most, largest(v))
	}
	switch {
	case b.direct(t, most):
		b.swap(t, vectors...)
	case most >= ringBlock:
		b.ring(t, vectors...)
	default:
		b.bruck(t, vectors...)
	}
}

// direct reports whether members do best to send each other blocks of so many bytes,
// at most, at once.
func (b *builder) direct(t team, bytes int) bool {
	if len(t.ranks) > directRanks || bytes < ringBlock || bytes >= directBlock {
		return false
	}
	for i, r := range t.ranks {
		for _, other := range t.ranks[:i] {
			if b.t.Host != nil && b.t.Host[r] == b.t.Host[other] {
				return false
			}
		}
	}
	return true
}

// swap is an allgather in one round: each member sends its own blocks to all others.
//
// Cost: 1 round, mβ (n-1)/n.
func (b *builder) swap(t team, vectors ...[]Ref) {
	n := len(t.ranks)
	for d := 1; d < n; d++ {
		to, from := (t.me+d)%n, (t.me-d+n)%n
		for _, v := range vectors {
			if to != t.full {
				b.send(t.ranks[to], v[t.me])
			}
			if t.me != t.full {
				b.recv(t.ranks[from], v[from])
			}
		}
	}
	b.next()
}

// ring is an allgather around a ring: each round, a member passes on what it got
// in the round before.
//
// Cost: n-1 rounds, mβ (n-1)/n, and a byte crosses each link once.
func (b *builder) ring(t team, vectors ...[]Ref) {
	n := len(t.ranks)
	next, prev := (t.me+1)%n, (t.me-1+n)%n
	for k := range n - 1 {
		for _, v := range vectors {
			if next != t.full {
				b.send(t.ranks[next], v[(t.me-k+n)%n])
			}
			if t.me != t.full {
				b.recv(t.ranks[prev], v[(t.me-k-1+n)%n])
			}
		}
		b.next()
	}
}

// bruck is an allgather in ceil(log2 n) rounds for any n: a member that has the
// d blocks from its own on gets the next d from the member d above it. Blocks are
// sent from where they belong, in two messages where they wrap around.
//
// Source: Bruck et al., 1997, without its rotation.
func (b *builder) bruck(t team, vectors ...[]Ref) {
	n := len(t.ranks)
	for d := 1; d < n; d *= 2 {
		c := min(d, n-d)
		to, from := (t.me-d+n)%n, (t.me+d)%n
		for _, v := range vectors {
			if to != t.full {
				blocks(v, t.me, c, func(r Ref) { b.send(t.ranks[to], r) })
			}
			if t.me != t.full {
				blocks(v, from, c, func(r Ref) { b.recv(t.ranks[from], r) })
			}
		}
		b.next()
	}
}

// blocks calls f with c blocks of v from block i on, cyclically, those that lie
// next to each other as one.
func blocks(v []Ref, i, c int, f func(Ref)) {
	var r Ref
	for ; c > 0; c-- {
		next := v[i%len(v)]
		switch {
		case next.N == 0:
		case r.N > 0 && next.Buf == r.Buf && next.Off == r.Off+r.N:
			r.N += next.N
		default:
			f(r)
			r = next
		}
		i++
	}
	f(r)
}

// combine gives this member the combination of its block of all members' inputs:
// one for each of runs, which are lists of members in the order of ranks. blocks
// are those of this rank's own input, by member. The results are in scratch, or
// the last one in dst where dst is not empty, and are the caller's to change;
// dst may not overlap blocks.
func (b *builder) combine(t team, runs [][]int, blocks []Ref, dst Ref) []Ref {
	if len(t.ranks) == 1 {
		own := b.orScratch(dst, blocks[0].N)
		b.copy(blocks[0], own)
		return []Ref{own}
	}
	if most := largest(blocks); b.a.Commutes && most >= ringBlock && !b.direct(t, most) {
		return []Ref{b.combineRing(t, blocks, dst)}
	}
	return b.combinePairs(t, runs, blocks, dst)
}

// orScratch returns dst, or scratch of n bytes where dst is empty.
func (b *builder) orScratch(dst Ref, n int) Ref {
	if dst.N == n {
		return dst
	}
	return b.alloc(n)
}

// pairWindow is how many messages to each side a rank has under way at once: many
// enough to hide latency, few enough not to drown one receiver.
const pairWindow = 32

// combinePairs sends each member its block and keeps all that come, so that they
// can be combined in order.
//
// Cost: ceil((n-1)/32) rounds, mβ (n-1)/n + γ.
func (b *builder) combinePairs(t team, runs [][]int, blocks []Ref, dst Ref) []Ref {
	n, mine := len(t.ranks), blocks[t.me]
	in := make([]Ref, n)
	final := runs[len(runs)-1]
	last := final[len(final)-1]
	for i := range in {
		switch {
		case i == t.me:
			in[i] = mine
		case i == last:
			in[i] = b.orScratch(dst, mine.N)
		default:
			in[i] = b.alloc(mine.N)
		}
	}
	for d := 1; d < n; d++ {
		to, from := (t.me+d)%n, (t.me-d+n)%n
		b.send(t.ranks[to], blocks[to])
		b.recv(t.ranks[from], in[from])
		if d%pairWindow == 0 {
			b.next()
		}
	}
	b.next()
	results := make([]Ref, len(runs))
	for k, members := range runs {
		parts := make([]Ref, 0, len(members))
		for _, i := range members {
			parts = append(parts, in[i])
		}
		if end := &parts[len(parts)-1]; *end == mine {
			own := b.alloc(mine.N)
			if k == len(runs)-1 {
				own = b.orScratch(dst, mine.N)
			}
			b.copy(mine, own)
			*end = own
		}
		b.fold(parts)
		results[k] = parts[len(parts)-1]
	}
	return results
}

// combineRing passes each block once around, to end at its member; everybody adds
// its own. For operations that commute.
//
// Cost: n-1 rounds, mβ (n-1)/n, and a byte crosses each link once.
func (b *builder) combineRing(t team, blocks []Ref, dst Ref) Ref {
	n := len(t.ranks)
	next, prev := t.ranks[(t.me+1)%n], t.ranks[(t.me-1+n)%n]
	most := largest(blocks)
	spare := [2]Ref{b.alloc(most)}
	if n > 2 {
		spare[1] = b.alloc(most)
	}
	out := blocks[(t.me-1+n)%n]
	for k := range n - 1 {
		x := (t.me - k - 2 + 2*n) % n
		in := spare[k%2].from(0, blocks[x].N)
		if k == n-2 && dst.N == in.N {
			in = dst
		}
		b.send(next, out)
		b.recv(prev, in)
		b.reduce(blocks[x], in)
		b.next()
		out = in
	}
	return out
}
