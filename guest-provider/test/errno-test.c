// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * errno-test.c: tests the errno values of all verbs with invalid arguments
 * (table in qrnic(7)). Each group first makes a valid call, and then changes
 * one argument at a time. So each call fails only because of this argument.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/qrnic-abi.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "test.h"

/* Designated initializers of a base are overridden by each case */
#pragma GCC diagnostic ignored "-Woverride-init"

#define GIVES(wanted, call) gives(wanted, call, #call, __LINE__)
#define MADE(object) ((errno = 0), (object) ? 0 : errno)

static struct ibv_device_attr_ex limits;
static struct ibv_cq *cq;
static int wrong, cases;
/*
 * Error of the largest GID index of the ABI, which is beyond the table or an
 * empty entry
 */
static int last_gid;

static void gives(int wanted, int got, const char *call, int line)
{
	cases++;
	if (got == wanted)
		return;
	wrong++;
	printf("# line %d: %s: %s instead of %s\n", line, call,
	       strerrorname_np(got) ?: "no errno", strerrorname_np(wanted));
}

static void end(void)
{
	int n = wrong;

	wrong = 0;
	CHECK(!n);
}

/* Executes call with an object whose handle this context does not have. */
#define FOREIGN(object, call) WITH_HANDLE(object, 0x7ffffff0, call)

/* Executes call with another handle in the object. */
#define WITH_HANDLE(object, other, call)                                       \
	({                                                                     \
		uint32_t handle_ = (object)->handle;                           \
		int err_;                                                      \
									       \
		(object)->handle = (other);                                    \
		err_ = (call);                                                 \
		(object)->handle = handle_;                                    \
		err_;                                                          \
	})

static void test_queries(void)
{
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct ibv_values_ex values = { .comp_mask = 1u << 31 };
	struct ibv_device_attr_ex attr;
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	union ibv_gid any;
	__be16 pkey;

	GIVES(EINVAL, ibv_query_port(context, 0, &port));
	GIVES(EINVAL, ibv_query_port(context, 2, &port));
	GIVES(0, ibv_query_port(context, 1, &port));
	last_gid = port.gid_tbl_len > 255 ? ENODATA : EINVAL;
	GIVES(0, ibv_query_device_ex(context, NULL, &attr));
	GIVES(EINVAL, ibv_query_device_ex(context, &input, &attr));
	GIVES(EINVAL, ibv_query_rt_values_ex(context, &values));
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	GIVES(capabilities & QRNIC_CAP_TIMESTAMP ? 0 : EOPNOTSUPP,
	      ibv_query_rt_values_ex(context, &values));
	GIVES(0, ibv_query_gid_ex(context, 1, gid_index, &entry, 0));
	GIVES(EINVAL, ibv_query_gid_ex(context, 2, 0, &entry, 0));
	GIVES(EINVAL, ibv_query_gid_ex(context, 1, port.gid_tbl_len, &entry, 0));
	GIVES(ENODATA, ibv_query_gid_ex(context, 1, port.gid_tbl_len - 1,
					&entry, 0));
	GIVES(EINVAL, ibv_query_gid_ex(context, 1, gid_index, &entry, 1));
	GIVES(-1, ibv_query_gid(context, 1, port.gid_tbl_len, &any));
	GIVES(-1, ibv_query_gid(context, 2, 0, &any));
	GIVES(0, ibv_query_pkey(context, 1, 0, &pkey));
	GIVES(-1, ibv_query_pkey(context, 1, 1, &pkey));
	end();
}

static void test_domains(void)
{
	struct ibv_parent_domain_init_attr domain = { .pd = pd };
	struct ibv_td_init_attr td_attr = {};
	struct ibv_pd *parent, *plain = ibv_alloc_pd(context);
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);

	CHECK(plain && td);
	domain.td = td;
	parent = ibv_alloc_parent_domain(context, &domain);
	CHECK(parent);
	GIVES(EBUSY, ibv_dealloc_td(td));
	domain.pd = NULL;
	GIVES(EINVAL, MADE(ibv_alloc_parent_domain(context, &domain)));
	domain.pd = pd;
	domain.comp_mask = 1u << 31;
	GIVES(EINVAL, MADE(ibv_alloc_parent_domain(context, &domain)));
	td_attr.comp_mask = 1;
	GIVES(EINVAL, MADE(ibv_alloc_td(context, &td_attr)));
	GIVES(EBUSY, ibv_dealloc_pd(pd));
	GIVES(ENOENT, FOREIGN(plain, ibv_dealloc_pd(plain)));
	GIVES(EINVAL, WITH_HANDLE(plain, cq->handle, ibv_dealloc_pd(plain)));
	GIVES(ENOENT, MADE(ibv_import_pd(context, 0x7ffffff0)));
	GIVES(EINVAL, MADE(ibv_import_device(-1)));
	CHECK(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
	CHECK(!ibv_dealloc_pd(plain));
	end();
}

static void test_regions(void)
{
	const int write = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_pd *plain = ibv_alloc_pd(context);
	struct ibv_mr *region, *empty, *null = ibv_alloc_null_mr(pd);
	uint8_t *constant = mmap(NULL, 8192, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *hole = constant + 4096;
	struct qrnicdv_mkey_init_attr key = { .pd = pd, .max_pieces = 1 };

	CHECK(plain && constant != MAP_FAILED && !munmap(hole, 4096));
	region = ibv_reg_mr(plain, buffer, 8192, write);
	CHECK(region);
	GIVES(EBUSY, ibv_dealloc_pd(plain));
	/* A region of 0 bytes remains empty */
	empty = ibv_reg_mr(pd, buffer, 0, write);
	CHECK(empty && !empty->length && empty->lkey != region->lkey);
	GIVES(IBV_REREG_MR_ERR_CMD,
	      ibv_rereg_mr(empty, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   write | IBV_ACCESS_REMOTE_WRITE));
	GIVES(EOPNOTSUPP, errno);
	GIVES(0, ibv_dereg_mr(empty));
	GIVES(IBV_REREG_MR_ERR_INPUT,
	      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			   buffer, 0, 0));
	GIVES(EINVAL, errno);
	GIVES(EINVAL, MADE(ibv_reg_mr(pd, buffer, limits.orig_attr.max_mr_size +
				      1, write)));
	GIVES(EINVAL, MADE(ibv_reg_mr(pd, buffer, 64,
				      IBV_ACCESS_REMOTE_WRITE)));
	GIVES(EINVAL, MADE(ibv_reg_mr(pd, buffer, 64,
				      IBV_ACCESS_REMOTE_ATOMIC)));
	GIVES(EINVAL, MADE(ibv_reg_mr(pd, buffer, 64, 1 << 18)));
	if (!(capabilities & QRNIC_CAP_ON_DEMAND))
		GIVES(EOPNOTSUPP, MADE(ibv_reg_mr(pd, buffer, 64,
						  IBV_ACCESS_ON_DEMAND)));
	if (!(capabilities & QRNIC_CAP_INDIRECT_MKEY))
		GIVES(EOPNOTSUPP, MADE(qrnicdv_create_mkey(&key, sizeof(key))));
	else
		GIVES(ENOENT, FOREIGN(pd, MADE(qrnicdv_create_mkey(&key, sizeof(key)))));
	/* An implicit region must begin at address 0 */
	GIVES(EINVAL, MADE(ibv_reg_mr(pd, buffer, SIZE_MAX,
				      IBV_ACCESS_ON_DEMAND)));
	GIVES(EOPNOTSUPP, MADE(ibv_reg_mr(pd, buffer, 64, write |
					  IBV_ACCESS_FLUSH_PERSISTENT)));
	GIVES(EFAULT, MADE(ibv_reg_mr(pd, hole, 64, write)));
	GIVES(EFAULT, MADE(ibv_reg_mr(pd, constant, 64, write)));
	GIVES(EFAULT, MADE(ibv_reg_mr(pd, constant, 8192, 0)));
	GIVES(EINVAL, MADE(ibv_reg_mr(pd, (void *)-4096l, 8192, write)));
	GIVES(EINVAL, MADE(ibv_reg_mr_iova(pd, buffer, 64, 8, write)));
	GIVES(ENOENT, FOREIGN(pd, MADE(ibv_reg_mr(pd, buffer, 64, write))));
	GIVES(EINVAL, WITH_HANDLE(pd, mr->handle,
				  MADE(ibv_reg_mr(pd, buffer, 64, write))));
	GIVES(ENOENT, FOREIGN(region, ibv_dereg_mr(region)));
	GIVES(ENOENT, MADE(ibv_import_mr(pd, 0x7ffffff0)));

	GIVES(IBV_REREG_MR_ERR_CMD, ibv_rereg_mr(region, 0, NULL, NULL, 0, 0));
	GIVES(EINVAL, errno);
	GIVES(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(region, 8, pd, buffer, 64, 0));
	GIVES(IBV_REREG_MR_ERR_INPUT,
	      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL,
			   64, 0));
	GIVES(IBV_REREG_MR_ERR_CMD,
	      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, hole,
			   64, 0));
	GIVES(EFAULT, errno);
	GIVES(IBV_REREG_MR_ERR_CMD,
	      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_REMOTE_WRITE));
	GIVES(EINVAL, errno);
	GIVES(IBV_REREG_MR_ERR_CMD,
	      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_ON_DEMAND));
	GIVES(EOPNOTSUPP, errno);
	if (null) {
		GIVES(IBV_REREG_MR_ERR_INPUT,
		      ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
				   0, 0));
		GIVES(EINVAL, errno);
		CHECK(!ibv_dereg_mr(null));
	}
	/* All calls failed, so the region is unchanged */
	CHECK(!ibv_dereg_mr(region) && !ibv_dealloc_pd(plain));
	munmap(constant, 4096);
	end();
}

