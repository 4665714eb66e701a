// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * untrusted.c: CQEs that no valid device writes. The test writes them into the
 * ring of a CQ in place of the device. The driver must report no completion for
 * them, and must not use a value that leads to other memory.
 */
#include "kernel_verbs.h"

#include <linux/delay.h>

#include "qp.h"

#define RECEIVES 5
#define LENGTH 64

struct forged {
	struct test *test;
	struct ib_cq *cq;	/* CQ in which the device completes nothing */
	struct ib_qp *qp;
	struct ib_srq *srq;
	struct ib_qp *srq_qp;
	struct ib_qp *datagram_qp;
};

static void cqe_write(struct forged *forged, struct qrnic_cqe cqe, u8 opcode,
		      u8 status)
{
	struct qrnic_ib_cq *cq = to_qrnic_cq(forged->cq);
	u32 place = cq->consumer & (BIT(cq->log_size) - 1);
	struct qrnic_cqe *at = qrnic_ring_at(&cq->ring,
					     (size_t)QRNIC_CQE_SIZE * place);
	u32 control = FIELD_PREP(QRNIC_CQE_OPCODE_MASK, opcode) |
		      FIELD_PREP(QRNIC_CQE_STATUS_MASK, status);

	if (!(cq->consumer >> cq->log_size & 1))
		control |= QRNIC_CQE_PHASE_MASK;
	cqe.control = cpu_to_le32(control);
	*at = cqe;
	/* Needed because the driver copies the CQE with ordinary loads. */
	smp_wmb();
}

static struct qrnic_cqe cqe_of(const struct ib_qp *qp, u32 index)
{
	return (struct qrnic_cqe) {
		.qpn = cpu_to_le32(qp->qp_num),
		.index = cpu_to_le32(index),
		.byte_len = cpu_to_le32(LENGTH),
	};
}

/* Returns the number of completions that polling finds after this CQE. */
static int polled_with(struct forged *forged, struct qrnic_cqe cqe, u8 opcode,
		       u8 status, struct ib_wc *wc)
{
	u32 before = to_qrnic_cq(forged->cq)->consumer;
	int found;

	cqe_write(forged, cqe, opcode, status);
	found = ib_poll_cq(forged->cq, 1, wc);
	EXPECT(forged->test, to_qrnic_cq(forged->cq)->consumer == before + 1);
	return found;
}

static int polled(struct forged *forged, struct qrnic_cqe cqe, u8 opcode,
		  struct ib_wc *wc)
{
	return polled_with(forged, cqe, opcode, QRNIC_WC_SUCCESS, wc);
}

static int receives_post(struct forged *forged)
{
	struct test *test = forged->test;
	struct ib_sge sge = sge_of(test, &test->a, 0, LENGTH);
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	int i, err = 0;

	for (i = 0; i < RECEIVES && !err; i++) {
		wr.wr_id = 100 + i;
		err = ib_post_recv(forged->qp, &wr, NULL);
		wr.wr_id = 300 + i;
		if (!err)
			err = ib_post_recv(forged->datagram_qp, &wr, NULL);
		wr.wr_id = 200 + i;
		if (!err && forged->srq)
			err = ib_post_srq_recv(forged->srq, &wr, NULL);
	}
	return err;
}

static void datagrams(struct forged *forged)
{
	struct test *test = forged->test;
	struct qrnic_cqe cqe = cqe_of(forged->datagram_qp, 0);
	struct ib_wc wc;

	EXPECT(test, polled(forged, cqe, QRNIC_CQE_RECV, &wc) == 1 &&
	       wc.status == IB_WC_SUCCESS && wc.wr_id == 300 && wc.byte_len == LENGTH);
	/* Shorter than the headers before the payload */
	cqe = cqe_of(forged->datagram_qp, 1);
	cqe.byte_len = cpu_to_le32(sizeof(struct ib_grh) - 1);
	EXPECT(test, polled(forged, cqe, QRNIC_CQE_RECV, &wc) == 1 &&
	       wc.wr_id == 301 && wc.status == IB_WC_LOC_LEN_ERR);
	/*
	 * Headers of an unknown kind, and bits beyond a QPN and a service level
	 */
	cqe = cqe_of(forged->datagram_qp, 2);
	cqe.network = U8_MAX;
	cqe.sl = U8_MAX;
	cqe.src_qpn = cpu_to_le32(U32_MAX);
	EXPECT(test, polled(forged, cqe, QRNIC_CQE_RECV, &wc) == 1 &&
	       wc.network_hdr_type <= RDMA_NETWORK_IPV6 && wc.sl <= 15 &&
	       wc.src_qp <= 0xffffff);
	/*
	 * An RDMA write may have any length, but is never received by a
	 * datagram QP.
	 */
	cqe = cqe_of(forged->datagram_qp, 3);
	cqe.byte_len = cpu_to_le32(LENGTH + 1);
	EXPECT(test, polled(forged, cqe, QRNIC_CQE_RECV_RDMA_WITH_IMM, &wc) == 1 &&
	       wc.wr_id == 303 && wc.opcode == IB_WC_RECV &&
	       wc.status == IB_WC_LOC_LEN_ERR);
}

