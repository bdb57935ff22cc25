package hub

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/token"
)

// office is a ledger with the admission of applicants made short.
type office struct {
	*ledger
	t   testing.TB
	now time.Time
}

func newOffice(t testing.TB, cidr string) *office {
	w := newNetwork(t, cidr)
	return &office{&ledger{w.store, w.network, w.issuer}, t, time.Now()}
}

func keys(t testing.TB) cert.Keys {
	t.Helper()
	k, err := cert.NewKeys()
	check(t, err)
	return k
}

// token makes a token as a hub does.
func (o *office) token(uses int, site string, ttl time.Duration) token.Token {
	o.t.Helper()
	h := &Hub{ledger: o.ledger, cfg: Config{Network: o.network, Self: peer.Node{Site: "core"}, Advertise: []string{"hub.example:1"}, Now: func() time.Time { return o.now }}}
	tok, err := h.CreateToken(site, uses, ttl)
	check(o.t, err)
	return tok
}

func (o *office) admitted(tok *token.Token, k cert.Keys, name string) (peer.Node, error) {
	n, _, err := o.admit(tok, applicant{id: k.ID(), signKey: k.Public(), name: name, site: "core"}, o.now)
	return n, err
}

func TestTokens(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*office, *token.Token) // to a good token for one use
		want error
		says string
	}{
		{"good", func(*office, *token.Token) {}, nil, ""},
		{"unknown", func(_ *office, tok *token.Token) { tok.ID[0]++ }, ErrTokenUnknown, "meshctl token create"},
		{"wrong secret", func(_ *office, tok *token.Token) { tok.Secret[0]++ }, ErrTokenUnknown, "meshctl token create"},
		{"used", func(o *office, tok *token.Token) {
			_, err := o.admitted(tok, keys(o.t), "first")
			check(o.t, err)
		}, ErrTokenUsed, "--uses"},
		{"expired", func(o *office, _ *token.Token) { o.now = o.now.Add(2 * time.Hour) }, ErrTokenExpired, "clock"},
		{"revoked", func(o *office, tok *token.Token) {
			check(o.t, (&Hub{ledger: o.ledger}).RevokeToken(fmt.Sprintf("%x", tok.ID)))
		}, ErrTokenRevoked, "meshctl token create"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOffice(t, "100.80.0.0/16")
			tok := o.token(1, "alpha", time.Hour)
			test.do(o, &tok)
			n, err := o.admitted(&tok, keys(t), "b1")
			if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %v that says %q", err, test.want, test.says)
			}
			oneLine(t, err)
			if err == nil && n.Site != "alpha" {
				t.Errorf("site %q, want the token's", n.Site)
			}
			if back := errorMessage(fmt.Errorf("x: %w", errors.Join(err, errors.New("y")))).err(); err != nil && !errors.Is(back, test.want) {
				t.Errorf("over the wire it becomes %v", back)
			}
		})
	}
}

