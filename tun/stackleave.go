package tun

import (
	"context"
	"time"

	gtcp "gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	leaveQuiet = 5 * time.Second       // without a sign of those who are still to acknowledge: five transmissions
	leaveLimit = 30 * time.Second      // however they answer
	leaveGrace = 20 * time.Millisecond // for what has left the stack and is not yet sealed and sent
	leaveLook  = time.Millisecond
)

// Leave ends TCP while the overlay still carries packets. Connections that
// the program has closed, for writing at least, deliver first what was written to
// them: a kernel does that for processes that have ended, but this stack ends with its
// process. A peer that acknowledges nothing for 5 s, or not all within 30 s, does not
// get the rest, nor does any when ctx ends. Connections that are still open are reset,
// and their peers told so. Close must follow.
func (s *Stack) Leave(ctx context.Context) {
	s.begins.Lock()
	s.endConns()
	s.begins.Unlock()
	begun := time.Now()
	for quiet, heard := begun, uint64(0); ; time.Sleep(leaveLook) {
		left, now := s.undelivered(), time.Now()
		if left.connections == 0 || ctx.Err() != nil || now.Sub(quiet) > leaveQuiet || now.Sub(begun) > leaveLimit {
			break
		}
		if left.heard != heard {
			quiet, heard = now, left.heard
		}
	}
	all := s.tcpEndpoints()
	for _, e := range all {
		e.Abort()
	}
	if len(all) == 0 {
		return
	}
	for end := time.Now().Add(leaveGrace); s.link.NumQueued() > 0 && time.Now().Before(end); {
		time.Sleep(leaveLook)
	}
	time.Sleep(leaveGrace)
}

// undelivered are connections whose last byte the program has written, and the peer
// not acknowledged.
type undelivered struct {
	connections int
	heard       uint64 // segments that have come on them
}

func (s *Stack) undelivered() (u undelivered) {
	for _, e := range s.tcpEndpoints() {
		switch e.EndpointState() {
		case gtcp.StateFinWait1, gtcp.StateClosing, gtcp.StateLastAck: // RFC 9293 §3.3.2
			u.connections++
			u.heard += e.Stats().(*gtcp.Stats).SegmentsReceived.Value()
		}
	}
	return u
}

func (s *Stack) tcpEndpoints() (list []*gtcp.Endpoint) {
	for _, e := range s.stack.RegisteredEndpoints() {
		if e, ok := e.(*gtcp.Endpoint); ok {
			list = append(list, e)
		}
	}
	return list
}
