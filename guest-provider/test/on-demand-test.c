// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * on-demand-test.c: tests memory regions on demand while a process frees and
 * moves memory, forks, or has memory swapped out. Every byte is compared.
 *
 * The arguments are the adapter, the index of the GID, and the name of a single
 * test. With "stress" it is the stress test, in a cgroup with less memory. With
 * "lists" it is the memory that is charged to the cgroup "lists". With
 * "unfinished" it is an upper page list for which the kernel cannot allocate a
 * lower one.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define PAGE 4096u
#define PAGES 64u
#define LENGTH (PAGES * PAGE)
#define HUGE_LENGTH (4u << 20)
#define STRESS_LENGTH (48u << 20)
#define STRESS_ROUNDS 400

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/*
 * Source and destination of the data, and the expected contents of the
 * destination
 */
static struct memory {
	uint8_t *addr;
	size_t length;
	struct ibv_mr *mr;
} from, to;
static uint8_t *want;
static struct pair pair;
static uint32_t seed = 1;

static uint32_t random_below(uint32_t limit)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 8) % limit;
}

static void fill_memory(uint8_t *at, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		at[i] = random_below(256);
}

static void memory_map(struct memory *m, size_t length)
{
	m->length = length;
	m->addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(m->addr != MAP_FAILED);
}

static void memory_register(struct memory *m, bool implicit)
{
	int access = IBV_ACCESS_LOCAL_WRITE | remote_rights() |
		     IBV_ACCESS_ON_DEMAND;

	m->mr = implicit ? ibv_reg_mr(pd, NULL, SIZE_MAX, access) :
			   ibv_reg_mr(pd, m->addr, m->length, access);
	CHECK(m->mr);
}

static void begin(size_t length, bool implicit)
{
	struct ibv_qp_cap cap = { 32, 32, 1, 1, 0 };

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	CHECK(!pair_make(&pair, &cap, 0) && !pair_connect(&pair));
	memory_map(&from, length);
	memory_map(&to, length);
	memory_register(&from, implicit);
	memory_register(&to, implicit);
	want = calloc(1, length);
	CHECK(want);
}

static void end(void)
{
	CHECK(!ibv_dereg_mr(from.mr) && !ibv_dereg_mr(to.mr));
	CHECK(!pair_free(&pair));
	munmap(from.addr, from.length);
	munmap(to.addr, to.length);
	free(want);
}

/*
 * Executes one operation. A read uses the second queue pair, so that the data
 * has the same direction.
 */
static enum ibv_wc_status transfer(enum ibv_wr_opcode opcode, size_t at, size_t dest,
				   uint32_t length)
{
	bool read = opcode == IBV_WR_RDMA_READ;
	struct memory *local = read ? &to : &from, *remote = read ? &from : &to;
	size_t there = read ? at : dest, here = read ? dest : at;
	struct ibv_sge sge = {
		(uintptr_t)local->addr + here, length, local->mr->lkey
	};
	struct ibv_sge recv = {
		(uintptr_t)to.addr + dest, length, to.mr->lkey
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)remote->addr + there, remote->mr->rkey },
	}, *bad;
	struct ibv_wc wc, received;

	if (opcode == IBV_WR_SEND)
		CHECK(!recv_one(pair.qp[1], &recv, 1, 1));
	CHECK(!ibv_post_send(pair.qp[0], &wr, &bad));
	CHECK(poll_one(pair.send_cq, &wc) == 1);
	if (opcode == IBV_WR_SEND) {
		CHECK(poll_one(pair.recv_cq, &received) == 1);
		CHECK(received.status || received.byte_len == length);
	}
	if (wc.status)
		printf("# %s (syndrome %u), opcode %d, %u bytes at %zu to %zu\n",
		       ibv_wc_status_str(wc.status), wc.vendor_err, opcode,
		       length, at, dest);
	return wc.status;
}

static const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
};

