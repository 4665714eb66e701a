/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qp.h: queue pairs, their work queues, and the WQEs that are posted to them.
 *
 * Queue pairs are created by create.c, and modified, queried and destroyed by
 * qp.c. RSS and XRC have files of their own, wq.c and xrc.c. These files are
 * called by libibverbs through the operations of qrnic.c. WQEs are built by
 * post.c, post_ex.c and mkey.c, with the functions of wqe.c. A WQE is retired
 * by poll.c when the program polls its completion.
 *
 * Locks are taken in this order: qp_mutex of the context, lock of a CQ, lock of
 * an SRQ. The lock of a work queue protects its producer and its WQEs. Under
 * this lock only window_lock of the doorbell page is taken. A queue pair is in
 * the table of the context from its creation in the kernel until its
 * completions are removed after its destruction.
 */
#ifndef QRNIC_PROVIDER_QP_H
#define QRNIC_PROVIDER_QP_H

#include "qrnic.h"

struct qrnic_srq;

struct qrnic_ah {
	struct ibv_ah ah;
	/* Address as a WQE contains it, resolved by the kernel */
	struct qrnic_address_vector av;
};

struct qrnic_wq {
	struct qrnic_lock lock;
	void *ring;
	struct qrnic_queue_record *record;
	/*
	 * Entries in the ring, a power of two: basic blocks (SQ) or WQEs (RQ)
	 */
	uint32_t size;
	uint32_t max_sge;
	/*
	 * Counters modulo 2^32. Posting moves producer under lock. Polling
	 * moves consumer, under the lock of the CQ.
	 */
	uint32_t producer;
	atomic_uint consumer;
	/* Indexed by index & (size - 1) of the first entry of the WQE */
	uint64_t *wr_id;
};

/* A segment of a WQE (manual, chapter "Work queues and WQEs") */
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

/* Segments of an operation of a tag list, before the data segments */
#define QRNIC_TAG_OP_SEGMENTS                                                  \
	((uint32_t)sizeof(struct qrnic_tag_op) / QRNIC_SEGMENT_SIZE)

/* Length of a datagram segment, in segments */
#define QRNIC_DATAGRAM_LENGTH                                                  \
	(sizeof(struct qrnic_datagram_seg) / QRNIC_SEGMENT_SIZE)

/* Length of the address of a dynamic connection, in segments */
#define QRNIC_DYNAMIC_LENGTH                                                   \
	(sizeof(struct qrnic_dynamic_seg) / QRNIC_SEGMENT_SIZE)

/*
 * A send WQE under construction. Functions fill it on the stack or in struct
 * qrnic_qp, because a WQE in the ring may wrap around the end of the ring. Only
 * the complete WQE is copied to the ring.
 */
struct qrnic_wqe {
	union qrnic_segment segment[QRNIC_WQE_MAX_SEGMENTS];
	uint32_t segments;
	uint32_t sges;
	uint32_t inline_length;
	/*
	 * True if the WQE has inline data, perhaps of length 0, and so no SGEs
	 */
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
	/* An XRC or dynamic target has neither queue, an initiator has no RQ */
	bool has_sq;
	bool has_rq;
	/* True if the device writes its event index into the record of the SQ */
	bool event_index;
	struct qrnic_buffer buf;
	struct qrnic_wq sq;
	struct qrnic_wq rq;
	uint32_t max_inline;
	/* Longest message in a CQE, in bytes; the poller copies it */
	uint32_t max_recv_inline;
	uint32_t rq_stride_shift;
	/* Attributes of a streaming RQ; max_message is 0 for other RQs */
	struct qrnic_stream stream;
	/* Serialises modifications of the priority; only with an SQ */
	pthread_mutex_t priority_mutex;
	/* Priority that is set again at each transition to RTS, if any */
	bool has_priority;
	uint8_t priority;
	/* QRNIC_QPO_* for the transition to RTR */
	uint8_t options;
	/* Value of options in RESET, before ECE changes it */
	uint8_t wanted;
	bool is_carrier;
	/*
	 * State of a dynamic connection: half_handshake is the present setting,
	 * and wants_half is the setting that the program chose at the creation
	 */
	bool is_dynamic, half_handshake, wants_half;
	/* Member: number and key of its carrier; 0 otherwise */
	uint32_t carrier;
	uint64_t carrier_key;
	/* ECE options of a shared connection, offered or agreed; or 0 */
	uint32_t share;
	/* True if the program has set the options by ECE */
	bool agreed;
	uint8_t sq_sig_flag;
	/* Length of the WQE that begins at an index, in basic blocks */
	uint8_t *sq_blocks;
	/* Sequence number of the WQE that begins at an index */
	uint32_t *sq_number;
	/* Sequence numbers of the newest posted and the newest retired WQE */
	uint32_t sq_posted;
	atomic_uint sq_retired;
	/*
	 * Number of this life of the SQ, which begins at creation or RESET. No
	 * two lives of the process have the same number.
	 */
	uint64_t sq_life;
	uint32_t max_send_wr;

