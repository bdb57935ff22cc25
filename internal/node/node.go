// Package node puts a node together: it is the only place that knows every room
// of the house and chooses what runs. It holds the order in which things start
// and stop, the glue between them, and nothing that could live in a room.
//
// A daemon's life (Run): lock the state directory; believe the own certificate;
// open the UDP port; on a hub, the store, the relay and the TCP port; the TUN
// with addresses, routes and firewall; the overlay; names; the exec service; the
// local socket; and last the control sessions with the hubs, whose records,
// signals and grants flow into all of these. It stops in the opposite order and
// leaves the host as it was.
package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"golang.org/x/sync/errgroup"
)

// Config says how a daemon runs.
type Config struct {
	State string    // state directory, initialised
	Ports udp.Ports // of the UDP port (and a hub's TCP port); zero: what init or join recorded, else 51820
	TUN   string    // interface name; "": mesh0
	Log   *slog.Logger
	Ready func()          // called once everything runs; may be nil
	Keep  <-chan struct{} // when closed before ctx ends, host set-up and running sessions are left for a successor
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

// renew takes a new chain of the same node into use and onto disk.
func (id *identity) renew(chain [][]byte) error {
	n, err := cert.Verify(chain, id.network.Root, time.Now())
	if err != nil {
		return err
	}
	if err := id.dir.SaveChain(chain); err != nil {
		return err
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
		return nil, fmt.Errorf("node: %s: %w", dir.Path("node.crt"), err)
	}
	self, err := cert.Verify(chain, network.Root, now)
	if err != nil {
		return nil, err
	}
	if self.ID != keys.ID() {
		return nil, fmt.Errorf("node: the certificate in %s is not for the key in it; restore both from one backup or join again", dir.Path(""))
	}
	return &identity{dir: dir, config: config, keys: keys, self: self, network: network, chain: chain, until: self.NotAfter}, nil
}

// daemon is a running node.
type daemon struct {
	cfg Config
	log *slog.Logger
	id  *identity
	dir *directory.Directory

	events *journal
	mesh   *mesh.Mesh
	host   host
	hub    *hubSide // nil on ordinary nodes
	links  *links   // control sessions and relays
	saved  *cache

	port    uint16 // UDP
	group   *errgroup.Group
	closers []closer // undone last to first
	notes   warnings
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.group, ctx = errgroup.WithContext(ctx)
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.start(ctx); err != nil {
		cancel()
		return errors.Join(err, ignoreCancel(d.group.Wait()))
	}
	d.events.emit("started", id.self.Name, "the node runs")
	if cfg.Ready != nil {
		cfg.Ready()
	}
	return ignoreCancel(d.group.Wait())
}

// start brings everything up, in the order of the package comment.
func (d *daemon) start(ctx context.Context) error {
	sock, err := mesh.NewSocket(d.ports())
	if err != nil {
		return err
	}
	d.port = sock.Port()
	if err := d.startHub(ctx, sock); err != nil {
		_ = sock.Close()
		return err
	}
	if err := d.startHost(); err != nil {
		_ = sock.Close()
		return err
	}
	d.loadCache()
	d.links = newLinks(d, sock)
	if err := d.startMesh(ctx, sock); err != nil {
		return err
	}
	if err := d.startNames(ctx); err != nil {
		return err
	}
	if err := d.startExec(ctx); err != nil {
		return err
	}
	if err := d.startAPI(ctx); err != nil {
		return err
	}
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
	return udp.Ports{First: DefaultPort, Last: DefaultPort}
}

// onClose has c closed when the daemon ends, before what was given earlier.
func (d *daemon) onClose(what string, c io.Closer) { d.closers = append(d.closers, closer{what, c}) }

// close undoes everything, in reverse, and goes on after failures.
func (d *daemon) close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		if err := d.closers[i].c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("node: close %s: %w", d.closers[i].what, err))
		}
	}
	return errors.Join(errs...)
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

// warnings are standing remarks that status shows.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) add(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, s)
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.list...)
}
