/* The functions that C programs call. Each looks, calls the one behind it with
 * just what it was given, and returns what that returned. */
#include "pattern.h"

#define BLOCKING(name, op, n, comm) \
	EXPORT int name(P##n); \
	EXPORT int name(P##n) \
	{ \
		NEXT(int, #name, P##n) \
		MARK(m); \
		mark_begin(&m, op, comm, 0); \
		return next ? next(A##n) : missing(#name); \
	}

#define NONBLOCKING(name, op, n, comm, request) \
	EXPORT int name(P##n); \
	EXPORT int name(P##n) \
	{ \
		NEXT(int, #name, P##n) \
		MARK(m); \
		int r; \
		mark_begin(&m, op, comm, 0); \
		r = next ? next(A##n) : missing(#name); \
		if (r == 0 && m.hosts) \
			request_begins(&m, handle_at(request, 0)); \
		return r; \
	}

/* A persistent one is noted when it is started. */
#define PERSISTENT(name, op, n, comm, request) \
	EXPORT int name(P##n); \
	EXPORT int name(P##n) \
	{ \
		NEXT(int, #name, P##n) \
		uint32_t hosts = 0; \
		int r; \
		if (depth == 0) \
			hosts = hosts_of(comm); \
		r = next ? next(A##n) : missing(#name); \
		if (r == 0 && hosts) \
			request_kept(op, hosts, handle_at(request, 0)); \
		return r; \
	}

#define FAMILY(suffix) \
	BLOCKING(MPI_Alltoall##suffix, ALLTOALL, 7, a7) \
	BLOCKING(MPI_Alltoallv##suffix, ALLTOALLV, 9, a9) \
	BLOCKING(MPI_Alltoallw##suffix, ALLTOALLW, 9, a9) \
	NONBLOCKING(MPI_Ialltoall##suffix, ALLTOALL, 8, a7, a8) \
	NONBLOCKING(MPI_Ialltoallv##suffix, ALLTOALLV, 10, a9, a10) \
	NONBLOCKING(MPI_Ialltoallw##suffix, ALLTOALLW, 10, a9, a10) \
	PERSISTENT(MPI_Alltoall_init##suffix, ALLTOALL, 9, a7, a9) \
	PERSISTENT(MPI_Alltoallv_init##suffix, ALLTOALLV, 11, a9, a11) \
	PERSISTENT(MPI_Alltoallw_init##suffix, ALLTOALLW, 11, a9, a11)

FAMILY()
#if __SIZEOF_POINTER__ == 8 /* a large count is a word here */
FAMILY(_c)
#endif
/* Open MPI 4's names of what MPI 4 brought */
PERSISTENT(MPIX_Alltoall_init, ALLTOALL, 9, a7, a9)
PERSISTENT(MPIX_Alltoallv_init, ALLTOALLV, 11, a9, a11)
PERSISTENT(MPIX_Alltoallw_init, ALLTOALLW, 11, a9, a11)

#define CALL(name, n) \
	EXPORT int name(P##n); \
	EXPORT int name(P##n)

CALL(MPI_Start, 1)
{
	NEXT(int, "MPI_Start", P1)
	request_start(a1, 1, 0);
	return next ? next(a1) : missing("MPI_Start");
}

CALL(MPI_Startall, 2)
{
	NEXT(int, "MPI_Startall", P2)
	request_start(a2, (int)a1, 0);
	return next ? next(a1, a2) : missing("MPI_Startall");
}

CALL(MPI_Wait, 2) /* request, status */
{
	NEXT(int, "MPI_Wait", P2)
	struct watch w;
	int r;
	watch_begin(&w, a1, 1, 0);
	r = next ? next(a1, a2) : missing("MPI_Wait");
	watch_all(&w);
	return r;
}

CALL(MPI_Waitall, 3) /* count, requests, statuses */
{
	NEXT(int, "MPI_Waitall", P3)
	struct watch w;
	int r;
	watch_begin(&w, a2, (int)a1, 0);
	r = next ? next(a1, a2, a3) : missing("MPI_Waitall");
	watch_all(&w);
	return r;
}

CALL(MPI_Waitany, 4) /* count, requests, index, status */
{
	NEXT(int, "MPI_Waitany", P4)
	struct watch w;
	int r;
	watch_begin(&w, a2, (int)a1, 0);
	r = next ? next(a1, a2, a3, a4) : missing("MPI_Waitany");
	if (w.n)
		watch_one(&w, *(int *)a3);
	return r;
}

/* some ends those of the requests that a list names. */
static void some(struct watch *w, int n, const int *at, int from)
{
	int i;

	for (i = 0; w->n && i < n; i++)
		watch_one(w, at[i] - from);
}

CALL(MPI_Waitsome, 5) /* incount, requests, outcount, indices, statuses */
{
	NEXT(int, "MPI_Waitsome", P5)
	struct watch w;
	int r;
	watch_begin(&w, a2, (int)a1, 0);
	r = next ? next(a1, a2, a3, a4, a5) : missing("MPI_Waitsome");
	if (w.n)
		some(&w, *(int *)a3, (const int *)a4, 0);
	return r;
}

CALL(MPI_Test, 3) /* request, flag, status */
{
	NEXT(int, "MPI_Test", P3)
	struct watch w;
	int r;
	watch_begin(&w, a1, 1, 0);
	r = next ? next(a1, a2, a3) : missing("MPI_Test");
	if (w.n && *(int *)a2)
		watch_all(&w);
	return r;
}

CALL(MPI_Testall, 4) /* count, requests, flag, statuses */
{
	NEXT(int, "MPI_Testall", P4)
	struct watch w;
	int r;
	watch_begin(&w, a2, (int)a1, 0);
	r = next ? next(a1, a2, a3, a4) : missing("MPI_Testall");
	if (w.n && *(int *)a3)
		watch_all(&w);
	return r;
}

CALL(MPI_Testany, 5) /* count, requests, index, flag, status */
{
	NEXT(int, "MPI_Testany", P5)
	struct watch w;
	int r;
	watch_begin(&w, a2, (int)a1, 0);
	r = next ? next(a1, a2, a3, a4, a5) : missing("MPI_Testany");
	if (w.n && *(int *)a4)
		watch_one(&w, *(int *)a3);
	return r;
}

CALL(MPI_Testsome, 5) /* as Waitsome */
{
	NEXT(int, "MPI_Testsome", P5)
	struct watch w;
	int r;
	watch_begin(&w, a2, (int)a1, 0);
	r = next ? next(a1, a2, a3, a4, a5) : missing("MPI_Testsome");
	if (w.n)
		some(&w, *(int *)a3, (const int *)a4, 0);
	return r;
}

CALL(MPI_Request_free, 1)
{
	NEXT(int, "MPI_Request_free", P1)
	struct watch w;
	watch_begin(&w, a1, 1, 0);
	watch_freed(&w); /* before another thread may get the handle */
	return next ? next(a1) : missing("MPI_Request_free");
}

CALL(MPI_Init, 2)
{
	NEXT(int, "MPI_Init", P2)
	int r = next ? next(a1, a2) : missing("MPI_Init");

	if (r == 0)
		pattern_init();
	return r;
}

CALL(MPI_Init_thread, 4)
{
	NEXT(int, "MPI_Init_thread", P4)
	int r = next ? next(a1, a2, a3, a4) : missing("MPI_Init_thread");

	if (r == 0)
		pattern_init();
	return r;
}

EXPORT int MPI_Finalize(void);
EXPORT int MPI_Finalize(void)
{
	NEXT(int, "MPI_Finalize", void)

	pattern_fini();
	return next ? next() : missing("MPI_Finalize");
}
