package ice

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	pionice "github.com/pion/ice/v2"
	"github.com/pion/transport/v2/stdnet"
)

// pion's timing. Between port-preserving NATs at 20 ms the candidates are known
// and checked within two of these intervals; reflexive pairs wait for two more
// before they are nominated, so that one inside a LAN can overtake them.
const (
	checkInterval = 50 * time.Millisecond
	preferHosts   = 100 * time.Millisecond
	// pion gives up by itself after twice this, or as many checks: never before
	// attemptLimit.
	agentPatience = 30 * time.Second
	agentChecks   = 10_000
)

// attempt is one try at a path to one peer.
type attempt struct {
	x     *ICE
	lead  bool            // Find's, not Answer's
	past  map[string]bool // attempts of the peer that this one came after, and itself; nil if lead
	agent *pionice.Agent
	sock  *shares
	hosts []netip.AddrPort
	*exchange
}

// Find looks for a direct path to the peer and takes the lead in it: it posts
// an offer, and the peer's Answer must be called with that. It waits for one of
// 64 slots, then ends with ctx or after 20 s. Where there is no direct path the
// error wraps peer.ErrNoPath and says what is known of the reason.
func (x *ICE) Find(ctx context.Context, to peer.ID, sig peer.Signal) (peer.Path, error) {
	return x.attempt(ctx, to, sig, nil, nil)
}

// Answer helps the peer find a direct path to us, given the first offer of its
// Find. Should a new Find of the peer's replace that one, so does the answer to
// it. In all else it is as Find.
func (x *ICE) Answer(ctx context.Context, from peer.ID, offer []byte, sig peer.Signal) (peer.Path, error) {
	m, err := decodeMessage(offer)
	if err == nil && m.Answer {
		err = fmt.Errorf("%w: an answer, not an offer", errMessage)
	}
	if err != nil {
		x.n.badSignals.Add(1)
		return nil, fmt.Errorf("ice: offer from %v: %w", from, err)
	}
	past := make(map[string]bool) // so that late offers do not lead back
	for {
		past[m.ID] = true
		path, err := x.attempt(ctx, from, sig, m, past)
		var s superseded
		if !errors.As(err, &s) {
			return path, err
		}
		m = s.by
	}
}

// maxFollowed bounds the attempts of the peer that one Answer follows.
const maxFollowed = 8

// superseded ends an Answer's attempt: the peer has begun another.
type superseded struct{ by *message }

func (superseded) Error() string { return "the peer has begun anew" }

// attempt runs one try from its slot to its path. offer is nil for Find; past
// names the peer's attempts that must not supersede it.
func (x *ICE) attempt(ctx context.Context, to peer.ID, sig peer.Signal, offer *message, past map[string]bool) (peer.Path, error) {
	if err := x.enter(ctx); err != nil {
		x.n.notFound.Add(1)
		return nil, fmt.Errorf("ice: no turn for an attempt to reach %v (%d at once): %w: %w", to, maxAttempts, err, peer.ErrNoPath)
	}
	a, err := x.newAttempt(offer, past)
	if err != nil {
		x.leave()
		x.n.notFound.Add(1)
		return nil, fmt.Errorf("ice: reach %v: %w", to, err)
	}
	remote, err := a.run(ctx, to, sig)
	var path peer.Path
	if err == nil {
		if path = x.cfg.NewPath(remote); path == nil {
			err = fmt.Errorf("the mesh takes no path to %v", remote)
		}
	}
	if err != nil {
		x.n.notFound.Add(1)
		go x.retire(a, 0) // owned by x.running
		return nil, a.failure(to, err)
	}
	x.n.found.Add(1)
	x.cfg.Log.Debug("direct path found", "peer", to, "remote", remote, "lead", a.lead)
	go x.retire(a, linger) // owned by x.running
	return path, nil
}

