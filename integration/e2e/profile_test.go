package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// profileDoc is what is read of profile.json.
type profileDoc struct {
	Version int
	Ranks   []struct {
		Node            int
		Recorded, Ended bool
	}
	Nodes []struct{ Name, Site string }
	Pairs []struct {
		From, To       int
		InMessages     uint64 `json:"in_messages"`
		InCollectives  uint64 `json:"in_collectives"`
		MessagesNumber uint64 `json:"messages"`
	}
	Pattern   struct{ Name string }
	Placement *struct{ Hosts string }
}

// TestProfile profiles jobs of each MPI over two sites: the pattern is named, the
// matrix is right to the byte, and ranks dealt out badly are to move.
func TestProfile(t *testing.T) {
	lab.Need(t, "mpirun.openmpi", "mpiexec.hydra")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	must(ctx, t, n, "hub", "meshctl site set alpha --up 100Mb/s")
	must(ctx, t, n, "hub", "meshctl site set beta --up 100Mb/s")
	inGo, err := programs.Build(ctx, bin, "traffic")
	if err != nil {
		t.Fatal(err)
	}
	const bytes, rounds = 10000, 30
	inOrder, inTurn := "a1:1,a2:1,b1:1,b2:1", "a1:1,b1:1,a2:1,b2:1"
	alltoall := func(i, j int) (messages, collective uint64) { return 0, bytes * rounds }
	ring := func(i, j int) (messages, collective uint64) {
		if j == (i+1)%4 {
			return bytes * rounds, 0
		}
		if j == (i+3)%4 {
			return rounds, 0
		}
		return 0, 0
	}
	for _, tt := range []struct {
		prog, mode, hosts string
		code              int
		pattern           string
		says              []string
		bytes             func(i, j int) (uint64, uint64)
	}{
		{compiled(t, "traffic", "openmpi"), "alltoall", inOrder, 0, "all-to-all", []string{"pacing: --pattern alltoall, or --matb 50Mb/s"}, alltoall},
		{compiled(t, "traffic", "mpich"), "alltoall", inTurn, 0, "all-to-all", []string{"2.4 MB of it between sites"}, alltoall},
		{inGo, "alltoall", inOrder, 0, "all-to-all", []string{"pacing: --pattern alltoall"}, alltoall},
		{compiled(t, "traffic", "openmpi"), "ring", inTurn, 0, "ring", []string{"placement: -H " + inOrder + " would send 600 kB between sites instead of 1.2 MB (50 % less)"}, ring},
		{compiled(t, "traffic", "mpich"), "ring", inTurn, 0, "ring", []string{"placement: -H " + inOrder, "pacing: --matb 50Mb/s"}, ring},
		{inGo, "ring", inTurn, 0, "ring", []string{"placement: -H " + inOrder}, ring},
		{compiled(t, "traffic", "openmpi"), "die", inOrder, 3, "ring", []string{"ended before MPI_Finalize"}, ring},
	} {
		name := filepath.Base(tt.prog) + "/" + tt.mode
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
			defer cancel()
			dir := filepath.Join(t.TempDir(), "profile")
			line := fmt.Sprintf("meshrun -n 4 -H %s --profile %s -- %s %s %d %d", tt.hosts, dir, tt.prog, tt.mode, bytes, rounds)
			code, out, says := try(ctx, t, n, "a1", line)
			if code != tt.code || tt.code == 0 && strings.TrimSpace(out) != "done" {
				t.Fatalf("code %d, output %q\n%s", code, out, says)
			}
			t.Log(says)
			for _, s := range append(tt.says, "pattern: "+tt.pattern) {
				if !strings.Contains(says, s) {
					t.Errorf("no %q in:\n%s", s, says)
				}
			}
			if strings.Contains(says, "placement") != (tt.mode == "ring") {
				t.Errorf("advice on placement:\n%s", says)
			}
			wantProfile(t, dir, tt.hosts, tt.pattern, tt.code == 0, tt.bytes)
		})
	}
	for _, host := range []string{"a1", "a2", "b1", "b2"} {
		if left := must(ctx, t, n, host, "ls -d /dev/shm/meshrun-profile-*-"+host+" 2>/dev/null || true"); left != "" {
			t.Errorf("%s is left on %s", left, host)
		}
	}
}

// wantProfile reads what a profile has written.
func wantProfile(t *testing.T, dir, hosts, pattern string, ended bool, bytes func(i, j int) (uint64, uint64)) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "profile.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc profileDoc
	if err := json.Unmarshal(raw, &doc); err != nil || doc.Version != 1 || doc.Pattern.Name != pattern || len(doc.Ranks) != 4 {
		t.Fatalf("%v: %.2000s", err, raw)
	}
	for i, place := range strings.Split(hosts, ",") {
		r := doc.Ranks[i]
		if got := doc.Nodes[r.Node].Name + ":1"; got != place || !r.Recorded || ended && !r.Ended {
			t.Errorf("rank %d: %+v on %s, want %s", i, r, got, place)
		}
	}
	var got [4][4][2]uint64
	for _, p := range doc.Pairs {
		got[p.From][p.To] = [2]uint64{p.InMessages, p.InCollectives}
	}
	for i := range 4 {
		for j := range 4 {
			m, c := bytes(i, j)
			if want := [2]uint64{m, c}; i != j && got[i][j] != want {
				t.Errorf("rank %d to %d: %d bytes in messages and collectives, want %d", i, j, got[i][j], want)
			}
		}
	}
	for _, name := range []string{"report.txt", "matrix.svg", "timeline.svg"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(b) < 500 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}
