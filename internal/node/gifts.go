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
// and who reads notices answers. The machine has no part in them, but tells who wants to borrow.

// asking is when another node is asked for gifts for a link. Who has nothing to give because
// it sends, or lends, does not answer but makes an offer when that ends: so nodes that all
// send do not ask each other all the time, and each hears at once of one that does no longer.
type asking struct {
	next  time.Time     // not before
	pause time.Duration // from an offer on

	gave     bool
	answered time.Duration // if it gave, the latest request that it gave something for

	heard time.Time // when it has asked this node last, or said that it wants to borrow
	owed  bool      // it has asked in vain, and is to have an offer
}

// due reports whether it is to be asked now.
func (a *asking) due(now time.Time) bool { return !now.Before(a.next) }

// asked notes that it has been; it is to be asked again a pause after an offer.
func (a *asking) asked(now time.Time, pause time.Duration) {
	a.next, a.pause = now.Add(share.AskSilent), pause
}

// gives notes that a request made at some time was answered by something of use.
func (a *asking) gives(at time.Time) { a.next = at.Add(share.AskEvery) }

// offers notes that it will have something to give.
func (a *asking) offers(now time.Time) { a.next = now.Add(a.pause) }

// rests reports whether it has not been short of anything for so long.
func (a *asking) rests(now time.Time, long time.Duration) bool { return now.Sub(a.heard) >= long }

// transit is what a request and its answer take beside ranks that spin.
const transit = time.Millisecond

// askFor is how much of what is short a node asks each of the others for, if the site's
// nodes may send so many bits per second: together no more than can be sent before it ends.
func askFor(short int, whole int64, others int) int {
	most := int(float64(whole) / 8 * (share.GiftLife - transit).Seconds())
	return max(min(short, most)/max(others, 1), shaper.Pair/2)
}

// offerPause is how long after an offer a node is asked, if the site's nodes may send so many
// bits per second: it has sent all that it had, and its share has to bring a packet first.
func offerPause(whole int64, others int) time.Duration {
	packet := time.Duration(float64(shaper.Pair/2*8*(others+1)) / float64(max(whole, 1)) * 1e9)
	return min(max(packet, share.AskOffered), share.AskSilent)
}

