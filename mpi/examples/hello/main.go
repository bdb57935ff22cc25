// Command hello says who and where each rank is.
package main

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
)

func main() {
	mpi.Main(func(c *mpi.Comm) error {
		node, site := c.Node(c.Rank())
		fmt.Printf("rank %d of %d on %s at site %s\n", c.Rank(), c.Size(), node, site)
		return nil
	})
}
