// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * qrnic.c: the entry points of libqrnic. libibverbs matches the device, and
 * opens and imports contexts here. A context has its doorbell page, its limits,
 * and the table of the verbs operations in all other files.
 *
 * libibverbs calls qrnic_alloc_context() or qrnic_import_context() first, and
 * qrnic_free_context() last, when no object of the context exists. No lock is
 * held in these functions.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ccan/array_size.h>
#include <ccan/minmax.h>
#include <infiniband/cmd_ioctl.h>

#include "commands.h"
#include "cq.h"
#include "qp.h"
#include "srq.h"

static void qrnic_free_context(struct ibv_context *context)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	unsigned int i;

	for (i = 0; i < QRNIC_QP_TABLE_SIZE; i++)
		free(atomic_load_explicit(&ctx->qp_table[i],
					  memory_order_relaxed));
	munmap(ctx->db.page, ctx->db.length);
	qrnic_slabs_destroy(&ctx->slabs);
	pthread_mutex_destroy(&ctx->qp_mutex);
	qrnic_lock_destroy(&ctx->db.window_lock);
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
}

static const struct verbs_context_ops qrnic_context_ops = {
	.advise_mr = ibv_cmd_advise_mr,
	.alloc_dm = qrnic_alloc_dm,
	.alloc_mw = qrnic_alloc_mw,
	.alloc_null_mr = qrnic_alloc_null_mr,
	.alloc_parent_domain = qrnic_alloc_parent_domain,
	.alloc_pd = qrnic_alloc_pd,
	.alloc_td = qrnic_alloc_td,
	.attach_counters_point_flow = qrnic_attach_counters_point_flow,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = qrnic_bind_mw,
	.close_xrcd = qrnic_close_xrcd,
	.cq_event = qrnic_cq_event,
	.create_ah = qrnic_create_ah,
	.create_cq = qrnic_create_cq,
	.create_cq_ex = qrnic_create_cq_ex,
	.create_counters = qrnic_create_counters,
	.create_flow = qrnic_create_flow,
	.create_qp = qrnic_create_qp,
	.create_qp_ex = qrnic_create_qp_ex,
	.create_rwq_ind_table = qrnic_create_rwq_ind_table,
	.create_srq = qrnic_create_srq,
	.create_srq_ex = qrnic_create_srq_ex,
	.create_wq = qrnic_create_wq,
	.dealloc_mw = qrnic_dealloc_mw,
	.dealloc_pd = qrnic_dealloc_pd,
	.dealloc_td = qrnic_dealloc_td,
	.dereg_mr = qrnic_dereg_mr,
	.destroy_ah = qrnic_destroy_ah,
	.destroy_cq = qrnic_destroy_cq,
	.destroy_counters = qrnic_destroy_counters,
	.destroy_flow = qrnic_destroy_flow,
	.destroy_qp = qrnic_destroy_qp,
	.destroy_rwq_ind_table = qrnic_destroy_rwq_ind_table,
	.destroy_srq = qrnic_destroy_srq,
	.destroy_wq = qrnic_destroy_wq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = qrnic_free_context,
	.free_dm = qrnic_free_dm,
	.get_srq_num = qrnic_get_srq_num,
	.import_dm = qrnic_import_dm,
	.import_mr = qrnic_import_mr,
	.import_pd = qrnic_import_pd,
	.modify_cq = qrnic_modify_cq,
	.modify_qp = qrnic_modify_qp,
	.modify_srq = qrnic_modify_srq,
	.modify_wq = qrnic_modify_wq,
	.modify_qp_rate_limit = qrnic_modify_qp_rate_limit,
	.open_qp = qrnic_open_qp,
	.open_xrcd = qrnic_open_xrcd,
	.poll_cq = qrnic_poll_cq,
	.post_recv = qrnic_post_recv,
	.post_send = qrnic_post_send,
	.post_srq_ops = qrnic_post_srq_ops,
	.post_srq_recv = qrnic_post_srq_recv,
	.query_device_ex = qrnic_query_device_ex,
	.query_ece = qrnic_query_ece,
	.query_port = qrnic_query_port,
#ifdef QRNIC_HAVE_PORT_SPEED
	.query_port_speed = qrnic_query_port_speed,
#endif
	.query_qp = qrnic_query_qp,
	.query_rt_values = qrnic_query_rt_values,
	.query_srq = qrnic_query_srq,
	.read_counters = qrnic_read_counters,
	.reg_dm_mr = qrnic_reg_dm_mr,
	.reg_dmabuf_mr = qrnic_reg_dmabuf_mr,
	.reg_mr = qrnic_reg_mr,
	.req_notify_cq = qrnic_req_notify_cq,
	.rereg_mr = qrnic_rereg_mr,
	.resize_cq = qrnic_resize_cq,
	.set_ece = qrnic_set_ece,
	.unimport_dm = qrnic_unimport_dm,
	.unimport_mr = qrnic_unimport_mr,
	.unimport_pd = qrnic_unimport_pd,
};