/* Copies all of the memory with each kind of operation. */
static void all_over(void)
{
	unsigned int i;

	for (i = 0; i < 3; i++) {
		fill_memory(from.addr, PAGE);
		CHECK(!transfer(opcodes[i], 0, 0, from.length));
		CHECK(!memcmp(from.addr, to.addr, from.length));
	}
}

static void test_explicit(void)
{
	begin(LENGTH, false);
	fill_memory(from.addr, LENGTH);
	all_over();
	end();
}

/*
 * Tests an implicit region, also with memory that was mapped after the
 * registration.
 */
static void test_implicit(void)
{
	begin(LENGTH, true);
	fill_memory(from.addr, LENGTH);
	all_over();
	munmap(from.addr, LENGTH);
	munmap(to.addr, LENGTH);
	memory_map(&from, HUGE_LENGTH);
	memory_map(&to, HUGE_LENGTH);
	fill_memory(from.addr, HUGE_LENGTH);
	all_over();
	end();
}

/*
 * Tests that freed pages are zero when they are used again, for the program and
 * for the device.
 */
static void test_dontneed(void)
{
	static const uint8_t zero[LENGTH];
	unsigned int i;

	begin(LENGTH, false);
	for (i = 0; i < 3; i++) {
		fill_memory(from.addr, LENGTH);
		CHECK(!transfer(opcodes[i], 0, 0, LENGTH));
		CHECK(!madvise(to.addr, LENGTH, MADV_DONTNEED));
		CHECK(!memcmp(to.addr, zero, LENGTH));
		CHECK(!madvise(to.addr, LENGTH, MADV_DONTNEED));
		CHECK(!transfer(opcodes[i], PAGE, 100, 5 * PAGE));
		CHECK(!memcmp(to.addr + 100, from.addr + PAGE, 5 * PAGE));
		CHECK(!memcmp(to.addr + 100 + 5 * PAGE, zero,
			      LENGTH - 5 * PAGE - 100));
		CHECK(!madvise(from.addr, LENGTH, MADV_DONTNEED));
		CHECK(!transfer(opcodes[i], 0, 0, LENGTH));
		CHECK(!memcmp(to.addr, zero, LENGTH));
	}
	end();
}

/*
 * Checks that an operation fails because memory is not mapped, and that only
 * this queue pair fails.
 */
static void fails(enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
	struct ibv_qp_cap cap = { 32, 32, 1, 1, 0 };

	CHECK(transfer(opcode, 0, 0, LENGTH) == status);
	CHECK(!pair_free(&pair));
	CHECK(!pair_make(&pair, &cap, 0) && !pair_connect(&pair));
}

