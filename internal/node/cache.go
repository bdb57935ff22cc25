package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// What a node remembers of others, so that it finds them again with every hub
// down. These files are caches: a broken one costs time, never correctness.
const (
	peersFile = "peers.json" // certificates and addresses
	pathsFile = "paths.json" // last working paths
	maxCache  = 64 << 20

	chainKey = "certificate" // what put calls the node's renewed certificate
)

// cachedPeer is a record on disk.
type cachedPeer struct {
	Chain     [][]byte `json:"chain"`
	Advertise string   `json:"advertise,omitempty"`
	Cores     int      `json:"cores,omitempty"`
	Revoked   bool     `json:"revoked,omitempty"`
}

const (
	saveEvery  = time.Second      // at most: ten thousand nodes are 20 MB
	saveFailed = 10 * time.Second // until a write that failed is tried again
)

// saver writes what changes while the node runs: of everything it is given under
// one name the newest, one write at a time, and again until it has succeeded.
type saver struct {
	note  func(err error)   // told of every failure, and of the first success after one by nil
	wrote func(name string) // told of every write that has succeeded; nil: nobody is

	mu      sync.Mutex // guards pending
	pending map[string]func() error
	wake    chan struct{} // of size 1: there is something to do

	writing sync.Mutex // held by the flush under way; guards failed
	failed  bool
}

func newSaver(note func(error)) *saver {
	return &saver{note: note, pending: map[string]func() error{}, wake: make(chan struct{}, 1)}
}

// put has write called soon, unless it is replaced under its name before. It
// never blocks.
func (s *saver) put(name string, write func() error) {
	s.mu.Lock()
	s.pending[name] = write
	s.mu.Unlock()
	s.poke()
}

func (s *saver) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends. What is left then is for Close.
func (s *saver) run(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		pause := saveEvery
		if s.flush() != nil {
			pause = saveFailed
			s.poke()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// Close writes what is still to be written.
func (s *saver) Close() error { return s.flush() }

// flush writes everything pending and keeps what cannot be written.
func (s *saver) flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	work := s.pending
	s.pending = map[string]func() error{}
	s.mu.Unlock()
	var failed error
	for name, write := range work {
		err := write()
		if err == nil {
			if s.wrote != nil {
				s.wrote(name)
			}
			continue
		}
		failed = oneline.Join(failed, err)
		s.mu.Lock()
		if s.pending[name] == nil { // nothing newer has come
			s.pending[name] = write
		}
		s.mu.Unlock()
	}
	if failed != nil || s.failed {
		s.note(failed)
	}
	s.failed = failed != nil
	return failed
}

// savePeers remembers the directory as it is when it comes to be written.
func (d *daemon) savePeers() {
	d.saved.put(peersFile, func() error {
		recs := d.dir.All()
		list := make([]cachedPeer, 0, len(recs))
		for _, r := range recs {
			list = append(list, cachedPeer{r.Chain, r.Advertise, r.Cores, r.Revoked})
		}
		return d.id.dir.SaveJSON(peersFile, list, 0o600)
	})
}

// startSaver makes what the other parts save through.
func (d *daemon) startSaver() {
	d.saved = newSaver(func(err error) {
		if err == nil {
			d.notes.clear("save")
			d.log.Info("state can be saved again")
			return
		}
		d.notes.set("save", err.Error())
		d.log.Warn("cannot save", "err", err)
	})
	d.saved.wrote = d.notes.clear // of a file that was damaged, and is whole now
	d.onClose("what is remembered", d.saved)
}

// loadCache fills the directory with what is remembered and still trusted.
func (d *daemon) loadCache() {
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
	d.revoked.mark(recs)
	d.dir.Apply(true, recs)
}

// restorePeers takes up the peers of the last run.
func (d *daemon) restorePeers(ctx context.Context) error {
	var recent []mesh.Recent
	_ = d.readCache(pathsFile, &recent) // it has told of what fails; there is nothing to take up then
	if err := d.mesh.Restore(ctx, recent); err != nil && ctx.Err() == nil && !errors.Is(err, mesh.ErrClosed) {
		return fmt.Errorf("node: restore peers: %w", err)
	}
	return nil
}

func (d *daemon) readCache(file string, v any) error {
	err := d.id.dir.LoadJSON(file, v, maxCache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("ignoring what was remembered", "err", err)
		d.notes.set(file, err.Error())
	}
	return err
}
