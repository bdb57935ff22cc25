package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// story writes what happens, and remembers what was checked.
type story struct {
	w      io.Writer
	color  bool
	began  time.Time
	acts   int
	checks []check
}

type check struct {
	act  int
	what string
	good bool
}

func newStory(f *os.File) *story {
	st, err := f.Stat()
	return &story{w: f, color: err == nil && st.Mode()&os.ModeCharDevice != 0, began: time.Now()}
}

func (s *story) paint(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *story) act(title string) {
	s.acts++
	fmt.Fprintf(s.w, "\n%s\n\n", s.paint("1", fmt.Sprintf("== %d. %s", s.acts, title)))
}

func (s *story) note(format string, args ...any) { fmt.Fprintf(s.w, "  "+format+"\n", args...) }

// command shows what a user types, and where.
func (s *story) command(host, line string) {
	fmt.Fprintf(s.w, "  %s %s\n", s.paint("36", host+"$"), line)
}

// text shows output, indented, without empty lines at its ends.
func (s *story) text(out string) {
	for _, line := range strings.Split(strings.Trim(out, "\n"), "\n") {
		fmt.Fprintf(s.w, "      %s\n", strings.TrimRight(line, " "))
	}
}

// check shows and remembers whether something held.
func (s *story) check(good bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.checks = append(s.checks, check{s.acts, what, good})
	fmt.Fprintf(s.w, "  %s %s\n", s.mark(good), what)
}

func (s *story) mark(good bool) string {
	if good {
		return s.paint("32", "ok  ")
	}
	return s.paint("31", "FAIL")
}

// end sums up and reports whether every check held.
func (s *story) end() bool {
	failed := 0
	for _, c := range s.checks {
		if !c.good {
			failed++
		}
	}
	fmt.Fprintf(s.w, "\n%s\n\n", s.paint("1", "== Summary"))
	for _, c := range s.checks {
		fmt.Fprintf(s.w, "  %d %s %s\n", c.act, s.mark(c.good), c.what)
	}
	fmt.Fprintf(s.w, "\n%d checks, %d failed, %.0f s\n", len(s.checks), failed, time.Since(s.began).Seconds())
	return failed == 0 && len(s.checks) > 0
}
