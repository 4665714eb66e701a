/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * srq.h: shared receive queues (SRQs), and the tag lists of some of them.
 *
 * SRQs are created by srq.c. The ring is in srq_ring.c, its resize in
 * srq_resize.c, and tag lists are in tags.c. These files are called by
 * libibverbs through the operations of qrnic.c, and poll.c retires WQEs and
 * operations.
 *
 * The lock of an SRQ protects its lists, ring and tags. Polling takes the lock
 * under the lock of a CQ, so no CQ may be locked under the lock of an SRQ. A
 * resize takes resize_mutex first.
 */
#ifndef QRNIC_PROVIDER_SRQ_H
#define QRNIC_PROVIDER_SRQ_H

#include "qrnic.h"

struct qrnic_cq;
struct qrnic_tags;
union qrnic_segment;

/*
 * A shared receive queue. The free slots form a list by their numbers. Posting
 * takes the slot at head, and completed slots are appended at tail. A WQE in
 * the ring contains the number of the next slot. This slot must be known when
 * the WQE is posted, so the last slot of the list is never used.
 */
struct qrnic_srq {
	struct verbs_srq vsrq;
	struct qrnic_context *ctx;
	struct qrnic_pd *pd;
	struct qrnic_lock lock;
	/* Serialises resizes */
	pthread_mutex_t resize_mutex;
	struct qrnic_buffer buf;
	/* Ring after a resize; buf then contains only the record */
	struct qrnic_buffer resized;
	/* Current ring. During a resize, posting also writes to ring_to_be. */
	void *ring;
	void *ring_to_be;
	struct qrnic_queue_record *record;
	uint32_t slots;
	uint32_t stride_shift;
	uint32_t max_sge;
	uint32_t srqn;
	uint32_t head;
	uint32_t tail;
	uint32_t producer;
	/* Indexed by slot, for the largest number of slots so far */
	uint32_t *next;
	uint64_t *wr_id;
	/*
	 * Streaming SRQ, by slot: completions polled, minus the total number
	 * when it is known. The slot is free when the value is 0 again. NULL
	 * otherwise.
	 */
	int32_t *seen;
	/* Tag list of type IBV_SRQT_TM, or NULL */
	struct qrnic_tags *tags;
	/*
	 * CQ of an XRC or tag-matching SRQ, or NULL, and the entry in its list
	 */
	struct qrnic_cq *cq;
	struct list_node in_cq;
	bool listed;
};

QRNIC_TO(srq, vsrq.srq)

/* tags.c: qrnic_post_srq_ops() is a verbs operation. */
/* Allocates the tag list of a new SRQ. Returns 0 or ENOMEM. */
int qrnic_tags_alloc(struct qrnic_srq *srq,
		     const struct ibv_srq_init_attr_ex *attr);
/* Frees a tag list; tags may be NULL. */
void qrnic_tags_free(struct qrnic_tags *tags);
/* Returns the part of the create command that describes the tag list. */
struct qrnic_tag_ring qrnic_tags_request(const struct qrnic_tags *tags);
int qrnic_post_srq_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr,
		       struct ibv_ops_wr **bad_wr);
/**
 * qrnic_tags_retire() - release what a completion of a tag list frees
 * @tags: tag list; the caller holds the lock of the SRQ
 * @cqe: completion
 * @wr_id: result: wr_id of the operation or buffer
 *
 * Returns: true if the program sees the completion.
 */
bool qrnic_tags_retire(struct qrnic_tags *tags, const struct qrnic_cqe *cqe,
		       uint64_t *wr_id);

/* srq.c: verbs operations, except qrnic_create_srq_stream(). */
struct ibv_srq *qrnic_create_srq(struct ibv_pd *pd,
				 struct ibv_srq_init_attr *attr);
struct ibv_srq *qrnic_create_srq_ex(struct ibv_context *context,
				    struct ibv_srq_init_attr_ex *attr);
int qrnic_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask);
int qrnic_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr);
int qrnic_destroy_srq(struct ibv_srq *ibsrq);
int qrnic_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num);
/*
 * Creates an SRQ for qrnicdv_create_srq(). Returns NULL and sets errno on an
 * error.
 */
struct ibv_srq *qrnic_create_srq_stream(struct ibv_context *context,
					struct ibv_srq_init_attr_ex *attr,
					const struct qrnic_stream *stream);

/* srq_ring.c: qrnic_post_srq_recv() is a verbs operation. */
/* Allocates ring, record and lists of a new SRQ. Returns 0 or ENOMEM. */
int qrnic_srq_ring_alloc(struct qrnic_srq *srq, uint32_t log_size,
			 uint32_t log_stride, bool streaming);
int qrnic_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr);
/* Frees a completed slot. The caller holds the lock. Returns its wr_id. */
uint64_t qrnic_srq_take_back(struct qrnic_srq *srq, uint32_t slot);
/* Returns the WQE in a slot. The caller holds the lock. */
const union qrnic_segment *qrnic_srq_wqe(const struct qrnic_srq *srq,
					 uint32_t slot);

/*
 * srq_resize.c: resizes an SRQ for qrnic_modify_srq(), which also sets the
 * limit if mask requests it. Returns 0 or an errno value.
 */
int qrnic_srq_resize(struct qrnic_srq *srq, struct ibv_srq_attr *attr, int mask);

#endif /* QRNIC_PROVIDER_SRQ_H */
