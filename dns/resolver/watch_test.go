package resolver

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// watched installs on a host and runs Watch for the test's duration, inside a bubble.
func watched(t *testing.T, h *host) *Resolver {
	t.Helper()
	return watching(t, h, h.config())
}

func watching(t *testing.T, h *host, cfg Config) *Resolver {
	t.Helper()
	r, err := install(cfg, h.env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Watch(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	return r
}

// looks lets Watch look n times.
func looks(n int) {
	time.Sleep(time.Duration(n)*pollEvery + pollEvery/2)
	synctest.Wait()
}

func edited(h *host) bool {
	return strings.HasPrefix(h.read("etc/resolv.conf"), own.begin)
}

func TestWatchLearns(t *testing.T) {
	const newer = "nameserver 10.9.9.9\n"
	for _, tt := range []struct {
		what   string
		change func(h *host)
		want   string // after Close
		ups    string
	}{
		{"rewritten", func(h *host) { h.write("etc/resolv.conf", newer) }, newer, "10.9.9.9:53"},
		{"replaced by rename", func(h *host) {
			h.write("etc/new", newer)
			os.Rename(h.path("etc/new"), h.path("etc/resolv.conf"))
		}, newer, "10.9.9.9:53"},
		{"removed", func(h *host) { os.Remove(h.path("etc/resolv.conf")) }, "(missing)", "127.0.0.1:53"},
		{"emptied", func(h *host) { h.write("etc/resolv.conf", "") }, "", "127.0.0.1:53"},
		{"line added within our edit", func(h *host) {
			h.write("etc/resolv.conf", h.read("etc/resolv.conf")+"nameserver 10.0.0.3\n")
		}, theirs + "nameserver 10.0.0.3\n", "10.0.0.1:53 10.0.0.2:53 10.0.0.3:53"},
		{"replaced by a link", func(h *host) {
			h.write("run/manager/resolv.conf", newer)
			os.Remove(h.path("etc/resolv.conf"))
			h.link("../run/manager/resolv.conf", "etc/resolv.conf")
		}, newer, "10.9.9.9:53"},
		{"their server is ours too", func(h *host) {
			h.write("etc/resolv.conf", "nameserver 127.77.0.53\n"+newer)
		}, "nameserver 127.77.0.53\n" + newer, "10.9.9.9:53"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				h.write("etc/resolv.conf", theirs)
				r := watched(t, h)
				looks(3)
				tt.change(h)
				looks(3)
				if !edited(h) {
					t.Errorf("our server is not back: %q", h.read("etc/resolv.conf"))
				}
				if got := strings.Join(addrs(r), " "); got != tt.ups {
					t.Errorf("upstreams %s, want %s", got, tt.ups)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				if got := h.read("etc/resolv.conf"); got != tt.want {
					t.Errorf("put back %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// TestWatchMovesOn lets the link point elsewhere: the file behind it before
// gets its own content back.
func TestWatchMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.write("run/manager/resolv.conf", theirs)
		h.link("../run/manager/resolv.conf", "etc/resolv.conf")
		r := watched(t, h)
		h.write("run/other.conf", "nameserver 10.9.9.9\n")
		h.link("../run/other.conf", "etc/new")
		if err := os.Rename(h.path("etc/new"), h.path("etc/resolv.conf")); err != nil {
			t.Fatal(err)
		}
		looks(3)
		if got := h.read("run/manager/resolv.conf"); got != theirs {
			t.Errorf("the old file holds %q", got)
		}
		if !edited(h) {
			t.Errorf("the new file holds %q", h.read("etc/resolv.conf"))
		}
		h.restore() // as after a crash
		if got := h.read("run/other.conf"); got != "nameserver 10.9.9.9\n" {
			t.Errorf("put back %q", got)
		}
		r.Close()
	})
}

// TestWatchWaits does not act on a file that is being written.
func TestWatchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.write("etc/resolv.conf", theirs)
		watched(t, h)
		time.Sleep(pollEvery / 2) // write between looks
		text := ""
		for line := range strings.Lines(theirs + theirs) {
			text += line
			h.write("etc/resolv.conf", text)
			time.Sleep(pollEvery)
			synctest.Wait()
			if edited(h) {
				t.Fatalf("edited %q while it was written", text)
			}
		}
		looks(2)
		if !edited(h) {
			t.Error("not edited in the end")
		}
	})
}

// TestWatchGivesWay stops fighting a program that puts its own content back.
func TestWatchGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.write("etc/resolv.conf", theirs)
		watched(t, h)
		edits := 0
		for range 20 {
			h.write("etc/resolv.conf", theirs)
			looks(1)
			if looks(1); edited(h) {
				edits++
			}
		}
		if edits != maxEdits {
			t.Errorf("edited %d times in a minute, want %d", edits, maxEdits)
		}
		time.Sleep(editWindow)
		if looks(2); !edited(h) {
			t.Error("not edited when peace returned")
		}
	})
}

