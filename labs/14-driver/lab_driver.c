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
	/*
	 * To do: enable the device (pci_enable_device_mem), reserve its BARs
	 * (pci_request_mem_regions), map BAR 0 and BAR 2 (pci_ioremap_bar),
	 * and compare ID with QRNIC_ID_MAGIC. After an error undo all of it.
	 */
	return -EOPNOTSUPP;
}

static void unmap_bars(struct lab *lab)
{
	/* To do: step 8, undo map_bars() in reverse order */
}

/* Step 3: resets the device. */
static int reset(struct lab *lab)
{
	/*
	 * To do: write RESET to CONTROL, poll STATUS until READY is 1
	 * (readl_poll_timeout, at most PATIENCE_US), and only then enable bus
	 * mastering (pci_set_master)
	 */
	return -EOPNOTSUPP;
}

static void stop(struct lab *lab)
{
	/*
	 * To do: step 8, write 0 to CONTROL, read STATUS because the write is
	 * posted, and disable bus mastering (pci_clear_master)
	 */
}

/* Step 4: allocates the command ring and the mailbox, and enables commands. */
static int start_commands(struct lab *lab)
{
	/*
	 * To do: set the DMA mask to 64 bits, allocate ring and mailbox
	 * (dma_alloc_coherent), write CMD_BASE_LO, CMD_BASE_HI and CMD_SIZE,
	 * and then CMD_ENABLE to CONTROL
	 */
	return -EOPNOTSUPP;
}

static void stop_commands(struct lab *lab)
{
	/*
	 * To do: step 8, stop() the device, and then free the mailbox and the
	 * ring
	 */
}

/*
 * Executes a command. The input is in the mailbox, the output comes behind it.
 * Waits for an event if event is true, and else polls. Returns the result, or
 * an error.
 */
static int command(struct lab *lab, u16 opcode, u32 in_len, u32 out_len, bool event)
{
	/*
	 * To do: fill the next entry of the ring, count it in producer, and
	 * write CMD_DOORBELL. Then poll the owner bit until it is 0, and check
	 * the status. In step 7: request and await an event if event is true.
	 */
	return -EOPNOTSUPP;
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
static irqreturn_t __maybe_unused interrupt(int irq, void *data)
{
	/*
	 * To do: consume each EQE whose phase is new, and complete(&lab->done)
	 * for QRNIC_EVENT_COMMAND. Then write the doorbell of the EQ with ARM
	 * and consumer by one writeq().
	 */
	return IRQ_NONE;
}

/* Step 6: sets up a vector of MSI-X, and an event queue that uses it. */
static int create_eq(struct lab *lab)
{
	/*
	 * To do: allocate one MSI-X vector (pci_alloc_irq_vectors) and the
	 * ring of events. Execute CREATE_EQ with a struct qrnic_eq_ctx in the
	 * mailbox. Then request the interrupt (request_irq), and arm the EQ by
	 * its doorbell.
	 */
	return -EOPNOTSUPP;
}

static void destroy_eq(struct lab *lab)
{
	/*
	 * To do: step 8, stop() the device, release the interrupt and its
	 * vector, and free the ring
	 */
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
	/* To do: vendor and device of the adapter, PCI_DEVICE(VENDOR, DEVICE) */
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
