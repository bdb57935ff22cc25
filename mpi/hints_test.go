//go:build linux

package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

// hintServer is a node's daemon, as far as programs see it, until the test ends.
func hintServer(t *testing.T) (s *hint.Server, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "hints.sock")
	s, err := hint.Listen(hint.Config{Path: socket, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, socket
}

// eventually waits for what the server's goroutines do.
func eventually(what string, f func() bool) error {
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("never: " + what)
		}
	}
	return nil
}

// threeAndOne has ranks 0 to 3 on three hosts of alpha and rank 4 on beta's.
func threeAndOne() mpitest.Option {
	return mpitest.Place(func(rank int) (host, site string) {
		return []string{"a1", "a1", "a2", "a3", "b1"}[rank], []string{"alpha", "alpha", "alpha", "alpha", "beta"}[rank]
	})
}

// told sums what all pages say was begun, and what ended.
func told(s *hint.Server) (entered, left map[hint.Op]uint64) {
	entered, left = map[hint.Op]uint64{}, map[hint.Op]uint64{}
	for _, i := range s.Pages() {
		for op, n := range i.Entered {
			entered[op] += n
		}
		for op, n := range i.Left {
			left[op] += n
		}
	}
	return entered, left
}

// toldForm is an all-to-all in one of its forms.
type toldForm struct {
	name string
	op   hint.Op
	n    uint64 // operations
	run  func(c *mpi.Comm) error
}

