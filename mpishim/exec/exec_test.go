package exec

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"golang.org/x/crypto/ssh"
)

func TestRunPassesEverythingThrough(t *testing.T) {
	w := newWorld(t, nil).serve()
	for _, tt := range []struct {
		name, command, stdin string
		out, errs            string
		code                 int
	}{
		{name: "output", command: "echo out; echo err >&2", out: "out\n", errs: "err\n"},
		{name: "code", command: "exit 42", code: 42},
		{name: "signal", command: "kill -9 $$", code: 137},
		{name: "stdin", command: "cat; exit 3", stdin: "in\n", out: "in\n", code: 3},
		{name: "stdin ends", command: "wc -c", stdin: strings.Repeat("x", 300_000), out: "300000\n"},
		{name: "not found", command: "exec /no/such/program 2>/dev/null", code: 127},
		{name: "quotes", command: `echo "a  b" 'c $HOME'`, out: "a  b c $HOME\n"},
		{name: "names", command: "echo $MESH_NODE $MESH_SITE $LOGNAME $FOO", out: "b beta root bar baz\n"},
		{name: "own session", command: `set -- $(cat /proc/$$/stat); test $6 = $$ && echo yes`, out: "yes\n"},
		{name: "nothing inherited", command: `for f in /proc/$$/fd/*; do test -e $f && echo ${f##*/}; done; true`, out: "0\n1\n2\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, code, err := w.run(tt.command, RunOptions{Stdin: strings.NewReader(tt.stdin), Env: []string{"FOO=bar baz"}})
			if err != nil || out != tt.out || errs != tt.errs || code != tt.code {
				t.Errorf("%q: got (%q, %q, %d, %v), want (%q, %q, %d, nil)", tt.command, out, errs, code, err, tt.out, tt.errs, tt.code)
			}
		})
	}
}

func TestRunPassesMuchOutput(t *testing.T) {
	w := newWorld(t, nil).serve()
	out, _, code, err := w.run("head -c 20000000 /dev/zero", RunOptions{})
	if len(out) != 20000000 || code != 0 || err != nil {
		t.Errorf("got %d bytes, %d, %v", len(out), code, err)
	}
}

