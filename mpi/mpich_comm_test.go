package mpi_test

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// alive sums over a communicator, on the other side of one between groups.
func alive(c *mpi.Comm) {
	sum := []int{0}
	n := c.Size()
	if c.Inter() {
		n = c.RemoteSize()
	}
	if err := mpi.Allreduce(c, []int{c.Rank()}, sum, mpi.Sum); err != nil {
		endCase(err)
	}
	if sum[0] != n*(n-1)/2 {
		endCase(fmt.Errorf("the sum over %v is %d", c, sum[0]))
	}
}

var mpichComm = []mpichCase{
	{file: "comm/cmfree.c", ranks: 4, body: func(c *mpi.Comm) error {
		// A receive outlives its communicator.
		d := get(c.Dup())
		got, from := make([]int, 1000), (c.Rank()+3)%4
		r := get(mpi.Irecv(d, got, from, 0))
		s := get(mpi.Isend(d, fill(c.Rank(), 1000), (c.Rank()+1)%4, 0))
		must(d.Free())
		rs := []mpi.Request{r, s}
		must(mpi.WaitAll(rs, nil))
		are("received", got, fill(from, 1000))
		return nil
	}},
	{file: "comm/cmfree2.c", ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		var r mpi.Request
		if c.Rank() == 0 {
			r = get(mpi.Issend(d, []int{}, 1, 0))
		} else {
			r = get(mpi.Irecv(d, []int{}, 0, 0))
		}
		must(d.Free(), mpi.Barrier(c))
		return done(r, nil)
	}},
	{file: "comm/cmsplit.c", ranks: 5, body: func(c *mpi.Comm) error {
		d := get(c.Split(0, c.Size()-c.Rank()))
		is("rank", d.Rank(), c.Size()-1-c.Rank())
		is("compare", d.Compare(c), mpi.Similar)
		alive(d)
		return d.Free()
	}},
	{file: "comm/cmsplit2.c", ranks: 12, body: func(c *mpi.Comm) error {
		// Equal keys keep the order, however many there are.
		for range 20 {
			d := get(c.Split(c.Rank()%2, 7))
			is("rank", d.Rank(), c.Rank()/2)
			must(d.Free())
		}
		d := get(c.Split(3, c.Rank()%3))
		is("rank by key and rank", d.Rank(), c.Rank()%3*4+c.Rank()/3)
		return d.Free()
	}},
	{file: "comm/cmsplit_type.c", ranks: 6, opts: []mpitest.Option{mpitest.Place(func(r int) (string, string) {
		return fmt.Sprint("h", r/2), fmt.Sprint("s", r/4)
	})}, body: func(c *mpi.Comm) error {
		h := get(c.SplitBy(mpi.Host, 0))
		is("ranks of a host", h.Size(), 2)
		is("rank in it", h.Rank(), c.Rank()%2)
		s := get(c.SplitBy(mpi.Site, -c.Rank()))
		is("ranks of a site", s.Size(), []int{4, 2}[c.Rank()/4])
		is("last first", s.Rank(), s.Size()-1-c.Rank()%4)
		for r := range h.Size() {
			is("one host", h.Host(r), h.Host(0))
		}
		refused("an unknown level", second(c.SplitBy(mpi.Level(9), 0)), mpi.ErrArg)
		return first(h.Free(), s.Free())
	}},
	{file: "comm/comm_create_group.c", ranks: 6, body: func(c *mpi.Comm) error {
		if c.Rank()%2 == 1 {
			return nil // takes no part at all
		}
		g := get(c.Group().Incl(4, 0, 2))
		d := get(c.CreateGroup(g, 1))
		is("group", d.Group().Compare(g), mpi.Ident)
		alive(d)
		return d.Free()
	}},
	{file: "comm/comm_create_group_idup.c", ranks: 4, body: func(c *mpi.Comm) error {
		// Goroutines make communicators at the same time, told apart by tags.
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() {
				d, err := c.CreateGroup(c.Group(), i)
				if err != nil {
					errs[i] = err
					return
				}
				sum := []int{0}
				errs[i] = first(mpi.Allreduce(d, []int{i}, sum, mpi.Sum), want("sum", sum, []int{4 * i}), d.Free())
			})
		}
		wg.Wait()
		return first(errs...)
	}},
	{file: "comm/comm_group_half.c", ranks: 6, body: func(c *mpi.Comm) error {
		half := get(c.Group().RangeIncl(mpi.Range{First: 0, Last: 2, Stride: 1}))
		d := get(c.Create(half))
		is("in it", d != nil, c.Rank() < 3)
		if d == nil {
			return nil
		}
		alive(d)
		return d.Free()
	}},
	{file: "comm/comm_group_rand.c", ranks: 5, body: func(c *mpi.Comm) error {
		for seed := range uint64(20) {
			var ranks []int
			rng := rand.New(rand.NewPCG(seed, 0))
			for _, r := range rng.Perm(5) {
				if rng.IntN(2) == 0 {
					ranks = append(ranks, r)
				}
			}
			d := get(c.Create(get(c.Group().Incl(ranks...))))
			if d == nil {
				continue
			}
			all := make([]int, d.Size())
			must(mpi.Allgather(d, []int{c.Rank()}, all))
			are("members", all, ranks)
			must(d.Free())
		}
		return nil
	}},
	{file: "comm/comm_idup_isend.c", ranks: 2, body: func(c *mpi.Comm) error {
		peer := 1 - c.Rank()
		in := make([]int, 1)
		r := get(mpi.Irecv(c, in, peer, 0))
		made := make(chan error, 1)
		var d *mpi.Comm
		go func() { // ends when the duplicate is there
			var err error
			d, err = c.Dup()
			made <- err
		}()
		must(mpi.Ssend(c, []int{c.Rank()}, peer, 0), done(r, nil), <-made)
		is("received meanwhile", in[0], peer)
		alive(d)
		return d.Free()
	}},
	{file: "comm/comm_idup_mul.c", ranks: 3, body: func(c *mpi.Comm) error {
		// Several duplications at a time, each of a communicator of its own.
		var wg sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			d := get(c.Dup())
			wg.Go(func() {
				e, err := d.Dup()
				if err == nil {
					err = first(mpi.Barrier(e), e.Free(), d.Free())
				}
				errs[i] = err
			})
		}
		wg.Wait()
		return first(errs...)
	}},
	{file: "comm/comm_info.c", ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		i := d.Info()
		must(i.Set("mpi_assert_no_any_tag", "true"))
		d.SetInfo(i)
		v, ok := d.Info().Get("mpi_assert_no_any_tag")
		is("hint", v, "true")
		is("there", ok, true)
		must(i.Set("mpi_assert_no_any_tag", "false"))
		v, _ = d.Info().Get("mpi_assert_no_any_tag")
		is("hint after the caller's copy has changed", v, "true")
		return d.Free()
	}},
	{file: "comm/dup_with_info.c", ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		var i mpi.Info
		must(i.Set("x", "1"))
		d.SetInfo(&i)
		e := get(d.Dup())
		v, _ := e.Info().Get("x")
		is("hint of the duplicate", v, "1")
		d.SetInfo(&mpi.Info{})
		v, _ = e.Info().Get("x")
		is("hint after the original's are gone", v, "1")
		alive(e)
		return first(d.Free(), e.Free())
	}},
	{file: "comm/commcreate1.c", ranks: 4, body: func(c *mpi.Comm) error {
		d := get(c.Create(get(c.Group().Incl(0, 1))))
		if c.Rank() > 1 {
			is("outside", d, nil)
			refused("a barrier of nobody", mpi.Barrier(d), mpi.ErrComm)
			return nil
		}
		alive(d)
		e := get(d.Create(get(d.Group().Incl(1))))
		if d.Rank() == 1 {
			is("alone", e.Size(), 1)
			must(e.Free())
		}
		return d.Free()
	}},
	{file: "comm/commname.c", ranks: 2, body: func(c *mpi.Comm) error {
		is("name of all", c.Name(), "world")
		is("name of self", c.World().Self().Name(), "self")
		d := get(c.Dup())
		is("name of a new one", d.Name(), "")
		d.SetName("first name")
		d.SetName("second")
		is("name", d.Name(), "second")
		e := get(d.Dup())
		is("a name is not handed on", e.Name(), "")
		return first(d.Free(), e.Free())
	}},
	{file: "comm/ctxalloc.c", ranks: 3, body: func(c *mpi.Comm) error {
		for batch := range 4 {
			ds := make([]*mpi.Comm, 40)
			for i := range ds {
				ds[i] = get(c.Dup())
			}
			for i := range ds {
				must(ds[(i*7+batch)%len(ds)].Free())
			}
		}
		d := get(c.Dup())
		alive(d)
		return d.Free()
	}},
	{file: "comm/ctxsplit.c", ranks: 4, body: func(c *mpi.Comm) error {
		for i := range 300 {
			color := mpi.Undefined
			if (c.Rank()+i)%4 != 0 {
				color = 0
			}
			if d := get(c.Split(color, 0)); d != nil {
				is("size", d.Size(), 3)
				must(d.Free())
			}
		}
		return nil
	}},
	{file: "comm/dup.c", ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		is("compare", d.Compare(c), mpi.Congruent)
		// A message of one is not received on the other.
		peer, in := 1-c.Rank(), []int{0, 0}
		r := get(mpi.Irecv(d, in[1:], peer, 5))
		s := get(mpi.Isend(c, []int{1}, peer, 5))
		must(second(mpi.Recv(c, in[:1], peer, 5)))
		must(done(s, nil), mpi.Send(d, []int{2}, peer, 5), done(r, nil))
		are("received", in, []int{1, 2})
		return d.Free()
	}},
	{file: "comm/inactive_reqs.c", ranks: 2, body: func(c *mpi.Comm) error {
		p := get(mpi.SendInit(c, []int{}, 1-c.Rank(), 0))
		must(p.Start(), p.Free())
		must(second(mpi.Recv(c, []int{}, 1-c.Rank(), 0)))
		d := get(c.Dup())
		q := get(mpi.SendInit(d, []int{}, 1-c.Rank(), 0))
		idle := get(mpi.RecvInit(c.World().Self(), []int{}, 0, 0))
		is("not started", idle.Request().None(), true)
		return first(q.Free(), d.Free()) // idle stays, and Finalize does not mind
	}},
}

// second is the error of a call whose result does not matter.
func second[T any](_ T, err error) error { return err }
