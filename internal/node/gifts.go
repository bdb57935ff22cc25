package node

import (
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// Gifts (see share.Gift) are what a node asks others of its site for when more waits than
// it may send at once, and gives them of what it does not use. Who sends asks (pacing.poll),
// and who reads notices answers: the machine knows nothing of them.

// asking is when another node is asked for gifts for a link.
type asking struct {
	last   time.Time
	every  time.Duration // after the last
	barren time.Time     // until when it has little to give
}

// due reports whether it is to be asked now.
func (a *asking) due(now time.Time) bool {
	pause := a.every
	if now.Before(a.barren) {
		pause = share.AskBarren
	}
	return now.Sub(a.last) >= pause
}

// asked notes that it has been: more seldom the next time, unless that brings something.
func (a *asking) asked(now time.Time) {
	if a.every = min(2*a.every, share.AskSeldom); now.Sub(a.last) > 4*share.AskSeldom {
		a.every = share.AskEvery // it is another backlog
	}
	a.last = now
}

// transit is what a request and its answer take beside ranks that spin.
const transit = time.Millisecond

// askFor is how much of what is short a node asks each of the others for, if the site's
// nodes may send so many bits per second: together no more than can be sent before it ends.
func askFor(short int, whole int64, others int) int {
	most := int(float64(whole) / 8 * (share.GiftLife - transit).Seconds())
	return max(min(short, most)/max(others, 1), shaper.Pair/2)
}

// askAround asks for gifts for the links that are short.
func (p *pacing) askAround() {
	s := p.d.shares
	if s == nil {
		return
	}
	type need struct {
		site  string
		short int
		whole int64
	}
	now := time.Now()
	var needs []need
	p.mu.Lock()
	for site, l := range p.links {
		if now.Sub(l.sought) < share.AskEvery {
			continue
		}
		if short := l.Short(); short > 0 {
			l.sought = now
			needs = append(needs, need{site, short, l.head.whole})
		}
	}
	p.mu.Unlock()
	for _, n := range needs {
		s.ask(n.site, n.short, n.whole)
	}
}

// given takes in what another node has given for a link, and reports whether that is of use.
func (p *pacing) given(site string, bytes int, until time.Time) bool {
	p.mu.Lock()
	l := p.links[site]
	if l == nil {
		p.mu.Unlock()
		return false
	}
	bytes = min(bytes, l.head.extra) // nobody has more
	p.mu.Unlock()
	return l.Accept(bytes, until)
}

// give spends what this node has for another, and returns how many bytes.
func (p *pacing) give(site string, bytes int, life time.Duration) int {
	p.mu.Lock()
	l := p.links[site]
	p.mu.Unlock()
	if l == nil { // this node has never sent there, and its share is the others' all the more
		_ = p.link(site, func(*pacedLink) {})
		p.changed()
		return 0 // what it can give counts from now on
	}
	return l.Give(bytes, life)
}

// ask asks the others of the site, those whose turn it is, for what is short of a link on
// which all may send so many bits per second. It may be called by anybody, and does not
// block.
func (s *liveShares) ask(site string, short int, whole int64) {
	mates := s.mates.Load()
	if mates == nil {
		return
	}
	now := time.Now()
	g := share.Gift{
		Pool:  share.PoolName(site),
		Bytes: askFor(short, whole, len(*mates)),
		Asked: now.Sub(s.began).Truncate(time.Microsecond),
	}
	var due []peer.ID
	s.mu.Lock()
	for _, id := range *mates {
		if a := s.asking(giver{id, g.Pool}); a.due(now) {
			a.asked(now)
			due = append(due, id)
		}
	}
	if len(due) > 0 {
		s.requests = append(s.requests[max(len(s.requests)-mostRequests+1, 0):], request{g.Pool, g.Asked})
	}
	s.mu.Unlock()
	data := g.Append(nil)
	for _, id := range due {
		s.send(id, data)
	}
}

// learns takes in what a notice has told the machine of what a node may give.
func (s *liveShares) learns(id peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, site := range s.sites {
		s.asking(giver{id, share.PoolName(site)}).barren = s.began.Add(s.m.Barren(id, site))
	}
}

// asking returns when a node was asked last; s.mu is held.
func (s *liveShares) asking(by giver) *asking {
	a := s.askings[by]
	if a == nil {
		a = &asking{}
		s.askings[by] = a
	}
	return a
}

// takeGift answers a request for gifts, or takes one in.
func (s *liveShares) takeGift(from peer.ID, data []byte) error {
	g, err := share.ParseGift(data)
	if err != nil {
		return err
	}
	for _, site := range s.sites {
		if share.PoolName(site) != g.Pool {
			continue
		}
		if !g.Gives {
			if g.Bytes = s.cfg.give(site, g.Bytes, share.GiftLife); g.Bytes > 0 {
				g.Gives = true
				s.send(from, g.Append(nil))
			}
			return nil
		}
		by := giver{from, g.Pool}
		if last, again := s.answered[by]; again && g.Asked <= last || !s.hasAsked(g) {
			return nil // it comes for the second time, or nobody has asked for it
		}
		s.answered[by] = g.Asked
		if until := s.began.Add(g.Asked + share.GiftLife); time.Now().Before(until) && s.cfg.given(site, g.Bytes, until) {
			s.mu.Lock()
			s.asking(by).every = share.AskEvery
			s.mu.Unlock()
		}
		return nil
	}
	return nil
}

// request is one for gifts that this node has sent.
type request struct {
	pool uint32
	at   time.Duration
}

// mostRequests is how many are remembered: those of a GiftLife, to some sites.
const mostRequests = 32

// hasAsked reports whether a gift answers a request of this node's.
func (s *liveShares) hasAsked(g share.Gift) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.requests, request{g.Pool, g.Asked})
}

// giver is a node that may give something for a site's pool.
type giver struct {
	id   peer.ID
	pool uint32
}
