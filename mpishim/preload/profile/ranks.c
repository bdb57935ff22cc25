/* Communicators: which rank of MPI_COMM_WORLD each of theirs is. That is looked up
 * once and kept with the communicator as an attribute, which MPI drops with it. */
#include "profile.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 256 /* ranks translated at once, on the stack */
#define MOST 4096 /* neighbours, and ranks of a communicator that are kept */

static int (*comm_group)(word, word *), (*comm_remote_group)(word, word *), (*comm_test_inter)(word, int *);
static int (*group_size)(word, int *), (*group_rank)(word, int *), (*group_free)(word *);
static int (*group_translate)(word, int, const int *, word, int *);
static int (*get_attr)(word, int, void *, int *), (*set_attr)(word, int, word);

static int key;
static word world_group;
static struct peers *world;
static uint32_t generation; /* of attributes: one that goes makes what threads remember void */

/* What a thread used last. */
static __thread struct { word comm; uint32_t generation; struct peers *p; } last __attribute__((tls_model("initial-exec")));

/* Threads that meet a communicator at once would both look it up, and the second
 * attribute would drop the first under its reader. The calls inside do not come back
 * to us, and wait for nobody. */
static int busy;

static int *begin(void)
{
	while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
		sched_yield();
	return &busy;
}

static void end(int **held) { __atomic_store_n(*held, 0, __ATOMIC_RELEASE); }

#define ALONE int *held __attribute__((cleanup(end))) = begin() /* also where an error handler throws */

/* copied gives a duplicate what the original has: its ranks are the same. */
static int copied(word comm, word k, word extra, word value, word out, int *flag)
{
	(void)comm, (void)k, (void)extra;
	__atomic_fetch_add(&((struct peers *)value)->refs, 1, __ATOMIC_RELAXED);
	*(word *)out = value;
	*flag = 1;
	return 0;
}

static int dropped(word comm, word k, word value, word extra)
{
	struct peers *p = (struct peers *)value;

	(void)comm, (void)k, (void)extra;
	__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) == 0) {
		free(p->out);
		free(p);
	}
	return 0;
}

/* spawned reports whether this world was started by another: its ranks have the
 * numbers of the first's. */
static int spawned(void)
{
	int (*parent)(word *) = (int (*)(word *))find("PMPI_Comm_get_parent");
	word h[2] = { 0, 0 };

	return parent && parent(h) == 0 && !comm_is_null(handle_at((word)h, 0));
}

int ranks_open(int *size, int *rank)
{
	int (*create)(void *, void *, int *, void *) = (int (*)(void *, void *, int *, void *))find("PMPI_Comm_create_keyval");
#define GET(var, name) ((var) = (__typeof__(var))find(name))
	if (!create || !GET(comm_group, "PMPI_Comm_group") || !GET(comm_remote_group, "PMPI_Comm_remote_group") ||
	    !GET(comm_test_inter, "PMPI_Comm_test_inter") || !GET(group_size, "PMPI_Group_size") ||
	    !GET(group_rank, "PMPI_Group_rank") || !GET(group_free, "PMPI_Group_free") ||
	    !GET(group_translate, "PMPI_Group_translate_ranks") || !GET(get_attr, "PMPI_Comm_get_attr") ||
	    !GET(set_attr, "PMPI_Comm_set_attr") || spawned())
		return 0;
	if (!group_of(comm_group, comm_world(), &world_group) || group_size(world_group, size) != 0 ||
	    group_rank(world_group, rank) != 0 || create((void *)copied, (void *)dropped, &key, NULL) != 0)
		return 0;
	world = calloc(1, sizeof *world);
	if (!world)
		return 0;
	world->n = *size, world->me = *rank, world->refs = 1, world->outs = -1;
	return 1;
}

/* fill translates the ranks of a group. */
static int fill(word g, struct peers *p)
{
	int in[CHUNK], at, i, n;

	for (at = 0; at < p->n; at += n) {
		n = p->n - at < CHUNK ? p->n - at : CHUNK;
		for (i = 0; i < n; i++)
			in[i] = at + i;
		if (group_translate(g, n, in, world_group, p->world + at) != 0)
			return 0;
	}
	return 1;
}

static struct peers *look(word comm)
{
	struct peers *p = NULL;
	word own, g;
	int inter = 0, n = 0, me = 0;

