package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/programs"
)

// The programs.
const (
	loadAlltoall = "alltoall"
	loadCG       = "cg"
	loadLU       = "lu"
	loadHPCC     = "hpcc"
	loadGo       = "go"
)

func loadNames() []string { return []string{loadAlltoall, loadCG, loadLU, loadHPCC, loadGo} }

// What cg.c and lu.c are told.
const (
	cgBytes = 256 << 10
	luBytes = 1280
)

// load is a program whose time is measured.
type load struct {
	name    string
	program string // the executable
	args    string
	figures []what
	setting string // of the environment, before meshrun
	flags   string // of meshrun
	short   string // args for one of many jobs, and for a plot
	brief   []what // its figures
	dir     string // of hpcc's files
	job     func(*load, context.Context, *narrow, string, []what) (map[what]reading, error)
}

// run is the whole job, once its short form.
func (l *load) run(ctx context.Context, n *narrow) (map[what]reading, error) {
	return l.job(l, ctx, n, l.args, l.figures)
}

func (l *load) once(ctx context.Context, n *narrow) (map[what]reading, error) {
	return l.job(l, ctx, n, l.short, l.brief)
}

// newLoads compiles the programs, and the token bucket. Sizes are those of the all-to-alls.
func newLoads(ctx context.Context, env *Env, sizes []int, quick bool) (all []*load, err error) {
	var total []int
	for _, n := range sizes {
		total = append(total, n*2*siteRanks)
	}
	loops, seconds := 3, 1.0
	if quick {
		seconds = 0.2
	}
	exchange := fmt.Sprintf("-mark -only alltoall -loops %d -seconds %g ", loops, seconds)
	figures := named(loadAlltoall, sizes)
	short, brief := "-mark -only alltoall -loops 10 -seconds 0.5 "+words([]int{16 << 10 * 2 * siteRanks}), named(loadAlltoall, []int{16 << 10})
	kernel := fmt.Sprintf("-mark -seconds %g ", seconds)
	cg, lu := []what{{"cg", cgBytes}}, []what{{"lu", luBytes}}
	all = []*load{
		{name: loadAlltoall, args: exchange + words(total), figures: figures, short: short, brief: brief},
		{name: loadCG, args: kernel + strconv.Itoa(cgBytes), figures: cg, short: kernel + strconv.Itoa(cgBytes), brief: cg},
		{name: loadLU, args: kernel + strconv.Itoa(luBytes), figures: lu, short: kernel + strconv.Itoa(luBytes), brief: lu},
		{name: loadHPCC, program: "/usr/bin/hpcc", figures: hpccFigures(), brief: hpccFigures(), job: (*load).hpcc},
		{name: loadGo, args: exchange + words(total), figures: figures, short: short, brief: brief},
	}
	if _, err := programs.Build(ctx, env.Work, "bucket"); err != nil {
		return nil, err
	}
	for _, l := range all {
		source := map[string]string{loadAlltoall: "colls", loadCG: "cg", loadLU: "lu"}[l.name]
		switch {
		case l.name == loadHPCC:
			l.setting, l.dir = yielding, filepath.Join(env.Work, "hpcc")
			err = writeHPCC(l.dir)
		case l.name == loadGo:
			l.flags, l.job = single+" ", (*load).marked
			l.program, err = programs.Build(ctx, env.Work, "colls")
		default:
			l.setting, l.job = yielding, (*load).marked
			l.program, err = programs.Compile(env.Work, source, "mpicc.openmpi")
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// line is the command line of a job.
func (l *load) line(n *narrow, args string) string {
	hosts := placements(n.a, n.b)[0].hosts
	dir := ""
	if l.dir != "" {
		dir = "-wdir " + l.dir + " "
	}
	return fmt.Sprintf("%sexec %s -n %d -H %s:1 %s %s%s-- %s %s", l.setting, n.net.Tool("meshrun"), len(hosts), strings.Join(hosts, ":1,"), n.way.run, l.flags, dir, l.program, args)
}

// marked runs a program that marks what it measures, and counts between the marks.
func (l *load) marked(ctx context.Context, n *narrow, args string, wanted []what) (map[what]reading, error) {
	return l.watched(ctx, n, args, wanted, nil)
}

// watched is marked; begun is called at each beginning.
func (l *load) watched(ctx context.Context, n *narrow, args string, wanted []what, begun func() error) (map[what]reading, error) {
	ctx, cancel := context.WithTimeout(ctx, matbWithin)
	defer cancel()
	out := &markReader{take: n.count, begun: begun, open: map[what]snapshot{}, between: map[what][2]snapshot{}}
	var errs strings.Builder
	line := l.line(n, args)
	cmd := n.net.Lab.Host("a1").Command(ctx, "sh", "-c", line)
	cmd.Stdout, cmd.Stderr = out, &errs
	err := cmd.Run()
	if serr := (printing{hosts: n.net.Lab.Hosts(), program: l.program}).sweep(); err == nil {
		err = serr
	}
	if err == nil {
		err = out.err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", line, err, out.text.String(), errs.String())
	}
	return readings(parseFigures(out.text.String()), out.between, wanted, n.rate, markPause, out.text.String())
}

// readings joins the times that were printed with what was counted.
func readings(times map[what]figure, between map[what][2]snapshot, wanted []what, rate int64, paused time.Duration, text string) (map[what]reading, error) {
	got := map[what]reading{}
	for _, w := range wanted {
		f, printed := times[w]
		ends, counted := between[w]
		if !printed || !counted {
			return nil, fmt.Errorf("%s of %d bytes is missing in:\n%s", w.name, w.bytes, text)
		}
		got[w] = reading{f.mean, ends[1].since(ends[0], rate, paused)}
	}
	return got, nil
}

// count reads the counters of all hosts and of the uplinks.
func (n *narrow) count() (s snapshot, err error) {
	s = snapshot{at: time.Now(), tcp: map[string]float64{}}
	for _, h := range n.hosts() {
		for _, name := range []string{"snmp", "netstat"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", h.PID(), name))
			if err != nil {
				return s, err
			}
			for key, v := range parseCounters(string(text)) {
				s.tcp[key] += v
			}
		}
	}
	for _, site := range []string{"alpha", "beta"} {
		stats, err := n.net.Lab.WANStats(site)
		if err != nil {
			return s, err
		}
		s.frames += stats.Up.QueueFull + stats.Up.Overrun + stats.Up.Refused
		s.bytes += stats.Up.Bytes
	}
	return s, nil
}

// parseCounters reads /proc/net/snmp and netstat: lines of names, each followed by one
// of values.
func parseCounters(text string) map[string]float64 {
	all := map[string]float64{}
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if len(names) == len(f) && names[0] == f[0] {
			for i, v := range f[1:] {
				if n, err := strconv.ParseFloat(v, 64); err == nil {
					all[strings.TrimSuffix(f[0], ":")+"."+names[i+1]] = n
				}
			}
			names = nil
			continue
		}
		names = f
	}
	return all
}

// markPause is how long programs are silent after a mark (MARK_PAUSE of c/mark.h).
const markPause = 60 * time.Millisecond

// markReader keeps what a program prints, and takes a snapshot at each mark as it
// comes: nothing is sent for a while then.
type markReader struct {
	take    func() (snapshot, error)
	begun   func() error // nil: nothing
	text    strings.Builder
	rest    string // of a line that has not ended
	open    map[what]snapshot
	between map[what][2]snapshot
	err     error // the first
}

func (m *markReader) Write(b []byte) (int, error) {
	m.text.Write(b)
	m.rest += string(b)
	for {
		line, rest, whole := strings.Cut(m.rest, "\n")
		if !whole {
			return len(b), nil
		}
		m.rest = rest
		if err := m.line(line); err != nil && m.err == nil {
			m.err = err
		}
	}
}

// line looks at one line.
func (m *markReader) line(line string) error {
	f := strings.Fields(line)
	if len(f) != 5 || f[0] != "mark" {
		return nil
	}
	bytes, err1 := strconv.Atoi(f[3])
	seconds, err2 := strconv.ParseFloat(f[4], 64)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("the mark %q: %w", line, err)
	}
	now, err := m.take()
	if err != nil {
		return fmt.Errorf("counters at %q: %w", line, err)
	}
	now.late = time.Since(time.UnixMicro(int64(seconds*1e6))) > markPause
	w := what{f[2], bytes}
	if f[1] == "end" {
		m.between[w] = [2]snapshot{m.open[w], now}
		return nil
	}
	m.open[w] = now
	if m.begun != nil {
		return m.begun()
	}
	return nil
}
