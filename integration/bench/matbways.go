package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// way is how a site's nodes share its uplink.
type way struct {
	name    string
	pace    string                                          // meshd run --pace
	limited bool                                            // the limit is declared
	queue   int                                             // of the uplink; 0: without end
	run     string                                          // flags of meshrun
	outside func(*narrow, context.Context, *lab.Host) error // paces a host outside of the overlay; nil: nobody does
}

// The ways that verdicts are about.
const (
	unpaced = "unpaced"
	bucket  = "timer token bucket"
	htb     = "htb at B/N"
	static  = "static B/N"
	hinted  = "static, hints"
	lived   = "live shares"
	oracle  = "oracle"
)

func ways() []way {
	return []way{
		{unpaced, "off", false, matbQueue, "", nil},
		{bucket, "off", false, matbQueue, "", (*narrow).addBucket},
		{htb, "off", false, matbQueue, "", (*narrow).addHTB},
		{static, "static", true, matbQueue, "--no-hints", nil},
		{hinted, "static", true, matbQueue, "", nil},
		{lived, "live", true, matbQueue, "", nil},
		{oracle, "off", false, 0, "", nil},
	}
}

func wayNames() (all []string) {
	for _, w := range ways() {
		all = append(all, w.name)
	}
	return all
}

// waysNamed are those of ways, in its order.
func waysNamed(names ...string) (some []way) {
	for _, w := range ways() {
		if slices.Contains(names, w.name) {
			some = append(some, w)
		}
	}
	return some
}

// file is a name for the files of a way's network at a setting.
func (w way) file(s setting) string {
	return fmt.Sprintf("matb-%d-%s-%v-", s.rate/1_000_000, s.tcp, s.delay) + strings.NewReplacer(" ", "-", "/", "", ",", "").Replace(w.name)
}

// narrow is two sites whose uplinks are narrow, with a network that shares them in
// one way.
type narrow struct {
	*twoSites
	setting
	way    way
	bucket string // the executable, which newLoads has built
}

func (n *narrow) close() { _ = n.net.Lab.Close() }

func (n *narrow) hosts() (all []*lab.Host) {
	for _, name := range slices.Concat(n.a, n.b) {
		all = append(all, n.net.Lab.Host(name))
	}
	return all
}

