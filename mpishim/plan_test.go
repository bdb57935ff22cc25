package mpishim

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func testHosts() []Host {
	host := func(name, site string, last byte, cores int) Host {
		return Host{Name: name, Site: site, Domain: "mesh.internal", Cores: cores, Up: true,
			Addr: netip.AddrFrom4([4]byte{100, 80, 0, last}), Addr6: netip.AddrFrom16([16]byte{0: 0xfd, 15: last})}
	}
	hosts := []Host{host("a1", "alpha", 1, 2), host("a2", "alpha", 2, 4), host("b1", "beta", 3, 2), host("b2", "beta", 4, 0), host("hub", "beta", 5, 8), host("off", "alpha", 6, 8)}
	hosts[2].Self = true
	hosts[4].Spare = true
	hosts[5].Up = false
	return hosts
}

func TestPut(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		n          int
		over       bool
		places     string
		err        string
	}{
		{name: "local site first, sites together", n: 7, places: "b1:2 b2:1 a1:2 a2:2"},
		{name: "fewer", n: 2, places: "b1:2"},
		{name: "too many", n: 10, err: "10 ranks on 9 slots with 4 nodes; give slots with -H NODE:SLOTS, or allow more with --oversubscribe"},
		{name: "oversubscribed", n: 12, over: true, places: "b1:2 b2:2 a1:3 a2:5"},
		{name: "named", want: "a2,b1:1", n: 5, places: "a2:4 b1:1"},
		{name: "named hub", want: "hub", n: 2, places: "hub:2"},
		{name: "named twice", want: "b2,a1:1,b2", n: 3, places: "b2:2 a1:1"},
		{name: "by address and full name", want: "100.80.0.1:1,b1.beta.mesh.internal:1", n: 2, places: "a1:1 b1:1"},
		{name: "by IPv6 address", want: "fd00::1,[fd00::3]:1,[fd00::4]", n: 4, places: "a1:2 b1:1 b2:1"},
		{name: "by site and in capitals", want: "A1.Alpha:1,b1.mesh.internal.:1", n: 2, places: "a1:1 b1:1"},
		{name: "another's domain", want: "a1.other.example.org", n: 1, err: `no node "a1.other.example.org" in this network`},
		{name: "another site", want: "a1.beta", n: 1, err: `no node "a1.beta" in this network`},
		{name: "one comma too many", want: "a1,,b1", n: 1, err: "missing between the commas"},
		{name: "colons", want: "a1:1:2", n: 1, err: `no node "a1:1" in this network`},
		{name: "unknown", want: "c1", n: 1, err: `no node "c1" in this network; it has a1, a2, b1, b2, hub, off`},
		{name: "down", want: "off", n: 1, err: "node off is down"},
		{name: "slots", want: "a1:x", n: 1, err: "no number of slots"},
		{name: "none", n: 0, err: "between 1 and"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			places, err := Put(testHosts(), tt.want, tt.n, tt.over)
			var got []string
			for _, p := range places {
				got = append(got, fmt.Sprintf("%s:%d", p.Host.Name, p.Ranks))
			}
			if s := strings.Join(got, " "); s != tt.places {
				t.Errorf("got %q, want %q", s, tt.places)
			}
			total := 0
			for _, p := range places {
				total += p.Ranks
			}
			if err == nil && total != tt.n {
				t.Errorf("placed %d ranks of %d: %v", total, tt.n, got)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

func goldenPlan(l Launcher) Plan {
	h := testHosts()
	return Plan{
		Launcher: l, Places: []Place{{h[2], 2}, {h[0], 1}}, Root: true, Wdir: "/home/u/run",
		Overlay: Overlay{Node: "b1", Site: "beta", TUN: "mesh0", CIDR: netip.MustParsePrefix("100.80.0.0/16"), BinDir: "/opt/meshmpi/bin", StateDir: "/var/lib/meshd"},
		Apps:    []App{{2, "/home/u/prog", []string{"-v", "a b"}}, {1, "/home/u/io", nil}},
		Export:  []string{"LD_PRELOAD", "DEBUG=1"},
		MATB:    50e6,
		Environ: []string{"HOME=/home/u", "PATH=/usr/bin", "MESH_NODE=wrong", "MESH_RANKS=an/outer:1", "OMP_NUM_THREADS=2", "LD_PRELOAD=/x.so"},
	}
}

// TestCommandLines compares with readable files; -update rewrites them.
func TestCommandLines(t *testing.T) {
	for name, l := range map[string]Launcher{
		"openmpi4": {OpenMPI, "/usr/bin/mpirun.openmpi", 4},
		"openmpi5": {OpenMPI, "/opt/openmpi5/bin/mpirun", 5},
		"mpich":    {MPICH, "/usr/bin/mpiexec.hydra", 4},
		"intel":    {Intel, "/opt/intel/oneapi/mpi/latest/bin/mpiexec.hydra", 2021},
	} {
		t.Run(name, func(t *testing.T) {
			c := goldenPlan(l).Command()
			visible := strings.NewReplacer("\x01", "^A", "\x02", "^B")
			var b strings.Builder
			fmt.Fprintf(&b, "%s", c.Path)
			for _, a := range c.Args {
				sep := " "
				if strings.HasPrefix(a, "-") || a == ":" || a == "/bin/sh" {
					sep = " \\\n  "
				}
				fmt.Fprintf(&b, "%s%s", sep, Quote(visible.Replace(a)))
			}
			fmt.Fprintf(&b, "\n\n%s\n", strings.Join(c.Env, "\n"))
			golden(t, name+".golden", b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s: %v; got\n%s\nwant\n%s", path, err, got, want)
	}
}

// TestExportsWorkInAShell evaluates the lines, twice, and undoes them.
func TestExportsWorkInAShell(t *testing.T) {
	o := goldenPlan(Launcher{}).Overlay
	o.BinDir = "/opt/it's here"
	golden(t, "env.golden", Exports(o, false))
	script := Exports(o, false) + Exports(o, false) + "echo \"$PATH|$OMPI_MCA_btl_tcp_if_include|$HYDRA_IFACE\"\n" + Exports(o, true) + "echo \"$PATH|$OMPI_MCA_btl_tcp_if_include|$HYDRA_IFACE\"\n"
	cmd := osexec.Command("/bin/sh", "-ec", script)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	want := "/opt/it's here:/usr/bin:/bin|100.80.0.0/16|mesh0\n/usr/bin:/bin||\n"
	if err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

func TestParseAgent(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want AgentCall
		bad  bool
	}{
		{[]string{"b1", " orted", "-mca", "ess", `"env"`, "-l", "x"}, AgentCall{Host: "b1", Command: ` orted -mca ess "env" -l x`}, false},
		{[]string{"-x", "100.80.0.2", `"/usr/bin/hydra_pmi_proxy"`, "--control-port", "h:1"}, AgentCall{Host: "100.80.0.2", Command: `"/usr/bin/hydra_pmi_proxy" --control-port h:1`}, false},
		{[]string{"-n", "-q", "-l", "bob", "b1", "ls", "-n"}, AgentCall{Host: "b1", Login: "bob", NoStdin: true, Command: "ls -n"}, false},
		{[]string{"-nqT", "-lbob", "b1", "ls"}, AgentCall{Host: "b1", Login: "bob", NoStdin: true, Command: "ls"}, false},
		{[]string{"-l=bob", "b1", "ls"}, AgentCall{Host: "b1", Login: "bob", Command: "ls"}, false},
		{[]string{"--state=/s", "al@b1.x", "ls"}, AgentCall{Host: "b1.x", Login: "al", State: "/s", Command: "ls"}, false},
		{[]string{"--state", "/s", "--", "b1", "--", "ls"}, AgentCall{Host: "b1", State: "/s", Command: "-- ls"}, false},
		{[]string{"b1"}, AgentCall{}, true},
		{[]string{"-l"}, AgentCall{}, true},
		{[]string{"-Z", "b1", "ls"}, AgentCall{}, true},
		{[]string{"", "ls"}, AgentCall{}, true},
		{nil, AgentCall{}, true},
	} {
		got, err := ParseAgent(tt.args)
		if (err != nil) != tt.bad || !tt.bad && got != tt.want {
			t.Errorf("%q: got %+v, %v, want %+v", tt.args, got, err, tt.want)
		}
	}
}

func FuzzParseAgent(f *testing.F) {
	f.Add("-x\x00-l\x00u\x00host\x00cmd\x00-l")
	f.Add("--state=x\x00a@b\x00c")
	f.Fuzz(func(t *testing.T, s string) {
		args := strings.Split(s, "\x00")
		c, err := ParseAgent(args)
		if err == nil && (c.Host == "" || !strings.HasSuffix(strings.Join(args, " "), c.Command)) {
			t.Errorf("%q: got %+v", args, c)
		}
	})
}

// FuzzDemux feeds any bytes in any pieces: what comes out holds at most what
// went in, and unmarked whole lines unchanged.
func FuzzDemux(f *testing.F) {
	f.Add([]byte("\x010\x02a\x011\x02b\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, piece int) {
		for _, tag := range []tagger{untagged, hydraTag} {
			var whole, pieces []string
			one := newDemux(tag, func(r int, l []byte) { whole = append(whole, fmt.Sprint(r, string(l))) })
			one.Write(in)
			one.flush(true)
			many := newDemux(tag, func(r int, l []byte) { pieces = append(pieces, fmt.Sprint(r, string(l))) })
			for chunk := range slices.Chunk(in, max(1, piece%64)) {
				many.Write(chunk)
			}
			many.flush(true)
			slices.Sort(whole)
			slices.Sort(pieces)
			if !slices.Equal(whole, pieces) {
				t.Errorf("%q: %q at once, %q in pieces", in, whole, pieces)
			}
		}
	})
}

func TestScreenKeepsLinesApart(t *testing.T) {
	var out, errs strings.Builder
	s := newScreen(&out, &errs, false)
	d := newDemux(hydraTag, func(r int, l []byte) { s.line(1, r, l) })
	d.Write([]byte("\x010\x02half \x011\x02other\n\x010"))
	d.Write([]byte("\x02whole\nlauncher\n\x010\x02Enter n: "))
	d.flush(false)
	d.Write([]byte("\x011\x02x\n"))
	s.showOwn()
	if err := s.close(nil, false); err != nil {
		t.Error(err)
	}
	if got, want := out.String(), "other\nhalf whole\nEnter n: \nx\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := errs.String(), "launcher\n"; got != want {
		t.Errorf("the launcher's own: got %q, want %q", got, want)
	}
}

// TestDeathAfterHalfALine: what a rank has written last and not ended hides its death from
// nobody.
func TestDeathAfterHalfALine(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		var out, errs strings.Builder
		s := newScreen(&out, &errs, false)
		s.secret = jobSecret()
		d := newDemux(hydraTag, func(r int, l []byte) { s.line(2, r, l) })
		d.Write([]byte("\x012\x02bad input"))
		if flushed {
			d.flush(false)
		}
		d.Write([]byte("\x012\x02" + secretMark(s.secret) + "2 on b1 exited with code 3\n"))
		d.flush(false)
		if err := s.close(nil, false); err != nil {
			t.Error(err)
		}
		if got, want := errs.String(), "bad input\n"+deathMark+"2 on b1 exited with code 3\n"; got != want {
			t.Errorf("flushed %v: got %q, want %q", flushed, got, want)
		}
		if !s.death.seen || s.death.code != 3 {
			t.Errorf("flushed %v: the death is not noted: %v, code %d", flushed, s.death.seen, s.death.code)
		}
	}
}

func TestParseDeath(t *testing.T) {
	for line, want := range map[string]int{
		"meshrun: rank 2 on b1 exited with code 3\n":                           3,
		"meshrun: rank 2 on b1 was killed by signal 9 (SIGKILL)\r\n":           137,
		"meshrun: rank 0 on b1 found no program: x\n":                          127,
		"meshrun: rank 0 on b1 cannot execute: x\n":                            126,
		"meshrun: rank 0 on b1 cannot change to the working directory /x: y\n": 125,
		"meshrun: rank 0 on b1 else\n":                                         125,
	} {
		if code := parseDeath([]byte(line)); code != want {
			t.Errorf("%q: got %d, want %d", line, code, want)
		}
	}
}

func TestWhatOtherNodesGet(t *testing.T) {
	p := Plan{Environ: []string{"PATH=/bin", "HOME=/h", "MESH_LINKS=4", "MESH_NODE=a1", "MESH_ADDRESS=100.80.0.1", "MESH_STATE=/s", "PMI_FD=3", "FI_X=1", "OTHER=1", "MINE=2"}, Export: []string{"MINE", "NEW=x"}}
	with := p
	with.Overlay.BinDir, with.Export = "/opt/mesh", []string{"PATH=/mine"}
	if got := getenv(with.environ(), "PATH"); got != "/opt/mesh:/mine" {
		t.Errorf("with -x PATH=/mine the launcher looks for its agent in %s", got)
	}
	env := p.environ()
	for name, want := range map[string]bool{"MESH_LINKS": true, "FI_X": true, "MINE": true, "NEW": true, "OTHER": false, "HOME": false, "MESH_STATE": false, "MESH_NODE": false, "MESH_ADDRESS": false, "PMI_FD": false} {
		if got := slices.Contains(p.exported(env), name); got != want {
			t.Errorf("%s goes to other nodes: %t, want %t", name, got, want)
		}
	}
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); name == "PMI_FD" || name == "MESH_NODE" || name == "MESH_ADDRESS" {
			t.Errorf("the launcher gets %s", kv)
		}
	}
}
