package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
)

func TestParsePorts(t *testing.T) {
	for _, tc := range []struct {
		listen, portRange string
		want              udp.Ports
		wrong             string // in the error; "": none
	}{
		{"", "", udp.Ports{}, ""},
		{":51820", "", udp.Ports{First: 51820, Last: 51820}, ""},
		{"1", "", udp.Ports{First: 1, Last: 1}, ""},
		{"", "100-200", udp.Ports{First: 100, Last: 200}, ""},
		{"", "7-7", udp.Ports{First: 7, Last: 7}, ""},
		{":1", "1-2", udp.Ports{}, "exclude each other"},
		{":0", "", udp.Ports{}, "--listen"},
		{"65536", "", udp.Ports{}, "--listen"},
		{"0.0.0.0:51820", "", udp.Ports{}, "--listen"},
		{"", "200-100", udp.Ports{}, "--port-range"},
		{"", "100", udp.Ports{}, "--port-range"},
		{"", "0-9", udp.Ports{}, "--port-range"},
		{"", "1-2-3", udp.Ports{}, "--port-range"},
	} {
		got, err := ParsePorts(tc.listen, tc.portRange)
		if tc.wrong != "" {
			wantLine(t, err, tc.wrong)
		} else if err != nil || got != tc.want {
			t.Errorf("ParsePorts(%q, %q) = %v, %v; want %v", tc.listen, tc.portRange, got, err, tc.want)
		}
	}
}

func TestInitCheck(t *testing.T) {
	good := InitOptions{Name: "a1", Site: "alpha", Advertise: "hub.example.org:51820"}
	if err := good.Check(); err != nil || good.Network != "mesh" || good.Domain != "mesh.internal" {
		t.Errorf("defaults are %+v, %v", good, err)
	}
	for what, change := range map[string]func(*InitOptions){
		"--name":                  func(o *InitOptions) { o.Name = "A_1" },
		"--site":                  func(o *InitOptions) { o.Site = "-" },
		"--network":               func(o *InitOptions) { o.Network = strings.Repeat("n", 64) },
		"--domain":                func(o *InitOptions) { o.Domain = "a..b" },
		"--domain arpa":           func(o *InitOptions) { o.Domain = "arpa" },
		"--domain 100.in-addr":    func(o *InitOptions) { o.Domain = "100.in-addr.arpa" },
		"names in localhost":      func(o *InitOptions) { o.Domain = "mesh.localhost" },
		"names in local":          func(o *InitOptions) { o.Domain = "mesh.local" },
		"top-level domain":        func(o *InitOptions) { o.Domain = "COM" },
		"like an address":         func(o *InitOptions) { o.Domain = "1.2.3.4" },
		"--advertise 255.255":     func(o *InitOptions) { o.Advertise = "255.255.255.255:51820" },
		"--advertise 169.254":     func(o *InitOptions) { o.Advertise = "169.254.7.7:51820" },
		"--advertise [fe80::1]":   func(o *InitOptions) { o.Advertise = "[fe80::1]:51820" },
		"HOST:PORT":               func(o *InitOptions) { o.Advertise = "hub.example.org" },
		"--advertise":             func(o *InitOptions) { o.Advertise = "hub.example.org:0" },
		"is not an IPv4 prefix":   func(o *InitOptions) { o.CIDR = "100.80" },
		"--cidr 100.80.0.1/16":    func(o *InitOptions) { o.CIDR = "100.80.0.1/16" },
		"--cidr 10.0.0.0/30":      func(o *InitOptions) { o.CIDR = "10.0.0.0/30" },
		"--cidr 10.0.0.0/7":       func(o *InitOptions) { o.CIDR = "10.0.0.0/7" },
		"--cidr fd00::/64 must":   func(o *InitOptions) { o.CIDR = "fd00::/64" },
		"--cidr \"100.80.0.0/x\"": func(o *InitOptions) { o.CIDR = "100.80.0.0/x" },
	} {
		o := good
		change(&o)
		wantLine(t, o.Check(), what)
	}
}

func TestInitWarnings(t *testing.T) {
	for _, tt := range []struct{ advertise, cidr, want string }{
		{"hub.example.org:1", "", ""},
		{"203.0.113.1:1", "10.7.0.0/16", ""},
		{"[2001:db8::1]:1", "100.64.0.0/10", ""},
		{"127.0.0.1:1", "192.168.7.0/24", "--advertise 127.0.0.1:1 is known to this host alone"},
		{"[::1]:1", "", "--advertise [::1]:1 is known to this host alone"},
		{"localhost:1", "", "--advertise localhost:1 is known to this host alone"},
		{"hub:1", "8.8.8.0/24", "--cidr 8.8.8.0/24 is not private"},
		{"hub:1", "172.0.0.0/8", "--cidr 172.0.0.0/8 is not private"},
	} {
		o := InitOptions{Name: "a1", Site: "alpha", Advertise: tt.advertise, CIDR: tt.cidr}
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.Warnings(), "\n"); tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("--advertise %s --cidr %s: %q, want %q", tt.advertise, tt.cidr, got, tt.want)
		}
	}
}

// knowing returns a daemon that is a1 and knows others, with nothing running.
func knowing(others ...peer.Record) *daemon {
	self := peer.Node{ID: peer.ID{1}, Name: "a1", Site: "alpha", NotAfter: time.Now().Add(time.Hour),
		Addr4: netip.MustParseAddr("100.80.0.1"), Addr6: netip.MustParseAddr("fd00::1")}
	d := &daemon{dir: &directory.Directory{}, events: newJournal(),
		id: &identity{self: self, network: peer.Network{Name: "mesh", Domain: "mesh.internal"}}}
	d.dir.Apply(true, others)
	return d
}

