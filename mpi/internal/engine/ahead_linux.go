package engine

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ahead has small frames of a TCP link go as datagrams, ahead of its stream. A message
// takes a quarter less time so: UDP has nothing to acknowledge, to time or to keep.
//
// The stream is the truth, and gets every frame in its turn. A datagram is an early copy
// of the frame that is at one place of the stream; who has had it there passes over it
// when the stream brings it. The stream may take its time for that: what has gone ahead
// is kept, and written all together when something else is written, when keptMost bytes
// are there, or when the helper ticks. So nothing is acknowledged and nothing lost: a
// datagram that does not arrive has the frame come with the stream, some ms later, which
// is sooner than TCP would find that out by its clock.
//
// A frame goes ahead only in answer, when something has come since the last was sent: for
// many in a row the stream is faster. And only to a peer that is so near that what is
// saved counts: through a tunnel made of software it does not, and having everything
// twice costs more. And only when both ends have heard each other's datagrams, since there
// are firewalls. Each tells the other how many have come; who hears of too few sends no
// more.
//
// A datagram, numbers little-endian:
//
//	 0 word   uint64  the receiver's, from its hello; only its peer knows it
//	 8 place  uint64  where in the stream the frame begins, in bytes from the hello's end
//	16 got    uint32  frames of the receiver's that have come here in datagrams
//	20 flags  uint8   1: datagrams of the receiver's have come
//	21 zero   3 bytes
//	24 frame          all of one, or nothing
type ahead struct {
	system       *epoll
	w            *tcpWire // nil: the connection is no link yet
	fd           int
	own, theirs  uint64 // words
	heard, both  bool   // the peer; and it us, too
	on           bool   // frames go ahead
	vain         bool   // and never will again
	looks        uint   // times that it was looked at whether they may
	streams      uint   // reads of the stream
	probes       int    // datagrams without a frame that were to be heard
	turn         bool   // something has come since we wrote last
	last         bool   // and that as a datagram
	kept         []byte // has gone ahead, and not yet to the stream
	listed       bool   // by the engine, as having such
	sent         uint64 // bytes of the stream that frames written so far take, kept or not
	came         uint64 // and that frames delivered here take
	read         uint64 // of those, what the stream has brought itself
	early        []byte // a frame that came before what is before it; empty: none
	earlyAt      uint64
	thrown       uint32 // frames that went ahead
	arrived      uint32 // how many of them have come, as far as the peer has said
	excused      uint32 // how many need not have
	got, told    uint32 // frames of the peer's that came in datagrams, and what it knows of
	buf          [aheadHeader + aheadMost]byte
	local, other net.Addr // of the connection
}

const (
	aheadHeader = 24
	aheadMost   = 1200 // bytes of a frame: a datagram that IPv6's least MTU carries whole (RFC 8200 §5)
	keptMost    = 16 << 10
	mostAhead   = 256 // links of an engine that have it, each of which takes a descriptor

	aheadHeard = 1 // flag

	lookAfter = 256 // reads of the stream, or writes of what is kept, it is looked at again

	mostProbes  = 8
	tellAfter   = 8  // frames that came, the peer is told without one to send
	mostVain    = 32 // frames that went ahead and did not arrive: then no more do
	excuseAfter = 64 // that did excuse one that did not
)

// nearAhead is the round trip from which on nothing goes ahead: more have several switches
// on their way, or a tunnel made of software.
var nearAhead = 25 * time.Microsecond

// openAhead makes this end of what is to go ahead of a connection, if it is to: of a
// link that is alone, since otherwise there is another way, and to a peer that is not far
// away, as far as that is known. Nil: nothing does.
func (e *Engine) openAhead(conns []net.Conn) *ahead {
	if e.cfg.StreamsOnly || e.poll == nil || len(conns) != 1 || e.poll.aheads.Load() >= mostAhead {
		return nil
	}
	t, ok := conns[0].(*net.TCPConn)
	if !ok || roundTrip(t) >= farAway {
		return nil
	}
	local, _ := t.LocalAddr().(*net.TCPAddr)
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: local.IP, Zone: local.Zone})
	if err != nil {
		e.log.Debug("no datagrams", "err", err)
		return nil
	}
	defer u.Close()
	fd, err := takeDescriptor(u)
	if err != nil {
		e.log.Debug("no datagrams", "err", err)
		return nil
	}
	var word [8]byte
	_, _ = rand.Read(word[:]) // it cannot fail
	e.poll.aheads.Add(1)
	return &ahead{system: e.poll, fd: fd, own: binary.LittleEndian.Uint64(word[:]), local: u.LocalAddr(), other: t.RemoteAddr()}
}

// offer puts into a hello what the peer has to know.
func (a *ahead) offer(h *hello) {
	if a != nil {
		h.slots, h.addr = uint32(a.local.(*net.UDPAddr).Port), a.own
	}
}

