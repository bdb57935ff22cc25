// Package engine moves messages between processes: it matches sends with
// receives, runs the protocols that carry them, and waits. It is the part of Go
// MPI that has to be fast; what MPI adds on top of bytes (communicators,
// datatypes, collective operations) is its caller's.
//
// # One state machine, driven by whoever waits
//
// All state of an [Engine] is behind one lock. There is no goroutine through
// which messages go: the goroutine that waits for one takes the role of driver,
// polls the links, and passes the role on when it has what it waited for.
// Others that wait are parked until their own request ends. A hand-over between
// goroutines costs as much as a hundred messages through shared memory, which
// is why it is not on a message's path. A helper goroutine takes the role when
// nobody has had it for a while, so that nonblocking operations go on while the
// program computes.
//
// The driver spins, then yields, then sleeps until a doorbell rings: a channel
// if all peers are in this process, otherwise an eventfd under epoll (sleeper). Where
// processes share a processor (Crowd) it yields at once, but for a moment after
// something has come; see hope. Who waits for what comes from far away yields for
// longer; see WaitAwake.
//
// # Protocol
//
// A process finds another by its card, which the caller distributes, and makes
// a link on first use. Frames on a link have a short header (frame.go):
//
//	eager   a small message as a whole; costs credit, which the receiver gives
//	        back when a receive has taken the message
//	sync    the same in synchronous mode: answered by fin when it is matched
//	rts     a large message, or one that has no credit: the header alone; where
//	        memory can be read across, with the address
//	cts     answer to rts: a receive is there, send so many bytes
//	data    a piece of a large message
//	fin     the message with this number is matched, or was read
//	refuse  there is no such message any more
//	credit  more may be sent
//	post    an active message: runs a handler at the receiver
//	bye     nothing more will be sent; answered by bye
//	got     so much data, and so many frames, have come by this link; with several
//	        links only
//	lost    this link is broken, and so many frames had come by it; answered by
//	        lost, after which what is missing comes by another (lost.go)
//
// Where memory can be read across, the sender of a large message may as well send it:
// both copy at once then, which on some machines takes half the time, and on others more
// (ways.go). It is asked to, and if it is not there to answer, its memory is read. The
// two may decide at one time; who is first has the word in which the message is shown
// (puller).
//
// Eager messages that nobody has asked for are what a receiver must store:
// credit bounds them, in bytes and in number, for each peer. A sender without
// credit waits with the message, not the receiver.
//
// A peer may be reached by several links (Config.Links, Config.Addresses). Messages
// of one tag take one of the nearest, and each link has its own credit, so that one
// that is held up by a lost packet, or for ever, holds up no others (order.go).
// Large messages go over all, by what each is worth (share.go). Active messages take
// the nearest, since they are handled in order. The peer lives as long as one link
// does.
//
// Processes of one host, or one process, can also show each other a few bytes without a
// message, in a page of each that all the others see (Board, board.go).
//
// The processes of a site may share few connections to those of another (Group,
// group.go, package trunk).
//
// Links are rings in memory (ring.go) between goroutines of a process and, as
// shared memory, between processes of a host; TCP sockets read and written by
// system calls of our own, ahead of which small frames go to near peers as datagrams
// (ahead_linux.go); and net.Conn where the caller injects a dialer.
//
// # What it does not do
//
// It knows no communicator, datatype or collective operation, and it does not
// authenticate beyond what a card and the job's secret prove, nor encrypt: the
// overlay below does.
package engine
