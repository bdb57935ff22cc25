package node

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper/estimate"
)

// Timing of what arrives from sites that measure.
const (
	tellWithin = 200 * time.Millisecond // of the last byte: it is looked at often
	tellRarely = 100 * time.Millisecond // between looks otherwise
	perSender  = 500 * time.Microsecond // of the time between tallies: bounds them to 2,000 a second

	tallyWire   = 128 // bytes of a tally on the wire, at most
	answerEvery = 8   // tallies that come are told of as one, unless more comes
)

// measureConfig is what a gauge takes from the rest of the node. The functions are
// called by one goroutine and must not block.
type measureConfig struct {
	// traffic tells of every node of another site what has passed; nil: nothing is
	// measured.
	traffic func(yield func(peer.Traffic))
	// known is what was found earlier, and found what may be sent from now on, by
	// site, "" for all together; bits per second, 0 is unlimited. save is given what
	// is to be known the next time.
	known map[string]int64
	found func(rates map[string]int64)
	save  func(known map[string]int64)
}

// gauge runs an estimate.Meter within liveShares, whose goroutine owns it, and tells
// nodes of sites that measure what arrives from them.
type gauge struct {
	s     *liveShares
	meter *estimate.Meter

	measured []string // what cfg.limits has to be measured

	telling map[string]bool   // sites whose nodes are told
	counted map[peer.ID]int64 // as told last
	heard   map[peer.ID]int64 // bytes that tallies have taken since
	next    time.Time         // when it is looked at next; zero: nobody is told
	arrived time.Time         // when something last had

	news  bool             // something has come that may change what is found
	told  time.Time        // when it was last published
	rates map[string]int64 // as cfg.found has them
	saved map[string]int64 // as cfg.save has them, also of links that are not measured now
	facts atomic.Pointer[[]fact]
}

// fact is what is known of a link that is measured, for whoever asks.
type fact struct {
	to    string    // site; "": all together
	rate  int64     // found, bits per second; 0: nothing yet
	since time.Time // when it was last measured; zero: not since the start
}

func newGauge(s *liveShares) *gauge {
	g := &gauge{s: s, counted: map[peer.ID]int64{}, heard: map[peer.ID]int64{}, saved: map[string]int64{}}
	maps.Copy(g.saved, s.cfg.measure.known)
	g.meter = estimate.NewMeter(estimate.Config{Self: s.cfg.self.ID, Sent: g.sent})
	g.facts.Store(&[]fact{})
	return g
}

// known returns what is known of the links that are measured, by site. Anybody may
// ask.
func (g *gauge) known() []fact { return *g.facts.Load() }

// reload takes members and limits in anew.
func (g *gauge) reload(up []peer.ID, others map[string]bool) {
	cfg := g.s.cfg
	if cfg.measure.traffic == nil {
		return
	}
	self := cfg.self.Site
	g.meter.Members(up)
	sites := cfg.limits.toMeasure(self)
	g.meter.Measure(sites, func(site string) int64 { return g.saved[site] })
	if !slices.Equal(sites, g.measured) { // under load nothing wakes: it is awake
		g.measured = sites
		g.meter.Wake(g.s.now())
	}
	g.telling = map[string]bool{}
	for site := range others {
		if cfg.limits.measures(site, self) {
			g.telling[site] = true
		}
	}
	switch {
	case len(g.telling) == 0:
		g.next = time.Time{}
		clear(g.counted)
		clear(g.heard)
	case g.next.IsZero():
		g.next = time.Now()
	}
	g.publish()
}

// receive takes in a message of the meter's.
func (g *gauge) receive(n peer.Node, data []byte) error {
	g.news = true
	if g.telling[n.Site] { // no other messages come from there
		g.heard[n.ID] += tallyWire
	}
	return g.meter.Receive(g.s.now(), n.ID, n.Site == g.s.cfg.self.Site, data)
}

