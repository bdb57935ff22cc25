package mpi_test

import (
	"fmt"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestStructs moves structs and parts of arrays by every operation on Bufs.
func TestStructs(t *testing.T) {
	type thing struct {
		A int8
		B float64
		C [2]int32
	}
	mk := func(rank, i int) thing { return thing{int8(rank), float64(i), [2]int32{int32(rank), int32(i)}} }
	things := func(rank, from, n int) (v []thing) {
		for i := range n {
			v = append(v, mk(rank, from+i))
		}
		return v
	}
	larger := mpi.NewOp(func(in, inout []thing) {
		for i := range in {
			inout[i].B = max(in[i].B, inout[i].B)
			inout[i].C[0] += in[i].C[0]
		}
	}, true)
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		const n = 3
		me, all := c.Rank(), []thing{}
		var turned []thing
		for r := range 4 {
			all, turned = append(all, things(r, 0, n)...), append(turned, things(r, me*n, n)...)
		}
		for _, f := range forms {
			for root := range 4 {
				b, got, blk := make([]thing, n), make([]thing, n*4), make([]thing, n)
				if me == root {
					b = things(root, 0, n)
				}
				err := first(
					f.do(func() error { return c.BcastBuf(mpi.BufOf(b), root) }, func() (mpi.Request, error) { return c.IbcastBuf(mpi.BufOf(b), root) },
						func() (*mpi.Persistent, error) { return c.BcastBufInit(mpi.BufOf(b), root) }),
					f.do(func() error { return c.GatherBuf(mpi.BufOf(things(me, 0, n)), mpi.BufOf(got), root) },
						func() (mpi.Request, error) { return c.IgatherBuf(mpi.BufOf(things(me, 0, n)), mpi.BufOf(got), root) },
						func() (*mpi.Persistent, error) {
							return c.GatherBufInit(mpi.BufOf(things(me, 0, n)), mpi.BufOf(got), root)
						}),
					f.do(func() error { return c.ScatterBuf(mpi.BufOf(all), mpi.BufOf(blk), root) },
						func() (mpi.Request, error) { return c.IscatterBuf(mpi.BufOf(all), mpi.BufOf(blk), root) },
						func() (*mpi.Persistent, error) { return c.ScatterBufInit(mpi.BufOf(all), mpi.BufOf(blk), root) }),
					want("bcast", b, things(root, 0, n)), want("scatter", blk, things(me, 0, n)))
				if me == root {
					err = first(err, want("gather", got, all))
				}
				if err != nil {
					return err
				}
			}
			got, swapped, top := make([]thing, n*4), make([]thing, n*4), make([]thing, n)
			err := first(
				f.do(func() error { return c.AllgatherBuf(mpi.BufOf(things(me, 0, n)), mpi.BufOf(got)) },
					func() (mpi.Request, error) { return c.IallgatherBuf(mpi.BufOf(things(me, 0, n)), mpi.BufOf(got)) },
					func() (*mpi.Persistent, error) {
						return c.AllgatherBufInit(mpi.BufOf(things(me, 0, n)), mpi.BufOf(got))
					}),
				f.do(func() error { return c.AlltoallBuf(mpi.BufOf(things(me, 0, n*4)), mpi.BufOf(swapped)) },
					func() (mpi.Request, error) {
						return c.IalltoallBuf(mpi.BufOf(things(me, 0, n*4)), mpi.BufOf(swapped))
					},
					func() (*mpi.Persistent, error) {
						return c.AlltoallBufInit(mpi.BufOf(things(me, 0, n*4)), mpi.BufOf(swapped))
					}),
				f.do(func() error { return c.AllreduceBuf(mpi.BufOf(things(me, 5, n)), mpi.BufOf(top), larger) },
					func() (mpi.Request, error) {
						return c.IallreduceBuf(mpi.BufOf(things(me, 5, n)), mpi.BufOf(top), larger)
					},
					func() (*mpi.Persistent, error) {
						return c.AllreduceBufInit(mpi.BufOf(things(me, 5, n)), mpi.BufOf(top), larger)
					}),
				want("allgather", got, all), want("alltoall", swapped, turned))
			for i := range top {
				if top[i].B != float64(5+i) || top[i].C[0] != 6 {
					err = first(err, fmt.Errorf("allreduce: %+v", top[i]))
				}
			}
			if err != nil {
				return fmt.Errorf("%v: %w", f, err)
			}
		}
		return columns(c)
	})
}

