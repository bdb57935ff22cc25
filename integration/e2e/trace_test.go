package e2e

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// snapshot is everything of a host that meshd touches, as text.
func snapshot(ctx context.Context, t *testing.T, h *lab.Host) string {
	t.Helper()
	const script = `
echo "== links"; ip -o link
echo "== addresses"; ip -o addr
echo "== routes"; ip -4 route show table all; ip -6 route show table all
echo "== rules"; ip -4 rule; ip -6 rule
echo "== nftables"; nft list ruleset
echo "== sysctls"; grep -r . /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf /proc/sys/net/core 2>/dev/null | grep -v ':$' | sort
echo "== resolver"; stat -c '%F %a %U %G' /etc/resolv.conf; cat /etc/resolv.conf
echo "== sockets"; ss -Hlntu | sort; ss -Hxl | grep -v '@' | sed 's/ [0-9]* *\* */ /' | sort
echo "== processes"; all=$(ps -eo args --no-headers); echo "$all" | grep -v -e '^ps ' -e '^sh ' | sort # not while grep and sort run
`
	out, err := h.Run(ctx, "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return volatile.ReplaceAllString(out, "")
}

// volatile are figures that change by themselves.
var volatile = regexp.MustCompile(`expires \d+sec|valid_lft \S+|preferred_lft \S+|(?m)^\S*(stable_secret|random_write_wakeup).*\n`)

// wantSame compares two snapshots line by line.
func wantSame(t *testing.T, what, before, after string) {
	t.Helper()
	had := map[string]int{}
	for _, line := range strings.Split(before, "\n") {
		had[line]++
	}
	for _, line := range strings.Split(after, "\n") {
		if had[line]--; had[line] < 0 {
			t.Errorf("%s leaves behind: %s", what, line)
		}
	}
	for line, n := range had {
		for range max(n, 0) {
			t.Errorf("%s has lost: %s", what, line)
		}
	}
}

// TestNoTrace: after a clean stop, and after kill -9 and meshd restore, the host
// is as it was. The snapshot in between must differ, or the test shows nothing.
func TestNoTrace(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.TwoSites(lab.PortPreserving))
	ctx := t.Context()
	a1 := l.Host("a1")
	before := snapshot(ctx, t, a1)
	n, err := deploy.Up(ctx, l, deploy.Options{Bin: bin, InitArgs: []string{"--allow-root-exec"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wantNoRaces(t, l) })
	use := func() {
		t.Helper()
		if out, err := a1.Run(ctx, "ping", "-c2", "-W5", "b1"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if snapshot(ctx, t, a1) == before {
			t.Fatal("the running daemon does not show in the snapshot")
		}
	}
	use()
	if err := n.Stop(ctx, "a1"); err != nil {
		t.Errorf("clean stop: %v\n%s", err, n.Daemon("a1").Log())
	}
	wantSame(t, "a clean stop", before, snapshot(ctx, t, a1))

	if err := n.Run(ctx, "a1"); err != nil {
		t.Fatal(err)
	}
	use()
	// A session that runs when the daemon is killed goes on until restore.
	caller, hangUp := context.WithCancel(ctx)
	session := begin(caller, t, l.Host("b1"), n.Tool("meshrsh"), "a1", "sleep", "600")
	defer func() { hangUp(); <-session.done }() // with no daemon at a1 it hears of the end only after a minute's silence
	if err := deploy.Until(ctx, 10e9, "the session runs", func() (bool, error) {
		out, err := a1.Run(ctx, "ps", "-eo", "args")
		return strings.Contains(out, "sleep 600"), err
	}); err != nil {
		t.Fatal(err)
	}
	n.Kill("a1")
	out, err := a1.Run(ctx, n.Tool("meshd"), "restore")
	if err != nil {
		t.Errorf("restore: %v\n%s", err, out)
	}
	t.Logf("restore:\n%s", out)
	wantSame(t, "kill -9 and restore", before, snapshot(ctx, t, a1))
	if out, err := a1.Run(ctx, n.Tool("meshd"), "restore"); err != nil || out != "" {
		t.Errorf("a second restore: %v, %q", err, out)
	}
	if _, err := os.Stat(a1.Path("/var/lib/meshd/node.json")); err != nil {
		t.Errorf("restore took the node's state: %v", err)
	}
}
