package engine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Processes of a host share memory in a memfd that one makes and hands to the
// other through a Unix socket. It has no name, so there is nothing to clean up
// when processes die; its size is sealed, so that nobody can take pages away
// from under the other; and it is filled when it is made, so that a host without
// memory is noticed then. The socket stays open for the rest: it ends with the
// process at its other end, however that dies.

// sharedSlots are those of a ring in shared memory: 128 KiB.
const sharedSlots = 2048

// sealedSize are the seals without which memory of another is not used.
const sealedSize = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// newMemory makes memory to share, and maps it.
func newMemory(name string, size int) (fd int, mem []byte, err error) {
	if fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Fallocate(fd, 0, 0, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealedSize|unix.F_SEAL_SEAL)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("engine: shared memory: %w", err)
	}
	return fd, mem, nil
}

// mapMemory maps memory that another process has made.
func mapMemory(fd, size int, writable bool) ([]byte, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if seals&sealedSize != sealedSize || st.Size != int64(size) {
		return nil, fmt.Errorf("%w: shared memory of %d bytes, seals %#x", errViolation, st.Size, seals)
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	return unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
}

// exposures that a process has in a link at one time; a message that finds its
// place taken is sent through the ring.
const mostExposed = 256

// A link's memory is, for each of the two processes: a ring to the other, and
// the names of the messages whose data the other may read now.
func sharedBytes() int { return 2 * sharedHalf() }

func sharedHalf() int { return pageUp(ringBytes(sharedSlots) + mostExposed*8) }

func pageUp(n int) int {
	page := unix.Getpagesize()
	return (n + page - 1) / page * page
}

// sharedPart returns what is in one half of a link's memory.
func sharedPart(mem []byte, half int) (ring, *[mostExposed]uint64) {
	mem = mem[half*sharedHalf():]
	return newRing(mem, sharedSlots), (*[mostExposed]uint64)(unsafe.Pointer(&mem[ringBytes(sharedSlots)]))
}

// sharedWire is a link through shared memory.
type sharedWire struct {
	ringWire
	system   *epoll
	c        *conn
	socket   int    // ends with the peer
	doorbell int    // the peer's bell
	pid      int    // the peer, as seen from here
	reads    bool   // its memory can be read
	memory   []byte // the rings
	mine     *[mostExposed]uint64
	theirs   *[mostExposed]uint64
	over     bool // the peer is gone
}

func (w *sharedWire) plug(c *conn) error {
	w.c = c
	if err := w.system.add(w.socket, unix.EPOLLIN|unix.EPOLLRDHUP, w); err != nil {
		return err
	}
	c.e.fast, c.ring = append(c.e.fast, c), &w.ringWire
	if n := len(c.e.fast); n >= runtime.NumCPU() && n > w.system.others {
		c.e.crowd() // others were spawned, or nobody has told
	}
	return nil
}

// event is called when the socket has ended; nothing comes through it.
func (w *sharedWire) event(*Engine, uint32) bool {
	w.over = true
	w.system.remove(w.socket)
	return true
}

func (w *sharedWire) poll(c *conn) (bool, error) {
	did, err := w.ringWire.poll(c)
	if err == nil && !did && w.over && !c.broken {
		return false, errPeerClosed
	}
	return did, err
}

// unmap gives everything back; it is what ringWire's close does.
func (w *sharedWire) unmap() {
	if w.c != nil {
		w.system.remove(w.socket)
	}
	unix.Close(w.socket)
	unix.Close(w.doorbell)
	_ = unix.Munmap(w.memory)
	_ = unix.Munmap(w.page)
}

// exposed is where the name of a message is while its data may be read.
func exposed(in *[mostExposed]uint64, name uint64) *uint64 { return &in[name>>32%mostExposed] }

// expose tells where data is.
func (w *sharedWire) expose(name uint64, data []byte) uint64 {
	at := exposed(w.mine, name)
	if atomic.LoadUint64(at) != 0 {
		return 0
	}
	atomic.StoreUint64(at, name)
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
}

// claimed is set in the name of a message that the other end reads. Slots of requests
// have fewer bits.
const claimed = 1 << 63

func (w *sharedWire) withdraw(name uint64) bool {
	return atomic.CompareAndSwapUint64(exposed(w.mine, name), name, 0)
}

// conceal withdraws data. Who is reading it will see that he has read too late.
func (w *sharedWire) conceal(name uint64) {
	if at := exposed(w.mine, name); atomic.LoadUint64(at)&^claimed == name {
		atomic.StoreUint64(at, 0)
	}
}

func (w *sharedWire) claim(name uint64) bool {
	return atomic.CompareAndSwapUint64(exposed(w.theirs, name), name, name|claimed)
}

func (w *sharedWire) unclaim(name uint64) {
	atomic.CompareAndSwapUint64(exposed(w.theirs, name), name|claimed, name)
}

// pull reads the peer's memory.
func (w *sharedWire) pull(name, addr uint64, off int, dst []byte) error {
	if !w.reads {
		return errNoPull
	}
	for len(dst) > 0 {
		n, err := readAcross(w.pid, uintptr(addr)+uintptr(off), dst)
		switch {
		case err == unix.EPERM || err == unix.ENOSYS:
			w.reads = false
			return errNoPull
		case err != nil:
			return err
		case n <= 0:
			return ErrRefused
		}
		off += n
		dst = dst[n:]
	}
	if atomic.LoadUint64(exposed(w.theirs, name)) != name|claimed {
		return ErrRefused
	}
	return nil
}

// readAcross reads memory of another process. What is large is read in one call all
// the same, since each walks through both processes' pages anew; the Go scheduler is
// told of it then, so that it need not wait when it wants to stop the world.
func readAcross(pid int, addr uintptr, dst []byte) (int, error) {
	local := unix.Iovec{Base: &dst[0]}
	local.SetLen(len(dst))
	remote := unix.RemoteIovec{Base: addr, Len: len(dst)}
	var n uintptr
	var errno syscall.Errno
	if len(dst) <= mostCall {
		n, _, errno = syscall.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	}
	runtime.KeepAlive(dst)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// canRead reports whether a process's memory can be read: whether its probe is
// where it says.
func canRead(pid int, addr uint64, probe [16]byte) bool {
	var got [16]byte
	if pid <= 0 {
		return false
	}
	n, err := readAcross(pid, uintptr(addr), got[:])
	return err == nil && n == len(got) && got == probe
}

// allowReading lets processes of the same user read our memory where the Yama
// module would not: it asks for that to be allowed once for all, since it has no
// list of those allowed.
func allowReading() {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(b)) == "1" {
		_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	}
}

// asleepIn is the word in a process's page that says whether its driver sleeps.
func asleepIn(page []byte) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&page[0])) }

var errNotLocal = errors.New("engine: not reachable through shared memory")

var (
	_ wire    = (*sharedWire)(nil)
	_ puller  = (*sharedWire)(nil)
	_ plugger = (*sharedWire)(nil)
	_ sink    = (*sharedWire)(nil)
)
