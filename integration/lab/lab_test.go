package lab_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshmpi/meshmpi/integration/lab"
)

func TestMain(m *testing.M) {
	lab.Main()
	if os.Getenv(envVictim) != "" {
		victim()
		return
	}
	goleak.VerifyTestMain(m)
}

// soon bounds what a test waits for.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// run runs a program on a host and returns its output.
func run(t *testing.T, h *lab.Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Run(soon(t), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBringUpIsQuick(t *testing.T) {
	start := time.Now()
	l := lab.Start(t, lab.TwoSites(lab.PortPreserving))
	t.Logf("TwoSites took %v", time.Since(start))
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("TwoSites took %v, want less than 2s", took)
	}
	start = time.Now()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("Close took %v", time.Since(start))
}

func TestHostsAreMachines(t *testing.T) {
	lab.Need(t, "ps", "ip", "ping")
	l := lab.Start(t, lab.TwoSites(lab.PortPreserving))
	a1, a2, b1 := l.Host("a1"), l.Host("a2"), l.Host("b1")

	t.Run("names", func(t *testing.T) {
		if got := run(t, a1, "hostname"); got != "a1" {
			t.Errorf("hostname of a1 is %q", got)
		}
		if got := run(t, a1, "getent", "ahostsv4", "a1"); !strings.HasPrefix(got, a1.Addr4.String()) {
			t.Errorf("a1 finds itself at %q, want %v", got, a1.Addr4)
		}
	})
	t.Run("processes", func(t *testing.T) {
		d, err := a1.Start("sleep", "1000")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Kill)
		if n := strings.Count(run(t, a1, "ps", "-eo", "args"), "\n"); n != 3 { // heading, process 1, sleep, ps
			t.Errorf("a1 sees %d processes, want 3", n)
		}
		if got := run(t, a2, "ps", "-eo", "args"); strings.Contains(got, "sleep 1000") {
			t.Errorf("a2 sees the process of a1:\n%s", got)
		}
		procs, err := a1.Procs()
		if err != nil || len(procs) != 1 || strings.Join(procs[0].Args, " ") != "sleep 1000" {
			t.Errorf("Procs: got %v, %v; want the sleep alone", procs, err)
		}
	})
	t.Run("private files", func(t *testing.T) {
		machine, _ := os.ReadFile("/etc/resolv.conf")
		for _, f := range []string{"/dev/shm/x", "/run/x", "/etc/x", "/var/lib/x", "/var/lib/meshd/x"} {
			run(t, a1, "touch", f)
			if _, err := a2.Run(soon(t), "test", "!", "-e", f); err != nil {
				t.Errorf("a2 sees %s of a1", f)
			}
			if _, err := os.Stat(f); err == nil {
				t.Errorf("%s of a1 is the machine's", f)
			}
		}
		run(t, a1, "sh", "-c", "echo nameserver 127.0.0.9 >/etc/r && mv /etc/r /etc/resolv.conf")
		if got := run(t, a1, "cat", "/etc/resolv.conf"); got != "nameserver 127.0.0.9" {
			t.Errorf("resolv.conf of a1 after a rename: %q", got)
		}
		if got := run(t, a2, "cat", "/etc/resolv.conf"); got != "nameserver 192.168.12.1" {
			t.Errorf("resolv.conf of a2: %q", got)
		}
		if after, _ := os.ReadFile("/etc/resolv.conf"); string(after) != string(machine) {
			t.Error("the machine's resolv.conf has changed")
		}
	})
	t.Run("Open MPI's files", func(t *testing.T) {
		lab.Need(t, "ompi_info")
		value := func(param string) string {
			_, after, _ := strings.Cut(run(t, a1, "ompi_info", "--parsable", "--all", "--level", "9"), ":"+param+":value:")
			v, _, _ := strings.Cut(after, "\n")
			return v
		}
		machine, err := os.ReadFile("/etc/openmpi/openmpi-mca-params.conf")
		if err != nil {
			t.Skip(err)
		}
		if dir := value("orte_tmpdir_base"); dir != "/dev/shm" {
			t.Errorf("a job's files of a1 are in %q, want /dev/shm", dir)
		}
		if osc := value("osc"); !strings.Contains(string(machine), "osc = "+strings.Trim(osc, `"`)) {
			t.Errorf("on a1 osc is %s, which the machine does not say", osc)
		}
	})
	t.Run("interfaces", func(t *testing.T) {
		if got := run(t, a1, "ls", "/sys/class/net"); got != "eth0\nlo" {
			t.Errorf("/sys/class/net of a1 shows %q, want eth0 and lo", got)
		}
	})
	t.Run("reach", func(t *testing.T) {
		for _, c := range []struct {
			from *lab.Host
			to   string
			ok   bool
		}{
			{a1, a2.Addr4.String(), true}, {a1, "127.0.0.1", true}, {a1, l.Host("hub").Addr4.String(), true},
			{a1, b1.Addr4.String(), false}, {l.Host("hub"), a1.Addr4.String(), false},
		} {
			if _, err := c.from.Run(soon(t), "ping", "-c1", "-W1", c.to); (err == nil) != c.ok {
				t.Errorf("%s pings %s: %v, want success %v", c.from.Name, c.to, err, c.ok)
			}
		}
	})
}
