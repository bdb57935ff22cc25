package tun

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// socket is what the connections and listeners of a stack have in common. gonet's give
// errors that are words alone, end a Read with io.EOF, as if the peer had said that there
// is no more, when it is this end that has closed, and have no addresses any more once a
// peer has reset them. Callers look for what package net promises: net.ErrClosed,
// os.ErrDeadlineExceeded, and the kernel's errors.
type socket struct {
	stack         *Stack
	life          context.Context // of such sockets of the stack
	network       string
	local, remote net.Addr // remote is nil for what has none
	closed        atomic.Bool
}

// gone reports whether this end has been closed, or all of the stack.
func (s *socket) gone() bool { return s.closed.Load() || s.life.Err() != nil }

// plain returns an error of gonet's as package net would.
func (s *socket) plain(op string, err error) error {
	switch {
	case err == nil, err == io.EOF && !s.gone():
		return err
	case isTimeout(err):
		return s.failed(op, os.ErrDeadlineExceeded)
	case s.gone():
		return s.failed(op, net.ErrClosed)
	}
	return s.failed(op, errnoOf(err))
}

// failed is how package net tells of an error.
func (s *socket) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: s.network, Source: s.local, Addr: s.remote, Err: err}
}

// open is the error of setting something, which gonet does whatever has been closed.
func (s *socket) open() error {
	if s.gone() {
		return s.failed("set", net.ErrClosed)
	}
	return nil
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// errnos are the kernel's errors for those of gVisor that callers may be looking for.
// gonet passes on their texts alone.
var errnos = map[string]syscall.Errno{
	(&tcpip.ErrAborted{}).String():            syscall.ECONNABORTED,
	(&tcpip.ErrBadLocalAddress{}).String():    syscall.EADDRNOTAVAIL,
	(&tcpip.ErrClosedForSend{}).String():      syscall.EPIPE,
	(&tcpip.ErrConnectionAborted{}).String():  syscall.ECONNABORTED,
	(&tcpip.ErrConnectionRefused{}).String():  syscall.ECONNREFUSED,
	(&tcpip.ErrConnectionReset{}).String():    syscall.ECONNRESET,
	(&tcpip.ErrHostUnreachable{}).String():    syscall.EHOSTUNREACH,
	(&tcpip.ErrMessageTooLong{}).String():     syscall.EMSGSIZE,
	(&tcpip.ErrNetworkUnreachable{}).String(): syscall.ENETUNREACH,
	(&tcpip.ErrNoBufferSpace{}).String():      syscall.ENOBUFS,
	(&tcpip.ErrNoPortAvailable{}).String():    syscall.EADDRINUSE,
	(&tcpip.ErrNotConnected{}).String():       syscall.ENOTCONN,
	(&tcpip.ErrPortInUse{}).String():          syscall.EADDRINUSE,
	(&tcpip.ErrTimeout{}).String():            syscall.ETIMEDOUT,
}

// errnoOf returns the kernel's error for one of gonet's, or what is in that.
func errnoOf(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if errno, ok := errnos[err.Error()]; ok {
		return errno
	}
	return err
}

// stackConn is a TCP connection of a stack.
type stackConn struct {
	*gonet.TCPConn
	socket
}

func (s *Stack) conn(c *gonet.TCPConn) *stackConn {
	local, remote := c.LocalAddr(), c.RemoteAddr()
	if local == nil || remote == nil { // the peer has reset it meanwhile
		local, remote = &net.TCPAddr{}, &net.TCPAddr{}
	}
	return &stackConn{c, socket{stack: s, life: s.conns, network: "tcp", local: local, remote: remote}}
}

func (c *stackConn) LocalAddr() net.Addr  { return c.local }
func (c *stackConn) RemoteAddr() net.Addr { return c.remote }

func (c *stackConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	return n, c.plain("read", err)
}

func (c *stackConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	return n, c.plain("write", err)
}

func (c *stackConn) Close() error {
	if c.closed.Swap(true) {
		return c.failed("close", net.ErrClosed)
	}
	return c.plain("close", c.TCPConn.Close())
}

func (c *stackConn) CloseRead() error  { return c.plain("close", c.TCPConn.CloseRead()) }
func (c *stackConn) CloseWrite() error { return c.plain("close", c.TCPConn.CloseWrite()) }

func (c *stackConn) SetDeadline(t time.Time) error {
	return errors.Join(c.open(), c.TCPConn.SetDeadline(t))
}

func (c *stackConn) SetReadDeadline(t time.Time) error {
	return errors.Join(c.open(), c.TCPConn.SetReadDeadline(t))
}

func (c *stackConn) SetWriteDeadline(t time.Time) error {
	return errors.Join(c.open(), c.TCPConn.SetWriteDeadline(t))
}

// stackListener accepts TCP connections to a stack.
type stackListener struct {
	*gonet.TCPListener
	socket
}

func (s *Stack) listener(l *gonet.TCPListener, at netip.AddrPort) *stackListener {
	local := l.Addr()
	if local == nil { // the stack was closed meanwhile
		local = net.TCPAddrFromAddrPort(at)
	}
	return &stackListener{l, socket{stack: s, life: s.conns, network: "tcp", local: local}}
}

func (l *stackListener) Addr() net.Addr { return l.local }

func (l *stackListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, l.plain("accept", err)
	}
	return l.stack.conn(c.(*gonet.TCPConn)), nil
}

func (l *stackListener) Close() error {
	if l.closed.Swap(true) {
		return l.failed("close", net.ErrClosed)
	}
	return l.plain("close", l.TCPListener.Close())
}

// stackPacketConn is a UDP socket of a stack.
type stackPacketConn struct {
	*gonet.UDPConn
	socket
}

func (s *Stack) packetConn(c *gonet.UDPConn, at netip.AddrPort) *stackPacketConn {
	local := c.LocalAddr()
	if local == nil {
		local = net.UDPAddrFromAddrPort(at)
	}
	return &stackPacketConn{c, socket{stack: s, life: s.ctx, network: "udp", local: local}}
}

func (c *stackPacketConn) LocalAddr() net.Addr { return c.local }

func (c *stackPacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.UDPConn.ReadFrom(b)
	return n, from, c.plain("read", err)
}

func (c *stackPacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	n, err := c.UDPConn.WriteTo(b, to)
	return n, c.plain("write", err)
}

func (c *stackPacketConn) Close() error {
	if c.closed.Swap(true) {
		return c.failed("close", net.ErrClosed)
	}
	return c.plain("close", c.UDPConn.Close())
}

func (c *stackPacketConn) SetDeadline(t time.Time) error {
	return errors.Join(c.open(), c.UDPConn.SetDeadline(t))
}

func (c *stackPacketConn) SetReadDeadline(t time.Time) error {
	return errors.Join(c.open(), c.UDPConn.SetReadDeadline(t))
}

func (c *stackPacketConn) SetWriteDeadline(t time.Time) error {
	return errors.Join(c.open(), c.UDPConn.SetWriteDeadline(t))
}