/* Tests that the region uses new memory at the same address. */
static void test_moved(void)
{
	uint8_t *old;

	begin(LENGTH, false);
	fill_memory(from.addr, LENGTH);
	all_over();
	old = from.addr;
	from.addr = mremap(old, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED,
			   (uint8_t *)to.addr + (64 << 20));
	CHECK(from.addr != MAP_FAILED);
	memcpy(want, from.addr, LENGTH);
	from.addr = old;
	fails(IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR);
	fails(IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR);
	CHECK(!memcmp((uint8_t *)to.addr + (64 << 20), want, LENGTH));
	munmap((uint8_t *)to.addr + (64 << 20), LENGTH);

	CHECK(mmap(old, LENGTH, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == old);
	fill_memory(from.addr, LENGTH);
	all_over();
	munmap(to.addr, LENGTH);
	fails(IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
	fails(IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR);
	fails(IBV_WR_SEND, IBV_WC_REM_OP_ERR);
	end();
}

/*
 * Tests that the device may write only to memory that the process may write to.
 */
static void test_protected(void)
{
	begin(LENGTH, false);
	fill_memory(from.addr, LENGTH);
	all_over();
	memcpy(want, to.addr, LENGTH);
	fill_memory(from.addr, LENGTH);
	CHECK(!mprotect(to.addr, LENGTH, PROT_READ));
	fails(IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
	CHECK(!memcmp(to.addr, want, LENGTH));
	CHECK(!mprotect(from.addr, LENGTH, PROT_READ));
	CHECK(!mprotect(to.addr, LENGTH, PROT_READ | PROT_WRITE));
	CHECK(!transfer(IBV_WR_RDMA_WRITE, 0, 0, LENGTH));
	CHECK(!memcmp(to.addr, from.addr, LENGTH));
	end();
}

/*
 * Tests a fork: the child keeps the old data, and the parent sees new data of
 * the device.
 */
static void test_fork(void)
{
	int go[2], status;
	uint8_t byte = 0;
	pid_t child;

	begin(LENGTH, false);
	fill_memory(from.addr, LENGTH);
	all_over();
	memcpy(want, to.addr, LENGTH);
	CHECK(!pipe(go));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		close(go[1]);
		if (read(go[0], &byte, 1) != 1)
			_exit(2);
		_exit(memcmp(to.addr, want, LENGTH) ||
		      memcmp(from.addr, want, LENGTH));
	}
	close(go[0]);
	fill_memory(from.addr, LENGTH);
	CHECK(!transfer(IBV_WR_RDMA_WRITE, 0, 0, LENGTH));
	CHECK(!memcmp(to.addr, from.addr, LENGTH));
	CHECK(memcmp(to.addr, want, LENGTH));
	CHECK(write(go[1], &byte, 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && !status);
	close(go[1]);
	end();
}

/* Tests huge pages that are allocated, split, and allocated again. */
static void test_huge(void)
{
	begin(HUGE_LENGTH, false);
	madvise(from.addr, HUGE_LENGTH, MADV_HUGEPAGE);
	madvise(to.addr, HUGE_LENGTH, MADV_HUGEPAGE);
	fill_memory(from.addr, HUGE_LENGTH);
	all_over();
	CHECK(!madvise(to.addr + 5 * PAGE, 20 * PAGE, MADV_DONTNEED));
	CHECK(!madvise(from.addr + 3 * PAGE, PAGE, MADV_DONTNEED));
	all_over();
	madvise(to.addr, HUGE_LENGTH, MADV_COLLAPSE);
	madvise(from.addr, HUGE_LENGTH, MADV_COLLAPSE);
	all_over();
	end();
}

static void test_swap(void)
{
	begin(LENGTH, false);
	fill_memory(from.addr, LENGTH);
	all_over();
	memcpy(want, from.addr, LENGTH);
	CHECK(!madvise(from.addr, LENGTH, MADV_PAGEOUT));
	CHECK(!madvise(to.addr, LENGTH, MADV_PAGEOUT));
	CHECK(!transfer(IBV_WR_RDMA_READ, 0, 0, LENGTH));
	CHECK(!memcmp(to.addr, want, LENGTH));
	end();
}

static void test_prefetch(void)
{
	struct ibv_sge sge;
	unsigned int flags;

	begin(LENGTH, false);
	fill_memory(from.addr, LENGTH);
	sge = (struct ibv_sge){ (uintptr_t)to.addr, LENGTH, to.mr->lkey };
	for (flags = 0; flags <= IBV_ADVISE_MR_FLAG_FLUSH; flags++)
		CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				     flags, &sge, 1));
	all_over();
	sge.length++;
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	sge.length = 1;
	sge.addr--;
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	sge.lkey ^= 1;
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == ENOENT);
	sge.addr = (uintptr_t)buffer;
	sge.lkey = mr->lkey;
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == ENOENT);
	end();
}

/* Returns the sum of the numbers behind a word in the output of a command. */
static long sum_of(const char *command, const char *name)
{
	FILE *output = popen(command, "r");
	long sum = 0, number;
	char word[64];

	if (!output)
		return -1;
	while (fscanf(output, "%63s", word) == 1)
		if (!strcmp(word, name) && fscanf(output, "%ld", &number) == 1)
			sum += number;
	pclose(output);
	return sum;
}

