/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * cq.h: completion queues. cq.c creates, resizes and arms them; poll.c consumes their
 * completions, and completion.c reads their fields.
 */
#ifndef QRNIC_PROVIDER_CQ_H
#define QRNIC_PROVIDER_CQ_H

#include "qrnic.h"

struct qrnic_srq;

/* Both clocks at one moment; when they had been read, and how long they serve */
struct qrnic_clocks {
	uint64_t wall_ns;
	uint64_t device;
	uint64_t read_ns;
	uint64_t keep_ns;
};

/* CQEs that share a barrier, and for how many those who post to an SRQ may wait */
#define QRNIC_POLL_BATCH 16u

struct qrnic_cq {
	struct verbs_cq vcq;
	/* For those who poll, from start_poll() to end_poll() */
	struct qrnic_lock lock;
	/* Held while resizing is set, so that those who would poll sleep */
	pthread_mutex_t resize_mutex;
	bool resizing;
	/* The parent domain that the CQ was made with, or NULL */
	struct qrnic_pd *pd;
	struct qrnic_buffer buf;
	/* After a resize the ring is here, and only the record in buf */
	struct qrnic_buffer resized;
	struct qrnic_cqe *ring;
	struct qrnic_cq_record *record;
	uint32_t cqn;
	uint32_t log_size;
	uint32_t consumer;
	/* For requests for events, which come while a thread polls */
	struct qrnic_lock arm_lock;
	/* Number of requests for events */
	uint32_t arm_sequence;
	/* The last request for any CQE: if there was one, and the value of events then */
	bool any_pending;
	uint32_t any_events;
	/* Counts events that the program has taken */
	atomic_uint events;
	/* SRQs with a CQ of their own, this one: XRC, tag matching. Under lock. */
	struct list_head srqs;
	/* The CQE that the extended interface stands on; it frees its WQE */
	const struct qrnic_cqe *current;
	bool used_up;
	/* The QP of the last completion, or NULL; what CQEs call it. Under lock. */
	struct qrnic_qp *last_qp;
	uint32_t last_qpn;
	/* CQEs without a queue since the lock was taken, and the QP of the last one */
	uint32_t strays, stray_qpn;
	/* CQEs from the consumer on that are known to be written. Under lock. */
	uint32_t ahead;
	/* Number of CQEs that are checked at once */
	uint32_t batch;
	/* For timestamps of the wall clock; the times are those of clocks */
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

/* cq.c */
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

/* poll.c */
void qrnic_cq_lock(struct qrnic_cq *cq);
void qrnic_cq_unlock(struct qrnic_cq *cq);
int qrnic_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc);
void qrnic_cq_clean(struct qrnic_cq *cq, struct qrnic_qp *qp);
void qrnic_cq_forget(struct qrnic_cq *cq, struct qrnic_qp *qp);
void qrnic_cq_add_srq(struct qrnic_cq *cq, struct qrnic_srq *srq);
void qrnic_cq_remove_srq(struct qrnic_cq *cq, struct qrnic_srq *srq);
void qrnic_cq_set_poll_ops(struct qrnic_cq *cq, uint64_t wc_flags);

/* completion.c */
void qrnic_cq_set_read_ops(struct qrnic_cq *cq, uint64_t wc_flags);
bool qrnic_clocks_read(struct qrnic_cq *cq, struct qrnic_clocks *clocks);

#endif /* QRNIC_PROVIDER_CQ_H */
