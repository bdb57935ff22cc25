package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// everywhere names one slot on each of the four machines.
const everywhere = "a1:1,a2:1,b1:1,b2:1"

// direct is the first act: everything, over direct pairs.
func direct(ctx context.Context, st *stage) error {
	out, err := st.run(ctx, "a1", "meshctl status")
	if err != nil {
		return err
	}
	st.text(out)
	if err := st.pairs(ctx, "udp"); err != nil {
		return err
	}
	return st.programs(ctx)
}

// relayed is the second: the same, where pairs cannot meet.
func relayed(ctx context.Context, st *stage) error {
	if err := st.pairs(ctx, "relay-udp"); err != nil {
		return err
	}
	return st.programs(ctx)
}

// programs runs the three MPI programs.
func (st *stage) programs(ctx context.Context) error {
	for _, f := range []func(context.Context) error{st.hpcc, st.netpipe, st.mpich} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hpccInput is a small problem: the demo shows that it runs, not how fast.
//
//go:embed hpccinf.txt
var hpccInput []byte

// hpcc runs Debian's HPC Challenge, an Open MPI program.
func (st *stage) hpcc(ctx context.Context) error {
	out := filepath.Join(st.work, "hpccoutf.txt")
	_ = os.Remove(out) // of the act before
	if err := os.WriteFile(filepath.Join(st.work, "hpccinf.txt"), hpccInput, 0o644); err != nil {
		return err
	}
	if text, err := st.run(ctx, "a1", "meshrun -n 4 -H "+everywhere+" -- hpcc"); err != nil {
		st.text(text)
		st.check(false, "hpcc ran: %v", err)
		return nil
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	var lines []string
	for _, key := range []string{"CommWorldProcs", "HPL_Tflops", "PTRANS_GBs", "MPIRandomAccess_GUPs", "MPIFFT_Gflops", "MaxPingPongLatency_usec", "MinPingPongBandwidth_GBytes", "Success"} {
		if m := regexp.MustCompile(`(?m)^` + key + `=\S+`).Find(b); m != nil {
			lines = append(lines, string(m))
		}
	}
	st.text(strings.Join(lines, "\n"))
	good := strings.Contains(string(b), "\nSuccess=1") && strings.Contains(string(b), "CommWorldProcs=4") && !strings.Contains(string(b), "FAILED")
	st.check(good, "hpcc (Open MPI, 4 ranks on 4 machines) passed its own tests")
	return nil
}

var npLine = regexp.MustCompile(`(?m)^\s*\d+:\s+(\d+) bytes\s+\d+ times -->\s+([\d.]+) Mbps in\s+([\d.]+) usec`)

// netpipe runs Debian's NetPIPE between the sites.
func (st *stage) netpipe(ctx context.Context) error {
	text, err := st.run(ctx, "a1", "meshrun -n 2 -H a1:1,b1:1 -- NPopenmpi -u 1048576 -n 5 -p 0")
	m := npLine.FindAllStringSubmatch(text, -1)
	if err != nil || len(m) < 2 {
		st.text(text)
		st.check(false, "NetPIPE ran: %v", err)
		return nil
	}
	first, last := m[0], m[len(m)-1]
	st.check(true, "NetPIPE a1–b1: %s byte in %s µs one way, %s bytes at %s Mb/s", first[1], first[3], last[1], last[2])
	return nil
}

// mpich runs a C program that MPICH's compiler built, by meshrun and by the
// user's own mpiexec.
func (st *stage) mpich(ctx context.Context) error {
	if err := st.compile("hello", "mpich"); err != nil {
		return err
	}
	for _, line := range []string{
		"meshrun -n 4 -H " + everywhere + " -- ./hello-mpich",
		`eval "$(meshctl env)"; mpiexec.hydra -n 4 -hosts a1,a2,b1,b2 ./hello-mpich`,
	} {
		text, err := st.run(ctx, "a1", line)
		st.text(text)
		st.check(err == nil && strings.Count(text, "of 4 on") == 4 && strings.Count(text, "sum 10") == 4,
			"an MPICH program ran on 4 machines: %s", strings.Fields(line)[0])
	}
	return nil
}

var exchanged = regexp.MustCompile(`exchanged (\d+) worst_ms (\d+)`)

// hubDies is the third act.
func hubDies(ctx context.Context, st *stage) error {
	if _, err := st.net.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
		return err
	}
	if err := st.compile("stream", "openmpi"); err != nil {
		return err
	}
	type result struct {
		text string
		err  error
	}
	job := make(chan result, 1)
	const line = "meshrun -n 2 -H a1:1,b1:1 -- ./stream-openmpi 8"
	st.command("a1", line+"    # exchanges 64 KiB messages for 8 s and checks every byte")
	go func() { // ends with the job
		text, err := st.quiet(ctx, "a1", line)
		job <- result{text, err}
	}()
	select {
	case <-time.After(4 * time.Second): // the job is in its middle
	case <-ctx.Done():
		return ctx.Err()
	}
	st.command("hub", "kill -9 $(pidof meshd)")
	st.net.Kill("hub")
	r := <-job
	m := exchanged.FindStringSubmatch(r.text)
	if r.err != nil || m == nil {
		st.text(r.text)
		st.check(false, "the job went on without the hub: %v", r.err)
		return nil
	}
	ms, err := strconv.Atoi(m[2])
	if err != nil {
		return fmt.Errorf("stream said %q: %w", m[0], err)
	}
	st.check(ms < 1000, "the job went on without the hub: %s exchanges, the longest took %d ms", m[1], ms)
	p, err := st.net.AwaitPath(ctx, "a2", "b2", "udp", 5*time.Second)
	if err != nil { // they had not met before, and nobody can introduce them now
		st.note("a2 and b2 had not met; they have no path until a hub is back")
	} else {
		st.note("a2 to b2: %s", p.Kind)
	}
	text, err := st.run(ctx, "a1", "meshrun -n 2 -H a1:1,b1:1 -- ./stream-openmpi 1")
	st.check(err == nil && exchanged.MatchString(text), "nodes that know each other start new jobs without the hub")
	return nil
}
