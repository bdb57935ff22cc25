package node

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestRevocationsHold: a node that a hub has revoked stays so, whatever a hub says
// of it later, known or not, and over a restart; until no certificate can be left.
func TestRevocationsHold(t *testing.T) {
	a2, a3, a4 := other("a2", "alpha", 2), other("a3", "alpha", 3), other("a4", "alpha", 4)
	now := time.Now().Truncate(time.Second)
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	d := remembering(t, dir)
	d.dir.Apply(true, []peer.Record{a2})
	l := newLinks(d, nil)
	d.revoked.add(cert.Revocation{ID: a2.Node.ID, Name: "a2", At: now})
	l.revoked(cert.Revocation{ID: a3.Node.ID, Name: "a3", At: now}) // whom nobody knows yet
	d.revoked.add(cert.Revocation{ID: a4.Node.ID, Name: "a4", At: now.Add(-3 * cert.Lifetime)})
	d.saveRevoked()
	if err := d.saved.Close(); err != nil {
		t.Fatal(err)
	}
	again := remembering(t, dir)
	again.loadRevoked()
	for what, d := range map[string]*daemon{"now": d, "after a restart": again} {
		recs := []peer.Record{a2, a3}
		d.revoked.mark(recs)
		d.dir.Apply(true, recs)
		for _, rec := range d.dir.All() {
			if !rec.Revoked {
				t.Errorf("%s: a hub brings %s back", what, rec.Node.Name)
			}
		}
	}
	if n := len(again.revoked.at); n != 2 {
		t.Errorf("%d revocations are remembered, want 2: that of a4 is moot", n)
	}
}
