/* The functions that C programs call. Each calls the one behind it with just what it
 * was given, and looks at the arguments only when that says they were right. */
#include "profile.h"

#define F 0
#define R(a) (int)(a)
#define T(a) (a)
#define I(a) in_place(a, 0)
#define own(counts, comm, fortran, large) own_count(counts, comm, large)

#define FUNCTION(name, n, ...) \
	EXPORT int name(CAT(P, n)); \
	EXPORT int name(CAT(P, n)) \
	{ \
		NEXT(int, #name, CAT(P, n)) \
		ENTERED(e, enter); \
		int r = next ? next(CAT(A, n)) : missing(#name); \
		if (r == 0 && e.counts) { \
			__VA_ARGS__; \
		} \
		return r; \
	}
#define NOTED(name, n, in, ...) FUNCTION(name, n, struct call c = { __VA_ARGS__, .comm = in }; note(&c, e.now))
#define KEPT(name, n, in, request, ...) \
	FUNCTION(name, n, struct call c = { __VA_ARGS__, .comm = in }; request_keep(&c, handle_at(request, 0)))

#define MESSAGES(S) \
	NOTED(MPI_Send##S, 6, a6, PEERS(SEND, a2, a3, a4)) \
	NOTED(MPI_Ssend##S, 6, a6, PEERS(SEND, a2, a3, a4)) \
	NOTED(MPI_Bsend##S, 6, a6, PEERS(SEND, a2, a3, a4)) \
	NOTED(MPI_Rsend##S, 6, a6, PEERS(SEND, a2, a3, a4)) \
	NOTED(MPI_Isend##S, 7, a6, PEERS(ISEND, a2, a3, a4)) \
	NOTED(MPI_Issend##S, 7, a6, PEERS(ISEND, a2, a3, a4)) \
	NOTED(MPI_Ibsend##S, 7, a6, PEERS(ISEND, a2, a3, a4)) \
	NOTED(MPI_Irsend##S, 7, a6, PEERS(ISEND, a2, a3, a4)) \
	NOTED(MPI_Sendrecv##S, 12, a11, PEERS(SENDRECV, a2, a3, a4)) \
	NOTED(MPI_Sendrecv_replace##S, 9, a8, PEERS(SENDRECV, a2, a3, a4)) \
	NOTED(MPI_Isendrecv##S, 12, a11, PEERS(SENDRECV, a2, a3, a4)) \
	NOTED(MPI_Isendrecv_replace##S, 9, a8, PEERS(SENDRECV, a2, a3, a4)) \
	KEPT(MPI_Send_init##S, 7, a6, a7, PEERS(START, a2, a3, a4)) \
	KEPT(MPI_Ssend_init##S, 7, a6, a7, PEERS(START, a2, a3, a4)) \
	KEPT(MPI_Bsend_init##S, 7, a6, a7, PEERS(START, a2, a3, a4)) \
	KEPT(MPI_Rsend_init##S, 7, a6, a7, PEERS(START, a2, a3, a4))

#define LAST(n) CAT(a, n)
#define FORMS(lower, name, n, in, ...) \
	NOTED(CAT(MPI_##name, SUFFIX), n, in, __VA_ARGS__) \
	NOTED(CAT(MPI_I##lower, SUFFIX), MORE1_##n, in, __VA_ARGS__) \
	KEPT(CAT(CAT(MPI_##name, _init), SUFFIX), MORE2_##n, in, LAST(MORE2_##n), __VA_ARGS__)
/* Open MPI 4's names of what MPI 4 brought */
#define EXTENSION(lower, name, n, in, ...) KEPT(MPIX_##name##_init, MORE2_##n, in, LAST(MORE2_##n), __VA_ARGS__)

#define L 0
#define N(a) (int)(a)
#define SUFFIX
MESSAGES()
OPERATIONS(FORMS)
OPERATIONS(EXTENSION)

#if __SIZEOF_POINTER__ == 8 /* a large count is a word here */
#undef L
#undef N
#undef SUFFIX
#define L 1
#define N(a) (intptr_t)(a)
#define SUFFIX _c
MESSAGES(_c)
OPERATIONS(FORMS)
#endif

#undef N
#define N(a) (int64_t)(intptr_t)(a)
/* partitions, each of a count that is a word: buf, partitions, count, type, dest, tag, comm, info, request */
KEPT(MPI_Psend_init, 9, a7, a9, .op = START, .shape = PEER, .count = (int)a2 * N(a3), .type = a4, .root = (int)a5)

FUNCTION(MPI_Start, 1, request_begin(a1, 1, 0, e.now))
FUNCTION(MPI_Startall, 2, request_begin(a2, (int)a1, 0, e.now))

EXPORT int MPI_Request_free(P1);
EXPORT int MPI_Request_free(P1)
{
	NEXT(int, "MPI_Request_free", P1)
	if (a1 && profile_ready())
		request_drop(handle_at(a1, 0)); /* before another thread may get the handle */
	return next ? next(a1) : missing("MPI_Request_free");
}

EXPORT int MPI_Init(P2);
EXPORT int MPI_Init(P2)
{
	NEXT(int, "MPI_Init", P2)
	int r = next ? next(A2) : missing("MPI_Init");

	if (r == 0)
		profile_init();
	return r;
}

EXPORT int MPI_Init_thread(P4);
EXPORT int MPI_Init_thread(P4)
{
	NEXT(int, "MPI_Init_thread", P4)
	int r = next ? next(A4) : missing("MPI_Init_thread");

	if (r == 0)
		profile_init();
	return r;
}

EXPORT int MPI_Finalize(void);
EXPORT int MPI_Finalize(void)
{
	NEXT(int, "MPI_Finalize", void)

	profile_fini();
	return next ? next() : missing("MPI_Finalize");
}
