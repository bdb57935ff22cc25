package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestFreeUnderWay frees communicators in which a receive and a collective
// operation are under way: they end as they should, though new communicators are
// made and used meanwhile.
func TestFreeUnderWay(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 5, func(c *mpi.Comm) error {
				const n = 3000
				next, prev := (c.Rank()+1)%5, (c.Rank()+4)%5
				for round := range 10 {
					d, err := c.Dup()
					if err != nil {
						return err
					}
					got := make([]int64, n)
					in, err := mpi.Irecv(d, got, prev, 0)
					if err != nil {
						return err
					}
					sum := make([]int64, n)
					var all mpi.Request
					if round%2 == 0 {
						all, err = mpi.Iallreduce(d, given(c.Rank(), n), sum, mpi.Sum)
					} else {
						err = mpi.Allreduce(d, given(c.Rank(), n), sum, mpi.Sum)
					}
					if err != nil {
						return err
					}
					if round%4 > 1 { // the last messages come after Free
						err = mpi.Barrier(c)
					}
					out, err2 := mpi.Issend(d, given(c.Rank(), n), next, 0)
					if err := first(err, err2, d.Free()); err != nil {
						return err
					}
					e, err := c.Dup()
					if err != nil {
						return err
					}
					other := make([]int64, 2)
					_, err = mpi.Sendrecv(e, []int64{7, int64(round)}, next, 0, other, prev, 0)
					err = first(err, want("in the new one", other, []int64{7, int64(round)}), unrooted(e, 3), e.Free())
					rs := []mpi.Request{in, all, out}
					if err := first(err, mpi.WaitAll(rs, nil), want("received", got, given(prev, n)), want("sum", sum, sumOf(0, 5, n))); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				return nil
			}, place)
		})
	}
}

// TestConcurrentCreation makes communicators of two communicators from two
// goroutines of each rank, and groups from several by tag.
func TestConcurrentCreation(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		errs := make([]error, 5)
		for i, from := range []*mpi.Comm{c, d} {
			all.Go(func() {
				for k := range 20 {
					x, err := from.Split((c.Rank()+k)%(i+1), -c.Rank())
					if errs[i] = first(err); errs[i] != nil {
						return
					}
					if errs[i] = first(unrooted(x, 2), x.Free()); errs[i] != nil {
						return
					}
				}
			})
		}
		all.Wait()
		for i := 2; i < 5; i++ {
			all.Go(func() {
				g, err := c.Group().Incl([][]int{{3, 2, 1, 0}, {0, 2}, {1, 3}}[i-2]...)
				if err != nil || g.Rank() == mpi.Undefined {
					errs[i] = err
					return
				}
				for range 10 {
					x, err := c.CreateGroup(g, i)
					if errs[i] = first(err); errs[i] != nil {
						return
					}
					if errs[i] = first(unrooted(x, 2), x.Free()); errs[i] != nil {
						return
					}
				}
			})
		}
		all.Wait()
		return first(append(errs, d.Free())...)
	})
}

// TestHiddenDuplicates: what the library duplicates for itself runs no function
// of an attribute.
func TestHiddenDuplicates(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		copies := 0
		k := mpi.NewKey(mpi.KeyOptions[int]{Copy: func(v int) (int, bool) { copies++; return v, true }})
		d, err := c.Dup()
		if err := first(err, mpi.SetAttr(d, k, 1)); err != nil {
			return err
		}
		w, err := mpi.AllocateWin[int8](d, 1)
		if err != nil {
			return err
		}
		alone, err := d.Split(d.Rank(), 0)
		if err != nil {
			return err
		}
		x, err := alone.InterCreate(0, d, 1-d.Rank(), 0)
		if err := first(err, w.Free()); err != nil {
			return err
		}
		if copies != 0 {
			return fmt.Errorf("%d copies", copies)
		}
		if err := mpi.SetAttr(x, k, 5); err != nil {
			return err
		}
		y, err := x.Dup()
		if err != nil {
			return err
		}
		if v, ok := mpi.GetAttr(y, k); !ok || v != 5 || copies != 1 {
			return fmt.Errorf("the copy is %d, %v, of %d", v, ok, copies)
		}
		return first(y.Free(), x.Free(), alone.Free(), d.Free())
	})
}

