/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic_core.h: the interface of the core (core/) to qrnic_ib.ko (ib/) and to
 * the Ethernet function (ethernet/): commands, CQs and events, translation
 * tables, rings, doorbells, counters.
 *
 * The core creates one struct qrnic_dev for each adapter. Only the core
 * accesses registers; its callers ring doorbells through the helpers of this
 * file. The RDMA driver calls the core between its probe and the end of its
 * remove. The usual order for a queue is: allocate the ring, create the object
 * by a command, use the doorbells, destroy the object, free the ring.
 *
 * A fatal error of the device fails all commands from then on. No new object
 * gets a number before the recovery has started the device again, so a caller
 * may destroy its objects in any state.
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

/*
 * Names of the auxiliary device. A driver matches "MODULE.DEVICE", here
 * "qrnic.rdma".
 */
#define QRNIC_AUX_RDMA "rdma"
#define QRNIC_AUX_MATCH_RDMA "qrnic." QRNIC_AUX_RDMA

/*
 * Limits and capabilities of the device, in host byte order. The members have
 * the names of struct qrnic_device_attr, which describes each of them and its
 * unit. The core queries them at each start of the device and reduces values
 * that are too large. All members are constant while the auxiliary device
 * exists.
 */
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
	u32 hw_version;		/* value of the register VERSION */
};

/*
 * State and limits of the port, in host byte order; see struct qrnic_port_attr.
 */
struct qrnic_port {
	enum qrnic_link_state state;
	enum qrnic_path_mtu max_path_mtu;
	u32 max_mtu;
	u32 speed_mbps;
	u32 gid_entries;
	u32 pkey_entries;
	u8 mac[ETH_ALEN];
};

/* Number of DSCP values; a DSCP has 6 bits (RFC 2474). */
#define QRNIC_DSCPS 64

/*
 * The adapter, as far as other parts may see it. The core embeds it in struct
 * qrnic_core. The members other than priority_of_dscp are constant while the
 * auxiliary device exists.
 */
struct qrnic_dev {
	struct pci_dev *pdev;
	/* Ethernet interface; set before the auxiliary device is added */
	struct net_device *netdev;
	/* Mapped doorbell page 0, which the kernel uses */
	void __iomem *db;
	/* Physical address of doorbell page 0; the pages are contiguous */
	phys_addr_t db_phys;
	/* Number of doorbell pages, each of QRNIC_DB_PAGE_SIZE bytes */
	u32 db_pages;
	/*
	 * Physical address of the device memory (BAR); valid if capabilities
	 * has QRNIC_CAP_DEVICE_MEMORY
	 */
	phys_addr_t dm_phys;
	/* Size of the BAR of the device memory, in bytes */
	u64 dm_bytes;
	/*
	 * Workqueue of events. A writeback over RDMA (NVMe over Fabrics, NFS)
	 * destroys queue pairs and waits for their events. Therefore the
	 * workqueue has a worker also if no memory is left (WQ_MEM_RECLAIM).
	 * Work items of this workqueue must not allocate memory with
	 * GFP_KERNEL, nor take a lock, such as RTNL, whose holder may do so.
	 */
	struct workqueue_struct *event_wq;
	/* Workqueue of all other work items of the adapter */
	struct workqueue_struct *wq;
	struct qrnic_caps caps;
	/*
	 * Priority of packets with each DSCP, as set by the administrator (dcb
	 * app); 0 for the others. Written under RTNL, read in any context.
	 */
	u8 priority_of_dscp[QRNIC_DSCPS];
};

/*
 * Returns the options (QRNIC_QPO_*) that a connection of a device with these
 * limits may use.
 */
static inline u8 qrnic_qp_options(const struct qrnic_caps *caps)
{
	return (caps->capabilities & QRNIC_CAP_SELECTIVE_REPEAT ?
			QRNIC_QPO_SELECTIVE_REPEAT : 0) |
	       (caps->capabilities & QRNIC_CAP_ADAPTIVE_ROUTING ?
			QRNIC_QPO_ADAPTIVE_ROUTING : 0);
}

