// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * qp_modify.c: modifies and queries queue pairs.
 *
 * A change is prepared without a lock: the attributes of verbs, and those that
 * libqrnic sends in udata, are translated to attributes of the device. Then the
 * transition is checked and executed under the mutex of the queue pair. If the
 * queue pair joins a shared connection of the driver, sharing_mutex is taken
 * first (sharing.c). The state is written under both queue locks, too, because
 * posting checks it.
 */
#include "qp.h"
#include "qrnic_ib.h"
#include "verbs.h"

static_assert((int)IB_QPS_RESET == QRNIC_QPS_RESET);
static_assert((int)IB_QPS_RTS == QRNIC_QPS_RTS);
static_assert((int)IB_QPS_SQE == QRNIC_QPS_SQE);
static_assert((int)IB_QPS_ERR == QRNIC_QPS_ERR);
static_assert(IB_QP_STATE == QRNIC_QP_STATE);
static_assert(IB_QP_CUR_STATE == QRNIC_QP_CUR_STATE);
static_assert(IB_QP_EN_SQD_ASYNC_NOTIFY == QRNIC_QP_EN_SQD_ASYNC_NOTIFY);
static_assert(IB_QP_ACCESS_FLAGS == QRNIC_QP_ACCESS_FLAGS);
static_assert(IB_QP_PKEY_INDEX == QRNIC_QP_PKEY_INDEX);
static_assert(IB_QP_PORT == QRNIC_QP_PORT);
static_assert(IB_QP_QKEY == QRNIC_QP_QKEY);
static_assert(IB_QP_AV == QRNIC_QP_AV);
static_assert(IB_QP_PATH_MTU == QRNIC_QP_PATH_MTU);
static_assert(IB_QP_TIMEOUT == QRNIC_QP_TIMEOUT);
static_assert(IB_QP_RETRY_CNT == QRNIC_QP_RETRY_CNT);
static_assert(IB_QP_RNR_RETRY == QRNIC_QP_RNR_RETRY);
static_assert(IB_QP_RQ_PSN == QRNIC_QP_RQ_PSN);
static_assert(IB_QP_MAX_QP_RD_ATOMIC == QRNIC_QP_MAX_RD_ATOMIC);
static_assert(IB_QP_MIN_RNR_TIMER == QRNIC_QP_MIN_RNR_TIMER);
static_assert(IB_QP_SQ_PSN == QRNIC_QP_SQ_PSN);
static_assert(IB_QP_MAX_DEST_RD_ATOMIC == QRNIC_QP_MAX_DEST_RD_ATOMIC);
static_assert(IB_QP_DEST_QPN == QRNIC_QP_DEST_QPN);
static_assert(IB_QP_RATE_LIMIT == QRNIC_QP_RATE_LIMIT);

/* Attributes that both verbs and the device have, with the same bits */
#define QRNIC_IB_QP_ATTRIBUTES \
	(QRNIC_QP_ALL & ~(QRNIC_QP_PRIORITY | QRNIC_QP_OPTIONS | QRNIC_QP_CARRIER))

#define QRNIC_QP_ACCESS \
	(IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | \
	 IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_FLUSH_GLOBAL)

/*
 * Returns -EINVAL if a value does not fit into the narrower members of the
 * device. The device checks the other values.
 */
static int qrnic_qp_attr_check(struct qrnic_ib_dev *dev, const struct ib_qp_attr *attr,
			       int mask)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;

	if (mask & IB_QP_PORT && attr->port_num != QRNIC_IB_PORT)
		return -EINVAL;
	if (mask & IB_QP_PKEY_INDEX && attr->pkey_index)
		return -EINVAL;
	if (mask & IB_QP_DEST_QPN && attr->dest_qp_num > QRNIC_24_BITS)
		return -EINVAL;
	if (mask & IB_QP_PATH_MTU &&
	    (attr->path_mtu < IB_MTU_256 || attr->path_mtu > IB_MTU_4096))
		return -EINVAL;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC &&
	    attr->max_rd_atomic > caps->max_rd_atomic)
		return -EINVAL;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC &&
	    attr->max_dest_rd_atomic > caps->max_rd_atomic)
		return -EINVAL;
	return 0;
}

