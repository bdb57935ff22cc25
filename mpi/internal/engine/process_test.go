//go:build linux

package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes the test binary one process of two: the other, number 1,
// which does what the role says.
const roleVariable = "MESHMPI_ENGINE_ROLE"

// What number 1 does with a message by its tag.
const (
	tagEcho int32 = iota + 1 // sends it back
	tagSink                  // takes it, and sends one byte back
	tagUsed                  // sends back the processor time it has used, in ns
	tagDie                   // kills itself
	tagEnd                   // leaves in order
)

// playRole reports whether this is the other process, after it has ended.
func playRole() bool {
	kind := os.Getenv(roleVariable)
	if kind == "" {
		return false
	}
	if err := answer(kind); err != nil {
		fmt.Fprintln(os.Stderr, "the other process:", err)
		os.Exit(1)
	}
	return true
}

// answer answers messages until it is told to end.
func answer(kind string) error {
	cfg := kindConfig(kind)
	cfg.Self = 1
	var its []byte
	cfg.Resolve = func(context.Context, Proc) ([]byte, error) { return its, nil }
	e, err := New(cfg)
	if err != nil {
		return err
	}
	fmt.Println(string(e.Card()))
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	its = []byte(strings.TrimSpace(line))
	e.OpenContext(world, []Proc{0, 1})
	if err := e.Start(context.Background()); err != nil {
		return err
	}
	buf := make([]byte, 8<<20)
	in1, out := RecvArgs{From: 0, Context: world, Tag: AnyTag, Buf: buf}, SendArgs{To: 0, Context: world}
	for {
		st, err := e.Recv(&in1)
		if err != nil {
			return err
		}
		out.Tag, out.Data = st.Tag, buf[:st.Bytes]
		switch st.Tag {
		case tagSink:
			out.Data = buf[:1]
		case tagUsed:
			out.Data = fmt.Append(nil, int64(usedTime()))
		case tagDie:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case tagEnd:
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return e.Close(ctx)
		}
		if err := e.Send(&out); err != nil {
			return err
		}
	}
}

func usedTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func kindConfig(kind string) Config {
	cfg := Config{Size: 2, Job: []byte("job"), Addresses: []string{"127.0.0.1"}}
	switch kind {
	case "shared":
		cfg.SharedMemory = true
	case "tcp/4":
		cfg.Links = 4
	}
	return cfg
}

var processKinds = []string{"shared", "tcp", "tcp/4"}

// twoProcesses starts another process and returns the engine of this one.
func twoProcesses(t testing.TB, kind string, adapt ...func(*Config)) (*Engine, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+kind)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	its, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	cfg := kindConfig(kind)
	for _, f := range adapt {
		f(&cfg)
	}
	cfg.Resolve = func(context.Context, Proc) ([]byte, error) { return []byte(strings.TrimSpace(its)), nil }
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(stdin, string(e.Card())); err != nil {
		t.Fatal(err)
	}
	e.OpenContext(world, []Proc{0, 1})
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.Send(&SendArgs{To: 1, Context: world, Tag: tagEnd}) // it may have died
		closeAll(t, []*Engine{e})
		if err := cmd.Wait(); err != nil && !t.Failed() && cmd.ProcessState.Exited() {
			t.Errorf("the other process: %v", err)
		}
	})
	return e, cmd
}

func TestProcesses(t *testing.T) {
	for _, kind := range processKinds {
		t.Run(kind, func(t *testing.T) {
			e, _ := twoProcesses(t, kind)
			if kind == "shared" {
				send(t, e, 1, tagEcho, nil)
				recv(t, e, 1, tagEcho, 0)
				if w, ok := e.peers[1].conns[0].wire.(*sharedWire); !ok || !w.reads {
					t.Errorf("got a link of type %T, reading across: %v", e.peers[1].conns[0].wire, ok)
				}
			}
			for k, n := range append(sizes, 5_000_001) {
				want := pattern(n, k)
				out := isend(t, e, 1, tagEcho, want)
				if got, _ := recv(t, e, 1, tagEcho, n); string(got) != string(want) {
					t.Errorf("%d bytes: other contents", n)
				}
				wait(t, e, out)
			}
		})
	}
}

// TestProcessDies notices the death of a process that was waited for.
func TestProcessDies(t *testing.T) {
	for _, kind := range processKinds {
		t.Run(kind, func(t *testing.T) {
			told := make(chan Proc, 1)
			e, _ := twoProcesses(t, kind, func(c *Config) { c.OnFailure = func(p Proc, _ error) { told <- p } })
			in := irecv(t, e, 1, 0, make([]byte, 1))
			send(t, e, 1, tagDie, nil)
			if _, err := e.Wait(in); !errors.Is(err, errPeerClosed) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %v", err)
			}
			if p := <-told; p != 1 {
				t.Errorf("told of %d", p)
			}
		})
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, kind := range processKinds {
		for _, n := range []int{1, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				e, _ := twoProcesses(b, kind)
				buf := make([]byte, n)
				out := SendArgs{To: 1, Context: world, Tag: tagEcho, Data: buf}
				in := RecvArgs{From: 1, Context: world, Tag: tagEcho, Buf: buf}
				pingPong(b, e, &out, &in)
				pingPong(b, e, &out, &in)
				b.ReportAllocs()
				batch, best, start := max(1, 64<<10/(n+1)>>6), time.Duration(1<<62), time.Now()
				for i := 1; b.Loop(); i++ {
					pingPong(b, e, &out, &in)
					if i%batch == 0 {
						now := time.Now()
						best, start = min(best, now.Sub(start)/time.Duration(batch)), now
					}
				}
				b.ReportMetric(float64(best)/2, "best-ns/way") // others use this machine as well
				b.ReportMetric(float64(n)*16/float64(best), "best-Gb/s")
				way := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / 2
				b.ReportMetric(way, "ns/way")
				b.ReportMetric(float64(n)*8/way, "Gb/s")
			})
		}
	}
}

func pingPong(t testing.TB, e *Engine, out *SendArgs, in *RecvArgs) {
	if err := e.Send(out); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Recv(in); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkStream measures how fast large messages go one way.
func BenchmarkStream(b *testing.B) {
	for _, kind := range processKinds {
		b.Run(kind, func(b *testing.B) {
			e, _ := twoProcesses(b, kind)
			buf := make([]byte, 4<<20)
			out := SendArgs{To: 1, Context: world, Tag: tagSink, Data: buf}
			in := RecvArgs{From: 1, Context: world, Tag: tagSink, Buf: make([]byte, 1)}
			pingPong(b, e, &out, &in)
			b.SetBytes(4 << 20)
			for b.Loop() {
				pingPong(b, e, &out, &in)
			}
		})
	}
}

// BenchmarkIdle measures what a process uses that waits in a receive.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range processKinds {
		b.Run(kind, func(b *testing.B) {
			e, _ := twoProcesses(b, kind)
			used := func() int64 {
				send(b, e, 1, tagUsed, nil)
				s, _ := recv(b, e, 1, tagUsed, 32)
				var n int64
				_, _ = fmt.Sscan(string(s), &n)
				return n
			}
			for b.Loop() {
				start, at := used(), time.Now()
				time.Sleep(500 * time.Millisecond)
				b.ReportMetric(100*float64(used()-start)/float64(time.Since(at)), "%core")
			}
		})
	}
}
