// Package node puts a node together: it is the only place that knows every room
// of the house and chooses what runs. It holds the order in which things start
// and stop, the glue between them, and nothing that could live in a room.
//
// A daemon's life (Run): lock the state directory; believe the own certificate;
// open the UDP port; on a hub, the store, the relay and the TCP port; where metrics
// are asked for; the TUN with addresses, routes and firewall; the pacer and
// programs' socket; the overlay; names; the exec service; the local socket; and
// last the control sessions with the hubs, whose records, signals and grants flow
// into all of these.
//
// It ends in three steps: what must still tell others of its end does so while
// the overlay carries it (leave); everything that runs ends together; then what
// was opened is undone, last to first, and the host is as it was (close).
package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/metrics"
	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"github.com/meshmpi/meshmpi/tun"
	"golang.org/x/sync/errgroup"
)

// Config says how a daemon runs.
type Config struct {
	State string    // state directory, initialised
	Ports udp.Ports // of the UDP port (and a hub's TCP port); zero: what init or join recorded, else 51820
	TUN   string    // interface name; "": mesh0
	// Userspace has the node live in this process alone: a TCP/IP stack of its own
	// in place of a TUN, no names for the host, no remote commands, and any free
	// UDP port unless Ports says otherwise. It needs no privilege.
	Userspace bool
	Pace      Pace           // how it shares its site's links; "": PaceLive
	Sealed    bool           // never reach neighbours over the LAN in clear, whatever the site says
	Metrics   netip.AddrPort // where to serve metrics over HTTP; zero: nowhere
	Log       *slog.Logger
	Ready     func(*Node)     // called once everything runs; may be nil
	Keep      <-chan struct{} // when closed before ctx ends, host set-up and running sessions are left for a successor
}

// DefaultPort is where nodes listen unless told otherwise.
const DefaultPort = 51820

// DefaultTUN names the interface.
const DefaultTUN = "mesh0"

// identity is who this node is: what does not change while it runs, except the
// certificate chain.
type identity struct {
	dir     *state.Dir
	config  state.Node
	keys    cert.Keys
	self    peer.Node
	network peer.Network

	mu    sync.Mutex // guards chain, until
	chain [][]byte
	until time.Time // when chain expires
}

// Chain returns the current certificate chain.
func (id *identity) Chain() [][]byte {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.chain
}

// expires returns when the current certificate ends.
func (id *identity) expires() time.Time {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.until
}

// renew takes a new chain of the same node into use. Saving it is the caller's.
func (id *identity) renew(chain [][]byte, now time.Time) error {
	n, err := cert.Verify(chain, id.network.Root, now)
	if err != nil {
		return err
	}
	if n.ID != id.self.ID {
		return fmt.Errorf("node: the certificate is for %s, not for this node's key", n.Name)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.chain, id.until = chain, n.NotAfter
	return nil
}

// signKey returns the node's signing key.
func (id *identity) signKey() ed25519.PrivateKey { return id.keys.Sign }

// load reads a node's identity from its state directory and checks it.
func load(dir *state.Dir, now time.Time) (*identity, error) {
	config, err := dir.LoadNode()
	if err != nil {
		return nil, err
	}
	keys, err := dir.LoadKeys()
	if err != nil {
		return nil, err
	}
	chain, err := dir.LoadChain()
	if err != nil {
		return nil, err
	}
	root := chain[len(chain)-1]
	network, err := cert.NetworkOf(root)
	if err != nil {
		return nil, fmt.Errorf("node: the certificate in %s: %w", dir.Path(""), err)
	}
	self, err := cert.Verify(chain, network.Root, now)
	if config.Hub && (errors.Is(err, cert.ErrExpired) || errors.Is(err, cert.ErrNotYetValid)) {
		chain, self, err = reissue(dir, chain, network, now)
	}
	if err != nil {
		return nil, err
	}
	if self.ID != keys.ID() {
		return nil, fmt.Errorf("node: the certificate in %s is not for the key in it; restore both from one backup or join again", dir.Path(""))
	}
	return &identity{dir: dir, config: config, keys: keys, self: self, network: network, chain: chain, until: self.NotAfter}, nil
}

// reissue gives a hub another certificate of its own when the one it has does not
// hold: after it was away for longer than that lasts, or had a wrong clock, there
// may be no other hub to ask.
func reissue(dir *state.Dir, old [][]byte, network peer.Network, now time.Time) ([][]byte, peer.Node, error) {
	n, err := cert.Inspect(old, network.Root)
	if err != nil {
		return nil, n, err
	}
	issuer, err := dir.LoadIssuer()
	if err != nil {
		return nil, n, err
	}
	chain, err := issuer.Issue(n, now)
	if err != nil {
		return nil, n, err
	}
	if n, err = cert.Verify(chain, network.Root, now); err != nil {
		return nil, n, err
	}
	return chain, n, dir.SaveChain(chain)
}

// daemon is a running node.
type daemon struct {
	cfg Config
	log *slog.Logger
	id  *identity
	dir *directory.Directory

	events *journal
	mesh   *mesh.Mesh
	host   inside
	stack  *tun.Stack // host, if it is a userspace one
	hub    *hubSide   // nil on ordinary nodes
	links  *links     // control sessions and relays
	saved  *saver

	revoked revocations
	door    *door    // the local socket
	jobs    *jobSide // where ranks meet
	rates

	port      uint16 // UDP
	group     *errgroup.Group
	farewells []closer // what the overlay must still carry, last to first
	closers   []closer // undone when nothing runs any more, last to first
	notes     notes
	scrapers  net.Listener            // where metrics are asked for; nil: nowhere
	counted   []func() []metrics.Drop // by parts that nothing else knows
}

// rates is what decides how fast a node sends, and when it is run.
type rates struct {
	limits     limits
	pacing     *pacing      // nil: nothing is paced
	shares     *liveShares  // nil: shares are fixed
	hints      *hint.Server // what local programs say of their traffic; nil in userspace
	processors *processors  // nil in userspace
	nice       int          // of ordinary processes
}

type closer struct {
	what string
	c    io.Closer
}

// closeFunc is an io.Closer of a function.
type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// Run runs a node until ctx ends, and leaves the host as it found it.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.TUN == "" {
		cfg.TUN = DefaultTUN
	}
	dir, err := state.Open(cfg.State)
	if err != nil {
		return err
	}
	unlock, err := dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	id, err := load(dir, time.Now())
	if err != nil {
		return err
	}
	d := &daemon{cfg: cfg, log: cfg.Log.With("node", id.self.Name), id: id, dir: &directory.Directory{}, events: newJournal()}
	d.jobs = newJobSide(d)
	parts, end := context.WithCancel(context.WithoutCancel(ctx)) // they outlive ctx by the farewells
	defer end()
	d.group, parts = errgroup.WithContext(parts)
	defer func() { err = oneline.Join(err, d.close()) }()
	err = d.start(parts)
	if err == nil {
		d.events.emit("started", id.self.Name, "the node runs")
		if cfg.Ready != nil {
			cfg.Ready(&Node{d})
		}
		select {
		case <-ctx.Done(): // we are asked to end
		case <-parts.Done(): // a part has failed
		}
	}
	left := undo(d.farewells)
	end()
	return oneline.Join(err, ignoreCancel(d.group.Wait()), left)
}