/*
 * Tests advice for pinned memory, which is an error because advice is for
 * memory on demand.
 */
static void test_advice(void)
{
	static const enum ibv_advise_mr_advice advice[] = {
		IBV_ADVISE_MR_ADVICE_PREFETCH,
		IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
		(enum ibv_advise_mr_advice)77,
	};
	struct ibv_sge sge = sge_of(0, 4096), bad = { 0, 1, ~mr->lkey };
	size_t i;

	for (i = 0; i < sizeof(advice) / sizeof(*advice); i++) {
		int no_region = capabilities & QRNIC_CAP_ON_DEMAND &&
				advice[i] != 77 ? ENOENT : EOPNOTSUPP;

		GIVES(no_region, ibv_advise_mr(pd, advice[i], 0, &sge, 1));
		GIVES(no_region, ibv_advise_mr(pd, advice[i],
					       IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
		GIVES(no_region, ibv_advise_mr(pd, advice[i], 0, &bad, 1));
		GIVES(EINVAL, ibv_advise_mr(pd, advice[i], 0, NULL, 0));
	}
	end();
}

static void test_device_memory(void)
{
	const unsigned int rights = IBV_ACCESS_LOCAL_WRITE |
				    IBV_ACCESS_ZERO_BASED;
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_mr *region;
	struct ibv_dm *dm;

	NEED(limits.max_dm_size);
	dm = ibv_alloc_dm(context, &attr);
	CHECK(dm);
	region = ibv_reg_dm_mr(pd, dm, 0, 4096, rights);
	CHECK(region);
	GIVES(EBUSY, ibv_free_dm(dm));
	GIVES(EINVAL, MADE(ibv_reg_dm_mr(pd, dm, 0, 4096,
					 IBV_ACCESS_LOCAL_WRITE)));
	GIVES(EINVAL, MADE(ibv_reg_dm_mr(pd, dm, 4096, 4, rights)));
	GIVES(EINVAL, MADE(ibv_reg_dm_mr(pd, dm, 4, 4096, rights)));
	GIVES(EINVAL, MADE(ibv_reg_dm_mr(pd, dm, ~0ull, 4, rights)));
	GIVES(EINVAL, ibv_memcpy_to_dm(dm, 2, buffer, 4));
	GIVES(EINVAL, ibv_memcpy_from_dm(buffer, dm, 0, 3));
	GIVES(EFAULT, ibv_memcpy_to_dm(dm, 4096, buffer, 4));
	GIVES(EFAULT, ibv_memcpy_from_dm(buffer, dm, ~3ull, 8));
	CHECK(!ibv_dereg_mr(region) && !ibv_free_dm(dm));
	attr.length = 0;
	GIVES(EINVAL, MADE(ibv_alloc_dm(context, &attr)));
	attr.length = limits.max_dm_size + 4096;
	GIVES(EINVAL, MADE(ibv_alloc_dm(context, &attr)));
	attr = (struct ibv_alloc_dm_attr){ 4096, .log_align_req = 64 };
	GIVES(EINVAL, MADE(ibv_alloc_dm(context, &attr)));
	attr = (struct ibv_alloc_dm_attr){ 4096, .comp_mask = 1 };
	GIVES(EINVAL, MADE(ibv_alloc_dm(context, &attr)));
	attr = (struct ibv_alloc_dm_attr){ .length = limits.max_dm_size };
	dm = ibv_alloc_dm(context, &attr);
	CHECK(dm);
	attr.length = 4096;
	GIVES(ENOMEM, MADE(ibv_alloc_dm(context, &attr)));
	CHECK(!ibv_free_dm(dm));
	GIVES(ENOENT, MADE(ibv_import_dm(context, 0x7ffffff0)));
	end();
}

static int cq_made(struct ibv_cq_init_attr_ex attr)
{
	struct ibv_cq_ex *made = ibv_create_cq_ex(context, &attr);

	return made ? ibv_destroy_cq(ibv_cq_ex_to_cq(made)) : errno;
}
#define CQ(...) cq_made((struct ibv_cq_init_attr_ex){ .cqe = 64,               \
			.wc_flags = IBV_WC_STANDARD_FLAGS, __VA_ARGS__ })

