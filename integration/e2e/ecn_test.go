package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// transfer is what became of one TCP connection over a declared link.
type transfer struct {
	sockets         string // as ss shows the sender's under way
	resent          int    // segments
	rate            float64
	marked, dropped uint64 // packets, by the pacer
	seen, heard     uint64 // marks: by the receiver's kernel, and of them by the sender's
}

func (x transfer) String() string {
	return fmt.Sprintf("%.2f Mb/s, %d segments resent; the pacer marked %d packets and dropped %d, the receiver saw %d marks and the sender heard of %d",
		x.rate/1e6, x.resent, x.marked, x.dropped, x.seen, x.heard)
}

// kernelCount reads one of the kernel's counters on a host.
func kernelCount(ctx context.Context, t *testing.T, n *deploy.Network, host, name string) uint64 {
	t.Helper()
	fields := strings.Fields(must(ctx, t, n, host, "nstat -asz "+name+" | grep "+name))
	if len(fields) < 2 {
		t.Fatalf("nstat on %s does not know %s", host, name)
	}
	v, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// counts adds what is counted now, or takes it away by sign -1.
func (x *transfer) counts(ctx context.Context, t *testing.T, n *deploy.Network, family string, sign int64) {
	t.Helper()
	s, err := look(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{"-4": "IpExtInCEPkts", "-6": "Ip6InCEPkts"}[family]
	x.marked += uint64(sign) * s.a1.Marked
	x.dropped += uint64(sign) * s.a1.Dropped
	x.seen += uint64(sign) * kernelCount(ctx, t, n, "b1", seen)
	x.heard += uint64(sign) * kernelCount(ctx, t, n, "a1", "TcpExtTCPDeliveredCE")
}

// send has a1 send to b1 for three seconds and tells what became of it. control is
// TCP's congestion control.
func send(ctx context.Context, t *testing.T, n *deploy.Network, family, control string) (x transfer) {
	t.Helper()
	x.counts(ctx, t, n, family, -1)
	out := must(ctx, t, n, "a1", "iperf3 -J "+family+" -C "+control+" -c b1 -t 3 --connect-timeout 20000 >/run/iperf & "+
		"sleep 1.5; ss -tionHO dport = 5201; wait $!; r=$?; echo; cat /run/iperf; exit $r")
	x.counts(ctx, t, n, family, 1)
	var got struct {
		End struct {
			Sent struct {
				Resent int `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	sockets, result, _ := strings.Cut(out, "\n{")
	if err := json.Unmarshal([]byte("{"+result), &got); err != nil {
		t.Fatalf("iperf3: %v\n%s", err, out)
	}
	x.sockets, x.resent, x.rate = sockets, got.End.Sent.Resent, got.End.Received.Rate
	return x
}

// sendUntil sends until a transfer is as it should be: a busy machine may spoil some,
// what does not work spoils all.
func sendUntil(ctx context.Context, t *testing.T, n *deploy.Network, family, control, what string, holds func(transfer) bool) {
	t.Helper()
	var x transfer
	for range 4 {
		x = send(ctx, t, n, family, control)
		t.Logf("%s, %s over IPv%s: %v", what, control, family[1:], x)
		if holds(x) {
			return
		}
	}
	t.Errorf("%s: no transfer with %s over IPv%s shows it; the last one's sockets:\n%s", what, control, family[1:], x.sockets)
}

// TestECN: TCP to another site has agreed on ECN, whatever the hosts' own setting is,
// and slows down by the pacer's marks instead of by losses. Without ECN, the same
// transfer overflows the queue (Reno's: cubic's start ends when the delay grows).
func TestECN(t *testing.T) {
	t.Parallel()
	lab.Need(t, "iperf3", "nstat", "ss")
	cfg := lab.TwoSites(lab.PortPreserving).WithWAN(wan.Symmetric(wan.Pipe{Delay: 2 * time.Millisecond}), "alpha", "beta")
	ctx, n := up(t, cfg, deploy.Options{})
	serve(ctx, t, n.Lab.Host("b1"), "iperf3", "-s", "--forceflush")
	must(ctx, t, n, "hub", "meshctl site set alpha --up 10Mb/s")
	marked := func(x transfer) bool {
		return strings.Contains(x.sockets, " ecn ") && x.marked > 0 && x.seen > 0 && x.heard > 0 && x.resent == 0 && x.dropped == 0
	}
	for _, family := range []string{"-4", "-6"} {
		sendUntil(ctx, t, n, family, "cubic", "marked and not dropped", marked)
	}
	for _, h := range []string{"a1", "b1"} {
		must(ctx, t, n, h, "sysctl -q net.ipv4.tcp_ecn=0")
	}
	sendUntil(ctx, t, n, "-4", "reno", "hosts that do without ECN elsewhere", marked)

	addr, err := n.Addr(ctx, "b1")
	if err != nil {
		t.Fatal(err)
	}
	// Without features, and before whatever route meshd sets meanwhile.
	must(ctx, t, n, "a1", "ip route add "+addr+"/32 dev mesh0 table 77 && ip rule add to "+addr+"/32 lookup 77 priority 100")
	sendUntil(ctx, t, n, "-4", "reno", "without ECN", func(x transfer) bool {
		return !strings.Contains(x.sockets, " ecn ") && x.marked == 0 && x.seen == 0 && x.dropped > 0 && x.resent > 0
	})
}
