// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cq.c: completion queues. The driver creates, resizes and destroys CQs of
 * processes, which poll them in user space. For CQs of the kernel this file
 * also has polling, arming and cleaning.
 *
 * The order for a CQ is: create, then poll and arm in any context, then
 * destroy. cq->lock protects the consumer side of a kernel CQ. Completions find
 * their QP by its number (object.c). The device is not trusted, so each CQE is
 * compared with the posted requests.
 */
#include <linux/if_vlan.h>
#include <rdma/ib_umem.h>

#include "memory.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"
#include "verbs.h"

static_assert((int)RDMA_NETWORK_ROCE_V1 == QRNIC_NETWORK_ROCE_V1);
static_assert((int)RDMA_NETWORK_IPV4 == QRNIC_NETWORK_IPV4);
static_assert((int)RDMA_NETWORK_IPV6 == QRNIC_NETWORK_IPV6);

/* Bit 7 of the opcode, which is valid also in a CQE with an error */
#define CQE_RECEIVE QRNIC_CQE_RECV

static int qrnic_cq_user_memory(struct qrnic_ib_dev *dev, struct qrnic_ib_cq *cq,
				const struct qrnic_create_cq_req *request,
				struct qrnic_cq_ctx *context)
{
	dma_addr_t record;

	cq->umem = qrnic_queue_get(dev, request->buf_addr, request->buf_length,
				   (u64)QRNIC_CQE_SIZE << cq->log_size,
				   request->record_offset, &cq->table, &record);
	if (IS_ERR(cq->umem))
		return PTR_ERR(cq->umem);

	context->record = cpu_to_le64(record);
	context->ring = cq->table.hw;
	return 0;
}

static int qrnic_cq_kernel_memory(struct qrnic_ib_dev *dev, struct qrnic_ib_cq *cq,
				  struct qrnic_cq_ctx *context)
{
	int err;

	if (BIT(cq->log_size) > dev->qdev->caps.max_cqe)
		return -EINVAL;

	err = qrnic_queue_ring_alloc(dev->qdev, &cq->ring,
				     (size_t)QRNIC_CQE_SIZE << cq->log_size);
	if (err)
		return err;

	context->record = cpu_to_le64(cq->ring.record_dma);
	context->ring = cq->ring.hw;
	return 0;
}

static void qrnic_cq_memory_free(struct qrnic_ib_dev *dev, struct qrnic_ib_cq *cq)
{
	if (cq->umem) {
		qrnic_table_free(dev->qdev, &cq->table);
		ib_umem_release(cq->ring_umem);
		ib_umem_release(cq->umem);
	} else {
		qrnic_ring_free(dev->qdev, &cq->ring);
	}
}

static int qrnic_cq_check(struct qrnic_ib_dev *dev, const struct ib_cq_init_attr *attr)
{
	u32 flags = 0;

	if (qrnic_ib_cap(dev, QRNIC_CAP_TIMESTAMP))
		flags |= IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	if (qrnic_ib_cap(dev, QRNIC_CAP_CQ_IGNORE_OVERRUN))
		flags |= IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	if (attr->flags & ~flags)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > dev->qdev->caps.max_cqe ||
	    attr->comp_vector >= dev->ibdev.num_comp_vectors)
		return -EINVAL;
	return 0;
}

/* Reads the request for a CQ of user space, and prepares its memory. */
static int qrnic_cq_user_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_cq *cq,
				 const struct ib_cq_init_attr *attr,
				 struct ib_udata *udata, struct qrnic_cq_ctx *context)
{
	struct qrnic_ib_ucontext *ucontext = rdma_udata_to_drv_context(udata,
			struct qrnic_ib_ucontext, ibucontext);
	struct qrnic_create_cq_req request;
	int err;

	err = ib_copy_validate_udata_in_cm(udata, request, log_size, 0);
	if (err)
		return err;
	if (request.log_size > ilog2(dev->qdev->caps.max_cqe) ||
	    attr->cqe > BIT(request.log_size))
		return -EINVAL;

