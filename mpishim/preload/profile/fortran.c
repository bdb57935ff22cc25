/* The functions that Fortran programs call: by reference, the error code last, which
 * mpi_f08 may leave out (then it is null). Open MPI's call PMPI_ functions, so they
 * are counted here. MPICH's call those of C, which count, but for a few without a
 * buffer in mpi_f08. */
#include "profile.h"

#define F 1
#define L 0
#define N(a) *(const int *)(a)
#define R(a) *(const int *)(a)
#define T(a) type_f(a)
#define I(a) in_place(a, 1)
#define own(counts, comm, fortran, large) own_count(counts, comm_f(comm), large)

static int went_well(word ierr) { return !ierr || *(const int *)ierr == 0; }

#define FUNCTION(name, n, ...) \
	EXPORT void name(CAT(P, n)); \
	EXPORT void name(CAT(P, n)) \
	{ \
		NEXT(void, #name, CAT(P, n)) \
		if (!next) { \
			missing_f(CAT(a, n), #name); \
			return; \
		} \
		ENTERED(e, enter_f); \
		next(CAT(A, n)); \
		if (counts_f(&e) && went_well(CAT(a, n))) { \
			__VA_ARGS__; \
		} \
	}
#define NOTED(name, n, in, ...) FUNCTION(name, n, struct call c = { __VA_ARGS__, .comm = comm_f(in) }; note(&c, e.now))
#define KEPT(name, n, in, request, ...) \
	FUNCTION(name, n, struct call c = { __VA_ARGS__, .comm = comm_f(in) }; request_keep(&c, request_f(request, 0)))

/* Every way in which compilers write a name, and Open MPI's of mpi_f08. Capitals are
 * made by no compiler that has been seen with an Open MPI of the last ten years. */
#define NAMES(macro, lower, ...) \
	macro(lower, __VA_ARGS__) macro(lower##_, __VA_ARGS__) macro(lower##__, __VA_ARGS__) macro(lower##_f08_, __VA_ARGS__)

#define MESSAGES(macro, lower, n, o) NAMES(macro, lower, n, a6, PEERS(o, a2, a3, a4))
MESSAGES(NOTED, mpi_send, 7, SEND)
MESSAGES(NOTED, mpi_ssend, 7, SEND)
MESSAGES(NOTED, mpi_bsend, 7, SEND)
MESSAGES(NOTED, mpi_rsend, 7, SEND)
MESSAGES(NOTED, mpi_isend, 8, ISEND)
MESSAGES(NOTED, mpi_issend, 8, ISEND)
MESSAGES(NOTED, mpi_ibsend, 8, ISEND)
MESSAGES(NOTED, mpi_irsend, 8, ISEND)
#define INIT(lower) NAMES(KEPT, lower, 8, a6, a7, PEERS(START, a2, a3, a4))
INIT(mpi_send_init)
INIT(mpi_ssend_init)
INIT(mpi_bsend_init)
INIT(mpi_rsend_init)
NAMES(NOTED, mpi_sendrecv, 13, a11, PEERS(SENDRECV, a2, a3, a4))
NAMES(NOTED, mpi_sendrecv_replace, 10, a8, PEERS(SENDRECV, a2, a3, a4))

#define LAST(n) CAT(a, n)
#define FORMS(lower, name, n, in, ...) \
	NAMES(NOTED, mpi_##lower, MORE1_##n, in, __VA_ARGS__) \
	NAMES(NOTED, mpi_i##lower, MORE2_##n, in, __VA_ARGS__) \
	NAMES(KEPT, mpi_##lower##_init, MORE3_##n, in, LAST(MORE2_##n), __VA_ARGS__) \
	NAMES(KEPT, mpix_##lower##_init, MORE3_##n, in, LAST(MORE2_##n), __VA_ARGS__)
OPERATIONS(FORMS)

#define STARTED(name, n, requests, many) FUNCTION(name, n, request_begin(requests, many, 1, e.now))
NAMES(STARTED, mpi_start, 2, a1, 1)
NAMES(STARTED, mpi_startall, 3, a2, *(const int *)a1)

#define FREED(name) \
	EXPORT void name(P2); \
	EXPORT void name(P2) \
	{ \
		NEXT(void, #name, P2) \
		if (profile_ready()) \
			request_drop(request_f(a1, 0)); /* before another thread may get the handle */ \
		if (next) \
			next(A2); \
		else \
			missing_f(a2, #name); \
	}
FREED(mpi_request_free)
FREED(mpi_request_free_)
FREED(mpi_request_free__)
FREED(mpi_request_free_f08_)

#define AROUND(name, n, before, after) \
	EXPORT void name(P##n); \
	EXPORT void name(P##n) \
	{ \
		NEXT(void, #name, P##n) \
		before; \
		if (next) \
			next(A##n); \
		else \
			missing_f(a##n, #name); \
		after; \
	}
NAMES(AROUND, mpi_init, 1, , profile_init())
NAMES(AROUND, mpi_init_thread, 3, , profile_init())
NAMES(AROUND, mpi_finalize, 1, profile_fini(), )