static void test_cqs(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_modify_cq_attr change = {};
	struct ibv_cq *with;

	with = ibv_create_cq(context, 64, NULL, channel, 0);
	CHECK(channel && with);
	GIVES(EBUSY, ibv_destroy_comp_channel(channel));
	GIVES(0, CQ());
	GIVES(EINVAL, CQ(.cqe = 0));
	GIVES(EINVAL, CQ(.cqe = limits.orig_attr.max_cqe + 1));
	GIVES(EINVAL, CQ(.cqe = -1));
	GIVES(EINVAL, CQ(.comp_vector = context->num_comp_vectors));
	GIVES(EINVAL, CQ(.comp_vector = -1));
	GIVES(EOPNOTSUPP, CQ(.wc_flags = 1ull << 40));
	GIVES(EOPNOTSUPP, CQ(.wc_flags = IBV_WC_EX_WITH_FLOW_TAG));
	GIVES(EOPNOTSUPP, CQ(.comp_mask = 1u << 31));
	GIVES(EOPNOTSUPP, CQ(.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
			     .flags = 1u << 31));
	GIVES(EINVAL, CQ(.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
			 .parent_domain = pd));
	GIVES(EINVAL, MADE(ibv_create_cq(context, 0, NULL, NULL, 0)));
	GIVES(EINVAL, MADE(ibv_create_cq(context, -5, NULL, NULL, 0)));
	GIVES(EINVAL, MADE(ibv_create_cq(context, 1, NULL, NULL, 9999)));
	if (capabilities & QRNIC_CAP_CQ_RESIZE) {
		GIVES(EINVAL, ibv_resize_cq(with, 0));
		GIVES(EINVAL, ibv_resize_cq(with, -1));
		GIVES(EINVAL, ibv_resize_cq(with,
					    limits.orig_attr.max_cqe + 1));
		GIVES(ENOENT, FOREIGN(with, ibv_resize_cq(with, 128)));
	}
	if (capabilities & QRNIC_CAP_CQ_MODERATION) {
		change.attr_mask = 1 << 9;
		GIVES(EINVAL, ibv_modify_cq(with, &change));
		change.attr_mask = IBV_CQ_ATTR_MODERATE;
		change.moderate.cq_count = UINT16_MAX;
		if (limits.cq_mod_caps.max_cq_count < UINT16_MAX)
			GIVES(EINVAL, ibv_modify_cq(with, &change));
	}
	GIVES(ENOENT, FOREIGN(with, ibv_destroy_cq(with)));
	CHECK(!ibv_destroy_cq(with) && !ibv_destroy_comp_channel(channel));
	end();
}

static int srq_made(struct ibv_srq_init_attr_ex attr)
{
	struct ibv_srq *made = ibv_create_srq_ex(context, &attr);

	return made ? ibv_destroy_srq(made) : errno;
}
#define SRQ(...) srq_made((struct ibv_srq_init_attr_ex){                       \
			.attr = { .max_wr = 8, .max_sge = 1 }, .pd = pd,       \
			.comp_mask = IBV_SRQ_INIT_ATTR_PD, __VA_ARGS__ })
#define TYPED (IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE)

/* Creates an SRQ with these limits of tags and operations */
#define TAGS(tags, ops, ...) SRQ(.srq_type = IBV_SRQT_TM, .cq = cq,            \
				 .comp_mask = TYPED | IBV_SRQ_INIT_ATTR_CQ |   \
					      IBV_SRQ_INIT_ATTR_TM,            \
				 .tm_cap = { tags, ops }, __VA_ARGS__)

static void test_tag_lists(void)
{
	const struct ibv_tm_caps *caps = &limits.tm_caps;
	const bool can = capabilities & QRNIC_CAP_TAG_MATCHING;

	GIVES(can ? EINVAL : EOPNOTSUPP,
	      SRQ(.comp_mask = TYPED, .srq_type = IBV_SRQT_TM));
	if (!can) {
		CHECK(!caps->max_num_tags && !caps->max_ops && !caps->flags);
		GIVES(EOPNOTSUPP, TAGS(4, 4));
		end();
		return;
	}
	CHECK(caps->max_num_tags && caps->max_ops && caps->max_sge);
	CHECK(caps->flags == IBV_TM_CAP_RC && caps->max_rndv_hdr_size);
	GIVES(0, TAGS(1, 1));
	GIVES(0, TAGS(caps->max_num_tags, caps->max_ops));
	GIVES(EINVAL, TAGS(0, 4));
	GIVES(EINVAL, TAGS(4, 0));
	GIVES(EINVAL, TAGS(caps->max_num_tags + 1, 4));
	GIVES(EINVAL, TAGS(4, caps->max_ops + 1));
	GIVES(EINVAL, TAGS(4, 4, .cq = NULL));
	GIVES(ENOENT, FOREIGN(cq, TAGS(4, 4)));
	GIVES(EOPNOTSUPP, SRQ(.comp_mask = TYPED | IBV_SRQ_INIT_ATTR_TM |
					   IBV_SRQ_INIT_ATTR_CQ | 1u << 31,
			      .srq_type = IBV_SRQT_TM, .cq = cq,
			      .tm_cap = { 4, 4 }));
	end();
}

static void test_srqs(void)
{
	struct ibv_srq_init_attr init = { .attr = { 3, 1, 0 } };
	struct ibv_sge sge[64] = { sge_of(0, 64) };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 64 }, *bad = NULL;
	struct ibv_ops_wr op = {}, *bad_op;
	struct ibv_srq_attr attr = {};
	struct ibv_srq *srq;
	uint32_t i;

	NEED(capabilities & QRNIC_CAP_SRQ);
	srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	GIVES(0, SRQ());
	GIVES(EINVAL, SRQ(.attr.max_wr = 0));
	GIVES(EINVAL, SRQ(.attr.max_wr = limits.orig_attr.max_srq_wr + 1));
	GIVES(EINVAL, SRQ(.attr.max_sge = limits.orig_attr.max_srq_sge + 1));
	GIVES(EOPNOTSUPP, SRQ(.comp_mask = TYPED, .srq_type = 9));
	GIVES(EOPNOTSUPP, SRQ(.comp_mask = IBV_SRQ_INIT_ATTR_PD | 1u << 31));
	if (capabilities & QRNIC_CAP_XRC)
		GIVES(EINVAL, SRQ(.comp_mask = TYPED,
				  .srq_type = IBV_SRQT_XRC));
	GIVES(ENOENT, FOREIGN(pd, SRQ()));
	attr.srq_limit = init.attr.max_wr + 1;
	GIVES(EINVAL, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	if (capabilities & QRNIC_CAP_SRQ_RESIZE) {
		GIVES(EINVAL, ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
		attr.max_wr = limits.orig_attr.max_srq_wr + 1;
		GIVES(EINVAL, ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
		attr.max_wr = 3;
		attr.srq_limit = 4;
		GIVES(EINVAL, ibv_modify_srq(srq, &attr,
					     IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT));
		GIVES(ENOENT, FOREIGN(srq, ibv_modify_srq(srq, &attr,
							  IBV_SRQ_MAX_WR)));
	}
	GIVES(EOPNOTSUPP, ibv_modify_srq(srq, &attr, 1 << 5));
	GIVES(ENOENT, FOREIGN(srq, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT)));
	GIVES(ENOENT, FOREIGN(srq, ibv_query_srq(srq, &attr)));
	GIVES(EINVAL, ibv_post_srq_recv(srq, &wr, &bad));
	CHECK(bad == &wr);
	wr.num_sge = -1;
	GIVES(EINVAL, ibv_post_srq_recv(srq, &wr, &bad));
	wr.num_sge = 1;
	for (i = 0; i < init.attr.max_wr; i++)
		CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
	GIVES(ENOMEM, ibv_post_srq_recv(srq, &wr, &bad));
	GIVES(EOPNOTSUPP, ibv_post_srq_ops(srq, &op, &bad_op));
	GIVES(ENOENT, FOREIGN(srq, ibv_destroy_srq(srq)));
	CHECK(!ibv_destroy_srq(srq));
	end();
}

static int qp_made(struct ibv_qp_init_attr_ex attr)
{
	struct ibv_qp *made = ibv_create_qp_ex(context, &attr);

	return made ? ibv_destroy_qp(made) : errno;
}
#define WITH_PD IBV_QP_INIT_ATTR_PD
#define QP(...) qp_made((struct ibv_qp_init_attr_ex){                          \
			.send_cq = cq, .recv_cq = cq, .pd = pd,                \
			.cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC,       \
			.comp_mask = WITH_PD, __VA_ARGS__ })

