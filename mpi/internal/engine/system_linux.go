package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// system is what an engine has of Linux that is not all within one process.
type system struct {
	poll  *epoll // nil: there is a Hub
	local localSystem
}

// epoll polls sockets and is the doorbell of an engine that has peers in other
// processes. The driver sleeps until something is there to poll; the helper as well, or
// until it is woken alone.
//
// The system calls made while messages are awaited are raw: the Go scheduler is
// not told of them, which costs more than they do. None of them blocks.
type epoll struct {
	fd             int // what is polled: sockets and the bell
	driver, helper sleeper
	bell, kickBell int // eventfds
	sinks          []sink
	sockets        []*tcpWire
	keeping        []*ahead     // those that have something for their streams
	aheads         atomic.Int32 // how many there are
	turn           uint
	yields         atomic.Uint32
	others         int // of the job on this host, as far as the engine was told
	events         [64]unix.EpollEvent

	mu     sync.RWMutex // held for reading while a descriptor is in use without the engine held
	closed bool         // guarded by mu
}

// sink is told what epoll has found out about its descriptor, and reports
// whether that brought anything.
type sink interface {
	event(e *Engine, what uint32) bool
}

// equipSystem makes the doorbell of an engine that is not of a Hub.
func (e *Engine) equipSystem() error {
	b := &epoll{fd: -1, bell: -1, kickBell: -1}
	if err := b.open(); err != nil {
		b.closeAll()
		return err
	}
	e.closers = append(e.closers, b.close)
	e.poll, e.bell, e.ready = b, b, b
	e.spins, e.yields, e.stays = localSpins, manyYields, yieldTime
	if runtime.NumCPU() == 1 {
		e.spins = 0
	} else {
		e.answers.most = answerTime
	}
	return e.equipLocal()
}

// Crowd tells the engine, before Start, whether this process shares its processors
// with so many others of the job that who is to answer may be waiting for this very
// one; others is how many there are on its host.
func (e *Engine) Crowd(yes bool, others int) {
	switch {
	case e.poll == nil: // there is a Hub
	case yes:
		e.crowd()
	default: // also on one processor, which is then this process's own
		e.spins, e.answers.most, e.poll.others = localSpins, answerTime, others
	}
}

func (e *Engine) crowd() {
	e.spins, e.yields, e.stays, e.hope.most = 0, crowdYields, 0, crowdHope
	e.answers.most = 0
}

// How long the driver polls in vain before it yields: some microseconds, since
// who is to answer may need this very processor. Yielding to nobody costs little.
const (
	localSpins  = 100 // a poll of shared memory takes some 50 ns
	socketSpins = 20  // and one of sockets ten times as long
	manyYields  = 300 // the round trip of an overlay within a site, where others want to run as well

	// yieldTime is how long it goes on yielding while others may read its memory: some
	// MiB take as long. Who sleeps meanwhile is woken later than that, and its processor,
	// asleep as well, gives the data back slower: a third of the bandwidth.
	yieldTime = time.Millisecond

	// answerTime is how long who has received the announcement of a large message waits
	// for its sender to send it, in microseconds; one that waits for that answers within
	// one or two.
	answerTime = 16

	// crowdYields are those of a process that shares its processor with others of the
	// job: a few turns of all of them. Within a session the others run at once; one
	// whose session is its own, as Hydra's mpiexec has it, gets the processor back
	// (autogroups), and yet eight ranks on two processors take twice as long for an
	// allreduce of a byte if they sleep after 16.
	crowdYields = 64
	crowdHope   = 20 // polls, some 3 µs; see hope
)

func (b *epoll) open() (err error) {
	if b.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for _, fd := range []*int{&b.bell, &b.kickBell} {
		if *fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return err
		}
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(b.bell)}
	if err := unix.EpollCtl(b.fd, unix.EPOLL_CTL_ADD, b.bell, &ev); err != nil {
		return err
	}
	if err := b.driver.open(b.fd); err != nil {
		return err
	}
	return b.helper.open(b.fd, b.kickBell)
}

// close wakes who sleeps and closes everything.
func (b *epoll) close() {
	b.mu.RLock()
	b.signal(b.bell)
	b.signal(b.kickBell)
	b.mu.RUnlock()
	for !b.mu.TryLock() { // a sleeper may have taken the signal for another
		b.ring()
		b.kick()
		time.Sleep(50 * time.Microsecond) // which leaves the only processor, so that it hears of that
	}
	b.closed = true
	b.closeAll()
	b.mu.Unlock()
}

