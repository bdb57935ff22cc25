#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int rank, size;
	const char *mode = argc > 1 ? argv[1] : "";
	MPI_Comm other;
	MPI_Init(&argc, &argv);
	MPI_Comm_get_parent(&other);
	if (other != MPI_COMM_NULL) {
		puts("spawned");
		MPI_Barrier(other);
		MPI_Finalize();
		return 0;
	}
	if (!strcmp(mode, "spawn")) {
		MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
		MPI_Barrier(other);
		MPI_Finalize();
		return 0;
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!strcmp(mode, "hello"))
		printf("rank %d of %d on %s %s\n", rank, size, getenv("MESH_NODE"), getenv("MESH_SITE"));
	if (!strcmp(mode, "spam"))
		for (int i = 0; i < 2000; i++) {
			printf("<%d %d ", rank, i);
			for (int k = 0; k < i % 200; k++)
				putchar('a' + rank);
			puts(">");
		}
	fflush(stdout);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1) {
		if (!strcmp(mode, "exit"))
			_exit(3);
		if (!strcmp(mode, "kill"))
			raise(SIGKILL);
		if (!strcmp(mode, "leave"))
			_exit(0);
		if (!strcmp(mode, "abort"))
			MPI_Abort(MPI_COMM_WORLD, 7);
	}
	if (strcmp(mode, "hello") && strcmp(mode, "spam")) {
		puts("waiting");
		fflush(stdout);
		sleep(600);
	}
	MPI_Finalize();
	return 0;
}
