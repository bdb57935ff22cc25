package mpi_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestLayoutsOfLoc: MaxLoc and the like are of what lies in memory as Loc does; what has
// only the same parts is refused, rather than reduced wrongly.
func TestLayoutsOfLoc(t *testing.T) {
	type alike struct {
		V int32
		I int64
	}
	type late struct {
		_ int32
		V int32
		I int64
	}
	type wide struct {
		V int32
		_ [3]int32
		I int64
	}
	type complexes struct {
		_ float64
		X complex128
	}
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		in, out := []alike{{V: int32(c.Rank()), I: int64(c.Rank())}}, make([]alike, 1)
		if err := c.AllreduceBuf(mpi.BufOf(in), mpi.BufOf(out), mpi.MaxLoc); err != nil || out[0] != (alike{1, 1}) {
			return fmt.Errorf("alike: %v, %v", out, err)
		}
		for what, err := range map[string]error{
			"late":      c.AllreduceBuf(mpi.BufOf(make([]late, 2)), mpi.BufOf(make([]late, 2)), mpi.MaxLoc),
			"wide":      c.AllreduceBuf(mpi.BufOf(make([]wide, 2)), mpi.BufOf(make([]wide, 2)), mpi.MinLoc),
			"complexes": c.AllreduceBuf(mpi.BufOf(make([]complexes, 2)), mpi.BufOf(make([]complexes, 2)), mpi.Sum),
		} {
			if !errors.Is(err, mpi.ErrOp) {
				return fmt.Errorf("%s: %v", what, err)
			}
		}
		type lead struct {
			_ int64
			X int64
		}
		op := mpi.NewOp(func(in, inout []lead) {}, true)
		if err := c.AllreduceBuf(mpi.BufOf(make([]lead, 1)).At(-8), mpi.BufOf(make([]lead, 1)), op); !errors.Is(err, mpi.ErrBuffer) {
			return fmt.Errorf("before the memory: %v", err)
		}
		return nil
	}, mpitest.Timeout(10*time.Second))
}

// TestLeastDisplacement: the least of all integers has no negative.
func TestLeastDisplacement(t *testing.T) {
	b := datatype.Basic(datatype.Byte)
	if _, err := datatype.Struct([]int{1, 1, 1}, []int{0, math.MinInt, 5}, []*datatype.Type{b, b, b}); err == nil {
		t.Error("such a type is made")
	}
}
