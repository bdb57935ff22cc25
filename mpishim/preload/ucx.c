/*
 * libmeshmpi-ucx: lets MPICH on UCX make progress while it waits for its
 * process manager.
 *
 * In MPI_Finalize, MPICH 4.0 and 4.1 close their UCX connections, wait until
 * their own are closed, and then block in a PMI barrier. A rank in that barrier
 * no longer answers its peers, and a peer whose connections still need an
 * answer waits for ever: jobs that have done their work never end, the more
 * often the slower the network or the busier the machine. MPICH 4.2 took the
 * barrier out (pmodels/mpich pull request 6596).
 *
 * This library is put before such ranks with LD_PRELOAD. It remembers the UCX
 * worker that the program drives, and while the program reads from its process
 * manager (PMI_FD) and nothing has come, it goes on driving that worker. It
 * changes no result and does nothing in programs without UCX or PMI_FD. One
 * worker is remembered, the last one driven; MPICH has one by default.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static void *worker;

/* behind finds UCX's function, also where UCX came with an extension that an
 * interpreter has loaded and is in nobody's scope. */
static void *behind(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name), *ucp;

	if (!p && (ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD)))
		p = dlsym(ucp, name);
	return p;
}

unsigned ucp_worker_progress(void *w)
{
	static unsigned (*next)(void *);

	if (!next)
		next = (unsigned (*)(void *))behind("ucp_worker_progress");
	worker = w;
	return next(w);
}

void ucp_worker_destroy(void *w)
{
	static void (*next)(void *);

	if (!next)
		next = (void (*)(void *))behind("ucp_worker_destroy");
	if (worker == w)
		worker = NULL;
	next(w);
}

ssize_t read(int fd, void *buf, size_t n)
{
	static ssize_t (*next)(int, void *, size_t);
	static int pmi = -2; /* -2: not looked up yet, -1: none */

	if (!next)
		next = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	if (pmi == -2) {
		const char *s = getenv("PMI_FD");
		pmi = s ? atoi(s) : -1;
	}
	if (fd == pmi && worker) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		while (worker && poll(&p, 1, 0) == 0)
			if (!ucp_worker_progress(worker))
				sched_yield();
	}
	return next(fd, buf, n);
}
