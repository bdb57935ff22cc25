/*
 * libmeshmpi-pattern: tells meshd what an MPI program does, so that meshd paces it.
 *
 * Put before a program with LD_PRELOAD, the library notes in a page of memory that
 * meshd reads (shaper/hint) which all-to-all operations are under way and how many
 * hosts of this site take part, and gives C and Fortran programs the attributes
 * MESH_MAXRATE and MESH_MATB (contrib/meshmpi.h). It never waits, changes no result,
 * argument or error, and does nothing in programs that do not initialise MPI.
 *
 * One library serves every MPI, so no mpi.h is included: MPICH's handles are ints,
 * Open MPI's are pointers, and both fit a word that is passed on as it came. What
 * the library must know of handles it learns at run time, see find.c.
 *
 * page.c      the page, its socket
 * find.c      the MPI: its functions, its handles
 * hosts.c     this site's hosts in a communicator
 * requests.c  operations that end in a Wait or Test
 * calls.c     the functions that C calls;  fortran.c  those that Fortran calls
 * attr.c      the attributes
 *
 * Environment: MESH_HINTS (0 or off: do nothing; /PATH: the socket), else
 * $MESH_STATE/hints.sock; MESH_RANKS, where the ranks are; MESH_MATB, bits per
 * second for the whole job; MESH_PATTERN, alltoall, ft, is, lu, mg, cg, bt or sp.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t word; /* a handle, a pointer, or an int whose upper bits mean nothing */

#define EXPORT __attribute__((visibility("default")))

enum op { ALLTOALL = 1, ALLTOALLV = 2, ALLTOALLW = 3 };

/* page.c */
void page_open(void);
int page_enter(int op, uint32_t hosts); /* 0: no room, and nothing to leave */
void page_leave(int op, uint32_t hosts);
void page_matb(uint64_t bits);
void page_parts(uint64_t parts);
uint64_t page_maxrate(void);

/* find.c */
enum flavour { UNKNOWN, OPENMPI, MPICH };
void *find(const char *name);           /* the function behind ours, or NULL */
void *variable(const char *name);       /* as the program sees it, or NULL */
int missing(const char *name);          /* says so; returns an MPI error code */
void missing_f(word ierr, const char *name); /* the same for Fortran, where the error is an argument */
enum flavour flavour(void);
word handle(word h);                    /* a C handle as it is compared */
word handle_at(word array, int at);     /* one in an array of C's */
word comm_f(word comm);                 /* Fortran's handles: by address */
word request_f(word array, int at);
int comm_is_null(word comm);
word comm_world(void);                  /* MPI_COMM_WORLD */
int group_of(int (*f)(word, word *), word comm, word *group); /* 0: f, which gives a communicator's group, failed */
void group_drop(int (*f)(word *), word group);                /* f is MPI_Group_free */

/* hosts.c */
extern __thread int depth;              /* of our functions on this thread: only the outermost counts */
void pattern_init(void);                /* after MPI_Init, or at the first use */
void pattern_fini(void);                /* before MPI_Finalize */
int pattern_ready(void);
uint32_t hosts_of(word comm);           /* 0: nothing to note */

struct mark { int op; uint32_t hosts; };
void mark_begin(struct mark *m, int op, word comm, int fortran);
void mark_end(struct mark *m);
#define MARK(m) struct mark m __attribute__((cleanup(mark_end))) /* also where an error handler throws */

/* requests.c */
#define TRACKED 64
struct watch { int n; struct { int at; uint32_t slot, state; word request; } of[TRACKED]; };
void request_begins(struct mark *m, word request);             /* takes the mark over */
void request_kept(int op, uint32_t hosts, word request);       /* persistent, not started */
void request_start(word requests, int n, int fortran);
void watch_begin(struct watch *w, word requests, int n, int fortran);
void watch_all(struct watch *w);
void watch_one(struct watch *w, int at);
void watch_freed(struct watch *w);
void watch_gone(struct watch *w, word requests, int fortran); /* those whose handle has changed */
void requests_clear(void);

/* attr.c */
void attr_base(void);                   /* puts the whole job's rate into the page */
int attr_open(void);                    /* makes the keyvals; 0 if that cannot be */
uint32_t attr_hosts(word comm, int *known);
void attr_keep_hosts(word comm, uint32_t hosts);

/* Parameters of functions by their number, all of them words. */
#define P1 word a1
#define P2 P1, word a2
#define P3 P2, word a3
#define P4 P3, word a4
#define P5 P4, word a5
#define P6 P5, word a6
#define P7 P6, word a7
#define P8 P7, word a8
#define P9 P8, word a9
#define P10 P9, word a10
#define P11 P10, word a11
#define P12 P11, word a12
#define A1 a1
#define A2 A1, a2
#define A3 A2, a3
#define A4 A3, a4
#define A5 A4, a5
#define A6 A5, a6
#define A7 A6, a7
#define A8 A7, a8
#define A9 A8, a9
#define A10 A9, a10
#define A11 A10, a11
#define A12 A11, a12
#define P13 P12, word a13
#define A13 A12, a13

/* NEXT declares next, the function behind ours, looked up once. */
#define NEXT(type, name, ...) \
	static type (*known)(__VA_ARGS__); \
	type (*next)(__VA_ARGS__) = __atomic_load_n(&known, __ATOMIC_RELAXED); \
	if (!next) { \
		next = (type (*)(__VA_ARGS__))find(name); \
		__atomic_store_n(&known, next, __ATOMIC_RELAXED); \
	}

#endif
