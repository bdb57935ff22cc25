package mpi

import (
	"strings"
	"sync/atomic"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// The members of a communicator on one crowded host show each other small contributions
// on a board (engine.Board), once they have made so many operations with which that is
// faster that it is worth opening one. Only operations that a rank waits for go by it:
// those have the same order everywhere, and one that was begun first ends first.

// boardAfter is after how many operations that its members wait for a communicator gets a
// board, whatever they are: which of them go by one may differ from member to member in a
// program that is wrong. It costs two more operations, and a link from each member to each
// other one.
var boardAfter uint32 = 32

// board is a communicator's.
type board struct {
	operations atomic.Uint32
	open       atomic.Pointer[engine.Board]
}

// byBoard has an operation that the caller waits for go by the communicator's board, if
// there is one and that is better. After an error the operation is not to be begun. With
// nil the operation fails at this member alone, which counts it as the others do.
func (c *Comm) byBoard(r *run) error {
	if c.remote != nil || !coll.Boardable(&c.topo) {
		return nil
	}
	if c.board.operations.Add(1) == boardAfter {
		ended := c.orRevoke()
		if err := ended(c.openBoard()); err != nil {
			if r == nil {
				return err
			}
			if r.sched.Board != nil {
				r.sched = r.sched.Board // as others may do it, who are all told then
			}
			c.w.eng.Do(func(op *engine.Op) { r.renounce(op, err) })
			return err
		}
	}
	if r == nil {
		return nil
	}
	if b := c.board.open.Load(); b != nil && r.sched.Board != nil {
		r.sched, r.board = r.sched.Board, b
	}
	return nil
}

// mayShow reports whether operations of a name may go by a board.
func mayShow(op string) bool {
	switch strings.TrimSuffix(op, "Buf") {
	case "Allgather", "Allreduce", "Alltoall", "Barrier", "Exscan", "Scan":
		return true
	}
	return false
}

// openBoard opens the board, unless a member cannot see all others. It fails when one has
// died, or the communicator was revoked.
func (c *comm) openBoard() error {
	places, see := c.everybody(c.nextTag()), c.everybody(c.nextTag())
	var b *engine.Board
	slots, err := places.allgather([]int64{int64(c.w.eng.ReserveBoard())}) // in which each member sends to each
	if err == nil {
		at := make([]int, len(slots))
		for i, slot := range slots {
			at[i] = int(slot)
		}
		b = c.w.eng.OpenBoard(places.ctx, places.procs, at)
	}
	blind := []int64{0}
	if b == nil {
		blind[0] = 1
	}
	if bad := see.allreduce(blind, opMax); err == nil { // also after an error: others may be waiting there
		err = bad
	}
	if b == nil {
		return err
	}
	c.w.eng.Do(func(op *engine.Op) {
		if c.revoked.Load() || c.gone {
			err = engine.ErrRevoked
		}
		if err != nil || blind[0] > 0 {
			op.CloseBoard(b, engine.ErrClosed)
			return
		}
		c.board.open.Store(b)
	})
	return err
}

// closeBoard ends what is under way on the board, and what is about to be, with err. The
// board is not used any more. The engine is held.
func (c *comm) closeBoard(op *engine.Op, err error) {
	if b := c.board.open.Swap(nil); b != nil {
		op.CloseBoard(b, err)
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
