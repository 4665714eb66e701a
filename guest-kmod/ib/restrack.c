// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * restrack.c: attributes for "rdma resource show -dd" in addition to the common
 * ones, and raw dumps ("-r").
 *
 * The RDMA core calls these functions with a reference to the object. The
 * common attributes come from the device. The attributes here come from the
 * driver's structures, so they need no command and no lock. A raw dump is the
 * output of the object's query command, in the format of the contract.
 */
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>

#include "memory.h"
#include "odp.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"
#include "verbs.h"

static int qrnic_queue_fill(struct sk_buff *msg, const char *producer,
			    const char *consumer, const struct qrnic_ib_queue *queue)
{
	if (rdma_nl_put_driver_u32(msg, producer, READ_ONCE(queue->producer)) ||
	    rdma_nl_put_driver_u32(msg, consumer, READ_ONCE(queue->consumer)))
		return -EMSGSIZE;
	return 0;
}

static int qrnic_fill_end(struct sk_buff *msg, struct nlattr *table, int err)
{
	if (err) {
		nla_nest_cancel(msg, table);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, table);
	return 0;
}

static int qrnic_cq_fill(struct sk_buff *msg, const struct qrnic_ib_cq *cq)
{
	if (rdma_nl_put_driver_u32(msg, "log_size", cq->log_size) ||
	    rdma_nl_put_driver_u32(msg, "vector", cq->core.vector))
		return -EMSGSIZE;
	if (cq->umem)
		return 0;
	if (rdma_nl_put_driver_u32(msg, "consumer", READ_ONCE(cq->consumer)) ||
	    rdma_nl_put_driver_u32(msg, "arm_sequence",
				   READ_ONCE(cq->arm_sequence)))
		return -EMSGSIZE;
	return 0;
}

int qrnic_ib_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq)
{
	struct nlattr *table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);

	if (!table)
		return -EMSGSIZE;
	return qrnic_fill_end(msg, table, qrnic_cq_fill(msg, to_qrnic_cq(ibcq)));
}

/* Writes the options that this end requests, and the options in force. */
static int qrnic_options_fill(struct sk_buff *msg, const struct qrnic_ib_qp *qp)
{
	u8 options = READ_ONCE(qp->options);

	if (!options)
		return 0;
	if (rdma_nl_put_driver_u32_hex(msg, "options", options) ||
	    rdma_nl_put_driver_u32_hex(msg, "options_in_force",
				       READ_ONCE(qp->options_in_force)))
		return -EMSGSIZE;
	return 0;
}

/* Writes the priority level by which the device schedules the QP. */
static int qrnic_level_fill(struct sk_buff *msg, const struct qrnic_ib_qp *qp)
{
	u8 priority = READ_ONCE(qp->priority);

	if (!qrnic_ib_cap(to_qrnic_dev(qp->ibqp.device), QRNIC_CAP_PRIORITY))
		return 0;
	return rdma_nl_put_driver_u32(msg, "level", priority ? priority - 1 :
						    READ_ONCE(qp->av_level));
}

/*
 * Writes the number of the carrier if the queue pair is a member. If the queue
 * pair is a carrier, writes the number of its members in all processes. RCU
 * protects the carrier, because the dump holds a reference to the queue pair
 * only.
 */
static int qrnic_carrier_fill(struct sk_buff *msg, const struct qrnic_ib_qp *qp)
{
	const struct qrnic_ib_carrier *carrier;
	u32 members = 0, number = 0;

	rcu_read_lock();
	carrier = rcu_dereference(qp->carrier);
	if (carrier) {
		members = atomic_read(&carrier->members);
		number = carrier->number;
	}
	rcu_read_unlock();
	if (qp->is_carrier)
		return rdma_nl_put_driver_u32(msg, "members", members);
	return number ? rdma_nl_put_driver_u32(msg, "carrier", number) : 0;
}

/*
 * Writes the kind of a QP of type DRIVER, because the tool shows the same type
 * for all kinds.
 */
static int qrnic_driver_type_fill(struct sk_buff *msg, const struct qrnic_ib_qp *qp)
{
	static const char *const names[] = {
		[QRNIC_DRIVER_TYPE_DC_INITIATOR] = "dc_initiator",
		[QRNIC_DRIVER_TYPE_DC_TARGET] = "dc_target",
		[QRNIC_DRIVER_TYPE_CARRIER] = "carrier",
	};

	if (!qp->driver_type)
		return 0;
	return rdma_nl_put_driver_string(msg, "driver_type", names[qp->driver_type]);
}

