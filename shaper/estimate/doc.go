// Package estimate finds what a site's link carries where nobody has said it, and
// follows it when it changes, from what the site's nodes send and what arrives at
// the other end.
//
// It exists because few know what their line carries, because lines change (a
// radio link, a provider's evening), and because a pacer needs the number: too
// high and the switch overflows as without pacing, too low and the line idles.
// It is passive: times, counters and messages go in, messages and rates come out.
// It has no clock, no I/O and no goroutines, so the code that runs is the code
// that is simulated (sim_test.go). It paces nothing and divides nothing among
// nodes; shaper and shaper/share do, with the rate found here as what all nodes
// together may send.
//
// # What is measured
//
// Bytes, not delays. A receiving node tells each sender now and then how many
// bytes have come from it, with its own time (a tally). From that the sender
// knows what was delivered in any span of time, however late the tally itself is:
// clocks need not agree, the least difference ever seen stands for the way back.
// Sent bytes are counted where they leave, behind the pacer, so queues of our own
// are not mistaken for the link's. What is sent and does not arrive either waits
// in the link's queue or is lost; both mean the same, that the link carries less
// than it is given. So no time stamps travel with the data, a reader that a busy
// host runs two milliseconds late spoils a sample by two milliseconds and not by
// the whole queue, and a queue that others keep full does not hide the link's rate.
//
// The nodes of the site report both counters to one of them, the leader: the
// least ID that is up and answers. It adds them up in slots of 20 ms, runs the
// Estimator, and tells all the rate. Nothing is sent while nothing is sent to
// other sites. If a leader goes, the next begins with the rate it heard last.
//
// # How it is found
//
// The rate found is C, and the pace what all nodes together may send:
//
//	start   2.5 times as much each round, while what is sent arrives
//	cruise  0.97 C
//	probe   0.9 s after the last, while at least 0.85 of the pace is used: 1.06 C for
//	        100 to 320 ms; after a success at once again with more, 1.12, 1.5, 3
//	drain   after a probe that failed 0.9 C, after an overload 0.8 C, until what
//	        arrives is no more than what is sent: the link's queue is empty
//
// Where so little adds less than six packets, a probe is as long and as high as adds them,
// and the more seldom: what probes add is 3 % of what the link carries. So a line of
// 64 kb/s is probed with five times its rate, every 43 s, and one of 250 kb/s to
// 100 Mb/s that has been taken for that, in a bad moment, is found again in 1 to 7 s, if
// chance does not spoil its probes: on a slow line that loses 1 % it spoils some.
//
// Any phase but the start becomes drain, with C what arrives, when less arrives than
// is sent: by 8 % for 100 ms, 2 % for 500 ms, or, where sending is too uneven to
// compare moments, 10 % for a second or 5 % for three, and by some packets at least.
// Less counts, 0.5 % for one second or 0.15 % for three, where what is outstanding also
// rises and falls as in a queue: so senders show that keep to a link by themselves, as
// TCP does beside a pace that is far too high.
//
// # Why it converges
//
// Let the link carry R. A drop-tail queue that is not empty delivers R exactly.
// So whenever the pace is above R for a whole window, what arrives in the window
// *is* R, whatever the queue did and whatever of it was lost: C is R after one
// start, one failed probe or one overload, to within the noise of a window (2 ms
// in 100). If C is above R, cruise (0.97 C) exceeds R from 3 % on and the overload
// is found; below, the queue that a probe has left is drained faster than R and
// the window of the drain, which delivers R while the queue lasts, lowers C. If C
// is below R a probe arrives whole, and C becomes what was sent in it. Successes
// compound, 1.06 · 1.12 · 1.5 · 3 and on by 3, so C is reached from anywhere in
// logarithmic time.
//
// Hosts read late, never early. So of what is outstanding, sent and not arrived, the
// least of some moments counts; and a probe counts as arrived only if what arrives
// cannot be late bytes of before.
//
// Loss that has nothing to do with queues takes its part of every window alike.
// It is learned where there are no signs of a queue, at most 3 %, and is added to
// what arrives. More than 3 % counts as overload.
//
// Windows with little demand say nothing of R from above, so they lower C only
// if what was sent did not arrive, by half at most at a time, and never raise it
// beyond what was sent. The same holds while nothing arrives at all, or less than
// a tenth of C: a line that is down for a moment is as fast as before when it is back.
//
// # Why it does no harm
//
// A probe adds 0.06 C for 100 ms, or for up to 320 ms as long as that is below some
// 48 kB; the drain behind it takes that out. Cruising below C leaves 3 % for what
// is not counted and for queues to empty by themselves. Where the queue in front of
// the link is smaller than what a probe adds, the rest of it is lost: 0.06 · 100 ms
// of a second or more, 0.6 %, at worst. The start overshoots by up to 2.5 for a tenth
// of a second and a round trip, once: the rate found is kept over restarts.
//
// Others on the link count as less link. Against TCP that backs off at losses the
// estimate holds what it has and takes more where a probe arrives whole, that is,
// while the other backs off; it does not yield to it.
//
// If two nodes should both lead for a while, each sees a part of what is sent: it
// finds no reason to probe, and neither raises C. What they find is too low rather
// than too high, and ends when the one that should lead answers.
//
// Destinations that send no tallies (an older version) are left out of both
// counters, and where most goes to such ones there is no rate at all: nothing
// known, nothing paced.
package estimate