static void xrc_qps(void)
{
	struct ibv_qp_open_attr opened = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE |
			     IBV_QP_OPEN_ATTR_XRCD,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_xrcd_init_attr domain = { 0 };
	FILE *file = tmpfile();

	CHECK(file);
	GIVES(EINVAL, QP(.qp_type = IBV_QPT_XRC_RECV));
	GIVES(EINVAL, QP(.qp_type = IBV_QPT_XRC_RECV,
			 .comp_mask = IBV_QP_INIT_ATTR_XRCD));
	GIVES(EINVAL, MADE(ibv_open_xrcd(context, &domain)));
	domain = (struct ibv_xrcd_init_attr){ 7, -1, O_CREAT };
	GIVES(EOPNOTSUPP, MADE(ibv_open_xrcd(context, &domain)));
	domain = (struct ibv_xrcd_init_attr){ 3, fileno(file), 0 };
	GIVES(EAGAIN, MADE(ibv_open_xrcd(context, &domain)));
	domain = (struct ibv_xrcd_init_attr){ 3, 9999, O_CREAT };
	GIVES(EBADF, MADE(ibv_open_xrcd(context, &domain)));
	domain = (struct ibv_xrcd_init_attr){ 3, fileno(file), O_CREAT };
	opened.xrcd = ibv_open_xrcd(context, &domain);
	CHECK(opened.xrcd);
	domain.oflags |= O_EXCL;
	GIVES(EINVAL, MADE(ibv_open_xrcd(context, &domain)));
	opened.qp_num = 0xffffff;
	GIVES(EINVAL, MADE(ibv_open_qp(context, &opened)));
	opened.comp_mask = 0;
	GIVES(EINVAL, MADE(ibv_open_qp(context, &opened)));
	CHECK(!ibv_close_xrcd(opened.xrcd));
	fclose(file);
}

static void test_qps(void)
{
	const struct ibv_device_attr *max = &limits.orig_attr;

	GIVES(0, QP());
	GIVES(EOPNOTSUPP, QP(.qp_type = 0));
	GIVES(EOPNOTSUPP, QP(.qp_type = IBV_QPT_DRIVER));
	GIVES(EOPNOTSUPP, QP(.qp_type = 77));
	GIVES(EINVAL, QP(.cap.max_send_wr = max->max_qp_wr + 1));
	GIVES(EINVAL, QP(.cap.max_recv_wr = max->max_qp_wr + 1));
	GIVES(EINVAL, QP(.cap.max_send_wr = UINT32_MAX));
	GIVES(EINVAL, QP(.cap.max_send_sge = max->max_sge + 1));
	GIVES(EINVAL, QP(.cap.max_recv_sge = max->max_sge + 1));
	GIVES(EINVAL, QP(.cap.max_inline_data = QRNIC_MAX_INLINE + 1));
	GIVES(EINVAL, QP(.send_cq = NULL));
	GIVES(EINVAL, QP(.recv_cq = NULL));
	GIVES(EINVAL, QP(.comp_mask = WITH_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			 .recv_cq = NULL));
	GIVES(EINVAL, QP(.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD | 1u << 31));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD | IBV_QP_INIT_ATTR_RX_HASH));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD | IBV_QP_INIT_ATTR_IND_TABLE));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD |
			     IBV_QP_INIT_ATTR_MAX_TSO_HEADER));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD | IBV_QP_INIT_ATTR_XRCD));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD |
			     IBV_QP_INIT_ATTR_CREATE_FLAGS,
			     .create_flags = IBV_QP_CREATE_PCI_WRITE_END_PADDING));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD |
			     IBV_QP_INIT_ATTR_CREATE_FLAGS,
			     .create_flags = IBV_QP_CREATE_SCATTER_FCS));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			     .send_ops_flags = IBV_QP_EX_WITH_TSO));
	GIVES(EOPNOTSUPP, QP(.comp_mask = WITH_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			     .qp_type = IBV_QPT_UD,
			     .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ));
	GIVES(ENOENT, FOREIGN(pd, QP()));
	GIVES(EINVAL, WITH_HANDLE(pd, cq->handle, QP()));
	GIVES(EINVAL, WITH_HANDLE(cq, pd->handle, QP()));
	GIVES(ENOENT, FOREIGN(cq, QP()));
	if (capabilities & QRNIC_CAP_UD)
		GIVES(EINVAL, QP(.qp_type = IBV_QPT_UD,
				 .cap.max_send_sge = max->max_sge + 1));
	if (capabilities & QRNIC_CAP_XRC)
		xrc_qps();
	end();
}

/*
 * Calls ibv_modify_qp() with a copy of the attributes. The macros below make a
 * transition of a connected type, and each case changes one attribute.
 */
static int modify(struct ibv_qp *qp, int mask, struct ibv_qp_attr attr)
{
	return ibv_modify_qp(qp, &attr, mask);
}
#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |           \
		   IBV_QP_ACCESS_FLAGS)
#define INIT(mask, ...) modify(qp, mask, (struct ibv_qp_attr){                 \
			.qp_state = IBV_QPS_INIT, .port_num = 1, __VA_ARGS__ })
#define RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |                 \
		  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                            \
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define ADDRESS .is_global = 1, .port_num = 1, .grh.dgid = gid,                \
		.grh.sgid_index = gid_index, .grh.hop_limit = 1
#define RTR(mask, ...) modify(qp, mask, (struct ibv_qp_attr){                  \
			.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,     \
			.dest_qp_num = 99, .max_dest_rd_atomic = 1,            \
			.min_rnr_timer = 1, .ah_attr = { ADDRESS }, __VA_ARGS__ })
#define RTS_MASK (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |              \
		  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |                        \
		  IBV_QP_MAX_QP_RD_ATOMIC)
#define RTS(mask, ...) modify(qp, mask, (struct ibv_qp_attr){                  \
			.qp_state = IBV_QPS_RTS, .timeout = 14,                \
			.retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,    \
			__VA_ARGS__ })

/* Result on adapters with and without rate limits */
#define LIMITED(wanted)                                                        \
	(capabilities & QRNIC_CAP_RATE_LIMIT ? (wanted) : EOPNOTSUPP)
#define RATE(...) ibv_modify_qp_rate_limit(qp,                                 \
			&(struct ibv_qp_rate_limit_attr){ __VA_ARGS__ })

/* Tests rate limits of a queue pair in RTS. */
static void rate_limits(struct ibv_qp *qp)
{
	const uint32_t over = limits.packet_pacing_caps.qp_rate_limit_max + 1;
	const int mask = IBV_QP_STATE | IBV_QP_RATE_LIMIT;

	GIVES(LIMITED(0), RTS(mask, .rate_limit = 1000));
	GIVES(LIMITED(EINVAL), RTS(mask, .rate_limit = over));
	GIVES(LIMITED(EINVAL), RTS(mask, .qp_state = IBV_QPS_SQD,
				   .rate_limit = 1000));
	GIVES(LIMITED(0), RATE(.rate_limit = 1000));
	GIVES(LIMITED(EINVAL), RATE(.rate_limit = over));
	GIVES(EOPNOTSUPP, RATE(.rate_limit = 1000, .comp_mask = 1));
	GIVES(LIMITED(0), RATE(.rate_limit = 0));
}

