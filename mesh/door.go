package mesh

import (
	"sync"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/time/rate"
)

// door bounds what those whom we do not know yet may make us compute. Each kind
// of first contact has a limit of its own, so that a flood of one leaves the
// others open.
type door struct {
	initiations *rate.Limiter // two key agreements each
	pings       *rate.Limiter // one, once for each node of the directory
	signals     *rate.Limiter // likewise
	lately      lately
}

// Key agreements take about 60 µs each; a known path makes an initiation every
// two minutes, and every five seconds while nobody answers.
const (
	strangersRate, strangersBurst = 200, 400 // a second, together
	knownRate, knownBurst         = 1, 8     // a second, each
)

func newDoor() *door {
	limiter := func() *rate.Limiter { return rate.NewLimiter(strangersRate, strangersBurst) }
	return &door{
		initiations: limiter(), pings: limiter(), signals: limiter(),
		lately: lately{known: make(map[mac1]struct{}, latelyKept)},
	}
}

// latelyKept is how many initiations are remembered: what strangers can send in
// the time that a peer repeats itself, several times over.
const latelyKept = 1024

type mac1 [blake2s.Size128]byte

// lately remembers the last initiations that were opened, so that copies,
// repeated by a peer or replayed by anybody, cost no key agreement.
type lately struct {
	mu      sync.Mutex // guards what follows
	known   map[mac1]struct{}
	ring    [latelyKept]mac1
	next    int
	refused []mac1 // of nodes that we did not know then
}

// has reports whether pkt, an initiation, was added lately.
func (l *lately) has(pkt []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.known[mac1(pkt[initMAC1:initMAC2])]
	return ok
}

func (l *lately) add(pkt []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, l.ring[l.next])
	l.ring[l.next] = mac1(pkt[initMAC1:initMAC2])
	l.known[l.ring[l.next]] = struct{}{}
	l.next = (l.next + 1) % latelyKept
}

// forget has pkt opened if it comes again.
func (l *lately) forget(pkt []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, mac1(pkt[initMAC1:initMAC2]))
}

// maxRefusedInitiations is how many initiations of unknown nodes are opened again.
const maxRefusedInitiations = 64

// refuse notes that pkt, which was added, came from a node that we do not know.
func (l *lately) refuse(pkt []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) < maxRefusedInitiations {
		l.refused = append(l.refused, mac1(pkt[initMAC1:initMAC2]))
	}
}

// reconsider has those that were refused opened again if they are repeated, now that we
// may know who they are from: a peer makes no other for five seconds.
func (l *lately) reconsider() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, mac := range l.refused {
		delete(l.known, mac)
	}
	l.refused = l.refused[:0]
}