/*
 * Auxiliary device of the RDMA driver. The core allocates it; its release
 * function frees it.
 */
struct qrnic_auxdev {
	struct auxiliary_device adev;
	struct qrnic_dev *qdev;
	/* Result of the driver's probe, because the bus does not return it */
	int error;
};

/* Returns the adapter of an auxiliary device. */
static inline struct qrnic_dev *qrnic_dev_of_aux(struct auxiliary_device *adev)
{
	return container_of(adev, struct qrnic_auxdev, adev)->qdev;
}

/*
 * Records the result of the driver's probe. Called at the end of each probe, so
 * that the core can check the result, which the bus does not return.
 */
static inline void qrnic_aux_probed(struct auxiliary_device *adev, int error)
{
	container_of(adev, struct qrnic_auxdev, adev)->error = error;
}

/*
 * Returns the priority of packets with this traffic class, whose upper 6 bits
 * are the DSCP. Any context.
 */
static inline u8 qrnic_dscp_priority(const struct qrnic_dev *dev, u8 traffic_class)
{
	return READ_ONCE(dev->priority_of_dscp[traffic_class >> 2]);
}

/* Returns the device for the DMA API. */
static inline struct device *qrnic_dma_device(struct qrnic_dev *dev)
{
	return &dev->pdev->dev;
}

/* Returns the physical address of a doorbell page. */
static inline phys_addr_t qrnic_db_page_phys(struct qrnic_dev *dev, u32 page)
{
	return dev->db_phys + (phys_addr_t)page * QRNIC_DB_PAGE_SIZE;
}

/**
 * qrnic_healthy() - Checks if the device executes commands.
 * @dev: the adapter
 *
 * Context: Any.
 *
 * Return: false between a fatal error and the end of the reset that the
 * recovery makes; otherwise true. When it becomes true again, the auxiliary
 * device has been removed and the netdev has no queues. So no object from
 * before the reset is mistaken for a new one.
 */
bool qrnic_healthy(struct qrnic_dev *dev);

/**
 * qrnic_report_fatal() - Puts the adapter into the fatal state.
 * @dev: the adapter
 * @why: constant string for the log and devlink; kept by reference
 *
 * Resets the device, which ends its DMA, fails all commands in flight, and
 * schedules the recovery. Called if the driver cannot continue, for example
 * because the device does not destroy an object. Ignored if the adapter already
 * is in the fatal state.
 *
 * Context: Any.
 */
void qrnic_report_fatal(struct qrnic_dev *dev, const char *why);

/**
 * struct qrnic_cmd - One command
 * @opcode: operation
 * @object: number of the object, or 0 if the command creates it
 * @in: input in the format of the device, or NULL
 * @in_len: length of the input in bytes, at most QRNIC_CMD_MAILBOX
 * @out: buffer for the output in the format of the device, or NULL
 * @out_len: length of the output in bytes, at most QRNIC_CMD_MAILBOX
 * @result: result of the command, such as the number of a new object
 *
 * The core copies input and output to and from mailboxes. The caller sets all
 * in_len bytes of the input. If the command succeeds, the core writes all
 * out_len bytes of the output; otherwise it writes none.
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

/**
 * qrnic_cmd_exec() - Executes a command.
 * @dev: the adapter
 * @cmd: command; on success its output and result are set
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, or a negative errno from the status of the command
 * (QRNIC_CMD_STATUS_LIST). The error is -ETIMEDOUT if the device does not
 * complete the command; the adapter is in the fatal state then. The error is
 * -EIO if the adapter was in the fatal state or is down.
 */
int qrnic_cmd_exec(struct qrnic_dev *dev, struct qrnic_cmd *cmd);
/**
 * qrnic_cmd_destroy() - Executes a command that destroys, frees or clears an
 * object.
 * @dev: the adapter
 * @opcode: operation
 * @object: number of the object
 *
 * Logs each error other than -EBUSY, because callers handle an object that is
 * in use.
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0; in the fatal state also 0, because the reset has destroyed the
 * object. -EBUSY if another object uses this object. Otherwise as
 * qrnic_cmd_exec().
 */
