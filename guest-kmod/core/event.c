// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * event.c: event queues (EQs), and the delivery of each event to its CQ, its
 * command or its handler. This file also has the CQs of the device and the
 * cached state of the port.
 *
 * state.c creates the EQs after the command ring and destroys them before it.
 * EQ 0 has the asynchronous events; EQ 1 + n has the completion events of
 * vector n. The interrupt handler of EQ 0 puts events into a fifo, and
 * event_work delivers them in process context. Page faults have an EQ and a
 * work item of their own. The member core->cqs maps numbers to CQs; interrupt
 * handlers read it without a lock (manual, Event queues).
 */
#include <linux/interrupt.h>

#include "core/core.h"

/*
 * Minimum log2 of the size of an EQ, and entries of the asynchronous EQ for
 * other events.
 *
 * An EQ must not overrun, because that puts the device into the fatal state.
 * The device keeps at most one EQE of each CQ in an EQ, however often user
 * space arms the CQ. A destroyed CQ may leave one EQE behind. So twice as many
 * entries as CQs suffice, if the device supports EQs of that size (manual,
 * Event queues). The asynchronous EQ has room for a failure of all objects at
 * once. This is two events of each QP and CQ, one of each SRQ and command, and
 * some of the port.
 */
#define QRNIC_EQ_LOG_MIN 8
#define QRNIC_EQ_OTHERS 16
/*
 * Maximum number of EQEs that one interrupt handles. The limit exists because
 * other interrupts of the processor wait meanwhile.
 */
#define QRNIC_EQ_BUDGET 64u
/* Time that qrnic_flush_events() waits for an interrupt */
#define QRNIC_FLUSH_TIMEOUT HZ

/*
 * Reports the consumer index to the device, and arms the EQ if arm is true.
 * Writes nothing if fatal.c has closed the EQs.
 */
static void qrnic_eq_doorbell(struct qrnic_eq *eq, bool arm)
{
	u64 queue = FIELD_PREP(QRNIC_EQ_DOORBELL_NUMBER_MASK, eq->eqn);
	struct qrnic_core *core = eq->core;
	unsigned long flags;

	if (arm)
		queue |= QRNIC_EQ_DOORBELL_ARM_MASK;
	spin_lock_irqsave(&eq->lock, flags);
	if (!READ_ONCE(core->eqs_closed))
		writeq((u64)eq->consumer << 32 | queue, core->dev.db + QRNIC_DB_EQ);
	spin_unlock_irqrestore(&eq->lock, flags);
}

static void qrnic_completion_event(struct qrnic_core *core, u32 cqn)
{
	/*
	 * No reference is needed, because qrnic_cq_destroy() erases the entry
	 * and then waits until this interrupt handler has ended.
	 */
	struct qrnic_cq *cq = xa_load(&core->cqs, cqn);

	if (cq)
		cq->comp(cq);
}

/*
 * Handles an event of a command and DEVICE_FATAL at once, and leaves the others
 * to event_work. Called in hard interrupt context.
 */
static void qrnic_async_event(struct qrnic_core *core, u8 type, u8 subtype,
			      u32 object, u32 data)
{
	struct qrnic_async_event event = {
		.object = object,
		.data = data,
		.type = type,
		.subtype = subtype,
	};

	switch (type) {
	case QRNIC_EVENT_COMMAND:
		qrnic_cmd_event(core, object, data);
		return;
	case QRNIC_EVENT_DEVICE_FATAL:
		qrnic_report_fatal(&core->dev, "event DEVICE_FATAL");
		return;
	}
	if (!kfifo_put(&core->async, event))
		dev_err_ratelimited(&core->dev.pdev->dev,
				    "asynchronous event 0x%x of object %u lost\n",
				    type, object);
	queue_work(core->dev.event_wq, &core->event_work);
}

