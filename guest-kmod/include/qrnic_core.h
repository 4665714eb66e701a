/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic_core.h: what qrnic.ko offers to qrnic_ib.ko and to its own Ethernet
 * part: commands, event queues, translation tables, doorbells, counters. Only
 * the core touches registers; its users ring doorbells through the helpers here.
 */
#ifndef QRNIC_CORE_H
#define QRNIC_CORE_H

#include <linux/auxiliary_bus.h>
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/netdevice.h>
#include <linux/pci.h>

#include "compat.h"
#include "qrnic_hw.h"

/* The auxiliary driver's id_table matches "qrnic.rdma": module name, device name */
#define QRNIC_AUX_RDMA "rdma"
#define QRNIC_AUX_MATCH_RDMA "qrnic." QRNIC_AUX_RDMA

/* device_attr in host order; queried again after each reset of the device */
struct qrnic_caps {
	u64 capabilities;
	u64 max_mr_size;
	u64 max_dm_size;
	u32 max_qp;
	u32 max_cq;
	u32 max_mkey;
	u32 max_pd;
	u32 max_eq;
	u32 max_gid;
	u32 max_qp_wqebb;
	u32 max_qp_recv;
	u32 max_cqe;
	u32 max_eqe;
	u32 max_msg_size;
	u32 clock_khz;
	u32 counters;
	u32 ack_delay;
	u32 max_srq;
	u32 max_srq_wr;
	u32 max_xrcd;
	u32 max_multicast;
	u32 max_flow;
	u32 max_rss;
	u16 max_cq_count;
	u16 max_cq_period;
	u16 max_sge;
	u16 max_inline;
	u16 max_rd_atomic;
	u16 doorbell_fifo;
	__be64 node_guid;
	u32 hw_version;		/* register VERSION */
};

/* port_attr in host order */
struct qrnic_port {
	enum qrnic_link_state state;
	enum qrnic_path_mtu max_path_mtu;
	u32 max_mtu;
	u32 speed_mbps;
	u32 gid_entries;
	u32 pkey_entries;
	u8 mac[ETH_ALEN];
};

#define QRNIC_DSCPS 64

/* The public part of the adapter; the core embeds it in its own structure. */
struct qrnic_dev {
	struct pci_dev *pdev;
	struct net_device *netdev;	/* set before the auxiliary device exists */
	void __iomem *db;		/* doorbell page 0, the kernel's */
	phys_addr_t db_phys;		/* page n is at n * QRNIC_DB_PAGE_SIZE */
	u32 db_pages;
	phys_addr_t dm_phys;		/* device memory, if caps say that it has any */
	u64 dm_bytes;			/* of its BAR */
	/*
	 * For events only. Memory is written back over RDMA (NVMe over
	 * Fabrics, NFS), which destroys queue pairs and awaits their events.
	 * So this workqueue has a worker also when no memory is left. Its work
	 * items must not allocate memory with GFP_KERNEL, and must not take a
	 * lock, such as RTNL, whose holder may do so.
	 */
	struct workqueue_struct *event_wq;
	/* All other work items of the adapter */
	struct workqueue_struct *wq;
	struct qrnic_caps caps;
	/* The administrator's map, 0 where it has nothing; written under RTNL */
	u8 priority_of_dscp[QRNIC_DSCPS];
};

/* The options that a connection of this device may have */
static inline u8 qrnic_qp_options(const struct qrnic_caps *caps)
{
	return (caps->capabilities & QRNIC_CAP_SELECTIVE_REPEAT ?
			QRNIC_QPO_SELECTIVE_REPEAT : 0) |
	       (caps->capabilities & QRNIC_CAP_ADAPTIVE_ROUTING ?
			QRNIC_QPO_ADAPTIVE_ROUTING : 0);
}

struct qrnic_auxdev {
	struct auxiliary_device adev;
	struct qrnic_dev *qdev;
	int error;	/* of the driver's probe, which the bus keeps to itself */
};

static inline struct qrnic_dev *qrnic_dev_of_aux(struct auxiliary_device *adev)
{
	return container_of(adev, struct qrnic_auxdev, adev)->qdev;
}

