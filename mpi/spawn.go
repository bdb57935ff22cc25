package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// Dynamic processes (MPI 4.1 chapter 11): jobs that are started by jobs, and jobs
// that find each other by a port.

// spawning is what a process has of ports.
type spawning struct {
	mu    sync.Mutex // guards what follows
	ports map[int32]bool
	next  int32 // number of the next port
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

// OpenPort makes a port that Connect of other processes finds this one by. Its
// name is a line of text of up to some kilobytes.
func (w *World) OpenPort() (string, error) {
	if w.finalized.Load() {
		return "", &Error{Op: "OpenPort", Class: ErrNotInitialized, Peer: -1}
	}
	s := &w.spawning
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports == nil {
		s.ports = map[int32]bool{}
	}
	n := s.next
	s.next++
	s.ports[n] = true
	return fmt.Sprintf("%s %d %s", portMagic, n, w.selfRecord()), nil
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
	if !s.ports[tag] {
		return fail("ClosePort", ErrPort, "the port is not open")
	}
	delete(s.ports, tag)
	return nil
}

// PublishName makes a port known to the launcher's other jobs by a name of a
// service.
func (w *World) PublishName(service, port string) error {
	if err := w.launcher.Publish(service, port); err != nil {
		return &Error{Op: "PublishName", Class: ErrService, Peer: -1, Err: err}
	}
	return nil
}

// UnpublishName takes a name back.
func (w *World) UnpublishName(service string) error {
	if err := w.launcher.Unpublish(service); err != nil {
		return &Error{Op: "UnpublishName", Class: ErrService, Peer: -1, Err: err}
	}
	return nil
}

// LookupName returns the port that was published by a name.
func (w *World) LookupName(service string) (port string, err error) {
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
		l, err := o.listenAt(op, port)
		if err != nil {
			return nil, err
		}
		return l.answer()
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
	open := o.w.spawning.ports[at]
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

// intraRoot looks at a root of an ordinary communicator.
func (c *Comm) intraRoot(op string, root int) error {
	if err := c.usable(op); err != nil {
		return err
	}
	if c.Inter() {
		return fail(op, ErrComm, "this is an intercommunicator")
	}
	return c.checkRoot(op, root)
}

// Program is one of a job to be started. Info are hints that the launcher knows,
// such as wdir and host (MPI 4.1 §11.8.4).
type Program struct {
	N    int // processes
	Path string
	Args []string
	Info map[string]string
}

// Spawn starts another job and makes an intercommunicator with its processes,
// who find theirs by World.Parent. It is collective; only the root's programs
// are used. Where one of the processes ends before the new job has met this one, in its
// Init or Run, it fails with ErrSpawn: because there is no such program, or it is none of
// MPI, or dies. What has been started of a job whose Spawn fails is ended by meshrun;
// another launcher's processes fail in Init.
func (c *Comm) Spawn(root int, programs ...Program) (*Comm, error) {
	const op = "Spawn"
	if err := c.intraRoot(op, root); err != nil {
		return nil, err
	}
	o := c.making()
	var s start
	d, err := o.meet(op, root, c.group, func() (*circle, error) { return s.reach(o, op, programs) })
	if err == nil {
		if err = s.confirmed(o); err != nil {
			d.discard()
			d = nil
		}
	}
	d, err = o.made(d, err)
	s.over(o, err)
	return d, c.wrap(op, -1, err)
}

// start is a job being started, at the process that has the launcher do that; nothing at
// the others.
type start struct {
	port     string // that the job calls at
	withdraw context.CancelFunc
	launched chan error // size 1: what the launcher says in the end
}

// reach has the launcher start a job, and returns how to talk to that when it calls.
func (s *start) reach(o *circle, op string, programs []Program) (*circle, error) {
	req := pmi.SpawnRequest{Joins: true}
	for _, p := range programs {
		req.Apps = append(req.Apps, pmi.SpawnApp{N: p.N, Prog: p.Path, Args: p.Args, Info: p.Info})
	}
	port, err := o.w.OpenPort()
	if err != nil {
		return nil, err
	}
	s.port, req.Keys = port, map[string]string{parentKey: port}
	l, err := o.listenAt(op, port)
	if err != nil || l.ended() {
		return nil, cmp.Or(err, l.wait())
	}
	var ctx context.Context
	ctx, s.withdraw = context.WithCancel(context.Background()) // that of a view ends what listens
	s.launched = make(chan error, 1)
	go func() { // ends when the launcher has answered or s is over
		err := launch(ctx, op, o.w.launcher, req)
		s.launched <- err
		if err != nil {
			o.w.eng.Do(func(op *engine.Op) {
				if !l.stop(op, err) { // the job has called before it ended
					o.lose(op, errFarLost{err})
				}
			})
		}
	}()
	return l.answer()
}

// launch asks a launcher for a job.
func launch(ctx context.Context, op string, by Launcher, req pmi.SpawnRequest) error {
	codes, err := by.Spawn(ctx, req)
	for i, c := range codes {
		if c != 0 && err == nil {
			err = fmt.Errorf("process %d of the new job did not start: code %d", i, c)
		}
	}
	if err != nil {
		return &Error{Op: op, Class: ErrSpawn, Peer: -1, Err: err}
	}
	return nil
}

// confirmed waits until the launcher counts the job, which we have met, as started: what
// ends there from then on is not ours to tell.
func (s *start) confirmed(o *circle) error {
	if s.launched == nil {
		return nil
	}
	l, err := o.listen(o.w.self.group.self, unsentTag, 0)
	if err != nil {
		return err
	}
	go func() { // ends when the launcher has answered or s is over
		err := <-s.launched
		s.launched <- err // for over
		if err == nil {
			o.w.eng.Do(func(op *engine.Op) { l.stop(op, nil) })
		}
	}()
	return l.wait()
}

// over ends what the start needed. After an error nobody is to wait for the job, nor the
// job for us.
func (s *start) over(o *circle, err error) {
	if s.port != "" {
		_ = o.w.ClosePort(s.port) // was opened for this
	}
	if s.withdraw == nil {
		return
	}
	s.withdraw()
	if err == nil || o.far != nil {
		return
	}
	select {
	case err = <-s.launched: // an error: there will be nobody to call
	default:
		err = nil // not known
	}
	if err == nil {
		o.refuse(s.port)
	}
}

// errFarLost is why the other side's processes are gone.
type errFarLost struct{ error }

func (e errFarLost) Unwrap() []error { return []error{e.error, errFarDeath{}} }

// joiner is a launcher that is told when a spawned job has met the one that spawned it,
// or why not, and ends the job then. A [pmi.Client] is one.
type joiner interface{ Joined(err error) error }

// meetParent joins a spawned job to the one that spawned it.
func (w *World) meetParent() error {
	port, err := w.launcher.Get(parentKey)
	if err != nil {
		err = fmt.Errorf("the port of the parent: %w", err)
	} else {
		w.parent, err = w.world.Connect(port, 0)
	}
	if j, ok := w.launcher.(joiner); ok && (err != nil || w.launcher.Rank() == 0) {
		if told := j.Joined(err); err == nil {
			err = told
		}
	}
	return err
}

// Parent returns the intercommunicator with the processes that spawned this job;
// nil if none did.
func (w *World) Parent() *Comm { return w.parent }

// Disconnect is Free that waits until all members have called it.
func (c *Comm) Disconnect() error {
	if err := Barrier(c); err != nil {
		return err
	}
	return c.Free()
}