// sent tells the meter what has been sent.
func (g *gauge) sent(yield func(to peer.ID, site string, bytes int64, rtt time.Duration)) {
	g.s.cfg.measure.traffic(func(t peer.Traffic) {
		if site := g.s.siteOf(t.ID); site != "" {
			yield(t.ID, site, t.Sent, t.RTT)
		}
	})
}

// siteOf returns the site of a node of another site, "" of others.
func (s *liveShares) siteOf(id peer.ID) string {
	if r, ok := s.cfg.dir.ByID(id); ok && r.Node.Site != s.cfg.self.Site {
		return r.Node.Site
	}
	return ""
}

// turn does what is due and returns when something is next; zero: not before
// something changes.
func (g *gauge) turn() time.Time {
	now := time.Now()
	if !g.next.IsZero() && !now.Before(g.next) {
		g.tell(now)
	}
	out, wake := g.meter.Step(g.s.now())
	for _, msg := range out {
		g.s.send(msg.To, msg.Data)
	}
	if g.news || wake != 0 && now.Sub(g.told) >= estimate.Slot/2 {
		g.publish()
	}
	return earliest(g.next, g.s.at(wake))
}

// tell tells senders of sites that measure what has arrived from them.
func (g *gauge) tell(now time.Time) {
	at := g.s.now()
	told := 0
	there := make(map[peer.ID]bool, len(g.counted))
	g.s.cfg.measure.traffic(func(t peer.Traffic) {
		there[t.ID] = true
		was, known := g.counted[t.ID]
		if known && was == t.Received || !g.telling[g.s.siteOf(t.ID)] {
			return
		}
		if known && g.answers(t.ID, t.Received-was) {
			return
		}
		g.counted[t.ID] = t.Received
		delete(g.heard, t.ID)
		g.s.send(t.ID, estimate.AppendTally(nil, at, t.Received))
		told++
	})
	if told > 0 {
		g.arrived = now
	}
	gone := func(id peer.ID, _ int64) bool { return !there[id] }
	maps.DeleteFunc(g.counted, gone)
	maps.DeleteFunc(g.heard, gone)
	every := max(estimate.TallyEvery, time.Duration(told)*perSender)
	if now.Sub(g.arrived) > tellWithin {
		every = tellRarely
	}
	g.next = now.Add(every)
}

// answers reports whether to tell of so many more bytes would only answer tallies:
// two sites that measure would answer each other for ever. Of many in a row some are
// told of, since they too are sent and ought to arrive; that ends by itself.
func (g *gauge) answers(to peer.ID, more int64) bool {
	heard := g.heard[to]
	return more > 0 && more <= heard && heard < answerEvery*tallyWire
}

// publish tells what may be sent and what has been found, where that has changed.
func (g *gauge) publish() {
	g.news, g.told = false, time.Now()
	rates, found := map[string]int64{}, map[string]int64{}
	var list []fact
	for _, x := range g.meter.Explain(g.s.now()) {
		rates[x.To], found[x.To] = x.Rate, x.Found
		f := fact{to: x.To, rate: x.Found}
		if x.Age >= 0 {
			f.since = g.told.Add(-x.Age)
		}
		list = append(list, f)
	}
	g.facts.Store(&list)
	if !maps.Equal(rates, g.rates) {
		g.rates = rates
		g.s.cfg.log.Debug("links are measured", "may be sent", rates, "found", found)
		g.s.cfg.measure.found(rates)
	}
	if g.remember(found) {
		g.s.cfg.measure.save(maps.Clone(g.saved))
	}
}

// maxRemembered is of how many links it is remembered what they were found to carry.
const maxRemembered = 1024

// remember takes in what was found and is not about what is remembered, and reports
// whether anything was.
func (g *gauge) remember(found map[string]int64) (news bool) {
	for site, r := range found {
		was, known := g.saved[site]
		if r > 0 && (r > was+was/20 || r < was-was/20) && (known || len(g.saved) < maxRemembered) {
			g.saved[site], news = r, true
		}
	}
	return news
}