func TestSignalsAndCancellation(t *testing.T) {
	w := newWorld(t, nil).serve()
	signals := make(chan os.Signal, 1)
	_, done := w.began(t.Context(), `trap "exit 7" USR1; echo ready; while :; do sleep 0.01; done`, RunOptions{Signals: signals})
	signals <- syscall.SIGUSR1
	if got := <-done; got != (result{7, nil}) {
		t.Errorf("SIGUSR1: got %+v, want code 7", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	line, done := w.began(ctx, `trap "" TERM; echo $$; while :; do sleep 0.01; done`, RunOptions{})
	cancel()
	if got := <-done; got.code != CodeFailed || got.err == nil {
		t.Errorf("cancel: got %+v, want code %d and an error", got, CodeFailed)
	}
	pid, _ := strconv.Atoi(line)
	eventually.Holds(t, "a command that ignores SIGTERM is gone", func() bool { return !exists(pid) })
}

// stubborn starts a tree that ignores SIGTERM, with an orphan that left its
// kernel session and its process group, and prints three process ids.
const stubborn = `trap "" TERM; (setsid sh -c 'trap "" TERM; sleep 1000 & echo $$ $!; wait' &) ; sleep 0.2; echo $$; while :; do sleep 1; done`

func pidsOf(t *testing.T, ctx context.Context, w *world, opt RunOptions) ([]int, <-chan result) {
	t.Helper()
	file := t.TempDir() + "/pids"
	_, done := w.began(ctx, "exec 3>"+file+"; { "+strings.ReplaceAll(stubborn, "echo", "echo >&3")+"; } & sleep 0.5; echo ready; wait", opt)
	var raw []byte
	var err error
	eventually.Holds(t, "the tree has told its process ids", func() bool {
		raw, err = os.ReadFile(file)
		return len(strings.Fields(string(raw))) == 3
	})
	var pids []int
	for _, f := range strings.Fields(string(raw)) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	if err != nil || len(pids) != 3 || slices.ContainsFunc(pids, func(p int) bool { return !exists(p) }) {
		t.Fatalf("the tree is not there: %q, %v", raw, err)
	}
	return pids, done
}

func allGone(pids []int) func() bool {
	return func() bool { return !slices.ContainsFunc(pids, exists) }
}

func TestConnectionLossEndsTheTree(t *testing.T) {
	w := newWorld(t, nil).serve()
	var conn net.Conn
	dial := func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return conn, err
	}
	pids, done := pidsOf(t, t.Context(), w, RunOptions{Dial: dial})
	conn.Close()
	if got := <-done; got.code != CodeFailed || got.err == nil || strings.Contains(got.err.Error(), "\n") {
		t.Errorf("got %+v, want one line and code %d", got, CodeFailed)
	}
	eventually.Holds(t, "nothing is left", allGone(pids))
	eventually.Holds(t, "no record is left", func() bool { s, _ := os.ReadDir(w.dir + "/sessions"); return len(s) == 0 })
}

func TestEndOfCommandEndsTheTree(t *testing.T) {
	w := newWorld(t, nil).serve()
	out, _, code, err := w.run(`setsid sleep 1000 & echo $!; exit 5`, RunOptions{})
	pid, _ := strconv.Atoi(strings.TrimSpace(out))
	if pid == 0 || code != 5 || err != nil {
		t.Fatalf("got (%q, %d, %v)", out, code, err)
	}
	if exists(pid) {
		t.Errorf("process %d outlives its session", pid)
	}
}

func TestEndSessions(t *testing.T) {
	w := newWorld(t, nil).serve()
	pids, done := pidsOf(t, t.Context(), w, RunOptions{})
	found, err := Sessions(w.dir)
	if err != nil || len(found) != 1 || found[0].From != "root@a" || found[0].User != "root" {
		t.Fatalf("Sessions: got %+v, %v", found, err)
	}
	n, err := EndSessions(w.dir)
	if n != 1 || err != nil {
		t.Errorf("EndSessions: got %d, %v, want 1", n, err)
	}
	if !allGone(pids)() {
		t.Error("processes are left")
	}
	<-done
	if n, err := EndSessions(w.dir); n != 0 || err != nil {
		t.Errorf("again: got %d, %v, want 0", n, err)
	}
}

func TestEndSessionsAfterTheSessionItselfWasKilled(t *testing.T) {
	w := newWorld(t, nil).serve()
	pids, done := pidsOf(t, t.Context(), w, RunOptions{})
	found, _ := Sessions(w.dir)
	syscall.Kill(found[0].PID, syscall.SIGKILL)
	<-done
	if n, err := EndSessions(w.dir); n != 1 || err != nil {
		t.Errorf("EndSessions: got %d, %v, want 1", n, err)
	}
	if found[0].Cgroup == "" { // only a cgroup finds those that left the kernel session
		pids = pids[len(pids)-1:]
	}
	eventually.Holds(t, "nothing is left", allGone(pids))
}

// TestRecordOfAnotherBoot: whoever has the process ids of a session that a power cut ended
// is left alone, and the record goes.
func TestRecordOfAnotherBoot(t *testing.T) {
	w := newWorld(t, nil).serve()
	pids, done := pidsOf(t, t.Context(), w, RunOptions{})
	found, err := Sessions(w.dir)
	if err != nil || len(found) != 1 {
		t.Fatalf("Sessions: got %+v, %v", found, err)
	}
	old := found[0]
	old.Boot = "another"
	if err := old.write(w.dir); err != nil {
		t.Fatal(err)
	}
	if n, err := EndSessions(w.dir); n != 0 || err != nil {
		t.Errorf("EndSessions: got %d, %v, want 0", n, err)
	}
	for _, pid := range pids {
		if !exists(pid) {
			t.Errorf("process %d was ended", pid)
		}
	}
	if _, err := os.Stat(recordPath(w.dir, old.PID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
	if err := found[0].write(w.dir); err != nil {
		t.Fatal(err)
	}
	if n, err := EndSessions(w.dir); n != 1 || err != nil {
		t.Errorf("of this boot: got %d, %v, want 1", n, err)
	}
	<-done
}

func TestSessionOutlivesItsDaemon(t *testing.T) {
	w := newWorld(t, nil)
	daemon := w.daemon()
	stdin, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	_, done := w.began(t.Context(), `echo ready; read code; echo more; exit $code`, RunOptions{Stdin: stdin})
	daemon.Process.Kill()
	daemon.Wait()
	feed.WriteString("9\n")
	feed.Close()
	if got := <-done; got != (result{9, nil}) {
		t.Errorf("got %+v, want code 9", got)
	}
}

func TestServeReturnsAndSessionsGoOn(t *testing.T) {
	w := newWorld(t, nil)
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = netip.MustParseAddrPort(ln.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, w.cfg) }()
	signals := make(chan os.Signal, 1)
	_, done := w.began(t.Context(), `trap "exit 4" HUP; echo ready; while :; do sleep 0.01; done`, RunOptions{Signals: signals})
	cancel()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	signals <- syscall.SIGHUP
	if got := <-done; got != (result{4, nil}) {
		t.Errorf("got %+v, want code 4", got)
	}
}

// TestOtherConnections covers listeners without kernel sockets.
func TestOtherConnections(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil).serveOn(opaque{ln})
	out, _, code, err := w.run("echo hello; exit 2", RunOptions{})
	if out != "hello\n" || code != 2 || err != nil {
		t.Errorf("got %q, %d, %v", out, code, err)
	}
}

type opaque struct{ net.Listener }

func (o opaque) Accept() (net.Conn, error) {
	c, err := o.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

func TestRefusals(t *testing.T) {
	other := seedKey('x')
	for _, tt := range []struct {
		name   string
		change func(*world, *Ticket)
		user   string
		policy Policy
		want   string
	}{
		{name: "revoked", change: func(w *world, _ *Ticket) { w.revoked.Store(true) }, want: "belongs to no current node"},
		{name: "root", user: "root", want: "root is not allowed"},
		{name: "no account", user: "no-such-user", want: "no user no-such-user here"},
		{name: "system user", user: "daemon", want: "system user"},
		{name: "no shell", user: "nobody", want: "no login shell"},
		{name: "denied", user: "root", policy: Policy{AllowRoot: true, Map: []Rule{{Node: "a", User: "*", Deny: true}}}, want: "policy denies root@a"},
		{name: "not mapped", user: "root", policy: Policy{AllowRoot: true}, change: func(_ *world, k *Ticket) { k.User = "daemon" }, want: "does not map root@a to user daemon"},
		{name: "wrong host", change: func(w *world, k *Ticket) { k.HostKey, _ = HostKey(other.Public().(ed25519.PublicKey)) }, want: "host key"},
		{name: "full", change: func(w *world, _ *Ticket) { w.fill() }, want: "no more are allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Policy = func() Policy { return tt.policy }; c.Max = 1 }).serve()
			user := tt.user
			if user == "" {
				user = "root"
			}
			ticket, key := w.ticket(user, user)
			if tt.change != nil {
				tt.change(w, &ticket)
			}
			code, err := Run(t.Context(), ticket, key, RunOptions{Command: "true"})
			if code != CodeFailed || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "node b") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %d, %v, want code %d and one line with %q", code, err, CodeFailed, tt.want)
			}
		})
	}
}

