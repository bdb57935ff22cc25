package peer

import "time"

// Pacer spaces what a node sends to other sites. Packets pass it twice: before
// they are sealed, where they may have to wait in a queue, and after.
type Pacer interface {
	// Flow returns what paces the packets for a node, nil if nothing does. send
	// is the way to the node; see Path.Send for what it may do.
	Flow(n Node, send func(pkts [][]byte)) Flow
	// Take moves packets whose time to be sealed has come into bufs, each from
	// offset on, sets their sizes, and returns how many there are. It and Admit
	// are called by one goroutine.
	Take(bufs [][]byte, sizes []int, offset int) int
	// OnKick sets what is called when Take has something; it must not block.
	OnKick(kick func())
}

// Flow is the packets for one node.
type Flow interface {
	// Admit is asked before packets are sealed, each in its buffer from offset on. The
	// sizes of those that must wait become zero: they have been copied, and Take hands
	// them out later, unless they are dropped and counted.
	Admit(bufs [][]byte, sizes []int, offset int)
	// Send takes sealed datagrams. It sends or copies them; it never blocks.
	Send(pkts [][]byte)
	// SetOverhead says what a datagram takes on the wire beyond its bytes.
	SetOverhead(bytes int)
	// Close drops what waits. Afterwards nothing is sent.
	Close()
}

// What a datagram takes on the wire beyond its payload, in bytes: the headers of
// Ethernet, IP and UDP. And what WireGuard adds to a packet, which it has padded to a
// multiple of 16, but not beyond the TUN's MTU: a header and a tag of 16 each.
const (
	OverheadIPv4 = 14 + 20 + 8
	OverheadIPv6 = 14 + 40 + 8
	Sealing      = 32
)

// Traffic is what has passed to and from a node, in bytes on the wire as they would
// be over IPv4 without a relay: both ends of a path count the same. Counters begin
// anew when the node is forgotten and found again.
type Traffic struct {
	ID             ID
	Sent, Received int64
	RTT            time.Duration // of the path, queues on it included; 0: not measured
}