// TestNamesAndHints: a duplicate has the hints and not the name.
func TestNamesAndHints(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		var i mpi.Info
		if err := first(i.Set("b", "1"), i.Set("a", "2"), i.Set("b", "3")); err != nil {
			return err
		}
		for _, tc := range []struct {
			what string
			err  error
			want error
		}{
			{"an empty key", i.Set("", "x"), mpi.ErrInfo}, {"a long key", i.Set(strings.Repeat("k", mpi.MaxInfoKey+1), ""), mpi.ErrInfo},
			{"a long value", i.Set("k", strings.Repeat("v", mpi.MaxInfoVal+1)), mpi.ErrInfo}, {"no such key", i.Delete("c"), mpi.ErrInfo},
			{"the longest", i.Set(strings.Repeat("k", mpi.MaxInfoKey), strings.Repeat("v", mpi.MaxInfoVal)), nil},
			{"delete", i.Delete(strings.Repeat("k", mpi.MaxInfoKey)), nil},
		} {
			if !errors.Is(tc.err, tc.want) {
				return fmt.Errorf("%s: %v, want %v", tc.what, tc.err, tc.want)
			}
		}
		d, err := c.Dup()
		if err != nil {
			return err
		}
		d.SetInfo(&i)
		d.SetName("mine")
		_ = i.Set("b", "changed")
		e, err := d.Dup()
		if err != nil {
			return err
		}
		got := e.Info()
		v, _ := got.Get("b")
		err = first(want("keys", got.Keys(), []string{"b", "a"}), want("value", []string{v}, []string{"3"}),
			want("names", []string{c.Name(), c.World().Self().Name(), d.Name(), e.Name()}, []string{"world", "self", "mine", ""}))
		return first(err, e.Free(), d.Free())
	})
}

// TestGroups: set operations on groups, also on empty ones and on the zero Group.
func TestGroups(t *testing.T) {
	mpitest.Run(t, 6, func(c *mpi.Comm) error {
		g := c.Group()
		incl := func(ranks ...int) *mpi.Group {
			s, err := g.Incl(ranks...)
			if err != nil {
				panic(err)
			}
			return s
		}
		ranks := func(s *mpi.Group) []int {
			in := make([]int, s.Size())
			for i := range in {
				in[i] = i
			}
			out, err := s.Translate(in, g)
			if err != nil {
				panic(err)
			}
			return out
		}
		a, b, zero := incl(4, 0, 2), incl(2, 5, 0), &mpi.Group{}
		rangeIncl, err1 := g.RangeIncl(mpi.Range{First: 0, Last: 1, Stride: 1}, mpi.Range{First: 5, Last: 3, Stride: -2})
		rangeExcl, err2 := g.RangeExcl(mpi.Range{First: 0, Last: 5, Stride: 2})
		excl, err3 := a.Excl(0, 2)
		if err := first(err1, err2, err3); err != nil {
			return err
		}
		for _, tc := range []struct {
			what string
			got  *mpi.Group
			want []int
		}{
			{"union", a.Union(b), []int{4, 0, 2, 5}}, {"intersection", a.Intersection(b), []int{0, 2}}, {"difference", a.Difference(b), []int{4}},
			{"union with none", a.Union(zero), []int{4, 0, 2}}, {"union of none", zero.Union(a), []int{4, 0, 2}},
			{"intersection with none", a.Intersection(zero), nil}, {"difference of none", zero.Difference(a), nil},
			{"ranges", rangeIncl, []int{0, 1, 5, 3}}, {"without ranges", rangeExcl, []int{1, 3, 5}}, {"without", excl, []int{0}},
			{"nobody", incl(), nil},
		} {
			if err := want(tc.what, ranks(tc.got), tc.want); err != nil {
				return err
			}
			at := mpi.Undefined
			for i, r := range tc.want {
				if r == c.Rank() {
					at = i
				}
			}
			if tc.got.Rank() != at {
				return fmt.Errorf("%s: rank %d, want %d", tc.what, tc.got.Rank(), at)
			}
		}
		to, err := a.Translate([]int{2, 0, mpi.ProcNull}, b)
		if err := first(err, want("translated", to, []int{0, mpi.Undefined, mpi.ProcNull})); err != nil {
			return err
		}
		wrong := []error{}
		add := func(_ *mpi.Group, err error) { wrong = append(wrong, err) }
		add(g.Incl(6))
		add(g.Incl(-1))
		add(g.Incl(1, 1))
		add(g.Excl(2, 2))
		add(g.RangeIncl(mpi.Range{First: 0, Last: 6, Stride: 1}))
		add(g.RangeExcl(mpi.Range{First: 0, Last: 2, Stride: 1}, mpi.Range{First: 2, Last: 3, Stride: 1}))
		_, err = a.Translate([]int{3}, g)
		wrong = append(wrong, err)
		for i, err := range wrong {
			if mpi.ClassOf(err) != mpi.ErrRank {
				return fmt.Errorf("mistake %d: %v, want %v", i, err, mpi.ErrRank)
			}
		}
		for _, r := range []mpi.Range{{First: 0, Last: math.MaxInt, Stride: math.MaxInt / 2}, {First: 0, Last: math.MinInt, Stride: math.MinInt}, {First: 1 << 40, Last: 1 << 50, Stride: 1}, {First: math.MaxInt, Last: math.MaxInt, Stride: 1}} {
			if _, err := g.RangeExcl(r); mpi.ClassOf(err) != mpi.ErrRank {
				return fmt.Errorf("%+v: %v", r, err)
			}
		}
		if _, err := g.RangeIncl(mpi.Range{First: 0, Last: 1}); mpi.ClassOf(err) != mpi.ErrArg {
			return fmt.Errorf("a stride of 0: %v", err)
		}
		return nil
	})
}

