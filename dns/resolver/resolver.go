// Package resolver makes the host's own resolver ask meshd for the overlay's
// names, and puts everything back afterwards.
//
// It exists because programs use the C library's resolver, whose configuration
// belongs to the host and to the programs that manage it. It therefore keeps
// three promises: a journal is on disk before anything changes, so that a crash
// at any moment can be repaired (Restore); a dead meshd does not take the
// host's names with it, since the servers that were there stay behind ours; and
// what others write is theirs: it is learned from, edited again, and left as
// they wrote it in the end.
//
// Where systemd-resolved answers programs, it is told (resolved.go). Else
// /etc/resolv.conf is edited:
//
//   - A symbolic link is written through, never replaced. Its owner
//     (NetworkManager, resolvconf) goes on to update the file it knows, which
//     Watch follows; the link needs no repair; and since such files live in
//     /run, even a host that crashes for good starts clean.
//   - The file is replaced by rename so that no reader sees half of it, or
//     written in place where that cannot be, such as a bind mount (file.go).
//   - The edit can be undone from the edited file alone (conf.go), so edits
//     that others make inside it survive, and ours is never taken for an
//     original.
//   - No option is added. A dead server on the loopback refuses at once, so a
//     shorter timeout would gain nothing and harm the servers behind. The one
//     option that is suspended is rotate, with which two of three questions
//     for overlay names would go to servers that deny them.
//
// It does not serve names (package dns does) and starts no goroutine. The C
// library musl asks all servers at once and believes the first that denies a
// name; on such hosts overlay names are found only if ours is the fastest,
// which on the loopback it is.
package resolver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	confPath     = "/etc/resolv.conf"
	maxUpstreams = 8  // servers learned from one file
	port         = 53 // resolv.conf knows no other
)

// implied is the server that a resolv.conf without one means (resolv.conf(5)).
var implied = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Config says what to install. StateDir, Server and Domain are required.
type Config struct {
	StateDir string       // where the journal goes; must exist
	Root     string       // stands for /; "" is /, others are for tests and never reach systemd-resolved
	Server   netip.Addr   // where package dns answers, on port 53
	Domain   string       // the overlay's domain
	Site     string       // this node's site, whose names are searched first; "" for none
	Link     string       // the overlay's network link, for systemd-resolved; "" to leave that alone
	Routes   []string     // further zones to ask Server for, such as dns.Server.ReverseZones; systemd-resolved only
	Log      *slog.Logger // nil: silent
}

// env is the world outside the file system, which tests replace.
type env struct {
	ctl      control
	runs     func() bool // whether systemd-resolved runs
	hostname func() (string, error)
	now      func() time.Time
}

// Resolver is an installed change. Its methods may be called concurrently.
type Resolver struct {
	cfg  Config
	env  env
	edit edit

	upstreams atomic.Pointer[[]netip.AddrPort] // not under mu, which is held over resolvectl and fsync

	mu      sync.Mutex
	journal journal // what is on disk
	closed  bool
	watch   watch
}

// Install changes the host's resolver. It first repairs what a crash left
// behind (Restore). On error nothing has changed, and the error is one line.
func Install(cfg Config) (*Resolver, error) {
	root := filepath.Join("/", cfg.Root)
	return install(cfg, env{
		ctl:      resolvectl,
		runs:     func() bool { return root == "/" && resolvedRuns(context.Background(), root, resolvectl) },
		hostname: os.Hostname,
		now:      time.Now,
	})
}

func install(cfg Config, e env) (*Resolver, error) {
	cfg.Root = filepath.Join("/", cfg.Root)
	cfg.Domain = strings.Trim(cfg.Domain, ".")
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if !cfg.Server.IsValid() || cfg.Domain == "" || cfg.StateDir == "" {
		return nil, errors.New("resolver: StateDir, Server and Domain are required")
	}
	if strings.ContainsFunc(cfg.Domain+cfg.Site, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("resolver: %q cannot stand in a resolv.conf", cfg.Site+"."+cfg.Domain)
	}
	if _, err := restore(cfg.StateDir, cfg.Log, e); err != nil {
		return nil, err
	}
	r := &Resolver{cfg: cfg, env: e, edit: newEdit(cfg, e)}
	if err := r.begin(); err != nil {
		_, undone := r.journal.undo(e)
		if undone == nil {
			undone = dropJournal(cfg.StateDir)
		}
		if undone != nil {
			err = fmt.Errorf("%w; what was begun is left for meshd restore: %w", err, undone)
		}
		return nil, err
	}
	return r, nil
}

