package engine

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// netWire is a link over a net.Conn that cannot be polled: a pair of goroutines
// reads and writes it, with buffers between them and the engine.
type netWire struct {
	e      *Engine
	nc     net.Conn
	asleep *atomic.Uint32 // the engine's
	news   atomic.Bool    // in or err has changed
	within bool           // a frame has begun; see Engine.incoming
	cur    []byte         // what the engine works on
	runs   bool           // its goroutines have been started

	mu      sync.Mutex // guards the rest
	changed *sync.Cond
	in, out []byte
	full    bool  // the engine waits for room in out
	closed  bool  // by us
	err     error // of the connection
}

const (
	netBuffer = 256 << 10 // in each direction
	netLinger = 2 * time.Second
)

func newNetWire(e *Engine, nc net.Conn) *netWire {
	w := &netWire{e: e, nc: nc, asleep: e.asleep}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// plug starts the goroutines, which end after close.
func (w *netWire) plug(c *conn) error {
	w.runs = true
	w.e.fast = append(w.e.fast, c)
	w.e.tasks.Add(2)
	go w.read()
	go w.send()
	return nil
}

func (w *netWire) write(hdr, payload []byte, off int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	room := netBuffer - len(w.out)
	n := 0
	for _, part := range [2][]byte{hdr, payload} {
		if off >= len(part) {
			off -= len(part)
			continue
		}
		part = part[off:]
		off = 0
		k := min(room, len(part))
		w.out = append(w.out, part[:k]...)
		room -= k
		n += k
	}
	w.full = room == 0
	w.changed.Broadcast()
	return n, nil
}

func (w *netWire) poll(c *conn) (bool, error) {
	if !w.news.Load() {
		return false, nil
	}
	w.mu.Lock()
	w.news.Store(false)
	had := len(w.in)
	w.cur = append(w.cur, w.in...)
	w.in = w.in[:0]
	err := w.err
	w.changed.Broadcast()
	w.mu.Unlock()
	if had > 0 {
		took, within, bad := w.e.incoming(c, w.cur, w.within)
		if bad != nil {
			return true, bad
		}
		w.within = within
		w.cur = w.cur[:copy(w.cur, w.cur[took:])]
	}
	return had > 0, err
}

// close has what was written sent, if that goes fast, and the connection closed.
func (w *netWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	if w.err != nil {
		w.out = nil
	}
	if !w.runs { // it was not to be a link, and what says so has to be sent
		w.runs = true
		w.e.tasks.Add(1)
		go w.send()
	}
	_ = w.nc.SetDeadline(time.Now().Add(netLinger))
	w.changed.Broadcast()
}

// tell has the engine look.
func (w *netWire) tell() {
	w.news.Store(true)
	if w.asleep.Load() != 0 {
		w.e.bell.ring()
	}
}

// read is the goroutine that reads; it ends with the connection.
func (w *netWire) read() {
	defer w.e.tasks.Done()
	buf := make([]byte, 64<<10)
	for {
		n, err := w.nc.Read(buf)
		w.mu.Lock()
		for len(w.in) >= netBuffer && !w.closed && w.err == nil {
			w.changed.Wait()
		}
		if !w.closed { // otherwise read on, lest the other side wait for us
			w.in = append(w.in, buf[:n]...)
		}
		if err != nil {
			w.fails(err)
			w.mu.Unlock()
			w.tell()
			return
		}
		w.mu.Unlock()
		w.tell()
	}
}

// fails notes the end of the connection.
func (w *netWire) fails(err error) {
	if w.err == nil {
		w.err = oneline.Join(errPeerClosed, err)
		w.changed.Broadcast()
	}
}

// send is the goroutine that writes; it ends after close, or with the connection.
func (w *netWire) send() {
	defer w.e.tasks.Done()
	defer w.nc.Close()
	var buf []byte
	for {
		w.mu.Lock()
		for len(w.out) == 0 && !w.closed && w.err == nil {
			w.changed.Wait()
		}
		if len(w.out) == 0 || w.err != nil && !w.closed {
			w.mu.Unlock()
			return
		}
		buf, w.out = w.out, buf[:0]
		full := w.full
		w.full = false
		w.mu.Unlock()
		if full {
			w.tell()
		}
		if _, err := w.nc.Write(buf); err != nil {
			w.mu.Lock()
			w.fails(err)
			w.out = nil
			w.mu.Unlock()
			w.tell()
			return
		}
	}
}
