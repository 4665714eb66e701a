// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lab_driver.c: lab 14, a driver for the adapter. The text is README.md.
 *
 * probe() runs the steps in their order, and prints the result of each.
 * remove() undoes them in reverse order. The header qrnic_hw.h has all
 * registers, commands and structures of the manual.
 */
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/iopoll.h>
#include <linux/module.h>
#include <linux/pci.h>

#include <qrnic_hw.h>

#define RING_LOG 3			/* commands: 2^3 entries */
#define RING_ENTRIES BIT(RING_LOG)
#define EQ_LOG 4			/* events: 2^4 entries */
#define EQ_ENTRIES BIT(EQ_LOG)
#define OUTPUT 2048			/* place of the output in the mailbox */
#define PATIENCE_US (5 * USEC_PER_SEC)

struct lab {
	struct pci_dev *pdev;
	void __iomem *registers;	/* BAR 0 */
	void __iomem *doorbells;	/* BAR 2 */
	struct qrnic_cmd_entry *ring;
	dma_addr_t ring_dma;
	u32 producer;			/* commands issued so far */
	void *mailbox;			/* a page: input, and output behind it */
	dma_addr_t mailbox_dma;
	struct qrnic_eqe *events;
	dma_addr_t events_dma;
	u32 consumer;			/* events consumed so far */
	u32 eq;				/* number of the event queue */
	struct completion done;		/* completed by each command event */
};

/* Step 2: maps the registers and the doorbells. */
static int map_bars(struct lab *lab)
{
	int err = pci_enable_device_mem(lab->pdev);

	if (err)
		return err;
	err = pci_request_mem_regions(lab->pdev, KBUILD_MODNAME);
	if (err)
		goto disable;
	lab->registers = pci_ioremap_bar(lab->pdev, QRNIC_BAR_CONTROL);
	lab->doorbells = pci_ioremap_bar(lab->pdev, QRNIC_BAR_DOORBELL);
	err = -ENOMEM;
	if (!lab->registers || !lab->doorbells)
		goto release;
	err = -ENODEV;
	if (readl(lab->registers + QRNIC_REG_ID) == QRNIC_ID_MAGIC)
		return 0;
release:
	if (lab->doorbells)
		iounmap(lab->doorbells);
	if (lab->registers)
		iounmap(lab->registers);
	pci_release_mem_regions(lab->pdev);
disable:
	pci_disable_device(lab->pdev);
	return err;
}

static void unmap_bars(struct lab *lab)
{
	iounmap(lab->doorbells);
	iounmap(lab->registers);
	pci_release_mem_regions(lab->pdev);
	pci_disable_device(lab->pdev);
}

/* Step 3: resets the device. */
static int reset(struct lab *lab)
{
	u32 status;
	int err;

	writel(QRNIC_REG_CONTROL_RESET_MASK, lab->registers + QRNIC_REG_CONTROL);
	err = readl_poll_timeout(lab->registers + QRNIC_REG_STATUS, status,
				 status & QRNIC_REG_STATUS_READY_MASK, 100, PATIENCE_US);
	if (err)
		return err;
	/* An unreset device could access memory of an earlier owner. */
	pci_set_master(lab->pdev);
	return 0;
}

static void stop(struct lab *lab)
{
	writel(0, lab->registers + QRNIC_REG_CONTROL);
	/* The read ends when the device has seen the posted write. */
	readl(lab->registers + QRNIC_REG_STATUS);
	pci_clear_master(lab->pdev);
}

