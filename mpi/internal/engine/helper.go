package engine

import "time"

// The helper drives an engine that nobody polls. While the program communicates
// it only looks now and then whether anybody has; when nobody has for a tick it
// takes the role, sleeping at the doorbell, until somebody waits again. While
// somebody waits for longer it does not look, until called: a message from another
// site takes several ticks, each of which would wake a thread.
const (
	helperTick = 2 * time.Millisecond
	helperRest = 2 // ticks of one driver after which it rests
)

// help is the helper goroutine; it ends when the engine stops.
func (e *Engine) help() {
	defer e.tasks.Done()
	timer := time.NewTimer(helperTick)
	defer timer.Stop()
	var last uint64
	quiet := 0
	for {
		e.gate.lock()
		if e.stopped {
			e.gate.unlock()
			return
		}
		if !e.helperLater {
			e.writeAhead()
			e.settle()
		}
		switch {
		case e.driver == nil && (e.helperWanted || e.turns == last):
			e.driver = &e.helper
			e.drive(&e.helper)
			if e.driver == &e.helper {
				e.driver = nil
			}
			quiet = 0
		case e.turns == last && !e.helperLater:
			quiet++
		default:
			quiet = 0
		}
		last = e.turns
		e.helperWanted, e.helperLater = false, false
		e.helperRests = e.driver != nil && quiet >= helperRest
		rest := e.helperRests
		e.gate.unlock()
		e.idle(timer, rest)
	}
}

// idle waits for a call or, unless it is to rest, for a tick.
func (e *Engine) idle(timer *time.Timer, rest bool) {
	var tick <-chan time.Time
	if !rest {
		timer.Reset(helperTick)
		tick = timer.C
	}
	select {
	case <-e.helperCall:
	case <-tick:
	case <-e.ctx.Done():
	}
}

// callHelper has the helper look at once.
func (e *Engine) callHelper() {
	select {
	case e.helperCall <- struct{}{}:
	default:
	}
}