	/* State of a batch from ibv_wr_start() to its end, under sq.lock */
	struct qrnic_wqe wqe;
	uint64_t wqe_wr_id;
	uint32_t start_producer;
	uint32_t start_posted;
	uint32_t posted;
	int error;
	bool building;
	bool was_idle;
	/* True while the WQE lacks its address (UD, DC) or its SRQ (XRC) */
	bool need_address;
	/* Keys that the batch registers; see mkey.c */
	struct qrnic_mkey *batch_keys;
};

/*
 * An indirect or process key (mkey.c). batch.c restores the key if its batch is
 * dropped. Only indirect keys have pieces and a list.
 */
struct qrnic_mkey {
	struct qrnicdv_mkey mkey;
	struct ibv_context *context;
	uint32_t handle;
	uint32_t kind;			/* enum qrnicdv_mkey_kind */
	uint32_t max_pieces;
	/* Buffer for a list of pieces that does not fit into a WQE */
	struct qrnic_piece *list;
	struct ibv_mr *list_mr;
	/*
	 * Last registration that uses the list: queue pair, life of its SQ, and
	 * sequence number of its WQE. The pointer is only compared and never
	 * followed, because the queue pair may be destroyed.
	 */
	const struct qrnic_qp *list_qp;
	uint64_t list_sq_life;
	uint32_t list_number;
	/* Key before the current batch, and next key of the batch */
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
 * Return the CQs that may have completions of the QP, or NULL. The members of
 * struct ibv_qp cannot be used for this, because the kernel requires both CQs,
 * even if the QP has one queue or none. A dynamic target, for example, has its
 * receive CQ in both members.
 */
static inline struct ibv_cq *qrnic_qp_send_cq(const struct qrnic_qp *qp)
{
	return qp->has_sq ? qp->vqp.qp.send_cq : NULL;
}

static inline struct ibv_cq *qrnic_qp_recv_cq(const struct qrnic_qp *qp)
{
	return qp->has_rq || qp->srq ? qp->vqp.qp.recv_cq : NULL;
}

/**
 * qrnic_qp_find() - look up a queue pair by its number
 * @ctx: context
 * @qpn: number; bits above 24 are ignored
 *
 * The lookup takes no lock. The caller holds the lock of a CQ that has a CQE of
 * the queue pair. Destruction first removes the CQEs of the queue pair from the
 * CQ, and then the queue pair from the table. At last it clears last_qp of the
 * CQ. The first and the last step need the lock of the CQ, so the result is
 * valid while the caller holds the lock. Functions that change the table hold
 * qp_mutex. Second-level tables live as long as the context.
 *
 * Returns: the queue pair, or NULL.
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

/* Returns true if WQEs with the opcode have data segments or inline data. */
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

/*
 * Returns true if WQEs with the opcode send a packet. If the type of the queue
 * pair has no connection, these WQEs need an address.
 */
static inline bool qrnic_is_sent(uint8_t opcode)
{
	return qrnic_has_payload(opcode) || opcode == QRNIC_WQE_ATOMIC_WRITE ||
	       opcode == QRNIC_WQE_FLUSH;
}

/* create.c: qrnic_create_qp() and qrnic_create_qp_ex() are verbs operations. */
struct ibv_qp *qrnic_create_qp(struct ibv_pd *pd,
			       struct ibv_qp_init_attr *attr);
/* Options that only direct verbs set */
struct qrnic_qp_options {
	struct qrnic_stream stream;
	bool has_priority;
	uint8_t priority;
	/* QRNIC_DRIVER_TYPE_* of a dynamic connection, otherwise 0 */
	uint32_t driver_type;
	struct qrnic_dynamic dynamic;
	bool wants_half;
	bool is_carrier;
	/* Member: number and key of its carrier */
	uint32_t carrier;
	uint64_t carrier_key;
	/* QRNIC_QPO_* besides those of the context */
	uint8_t connection;
};

struct ibv_qp *qrnic_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr);
/**
 * qrnic_create_qp_inline() - create a queue pair with queues
 * @context: context
 * @attr: attributes of the verb; cap is replaced by the granted sizes
 * @max_recv_inline: longest message in a CQE in bytes, requested and granted
 * @options: options of the direct verbs
 *
 * Returns: the queue pair, or NULL and sets errno.
 */
