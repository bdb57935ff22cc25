/* This site's hosts in a communicator, found without a message: the launcher's
 * table says where each rank of MPI_COMM_WORLD is, and groups say who is in. */
#include "pattern.h"

#include <stdlib.h>
#include <string.h>


#define RUNS 4096   /* hosts of a job, more than which are not told apart */
#define CHUNK 256   /* ranks translated at once, on the stack */
#define AWAY 0xffff /* a host of another site */

__thread int depth __attribute__((tls_model("initial-exec")));

static struct { uint32_t end; uint16_t host; } run[RUNS]; /* consecutive ranks of a host */
static int runs;       /* 0: no table, or one that does not fit */
static int world_size, world_rank, local_size = 1;
static word world_group;

enum { UNTRIED, TRYING, READY, OVER };
static int state;

int pattern_ready(void) { return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == READY; }

/* The functions that are needed of MPI, by their profiling names. */
static int (*comm_group)(word, word *), (*comm_remote_group)(word, word *), (*comm_test_inter)(word, int *);
static int (*group_size)(word, int *), (*group_rank)(word, int *), (*group_free)(word *);
static int (*group_translate)(word, int, const int *, word, int *);
static int (*initialized)(int *), (*finalized)(int *);

static int load(void)
{
#define GET(var, name) ((var) = (__typeof__(var))find(name))
	return GET(comm_group, "PMPI_Comm_group") && GET(comm_remote_group, "PMPI_Comm_remote_group") &&
	       GET(comm_test_inter, "PMPI_Comm_test_inter") && GET(group_size, "PMPI_Group_size") &&
	       GET(group_rank, "PMPI_Group_rank") && GET(group_free, "PMPI_Group_free") &&
	       GET(group_translate, "PMPI_Group_translate_ranks") && GET(initialized, "PMPI_Initialized") &&
	       GET(finalized, "PMPI_Finalized");
}

/* next_run reads one entry, SITE/NODE:RANKS or /NODE:RANKS for the site before. */
static const char *next_run(const char *s, const char **site, size_t *site_len, const char **node, size_t *node_len, unsigned long *n)
{
	const char *slash = strchr(s, '/'), *colon;
	char *end;

	if (!slash)
		return NULL;
	if (slash > s)
		*site = s, *site_len = (size_t)(slash - s);
	colon = strchr(slash, ':');
	if (!colon || !*site)
		return NULL;
	*node = slash + 1;
	*node_len = (size_t)(colon - slash - 1);
	*n = strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || *n == 0 || *n > 1u << 20 || (*end != ',' && *end != 0))
		return NULL;
	return *end ? end + 1 : end;
}

static int equal(const char *a, size_t n, const char *b) { return strlen(b) == n && memcmp(a, b, n) == 0; }

/* read_table takes MESH_RANKS if it is about this world and says of this rank what
 * this node says: a launcher may have placed ranks its own way. */
static int read_table(void)
{
	const char *table = getenv("MESH_RANKS"), *me = getenv("MESH_NODE");
	const char *s, *site = NULL, *node, *own = NULL;
	size_t site_len = 0, node_len, own_len = 0;
	unsigned long n, total = 0;
	int i = 0, mine = 0;

	if (!table || !*table)
		return 0;
	for (s = table; *s; i++) {
		s = next_run(s, &site, &site_len, &node, &node_len, &n);
		if (!s || i == RUNS || total + n > 1u << 20)
			return 0;
		if ((unsigned long)world_rank >= total && (unsigned long)world_rank < total + n) {
			if (me && *me && !equal(node, node_len, me))
				return 0;
			own = site, own_len = site_len;
		}
		total += n;
	}
	if (total != (unsigned long)world_size || !own)
		return 0;
	site = NULL;
	total = 0;
	for (i = 0, s = table; *s; i++) {
		s = next_run(s, &site, &site_len, &node, &node_len, &n);
		total += n;
		run[i].end = (uint32_t)total;
		run[i].host = site_len == own_len && memcmp(site, own, own_len) == 0 ? (uint16_t)mine++ : AWAY;
	}
	return i;
}

static uint16_t host_of(int rank)
{
	int low = 0, high = runs - 1;

	while (low < high) {
		int mid = (low + high) / 2;
		if ((uint32_t)rank < run[mid].end)
			high = mid;
		else
			low = mid + 1;
	}
	return run[low].host;
}

struct seen { uint8_t host[RUNS / 8]; uint32_t hosts; int away; int ranks; };

/* look adds the hosts of a group. */
static void look(word g, struct seen *s)
{
	int in[CHUNK], out[CHUNK], size = 0, at, i, n;

	if (group_size(g, &size) != 0)
		return;
	s->ranks += size;
	for (at = 0; at < size && runs; at += n) {
		n = size - at < CHUNK ? size - at : CHUNK;
		for (i = 0; i < n; i++)
			in[i] = at + i;
		if (group_translate(g, n, in, world_group, out) != 0)
			return;
		for (i = 0; i < n; i++) {
			uint16_t h = out[i] < 0 ? AWAY : host_of(out[i]); /* not of this world: who knows */
			if (h == AWAY)
				s->away = 1;
			else if (!(s->host[h / 8] & 1 << h % 8))
				s->host[h / 8] |= (uint8_t)(1 << h % 8), s->hosts++;
		}
	}
}

