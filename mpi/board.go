package mpi

import (
	"sync/atomic"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// The members of a communicator on one crowded host show each other small contributions
// on a board (engine.Board), once they have made so many operations with which that is
// faster that it is worth opening one. Only operations that a rank waits for go by it:
// those have the same order everywhere, and one that was begun first ends first.

// boardAfter is after how many operations a board is opened. It costs two more, and a
// link from each member to each other one.
var boardAfter uint32 = 32

// board is a communicator's.
type board struct {
	operations atomic.Uint32 // that a board would have been good for
	open       atomic.Pointer[engine.Board]
}

// byBoard has an operation that the caller waits for go by the communicator's board, if
// there is one and that is better.
func (c *Comm) byBoard(r *run) {
	if r.sched.Board == nil {
		return
	}
	if c.board.open.Load() == nil && c.board.operations.Add(1) == boardAfter {
		ended := c.orRevoke()
		c.openBoard()
		_ = ended(nil)
	}
	if b := c.board.open.Load(); b != nil {
		r.sched, r.board = r.sched.Board, b
	}
}

// openBoard opens the board, unless a member cannot see all others. It has no error: if a
// member has died the operation that follows will say so.
func (c *comm) openBoard() {
	place := int64(c.w.eng.ReserveBoard())
	o := c.everybody(c.nextTag())
	places, err := o.allgather([]int64{place}) // in which each member is sent something by each
	var b *engine.Board
	if err == nil {
		slots := make([]int, len(places))
		for i, at := range places {
			slots[i] = int(at)
		}
		b = c.w.eng.OpenBoard(o.ctx, o.procs, slots)
	}
	next := c.everybody(c.nextTag()) // also after an error: others may be waiting there
	blind := []int64{0}
	if b == nil {
		blind[0] = 1
	}
	err = next.allreduce(blind, opMax)
	switch {
	case err == nil && blind[0] == 0:
		c.board.open.Store(b)
	case b != nil:
		c.w.eng.Do(func(op *engine.Op) { op.CloseBoard(b) })
	}
}

// closeBoard ends what is under way on the board, which is not used any more. The engine
// is held.
func (c *comm) closeBoard(op *engine.Op) {
	if b := c.board.open.Swap(nil); b != nil {
		op.CloseBoard(b)
	}
}

// show shows a step's contribution.
func (r *run) show(op *engine.Op, s *coll.Step) {
	if r.saw == nil {
		r.saw = func(op *engine.Op, err error) { r.stepped(op, engine.Status{}, err) }
	}
	r.pending++
	if r.err = op.Show(r.board, uint32(r.o.tag), r.at(s.Src), r.at(s.Dst), r.saw); r.err != nil {
		r.pending--
		return
	}
	r.shown = true
}

// unshow gives up an operation's turn on the board.
func (r *run) unshow(op *engine.Op) {
	switch {
	case r.board == nil:
	case r.shown:
		op.LetGo(r.board, uint32(r.o.tag))
	default:
		op.Void(r.board, uint32(r.o.tag))
	}
}