	if (comm_test_inter(comm, &inter) != 0 || !group_of(comm_group, comm, &own))
		return NULL;
	g = own;
	if (inter && !group_of(comm_remote_group, comm, &g)) {
		group_drop(group_free, own);
		return NULL;
	}
	if (group_rank(own, &me) == 0 && group_size(g, &n) == 0 && n > 0 && n <= MOST)
		p = calloc(1, sizeof *p + (size_t)n * sizeof p->world[0]);
	if (p) {
		p->n = n, p->me = me, p->inter = inter, p->refs = 1, p->outs = -1;
		if (!fill(g, p)) {
			free(p);
			p = NULL;
		}
	}
	if (inter)
		group_drop(group_free, g);
	group_drop(group_free, own);
	return p;
}

struct peers *peers_of(word comm)
{
	uint32_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
	struct peers *p = NULL;
	word v = 0;
	int known = 0;

	comm = handle(comm);
	if (comm == handle(comm_world()))
		return world;
	if (last.p && last.comm == comm && last.generation == now)
		return last.p;
	if (comm_is_null(comm))
		return NULL;
	ALONE;
	if (get_attr(comm, key, &v, &known) != 0)
		return NULL;
	if (known)
		p = (struct peers *)v;
	else if ((p = look(comm)) && set_attr(comm, key, (word)p) != 0) {
		free(p);
		return NULL;
	}
	last.p = p, last.comm = comm, last.generation = now;
	return p;
}

int world_rank(const struct peers *p, int rank) { return p == world ? rank : p->world[rank]; }

enum topology { NONE, CART, GRAPH, DIST };

static enum topology topology(word comm)
{
	int (*test)(word, int *) = (int (*)(word, int *))find("PMPI_Topo_test");
	int t = 0;

	if (!test || test(comm, &t) != 0)
		return NONE;
	if (t == 3)
		return DIST;
	if (flavour() == MPICH)
		return t == 1 ? GRAPH : t == 2 ? CART : NONE;
	return t == 1 ? CART : t == 2 ? GRAPH : NONE;
}

static int cart(word comm, int **out)
{
	int (*dims)(word, int *) = (int (*)(word, int *))find("PMPI_Cartdim_get");
	int (*move)(word, int, int, int *, int *) = (int (*)(word, int, int, int *, int *))find("PMPI_Cart_shift");
	int d, n = 0;

	if (!dims || !move || dims(comm, &n) != 0 || n < 0 || n > MOST || !(*out = calloc((size_t)n + 1, 2 * sizeof **out)))
		return -1;
	for (d = 0; d < n; d++)
		if (move(comm, d, 1, &(*out)[2 * d], &(*out)[2 * d + 1]) != 0)
			return -1;
	return 2 * n;
}

static int graph(word comm, int me, int **out)
{
	int (*count)(word, int, int *) = (int (*)(word, int, int *))find("PMPI_Graph_neighbors_count");
	int (*list)(word, int, int, int *) = (int (*)(word, int, int, int *))find("PMPI_Graph_neighbors");
	int n = 0;

	if (!count || !list || count(comm, me, &n) != 0 || n < 0 || n > MOST || !(*out = calloc((size_t)n + 1, sizeof **out)))
		return -1;
	return list(comm, me, n, *out) == 0 ? n : -1;
}

static int dist(word comm, int **out)
{
	int (*count)(word, int *, int *, int *) = (int (*)(word, int *, int *, int *))find("PMPI_Dist_graph_neighbors_count");
	int (*list)(word, int, int *, int *, int, int *, int *) =
		(int (*)(word, int, int *, int *, int, int *, int *))find("PMPI_Dist_graph_neighbors");
	int in = 0, n = 0, weighted = 0, *rest, r;

	if (!count || !list || count(comm, &in, &n, &weighted) != 0 || in < 0 || in > MOST || n < 0 || n > MOST)
		return -1;
	*out = calloc((size_t)n + 1, sizeof **out);
	rest = calloc((size_t)n + 2 * (size_t)in + 1, sizeof *rest);
	r = *out && rest ? list(comm, in, rest, rest + in, n, *out, rest + 2 * in) : -1;
	free(rest);
	return r == 0 ? n : -1;
}

int neighbours(word comm, struct peers *p)
{
	int *out = NULL, n = -1;

	if (__atomic_load_n(&p->outs, __ATOMIC_ACQUIRE) >= 0)
		return 1;
	ALONE;
	if (p->outs >= 0)
		return 1;
	switch (topology(comm)) {
	case CART: n = cart(comm, &out); break;
	case GRAPH: n = graph(comm, p->me, &out); break;
	case DIST: n = dist(comm, &out); break;
	case NONE: break;
	}
	if (n < 0) {
		free(out);
		return 0;
	}
	p->out = out;
	__atomic_store_n(&p->outs, n, __ATOMIC_RELEASE);
	return 1;
}