struct ibv_qp *qrnic_create_qp_inline(struct ibv_context *context,
				      struct ibv_qp_init_attr_ex *attr,
				      uint32_t *max_recv_inline,
				      const struct qrnic_qp_options *options);
/**
 * qrnic_create_dynamic_target() - create a target of dynamic connections
 * @context: context
 * @attr: attributes of the verb, with an SRQ and a receive CQ
 * @options: options of the direct verbs
 *
 * Returns: the queue pair, or NULL and sets errno.
 */
struct ibv_qp *qrnic_create_dynamic_target(struct ibv_context *context,
					   struct ibv_qp_init_attr_ex *attr,
					   const struct qrnic_qp_options *options);
/**
 * qrnic_create_carrier() - create a carrier of shared connections
 * @context: context
 * @attr: attributes of the verb; cap becomes 0
 * @options: options of the direct verbs
 *
 * Returns: the queue pair, with carrier_key set, or NULL and sets errno.
 */
struct ibv_qp *qrnic_create_carrier(struct ibv_context *context,
				    struct ibv_qp_init_attr_ex *attr,
				    const struct qrnic_qp_options *options);

/*
 * qp.c: qrnic_modify_qp(), qrnic_modify_qp_rate_limit(), qrnic_query_qp() and
 * qrnic_destroy_qp() are verbs operations.
 */
/* Returns a number that no SQ of the process has had. */
uint64_t qrnic_next_sq_life(void);
int qrnic_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask);

/* Implement qrnicdv_modify_priority() and qrnicdv_query_priority(). */
int qrnic_modify_priority(struct ibv_qp *ibqp, uint32_t priority);
int qrnic_query_priority(struct ibv_qp *ibqp, uint32_t *priority, uint32_t *level);
int qrnic_modify_qp_rate_limit(struct ibv_qp *ibqp,
			       struct ibv_qp_rate_limit_attr *limit);
int qrnic_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init_attr);
int qrnic_destroy_qp(struct ibv_qp *ibqp);
/**
 * qrnic_qp_table_add() - add a new queue pair to the table
 * @ctx: context
 * @qp: queue pair that the kernel has created
 *
 * Returns: 0 or ENOMEM.
 */
int qrnic_qp_table_add(struct qrnic_context *ctx, struct qrnic_qp *qp);
/* Removes a queue pair that the kernel has destroyed, with its completions. */
void qrnic_qp_table_remove(struct qrnic_context *ctx, struct qrnic_qp *qp);
/* Removes the completions of a queue pair from its CQs. */
void qrnic_qp_clean_cqs(struct qrnic_qp *qp);
/*
 * Create a target or a carrier, which has no queues. The first function
 * allocates it, with a protection domain or NULL. The second function creates
 * it in the kernel; it sets the sizes in kernel_attr to 0 and returns an errno
 * value. qrnic_qp_free() frees it.
 */
struct qrnic_create_qp_cmd;
struct qrnic_qp *qrnic_qp_new_bare(struct ibv_context *context, struct ibv_pd *pd);
int qrnic_qp_create_bare(struct qrnic_qp *qp, struct ibv_context *context,
			 struct ibv_qp_init_attr_ex *kernel_attr,
			 struct qrnic_create_qp_cmd *cmd);
void qrnic_qp_free(struct qrnic_qp *qp);
/**
 * qrnic_rq_init() - set up the receive queue in the buffer of a queue pair
 * @qp: queue pair with an allocated buffer
 * @ring: offset of the ring in the buffer
 * @record: offset of the doorbell record in the buffer
 * @log_size: log2 of the number of WQEs
 * @log_stride: log2 of the basic blocks of a WQE
 *
 * Returns: 0 or ENOMEM.
 */
int qrnic_rq_init(struct qrnic_qp *qp, size_t ring, size_t record, uint32_t log_size,
		  uint32_t log_stride);
/* Empties a ring, because the device also sets its indices to 0 in RESET. */
void qrnic_wq_reset(struct qrnic_wq *wq);

/*
 * ece.c: qrnic_query_ece() and qrnic_set_ece() are verbs operations.
 * qrnic_options_known() returns the options QRNIC_QPO_* that RC queue pairs of
 * this adapter may have.
 */
uint8_t qrnic_options_known(const struct qrnic_context *ctx);
int qrnic_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ece);
int qrnic_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece);

/* wq.c: verbs operations; qrnic_create_qp_ex() calls qrnic_create_rss(). */
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

/* xrc.c: verbs operations; create.c calls qrnic_create_target(). */
struct ibv_xrcd *qrnic_open_xrcd(struct ibv_context *context,
				 struct ibv_xrcd_init_attr *attr);
