// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * inline-test.c: tests receiving into the CQE: the data is in the buffers after
 * the completion was polled. A counter shows if the data was in the CQE. The
 * test needs one adapter and prints TAP.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define DEPTH 16

/* Address of a region. The next program has other memory at this address */
#define PLACE ((uint8_t *)0x200000000000)
#define PAGE 4096


/* Files and handles that the program before exec has left */
static struct {
	int context, memory;
	uint32_t pd, region;
} left;

/* Objects of the current test, which make() creates */
static struct ibv_cq *send_cq;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp[2];
static struct ibv_srq *srq;

static bool has(uint64_t needed)
{
	return (capabilities & needed) == needed;
}

/*
 * Returns the counter, after a wait, because the kernel may return a value that
 * is 10 ms old.
 */
static uint64_t count_inline_cqes(void)
{
	usleep(30000);
	return read_counter(ibv_get_device_name(context->device),
			    "ports/1/hw_counters/inline_cqes");
}

static struct ibv_qp *make_end(enum ibv_qp_type type, uint32_t bytes,
			       struct qrnicdv_qp_init_attr *dv)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = send_cq,
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.srq = srq,
		.cap = { DEPTH, DEPTH, 1, 4, 0 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	*dv = (struct qrnicdv_qp_init_attr){ .max_inl_recv = bytes };
	return qrnicdv_create_qp(context, &attr, dv, sizeof(*dv));
}

static void make(enum ibv_qp_type type, bool shared)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4 * DEPTH,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_srq_init_attr srq_attr = { .attr = { DEPTH, 4, 0 } };
	struct qrnicdv_qp_init_attr dv;
	int i;

	send_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	cq = ibv_create_cq_ex(context, &cq_attr);
	CHECK(send_cq && cq);
	srq = shared ? ibv_create_srq(pd, &srq_attr) : NULL;
	CHECK(!shared || srq);
	for (i = 0; i < 2; i++) {
		qp[i] = make_end(type, 1, &dv);
		CHECK(qp[i] && dv.max_inl_recv == 32);
	}
	for (i = 0; i < 2; i++)
		CHECK(!to_init(qp[i]) && !to_rtr(qp[i], qp[!i]->qp_num) &&
		      !to_rts(qp[i]));
}

static void unmake(void)
{
	CHECK(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
	CHECK(!srq || !ibv_destroy_srq(srq));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	CHECK(!ibv_destroy_cq(send_cq));
}

static int post_to(struct ibv_sge *sge, int num_sge, uint64_t wr_id)
{
	struct ibv_recv_wr wr = { wr_id, NULL, sge, num_sge }, *bad;

	return srq ? ibv_post_srq_recv(srq, &wr, &bad) :
		     ibv_post_recv(qp[1], &wr, &bad);
}

static int send_bytes(uint32_t length, bool imm)
{
	struct ibv_sge sge = sge_of(0, length);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.imm_data = htobe32(0x12345678),
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	return ibv_post_send(qp[0], &wr, &bad);
}

/* Polls for a receive with ibv_poll_cq() or the extended interface. */
static int take(bool extended, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = {};
	uint64_t end = now_ms() + SECONDS * 1000;
	int err;

	if (!extended)
		return poll_one(ibv_cq_ex_to_cq(cq), wc);
	do {
		err = ibv_start_poll(cq, &attr);
	} while (err == ENOENT && now_ms() < end);
	if (err)
		return 0;
	wc->status = cq->status;
	wc->wr_id = cq->wr_id;
	wc->opcode = ibv_wc_read_opcode(cq);
	wc->byte_len = ibv_wc_read_byte_len(cq);
	wc->wc_flags = ibv_wc_read_wc_flags(cq);
	wc->imm_data = ibv_wc_read_imm_data(cq);
	wc->qp_num = ibv_wc_read_qp_num(cq);
	wc->sl = ibv_wc_read_sl(cq);
	wc->vendor_err = ibv_wc_read_vendor_err(cq);
	ibv_end_poll(cq);
	return 1;
}

/*
 * Tests all lengths with three segments, of which the middle one is empty.
 * There are more lengths than slots, so the rings wrap around. The byte behind
 * each message must not change.
 */
static void all_lengths(bool extended)
{
	const uint64_t before = count_inline_cqes();
	struct ibv_wc wc;
	uint32_t length;
	bool imm;

	for (length = 0; length <= 40; length++) {
		uint32_t first = length / 3;
		struct ibv_sge sge[3] = {
			sge_of(HALF, first),
			sge_of(HALF + 100, 0),
			sge_of(HALF + 200, length - first + 1),
		};

		imm = length & 1;
		fill(0, length, 77 + length);
		memset(buffer + HALF, 0xee, 400);
		CHECK(!post_to(sge, 3, 1000 + length));
		CHECK(!send_bytes(length, imm));
		CHECK(poll_one(send_cq, &wc) == 1);
		CHECK(take(extended, &wc) == 1);
		CHECK(wc.status == IBV_WC_SUCCESS && !wc.vendor_err && !wc.sl);
		CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == length);
		CHECK(wc.wr_id == 1000 + length);
		CHECK(wc.qp_num == qp[1]->qp_num);
		CHECK(wc.wc_flags == (imm ? IBV_WC_WITH_IMM : 0));
		CHECK(!imm || wc.imm_data == htobe32(0x12345678));
		CHECK(!memcmp(buffer + HALF, buffer, first));
		CHECK(!memcmp(buffer + HALF + 200, buffer + first,
			      length - first));
		CHECK(buffer[HALF + first] == 0xee &&
		      buffer[HALF + 100] == 0xee &&
		      buffer[HALF + 200 + length - first] == 0xee);
	}
	CHECK(count_inline_cqes() - before == 32);
}

