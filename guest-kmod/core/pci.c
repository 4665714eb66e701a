// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * pci.c: the PCI driver: resources at probe and remove, and going up and down,
 * which recovery, function level reset and suspend do, too.
 */
#include <linux/dmapool.h>
#include <linux/idr.h>

#include "core/core.h"

static DEFINE_IDA(qrnic_ida);
/* Constant while the PCI driver is registered */
static const struct qrnic_function_ops *qrnic_function;

u64 qrnic_clock_ns(struct qrnic_dev *dev)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	unsigned long flags;
	u64 time;

	if (!(dev->caps.capabilities & QRNIC_CAP_TIMESTAMP))
		return 0;
	spin_lock_irqsave(&core->clock_lock, flags);
	time = qrnic_read(core, QRNIC_REG_TIME_LO);
	time |= (u64)qrnic_read(core, QRNIC_REG_TIME_HI) << 32;
	spin_unlock_irqrestore(&core->clock_lock, flags);
	return time;
}
EXPORT_SYMBOL_QRNIC(qrnic_clock_ns);

static void qrnic_auxdev_release(struct device *device)
{
	struct qrnic_auxdev *auxdev =
		container_of(device, struct qrnic_auxdev, adev.dev);

	ida_free(&qrnic_ida, auxdev->adev.id);
	kfree(auxdev);
}

static int qrnic_auxdev_add(struct qrnic_core *core)
{
	struct qrnic_auxdev *auxdev;
	int id, err;

	if (!(core->dev.caps.capabilities & QRNIC_CAP_RC))
		return 0;

	auxdev = kzalloc(sizeof(*auxdev), GFP_KERNEL);
	if (!auxdev)
		return -ENOMEM;
	id = ida_alloc(&qrnic_ida, GFP_KERNEL);
	if (id < 0) {
		kfree(auxdev);
		return id;
	}

	auxdev->qdev = &core->dev;
	auxdev->adev.name = QRNIC_AUX_RDMA;
	auxdev->adev.id = id;
	auxdev->adev.dev.parent = &core->dev.pdev->dev;
	auxdev->adev.dev.release = qrnic_auxdev_release;
	err = auxiliary_device_init(&auxdev->adev);
	if (err) {
		ida_free(&qrnic_ida, id);
		kfree(auxdev);
		return err;
	}

	/* From here on the release function frees. */
	err = auxiliary_device_add(&auxdev->adev);
	if (err) {
		auxiliary_device_uninit(&auxdev->adev);
		return err;
	}
	/* Adding succeeds also when a driver that is loaded has refused it. */
	err = auxdev->error;
	if (err) {
		auxiliary_device_delete(&auxdev->adev);
		auxiliary_device_uninit(&auxdev->adev);
		return err;
	}
	core->auxdev = auxdev;
	return 0;
}

/* Under lock. Ethernet works without; recovery tries again. */
static int qrnic_auxdev_try(struct qrnic_core *core)
{
	int err = qrnic_auxdev_add(core);

	core->auxdev_due = err;
	if (err)
		dev_err(&core->dev.pdev->dev, "no RDMA: error %d\n", err);
	return err;
}

static void qrnic_auxdev_del(struct qrnic_core *core)
{
	struct qrnic_auxdev *auxdev = core->auxdev;

	if (!auxdev)
		return;
	core->auxdev = NULL;
	auxiliary_device_delete(&auxdev->adev);
	auxiliary_device_uninit(&auxdev->adev);
}

static int qrnic_caps_check(struct qrnic_core *core)
{
	struct qrnic_caps *caps = &core->dev.caps;
	struct device *device = &core->dev.pdev->dev;

	if (caps->max_cq < 2 || !caps->max_qp || !caps->max_pd ||
	    !caps->max_mkey || !caps->max_sge || caps->max_eqe < 16 ||
	    caps->max_cqe < 16 || caps->max_qp_wqebb < 16 ||
	    caps->max_qp_recv < 16) {
		dev_err(device,
			"limits too low for the Ethernet function (max_cq %u, max_cqe %u, max_qp_wqebb %u, max_qp_recv %u)\n",
			caps->max_cq, caps->max_cqe, caps->max_qp_wqebb,
			caps->max_qp_recv);
		return -EOPNOTSUPP;
	}
	/* Without room for its BAR the rest works all the same. */
	if (caps->capabilities & QRNIC_CAP_DEVICE_MEMORY &&
	    core->dev.dm_bytes < caps->max_dm_size) {
		dev_warn(device, "no address space for the device memory\n");
		caps->capabilities &= ~(u64)QRNIC_CAP_DEVICE_MEMORY;
		caps->max_dm_size = 0;
	}
	return 0;
}

