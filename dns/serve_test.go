package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/deaf"
	"github.com/meshmpi/meshmpi/internal/eventually"
	miekgdns "github.com/miekg/dns"
)

// serve starts s on the loopback and returns where.
func serve(t *testing.T, s *Server) netip.AddrPort {
	t.Helper()
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s.Addrs()[0]
}

// upstream runs a DNS server with h, by UDP and TCP, and returns where.
func upstream(t *testing.T, h miekgdns.HandlerFunc) netip.AddrPort {
	t.Helper()
	d, err := bind(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, srv := range []*miekgdns.Server{{PacketConn: d.udp, Handler: h}, {Listener: d.tcp, Handler: h}} {
		up, done := make(chan struct{}), make(chan struct{})
		srv.NotifyStartedFunc = func() { close(up) }
		go func() {
			defer close(done)
			srv.ActivateAndServe()
		}()
		<-up
		t.Cleanup(func() {
			srv.Shutdown()
			<-done
		})
	}
	return d.addr
}

// texts answers with n TXT records of 100 bytes, cut to the client's size.
func texts(n int) miekgdns.HandlerFunc {
	return func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		m := new(miekgdns.Msg)
		m.SetReply(q)
		for i := range n {
			m.Answer = append(m.Answer, &miekgdns.TXT{
				Hdr: miekgdns.RR_Header{Name: q.Question[0].Name, Rrtype: miekgdns.TypeTXT, Class: miekgdns.ClassINET, Ttl: 1},
				Txt: []string{fmt.Sprintf("%-99d", i)},
			})
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			size := minUDP
			if o := q.IsEdns0(); o != nil {
				size = min(int(o.UDPSize()), ednsUDP) // as careful servers do
			}
			m.Truncate(size)
		}
		w.WriteMsg(m)
	}
}

func rcodeHandler(code int) miekgdns.HandlerFunc {
	return func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		m := new(miekgdns.Msg)
		m.SetRcode(q, code)
		w.WriteMsg(m)
	}
}

func silent(miekgdns.ResponseWriter, *miekgdns.Msg) {}

func exchange(t *testing.T, at netip.AddrPort, network string, q *miekgdns.Msg) *miekgdns.Msg {
	t.Helper()
	c := miekgdns.Client{Net: network, Timeout: 8 * time.Second}
	m, _, err := c.Exchange(q, at.String())
	if err != nil {
		t.Fatalf("%s %s: %v", network, q.Question[0].Name, err)
	}
	return m
}

func upstreams(ups ...netip.AddrPort) func() []netip.AddrPort {
	return func() []netip.AddrPort { return ups }
}

func TestForwardSizes(t *testing.T) {
	cfg := testConfig()
	cfg.Upstreams = upstreams(upstream(t, texts(20))) // about 2.4 kB
	at := serve(t, newServer(t, cfg))
	for _, tt := range []struct {
		network string
		edns    uint16
		whole   bool
	}{
		{"udp", 0, false},
		{"udp", 1232, false},
		{"udp", 4096, true}, // the upstream cuts at 1232, we fetch the rest
		{"tcp", 0, true},
		{"tcp", 1232, true},
	} {
		q := question("wWw.Example.com", miekgdns.TypeTXT)
		if tt.edns > 0 {
			q.SetEdns0(tt.edns, false)
		}
		m := exchange(t, at, tt.network, q)
		if got := len(m.Answer) == 20 && !m.Truncated; got != tt.whole {
			t.Errorf("%s with EDNS size %d: %d records, truncated %v", tt.network, tt.edns, len(m.Answer), m.Truncated)
		}
		if m.Question[0].Name != "wWw.Example.com." {
			t.Errorf("question came back as %s", m.Question[0].Name)
		}
	}
}

func TestForwardOrder(t *testing.T) {
	dead := netip.MustParseAddrPort(deaf.Addr(t, "udp")) // refuses at once
	good, failing, mute := upstream(t, texts(1)), upstream(t, rcodeHandler(miekgdns.RcodeServerFailure)), upstream(t, silent)
	nx := upstream(t, rcodeHandler(miekgdns.RcodeNameError))
	for _, tt := range []struct {
		what string
		ups  []netip.AddrPort
		want string
	}{
		{"none", nil, "SERVFAIL"},
		{"good", []netip.AddrPort{good}, "NOERROR"},
		{"refused, good", []netip.AddrPort{dead, good}, "NOERROR"},
		{"servfail, good", []netip.AddrPort{failing, good}, "NOERROR"},
		{"servfail", []netip.AddrPort{failing}, "SERVFAIL"},
		{"mute, good", []netip.AddrPort{mute, good}, "NOERROR"},
		{"nxdomain, good", []netip.AddrPort{nx, good}, "NXDOMAIN"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig()
			cfg.Upstreams = upstreams(tt.ups...)
			s := newServer(t, cfg)
			at := serve(t, s)
			m := exchange(t, at, "udp", question("example.com", miekgdns.TypeTXT))
			if got := miekgdns.RcodeToString[m.Rcode]; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if tt.what == "mute, good" {
				if got := s.fwd.order(); got[0] != good {
					t.Errorf("the mute server is still asked first: %v", got)
				}
			}
		})
	}
}

