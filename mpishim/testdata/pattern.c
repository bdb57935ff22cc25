/*
 * Calls every all-to-all of C, checks what they give, and stops at some points until
 * a line comes on rank 0's standard input, so that a test can look at the hints.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "meshmpi.h"

#define N 64
static int rank, size, from[64 * N], to[64 * N], counts[64], displs[64], bytes[64];
static MPI_Datatype types[64];

static void stop(const char *where)
{
	char line[64];

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("at %s\n", where);
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			exit(3);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void want(int ok, const char *what)
{
	if (!ok) {
		printf("rank %d: wrong: %s\n", rank, what);
		fflush(stdout);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void fresh(void)
{
	int i;

	for (i = 0; i < size * N; i++) {
		from[i] = rank * 1000 + i / N;
		to[i] = -1;
	}
}

static void check(const char *what)
{
	int i;

	for (i = 0; i < size * N; i++)
		want(to[i] == i / N * 1000 + rank, what);
}

#define TRY(call) fresh(); want((call) == MPI_SUCCESS, #call); check(#call)

static void blocking(MPI_Comm c)
{
	TRY(MPI_Alltoall(from, N, MPI_INT, to, N, MPI_INT, c));
	TRY(MPI_Alltoallv(from, counts, displs, MPI_INT, to, counts, displs, MPI_INT, c));
	TRY(MPI_Alltoallw(from, counts, bytes, types, to, counts, bytes, types, c));
	TRY(PMPI_Alltoall(from, N, MPI_INT, to, N, MPI_INT, c)); /* of no concern to us */
}

#define ENDED(start, end) fresh(); flag = 0; want((start) == MPI_SUCCESS, #start); end; check(#start)

static void nonblocking(MPI_Comm c)
{
	MPI_Request r, rs[3];
	int flag, i, n, at[3];

	ENDED(MPI_Ialltoall(from, N, MPI_INT, to, N, MPI_INT, c, &r), stop("pending"); MPI_Wait(&r, MPI_STATUS_IGNORE));
	want(r == MPI_REQUEST_NULL, "the request");
	ENDED(MPI_Ialltoallv(from, counts, displs, MPI_INT, to, counts, displs, MPI_INT, c, &r),
	      while (!flag) MPI_Test(&r, &flag, MPI_STATUS_IGNORE));
	rs[0] = rs[2] = MPI_REQUEST_NULL;
	ENDED(MPI_Ialltoallw(from, counts, bytes, types, to, counts, bytes, types, c, &rs[1]), MPI_Waitall(3, rs, MPI_STATUSES_IGNORE));
	ENDED(MPI_Ialltoall(from, N, MPI_INT, to, N, MPI_INT, c, &rs[1]), MPI_Waitany(3, rs, &i, MPI_STATUS_IGNORE); want(i == 1, "index"));
	ENDED(MPI_Ialltoall(from, N, MPI_INT, to, N, MPI_INT, c, &rs[1]), MPI_Waitsome(3, rs, &n, at, MPI_STATUSES_IGNORE); want(n == 1, "count"));
	ENDED(MPI_Ialltoall(from, N, MPI_INT, to, N, MPI_INT, c, &rs[1]), while (!flag) MPI_Testall(3, rs, &flag, MPI_STATUSES_IGNORE));
	ENDED(MPI_Ialltoall(from, N, MPI_INT, to, N, MPI_INT, c, &rs[1]), while (!flag) MPI_Testany(3, rs, &i, &flag, MPI_STATUS_IGNORE));
	ENDED(MPI_Ialltoall(from, N, MPI_INT, to, N, MPI_INT, c, &rs[1]), for (n = 0; n < 1;) MPI_Testsome(3, rs, &n, at, MPI_STATUSES_IGNORE));
}

#if MPI_VERSION >= 4
#define INIT(name) MPI_##name
#else
#include <mpi-ext.h>
#define INIT(name) MPIX_##name
#endif

