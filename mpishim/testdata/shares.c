/* The preload library's reading of MESH_RANKS and its shares, without an MPI. */
#include "../preload/pattern/hosts.c"
#include <stdio.h>

/* shares N PATTERN: the parts of a node.  shares table RANK SIZE RANKS: of each rank,
 * the number of its host at this rank's site, or -. */
int main(int argc, char **argv)
{
	int i;

	if (argc == 3)
		return printf("%llu\n", (unsigned long long)parts_of(argv[2], (uint32_t)atoi(argv[1]))) < 0;
	world_rank = atoi(argv[2]);
	world_size = atoi(argv[3]);
	setenv("MESH_RANKS", argv[4], 1);
	runs = read_table();
	for (i = 0; runs && i < world_size; i++)
		printf(host_of(i) == AWAY ? "-" : "%d", host_of(i));
	printf("\n");
	return 0;
}
