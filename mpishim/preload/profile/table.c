/* The file: what mpishim/profile/record.go describes. One lock guards it, which is
 * hardly ever contended: ranks have one thread that sends, as a rule. */
#define _GNU_SOURCE
#include "profile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x4650534du /* "MSPF" */
#define VERSION 1
#define RANKS 4096       /* of a job that is recorded */
#define CELLS 65536
#define OPS 32
#define FINALIZED 1
#define SHIFT 22         /* the first buckets are 2^22 ns wide, 4.2 ms: the coarse clock's tick is up to 4 */

struct peer { uint64_t messages_bytes, collective_bytes, messages; };
struct file {
	uint32_t magic, version, ranks, rank, buckets, flags;
	uint64_t width, began, elapsed, outside, missed;
	struct { uint64_t calls, bytes; } op[OPS];
	struct peer peer[];
};

_Static_assert(offsetof(struct file, op) == 64 && offsetof(struct file, peer) == 576, "layout");

static struct file *file; /* NULL: nothing is recorded */
static uint64_t *cell, *row;
static int shift = SHIFT, op_now;
static uint64_t base;
static char busy;

enum { UNTRIED, TRYING, READY, OVER };
static int state;

int profile_ready(void) { return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == READY; }

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	return clock_gettime(id, &t) == 0 ? (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec : 0;
}

uint64_t table_now(void) { return clock_ns(CLOCK_MONOTONIC_COARSE) - base; }

/* A child shares the memory and is no rank. */
static void in_child(void)
{
	file = NULL;
	__atomic_store_n(&state, OVER, __ATOMIC_RELEASE);
	__atomic_clear(&busy, __ATOMIC_RELEASE);
}

static uint32_t buckets_of(uint32_t ranks)
{
	uint32_t n = CELLS / ranks;

	return n > 256 ? 256 : n < 16 ? 16 : n & ~1u;
}

/* create makes the file, all of it, so that no write to memory can fail. What others
 * have put in its place is left alone. */
static struct file *create(uint32_t ranks, uint32_t rank)
{
	const char *dir = getenv("MESH_PROFILE");
	char path[4096];
	uint32_t buckets = buckets_of(ranks);
	size_t size = sizeof(struct file) + ranks * sizeof(struct peer) + (size_t)buckets * ranks * sizeof *cell;
	struct file *f;
	int fd, n;

	if (!dir || dir[0] != '/' || (n = snprintf(path, sizeof path, "%s/rank-%u", dir, rank)) < 0 || n >= (int)sizeof path)
		return NULL;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	if (posix_fallocate(fd, 0, (off_t)size) != 0 ||
	    (f = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		unlink(path);
		close(fd);
		return NULL;
	}
	close(fd);
	f->version = VERSION, f->ranks = ranks, f->rank = rank, f->buckets = buckets;
	f->width = 1ull << shift;
	f->began = clock_ns(CLOCK_REALTIME);
	cell = (uint64_t *)&f->peer[ranks];
	__atomic_store_n(&f->magic, MAGIC, __ATOMIC_RELEASE);
	return f;
}

static int begin(void)
{
	int (*initialized)(int *) = (int (*)(int *))find("PMPI_Initialized");
	int (*finalized)(int *) = (int (*)(int *))find("PMPI_Finalized");
	int is = 0, was = 0, size = 0, rank = 0;

	if (!initialized || !finalized || initialized(&is) != 0 || finalized(&was) != 0 || !is || was)
		return UNTRIED;
	if (flavour() == UNKNOWN || !ranks_open(&size, &rank) || size < 1 || size > RANKS)
		return OVER;
	base = clock_ns(CLOCK_MONOTONIC_COARSE);
	file = create((uint32_t)size, (uint32_t)rank);
	if (!file)
		return OVER;
	pthread_atfork(NULL, NULL, in_child);
	return READY;
}

void profile_init(void)
{
	int want = UNTRIED, saved = errno;

	if (__atomic_compare_exchange_n(&state, &want, TRYING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		__atomic_store_n(&state, begin(), __ATOMIC_RELEASE);
	errno = saved;
}

static void lock(void)
{
	while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
		sched_yield();
}

void table_end(void) { __atomic_clear(&busy, __ATOMIC_RELEASE); }

/* double_width puts two buckets into one each, so that as much time again fits. */
static void double_width(void)
{
	size_t n = file->ranks, b, i;

	for (b = 0; b < file->buckets / 2; b++)
		for (i = 0; i < n; i++)
			cell[b * n + i] = cell[2 * b * n + i] + cell[(2 * b + 1) * n + i];
	memset(cell + file->buckets / 2 * n, 0, file->buckets / 2 * n * sizeof *cell);
	file->width = 1ull << ++shift;
}

int table_begin(int op, uint64_t now)
{
	lock();
	if (!file) {
		table_end();
		return 0;
	}
	while (now >> shift >= file->buckets)
		double_width();
	row = cell + (now >> shift) * file->ranks;
	if (now > file->elapsed)
		file->elapsed = now;
	op_now = op;
	file->op[op].calls++;
	return 1;
}

void table_add(int rank, uint64_t bytes, int message)
{
	struct peer *p;

	file->op[op_now].bytes += bytes;
	if (rank < 0 || (uint32_t)rank >= file->ranks) {
		file->outside += bytes;
		return;
	}
	p = &file->peer[rank];
	if (message)
		p->messages_bytes += bytes, p->messages++;
	else
		p->collective_bytes += bytes;
	row[rank] += bytes;
}

void table_missed(void)
{
	lock();
	if (file)
		file->missed++;
	table_end();
}

void profile_fini(void)
{
	int want = READY;
	uint64_t now = table_now();

	if (!__atomic_compare_exchange_n(&state, &want, OVER, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	lock();
	if (file) {
		file->flags |= FINALIZED;
		if (now > file->elapsed)
			file->elapsed = now;
	}
	file = NULL; /* stays mapped: another thread may be between a look and the lock */
	table_end();
}
