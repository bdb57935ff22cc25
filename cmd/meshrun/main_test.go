package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mpishim"
	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// TestMain lets the test binary be a meshd's exec session.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "exec-session" {
		if exec.Session(os.NewFile(3, "conn"), os.NewFile(4, "config")) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestApps(t *testing.T) {
	for _, tt := range []struct {
		words string
		want  []mpishim.App
	}{
		{"prog -n 3 -- x", []mpishim.App{{N: 2, Prog: "prog", Args: []string{"-n", "3", "--", "x"}}}},
		{"-- prog", []mpishim.App{{N: 2, Prog: "prog", Args: []string{}}}},
		{"a 1 : -n 3 b : -np 1 -- c", []mpishim.App{{N: 2, Prog: "a", Args: []string{"1"}}, {N: 3, Prog: "b", Args: []string{}}, {N: 1, Prog: "c", Args: []string{}}}},
		{"", nil}, {"a :", nil}, {"a : b c d", nil}, {"a : -n x b", nil}, {"a : -n 0 b", nil}, {": -n 1 b", nil},
		{"--bogus a", nil}, {"a : -n 2 -q b", nil}, {"-- -a -b", []mpishim.App{{N: 2, Prog: "-a", Args: []string{"-b"}}}},
	} {
		o := options{N: 2, Program: strings.Fields(tt.words)}
		got, total, err := o.apps()
		want := 0
		for _, a := range tt.want {
			want += a.N
		}
		if (err != nil) != (tt.want == nil) || err == nil && (!reflect.DeepEqual(got, tt.want) || total != want) {
			t.Errorf("%q: got %+v, %d, %v, want %+v", tt.words, got, total, err, tt.want)
		}
	}
}

func TestSingleDash(t *testing.T) {
	for in, want := range map[string]string{
		"-np 2 -wdir /x prog -wdir": "-n 2 --wdir /x prog -wdir",
		"-x -wdir -n 1 -- -np":      "-x --wdir -n 1 -- -np",
		"-v prog":                   "-v prog",
		"-stage -state d -n 1 p":    "--stage --state d -n 1 p",
		"-export A=1 -verbose p -x": "--export A=1 --verbose p -x",
		"-profile d -np 1 p -np":    "--profile d -n 1 p -np",
	} {
		if got := strings.Join(singleDash(strings.Fields(in)), " "); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestExports: a name that is not set here is told of and passed over, as by Open
// MPI's mpirun; no name is an error.
func TestExports(t *testing.T) {
	t.Setenv("EMPTY", "")
	o := options{Export: []string{"EMPTY", "NOT_SET_ANYWHERE", "A=", "A=b=c"}}
	if err := o.exports(); err != nil || !slices.Equal(o.Export, []string{"EMPTY", "A=", "A=b=c"}) {
		t.Errorf("%q are left, %v", o.Export, err)
	}
	for _, bad := range []string{"", "=v"} {
		if err := (&options{Export: []string{"A=1", bad}}).exports(); err == nil || !strings.Contains(err.Error(), "names no variable") {
			t.Errorf("-x %q: %v", bad, err)
		}
	}
}

// TestDetect: the first program that shows its MPI decides, wherever it stands.
func TestDetect(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	goProg := filepath.Join(t.TempDir(), "prog")
	if out, err := osexec.Command("go", "build", "-o", goProg, "../../mpi/examples/hello").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, paths := range [][]string{{goProg}, {"", goProg}, {script, goProg}, {script, "", goProg, goProg}} {
		apps := make([]mpishim.App, len(paths))
		for i := range apps {
			apps[i].Prog = "prog" + strconv.Itoa(i)
		}
		kind, why, err := detect(apps, paths)
		if want := apps[slices.Index(paths, goProg)].Prog; err != nil || kind != mpishim.Go || !strings.HasPrefix(why, want+": ") {
			t.Errorf("%q: %s, %s, %v", paths, kind, why, err)
		}
	}
	if kind, _, err := detect([]mpishim.App{{Prog: "script"}}, []string{script}); kind != "" || err != nil {
		t.Errorf("a script is for %q, %v", kind, err)
	}
}

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		o    options
		matb int64
		err  string
	}{
		{o: options{}},
		{o: options{MATB: "100Mb/s"}, matb: 100e6},
		{o: options{MATB: "12.5MB/s"}, matb: 100e6},
		{o: options{Pattern: "cg"}},
		{o: options{NoHints: true}},
		{o: options{MATB: "fast"}, err: `--matb: "fast" is no rate; write`},
		{o: options{MATB: "0"}, err: "--matb: "},
		{o: options{MATB: "-5M"}, err: "--matb: "},
		{o: options{Pattern: "ring"}, err: `--pattern: no pattern is called "ring"; use one of alltoall, bt, cg, ft, is, lu, mg, sp`},
		{o: options{MATB: "1G", Pattern: "cg"}, err: "exclude each other"},
		{o: options{MATB: "1G", NoHints: true}, err: "--no-hints excludes"},
		{o: options{Pattern: "cg", NoHints: true}, err: "--no-hints excludes"},
	} {
		matb, err := tt.o.pace()
		if matb != tt.matb || (err != nil) != (tt.err != "") || err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%+v: %d, %v; want %d, %q", tt.o, matb, err, tt.matb, tt.err)
		}
		if err == nil {
			continue
		}
		tt.o.N, tt.o.Program = 1, []string{"prog"}
		if code, err := tt.o.run(t.Context()); code != mpishim.CodeFailed || err == nil {
			t.Errorf("%+v: code %d, %v", tt.o, code, err)
		}
	}
}

