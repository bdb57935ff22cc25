// Package share divides what a site may send to other sites among its nodes,
// live: a node that sends alone gets everything, a node that begins to send has
// its safe share, what it lent of it a round trip within the site later, and what is taken
// is not more than there is, but for an excess that this comment bounds.
//
// It exists because a fixed share of B/N wastes what idle nodes leave (GridMPI
// paces that way). It is a passive state machine: time, events and notices go
// in, notices and rates come out. It has no clock, no I/O and no goroutines, so
// the code that runs is the code that is simulated. It neither paces nor
// measures; who calls it does.
//
// # Lending
//
// A pool is what the site may send to one other site, B bits per second, or its
// uplink to all of them. Each of the N nodes that are up owns the safe share S (Safe) of
// each pool, B/N but for 1/256 (Unshared): it has it when it wants it, whatever others would
// like. Whatever a node sends above S it has borrowed from others that do not use theirs:
//
//	hungry node            idle node
//	  want, ask  ─────────▶            every Period while hungry, or at once on a change
//	             ◀─────────  spare, grant
//
// A hungry node tells all others what it wants. Idle ones answer how much of
// their share they spare and how much of that they lend to it. From what it has
// heard, each hungry node works out the weighted max–min shares of all who are
// hungry (each at least S), and asks every lender for its part in proportion to
// what that one spares. All work out the same from the same notices; but
// nothing rests on that, since a lender never promises more than it spares. Nodes that
// are both hungry and lend each other nothing say so every four Periods only: what one
// learns too late of the other by a lost notice is that there is more to borrow.
//
// A grant is a lease. It ends a Lease after the *request* left that it answers,
// by the borrower's own clock: a notice carries the sequence number, which is
// the time of sending, of the last notice heard from the other side. So however
// long a grant was under way, copied or held back, it ends no later than a Lease
// after the lender heard the request, and clocks need not agree. Notices out of
// order are ignored: each states everything between two nodes.
//
// A pool that is no narrower than the uplink, as where each site declares one line and
// no more, is implied by that: who sends there borrows of the uplink alone and has as
// much in the pool. It still lends of it to those whom a receiver holds to less.
//
// # Why the sum is at most B
//
// For a lender i let own be what it keeps for itself, and hold(j) the most that
// borrower j may believe it was lent: the last grant sent, or a higher one sent
// before until j has acknowledged the lower one, has itself asked for less, or
// the lease has ended. A grant is raised only while own + Σ hold(j) ≤ S. A
// borrower that asks for less uses less from that moment, and no raise beyond that counts
// until the lender has heard so. Hence what is used of i's share, by i and by
// all borrowers, is at most S whatever notices are lost, late, doubled or out of
// order, and the sum over all lenders at most N·S < B. (The simulation in
// sim_test.go checks that for each pair and for the sum, after every event at
// sites of up to eight nodes and after some at larger ones.)
//
// A lender that wakes says that it wants its share, and uses what is not lent of it until
// each borrower has acknowledged, so that nothing is in use twice, however late notices
// are, and nobody need know how late that is. A notice that is lost is repeated after 1, 2,
// 4 … ms. Who has not acknowledged after 16 ms is most likely dead, and the lender goes on as
// if it had. If it is alive, and cut off from the lender or that late, the sum exceeds B
// from then on by what it was lent, until it hears or its lease ends.
//
// Until then a node that wakes has what is its own whether it lends or not: who paces lets it
// send some h bytes at the rate of the whole site before its share counts, a bucket of h
// bytes for each, filled at what it may send. They are for messages that are over before
// anybody can lend, too. If all wake in one
// instant, N·h bytes come while the link carries h of them, and then as much comes as
// leaves; nodes that wake one after another, or while others use the whole link, add no
// more. So with h = H/(N−1) at most H bytes are added to the queue. And since packets leave
// in pairs, N nodes may be N pairs ahead besides, and by
// what their pacers were late, 150 µs of B in all. With N = 4, B = 100 Mb/s and H = 47 kB
// that comes to 62 kB; where more pairs have to fit, H is less. (h is then what S carries in
// 5 ms, at 400 Mb/s in 1.2 ms: so late may an acknowledgement be before a lender notices.)
// Nobody may keep that up: a node that goes on when its h bytes are gone sends a fifth
// less than its rate until it has paid them back, and meanwhile the queue drains.
//
// What an excess left in the queue drains because N·S is less than B, which also has room
// for what nobody paces (connectivity checks, what goes to hubs: some kB/s), and because an idle
// lender keeps back 1/32 of its share (Reserve); that also lets acknowledgements of TCP flow
// the other way without a single notice.
//
// Changes of membership and capacity reach the nodes at different times; while
// views differ the sum may exceed B by the difference of the shares, and where a node that
// goes on is taken for gone, by what it has and has borrowed, until its leases end. A notice
// says how many nodes its sender counts and the highest count heard is used, so
// a node that has just come lowers the others with its first notice.
//
// A member that does not answer (dead and not yet noticed, or too old to know
// this) costs its own share and no more: the rest is lent by those who answer.
// A partition returns all to S within a Lease. A node alone has B and says
// nothing; where nobody wants more than S nobody says anything, but for gifts.
//
// # Gifts
//
// Loans are for what lasts: a lender has to notice that it is idle, and to be heard when
// it is no longer. What is short is met by gifts (Gift). Each node may send h bytes ahead of
// its share, see above; one that has more waiting than it may send at once asks the others,
// and who has nothing waiting gives away, for good, what it has of its own h bytes:
//
//	node that waits          idle node
//	  ask(bytes)  ─────────────▶          while short
//	              ◀─────────────  gives   at once, what it has; it is asked again after AskEvery
//
//	                                      or, if it sends or lends itself,
//	              ◀─────────────  offers  when that ends
//
// Who has nothing to give does not answer, and is not asked again before it has made an offer
// (or AskSilent later, lest one that is lost costs more than that). So nodes that all send
// leave each other alone, and one that has sent all is of use to the others a millisecond
// later (AskOffered), or as soon as its share has brought a packet.
//
// There is nothing to renew or to take back, and nothing is added: what is given has been
// spent by the giver whether or not it arrives. Its h bytes grow back at its share, but not
// beyond h less what it has given and may still be used. A gift ends GiftLife after the
// *request* left, by the asker's clock, and so no later than GiftLife after the giver heard
// it. Hence the bytes that all may send ahead are N·h at any time, whatever is lost, late or
// doubled (and when a gift ends that was used in the last moment, what the giver's share
// brought meanwhile besides), and the sum above holds as it is. (TestGiftsAddNothing of
// package shaper checks it with pacers.) Whoever takes a gift in sees to it that each node
// answers a request once; one that hears a request twice gives twice, of its own.
//
// A node that lends gives nothing: what it may send ahead is all that it has until the loan
// comes back, and grows at what it has not lent. (When every one of them gave what it had, a
// packet at a site of 20 Mb/s and four nodes waited for up to 75 ms.)
//
// # The receiving side
//
// The downlink of a site may be too small for all the sites that send to it,
// each within its own limit (incast; GridMPI's case of B/2N). The nodes of the
// receiving site count what arrives from each site, tell each other, and where
// two or more sites fill the downlink, work out the max–min share of each, by
// its number of sending nodes; each node tells the share to those it hears
// from. To a sender that is an upper bound of the pool's capacity for CapLease.
// Idle nodes of the sending site need not know it. Without word there is no such
// bound: the fallback is the sending side's share, and the receiver lowers it
// within a round trip and the time to measure.
package share