int qrnic_cmd_destroy(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
		      u32 object);

/**
 * qrnic_cmd_create() - Executes a command that creates an object.
 * @dev: the adapter
 * @opcode: operation
 * @in: context of the object in the format of the device
 * @in_len: length of the context in bytes
 * @number: set to the number of the new object on success
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, or an error as qrnic_cmd_exec().
 */
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

/**
 * qrnic_cmd_set() - Executes a command that has input and no output.
 * @dev: the adapter
 * @opcode: operation
 * @object: number of the object
 * @in: input in the format of the device
 * @in_len: length of the input in bytes
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, or an error as qrnic_cmd_exec().
 */
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

/**
 * qrnic_cmd_query() - Executes a command that has output and no input.
 * @dev: the adapter
 * @opcode: operation
 * @object: number of the object
 * @out: buffer for the output in the format of the device
 * @out_len: length of the output in bytes
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, or an error as qrnic_cmd_exec().
 */
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

/*
 * Returns true if the driver knows the counters of the device. A device with
 * another number of counters also has them in another order.
 */
static inline bool qrnic_counters_known(const struct qrnic_dev *dev)
{
	return dev->caps.counters == QRNIC_NUM_COUNTERS;
}

/**
 * qrnic_cmd_query_counters() - Reads all counters of the device or of a counter
 * set.
 * @dev: the adapter
 * @opcode: QRNIC_CMD_QUERY_COUNTERS or QRNIC_CMD_QUERY_COUNTER_SET
 * @object: number of the counter set; 0 for traffic that is in no set
 * @values: array of QRNIC_NUM_COUNTERS values, set on success
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, -EOPNOTSUPP if the driver does not know the counters of the
 * device, or an error as qrnic_cmd_exec().
 */
int qrnic_cmd_query_counters(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
			     u32 object, u64 *values);

/**
 * qrnic_port_cached() - Copies the state of the port as the last event or query
 * left it.
 * @dev: the adapter
 * @port: set to the state
 *
 * Context: Process context or softirq. Does not sleep.
 */
void qrnic_port_cached(struct qrnic_dev *dev, struct qrnic_port *port);

/**
 * qrnic_clock_ns() - Reads the clock of the timestamps in CQEs.
 * @dev: the adapter
 *
 * Context: Any. Does not sleep.
 *
 * Return: the time in nanoseconds, or 0 without QRNIC_CAP_TIMESTAMP.
 */
u64 qrnic_clock_ns(struct qrnic_dev *dev);

/**
 * qrnic_num_vectors() - Returns the number of completion vectors.
 * @dev: the adapter
 *
 * Context: Any.
 *
 * Return: the number of completion vectors; 0 if the adapter is down.
 */
unsigned int qrnic_num_vectors(struct qrnic_dev *dev);

/**
 * struct qrnic_cq - CQ as the core sees it, embedded in the CQ of its user
 * @cqn: number of the CQ, set by qrnic_cq_create()
 * @vector: completion vector, 0 to qrnic_num_vectors() - 1
 * @comp: called for each completion event, in hard interrupt context
 * @event: called for each asynchronous event with an enum qrnic_cq_error as
 *   subtype, or NULL; called in a work item and may sleep
 *
 * The caller sets vector, comp and event before it creates the CQ. No callback
 * runs after qrnic_cq_destroy() has returned 0.
 */
struct qrnic_cq {
	u32 cqn;
	unsigned int vector;
	void (*comp)(struct qrnic_cq *cq);
	void (*event)(struct qrnic_cq *cq, u8 subtype);
};

/**
 * qrnic_cq_create() - Creates a CQ and connects it to its completion vector.
 * @dev: the adapter
 * @cq: CQ whose vector, comp and event are set; its cqn is set on success
 * @ctx: context of the CQ; the function sets its member eqn
 *
 * The caller arms the CQ afterwards, because events before that have no
 * receiver.
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, -EINVAL if the vector does not exist, -ENOMEM, or an error as
 * qrnic_cmd_exec().
 */
