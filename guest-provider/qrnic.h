/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic.h: the context of libqrnic, with the objects that all files know: doorbell pages,
 * domains, locks and buffers. qp.h, cq.h and srq.h have the queues. "Manual" in comments is
 * the qrnic Programmer's Reference.
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
#define QRNIC_SLAB_SHIFT	9
#define QRNIC_SLAB_SIZES	4

struct qrnic_slabs {
	pthread_mutex_t mutex;
	/* By size: slabs with room, and those without any */
	struct list_head room[QRNIC_SLAB_SIZES];
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
	struct qrnic_slabs slabs;

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

struct qrnic_slab;

/* Memory of queues: whole pages that a fork does not take away, or a part of such */
struct qrnic_buffer {
	void *addr;
	size_t length;
	/* The parent domain whose allocator it is from; NULL: mmap() */
	struct qrnic_pd *pd;
	uint64_t resource_type;
	/* The slab that it is a part of; or NULL */
	struct qrnic_slab *slab;
};

/* Invalidation of keys is part of either */
#define QRNIC_CAP_INVALIDATE                                                   \
	(QRNIC_CAP_MW | QRNIC_CAP_FAST_REG | QRNIC_CAP_INDIRECT_MKEY)

#define QRNIC_SEGMENTS_PER_WQEBB (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)
#define QRNIC_WQE_MAX_SEGMENTS	 (QRNIC_WQE_MAX_WQEBB * QRNIC_SEGMENTS_PER_WQEBB)

#define QRNIC_TO(type, member)                                                 \
	static inline struct qrnic_##type *to_qrnic_##type(                    \
		struct ibv_##type *object)                                     \
	{                                                                      \
		return container_of(object, struct qrnic_##type, member);      \
	}
QRNIC_TO(pd, pd)
QRNIC_TO(td, td)
QRNIC_TO(context, vctx.context)

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
void qrnic_slabs_init(struct qrnic_slabs *slabs);
void qrnic_slabs_destroy(struct qrnic_slabs *slabs);

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

#endif /* QRNIC_PROVIDER_H */