static struct qrnic_eqe *qrnic_eq_entry(struct qrnic_eq *eq, u32 index)
{
	index &= BIT(eq->log_size) - 1;
	return qrnic_ring_at(&eq->ring, (size_t)QRNIC_EQE_SIZE * index);
}

static bool qrnic_eq_written(struct qrnic_eq *eq, u32 index)
{
	return qrnic_entry_written(&qrnic_eq_entry(eq, index)->control,
				   QRNIC_EQE_PHASE_MASK, index, eq->log_size);
}

/*
 * Copies the next EQE if the device has written it. Callers use only the copy,
 * because a device that is not trusted can change the EQE at any time.
 */
static bool qrnic_eqe_take(struct qrnic_eq *eq, struct qrnic_eqe *copy)
{
	if (!qrnic_eq_written(eq, eq->consumer))
		return false;
	/*
	 * The device writes the phase last, so the rest of the EQE is valid if
	 * the read of the phase comes first.
	 */
	dma_rmb();
	*copy = *qrnic_eq_entry(eq, eq->consumer);
	/*
	 * The barrier is needed, because otherwise the compiler could read the
	 * ring again in place of the copy.
	 */
	barrier();
	return true;
}

/*
 * Delivers an EQE. Completion events are valid only in completion EQs, because
 * qrnic_cq_destroy() waits for the interrupts of these. All other events are
 * valid only in the asynchronous EQ, because its interrupt is the only writer
 * of the fifo.
 */
static void qrnic_eqe_deliver(struct qrnic_eq *eq, const struct qrnic_eqe *eqe)
{
	struct qrnic_core *core = eq->core;
	u32 control = le32_to_cpu(eqe->control), object = le32_to_cpu(eqe->object);
	u8 type = FIELD_GET(QRNIC_EQE_TYPE_MASK, control);
	bool completion = type == QRNIC_EVENT_COMPLETION;
	bool async = eq == &core->eqs[0];

	if (async == completion)
		dev_err_ratelimited(&core->dev.pdev->dev,
				    "event 0x%x of object %u in the wrong queue, %u\n",
				    type, object, eq->eqn);
	else if (async)
		qrnic_async_event(core, type,
				  FIELD_GET(QRNIC_EQE_SUBTYPE_MASK, control),
				  object, le32_to_cpu(eqe->data));
	else
		qrnic_completion_event(core, object);
}

/* Handles the interrupt of an EQ, and arms the EQ again. */
static irqreturn_t qrnic_eq_interrupt(int irq, void *data)
{
	struct qrnic_eq *eq = data;
	u32 size = 1u << eq->log_size, budget = QRNIC_EQ_BUDGET;
	struct qrnic_eqe eqe;

	while (budget-- && qrnic_eqe_take(eq, &eqe)) {
		qrnic_eqe_deliver(eq, &eqe);
		/*
		 * Release, so that qrnic_flush_events() finds the event in the
		 * fifo when it sees the new index.
		 */
		smp_store_release(&eq->consumer, eq->consumer + 1);
		/*
		 * The consumer index is reported after each quarter of the
		 * ring, so that the device knows of free entries before the EQ
		 * overruns.
		 */
		if (!(eq->consumer & (size / 4 - 1)))
			qrnic_eq_doorbell(eq, false);
	}

	/*
	 * An EQE that came after the last check, or exceeds the budget, is
	 * beyond the consumer index. So arming raises the interrupt again at
	 * once.
	 */
	qrnic_eq_doorbell(eq, true);
	return IRQ_HANDLED;
}

/*
 * Queues the work item that reads the EQEs and arms the EQ again. Returns
 * IRQ_NONE if there is no EQE, because EQ 0 shares the vector.
 */
static irqreturn_t qrnic_fault_interrupt(int irq, void *data)
{
	struct qrnic_eq *eq = data;

	if (!qrnic_eq_written(eq, READ_ONCE(eq->consumer)))
		return IRQ_NONE;
	queue_work(eq->core->dev.wq, &eq->core->fault_work);
	return IRQ_HANDLED;
}