// TestProbeContext: a probe ends with the communicator's context, and loses nothing.
func TestProbeContext(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err := c.WithContext(ctx).Probe(1-c.Rank(), 3)
		if !errors.Is(err, mpi.ErrPending) || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("probe: %v", err)
		}
		if _, err := c.WithContext(ctx).Mprobe(mpi.AnySource, 3); !errors.Is(err, mpi.ErrPending) {
			return fmt.Errorf("matched probe: %v", err)
		}
		got := make([]int, 1)
		if err := first(mpi.Barrier(c), mpi.Send(c, []int{5}, 1-c.Rank(), 3)); err != nil {
			return err
		}
		m, err := c.Mprobe(1-c.Rank(), 3)
		if err != nil {
			return err
		}
		_, err = mpi.Mrecv(&m, got)
		return first(err, want("message", got, []int{5}))
	})
}

// TestRanksInStatuses: what is said of messages and mistakes is in ranks of the
// communicator, whose order is not the world's.
func TestRanksInStatuses(t *testing.T) {
	mpitest.Run(t, 6, func(c *mpi.Comm) error {
		h, err := c.Split(c.Rank()%2, -c.Rank())
		if err != nil {
			return err
		}
		s, err := join(c, 2, 1)
		if err != nil {
			return err
		}
		next, prev := (h.Rank()+1)%3, (h.Rank()+2)%3
		for _, x := range []struct {
			c      *mpi.Comm
			to     []int
			source int
		}{{h, []int{next}, prev}, {s.x, map[bool][]int{true: {0, 1, 2, 3}, false: {0, 1}}[s.low], 0}} {
			if x.c == h || s.x.Rank() == 0 {
				for _, r := range x.to {
					for range 5 {
						if err := mpi.Send(x.c, []int64{1, 2}, r, 8); err != nil {
							return err
						}
					}
				}
			}
			b := make([]int64, 2)
			p, err1 := x.c.Probe(mpi.AnySource, mpi.AnyTag)
			a, err2 := mpi.Recv(x.c, b, mpi.AnySource, 8)
			m, err3 := x.c.Mprobe(mpi.AnySource, mpi.AnyTag)
			ms := m.Status()
			q, err4 := mpi.Mrecv(&m, b)
			r, err5 := mpi.Irecv(x.c, b, mpi.AnySource, mpi.AnyTag)
			w, err6 := r.Wait()
			r, err7 := mpi.Irecv(x.c, b, x.source, 8)
			_, y, err8 := mpi.WaitAny([]mpi.Request{{}, r})
			if err := first(err1, err2, err3, err4, err5, err6, err7, err8); err != nil {
				return err
			}
			for i, st := range []mpi.Status{p, a, ms, q, w, y} {
				if st.Source != x.source || st.Tag != 8 || st.Bytes != 16 {
					return fmt.Errorf("status %d on %v: %+v, want source %d", i, x.c, st, x.source)
				}
			}
			_, err = mpi.Recv(x.c, b[:1], mpi.AnySource, 8)
			if !errors.Is(err, mpi.ErrTruncate) {
				return fmt.Errorf("cut: %v", err)
			}
		}
		return first(s.x.Free(), h.Free())
	})
}

// TestNilAttribute: an attribute of an interface type may be nil.
func TestNilAttribute(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		deleted := 0
		k := mpi.NewKey(mpi.KeyOptions[error]{Copy: mpi.DupValue[error], Delete: func(error) error { deleted++; return nil }})
		if err := mpi.SetAttr(c, k, nil); err != nil {
			return err
		}
		d, err := c.Dup()
		if err != nil {
			return err
		}
		if v, ok := mpi.GetAttr(d, k); v != nil || !ok {
			return fmt.Errorf("got %v, %v", v, ok)
		}
		return first(d.Free(), mpi.DeleteAttr(c, k), want("deleted", []int{deleted}, []int{2}))
	})
}
