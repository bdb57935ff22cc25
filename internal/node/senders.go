package node

import (
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// linkDemand is what the pacer says of a link.
type linkDemand struct {
	waiting int64     // bytes that wait
	sent    int64     // bytes ever sent
	last    time.Time // when something was last sent or queued
	full    time.Time // since when so much waits; zero: it does not, or it is not known
	weight  int       // this node's, where shares are divided; 0 counts as 1
	share   int64     // this node's equal share, bits per second; 0: not known
	rate    int64     // what it may send now; 0: not known
	most    int64     // what an administrator or a program has set for it; 0: nothing
	ahead   int       // bytes that it may send ahead of its rate, and give to others

	contended bool // others of the site want more than their shares
	resting   bool // one of the others has not been short of anything for restsAfter
}

// How demand becomes a rate. Bursts of some milliseconds, of which many programs'
// traffic consists, are no reason to borrow, nor gaps as short to lend: it would be
// over before it has an effect. What a node that wakes may send at once (headBytes), and what
// others that rest give it of theirs (gifts.go), is for those. Loans are for what lasts: they need few notices, whatever the rate, and divide by
// weight. (A node of an all-to-all of 16 KiB among eight has 70 kB waiting at a time.)
// And who has borrowed for next to nothing gives it back as soon as it has less to send.
const (
	backlog     = shaper.Backlog
	hungryAfter = 10 * time.Millisecond  // with a backlog; or the time
	hungryBytes = 180_000                // for so many bytes of its share where gifts make up for it until then,
	hungryRest  = 90_000                 // so many where another node rests,
	hungryCrowd = 30_000                 // and so many where others borrow,
	hungryLast  = 400 * time.Millisecond // but no longer
	hungryBusy  = 4                      // times as long, after nobody had anything to lend
	restTimes   = 4                      // as long as the longer, without a request, rests who is not between two bursts
	worthWhile  = 16 << 10               // bytes beyond the share: notices about them are several packets
	borrowFor   = 50 * time.Millisecond  // without a backlog that lasts
	sentFor     = 5 * time.Millisecond   // over which what was sent is averaged
	idleAfter   = 10 * time.Millisecond  // without a packet
	unbounded   = 1 << 50                // bits per second: as much as there is
)

// sender works out what a link wants from what the pacer says.
type sender struct {
	meter
	hunger
	loan
	slow bool // see linkDemand.slow, when it was looked at last

	want, weight int64 // as seen last
	told, as     int64 // the same, as the machine was told last

	asleep bool // it is not looked at until it sends again
}

// meter averages what a link sends.
type meter struct {
	at   time.Time // of the sample
	sent int64
	rate int64 // bits per second, of the sample before
}

// take takes in how much has ever been sent.
func (m *meter) take(now time.Time, sent int64) {
	if age := now.Sub(m.at); age >= sentFor {
		m.rate = int64(float64(sent-m.sent) * 8 / age.Seconds())
		m.at, m.sent = now, sent
	}
}

// hunger is a backlog that lasts, and is worth to borrow for.
type hunger struct {
	full     time.Time // since when there is a backlog; zero: there is none
	seen     time.Time // when it was looked at last
	hungry   bool      // by that backlog
	last     time.Time // when it last was
	began    time.Time // since when it wants more than its share; zero: it does not
	helped   bool      // it has had more since
	patience int       // how many times as long it waits before it borrows; 0 is 1
}

// loan is what a sender has had beyond its share, and what it has learnt from such loans.
type loan struct {
	on     bool  // it has more than its share
	gain   int64 // bytes that it has sent beyond it since, while something waited
	waited bool  // something did when it was looked at last
	passed int64 // what had been sent by then
	poor   bool  // the last was not worth while
}

// see takes in what the pacer says now, works out what the link could send, in bits per
// second, 0 when it is idle, and reports whether that is worth telling.
func (s *sender) see(now time.Time, d linkDemand) (news bool) {
	s.want, s.weight = s.wants(now, d), int64(d.weight)
	if d.most > 0 {
		s.want = min(s.want, d.most) // a backlog before that is no demand
	}
	return s.weight != s.as || matters(s.told, s.want, d.share)
}

// matters reports whether a change of what a link wants changes what others may have or
// give.
func matters(was, is, share int64) bool {
	change := max(is-was, was-is)
	switch {
	case (was == 0) != (is == 0), (was > share) != (is > share):
		return true
	case is <= share:
		return change > share/16 // the machine's own step
	}
	return change > max(was, is)/8
}

// wants is see for a link for which nothing has been set. With a backlog that lasts,
// until that has gone and a whole sample has shown so, it is all there is; with another, its
// share; where it has been slow for two looks, twice what it may send; else what it has sent
// lately and a quarter more, but no more than its share unless it has had such a backlog
// before.
func (s *sender) wants(now time.Time, d linkDemand) int64 {
	if s.at.IsZero() {
		s.meter, s.patience = meter{at: now, sent: d.sent}, 1
	}
	if d.waiting == 0 && now.Sub(d.last) > idleAfter {
		s.returned(now)
		s.enough(d)
		s.meter, s.hunger, s.slow = meter{at: now, sent: d.sent}, hunger{patience: s.patience}, false
		return 0
	}
	s.fills(now, d)
	s.borrowed(now, d)
	s.seen = now
	s.take(now, d.sent)
	if s.hungers(now, d); !s.last.IsZero() && now.Sub(s.last) < sentFor {
		return unbounded
	}
	want := max(s.rate*5/4, 1)
	slow := d.slow()
	switch {
	case d.waiting >= backlog:
		want = max(want, d.share) // at once, since what is lent of it has to come back first
	case slow && s.slow: // acknowledgements of what it receives, mostly: not all that it lends
		want = max(want, min(max(2*d.rate, d.share/8), d.share))
	}
	if !s.began.IsZero() && (s.poor || want <= d.share && now.Sub(s.last) > borrowFor) {
		s.enough(d)
	}
	s.slow = slow
	if s.began.IsZero() && d.share > 0 {
		want = min(want, d.share)
	}
	return want
}

// fills notes since when there is a backlog.
func (h *hunger) fills(now time.Time, d linkDemand) {
	switch {
	case d.waiting < backlog:
		h.full = time.Time{}
	case !h.full.IsZero():
	case d.full.After(h.seen):
		h.full = d.full
	default:
		h.full = now
	}
}

// hungers notes whether that has lasted.
func (s *sender) hungers(now time.Time, d linkDemand) {
	s.hungry = !s.full.IsZero() && (s.hungry || now.Sub(s.full) >= time.Duration(s.patience)*d.patience())
	if s.hungry {
		if s.began.IsZero() {
			s.began, s.helped, s.poor = now, false, false
		}
		s.last = now
	}
	s.helped = s.helped || d.rate > d.share
}

// enough ends what it wants more than its share for. If nobody had anything to lend, it
// waits for longer the next time.
func (s *sender) enough(d linkDemand) {
	if s.began.IsZero() {
		return
	}
	s.began = time.Time{}
	if !s.helped && d.share > 0 {
		s.patience = max(s.patience, min(2*s.patience, hungryBusy))
	}
}

// borrowed counts what is sent beyond the share.
func (s *sender) borrowed(now time.Time, d linkDemand) {
	l := &s.loan
	waits := d.waiting >= backlog
	has := d.share > 0 && d.rate > d.share
	if l.on && (waits || l.waited) {
		l.gain += d.sent - l.passed - int64(float64(d.share)/8*now.Sub(s.seen).Seconds())
	}
	if !has {
		s.returned(now)
	}
	if has && !l.on {
		l.on, l.gain = true, 0
	}
	l.waited, l.passed = waits, d.sent
}

// returned ends a loan and learns from what has come of it.
func (s *sender) returned(now time.Time) {
	l := &s.loan
	if !l.on {
		return
	}
	l.on, l.poor = false, l.gain < worthWhile
	s.patience = 1
}

// slow reports whether something waits for what the link lends, all that may leave ahead
// having left or been given: what it sends then says little of what it could send.
func (d linkDemand) slow() bool { return d.waiting > 0 && d.rate > 0 && d.rate < d.share }

// patience is for how long a backlog has to last before it is worth to borrow for. Where
// what all may send ahead, each within the time that a gift lasts, is at least half of
// their shares, gifts are what there is until then: it is a time in which the share carries
// so many bytes, since what programs exchange at a time is bytes. Where one of the others
// rests it is shorter, since that one does not exchange anything and misses nothing, and
// where others borrow, since who lends has little to give.
func (d linkDemand) patience() time.Duration {
	bytes := hungryBytes
	switch {
	case d.ahead == 0 || d.share == 0 || d.carries(2*d.ahead) < share.GiftLife:
		return hungryAfter
	case d.contended:
		bytes = hungryCrowd
	case d.resting:
		bytes = hungryRest
	}
	return min(max(hungryAfter, d.carries(bytes)), hungryLast)
}

// carries is in which time the share carries so many bytes.
func (d linkDemand) carries(bytes int) time.Duration {
	return time.Duration(float64(bytes) * 8e9 / float64(max(d.share, 1)))
}

// restsAfter is after which time without a request another node is taken to rest.
func (d linkDemand) restsAfter() time.Duration {
	return restTimes * min(max(hungryAfter, d.carries(hungryBytes)), hungryLast)
}

// demand is what is wanted of a link.
func (s *liveShares) demand(now time.Time, site string) linkDemand {
	d := s.cfg.demand(site)
	if mates := s.mates.Load(); mates != nil && d.waiting >= backlog {
		d.resting = s.gifts.rest(now, *mates, share.PoolName(site), d.restsAfter())
	}
	return d
}

// glance looks at the links for who sends over them, which costs no wake; it does not
// block and may be called at any rate.
func (s *liveShares) glance() {
	at := int64(s.now())
	if at-s.glanced.Load() < int64(glanceEvery) || !s.watching.TryLock() {
		return
	}
	s.glanced.Store(at)
	now, news := time.Now(), false
	for site, snd := range s.senders {
		news = !snd.asleep && snd.see(now, s.demand(now, site)) || news
	}
	s.watching.Unlock()
	if news {
		s.poke()
	}
}

// lookAtLinks tells the machine what every link wants, and notices that one is idle:
// then nobody glances.
func (s *liveShares) lookAtLinks(now time.Time) {
	s.watching.Lock()
	s.look = time.Time{}
	for site, snd := range s.senders {
		if snd.asleep {
			continue
		}
		d := s.demand(now, site)
		snd.see(now, d)
		s.say(site, snd)
		next := now.Add(lookEvery)
		if d.waiting == 0 {
			idle := idleAfter
			if snd.want == 0 {
				idle = idleLink
			}
			if next = d.last.Add(idle + time.Millisecond/2); snd.want == 0 && now.After(next) {
				snd.asleep = true // what it has learnt stays
				continue
			}
		}
		s.look = earliest(s.look, next)
	}
	s.watching.Unlock()
}

// tellDemand tells the machine what has been seen since it was told last.
func (s *liveShares) tellDemand() {
	s.watching.Lock()
	defer s.watching.Unlock()
	for site, snd := range s.senders {
		s.say(site, snd)
	}
}

func (s *liveShares) say(site string, snd *sender) {
	if snd.want != snd.told || snd.weight != snd.as {
		snd.told, snd.as = snd.want, snd.weight
		s.m.Demand(s.now(), site, snd.want, int(snd.weight))
	}
}

// inflow measures what arrives from the nodes of other sites.
type inflow struct {
	at    time.Time // of the sample
	bytes map[peer.ID]int64
	next  time.Time
	busy  bool
}

func newInflow() *inflow { return &inflow{bytes: map[peer.ID]int64{}} }

// lookAtInflow tells the machine what arrives, where the downlink has a limit,
// and returns when to look next; zero: not before something changes.
func (s *liveShares) lookAtInflow(now time.Time) time.Time {
	f := s.inflow
	if _, down := s.cfg.limits.of(s.cfg.self.Site); down == 0 {
		if f.busy {
			s.m.Arriving(s.now(), nil)
			f.busy = false
		}
		return time.Time{}
	}
	if now.Before(f.next) {
		return f.next
	}
	arrivals := f.sample(now, s.cfg.received, s.siteOf)
	if len(arrivals) > 0 || f.busy {
		s.m.Arriving(s.now(), arrivals)
	}
	f.busy = len(arrivals) > 0
	f.next = now.Add(arriveRarely)
	if f.busy {
		f.next = now.Add(arriveEvery)
	}
	return f.next
}

// sample returns the rates since the last sample.
func (f *inflow) sample(now time.Time, received func(func(peer.ID, int64)), siteOf func(peer.ID) string) []share.Arrival {
	span := now.Sub(f.at).Seconds()
	first := f.at.IsZero()
	f.at = now
	seen := make(map[peer.ID]int64, len(f.bytes))
	var list []share.Arrival
	received(func(id peer.ID, bytes int64) {
		seen[id] = bytes
		was, known := f.bytes[id]
		if first || !known || bytes <= was || span <= 0 {
			return
		}
		if site := siteOf(id); site != "" {
			list = append(list, share.Arrival{From: id, Site: site, Rate: int64(float64(bytes-was) * 8 / span)})
		}
	})
	f.bytes = seen
	return list
}