/* guess is for jobs without a table: as many hosts as the ranks need if all hosts
 * have as many as this one, all of them of this site. It errs towards slowness. */
static uint32_t guess(int ranks)
{
	int hosts = (world_size + local_size - 1) / local_size;

	if (hosts <= 1 || ranks <= 1)
		return 0;
	return (uint32_t)(hosts < ranks ? hosts : ranks);
}

static uint32_t count(word comm)
{
	struct seen s;
	word g;
	int inter = 0;

	memset(&s, 0, sizeof s);
	if (comm_test_inter(comm, &inter) != 0 || !group_of(comm_group, comm, &g))
		return 0;
	look(g, &s);
	group_drop(group_free, g);
	if (inter && group_of(comm_remote_group, comm, &g)) {
		look(g, &s);
		group_drop(group_free, g);
	}
	if (!runs)
		return guess(s.ranks);
	return s.away ? s.hosts : 0; /* nothing leaves the site */
}

uint32_t hosts_of(word comm)
{
	uint32_t n;
	int known;

	if (!pattern_ready())
		pattern_init();
	if (!pattern_ready() || comm_is_null(comm))
		return 0;
	n = attr_hosts(comm, &known);
	if (!known) {
		n = count(comm);
		attr_keep_hosts(comm, n);
	}
	return n;
}

/* root is the integer square root. */
static uint64_t root(uint64_t v)
{
	uint64_t r = 0, bit = (uint64_t)1 << 62;

	for (; bit > v; bit >>= 2)
		;
	for (; bit; bit >>= 2)
		if (v >= r + bit)
			v -= r + bit, r = (r >> 1) + bit;
		else
			r >>= 1;
	return r;
}

/* parts_of is by what B is divided for a node, in 1024ths, in GridMPI's table: N for
 * all-to-all, LU and MG, N/2 for CG, 2·sqrt(2N) for BT and SP. More than N is never
 * needed, since N nodes at B/N fill the link; less than 1 is not there. */
static uint64_t parts_of(const char *pattern, uint32_t n)
{
	uint64_t parts, most = (uint64_t)n << 10;

	if (!strcmp(pattern, "cg"))
		parts = most / 2;
	else if (!strcmp(pattern, "bt") || !strcmp(pattern, "sp"))
		parts = root((uint64_t)n << 23);
	else if (!strcmp(pattern, "alltoall") || !strcmp(pattern, "ft") || !strcmp(pattern, "is") ||
		 !strcmp(pattern, "lu") || !strcmp(pattern, "mg"))
		parts = most;
	else
		return 0;
	return parts > most ? most : parts < 1024 ? 1024 : parts;
}

static int env_int(const char *name)
{
	const char *s = getenv(name);

	return s ? atoi(s) : 0;
}

static int begin(void)
{
	const char *s;
	uint32_t n;
	int is = 0, was = 0;

	if (!load() || initialized(&is) != 0 || finalized(&was) != 0 || !is || was)
		return UNTRIED;
	s = getenv("MESH_HINTS");
	if ((s && (!strcmp(s, "0") || !strcmp(s, "off"))) || flavour() == UNKNOWN)
		return OVER;
	if (!group_of(comm_group, comm_world(), &world_group) || group_size(world_group, &world_size) != 0 ||
	    group_rank(world_group, &world_rank) != 0)
		return OVER;
	local_size = env_int("OMPI_COMM_WORLD_LOCAL_SIZE");
	if (local_size < 1)
		local_size = env_int("MPI_LOCALNRANKS");
	if (local_size < 1)
		local_size = 1;
	runs = read_table();
	if (!attr_open())
		return OVER;
	page_open();
	attr_base();
	n = count(comm_world());
	s = getenv("MESH_PATTERN");
	if (s && n)
		page_parts(parts_of(s, n));
	return READY;
}

/* pattern_init runs once, on the first thread that comes here with MPI initialised;
 * others that come meanwhile note nothing. */
void pattern_init(void)
{
	int want = UNTRIED;

	if (!__atomic_compare_exchange_n(&state, &want, TRYING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&state, begin(), __ATOMIC_RELEASE);
}

void pattern_fini(void)
{
	int want = READY;

	if (__atomic_compare_exchange_n(&state, &want, OVER, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		requests_clear();
}

void mark_begin(struct mark *m, int op, word comm, int fortran)
{
	m->op = op;
	m->hosts = 0;
	if (depth++ > 0)
		return;
	if (fortran && !pattern_ready())
		pattern_init();
	if (fortran && !pattern_ready())
		return;
	m->hosts = hosts_of(fortran ? comm_f(comm) : comm);
	if (m->hosts && !page_enter(op, m->hosts))
		m->hosts = 0;
}

void mark_end(struct mark *m)
{
	depth--;
	if (m->hosts)
		page_leave(m->op, m->hosts);
}
