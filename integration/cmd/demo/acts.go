package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// direct is the first act: everything, over direct pairs.
func direct(ctx context.Context, st *stage) error { return st.everything(ctx, "udp") }

// relayed is the second: the same, where the sites cannot meet.
func relayed(ctx context.Context, st *stage) error { return st.everything(ctx, "relay-udp") }

func (st *stage) everything(ctx context.Context, across string) error {
	st.pairs(ctx, across)
	out, err := st.run(ctx, "a1", "meshctl status")
	if err != nil {
		return err
	}
	st.text(out)
	return st.jobs(ctx)
}

// maxStall is the longest that one exchange of a running job may take when the
// hub dies.
const maxStall = time.Second

// hubDies is the third act.
func hubDies(ctx context.Context, st *stage) error {
	st.pairs(ctx, "udp")
	for _, name := range []string{"stream", "hello"} {
		if err := st.compile(name, "openmpi"); err != nil {
			return err
		}
	}
	if err := st.streamOn(ctx); err != nil {
		return err
	}
	return st.carryOn(ctx)
}

// streamOn kills the hub while a job runs.
func (st *stage) streamOn(ctx context.Context) error {
	const line = "meshrun -n 2 -H a1:1,b1:1 -- ./stream-openmpi 8"
	st.command("a1", line+" &  # exchanges 64 KiB messages for 8 s, checks every byte")
	ctx, cancel := context.WithCancel(ctx)
	j := st.start(ctx, "a1", line)
	defer func() { cancel(); <-j.done }()
	err := deploy.Until(ctx, 15*time.Second, "the job runs", func() (bool, error) { return j.runs("stream-openmpi") })
	if err != nil {
		return err
	}
	select {
	case <-time.After(3 * time.Second): // the job is in its middle
	case <-ctx.Done():
		return ctx.Err()
	}
	st.command("hub", "kill -9 $(pidof meshd)")
	st.net.Kill("hub")
	if running, err := j.runs("stream-openmpi"); err != nil || !running {
		return fmt.Errorf("the job did not run any more when the hub was killed: %v", err)
	}
	wait := st.working()
	<-j.done
	wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	st.text(lastLines(j.text, 3))
	exchanges, stall, err := parseStream(j.text)
	if j.err != nil {
		err = j.err
	}
	if err != nil {
		st.check(false, "the job went on without the hub: %v", err)
		return nil
	}
	st.check(stall < maxStall, "the job went on without the hub: %d exchanges, every byte right, the longest took %d ms", exchanges, stall.Milliseconds())
	st.figure(figStall, "%d ms", stall.Milliseconds())
	return nil
}

// job is a command line that runs while other things happen.
type job struct {
	host *lab.Host
	done chan struct{} // closed when it has ended; then text and err hold
	text string
	err  error
}

// start starts a command line on a host. The job ends by itself, or with ctx.
func (st *stage) start(ctx context.Context, host, line string) *job {
	j := &job{host: st.net.Lab.Host(host), done: make(chan struct{})}
	go func() { // ends with the job, which whoever started it awaits
		defer close(j.done)
		j.text, j.err = st.quiet(ctx, host, line, jobTime)
	}()
	return j
}

// runs reports whether the job's host runs a program; that the job has ended is
// an error.
func (j *job) runs(program string) (bool, error) {
	select {
	case <-j.done:
		return false, fmt.Errorf("the job has ended: %v: %s", j.err, lastLines(j.text, 1))
	default:
	}
	procs, err := j.host.Procs()
	for _, p := range procs {
		if strings.HasSuffix(p.Args[0], "/"+program) {
			return true, err
		}
	}
	return false, err
}

var streamRE = regexp.MustCompile(`(?m)^exchanged (\d+) worst_ms (\d+)$`)

// parseStream reads what stream printed: how many exchanges there were, and how
// long the longest took.
func parseStream(text string) (exchanges int, worst time.Duration, err error) {
	m := streamRE.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, fmt.Errorf("stream printed no result: %s", lastLines(text, 1))
	}
	if exchanges, err = strconv.Atoi(m[1]); err != nil {
		return 0, 0, err
	}
	ms, err := strconv.Atoi(m[2])
	return exchanges, time.Duration(ms) * time.Millisecond, err
}

// carryOn shows that those who know each other need no hub: names, paths, new
// jobs; and that status says what is missing.
func (st *stage) carryOn(ctx context.Context) error {
	var survivors []string
	for _, h := range st.net.Lab.Hosts() {
		if h != st.net.Hub {
			survivors = append(survivors, h.Name)
		}
	}
	answered, first := 0, ""
	for _, from := range survivors {
		for _, to := range survivors {
			if from == to {
				continue
			}
			if _, err := st.ping(ctx, st.net.Lab.Host(from), to); err == nil {
				answered++
			} else if first == "" {
				first = fmt.Sprintf("; %s to %s: %v", from, to, err)
			}
		}
	}
	all := len(survivors) * (len(survivors) - 1)
	st.check(answered == all, "%d of %d pings by name among %s answered%s", answered, all, strings.Join(survivors, ", "), first)

	st.hello(ctx, "a new job started on 4 machines without the hub", "meshrun -n 4 -H "+everywhere+" -- ./hello-openmpi")

	out, err := st.run(ctx, "a1", "meshctl status")
	if err != nil {
		return err
	}
	st.text(out)
	s, err := st.net.Status(ctx, "a1")
	if err != nil {
		return err
	}
	said := slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "no hub answers") })
	st.check(said, "meshctl status says that no hub answers")
	return nil
}
