package engine

import "runtime"

// chanBell is the doorbell of an engine whose links are all within this Go
// process: nobody who sleeps holds a thread.
type chanBell struct {
	bell  chan struct{} // size 1: rung is rung
	kicks chan struct{} // size 1
}

func newChanBell() *chanBell {
	return &chanBell{make(chan struct{}, 1), make(chan struct{}, 1)}
}

func (b *chanBell) ring() {
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

func (b *chanBell) kick() {
	select {
	case b.kicks <- struct{}{}:
	default:
	}
}

func (b *chanBell) wait(helper bool) {
	if !helper {
		<-b.bell
		return
	}
	select {
	case <-b.bell:
	case <-b.kicks:
	}
}

func (b *chanBell) yield() { runtime.Gosched() }
