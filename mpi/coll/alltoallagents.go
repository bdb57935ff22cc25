package coll

// All-to-all between sites through agents: the ranks of a destination site are
// divided over those of the source site. Each of these agents collects what its
// site has for its share of the destinations and sends it in one message to the
// first of them, who hands it on to the others. For small blocks and many ranks.
//
// Cost: one latency between sites and min(n1, n2) messages instead of n1 n2, no
// byte twice; one round crosses sites. Inside a site two rounds of n-1 messages.
// Source: the idea is MagPIe's; that all ranks are agents is GridMPI's.
func alltoallAgents(b *builder) {
	c := newCrew(b)
	g := &agents{b: b, c: &c, m: b.a.bytes(), buf: Send}
	if b.a.InPlace {
		g.buf = Recv
	}
	local := g.collect()
	arrived := g.cross()
	g.handOut(arrived)
	for i, r := range c.ranks {
		b.copy(local[i], g.block(Recv, r))
	}
	c.others(func(s int, ranks []int) {
		for x, r := range ranks {
			b.copy(arrived[s].mine.from(x*g.m, g.m), g.block(Recv, r))
		}
	})
}

// agents is the state of one rank in alltoallAgents.
type agents struct {
	b   *builder
	c   *crew
	m   int // bytes of a block
	buf Buf // the input

	from [][]Ref // by site and place there: blocks collected, each from all of my site
}

func (g *agents) block(buf Buf, rank int) Ref { return Ref{buf, rank * g.m, g.m} }

// share returns which of n destinations agent i of k is for.
func share(n, k, i int) (lo, hi int) { return (i*n + k - 1) / k, ((i+1)*n + k - 1) / k }

// agent returns which of k agents is for destination j of n.
func agent(n, k, j int) int { return j * k / n }

// collect gives every agent what its site has for its destinations, and every rank
// of the site what is for itself. It returns the latter, by place.
func (g *agents) collect() (local []Ref) {
	b, c := g.b, g.c
	n := len(c.ranks)
	out := make([]Ref, n)
	for i, r := range c.ranks {
		out[i] = b.alloc(g.load(i) * g.m)
		b.copy(g.block(g.buf, r), out[i].from(0, g.m))
		g.destinations(i, func(k int, rank, _, _ int) { b.copy(g.block(g.buf, rank), out[i].from((1+k)*g.m, g.m)) })
	}
	in := make([]Ref, n)
	in[c.me] = out[c.me]
	for d := 1; d < n; d++ {
		to, from := (c.me+d)%n, (c.me-d+n)%n
		in[from] = b.alloc(g.load(c.me) * g.m)
		b.send(c.ranks[to], out[to])
		b.recv(c.ranks[from], in[from])
		if d%pairWindow == 0 {
			b.next()
		}
	}
	b.next()
	g.from = make([][]Ref, c.nsites())
	g.destinations(c.me, func(k, _, s, _ int) {
		all := b.alloc(n * g.m)
		for x := range n {
			b.copy(in[x].from((1+k)*g.m, g.m), all.from(x*g.m, g.m))
		}
		g.from[s] = append(g.from[s], all)
	})
	for i := range in {
		in[i] = in[i].from(0, g.m)
	}
	return in
}

// destinations calls f with each rank elsewhere that a member of my site is agent
// for: its number, rank, site and place there.
func (g *agents) destinations(member int, f func(k, rank, site, place int)) {
	k := 0
	for s := range g.c.nsites() {
		if s == g.c.site {
			continue
		}
		ranks := g.c.group(s)
		lo, hi := share(len(ranks), len(g.c.ranks), member)
		for j := lo; j < hi; j++ {
			f(k, ranks[j], s, j)
			k++
		}
	}
}

// load is how many blocks a member of my site sends to one of its agents, the one
// for the agent itself included.
func (g *agents) load(member int) int {
	n := 1
	g.destinations(member, func(int, int, int, int) { n++ })
	return n
}

// delivery is what has come from one site: for a share of my site's ranks, from lo
// on, blocks of all its ranks.
type delivery struct {
	agent  int // who sent it, a rank
	lo, hi int // for which places of my site
	all    Ref // all of it, where I am the one it was sent to
	mine   Ref // what is for me
}

// cross is the step between sites.
func (g *agents) cross() []delivery {
	b, c := g.b, g.c
	n := len(c.ranks)
	arrived := make([]delivery, c.nsites())
	out := make([]Ref, c.nsites())
	c.others(func(s int, ranks []int) {
		if blocks := g.from[s]; len(blocks) > 0 {
			out[s] = b.alloc(len(blocks) * n * g.m)
			for i, r := range blocks {
				b.copy(r, out[s].from(i*n*g.m, n*g.m))
			}
		}
		a := agent(n, len(ranks), c.me)
		lo, hi := share(n, len(ranks), a)
		arrived[s] = delivery{agent: ranks[a], lo: lo, hi: hi}
	})
	c.others(func(s int, ranks []int) {
		if out[s].N > 0 {
			lo, _ := share(len(ranks), n, c.me)
			b.send(ranks[lo], out[s])
		}
		if d := &arrived[s]; d.lo == c.me {
			d.all = b.alloc((d.hi - d.lo) * len(ranks) * g.m)
			b.recv(d.agent, d.all)
		}
	})
	b.next()
	return arrived
}

// handOut passes what has come on to whom it is for.
func (g *agents) handOut(arrived []delivery) {
	b, c := g.b, g.c
	c.others(func(s int, ranks []int) {
		d, n := &arrived[s], len(ranks)*g.m
		if d.lo != c.me {
			d.mine = b.alloc(n)
			b.recv(c.ranks[d.lo], d.mine)
			return
		}
		d.mine = d.all.from(0, n)
		for j := d.lo + 1; j < d.hi; j++ {
			b.send(c.ranks[j], d.all.from((j-d.lo)*n, n))
		}
	})
	b.next()
}