/* Step 4: allocates the command ring and the mailbox, and enables commands. */
static int start_commands(struct lab *lab)
{
	struct device *dev = &lab->pdev->dev;
	int err = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64));

	if (err)
		return err;
	lab->ring = dma_alloc_coherent(dev, RING_ENTRIES * QRNIC_CMD_ENTRY_SIZE, &lab->ring_dma,
				       GFP_KERNEL);
	if (!lab->ring)
		return -ENOMEM;
	lab->mailbox = dma_alloc_coherent(dev, PAGE_SIZE, &lab->mailbox_dma, GFP_KERNEL);
	if (!lab->mailbox) {
		dma_free_coherent(dev, RING_ENTRIES * QRNIC_CMD_ENTRY_SIZE, lab->ring,
				  lab->ring_dma);
		return -ENOMEM;
	}
	writel(lower_32_bits(lab->ring_dma), lab->registers + QRNIC_REG_CMD_BASE_LO);
	writel(upper_32_bits(lab->ring_dma), lab->registers + QRNIC_REG_CMD_BASE_HI);
	writel(RING_LOG, lab->registers + QRNIC_REG_CMD_SIZE);
	writel(QRNIC_REG_CONTROL_CMD_ENABLE_MASK, lab->registers + QRNIC_REG_CONTROL);
	return 0;
}

static void stop_commands(struct lab *lab)
{
	struct device *dev = &lab->pdev->dev;

	stop(lab);
	dma_free_coherent(dev, PAGE_SIZE, lab->mailbox, lab->mailbox_dma);
	dma_free_coherent(dev, RING_ENTRIES * QRNIC_CMD_ENTRY_SIZE, lab->ring, lab->ring_dma);
}

/*
 * Executes a command. The input is in the mailbox, the output comes behind it.
 * Waits for an event if event is true, and else polls. Returns the result, or
 * an error.
 */
static int command(struct lab *lab, u16 opcode, u32 in_len, u32 out_len, bool event)
{
	struct qrnic_cmd_entry *entry = &lab->ring[lab->producer % RING_ENTRIES];
	u32 control = QRNIC_CMD_ENTRY_OWNER_MASK | (event ? QRNIC_CMD_ENTRY_EVENT_MASK : 0);
	int err;

	*entry = (struct qrnic_cmd_entry) {
		.opcode = cpu_to_le16(opcode),
		.token = cpu_to_le16(lab->producer),
		.in_addr = cpu_to_le64(in_len ? lab->mailbox_dma : 0),
		.in_len = cpu_to_le32(in_len),
		.out_addr = cpu_to_le64(out_len ? lab->mailbox_dma + OUTPUT : 0),
		.out_len = cpu_to_le32(out_len),
		.control = cpu_to_le32(control),
	};
	reinit_completion(&lab->done);
	writel(++lab->producer, lab->registers + QRNIC_REG_CMD_DOORBELL);
	if (event && !wait_for_completion_timeout(&lab->done, usecs_to_jiffies(PATIENCE_US)))
		return -ETIMEDOUT;
	err = read_poll_timeout(le32_to_cpu, control, !(control & QRNIC_CMD_ENTRY_OWNER_MASK), 10,
				PATIENCE_US, false, READ_ONCE(entry->control));
	if (err)
		return err;
	dma_rmb();			/* owner bit before the other members */
	if (control & QRNIC_CMD_ENTRY_STATUS_MASK)
		return -EIO;
	return le32_to_cpu(entry->result);
}

/* Step 5: prints the limits of the device. */
static int query_device(struct lab *lab)
{
	struct qrnic_device_attr *attr = lab->mailbox + OUTPUT;
	int err = command(lab, QRNIC_CMD_QUERY_DEVICE, 0, sizeof(*attr), false);

	if (err)
		return err;
	pci_info(lab->pdev, "limits: %u queue pairs, %u CQs\n", le32_to_cpu(attr->max_qp),
		 le32_to_cpu(attr->max_cq));
	return 0;
}

/* Consumes new events, and arms the event queue for the next one. */
static irqreturn_t interrupt(int irq, void *data)
{
	struct lab *lab = data;

	for (;;) {
		struct qrnic_eqe *eqe = &lab->events[lab->consumer % EQ_ENTRIES];
		u32 control = le32_to_cpu(READ_ONCE(eqe->control));

		if (!(control & QRNIC_EQE_PHASE_MASK) == !(lab->consumer >> EQ_LOG & 1))
			break;
		dma_rmb();		/* phase before the other members */
		lab->consumer++;
		if ((control & QRNIC_EQE_TYPE_MASK) == QRNIC_EVENT_COMMAND)
			complete(&lab->done);
	}
	writeq(lab->eq | QRNIC_EQ_DOORBELL_ARM_MASK | (u64)lab->consumer << 32,
	       lab->doorbells + QRNIC_DB_EQ);
	return IRQ_HANDLED;
}

