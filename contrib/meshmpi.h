/*
 * What a C program may tell and ask meshd of its traffic, by two attributes of any
 * communicator, as GridMPI has them. Rates are in kbyte/s (1000 bytes a second).
 *
 *   MAXRATE  read: the bandwidth of the link between this node's site and the others.
 *            Not there where meshd does not know it.
 *   MATB     the most that this node may send to other sites. Setting it takes effect
 *            at once; the rate that was set last, on whatever communicator, counts. It
 *            is taken back by deleting the attribute, freeing the communicator or
 *            setting 0. Duplicates of a communicator keep the value.
 *
 * The rate is the attribute's value itself, not an address:
 *
 *	int maxrate, matb, there;
 *	void *rate;
 *	if (mesh_keyvals(&maxrate, &matb)) {            // after MPI_Init
 *		MPI_Comm_get_attr(MPI_COMM_WORLD, maxrate, &rate, &there);
 *		if (there)
 *			MPI_Comm_set_attr(MPI_COMM_WORLD, matb, (void *)((long)rate / 4));
 *	}
 *
 * MPI_Attr_get and MPI_Attr_put, of MPI-1, do the same. A rank that meshrun started
 * has the library that answers (libmeshmpi-pattern.so); without it, or without meshd's
 * permission (meshrun --no-hints), mesh_keyvals returns 0 and the program runs as
 * ever. Nothing is linked. With a glibc before 2.34, link with -ldl.
 */
#ifndef MESHMPI_H
#define MESHMPI_H

#include <dlfcn.h>
#include <stddef.h>

/*
 * mesh_keyvals gives the keyvals of the two attributes and returns 1; 0, and
 * nothing, where there are none. Symbols are looked up at run time because weak
 * references to a library that is not linked are null for ever in programs that
 * are no position-independent ones.
 */
static inline int mesh_keyvals(int *maxrate, int *matb)
{
	void *p = dlsym(NULL /* RTLD_DEFAULT */, "meshmpi_keyvals");
	int (*keyvals)(int *, int *);

	if (!p)
		return 0;
	*(void **)&keyvals = p;
	return keyvals(maxrate, matb) == 0;
}

#endif
