package e2e

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// try runs a command line on a host with our commands in PATH and returns its
// exit code and what it said on standard error.
func try(ctx context.Context, t *testing.T, n *deploy.Network, host, line string) (code int, says string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var stderr bytes.Buffer
	cmd := n.Lab.Host(host).Command(ctx, "sh", "-c", "PATH="+bin+":$PATH; "+line)
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line, err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, strings.TrimSpace(stderr.String())
}

// bad is a command that must fail with one line.
type bad struct {
	name, host, line string
	code             int
	says             string // in the line
}

func (b bad) check(ctx context.Context, t *testing.T, n *deploy.Network) {
	t.Helper()
	code, says := try(ctx, t, n, b.host, b.line)
	if code != b.code || strings.Count(says, "\n") != 0 || !strings.Contains(says, b.says) {
		t.Errorf("%s: $ %s\ncode %d, want %d; want one line with %q, got:\n%s", b.name, b.line, code, b.code, b.says, says)
	}
}

// TestBadInput: what users and circumstances get wrong is answered with one
// line that names the thing and the remedy, and leaves nothing half-done.
func TestBadInput(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	once, err := n.Token(ctx, "alpha", 1)
	if err != nil {
		t.Fatal(err)
	}
	// a2 leaves: from here on it is a machine without a node, with a spare state.
	if err := n.Stop(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	if code, says := try(ctx, t, n, "a2", "meshd join --state /run/spare --name spare "+once); code != 0 {
		t.Fatalf("a good token: %s", says)
	}
	good, err := n.Token(ctx, "alpha", 8)
	if err != nil {
		t.Fatal(err)
	}
	expired, err := n.Ctl(ctx, "hub", "token", "create", "--ttl", "1ms")
	if err != nil {
		t.Fatal(err)
	}
	expired = strings.TrimSpace(expired)
	join := "meshd join --state /run/new "
	dies := compiled(t, "dies", "openmpi")
	cut := func(s string) string { return s[:len(s)-5] }
	for _, b := range []bad{
		{"used-up token", "a2", join + "--name x " + once, 1, "used up"},
		{"expired token", "a2", join + "--name x " + expired, 1, "expired"},
		{"cut token", "a2", join + "--name x " + cut(good), 1, "token"},
		{"no token", "a2", join + "--name x ''", 1, "token"},
		{"taken name", "a2", join + "--name b1 " + good, 1, "--name"},
		{"state dir in use by a node", "a2", "meshd join --name x " + good, 1, "a2"},
		{"second daemon", "a1", "meshd run", 1, "in use"},
		{"foreign interface", "a2", "ip link add mesh9 type bridge; meshd run --state /run/spare --tun mesh9 --listen :51999; r=$?; ip link del mesh9; exit $r", 1, "mesh9"},
		{"no /dev/net/tun", "a2", "unshare -m sh -c 'mount -t tmpfs none /dev/net && exec meshd run --state /run/spare --tun mesh9 --listen :51999'", 1, "/dev/net/tun"},
		{"corrupt state", "a2", "cp -a /run/spare /run/broken; echo '{' >/run/broken/node.json; meshd run --state /run/broken --listen :51999", 1, "node.json"},
		{"no state", "a2", "meshd run --state /run/nothing", 1, "meshd init or meshd join"},
		{"bad port", "a2", "meshd run --listen here", 2, "--listen"},
		{"bad flag", "a2", "meshd run --nonsense", 2, "--nonsense"},
		{"no daemon", "a2", "meshctl --state /run/spare status", 1, "meshd run"},
		{"not a hub", "a1", "meshctl token create", 1, "not a hub"},
		{"unknown node", "a1", "meshctl ping nobody", 1, "nobody"},
		{"unknown host", "a1", "meshrsh nobody true", 125, "nobody"},
		{"unknown host for a job", "a1", "meshrun -n 1 -H nobody -- hostname", 125, "nobody"},
		{"too many ranks", "a1", "meshrun -n 99 -H a1,b1 -- " + dies, 125, "--oversubscribe"},
		{"no such program", "a1", "meshrun -n 2 -H a1:1,b1:1 --mpi openmpi -- /no/such/program", 127, "/no/such/program"},
		{"no MPI", "a1", "PATH=" + bin + " meshrun -n 2 -H a1:1,b1:1 -- " + dies, 125, "install"},
		{"rank exits", "a1", "meshrun -n 2 -H a1:1,b1:1 -- " + dies + " exit", 3, "rank 1 on b1 exited with code 3"},
		{"rank is killed", "a1", "meshrun -n 2 -H a1:1,b1:1 -- " + dies + " kill", 137, "rank 1 on b1 was killed by signal 9"},
	} {
		b.check(ctx, t, n)
	}
	d, err := n.Lab.Host("a2").Start(n.Tool("meshd"), "run", "--state", "/run/spare")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Await(ctx, "msg=ready"); err != nil {
		t.Fatal(err)
	}
	bad{"port in use", "a2", "cp -a /run/spare /run/twin; meshd run --state /run/twin --tun mesh9", 1, "51820 is in use"}.check(ctx, t, n)
	for _, h := range []string{"a1", "b1"} {
		if out, err := n.Lab.Host(h).Run(ctx, "ps", "-eo", "args"); err != nil || strings.Contains(out, dies) {
			t.Errorf("a rank is left on %s: %v\n%s", h, err, out)
		}
	}
	if code, _ := try(ctx, t, n, "a2", "test -e /run/new"); code == 0 {
		t.Error("a join that failed has left its state directory")
	}
	if _, err := n.Ping(ctx, "a1", "b1"); err != nil {
		t.Errorf("the running network has suffered: %v", err)
	}
}

// TestUnreachableHub: joining says so within seconds.
func TestUnreachableHub(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.OneLAN(), deploy.Options{})
	token, err := n.Token(ctx, "alpha", 1)
	if err != nil {
		t.Fatal(err)
	}
	n.Kill("a1")
	bad{"unreachable hub", "a2", "meshd join --state /run/new --name x " + token, 1, "cannot reach"}.check(ctx, t, n)
}
