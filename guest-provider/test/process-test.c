// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * process-test.c: tests shared virtual addressing: work requests register
 * memory of the process, which is not pinned. The memory comes from malloc(),
 * the stack, files and tmpfs, and is unmapped, forked and swapped out. Every
 * byte is compared.
 *
 * The arguments are the adapter, the index of the GID, and the name of a single
 * test. With "hold" the program registers and writes until it is killed. With
 * "refused" it checks that shared virtual addressing is not available.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define PAGE 4096u
#define LENGTH (64 * PAGE)
#define HUGE_LENGTH (4u << 20)

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

/* Memory with a key; addresses of the key begin at start */
struct memory {
	uint8_t *addr;
	size_t length;
	uint64_t start;
	struct qrnicdv_mkey *key;
};

static struct memory from, to;
static struct pair pair;
static struct ibv_qp_ex *qpx[2];
static uint8_t *want;

static void pair_begin(void)
{
	struct ibv_qp_cap cap = { 32, 32, 1, 1, 0 };
	int i;

	memset(&pair, 0, sizeof(pair));
	CHECK(!pair_make(&pair, &cap, IBV_QP_EX_WITH_SEND |
				      IBV_QP_EX_WITH_RDMA_WRITE |
				      IBV_QP_EX_WITH_RDMA_READ |
				      IBV_QP_EX_WITH_LOCAL_INV));
	CHECK(!pair_connect(&pair));
	for (i = 0; i < 2; i++)
		qpx[i] = ibv_qp_to_qp_ex(pair.qp[i]);
}

static struct qrnicdv_mkey *key_make(void)
{
	struct qrnicdv_mkey_init_attr attr = {
		.pd = pd, .kind = QRNICDV_MKEY_PROCESS,
	};
	struct qrnicdv_mkey *key = qrnicdv_create_mkey(&attr, sizeof(attr));

	CHECK(key);
	return key;
}

static enum ibv_wc_status completion(enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	if (poll_one(pair.send_cq, &wc) != 1) {
		printf("# nothing arrived with opcode %d\n", opcode);
		CHECK(false);
	}
	CHECK(wc.status || wc.opcode == opcode);
	return wc.status;
}

static struct qrnicdv_process_layout layout_of(const struct memory *m)
{
	return (struct qrnicdv_process_layout){
		.start = m->start,
		.addr = m->addr,
		.length = m->length,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ,
		.flags = QRNICDV_MKEY_NEW_VARIANT,
	};
}

static enum ibv_wc_status try_register(struct ibv_qp_ex *qp,
				       const struct memory *m)
{
	struct qrnicdv_process_layout layout = layout_of(m);

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	CHECK(!qrnicdv_wr_reg_process(qp, m->key, &layout, sizeof(layout)));
	CHECK(!ibv_wr_complete(qp));
	return completion(QRNICDV_WC_REG_MKEY);
}

static enum ibv_wc_status invalidate(struct ibv_qp_ex *qp, const struct memory *m)
{
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_local_inv(qp, m->key->rkey);
	CHECK(!ibv_wr_complete(qp));
	return completion(IBV_WC_LOCAL_INV);
}

/* Registers two memories by the first queue pair. Both stay with the caller. */
static void begin_with(void *a, void *b, size_t length)
{
	pair_begin();
	from = (struct memory){ a, length, (uintptr_t)a, key_make() };
	/* A zero-based key and one with an odd address are also tested. */
	to = (struct memory){ b, length, 0, key_make() };
	CHECK(!try_register(qpx[0], &from) && !try_register(qpx[0], &to));
	want = malloc(length);
	CHECK(want);
}

static void end(void)
{
	CHECK(!pair_free(&pair));
	CHECK(!qrnicdv_destroy_mkey(from.key) && !qrnicdv_destroy_mkey(to.key));
	free(want);
}

