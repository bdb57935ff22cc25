/* mark.h: marks the beginning and the end of what is measured, for whoever counts
 * meanwhile what the machine does, on rank 0's standard output:
 *
 *	mark begin NAME BYTES SECONDS
 *	mark end NAME BYTES SECONDS
 *
 * with the time of day, so that a reader knows when it was late. Nothing is sent for MARK_PAUSE after a beginning, so that counters can be read
 * between what went before and what is measured; the same after an end. */
#ifndef MARK_H
#define MARK_H
#include <mpi.h>
#include <stdio.h>
#include <time.h>

enum { MARK_PAUSE = 60 }; /* ms; markPause of integration/bench */

static inline void mark(const char *what, const char *name, int bytes)
{
	struct timespec pause = {0, MARK_PAUSE * 1000000L}, now;
	int rank;

	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0) {
		clock_gettime(CLOCK_REALTIME, &now);
		printf("mark %s %s %d %lld.%06ld\n", what, name, bytes, (long long)now.tv_sec, now.tv_nsec / 1000);
		fflush(stdout);
	}
	nanosleep(&pause, NULL);
}
#endif
