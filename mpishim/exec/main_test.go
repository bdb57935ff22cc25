package exec

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	osexec "os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestMain lets the test binary be the processes that the service consists of.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "exec-session":
		if err := Session(os.NewFile(3, "conn"), os.NewFile(4, "config")); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == "test-client":
		clientMain(os.Args[2])
	case len(os.Args) > 1 && os.Args[1] == "test-daemon":
		fmt.Fprintln(os.Stderr, daemonMain(os.Args[2]))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// world is a network of two nodes: a calls b, both on the loopback interface.
type world struct {
	t       *testing.T
	keyA    ed25519.PrivateKey
	keyB    ed25519.PrivateKey
	dir     string
	cfg     Config
	addr    netip.AddrPort
	revoked atomic.Bool
}

func seedKey(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(b)), ed25519.SeedSize)))
}

func nodeA() peer.Node {
	return peer.Node{Name: "a", Site: "alpha", SignKey: seedKey('a').Public().(ed25519.PublicKey)}
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, keyA: seedKey('a'), keyB: seedKey('b'), dir: t.TempDir()}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.cfg = Config{
		HostKey: w.keyB, Exe: exe, StateDir: w.dir, Node: "b", Site: "beta",
		Lookup: func(netip.Addr) (peer.Node, bool) { return nodeA(), !w.revoked.Load() },
		Policy: func() Policy { return Policy{AllowRoot: true} },
	}
	if change != nil {
		change(&w.cfg)
	}
	return w
}

func (w *world) serve() *world {
	w.t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.serveOn(ln)
}

func (w *world) serveOn(ln net.Listener) *world {
	w.addr = netip.MustParseAddrPort(ln.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, w.cfg) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Serve: %v", err)
		}
		EndSessions(w.dir)
	})
	return w
}

// ticket is what node a's daemon would answer for a user.
func (w *world) ticket(user, login string) (Ticket, ssh.Signer) {
	w.t.Helper()
	_, key, _ := ed25519.GenerateKey(nil)
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	cert, err := Vouch(w.keyA, "a", user, signer.PublicKey(), time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	hostKey, err := HostKey(w.keyB.Public().(ed25519.PublicKey))
	if err != nil {
		w.t.Fatal(err)
	}
	return Ticket{
		Node: "b", Site: "beta", Addrs: []netip.AddrPort{w.addr}, HostKey: hostKey,
		User: login, Cert: string(ssh.MarshalAuthorizedKey(cert)),
	}, signer
}

// run runs a command as root.
func (w *world) run(command string, opt RunOptions) (stdout, stderr string, code int, err error) {
	w.t.Helper()
	t, key := w.ticket("root", "root")
	var out, errs strings.Builder
	opt.Command, opt.Stdout, opt.Stderr = command, &out, &errs
	code, err = Run(w.t.Context(), t, key, opt)
	return out.String(), errs.String(), code, err
}

// began runs a command that prints one line and goes on, and returns that line.
func (w *world) began(ctx context.Context, command string, opt RunOptions) (line string, done <-chan result) {
	w.t.Helper()
	t, key := w.ticket("root", "root")
	r, pipe := io.Pipe()
	opt.Command, opt.Stdout = command, pipe
	ended := make(chan result, 1)
	go func() {
		code, err := Run(ctx, t, key, opt)
		pipe.CloseWithError(io.ErrUnexpectedEOF)
		ended <- result{code, err}
	}()
	buf := make([]byte, 256)
	n, err := r.Read(buf)
	if err != nil {
		w.t.Fatalf("before its first line: %v, %+v", err, <-ended)
	}
	go io.Copy(io.Discard, r)
	return strings.TrimSpace(string(buf[:n])), ended
}

type result struct {
	code int
	err  error
}

func exists(pid int) bool {
	p, ok := procOf(pid)
	return ok && !p.zombie
}

// daemonMain serves in a process of its own, to be killed.
func daemonMain(arg string) error {
	var in struct {
		Exe, Dir string
		Silence  time.Duration
	}
	if err := json.Unmarshal([]byte(arg), &in); err != nil {
		return err
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	return Serve(context.Background(), ln, Config{
		Silence: in.Silence, HostKey: seedKey('b'), Exe: in.Exe, StateDir: in.Dir, Node: "b", Site: "beta",
		Lookup: func(netip.Addr) (peer.Node, bool) { return nodeA(), true },
		Policy: func() Policy { return Policy{AllowRoot: true} },
	})
}

// daemon starts daemonMain and returns its process.
func (w *world) daemon() *osexec.Cmd {
	w.t.Helper()
	arg, _ := json.Marshal(map[string]any{"Exe": w.cfg.Exe, "Dir": w.dir, "Silence": w.cfg.Silence})
	cmd := osexec.Command(w.cfg.Exe, "test-daemon", string(arg))
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		w.t.Fatal(err)
	}
	w.addr = netip.MustParseAddrPort(addr)
	w.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait(); EndSessions(w.dir) })
	return cmd
}

// clientJob is what a client in a process of its own is told.
type clientJob struct {
	Ticket  Ticket
	Key     []byte
	Command string
	Silence time.Duration
}

// clientMain runs a command and exits with its code.
func clientMain(arg string) {
	var job clientJob
	if err := json.Unmarshal([]byte(arg), &job); err != nil {
		panic(err)
	}
	key, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(job.Key))
	if err != nil {
		panic(err)
	}
	code, err := Run(context.Background(), job.Ticket, key, RunOptions{Command: job.Command, Stdout: os.Stdout, Silence: job.Silence})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// beganIn is began with the client in a process of its own, which is started on
// the calling thread and so shares its namespaces.
func (w *world) beganIn(command string, silence time.Duration) (line string, done <-chan result) {
	w.t.Helper()
	ticket, _ := w.ticket("root", "root")
	seed := seedKey('k')
	signer, _ := ssh.NewSignerFromKey(seed)
	cert, err := Vouch(w.keyA, "a", "root", signer.PublicKey(), time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	ticket.Cert = string(ssh.MarshalAuthorizedKey(cert))
	arg, _ := json.Marshal(clientJob{ticket, seed.Seed(), command, silence})
	cmd := osexec.Command(w.cfg.Exe, "test-client", string(arg))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, &line); err != nil {
		cmd.Wait()
		w.t.Fatalf("%v: %s", err, errs.String())
	}
	ended := make(chan result, 1)
	go func() {
		io.Copy(io.Discard, out)
		cmd.Wait()
		ended <- result{cmd.ProcessState.ExitCode(), errors.New(errs.String())}
	}()
	return line, ended
}
