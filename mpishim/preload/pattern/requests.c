/* Nonblocking and persistent operations: noted from their start until a function
 * of the Wait or Test family, or Request_free, says of their request that it is
 * complete. A program that completes one by a way that we do not see (PMPI_Wait)
 * leaves it noted until the same handle is used again, or MPI_Finalize. All that
 * happens to an entry happens once: a function of Fortran's that calls one of C's
 * does no harm. */
#include "pattern.h"

enum { FREE, BUSY, IDLE, ACTIVE, STATES = 4 };

/* state is a generation × STATES + one of these; every change has a new generation,
 * so that whoever watched a request knows whether it is still the same. */
static struct entry {
	uint32_t state;
	uint32_t hosts;
	int op, persistent;
	word request;
} table[TRACKED];

static int used; /* entries that are not free */

static uint32_t load(uint32_t i) { return __atomic_load_n(&table[i].state, __ATOMIC_ACQUIRE); }

static int claim(uint32_t i, uint32_t was)
{
	uint32_t next = (was & ~(uint32_t)(STATES - 1)) + STATES + BUSY;

	return __atomic_compare_exchange_n(&table[i].state, &was, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void become(uint32_t i, uint32_t what)
{
	uint32_t s = table[i].state;

	__atomic_store_n(&table[i].state, (s & ~(uint32_t)(STATES - 1)) + STATES + what, __ATOMIC_RELEASE);
}

static void release(uint32_t i)
{
	become(i, FREE);
	__atomic_fetch_sub(&used, 1, __ATOMIC_RELEASE);
}

/* seek finds the entry of a request. */
static int seek(word request, uint32_t *slot, uint32_t *state)
{
	uint32_t i, s;

	for (i = 0; i < TRACKED; i++) {
		s = load(i);
		if (s % STATES >= IDLE && __atomic_load_n(&table[i].request, __ATOMIC_RELAXED) == request && load(i) == s) {
			*slot = i;
			*state = s;
			return 1;
		}
	}
	return 0;
}

/* forget ends an entry and what it notes. */
static void forget(uint32_t i, uint32_t state)
{
	if (!claim(i, state))
		return;
	if (state % STATES == ACTIVE)
		page_leave(table[i].op, table[i].hosts);
	release(i);
}

static int add(int op, uint32_t hosts, word request, int persistent)
{
	uint32_t i, s;

	if (seek(request, &i, &s)) /* completed behind our back */
		forget(i, s);
	for (i = 0; i < TRACKED; i++) {
		s = load(i);
		if (s % STATES != FREE || !claim(i, s))
			continue;
		table[i].op = op;
		table[i].hosts = hosts;
		table[i].persistent = persistent;
		__atomic_store_n(&table[i].request, request, __ATOMIC_RELAXED);
		__atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
		become(i, persistent ? IDLE : ACTIVE);
		return 1;
	}
	return 0;
}

void request_begins(struct mark *m, word request)
{
	if (m->hosts && add(m->op, m->hosts, request, 0))
		m->hosts = 0; /* else it ends with the call: better than never */
}

void request_kept(int op, uint32_t hosts, word request)
{
	if (hosts)
		add(op, hosts, request, 1);
}

static word get(word requests, int at, int fortran)
{
	return fortran ? request_f(requests, at) : handle_at(requests, at);
}

static int tracking(void) { return __atomic_load_n(&used, __ATOMIC_ACQUIRE) > 0; }

void request_start(word requests, int n, int fortran)
{
	uint32_t i, s;
	int at;

	if (!tracking())
		return;
	for (at = 0; at < n; at++) {
		if (!seek(get(requests, at, fortran), &i, &s) || s % STATES != IDLE || !claim(i, s))
			continue;
		become(i, page_enter(table[i].op, table[i].hosts) ? ACTIVE : IDLE);
	}
}

void watch_begin(struct watch *w, word requests, int n, int fortran)
{
	uint32_t i, s;
	int at;

	w->n = 0;
	if (!tracking())
		return;
	for (at = 0; at < n && w->n < TRACKED; at++)
		if (seek(get(requests, at, fortran), &i, &s)) {
			w->of[w->n].at = at;
			w->of[w->n].request = table[i].request;
			w->of[w->n].slot = i;
			w->of[w->n++].state = s;
		}
}

static void complete(struct watch *w, int k)
{
	uint32_t i = w->of[k].slot, s = w->of[k].state;

	if (s % STATES != ACTIVE || !claim(i, s))
		return;
	page_leave(table[i].op, table[i].hosts);
	if (table[i].persistent)
		become(i, IDLE);
	else
		release(i);
}

void watch_all(struct watch *w)
{
	int k;

	for (k = 0; k < w->n; k++)
		complete(w, k);
}

void watch_one(struct watch *w, int at)
{
	int k;

	for (k = 0; k < w->n; k++)
		if (w->of[k].at == at)
			complete(w, k);
}

void watch_gone(struct watch *w, word requests, int fortran)
{
	int k;

	for (k = 0; k < w->n; k++)
		if (get(requests, w->of[k].at, fortran) != w->of[k].request)
			complete(w, k);
}

void watch_freed(struct watch *w)
{
	int k;

	for (k = 0; k < w->n; k++)
		forget(w->of[k].slot, w->of[k].state);
}

void requests_clear(void)
{
	uint32_t i, s;

	for (i = 0; i < TRACKED; i++) {
		s = load(i);
		if (s % STATES >= IDLE)
			forget(i, s);
	}
}
