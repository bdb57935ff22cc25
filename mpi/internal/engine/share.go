package engine

import "time"

// A large message to a peer with several links is cut into pieces, and each piece
// goes over the link on which it is expected to be there first. So links carry a
// message in proportion to what they are worth, and one that is so slow that the
// others would have done everything before it is left out: over two links no
// message takes longer than over the better one.
//
// What a link is worth is measured while it is used: the receiver acknowledges
// each piece on the link it came by (frames of kind got), so it works on any
// connection, and nothing has to be configured. The numbers in here are plain
// arithmetic on times that are given; see share_test.go for links in simulated
// time.

// gauge is what is known of one link: how far away its other end is, how much it
// carries, and how much of ours is on it.
type gauge struct {
	near  time.Duration // what an answer takes when nothing is in the way; zero: not known
	rate  float64       // bytes a second; zero: not known
	sure  bool          // rate is measured between acknowledgements, not guessed by the first
	under int           // bytes of pieces that were sent and are not acknowledged

	mark  time.Duration // where a measurement began
	count int           // bytes acknowledged since
	first bool          // none has been acknowledged since the link was idle
}

const (
	pieceMost  = 64 << 10 // bytes of a piece where there are several links
	pieceLeast = 16 << 10

	// windowLeast lets a link go on when acknowledgements come late because
	// somebody else had the processor.
	windowLeast = 8 * pieceMost

	gaugeTime = 2 * time.Millisecond // a measurement takes at least this, and an answer's time
)

// sent notes a piece that is given to the link.
func (g *gauge) sent(now time.Duration, n int) {
	if g.under == 0 {
		g.mark, g.count, g.first = now, 0, true
	}
	g.under += n
}

// got notes an acknowledgement. It reports whether there was as much to
// acknowledge.
func (g *gauge) got(now time.Duration, n int) bool {
	if n > g.under {
		return false
	}
	g.under -= n
	took := now - g.mark
	switch {
	case g.first: // an answer's time is in it
		g.first = false
		if !g.sure && took > 0 {
			g.rate = float64(n) / took.Seconds()
		}
		g.mark, g.count = now, 0
		return true
	default:
		g.count += n
	}
	if took < max(gaugeTime, g.near) {
		return true
	}
	rate := float64(g.count) / took.Seconds()
	switch {
	case !g.sure:
		g.rate, g.sure = rate, true
	case rate > g.rate:
		g.rate += (rate - g.rate) / 2
	default: // it may have been our fault: there was too little to send
		g.rate += (rate - g.rate) / 4
	}
	g.mark, g.count = now, 0
	return true
}

// window is how much may be under way: enough to keep the link busy until an
// answer comes, and to find out that it is faster than it seems.
func (g *gauge) window() int {
	if g.rate == 0 {
		return pieceMost
	}
	return windowLeast + int(2*g.rate*g.near.Seconds())
}

// until is how long it takes until n more bytes are at the other end, at a rate.
func (g *gauge) until(n int, rate float64) float64 {
	return g.near.Seconds()/2 + float64(g.under+n)/rate
}

// pieceOf is how long the next piece should be, of so many bytes over so many
// links: shorter towards the end, so that the links are done at the same time.
func pieceOf(left, links int) int {
	return min(left, max(pieceLeast, min(pieceMost, left/(2*links))))
}

// lane is a link as pick sees it.
type lane struct {
	*gauge
	open bool // it takes a piece now
}

// pick chooses the link for the next n of left bytes; -1: none now, wait for an
// acknowledgement.
func pick(lanes []lane, n, left int) int {
	most := 1.0
	for _, l := range lanes {
		most = max(most, l.rate)
	}
	rate := func(l lane) float64 { // of what is not known yet nothing bad is assumed
		if l.rate == 0 {
			return most
		}
		return l.rate
	}
	best, soonest := -1, 0.0
	for i, l := range lanes {
		if !l.open || l.under > 0 && l.under+n > l.window() {
			continue
		}
		if t := l.until(n, rate(l)); best < 0 || t < soonest {
			best, soonest = i, t
		}
	}
	if best < 0 {
		return -1
	}
	// If the others are done with everything by then, they have it.
	var rates, farthest float64
	bytes := left
	for i, l := range lanes {
		if i == best || l.under == 0 { // who is idle was not chosen for being slower still
			continue
		}
		rates += rate(l)
		bytes += l.under
		farthest = max(farthest, l.near.Seconds()/2)
	}
	if rates > 0 && float64(bytes)/rates+farthest < soonest {
		return -1
	}
	return best
}
