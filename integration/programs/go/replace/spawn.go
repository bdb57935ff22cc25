package main

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
)

// steps are what there is to do; in step deadly the rank dies.
const (
	steps  = 20
	deadly = 7
)

// count does the steps from the given one on.
func count(c *mpi.Comm, kill, step int) error {
	sum := 0
	for ; step < steps; step++ {
		if c.Rank() == kill && step == deadly {
			return die()
		}
		part := []int{c.Rank()}
		err := mpi.Allreduce(c, nil, part, mpi.Sum)
		if err != nil && !died(err) {
			return err
		}
		if err != nil {
			if c, step, err = mend(c, kill, step); err != nil {
				return fmt.Errorf("mend: %w", err)
			}
			kill = -1
			step-- // once more, together
			continue
		}
		sum = part[0]
	}
	node, _ := c.Node(c.Rank())
	fmt.Printf("rank %d of %d on %s: %d steps, sum %d\n", c.Rank(), c.Size(), node, step, sum)
	return nil
}

// mend returns a communicator with another rank in the place of the dead one, and
// the step that some have yet to do.
func mend(c *mpi.Comm, dead, step int) (*mpi.Comm, int, error) {
	if err := c.Revoke(); err != nil {
		return nil, 0, err
	}
	alive, err := c.Shrink()
	if err != nil {
		return nil, 0, err
	}
	least := []int{step}
	if err := mpi.Allreduce(alive, nil, least, mpi.Min); err != nil {
		return nil, 0, err
	}
	node, _ := c.Node(dead)
	x, err := another(alive, node, "spawn")
	if err != nil {
		return nil, 0, err
	}
	all, err := x.Merge(false) // the new one comes last
	if err != nil {
		return nil, 0, err
	}
	if err := mpi.Bcast(all, []int{dead, least[0]}, 0); err != nil {
		return nil, 0, err
	}
	c, err = all.Split(0, c.Rank())
	return c, least[0], err
}

// join is the beginning of a replacement.
func join(c *mpi.Comm) error {
	all, err := c.World().Parent().Merge(true)
	if err != nil {
		return err
	}
	told := make([]int, 2) // rank and step
	if err := mpi.Bcast(all, told, 0); err != nil {
		return err
	}
	if c, err = all.Split(0, told[0]); err != nil {
		return err
	}
	return count(c, -1, told[1])
}