static uint8_t *anonymous(size_t length)
{
	uint8_t *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void begin(size_t length)
{
	uint8_t *a = anonymous(length), *b = anonymous(length);

	begin_with(a, b, length);
}

static void end_mapped(void)
{
	end();
	munmap(from.addr, from.length);
	munmap(to.addr, to.length);
}

static void fill_at(uint8_t *at, size_t length)
{
	static uint32_t seed = 1;
	size_t i;

	for (i = 0; i < length; i++)
		at[i] = (seed = seed * 1103515245 + 12345) >> 16;
}

enum operation { WRITE, READ, SEND };

/* Copies from one memory to the other. A read has the ends exchanged. */
static enum ibv_wc_status copy(enum operation kind, size_t at, size_t dest,
			       uint32_t length)
{
	static const enum ibv_wc_opcode opcodes[] = {
		IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_SEND,
	};
	struct ibv_sge sge = { to.start + dest, length, to.key->lkey };
	enum ibv_wc_status status;
	struct ibv_wc wc;

	if (kind == SEND)
		CHECK(!recv_one(pair.qp[1], &sge, 1, 1));
	ibv_wr_start(qpx[0]);
	qpx[0]->wr_flags = IBV_SEND_SIGNALED;
	if (kind == WRITE)
		ibv_wr_rdma_write(qpx[0], to.key->rkey, to.start + dest);
	else if (kind == READ)
		ibv_wr_rdma_read(qpx[0], from.key->rkey, from.start + at);
	else
		ibv_wr_send(qpx[0]);
	if (kind == READ)
		ibv_wr_set_sge(qpx[0], to.key->lkey, to.start + dest, length);
	else
		ibv_wr_set_sge(qpx[0], from.key->lkey, from.start + at, length);
	CHECK(!ibv_wr_complete(qpx[0]));
	status = completion(opcodes[kind]);
	if (kind == SEND) {
		CHECK(poll_one(pair.recv_cq, &wc) == 1);
		CHECK(wc.status || wc.byte_len == length);
	}
	return status;
}

static void copied(enum operation kind, size_t at, size_t dest,
		   uint32_t length)
{
	memcpy(want, from.addr + at, length);
	CHECK(!copy(kind, at, dest, length));
	CHECK(!memcmp(to.addr + dest, want, length));
}

/* Copies with all operations, and at an odd offset. */
static void all_over(bool fills)
{
	unsigned int i;

	for (i = WRITE; i <= SEND; i++) {
		if (fills)
			fill_at(from.addr, from.length);
		copied(i, 0, 0, from.length);
		copied(i, 5 * PAGE - 7, 9 * PAGE + 1, 3 * PAGE);
	}
}

static void test_malloc(void)
{
	uint8_t *a = malloc(LENGTH + 13), *b = malloc(LENGTH + 13);

	CHECK(a && b);
	begin_with(a + 13, b + 13, LENGTH);
	all_over(true);
	end();
	free(a);
	free(b);
}

static void __attribute__((noinline)) test_stack(void)
{
	uint8_t *a = alloca(LENGTH), *b = alloca(LENGTH);

	begin_with(a, b, LENGTH);
	all_over(true);
	end();
}

/* Tests a source that is a file of the root image, and a file on tmpfs. */
static void test_files(void)
{
	int exe = open("/proc/self/exe", O_RDONLY);
	int file = memfd_create("test", 0);
	uint8_t *a, *b, *back;
	struct stat status;
	size_t length;

	CHECK(exe >= 0 && file >= 0 && !fstat(exe, &status));
	length = status.st_size & ~(size_t)(PAGE - 1);
	CHECK(length > 12 * PAGE && !ftruncate(file, length));
	a = mmap(NULL, length, PROT_READ, MAP_PRIVATE, exe, 0);
	b = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(a != MAP_FAILED && b != MAP_FAILED);
	/* The device is the first user of these mappings. */
	begin_with(a, b, length);
	CHECK(!copy(WRITE, 0, 0, length));
	back = malloc(length);
	CHECK(back && pread(file, back, length, 0) == (ssize_t)length);
	CHECK(!memcmp(back, a, length));
	all_over(false);
	free(back);
	end_mapped();
	close(exe);
	close(file);
}

static void test_huge(void)
{
	begin(HUGE_LENGTH);
	madvise(from.addr, HUGE_LENGTH, MADV_HUGEPAGE);
	madvise(to.addr, HUGE_LENGTH, MADV_HUGEPAGE);
	all_over(true);
	CHECK(!madvise(to.addr + 5 * PAGE, 20 * PAGE, MADV_DONTNEED));
	CHECK(!madvise(from.addr + 3 * PAGE, PAGE, MADV_DONTNEED));
	copied(WRITE, 0, 0, HUGE_LENGTH);
	end_mapped();
}

/* Tests that freed pages are zero for the device and for the program. */
static void test_dontneed(void)
{
	static const uint8_t zero[LENGTH];
	unsigned int i;

	begin(LENGTH);
	for (i = 0; i < 3; i++) {
		fill_at(from.addr, LENGTH);
		CHECK(!copy(i, 0, 0, LENGTH));
		CHECK(!madvise(to.addr, LENGTH, MADV_DONTNEED));
		CHECK(!memcmp(to.addr, zero, LENGTH));
		CHECK(!copy(i, 0, 0, LENGTH));
		CHECK(!memcmp(to.addr, from.addr, LENGTH));
		CHECK(!madvise(from.addr, LENGTH, MADV_DONTNEED));
		CHECK(!copy(i, 0, 0, LENGTH));
		CHECK(!memcmp(to.addr, zero, LENGTH));
	}
	end_mapped();
}

static void test_swap(void)
{
	begin(LENGTH);
	all_over(true);
	madvise(from.addr, LENGTH, MADV_PAGEOUT);
	madvise(to.addr, LENGTH, MADV_PAGEOUT);
	CHECK(!copy(READ, 0, 0, LENGTH));
	CHECK(!memcmp(to.addr, from.addr, LENGTH));
	all_over(true);
	end_mapped();
}

/* Checks that a copy fails, and only this pair with it. */
static void fails(enum operation kind, enum ibv_wc_status status)
{
	CHECK(copy(kind, 0, 0, LENGTH) == status);
	CHECK(!pair_free(&pair));
	pair_begin();
}

/*
 * Checks that a copy fails without the memory, and works with new memory at the
 * same address. The new memory is mapped before anything else could be mapped
 * there.
 */
static void fails_without(struct memory *m, enum operation kind,
			  enum ibv_wc_status status)
{
	enum ibv_wc_status result;
	uint8_t *again;

	munmap(m->addr, LENGTH);
	result = copy(kind, 0, 0, LENGTH);
	again = mmap(m->addr, LENGTH, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == m->addr && result == status);
	CHECK(!pair_free(&pair));
	pair_begin();
	all_over(true);
}

static void test_unmapped(void)
{
	begin(LENGTH);
	all_over(true);
	fails_without(&to, WRITE, IBV_WC_REM_ACCESS_ERR);
	fails_without(&to, READ, IBV_WC_LOC_PROT_ERR);
	fails_without(&to, SEND, IBV_WC_REM_OP_ERR);
	fails_without(&from, WRITE, IBV_WC_LOC_PROT_ERR);
	fails_without(&from, READ, IBV_WC_REM_ACCESS_ERR);
	end_mapped();
}

static void test_protected(void)
{
	begin(LENGTH);
	all_over(true);
	memcpy(want, to.addr, LENGTH);
	fill_at(from.addr, LENGTH);
	CHECK(!mprotect(to.addr, LENGTH, PROT_READ));
	fails(WRITE, IBV_WC_REM_ACCESS_ERR);
	CHECK(!memcmp(to.addr, want, LENGTH));
	CHECK(!mprotect(to.addr, LENGTH, PROT_READ | PROT_WRITE));
	CHECK(!mprotect(from.addr, LENGTH, PROT_READ));
	copied(WRITE, 0, 0, LENGTH);
	CHECK(!mprotect(from.addr, LENGTH, PROT_NONE));
	fails(WRITE, IBV_WC_LOC_PROT_ERR);
	end_mapped();
}

/* Addresses of the kernel and beyond those of processes are absent pages. */
static void test_kernel_addresses(void)
{
	static const uint64_t addresses[] = {
		0xffff888000000000, 0xffffffff81000000, 0x800000000000,
	};
	struct memory hidden;
	unsigned int i;

	begin(LENGTH);
	hidden = from;
	hidden.key = key_make();
	for (i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
		hidden.addr = (uint8_t *)(uintptr_t)addresses[i];
		if (!try_register(qpx[0], &hidden)) {
			struct memory kept = from;

			from = hidden;
			CHECK(copy(WRITE, 0, 0, PAGE) == IBV_WC_LOC_PROT_ERR);
			from = kept;
		}
		CHECK(!pair_free(&pair));
		pair_begin();
		CHECK(!qrnicdv_destroy_mkey(hidden.key));
		hidden.key = key_make();
	}
	CHECK(!qrnicdv_destroy_mkey(hidden.key));
	all_over(true);
	end_mapped();
}

static void test_key_states(void)
{
	struct qrnicdv_mkey_init_attr indirect = { .pd = pd, .max_pieces = 1 };
	struct qrnicdv_mkey_init_attr wrong = {
		.pd = pd, .max_pieces = 1, .kind = QRNICDV_MKEY_PROCESS,
	};
	struct qrnicdv_process_layout layout;
	struct qrnicdv_mkey *key;
	uint32_t before;

	begin(LENGTH);
	all_over(true);
	CHECK(!qrnicdv_create_mkey(&wrong, sizeof(wrong)) && errno == EINVAL);
	wrong.kind = QRNICDV_MKEY_PROCESS + 1;
	CHECK(!qrnicdv_create_mkey(&wrong, sizeof(wrong)) &&
	      errno == EOPNOTSUPP);
	key = qrnicdv_create_mkey(&indirect, sizeof(indirect));
	CHECK(key || !(capabilities & QRNIC_CAP_INDIRECT_MKEY));
	layout = layout_of(&from);
	ibv_wr_start(qpx[0]);
	if (key)
		CHECK(qrnicdv_wr_reg_process(qpx[0], key, &layout,
					     sizeof(layout)) == EINVAL);
	ibv_wr_abort(qpx[0]);
	CHECK(!key || !qrnicdv_destroy_mkey(key));
	before = from.key->lkey;
	layout.length = 0;
	ibv_wr_start(qpx[0]);
	CHECK(qrnicdv_wr_reg_process(qpx[0], from.key, &layout,
				     sizeof(layout)) == EINVAL);
	CHECK(ibv_wr_complete(qpx[0]) == EINVAL && from.key->lkey == before);

	/* A new registration needs an invalid key, and the old value ends. */
	CHECK(!invalidate(qpx[0], &from) && !try_register(qpx[0], &from));
	CHECK(from.key->lkey != before);
	all_over(true);
	CHECK(try_register(qpx[0], &from) == IBV_WC_MW_BIND_ERR);
	from.key->lkey = from.key->rkey = from.key->lkey - 1;
	CHECK(!pair_free(&pair));
	pair_begin();
	CHECK(!invalidate(qpx[0], &to));
	fails(WRITE, IBV_WC_REM_ACCESS_ERR);
	end_mapped();
}

/* Ends a child process with a status that names the first failed check. */
#define CHILD(condition) ((condition) ? (void)0 : _exit(__LINE__ % 200 + 1))

static bool child_ends(pid_t child, int want_status)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		return false;
	if (status != want_status)
		printf("# child: status 0x%x\n", status);
	return status == want_status;
}

