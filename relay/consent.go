package relay

import (
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

const (
	// consentLife is how long a verdict stands before policy is asked again.
	consentLife = 5 * time.Second
	// maxVerdicts bounds the remembered pairs.
	maxVerdicts = 1 << 14
)

// pair is one direction between two nodes.
type pair struct{ from, to peer.ID }

type verdict struct {
	ok    bool
	until time.Time
}

// consent remembers for a while what policy says of pairs. Its methods are safe
// for concurrent use.
type consent struct {
	ask func(from, to peer.ID) bool // nil allows all

	mu       sync.RWMutex
	verdicts map[pair]verdict
}

func (c *consent) allows(p pair, now time.Time) bool {
	if c.ask == nil {
		return true
	}
	c.mu.RLock()
	v, known := c.verdicts[p]
	c.mu.RUnlock()
	if known && now.Before(v.until) {
		return v.ok
	}
	// Asked without the lock: policy belongs to others. Two readers may ask at
	// once and hear the same.
	v = verdict{ok: c.ask(p.from, p.to), until: now.Add(consentLife)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.verdicts) >= maxVerdicts {
		clear(c.verdicts) // asking again is cheaper than finding the oldest
	}
	c.verdicts[p] = v
	return v.ok
}
