/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * srq.h: shared receive queues, and the tag lists that some have. srq.c creates them,
 * srq_ring.c has their ring, srq_resize.c replaces it, and tags.c has the tag lists.
 */
#ifndef QRNIC_PROVIDER_SRQ_H
#define QRNIC_PROVIDER_SRQ_H

#include "qrnic.h"

struct qrnic_cq;
struct qrnic_tags;
union qrnic_segment;

/*
 * Its slots form a list by their numbers: from head on the free ones, in the
 * order in which they will be posted; at tail those come back that completed.
 * A WQE in the ring names the slot of the next one, which must therefore be known
 * when it is posted, so the slot at tail is never used.
 */
struct qrnic_srq {
	struct verbs_srq vsrq;
	struct qrnic_context *ctx;
	struct qrnic_pd *pd;
	struct qrnic_lock lock;
	/* Serialises resizes */
	pthread_mutex_t resize_mutex;
	struct qrnic_buffer buf;
	/* After a resize the ring is here, and only the record in buf */
	struct qrnic_buffer resized;
	/* The ring; while it is resized, the new one, which gets all posts, too */
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
	/* By slot, as many as there ever were */
	uint32_t *next;
	uint64_t *wr_id;
	/*
	 * By slot, NULL unless streaming: completions that named it, less those that
	 * there are in all when that is known
	 */
	int32_t *seen;
	/* NULL, or it is of type IBV_SRQT_TM */
	struct qrnic_tags *tags;
	/* NULL, or the CQ of an XRC SRQ or one with tags, and its place in the list there */
	struct qrnic_cq *cq;
	struct list_node in_cq;
	bool listed;
};

QRNIC_TO(srq, vsrq.srq)

/* tags.c */
int qrnic_tags_alloc(struct qrnic_srq *srq,
		     const struct ibv_srq_init_attr_ex *attr);
void qrnic_tags_free(struct qrnic_tags *tags);
struct qrnic_tag_ring qrnic_tags_request(const struct qrnic_tags *tags);
int qrnic_post_srq_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr,
		       struct ibv_ops_wr **bad_wr);
bool qrnic_tags_retire(struct qrnic_tags *tags, const struct qrnic_cqe *cqe,
		       uint64_t *wr_id);

/* srq.c */
struct ibv_srq *qrnic_create_srq(struct ibv_pd *pd,
				 struct ibv_srq_init_attr *attr);
struct ibv_srq *qrnic_create_srq_ex(struct ibv_context *context,
				    struct ibv_srq_init_attr_ex *attr);
int qrnic_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask);
int qrnic_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr);
int qrnic_destroy_srq(struct ibv_srq *ibsrq);
int qrnic_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num);
struct ibv_srq *qrnic_create_srq_stream(struct ibv_context *context,
					struct ibv_srq_init_attr_ex *attr,
					const struct qrnic_stream *stream);

/* srq_ring.c */
int qrnic_srq_ring_alloc(struct qrnic_srq *srq, uint32_t log_size,
			 uint32_t log_stride, bool streaming);
int qrnic_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr);
uint64_t qrnic_srq_take_back(struct qrnic_srq *srq, uint32_t slot);
const union qrnic_segment *qrnic_srq_wqe(const struct qrnic_srq *srq,
					 uint32_t slot);

/* srq_resize.c */
int qrnic_srq_resize(struct qrnic_srq *srq, struct ibv_srq_attr *attr, int mask);

#endif /* QRNIC_PROVIDER_SRQ_H */
