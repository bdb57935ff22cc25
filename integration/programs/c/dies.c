/* dies HOW: rank 1 ends badly, by a signal (segv, kill) or with exit code 3
 * (exit); the others wait for it for ever. It does so once rank 0 waits, for a
 * library that still talks to a rank that dies has more to say than a line. */
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
	if (rank == 0)
		MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	if (rank == 1)
		MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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
