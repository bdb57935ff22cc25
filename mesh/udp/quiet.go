package udp

import (
	"net"
	"sync"
)

// Quiet is an ordinary socket whose reads and writes are, like those of a Pair, calls
// that Go's scheduler is not told of: for who looks often and mostly in vain. (It wakes
// the monitor thread for a call after a pause, and that then looks every 20 µs.) Only
// one goroutine may read.
type Quiet struct {
	*net.UDPConn
	kernel *kernel
	in     *call

	mu  sync.Mutex // guards out
	out *call
}

// NewQuiet takes over a socket of IPv4's.
func NewQuiet(conn *net.UDPConn) (*Quiet, error) {
	k, err := newKernel(conn, false)
	if err != nil {
		return nil, err
	}
	return &Quiet{UDPConn: conn, kernel: k, in: newCall(1), out: newCall(1)}, nil
}

// ReadFrom implements net.PacketConn.
func (q *Quiet) ReadFrom(b []byte) (int, net.Addr, error) {
	msgs := [1]message{{data: b}}
	if _, err := q.kernel.receive(q.in, msgs[:]); err != nil {
		return 0, nil, err
	}
	return len(msgs[0].data), net.UDPAddrFromAddrPort(msgs[0].from), nil
}

// WriteTo implements net.PacketConn. A datagram that finds the kernel's buffer full is
// an error.
func (q *Quiet) WriteTo(b []byte, to net.Addr) (int, error) {
	at, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, net.InvalidAddrError("not of UDP: " + to.String())
	}
	msgs := [1]message{{data: b}}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, err := q.kernel.send(q.out, msgs[:], at.AddrPort()); err != nil {
		return 0, err
	}
	return len(b), nil
}