/*
 * Tests that a child keeps the old data, and cannot use the context, because
 * its queue pairs could name the memory of its parent.
 */
static void test_fork(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct qrnicdv_device_attr device;
	struct ibv_context *imported;
	int go[2], fd;
	uint8_t byte = 0;
	pid_t child;

	begin(LENGTH);
	all_over(true);
	memcpy(want, to.addr, LENGTH);
	CHECK(!qrnicdv_query_device(context, &device, sizeof(device)));
	CHECK(!pipe(go));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		close(go[1]);
		CHILD(read(go[0], &byte, 1) == 1);
		CHILD(!memcmp(to.addr, want, LENGTH));
		CHILD(!make_qp(&pair, &cap, 0) && errno == EPERM);
		fd = dup(context->cmd_fd);
		imported = ibv_import_device(fd);
		CHILD(!imported && errno == EPERM);
		_exit(0);
	}
	close(go[0]);
	fill_at(from.addr, LENGTH);
	CHECK(!copy(WRITE, 0, 0, LENGTH));
	CHECK(!memcmp(to.addr, from.addr, LENGTH));
	CHECK(write(go[1], &byte, 1) == 1);
	CHECK(child_ends(child, 0));
	close(go[1]);

	child = fork();
	CHECK(child >= 0);
	if (!child) {
		/* The child has no mapping of the doorbell page. */
		signal(SIGSEGV, SIG_DFL);
		*(volatile uint64_t *)device.db_page = 0;
		_exit(0);
	}
	CHECK(child_ends(child, SIGSEGV));
	all_over(true);
	end_mapped();
}

