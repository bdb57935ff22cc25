/* The page: its layout is described in shaper/hint/page.go. */
#define _GNU_SOURCE
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#endif
#define SEALS 0x7 /* SEAL, SHRINK, GROW */

#define SIZE 4096
#define SLOTS 64
#define COUNT 0xffffu
#define HOSTS 65536u

struct page {
	uint32_t magic, version;
	uint64_t generation, matb, parts, maxrate, dropped, unused[2];
	uint64_t entered[8], left[8], more[8];
	uint64_t slot[SLOTS];
};

_Static_assert(offsetof(struct page, entered) == 64 && offsetof(struct page, slot) == 256, "layout");

#define MAGIC 0x544e484du
#define VERSION 1

static struct page nobody; /* written to where there is no memory to share */
static struct page *page = &nobody;
static int memory = -1, sock = -1;
static int64_t next_look; /* seconds of the monotonic clock */
static char busy;         /* somebody looks after the socket */
static struct sockaddr_un addr;

#define LOAD(p) __atomic_load_n(&(p), __ATOMIC_SEQ_CST)
#define ADD(p, n) __atomic_fetch_add(&(p), n, __ATOMIC_SEQ_CST)
#define SWAP(p, old, new) __atomic_compare_exchange_n(&(p), &(old), new, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

static void changed(void) { ADD(page->generation, 1); }

/* offer connects to meshd and hands it the page; nothing here waits. */
static void offer(void)
{
	uint32_t hello[2] = { MAGIC, VERSION };
	struct iovec v = { hello, sizeof hello };
	union { char b[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = sizeof control.b };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (s < 0)
		return;
	memset(&control, 0, sizeof control);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &memory, sizeof(int));
	if (connect(s, (struct sockaddr *)&addr, sizeof addr) != 0 ||
	    sendmsg(s, &m, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
		close(s);
		return;
	}
	sock = s;
}

/* ours reports whether the descriptor is still the socket: a program may have closed
 * what it did not open, and then the number may be another file's. */
static int ours(void)
{
	struct sockaddr_un peer;
	socklen_t n = sizeof peer;

	memset(&peer, 0, sizeof peer);
	return sock >= 0 && getpeername(sock, (struct sockaddr *)&peer, &n) == 0 && peer.sun_family == AF_UNIX &&
	       strncmp(peer.sun_path, addr.sun_path, sizeof peer.sun_path) == 0;
}

/* lost reports whether the socket is of no use, and closes it where meshd is gone. */
static int lost(void)
{
	char b;
	ssize_t n;

	if (!ours())
		return 1;
	n = recv(sock, &b, 1, MSG_DONTWAIT | MSG_PEEK);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		close(sock);
		return 1;
	}
	return 0;
}

/* keep looks once a second, at an operation, whether meshd has ended or come. */
static void keep(void)
{
	struct timespec t;
	int saved = errno;

	if (memory < 0 || clock_gettime(CLOCK_MONOTONIC_COARSE, &t) != 0 ||
	    t.tv_sec < __atomic_load_n(&next_look, __ATOMIC_RELAXED) || __atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) {
		errno = saved;
		return;
	}
	__atomic_store_n(&next_look, t.tv_sec + 1, __ATOMIC_RELAXED);
	if (sock >= 0 && lost())
		sock = -1;
	if (sock < 0)
		offer();
	__atomic_clear(&busy, __ATOMIC_RELEASE);
	errno = saved;
}

/* A child has no MPI, and must not keep its parent's page alive. */
static void in_child(void)
{
	if (ours())
		close(sock);
	sock = memory = -1;
	page = &nobody;
}

static int find_socket(void)
{
	const char *own = getenv("MESH_HINTS"), *state = getenv("MESH_STATE");
	const char *tail = "/hints.sock";

	if (own && own[0] == '/')
		state = own, tail = "";
	if (!state || !state[0])
		state = "/var/lib/meshd";
	if (strlen(state) + strlen(tail) >= sizeof addr.sun_path)
		return 0;
	addr.sun_family = AF_UNIX;
	strcpy(addr.sun_path, state);
	strcat(addr.sun_path, tail);
	return 1;
}

void page_open(void)
{
	void *p;
	int fd;

	if (!find_socket())
		return;
	fd = (int)syscall(SYS_memfd_create, "meshmpi-hint", 3u /* CLOEXEC, ALLOW_SEALING */);
	if (fd < 0)
		return;
	if (posix_fallocate(fd, 0, SIZE) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0 ||
	    (p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		close(fd);
		return;
	}
	page = p;
	page->version = VERSION;
	page->magic = MAGIC;
	memory = fd;
	pthread_atfork(NULL, NULL, in_child);
	keep();
}

int page_enter(int op, uint32_t hosts)
{
	uint64_t key, v;
	int i;

	if (hosts > HOSTS)
		hosts = HOSTS;
	key = (uint64_t)hosts << 32 | (uint64_t)op << 16;
	for (i = 0; i < SLOTS; i++) {
		v = LOAD(page->slot[i]);
		while ((v & ~(uint64_t)COUNT) == key && (v & COUNT) != 0 && (v & COUNT) < COUNT)
			if (SWAP(page->slot[i], v, v + 1))
				goto noted;
	}
	for (i = 0; i < SLOTS; i++) {
		v = 0;
		if (SWAP(page->slot[i], v, key | 1))
			goto noted;
	}
	ADD(page->dropped, 1);
	return 0;
noted:
	ADD(page->entered[op], 1);
	changed();
	keep();
	return 1;
}

void page_leave(int op, uint32_t hosts)
{
	uint64_t key, v;
	int i;

	if (hosts > HOSTS)
		hosts = HOSTS;
	key = (uint64_t)hosts << 32 | (uint64_t)op << 16;
	for (i = 0; i < SLOTS; i++) {
		v = LOAD(page->slot[i]);
		while ((v & ~(uint64_t)COUNT) == key && (v & COUNT) != 0)
			if (SWAP(page->slot[i], v, (v & COUNT) == 1 ? 0 : v - 1)) {
				ADD(page->left[op], 1);
				changed();
				return;
			}
	}
}

void page_matb(uint64_t bits)
{
	__atomic_store_n(&page->matb, bits, __ATOMIC_SEQ_CST);
	changed();
	keep();
}

void page_parts(uint64_t parts)
{
	__atomic_store_n(&page->parts, parts, __ATOMIC_SEQ_CST);
	changed();
}

uint64_t page_maxrate(void)
{
	keep();
	return LOAD(page->maxrate);
}
