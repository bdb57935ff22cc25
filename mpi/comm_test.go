package mpi_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestCommunicators makes them in every way and sums over each.
func TestCommunicators(t *testing.T) {
	mpitest.Run(t, 6, func(c *mpi.Comm) error {
		me := c.Rank()
		check := func(what string, d *mpi.Comm, err error, ranks ...int) error {
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if !slices.Contains(ranks, me) {
				if d != nil {
					return fmt.Errorf("%s: rank %d is in it", what, me)
				}
				return nil
			}
			all := make([]int, d.Size())
			if err := mpi.Allgather(d, []int{me}, all); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return first(want(what, all, ranks), d.Free())
		}
		d, err := c.Dup()
		if err := check("dup", d, err, 0, 1, 2, 3, 4, 5); err != nil {
			return err
		}
		d, err = c.Split(map[bool]int{true: 7, false: mpi.Undefined}[me != 2], -me)
		if err := check("split", d, err, 5, 4, 3, 1, 0); err != nil {
			return err
		}
		d, err = c.SplitBy(mpi.Site, 0)
		if err := check("by site", d, err, [][]int{{0, 1, 2}, {3, 4, 5}}[me/3]...); err != nil {
			return err
		}
		d, err = c.SplitBy(mpi.Host, 0)
		if err := check("by host", d, err, [][]int{{0, 1}, {2}, {3}, {4, 5}}[[]int{0, 0, 1, 2, 3, 3}[me]]...); err != nil {
			return err
		}
		g, err := c.Group().Incl(4, 1, 3)
		if err != nil {
			return err
		}
		d, err = c.Create(g)
		if err := check("create", d, err, 4, 1, 3); err != nil {
			return err
		}
		if g.Rank() != mpi.Undefined {
			d, err = c.CreateGroup(g, 5)
			if err := check("create of a group", d, err, 4, 1, 3); err != nil {
				return err
			}
		}
		e, err := c.Dup()
		if err != nil {
			return err
		}
		rest, err := c.Group().Excl(0)
		if err != nil {
			return err
		}
		union := rest.Union(g)
		for _, tc := range []struct {
			what      string
			got, want mpi.Comparison
		}{
			{"itself", c.Compare(c), mpi.Ident}, {"a dup", c.Compare(e), mpi.Congruent}, {"self", c.Compare(c.World().Self()), mpi.Unequal},
			{"a union", union.Compare(rest), mpi.Ident}, {"an intersection", rest.Intersection(g).Compare(g), mpi.Similar},
			{"a difference", rest.Difference(g).Compare(g), mpi.Unequal},
		} {
			if tc.got != tc.want {
				return fmt.Errorf("%s is %v, want %v", tc.what, tc.got, tc.want)
			}
		}
		to, err := g.Translate([]int{0, 1, 2, mpi.ProcNull}, rest)
		if err := first(err, want("translated", to, []int{3, 0, 2, mpi.ProcNull})); err != nil {
			return err
		}
		r, err := c.Group().RangeIncl(mpi.Range{First: 5, Last: 1, Stride: -2})
		if err != nil || r.Size() != 3 {
			return fmt.Errorf("a range of %d: %v", r.Size(), err)
		}
		if err := e.Free(); err != nil {
			return err
		}
		if err := mpi.Barrier(e); !errors.Is(err, mpi.ErrComm) {
			return fmt.Errorf("barrier of a communicator that was freed: %v", err)
		}
		return nil
	}, mpitest.Place(func(r int) (string, string) {
		return []string{"a", "a", "b", "c", "d", "d"}[r], []string{"x", "x", "x", "y", "y", "y"}[r]
	}))
}