static void qrnic_fault_deliver(struct qrnic_core *core, const struct qrnic_eqe *eqe)
{
	u32 control = le32_to_cpu(eqe->control);

	if (FIELD_GET(QRNIC_EQE_TYPE_MASK, control) != QRNIC_EVENT_PAGE_FAULT) {
		dev_err_ratelimited(&core->dev.pdev->dev,
				    "event 0x%x in the queue of page faults\n",
				    (u32)FIELD_GET(QRNIC_EQE_TYPE_MASK, control));
		return;
	}
	mutex_lock(&core->fault_lock);
	if (core->handler && core->handler->page_fault)
		core->handler->page_fault(core->handler_context,
					  le32_to_cpu(eqe->object));
	mutex_unlock(&core->fault_lock);
}

static void qrnic_fault_work(struct work_struct *work)
{
	struct qrnic_core *core = container_of(work, struct qrnic_core, fault_work);
	struct qrnic_eq *eq = &core->fault_eq;
	u32 budget = QRNIC_EQ_BUDGET;
	struct qrnic_eqe eqe;

	while (budget-- && qrnic_eqe_take(eq, &eqe)) {
		qrnic_fault_deliver(core, &eqe);
		WRITE_ONCE(eq->consumer, eq->consumer + 1);
	}
	/* Arming raises the interrupt again at once if more EQEs have come. */
	qrnic_eq_doorbell(eq, true);
}

static bool qrnic_has_fault_eq(struct qrnic_core *core)
{
	return core->dev.caps.capabilities & QRNIC_CAP_ON_DEMAND;
}

static u32 qrnic_eq_log_size(struct qrnic_core *core, enum qrnic_eq_type type)
{
	const struct qrnic_caps *caps = &core->dev.caps;
	u64 entries = 2 * (u64)caps->max_cq;
	u32 log_size;

	/*
	 * The EQ of page faults has fewer entries than there may be faults,
	 * because the device keeps further faults until there is room.
	 */
	if (type == QRNIC_EQ_PAGE_FAULT)
		entries = BIT(QRNIC_EQ_LOG_MIN);
	if (type == QRNIC_EQ_ASYNC)
		entries += 2 * (u64)caps->max_qp + caps->max_srq +
			   QRNIC_CMD_ENTRIES + QRNIC_EQ_OTHERS;
	log_size = max_t(u32, order_base_2(entries), QRNIC_EQ_LOG_MIN);
	return min_t(u32, log_size, ilog2(caps->max_eqe));
}

/*
 * Creates an EQ on a vector, requests the interrupt with this handler and these
 * flags, and arms the EQ.
 */
static int qrnic_eq_start(struct qrnic_core *core, struct qrnic_eq *eq,
			  enum qrnic_eq_type type, unsigned int vector,
			  irq_handler_t handler, unsigned long flags)
{
	struct qrnic_eq_ctx ctx = { .type = type };
	int err;

	eq->core = core;
	eq->consumer = 0;
	eq->log_size = qrnic_eq_log_size(core, type);
	eq->irq = pci_irq_vector(core->dev.pdev, vector);
	err = qrnic_ring_alloc(&core->dev, &eq->ring,
			       (size_t)QRNIC_EQE_SIZE << eq->log_size);
	if (err)
		return err;

	ctx.log_size = eq->log_size;
	ctx.vector = cpu_to_le16(vector);
	ctx.ring = eq->ring.hw;
	err = qrnic_cmd_create(&core->dev, QRNIC_CMD_CREATE_EQ, &ctx,
			       sizeof(ctx), &eq->eqn);
	if (err)
		goto err_ring;

	/* No interrupt was missed, because the EQ is not armed yet. */
	err = request_irq(eq->irq, handler, flags, eq->name, eq);
	if (err)
		goto err_eq;
	qrnic_eq_doorbell(eq, true);
	return 0;

err_eq:
	qrnic_cmd_destroy(&core->dev, QRNIC_CMD_DESTROY_EQ, eq->eqn);
err_ring:
	qrnic_ring_free(&core->dev, &eq->ring);
	return err;
}

