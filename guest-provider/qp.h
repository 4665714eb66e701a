/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qp.h: queue pairs and the WQEs that are posted to them. create.c creates queue pairs,
 * qp.c modifies, queries and destroys them; wq.c and xrc.c have those of special kinds. post.c
 * and post_ex.c build WQEs out of work requests, by the functions of wqe.c.
 */
#ifndef QRNIC_PROVIDER_QP_H
#define QRNIC_PROVIDER_QP_H

#include "qrnic.h"

struct qrnic_srq;

struct qrnic_ah {
	struct ibv_ah ah;
	/* As the WQE takes it; the kernel has resolved it */
	struct qrnic_address_vector av;
};

struct qrnic_wq {
	struct qrnic_lock lock;
	void *ring;
	struct qrnic_queue_record *record;
	/* Basic blocks (SQ) or WQEs (RQ); a power of two */
	uint32_t size;
	uint32_t max_sge;
	/* Counters modulo 2^32. Polling moves the consumer. */
	uint32_t producer;
	atomic_uint consumer;
	/* By index & (size - 1) of the WQE */
	uint64_t *wr_id;
};

/* A segment of a WQE (manual, chapter "Queues") */
union qrnic_segment {
	struct qrnic_sq_ctrl ctrl;
	struct qrnic_remote_seg remote;
	struct qrnic_atomic_seg atomic;
	struct qrnic_flush_seg flush;
	struct qrnic_xrc_seg xrc;
	struct qrnic_data_seg data;
	struct qrnic_recv_ctrl recv;
	uint8_t bytes[QRNIC_SEGMENT_SIZE];
};

/* Segments of an operation of a tag list before the data segments */
#define QRNIC_TAG_OP_SEGMENTS                                                  \
	((uint32_t)sizeof(struct qrnic_tag_op) / QRNIC_SEGMENT_SIZE)

/* Segments that a datagram segment takes */
#define QRNIC_DATAGRAM_LENGTH                                                  \
	(sizeof(struct qrnic_datagram_seg) / QRNIC_SEGMENT_SIZE)

/* The address of what goes by a dynamic connection, the same */
#define QRNIC_DYNAMIC_LENGTH                                                   \
	(sizeof(struct qrnic_dynamic_seg) / QRNIC_SEGMENT_SIZE)

/*
 * A send WQE under construction. Only the complete WQE is copied to the ring,
 * because a WQE may wrap around the end of the ring.
 */
struct qrnic_wqe {
	union qrnic_segment segment[QRNIC_WQE_MAX_SEGMENTS];
	uint32_t segments;
	uint32_t sges;
	uint32_t inline_length;
	/* Data, perhaps of no length; then there are no SGEs, and vice versa */
	bool has_inline;
	uint8_t opcode;
	uint8_t flags;
};

struct qrnic_qp {
	struct verbs_qp vqp;
	struct qrnic_context *ctx;
	struct qrnic_pd *pd;
	struct qrnic_db *db;
	struct qrnic_srq *srq;
	/* An XRC or dynamic target has no queue, an initiator only an SQ */
	bool has_sq;
	bool has_rq;
	struct qrnic_buffer buf;
	struct qrnic_wq sq;
	struct qrnic_wq rq;
	uint32_t max_inline;
	/* The CQE may bring as many bytes, which the poller copies */
	uint32_t max_recv_inline;
	uint32_t rq_stride_shift;
	/* The RQ is streaming if max_message is not 0 */
	struct qrnic_stream stream;
	/* Set at each transition to RTS, if has_priority */
	pthread_mutex_t priority_mutex;	/* of one with an SQ; with the kernel's */
	bool has_priority;
	uint8_t priority;
	uint8_t options;		/* QRNIC_QPO_*: given on the way to RTR */
	uint8_t wanted;			/* those that it has until others are agreed on */
	bool is_carrier;
	/* Of an end of dynamic connections: the half handshake, now and from the beginning */
	bool is_dynamic, half_handshake, wants_half;
	/* Of a member: given likewise. number: 0 of others */
	uint32_t carrier;
	uint64_t carrier_key;
	/* Options of ECE by which it shares a connection, offered or agreed on; or 0 */
	uint32_t share;
	bool agreed;			/* options of ECE were set */
	uint8_t sq_sig_flag;
	/* By index & (size - 1): basic blocks of the WQE that begins there */
	uint8_t *sq_blocks;
	/* By the same: which one it is of all that were ever posted */
	uint32_t *sq_number;
	/* The number of the newest one; of the newest one that is done */
	uint32_t sq_posted;
	atomic_uint sq_retired;
	/* Another number after each reset, which no other queue pair of the process has */
	uint64_t sq_life;
	uint32_t max_send_wr;