// askAround asks for gifts for the links that are short.
func (p *pacing) askAround() {
	s := p.d.shares
	if s == nil {
		return
	}
	type need struct {
		link  *pacedLink
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
			needs = append(needs, need{l, site, short, l.head.whole})
		}
	}
	p.mu.Unlock()
	for _, n := range needs {
		if s.ask(now, n.site, n.short, n.whole) {
			p.mu.Lock()
			n.link.sought = now
			p.mu.Unlock()
		}
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

// give spends what this node has for another, and returns how many bytes; if none, whether
// there will be some soon. While it lends it gives nothing: what it may send ahead is all
// that it has until the loan comes back, and grows by what is not lent, that is slowly.
func (p *pacing) give(site string, bytes int, life time.Duration) (given int, soon bool) {
	p.mu.Lock()
	l := p.links[site]
	lends := p.live[site].lent > 0 || p.live[""].lent > 0
	p.mu.Unlock()
	if lends {
		return 0, false
	}
	if l == nil { // this node has never sent there, and its share is the others' all the more
		_ = p.link(site, func(*pacedLink) {})
		p.changed()
		return 0, true // what it can give counts from now on
	}
	return l.Give(bytes, life)
}

// ask asks the others of the site, those whose turn it is, for what is short of a link on
// which all may send so many bits per second, and reports whether there are such. It may be
// called by anybody, and does not block.
func (s *liveShares) ask(now time.Time, site string, short int, whole int64) bool {
	mates := s.mates.Load()
	if mates == nil {
		return false
	}
	g := share.Gift{
		Pool:  share.PoolName(site),
		Bytes: askFor(short, whole, len(*mates)),
		Asked: now.Sub(s.began).Truncate(time.Microsecond),
	}
	due := s.gifts.due(now, *mates, request{g.Pool, g.Asked}, offerPause(whole, len(*mates)))
	if len(due) == 0 {
		return false
	}
	data := g.Append(nil)
	for _, id := range due {
		s.send(id, data)
	}
	return true
}

// offer tells those that have asked this node in vain that they may ask again. If it still
// has nothing to give it tells them later. It may be called by anybody, and does
// not block.
func (s *liveShares) offer() {
	for _, by := range s.gifts.owed() {
		s.send(by.id, share.Gift{Does: share.Offers, Pool: by.pool}.Append(nil))
	}
}

// takeGift answers a request for gifts, or takes in a gift or an offer.
func (s *liveShares) takeGift(from peer.ID, data []byte) error {
	g, err := share.ParseGift(data)
	if err != nil {
		return err
	}
	for _, site := range s.sites {
		if share.PoolName(site) != g.Pool {
			continue
		}
		by := giver{from, g.Pool}
		switch g.Does {
		case share.Asks:
			s.answer(by, site, g)
		case share.Offers:
			s.gifts.offers(by, time.Now())
		case share.Gives:
			if !s.gifts.answers(by, request{g.Pool, g.Asked}) {
				break // it comes for the second time, or nobody has asked for it
			}
			asked := s.began.Add(g.Asked)
			if until := asked.Add(share.GiftLife); time.Now().Before(until) && s.cfg.given(site, g.Bytes, until) {
				s.gifts.useful(by, asked)
			}
		}
		return nil
	}
	return nil
}

// noteHunger notes whether a node that has said something wants to borrow.
func (s *liveShares) noteHunger(id peer.ID) {
	for _, site := range s.sites {
		if s.m.Hungry(id, site) {
			s.gifts.wants(giver{id, share.PoolName(site)}, time.Now())
		}
	}
}

// answer gives what there is, or makes an offer: at once where there will be something soon,
// else when this node sends and lends no longer.
func (s *liveShares) answer(by giver, site string, g share.Gift) {
	s.gifts.asks(by, time.Now()) // before it is found to send: that may end meanwhile
	given, soon := s.cfg.give(site, g.Bytes, share.GiftLife)
	switch {
	case given > 0:
		g.Does, g.Bytes = share.Gives, given
	case soon:
		g = share.Gift{Does: share.Offers, Pool: g.Pool}
	default:
		return
	}
	s.gifts.answered(by)
	s.send(by.id, g.Append(nil))
}

// giftBook is what a node knows of those that it asks for gifts. It is safe for concurrent
// use.
type giftBook struct {
	mu       sync.Mutex
	askings  map[giver]*asking
	requests []request // the latest last
}

// due returns those of the site whose turn it is to be asked, and notes that they are.
func (b *giftBook) due(now time.Time, mates []peer.ID, r request, pause time.Duration) (due []peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range mates {
		a := b.asking(giver{id, r.pool})
		if a.due(now) {
			a.asked(now, pause)
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

// useful notes that what a node has given for a request made at some time is of use: it is
// asked soon again.
func (b *giftBook) useful(by giver, at time.Time) {
	b.mu.Lock()
	b.asking(by).gives(at)
	b.mu.Unlock()
}

// offers notes that a node will have something to give.
func (b *giftBook) offers(by giver, now time.Time) {
	b.mu.Lock()
	b.asking(by).offers(now)
	b.mu.Unlock()
}

// asks notes that a node has asked this one, and is to have an offer.
func (b *giftBook) asks(by giver, now time.Time) {
	b.mu.Lock()
	a := b.asking(by)
	a.heard, a.owed = now, true
	b.mu.Unlock()
}

// wants notes that a node wants to borrow.
func (b *giftBook) wants(by giver, now time.Time) {
	b.mu.Lock()
	b.asking(by).heard = now
	b.mu.Unlock()
}

// answered notes that it is to have none.
func (b *giftBook) answered(by giver) {
	b.mu.Lock()
	b.asking(by).owed = false
	b.mu.Unlock()
}

// rest reports whether one of the site's nodes has not been short of anything for so long.
func (b *giftBook) rest(now time.Time, mates []peer.ID, pool uint32, long time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(mates, func(id peer.ID) bool {
		a := b.askings[giver{id, pool}]
		return a == nil || a.rests(now, long)
	})
}

// owed returns those that are to have an offer, and forgets that they are.
func (b *giftBook) owed() (all []giver) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for by, a := range b.askings {
		if a.owed {
			a.owed = false
			all = append(all, by)
		}
	}
	return all
}

// keep forgets all but some.
func (b *giftBook) keep(mates []peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.askings, func(by giver, _ *asking) bool { return !slices.Contains(mates, by.id) })
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