static void test_states(void)
{
	struct ibv_qp_cap cap = { 4, 4, 1, 1, 0 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	struct pair p;

	CHECK(!pair_make(&p, &cap, 0));
	qp = p.qp[0];
	GIVES(EBUSY, ibv_destroy_cq(p.send_cq));
	GIVES(EINVAL, RTR(RTR_MASK));
	GIVES(EINVAL, RTS(RTS_MASK));
	GIVES(EINVAL, INIT(IBV_QP_STATE));
	GIVES(EINVAL, INIT(INIT_MASK & ~IBV_QP_PORT));
	GIVES(EINVAL, INIT(INIT_MASK | IBV_QP_SQ_PSN));
	GIVES(EINVAL, INIT(INIT_MASK, .port_num = 0));
	GIVES(EINVAL, INIT(INIT_MASK, .port_num = 2));
	GIVES(EINVAL, INIT(INIT_MASK, .pkey_index = 1));
	GIVES(EINVAL, INIT(INIT_MASK, .qp_state = 9));
	GIVES(EOPNOTSUPP, INIT(INIT_MASK | 1 << 30));
	GIVES(EINVAL, INIT(INIT_MASK | IBV_QP_CUR_STATE,
			   .cur_qp_state = IBV_QPS_RTS));
	GIVES(ENOENT, FOREIGN(qp, INIT(INIT_MASK)));
	GIVES(0, INIT(INIT_MASK));
	GIVES(LIMITED(EINVAL), RATE(.rate_limit = 1000));
	GIVES(LIMITED(EINVAL), INIT(INIT_MASK | IBV_QP_RATE_LIMIT,
				    .rate_limit = 1000));
	GIVES(EINVAL, RTS(RTS_MASK));
	GIVES(EINVAL, RTR(RTR_MASK & ~IBV_QP_AV));
	GIVES(EINVAL, RTR(RTR_MASK & ~IBV_QP_MIN_RNR_TIMER));
	GIVES(EINVAL, RTR(RTR_MASK, .path_mtu = 0));
	GIVES(EINVAL, RTR(RTR_MASK, .path_mtu = IBV_MTU_4096 + 1));
	GIVES(EINVAL, RTR(RTR_MASK, .dest_qp_num = 1 << 24));
	GIVES(EINVAL, RTR(RTR_MASK, .min_rnr_timer = 32));
	GIVES(EINVAL, RTR(RTR_MASK, .max_dest_rd_atomic = 255));
	GIVES(EINVAL, RTR(RTR_MASK, .ah_attr = { ADDRESS, .is_global = 0 }));
	GIVES(EINVAL, RTR(RTR_MASK, .ah_attr = { ADDRESS, .port_num = 2 }));
	GIVES(last_gid, RTR(RTR_MASK, .ah_attr = { ADDRESS,
						   .grh.sgid_index = 255 }));
	GIVES(ENODATA, RTR(RTR_MASK, .ah_attr = { ADDRESS,
						  .grh.sgid_index = 127 }));
	/* The kernel supports alternate paths for InfiniBand only */
	GIVES(EINVAL, RTR(RTR_MASK | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
			  .alt_ah_attr = { ADDRESS }, .alt_port_num = 1));
	GIVES(0, RTR(RTR_MASK));
	GIVES(EINVAL, RTS(RTS_MASK & ~IBV_QP_TIMEOUT));
	GIVES(EINVAL, RTS(RTS_MASK, .timeout = 32));
	GIVES(EINVAL, RTS(RTS_MASK, .retry_cnt = 8));
	GIVES(EINVAL, RTS(RTS_MASK, .rnr_retry = 8));
	GIVES(EINVAL, RTS(RTS_MASK, .max_rd_atomic = 255));
	GIVES(0, RTS(RTS_MASK));
	GIVES(EINVAL, RTS(IBV_QP_STATE | IBV_QP_SQ_PSN));
	GIVES(EINVAL, RTR(RTR_MASK));
	rate_limits(qp);
	GIVES(ENOENT, FOREIGN(qp, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init)));
	GIVES(ENOENT, FOREIGN(qp, ibv_destroy_qp(qp)));
	CHECK(!pair_free(&p));
	end();
}

static int post(struct ibv_qp *qp, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(qp, &wr, &bad);

	return err && bad != &wr ? EPROTO : err;
}
#define POST(qp, ...) post(qp, (struct ibv_send_wr){ .sg_list = sge,           \
			   .num_sge = 1, .opcode = IBV_WR_SEND, __VA_ARGS__ })

static void test_posting(void)
{
	const bool has_inline = capabilities & QRNIC_CAP_INLINE_SEND;
	struct ibv_qp_cap cap = { 8, 8, 2, 2, has_inline ? 64 : 0 };
	struct ibv_sge sge[64] = { sge_of(0, 64) };
	struct ibv_qp *qp;
	struct pair p;
	uint32_t i;

	CHECK(!pair_make(&p, &cap, 0));
	qp = p.qp[0];
	GIVES(EINVAL, recv_one(qp, sge, 1, 1));
	GIVES(EINVAL, POST(qp));
	CHECK(!to_init(qp));
	GIVES(EINVAL, POST(qp));
	GIVES(EINVAL, recv_one(qp, sge, 64, 1));
	GIVES(EINVAL, recv_one(qp, sge, -1, 1));
	for (i = 0; i < cap.max_recv_wr; i++)
		CHECK(!recv_one(qp, sge, 1, 1));
	GIVES(ENOMEM, recv_one(qp, sge, 1, 1));
	CHECK(!to_init(p.qp[1]) && !to_rtr(qp, p.qp[1]->qp_num) &&
	      !to_rtr(p.qp[1], qp->qp_num) && !to_rts(qp));
	GIVES(EINVAL, POST(qp, .num_sge = 64));
	GIVES(EINVAL, POST(qp, .num_sge = -1));
	GIVES(EOPNOTSUPP, POST(qp, .opcode = 99));
	GIVES(EOPNOTSUPP, POST(qp, .opcode = IBV_WR_TSO));
	GIVES(EOPNOTSUPP, POST(qp, .opcode = IBV_WR_DRIVER1));
	GIVES(EINVAL, POST(qp, .opcode = IBV_WR_RDMA_READ,
			   .send_flags = IBV_SEND_INLINE));
	GIVES(capabilities & QRNIC_CAP_MW ? EINVAL : EOPNOTSUPP,
	      POST(qp, .opcode = IBV_WR_BIND_MW));
	if (capabilities & QRNIC_CAP_ATOMIC) {
		GIVES(EINVAL, POST(qp, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				   .num_sge = 2));
		GIVES(EINVAL, POST(qp, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				   .num_sge = 0));
	}
	sge[0].length = 4096;
	GIVES(EINVAL, POST(qp, .send_flags = IBV_SEND_INLINE));
	/*
	 * The peer no longer answers, so no work request completes while the
	 * queue fills
	 */
	CHECK(!to_state(p.qp[1], IBV_QPS_RESET));
	for (i = 0; i < cap.max_send_wr; i++)
		CHECK(!POST(qp));
	for (i = 0; i < 4096 && !POST(qp); i++)
		;
	GIVES(ENOMEM, POST(qp));
	CHECK(!pair_free(&p));
	end();
}