int qrnic_cq_create(struct qrnic_dev *dev, struct qrnic_cq *cq,
		    struct qrnic_cq_ctx *ctx);
/**
 * qrnic_cq_destroy() - Destroys a CQ and waits for the end of its callbacks.
 * @dev: the adapter
 * @cq: the CQ
 *
 * Context: Process context. Sleeps. The callbacks comp and event must not call
 * this function, because it waits for them.
 *
 * Return: 0, or -EBUSY if a queue pair uses the CQ, or another error as
 * qrnic_cmd_exec(). On an error the CQ still exists.
 */
int qrnic_cq_destroy(struct qrnic_dev *dev, struct qrnic_cq *cq);

/**
 * struct qrnic_event_ops - Callbacks of the RDMA driver for asynchronous events
 * @qp_event: event of a queue pair other than those of the Ethernet function
 * @srq_event: event of an SRQ
 * @port_event: change of the port; qrnic_port_cached() has its new state
 * @fatal: the adapter is in the fatal state, so no CQE comes any more; called
 *   once or several times before the core removes the auxiliary device
 * @page_fault: a queue pair waits for a page (manual, Paging on demand); number
 *   identifies the page fault in commands
 *
 * Each callback may be NULL. One work item on event_wq delivers the events one
 * after the other; another one on wq delivers the page faults. The callbacks
 * may sleep and execute commands. Callbacks must not call qrnic_cq_destroy(),
 * qrnic_unregister_event_handler() or qrnic_flush_events(), because these wait
 * for the callbacks. All but page_fault must not take RTNL, because its holder
 * may wait for the work item, and must not allocate memory with GFP_KERNEL (see
 * event_wq).
 */
struct qrnic_event_ops {
	void (*qp_event)(void *context, u32 qpn, enum qrnic_event type, u8 subtype);
	void (*srq_event)(void *context, u32 srqn, enum qrnic_event type, u8 subtype);
	void (*port_event)(void *context);
	void (*fatal)(void *context);
	void (*page_fault)(void *context, u32 number);
};

/**
 * qrnic_register_event_handler() - Registers the callbacks for asynchronous
 * events.
 * @dev: the adapter
 * @ops: callbacks; kept by reference
 * @context: first argument of each callback
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, or -EBUSY if callbacks are registered already.
 */
int qrnic_register_event_handler(struct qrnic_dev *dev,
				 const struct qrnic_event_ops *ops, void *context);
/**
 * qrnic_unregister_event_handler() - Unregisters the callbacks and waits for
 * their end.
 * @dev: the adapter
 *
 * Context: Process context. Sleeps. Callbacks must not call this function.
 */
void qrnic_unregister_event_handler(struct qrnic_dev *dev);
/**
 * qrnic_flush_events() - Waits until every event that the device has written is
 * delivered.
 * @dev: the adapter
 *
 * To free a queue pair, the caller first removes it from the table that qp_event
 * searches, and then calls this function. Returns early in the fatal state, or
 * after one second without an interrupt.
 *
 * Context: Process context. Sleeps. Callbacks must not call this function.
 */
void qrnic_flush_events(struct qrnic_dev *dev);

/*
 * Translation tables (manual, Memory keys). A table has the bus address of each
 * page of a region or ring. The caller allocates a table for a known number of
 * pages, adds the address of each page in order, and copies table->hw into a
 * context. A table of a single page has level 0: hw has the address of the
 * first byte itself.
 */
/* Returns the member shape of struct qrnic_translation. */
static inline __le32 qrnic_table_shape(unsigned int levels, unsigned int page_shift)
{
	return cpu_to_le32(FIELD_PREP(QRNIC_TRANSLATION_LEVELS_MASK, levels) |
			   FIELD_PREP(QRNIC_TRANSLATION_PAGE_SHIFT_MASK,
				      page_shift));
}

