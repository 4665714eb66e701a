/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * core.h: the adapter as the core and the Ethernet function see it. Private to
 * qrnic.ko; other modules include qrnic_core.h only.
 *
 * struct qrnic_core has all state of an adapter. pci.c allocates it in probe
 * and frees it in remove. The declarations below are grouped by file. At probe
 * pci.c calls state.c, which starts the command ring, the event queues and the
 * function. When the device fails, fatal.c resets it and recovery.c starts it
 * again.
 *
 * Order of locks: sriov_lock of the physical function, the lock of the devlink
 * instance, core->lock, RTNL, port_mutex, and then the spinlocks. A recovery
 * already holds core->lock, so it must not wait for sriov_lock, and uses
 * mutex_trylock(). Other orders are fault_lock before handler_lock, and
 * fatal_lock before the lock of the command queue.
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
 * Entries of the command ring, and the size of a mailbox in bytes. A mailbox
 * has room for the input or output of any command. Each slot has two mailboxes
 * for ever. So if a command timed out, a late completion by the device writes
 * into memory that has no other use.
 */
#define QRNIC_CMD_LOG_ENTRIES 5
#define QRNIC_CMD_ENTRIES BIT(QRNIC_CMD_LOG_ENTRIES)
#define QRNIC_CMD_MAILBOX 2048u

/*
 * Upper bound of the number of objects of one type, more than any valid device
 * has
 */
#define QRNIC_OBJECTS_MAX BIT(20)

/* State of one entry of the command ring; under the lock of the queue */
struct qrnic_cmd_slot {
	/*
	 * Completed by the event of the command, or when the queue is aborted
	 */
	struct completion done;
	/*
	 * Token of the command in the entry; an event with another token is old
	 */
	u16 token;
	/*
	 * True while a command has the slot, or if the slot is withheld after a
	 * timeout
	 */
	bool busy;
};

/* Command queue of the adapter */
struct qrnic_cmd_queue {
	struct qrnic_cmd_entry *ring;
	dma_addr_t ring_dma;
	u8 *mailboxes;		/* mailboxes: input and output for each slot */
	dma_addr_t mailboxes_dma;

	/* Protects all members below; taken in interrupts, too */
	spinlock_t lock;
	/* Waiters for a free slot, and qrnic_cmd_stop() */
	wait_queue_head_t wait;
	/* Index of the next entry to fill; counts without end */
	u32 producer;
	/* Number of commands that have a slot */
	u32 in_flight;
	/* Token of the newest command */
	u16 token;
	/*
	 * Time to poll for a completion before waiting, in microseconds; a file
	 * of debugfs
	 */
	u32 poll_us;
	/* True while the device accepts commands */
	bool enabled;
	/*
	 * True if completions are reported by events, otherwise the driver
	 * polls
	 */
	bool events;
	/*
	 * True if the driver requests the event only when a command is late;
	 * otherwise each command requests it
	 */
	bool ask;
	struct qrnic_cmd_slot slots[QRNIC_CMD_ENTRIES];
};

struct qrnic_core;

/* Event queue */
struct qrnic_eq {
	struct qrnic_core *core;
	/* Number of the event queue in commands and doorbells */
	u32 eqn;
	/* Linux interrupt number of its vector */
	int irq;
	/*
	 * Index of the next EQE to read; written only by the handler of this
	 * queue
	 */
	u32 consumer;
	u32 log_size;
	/* True once the driver has assigned the vector to a processor */
	bool spread;
	struct qrnic_ring ring;
	/* Name of the interrupt in /proc/interrupts */
	char name[40];
	/* Protects the doorbell against the reset in fatal.c */
	spinlock_t lock;
};

/* Asynchronous event, as the interrupt handler passes it to event_work */
struct qrnic_async_event {
	u32 object;
	u32 data;
	u8 type;
	u8 subtype;
};

/* Parts of the adapter that are up */
enum qrnic_level {
	/* Nothing is up; the device may be in the fatal state. */
	QRNIC_DOWN,
	/*
	 * The device and the Ethernet function are up; the auxiliary device is
	 * missing.
	 */
	QRNIC_UP_NO_RDMA,
	/* All parts are up. */
	QRNIC_UP,
};