/*
 * Tests that a doorbell page can be freed while a key is valid that a queue
 * pair of the page registered. The next thread domain uses the page again.
 */
static void test_thread_domains(void)
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_parent_domain_init_attr domain = {};
	struct ibv_qp_cap cap = { 32, 32, 1, 1, 0 };
	struct ibv_pd *parent;
	struct memory other;
	struct pair own;
	struct ibv_td *td;
	int i;

	begin(LENGTH);
	other = from;
	for (i = 0; i < 3; i++) {
		td = ibv_alloc_td(context, &td_attr);
		CHECK(td);
		domain.pd = pd;
		domain.td = td;
		parent = ibv_alloc_parent_domain(context, &domain);
		CHECK(parent);
		own = pair;
		own.pd = parent;
		own.qp[0] = make_qp(&own, &cap, IBV_QP_EX_WITH_SEND);
		CHECK(own.qp[0] && !to_init(own.qp[0]) &&
		      !to_rtr(own.qp[0], own.qp[0]->qp_num) &&
		      !to_rts(own.qp[0]));
		other.key = key_make();
		CHECK(!try_register(ibv_qp_to_qp_ex(own.qp[0]), &other));
		CHECK(!ibv_destroy_qp(own.qp[0]));
		CHECK(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
		/* The key is still valid. */
		CHECK(!qrnicdv_destroy_mkey(from.key));
		from.key = other.key;
		all_over(true);
	}
	end_mapped();
}