// fill takes the only place with a connection that says nothing.
func (w *world) fill() {
	c, err := net.Dial("tcp", w.addr.String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	c.Read(make([]byte, 1)) // the session speaks first
}

func TestCertificatesAreChecked(t *testing.T) {
	w := newWorld(t, nil).serve()
	_, raw, _ := ed25519.GenerateKey(nil)
	key, _ := ssh.NewSignerFromKey(raw)
	now := time.Now()
	vouch := func(signer ed25519.PrivateKey, node, user string, at time.Time) *ssh.Certificate {
		cert, err := Vouch(signer, node, user, key.PublicKey(), at)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	resign := func(change func(*ssh.Certificate)) *ssh.Certificate {
		cert := vouch(w.keyA, "a", "root", now)
		change(cert)
		signer, _ := ssh.NewSignerFromKey(w.keyA)
		if err := cert.SignCert(constant{}, signer); err != nil {
			t.Fatal(err)
		}
		return cert
	}
	for _, tt := range []struct {
		name string
		cert *ssh.Certificate
		want string // in the error; empty to be admitted
	}{
		{"good", vouch(w.keyA, "a", "root", now), ""},
		{"slow clock", vouch(w.keyA, "a", "root", now.Add(-4*time.Minute)), ""},
		{"another node's key", vouch(seedKey('c'), "a", "root", now), "not signed by node a"},
		{"another node's name", vouch(w.keyA, "c", "root", now), "not for a user of node a"},
		{"expired", vouch(w.keyA, "a", "root", now.Add(-time.Hour)), "expired"},
		{"of the future", vouch(w.keyA, "a", "root", now.Add(time.Hour)), "not yet valid"},
		{"nobody", resign(func(c *ssh.Certificate) { c.ValidPrincipals = nil }), "no user"},
		{"several users", resign(func(c *ssh.Certificate) { c.ValidPrincipals = []string{"root", "daemon"} }), "several"},
		{"host certificate", resign(func(c *ssh.Certificate) { c.CertType = ssh.HostCert }), "not a user certificate"},
		{"eternal", resign(func(c *ssh.Certificate) { c.ValidBefore = ssh.CertTimeInfinity }), "too long"},
		{"critical option", resign(func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"force-command": "x"} }), "critical option"},
		{"forged", func() *ssh.Certificate {
			c := vouch(w.keyA, "a", "daemon", now)
			c.ValidPrincipals, c.KeyId = []string{"root"}, "root@a"
			return c
		}(), "signature"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ticket, _ := w.ticket("root", "root")
			ticket.Cert = string(ssh.MarshalAuthorizedKey(tt.cert))
			code, err := Run(t.Context(), ticket, key, RunOptions{Command: "exit 6"})
			if tt.want == "" && (code != 6 || err != nil) {
				t.Errorf("got %d, %v, want to be admitted", code, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %d, %v, want an error with %q", code, err, tt.want)
			}
		})
	}
}

type constant struct{}

func (constant) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestUnreachable(t *testing.T) {
	w := newWorld(t, nil)
	w.addr = netip.MustParseAddrPort("127.0.0.1:1")
	_, _, code, err := w.run("true", RunOptions{})
	if code != CodeFailed || err == nil || !strings.Contains(err.Error(), "node b does not answer") {
		t.Errorf("got %d, %v", code, err)
	}
}

func TestVouchRefusesBadNames(t *testing.T) {
	key, _ := ssh.NewSignerFromKey(seedKey('k'))
	for _, user := range []string{"", "-x", "a b", "a@b", "a\n", "a/b", strings.Repeat("a", 65)} {
		if _, err := Vouch(seedKey('a'), "a", user, key.PublicKey(), time.Now()); err == nil {
			t.Errorf("Vouch(%q): got no error", user)
		}
	}
}