func newEdit(cfg Config, e env) edit {
	ed := edit{server: cfg.Server}
	if cfg.Site != "" {
		ed.search = append(ed.search, cfg.Site+"."+cfg.Domain)
	}
	ed.search = append(ed.search, cfg.Domain)
	if name, err := e.hostname(); err == nil {
		_, ed.host, _ = strings.Cut(name, ".")
	}
	return ed
}

// path is the resolv.conf that programs open.
func (r *Resolver) path() string { return filepath.Join(r.cfg.Root, confPath) }

// begin makes the first changes. Who answers programs decides which: a stub
// address in resolv.conf or nss-resolve mean systemd-resolved, everything but
// the stub address means resolv.conf; both may be true.
func (r *Resolver) begin() error {
	target, err := follow(r.cfg.Root, r.path())
	if err != nil {
		return err
	}
	data, exists, err := read(target)
	if err != nil {
		return err
	}
	orig, _ := strip(data, r.cfg.Server)
	r.learn(orig)
	toStub := stub(orig)
	if r.cfg.Link != "" && r.env.runs() && (toStub || nssResolve(r.cfg.Root)) {
		err := r.beginLink()
		if err == nil && toStub {
			r.cfg.Log.Info("resolver set", "through", "systemd-resolved", "link", r.cfg.Link)
			return nil
		}
		if err != nil {
			r.cfg.Log.Warn("resolver set through resolv.conf instead", "err", err)
		}
	}
	if err := r.put(target, orig, exists); err != nil {
		return err
	}
	r.cfg.Log.Info("resolver set", "through", target, "server", r.cfg.Server)
	return nil
}

// beginLink sets the link up in systemd-resolved, or leaves no trace there.
func (r *Resolver) beginLink() error {
	r.journal.Link = r.cfg.Link
	err := saveJournal(r.cfg.StateDir, r.journal)
	if err == nil {
		err = setLink(context.Background(), r.env.ctl, r.cfg, r.edit.search)
	}
	if err != nil && r.env.ctl(context.Background(), "revert", r.cfg.Link) == nil {
		r.journal.Link = "" // else it is reverted by Close or Restore
	}
	return err
}

// put edits target, whose content without our edit is orig; journal first.
func (r *Resolver) put(target string, orig []byte, exists bool) error {
	next := r.journal
	next.File = &fileEntry{
		Root: r.cfg.Root, Path: r.path(), Target: target, Server: r.cfg.Server, Existed: exists,
		Original: orig, Written: r.edit.apply(orig), Made: missingDirs(target),
	}
	if old := r.journal.File; old != nil && old.Target == target && len(next.File.Made) == 0 {
		next.File.Made = old.Made
	}
	if err := next.File.check(); err != nil {
		return err
	}
	if err := saveJournal(r.cfg.StateDir, next); err != nil {
		return err
	}
	r.journal = next
	if len(next.File.Made) > 0 {
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("resolver: %w", err)
		}
	}
	return write(target, next.File.Written, r.cfg.Server)
}

// learn takes the upstreams, but some, from orig, a resolv.conf without our edit.
func (r *Resolver) learn(orig []byte, but ...netip.Addr) {
	servers := hostsOwn(orig, append(but, r.cfg.Server)...)
	if len(servers) == 0 {
		servers = []netip.Addr{implied}
	}
	var ups []netip.AddrPort
	for _, a := range servers {
		ups = append(ups, netip.AddrPortFrom(a, port))
	}
	r.upstreams.Store(&ups)
}

// Upstreams returns the servers that the host had, or has been given since, in
// their order, without ours and at most 8. A resolv.conf that names none means
// 127.0.0.1, where a server may run or not. It never waits.
func (r *Resolver) Upstreams() []netip.AddrPort { return slices.Clone(*r.upstreams.Load()) }

// Close puts everything back and removes the journal. On error the journal
// stays, for Restore. A second Close does nothing.
func (r *Resolver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if _, err := r.journal.undo(r.env); err != nil {
		return err
	}
	r.closed = true
	return dropJournal(r.cfg.StateDir)
}
