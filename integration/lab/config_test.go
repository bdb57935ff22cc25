package lab_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

func TestConfigValidate(t *testing.T) {
	alpha := func(change func(*lab.Site)) lab.Config { return lab.TwoSites(lab.Symmetric).With(change, "alpha") }
	tests := []struct {
		name string
		cfg  lab.Config
		want string // in the error; "": valid
	}{
		{"two sites", lab.TwoSites(lab.Double), ""},
		{"one LAN", lab.OneLAN(), ""},
		{"same LAN twice", lab.TwoSites(lab.PortPreserving).With(func(s *lab.Site) { s.LAN = netip.MustParsePrefix("192.168.1.0/24") }, "alpha", "beta"), ""},
		{"empty", lab.Config{}, "0 sites"},
		{"site name", alpha(func(s *lab.Site) { s.Name = "Alpha!" }), "Alpha!"},
		{"site twice", alpha(func(s *lab.Site) { s.Name = "beta" }), "taken"},
		{"host name", alpha(func(s *lab.Site) { s.Hosts = []string{"x.y"} }), "x.y"},
		{"host twice", alpha(func(s *lab.Site) { s.Hosts = []string{"b1"} }), "taken"},
		{"host called like a port", alpha(func(s *lab.Site) { s.Hosts = []string{"wan"} }), "taken"},
		{"NAT", alpha(func(s *lab.Site) { s.NAT = 99 }), "NAT(99)"},
		{"LAN too small", alpha(func(s *lab.Site) { s.LAN = netip.MustParsePrefix("10.0.0.0/30") }), "10.0.0.0/30"},
		{"LAN full", alpha(func(s *lab.Site) {
			s.LAN, s.Hosts = netip.MustParsePrefix("10.0.0.0/28"), strings.Fields("c d e f g h i j")
		}), "8 hosts"},
		{"forward to a stranger", alpha(func(s *lab.Site) { s.Forwards = []lab.Forward{{Proto: "udp", First: 1, Last: 2, Host: "b1"}} }), "b1"},
		{"forward of nothing", alpha(func(s *lab.Site) { s.Forwards = []lab.Forward{{Proto: "udp", First: 2, Last: 1, Host: "a1"}} }), "range"},
		{"link", lab.TwoSites(lab.Symmetric).WithWAN(wan.Link{Up: wan.Pipe{Loss: 7}}, "beta"), "loss"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cfg.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestNATNames(t *testing.T) {
	for n := lab.None; n <= lab.SSHOnly; n++ {
		if got, err := lab.ParseNAT(n.String()); got != n || err != nil {
			t.Errorf("ParseNAT(%q) = %v, %v", n, got, err)
		}
	}
	if _, err := lab.ParseNAT("upnp"); err == nil {
		t.Error("ParseNAT accepts upnp")
	}
}