	cq->log_size = request.log_size;
	context->db_page = cpu_to_le32(ucontext->db_page->number);
	return qrnic_cq_user_memory(dev, cq, &request, context);
}

static void qrnic_cq_core_destroy(struct qrnic_ib_dev *dev, struct qrnic_ib_cq *cq)
{
	int err;

	err = qrnic_cq_destroy(dev->qdev, &cq->core);
	if (!err)
		return;

	/*
	 * The second call succeeds, because the reset has destroyed the CQ. The
	 * call is needed because the first one has left the CQ in the table.
	 */
	qrnic_destroy_failed(dev, QRNIC_CMD_DESTROY_CQ, cq->core.cqn, err);
	qrnic_cq_destroy(dev->qdev, &cq->core);
}

/*
 * Calls the handler of the CQ. Hard interrupt context, or called by flush.c
 * with interrupts disabled.
 */
static void qrnic_ib_cq_comp(struct qrnic_cq *core)
{
	struct qrnic_ib_cq *cq = container_of(core, struct qrnic_ib_cq, core);
	struct ib_cq *ibcq = &cq->ibcq;

	/*
	 * Cleared before the handler runs, because the handler may request the
	 * next event.
	 */
	WRITE_ONCE(cq->requested, false);
	WRITE_ONCE(cq->any_requested, false);
	if (ibcq->comp_handler)
		ibcq->comp_handler(ibcq, ibcq->cq_context);
}

/*
 * Reports an error of the CQ. The subtype is not reported, because verbs have
 * no such member; the core logs it at debug level.
 */
static void qrnic_ib_cq_event(struct qrnic_cq *core, u8 subtype)
{
	struct ib_cq *ibcq = &container_of(core, struct qrnic_ib_cq, core)->ibcq;
	struct ib_event event = {
		.device = ibcq->device,
		.element.cq = ibcq,
		.event = IB_EVENT_CQ_ERR,
	};

	if (ibcq->event_handler)
		ibcq->event_handler(&event, ibcq->cq_context);
}

int qrnic_ib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		       struct uverbs_attr_bundle *attrs)
{
	struct ib_udata *udata = attrs ? &attrs->driver_udata : NULL;
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcq->device);
	struct qrnic_ib_cq *cq = to_qrnic_cq(ibcq);
	struct qrnic_create_cq_resp response = {};
	struct qrnic_cq_ctx context = {};
	int err;

	err = qrnic_cq_check(dev, attr);
	if (err)
		return err;

	spin_lock_init(&cq->lock);
	mutex_init(&cq->resize_mutex);
	INIT_LIST_HEAD(&cq->senders);
	INIT_LIST_HEAD(&cq->receivers);
	cq->core.vector = attr->comp_vector;
	cq->core.comp = qrnic_ib_cq_comp;
	cq->core.event = qrnic_ib_cq_event;

	if (udata) {
		err = qrnic_cq_user_prepare(dev, cq, attr, udata, &context);
	} else {
		cq->log_size = order_base_2(attr->cqe);
		err = qrnic_cq_kernel_memory(dev, cq, &context);
	}
	if (err)
		return err;

	context.log_size = cq->log_size;
	if (attr->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN)
		context.flags = QRNIC_CQF_IGNORE_OVERRUN;
	ibcq->cqe = BIT(cq->log_size);
	err = qrnic_cq_create(dev->qdev, &cq->core, &context);
	if (err)
		goto err_memory;

	if (udata) {
		response.cqn = cq->core.cqn;
		err = ib_respond_udata(udata, response);
		if (err)
			goto err_destroy;
	}
	return 0;

err_destroy:
	qrnic_cq_core_destroy(dev, cq);
err_memory:
	qrnic_cq_memory_free(dev, cq);
	return err;
}

int qrnic_ib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcq->device);
	struct qrnic_ib_cq *cq = to_qrnic_cq(ibcq);

	qrnic_cq_core_destroy(dev, cq);
	qrnic_cq_memory_free(dev, cq);
	return 0;
}

