package mesh

import (
	"encoding/binary"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// WireGuard sends a handshake message once and waits five seconds for the
// answer. While paths are still being found, or change, that is the likeliest thing to
// get lost, so the mesh repeats the identical message on every path that may work;
// the responder drops duplicates, because their timestamps are not newer. An answer
// is repeated a few times only: nothing tells that it has come.
var helloRepeats = [...]time.Duration{
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond,
}

const answerRepeats = 3

// helloLife is how long a message may still be sent on a path that appears
// later: until WireGuard makes a new one (RekeyTimeout).
const helloLife = 5 * time.Second

// hello is the last handshake message to a peer.
type hello struct {
	pkt    []byte
	sender uint32 // its sender index
	made   time.Time
	stage  int          // repeats done
	late   bool         // WireGuard got theirs before ours was out: it waits for the first repeat, and is nothing by then if theirs is answered
	sent   map[via]bool // paths it has gone by since the last repeat, or since they came up
}

// next is when the message is to be repeated; zero when not.
func (h *hello) next() time.Time {
	if h.pkt == nil || h.stage >= len(helloRepeats) || h.stage >= answerRepeats && !h.initiates() {
		return time.Time{}
	}
	return h.made.Add(helloRepeats[h.stage])
}

// initiated implements sink: WireGuard wants a handshake message sent.
func (m *Mesh) initiated(e *Endpoint, pkt []byte) {
	m.post(func(now time.Time) {
		r := m.loop.remotes[e.id]
		if r == nil || r.ep != e {
			return
		}
		r.lastUsed = now
		r.paths.use(now, true)
		if pkt[0] == device.MessageInitiationType && r.hello.answers(now) {
			return // made before that answer, and undone by it
		}
		h := hello{pkt: pkt, sender: binary.LittleEndian.Uint32(pkt[4:]), made: now, sent: map[via]bool{}}
		h.late = h.crosses(now) && m.leads(r) && now.Sub(r.handed) < holdFor
		m.says(r, h)
		m.spread(r)
		m.serve(now, r)
	})
}

// says makes h the last handshake message to the peer; the zero one: none.
func (m *Mesh) says(r *remote, h hello) {
	if r.asked != nil {
		m.waiting.drop(r.asked)
		r.asked = nil
	}
	if r.hello = h; h.initiates() {
		r.asked = &asked{id: r.node.ID, sender: h.sender}
		m.waiting.add(r.asked)
	}
}

// answered implements sink: a response to an initiation arrived. Anybody can make
// one that looks right, so those that nobody waits for are dropped in the reader,
// and so are copies; see waiting.
func (m *Mesh) answered(pkt []byte, from *source) bool {
	if !m.open.response(pkt) {
		return false
	}
	a := m.waiting.first(pkt, from)
	if a == nil {
		return false
	}
	m.post(func(now time.Time) {
		if r := m.loop.remotes[a.id]; r != nil && r.asked == a && r.hello.pkt != nil {
			r.hello = hello{} // but copies of the answer are still to be known
			m.release(now, r)
		}
	})
	return true
}

// denied implements sink: WireGuard, under load, has answered a handshake message
// with a cookie and not looked into it. A copy of it is welcome.
func (m *Mesh) denied(cookie []byte) {
	if spare := m.waiting.denied(cookie, m.open); spare != nil {
		m.toWireGuard(m.bind.inject, spare.pkt, spare.from)
	}
}

// repeatHandshake sends the message again where it is due, and at once on paths
// that were not there before.
func (m *Mesh) repeatHandshake(now time.Time, r *remote) {
	h := &r.hello
	if h.pkt == nil {
		return
	}
	if now.Sub(h.made) > helloLife {
		*h = hello{} // WireGuard takes an answer until it has made another
		return
	}
	if at := h.next(); !at.IsZero() && !now.Before(at) {
		h.stage++
		h.late = false
		clear(h.sent)
	}
	m.spread(r)
}

// spread sends the handshake message on every path it has not gone by since the
// last repeat: those that work, that were heard from, relays, and the chosen one.
func (m *Mesh) spread(r *remote) {
	h := &r.hello
	if h.late {
		return
	}
	for _, c := range r.paths.cands {
		likely := c.state == up || c.keep || c == r.paths.current || !c.heard.IsZero()
		if !c.free { // it gets an answer, shorter than what came
			likely = c.reply && h.pkt[0] == device.MessageResponseType
		}
		if !likely || h.sent[c.via] {
			continue
		}
		c.reply = false
		// A relay that is not bound yet says so, and gets it when it is.
		h.sent[c.via] = c.path.Send([][]byte{h.pkt}) == nil
	}
}

// handshake implements sink: an initiation arrived. Its sender is configured if
// need be, the way it came is noted, and WireGuard gets it after that. Copies
// cost a hash. Paths that work have a budget of key agreements each, everybody
// else has one together; when it is spent the mesh stands aside and leaves the
// initiation to WireGuard's cookies, after all that it has opened itself.
func (m *Mesh) handshake(pkt []byte, from *source) {
	if !m.open.addressed(pkt) || m.door.lately.has(pkt) {
		return
	}
	if from.allow() || m.door.initiations.Allow() {
		m.door.lately.add(pkt) // before the loop can refuse it and think again
		if m.post(func(now time.Time) { m.met(now, pkt, from) }) {
			return
		}
		m.door.lately.forget(pkt)
	}
	m.toWireGuard(m.bind.spill, pkt, from)
}

// holdFor is how long the leader of a pair withholds the peer's initiation
// while its own may still be answered. Two initiations that cross undo each
// other: each end answers with a handshake whose own state the answering has
// replaced, and both wait out WireGuard's five seconds.
const holdFor = time.Second

// initiates reports whether the message is an initiation that nobody has answered.
func (h *hello) initiates() bool { return h.pkt != nil && h.pkt[0] == device.MessageInitiationType }

// crosses reports whether an initiation of ours is young and unanswered.
func (h *hello) crosses(now time.Time) bool { return h.initiates() && now.Sub(h.made) < holdFor }

// answers reports whether the last message is a young answer to the peer.
// WireGuard makes no initiation within RekeyTimeout of it.
func (h *hello) answers(now time.Time) bool {
	return h.pkt != nil && h.pkt[0] == device.MessageResponseType && now.Sub(h.made) < helloLife-holdFor
}

func (m *Mesh) met(now time.Time, pkt []byte, from *source) {
	id, made, err := m.open.open(pkt)
	if err != nil {
		return
	}
	r := m.configure(now, id)
	if r == nil {
		m.door.lately.refuse(pkt)
		m.log.Debug("handshake from a node that is unknown or not to be trusted", "id", id)
		return
	}
	if !made.after(r.greeted) {
		m.replayed.Add(1) // WireGuard would refuse it
		if c := r.paths.find(from.via); c != nil && c.state == up {
			m.greet(r) // the peer lives there: if its clock went back while it was away, it has to hear from us
		}
		return
	}
	r.greeted = made
	if c := m.candidateOf(now, r, from); c != nil {
		r.paths.hear(now, c)
		c.reply = !c.free
	}
	m.serve(now, r) // so that the response has a way to go
	if r.hello.crosses(now) && m.leads(r) {
		r.held = &injected{pkt, from} // the peer answers ours
		m.wakeAt(r.hello.made.Add(holdFor))
		return
	}
	m.hand(now, r, &injected{pkt, from})
}

// handEvery spaces a peer's initiations: of two within 20 ms by its own clock WireGuard
// drops the second. They come together when a node that stood still for some seconds goes
// on, and the second alone is one that the peer still wants answered.
const handEvery = 5 * device.HandshakeInitationRate

// hand gives WireGuard an initiation of the peer, if not now then from release.
func (m *Mesh) hand(now time.Time, r *remote, in *injected) {
	if due := r.handed.Add(handEvery); now.Before(due) {
		r.queued = in
		m.wakeAt(due)
		return
	}
	r.queued, r.handed = nil, now
	m.toWireGuard(m.bind.inject, in.pkt, in.from)
}

// release gives WireGuard what hand has left, and an initiation that was held when
// ours has stayed without an answer; when it was answered, theirs is forgotten.
func (m *Mesh) release(now time.Time, r *remote) {
	if r.queued != nil {
		m.hand(now, r, r.queued)
	}
	if r.held == nil {
		return
	}
	if r.hello.crosses(now) {
		m.wakeAt(r.hello.made.Add(holdFor))
		return
	}
	if r.hello.initiates() {
		m.hand(now, r, r.held)
	}
	r.held = nil
}

func (m *Mesh) toWireGuard(queue chan<- injected, pkt []byte, from *source) {
	select {
	case queue <- injected{pkt, from}:
	default:
		m.dropped.Add(1)
	}
}

// greet begins a session with a peer without waiting for a packet to it.
func (m *Mesh) greet(r *remote) {
	if p := m.dev.LookupPeer(device.NoisePublicKey(r.node.ID)); p != nil {
		_ = p.SendHandshakeInitiation(false) // sends through initiated; tried again by traffic
	}
}
