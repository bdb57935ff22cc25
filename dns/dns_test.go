package dns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodes is a Directory for tests.
type nodes []Host

var _ Directory = nodes(nil)

func (n nodes) first(is func(Host) bool) (Host, bool) {
	if i := slices.IndexFunc(n, is); i >= 0 {
		return n[i], true
	}
	return Host{}, false
}

func (n nodes) ByName(name string) (Host, bool) {
	return n.first(func(h Host) bool { return h.Name == name })
}

func (n nodes) InSite(site, name string) (Host, bool) {
	return n.first(func(h Host) bool { return h.Name == name && h.Site == site })
}

func (n nodes) ByAddr(a netip.Addr) (Host, bool) {
	return n.first(func(h Host) bool { return h.Addr4 == a || h.Addr6 == a })
}

func (n nodes) HasSite(site string) bool {
	_, ok := n.first(func(h Host) bool { return h.Site == site })
	return ok
}

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	peerAddr = netip.MustParseAddr("100.80.0.2")
	outsider = netip.MustParseAddr("192.0.2.1")
)

func testNodes() nodes {
	return nodes{
		{"n1", "paris", netip.MustParseAddr("100.80.0.1"), netip.MustParseAddr("fd00:5::1")},
		{"n2", "lyon", netip.MustParseAddr("100.80.0.2"), netip.Addr{}},
	}
}

func testConfig() Config {
	return Config{
		Domain:    "Mesh.Internal",
		CIDR4:     netip.MustParsePrefix("100.80.0.0/16"),
		CIDR6:     netip.MustParsePrefix("fd00:5::/64"),
		Self:      "n1",
		Directory: testNodes(),
		Listen:    []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		Now:       func() time.Time { return time.Unix(1000, 0) },
	}
}

