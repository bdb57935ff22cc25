/* crowd BEGIN END LEAVE BYTES: an all-to-all that always has the next ones under way,
 * from one moment to another (seconds since 1970, fractions allowed). BYTES is what each
 * rank gives each other one. Before it begins as many have been done, so that buffers
 * and connections are there, and processes end at LEAVE only: what that costs a busy
 * machine is no part of how a network is shared. Ranks that wait for each other would
 * leave the network idle at the end of each operation; here it has something to do all
 * the time, so a record of it shows how it is shared. Rank 0 prints "began SECONDS" when
 * all ranks are there and it is time, and "crowd OPERATIONS" in the end. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 16 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* until sleeps. */
static void until(double when)
{
	for (double left = when - now(); left > 0; left = when - now()) {
		struct timespec t = { (time_t)left, (long)((left - (time_t)left) * 1e9) };
		nanosleep(&t, NULL);
	}
}

int main(int argc, char **argv)
{
	int rank, size, i;
	long done = 0;
	char *out[DEPTH], *in[DEPTH];
	MPI_Request req[DEPTH];

	if (argc != 5) {
		fprintf(stderr, "usage: crowd BEGIN END LEAVE BYTES\n");
		return 2;
	}
	double begin = atof(argv[1]), end = atof(argv[2]), leave = atof(argv[3]);
	int bytes = atoi(argv[4]);
	if (bytes < 1) {
		fprintf(stderr, "crowd: BYTES is %d; it must be at least 1\n", bytes);
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (i = 0; i < DEPTH; i++) {
		out[i] = calloc(size, bytes);
		in[i] = calloc(size, bytes);
		if (!out[i] || !in[i])
			MPI_Abort(MPI_COMM_WORLD, 3);
	}
	for (i = 0; i < DEPTH; i++)
		MPI_Alltoall(out[i], bytes, MPI_BYTE, in[i], bytes, MPI_BYTE, MPI_COMM_WORLD);
	until(begin);
	if (rank == 0) {
		printf("began %.6f\n", now());
		fflush(stdout);
	}
	for (i = 0; i < DEPTH; i++)
		MPI_Ialltoall(out[i], bytes, MPI_BYTE, in[i], bytes, MPI_BYTE, MPI_COMM_WORLD, &req[i]);
	/* Rank 0 says in the first byte of each block that this round is the last but those
	 * under way, so that all ranks stop after the same one. */
	for (int last = 0; !last; done++) {
		i = done % DEPTH;
		MPI_Wait(&req[i], MPI_STATUS_IGNORE);
		last = in[i][0];
		if (last) {
			for (int k = 1; k < DEPTH; k++)
				MPI_Wait(&req[(i + k) % DEPTH], MPI_STATUS_IGNORE);
			break;
		}
		if (rank == 0)
			for (int r = 0; r < size; r++)
				out[i][(size_t)r * bytes] = now() >= end;
		MPI_Ialltoall(out[i], bytes, MPI_BYTE, in[i], bytes, MPI_BYTE, MPI_COMM_WORLD, &req[i]);
	}
	if (rank == 0)
		printf("crowd %ld\n", done + DEPTH);
	fflush(stdout);
	until(leave);
	MPI_Finalize();
	return 0;
}
