/* colls [-loops N] [-seconds S] [-global] [-mark] [-only NAME] [BYTES ...]: times collective
 * operations, or the one named. For each operation and size rank 0 prints a line
 * "NAME BYTES MEAN_US P999_US MBPS".
 * BYTES is what each rank gives (what each gives each, for alltoall); allgather and
 * alltoall divide the size asked for by the number of ranks. Its twin in Go is
 * go/colls.
 *
 * MEAN is the loop's time by the number of loops, which follow each other without
 * barriers between, and P999 the 99.9th percentile over loops of the time of the
 * rank that was slowest in it. In such a loop an operation with a root that only
 * sends, or only receives, overlaps the next one: what is timed is how many can be
 * had, not how long one takes. With -global each loop begins at a moment that all
 * ranks know, on a clock that they share: both figures are then of the time from
 * that moment until the last rank has returned; who is done sleeps for 5 ms then. With
 * -mark the loops of each measurement lie between two marks (mark.h). */
#define _GNU_SOURCE
#include "mark.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRIPS = 20, TRIES = 6, MOST = 100000, PAUSE = 5 /* ms */ };

static int rank, size, global, marks, loops = 10;
static double seconds = 0.3;
static const char *only;     /* NULL: all */
static double offset;	     /* of this rank's clock, ahead of rank 0's */
static double farthest;	     /* the longest round trip from rank 0 */
static char *one, *other;    /* as large as the largest size, and a byte per rank */

enum op { BARRIER, BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL };

static void run(enum op op, int n)
{
	MPI_Comm w = MPI_COMM_WORLD;

	switch (op) {
	case BARRIER:
		MPI_Barrier(w);
		break;
	case BCAST:
		MPI_Bcast(one, n, MPI_BYTE, 0, w);
		break;
	case REDUCE:
		MPI_Reduce(one, other, n, MPI_UNSIGNED_CHAR, MPI_MAX, 0, w);
		break;
	case ALLREDUCE:
		MPI_Allreduce(one, other, n, MPI_UNSIGNED_CHAR, MPI_MAX, w);
		break;
	case ALLGATHER:
		MPI_Allgather(one, n, MPI_BYTE, other, n, MPI_BYTE, w);
		break;
	case ALLTOALL:
		MPI_Alltoall(one, n, MPI_BYTE, other, n, MPI_BYTE, w);
		break;
	}
}

static double now(void) { return MPI_Wtime() - offset; }

/* compare finds how far this rank's clock is ahead of rank 0's: of some round trips
 * the fastest one says it best. */
