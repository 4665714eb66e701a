// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * batch.c: a batch of work requests of the extended interface, from
 * ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort().
 *
 * The lock of the send queue is held from the start to the end of the batch.
 * Functions of post_ex.c and mkey.c begin each WQE with qrnic_wr_begin(). The
 * WQE is copied to the ring when the next WQE begins or the batch ends. So
 * setters may come in any number and order, or not at all. After an error the
 * whole batch is dropped, and ring and keys are restored.
 */
#include <errno.h>

#include "qp.h"

void qrnic_wr_fail(struct qrnic_qp *qp, int err)
{
	if (!qp->error)
		qp->error = err;
}

static void wr_finish(struct qrnic_qp *qp)
{
	int err;

	if (!qp->building)
		return;
	qp->building = false;
	if (qp->need_address)
		qrnic_wr_fail(qp, EINVAL);
	if (qp->error)
		return;
	err = qrnic_sq_push(qp, &qp->wqe, qp->wqe_wr_id);
	if (err)
		qrnic_wr_fail(qp, err);
	else
		qp->posted++;
}

struct qrnic_qp *qrnic_wr_begin(struct ibv_qp_ex *ibqp, uint8_t opcode,
				__be32 imm)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);
	uint8_t flags = qp->sq_sig_flag;

	wr_finish(qp);
	if (ibqp->wr_flags & IBV_SEND_SIGNALED)
		flags |= QRNIC_WQEF_SIGNALED;
	if (ibqp->wr_flags & IBV_SEND_FENCE)
		flags |= QRNIC_WQEF_FENCE;
	if (ibqp->wr_flags & IBV_SEND_SOLICITED)
		flags |= QRNIC_WQEF_SOLICITED;
	qrnic_wqe_begin(&qp->wqe, opcode, flags, imm);
	qp->wqe_wr_id = ibqp->wr_id;
	qp->building = true;
	qp->need_address = (qp->vqp.qp.qp_type == IBV_QPT_XRC_SEND ||
			    qp->vqp.qp.qp_type == IBV_QPT_DRIVER) &&
			   qrnic_is_sent(opcode);
	/*
	 * Reserves the address segment, because the setter of the address may
	 * come before or after the payload.
	 */
	if (qp->need_address && qp->vqp.qp.qp_type == IBV_QPT_DRIVER)
		qp->wqe.segments += QRNIC_DYNAMIC_LENGTH;
	else if (qp->need_address)
		qrnic_wqe_add_xrc(&qp->wqe, 0);
	return qp;
}

/*
 * Ends the use of keys by the batch. A dropped batch restores the keys, because
 * the device never receives its WQEs.
 */
static void end_keys(struct qrnic_qp *qp, bool dropped)
{
	struct qrnic_mkey *mkey;

	while ((mkey = qp->batch_keys)) {
		qp->batch_keys = mkey->next;
		mkey->in_batch = false;
		if (dropped) {
			mkey->mkey.lkey = mkey->key_before;
			mkey->mkey.rkey = mkey->key_before;
			/*
			 * If an earlier registration needed the list, the batch
			 * has not used the list. Otherwise no registration of
			 * the queue pair uses the list now.
			 */
			if (mkey->list_qp == qp &&
			    (int32_t)(mkey->list_number - qp->start_posted) > 0)
				mkey->list_qp = NULL;
		}
	}
}

void qrnic_wr_start(struct ibv_qp_ex *ibqp)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);

	qrnic_lock(&qp->sq.lock);
	qp->start_producer = qp->sq.producer;
	qp->start_posted = qp->sq_posted;
	qp->was_idle = qrnic_sq_is_idle(&qp->sq);
	qp->error = qrnic_send_allowed(qp) ? 0 : EINVAL;
	qp->posted = 0;
	qp->building = false;
}

int qrnic_wr_complete(struct ibv_qp_ex *ibqp)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);
	int err;

	wr_finish(qp);
	err = qp->error;
	end_keys(qp, err);
	/*
	 * The device has not seen any WQE of the batch, because no doorbell was
	 * written. So all of them can be dropped.
	 */
	if (err) {
		qp->sq.producer = qp->start_producer;
		qp->sq_posted = qp->start_posted;
	} else if (qp->posted) {
		qrnic_sq_ring(qp, qp->start_producer,
			      qp->posted == 1 && qp->was_idle ? &qp->wqe : NULL);
	}
	qrnic_unlock(&qp->sq.lock);
	return err;
}

void qrnic_wr_abort(struct ibv_qp_ex *ibqp)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);

	qp->building = false;
	end_keys(qp, true);
	qp->sq.producer = qp->start_producer;
	qp->sq_posted = qp->start_posted;
	qrnic_unlock(&qp->sq.lock);
}
