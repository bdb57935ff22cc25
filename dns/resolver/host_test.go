package resolver_test

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/dns"
	"github.com/meshmpi/meshmpi/dns/resolver"
)

// insideEnv marks the copy of this test that runs in its own namespaces.
const insideEnv = "MESHMPI_TEST_RESOLVER_INSIDE"

// TestHost lets the C library and dig resolve names through a real
// /etc/resolv.conf and a running server. A copy of the test does so in network
// and mount namespaces of its own, with a copy of /etc; the machine that runs
// the test is not touched.
func TestHost(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		t.Run("rename", func(t *testing.T) { inside(t, false) })
		t.Run("bind mount", func(t *testing.T) { inside(t, true) })
		return
	}
	if os.Getuid() != 0 {
		t.Skip("namespaces need root")
	}
	for _, tool := range []string{"getent", "dig", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHost$", "-test.v="+strconv.FormatBool(testing.Verbose()))
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS, // which makes / private, unlike Cloneflags
		Pdeathsig:    syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	t.Logf("inside:\n%s", out)
	if err != nil {
		t.Error(err)
	}
}

const hostConf = "search example.org\nnameserver 127.9.9.9\noptions rotate\n"

type directory struct{ hosts []dns.Host }

func (d directory) find(is func(dns.Host) bool) (dns.Host, bool) {
	if i := slices.IndexFunc(d.hosts, is); i >= 0 {
		return d.hosts[i], true
	}
	return dns.Host{}, false
}

func (d directory) ByName(name string) (dns.Host, bool) {
	return d.find(func(h dns.Host) bool { return h.Name == name })
}

func (d directory) InSite(site, name string) (dns.Host, bool) {
	return d.find(func(h dns.Host) bool { return h.Site == site && h.Name == name })
}

func (d directory) ByAddr(a netip.Addr) (dns.Host, bool) {
	return d.find(func(h dns.Host) bool { return h.Addr4 == a || h.Addr6 == a })
}

func (d directory) HasSite(site string) bool { return site == "paris" || site == "lyon" }