/*
 * Sets the members that mask names. The other members stay 0, because the
 * device rejects other values there.
 */
static int qrnic_qp_attr_fill(struct qrnic_ib_dev *dev, struct qrnic_qp_attr *hw,
			      const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_STATE)
		hw->state = attr->qp_state;
	if (mask & IB_QP_CUR_STATE)
		hw->cur_state = attr->cur_qp_state;
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		hw->sq_drained_notify = !!attr->en_sqd_async_notify;
	if (mask & IB_QP_ACCESS_FLAGS)
		hw->access = qrnic_rights_of_access(attr->qp_access_flags &
						    QRNIC_QP_ACCESS);
	if (mask & IB_QP_PORT)
		hw->port = attr->port_num;
	if (mask & IB_QP_QKEY)
		hw->qkey = cpu_to_le32(attr->qkey);
	if (mask & IB_QP_PATH_MTU)
		hw->path_mtu = attr->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		hw->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		hw->retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		hw->rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_RQ_PSN)
		hw->rq_psn = cpu_to_le32(attr->rq_psn & QRNIC_24_BITS);
	if (mask & IB_QP_SQ_PSN)
		hw->sq_psn = cpu_to_le32(attr->sq_psn & QRNIC_24_BITS);
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		hw->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		hw->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		hw->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_DEST_QPN)
		hw->dest_qpn = cpu_to_le32(attr->dest_qp_num);
	if (mask & IB_QP_AV)
		return qrnic_av_fill(dev, &hw->av, &attr->ah_attr);
	return 0;
}

/*
 * Copies the attributes that verbs do not have. libqrnic sends them in udata;
 * other callers send none.
 */
static int qrnic_modify_request_get(struct qrnic_ib_dev *dev, int mask,
				    struct ib_udata *udata,
				    struct qrnic_modify_qp_req *request)
{
	const u32 shared = QRNIC_MODIFY_QP_CARRIER | QRNIC_MODIFY_QP_SHARE;
	/*
	 * Only an initiator may have the half handshake; the device checks
	 * this.
	 */
	const u8 handshake = qrnic_ib_cap(dev, QRNIC_CAP_DYNAMIC) ?
			     QRNIC_QPO_FULL_HANDSHAKE : 0;
	bool limit = mask & IB_QP_RATE_LIMIT;
	int err;

	err = qrnic_udata_no_response(udata);
	if (err)
		return err;
	if (!udata || !udata->inlen || (!limit && !ib_is_udata_in_empty(udata)))
		return 0;
	err = ib_copy_validate_udata_in_cm(udata, *request, reserved,
					   QRNIC_MODIFY_QP_PRIORITY |
					   QRNIC_MODIFY_QP_OPTIONS |
					   QRNIC_MODIFY_QP_CARRIER |
					   QRNIC_MODIFY_QP_SHARE);
	if (err)
		return err;
	if (request->reserved || request->reserved3 ||
	    memchr_inv(request->reserved2, 0, sizeof(request->reserved2)))
		return -EOPNOTSUPP;
	if (!limit && (request->max_burst_sz || request->typical_pkt_sz))
		return -EOPNOTSUPP;
	if (request->options &&
	    (!(request->comp_mask & QRNIC_MODIFY_QP_OPTIONS) ||
	     request->options & ~(qrnic_qp_options(&dev->qdev->caps) | handshake)))
		return -EOPNOTSUPP;
	if (hweight32(request->comp_mask & shared) > 1 ||
	    (request->carrier && !(request->comp_mask & shared)) ||
	    (request->carrier_key &&
	     !(request->comp_mask & QRNIC_MODIFY_QP_CARRIER)) ||
	    (request->comp_mask & shared &&
	     !qrnic_ib_cap(dev, QRNIC_CAP_SHARED_CONNECTION)))
		return -EOPNOTSUPP;
	if (!(request->comp_mask & QRNIC_MODIFY_QP_PRIORITY))
		return request->priority ? -EOPNOTSUPP : 0;
	if (!qrnic_ib_cap(dev, QRNIC_CAP_PRIORITY))
		return -EOPNOTSUPP;
	return request->priority <= QRNIC_PRIORITY_LEVELS ? 0 : -EINVAL;
}