// meet takes the peer's offer from its hello, or gives up and returns nil: it has none.
func (a *ahead) meet(h *hello) *ahead {
	if a == nil {
		return nil
	}
	if h.slots == 0 || h.slots > 65535 || unix.Connect(a.fd, sockaddr(a.other.(*net.TCPAddr), int(h.slots))) != nil {
		a.close()
		return nil
	}
	a.theirs = h.addr
	return a
}

// sockaddr is a port at the address of who is at the other end of a connection.
func sockaddr(at *net.TCPAddr, port int) unix.Sockaddr {
	if ip := at.IP.To4(); ip != nil {
		return &unix.SockaddrInet4{Port: port, Addr: [4]byte(ip)}
	}
	s := &unix.SockaddrInet6{Port: port, Addr: [16]byte(at.IP.To16())}
	if i, err := net.InterfaceByName(at.Zone); err == nil {
		s.ZoneId = uint32(i.Index)
	}
	return s
}

// give has the wire of the connection use it.
func (a *ahead) give(ws []wire) {
	if a != nil {
		a.w = ws[0].(*tcpWire)
		a.w.ahead = a
	}
}

func (a *ahead) close() {
	if a == nil || a.fd < 0 {
		return
	}
	if a.w != nil && a.w.c != nil {
		a.system.remove(a.fd)
	}
	a.system.aheads.Add(-1)
	unix.Close(a.fd)
	a.fd = -1
}

// plug has it polled.
func (a *ahead) plug() error {
	if err := a.system.add(a.fd, unix.EPOLLIN, a); err != nil {
		return err
	}
	a.probe()
	return nil
}

// probe sends a datagram without a frame, so that the peer hears of us.
func (a *ahead) probe() {
	if a.hopeful() {
		a.probes++
		a.send(nil, nil)
	}
}

// hopeful reports whether datagrams may still be found to arrive.
func (a *ahead) hopeful() bool { return a.probes < mostProbes }

// throw sends a frame ahead, and reports whether it has.
func (a *ahead) throw(e *Engine, hdr, payload []byte) bool {
	// A helper that sleeps as driver would not write it: see writeAhead.
	if !a.on || !a.turn || !forerun(kind(hdr[0])) || e.helper.asleep {
		return false
	}
	if a.thrown-a.arrived-a.excused > mostVain {
		a.on, a.vain = false, true
		e.log.Debug("datagrams do not arrive: going on without", "proc", a.w.c.peer.proc)
		return false
	}
	if !a.send(hdr, payload) {
		return false
	}
	a.thrown++
	a.turn = false
	if !a.listed {
		a.listed = true
		e.poll.keeping = append(e.poll.keeping, a)
		if e.helperRests { // nobody else has it written
			e.helperRests, e.helperLater = false, true
			e.callHelper()
		}
	}
	if a.kept == nil {
		a.kept = make([]byte, 0, keptMost+aheadMost)
	}
	a.kept = append(append(a.kept, hdr...), payload...)
	a.sent += uint64(len(hdr) + len(payload))
	return true
}

// forerun reports whether frames of a kind may go ahead. The end of a link may not, and
// what is followed by much in the stream need not.
func forerun(k kind) bool { return k == kindEager || k == kindSync || k == kindFin || k == kindPost }

// send makes a datagram of a frame, or of nothing.
func (a *ahead) send(hdr, payload []byte) bool {
	b := a.w.small[:]
	binary.LittleEndian.PutUint64(b, a.theirs)
	binary.LittleEndian.PutUint64(b[8:], a.sent)
	binary.LittleEndian.PutUint32(b[16:], a.got)
	binary.LittleEndian.PutUint32(b[20:], 0)
	if a.heard {
		b[20] = aheadHeard
	}
	n := aheadHeader
	n += copy(b[n:], hdr)
	n += copy(b[n:], payload)
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(a.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(n), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 { // what is amiss with the peer the stream will say
		return false
	}
	a.told = a.got
	return true
}

// write gives the stream what has gone ahead of it, and reports whether it has taken
// all of that.
func (a *ahead) write() (bool, error) {
	w := a.w
	for len(a.kept) > 0 && !w.full {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(w.fd), uintptr(unsafe.Pointer(&a.kept[0])), uintptr(len(a.kept)), unix.MSG_NOSIGNAL, 0, 0)
		if errno != 0 {
			if err := w.refused(errno); err != nil {
				return false, err
			}
			n = 0
		}
		a.kept = a.kept[:copy(a.kept, a.kept[n:])]
	}
	return len(a.kept) == 0, nil
}

// event implements sink.
func (a *ahead) event(e *Engine, _ uint32) bool {
	if a.w.c.broken {
		return false
	}
	did, err := a.poll(e)
	if err != nil {
		e.breakLink(a.w.c, err)
	}
	return did
}

// poll hears a datagram, if one has come, and reports whether it brought a frame.
func (a *ahead) poll(e *Engine) (bool, error) {
	n, errno := a.receive()
	if errno != 0 {
		return false, nil // it is about a datagram of ours, and the stream will say what is amiss
	}
	return a.hear(e, a.buf[:n])
}