/*
 * Returns the number of a queue pair of a process, which the job has created.
 */
static u32 user_qpn(struct test *test)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(test->dev);
	struct qrnic_ib_object *object;
	unsigned long number;
	u32 found = 0;

	xa_for_each(&dev->qps, number, object) {
		struct qrnic_ib_qp *qp = container_of(object, struct qrnic_ib_qp,
						      object);

		if (qp->umem)
			found = number;
	}
	return found;
}

static void queues(struct forged *forged)
{
	struct test *test = forged->test;
	struct qrnic_cqe cqe = cqe_of(forged->qp, 0);
	struct ib_wc wc;

	/* A send, although none is posted. */
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_SEND, &wc));
	EXPECT(test, !polled(forged, cqe_of(forged->qp, 1U << 31), QRNIC_CQE_SEND, &wc));
	/*
	 * Receives: an index that is not posted, then a posted one, and that
	 * again.
	 */
	EXPECT(test, !polled(forged, cqe_of(forged->qp, RECEIVES), QRNIC_CQE_RECV, &wc));
	EXPECT(test, !polled(forged, cqe_of(forged->qp, U32_MAX), QRNIC_CQE_RECV, &wc));
	EXPECT(test, polled(forged, cqe, QRNIC_CQE_RECV, &wc) == 1 &&
	       wc.status == IB_WC_SUCCESS && wc.wr_id == 100 &&
	       wc.byte_len == LENGTH);
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_RECV, &wc));
	/* More bytes than the buffer has */
	cqe = cqe_of(forged->qp, 1);
	cqe.byte_len = cpu_to_le32(LENGTH + 1);
	EXPECT(test, polled(forged, cqe, QRNIC_CQE_RECV, &wc) == 1 &&
	       wc.wr_id == 101 && wc.status == IB_WC_LOC_LEN_ERR);
	/*
	 * A receive of unknown kind must be reported as a receive, because the
	 * user must not mistake it for a send.
	 */
	EXPECT(test, polled(forged, cqe_of(forged->qp, 2), QRNIC_CQE_RECV | 0x7f, &wc) == 1 &&
	       wc.wr_id == 102 && wc.opcode == IB_WC_RECV);
	/*
	 * In an error only the receive bit of the opcode is valid, and the
	 * length is ignored.
	 */
	cqe = cqe_of(forged->qp, 3);
	cqe.byte_len = cpu_to_le32(LENGTH + 1);
	EXPECT(test, polled_with(forged, cqe, QRNIC_CQE_RECV_RDMA_WITH_IMM,
				 QRNIC_WC_WR_FLUSH_ERR, &wc) == 1 &&
	       wc.wr_id == 103 && wc.opcode == IB_WC_RECV &&
	       wc.status == IB_WC_WR_FLUSH_ERR);
}

static void others(struct forged *forged)
{
	struct test *test = forged->test;
	struct qrnic_cqe cqe = cqe_of(forged->qp, 0);
	u32 user = user_qpn(test);
	struct ib_wc wc;

	/*
	 * A queue pair of another CQ, a queue pair of a process, and an unknown
	 * number
	 */
	EXPECT(test, !polled(forged, cqe_of(test->a.qp, 0), QRNIC_CQE_SEND, &wc));
	EXPECT(test, !polled(forged, cqe_of(test->a.qp, 0), QRNIC_CQE_RECV, &wc));
	if (EXPECT(test, user)) {
		cqe.qpn = cpu_to_le32(user);
		EXPECT(test, !polled(forged, cqe, QRNIC_CQE_SEND, &wc));
		EXPECT(test, !polled(forged, cqe, QRNIC_CQE_RECV, &wc));
	}
	cqe.qpn = cpu_to_le32(0xabcdef);
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_SEND, &wc));
}