static inline void qrnic_aux_probed(struct auxiliary_device *adev, int error)
{
	container_of(adev, struct qrnic_auxdev, adev)->error = error;
}

/* What the administrator wants for packets of this traffic class; any context */
static inline u8 qrnic_dscp_priority(const struct qrnic_dev *dev, u8 traffic_class)
{
	return READ_ONCE(dev->priority_of_dscp[traffic_class >> 2]);
}

static inline struct device *qrnic_dma_device(struct qrnic_dev *dev)
{
	return &dev->pdev->dev;
}

static inline phys_addr_t qrnic_db_page_phys(struct qrnic_dev *dev, u32 page)
{
	return dev->db_phys + (phys_addr_t)page * QRNIC_DB_PAGE_SIZE;
}

/*
 * False from the moment of a fatal error until recovery has reset the device once
 * more and it takes commands again. By then the auxiliary device is gone, and the
 * netdev has no queues: nobody takes the new life of the device for the old one.
 */
bool qrnic_healthy(struct qrnic_dev *dev);

/* Reports that the driver cannot go on: resets the device and starts recovery. */
void qrnic_report_fatal(struct qrnic_dev *dev, const char *why);

/*
 * One command: in and out are copied to and from mailboxes, in the hardware's
 * format. The caller fills in whole, and finds out as long as it asked for.
 */
struct qrnic_cmd {
	enum qrnic_cmd_opcode opcode;
	u32 object;
	const void *in;
	u32 in_len;
	void *out;
	u32 out_len;
	u32 result;
};

/*
 * Sleeps. Gives back 0 or a negative errno that comes from the status of the command
 * (QRNIC_CMD_STATUS_LIST), -ETIMEDOUT if there was no answer, -EIO if the device is
 * in the fatal state.
 */
int qrnic_cmd_exec(struct qrnic_dev *dev, struct qrnic_cmd *cmd);
/*
 * For commands that take something away (destroy, free, clear). In the fatal state
 * it gives back 0, for the reset has done their work. Any failure but -EBUSY is
 * logged.
 */
int qrnic_cmd_destroy(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
		      u32 object);

/* *number is of what the command made. */
static inline int qrnic_cmd_create(struct qrnic_dev *dev,
				   enum qrnic_cmd_opcode opcode, const void *in,
				   u32 in_len, u32 *number)
{
	struct qrnic_cmd cmd = {
		.opcode = opcode,
		.in = in,
		.in_len = in_len,
	};
	int err = qrnic_cmd_exec(dev, &cmd);

	if (!err)
		*number = cmd.result;
	return err;
}

static inline int qrnic_cmd_set(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
				u32 object, const void *in, u32 in_len)
{
	struct qrnic_cmd cmd = {
		.opcode = opcode,
		.object = object,
		.in = in,
		.in_len = in_len,
	};

	return qrnic_cmd_exec(dev, &cmd);
}

static inline int qrnic_cmd_query(struct qrnic_dev *dev,
				  enum qrnic_cmd_opcode opcode, u32 object,
				  void *out, u32 out_len)
{
	struct qrnic_cmd cmd = {
		.opcode = opcode,
		.object = object,
		.out = out,
		.out_len = out_len,
	};

	return qrnic_cmd_exec(dev, &cmd);
}

/* The device has another table of counters if it has another number of them. */
static inline bool qrnic_counters_known(const struct qrnic_dev *dev)
{
	return dev->caps.counters == QRNIC_NUM_COUNTERS;
}

/*
 * QUERY_COUNTERS, or QUERY_COUNTER_SET with the number of a set (0: what is in no
 * set): QRNIC_NUM_COUNTERS values; -EOPNOTSUPP if they are not known.
 */
int qrnic_cmd_query_counters(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
			     u32 object, u64 *values);

/* The port as the last event or query left it; does not sleep. */
void qrnic_port_cached(struct qrnic_dev *dev, struct qrnic_port *port);

/* The clock of the timestamps in CQEs, 0 without CAP_TIMESTAMP; does not sleep. */
u64 qrnic_clock_ns(struct qrnic_dev *dev);