/*
 * Returns true if a variable of the environment is set to 1, yes, true or on.
 * Values other than these and 0, no, false and off are reported, because they
 * may be typing errors.
 */
static bool environment_is_on(const struct qrnic_context *ctx, const char *name)
{
	static const char *const words[][2] = {
		{ "1", "0" }, { "yes", "no" }, { "true", "false" }, { "on", "off" },
	};
	const char *set = getenv(name);
	unsigned int i;

	if (!set || !*set)
		return false;
	for (i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcasecmp(set, words[i][0]))
			return true;
		if (!strcasecmp(set, words[i][1]))
			return false;
	}
	verbs_err((struct verbs_context *)&ctx->vctx,
		  "%s=%s is ignored: use 1, yes, true or on; or 0, no, false or off\n",
		  name, set);
	return false;
}

/*
 * Returns the least ACK timeout of QRNIC_ACK_TIMEOUT, or 0 if the variable is
 * not set or not a number from 0 to 31.
 */
static uint8_t environment_ack_timeout(const struct qrnic_context *ctx)
{
	const char *set = getenv("QRNIC_ACK_TIMEOUT");
	unsigned long value;
	char *end;

	if (!set || !*set)
		return 0;
	value = strtoul(set, &end, 10);
	if (!*end && isdigit((unsigned char)*set) && value <= 31)
		return value;
	verbs_err((struct verbs_context *)&ctx->vctx,
		  "QRNIC_ACK_TIMEOUT=%s is ignored: use a number from 0 to 31\n",
		  set);
	return 0;
}

static void set_limits(struct qrnic_context *ctx,
		       const struct qrnic_alloc_ucontext_resp *resp)
{
	ctx->capabilities = resp->capabilities;
	ctx->small_queues = resp->comp_mask & QRNIC_UCONTEXT_SMALL_QUEUES;
	ctx->shared_virtual = resp->comp_mask & QRNIC_UCONTEXT_SHARED_VIRTUAL;
	ctx->db.number = resp->db_page;
	ctx->db.length = resp->db_length;
	ctx->max_wqebb = resp->max_wqebb;
	ctx->max_recv = resp->max_recv;
	ctx->max_cqe = resp->max_cqe;
	ctx->max_send_sge = min_t(uint32_t, resp->max_send_sge, QRNIC_MAX_SGE);
	ctx->max_recv_sge = min_t(uint32_t, resp->max_recv_sge, QRNIC_MAX_SGE);
	ctx->max_srq_wr = resp->max_srq_wr;
	ctx->clock_khz = resp->clock_khz;
	/*
	 * Without a frequency, timestamps cannot be converted, because the
	 * conversion divides by it
	 */
	if (!ctx->clock_khz)
		ctx->capabilities &= ~(uint64_t)QRNIC_CAP_TIMESTAMP;
	if (ctx->capabilities & QRNIC_CAP_INLINE_SEND)
		ctx->max_inline = min_t(uint32_t, resp->max_inline,
					QRNIC_MAX_INLINE);
}

static struct qrnic_context *context_new(struct ibv_device *device, int cmd_fd)
{
	struct qrnic_context *ctx;

	return verbs_init_and_alloc_context(device, cmd_fd, ctx, vctx,
					    QRNIC_DRIVER_ID);
}

static void context_discard(struct qrnic_context *ctx, int err)
{
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
	errno = err;
}

/*
 * Starts a new or imported context with the limits of the kernel. An imported
 * context shares the doorbell page with other processes. Only one user at a
 * time can use the direct-WQE window, and the lock is private to each process.
 * So an imported context uses only the windows of its thread domains' pages.
 */
