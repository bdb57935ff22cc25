// Package relay forwards sealed packets for pairs of nodes that cannot meet:
// both behind NATs that no hole goes through, or with only one way in between.
//
// A relay is a Server inside any meshd whose policy allows it, and every node
// keeps one Client for each relay it was granted. Both live on the node's one
// shared UDP socket: they open nothing, they are fed datagrams and send through
// a func. So relayed packets keep what makes direct ones fast, the batches and
// the kernel's segmentation offload, and a NAT sees one flow to the relay,
// whoever the peer is. Other overlays that moved one packet a call and
// allocated for each reached a tenth of the direct speed.
//
// # Protocol flow
//
// A node gets a Grant (its short name and a key of its own) over the control
// session that its certificate authenticated. Then, in datagrams:
//
//	client                     relay                      client of the peer
//	  | -- Bind ----------------> |                           |
//	  | <--------------- Bound -- |                           |   both bind, and again every 15 s
//	  |                           | <---------------- Bind -- |
//	  |                           | -- Bound ---------------> |
//	  | -- Send to peer --------> | -- Deliver from node ---> |   same length
//	  | <-- Deliver from peer --- | <-------- Send to node -- |
//
// All integers are big endian. Every frame opens with the header that package
// wire fixes; Short is the first eight bytes of the SHA-256 of a node's ID:
//
//	          0      1     2..3   4..11
//	header    Magic  Type  zero   Short
//
//	Bind      header 0x10, Short of the sender
//	          12..19 counter: Unix nanoseconds, greater in every bind
//	          20     flags: 2 leave; others are sent as zero, ignored
//	          21..39 reserved: sent as zero, ignored
//	          40..55 MAC
//
//	Bound     header 0x11, Short of the receiver
//	          12..19 the bind's counter
//	          20..35 address the bind came from, IPv6 or IPv4-mapped
//	          36..37 its port
//	          38..39 reserved: sent as zero, ignored
//	          40..55 MAC
//
//	Send      header 0x12, Short of the destination; a WireGuard message or a
//	          mesh probe follows
//
//	Deliver   header 0x13, Short of the origin; the same payload follows
//
// The MAC is keyed BLAKE2s-128 (RFC 7693) over the 40 bytes before it, under
// the grant's key.
//
// # What it promises
//
//   - No open relay. Only an address that a valid bind came from may send, only
//     to a node that is bound itself, and so wants what is sent to it. A binding
//     ends 60 s after its last bind, when its grant expires, with a bind that says
//     leave, and at Revoke.
//   - No amplification. An answer is as long as what it answers, a forwarded
//     packet as long as it came, and whatever is wrong is dropped in silence.
//   - No replay. A key accepts each counter once, in rising order. A newer bind
//     from elsewhere moves the binding at once: that is how it follows a NAT
//     that chose another port. As with WireGuard's own roaming, somebody on the
//     wire who can both hold a bind back and send it from another address draws
//     the packets there until the next bind, and reads ciphertext.
//
// # What it does not do
//
// It reads, queues, reorders, paces and retries nothing: payloads are sealed end
// to end by WireGuard or the mesh's probes, which also tell whether a path works
// and how fast it is. It does not authenticate single packets, choose relays,
// or run over streams.
package relay

import (
	"log/slog"
	"net/netip"
	"time"
)

// Times of the protocol.
const (
	// BindingLife is how long a binding outlives its last bind.
	BindingLife = 60 * time.Second
	// KeepAlive is the time between binds that are answered, ±10 %. Half of the
	// shortest common NAT timeout.
	KeepAlive = 15 * time.Second
	// Grace is how long the previous key is good after a new admission.
	Grace = BindingLife
)

// batchSize is the most datagrams handed to one Send, the shared socket's limit.
const batchSize = 128

// unmap makes the two ways of writing an IPv4 address one, as a map key must.
func unmap(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// logger returns l, or one that says nothing.
func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
