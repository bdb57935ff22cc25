package record

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Writer is the file of a rank that is running. Its methods may be called from any
// goroutine; those of a nil one do nothing.
type Writer struct {
	ranks int
	start time.Time

	mu    sync.Mutex // guards what follows
	b     []byte     // the mapped file; nil after Close
	shift int        // log2 of the width of a bucket in ns
}

// le is the order of our own files: a Parse of any machine reads it.
var le = binary.LittleEndian

// Create makes the file of a rank in a folder and maps it; all of it is there at
// once, so that no write to memory can fail later. It is an error if the file exists,
// or if there are more than MaxRanks.
func Create(dir string, rank, ranks int) (*Writer, error) {
	if ranks < 1 || ranks > MaxRanks || rank < 0 || rank >= ranks {
		return nil, fmt.Errorf("record: rank %d of %d: a job of at most %d ranks is recorded", rank, ranks, MaxRanks)
	}
	path := filepath.Join(dir, FileName(rank))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: create: %w", err)
	}
	defer f.Close() // the mapping stays
	b, err := mapFile(f, Size(ranks))
	if err != nil {
		_ = os.Remove(path) // of no use to anybody
		return nil, fmt.Errorf("record: map %s: %w", path, err)
	}
	w := &Writer{ranks: ranks, start: time.Now(), b: b, shift: firstWidth}
	for at, v := range map[int]int{4: version, 8: ranks, 12: rank, 16: buckets(ranks)} {
		le.PutUint32(b[at:], uint32(v))
	}
	le.PutUint64(b[24:], 1<<w.shift)
	le.PutUint64(b[32:], uint64(w.start.UnixNano()))
	le.PutUint32(b, magic)
	return w, nil
}

// Part is what an operation gives one rank of the job; a negative rank is of none.
type Part struct {
	Rank  int
	Bytes int64
}

// Message notes one message. A negative rank is a process of another job.
func (w *Writer) Message(op Op, rank int, bytes int64) {
	if w == nil {
		return
	}
	w.note(op, time.Since(w.start), true, Part{rank, bytes})
}

// Collective notes an operation of several ranks and what it gives each.
func (w *Writer) Collective(op Op, parts ...Part) {
	if w == nil {
		return
	}
	w.note(op, time.Since(w.start), false, parts...)
}

func (w *Writer) note(op Op, at time.Duration, message bool, parts ...Part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.b == nil {
		return
	}
	row := w.row(at)
	w.add(64+16*int(op), 1)
	for _, p := range parts {
		n := uint64(max(p.Bytes, 0))
		w.add(72+16*int(op), n)
		if p.Rank < 0 || p.Rank >= w.ranks {
			w.add(48, n)
			continue
		}
		peer := head + perPeer*p.Rank
		if message {
			w.add(peer, n)
			w.add(peer+16, 1)
		} else {
			w.add(peer+8, n)
		}
		w.add(row+8*p.Rank, n)
	}
}

func (w *Writer) add(at int, n uint64) { le.PutUint64(w.b[at:], le.Uint64(w.b[at:])+n) }

// row is where the bucket of a moment begins.
func (w *Writer) row(at time.Duration) int {
	w.until(at)
	for int(at>>w.shift) >= buckets(w.ranks) {
		w.double()
	}
	return head + perPeer*w.ranks + 8*w.ranks*int(at>>w.shift)
}

func (w *Writer) until(at time.Duration) {
	if uint64(at) > le.Uint64(w.b[40:]) {
		le.PutUint64(w.b[40:], uint64(at))
	}
}

// double puts two buckets into one each.
func (w *Writer) double() {
	cells := w.b[head+perPeer*w.ranks:]
	row := 8 * w.ranks
	half := buckets(w.ranks) / 2
	for i := range half {
		for at := 0; at < row; at += 8 {
			le.PutUint64(cells[i*row+at:], le.Uint64(cells[2*i*row+at:])+le.Uint64(cells[(2*i+1)*row+at:]))
		}
	}
	clear(cells[half*row:])
	w.shift++
	le.PutUint64(w.b[24:], 1<<w.shift)
}

// Missed notes an operation that cannot be told apart.
func (w *Writer) Missed() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.b != nil {
		w.add(56, 1)
	}
}

// Close ends the record; finalized says that the rank has come to its end well. What
// is noted later is dropped. It may be called twice.
func (w *Writer) Close(finalized bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.b == nil {
		return
	}
	if finalized {
		le.PutUint32(w.b[20:], ended)
	}
	w.until(time.Since(w.start))
	unmap(w.b)
	w.b = nil
}
