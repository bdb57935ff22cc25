package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// lanBound is the share of stock wireguard-go's throughput that one TCP stream
// over the overlay must reach on a LAN.
const lanBound = 0.9

// flatLAN is two hosts of one LAN, joined by meshmpi and by stock wireguard-go
// at once; only one of them is measured at a time.
type flatLAN struct {
	net  *deploy.Network
	a, b *lab.Host
	mesh string // b's address on the overlay
	link string // the overlay's interface
	mtu  int    // of both tunnels
}

// newFlatLAN brings it up. The caller closes its lab.
func newFlatLAN(ctx context.Context, env *Env, name string) (_ *flatLAN, err error) {
	stock, err := buildStock(ctx, env.Work)
	if err != nil {
		return nil, err
	}
	n, err := env.up(ctx, name, lab.OneLAN())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = n.Lab.Close()
		}
	}()
	f := &flatLAN{net: n, a: n.Lab.Host("a1"), b: n.Lab.Host("a2")}
	s, err := n.Status(ctx, "a2")
	if err != nil {
		return nil, err
	}
	f.mesh, f.link = s.Self.Addr4, s.TUN
	if f.mtu, err = linkMTU(ctx, f.a, f.link); err != nil {
		return nil, err
	}
	if err := stockUp(ctx, stock, [2]*lab.Host{f.a, f.b}, f.mtu); err != nil {
		return nil, err
	}
	return f, serveIperf(ctx, f.b)
}

func lan(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"iperf3": "iperf3", "ping": "iputils-ping", "ip": "iproute2"}); err != nil {
		return Table{}, err
	}
	f, err := newFlatLAN(ctx, env, "lan")
	if err != nil {
		return Table{}, err
	}
	defer f.net.Lab.Close()
	seconds, rounds, pings := pick(env, 5, 1), pick(env, 5, 2), pick(env, 200, 50)
	var ways []*lanWay
	var speeds, trips []*contender
	for _, w := range []struct{ name, addr, daemon, path string }{
		{"bare wire", f.b.Addr4.String(), "", ""},
		{"wireguard-go", stockAddrs[1].String(), "wireguard-go", ""},
		{"meshmpi", f.mesh, "meshd", "udp"},
		{"meshmpi, `--native on`", f.mesh, "meshd", "native"},
	} {
		way := &lanWay{}
		way.speed = &contender{name: w.name, run: func() (float64, error) { return f.stream(ctx, way, w.addr, w.daemon, seconds) }}
		way.trip = &contender{name: "ping over " + w.name, run: func() (float64, error) { return roundTrip(ctx, f.a, w.addr, pings) }}
		if w.path != "" {
			way.speed.run = f.onPath(ctx, w.path, way.speed.run)
			way.trip.run = f.onPath(ctx, w.path, way.trip.run)
		}
		ways, speeds, trips = append(ways, way), append(speeds, way.speed), append(trips, way.trip)
	}
	for _, set := range [][]*contender{speeds, trips} {
		err := interleave(rounds, set, func(round int, c *contender) {
			env.say("lan: round %d: %s: %.3f", round+1, c.name, c.got[round])
		})
		if err != nil {
			return Table{}, err
		}
	}
	return lanTable(ways, f.mtu, rounds, seconds, pings), nil
}

// onPath has a measurement's packets take a path, the LAN's own or not.
func (f *flatLAN) onPath(ctx context.Context, kind string, run func() (float64, error)) func() (float64, error) {
	on := map[bool]string{true: "on", false: "off"}[kind == "native"]
	return func() (float64, error) {
		if _, err := f.net.Ctl(ctx, "a1", "site", "set", "alpha", "--native", on); err != nil {
			return 0, err
		}
		for _, way := range [][2]string{{"a1", "a2"}, {"a2", "a1"}} {
			if _, err := f.net.AwaitPath(ctx, way[0], way[1], kind, 20*time.Second); err != nil {
				return 0, err
			}
		}
		return onPath(ctx, f.net, "a1", "a2", kind, run)()
	}
}

// lanWay is one of the ways from one host to the other.
type lanWay struct {
	speed, trip *contender
	cpu         sample // of both daemons, seconds for each GB
}

// stream measures one stream, and what it costs the daemons it passes.
func (f *flatLAN) stream(ctx context.Context, way *lanWay, addr, daemon string, seconds int) (float64, error) {
	before, err := cpuTime(daemon, f.a, f.b)
	if err != nil {
		return 0, err
	}
	gbits, err := iperf(ctx, f.a, addr, seconds)
	if err != nil {
		return 0, err
	}
	after, err := cpuTime(daemon, f.a, f.b)
	way.cpu = append(way.cpu, (after-before).Seconds()/(gbits*float64(seconds)/8))
	return gbits, err
}

func lanTable(ways []*lanWay, mtu, rounds, seconds, pings int) Table {
	stock, mesh := ways[1].speed.got, ways[2].speed.got
	t := Table{
		Title: "One LAN without NAT",
		Method: fmt.Sprintf("Two hosts on one Ethernet segment (veth, MTU 1500), both tunnels up at once with MTU %d and the "+
			"same offloads, measured one at a time in turns: `iperf3 -t %d`, one TCP stream (%s), %d rounds, and %d pings in each of as many rounds. "+
			"wireguard-go is the stock command, built from the module that meshd uses. `meshctl path` said `udp`, or `native`, before and after each of meshmpi's runs. Where it is native, packets go over the LAN in clear, with its MTU.",
			mtu, seconds, congestionControl(), rounds, pings),
		Head: []string{"", "TCP ×1, Gb/s", "÷ wireguard-go", "both daemons, CPU s/GB", "ping, ms"},
	}
	for _, w := range ways {
		got := w.speed.got
		t.Rows = append(t.Rows, []string{w.speed.name, got.spread("%.2f"), ratio(got, stock), w.cpu.spread("%.2f"), w.trip.got.spread("%.3f")})
	}
	r := mesh.by(stock)
	t.Verdicts = []Verdict{{r >= lanBound, fmt.Sprintf(
		"one TCP stream over meshmpi %.2f Gb/s, over wireguard-go %.2f Gb/s, ratio %.2f; it must be at least %.1f", mesh.median(), stock.median(), r, lanBound)}}
	return t
}

// congestionControl names what the machine's TCP uses, and hence the hosts'.
func congestionControl() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return "congestion control unknown"
	}
	return strings.TrimSpace(string(b))
}