/* From reset to a device that takes commands and reports events. */
static int qrnic_start(struct qrnic_core *core)
{
	int err;

	err = qrnic_device_reset(core);
	if (err)
		return err;
	/* Not before: what it last knew of memory is no longer true. */
	pci_set_master(core->dev.pdev);
	/* It answers, so it was only out of reach, as in a PCI error. */
	clear_bit(QRNIC_STATE_GONE, &core->state);
	clear_bit(QRNIC_STATE_PCI_ERROR, &core->state);
	clear_bit(QRNIC_STATE_FATAL, &core->state);

	qrnic_cmd_start(core);
	err = qrnic_cmd_query_device(&core->dev, &core->dev.caps);
	if (err)
		goto err_cmd;
	err = qrnic_caps_check(core);
	if (err)
		goto err_cmd;
	err = qrnic_eqs_create(core);
	if (err)
		goto err_cmd;
	err = qrnic_port_update(core);
	if (err)
		goto err_eqs;
	qrnic_health_start(core);
	return 0;

err_eqs:
	qrnic_eqs_destroy(core);
err_cmd:
	qrnic_cmd_stop(core);
	qrnic_device_reset(core);
	return err;
}

static void qrnic_stop(struct qrnic_core *core)
{
	qrnic_health_stop(core);
	qrnic_eqs_destroy(core);
	qrnic_cmd_stop(core);
	if (!test_bit(QRNIC_STATE_GONE, &core->state))
		qrnic_device_reset(core);
}

void qrnic_suspend(struct qrnic_core *core)
{
	mutex_lock(&core->lock);
	if (core->up) {
		qrnic_auxdev_del(core);
		core->function->suspend(core);
		qrnic_stop(core);
		core->up = false;
		core->auxdev_due = false;
	}
	mutex_unlock(&core->lock);
}

int qrnic_resume(struct qrnic_core *core)
{
	int err = 0;

	mutex_lock(&core->lock);
	if (!core->up) {
		err = qrnic_start(core);
		if (err)
			goto unlock;
		err = core->function->resume(core);
		if (err) {
			qrnic_stop(core);
			goto unlock;
		}
		core->up = true;
		core->auxdev_due = true;
	}
	if (core->auxdev_due)
		err = qrnic_auxdev_try(core);
unlock:
	mutex_unlock(&core->lock);
	return err;
}

static int qrnic_identify(struct qrnic_core *core)
{
	struct device *device = &core->dev.pdev->dev;
	u32 id = qrnic_read(core, QRNIC_REG_ID);
	u32 version = qrnic_read(core, QRNIC_REG_VERSION);
	u32 major = FIELD_GET(QRNIC_REG_VERSION_MAJOR_MASK, version);

	if (id != QRNIC_ID_MAGIC)
		return dev_err_probe(device, -ENODEV,
				     "not a qrnic: ID register 0x%x\n", id);
	if (major != QRNIC_HW_VERSION_MAJOR)
		return dev_err_probe(device, -ENODEV,
				     "hardware interface %u, this driver knows %u\n",
				     major, QRNIC_HW_VERSION_MAJOR);
	core->dev.db_pages = qrnic_read(core, QRNIC_REG_DB_PAGES);
	if (core->dev.db_pages > pci_resource_len(core->dev.pdev, QRNIC_BAR_DOORBELL) /
				 QRNIC_DB_PAGE_SIZE)
		return dev_err_probe(device, -ENODEV,
				     "%u doorbell pages do not fit into the BAR\n",
				     core->dev.db_pages);
	return 0;
}

