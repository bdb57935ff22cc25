package mpishim

import (
	"strings"
	"testing"
)

// TestGoJobsSurvivorsAreHeard: when a rank's death ends the job, what the others say in
// the two seconds that they have is shown.
func TestGoJobsSurvivorsAreHeard(t *testing.T) {
	p := goPlan(t, "/bin/sh", "-c", `case $PMI_RANK in
1) trap 'i=0; while [ $i -lt 60 ]; do echo line $i; sleep 0.01; i=$((i+1)); done; exit 0' TERM; sleep 4242 & wait;;
2) sleep 1; exit 3;; esac`)
	cmd, out, errs := job(t, p)
	cmd.Run()
	if got := strings.Count(out.String(), "line"); got != 60 || exitCode(cmd) != 3 {
		t.Errorf("got %d lines of 60, %q, code %d", got, errs, exitCode(cmd))
	}
}