// TestManyCommunicators: numbers of communicators are used again, however many
// are made and freed, in different orders on different ranks.
func TestManyCommunicators(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		var keep []*mpi.Comm
		for i := range 300 {
			d, err := c.Split((c.Rank()+i)%3/2, 0)
			if err != nil {
				return err
			}
			if keep = append(keep, d); len(keep) > 5 {
				k := (i * 7) % len(keep)
				if err := first(unrooted(keep[k], 2), keep[k].Free()); err != nil {
					return err
				}
				keep = slices.Delete(keep, k, k+1)
			}
		}
		for _, d := range keep {
			if err := d.Free(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestAttributes: copied by Dup as the key says, deleted last set first, and kept
// when their delete function refuses.
func TestAttributes(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		var log []string
		say := func(s string) error { log = append(log, s); return nil }
		a := mpi.NewKey(mpi.KeyOptions[int]{
			Copy:   func(v int) (int, bool) { return v + 1, v < 10 },
			Delete: func(v int) error { return say(fmt.Sprint("a", v)) },
		})
		b := mpi.NewKey(mpi.KeyOptions[string]{Delete: func(v string) error { return say(v) }})
		d, err := c.Dup()
		if err != nil {
			return err
		}
		err = first(mpi.SetAttr(d, a, 1), mpi.SetAttr(d, b, "b"), mpi.SetAttr(d, a, 2))
		e, err2 := d.Dup()
		if err := first(err, err2); err != nil {
			return err
		}
		if v, ok := mpi.GetAttr(e, a); !ok || v != 3 {
			return fmt.Errorf("the copy is %d, %v", v, ok)
		}
		if _, ok := mpi.GetAttr(e, b); ok {
			return errors.New("an attribute without a copy function is copied")
		}
		if err := first(e.Free(), d.Free(), want("deleted", log, []string{"a1", "a3", "a2", "b"})); err != nil {
			return err
		}
		stubborn := mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error { return errors.New("no") }})
		if d, err = c.Dup(); err != nil {
			return err
		}
		if err := first(mpi.SetAttr(d, stubborn, 1)); err != nil {
			return err
		}
		if err := d.Free(); err == nil {
			return errors.New("Free succeeds though a delete function refuses")
		}
		if _, ok := mpi.GetAttr(d, stubborn); !ok {
			return errors.New("the attribute is gone though its delete function has refused")
		}
		var never mpi.Key[int]
		if err := mpi.SetAttr(c, never, 1); !errors.Is(err, mpi.ErrKeyval) {
			return fmt.Errorf("a key that was not made: %v", err)
		}
		return first(mpi.SetAttr(d, mpi.MATB, mpi.Rate(1e8)), mpi.Barrier(c))
	})
}

// TestTopologies: grids, graphs, and what their neighbours exchange.
func TestTopologies(t *testing.T) {
	mpitest.Run(t, 6, func(c *mpi.Comm) error {
		dims := []int{0, 2}
		if err := first(mpi.DimsCreate(6, dims), want("dims", dims, []int{3, 2})); err != nil {
			return err
		}
		for _, periods := range [][]bool{{false, false}, {true, true}} {
			g, err := c.CartCreate(dims, periods, false)
			if err != nil {
				return err
			}
			at, err := g.CartCoords(g.Rank())
			if err != nil {
				return err
			}
			back, forth, err := g.CartShift(0, 1)
			if err != nil {
				return err
			}
			left, right, err := g.CartShift(1, 1)
			if err != nil {
				return err
			}
			if r, err := g.CartRank(at); err != nil || r != g.Rank() {
				return fmt.Errorf("rank of %v: %d, %v", at, r, err)
			}
			// Block i goes to neighbour i; it says from whom, and in which direction.
			send, recv := make([]int, 4), make([]int, 4)
			for i := range send {
				send[i], recv[i] = 10*g.Rank()+i, -1
			}
			if err := mpi.NeighborAlltoall(g, send, recv); err != nil {
				return err
			}
			expect := make([]int, 4)
			for i, r := range []int{back, forth, left, right} {
				if expect[i] = -1; r != mpi.ProcNull {
					expect[i] = 10*r + (i ^ 1)
				}
			}
			if err := want(fmt.Sprint("exchanged, periodic ", periods), recv, expect); err != nil {
				return err
			}
			row, err := g.CartSub([]bool{false, true})
			if err != nil {
				return err
			}
			if row.Size() != 2 || row.Rank() != at[1] {
				return fmt.Errorf("row: rank %d of %d at %v", row.Rank(), row.Size(), at)
			}
			if err := first(row.Free(), g.Free()); err != nil {
				return err
			}
		}
		// A ring as a distributed graph: from the left to the right.
		prev, next := (c.Rank()+5)%6, (c.Rank()+1)%6
		d, err := c.DistGraphCreateAdjacent([]int{prev}, nil, []int{next}, nil, false)
		if err != nil {
			return err
		}
		got := make([]int, 2)
		if err := first(mpi.NeighborAllgather(d, []int{c.Rank(), 7}, got), want("around the ring", got, []int{prev, 7})); err != nil {
			return err
		}
		return d.Free()
	})
}

