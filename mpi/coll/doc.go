// Package coll turns the collective operations of MPI into schedules: for one
// rank, which messages to send and receive in which round and what to combine or
// copy between the rounds.
//
// It exists so that an algorithm can be written, read and proven apart from what
// carries its messages: blocking, nonblocking and persistent operations run the
// same schedules, and tests run them in simulators, one that delivers as
// unkindly as the order of messages allows and one that counts time and bytes on
// links between sites.
//
// A schedule depends on nothing but the topology and the arguments, so every rank
// derives one that fits the others', and a caller may keep it: schedules are
// immutable. The package sends nothing, starts no goroutine, reads no clock and
// checks no arguments: a root outside the communicator, or counts of the wrong
// length, are the caller's to refuse.
//
// # Sites and hosts
//
// Where ranks are spread over sites, the algorithms chosen pay the latency
// between sites once and send no byte between two sites that is not needed there
// (Kielmann et al., MagPIe, PPoPP 1999). For large messages all ranks of a site
// take part in the step between sites, each with a shard of its own (Matsuda et
// al., GridMPI, Cluster 2006), and what goes on inside a site overlaps it,
// segment by segment. Operations that do not commute keep the order of ranks;
// where the ranks of a site are not consecutive they are combined run by run,
// and each run's result crosses to the other sites once.
//
// Within a site, ranks of a host are neighbours in every tree and ring, so that
// a byte enters and leaves a host once. Where a host has twice as many ranks as
// processors or more (Topo.Crowded) a round costs the turns of all the others on
// its processor: trees within it are one level deep, and operations among its
// ranks alone have the fewest rounds that there can be, or one turn of each rank where
// they have a board on which to show each other what they give (board.go). As part of other
// operations, up to eight ranks of a site on hosts of their own give each other blocks
// of 16 to 256 KiB in one round.
//
// # Algorithms
//
// Each operation takes the first of its algorithms below that is right and the best;
// Build forces another by name. m is the bytes of a buffer or block (see Args), N the
// ranks, n those of a site, S the sites, s a segment; α is a message's latency inside
// a site, Λ that between sites, β a byte's time on a rank's line, γ a byte's in the
// operation. What sites share costs what Minimal says besides. "levels" is taken
// only where there are several sites, or hosts with several ranks; "crowded" is one
// host with twice as many ranks as processors, or more, and "calm" all else; a count is
// of elements.
//
//	operation               algorithm           when                               cost
//	barrier                 board               crowded; N ≤ 16; a board           1 turn
//	                        star                crowded                            2 rounds
//	                        levels              sites, hosts                       2 log n α + Λ
//	                        dissemination       otherwise                          log N α
//	bcast                   star                crowded                            N (α/16 + mβ)
//	                        shared              sites; m ≥ 64 KiB, 1 KiB N         Λ + 2sβ, the rest overlaps
//	                        levels              sites; hosts and m < 32 KiB        log n (α + mβ) + Λ
//	                        chain               m ≥ 1 MiB, 128 KiB N               (N-2 + m/s) (α + sβ)
//	                        scatter_allgather   m ≥ 32 KiB; count ≥ N              (log N + N-1) α + 2mβ
//	                        binomial            otherwise                          log N (α + mβ)
//	gather, scatter         levels              m < 16 KiB; sites, hosts           log n α + nmβ + Λ
//	                        binomial            m < 16 KiB; calm                   log N α + Nmβ
//	                        linear              otherwise                          α + Nmβ, or Λ
//	gatherv, scatterv       linear              always: only the root knows counts α + sum of m β, or Λ
//	allgather               board               crowded; m ≤ 240; N ≤ 16; a board  1 turn
//	                        direct              crowded                            N (α/16 + mβ)
//	                        levels              sites; Nm ≤ 8 KiB                  2 log n α + 2Nmβ + Λ
//	                        sites               sites                              log n α + Nmβ + Λ
//	                        ring                m ≥ 16 KiB                         N (α + mβ)
//	                        recursive_doubling  N a power of two                   log N α + Nmβ
//	                        bruck               otherwise                          log N α + Nmβ
//	allgatherv              direct              crowded                            as allgather
//	                        levels              sites; in all ≤ 8 KiB              as allgather
//	                        sites               sites                              as allgather
//	                        bruck               mean m < 16 KiB                    log N α + Nmβ, copies twice
//	                        ring                otherwise                          N (α + largest mβ)
//	alltoall                board               crowded; Nm ≤ 240; N ≤ 16; a board 1 turn
//	                        agents              sites of 8 or more; m ≤ 1 KiB      2n α + 2Nmβ + Λ
//	                        leaders             sites; nNm ≤ 1 KiB                 2 log n α + 2nNmβ + Λ
//	                        bruck               one site, N ≥ 8; m ≤ 256 B; calm   log N (α + N/2 mβ)
//	                        pairwise            m ≥ 64 KiB; calm                   N (α + mβ), or Λ
//	                        linear              otherwise                          N (α/16 + mβ), or Λ
//	alltoallv, alltoallw    linear              always                             as alltoall
//	                        pairwise            by name                            as alltoall
//	reduce                  star                crowded; m < 8 KiB                 N (α/16 + mβ + mγ)
//	                        direct              crowded; count ≥ N                 N α/8 + 2mβ + mγ
//	                        shared              sites; m ≥ 64 KiB, 1 KiB N         Λ + 2mβ + mγ, overlapping
//	                        levels              sites; hosts and m < 32 KiB        log n (α + mβ + mγ) + Λ
//	                        rabenseifner        m ≥ 32 KiB; count ≥ N              (log N + N) α + 2mβ + mγ
//	                        binomial            otherwise                          log N (α + mβ + mγ)
//	allreduce               board               crowded; m ≤ 240; N ≤ 16; a board  1 turn, N mγ
//	                        star                crowded; m < 8 KiB                 2N (α/16 + mβ + mγ)
//	                        direct              crowded; count ≥ N                 N α/8 + 2mβ + mγ
//	                        shared              sites; m ≥ 64 KiB, 1 KiB N         Λ + 2mβ + mγ, overlapping
//	                        levels              sites; hosts and m < 32 KiB        2 log n (α + mβ) + Λ
//	                        ring                commutes; m ≥ 512 KiB, 16 KiB N    2N α + 2mβ + mγ
//	                        rabenseifner        m ≥ 32 KiB; count ≥ N              2 log N α + 2mβ + mγ
//	                        recursive_doubling  otherwise                          log N (α + mβ + mγ)
//	reduce_scatter(_block)  sites               sites                              Sn α + mβ + mγ + Λ
//	                        recursive_halving   commutes; in all < 512 KiB; calm   log N α + mβ + mγ
//	                        pairwise            otherwise                          N/32 α + mβ + mγ
//	scan, exscan            board               crowded; m ≤ 240; N ≤ 16; a board  1 turn, N mγ
//	                        sites               sites                              3 log n (α + mβ + mγ) + Λ
//	                        recursive_doubling  otherwise                          log N (α + mβ + mγ)
//	neighbor_*              direct              always                             α + d mβ, or Λ; d neighbours
//
// # Adding an algorithm
//
// One file and one row in the table of its collective (table.go): a name, when
// it is right, when it is the best, and the function that builds it; and a line in
// the table above.
package coll