// TestForwardSlow: a slow server that the dead ones before it leave no time is
// asked first the next time.
func TestForwardSlow(t *testing.T) {
	t.Parallel()
	slow := upstream(t, func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		time.Sleep(800 * time.Millisecond)
		texts(1)(w, q)
	})
	cfg := testConfig()
	cfg.Upstreams = upstreams(upstream(t, silent), upstream(t, silent), slow)
	at := serve(t, newServer(t, cfg))
	for i, want := range []int{miekgdns.RcodeServerFailure, miekgdns.RcodeSuccess} {
		m := exchange(t, at, "udp", question(fmt.Sprintf("%d.example.com", i), miekgdns.TypeTXT))
		if m.Rcode != want {
			t.Errorf("question %d: got %s, want %s", i, miekgdns.RcodeToString[m.Rcode], miekgdns.RcodeToString[want])
		}
	}
}

// TestNeverOurselves checks that our own addresses are left out of the upstreams.
func TestNeverOurselves(t *testing.T) {
	var s *Server
	cfg := testConfig()
	cfg.Upstreams = func() []netip.AddrPort { return s.Addrs() }
	s = newServer(t, cfg)
	at := serve(t, s)
	m := exchange(t, at, "udp", question("example.com", miekgdns.TypeA))
	if st := s.Stats(); m.Rcode != miekgdns.RcodeServerFailure || st.Queries != 1 {
		t.Errorf("got %s after %d questions, want SERVFAIL after 1", miekgdns.RcodeToString[m.Rcode], st.Queries)
	}
}

// TestLoop makes the server its upstream's upstream. That one alters the
// question each time, as forwarders that add options do.
func TestLoop(t *testing.T) {
	var at netip.AddrPort
	var rounds atomic.Uint32
	var mu sync.Mutex // guards at
	altering := upstream(t, func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		o := &miekgdns.OPT{Hdr: miekgdns.RR_Header{Name: ".", Rrtype: miekgdns.TypeOPT}}
		o.SetUDPSize(uint16(1000 + rounds.Add(1)))
		q = q.Copy()
		q.Extra = []miekgdns.RR{o}
		mu.Lock()
		to := at.String()
		mu.Unlock()
		c := miekgdns.Client{Timeout: 5 * time.Second}
		if m, _, err := c.Exchange(q, to); err == nil {
			w.WriteMsg(m)
		}
	})
	cfg := testConfig()
	cfg.Upstreams = upstreams(altering)
	s := newServer(t, cfg)
	mu.Lock()
	at = serve(t, s)
	mu.Unlock()
	m := exchange(t, at, "udp", question("example.com", miekgdns.TypeA))
	if m.Rcode != miekgdns.RcodeServerFailure {
		t.Errorf("got %s, want SERVFAIL", miekgdns.RcodeToString[m.Rcode])
	}
	if st := s.Stats(); st.Looped != 1 || st.Queries > maxSame+1 {
		t.Errorf("loop ran %d rounds and was cut %d times, want at most %d and 1", st.Queries, st.Looped, maxSame+1)
	}
}

// crowd has many clients ask for one thing at once, each in its way, and the upstream
// wait until the server's state is as wanted. It returns how often the upstream was asked.
func crowd(t *testing.T, each func(i int, q *miekgdns.Msg), what string, wanted func(st Stats, clients int) bool) int {
	t.Helper()
	const clients = 32
	var n atomic.Int64
	release := make(chan struct{})
	up := upstream(t, func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		n.Add(1)
		<-release
		texts(1)(w, q)
	})
	cfg := testConfig()
	cfg.Upstreams = upstreams(up)
	s := newServer(t, cfg)
	at := serve(t, s)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			q := question("example.com", miekgdns.TypeTXT)
			each(i, q)
			c := miekgdns.Client{Timeout: 5 * time.Second}
			m, _, err := c.Exchange(q, at.String())
			if err != nil || m.Id != q.Id || m.Rcode != miekgdns.RcodeSuccess || len(m.Answer) != 1 {
				t.Errorf("client %d: %v %v", i, m, err)
			}
		})
	}
	done := sync.OnceFunc(func() { close(release); wg.Wait() })
	defer done() // if it stops the test
	eventually.Holds(t, what, func() bool { return wanted(s.Stats(), clients) })
	done()
	return int(n.Load())
}