/*
 * Replaces the ring of a user CQ. The device copies the CQEs that the process
 * has not consumed, and continues in the new ring. The record stays in the
 * buffer of create_cq.
 */
static int qrnic_cq_resize_ring(struct qrnic_ib_dev *dev, struct qrnic_ib_cq *cq,
				const struct qrnic_resize_cq_req *request)
{
	struct qrnic_cq_resize resize = { .log_size = request->log_size };
	struct qrnic_table table;
	struct ib_umem *umem;
	int err;

	umem = qrnic_queue_umem_get(dev, request->buf_addr, request->buf_length,
				    (u64)QRNIC_CQE_SIZE << request->log_size);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	err = qrnic_queue_table(dev, &table, umem, 0,
				(u64)QRNIC_CQE_SIZE << request->log_size);
	if (err)
		goto err_umem;

	resize.ring = table.hw;
	mutex_lock(&cq->resize_mutex);
	err = qrnic_cmd_set(dev->qdev, QRNIC_CMD_RESIZE_CQ, cq->core.cqn,
			    &resize, sizeof(resize));
	if (!err) {
		swap(cq->table, table);
		swap(cq->ring_umem, umem);
		cq->log_size = request->log_size;
		cq->ibcq.cqe = BIT(cq->log_size);
	}
	mutex_unlock(&cq->resize_mutex);

	/* Frees the old ring, or after an error the new one. */
	qrnic_table_free(dev->qdev, &table);
err_umem:
	ib_umem_release(umem);
	return err;
}

int qrnic_ib_resize_cq(struct ib_cq *ibcq, QRNIC_RESIZE_TYPE cqe,
		       struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcq->device);
	const struct qrnic_caps *caps = &dev->qdev->caps;
	struct qrnic_resize_cq_req request;
	int err;

	if (!udata || !qrnic_ib_cap(dev, QRNIC_CAP_CQ_RESIZE))
		return -EOPNOTSUPP;
	if (cqe < 1 || cqe > caps->max_cqe)
		return -EINVAL;

	err = ib_copy_validate_udata_in_cm(udata, request, reserved, 0);
	if (!err)
		err = qrnic_udata_no_response(udata);
	if (err)
		return err;
	if (request.reserved)
		return -EOPNOTSUPP;
	if (request.log_size > ilog2(caps->max_cqe) ||
	    cqe > BIT(request.log_size))
		return -EINVAL;
	return qrnic_cq_resize_ring(dev, to_qrnic_cq(ibcq), &request);
}

int qrnic_ib_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcq->device);
	const struct qrnic_caps *caps = &dev->qdev->caps;
	struct qrnic_cq_moderation moderation = {
		.count = cpu_to_le16(count),
		.period = cpu_to_le16(period),
	};

	if (!qrnic_ib_cap(dev, QRNIC_CAP_CQ_MODERATION))
		return -EOPNOTSUPP;
	if (count > caps->max_cq_count || period > caps->max_cq_period)
		return -EINVAL;
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_MODIFY_CQ,
			     to_qrnic_cq(ibcq)->core.cqn, &moderation,
			     sizeof(moderation));
}

/*
 * Sets the members that only receive completions of datagrams have: the sender
 * and the headers.
 */
static void qrnic_cq_translate_datagram(const struct qrnic_cqe *cqe, u8 flags,
					struct ib_wc *wc)
{
	u16 vlan_id = le16_to_cpu(cqe->vlan_tci) & VLAN_VID_MASK;

	wc->src_qp = le32_to_cpu(cqe->src_qpn) & QRNIC_24_BITS;
	wc->sl = cqe->sl & 0xf;
	wc->network_hdr_type = min_t(u8, cqe->network, RDMA_NETWORK_IPV6);
	memcpy(wc->smac, cqe->smac, sizeof(wc->smac));
	wc->wc_flags |= IB_WC_WITH_NETWORK_HDR_TYPE | IB_WC_WITH_SMAC;
	if (flags & QRNIC_CQEF_GRH)
		wc->wc_flags |= IB_WC_GRH;
	/* A tag of VLAN 0 contains a priority only. */
	if (flags & QRNIC_CQEF_VLAN && vlan_id) {
		wc->vlan_id = vlan_id;
		wc->wc_flags |= IB_WC_WITH_VLAN;
	}
}

