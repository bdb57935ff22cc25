package engine

import "time"

// The helper drives an engine that nobody polls. While the program communicates
// it only looks now and then whether anybody has; when nobody has for a tick it
// takes the role, sleeping at the doorbell, until somebody waits again. When
// somebody waits for long it stops looking, until called.
const (
	helperTick = 2 * time.Millisecond
	helperRest = 50 // ticks of one driver after which it rests
)

// help is the helper goroutine; it ends when the engine stops.
func (e *Engine) help() {
	defer e.tasks.Done()
	timer := time.NewTimer(helperTick)
	defer timer.Stop()
	var last uint64
	quiet, called := 0, false
	for {
		e.gate.lock()
		if e.stopped {
			e.gate.unlock()
			return
		}
		switch {
		case e.driver == nil && (called || e.turns == last):
			e.driver = &e.helper
			e.drive(&e.helper)
			if e.driver == &e.helper {
				e.driver = nil
			}
			quiet = 0
		case e.turns == last:
			quiet++
		default:
			quiet = 0
		}
		last = e.turns
		rest := e.driver != nil && quiet >= helperRest
		e.helperRests = rest
		e.gate.unlock()
		if called = e.idle(timer, rest); called {
			quiet = 0
		}
	}
}

// idle waits for a tick or, resting, for a call only.
func (e *Engine) idle(timer *time.Timer, rest bool) (called bool) {
	if rest {
		select {
		case <-e.helperCall:
			return true
		case <-e.ctx.Done():
			return false
		}
	}
	timer.Reset(helperTick)
	select {
	case <-e.helperCall:
		return true
	case <-timer.C:
		return false
	case <-e.ctx.Done():
		return false
	}
}

// callHelper has the helper look at once.
func (e *Engine) callHelper() {
	select {
	case e.helperCall <- struct{}{}:
	default:
	}
}
