package coll

// Allreduce by levels: each site (each run of it, where the operation does not
// commute) combines up a tree; one rank of each site, its leader, tells those of
// all other sites; all leaders combine all sites' results in the same order; and
// down a tree. With one site, hosts take the place of sites and their leaders use
// recursive doubling. For small buffers.
//
// Cost: 2 ceil(log2 n) (α + mβ) inside a site of n ranks, one latency and m bytes
// (for each run) from each site to each other one; one round crosses sites.
// Source: MagPIe.
func allreduceLevels(b *builder) {
	c := newCrew(b)
	if c.nsites() == 1 {
		b.allreduceHosts(&c)
		return
	}
	rs, _ := c.runs(b.a.Commutes)
	acc, leads := b.upToLeader(&c, rs)
	all := b.ref(Recv, 0, b.a.Count)
	if leads {
		b.copy(b.amongLeaders(&c, rs, acc), all)
	}
	lo, hi := c.sites[c.site], c.sites[c.site+1]
	b.treeBcast(c.tree(lo, hi, lo, c.pos[b.me]), all)
}

// allreduceHosts is the form for one site. Where hosts' ranks are not consecutive
// and order matters, all ranks double.
func (b *builder) allreduceHosts(c *crew) {
	all := b.ref(Recv, 0, b.a.Count)
	if !b.a.Commutes && !c.identity() {
		b.copy(b.input(), all)
		b.copy(b.doubling(flat(b.t).order, b.me, all), all)
		return
	}
	p := c.pos[b.me]
	h := within(c.hosts, p)
	t := c.tree(c.hosts[h], c.hosts[h+1], c.hosts[h], p)
	if t.parent < 0 {
		acc := b.treeReduce(t, b.input(), all)
		b.copy(acc, all)
		leaders := make([]int, len(c.hosts)-1)
		for i := range leaders {
			leaders[i] = c.order[c.hosts[i]]
		}
		b.copy(b.doubling(leaders, h, all), all)
	} else {
		b.treeReduce(t, b.input(), Ref{})
	}
	b.treeBcast(t, all)
}

// upToLeader combines this rank's run, whose first rank gets the result. leads
// reports whether this rank is its site's leader, the first rank of its first run.
func (b *builder) upToLeader(c *crew, rs []run) (acc Ref, leads bool) {
	var t tree
	leader := c.ranks[0]
	if b.a.Commutes {
		lo, hi := c.sites[c.site], c.sites[c.site+1]
		t = c.tree(lo, hi, lo, c.pos[b.me])
	} else {
		r := rs[runOf(rs, b.me)]
		t = byRank(b.t).tree(r.lo, r.hi, r.lo, b.me)
	}
	if t.parent >= 0 {
		return b.treeReduce(t, b.input(), Ref{}), false
	}
	all := b.ref(Recv, 0, b.a.Count)
	acc = b.treeReduce(t, b.input(), all)
	if b.me != leader {
		b.send(leader, acc)
		b.next()
	}
	return acc, b.me == leader
}

// runOf returns which of runs, in the order of ranks, a rank is in.
func runOf(rs []run, rank int) int {
	for i, r := range rs {
		if rank < r.hi {
			return i
		}
	}
	return len(rs) - 1
}

// amongLeaders is a leader's part: gather the other runs of its site, exchange with
// the other leaders, combine everything. acc is the result of its own run.
func (b *builder) amongLeaders(c *crew, rs []run, acc Ref) Ref {
	parts := make([]Ref, len(rs))
	for i, r := range rs {
		switch {
		case r.site == c.site && r.k == 0:
			parts[i] = acc
		default:
			parts[i] = b.alloc(acc.N)
		}
		if r.site == c.site && r.k > 0 {
			b.recv(r.lo, parts[i])
		}
	}
	b.next()
	c.others(func(s int, ranks []int) {
		for i, r := range rs {
			switch r.site {
			case s:
				b.recv(ranks[0], parts[i])
			case c.site:
				b.send(ranks[0], parts[i])
			}
		}
	})
	b.next()
	if last := &parts[len(parts)-1]; last.Buf == Send {
		all := b.ref(Recv, 0, b.a.Count)
		b.copy(*last, all)
		*last = all
	}
	b.fold(parts)
	return parts[len(parts)-1]
}
