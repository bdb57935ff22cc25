package trunk

import "slices"

// plan says which way packets go. It does not change.
type plan struct {
	sites    []int         // of each process
	links    int           // between two sites
	gateways map[int][]int // of each site, at most links
	ranks    map[int]int   // of each site: how many
	place    []int         // of each process: its number within its site
}

func newPlan(sites []int, links int) *plan {
	p := &plan{sites: slices.Clone(sites), links: links, gateways: map[int][]int{}, ranks: map[int]int{}}
	for rank, s := range sites {
		p.place = append(p.place, p.ranks[s])
		if p.ranks[s]++; len(p.gateways[s]) < links {
			p.gateways[s] = append(p.gateways[s], rank)
		}
	}
	return p
}

// lane of a channel between two processes: the same in both directions.
func (p *plan) lane(a, b int) uint8 { return uint8((p.place[a] + p.place[b]) % p.links) }

// gateway of a site for a lane.
func (p *plan) gateway(site int, lane uint8) int {
	g := p.gateways[site]
	return g[int(lane)%len(g)]
}

// next is where a process sends what is for another; itself if it is there.
func (p *plan) next(at, dst int, lane uint8) int {
	switch here, there := p.sites[at], p.sites[dst]; {
	case here == there:
		return dst
	case p.gateway(here, lane) == at:
		return p.gateway(there, lane)
	default:
		return p.gateway(here, lane)
	}
}

// The window of a channel: a gateway's memory shared among the channels of its
// lane, but not so little that a channel would crawl, unless all together would be more
// than the gateway holds.
const (
	gatewayMemory = 64 << 20
	leastWindow   = 64 << 10
	mostWindow    = 4 << 20
)

// window is what a channel between two sites gets.
func (p *plan) window(a, b int) int {
	channels := p.ranks[a] * p.ranks[b] / p.links
	return min(max(leastWindow, min(mostWindow, gatewayMemory/max(1, channels))), mostHeld/2/max(1, channels))
}
