package mpi_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestNobody: what a rank at an edge begins with ProcNull is a request like any other,
// which ends once (MPI 4.1 §3.10).
func TestNobody(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error { // a line
		left, right := c.Rank()-1, c.Rank()+1
		if left < 0 {
			left = mpi.ProcNull
		}
		if right == c.Size() {
			right = mpi.ProcNull
		}
		in := []int{0, 0}
		var rs []mpi.Request
		begin := func(r mpi.Request, err error) error {
			rs = append(rs, r)
			return err
		}
		mine := []int{c.Rank()}
		if err := errors.Join(begin(mpi.Irecv(c, in[:1], left, 0)), begin(mpi.Irecv(c, in[1:], right, 0)),
			begin(mpi.Isend(c, mine, left, 0)), begin(mpi.Issend(c, mine, right, 0))); err != nil {
			return err
		}
		seen := map[int]bool{}
		for range rs {
			i, st, err := mpi.WaitAny(rs)
			if err != nil || i < 0 || seen[i] {
				return fmt.Errorf("%d has ended, %+v, %v", i, st, err)
			}
			seen[i] = true
			if from := []int{left, right}; i < 2 && (st.Source != from[i] || from[i] == mpi.ProcNull && (st.Bytes != 0 || st.Tag != mpi.AnyTag)) {
				return fmt.Errorf("%d has come from %d: %+v", i, from[i], st)
			}
		}
		if i, st, err := mpi.WaitAny(rs); i != -1 || err != nil || st.Source != mpi.AnySource || st.Tag != mpi.AnyTag {
			return fmt.Errorf("none is left: %d, %+v, %v", i, st, err)
		}
		for what, begin := range map[string]func() (mpi.Request, error){
			"Irecv": func() (mpi.Request, error) { return mpi.Irecv(c, in, mpi.ProcNull, 0) },
			"Isend": func() (mpi.Request, error) { return mpi.Isend(c, in, mpi.ProcNull, 0) },
			"IrecvBuf": func() (mpi.Request, error) {
				return c.IrecvBuf(mpi.NewBuf(in, 2, datatype.Basic(datatype.Int64)), mpi.ProcNull, 0)
			},
			"Imrecv": func() (mpi.Request, error) {
				m, err := c.Mprobe(mpi.ProcNull, 0)
				if err != nil {
					return mpi.Request{}, err
				}
				return mpi.Imrecv(&m, in)
			},
		} {
			r, err := begin()
			if err != nil || r.None() || r.Cancel() != nil {
				return fmt.Errorf("%s: %v", what, err)
			}
			if st, done, err := r.Test(); !done || err != nil || st.Source != mpi.ProcNull || !r.None() {
				return fmt.Errorf("%s: %+v, %v, %v", what, st, done, err)
			}
			if r, err = begin(); err != nil || r.Free() != nil {
				return fmt.Errorf("%s cannot be freed: %v", what, err)
			}
		}
		p, err := mpi.RecvInit(c, in, mpi.ProcNull, 0)
		for range 2 {
			if err = errors.Join(err, p.Start()); err != nil || p.Request().None() {
				return fmt.Errorf("persistent: %v", err)
			}
			if i, _, err := mpi.WaitAny([]mpi.Request{{}, *p.Request()}); i != 1 || err != nil {
				return fmt.Errorf("persistent: %d, %v", i, err)
			}
		}
		return p.Free()
	}, mpitest.Timeout(10*time.Second))
}

// TestStaleRequest: a copy of a persistent operation's request from the time before does
// nothing to the operation that is under way.
func TestStaleRequest(t *testing.T) {
	mpitest.Run(t, 1, func(c *mpi.Comm) error {
		in := []int{0}
		p, err := mpi.RecvInit(c, in, 0, 3)
		if err != nil {
			return err
		}
		for i, complete := range []func(r *mpi.Request) error{
			func(r *mpi.Request) error { _, err := r.Wait(); return err },
			func(r *mpi.Request) error { _, _, err := r.Test(); return err },
			func(r *mpi.Request) error { _, _, err := mpi.WaitAny([]mpi.Request{*r}); return err },
			(*mpi.Request).Free,
		} {
			if err := p.Start(); err != nil {
				return err
			}
			old := *p.Request()
			if err := mpi.Send(c, []int{1}, 0, 3); err != nil {
				return err
			}
			if _, err := p.Wait(); err != nil {
				return err
			}
			if err := p.Start(); err != nil {
				return err
			}
			if err := complete(&old); err != nil && !errors.Is(err, mpi.ErrRequest) || p.Request().None() {
				return fmt.Errorf("%d: %v; the operation under way is forgotten: %t", i, err, p.Request().None())
			}
			if err := mpi.Send(c, []int{2}, 0, 3); err != nil {
				return err
			}
			if _, err := p.Wait(); err != nil || in[0] != 2 {
				return fmt.Errorf("%d: got %d, %v", i, in[0], err)
			}
		}
		return p.Free()
	}, mpitest.Timeout(10*time.Second))
}

