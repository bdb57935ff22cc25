package estimate

import (
	"math"
	"time"
)

// Slot is the span of time that one sample covers.
const Slot = 20 * time.Millisecond

// Rates, bits per second: where an Estimator that knows nothing begins, and its
// bounds.
const (
	FirstRate int64 = 10_000_000
	minRate   int64 = 64_000
	maxRate   int64 = 1_000_000_000_000
)

// The pace as a part of what was found.
const (
	growth     = 2.5  // start: from round to round
	cruising   = 0.97 // leaves room for what is not counted
	drainSmall = 0.9  // after a probe
	drainLarge = 0.8  // after an overload
)

// gains are the paces of probes, each after a success of the one before.
var gains = [...]float64{1.06, 1.12, 1.5, 3}

// Spans, in slots.
const (
	visible    = 3  // from a change of the pace until samples show it
	startRound = 5  // of the start
	startIdle  = 15 // without enough demand, after which the start ends
	quick      = 3  // shortest window that says anything
	probeMin   = 5  // of a probe
	probeMax   = 16 //
	probeEvery = 45 // between failed probes
	drainMost  = 50 // a drain ends
	shortSpan  = 5  // windows of cruise
	midSpan    = 25
	longSpan   = 50
	slowSpan   = 150
	uneven     = 4 // a long window's deliveries may be early or late by so many
)

// Thresholds, as parts of what was sent.
const (
	shortLoss   = 0.08
	midLoss     = 0.02
	longLoss    = 0.10
	queueLoss   = 0.005 // beside signs of a queue
	slowLoss    = 0.0015
	queueBytes  = 12_000
	queueTime   = 0.008    // seconds
	probeBytes  = 48 << 10 // that a probe may add to a queue, unless that is too short to measure
	packet      = 1500     // bytes, of most
	drainBytes  = 64 << 10 // that a drain has time for
	exact       = 40       // packets of which one more or less matters little
	probeLeast  = 6        // packets that a probe has to add, so that a few are not chance
	probePart   = 0.03     // of all that is sent may be what probes have added
	busy        = 0.85     // of the pace: the link is wanted
	enough      = 0.3      // of the pace: a window is worth looking at
	maxLoss     = 0.03     // not related to queues
	lossShare   = 0.3      // of a new sample of loss, at most
	lossMemory  = 1000     // packets by which it is known
	standstill  = 0.1      // of what was found: less is no rate
	stillDrains = 1.04     // more arrives than is sent
)

type phase uint8

const (
	starting phase = iota
	draining
	cruise
	probing // the pace is raised
	judging // it is back, and samples of the probe are still to come
)

// Estimator finds the rate of one link from samples of what was sent and what
// arrived, one each Slot. It is not safe for concurrent use. The zero value is not
// ready; see NewEstimator.
type Estimator struct {
	history
	phase   phase
	since   int     // slot in which the phase began, or from which the start looks
	began   int     // slot in which the phase began
	drain   float64 // pace of the drain
	pace    float64 // bits per second, as are these:
	found   float64 // C; 0: nothing yet
	sure    int     // slot in which found was last confirmed by a measurement; 0: never
	changed int     // slot in which found last changed by more than a little
	loss    float64 // not related to queues
	noted   int     // slot in which that was last learned
	gain    int     // successes of probes in a row
	span    int     // of the probe
	probed  int     // slot in which the last probe ended
	pause   int     // slots from then to the next, at least
	empty   int     // slot from which a drain has found the queue empty; 0: not yet
}

// NewEstimator returns an Estimator that begins with a rate found earlier, in bits
// per second, or, with 0, knows nothing.
func NewEstimator(known int64) *Estimator {
	e := &Estimator{}
	if known <= 0 {
		e.pace = float64(FirstRate)
		return e
	}
	e.found = bounded(float64(known))
	e.enter(cruise, e.found*cruising)
	return e
}

// Add takes in what was sent and what arrived, in bytes, in one Slot, and how many
// slots after its sending a byte arrives and is known, when no queue holds it up.
// More than MaxLag counts as that. Where not all that has arrived may be known,
// sure is false: such samples count only in long windows.
func (e *Estimator) Add(sent, got int64, lag int, sure bool) {
	e.push(float64(sent), float64(got), lag, !sure)
	if e.phase != starting && e.flooded() {
		return
	}
	switch e.phase {
	case starting:
		e.start()
	case draining:
		e.drained()
	case cruise:
		e.watch()
	case probing:
		if e.n >= e.since+e.span {
			e.phase, e.pace = judging, e.found*cruising
		}
	case judging:
		e.judge()
	}
}

