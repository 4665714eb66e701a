// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * direct-test.c: tests the rules of all direct verbs: structures that grow,
 * with programs older and newer than the library, and objects of other
 * providers. The test needs one adapter and prints TAP.
 */
#include "test.h"

/* Length of members that a later version of the library might add */
#define LATER 16u
#define PATTERN 0xa5

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_cq_ex *cq_ex;

/*
 * The next functions call the direct interface with one structure each, and
 * return 0 or the error
 */

static int create_qp(void *attr, size_t size)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq,
		.cap = { 1, 1, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *made = qrnicdv_create_qp(context, &init, attr, size);

	return made ? ibv_destroy_qp(made) : errno;
}

static int create_srq(void *attr, size_t size)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_srq *made = qrnicdv_create_srq(context, &init, attr, size);

	return made ? ibv_destroy_srq(made) : errno;
}

static int create_mkey(void *attr, size_t size)
{
	struct qrnicdv_mkey *made = qrnicdv_create_mkey(attr, size);

	return made ? qrnicdv_destroy_mkey(made) : errno;
}

static struct qrnicdv_mkey *mkey;

static int reg_mkey(void *attr, size_t size)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	int err, last;

	ibv_wr_start(ex);
	ex->wr_flags = 0;
	err = qrnicdv_wr_reg_mkey(ex, mkey, attr, size);
	if (!err) {
		ibv_wr_abort(ex);
		return 0;
	}
	last = ibv_wr_complete(ex);
	CHECK(last == err);
	return err;
}

/*
 * Tests a structure that a program fills in. The structure is valid with the
 * known size. A structure of a later version is valid, too, unless it requests
 * more. A structure shorter than comp_mask is invalid.
 */
static void reads(int (*call)(void *attr, size_t size), const void *good,
		  size_t size)
{
	uint8_t attr[256] = {};

	memcpy(attr, good, size);
	CHECK(!call(attr, size));
	CHECK(!call(attr, size + LATER));
	attr[size + LATER - 1] = 1;
	CHECK(call(attr, size + LATER) == EOPNOTSUPP);
	CHECK(!call(attr, size + LATER - 1));
	CHECK(call(attr, 7) == EINVAL && call(attr, 0) == EINVAL);
	/*
	 * The highest bit of comp_mask is never used, so it is an unknown bit
	 * in every version
	 */
	attr[7] |= 0x80;
	CHECK(call(attr, size) == EOPNOTSUPP);
}

/*
 * Tests an optional member, which needs its bit, and must be completely inside
 * the size.
 */
static void has_member(int (*call)(void *attr, size_t size), const void *good,
		       size_t size, uint64_t bit, size_t offset, size_t length)
{
	uint8_t attr[256] = {};
	uint64_t comp_mask;

	memcpy(attr, good, size);
	CHECK(!call(attr, size));
	CHECK(!call(attr, offset + length));
	CHECK(call(attr, offset + length - 1) == EINVAL);
	CHECK(call(attr, 8) == EINVAL);
	memcpy(&comp_mask, attr, sizeof(comp_mask));
	comp_mask &= ~bit;
	memcpy(attr, &comp_mask, sizeof(comp_mask));
	CHECK(call(attr, size) == EOPNOTSUPP);
	/* Bytes beyond the size are not read */
	CHECK(!call(attr, 8));
}

static void objects_make(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 64 };
	struct pair p = {};

	if (qp)
		return;
	cq_ex = ibv_create_cq_ex(context, &attr);
	CHECK(cq_ex);
	cq = ibv_cq_ex_to_cq(cq_ex);
	p.send_cq = cq;
	p.recv_cq = cq;
	qp = make_qp(&p, &cap, IBV_QP_EX_WITH_SEND);
	CHECK(qp && !to_init(qp) && !to_rtr(qp, qp->qp_num) && !to_rts(qp));
}

#define HAS_MEMBER(call, good, bit, member)                                    \
	has_member(call, &(good), sizeof(good), bit,                           \
		   (uint8_t *)&(good).member - (uint8_t *)&(good),             \
		   sizeof((good).member))

