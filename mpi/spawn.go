package mpi

import (
	"cmp"
	"context"
	"fmt"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// Jobs that are started by jobs (MPI 4.1 §11.8).

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
