package mesh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/crypto/chacha20poly1305"
)

// Signals are sealed end to end with a key of the pair, so that the hub that
// passes them on learns nothing and can plant nothing:
//
//	0..23  24..
//	nonce  XChaCha20-Poly1305 of: kind (1), flow (8), message
//
// with the sender's ID as additional data, so that no node takes its own message,
// sent back to it, for the peer's. kind says what the message is for; flow tells apart the exchanges that two
// nodes have at once.
type signalKind uint8

const (
	signalCall   signalKind = 1 // please look for a direct path to me: you lead
	signalOffer  signalKind = 2 // from whoever leads: any of them may be the first to arrive
	signalAnswer signalKind = 3 // from the other side
)

// callMoved is in a call whose sender's network has changed since the search that is under
// way began.
const callMoved = "moved"

const (
	signalHeader   = 9
	signalOverhead = chacha20poly1305.NonceSizeX + signalHeader + chacha20poly1305.Overhead
)

var errSignal = errors.New("mesh: signal cannot be opened")

type flowID [8]byte

func sealSignal(key *pairKey, from peer.ID, kind signalKind, id flowID, msg []byte) ([]byte, error) {
	if len(msg) > peer.MaxSignal-signalOverhead {
		return nil, fmt.Errorf("mesh: a signal of %d bytes is too long", len(msg))
	}
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		return nil, err
	}
	b := make([]byte, chacha20poly1305.NonceSizeX, signalOverhead+len(msg))
	rand.Read(b)
	plain := append(append([]byte{byte(kind)}, id[:]...), msg...)
	return aead.Seal(b, b, plain, from[:]), nil
}

func openSignal(key *pairKey, from peer.ID, b []byte) (signalKind, flowID, []byte, error) {
	if len(b) < signalOverhead || len(b) > peer.MaxSignal {
		return 0, flowID{}, nil, errSignal
	}
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		return 0, flowID{}, nil, err
	}
	nonce, sealed := b[:chacha20poly1305.NonceSizeX], b[chacha20poly1305.NonceSizeX:]
	plain, err := aead.Open(nil, nonce, sealed, from[:])
	if err != nil {
		return 0, flowID{}, nil, errSignal
	}
	return signalKind(plain[0]), flowID(plain[1:signalHeader]), plain[signalHeader:], nil
}

const (
	maxFlows   = 256 // exchanges at once
	flowQueued = 16  // messages one exchange may leave unread; more are lost, as signals may be
)

type flowKey struct {
	peer peer.ID
	id   flowID
}

// flow is one exchange of signals with a peer.
type flow struct {
	m    *Mesh
	key  flowKey
	seal *pairKey
	kind signalKind // of the messages we post
	in   chan []byte

	cancel context.CancelFunc // ends the exchange
}

var _ peer.Signal = (*flow)(nil)

// flows are the exchanges under way, and the last that have ended.
type flows struct {
	mu    sync.Mutex
	byKey map[flowKey]*flow
	ended [64]flowKey // a ring: a late offer must not begin an exchange anew
	next  int
}

func (f *flows) open(fl *flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.byKey) >= maxFlows || f.byKey[fl.key] != nil || slices.Contains(f.ended[:], fl.key) {
		return false
	}
	f.byKey[fl.key] = fl
	return true
}

func (f *flows) close(fl *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byKey, fl.key)
	f.ended[f.next%len(f.ended)] = fl.key
	f.next++
}

func (f *flows) get(k flowKey) *flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byKey[k]
}

// Post implements peer.Signal.
func (f *flow) Post(ctx context.Context, _ peer.ID, msg []byte) error {
	b, err := sealSignal(f.seal, f.m.cfg.Self.ID, f.kind, f.key.id, msg)
	if err != nil {
		return err
	}
	return f.m.cfg.Post(ctx, f.key.peer, b)
}

// Next implements peer.Signal.
func (f *flow) Next(ctx context.Context, _ peer.ID) ([]byte, error) {
	select {
	case msg := <-f.in:
		return msg, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Signal takes a sealed signal that a hub passed on. It does not block.
func (m *Mesh) Signal(from peer.ID, b []byte) {
	m.post(func(now time.Time) { m.signalled(now, from, b) })
}

func (m *Mesh) signalled(now time.Time, from peer.ID, b []byte) {
	r := m.loop.remotes[from]
	if r == nil {
		if _, ok := m.cfg.Directory.ByID(from); !ok || !m.door.signals.AllowN(now, 1) {
			return
		}
		if r = m.configure(now, from); r == nil {
			return
		}
	}
	kind, id, msg, err := openSignal(&r.signalKey, from, b)
	if err != nil {
		m.log.Debug("signal", "node", r.node.Name, "err", err)
		return
	}
	r.lastUsed = now
	r.paths.use(now, true)
	switch kind {
	case signalCall:
		m.called(now, r, string(msg) == callMoved)
	case signalOffer:
		if !m.deliver(flowKey{from, id}, msg) {
			m.answer(now, r, id, msg)
		}
	case signalAnswer:
		m.deliver(flowKey{from, id}, msg)
	}
}

// deliver hands a message to the exchange it belongs to, if that is under way.
func (m *Mesh) deliver(k flowKey, msg []byte) bool {
	f := m.flows.get(k)
	if f == nil {
		return false
	}
	select {
	case f.in <- msg:
	default:
		m.dropped.Add(1)
	}
	return true
}
