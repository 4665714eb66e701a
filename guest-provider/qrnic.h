/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic.h: the objects of libqrnic and what its files offer each other. "Manual"
 * in comments is the qrnic Programmer's Reference.
 */
#ifndef QRNIC_PROVIDER_H
#define QRNIC_PROVIDER_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ccan/list.h>
#include <infiniband/driver.h>
#include <util/compiler.h>
#include <util/udma_barrier.h>
#include <util/util.h>

#include <rdma/qrnic-abi.h>

#include "qrnic_hw.h"
#include "qrnicdv.h"

/* QP numbers have 24 bits; the table of them has two levels of 12 */
#define QRNIC_QP_TABLE_SHIFT	12
#define QRNIC_QP_TABLE_SIZE	(1u << QRNIC_QP_TABLE_SHIFT)
#define QRNIC_QPN_MASK		0xffffffu

/* A memory key is index << 8 | variant */
#define QRNIC_KEY_VARIANT_MASK	0xffu

/* Records of different queues do not share a cache line */
#define QRNIC_RECORD_ALIGN	64u

struct qrnic_qp;

/* An entry of the QP table */
struct qrnic_qp_slot {
	_Atomic(struct qrnic_qp *) qp;
};

/* A spinlock, or nothing where the user promised a single thread */
struct qrnic_lock {
	pthread_spinlock_t spin;
	bool needed;
};

struct qrnic_device {
	struct verbs_device vdev;
};

/* A doorbell page: the context's, or one of a thread domain's own */
struct qrnic_db {
	void *page;
	size_t length;
	uint32_t number;
	/* Whether WQEs go through its direct-WQE window */
	bool direct_wqe;
	/* Serialises the users of the direct-WQE window */
	struct qrnic_lock window_lock;
};

/* Buffers of 512 bytes, 1 KiB, 2 KiB and a page; larger ones are pages of their own */
#define QRNIC_POOL_SHIFT	9
#define QRNIC_POOL_SIZES	4

struct qrnic_pool {
	pthread_mutex_t mutex;
	/* By size: chunks with room, and those without any */
	struct list_head room[QRNIC_POOL_SIZES];
	struct list_head full;
};

struct qrnic_context {
	struct verbs_context vctx;
	uint64_t capabilities;
	uint8_t qp_options;		/* QRNIC_QPO_*, of RC QPs from the beginning */
	bool shares;			/* RC QPs offer to share connections, and agree */
	size_t page_size;
	struct qrnic_db db;
	uint32_t max_wqebb;
	uint32_t max_recv;
	uint32_t max_cqe;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;
	uint32_t max_srq_wr;
	uint32_t clock_khz;
	bool single_threaded;
	/* Of pages that nobody else rings in */
	bool direct_wqe;
	/* Bytes that all queue pairs receive into the CQE; 0: those that ask */
	uint32_t recv_inline;
	/*
	 * For changes of the table and of what CQs hold of a QP that goes. Never
	 * held over a command to the kernel, as those that destroy wait for the
	 * program. Lookups take no lock, see qrnic_qp_find().
	 */
	pthread_mutex_t qp_mutex;

	/* Where small buffers come from, if the kernel takes them */
	bool small_queues;
	struct qrnic_pool pool;

	_Atomic(struct qrnic_qp_slot *) qp_table[QRNIC_QP_TABLE_SIZE];
};

struct qrnic_td {
	struct ibv_td td;
	/* Parent domains that name it */
	atomic_uint users;
	struct qrnic_db db;
	uint32_t db_handle;
	/* Whether db is its own; else it uses the context's */
	bool own_db;
};

/*
 * A protection domain, or a parent domain, which is the protection domain that
 * base points to with additions.
 */
struct qrnic_pd {
	struct ibv_pd pd;
	/* Parent domains of it, and, of a parent domain, queues made with it */
	atomic_uint users;

	struct qrnic_pd *base;
	struct qrnic_td *td;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size,
		       size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr,
		     uint64_t resource_type);
	void *pd_context;
};

struct qrnic_chunk;

/* Memory of queues: whole pages that a fork does not take away, or a part of such */
struct qrnic_buffer {
	void *addr;
	size_t length;
	/* The parent domain whose allocator it is from; NULL: mmap() */
	struct qrnic_pd *pd;
	uint64_t resource_type;
	/* The chunk of the context's pool that it is a part of; or NULL */
	struct qrnic_chunk *chunk;
};

struct qrnic_dm {
	struct verbs_dm vdm;
	void *map;
	size_t map_length;
	/* Bytes that the program asked for */
	uint64_t length;
};

struct qrnic_ah {
	struct ibv_ah ah;
	/* As the WQE takes it; the kernel has resolved it */
	struct qrnic_address_vector av;
};

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
	/* How many of them are looked for at once */
	uint32_t batch;
	/* For timestamps of the wall clock; the times are those of clocks */
	bool wallclock;
	struct qrnic_clocks clocks;
	atomic_ullong read_ns;
	atomic_ullong keep_ns;
};

