// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * mkey.c: indirect keys and process keys (qrnicdv.h; manual, "Indirect keys" and
 * "Shared virtual addressing"). The kernel creates and destroys a key, and work
 * requests register the pieces of an indirect key, or the memory of a process
 * key.
 *
 * Programs call these functions. The functions qrnicdv_wr_*() run inside a
 * batch, under the lock of the send queue; batch.c restores the keys of a
 * dropped batch. A list of pieces that does not fit into a WQE is in the
 * registered buffer of the key, until its WQE has retired.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/cmd_ioctl.h>
#include <infiniband/cmd_write.h>

#include "qp.h"

/* Handle of a key that the kernel has already destroyed */
#define QRNIC_NO_HANDLE UINT32_MAX

static_assert(sizeof(struct qrnic_piece) == QRNIC_PIECE_BYTES, "layout");

static struct qrnic_mkey *to_qrnic_mkey(struct qrnicdv_mkey *mkey)
{
	return container_of(mkey, struct qrnic_mkey, mkey);
}

static int cmd_create(struct ibv_pd *pd, struct qrnic_mkey *mkey)
{
	DECLARE_COMMAND_BUFFER(cmd, QRNIC_OBJECT_MKEY, QRNIC_METHOD_MKEY_CREATE,
			       5);
	struct ib_uverbs_attr *handle;
	int err;

	handle = fill_attr_out_obj(cmd, QRNIC_ATTR_MKEY_CREATE_HANDLE);
	fill_attr_in_obj(cmd, QRNIC_ATTR_MKEY_CREATE_PD, pd->handle);
	fill_attr_in_uint32(cmd, QRNIC_ATTR_MKEY_CREATE_MAX_PIECES,
			    mkey->max_pieces);
	/* An older driver does not know the kind, and creates indirect keys. */
	if (mkey->kind)
		fill_attr_in_uint32(cmd, QRNIC_ATTR_MKEY_CREATE_KIND,
				    mkey->kind);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_MKEY_CREATE_KEY, &mkey->mkey.lkey);
	err = execute_ioctl(pd->context, cmd);
	if (err)
		/*
		 * An older driver does not know the object, so the error is
		 * translated
		 */
		return err == EPROTONOSUPPORT ? EOPNOTSUPP : err;

	mkey->handle = read_attr_obj(QRNIC_ATTR_MKEY_CREATE_HANDLE, handle);
	mkey->mkey.rkey = mkey->mkey.lkey;
	return 0;
}

static int cmd_destroy(struct qrnic_mkey *mkey)
{
	DECLARE_COMMAND_BUFFER(cmd, QRNIC_OBJECT_MKEY, QRNIC_METHOD_MKEY_DESTROY,
			       1);

	int err;

	fill_attr_in_obj(cmd, QRNIC_ATTR_MKEY_DESTROY_HANDLE, mkey->handle);
	err = execute_ioctl(mkey->context, cmd);
	/*
	 * Destruction succeeds if the adapter was removed, because its keys are
	 * gone
	 */
	return verbs_is_destroy_err(&err) ? err : 0;
}

/*
 * Allocates the buffer of the list in pages of its own. Otherwise a child of a
 * fork would lose other data, because it gets no registered page.
 */
static int list_alloc(struct ibv_pd *pd, struct qrnic_mkey *mkey)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t length = mkey->max_pieces * sizeof(*mkey->list);
	void *list;
	int err;

	length = (length + page - 1) & ~(page - 1);
	err = posix_memalign(&list, page, length);
	if (err)
		return err;

	mkey->list_mr = ibv_reg_mr(pd, list, length, 0);
	if (!mkey->list_mr) {
		err = errno;
		free(list);
		return err;
	}
	mkey->list = list;
	return 0;
}

static int list_free(struct qrnic_mkey *mkey)
{
	int err;

	if (!mkey->list_mr)
		return 0;
	err = ibv_dereg_mr(mkey->list_mr);
	if (err)
		return err;
	free(mkey->list);
	mkey->list_mr = NULL;
	return 0;
}

struct qrnicdv_mkey *qrnicdv_create_mkey(struct qrnicdv_mkey_init_attr *attr,
					 size_t attr_size)
{
	struct qrnicdv_mkey_init_attr full = {};
	struct qrnic_mkey *mkey;
	int err;

	err = qrnic_read_attr(&full, sizeof(full), attr, attr_size);
	if (!err && !full.pd)
		err = EINVAL;
	if (!err && (!qrnic_is_device(full.pd->context->device) ||
		     full.comp_mask || full.kind > QRNICDV_MKEY_PROCESS))
		err = EOPNOTSUPP;
	if (err) {
		errno = err;
		return NULL;
	}

	mkey = calloc(1, sizeof(*mkey));
	if (!mkey)
		return NULL;

	mkey->context = full.pd->context;
	mkey->kind = full.kind;
	mkey->max_pieces = full.max_pieces;
	err = cmd_create(full.pd, mkey);
	if (err)
		goto err_free;
	if (mkey->kind == QRNICDV_MKEY_INDIRECT)
		err = list_alloc(full.pd, mkey);
	if (err)
		goto err_destroy;
	return &mkey->mkey;

err_destroy:
	cmd_destroy(mkey);
err_free:
	free(mkey);
	errno = err;
	return NULL;
}

