package relay

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// Times of binding, see step.
const (
	retryFirst = 100 * time.Millisecond // doubles until bound
	retryMax   = 2 * time.Second
	answerTime = time.Second            // for the answer to a keepalive; then another is sent
	checkPause = 500 * time.Millisecond // for which an answer vouches, whoever doubts it, and between binds that are asked for
	maxLost    = 3                      // unanswered binds, then the relay is down
)

// binding is a client's side of its binding. The client's mutex guards it.
type binding struct {
	name     string // of the relay
	relay    netip.AddrPort
	mac      *mac // nil without a grant
	counter  uint64
	pending  [8]pendingBind // latest binds that are not answered yet, newest first
	lost     int            // binds since the last answer
	due      time.Time      // when to bind next
	heard    time.Time      // when the relay last answered
	observed netip.AddrPort // zero while not bound
	rtt      time.Duration
}

type pendingBind struct {
	counter uint64 // 0 is none
	at      time.Time
}

// step does what is due: it returns when to come again, and where the bind it
// wrote into frame must be sent, if any. Without a grant nothing is ever due.
func (c *Client) step(frame []byte, now time.Time) (due time.Duration, to netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.b
	if b.mac == nil {
		return 0, to
	}
	if wait := b.due.Sub(now); wait > 0 {
		return wait, to
	}
	if b.lost >= maxLost && b.observed.IsValid() {
		c.unbind()
		b.restart() // as if new: the relay may just have started again
	}
	c.makeBind(frame, now, 0)
	due = b.delay()
	b.due = now.Add(due)
	b.lost++
	return due, b.relay
}

// makeBind writes the next bind into frame. The caller holds mu.
func (c *Client) makeBind(frame []byte, now time.Time, flags byte) {
	b := &c.b
	b.counter = max(uint64(now.UnixNano()), b.counter+1)
	copy(b.pending[1:], b.pending[:])
	b.pending[0] = pendingBind{b.counter, now}
	putBind(frame, bind{short: c.short, counter: b.counter, flags: flags})
	b.mac.seal(frame)
}

// HandleBound takes a bound frame that came from an address. What does not
// answer a bind of ours is dropped and counted. pkt is borrowed.
func (c *Client) HandleBound(pkt []byte, from netip.AddrPort) {
	now := c.now()
	short, counter, observed, ok := parseBound(pkt)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.b
	if !ok || short != c.short || b.mac == nil || unmap(from) != b.relay ||
		observed.Port() == 0 || observed.Addr().IsUnspecified() {
		c.count.refused.Add(1)
		return
	}
	at, ok := b.sentAt(counter)
	if !ok || !b.mac.valid(pkt) {
		c.count.refused.Add(1)
		return
	}
	b.answered(counter)
	b.measure(now.Sub(at))
	b.lost, b.heard = 0, now
	b.due = now.Add(jitter(KeepAlive))
	b.observed = observed
	relay := b.relay
	c.live.Store(&relay)
	c.poke()
}

// unbind takes the binding for gone. The caller holds mu.
func (c *Client) unbind() {
	c.live.Store(nil)
	c.b.observed = netip.AddrPort{}
}

// restart makes a bind due now and forgets the binds before it.
func (b *binding) restart() {
	clear(b.pending[:])
	b.lost = 0
	b.due = time.Time{}
}

// delay is how long to wait for the answer to a bind after b.lost lost ones.
func (b *binding) delay() time.Duration {
	if b.observed.IsValid() {
		return answerTime
	}
	d := retryMax
	if b.lost < 16 {
		d = min(d, retryFirst<<b.lost)
	}
	if d >= time.Second {
		d = jitter(d) // many clients of a relay that is gone
	}
	return d
}

// sentAt finds the pending bind of that counter.
func (b *binding) sentAt(counter uint64) (time.Time, bool) {
	for _, p := range b.pending {
		if p.counter == counter && counter != 0 {
			return p.at, true
		}
	}
	return time.Time{}, false
}

// answered forgets the pending binds up to counter: an older answer tells of an
// older address.
func (b *binding) answered(counter uint64) {
	for i := range b.pending {
		if b.pending[i].counter <= counter {
			b.pending[i] = pendingBind{}
		}
	}
}

// measure smooths the round trip time as RFC 6298 §2.3 does, alpha 1/8.
func (b *binding) measure(rtt time.Duration) {
	if rtt = max(rtt, 1); b.rtt == 0 {
		b.rtt = rtt
		return
	}
	b.rtt += (rtt - b.rtt) / 8
}

// jitter varies d by ±10 %.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
