package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/hub"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/sites"
	"github.com/meshmpi/meshmpi/relay"
)

// links are the node's ties to its hubs: a control session with each, and the
// relay and STUN server that each offers.
type links struct {
	d      *daemon
	sock   *mesh.Socket
	client *hub.Client
	cutOff atomic.Bool // this node has been revoked
	told   atomic.Bool // a hub has listed the network's nodes since none answered

	// taking is held from the look at what is known of nodes until what is said of them
	// stands in the directory. Each hub has its own goroutine, and so has believe: one
	// that had looked earlier would undo a revocation that came meanwhile, say.
	taking sync.Mutex

	mu      sync.Mutex             // guards what follows
	doubted map[peer.ID]struct{}   // up, although a hub that has just started says otherwise
	relays  map[string]*boundRelay // by relay name
	hubs    map[string][]netip.AddrPort
	ctx     context.Context // of the relays' goroutines
	lookUp  func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func newLinks(d *daemon, sock *mesh.Socket) *links {
	l := &links{d: d, sock: sock, relays: map[string]*boundRelay{}, doubted: map[peer.ID]struct{}{}, hubs: map[string][]netip.AddrPort{}, lookUp: net.DefaultResolver.LookupNetIP}
	l.client = hub.NewClient(hub.ClientConfig{
		Network: d.id.network, Self: d.id.self, Keys: d.id.keys, Chain: d.id.Chain,
		Hubs: d.hubs(), Log: d.log, Cores: runtime.NumCPU(), Advertise: d.id.config.Advertise,
		Events: hub.Events{
			Records: l.records, Signal: l.signal, Grant: l.grant,
			Chain: l.chain, Revoked: l.revoked, Session: l.session,
			Limits: func(_ string, all sites.Limits) { d.takeLimits(all) },
		},
	})
	return l
}

// start runs the sessions until ctx ends.
func (l *links) start(ctx context.Context) {
	l.ctx = ctx
	l.d.group.Go(func() error { return l.client.Run(ctx) })
}

func (l *links) records(_ string, full bool, recs []peer.Record) {
	l.taking.Lock()
	defer l.taking.Unlock()
	l.keepUp(full, recs, time.Now())
	l.note(recs)
	l.apply(full, recs)
	if full {
		l.told.Store(true)
	}
}

// note tells of nodes that come up, go down, or are new.
func (l *links) note(recs []peer.Record) {
	d := l.d
	for _, r := range recs {
		old, known := d.dir.ByID(r.Node.ID)
		switch {
		case r.Node.ID == d.id.self.ID:
		case !known && !r.Removed && !r.Revoked:
			d.events.emit("node", r.Node.Name, "known, site "+r.Node.Site)
		case known && old.Up != r.Up:
			d.events.emit("node", r.Node.Name, map[bool]string{true: "up", false: "down"}[r.Up])
		}
	}
}

// keepUp leaves nodes up that were until now and are not on a hub's list, if the hub
// may have started just now, and remembers them for believe. That a node goes down
// later a hub has seen.
func (l *links) keepUp(full bool, recs []peer.Record, now time.Time) {
	young := full && !knowsWhoIsUp(l.hubSessions(), now)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range recs {
		r := &recs[i]
		old, known := l.d.dir.ByID(r.Node.ID)
		if r.Up || r.Removed || r.Revoked || !young || !known || !old.Up {
			delete(l.doubted, r.Node.ID)
			continue
		}
		r.Up = true
		l.doubted[r.Node.ID] = struct{}{}
	}
}

// believe takes those for down that were left up and have not come back to a hub.
func (l *links) believe(now time.Time) {
	l.taking.Lock()
	defer l.taking.Unlock()
	if !knowsWhoIsUp(l.hubSessions(), now) {
		return // another session has begun since
	}
	if recs := l.missing(); len(recs) > 0 {
		l.note(recs)
		l.apply(false, recs)
	}
}

// missing returns the records, now down, of those that keepUp remembers, and
// forgets them.
func (l *links) missing() (recs []peer.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.doubted {
		if r, ok := l.d.dir.ByID(id); ok && r.Up {
			r.Up = false
			recs = append(recs, r)
		}
	}
	clear(l.doubted)
	return recs
}

// apply takes records in and tells whoever looks at them. taking is held.
func (l *links) apply(full bool, recs []peer.Record) {
	l.d.revoked.mark(recs)
	l.d.dir.Apply(full, recs)
	l.d.mesh.RecordsChanged()
	l.recount()
	l.d.savePeers()
}

// recount tells the pacer that other nodes may share this site's links now.
func (l *links) recount() {
	if p := l.d.pacing; p != nil {
		p.membersChanged()
	}
}

func (l *links) signal(from peer.ID, msg []byte) { l.d.mesh.Signal(from, msg) }

func (l *links) chain(chain [][]byte) {
	d := l.d
	if err := d.id.renew(chain, time.Now()); err != nil {
		d.log.Error("cannot use the renewed certificate", "err", err)
		return
	}
	d.saved.put(chainKey, func() error { return d.id.dir.SaveChain(d.id.Chain()) })
	d.events.emit("certificate", d.id.self.Name, "renewed")
}

// revoked is told again and again, by every hub and whenever one refuses us.
func (l *links) revoked(r cert.Revocation) {
	d := l.d
	if r.ID == d.id.self.ID {
		if !l.cutOff.Swap(true) {
			d.notes.set("revoked", "this node has been revoked; its peers refuse it; to come back, remove its state directory and join with a new token")
			d.log.Error("this node has been revoked")
			d.events.emit("revoked", r.Name, "by a hub")
		}
		return
	}
	l.taking.Lock()
	defer l.taking.Unlock()
	if !d.revoked.add(r) {
		return
	}
	d.saveRevoked()
	rec, ok := d.dir.ByID(r.ID)
	if !ok || rec.Revoked {
		return // apply will see it when it comes
	}
	l.apply(false, []peer.Record{rec})
	d.events.emit("revoked", r.Name, "by a hub")
}

func (l *links) session(addr string, up bool, err error) {
	text := "control session with " + addr + " is up"
	switch {
	case !up:
		text = fmt.Sprintf("control session with %s is down: %v", addr, err)
	case err != nil: // the clocks differ, or the hub refuses something
		text = fmt.Sprintf("%s, but %v", text, err)
	}
	if !up {
		l.forget()
	}
	l.d.events.emit("hub", "", text)
	l.d.log.Info("hub", "addr", addr, "up", up, "err", err)
	l.recount() // who counts depends on whether any hub tells who is up
	if up && l.ctx != nil {
		l.d.group.Go(func() error {
			select {
			case <-time.After(gathering):
				l.believe(time.Now())
			case <-l.ctx.Done():
			}
			return nil
		})
	}
}

// forget has the list that hubs have told count no more once none of them answers: who
// has joined meanwhile is not on it, nor when the next session is up, until it has told.
func (l *links) forget() {
	l.taking.Lock()
	defer l.taking.Unlock()
	if !l.connected() {
		l.told.Store(false)
	}
}

// grant takes a relay into use that a hub offers at its own address.
func (l *links) grant(hubAddr string, addr netip.AddrPort, raw json.RawMessage) {
	g, err := relay.ParseGrant(raw)
	if err != nil {
		l.d.log.Warn("a hub's relay grant", "hub", hubAddr, "err", err)
		return
	}
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hubs[hubAddr] = []netip.AddrPort{addr}
	l.d.group.Go(func() error { l.lookElsewhere(hubAddr, g.Relay, addr); return nil }) // ended by l.ctx
	if g.Relay == l.d.id.self.Name {
		return // our own
	}
	r := l.relays[g.Relay]
	switch {
	case r == nil:
		l.useLocked(g, addr, netip.AddrPort{})
	case r.addr == addr || r.Bound():
		if r.addr != addr {
			r.other = addr
		}
		r.grant = g
		r.SetGrant(g, r.addr) // a hub known by two addresses is one relay, at the one that works
	default:
		l.moveLocked(r, g, addr)
	}
}

// useLocked binds to a relay. l.mu is held.
func (l *links) useLocked(g relay.Grant, addr, other netip.AddrPort) {
	r := &boundRelay{name: g.Relay, addr: addr, other: other, grant: g, ended: make(chan struct{})}
	r.Client = relay.NewClient(relay.ClientConfig{
		Self: l.d.id.self.ID, Send: l.sock.Send, Log: l.d.log,
		Bound: func(seen netip.AddrPort) {
			l.d.mesh.AddRelay(r)
			if !seen.IsValid() {
				l.d.group.Go(func() error { l.lost(r); return nil }) // Run, which calls this, is in the group
			}
		},
	})
	r.SetGrant(g, addr)
	ctx, stop := context.WithCancel(l.ctx)
	r.stop = stop
	l.relays[g.Relay] = r
	l.d.mesh.AddRelay(r)
	l.d.group.Go(func() error {
		defer close(r.ended)
		return ignoreCancel(r.Run(ctx))
	})
}

// moveLocked binds to a relay at another address, and, if it does not answer there, at
// the one before. l.mu is held.
func (l *links) moveLocked(r *boundRelay, g relay.Grant, to netip.AddrPort) {
	r.stop()
	<-r.ended // its goodbye must come before the new binding
	l.d.mesh.RemoveRelay(r.name)
	l.useLocked(g, to, r.addr)
	moved, ctx := l.relays[r.name], l.ctx
	l.d.group.Go(func() error { // a client that is never bound tells nobody
		select {
		case <-time.After(relayTrial):
			l.lost(moved)
		case <-ctx.Done():
		}
		return nil
	})
}

// lost tries a relay that no longer answers at the other address, where it is
// known by two: it may have moved. It goes on with the first, and so on, until one does.
func (l *links) lost(r *boundRelay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.relays[r.name] == r && r.other.IsValid() && !r.Bound() && l.ctx.Err() == nil {
		l.moveLocked(r, r.grant, r.other)
	}
}

// relayTrial is how long a relay is looked for at one of its two addresses.
const relayTrial = 5 * time.Second

// rebind has relays and control sessions see where this node is now.
func (l *links) rebind() {
	l.client.Recheck()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.relays {
		r.Rebind()
	}
}

// relayStats sums what the clients of all relays have done.
func (l *links) relayStats() (sum relay.ClientStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.relays {
		s := r.Stats()
		sum.Unbound, sum.Unfit, sum.Unsent, sum.Refused = sum.Unbound+s.Unbound, sum.Unfit+s.Unfit, sum.Unsent+s.Unsent, sum.Refused+s.Refused
	}
	return sum
}

// boundRelay is a relay as the mesh sees it.
type boundRelay struct {
	*relay.Client
	name  string
	addr  netip.AddrPort
	other netip.AddrPort // where a hub has offered it too, last; links.mu guards it and grant
	grant relay.Grant
	stop  context.CancelFunc
	ended chan struct{} // closed when Run has returned
}

var _ mesh.Relay = (*boundRelay)(nil)

// Name implements mesh.Relay.
func (r *boundRelay) Name() string { return r.name }

// Addr implements mesh.Relay.
func (r *boundRelay) Addr() netip.AddrPort { return r.addr }

// Path implements mesh.Relay.
func (r *boundRelay) Path(to peer.ID) peer.Path { return r.Client.Path(to) }

// hubSessions tells the state of the control sessions.
func (l *links) hubSessions() []hub.SessionInfo { return l.client.Sessions() }

// gathering is how long a hub that has just started takes to hear from every node.
// Until then it takes those for down that are about to come back, and whoever
// believed it would take the site's link for its own.
const gathering = 2 * hub.RedialMax

// knowsWhoIsUp reports whether hubs that answer have done so for long enough to be
// believed about who is down.
func knowsWhoIsUp(sessions []hub.SessionInfo, now time.Time) bool {
	known := false
	for _, s := range sessions {
		if s.Up && now.Sub(s.Since) < gathering {
			return false
		}
		known = known || s.Up
	}
	return known
}

// connected reports whether any hub answers.
func (l *links) connected() bool {
	return slices.ContainsFunc(l.hubSessions(), func(h hub.SessionInfo) bool { return h.Up })
}

// post hands a signal to a hub.
func (l *links) post(ctx context.Context, to peer.ID, msg []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return l.client.Post(ctx, to, msg)
}