// TestWatchSaysOnce: why the file cannot be edited is said once, and again when it
// comes back; it is no fight, and nothing is held back when it has gone.
func TestWatchSaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.write("etc/resolv.conf", theirs)
		var log bytes.Buffer // read while Watch sleeps
		cfg := h.config()
		cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		watching(t, h, cfg)
		for i := range 2 {
			if err := os.Rename(h.state, h.state+".away"); err != nil {
				t.Fatal(err)
			}
			h.write("etc/resolv.conf", theirs)
			looks(20)
			if got := log.String(); strings.Count(got, "\n") != i+1 || strings.Count(got, "journal") < i+1 {
				t.Errorf("the journal cannot be written, time %d: said\n%s", i+1, got)
			}
			if err := os.Rename(h.state+".away", h.state); err != nil {
				t.Fatal(err)
			}
			if looks(3); !edited(h) {
				t.Error("not edited when the journal can be written again")
			}
		}
	})
}

// TestWatchResolved hands the file over to systemd-resolved when that takes it.
func TestWatchResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.write("etc/resolv.conf", theirs)
		h.write("etc/nsswitch.conf", "hosts: resolve\n")
		h.env.runs = func() bool { return true }
		r := watched(t, h)
		if !edited(h) {
			t.Fatal("not edited at first")
		}
		h.write("etc/resolv.conf", "nameserver 127.0.0.53\n")
		looks(3)
		if edited(h) || !slices.Equal(addrs(r), []string{"127.0.0.53:53"}) {
			t.Errorf("the stub's file holds %q, upstreams %v", h.read("etc/resolv.conf"), addrs(r))
		}
		h.write("etc/resolv.conf", theirs)
		looks(3)
		if !edited(h) {
			t.Error("not edited after the stub left")
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if got := h.read("etc/resolv.conf"); got != theirs {
			t.Errorf("put back %q", got)
		}
	})
}

