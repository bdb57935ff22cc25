package pmi

import (
	"context"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a server and what its launcher was told.
type job struct {
	srv  *Server
	addr string

	mu      sync.Mutex
	notices []Notice
	news    chan Notice
}

// serve runs a server for the length of the test.
func serve(t *testing.T, cfg Config) *job {
	t.Helper()
	j := &job{news: make(chan Notice, 64)}
	cfg.Notice = func(n Notice) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.notices = append(j.notices, n)
		j.news <- n
	}
	var err error
	if j.srv, err = NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := j.srv.Serve(ctx, ln); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); run.Wait() })
	return j
}

// env makes an environment of names and values in turn.
func env(keyvals ...string) environ {
	return func(name string) string {
		for i := 0; i+1 < len(keyvals); i += 2 {
			if keyvals[i] == name {
				return keyvals[i+1]
			}
		}
		return ""
	}
}

// dial connects rank to j over TCP.
func (j *job) dial(t *testing.T, rank int) *Client {
	t.Helper()
	c, err := Dial(limited(t), env("PMI_PORT", j.addr, "PMI_ID", itoa(rank), EnvKey, j.srv.cfg.Key))
	if err != nil {
		t.Fatalf("rank %d: %v", rank, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (j *job) dialAll(t *testing.T) []*Client {
	t.Helper()
	var list []*Client
	for r := range j.srv.cfg.Size {
		list = append(list, j.dial(t, r))
	}
	return list
}

// await returns the next notice to the launcher.
func (j *job) await(t *testing.T) Notice {
	t.Helper()
	select {
	case n := <-j.news:
		return n
	case <-limited(t).Done():
		t.Fatal("the launcher is told nothing")
		return Notice{}
	}
}

// limited ends with the test, or if it hangs.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// each runs f for all clients at the same time.
func each(t *testing.T, list []*Client, f func(c *Client) error) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range list {
		all.Go(func() {
			if err := f(c); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	all.Wait()
}

// buildProbe compiles testdata/probe.
func buildProbe(t *testing.T) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "probe")
	if out, err := osexec.Command("go", "build", "-o", prog, "./testdata/probe").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return prog
}

// launcher finds somebody's launcher, or skips the test.
func launcher(t *testing.T, name string) string {
	t.Helper()
	path, err := osexec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// withEnv returns our environment with more in it.
func withEnv(keyvals ...string) []string { return append(os.Environ(), keyvals...) }

// inside waits until n ranks are in the barrier.
func (j *job) inside(n int) {
	for in := 0; in < n; {
		j.srv.mu.Lock()
		in = j.srv.inside
		j.srv.mu.Unlock()
	}
}
