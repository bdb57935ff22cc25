package mpi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Jobs that find each other by a port (MPI 4.1 §11.9), and the calls at ports by which
// those that are started by others do as well (spawn.go).

// spawning is what a process has of ports.
type spawning struct {
	mu    sync.Mutex       // guards what follows
	ports map[int32]string // their names
	next  int32            // number of the next port
}

// The context in which processes meet that have no communicator in common, and
// what sets the tags of what they agree on apart from those of ports.
const (
	ctxMeeting engine.Context = 2 * contextsPerComm
	callTag                   = 1 << 30
	unsentTag                 = callTag - 1 // of nothing
)

const (
	portMagic = "mpi1"
	parentKey = "mpi-parent" // where a spawned job finds its parent's port
)

// open reports whether the library is in use still.
func (w *World) open(op string) error {
	if w.finalized.Load() {
		return &Error{Op: op, Class: ErrNotInitialized, Peer: -1}
	}
	return nil
}

// OpenPort makes a port that Connect of other processes finds this one by. Its
// name is a line of text of up to some kilobytes.
func (w *World) OpenPort() (string, error) {
	if err := w.open("OpenPort"); err != nil {
		return "", err
	}
	s := &w.spawning
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports == nil {
		s.ports = map[int32]string{}
	}
	n := s.next
	s.next++
	s.ports[n] = fmt.Sprintf("%s %d %s", portMagic, n, w.selfRecord())
	return s.ports[n], nil
}

func (w *World) selfRecord() string {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	return w.table.records[w.launcher.Rank()].encode()
}

// parsePort takes a port's name apart.
func parsePort(name string) (tag int32, rec string, err error) {
	magic, rest, _ := strings.Cut(name, " ")
	number, rec, ok := strings.Cut(rest, " ")
	n, bad := strconv.ParseInt(number, 10, 31)
	if magic != portMagic || !ok || bad != nil || n < 0 || n >= unsentTag {
		return 0, "", fmt.Errorf("%.40q is no name of a port", name)
	}
	return int32(n), rec, nil
}

// ClosePort gives a port of this process up.
func (w *World) ClosePort(name string) error {
	tag, _, err := parsePort(name)
	if err != nil {
		return &Error{Op: "ClosePort", Class: ErrPort, Peer: -1, Err: err}
	}
	s := &w.spawning
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[tag] != strings.TrimSpace(name) {
		return fail("ClosePort", ErrPort, "the port is not open")
	}
	delete(s.ports, tag)
	return nil
}

// PublishName makes a port known to the launcher's other jobs by a name of a
// service.
func (w *World) PublishName(service, port string) error {
	if err := w.open("PublishName"); err != nil {
		return err
	}
	if err := w.launcher.Publish(service, port); err != nil {
		return &Error{Op: "PublishName", Class: ErrService, Peer: -1, Err: err}
	}
	return nil
}

// UnpublishName takes a name back.
func (w *World) UnpublishName(service string) error {
	if err := w.open("UnpublishName"); err != nil {
		return err
	}
	if err := w.launcher.Unpublish(service); err != nil {
		return &Error{Op: "UnpublishName", Class: ErrService, Peer: -1, Err: err}
	}
	return nil
}

// LookupName returns the port that was published by a name.
func (w *World) LookupName(service string) (port string, err error) {
	if err := w.open("LookupName"); err != nil {
		return "", err
	}
	port, err = w.launcher.Lookup(service)
	if err != nil {
		return "", &Error{Op: "LookupName", Class: ErrName, Peer: -1, Err: err}
	}
	return port, nil
}

// Accept waits at a port of the root for another group of processes to Connect,
// and makes an intercommunicator with them. It is collective; only the root's
// port is used.
func (c *Comm) Accept(port string, root int) (*Comm, error) {
	const op = "Accept"
	if err := c.intraRoot(op, root); err != nil {
		return nil, err
	}
	o := c.making()
	d, err := o.meet(op, root, c.group, func() (*circle, error) {
		for {
			l, err := o.listenAt(op, port)
			if err != nil {
				return nil, err
			}
			far, err := l.answer()
			var gone errFarDeath
			if o.far == nil || !errors.As(err, &gone) || gone.by != l.run.source {
				return far, err
			}
			o.far = nil // who called has given that up since: the next
		}
	})
	d, err = o.made(d, err)
	return d, c.wrap(op, -1, err)
}

// A call at a port is two messages: the number of the call and how long the other is,
// with the tag of the port; and who calls, with a tag of the call's own, by which the
// two leaders talk from then on.
const (
	callNumber = iota
	callSize
	callNumbers
)

// listener is a wait for a message that need not come: who is not a member ends it as well.
type listener struct {
	o   *circle
	run *run
	buf []int64
}

// listen begins to wait for n numbers from a process, in the context of meetings.
func (o *circle) listen(from engine.Proc, tag int32, n int) (*listener, error) {
	l := &listener{o: o, buf: make([]int64, n)}
	l.run = o.pair(from, idMeeting, ctxMeeting, tag).receiving(l.buf)
	return l, l.run.begin()
}