/*
 * Completion vectors and CQs. A qrnic_cq is embedded in its user's CQ.
 *
 * comp runs in hard interrupt context, once for each completion event. event
 * runs in a work item and may sleep; subtype is an enum qrnic_cq_error. Neither
 * runs any more when qrnic_cq_destroy() has returned.
 */
unsigned int qrnic_num_vectors(struct qrnic_dev *dev);

struct qrnic_cq {
	u32 cqn;
	unsigned int vector;	/* completion vector, 0 to qrnic_num_vectors() - 1 */
	void (*comp)(struct qrnic_cq *cq);
	void (*event)(struct qrnic_cq *cq, u8 subtype);
};

/*
 * The caller has set vector, comp and event, and filled ctx but for eqn. Sets
 * cqn. Arm the CQ only afterwards.
 */
int qrnic_cq_create(struct qrnic_dev *dev, struct qrnic_cq *cq,
		    struct qrnic_cq_ctx *ctx);
/* Not from comp or event. On an error (-EBUSY: a QP uses it) the CQ stays. */
int qrnic_cq_destroy(struct qrnic_dev *dev, struct qrnic_cq *cq);

/*
 * page_fault: a queue pair waits for a page (manual, Paging on demand); in a work item
 * of its own, which goes on to the next one when it returns.
 *
 * Asynchronous events for the RDMA part, delivered one after the other in a work
 * item; the callbacks may sleep and issue commands, but not take RTNL (whose
 * holder may wait for this work item), and not call qrnic_cq_destroy(),
 * qrnic_unregister_event_handler() or qrnic_flush_events().
 * qp_event: for every QP that is not the Ethernet function's. srq_event: for
 * every SRQ.
 * fatal: the device is in the fatal state, so there will be no completion any more;
 * at least once. The auxiliary device is about to be removed.
 */
struct qrnic_event_ops {
	void (*qp_event)(void *context, u32 qpn, enum qrnic_event type, u8 subtype);
	void (*srq_event)(void *context, u32 srqn, enum qrnic_event type, u8 subtype);
	void (*port_event)(void *context);
	void (*fatal)(void *context);
	void (*page_fault)(void *context, u32 number);
};

int qrnic_register_event_handler(struct qrnic_dev *dev,
				 const struct qrnic_event_ops *ops, void *context);
/* No callback runs any more when it has returned. */
void qrnic_unregister_event_handler(struct qrnic_dev *dev);
/*
 * Waits until every event read so far has been delivered: between making a QP
 * unfindable for qp_event and freeing it.
 */
void qrnic_flush_events(struct qrnic_dev *dev);

/*
 * Translation tables (manual, Memory keys): alloc for a known number of pages,
 * add each page's bus address in order, then use table->hw in a context. Pages
 * are 1 << page_shift bytes, offset is of the first byte in the first page. One
 * page becomes a table of level 0.
 */
static inline __le32 qrnic_table_shape(unsigned int levels, unsigned int page_shift)
{
	return cpu_to_le32(FIELD_PREP(QRNIC_TRANSLATION_LEVELS_MASK, levels) |
			   FIELD_PREP(QRNIC_TRANSLATION_PAGE_SHIFT_MASK,
				      page_shift));
}

struct qrnic_table_list {
	__le64 *entries;
	dma_addr_t dma;
};

struct qrnic_table {
	struct qrnic_translation hw;	/* complete when all pages are added */
	u64 pages;			/* expected */
	u64 added;
	u32 offset;
	u32 num_lists;			/* leaves first, then level 2, then level 3 */
	struct qrnic_table_list *lists;
};

int qrnic_table_alloc(struct qrnic_dev *dev, struct qrnic_table *table, u64 pages,
		      unsigned int page_shift, u32 offset);
void qrnic_table_add(struct qrnic_table *table, dma_addr_t address);
/* Only after the object that uses the table has been destroyed. */
void qrnic_table_free(struct qrnic_dev *dev, struct qrnic_table *table);