/*
 * Returns the options of a kernel QP, whose user cannot request any. Each RC QP
 * of the kernel has selective repeat, because this changes nothing for the user
 * and requires the peer to have it, too. Adaptive routing is omitted, because
 * the user must have agreed to writes in any order.
 */
static u8 qrnic_qp_kernel_options(struct qrnic_ib_dev *dev,
				  const struct qrnic_ib_qp *qp,
				  const struct ib_qp_attr *attr, int mask)
{
	if (!qrnic_qp_is_kernel(qp) || qp->ibqp.qp_type != IB_QPT_RC ||
	    !(mask & IB_QP_STATE) || attr->qp_state != IB_QPS_RTR)
		return 0;
	return qrnic_qp_options(&dev->qdev->caps) & QRNIC_QPO_SELECTIVE_REPEAT;
}

static int qrnic_qp_rate_limit(struct qrnic_ib_dev *dev, const struct ib_qp_attr *attr,
			       const struct qrnic_modify_qp_req *request,
			       struct qrnic_qp_attr *hw)
{
	if (!qrnic_ib_cap(dev, QRNIC_CAP_RATE_LIMIT))
		return -EOPNOTSUPP;
	if (attr->rate_limit > QRNIC_MAX_RATE_LIMIT)
		return -EINVAL;

	hw->rate_limit = cpu_to_le32(attr->rate_limit);
	hw->max_burst_sz = cpu_to_le32(request->max_burst_sz);
	hw->typical_pkt_sz = cpu_to_le16(request->typical_pkt_sz);
	return 0;
}

/*
 * Sets the state. The queue locks are taken, so that no request is posted to
 * the old rings while a kernel QP moves to RESET.
 */
static void qrnic_qp_state_set(struct qrnic_ib_qp *qp, enum ib_qp_state state)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->sq.lock, flags);
	spin_lock(&qp->rq.lock);
	qp->state = state;
	if (state == IB_QPS_RESET && qrnic_qp_is_kernel(qp))
		qrnic_kernel_queues_reset(qp);
	spin_unlock(&qp->rq.lock);
	spin_unlock_irqrestore(&qp->sq.lock, flags);
}

static void qrnic_qp_state_changed(struct qrnic_ib_qp *qp, enum ib_qp_state state)
{
	/*
	 * The CQs are cleaned first, because their CQEs contain slots that the
	 * reset of the queues frees.
	 */
	if (state == IB_QPS_RESET && qp->state != IB_QPS_RESET)
		qrnic_qp_clean(qp);
	qrnic_qp_state_set(qp, state);
}

static u8 qrnic_av_sl(const struct qrnic_address_vector *av)
{
	return FIELD_GET(QRNIC_ADDRESS_VECTOR_SL_MASK, le32_to_cpu(av->flow));
}

/*
 * Records the attributes from which the device now derives the priority level.
 * The service level is that of the caller, which may differ from the one in the
 * address vector.
 */
static void qrnic_qp_level_changed(struct qrnic_ib_qp *qp,
				   const struct ib_qp_attr *attr,
				   const struct qrnic_qp_attr *hw, u32 attributes,
				   enum ib_qp_state state)
{
	if (state == IB_QPS_RESET) {
		qp->sl = 0;
		WRITE_ONCE(qp->av_level, 0);
		WRITE_ONCE(qp->priority, 0);
	}
	if (attributes & QRNIC_QP_AV) {
		qp->sl = rdma_ah_get_sl(&attr->ah_attr) & 0xf;
		WRITE_ONCE(qp->av_level, qrnic_av_sl(&hw->av));
	}
	if (attributes & QRNIC_QP_PRIORITY)
		WRITE_ONCE(qp->priority, hw->priority);
}

/*
 * Moves a QP to ERR or RESET in the fatal state. No command is needed, because
 * the reset has destroyed the QP in the device; so the transition cannot fail.
 * A QP with an SRQ that moves to ERR then has a pending event LAST_WQE_REACHED.
 */
