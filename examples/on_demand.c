// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * on_demand.c: measures the cost of memory registration. A pinned region has
 * all its pages in memory, from its registration on. A region on demand has no
 * pages at first, and the adapter requests each page at its first access. An
 * implicit region is the whole address space of a process, which is registered
 * once.
 *
 * The program measures the time of registration and the pinned memory for
 * several sizes. Then it measures the first access of the adapter to a page, a
 * later access, and the first access after a prefetch. The queue pair is
 * connected to itself.
 *
 *   on_demand [-d DEVICE] [-m LARGEST-MIB] [-n PAGES]
 */
#include <getopt.h>
#include <sys/mman.h>

#include "peer.h"

#define PAGE 4096
#define MIB (1ul << 20)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static struct peer peer = { .gid_index = PEER_GID_V2 };
static struct ibv_qp_ex *qpx;
static struct ibv_mr *pinned;	/* local memory of each write */

/* Maps memory without pages, which the first access allocates. */
static char *memory_new(size_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED, "no memory");
	/* With huge pages, one page fault would page in 512 pages */
	madvise(memory, length, MADV_NOHUGEPAGE);
	return memory;
}

/*
 * Returns a value of this process in KiB. VmPin is pinned memory, and VmRSS is
 * resident memory.
 */
static long status(const char *name)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[128];
	long kib = 0;

	check(file, "/proc/self/status");
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			kib = atol(line + strlen(name) + 1);
	fclose(file);
	return kib;
}

static struct ibv_mr *region(char *memory, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(peer.pd, memory, length, ACCESS | access);

	check(mr, "cannot register memory");
	return mr;
}

enum kind { PINNED, TOUCHED, EXPLICIT, IMPLICIT, KINDS };
static const char *const kind_name[] = { "pinned", "touched", "explicit", "implicit" };

/*
 * Prints the fastest registration of a few, because other load only adds time.
 */
static void registration(enum kind kind, size_t mib)
{
	double start, time, best = 1e9;
	long pin = 0, resident = 0;
	struct ibv_mr *mr;
	int round;

	for (round = 0; round < 3; round++) {
		char *memory = memory_new(mib * MIB);

		if (kind == TOUCHED)
			memset(memory, 1, mib * MIB);
		pin = status("VmPin");
		resident = status("VmRSS");
		start = microseconds();
		if (kind == IMPLICIT)
			mr = region(NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND);
		else
			mr = region(memory, mib * MIB, kind == EXPLICIT ? IBV_ACCESS_ON_DEMAND : 0);
		time = microseconds() - start;
		best = time < best ? time : best;
		pin = status("VmPin") - pin;
		resident = status("VmRSS") - resident;
		ibv_dereg_mr(mr);
		munmap(memory, mib * MIB);
	}
	printf("csv register,%s,%zu,%.1f,%ld,%ld\n", kind_name[kind], mib, best, pin, resident);
}

/* Returns the time of an access of 64 bytes by the adapter, in microseconds. */
static double access_one(bool read, struct ibv_mr *mr, char *page, int value)
{
	struct ibv_mr *from = read ? mr : pinned, *to = read ? pinned : mr;
	char *other = pinned->addr;
	double start;

	if (!read)
		memset(other, value, 64);
	start = microseconds();
	ibv_wr_start(qpx);
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qpx, to->rkey, (uintptr_t)(read ? other : page));
	ibv_wr_set_sge(qpx, from->lkey, (uintptr_t)(read ? page : other), 64);
	check(!ibv_wr_complete(qpx), "cannot post");
	peer_complete(&peer);
	return microseconds() - start;
}

static int earlier(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Prints the median over all pages, each of which is accessed once. */
static void accesses(const char *kind, bool read, struct ibv_mr *mr, char *memory, int pages)
{
	double *times = calloc(pages, sizeof(*times));
	int i;

	check(times, "no memory");
	for (i = 0; i < pages; i++)
		times[i] = access_one(read, mr, memory + (size_t)i * PAGE, i + *kind);
	/*
	 * The check comes last, because it makes the page present for the CPU
	 */
	for (i = 0; i < pages && !read; i++)
		check(memory[(size_t)i * PAGE] == (char)(i + *kind), "a wrong byte");
	qsort(times, pages, sizeof(*times), earlier);
	printf("csv %s,%s,0,%.1f,0,0\n", read ? "read" : "write", kind, times[pages / 2]);
	free(times);
}

/* Prefetches all pages and waits until they are present. */
static void prefetch(bool read, struct ibv_mr *mr, int pages)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, pages * PAGE, mr->lkey };
	double start = microseconds();

	errno = ibv_advise_mr(peer.pd, read ? IBV_ADVISE_MR_ADVICE_PREFETCH :
			      IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			      IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
	check(!errno, "cannot prefetch");
	printf("csv %s,prefetch,0,%.2f,0,0\n", read ? "read" : "write",
	       (microseconds() - start) / pages);
}

static void touches(bool read, int pages)
{
	char *memory = memory_new((size_t)pages * PAGE), *second = memory_new((size_t)pages * PAGE);
	struct ibv_mr *mr = region(memory, (size_t)pages * PAGE, IBV_ACCESS_ON_DEMAND);

	accesses("first", read, mr, memory, pages);
	accesses("later", read, mr, memory, pages);
	ibv_dereg_mr(mr);

	mr = region(second, (size_t)pages * PAGE, IBV_ACCESS_ON_DEMAND);
	prefetch(read, mr, pages);
	accesses("prefetched", read, mr, second, pages);
	ibv_dereg_mr(mr);
	munmap(memory, (size_t)pages * PAGE);
	munmap(second, (size_t)pages * PAGE);
}

int main(int argc, char **argv)
{
	struct ibv_qp_cap cap = { 1, 1, 1, 1, 0 };
	int option, kind, pages = 256;
	size_t largest = 64, mib;
	const char *name = NULL;

	while ((option = getopt(argc, argv, "d:m:n:")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'm')
			largest = atoi(optarg);
		else if (option == 'n')
			pages = atoi(optarg);
		else
			return usage("on_demand [-d DEVICE] [-m LARGEST-MIB] [-n PAGES]");
	}
	peer_open(&peer, name);
	pinned = peer_memory(&peer, PAGE);
	qpx = peer_itself(&peer, cap, IBV_QP_EX_WITH_RDMA_WRITE);

	printf("csv what,kind,mib,microseconds,pinned_kib,resident_kib\n");
	for (mib = 1; mib <= largest; mib *= 4)
		for (kind = 0; kind < KINDS; kind++)
			registration(kind, mib);
	touches(true, pages);
	touches(false, pages);
	return 0;
}
