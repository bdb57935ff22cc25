// Package tun is the inside edge of a node: the kernel TUN that programs send
// through, its addresses and routes, the firewall table that keeps virtual
// addresses from being spoofed or leaked, and the way to take all of that out
// again exactly.
//
// Why it exists: a daemon that changes a host's network must be able to die at
// any instant. So the TUN is persistent (a successor adopts it and TCP
// connections through it live on), everything it adds carries a mark that is
// random per installation, and a journal is on disk before the first change.
// Restore undoes by the journal, touches what bears the mark, and nothing else.
//
// What Open leaves on the host, in this order:
//
//	table inet meshmpi_<tun>          drops virtual addresses on every interface but the TUN and lo
//	unreachable CIDR metric 2^30      nothing leaks to the default route while the TUN is gone
//	link <tun>, alias meshmpi:<mark>  TUN with offloads, no link-local address, 10 Gb/s by ethtool
//	addresses                         with the CIDR's length, without the kernel's prefix route
//	CIDR dev <tun> proto 77           features ecn, src our own
//
// Later come and go routes to single peers, where a path carries less than the
// TUN's MTU (SetPeerMTU) or TCP may begin with more than the kernel's ten
// segments (SetPeerWindow). They hang on the TUN and go with it.
//
// Where a site has chosen so, a peer's route leads past the TUN over the LAN that
// both are on (OpenNative, UseNative): the kernel's own speed, and no encryption.
// That takes a gap in the firewall for exactly this neighbour, a rule and a table
// for probes, and rp_filter=2 on the LAN's interface where it was 1, which is the
// one sysctl that outlives the TUN; the journal has what it was.
//
// Names, resolvers and the choice of paths are not its business; neither is what
// flows through the TUN.
package tun
