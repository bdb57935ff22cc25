package mpishim

import (
	"encoding/json"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// verdict is why a job ends otherwise than by itself.
type verdict struct {
	sig    syscall.Signal // the user's
	err    error          // why the launcher failed
	code   int            // where err, or a rank has ended the job
	died   bool           // a rank's end has ended the job
	blamed *fault         // the worst so far; until settle
	heard  int            // notices of servers, to know which rank was first
}

// fault is a rank that did not end as it should.
type fault struct {
	g     *goProc
	words string // after "meshrun: rank 2 on b1"
	code  int
	grave bool // a signal: nothing that another rank's end could have brought about
}

// settleTime is how long the ranks that did not end as they should are collected
// before one is blamed: where one dies the others fail for want of it, and news
// of them from nodes near by is here first.
const settleTime = 300 * time.Millisecond

// exited is a node's word that a process has ended.
func (j *goJob) exited(g *goProc, r exitReport) {
	if g.ended {
		return
	}
	g.ended = true
	j.left--
	came, finished := g.world.srv.Left(g.rank)
	if r.Code == 0 && came && !finished {
		r.Code, r.What = 1, "ended without finalizing MPI"
	}
	if g.cut && r.Code == 128+int(syscall.SIGKILL) {
		r.What = "lost its connection to meshrun, and was killed"
	}
	g.well = finished || r.Code == 0
	if g.code = r.Code; !finished {
		g.world.srv.Died(g.rank, r.Code)
	}
	if (!finished || g.world.joins) && j.fails(g, came, r.What) || r.Code == 0 {
		return
	}
	words := " " + r.What
	if r.PID > 0 {
		words = fmt.Sprintf(" (pid %d) %s", r.PID, r.What)
	}
	j.blame(fault{g: g, words: words, code: r.Code, grave: r.Code > 128}, j.p.FT)
}

// blame says in a line how a rank ended. Unless the job goes on, that is its end,
// once all who ended with it are known.
func (j *goJob) blame(f fault, goOn bool) {
	if j.ending || j.sig != 0 {
		return
	}
	if goOn {
		fmt.Fprintf(j.scr.errors(), "%s%s%s; the job goes on\n", deathMark, f.g.label(), f.words)
		return
	}
	if j.blamed == nil {
		time.AfterFunc(settleTime, func() { j.post(j.settle) })
	}
	if j.blamed == nil || f.before(j.blamed) {
		j.blamed = &f
	}
	if f.grave {
		j.settle()
	}
}

// before reports whether f is the likelier cause of the two.
func (f *fault) before(g *fault) bool {
	if f.grave != g.grave {
		return f.grave
	}
	return f.g.turn() < g.g.turn()
}

// turn orders ranks by when their connections were seen to end.
func (g *goProc) turn() int {
	if g.noticed == 0 {
		return math.MaxInt
	}
	return g.noticed
}

// settle ends the job because of the rank that is blamed, if any is.
func (j *goJob) settle() {
	if j.blamed == nil || j.ending || j.sig != 0 {
		return
	}
	f := j.blamed
	fmt.Fprintf(j.scr.errors(), "%s%s%s\n", deathMark, f.g.label(), f.words)
	j.died, j.code = true, f.code
	j.end()
}

// fencing is how long a process may live on after it was seen to have left.
const fencing = 3 * time.Second

// notice is what a server has seen.
func (j *goJob) notice(w *goWorld, n pmi.Notice) {
	g := w.procs[n.Rank]
	if j.heard++; g.noticed == 0 {
		g.noticed = j.heard
	}
	switch n.Kind {
	case pmi.Aborted:
		if j.fails(g, true, fmt.Sprintf("aborted with code %d", n.Code)) {
			return
		}
		j.blame(fault{g: g, words: fmt.Sprintf(" aborted the job with code %d", n.Code), code: abortCode(n.Code)}, false)
	case pmi.Died: // its process's end follows, unless only the connection was cut
		if !g.ended {
			time.AfterFunc(fencing, func() { j.post(func() { j.fence(g) }) })
		}
	case pmi.Back, pmi.Lost:
	}
}

// fence ends a process that the others have been told is dead.
func (j *goJob) fence(g *goProc) {
	if !g.ended && !j.ending {
		g.cut = true
		g.node.send(frame{frameSignal, g.id, []byte{byte(syscall.SIGKILL)}})
	}
}

// abortCode is the exit code for MPI_Abort's, of which the kernel keeps 8 bits.
func abortCode(code int) int {
	if code &= 0xff; code != 0 {
		return code
	}
	return 1
}

// fail ends the job because the launcher cannot go on.
func (j *goJob) fail(code int, err error) {
	if j.err == nil && !j.died && !j.ending {
		j.code, j.err = code, err
	}
	j.end()
}

// nodeLost is the end of a node's agent that nobody asked for.
func (j *goJob) nodeLost(n *goNode) {
	if j.ending {
		return
	}
	err := n.err
	if err == nil {
		err = fmt.Errorf("node %s: the agent ended: %s", n.host.Name, n.said())
	}
	lost := false
	for _, g := range j.procs {
		if g.node == n && !g.ended {
			g.ended, g.code, lost = true, CodeFailed, true
			j.left--
			came, _ := g.world.srv.Left(g.rank)
			g.world.srv.Lost(g.rank, CodeFailed)
			j.fails(g, came, "was on a node that is lost")
		}
	}
	switch {
	case !lost:
	case j.p.FT && j.left > 0:
		fmt.Fprintf(j.scr.errors(), "meshrun: lost node %s: %v; the job goes on\n", n.host.Name, err)
	default:
		j.fail(CodeFailed, &ExitError{CodeFailed, err})
	}
}

// outcome is the exit code.
func (j *goJob) outcome() (int, error) {
	switch {
	case j.err != nil:
		return j.code, j.err
	case j.sig != 0:
		return 128 + int(j.sig), nil
	case j.died:
		return j.code, nil
	}
	code, well, first := 0, false, 0
	for _, g := range j.procs {
		if g.world.failed {
			continue // how it ended was our doing
		}
		if g.well {
			code, well = max(code, g.code), true
		} else if first == 0 {
			first = g.code
		}
	}
	if !well {
		code = first
	}
	return code, nil
}

// parseExit reads an agent's word about a process.
func parseExit(b []byte) (exitReport, error) {
	var r exitReport
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errFrame, err)
	}
	if r.Code < 0 || r.Code > 255 || r.PID < 0 {
		return r, fmt.Errorf("a process that ended with code %d: %w", r.Code, errFrame)
	}
	r.What = clean(r.What)
	return r, nil
}