	/* ibv_wr_start() to ibv_wr_complete(), under sq.lock */
	struct qrnic_wqe wqe;
	uint64_t wqe_wr_id;
	uint32_t start_producer;
	uint32_t start_posted;
	uint32_t posted;
	int error;
	bool building;
	bool was_idle;
	/* The WQE being built still lacks its address (UD, DC), or its SRQ (XRC) */
	bool need_address;
	/* Indirect keys that the batch makes into something; see mkey.c */
	struct qrnic_mkey *batch_keys;
};

/* An indirect key (mkey.c). batch.c restores it if the batch that registers it is dropped. */
struct qrnic_mkey {
	struct qrnicdv_mkey mkey;
	struct ibv_context *context;
	uint32_t handle;
	uint32_t max_pieces;
	/* Where a list waits for the device that is too long for a WQE */
	struct qrnic_piece *list;
	struct ibv_mr *list_mr;
	/*
	 * The last registration that uses the list: its queue pair, which is
	 * only compared, because it may be destroyed; and the registration's
	 * number there. NULL: none
	 */
	const struct qrnic_qp *list_qp;
	uint64_t list_sq_life;
	uint32_t list_number;
	/* In a batch of work requests: the key that it had before, and the next one */
	bool in_batch;
	uint32_t key_before;
	struct qrnic_mkey *next;
};

QRNIC_TO(ah, ah)
QRNIC_TO(qp, vqp.qp)

static inline struct qrnic_qp *to_qrnic_qp_ex(struct ibv_qp_ex *object)
{
	return container_of(object, struct qrnic_qp, vqp.qp_ex);
}

/*
 * The CQs that completions of the QP may be in, or NULL. The members of ibv_qp
 * do not show this: the kernel requires both CQs, also for a QP without a
 * queue. So a dynamic target names its receive CQ twice.
 */
static inline struct ibv_cq *qrnic_qp_send_cq(const struct qrnic_qp *qp)
{
	return qp->has_sq ? qp->vqp.qp.send_cq : NULL;
}

static inline struct ibv_cq *qrnic_qp_recv_cq(const struct qrnic_qp *qp)
{
	return qp->has_rq || qp->srq ? qp->vqp.qp.recv_cq : NULL;
}

/*
 * Lock-free: the caller holds the lock of a CQ that has a CQE of this QP, and a
 * QP leaves the table only after it has been cleaned out of its CQs under their
 * locks. Then they forget it, under their locks, too. The caller that changes the table
 * holds qp_mutex. Second-level tables live as long as the context.
 */
static inline struct qrnic_qp *qrnic_qp_find(struct qrnic_context *ctx,
					     uint32_t qpn)
{
	struct qrnic_qp_slot *table;

	qpn &= QRNIC_QPN_MASK;
	table = atomic_load_explicit(&ctx->qp_table[qpn >> QRNIC_QP_TABLE_SHIFT],
				     memory_order_acquire);
	if (!table)
		return NULL;
	return atomic_load_explicit(&table[qpn & (QRNIC_QP_TABLE_SIZE - 1)].qp,
				    memory_order_acquire);
}

