package estimate

import "math"

// MaxLag is the most slots that may pass from the sending of a byte until its
// arrival is known.
const MaxLag = 50

// patient is how many slots late bytes may be told of and still count as in time. A
// busy host reads late, never early, so of what is outstanding at some moment, the
// least that is seen within so many slots is the truth, or nearer to it.
const patient = 3

// history keeps the last samples.
type history struct {
	n    int // samples ever
	lag  int
	sum  sample // of all samples
	ring [256]sample
}

// sample is what was sent and what had arrived up to the end of a slot, bytes since
// the beginning.
type sample struct {
	sent, got float64
	vague     bool // more may have arrived than is known
}

// window is what was sent, on average, in some slots, and what of it arrived, bits
// per second.
type window struct {
	from, span int
	sent, got  float64
}

func (h *history) push(sent, got float64, lag int, vague bool) {
	h.sum = sample{h.sum.sent + sent, h.sum.got + got, vague}
	h.ring[h.n%len(h.ring)] = h.sum
	h.n++
	h.lag = min(max(lag, 0), MaxLag)
}

// upTo returns the sums of all slots before one.
func (h *history) upTo(i int) sample {
	if i <= 0 || i <= h.n-len(h.ring) {
		return sample{}
	}
	return h.ring[(min(i, h.n)-1)%len(h.ring)]
}

// outstanding is what of all that was sent before a slot had not arrived in time.
func (h *history) outstanding(i int) float64 {
	least := h.upTo(i).sent - h.upTo(i+h.lag).got
	for j := i + 1; j <= i+patient; j++ {
		least = min(least, h.upTo(j).sent-h.upTo(j+h.lag).got)
	}
	return least
}

// bits turns bytes in some slots into a rate.
func bits(bytes float64, slots int) float64 {
	return bytes * 8 / (float64(slots) * Slot.Seconds())
}

// slotsOf is in how many slots so many packets go at a rate; at least one.
func slotsOf(packets, rate float64) int {
	return int(min(max(math.Ceil(bits(packets*packet, 1)/max(rate, 1)), 1), slowSpan))
}

// sentIn is what was sent in a slot, bits per second.
func (h *history) sentIn(i int) float64 { return bits(h.upTo(i+1).sent-h.upTo(i).sent, 1) }

// silent reports whether nothing has arrived in the newest slot.
func (h *history) silent() bool { return h.upTo(h.n).got <= h.upTo(h.n-1).got }

// reach is how many slots after its last one a window can be looked at.
func (h *history) reach() int { return h.lag + patient }

// window returns the slots from one on, if what was sent in them may have arrived.
func (h *history) window(from, span int) (w window, ok bool) {
	w = window{from: from, span: span}
	if from < 0 || from+span+h.reach() > h.n {
		return w, false
	}
	sent := h.upTo(from+span).sent - h.upTo(from).sent
	w.sent = bits(sent, span)
	w.got = bits(max(sent-h.outstanding(from+span)+h.outstanding(from), 0), span)
	return w, true
}

// strict returns a window as what has arrived of it at least: late bytes of before do
// not count, if there was nothing late at any moment shortly before. loss is the part
// that is lost all the time.
func (h *history) strict(from, span int, loss float64) (w window, ok bool) {
	if w, ok = h.window(from, span); !ok {
		return w, false
	}
	least := h.outstanding(from)
	for i := max(from-2*shortSpan, 1); i < from; i++ {
		least = min(least, h.outstanding(i)+loss*(h.upTo(from).sent-h.upTo(i).sent))
	}
	w.got = bits(max(h.upTo(from+span).sent-h.upTo(from).sent-h.outstanding(from+span)+least, 0), span)
	return w, true
}

// last returns the newest window of a span. Its from is below 0 while there are too
// few samples.
func (h *history) last(span int) window {
	w, _ := h.window(h.n-h.reach()-span, span)
	return w
}

// steady reports whether sending was even enough around a window that what arrived
// can be held against what was sent at the same time, to a slot or two. Pacing lets
// packets go two by two, which on a slow link is all of a slot, or of several.
func (h *history) steady(w window) bool {
	pair := bits(2*packet, 1)
	for i := max(w.from-2, 0); i < min(w.from+w.span+2, h.n); i++ {
		if s := h.sentIn(i); s < min(0.6*w.sent, w.sent-pair) || s > max(1.5*w.sent, w.sent+pair) {
			return false
		}
	}
	return w.sent > 0 && !h.vague(w)
}

// vague reports whether more may have arrived of a window than is known.
func (h *history) vague(w window) bool {
	for i := w.from + h.lag; i <= w.from+w.span+h.reach(); i++ {
		if h.upTo(i).vague {
			return true
		}
	}
	return false
}

// loosely returns a window with what of it arrived, be it somewhat earlier or later
// than expected: it misses what never came.
func (h *history) loosely(w window) window {
	if w.from+w.span+h.lag+uneven > h.n {
		w.from -= uneven
	}
	sent := h.upTo(w.from+w.span).sent - h.upTo(w.from).sent
	got := h.upTo(w.from+w.span+h.lag+uneven).got - h.upTo(max(w.from+h.lag-uneven, 0)).got
	w.sent, w.got = bits(sent, w.span), bits(got, w.span)
	return w
}

// returned is how many bytes of a window came, but later than others: what was
// outstanding grew and then shrank by so much, as it does with a queue.
func (h *history) returned(w window) (most float64) {
	top := 0.0
	for i := w.from; i <= w.from+w.span; i++ {
		out := h.upTo(i).sent - h.upTo(i+h.lag).got
		if i == w.from {
			top = out
		}
		top = max(top, out)
		most = max(most, top-out)
	}
	return most
}

// peak returns the most that arrived in any few slots on end of a window, bits per
// second.
func (h *history) peak(from, span, few int) (most float64) {
	for i := from; i+few <= from+span; i++ {
		most = max(most, bits(h.upTo(i+few+h.lag).got-h.upTo(i+h.lag).got, few))
	}
	return most
}
