package node

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// TestPairwise: an all-to-all in pairwise exchanges, as Open MPI does it, over two sites of
// four nodes each, takes little longer than over a link that nobody paces and whose queue
// has no end, and fills little more than the queue of a small switch. With fixed shares
// large ones take 1.75 times as long: in four of seven steps less than all nodes of a site
// send.
func TestPairwise(t *testing.T) {
	for _, tt := range []struct {
		mbit, kib int
		most      float64 // of the time without pacing
		queue     float64 // bytes: heads or gifts, or what is lent and taken back by notices that take 3 ms
	}{
		{20, 64, 1.05, 55e3}, {100, 4, 1.15, 20e3}, {100, 16, 1.1, 45e3}, {100, 32, 1.1, 45e3}, {100, 64, 1.1, 50e3},
		{100, 128, 1.12, 50e3}, {100, 1024, 1.08, 64e3}, {400, 256, 1.42, 70e3},
	} {
		size := float64(tt.kib) * 1100 // on the wire
		loops := max(2, 256/tt.kib)
		var ratio, queued float64 // the mean, and the most
		for seed := range uint64(chances) {
			free, paced := newExchange(float64(tt.mbit)*1e6/8, true, seed), newExchange(float64(tt.mbit)*1e6/8, false, seed)
			free.run(loops, size)
			paced.run(loops, size)
			ratio += float64(paced.now) / float64(free.now) / chances
			queued = max(queued, paced.queued)
		}
		t.Logf("%d Mb/s, %d KiB: %.2f times as long as without pacing, with %.0f bytes in the queue", tt.mbit, tt.kib, ratio, queued)
		if ratio > tt.most {
			t.Errorf("%d Mb/s, %d KiB: %.2f times as long as without pacing, more than %.2f", tt.mbit, tt.kib, ratio, tt.most)
		}
		if queued > tt.queue {
			t.Errorf("%d Mb/s, %d KiB: %.0f bytes in the queue", tt.mbit, tt.kib, queued)
		}
	}
}

const (
	chances      = 8 // runs of each
	exchangeTick = 50 * time.Microsecond
	rendezvous   = 500 * time.Microsecond // from when both ranks are there until the sender begins
)

// exchange simulates it. What works out demand and shares is the real thing; what is paced
// flows evenly, each node's head first; of TCP there are the acknowledgements alone.
type exchange struct {
	rate   float64 // of each uplink, bytes per second
	free   bool    // nobody paces
	rng    *rand.Rand
	now    time.Duration
	nodes  [8]*exchanger
	mail   []exchangeNotice
	links  [2][]exchangePart // what is in each uplink's queue
	queued float64           // the most of that, bytes
}

type exchanger struct {
	m *share.Machine
	s sender
	linkDemand
	waits   []exchangePart // in the pacer
	credit  float64        // what it may send now, bytes
	taken   []exchangeGift // that others have given, the first to end first,
	given   []exchangeGift // by it
	askings [8]asking      // of each other node
	lent    bool
	left    float64 // of a byte, in what has been sent
	glanced time.Duration
	wake    time.Duration // of the machine
	woken   bool          // its link was idle

	step    int
	begins  time.Duration // when the step's message may leave; 0: not before the other is there
	begun   bool
	in, out bool // the step's messages have arrived
}

// exchangePart is some of a message, or its end.
type exchangePart struct {
	from, to int
	left     float64 // bytes
	end      bool
}

type exchangeGift struct {
	bytes float64
	until time.Duration
}

type exchangeNotice struct {
	at       time.Duration
	from, to int
	data     []byte
}

func newExchange(rate float64, free bool, seed uint64) *exchange {
	x := &exchange{rate: rate, free: free, rng: rand.New(rand.NewPCG(seed, 2))}
	for i := range x.nodes {
		m := share.New(peer.ID{byte(i)}, share.Config{})
		var up []peer.ID
		for k := range 4 {
			up = append(up, peer.ID{byte(i/4*4 + k)})
		}
		m.Members(0, up)
		m.Uplink(0, int64(rate*8))
		m.Capacity(0, "there", int64(rate*8))
		x.nodes[i] = &exchanger{m: m, linkDemand: linkDemand{weight: 1, share: share.Safe(int64(rate*8), 4), ahead: headBytes(4)}}
	}
	return x
}