// fakeMesh is a daemon's socket and two nodes, b1 and b2, on loopback addresses.
func fakeMesh(t *testing.T) (state, bin string) {
	t.Helper()
	state, bin = t.TempDir(), t.TempDir()
	if out, err := osexec.Command("go", "build", "-o", bin, ".", "../meshrsh").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(bin, "meshd")); err != nil {
		t.Fatal(err)
	}
	_, caller, _ := ed25519.GenerateKey(nil)
	ctx, cancel := context.WithCancel(t.Context())
	addrs, keys, done := map[string]netip.AddrPort{}, map[string]ed25519.PrivateKey{}, make(chan error, 2)
	nodes := []api.NodeStatus{{Name: "a1", Site: "alpha", Addr4: "127.0.0.1", Self: true, Up: true, Hub: true}}
	for i, name := range []string{"b1", "b2"} {
		host := netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 2)})
		ln, err := net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		_, key, _ := ed25519.GenerateKey(nil)
		keys[name], addrs[name] = key, netip.MustParseAddrPort(ln.Addr().String())
		addrs[host.String()], keys[host.String()] = addrs[name], key
		nodes = append(nodes, api.NodeStatus{Name: name, Site: "beta", Addr4: host.String(), Up: true, Cores: 1})
		dir := filepath.Join(state, name)
		go func() {
			done <- exec.Serve(ctx, ln, exec.Config{HostKey: key, Exe: filepath.Join(bin, "meshd"), StateDir: dir, Node: name, Site: "beta",
				Lookup: func(netip.Addr) (peer.Node, bool) {
					return peer.Node{Name: "a1", Site: "alpha", SignKey: caller.Public().(ed25519.PublicKey)}, true
				},
				Policy: func() exec.Policy { return exec.Policy{AllowRoot: true} }})
		}()
		t.Cleanup(func() { exec.EndSessions(dir) })
	}
	mux := http.NewServeMux()
	reply := func(path string, f func(*http.Request) any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(f(r)) })
	}
	reply("/v1/status", func(*http.Request) any { return api.Status{Nodes: nodes} })
	reply("/v1/env", func(*http.Request) any {
		return api.Env{Node: "a1", Site: "alpha", TUN: "lo", CIDR4: "127.0.0.0/8", BinDir: bin}
	})
	reply("/v1/ticket", func(r *http.Request) any {
		var req api.TicketRequest
		json.NewDecoder(r.Body).Decode(&req)
		pub, _, _, _, _ := ssh.ParseAuthorizedKey([]byte(req.Key))
		cert, _ := exec.Vouch(caller, "a1", "root", pub, time.Now())
		hostKey, _ := exec.HostKey(keys[req.Host].Public().(ed25519.PublicKey))
		return exec.Ticket{Node: req.Host, Site: "beta", Addrs: []netip.AddrPort{addrs[req.Host]}, HostKey: hostKey, User: "root", Cert: string(ssh.MarshalAuthorizedKey(cert))}
	})
	sock, err := net.Listen("unix", filepath.Join(state, "meshd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go server.Serve(sock)
	t.Cleanup(func() {
		server.Close()
		cancel()
		<-done
		<-done
	})
	return state, bin
}

// shared is what Open MPI's daemons say when several of them, each for a node of
// its own, find themselves in one machine's session directory.
var shared = regexp.MustCompile(`(?m)^\[.*PMIX ERROR: ERROR in file .*dstore_base.c.*\n`)

// TestJobOverTheExecService runs real launchers through meshrun, meshrsh and
// sessions of the exec service.
func TestJobOverTheExecService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the daemon of the test vouches for root")
	}
	state, bin := fakeMesh(t)
	// In that directory they also share a file of the machine's topology, and die of it
	// once in some hundred jobs.
	t.Setenv("OMPI_MCA_rtc_hwloc_vmhole", "none")
	run := func(args ...string) (string, string, int) {
		cmd := osexec.CommandContext(t.Context(), filepath.Join(bin, "meshrun"), append([]string{"--state", state}, args...)...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.Run()
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), "\r", "")), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n"), shared.ReplaceAllString(errs.String(), ""), cmd.ProcessState.ExitCode()
	}
	for kind, launcher := range map[string]string{"openmpi": "mpirun.openmpi", "mpich": "mpiexec.hydra"} {
		t.Run(kind, func(t *testing.T) {
			if _, err := osexec.LookPath(launcher); err != nil {
				t.Skipf("%s is not installed", launcher)
			}
			for _, tt := range []struct {
				script    string
				out, errs string
				code      int
			}{
				{`echo "$MESH_NODE $MESH_SITE"`, "b1 beta\nb2 beta", "", 0},
				{`test $MESH_NODE = b1 || exit 9; sleep 100`, "", "meshrun: rank 1 on b2 exited with code 9\n", 9},
				{`test $MESH_NODE = b1 || kill -SEGV $$; sleep 100`, "", "meshrun: rank 1 on b2 was killed by signal 11 (SIGSEGV)\n", 139},
			} {
				out, errs, code := run("--mpi", kind, "-n", "2", "/bin/sh", "-c", tt.script)
				if out != tt.out || strings.ReplaceAll(errs, ", core dumped", "") != tt.errs || code != tt.code {
					t.Errorf("%s: got %q, %q, %d, want %q, %q, %d", tt.script, out, errs, code, tt.out, tt.errs, tt.code)
				}
			}
			for _, node := range []string{"b1", "b2"} {
				// A session ends with its connection, a moment after the job.
				deadline := time.Now().Add(10 * time.Second)
				left, err := exec.Sessions(filepath.Join(state, node))
				for err == nil && len(left) > 0 && time.Now().Before(deadline) {
					<-time.After(50 * time.Millisecond)
					left, err = exec.Sessions(filepath.Join(state, node))
				}
				if err != nil || len(left) > 0 {
					t.Errorf("node %s: sessions are left: %+v, %v", node, left, err)
				}
			}
		})
	}
	t.Run("go", func(t *testing.T) { goJobs(t, bin, run) })
	if _, errs, code := run("--mpi", "openmpi", "-n", "2", "./no-such-program"); code != mpishim.CodeNotFound || strings.Count(errs, "\n") != 1 {
		t.Errorf("missing program: got %d, %q", code, errs)
	}
}

