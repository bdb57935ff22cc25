package mpi

import (
	"errors"
	"math"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// agreement is how the living members of a communicator come to the same values,
// whoever dies meanwhile: they tell each other all they know, round after round,
// until a round has brought news of no death; then everybody knows what anybody
// alive does (the early-stopping form of flooding consensus; Charron-Bost and
// Schiper, "Uniform consensus is harder than consensus"). The engine is the
// failure detector: waiting for the dead ends with an error.
//
// A mesh cannot promise that who cannot be reached is dead: two living members may have
// lost each other. Who is told that it is dead believes so, unless it has counted whoever
// says so as dead before, and leaves; where two say so of each other, the one of the lower
// rank is believed. It remains possible that members are cut off in the moment in which the
// others decide, and come to other values; nothing can prevent that (Gray's two generals).
// Who goes on with them finds them gone when it next needs them.
type agreement struct {
	rank  int
	state int64 // inRounds, done or disowned

	and  int64
	most [3]int64 // the largest that anybody has given

	dead  members // who is known to be dead
	found members // whom this process has found so itself: nothing reaches them
	gone  members // who has said that it sends nothing more
	fresh members // dead whom somebody has not acknowledged
	acked members // whose deaths the caller of Agree has acknowledged
}

// What a member does after the message that says so.
const (
	inRounds int64 = iota
	done           // the values are those of all
	disowned       // others count it as dead, and it counts itself as dead too
)

// errDisowned is how an agreement ends at a process that others count as dead: their
// links to it have failed, and the others go on without it.
var errDisowned = errors.New("other members count this process as dead")

// members is a set of them, a bit each.
type members []uint64

func (s members) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s members) add(i int)      { s[i/64] |= 1 << (i % 64) }

// least are no larger than what anybody gives.
var least = [3]int64{math.MinInt64, math.MinInt64, math.MinInt64}

func newAgreement(rank, size int) *agreement {
	set := func() members { return make(members, (size+63)/64) }
	return &agreement{
		rank: rank, and: -1, most: least,
		dead: set(), found: set(), gone: set(), fresh: set(), acked: set(),
	}
}

// with reports whether a member belongs to the round: it is told, and is heard. So is one
// whom only others have found dead: if it lives, it has values, or hears that it is dead.
func (a *agreement) with(i int) bool { return i != a.rank && !a.found.has(i) && !a.gone.has(i) }

// words is what is told: state, and, most, dead, fresh.
func (a *agreement) words() []int64 {
	if a.state == inRounds {
		for k := range a.fresh {
			a.fresh[k] |= a.dead[k] &^ a.acked[k]
		}
	}
	out := append([]int64{a.state, a.and}, a.most[:]...)
	for _, set := range []members{a.dead, a.fresh} {
		for _, w := range set {
			out = append(out, int64(w))
		}
	}
	return out
}

// sets returns the dead and the fresh of what another member told.
func (a *agreement) sets(v []int64) (dead, fresh []int64) {
	v = v[2+len(a.most):]
	return v[:len(a.dead)], v[len(a.dead):]
}

// learn takes what another member told. Who is done has told, or returned, values
// that must not change any more: they replace ours, which may know of a death
// that came too late.
func (a *agreement) learn(v []int64) {
	if v[0] == done {
		a.state, a.and, a.most = done, -1, least
		clear(a.dead)
		clear(a.fresh)
	}
	a.and &= v[1]
	for i := range a.most {
		a.most[i] = max(a.most[i], v[2+i])
	}
	dead, fresh := a.sets(v)
	for i := range a.dead {
		a.dead[i] |= uint64(dead[i])
		a.fresh[i] |= uint64(fresh[i])
	}
}