func newServer(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func question(name string, qtype uint16) *miekgdns.Msg {
	m := new(miekgdns.Msg)
	m.SetQuestion(miekgdns.Fqdn(name), qtype)
	return m
}

// decideMsg runs a question through decide and reads the answer.
func decideMsg(t *testing.T, s *Server, q *miekgdns.Msg, from netip.Addr, tcp bool) (*miekgdns.Msg, *query) {
	t.Helper()
	raw, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer, fwd := s.decide(raw, from, tcp)
	if answer == nil {
		return nil, fwd
	}
	m := new(miekgdns.Msg)
	if err := m.Unpack(answer); err != nil {
		t.Fatalf("answer does not parse: %v", err)
	}
	return m, fwd
}

// brief writes what matters of an answer on one line.
func brief(m *miekgdns.Msg) string {
	words := []string{miekgdns.RcodeToString[m.Rcode]}
	if m.Authoritative {
		words = append(words, "aa")
	}
	for _, rr := range m.Answer {
		words = append(words, strings.Join(strings.Fields(rr.String()), " "))
	}
	for _, rr := range m.Ns {
		words = append(words, "ns="+rr.Header().Name+"/"+miekgdns.TypeToString[rr.Header().Rrtype])
	}
	return strings.Join(words, " ")
}

func TestAuthoritative(t *testing.T) {
	s := newServer(t, testConfig())
	const (
		A, AAAA, PTR   = miekgdns.TypeA, miekgdns.TypeAAAA, miekgdns.TypePTR
		SOA, NS, MX    = miekgdns.TypeSOA, miekgdns.TypeNS, miekgdns.TypeMX
		ANY, AXFR      = miekgdns.TypeANY, miekgdns.TypeAXFR
		nodata, nxname = "NOERROR aa ns=mesh.internal./SOA", "NXDOMAIN aa ns=mesh.internal./SOA"
		zone6          = "0.0.0.0.0.0.0.0.5.0.0.0.0.0.d.f.ip6.arpa"
		ptr6           = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0." + "0.0.0.0.0.0.0.0.5.0.0.0.0.0.D.f.ip6.arpa"
	)
	for _, tt := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"n1.mesh.internal", A, "NOERROR aa n1.mesh.internal. 5 IN A 100.80.0.1"},
		{"n1.mesh.internal", AAAA, "NOERROR aa n1.mesh.internal. 5 IN AAAA fd00:5::1"},
		{"N1.pArIs.MESH.internal", A, "NOERROR aa N1.pArIs.MESH.internal. 5 IN A 100.80.0.1"},
		{"n2.mesh.internal", AAAA, nodata},
		{"n1.mesh.internal", MX, nodata},
		{"n1.lyon.mesh.internal", A, nxname},
		{"paris.mesh.internal", A, nodata},
		{"n3.mesh.internal", A, nxname},
		{"a.n1.paris.mesh.internal", A, nxname},
		{`n1\.paris.mesh.internal`, A, nxname},
		{"mesh.internal", A, nodata},
		{"mesh.internal", SOA, "NOERROR aa mesh.internal. 5 IN SOA n1.mesh.internal. hostmaster.mesh.internal. 1000 5 5 5 5"},
		{"mesh.internal", NS, "NOERROR aa mesh.internal. 5 IN NS n1.mesh.internal."},
		{"n1.mesh.internal", NS, nodata},
		{"mesh.internal", ANY, "REFUSED"},
		{"mesh.internal", AXFR, "REFUSED"},
		{"1.0.80.100.in-addr.arpa", PTR, "NOERROR aa 1.0.80.100.in-addr.arpa. 5 IN PTR n1.mesh.internal."},
		{"1.0.80.100.in-addr.arpa", A, "NOERROR aa ns=80.100.in-addr.arpa./SOA"},
		{"9.0.80.100.in-addr.arpa", PTR, "NXDOMAIN aa ns=80.100.in-addr.arpa./SOA"},
		{"01.0.80.100.in-addr.arpa", PTR, "NXDOMAIN aa ns=80.100.in-addr.arpa./SOA"},
		{"256.0.80.100.in-addr.arpa", PTR, "NXDOMAIN aa ns=80.100.in-addr.arpa./SOA"},
		{"x.1.0.80.100.in-addr.arpa", PTR, "NXDOMAIN aa ns=80.100.in-addr.arpa./SOA"},
		{"0.80.100.in-addr.arpa", PTR, "NOERROR aa ns=80.100.in-addr.arpa./SOA"},
		{"80.100.in-addr.arpa", SOA, "NOERROR aa 80.100.in-addr.arpa. 5 IN SOA n1.mesh.internal. hostmaster.mesh.internal. 1000 5 5 5 5"},
		{ptr6, PTR, "NOERROR aa " + ptr6 + ". 5 IN PTR n1.mesh.internal."},
		{"0.0." + zone6, PTR, "NOERROR aa ns=" + zone6 + "./SOA"},
	} {
		m, fwd := decideMsg(t, s, question(tt.name, tt.qtype), peerAddr, false)
		if fwd != nil || m == nil {
			t.Errorf("%s %s: not answered", tt.name, miekgdns.TypeToString[tt.qtype])
			continue
		}
		if got := brief(m); got != tt.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.name, miekgdns.TypeToString[tt.qtype], got, tt.want)
		}
		if want := miekgdns.Fqdn(tt.name); m.Question[0].Name != want {
			t.Errorf("question came back as %s, want %s", m.Question[0].Name, want)
		}
	}
}

// TestWhoMayAsk checks that overlay names are for the overlay and foreign ones
// for this host.
func TestWhoMayAsk(t *testing.T) {
	s := newServer(t, testConfig())
	self4, self6 := netip.MustParseAddr("100.80.0.1"), netip.MustParseAddr("fd00:5::1")
	for _, tt := range []struct {
		from        netip.Addr
		own, others string // "" for forwarded
	}{
		{loopback, "NOERROR", ""},
		{netip.MustParseAddr("127.77.0.53"), "NOERROR", ""},
		{netip.MustParseAddr("::ffff:127.0.0.1"), "NOERROR", ""},
		{self4, "NOERROR", ""},
		{self6, "NOERROR", ""},
		{peerAddr, "NOERROR", "REFUSED"},
		{netip.MustParseAddr("fd00:5::2"), "NOERROR", "REFUSED"},
		{outsider, "REFUSED", "REFUSED"},
		{netip.MustParseAddr("fe80::1%eth0"), "REFUSED", "REFUSED"},
	} {
		for name, want := range map[string]string{"n1.mesh.internal": tt.own, "example.com": tt.others, "81.100.in-addr.arpa": tt.others} {
			m, fwd := decideMsg(t, s, question(name, miekgdns.TypeA), tt.from, false)
			got := ""
			if m != nil {
				got = miekgdns.RcodeToString[m.Rcode]
			}
			if got != want || (fwd != nil) != (want == "") {
				t.Errorf("%s from %s: got %q, want %q", name, tt.from, got, want)
			}
		}
	}
}