/*
 * Destroys the EQ. Called after its interrupt handler and its work item have
 * ended, because both ring its doorbell, which needs an existing EQ.
 */
static void qrnic_eq_free(struct qrnic_core *core, struct qrnic_eq *eq)
{
	qrnic_cmd_destroy(&core->dev, QRNIC_CMD_DESTROY_EQ, eq->eqn);
	qrnic_ring_free(&core->dev, &eq->ring);
}

static int qrnic_eq_create(struct qrnic_core *core, unsigned int index,
			   enum qrnic_eq_type type)
{
	struct pci_dev *pdev = core->dev.pdev;
	struct qrnic_eq *eq = &core->eqs[index];
	int node = dev_to_node(&pdev->dev), err;

	snprintf(eq->name, sizeof(eq->name), "qrnic-%s-%s-%u",
		 type == QRNIC_EQ_ASYNC ? "async" : "comp", pci_name(pdev),
		 index);
	err = qrnic_eq_start(core, eq, type, index, qrnic_eq_interrupt,
			     type == QRNIC_EQ_ASYNC ? IRQF_SHARED : 0);
	/*
	 * Each completion vector begins on a processor of its own. This is done
	 * only once, so that an affinity that a user has set survives a reset
	 * of the device.
	 */
	if (!err && type == QRNIC_EQ_COMPLETION && !eq->spread) {
		irq_set_affinity_and_hint(eq->irq,
					  cpumask_of(cpumask_local_spread(index - 1,
									  node)));
		eq->spread = true;
	}
	return err;
}

static void qrnic_eq_destroy(struct qrnic_core *core, unsigned int index)
{
	struct qrnic_eq *eq = &core->eqs[index];

	irq_update_affinity_hint(eq->irq, NULL);
	free_irq(eq->irq, eq);
	qrnic_eq_free(core, eq);
}

/*
 * Creates the EQ of page faults, if the device has page faults. The EQ shares
 * the vector of EQ 0, because EQ 0 has few interrupts of its own.
 */
static int qrnic_fault_eq_create(struct qrnic_core *core)
{
	struct qrnic_eq *eq = &core->fault_eq;
	int err;

	if (!qrnic_has_fault_eq(core))
		return 0;
	snprintf(eq->name, sizeof(eq->name), "qrnic-fault-%s",
		 pci_name(core->dev.pdev));
	err = qrnic_eq_start(core, eq, QRNIC_EQ_PAGE_FAULT, 0,
			     qrnic_fault_interrupt, IRQF_SHARED);
	if (err)
		eq->core = NULL;
	return err;
}

static void qrnic_fault_eq_destroy(struct qrnic_core *core)
{
	struct qrnic_eq *eq = &core->fault_eq;

	if (!eq->core)
		return;
	free_irq(eq->irq, eq);
	cancel_work_sync(&core->fault_work);
	qrnic_eq_free(core, eq);
	eq->core = NULL;
}

/*
 * Allocates the fifo with as many entries as the EQ that fills it. The fifo
 * keeps its size if the device has other limits after a reset, because
 * event_work may read it at any time. An event that finds the fifo full is
 * logged and lost.
 */
static int qrnic_async_alloc(struct qrnic_core *core)
{
	size_t bytes = sizeof(struct qrnic_async_event) <<
		       qrnic_eq_log_size(core, QRNIC_EQ_ASYNC);

	if (core->async_buffer)
		return 0;
	core->async_buffer = kvmalloc(bytes, GFP_KERNEL);
	if (!core->async_buffer)
		return -ENOMEM;
	return kfifo_init(&core->async, core->async_buffer, bytes);
}