// other is a record of a node.
func other(name, site string, n byte, change ...func(*peer.Record)) peer.Record {
	r := peer.Record{Up: true, Node: peer.Node{ID: peer.ID{n}, Name: name, Site: site, NotAfter: time.Now().Add(time.Hour),
		Addr4: netip.AddrFrom4([4]byte{100, 80, 0, n}), Addr6: netip.AddrFrom16([16]byte{0: 0xfd, 15: n})}}
	for _, c := range change {
		c(&r)
	}
	return r
}

func TestFind(t *testing.T) {
	d := knowing(other("b1", "beta", 2),
		other("gone", "beta", 3, func(r *peer.Record) { r.Revoked = true }),
		other("late", "beta", 4, func(r *peer.Record) { r.Node.NotAfter = time.Now().Add(-time.Hour) }))
	for name, want := range map[string]string{
		"a1": "a1", "A1": "a1", "a1.alpha": "a1", "a1.mesh.internal": "a1", "a1.alpha.mesh.internal.": "a1", "100.80.0.1": "a1", "fd00::1": "a1",
		"b1": "b1", "b1.beta": "b1", "B1.beta.Mesh.Internal": "b1", "100.80.0.2": "b1", "fd00::2": "b1", "::ffff:100.80.0.2": "b1",
		"late": "late", // its name is known, but it is not vouched for by its address
	} {
		if rec, err := d.find(name); err != nil || rec.Node.Name != want {
			t.Errorf("find(%q) = %s, %v; want %s", name, rec.Node.Name, err, want)
		}
	}
	for _, name := range []string{"", ".", "nobody", "b1.alpha", "a1.beta", "b1.example.org", "gone", "100.80.0.3", "100.80.0.4", "10.0.0.1"} {
		_, err := d.find(name)
		wantLine(t, err, "no node", "network mesh", "a1, b1")
	}
	d.links = newLinks(d, nil) // which no hub has told anything
	_, err := d.find("c1")
	wantLine(t, err, "a1 knows no node", `"c1"`, "no hub", "meshctl status")
}

func TestSomeNames(t *testing.T) {
	var recs []peer.Record
	for i := range byte(20) {
		recs = append(recs, other("n"+string('a'+i), "beta", 10+i))
	}
	if got := knowing(recs...).someNames(); !strings.HasPrefix(got, "a1, na, nb") || !strings.HasSuffix(got, "and 13 more") {
		t.Errorf("someNames() = %q", got)
	}
}

func TestOneLine(t *testing.T) {
	if oneline.Join(nil, nil) != nil {
		t.Error("nothing is an error")
	}
	err := oneline.Join(nil, fs.ErrExist, nil, net.ErrClosed)
	if !errors.Is(err, fs.ErrExist) || !errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q", err)
	}
}

func TestNotes(t *testing.T) {
	var n notes
	n.clear("none")
	n.set("disk", "full")
	n.set("revoked", "yes")
	n.set("disk", "still full")
	if got, want := n.all(), []string{"still full", "yes"}; !slices.Equal(got, want) {
		t.Errorf("notes are %q, want %q", got, want)
	}
	n.clear("disk")
	if got, want := n.all(), []string{"yes"}; !slices.Equal(got, want) {
		t.Errorf("notes are %q, want %q", got, want)
	}
}

func TestJournal(t *testing.T) {
	j := newJournal()
	for range eventsKept + 5 {
		j.emit("node", "old", "")
	}
	l := j.listen()
	if got := len(l.take()); got != eventsKept {
		t.Errorf("a new listener is told %d events, want %d", got, eventsKept)
	}
	for range eventsBehind + 3 {
		j.emit("node", "new", "")
	}
	<-l.wake
	got := l.take()
	if len(got) != eventsBehind+1 || got[eventsBehind].Kind != "missed" || !strings.HasPrefix(got[eventsBehind].Text, "3 events") {
		t.Errorf("a slow listener is told %d events, the last %+v", len(got), got[len(got)-1])
	}
	l.stop()
	j.emit("node", "later", "")
	if got := l.take(); len(got) != 0 {
		t.Errorf("one who has stopped is told %v", got)
	}
}

// TestNamesOfExpired: a node that nobody believes any more has no name, as where it was
// never heard of.
func TestNamesOfExpired(t *testing.T) {
	dir := &directory.Directory{}
	var want []bool
	for i, left := range []time.Duration{time.Hour, -time.Hour} {
		n := peer.Node{ID: peer.ID{byte(i + 1)}, Name: string(rune('a' + i)), Site: "x", Addr4: netip.AddrFrom4([4]byte{100, 80, 0, byte(i + 2)}),
			Addr6: netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+2)), NotAfter: time.Now().Add(left)}
		dir.Apply(false, []peer.Record{{Node: n}})
		want = append(want, left > 0)
	}
	s := names{&daemon{id: &identity{self: peer.Node{Name: "self", Site: "x"}}, dir: dir}}
	for i, want := range want {
		_, byName := s.ByName(string(rune('a' + i)))
		_, byAddr := s.ByAddr(netip.AddrFrom4([4]byte{100, 80, 0, byte(i + 2)}))
		if byName != want || byAddr != want {
			t.Errorf("node %d: by name %v, by address %v, want %v", i, byName, byAddr, want)
		}
	}
}
