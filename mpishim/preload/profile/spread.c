/* Which ranks an operation sends to, and how much: what MPI 4.1 chapters 3, 6 and 8
 * say that each must get of the caller's data. */
#include "profile.h"

__thread int inside __attribute__((tls_model("initial-exec")));

static __thread uint32_t seen __attribute__((tls_model("initial-exec"))); /* calls that count, of C's functions */

static void look(struct entered *e)
{
	if (!profile_ready())
		profile_init();
	if ((e->counts = profile_ready()))
		e->now = table_now();
}

void enter(struct entered *e)
{
	e->counts = 0;
	e->within = 1;
	if (inside++ == 0) {
		look(e);
		seen++;
	}
}

/* enter_f leaves it to C's functions to count where an MPI other than Open MPI calls
 * them from its Fortran. */
void enter_f(struct entered *e)
{
	if (flavour() == OPENMPI) {
		enter(e);
		return;
	}
	e->counts = e->within = 0;
	e->seen = seen;
	if (inside == 0)
		look(e);
}

int counts_f(const struct entered *e) { return e->counts && (e->within || e->seen == seen); }

void leave(struct entered *e)
{
	if (e->within)
		inside--;
}

/* is_root reports whether a root's number says that the caller is it, in an
 * intercommunicator. */
static int is_root(int root) { return root == (flavour() == MPICH ? -3 : -4); }

int in_place(word buf, int fortran)
{
	static const char *const names[] = { "mpi_fortran_in_place_", "mpi_fortran_in_place", "mpi_fortran_in_place__", "MPI_FORTRAN_IN_PLACE" };
	static word known[4];
	static int looked;
	int i;

	if (!fortran)
		return buf == (flavour() == MPICH ? (word)-1 : 1);
	if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
		for (i = 0; i < 4; i++)
			known[i] = (word)variable(names[i]);
		__atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
	}
	for (i = 0; i < 4; i++)
		if (known[i] && known[i] == buf)
			return 1;
	return 0;
}

word type_f(word type)
{
	static word (*f2c)(int);

	if (flavour() == MPICH)
		return (word)(intptr_t)*(const int *)type;
	if (!f2c && !(f2c = (word (*)(int))find("PMPI_Type_f2c")))
		return 0;
	return f2c(*(const int *)type);
}

/* size_of is a type's size in bytes. */
static uint64_t size_of(word type)
{
	static int (*size)(word, int *);
	static int (*large)(word, int64_t *);
	int n = 0;
	int64_t m = 0;

	if (!size && !(size = (int (*)(word, int *))find("PMPI_Type_size")))
		return 0;
	if (size(type, &n) == 0 && n >= 0)
		return (uint64_t)n;
	if (!large && !(large = (int (*)(word, int64_t *))find("PMPI_Type_size_x"))) /* MPI_UNDEFINED: over 2 GiB */
		return 0;
	return large(type, &m) == 0 && m > 0 ? (uint64_t)m : 0;
}

static uint64_t count_at(const struct call *c, int i)
{
	int64_t n = c->large ? (int64_t)((const intptr_t *)c->counts)[i] : ((const int *)c->counts)[i];

	return n > 0 ? (uint64_t)n : 0;
}

/* bytes_at is what the arrays say of the i-th. */
static uint64_t bytes_at(const struct call *c, int i, uint64_t size)
{
	uint64_t n = count_at(c, i);

	if (n == 0 || !c->types)
		return n * size;
	return n * size_of(c->fortran ? type_f((word)((const int *)c->types + i)) : handle_at(c->types, i));
}

int64_t own_count(word counts, word comm, int large)
{
	struct peers *p = peers_of(comm);

	if (!p || p->inter)
		return 0;
	return large ? (int64_t)((const intptr_t *)counts)[p->me] : ((const int *)counts)[p->me];
}

/* shared is block i of count elements that are divided among n. */
static uint64_t shared(uint64_t count, int n, int i) { return count / (uint64_t)n + ((uint64_t)i < count % (uint64_t)n); }

static void each(const struct call *c, const struct peers *p, uint64_t size, void (*give)(void *, int, uint64_t), void *to)
{
	uint64_t count = c->count > 0 ? (uint64_t)c->count : 0;
	int i;

	for (i = 0; i < p->n; i++) {
		if (!p->inter && i == p->me)
			continue;
		switch (c->shape) {
		case TO_EACH_V:
		case DEAL:
			give(to, world_rank(p, i), c->counts ? bytes_at(c, i, size) : count * size);
			break;
		case SHARE: /* what i is to combine of mine, and what I have combined */
			give(to, world_rank(p, i), (shared(count, p->n, i) + (p->inter ? 0 : shared(count, p->n, p->me))) * size);
			break;
		default:
			give(to, world_rank(p, i), count * size);
		}
	}
}

static int near(const struct call *c, struct peers *p, uint64_t size, void (*give)(void *, int, uint64_t), void *to)
{
	int i;

	if (!neighbours(c->comm, p))
		return 0;
	for (i = 0; i < p->outs; i++)
		if (p->out[i] >= 0 && p->out[i] < p->n)
			give(to, world_rank(p, p->out[i]), c->shape == TO_NEAR_V ? bytes_at(c, i, size) : (uint64_t)c->count * size);
	return 1;
}

/* silent reports whether the caller gives nothing, in which case its count and type
 * mean nothing and may be anything: MPI_DATATYPE_NULL, whose size is an error that
 * would end the job. */
static int silent(const struct call *c, const struct peers *p)
{
	int absent = c->root < 0 || c->root >= p->n;

	switch (c->shape) {
	case PEER: return absent;
	case TO_ROOT: return absent || (!p->inter && c->root == p->me);
	case FROM_ROOT:
	case DEAL: return p->inter ? !is_root(c->root) : c->root != p->me;
	case NEXT_RANK: return p->me + 1 >= p->n;
	}
	return 0;
}

int spread(const struct call *c, void (*give)(void *, int, uint64_t), void *to)
{
	struct peers *p = c->shape == NOBODY ? NULL : peers_of(c->comm);
	uint64_t size;

	if (c->shape == NOBODY)
		return 1;
	if (!p)
		return 0;
	if (silent(c, p))
		return 1;
	size = c->types ? 0 : size_of(c->type);
	switch (c->shape) {
	case NEXT_RANK:
		give(to, world_rank(p, p->me + 1), (uint64_t)c->count * size);
		return 1;
	case PEER:
	case TO_ROOT:
		give(to, world_rank(p, c->root), (uint64_t)c->count * size);
		return 1;
	case TO_NEAR:
	case TO_NEAR_V:
		return near(c, p, size, give, to);
	case TO_EACH_V:
		if (p->inter && c->op == REDUCE_SCATTER) /* the counts are those of our own side */
			return 0;
	}
	each(c, p, size, give, to);
	return 1;
}

static void add(void *to, int rank, uint64_t bytes) { table_add(rank, bytes, *(int *)to); }

void note(const struct call *c, uint64_t now)
{
	int message = c->shape == PEER, known;

	if (!table_begin(c->op, now))
		return;
	known = spread(c, add, &message);
	table_end();
	if (!known)
		table_missed();
}