// end ends a round in which each member with(i) has told heard[i], nothing if it was lost.
// The values are those of all when all from whom it has heard knew of the same deaths, and
// no other was noticed.
func (a *agreement) end(round int, heard [][]int64) {
	before := slices.Clone(a.dead)
	var over, going []int
	for i, v := range heard {
		switch {
		case !a.with(i):
		case v == nil:
			a.bury(i)
		case v[0] == done:
			over = append(over, i)
		default:
			going = append(going, i)
		}
	}
	settled := round > 0
	for _, i := range slices.Concat(over, going) { // first the values that change no more
		v := heard[i]
		if v[0] != inRounds {
			a.gone.add(i)
		}
		if a.state == done {
			continue
		}
		dead, _ := a.sets(v)
		switch {
		case before.has(i) && v[0] != done: // it hears that it is dead; nothing it says counts
		case dead[a.rank/64]>>(a.rank%64)&1 != 0:
			a.state = disowned
			return
		case v[0] == disowned:
			a.bury(i)
		case v[0] == done || !a.dead.has(i): // none of lower rank has just said that it is dead
			settled = settled && slices.EqualFunc(dead, before, func(x int64, y uint64) bool { return uint64(x) == y })
			a.learn(v)
		}
	}
	if settled && slices.Equal(before, a.dead) {
		a.state = done
	}
}

// bury counts a member as dead from which nothing comes any more.
func (a *agreement) bury(i int) {
	a.dead.add(i)
	a.found.add(i)
}

// nextRecovery numbers what goes on after a failure, when the living no longer
// have begun equally many of the other operations.
func (c *comm) nextRecovery() int32 { return int32(c.recoveries.Add(1) & (againTag - 1)) }

// reach runs an agreement's rounds until the values are the same everywhere, or others
// count this process as dead. Who is at the end tells so in one more round, for which it
// does not wait: some may not know it yet, and wait for nobody else.
func (c *comm) reach(a *agreement, tag int32) error {
	if len(c.group.procs) == 1 {
		return nil
	}
	for round := 0; ; round++ {
		ids, in, err := c.exchange(a, tag|int32(round&1)<<30)
		if err != nil {
			return err
		}
		switch a.state {
		case inRounds:
			if err := c.await(a, ids, in); err != nil {
				return err
			}
			a.end(round, in)
			continue
		case disowned:
			err = engine.ErrProcFailed{Proc: c.group.self, Err: errDisowned}
		}
		for _, id := range ids {
			c.w.eng.Free(id)
		}
		return err
	}
}

// exchange begins to tell, and to hear of, the others. In ids are a receive and a send for
// each member, in what it will tell.
func (c *comm) exchange(a *agreement, tag int32) (ids []engine.ID, in [][]int64, err error) {
	w, ctx := c.w, c.base+ctxRecovery
	mine := a.words()
	all := make([]int64, len(mine)*len(c.group.procs))
	in = make([][]int64, len(c.group.procs))
	ids = make([]engine.ID, 2*len(c.group.procs))
	for i, p := range c.group.procs {
		in[i] = all[i*len(mine) : (i+1)*len(mine)]
		if !a.with(i) {
			continue
		}
		ids[2*i], err = w.eng.Irecv(&engine.RecvArgs{From: p, Context: ctx, Tag: tag, Buf: bytesOf(in[i]), Swap: swapInt64})
		if err == nil {
			ids[2*i+1], err = w.eng.Isend(&engine.SendArgs{To: p, Context: ctx, Tag: tag, Data: bytesOf(mine)})
		}
		if err != nil && !died(err) {
			return nil, nil, err
		}
	}
	return ids, in, nil
}

// await waits for what exchange has begun, and forgets what has not come.
func (c *comm) await(a *agreement, ids []engine.ID, in [][]int64) error {
	for i := range in {
		if !a.with(i) {
			continue
		}
		_, err := c.w.eng.Wait(ids[2*i])
		_, _ = c.w.eng.Wait(ids[2*i+1]) // if it has failed, the next round's receive will
		switch {
		case ids[2*i] == (engine.ID{}), died(err): // before, or now
			in[i] = nil
		case err != nil:
			return err
		}
	}
	return nil
}

func died(err error) bool {
	var dead engine.ErrProcFailed
	return errors.As(err, &dead)
}