/* Returns the number of prefetched pages, as the kernel counts them. */
static long prefetched(void)
{
	return sum_of("rdma statistic show mr", "page_prefetch");
}

/*
 * Tests prefetching without page faults, which counts only pages that are
 * present.
 */
static void test_prefetch_present(void)
{
	struct ibv_sge sge;

	begin(LENGTH, false);
	madvise(to.addr, LENGTH, MADV_NOHUGEPAGE);
	sge = (struct ibv_sge){ (uintptr_t)to.addr, LENGTH, to.mr->lkey };
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			     IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(prefetched() == 0);
	to.addr[0] = to.addr[LENGTH - 1] = 1;
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			     IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(prefetched() == 2);
	end();
}

/*
 * Page lists. The tests use PARTS parts of the address space, each with a page
 * list. All pages are the zero page, so only the kernel's memory for the region
 * is used.
 */
#define PART_LENGTH (512 * PAGE)
#define PARTS 64u

static long page_lists(void)
{
	return sum_of("rdma -dd resource show mr", "drv_page_lists");
}

/*
 * Waits until the number of page lists has fallen, because a work item frees
 * them some time after they become empty.
 */
static bool page_lists_fall_to(long limit)
{
	int tries;

	for (tries = 0; tries < 600; tries++) {
		if (page_lists() <= limit)
			return true;
		usleep(50000);
	}
	printf("# %ld page lists, and at most %ld expected\n", page_lists(), limit);
	return false;
}

static uint8_t *parts_map(size_t parts)
{
	uint8_t *at = mmap(NULL, (parts + 1) * PART_LENGTH, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(at != MAP_FAILED);
	CHECK(!madvise(at, (parts + 1) * PART_LENGTH, MADV_NOHUGEPAGE));
	return at;
}

static uint8_t *parts_begin(uint8_t *map)
{
	return (uint8_t *)(((uintptr_t)map + PART_LENGTH - 1) & ~(PART_LENGTH - 1ul));
}

static struct ibv_mr *whole_address_space(void)
{
	struct ibv_mr *whole = ibv_reg_mr(pd, NULL, SIZE_MAX,
					  IBV_ACCESS_LOCAL_WRITE |
					  IBV_ACCESS_ON_DEMAND);

	CHECK(whole);
	return whole;
}

static int bring(const struct ibv_mr *region, enum ib_uverbs_advise_mr_advice advice,
		 const uint8_t *at, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)at, length, region->lkey };

	return ibv_advise_mr(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
}

/* Tests that a page list is freed with its last page, and allocated again. */
static void lists_go(bool implicit)
{
	uint8_t *map = parts_map(PARTS), *at = parts_begin(map);
	unsigned int round, i;
	struct ibv_mr *region;
	long before;

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	region = implicit ? whole_address_space() :
			    ibv_reg_mr(pd, at, PARTS * PART_LENGTH,
				       IBV_ACCESS_LOCAL_WRITE |
				       IBV_ACCESS_ON_DEMAND);
	CHECK(region);
	before = page_lists();
	CHECK(before > 0);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < PARTS; i++)
			CHECK(!bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH,
				     at + i * PART_LENGTH + i * PAGE, 3 * PAGE));
		CHECK(page_lists() >= before + (long)PARTS);
		/* All pages but one of each part are freed */
		for (i = 0; i < PARTS; i++)
			CHECK(!madvise(at + i * PART_LENGTH + i * PAGE, 2 * PAGE,
				       MADV_DONTNEED));
		CHECK(page_lists() >= before + (long)PARTS);
		CHECK(!madvise(at, PARTS * PART_LENGTH, MADV_DONTNEED));
		CHECK(page_lists_fall_to(before));
	}
	CHECK(!ibv_dereg_mr(region));
	munmap(map, (PARTS + 1) * PART_LENGTH);
}

