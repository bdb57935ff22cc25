/* stream SECONDS: rank 0 and the last rank exchange 64 KiB messages whose
 * content is checked, for that long. Rank 0 prints "begun" after the first, and in
 * the end how many messages went, and the longest time in milliseconds that one
 * exchange took. A wrong byte ends the job with 3. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 64 << 10 };

static unsigned char value(unsigned long n, int i) { return (unsigned char)(n * 131 + i * 7); }

int main(int argc, char **argv)
{
	int rank, size;
	static unsigned char buf[BYTES];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	double seconds = argc > 1 ? atof(argv[1]) : 10, begin = MPI_Wtime(), worst = 0;
	int last = size - 1;
	unsigned long n = 0;
	char go = 1;
	if (rank == 0) {
		while (go) {
			double t = MPI_Wtime();
			go = t - begin < seconds;
			for (int i = 0; i < BYTES; i++)
				buf[i] = value(n, i);
			buf[0] = (unsigned char)go;
			MPI_Send(buf, BYTES, MPI_BYTE, last, 1, MPI_COMM_WORLD);
			MPI_Recv(buf, BYTES, MPI_BYTE, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (int i = 1; i < BYTES; i++)
				if (buf[i] != value(n + 1, i))
					MPI_Abort(MPI_COMM_WORLD, 3);
			t = MPI_Wtime() - t;
			if (t > worst)
				worst = t;
			if (n++ == 0) {
				printf("begun\n");
				fflush(stdout);
			}
		}
		printf("exchanged %lu worst_ms %.0f\n", n, worst * 1e3);
	} else if (rank == last) {
		while (go) {
			MPI_Recv(buf, BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			go = (char)buf[0];
			for (int i = 1; i < BYTES; i++)
				if (buf[i] != value(n, i))
					MPI_Abort(MPI_COMM_WORLD, 3);
			for (int i = 0; i < BYTES; i++)
				buf[i] = value(n + 1, i);
			MPI_Send(buf, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
			n++;
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
