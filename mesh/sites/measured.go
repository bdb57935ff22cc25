package sites

import "slices"

// Measures reports whether what goes from one site to another passes a link that is
// to be measured: then the receiving nodes tell the senders what arrives.
func (l Limits) Measures(from, to string) bool {
	return from != to && (l.site(from).MeasureUp || l.site(to).MeasureDown || l.way(from, to).Measure)
}

// ToMeasure returns what the nodes of a site are to measure, in order: "" stands for
// what it sends to all others together, a name for what it sends to that site.
func (l Limits) ToMeasure(from string) (to []string) {
	if l.site(from).MeasureUp {
		to = append(to, "")
	}
	for _, s := range l.Sites {
		if s.MeasureDown && s.Name != from {
			to = append(to, s.Name)
		}
	}
	for _, p := range l.Pairs {
		switch {
		case !p.Measure:
		case p.A == from:
			to = append(to, p.B)
		case p.B == from:
			to = append(to, p.A)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// Filled returns l as it is for what goes out of a site, with rates found in the
// place of those that are to be measured there: found says what that is for each
// that ToMeasure names, 0 where nothing is found. The rate of a pair may then be
// that of the other site's downlink. It is for look-ups alone.
func (l Limits) Filled(from string, found func(to string) int64) Limits {
	next := l.clone()
	for _, to := range l.ToMeasure(from) {
		r := found(to)
		switch {
		case r == 0:
		case to == "":
			i, _ := slices.BinarySearchFunc(next.Sites, Site{Name: from}, compareSites)
			next.Sites[i].Up = r
		default:
			p := pair(from, to, r)
			i, ok := slices.BinarySearchFunc(next.Pairs, p, comparePairs)
			if !ok {
				next.Pairs = slices.Insert(next.Pairs, i, p)
			} else if was := next.Pairs[i].Rate; was == 0 || was > r {
				next.Pairs[i].Rate = r
			}
		}
	}
	return next
}
