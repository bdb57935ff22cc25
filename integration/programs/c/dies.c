/* dies HOW: rank 1 ends badly, by a signal (segv, kill) or with exit code 3
 * (exit); the others wait for it for ever. */
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 1 && argc > 1) {
		if (!strcmp(argv[1], "segv"))
			raise(SIGSEGV);
		if (!strcmp(argv[1], "kill"))
			raise(SIGKILL);
		_exit(3);
	}
	for (;;)
		pause();
}
