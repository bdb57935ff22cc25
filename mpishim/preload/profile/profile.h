/*
 * libmeshmpi-profile: records who sends how much to whom, for meshrun --profile.
 *
 * Put before a program with LD_PRELOAD, and only when a profile was asked for, the
 * library adds up in a file of fixed size that is mapped into memory how many bytes
 * this rank gives MPI for each other rank of MPI_COMM_WORLD, in all and over time.
 * The file is whole at any moment, so that what a rank has sent is known however
 * it ends. The library sends nothing, waits for nothing, changes no result, argument
 * or error, and a program whose file cannot be made runs the same.
 *
 * What is counted is the program's demand, not what an MPI makes of it: a broadcast
 * gives every other rank the root's bytes, by whatever tree they travel. A reduction
 * to all counts as the least that it can take, a reduce-scatter and an allgather.
 * One-sided operations, and the ranks of jobs that were spawned, are not recorded.
 *
 * table.c      the file: mpishim/profile/record describes its layout
 * ranks.c      communicators: their ranks in MPI_COMM_WORLD, their neighbours
 * spread.c     which ranks an operation sends to, and how much
 * requests.c   persistent operations, counted whenever they are started
 * calls.c      the functions that C calls;  fortran.c  those that Fortran calls
 * ../pattern/find.c  the MPI: its functions, its handles
 *
 * Environment: MESH_PROFILE, the folder where the file rank-N is made.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include "../pattern/pattern.h"

/* What is counted apart; mpishim/profile/record has the same numbers. */
enum record {
	SEND = 1, ISEND, SENDRECV, START, BARRIER, BCAST, GATHER, SCATTER, ALLGATHER, TOALL, TOALLV, TOALLW,
	REDUCE, ALLREDUCE, REDUCE_SCATTER, SCAN, NEIGHBOR_ALLGATHER, NEIGHBOR_ALLTOALL, OTHER
};

/* table.c */
void profile_init(void);       /* after MPI_Init, or at the first use */
void profile_fini(void);       /* before MPI_Finalize */
int profile_ready(void);
uint64_t table_now(void);      /* ns since MPI_Init, as coarse as the kernel's tick */
int table_begin(int op, uint64_t now); /* 0: nothing is recorded; else nobody else records until table_end */
void table_add(int rank, uint64_t bytes, int message); /* rank of the world; negative: of no rank there */
void table_missed(void);       /* an operation that cannot be told apart */
void table_end(void);

/* ranks.c */
struct peers {
	int n, me, inter;      /* ranks to send to: the remote group's where inter */
	int refs;              /* communicators that have it */
	int outs;              /* neighbours in the topology; -1: not looked at */
	int *out;
	int world[];           /* by rank; negative: not in MPI_COMM_WORLD. None where n is the world's own */
};
int ranks_open(int *size, int *rank); /* 0 if that cannot be */
struct peers *peers_of(word comm);    /* NULL: not known */
int world_rank(const struct peers *p, int rank);
int neighbours(word comm, struct peers *p);

/* spread.c */
enum shape { NOBODY, PEER, TO_ROOT, FROM_ROOT, DEAL, TO_EACH, TO_EACH_V, SHARE, NEXT_RANK, TO_NEAR, TO_NEAR_V };
struct call {
	int op, shape;
	word comm;
	int root;              /* or the peer */
	int64_t count;
	word type;
	word counts, types;    /* arrays; types 0: type is that of all */
	int large;             /* counts are words, not ints */
	int fortran;           /* types are Fortran's */
};
struct part { int rank; uint64_t bytes; };
int spread(const struct call *c, void (*give)(void *, int, uint64_t), void *to); /* 0: cannot be told */
void note(const struct call *c, uint64_t now);
int in_place(word buf, int fortran);
word type_f(word type);
extern __thread int inside;    /* functions of ours on this thread: only the outermost counts */

struct entered { int counts, within; uint32_t seen; uint64_t now; };
void enter(struct entered *e);
void enter_f(struct entered *e);       /* from Fortran, whose functions may call those of C */
int counts_f(const struct entered *e); /* whether they have not */
void leave(struct entered *e);
/* Leaves also where an error handler throws. */
#define ENTERED(e, how) struct entered e __attribute__((cleanup(leave))); how(&e)

/* requests.c */
void request_keep(const struct call *c, word request);
void request_begin(word requests, int n, int fortran, uint64_t now);
void request_drop(word request);

/* The forms of a call, by where its arguments are: N makes a count of an argument, R
 * a rank, T a type. C and Fortran differ in these alone. */