func (b *epoll) closeAll() {
	b.driver.close()
	b.helper.close()
	for _, fd := range []int{b.fd, b.bell, b.kickBell} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (b *epoll) signal(fd int) { signalEvent(fd) }

// signalEvent rings an eventfd.
func signalEvent(fd int) {
	one := uint64(1)
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

func drainEvent(fd int) {
	var n uint64
	_, _, _ = syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)), 8)
}

func (b *epoll) ring() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.closed {
		b.signal(b.bell)
	}
}

func (b *epoll) kick() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.closed {
		b.signal(b.kickBell)
	}
}

func (b *epoll) wait(helper bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return
	}
	if helper {
		b.helper.sleep()
		drainEvent(b.kickBell)
	} else {
		b.driver.sleep()
	}
	drainEvent(b.bell)
}

// yield lets other processes run, and now and then other goroutines of this one:
// that wakes threads of ours, which then take the processor from who is to answer.
func (b *epoll) yield() {
	_, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	if b.yields.Add(1)%32 == 0 {
		runtime.Gosched()
	}
}

// Looking at the sockets is a system call, which takes as long as a message
// through shared memory: with links of that kind it is done every so many polls
// only. Before it sleeps the driver looks at everything.
const (
	pollSockets = 8   // with links through sockets
	pollOthers  = 512 // without: only whether peers are alive is to be seen
	pollSeldom  = 4   // of a stream, or of the datagrams ahead of it, whichever did not bring the last frame
)

// poll looks at descriptors.
func (b *epoll) poll(e *Engine) bool {
	b.turn++
	if len(e.fast) > 0 && b.turn%pollOthers != 0 && (len(b.sockets) == 0 || b.turn%pollSockets != 0) {
		return false
	}
	if len(b.sockets) > 0 && len(b.sockets) <= fewSockets && b.turn%pollOthers != 0 {
		return b.pollEach(e)
	}
	return b.pollReady(e)
}

// fewSockets are as many as it is faster to read than to ask which can be read.
const fewSockets = 2

// pollEach reads every socket.
func (b *epoll) pollEach(e *Engine) bool {
	any := false
	for _, w := range b.sockets {
		if w.full {
			return b.pollReady(e)
		}
		if a := w.ahead; a != nil && (a.heard || a.hopeful()) {
			// What came last says by which way the next is likely to come.
			if (a.last || b.turn%pollSeldom == 0) && a.event(e, 0) {
				any = true
				continue
			}
			if a.last && b.turn%pollSeldom != 0 {
				continue
			}
		}
		if w.event(e, unix.EPOLLIN) {
			any = true
		}
	}
	return any
}

// pollReady asks which descriptors something has happened to.
func (b *epoll) pollReady(e *Engine) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(b.fd), uintptr(unsafe.Pointer(&b.events[0])), uintptr(len(b.events)), 0, 0, 0)
	if errno != 0 {
		return false
	}
	any := false
	for i := range int(n) {
		ev := &b.events[i]
		if ev.Fd < int32(len(b.sinks)) {
			if s := b.sinks[ev.Fd]; s != nil && s.event(e, ev.Events) {
				any = true
			}
		}
	}
	return any
}

// add has a sink told about its descriptor.
func (b *epoll) add(fd int, events uint32, s sink) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(b.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return err
	}
	if fd >= len(b.sinks) {
		b.sinks = append(b.sinks, make([]sink, fd+1-len(b.sinks))...)
	}
	b.sinks[fd] = s
	return nil
}

// change has a sink told of other events.
func (b *epoll) change(fd int, events uint32) {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	_ = unix.EpollCtl(b.fd, unix.EPOLL_CTL_MOD, fd, &ev)
}

// remove forgets a descriptor, which is about to be closed.
func (b *epoll) remove(fd int) {
	if fd < len(b.sinks) && b.sinks[fd] != nil {
		b.sinks[fd] = nil
		_ = unix.EpollCtl(b.fd, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

var (
	_ bell   = (*epoll)(nil)
	_ poller = (*epoll)(nil)
)