static inline bool qrnic_has_payload(uint8_t opcode)
{
	switch (opcode) {
	case QRNIC_WQE_BIND_MW:
	case QRNIC_WQE_LOCAL_INV:
	case QRNIC_WQE_REG_INDIRECT:
	case QRNIC_WQE_ATOMIC_WRITE:
	case QRNIC_WQE_FLUSH:
		return false;
	default:
		return true;
	}
}

/* Returns true if the WQE sends a packet, and so has an address in types without connection. */
static inline bool qrnic_is_sent(uint8_t opcode)
{
	return qrnic_has_payload(opcode) || opcode == QRNIC_WQE_ATOMIC_WRITE ||
	       opcode == QRNIC_WQE_FLUSH;
}

/* create.c */
struct ibv_qp *qrnic_create_qp(struct ibv_pd *pd,
			       struct ibv_qp_init_attr *attr);
/* Options that only direct verbs have; the RQ is streaming if max_message is not 0 */
struct qrnic_qp_options {
	struct qrnic_stream stream;
	bool has_priority;
	uint8_t priority;
	/* An end of dynamic connections, if end is not 0 */
	uint32_t driver_type;	/* of an end of dynamic connections; else 0 */
	struct qrnic_dynamic dynamic;
	bool wants_half;
	bool is_carrier;
	/* Member: number and key of its carrier */
	uint32_t carrier;
	uint64_t carrier_key;
	/* QRNIC_QPO_*, of the connection, besides those of the context */
	uint8_t connection;
};

struct ibv_qp *qrnic_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *qrnic_create_qp_inline(struct ibv_context *context,
				      struct ibv_qp_init_attr_ex *attr,
				      uint32_t *max_recv_inline,
				      const struct qrnic_qp_options *options);
struct ibv_qp *qrnic_create_dynamic_target(struct ibv_context *context,
					   struct ibv_qp_init_attr_ex *attr,
					   const struct qrnic_qp_options *options);
struct ibv_qp *qrnic_create_carrier(struct ibv_context *context,
				    struct ibv_qp_init_attr_ex *attr,
				    const struct qrnic_qp_options *options);

/* qp.c */
uint64_t qrnic_next_sq_life(void);
int qrnic_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask);

int qrnic_modify_priority(struct ibv_qp *ibqp, uint32_t priority);
int qrnic_query_priority(struct ibv_qp *ibqp, uint32_t *priority, uint32_t *level);
int qrnic_modify_qp_rate_limit(struct ibv_qp *ibqp,
			       struct ibv_qp_rate_limit_attr *limit);
int qrnic_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init_attr);
int qrnic_destroy_qp(struct ibv_qp *ibqp);
int qrnic_qp_table_add(struct qrnic_context *ctx, struct qrnic_qp *qp);
void qrnic_qp_table_remove(struct qrnic_context *ctx, struct qrnic_qp *qp);
void qrnic_qp_clean_cqs(struct qrnic_qp *qp);
/*
 * Targets and carriers, which have no queues; pd or NULL. Then the kernel's part, which has
 * no capacities either
 */
struct qrnic_create_qp_cmd;
struct qrnic_qp *qrnic_qp_new_bare(struct ibv_context *context, struct ibv_pd *pd);
int qrnic_qp_create_bare(struct qrnic_qp *qp, struct ibv_context *context,
			 struct ibv_qp_init_attr_ex *kernel_attr,
			 struct qrnic_create_qp_cmd *cmd);
void qrnic_qp_free(struct qrnic_qp *qp);
int qrnic_rq_init(struct qrnic_qp *qp, size_t ring, size_t record, uint32_t log_size,
		  uint32_t log_stride);
/* The ring is empty, as the device has it in RESET */
void qrnic_wq_reset(struct qrnic_wq *wq);

/* ece.c: the options (QRNIC_QPO_*) that RC queue pairs of this device may have */
uint8_t qrnic_options_known(const struct qrnic_context *ctx);
int qrnic_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ece);
int qrnic_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece);