static void test_lists_go(void)
{
	lists_go(false);
	lists_go(true);
}

/* Tests that a page list is freed although no page of it was ever present. */
static void test_lists_of_nothing(void)
{
	uint8_t *map = parts_map(PARTS), *at = parts_begin(map);
	struct ibv_mr *region;
	unsigned int i;
	long before;

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	region = whole_address_space();
	before = page_lists();
	CHECK(before > 0);
	for (i = 0; i < PARTS; i++)
		CHECK(!bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			     at + i * PART_LENGTH, PAGE));
	CHECK(page_lists_fall_to(before));
	CHECK(!mprotect(at, PARTS * PART_LENGTH, PROT_NONE));
	for (i = 0; i < PARTS; i++)
		CHECK(bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    at + i * PART_LENGTH, PAGE) == EFAULT);
	CHECK(page_lists_fall_to(before));
	CHECK(!ibv_dereg_mr(region));
	munmap(map, (PARTS + 1) * PART_LENGTH);
}

/*
 * Registers memory on demand in a context that this user has opened. Returns 0
 * or the errno value.
 */
static int register_as(uid_t user, uint8_t *at)
{
	struct ibv_context *other;
	struct ibv_pd *other_pd;
	struct ibv_mr *region;
	int err = 0;

	CHECK(!seteuid(user));
	other = ibv_open_device(context->device);
	CHECK(!seteuid(0) && other);
	other_pd = ibv_alloc_pd(other);
	CHECK(other_pd);
	region = ibv_reg_mr(other_pd, at, PARTS * PART_LENGTH,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	if (!region)
		err = errno;
	else
		CHECK(!ibv_dereg_mr(region));
	CHECK(!ibv_dealloc_pd(other_pd) && !ibv_close_device(other));
	return err;
}

/* Tests the limit of a user, for which freed lists do not count. */
static void test_limit(void)
{
	/*
	 * The limit is one list for each part of the memory, plus 4096. Twice
	 * as many are too many
	 */
	size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * PAGE / PART_LENGTH;
	size_t most = 2 * (memory + 4096), i, again;
	uint8_t *map, *at;
	struct ibv_mr *region, *too_large;
	int err = 0;

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	map = parts_map(most);
	at = parts_begin(map);
	region = whole_address_space();
	for (i = 0; i < most && !err; i++)
		err = bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    at + i * PART_LENGTH, PAGE);
	printf("# %zu parts of %zu, then %s\n", i - 1, most, strerror(err));
	CHECK(err == ENOMEM && i > memory + 1024);
	errno = 0;
	too_large = ibv_reg_mr(pd, at, PARTS * PART_LENGTH,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK(!too_large && errno == ENOMEM);
	CHECK(register_as(0, at) == ENOMEM);
	CHECK(register_as(65534, at) == 0);

	/*
	 * The next call follows at once, because the limit must not depend on
	 * how fast the kernel frees lists
	 */
	err = 0;
	CHECK(!madvise(at, most * PART_LENGTH, MADV_DONTNEED));
	/*
	 * The loop stops one part earlier, because these addresses may need one
	 * more upper list
	 */
	for (again = 0; !err && again < i - 2; again++)
		err = bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    at + (most - 1 - again) * PART_LENGTH, PAGE);
	printf("# %zu parts again, from %p down, then %s\n", again,
	       (void *)(at + (most - 1) * PART_LENGTH), strerror(err));
	CHECK(!err);
	CHECK(!ibv_dereg_mr(region));
	too_large = ibv_reg_mr(pd, at, PARTS * PART_LENGTH,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK(too_large && !ibv_dereg_mr(too_large));
	munmap(map, (most + 1) * PART_LENGTH);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/*
 * Tests that a killed process ends at once, although it is in a long prefetch.
 */
static void test_killed(void)
{
	uint8_t *map = parts_map(1024), *at = parts_begin(map);
	double part, killed;
	int go[2], status;
	struct ibv_mr *region;
	uint8_t byte = 0;
	pid_t child;

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	CHECK(!pipe(go));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		/*
		 * The process has its own context, because the end of the
		 * context destroys all objects
		 */
		struct ibv_context *own = ibv_open_device(context->device);
		struct ibv_pd *own_pd = own ? ibv_alloc_pd(own) : NULL;

		region = own_pd ? ibv_reg_mr(own_pd, NULL, SIZE_MAX,
					     IBV_ACCESS_ON_DEMAND) : NULL;
		if (!region)
			_exit(1);
		pd = own_pd;
		part = seconds();
		if (bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH, at, 16 * PART_LENGTH))
			_exit(1);
		part = seconds() - part;
		if (write(go[1], &part, sizeof(part)) != sizeof(part))
			_exit(1);
		bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH, at + 16 * PART_LENGTH,
		      1000u * PART_LENGTH);
		(void)!write(go[1], &byte, 1);
		_exit(2);
	}
	close(go[1]);
	CHECK(read(go[0], &part, sizeof(part)) == sizeof(part));
	usleep(part * 2e6);
	killed = seconds();
	kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child);
	killed = seconds() - killed;
	printf("# 16 parts in %.3f s; killed in 1000 parts, it ended after %.3f s\n",
	       part, killed);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(read(go[0], &byte, 1) == 0);
	/* The whole prefetch would take more than 50 times as long */
	CHECK(killed < 15 * part);
	close(go[0]);
	munmap(map, 1025 * PART_LENGTH);
}

