package coll

// leadersBytes is up to where what a leader gets of its site is worth it: it goes through
// its hands twice.
const leadersBytes = 1 << 10

// All-to-all through leaders: the ranks of a site give all their blocks to one of them,
// up a tree; the leaders of all sites exchange what is for the others directly; and each
// rank is given what is for it, down the tree. For small blocks and few ranks.
//
// Cost: 2 ceil(log4 n) α + 2nNmβ inside a site of n ranks, one latency between sites, no
// byte twice; one round crosses sites, with S(S-1) messages. Source: the idea is MagPIe's.
func alltoallLeaders(b *builder) {
	c := newCrew(b)
	row := b.size * b.a.bytes()
	in, out := Ref{Send, 0, row}, Ref{Recv, 0, row}
	if b.a.InPlace {
		in = out
	}
	t := c.tree(c.sites[c.site], c.sites[c.site+1], c.sites[c.site], c.pos[b.me])
	if t.parent >= 0 && len(t.kids) == 0 {
		b.send(t.parent, in)
		b.next()
		b.recv(t.parent, out)
		return
	}
	have := rows{b.alloc((t.hi - t.lo) * row), t.lo, row}
	b.copy(in, have.span(t.me, t.me+1))
	for _, k := range t.kids {
		b.recv(k.rank, have.span(k.lo, k.hi))
	}
	b.next()
	if t.parent >= 0 {
		b.send(t.parent, have.span(t.lo, t.hi))
		b.next()
		b.recv(t.parent, have.span(t.lo, t.hi))
		b.next()
	} else {
		have.Ref = b.swapRows(&c, have)
	}
	for _, k := range t.kids {
		b.send(k.rank, have.span(k.lo, k.hi))
	}
	b.copy(have.span(t.me, t.me+1), out)
}

// rows are blocks of consecutive positions, from first on: a row for each, with a block
// for each rank.
type rows struct {
	Ref
	first int
	row   int // bytes
}

func (r rows) span(lo, hi int) Ref { return r.from((lo-r.first)*r.row, (hi-lo)*r.row) }

// swapRows is a leader's part: of what the ranks of its site have for all, it sends the
// other leaders what is theirs, and returns what all have for the ranks of its site.
func (b *builder) swapRows(c *crew, given rows) Ref {
	m, n := b.a.bytes(), len(c.ranks)
	block := func(r rows, place, rank int) Ref { return r.from(place*r.row+rank*m, m) }
	got := rows{b.alloc(given.N), given.first, given.row}
	in := make([]Ref, c.nsites())
	c.others(func(s int, ranks []int) {
		out := b.alloc(n * len(ranks) * m)
		for x := range n {
			for y, r := range ranks {
				b.copy(block(given, x, r), out.from((x*len(ranks)+y)*m, m))
			}
		}
		in[s] = out
	})
	c.others(func(s int, ranks []int) {
		b.send(ranks[0], in[s])
		in[s] = b.alloc(in[s].N)
		b.recv(ranks[0], in[s])
	})
	b.next()
	for x, me := range c.ranks {
		for y, r := range c.ranks {
			b.copy(block(given, y, me), block(got, x, r))
		}
		c.others(func(s int, ranks []int) {
			for y, r := range ranks {
				b.copy(in[s].from((y*n+x)*m, m), block(got, x, r))
			}
		})
	}
	return got.Ref
}