static void qrnic_qp_state_lost(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
				enum ib_qp_state state)
{
	qrnic_qp_state_changed(qp, state);
	if (state == IB_QPS_RESET || !qrnic_qp_is_kernel(qp))
		return;
	spin_lock_irq(&qp->sq.lock);
	qp->last_wqe_due = qp->ibqp.srq;
	spin_unlock_irq(&qp->sq.lock);
	qrnic_flush_schedule(dev);
}

/*
 * Returns true if the RDMA core allows the transition. IB_QPT_DRIVER is always
 * allowed, because the RDMA core does not know its attributes and the device
 * checks them.
 */
static bool qrnic_qp_modify_is_ok(enum ib_qp_type type, enum ib_qp_state from,
				  enum ib_qp_state to, int mask)
{
	return type == IB_QPT_DRIVER || ib_modify_qp_is_ok(from, to, type, mask);
}

/*
 * Returns true if the transition is allowed. The driver's own attributes are
 * checked here, because ib_modify_qp_is_ok() does not know them, and knows
 * IB_QP_RATE_LIMIT of raw packet QPs only.
 */
static bool qrnic_qp_transition_is_ok(enum ib_qp_type type, enum ib_qp_state from,
				      enum ib_qp_state to, u32 attributes)
{
	const u32 ours = QRNIC_QP_RATE_LIMIT | QRNIC_QP_PRIORITY |
			 QRNIC_QP_OPTIONS | QRNIC_QP_CARRIER;

	if (attributes & (QRNIC_QP_RATE_LIMIT | QRNIC_QP_PRIORITY) &&
	    to != IB_QPS_RTS)
		return false;
	if (attributes & (QRNIC_QP_OPTIONS | QRNIC_QP_CARRIER) &&
	    (from != IB_QPS_INIT || to != IB_QPS_RTR))
		return false;
	if (attributes & QRNIC_QP_CARRIER && type != IB_QPT_RC)
		return false;
	return qrnic_qp_modify_is_ok(type, from, to, attributes & ~ours);
}

/* Call of modify_qp: attributes of the caller, and those for the device */
struct qp_change {
	struct ib_qp_attr *attr;
	int mask;			/* attributes of the caller (IB_QP_*) */
	/* Attributes for the device (QRNIC_QP_*) */
	u32 attributes;
	enum ib_qp_state next;
	struct qrnic_modify_qp_req request;
	struct qrnic_qp_attr hw;
};

/* Checks and translates all attributes that do not depend on the state. */
static int qrnic_qp_change_prepare(struct qrnic_ib_qp *qp, struct qp_change *change,
				   struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	struct qrnic_modify_qp_req *request = &change->request;
	struct qrnic_qp_attr *hw = &change->hw;
	struct ib_qp_attr *attr = change->attr;
	int mask = change->mask, err;

	err = qrnic_modify_request_get(dev, mask, udata, request);
	if (!err && mask & IB_QP_RATE_LIMIT)
		err = qrnic_qp_rate_limit(dev, attr, request, hw);
	if (err)
		return err;
	change->attributes = mask;
	if (request->comp_mask & QRNIC_MODIFY_QP_PRIORITY) {
		change->attributes |= QRNIC_QP_PRIORITY;
		hw->priority = request->priority;
	}
	request->options |= qrnic_qp_kernel_options(dev, qp, attr, mask);
	if (request->options & QRNIC_QPO_ADAPTIVE_ROUTING && qp->is_carrier)
		return -EOPNOTSUPP;
	/*
	 * A QP without options needs no attribute, because this is the default
	 * of every type.
	 */
	if (request->options) {
		change->attributes |= QRNIC_QP_OPTIONS;
		hw->options = request->options;
	}
	if (request->comp_mask & (QRNIC_MODIFY_QP_CARRIER | QRNIC_MODIFY_QP_SHARE))
		change->attributes |= QRNIC_QP_CARRIER;
	err = qrnic_qp_attr_check(dev, attr, mask);
	if (!err && mask & IB_QP_AV && qp->is_carrier)
		err = qrnic_carrier_resolve(qp, &attr->ah_attr);
	if (err)
		return err;
	return qrnic_qp_attr_fill(dev, hw, attr, mask);
}

