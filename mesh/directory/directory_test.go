package directory

import (
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func record(i byte, name, site string) peer.Record {
	return peer.Record{Up: true, Node: peer.Node{
		ID: peer.ID{i}, Name: name, Site: site,
		Addr4: netip.AddrFrom4([4]byte{100, 80, 0, i}),
		Addr6: netip.AddrFrom16([16]byte{0: 0xfd, 15: i}),
	}}
}

func TestLookups(t *testing.T) {
	var d Directory
	if _, ok := d.ByName("a"); ok || d.All() != nil {
		t.Fatal("an empty directory finds something")
	}
	a, b := record(1, "a", "x"), record(2, "b", "y")
	d.Apply(true, []peer.Record{b, a})
	for what, got := range map[string]func() (peer.Record, bool){
		"id":    func() (peer.Record, bool) { return d.ByID(a.Node.ID) },
		"short": func() (peer.Record, bool) { return d.ByShort(a.Node.ID.Short()) },
		"addr4": func() (peer.Record, bool) { return d.ByAddr(a.Node.Addr4) },
		"addr6": func() (peer.Record, bool) { return d.ByAddr(a.Node.Addr6) },
		"name":  func() (peer.Record, bool) { return d.ByName("A") },
	} {
		if r, ok := got(); !ok || r.Node.Name != "a" {
			t.Errorf("by %s: got %q, %v", what, r.Node.Name, ok)
		}
	}
	if !d.HasSite("X") || d.HasSite("z") {
		t.Error("HasSite is wrong")
	}
	if all := d.All(); len(all) != 2 || all[0].Node.Name != "a" {
		t.Errorf("All is not ordered by name: %v", all)
	}
}

func TestApply(t *testing.T) {
	var d Directory
	a, b := record(1, "a", "x"), record(2, "b", "y")
	d.Apply(true, []peer.Record{a})
	d.Apply(false, []peer.Record{b})
	if len(d.All()) != 2 {
		t.Fatal("a delta replaced what was there")
	}
	b.Revoked = true
	d.Apply(false, []peer.Record{b})
	if _, ok := d.ByAddr(b.Node.Addr4); ok {
		t.Error("a revoked node is found by address")
	}
	if r, ok := d.ByID(b.Node.ID); !ok || !r.Revoked {
		t.Error("a revoked node is forgotten, so its traffic could not be told")
	}
	a.Removed = true
	d.Apply(false, []peer.Record{a})
	if _, ok := d.ByID(a.Node.ID); ok {
		t.Error("a removed node is still there")
	}
	d.Apply(true, []peer.Record{record(3, "c", "x")})
	d.Down()
	if all := d.All(); len(all) != 1 || all[0].Up {
		t.Errorf("after full and Down: %+v", all)
	}
}

func TestInSite(t *testing.T) {
	var d Directory
	if up, all := d.InSite("x"); up != 0 || all != 0 {
		t.Errorf("an empty directory counts %d of %d", up, all)
	}
	down, revoked := record(2, "b", "x"), record(3, "c", "x")
	down.Up, revoked.Revoked = false, true
	d.Apply(true, []peer.Record{record(1, "a", "x"), down, revoked, record(4, "d", "y")})
	for site, want := range map[string][2]int{"x": {1, 2}, "y": {1, 1}, "z": {0, 0}} {
		if up, all := d.InSite(site); up != want[0] || all != want[1] {
			t.Errorf("InSite(%q) = %d of %d, want %v", site, up, all, want)
		}
	}
}

// TestFirstComeFirstServed: a name and an address that are given away twice stay
// with whom they belonged to, until that node is gone, revoked or expired.
func TestFirstComeFirstServed(t *testing.T) {
	until := time.Now().Add(time.Hour)
	a := record(1, "a", "x")
	a.Node.NotAfter = until
	named, addressed := record(2, "a", "x"), record(3, "c", "x")
	named.Node.NotAfter, addressed.Node.NotAfter = until.Add(time.Hour), until.Add(time.Hour)
	addressed.Node.Addr6 = a.Node.Addr6
	for _, tc := range []struct {
		what string
		end  func(*peer.Record)
		full bool
	}{
		{"removed", func(r *peer.Record) { r.Removed = true }, false},
		{"revoked", func(r *peer.Record) { r.Revoked = true }, false},
		{"expired", func(r *peer.Record) { r.Node.NotAfter = time.Now().Add(-time.Second) }, false},
		{"in a list without it", func(r *peer.Record) { r.Removed = true }, true},
	} {
		var d Directory
		owned := func(when string, want peer.Record, others ...peer.Record) {
			t.Helper()
			if r, ok := d.ByName("a"); !ok || r.Node.ID != want.Node.ID || !d.Owns(want.Node) {
				t.Errorf("%s, %s: the name is %v's", tc.what, when, r.Node.ID)
			}
			for _, o := range others {
				if d.Owns(o.Node) {
					t.Errorf("%s, %s: %s owns what is another's", tc.what, when, o.Node.Name)
				}
			}
		}
		d.Apply(true, []peer.Record{a})
		for range 10 { // maps have no order
			d.Apply(false, []peer.Record{named, addressed})
			owned("added", a, named, addressed)
			d.Apply(true, []peer.Record{addressed, named, a})
			owned("listed", a, named, addressed)
		}
		gone := a
		tc.end(&gone)
		d.Apply(tc.full, []peer.Record{named, addressed, gone})
		owned("afterwards", named)
		if r, ok := d.ByAddr(a.Node.Addr6); !ok || r.Node.ID != addressed.Node.ID {
			t.Errorf("%s: the address is %v's afterwards", tc.what, r.Node.ID)
		}
	}
}

// TestSitesAreCounted: by a count that is kept, since the name server asks for a
// site whenever it hears a name that it does not know.
func TestSitesAreCounted(t *testing.T) {
	var d Directory
	a, b, c := record(1, "a", "x"), record(2, "b", "x"), record(3, "c", "y")
	b.Up = false
	check := func(what, site string, up, all int) {
		t.Helper()
		if u, n := d.InSite(site); u != up || n != all || d.HasSite(site) != (all > 0) {
			t.Errorf("%s: %d of %d nodes of %s are up; want %d of %d", what, u, n, site, up, all)
		}
	}
	check("empty", "x", 0, 0)
	d.Apply(true, []peer.Record{a, b, c})
	check("all there", "x", 1, 2)
	b.Up, b.Node.Site = true, "y"
	d.Apply(false, []peer.Record{b})
	check("b has moved", "x", 1, 1)
	check("b has moved", "y", 2, 2)
	c.Revoked = true
	a.Removed = true
	d.Apply(false, []peer.Record{a, c})
	check("a is removed", "x", 0, 0)
	check("c is revoked", "y", 1, 1)
	if n := testing.AllocsPerRun(100, func() { d.HasSite("z") }); n != 0 {
		t.Errorf("asking for a site allocates %v times", n)
	}
}