/*
 * Rings of kernel queues: zeroed coherent memory, and its translation for the
 * context of the queue. Large ones are made of chunks that the page allocator has
 * also when memory is fragmented (PAGE_ALLOC_COSTLY_ORDER with 4 KiB pages); a
 * chunk holds whole CQEs, EQEs and basic blocks. Doorbell records, which all but EQs
 * have: zeroed, 8 bytes in a cache line of their own.
 */
#define QRNIC_RING_CHUNK_SHIFT 15
#define QRNIC_RING_CHUNK BIT(QRNIC_RING_CHUNK_SHIFT)

struct qrnic_ring_chunk {
	void *buf;
	dma_addr_t dma;
};

struct qrnic_ring {
	struct qrnic_ring_chunk *chunks;
	u32 num_chunks;
	size_t chunk_bytes;		/* of each: less than a chunk only if alone */
	struct qrnic_table table;
	struct qrnic_translation hw;
	union {			/* NULL: it has none */
		struct qrnic_queue_record *queue_record;
		struct qrnic_cq_record *cq_record;
	};
	dma_addr_t record_dma;
};

/*
 * Tables of regions with MKEYF_ON_DEMAND. Page lists exist only where they have
 * entries or users; the root always does. hw is for the context of the key.
 *
 * Callers, in this order: qrnic_sparse_get() keeps the lists of some pages,
 * qrnic_sparse_set() writes entries, qrnic_sparse_put() lets the lists go. Later
 * qrnic_sparse_unlink() takes the lists that are empty out of the table; when the
 * device has executed INVALIDATE_PAGES for all pages below them, also for those that
 * never had an entry, qrnic_sparse_lists_free() frees them.
 *
 * Locks: mutex protects the structure and users; memory is allocated under it, so
 * notifiers that free pages must not take it. Notifiers only call qrnic_sparse_set(),
 * which finds lists by RCU. The caller serialises calls of qrnic_sparse_set() for pages
 * of the same list. A list with entries or users is never freed.
 */
struct qrnic_sparse_list {
	__le64 *entries;
	dma_addr_t dma;
	struct qrnic_sparse_list **lower;	/* NULL: the entries are pages */
	struct qrnic_sparse_list *upper;	/* NULL: the root */
	u64 first;		/* number of its first page */
	u32 present;		/* entries that are not 0 */
	u32 users;
	struct list_head link;	/* in table->empty, or in the result of unlink() */
	void *owner;		/* for the caller, between unlink() and free() */
};

/* Limit of the lists of one user of the device, over all tables of this user */
struct qrnic_sparse_budget {
	atomic_t used;
	int limit;
};

struct qrnic_sparse_table {
	struct qrnic_translation hw;
	unsigned int levels;
	struct mutex mutex;	/* of the structure and of users */
	struct qrnic_sparse_list *root;
	struct qrnic_sparse_budget *budget;
	u32 num_lists;
	spinlock_t lock;	/* of empty, and of present where that becomes 0 */
	struct list_head empty;	/* lists of pages that had no entry at some time */
};

/* Takes lists from the budget. Returns false if too few are left. */
bool qrnic_sparse_charge(struct qrnic_sparse_budget *budget, int lists);
void qrnic_sparse_uncharge(struct qrnic_sparse_budget *budget, int lists);

/* Makes the root. All lists are charged to the budget and to the memory cgroup. */
int qrnic_sparse_alloc(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
		       struct qrnic_sparse_budget *budget, u64 pages,
		       unsigned int page_shift, u32 offset);
/*
 * Makes the list that has the entry of this page, if it does not exist, and keeps it.
 * Under the mutex. Sleeps, and may reclaim memory. -ENOMEM also beyond the budget.
 */
struct qrnic_sparse_list *qrnic_sparse_get(struct qrnic_dev *dev,
					   struct qrnic_sparse_table *table, u64 page);
/* Under the mutex. True if a list is empty now: unlink() has something to do. */
bool qrnic_sparse_put(struct qrnic_sparse_table *table,
		      struct qrnic_sparse_list *list);
/*
 * Writes the entry of a page. Without a list the page is absent, and stays so. Sets
 * *emptied if the list has no entry any more. Returns true if there was an entry.
 */
bool qrnic_sparse_set(struct qrnic_sparse_table *table, u64 page, u64 entry,
		      bool *emptied);