func newNarrow(ctx context.Context, env *Env, s setting, w way, dir string) (_ *narrow, err error) {
	n := &narrow{twoSites: &twoSites{}, setting: s, way: w, bucket: filepath.Join(env.Work, "bucket-go")}
	for i := range siteRanks {
		n.a, n.b = append(n.a, fmt.Sprintf("a%d", i+1)), append(n.b, fmt.Sprintf("b%d", i+1))
	}
	queue := w.queue
	if queue == 0 {
		queue = 1 << 28
	}
	link := wan.Link{Up: wan.Pipe{Delay: s.delay, Rate: s.rate, Queue: queue}}
	cfg := lab.Config{Sites: []lab.Site{
		{Name: "hubs", Hosts: []string{"hub"}},
		{Name: "alpha", NAT: lab.PortPreserving, Hosts: n.a},
		{Name: "beta", NAT: lab.PortPreserving, Hosts: n.b},
	}}
	if n.net, err = env.upWith(ctx, dir, cfg.WithWAN(link, "alpha", "beta"), deploy.Options{RunArgs: []string{"--pace", w.pace}}); err != nil {
		return nil, err
	}
	if err = n.prepare(ctx, env); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// prepare declares the limit, or has others pace.
func (n *narrow) prepare(ctx context.Context, env *Env) error {
	for _, h := range n.hosts() {
		if err := useTCP(ctx, n.tcp, h); err != nil {
			return err
		}
		if n.way.outside != nil {
			if err := n.way.outside(n, ctx, h); err != nil {
				return err
			}
		}
	}
	if n.way.limited {
		if err := declareUplinks(ctx, n.net, n.rate); err != nil {
			return err
		}
	}
	if err := n.direct(ctx); err != nil {
		return err
	}
	return n.near(ctx, env)
}

// share is B/N, in bits per second.
func (n *narrow) share() int64 { return n.rate / siteRanks }

// lan is the host's LAN and its gateway.
func lanOf(h *lab.Host) (prefix netip.Prefix, gateway netip.Addr, err error) {
	if prefix, err = h.Addr4.Prefix(24); err != nil {
		return prefix, gateway, err
	}
	return prefix, prefix.Addr().Next(), nil
}

// addBucket starts a token bucket on a timer in a host's way out of the LAN.
func (n *narrow) addBucket(ctx context.Context, h *lab.Host) error {
	_, gateway, err := lanOf(h)
	if err != nil {
		return err
	}
	d, err := h.Start(n.bucket, "-rate", strconv.FormatInt(n.share(), 10), "-via", gateway.String(), "-from", h.Addr4.String())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := d.Await(ctx, "ready"); err != nil {
		return fmt.Errorf("the token bucket on %s: %w: %s", h.Name, err, d.Log())
	}
	return nil
}

// addHTB has the kernel pace what leaves a host's LAN. Frames for the LAN, and those
// that are not IP, pass at the speed of the wire. The leaf splits what segmentation
// offload has joined, which htb alone would send at once: it is the best that htb can.
func (n *narrow) addHTB(ctx context.Context, h *lab.Host) error {
	lan, _, err := lanOf(h)
	if err != nil {
		return err
	}
	status, err := n.net.Status(ctx, h.Name)
	if err != nil {
		return err
	}
	for _, line := range []string{
		"qdisc add dev eth0 root handle 1: htb default 10",
		"class add dev eth0 parent 1: classid 1:10 htb rate 10gbit quantum 60000",
		fmt.Sprintf("class add dev eth0 parent 1: classid 1:20 htb rate %dbit ceil %[1]dbit burst 3000 cburst 3000 quantum 1514", n.share()),
		"qdisc add dev eth0 parent 1:20 handle 20: tbf rate 10gbit burst 3200 limit 1500000",
		fmt.Sprintf("filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst %v flowid 1:10", lan),
		fmt.Sprintf("filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst %v flowid 1:10", status.CIDR4), // neighbours', natively
		"filter add dev eth0 parent 1: protocol ip prio 2 u32 match u32 0 0 flowid 1:20",
	} {
		if out, err := h.Run(ctx, "tc", strings.Fields(line)...); err != nil {
			return fmt.Errorf("tc %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// own counts what those who pace have dropped themselves, over all hosts.
func (n *narrow) own(ctx context.Context) (sum float64, err error) {
	for _, h := range n.hosts() {
		dropped, err := n.droppedBy(ctx, h)
		if err != nil {
			return 0, fmt.Errorf("drops on %s: %w", h.Name, err)
		}
		sum += dropped
	}
	return sum, nil
}

func (n *narrow) droppedBy(ctx context.Context, h *lab.Host) (sum float64, err error) {
	switch n.way.name {
	case htb:
		out, err := h.Run(ctx, "tc", "-s", "-j", "qdisc", "show", "dev", "eth0")
		if err != nil {
			return 0, err
		}
		return parseDrops(out)
	case bucket:
		out, err := h.Run(ctx, "cat", "/proc/net/dev")
		if err != nil {
			return 0, err
		}
		return parseTxDrops(out, "bucket0")
	}
	shape, err := n.net.Shape(ctx, h.Name)
	for _, l := range shape.Links {
		sum += float64(l.Dropped)
	}
	return sum, err
}

// parseDrops adds what a link's root queueing discipline has dropped, its leaves'
// drops included, of tc's JSON.
func parseDrops(text string) (sum float64, err error) {
	var all []struct {
		Root  bool    `json:"root"`
		Drops float64 `json:"drops"`
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return 0, fmt.Errorf("tc's report: %w", err)
	}
	for _, q := range all {
		if q.Root {
			sum += q.Drops
		}
	}
	return sum, nil
}

// parseTxDrops finds the packets that a link's queue has dropped in /proc/net/dev.
func parseTxDrops(text, link string) (float64, error) {
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); strings.TrimSpace(name) == link && len(f) >= 12 {
			return strconv.ParseFloat(f[11], 64)
		}
	}
	return 0, fmt.Errorf("there is no link %s in /proc/net/dev", link)
}

// allowedCongestion lists the algorithms that hosts of a lab may choose from; it is
// the machine's.
const allowedCongestion = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"

// useTCP has hosts use a congestion control that they are allowed.
func useTCP(ctx context.Context, name string, hosts ...*lab.Host) error {
	for _, h := range hosts {
		if _, err := h.Run(ctx, "sysctl", "-qw", "net.ipv4.tcp_congestion_control="+name); err != nil {
			return err
		}
	}
	return nil
}

// allowCubic has hosts of a lab be allowed to use cubic, and others that the kernel
// has, until restore is called.
func allowCubic(others ...string) (restore func(), err error) {
	old, err := os.ReadFile(allowedCongestion)
	if err != nil {
		return nil, err
	}
	known, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil, err
	}
	list := strings.Fields(string(old))
	for _, name := range append(others, "cubic") {
		if !slices.Contains(list, name) && slices.Contains(strings.Fields(string(known)), name) {
			list = append(list, name)
		}
	}
	err = os.WriteFile(allowedCongestion, []byte(strings.Join(list, " ")), 0)
	return func() { _ = os.WriteFile(allowedCongestion, bytes.TrimSpace(old), 0) }, err
}
