package mesh

import (
	"slices"
	"time"
)

// rttEstimate smooths round-trip times as RFC 6298 §2 does, but begins anew where they
// have become far less: what came before had waited for the end of an outage, say.
type rttEstimate struct{ smoothed, variation time.Duration }

func (e *rttEstimate) sample(rtt time.Duration) {
	if e.smoothed == 0 || rtt < e.bound()/8 {
		e.smoothed, e.variation = rtt, rtt/2
		return
	}
	e.variation += ((e.smoothed - rtt).Abs() - e.variation) / 4
	e.smoothed += (rtt - e.smoothed) / 8
}

// bound is a time that nearly every round trip stays below.
func (e *rttEstimate) bound() time.Duration { return e.smoothed + 4*e.variation }

const (
	mtuFirst   = 2               // losses of the largest size until smaller ones are tried
	mtuTries   = 3               // losses of any other, or of the one in use, until it counts as too large
	mtuVerify  = 3 * time.Second // so that a TCP connection under which it shrinks has not backed off beyond some seconds
	mtuRecheck = 10 * time.Minute
)

// mtuSearch finds the largest virtual packet a path carries (RFC 8899 in its
// simplest form): mostly that is the largest of all, which is tried first; else
// the smallest is used at once and larger ones as they pass. What is in use is
// proved again and again, since a path's MTU may shrink under it.
type mtuSearch struct {
	sizes  []int // bytes, descending
	found  int   // 0 while unknown
	proved bool  // found has passed since the path came up, or since it shrank
	search bool  // a search is under way
	at     int   // index in sizes that the search tries
	tries  int
	next   time.Time // when the search goes on or begins anew
	wait   bool      // a probe is under way
	verify time.Time // when found is to be proved again
	doubts int       // proofs lost since the last that came
}

// restart begins anew, as when a path comes up.
func (m *mtuSearch) restart(now time.Time) {
	if len(m.sizes) > 0 {
		m.search, m.at, m.tries, m.wait, m.next, m.proved = true, 0, 0, false, now, false
	}
}

// due returns the size to try now.
func (m *mtuSearch) due(now time.Time) (int, bool) {
	if m.next.IsZero() || m.wait || now.Before(m.next) {
		return 0, false
	}
	if !m.search {
		m.larger()
	}
	m.wait, m.next = true, time.Time{}
	return m.sizes[m.at], true
}

// doubt returns the size in use, when it is to be proved again.
func (m *mtuSearch) doubt(now time.Time) (int, bool) {
	if m.search || m.wait || m.found == 0 || now.Before(m.verify) {
		return 0, false
	}
	m.wait = true
	return m.found, true
}

// larger makes the search try the next size above the one found.
func (m *mtuSearch) larger() {
	m.search, m.tries = true, 0
	m.at = max(slices.Index(m.sizes, m.found)-1, 0)
}

// passed takes note of an answer, however late it is: the size passed.
func (m *mtuSearch) passed(now time.Time, size int) {
	if size < m.found || m.search && size == m.found && size != m.sizes[m.at] {
		return // of an earlier search
	}
	m.found, m.wait, m.doubts, m.proved = size, false, 0, true
	m.verify = now.Add(mtuVerify)
	switch {
	case size == m.sizes[0]:
		m.search, m.next = false, time.Time{}
	case m.search:
		m.larger()
		m.next = now
	}
}

// lost takes note that a size was not answered in time. Only while the path
// answers small probes (answers) does that say something of the size.
func (m *mtuSearch) lost(now time.Time, size int, answers bool) {
	switch {
	case !m.search:
		if size != m.found {
			return // of an earlier search
		}
		m.wait, m.verify = false, now
		if answers {
			m.doubts++
		}
		if m.doubts >= mtuTries {
			m.shrink(now)
		}
	case m.at < len(m.sizes) && m.sizes[m.at] == size:
		m.wait, m.next = false, now
		if answers {
			m.tries++
		}
		if m.at == 0 && m.found == 0 && m.tries >= mtuFirst {
			m.shrink(now)
		} else if m.tries >= mtuTries {
			m.search, m.next = false, now.Add(mtuRecheck)
			m.verify = now.Add(mtuVerify)
		}
	}
}

// shrink falls back to the smallest size, from where the search rises.
func (m *mtuSearch) shrink(now time.Time) {
	m.doubts, m.found, m.proved = 0, m.sizes[len(m.sizes)-1], false
	m.larger()
	m.next = now
}
