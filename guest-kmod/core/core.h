/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * core.h: the adapter as the core and the Ethernet part see it. Private to
 * qrnic.ko.
 */
#ifndef QRNIC_CORE_INTERNAL_H
#define QRNIC_CORE_INTERNAL_H

#include <linux/bitfield.h>
#include <linux/completion.h>
#include <linux/kfifo.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "qrnic_core.h"

/*
 * Commands in flight, and room for the input or output of any one of them. The
 * mailboxes belong to the slots, so that a late answer to a command that timed
 * out finds memory that nobody else got meanwhile.
 */
#define QRNIC_CMD_LOG_ENTRIES 5
#define QRNIC_CMD_ENTRIES BIT(QRNIC_CMD_LOG_ENTRIES)
#define QRNIC_CMD_MAILBOX 2048u

/* Bound of the number of objects of a kind, more than any valid device has */
#define QRNIC_OBJECTS_MAX BIT(20)

struct qrnic_cmd_slot {
	struct completion done;
	u16 token;
	bool busy;
};

struct qrnic_cmd_queue {
	struct qrnic_cmd_entry *ring;
	dma_addr_t ring_dma;
	u8 *mailboxes;		/* two for each slot: input, output */
	dma_addr_t mailboxes_dma;

	spinlock_t lock;	/* everything below; taken in interrupts, too */
	wait_queue_head_t wait;	/* for a free slot, and for the last one to leave */
	u32 producer;
	u32 in_flight;
	u16 token;
	u32 poll_us;		/* spent polling for a completion before waiting; debugfs */
	bool enabled;
	bool events;		/* completion by event; before the async EQ: polled */
	bool ask;		/* for the event, once the command is late; else always */
	struct qrnic_cmd_slot slots[QRNIC_CMD_ENTRIES];
};

struct qrnic_core;

struct qrnic_eq {
	struct qrnic_core *core;
	u32 eqn;
	int irq;
	u32 consumer;
	u32 log_size;
	bool spread;	/* over the processors, once */
	struct qrnic_ring ring;
	char name[40];
};

struct qrnic_async_event {
	u32 object;
	u32 data;
	u8 type;
	u8 subtype;
};

/* How far the adapter is up */
enum qrnic_level {
	QRNIC_DOWN,
	QRNIC_UP_NO_RDMA,	/* the auxiliary device is due */
	QRNIC_UP,
};

/* What is wrong with the device */
enum qrnic_condition {
	QRNIC_GOOD,
	QRNIC_FATAL,		/* reset by the driver; waits for recovery, as the next two */
	QRNIC_GONE,		/* unplugged or out of reach: not even a reset */
	QRNIC_PCI_ERROR,	/* the PCI core leads the way */
};

/*
 * What uses the adapter within this module, by which the core calls it; the
 * Ethernet part. create sets dev.netdev before anybody can hear of the netdev,
 * destroy clears it. The last two may come at any time in between and before.
 */
struct qrnic_function_ops {
	int (*create)(struct qrnic_core *core);
	void (*destroy)(struct qrnic_core *core);
	/* The device goes down for a while, and is up again. */
	void (*suspend)(struct qrnic_core *core);
	int (*resume)(struct qrnic_core *core);
	/* Of the fatal state, before suspend(), which may wait long for RDMA's users */
	void (*fatal)(struct qrnic_core *core);
	/* core->port has been queried; under port_mutex, without RTNL */
	void (*port_update)(struct qrnic_core *core);
	/* False if the QP is not the function's */
	bool (*qp_event)(struct qrnic_core *core, u32 qpn, enum qrnic_event type);
};

/* What the registers said when the fatal state was found, or say now */
struct qrnic_crash {
	const char *why;
	u32 status;
	u32 health;
	u32 info;
};

/* congestion.c: what users have set of congestion control, and a file for each */
#define QRNIC_CC_PARAMS 23

struct qrnic_cc_file {
	struct qrnic_core *core;
	unsigned int index;
};

