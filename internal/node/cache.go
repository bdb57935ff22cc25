package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// What a node remembers of others, so that it finds them again with every hub
// down. Both files are caches: a broken one costs time, never correctness.
const (
	peersFile = "peers.json" // certificates and addresses
	pathsFile = "paths.json" // last working paths
	maxCache  = 64 << 20
)

// cachedPeer is a record on disk.
type cachedPeer struct {
	Chain     [][]byte `json:"chain"`
	Advertise string   `json:"advertise,omitempty"`
	Cores     int      `json:"cores,omitempty"`
	Revoked   bool     `json:"revoked,omitempty"`
}

// cache writes the newest value of each file, one write at a time.
type cache struct {
	dir  *state.Dir
	fail func(error)

	mu      sync.Mutex
	pending map[string]any
	wake    chan struct{}
}

func newCache(dir *state.Dir, fail func(error)) *cache {
	return &cache{dir: dir, fail: fail, pending: map[string]any{}, wake: make(chan struct{}, 1)}
}

// put has v written to the file soon. It never blocks.
func (c *cache) put(file string, v any) {
	c.mu.Lock()
	c.pending[file] = v
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends and everything put before is on disk.
func (c *cache) run(ctx context.Context) error {
	for {
		select {
		case <-c.wake:
			c.flush()
		case <-ctx.Done():
			c.flush()
			return nil
		}
	}
}

func (c *cache) flush() {
	c.mu.Lock()
	work := c.pending
	c.pending = map[string]any{}
	c.mu.Unlock()
	for file, v := range work {
		if err := c.dir.SaveJSON(file, v, 0o600); err != nil {
			c.fail(err)
		}
	}
}

// savePeers remembers the directory.
func (d *daemon) savePeers() {
	recs := d.dir.All()
	list := make([]cachedPeer, 0, len(recs))
	for _, r := range recs {
		list = append(list, cachedPeer{r.Chain, r.Advertise, r.Cores, r.Revoked})
	}
	d.saved.put(peersFile, list)
}

// loadCache fills the directory with what is remembered and still trusted.
func (d *daemon) loadCache() {
	d.saved = newCache(d.id.dir, func(err error) { d.log.Warn("cannot remember", "err", err) })
	var list []cachedPeer
	if err := d.readCache(peersFile, &list); err != nil {
		return
	}
	var recs []peer.Record
	now := time.Now()
	for _, p := range list {
		n, err := cert.Verify(p.Chain, d.id.network.Root, now)
		if err != nil {
			continue // expired while we were away; the hub has newer
		}
		recs = append(recs, peer.Record{Node: n, Chain: p.Chain, Advertise: p.Advertise, Cores: p.Cores, Revoked: p.Revoked})
	}
	d.dir.Apply(true, recs)
}

// restorePeers takes up the peers of the last run.
func (d *daemon) restorePeers(ctx context.Context) error {
	var recent []mesh.Recent
	if err := d.readCache(pathsFile, &recent); err != nil || len(recent) == 0 {
		return nil
	}
	if err := d.mesh.Restore(ctx, recent); err != nil && ctx.Err() == nil {
		return fmt.Errorf("node: restore peers: %w", err)
	}
	return nil
}

func (d *daemon) readCache(file string, v any) error {
	err := d.id.dir.LoadJSON(file, v, maxCache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("ignoring what was remembered", "err", err)
		d.notes.add(err.Error())
	}
	return err
}