// TestWatchNeverOutgrowsJournal: what others make of the file may be longer than a
// journal may hold, and a start after a crash still reads it.
func TestWatchNeverOutgrowsJournal(t *testing.T) {
	comment := "#" + strings.Repeat("x", maxConf) + "\n"
	for what, change := range map[string]func(h *host){
		"search lines": func(h *host) { h.write("etc/resolv.conf", strings.Repeat("search a\n", 7000)) },
		"behind another network's edit": func(h *host) {
			other := testEdit()
			other.server = netip.MustParseAddr("127.77.0.54")
			h.write("etc/resolv.conf", string(other.apply([]byte(h.read("etc/resolv.conf"))))+comment)
		},
	} {
		h := newHost(t)
		h.write("etc/resolv.conf", theirs)
		r := h.install()
		change(h)
		was := h.read("etc/resolv.conf")
		var err error
		for range 2 {
			err = r.look(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "shorten it") {
			t.Errorf("%s: got %v, want an error that says what to do", what, err)
		}
		if h.read("etc/resolv.conf") != was {
			t.Errorf("%s: the file was changed", what)
		}
		if _, ok, err := loadJournal(h.state); err != nil || !ok {
			t.Errorf("%s: the journal is there: %v, %v", what, ok, err)
		}
	}
}

// TestUpstreamsNeverWait: forwarding goes on while systemd-resolved hangs.
func TestUpstreamsNeverWait(t *testing.T) {
	h := newHost(t)
	h.write("etc/resolv.conf", "nameserver 127.0.0.53\n")
	h.env.runs = func() bool { return true }
	r := h.install()
	called, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.env.ctl = func(context.Context, ...string) error {
		once.Do(func() { close(called) })
		<-release
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	wg.Go(func() { _ = r.look(t.Context()) })
	<-called
	got := make(chan []string, 1)
	wg.Go(func() { got <- addrs(r) })
	select {
	case ups := <-got:
		if want := []string{"127.0.0.53:53"}; !slices.Equal(ups, want) {
			t.Errorf("upstreams %v, want %v", ups, want)
		}
	case <-time.After(5 * time.Second):
		t.Error("Upstreams waits for resolvectl")
	}
}

// TestTwoNetworks: the daemons of two networks on one host leave each other's edit
// alone, whoever comes and goes first; the one in front asks the one behind, never
// the other way round.
func TestTwoNetworks(t *testing.T) {
	const a, b = "127.77.0.53:53", "127.77.0.54:53"
	for _, tt := range []struct {
		what  string
		first bool // the first to come is the first to go
	}{{"first in, first out", true}, {"last in, first out", false}} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := newHost(t)
				one.write("etc/resolv.conf", theirs)
				two := newHost(t)
				two.root = one.root
				cfg := two.config()
				cfg.Server, cfg.Domain = netip.MustParseAddr("127.77.0.54"), "other.internal"
				run := func(r *Resolver) {
					ctx, cancel := context.WithCancel(t.Context())
					var watch sync.WaitGroup
					watch.Go(func() { _ = r.Watch(ctx) })
					t.Cleanup(func() { cancel(); watch.Wait() })
				}
				begin := func(h *host, cfg Config) *Resolver {
					t.Helper()
					r, err := install(cfg, h.env)
					if err != nil {
						t.Fatal(err)
					}
					run(r)
					looks(6)
					return r
				}
				wantUps := func(when string, r *Resolver, want ...string) {
					t.Helper()
					if got := addrs(r); !slices.Equal(got, want) {
						t.Errorf("%s: upstreams %v, want %v", when, got, want)
					}
				}
				ra := begin(one, one.config())
				rb := begin(two, cfg)
				file := one.read("etc/resolv.conf")
				if n := strings.Count(file, anyBegin); n != 2 {
					t.Fatalf("%d edits in\n%s", n, file)
				}
				wantUps("both there, first", ra, "10.0.0.1:53", "10.0.0.2:53")
				wantUps("both there, second", rb, a, "10.0.0.1:53", "10.0.0.2:53")
				search := parseSearch([]byte(file))
				for _, d := range []string{"paris.other.internal", "other.internal", "paris.mesh.internal", "mesh.internal"} {
					if !slices.Contains(search, d) {
						t.Errorf("%s is not searched: %v", d, search)
					}
				}
				looks(70)
				if again := one.read("etc/resolv.conf"); again != file {
					t.Errorf("they fight:\n%s\nbecame\n%s", file, again)
				}
				first, second := ra, rb
				if !tt.first {
					first, second = rb, ra
				}
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
				looks(6)
				wantUps("alone", second, "10.0.0.1:53", "10.0.0.2:53")
				if n := strings.Count(one.read("etc/resolv.conf"), anyBegin); n != 1 {
					t.Errorf("%d edits are left in\n%s", n, one.read("etc/resolv.conf"))
				}
				// It comes back, now in front.
				again := cfg
				if tt.first {
					again = one.config()
				}
				r := begin(map[bool]*host{true: one, false: two}[tt.first], again)
				wantUps("behind", second, "10.0.0.1:53", "10.0.0.2:53")
				wantUps("in front", r, map[bool]string{true: b, false: a}[tt.first], "10.0.0.1:53", "10.0.0.2:53")
				for _, r := range []*Resolver{r, second} {
					if err := r.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if got := one.read("etc/resolv.conf"); got != theirs {
					t.Errorf("they leave\n%s\nwant\n%s", got, theirs)
				}
			})
		})
	}
}