// goJobs runs a Go program, which nobody says it is.
func goJobs(t *testing.T, bin string, run func(...string) (string, string, int)) {
	prog := filepath.Join(bin, "pmihello")
	if out, err := osexec.Command("go", "build", "-o", prog, "../../integration/programs/go/pmihello").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	place := func(rank, app, node, args string) string {
		return "rank " + rank + " of 2 app " + app + " on b" + node + " site beta at 127.0.0." + string(node[0]+1) + " in " + dir + " FOO=bar [" + args + "]"
	}
	pid := regexp.MustCompile(`\(pid \d+\) `)
	for _, tt := range []struct {
		words     []string
		out, errs string
		code      int
	}{
		{[]string{"-n", "2", prog, "hello"}, place("0", "0", "1", "") + "\n" + place("1", "0", "2", ""), "", 0},
		{[]string{"-n", "1", "-tag-output", prog, "hello", ":", "-n", "1", prog, "hello", "x"}, "[0] " + place("0", "0", "1", "") + "\n[1] " + place("1", "1", "2", `"x"`), "", 0},
		{[]string{"-n", "2", prog, "exit"}, "", "meshrun: rank 1 on b2 exited with code 3\n", 3},
		{[]string{"-n", "2", prog, "kill"}, "", "meshrun: rank 1 on b2 was killed by signal 9 (SIGKILL)\n", 137},
		{[]string{"-n", "2", prog, "abort"}, "", "meshrun: rank 1 on b2 aborted the job with code 7\n", 7},
		{[]string{"-n", "2", "--ft", prog, "survive"}, "rank 0 goes on: died 1", "meshrun: rank 1 on b2 was killed by signal 9 (SIGKILL); the job goes on\n", 0},
		{[]string{"-n", "2", "--mpi", "go", "/bin/sh", "-c", "echo $PMI_ID"}, "0\n1", "", 0},
	} {
		out, errs, code := run(append([]string{"-x", "FOO=bar", "--wdir", dir}, tt.words...)...)
		if errs = pid.ReplaceAllString(errs, ""); out != tt.out || errs != tt.errs || code != tt.code {
			t.Errorf("%q: got %q, %q, %d, want %q, %q, %d", tt.words, out, errs, code, tt.out, tt.errs, tt.code)
		}
	}
}