static int qrnic_qp_fill(struct sk_buff *msg, const struct qrnic_ib_qp *qp)
{
	if (qrnic_driver_type_fill(msg, qp) ||
	    rdma_nl_put_driver_u32(msg, "sq_log_size", qp->sq_log_size) ||
	    rdma_nl_put_driver_u32(msg, "rq_log_size", qp->rq_log_size) ||
	    rdma_nl_put_driver_u32(msg, "rq_log_stride", qp->rq_log_stride) ||
	    qrnic_level_fill(msg, qp) || qrnic_options_fill(msg, qp) ||
	    qrnic_carrier_fill(msg, qp))
		return -EMSGSIZE;
	if (!qrnic_qp_is_kernel(qp))
		return 0;
	if (qrnic_queue_fill(msg, "sq_producer", "sq_consumer", &qp->sq) ||
	    qrnic_queue_fill(msg, "rq_producer", "rq_consumer", &qp->rq))
		return -EMSGSIZE;
	return 0;
}

int qrnic_ib_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp)
{
	struct nlattr *table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);

	if (!table)
		return -EMSGSIZE;
	return qrnic_fill_end(msg, table, qrnic_qp_fill(msg, to_qrnic_qp(ibqp)));
}

static int qrnic_srq_fill(struct sk_buff *msg, const struct qrnic_ib_srq *srq)
{
	if (rdma_nl_put_driver_u32(msg, "log_size", srq->log_size) ||
	    rdma_nl_put_driver_u32(msg, "log_stride", srq->log_stride))
		return -EMSGSIZE;
	if (srq->umem)
		return 0;
	if (rdma_nl_put_driver_u32(msg, "producer", READ_ONCE(srq->producer)))
		return -EMSGSIZE;
	return 0;
}

int qrnic_ib_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq)
{
	struct nlattr *table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);

	if (!table)
		return -EMSGSIZE;
	return qrnic_fill_end(msg, table, qrnic_srq_fill(msg, to_qrnic_srq(ibsrq)));
}

static int qrnic_mr_fill(struct sk_buff *msg, const struct qrnic_ib_mr *mr)
{
	if (rdma_nl_put_driver_u32_hex(msg, "key_index", mr->index) ||
	    rdma_nl_put_driver_u32_hex(msg, "access", mr->access))
		return -EMSGSIZE;
	if (mr->odp)
		return rdma_nl_put_driver_u32(msg, "page_lists",
					      qrnic_odp_lists(mr->odp));
	if (!mr->umem)
		return 0;
	if (rdma_nl_put_driver_u64_hex(msg, "start", mr->start) ||
	    rdma_nl_put_driver_u32(msg, "page_shift", mr->page_shift) ||
	    rdma_nl_put_driver_u64(msg, "pages", mr->table.pages) ||
	    rdma_nl_put_driver_u32(msg, "page_lists", mr->table.num_lists))
		return -EMSGSIZE;
	return 0;
}

int qrnic_ib_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct nlattr *table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);

	if (!table)
		return -EMSGSIZE;
	return qrnic_fill_end(msg, table, qrnic_mr_fill(msg, to_qrnic_mr(ibmr)));
}

static int qrnic_raw_fill(struct sk_buff *msg, int err, const void *context, int size)
{
	return err ? err : nla_put(msg, RDMA_NLDEV_ATTR_RES_RAW, size, context);
}

int qrnic_ib_fill_res_cq_raw(struct sk_buff *msg, struct ib_cq *ibcq)
{
	struct qrnic_cq_ctx context;
	int err = qrnic_cmd_query(to_qrnic_dev(ibcq->device)->qdev,
				  QRNIC_CMD_QUERY_CQ,
				  to_qrnic_cq(ibcq)->core.cqn, &context,
				  sizeof(context));

	return qrnic_raw_fill(msg, err, &context, sizeof(context));
}

int qrnic_ib_fill_res_qp_raw(struct sk_buff *msg, struct ib_qp *ibqp)
{
	struct qrnic_qp_attr context;
	int err = qrnic_cmd_query(to_qrnic_dev(ibqp->device)->qdev,
				  QRNIC_CMD_QUERY_QP, ibqp->qp_num, &context,
				  sizeof(context));

	return qrnic_raw_fill(msg, err, &context, sizeof(context));
}

int qrnic_ib_fill_res_srq_raw(struct sk_buff *msg, struct ib_srq *ibsrq)
{
	struct qrnic_srq_ctx context;
	int err = qrnic_cmd_query(to_qrnic_dev(ibsrq->device)->qdev,
				  QRNIC_CMD_QUERY_SRQ,
				  to_qrnic_srq(ibsrq)->srqn, &context,
				  sizeof(context));

	return qrnic_raw_fill(msg, err, &context, sizeof(context));
}

int qrnic_ib_fill_res_mr_raw(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct qrnic_mkey_ctx context;
	int err = qrnic_cmd_query(to_qrnic_dev(ibmr->device)->qdev,
				  QRNIC_CMD_QUERY_MKEY,
				  to_qrnic_mr(ibmr)->index, &context,
				  sizeof(context));

	return qrnic_raw_fill(msg, err, &context, sizeof(context));
}
