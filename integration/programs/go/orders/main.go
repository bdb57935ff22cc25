// Orders checks what ranks of both byte orders tell each other: one-sided accesses of
// elements of several sizes, messages of a struct, and agreement.
package main

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
)

func main() {
	mpi.Main(func(c *mpi.Comm) error {
		for _, check := range []func(*mpi.Comm) error{
			windows[uint8], windows[int16], windows[uint32], windows[int64], windows[float32], windows[float64],
			complexes, structs, agree,
		} {
			if err := check(c); err != nil {
				return fmt.Errorf("rank %d: %w", c.Rank(), err)
			}
		}
		if c.Rank() == 0 {
			fmt.Printf("orders: %d ranks agree\n", c.Size())
		}
		return nil
	})
}

// number are those that order and sums are defined of.
type number interface {
	uint8 | int16 | uint32 | int64 | float32 | float64
}

// windows has each rank access the next one's memory in every way.
func windows[T number](c *mpi.Comm) error {
	w, err := mpi.AllocateWin[T](c, 6)
	if err != nil {
		return err
	}
	me, next := T(c.Rank()+1), (c.Rank()+1)%c.Size()
	previous := T((c.Rank()+c.Size()-1)%c.Size() + 1)
	mem := w.Memory()
	for i := range mem {
		mem[i] = me
	}
	if err := w.Fence(); err != nil {
		return err
	}
	put, sum := []T{10 + me, 20 + me}, []T{3}
	got, old := make([]T, 1), make([]T, 1)
	var fetched, swapped T
	for _, err := range []error{
		w.Put(put, next, 0), w.Get(got, next, 5), w.Accumulate(sum, next, 2, mpi.Sum), w.GetAccumulate([]T{100}, old, next, 3, mpi.Max), w.Fence(),
		w.FetchAndOp(2, &fetched, next, 2, mpi.Sum), w.Fence(), w.CompareAndSwap(T(next+1), 9, &swapped, next, 4), w.Fence(),
	} {
		if err != nil {
			return err
		}
	}
	theirs := T(next + 1)
	if got[0] != theirs || old[0] != theirs || fetched != theirs+3 {
		return fmt.Errorf("%T: got %v, %v and %v of %v", me, got, old, fetched, theirs)
	}
	want := []T{10 + previous, 20 + previous, me + 5, 100, 9, me}
	if swapped != theirs {
		return fmt.Errorf("%T: swapped %v of %v", me, swapped, theirs)
	}
	for i := range want {
		if mem[i] != want[i] {
			return fmt.Errorf("%T: %v, want %v", me, mem, want)
		}
	}
	return w.Free()
}

// complexes sends numbers of two parts, each of which has an order of its own.
func complexes(c *mpi.Comm) error {
	v := []complex128{complex(float64(c.Rank()), 0.5)}
	if err := mpi.Allreduce(c, nil, v, mpi.Sum); err != nil {
		return err
	}
	n := float64(c.Size())
	if want := complex(n*(n-1)/2, n/2); v[0] != want {
		return fmt.Errorf("sum %v, want %v", v[0], want)
	}
	return nil
}

type particle struct {
	ID   uint16
	Mass float64
	At   [3]float32
	Kind int8
	Next int32
}

// structs sends structs round.
func structs(c *mpi.Comm) error {
	of := func(rank int) particle {
		r := rank + 1
		return particle{uint16(1000 * r), 1.5 * float64(r), [3]float32{float32(r), -2, 0.25}, int8(-r), int32(-70000 * r)}
	}
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	sent, got := []particle{of(c.Rank())}, make([]particle, 1)
	r, err := c.IrecvBuf(mpi.BufOf(got), previous, 1)
	if err != nil {
		return err
	}
	if err := c.SendBuf(mpi.BufOf(sent), next, 1); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	if got[0] != of(previous) {
		return fmt.Errorf("got %+v, want %+v", got[0], of(previous))
	}
	return nil
}

// agree combines flags, by messages of the library's own.
func agree(c *mpi.Comm) error {
	flag, err := c.Agree(0xff00ff ^ 1<<c.Rank())
	if err != nil {
		return err
	}
	if want := 0xff00ff &^ (1<<c.Size() - 1); int(flag) != want {
		return fmt.Errorf("agreed on %#x, want %#x", flag, want)
	}
	dup, err := c.Split(c.Rank()%2, -c.Rank())
	if err != nil {
		return err
	}
	return dup.Free()
}