/* wq.c */
struct ibv_qp *qrnic_create_rss(struct ibv_context *context,
				struct ibv_qp_init_attr_ex *attr);
struct ibv_wq *qrnic_create_wq(struct ibv_context *context,
			       struct ibv_wq_init_attr *attr);
int qrnic_modify_wq(struct ibv_wq *ibwq, struct ibv_wq_attr *attr);
int qrnic_destroy_wq(struct ibv_wq *ibwq);
struct ibv_rwq_ind_table *
qrnic_create_rwq_ind_table(struct ibv_context *context,
			   struct ibv_rwq_ind_table_init_attr *attr);
int qrnic_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);

/* xrc.c */
struct ibv_xrcd *qrnic_open_xrcd(struct ibv_context *context,
				 struct ibv_xrcd_init_attr *attr);
int qrnic_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *qrnic_create_target(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *qrnic_open_qp(struct ibv_context *context,
			     struct ibv_qp_open_attr *attr);

/* wqe.c */
struct ibv_ah *qrnic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int qrnic_destroy_ah(struct ibv_ah *ah);
bool qrnic_send_allowed(const struct qrnic_qp *qp);
bool qrnic_sq_is_idle(struct qrnic_wq *sq);
void qrnic_wqe_begin(struct qrnic_wqe *wqe, uint8_t opcode, uint8_t flags,
		     __be32 imm);
void qrnic_wqe_add_xrc(struct qrnic_wqe *wqe, uint32_t srqn);
void qrnic_wqe_add_remote(struct qrnic_wqe *wqe, uint64_t address,
			  uint32_t rkey);
void qrnic_wqe_add_atomic(struct qrnic_wqe *wqe, uint64_t swap_add,
			  uint64_t compare);
void qrnic_wqe_add_flush(struct qrnic_wqe *wqe, uint32_t length, uint8_t type,
			 uint8_t level);
void qrnic_wqe_add_datagram(struct qrnic_wqe *wqe, const struct qrnic_ah *ah,
			    uint32_t qpn, uint32_t qkey);
int qrnic_wqe_add_frame(const struct qrnic_qp *qp, struct qrnic_wqe *wqe,
			unsigned int send_flags);
int qrnic_wqe_add_bind(struct qrnic_wqe *wqe, const struct ibv_mw *mw,
		       uint32_t rkey, const struct ibv_mw_bind_info *info);
void qrnic_set_data(struct qrnic_data_seg *data, uint64_t address,
		    uint32_t length, uint32_t lkey);
void qrnic_wqe_add_data(struct qrnic_wqe *wqe, uint64_t address,
			uint32_t length, uint32_t lkey);
int qrnic_wqe_add_inline(struct qrnic_wqe *wqe, uint32_t max_inline,
			 const void *data, size_t length);
int qrnic_sq_push(struct qrnic_qp *qp, struct qrnic_wqe *wqe, uint64_t wr_id);
void qrnic_sq_ring(struct qrnic_qp *qp, const struct qrnic_wqe *direct);

/* post.c */
int qrnic_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr);
int qrnic_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad_wr);
int qrnic_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw,
		  struct ibv_mw_bind *bind);

/* batch.c */
struct qrnic_qp *qrnic_wr_begin(struct ibv_qp_ex *ibqp, uint8_t opcode,
				__be32 imm);
void qrnic_wr_fail(struct qrnic_qp *qp, int err);
void qrnic_wr_start(struct ibv_qp_ex *ibqp);
int qrnic_wr_complete(struct ibv_qp_ex *ibqp);
void qrnic_wr_abort(struct ibv_qp_ex *ibqp);

/* post_ex.c */
int qrnic_qp_set_wr_ops(struct qrnic_qp *qp, enum ibv_qp_type type,
			uint64_t ops);

#endif /* QRNIC_PROVIDER_QP_H */