/*
 * Returns the memory of page lists that is charged to the cgroup of the
 * process.
 */
static long charged(const char *name)
{
	return sum_of("cat /sys/fs/cgroup/lists/memory.stat", name);
}

static void test_charged(void)
{
	uint8_t *map = parts_map(8 * PARTS), *at = parts_begin(map);
	struct ibv_mr *region;
	unsigned int i;
	long grown;

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	region = whole_address_space();
	grown = charged("pagetables") + charged("slab") - charged("kernel");
	for (i = 0; i < 8 * PARTS; i++)
		CHECK(!bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH,
			     at + i * PART_LENGTH, PAGE));
	grown += charged("kernel") - charged("pagetables") - charged("slab");
	printf("# %ld bytes for %u lists\n", grown, 8 * PARTS);
	/* The kernel counts in batches, so a small part is not counted yet */
	CHECK(grown >= 7l * PARTS * PAGE);
	CHECK(!ibv_dereg_mr(region));
	munmap(map, (8 * PARTS + 1) * PART_LENGTH);
}

/*
 * Sets a parameter of the kernel module that makes the allocation of page lists
 * fail.
 */
static bool set_refuse(const char *parameter, int value)
{
	char path[64];
	FILE *file;
	bool good;

	snprintf(path, sizeof(path), "/sys/module/refuse/parameters/%s", parameter);
	file = fopen(path, "w");
	if (!file)
		return false;
	good = fprintf(file, "%d\n", value) > 0;
	return !fclose(file) && good;
}

/*
 * Tests a failed allocation. The table has four levels, so the first page needs
 * three new lists. The kernel fails to allocate the third, frees the other two,
 * and retries.
 */
static void test_unfinished_list(void)
{
	uint8_t *map = parts_map(1);
	struct ibv_mr *region;

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	region = whole_address_space();
	CHECK(set_refuse("skip", 2) && set_refuse("times", 1));
	CHECK(!bring(region, IBV_ADVISE_MR_ADVICE_PREFETCH, map, PAGE));
	CHECK(sum_of("printf 'times '; cat /sys/module/refuse/parameters/times",
		     "times") == 0);
	CHECK(!ibv_dereg_mr(region));
	munmap(map, 2 * PART_LENGTH);
}