static void slots(struct forged *forged)
{
	struct test *test = forged->test;
	struct qrnic_cqe cqe = cqe_of(forged->srq_qp, 0);
	struct ib_wc wc;

	/* A receive queue of the queue pair, which has none */
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_RECV, &wc));
	/* An SRQ that the queue pair does not use */
	cqe.srqn = cpu_to_le32(to_qrnic_srq(forged->srq)->srqn + 1);
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_RECV, &wc));

	cqe.srqn = cpu_to_le32(to_qrnic_srq(forged->srq)->srqn);
	cqe.index = cpu_to_le32(1U << 20);
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_RECV, &wc));
	cqe.index = cpu_to_le32(RECEIVES);
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_RECV, &wc));
	cqe.index = cpu_to_le32(2);
	EXPECT(test, polled(forged, cqe, QRNIC_CQE_RECV, &wc) == 1 &&
	       wc.status == IB_WC_SUCCESS && wc.wr_id == 202);
	EXPECT(test, !polled(forged, cqe, QRNIC_CQE_RECV, &wc));
}

static int forged_create(struct forged *forged)
{
	struct ib_cq_init_attr cq = { .cqe = 64 };
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ib_qp_init_attr init = {
		.cap = {
			.max_send_wr = MAX_WR, .max_recv_wr = MAX_WR,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
		.qp_type = IB_QPT_RC,
	};
	struct ib_qp_attr datagram = { .qp_state = IB_QPS_INIT, .port_num = PORT };
	struct test *test = forged->test;
	struct end end = {};
	int err;

	forged->cq = ib_create_cq(test->dev, NULL, NULL, NULL, &cq);
	if (IS_ERR(forged->cq))
		return PTR_ERR(forged->cq);
	init.send_cq = forged->cq;
	init.recv_cq = forged->cq;
	forged->qp = ib_create_qp(test->pd, &init);
	if (IS_ERR(forged->qp))
		return PTR_ERR(forged->qp);
	end.qp = forged->qp;
	err = end_to_init(&end);
	if (err)
		return err;
	init.qp_type = IB_QPT_UD;
	forged->datagram_qp = ib_create_qp(test->pd, &init);
	if (IS_ERR(forged->datagram_qp))
		return PTR_ERR(forged->datagram_qp);
	err = ib_modify_qp(forged->datagram_qp, &datagram, IB_QP_STATE |
			   IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY);
	if (err || !test->dev->attrs.max_srq)
		return err;
	init.qp_type = IB_QPT_RC;

	forged->srq = ib_create_srq(test->pd, &srq);
	if (IS_ERR(forged->srq))
		return PTR_ERR(forged->srq);
	init.srq = forged->srq;
	forged->srq_qp = ib_create_qp(test->pd, &init);
	return PTR_ERR_OR_ZERO(forged->srq_qp);
}

void test_untrusted(struct test *test)
{
	struct forged forged = { .test = test };

	if (EXPECT(test, !forged_create(&forged)) &&
	    EXPECT(test, !receives_post(&forged))) {
		queues(&forged);
		datagrams(&forged);
		others(&forged);
		if (forged.srq)
			slots(&forged);
	}
	if (!IS_ERR_OR_NULL(forged.srq_qp))
		ib_destroy_qp(forged.srq_qp);
	if (!IS_ERR_OR_NULL(forged.datagram_qp))
		ib_destroy_qp(forged.datagram_qp);
	if (!IS_ERR_OR_NULL(forged.qp))
		ib_destroy_qp(forged.qp);
	if (!IS_ERR_OR_NULL(forged.srq))
		ib_destroy_srq(forged.srq);
	if (!IS_ERR_OR_NULL(forged.cq))
		ib_destroy_cq(forged.cq);
}

/* Sets the doorbell pages of a context, as if pages of the CPU were larger. */
void doorbell_group(struct test *test, u32 count)
{
	WRITE_ONCE(to_qrnic_dev(test->dev)->db_group, count);
}
