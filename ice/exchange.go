package ice

import (
	"context"
	"crypto/rand"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	pionice "github.com/pion/ice/v2"
)

// A message is posted when something was gathered, and again after this, twice
// this and so on: the peer may not have got it.
const (
	repostFirst = 250 * time.Millisecond
	repostLast  = 2 * time.Second
)

// gatherLimit ends the queries of STUN servers within an attempt.
const gatherLimit = 3 * time.Second

// exchange is what the two sides of an attempt have told each other.
type exchange struct {
	news  chan struct{} // size 1: ours has changed
	heard chan struct{} // closed when theirs is known

	mu      sync.Mutex
	ours    message            // ID, Ufrag and Pwd never change
	seen    []mapping          // what STUN servers told us
	theirs  *message           // the latest; nil while nothing came
	checked map[candidate]bool // theirs that were handed to the agent
	count   map[string]int     // of checked, by type
	postErr error              // of the last Post
	offered *message           // what Answer was called with, until it is taken
}

// mapping is what one STUN server sees of us.
type mapping struct{ server, mapped netip.AddrPort }

func newExchange(ufrag, pwd string, hosts []netip.AddrPort, offer *message) *exchange {
	e := &exchange{
		news:    make(chan struct{}, 1),
		heard:   make(chan struct{}),
		ours:    message{ID: rand.Text(), Ufrag: ufrag, Pwd: pwd},
		checked: make(map[candidate]bool),
		count:   make(map[string]int),
		offered: offer,
	}
	if offer != nil {
		e.ours.ID, e.ours.Answer = offer.ID, true
	}
	for _, h := range hosts {
		e.ours.Candidates = append(e.ours.Candidates, candidate{typeHost, h})
	}
	return e
}

// gather asks the STUN servers, all at once, and ends with its answers known.
func (a *attempt) gather(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, gatherLimit)
	defer cancel()
	var queries sync.WaitGroup
	asked := false
	for _, server := range a.x.servers() {
		if a.sock.conns[family(server.Addr())] == nil || slices.Contains(a.hosts, server) {
			continue // no way there, or ourselves
		}
		asked = true
		queries.Go(func() {
			mapped, err := a.x.Reflexive(ctx, server)
			if err != nil {
				a.x.cfg.Log.Debug("no reflexive address", "err", err)
				return
			}
			a.learn(mapping{server, mapped})
		})
	}
	queries.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ours.End = true
	if asked {
		a.ours.NAT = classify(a.seen, a.hosts)
	}
}

// learn makes a candidate of a reflexive address that is new.
func (a *attempt) learn(m mapping) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, m)
	addr := m.mapped.Addr()
	if !usable(addr) || a.x.cfg.Exclude(addr) || len(a.ours.Candidates) == maxCandidates {
		return
	}
	if slices.ContainsFunc(a.ours.Candidates, func(c candidate) bool { return c.Addr == m.mapped }) {
		return
	}
	a.ours.Candidates = append(a.ours.Candidates, candidate{typeSrflx, m.mapped})
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// post tells the peer all we have gathered, at once and whenever it has grown.
func (a *attempt) post(ctx context.Context, to peer.ID, sig peer.Signal) {
	wait := repostFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		a.mu.Lock()
		msg, err := a.ours.encode()
		a.mu.Unlock()
		if err == nil {
			err = sig.Post(ctx, to, msg)
		}
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		a.postErr = err
		a.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-a.news:
		case <-timer.C:
			wait = min(2*wait, repostLast)
		}
	}
}

// read takes the peer's messages. It ends with ctx, or where signalling fails:
// what is known by then may still do.
func (a *attempt) read(ctx context.Context, from peer.ID, sig peer.Signal, fail context.CancelCauseFunc) {
	if a.offered != nil {
		a.take(a.offered)
	}
	for {
		b, err := sig.Next(ctx, from)
		if err != nil {
			if ctx.Err() == nil {
				a.x.cfg.Log.Debug("signalling ended", "peer", from, "err", err)
			}
			return
		}
		m, err := decodeMessage(b)
		switch {
		case err != nil:
			a.x.n.badSignals.Add(1)
		case m.Answer != a.lead:
			// Ours, come back; or an offer while we lead: the caller settles glare.
		case m.ID == a.ours.ID:
			a.take(m)
		case !a.lead && !a.past[m.ID] && len(a.past) < maxFollowed:
			fail(superseded{by: m})
			return
		}
	}
}

// take hands the peer's candidates to the agent, each once.
func (a *attempt) take(m *message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.theirs == nil {
		defer close(a.heard)
	} else if m.Ufrag != a.theirs.Ufrag || m.Pwd != a.theirs.Pwd {
		return // not from who began this attempt
	}
	if a.theirs == nil || m.End || !a.theirs.End {
		a.theirs = m
	}
	for _, c := range m.Candidates {
		if a.checked[c] || len(a.checked) == maxCandidates || !a.worth(c) {
			continue
		}
		rc, err := remoteCandidate(c, a.count[c.Type])
		if err == nil {
			err = a.agent.AddRemoteCandidate(rc)
		}
		if err != nil {
			a.x.cfg.Log.Debug("candidate refused", "candidate", c.Addr, "err", err)
			continue
		}
		a.checked[c] = true
		a.count[c.Type]++
	}
}

// worth reports whether a candidate of the peer's can lead to it: not where we
// lack the family, nor into the overlay, nor to ourselves.
func (a *attempt) worth(c candidate) bool {
	if a.sock.conns[family(c.Addr.Addr())] == nil || a.x.cfg.Exclude(c.Addr.Addr()) {
		return false
	}
	return !slices.Contains(a.hosts, c.Addr)
}

// remoteCandidate gives the rank-th candidate of its type RFC 8445 §5.1.2.1's
// priority.
func remoteCandidate(c candidate, rank int) (pionice.Candidate, error) {
	const component = pionice.ComponentRTP
	kind := pionice.CandidateTypeHost
	if c.Type == typeSrflx {
		kind = pionice.CandidateTypeServerReflexive
	}
	priority := uint32(kind.Preference())<<24 | uint32(0xFFFF-rank)<<8 | uint32(256-component)
	addr, port := c.Addr.Addr().String(), int(c.Addr.Port())
	if kind == pionice.CandidateTypeHost {
		return pionice.NewCandidateHost(&pionice.CandidateHostConfig{
			Network: "udp", Address: addr, Port: port, Component: component, Priority: priority,
		})
	}
	return pionice.NewCandidateServerReflexive(&pionice.CandidateServerReflexiveConfig{
		Network: "udp", Address: addr, Port: port, Component: component, Priority: priority,
	})
}

// credentials returns the peer's. heard has been closed.
func (a *attempt) credentials() (ufrag, pwd string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.theirs.Ufrag, a.theirs.Pwd
}
