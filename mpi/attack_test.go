package mpi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestAttack has ranks do random collective operations, on random communicators that
// they make of others, some of which they revoke, while one or two of them die: every
// call of the others ends. With every third seed nobody dies, and only what has been
// revoked, or made of that, may fail.
// The operations are the same for the same seed; when somebody dies is not, quite.
// ATTACK_SEEDS sets how many seeds are tried, ATTACK_SEED the first.
func TestAttack(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	from := number(t, "ATTACK_SEED", 1)
	for seed := from; seed < from+number(t, "ATTACK_SEEDS", seeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			a := newAttack(seed)
			mpitest.Run(t, a.n, a.rank, mpitest.FaultTolerant(), mpitest.Timeout(40*time.Second), mpitest.Place(func(r int) (string, string) {
				return fmt.Sprint("h", r/2), fmt.Sprint("s", r/a.perSite)
			}))
		})
	}
}

func number(t *testing.T, name string, or uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return or
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// attack is what all ranks know of a run.
type attack struct {
	n, perSite int
	steps      []attackStep
	after      map[int]int           // steps that who dies has done
	late       map[int]time.Duration // how long it lives in the next
}

// attackStep is an operation on one of the communicators: those there are at a rank
// have the same numbers at all, and are nil at those who are no members, or who have
// been told that they cannot be made.
type attackStep struct {
	on         int
	size, root int
	do         int
	free       bool // the communicator afterwards
	revoke     bool // the communicator, or what was made of it, before that
	made       bool
	revoker    int // rank in the world
}

func newAttack(seed uint64) *attack {
	r := rand.New(rand.NewPCG(seed, 9))
	a := &attack{n: 2 + r.IntN(8), after: map[int]int{}, late: map[int]time.Duration{}}
	a.perSite = 1 + r.IntN(a.n)
	for i := range 50 {
		s := attackStep{on: r.IntN(1 + i), size: []int{1, 3, 700, 20_000}[r.IntN(4)], root: r.IntN(1 << 10), do: r.IntN(len(attacks)), free: r.IntN(9) == 0}
		if r.IntN(3) == 0 { // of the others fewer and fewer are left
			s.on = 0
		}
		s.revoke, s.revoker = r.IntN(7) == 0, r.IntN(a.n)
		s.made = s.on == 0 || r.IntN(2) == 0
		a.steps = append(a.steps, s)
	}
	if seed%3 == 0 {
		return a
	}
	for range 1 + r.IntN(2) {
		v := r.IntN(a.n)
		a.after[v], a.late[v] = r.IntN(len(a.steps)), time.Duration(r.IntN(300))*time.Microsecond
	}
	return a
}

// attacks are what a step may be. One that makes no communicator returns nil.
var attacks = []func(c *mpi.Comm, s attackStep) (*mpi.Comm, error){
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) { return c.Dup() },
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		return c.Split(c.Rank()%(1+s.root%3), s.root%5*c.Rank())
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) { return c.Create(c.Group()) },
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		if c.Inter() {
			return c.Merge(s.root%2 == 0)
		}
		return c.CreateGroup(c.Group(), s.root)
	},
	attackInter,
	attackInter,
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) { return nil, mpi.Barrier(c) },
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		return nil, mpi.Allreduce(c, make([]int64, s.size), make([]int64, s.size), mpi.Sum)
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		n := s.size / 10
		return nil, mpi.Alltoall(c, make([]int64, n*peers(c)), make([]int64, n*peers(c)))
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		return nil, mpi.Allgather(c, make([]int64, s.size/10), make([]int64, s.size/10*peers(c)))
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		return nil, mpi.Bcast(c, make([]int64, s.size), attackRoot(c, s))
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		return nil, mpi.Reduce(c, make([]int64, s.size), make([]int64, s.size), mpi.Sum, attackRoot(c, s))
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		if c.Inter() {
			return nil, nil
		}
		return nil, mpi.Scan(c, make([]int64, s.size), make([]int64, s.size), mpi.Sum)
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		if c.Inter() {
			return nil, nil
		}
		w, err := mpi.AllocateWin[int64](c, 4)
		if err != nil {
			return nil, err
		}
		err = w.Fence()
		if err == nil {
			err = w.Put([]int64{1}, (c.Rank()+1)%c.Size(), 1)
		}
		return nil, errors.Join(err, w.FenceEnd(), w.Free())
	},
	func(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
		if c.Inter() {
			return nil, nil
		}
		return c.CartCreate([]int{(c.Size() + 1) / 2}, []bool{true}, true)
	},
}

