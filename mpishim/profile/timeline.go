package profile

import (
	"time"

	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// timeline adds up buckets of records whose widths may differ: it takes the widest.
type timeline struct {
	width  time.Duration // 0: nothing yet
	sites  int
	inNode []uint64   // by bucket: within nodes
	ways   [][]uint64 // by pair of sites, from × sites + to; within a site between nodes
	away   [][]uint64 // by node: to other sites
	out    [][]uint64 // by node: to other nodes
}

func newTimeline(nodes, sites int) timeline {
	return timeline{sites: sites, ways: make([][]uint64, sites*sites), away: make([][]uint64, nodes), out: make([][]uint64, nodes)}
}

// plus adds to a bucket, with as many buckets as that needs.
func plus(list *[]uint64, at int, n uint64) {
	for len(*list) <= at {
		*list = append(*list, 0)
	}
	(*list)[at] += n
}

// all are the lists of buckets.
func (t *timeline) all() (lists []*[]uint64) {
	lists = append(lists, &t.inNode)
	for _, l := range [][][]uint64{t.ways, t.away, t.out} {
		for i := range l {
			lists = append(lists, &l[i])
		}
	}
	return lists
}

// mostSteps are drawn; a rank's record has no more (record.Size).
const mostSteps = 256

// widen puts so many buckets into one.
func (t *timeline) widen(by int) {
	for _, l := range t.all() {
		var wide []uint64
		for i, n := range *l {
			plus(&wide, i/by, n)
		}
		*l = wide
	}
}

func (t *timeline) add(r *record.Record, at places) {
	switch {
	case t.width == 0:
		t.width = r.Width
	case r.Width > t.width:
		t.widen(int(r.Width / t.width))
		t.width = r.Width
	}
	by := int(t.width / r.Width)
	from := at.node[r.Rank]
	for i, row := range r.Cells {
		for rank, n := range row {
			to := at.node[rank]
			switch {
			case n == 0 || rank == r.Rank:
			case to == from:
				plus(&t.inNode, i/by, n)
			default:
				plus(&t.ways[at.site[from]*t.sites+at.site[to]], i/by, n)
				plus(&t.out[from], i/by, n)
				if at.site[from] != at.site[to] {
					plus(&t.away[from], i/by, n)
				}
			}
		}
	}
}

// series are the buckets of a run of some length, all lists as long.
func (t *timeline) series(elapsed time.Duration, job Job, at places) Timeline {
	for t.width > 0 && elapsed/t.width >= mostSteps { // a silence in the end has widened nothing
		t.widen(2)
		t.width *= 2
	}
	width := max(t.width, 1)
	n := int(elapsed/width) + 1
	for _, l := range t.all() {
		n = max(n, len(*l))
	}
	for _, l := range t.all() {
		plus(l, n-1, 0)
	}
	out := Timeline{Width: width.Seconds(), Ways: []Series{{"within nodes", t.inNode}}}
	for a, from := range at.sites {
		out.Ways = append(out.Ways, Series{"within " + from, t.ways[a*t.sites+a]})
	}
	for a, from := range at.sites {
		for b, to := range at.sites {
			if a != b {
				out.Ways = append(out.Ways, Series{from + " → " + to, t.ways[a*t.sites+b]})
			}
		}
	}
	lists := t.away
	if len(at.sites) == 1 {
		lists = t.out
	}
	for i, l := range lists {
		out.Nodes = append(out.Nodes, Series{job.Places[i].Node, l})
	}
	return out
}