static void test_reads(void)
{
	struct qrnicdv_qp_init_attr of_qp = {};
	struct qrnicdv_srq_init_attr of_srq = {};
	struct qrnicdv_mkey_init_attr of_mkey = { .pd = pd, .max_pieces = 1 };
	struct qrnicdv_piece piece = { .lkey = mr->lkey, .length = 8 };
	struct qrnicdv_mkey_layout layout = {
		.repeat = 1, .num_pieces = 1, .pieces = &piece,
	};

	objects_make();
	reads(create_qp, &of_qp, sizeof(of_qp));
	if (capabilities & QRNIC_CAP_SRQ)
		reads(create_srq, &of_srq, sizeof(of_srq));
	if (!(capabilities & QRNIC_CAP_INDIRECT_MKEY))
		return;
	reads(create_mkey, &of_mkey, sizeof(of_mkey));
	mkey = qrnicdv_create_mkey(&of_mkey, sizeof(of_mkey));
	CHECK(mkey);
	reads(reg_mkey, &layout, sizeof(layout));
	CHECK(!qrnicdv_destroy_mkey(mkey));
}

static void test_optional(void)
{
	struct qrnicdv_stream_attr stream = { 64, 8, 0, 0 };
	struct qrnicdv_srq_init_attr of_srq = {
		.comp_mask = QRNICDV_SRQ_INIT_ATTR_STREAM, .stream = stream,
	};
	struct qrnicdv_qp_init_attr of_stream = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_STREAM, .stream = stream,
	}, of_priority = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_PRIORITY, .priority = 1,
	}, of_options = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_OPTIONS,
		.options = QRNIC_QPO_SELECTIVE_REPEAT,
	};

	objects_make();
	if (capabilities & QRNIC_CAP_STREAMING_RECV) {
		HAS_MEMBER(create_srq, of_srq, QRNICDV_SRQ_INIT_ATTR_STREAM,
			   stream);
		HAS_MEMBER(create_qp, of_stream, QRNICDV_QP_INIT_ATTR_STREAM,
			   stream);
	}
	if (capabilities & QRNIC_CAP_PRIORITY)
		HAS_MEMBER(create_qp, of_priority, QRNICDV_QP_INIT_ATTR_PRIORITY,
			   priority);
	if (capabilities & QRNIC_CAP_SELECTIVE_REPEAT)
		HAS_MEMBER(create_qp, of_options, QRNICDV_QP_INIT_ATTR_OPTIONS,
			   options);
}

static int query_device(void *attr, size_t size)
{
	return qrnicdv_query_device(context, attr, size);
}

static int query_qp(void *attr, size_t size)
{
	return qrnicdv_query_qp(qp, attr, size);
}

static int query_cq(void *attr, size_t size)
{
	return qrnicdv_query_cq(cq, attr, size);
}

static int query_priority(void *attr, size_t size)
{
	return qrnicdv_query_priority(qp, attr, size);
}

/*
 * Tests that a call fills in a structure up to its size, and sets unknown
 * members to 0.
 */
static void writes(int (*call)(void *attr, size_t size), size_t size)
{
	uint8_t attr[256], part[256];
	size_t i, k;

	memset(attr, PATTERN, sizeof(attr));
	CHECK(!call(attr, size + LATER));
	for (i = 0; i < LATER; i++)
		CHECK(!attr[size + i]);
	CHECK(attr[size + LATER] == PATTERN);
	for (i = 0; i < size; i++) {
		memset(part, PATTERN, sizeof(part));
		CHECK(call(part, i) == (i < 8 ? EINVAL : 0));
		for (k = i < 8 ? 0 : i; k < sizeof(part); k++)
			CHECK(part[k] == PATTERN);
		/*
		 * comp_mask may have fewer bits if the structure is too short
		 * for optional members
		 */
		CHECK(i < 8 || !memcmp(part + 8, attr + 8, i - 8));
	}
}

