package tun

import (
	"context"
	"net/netip"
	"slices"
	"time"

	gtcp "gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	leaveQuiet = 5 * time.Second       // without a sign of those who are still to acknowledge: five transmissions
	leaveLimit = 30 * time.Second      // however they answer
	leaveGrace = 20 * time.Millisecond // for what has left the stack and is not yet sealed and sent
	leaveLook  = time.Millisecond
)

// Leave ends TCP while the overlay still carries packets. Connections that the program
// has closed, for writing at least, deliver first what was written to them: a kernel does
// that for processes that have ended, but this stack ends with its process. A peer of
// which nothing is heard for 5 s, or that has not acknowledged all within 30 s, does not
// get the rest, nor does any when ctx ends. Connections that are still open are reset,
// and their peers told so. Close must follow.
func (s *Stack) Leave(ctx context.Context) {
	s.begins.Lock()
	s.endConns()
	s.begins.Unlock()
	limit := time.Now().Add(leaveLimit)
	for signs := map[*gtcp.Endpoint]sign{}; ctx.Err() == nil && time.Now().Before(limit) && s.delivers(signs); {
		time.Sleep(leaveLook)
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

// sign is how many segments have come on a connection, and since when no more.
type sign struct {
	segments uint64
	since    time.Time
}

// delivers reports whether a connection, whose last byte the program has written, waits
// for its peer to acknowledge that, and has had a sign of it lately. The program's
// connections to itself wait for nobody.
func (s *Stack) delivers(signs map[*gtcp.Endpoint]sign) bool {
	any, now := false, time.Now()
	for _, e := range s.tcpEndpoints() {
		switch e.EndpointState() {
		case gtcp.StateFinWait1, gtcp.StateClosing, gtcp.StateLastAck: // RFC 9293 §3.3.2
		default:
			continue
		}
		peer, err := e.GetRemoteAddress()
		if at, ok := netip.AddrFromSlice(peer.Addr.AsSlice()); err != nil || ok && slices.Contains(s.addrs, at) {
			continue
		}
		seen, known := signs[e]
		if n := e.Stats().(*gtcp.Stats).SegmentsReceived.Value(); !known || n != seen.segments {
			seen = sign{n, now}
			signs[e] = seen
		}
		any = any || now.Sub(seen.since) <= leaveQuiet
	}
	return any
}

func (s *Stack) tcpEndpoints() (list []*gtcp.Endpoint) {
	for _, e := range s.stack.RegisteredEndpoints() {
		if e, ok := e.(*gtcp.Endpoint); ok {
			list = append(list, e)
		}
	}
	return list
}