/* Page list: QRNIC_PAGE_LIST_ENTRIES bus addresses in coherent memory */
struct qrnic_table_list {
	__le64 *entries;
	dma_addr_t dma;
};

/**
 * struct qrnic_table - Translation table
 * @hw: translation for a context; complete when all pages have been added
 * @pages: number of pages that the caller will add
 * @added: number of pages that the caller has added
 * @offset: offset of the first byte in the first page
 * @num_lists: number of page lists
 * @lists: page lists; those of level 1 first, then level 2, then level 3
 *
 * The caller serialises all calls for a table.
 */
struct qrnic_table {
	struct qrnic_translation hw;
	u64 pages;
	u64 added;
	u32 offset;
	u32 num_lists;
	struct qrnic_table_list *lists;
};

/**
 * qrnic_table_alloc() - Allocates a translation table.
 * @dev: the adapter
 * @table: table to initialise
 * @pages: number of pages
 * @page_shift: log2 of the size of a page in bytes
 * @offset: offset of the first byte in the first page
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, -EINVAL if the device supports no table of this size, or -ENOMEM.
 * After an error the table needs no qrnic_table_free().
 */
int qrnic_table_alloc(struct qrnic_dev *dev, struct qrnic_table *table, u64 pages,
		      unsigned int page_shift, u32 offset);
/**
 * qrnic_table_add() - Adds the next page to a translation table.
 * @table: table that has fewer pages than it was allocated for
 * @address: bus address of the page
 *
 * Context: Any.
 */
void qrnic_table_add(struct qrnic_table *table, dma_addr_t address);
/**
 * qrnic_table_free() - Frees a translation table.
 * @dev: the adapter
 * @table: table that no object uses any more
 *
 * The caller destroys the object that uses the table first, because the device
 * reads the page lists until then.
 *
 * Context: Process context. Sleeps.
 */
void qrnic_table_free(struct qrnic_dev *dev, struct qrnic_table *table);

/*
 * Rings of kernel queues: zeroed coherent memory, and its translation for the
 * context of the queue. A large ring consists of chunks. The page allocator can
 * provide a chunk even if memory is fragmented (PAGE_ALLOC_COSTLY_ORDER with 4
 * KiB pages). No CQE, EQE or basic block crosses the end of a chunk. All queues
 * but EQs have a doorbell record: 8 zeroed bytes in a cache line of their own.
 */
#define QRNIC_RING_CHUNK_SHIFT 15
#define QRNIC_RING_CHUNK BIT(QRNIC_RING_CHUNK_SHIFT)

/* Chunk of a ring, in coherent memory */
struct qrnic_ring_chunk {
	void *buf;
	dma_addr_t dma;
};

/**
 * struct qrnic_ring - Ring and doorbell record of a queue
 * @chunks: chunks of the ring
 * @num_chunks: number of chunks that are allocated
 * @chunk_bytes: size of each chunk in bytes; a ring of one chunk may be smaller
 * @table: translation table of the chunks
 * @hw: translation for the context of the queue
 * @queue_record: doorbell record of an SQ, RQ or SRQ; NULL if there is none
 * @cq_record: doorbell record of a CQ
 * @record_dma: bus address of the doorbell record
 */
struct qrnic_ring {
	struct qrnic_ring_chunk *chunks;
	u32 num_chunks;
	size_t chunk_bytes;
	struct qrnic_table table;
	struct qrnic_translation hw;
	union {
		struct qrnic_queue_record *queue_record;
		struct qrnic_cq_record *cq_record;
	};
	dma_addr_t record_dma;
};