// TestJoin asks one thing many times at once: the upstream is asked once.
func TestJoin(t *testing.T) {
	if n := crowd(t, func(i int, q *miekgdns.Msg) { q.Id = uint16(i) }, "the clients wait for the first of them", func(st Stats, clients int) bool {
		return st.Joined == uint64(clients-1)
	}); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

// TestCookies has many ask for one thing at once, each with a cookie of its own.
func TestCookies(t *testing.T) {
	crowd(t, func(i int, q *miekgdns.Msg) {
		q.SetEdns0(ednsUDP, false)
		q.IsEdns0().Option = []miekgdns.EDNS0{&miekgdns.EDNS0_COOKIE{Code: miekgdns.EDNS0COOKIE, Cookie: fmt.Sprintf("%016x", i)}}
	}, "all questions are forwarded", func(st Stats, clients int) bool {
		return st.Forwarded+st.Looped == uint64(clients)
	})
}

// TestBusy fills every slot: the next question fails at once and is counted.
func TestBusy(t *testing.T) {
	cfg := testConfig()
	s := newServer(t, cfg)
	at := serve(t, s)
	for s.fwd.enter() {
	}
	before := s.Stats().Dropped
	m := exchange(t, at, "udp", question("example.com", miekgdns.TypeA))
	if st := s.Stats(); m.Rcode != miekgdns.RcodeServerFailure || st.Dropped != before+1 || st.InFlight != maxInFlight {
		t.Errorf("got %s, %+v", miekgdns.RcodeToString[m.Rcode], st)
	}
	if m := exchange(t, at, "udp", question("n1.mesh.internal", miekgdns.TypeA)); len(m.Answer) != 1 {
		t.Error("the overlay's names wait for foreign ones")
	}
}

func TestForged(t *testing.T) {
	up := upstream(t, func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		m := new(miekgdns.Msg)
		m.SetReply(q)
		m.Id++
		w.WriteMsg(m)
		m.Id--
		m.Question[0].Name = "example.net."
		w.WriteMsg(m)
		texts(1)(w, q)
	})
	cfg := testConfig()
	cfg.Upstreams = upstreams(up)
	m := exchange(t, serve(t, newServer(t, cfg)), "udp", question("example.com", miekgdns.TypeTXT))
	if len(m.Answer) != 1 {
		t.Errorf("got %v, want the answer behind the forged ones", m)
	}
}

func TestOversized(t *testing.T) {
	up := upstream(t, func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		if _, tcp := w.RemoteAddr().(*net.TCPAddr); tcp {
			return
		}
		raw := make([]byte, 6000) // longer than anybody asked for
		packed, _ := q.Pack()
		copy(raw, packed)
		raw[2] |= bitQR
		w.Write(raw)
	})
	cfg := testConfig()
	cfg.Upstreams = upstreams(up)
	at := serve(t, newServer(t, cfg))
	for _, edns := range []uint16{0, 4096} {
		q := question("example.com", miekgdns.TypeTXT)
		if edns > 0 {
			q.SetEdns0(edns, false)
		}
		if m := exchange(t, at, "udp", q); !m.Truncated || len(m.Answer) != 0 {
			t.Errorf("got %v, want an empty answer with TC", m)
		}
	}
}

// TestTCPLimit opens more connections than there are slots.
func TestTCPLimit(t *testing.T) {
	s := newServer(t, testConfig())
	at := serve(t, s)
	for range maxConns {
		c := miekgdns.Client{Net: "tcp"}
		conn, err := c.Dial(at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, _, err := c.ExchangeWithConn(question("n1.mesh.internal", miekgdns.TypeA), conn); err != nil {
			t.Fatal(err)
		}
	}
	c := miekgdns.Client{Net: "tcp"}
	if _, _, err := c.Exchange(question("n1.mesh.internal", miekgdns.TypeA), at.String()); err == nil {
		t.Error("one connection too many was served")
	}
	if got := s.Stats().TCPClosed; got != 1 {
		t.Errorf("TCPClosed is %d, want 1", got)
	}
}
