package mpi

import (
	"context"
	"errors"
	"fmt"
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
	calls int32 // and of the next connection that this process makes
}

// The context in which processes meet that have no communicator in common, and
// what sets the tags of what they agree on apart from those of ports.
const (
	ctxMeeting engine.Context = 2 * contextsPerComm
	callTag                   = 1 << 30
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
	if magic != portMagic || !ok || bad != nil || n < 0 || n >= callTag {
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
	var peer engine.Proc
	var tag int32
	return c.meet(op, root, func(mine []int64) ([]int64, error) {
		if tag == 0 {
			var err error
			if peer, tag, err = c.w.answer(op, port); err != nil {
				return nil, err
			}
		}
		return c.w.trade(ctxMeeting, peer, mine, tag)
	})
}

// answer waits for a call at a port, and returns who it is and the tag to talk to
// it by.
func (w *World) answer(op, port string) (engine.Proc, int32, error) {
	at, _, err := parsePort(port)
	w.spawning.mu.Lock()
	open := w.spawning.ports[at]
	w.spawning.mu.Unlock()
	if err != nil || !open {
		return 0, 0, fail(op, ErrPort, "%.40q is no open port of this process", port)
	}
	msg, st, err := w.eng.Mprobe(engine.AnyProc, ctxMeeting, at)
	if err != nil {
		return 0, 0, err
	}
	call := make([]int64, st.Bytes/8)
	if _, err := w.eng.Mrecv(msg, &engine.RecvArgs{Buf: bytesOf(call), Swap: swapInt64}); err != nil {
		return 0, 0, err
	}
	if len(call) < 2 || call[0] < 0 || call[0] >= callTag {
		return 0, 0, fail(op, ErrPort, "a call of %d numbers is none", len(call))
	}
	procs, err := w.procsOf(call[1:])
	if err != nil {
		return 0, 0, err
	}
	return procs[0], callTag | int32(call[0]), nil
}

// Connect makes an intercommunicator with the processes that Accept at a port. It
// is collective; only the root's port is used.
func (c *Comm) Connect(port string, root int) (*Comm, error) {
	const op = "Connect"
	if err := c.intraRoot(op, root); err != nil {
		return nil, err
	}
	var peer engine.Proc
	var tag int32
	d, err := c.meet(op, root, func(mine []int64) ([]int64, error) {
		if tag == 0 {
			var err error
			if peer, tag, err = c.w.call(op, port); err != nil {
				return nil, err
			}
		}
		return c.w.trade(ctxMeeting, peer, mine, tag)
	})
	if errors.Is(err, ErrProcFailed) {
		return nil, &Error{Op: op, Class: ErrPort, Peer: -1, Err: err}
	}
	return d, err
}

// call says at a port that we are there.
func (w *World) call(op, port string) (engine.Proc, int32, error) {
	at, rec, err := parsePort(port)
	if err != nil {
		return 0, 0, &Error{Op: op, Class: ErrPort, Peer: -1, Err: err}
	}
	procs, err := w.procsOf(packText(rec))
	if err != nil {
		return 0, 0, &Error{Op: op, Class: ErrPort, Peer: -1, Err: err}
	}
	w.spawning.mu.Lock()
	n := w.spawning.calls
	w.spawning.calls = (n + 1) % callTag
	w.spawning.mu.Unlock()
	call := append([]int64{int64(n)}, w.namesOf([]engine.Proc{engine.Proc(w.launcher.Rank())})...)
	return procs[0], callTag | n, w.eng.Send(&engine.SendArgs{To: procs[0], Context: ctxMeeting, Tag: at, Data: bytesOf(call)})
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
// are used.
func (c *Comm) Spawn(root int, programs ...Program) (*Comm, error) {
	const op = "Spawn"
	if err := c.intraRoot(op, root); err != nil {
		return nil, err
	}
	var port string
	started := []int64{1}
	var why error
	if c.rank == root {
		if port, why = c.w.startJob(programs); why != nil {
			started[0] = 0
		}
	}
	if err := c.circle().share(started, root); err != nil {
		return nil, c.wrap(op, -1, err)
	}
	if started[0] == 0 {
		if why == nil {
			why = errors.New("the root could not start it")
		}
		return nil, &Error{Op: op, Class: ErrSpawn, Peer: -1, Err: why}
	}
	d, err := c.Accept(port, root)
	if c.rank == root {
		_ = c.w.ClosePort(port) // was opened for this
	}
	return d, err
}

// startJob asks the launcher for a job that will connect to the port returned.
func (w *World) startJob(programs []Program) (port string, err error) {
	var req pmi.SpawnRequest
	for _, p := range programs {
		req.Apps = append(req.Apps, pmi.SpawnApp{N: p.N, Prog: p.Path, Args: p.Args, Info: p.Info})
	}
	if port, err = w.OpenPort(); err != nil {
		return "", err
	}
	req.Keys = map[string]string{parentKey: port}
	codes, err := w.launcher.Spawn(context.Background(), req)
	for i, c := range codes {
		if c != 0 && err == nil {
			err = fmt.Errorf("process %d of the new job did not start: code %d", i, c)
		}
	}
	if err != nil {
		_ = w.ClosePort(port) // was opened for this
	}
	return port, err
}

// meetParent joins a spawned job to the one that spawned it.
func (w *World) meetParent() error {
	port, err := w.launcher.Get(parentKey)
	if err != nil {
		return fmt.Errorf("the port of the parent: %w", err)
	}
	w.parent, err = w.world.Connect(port, 0)
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