// columns gathers columns of matrices into rows and scatters them back.
func columns(c *mpi.Comm) error {
	col, err := datatype.Vector(3, 1, 4, datatype.Basic(datatype.Uint16))
	if err != nil {
		return err
	}
	m := make([]uint16, 12)
	for i := range m {
		m[i] = uint16(100*c.Rank() + i)
	}
	rows := make([]uint16, 3*c.Size())
	back := make([]uint16, 12)
	err = first(c.GatherBuf(mpi.NewBuf(m, 1, col).At(2), mpi.BufOf(rows), 1), c.ScatterBuf(mpi.BufOf(rows), mpi.NewBuf(back, 1, col).At(2), 1))
	for i, v := range back {
		expect := uint16(0)
		if i%4 == 1 {
			expect = m[i]
		}
		if v != expect {
			err = first(err, fmt.Errorf("element %d is %d, want %d", i, v, expect))
		}
	}
	return err
}

// TestResized combines items of types whose extent is not their size: one alone needs no
// more memory than its own.
func TestResized(t *testing.T) {
	type padded struct {
		_ int32
		X int32
	}
	add := mpi.NewOp(func(in, inout []padded) {
		for i := range in {
			inout[i].X += in[i].X
		}
	}, true)
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		for _, extent := range []int{8, 2, -8} {
			one, err := datatype.Resized(datatype.Basic(datatype.Int32), 0, extent)
			if err != nil {
				return err
			}
			sum := []int32{0}
			err = c.AllreduceBuf(mpi.NewBuf([]int32{int32(c.Rank()) + 1}, 1, one), mpi.NewBuf(sum, 1, one), mpi.Sum)
			if err := first(err, want("sum", sum, []int32{6})); err != nil {
				return fmt.Errorf("extent %d: %w", extent, err)
			}
		}
		for n := range 3 {
			in, out := make([]padded, n), make([]padded, n)
			for i := range in {
				in[i].X = int32(c.Rank() + i)
			}
			err := c.AllreduceBuf(mpi.BufOf(in), mpi.BufOf(out), add)
			for i := range out {
				err = first(err, want("sum", []int32{out[i].X}, []int32{int32(3 + 3*i)}))
			}
			if err != nil {
				return fmt.Errorf("%d structs: %w", n, err)
			}
		}
		return nil
	})
}

// TestInsignificant: a buffer that an operation does not use at a rank may be anything
// there, and stays as it was.
func TestInsignificant(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		s, err := join(c, 2, 1)
		if err != nil {
			return err
		}
		return first(anywhere(c), apart(s), s.x.Free())
	})
}

// wrong is a buffer of which half is beyond the end.
func wrong() mpi.Buf { return mpi.NewBuf(make([]int, 1), 2, datatype.Basic(datatype.Int64)) }

// anywhere does operations with wrong buffers where they do not count.
func anywhere(c *mpi.Comm) error {
	sum, all := mpi.BufOf(make([]int, 2)), mpi.BufOf(make([]int, 8))
	if c.Rank() == 0 {
		sum = wrong()
	}
	kept := []int{7}
	err := first(c.ExscanBuf(mpi.BufOf([]int{1, 2}), sum, mpi.Sum), mpi.Exscan(c, []int{1, 2}, make([]int, 2)[:2*min(c.Rank(), 1)], mpi.Sum))
	err = first(err, mpi.Exscan(c, []int{1}, kept, mpi.Sum))
	if want := []int{7, 1, 2, 3}[c.Rank()]; kept[0] != want {
		err = first(err, fmt.Errorf("got %v, want %d", kept, want))
	}
	if sum = mpi.BufOf(make([]int, 2)); c.Rank() != 1 {
		sum, all = wrong(), wrong()
	}
	own := mpi.BufOf(make([]int, 2))
	return first(err, c.ReduceBuf(own, sum, mpi.Sum, 1), c.GatherBuf(own, all, 1), c.ScatterBuf(all, own, 1))
}

