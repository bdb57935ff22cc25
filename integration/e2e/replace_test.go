package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestReplacement kills a rank of a job over two sites, and has another process take
// its place: by Spawn and Merge, and by the name under which it is found.
func TestReplacement(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	prog := goProgram(t, "../programs/go/replace")
	for _, tc := range []struct {
		args string
		says []string // a line each, as a pattern
	}{
		{"-by spawn -kill 2", []string{
			"rank 0 of 4 on a1: 20 steps, sum 6", "rank 1 of 4 on a2: 20 steps, sum 6", "rank 2 of 4 on b1: 20 steps, sum 6", "rank 3 of 4 on b2: 20 steps, sum 6",
		}},
		{"-by spawn -kill 0", []string{
			"rank 0 of 4 on a1: 20 steps, sum 6", "rank 1 of 4 on a2: 20 steps, sum 6", "rank 2 of 4 on b1: 20 steps, sum 6", "rank 3 of 4 on b2: 20 steps, sum 6",
		}},
		{"-by name -kill 3", []string{
			`rank 0 on a1 was served by b2, pid \d+, then by b2, pid \d+`, `rank 1 on a2 was served by b2, pid \d+, then by b2, pid \d+`,
			`rank 2 on b1 was served by b2, pid \d+, then by b2, pid \d+`,
		}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			began := time.Now()
			code, out, errs := try(ctx, t, n, "a1", "meshrun -n 4 -H a1:1,a2:1,b1:1,b2:1 --ft "+prog+" "+tc.args)
			if code != 0 || !strings.Contains(errs, "killed by signal 9 (SIGKILL); the job goes on") || strings.Contains(errs, "\n") || strings.Count(out, "\n") != len(tc.says) {
				t.Errorf("code %d, want 0, a line about a death and %d lines:\n%s%s", code, len(tc.says), out, errs)
			}
			for _, line := range tc.says {
				if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(out) {
					t.Errorf("no line %q in:\n%s", line, out)
				}
			}
			if m := regexp.MustCompile(`by b2, pid (\d+), then by b2, pid (\d+)`).FindStringSubmatch(out); m != nil && m[1] == m[2] {
				t.Errorf("the same process served twice: %s", m[1])
			}
			t.Logf("%v\n%s%s", time.Since(began).Round(time.Millisecond), out, errs)
		})
	}
}
