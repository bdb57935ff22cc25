/* With HOST a program that loads the plugin it is given, without it that plugin: the
 * program knows no MPI, and the plugin's is in nobody else's scope. */
#ifdef HOST
#include <dlfcn.h>

int main(int argc, char **argv)
{
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : 0;
	int (*body)(void) = lib ? (int (*)(void))dlsym(lib, "body") : 0;

	return body ? body() : 1;
}
#else
#include <mpi.h>
#include <stdio.h>

int body(void)
{
	int rank, from[64] = { 0 }, to[64];
	char line[64];
	MPI_Request r;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Alltoall(from, 1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD);
	MPI_Ialltoall(from, 1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("at done\n");
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			return 3;
		printf("good\n");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
#endif
