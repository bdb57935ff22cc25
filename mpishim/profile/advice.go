package profile

import (
	"fmt"
	"math"
	"strings"

	"github.com/meshmpi/meshmpi/mpishim/profile/traffic"
)

// Pace is at what rate each node of a site should send to other sites: MATB = B/parts
// in GridMPI's terms (Takano et al., PFLDnet 2005: all-to-all, LU and MG N, CG N/2, BT
// and SP 2·sqrt(2N) parts of N nodes). Other patterns are given one part for each node
// that was seen to send.
type Pace struct {
	Site    string  `json:"site"`
	Nodes   int     `json:"nodes"`
	Senders int     `json:"senders"` // nodes that send to other sites, a twentieth of the busiest or more
	Parts   float64 `json:"parts"`
	Link    int64   `json:"link_bps"` // the least that is declared on the way; 0: nothing is
	MATB    int64   `json:"matb_bps"` // 0: not known without
}

// sender is what share of the busiest node's bytes makes another a sender too.
const sender = 0.05

// pace returns a row for each site that sends to others.
func (p *Profile) pace() []Pace {
	list := []Pace{}
	for s, name := range p.where.sites {
		row := Pace{Site: name}
		var most uint64
		for i, n := range p.Nodes {
			if p.where.site[i] == s {
				row.Nodes++
				most = max(most, n.Away)
			}
		}
		for i, n := range p.Nodes {
			if p.where.site[i] == s && n.Away > 0 && float64(n.Away) >= sender*float64(most) {
				row.Senders++
			}
		}
		if most == 0 {
			continue
		}
		row.Parts = parts(p.Pattern.Flag, row.Nodes, row.Senders)
		if row.Link = p.link(s); row.Link > 0 {
			row.MATB = int64(float64(row.Link) / row.Parts)
		}
		list = append(list, row)
	}
	return list
}

// parts is by what a link is divided. More than there are nodes is never needed.
func parts(pattern string, nodes, senders int) float64 {
	n := float64(nodes)
	switch pattern {
	case "":
		return float64(senders)
	case "cg":
		n /= 2
	case "bt", "sp":
		n = 2 * math.Sqrt(2*n)
	}
	return max(1, min(n, float64(nodes)))
}

// link is the least that is declared on a site's ways to those that it sends to.
func (p *Profile) link(site int) (least int64) {
	take := func(bits int64) {
		if bits > 0 && (least == 0 || bits < least) {
			least = bits
		}
	}
	sends := p.nodes.Fold(p.where.site, len(p.where.sites))
	name := p.where.sites[site]
	for to, other := range p.where.sites {
		if to == site || sends.At(site, to) == 0 {
			continue
		}
		for _, l := range p.job.Sites {
			if l.A == name {
				take(l.Up)
			}
			if l.A == other {
				take(l.Down)
			}
		}
		for _, l := range p.job.Between {
			if l.A == name && l.B == other || l.A == other && l.B == name {
				take(l.Up)
			}
		}
	}
	return least
}

// MATB is the rate that suits all sites, in bits per second: the least of theirs. 0
// where no link's rate is declared, or nobody shares one.
func (p *Profile) MATB() (least int64) {
	for _, row := range p.Pacing {
		if row.MATB > 0 && row.Parts > 1 && (least == 0 || row.MATB < least) {
			least = row.MATB
		}
	}
	return least
}

// Placement is where ranks had better be: the same number on each node.
type Placement struct {
	Now   uint64 `json:"between_sites_now"`
	Hosts string `json:"hosts,omitempty"` // the value of meshrun -H; "": another order gains too little
	Then  uint64 `json:"between_sites_with_hosts,omitempty"`
	Nodes []int  `json:"nodes,omitempty"` // node of each rank, where placing ranks one by one gains more
	Best  uint64 `json:"between_sites_with_nodes,omitempty"`
}

// worth is the least share of what crosses between sites that is worth a change.
const worth = 0.1

// move looks for a better placement; nil where little would be gained.
func (p *Profile) move() *Placement {
	if len(p.where.sites) < 2 || p.Sites == 0 {
		return nil
	}
	slots := make([]int, len(p.Nodes))
	for i, n := range p.Nodes {
		slots[i] = n.Ranks
	}
	m := &Placement{Now: p.Sites, Then: p.Sites}
	gain := func(from, to uint64) bool { return float64(to) <= (1-worth)*float64(from) }
	order := traffic.Order(p.ranks, slots, p.where.site)
	if cut := traffic.CutOf(p.ranks, traffic.Placed(order, slots), p.where.site); gain(p.Sites, cut.Sites) {
		m.Then = cut.Sites
		var hosts []string
		for _, n := range order {
			if slots[n] > 0 {
				hosts = append(hosts, fmt.Sprintf("%s:%d", p.Nodes[n].Name, slots[n]))
			}
		}
		m.Hosts = strings.Join(hosts, ",")
	}
	nodes := traffic.Assign(p.ranks, p.where.node, p.where.site)
	if cut := traffic.CutOf(p.ranks, nodes, p.where.site); gain(m.Then, cut.Sites) {
		m.Nodes, m.Best = nodes, cut.Sites
	}
	if m.Hosts == "" && m.Nodes == nil {
		return nil
	}
	return m
}

// Rankfile is the placement one by one as Open MPI's mpirun --rankfile reads it; ""
// where there is none.
func (p *Profile) Rankfile() string {
	if p.Moves == nil || p.Moves.Nodes == nil {
		return ""
	}
	var b strings.Builder
	for rank, n := range p.Moves.Nodes {
		fmt.Fprintf(&b, "rank %d=%s slot=*\n", rank, p.Nodes[n].Name) // any core: a number beyond the node's ends mpirun without a word
	}
	return b.String()
}