struct qrnic_wq {
	struct qrnic_lock lock;
	void *ring;
	struct qrnic_queue_record *record;
	/* Basic blocks (SQ) or WQEs (RQ); a power of two */
	uint32_t size;
	uint32_t max_sge;
	/* Counters modulo 2^32. Whoever polls moves the consumer. */
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

/* Invalidation of keys is part of either */
#define QRNIC_CAP_INVALIDATE                                                   \
	(QRNIC_CAP_MW | QRNIC_CAP_FAST_REG | QRNIC_CAP_INDIRECT_MKEY)

#define QRNIC_SEGMENTS_PER_WQEBB (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)
#define QRNIC_WQE_MAX_SEGMENTS	 (QRNIC_WQE_MAX_WQEBB * QRNIC_SEGMENTS_PER_WQEBB)

/*
 * A send WQE under construction. It is copied to the ring when it is complete,
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

struct qrnic_tags;

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
	/* Of those who resize it */
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

/* A value of the device (enum qrnic_flow_counter), and where it is wanted */
struct qrnic_counter_point {
	uint32_t index;
	uint32_t value;
};

struct qrnic_counters {
	struct verbs_counters vcounters;
	/* For all below */
	pthread_mutex_t mutex;
	/* Rules that count in them */
	uint32_t flows;
	uint32_t num_points;
	struct qrnic_counter_point *points;
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

#define QRNIC_TO(type, member)                                                 \
	static inline struct qrnic_##type *to_qrnic_##type(                    \
		struct ibv_##type *object)                                     \
	{                                                                      \
		return container_of(object, struct qrnic_##type, member);      \
	}
QRNIC_TO(ah, ah)
QRNIC_TO(pd, pd)
QRNIC_TO(td, td)
QRNIC_TO(cq, vcq.cq)
QRNIC_TO(srq, vsrq.srq)
QRNIC_TO(qp, vqp.qp)
QRNIC_TO(counters, vcounters.counters)
QRNIC_TO(dm, vdm.dm)
QRNIC_TO(context, vctx.context)
#undef QRNIC_TO

static inline struct qrnic_cq *to_qrnic_cq_ex(struct ibv_cq_ex *object)
{
	return container_of(object, struct qrnic_cq, vcq.cq_ex);
}

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

static inline void qrnic_lock_init(struct qrnic_lock *lock, bool needed)
{
	pthread_spin_init(&lock->spin, PTHREAD_PROCESS_PRIVATE);
	lock->needed = needed;
}

static inline void qrnic_lock_destroy(struct qrnic_lock *lock)
{
	pthread_spin_destroy(&lock->spin);
}

static inline void qrnic_lock(struct qrnic_lock *lock)
{
	if (lock->needed)
		pthread_spin_lock(&lock->spin);
}

static inline void qrnic_unlock(struct qrnic_lock *lock)
{
	if (lock->needed)
		pthread_spin_unlock(&lock->spin);
}

/*
 * Who posts a WQE and who polls its completion agree through the device. For
 * ThreadSanitizer, which does not see what that does, the record stands for it.
 */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define qrnic_tsan_post(record) __tsan_release(record)
#define qrnic_tsan_complete(record) __tsan_acquire(record)
#else
#define qrnic_tsan_post(record) ((void)(record))
#define qrnic_tsan_complete(record) ((void)(record))
#endif

/* The device reads records at any time, so they change by one store */
static inline void qrnic_store_record(__le32 *member, uint32_t value)
{
	__atomic_store_n(member, htole32(value), __ATOMIC_RELAXED);
}

/*
 * Returns true if a structure of a program has bytes other than 0 behind the
 * known ones
 */
static inline bool qrnic_has_more(const void *attr, size_t size, size_t known)
{
	const uint8_t *tail = attr;
	size_t i;

	for (i = known; i < size; i++) {
		if (tail[i])
			return true;
	}
	return false;
}

/*
 * Reads a structure of a program, which may be of another version; to is all 0
 * before. All direct verbs follow this rule, see qrnicdv(7).
 */
static inline int qrnic_read_attr(void *to, size_t known, const void *attr,
				  size_t size)
{
	/* Every version of every structure has comp_mask */
	if (size < sizeof(uint64_t))
		return EINVAL;
	memcpy(to, attr, size < known ? size : known);
	return qrnic_has_more(attr, size, known) ? EOPNOTSUPP : 0;
}

static inline uint32_t qrnic_wqebbs(uint32_t segments)
{
	return DIV_ROUND_UP(segments, QRNIC_SEGMENTS_PER_WQEBB);
}

/*
 * Lock-free: the caller holds the lock of a CQ that has a CQE of this QP, and a
 * QP leaves the table only after it has been cleaned out of its CQs under their
 * locks. Then they forget it, under their locks, too. Who changes the table holds
 * qp_mutex. Second-level tables live as long as the context.
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

/* What is sent has an address, of the types that connect by it */
static inline bool qrnic_is_sent(uint8_t opcode)
{
	return qrnic_has_payload(opcode) || opcode == QRNIC_WQE_ATOMIC_WRITE ||
	       opcode == QRNIC_WQE_FLUSH;
}

/* Whether one thread alone uses what is made with a domain */
static inline bool qrnic_one_thread(const struct qrnic_context *ctx,
				    const struct qrnic_pd *pd)
{
	return ctx->single_threaded || (pd && pd->td);
}

/* buffer.c */
int qrnic_buffer_alloc(struct qrnic_context *ctx, struct qrnic_buffer *buf,
		       size_t length, struct qrnic_pd *pd,
		       uint64_t resource_type);
void qrnic_buffer_free(struct qrnic_buffer *buf);
void qrnic_pool_init(struct qrnic_pool *pool);
void qrnic_pool_destroy(struct qrnic_pool *pool);

/* device.c */
extern const struct verbs_match_ent qrnic_match_table[];
int qrnic_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t attr_size);
int qrnic_query_port(struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr);
int qrnic_query_port_speed(struct ibv_context *context, uint32_t port_num,
			   uint64_t *port_speed);
int qrnic_query_rt_values(struct ibv_context *context,
			  struct ibv_values_ex *values);
bool qrnic_is_device(struct ibv_device *device);
void qrnic_ring_doorbell(const struct qrnic_db *db, uint32_t offset,
			 uint32_t number, uint32_t index);
int qrnic_read_clock(struct ibv_context *context, uint64_t *clock);

/* domain.c */
struct ibv_pd *qrnic_alloc_pd(struct ibv_context *context);
struct ibv_pd *qrnic_import_pd(struct ibv_context *context, uint32_t handle);
void qrnic_unimport_pd(struct ibv_pd *pd);
struct ibv_pd *
qrnic_alloc_parent_domain(struct ibv_context *context,
			  struct ibv_parent_domain_init_attr *attr);
int qrnic_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *qrnic_alloc_td(struct ibv_context *context,
			      struct ibv_td_init_attr *attr);
int qrnic_dealloc_td(struct ibv_td *td);
struct qrnic_pd *qrnic_pd_use(struct ibv_pd *pd);
void qrnic_pd_unuse(struct qrnic_pd *pd);
int qrnic_pd_null_key(struct ibv_pd *pd, uint32_t *key);

/* memory.c */
struct ibv_mr *qrnic_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			    uint64_t iova, int access);
struct ibv_mr *qrnic_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				   size_t length, uint64_t iova, int fd,
				   int access);
