package node

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
)

// TestRevokedOnce: a revoked node is told so at every attempt to connect; it
// says so once.
func TestRevokedOnce(t *testing.T) {
	d := knowing()
	d.log = slog.New(slog.DiscardHandler)
	l := newLinks(d, nil)
	for range 5 {
		l.revoked(cert.Revocation{ID: d.id.self.ID, Name: "a1"})
		l.revoked(cert.Revocation{ID: other("stranger", "x", 9).Node.ID, Name: "stranger"})
	}
	if got := d.notes.all(); len(got) != 1 || !strings.Contains(got[0], "join with a new token") {
		t.Errorf("notes: %q", got)
	}
	if got := d.events.listen().take(); len(got) != 1 {
		t.Errorf("events: %v", got)
	}
}

// TestHubs: a hub reaches itself where it listens, and others as it was told.
func TestHubs(t *testing.T) {
	d := knowing()
	d.port = 4000
	d.id.config.Hubs = []string{"127.0.0.1:51820", "other.example.org:51820"}
	d.id.config.Advertise = "hub.example.org:51820"
	if got := d.hubs(); !slices.Equal(got, d.id.config.Hubs) {
		t.Errorf("no hub: %q", got)
	}
	d.hub = &hubSide{}
	if got, want := d.hubs(), []string{"127.0.0.1:4000", "other.example.org:51820"}; !slices.Equal(got, want) {
		t.Errorf("hubs() = %q, want %q", got, want)
	}
}

func TestStanding(t *testing.T) {
	for _, tc := range []struct {
		left time.Duration
		hub  bool
		want string
	}{
		{20 * 24 * time.Hour, true, ""},
		{20 * 24 * time.Hour, false, "no hub answers; known nodes go on until certificates expire, this one's in 20 days"},
		{5 * 24 * time.Hour, true, "expires in 5 days and no hub has renewed it"},
		{90 * time.Minute, false, "in 1h30m0s"},
		{-time.Second, true, "has expired"},
	} {
		if got := standing(tc.left, tc.hub); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("standing(%v, %v) = %q, want %q", tc.left, tc.hub, got, tc.want)
		}
	}
}