static void compare(void)
{
	for (int r = 1; r < size; r++) {
		double best = 1e9, ahead = 0;
		if (rank != 0 && rank != r)
			continue;
		for (int i = 0; i < TRIPS; i++) {
			double there = 0, sent = MPI_Wtime();
			if (rank == r) {
				MPI_Recv(&there, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				there = MPI_Wtime();
				MPI_Send(&there, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
				continue;
			}
			MPI_Send(&there, 1, MPI_DOUBLE, r, 1, MPI_COMM_WORLD);
			MPI_Recv(&there, 1, MPI_DOUBLE, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			double back = MPI_Wtime();
			if (back - sent < best) {
				best = back - sent;
				ahead = there - (sent + back) / 2;
			}
		}
		if (rank == r)
			MPI_Recv(&offset, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(&ahead, 1, MPI_DOUBLE, r, 2, MPI_COMM_WORLD);
		if (rank == 0 && best > farthest)
			farthest = best;
	}
}

/* await returns at a moment, without keeping others from their work meanwhile: it
 * sleeps until the time is left that a sleep may be late by. */
static void await(double moment)
{
	const double spare = 200e-6;

	for (double left; (left = moment - now()) > 0;) {
		if (left > 2 * spare) {
			double sleep = left - spare;
			struct timespec t = {(time_t)sleep, (long)((sleep - (time_t)sleep) * 1e9)};
			nanosleep(&t, NULL);
		} else {
			sched_yield();
		}
	}
}

static int by_value(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;
	return (a > b) - (a < b);
}

/* pause_briefly leaves the processors to ranks that are not done yet: where hosts are really
 * apart none takes another's. */
static void pause_briefly(void)
{
	struct timespec t = {0, PAUSE * 1000000};
	nanosleep(&t, NULL);
}

/* together times n loops that begin at moments that all know, margin seconds after
 * they were told. It returns how many of them began in time everywhere, those first
 * in times, each as the slowest rank had it. */
static int together(enum op op, int bytes, int n, double margin, double *times)
{
	int good = 0;

	for (int i = 0; i < n; i++) {
		double begin = now() + margin;
		MPI_Bcast(&begin, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
		int late = now() > begin;
		await(begin);
		run(op, bytes);
		times[i] = late ? 1e9 : now() - begin;
		pause_briefly();
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Allreduce(MPI_IN_PLACE, times, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		if (times[i] < 1e9)
			times[good++] = times[i];
	return good;
}

/* apart times n loops that follow each other. It returns the average. */
static double apart(enum op op, int bytes, int n, double *times)
{
	double begin, last;

	MPI_Barrier(MPI_COMM_WORLD);
	begin = last = MPI_Wtime();
	for (int i = 0; i < n; i++) {
		run(op, bytes);
		double t = MPI_Wtime();
		times[i] = t - last;
		last = t;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime() - begin;
	MPI_Allreduce(MPI_IN_PLACE, times, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return begin / n;
}

/* warm runs an operation until that takes an eighth of the time of a measurement, in
 * batches of 1, 2, 4, ...: connections are made, memory is there, and processes have
 * found their processors. It returns the seconds that one took in the last batch. */
static double warm(enum op op, int bytes)
{
	double t = 0;
	int batch = 1;

	run(op, bytes);
	for (;; batch *= 2) {
		t = MPI_Wtime();
		for (int i = 0; i < batch; i++)
			run(op, bytes);
		MPI_Barrier(MPI_COMM_WORLD); /* a root may be through long before the others */
		t = MPI_Wtime() - t;
		MPI_Bcast(&t, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
		if (t >= seconds / 8 || 2 * batch > MOST)
			return t / batch;
	}
}

static void measure(const char *name, enum op op, int bytes)
{
	double t, mean = 0, margin = global ? 2 * farthest + 100e-6 : 0;
	int n;

	if (only && strcmp(only, name) != 0)
		return;
	t = warm(op, bytes);
	t = seconds / (t + margin + 1e-9);
	n = t < loops ? loops : t > MOST ? MOST : (int)t;
	MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
	double *times = malloc(n * sizeof *times);
	if (!times)
		MPI_Abort(MPI_COMM_WORLD, 2);
	if (marks)
		mark("begin", name, bytes);
	if (global) {
		int good = 0;
		for (int i = 0; i < TRIES && good < (n + 1) / 2; i++, margin *= 2)
			good = together(op, bytes, n, margin, times);
		n = good;
		for (int i = 0; i < n; i++)
			mean += times[i] / n;
	} else {
		mean = apart(op, bytes, n, times);
	}
	if (marks)
		mark("end", name, bytes);
	if (rank == 0 && n > 0) {
		qsort(times, n, sizeof *times, by_value);
		printf("%s %d %.3f %.3f %.1f\n", name, bytes, mean * 1e6, times[(long)n * 999 / 1000] * 1e6, bytes * 8.0 / (mean * 1e6));
		fflush(stdout);
	} else if (rank == 0) {
		fprintf(stderr, "colls: %s %d: no loop began in time\n", name, bytes);
	}
	free(times);
}

static void sized(int n)
{
	int share = n / size > 1 ? n / size : 1;
	size_t most = (size_t)n + size;

	one = malloc(most);
	other = malloc(most);
	if (!one || !other)
		MPI_Abort(MPI_COMM_WORLD, 2);
	memset(one, 1, most);
	memset(other, 1, most);
	measure("bcast", BCAST, n);
	measure("reduce", REDUCE, n);
	measure("allreduce", ALLREDUCE, n);
	measure("allgather", ALLGATHER, share);
	measure("alltoall", ALLTOALL, share);
	free(one);
	free(other);
}

int main(int argc, char **argv)
{
	static const int usual[] = {1, 64 << 10, 4 << 20};
	int i = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "-global") == 0)
			global = 1;
		else if (strcmp(argv[i], "-mark") == 0)
			marks = 1;
		else if (strcmp(argv[i], "-loops") == 0 && i + 1 < argc)
			loops = atoi(argv[++i]);
		else if (strcmp(argv[i], "-only") == 0 && i + 1 < argc)
			only = argv[++i];
		else if (strcmp(argv[i], "-seconds") == 0 && i + 1 < argc)
			seconds = atof(argv[++i]);
	}
	if (global)
		compare();
	measure("barrier", BARRIER, 0);
	for (int k = i; k < argc; k++)
		sized(atoi(argv[k]));
	for (unsigned k = 0; i >= argc && k < sizeof usual / sizeof *usual; k++)
		sized(usual[k]);
	MPI_Finalize();
	return 0;
}
