package mesh

import "time"

// rttEstimate smooths round-trip times as RFC 6298 §2 does.
type rttEstimate struct{ smoothed, variation time.Duration }

func (e *rttEstimate) sample(rtt time.Duration) {
	if e.smoothed == 0 {
		e.smoothed, e.variation = rtt, rtt/2
		return
	}
	e.variation += ((e.smoothed - rtt).Abs() - e.variation) / 4
	e.smoothed += (rtt - e.smoothed) / 8
}

// bound is a time that nearly every round trip stays below.
func (e *rttEstimate) bound() time.Duration { return e.smoothed + 4*e.variation }

// mtuSearch finds the largest virtual packet a path carries, by trying sizes
// from the largest down (RFC 8899 in its simplest form).
type mtuSearch struct {
	sizes []int // bytes, descending
	at    int   // index in sizes being tried
	tries int
	found int // 0 while unknown
	next  time.Time
	wait  bool // a probe is under way
}

// restart begins anew, as when a path comes up.
func (m *mtuSearch) restart(now time.Time) {
	if len(m.sizes) > 0 {
		m.at, m.tries, m.wait, m.next = 0, 0, false, now
	}
}

// due returns the size to try now.
func (m *mtuSearch) due(now time.Time) (int, bool) {
	if m.next.IsZero() || m.wait || now.Before(m.next) {
		return 0, false
	}
	m.wait = true
	m.next = time.Time{}
	return m.sizes[m.at], true
}

func (m *mtuSearch) passed(now time.Time, size int) {
	m.found, m.at, m.tries, m.wait = size, 0, 0, false
	m.next = now.Add(mtuRecheck)
}

func (m *mtuSearch) lost(now time.Time, size int) {
	m.wait = false
	if m.at >= len(m.sizes) || m.sizes[m.at] != size {
		return // a probe of an earlier search
	}
	if m.tries++; m.tries >= mtuTries {
		m.tries = 0
		if m.at++; m.at == len(m.sizes) {
			m.at, m.next = 0, now.Add(mtuRecheck)
			return
		}
	}
	m.next = now
}
