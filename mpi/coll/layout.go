package coll

import (
	"cmp"
	"slices"
)

// layout is an order of ranks in which sites, and hosts within them, are
// intervals. Positions are indexes into that order.
type layout struct {
	order []int // rank by position
	pos   []int // position by rank
	sites []int // where each site begins, and the end
	hosts []int // where each host begins, and the end
	wide  bool  // trees are one level deep within a host; see crowd.go
}

// bySite puts the ranks of a site, and those of a host, next to each other:
// sites in the order of their first ranks, hosts and ranks likewise.
func bySite(t *Topo) *layout {
	if !manySites(t) && !manyHosts(t) {
		return flat(t)
	}
	type key struct{ site, host, rank int }
	type place struct{ site, host int32 }
	sites, hosts := map[int32]int{}, map[place]int{}
	keys := make([]key, t.Size)
	for r := range keys {
		k := key{0, r, r}
		if t.Site != nil {
			k.site = first(sites, t.Site[r], r)
		}
		if t.Host != nil {
			k.host = first(hosts, place{int32(k.site), t.Host[r]}, r)
		}
		keys[r] = k
	}
	slices.SortFunc(keys, func(x, y key) int {
		return cmp.Or(cmp.Compare(x.site, y.site), cmp.Compare(x.host, y.host), cmp.Compare(x.rank, y.rank))
	})
	l := newLayout(t.Size)
	for i, k := range keys {
		l.place(i, k.rank, i == 0 || k.site != keys[i-1].site, i == 0 || k.host != keys[i-1].host)
	}
	l.wide = t.Crowded
	return l.ended()
}

// first returns the first rank that was met with this key.
func first[K comparable](seen map[K]int, k K, rank int) int {
	r, ok := seen[k]
	if !ok {
		r = rank
		seen[k] = r
	}
	return r
}

// byRank keeps the order of ranks. What it has for sites and hosts are runs of
// consecutive ranks of one: for operations that do not commute.
func byRank(t *Topo) *layout {
	l := newLayout(t.Size)
	for r := range t.Size {
		site := r == 0 || t.Site != nil && t.Site[r] != t.Site[r-1]
		host := site || t.Host == nil || t.Host[r] != t.Host[r-1]
		l.place(r, r, site, host)
	}
	l.wide = t.Crowded
	return l.ended()
}

// flat knows of no sites and hosts.
func flat(t *Topo) *layout {
	l := newLayout(t.Size)
	for r := range t.Size {
		l.place(r, r, r == 0, r == 0)
	}
	return l.ended()
}

func newLayout(n int) *layout {
	slab := make([]int, 2*n)
	return &layout{order: slab[:n:n], pos: slab[n:]}
}

func (l *layout) place(i, rank int, site, host bool) {
	l.order[i], l.pos[rank] = rank, i
	if site {
		l.sites = append(l.sites, i)
	}
	if host || site {
		l.hosts = append(l.hosts, i)
	}
}

func (l *layout) ended() *layout {
	l.sites = append(l.sites, len(l.order))
	l.hosts = append(l.hosts, len(l.order))
	return l
}

// nsites is the number of sites.
func (l *layout) nsites() int { return len(l.sites) - 1 }

// group returns the ranks of a site.
func (l *layout) group(site int) []int { return l.order[l.sites[site]:l.sites[site+1]] }

// siteOf returns the site of a rank, and the rank's place in its group.
func (l *layout) siteOf(rank int) (site, i int) {
	p := l.pos[rank]
	site = within(l.sites, p)
	return site, p - l.sites[site]
}

// within returns which of the intervals between borders p lies in.
func within(borders []int, p int) int {
	i, found := slices.BinarySearch(borders, p)
	if !found {
		i--
	}
	return i
}

// identity reports whether positions are ranks.
func (l *layout) identity() bool {
	for i, r := range l.order {
		if i != r {
			return false
		}
	}
	return true
}

// manySites reports whether there is more than one site.
func manySites(t *Topo) bool {
	for _, s := range t.Site {
		if s != t.Site[0] {
			return true
		}
	}
	return false
}

// manyHosts reports whether there is more than one host.
func manyHosts(t *Topo) bool {
	for _, h := range t.Host {
		if h != t.Host[0] {
			return true
		}
	}
	return t.Host == nil && t.Size > 1
}

// sharedHosts reports whether there is more than one host, and one of them has
// several ranks.
func sharedHosts(t *Topo) bool {
	if t.Host == nil || !manyHosts(t) {
		return false
	}
	seen := make(map[int32]struct{}, 8)
	for _, h := range t.Host {
		seen[h] = struct{}{}
	}
	return len(seen) > 1 && len(seen) < t.Size
}

// levels reports whether a tree that knows the topology differs from one that
// does not.
func levels(t *Topo) bool { return manySites(t) || sharedHosts(t) }

// run is a set of ranks of one site whose contributions are combined to one
// before they leave it. Runs stand in the order in which they are combined.
type run struct {
	site int
	k    int // which of its site's runs it is
	lo   int // its first rank
	hi   int // behind its last one; of no meaning where the operation commutes
}

// runs divides all ranks. Of an operation that commutes, a site is one run;
// otherwise a run is consecutive ranks of one site. count is runs by site.
func (l *layout) runs(commutes bool) (rs []run, count []int) {
	count = make([]int, l.nsites())
	for r := range l.order {
		s, _ := l.siteOf(r)
		switch {
		case len(rs) > 0 && !commutes && rs[len(rs)-1].site == s:
			rs[len(rs)-1].hi = r + 1
		case commutes && count[s] > 0:
		default:
			rs = append(rs, run{site: s, k: count[s], lo: r, hi: r + 1})
			count[s]++
		}
	}
	return rs, count
}
