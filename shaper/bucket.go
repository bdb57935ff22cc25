package shaper

import "time"

// Pair is two datagrams of Ethernet's size, in bytes: as much may leave at once at any
// rate.
const Pair = 2 * 1542

// fullSize is from which size on a datagram is taken for one of the largest, bytes on the
// wire.
const fullSize = 1200

const (
	burstTime = int64(100 * time.Microsecond) // what may leave at once, in time at the rate
	slackTime = int64(50 * time.Microsecond)  // by which what is sent may be late without any loss …
	slackMore = int64(100 * time.Microsecond) // … and so much more at most while much has been lost already:
	slackFrom = int64(2 * time.Millisecond)   // of what is more than this
	slackPart = 30                            // one part in so many
	maxLate   = int64(5 * time.Millisecond)   // the most lateness beyond that which is caught up; see below
	catchUp   = 41                            // one part in so many is waived while late: 2.5 % above the rate

	// While it catches up a burst is smaller, by what the higher rate adds in a
	// millisecond, so that no window of that length has more than without.
	catchUpLess = int64(time.Millisecond) / (catchUp - 1)

	// payBack is the part of the rate, one in so many, that who has had the extra bytes
	// and goes on does without until it has sent no more than the rate: what they left
	// in the queue behind would stay there as long as everybody goes on. (With one in eight a
	// node that begins beside others had less than 0.9 of its max–min share for 100 kB.)
	payBack = 4

	// pairTime is up to which time the first of two datagrams waits for the other's turn.
	pairTime = int64(2500 * time.Microsecond)
)

// bucket is the generic cell rate algorithm (ITU-T I.371) in bytes: it keeps the
// time at which everything sent so far would have left, had it been sent evenly.
// The bytes of any window of t seconds are bounded by rate × t + depth, whatever
// happened before. A thread that is late keeps to the times it had, which adds at most
// what the rate is in the slack, and while it catches up the rate is 1.025 times as much.
//
// Extra bytes, beyond a burst, are only lent: see payBack.
//
// What a node catches up, its site's others have to leave free on their link, or it fills
// the queue: four that had 20 ms each to catch up, as where processors are busy, lost 25 to
// 98 packets in each all-to-all of 1 MiB at a queue of 64 kB, and none with 5 ms.
//
// It computes in whole nanoseconds and carries the remainder, so that there is
// no drift at any rate.
type bucket struct {
	rate  Rate
	extra int   // what bytes is to be at least
	two   int   // bytes of two datagrams
	burst int   // bytes that may leave by one call
	bytes int   // depth: burst, or more where another bucket spaces what this lets through
	depth int64 // the same in ns at the rate
	tat   int64 // theoretical arrival time: when all that was sent is paid for, ns; ahead by depth and a burst's payBack at most
	owed  int64 // what of the extra bytes is still to be paid back, ns at the rate
	rem   int64 // of the last division, in bits × 1e9 / s, below rate
	late  int64 // what the pacing thread has lost by being late, ns at the rate
	spare int64 // by how much it may be late since it comes for less than a burst, ns
	gifts gifts
}

// set changes the rate; what was sent before stays sent, in bytes. Where the depth alone
// changes as much may leave at once as before: what is new of it has to be saved up
// first, lest a node that never rests be given it each time. two is the size of two
// datagrams in bytes.
func (b *bucket) set(now int64, r Rate, two int) {
	if r == b.rate && b.two == two && b.bytes == max(b.burst, b.extra) {
		return
	}
	ahead := float64(max(b.tat-now, 0))
	was := b.rate
	b.rate, b.two = r, two
	if r != was {
		b.rem = 0
	}
	if r == 0 {
		b.late, b.owed = 0, 0
		return
	}
	b.burst = max(two, int(int64(r)/8*burstTime/1e9))
	b.spare = b.time(b.burst - b.worth())
	bytes := max(b.burst, b.extra)
	grown := bytes - b.bytes
	b.bytes, b.depth = bytes, b.time(bytes)
	switch {
	case was == 0:
		b.tat, b.late = now, 0
	case was != r && ahead > 0:
		b.tat = now + min(int64(ahead*float64(was)/float64(r)), b.depth)
		b.owed = int64(float64(b.owed) * float64(was) / float64(r))
	case was == r && (ahead > 0 || grown > 0):
		b.tat = max(max(b.tat, now)+int64(grown)*8e9/int64(r), now)
	}
	b.owed = min(b.owed, b.beyond())
}

// worth is for how much of a burst the pacing thread comes, bytes: a quarter, but two
// datagrams, since each time that it wakes costs as much as sending them, unless the first
// would wait for long or there is no time for a pair that is late. By the rest it may be
// late; where that is less than the slack, its lateness is kept, see fill.
func (b *bucket) worth() int {
	if b.time(b.two) > pairTime || b.tight() {
		return b.two / 2
	}
	return max(b.burst/4, b.two)
}

