/* hello: every rank says where it runs, and all add up what they hold. It ends
 * with 1 if the sum is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, size, len;
	long mine, sum;
	char host[MPI_MAX_PROCESSOR_NAME];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Get_processor_name(host, &len);
	mine = rank + 1;
	MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	const char *site = getenv("MESH_SITE");
	printf("rank %d of %d on %s site %s sum %ld\n", rank, size, host, site ? site : "-", sum);
	fflush(stdout);
	MPI_Finalize();
	return sum == (long)size * (size + 1) / 2 ? 0 : 1;
}
