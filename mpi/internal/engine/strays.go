package engine

import (
	"slices"
	"sync/atomic"
)

// In a program that is wrong, some members of a board may do by messages what others do on
// the board: they would wait for each other for ever.

// strays looks whether somebody has sent messages in a turn that is waited for on a board,
// or has shown something in one in which messages are. It is for whoever has waited long.
func (e *Engine) strays() {
	for _, b := range e.boards {
		if int(b.ctx) >= len(e.contexts) || e.contexts[b.ctx] == nil {
			continue
		}
		switch s := b.first; {
		case s == nil:
			b.elsewhere(e.contexts[b.ctx])
		case s.done != nil:
			if !s.rung { // they may sleep over receives of this very turn, see elsewhere
				s.rung = true
				b.ring(s.missing)
			}
			for m := e.contexts[b.ctx].arrived.first; m != nil; m = m.links[byTime].next {
				if m.tag == int32(s.turn) && slices.Contains(b.members, m.peer) {
					b.drop(s, ErrStray{ErrTruncate{Message: int64(m.size), Buffer: int64(s.size)}})
					break
				}
			}
		}
	}
}

// strayed has a driver that sleeps look for strays again, since there is more to wait for.
func (e *Engine) strayed() {
	if len(e.boards) > 0 && e.driver != nil && e.driver.asleep {
		e.bell.ring()
	}
}

// elsewhere ends receives of a turn that somebody shows something in. What has been shown
// here is over for all.
func (b *Board) elsewhere(d *domain) {
	for i, p := range b.members {
		if i == b.me || b.e.peers[p].state != up {
			continue
		}
		l := &b.lines[i][(b.turn+1)%2]
		word := atomic.LoadUint64(&l.word)
		if word <= b.shown {
			continue
		}
		for k := range d.bins {
			for r := d.bins[k].posted.first; r != nil; {
				next := r.next
				if r.tag == int32(uint32(word)) {
					d.unpost(r)
					b.e.end(r, ErrStray{ErrTruncate{Message: int64(min(l.size, MostShown))}})
				}
				r = next
			}
		}
	}
}
