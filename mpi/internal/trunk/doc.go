// Package trunk lets the processes of one site share few connections to those of
// another. Without it a job of 100 ranks on each of two sites has 10,000
// connections over the WAN, each of which starts slowly, is lost by itself, and
// takes state in every NAT between; with it the job has as many as it asks for.
//
// # Shape
//
// The first ranks of each site are its gateways, as many as there are to be
// connections between two sites. A channel joins two processes of different sites;
// it is a net.Conn, and what goes over it is the business of who holds its ends.
// Its lane, which both numbers say, picks the gateways:
//
//	process ── gateway ═══ gateway ── process
//	      (LAN)      (WAN, shared)   (LAN)
//
// A process that is a gateway itself needs no first hop. Hops are connections
// between neighbours, made when they are first needed, one for each pair, used by
// all channels and in both directions. Packets (packet.go) are sent from neighbour
// to neighbour by the numbers of their ends.
//
// # Order, flow control, memory
//
// All packets of a channel take the same hops, and each hop keeps order, so a
// channel does. The receiver of a channel grants a window; what it has not taken is
// never more than that, and so is what gateways hold for it: a gateway never waits
// with reading, and cannot lock another. The window is chosen by how many channels
// share a lane, so that a gateway's memory is bounded (Window); a hop that is given
// more than that breaks.
//
// # Failure
//
// A gateway notes the channels through it. When a neighbour goes, it ends those
// that went through it, towards their other ends, which learn of a dead process
// within the time that a TCP connection takes to say so, as they would without
// gateways. When a gateway dies the channels through it end: what was in it is lost,
// so the processes at their ends count as failed for each other. Channels of other
// lanes live on. A gateway leaves last: Drained says when it may.
//
// # What it does not do
//
// It does not encrypt, and it knows its neighbours only by the connections it is
// given: who is who is proved before (package engine). It does not mend a channel.
package trunk
