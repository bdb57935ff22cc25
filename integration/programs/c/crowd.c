/* crowd BEGIN END LEAVE BYTES: each rank of the first half sends messages of BYTES to each
 * of the other half, as fast as they go, from one moment to another (seconds since 1970,
 * fractions allowed). To each it has many under way, each of which the receiver has to
 * take before another follows (MPI_Issend), and whoever is slow holds nobody else up: so
 * there is something to send all the time, and a record of it shows how a network is
 * shared, not how ranks wait for each other. Before it begins as many have been sent, so
 * that buffers and connections are there, and processes end at LEAVE only: what that costs
 * a busy machine is no part of it. Rank 0 prints "began SECONDS" when all ranks are there
 * and it is time, and "crowd MESSAGES", its own, in the end. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 32 }; /* messages under way to each receiver */

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

static int half, bytes;

/* post has message k to or from a peer under way; the first byte tells the last one. */
static void post(int sends, int peer, char *buf, int last, MPI_Request *req)
{
	buf[0] = last;
	if (sends)
		MPI_Issend(buf, bytes, MPI_BYTE, half + peer, 0, MPI_COMM_WORLD, req);
	else
		MPI_Irecv(buf, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, req);
}

int main(int argc, char **argv)
{
	int rank, size, n, i;
	long done = 0;

	if (argc != 5) {
		fprintf(stderr, "usage: crowd BEGIN END LEAVE BYTES\n");
		return 2;
	}
	double begin = atof(argv[1]), end = atof(argv[2]), leave = atof(argv[3]);
	bytes = atoi(argv[4]);
	if (bytes < 1) {
		fprintf(stderr, "crowd: BYTES is %d; it must be at least 1\n", bytes);
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	half = size / 2;
	if (size < 2 || size % 2) {
		if (rank == 0)
			fprintf(stderr, "crowd: %d ranks are no two halves; start an even number\n", size);
		MPI_Finalize();
		return 2;
	}
	int sends = rank < half;
	char *room = calloc((size_t)half * DEPTH, bytes);
	MPI_Request *req = calloc(half * DEPTH, sizeof *req);
	int *over = calloc(half, sizeof *over); /* peers to or from whom the last one has been seen */

	if (!room || !req || !over)
		MPI_Abort(MPI_COMM_WORLD, 3);
	n = half * DEPTH;
	for (i = 0; i < n; i++)
		post(sends, i / DEPTH, room + (size_t)i * bytes, 0, &req[i]);
	MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
	until(begin);
	if (rank == 0) {
		printf("began %.6f\n", now());
		fflush(stdout);
	}
	for (i = 0; i < n; i++)
		post(sends, i / DEPTH, room + (size_t)i * bytes, 0, &req[i]);
	for (int peers = half; peers > 0;) {
		MPI_Waitany(n, req, &i, MPI_STATUS_IGNORE);
		char *buf = room + (size_t)i * bytes;
		int peer = i / DEPTH;

		done++;
		if (buf[0]) { /* the last of this peer has been sent, or has come */
			over[peer] = 1;
			peers--;
			for (int k = peer * DEPTH; !sends && k < (peer + 1) * DEPTH; k++)
				if (req[k] != MPI_REQUEST_NULL) {
					MPI_Cancel(&req[k]);
					MPI_Wait(&req[k], MPI_STATUS_IGNORE);
				}
		} else if (!over[peer]) {
			int last = sends && now() >= end;

			over[peer] = last;
			post(sends, peer, buf, last, &req[i]);
		}
	}
	if (sends)
		MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
	if (rank == 0)
		printf("crowd %ld\n", done);
	fflush(stdout);
	until(leave);
	MPI_Finalize();
	return 0;
}