static void test_datagrams(void)
{
	struct ibv_ah_attr attr = { ADDRESS };
	struct ibv_qp_cap cap = { 8, 8, 2, 2, 0 };
	struct ibv_sge sge[2] = { sge_of(0, 64) };
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 224, 0, 0, 9 } };
	struct ibv_qp *qp, *rc;
	struct ibv_ah *ah;
	struct pair p, q;

	NEED(capabilities & QRNIC_CAP_UD);
	memset(&p, 0, sizeof(p));
	p.type = IBV_QPT_UD;
	CHECK(!pair_make_as(&p, &cap, 0));
	cap = (struct ibv_qp_cap){ 8, 8, 2, 2, 0 };
	CHECK(!pair_make(&q, &cap, 0));
	qp = p.qp[0];
	rc = q.qp[0];
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah && !to_init(qp) && !to_rtr(qp, 0) && !to_rts(qp));
	GIVES(EINVAL, POST(qp));
	GIVES(EINVAL, POST(qp, .wr.ud.ah = ah, .opcode = IBV_WR_RDMA_WRITE));
	GIVES(EINVAL, POST(qp, .wr.ud.ah = ah, .opcode = IBV_WR_RDMA_READ));
	GIVES(EINVAL, POST(qp, .wr.ud.ah = ah, .opcode = IBV_WR_LOCAL_INV));
	attr.port_num = 2;
	GIVES(EINVAL, MADE(ibv_create_ah(pd, &attr)));
	attr = (struct ibv_ah_attr){ ADDRESS, .is_global = 0 };
	GIVES(EINVAL, MADE(ibv_create_ah(pd, &attr)));
	attr = (struct ibv_ah_attr){ ADDRESS, .grh.sgid_index = 255 };
	GIVES(last_gid, MADE(ibv_create_ah(pd, &attr)));
	attr = (struct ibv_ah_attr){ ADDRESS, .grh.sgid_index = 127 };
	GIVES(ENODATA, MADE(ibv_create_ah(pd, &attr)));
	attr = (struct ibv_ah_attr){ ADDRESS };
	GIVES(ENOENT, FOREIGN(pd, MADE(ibv_create_ah(pd, &attr))));
	GIVES(0, ibv_attach_mcast(qp, &group, 0));
	GIVES(0, ibv_detach_mcast(qp, &group, 0));
	GIVES(EINVAL, ibv_detach_mcast(qp, &group, 0));
	GIVES(EINVAL, ibv_attach_mcast(qp, &gid, 0));
	GIVES(EINVAL, ibv_attach_mcast(rc, &group, 0));
	GIVES(EINVAL, ibv_detach_mcast(rc, &group, 0));
	GIVES(ENOENT, FOREIGN(qp, ibv_attach_mcast(qp, &group, 0)));
	GIVES(ENOENT, FOREIGN(ah, ibv_destroy_ah(ah)));
	CHECK(!ibv_destroy_ah(ah) && !pair_free(&p) && !pair_free(&q));
	end();
}

static void test_windows(void)
{
	const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_pd *plain = ibv_alloc_pd(context);
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mr *region, *others;
	struct ibv_mw *one, *two;
	struct ibv_wc wc;
	struct pair p;

	NEED(capabilities & QRNIC_CAP_MW);
	one = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	region = ibv_reg_mr(pd, buffer, 4096, rights);
	others = ibv_reg_mr(plain, buffer, 4096, rights);
	CHECK(one && two && region && others);
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	GIVES(EINVAL, MADE(ibv_alloc_mw(pd, 0)));
	GIVES(EINVAL, MADE(ibv_alloc_mw(pd, 3)));
	GIVES(ENOENT, FOREIGN(pd, MADE(ibv_alloc_mw(pd, IBV_MW_TYPE_1))));
	bind.bind_info = (struct ibv_mw_bind_info){ region, (uintptr_t)buffer,
						    64, 0 };
	GIVES(EINVAL, ibv_bind_mw(p.qp[0], two, &bind));
	bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
	GIVES(EINVAL, ibv_bind_mw(p.qp[0], one, &bind));
	bind.bind_info = (struct ibv_mw_bind_info){ NULL, 0, 64, 0 };
	GIVES(EINVAL, ibv_bind_mw(p.qp[0], one, &bind));
	bind.bind_info = (struct ibv_mw_bind_info){ others, (uintptr_t)buffer,
						    64, 0 };
	GIVES(EPERM, ibv_bind_mw(p.qp[0], one, &bind));
	bind.bind_info.mr = region;
	GIVES(0, ibv_bind_mw(p.qp[0], one, &bind));
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	GIVES(EBUSY, ibv_dereg_mr(region));
	GIVES(IBV_REREG_MR_ERR_CMD,
	      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   rights));
	GIVES(EBUSY, errno);
	GIVES(ENOENT, FOREIGN(two, ibv_dealloc_mw(two)));
	CHECK(!ibv_dealloc_mw(one) && !ibv_dealloc_mw(two));
	CHECK(!ibv_dereg_mr(region) && !ibv_dereg_mr(others));
	CHECK(!ibv_dealloc_pd(plain) && !pair_free(&p));
	end();
}

struct rule {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_tcp_udp udp;
	struct ibv_flow_spec_ipv4 ipv4;
};

static int rule_made(struct ibv_qp *qp, struct rule rule)
{
	struct ibv_flow *flow = ibv_create_flow(qp, &rule.attr);

	return flow ? ibv_destroy_flow(flow) : errno;
}
#define RULE(qp, ...) rule_made(qp, (struct rule){                             \
			.attr = { .size = sizeof(struct rule), .port = 1 },    \
			.udp = { IBV_FLOW_SPEC_UDP, sizeof(rule.udp) },        \
			.ipv4 = { IBV_FLOW_SPEC_IPV4, sizeof(rule.ipv4) },     \
			__VA_ARGS__ })

static void test_rules(void)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct rule rule;
	struct ibv_qp *qp;
	struct pair p, q;

	NEED(capabilities & QRNIC_CAP_FLOW);
	memset(&p, 0, sizeof(p));
	p.type = IBV_QPT_RAW_PACKET;
	CHECK(!pair_make_as(&p, &cap, 0));
	cap = (struct ibv_qp_cap){ 8, 8, 1, 1, 0 };
	CHECK(!pair_make(&q, &cap, 0));
	qp = p.qp[0];
	CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT));
	GIVES(0, RULE(qp));
	GIVES(0, RULE(qp, .attr.num_of_specs = 1));
	GIVES(EINVAL, RULE(qp, .attr.num_of_specs = 2));
	GIVES(EINVAL, RULE(qp, .attr.num_of_specs = 1, .udp.type = 0x99));
	GIVES(EOPNOTSUPP, RULE(qp, .attr.num_of_specs = 1,
			       .udp.type = IBV_FLOW_SPEC_VXLAN_TUNNEL));
	GIVES(EOPNOTSUPP, RULE(qp, .attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS));
	GIVES(EINVAL, RULE(qp, .attr.flags = 1 << 9));
	GIVES(EOPNOTSUPP, RULE(qp, .attr.type = 9));
	GIVES(EINVAL, RULE(qp, .attr.type = IBV_FLOW_ATTR_SNIFFER,
			   .attr.num_of_specs = 1));
	GIVES(EINVAL, RULE(qp, .attr.port = 0));
	GIVES(EINVAL, RULE(qp, .attr.port = 2));
	GIVES(EOPNOTSUPP, RULE(qp, .attr.comp_mask = 1));
	GIVES(EINVAL, RULE(q.qp[0]));
	GIVES(ENOENT, FOREIGN(qp, RULE(qp)));
	CHECK(!pair_free(&p) && !pair_free(&q));
	end();
}

