package node

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/rate"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"github.com/meshmpi/meshmpi/shaper/share"
)

func (d *daemon) getShape(*http.Request) (any, error) { return d.shape(), nil }

// shape is how this node paces, and what programs say of their traffic.
func (d *daemon) shape() api.ShapeReply {
	rep := api.ShapeReply{Version: api.Version, Mode: string(PaceOff), Links: []api.ShapeLink{}, Programs: []api.ShapeProgram{}}
	if d.pacing == nil {
		return rep
	}
	d.pacing.describe(&rep)
	if d.hints != nil {
		for _, i := range d.hints.Pages() {
			rep.Programs = append(rep.Programs, programShape(i))
		}
	}
	return rep
}

// describe says how fast this node may send, and what waits for it.
func (p *pacing) describe(rep *api.ShapeReply) {
	stats := p.shaper.Stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	rep.Mode, rep.Nodes, rep.Uplink, rep.Weight = string(p.mode), p.nodes, p.uplink, max(p.weight, 1)
	rep.Measured = p.d.foundTo("")
	for _, s := range stats {
		l := p.links[s.Site]
		if l == nil {
			continue // it has just come
		}
		link := api.ShapeLink{
			Site: s.Site, Whole: l.whole, Share: l.fair(), Rate: l.now, Why: l.why, Set: l.set,
			Waiting: s.Waiting + s.Flying, Queued: s.Queued, Healed: s.Healed, Given: s.Given, Taken: s.Taken,
			Sent: s.Gone.SentBytes, Marked: s.Gone.Marked, Dropped: s.Gone.Dropped, Peers: []api.ShapePeer{},
			Found: p.d.foundTo(s.Site),
		}
		for _, f := range s.Flows {
			link.Sent, link.Marked, link.Dropped = link.Sent+f.SentBytes, link.Marked+f.Marked, link.Dropped+f.Dropped
			link.Peers = append(link.Peers, peerShape(p.d.nameOf(f.Peer), f))
		}
		slices.SortFunc(link.Peers, func(a, b api.ShapePeer) int { return strings.Compare(a.Node, b.Node) })
		rep.Links = append(rep.Links, link)
	}
	slices.SortFunc(rep.Links, func(a, b api.ShapeLink) int { return strings.Compare(a.Site, b.Site) })
}

func peerShape(name string, f shaper.FlowStats) api.ShapePeer {
	return api.ShapePeer{
		Node: name, Waiting: f.Waiting, Queued: f.Queued, Sent: f.SentBytes, Marked: f.Marked, Dropped: f.Dropped,
		WorstWait: f.WorstWait.Microseconds(), WorstQueue: f.WorstQueue.Microseconds(),
	}
}

func programShape(i hint.Info) api.ShapeProgram {
	s := api.ShapeProgram{PID: i.Pid, UID: i.Uid, Op: i.Request.Op.String(), Hosts: i.Request.Hosts, MATB: i.Request.MATB}
	for _, n := range i.Entered {
		s.Entered += n
	}
	return s
}

// nameOf names a node that may have been forgotten.
func (d *daemon) nameOf(id peer.ID) string {
	if rec, ok := d.dir.ByID(id); ok {
		return rec.Node.Name
	}
	return id.String()
}

func (d *daemon) postShape(r *http.Request) (any, error) {
	req, err := body[api.ShapeRequest](r)
	if err != nil {
		return nil, err
	}
	if !callerIn(r).may() {
		return nil, failure{http.StatusForbidden, fmt.Errorf("only root and the user that runs meshd on %s may do this; try sudo", d.id.self.Name)}
	}
	if d.pacing == nil {
		return nil, fmt.Errorf("meshd on %s runs with --pace off; start it without to set rates", d.id.self.Name)
	}
	if req.Weight != nil {
		if req.Site != "" || req.Rate != 0 {
			return nil, errors.New("a weight is this node's, for all sites: set it by itself")
		}
		if err := d.pacing.setWeight(*req.Weight); err != nil {
			return nil, err
		}
		return d.getShape(r)
	}
	if req.Rate != 0 {
		if err := rate.Check(req.Rate); err != nil {
			return nil, err
		}
	}
	if err := d.pacing.setRate(req.Site, req.Rate); err != nil {
		return nil, err
	}
	return d.getShape(r)
}

// setWeight sets what this node counts where links are divided among those that send.
func (p *pacing) setWeight(weight int) error {
	switch {
	case weight < 1 || weight > share.MaxWeight:
		return fmt.Errorf("a weight of %d: it is from 1, which every node has, to %d", weight, share.MaxWeight)
	case p.mode != PaceLive:
		return fmt.Errorf("meshd on %s runs with --pace %s, and shares are equal; start it with --pace live to set a weight", p.d.id.self.Name, p.mode)
	}
	p.mu.Lock()
	p.weight = weight
	p.mu.Unlock()
	return nil
}

// setRate sets what this node sends to a site over everything else; 0 takes it back.
func (p *pacing) setRate(site string, bits int64) error {
	if site == p.d.id.self.Site {
		return fmt.Errorf("%s is at site %q itself, and what stays within a site is not paced; name another site", p.d.id.self.Name, site)
	}
	if _, all := p.d.siteNodes(site); all == 0 && (bits > 0 || !p.isSet(site)) {
		return fmt.Errorf("no node is at site %q; see meshctl site list", site)
	}
	p.link(site, func(l *pacedLink) { l.set = bits })
	p.changed()
	p.first.changed()
	return nil
}

// isSet reports whether an administrator has set what is sent to a site.
func (p *pacing) isSet(site string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[site]
	return l != nil && l.set > 0
}
