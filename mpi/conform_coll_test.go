package mpi_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestForms does every collective operation in all forms, of elements of several types,
// in place and not, on duplicates and on halves in reverse order, over all networks.
func TestForms(t *testing.T) {
	for name, place := range places {
		for _, n := range []int{1, 2, 5, 9} {
			if n == 9 && name != "interleaved" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) { mpitest.Run(t, n, everyForm[int64](0, 1, 3, 1000), place) })
		}
	}
	for name, body := range map[string]func(*mpi.Comm) error{
		"uint8": everyForm[uint8](1, 700), "int16": everyForm[int16](1, 700), "uint32": everyForm[uint32](1, 700),
		"float32": everyForm[float32](1, 30), "float64": everyForm[float64](1, 700), "celsius": everyForm[celsius](1, 700),
	} {
		t.Run(name, func(t *testing.T) { mpitest.Run(t, 3, body, places["interleaved"]) }) // of float32 sums of more are not exact
	}
	for name, network := range networks {
		t.Run(name, func(t *testing.T) { mpitest.Run(t, 5, everyForm[int16](1, 700), network...) })
	}
}

// everyForm is what each rank does, with so many elements.
func everyForm[T real](counts ...int) func(c *mpi.Comm) error {
	return func(c *mpi.Comm) error {
		d, err1 := c.Dup()
		h, err2 := c.Split(c.Rank()%2, -c.Rank())
		if err := first(err1, err2); err != nil {
			return err
		}
		for _, x := range []*mpi.Comm{d, h} {
			for _, count := range counts {
				for _, f := range forms {
					m := &model[T]{x, x.Rank(), x.Size(), count, f}
					for root := range m.size {
						if err := m.roots(root); err != nil {
							return fmt.Errorf("%v, count %d, %v, root %d: %w", x, count, f, root, err)
						}
						if count > 10 {
							break
						}
					}
					if err := first(m.reductions(), m.movement(), m.vectors(), m.inPlace()); err != nil {
						return fmt.Errorf("%v, count %d, %v: %w", x, count, f, err)
					}
				}
			}
		}
		return first(d.Free(), h.Free())
	}
}

// real are the elements that the operations are tried with.
type real interface {
	~int64 | ~uint8 | ~int16 | ~uint32 | ~float32 | ~float64
}

type celsius float64

// as converts elements; what wraps in a short type wraps in its sums as well.
func as[T real](v []int64) []T {
	w := make([]T, len(v))
	for i := range v {
		w[i] = T(v[i])
	}
	return w
}

// model knows what operations should give.
type model[T real] struct {
	c              *mpi.Comm
	me, size, each int
	f              form
}

// whole is what all ranks give, by rank.
func (m *model[T]) whole() (v []T) {
	for r := range m.size {
		v = append(v, as[T](given(r, m.each))...)
	}
	return v
}

// layout has r%3 more elements at rank r than the count, apart from each other
// and in the reverse order.
func (m *model[T]) layout() (l mpi.Layout, total int) {
	l = mpi.Layout{Counts: make([]int, m.size), Displs: make([]int, m.size)}
	for r := m.size - 1; r >= 0; r-- {
		l.Counts[r], l.Displs[r] = m.each+r%3, total
		total += l.Counts[r] + 2
	}
	return l, total
}

// spread is what all ranks give, where a layout says.
func spread[T real](l mpi.Layout, total int) []T {
	v := make([]T, total)
	for r, n := range l.Counts {
		copy(v[l.Displs[r]:], as[T](given(r, n)))
	}
	return v
}

