package node

import (
	"encoding/binary"
	"path/filepath"
	"runtime"
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

// TestRevokedMeanwhile: one hub revokes a node while another's list, the first that the
// node is on, is being taken in.
func TestRevokedMeanwhile(t *testing.T) {
	const listed, rounds = 5000, 20 // which take a while, so that the one meets the other
	d, l := meshed(t)
	d.saved = newSaver(func(error) {})
	numbered := func(i int) peer.Record {
		r := other("n", "beta", 2)
		binary.BigEndian.PutUint32(r.Node.ID[:], uint32(3<<24+i))
		return r
	}
	list := make([]peer.Record, listed)
	for i := range list {
		list[i] = numbered(i)
	}
	for i := range rounds {
		victim := numbered(listed + i)
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			l.records("the other hub", true, append(list[:listed:listed], victim))
		}()
		for marking := false; !marking; runtime.Gosched() {
			if marking = !d.revoked.mu.TryLock(); !marking {
				d.revoked.mu.Unlock()
			}
			select {
			case <-taken:
				marking = true // it was too fast: this round shows nothing
			default:
			}
		}
		l.revoked(cert.Revocation{ID: victim.Node.ID, Name: "n", At: time.Now()})
		<-taken
		if rec, ok := d.dir.ByID(victim.Node.ID); !ok || !rec.Revoked {
			t.Fatalf("round %d: the node is known %v, revoked %v", i, ok, rec.Revoked)
		}
	}
}
