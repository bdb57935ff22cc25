package coll

func scans(c Collective) []algorithm {
	exclusive := c == OpExscan
	return []algorithm{
		byBoard(once, func(b *builder) { scanBoard(b, exclusive) }),
		{name: "sites", best: func(t *Topo, _ *Args) bool { return manySites(t) }, build: func(b *builder) { scanSites(b, exclusive) }},
		{name: "recursive_doubling", build: func(b *builder) {
			s := newPrefix(b, exclusive)
			s.scan(0, b.size)
		}},
	}
}

// prefix is a scan's state: what this rank's own and those before it, as far as
// they are known, combine to, and in an exclusive scan those before it alone.
type prefix struct {
	b         *builder
	with      Ref // including my own
	before    Ref // without it
	exclusive bool
	any       bool // before has something
}

func newPrefix(b *builder, exclusive bool) *prefix {
	all := b.ref(Recv, 0, b.a.Count)
	s := &prefix{b: b, with: all, exclusive: exclusive}
	if exclusive {
		s.with, s.before = b.alloc(all.N), all
	}
	b.copy(b.input(), s.with)
	return s
}

// scan covers ranks [lo, hi), of which this is one, by recursive doubling: in round
// k a rank sends what it has, of 2^k ranks up to itself, to the rank 2^k above. For
// all operations: order is kept.
//
// Cost: ceil(log2 n) (α + m(β+γ)), for an exclusive scan 2γ. Source: Hillis, Steele
// 1986.
func (s *prefix) scan(lo, hi int) {
	b := s.b
	spare := b.alloc(s.with.N)
	for d := 1; d < hi-lo; d *= 2 {
		if b.me+d < hi {
			b.send(b.me+d, s.with)
		}
		if b.me-d >= lo {
			b.recv(b.me-d, spare)
			s.prepend(spare)
		}
		b.next()
	}
}

// prepend takes in what lower ranks combine to.
func (s *prefix) prepend(r Ref) {
	s.b.reduce(r, s.with)
	if !s.exclusive {
		return
	}
	if s.any {
		s.b.reduce(r, s.before)
	} else {
		s.b.copy(r, s.before)
	}
	s.any = true
}

// Scan between sites: consecutive ranks of a site are a run and scan among
// themselves; the last one's result, the run's, goes to the site's leader and from
// it to the leaders of all sites that have a later run; each leader combines what
// comes before each of its runs and passes it to the run's ranks. For all sizes.
//
// Cost: ceil(log2 n) (α + m(β+γ)) thrice inside a site of n ranks, one latency and
// m bytes for each run to each site that needs it; one round crosses sites.
func scanSites(b *builder, exclusive bool) {
	c := newCrew(b)
	rs, _ := c.runs(false)
	mine := runOf(rs, b.me)
	r := rs[mine]
	s := newPrefix(b, exclusive)
	s.scan(r.lo, r.hi)
	leader := c.ranks[0]
	if b.me == r.hi-1 && b.me != leader && neededElsewhere(rs, mine) {
		b.send(leader, s.with)
		b.next()
	}
	got := b.alloc(s.with.N)
	if b.me == leader {
		b.lead(&c, rs, s.with, got)
	}
	if mine == 0 {
		return
	}
	if b.me == r.lo && b.me != leader {
		b.recv(leader, got)
		b.next()
	}
	b.treeBcast(byRank(b.t).tree(r.lo, r.hi, r.lo, b.me), got)
	s.prepend(got)
}

// neededElsewhere reports whether another run follows this one.
func neededElsewhere(rs []run, i int) bool { return i < len(rs)-1 }

// needs reports whether a site has a run after run i.
func needs(rs []run, i, site int) bool {
	for _, r := range rs[i+1:] {
		if r.site == site {
			return true
		}
	}
	return false
}

// lead is the leader's part. own is the result of its run as far as this rank, and
// the whole of it where it is the run's last; got is for what comes before its own
// run, which is its site's first.
func (b *builder) lead(c *crew, rs []run, own, got Ref) {
	upTo := make([]Ref, len(rs))
	for i, r := range rs {
		upTo[i] = b.alloc(own.N)
		switch {
		case r.site != c.site || !neededElsewhere(rs, i):
		case r.hi-1 == b.me:
			b.copy(own, upTo[i])
		default:
			b.recv(r.hi-1, upTo[i])
		}
	}
	b.next()
	c.others(func(s int, ranks []int) {
		for i, r := range rs {
			switch {
			case r.site == c.site && needs(rs, i, s):
				b.send(ranks[0], upTo[i])
			case r.site == s && needs(rs, i, c.site):
				b.recv(ranks[0], upTo[i])
			}
		}
	})
	b.next()
	for i := 1; i < len(rs) && needs(rs, i, c.site); i++ {
		b.reduce(upTo[i-1], upTo[i])
	}
	b.next()
	for i, r := range rs {
		switch {
		case i == 0 || r.site != c.site:
		case r.lo == b.me:
			b.copy(upTo[i-1], got)
		default:
			b.send(r.lo, upTo[i-1])
		}
	}
	b.next()
}
