package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/boot"
)

// localSystem is what an engine needs to share memory with others.
type localSystem struct {
	pageFile int
	probe    *[16]byte // for others to see whether they can read our memory
}

// equipLocal makes what is shown to processes of the host.
func (e *Engine) equipLocal() error {
	e.asleep = new(atomic.Uint32)
	if !e.cfg.SharedMemory {
		return nil
	}
	fd, page, err := newMemory("meshmpi-page", pageBytes())
	if err != nil {
		return err
	}
	e.local = localSystem{pageFile: fd, probe: new([16]byte)}
	e.ends = append(e.ends, func() { unix.Close(fd) })
	// Whoever has the engine may look at the page.
	runtime.AddCleanup(e, func(page []byte) { _ = unix.Munmap(page) }, page)
	_, _ = rand.Read(e.local.probe[:]) // it cannot fail
	e.asleep, e.page = asleepIn(page), page
	allowReading()
	return nil
}

// listenLocal lets processes of the host connect by a Unix socket without a name
// in the file system. Without one there is no shared memory, which is no error.
func (e *Engine) listenLocal() {
	id, err := boot.ID()
	if err != nil {
		return
	}
	name := "meshmpi-" + hex.EncodeToString(e.me.card.uid[:])
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
	if err != nil {
		e.log.Debug("no shared memory", "err", err)
		return
	}
	h := sha256.Sum256([]byte(id))
	e.me.card.host, e.me.card.socket = hex.EncodeToString(h[:8]), name
	e.admitAt(l)
}

// localOffer is what comes with a hello through a Unix socket.
type localOffer struct {
	files []int // in an offer: the rings' memory, the page, the bell; in an answer: the last two
	pid   int
}

// drop closes what has come.
func (o *localOffer) drop() {
	if o == nil {
		return
	}
	for _, fd := range o.files {
		unix.Close(fd)
	}
	o.files = nil
}

func isLocal(nc net.Conn) bool {
	_, ok := nc.(*net.UnixConn)
	return ok
}

// hearLocal reads the hello of a process of this host.
func (e *Engine) hearLocal(nc net.Conn) (*hello, *localOffer, error) {
	return e.readLocal(nc.(*net.UnixConn), e.helloKey(&e.me.card), 3)
}

// readLocal reads a hello that brings so many descriptors.
func (e *Engine) readLocal(nc *net.UnixConn, key []byte, files int) (*hello, *localOffer, error) {
	var b [helloSize + 1]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, on, _, _, err := nc.ReadMsgUnix(b[:], oob)
	if err != nil {
		return nil, nil, err
	}
	o := &localOffer{files: parseFiles(oob[:on])}
	h, err := decodeHello(b[:n], key)
	if err == nil && h.status <= agreed && len(o.files) != files {
		err = fmt.Errorf("%w: hello with %d descriptors", errViolation, len(o.files))
	}
	if err == nil {
		o.pid, err = otherEnd(nc)
	}
	if err != nil {
		o.drop()
		return nil, nil, err
	}
	return h, o, nil
}

// parseFiles finds the descriptors in what came beside a message.
func parseFiles(oob []byte) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var files []int
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			files = append(files, fds...)
		}
	}
	for _, fd := range files {
		unix.CloseOnExec(fd)
	}
	return files
}