int qrnic_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *qrnic_create_target(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *qrnic_open_qp(struct ibv_context *context,
			     struct ibv_qp_open_attr *attr);

/* wqe.c: qrnic_create_ah() and qrnic_destroy_ah() are verbs operations. */
struct ibv_ah *qrnic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int qrnic_destroy_ah(struct ibv_ah *ah);
/* Returns true if the state of the queue pair allows posting to its SQ. */
bool qrnic_send_allowed(const struct qrnic_qp *qp);
/* Returns true if all posted WQEs are known to be complete. */
bool qrnic_sq_is_idle(struct qrnic_wq *sq);
/* Begins a WQE with its control segment, which qrnic_sq_push() completes. */
void qrnic_wqe_begin(struct qrnic_wqe *wqe, uint8_t opcode, uint8_t flags,
		     __be32 imm);
/*
 * Append one segment each. The caller has reserved space by the header that
 * plan_header() in create.c computes, and adds segments in the order of the
 * manual.
 */
void qrnic_wqe_add_xrc(struct qrnic_wqe *wqe, uint32_t srqn);
void qrnic_wqe_add_remote(struct qrnic_wqe *wqe, uint64_t address,
			  uint32_t rkey);
void qrnic_wqe_add_atomic(struct qrnic_wqe *wqe, uint64_t swap_add,
			  uint64_t compare);
void qrnic_wqe_add_flush(struct qrnic_wqe *wqe, uint32_t length, uint8_t type,
			 uint8_t level);
void qrnic_wqe_add_datagram(struct qrnic_wqe *wqe, const struct qrnic_ah *ah,
			    uint32_t qpn, uint32_t qkey);
/*
 * Appends the Ethernet segment. Returns EINVAL if the adapter does not compute
 * the checksums that send_flags requests.
 */
int qrnic_wqe_add_frame(const struct qrnic_qp *qp, struct qrnic_wqe *wqe,
			unsigned int send_flags);
/* Appends the bind segment. Returns EINVAL for invalid rights or regions. */
int qrnic_wqe_add_bind(struct qrnic_wqe *wqe, const struct ibv_mw *mw,
		       uint32_t rkey, const struct ibv_mw_bind_info *info);
void qrnic_set_data(struct qrnic_data_seg *data, uint64_t address,
		    uint32_t length, uint32_t lkey);
void qrnic_wqe_add_data(struct qrnic_wqe *wqe, uint64_t address,
			uint32_t length, uint32_t lkey);
/*
 * Appends inline data behind the segments. Returns EINVAL if the WQE has SGEs,
 * or if the data is too long.
 */
int qrnic_wqe_add_inline(struct qrnic_wqe *wqe, uint32_t max_inline,
			 const void *data, size_t length);
/**
 * qrnic_sq_push() - copy a complete WQE to the ring
 * @qp: queue pair; the caller holds sq.lock
 * @wqe: WQE
 * @wr_id: wr_id of its completion
 *
 * The device does not see the WQE before qrnic_sq_ring().
 *
 * Returns: 0, or ENOMEM if the SQ is full.
 */
int qrnic_sq_push(struct qrnic_qp *qp, struct qrnic_wqe *wqe, uint64_t wr_id);
/**
 * qrnic_sq_ring() - write the doorbell record and, if needed, the doorbell
 * @qp: queue pair; the caller holds sq.lock
 * @old: producer index before the new WQEs
 * @direct: WQE that may be written to the direct-WQE window, or NULL
 */
void qrnic_sq_ring(struct qrnic_qp *qp, uint32_t old,
		   const struct qrnic_wqe *direct);

/* post.c: verbs operations. */
int qrnic_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr);
int qrnic_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad_wr);
int qrnic_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw,
		  struct ibv_mw_bind *bind);

/*
 * batch.c: qrnic_wr_start(), qrnic_wr_complete() and qrnic_wr_abort() are
 * operations of struct ibv_qp_ex.
 */
/* Begins a WQE of the batch with the flags and wr_id of the program. */
struct qrnic_qp *qrnic_wr_begin(struct ibv_qp_ex *ibqp, uint8_t opcode,
				__be32 imm);
/* Makes the batch fail with err, unless it already has an error. */
void qrnic_wr_fail(struct qrnic_qp *qp, int err);
void qrnic_wr_start(struct ibv_qp_ex *ibqp);
int qrnic_wr_complete(struct ibv_qp_ex *ibqp);
void qrnic_wr_abort(struct ibv_qp_ex *ibqp);

/*
 * post_ex.c: sets the operations of struct ibv_qp_ex that the program has
 * requested. Returns EOPNOTSUPP if the type or adapter lacks an operation.
 */
int qrnic_qp_set_wr_ops(struct qrnic_qp *qp, enum ibv_qp_type type,
			uint64_t ops);

#endif /* QRNIC_PROVIDER_QP_H */