/* Checks the transition. Called under the mutex of the QP. */
static int qrnic_qp_change_check(struct qrnic_ib_qp *qp, struct qp_change *change)
{
	enum ib_qp_state current_state = change->mask & IB_QP_CUR_STATE ?
					 change->attr->cur_qp_state : qp->state;

	change->next = change->mask & IB_QP_STATE ? change->attr->qp_state :
						    current_state;
	if (qrnic_qp_transition_is_ok(qp->ibqp.qp_type, current_state, change->next,
				      change->attributes))
		return 0;
	ibdev_dbg(qp->ibqp.device,
		  "QP %u: no transition %u to %u with attributes 0x%x\n",
		  qp->ibqp.qp_num, current_state, change->next, change->mask);
	return -EINVAL;
}

/*
 * Makes the device execute the change. Called after qrnic_qp_change_check(),
 * under the mutex of the QP.
 *
 * Before the call *carrier is the carrier that the QP joins, or NULL. The
 * function sets it to the carrier that the caller must leave after releasing
 * the mutex. After an error *carrier is unchanged, because the QP has not
 * become a member.
 */
static int qrnic_qp_change_make(struct qrnic_ib_qp *qp, struct qp_change *change,
				struct qrnic_ib_carrier **carrier)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	enum ib_qp_state next = change->next;
	struct qrnic_qp_attr *hw = &change->hw;
	int err;

	if (*carrier)
		hw->carrier = cpu_to_le32((*carrier)->number);
	hw->mask = cpu_to_le32(change->attributes);
	err = qrnic_cmd_set(dev->qdev, QRNIC_CMD_MODIFY_QP, qp->ibqp.qp_num, hw,
			    sizeof(*hw));
	if (!err) {
		qrnic_qp_state_changed(qp, next);
		qrnic_qp_level_changed(qp, change->attr, hw, change->attributes, next);
		if (next == IB_QPS_RTR || next == IB_QPS_RESET)
			WRITE_ONCE(qp->options, change->request.options);
	} else if (!qrnic_healthy(dev->qdev) && change->mask & IB_QP_STATE &&
		   (next == IB_QPS_ERR || next == IB_QPS_RESET)) {
		qrnic_qp_state_lost(dev, qp, next);
		err = 0;
	}
	if (!err)
		*carrier = qrnic_carrier_changed(qp, *carrier, change->attr,
						 change->mask, next);
	return err;
}

/*
 * Makes the QP a member of a carrier of the driver. The carrier is connected
 * after all checks of the driver, because its path then is used for other
 * processes, too. If the device rejects the member, the carrier returns to its
 * former state.
 */
static int qrnic_qp_modify_shared(struct qrnic_ib_qp *qp, struct qp_change *change)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	struct qrnic_ib_carrier *carrier, *left = NULL;
	int err;

	if (change->request.options)
		return -EINVAL;
	mutex_lock(&dev->sharing_mutex);
	mutex_lock(&qp->mutex);
	err = qp->state == IB_QPS_INIT ? qrnic_qp_change_check(qp, change) : -EINVAL;
	if (err)
		goto out;
	carrier = qrnic_share_join(qp, change->request.carrier, change->attr,
				   &change->hw);
	if (IS_ERR(carrier)) {
		err = PTR_ERR(carrier);
	} else {
		left = carrier;
		err = qrnic_qp_change_make(qp, change, &left);
		if (err) {
			qrnic_share_abandon(qp, carrier);
			left = NULL;
		}
	}
	if (err)
		qrnic_share_refused(qp);
out:
	mutex_unlock(&qp->mutex);
	qrnic_sharing_unlock(dev);
	if (left)
		qrnic_carrier_leave(left);
	return err;
}