int qrnic_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd,
		   void *addr, size_t length, int access);
int qrnic_dereg_mr(struct verbs_mr *vmr);
struct ibv_mr *qrnic_alloc_null_mr(struct ibv_pd *pd);
struct ibv_mr *qrnic_import_mr(struct ibv_pd *pd, uint32_t handle);
void qrnic_unimport_mr(struct ibv_mr *mr);
struct ibv_mw *qrnic_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int qrnic_dealloc_mw(struct ibv_mw *mw);

/* device_memory.c */
struct ibv_dm *qrnic_alloc_dm(struct ibv_context *context,
			      struct ibv_alloc_dm_attr *attr);
int qrnic_free_dm(struct ibv_dm *ibdm);
struct ibv_dm *qrnic_import_dm(struct ibv_context *context, uint32_t handle);
void qrnic_unimport_dm(struct ibv_dm *ibdm);
struct ibv_mr *qrnic_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm,
			       uint64_t offset, size_t length,
			       unsigned int access);

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

/* create.c */
struct ibv_qp *qrnic_create_qp(struct ibv_pd *pd,
			       struct ibv_qp_init_attr *attr);
/* What only direct verbs ask for; the RQ is streaming if max_message is not 0 */
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

/* flow.c */
struct ibv_counters *qrnic_create_counters(struct ibv_context *context,
					   struct ibv_counters_init_attr *attr);
int qrnic_destroy_counters(struct ibv_counters *ibcounters);
int qrnic_attach_counters_point_flow(struct ibv_counters *ibcounters,
				     struct ibv_counter_attach_attr *attr,
				     struct ibv_flow *flow);
void qrnic_counters_use(struct ibv_counters *ibcounters, int flows);
int qrnic_read_counters(struct ibv_counters *ibcounters, uint64_t *values,
			uint32_t ncounters, uint32_t flags);
struct ibv_flow *qrnic_create_flow(struct ibv_qp *ibqp,
				   struct ibv_flow_attr *attr);
int qrnic_destroy_flow(struct ibv_flow *flow);

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

#endif /* QRNIC_PROVIDER_H */
