// Command heat solves the heat equation on a square plate, whose upper edge is
// hot, by Jacobi's method. Each rank has a block of the plate and exchanges its
// borders with the neighbours in every step. The result does not depend on the
// number of ranks.
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
)

func main() {
	n := flag.Int("n", 240, "points along an edge of the plate")
	steps := flag.Int("steps", 500, "steps")
	flag.Parse()
	mpi.Main(func(c *mpi.Comm) error { return solve(c, *n, *steps) })
}

// plate is a rank's block, rows × cols points with a border of one around them.
type plate struct {
	c          *mpi.Comm
	rows, cols int
	now, next  []float64
	rowType    *mpi.Type
	colType    *mpi.Type
}

func solve(world *mpi.Comm, n, steps int) error {
	dims := make([]int, 2)
	if err := mpi.DimsCreate(world.Size(), dims); err != nil {
		return err
	}
	c, err := world.CartCreate(dims, []bool{false, false}, true)
	if err != nil {
		return err
	}
	_, _, at, err := c.CartGet()
	if err != nil {
		return err
	}
	p, err := newPlate(c, share(n, dims[0], at[0]), share(n, dims[1], at[1]))
	if err != nil {
		return err
	}
	if at[0] == 0 { // the hot edge
		for j := range p.cols + 2 {
			p.now[j], p.next[j] = 100, 100
		}
	}
	began := time.Now()
	change := 0.0
	for range steps {
		if err := p.exchange(); err != nil {
			return err
		}
		change = p.step()
	}
	heat := []float64{p.sum(), 0}
	if err := mpi.Allreduce(c, nil, heat[:1], mpi.Sum); err != nil {
		return err
	}
	if err := mpi.Allreduce(c, []float64{change}, heat[1:], mpi.Max); err != nil {
		return err
	}
	if c.Rank() == 0 {
		fmt.Printf("heat: %d × %d points on %d × %d ranks, %d steps in %v: mean %.6f, last change %.2e\n",
			n, n, dims[0], dims[1], steps, time.Since(began).Round(time.Millisecond), heat[0]/float64(n*n), heat[1])
	}
	return nil
}

// share is how many of n points part i of k has.
func share(n, k, i int) int { return n*(i+1)/k - n*i/k }

func newPlate(c *mpi.Comm, rows, cols int) (*plate, error) {
	size := (rows + 2) * (cols + 2)
	p := &plate{c: c, rows: rows, cols: cols, now: make([]float64, size), next: make([]float64, size)}
	number, err := mpi.TypeOf[float64]()
	if err != nil {
		return nil, err
	}
	if p.rowType, err = datatype.Contiguous(cols, number); err != nil {
		return nil, err
	}
	p.colType, err = datatype.Vector(rows, 1, cols+2, number)
	return p, err
}

// at is the index of a point; the block is rows 1 to rows, columns 1 to cols.
func (p *plate) at(i, j int) int { return i*(p.cols+2) + j }

// exchange gives the block's borders to the neighbours, and takes theirs.
func (p *plate) exchange() error {
	row := func(i int) mpi.Buf { return mpi.NewBuf(p.now, 1, p.rowType).At(8 * p.at(i, 1)) }
	col := func(j int) mpi.Buf { return mpi.NewBuf(p.now, 1, p.colType).At(8 * p.at(1, j)) }
	send := []mpi.Buf{row(1), row(p.rows), col(1), col(p.cols)}
	recv := []mpi.Buf{row(0), row(p.rows + 1), col(0), col(p.cols + 1)}
	return mpi.NeighborAlltoallw(p.c, send, recv)
}

// step computes the next state, and returns the largest change of a point.
func (p *plate) step() (change float64) {
	w := p.cols + 2
	for i := 1; i <= p.rows; i++ {
		for k := p.at(i, 1); k <= p.at(i, p.cols); k++ {
			v := (p.now[k-w] + p.now[k+w] + p.now[k-1] + p.now[k+1]) / 4
			change = max(change, v-p.now[k], p.now[k]-v)
			p.next[k] = v
		}
	}
	p.now, p.next = p.next, p.now
	return change
}

func (p *plate) sum() (s float64) {
	for i := 1; i <= p.rows; i++ {
		for j := 1; j <= p.cols; j++ {
			s += p.now[p.at(i, j)]
		}
	}
	return s
}
