package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestNative: neighbours reach each other over their LAN once their site allows it, and
// only they: a job goes on through every change between the LAN and the overlay, and
// through the death of a daemon; afterwards the hosts are as they were.
func TestNative(t *testing.T) {
	t.Parallel()
	lab.Need(t, "ping", "nft")
	l := lab.Start(t, lab.Config{Sites: []lab.Site{
		{Name: "hubs", Hosts: []string{"hub"}}, {Name: "alpha", NAT: lab.PortPreserving, Hosts: []string{"a1", "a2", "a3"}},
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	before := map[string]string{}
	for _, h := range []string{"a1", "a2"} {
		if _, err := l.Host(h).Run(ctx, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1"); err != nil {
			t.Fatal(err)
		}
		before[h] = snapshot(ctx, t, l.Host(h))
	}
	n, err := deploy.Up(ctx, l, deploy.Options{Bin: bin, InitArgs: []string{"--allow-root-exec"}})
	t.Cleanup(func() { wantNoRaces(t, l) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.AwaitPath(ctx, "a1", "a2", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	j := streamTo(ctx, t, n, "a2", 25)
	must(ctx, t, n, "hub", "meshctl site set alpha --native on")
	awaitBoth(ctx, t, n, "native")
	if list := must(ctx, t, n, "a1", "meshctl site list"); !strings.Contains(list, "yes") {
		t.Errorf("site list does not show it:\n%s", list)
	}
	if p, err := n.Path(ctx, "a1", "a2"); err != nil || p.MTU != 1500 {
		t.Errorf("the path is %+v, %v; want the LAN's MTU of 1500", p, err)
	}
	sent := tunSent(ctx, t, n)
	must(ctx, t, n, "a1", "ping -4 -q -c50 -i0.01 -W2 a2")
	if got := tunSent(ctx, t, n) - sent; got > 40 {
		t.Errorf("while 50 pings and a stream went natively, %d packets went through the TUN", got)
	}
	strangers(ctx, t, n)

	n.Kill("a2")
	pause(ctx, 4*time.Second) // the time is the test's subject: kernels go on
	must(ctx, t, n, "a1", "ping -4 -q -c3 -i0.2 -W2 a2")
	if err := n.Run(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	awaitBoth(ctx, t, n, "native")
	must(ctx, t, n, "hub", "meshctl site set alpha --native off")
	awaitBoth(ctx, t, n, "udp")
	awaitEvents(ctx, t, n, "a1", "over their LAN, in clear", "through the overlay, sealed", "native ")
	wantStall(t, j.end(t), 4*time.Second)

	must(ctx, t, n, "hub", "meshctl site set alpha --native on")
	awaitBoth(ctx, t, n, "native")
	if err := n.Stop(ctx, "a1"); err != nil {
		t.Fatal(err)
	}
	wantSame(t, "a clean stop", before["a1"], snapshot(ctx, t, l.Host("a1")))
	n.Kill("a2")
	if out := must(ctx, t, n, "a2", "meshd restore --state /var/lib/meshd"); !strings.Contains(out, "rp_filter") {
		t.Error(out)
	}
	wantSame(t, "kill -9 and restore, natively", before["a2"], snapshot(ctx, t, l.Host("a2")))
}

// TestNoNative: a node that will not be reached in clear is not, whatever its site says.
func TestNoNative(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.OneLAN(), deploy.Options{RunArgs: []string{"--no-native"}})
	must(ctx, t, n, "a1", "meshctl site set alpha --native on")
	if _, err := n.AwaitPath(ctx, "a2", "a1", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	err := deploy.Until(ctx, 10*time.Second, "a2 knows what its site allows", func() (bool, error) {
		s, err := n.Sites(ctx, "a2")
		return len(s.Sites) > 0 && s.Sites[0].Native, err
	})
	if err != nil {
		t.Fatal(err)
	}
	pause(ctx, 3*time.Second) // in which it must not be used
	if _, err := n.AwaitPath(ctx, "a2", "a1", "udp", time.Second); err != nil {
		t.Error(err)
	}
}

// awaitBoth waits until a1 and a2 reach each other that way.
func awaitBoth(ctx context.Context, t *testing.T, n *deploy.Network, kind string) {
	t.Helper()
	for _, p := range [][2]string{{"a1", "a2"}, {"a2", "a1"}} {
		if _, err := n.AwaitPath(ctx, p[0], p[1], kind, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// tunSent is how many packets a1 has sent into its TUN.
func tunSent(ctx context.Context, t *testing.T, n *deploy.Network) int {
	t.Helper()
	sent, err := strconv.Atoi(must(ctx, t, n, "a1", "cat /sys/class/net/mesh0/statistics/tx_packets"))
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// strangers has a3, which is on the LAN and no longer a node, say that it is a2, and that
// it is itself: a1 hears neither.
func strangers(ctx context.Context, t *testing.T, n *deploy.Network) {
	t.Helper()
	status, err := n.Status(ctx, "a1")
	if err != nil {
		t.Fatal(err)
	}
	addr := map[string]string{}
	for _, node := range status.Nodes {
		addr[node.Name] = node.Addr4
	}
	if err := n.Stop(ctx, "a3"); err != nil {
		t.Fatal(err)
	}
	dropped := "nft list chain inet meshmpi_mesh0 in | grep 'ip saddr' | grep -o 'packets [0-9]*' | cut -d' ' -f2"
	for _, as := range []string{"a2", "a3"} {
		was := must(ctx, t, n, "a1", dropped)
		must(ctx, t, n, "a3", fmt.Sprintf("ip addr add %s/32 dev lo; ip route replace %s via %s dev eth0; ping -q -c3 -i0.1 -W1 -I %[1]s %[2]s >/dev/null; ip addr del %[1]s/32 dev lo",
			addr[as], addr["a1"], n.Lab.Host("a1").Addr4))
		if now := must(ctx, t, n, "a1", dropped); now == was {
			t.Errorf("what a3 sends as %s is not dropped (%s packets before and after)", as, was)
		}
	}
}