/* Calls a method that the driver adds to uverbs, without the library. */
static int ioctl_on(int fd, int object, int method, int driver, int count,
		    const struct ib_uverbs_attr *attrs)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[4];
	} cmd = {
		.hdr = {
			.length = sizeof(cmd.hdr) + count * sizeof(*attrs),
			.object_id = object,
			.method_id = method,
			.num_attrs = count,
			.driver_id = driver,
		},
	};

	memcpy(cmd.attrs, attrs, count * sizeof(*attrs));
	return ioctl(fd, RDMA_VERBS_IOCTL, &cmd) ? errno : 0;
}

static int ask(int object, int method, int driver, int count,
	       const struct ib_uverbs_attr *attrs)
{
	return ioctl_on(context->cmd_fd, object, method, driver, count, attrs);
}
#define ASK_AS(driver, object, method, ...)                                    \
	ask(object, method, driver,                                            \
	    sizeof((struct ib_uverbs_attr[]){ __VA_ARGS__ }) /                 \
		    sizeof(struct ib_uverbs_attr),                             \
	    (struct ib_uverbs_attr[]){ __VA_ARGS__ })
#define ASK(...) ASK_AS(QRNIC_DRIVER_ID, __VA_ARGS__)
#define HANDLE(id, number)                                                     \
	{ .attr_id = id, .flags = UVERBS_ATTR_F_MANDATORY, .data = number }
#define OUT(id, size, at)                                                      \
	{ .attr_id = id, .len = size, .flags = UVERBS_ATTR_F_MANDATORY,        \
	  .data = (uintptr_t)(at) }
#define PD_QUERY(...)                                                          \
	ASK(UVERBS_OBJECT_PD, QRNIC_METHOD_PD_QUERY, __VA_ARGS__)
#define DB_PAGE(number_at, at)                                                 \
	ask(QRNIC_OBJECT_DB_PAGE, QRNIC_METHOD_DB_PAGE_ALLOC, QRNIC_DRIVER_ID, \
	    4, (struct ib_uverbs_attr[]){                                      \
		       HANDLE(QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE, 0),             \
		       OUT(QRNIC_ATTR_DB_PAGE_ALLOC_OFFSET, 8, at),            \
		       OUT(QRNIC_ATTR_DB_PAGE_ALLOC_LENGTH, 4, at),            \
		       OUT(QRNIC_ATTR_DB_PAGE_ALLOC_NUMBER, 4, number_at) })

static void test_methods(void)
{
	uint64_t out[4], *none = (uint64_t *)4096;
	struct utsname kernel;
	unsigned int major, minor;
	char path[96];
	int i, fd;

	snprintf(path, sizeof(path), "/dev/infiniband/%s", context->device->dev_name);
	GIVES(0, PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle),
			  OUT(QRNIC_ATTR_PD_QUERY_PDN, 4, out)));
	GIVES(ENOENT, PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, 0x7ffffff0),
			       OUT(QRNIC_ATTR_PD_QUERY_PDN, 4, out)));
	GIVES(EINVAL, PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, cq->handle),
			       OUT(QRNIC_ATTR_PD_QUERY_PDN, 4, out)));
	GIVES(EINVAL, PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle)));
	GIVES(EINVAL, PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle),
			       OUT(QRNIC_ATTR_PD_QUERY_PDN, 2, out)));
	GIVES(EFAULT, PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle),
			       OUT(QRNIC_ATTR_PD_QUERY_PDN, 4, none)));
	GIVES(EFAULT, PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle),
			       OUT(QRNIC_ATTR_PD_QUERY_PDN, 4, out),
			       OUT(QRNIC_ATTR_PD_QUERY_NULL_KEY, 4, none)));
	GIVES(EPROTONOSUPPORT,
	      PD_QUERY(HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle),
		       OUT(QRNIC_ATTR_PD_QUERY_PDN, 4, out),
		       OUT(QRNIC_ATTR_PD_QUERY_NULL_KEY + 9, 4, out)));
	GIVES(EPROTONOSUPPORT,
	      ASK(UVERBS_OBJECT_PD, QRNIC_METHOD_PD_QUERY + 9,
		  HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle)));
	GIVES(EPROTONOSUPPORT,
	      ASK(QRNIC_OBJECT_DB_PAGE + 9, QRNIC_METHOD_DB_PAGE_FREE,
		  HANDLE(QRNIC_ATTR_DB_PAGE_FREE_HANDLE, 1)));
	GIVES(EINVAL,
	      ASK_AS(RDMA_DRIVER_MLX5, UVERBS_OBJECT_PD, QRNIC_METHOD_PD_QUERY,
		     HANDLE(QRNIC_ATTR_PD_QUERY_HANDLE, pd->handle),
		     OUT(QRNIC_ATTR_PD_QUERY_PDN, 4, out)));
	GIVES(ENOENT,
	      ASK(UVERBS_OBJECT_DM, QRNIC_METHOD_DM_QUERY,
		  HANDLE(QRNIC_ATTR_DM_QUERY_HANDLE, 0x7ffffff0),
		  OUT(QRNIC_ATTR_DM_QUERY_OFFSET, 8, out),
		  OUT(QRNIC_ATTR_DM_QUERY_LENGTH, 8, out)));
	GIVES(capabilities & QRNIC_CAP_TIMESTAMP ? EFAULT : EOPNOTSUPP,
	      ASK(UVERBS_OBJECT_DEVICE, QRNIC_METHOD_QUERY_CLOCK,
		  OUT(QRNIC_ATTR_QUERY_CLOCK_VALUE, 8, none)));
	GIVES(EINVAL, ASK(UVERBS_OBJECT_DEVICE, QRNIC_METHOD_QUERY_CLOCK,
			  OUT(QRNIC_ATTR_QUERY_CLOCK_VALUE, 4, out)));
	/*
	 * Since Linux 7.1 the kernel reports if the driver checks whole
	 * requests, so the result depends on the version
	 */
	CHECK(!uname(&kernel));
	CHECK(sscanf(kernel.release, "%u.%u", &major, &minor) == 2);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(!ioctl_on(fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT,
			QRNIC_DRIVER_ID, 2, (struct ib_uverbs_attr[]){
			OUT(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, out),
			OUT(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, out + 1) }));
	GIVES(major > 7 || (major == 7 && minor >= 1), !!(out[1] & 1 << 1));
	close(fd);
	/*
	 * The attribute of the driver is optional, so the method also works
	 * without it
	 */
	GIVES(0, ASK(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT,
		     OUT(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, 4, out)));
	GIVES(ENOENT, ASK(QRNIC_OBJECT_DB_PAGE, QRNIC_METHOD_DB_PAGE_FREE,
			  HANDLE(QRNIC_ATTR_DB_PAGE_FREE_HANDLE, 0x7ffffff0)));
	GIVES(EINVAL, ASK(QRNIC_OBJECT_DB_PAGE, QRNIC_METHOD_DB_PAGE_FREE,
			  HANDLE(QRNIC_ATTR_DB_PAGE_FREE_HANDLE, pd->handle)));
	/*
	 * The number of tries exceeds the number of pages, so a page that is
	 * lost each time would be noticed
	 */
	for (i = 0; i < 5000; i++)
		if (DB_PAGE(none, out) != EFAULT)
			break;
	GIVES(5000, i);
	GIVES(0, DB_PAGE(out + 1, out));
	end();
}

