package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// what is one thing that the programs pp and colls measure.
type what struct {
	name  string
	bytes int
}

// figure is what they print of it.
type figure struct{ mean, worst, mbps float64 } // µs, µs in the 99.9th percentile, Mb/s

// parseFigures reads their lines, "NAME BYTES MEAN_US P999_US MBPS". Other lines are
// the launcher's.
func parseFigures(out string) map[what]figure {
	all := map[what]figure{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 5 {
			continue
		}
		bytes, err1 := strconv.Atoi(f[1])
		mean, err2 := strconv.ParseFloat(f[2], 64)
		worst, err3 := strconv.ParseFloat(f[3], 64)
		mbps, err4 := strconv.ParseFloat(f[4], 64)
		if errors.Join(err1, err2, err3, err4) == nil && mean > 0 {
			all[what{f[0], bytes}] = figure{mean, worst, mbps}
		}
	}
	return all
}

// parseAllocs reads pp's lines "allocs-KIND BYTES NUMBER RANK" and returns the
// number of the rank that allocates more.
func parseAllocs(out string) (map[what]float64, error) {
	all, lines := map[what]float64{}, map[what]int{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 4 || !strings.HasPrefix(f[0], "allocs-") {
			continue
		}
		bytes, err1 := strconv.Atoi(f[1])
		number, err2 := strconv.ParseFloat(f[2], 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		w := what{strings.TrimPrefix(f[0], "allocs-"), bytes}
		all[w] = max(all[w], number)
		lines[w]++
	}
	for w, n := range lines {
		if n != 2 {
			return nil, fmt.Errorf("%d ranks count allocations of %s messages of %d bytes, not 2:\n%s", n, w.name, w.bytes, out)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no allocations are counted in:\n%s", out)
	}
	return all, nil
}

// parseIdle reads pp's line "idle SECONDS SHARE".
func parseIdle(out string) (seconds, share float64, err error) {
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "idle" {
			seconds, err1 := strconv.ParseFloat(f[1], 64)
			share, err2 := strconv.ParseFloat(f[2], 64)
			return seconds, share, errors.Join(err1, err2)
		}
	}
	return 0, 0, fmt.Errorf("no rank says what waiting costs in:\n%s", out)
}

// player is one of those whose jobs are compared; each job yields many figures.
type player struct {
	contender
	got map[what]*series
}

// series are the figures of one thing, in the order they were taken.
type series struct{ mean, worst, mbps sample }

// newPlayer measures by a job, in which all that is wanted must be.
func newPlayer(name string, wanted []what, job func() (string, error)) *player {
	p := &player{got: map[what]*series{}}
	for _, w := range wanted {
		p.got[w] = &series{}
	}
	p.contender = contender{name: name, run: func() (float64, error) {
		out, err := job()
		if err != nil {
			return 0, err
		}
		figures := parseFigures(out)
		for _, w := range wanted {
			f, ok := figures[w]
			if !ok {
				return 0, fmt.Errorf("%s of %d bytes is missing in:\n%s", w.name, w.bytes, out)
			}
			s := p.got[w]
			s.mean, s.worst, s.mbps = append(s.mean, f.mean), append(s.worst, f.worst), append(s.mbps, f.mbps)
		}
		return figures[wanted[0]].mean, nil
	}}
	return p
}

// better returns the player that takes less time for w, within the rounds.
func better(w what, a, b *player) *player {
	if b.got[w].mean.by(a.got[w].mean) < 1 {
		return b
	}
	return a
}

// printing is a job on hosts of a lab that prints as many lines and is then through,
// whether it ends or not: with Debian's MPICH one that has done its work may hang in
// MPI_Finalize (mpishim/preload/ucx.c says why).
type printing struct {
	from    *lab.Host
	hosts   []*lab.Host // where ranks are
	program string
	line    string // for a shell
	lines   int
	within  time.Duration
}

// patience is how long a job may take to end after its last line.
const patience = 5 * time.Second

// run returns what the job has printed. Ranks that did not end are killed, so that
// they do not spin beside the next job.
func (p printing) run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	out := &lineCount{want: p.lines, there: make(chan struct{})}
	var errs strings.Builder
	cmd := p.from.Command(ctx, "sh", "-c", p.line)
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the job, at the latest with ctx
	var err error
	select {
	case err = <-ended:
	case <-out.there:
		select {
		case err = <-ended:
		case <-time.After(patience):
			cancel()
			<-ended
		}
	}
	if serr := p.sweep(); err == nil {
		err = serr
	}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", p.line, err, out.text.String(), errs.String())
	}
	return out.text.String(), err
}

// sweep kills what is left of the program.
func (p printing) sweep() error {
	for _, h := range p.hosts {
		procs, err := h.Procs()
		if err != nil {
			return err
		}
		for _, proc := range procs {
			if filepath.Base(proc.Args[0]) == filepath.Base(p.program) {
				_ = h.Kill(syscall.SIGKILL, proc.PID) // it may end by itself meanwhile
			}
		}
	}
	return nil
}

// lineCount keeps what is written to it, and says when there are as many lines.
type lineCount struct {
	text  strings.Builder
	want  int
	there chan struct{}
}

func (c *lineCount) Write(b []byte) (int, error) {
	before := c.want
	c.want -= strings.Count(string(b), "\n")
	if before > 0 && c.want <= 0 {
		close(c.there)
	}
	return c.text.Write(b)
}