/* State of a poll of a CQ */
struct cq_poll {
	struct qrnic_ib_dev *dev;
	struct qrnic_ib_cq *cq;
	/* QP of the last CQE, with a reference */
	struct qrnic_ib_qp *qp;
};

static struct qrnic_ib_qp *qrnic_cq_qp(struct cq_poll *poll, u32 qpn)
{
	if (poll->qp && poll->qp->ibqp.qp_num == qpn)
		return poll->qp;
	if (poll->qp)
		qrnic_qp_put(poll->qp);
	poll->qp = qrnic_qp_get(poll->dev, qpn);
	return poll->qp;
}

/*
 * Returns true if the CQE may be valid. The QP must belong to the kernel, and
 * complete requests of this direction in this CQ. The CQE of a receive must
 * name the SRQ of the QP, if it has one. All this is checked because the device
 * is not trusted. Without a QP the result is true, because the QP may be in
 * destruction.
 */
static bool qrnic_cq_completes(const struct cq_poll *poll, const struct qrnic_ib_qp *qp,
			       bool receive, u32 srqn)
{
	if (!qp)
		return true;
	if (!qrnic_qp_is_kernel(qp))
		return false;
	if (!receive)
		return qp->ibqp.send_cq == &poll->cq->ibcq;
	if (qp->ibqp.recv_cq != &poll->cq->ibcq)
		return false;
	if (qp->ibqp.srq)
		return srqn == to_qrnic_srq(qp->ibqp.srq)->srqn;
	return qp->has_rq && !srqn;
}

/*
 * Removes the request of a CQE from its queue. Returns false if the CQE is
 * invalid, or if its QP is being destroyed.
 */
static bool qrnic_cq_request(struct cq_poll *poll, const struct qrnic_cqe *cqe,
			     bool receive, struct qrnic_ib_request *request)
{
	u32 qpn = le32_to_cpu(cqe->qpn), srqn = le32_to_cpu(cqe->srqn);
	u32 index = le32_to_cpu(cqe->index);
	struct qrnic_ib_qp *qp = qrnic_cq_qp(poll, qpn);
	bool good = qrnic_cq_completes(poll, qp, receive, receive ? srqn : 0);

	/*
	 * The slot of an SRQ is freed even if the QP is gone, because other QPs
	 * use the SRQ.
	 */
	if (good && receive && srqn)
		good = qrnic_srq_complete(poll->dev, srqn, index, request);
	else if (good && qp)
		good = qrnic_queue_complete(receive ? &qp->rq : &qp->sq, index,
					    request);
	if (!good)
		ibdev_err_ratelimited(&poll->dev->ibdev,
				      "CQ %u: completion of QP %u, index %u, which is not posted\n",
				      poll->cq->core.cqn, qpn, index);
	return good && qp;
}

/*
 * Returns true if the length in a CQE is possible. The user reads as many bytes
 * of its buffer, so a larger length would be dangerous. A datagram has 40
 * additional bytes before the payload, which the user skips.
 */
static bool qrnic_cq_length_possible(const struct qrnic_ib_qp *qp, u32 length, u32 room)
{
	u32 least = qrnic_qp_is_datagram(qp->ibqp.qp_type) ? sizeof(struct ib_grh) : 0;

	return length >= least && length <= room;
}

/*
 * Sets the members of a successful receive. Kind and length are not valid in
 * the CQE of an error. An RDMA write with immediate data leaves the buffer
 * unused, so its length is not compared with the buffer. A datagram QP cannot
 * receive such a write, so a CQE that reports one there gets no exception.
 */