// apart does so between two sides: the second rank of the first is the root.
func apart(s sides) error {
	root, sum, all, own := 1, wrong(), wrong(), mpi.BufOf(make([]int, 2))
	if s.low {
		root, own = mpi.ProcNull, wrong()
		if s.x.Rank() == 1 {
			root, sum, all = mpi.Root, mpi.BufOf(make([]int, 2)), mpi.BufOf(make([]int, 4))
		}
	}
	return first(s.x.ReduceBuf(own, sum, mpi.Sum, root), s.x.GatherBuf(own, all, root), s.x.ScatterBuf(all, own, root))
}

// TestBufMessages sends columns of a matrix round in every way there is for Bufs.
func TestBufMessages(t *testing.T) {
	col, err := datatype.Vector(3, 1, 4, datatype.Basic(datatype.Uint16))
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range networks {
		mpitest.Run(t, 3, func(c *mpi.Comm) error {
			next, previous := (c.Rank()+1)%3, (c.Rank()+2)%3
			m, back := make([]uint16, 12), make([]uint16, 12)
			mine, got := mpi.NewBuf(m, 1, col).At(2), mpi.NewBuf(back, 1, col).At(2)
			for k, way := range bufWays(mine, got, next, previous) {
				for round := range 3 {
					for i := range m {
						m[i], back[i] = uint16(1000*c.Rank()+100*round+i), 0
					}
					st, err := way(c)
					if err == nil && (st.Source != previous || st.Bytes != 6) {
						err = fmt.Errorf("status %+v", st)
					}
					for i, v := range back {
						if want := uint16(1000*previous + 100*round + i); i%4 == 1 && v != want || i%4 != 1 && v != 0 {
							err = first(err, fmt.Errorf("element %d is %d", i, v))
						}
					}
					if err != nil {
						return fmt.Errorf("way %d, round %d: %w", k, round, err)
					}
				}
			}
			return nil
		}, network...)
	}
}

// bufWays are the ways to send a Buf on and receive one.
func bufWays(mine, got mpi.Buf, next, previous int) []func(c *mpi.Comm) (mpi.Status, error) {
	// received begins to receive, says so to who sends, and sends by send.
	received := func(c *mpi.Comm, send func() error) (mpi.Status, error) {
		r, err := c.IrecvBuf(got, previous, 1)
		if err != nil {
			return mpi.Status{}, err
		}
		if err := first(mpi.Barrier(c), send()); err != nil {
			return mpi.Status{}, err
		}
		return r.Wait()
	}
	var out, in *mpi.Persistent
	return []func(c *mpi.Comm) (mpi.Status, error){
		func(c *mpi.Comm) (mpi.Status, error) { return c.SendrecvBuf(mine, next, 1, got, previous, 1) },
		func(c *mpi.Comm) (mpi.Status, error) {
			return received(c, func() error { return c.RsendBuf(mine, next, 1) })
		},
		func(c *mpi.Comm) (mpi.Status, error) {
			return received(c, func() error { return done(c.IssendBuf(mine, next, 1)) })
		},
		func(c *mpi.Comm) (mpi.Status, error) {
			r, err := c.IsendBuf(mine, next, 1)
			if err != nil {
				return mpi.Status{}, err
			}
			m, err := c.Mprobe(previous, 1)
			if err != nil {
				return mpi.Status{}, err
			}
			st, err := mpi.MrecvBuf(&m, got)
			_, serr := r.Wait()
			return st, first(err, serr)
		},
		func(c *mpi.Comm) (st mpi.Status, err error) {
			if out == nil {
				if out, err = c.SendBufInit(mine, next, 1); err == nil {
					in, err = c.RecvBufInit(got, previous, 1)
				}
			}
			if err = first(err, mpi.StartAll(in, out)); err != nil {
				return st, err
			}
			st, err = in.Wait()
			_, serr := out.Wait()
			return st, first(err, serr)
		},
	}
}