func TestProtocol(t *testing.T) {
	s := newServer(t, testConfig())
	edns := func(version uint8, opts int) *miekgdns.Msg {
		m := question("n1.mesh.internal", miekgdns.TypeA)
		for range opts {
			o := &miekgdns.OPT{Hdr: miekgdns.RR_Header{Name: ".", Rrtype: miekgdns.TypeOPT}}
			o.SetUDPSize(1400)
			o.SetVersion(version)
			m.Extra = append(m.Extra, o)
		}
		return m
	}
	with := func(f func(*miekgdns.Msg)) *miekgdns.Msg {
		m := question("n1.mesh.internal", miekgdns.TypeA)
		f(m)
		return m
	}
	for _, tt := range []struct {
		what string
		q    *miekgdns.Msg
		want string
	}{
		{"EDNS", edns(0, 1), "NOERROR"},
		{"EDNS version", edns(1, 1), "BADVERS"},
		{"two OPT", edns(0, 2), "FORMERR"},
		{"update", with(func(m *miekgdns.Msg) { m.Opcode = miekgdns.OpcodeUpdate }), "NOTIMP"},
		{"chaos", with(func(m *miekgdns.Msg) { m.Question[0].Qclass = miekgdns.ClassCHAOS }), "REFUSED"},
		{"no question", with(func(m *miekgdns.Msg) { m.Question = nil }), "FORMERR"},
		{"two questions", with(func(m *miekgdns.Msg) { m.Question = append(m.Question, m.Question[0]) }), "FORMERR"},
	} {
		m, _ := decideMsg(t, s, tt.q, loopback, false)
		if m == nil {
			t.Errorf("%s: no answer", tt.what)
			continue
		}
		if got := miekgdns.RcodeToString[m.Rcode]; got != tt.want && !(tt.want == "BADVERS" && m.Rcode == miekgdns.RcodeBadVers) {
			t.Errorf("%s: got %s, want %s", tt.what, got, tt.want)
		}
		if m.Id != tt.q.Id {
			t.Errorf("%s: ID %d, want %d", tt.what, m.Id, tt.q.Id)
		}
		if opt := m.IsEdns0(); tt.what == "EDNS" && (opt == nil || opt.UDPSize() != ednsUDP) {
			t.Errorf("EDNS question got OPT %v", opt)
		}
	}
	answer := with(func(m *miekgdns.Msg) { m.Response = true })
	if m, fwd := decideMsg(t, s, answer, loopback, false); m != nil || fwd != nil {
		t.Error("an answer was answered")
	}
}

