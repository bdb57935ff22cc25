package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// pingLimit bounds one ping asked for by a user.
const pingLimit = 5 * time.Second

func (d *daemon) getStatus(r *http.Request) (any, error) { return d.status(r.Context()) }

// status is what there is to say of this node and of how it sees the others.
func (d *daemon) status(ctx context.Context) (api.Status, error) {
	nodes, err := d.nodes(ctx)
	if err != nil {
		return api.Status{}, err
	}
	n := d.id.network
	s := api.Status{
		Version: api.Version, Network: n.Name, Domain: n.Domain, CIDR4: n.CIDR4.String(), CIDR6: n.CIDR6.String(),
		TUN: d.host.Name(), Listen: d.port, CertExpires: d.id.expires(), Warnings: d.warnings(time.Now()),
	}
	st := d.mesh.Stats()
	s.Drops = api.Drops{Events: st.Events, Unsent: st.Unsent, Overflowed: st.Overflowed, Replayed: st.Replayed, Alien: st.Alien, NoOwner: st.NoOwner, Local: d.door.refused.Load()}
	s.Nodes = nodes
	s.Self = nodes[slices.IndexFunc(nodes, func(n api.NodeStatus) bool { return n.Self })]
	for _, h := range d.links.hubSessions() {
		hs := api.HubStatus{Addr: h.Addr, Name: h.Name, Up: h.Up, Since: h.Since, RTT: h.RTT.Microseconds()}
		if h.Err != nil {
			hs.Error = h.Err.Error()
		}
		s.Hubs = append(s.Hubs, hs)
	}
	return s, nil
}

// nodes returns what this node knows of all, itself included, ordered by site and
// name.
func (d *daemon) nodes(ctx context.Context) ([]api.NodeStatus, error) {
	paths, err := d.paths(ctx)
	if err != nil {
		return nil, err
	}
	self := nodeStatus(peer.Record{Node: d.id.self, Up: true, Cores: runtime.NumCPU()})
	self.Self, self.Expires = true, d.id.expires()
	informed := d.links.connected()
	list := []api.NodeStatus{self}
	for _, rec := range d.dir.All() {
		if rec.Node.ID == d.id.self.ID {
			continue
		}
		ns := nodeStatus(rec)
		if p, ok := paths[rec.Node.ID]; ok {
			ns.Path = &p
			ns.Up = p.Works || ns.Up && informed // with no hub we know only what we see
		}
		list = append(list, ns)
	}
	slices.SortFunc(list, func(a, b api.NodeStatus) int {
		return strings.Compare(a.Site+"\x00"+a.Name, b.Site+"\x00"+b.Name)
	})
	return list, nil
}

// warnings are what an administrator should look at.
func (d *daemon) warnings(now time.Time) []string {
	list := d.notes.all()
	if w := standing(d.id.expires().Sub(now), d.links.connected()); w != "" {
		list = append(list, w)
	}
	if d.hub != nil {
		if w := issuerWarning(d.hub.ends.Sub(now)); w != "" {
			list = append(list, w)
		}
	}
	return list
}

// standing says what threatens a node whose certificate has so much time left,
// or "".
func standing(left time.Duration, hub bool) string {
	switch {
	case left <= 0:
		return "this node's certificate has expired and its peers refuse it; check this machine's clock, or join again with a new token"
	case !hub:
		return fmt.Sprintf("no hub answers; known nodes go on until certificates expire, this one's in %s", roughly(left))
	case left < certLate:
		return fmt.Sprintf("this node's certificate expires in %s and no hub has renewed it; look at the hubs above and at their logs", roughly(left))
	}
	return ""
}

// certLate is the rest of a certificate's life at which it should long have been
// renewed: hubs do so at half of thirty days.
const certLate = 10 * 24 * time.Hour

func roughly(t time.Duration) string {
	if t > 48*time.Hour {
		return fmt.Sprintf("%d days", int(t.Hours()/24))
	}
	return t.Round(time.Minute).String()
}

func nodeStatus(rec peer.Record) api.NodeStatus {
	n := rec.Node
	return api.NodeStatus{
		Name: n.Name, Site: n.Site, Addr4: n.Addr4.String(), Addr6: n.Addr6.String(), ID: n.ID, Up: rec.Up,
		Hub: n.Roles.Has(peer.RoleHub), Relay: n.Roles.Has(peer.RoleRelay), Revoked: rec.Revoked,
		Cores: rec.Cores, Expires: n.NotAfter,
	}
}

// paths returns the paths to the peers that were talked to.
func (d *daemon) paths(ctx context.Context) (map[peer.ID]api.Path, error) {
	list, err := d.mesh.Peers(ctx)
	if err != nil {
		return nil, err
	}
	m := make(map[peer.ID]api.Path, len(list))
	for _, p := range list {
		m[p.ID] = d.path(p)
	}
	return m, nil
}

func (d *daemon) path(p mesh.PeerStatus) api.Path {
	name := p.ID.String()
	if rec, ok := d.dir.ByID(p.ID); ok {
		name = rec.Node.Name
	}
	out := pathOf(name, p.Path)
	out.Works, out.TxBytes, out.TxPkts, out.RxBytes, out.NoPath = p.Works, p.TxBytes, p.TxPkts, p.RxBytes, p.NoPath
	for _, o := range p.Others {
		s := pathOf(name, o)
		s.Works = true
		out.Standby = append(out.Standby, s)
	}
	return out
}