func wait(r mpi.Request, err error) error {
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

func twice(p *mpi.Persistent, err error) error {
	for range 2 {
		if err == nil {
			err = p.Start()
		}
		if err == nil {
			_, err = p.Wait()
		}
	}
	return err
}

func toldForms() []toldForm {
	block := func(c *mpi.Comm) (s, r []int, l mpi.Layout) {
		n := max(c.Size(), c.RemoteSize())
		l.Counts = make([]int, n)
		for i := range n {
			l.Counts[i] = 1
		}
		return make([]int, n), make([]int, n), l
	}
	bufs := func(c *mpi.Comm) (out []mpi.Buf) {
		for range c.Size() {
			out = append(out, mpi.BufOf(make([]int32, 2)))
		}
		return out
	}
	whole := func(c *mpi.Comm) mpi.Buf { return mpi.BufOf(make([]int32, c.Size())) }
	return []toldForm{
		{"alltoall", hint.Alltoall, 1, func(c *mpi.Comm) error { s, r, _ := block(c); return mpi.Alltoall(c, s, r) }},
		{"in place", hint.Alltoall, 1, func(c *mpi.Comm) error { _, r, _ := block(c); return mpi.Alltoall(c, nil, r) }},
		{"under a context", hint.Alltoall, 1, func(c *mpi.Comm) error {
			s, r, _ := block(c)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			return mpi.Alltoall(c.WithContext(ctx), s, r)
		}},
		{"ialltoall", hint.Alltoall, 1, func(c *mpi.Comm) error { s, r, _ := block(c); return wait(mpi.Ialltoall(c, s, r)) }},
		{"alltoall init", hint.Alltoall, 2, func(c *mpi.Comm) error { s, r, _ := block(c); return twice(mpi.AlltoallInit(c, s, r)) }},
		{"alltoall of Bufs", hint.Alltoall, 1, func(c *mpi.Comm) error { return c.AlltoallBuf(whole(c), whole(c)) }},
		{"ialltoall of Bufs", hint.Alltoall, 1, func(c *mpi.Comm) error { return wait(c.IalltoallBuf(whole(c), whole(c))) }},
		{"alltoallv", hint.Alltoallv, 1, func(c *mpi.Comm) error { s, r, l := block(c); return mpi.Alltoallv(c, s, l, r, l) }},
		{"ialltoallv", hint.Alltoallv, 1, func(c *mpi.Comm) error { s, r, l := block(c); return wait(mpi.Ialltoallv(c, s, l, r, l)) }},
		{"alltoallv init", hint.Alltoallv, 2, func(c *mpi.Comm) error { s, r, l := block(c); return twice(mpi.AlltoallvInit(c, s, l, r, l)) }},
		{"alltoallw", hint.Alltoallw, 1, func(c *mpi.Comm) error { return mpi.Alltoallw(c, bufs(c), bufs(c)) }},
		{"ialltoallw", hint.Alltoallw, 1, func(c *mpi.Comm) error { return wait(mpi.Ialltoallw(c, bufs(c), bufs(c))) }},
		{"alltoallw init", hint.Alltoallw, 2, func(c *mpi.Comm) error { return twice(mpi.AlltoallwInit(c, bufs(c), bufs(c))) }},
		{"wrong sizes", hint.Alltoall, 0, func(c *mpi.Comm) error {
			if mpi.Alltoall(c, make([]int, 1), make([]int, 2)) == nil {
				return errors.New("no error")
			}
			return nil
		}},
		{"bcast", hint.Alltoall, 0, func(c *mpi.Comm) error { _, r, _ := block(c); return mpi.Bcast(c, r, 0) }},
		{"allgather", hint.Alltoall, 0, func(c *mpi.Comm) error { s, r, _ := block(c); return mpi.Allgather(c, s[:1], r) }},
		{"neighbours", hint.Alltoall, 0, func(c *mpi.Comm) error {
			d, err := c.CartCreate([]int{c.Size()}, []bool{true}, false)
			if err != nil {
				return err
			}
			return first(mpi.NeighborAlltoall(d, make([]int, 2), make([]int, 2)), d.Free())
		}},
		{"one site", hint.Alltoall, 0, func(c *mpi.Comm) error {
			d, err := c.SplitBy(mpi.Site, 0)
			if err != nil {
				return err
			}
			s, r, _ := block(d)
			return first(mpi.Alltoall(d, s, r), d.Free())
		}},
		{"intercommunicator", hint.Alltoall, 0, func(c *mpi.Comm) error {
			x := halves(c, 3)
			return first(mpi.Alltoall(x, make([]int, x.RemoteSize()), make([]int, x.RemoteSize())), x.Free())
		}},
	}
}

// TestHintsOperations: all forms of all-to-all over several sites are told of, each
// time they are begun, and nothing else is.
func TestHintsOperations(t *testing.T) {
	for _, e := range toldForms() {
		t.Run(e.name, func(t *testing.T) {
			s, socket := hintServer(t)
			mpitest.Run(t, 5, func(c *mpi.Comm) error {
				if err := eventually("five pages", func() bool { return len(s.Pages()) == 5 }); err != nil {
					return err
				}
				if err := first(mpi.Barrier(c), e.run(c), mpi.Barrier(c)); err != nil || c.Rank() != 0 {
					return first(err, mpi.Barrier(c)) // pages stay until rank 0 has looked
				}
				want := map[hint.Op]uint64{}
				if e.n > 0 {
					want[e.op] = 5 * e.n
				}
				entered, left := told(s)
				if fmt.Sprint(entered) != fmt.Sprint(want) || fmt.Sprint(left) != fmt.Sprint(entered) {
					t.Errorf("begun %v, ended %v; want %v", entered, left, want)
				}
				if got := s.Strictest(); got != (hint.Request{}) {
					t.Errorf("in the end %+v is asked for", got)
				}
				return mpi.Barrier(c)
			}, threeAndOne(), mpitest.With(mpi.WithHints(socket)))
		})
	}
}

// TestHintsUnderWay: a nonblocking operation counts from its start to its end, with
// the hosts of the site that tells; two that overlap each for itself.
func TestHintsUnderWay(t *testing.T) {
	s, socket := hintServer(t)
	mpitest.Run(t, 5, func(c *mpi.Comm) error {
		if err := eventually("five pages", func() bool { return len(s.Pages()) == 5 }); err != nil {
			return err
		}
		send, recv, more := make([]int, 5), make([]int, 5), make([]int, 5)
		l := mpi.Layout{Counts: []int{1, 1, 1, 1, 1}}
		var both [2]mpi.Request
		begin := func() (err error) {
			if both[0], err = mpi.Ialltoall(c, send, recv); err == nil {
				both[1], err = mpi.Ialltoallv(c, send, l, more, l)
			}
			return err
		}
		asked := func(want hint.Request) error {
			if got := s.Strictest(); got != want {
				return fmt.Errorf("%+v is asked for, want %+v", got, want)
			}
			return nil
		}
		err := mpi.Barrier(c)
		if c.Rank() == 4 { // alone at its site; the others wait to be told
			err = first(err, begin(), asked(hint.Request{Op: hint.Alltoall, Hosts: 1}), mpi.Send(c, send[:1], 0, 1))
		}
		if c.Rank() == 0 {
			_, e := mpi.Recv(c, send[:1], 4, 1)
			err = first(err, e, begin(), asked(hint.Request{Op: hint.Alltoall, Hosts: 3}))
			for r := 1; r < 4; r++ {
				err = first(err, mpi.Send(c, send[:1], r, 1))
			}
		}
		if c.Rank() > 0 && c.Rank() < 4 {
			_, e := mpi.Recv(c, send[:1], 0, 1)
			err = first(err, e, begin())
		}
		err = first(err, mpi.WaitAll(both[:], nil), mpi.Barrier(c))
		if c.Rank() == 0 {
			err = first(err, asked(hint.Request{}))
		}
		return first(err, mpi.Barrier(c))
	}, threeAndOne(), mpitest.With(mpi.WithHints(socket)))
}

// TestHintsAttributes: the last MATB that was set counts, and what the job has said
// counts again when it is gone.
func TestHintsAttributes(t *testing.T) {
	t.Setenv("MESH_MATB", "70000000")
	t.Setenv("MESH_PATTERN", "cg")
	s, socket := hintServer(t)
	var leaked *mpi.Comm
	mpitest.Run(t, 1, func(c *mpi.Comm) error {
		if err := eventually("a page", func() bool { return len(s.Pages()) == 1 }); err != nil {
			return err
		}
		is := func(what string, want int64) {
			t.Helper()
			if got := s.Strictest().MATB; got != want {
				t.Errorf("%s: MATB %d, want %d", what, got, want)
			}
		}
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		is("the job's", 70e6)
		if v, set := mpi.GetAttr(c, mpi.MaxRate); set {
			t.Errorf("MaxRate %d before anybody said", v)
		}
		s.SetMaxRate(1e9)
		if v, set := mpi.GetAttr(c, mpi.MaxRate); !set || v != 1e9 {
			t.Errorf("MaxRate %d, %v", v, set)
		}
		if err := mpi.SetAttr(c, mpi.MaxRate, 5); !errors.Is(err, mpi.ErrKeyval) {
			t.Errorf("setting MaxRate: %v", err)
		}
		d, err := c.Dup()
		ok(err)
		ok(mpi.SetAttr(d, mpi.MATB, 50e6))
		is("set", 50e6)
		ok(mpi.SetAttr(d, mpi.MATB, 60e6))
		is("set anew", 60e6)
		e, err := d.Dup()
		ok(err)
		if v, set := mpi.GetAttr(e, mpi.MATB); !set || v != 60e6 {
			t.Errorf("MATB of a duplicate: %d, %v", v, set)
		}
		ok(e.Free())
		is("a duplicate is freed", 60e6)
		ok(mpi.SetAttr(c, mpi.MATB, 80e6))
		is("set elsewhere", 80e6)
		ok(mpi.DeleteAttr(d, mpi.MATB))
		is("deleted where it did not count", 80e6)
		ok(mpi.DeleteAttr(c, mpi.MATB))
		is("deleted", 70e6)
		ok(mpi.SetAttr(d, mpi.MATB, 90e6))
		is("and again", 90e6)
		ok(d.Free())
		is("freed", 70e6)
		ok(mpi.SetAttr(c, mpi.MATB, 5e6))
		ok(mpi.SetAttr(c, mpi.MATB, 0))
		is("taken back", 70e6)
		ok(mpi.SetAttr(c, mpi.MATB, 1<<62))
		is("beyond all bounds", hint.MaxMATB)
		leaked = c
		return nil
	}, mpitest.With(mpi.WithHints(socket)))
	if err := eventually("no page", func() bool { return len(s.Pages()) == 0 }); err != nil {
		t.Error(err)
	}
	if v, set := mpi.GetAttr(leaked, mpi.MaxRate); set {
		t.Errorf("MaxRate %d after the end", v)
	}
}

// TestHintsNobody: without a daemon, with a name that no socket can have, with wrong
// variables and without a page programs run.
func TestHintsNobody(t *testing.T) {
	t.Setenv("MESH_MATB", "fast")
	t.Setenv("MESH_PATTERN", "zigzag")
	for _, socket := range []string{"", "/nowhere/hints.sock", filepath.Join("/", fmt.Sprintf("%0200d", 1))} {
		mpitest.Run(t, 5, func(c *mpi.Comm) error {
			if v, set := mpi.GetAttr(c, mpi.MaxRate); set {
				return fmt.Errorf("MaxRate %d", v)
			}
			return first(mpi.SetAttr(c, mpi.MATB, 1e6), mpi.Alltoall(c, make([]int, 5), make([]int, 5)), mpi.DeleteAttr(c, mpi.MATB))
		}, threeAndOne(), mpitest.With(mpi.WithHints(socket)))
	}
}

// TestHintsCrash: a rank dies with operations under way; its page goes, and they end
// without it.
func TestHintsCrash(t *testing.T) {
	s, socket := hintServer(t)
	mpitest.Run(t, 5, func(c *mpi.Comm) error {
		d, err := c.Dup() // the others do not take part, and finalize
		if err != nil || c.Rank() > 0 {
			return err
		}
		if err := eventually("a page", func() bool { return len(s.Pages()) == 5 }); err != nil {
			return err
		}
		r, err := mpi.Ialltoall(d, make([]int, 5), make([]int, 5))
		if err != nil {
			return err
		}
		if got := s.Strictest().Hosts; got != 3 {
			t.Errorf("%d hosts before the end", got)
		}
		c.World().Crash()
		_, _ = r.Wait() // fails, or not: the world is gone
		return mpi.SetAttr(d, mpi.MATB, 1)
	}, threeAndOne(), mpitest.FaultTolerant(), mpitest.With(mpi.WithHints(socket)))
	if err := eventually("no pages", func() bool { return len(s.Pages()) == 0 }); err != nil {
		t.Error(err)
	}
}