/*
 * Sparse translation tables, for regions with QRNIC_MKEYF_ON_DEMAND. A page
 * list exists only while it has entries or users; the root list always exists.
 * hw is for the context of the key.
 *
 * The functions are called in this order. qrnic_sparse_get() pins the list of a
 * page. qrnic_sparse_set() writes an entry. qrnic_sparse_put() unpins the list.
 * Later qrnic_sparse_unlink() removes empty lists from the table. The caller
 * then executes INVALIDATE_PAGES for all pages below the removed lists,
 * including pages that never had an entry. This is needed because the device
 * may cache pointers to the lists. At last qrnic_sparse_lists_free() frees the
 * lists.
 *
 * The mutex protects the structure of the table and the counts of users. Memory
 * is allocated under the mutex, so MMU notifiers, which free pages, must not
 * take it. Notifiers call only qrnic_sparse_set(), which finds lists under RCU.
 * The caller serialises calls of qrnic_sparse_set() for pages of the same list.
 * A list with entries or users is never freed.
 */
/* Page list of a sparse table */
struct qrnic_sparse_list {
	__le64 *entries;
	dma_addr_t dma;
	/*
	 * Lists of the next lower level, one for each entry; NULL if the
	 * entries are pages. Written under the mutex, read under RCU.
	 */
	struct qrnic_sparse_list **lower;
	/* List of the next higher level; NULL for the root */
	struct qrnic_sparse_list *upper;
	/* Number of the first page that the list covers */
	u64 first;
	u32 present;		/* number of entries that are not 0 */
	/*
	 * Number of qrnic_sparse_get() without qrnic_sparse_put(); under the
	 * mutex
	 */
	u32 users;
	/* Entry of table->empty or of the list of unlinked lists */
	struct list_head link;
	/* Owner, for the caller between unlink() and lists_free() */
	void *owner;
};

/*
 * Limit on the page lists of one user of the device, over all tables of this
 * user
 */
struct qrnic_sparse_budget {
	atomic_t used;
	int limit;
};

struct qrnic_sparse_table {
	struct qrnic_translation hw;
	unsigned int levels;
	/* Protects the structure and the counts of users */
	struct mutex mutex;
	struct qrnic_sparse_list *root;
	struct qrnic_sparse_budget *budget;
	u32 num_lists;
	/*
	 * Protects the list empty, and the transition of members present to 0
	 */
	spinlock_t lock;
	/* Lists that had no entry at some time; some may have entries again */
	struct list_head empty;
};

/**
 * qrnic_sparse_charge() - Charges a number of page lists to a budget.
 * @budget: the budget
 * @lists: number of lists
 *
 * Context: Any.
 *
 * Return: true if the budget had as many lists left; otherwise nothing is
 * charged.
 */
bool qrnic_sparse_charge(struct qrnic_sparse_budget *budget, int lists);
/* Returns a number of charged page lists to the budget. Any context. */
void qrnic_sparse_uncharge(struct qrnic_sparse_budget *budget, int lists);

/**
 * qrnic_sparse_alloc() - Initialises a sparse table and allocates its root
 * list.
 * @dev: the adapter
 * @table: table to initialise
 * @budget: budget of all lists of the table; must outlive the table
 * @pages: number of pages of the region
 * @page_shift: log2 of the size of a page in bytes
 * @offset: offset of the first byte in the first page
 *
 * All lists are charged to the budget and to the memory cgroup of the caller.
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, -EINVAL if the region is too large for a table, or -ENOMEM.
 */
int qrnic_sparse_alloc(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
		       struct qrnic_sparse_budget *budget, u64 pages,
		       unsigned int page_shift, u32 offset);
/**
 * qrnic_sparse_get() - Pins the page list that has the entry of a page.
 * @dev: the adapter
 * @table: the table
 * @page: number of the page
 *
 * Allocates the list, and the lists above it, if they do not exist.
 *
 * Context: Process context, under the mutex of the table. Sleeps, and may
 * reclaim memory.
 *
 * Return: the list, or NULL if the memory or the budget does not suffice.
 */
struct qrnic_sparse_list *qrnic_sparse_get(struct qrnic_dev *dev,
					   struct qrnic_sparse_table *table, u64 page);
/**
 * qrnic_sparse_put() - Unpins a page list.
 * @table: the table
 * @list: list from qrnic_sparse_get()
 *
 * Context: Process context, under the mutex of the table.
 *
 * Return: true if the list is empty and without users, so that the caller
 * should call qrnic_sparse_unlink().
 */
