package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/internal/eventually"
)

// job is a program that runs on a host while a test breaks things.
type job struct {
	out  output
	done chan error
}

// output is what a program has printed so far.
type output struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// begin starts a command on a host.
func begin(ctx context.Context, t *testing.T, h *lab.Host, name string, args ...string) *job {
	t.Helper()
	j := &job{done: make(chan error, 1)}
	cmd := h.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &j.out, &j.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.done <- cmd.Wait() }()
	return j
}

// end waits for the command to end well and returns what it printed.
func (j *job) end(t *testing.T) string {
	t.Helper()
	if err := <-j.done; err != nil {
		t.Fatalf("the job failed: %v\n%s", err, j.out.String())
	}
	return j.out.String()
}

var worst = regexp.MustCompile(`exchanged (\d+) worst_ms (\d+)`)

// wantStall checks what the stream program printed: it went on, content and all,
// and no exchange took longer than limit. It returns how long the longest took.
func wantStall(t *testing.T, out string, limit time.Duration) time.Duration {
	t.Helper()
	m := worst.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the stream program did not finish:\n%s", out)
	}
	ms, _ := strconv.Atoi(m[2])
	t.Logf("%s exchanges, the longest took %d ms", m[1], ms)
	took := time.Duration(ms) * time.Millisecond
	if took > limit {
		t.Errorf("an exchange took %v, more than %v", took, limit)
	}
	return took
}

// stream starts the checked stream between a1 and b1 for some seconds, and returns when it
// runs.
func stream(ctx context.Context, t *testing.T, n *deploy.Network, seconds int) *job {
	t.Helper()
	return streamTo(ctx, t, n, "b1", seconds)
}

// streamTo starts it between a1 and another host.
func streamTo(ctx context.Context, t *testing.T, n *deploy.Network, other string, seconds int) *job {
	t.Helper()
	j := begin(ctx, t, n.Lab.Host("a1"), n.Tool("meshrun"), "-n", "2", "-H", "a1:1,"+other+":1", "--",
		compiled(t, "stream", "openmpi"), fmt.Sprint(seconds))
	eventually.Holds(t, "the job runs", func() bool { return strings.Contains(j.out.String(), "begun") || len(j.done) > 0 })
	return j
}

// TestHubDies: a job over direct pairs does not notice that the hub is gone, and
// nodes that know each other start new jobs. Meanwhile the root signs another issuer, by
// which the hub, back again, admits a node that those of before take for one of theirs.
func TestHubDies(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	j := stream(ctx, t, n, 12)
	pause(ctx, 3*time.Second)
	n.Kill("hub")
	wantStall(t, j.end(t), time.Second)
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", time.Second); err != nil {
		t.Error(err)
	}
	wantStall(t, stream(ctx, t, n, 1).end(t), time.Second)
	s, err := n.Status(ctx, "a1")
	if err != nil || len(s.Warnings) == 0 || !strings.Contains(s.Warnings[0], "no hub answers") {
		t.Errorf("status does not say that the hub is gone: %v, %v", s.Warnings, err)
	}

	code, out, errs := try(ctx, t, n, "hub", `mv /var/lib/meshd/hub/root.key /run/; ! meshd resign 2>&1 && meshd resign --root-key /run/root.key`)
	if until := time.Now().Add(5 * 365 * 24 * time.Hour).Format("until 2006-01-02"); code != 0 || !strings.Contains(out, "--root-key FILE") || !strings.Contains(out, until) {
		t.Fatalf("resign: code %d, want 0, a line about the key and one with %q:\n%s%s", code, until, out, errs)
	}
	if err := errors.Join(n.Run(ctx, "hub"), n.Stop(ctx, "a2")); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := try(ctx, t, n, "hub", "meshctl node remove a2"); code != 0 {
		t.Fatalf("remove: %s%s", out, errs)
	}
	token, err := n.Token(ctx, "alpha", 1)
	if err != nil {
		t.Fatal(err)
	}
	if code, out, errs := try(ctx, t, n, "a2", `find /var/lib/meshd -mindepth 1 -delete; meshd join `+token); code != 0 {
		t.Fatalf("join: %s%s", out, errs)
	}
	if err := n.Run(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.AwaitPath(ctx, "b1", "a2", "udp", 20*time.Second); err != nil {
		t.Error(err)
	}
}