// tight reports whether a pair that is late, by no more than the slack, or what is caught
// up would have a window of a millisecond hold a pair more than it may: more than the rate
// and a burst. Single datagrams leave half a burst for that.
func (b *bucket) tight() bool {
	slack := slackTime - b.time(b.burst-b.two)
	pair := b.time(b.two)
	most := int64(time.Millisecond) + b.time(b.burst)
	return slack > 0 && most/pair*pair < int64(time.Millisecond)+slack+catchUpLess
}

// time is the time that bytes take at the rate, ns.
func (b *bucket) time(bytes int) int64 { return int64(bytes) * 8e9 / int64(b.rate) }

// slack is by how much what is sent may be late beyond that and what follows keep to the
// times it had, ns. The less there is of it the evener is what leaves; but what is lost by
// lateness that goes on is more than can be caught up, and so there is more of it then.
func (b *bucket) slack() int64 {
	return max(slackTime+min(max(b.late-slackFrom, 0)/slackPart, slackMore)-b.spare, 0)
}

// beyond is what extra bytes add to a burst, ns at the rate.
func (b *bucket) beyond() int64 { return b.time(b.bytes - b.burst) }

// cost is the time that bytes take at the rate.
func (b *bucket) cost(bytes int) int64 {
	return (int64(bytes)*8e9 + b.rem) / int64(b.rate)
}

// at is the time from which bytes may leave in one burst. A datagram is never more
// than half of what may (see model.grow); what is more than all of it never leaves at
// once, however long nothing has.
func (b *bucket) at(bytes int) int64 {
	if b.rate == 0 {
		return 0
	}
	depth := b.depth
	if b.late > 0 {
		depth -= b.less()
	}
	return b.tat + b.cost(max(bytes-b.gifts.taken, 0)) - depth
}

// less is by how much smaller a burst is while it catches up, ns.
func (b *bucket) less() int64 { return min(catchUpLess, b.depth/2) }

// lose notes lateness that is to be caught up. What a burst is smaller by then is lost as
// well, and is not there at once when that ends: see spend.
func (b *bucket) lose(ns int64) {
	if ns > 0 && b.late == 0 {
		ns += b.less()
	}
	b.late = min(b.late+ns, maxLate)
}

// unused is how long nothing has been owed, ns.
func (b *bucket) unused(now int64) int64 {
	if b.rate == 0 {
		return maxLate
	}
	return max(now-b.tat, 0)
}

// fill forgets what has been unused. credit of it, at most, was the pacing
// thread's or the stages' fault: that is kept, or if it is too much caught up.
func (b *bucket) fill(now, credit int64) {
	if b.rate == 0 || now <= b.tat {
		return
	}
	if lasts := b.lasts(now); lasts > 0 {
		b.tat = now + lasts // what has been given is not there a second time
		return
	}
	kept := min(credit, now-b.tat, b.slack())
	b.tat = now - kept
	b.lose(credit - kept)
}

// rested forgets lateness: there was nothing to send, so nothing was lost.
func (b *bucket) rested(now int64) {
	if full := now + b.lasts(now); b.rate != 0 && full > b.tat {
		b.tat, b.late = full, 0
	}
}

// charge accounts for bytes that leave.
func (b *bucket) charge(now int64, bytes int) {
	if b.rate == 0 {
		return
	}
	cost := b.spend(now, b.gifts.use(bytes))
	if beyond := b.at(b.burst) - now; b.owed > 0 && beyond > 0 {
		back := min(b.owed, min(cost, beyond)/payBack)
		b.tat += back
		b.owed -= back
	}
}

// spend is charge without what is to be paid back, and returns the cost.
func (b *bucket) spend(now int64, bytes int) (cost int64) {
	if b.tat <= now { // it has rested: all extra bytes are there anew
		b.owed = b.beyond()
	}
	n := int64(bytes)*8e9 + b.rem
	cost = n / int64(b.rate)
	b.rem = n - cost*int64(b.rate)
	waived := min(b.late, cost/catchUp)
	b.late -= waived
	b.tat += cost - waived
	if waived > 0 && b.late == 0 {
		b.tat += b.less()
	}
	return cost
}

// delayed notes that what was charged has left by now only, at a cost of so many ns: the
// spacing of what follows counts from then, and the time is caught up. What others have
// sent meanwhile has used the time.
func (b *bucket) delayed(now, cost int64) {
	if shift := now - b.slack() + cost - b.tat; b.rate != 0 && shift > 0 {
		b.tat += shift
		b.lose(shift)
	}
}