int qrnicdv_destroy_mkey(struct qrnicdv_mkey *dv_mkey)
{
	struct qrnic_mkey *mkey = to_qrnic_mkey(dv_mkey);
	int err;

	/*
	 * The key is destroyed before the buffer, because a WQE may name the
	 * buffer while the key exists
	 */
	if (mkey->handle != QRNIC_NO_HANDLE) {
		err = cmd_destroy(mkey);
		if (err)
			return err;
		mkey->handle = QRNIC_NO_HANDLE;
	}
	err = list_free(mkey);
	if (err)
		return err;
	free(mkey);
	return 0;
}

static void piece_fill(struct qrnic_piece *to, const struct qrnicdv_piece *from)
{
	*to = (struct qrnic_piece){
		.key = htole32(from->lkey),
		.address = htole64(from->addr),
		.length = htole64(from->length),
		.stride = htole64(from->stride),
	};
}

/*
 * Returns true if a list fits into a WQE. The WQE must be no larger than the
 * largest WQE for which max_send_wr WQEs fit into the ring.
 */
static bool fits_wqe(const struct qrnic_qp *qp, size_t length)
{
	uint32_t segments = qp->wqe.segments +
			    DIV_ROUND_UP(length, QRNIC_SEGMENT_SIZE);

	return length <= qp->max_inline &&
	       qrnic_wqebbs(segments) <= qp->sq.size / qp->max_send_wr;
}

/*
 * Returns true if the device may still have to read the list of an earlier
 * registration. The check covers only registrations by the same queue pair,
 * because the caller holds only its lock.
 */
static bool list_is_busy(const struct qrnic_qp *qp, const struct qrnic_mkey *mkey)
{
	uint32_t retired = atomic_load_explicit(&qp->sq_retired,
						memory_order_relaxed);

	return mkey->list_qp == qp && mkey->list_sq_life == qp->sq_life &&
	       (int32_t)(mkey->list_number - retired) > 0;
}

/*
 * Adds the pieces to the WQE if they fit. Otherwise writes them to the buffer
 * of the key, and adds the address of the buffer to the WQE.
 */
static int add_pieces(struct qrnic_qp *qp, struct qrnic_mkey *mkey,
		      const struct qrnicdv_mkey_layout *layout)
{
	size_t length = layout->num_pieces * sizeof(struct qrnic_piece);
	struct qrnic_piece piece;
	uint32_t i;
	int err;

	if (fits_wqe(qp, length)) {
		for (i = 0; i < layout->num_pieces; i++) {
			piece_fill(&piece, &layout->pieces[i]);
			err = qrnic_wqe_add_inline(&qp->wqe, qp->max_inline,
						   &piece, sizeof(piece));
			if (err)
				return err;
		}
		return 0;
	}
	if (list_is_busy(qp, mkey))
		return EBUSY;
	mkey->list_qp = qp;
	mkey->list_sq_life = qp->sq_life;
	mkey->list_number = qp->sq_posted + 1;
	for (i = 0; i < layout->num_pieces; i++)
		piece_fill(&mkey->list[i], &layout->pieces[i]);
	qrnic_wqe_add_data(&qp->wqe, (uintptr_t)mkey->list, length,
			   mkey->list_mr->lkey);
	return 0;
}

static int check_access(const struct qrnic_context *ctx, unsigned int access)
{
	const unsigned int writes = IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_ATOMIC;

	if (access & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | writes))
		return EINVAL;
	if (access & writes && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return access & IBV_ACCESS_REMOTE_ATOMIC &&
	       !(ctx->capabilities & QRNIC_CAP_ATOMIC) ? EOPNOTSUPP : 0;
}

static int check_layout(const struct qrnic_context *ctx,
			const struct qrnic_mkey *mkey,
			const struct qrnicdv_mkey_layout *layout)
{
	uint32_t i;

	if (layout->comp_mask ||
	    layout->flags & ~(uint32_t)QRNICDV_MKEY_NEW_VARIANT)
		return EOPNOTSUPP;
	if (!layout->num_pieces || !layout->repeat ||
	    layout->num_pieces > mkey->max_pieces)
		return EINVAL;
	for (i = 0; i < layout->num_pieces; i++) {
		if (layout->pieces[i].reserved)
			return EOPNOTSUPP;
		if (!layout->pieces[i].length)
			return EINVAL;
	}
	return check_access(ctx, layout->access);
}

/*
 * Saves the value of the key before the batch, so that a dropped batch can
 * restore it.
 */
static void batch_add(struct qrnic_qp *qp, struct qrnic_mkey *mkey)
{
	if (mkey->in_batch)
		return;
	mkey->in_batch = true;
	mkey->key_before = mkey->mkey.lkey;
	mkey->next = qp->batch_keys;
	qp->batch_keys = mkey;
}

