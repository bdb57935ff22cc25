package wan

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Tick is the resolution of a Record.
const Tick = 100 * time.Microsecond

// MaxRecord is the longest time that is recorded at once.
const MaxRecord = time.Minute

// Record tells tick by tick what came to one direction of a link.
type Record struct {
	Arrived []uint32 // bytes of frames that came, those dropped included
	Dropped []uint32 // bytes of frames that found the queue full
	Queue   []uint32 // the most bytes that waited for the rate, that being sent included
}

// Records holds both directions, from the same moment on.
type Records struct {
	Up, Down Record
}

// recorder makes a Record. The emulator's thread writes it, anybody may read.
type recorder struct {
	began                   time.Duration // of the thread's clock; it sets and reads it alone
	running                 bool
	arrived, dropped, queue []atomic.Uint32
}

func newRecorder(ticks int) *recorder {
	return &recorder{arrived: make([]atomic.Uint32, ticks), dropped: make([]atomic.Uint32, ticks), queue: make([]atomic.Uint32, ticks)}
}

// note takes down a frame that came at a time, after it was offered to the line.
func (r *recorder) note(l *line, at time.Duration, size int, f fate) {
	if !r.running {
		r.running, r.began = true, at
	}
	i := int((at - r.began) / Tick)
	if at < r.began || i >= len(r.arrived) {
		return
	}
	r.arrived[i].Add(uint32(size))
	if f == dropQueue {
		r.dropped[i].Add(uint32(size))
	}
	if w := uint32(l.waiting(at)); w > r.queue[i].Load() {
		r.queue[i].Store(w)
	}
}

// read returns what there is.
func (r *recorder) read() Record {
	plain := func(from []atomic.Uint32) []uint32 {
		to := make([]uint32, len(from))
		for i := range from {
			to[i] = from[i].Load()
		}
		return to
	}
	return Record{Arrived: plain(r.arrived), Dropped: plain(r.dropped), Queue: plain(r.queue)}
}

// Record starts to record both directions for d, at most MaxRecord, each from the
// next frame on. What was recorded before is gone.
func (e *Emulator) Record(d time.Duration) error {
	if d < Tick || d > MaxRecord {
		return fmt.Errorf("wan: record %v: it must be %v to %v", d, Tick, MaxRecord)
	}
	for _, dir := range []*direction{e.up, e.down} {
		dir.recorder.Store(newRecorder(int(d / Tick)))
	}
	return nil
}

// Records returns what has been recorded so far; ticks to come are zero. It is empty
// if nothing was asked for.
func (e *Emulator) Records() (r Records) {
	if up, down := e.up.recorder.Load(), e.down.recorder.Load(); up != nil && down != nil {
		r.Up, r.Down = up.read(), down.read()
	}
	return r
}
