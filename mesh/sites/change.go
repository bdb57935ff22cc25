package sites

import (
	"fmt"
	"slices"

	"github.com/meshmpi/meshmpi/internal/rate"
)

// WithSite returns l with a site's uplink and downlink set, to rates or to Measured.
// What is 0 stays as it was.
func (l Limits) WithSite(site string, up, down int64) (Limits, error) {
	if up == 0 && down == 0 {
		return l, fmt.Errorf("sites: nothing of site %.64q is given: an uplink, a downlink, or whether its nodes are native neighbours", site)
	}
	next, s := l.withSite(site)
	if up != 0 {
		s.Up, s.MeasureUp = split(up)
	}
	if down != 0 {
		s.Down, s.MeasureDown = split(down)
	}
	return next.checked(l)
}

// withSite returns a copy of l, and a site's place in it.
func (l Limits) withSite(site string) (Limits, *Site) {
	next := l.clone()
	i, ok := slices.BinarySearchFunc(next.Sites, Site{Name: site}, compareSites)
	if !ok {
		next.Sites = slices.Insert(next.Sites, i, Site{Name: site})
	}
	return next, &next.Sites[i]
}

// WithNative returns l with a site's nodes allowed to reach each other over their LAN,
// in clear, or no longer. Taking it back where it is not declared changes nothing.
func (l Limits) WithNative(site string, on bool) (Limits, error) {
	if err := check(0, 0, site); err != nil { // what is taken back leaves no entry to check
		return l, err
	}
	next, s := l.withSite(site)
	s.Native = on
	if *s == (Site{Name: site}) {
		next.Sites = slices.DeleteFunc(next.Sites, func(s Site) bool { return s.Name == site })
	}
	return next.checked(l)
}

// split tells a rate from Measured.
func split(r int64) (rate int64, measured bool) {
	if r == Measured {
		return 0, true
	}
	return r, false
}

// join is split backwards.
func join(rate int64, measured bool) int64 {
	if measured {
		return Measured
	}
	return rate
}

// WithoutSite returns l without anything declared of a site itself.
func (l Limits) WithoutSite(site string) (Limits, error) {
	i, ok := slices.BinarySearchFunc(l.Sites, Site{Name: site}, compareSites)
	if !ok {
		return l, fmt.Errorf("sites: nothing is set for site %.64q; see meshctl site list", site)
	}
	next := l.clone()
	next.Sites = slices.Delete(next.Sites, i, i+1)
	return next, nil
}

// WithPair returns l with the limit of the way between two sites set, to a rate or
// to Measured.
func (l Limits) WithPair(a, b string, r int64) (Limits, error) {
	switch {
	case a == b:
		return l, fmt.Errorf("sites: a link is between two sites, not from %.64q to itself", a)
	case r == 0:
		return l, fmt.Errorf("sites: no bandwidth is given between sites %.64q and %.64q", a, b)
	}
	next, p := l.clone(), pair(a, b, 0)
	p.Rate, p.Measure = split(r)
	i, ok := slices.BinarySearchFunc(next.Pairs, p, comparePairs)
	if !ok {
		next.Pairs = slices.Insert(next.Pairs, i, p)
	}
	next.Pairs[i] = p
	return next.checked(l)
}

// WithoutPair returns l without the limit of the way between two sites.
func (l Limits) WithoutPair(a, b string) (Limits, error) {
	i, ok := slices.BinarySearchFunc(l.Pairs, pair(a, b, 0), comparePairs)
	if !ok {
		return l, fmt.Errorf("sites: no limit is set between sites %.64q and %.64q; see meshctl site list", a, b)
	}
	next := l.clone()
	next.Pairs = slices.Delete(next.Pairs, i, i+1)
	return next, nil
}

func (l Limits) clone() Limits {
	l.Sites, l.Pairs = slices.Clone(l.Sites), slices.Clone(l.Pairs)
	return l
}

// checked returns l, or before and what is wrong with l.
func (l Limits) checked(before Limits) (Limits, error) {
	if err := l.Check(); err != nil {
		return before, err
	}
	return l, nil
}

// Change is one limit that has become another, or a LAN that is used another way.
type Change struct {
	What     string // "site alpha's uplink"
	From, To int64  // perhaps Measured
	Says     string // what What does now, where it has no rate
}

// String says it in a line.
func (c Change) String() string {
	switch {
	case c.Says != "":
		return c.What + " " + c.Says
	case c.To == Measured:
		return c.What + " is limited to what is measured" + c.before()
	case c.From == Measured && c.To == 0:
		return c.What + " is no longer measured and limited"
	case c.From == Measured:
		return fmt.Sprintf("%s is limited to %s, before to what was measured", c.What, rate.Format(c.To))
	case c.From == 0:
		return fmt.Sprintf("%s is limited to %s", c.What, rate.Format(c.To))
	case c.To == 0:
		return fmt.Sprintf("%s is no longer limited; it was to %s", c.What, rate.Format(c.From))
	}
	return fmt.Sprintf("%s is limited to %s, before to %s", c.What, rate.Format(c.To), rate.Format(c.From))
}

func (c Change) before() string {
	if c.From == 0 {
		return ""
	}
	return ", before to " + rate.Format(c.From)
}

// Changes lists what differs from before to after, sites first, by name.
func Changes(before, after Limits) []Change {
	var list []Change
	note := func(what string, from, to int64) {
		if from != to {
			list = append(list, Change{What: what, From: from, To: to})
		}
	}
	for _, s := range union(before.Sites, after.Sites, compareSites) {
		old, now := before.site(s.Name), after.site(s.Name)
		note("site "+s.Name+"'s uplink", join(old.Up, old.MeasureUp), join(now.Up, now.MeasureUp))
		note("site "+s.Name+"'s downlink", join(old.Down, old.MeasureDown), join(now.Down, now.MeasureDown))
		if old.Native != now.Native {
			says := "go through the overlay, sealed"
			if now.Native {
				says = "go over their LAN, in clear"
			}
			list = append(list, Change{What: "packets within site " + s.Name, Says: says})
		}
	}
	for _, p := range union(before.Pairs, after.Pairs, comparePairs) {
		note("the link between sites "+p.A+" and "+p.B, waySet(before, p), waySet(after, p))
	}
	return list
}

func waySet(l Limits, p Pair) int64 {
	w := l.way(p.A, p.B)
	return join(w.Rate, w.Measure)
}

// union returns the elements of two ordered lists in order, each once.
func union[T any](a, b []T, compare func(a, b T) int) []T {
	all := slices.Concat(a, b)
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b T) bool { return compare(a, b) == 0 })
}
