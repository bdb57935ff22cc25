package node

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// Gifts (see share.Gift) are what a node asks others of its site for when more waits than
// it may send at once, and gives them of what it does not use. Who sends asks (pacing.poll),
// and who reads notices answers. The machine has no part in them; it knows of whom there is
// little to be had.

// asking is when another node is asked for gifts for a link.
type asking struct {
	last   time.Time
	every  time.Duration // after the last
	barren time.Time     // until when it has little to give

	gave     bool
	answered time.Duration // if it gave, the latest request that it gave something for
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
	if a.every = min(2*a.every, share.AskSeldom); now.Sub(a.last) > share.AskBarren+share.AskSeldom {
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
		s.ask(now, n.site, n.short, n.whole)
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

// give spends what this node has for another, and returns how many bytes. While it lends it
// gives nothing: what it may send ahead is all that it has until the loan comes back, and
// grows by what is not lent, that is slowly.
func (p *pacing) give(site string, bytes int, life time.Duration) int {
	p.mu.Lock()
	l := p.links[site]
	lends := p.live[site].lent > 0 || p.live[""].lent > 0
	p.mu.Unlock()
	if lends {
		return 0
	}
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
func (s *liveShares) ask(now time.Time, site string, short int, whole int64) {
	mates := s.mates.Load()
	if mates == nil {
		return
	}
	g := share.Gift{
		Pool:  share.PoolName(site),
		Bytes: askFor(short, whole, len(*mates)),
		Asked: now.Sub(s.began).Truncate(time.Microsecond),
	}
	data := g.Append(nil)
	for _, id := range s.gifts.due(now, *mates, request{g.Pool, g.Asked}) {
		s.send(id, data)
	}
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
		if !s.gifts.answers(by, request{g.Pool, g.Asked}) {
			return nil // it comes for the second time, or nobody has asked for it
		}
		if until := s.began.Add(g.Asked + share.GiftLife); time.Now().Before(until) && s.cfg.given(site, g.Bytes, until) {
			s.gifts.useful(by)
		}
		return nil
	}
	return nil
}

// giftBook is what a node knows of those that it asks for gifts. It is safe for concurrent
// use.
type giftBook struct {
	mu       sync.Mutex
	askings  map[giver]*asking
	requests []request // the latest last
}

// due returns those of the site whose turn it is to be asked, and notes that they are.
func (b *giftBook) due(now time.Time, mates []peer.ID, r request) (due []peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range mates {
		a := b.asking(giver{id, r.pool})
		if a.due(now) {
			a.asked(now)
			due = append(due, id)
		}
	}
	if len(due) > 0 {
		b.requests = append(b.requests[max(len(b.requests)-mostRequests+1, 0):], r)
	}
	return due
}

// asking returns when a node was asked last; mu is held.
func (b *giftBook) asking(by giver) *asking {
	a := b.askings[by]
	if a == nil {
		if b.askings == nil {
			b.askings = map[giver]*asking{}
		}
		a = &asking{}
		b.askings[by] = a
	}
	return a
}

// answers reports whether a gift is the first answer of a node to a request of this one.
func (b *giftBook) answers(by giver, r request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.askings[by]
	if a == nil || a.gave && r.at <= a.answered || !slices.Contains(b.requests, r) {
		return false
	}
	a.gave, a.answered = true, r.at
	return true
}

// useful notes that what a node has given is of use: it is asked soon again.
func (b *giftBook) useful(by giver) {
	b.mu.Lock()
	b.asking(by).every = share.AskEvery
	b.mu.Unlock()
}

// learn takes in until when those that have been asked are known to have little to give.
func (b *giftBook) learn(barren func(giver) time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for by, a := range b.askings {
		a.barren = barren(by)
	}
}

// keep forgets all but some.
func (b *giftBook) keep(mates []peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.askings, func(by giver, _ *asking) bool { return !slices.Contains(mates, by.id) })
}

// learn is what the machine knows of whom there is little to be had.
func (s *liveShares) learn() {
	s.gifts.learn(func(by giver) time.Time { return s.began.Add(s.m.Barren(by.id, by.pool)) })
}

// request is one for gifts that this node has sent.
type request struct {
	pool uint32
	at   time.Duration
}

// mostRequests is how many are remembered: those of a GiftLife, to some sites.
const mostRequests = 32

// giver is a node that may give something for a site's pool.
type giver struct {
	id   peer.ID
	pool uint32
}