/* Condition of the device. Each condition but the first is the fatal state. */
enum qrnic_condition {
	/* The device executes commands. */
	QRNIC_GOOD,
	/* The driver has reset the device; recovery is pending. */
	QRNIC_FATAL,
	/*
	 * The device was reset by another party, which may have cleared its
	 * configuration space, too; recovery is pending and restores the space.
	 */
	QRNIC_UNCONFIGURED,
	/* The device does not respond, even to a reset; recovery is pending. */
	QRNIC_GONE,
	/* The PCI core handles an error and will call the driver. */
	QRNIC_PCI_ERROR,
};

/*
 * Operations of the function, the part of this module that uses the adapter
 * (the Ethernet interface). The core calls create once, then suspend and resume
 * in turns, and destroy at last. The operation create sets dev.netdev before
 * another part can find the netdev; destroy clears it. The operations fatal,
 * port_update and qp_event may come at any time, also before create.
 */
struct qrnic_function_ops {
	/*
	 * Creates the netdev. The device is up. Returns 0 or a negative errno.
	 */
	int (*create)(struct qrnic_core *core);
	/* Removes the netdev. The device may be up or down. */
	void (*destroy)(struct qrnic_core *core);
	/*
	 * Closes the queues before the device goes down, and opens them again
	 * after its start. resume returns 0 or a negative errno.
	 */
	void (*suspend)(struct qrnic_core *core);
	int (*resume)(struct qrnic_core *core);
	/*
	 * Reports the fatal state. Called from event_work before suspend,
	 * because suspend may wait long for users of RDMA. The operation must
	 * not take RTNL.
	 */
	void (*fatal)(struct qrnic_core *core);
	/*
	 * Applies the new core->port. Called under port_mutex, and must not
	 * take RTNL.
	 */
	void (*port_update)(struct qrnic_core *core);
	/*
	 * Handles an event of a queue pair. Returns false if the queue pair is
	 * not one of the function.
	 */
	bool (*qp_event)(struct qrnic_core *core, u32 qpn, enum qrnic_event type);
};

/* Description of a failure, read from the registers */
struct qrnic_crash {
	/* Reason by which the driver found the failure; a constant string */
	const char *why;
	/* Values of the registers STATUS, HEALTH and HEALTH_INFO */
	u32 status;
	u32 health;
	u32 info;
};

/*
 * Number of parameters of congestion control, each a file of debugfs
 * (congestion.c)
 */
#define QRNIC_CC_PARAMS 23

/*
 * Private data of a file of debugfs: the adapter, and the index of the
 * parameter
 */
struct qrnic_cc_file {
	struct qrnic_core *core;
	unsigned int index;
};

/*
 * Values of congestion control that users have written, to be restored after a
 * reset; under core->lock
 */
struct qrnic_congestion {
	/* Bit mask of the parameters that were written */
	u32 wanted;
	u32 values[QRNIC_CC_PARAMS];
	struct qrnic_cc_file files[QRNIC_CC_PARAMS];
};

/*
 * The adapter. A member that names no lock and no other writer is written only
 * by probe, remove, or while core->lock is held.
 */
struct qrnic_core {
	struct qrnic_dev dev;
	/* Operations of the Ethernet function */
	const struct qrnic_function_ops *function;
	/* Mapped registers (BAR 0) */
	void __iomem *regs;
	/* Pool of doorbell records, each in a cache line of its own */
	struct dma_pool *records;
	struct qrnic_cmd_queue cmd;

	/*
	 * Event queues. EQ 0 has the asynchronous events; EQ 1 + n has the
	 * completion events of vector n.
	 */
	struct qrnic_eq *eqs;
	/* Number of EQs that exist; 0 while the device is down */
	unsigned int num_eqs;
	/* Number of MSI-X vectors, constant */
	unsigned int num_irqs;
	/*
	 * EQ of page faults, on the vector of EQ 0; its core is NULL if the EQ
	 * does not exist
	 */
	struct qrnic_eq fault_eq;
	struct work_struct fault_work;
	/* Context memory of the device; without chunks if there is none */
	struct qrnic_ring contexts;
	/* Maps cqn to struct qrnic_cq; read in interrupts */
	struct xarray cqs;

