package mpishim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be meshrun and a meshrsh that needs no network,
// by the name that it is called.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "meshrsh":
		os.Exit(agentMain(os.Args[1:]))
	case "meshrun":
		switch os.Args[1] {
		case RankArg:
			os.Exit(RunRank(os.Args[2:]))
		case RanksArg:
			os.Exit(RunRanks())
		}
		os.Exit(jobMain(os.Args[1]))
	}
	goleak.VerifyTestMain(m)
}

// agentMain runs the command here, as if "here" were node n2 for 127.0.0.2.
func agentMain(args []string) int {
	c, err := ParseAgent(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return CodeFailed
	}
	last := c.Host[strings.LastIndexByte(c.Host, '.')+1:]
	tmp := filepath.Join(os.Getenv("TEST_BIN"), "tmp"+last) // daemons of one machine would share it
	os.Mkdir(tmp, 0o700)
	cmd := osexec.Command("/bin/sh", "-c", AgentCommand(c.Command))
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + filepath.Dir(os.Args[0]) + ":/usr/bin:/bin", "HOME=/", "MESH_NODE=n" + last, "MESH_SITE=s" + last, "MESH_BIN=" + os.Getenv("TEST_BIN"), "MESH_STATE=" + os.Getenv("TEST_BIN"), "TEST_BIN=" + os.Getenv("TEST_BIN"), "GORACE=" + os.Getenv("GORACE"), "TMPDIR=" + tmp}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// jobMain is meshrun without the daemon: it runs a plan.
func jobMain(text string) int {
	var p Plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return CodeFailed
	}
	p.Environ = os.Environ()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1)
	streams := Streams{Stdin: os.Stdin, Out: os.Stdout, Err: os.Stderr, Signals: signals}
	var code int
	var err error
	if p.Launcher.Kind == Go {
		code, err = RunGo(context.Background(), p, streams, nodeHere)
	} else {
		code, err = Run(context.Background(), p, streams)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "meshrun:", err)
	}
	return code
}

// testPlan puts two ranks on each of two hosts, which are this machine's.
func testPlan(t *testing.T, k Kind, prog string, args ...string) Plan {
	t.Helper()
	l, err := Find(t.Context(), k)
	if err != nil {
		t.Skip(err)
	}
	bin := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"meshrun", "meshrsh"} {
		if err := os.Symlink(exe, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TEST_BIN", bin)
	t.Setenv("GORACE", "atexit_sleep_ms=10") // race builds linger for a second after their end
	return Plan{
		Launcher: l, Root: os.Geteuid() == 0,
		Overlay: Overlay{Node: "n1", Site: "s1", TUN: "lo", Addr: netip.MustParseAddr("127.0.0.1"), CIDR: netip.MustParsePrefix("127.0.0.0/8"), BinDir: bin, StateDir: bin},
		Places:  []Place{{Host{Name: "n2", Site: "s2", Addr: netip.MustParseAddr("127.0.0.2")}, 1}, {Host{Name: "n3", Site: "s3", Addr: netip.MustParseAddr("127.0.0.3")}, 1}},
		Apps:    []App{{N: 2, Prog: prog, Args: args}}, Wdir: bin,
	}
}

// job prepares the plan's process.
func job(t *testing.T, p Plan) (*osexec.Cmd, *strings.Builder, *strings.Builder) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(filepath.Join(p.Overlay.BinDir, "meshrun"), string(text))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd, &out, &errs
}