// inside runs in namespaces of its own.
func inside(t *testing.T, bindMount bool) {
	for _, args := range []string{"link set lo up", "addr replace 100.80.0.1/32 dev lo", "addr replace fd00:5::1/128 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	ownEtc(t)
	if bindMount {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		put(t, file, hostConf)
		mount(t, file, "/etc/resolv.conf", unix.MS_BIND)
	}

	up := startUpstream(t)
	var r *resolver.Resolver
	s, err := dns.New(dns.Config{
		Domain: "mesh.internal",
		CIDR4:  netip.MustParsePrefix("100.80.0.0/16"),
		CIDR6:  netip.MustParsePrefix("fd00:5::/64"),
		Self:   "n1",
		Directory: directory{[]dns.Host{
			{Name: "n1", Site: "paris", Addr4: netip.MustParseAddr("100.80.0.1"), Addr6: netip.MustParseAddr("fd00:5::1")},
			{Name: "n2", Site: "lyon", Addr4: netip.MustParseAddr("100.80.0.2")},
		}},
		Upstreams: func() []netip.AddrPort { return r.Upstreams() },
		Listen:    []netip.AddrPort{dns.Loopback(), netip.MustParseAddrPort("100.80.0.1:53"), netip.MustParseAddrPort("[fd00:5::1]:53")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	r, err = resolver.Install(resolver.Config{StateDir: state, Server: s.Addrs()[0].Addr(), Domain: "mesh.internal", Site: "paris"})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Upstreams(); !slices.Equal(got, []netip.AddrPort{up}) {
		t.Fatalf("upstreams %v, want %v", got, up)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()

	askAlive(t)

	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	// meshd is dead and its edit still there: the host's names go on working,
	// without waiting for a timeout.
	begun := time.Now()
	wantOutput(t, "192.0.2.7 www.example.org", "getent", "ahostsv4", "www")
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("with a dead meshd a name took %v", took)
	}
	changed, err := resolver.Restore(state, nil)
	if err != nil || !slices.Equal(changed, []string{"/etc/resolv.conf"}) {
		t.Errorf("Restore: %v, %v", changed, err)
	}
	if got, _ := os.ReadFile("/etc/resolv.conf"); string(got) != hostConf {
		t.Errorf("restored %q, want %q", got, hostConf)
	}
}

// askAlive asks for all kinds of names while the server runs.
func askAlive(t *testing.T) {
	for _, tt := range []struct {
		want string // "" for failure
		args []string
	}{
		{"100.80.0.2 n2.mesh.internal", []string{"getent", "hosts", "n2"}},
		{"100.80.0.2 n2.mesh.internal", []string{"getent", "ahostsv4", "n2.mesh.internal"}},
		{"100.80.0.2 n2.lyon.mesh.internal", []string{"getent", "ahostsv4", "n2.lyon"}},
		{"fd00:5::1 n1.paris.mesh.internal", []string{"getent", "ahostsv6", "n1"}},
		{"100.80.0.2 n2.mesh.internal", []string{"getent", "hosts", "100.80.0.2"}},
		{"fd00:5::1 n1.mesh.internal", []string{"getent", "hosts", "fd00:5::1"}},
		{"192.0.2.7 www.example.org", []string{"getent", "ahostsv4", "www"}},
		{"192.0.2.7 www.example.org", []string{"getent", "ahostsv4", "www.example.org"}},
		{"", []string{"getent", "hosts", "n3"}},
		{"100.80.0.2", []string{"dig", "+short", "n2.mesh.internal"}},
		{"100.80.0.2", []string{"dig", "+short", "+search", "n2"}},
		{"100.80.0.2", []string{"dig", "+short", "+tcp", "@100.80.0.1", "N2.Mesh.Internal"}},
		{"fd00:5::1", []string{"dig", "+short", "AAAA", "@fd00:5::1", "n1.mesh.internal"}},
		{"n1.mesh.internal.", []string{"dig", "+short", "-x", "fd00:5::1"}},
		{"192.0.2.7", []string{"dig", "+short", "www.example.org"}},
		{"192.0.2.7", []string{"dig", "+short", "+tcp", "www.example.org"}},
		{"status: NXDOMAIN", []string{"dig", "n9.mesh.internal"}},
		{"status: REFUSED", []string{"dig", "ANY", "mesh.internal"}},
		{"Transfer failed", []string{"dig", "AXFR", "mesh.internal"}},
	} {
		wantOutput(t, tt.want, tt.args...)
	}
}

// wantOutput runs a program and looks for want in what it prints.
func wantOutput(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if want == "" {
		if err == nil {
			t.Errorf("%q succeeded: %s", args, out)
		}
		return
	}
	words := strings.Join(strings.Fields(strings.ReplaceAll(string(out), "STREAM", "")), " ") // STREAM: of getent ahosts
	if err != nil || !strings.Contains(words, want) {
		t.Errorf("%q: got %q, %v, want %q", args, words, err, want)
	}
}

// ownEtc puts a copy of what resolving needs of /etc in the place of /etc.
func ownEtc(t *testing.T) {
	etc := t.TempDir()
	put(t, etc+"/nsswitch.conf", "passwd: files\nhosts: files dns\n")
	put(t, etc+"/hosts", "127.0.0.1 localhost\n")
	put(t, etc+"/resolv.conf", hostConf)
	if cache, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		put(t, etc+"/ld.so.cache", string(cache))
	}
	mount(t, etc, "/etc", unix.MS_BIND)
}

// mount mounts from on to until the test ends.
func mount(t *testing.T, from, to string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(from, to, "", flags, ""); err != nil {
		t.Fatalf("mount %s: %v", to, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", to, err)
		}
	})
}

func put(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startUpstream runs the server that the host had before: it knows www.example.org.
func startUpstream(t *testing.T) netip.AddrPort {
	at := netip.MustParseAddrPort("127.9.9.9:53")
	h := miekgdns.HandlerFunc(func(w miekgdns.ResponseWriter, q *miekgdns.Msg) {
		m := new(miekgdns.Msg)
		m.SetReply(q)
		m.RecursionAvailable = true
		if strings.EqualFold(q.Question[0].Name, "www.example.org.") {
			if q.Question[0].Qtype == miekgdns.TypeA {
				m.Answer = []miekgdns.RR{&miekgdns.A{
					Hdr: miekgdns.RR_Header{Name: q.Question[0].Name, Rrtype: miekgdns.TypeA, Class: miekgdns.ClassINET},
					A:   []byte{192, 0, 2, 7},
				}}
			}
		} else {
			m.Rcode = miekgdns.RcodeNameError
		}
		w.WriteMsg(m)
	})
	for _, network := range []string{"udp", "tcp"} {
		up, done := make(chan struct{}), make(chan error, 1)
		srv := &miekgdns.Server{Addr: at.String(), Net: network, Handler: h, NotifyStartedFunc: func() { close(up) }}
		go func() { done <- srv.ListenAndServe() }()
		select {
		case <-up:
		case err := <-done:
			t.Fatal(err)
		}
		t.Cleanup(func() {
			srv.Shutdown()
			<-done
		})
	}
	return at
}

// TestMachineUntouched makes sure that the tests above did not touch the
// machine's own resolver.
func TestMachineUntouched(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		return
	}
	data, err := os.ReadFile("/etc/resolv.conf")
	if err == nil && bytes.Contains(data, []byte("127.77.0.53")) {
		t.Errorf("/etc/resolv.conf holds %q", data)
	}
}
