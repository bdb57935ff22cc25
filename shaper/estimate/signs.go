package estimate

import "math"

// The signs that a link carries less than it is given.

// misses reports whether a part of what was sent in a window, and more than
// chance takes, did not arrive.
func (e *Estimator) misses(w window, part float64) bool {
	lost := w.sent - e.carried(w.got)
	bytes := float64(w.span) * Slot.Seconds() / 8
	chance := 4*packet + 3*packet*math.Sqrt(e.background()*w.sent*bytes/packet)
	return lost > part*w.sent && lost*bytes > chance
}

// queues reports whether sending had few gaps in a window and what was sent came now
// sooner, now later, as through a queue that fills and empties.
func (e *Estimator) queues(w window) bool {
	few, gaps, looks := min(slotsOf(4, w.sent), w.span), 0, 0 // gaps between packets are none
	for i := w.from; i+few <= w.from+w.span; i += few {
		looks++
		if bits(e.upTo(i+few).sent-e.upTo(i).sent, few) < 0.2*w.sent {
			gaps++
		}
	}
	return 4*gaps <= looks && e.returned(w) > e.much(w)
}

// much is what a queue holds, and a late reader does not.
func (e *Estimator) much(w window) float64 { return max(queueBytes, queueTime*w.sent/8) }

// flooded looks for an overload in the last second, or three, as where sending is too
// uneven, or what arrives is told too late, or too little is sent, to compare moments.
func (e *Estimator) flooded() bool {
	w := e.last(longSpan)
	found := e.gone(w, longLoss) || e.held(w, queueLoss)
	if !found {
		w = e.last(slowSpan)
		found = e.gone(w, longLoss/2) || e.held(w, slowLoss) // TCP alone with its queue loses less, but again and again
	}
	if !found {
		return false
	}
	few := min(max(slotsOf(12, w.sent), shortSpan), w.span/2)
	if w.got = e.peak(w.from, w.span, few); w.got >= e.found {
		return false
	}
	e.overload(w)
	return true
}

// gone reports whether a part of what was sent in a long window never came.
func (e *Estimator) gone(w window, part float64) bool {
	return w.from >= e.changed+visible && e.misses(e.loosely(w), part)
}

// held reports whether a small part did not come from the link's own queue.
func (e *Estimator) held(w window, part float64) bool {
	return e.phase == cruise && w.from >= e.since+visible && e.misses(w, part) && e.queues(w)
}
