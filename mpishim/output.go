package mpishim

import (
	"bytes"
	"strconv"
)

// tagger looks for a launcher's mark at the beginning of b. It returns the rank
// and the mark's length; length 0 if there is none, -1 if more bytes are needed.
type tagger func(b []byte) (rank, length int)

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

// untagged is the tagger of a launcher that leaves marks out.
func untagged([]byte) (rank, length int) { return 0, 0 }

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