bool qrnic_sparse_put(struct qrnic_sparse_table *table,
		      struct qrnic_sparse_list *list);
/**
 * qrnic_sparse_set() - Writes the entry of a page.
 * @table: the table
 * @page: number of the page
 * @entry: new entry; 0 makes the page absent
 * @emptied: set to true if the list has no entry any more; else unchanged
 *
 * If the page list does not exist, the page stays absent.
 *
 * Context: Any in which RCU may be read. The caller serialises calls for pages
 * of the same list.
 *
 * Return: true if the page had an entry before.
 */
bool qrnic_sparse_set(struct qrnic_sparse_table *table, u64 page, u64 entry,
		      bool *emptied);
/**
 * qrnic_sparse_unlink() - Removes all lists without entries and users from the
 * table.
 * @table: the table
 * @unlinked: list to which the removed lists are added, lower levels first
 *
 * Context: Process context, under the mutex of the table.
 */
void qrnic_sparse_unlink(struct qrnic_sparse_table *table,
			 struct list_head *unlinked);
/**
 * qrnic_sparse_lists_free() - Frees page lists that were removed from a table.
 * @dev: the adapter
 * @table: table that had the lists
 * @unlinked: lists from qrnic_sparse_unlink()
 *
 * The caller executes INVALIDATE_PAGES for the pages of the lists first, because
 * the device may have cached the lists.
 *
 * Context: Process context. Sleeps, because it waits for callers of
 * qrnic_sparse_set().
 */
void qrnic_sparse_lists_free(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
			     struct list_head *unlinked);
/**
 * qrnic_sparse_free() - Frees all lists of a table.
 * @dev: the adapter
 * @table: table whose key has been destroyed
 *
 * Context: Process context. Sleeps.
 */
void qrnic_sparse_free(struct qrnic_dev *dev, struct qrnic_sparse_table *table);

/*
 * Returns the address of a byte in a ring. An object at this address is
 * contiguous up to the end of its chunk.
 */
static inline void *qrnic_ring_at(const struct qrnic_ring *ring, size_t offset)
{
	return ring->chunks[offset >> QRNIC_RING_CHUNK_SHIFT].buf +
	       (offset & (QRNIC_RING_CHUNK - 1));
}

/**
 * qrnic_ring_alloc() - Allocates a ring without a doorbell record, and its
 * table.
 * @dev: the adapter
 * @ring: ring to initialise
 * @bytes: size in bytes
 *
 * Context: Process context. Sleeps.
 *
 * Return: 0, -EINVAL if bytes is 0 or too large, or -ENOMEM.
 */
int qrnic_ring_alloc(struct qrnic_dev *dev, struct qrnic_ring *ring, size_t bytes);
/**
 * qrnic_queue_ring_alloc() - Allocates a ring with a doorbell record, and its
 * table.
 * @dev: the adapter
 * @ring: ring to initialise
 * @bytes: size in bytes
 *
 * Context: Process context. Sleeps.
 *
 * Return: as qrnic_ring_alloc().
 */
int qrnic_queue_ring_alloc(struct qrnic_dev *dev, struct qrnic_ring *ring,
			   size_t bytes);
/**
 * qrnic_ring_free() - Frees a ring, its table and its doorbell record.
 * @dev: the adapter
 * @ring: ring whose queue has been destroyed; an all-zero ring is ignored
 *
 * Context: Process context. Sleeps.
 */
void qrnic_ring_free(struct qrnic_dev *dev, struct qrnic_ring *ring);

/*
 * Returns true if the device has written the entry with this index of a CQ or
 * EQ. The argument phase is the mask of the phase bit in the control word. The
 * device writes the bit as 1 in its first pass through the ring, when bit
 * log_size of the index is 0. The value alternates with each pass.
 */
static inline bool qrnic_entry_written(const __le32 *control, u32 phase, u32 index,
				       u32 log_size)
{
	bool set = le32_to_cpu(READ_ONCE(*control)) & phase;

	return set == !(index >> log_size & 1);
}