static void qrnic_cq_translate_receive(const struct qrnic_ib_qp *qp, u8 opcode,
				       u32 length, u32 room, struct ib_wc *wc)
{
	if (opcode == QRNIC_CQE_RECV_RDMA_WITH_IMM &&
	    !qrnic_qp_is_datagram(qp->ibqp.qp_type))
		wc->opcode = IB_WC_RECV_RDMA_WITH_IMM;
	else if (!qrnic_cq_length_possible(qp, length, room))
		wc->status = IB_WC_LOC_LEN_ERR;
}

static bool qrnic_cq_translate(struct cq_poll *poll, const struct qrnic_cqe *cqe,
			       struct ib_wc *wc)
{
	u32 control = le32_to_cpu(cqe->control);
	u8 opcode = FIELD_GET(QRNIC_CQE_OPCODE_MASK, control);
	u8 flags = FIELD_GET(QRNIC_CQE_FLAGS_MASK, control);
	u32 status = FIELD_GET(QRNIC_CQE_STATUS_MASK, control);
	bool receive = opcode & CQE_RECEIVE;
	struct qrnic_ib_request request = {};
	struct qrnic_ib_qp *qp;

	if (!qrnic_cq_request(poll, cqe, receive, &request))
		return false;
	qp = poll->qp;

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = request.wr_id;
	wc->qp = &qp->ibqp;
	wc->status = min_t(u32, status, IB_WC_GENERAL_ERR);
	/*
	 * The opcode comes from the request instead of the CQE, because users
	 * decide by it how to interpret wr_id.
	 */
	wc->opcode = request.opcode;
	if (wc->status == IB_WC_SUCCESS && receive)
		qrnic_cq_translate_receive(qp, opcode, le32_to_cpu(cqe->byte_len),
					   request.bytes, wc);
	if (wc->status != IB_WC_SUCCESS) {
		wc->vendor_err = le32_to_cpu(cqe->syndrome);
		return true;
	}

	wc->byte_len = le32_to_cpu(cqe->byte_len);
	wc->src_qp = qp->ibqp.qp_num;
	wc->port_num = QRNIC_IB_PORT;
	if (flags & QRNIC_CQEF_IMM) {
		wc->ex.imm_data = cqe->imm;
		wc->wc_flags |= IB_WC_WITH_IMM;
	}
	if (flags & QRNIC_CQEF_INV) {
		wc->ex.invalidate_rkey = be32_to_cpu(cqe->imm);
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
	}
	if (receive && qrnic_qp_is_datagram(qp->ibqp.qp_type))
		qrnic_cq_translate_datagram(cqe, flags, wc);
	return true;
}

int qrnic_ib_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcq->device);
	struct qrnic_ib_cq *cq = to_qrnic_cq(ibcq);
	struct cq_poll poll = { .dev = dev, .cq = cq };
	struct qrnic_cqe cqe;
	unsigned long flags;
	int polled = 0;
	bool healthy;
	u32 first;

	spin_lock_irqsave(&cq->lock, flags);
	/*
	 * The state is read before the ring. In the fatal state the ring then
	 * contains all completions of the device, so all other requests can be
	 * flushed.
	 */
	healthy = qrnic_healthy(dev->qdev);
	dma_rmb();
	first = cq->consumer;
	while (polled < num && cq->consumer - first < BIT(cq->log_size) &&
	       qrnic_cqe_take(&cq->ring, cq->consumer, cq->log_size, &cqe)) {
		if (qrnic_cq_translate(&poll, &cqe, wc + polled))
			polled++;
		cq->consumer++;
	}
	if (poll.qp)
		qrnic_qp_put(poll.qp);

	if (cq->consumer != first)
		qrnic_cq_consume(&cq->ring, cq->consumer);
	if (!healthy)
		polled += qrnic_flush_poll(cq, num - polled, wc + polled);
	spin_unlock_irqrestore(&cq->lock, flags);
	return polled;
}