/*
 * Creates all EQs. Returns 0 or a negative errno; after an error there are no
 * EQs.
 */
int qrnic_eqs_create(struct qrnic_core *core)
{
	unsigned int i;
	int err;

	core->num_eqs = min(core->num_irqs,
			    core->dev.caps.max_eq - qrnic_has_fault_eq(core));
	if (core->num_eqs < 2) {
		dev_err(&core->dev.pdev->dev,
			"the device has %u event queues, 2 are needed\n",
			core->dev.caps.max_eq);
		return -ENOSPC;
	}

	err = qrnic_async_alloc(core);
	if (err) {
		core->num_eqs = 0;
		return err;
	}
	for (i = 0; i < core->num_eqs; i++) {
		err = qrnic_eq_create(core, i,
				      i ? QRNIC_EQ_COMPLETION : QRNIC_EQ_ASYNC);
		if (err) {
			dev_err(&core->dev.pdev->dev,
				"event queue %u: error %d\n", i, err);
			goto err_destroy;
		}
		if (i == 0)
			qrnic_cmd_use_events(core, true);
	}
	err = qrnic_fault_eq_create(core);
	if (err) {
		dev_err(&core->dev.pdev->dev,
			"event queue of page faults: error %d\n", err);
		goto err_destroy;
	}
	return 0;

err_destroy:
	core->num_eqs = i;
	qrnic_eqs_destroy(core);
	return err;
}

/* Destroys all EQs, and waits until no handler and no callback runs. */
void qrnic_eqs_destroy(struct qrnic_core *core)
{
	qrnic_fault_eq_destroy(core);
	while (core->num_eqs) {
		core->num_eqs--;
		/*
		 * EQ 0 is destroyed last, because it has the events of
		 * commands.
		 */
		if (core->num_eqs == 0)
			qrnic_cmd_use_events(core, false);
		qrnic_eq_destroy(core, core->num_eqs);
	}
	flush_work(&core->event_work);
}

unsigned int qrnic_num_vectors(struct qrnic_dev *dev)
{
	unsigned int eqs = to_qrnic_core(dev)->num_eqs;

	return eqs ? eqs - 1 : 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_num_vectors);

int qrnic_cq_create(struct qrnic_dev *dev, struct qrnic_cq *cq,
		    struct qrnic_cq_ctx *ctx)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	int err;

	if (cq->vector >= qrnic_num_vectors(dev))
		return -EINVAL;
	ctx->eqn = cpu_to_le32(core->eqs[1 + cq->vector].eqn);
	err = qrnic_cmd_create(dev, QRNIC_CMD_CREATE_CQ, ctx, sizeof(*ctx),
			       &cq->cqn);
	if (err)
		return err;
	err = xa_err(xa_store(&core->cqs, cq->cqn, cq, GFP_KERNEL));
	/*
	 * The caller frees the memory of the CQ, so the device must not use it
	 * any more.
	 */
	if (err && qrnic_cmd_destroy(dev, QRNIC_CMD_DESTROY_CQ, cq->cqn))
		qrnic_report_fatal(dev, "CQ not destroyed");
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_cq_create);

int qrnic_cq_destroy(struct qrnic_dev *dev, struct qrnic_cq *cq)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	unsigned int i;
	int err;

	/*
	 * The command comes first, because the device may reject it. The device
	 * may then give the number to another CQ before the entry is erased. So
	 * the entry is erased only if it still points to this CQ.
	 */
	err = qrnic_cmd_destroy(dev, QRNIC_CMD_DESTROY_CQ, cq->cqn);
	if (err)
		return err;
	xa_cmpxchg(&core->cqs, cq->cqn, cq, NULL, GFP_KERNEL);
	/*
	 * The interrupts of all completion EQs are awaited, because an EQE of
	 * an earlier CQ with this number may be in any of them.
	 */
	for (i = 1; i < core->num_eqs; i++)
		synchronize_irq(core->eqs[i].irq);
	flush_work(&core->event_work);
	return 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_cq_destroy);

