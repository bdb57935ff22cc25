package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// envMain makes this test binary the command.
const envMain = "MESHMPI_LAB_TEST_MAIN"

func TestMain(m *testing.M) {
	lab.PlayRole()
	if os.Getenv(envMain) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// script runs a shell script beside a lab; the script calls the command $lab.
func script(t *testing.T, text string) (out string, code int) {
	t.Helper()
	lab.Need(t, "nft", "ping")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "--name", t.Name(), "up", "--delay", "1ms", "--", "sh", "-ec", text)
	cmd.Env = append(os.Environ(), envMain+"=1", "lab="+self, "GORACE=atexit_sleep_ms=0")
	b, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b)), cmd.ProcessState.ExitCode()
}

func TestRunPassesStreamsAndCodes(t *testing.T) {
	out, code := script(t, `echo in | $lab run a1 -- sh -c 'cat; hostname; exit 3'`)
	if out != "in\na1" || code != 3 {
		t.Errorf("got %q, exit code %d; want in, a1, 3", out, code)
	}
}

func TestRunPassesSignals(t *testing.T) {
	out, code := script(t, `$lab run a1 -- sh -c 'trap "echo heard; exit 5" TERM; echo $$; sleep 100 & wait' >/tmp/$MESHMPI_LAB.$$ &
		run=$!
		until [ -s /tmp/$MESHMPI_LAB.$$ ]; do sleep 0.01; done
		kill -TERM $run; wait $run || code=$?
		grep heard /tmp/$MESHMPI_LAB.$$; rm /tmp/$MESHMPI_LAB.$$
		exit $code`)
	if out != "heard" || code != 5 {
		t.Errorf("got %q, exit code %d; want heard, 5", out, code)
	}
}

func TestChangesShow(t *testing.T) {
	out, code := script(t, `$lab nat alpha symmetric >/dev/null; $lab wan beta --rate 20 --loss 1 >/dev/null
		$lab run a1 -- ping -c1 -W2 198.18.101.10 >/dev/null
		$lab fail off b2 >/dev/null; $lab show`)
	for _, want := range []string{"symmetric", "1ms each way", "20 Mb/s 1 % lost each way", "(off)"} {
		if !strings.Contains(out, want) {
			t.Errorf("the picture lacks %q:\n%s", want, out)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	for _, args := range []string{"nat gamma symmetric", "nat alpha upnp", "fail off z9", "wan alpha --loss 200", "nat hubs double"} {
		out, code := script(t, "$lab "+args)
		if code != 1 || out == "" || strings.Contains(out, "\n") || strings.HasPrefix(out, "core") {
			t.Errorf("lab %s: exit code %d, %q; want 1 and one line", args, code, out)
		}
	}
}
