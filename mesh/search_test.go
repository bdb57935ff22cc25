package mesh

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// acquaint makes a peer known to a mesh, in a pair that this leads or does not, and returns
// it with the key of the pair's signals.
func acquaint(t *testing.T, m *Mesh, leads bool) (peer.Node, pairKey) {
	t.Helper()
	a, ka := newIdentity(t, "a", 2)
	for m.leads(&remote{node: a}) != leads {
		a, ka = newIdentity(t, "a", 2)
	}
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	_, key, err := pairKeys(ka, testNet.Root, a, m.cfg.Self)
	if err != nil {
		t.Fatal(err)
	}
	return a, key
}

// TestOffersAreBounded: a peer that makes one offer after the other gets one
// answer at a time, and a few in a second, so that there is room for everybody
// else's; when it is cut off, what is under way ends.
func TestOffersAreBounded(t *testing.T) {
	m := idleMesh(t)
	m.cfg.Finder = stubbornFinder{}
	m.cfg.Post = func(context.Context, peer.ID, []byte) error { return nil }
	a, key := acquaint(t, m, false)
	now := time.Now()
	offer := func(i int) {
		b, err := sealSignal(&key, a.ID, signalOffer, flowID{byte(i), byte(i >> 8)}, []byte("offer"))
		if err != nil {
			t.Fatal(err)
		}
		m.signalled(now, a.ID, b)
	}
	for i := range 600 {
		offer(i)
	}
	r := m.loop.remotes[a.ID]
	if n := m.flows.count(); n > offersBurst || r.search == nil {
		t.Errorf("600 offers of one peer keep %d searches under way, want 1 to %d", n, offersBurst)
	}
	now = now.Add(time.Second)
	last := r.search
	if offer(1000); r.search == last {
		t.Error("a second later a new offer is not answered")
	}
	m.forget(r)
	for deadline := time.Now().Add(arrival); m.flows.count() > 0; time.Sleep(time.Millisecond) {
		m.drain() // each search reports to the loop that it has ended
		if time.Now().After(deadline) {
			t.Fatalf("%d searches outlive their peer", m.flows.count())
		}
	}
	if m.drain(); len(m.loop.remotes) != 0 {
		t.Error("a search that ended brings its peer back")
	}
}

// TestOnlyTheLeaderOffers: what the follower of a pair offers is not answered.
func TestOnlyTheLeaderOffers(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	for !m.leads(&remote{node: a}) {
		a, _ = newIdentity(t, "a", 2)
	}
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	r := m.configure(time.Now(), a.ID)
	m.cfg.Finder = stubbornFinder{}
	if m.answer(time.Now(), r, flowID{1}, nil); m.flows.count() != 0 {
		t.Error("an offer of the peer that follows was answered")
	}
}

// TestSearchAnew: when the host's network changes, a search that is under way ends and the
// next begins, of whoever leads; one that follows tells the leader so, who does that once
// a second at most.
func TestSearchAnew(t *testing.T) {
	for _, leads := range []bool{true, false} {
		m := idleMesh(t)
		m.cfg.Finder = stubbornFinder{}
		posts := make(chan []byte, 100)
		m.cfg.Post = func(_ context.Context, _ peer.ID, b []byte) error { posts <- b; return nil }
		a, key := acquaint(t, m, leads)
		now := time.Now()
		r := m.configure(now, a.ID)
		r.paths.busy = true
		send := func(kind signalKind, id byte, msg string) {
			b, err := sealSignal(&key, a.ID, kind, flowID{id}, []byte(msg))
			if err != nil {
				t.Fatal(err)
			}
			m.signalled(now, a.ID, b)
		}
		ends := func(f *flow, why string) {
			t.Helper()
			for deadline := time.Now().Add(searchLimit / 2); r.search == f; time.Sleep(time.Millisecond) {
				if m.drain(); time.Now().After(deadline) {
					t.Fatalf("leads %v: %s, and the search under way goes on", leads, why)
				}
			}
		}
		if leads {
			send(signalCall, 0, "")
		} else {
			send(signalOffer, 1, "offer")
		}
		first := r.search
		if first == nil {
			t.Fatalf("leads %v: no search has begun", leads)
		}
		m.Recheck()
		m.catchUp(now)
		ends(first, "the network has changed")
		if !leads {
			for told := ""; told != callMoved; {
				select {
				case b := <-posts: // the first is the call for the first search
					_, _, msg, err := openSignal(&key, m.cfg.Self.ID, b)
					if err != nil {
						t.Fatal(err)
					}
					told = string(msg)
				case <-time.After(arrival):
					t.Fatal("the leader is not told")
				}
			}
			continue
		}
		if r.search == nil {
			t.Fatal("no new search has begun")
		}
		second := r.search
		if send(signalCall, 0, ""); r.search != second {
			t.Error("a call ended the search under way")
		}
		for i := range offersBurst + 5 {
			was := r.search
			send(signalCall, 0, callMoved)
			if i < offersBurst {
				ends(was, "the peer has moved")
			} else if m.drain(); r.search != was {
				t.Fatalf("%d calls in an instant ended as many searches", i+1)
			}
		}
	}
}

