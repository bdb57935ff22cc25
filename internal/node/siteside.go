package node

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/sites"
)

func (d *daemon) getSites(r *http.Request) (any, error) {
	nodes, err := d.nodes(r.Context())
	if err != nil {
		return nil, err
	}
	rep := siteList(nodes, d.limits.all())
	own := d.id.self.Site
	for i, s := range rep.Sites {
		if s.Site == own {
			rep.Sites[i].Found = d.foundTo("")
		}
	}
	for i, l := range rep.Links {
		switch own {
		case l.A:
			rep.Links[i].Found = d.foundTo(l.B)
		case l.B:
			rep.Links[i].Found = d.foundTo(l.A)
		}
	}
	return rep, nil
}

// foundTo returns what was found of what this site may send to another, or to all
// with ""; nil where that is not measured, or nothing is found yet.
func (d *daemon) foundTo(site string) *api.Found {
	if d.shares == nil {
		return nil
	}
	for _, f := range d.shares.gauge.known() {
		if f.to != site || f.rate == 0 {
			continue
		}
		found := api.Found{Rate: f.rate, Age: -1}
		if !f.since.IsZero() {
			found.Age = time.Since(f.since).Milliseconds()
		}
		return &found
	}
	return nil
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
		site(s.Name).MeasureUp, site(s.Name).MeasureDown = s.MeasureUp, s.MeasureDown
		site(s.Name).Native = s.Native
	}
	rep := api.SitesReply{Version: api.Version, Change: l.Version, Sites: []api.SiteStatus{}, Links: []api.LinkStatus{}}
	for _, p := range l.Pairs {
		site(p.A)
		site(p.B)
		rep.Links = append(rep.Links, api.LinkStatus{A: p.A, B: p.B, Bandwidth: p.Rate, Measure: p.Measure})
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
	rates := req.Up != 0 || req.Down != 0 || req.MeasureUp || req.MeasureDown
	switch {
	case req.Clear && (rates || req.Native != nil):
		return nil, errors.New("a site's limits are either set or cleared")
	case req.MeasureUp && req.Up != 0 || req.MeasureDown && req.Down != 0:
		return nil, errors.New("a limit is either set or measured")
	}
	return d.changeLimits(r, func(l sites.Limits) (sites.Limits, error) {
		if req.Clear {
			return l.WithoutSite(req.Site)
		}
		var err error
		if req.Native != nil {
			l, err = l.WithNative(req.Site, *req.Native)
		}
		if err == nil && (rates || req.Native == nil) {
			l, err = l.WithSite(req.Site, rateOr(req.Up, req.MeasureUp), rateOr(req.Down, req.MeasureDown))
		}
		return l, err
	})
}

// rateOr returns a rate, or what stands for one that is to be measured.
func rateOr(bits int64, measured bool) int64 {
	switch {
	case measured:
		return sites.Measured
	case bits == sites.Measured:
		return -1 // which is refused as no rate
	}
	return bits
}

func (d *daemon) postLink(r *http.Request) (any, error) {
	req, err := body[api.LinkRequest](r)
	if err != nil {
		return nil, err
	}
	switch {
	case req.Clear && (req.Bandwidth != 0 || req.Measure):
		return nil, errors.New("a link's limit is either set or cleared")
	case req.Measure && req.Bandwidth != 0:
		return nil, errors.New("a limit is either set or measured")
	}
	return d.changeLimits(r, func(l sites.Limits) (sites.Limits, error) {
		if req.Clear {
			return l.WithoutPair(req.A, req.B)
		}
		return l.WithPair(req.A, req.B, rateOr(req.Bandwidth, req.Measure))
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
