package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
)

// journal keeps the last events and passes new ones to whoever listens.
type journal struct {
	mu        sync.Mutex // guards everything here and in listeners
	last      []api.Event
	listeners map[*listener]struct{}
	missed    uint64 // by all listeners
}

const (
	eventsKept   = 256
	eventsBehind = 512 // a listener that is further behind misses events and is told how many
)

// listener is one who wants to know.
type listener struct {
	j       *journal
	waiting []api.Event
	missed  int
	wake    chan struct{} // of size 1: there is something to take
}

func newJournal() *journal { return &journal{listeners: map[*listener]struct{}{}} }

// emit records an event. It never blocks.
func (j *journal) emit(kind, node, text string) {
	e := api.Event{Version: api.Version, Time: time.Now(), Kind: kind, Node: node, Text: text}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.last) == eventsKept {
		j.last = append(j.last[:0], j.last[1:]...)
	}
	j.last = append(j.last, e)
	for l := range j.listeners {
		if len(l.waiting) == eventsBehind {
			l.missed++
			j.missed++
			continue
		}
		l.waiting = append(l.waiting, e)
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// lost counts the events that listeners have missed.
func (j *journal) lost() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.missed
}

// listen returns a listener for whom the events so far wait already. It hears of
// new ones until stop.
func (j *journal) listen() *listener {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := &listener{j: j, waiting: append([]api.Event(nil), j.last...), wake: make(chan struct{}, 1)}
	j.listeners[l] = struct{}{}
	return l
}

// take returns what has happened since the last call, in order.
func (l *listener) take() []api.Event {
	l.j.mu.Lock()
	defer l.j.mu.Unlock()
	list := l.waiting
	if l.missed > 0 {
		list = append(list, api.Event{Version: api.Version, Time: time.Now(), Kind: "missed",
			Text: fmt.Sprintf("%s came faster than they were read", plural(l.missed, "event"))})
	}
	l.waiting, l.missed = nil, 0
	return list
}

func (l *listener) stop() {
	l.j.mu.Lock()
	defer l.j.mu.Unlock()
	delete(l.j.listeners, l)
}
