package mesh

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestOffersAreBounded: a peer that makes one offer after the other gets one
// answer at a time, and a few in a second, so that there is room for everybody
// else's; when it is cut off, what is under way ends.
func TestOffersAreBounded(t *testing.T) {
	m := idleMesh(t)
	m.cfg.Finder = stubbornFinder{}
	m.cfg.Post = func(context.Context, peer.ID, []byte) error { return nil }
	a, ka := newIdentity(t, "a", 2)
	for m.leads(&remote{node: a}) {
		a, ka = newIdentity(t, "a", 2)
	}
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	_, key, err := pairKeys(ka, testNet.Root, a, m.cfg.Self)
	if err != nil {
		t.Fatal(err)
	}
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