func (m *model[T]) roots(root int) error {
	c, n, f := m.c, m.each, m.f
	buf, sum, mine := make([]T, n), make([]T, n), as[T](given(m.me, n))
	l, total := m.layout()
	var all, gathered, apart, layed []T
	lay := mpi.Layout{}
	if m.me == root {
		copy(buf, mine)
		all, gathered = m.whole(), make([]T, n*m.size)
		lay, apart, layed = l, make([]T, total), spread[T](l, total)
	}
	minev := as[T](given(m.me, l.Counts[m.me]))
	blk, blkv := make([]T, n), make([]T, len(minev))
	return first(
		f.do(func() error { return mpi.Bcast(c, buf, root) }, func() (mpi.Request, error) { return mpi.Ibcast(c, buf, root) },
			func() (*mpi.Persistent, error) { return mpi.BcastInit(c, buf, root) }),
		f.do(func() error { return mpi.Reduce(c, mine, sum, mpi.Sum, root) }, func() (mpi.Request, error) { return mpi.Ireduce(c, mine, sum, mpi.Sum, root) },
			func() (*mpi.Persistent, error) { return mpi.ReduceInit(c, mine, sum, mpi.Sum, root) }),
		f.do(func() error { return mpi.Gather(c, mine, gathered, root) }, func() (mpi.Request, error) { return mpi.Igather(c, mine, gathered, root) },
			func() (*mpi.Persistent, error) { return mpi.GatherInit(c, mine, gathered, root) }),
		f.do(func() error { return mpi.Gatherv(c, minev, apart, lay, root) }, func() (mpi.Request, error) { return mpi.Igatherv(c, minev, apart, lay, root) },
			func() (*mpi.Persistent, error) { return mpi.GathervInit(c, minev, apart, lay, root) }),
		f.do(func() error { return mpi.Scatter(c, all, blk, root) }, func() (mpi.Request, error) { return mpi.Iscatter(c, all, blk, root) },
			func() (*mpi.Persistent, error) { return mpi.ScatterInit(c, all, blk, root) }),
		f.do(func() error { return mpi.Scatterv(c, layed, lay, blkv, root) }, func() (mpi.Request, error) { return mpi.Iscatterv(c, layed, lay, blkv, root) },
			func() (*mpi.Persistent, error) { return mpi.ScattervInit(c, layed, lay, blkv, root) }),
		want("bcast", buf, as[T](given(root, n))), want("scatter", blk, mine), want("scatterv", blkv, minev),
		m.only(root, sum, as[T](sumOf(0, m.size, n))), want("gather", gathered, all), want("gatherv", apart, layed))
}

// only wants a result at the root.
func (m *model[T]) only(root int, got, sum []T) error {
	if m.me != root {
		sum = make([]T, len(got))
	}
	return want("reduce", got, sum)
}

func (m *model[T]) reductions() error {
	c, n, f := m.c, m.each, m.f
	mine, sum, up, below := as[T](given(m.me, n)), make([]T, n), make([]T, n), make([]T, n)
	counts, before, total := make([]int, m.size), 0, 0
	for r := range counts {
		counts[r] = (n + r) % (n + 2)
		if total += counts[r]; r < m.me {
			before += counts[r]
		}
	}
	blocks, block, uneven := as[T](given(m.me, n*m.size)), make([]T, n), make([]T, counts[m.me])
	expect := as[T](sumOf(0, m.size, n*m.size))
	return first(
		f.do(func() error { return mpi.Barrier(c) }, func() (mpi.Request, error) { return mpi.Ibarrier(c) }, func() (*mpi.Persistent, error) { return mpi.BarrierInit(c) }),
		f.do(func() error { return mpi.Allreduce(c, mine, sum, mpi.Sum) }, func() (mpi.Request, error) { return mpi.Iallreduce(c, mine, sum, mpi.Sum) },
			func() (*mpi.Persistent, error) { return mpi.AllreduceInit(c, mine, sum, mpi.Sum) }),
		f.do(func() error { return mpi.Scan(c, mine, up, mpi.Sum) }, func() (mpi.Request, error) { return mpi.Iscan(c, mine, up, mpi.Sum) },
			func() (*mpi.Persistent, error) { return mpi.ScanInit(c, mine, up, mpi.Sum) }),
		f.do(func() error { return mpi.Exscan(c, mine, below, mpi.Sum) }, func() (mpi.Request, error) { return mpi.Iexscan(c, mine, below, mpi.Sum) },
			func() (*mpi.Persistent, error) { return mpi.ExscanInit(c, mine, below, mpi.Sum) }),
		f.do(func() error { return mpi.ReduceScatterBlock(c, blocks, block, mpi.Sum) },
			func() (mpi.Request, error) { return mpi.IreduceScatterBlock(c, blocks, block, mpi.Sum) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterBlockInit(c, blocks, block, mpi.Sum) }),
		f.do(func() error { return mpi.ReduceScatter(c, as[T](given(m.me, total)), uneven, counts, mpi.Sum) },
			func() (mpi.Request, error) {
				return mpi.IreduceScatter(c, as[T](given(m.me, total)), uneven, counts, mpi.Sum)
			},
			func() (*mpi.Persistent, error) {
				return mpi.ReduceScatterInit(c, as[T](given(m.me, total)), uneven, counts, mpi.Sum)
			}),
		want("allreduce", sum, as[T](sumOf(0, m.size, n))), want("scan", up, as[T](sumOf(0, m.me+1, n))), want("exscan", below, as[T](sumOf(0, m.me, n))),
		want("reduce_scatter_block", block, expect[m.me*n:(m.me+1)*n]),
		want("reduce_scatter", uneven, as[T](sumOf(0, m.size, total))[before:before+counts[m.me]]))
}

