package mesh

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/miekg/dns"
)

// nameServer answers every question for an IPv4 address with what at holds when it is
// asked, once answer lets it, and counts the questions.
func nameServer(t *testing.T, at *atomic.Value, asked *atomic.Int32, answer <-chan struct{}) {
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q := q.Question[0]; q.Qtype == dns.TypeA {
			ip := at.Load().(net.IP)
			asked.Add(1)
			<-answer
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: ip}}
		}
		_ = w.WriteMsg(m)
	})}
	ended := make(chan error, 1)
	go func() { ended <- srv.ActivateAndServe() }() // until Shutdown
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", c.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = old
		_ = srv.Shutdown()
		<-ended
	})
}

// TestAdvertisedNameMoves: a peer that says where it is by a name, as behind a line whose
// address changes, is looked for where the name leads now, even where the network changes
// while it is being looked up.
func TestAdvertisedNameMoves(t *testing.T) {
	for _, during := range []bool{false, true} {
		t.Run(map[bool]string{false: "after the look-up", true: "during the look-up"}[during], func(t *testing.T) {
			testNameMoves(t, during)
		})
	}
}

func testNameMoves(t *testing.T, during bool) {
	var at atomic.Value
	var asked atomic.Int32
	at.Store(net.IPv4(240, 0, 0, 1)) // nobody is there: the old address
	answer := make(chan struct{})
	allow := sync.OnceFunc(func() { close(answer) })
	nameServer(t, &at, &asked, answer)
	t.Cleanup(allow)
	na, ka := newIdentity(t, "a", 1)
	nb, kb := newIdentity(t, "b", 2)
	a, b := start(t, na, ka, 0, nil), start(t, nb, kb, 0, nil)
	_, port, _ := net.SplitHostPort(b.addr().String())
	a.knows(peer.Record{Node: nb, Up: true, Advertise: net.JoinHostPort("b.example.org", port)})
	b.knows(peer.Record{Node: na, Up: true})
	inLoop := func(f func()) {
		if err := a.do(t.Context(), func(time.Time) { f() }); err != nil {
			t.Fatal(err)
		}
	}
	a.tun.out <- packet(na.Addr4, nb.Addr4, "first")
	eventually.Holds(t, "the name is asked for", func() bool { return asked.Load() > 0 })
	at.Store(net.IPv4(127, 0, 0, 1))
	if !during {
		allow()
		eventually.Holds(t, "the name is looked up", func() (done bool) {
			inLoop(func() { done = a.loop.remotes[nb.ID].advertise.done != "" })
			return done
		})
	}
	a.Recheck()
	inLoop(func() {}) // until it has been seen to
	allow()
	for end := time.Now().Add(arrival); time.Now().Before(end); {
		a.tun.out <- packet(na.Addr4, nb.Addr4, "more")
		if b.has("more", time.After(time.Second)) {
			return
		}
	}
	t.Errorf("b was not looked for where its name leads now; %d look-ups", asked.Load())
}