// attackInter splits a communicator of at least two ranks and joins the halves. The
// first rank that could be the other's leader may have died.
func attackInter(c *mpi.Comm, s attackStep) (*mpi.Comm, error) {
	if c.Inter() {
		return c.Dup()
	}
	if c.Size() < 2 {
		return nil, nil
	}
	at := 1 + s.root%(c.Size()-1)
	color, other := 0, at
	if c.Rank() >= at {
		color, other = 1, 0
	}
	half, err := c.Split(color, 0)
	if err != nil {
		return nil, err
	}
	x, err := half.InterCreate(0, c, other, 5)
	return x, errors.Join(err, half.Free())
}

func peers(c *mpi.Comm) int {
	if c.Inter() {
		return c.RemoteSize()
	}
	return c.Size()
}

// attackRoot is the root that all know: of an intercommunicator, one of the side of
// the process that has the lowest rank in the world.
func attackRoot(c *mpi.Comm, s attackStep) int {
	if !c.Inter() {
		return s.root % c.Size()
	}
	far, err := c.RemoteGroup()
	if err != nil {
		return 0
	}
	all := c.World().Comm().Group()
	us, err1 := c.Group().Translate([]int{0}, all)
	them, err2 := far.Translate([]int{0}, all)
	switch {
	case err1 != nil || err2 != nil:
		return 0
	case them[0] < us[0]:
		return s.root % c.RemoteSize()
	case c.Rank() == s.root%c.Size():
		return mpi.Root
	}
	return mpi.ProcNull
}

// revoked is the communicator that a step may revoke, by number.
func (a *attack) revoked(step int) int {
	if a.steps[step].made {
		return step + 1
	}
	return a.steps[step].on
}

// ends reports whether a communicator may be revoked, of those that a rank has had: by one
// of its members, or because what it was made of is. Others may be ahead of this rank.
func (a *attack) ends(had []*mpi.Comm, number int) bool {
	for i, s := range a.steps {
		if s.revoke && a.revoked(i) == number && hasRank(had[number], s.revoker) {
			return true
		}
	}
	return number > 0 && a.ends(had, a.steps[number-1].on)
}

// hasRank reports whether a rank of the world is a member.
func hasRank(c *mpi.Comm, rank int) bool {
	all := c.World().Comm().Group()
	groups := []*mpi.Group{c.Group()}
	if far, err := c.RemoteGroup(); err == nil {
		groups = append(groups, far)
	}
	for _, g := range groups {
		if at, err := all.Translate([]int{rank}, g); err == nil && at[0] != mpi.Undefined {
			return true
		}
	}
	return false
}

// rank does the steps.
func (a *attack) rank(c *mpi.Comm) error {
	had := []*mpi.Comm{c}
	freed := map[int]bool{}
	me := c.Rank()
	for i, s := range a.steps {
		if after, dies := a.after[me]; dies && after == i {
			defer time.AfterFunc(a.late[me], c.World().Crash).Stop()
		}
		var d *mpi.Comm
		var err error
		on := had[s.on]
		if freed[s.on] {
			on = nil
		}
		if on != nil {
			d, err = attacks[s.do](on, s)
		}
		had = append(had, d)
		if c.World().Crashed() {
			return nil
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("step %d, %+v: %w", i, s, err)
		}
		if err != nil && len(a.after) == 0 && !a.ends(had, s.on) {
			return fmt.Errorf("step %d, %+v, which nobody has revoked: %w", i, s, err)
		}
		if at := a.revoked(i); s.revoke && s.revoker == me && had[at] != nil && !freed[at] {
			if err := had[at].Revoke(); err != nil && !c.World().Crashed() {
				return fmt.Errorf("step %d, revoking %d: %w", i, at, err)
			}
		}
		if s.free && s.on > 0 && on != nil {
			if err := on.Free(); err != nil && !c.World().Crashed() {
				return fmt.Errorf("step %d, freeing %d: %w", i, s.on, err)
			}
			freed[s.on] = true
		}
	}
	return nil
}