// Pace returns what may be sent, bits per second.
func (e *Estimator) Pace() int64 { return int64(e.pace) }

// Found returns what the link was found to carry, bits per second, and how long ago
// that was last measured; 0: nothing is found yet, or it was known before and not
// measured since.
func (e *Estimator) Found() (bits int64, age time.Duration) {
	if e.sure == 0 {
		return int64(e.found), 0
	}
	return int64(e.found), time.Duration(e.n-e.sure+1) * Slot
}

// enter begins a phase.
func (e *Estimator) enter(p phase, pace float64) {
	e.phase, e.since, e.began, e.pace, e.empty = p, e.n, e.n, bounded(pace), 0
}

func bounded(r float64) float64 { return min(max(r, float64(minRate)), float64(maxRate)) }

// background is the loss not related to queues.
func (e *Estimator) background() float64 { return min(e.loss, maxLoss) }

// carried turns what arrived into what the link took.
func (e *Estimator) carried(got float64) float64 { return got / (1 - e.background()) }

// learn sets what was found, from a measurement.
func (e *Estimator) learn(rate float64) {
	if rate = bounded(rate); rate > 1.01*e.found || rate < 0.99*e.found {
		e.changed = e.n
	}
	e.found, e.sure = rate, e.n
}

// start raises the pace while what is sent arrives.
func (e *Estimator) start() {
	from := e.since + visible
	switch {
	case e.sum.sent == 0:
		e.since, e.began = e.n, e.n
	case e.sentIn(e.n-1) > growth*e.pace && e.n < e.began+startIdle: // who sends has not heard of the pace
		e.since = e.n
	}
	if w := e.last(quick + 1); w.from >= from && w.sent > enough*e.pace && e.misses(w, 0.25) && e.steady(w) {
		e.overload(w)
		return
	}
	w, ok := e.window(from, startRound)
	switch {
	case !ok:
	case w.sent < busy*e.pace:
		e.since++                                       // no demand: look at the next window
		if e.found > 0 && e.since > e.began+startIdle { // nobody knows whether the link carries the pace of this round
			e.learn(max(e.found, min(e.carried(w.got), w.sent)))
			e.enter(cruise, e.found*cruising)
			return
		}
		if w.sent > enough*e.pace && e.steady(w) && e.misses(w, shortLoss) {
			e.overload(w)
		}
	case e.misses(w, shortLoss):
		e.overload(w)
	default:
		e.learn(w.sent)
		e.enter(starting, growth*w.sent)
	}
}

// overload takes what arrived in a window for the link's rate.
func (e *Estimator) overload(w window) {
	got := w.got
	if q := e.last(quick); q.sent > enough*e.pace && q.got < min(0.8*got, got-bits(2*packet, quick)) {
		got = q.got // the link became slower within the window
	}
	rate := e.carried(got)
	// So little may be lost for other reasons, and where next to nothing arrives any more, or
	// has for a moment, the link is down rather than slow: in steps.
	if w.sent < enough*e.pace || e.silent() || rate < standstill*e.found {
		rate = max(rate, e.found/2)
	}
	e.learn(rate)
	e.gain = 0
	e.drain = drainLarge
	e.enter(draining, e.found*drainLarge)
}

