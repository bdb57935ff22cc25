/* Persistent operations: what each sends is worked out when it is made, and counted
 * whenever it is started. */
#include "profile.h"

#include <sched.h>
#include <stdlib.h>

#define SLOTS 4096 /* operations that are known at once; a power of two */

static struct kept { word request; int op, message, n; struct part *part; } table[SLOTS];
static int used;
static char busy;

static void lock(void)
{
	while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void unlock(void) { __atomic_clear(&busy, __ATOMIC_RELEASE); }

static uint32_t home(word request) { return (uint32_t)((uint64_t)request * 0x9e3779b97f4a7c15u >> 40) & (SLOTS - 1); }

/* seek returns where a request is, or the free slot where it would be. */
static uint32_t seek(word request)
{
	uint32_t i = home(request);

	while (table[i].part && table[i].request != request)
		i = (i + 1) & (SLOTS - 1);
	return i;
}

/* empty frees a slot and moves those up that had to make way for it. */
static void empty(uint32_t i)
{
	uint32_t j = i, k;

	free(table[i].part);
	table[i].part = NULL;
	used--;
	for (;;) {
		j = (j + 1) & (SLOTS - 1);
		if (!table[j].part)
			return;
		k = home(table[j].request);
		if (i <= j ? i < k && k <= j : i < k || k <= j)
			continue;
		table[i] = table[j];
		table[j].part = NULL;
		i = j;
	}
}

struct list { int n, room; struct part *part; };

static void collect(void *to, int rank, uint64_t bytes)
{
	struct list *l = to;
	struct part *more;

	if (l->n == l->room) {
		more = realloc(l->part, (size_t)(l->room * 2) * sizeof *more);
		if (!more)
			return;
		l->part = more, l->room *= 2;
	}
	l->part[l->n].rank = rank;
	l->part[l->n++].bytes = bytes;
}

void request_keep(const struct call *c, word request)
{
	struct list l = { 0, 1, malloc(sizeof(struct part)) };
	uint32_t i;

	if (!l.part || !spread(c, collect, &l)) {
		free(l.part);
		table_missed();
		return;
	}
	lock();
	i = seek(request);
	if (table[i].part) { /* freed behind our back, and the handle used anew */
		empty(i);
		i = seek(request);
	}
	if (used < SLOTS / 2) {
		table[i] = (struct kept){ request, c->shape == PEER ? START : c->op, c->shape == PEER, l.n, l.part };
		used++;
		l.part = NULL;
	}
	unlock();
	if (l.part) {
		free(l.part);
		table_missed();
	}
}

void request_drop(word request)
{
	uint32_t i;

	if (!__atomic_load_n(&used, __ATOMIC_RELAXED))
		return;
	lock();
	i = seek(request);
	if (table[i].part)
		empty(i);
	unlock();
}

void request_begin(word requests, int n, int fortran, uint64_t now)
{
	struct kept *k;
	int at, i;

	for (at = 0; at < n && __atomic_load_n(&used, __ATOMIC_RELAXED); at++) {
		lock();
		k = &table[seek(fortran ? request_f(requests, at) : handle_at(requests, at))];
		if (k->part && table_begin(k->op, now)) {
			for (i = 0; i < k->n; i++)
				table_add(k->part[i].rank, k->part[i].bytes, k->message);
			table_end();
		}
		unlock();
	}
}
