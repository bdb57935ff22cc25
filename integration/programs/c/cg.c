/* cg [-mark] [-seconds S] [-steps N] [BYTES]: solves linear systems by conjugate
 * gradients, with the traffic of NPB's CG. Rank 0 prints "cg BYTES MEAN_US P999_US MBPS"
 * of a step. It exits with 1 if the solution is wrong.
 *
 * The matrix is D + b T, D diagonal and T the exchange of transposed blocks: a rank's
 * partner holds the block on the other side of the diagonal. Of two sites of four
 * ranks, in order, two ranks of each exchange BYTES with the other site in a step and
 * the others nothing: few send at once. The two dot products of a step are sums by
 * pairs, rank ^ 1, rank ^ 2, …, of which the last pair crosses. */
#include "mark.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_BLOCK = 1, TAG_SUM, WARM = 3, MOST = 100000 };

static const double b = 0.25; /* the diagonal is 2 to 3, so the matrix is positive definite */
static int rank, size, partner, n;
static double *x, *r, *p, *q, *far; /* a rank's block of each */

/* transposed is NPB's partner: of a square grid the rank across the diagonal, of one
 * twice as wide as high the same for pairs of ranks. */
static int transposed(void)
{
	int side = 1, pair = 1;

	while (4 * side * side <= size)
		side *= 2;
	if (side * side < size)
		pair = 2;
	int at = rank / pair;
	return pair * (at % side * side + at / side) + rank % pair;
}

static double diagonal(int i) { return 2 + (i % 1024) / 1024.0; }
static double wanted(int i) { return 1 + ((rank * 31 + i) % 17) / 17.0; }

/* sum adds a number over all ranks, in pairs; size is a power of two. */
static double sum(double v)
{
	for (int bit = 1; bit < size; bit <<= 1) {
		double other;
		MPI_Sendrecv(&v, 1, MPI_DOUBLE, rank ^ bit, TAG_SUM, &other, 1, MPI_DOUBLE, rank ^ bit, TAG_SUM,
			MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		v += other;
	}
	return v;
}

static double dot(const double *u, const double *v)
{
	double s = 0;

	for (int i = 0; i < n; i++)
		s += u[i] * v[i];
	return sum(s);
}

/* multiply is out = (D + b T) in. */
static void multiply(double *in, double *out)
{
	double *other = in;

	if (partner != rank) {
		MPI_Sendrecv(in, n, MPI_DOUBLE, partner, TAG_BLOCK, far, n, MPI_DOUBLE, partner, TAG_BLOCK,
			MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		other = far;
	}
	for (int i = 0; i < n; i++)
		out[i] = diagonal(i) * in[i] + b * other[i];
}

static double rho; /* |r|² */

/* start makes a right side of which the solution is known, and a first guess of 0. */
static void start(void)
{
	for (int i = 0; i < n; i++)
		x[i] = wanted(i);
	multiply(x, r);
	memset(x, 0, n * sizeof *x);
	memcpy(p, r, n * sizeof *p);
	rho = dot(r, r);
}

static void step(void)
{
	multiply(p, q);
	double alpha = rho / dot(p, q), old = rho;
	for (int i = 0; i < n; i++) {
		x[i] += alpha * p[i];
		r[i] -= alpha * q[i];
	}
	rho = dot(r, r);
	for (int i = 0; i < n; i++)
		p[i] = r[i] + rho / old * p[i];
}

static double worst(void)
{
	double w = 0;

	for (int i = 0; i < n; i++)
		w = fmax(w, fabs(x[i] - wanted(i)));
	MPI_Allreduce(MPI_IN_PLACE, &w, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return w;
}

static int by_value(const void *u, const void *v)
{
	double d = *(const double *)u - *(const double *)v;
	return (d > 0) - (d < 0);
}

enum { SOLVE = 15 }; /* steps after which the error is below 1e-6 */

static int marks, steps = SOLVE, bytes = 256 << 10;
static double seconds;

/* prepare reads the options and makes the vectors. */
static void prepare(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-mark") == 0)
			marks = 1;
		else if (strcmp(argv[i], "-seconds") == 0 && i + 1 < argc)
			seconds = atof(argv[++i]);
		else if (strcmp(argv[i], "-steps") == 0 && i + 1 < argc)
			steps = atoi(argv[++i]);
		else
			bytes = atoi(argv[i]);
	}
	n = bytes / (int)sizeof(double);
	if (n < 1 || size & (size - 1)) {
		fprintf(stderr, "cg: %d bytes on %d ranks: a block has 8 bytes at least, and ranks are a power of two\n", bytes, size);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	partner = transposed();
	x = malloc(5 * (size_t)n * sizeof *x);
	if (!x)
		MPI_Abort(MPI_COMM_WORLD, 2);
	r = x + n, p = r + n, q = p + n, far = q + n;
}

/* agree finds how many steps fit the time. */
static void agree(void)
{
	start();
	for (int i = 0; i < WARM; i++)
		step();
	MPI_Barrier(MPI_COMM_WORLD);
	double t = MPI_Wtime();
	step();
	MPI_Barrier(MPI_COMM_WORLD);
	t = seconds / (MPI_Wtime() - t + 1e-9);
	if (t > steps)
		steps = t > MOST ? MOST : (int)t;
	MPI_Bcast(&steps, 1, MPI_INT, 0, MPI_COMM_WORLD);
	steps = (steps + SOLVE - 1) / SOLVE * SOLVE;
}

int main(int argc, char **argv)
{
	double error = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	prepare(argc, argv);
	agree();
	double *times = malloc(steps * sizeof *times), total = 0;
	if (!times)
		MPI_Abort(MPI_COMM_WORLD, 2);
	if (marks)
		mark("begin", "cg", bytes);
	for (int i = 0; i < steps; i += SOLVE) {
		start();
		MPI_Barrier(MPI_COMM_WORLD);
		double began = MPI_Wtime(), last = began;
		for (int k = 0; k < SOLVE; k++) {
			step();
			double now = MPI_Wtime();
			times[i + k] = now - last;
			last = now;
		}
		total += last - began;
		error = fmax(error, worst());
	}
	if (marks)
		mark("end", "cg", bytes);
	MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, times, steps, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0 && error < 1e-6) {
		qsort(times, steps, sizeof *times, by_value);
		double us = total / steps * 1e6;
		printf("cg %d %.3f %.3f %.1f\n", bytes, us, times[(long)steps * 999 / 1000] * 1e6, bytes * 8 / us);
		fflush(stdout);
	} else if (rank == 0) {
		fprintf(stderr, "cg: the solution is wrong by %g\n", error);
	}
	MPI_Finalize();
	return !(error < 1e-6);
}