// drained waits until no more arrives than is sent, and then a moment more, to
// learn the loss. What arrives while the queue lasts is the link's rate.
func (e *Estimator) drained() {
	w := e.last(max(quick, slotsOf(24, e.pace)))
	if w.from < e.since+visible {
		return
	}
	wanted := w.sent > 0.5*e.pace
	more := max((stillDrains-1)*w.sent, bits(2*packet, w.span))
	most := max(drainMost, int(drainBytes/(max(e.found-e.pace, float64(minRate)/10)/8*Slot.Seconds())))
	switch {
	case e.empty == 0 && wanted && w.got > w.sent+more && e.n < e.since+most:
		if r := e.carried(w.got); r < 1.1*e.found {
			e.learn(e.found + (r-e.found)/4*quick/float64(w.span)) // a wide window is seen again and again, at last with the empty queue
			e.pace = bounded(e.found * e.drain)
		}
		return
	case e.empty == 0:
		e.empty = w.from + w.span
	}
	if w = e.last(shortSpan); wanted && w.from < e.empty {
		return
	}
	if e.steady(w) && e.misses(w, shortLoss) { // it has become slower meanwhile
		e.overload(w)
		return
	}
	e.note(w)
	e.probed = e.n
	if e.drain == drainLarge {
		e.probed -= probeEvery * 2 / 3 // what was measured in a flood may be a little wrong
	}
	e.enter(cruise, e.found*cruising)
}

// note learns the loss from a window in which no queue can have grown. If more arrived than
// chance brings, one has shrunk, and that says nothing.
func (e *Estimator) note(w window) {
	if !e.steady(w) || w.got > w.sent+max(maxLoss*w.sent, bits(2*packet, w.span)) {
		return
	}
	packets := w.sent / bits(packet, w.span)
	e.loss = max(e.loss+min(packets/lossMemory, lossShare)*(min(1-w.got/w.sent, 2*maxLoss)-e.loss), 0)
	e.noted = e.n
}

// watch looks for overload, and for the time to probe.
func (e *Estimator) watch() {
	// Samples of before show a higher pace, which was judged.
	clear := e.since + visible
	if w := e.last(shortSpan); w.from >= clear && e.steady(w) {
		if e.misses(w, shortLoss) {
			e.overload(w)
			return
		}
	}
	if w := e.last(midSpan); w.from >= clear && e.steady(w) {
		if e.misses(w, midLoss) {
			e.overload(w)
			return
		}
		if e.n >= e.noted+midSpan && e.returned(w) < e.much(w)/2 {
			e.note(w)
		}
	}
	w := e.last(2 * shortSpan)
	if e.n < e.probed+max(e.pause, probeEvery) || w.from < clear || w.sent < busy*e.pace || !e.steady(w) {
		return
	}
	e.probe()
}

// probe raises the pace for a moment, as long and as far as can be measured.
func (e *Estimator) probe() {
	gain := gains[min(e.gain, len(gains)-1)]
	perSlot := e.found / 8 * Slot.Seconds()
	add := (gain - cruising) * perSlot
	e.span, e.pause = probeMin, 0
	if e.gain == 0 {
		e.span = spanOf(probeBytes / add)
	}
	if least := float64(probeLeast * packet); add*float64(e.span-2) < least {
		e.span = spanOf(least/add + 2)
		add = max(add, least/float64(e.span-2))
		gain, e.pause = cruising+add/perSlot, int(add*float64(e.span)/(probePart*perSlot))
	}
	e.enter(probing, gain*e.found)
}

// spanOf bounds the slots of a probe.
func spanOf(slots float64) int { return int(min(max(math.Ceil(slots), probeMin), probeMax)) }

// judge looks at what has become of a probe.
func (e *Estimator) judge() {
	w, ok := e.strict(e.since+visible+1, e.span-2, e.background()) // not the first and last, in which not all know
	if !ok {
		return
	}
	e.probed = e.n
	took := min(e.carried(w.got), w.sent)
	more := w.sent - e.found // that the probe has sent
	switch {
	case more < 0.01*e.found || e.vague(w): // the demand has gone, or nobody knows
		e.gain = 0
		if e.misses(w, shortLoss) && w.sent > enough*e.pace && e.steady(w) {
			e.overload(w)
			return
		}
		e.enter(cruise, e.found*cruising)
	case took-e.found > more/2:
		e.learn(took)
		e.gain++
		e.probe()
	default:
		small := e.gain == 0
		e.gain = 0
		if took > e.found { // by more than the chance of a packet, or in part
			e.learn(max(e.found+(took-e.found)*min(1, took/bits(exact*packet, w.span)), took-bits(packet, w.span)))
		} else { // a probe is short; if the link has become slower, what follows shows it
			e.learn(e.found + max(took-e.found, -shortLoss*e.found)/4)
		}
		e.drain = drainLarge
		if small {
			e.drain = drainSmall
		}
		e.enter(draining, e.found*e.drain)
	}
}