static int qrnic_map(struct qrnic_core *core)
{
	struct pci_dev *pdev = core->dev.pdev;
	struct device *device = &pdev->dev;
	int err;

	err = pci_request_mem_regions(pdev, KBUILD_MODNAME);
	if (err)
		return dev_err_probe(device, err, "BARs are taken\n");

	err = -ENODEV;
	if (pci_resource_len(pdev, QRNIC_BAR_CONTROL) < QRNIC_BAR_CONTROL_SIZE ||
	    pci_resource_len(pdev, QRNIC_BAR_DOORBELL) < QRNIC_DB_PAGE_SIZE) {
		dev_err_probe(device, err, "BARs are missing or too small\n");
		goto err_regions;
	}
	core->regs = pci_iomap(pdev, QRNIC_BAR_CONTROL, QRNIC_BAR_CONTROL_SIZE);
	core->dev.db_phys = pci_resource_start(pdev, QRNIC_BAR_DOORBELL);
	core->dev.dm_phys = pci_resource_start(pdev, QRNIC_BAR_MEMORY);
	core->dev.dm_bytes = pci_resource_len(pdev, QRNIC_BAR_MEMORY);
	core->dev.db = pci_iomap(pdev, QRNIC_BAR_DOORBELL, QRNIC_DB_PAGE_SIZE);
	if (!core->regs || !core->dev.db) {
		err = dev_err_probe(device, -ENOMEM, "BARs cannot be mapped\n");
		goto err_unmap;
	}
	err = qrnic_identify(core);
	if (err)
		goto err_unmap;
	return 0;

err_unmap:
	if (core->dev.db)
		pci_iounmap(pdev, core->dev.db);
	if (core->regs)
		pci_iounmap(pdev, core->regs);
err_regions:
	pci_release_mem_regions(pdev);
	return err;
}

static void qrnic_unmap(struct qrnic_core *core)
{
	pci_iounmap(core->dev.pdev, core->dev.db);
	pci_iounmap(core->dev.pdev, core->regs);
	pci_release_mem_regions(core->dev.pdev);
}

/* Vectors and host memory that stay through resets of the device */
static int qrnic_resources_alloc(struct qrnic_core *core)
{
	struct pci_dev *pdev = core->dev.pdev;
	int err, vectors;

	vectors = min_t(u32, qrnic_read(core, QRNIC_REG_VECTORS),
			1 + num_online_cpus());
	if (vectors < 2)
		return dev_err_probe(&pdev->dev, -ENOSPC,
				     "the device has fewer than 2 MSI-X vectors\n");
	vectors = pci_alloc_irq_vectors(pdev, 2, vectors, PCI_IRQ_MSIX);
	if (vectors < 0)
		return dev_err_probe(&pdev->dev, vectors,
				     "no MSI-X vectors, 2 are needed\n");
	core->num_irqs = vectors;

	err = -ENOMEM;
	core->eqs = kcalloc(vectors, sizeof(*core->eqs), GFP_KERNEL);
	if (!core->eqs)
		goto err_vectors;
	/* A cache line each, so that queues do not disturb each other. */
	core->records = dma_pool_create("qrnic records", &pdev->dev,
					QRNIC_RECORD_SIZE, SMP_CACHE_BYTES, 0);
	if (!core->records)
		goto err_eqs;
	err = qrnic_cmd_alloc(core);
	if (err)
		goto err_records;
	return 0;

err_records:
	dma_pool_destroy(core->records);
err_eqs:
	kfree(core->eqs);
err_vectors:
	pci_free_irq_vectors(pdev);
	return err;
}

static void qrnic_resources_free(struct qrnic_core *core)
{
	qrnic_cmd_free(core);
	dma_pool_destroy(core->records);
	kfree(core->eqs);
	pci_free_irq_vectors(core->dev.pdev);
}

static struct qrnic_core *qrnic_core_alloc(struct pci_dev *pdev)
{
	struct qrnic_core *core = qrnic_devlink_alloc(pdev);

	if (!core)
		return NULL;
	core->dev.pdev = pdev;
	core->function = qrnic_function;
	core->dev.wq = alloc_workqueue("qrnic-%s", WQ_MEM_RECLAIM | WQ_UNBOUND,
				       0, pci_name(pdev));
	if (!core->dev.wq) {
		qrnic_devlink_free(core);
		return NULL;
	}
	mutex_init(&core->lock);
	spin_lock_init(&core->clock_lock);
	qrnic_events_init(core);
	qrnic_health_init(core);
	return core;
}

