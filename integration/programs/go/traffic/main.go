// Command traffic, as traffic alltoall|ring BYTES ROUNDS, sends what a test knows to
// the byte: in alltoall each rank gives each other BYTES a round, in ring each the next
// BYTES and one byte to the one before it. Its twin in C is c/traffic.c.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/meshmpi/meshmpi/mpi"
)

func main() { mpi.Main(run) }

func run(c *mpi.Comm) error {
	if len(os.Args) < 4 {
		return errors.New("usage: traffic alltoall|ring BYTES ROUNDS")
	}
	bytes, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	n := c.Size()
	out, in := make([]byte, n*bytes), make([]byte, n*bytes)
	next, last := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	for range rounds {
		if os.Args[1] == "alltoall" {
			if err := mpi.Alltoall(c, out, in); err != nil {
				return err
			}
			continue
		}
		if _, err := mpi.Sendrecv(c, out[:bytes], next, 0, in[:bytes], last, 0); err != nil {
			return err
		}
		if _, err := mpi.Sendrecv(c, out[:1], last, 1, in[:1], next, 1); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	if c.Rank() == 0 {
		fmt.Println("done")
	}
	return nil
}
