package lab

import (
	"context"
	"errors"
	"os/exec"
	"testing"
)

// TestAgent runs a command on another host, as mpirun does.
func TestAgent(t *testing.T) {
	Need(t, "bash")
	l := Start(t, OneLAN())
	a, err := l.Host("a1").StartAgent(t.Context(), t.TempDir(), func(ctx context.Context, host, line string) *Cmd {
		h, err := l.FindHost(host)
		if err != nil {
			return nil
		}
		return h.Command(ctx, "/bin/sh", "-c", line)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, tc := range []struct {
		host, command string
		code          int
		out           string
	}{
		{"a2", `hostname; echo "two  words" >&2; exit 3`, 3, "a2\ntwo  words"},
		{"a3", "hostname", 255, ""},
	} {
		out, err := l.Host("a1").Run(t.Context(), a.Script, tc.host, tc.command)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != tc.code || out != tc.out {
			t.Errorf("%s: got %q, %v", tc.host, out, err)
		}
	}
}
