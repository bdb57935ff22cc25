package node

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/sites"
)

func (d *daemon) getSites(r *http.Request) (any, error) {
	nodes, err := d.nodes(r.Context())
	if err != nil {
		return nil, err
	}
	return siteList(nodes, d.limits.all()), nil
}

// siteList says of every site that has a node, or of which something is declared,
// what there is to say.
func siteList(nodes []api.NodeStatus, l sites.Limits) api.SitesReply {
	bySite := map[string]*api.SiteStatus{}
	site := func(name string) *api.SiteStatus {
		if bySite[name] == nil {
			bySite[name] = &api.SiteStatus{Site: name}
		}
		return bySite[name]
	}
	for _, n := range nodes {
		if n.Revoked {
			continue
		}
		s := site(n.Site)
		if s.Nodes++; n.Up {
			s.NodesUp++
		}
	}
	for _, s := range l.Sites {
		site(s.Name).Up, site(s.Name).Down = s.Up, s.Down
	}
	rep := api.SitesReply{Version: api.Version, Change: l.Version, Sites: []api.SiteStatus{}, Links: []api.LinkStatus{}}
	for _, p := range l.Pairs {
		site(p.A)
		site(p.B)
		rep.Links = append(rep.Links, api.LinkStatus{A: p.A, B: p.B, Bandwidth: p.Rate})
	}
	for _, s := range bySite {
		rep.Sites = append(rep.Sites, *s)
	}
	slices.SortFunc(rep.Sites, func(a, b api.SiteStatus) int { return strings.Compare(a.Site, b.Site) })
	return rep
}

func (d *daemon) postSite(r *http.Request) (any, error) {
	req, err := body[api.SiteRequest](r)
	if err != nil {
		return nil, err
	}
	if req.Clear && (req.Up != 0 || req.Down != 0) {
		return nil, errors.New("a site's limits are either set or cleared")
	}
	return d.changeLimits(r, func(l sites.Limits) (sites.Limits, error) {
		if req.Clear {
			return l.WithoutSite(req.Site)
		}
		return l.WithSite(req.Site, req.Up, req.Down)
	})
}

func (d *daemon) postLink(r *http.Request) (any, error) {
	req, err := body[api.LinkRequest](r)
	if err != nil {
		return nil, err
	}
	if req.Clear && req.Bandwidth != 0 {
		return nil, errors.New("a link's limit is either set or cleared")
	}
	return d.changeLimits(r, func(l sites.Limits) (sites.Limits, error) {
		if req.Clear {
			return l.WithoutPair(req.A, req.B)
		}
		return l.WithPair(req.A, req.B, req.Bandwidth)
	})
}

// changeLimits has the hub declare something and answers with what holds then.
// This node takes it at once, whether or not its own session is up.
func (d *daemon) changeLimits(r *http.Request, change func(sites.Limits) (sites.Limits, error)) (any, error) {
	l, err := d.hub.ChangeLimits(change)
	if err != nil {
		return nil, err
	}
	d.takeLimits(l)
	return d.getSites(r)
}