/* Verbs that need receive work queues, counters or doorbell pages */
#define WQ(...)                                                                \
	MADE(ibv_create_wq(context, &(struct ibv_wq_init_attr){                \
		.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd,    \
		.cq = cq, __VA_ARGS__ }))
#define TABLE(...)                                                             \
	MADE(ibv_create_rwq_ind_table(context,                                 \
		&(struct ibv_rwq_ind_table_init_attr){ __VA_ARGS__ }))
#define SPREAD(...)                                                            \
	MADE(ibv_create_qp_ex(context, &(struct ibv_qp_init_attr_ex){          \
		.qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .rwq_ind_tbl = table, \
		.comp_mask = WITH_PD | IBV_QP_INIT_ATTR_IND_TABLE |            \
			     IBV_QP_INIT_ATTR_RX_HASH, __VA_ARGS__ }))
#define HASH(...)                                                              \
	.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,       \
			  .rx_hash_key_len = sizeof(key), .rx_hash_key = key,  \
			  __VA_ARGS__ }

static void test_work_queues(void)
{
	struct ibv_wq_attr step = { .attr_mask = IBV_WQ_ATTR_STATE };
	const struct ibv_device_attr *max = &limits.orig_attr;
	struct ibv_rwq_ind_table_init_attr attr = {};
	struct ibv_rwq_ind_table *table;
	uint8_t key[40] = {};
	struct ibv_wq *wq;

	NEED(capabilities & QRNIC_CAP_RSS);
	GIVES(EOPNOTSUPP, WQ(.wq_type = IBV_WQT_RQ + 1));
	GIVES(EOPNOTSUPP, WQ(.comp_mask = 1u << 31));
	GIVES(EOPNOTSUPP, WQ(.comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
			     .create_flags = IBV_WQ_FLAGS_DELAY_DROP));
	GIVES(EINVAL, WQ(.max_wr = 0));
	GIVES(EINVAL, WQ(.max_wr = max->max_qp_wr + 1));
	GIVES(EINVAL, WQ(.max_sge = max->max_sge + 1));
	GIVES(EINVAL, WQ(.cq = NULL));
	GIVES(EOPNOTSUPP, TABLE(.comp_mask = 1));
	GIVES(EINVAL, TABLE(.log_ind_tbl_size = 8, .ind_tbl = &wq));
	GIVES(EINVAL, TABLE(.ind_tbl = NULL));

	wq = ibv_create_wq(context, &(struct ibv_wq_init_attr){
		.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd,
		.cq = cq });
	CHECK(wq);
	step.wq_state = IBV_WQS_ERR;
	GIVES(0, ibv_modify_wq(wq, &step));
	step.wq_state = IBV_WQS_RDY;
	GIVES(EINVAL, ibv_modify_wq(wq, &step));
	step.attr_mask = IBV_WQ_ATTR_FLAGS;
	step.flags = step.flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	GIVES(EOPNOTSUPP, ibv_modify_wq(wq, &step));
	attr.ind_tbl = &wq;
	table = ibv_create_rwq_ind_table(context, &attr);
	CHECK(table);
	GIVES(EBUSY, ibv_destroy_wq(wq));
	GIVES(EOPNOTSUPP, SPREAD(HASH(.rx_hash_function = 1 << 1)));
	GIVES(EOPNOTSUPP,
	      SPREAD(HASH(.rx_hash_fields_mask = IBV_RX_HASH_IPSEC_SPI)));
	GIVES(EINVAL, SPREAD(HASH(.rx_hash_key_len = 39)));
	GIVES(EINVAL, SPREAD(HASH(), .comp_mask = WITH_PD |
			     IBV_QP_INIT_ATTR_IND_TABLE));
	GIVES(EOPNOTSUPP, SPREAD(HASH(), .qp_type = IBV_QPT_UD));
	CHECK(!ibv_destroy_rwq_ind_table(table) && !ibv_destroy_wq(wq));
	end();
}

static bool has_counters(void)
{
	return (capabilities & QRNIC_CAP_FLOW) &&
	       (capabilities & QRNIC_CAP_COUNTER_SETS);
}

/* Tests counters without rules; packet-test.c tests counters of rules. */
static void test_counters(void)
{
	struct ibv_counters_init_attr init = { .comp_mask = 1 };
	struct ibv_counter_attach_attr attr = {};
	struct ibv_counters *counters;
	struct ibv_flow flow;
	uint64_t value;

	NEED(has_counters());
	GIVES(EOPNOTSUPP, MADE(ibv_create_counters(context, &init)));
	init.comp_mask = 0;
	counters = ibv_create_counters(context, &init);
	CHECK(counters);
	GIVES(EOPNOTSUPP,
	      ibv_attach_counters_point_flow(counters, &attr, &flow));
	attr.comp_mask = 1;
	GIVES(EOPNOTSUPP,
	      ibv_attach_counters_point_flow(counters, &attr, NULL));
	attr.comp_mask = 0;
	attr.counter_desc = IBV_COUNTER_BYTES + 1;
	GIVES(EOPNOTSUPP,
	      ibv_attach_counters_point_flow(counters, &attr, NULL));
	attr.counter_desc = IBV_COUNTER_BYTES;
	GIVES(0, ibv_attach_counters_point_flow(counters, &attr, NULL));
	GIVES(EINVAL, ibv_read_counters(counters, &value, 1, 0));
	GIVES(0, ibv_destroy_counters(counters));
	end();
}

static void test_lacking(void)
{
	struct ibv_counters_init_attr counters_attr = {};
	struct ibv_flow_action_esp_attr esp = {};
	struct ibv_qp_cap cap = { 1, 1, 1, 1, 0 };
	struct ibv_ece ece = { .vendor_id = 1 };
	struct pair p;

	CHECK(!pair_make(&p, &cap, 0));
	if (!(capabilities & QRNIC_CAP_RSS)) {
		GIVES(EOPNOTSUPP, WQ());
		GIVES(EOPNOTSUPP, TABLE());
	}
	if (!has_counters())
		GIVES(EOPNOTSUPP,
		      MADE(ibv_create_counters(context, &counters_attr)));
	GIVES(EOPNOTSUPP, MADE(ibv_create_flow_action_esp(context, &esp)));
	if (!(capabilities & (QRNIC_CAP_SELECTIVE_REPEAT | QRNIC_CAP_ADAPTIVE_ROUTING)))
		GIVES(EOPNOTSUPP, ibv_set_ece(p.qp[0], &ece));
	CHECK(!pair_free(&p));
	end();
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no qrnic adapter is usable\n");
		return 1;
	}
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	if (!cq || ibv_query_device_ex(context, NULL, &limits))
		return 1;
	run("errnos of queries", test_queries);
	run("errnos of domains", test_domains);
	run("errnos of memory regions", test_regions);
	run("errnos of advice", test_advice);
	run("errnos of device memory", test_device_memory);
	run("errnos of completion queues", test_cqs);
	run("errnos of shared receive queues", test_srqs);
	run("errnos of tag lists", test_tag_lists);
	run("errnos of creating queue pairs", test_qps);
	run("errnos of states", test_states);
	run("errnos of posting", test_posting);
	run("errnos of datagrams", test_datagrams);
	run("errnos of memory windows", test_windows);
	run("errnos of flow rules", test_rules);
	run("errnos of methods of the driver", test_methods);
	run("errnos of receive work queues", test_work_queues);
	run("errnos of counters", test_counters);
	run("errnos of missing features", test_lacking);
	printf("# %d cases\n", cases);
	ibv_destroy_cq(cq);
	return tear_down();
}