/*
 * Queries the port, caches its state, and informs the function. Sleeps. The
 * caller may hold RTNL. Returns 0 or an error as qrnic_cmd_exec().
 */
int qrnic_port_update(struct qrnic_core *core)
{
	struct qrnic_port port;
	int err;

	/*
	 * The mutex is held, because otherwise the result of an older query
	 * could replace that of a newer one.
	 */
	mutex_lock(&core->port_mutex);
	err = qrnic_cmd_query_port(&core->dev, &port);
	if (!err) {
		spin_lock_bh(&core->port_lock);
		core->port = port;
		spin_unlock_bh(&core->port_lock);
		core->function->port_update(core);
	}
	mutex_unlock(&core->port_mutex);
	return err;
}

void qrnic_port_cached(struct qrnic_dev *dev, struct qrnic_port *port)
{
	struct qrnic_core *core = to_qrnic_core(dev);

	spin_lock_bh(&core->port_lock);
	*port = core->port;
	spin_unlock_bh(&core->port_lock);
}
EXPORT_SYMBOL_QRNIC(qrnic_port_cached);

static void qrnic_port_event(struct qrnic_core *core)
{
	/*
	 * The driver queries the state instead of deriving it from the event,
	 * because further events may have come meanwhile.
	 */
	if (qrnic_port_update(core))
		return;
	mutex_lock(&core->handler_lock);
	if (core->handler && core->handler->port_event)
		core->handler->port_event(core->handler_context);
	mutex_unlock(&core->handler_lock);
}

static void qrnic_cq_event(struct qrnic_core *core,
			   const struct qrnic_async_event *event)
{
	/*
	 * No reference is needed, because qrnic_cq_destroy() flushes this work
	 * item.
	 */
	struct qrnic_cq *cq = xa_load(&core->cqs, event->object);
	struct qrnic_cq_ctx ctx;

	/*
	 * Logged at debug level only, because any process can make its own CQ
	 * overrun.
	 */
	dev_dbg_ratelimited(&core->dev.pdev->dev, "CQ %u: error %u\n",
			    event->object, event->subtype);
	if (!cq || !cq->event)
		return;
	/*
	 * The event may belong to a destroyed CQ whose number another CQ has by
	 * now. Therefore the error is checked in the context of the CQ.
	 */
	if (qrnic_cmd_query(&core->dev, QRNIC_CMD_QUERY_CQ, event->object, &ctx,
			    sizeof(ctx)) || !ctx.error)
		return;
	cq->event(cq, event->subtype);
}

static void qrnic_event_deliver(struct qrnic_core *core,
				const struct qrnic_async_event *event)
{
	switch (event->type) {
	case QRNIC_EVENT_CQ_ERROR:
		qrnic_cq_event(core, event);
		break;
	case QRNIC_EVENT_QP_FATAL:
	case QRNIC_EVENT_QP_REQUEST_ERROR:
	case QRNIC_EVENT_QP_ACCESS_ERROR:
	case QRNIC_EVENT_COMM_EST:
	case QRNIC_EVENT_SQ_DRAINED:
	case QRNIC_EVENT_LAST_WQE_REACHED:
	case QRNIC_EVENT_QP_CONTEXT_ERROR:
		if (core->function->qp_event(core, event->object, event->type))
			break;
		mutex_lock(&core->handler_lock);
		if (core->handler && core->handler->qp_event)
			core->handler->qp_event(core->handler_context,
						event->object, event->type,
						event->subtype);
		mutex_unlock(&core->handler_lock);
		break;
	case QRNIC_EVENT_SRQ_LIMIT:
	case QRNIC_EVENT_SRQ_ERROR:
		mutex_lock(&core->handler_lock);
		if (core->handler && core->handler->srq_event)
			core->handler->srq_event(core->handler_context,
						 event->object, event->type,
						 event->subtype);
		mutex_unlock(&core->handler_lock);
		break;
	case QRNIC_EVENT_PORT_UP:
	case QRNIC_EVENT_PORT_DOWN:
		qrnic_port_event(core);
		break;
	default:
		dev_warn_ratelimited(&core->dev.pdev->dev,
				     "unknown event 0x%x of object %u\n",
				     event->type, event->object);
	}
}

