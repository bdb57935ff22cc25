package wan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DefaultMTU is the largest IP packet an emulator carries unless told otherwise, bytes.
const DefaultMTU = 1500

// Config says where an emulator stands.
type Config struct {
	Near, Far string       // names of the two interfaces, in the network namespace of the thread that calls New
	MTU       int          // largest IP packet, bytes; 0: DefaultMTU
	Memory    int          // bytes for frames under way, each direction; 0: 64 MiB
	Log       *slog.Logger // nil: no log

	// Bypassed says that the kernel carries what goes in a direction whose Pipe is plain,
	// which the owner of the interfaces sees to: the emulator takes no frames of it, and
	// counts none.
	Bypassed bool
}

// Emulator carries frames between two interfaces. Set and Stats may be called
// at any time and from any goroutine.
type Emulator struct {
	log      *slog.Logger
	bypassed bool
	setting  sync.Mutex // held while the link is changed
	link     atomic.Pointer[Link]
	up, down *direction
	wake     int // an eventfd, written once to end Run
}

// New opens both interfaces; it starts nothing, but from now on they receive.
// Close or Run gives them back.
func New(cfg Config, link Link) (*Emulator, error) {
	if err := link.Validate(); err != nil {
		return nil, err
	}
	if cfg.MTU == 0 {
		cfg.MTU = DefaultMTU
	}
	if cfg.Memory == 0 {
		cfg.Memory = 64 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	near, err := openSocket(cfg.Near)
	if err != nil {
		return nil, err
	}
	far, err := openSocket(cfg.Far)
	if err != nil {
		near.close()
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		near.close()
		far.close()
		return nil, fmt.Errorf("wan: eventfd: %w", err)
	}
	slot := cfg.MTU + ethHeader + 4 // 4: a VLAN tag
	e := &Emulator{
		log:      cfg.Log,
		bypassed: cfg.Bypassed,
		wake:     wake,
		up:       newDirection(near, far, link.Up, slot, cfg.Memory/slot),
		down:     newDirection(far, near, link.Down, slot, cfg.Memory/slot),
	}
	if err := e.Set(link); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Set changes the link. Frames already under way arrive when they were due.
func (e *Emulator) Set(link Link) error {
	if err := link.Validate(); err != nil {
		return err
	}
	e.setting.Lock()
	defer e.setting.Unlock()
	for _, d := range [...]struct {
		in   *socket
		pipe Pipe
	}{{e.up.in, link.Up}, {e.down.in, link.Down}} {
		if err := d.in.mute(e.bypassed && d.pipe.IsPlain()); err != nil {
			return err
		}
	}
	e.link.Store(&link)
	return nil
}

// Stats returns what became of the frames so far.
func (e *Emulator) Stats() Stats {
	return Stats{Up: e.up.counters.read(), Down: e.down.counters.read()}
}

// Close releases an emulator that was never run.
func (e *Emulator) Close() {
	e.up.in.close()
	e.down.in.close()
	_ = unix.Close(e.wake)
}

// Run carries frames until ctx ends, then closes the interfaces; frames under
// way are lost. It keeps an operating-system thread to itself, and one more of Go's
// processors (GOMAXPROCS) while it lasts: the thread sleeps without giving its own up.
func (e *Emulator) Run(ctx context.Context) error {
	addProcessors(1)
	defer addProcessors(-1)
	done := make(chan error, 1)
	go func() { // ends when ctx does, and its thread with it: it never unlocks the thread it has changed
		runtime.LockOSThread()
		done <- e.loop(ctx)
	}()
	defer e.Close()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// The counter of an eventfd is read by nobody, so poll keeps returning.
	if _, err := unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return errors.Join(fmt.Errorf("wan: wake: %w", err), <-done)
	}
	return <-done
}

var processors sync.Mutex

// addProcessors changes GOMAXPROCS by n.
func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// grain is how long the thread leaves frames to gather once it has moved some. Each is
// timed by the moment at which the kernel has seen it, so they are late by this at
// most and nothing else changes; a wake for each frame costs more of the machine
// that it shares with all the lab's hosts than carrying it.
const grain = 150 * time.Microsecond

// maxIdle bounds a sleep so that the kernel's drop counters are read now and then.
const maxIdle = time.Second

// never is later than anything.
const never = time.Duration(math.MaxInt64)

// nap sleeps without telling Go's scheduler, like the system calls of a socket: told,
// its monitor would look every 20 µs for a processor to take away, and did so for each
// frame. A signal, by which the scheduler interrupts too, ends it; no harm is done.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// doze sleeps, in the same way, until a direction has something to do or Run is to end,
// at most for d. Where one has already it asks the kernel nevertheless whether frames have
// come that are read only when it says so: a line that is never idle would not be read.
func (e *Emulator) doze(start time.Time, d time.Duration) error {
	fds := [...]unix.PollFd{{Fd: e.up.awaited()}, {Fd: e.down.awaited()}, {Fd: int32(e.wake)}}
	for i := range fds {
		fds[i].Events = unix.POLLIN
	}
	wait := max(min(e.up.next(), e.down.next())-time.Since(start), 0)
	if wait == 0 && !e.up.asks() && !e.down.asks() {
		return nil
	}
	ts := unix.NsecToTimespec(int64(min(wait, d)))
	_, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return fmt.Errorf("wan: poll %s and %s: %w", e.up.in.name, e.down.in.name, errno)
	}
	for i, dir := range []*direction{e.up, e.down} {
		if fds[i].Revents != 0 {
			dir.came(time.Since(start))
		}
	}
	return nil
}

func (e *Emulator) loop(ctx context.Context) error {
	if err := sharpen(); err != nil {
		e.log.Debug("wan emulator runs without real-time priority", "err", err)
	}
	start := time.Now()
	var link *Link
	var counted time.Duration
	for ctx.Err() == nil {
		if l := e.link.Load(); l != link {
			link = l
			e.up.set(l.Up)
			e.down.set(l.Down)
		}
		busy, more := false, false
		for _, dir := range []*direction{e.up, e.down} {
			moved, left := dir.step(start)
			busy, more = busy || moved, more || left
		}
		if now := time.Since(start); now-counted >= maxIdle {
			counted = now
			e.up.counters.overrun.Add(e.up.in.overruns())
			e.down.counters.overrun.Add(e.down.in.overruns())
		}
		if more {
			continue
		}
		if busy {
			nap(grain)
		}
		if err := e.doze(start, maxIdle); err != nil {
			return err
		}
	}
	return nil
}