/* Step 6: sets up a vector of MSI-X, and an event queue that uses it. */
static int create_eq(struct lab *lab)
{
	struct qrnic_eq_ctx *ctx = lab->mailbox;
	struct pci_dev *pdev = lab->pdev;
	int err = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX);

	if (err < 0)
		return err;
	err = -ENOMEM;
	lab->events = dma_alloc_coherent(&pdev->dev, EQ_ENTRIES * QRNIC_EQE_SIZE, &lab->events_dma,
					 GFP_KERNEL);
	if (!lab->events)
		goto vectors;
	*ctx = (struct qrnic_eq_ctx) {
		.type = QRNIC_EQ_ASYNC,
		.log_size = EQ_LOG,
		.ring.root = cpu_to_le64(lab->events_dma),
	};
	err = command(lab, QRNIC_CMD_CREATE_EQ, sizeof(*ctx), 0, false);
	if (err < 0)
		goto events;
	lab->eq = err;
	err = request_irq(pci_irq_vector(pdev, 0), interrupt, 0, KBUILD_MODNAME, lab);
	if (err)
		goto stop;
	writeq(lab->eq | QRNIC_EQ_DOORBELL_ARM_MASK, lab->doorbells + QRNIC_DB_EQ);
	return 0;
stop:
	stop(lab);
events:
	dma_free_coherent(&pdev->dev, EQ_ENTRIES * QRNIC_EQE_SIZE, lab->events, lab->events_dma);
vectors:
	pci_free_irq_vectors(pdev);
	return err;
}

static void destroy_eq(struct lab *lab)
{
	stop(lab);
	free_irq(pci_irq_vector(lab->pdev, 0), lab);
	pci_free_irq_vectors(lab->pdev);
	dma_free_coherent(&lab->pdev->dev, EQ_ENTRIES * QRNIC_EQE_SIZE, lab->events,
			  lab->events_dma);
}

/* Step 7: executes a command that ends with an event. */
static int run_nop(struct lab *lab)
{
	int err = command(lab, QRNIC_CMD_NOP, 0, 0, true);

	if (!err)
		pci_info(lab->pdev, "%u events\n", lab->consumer);
	return err;
}

static const struct {
	const char *name;
	int (*run)(struct lab *lab);
	void (*undo)(struct lab *lab);
} steps[] = {
	{ "map_bars", map_bars, unmap_bars },
	{ "reset", reset, stop },
	{ "start_commands", start_commands, stop_commands },
	{ "query_device", query_device },
	{ "create_eq", create_eq, destroy_eq },
	{ "run_nop", run_nop },
};

/* Undoes the first steps in reverse order. */
static void undo(struct lab *lab, int count)
{
	while (count--)
		if (steps[count].undo)
			steps[count].undo(lab);
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lab *lab = devm_kzalloc(&pdev->dev, sizeof(*lab), GFP_KERNEL);
	int err, number;

	if (!lab)
		return -ENOMEM;
	lab->pdev = pdev;
	init_completion(&lab->done);
	pci_set_drvdata(pdev, lab);
	for (number = 0; number < ARRAY_SIZE(steps); number++) {
		err = steps[number].run(lab);
		pci_info(pdev, "%s: %d\n", steps[number].name, err);
		if (err) {
			undo(lab, number);
			return err;
		}
	}
	return 0;
}

static void remove(struct pci_dev *pdev)
{
	undo(pci_get_drvdata(pdev), ARRAY_SIZE(steps));
}

/* Step 1: the devices that the driver can drive. */
static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_DEVICE_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver lab_driver = {
	.name = KBUILD_MODNAME,
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};
module_pci_driver(lab_driver);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Lab 14: a driver from the manual");