/*
 * Limit of pages that are taken away during one transfer. If a page takes long
 * to come, it would otherwise be taken away before its use, again and again.
 */
#define MOST_TAKEN 64

static volatile bool stop;
static atomic_int may_take;

/* Takes pages of the region away from the device, but keeps their contents. */
static void *take_away(void *unused)
{
	uint32_t state = 7;

	while (!stop) {
		struct memory *m;
		size_t first, length;

		usleep(500);
		if (!atomic_load(&may_take))
			continue;
		atomic_fetch_sub(&may_take, 1);
		state = state * 1103515245 + 12345;
		m = state & 0x10000 ? &from : &to;
		first = (state >> 8) % (m->length / PAGE) * PAGE;
		length = m->length - first < 64 * PAGE ? m->length - first :
							 64 * PAGE;
		switch (state >> 28 & 3) {
		case 0:
			madvise(m->addr + first, length, MADV_COLLAPSE);
			break;
		case 1:
			/*
			 * Only the source is protected. The destination stays
			 * writable, because otherwise the device could not
			 * write to it
			 */
			if (m == &to)
				break;
			mprotect(m->addr + first, length, PROT_READ);
			mprotect(m->addr + first, length, PROT_READ | PROT_WRITE);
			break;
		default:
			madvise(m->addr + first, length, MADV_PAGEOUT);
			break;
		}
	}
	return unused;
}

static void stress(size_t length, unsigned int rounds)
{
	pthread_t thread;
	unsigned int i;

	begin(length, false);
	fill_memory(from.addr, length);
	CHECK(!pthread_create(&thread, NULL, take_away, NULL));
	for (i = 0; i < rounds; i++) {
		uint32_t part = 1 + random_below(64 * PAGE);
		size_t at = random_below(length - part);
		size_t dest = random_below(length - part);
		enum ibv_wr_opcode opcode = opcodes[random_below(3)];

		memcpy(want + dest, from.addr + at, part);
		atomic_store(&may_take, MOST_TAKEN);
		CHECK(!transfer(opcode, at, dest, part));
		CHECK(!memcmp(to.addr + dest, want + dest, part));
	}
	stop = true;
	pthread_join(thread, NULL);
	CHECK(!memcmp(to.addr, want, length));
	end();
}

static void test_stress(void)
{
	stress(HUGE_LENGTH, STRESS_ROUNDS);
}

static void test_small_cgroup(void)
{
	stress(STRESS_LENGTH, STRESS_ROUNDS);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		fprintf(stderr, "no adapter: %s\n", strerror(errno));
		return 1;
	}
	if (argc > 3 && !strcmp(argv[3], "stress")) {
		run("more memory on demand than the cgroup has", test_small_cgroup);
		return tear_down();
	}
	if (argc > 3 && !strcmp(argv[3], "lists")) {
		run("page lists are charged to the cgroup", test_charged);
		return tear_down();
	}
	if (argc > 3 && !strcmp(argv[3], "unfinished")) {
		run("an upper page list without a lower one", test_unfinished_list);
		return tear_down();
	}
	run("on demand: first touch", test_explicit);
	run("on demand: all of the address space", test_implicit);
	run("on demand: freed memory", test_dontneed);
	run("on demand: memory is moved, unmapped and replaced", test_moved);
	run("on demand: read-only memory", test_protected);
	run("on demand: fork", test_fork);
	run("on demand: huge pages", test_huge);
	run("on demand: memory is swapped out", test_swap);
	run("on demand: prefetch", test_prefetch);
	run("on demand: prefetch of present pages", test_prefetch_present);
	run("on demand: page lists are freed with their pages", test_lists_go);
	run("on demand: a page list without pages is freed", test_lists_of_nothing);
	run("on demand: the limit of page lists", test_limit);
	run("on demand: a long prefetch is killed", test_killed);
	run("on demand: pages are taken away at any time", test_stress);
	return tear_down();
}
