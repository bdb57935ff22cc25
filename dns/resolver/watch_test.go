package resolver

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watched installs on a host and runs Watch for the test's duration, inside a bubble.
func watched(t *testing.T, h *host) *Resolver {
	t.Helper()
	r := h.install()
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
	return strings.HasPrefix(h.read("etc/resolv.conf"), beginLine)
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