func TestReverseZones(t *testing.T) {
	for _, tt := range []struct {
		prefix      string
		count       int
		first, last string
		in, out     []string // canonical names
	}{
		{"100.80.0.0/16", 1, "80.100.in-addr.arpa", "80.100.in-addr.arpa",
			[]string{"80.100.in-addr.arpa.", "1.2.80.100.in-addr.arpa."}, []string{"100.in-addr.arpa.", "81.100.in-addr.arpa.", "in-addr.arpa."}},
		{"100.64.0.0/10", 64, "64.100.in-addr.arpa", "127.100.in-addr.arpa",
			[]string{"65.100.in-addr.arpa."}, []string{"100.in-addr.arpa.", "63.100.in-addr.arpa.", "128.100.in-addr.arpa."}},
		{"10.1.2.64/26", 64, "64.2.1.10.in-addr.arpa", "127.2.1.10.in-addr.arpa",
			[]string{"64.2.1.10.in-addr.arpa.", "x.64.2.1.10.in-addr.arpa."}, []string{"2.1.10.in-addr.arpa.", "63.2.1.10.in-addr.arpa."}},
		{"10.0.0.0/9", 128, "0.10.in-addr.arpa", "127.10.in-addr.arpa", nil, []string{"128.10.in-addr.arpa."}},
		{"10.9.8.7/32", 1, "7.8.9.10.in-addr.arpa", "7.8.9.10.in-addr.arpa", nil, []string{"8.9.10.in-addr.arpa."}},
		{"fd12:3454::/30", 4, "4.5.4.3.2.1.d.f.ip6.arpa", "7.5.4.3.2.1.d.f.ip6.arpa", nil, []string{"8.5.4.3.2.1.d.f.ip6.arpa."}},
		{"fd12:3456::/32", 1, "6.5.4.3.2.1.d.f.ip6.arpa", "6.5.4.3.2.1.d.f.ip6.arpa",
			[]string{"a.6.5.4.3.2.1.d.f.ip6.arpa."}, []string{"7.5.4.3.2.1.d.f.ip6.arpa.", "5.4.3.2.1.d.f.ip6.arpa."}},
	} {
		p := netip.MustParsePrefix(tt.prefix)
		p4, p6 := p, netip.Prefix{}
		if p.Addr().Is6() {
			p4, p6 = p6, p4
		}
		zs, err := reverseZones(p4, p6)
		if err != nil {
			t.Fatal(err)
		}
		names := zs[0].names()
		if len(names) != tt.count {
			t.Errorf("%s: %d zones, want %d", tt.prefix, len(names), tt.count)
		}
		if names[0] != tt.first || names[len(names)-1] != tt.last {
			t.Errorf("%s: zones %s to %s, want %s to %s", tt.prefix, names[0], names[len(names)-1], tt.first, tt.last)
		}
		for _, name := range names {
			if _, _, apex, ok := zs[0].match(name + "."); !ok || apex != name+"." {
				t.Errorf("%s: zone %s matches %s, %v", tt.prefix, name, apex, ok)
			}
		}
		for _, name := range tt.in {
			if _, _, _, ok := zs[0].match(name); !ok {
				t.Errorf("%s: %s is foreign", tt.prefix, name)
			}
		}
		for _, name := range tt.out {
			if _, _, _, ok := zs[0].match(name); ok {
				t.Errorf("%s: %s is ours", tt.prefix, name)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for what, change := range map[string]func(*Config){
		"no domain":    func(c *Config) { c.Domain = "" },
		"bad domain":   func(c *Config) { c.Domain = "a..b" },
		"no directory": func(c *Config) { c.Directory = nil },
		"short prefix": func(c *Config) { c.CIDR4 = netip.MustParsePrefix("0.0.0.0/1") },
		"wrong family": func(c *Config) { c.CIDR6 = c.CIDR4 },
		"wildcard":     func(c *Config) { c.Listen = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:53")} },
	} {
		cfg := testConfig()
		change(&cfg)
		if _, err := New(cfg); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want an error of one line", what, err)
		}
	}
}

// FuzzDecide: no datagram panics, and no answer is longer than the client takes.
func FuzzDecide(f *testing.F) {
	s := newServer(f, testConfig())
	for _, name := range []string{"n1.mesh.internal", "n1.paris.mesh.internal", "1.0.80.100.in-addr.arpa", "example.com", "."} {
		q := question(name, miekgdns.TypeA)
		q.SetEdns0(1400, true)
		raw, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, true, false)
		f.Add(raw[:len(raw)-3], false, true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, local, tcp bool) {
		from := outsider
		if local {
			from = loopback
		}
		answer, q := s.decide(raw, from, tcp)
		if q != nil {
			if answer != nil || !local {
				t.Fatal("forwarded what was answered or is not theirs to ask")
			}
			answer = s.rcode(q, miekgdns.RcodeServerFailure)
			if questionEnd(q.raw) == 0 {
				t.Fatal("forwarded a question that cannot be recognised in its answer")
			}
		}
		if answer == nil {
			return
		}
		limit := minUDP
		if tcp || q == nil {
			limit = maxUDP
		}
		if len(answer) < headerLen || len(answer) > limit || answer[2]&bitQR == 0 || answer[0] != raw[0] || answer[1] != raw[1] {
			t.Fatalf("answer %x to %x", answer, raw)
		}
	})
}

// FuzzAnswers: what upstreams send never panics, and matches only its question.
func FuzzAnswers(f *testing.F) {
	q, err := question("example.com", miekgdns.TypeA).Pack()
	if err != nil {
		f.Fatal(err)
	}
	a := slices.Clone(q)
	a[2] |= bitQR
	f.Add(a, q)
	f.Fuzz(func(t *testing.T, answer, asked []byte) {
		if len(asked) < headerLen {
			return
		}
		if answers(answer, asked) && answer[2]&bitQR == 0 {
			t.Fatal("a question passed for an answer")
		}
	})
}
