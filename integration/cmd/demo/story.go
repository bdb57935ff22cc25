package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// story writes what happens, and remembers what was checked and measured. Its
// methods are for one goroutine.
type story struct {
	w     io.Writer
	live  bool // w is a terminal: progress may be shown
	color bool
	began time.Time
	acts  []act
}

// act is what a story remembers of one of its parts.
type act struct {
	number  int
	name    string // a word or two, for the summary
	began   time.Time
	took    time.Duration
	checks  []check
	figures map[string]string
}

type check struct {
	what string
	good bool
}

// figureNames are the rows of the summary, in order.
var figureNames = [...]string{
	figDaemons, figPath, figPing, figHPL, figRing, figLatency, figBandwidth, figMeshrun, figMpiexec, figStall, figHeat, figSort, figFarm,
}

// What is measured, in more than one act as a rule, and compared in the summary.
const (
	figDaemons   = "five daemons up"
	figPath      = "path a1 to b1"
	figPing      = "ping a1 to b1"
	figHPL       = "hpcc: HPL"
	figRing      = "hpcc: random ring"
	figLatency   = "NetPIPE: 1 byte"
	figBandwidth = "NetPIPE: 1 MiB"
	figMeshrun   = "MPICH by meshrun"
	figMpiexec   = "MPICH by mpiexec"
	figStall     = "longest stall"
	figHeat      = "Go: heat, 4 ranks"
	figSort      = "Go: sort, 4 ranks"
	figFarm      = "Go: farm, a death"
)

// newStory tells a story on f, in colours and with progress on a terminal only.
func newStory(f *os.File) *story {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &story{w: f, live: err == nil, color: err == nil && os.Getenv("NO_COLOR") == "", began: time.Now()}
}

// Colours are ANSI's.
const (
	bold  = "1"
	red   = "31"
	green = "32"
	cyan  = "36"
	faint = "2"
)

func (s *story) paint(code, text string) string {
	if !s.color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// begin begins an act.
func (s *story) begin(number int, name, title string) {
	s.acts = append(s.acts, act{number: number, name: name, began: time.Now(), figures: map[string]string{}})
	fmt.Fprintf(s.w, "\n%s\n\n", s.paint(bold, fmt.Sprintf("== %d. %s", number, title)))
}

// current is the act that is played.
func (s *story) current() *act { return &s.acts[len(s.acts)-1] }

// finish ends the act.
func (s *story) finish() {
	a := s.current()
	a.took = time.Since(a.began)
	s.note("(this act took %.0f s)", a.took.Seconds())
}

func (a *act) good() (n int) {
	for _, c := range a.checks {
		if c.good {
			n++
		}
	}
	return n
}

func (s *story) note(format string, args ...any) {
	fmt.Fprintf(s.w, "  %s\n", s.paint(faint, fmt.Sprintf(format, args...)))
}

// command shows what a user types, and where.
func (s *story) command(host, line string) {
	fmt.Fprintf(s.w, "  %s %s\n", s.paint(cyan, host+"$"), line)
}

// text shows output, indented, without empty lines around it.
func (s *story) text(out string) {
	if out = strings.Trim(out, "\n"); out == "" {
		return
	}
	for line := range strings.Lines(out) {
		fmt.Fprintln(s.w, strings.TrimRight("      "+strings.TrimRight(line, "\n"), " "))
	}
}

// check shows and remembers whether something held.
func (s *story) check(good bool, format string, args ...any) {
	c := check{what: fmt.Sprintf(format, args...), good: good}
	s.current().checks = append(s.current().checks, c)
	fmt.Fprintf(s.w, "  %s %s\n", s.mark(good), c.what)
}

// figure remembers a measurement for the summary.
func (s *story) figure(name, format string, args ...any) {
	s.current().figures[name] = fmt.Sprintf(format, args...)
}

func (s *story) mark(good bool) string {
	if good {
		return s.paint(green, "✓")
	}
	return s.paint(red, "✗")
}

// working shows on a terminal that something takes its time, until the function
// it returns is called; nothing else may be written meanwhile.
func (s *story) working() (done func()) {
	if !s.live {
		return func() {}
	}
	began, quit := time.Now(), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				fmt.Fprint(s.w, "\r\x1b[K")
				return
			case <-tick.C:
				fmt.Fprintf(s.w, "\r\x1b[K      %s", s.paint(faint, fmt.Sprintf("… %.0f s", time.Since(began).Seconds())))
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

// end sums up and reports whether every check held.
func (s *story) end() bool {
	fmt.Fprintf(s.w, "\n%s\n\n", s.paint(bold, "== Summary"))
	s.text(s.summary())
	all, good := 0, 0
	for i := range s.acts {
		a := &s.acts[i]
		all, good = all+len(a.checks), good+a.good()
		for _, c := range a.checks {
			if !c.good {
				fmt.Fprintf(s.w, "\n  %s act %d: %s\n", s.mark(false), a.number, c.what)
			}
		}
	}
	held := good == all && all > 0
	fmt.Fprintf(s.w, "\n  %s %d of %d checks held; all of it took %.0f s\n", s.mark(held), good, all, time.Since(s.began).Seconds())
	return held
}

// summary is the table of figures, an act to a column.
func (s *story) summary() string {
	head, held, took := []string{""}, []string{"checks"}, []string{"time"}
	for i := range s.acts {
		a := &s.acts[i]
		head = append(head, fmt.Sprintf("%d. %s", a.number, a.name))
		held = append(held, fmt.Sprintf("%d of %d", a.good(), len(a.checks)))
		took = append(took, fmt.Sprintf("%.0f s", a.took.Seconds()))
	}
	rows := [][]string{head}
	for _, name := range figureNames {
		row, known := []string{name}, false
		for _, a := range s.acts {
			v, ok := a.figures[name]
			if known = known || ok; !ok {
				v = "-"
			}
			row = append(row, v)
		}
		if known {
			rows = append(rows, row)
		}
	}
	return table(append(rows, held, took))
}

// table aligns the cells of rows that have the same number of them.
func table(rows [][]string) string {
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			width := 0
			for _, r := range rows {
				width = max(width, utf8.RuneCountInString(r[i]))
			}
			if i == len(row)-1 {
				width = 0 // nothing follows
			}
			fmt.Fprintf(&b, "%-*s", width, cell)
			if i < len(row)-1 {
				b.WriteString("   ")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// lastLines are the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// shorten cuts the lines of a text after max characters.
func shorten(text string, max int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if r := []rune(line); len(r) > max {
			lines[i] = string(r[:max]) + "…"
		}
	}
	return strings.Join(lines, "\n")
}