// TestCalledWhileIdle: the leader searches when it is called, though it has not talked to
// the peer for long.
func TestCalledWhileIdle(t *testing.T) {
	m := idleMesh(t)
	m.cfg.Finder = stubbornFinder{}
	a, key := acquaint(t, m, true)
	call, err := sealSignal(&key, a.ID, signalCall, flowID{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r := m.configure(now, a.ID)
	r.nextSearch = now.Add(farAway)
	r.search.cancel()
	eventually.Holds(t, "the first search ends", func() bool { m.drain(); return r.search == nil })
	r.lastUsed = now.Add(-2 * busyFor)
	m.sample(now, r)
	if m.signalled(now, a.ID, call); r.search == nil {
		t.Error("a call is put off")
	}
}

// TestMovedUntilAnswered: a node whose network has changed says so in every call, since one
// may go down with a session that the change has ended, until the leader has begun anew.
func TestMovedUntilAnswered(t *testing.T) {
	m := idleMesh(t)
	m.cfg.Finder = stubbornFinder{}
	posts := make(chan []byte, 10)
	m.cfg.Post = func(_ context.Context, _ peer.ID, b []byte) error { posts <- b; return nil }
	a, key := acquaint(t, m, false)
	now := time.Now()
	r := m.configure(now, a.ID)
	calls := func(want string) {
		t.Helper()
		r.nextSearch = now
		m.search(now, r)
		select {
		case b := <-posts:
			if _, _, msg, err := openSignal(&key, m.cfg.Self.ID, b); err != nil || string(msg) != want {
				t.Errorf("the call says %q, %v; want %q", msg, err, want)
			}
		case <-time.After(arrival):
			t.Fatal("the leader is not called")
		}
	}
	begins := func(id byte) {
		t.Helper()
		if m.answer(now, r, flowID{id}, nil); r.search == nil {
			t.Fatal("an offer is not answered")
		}
	}
	ends := func() {
		t.Helper()
		r.nextSearch = now.Add(farAway)
		r.search.cancel()
		eventually.Holds(t, "the search ends", func() bool { m.drain(); return r.search == nil })
	}
	r.nextSearch = now.Add(time.Second)
	<-posts // the first call, made when the peer was configured
	begins(1)
	m.searchAnew(now, r)
	ends()
	calls(callMoved)
	calls(callMoved)
	begins(2)
	ends()
	calls("")
}

func (f *flows) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byKey)
}

// TestFoundAgain: a direct path that has been dead for minutes is found
// again by the finder; it must be tried at once, not when its back-off is over.
func TestFoundAgain(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	now := time.Now()
	r := m.configure(now, a.ID)
	c := m.addDirect(now, r, netip.MustParseAddrPort("127.0.0.1:9"), told)
	c.state, c.tries, c.next = down, 14, now.Add(downMax) // as after three minutes of silence
	f := &flow{m: m}
	r.search = f
	m.explored(now, r, f, &direct{m.bind.pair, netip.MustParseAddrPort("127.0.0.1:9")}, nil)
	if wait := c.next.Sub(now); wait > time.Second {
		t.Errorf("the path that the finder has just proved is tried in %v", wait)
	}
}
