// Package hub admits nodes to a network and keeps them informed of each other:
// the hub's end (Hub) and the node's (Join, Client).
//
// It exists because nodes behind NATs must learn of each other somewhere. A hub
// holds an intermediate certificate and a store. It admits whoever shows a good
// token, renews and revokes certificates, tells every node which others there
// are and which of them are connected, passes on sealed signals, and grants
// leave to use its relay. Nodes believe the certificates in what a hub says, not
// the hub, and go on without it.
//
// It carries no packets, knows no paths, and opens no sealed signal. What is
// said on the wire is in wire.go, what is remembered in ledger.go.
package hub

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Relay is the relay beside a hub. The grant it returns travels as it is.
type Relay interface {
	Admit(id peer.ID, until time.Time) (grant json.RawMessage, err error)
	Revoke(id peer.ID)
}

// Config configures a Hub. Fields without a default are required.
type Config struct {
	Network   peer.Network
	Self      peer.Node
	Keys      cert.Keys
	Chain     func() [][]byte // the hub's own certificate, current
	Issuer    *cert.Issuer
	Store     Store            // the caller closes it after Serve has returned
	Relay     Relay            // nil: this hub relays nothing
	Advertise []string         // HOST:PORT of the hubs, told to joiners and in tokens
	Now       func() time.Time // nil: time.Now
	Log       *slog.Logger     // nil: discard
}

// Hub is the hub's end.
type Hub struct {
	cfg    Config
	log    *slog.Logger
	ledger *ledger
	board  *board
	door   *door

	// deciding is held from a decision in the ledger until the board shows it,
	// lest a certificate just issued bring back a node just removed.
	deciding sync.Mutex
}

// New makes a hub on its store. It starts nothing.
func New(cfg Config) (*Hub, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Chain == nil || cfg.Issuer == nil || cfg.Store == nil:
		return nil, errors.New("hub: a hub needs its certificate, its issuer and its store")
	case cfg.Keys.ID() != cfg.Self.ID:
		return nil, fmt.Errorf("hub: the keys are not those of %s", cfg.Self.Name)
	}
	h := &Hub{cfg: cfg, log: cfg.Log, ledger: &ledger{cfg.Store, cfg.Network, cfg.Issuer}, board: newBoard(), door: newDoor()}
	if err := h.ledger.good(cfg.Self.ID); err != nil { // an empty store would give every address a second time
		return nil, fmt.Errorf("hub: the store is not that of %s (%w); restore it from a backup", cfg.Self.Name, err)
	}
	var err error
	if h.board.revoked, err = h.ledger.revocations(cfg.Now()); err != nil {
		return nil, err
	}
	matters := map[peer.ID]bool{}
	for _, r := range h.board.revoked {
		matters[r.ID] = true
	}
	err = h.ledger.each(func(e nodeEntry) {
		// Who was revoked cannot be removed as well: when no certificate of it can be
		// left it goes by itself, or all that ever were would be told of for ever.
		if !e.Removed && (!e.Revoked || matters[e.ID]) {
			h.board.records[e.ID] = record{ID: e.ID, Chain: e.Chain, Revoked: e.Revoked}
		}
	})
	if err != nil {
		return nil, err
	}
	h.board.limits, err = h.ledger.limits()
	return h, err
}

// AdmitFirst enters the network's first node, a hub, into a fresh store and
// certifies it.
func AdmitFirst(s Store, network peer.Network, issuer *cert.Issuer, keys cert.Keys, name, site string, now time.Time) (peer.Node, [][]byte, error) {
	l := &ledger{s, network, issuer}
	return l.admit(nil, applicant{id: keys.ID(), signKey: keys.Public(), name: name, site: site, roles: peer.RoleHub | peer.RoleRelay}, now)
}

// Serve accepts joiners and control sessions until ctx ends. It owns ln and
// returns after every connection's goroutines have ended.
func (h *Hub) Serve(ctx context.Context, ln net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer ln.Close() // which AfterFunc may only be about to do
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	config := h.tlsConfig()
	for {
		raw, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil { // it came at the last moment
				raw.Close()
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("hub: accept: %w", err)
			}
			h.log.Warn("accept", "err", err)
			select { // out of descriptors, most likely: it passes
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if !h.door.enter(raw) {
			raw.Close()
			continue
		}
		conns.Add(1)
		go func() { // ends with the connection, at the latest with ctx
			defer conns.Done()
			h.serve(ctx, raw, config)
		}()
	}
}

// tlsConfig asks for a certificate only those who speak the control protocol.
// Whether it is good is found after the handshake: an alert of TLS could not say
// what is wrong with it.
func (h *Hub) tlsConfig() *tls.Config {
	join := cert.HubTLSConfig(h.cfg.Keys, h.cfg.Chain, alpnJoin)
	control := cert.HubTLSConfig(h.cfg.Keys, h.cfg.Chain, alpnControl)
	control.ClientAuth = tls.RequireAnyClientCert
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, alpnControl) {
			return control, nil
		}
		return join, nil
	}}
}

// serve serves one connection. It returns the stranger's place once the other
// end is known.
func (h *Hub) serve(ctx context.Context, raw net.Conn, config *tls.Config) {
	known := func() { h.door.leave(raw) }
	defer known()
	conn := tls.Server(raw, config)
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	hctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	if err := conn.HandshakeContext(hctx); err != nil {
		h.log.Debug("handshake", "from", conn.RemoteAddr(), "err", err)
		return
	}
	var err error
	if conn.ConnectionState().NegotiatedProtocol == alpnControl {
		err = h.control(ctx, conn, known)
	} else if h.door.mayJoin(conn.RemoteAddr()) {
		err = h.admission(conn)
	} else {
		err = writeMessage(conn, errorMessage(fmt.Errorf("%w: too many join from this address; try again in a minute", ErrNotNow)))
	}
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		h.log.Info("connection ended", "from", conn.RemoteAddr(), "err", err)
	}
}

// Stats counts what the hub turned away or could not keep.
type Stats struct {
	Refused uint64 // connections beyond the limits on strangers
	Dropped uint64 // messages to nodes that read too slowly
}

// Stats returns the counts since New.
func (h *Hub) Stats() Stats { return Stats{h.door.refused(), h.board.dropped.Load()} }