	/*
	 * Asynchronous events; written by the interrupt of EQ 0 only, read by
	 * event_work only
	 */
	DECLARE_KFIFO_PTR(async, struct qrnic_async_event);
	void *async_buffer;
	struct work_struct event_work;
	/*
	 * Callbacks of the RDMA driver. Either lock allows to read them;
	 * writing needs both. Page faults have a lock of their own because
	 * their callback allocates memory, and event_work must not wait for
	 * that.
	 */
	struct mutex fault_lock;	/* taken before handler_lock */
	struct mutex handler_lock;
	const struct qrnic_event_ops *handler;
	void *handler_context;

	/*
	 * Serialises queries of the port; locked until the result of the query
	 * is used
	 */
	struct mutex port_mutex;
	/* Protects port, for readers that must not sleep */
	spinlock_t port_lock;
	struct qrnic_port port;
	/*
	 * Serialises reads of the clock, because a read of TIME_LO latches
	 * TIME_HI
	 */
	spinlock_t clock_lock;

	/*
	 * Serialises the start and stop of the adapter. Protects level, auxdev,
	 * dev.netdev and congestion.
	 */
	struct mutex lock;
	/* Parts that are up; written under lock, read anywhere */
	enum qrnic_level level;
	struct qrnic_auxdev *auxdev;
	struct qrnic_congestion congestion;
	struct dentry *debugfs;

	/*
	 * Protects condition, eqs_closed, may_recover, recovery_blocked,
	 * sriov_changed and crash; taken in any context, before cmd.lock and
	 * the locks of EQs
	 */
	spinlock_t fatal_lock;
	enum qrnic_condition condition;
	/* True from the reset after a failure until the device is started */
	bool eqs_closed;
	/*
	 * True if recovery_work may run. False during probe, remove, and resets
	 * by others.
	 */
	bool may_recover;
	/*
	 * True if the last attempt failed because the number of virtual
	 * functions was being changed
	 */
	bool recovery_blocked;
	/*
	 * True if such a change has ended since the start of the last attempt
	 */
	bool sriov_changed;
	struct qrnic_crash crash;	/* description of the last failure */
	/* True if devlink has not been informed of the crash */
	bool crash_unreported;
	struct devlink_health_reporter *reporter;
	/* Time of the last recovery, in jiffies; written by recovery_work */
	unsigned long last_recovery;
	/*
	 * Time until the next attempt after a failed recovery, in jiffies;
	 * written by recovery_work
	 */
	unsigned long recovery_delay;
	struct delayed_work recovery_work;
	/* Configuration space from probe, with DMA disabled */
	struct pci_saved_state *saved_state;
	/*
	 * Lock of the SR-IOV capability. A change of the number of virtual
	 * functions waits for the lock. A recovery that restores the
	 * configuration space fails with -EBUSY if the lock is not free.
	 */
	struct mutex sriov_lock;
	struct delayed_work health_work;
	/*
	 * Number of commands that the driver found complete before their event
	 * came
	 */
	atomic_t late_command_events;
};

/* Returns the core of the public part. */
static inline struct qrnic_core *to_qrnic_core(struct qrnic_dev *dev)
{
	return container_of(dev, struct qrnic_core, dev);
}

/* Reads a register. A device that is gone reads as all ones. */
static inline u32 qrnic_read(struct qrnic_core *core, u32 reg)
{
	return readl(core->regs + reg);
}

/* Writes a register. */
static inline void qrnic_write(struct qrnic_core *core, u32 reg, u32 value)
{
	writel(value, core->regs + reg);
}

/* Returns the offset of the input or output mailbox of a slot, in bytes. */
static inline size_t qrnic_cmd_mailbox(u32 index, bool out)
{
	return (size_t)(2 * index + out) * QRNIC_CMD_MAILBOX;
}

/*
 * command_ring.c: called by pci.c, state.c and fatal.c, which control the ring,
 * and by event.c, which passes completion events on
 */
