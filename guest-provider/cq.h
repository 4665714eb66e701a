/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * cq.h: completion queues.
 *
 * Completion queues are created, resized and armed by cq.c. Completions are
 * consumed by poll.c, and completion.c reads their fields. These files are
 * called by libibverbs through the operations of qrnic.c, and qp.c and srq.c
 * call poll.c to remove completions.
 *
 * The lock of a CQ is held while a thread polls, which may be from
 * ibv_start_poll() to ibv_end_poll(). Requests for events use arm_lock only,
 * because the polling thread may request an event. A thread that resizes the CQ
 * holds resize_mutex and sets resizing. The lock of an SRQ may be taken under
 * the lock of a CQ.
 */
#ifndef QRNIC_PROVIDER_CQ_H
#define QRNIC_PROVIDER_CQ_H

#include "qrnic.h"

struct qrnic_srq;

/*
 * A pair of clock readings. read_ns is the wall-clock time of the readings, and
 * the pair is used for keep_ns.
 */
struct qrnic_clocks {
	uint64_t wall_ns;
	uint64_t device;
	uint64_t read_ns;
	uint64_t keep_ns;
};

/*
 * CQEs that are checked with one barrier. The lock of an SRQ is released after
 * each batch, so that posting threads do not wait long.
 */
#define QRNIC_POLL_BATCH 16u

struct qrnic_cq {
	struct verbs_cq vcq;
	/* Protects polling, from start_poll() to end_poll() */
	struct qrnic_lock lock;
	/* Locked while resizing is true, so that polling threads sleep */
	pthread_mutex_t resize_mutex;
	bool resizing;
	/* Parent domain of the CQ, or NULL */
	struct qrnic_pd *pd;
	struct qrnic_buffer buf;
	/* Ring after a resize; buf then contains only the record */
	struct qrnic_buffer resized;
	struct qrnic_cqe *ring;
	struct qrnic_cq_record *record;
	uint32_t cqn;
	uint32_t log_size;
	uint32_t consumer;
	/* Protects requests for events, which may come while a thread polls */
	struct qrnic_lock arm_lock;
	/* Number of requests for events */
	uint32_t arm_sequence;
	/*
	 * True if the program has requested an event for any CQE; any_events is
	 * the value of events at that time
	 */
	bool any_pending;
	uint32_t any_events;
	/* Number of events that the program has received */
	atomic_uint events;
	/*
	 * SRQs whose completions are in this CQ (XRC, tag matching). Under
	 * lock.
	 */
	struct list_head srqs;
	/*
	 * Current CQE of the extended interface; used_up is true if the CQE
	 * frees its WQE
	 */
	const struct qrnic_cqe *current;
	bool used_up;
	/* QP of the last completion, or NULL, and its number. Under lock. */
	struct qrnic_qp *last_qp;
	uint32_t last_qpn;
	/*
	 * Dropped CQEs since the lock was taken, and the QP number of the last
	 * one
	 */
	uint32_t strays, stray_qpn;
	/* Number of written CQEs from consumer on. Under lock. */
	uint32_t ahead;
	/* Number of CQEs that one check covers */
	uint32_t batch;
	/*
	 * State of wall-clock timestamps. Atomic copies are read without lock.
	 */
	bool wallclock;
	struct qrnic_clocks clocks;
	atomic_ullong read_ns;
	atomic_ullong keep_ns;
};

QRNIC_TO(cq, vcq.cq)

static inline struct qrnic_cq *to_qrnic_cq_ex(struct ibv_cq_ex *object)
{
	return container_of(object, struct qrnic_cq, vcq.cq_ex);
}

/* cq.c: verbs operations. */
struct ibv_cq *qrnic_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel,
			       int comp_vector);
struct ibv_cq_ex *qrnic_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr);
int qrnic_resize_cq(struct ibv_cq *ibcq, int cqe);
int qrnic_modify_cq(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr);
int qrnic_destroy_cq(struct ibv_cq *ibcq);
int qrnic_req_notify_cq(struct ibv_cq *ibcq, int solicited_only);
void qrnic_cq_event(struct ibv_cq *ibcq);

/* poll.c: qrnic_poll_cq() is a verbs operation. */
/* Locks the CQ for polling. Sleeps while another thread resizes it. */
void qrnic_cq_lock(struct qrnic_cq *cq);
/* Unlocks the CQ and reports dropped CQEs. */
void qrnic_cq_unlock(struct qrnic_cq *cq);
int qrnic_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc);
/* Removes all completions of a QP that the device has reset or destroyed. */
void qrnic_cq_clean(struct qrnic_cq *cq, struct qrnic_qp *qp);
/* Clears the pointer to a QP, which is no longer in the QP table. */
void qrnic_cq_forget(struct qrnic_cq *cq, struct qrnic_qp *qp);
/* Adds an SRQ whose completions are in this CQ. */
void qrnic_cq_add_srq(struct qrnic_cq *cq, struct qrnic_srq *srq);
/* Removes a destroyed SRQ and its completions. */
void qrnic_cq_remove_srq(struct qrnic_cq *cq, struct qrnic_srq *srq);
/* Sets the polling operations, and the read operations of wc_flags. */
void qrnic_cq_set_poll_ops(struct qrnic_cq *cq, uint64_t wc_flags);

/* completion.c */
/* Sets the read operations of struct ibv_cq_ex for IBV_WC_EX_WITH_*. */
void qrnic_cq_set_read_ops(struct qrnic_cq *cq, uint64_t wc_flags);
/* Reads both clocks if the pair is old. Returns true if clocks is new. */
bool qrnic_clocks_read(struct qrnic_cq *cq, struct qrnic_clocks *clocks);

#endif /* QRNIC_PROVIDER_CQ_H */