/* Changes the value of the key if the flags of its registration require it. */
static void change_variant(struct qrnic_qp *qp, struct qrnicdv_mkey *dv_mkey,
			   uint32_t flags)
{
	batch_add(qp, to_qrnic_mkey(dv_mkey));
	if (flags & QRNICDV_MKEY_NEW_VARIANT) {
		dv_mkey->lkey = ibv_inc_rkey(dv_mkey->lkey);
		dv_mkey->rkey = dv_mkey->lkey;
	}
}

static int wqe_add_indirect(struct qrnic_qp *qp, struct qrnicdv_mkey *dv_mkey,
			    const struct qrnicdv_mkey_layout *layout)
{
	struct qrnic_mkey *mkey = to_qrnic_mkey(dv_mkey);
	struct qrnic_indirect_seg segment = {};
	int err;

	err = check_layout(qp->ctx, mkey, layout);
	if (err)
		return err;

	change_variant(qp, dv_mkey, layout->flags);
	segment.key = htole32(dv_mkey->lkey);
	segment.access = layout->access;
	segment.start = htole64(layout->start);
	segment.repeat = htole32(layout->repeat);
	memcpy(&qp->wqe.segment[qp->wqe.segments], &segment, sizeof(segment));
	qp->wqe.segments += sizeof(segment) / QRNIC_SEGMENT_SIZE;
	return add_pieces(qp, mkey, layout);
}

/* Returns true if queue pairs of this type can register keys. */
static bool registers_keys(const struct qrnic_qp *qp)
{
	enum ibv_qp_type type = qp->vqp.qp.qp_type;

	return type == IBV_QPT_RC || type == IBV_QPT_UC ||
	       type == IBV_QPT_XRC_SEND;
}

/* Returns EINVAL if the key cannot be registered in this way. */
static int check_key(const struct qrnic_qp *qp, struct qrnicdv_mkey *mkey,
		     enum qrnicdv_mkey_kind kind)
{
	return to_qrnic_mkey(mkey)->context == qp->vqp.qp.context &&
	       to_qrnic_mkey(mkey)->kind == kind ? 0 : EINVAL;
}

int qrnicdv_wr_reg_mkey(struct ibv_qp_ex *ibqp, struct qrnicdv_mkey *mkey,
			const struct qrnicdv_mkey_layout *layout,
			size_t layout_size)
{
	struct qrnicdv_mkey_layout full = {};
	struct qrnic_qp *qp;
	int err;

	if (!qrnic_is_device(ibqp->qp_base.context->device))
		return EOPNOTSUPP;

	qp = qrnic_wr_begin(ibqp, QRNIC_WQE_REG_INDIRECT, 0);
	err = qrnic_read_attr(&full, sizeof(full), layout, layout_size);
	if (!err && (!(qp->ctx->capabilities & QRNIC_CAP_INDIRECT_MKEY) ||
		     !registers_keys(qp)))
		err = EOPNOTSUPP;
	if (!err)
		err = check_key(qp, mkey, QRNICDV_MKEY_INDIRECT);
	if (!err)
		err = wqe_add_indirect(qp, mkey, &full);
	if (err)
		qrnic_wr_fail(qp, err);
	return err;
}

static int wqe_add_process(struct qrnic_qp *qp, struct qrnicdv_mkey *mkey,
			   const struct qrnicdv_process_layout *layout)
{
	struct qrnic_reg_seg segment = {
		.access = layout->access,
		.start = htole64(layout->start),
		.length = htole64(layout->length),
		.table.root = htole64((uintptr_t)layout->addr),
	};
	int err;

	if (layout->comp_mask ||
	    layout->flags & ~(uint32_t)QRNICDV_MKEY_NEW_VARIANT)
		return EOPNOTSUPP;
	if (!layout->length || layout->length > QRNIC_MAX_PROCESS_SIZE)
		return EINVAL;
	err = check_access(qp->ctx, layout->access);
	if (err)
		return err;

	change_variant(qp, mkey, layout->flags);
	segment.key = htole32(mkey->lkey);
	memcpy(&qp->wqe.segment[qp->wqe.segments], &segment, sizeof(segment));
	qp->wqe.segments += sizeof(segment) / QRNIC_SEGMENT_SIZE;
	return 0;
}

int qrnicdv_wr_reg_process(struct ibv_qp_ex *ibqp, struct qrnicdv_mkey *mkey,
			   const struct qrnicdv_process_layout *layout,
			   size_t layout_size)
{
	struct qrnicdv_process_layout full = {};
	struct qrnic_qp *qp;
	int err;

	if (!qrnic_is_device(ibqp->qp_base.context->device))
		return EOPNOTSUPP;

	qp = qrnic_wr_begin(ibqp, QRNIC_WQE_REG_MR, 0);
	err = qrnic_read_attr(&full, sizeof(full), layout, layout_size);
	if (!err && (!qp->ctx->shared_virtual || !registers_keys(qp)))
		err = EOPNOTSUPP;
	if (!err)
		err = check_key(qp, mkey, QRNICDV_MKEY_PROCESS);
	if (!err)
		err = wqe_add_process(qp, mkey, &full);
	if (err)
		qrnic_wr_fail(qp, err);
	return err;
}
