package hint

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// again is how often a page without a daemon looks for one.
const again = time.Second

// Page is a program's side. Its methods may be called from several goroutines and
// never wait for the daemon.
type Page struct {
	mem  page
	path string
	fd   int // of the memory

	next atomic.Int64 // when to look after the connection, UnixNano

	mu     sync.Mutex // guards socket and closed; held for some system calls that do not wait
	socket int        // -1: none
	closed bool
}

// Dial makes a page and offers it to the daemon that listens at path. That none does
// is no error: operations look for one, once a second at most. The error says that
// there is no memory, or that path cannot be a socket's name. Close the page.
func Dial(path string) (*Page, error) {
	if !pathFits(path) {
		return nil, fmt.Errorf("hint: dial %q: no name of a socket; it is too long or empty", path)
	}
	fd, mem, err := newMemory()
	if err != nil {
		return nil, err
	}
	p := &Page{mem: mem, path: path, fd: fd, socket: -1}
	p.mem.format()
	p.keep(time.Now())
	return p, nil
}

// keep looks after the connection, unless somebody else does or did lately.
func (p *Page) keep(now time.Time) {
	due := p.next.Load()
	if now.UnixNano() < due || !p.next.CompareAndSwap(due, now.Add(again).UnixNano()) || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.socket >= 0 && ended(p.socket) {
		closeFile(p.socket)
		p.socket = -1
	}
	if p.socket < 0 && !p.closed {
		p.socket, _ = offer(p.path, p.fd) // no daemon: later
	}
}

// Enter notes that an operation begins, with so many hosts of this site in its
// communicator, and reports whether there was room; if so, Leave it. Hosts below 1
// and operations of no kind are not noted.
func (p *Page) Enter(op Op, hosts int) bool {
	if op == None || op >= maxOps || hosts < 1 {
		return false
	}
	ok := p.mem.enter(op, min(hosts, MaxHosts))
	p.keep(time.Now())
	return ok
}

// Leave notes that an operation ends that was entered with the same arguments. What
// was under way before it is what the pacer sees again.
func (p *Page) Leave(op Op, hosts int) {
	if op == None || op >= maxOps || hosts < 1 {
		return
	}
	p.mem.leave(op, min(hosts, MaxHosts))
}

// SetMATB has the node send at no more than bits per second, at once; 0 or less
// takes that back.
func (p *Page) SetMATB(bits int64) {
	p.mem.set(offMATB, max(bits, 0))
	p.keep(time.Now())
}

// SetParts says what share of a link the job's pattern gives a node, in the unit of
// Request.Parts; 0 or less takes that back.
func (p *Page) SetParts(parts int64) {
	p.mem.set(offParts, max(parts, 0))
	p.keep(time.Now())
}

// MaxRate returns the bandwidth of the site's link in bits per second, as the daemon
// last said; 0 if it did not.
func (p *Page) MaxRate() int64 {
	p.keep(time.Now())
	return boundRate(p.mem.word(offMaxRate).Load())
}

func boundRate(v uint64) int64 {
	if v > MaxMATB {
		return 0
	}
	return int64(v)
}

// Connected reports whether a daemon took the page when it was last looked for.
func (p *Page) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.socket >= 0
}

// Close takes the page from the daemon. Nothing else may be called afterwards.
func (p *Page) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	closeFile(p.socket)
	closeFile(p.fd)
	p.socket = -1
	unmapMemory(p.mem)
	return nil
}
