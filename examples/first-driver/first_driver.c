// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * first_driver.c: the first three steps of a driver for the adapter.
 *
 *   examples/ci/boot-driver examples/first-driver examples/first-driver/job
 *
 * This command builds and boots the driver, and puts the header qrnic_hw.h,
 * with all registers and structures, into the include path. The module
 * parameter "steps" is the number of the last step, from 1 to 3.
 *
 *   1  Registers: the driver identifies the device and resets it (spec/pci.rst,
 *      spec/registers.rst).
 *   2  Command ring: the driver passes commands by DMA and polls for their end
 *      (spec/commands.rst).
 *   3  MSI-X: the driver sets up an event queue, and commands end with an
 *      interrupt (spec/completion.rst).
 *
 * To continue, see spec/initialisation.rst from step 8 on. The probe function
 * calls the steps in order, and devres undoes them in reverse order.
 */
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/iopoll.h>
#include <linux/module.h>
#include <linux/pci.h>

#include <qrnic_hw.h>

#define RING_LOG_SIZE 3
#define RING_ENTRIES (1 << RING_LOG_SIZE)
#define EQ_LOG_SIZE 4
#define EQ_ENTRIES (1 << EQ_LOG_SIZE)
#define MAILBOX_BYTES 4096
/* output mailbox; the input mailbox is before it */
#define OUTPUT_OFFSET 2048
#define PATIENCE_US (10 * USEC_PER_SEC)

static int steps = 3;
module_param(steps, int, 0444);
MODULE_PARM_DESC(steps, "how far to go: 1 registers, 2 commands, 3 interrupts");

struct first_driver {
	struct device *dev;
	void __iomem *registers;	/* BAR 0 */
	void __iomem *doorbells;	/* BAR 2; page 0 is for the kernel */
	struct qrnic_cmd_entry *ring;
	/* commands passed to the device so far */
	u32 producer;
	void *mailbox;
	dma_addr_t mailbox_dma;
	struct qrnic_eqe *events;
	dma_addr_t events_dma;
	u32 consumer;			/* events consumed so far */
	u32 eq;
	/* token of the command of the last event */
	u16 token;
	struct completion done;
};

/* Step 1: identifies and resets the device. Registers need no DMA. */
static int step_registers(struct first_driver *fd)
{
	u32 id = readl(fd->registers + QRNIC_REG_ID);
	u32 version = readl(fd->registers + QRNIC_REG_VERSION);
	u32 status;
	int err;

	/*
	 * Registers read as all ones or 0 if the device is gone or does not
	 * decode, so the identity is checked first
	 */
	if (id != QRNIC_ID_MAGIC || version >> 16 != QRNIC_HW_VERSION_MAJOR)
		return dev_err_probe(fd->dev, -ENODEV, "not a device of this kind: 0x%x\n", id);
	/*
	 * The reset comes first, because an earlier driver may have left queues
	 * that the device still uses
	 */
	writel(QRNIC_REG_CONTROL_RESET_MASK, fd->registers + QRNIC_REG_CONTROL);
	err = readl_poll_timeout(fd->registers + QRNIC_REG_STATUS, status,
				 status & (QRNIC_REG_STATUS_READY_MASK | QRNIC_REG_STATUS_FATAL_MASK),
				 1000, PATIENCE_US);
	if (err || status & QRNIC_REG_STATUS_FATAL_MASK)
		return dev_err_probe(fd->dev, err ?: -EIO, "no end of the reset\n");
	dev_info(fd->dev, "step 1: version %u.%u, %u vectors, %u doorbell pages\n", version >> 16,
		 version & 0xffff, readl(fd->registers + QRNIC_REG_VECTORS),
		 readl(fd->registers + QRNIC_REG_DB_PAGES));
	return 0;
}

/*
 * Executes one command and waits for its end, by event or by polling; result
 * may be NULL.
 */
