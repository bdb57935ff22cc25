package relay

import "sync/atomic"

// cause is why a packet was dropped.
type cause uint8

const (
	causeNone cause = iota
	causeMalformed
	causeUnknown
	causeExpired
	causeForged
	causeReplayed
	causeUnbound
	causeAbsent
	causeRefused
	causeUnsent
	causes
)

// ServerStats counts what a relay did since it started.
type ServerStats struct {
	Grants   int    `json:"grants"`   // nodes that may bind now
	Bindings int    `json:"bindings"` // nodes that are bound now
	Binds    uint64 `json:"binds"`    // accepted
	Packets  uint64 `json:"packets"`  // forwarded
	Bytes    uint64 `json:"bytes"`    // forwarded, UDP payload, headers of the relay included
	Drops    Drops  `json:"drops"`
}

// Drops counts dropped packets by cause.
type Drops struct {
	Malformed uint64 `json:"malformed"` // no bind or send, or a payload that nobody sealed
	Unknown   uint64 `json:"unknown"`   // bind of a node that has no grant
	Expired   uint64 `json:"expired"`   // bind after the grant's end
	Forged    uint64 `json:"forged"`    // bind with a wrong MAC
	Replayed  uint64 `json:"replayed"`  // bind that is not newer than the last
	Unbound   uint64 `json:"unbound"`   // sent from an address that nobody is bound to
	Absent    uint64 `json:"absent"`    // sent to a node that is not bound
	Refused   uint64 `json:"refused"`   // sent to oneself
	Unsent    uint64 `json:"unsent"`    // the socket did not take it
}

// serverCounters are the live form of ServerStats.
type serverCounters struct {
	binds, packets, bytes atomic.Uint64
	drops                 [causes]atomic.Uint64
}

func (c *serverCounters) drop(why cause, packets int) { c.drops[why].Add(uint64(packets)) }

// read returns the counters; grants and bindings are the caller's to fill in.
func (c *serverCounters) read() ServerStats {
	return ServerStats{
		Binds:   c.binds.Load(),
		Packets: c.packets.Load(),
		Bytes:   c.bytes.Load(),
		Drops: Drops{
			Malformed: c.drops[causeMalformed].Load(),
			Unknown:   c.drops[causeUnknown].Load(),
			Expired:   c.drops[causeExpired].Load(),
			Forged:    c.drops[causeForged].Load(),
			Replayed:  c.drops[causeReplayed].Load(),
			Unbound:   c.drops[causeUnbound].Load(),
			Absent:    c.drops[causeAbsent].Load(),
			Refused:   c.drops[causeRefused].Load(),
			Unsent:    c.drops[causeUnsent].Load(),
		},
	}
}

// ClientStats counts what a client did since it was made.
type ClientStats struct {
	Packets uint64 `json:"packets"` // handed to the socket for the relay
	Bytes   uint64 `json:"bytes"`   // of these, UDP payload, headers of the relay included
	Unbound uint64 `json:"unbound"` // packets dropped since the relay was not bound or the path closed
	Unfit   uint64 `json:"unfit"`   // packets dropped since they were empty or too long to wrap
	Unsent  uint64 `json:"unsent"`  // packets the socket did not take
	Refused uint64 `json:"refused"` // answers to no bind of ours, or not the relay's
}

// clientCounters are the live form of ClientStats.
type clientCounters struct {
	packets, bytes, unbound, unfit, unsent, refused atomic.Uint64
}

func (c *clientCounters) read() ClientStats {
	return ClientStats{
		Packets: c.packets.Load(),
		Bytes:   c.bytes.Load(),
		Unbound: c.unbound.Load(),
		Unfit:   c.unfit.Load(),
		Unsent:  c.unsent.Load(),
		Refused: c.refused.Load(),
	}
}