func TestTokenIsSpentOnce(t *testing.T) {
	for _, uses := range []int{1, 3} {
		o := newOffice(t, "100.80.0.0/16")
		tok := o.token(uses, "", 0)
		var won, lost atomic.Int32
		var group sync.WaitGroup
		for i := range 12 {
			k := keys(t)
			group.Go(func() {
				switch _, err := o.admitted(&tok, k, fmt.Sprintf("b%d", i)); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ErrTokenUsed):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if int(won.Load()) != uses || int(won.Load()+lost.Load()) != 12 {
			t.Errorf("a token for %d uses admitted %d and refused %d of 12", uses, won.Load(), lost.Load())
		}
	}
}

// TestRefusalSpendsNothing also covers that a lost answer may be asked for again.
func TestRefusalSpendsNothing(t *testing.T) {
	o := newOffice(t, "100.80.0.0/16")
	tok, k := o.token(1, "", 0), keys(t)
	for _, name := range []string{"hub", "No-Label", "", strings.Repeat("a", 64)} {
		if _, err := o.admitted(&tok, k, name); err == nil || errors.Is(err, ErrTokenUsed) {
			t.Fatalf("%q: %v", name, err)
		} else {
			oneLine(t, err)
		}
	}
	first, err := o.admitted(&tok, k, "b1")
	check(t, err)
	again, err := o.admitted(&tok, k, "b1")
	if err != nil || again.Addr4 != first.Addr4 {
		t.Errorf("asking again: %v, %v", again.Addr4, err)
	}
	if _, err := o.admitted(&tok, k, "b2"); !errors.Is(err, ErrTokenUsed) {
		t.Errorf("asking again for another name: %v", err)
	}
	_, err = o.remove("b1")
	check(t, err)
	if _, err := o.admitted(&tok, k, "b1"); !errors.Is(err, ErrTokenUsed) {
		t.Errorf("asking again after removal: %v", err)
	}
}

func TestNames(t *testing.T) {
	o := newOffice(t, "100.80.0.0/16")
	b1, k := keys(t), keys(t)
	_, err := o.admitted(nil, b1, "b1")
	check(t, err)
	_, err = o.admitted(nil, k, "b1")
	if !errors.Is(err, ErrNameTaken) {
		t.Fatalf("got %v", err)
	}
	for _, word := range []string{"b1", "site core", "--name", "meshctl node remove b1"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	oneLine(t, err)
	_, err = o.admitted(nil, b1, "b2") // renames itself
	check(t, err)
	for _, name := range []string{"b1", "b3"} { // takes the name that is free, then another
		_, err = o.admitted(nil, k, name)
		check(t, err)
	}
	for _, end := range []func(string) error{
		func(n string) error { _, err := o.remove(n); return err },
		func(n string) error { _, _, err := o.revoke(n, o.now); return err },
	} {
		check(t, end("b3"))
		k = keys(t)
		_, err = o.admitted(nil, k, "b3")
		check(t, err)
	}
	if _, err := o.remove("nobody"); err == nil {
		t.Error("somebody who is not there was removed")
	} else {
		oneLine(t, err)
	}
}

func TestSameKeyComesBack(t *testing.T) {
	o := newOffice(t, "100.80.0.0/16")
	k := keys(t)
	before, err := o.admitted(nil, k, "b1")
	check(t, err)
	_, err = o.remove("b1")
	check(t, err)
	_, err = o.admitted(nil, keys(t), "b1")
	check(t, err)
	after, err := o.admitted(nil, k, "b2")
	check(t, err)
	if !slices.Equal(after.Addrs(), before.Addrs()) {
		t.Errorf("addresses changed from %v to %v", before.Addrs(), after.Addrs())
	}
	forged := k
	forged.Sign = keys(t).Sign
	if _, err := o.admitted(nil, forged, "b2"); !errors.Is(err, ErrRefused) {
		t.Errorf("with another's signing key: %v", err)
	}
	_, _, err = o.revoke("b2", o.now)
	check(t, err)
	if _, err := o.admitted(nil, k, "b2"); !errors.Is(err, ErrRevoked) {
		t.Errorf("revoked: %v", err)
	} else {
		oneLine(t, err)
	}
}

func TestRolesOfWhoComesBack(t *testing.T) {
	o := newOffice(t, "100.80.0.0/16")
	k := keys(t)
	relay := applicant{id: k.ID(), signKey: k.Public(), name: "r", site: "core", roles: peer.RoleRelay}
	_, _, err := o.admit(nil, relay, o.now)
	check(t, err)
	n, err := o.admitted(nil, k, "r")
	check(t, err)
	if n.Roles != peer.RoleRelay {
		t.Errorf("joining again changed the roles to %v", n.Roles)
	}
	_, err = o.remove("r")
	check(t, err)
	if n, err = o.admitted(nil, k, "r"); err != nil || n.Roles != 0 {
		t.Errorf("who was removed comes back with roles %v, %v", n.Roles, err)
	}
}

func TestAddresses(t *testing.T) {
	o := newOffice(t, "100.80.0.16/28") // 14 hosts, of which the hub has one
	var nodes []peer.Node
	for i := 2; i <= 14; i++ {
		n, err := o.admitted(nil, keys(t), fmt.Sprintf("b%d", i))
		check(t, err)
		want4, want6 := netip.AddrFrom4([4]byte{100, 80, 0, byte(16 + i)}), netip.MustParseAddr(fmt.Sprintf("fd00:1:2:3::%x", i))
		if n.Addr4 != want4 || n.Addr6 != want6 {
			t.Errorf("b%d has %v and %v, want %v and %v", i, n.Addr4, n.Addr6, want4, want6)
		}
		nodes = append(nodes, n)
	}
	_, _, err := o.revoke("b4", o.now) // a revoked key keeps its address: it may still be believed somewhere
	check(t, err)
	_, err = o.admitted(nil, keys(t), "late")
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "meshctl node remove") {
		t.Fatalf("got %v", err)
	}
	oneLine(t, err)
	_, err = o.remove("b9")
	check(t, err)
	n, err := o.admitted(nil, keys(t), "late")
	check(t, err)
	if want := nodes[9-2]; n.Addr4 != want.Addr4 || n.Addr6 != want.Addr6 {
		t.Errorf("got %v, want those of the one that was removed: %v", n.Addrs(), want.Addrs())
	}
	if err := o.good(nodes[9-2].ID); !errors.Is(err, ErrRefused) {
		t.Errorf("whose address was given away is still known: %v", err)
	}
	o.now = o.now.Add(cert.Lifetime + time.Hour) // nobody believes a revoked one's certificate any more
	n, err = o.admitted(nil, keys(t), "last")
	check(t, err)
	if want := nodes[4-2]; n.Addr4 != want.Addr4 {
		t.Errorf("got %v, want that of the one that was revoked: %v", n.Addr4, want.Addr4)
	}
	if err := o.good(nodes[4-2].ID); !errors.Is(err, ErrRevoked) {
		t.Errorf("the revoked key whose address was given away: %v", err)
	}
}

// TestExpiredAddressFirst: a new node gets the address of one whose certificate may still
// be believed only when there is no other.
func TestExpiredAddressFirst(t *testing.T) {
	o := newOffice(t, "100.80.0.0/29") // 6 hosts, of which the hub has one
	var nodes []peer.Node
	for i := range 5 {
		n, err := o.admitted(nil, keys(t), fmt.Sprintf("b%d", i))
		check(t, err)
		nodes = append(nodes, n)
	}
	o.now = o.now.Add(cert.Lifetime / 2)
	_, fresh, err := o.renew(nodes[0].ID, o.now)
	if err != nil || !fresh {
		t.Fatalf("renewed: %v, %v", fresh, err)
	}
	for _, n := range nodes[:3] {
		_, err := o.remove(n.Name)
		check(t, err)
	}
	o.now = o.now.Add(cert.Lifetime/2 + cert.Backdate)
	for i, want := range []peer.Node{nodes[1], nodes[2], nodes[0]} {
		n, err := o.admitted(nil, keys(t), fmt.Sprintf("new%d", i))
		check(t, err)
		if n.Addr4 != want.Addr4 {
			t.Errorf("new%d has %v, want %s's, %v", i, n.Addr4, want.Name, want.Addr4)
		}
	}
}

func TestRenewal(t *testing.T) {
	o := newOffice(t, "100.80.0.0/16")
	k := keys(t)
	n, err := o.admitted(nil, k, "b1")
	check(t, err)
	first, fresh, err := o.renew(k.ID(), o.now)
	if err != nil || fresh {
		t.Fatalf("renewed at once: %v", err)
	}
	at := halfLife(n).Add(time.Second)
	second, fresh, err := o.renew(k.ID(), at)
	if err != nil || !fresh || !supersedes(second, first, at) {
		t.Fatalf("not renewed after half of its life: %v", err)
	}
	if m, err := cert.Verify(second, o.network.Root, at); err != nil || m.Addr4 != n.Addr4 || !m.NotAfter.After(n.NotAfter) {
		t.Errorf("renewed to %v until %v, %v", m.Addr4, m.NotAfter, err)
	}
	if again, fresh, err := o.renew(k.ID(), at); err != nil || fresh || supersedes(again, second, at) {
		t.Errorf("renewed twice: %v", err)
	}
	// The hub's clock was ahead then, and has been set right.
	if !supersedes(first, second, o.now) || supersedes(second, first, o.now) {
		t.Error("a certificate that holds is worth less than one that does not hold yet")
	}
	third, fresh, err := o.renew(k.ID(), o.now)
	if err != nil || !fresh {
		t.Fatalf("one that does not hold yet is not replaced: %v", err)
	}
	if _, err := cert.Verify(third, o.network.Root, o.now); err != nil {
		t.Errorf("replaced by one that does not hold: %v", err)
	}
	_, err = o.remove("b1")
	check(t, err)
	if _, _, err := o.renew(k.ID(), at); !errors.Is(err, ErrRefused) {
		t.Errorf("removed: %v", err)
	}
	_, r, err := o.revoke("b1", at) // its certificate outlived the removal
	check(t, err)
	if r.ID != k.ID() || r.Verify(o.network.Root, at) != nil {
		t.Errorf("revoked %v", r.ID)
	}
	if _, _, err := o.renew(k.ID(), at); !errors.Is(err, ErrRevoked) {
		t.Errorf("revoked: %v", err)
	}
	if list, err := o.revocations(at); err != nil || len(list) != 1 {
		t.Errorf("%d revocations, %v", len(list), err)
	}
	if list, _ := o.revocations(at.Add(2 * cert.Lifetime)); len(list) != 0 {
		t.Error("a revocation is told for ever")
	}
}

func TestAdministration(t *testing.T) {
	w := newWorld(t)
	for _, bad := range []struct {
		site string
		uses int
		ttl  time.Duration
	}{{"No", 1, 0}, {"", -1, 0}, {"", maxUses + 1, 0}, {"", 1, -1}, {"", 1, 2 * maxTTL}} {
		_, err := w.hub.CreateToken(bad.site, bad.uses, bad.ttl)
		if err == nil {
			t.Errorf("made a token for %+v", bad)
		}
		oneLine(t, err)
	}
	w.token(1)
	w.clock.add(time.Second)
	tok := w.token(2)
	_, err := w.join(tok, "b1")
	check(t, err)
	check(t, w.hub.RevokeToken(fmt.Sprintf("%x", tok.ID)))
	list, err := w.hub.Tokens()
	check(t, err)
	if len(list) != 2 || list[0].State != "revoked" || list[0].Uses != 1 || list[1].State != "good" || list[1].Site != "core" {
		t.Errorf("tokens: %+v", list)
	}
	w.clock.add(25 * time.Hour)
	if list, _ = w.hub.Tokens(); list[1].State != "expired" {
		t.Errorf("tokens a day later: %+v", list)
	}
	nodes, err := w.hub.Nodes()
	check(t, err)
	if len(nodes) != 2 || nodes[0].Name != "b1" || nodes[1].Name != "hub" || nodes[0].Up {
		t.Errorf("nodes: %+v", nodes)
	}
	for _, err := range []error{w.hub.RevokeToken("ff"), w.hub.RevokeNode("hub"), w.hub.RemoveNode("hub"), w.hub.RevokeNode("nobody")} {
		if err == nil {
			t.Error("did what must not be done")
		}
		oneLine(t, err)
	}
}

// BenchmarkAdmit admits a node to a network of 5,000.
func BenchmarkAdmit(b *testing.B) {
	w := newNetwork(b, "100.64.0.0/10")
	l := &ledger{w.store, w.network, w.issuer}
	check(b, w.store.Update(func(tx Tx) error {
		for i := range 5000 {
			e := nodeEntry{ID: peer.ID{byte(i), byte(i >> 8), 1}, Name: fmt.Sprintf("n%d", i), Host: uint32(i + 2), Chain: *w.chain.Load()}
			check(b, errors.Join(save(tx, bucketNodes, idKey(e.ID), e), tx.Put(bucketHosts, hostKey(e.Host), []byte(idKey(e.ID)))))
		}
		return nil
	}))
	for i := 0; b.Loop(); i++ {
		k := keys(b)
		_, _, err := l.admit(nil, applicant{id: k.ID(), signKey: k.Public(), name: fmt.Sprintf("z%d", i), site: "s"}, time.Now())
		check(b, err)
	}
}
