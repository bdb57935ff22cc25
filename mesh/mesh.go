// Package mesh is a node's overlay: it carries virtual packets to peers, sealed
// by WireGuard, over whatever path to each peer works best at the moment.
//
// Why it exists: WireGuard knows one address a peer and no way to find it. Here
// a peer has a set of paths (direct by UDP, through relays) that finders like
// ICE discover, that probes keep under watch, and among which the mesh chooses
// anew whenever one appears, fades or dies. WireGuard's sessions never notice.
//
// One packet on its way out:
//
//	TUN → firstUse (configures the peer if this is the first packet to it)
//	    → wireguard-go (seals) → Bind.Send → Endpoint → the chosen path → UDP
//
// and in:
//
//	UDP → receiver: STUN to the finder, relay frames to the forwarder,
//	    probes to the loop, initiations to the loop and then to WireGuard,
//	    the rest to WireGuard → TUN
//
// One goroutine, the loop (Run), owns all state of peers and paths; others send
// it functions. Data never passes the loop.
//
// The mesh does not know how nodes are admitted, who relays, how candidates are
// gathered or what the host's routes are: certificates' contents come in as
// records (mesh/directory), relays and finders through the interfaces below.
package mesh

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"golang.zx2c4.com/wireguard/device"
	wgtun "golang.zx2c4.com/wireguard/tun"
)

// Relay is a relay that this node may send through.
type Relay interface {
	Name() string
	Addr() netip.AddrPort
	// Bound reports whether the relay accepts packets from us now.
	Bound() bool
	// Check has the relay find out soon whether it still knows us; it must not block.
	Check()
	// Path returns a path to the peer through the relay.
	Path(to peer.ID) peer.Path
	// Unwrap returns the sender and the content of a relayed datagram, which it borrows.
	Unwrap(pkt []byte) (from peer.Short, inner []byte, ok bool)
	// HandleBound takes the relay's answer to a binding; it must not block.
	HandleBound(pkt []byte, from netip.AddrPort)
}

// Forwarder is the relay in this node: it is given frames that others sent it,
// in order, all from one address. It may change them and must not keep them.
type Forwarder interface {
	Input(pkts [][]byte, from netip.AddrPort)
}

// Recent is what is worth remembering of a peer across a restart.
type Recent struct {
	ID    peer.ID          `json:"id"`
	Addrs []netip.AddrPort `json:"addrs"` // of direct paths that worked, best first
}

// Device is the TUN's side of the overlay.
type Device interface {
	wgtun.Device
	// Interrupt makes the Read that is under way, or else the next, return; it may
	// return no packets and no error. It does not block.
	Interrupt()
}

// Config configures a Mesh. Every field without a default is required.
type Config struct {
	Network   peer.Network
	Self      peer.Node
	WGKey     [32]byte
	Socket    *Socket
	TUN       Device // the mesh closes it
	Directory *directory.Directory

	Finder      peer.Finder                                           // nil: no direct paths but known addresses
	Post        func(ctx context.Context, to peer.ID, m []byte) error // hands a sealed signal to a hub
	PathMTU     func(n peer.Node, mtu int)                            // called by the loop when a peer's path carries less than the TUN's MTU; 0: it no longer does; must not block; may be nil
	PathRTT     func(n peer.Node, rtt time.Duration)                  // of a peer's path, each time it has changed by a quarter; 0: the peer is forgotten, or not measured; must not block; may be nil
	Remember    func([]Recent)                                        // called by the loop when it changed, once Restore has begun; must not block; may be nil
	PathChanged func(n peer.Node, i peer.PathInfo)                    // called by the loop; must not block; may be nil
	LAN         LAN                                                   // nil: all goes through the TUN
	Pacer       peer.Pacer                                            // of what goes to other sites; nil: nothing is paced
	Kernel      bool                                                  // the TUN leads to a kernel's TCP, which is told of outages
	Log         *slog.Logger                                          // nil: discard
}

// Socket is the node's UDP port before the mesh runs on it, so that a finder
// can be built around it.
type Socket struct{ bind *Bind }

// NewSocket opens the port.
func NewSocket(ports udp.Ports) (*Socket, error) {
	pair, err := udp.Listen(ports)
	if err != nil {
		return nil, err
	}
	return &Socket{newBind(pair)}, nil
}

// Port returns the local UDP port.
func (s *Socket) Port() uint16 { return s.bind.pair.Port() }

// Send sends datagrams to an address; see udp.Pair.Send for who owns them.
func (s *Socket) Send(pkts [][]byte, to netip.AddrPort) error { return s.bind.pair.Send(pkts, to) }

// NewPath returns the direct path to an address through this socket.
func (s *Socket) NewPath(to netip.AddrPort) peer.Path { return &direct{s.bind.pair, to} }