// TestSpawn: a job starts another, they talk both ways, and find each other by a
// name as well.
func TestSpawn(t *testing.T) {
	child := func(c *mpi.Comm) error {
		p := c.World().Parent()
		if p == nil || p.RemoteSize() != 2 || c.Size() != 3 {
			return fmt.Errorf("the parent is %v", p)
		}
		sum := make([]int, 1)
		if err := first(mpi.Allreduce(p, []int{10 + c.Rank()}, sum, mpi.Sum), want("of the parents", sum, []int{1})); err != nil {
			return err
		}
		both, err := p.Merge(true)
		if err != nil {
			return err
		}
		if both.Size() != 5 || both.Rank() != 2+c.Rank() {
			return fmt.Errorf("merged: rank %d of %d", both.Rank(), both.Size())
		}
		return first(unrooted(both, 3), both.Free(), p.Disconnect())
	}
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		for range 2 {
			kids, err := c.Spawn(1, mpi.Program{N: 3, Path: "child"})
			if err != nil {
				return err
			}
			sum := make([]int, 1)
			if err := first(mpi.Allreduce(kids, []int{c.Rank()}, sum, mpi.Sum), want("of the children", sum, []int{33})); err != nil {
				return err
			}
			both, err := kids.Merge(false)
			if err != nil {
				return err
			}
			if err := first(unrooted(both, 3), both.Free(), kids.Disconnect()); err != nil {
				return err
			}
		}
		if _, err := c.Spawn(0, mpi.Program{N: 1, Path: "nothing"}); !errors.Is(err, mpi.ErrSpawn) {
			return fmt.Errorf("spawn of a program that is not there: %v", err)
		}
		return nil
	}, mpitest.Program("child", child))
}

// TestPorts: two halves of a job meet at a port that one has published.
func TestPorts(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		w := c.World()
		half, err := c.Split(c.Rank()/2, 0)
		if err != nil {
			return err
		}
		var x *mpi.Comm
		if c.Rank() < 2 {
			port := ""
			if c.Rank() == 0 {
				if port, err = w.OpenPort(); err != nil {
					return err
				}
				if err := w.PublishName("halves", port); err != nil {
					return err
				}
			}
			if err := mpi.Barrier(c); err != nil {
				return err
			}
			if x, err = half.Accept(port, 0); err == nil && c.Rank() == 0 {
				err = first(w.UnpublishName("halves"), w.ClosePort(port))
			}
		} else {
			if err := mpi.Barrier(c); err != nil {
				return err
			}
			port := ""
			if c.Rank() == 2 {
				if port, err = w.LookupName("halves"); err != nil {
					return err
				}
			}
			x, err = half.Connect(port, 0)
		}
		if err != nil {
			return err
		}
		sum := make([]int, 1)
		want1 := []int{5, 1}[c.Rank()/2]
		return first(mpi.Allreduce(x, []int{c.Rank()}, sum, mpi.Sum), want("of the other half", sum, []int{want1}), x.Disconnect())
	})
}

// TestFreedUnderWay: the number of a communicator that was freed is not used again
// while an operation goes on in it that has nothing posted to be received: the root
// of a broadcast that nobody takes yet. Another has the number first that is made
// when it has ended.
func TestFreedUnderWay(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		const n = 4 << 20 // more than goes ahead of its receive
		d, err := c.Dup()
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if _, err := mpi.Recv(c, make([]int, 1), 0, 0); err != nil {
				return err
			}
			return first(mpi.Bcast(d, make([]byte, n), 0), d.Free())
		}
		number := d.String()
		r, err := mpi.Ibcast(d, make([]byte, n), 0)
		if err != nil {
			return err
		}
		if err := d.Free(); err != nil {
			return err
		}
		e, err := c.World().Self().Dup()
		if err != nil {
			return err
		}
		if got, _, _ := strings.Cut(e.String(), ","); strings.HasPrefix(number, got+",") {
			return fmt.Errorf("%s is made while a broadcast is under way in %s", e, number)
		}
		if err := mpi.Send(c, []int{1}, 1, 0); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		f, err := c.World().Self().Dup()
		if err != nil {
			return err
		}
		if got, _, _ := strings.Cut(f.String(), ","); !strings.HasPrefix(number, got+",") {
			return fmt.Errorf("%s is made when %s is free again", f, number)
		}
		return first(e.Free(), f.Free())
	})
}

// TestAttrOfTwo: what two goroutines set at one time is deleted once each.
func TestAttrOfTwo(t *testing.T) {
	mpitest.Run(t, 1, func(c *mpi.Comm) error {
		var n [3]atomic.Int32
		k := mpi.NewKey(mpi.KeyOptions[int]{Delete: func(v int) error { n[v].Add(1); time.Sleep(20 * time.Millisecond); return nil }})
		d, err := c.Dup()
		if err != nil {
			return err
		}
		_ = mpi.SetAttr(d, k, 0)
		var wg sync.WaitGroup
		for i := 1; i <= 2; i++ {
			wg.Add(1)
			go func() { defer wg.Done(); _ = mpi.SetAttr(d, k, i) }()
		}
		wg.Wait()
		if err := d.Free(); err != nil {
			return err
		}
		for v := range n {
			if got := n[v].Load(); got != 1 {
				t.Errorf("value %d was deleted %d times, want 1", v, got)
			}
		}
		return nil
	})
}