func (m *model[T]) movement() error {
	c, n, f := m.c, m.each, m.f
	mine, got, turned := as[T](given(m.me, n)), make([]T, n*m.size), make([]T, n*m.size)
	l, total := m.layout()
	minev, apart := as[T](given(m.me, l.Counts[m.me])), make([]T, total)
	var in []T
	for r := range m.size {
		in = append(in, as[T](part(r, m.me*n, n))...)
	}
	out := as[T](part(m.me, 0, n*m.size))
	return first(
		f.do(func() error { return mpi.Allgather(c, mine, got) }, func() (mpi.Request, error) { return mpi.Iallgather(c, mine, got) },
			func() (*mpi.Persistent, error) { return mpi.AllgatherInit(c, mine, got) }),
		f.do(func() error { return mpi.Allgatherv(c, minev, apart, l) }, func() (mpi.Request, error) { return mpi.Iallgatherv(c, minev, apart, l) },
			func() (*mpi.Persistent, error) { return mpi.AllgathervInit(c, minev, apart, l) }),
		f.do(func() error { return mpi.Alltoall(c, out, turned) }, func() (mpi.Request, error) { return mpi.Ialltoall(c, out, turned) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallInit(c, out, turned) }),
		want("allgather", got, m.whole()), want("allgatherv", apart, spread[T](l, total)), want("alltoall", turned, in))
}

// vectors are Alltoallv and Alltoallw: rank r gives rank d r+2d elements more than
// the count, of two types in turn.
func (m *model[T]) vectors() error {
	c, n, f := m.c, m.each, m.f
	sl, rl := mpi.Layout{}, mpi.Layout{}
	var out, in []T
	outs, ins := make([]mpi.Buf, m.size), make([]mpi.Buf, m.size)
	small, smaller := make([][]int16, m.size), make([][]int16, m.size)
	large := make([][]T, m.size)
	for r := range m.size {
		k, j := n+m.me+2*r, n+r+2*m.me
		sl.Counts, rl.Counts = append(sl.Counts, k), append(rl.Counts, j)
		out, in = append(out, as[T](part(m.me, r, k))...), append(in, as[T](part(r, m.me, j))...)
		if (r+m.me)%2 == 0 {
			small[r], smaller[r] = slices.Repeat([]int16{int16(r)}, k), make([]int16, j)
			outs[r], ins[r] = mpi.BufOf(small[r]), mpi.BufOf(smaller[r])
		} else {
			large[r] = make([]T, j)
			outs[r], ins[r] = mpi.BufOf(as[T](part(m.me, r, k))), mpi.BufOf(large[r])
		}
	}
	got := make([]T, len(in))
	err := first(
		f.do(func() error { return mpi.Alltoallv(c, out, sl, got, rl) }, func() (mpi.Request, error) { return mpi.Ialltoallv(c, out, sl, got, rl) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallvInit(c, out, sl, got, rl) }),
		want("alltoallv", got, in),
		f.do(func() error { return mpi.Alltoallw(c, outs, ins) }, func() (mpi.Request, error) { return mpi.Ialltoallw(c, outs, ins) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallwInit(c, outs, ins) }))
	for r := range m.size {
		if (r+m.me)%2 == 0 {
			err = first(err, want("alltoallw of small ones", smaller[r], slices.Repeat([]int16{int16(m.me)}, len(smaller[r]))))
		} else {
			err = first(err, want("alltoallw", large[r], as[T](part(r, m.me, len(large[r])))))
		}
	}
	return err
}

