package mpishim

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// quietTime is after how long a line without its end is shown, and how long the
// launcher's own words wait for a rank's line that makes them needless.
const quietTime = 400 * time.Millisecond

// screen is where both streams of a job come together.
type screen struct {
	verbose bool
	label   func(rank int) string // begins every line of a rank; nil: nothing does
	secret  string                // by which RunRank's lines are known from what ranks print

	to     [2]io.Writer // standard output and error
	outlet [2]*outlet   // by which it is written to them; one, if they are one file

	mu     sync.Mutex // guards what follows
	open   [2]int     // rank whose unfinished line is shown last, by stream
	own    []byte     // held words of the launcher
	spoke  bool       // some of them were shown
	death  death
	hushed bool // the user has ended the job
	ranks  bool // a rank has said something, so the job did start
}

// agentMark begins the one line by which the remote shell says that it failed.
const agentMark = agent + ": "

// death is the first rank's end that a rank reported, or an agent's.
type death struct {
	seen bool
	code int
	at   chan struct{} // closed when seen
}

func newScreen(out, err io.Writer, verbose bool) *screen {
	s := &screen{verbose: verbose, to: [2]io.Writer{out, err}, open: [2]int{launcherItself, launcherItself}, death: death{at: make(chan struct{})}}
	s.outlet[0] = newOutlet()
	if s.outlet[1] = s.outlet[0]; !sameFile(out, err) {
		s.outlet[1] = newOutlet()
	}
	return s
}

// put writes to stream 1 or 2, some time.
func (s *screen) put(stream int, text []byte) { s.outlet[stream-1].put(s.to[stream-1], text) }

// outlast waits for the end of what writes here. When the user wants to end, or has
// before, nothing waits for a stream that stands still any more.
func (s *screen) outlast(done <-chan struct{}, signals <-chan os.Signal, told bool) {
	var late <-chan time.Time
	if told {
		late = time.After(stuckTime)
	}
	for {
		select {
		case <-done:
			return
		case sig := <-signals:
			if ends(sig) {
				s.giveUp()
			}
		case <-late:
			s.giveUpStill()
			late = time.After(stuckTime)
		}
	}
}

// stuckTime is how long a stream may stand still once the user has ended the job.
const stuckTime = time.Second

// close waits until all is written, as outlast does, and returns why it could not be.
func (s *screen) close(signals <-chan os.Signal, told bool) error {
	done := make(chan struct{})
	var errs [2]error
	go func() { // ends with the outlets, of which outlast makes sure
		defer close(done)
		for i, o := range s.outlet {
			errs[i] = o.close()
		}
	}()
	s.outlast(done, signals, told)
	for i, name := range []string{"standard output", "standard error"} {
		if err := errs[i]; err != nil && !errors.Is(err, syscall.EPIPE) { // nobody wants it
			return failf(CodeFailed, "%s: %w", name, err)
		}
	}
	return nil
}

// result closes the screen, and is what a job comes to: its own end, or, if that is good,
// whether all that it said is written.
func (s *screen) result(code int, err error, signals <-chan os.Signal, told bool) (int, error) {
	if lost := s.close(signals, told); lost != nil && code == 0 && err == nil {
		return CodeFailed, lost
	}
	return code, err
}

// giveUp drops what has not been written yet, and what comes.
func (s *screen) giveUp() {
	for _, o := range s.outlet {
		o.giveUp()
	}
}

// giveUpStill is giveUp for the streams that stand still between two calls.
func (s *screen) giveUpStill() {
	s.outlet[0].giveUpStill()
	if s.outlet[1] != s.outlet[0] {
		s.outlet[1].giveUpStill()
	}
}

// ends reports whether a signal of the user's ends a job.
func ends(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// line is the demux's callback for stream 1 (stdout) or 2 (stderr). It waits where a
// rank's words have no room.
func (s *screen) line(stream, rank int, line []byte) {
	if rank != launcherItself {
		s.outlet[stream-1].await()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank == launcherItself {
		if bytes.HasPrefix(line, []byte(agentMark)) { // some launchers wait for ever after this
			if s.dies(CodeFailed) || s.verbose {
				s.put(2, line)
			}
			return
		}
		if bytes.Contains(line, []byte(harmless)) && !s.verbose {
			return
		}
		if len(s.own)+len(line) <= maxLine {
			s.own = append(s.own, line...)
		}
		return
	}
	s.ranks = true
	before, words, dead := bytes.Cut(line, []byte(secretMark(s.secret)))
	if !dead || stream != 2 {
		s.write(stream, rank, line, s.label)
		return
	}
	if len(before) > 0 { // its last words, which it did not end
		s.write(stream, rank, append(bytes.Clone(before), '\n'), s.label)
	}
	line = append([]byte(deathMark), words...)
	if first := s.dies(parseDeath(line)); (!first || s.hushed) && !s.verbose {
		return // one line: the first is the reason, unless it is the user
	}
	s.write(stream, nobody, line, nil)
}

// nobody is the rank of output that is no rank's of ours and not the launcher's.
const nobody = -2

// plain is line for output of which that is all that is known.
func (s *screen) plain(line []byte) {
	s.outlet[0].await()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(1, nobody, line, nil)
}

// text is line for a rank's own words, whatever they are.
func (s *screen) text(stream, rank int, line []byte) {
	s.outlet[stream-1].await()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(stream, rank, line, s.label)
}

// write shows a line, or the beginning or the rest of one. The caller holds mu.
func (s *screen) write(stream, rank int, line []byte, label func(int) string) {
	last := s.open[stream-1]
	if label != nil && last != rank {
		line = append([]byte(label(rank)), line...)
	}
	if last != launcherItself && last != rank {
		line = append([]byte("\n"), line...)
	}
	s.open[stream-1] = launcherItself
	if line[len(line)-1] != '\n' {
		s.open[stream-1] = rank
	}
	s.put(stream, line)
}

// dies records the first death and reports whether this is it.
func (s *screen) dies(code int) bool {
	if s.death.seen {
		return false
	}
	s.death.seen, s.death.code = true, code
	close(s.death.at)
	return true
}

// showOwn shows what the launcher said, unless a rank's own line says it better.
func (s *screen) showOwn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.own) > 0 && (s.verbose || !s.death.seen && !s.hushed) {
		s.put(2, s.own)
		s.spoke = true
	}
	s.own = nil
}

// begun takes note that a rank has started.
func (s *screen) begun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks = true
}

// hush has the launcher's words and the ranks' ends dropped from here on: the user
// has ended the job, and how it takes that is of no interest.
func (s *screen) hush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hushed = true
}

func (s *screen) firstDeath() (code int, seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.death.code, s.death.seen
}

// heard reports whether any rank has said anything, and whether the launcher has.
func (s *screen) heard() (ranks, launcher bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ranks, s.spoke
}

// parseDeath reads the exit code out of RunRank's line.
func parseDeath(line []byte) (code int) {
	text := strings.TrimPrefix(strings.TrimRight(string(line), "\r\n"), deathMark)
	if _, n, ok := strings.Cut(text, " exited with code "); ok {
		if code, err := strconv.Atoi(n); err == nil {
			return code
		}
	}
	if _, n, ok := strings.Cut(text, " was killed by signal "); ok {
		n, _, _ = strings.Cut(n, " ")
		if code, err := strconv.Atoi(n); err == nil {
			return 128 + code
		}
	}
	switch {
	case strings.Contains(text, " found no program"):
		return CodeNotFound
	case strings.Contains(text, " cannot execute"):
		return CodeCannotRun
	}
	return CodeFailed
}
