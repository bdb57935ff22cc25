package ice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/simnet"
	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a simulated internet of 20 ms round trips, with two hubs that answer
// STUN and a signalling that takes as long.
type world struct {
	t      *testing.T
	sim    *simnet.Sim
	public *simnet.Network
	hubs   []*node
	nodes  map[peer.ID]*node
	delay  time.Duration // of signals
	lose   int           // the first so many signals of each node are lost
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, sim: simnet.Start(1), nodes: make(map[peer.ID]*node), delay: 10 * time.Millisecond}
	t.Cleanup(func() { _ = w.sim.Close() })
	w.public = w.sim.Network(netip.MustParsePrefix("198.51.100.0/24"), simnet.Link{Delay: 10 * time.Millisecond})
	w.hubs = append(w.hubs, w.node(w.public), w.node(w.public))
	return w
}

// site makes a LAN behind a NAT.
func (w *world) site(subnet string, cfg simnet.NATConfig) *simnet.Network {
	lan := w.sim.Network(netip.MustParsePrefix(subnet), simnet.Link{Delay: 100 * time.Microsecond})
	w.sim.NAT(lan, w.public, cfg)
	return lan
}

const port = 51820

// node is a mesh reduced to its socket and its signalling.
type node struct {
	w       *world
	id      peer.ID
	machine *simnet.Machine
	socket  *simnet.Socket
	ice     *ICE
	exclude netip.Prefix
	extra   []netip.Addr // pretended local addresses
	posted  atomic.Int64

	mu    sync.Mutex
	boxes map[peer.ID]chan []byte // signals by sender
}

// box holds the signals from a peer: more than a test sends.
func (n *node) box(from *node) chan []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.boxes[from.id] == nil {
		n.boxes[from.id] = make(chan []byte, 64)
	}
	return n.boxes[from.id]
}

func (w *world) node(networks ...*simnet.Network) *node {
	w.t.Helper()
	n := &node{w: w, machine: w.sim.Machine(networks...), boxes: make(map[peer.ID]chan []byte)}
	n.id[0] = byte(len(w.nodes) + 1)
	w.nodes[n.id] = n
	hub := len(w.hubs) < 2 && len(w.nodes) <= 2
	n.ice = New(Config{
		Send: func(pkt []byte, to netip.AddrPort) error { return n.socket.Send(pkt, to) },
		Port: func() uint16 { return port },
		Servers: func() (all []netip.AddrPort) {
			for _, h := range w.hubs {
				all = append(all, h.addr())
			}
			return all
		},
		Exclude:    func(a netip.Addr) bool { return n.exclude.IsValid() && n.exclude.Contains(a) },
		LocalAddrs: func() ([]netip.Addr, error) { return append(n.machine.Addrs(), n.extra...), nil },
		NewPath:    func(remote netip.AddrPort) peer.Path { return fakePath(remote) },
		Serve:      hub,
		Log:        testLog(),
	})
	var err error
	n.socket, err = n.machine.Listen(port, func(pkt []byte, from netip.AddrPort) {
		if wire.Classify(pkt) == wire.ClassSTUN {
			n.ice.Input(pkt, from)
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = n.ice.Close() })
	return n
}

// testLog shows pion's own account when ICE_TEST_LOG is set.
func testLog() *slog.Logger {
	if os.Getenv("ICE_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (n *node) addr() netip.AddrPort { return netip.AddrPortFrom(n.machine.Addrs()[0], port) }

// Post and Next make a node the peer.Signal of its exchanges, one with each peer.
func (n *node) Post(ctx context.Context, to peer.ID, msg []byte) error {
	if n.posted.Add(1) <= int64(n.w.lose) {
		return nil
	}
	box := n.w.nodes[to].box(n)
	time.AfterFunc(n.w.delay, func() {
		select {
		case box <- msg:
		default:
		}
	})
	return nil
}

func (n *node) Next(ctx context.Context, from peer.ID) ([]byte, error) {
	select {
	case b := <-n.box(n.w.nodes[from]):
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fakePath remembers where it leads.
type fakePath netip.AddrPort

func (fakePath) Send([][]byte) error { return nil }
func (p fakePath) Info() peer.PathInfo {
	return peer.PathInfo{Kind: peer.KindUDP, Remote: netip.AddrPort(p)}
}
func (fakePath) Close() error { return nil }

// outcome is what one side of an attempt ends with.
type outcome struct {
	remote netip.AddrPort
	err    error
	took   time.Duration
}

func outcomeOf(start time.Time, p peer.Path, err error) outcome {
	o := outcome{err: err, took: time.Since(start)}
	if err == nil {
		o.remote = p.Info().Remote
	}
	return o
}

// meet lets a find b, and returns what each side ended with.
func (w *world) meet(a, b *node, patience time.Duration) (find, answer outcome) {
	w.t.Helper()
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), patience, errors.New("patience is over"))
	defer cancel()
	start := time.Now()
	answered := make(chan outcome, 1)
	go func() {
		offer, err := b.Next(ctx, a.id)
		if err != nil {
			answered <- outcome{err: errors.Join(err, peer.ErrNoPath)}
			return
		}
		p, err := b.ice.Answer(ctx, a.id, offer, b)
		answered <- outcomeOf(start, p, err)
	}()
	p, err := a.ice.Find(ctx, b.id, a)
	find = outcomeOf(start, p, err)
	return find, <-answered
}

func (o outcome) String() string { return fmt.Sprintf("%v after %v (%v)", o.remote, o.took, o.err) }