/*
 * Delivers all events of the fifo; in the fatal state calls the handlers of the
 * fatal state.
 */
static void qrnic_event_work(struct work_struct *work)
{
	struct qrnic_core *core = container_of(work, struct qrnic_core, event_work);
	struct qrnic_async_event event;

	while (kfifo_get(&core->async, &event))
		qrnic_event_deliver(core, &event);

	if (qrnic_healthy(&core->dev))
		return;
	core->function->fatal(core);
	mutex_lock(&core->handler_lock);
	if (core->handler && core->handler->fatal)
		core->handler->fatal(core->handler_context);
	mutex_unlock(&core->handler_lock);
}

/* Initialises the members of this file. Called once in probe. */
void qrnic_events_init(struct qrnic_core *core)
{
	INIT_WORK(&core->event_work, qrnic_event_work);
	INIT_WORK(&core->fault_work, qrnic_fault_work);
	mutex_init(&core->handler_lock);
	mutex_init(&core->fault_lock);
	mutex_init(&core->port_mutex);
	spin_lock_init(&core->port_lock);
	spin_lock_init(&core->fault_eq.lock);
	xa_init(&core->cqs);
}

int qrnic_register_event_handler(struct qrnic_dev *dev,
				 const struct qrnic_event_ops *ops, void *context)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	int err = 0;

	mutex_lock(&core->fault_lock);
	mutex_lock(&core->handler_lock);
	if (core->handler) {
		err = -EBUSY;
	} else {
		core->handler = ops;
		core->handler_context = context;
	}
	mutex_unlock(&core->handler_lock);
	mutex_unlock(&core->fault_lock);
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_register_event_handler);

void qrnic_unregister_event_handler(struct qrnic_dev *dev)
{
	struct qrnic_core *core = to_qrnic_core(dev);

	mutex_lock(&core->fault_lock);
	mutex_lock(&core->handler_lock);
	core->handler = NULL;
	core->handler_context = NULL;
	mutex_unlock(&core->handler_lock);
	mutex_unlock(&core->fault_lock);
}
EXPORT_SYMBOL_QRNIC(qrnic_unregister_event_handler);

/*
 * The interrupt of an EQE that is written may not have come yet, and
 * synchronize_irq() does not wait for it. So the function waits until the
 * handler has passed the last EQE that is written now. In the fatal state there
 * is no need to wait. No new object gets an old number before recovery has
 * started the device again.
 */
void qrnic_flush_events(struct qrnic_dev *dev)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	struct qrnic_eq *eq = &core->eqs[0];
	u32 end = READ_ONCE(eq->consumer), budget = 1u << eq->log_size;
	unsigned long begin = jiffies;

	while (budget-- && qrnic_eq_written(eq, end))
		end++;
	/*
	 * Pairs with the release in the interrupt handler, so EQEs before this
	 * index are in the fifo.
	 */
	while ((s32)(smp_load_acquire(&eq->consumer) - end) < 0 &&
	       qrnic_healthy(dev)) {
		if (time_after(jiffies, begin + QRNIC_FLUSH_TIMEOUT)) {
			dev_warn(&dev->pdev->dev,
				 "no interrupt for %u asynchronous events\n",
				 end - READ_ONCE(eq->consumer));
			break;
		}
		usleep_range(20, 100);
	}
	synchronize_irq(eq->irq);
	flush_work(&core->event_work);
}
EXPORT_SYMBOL_QRNIC(qrnic_flush_events);
