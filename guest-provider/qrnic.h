/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic.h: the context of libqrnic, and the objects that all files use:
 * doorbell pages, domains, locks and buffers.
 *
 * Contexts are opened by qrnic.c, which also has the table of verbs operations.
 * These operations are called by libibverbs in any thread. This header declares
 * the functions of buffer.c, device.c, domain.c, memory.c, device_memory.c and
 * flow.c. The functions of the queues are in qp.h, cq.h and srq.h.
 *
 * A "verbs operation" has the arguments, result and errors of the verb with the
 * same name (ibv_*(3)). "Manual" in comments is the qrnic Programmer's
 * Reference.
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

/*
 * Shift and size of the QP table: QP numbers have 24 bits, and the table has
 * two levels of 12 bits each
 */
#define QRNIC_QP_TABLE_SHIFT	12
#define QRNIC_QP_TABLE_SIZE	(1u << QRNIC_QP_TABLE_SHIFT)
#define QRNIC_QPN_MASK		0xffffffu

/* Variant of a memory key, which is index << 8 | variant */
#define QRNIC_KEY_VARIANT_MASK	0xffu

/* Alignment of doorbell records, so that no two share a cache line */
#define QRNIC_RECORD_ALIGN	64u

struct qrnic_qp;

/* An entry of the QP table */
struct qrnic_qp_slot {
	_Atomic(struct qrnic_qp *) qp;
};

/*
 * A spinlock. If needed is false, locking does nothing, because the program has
 * promised a single thread.
 */
struct qrnic_lock {
	pthread_spinlock_t spin;
	bool needed;
};

struct qrnic_device {
	struct verbs_device vdev;
};

/* A doorbell page of a context or of a thread domain */
struct qrnic_db {
	void *page;
	size_t length;
	uint32_t number;
	/*
	 * True if WQEs are also written into the direct-WQE window of the page
	 */
	bool direct_wqe;
	/* Serialises the users of the direct-WQE window */
	struct qrnic_lock window_lock;
};

/*
 * Sizes of buffers in slabs: 512 bytes, 1 KiB, 2 KiB and a page. Larger buffers
 * have pages of their own.
 */
#define QRNIC_SLAB_SHIFT	9
#define QRNIC_SLAB_SIZES	4

struct qrnic_slabs {
	pthread_mutex_t mutex;
	/* Slabs with space, by size of their buffers; slabs without space */
	struct list_head room[QRNIC_SLAB_SIZES];
	struct list_head full;
};

struct qrnic_context {
	struct verbs_context vctx;
	uint64_t capabilities;
	uint8_t qp_options;		/* QRNIC_QPO_* of RC QPs at creation */
	uint8_t ack_timeout;		/* Least ACK timeout of RC QPs, as coded in attributes */
	/*
	 * True if the device can use the virtual addresses of the process
	 */
	bool shared_virtual;
	/* True if RC QPs offer and accept shared connections */
	bool shares;
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
	/*
	 * True if the program requested direct WQEs, and the adapter supports
	 * them
	 */
	bool direct_wqe;
	/* Longest message in a CQE for all queue pairs, in bytes, or 0 */
	uint32_t recv_inline;
	/*
	 * Protects changes of the table, and the removal of a QP from its CQs.
	 * No function holds the mutex during a command to the kernel, because
	 * destroy commands wait for the program. Lookups take no lock; see
	 * qrnic_qp_find().
	 */
	pthread_mutex_t qp_mutex;

	/*
	 * True if the kernel accepts small buffers, which then come from the
	 * slabs
	 */
	bool small_queues;
	struct qrnic_slabs slabs;

	_Atomic(struct qrnic_qp_slot *) qp_table[QRNIC_QP_TABLE_SIZE];
};

struct qrnic_td {
	struct ibv_td td;
	/* Number of parent domains that use this thread domain */
	atomic_uint users;
	struct qrnic_db db;
	uint32_t db_handle;
	/*
	 * True if the thread domain has a page of its own; otherwise db is
	 * unused
	 */
	bool own_db;
};