static int command(struct first_driver *fd, u16 opcode, u32 object, u32 in_len, u32 out_len,
		   bool event, u32 *result)
{
	struct qrnic_cmd_entry *entry = &fd->ring[fd->producer % RING_ENTRIES];
	u32 control = QRNIC_CMD_ENTRY_OWNER_MASK | (event ? QRNIC_CMD_ENTRY_EVENT_MASK : 0);
	int err;

	*entry = (struct qrnic_cmd_entry) {
		.opcode = cpu_to_le16(opcode),
		.token = cpu_to_le16(fd->producer),
		.object = cpu_to_le32(object),
		.in_addr = cpu_to_le64(in_len ? fd->mailbox_dma : 0),
		.in_len = cpu_to_le32(in_len),
		.out_addr = cpu_to_le64(out_len ? fd->mailbox_dma + OUTPUT_OFFSET : 0),
		.out_len = cpu_to_le32(out_len),
		.control = cpu_to_le32(control),
	};
	reinit_completion(&fd->done);
	/*
	 * writel() orders the entry before the doorbell, because otherwise the
	 * device could read an old entry
	 */
	writel(++fd->producer, fd->registers + QRNIC_REG_CMD_DOORBELL);
	if (event && !wait_for_completion_timeout(&fd->done, usecs_to_jiffies(PATIENCE_US)))
		dev_warn(fd->dev, "no event of command 0x%x\n", opcode);
	err = read_poll_timeout(le32_to_cpu, control, !(control & QRNIC_CMD_ENTRY_OWNER_MASK), 10,
				PATIENCE_US, false, READ_ONCE(entry->control));
	if (err)
		return err;
	/*
	 * The barrier is needed because the other members are valid only after
	 * the owner bit was read as 0
	 */
	dma_rmb();
	if (control & QRNIC_CMD_ENTRY_STATUS_MASK) {
		dev_err(fd->dev, "command 0x%x: status %u, syndrome 0x%x\n", opcode,
			control & QRNIC_CMD_ENTRY_STATUS_MASK, le32_to_cpu(entry->syndrome));
		return -EIO;
	}
	if (result)
		*result = le32_to_cpu(entry->result);
	return 0;
}

/* Stops the device, because its memory is freed afterwards. */
static void stop(void *data)
{
	struct first_driver *fd = data;

	writel(QRNIC_REG_CONTROL_RESET_MASK, fd->registers + QRNIC_REG_CONTROL);
	/*
	 * The read flushes the write, because a read does not pass a posted
	 * write
	 */
	readl(fd->registers + QRNIC_REG_STATUS);
}