// newAttempt makes the agent and registers it. It gathers afresh, since
// addresses change with the network.
func (x *ICE) newAttempt(offer *message, past map[string]bool) (*attempt, error) {
	hosts, err := x.hosts()
	if err != nil {
		return nil, fmt.Errorf("list this host's addresses: %w", err)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("this node has no address to be reached at; check its interfaces: %w", peer.ErrNoPath)
	}
	a := &attempt{x: x, lead: offer == nil, past: past, hosts: hosts, sock: newShares(x, hosts)}
	// 60 and 130 bits; RFC 8445 §5.3 wants 24 and 128.
	a.exchange = newExchange(rand.Text()[:12], rand.Text(), hosts, offer)
	patience, interval, wait, never := agentPatience, checkInterval, preferHosts, time.Duration(0)
	checks := uint16(agentChecks)
	a.agent, err = pionice.NewAgent(&pionice.AgentConfig{
		LocalUfrag: a.ours.Ufrag, LocalPwd: a.ours.Pwd,
		UDPMux:           a.sock,
		Net:              &stdnet.Net{}, // lists no interface: the mux knows our addresses
		CandidateTypes:   []pionice.CandidateType{pionice.CandidateTypeHost},
		NetworkTypes:     []pionice.NetworkType{pionice.NetworkTypeUDP4, pionice.NetworkTypeUDP6},
		MulticastDNSMode: pionice.MulticastDNSModeDisabled,
		DisableActiveTCP: true,
		CheckInterval:    &interval, MaxBindingRequests: &checks,
		SrflxAcceptanceMinWait: &wait, PrflxAcceptanceMinWait: &wait,
		DisconnectedTimeout: &patience, FailedTimeout: &patience, KeepaliveInterval: &never,
		LoggerFactory: pionLog{x.cfg.Log},
	})
	if err != nil {
		return nil, fmt.Errorf("make an agent: %w", err)
	}
	x.mu.Lock()
	x.attempts[a.ours.Ufrag] = a
	x.mu.Unlock()
	return a, nil
}

// run gathers, signals and checks until a pair is selected, and returns its
// remote address. Its goroutines have ended when it returns.
func (a *attempt) run(ctx context.Context, to peer.ID, sig peer.Signal) (netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(a.x.life, func() { fail(ErrClosed) })()

	if err := a.agent.OnCandidate(func(pionice.Candidate) {}); err != nil { // pion insists
		return netip.AddrPort{}, err
	}
	if err := a.agent.GatherCandidates(); err != nil {
		return netip.AddrPort{}, err
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { a.gather(ctx) })
	tasks.Go(func() { a.post(ctx, to, sig) })
	tasks.Go(func() { a.read(ctx, to, sig, fail) })
	remote, err := a.connect(ctx)
	if err != nil && ctx.Err() != nil {
		// Time that is up is not the reason, whatever the caller calls it.
		if err = ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
	}
	fail(nil)
	tasks.Wait()
	return remote, err
}

// connect waits for the peer's credentials, then for a pair.
func (a *attempt) connect(ctx context.Context) (netip.AddrPort, error) {
	select {
	case <-a.heard:
	case <-ctx.Done():
		return netip.AddrPort{}, ctx.Err()
	}
	ufrag, pwd := a.credentials()
	start := a.agent.Accept
	if a.lead {
		start = a.agent.Dial
	}
	c, err := start(ctx, ufrag, pwd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	remote, ok := c.RemoteAddr().(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}, errors.New("the agent selected no UDP address")
	}
	return unmap(remote.AddrPort()), nil
}

// request takes a check from the peer.
func (a *attempt) request(pkt []byte, from netip.AddrPort) { a.sock.receive(pkt, from) }

// retire ends an attempt after a while, in which its agent answers the peer's
// last checks: the first to select a pair must not leave the other alone. It
// gives an agent that does not end up, and counts it.
func (x *ICE) retire(a *attempt, after time.Duration) {
	defer x.leave()
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.life.Done():
	}
	x.mu.Lock()
	delete(x.attempts, a.ours.Ufrag)
	x.mu.Unlock()
	_ = a.sock.Close()

	ended := make(chan error, 1)
	go func() { ended <- a.agent.GracefulClose() }() // waited for below, as long as is reasonable
	timer.Reset(closeLimit)
	select {
	case err := <-ended:
		if err != nil {
			x.cfg.Log.Debug("agent closed", "err", err)
		}
	case <-timer.C:
		x.n.stuck.Add(1)
		x.cfg.Log.Warn("an ICE agent does not end; its memory is lost", "stuck", x.n.stuck.Load())
	}
}
