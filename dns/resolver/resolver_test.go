package resolver

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const theirs = "# by NetworkManager\nsearch cluster.org\nnameserver 10.0.0.1\nnameserver 10.0.0.2\n"

// A host is a directory that stands for /.
type host struct {
	t     *testing.T
	root  string
	state string
	env   env
	calls []string // of resolvectl
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, root: t.TempDir(), state: t.TempDir()}
	for _, dir := range []string{"etc", "run/manager"} {
		if err := os.MkdirAll(filepath.Join(h.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.env = env{
		ctl: func(_ context.Context, args ...string) error {
			h.calls = append(h.calls, strings.Join(args, " "))
			return nil
		},
		runs:     func() bool { return false },
		hostname: func() (string, error) { return "n1", nil },
		now:      time.Now,
	}
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.root, name) }

func (h *host) write(name, data string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(data), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(h.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "(missing)"
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

func (h *host) link(to, name string) {
	h.t.Helper()
	if err := os.Symlink(to, h.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) config() Config {
	return Config{
		StateDir: h.state,
		Root:     h.root,
		Server:   netip.MustParseAddr("127.77.0.53"),
		Domain:   "mesh.internal",
		Site:     "paris",
		Link:     "lo", // one that exists
		Routes:   []string{"80.100.in-addr.arpa"},
	}
}

func (h *host) install() *Resolver {
	h.t.Helper()
	r, err := install(h.config(), h.env)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *host) restore() []string {
	h.t.Helper()
	changed, err := restore(h.state, nil, h.env)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(h.state, journalName)); err == nil {
		h.t.Error("the journal is still there")
	}
	return changed
}

// tree describes every file under root: kind, mode, owner, links, content.
func (h *host) tree() string {
	h.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(h.root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		sys := st.Sys().(*syscall.Stat_t)
		b.WriteString(strings.TrimPrefix(path, h.root) + " " + st.Mode().String())
		b.WriteString(" " + string(rune('0'+sys.Uid%10)) + string(rune('0'+sys.Gid%10)))
		if st.Mode().Type() == fs.ModeSymlink {
			to, _ := os.Readlink(path)
			b.WriteString(" -> " + to)
		}
		if st.Mode().IsRegular() {
			data, _ := os.ReadFile(path)
			xattr := make([]byte, 64)
			n, _ := syscall.Getxattr(path, "user.test", xattr)
			b.WriteString(" " + string(xattr[:max(n, 0)]) + " <" + string(data) + ">")
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return b.String()
}

// kinds are the kinds of resolv.conf that hosts have, and the file behind each.
var kinds = []struct {
	what, target string
	make         func(h *host)
}{
	{"file", "etc/resolv.conf", func(h *host) { h.write("etc/resolv.conf", theirs) }},
	{"mode and owner", "etc/resolv.conf", func(h *host) {
		h.write("etc/resolv.conf", theirs)
		os.Chown(h.path("etc/resolv.conf"), 3, 4)
		os.Chmod(h.path("etc/resolv.conf"), 0o640)
		syscall.Setxattr(h.path("etc/resolv.conf"), "user.test", []byte("kept"), 0)
	}},
	{"empty", "etc/resolv.conf", func(h *host) { h.write("etc/resolv.conf", "") }},
	{"missing", "etc/resolv.conf", func(*host) {}},
	{"relative link", "run/manager/resolv.conf", func(h *host) {
		h.write("run/manager/resolv.conf", theirs)
		h.link("../run/manager/resolv.conf", "etc/resolv.conf")
	}},
	{"absolute link", "run/manager/resolv.conf", func(h *host) {
		h.write("run/manager/resolv.conf", theirs)
		h.link("/run/manager/resolv.conf", "etc/resolv.conf")
	}},
	{"link to link", "run/manager/resolv.conf", func(h *host) {
		h.write("run/manager/resolv.conf", theirs)
		h.link("manager/resolv.conf", "run/resolv.conf")
		h.link("../run/resolv.conf", "etc/resolv.conf")
	}},
	{"dangling link", "run/nobody/here/resolv.conf", func(h *host) {
		h.link("../run/nobody/here/resolv.conf", "etc/resolv.conf")
	}},
	{"hard link", "etc/resolv.conf", func(h *host) {
		h.write("etc/resolv.conf", theirs)
		if err := os.Link(h.path("etc/resolv.conf"), h.path("run/second")); err != nil {
			h.t.Fatal(err)
		}
	}},
}

func TestInstallAndClose(t *testing.T) {
	for _, kind := range kinds {
		for _, end := range []string{"Close", "Restore", "Install again"} {
			t.Run(kind.what+"/"+end, func(t *testing.T) {
				h := newHost(t)
				kind.make(h)
				before, content := h.tree(), h.read(kind.target)
				r := h.install()
				if got := h.read(kind.target); !strings.HasPrefix(got, own.begin+"\nnameserver 127.77.0.53\n") {
					t.Errorf("installed %q", got)
				}
				want := []string{"10.0.0.1:53", "10.0.0.2:53"}
				if !strings.Contains(content, "nameserver") {
					want = []string{"127.0.0.1:53"}
				}
				if got := addrs(r); !slices.Equal(got, want) {
					t.Errorf("upstreams %v, want %v", got, want)
				}
				switch end {
				case "Restore": // as after a crash
					if got := h.restore(); !slices.Equal(got, []string{h.path(kind.target)}) {
						t.Errorf("restored %v, want %s", got, kind.target)
					}
					if got := h.restore(); got != nil {
						t.Errorf("restored %v the second time", got)
					}
				case "Install again":
					r = h.install()
					fallthrough
				default:
					for range 2 {
						if err := r.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if after := h.tree(); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}

func addrs(r *Resolver) []string {
	var list []string
	for _, u := range r.Upstreams() {
		list = append(list, u.String())
	}
	return list
}

// TestRestoreForeign crashes, lets others write, and restores.
func TestRestoreForeign(t *testing.T) {
	const newer = "nameserver 10.9.9.9\n"
	for _, tt := range []struct {
		what   string
		change func(h *host)
		want   string
	}{
		{"rewritten", func(h *host) { h.write("etc/resolv.conf", newer) }, newer},
		{"removed", func(h *host) { os.Remove(h.path("etc/resolv.conf")) }, "(missing)"},
		{"line added", func(h *host) {
			h.write("etc/resolv.conf", h.read("etc/resolv.conf")+"options edns0\n")
		}, theirs + "options edns0\n"},
		{"replaced by a link", func(h *host) {
			h.write("run/manager/resolv.conf", newer)
			os.Remove(h.path("etc/resolv.conf"))
			h.link("../run/manager/resolv.conf", "etc/resolv.conf")
		}, newer},
		{"moved behind a link", func(h *host) {
			os.Rename(h.path("etc/resolv.conf"), h.path("run/manager/resolv.conf"))
			h.link("../run/manager/resolv.conf", "etc/resolv.conf")
		}, theirs},
		{"restore cut short", func(h *host) {
			ours := h.read("etc/resolv.conf")
			h.write("etc/resolv.conf", theirs+ours[len(theirs):])
		}, theirs},
		{"journal, but no edit", func(h *host) { h.write("etc/resolv.conf", theirs) }, theirs},
	} {
		t.Run(tt.what, func(t *testing.T) {
			h := newHost(t)
			h.write("etc/resolv.conf", theirs)
			h.install()
			tt.change(h)
			h.restore()
			if got := h.read("etc/resolv.conf"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestLinkTakesOver has a program move the file, our edit and all, and put a link
// to it in its place, as Debian's resolvconf does: the link is followed, not
// replaced.
func TestLinkTakesOver(t *testing.T) {
	for _, end := range []string{"Close", "Restore", "Watch and Close"} {
		t.Run(end, func(t *testing.T) {
			h := newHost(t)
			h.write("etc/resolv.conf", theirs)
			r := h.install()
			h.write("run/manager/resolv.conf", h.read("etc/resolv.conf"))
			if err := os.Remove(h.path("etc/resolv.conf")); err != nil {
				t.Fatal(err)
			}
			h.link("../run/manager/resolv.conf", "etc/resolv.conf")
			switch end {
			case "Restore": // as after a crash
				h.restore()
			case "Watch and Close":
				for range 4 {
					if err := r.look(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if !edited(h) {
					t.Errorf("our server is not back: %q", h.read("etc/resolv.conf"))
				}
				fallthrough
			default:
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if to, err := os.Readlink(h.path("etc/resolv.conf")); err != nil || to != "../run/manager/resolv.conf" {
				t.Errorf("the link leads to %q, %v", to, err)
			}
			if got := h.read("run/manager/resolv.conf"); got != theirs {
				t.Errorf("put back %q, want %q", got, theirs)
			}
		})
	}
}

// TestWriteNeverReplacesLinks: a link that has come meanwhile is an error.
func TestWriteNeverReplacesLinks(t *testing.T) {
	h := newHost(t)
	h.write("run/manager/resolv.conf", theirs)
	h.link("../run/manager/resolv.conf", "etc/resolv.conf")
	before := h.tree()
	if err := write(h.path("etc/resolv.conf"), []byte("nameserver 10.9.9.9\n"), h.config().Server); err == nil {
		t.Error("written in a link's place")
	}
	if after := h.tree(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestSweep: what killed writes left goes with the edit, and with a link in the
// file's place too; files of other programs and other networks' daemons stay.
func TestSweep(t *testing.T) {
	for _, linked := range []bool{false, true} {
		h := newHost(t)
		h.write("etc/resolv.conf", theirs)
		stays := []string{h.path("etc/.resolv.conf.meshmpi-127.77.0.54-1"), h.path("etc/.resolv.conf4711")}
		stale := filepath.Join(h.state, "."+journalName+"4711")
		for _, path := range append(stays, stale) {
			if err := os.WriteFile(path, []byte(theirs), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		h.install()
		dirs := []string{"etc"}
		if linked {
			dirs = append(dirs, "run/manager")
			if err := os.Rename(h.path("etc/resolv.conf"), h.path("run/manager/resolv.conf")); err != nil {
				t.Fatal(err)
			}
			h.link("../run/manager/resolv.conf", "etc/resolv.conf")
		}
		for _, dir := range dirs {
			f, err := draft(h.path(dir+"/resolv.conf"), h.config().Server)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		h.restore() // as after a crash
		var left []string
		for _, pattern := range []string{"etc/.resolv*", "run/manager/.resolv*"} {
			found, err := filepath.Glob(h.path(pattern))
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, found...)
		}
		if !slices.Equal(left, stays) {
			t.Errorf("linked %v: %v are left, want %v", linked, left, stays)
		}
		if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the journal's temporary file is left: %v", err)
		}
	}
}

// TestLeftover installs over an edit whose journal is gone: it is never taken
// for an original.
func TestLeftover(t *testing.T) {
	h := newHost(t)
	h.write("etc/resolv.conf", theirs)
	h.install()
	if err := os.Remove(filepath.Join(h.state, journalName)); err != nil {
		t.Fatal(err)
	}
	r := h.install()
	if got, want := addrs(r), []string{"10.0.0.1:53", "10.0.0.2:53"}; !slices.Equal(got, want) {
		t.Errorf("upstreams %v, want %v", got, want)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := h.read("etc/resolv.conf"); got != theirs {
		t.Errorf("put back %q, want %q", got, theirs)
	}
}

func TestInstallRefuses(t *testing.T) {
	for _, tt := range []struct {
		what string
		make func(h *host, c *Config)
		want string // within the error
	}{
		{"no server", func(_ *host, c *Config) { c.Server = netip.Addr{} }, "required"},
		{"bad site", func(_ *host, c *Config) { c.Site = "a\nnameserver 6.6.6.6" }, "cannot stand"},
		{"no state", func(_ *host, c *Config) { c.StateDir += "/no" }, "journal"},
		{"directory", func(h *host, _ *Config) { os.Mkdir(h.path("etc/resolv.conf"), 0o755) }, "not a regular file"},
		{"pipe", func(h *host, _ *Config) { syscall.Mkfifo(h.path("etc/resolv.conf"), 0o644) }, "not a regular file"},
		{"huge", func(h *host, _ *Config) { h.write("etc/resolv.conf", strings.Repeat("#\n", maxConf)) }, "longer"},
		{"huge with our edit", func(h *host, _ *Config) { h.write("etc/resolv.conf", strings.Repeat("search a\n", 7000)) }, "shorten it"},
		{"loop", func(h *host, _ *Config) { h.link("resolv.conf", "etc/resolv.conf") }, "symbolic links"},
		{"damaged journal", func(h *host, c *Config) {
			os.WriteFile(filepath.Join(c.StateDir, journalName), []byte("{"), 0o600)
		}, "by hand"},
	} {
		h := newHost(t)
		cfg := h.config()
		tt.make(h, &cfg)
		before := h.tree()
		_, err := install(cfg, h.env)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", tt.what, err, tt.want)
		}
		if after := h.tree(); after != before {
			t.Errorf("%s: changed\n%s\nto\n%s", tt.what, before, after)
		}
	}
}

func TestResolved(t *testing.T) {
	const stubConf, nss = "nameserver 127.0.0.53\n", "passwd: files\nhosts: files resolve [!UNAVAIL=return] dns\n"
	set := []string{"dns lo 127.77.0.53", "domain lo paris.mesh.internal mesh.internal ~80.100.in-addr.arpa", "default-route lo no",
		"dnssec lo no", "dnsovertls lo no", "llmnr lo no", "mdns lo no"}
	for _, tt := range []struct {
		what, conf, nss string
		runs            bool
		fails           string // the call that fails
		calls           []string
		edited          bool
	}{
		{"stub", stubConf, "", true, "", set, false},
		{"not running", stubConf, nss, false, "", nil, true},
		{"unused", theirs, "hosts: files dns\n", true, "", nil, true},
		{"nss and static file", theirs, nss, true, "", set, true},
		{"refuses", stubConf, "", true, "dns", []string{set[0], "revert lo"}, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			h := newHost(t)
			h.write("etc/resolv.conf", tt.conf)
			h.write("etc/nsswitch.conf", tt.nss)
			before := h.tree()
			h.env.runs = func() bool { return tt.runs }
			record := h.env.ctl
			h.env.ctl = func(ctx context.Context, args ...string) error {
				record(ctx, args...)
				if args[0] == tt.fails {
					return errors.New("no such link")
				}
				return nil
			}
			r := h.install()
			if !slices.Equal(h.calls, tt.calls) {
				t.Errorf("resolvectl was called with %q, want %q", h.calls, tt.calls)
			}
			if got := h.read("etc/resolv.conf") != tt.conf; got != tt.edited {
				t.Errorf("resolv.conf edited: %v, want %v", got, tt.edited)
			}
			want := "127.0.0.53:53"
			if tt.conf == theirs {
				want = "10.0.0.1:53"
			}
			if got := addrs(r); got[0] != want {
				t.Errorf("upstreams %v, want %s", got, want)
			}
			h.calls = nil
			if len(tt.calls) == len(set) {
				want := []string{"revert lo"}
				h.restore() // as after a crash
				if !slices.Equal(h.calls, want) {
					t.Errorf("Restore called resolvectl with %q, want %q", h.calls, want)
				}
			} else if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if after := h.tree(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestResolvedGone: what systemd-resolved was told before it was stopped, or removed
// with its resolvectl, keeps nothing from being restored and nobody from starting.
func TestResolvedGone(t *testing.T) {
	for _, runs := range []bool{false, true} {
		h := newHost(t)
		h.write("etc/resolv.conf", "nameserver 127.0.0.53\n")
		h.env.runs = func() bool { return true }
		h.install()
		h.env.runs = func() bool { return runs }
		h.env.ctl = func(context.Context, ...string) error { return errors.New("resolvectl: not found") }
		_, err := restore(h.state, nil, h.env)
		if runs != (err != nil) {
			t.Errorf("with systemd-resolved running: %v, restore = %v", runs, err)
		}
		if _, left, _ := loadJournal(h.state); left != runs {
			t.Errorf("with systemd-resolved running: %v, a journal is left: %v", runs, left)
		}
	}
}