/* Returns the address of the CQE with this index. */
static inline struct qrnic_cqe *qrnic_cqe_at(const struct qrnic_ring *ring, u32 index,
					     u32 log_size)
{
	index &= BIT(log_size) - 1;
	return qrnic_ring_at(ring, (size_t)QRNIC_CQE_SIZE * index);
}

/* Returns true if the device has written the CQE with this index. */
static inline bool qrnic_cqe_written(const struct qrnic_ring *ring, u32 index,
				     u32 log_size)
{
	return qrnic_entry_written(&qrnic_cqe_at(ring, index, log_size)->control,
				   QRNIC_CQE_PHASE_MASK, index, log_size);
}

/*
 * Copies a CQE that the device has written. Returns false if it is not written.
 * Callers use only the copy, because a device that is not trusted can change
 * the CQE at any time.
 */
static inline bool qrnic_cqe_take(const struct qrnic_ring *ring, u32 index,
				  u32 log_size, struct qrnic_cqe *copy)
{
	if (!qrnic_cqe_written(ring, index, log_size))
		return false;
	/*
	 * The device writes the phase last, so the rest of the CQE is valid if
	 * the read of the phase comes first.
	 */
	dma_rmb();
	*copy = *qrnic_cqe_at(ring, index, log_size);
	/*
	 * The barrier is needed, because otherwise the compiler could read the
	 * ring again in place of the copy.
	 */
	barrier();
	return true;
}

/* Allows the device to overwrite the CQEs before the index consumer. */
static inline void qrnic_cq_consume(const struct qrnic_ring *ring, u32 consumer)
{
	/*
	 * The barrier is needed, because otherwise the device could overwrite a
	 * CQE before the driver has read the CQE.
	 */
	dma_mb();
	WRITE_ONCE(ring->cq_record->consumer, cpu_to_le32(consumer));
}

/*
 * Publishes a producer index in a doorbell record. To post, a caller writes
 * WQEs into the ring, calls this function, and then calls
 * qrnic_ring_doorbell(). The barrier is needed because the device may read the
 * record at any time, for an earlier doorbell or after a lost one. The device
 * must then find every WQE before the index.
 */
static inline void qrnic_record_publish(__le32 *record, u32 value)
{
	dma_wmb();
	WRITE_ONCE(*record, cpu_to_le32(value));
}

/*
 * Publishes a producer index in the record of an SQ; old is the producer index
 * before the new WQEs. Returns true if the device needs a doorbell. An SQ with
 * an event index needs one only if the device has stopped reading the record at
 * an index from old to producer - 1. The indices are counters modulo 2^32
 * (manual, section "Event index").
 */
static inline bool qrnic_sq_record_publish(const struct qrnic_dev *dev,
					   struct qrnic_queue_record *record,
					   u32 old, u32 producer)
{
	u32 event;

	qrnic_record_publish(&record->producer, producer);
	if (!(dev->caps.capabilities & QRNIC_CAP_EVENT_INDEX))
		return true;
	/*
	 * The barrier keeps the load behind the store. Otherwise the device
	 * could write the event index after the load, and read the record
	 * before the store. The WQEs would then wait for a doorbell forever.
	 */
	dma_mb();
	event = le32_to_cpu(READ_ONCE(record->event));
	return producer - event - 1 < producer - old;
}

/*
 * Rings a doorbell through page 0, the doorbell page of the kernel. The offset
 * is QRNIC_DB_SQ, QRNIC_DB_RQ, QRNIC_DB_SRQ or QRNIC_DB_CQ_ARM. The arguments
 * number and index are the members of struct qrnic_doorbell. In it writeq()
 * orders earlier stores to coherent memory before the MMIO write, so the device
 * finds the new doorbell record.
 */
static inline void qrnic_ring_doorbell(struct qrnic_dev *dev, u32 offset,
				       u32 number, u32 index)
{
	writeq((u64)index << 32 | number, dev->db + offset);
}

#endif /* QRNIC_CORE_H */