// receive gets a datagram into buf. Of one that is too long for any of the peer's there
// is the beginning, which will be found out.
func (a *ahead) receive() (n uintptr, errno syscall.Errno) {
	n, _, errno = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(a.fd), uintptr(unsafe.Pointer(&a.buf[0])), uintptr(len(a.buf)), unix.MSG_DONTWAIT, 0, 0)
	return n, errno
}

// hear takes a datagram, and reports whether it brought the frame that is next. What is
// not the peer's is dropped.
func (a *ahead) hear(e *Engine, b []byte) (bool, error) {
	if len(b) < aheadHeader || binary.LittleEndian.Uint64(b) != a.own {
		return false, nil
	}
	if heard := b[20]&aheadHeard != 0; !a.heard || heard && !a.both {
		a.heard, a.both = true, heard
		a.look()
		a.send(nil, nil)
	}
	a.acknowledged(binary.LittleEndian.Uint32(b[16:]))
	place, frame := binary.LittleEndian.Uint64(b[8:]), b[aheadHeader:]
	if len(frame) == 0 {
		return false, nil
	}
	if a.got++; a.got-a.told >= tellAfter {
		a.send(nil, nil)
	}
	switch {
	case place > a.came:
		a.early, a.earlyAt = append(a.early[:0], frame...), place
		return false, nil
	case place < a.came: // the stream was faster
		return false, nil
	}
	a.last = true
	return true, a.deliver(e, frame)
}

// look has frames go ahead if they may, or no more.
func (a *ahead) look() {
	rtt := systemRoundTrip(a.w.fd)
	a.on = a.both && !a.vain && rtt > 0 && rtt < nearAhead
}

// acknowledged is told how many of our frames have come: copies count as well.
func (a *ahead) acknowledged(n uint32) {
	was := a.arrived
	if int32(n-was) <= 0 { // it is late
		return
	}
	if n-was > a.thrown-was {
		n = a.thrown
	}
	a.arrived = n
	a.excused = min(a.excused+n/excuseAfter-was/excuseAfter, a.thrown-a.arrived)
}

// deliver gives the engine the frame that is next in the stream.
func (a *ahead) deliver(e *Engine, frame []byte) error {
	if a.w.within || a.w.end > 0 {
		return fmt.Errorf("%w: a datagram in the middle of a frame", errViolation)
	}
	a.came += uint64(len(frame))
	a.turn = true
	took, within, err := e.incoming(a.w.c, frame, false)
	if err == nil && (within || took != len(frame)) {
		err = fmt.Errorf("%w: a datagram of %d bytes with a frame of %d", errViolation, len(frame), took)
	}
	if err != nil {
		return err
	}
	return a.deliverEarly(e)
}

// deliverEarly is deliver of what has come early, if it is next now.
func (a *ahead) deliverEarly(e *Engine) error {
	frame := a.early
	if len(frame) == 0 || a.earlyAt > a.came || a.w.c.broken || a.w.c.peer.state != up {
		return nil
	}
	a.early = nil
	if a.earlyAt < a.came {
		return nil
	}
	return a.deliver(e, frame)
}

// pass passes over what the stream brings that has come before, by one system call.
// It reports whether there was anything to pass over.
func (a *ahead) pass() (bool, error) {
	left := a.came - a.read
	if left == 0 {
		return false, nil
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(a.w.fd), 0, uintptr(left), unix.MSG_TRUNC, 0, 0)
	if err := streamError(n, errno); err != nil {
		return true, err
	}
	a.read += uint64(n)
	return true, nil
}

// streamed counts what the stream has brought. What came early may be next now.
func (a *ahead) streamed(e *Engine, n int) error {
	a.came += uint64(n)
	a.read = a.came
	a.last = false
	if a.streams++; !a.both && a.streams&(a.streams-1) == 0 { // what has come shows that the peer is there now
		a.probe()
	} else if a.both && a.streams%lookAfter == 0 {
		a.look()
	}
	return a.deliverEarly(e)
}

// rest hears all that has come when the stream has ended: its end is of what was sent
// last, which may have gone ahead only.
func (a *ahead) rest(e *Engine) {
	for a.fd >= 0 && !a.w.c.broken && a.w.c.peer.state == up {
		n, errno := a.receive()
		if errno != 0 {
			return
		}
		if _, err := a.hear(e, a.buf[:min(n, uintptr(len(a.buf)))]); err != nil {
			return
		}
	}
}

// writeAhead gives streams what has gone ahead of them. The helper does so at each tick,
// and before it sleeps as driver, from when on nothing goes ahead.
func (e *Engine) writeAhead() {
	if e.poll == nil {
		return
	}
	for i, a := range e.poll.keeping {
		e.poll.keeping[i], a.listed = nil, false
		if a.fd < 0 || a.w.c.broken {
			continue
		}
		if a.looks++; a.looks%lookAfter == 0 {
			a.look()
		}
		if _, err := a.write(); err != nil {
			e.breakLink(a.w.c, err)
		}
	}
	e.poll.keeping = e.poll.keeping[:0]
}
