package node

import (
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
)

// journal keeps the last events and passes new ones to whoever listens.
type journal struct {
	mu        sync.Mutex
	last      []api.Event
	listeners map[chan api.Event]struct{}
}

const (
	eventsKept   = 256
	eventsBehind = 64 // a listener that is further behind misses events
)

func newJournal() *journal { return &journal{listeners: map[chan api.Event]struct{}{}} }

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
		select {
		case l <- e:
		default:
		}
	}
}

// listen returns the events so far and a channel of those to come, until stop.
func (j *journal) listen() (past []api.Event, next <-chan api.Event, stop func()) {
	c := make(chan api.Event, eventsBehind)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.listeners[c] = struct{}{}
	past = append([]api.Event(nil), j.last...)
	return past, c, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.listeners, c)
	}
}
