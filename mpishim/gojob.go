package mpishim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// goJob is a job under way. The goroutine of run owns it: others post functions
// to it. What a rank says goes to the screen directly, so that a rank that is
// louder than the terminal waits, and nobody else.
type goJob struct {
	p      Plan
	s      Streams
	remote Remote
	ctx    context.Context // of everything that serves the job
	cancel context.CancelFunc
	scr    *screen
	names  *pmi.Names

	universe int
	turn     int // of nodes, for spawned ranks
	nodes    []*goNode
	worlds   []*goWorld
	procs    []*goProc // by number
	left     int       // processes that have not ended
	serving  sync.WaitGroup

	ending bool // the nodes are told to end
	verdict
	*mailbox
	credit chan struct{} // of size inputWindow: room for frames of input
}

// mailbox takes functions for the goroutine that owns a job, without blocking:
// there are a few for each process and node.
type mailbox struct {
	mu     sync.Mutex // guards what follows
	posted []func()
	labels map[int]*goProc // by number, for the screen
	wake   chan struct{}   // size 1: something is posted
}

// post has f run by the owner, in order.
func (m *mailbox) post(f func()) {
	m.mu.Lock()
	m.posted = append(m.posted, f)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.posted
	m.posted = nil
	return list
}

func newGoJob(ctx context.Context, p Plan, s Streams, remote Remote) *goJob {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // its end is a signal: nothing is cut before
	j := &goJob{
		p: p, s: s, remote: remote, ctx: ctx, cancel: cancel, scr: newScreen(s.Out, s.Err, p.Verbose), names: pmi.NewNames(),
		mailbox: &mailbox{labels: map[int]*goProc{}, wake: make(chan struct{}, 1)},
		credit:  make(chan struct{}, inputWindow),
	}
	for _, pl := range p.Places {
		j.universe += max(pl.Ranks, pl.Host.Cores)
	}
	if p.Tag {
		j.scr.label = func(id int) string {
			j.mu.Lock()
			defer j.mu.Unlock()
			return j.labels[id].tag()
		}
	}
	return j
}

// know adds a process.
func (j *goJob) know(g *goProc) {
	j.procs = append(j.procs, g)
	j.left++
	j.mu.Lock()
	j.labels[int(g.id)] = g
	j.mu.Unlock()
}

// close ends what still serves the job.
func (j *goJob) close() {
	j.end()
	j.cut()
	for _, n := range j.nodes {
		<-n.done
	}
	j.cancel()
	j.serving.Wait()
}

// run follows the job to its end. Who is asked to end and does not is made to.
func (j *goJob) run(ctx context.Context) (int, error) {
	done := ctx.Done()
	var force, stuck <-chan time.Time
	asked, told := false, false // ranks by a signal, nodes by hanging up
	for !j.over() {
		select {
		case <-j.wake:
			for _, f := range j.take() {
				f()
			}
		case <-done:
			done = nil
			j.signal(syscall.SIGTERM)
		case s := <-j.s.Signals:
			if sig, ok := s.(syscall.Signal); ok {
				j.signal(sig)
			}
		case <-force:
			if j.ending {
				j.cut()
			}
			j.end()
		case <-stuck:
			j.scr.giveUpStill()
			stuck = time.After(stuckTime)
		}
		if j.left == 0 {
			j.settle()
			j.end()
		}
		switch {
		case j.ending && !told:
			told, force = true, time.After(ranksGrace+afterDeath)
		case j.sig != 0 && !asked && !told:
			asked, force = true, time.After(afterSignal)
		}
		if j.sig != 0 && stuck == nil { // what was said is for whoever reads, until the user ends it
			stuck = time.After(stuckTime)
		}
	}
	return j.outcome()
}

// cut ends the nodes' agents by force.
func (j *goJob) cut() {
	for _, n := range j.nodes {
		n.hangUp()
		n.cancel()
	}
}

// over reports whether all nodes have ended.
func (j *goJob) over() bool {
	for _, n := range j.nodes {
		if !n.over {
			return false
		}
	}
	return true
}

// signal passes a signal to all ranks; those that end jobs end this one, the
// second at once.
func (j *goJob) signal(sig syscall.Signal) {
	if ends(sig) {
		j.endWorlds()
	}
	for _, g := range j.procs {
		if !g.ended {
			g.node.send(frame{frameSignal, g.id, []byte{byte(sig)}})
		}
	}
	if ends(sig) {
		if j.sig != 0 {
			j.end()
		}
		j.sig = sig
	}
}

// end has every node end what runs there.
func (j *goJob) end() {
	j.ending = true
	j.endWorlds()
	for _, n := range j.nodes {
		n.finish()
	}
}

// endWorlds tells all servers that ranks are being ended.
func (j *goJob) endWorlds() {
	for _, w := range j.worlds {
		w.srv.End()
	}
}

// takeInput sends our standard input to rank 0, as fast as that reads.
func (j *goJob) takeInput() {
	if j.s.Stdin == nil || len(j.worlds[0].procs) == 0 {
		return
	}
	g, in := j.worlds[0].procs[0], j.s.Stdin
	go func() { // ends with the input, or with the job as soon as something is read
		if inBackground(in) {
			g.node.send(frame{frameInput, g.id, nil})
			return
		}
		buf := make([]byte, maxFrame/4)
		for {
			select {
			case j.credit <- struct{}{}:
			case <-j.ctx.Done():
				return
			}
			n, err := in.Read(buf)
			if n > 0 {
				g.node.send(frame{frameInput, g.id, append([]byte(nil), buf[:n]...)})
			}
			if err != nil {
				g.node.send(frame{frameInput, g.id, nil})
				return
			}
		}
	}()
}

// taken gives one frame of input back.
func (j *goJob) taken() {
	select {
	case <-j.credit:
	default: // an agent that says more than it should
	}
}

// inBackground reports whether reading from f would stop us: it is a terminal
// and another job has it.
func inBackground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

func newSecret() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// errors is where lines of our own go, whole.
func (s *screen) errors() io.Writer { return ownLines{s} }

type ownLines struct{ s *screen }

// Write implements io.Writer.
func (o ownLines) Write(p []byte) (int, error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.s.open[1] != launcherItself { // a rank's unfinished line
		p = append([]byte("\n"), p...)
		o.s.open[1] = launcherItself
	}
	o.s.put(2, p)
	return len(p), nil
}
