/* pp [-seconds S] [BYTES ...]: ping-pong between rank 0 and rank 1; others wait.
 * For each size rank 0 prints a line "pp BYTES MEAN_US P999_US MBPS": half a round
 * trip, on average and in the 99.9th percentile, and the bandwidth in Mb/s that the
 * average makes. Its twin in Go is go/pp. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 20, MOST = 1 << 20 };

static int by_value(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;
	return (a > b) - (a < b);
}

/* play does rounds of ping-pong and notes half of what each takes, in seconds. */
static void play(int rank, char *buf, int bytes, int rounds, double *times)
{
	double last = MPI_Wtime();

	for (int i = 0; i < rounds; i++) {
		if (rank == 0) {
			MPI_Send(buf, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(buf, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(buf, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(buf, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
		}
		double now = MPI_Wtime();
		times[i] = (now - last) / 2;
		last = now;
	}
}

static double sum(const double *times, int n)
{
	double s = 0;

	for (int i = 0; i < n; i++)
		s += times[i];
	return s;
}

/* rounds_for is how many rounds take the time, as the later half of the last ones,
 * warm in number, has it. */
static int rounds_for(double seconds, const double *times, int warm)
{
	double n = seconds / (sum(times + warm / 2, warm / 2) / (warm / 2));

	return n < warm ? warm : n > MOST ? MOST : (int)n;
}

/* warm_up plays batches of WARM rounds, twice as many, and so on, until one takes an
 * eighth of the time: memory is there, and processes have found their processors. It
 * returns how many rounds take the whole, which rank 0 says. */
static int warm_up(int rank, char *buf, int bytes, double seconds, double *times)
{
	for (int warm = WARM;; warm *= 2) {
		int rounds = 0; /* go on */
		play(rank, buf, bytes, warm, times);
		if (rank == 0) {
			if (2 * sum(times, warm) >= seconds / 8 || 2 * warm > MOST)
				rounds = rounds_for(seconds, times, warm);
			MPI_Send(&rounds, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
		} else {
			MPI_Recv(&rounds, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		if (rounds > 0)
			return rounds;
	}
}

/* measure agrees on a number of rounds that takes the time, and does them. */
static void measure(int rank, int bytes, double seconds, double *times)
{
	int rounds;
	char *buf = malloc(bytes > 0 ? bytes : 1);

	if (!buf)
		MPI_Abort(MPI_COMM_WORLD, 2);
	memset(buf, 1, bytes);
	rounds = warm_up(rank, buf, bytes, seconds, times);
	play(rank, buf, bytes, rounds, times);
	if (rank == 0) {
		double mean = sum(times, rounds) / rounds * 1e6;
		qsort(times, rounds, sizeof *times, by_value);
		printf("pp %d %.3f %.3f %.1f\n", bytes, mean, times[(long)rounds * 999 / 1000] * 1e6, bytes * 8.0 / mean);
		fflush(stdout);
	}
	free(buf);
}

int main(int argc, char **argv)
{
	static const int usual[] = {1, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20};
	int rank, size, i = 1;
	double seconds = 0.5;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (i + 1 < argc && strcmp(argv[i], "-seconds") == 0) {
		seconds = atof(argv[i + 1]);
		i += 2;
	}
	if (size < 2) {
		fprintf(stderr, "pp needs two ranks\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	double *times = malloc(MOST * sizeof *times);
	if (!times)
		MPI_Abort(MPI_COMM_WORLD, 2);
	if (rank < 2) {
		for (int k = i; k < argc; k++)
			measure(rank, atoi(argv[k]), seconds, times);
		for (unsigned k = 0; i >= argc && k < sizeof usual / sizeof *usual; k++)
			measure(rank, usual[k], seconds, times);
	}
	free(times);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
