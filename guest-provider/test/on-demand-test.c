// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * on-demand-test.c: memory regions on demand, while a process does with its memory what
 * processes do: gives it back, moves it, forks, has it swapped out. Every byte is
 * compared. An argument "stress" after the index of the GID: only that, with memory for
 * a cgroup that is smaller.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

/* Data goes from one to the other; want is what should be in the second. */
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

/* One operation; reads go from the second queue pair, so that data goes the same way. */
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

/* Each kind of operation takes all of the memory over. */
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

/* Also memory that was not there when the region was made */
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

/* What is given back is zero when it comes again, for program and device. */
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

/* An operation on memory that is not there fails, and costs only its queue pair. */
static void fails(enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
	struct ibv_qp_cap cap = { 32, 32, 1, 1, 0 };

	CHECK(transfer(opcode, 0, 0, LENGTH) == status);
	CHECK(!pair_free(&pair));
	CHECK(!pair_make(&pair, &cap, 0) && !pair_connect(&pair));
}

/* Other memory at the same address is what the region has from then on. */
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

/* The device may write only what the process may. */
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

/* After a fork the child keeps what was, and the parent sees what the device writes. */
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

/* Huge pages that come, are cut to pieces, and come again */
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

/* The pages that were brought by prefetches, as the kernel counts them */
static long prefetched(void)
{
	FILE *statistics = popen("rdma statistic show mr", "r");
	long sum = 0, pages;
	char word[64];

	if (!statistics)
		return -1;
	while (fscanf(statistics, "%63s", word) == 1)
		if (!strcmp(word, "page_prefetch") &&
		    fscanf(statistics, "%ld", &pages) == 1)
			sum += pages;
	pclose(statistics);
	return sum;
}

/* Where nothing is brought, only what was there counts. */
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
 * Of each transfer some pages are taken away, and not more: where a page takes long to
 * come, it would go again before it is used, for ever.
 */
#define MOST_TAKEN 64

static volatile bool stop;
static atomic_int may_take;

/* What takes pages away, and leaves what is in them */
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
			/* Where the device writes, it would rightly be refused. */
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
		run("more memory on demand than there is", test_small_cgroup);
		return tear_down();
	}
	run("on demand: first touch", test_explicit);
	run("on demand: all of the address space", test_implicit);
	run("on demand: memory given back", test_dontneed);
	run("on demand: memory moved, unmapped, and other memory there", test_moved);
	run("on demand: memory that may not be written", test_protected);
	run("on demand: fork", test_fork);
	run("on demand: huge pages", test_huge);
	run("on demand: memory paged out", test_swap);
	run("on demand: prefetch", test_prefetch);
	run("on demand: prefetch of what is there", test_prefetch_present);
	run("on demand: pages that go at any time", test_stress);
	return tear_down();
}
