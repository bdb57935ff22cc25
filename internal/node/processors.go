package node

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// processors lets the daemon use as few of the host's processors at a time as its
// traffic needs. A packet meets several goroutines, and where Go has a processor to
// spare it wakes a thread for each of them: one processor carries 2 Gb/s, answers a
// ping sooner than two and takes half the time from the ranks.
type processors struct {
	least, most int
	used        func() time.Duration // of processor time, since the start
	set         func(n int)

	extra atomic.Bool // the pacing thread has one more than those for packets
	held  atomic.Bool // it has wanted that since the last look

	mu   sync.Mutex // guards what follows, and set
	n    int        // for packets
	calm int        // looks in a row at which fewer would have done
	idle int        // looks in a row since the pacing thread has wanted one
}

const (
	processorsLook = 200 * time.Millisecond
	processorsCalm = 10 // looks before fewer are used
	processorsIdle = 5  // looks before the pacing thread loses its own

	// Of the processors that are used: from which more are taken, and up to which
	// of fewer they are given back.
	processorsFull, processorsEasy = 0.85, 0.6
)

// newProcessors leaves to the pacing thread alone what whoever started the daemon
// has decided by GOMAXPROCS.
func newProcessors() *processors {
	p := &processors{
		least: 1, most: max(1, runtime.GOMAXPROCS(0)/2),
		used: processorTime, set: func(n int) { runtime.GOMAXPROCS(n) },
	}
	if os.Getenv("GOMAXPROCS") != "" {
		p.most = runtime.GOMAXPROCS(0)
		p.least = p.most
	}
	p.n = p.least
	return p
}

// startProcessors is for a daemon; a program that is a node keeps its own number.
func (d *daemon) startProcessors(ctx context.Context) {
	d.processors = newProcessors()
	was := runtime.GOMAXPROCS(d.processors.n)
	d.onClose("the use of processors", closeFunc(func() error { runtime.GOMAXPROCS(was); return nil }))
	d.group.Go(func() error { d.processors.run(ctx); return nil })
}

// hold is asked by the pacing thread before it keeps a processor of Go's. With traffic it
// is given its own, until that has ended for a while. It sees to that itself, rather than
// have another goroutine do it: as long as it has the only one, nobody else goes on. It
// waits for a collection of garbage that is under way, as all changes of the number do.
func (p *processors) hold(traffic bool) bool {
	if !traffic {
		return p.extra.Load()
	}
	p.held.Store(true)
	if !p.extra.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = 0
		p.set(p.n + 1)
		p.extra.Store(true)
	}
	return true
}

// programLook is how often the pacing thread asks how many processors a program that
// is a node uses: the answer costs the scheduler's lock.
const programLook = 100 * time.Millisecond

// mayHold returns what the pacing thread asks before it keeps a processor of Go's. In
// a program that is a node, whose number is not ours to raise, it may unless that is
// the only one, as where each rank of a host has its own.
func (d *daemon) mayHold() func(traffic bool) bool {
	if d.processors != nil {
		return d.processors.hold
	}
	var looked time.Time // of the pacing thread's, as is spare
	spare := false
	return func(traffic bool) bool {
		if now := time.Now(); traffic && (looked.IsZero() || now.Sub(looked) >= programLook) {
			looked, spare = now, runtime.GOMAXPROCS(0) > 1
		}
		return spare && traffic
	}
}

func (p *processors) run(ctx context.Context) {
	look := time.NewTicker(processorsLook)
	defer look.Stop()
	last, used := time.Now(), p.used()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-look.C:
			u := p.used()
			p.look(float64(u-used) / float64(now.Sub(last)))
			last, used = now, u
		}
	}
}

// look takes into account how many processors were in use since the last time.
func (p *processors) look(used float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, extra := p.n, p.extra.Load()
	switch {
	case used > processorsFull*float64(p.n) && p.n < p.most:
		p.n, p.calm = min(2*p.n, p.most), 0
	case p.n > p.least && used < processorsEasy*float64(p.n/2):
		if p.calm++; p.calm == processorsCalm {
			p.n, p.calm = max(p.n/2, p.least), 0
		}
	default:
		p.calm = 0
	}
	if p.idle++; p.held.Swap(false) {
		p.idle = 0
	}
	lost := extra && p.idle >= processorsIdle
	if lost {
		p.extra.Store(false)
	}
	switch {
	case p.n == n && !lost:
	case extra && !lost:
		p.set(p.n + 1)
	default:
		p.set(p.n)
	}
}

// processorTime is what this process has used, in its threads and in the kernel.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