// run does so many all-to-alls of messages of so many bytes.
func (x *exchange) run(loops int, size float64) {
	for left := true; left; x.now += exchangeTick {
		left = false
		for i, n := range x.nodes {
			x.play(i, loops, size)
			x.pace(i)
			x.look(i)
			left = left || n.step < 7*loops
		}
		for i, link := range x.links {
			x.links[i] = x.carry(link)
		}
		mail := x.mail
		x.mail = nil
		for _, l := range mail {
			if l.at > x.now {
				x.mail = append(x.mail, l)
				continue
			}
			if share.IsGift(l.data) {
				x.gift(l)
				continue
			}
			to := x.nodes[l.to]
			_ = to.m.Receive(x.now, peer.ID{byte(l.from)}, l.data)
			if to.m.Hungry(peer.ID{byte(l.from)}, "there") {
				to.askings[l.from].heard = x.time()
			}
			x.work(l.to)
		}
	}
}

// time is a moment as senders see it.
func (x *exchange) time() time.Time { return x.began().Add(x.now) }

func (x *exchange) began() time.Time { return time.Unix(1000, 0) }

// play is a rank's part: in step k it sends to the one k after it and hears from the one
// k before.
func (x *exchange) play(i, loops int, size float64) {
	n := x.nodes[i]
	if n.step == 7*loops {
		return
	}
	to := (i + n.step%7 + 1) % 8
	switch {
	case n.begun || x.nodes[to].step < n.step:
	case n.begins == 0:
		n.begins = x.now + rendezvous
	case x.now >= n.begins:
		n.begun, n.begins = true, 0
		if to/4 == i/4 {
			n.out, x.nodes[to].in = true, true
			break
		}
		n.waits = append(n.waits, exchangePart{i, to, size, true})
		n.waiting += int64(size)
		n.woken = n.last.IsZero() || x.time().Sub(n.last) > idleAfter
		n.last = x.time()
	}
	if n.begun && n.in && n.out {
		n.step, n.begun, n.in, n.out = n.step+1, false, false, false
	}
}

// pace is a pacer's part.
func (x *exchange) pace(i int) {
	n := x.nodes[i]
	tick := x.rate * exchangeTick.Seconds()
	n.credit = min(n.credit+float64(n.m.Rate("")/8)*exchangeTick.Seconds(), float64(headBytes(4))-n.away(x.now))
	n.taken = slices.DeleteFunc(n.taken, func(g exchangeGift) bool { return x.now >= g.until || len(n.waits) == 0 })
	room := min(n.credit+sum(n.taken), tick)
	if x.free {
		room = 1e9
	}
	for room > 0 && len(n.waits) > 0 {
		p := n.waits[0]
		p.left = min(room, p.left)
		room, n.credit = room-p.left, n.credit-n.use(p.left)
		n.waits[0].left -= p.left
		n.last, n.left = x.time(), n.left+p.left
		n.sent, n.waiting = n.sent+int64(n.left), n.waiting-int64(n.left)
		n.left -= math.Trunc(n.left)
		if p.end = n.waits[0].left < 1; p.end {
			n.waits = n.waits[1:]
		}
		x.links[i/4] = append(x.links[i/4], p)
	}
	if len(n.waits) == 0 {
		n.waiting = 0 // parts of a byte add up to one
	}
	lent := n.m.Lent("") > 0
	if !lent && (n.lent || len(n.waits) == 0) {
		x.offer(i)
	}
	n.lent = lent
	switch {
	case n.waiting < shaper.Backlog:
		n.full = time.Time{}
	case n.full.IsZero():
		n.full = x.time()
	}
}

// look is the part of a node's live shares.
func (x *exchange) look(i int) {
	n := x.nodes[i]
	if n.woken || x.now-n.glanced >= glanceEvery {
		n.glanced, n.rate, n.contended = x.now, n.m.Rate(""), n.m.Contended("there")
		n.resting = false
		for k := i / 4 * 4; k < i/4*4+4; k++ {
			n.resting = n.resting || k != i && n.askings[k].rests(x.time(), n.restsAfter())
		}
		if n.s.see(x.time(), n.linkDemand) || n.woken {
			n.woken = false
			n.s.told, n.s.as = n.s.want, n.s.weight
			n.m.Demand(x.now, "there", n.s.want, 1)
			x.work(i)
		}
	}
	if n.wake != 0 && n.wake <= x.now {
		x.work(i)
	}
	short := float64(n.waiting) - n.credit - sum(n.taken)
	if x.free || short < shaper.Backlog {
		return
	}
	for to := i / 4 * 4; to < i/4*4+4; to++ {
		if a := &n.askings[to]; to != i && a.due(x.time()) {
			a.asked(x.time(), offerPause(int64(x.rate*8), 3))
			x.post(i, to, share.Gift{Bytes: askFor(int(short), int64(x.rate*8), 3), Asked: x.now}.Append(nil))
		}
	}
}

