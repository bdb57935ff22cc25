package mesh

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// PeerStatus is what the mesh knows of its way to a peer.
type PeerStatus struct {
	ID      peer.ID
	Path    peer.PathInfo   // the chosen path; Kind none while there is none
	Works   bool            // its last probe was answered
	Others  []peer.PathInfo // paths that work and stand by
	TxBytes uint64          // sealed
	TxPkts  uint64
	RxBytes uint64 // sealed and authentic, by WireGuard's count
	NoPath  uint64 // packets dropped for want of a path
}

// Stats counts what the mesh dropped, and how often it woke.
type Stats struct {
	Events     uint64 // the loop's queue was full
	Replayed   uint64 // pings and initiations that were refused as replays
	Unsent     uint64 // the kernel refused to send
	Overflowed uint64 // the kernel's receive buffers were full
	Alien      uint64 // datagrams of no protocol of ours
	NoOwner    uint64 // packets to virtual addresses that nobody owns, or nobody trusted
	Wakeups    uint64 // not drops: times the loop woke by its clock; a few a second for each peer in use
}

// Stats returns the counters.
func (m *Mesh) Stats() Stats {
	return Stats{
		Events: m.dropped.Load(), Replayed: m.replayed.Load(), Unsent: m.bind.pair.Dropped(), Overflowed: m.bind.pair.Overflowed(),
		Alien: m.bind.other.Load(), NoOwner: m.tun.unknown.Load(), Wakeups: m.wakeups.Load(),
	}
}

// Peers returns the state of every configured peer.
func (m *Mesh) Peers(ctx context.Context) ([]PeerStatus, error) {
	var list []PeerStatus
	received := m.received()
	err := m.do(ctx, func(time.Time) {
		for _, r := range m.loop.remotes {
			st := r.status()
			st.RxBytes = received[r.node.ID]
			list = append(list, st)
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// received asks WireGuard what has come from each peer. The answer is text in which
// a peer's lines follow its key, https://www.wireguard.com/xplatform/.
func (m *Mesh) received() map[peer.ID]uint64 {
	text, err := m.dev.IpcGet()
	if err != nil {
		return nil // it has closed
	}
	bytes := map[peer.ID]uint64{}
	var from peer.ID
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "public_key":
			_, err = hex.Decode(from[:], []byte(value))
		case "rx_bytes":
			if n, bad := strconv.ParseUint(value, 10, 64); err == nil && bad == nil {
				bytes[from] = n
			}
		}
	}
	return bytes
}

func (r *remote) status() PeerStatus {
	s := PeerStatus{ID: r.node.ID, TxBytes: r.ep.txBytes.Load(), TxPkts: r.ep.txPackets.Load(), NoPath: r.ep.noPath.Load()}
	s.Path, s.Works = r.way()
	for _, c := range r.paths.cands {
		if c != r.inUse() && c.state == up {
			s.Others = append(s.Others, c.info())
		}
	}
	return s
}

// info adds what probes measured to what the path says of itself.
func (c *candidate) info() peer.PathInfo {
	i := c.path.Info()
	i.RTT, i.Loss, i.MTU = c.rtt.smoothed, c.loss, c.mtu.found
	return i
}

// Ping measures one round trip to a peer by the chosen path, finding one first
// if there is none. The error says why there was no answer.
func (m *Mesh) Ping(ctx context.Context, id peer.ID) (time.Duration, peer.PathInfo, error) {
	for {
		rtt, info, err := m.pingOnce(ctx, id)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, errUntrusted) {
			return rtt, info, err
		}
	}
}

var errUntrusted = errors.New("mesh: no such node, or its certificate is revoked or expired")

// pingTry is how long one try of Ping waits.
const pingTry = 300 * time.Millisecond

func (m *Mesh) pingOnce(ctx context.Context, id peer.ID) (time.Duration, peer.PathInfo, error) {
	answer := make(chan time.Duration, 1)
	var info peer.PathInfo
	var name string
	err := m.do(ctx, func(now time.Time) {
		r := m.configure(now, id)
		if r == nil {
			return
		}
		name = r.node.Name
		r.lastUsed = now
		r.paths.use(now, true)
		if c := r.inUse(); c != nil {
			txid := rand.Uint64()
			info = c.info()
			c.pings = append(c.pings, ping{txid: txid, sent: now, waiter: answer})
			m.sendPing(r, order{c: c, txid: txid})
		}
		m.serve(now, r)
	})
	if err != nil {
		return 0, peer.PathInfo{}, err
	}
	if name == "" {
		return 0, info, errUntrusted
	}
	select {
	case rtt := <-answer:
		info.RTT = rtt
		return rtt, info, nil
	case <-time.After(pingTry):
		err = fmt.Errorf("mesh: %s does not answer by %s", name, info.Kind)
	case <-ctx.Done():
		err = fmt.Errorf("mesh: %s does not answer by %s: %w", name, info.Kind, ctx.Err())
	}
	return 0, info, err
}

// Traffic tells of every node that is paced what has passed to and from it since it
// was last configured.
func (m *Mesh) Traffic(yield func(peer.Traffic)) {
	m.bind.endpoints.Range(func(_, v any) bool {
		if e := v.(*Endpoint); e.flow != nil {
			yield(peer.Traffic{ID: e.id, Sent: e.txWire(), Received: e.rxWire.Load(), RTT: time.Duration(e.rtt.Load())})
		}
		return true
	})
}
