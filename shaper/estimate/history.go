package estimate

// MaxLag is the most slots that may pass from the sending of a byte until its
// arrival is known.
const MaxLag = 50

// history keeps the last samples. Rates are bits per second.
type history struct {
	n    int // samples ever
	lag  int
	ring [256]sample
}

type sample struct {
	sent, got float64 // bits per second over a Slot
	vague     bool    // more may have arrived than is known
}

// window is what was sent, on average, in some slots, and what of it arrived.
type window struct {
	from, span int
	sent, got  float64
}

func (h *history) push(sent, got float64, lag int, vague bool) {
	const bits = 8 / (float64(Slot) / 1e9)
	h.ring[h.n%len(h.ring)] = sample{sent * bits, got * bits, vague}
	h.n++
	h.lag = min(max(lag, 0), MaxLag)
}

func (h *history) at(i int) sample {
	if i < 0 || i >= h.n || i < h.n-len(h.ring) {
		return sample{}
	}
	return h.ring[i%len(h.ring)]
}

// window returns the slots from one on, if what was sent in them may have arrived.
func (h *history) window(from, span int) (w window, ok bool) {
	w = window{from: from, span: span}
	if from < 0 || from+span+h.lag > h.n {
		return w, false
	}
	for i := from; i < from+span; i++ {
		w.sent += h.at(i).sent
		w.got += h.at(i + h.lag).got
	}
	w.sent /= float64(span)
	w.got /= float64(span)
	return w, true
}

// last returns the newest window of a span. Its from is below 0 while there are too
// few samples.
func (h *history) last(span int) window {
	w, _ := h.window(h.n-h.lag-span, span)
	return w
}

// steady reports whether sending was even enough around a window that what arrived
// can be held against what was sent at the same time, to a slot or two.
func (h *history) steady(w window) bool {
	for i := max(w.from-2, 0); i < min(w.from+w.span+2, h.n); i++ {
		if s := h.at(i).sent; s < 0.6*w.sent || s > 1.5*w.sent {
			return false
		}
	}
	return w.sent > 0 && !h.vague(w)
}

// vague reports whether more may have arrived of a window than is known.
func (h *history) vague(w window) bool {
	for i := w.from + h.lag - 1; i < w.from+w.span+h.lag; i++ {
		if h.at(i).vague {
			return true
		}
	}
	return false
}

// swallowed reports whether much of what was sent in a window never came, not even
// somewhat earlier or later than expected.
func (h *history) swallowed(w window) bool {
	if _, ok := h.window(w.from, w.span+uneven); !ok {
		w.from -= uneven
		if w, ok = h.window(w.from, w.span); !ok {
			return false
		}
	}
	got := 0.0
	for i := w.from - uneven; i < w.from+w.span+uneven; i++ {
		got += h.at(i + h.lag).got
	}
	return got/float64(w.span) < (1-longLoss)*w.sent
}

// peak returns the most that arrived in any few slots on end of a window.
func (h *history) peak(from, span, few int) (most float64) {
	for i := from; i+few <= from+span; i++ {
		sum := 0.0
		for j := i; j < i+few; j++ {
			sum += h.at(j + h.lag).got
		}
		most = max(most, sum/float64(few))
	}
	return most
}