int qrnic_ib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcq->device);
	struct qrnic_ib_cq *cq = to_qrnic_cq(ibcq);
	unsigned long irq_flags;
	int missed = 0;
	bool healthy;
	u32 arm;

	spin_lock_irqsave(&cq->lock, irq_flags);
	WRITE_ONCE(cq->requested, true);
	cq->arm_sequence++;
	arm = FIELD_PREP(QRNIC_CQ_RECORD_SEQUENCE_MASK,
			 cq->arm_sequence & QRNIC_CQ_RECORD_SEQUENCE_MASK);
	/*
	 * The record has only the newest request. A request for solicited
	 * completions must not replace one for any completion that the device
	 * has not read yet.
	 */
	if ((flags & IB_CQ_SOLICITED_MASK) != IB_CQ_SOLICITED)
		WRITE_ONCE(cq->any_requested, true);
	else if (!READ_ONCE(cq->any_requested))
		arm |= QRNIC_CQ_RECORD_SOLICITED_MASK;

	/*
	 * The writeq() of the doorbell orders the record before the doorbell.
	 */
	WRITE_ONCE(cq->ring.cq_record->arm, cpu_to_le32(arm));
	healthy = qrnic_healthy(dev->qdev);
	if (healthy)
		qrnic_ring_doorbell(dev->qdev, QRNIC_DB_CQ_ARM, cq->core.cqn,
				    cq->consumer);

	if (flags & IB_CQ_REPORT_MISSED_EVENTS)
		missed = qrnic_cq_written(cq) ||
			 (!healthy && qrnic_flush_pending(cq));
	spin_unlock_irqrestore(&cq->lock, irq_flags);
	return missed;
}

/* Number of CQEs to check before the lock is released for pollers */
#define CLEAN_AT_ONCE 64
/* Number that no QP has, so that polling drops the CQE */
#define NO_QPN U32_MAX

/* Marks a CQE, and frees its slot of an SRQ. Called under the lock. */
static void qrnic_cq_clean_entry(struct qrnic_ib_cq *cq, struct qrnic_cqe *cqe)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(cq->ibcq.device);
	struct qrnic_ib_request request;

	if (cqe->srqn)
		qrnic_srq_complete(dev, le32_to_cpu(cqe->srqn),
				   le32_to_cpu(cqe->index), &request);
	cqe->srqn = 0;
	cqe->qpn = cpu_to_le32(NO_QPN);
}

/*
 * Marks the CQEs of a QP that is destroyed, or in RESET, in a kernel CQ. Slots
 * of an SRQ are freed at once. The CQEs stay until they are polled, because
 * moving the others would require disabled interrupts during the whole loop.
 */
void qrnic_cq_clean(struct qrnic_ib_cq *cq, u32 qpn)
{
	u32 left = BIT(cq->log_size), at_once, index = 0;
	struct qrnic_cqe *cqe;
	bool begun = false;

	if (cq->umem)
		return;

	/*
	 * All CQEs of the QP are in the ring already. So CQEs that the device
	 * writes during the loop belong to other QPs, and the loop need not
	 * reach them.
	 */
	while (left) {
		spin_lock_irq(&cq->lock);
		/*
		 * Pollers may have consumed CQEs while the lock was released,
		 * so the index is behind the consumer then.
		 */
		if (!begun || (s32)(cq->consumer - index) > 0)
			index = cq->consumer;
		begun = true;
		at_once = min(left, CLEAN_AT_ONCE);
		for (left -= at_once; at_once; at_once--, index++) {
			if (!qrnic_cqe_written(&cq->ring, index, cq->log_size)) {
				left = 0;
				break;
			}
			/*
			 * As in a poll: the phase must be read before the rest
			 * of the CQE.
			 */
			dma_rmb();
			cqe = qrnic_cqe_at(&cq->ring, index, cq->log_size);
			if (le32_to_cpu(cqe->qpn) == qpn)
				qrnic_cq_clean_entry(cq, cqe);
		}
		spin_unlock_irq(&cq->lock);
	}
}