/* Step 2: sets up the command ring. */
static int step_commands(struct first_driver *fd)
{
	struct pci_dev *pdev = to_pci_dev(fd->dev);
	const struct qrnic_device_attr *attr;
	dma_addr_t ring;
	int err;

	err = dma_set_mask_and_coherent(fd->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	/*
	 * Bus mastering is enabled only after the reset, because an unreset
	 * device could access memory (spec/initialisation.rst, step 3)
	 */
	pci_set_master(pdev);
	fd->ring = dmam_alloc_coherent(fd->dev, RING_ENTRIES * QRNIC_CMD_ENTRY_SIZE, &ring, GFP_KERNEL);
	fd->mailbox = dmam_alloc_coherent(fd->dev, MAILBOX_BYTES, &fd->mailbox_dma, GFP_KERNEL);
	fd->events = dmam_alloc_coherent(fd->dev, EQ_ENTRIES * QRNIC_EQE_SIZE, &fd->events_dma, GFP_KERNEL);
	if (!fd->ring || !fd->mailbox || !fd->events)
		return -ENOMEM;
	/*
	 * The action is added before the registers are written, so that the
	 * device is stopped before its memory is freed
	 */
	err = devm_add_action_or_reset(fd->dev, stop, fd);
	if (err)
		return err;
	writel(lower_32_bits(ring), fd->registers + QRNIC_REG_CMD_BASE_LO);
	writel(upper_32_bits(ring), fd->registers + QRNIC_REG_CMD_BASE_HI);
	writel(RING_LOG_SIZE, fd->registers + QRNIC_REG_CMD_SIZE);
	writel(QRNIC_REG_CONTROL_CMD_ENABLE_MASK, fd->registers + QRNIC_REG_CONTROL);
	err = command(fd, QRNIC_CMD_QUERY_DEVICE, 0, 0, sizeof(*attr), false, NULL);
	if (err)
		return err;
	attr = fd->mailbox + OUTPUT_OFFSET;
	dev_info(fd->dev, "step 2: at most %u queue pairs, %u CQs, %u memory keys\n",
		 le32_to_cpu(attr->max_qp), le32_to_cpu(attr->max_cq), le32_to_cpu(attr->max_mkey));
	return 0;
}

/*
 * Reports the consumed events to the device, and requests an interrupt for the
 * next event.
 */
static void arm(struct first_driver *fd)
{
	u64 queue = fd->eq | QRNIC_EQ_DOORBELL_ARM_MASK;

	writeq(queue | (u64)fd->consumer << 32, fd->doorbells + QRNIC_DB_EQ);
}

static irqreturn_t interrupt(int irq, void *data)
{
	struct first_driver *fd = data;
	irqreturn_t ret = IRQ_NONE;

	for (;;) {
		struct qrnic_eqe *eqe = &fd->events[fd->consumer % EQ_ENTRIES];
		u32 control = le32_to_cpu(READ_ONCE(eqe->control));
		bool phase = control & QRNIC_EQE_PHASE_MASK;

		/*
		 * The phase alternates with each pass through the ring,
		 * beginning with 1, so it shows if an entry is new
		 */
		if (phase == (fd->consumer >> EQ_LOG_SIZE & 1))
			break;
		dma_rmb();
		fd->consumer++;
		ret = IRQ_HANDLED;
		if ((control & QRNIC_EQE_TYPE_MASK) == QRNIC_EVENT_COMMAND) {
			fd->token = le32_to_cpu(eqe->data);
			complete(&fd->done);
		}
	}
	arm(fd);
	return ret;
}

/* Step 3: sets up an event queue, whose events raise an MSI-X interrupt. */
static int step_interrupts(struct first_driver *fd)
{
	struct pci_dev *pdev = to_pci_dev(fd->dev);
	struct qrnic_eq_ctx *ctx = fd->mailbox;
	int err;

	err = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX);
	if (err < 0)
		return err;
	*ctx = (struct qrnic_eq_ctx) {
		.type = QRNIC_EQ_ASYNC,
		.log_size = EQ_LOG_SIZE,
		.ring.root = cpu_to_le64(fd->events_dma),
	};
	err = command(fd, QRNIC_CMD_CREATE_EQ, 0, sizeof(*ctx), 0, false, &fd->eq);
	if (err)
		return err;
	err = devm_request_irq(fd->dev, pci_irq_vector(pdev, 0), interrupt, 0, KBUILD_MODNAME, fd);
	if (err)
		return err;
	arm(fd);
	err = command(fd, QRNIC_CMD_NOP, 0, 0, 0, true, NULL);
	if (err)
		return err;
	if (fd->consumer != 1 || fd->token != fd->producer - 1)
		return dev_err_probe(fd->dev, -EIO, "%u events, the last of command %u\n", fd->consumer,
				     fd->token);
	dev_info(fd->dev, "step 3: EQ %u reported the end of command %u by an interrupt\n", fd->eq,
		 fd->token);
	return 0;
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct first_driver *fd = devm_kzalloc(&pdev->dev, sizeof(*fd), GFP_KERNEL);
	int err;

	if (!fd)
		return -ENOMEM;
	fd->dev = &pdev->dev;
	init_completion(&fd->done);
	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = pcim_iomap_regions(pdev, BIT(QRNIC_BAR_CONTROL) | BIT(QRNIC_BAR_DOORBELL), KBUILD_MODNAME);
	if (err)
		return dev_err_probe(&pdev->dev, err, "BARs cannot be mapped\n");
	fd->registers = pcim_iomap_table(pdev)[QRNIC_BAR_CONTROL];
	fd->doorbells = pcim_iomap_table(pdev)[QRNIC_BAR_DOORBELL];
	err = step_registers(fd);
	if (!err && steps >= 2)
		err = step_commands(fd);
	if (!err && steps >= 3)
		err = step_interrupts(fd);
	return err;
}

/*
 * Removes the driver. All resources of probe() are managed (devres), so the
 * core releases them.
 */
static void remove(struct pci_dev *pdev)
{
	dev_info(&pdev->dev, "gone\n");
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_DEVICE_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver first_driver = {
	.name = KBUILD_MODNAME,
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};
module_pci_driver(first_driver);

MODULE_LICENSE("Dual BSD/GPL");
MODULE_DESCRIPTION("The first three steps of a driver for the adapter");