// OnSTUN sets who is given STUN messages, before the mesh is made. It is called
// by the sockets' readers: it must not block and must not keep the bytes.
func (s *Socket) OnSTUN(f func(pkt []byte, from netip.AddrPort)) { s.bind.stun = f }

// AnswerWhereAsked is for a node that others know by an address: what is sent to them
// comes from there; see udp.Pair. Call it before the mesh is made.
func (s *Socket) AnswerWhereAsked() error { return s.bind.pair.AnswerWhereAsked() }

// Forward sets the relay in this node, before the mesh is made.
func (s *Socket) Forward(f Forwarder) { s.bind.relay = f }

// Close closes a socket that no mesh was made on.
func (s *Socket) Close() error { return s.bind.pair.Close() }

// Mesh is a running overlay.
type Mesh struct {
	cfg      Config
	log      *slog.Logger
	bind     *Bind
	dev      *device.Device
	open     *opener
	tun      *firstUse
	short    peer.Short
	sizes    []int // virtual MTUs to probe
	events   chan func(now time.Time)
	wanted   wanted
	done     chan struct{} // closed when the loop has ended
	nearKeys sync.Map      // peer.Short → *pairKey, of peers to which the LAN is open
	waiting  waiting
	flows    flows
	door     *door
	dropped  atomic.Uint64 // events the loop had no room for
	replayed atomic.Uint64 // pings and initiations that were refused as replays
	wakeups  atomic.Uint64 // times the loop woke by its clock
	workers  sync.WaitGroup

	loop loopState // owned by Run
}

// loopState is what only the loop touches.
type loopState struct {
	ctx        context.Context
	remotes    map[peer.ID]*remote
	relays     map[string]wantedRelay // in use
	wake       time.Time              // when tick is due; zero: nothing waits
	lastSample time.Time
	remembered time.Time
	changed    bool                         // what Remember wants has changed
	recall     map[peer.ID][]netip.AddrPort // what Restore has yet to take up; nil before it begins
}

// eventsWaiting bounds what waits for the loop: a burst of probes from a few
// hundred peers. More are dropped and counted.
const (
	eventsWaiting = 1024
	probesWaiting = eventsWaiting / 2 // of all that waits; then no more probes are taken
)

// New builds the overlay's device on the socket; Run starts it.
func New(cfg Config) (*Mesh, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	open, err := newOpener(cfg.WGKey)
	if err != nil {
		return nil, fmt.Errorf("mesh: own WireGuard key: %w", err)
	}
	mtu, err := cfg.TUN.MTU()
	if err != nil {
		return nil, fmt.Errorf("mesh: the TUN's MTU: %w", err)
	}
	m := &Mesh{
		cfg:     cfg,
		log:     cfg.Log,
		bind:    cfg.Socket.bind,
		open:    open,
		short:   cfg.Self.ID.Short(),
		sizes:   probeSizes(mtu),
		events:  make(chan func(time.Time), eventsWaiting),
		wanted:  newWanted(),
		done:    make(chan struct{}),
		waiting: newWaiting(),
		door:    newDoor(),
	}
	m.loop.remotes = map[peer.ID]*remote{}
	m.flows.byKey = map[flowKey]*flow{}
	m.bind.sink, m.bind.pacer, m.bind.log = m, cfg.Pacer, cfg.Log
	m.tun = newFirstUse(cfg.TUN, m)
	m.dev = device.NewDevice(m.tun, m.bind, wgLogger(cfg.Log))
	m.dev.DisableSomeRoamingForBrokenMobileSemantics() // endpoints never roam: see Endpoint
	if err := m.dev.IpcSet("private_key=" + hex.EncodeToString(cfg.WGKey[:])); err != nil {
		m.dev.Close()
		return nil, fmt.Errorf("mesh: own WireGuard key: %w", err)
	}
	return m, nil
}

// probeSizes lists the virtual MTUs worth probing: the TUN's, then what common
// tunnels and links leave, down to IPv6's least.
func probeSizes(mtu int) []int {
	sizes := []int{mtu}
	for _, s := range []int{1380, 1340, 1280, 1200, 1100, 1000, 800, 576} {
		if s < mtu {
			sizes = append(sizes, s)
		}
	}
	return sizes
}

// Run carries packets until ctx ends. It returns after every goroutine of the
// mesh and of its device has ended; the socket and the TUN are closed then.
func (m *Mesh) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	m.loop.ctx = ctx
	err := m.dev.Up()
	if err == nil {
		err = m.run(ctx)
	}
	cancel()
	close(m.done) // releases a TUN reader that waits for the loop
	m.tun.stop()  // so that none enters wireguard-go while it closes
	m.dev.Close()
	m.workers.Wait()
	if err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	return nil
}

func wgLogger(log *slog.Logger) *device.Logger {
	return &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf:   func(f string, args ...any) { log.Debug("wireguard", "says", fmt.Sprintf(f, args...)) },
	}
}