static void persistent(MPI_Comm c)
{
	MPI_Request r[3];
	int k;

	INIT(Alltoall_init)(from, N, MPI_INT, to, N, MPI_INT, c, MPI_INFO_NULL, &r[0]);
	INIT(Alltoallv_init)(from, counts, displs, MPI_INT, to, counts, displs, MPI_INT, c, MPI_INFO_NULL, &r[1]);
	INIT(Alltoallw_init)(from, counts, bytes, types, to, counts, bytes, types, c, MPI_INFO_NULL, &r[2]);
	for (k = 0; k < 3; k++) {
		TRY(MPI_Start(&r[0]) || MPI_Wait(&r[0], MPI_STATUS_IGNORE));
		TRY(MPI_Startall(1, &r[1]) || MPI_Waitall(1, &r[1], MPI_STATUSES_IGNORE));
		TRY(MPI_Start(&r[2]) || MPI_Wait(&r[2], MPI_STATUS_IGNORE));
	}
	for (k = 0; k < 3; k++)
		MPI_Request_free(&r[k]);
#if MPI_VERSION >= 4 && !defined(NO_LARGE)
	TRY(MPI_Alltoall_c(from, N, MPI_INT, to, N, MPI_INT, c));
	{
		MPI_Count cs[64];
		MPI_Aint ds[64], bs[64];
		MPI_Request q;
		for (k = 0; k < size; k++)
			cs[k] = N, ds[k] = k * N, bs[k] = k * N * 4;
		TRY(MPI_Alltoallv_c(from, cs, ds, MPI_INT, to, cs, ds, MPI_INT, c));
		TRY(MPI_Ialltoallw_c(from, cs, bs, types, to, cs, bs, types, c, &q) || MPI_Wait(&q, MPI_STATUS_IGNORE));
	}
#endif
}

static void attributes(void)
{
	int maxrate = -1, matb = -1, flag = -1, have = mesh_keyvals(&maxrate, &matb);
	MPI_Comm dup;
	void *v = 0;

	printf("rank %d keyvals %d\n", rank, have);
	fflush(stdout);
	if (!have)
		return;
	want(MPI_Comm_get_attr(MPI_COMM_WORLD, maxrate, &v, &flag) == MPI_SUCCESS, "get MAXRATE");
	printf("rank %d maxrate %d %ld\n", rank, flag, flag ? (long)v : 0L);
	fflush(stdout);
	MPI_Comm_get_attr(MPI_COMM_WORLD, matb, &v, &flag);
	want(!flag, "MATB is not set");
	MPI_Comm_set_attr(MPI_COMM_WORLD, matb, (void *)1250L);
	MPI_Comm_get_attr(MPI_COMM_WORLD, matb, &v, &flag);
	want(flag && (long)v == 1250, "MATB is set");
	stop("matb 1250");
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Attr_get(dup, matb, &v, &flag);
	want(flag && (long)v == 1250, "MATB of a duplicate");
	MPI_Attr_put(dup, matb, (void *)2500L);
	stop("matb 2500");
	MPI_Comm_free(&dup);
	stop("matb gone");
	MPI_Comm_set_attr(MPI_COMM_WORLD, matb, (void *)1250L);
	MPI_Comm_delete_attr(MPI_COMM_WORLD, matb);
}

/* loop goes on until a file is there, for whatever happens to meshd meanwhile. */
static void loop(const char *until)
{
	int over = 0;

	while (!over) {
		TRY(MPI_Alltoall(from, N, MPI_INT, to, N, MPI_INT, MPI_COMM_WORLD));
		over = rank == 0 && access(until, F_OK) == 0;
		MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
}

int main(int argc, char **argv)
{
	MPI_Comm half, dup;
	int i, level;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (i = 0; i < size; i++)
		counts[i] = N, displs[i] = i * N, bytes[i] = i * N * (int)sizeof(int), types[i] = MPI_INT;
	if (argc > 1) {
		loop(argv[1]);
		if (rank == 0)
			printf("good\n");
		MPI_Finalize();
		return 0;
	}
	stop("start");
	attributes();
	blocking(MPI_COMM_WORLD);
	stop("blocking");
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	blocking(dup);
	MPI_Comm_free(&dup);
	nonblocking(MPI_COMM_WORLD);
	stop("nonblocking");
	persistent(MPI_COMM_WORLD);
	stop("persistent");
	/* the ranks of one site in MESH_RANKS, and then errors */
	MPI_Comm_split(MPI_COMM_WORLD, rank >= size / 2, rank, &half);
	MPI_Alltoall(from, 1, MPI_INT, to, 1, MPI_INT, half);
	stop("half");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	want(MPI_Alltoall(from, -1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS, "an error is returned");
	want(MPI_Alltoall(from, 1, MPI_INT, to, 1, MPI_INT, MPI_COMM_NULL) != MPI_SUCCESS, "for no communicator");
	stop("errors");
	if (rank == 0)
		printf("good\n");
	MPI_Finalize();
	return 0;
}