static void test_writes(void)
{
	objects_make();
	writes(query_device, sizeof(struct qrnicdv_device_attr));
	writes(query_qp, sizeof(struct qrnicdv_qp));
	writes(query_cq, sizeof(struct qrnicdv_cq));
	if (capabilities & QRNIC_CAP_PRIORITY)
		writes(query_priority, sizeof(struct qrnicdv_priority));
}

/*
 * Objects of another provider. The test compares the memory around them,
 * because the library must not access it.
 */
static struct {
	uint8_t before[65536];
	union {
		struct ibv_qp_ex qp;
		struct ibv_cq_ex cq;
	} of;
	uint8_t after[65536];
} foreign, untouched;

static uint8_t device_memory[4096];

static void test_foreign(void)
{
	struct qrnicdv_mkey_layout layout = { .repeat = 1 };
	struct ibv_qp_init_attr_ex qp_init = {};
	struct ibv_srq_init_attr_ex srq_init = {};
	struct ibv_context other = { .device = (void *)device_memory };
	struct ibv_ah address = { .context = &other };
	struct qrnicdv_qp_init_attr of_qp = {};
	struct qrnicdv_srq_init_attr of_srq = {};
	struct ibv_pd domain = { .context = &other };
	struct qrnicdv_mkey_init_attr of_mkey = { .pd = &domain, .max_pieces = 1 };
	struct qrnicdv_device_attr device;
	struct qrnicdv_priority priority;
	struct qrnicdv_mkey key = {};
	struct qrnicdv_qp of_query_qp;
	struct qrnicdv_cq of_query_cq;
	uint32_t offset = 1;

	objects_make();
	foreign.of.qp.qp_base.context = &other;
	untouched = foreign;
	CHECK(!qrnicdv_is_supported(other.device));
	CHECK(qrnicdv_wr_set_dc_addr(&foreign.of.qp, &address, 1, 2) ==
	      EOPNOTSUPP);
	CHECK(qrnicdv_wr_reg_mkey(&foreign.of.qp, &key, &layout,
				  sizeof(layout)) == EOPNOTSUPP);
	CHECK(qrnicdv_modify_priority(&foreign.of.qp.qp_base, 1) == EOPNOTSUPP);
	CHECK(qrnicdv_query_priority(&foreign.of.qp.qp_base, &priority,
				     sizeof(priority)) == EOPNOTSUPP);
	CHECK(qrnicdv_query_qp(&foreign.of.qp.qp_base, &of_query_qp,
			       sizeof(of_query_qp)) == EOPNOTSUPP);
	CHECK(!memcmp(&foreign, &untouched, sizeof(foreign)));

	memset(&foreign, 0, sizeof(foreign));
	foreign.of.cq.context = &other;
	untouched = foreign;
	CHECK(!qrnicdv_wc_read_stream(&foreign.of.cq, &offset) && !offset);
	CHECK(qrnicdv_query_cq(ibv_cq_ex_to_cq(&foreign.of.cq), &of_query_cq,
			       sizeof(of_query_cq)) == EOPNOTSUPP);
	CHECK(!memcmp(&foreign, &untouched, sizeof(foreign)));

	CHECK(qrnicdv_query_device(&other, &device, sizeof(device)) ==
	      EOPNOTSUPP);
	CHECK(!qrnicdv_create_qp(&other, &qp_init, &of_qp, sizeof(of_qp)) &&
	      errno == EOPNOTSUPP);
	CHECK(!qrnicdv_create_srq(&other, &srq_init, &of_srq, sizeof(of_srq)) &&
	      errno == EOPNOTSUPP);
	CHECK(!qrnicdv_create_mkey(&of_mkey, sizeof(of_mkey)) &&
	      errno == EOPNOTSUPP);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no qrnic adapter\n");
		return 1;
	}
	run("direct verbs: structures that programs fill in", test_reads);
	run("direct verbs: optional members", test_optional);
	run("direct verbs: structures that calls fill in", test_writes);
	run("direct verbs: objects of another provider", test_foreign);
	if ((qp && ibv_destroy_qp(qp)) || (cq && ibv_destroy_cq(cq)))
		failures++;
	return tear_down();
}
