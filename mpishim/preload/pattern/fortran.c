/* The functions that Fortran programs call: by reference, the error code last, which
 * mpi_f08 may leave out (then it is null). Open MPI's call PMPI_ functions and
 * MPICH's MPI_ ones; the depth keeps what they call from counting again. mpi_f08 of
 * MPICH calls C for all-to-all (mpi_alltoall_f08ts_), so its names are not here. */
#include "pattern.h"

#define BLOCKING(name, op, n, comm, last) \
	EXPORT void name(P##n); \
	EXPORT void name(P##n) \
	{ \
		NEXT(void, #name, P##n) \
		MARK(m); \
		mark_begin(&m, op, comm, 1); \
		if (next) \
			next(A##n); \
		else \
			missing_f(last, #name); \
	}

/* Whether a call went well its error code says, if the program has one. Where it
 * failed, the request holds nothing that we track. */
#define NONBLOCKING(name, op, n, comm, request, last) \
	EXPORT void name(P##n); \
	EXPORT void name(P##n) \
	{ \
		NEXT(void, #name, P##n) \
		MARK(m); \
		mark_begin(&m, op, comm, 1); \
		if (!next) { \
			missing_f(last, #name); \
			return; \
		} \
		next(A##n); \
		if (m.hosts && (!last || *(int *)last == 0)) \
			request_begins(&m, request_f(request, 0)); \
	}

#define PERSISTENT(name, op, n, comm, request, last) \
	EXPORT void name(P##n); \
	EXPORT void name(P##n) \
	{ \
		NEXT(void, #name, P##n) \
		uint32_t hosts = 0; \
		if (depth == 0 && pattern_ready()) \
			hosts = hosts_of(comm_f(comm)); \
		depth++; \
		if (next) \
			next(A##n); \
		else \
			missing_f(last, #name); \
		depth--; \
		if (next && hosts && (!last || *(int *)last == 0)) \
			request_kept(op, hosts, request_f(request, 0)); \
	}

/* Every way in which compilers write a name, and Open MPI's of mpi_f08. */
#define NAMES(macro, lower, upper, ...) \
	macro(lower, __VA_ARGS__) macro(lower##_, __VA_ARGS__) macro(lower##__, __VA_ARGS__) macro(upper, __VA_ARGS__) \
	macro(lower##_f08_, __VA_ARGS__)

NAMES(BLOCKING, mpi_alltoall, MPI_ALLTOALL, ALLTOALL, 8, a7, a8)
NAMES(BLOCKING, mpi_alltoallv, MPI_ALLTOALLV, ALLTOALLV, 10, a9, a10)
NAMES(BLOCKING, mpi_alltoallw, MPI_ALLTOALLW, ALLTOALLW, 10, a9, a10)
NAMES(NONBLOCKING, mpi_ialltoall, MPI_IALLTOALL, ALLTOALL, 9, a7, a8, a9)
NAMES(NONBLOCKING, mpi_ialltoallv, MPI_IALLTOALLV, ALLTOALLV, 11, a9, a10, a11)
NAMES(NONBLOCKING, mpi_ialltoallw, MPI_IALLTOALLW, ALLTOALLW, 11, a9, a10, a11)
NAMES(PERSISTENT, mpi_alltoall_init, MPI_ALLTOALL_INIT, ALLTOALL, 10, a7, a9, a10)
NAMES(PERSISTENT, mpi_alltoallv_init, MPI_ALLTOALLV_INIT, ALLTOALLV, 12, a9, a11, a12)
NAMES(PERSISTENT, mpi_alltoallw_init, MPI_ALLTOALLW_INIT, ALLTOALLW, 12, a9, a11, a12)
NAMES(PERSISTENT, mpix_alltoall_init, MPIX_ALLTOALL_INIT, ALLTOALL, 10, a7, a9, a10)
NAMES(PERSISTENT, mpix_alltoallv_init, MPIX_ALLTOALLV_INIT, ALLTOALLV, 12, a9, a11, a12)
NAMES(PERSISTENT, mpix_alltoallw_init, MPIX_ALLTOALLW_INIT, ALLTOALLW, 12, a9, a11, a12)

/* The functions around requests and MPI itself: what is done before and after. */
#define AROUND(name, n, last, before, after) \
	EXPORT void name(P##n); \
	EXPORT void name(P##n) \
	{ \
		NEXT(void, #name, P##n) \
		before; \
		if (next) \
			next(A##n); \
		else \
			missing_f(last, #name); \
		after; \
	}
#define WATCHING(name, n, last, begin, after) AROUND(name, n, last, struct watch w; begin, after)

#define INT(p) (*(int *)(p))
#define ONE watch_begin(&w, a1, 1, 1)
#define MANY watch_begin(&w, a2, INT(a1), 1)

/* one and some end requests by index, from 1. MPICH 4.0.2's mpi_f08 counts from 0,
 * and its Fortran calls C's functions, which have ended them then; what of requests
 * that are gone all MPIs agree on. */
static void one(struct watch *w, word requests, int at)
{
	watch_gone(w, requests, 1);
	if (flavour() == OPENMPI)
		watch_one(w, at - 1);
}

static void some(struct watch *w, word requests, word n, word at)
{
	int i;

	watch_gone(w, requests, 1);
	for (i = 0; flavour() == OPENMPI && i < INT(n); i++)
		watch_one(w, ((int *)at)[i] - 1);
}

NAMES(AROUND, mpi_start, MPI_START, 2, a2, request_start(a1, 1, 1), )
NAMES(AROUND, mpi_startall, MPI_STARTALL, 3, a3, request_start(a2, INT(a1), 1), )
NAMES(WATCHING, mpi_wait, MPI_WAIT, 3, a3, ONE, watch_all(&w))
NAMES(WATCHING, mpi_waitall, MPI_WAITALL, 4, a4, MANY, watch_all(&w))
NAMES(WATCHING, mpi_waitany, MPI_WAITANY, 5, a5, MANY, if (w.n) one(&w, a2, INT(a3)))
NAMES(WATCHING, mpi_waitsome, MPI_WAITSOME, 6, a6, MANY, if (w.n) some(&w, a2, a3, a4))
NAMES(WATCHING, mpi_test, MPI_TEST, 4, a4, ONE, if (w.n && INT(a2)) watch_all(&w))
NAMES(WATCHING, mpi_testall, MPI_TESTALL, 5, a5, MANY, if (w.n && INT(a3)) watch_all(&w))
NAMES(WATCHING, mpi_testany, MPI_TESTANY, 6, a6, MANY, if (w.n && INT(a4)) one(&w, a2, INT(a3)))
NAMES(WATCHING, mpi_testsome, MPI_TESTSOME, 6, a6, MANY, if (w.n) some(&w, a2, a3, a4))
NAMES(WATCHING, mpi_request_free, MPI_REQUEST_FREE, 2, a2, ONE; watch_freed(&w), )

NAMES(AROUND, mpi_init, MPI_INIT, 1, a1, , pattern_init())
NAMES(AROUND, mpi_init_thread, MPI_INIT_THREAD, 3, a3, , pattern_init())
NAMES(AROUND, mpi_finalize, MPI_FINALIZE, 1, a1, pattern_fini(), )
