/* Every kind of sending, with sizes that a test knows (TestProfileInC); the same as
 * mpi's TestProfile. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int me, n;
static double d[64], e[64];
static int in[64], out[64];
static char a[64], b[64];

static void messages(void)
{
	MPI_Request r[3];
	MPI_Request p;
	int i, k = 0;

	MPI_Sendrecv(d, 10, MPI_DOUBLE, (me + 1) % n, 0, e, 10, MPI_DOUBLE, (me + n - 1) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (me) {
		MPI_Isend(a, 5, MPI_CHAR, 0, 1, MPI_COMM_WORLD, r);
		MPI_Wait(r, MPI_STATUS_IGNORE);
	} else {
		for (i = 1; i < n; i++)
			MPI_Irecv(b + 8 * i, 5, MPI_CHAR, i, 1, MPI_COMM_WORLD, r + k++);
		MPI_Waitall(k, r, MPI_STATUSES_IGNORE);
	}
	MPI_Send_init(in, 3, MPI_INT, (me + 2) % n, 2, MPI_COMM_WORLD, &p);
	for (i = 0; i < 2; i++) {
		MPI_Irecv(out, 3, MPI_INT, (me + 2) % n, 2, MPI_COMM_WORLD, r);
		MPI_Start(&p);
		MPI_Wait(&p, MPI_STATUS_IGNORE);
		MPI_Wait(r, MPI_STATUS_IGNORE);
	}
	MPI_Request_free(&p);
	MPI_Send(a, 5, MPI_CHAR, MPI_PROC_NULL, 3, MPI_COMM_WORLD);
	MPI_Sendrecv(a, 50, MPI_CHAR, me, 4, b, 50, MPI_CHAR, me, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void collectives(void)
{
	int sc[4], sd[4], rc[4], rd[4], parts[4] = { 1, 2, 3, 4 }, i, s = 0, t = 0;
	MPI_Datatype two;
	MPI_Request r;

	MPI_Bcast(d, 7, MPI_DOUBLE, 1, MPI_COMM_WORLD);
	MPI_Type_contiguous(2, MPI_INT, &two);
	MPI_Type_commit(&two);
	MPI_Gather(in, 1, two, out, 1, two, 2, MPI_COMM_WORLD);
	MPI_Type_free(&two);
	MPI_Scatter(a, 4, MPI_CHAR, b, 4, MPI_CHAR, 3, MPI_COMM_WORLD);
	MPI_Gather(me == 2 ? MPI_IN_PLACE : a, me == 2 ? 0 : 2, me == 2 ? MPI_DATATYPE_NULL : MPI_CHAR, b, 2, MPI_CHAR, 2, MPI_COMM_WORLD);
	if (me == 3) /* what does not count where nothing is given may be anything */
		MPI_Scatter(a, 2, MPI_CHAR, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 3, MPI_COMM_WORLD);
	else
		MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, b, 2, MPI_CHAR, 3, MPI_COMM_WORLD);
	MPI_Allgather(a, 6, MPI_CHAR, b, 6, MPI_CHAR, MPI_COMM_WORLD);
	MPI_Ialltoall(a, 9, MPI_CHAR, b, 9, MPI_CHAR, MPI_COMM_WORLD, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	for (i = 0; i < n; i++) {
		sc[i] = rc[i] = me + i + 1;
		sd[i] = s, s += sc[i];
		rd[i] = t, t += rc[i];
	}
	MPI_Alltoallv(a, sc, sd, MPI_CHAR, b, rc, rd, MPI_CHAR, MPI_COMM_WORLD);
	MPI_Reduce(d, e, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Allreduce(d, e, 6, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce_scatter(in, out, parts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Scan(in, out, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, 5, MPI_CHAR, MPI_COMM_WORLD);
}

static void communicators(void)
{
	MPI_Comm half, copy, ring;
	int dims[1] = { n }, around[1] = { 1 };

	MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half);
	MPI_Bcast(a, 11, MPI_CHAR, 0, half);
	MPI_Comm_dup(half, &copy);
	MPI_Comm_free(&half);
	MPI_Alltoall(a, 1, MPI_CHAR, b, 1, MPI_CHAR, copy);
	MPI_Comm_free(&copy);
	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, around, 0, &ring);
	MPI_Neighbor_alltoall(a, 13, MPI_CHAR, b, 13, MPI_CHAR, ring);
	MPI_Comm_free(&ring);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	messages();
	collectives();
	communicators();
	if (fork() == 0) { /* a child is no rank */
		_exit(0);
	}
	wait(NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	if (me == 0)
		puts("good");
	if (argc > 1 && !strcmp(argv[1], "die"))
		_exit(3);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