struct qrnic_congestion {
	u32 wanted;		/* a bit for each of values that a user has set */
	u32 values[QRNIC_CC_PARAMS];
	struct qrnic_cc_file files[QRNIC_CC_PARAMS];
};

struct qrnic_core {
	struct qrnic_dev dev;
	const struct qrnic_function_ops *function;
	void __iomem *regs;
	struct dma_pool *records;
	struct qrnic_cmd_queue cmd;

	/* EQ 0 has the asynchronous events, EQ 1 + n those of completion vector n */
	struct qrnic_eq *eqs;
	unsigned int num_eqs;
	unsigned int num_irqs;
	/* Page faults; on the vector of the asynchronous EQ. core NULL: there is none */
	struct qrnic_eq fault_eq;
	struct work_struct fault_work;
	struct qrnic_ring contexts;	/* without chunks: the device has none */
	struct xarray cqs;	/* cqn to struct qrnic_cq; read in interrupts */

	/* written by the interrupt of the async EQ, read by event_work alone */
	DECLARE_KFIFO_PTR(async, struct qrnic_async_event);
	void *async_buffer;
	struct work_struct event_work;
	/*
	 * Either lock allows reading handler and handler_context; writing needs both. The
	 * page faults have a lock of their own because their handler allocates memory, and
	 * event_work must not wait for that.
	 */
	struct mutex fault_lock;	/* before handler_lock */
	struct mutex handler_lock;
	const struct qrnic_event_ops *handler;
	void *handler_context;

	struct mutex port_mutex;	/* a query, and all that follows from it */
	spinlock_t port_lock;	/* port, for those that cannot sleep */
	struct qrnic_port port;
	spinlock_t clock_lock;	/* a read of TIME_LO latches TIME_HI */

	struct mutex lock;	/* going up and down: level, auxdev, netdev, congestion */
	enum qrnic_level level;
	struct qrnic_auxdev *auxdev;
	struct qrnic_congestion congestion;
	struct dentry *debugfs;

	spinlock_t fatal_lock;	/* the reset that a fatal error causes; these two */
	enum qrnic_condition condition;
	bool may_recover;	/* not in probe and remove, nor when others do it */
	struct qrnic_crash crash;	/* the last one; under fatal_lock */
	bool crash_unreported;		/* to devlink */
	struct devlink_health_reporter *reporter;
	unsigned long last_recovery;
	unsigned long recovery_delay;	/* after the next one that fails */
	struct delayed_work recovery_work;
	struct pci_saved_state *saved_state;	/* without DMA */
	struct delayed_work health_work;
	atomic_t late_command_events;	/* commands found done before their event */
};

static inline struct qrnic_core *to_qrnic_core(struct qrnic_dev *dev)
{
	return container_of(dev, struct qrnic_core, dev);
}

static inline u32 qrnic_read(struct qrnic_core *core, u32 reg)
{
	return readl(core->regs + reg);
}

static inline void qrnic_write(struct qrnic_core *core, u32 reg, u32 value)
{
	writel(value, core->regs + reg);
}

/* Returns the offset of the input or output mailbox of a slot. */
static inline size_t qrnic_cmd_mailbox(u32 index, bool out)
{
	return (size_t)(2 * index + out) * QRNIC_CMD_MAILBOX;
}

/* command_ring.c: state.c and pci.c control the ring, event.c passes completions on */
int qrnic_cmd_alloc(struct qrnic_core *core);
void qrnic_cmd_free(struct qrnic_core *core);
void qrnic_cmd_start(struct qrnic_core *core);
void qrnic_cmd_stop(struct qrnic_core *core);
void qrnic_cmd_abort(struct qrnic_core *core);
void qrnic_cmd_use_events(struct qrnic_core *core, bool events);
void qrnic_cmd_event(struct qrnic_core *core, u32 entry, u16 token);
/* For command.c, in this order */
int qrnic_cmd_submit(struct qrnic_core *core, const struct qrnic_cmd *cmd);
bool qrnic_cmd_completed(struct qrnic_cmd_queue *queue, u32 index, u32 *control);
bool qrnic_cmd_poll(struct qrnic_cmd_queue *queue, u32 index, u32 *control);
void qrnic_cmd_request_event(struct qrnic_core *core, u32 index);
void qrnic_cmd_release(struct qrnic_core *core, u32 index, bool withhold);