/*
 * A protection domain or a parent domain. A parent domain has its protection
 * domain in base, and may have a thread domain and allocators.
 */
struct qrnic_pd {
	struct ibv_pd pd;
	/*
	 * Protection domain: number of its parent domains. Parent domain:
	 * number of queues that were created with it.
	 */
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

/*
 * Memory of queues: whole pages or a part of a slab. The pages stay with this
 * process after a fork, because the device continues to use them.
 */
struct qrnic_buffer {
	void *addr;
	size_t length;
	/* Parent domain whose allocator the memory is from; NULL: mmap() */
	struct qrnic_pd *pd;
	uint64_t resource_type;
	/* Slab that contains the buffer, or NULL */
	struct qrnic_slab *slab;
};

/* Each of these capabilities includes the invalidation of keys */
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
 * For ThreadSanitizer: polling a completion happens after posting its WQE. The
 * order comes from the device, which ThreadSanitizer does not see, so the
 * doorbell record represents it.
 */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define qrnic_tsan_post(record) __tsan_release(record)
#define qrnic_tsan_complete(record) __tsan_acquire(record)
#else
#define qrnic_tsan_post(record) ((void)(record))
#define qrnic_tsan_complete(record) ((void)(record))
#endif

/*
 * Writes a member of a doorbell record with a single store, because the device
 * may read the record at any time.
 */
static inline void qrnic_store_record(__le32 *member, uint32_t value)
{
	__atomic_store_n(member, htole32(value), __ATOMIC_RELAXED);
}

/*
 * Orders an earlier store before a later load. No other barrier of the library
 * does so.
 *
 * For __sync_synchronize() a compiler may use an x86 instruction with a LOCK
 * prefix. QEMU emulates it without a barrier if the guest has one processor,
 * although the device is another thread. MFENCE is a barrier in any guest.
 */
static inline void qrnic_full_barrier(void)
{
#ifdef __x86_64__
	__asm__ __volatile__("mfence" ::: "memory");
#else
	__sync_synchronize();
#endif
}

/**
 * qrnic_doorbell_needed() - check if an SQ with an event index needs a doorbell
 * @event: event index that the device has written into the record
 * @old: producer index before the new WQEs
 * @producer: producer index after the new WQEs
 *
 * The indices are counters modulo 2^32 (manual, section "Event index").
 *
 * Returns: true if the device may have stopped reading the record at an index
 * from @old to @producer - 1.
 */
static inline bool qrnic_doorbell_needed(uint32_t event, uint32_t old,
					 uint32_t producer)
{
	return producer - event - 1 < producer - old;
}

/*
 * Returns true if a structure of a program has bytes other than 0 beyond the
 * first known bytes.
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

/**
 * qrnic_read_attr() - copy a structure that the program has filled in
 * @to: copy, all 0 before
 * @known: size of the structure in this library
 * @attr: structure of the program, perhaps of another version
 * @size: size of the structure in the program
 *
 * All direct verbs use this function, so that they all follow the rule of
 * qrnicdv(7).
 *
 * Returns: 0. EINVAL: @size has no space for comp_mask. EOPNOTSUPP: a byte
 * beyond @known is not 0.
 */
static inline int qrnic_read_attr(void *to, size_t known, const void *attr,
				  size_t size)
{
	/* Only comp_mask is required, because every version has it */
	if (size < sizeof(uint64_t))
		return EINVAL;
	memcpy(to, attr, size < known ? size : known);
	return qrnic_has_more(attr, size, known) ? EOPNOTSUPP : 0;
}

static inline uint32_t qrnic_wqebbs(uint32_t segments)
{
	return DIV_ROUND_UP(segments, QRNIC_SEGMENTS_PER_WQEBB);
}

/* Returns true if only one thread uses the objects of a domain. */
static inline bool qrnic_one_thread(const struct qrnic_context *ctx,
				    const struct qrnic_pd *pd)
{
	return ctx->single_threaded || (pd && pd->td);
}

/**
 * qrnic_buffer_alloc() - allocate zeroed memory for queues
 * @ctx: context
 * @buf: result
 * @length: length in bytes
 * @pd: parent domain whose allocator is used, or NULL
 * @resource_type: argument of the allocator, QRNICDV_RES_TYPE_*
 *
 * Returns: 0 or ENOMEM.
 */
int qrnic_buffer_alloc(struct qrnic_context *ctx, struct qrnic_buffer *buf,
		       size_t length, struct qrnic_pd *pd,
		       uint64_t resource_type);
/* Frees the memory of a buffer; does nothing if the buffer has none. */
void qrnic_buffer_free(struct qrnic_buffer *buf);
void qrnic_slabs_init(struct qrnic_slabs *slabs);
void qrnic_slabs_destroy(struct qrnic_slabs *slabs);

/* device.c: functions with the name of a verb are verbs operations. */
/* Identifies the devices of this library */
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
/* Returns true if this library drives the device. */
bool qrnic_is_device(struct ibv_device *device);
/**
 * qrnic_ring_doorbell() - write a doorbell
 * @db: doorbell page
 * @offset: offset of the doorbell in the page, QRNIC_DB_*
 * @number: number of the queue
 * @index: producer index (work queues) or consumer index (CQs)
 *
 * The caller executes the barriers before and after.
 */
void qrnic_ring_doorbell(const struct qrnic_db *db, uint32_t offset,
			 uint32_t number, uint32_t index);
/**
 * qrnic_read_clock() - read the clock of CQE timestamps
 * @context: context
 * @clock: result, in units of clock_khz
 *
 * Returns: 0 or an errno value. EOPNOTSUPP: an older driver.
 */
int qrnic_read_clock(struct ibv_context *context, uint64_t *clock);

/* domain.c: functions with the name of a verb are verbs operations. */
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
/*
 * Counts a user of a parent domain, which cannot be deallocated before. Returns
 * the parent domain, or NULL if pd is a protection domain.
 */
struct qrnic_pd *qrnic_pd_use(struct ibv_pd *pd);
/* Ends a use that qrnic_pd_use() has counted; pd may be NULL. */
void qrnic_pd_unuse(struct qrnic_pd *pd);
/*
 * Sets key to the key of all null regions of a protection domain. Returns 0 or
 * an errno value.
 */
int qrnic_pd_null_key(struct ibv_pd *pd, uint32_t *key);

/* memory.c: verbs operations. */
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

/* device_memory.c: verbs operations. */
struct ibv_dm *qrnic_alloc_dm(struct ibv_context *context,
			      struct ibv_alloc_dm_attr *attr);
int qrnic_free_dm(struct ibv_dm *ibdm);
struct ibv_dm *qrnic_import_dm(struct ibv_context *context, uint32_t handle);
void qrnic_unimport_dm(struct ibv_dm *ibdm);
struct ibv_mr *qrnic_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm,
			       uint64_t offset, size_t length,
			       unsigned int access);

/* flow.c: verbs operations, except qrnic_counters_use(). */
struct ibv_counters *qrnic_create_counters(struct ibv_context *context,
					   struct ibv_counters_init_attr *attr);
int qrnic_destroy_counters(struct ibv_counters *ibcounters);
int qrnic_attach_counters_point_flow(struct ibv_counters *ibcounters,
				     struct ibv_counter_attach_attr *attr,
				     struct ibv_flow *flow);
/* Adds flows, which may be negative, to the number of rules of the counters. */
void qrnic_counters_use(struct ibv_counters *ibcounters, int flows);
int qrnic_read_counters(struct ibv_counters *ibcounters, uint64_t *values,
			uint32_t ncounters, uint32_t flags);
struct ibv_flow *qrnic_create_flow(struct ibv_qp *ibqp,
				   struct ibv_flow_attr *attr);
int qrnic_destroy_flow(struct ibv_flow *flow);

#endif /* QRNIC_PROVIDER_H */
