package mpishim

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tagger looks for a launcher's mark at the beginning of b. It returns the rank
// and the mark's length; length 0 if there is none, -1 if more bytes are needed.
type tagger func(b []byte) (rank, length int)

// maxTag bounds a mark up to its bracket, in bytes.
const maxTag = 96

// hydraTag reads hydraPattern.
func hydraTag(b []byte) (rank, length int) {
	if b[0] != 1 {
		return 0, 0
	}
	end := bytes.IndexByte(b, 2)
	if end < 0 {
		if len(b) < 16 {
			return 0, -1
		}
		return 0, 0
	}
	n, err := strconv.Atoi(string(b[1:end]))
	if err != nil || n < 0 || end >= 16 {
		return 0, 0
	}
	return n, end + 1
}

// openMPITag reads "[1,RANK]<stdout>:", which mpirun --tag-output writes before
// every line and every piece of one, and version 5's "[NAMESPACE@1,RANK]<stdout>: ".
func openMPITag(b []byte) (rank, length int) {
	if b[0] != '[' {
		return 0, 0
	}
	end := bytes.IndexAny(b, "]\n")
	switch {
	case end < 0 && len(b) <= maxTag:
		return 0, -1
	case end < 0 || end > maxTag || b[end] == '\n':
		return 0, 0
	}
	_, number, ok := strings.Cut(string(b[1:end]), ",")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 {
		return 0, 0
	}
	rest := b[end+1:]
	for _, s := range []string{"<stdout>:", "<stderr>:", "<stddiag>:"} {
		switch {
		case bytes.HasPrefix(rest, []byte(s)):
			return n, end + 1 + len(s)
		case bytes.HasPrefix([]byte(s), rest):
			return 0, -1
		}
	}
	return 0, 0
}

// launcherItself is the rank of text that carries no mark.
const launcherItself = -1

// harmless marks what Open MPI's mpirun says when its agent has already begun by
// the time that mpirun gives it a process group: a race that both sides win.
const harmless = "plm:rsh: Warning: setpgid("

// maxLine is how much of a line is kept until its end arrives, in bytes.
const maxLine = 64 << 10

// demux takes a launcher's output apart and writes whole lines, so that ranks
// never share one. What the launcher says itself goes to own.
type demux struct {
	tag  tagger
	line func(rank int, line []byte) // a whole line, or with no newline its beginning

	rest    []byte // not yet looked at: perhaps half a mark
	rank    int
	partial map[int][]byte
}

func newDemux(tag tagger, line func(int, []byte)) *demux {
	return &demux{tag: tag, line: line, rank: launcherItself, partial: map[int][]byte{}}
}

// Write never fails and keeps nothing of p.
func (d *demux) Write(p []byte) (int, error) {
	d.rest = append(d.rest, p...)
	d.scan(false)
	return len(p), nil
}

// scan consumes rest up to what could be half a mark; all of it at the end.
func (d *demux) scan(end bool) {
	b := d.rest
	from := 0
	for i := 0; i < len(b); {
		rank, n := d.tag(b[i:])
		if n < 0 && !end {
			d.add(b[from:i])
			d.rest = append(d.rest[:0], b[i:]...)
			return
		}
		if n > 0 {
			d.add(b[from:i])
			d.rank = rank
			i += n
			from = i
			continue
		}
		if b[i] == '\n' {
			d.add(b[from : i+1])
			d.rank = launcherItself
			from = i + 1
		}
		i++
	}
	d.add(b[from:])
	d.rest = d.rest[:0]
}

// add gives text, with a newline at most at its end, to the current rank.
func (d *demux) add(text []byte) {
	if len(text) == 0 {
		return
	}
	line := append(d.partial[d.rank], text...)
	if line[len(line)-1] != '\n' && len(line) < maxLine {
		d.partial[d.rank] = line
		return
	}
	d.line(d.rank, line)
	delete(d.partial, d.rank)
}

// from adds text of one rank, where no mark is needed to know whose it is.
func (d *demux) from(rank int, text []byte) {
	d.rank = rank
	for line := range bytes.Lines(text) {
		d.add(line)
	}
}

// finish writes a rank's last words.
func (d *demux) finish(rank int) {
	if line, ok := d.partial[rank]; ok {
		d.line(rank, line)
		delete(d.partial, rank)
	}
}

// flushAll is flush where marks are not looked for.
func (d *demux) flushAll() {
	for rank := range d.partial {
		d.finish(rank)
	}
}

// flush writes what has no newline yet: prompts, and the last words of a rank.
func (d *demux) flush(end bool) {
	if end {
		d.scan(true)
	}
	for rank, line := range d.partial {
		if rank != launcherItself || end {
			d.line(rank, line)
			delete(d.partial, rank)
		}
	}
}

// quietTime is after how long a line without its end is shown, and how long the
// launcher's own words wait for a rank's line that makes them needless.
const quietTime = 400 * time.Millisecond

// screen is where both streams of a job come together.
type screen struct {
	verbose bool
	label   func(rank int) string // begins every line of a rank; nil: nothing does

	mu       sync.Mutex
	out, err io.Writer
	open     [2]int // rank whose unfinished line is shown last, by stream
	own      []byte // held words of the launcher
	death    death
	hushed   bool // the user has ended the job
	ranks    bool // a rank has said something, so the job did start
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
	return &screen{verbose: verbose, out: out, err: err, open: [2]int{launcherItself, launcherItself}, death: death{at: make(chan struct{})}}
}

// line is the demux's callback for stream 1 (stdout) or 2 (stderr).
func (s *screen) line(stream, rank int, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank == launcherItself {
		if bytes.HasPrefix(line, []byte(agentMark)) { // some launchers wait for ever after this
			if s.dies(CodeFailed) || s.verbose {
				s.err.Write(line)
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
	if code, ok := parseDeath(line); ok {
		if first := s.dies(code); (!first || s.hushed) && !s.verbose {
			return // one line: the first is the reason, unless it is the user
		}
	}
	s.write(stream, rank, line)
}

// text is line for a rank's own words, whatever they are.
func (s *screen) text(stream, rank int, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(stream, rank, line)
}

// write shows a line, or the beginning or the rest of one. The caller holds mu.
func (s *screen) write(stream, rank int, line []byte) {
	w := s.out
	if stream == 2 {
		w = s.err
	}
	last := s.open[stream-1]
	if s.label != nil && last != rank && !bytes.HasPrefix(line, []byte(deathMark)) {
		line = append([]byte(s.label(rank)), line...)
	}
	if last != launcherItself && last != rank {
		line = append([]byte("\n"), line...)
	}
	s.open[stream-1] = launcherItself
	if line[len(line)-1] != '\n' {
		s.open[stream-1] = rank
	}
	w.Write(line)
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
		s.err.Write(s.own)
	}
	s.own = nil
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

// heard reports whether any rank has said anything.
func (s *screen) heard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ranks
}

// parseDeath reads the exit code out of RunRank's line.
func parseDeath(line []byte) (code int, ok bool) {
	text, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), deathMark)
	if !ok {
		return 0, false
	}
	if _, n, ok := strings.Cut(text, " exited with code "); ok {
		code, err := strconv.Atoi(n)
		return code, err == nil
	}
	if _, n, ok := strings.Cut(text, " was killed by signal "); ok {
		n, _, _ = strings.Cut(n, " ")
		code, err := strconv.Atoi(n)
		return 128 + code, err == nil
	}
	switch {
	case strings.Contains(text, " found no program"):
		return CodeNotFound, true
	case strings.Contains(text, " cannot execute"):
		return CodeCannotRun, true
	}
	return CodeFailed, true
}