/* commands.c: the adapter as a whole */
int qrnic_cmd_query_device(struct qrnic_dev *dev, struct qrnic_caps *caps);
int qrnic_caps_check(struct qrnic_core *core);
int qrnic_cmd_query_port(struct qrnic_dev *dev, struct qrnic_port *port);
int qrnic_cmd_modify_port(struct qrnic_dev *dev, u32 mtu, bool admin_up);
/* Context memory: from after QUERY_DEVICE until after the reset */
void qrnic_contexts_start(struct qrnic_core *core);
void qrnic_contexts_stop(struct qrnic_core *core);

/* event.c: event queues and the delivery of events */
void qrnic_events_init(struct qrnic_core *core);
int qrnic_eqs_create(struct qrnic_core *core);
void qrnic_eqs_destroy(struct qrnic_core *core);
int qrnic_port_update(struct qrnic_core *core);

/* congestion.c: restores the parameters after a reset; files of debugfs */
void qrnic_congestion_restore(struct qrnic_core *core);
void qrnic_debugfs_add(struct qrnic_core *core);
void qrnic_debugfs_del(struct qrnic_core *core);
void qrnic_debugfs_init(void);
void qrnic_debugfs_exit(void);

/* fatal.c: the fatal state, and the health registers */
void qrnic_fatal_init(struct qrnic_core *core);
const char *qrnic_health_cause(u32 health);
void qrnic_crash_read(struct qrnic_core *core, struct qrnic_crash *crash);
void qrnic_health_check(struct qrnic_core *core);
void qrnic_health_start(struct qrnic_core *core);
void qrnic_health_stop(struct qrnic_core *core);

/* state.c: brings the adapter up and down */
int qrnic_bring_up(struct qrnic_core *core);
void qrnic_take_down(struct qrnic_core *core);
void qrnic_suspend(struct qrnic_core *core);
int qrnic_resume(struct qrnic_core *core);
/* With the lock held, for recovery.c */
void qrnic_suspend_locked(struct qrnic_core *core);
int qrnic_resume_locked(struct qrnic_core *core);

/* The least time between two recoveries of a device that fails again at once */
#define QRNIC_RECOVERY_INTERVAL (5 * HZ)

/* recovery.c: recovery, and down and up for resets that others control */
void qrnic_recovery_init(struct qrnic_core *core);
int qrnic_recover(struct qrnic_core *core);
int qrnic_recover_ordered(struct qrnic_core *core);
void qrnic_recovery_enable(struct qrnic_core *core);
void qrnic_recovery_disable(struct qrnic_core *core);
void qrnic_recovery_suspend(struct qrnic_core *core);
void qrnic_down(struct qrnic_core *core);
int qrnic_up(struct qrnic_core *core);
void qrnic_await_pci(struct qrnic_core *core);
/* Restores the configuration space as it was in probe; DMA stays off */
int qrnic_config_restore(struct qrnic_core *core);

/* pci.c: the function registers with the core, which then probes devices */
int qrnic_register(const struct qrnic_function_ops *function);
void qrnic_unregister(void);

/* devlink.c: the adapter as a devlink instance */
struct qrnic_core *qrnic_devlink_alloc(struct pci_dev *pdev);
void qrnic_devlink_free(struct qrnic_core *core);
void qrnic_devlink_register(struct qrnic_core *core);
void qrnic_devlink_unregister(struct qrnic_core *core);

#endif /* QRNIC_CORE_INTERNAL_H */
