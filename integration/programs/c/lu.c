/* lu [-mark] [-seconds S] [-sweeps N] [-depth N] [BYTES]: sweeps over a grid of ranks in
 * pipelined wavefronts of small messages, with the traffic of NPB's LU. Rank 0 prints
 * "lu BYTES MEAN_US P999_US MBPS" of a sweep there and back. It exits with 1 if the sum
 * over the grid is not what one process gets by itself.
 *
 * Ranks are a grid of rows by columns, as square as may be, rows first: of two sites in
 * order each row lies within a site, if there are two rows. The volume has depth planes,
 * of which a rank holds BYTES / 4 cells of an edge. A rank gets a plane's edges from
 * the north and the west, works, and sends its own to the south and the east; after
 * the last plane the same from the south and the east. Cells are 32-bit numbers, so
 * that the sum is exact. */
#include "mark.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_DOWN = 1, TAG_RIGHT, TAG_UP, TAG_LEFT, WARM = 2, MOST = 100000 };

static int rank, size, rows, cols, row, col, edge, depth = 64;

/* work makes a plane's edges that leave from those that came. */
static void work(uint32_t *across, uint32_t *along, uint32_t salt)
{
	for (int i = 0; i < edge; i++) {
		uint32_t a = across[i], b = along[i];
		across[i] = (a * 1664525u + b + salt + i) ^ b >> 7;
		along[i] = (b * 22695477u + a + salt) ^ a >> 9;
	}
}

static uint32_t salt(int at, int k, int back) { return (uint32_t)at * 2654435761u + (uint32_t)k * 40503u + (uint32_t)back; }

static void fill(uint32_t *v, int k)
{
	for (int i = 0; i < edge; i++)
		v[i] = (uint32_t)(k + i);
}

static uint32_t add(const uint32_t *v)
{
	uint32_t s = 0;

	for (int i = 0; i < edge; i++)
		s = s * 31 + v[i];
	return s;
}

static int at(int r, int c) { return r < 0 || r >= rows || c < 0 || c >= cols ? MPI_PROC_NULL : r * cols + c; }

/* pass is one sweep, there or back; it returns what this rank adds to the sum. */
static uint32_t pass(uint32_t *across, uint32_t *along, int back)
{
	int d = back ? -1 : 1, from_row = at(row - d, col), from_col = at(row, col - d);
	int to_row = at(row + d, col), to_col = at(row, col + d);
	int tag_row = back ? TAG_UP : TAG_DOWN, tag_col = back ? TAG_LEFT : TAG_RIGHT;
	uint32_t sum = 0;

	for (int k = 0; k < depth; k++) {
		fill(across, k); /* the border's values, where nobody sends any */
		fill(along, k + 1);
		MPI_Recv(across, edge, MPI_UINT32_T, from_row, tag_row, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Recv(along, edge, MPI_UINT32_T, from_col, tag_col, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		work(across, along, salt(rank, k, back));
		MPI_Send(across, edge, MPI_UINT32_T, to_row, tag_row, MPI_COMM_WORLD);
		MPI_Send(along, edge, MPI_UINT32_T, to_col, tag_col, MPI_COMM_WORLD);
		sum += add(across) ^ add(along);
	}
	return sum;
}

/* alone is the sum of both passes over all ranks, without any message. */
static uint32_t alone(void)
{
	uint32_t sum = 0, *across = malloc((size_t)cols * edge * sizeof *across), *along = malloc(edge * sizeof *along);

	if (!across || !along)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int back = 0; back < 2; back++)
		for (int k = 0; k < depth; k++) {
			for (int c = 0; c < cols; c++)
				fill(across + (size_t)c * edge, k);
			for (int i = 0; i < rows; i++) {
				fill(along, k + 1);
				for (int j = 0; j < cols; j++) {
					int r = back ? rows - 1 - i : i, c = back ? cols - 1 - j : j;
					work(across + (size_t)c * edge, along, salt(r * cols + c, k, back));
					sum += add(across + (size_t)c * edge) ^ add(along);
				}
			}
		}
	free(across);
	free(along);
	return sum;
}

static int by_value(const void *u, const void *v)
{
	double d = *(const double *)u - *(const double *)v;
	return (d > 0) - (d < 0);
}

/* run times sweeps there and back, and returns how many gave a wrong sum. */
static int run(int sweeps, double *times, uint32_t *across, uint32_t *along, uint32_t good)
{
	int wrong = 0;

	for (int i = 0; i < sweeps; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double began = MPI_Wtime();
		uint32_t sum = pass(across, along, 0);
		sum += pass(across, along, 1);
		times[i] = MPI_Wtime() - began;
		MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
		wrong += sum != good;
	}
	MPI_Allreduce(MPI_IN_PLACE, times, sweeps, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return wrong;
}

static int marks, sweeps = 3, bytes = 1280;
static double seconds;

/* prepare reads the options and lays the grid out. */
static void prepare(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-mark") == 0)
			marks = 1;
		else if (strcmp(argv[i], "-seconds") == 0 && i + 1 < argc)
			seconds = atof(argv[++i]);
		else if (strcmp(argv[i], "-sweeps") == 0 && i + 1 < argc)
			sweeps = atoi(argv[++i]);
		else if (strcmp(argv[i], "-depth") == 0 && i + 1 < argc)
			depth = atoi(argv[++i]);
		else
			bytes = atoi(argv[i]);
	}
	edge = bytes / 4;
	if (edge < 1 || depth < 1 || sweeps < 1) {
		fprintf(stderr, "lu: an edge has 4 bytes at least, and there is a plane and a sweep at least\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (rows = 1; (rows + 1) * (rows + 1) <= size; rows++)
		;
	while (size % rows)
		rows--;
	cols = size / rows, row = rank / cols, col = rank % cols;
}

int main(int argc, char **argv)
{
	double warm[WARM], mean = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	prepare(argc, argv);
	uint32_t *across = malloc(2 * (size_t)edge * sizeof *across);
	if (!across)
		MPI_Abort(MPI_COMM_WORLD, 2);
	uint32_t *along = across + edge, good = alone();
	int wrong = run(WARM, warm, across, along, good);
	double fit = seconds / (warm[WARM - 1] + 1e-9);
	if (fit > sweeps)
		sweeps = fit > MOST ? MOST : (int)fit;
	MPI_Bcast(&sweeps, 1, MPI_INT, 0, MPI_COMM_WORLD);
	double *times = malloc(sweeps * sizeof *times);
	if (!times)
		MPI_Abort(MPI_COMM_WORLD, 2);
	if (marks)
		mark("begin", "lu", bytes);
	wrong += run(sweeps, times, across, along, good);
	if (marks)
		mark("end", "lu", bytes);
	if (rank == 0 && !wrong) {
		for (int i = 0; i < sweeps; i++)
			mean += times[i] * 1e6 / sweeps;
		qsort(times, sweeps, sizeof *times, by_value);
		printf("lu %d %.3f %.3f %.1f\n", bytes, mean, times[(long)sweeps * 999 / 1000] * 1e6, bytes * 8.0 * 2 * depth / mean);
		fflush(stdout);
	} else if (rank == 0) {
		fprintf(stderr, "lu: %d sums are wrong\n", wrong);
	}
	MPI_Finalize();
	return wrong != 0;
}