#define PEERS(o, count_, type_, to_) .op = o, .shape = PEER, .count = N(count_), .type = T(type_), .root = R(to_)
#define ROOTED(o, s, count_, type_, root_) .op = o, .shape = s, .count = N(count_), .type = T(type_), .root = R(root_)
#define EACH(o, s, count_, type_) .op = o, .shape = s, .count = N(count_), .type = T(type_)
#define LISTED(o, s, counts_, type_) .op = o, .shape = s, .counts = counts_, .type = T(type_), .large = L
#define TYPED(o, s, counts_, types_) .op = o, .shape = s, .counts = counts_, .types = types_, .large = L, .fortran = F
/* In place the arguments of the receiving side say what is sent. */
#define EITHER(o, buf, sc, st, rc, rt) \
	.op = o, .shape = TO_EACH, .count = I(buf) ? N(rc) : N(sc), .type = I(buf) ? T(rt) : T(st)
#define EITHER_V(o, buf, sc, st, rc, rt) \
	.op = o, .shape = TO_EACH_V, .counts = I(buf) ? rc : sc, .type = I(buf) ? T(rt) : T(st), .large = L
#define EITHER_W(o, buf, sc, st, rc, rt) \
	.op = o, .shape = TO_EACH_V, .counts = I(buf) ? rc : sc, .types = I(buf) ? rt : st, .large = L, .fortran = F

/* OPERATIONS is a row for each: its name, how many arguments the blocking form has,
 * which of them is the communicator, and what it sends. The nonblocking form has a
 * request more, the persistent one an info and a request. */
#define OPERATIONS(X) \
	X(barrier, Barrier, 1, a1, .op = BARRIER, .shape = NOBODY) \
	X(bcast, Bcast, 5, a5, ROOTED(BCAST, FROM_ROOT, a2, a3, a4)) \
	X(gather, Gather, 8, a8, ROOTED(GATHER, TO_ROOT, a2, a3, a7)) \
	X(gatherv, Gatherv, 9, a9, ROOTED(GATHER, TO_ROOT, a2, a3, a8)) \
	X(scatter, Scatter, 8, a8, ROOTED(SCATTER, DEAL, a2, a3, a7)) \
	X(scatterv, Scatterv, 9, a9, .op = SCATTER, .shape = DEAL, .counts = a2, .type = T(a4), .root = R(a8), .large = L) \
	X(allgather, Allgather, 7, a7, EITHER(ALLGATHER, a1, a2, a3, a5, a6)) \
	X(allgatherv, Allgatherv, 8, a8, .op = ALLGATHER, .shape = TO_EACH, .count = I(a1) ? own(a5, a8, F, L) : N(a2), .type = I(a1) ? T(a7) : T(a3)) \
	X(alltoall, Alltoall, 7, a7, EITHER(TOALL, a1, a2, a3, a5, a6)) \
	X(alltoallv, Alltoallv, 9, a9, EITHER_V(TOALLV, a1, a2, a4, a6, a8)) \
	X(alltoallw, Alltoallw, 9, a9, EITHER_W(TOALLW, a1, a2, a4, a6, a8)) \
	X(reduce, Reduce, 7, a7, ROOTED(REDUCE, TO_ROOT, a3, a4, a6)) \
	X(allreduce, Allreduce, 6, a6, EACH(ALLREDUCE, SHARE, a3, a4)) \
	X(reduce_scatter, Reduce_scatter, 6, a6, LISTED(REDUCE_SCATTER, TO_EACH_V, a3, a4)) \
	X(reduce_scatter_block, Reduce_scatter_block, 6, a6, EACH(REDUCE_SCATTER, TO_EACH, a3, a4)) \
	X(scan, Scan, 6, a6, EACH(SCAN, NEXT_RANK, a3, a4)) \
	X(exscan, Exscan, 6, a6, EACH(SCAN, NEXT_RANK, a3, a4)) \
	X(neighbor_allgather, Neighbor_allgather, 7, a7, EACH(NEIGHBOR_ALLGATHER, TO_NEAR, a2, a3)) \
	X(neighbor_allgatherv, Neighbor_allgatherv, 8, a8, EACH(NEIGHBOR_ALLGATHER, TO_NEAR, a2, a3)) \
	X(neighbor_alltoall, Neighbor_alltoall, 7, a7, EACH(NEIGHBOR_ALLTOALL, TO_NEAR, a2, a3)) \
	X(neighbor_alltoallv, Neighbor_alltoallv, 9, a9, LISTED(NEIGHBOR_ALLTOALL, TO_NEAR_V, a2, a4)) \
	X(neighbor_alltoallw, Neighbor_alltoallw, 9, a9, TYPED(NEIGHBOR_ALLTOALL, TO_NEAR_V, a2, a4))

int64_t own_count(word counts, word comm, int large); /* the caller's of an array by rank */

/* Numbers that follow in the macros above. */
#define MORE1_1 2
#define MORE1_5 6
#define MORE1_6 7
#define MORE1_7 8
#define MORE1_8 9
#define MORE1_9 10
#define MORE2_1 3
#define MORE2_5 7
#define MORE2_6 8
#define MORE2_7 9
#define MORE2_8 10
#define MORE2_9 11
#define MORE3_1 4
#define MORE3_5 8
#define MORE3_6 9
#define MORE3_7 10
#define MORE3_8 11
#define MORE3_9 12
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#endif