// useReno has new TCP connections of all hosts use Reno, which every namespace may. BBR,
// where this machine has that, may pace what it sends after an outage for 17 s, since it
// takes the outage for the line's bandwidth.
func useReno(ctx context.Context, t *testing.T, n *deploy.Network) {
	t.Helper()
	for _, h := range n.Lab.Hosts() {
		if _, err := h.Run(ctx, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOutage: a job goes on as soon as its sites reach each other again. TCP, left
// alone, would try 6.3 s after the cut and then after 12.7 (RFC 6298): see mesh/outage.go.
// Now and then, by what of a message had arrived and was not acknowledged, TCP takes the
// outage for the round-trip time; nobody can tell it better, so one try of three has to be
// prompt. Without the mesh's word none is.
func TestOutage(t *testing.T) {
	t.Parallel()
	const (
		cut    = 7 * time.Second
		prompt = cut + 4*time.Second
		atMost = 3 * cut // the outage, a probe after two such round-trip times, and a time-out
		tries  = 3
	)
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	useReno(ctx, t, n)
	for range tries {
		if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
			t.Fatal(err)
		}
		j := stream(ctx, t, n, 16)
		pause(ctx, 2*time.Second)
		if err := n.Lab.Cut("alpha"); err != nil {
			t.Fatal(err)
		}
		pause(ctx, cut)
		if err := n.Lab.Mend("alpha"); err != nil {
			t.Fatal(err)
		}
		if wantStall(t, j.end(t), atMost) <= prompt {
			return
		}
	}
	t.Errorf("more than %v in each of %d tries", prompt, tries)
}

// TestDaemonDies: kill -9 of a meshd under a job, its restart a second later;
// the job and a TCP stream go on, from either side.
func TestDaemonDies(t *testing.T) {
	lab.Need(t, "iperf3")
	for _, victim := range []string{"a1", "b1"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
			if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
				t.Fatal(err)
			}
			server, err := n.Lab.Host("b1").Start("iperf3", "-s")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Kill()
			j := stream(ctx, t, n, 15)
			iperf := begin(ctx, t, n.Lab.Host("a1"), "iperf3", "-c", "b1", "-t", "12", "-i", "1", "-b", "20M", "--connect-timeout", "5000")
			pause(ctx, 3*time.Second)
			killed := time.Now()
			n.Kill(victim)
			pause(ctx, time.Second)
			if err := n.Run(ctx, victim); err != nil {
				t.Fatal(err)
			}
			restarted := time.Now()
			back, err := trafficBack(ctx, n, victim)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("traffic was back %v after the restart", back.Sub(restarted).Round(time.Millisecond))
			// TCP doubles its time-out while nothing passes (RFC 6298 §5.5), so what it tries
			// after the outage may come as long after as that was.
			wantStall(t, j.end(t), max(7*time.Second, 2*back.Sub(killed)+2*time.Second))
			iperf.end(t)
		})
	}
}

// trafficBack returns when a ping from the other side of a host got through.
func trafficBack(ctx context.Context, n *deploy.Network, victim string) (time.Time, error) {
	from := map[string]string{"a1": "b1", "b1": "a1"}[victim]
	err := deploy.Until(ctx, 5*time.Second, "traffic is back", func() (bool, error) {
		_, err := n.Lab.Host(from).Run(ctx, "ping", "-c1", "-W1", victim)
		return err == nil, nil
	})
	return time.Now(), err
}

// pause lets a job run for a while: the time is the test's subject.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// TestNetworkChanges: a job between relayed nodes outlives what happens to a host's
// network: it gets another address, its NAT forgets everybody without a word, and
// somebody sets the overlay's link down and up. The limits leave room for a busy
// machine: TCP's time-out, which doubles while nothing passes, is most of each.
func TestNetworkChanges(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.Symmetric), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "relay-udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	a1 := n.Lab.Host("a1")
	shell := func(script string) func() error {
		return func() error { _, err := a1.Run(ctx, "sh", "-ec", script); return err }
	}
	for _, tc := range []struct {
		what  string
		do    func() error
		limit time.Duration
	}{
		{"another address", shell(newAddress(222)), 5 * time.Second},
		{"a NAT that forgets", func() error { return n.Lab.ResetNAT("alpha") }, 5 * time.Second},
		{"the link down and up", shell("ip link set mesh0 down; ip link set mesh0 up"), 5 * time.Second},
	} {
		j := stream(ctx, t, n, 12)
		pause(ctx, 2*time.Second)
		if err := tc.do(); err != nil {
			t.Fatalf("%s: %v", tc.what, err)
		}
		t.Logf("%s:", tc.what)
		wantStall(t, j.end(t), tc.limit)
	}
	if out, err := a1.Run(ctx, "ping", "-6", "-c1", "-W5", "b1"); err != nil {
		t.Errorf("by IPv6: %v\n%s", err, out)
	}
}