// wait returns why the wait has ended; nil: the message is there, or it was stopped
// with nil.
func (l *listener) wait() error {
	_, err := l.o.w.eng.Wait(l.run.id)
	return err
}

// ended reports whether it has: wait will not block.
func (l *listener) ended() (yes bool) {
	l.o.w.eng.Do(func(*engine.Op) { yes = l.run.ended })
	return yes
}

// stop ends the wait. It reports whether that was under way. The engine is held.
func (l *listener) stop(op *engine.Op, why error) bool {
	if l.run.ended {
		return false
	}
	l.run.giveUp(op, why)
	for _, id := range l.run.messages {
		op.Abandon(id)
	}
	return true
}

// listenAt begins to wait for a call at a port.
func (o *circle) listenAt(op, port string) (*listener, error) {
	at, _, err := parsePort(port)
	o.w.spawning.mu.Lock()
	open := o.w.spawning.ports[at] == strings.TrimSpace(port) // another process has one of that number, too
	o.w.spawning.mu.Unlock()
	if err != nil || !open {
		return nil, fail(op, ErrPort, "%.40q is no open port of this process", port)
	}
	return o.listen(engine.AnyProc, at, callNumbers)
}

// answer waits for the call, and returns how to talk to who calls.
func (l *listener) answer() (*circle, error) {
	if err := l.wait(); err != nil {
		return nil, err
	}
	o := l.o
	far, err := o.called(l.run.source, l.buf)
	if err != nil {
		return nil, err
	}
	o.whole.far = far
	names := make([]int64, l.buf[callSize])
	if _, err := far.receive(names); err != nil {
		return nil, err
	}
	_, err = o.w.procsOf(names) // which makes the process known by its record
	return far, err
}

// called is this process and one that has called at a port.
func (o *circle) called(from engine.Proc, call []int64) (*circle, error) {
	n, size := call[callNumber], call[callSize]
	if n < 0 || n >= callTag || size < 1 || size > mostRecord {
		return nil, fail("Accept", ErrPort, "a call of numbers %d and %d is none", n, size)
	}
	return o.pair(from, idMeeting, ctxMeeting, callTag|int32(n)), nil
}

// refuse has the next who calls at a port of ours fail: nobody will answer.
func (o *circle) refuse(port string) {
	at, _, err := parsePort(port)
	if err != nil {
		return
	}
	call := make([]int64, callNumbers)
	o.w.eng.Do(func(op *engine.Op) {
		_, _ = op.Irecv(&engine.RecvArgs{ // fails in an engine that is closed
			From: engine.AnyProc, Context: ctxMeeting, Tag: at, Buf: bytesOf(call), Swap: swapInt64,
			Done: func(op *engine.Op, st engine.Status, err error) {
				if err != nil {
					return
				}
				if far, err := o.called(st.Source, call); err == nil {
					far.tellAll(op, errFarDeath{})
				}
			},
		})
	})
}

// Connect makes an intercommunicator with the processes that Accept at a port. It
// is collective; only the root's port is used.
func (c *Comm) Connect(port string, root int) (*Comm, error) {
	const op = "Connect"
	if err := c.intraRoot(op, root); err != nil {
		return nil, err
	}
	o := c.making()
	d, err := o.meet(op, root, c.group, func() (*circle, error) { return o.call(op, port) })
	d, err = o.made(d, err)
	if err = c.wrap(op, -1, err); errors.Is(err, ErrProcFailed) {
		return nil, &Error{Op: op, Class: ErrPort, Peer: -1, Err: err}
	}
	return d, err
}

// call says at a port that we are there, and returns how to talk to who answers.
func (o *circle) call(op, port string) (*circle, error) {
	w := o.w
	at, rec, err := parsePort(port)
	if err != nil {
		return nil, &Error{Op: op, Class: ErrPort, Peer: -1, Err: err}
	}
	procs, err := w.procsOf(packText(rec))
	if err != nil {
		return nil, &Error{Op: op, Class: ErrPort, Peer: -1, Err: err}
	}
	n := rand.Int32N(callTag) // the other may call here
	names := w.namesOf([]engine.Proc{engine.Proc(w.launcher.Rank())})
	far := o.pair(procs[0], idMeeting, ctxMeeting, callTag|n)
	o.whole.far = far
	if err := o.pair(procs[0], idMeeting, ctxMeeting, at).send([]int64{int64(n), int64(len(names))}); err != nil {
		return nil, err
	}
	return far, far.send(names)
}

// intraRoot looks at the root of a making, of an ordinary communicator.
func (c *Comm) intraRoot(op string, root int) error {
	if err := c.usable(op); err != nil {
		return err
	}
	if c.Inter() {
		return fail(op, ErrComm, "this is an intercommunicator")
	}
	if err := c.checkRoot(op, root); err != nil {
		return c.misused(err)
	}
	return nil
}

// Disconnect is Free that waits until all members have called it.
func (c *Comm) Disconnect() error {
	if err := Barrier(c); err != nil {
		return err
	}
	return c.Free()
}