int qrnic_cmd_alloc(struct qrnic_core *core);
void qrnic_cmd_free(struct qrnic_core *core);
void qrnic_cmd_start(struct qrnic_core *core);
void qrnic_cmd_stop(struct qrnic_core *core);
void qrnic_cmd_abort(struct qrnic_core *core);
void qrnic_cmd_use_events(struct qrnic_core *core, bool events);
void qrnic_cmd_event(struct qrnic_core *core, u32 entry, u16 token);
/* command_ring.c, for command.c: called for each command in this order */
int qrnic_cmd_submit(struct qrnic_core *core, const struct qrnic_cmd *cmd);
bool qrnic_cmd_completed(struct qrnic_cmd_queue *queue, u32 index, u32 *control);
bool qrnic_cmd_poll(struct qrnic_cmd_queue *queue, u32 index, u32 *control);
void qrnic_cmd_request_event(struct qrnic_core *core, u32 index);
void qrnic_cmd_release(struct qrnic_core *core, u32 index, bool withhold);

/* commands.c: commands for the adapter as a whole */
int qrnic_cmd_query_device(struct qrnic_dev *dev, struct qrnic_caps *caps);
int qrnic_caps_check(struct qrnic_core *core);
int qrnic_cmd_query_port(struct qrnic_dev *dev, struct qrnic_port *port);
int qrnic_cmd_modify_port(struct qrnic_dev *dev, u32 mtu, bool admin_up);
/* Context memory: allocated after QUERY_DEVICE, freed after the reset */
void qrnic_contexts_start(struct qrnic_core *core);
void qrnic_contexts_stop(struct qrnic_core *core);

/* event.c: event queues and the delivery of events */
void qrnic_events_init(struct qrnic_core *core);
int qrnic_eqs_create(struct qrnic_core *core);
void qrnic_eqs_destroy(struct qrnic_core *core);
int qrnic_port_update(struct qrnic_core *core);

/*
 * congestion.c: restores the parameters after a reset, and creates files of
 * debugfs
 */
void qrnic_congestion_restore(struct qrnic_core *core);
void qrnic_debugfs_add(struct qrnic_core *core);
void qrnic_debugfs_del(struct qrnic_core *core);
void qrnic_debugfs_init(void);
void qrnic_debugfs_exit(void);

/* fatal.c: the fatal state and the health registers */
void qrnic_fatal_init(struct qrnic_core *core);
const char *qrnic_health_cause(u32 health);
void qrnic_crash_read(struct qrnic_core *core, struct qrnic_crash *crash);
void qrnic_health_check(struct qrnic_core *core);
bool qrnic_config_absent(struct qrnic_core *core);
void qrnic_health_start(struct qrnic_core *core);
void qrnic_health_stop(struct qrnic_core *core);

/* state.c: starts and stops the adapter */
int qrnic_bring_up(struct qrnic_core *core);
void qrnic_take_down(struct qrnic_core *core);
void qrnic_suspend(struct qrnic_core *core);
int qrnic_resume(struct qrnic_core *core);
/* Under core->lock, for recovery.c */
void qrnic_suspend_locked(struct qrnic_core *core);
int qrnic_resume_locked(struct qrnic_core *core);

/*
 * Minimum time between two recoveries of a device that fails soon after a
 * recovery
 */
#define QRNIC_RECOVERY_INTERVAL (5 * HZ)

/* recovery.c: recovery, and stop and start around resets by others */
void qrnic_recovery_init(struct qrnic_core *core);
int qrnic_recover(struct qrnic_core *core);
int qrnic_recover_ordered(struct qrnic_core *core);
void qrnic_recovery_enable(struct qrnic_core *core);
void qrnic_recovery_hasten(struct qrnic_core *core);
void qrnic_recovery_disable(struct qrnic_core *core);
void qrnic_recovery_suspend(struct qrnic_core *core);
void qrnic_down(struct qrnic_core *core);
int qrnic_up(struct qrnic_core *core);
void qrnic_await_pci(struct qrnic_core *core);
/* Restores the configuration space of probe; DMA stays disabled */
int qrnic_config_restore(struct qrnic_core *core);

/*
 * pci.c: registers the function and the PCI driver, which then probes devices
 */
int qrnic_register(const struct qrnic_function_ops *function);
void qrnic_unregister(void);

/* devlink.c: the devlink instance, which contains the adapter */
struct qrnic_core *qrnic_devlink_alloc(struct pci_dev *pdev);
void qrnic_devlink_free(struct qrnic_core *core);
void qrnic_devlink_register(struct qrnic_core *core);
void qrnic_devlink_unregister(struct qrnic_core *core);

#endif /* QRNIC_CORE_INTERNAL_H */