static void qrnic_core_free(struct qrnic_core *core)
{
	/* A fatal error may have scheduled it as late as in the last command. */
	cancel_work_sync(&core->event_work);
	destroy_workqueue(core->dev.wq);
	kfree(core->saved_state);
	kvfree(core->async_buffer);
	xa_destroy(&core->cqs);
	qrnic_devlink_free(core);
}

static int qrnic_enable(struct pci_dev *pdev)
{
	int err;

	err = pci_enable_device_mem(pdev);
	if (err)
		return dev_err_probe(&pdev->dev, err, "cannot be enabled\n");
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err) {
		pci_disable_device(pdev);
		return dev_err_probe(&pdev->dev, err, "no 64-bit DMA\n");
	}
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	return 0;
}

static int qrnic_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct qrnic_core *core;
	int err;

	core = qrnic_core_alloc(pdev);
	if (!core)
		return -ENOMEM;
	pci_set_drvdata(pdev, core);

	err = qrnic_enable(pdev);
	if (err)
		goto err_core;
	err = qrnic_map(core);
	if (err)
		goto err_disable;
	err = qrnic_resources_alloc(core);
	if (err)
		goto err_unmap;
	/* For recovery, without DMA: that is allowed after the reset. */
	pci_clear_master(pdev);
	pci_save_state(pdev);
	core->saved_state = pci_store_saved_state(pdev);
	if (!core->saved_state) {
		err = -ENOMEM;
		goto err_resources;
	}
	err = qrnic_start(core);
	if (err) {
		dev_err_probe(&pdev->dev, err, "the device does not start\n");
		goto err_resources;
	}
	err = core->function->create(core);
	if (err) {
		dev_err_probe(&pdev->dev, err, "no Ethernet function\n");
		goto err_stop;
	}

	mutex_lock(&core->lock);
	core->up = true;
	qrnic_auxdev_try(core);
	mutex_unlock(&core->lock);
	qrnic_devlink_register(core);
	qrnic_recovery_enable(core);
	return 0;

err_stop:
	qrnic_stop(core);
err_resources:
	qrnic_resources_free(core);
err_unmap:
	qrnic_unmap(core);
err_disable:
	pci_disable_device(pdev);
err_core:
	qrnic_core_free(core);
	return err;
}

static void qrnic_remove(struct pci_dev *pdev)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	qrnic_recovery_disable(core);
	qrnic_devlink_unregister(core);
	/* So that nothing below waits for the answers of a device that is gone */
	if (!pci_device_is_present(pdev))
		qrnic_report_fatal(&core->dev, "unplugged");

	qrnic_auxdev_del(core);
	core->function->destroy(core);
	if (core->up)
		qrnic_stop(core);
	qrnic_resources_free(core);
	qrnic_unmap(core);
	pci_disable_device(pdev);
	qrnic_core_free(core);
}

/* Before a reboot or kexec: the next kernel finds a silent device. */
static void qrnic_shutdown(struct pci_dev *pdev)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	qrnic_down(core);
	pci_clear_master(pdev);
}

static int qrnic_pm_suspend(struct device *device)
{
	qrnic_down(dev_get_drvdata(device));
	return 0;
}

static int qrnic_pm_resume(struct device *device)
{
	struct qrnic_core *core = dev_get_drvdata(device);

	/* As after a reset, health.c */
	pci_save_state(core->dev.pdev);
	return qrnic_up(core);
}

static DEFINE_SIMPLE_DEV_PM_OPS(qrnic_pm_ops, qrnic_pm_suspend, qrnic_pm_resume);

static const struct pci_device_id qrnic_ids[] = {
	{ PCI_DEVICE(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_DEVICE_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, qrnic_ids);

static struct pci_driver qrnic_driver = {
	.name = KBUILD_MODNAME,
	.id_table = qrnic_ids,
	.probe = qrnic_probe,
	.remove = qrnic_remove,
	.shutdown = qrnic_shutdown,
	.driver.pm = pm_sleep_ptr(&qrnic_pm_ops),
	.err_handler = &qrnic_error_handlers,
};

int qrnic_register(const struct qrnic_function_ops *function)
{
	qrnic_function = function;
	return pci_register_driver(&qrnic_driver);
}

void qrnic_unregister(void)
{
	pci_unregister_driver(&qrnic_driver);
}
