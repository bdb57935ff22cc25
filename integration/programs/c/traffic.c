/* traffic alltoall|ring|die BYTES ROUNDS: sends what a test knows to the byte. In
 * alltoall each rank gives each other BYTES a round, in ring each the next BYTES and
 * a halo of one byte to the one before it. die is ring, after which rank 1 ends without
 * MPI_Finalize. Its twin in Go is go/traffic. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int rank, size, bytes, rounds, i, ring;
	char *out, *in;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc < 4)
		MPI_Abort(MPI_COMM_WORLD, 2);
	ring = strcmp(argv[1], "alltoall") != 0;
	bytes = atoi(argv[2]), rounds = atoi(argv[3]);
	out = calloc((size_t)size, (size_t)bytes), in = calloc((size_t)size, (size_t)bytes);
	for (i = 0; i < rounds; i++) {
		if (!ring) {
			MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
			continue;
		}
		MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % size, 0, in, bytes, MPI_BYTE, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Sendrecv(out, 1, MPI_BYTE, (rank + size - 1) % size, 1, in, 1, MPI_BYTE, (rank + 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (!strcmp(argv[1], "die") && rank == 1)
		_exit(3);
	if (rank == 0)
		printf("done\n");
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
