package mpishim

import (
	"io"
	"os"
	"sync"
)

// outletMost is how much waits for one of our streams before those who write to it wait
// too, in bytes.
const outletMost = 1 << 20

// outlet writes on a goroutine of its own: a stream that nobody reads, as of a less that
// stands still, holds up who writes to it, and nobody else.
type outlet struct {
	mu    sync.Mutex // guards what follows
	moved *sync.Cond
	queue []piece
	bytes int // in queue, and being written
	wrote int // pieces
	seen  int // wrote, when still was last asked; -1: never
	shut  bool
	lost  bool  // what comes is dropped
	err   error // the first, which is why
	done  chan struct{}
}

type piece struct {
	to    io.Writer
	bytes []byte
}

func newOutlet() *outlet {
	o := &outlet{seen: -1, done: make(chan struct{})}
	o.moved = sync.NewCond(&o.mu)
	go o.run() // ends at close, or giveUp when what it writes has been taken
	return o
}

func (o *outlet) run() {
	defer close(o.done)
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.queue) == 0 && !o.shut && !o.lost {
			o.moved.Wait()
		}
		if len(o.queue) == 0 || o.lost {
			return
		}
		p := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		_, err := p.to.Write(p.bytes)
		o.mu.Lock()
		o.wrote++
		if o.bytes -= len(p.bytes); err != nil {
			o.err = err
			o.drop()
		}
		o.moved.Broadcast()
	}
}

// put adds text, which is the caller's afterwards, and does not wait.
func (o *outlet) put(to io.Writer, text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost {
		return
	}
	o.bytes += len(text)
	if n := len(o.queue) - 1; n >= 0 && o.queue[n].to == to && len(o.queue[n].bytes) < 64<<10 {
		o.queue[n].bytes = append(o.queue[n].bytes, text...)
	} else {
		o.queue = append(o.queue, piece{to, append([]byte(nil), text...)})
	}
	o.moved.Broadcast()
}

// await waits for room.
func (o *outlet) await() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.bytes >= outletMost && !o.lost {
		o.moved.Wait()
	}
}

// giveUp drops what waits and what comes.
func (o *outlet) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop()
}

// giveUpStill is giveUp where something waits, and none of it was written since the last
// call.
func (o *outlet) giveUpStill() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes > 0 && o.wrote == o.seen {
		o.drop()
	}
	o.seen = o.wrote
}

func (o *outlet) drop() {
	o.lost, o.queue = true, nil
	o.moved.Broadcast()
}

// close waits until all is written, or given up, and returns the first error.
func (o *outlet) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
	o.moved.Broadcast()
	for o.bytes > 0 && !o.lost {
		o.moved.Wait()
	}
	return o.err
}

// sameFile reports whether two streams are one file, so that the order of what is written
// to both matters.
func sameFile(a, b io.Writer) bool {
	f, ok1 := a.(*os.File)
	g, ok2 := b.(*os.File)
	if !ok1 || !ok2 {
		return false
	}
	i, err1 := f.Stat()
	k, err2 := g.Stat()
	return err1 == nil && err2 == nil && os.SameFile(i, k)
}