/* Under the mutex. Adds the lists to unlinked, those of pages first. */
void qrnic_sparse_unlink(struct qrnic_sparse_table *table,
			 struct list_head *unlinked);
/* Sleeps, because it waits for callers of qrnic_sparse_set(). */
void qrnic_sparse_lists_free(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
			     struct list_head *unlinked);
/* Only after the key that uses the table has been destroyed. */
void qrnic_sparse_free(struct qrnic_dev *dev, struct qrnic_sparse_table *table);

static inline void *qrnic_ring_at(const struct qrnic_ring *ring, size_t offset)
{
	return ring->chunks[offset >> QRNIC_RING_CHUNK_SHIFT].buf +
	       (offset & (QRNIC_RING_CHUNK - 1));
}

int qrnic_ring_alloc(struct qrnic_dev *dev, struct qrnic_ring *ring, size_t bytes);
/* With a doorbell record */
int qrnic_queue_ring_alloc(struct qrnic_dev *dev, struct qrnic_ring *ring,
			   size_t bytes);
/* Only after the queue has been destroyed */
void qrnic_ring_free(struct qrnic_dev *dev, struct qrnic_ring *ring);

/*
 * Whether the device has written entry index of a CQ or an EQ, whose control word
 * has the bit phase: that is 1 in the first pass through the ring, when bit log_size
 * of the index is 0, and then alternates.
 */
static inline bool qrnic_entry_written(const __le32 *control, u32 phase, u32 index,
				       u32 log_size)
{
	bool set = le32_to_cpu(READ_ONCE(*control)) & phase;

	return set == !(index >> log_size & 1);
}

static inline struct qrnic_cqe *qrnic_cqe_at(const struct qrnic_ring *ring, u32 index,
					     u32 log_size)
{
	index &= BIT(log_size) - 1;
	return qrnic_ring_at(ring, (size_t)QRNIC_CQE_SIZE * index);
}

static inline bool qrnic_cqe_written(const struct qrnic_ring *ring, u32 index,
				     u32 log_size)
{
	return qrnic_entry_written(&qrnic_cqe_at(ring, index, log_size)->control,
				   QRNIC_CQE_PHASE_MASK, index, log_size);
}

/*
 * Copies a CQE that is written; false if it is not. All is decided of the copy: the
 * device need not be trusted, and can write the CQE at any time.
 */
static inline bool qrnic_cqe_take(const struct qrnic_ring *ring, u32 index,
				  u32 log_size, struct qrnic_cqe *copy)
{
	if (!qrnic_cqe_written(ring, index, log_size))
		return false;
	/* The device wrote the rest of the CQE before its phase. */
	dma_rmb();
	*copy = *qrnic_cqe_at(ring, index, log_size);
	/* The compiler must not read the ring again in place of the copy. */
	barrier();
	return true;
}

/* Lets the device overwrite the CQEs before index consumer. */
static inline void qrnic_cq_consume(const struct qrnic_ring *ring, u32 consumer)
{
	/* Only when they have been read */
	dma_mb();
	WRITE_ONCE(ring->cq_record->consumer, cpu_to_le32(consumer));
}

/*
 * Posting is: WQEs into the ring, qrnic_record_publish(), qrnic_ring_doorbell().
 *
 * dma_wmb(): the device reads the record by itself (after a lost doorbell, or for
 * an earlier one) and must then find every WQE that it covers.
 */
static inline void qrnic_record_publish(__le32 *record, u32 value)
{
	dma_wmb();
	WRITE_ONCE(*record, cpu_to_le32(value));
}

/*
 * Kernel doorbells go through page 0. offset is QRNIC_DB_SQ, _RQ, _SRQ or _CQ_ARM;
 * number and index are the members of struct qrnic_doorbell. writeq() orders
 * earlier stores to coherent memory, the record among them, before the MMIO
 * write, so the device's read of the record sees them.
 */
static inline void qrnic_ring_doorbell(struct qrnic_dev *dev, u32 offset,
				       u32 number, u32 index)
{
	writeq((u64)index << 32 | number, dev->db + offset);
}

#endif /* QRNIC_CORE_H */
