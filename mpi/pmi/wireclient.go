package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// wire is the connection of a rank to its server. Answers come in the order of
// commands among those of one kind, while a barrier's, a spawn's or a notice may
// come in between; so a goroutine reads, and answers are told by their names, or
// numbers.
type wire struct {
	conn  net.Conn
	order sync.Mutex // held from asking for an answer to having written; never by the reader

	mu      sync.Mutex // guards what follows
	waiting map[string][]chan message
	told    func(Notice) // may be nil
	err     error        // why no answer will come any more
	over    chan struct{}
}

// newWire takes conn over. r may hold bytes of it already.
func newWire(conn net.Conn, r *bufio.Reader) *wire {
	w := &wire{conn: conn, waiting: map[string][]chan message{}, over: make(chan struct{})}
	go func() { w.end(w.reads(r)) }() // ends with conn
	return w
}

// reads hands out answers until the connection ends.
func (w *wire) reads(r *bufio.Reader) error {
	for {
		m, err := readMessage(r)
		if err != nil {
			return err
		}
		if m.cmd == "mesh_notice" {
			w.notice(m)
			continue
		}
		name := m.cmd
		if id, ok := m.lookup("mesh_id"); ok {
			name = numbered(name, id)
		}
		w.mu.Lock()
		queue := w.waiting[name]
		if len(queue) == 0 {
			w.mu.Unlock()
			continue // asked for by nobody: a newer server's
		}
		if w.waiting[name] = queue[1:]; len(queue) == 1 {
			delete(w.waiting, name)
		}
		w.mu.Unlock()
		queue[0] <- m // has room for it
		if m.cmd == "finalize_ack" {
			return errFinal
		}
	}
}

// numbered is the name of the answer to one of several commands that are under way at
// a time and end in any order.
func numbered(answer, id string) string { return answer + " " + id }

func (w *wire) notice(m message) {
	n, ok := parseNotice(m)
	w.mu.Lock()
	f := w.told
	w.mu.Unlock()
	if ok && f != nil {
		f(n)
	}
}

func (w *wire) notify(f func(Notice)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = f
}

// end lets go of everybody who waits.
func (w *wire) end(err error) {
	w.mu.Lock()
	first := w.err == nil
	if first {
		w.err = fmt.Errorf("pmi: %w: %w", ErrLost, err)
		if errors.Is(err, errFinal) {
			w.err, w.told = fmt.Errorf("pmi: %w", ErrClosed), nil
		}
		close(w.over)
	}
	f := w.told
	w.mu.Unlock()
	if first && f != nil {
		f(Notice{Kind: Lost, Rank: -1})
	}
}

// close ends the connection on purpose.
func (w *wire) close() {
	w.mu.Lock()
	if w.err == nil {
		w.err = fmt.Errorf("pmi: %w", ErrClosed)
		close(w.over)
	}
	w.told = nil
	w.mu.Unlock()
	w.conn.Close()
}

// say sends commands that are not answered.
func (w *wire) say(list ...message) error {
	_, err := w.send(list, "")
	return err
}

// send sends commands together and returns where their one answer will come.
func (w *wire) send(list []message, answer string) (<-chan message, error) {
	var b []byte
	for _, m := range list {
		b = m.append(b)
	}
	w.order.Lock()
	defer w.order.Unlock()
	ch := make(chan message, 1) // so that the reader never waits
	w.mu.Lock()
	err := w.err
	if err == nil && answer != "" {
		w.waiting[answer] = append(w.waiting[answer], ch)
	}
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	w.conn.SetWriteDeadline(time.Now().Add(callTime)) // a launcher that is stopped reads nothing
	if _, err := w.conn.Write(b); err != nil {
		return nil, fmt.Errorf("pmi: %w: %w", ErrLost, err)
	}
	return ch, nil
}

// await waits for an answer, which may have come just before the connection's end.
func (w *wire) await(ctx context.Context, answer <-chan message) (message, error) {
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return message{}, fmt.Errorf("pmi: the launcher does not answer: %w", context.Cause(ctx))
	case <-w.over:
	}
	select {
	case m := <-answer:
		return m, nil
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return message{}, w.err
}

// call sends commands and waits for their answer.
func (w *wire) call(ctx context.Context, answer string, list ...message) (message, error) {
	ch, err := w.send(list, answer)
	if err != nil {
		return message{}, err
	}
	return w.await(ctx, ch)
}
