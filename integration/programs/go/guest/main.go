// Guest is an MPI program whose ranks are nodes of a meshmpi network by themselves:
// where they run there is no daemon, no TUN and no privilege, but the token in
// $MESH_TOKEN. Any launcher that speaks PMI-1 starts it; what ranks have to tell each
// other goes over the overlay.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/overlay"
)

// size is what each rank sends to each other one, in bytes.
const size = 256 << 10

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	node, err := overlay.Join(ctx, overlay.Config{})
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	listen := func(context.Context) (net.Listener, error) { return node.Listen("tcp", ":0") }
	mpi.Main(func(c *mpi.Comm) error { return body(c, node) }, mpi.WithNetwork(node.Dial, listen), mpi.WithPlace(node.Name(), node.Site()))
	if err := node.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// body has all ranks send to all, and says who is where.
func body(c *mpi.Comm, node *overlay.Node) error {
	site, err := c.SplitBy(mpi.Site, 0)
	if err != nil {
		return err
	}
	send, recv := make([]byte, size*c.Size()), make([]byte, size*c.Size())
	for i := range send {
		send[i] = mark(c.Rank(), i/size, i%size)
	}
	if err := mpi.Alltoall(c, send, recv); err != nil {
		return err
	}
	for i, b := range recv {
		if want := mark(i/size, c.Rank(), i%size); b != want {
			return fmt.Errorf("byte %d from rank %d is %d, want %d", i%size, i/size, b, want)
		}
	}
	sum := []int{c.Rank() + 1}
	if err := mpi.Allreduce(c, nil, sum, mpi.Sum); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d at %v, %d at site %s: sum %d\n", c.Rank(), c.Size(), node.Addrs()[0], site.Size(), node.Site(), sum[0])
	return nil
}

// mark is byte i of what one rank sends to another.
func mark(from, to, i int) byte { return byte(37*from + 101*to + i + i>>8) }