// inPlace are the operations whose input is where the result goes. A persistent
// one would take its result for input: it is done once.
func (m *model[T]) inPlace() error {
	c, n := m.c, m.each
	once := func(now func() error, begin func() (mpi.Request, error)) error {
		if m.f == blocking {
			return now()
		}
		return done(begin())
	}
	sum, up, below := as[T](given(m.me, n)), as[T](given(m.me, n)), as[T](given(m.me, n))
	blocks, turned := as[T](given(m.me, n*m.size)), as[T](part(m.me, 0, n*m.size))
	l, total := m.layout()
	apart := make([]T, total)
	copy(apart[l.Displs[m.me]:], as[T](given(m.me, l.Counts[m.me])))
	turnedv := make([]T, total)
	var in []T
	inv := make([]T, total)
	for r := range m.size {
		in = append(in, as[T](part(r, m.me*n, n))...)
		copy(turnedv[l.Displs[r]:], as[T](part(m.me, r, l.Counts[r])))
	}
	even := mpi.Layout{Counts: slices.Repeat([]int{n}, m.size), Displs: l.Displs}
	for r := range m.size {
		copy(inv[l.Displs[r]:], as[T](part(m.me, r, l.Counts[r])))
		copy(inv[l.Displs[r]:], as[T](part(r, m.me, n)))
	}
	expectBelow := as[T](sumOf(0, m.me, n))
	if m.me == 0 {
		expectBelow = as[T](given(0, n))
	}
	expect := as[T](sumOf(0, m.size, n*m.size))[m.me*n : (m.me+1)*n]
	return first(
		once(func() error { return mpi.Allreduce(c, nil, sum, mpi.Sum) }, func() (mpi.Request, error) { return mpi.Iallreduce(c, nil, sum, mpi.Sum) }),
		once(func() error { return mpi.Scan(c, nil, up, mpi.Sum) }, func() (mpi.Request, error) { return mpi.Iscan(c, nil, up, mpi.Sum) }),
		once(func() error { return mpi.Exscan(c, nil, below, mpi.Sum) }, func() (mpi.Request, error) { return mpi.Iexscan(c, nil, below, mpi.Sum) }),
		once(func() error { return mpi.ReduceScatterBlock(c, nil, blocks, mpi.Sum) },
			func() (mpi.Request, error) { return mpi.IreduceScatterBlock(c, nil, blocks, mpi.Sum) }),
		once(func() error { return mpi.Allgatherv(c, nil, apart, l) }, func() (mpi.Request, error) { return mpi.Iallgatherv(c, nil, apart, l) }),
		once(func() error { return mpi.Alltoall(c, nil, turned) }, func() (mpi.Request, error) { return mpi.Ialltoall(c, nil, turned) }),
		once(func() error { return mpi.Alltoallv(c, nil, mpi.Layout{}, turnedv, even) },
			func() (mpi.Request, error) { return mpi.Ialltoallv(c, nil, mpi.Layout{}, turnedv, even) }),
		want("allreduce in place", sum, as[T](sumOf(0, m.size, n))), want("scan in place", up, as[T](sumOf(0, m.me+1, n))), want("exscan in place", below, expectBelow),
		want("reduce_scatter_block in place", blocks[:n], expect), want("allgatherv in place", apart, spread[T](l, total)),
		want("alltoall in place", turned, in), want("alltoallv in place", turnedv, inv))
}

// TestPersistentOrder starts persistent operations in another order on each rank.
func TestPersistentOrder(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		const k = 4
		ps := make([]*mpi.Persistent, k)
		outs := make([][]int64, k)
		for i := range ps {
			outs[i] = make([]int64, 10+i)
			var err error
			if ps[i], err = mpi.AllreduceInit(c, given(c.Rank(), 10+i), outs[i], mpi.Sum); err != nil {
				return err
			}
		}
		for round := range 5 {
			for j := range ps {
				if err := ps[(j*(1+2*(c.Rank()%2))+c.Rank()+round)%k].Start(); err != nil {
					return err
				}
			}
			rs := make([]mpi.Request, k)
			for i, p := range ps {
				rs[i] = *p.Request()
			}
			for range rs {
				if _, _, err := mpi.WaitAny(rs); err != nil {
					return err
				}
			}
			for i := range ps {
				if err := want("sum", outs[i], sumOf(0, 4, 10+i)); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
				clear(outs[i])
			}
		}
		if err := ps[0].Start(); err != nil {
			return err
		}
		if err := ps[0].Start(); mpi.ClassOf(err) != mpi.ErrRequest {
			return fmt.Errorf("started twice: %v", err)
		}
		_, err := ps[0].Wait()
		for _, p := range ps {
			err = first(err, p.Free())
		}
		if err2 := ps[0].Start(); mpi.ClassOf(err2) != mpi.ErrRequest {
			return fmt.Errorf("started after Free: %v", err2)
		}
		return err
	})
}
