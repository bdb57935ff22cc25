package mesh

import (
	"encoding/binary"
	"sync"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// waiting knows the latest initiation to each peer, and lets each response to it
// pass to WireGuard once. Copies come by nature, by other paths and because
// the mesh repeats its messages, and wireguard-go opens several messages at a
// time: of two copies it may take both (ConsumeMessageResponse looks at the state
// under one lock and changes it under the next). That gives two sessions of the
// same keys, both of which count their nonces from 0: the peer takes the second's
// first packets for replays, and a nonce used twice is what ChaCha20-Poly1305
// must never see.
type waiting struct {
	mu    sync.Mutex           // guards all
	by    map[uint32]*asked    // by our sender index
	given map[uint32]*response // what WireGuard has been given, by the responder's sender index
}

// asked is the latest initiation to a peer, until another handshake message takes
// its place. What is below sender is guarded by waiting.mu.
type asked struct {
	id     peer.ID
	sender uint32 // its sender index
	passed map[proof]*response
}

// response is one that WireGuard was given.
type response struct {
	to     *asked
	sender uint32 // its sender index
	proof  proof
	mac1   mac1
	spare  *injected // the latest copy; nil: there is none
}

// proof is what of a response the keys of who made it determine: an ephemeral
// key and the tag of the empty message. All else anybody can change.
type proof [respMAC1 - respEphemeral]byte

// Offsets in a handshake response, and in a cookie reply:
//
//	0..3  4..7      8..11     12..43     44..59  60..75  76..91
//	type  sender    receiver  ephemeral  tag     mac1    mac2
//	0..3  4..7      8..31  32..63
//	type  receiver  nonce  cookie+tag
const (
	respSender     = 4
	respReceiver   = 8
	respEphemeral  = 12
	respMAC1       = 60
	respMAC2       = 76
	cookieReceiver = 4
	cookieNonce    = 8
	cookieSealed   = 32
)

// maxPassed bounds what is remembered of one initiation. One response is genuine;
// who forges so many before it comes sees our datagrams, and could as well drop it.
const maxPassed = 512

func newWaiting() waiting {
	return waiting{by: map[uint32]*asked{}, given: map[uint32]*response{}}
}

func (w *waiting) add(a *asked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[a.sender] = a
}

// drop ends the wait: no response to the initiation passes any more.
func (w *waiting) drop(a *asked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by[a.sender] == a {
		delete(w.by, a.sender)
	}
	for _, r := range a.passed {
		w.take(r)
	}
}

// first returns what pkt, a response, answers, if it is to pass: nil if nobody waits
// for it, or it is a copy.
func (w *waiting) first(pkt []byte, from *source) *asked {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.by[binary.LittleEndian.Uint32(pkt[respReceiver:])]
	if a == nil {
		return nil
	}
	if r := a.passed[proof(pkt[respEphemeral:respMAC1])]; r != nil {
		r.spare = &injected{append([]byte(nil), pkt...), from}
		return nil
	}
	if len(a.passed) == maxPassed {
		return nil
	}
	w.pass(a, pkt)
	return a
}

// pass notes that WireGuard is given a response.
func (w *waiting) pass(a *asked, pkt []byte) {
	r := &response{to: a, sender: binary.LittleEndian.Uint32(pkt[respSender:]), proof: proof(pkt[respEphemeral:respMAC1]), mac1: mac1(pkt[respMAC1:respMAC2])}
	if a.passed == nil {
		a.passed = map[proof]*response{}
	}
	a.passed[r.proof], w.given[r.sender] = r, r
}

// denied is told of a cookie with which WireGuard has refused a response. It returns the
// latest copy, which is to pass instead (it has come another way perhaps, from where its
// sender has a cookie); nil: none has come, and the next one passes. The cookie is bound
// to the message (WireGuard paper §5.4.7): one for another message that claims the same
// sender index must not undo what is known of this one.
func (w *waiting) denied(cookie []byte, o *opener) *injected {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.given[binary.LittleEndian.Uint32(cookie[cookieReceiver:])]
	if r == nil || !o.denies(cookie, r.mac1) {
		return nil
	}
	delete(r.to.passed, r.proof)
	w.take(r)
	if r.spare != nil {
		w.pass(r.to, r.spare.pkt)
	}
	return r.spare
}

func (w *waiting) take(r *response) {
	if w.given[r.sender] == r {
		delete(w.given, r.sender)
	}
}
