package coll

// What the algorithms share in which all ranks of a site take part in the step
// between sites. A buffer of count elements is divided over the n ranks of each
// site; a rank exchanges with those of another site whose parts overlap its own:
// at most n1+n2-1 messages between two sites, each byte once.

const (
	// sharedBytes is from where on sharing the step between sites pays for the
	// rounds inside the sites that it costs.
	sharedBytes = 64 << 10

	// sharedPart is the least that is worth a message of its own between sites.
	sharedPart = 1 << 10

	// segmentPart and maxSegments say into how many segments a buffer is cut so that
	// work inside sites overlaps the lines between them: what does not overlap is the
	// first segment's work before and the last one's work after. A rank's part of a
	// segment is so large at least that its messages' handling costs less.
	segmentPart = 32 << 10
	maxSegments = 8
)

func bestShared(t *Topo, a *Args) bool {
	return manySites(t) && a.bytes() >= sharedBytes && a.bytes() >= t.Size*sharedPart
}

// segments is the number of segments for so many bytes, which the ranks of a site have
// parts of.
func segments(t *Topo, bytes int) int {
	return min(maxSegments, max(1, bytes/(largestSite(t)*segmentPart)))
}

// crew is what a rank knows of sites in the algorithms that share the step
// between them.
type crew struct {
	*layout
	site int
	team // the ranks of my site
}

func newCrew(b *builder) crew {
	l := bySite(b.t)
	site, me := l.siteOf(b.me)
	return crew{layout: l, site: site, team: team{ranks: l.group(site), me: me, full: -1}}
}

// others calls f for each other site, each rank starting with the one after its
// own so that not all turn to one site first.
func (c *crew) others(f func(site int, ranks []int)) {
	n := c.nsites()
	for d := 1; d < n; d++ {
		s := (c.site + d) % n
		f(s, c.group(s))
	}
}

// members returns, for each of runs at my site, its members in the order of
// ranks. There is one run where the operation commutes.
func (c *crew) members(commutes bool, rs []run) [][]int {
	var ms [][]int
	for _, r := range rs {
		if r.site != c.site {
			continue
		}
		var m []int
		if commutes {
			m = c.mineFirst()
		} else {
			for rank := r.lo; rank < r.hi; rank++ {
				m = append(m, c.pos[rank]-c.sites[c.site])
			}
		}
		ms = append(ms, m)
	}
	return ms
}

// mineFirst lists the team's members with this rank first: where order does not
// matter, what is received can be combined in place and the input is left alone.
func (t *team) mineFirst() []int {
	m := make([]int, len(t.ranks))
	for d := range m {
		m[d] = (t.me + d) % len(m)
	}
	return m
}

// exchange is the step between sites, for one segment.
type exchange struct {
	b       *builder
	c       *crew
	runs    []run
	waiting []pending // what will be received
}

// to starts sending a site's parts of my runs' results, which cover elements
// [lo, hi) of those [from, from+count) that the site's ranks have divided.
func (x *exchange) to(ranks []int, results []Ref, lo, hi, from, count int) {
	elem := x.b.a.Elem
	for j, rank := range ranks {
		tlo, thi := cut(count, len(ranks), j)
		clo, chi := common(lo, hi, from+tlo, from+thi)
		for _, r := range results {
			x.b.isend(rank, r.from((clo-lo)*elem, (chi-clo)*elem))
		}
	}
}

// from starts receiving, from a site's ranks that have divided elements
// [from, from+count), what of their runs' results covers my elements [lo, hi).
func (x *exchange) from(ranks []int, slots []Ref, lo, hi, from, count int) {
	elem := x.b.a.Elem
	for j, rank := range ranks {
		tlo, thi := cut(count, len(ranks), j)
		clo, chi := common(lo, hi, from+tlo, from+thi)
		for _, r := range slots {
			x.waiting = append(x.waiting, x.b.irecv(rank, r.from((clo-lo)*elem, (chi-clo)*elem)))
		}
	}
}

// slots returns a place of n bytes for each run, in order: mine for those of my
// site, scratch for the others, and dst for the very last one. Where that is my
// own it will have to be copied there.
func (x *exchange) slots(mine []Ref, n int, dst Ref) (all []Ref, bySite [][]Ref) {
	all, bySite = make([]Ref, len(x.runs)), make([][]Ref, x.c.nsites())
	for i, r := range x.runs {
		switch {
		case r.site == x.c.site:
			all[i] = mine[r.k]
		case i == len(x.runs)-1:
			all[i] = dst
		default:
			all[i] = x.b.alloc(n)
		}
		bySite[r.site] = append(bySite[r.site], all[i])
	}
	return all, bySite
}

// finish awaits what the other sites send and combines all runs in dst. It only
// reads my own runs' results, which may still be on their way.
func (x *exchange) finish(all []Ref, dst Ref) {
	x.b.await(x.waiting...)
	if last := &all[len(all)-1]; *last != dst {
		x.b.copy(*last, dst)
		*last = dst
	}
	x.b.fold(all)
}