static void each_interface(enum ibv_qp_type type, bool shared)
{
	make(type, shared);
	all_lengths(false);
	all_lengths(true);
	unmake();
}

static void test_rc(void)
{
	NEED(has(QRNIC_CAP_INLINE_RECV));
	each_interface(IBV_QPT_RC, false);
}

static void test_srq(void)
{
	NEED(has(QRNIC_CAP_INLINE_RECV | QRNIC_CAP_SRQ));
	each_interface(IBV_QPT_RC, true);
}

static void test_uc(void)
{
	NEED(has(QRNIC_CAP_INLINE_RECV | QRNIC_CAP_UC));
	each_interface(IBV_QPT_UC, false);
	if (capabilities & QRNIC_CAP_SRQ)
		each_interface(IBV_QPT_UC, true);
}

/*
 * Sends a message of 8 bytes to an address, and checks the data and if it was
 * written directly.
 */
static void one(uint64_t address, uint32_t key, const uint8_t *data, bool direct)
{
	struct ibv_sge sge = { address, 8, key };
	const uint64_t before = count_inline_cqes();
	struct ibv_wc wc;

	fill(0, 8, address + direct);
	CHECK(memcmp(data, buffer, 8));
	CHECK(!post_to(&sge, 1, 5) && !send_bytes(8, false));
	CHECK(take(false, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(count_inline_cqes() - before == !direct);
	CHECK(!memcmp(data, buffer, 8));
}

/*
 * Tests that regions with other addresses than those of the CPU receive
 * directly to memory.
 */
static void test_regions(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE;
	const size_t page = 4096;
	struct ibv_mr *other;
	uint8_t *memory;

	NEED(has(QRNIC_CAP_INLINE_RECV));
	make(IBV_QPT_RC, false);
	memory = mmap(NULL, page, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);

	one((uintptr_t)buffer + HALF, mr->lkey, buffer + HALF, false);
	other = ibv_reg_mr_iova(pd, memory, page, (uintptr_t)memory, access);
	CHECK(other);
	one((uintptr_t)memory + 8, other->lkey, memory + 8, false);
	CHECK(!ibv_dereg_mr(other));
	/* At this address is other memory, which must not change */
	other = ibv_reg_mr_iova(pd, memory, page, (uintptr_t)buffer, access);
	CHECK(other);
	memset(buffer + 64, 0xee, 8);
	one((uintptr_t)buffer + 64, other->lkey, memory + 64, true);
	CHECK(buffer[64] == 0xee && buffer[71] == 0xee);
	/*
	 * The region is first registered again at its address, and then at
	 * another one
	 */
	CHECK(!ibv_rereg_mr(other, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			    memory, page, 0));
	one((uintptr_t)memory + 16, other->lkey, memory + 16, false);
	CHECK(!ibv_rereg_mr(other, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			    access | IBV_ACCESS_REMOTE_WRITE));
	one((uintptr_t)memory + 24, other->lkey, memory + 24, false);
	CHECK(!ibv_dereg_mr(other));
	other = ibv_reg_mr(pd, memory, page, access | IBV_ACCESS_ZERO_BASED);
	CHECK(other);
	one(32, other->lkey, memory + 32, true);
	CHECK(!ibv_dereg_mr(other));

	CHECK(!munmap(memory, page));
	unmake();
}

/*
 * Registers memory and executes another program that inherits the context. At
 * the addresses of the region, this program has other memory.
 */
static void begin_again(void)
{
	const int memory = memfd_create("qrnic-inline-test", 0);
	char arg[5][16];
	struct ibv_mr *region;

	if (memory < 0 || ftruncate(memory, PAGE) ||
	    mmap(PLACE, PAGE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED_NOREPLACE, memory, 0) != PLACE)
		_exit(126);
	region = ibv_reg_mr(pd, PLACE, PAGE, IBV_ACCESS_LOCAL_WRITE);
	if (!region || fcntl(context->cmd_fd, F_SETFD, 0))
		_exit(125);
	snprintf(arg[0], sizeof(arg[0]), "%d", gid_index);
	snprintf(arg[1], sizeof(arg[1]), "%d", context->cmd_fd);
	snprintf(arg[2], sizeof(arg[2]), "%d", memory);
	snprintf(arg[3], sizeof(arg[3]), "%u", pd->handle);
	snprintf(arg[4], sizeof(arg[4]), "%u", region->handle);
	execl("/proc/self/exe", "qrnic-inline-test",
	      ibv_get_device_name(context->device), arg[0], arg[1], arg[2],
	      arg[3], arg[4], NULL);
	_exit(124);
}

static void test_exec(void)
{
	pid_t child;
	int status;

	NEED(has(QRNIC_CAP_INLINE_RECV));
	child = fork();
	CHECK(child >= 0);
	if (!child)
		begin_again();
	CHECK(waitpid(child, &status, 0) == child);
	errno = status;
	CHECK(!status);
}

/*
 * Tests the program after exec: the data goes to the region, and the other
 * memory does not change.
 */
static void test_left(void)
{
	struct ibv_mr *own = mr, *region;
	struct ibv_pd *own_pd = pd;
	struct ibv_context *mine = context;
	uint8_t *memory;
	int i;

	CHECK(mmap(PLACE, PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		   0) == PLACE);
	memset(PLACE, 0xee, PAGE);
	memory = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, left.memory, 0);
	CHECK(memory != MAP_FAILED);
	context = ibv_import_device(left.context);
	CHECK(context);
	pd = ibv_import_pd(context, left.pd);
	CHECK(pd);
	region = ibv_import_mr(pd, left.region);
	mr = ibv_reg_mr(pd, buffer, BUFFER_SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(region && mr);

	make(IBV_QPT_RC, false);
	one((uintptr_t)buffer + HALF, mr->lkey, buffer + HALF, false);
	one((uintptr_t)PLACE, region->lkey, memory, true);
	for (i = 0; i < PAGE; i++)
		CHECK(PLACE[i] == 0xee);
	unmake();
	CHECK(!ibv_dereg_mr(region) && !ibv_dereg_mr(mr));
	ibv_unimport_pd(pd);
	CHECK(!ibv_close_device(context));
	context = mine;
	pd = own_pd;
	mr = own;
}

/* Tests that unpolled completions of a destroyed queue pair are dropped. */
static void test_taken_back(void)
{
	struct ibv_sge sge = sge_of(HALF, 8);
	const uint64_t before = count_inline_cqes();
	uint64_t end = now_ms() + SECONDS * 1000;

	NEED(has(QRNIC_CAP_INLINE_RECV));
	make(IBV_QPT_RC, false);
	fill(0, 8, 3);
	memset(buffer + HALF, 0xee, 8);
	CHECK(!post_to(&sge, 1, 1) && !send_bytes(8, false));
	while (count_inline_cqes() == before && now_ms() < end)
		;
	CHECK(count_inline_cqes() == before + 1);
	unmake();
	CHECK(buffer[HALF] == 0xee && buffer[HALF + 7] == 0xee);
}

static void test_errors(void)
{
	const uint64_t before = count_inline_cqes();
	struct ibv_sge sge[] = { sge_of(HALF, 7), sge_of(HALF, 8) };
	static const enum ibv_wc_status expected[] = {
		IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
	};
	struct ibv_wc wc;
	unsigned int i;

	NEED(has(QRNIC_CAP_INLINE_RECV));
	sge[1].lkey ^= 0xff;
	for (i = 0; i < 2; i++) {
		make(IBV_QPT_RC, false);
		CHECK(!post_to(&sge[i], 1, 9) && !send_bytes(8, false));
		CHECK(take(false, &wc) == 1);
		CHECK(wc.status == expected[i] && wc.wr_id == 9);
		unmake();
	}
	CHECK(count_inline_cqes() == before);
}

static void refused(enum ibv_qp_type type, uint32_t bytes, int err)
{
	struct qrnicdv_qp_init_attr dv;
	struct ibv_qp *wrong;

	wrong = make_end(type, bytes, &dv);
	CHECK(!wrong && errno == err);
}

/*
 * Returns max_inl_recv of a queue pair, as direct verbs return it to a program
 * that reads CQEs itself.
 */
static uint32_t shown(struct ibv_qp *of)
{
	const size_t older = offsetof(struct qrnicdv_qp, max_inl_recv);
	struct qrnicdv_qp attr;

	CHECK(!qrnicdv_query_qp(of, &attr, older) && !attr.comp_mask);
	CHECK(!qrnicdv_query_qp(of, &attr, sizeof(attr)));
	CHECK(attr.comp_mask == QRNICDV_QP_MAX_INL_RECV);
	return attr.max_inl_recv;
}

static void test_creation(void)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4 };
	struct qrnicdv_qp_init_attr dv;
	struct ibv_qp *good;

	srq = NULL;
	cq = ibv_create_cq_ex(context, &cq_attr);
	CHECK(cq);
	send_cq = ibv_cq_ex_to_cq(cq);
	good = make_end(IBV_QPT_RC, 0, &dv);
	CHECK(good && !dv.max_inl_recv && !shown(good));
	CHECK(!ibv_destroy_qp(good));
	if (capabilities & QRNIC_CAP_INLINE_RECV) {
		refused(IBV_QPT_RC, 33, EINVAL);
		good = make_end(IBV_QPT_RC, 32, &dv);
		CHECK(good && dv.max_inl_recv == 32 && shown(good) == 32);
		CHECK(!ibv_destroy_qp(good));
	} else {
		refused(IBV_QPT_RC, 1, EOPNOTSUPP);
	}
	refused(IBV_QPT_UD, 32, EOPNOTSUPP);
	refused(IBV_QPT_RAW_PACKET, 32, EOPNOTSUPP);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	if (argc > 6) {
		left.context = atoi(argv[3]);
		left.memory = atoi(argv[4]);
		left.pd = strtoul(argv[5], NULL, 10);
		left.region = strtoul(argv[6], NULL, 10);
		/*
		 * This process is part of a test of its parent, so it has no
		 * result of its own
		 */
		if (setjmp(test_end))
			return 1;
		test_left();
		return 0;
	}
	run("valid and invalid attributes", test_creation);
	run("received into the CQE, RC", test_rc);
	run("received into the CQE, SRQ", test_srq);
	run("received into the CQE, UC", test_uc);
	run("regions with other addresses", test_regions);
	run("regions registered before exec", test_exec);
	run("unpolled completions of a destroyed queue pair", test_taken_back);
	run("errors", test_errors);
	return tear_down();
}