// otherEnd returns the process at the other end of a socket, which must be of
// our user; zero if it is of another PID namespace.
func otherEnd(nc *net.UnixConn) (pid int, err error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var bad error
	if err := raw.Control(func(fd uintptr) { cred, bad = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if bad != nil {
		return 0, bad
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("%w: process of user %d", errNotLocal, cred.Uid)
	}
	return int(cred.Pid), nil
}

// dialLocal makes a link through shared memory.
func (e *Engine) dialLocal(ctx context.Context, p *peer, c *card) (err error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", "@"+c.socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	stop := guard(ctx, []net.Conn{nc})
	defer stop()
	fd, mem, err := newMemory("meshmpi-link", sharedBytes())
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := e.engage(p); err != nil {
		_ = unix.Munmap(mem)
		return err
	}
	answer, o, err := e.converseLocal(nc.(*net.UnixConn), c, fd)
	e.gate.lock()
	defer e.leave()
	p.offered = false
	e.change()
	if err == nil && (p.state != connecting || e.stopped) {
		err = errTaken
	}
	if err != nil {
		o.drop()
		_ = unix.Munmap(mem)
		return err
	}
	return e.linkLocal(p, answer, nc, o, mem, true)
}

// converseLocal says hello, hands over what the other needs, and hears the answer.
func (e *Engine) converseLocal(nc *net.UnixConn, c *card, memory int) (*hello, *localOffer, error) {
	h := e.localHello(e.offer(c.uid, e.grants(0)))
	_, _ = rand.Read(h.nonce[:]) // it cannot fail
	key := e.helloKey(c)
	rights := unix.UnixRights(memory, e.local.pageFile, e.poll.bell)
	if _, _, err := nc.WriteMsgUnix(h.encode(key), rights, nil); err != nil {
		return nil, nil, err
	}
	a, o, err := e.readLocal(nc, key, 2)
	if err != nil {
		return nil, nil, err
	}
	if err := h.heed(a); err != nil {
		o.drop()
		return nil, nil, err
	}
	return a, o, nil
}

// localHello adds to a hello what concerns shared memory.
func (e *Engine) localHello(h *hello) *hello {
	h.slots, h.probe = sharedSlots, *e.local.probe
	h.addr = uint64(uintptr(unsafe.Pointer(e.local.probe)))
	return h
}

// admitLocal answers an offer to share memory and makes a link of it.
func (e *Engine) admitLocal(h *hello, nc net.Conn, o *localOffer) {
	defer nc.Close()
	var mem []byte
	err := error(errNotLocal)
	if h.slots == sharedSlots {
		mem, err = mapMemory(o.files[0], sharedBytes(), true)
	}
	if err != nil {
		e.log.Debug("no shared memory", "err", err)
		o.drop()
		return
	}
	unix.Close(o.files[0])
	o.files = o.files[1:]
	a := e.localHello(e.answer(h, e.grants(0)))
	e.gate.lock()
	defer e.leave()
	p, s := e.consider(h)
	a.status = s
	var rights []byte
	if s == agreed {
		rights = unix.UnixRights(e.local.pageFile, e.poll.bell)
	}
	// A new socket has room for this, so it does not wait.
	if _, _, err := nc.(*net.UnixConn).WriteMsgUnix(a.encode(e.helloKey(&e.me.card)), rights, nil); err != nil || s != agreed {
		o.drop()
		_ = unix.Munmap(mem)
		return
	}
	if err := e.linkLocal(p, h, nc, o, mem, false); err != nil {
		e.log.Warn("shared memory", "err", err)
	}
}

// linkLocal makes a link of memory that is shared; dialed is set at the end that
// has made it. What it is given is closed with the link, or with an error.
func (e *Engine) linkLocal(p *peer, h *hello, nc net.Conn, o *localOffer, mem []byte, dialed bool) error {
	page, err := mapMemory(o.files[0], pageBytes(), false)
	socket := -1
	if err == nil {
		if socket, err = takeDescriptor(nc.(*net.UnixConn)); err != nil {
			_ = unix.Munmap(page)
		}
	}
	if err != nil {
		o.drop()
		_ = unix.Munmap(mem)
		return err
	}
	unix.Close(o.files[0])
	w := &sharedWire{system: e.poll, socket: socket, doorbell: o.files[1], pid: o.pid, memory: mem}
	w.page = page
	w.reads = canRead(o.pid, h.addr, h.probe)
	bell := w.doorbell
	w.asleep, w.bell, w.closing = asleepIn(page), func() { signalEvent(bell) }, w.unmap
	half := 0
	if !dialed {
		half = 1
	}
	out, mine := sharedPart(mem, half)
	w.out, w.mine = newProducer(out), mine
	w.in.ring, w.theirs = sharedPart(mem, 1-half)
	most := mostFrame(sharedSlots) - longHeader
	eager := 8 << 10
	if e.cfg.EagerLimit > 0 {
		eager = e.cfg.EagerLimit
	}
	eager = min(eager, most, h.grants.bytes/4)
	e.link(p, h, []wire{w}, []time.Duration{0}, terms{eager: eager, credit: h.grants, theirs: e.grants(0), piece: most})
	return nil
}