// work has a machine do what is due. Its notices take 0.2 ms, and one in four up to
// three more, as beside ranks that spin.
func (x *exchange) work(i int) {
	out, wake := x.nodes[i].m.Step(x.now)
	x.nodes[i].wake = wake
	for _, msg := range out {
		x.post(i, int(msg.To[0]), msg.Data)
	}
}

func (x *exchange) post(from, to int, data []byte) {
	d := 200 * time.Microsecond
	if x.rng.IntN(4) == 0 {
		d += time.Duration(x.rng.IntN(3000)) * time.Microsecond
	}
	x.mail = append(x.mail, exchangeNotice{x.now + d, from, to, data})
}

func sum(gifts []exchangeGift) (bytes float64) {
	for _, g := range gifts {
		bytes += g.bytes
	}
	return bytes
}

// use takes what is sent from what has been taken, and returns what is left.
func (n *exchanger) use(bytes float64) float64 {
	for i := range n.taken {
		part := min(n.taken[i].bytes, bytes)
		n.taken[i].bytes, bytes = n.taken[i].bytes-part, bytes-part
	}
	return bytes
}

// away is what a node has given that may still be used.
func (n *exchanger) away(now time.Duration) (bytes float64) {
	for _, g := range n.given {
		if now < g.until {
			bytes += g.bytes
		}
	}
	return bytes
}

// gift is what a node does when it is asked for bytes, or given some.
func (x *exchange) gift(l exchangeNotice) {
	n := x.nodes[l.to]
	g, _ := share.ParseGift(l.data)
	a := &n.askings[l.from]
	if g.Does == share.Asks {
		a.heard = x.time()
	}
	switch {
	case g.Does == share.Offers:
		a.offers(x.time())
	case g.Does == share.Gives:
		if x.now < g.Asked+share.GiftLife {
			n.taken = append(n.taken, exchangeGift{float64(g.Bytes), g.Asked + share.GiftLife})
			slices.SortFunc(n.taken, func(a, b exchangeGift) int { return cmp.Compare(a.until, b.until) })
			a.gives(x.began().Add(g.Asked))
		}
	case len(n.waits) > 0 || n.m.Lent("") > 0:
		a.owed = true
	default:
		if g.Does, g.Bytes = share.Gives, int(min(float64(g.Bytes), n.credit)); g.Bytes < shaper.Pair/2 {
			g = share.Gift{Does: share.Offers}
		} else {
			n.credit -= float64(g.Bytes)
			n.given = append(slices.DeleteFunc(n.given, func(g exchangeGift) bool { return x.now >= g.until }), exchangeGift{float64(g.Bytes), x.now + share.GiftLife})
		}
		x.post(l.to, l.from, g.Append(nil))
	}
}

// offer tells those that have asked a node in vain that they may ask again.
func (x *exchange) offer(i int) {
	for to := range x.nodes[i].askings {
		if a := &x.nodes[i].askings[to]; a.owed {
			a.owed = false
			x.post(i, to, share.Gift{Does: share.Offers}.Append(nil))
		}
	}
}

// carry has a link carry what it can.
func (x *exchange) carry(link []exchangePart) []exchangePart {
	held := 0.0
	for _, p := range link {
		held += p.left
	}
	x.queued = max(x.queued, held)
	for room := x.rate * exchangeTick.Seconds(); room > 0 && len(link) > 0; {
		p := &link[0]
		n := min(room, p.left)
		room, p.left = room-n, p.left-n
		r := x.nodes[p.to]
		r.last, r.sent = x.time(), r.sent+int64(n/60) // what is acknowledged
		if p.left >= 1 {
			break
		}
		if p.end {
			x.nodes[p.from].out, r.in = true, true
		}
		link = link[1:]
	}
	return link
}
