package mpi_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// program is a random one that cannot hang by itself: who sends what to whom in
// each phase is known to all ranks, all receives of a phase are begun before its
// messages are waited for, and phases end with a collective operation.
type program struct {
	seed   uint64
	ranks  int
	phases int
}

// letter is a message of a program.
type letter struct {
	from, to, tag, n int
	number           int64 // among those of its phase
	mode             int
}

func (p program) letters(phase int) []letter {
	r := rand.New(rand.NewPCG(p.seed, uint64(phase)))
	out := make([]letter, 3*p.ranks)
	for i := range out {
		out[i] = letter{r.IntN(p.ranks), r.IntN(p.ranks), r.IntN(3), []int{1, 2, 30, 40, 1000, 20_000}[r.IntN(6)], int64(i), r.IntN(4)}
	}
	return out
}

// run is one rank of the program on a communicator.
func (p program) run(c *mpi.Comm) error {
	for phase := range p.phases {
		if err := p.phase(c, phase); err != nil {
			return fmt.Errorf("seed %d, phase %d: %w", p.seed, phase, err)
		}
	}
	return nil
}

// phase posts receives in an order and with wildcards of its own, among the sends.
// The model: of the letters that a receive may match, those from one sender come in
// their order.
func (p program) phase(c *mpi.Comm, phase int) error {
	me, letters := c.Rank(), p.letters(phase)
	r := rand.New(rand.NewPCG(p.seed+1, uint64(1000*phase+me)))
	wild := r.IntN(3) // this phase's receives: all exact, any source, any source and tag
	var mine, ours []letter
	for _, l := range letters {
		if l.to == me {
			mine = append(mine, l)
		}
		if l.from == me {
			ours = append(ours, l)
		}
	}
	rs, bufs := make([]mpi.Request, len(mine)), make([][]int64, len(mine))
	var sends []mpi.Request
	order := r.Perm(len(mine))
	posted := order
	for len(order) > 0 || len(ours) > 0 {
		if len(ours) == 0 || len(order) > 0 && r.IntN(2) == 0 {
			i := order[0]
			order = order[1:]
			from, tag := mine[i].from, mine[i].tag
			if wild > 0 {
				from = mpi.AnySource
			}
			if wild > 1 {
				tag = mpi.AnyTag
			}
			var err error
			bufs[i] = make([]int64, 20_000)
			if rs[i], err = mpi.Irecv(c, bufs[i], from, tag); err != nil {
				return err
			}
			continue
		}
		s, err := ours[0].send(c)
		if err != nil {
			return err
		}
		sends, ours = append(sends, s), ours[1:]
	}
	st := make([]mpi.Status, len(rs))
	if err := first(mpi.WaitAll(rs, st), mpi.WaitAll(sends, nil)); err != nil {
		return err
	}
	if err := first(delivered(mine, bufs, st), inOrder(posted, bufs, st, wild > 1)); err != nil {
		return err
	}
	return unrooted(c, phase%5)
}

func (l letter) send(c *mpi.Comm) (mpi.Request, error) {
	b := part(l.from, int(l.number), l.n)
	b[0] = l.number
	switch l.mode {
	case 0:
		return mpi.Issend(c, b, l.to, l.tag)
	case 1:
		return mpi.Ibsend(c, b, l.to, l.tag)
	}
	return mpi.Isend(c, b, l.to, l.tag)
}

// delivered checks that each letter has come once, whole, where it could.
func delivered(mine []letter, bufs [][]int64, st []mpi.Status) error {
	byNumber, seen := map[int64]letter{}, map[int64]bool{}
	for _, l := range mine {
		byNumber[l.number] = l
	}
	for i, s := range st {
		number := bufs[i][0]
		l, ok := byNumber[number]
		if !ok || seen[number] || s.Source != l.from || s.Tag != l.tag || mpi.Count[int64](s) != l.n {
			return fmt.Errorf("receive %d got letter %d again or %+v, which is %+v", i, number, s, l)
		}
		seen[number] = true
		if err := want("contents", bufs[i][1:l.n], part(l.from, int(number), l.n)[1:]); err != nil {
			return err
		}
	}
	return nil
}

// inOrder checks that letters of one sender came to receives that could have had
// either in the order in which they were sent (MPI 4.1 §3.5).
func inOrder(posted []int, bufs [][]int64, st []mpi.Status, anyTag bool) error {
	last := map[[2]int]int64{}
	for _, i := range posted {
		k := [2]int{st[i].Source, st[i].Tag}
		if anyTag {
			k[1] = 0
		}
		if before, ok := last[k]; ok && bufs[i][0] < before {
			return fmt.Errorf("letter %d of rank %d was overtaken by letter %d", bufs[i][0], k[0], before)
		}
		last[k] = bufs[i][0]
	}
	return nil
}

// TestPrograms runs random programs in memory and over networks, with small limits
// and several links too.
func TestPrograms(t *testing.T) {
	for name, opts := range map[string][]mpitest.Option{
		"memory":     nil,
		"blocks":     {places["blocks"]},
		"no credit":  {mpitest.With(mpi.WithEagerLimit(64))},
		"wan":        {mpitest.WAN(200*time.Microsecond, 0), mpitest.Blocks(2)},
		"group":      {mpitest.WAN(0, 0), mpitest.Blocks(2), mpitest.With(mpi.WithGroupLinks(2))},
		"crowded":    {mpitest.With(mpi.Crowded())},
		"four links": {mpitest.WAN(0, 0), mpitest.Blocks(1), mpitest.With(mpi.WithLinks(4), mpi.WithEagerLimit(1000))},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				p := program{seed, 2 + int(seed)%4, 6}
				mpitest.Run(t, p.ranks, func(c *mpi.Comm) error {
					return first(c.World().AttachBuffer(64<<20), p.run(c))
				}, opts...)
			}
		})
	}
}

// TestConcurrentPrograms runs a program on each of three communicators, from three
// goroutines of each rank.
func TestConcurrentPrograms(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		if err := c.World().AttachBuffer(64 << 20); err != nil {
			return err
		}
		errs := make([]error, 3)
		var all sync.WaitGroup
		for i := range errs {
			d, err := c.Dup()
			if err != nil {
				return err
			}
			all.Go(func() { errs[i] = first(program{uint64(100 + i), 3, 8}.run(d), d.Free()) })
		}
		all.Wait()
		return first(errs...)
	})
}