int qrnic_ib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		       struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qp_change change = { .attr = attr, .mask = mask };
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_ib_carrier *carrier = NULL;
	bool refused;
	int err;

	if (mask & ~QRNIC_IB_QP_ATTRIBUTES || qp->rss)
		return -EOPNOTSUPP;
	err = qrnic_qp_change_prepare(qp, &change, udata);
	if (err)
		return err;
	if (change.request.comp_mask & QRNIC_MODIFY_QP_SHARE)
		return qrnic_qp_modify_shared(qp, &change);

	mutex_lock(&qp->mutex);
	/*
	 * The connection manager moves the QP of a rejected connection to ERR
	 * before it reaches RTR.
	 */
	refused = qp->state <= IB_QPS_INIT;
	err = qrnic_qp_change_check(qp, &change);
	if (!err && change.request.comp_mask & QRNIC_MODIFY_QP_CARRIER) {
		carrier = qrnic_carrier_join(dev, change.request.carrier,
					     change.request.carrier_key);
		if (IS_ERR(carrier)) {
			err = PTR_ERR(carrier);
			carrier = NULL;
		}
	}
	if (!err)
		err = qrnic_qp_change_make(qp, &change, &carrier);
	mutex_unlock(&qp->mutex);

	if (!err && refused && change.next == IB_QPS_ERR) {
		mutex_lock(&dev->sharing_mutex);
		qrnic_share_refused(qp);
		qrnic_sharing_unlock(dev);
	}
	if (carrier)
		qrnic_carrier_leave(carrier);
	return err;
}

static void qrnic_qp_attr_read(struct qrnic_ib_qp *qp, const struct qrnic_qp_attr *hw,
			       struct ib_qp_attr *attr)
{
	attr->qp_state = hw->state;
	attr->cur_qp_state = hw->state;
	attr->path_mtu = hw->path_mtu;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->qkey = le32_to_cpu(hw->qkey);
	attr->rq_psn = le32_to_cpu(hw->rq_psn);
	attr->sq_psn = le32_to_cpu(hw->sq_psn);
	attr->dest_qp_num = le32_to_cpu(hw->dest_qpn);
	attr->qp_access_flags = qrnic_access_of_rights(hw->access);
	attr->cap = qp->cap;
	attr->en_sqd_async_notify = hw->sq_drained_notify;
	attr->sq_draining = le16_get_bits(hw->query,
					  QRNIC_QP_ATTR_SQ_DRAINING_MASK);
	attr->max_rd_atomic = hw->max_rd_atomic;
	attr->max_dest_rd_atomic = hw->max_dest_rd_atomic;
	attr->min_rnr_timer = hw->min_rnr_timer;
	attr->port_num = hw->port;
	attr->timeout = hw->timeout;
	attr->retry_cnt = hw->retry_cnt;
	attr->rnr_retry = hw->rnr_retry;
	attr->rate_limit = le32_to_cpu(hw->rate_limit);
	qrnic_av_read(qp->ibqp.device, &hw->av, qp->sl, &attr->ah_attr);
}

int qrnic_ib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_qp_init_attr *init)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_qp_attr hw;
	int err;

	if (qp->rss)
		return -EOPNOTSUPP;
	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));

	mutex_lock(&qp->mutex);
	err = qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_QP, ibqp->qp_num, &hw,
			      sizeof(hw));
	if (!err && (hw.state > QRNIC_QPS_ERR || hw.path_mtu > QRNIC_MTU_4096))
		err = -EIO;
	if (err)
		goto out;

	/*
	 * The state is updated for ERR and SQE only, because an error can move
	 * the QP there. A QP enters other states by a command only.
	 */
	if (hw.state == QRNIC_QPS_ERR || hw.state == QRNIC_QPS_SQE)
		qrnic_qp_state_set(qp, hw.state);
	qrnic_qp_attr_read(qp, &hw, attr);
	WRITE_ONCE(qp->options_in_force, hw.options_in_force);
	init->qp_context = ibqp->qp_context;
	init->event_handler = ibqp->event_handler;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->signal_all ? IB_SIGNAL_ALL_WR :
					     IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	init->port_num = QRNIC_IB_PORT;
out:
	mutex_unlock(&qp->mutex);
	return err;
}

int qrnic_ib_query_priority(struct ib_qp *ibqp, u32 *priority, u32 *level)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_qp_attr hw;
	int err;

	if (qp->rss || !qp->has_sq || !qrnic_ib_cap(dev, QRNIC_CAP_PRIORITY))
		return -EOPNOTSUPP;
	err = qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_QP, ibqp->qp_num, &hw,
			      sizeof(hw));
	if (err)
		return err;
	if (hw.priority > QRNIC_PRIORITY_LEVELS)
		return -EIO;
	*priority = hw.priority;
	*level = hw.priority ? hw.priority - 1 : qrnic_av_sl(&hw.av);
	return 0;
}