static atomic_bool stop;
/* Locked while memory is missing, so that nothing else is mapped there */
static pthread_mutex_t missing = PTHREAD_MUTEX_INITIALIZER;

static void *unmapper(void *unused)
{
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&missing);
		munmap(to.addr + 8 * PAGE, 16 * PAGE);
		usleep(300);
		mmap(to.addr + 8 * PAGE, 16 * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		pthread_mutex_unlock(&missing);
		madvise(from.addr, LENGTH, MADV_DONTNEED);
		usleep(2000);
	}
	return unused;
}

/* Unmaps and maps during traffic, which succeeds or has the expected error. */
static void test_traffic(void)
{
	unsigned int good = 0, bad = 0, i;
	enum ibv_wc_status status;
	pthread_t thread;

	begin(LENGTH);
	atomic_store(&stop, false);
	CHECK(!pthread_create(&thread, NULL, unmapper, NULL));
	for (i = 0; i < 150; i++) {
		status = copy(WRITE, 0, 0, LENGTH);
		if (!status) {
			good++;
			continue;
		}
		if (status != IBV_WC_REM_ACCESS_ERR)
			break;
		bad++;
		pthread_mutex_lock(&missing);
		CHECK(!pair_free(&pair));
		pair_begin();
		pthread_mutex_unlock(&missing);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("# %u writes succeeded, %u failed\n", good, bad);
	CHECK(i == 150 && good);
	all_over(true);
	end_mapped();
}

/* Two contexts of a process have the same PASID; closing one keeps it. */
static void test_contexts(void)
{
	struct qrnicdv_context_attr attr = { .flags = context_flags };
	struct ibv_context *second;

	begin(LENGTH);
	second = qrnicdv_open_device(context->device, &attr, sizeof(attr));
	CHECK(second);
	all_over(true);
	CHECK(!ibv_close_device(second));
	CHECK(!madvise(from.addr, LENGTH, MADV_DONTNEED));
	CHECK(!madvise(to.addr, LENGTH, MADV_DONTNEED));
	all_over(true);
	end_mapped();
}

/*
 * Registers and writes until the program is killed. A thread domain is freed
 * before, so that the end of the process also finds an unused doorbell page.
 */
static void hold(void)
{
	struct ibv_td_init_attr attr = {};
	struct ibv_td *td = ibv_alloc_td(context, &attr);

	CHECK(td && !ibv_dealloc_td(td));
	begin(LENGTH);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		CHECK(!copy(WRITE, 0, 0, LENGTH));
		madvise(to.addr, LENGTH, MADV_DONTNEED);
		madvise(from.addr, LENGTH, MADV_DONTNEED);
	}
}