static int context_start(struct qrnic_context *ctx,
			 const struct qrnic_alloc_ucontext_resp *resp,
			 bool imported)
{
	set_limits(ctx, resp);
	ctx->page_size = sysconf(_SC_PAGESIZE);
	ctx->single_threaded = environment_is_on(ctx, "QRNIC_SINGLE_THREADED");
	/*
	 * Direct WQEs are off by default, because an emulated device is slower
	 * with them. A direct WQE saves the device two reads, which are cheap.
	 * But each basic block costs eight more stores, and each store leaves
	 * the guest.
	 */
	ctx->direct_wqe = (ctx->capabilities & QRNIC_CAP_DIRECT_WQE) &&
			  environment_is_on(ctx, "QRNIC_DIRECT_WQE");
	if ((ctx->capabilities & QRNIC_CAP_INLINE_RECV) &&
	    environment_is_on(ctx, "QRNIC_INLINE_RECV"))
		ctx->recv_inline = QRNIC_MAX_RECV_INLINE;
	if (environment_is_on(ctx, "QRNIC_SELECTIVE_REPEAT"))
		ctx->qp_options |= QRNIC_QPO_SELECTIVE_REPEAT;
	if (environment_is_on(ctx, "QRNIC_ADAPTIVE_ROUTING"))
		ctx->qp_options |= QRNIC_QPO_ADAPTIVE_ROUTING;
	ctx->qp_options &= qrnic_options_known(ctx);
	ctx->ack_timeout = environment_ack_timeout(ctx);
	ctx->shares = ctx->capabilities & QRNIC_CAP_SHARED_CONNECTION &&
		      environment_is_on(ctx, "QRNIC_SHARED_CONNECTION");

	ctx->db.direct_wqe = ctx->direct_wqe && !imported;
	if (ctx->db.length < QRNIC_DB_PAGE_SIZE)
		return EPROTO;
	ctx->db.page = mmap(NULL, ctx->db.length, PROT_WRITE, MAP_SHARED,
			    ctx->vctx.context.cmd_fd, resp->db_offset);
	if (ctx->db.page == MAP_FAILED)
		return errno;

	pthread_mutex_init(&ctx->qp_mutex, NULL);
	qrnic_slabs_init(&ctx->slabs);
	qrnic_lock_init(&ctx->db.window_lock, !ctx->single_threaded);
	verbs_set_ops(&ctx->vctx, &qrnic_context_ops);
	return 0;
}

/*
 * Opens a context. The attributes of qrnicdv_open_device() are in private_data;
 * ibv_open_device() passes NULL.
 */
static struct verbs_context *qrnic_alloc_context(struct ibv_device *device,
						 int cmd_fd, void *private_data)
{
	const struct qrnicdv_context_attr *attr = private_data;
	struct qrnic_get_context_resp resp = {};
	struct qrnic_get_context cmd = {};
	struct qrnic_context *ctx;
	bool shared_virtual;
	int err;

	shared_virtual = attr && attr->flags & QRNICDV_CONTEXT_SHARED_VIRTUAL;
	if (shared_virtual)
		cmd.comp_mask = QRNIC_UCONTEXT_REQ_SHARED_VIRTUAL;

	ctx = context_new(device, cmd_fd);
	if (!ctx)
		return NULL;
	err = qrnic_cmd_get_context(&ctx->vctx, &cmd.ibv_cmd, sizeof(cmd),
				    &resp.ibv_resp, sizeof(resp));
	if (!err && shared_virtual &&
	    !(resp.comp_mask & QRNIC_UCONTEXT_SHARED_VIRTUAL))
		err = EOPNOTSUPP;
	if (!err)
		err = context_start(ctx, &resp.drv_payload, false);
	if (err) {
		context_discard(ctx, err);
		return NULL;
	}
	return &ctx->vctx;
}

/*
 * Opens a context that another process, or another part of this process, has
 * created.
 */
static struct verbs_context *qrnic_import_context(struct ibv_device *device,
						  int cmd_fd)
{
	DECLARE_COMMAND_BUFFER_LINK(driver, UVERBS_OBJECT_DEVICE,
				    UVERBS_METHOD_QUERY_CONTEXT, 1, NULL);
	struct qrnic_alloc_ucontext_resp resp = {};
	struct qrnic_context *ctx;
	int err;

	ctx = context_new(device, cmd_fd);
	if (!ctx)
		return NULL;
	fill_attr_out_ptr(driver, QRNIC_ATTR_QUERY_CONTEXT_RESP, &resp);
	err = ibv_cmd_query_context(&ctx->vctx.context, driver);
	/*
	 * An older driver does not know the attribute, so the error is
	 * translated
	 */
	if (err == EPROTONOSUPPORT)
		err = EOPNOTSUPP;
	if (!err)
		err = context_start(ctx, &resp, true);
	if (err) {
		context_discard(ctx, err);
		return NULL;
	}
	return &ctx->vctx;
}

static struct verbs_device *
qrnic_device_alloc(struct verbs_sysfs_dev *sysfs_dev)
{
	struct qrnic_device *dev = calloc(1, sizeof(*dev));

	return dev ? &dev->vdev : NULL;
}

static void qrnic_device_free(struct verbs_device *vdev)
{
	free(container_of(vdev, struct qrnic_device, vdev));
}

static const struct verbs_device_ops qrnic_device_ops = {
	.name = "qrnic",
	.match_min_abi_version = QRNIC_ABI_VERSION,
	.match_max_abi_version = QRNIC_ABI_VERSION,
	.match_table = qrnic_match_table,
	.alloc_device = qrnic_device_alloc,
	.uninit_device = qrnic_device_free,
	.alloc_context = qrnic_alloc_context,
	.import_context = qrnic_import_context,
};

PROVIDER_DRIVER(qrnic, qrnic_device_ops);