// TestEmptyBlocks: where an empty block would lie means nothing, on intercommunicators too.
func TestEmptyBlocks(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		x, err := interHalves(c)
		if err != nil {
			return err
		}
		if _, err := x.InterCreate(0, c, 0, 1); !errors.Is(err, mpi.ErrComm) {
			return fmt.Errorf("InterCreate on an intercommunicator: %v", err)
		}
		l := mpi.Layout{Counts: []int{0, 1}, Displs: []int{-1, 0}}
		if c.Rank()%2 == 0 {
			l = mpi.Layout{Counts: []int{0, 0}, Displs: []int{-1, 9}}
		}
		in := make([]int, 1)
		if err := mpi.Alltoallv(x, []int{c.Rank()}, l, in, l); err != nil || c.Rank()%2 == 1 && in[0] != (c.Rank()+2)%4 {
			return fmt.Errorf("got %d, %v", in[0], err)
		}
		return nil
	}, mpitest.Timeout(10*time.Second))
}

// TestFarShifts: a shift may be by any number of steps.
func TestFarShifts(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		for _, by := range []int{math.MaxInt, math.MinInt, math.MaxInt - 1, -7, 3} {
			ring, err := c.CartCreate([]int{3}, []bool{true}, false)
			if err != nil {
				return err
			}
			step := ((by % 3) + 3) % 3
			if from, to, err := ring.CartShift(0, by); err != nil || to != (c.Rank()+step)%3 || from != (c.Rank()+3-step)%3 {
				return fmt.Errorf("by %d: from %d to %d, %v", by, from, to, err)
			}
			line, err := c.CartCreate([]int{3}, []bool{false}, false)
			if err != nil {
				return err
			}
			if from, to, err := line.CartShift(0, by); err != nil || from != mpi.ProcNull || to != mpi.ProcNull {
				return fmt.Errorf("by %d on a line: from %d to %d, %v", by, from, to, err)
			}
		}
		return nil
	}, mpitest.Timeout(10*time.Second))
}

// TestLocalOnRevoked: who recovers from a death still learns where ranks were, and what
// was attached.
func TestLocalOnRevoked(t *testing.T) {
	key := mpi.NewKey(mpi.KeyOptions[int]{})
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		g, err := c.CartCreate([]int{2}, []bool{true}, false)
		if err != nil {
			return err
		}
		d, err := c.DistGraphCreateAdjacent([]int{0}, nil, []int{1}, nil, false)
		if err != nil {
			return err
		}
		_, _ = g.Revoke(), d.Revoke()
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		_, err = g.CartCoords(0)
		_, _, err2 := g.CartShift(0, 1)
		_, err3 := g.CartRank([]int{1})
		_, _, _, _, err4 := d.DistGraphNeighbors()
		if err := errors.Join(err, err2, err3, err4, mpi.SetAttr(g, key, 7), mpi.DeleteAttr(g, key)); err != nil {
			return err
		}
		if _, err := g.CartSub([]bool{true}); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("CartSub: %v", err)
		}
		if err := mpi.NeighborAllgather(d, []int{1}, []int{1}); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("NeighborAllgather: %v", err)
		}
		return nil
	}, mpitest.FaultTolerant(), mpitest.Timeout(10*time.Second))
}

// TestAfterFinalize: what asks nobody else fails then too.
func TestAfterFinalize(t *testing.T) {
	var w *mpi.World
	mpitest.Run(t, 1, func(c *mpi.Comm) error {
		w = c.World()
		return nil
	})
	_, err := w.LookupName("x")
	for what, err := range map[string]error{
		"AttachBuffer": w.AttachBuffer(100), "PublishName": w.PublishName("x", "y"), "UnpublishName": w.UnpublishName("x"), "LookupName": err,
	} {
		if !errors.Is(err, mpi.ErrNotInitialized) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTooManyComms: the communicator that would be one too many is refused, to all alike,
// and nothing is lost by it.
func TestTooManyComms(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		if c.Rank() > 0 { // one knows of fewer than the others
			mpi.UseUpComms(c.World(), c.Rank()%2)
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if _, err := c.Dup(); !errors.Is(err, mpi.ErrNoMem) {
			return fmt.Errorf("Dup: %v", err)
		}
		if _, err := c.Shrink(); !errors.Is(err, mpi.ErrNoMem) {
			return fmt.Errorf("Shrink: %v", err)
		}
		return mpi.Barrier(c)
	}, mpitest.FaultTolerant(), mpitest.Timeout(20*time.Second))
}

// TestLargeGrids: how many nodes there are hardly matters to how long a grid takes.
func TestLargeGrids(t *testing.T) {
	for _, tt := range []struct {
		nodes int
		want  []int
	}{{1<<31 - 1, []int{1<<31 - 1, 1}}, {1 << 40, []int{1 << 20, 1 << 20}}, {1_000_003 * 999_983, []int{1_000_003, 999_983}}, {1 << 30, []int{1 << 10, 1 << 10, 1 << 10}}, {1, []int{1, 1, 1}}} {
		dims := make([]int, len(tt.want))
		if err := mpi.DimsCreate(tt.nodes, dims); err != nil || !slices.Equal(dims, tt.want) {
			t.Errorf("%d nodes make a grid of %v, %v, want %v", tt.nodes, dims, err, tt.want)
		}
	}
}
