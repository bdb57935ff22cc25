package mesh

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// ErrClosed says that the mesh has stopped.
var ErrClosed = errors.New("mesh: stopped")

// sampleEvery is how often the loop looks which peers are being talked to.
const sampleEvery = time.Second

// farAway stands for "never" where a timer needs a duration.
const farAway = time.Hour

// run is the loop.
func (m *Mesh) run(ctx context.Context) error {
	timer := time.NewTimer(farAway)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.dev.Wait():
			return errors.New("the TUN device has failed or was taken away")
		case f := <-m.events:
			m.handle(f)
		case <-m.wanted.wake:
			m.catchUp(time.Now())
		case <-timer.C:
			for range len(m.events) { // an answer that has come is not overdue, however late the loop is
				m.handle(<-m.events)
			}
			m.tick(time.Now())
		}
		wait := farAway
		if !m.loop.wake.IsZero() {
			wait = max(0, time.Until(m.loop.wake))
		}
		timer.Reset(wait)
	}
}

// handle runs what was handed to the loop.
func (m *Mesh) handle(f func(now time.Time)) {
	select { // f may count on what was wanted before it
	case <-m.wanted.wake:
		m.catchUp(time.Now())
	default:
	}
	f(time.Now())
}

// post hands f to the loop without waiting; with the loop's queue full it is
// dropped and counted.
func (m *Mesh) post(f func(now time.Time)) bool {
	select {
	case m.events <- f:
		return true
	default:
		m.dropped.Add(1)
		return false
	}
}

// do runs f in the loop and waits for it. When ctx ends first, f may run later:
// what it writes must not be read then.
func (m *Mesh) do(ctx context.Context, f func(now time.Time)) error {
	ran := make(chan struct{})
	select {
	case m.events <- func(now time.Time) { f(now); close(ran) }:
	case <-m.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ran:
		return nil
	case <-m.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wakeAt has tick called at t at the latest.
func (m *Mesh) wakeAt(t time.Time) {
	if !t.IsZero() && (m.loop.wake.IsZero() || t.Before(m.loop.wake)) {
		m.loop.wake = t
	}
}

// tick does everything that is due.
func (m *Mesh) tick(now time.Time) {
	m.wakeups.Add(1)
	m.loop.wake = time.Time{}
	sample := now.Sub(m.loop.lastSample) >= sampleEvery
	if sample {
		m.loop.lastSample = now
	}
	for _, r := range m.loop.remotes {
		if sample && m.sample(now, r) {
			continue // evicted, or its certificate has expired
		}
		m.serve(now, r)
	}
	if len(m.loop.remotes) > 0 {
		m.wakeAt(m.loop.lastSample.Add(sampleEvery))
	}
	m.remember(now)
}

// serve does what is due for one peer and sees to it that the loop wakes for
// what comes next. Whoever changes a remote calls it afterwards.
func (m *Mesh) serve(now time.Time, r *remote) {
	for _, o := range r.paths.tick(now) {
		m.sendPing(r, o)
	}
	m.serveNear(now, r)
	m.checkRelays(r)
	m.choose(now, r)
	m.repeatHandshake(now, r)
	m.release(now, r)
	m.search(now, r)
	m.wakeAt(r.paths.deadline())
	m.wakeAt(r.hello.next())
	m.wakeAt(m.searchDue(r))
}

// rememberEvery spaces the writes of what is remembered.
const rememberEvery = 500 * time.Millisecond

// remember passes on which peers could be reached directly, and what Restore has yet to
// take up: what was remembered last must not be forgotten by then.
func (m *Mesh) remember(now time.Time) {
	if !m.loop.changed || m.cfg.Remember == nil || m.loop.recall == nil {
		return
	}
	if at := m.loop.remembered.Add(rememberEvery); now.Before(at) {
		m.wakeAt(at)
		return
	}
	m.loop.changed, m.loop.remembered = false, now
	all := maps.Clone(m.loop.recall)
	for id, r := range m.loop.remotes {
		if addrs := r.paths.worked(); len(addrs) > 0 || all[id] == nil {
			all[id] = addrs
		}
	}
	list := make([]Recent, 0, len(all))
	for id, addrs := range all {
		list = append(list, Recent{ID: id, Addrs: addrs})
	}
	m.cfg.Remember(list)
}

// Restore takes up the peers of an earlier run: their last paths are probed and
// a session with each is begun at once, without waiting for a hub, because a
// node that restarted is deaf to its peers' old sessions until it speaks. It is
// called once, if with none; nothing is given to Remember before.
func (m *Mesh) Restore(ctx context.Context, recent []Recent) error {
	recall := make(map[peer.ID][]netip.AddrPort, len(recent))
	for _, rec := range recent {
		recall[rec.ID] = rec.Addrs
	}
	if err := m.do(ctx, func(time.Time) { m.loop.recall = recall }); err != nil {
		return err
	}
	for _, rec := range recent {
		select {
		case <-time.After(rand.N(4 * time.Millisecond)): // not all at once
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := m.do(ctx, func(now time.Time) { m.restore(now, rec) }); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mesh) restore(now time.Time, rec Recent) {
	delete(m.loop.recall, rec.ID)
	r := m.configure(now, rec.ID)
	if r == nil {
		return
	}
	for _, a := range rec.Addrs {
		if c := m.addDirect(now, r, a, told); c != nil {
			c.worked = true // it may be long until the peer is there, and no hub may be
		}
	}
	m.greet(r)
	m.serve(now, r)
}

func (m *Mesh) checkRecords(now time.Time) {
	m.door.lately.reconsider()
	m.bind.probeKeys.Range(func(short, _ any) bool {
		if rec, ok := m.cfg.Directory.ByShort(short.(peer.Short)); !ok || !m.trusted(now, rec) {
			m.bind.probeKeys.Delete(short)
		}
		return true
	})
	for id, r := range m.loop.remotes {
		rec, ok := m.cfg.Directory.ByID(id)
		switch {
		case !ok || !m.trusted(now, rec):
			m.log.Info("peer cut off", "node", r.node.Name, "revoked", rec.Revoked)
			m.forget(r)
		case joinedAnew(r.node, rec.Node):
			m.log.Info("peer has joined anew", "node", rec.Node.Name, "site", rec.Node.Site, "addr", rec.Node.Addr4)
			m.forget(r) // and configured as what it is now at first use
		default:
			r.node = rec.Node // renewed, perhaps
			m.resolveAdvertised(now, r, rec)
		}
	}
}

// joinedAnew reports whether a node has become what its remote was not made for: its
// probes go by its keys, its packets by its addresses, and their pacing by its site.
func joinedAnew(was, is peer.Node) bool {
	return !is.SignKey.Equal(was.SignKey) || !slices.Equal(is.Addrs(), was.Addrs()) || is.Site != was.Site
}

// trusted reports whether a peer's certificate still counts: what comes from the
// peer's addresses is taken for the peer's, so they must be its own.
func (m *Mesh) trusted(now time.Time, rec peer.Record) bool {
	n, self := rec.Node, m.cfg.Self
	return !rec.Revoked && !rec.Removed && now.Before(n.NotAfter) && n.ID != self.ID &&
		n.Addr4 != self.Addr4 && n.Addr6 != self.Addr6 && m.cfg.Directory.Owns(n)
}