// start brings everything up, in the order of the package comment. What it has
// begun when it fails is for the caller to end.
func (d *daemon) start(ctx context.Context) error {
	if _, err := d.policy(); err != nil { // before anything shows on the host
		return err
	}
	sock, err := mesh.NewSocket(d.ports())
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("node: %w; run meshd as root, grant it CAP_NET_BIND_SERVICE, or choose a port above 1023 with --listen", err)
	}
	if err != nil {
		return err
	}
	d.onClose("the UDP port", once(sock))
	d.port = sock.Port()
	if err := d.openHub(sock); err != nil {
		return err
	}
	if err := d.openMetrics(false); err != nil {
		return err
	}
	if err := d.startInside(ctx); err != nil {
		return err
	}
	if err := d.openMetrics(true); err != nil {
		return err
	}
	d.startSaver()
	d.loadRevoked()
	d.loadCache()
	if !d.cfg.Userspace {
		d.takePrecedence()
		d.startProcessors(ctx)
	}
	if err := d.startPacing(); err != nil {
		return err
	}
	if err := d.holdShares(); err != nil {
		return err
	}
	d.loadLimits()
	d.links = newLinks(d, sock)
	var parts []func(context.Context) error
	if !d.cfg.Userspace {
		parts = append(parts, d.startHints) // before anything asks what they are
	}
	parts = append(parts, func(ctx context.Context) error { return d.startMesh(ctx, sock) }, d.runShares)
	if !d.cfg.Userspace {
		parts = append(parts, d.startNames, d.startExec, d.startJobs)
	}
	for _, begin := range append(parts, d.startAPI, d.startMetrics) { // metrics tell of all others
		if err := begin(ctx); err != nil {
			return err
		}
	}
	d.serveHub(ctx) // last, so that nobody is admitted by a hub that cannot start
	d.links.start(ctx)
	d.group.Go(func() error { return d.restorePeers(ctx) })
	return nil
}

// ports returns the UDP ports to listen on.
func (d *daemon) ports() udp.Ports {
	if d.cfg.Ports != (udp.Ports{}) {
		return d.cfg.Ports
	}
	if p := advertisedPort(d.id.config.Advertise); p != 0 {
		return udp.Ports{First: p, Last: p}
	}
	if d.cfg.Userspace {
		return udp.Ports{}
	}
	return udp.Ports{First: DefaultPort, Last: DefaultPort}
}

// onClose has c closed when everything has ended, before what was given earlier.
func (d *daemon) onClose(what string, c io.Closer) { d.closers = append(d.closers, closer{what, c}) }

// onLeave has f called when the daemon is about to end and the overlay still
// carries packets, before what was given earlier.
func (d *daemon) onLeave(what string, f closeFunc) {
	d.farewells = append(d.farewells, closer{what, f})
}

// close undoes what start did.
func (d *daemon) close() error { return undo(d.closers) }

// undo closes everything, last to first, and goes on after failures.
func undo(list []closer) error {
	var errs []error
	for _, c := range slices.Backward(list) {
		if err := c.c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("node: close %s: %w", c.what, err))
		}
	}
	return oneline.Join(errs...)
}

// handedOver reports whether the host's set-up is to be left for a successor.
func (d *daemon) handedOver() bool {
	select {
	case <-d.cfg.Keep:
		return true
	default:
		return false
	}
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// binDir is where this program and its siblings lie.
func binDir() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(exe)
}
