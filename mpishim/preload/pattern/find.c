/* The MPI behind us: where its functions are, and what its handles look like. */
#define _GNU_SOURCE
#include "pattern.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A library built with glibc 2.34 or later shall load where glibc is older. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
__asm__(".symver dlopen,dlopen@GLIBC_2.17");
__asm__(".symver dladdr,dladdr@GLIBC_2.17");
#endif

#define LIBRARIES 16
#define NAME 512

struct loaded { int n; char name[LIBRARIES][NAME]; };

static int collect(struct dl_phdr_info *i, size_t size, void *arg)
{
	struct loaded *l = arg;
	const char *base = strrchr(i->dlpi_name, '/');

	(void)size;
	base = base ? base + 1 : i->dlpi_name;
	if (strncmp(base, "libmpi", 6) == 0 && l->n < LIBRARIES && strlen(i->dlpi_name) < NAME)
		strcpy(l->name[l->n++], i->dlpi_name);
	return 0;
}

/* hidden looks into MPI libraries that are loaded but in nobody's scope, as those
 * that an interpreter loads for an extension. */
static void *hidden(const char *name)
{
	struct loaded l;
	void *lib, *p = NULL;
	int i;

	l.n = 0;
	dl_iterate_phdr(collect, &l);
	for (i = 0; i < l.n && !p; i++) {
		lib = dlopen(l.name[i], RTLD_LAZY | RTLD_NOLOAD); /* kept: it must not go */
		if (lib)
			p = dlsym(lib, name);
	}
	return p;
}

void *find(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);
	char profiling[64];

	if (!p)
		p = hidden(name);
	if (!p && strncmp(name, "MPI_", 4) == 0) {
		snprintf(profiling, sizeof profiling, "P%s", name);
		p = dlsym(RTLD_NEXT, profiling);
		if (!p)
			p = hidden(profiling);
	}
	return p;
}

/* missing is for a program that looked for a function, found ours, and has an MPI
 * without it. Without us it would have found none. */
int missing(const char *name)
{
	char line[160];
	int n = snprintf(line, sizeof line, "meshrun: this MPI has no %s\n", name);

	if (n > 0 && write(2, line, n < (int)sizeof line ? (size_t)n : sizeof line) < 0)
		return 16;
	return 16; /* MPI_ERR_OTHER or a neighbour of it: no MPI takes it for success */
}

void missing_f(word ierr, const char *name)
{
	int r = missing(name);

	if (ierr)
		*(int *)ierr = r;
}

/* variable finds a variable where the program sees it: the linker may have moved it
 * into the program itself, which comes before us. */
void *variable(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	return p ? p : hidden(name);
}

static void *world_address, *null_address;

/* learn tells the MPI by a symbol that only Open MPI has, by the version's text for
 * those that have MPICH's ABI. The ABI of MPI 5 has handles of its own and is left
 * alone: nothing is noted there. */
static enum flavour learn(void)
{
	static char text[16384]; /* MPICH wants 8192 */
	int (*version)(char *, int *) = (int (*)(char *, int *))find("PMPI_Get_library_version");
	void *fn = find("PMPI_Alltoall");
	Dl_info where;
	int n = 0;

	world_address = variable("ompi_mpi_comm_world");
	null_address = variable("ompi_mpi_comm_null");
	if (world_address && null_address)
		return OPENMPI;
	if (!version || !fn || !dladdr(fn, &where) || !where.dli_fname || strstr(where.dli_fname, "libmpi_abi"))
		return UNKNOWN;
	if (version(text, &n) != 0)
		return UNKNOWN;
	text[sizeof text - 1] = 0;
	if (strstr(text, "MPICH") || strstr(text, "Intel(R) MPI") || strstr(text, "MVAPICH"))
		return MPICH;
	return UNKNOWN;
}

enum flavour flavour(void)
{
	static int known = -1;
	int f = __atomic_load_n(&known, __ATOMIC_ACQUIRE);

	if (f < 0) {
		f = learn();
		__atomic_store_n(&known, f, __ATOMIC_RELEASE);
	}
	return f;
}

static word of_int(int h) { return (word)(intptr_t)h; }

word handle(word h) { return flavour() == MPICH ? of_int((int)h) : h; }

word handle_at(word array, int at)
{
	return flavour() == MPICH ? of_int(((const int *)array)[at]) : ((const word *)array)[at];
}

/* Fortran's handles are ints everywhere; MPICH's are those of C. */
word comm_f(word comm)
{
	static word (*f2c)(int);

	if (flavour() == MPICH)
		return of_int(*(const int *)comm);
	if (!f2c && !(f2c = (word (*)(int))find("PMPI_Comm_f2c")))
		return 0;
	return f2c(*(const int *)comm);
}

word request_f(word array, int at)
{
	static word (*f2c)(int);
	int h = ((const int *)array)[at];

	if (flavour() == MPICH)
		return of_int(h);
	if (!f2c && !(f2c = (word (*)(int))find("PMPI_Request_f2c")))
		return 0;
	return f2c(h);
}

int comm_is_null(word comm)
{
	if (flavour() == MPICH)
		return (int)comm == 0x04000000;
	return comm == 0 || comm == (word)null_address;
}


word comm_world(void) { return flavour() == MPICH ? of_int(0x44000000) : (word)world_address; }

int group_of(int (*f)(word, word *), word comm, word *group)
{
	word h[2] = { 0, 0 }; /* the handle may be an int */

	if (f(comm, h) != 0)
		return 0;
	*group = handle_at((word)h, 0);
	return 1;
}

void group_drop(int (*f)(word *), word group)
{
	union { word w; int i; } h;

	if (flavour() == MPICH)
		h.i = (int)group;
	else
		h.w = group;
	f(&h.w);
}
