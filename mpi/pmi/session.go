package pmi

import (
	"bufio"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds of what waits to be written to a rank: past the first no further
// command is taken from it, past the second it reads nothing and is cut off.
const (
	softQueue = 128 << 10
	hardQueue = 8 << 20
)

// session is one connection. The goroutine of ServeConn reads and answers;
// another writes, since barriers and notices come from elsewhere.
type session struct {
	srv     *Server
	conn    net.Conn
	rank    int    // -1: not yet known
	came    uint64 // its number among all
	greets  bool   // the rank must introduce itself
	strange bool   // and has not yet; guarded by the server's mu
	spawn   spawning

	spawns sync.WaitGroup // requests for jobs that are under way

	room chan struct{} // size 1: the writer has made room
	more chan struct{} // size 1: there is something to write

	mu       sync.Mutex // guards what follows; taken after the server's
	out      []byte
	deaf     bool           // cut off
	ended    bool           // nothing will come after what is in out
	withdraw map[int]func() // of each request for a job, by its number
}

// lastTime is how long a rank may take to read its last answers.
const lastTime = 2 * time.Second

// errFinal ends a connection as it should, on either side.
var errFinal = errors.New("finalized")

// serve answers until the connection ends.
func (ss *session) serve(ctx context.Context) error {
	s := ss.srv
	stop := context.AfterFunc(ctx, func() { ss.conn.SetReadDeadline(time.Unix(1, 0)) }) // answers under way are still written
	defer stop()
	written := make(chan struct{})
	go func() { defer close(written); ss.write() }() // ends with ended or conn
	during, over := context.WithCancel(ctx)
	err := ss.read(during)
	over()
	s.mu.Lock()
	delete(s.sessions, ss)
	delete(s.listen, ss)
	s.mu.Unlock()
	if errors.Is(err, errFinal) {
		err = nil
	} else if ss.rank >= 0 && ctx.Err() == nil { // the server's own end is no rank's
		s.leave(ss.rank, ss, dead, 0)
	}
	ss.spawns.Wait() // others know of a death before what it has asked for is given up
	ss.mu.Lock()
	ss.ended = true
	ss.mu.Unlock()
	poke(ss.more)
	ss.conn.SetWriteDeadline(time.Now().Add(lastTime))
	<-written
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

func (ss *session) read(ctx context.Context) error {
	r := bufio.NewReader(ss.conn)
	if ss.greets {
		ss.conn.SetReadDeadline(time.Now().Add(helloTime))
		if ctx.Err() != nil { // whose own deadline that may have undone
			return ctx.Err()
		}
		if err := ss.greet(r); err != nil {
			return err
		}
		ss.conn.SetReadDeadline(time.Time{})
		if ctx.Err() != nil { // whose own deadline that may have undone
			return ctx.Err()
		}
	} else if err := ss.srv.enter(ss); err != nil {
		return err
	}
	for {
		m, err := readMessage(r)
		if err != nil {
			return err
		}
		if err := ss.answer(ctx, m); err != nil {
			return err
		}
		if err := ss.waitRoom(ctx); err != nil {
			return err
		}
	}
}

// greet learns the rank at the other end and lets it in.
func (ss *session) greet(r *bufio.Reader) error {
	m, err := readMessage(r)
	if err != nil {
		return err
	}
	rank, err := m.number("pmiid", 0, ss.srv.cfg.Size-1)
	switch {
	case m.cmd != "initack":
		err = fmt.Errorf("%s where initack is due: %w", m.cmd, errLine)
	case err == nil && subtle.ConstantTimeCompare([]byte(m.get("mesh_key")), []byte(ss.srv.cfg.Key)) != 1 && ss.srv.cfg.Key != "":
		err = errors.New("wrong_key")
	case err == nil:
		ss.rank = rank
		if err = ss.srv.enter(ss); err != nil {
			ss.rank = -1
		}
	}
	if err != nil {
		ss.say(newMessage("initack", "rc", "-1", "msg", word(err.Error())))
		return fmt.Errorf("pmi: a connection from %s: %w", ss.conn.RemoteAddr(), err)
	}
	ss.say(newMessage("initack", "rc", "0"))
	ss.say(newMessage("set", "size", itoa(ss.srv.cfg.Size)))
	ss.say(newMessage("set", "rank", itoa(rank)))
	ss.say(newMessage("set", "debug", "0"))
	return nil
}

// say queues an answer.
func (ss *session) say(m message) { ss.push(m.append(nil)) }

// push queues bytes; it never waits.
func (ss *session) push(b []byte) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	switch {
	case ss.deaf || ss.ended:
		return
	case len(ss.out)+len(b) > hardQueue:
		ss.deaf = true
		ss.conn.Close()
		return
	}
	ss.out = append(ss.out, b...)
	poke(ss.more)
}

// write sends what is queued until the session ends.
func (ss *session) write() {
	for {
		ss.mu.Lock()
		b, ended := ss.out, ss.ended
		ss.out = nil
		ss.mu.Unlock()
		if len(b) > 0 {
			if _, err := ss.conn.Write(b); err != nil {
				ss.mu.Lock()
				ss.deaf = true
				ss.mu.Unlock()
				ss.conn.Close()
				poke(ss.room)
				return
			}
			poke(ss.room)
			continue
		}
		if ended {
			return
		}
		<-ss.more
	}
}

// waitRoom waits while too much waits to be written.
func (ss *session) waitRoom(ctx context.Context) error {
	for {
		ss.mu.Lock()
		n, deaf := len(ss.out), ss.deaf
		ss.mu.Unlock()
		switch {
		case deaf:
			return io.ErrClosedPipe
		case n <= softQueue:
			return nil
		}
		select {
		case <-ss.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poke leaves a sign, unless there is one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
