/* The attributes. MESH_MAXRATE and MESH_MATB are keyvals of MPI's own making, so a
 * value set is kept, copied to duplicates and freed by MPI; here it only takes effect
 * besides, and what is not stored at all, MAXRATE, is filled in. A third keyval, that
 * nobody else knows, keeps the number of hosts with each communicator. */
#include "pattern.h"

#include <stdlib.h>

#define INVALID (-1)     /* no MPI makes this a keyval */
#define KBYTE 8000u      /* bits: rates are in kbyte/s, as GridMPI's */
#define MOST 12500000000 /* kbyte/s: shaper/hint's MaxMATB */

static int key_hosts = INVALID, key_maxrate = INVALID, key_matb = INVALID;
static uint64_t base; /* bits per second for the whole job */
static word owner;    /* communicator whose MATB is in force */

static int (*get_attr)(word, int, void *, int *), (*set_attr)(word, int, word);

/* copied gives a duplicate what the original has. */
static int copied(word comm, word key, word extra, word value, word out, int *flag)
{
	(void)comm, (void)key, (void)extra;
	*(word *)out = value;
	*flag = 1;
	return 0;
}

static int kept(word comm, word key, word value, word extra)
{
	(void)comm, (void)key, (void)value, (void)extra;
	return 0;
}

/* withdrawn is called when the attribute or its communicator goes, and before it
 * is set anew. */
static int withdrawn(word comm, word key, word value, word extra)
{
	(void)key, (void)value, (void)extra;
	if (__atomic_load_n(&owner, __ATOMIC_RELAXED) == handle(comm)) {
		__atomic_store_n(&owner, 0, __ATOMIC_RELAXED);
		page_matb(base);
	}
	return 0;
}

int attr_open(void)
{
	int (*create)(void *, void *, int *, void *) =
		(int (*)(void *, void *, int *, void *))find("PMPI_Comm_create_keyval");
	const char *s = getenv("MESH_MATB");

	get_attr = (int (*)(word, int, void *, int *))find("PMPI_Comm_get_attr");
	set_attr = (int (*)(word, int, word))find("PMPI_Comm_set_attr");
	if (s)
		base = strtoull(s, NULL, 10);
	return create && get_attr && set_attr && create((void *)copied, (void *)kept, &key_hosts, NULL) == 0 &&
	       create((void *)copied, (void *)kept, &key_maxrate, NULL) == 0 &&
	       create((void *)copied, (void *)withdrawn, &key_matb, NULL) == 0;
}

void attr_base(void)
{
	if (base)
		page_matb(base);
}

uint32_t attr_hosts(word comm, int *known)
{
	word v = 0;

	*known = 0;
	if (get_attr(comm, key_hosts, &v, known) != 0)
		*known = 0;
	return *known ? (uint32_t)v : 0;
}

void attr_keep_hosts(word comm, uint32_t hosts) { set_attr(comm, key_hosts, hosts); }

/* meshmpi_keyvals gives a program the keyvals, once MPI is initialised; 0 if it may
 * use them. */
EXPORT int meshmpi_keyvals(int *maxrate, int *matb);
EXPORT int meshmpi_keyvals(int *maxrate, int *matb)
{
	if (!pattern_ready())
		pattern_init();
	if (!pattern_ready())
		return INVALID;
	*maxrate = key_maxrate;
	*matb = key_matb;
	return 0;
}

/* in_force has a rate of the program's take effect; 0 or less takes it back. */
static void in_force(word comm, intptr_t rate)
{
	uint64_t bits = rate > MOST ? (uint64_t)MOST * KBYTE : (uint64_t)rate * KBYTE;

	__atomic_store_n(&owner, rate > 0 ? handle(comm) : 0, __ATOMIC_RELAXED);
	page_matb(rate > 0 ? bits : base);
}

static int is(word key, int ours) { return ours != INVALID && (int)key == ours; }

/* rate is MAXRATE in kbyte/s; 0 where meshd has not said. */
static intptr_t rate(void) { return (intptr_t)(page_maxrate() / KBYTE); }

static int put(int (*next)(P3), word comm, word key, word value)
{
	int r = next(comm, key, value);

	if (r == 0 && is(key, key_matb))
		in_force(comm, (intptr_t)value);
	return r;
}

static int got(int (*next)(P4), word comm, word key, word out, word flag)
{
	int r = next(comm, key, out, flag);
	intptr_t b;

	if (r != 0 || !is(key, key_maxrate))
		return r;
	b = rate();
	*(int *)flag = b > 0;
	if (b > 0)
		*(intptr_t *)out = b;
	return r;
}

#define PUT(name) \
	EXPORT int name(P3); \
	EXPORT int name(P3) \
	{ \
		NEXT(int, #name, P3) \
		return next ? put(next, A3) : missing(#name); \
	}
#define GOT(name) \
	EXPORT int name(P4); \
	EXPORT int name(P4) \
	{ \
		NEXT(int, #name, P4) \
		return next ? got(next, A4) : missing(#name); \
	}

PUT(MPI_Comm_set_attr)
PUT(MPI_Attr_put)
GOT(MPI_Comm_get_attr)
GOT(MPI_Attr_get)

/* Fortran's values are integers, of a default integer's size in the old functions;
 * ours are kept as C does, so that both languages see the same. */
static int ours(word key) { return is(key, key_matb) || is(key, key_maxrate); }

static void put_f(word comm, word key, intptr_t value, word ierr)
{
	word c = comm_f(comm);
	int r = set_attr(c, *(int *)key, (word)value);

	if (r == 0 && is((word) * (int *)key, key_matb))
		in_force(c, value);
	if (ierr)
		*(int *)ierr = r;
}

static int got_f(word comm, word key, intptr_t *value, word flag, word ierr)
{
	word v = 0;
	int found = 0, r = get_attr(comm_f(comm), *(int *)key, &v, &found);

	if (is((word) * (int *)key, key_maxrate))
		v = (word)rate(), found = v != 0;
	*(int *)flag = found; /* .TRUE. is 1 or, to those who test one bit, as good */
	*value = (intptr_t)v;
	if (ierr)
		*(int *)ierr = r;
	return r == 0 && found;
}

#define PUT_F(name, type) \
	EXPORT void name(P4); \
	EXPORT void name(P4) \
	{ \
		NEXT(void, #name, P4) \
		if (ours((word) * (int *)a2)) \
			put_f(a1, a2, *(type *)a3, a4); \
		else if (next) \
			next(A4); \
		else \
			*(int *)a4 = missing(#name); \
	}
#define GOT_F(name, type) \
	EXPORT void name(P5); \
	EXPORT void name(P5) \
	{ \
		NEXT(void, #name, P5) \
		intptr_t v; \
		if (ours((word) * (int *)a2)) { \
			if (got_f(a1, a2, &v, a4, a5)) \
				*(type *)a3 = (type)v; \
		} else if (next) \
			next(A5); \
		else \
			*(int *)a5 = missing(#name); \
	}
#define NAMES(macro, lower, upper, type) macro(lower, type) macro(lower##_, type) macro(lower##__, type) macro(upper, type)

NAMES(PUT_F, mpi_comm_set_attr, MPI_COMM_SET_ATTR, intptr_t)
PUT_F(mpi_comm_set_attr_f08_, intptr_t)
NAMES(PUT_F, mpi_attr_put, MPI_ATTR_PUT, int)
NAMES(GOT_F, mpi_comm_get_attr, MPI_COMM_GET_ATTR, intptr_t)
GOT_F(mpi_comm_get_attr_f08_, intptr_t)
NAMES(GOT_F, mpi_attr_get, MPI_ATTR_GET, int)
