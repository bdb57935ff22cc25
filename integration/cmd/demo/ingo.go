package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/meshmpi/meshmpi/integration/programs"
)

// inGo is the fourth act: the examples of package mpi.
func inGo(ctx context.Context, st *stage) error {
	st.pairs(ctx, "udp")
	for _, name := range []string{"heat", "sort", "farm"} {
		st.command("a1", "go build ./mpi/examples/"+name)
		if _, err := programs.Example(ctx, st.home, name); err != nil {
			return err
		}
	}
	for _, f := range []func(context.Context) error{st.heat, st.sort, st.farm} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// example runs one of them, and returns the parts of the line that it is to print;
// nil, and a failed check, if it did not. out is all that it printed.
func (st *stage) example(ctx context.Context, line string, want *regexp.Regexp) (parts []string, out string, took time.Duration) {
	began := time.Now()
	out, err := st.run(ctx, "a1", line)
	took = time.Since(began)
	if ctx.Err() != nil {
		return nil, out, took
	}
	st.text(lastLines(out, 5))
	parts = want.FindStringSubmatch(out)
	if err == nil && parts == nil {
		err = errors.New("it printed no result")
	}
	if err != nil {
		st.check(false, "%s ran to its end: %v", line, err)
		return nil, out, took
	}
	return parts, out, took
}

// heatRE are a line of heat's: ranks along each edge, mean and last change.
var heatRE = regexp.MustCompile(`(?m)^heat: \d+ × \d+ points on (\d+ × \d+) ranks, \d+ steps in \S+: (mean \S+, last change \S+)$`)

// heat computes the same on one machine and on four.
func (st *stage) heat(ctx context.Context) error {
	one, _, _ := st.example(ctx, "./heat", heatRE)
	four, _, took := st.example(ctx, "meshrun -n 4 -H "+everywhere+" -- ./heat", heatRE)
	if one == nil || four == nil {
		return ctx.Err()
	}
	st.check(one[2] == four[2] && four[1] == "2 × 2", "heat on %s ranks over both sites has the result of one rank, %s, in %.1f s", four[1], four[2], took.Seconds())
	st.figure(figHeat, "%.1f s", took.Seconds())
	return nil
}

var sortRE = regexp.MustCompile(`(?m)^sort: (\d+) numbers on 4 ranks in \S+, in order; `)

// sort sorts numbers that are spread over both sites. The program checks the order.
func (st *stage) sort(ctx context.Context) error {
	got, _, took := st.example(ctx, "meshrun -n 4 -H "+everywhere+" -- ./sort", sortRE)
	if got == nil {
		return ctx.Err()
	}
	st.check(got[1] == "4000000", "%s numbers on 4 machines are in order after %.1f s", got[1], took.Seconds())
	st.figure(figSort, "%.1f s", took.Seconds())
	return nil
}

// primes is how many there are up to farmLast.
const (
	farmLast = 4_000_000
	primes   = "283146"
)

var (
	farmRE  = regexp.MustCompile(`(?m)^farm: (\d+) primes up to \d+, 200 tasks, 3 workers of which (\d) died`)
	deathRE = regexp.MustCompile(`(?m)^meshrun: rank 3 on b2 .* was killed by signal 9 \(SIGKILL\); the job goes on$`)
)

// farm has a worker of the task farm killed.
func (st *stage) farm(ctx context.Context) error {
	line := fmt.Sprintf("meshrun --ft -n 4 -H %s -- ./farm -last %d -kill 3", everywhere, farmLast)
	got, out, took := st.example(ctx, line, farmRE)
	if got == nil {
		return ctx.Err()
	}
	st.check(deathRE.MatchString(out) && got[2] == "1", "a worker of the farm was killed, and the job went on")
	st.check(got[1] == primes, "its task was done by another: %s primes up to %d, as there are, in %.1f s", got[1], farmLast, took.Seconds())
	st.figure(figFarm, "%.1f s", took.Seconds())
	return nil
}
