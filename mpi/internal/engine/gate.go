package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// gate is the engine's lock. The driver holds it nearly always, so others say
// that they want it, and it makes way.
type gate struct {
	mu   sync.Mutex
	want atomic.Int32
}

func (g *gate) lock() {
	if !g.mu.TryLock() {
		g.insist()
	}
}

func (g *gate) insist() {
	g.want.Add(1)
	for range 200 {
		if g.mu.TryLock() {
			g.want.Add(-1)
			return
		}
	}
	g.mu.Lock()
	g.want.Add(-1)
}

func (g *gate) unlock() { g.mu.Unlock() }

// makeWay lets those in who want to.
func (g *gate) makeWay() {
	if g.want.Load() == 0 {
		return
	}
	g.mu.Unlock()
	for i := 0; i < 100 && g.want.Load() > 0; i++ {
		runtime.Gosched()
	}
	g.mu.Lock()
}