static int refused(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct qrnicdv_mkey_init_attr attr = { .kind = QRNICDV_MKEY_PROCESS };
	struct qrnicdv_context_attr shared = {
		.flags = QRNICDV_CONTEXT_SHARED_VIRTUAL,
	};

	CHECK(list && list[0]);
	CHECK(!qrnicdv_open_device(list[0], &shared, sizeof(shared)) &&
	      errno == EOPNOTSUPP);
	shared.flags = 0;
	context = qrnicdv_open_device(list[0], &shared, sizeof(shared));
	CHECK(context);
	attr.pd = ibv_alloc_pd(context);
	CHECK(attr.pd && !qrnicdv_create_mkey(&attr, sizeof(attr)) &&
	      errno == EOPNOTSUPP);
	return ibv_dealloc_pd(attr.pd) || ibv_close_device(context);
}

static const struct {
	const char *name;
	void (*run)(void);
} list[] = {
	{ "memory of malloc()", test_malloc },
	{ "memory of the stack", test_stack },
	{ "a file and tmpfs", test_files },
	{ "huge pages", test_huge },
	{ "pages that are freed", test_dontneed },
	{ "pages that are swapped out", test_swap },
	{ "memory that is unmapped", test_unmapped },
	{ "memory without a right", test_protected },
	{ "addresses that no process has", test_kernel_addresses },
	{ "states of a key", test_key_states },
	{ "a child process", test_fork },
	{ "doorbell pages of thread domains", test_thread_domains },
	{ "memory that is unmapped during traffic", test_traffic },
	{ "two contexts", test_contexts },
};

int main(int argc, char **argv)
{
	const char *mode = argc > 3 ? argv[3] : "";
	unsigned int i;

	if (!strcmp(mode, "refused"))
		return setjmp(test_end) ? 1 : refused();
	context_flags = QRNICDV_CONTEXT_SHARED_VIRTUAL;
	if (set_up(argc, argv)) {
		printf("not ok 1 - no such adapter (errno %d)\n", errno);
		return 1;
	}
	if (!strcmp(mode, "hold")) {
		run("hold", hold);
		return 1;
	}
	for (i = 0; i < sizeof(list) / sizeof(*list); i++)
		if (!*mode || !strcmp(mode, list[i].name))
			run(list[i].name, list[i].run);
	return tear_down();
}