func pathOf(name string, i peer.PathInfo) api.Path {
	p := api.Path{Node: name, Kind: i.Kind, Via: i.Via, RTT: i.RTT.Microseconds(), MTU: i.MTU, Loss: i.Loss, Addr: i.Where()}
	if p.Via == nil {
		p.Via = []string{}
	}
	return p
}

func (d *daemon) getPath(r *http.Request) (any, error) {
	paths, err := d.paths(r.Context())
	if err != nil {
		return nil, err
	}
	rep := api.PathReply{Version: api.Version, Paths: []api.Path{}}
	if name := r.FormValue("node"); name != "" {
		rec, err := d.find(name)
		if err != nil {
			return nil, err
		}
		if rec.Node.ID == d.id.self.ID {
			return nil, fmt.Errorf("%s is this node itself", rec.Node.Name)
		}
		p, ok := paths[rec.Node.ID]
		if !ok {
			p = pathOf(rec.Node.Name, peer.PathInfo{})
		}
		rep.Paths = append(rep.Paths, p)
		return rep, nil
	}
	for _, p := range paths {
		rep.Paths = append(rep.Paths, p)
	}
	slices.SortFunc(rep.Paths, func(a, b api.Path) int { return strings.Compare(a.Node, b.Node) })
	return rep, nil
}

func (d *daemon) postPing(r *http.Request) (any, error) {
	rec, err := d.find(r.FormValue("node"))
	if err != nil {
		return nil, err
	}
	if rec.Node.ID == d.id.self.ID {
		return nil, fmt.Errorf("%s is this node itself", rec.Node.Name)
	}
	rtt, info, err := d.ping(r.Context(), rec)
	if err != nil {
		return nil, err
	}
	p := pathOf(rec.Node.Name, info)
	p.Works = true
	return api.PingReply{Version: api.Version, RTT: rtt.Microseconds(), Path: p}, nil
}

// answers makes sure of a node that no hub sees: whoever connects to one that is
// down waits for a minute. One that a hub sees is taken to be up.
func (d *daemon) answers(ctx context.Context, rec peer.Record) error {
	if rec.Node.ID == d.id.self.ID || rec.Up && d.links.connected() {
		return nil
	}
	_, _, err := d.ping(ctx, rec)
	return err
}

// ping measures one round trip, or says in a line why there was none.
func (d *daemon) ping(ctx context.Context, rec peer.Record) (time.Duration, peer.PathInfo, error) {
	if d.links.cutOff.Load() {
		return 0, peer.PathInfo{}, fmt.Errorf("this node, %s, has been revoked and %s does not answer it; see meshctl status", d.id.self.Name, rec.Node.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	rtt, info, err := d.mesh.Ping(ctx, rec.Node.ID)
	if errors.Is(err, context.DeadlineExceeded) {
		err = failure{http.StatusGatewayTimeout, silent(rec, info, d.links.connected())}
	}
	return rtt, info, err
}

// silent says in a line that a node does not answer. informed: a hub does.
func silent(rec peer.Record, i peer.PathInfo, informed bool) error {
	way := "no path to it is known"
	if i.Kind != peer.KindNone {
		way = "tried by " + i.Kind.String()
	}
	switch {
	case !informed:
		way = "no hub answers either; " + way
	case !rec.Up:
		way = "no hub sees it; " + way
	}
	return fmt.Errorf("%s at site %s does not answer within %v (%s); see whether meshd runs there, and meshctl status on it", rec.Node.Name, rec.Node.Site, pingLimit, way)
}

func (d *daemon) getEnv(*http.Request) (any, error) {
	n := d.id.network
	return api.Env{Version: api.Version, Node: d.id.self.Name, Site: d.id.self.Site, TUN: d.host.Name(),
		Addr4: d.id.self.Addr4.String(), CIDR4: n.CIDR4.String(), Domain: n.Domain, BinDir: binDir()}, nil
}

func (d *daemon) postTicket(r *http.Request) (any, error) {
	req, err := body[api.TicketRequest](r)
	if err != nil {
		return nil, err
	}
	user, err := d.door.nameOf(r.Context(), callerIn(r)) // never the request's word
	if err != nil {
		return nil, failure{http.StatusForbidden, err}
	}
	rec, err := d.find(req.Host)
	if err != nil {
		return nil, err
	}
	t, err := d.ticket(user, rec, req)
	if err != nil {
		return nil, err
	}
	return t, d.answers(r.Context(), rec)
}

func (d *daemon) postToken(r *http.Request) (any, error) {
	req, err := body[api.TokenRequest](r)
	if err != nil {
		return nil, err
	}
	t, err := d.hub.CreateToken(req.Site, req.Uses, req.TTL)
	if err != nil {
		return nil, err
	}
	return api.TokenReply{Version: api.Version, Token: t.String(), Expires: t.Expires}, nil
}

func (d *daemon) getTokens(*http.Request) (any, error) {
	list, err := d.hub.Tokens()
	if err != nil {
		return nil, err
	}
	rep := api.TokensReply{Version: api.Version, Tokens: []api.TokenInfo{}}
	for _, t := range list {
		rep.Tokens = append(rep.Tokens, api.TokenInfo{ID: t.ID, Site: t.Site, Uses: t.Uses, Expires: t.Expires, State: t.State})
	}
	return rep, nil
}

func (d *daemon) deleteToken(r *http.Request) (any, error) {
	return nil, d.hub.RevokeToken(r.PathValue("id"))
}

func (d *daemon) postRevoke(r *http.Request) (any, error) {
	return nil, d.hub.RevokeNode(r.PathValue("name"))
}

func (d *daemon) deleteNode(r *http.Request) (any, error) {
	return nil, d.hub.RemoveNode(r.PathValue("name"))
}
