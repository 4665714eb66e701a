// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * pci.c: the PCI driver. This file owns the resources that exist from probe to
 * remove: the mapped BARs, the interrupt vectors, the command ring and struct
 * qrnic_core.
 *
 * The PCI core serialises the calls of probe, remove and shutdown, of system
 * suspend and resume, and of the handlers of PCI errors and resets. First probe
 * makes the resources, then it starts the adapter (state.c), and enables
 * recovery last. Later remove disables recovery first, and then undoes each
 * step in reverse order. The other callbacks stop the adapter by qrnic_down()
 * and start it again by qrnic_up() (recovery.c).
 */
#include <linux/dmapool.h>
#include <net/devlink.h>

#include "core/core.h"

/* Operations of the function; constant once the PCI driver is registered */
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

/*
 * Checks that the registers belong to a qrnic with a known interface, and reads
 * the number of doorbell pages.
 */
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
				     "hardware interface version %u, the driver supports %u\n",
				     major, QRNIC_HW_VERSION_MAJOR);
	core->dev.db_pages = qrnic_read(core, QRNIC_REG_DB_PAGES);
	if (core->dev.db_pages > pci_resource_len(core->dev.pdev, QRNIC_BAR_DOORBELL) /
				 QRNIC_DB_PAGE_SIZE)
		return dev_err_probe(device, -ENODEV,
				     "%u doorbell pages do not fit into the BAR\n",
				     core->dev.db_pages);
	return 0;
}

/* Maps the BARs, and identifies the device. */
static int qrnic_map(struct qrnic_core *core)
{
	struct pci_dev *pdev = core->dev.pdev;
	struct device *device = &pdev->dev;
	int err;

	err = pci_request_mem_regions(pdev, KBUILD_MODNAME);
	if (err)
		return dev_err_probe(device, err, "BARs are in use by another driver\n");

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

/*
 * Allocates interrupt vectors and host memory, which stay through resets of the
 * device.
 */
static int qrnic_resources_alloc(struct qrnic_core *core)
{
	struct pci_dev *pdev = core->dev.pdev;
	int err, i, vectors;

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
	for (i = 0; i < vectors; i++)
		spin_lock_init(&core->eqs[i].lock);
	/*
	 * Each record has a cache line of its own, so that queues do not slow
	 * each other down.
	 */
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

/* Allocates the structure of the adapter, its workqueues and its locks. */
static struct qrnic_core *qrnic_core_alloc(struct pci_dev *pdev)
{
	struct qrnic_core *core = qrnic_devlink_alloc(pdev);

	if (!core)
		return NULL;
	core->dev.pdev = pdev;
	core->function = qrnic_function;
	core->dev.event_wq = alloc_workqueue("qrnic-events-%s",
					     WQ_MEM_RECLAIM | WQ_UNBOUND, 0,
					     pci_name(pdev));
	if (!core->dev.event_wq)
		goto err_devlink;
	core->dev.wq = alloc_workqueue("qrnic-%s", WQ_UNBOUND, 0, pci_name(pdev));
	if (!core->dev.wq)
		goto err_event_wq;
	mutex_init(&core->lock);
	mutex_init(&core->sriov_lock);
	spin_lock_init(&core->clock_lock);
	qrnic_fatal_init(core);
	qrnic_events_init(core);
	qrnic_recovery_init(core);
	return core;

err_event_wq:
	destroy_workqueue(core->dev.event_wq);
err_devlink:
	qrnic_devlink_free(core);
	return NULL;
}

static void qrnic_core_free(struct qrnic_core *core)
{
	/*
	 * Needed because a fatal error in the last command may have queued
	 * event_work.
	 */
	cancel_work_sync(&core->event_work);
	destroy_workqueue(core->dev.wq);
	destroy_workqueue(core->dev.event_wq);
	kfree(core->saved_state);
	kvfree(core->async_buffer);
	xa_destroy(&core->cqs);
	qrnic_devlink_free(core);
}

/* Enables the device and 64-bit DMA. */
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
	/*
	 * Recovery restores this state. DMA is disabled in it, because recovery
	 * must enable DMA only after the reset.
	 */
	pci_clear_master(pdev);
	pci_save_state(pdev);
	core->saved_state = pci_store_saved_state(pdev);
	if (!core->saved_state) {
		err = -ENOMEM;
		goto err_resources;
	}
	err = qrnic_bring_up(core);
	if (err)
		goto err_resources;
	qrnic_debugfs_add(core);
	qrnic_devlink_register(core);
	qrnic_recovery_enable(core);
	return 0;

err_resources:
	qrnic_resources_free(core);
err_unmap:
	qrnic_unmap(core);
err_disable:
	pci_disable_device(pdev);
err_core:
	/*
	 * A virtual function is absent from a reset of its physical function
	 * until the recovery. The probe is deferred, because the recovery adds
	 * an auxiliary device, and the kernel then repeats deferred probes.
	 * The condition shows a reset whose recovery has ended by now.
	 */
	if (pdev->is_virtfn && (qrnic_config_absent(core) ||
				READ_ONCE(core->condition) > QRNIC_FATAL))
		err = -EPROBE_DEFER;
	qrnic_core_free(core);
	return err;
}

static void qrnic_remove(struct pci_dev *pdev)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	qrnic_recovery_disable(core);
	/*
	 * Fails all commands from now on, so that no call below waits for a
	 * device that is gone.
	 */
	if (qrnic_config_absent(core))
		qrnic_report_fatal(&core->dev, "unplugged");
	qrnic_devlink_unregister(core);
	/*
	 * The virtual functions are disabled only now, because a recovery
	 * restores the SR-IOV capability.
	 */
	pci_disable_sriov(pdev);

	qrnic_debugfs_del(core);
	qrnic_take_down(core);
	qrnic_resources_free(core);
	qrnic_unmap(core);
	pci_disable_device(pdev);
	qrnic_core_free(core);
}

/*
 * Stops the adapter before a reboot or kexec, so that the next kernel finds a
 * device without DMA.
 */
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

	/*
	 * The state is saved again, because the PCI core uses up a saved state
	 * when it restores it.
	 */
	pci_save_state(core->dev.pdev);
	return qrnic_up(core);
}

static DEFINE_SIMPLE_DEV_PM_OPS(qrnic_pm_ops, qrnic_pm_suspend, qrnic_pm_resume);

/*
 * Reacts to a PCI error. Returns PCI_ERS_RESULT_CAN_RECOVER and does nothing if
 * the link works. Otherwise stops the adapter, and returns
 * PCI_ERS_RESULT_NEED_RESET, so that the PCI core resets the slot. If the
 * failure of the link is permanent, the adapter stays down.
 */
static pci_ers_result_t qrnic_error_detected(struct pci_dev *pdev,
					     pci_channel_state_t state)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	qrnic_report_fatal(&core->dev, "PCI error");
	qrnic_down(core);
	if (state == pci_channel_io_perm_failure)
		return PCI_ERS_RESULT_DISCONNECT;

	qrnic_await_pci(core);
	return PCI_ERS_RESULT_NEED_RESET;
}

/* Restores the configuration space after the PCI core has reset the slot. */
static pci_ers_result_t qrnic_slot_reset(struct pci_dev *pdev)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);
	int err;

	qrnic_recovery_disable(core);
	/*
	 * A recovery that a user has requested may still run, and the restore
	 * would fail while that recovery holds sriov_lock.
	 */
	mutex_lock(&core->lock);
	err = qrnic_config_restore(core);
	mutex_unlock(&core->lock);
	return err ? PCI_ERS_RESULT_DISCONNECT : PCI_ERS_RESULT_RECOVERED;
}

/* Starts the adapter after PCI error recovery. */
static void qrnic_error_resume(struct pci_dev *pdev)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	qrnic_recovery_disable(core);
	qrnic_up(core);
}

/* Stops the adapter before a function level reset that a user has requested. */
static void qrnic_reset_prepare(struct pci_dev *pdev)
{
	qrnic_down(pci_get_drvdata(pdev));
}

/*
 * Starts the adapter after a function level reset. The state is saved again,
 * because the PCI core uses up a saved state when it restores it.
 */
static void qrnic_reset_done(struct pci_dev *pdev)
{
	pci_save_state(pdev);
	qrnic_up(pci_get_drvdata(pdev));
}

/*
 * Returns true if a reset has cleared the configuration space since it was last
 * restored. MSI-X Enable is set from probe to remove, a reset clears it, and
 * only a restore sets it again. The kernel sets other bits in other places, for
 * example COMMAND.MEMORY when it enables virtual functions.
 */
static bool qrnic_was_reset(struct pci_dev *pdev)
{
	u16 flags;

	pci_read_config_word(pdev, pdev->msix_cap + PCI_MSIX_FLAGS, &flags);
	return !(flags & PCI_MSIX_FLAGS_ENABLE);
}

/*
 * Enables num virtual functions. Returns num or a negative errno; -EAGAIN if
 * the physical function has not recovered from a reset, or is reset during the
 * call.
 */
static int qrnic_sriov_enable(struct pci_dev *pdev, int num)
{
	int result;

	/*
	 * The reset has cleared the BARs of virtual functions, and the recovery
	 * does not restore the BARs if virtual functions are enabled already.
	 */
	if (qrnic_was_reset(pdev))
		return -EAGAIN;
	result = pci_sriov_configure_simple(pdev, num);
	if (!qrnic_was_reset(pdev))
		return result;
	/*
	 * A reset before VF Enable has cleared the BARs of the virtual
	 * functions. A later reset has disabled the virtual functions while the
	 * PCI core added them. Then the PCI core has found no function and
	 * returned an error, or functions without capabilities, for which it
	 * does not search again. So all are removed.
	 */
	pci_disable_sriov(pdev);
	return -EAGAIN;
}

/*
 * Enables num virtual functions, or disables all with 0. A recovery writes the
 * SR-IOV capability as the PCI core remembers it, but the PCI core updates its
 * copy in several steps. So the function holds sriov_lock, and no recovery
 * restores the capability meanwhile. The function does not hold the devlink
 * lock or core->lock, because every recovery needs them. Otherwise a recovery
 * would also wait for a program that has opened a virtual function by vfio-pci.
 * The PCI core calls the function under the lock of the device, which also
 * prevents resets and PCI errors. Returns the number of enabled functions, or a
 * negative errno.
 */
static int qrnic_sriov_configure(struct pci_dev *pdev, int num)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);
	int result;

	mutex_lock(&core->sriov_lock);
	result = num ? qrnic_sriov_enable(pdev, num) :
		       pci_sriov_configure_simple(pdev, 0);
	mutex_unlock(&core->sriov_lock);
	qrnic_recovery_hasten(core);
	return result;
}

static const struct pci_error_handlers qrnic_error_handlers = {
	.error_detected = qrnic_error_detected,
	.slot_reset = qrnic_slot_reset,
	.resume = qrnic_error_resume,
	.reset_prepare = qrnic_reset_prepare,
	.reset_done = qrnic_reset_done,
};

static const struct pci_device_id qrnic_ids[] = {
	{ PCI_DEVICE(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_DEVICE_ID) },
	{ PCI_DEVICE(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_VF_DEVICE_ID) },
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
	.sriov_configure = qrnic_sriov_configure,
};

/* module.c calls the next two functions at load and unload of the module. */
int qrnic_register(const struct qrnic_function_ops *function)
{
	int err;

	qrnic_function = function;
	qrnic_debugfs_init();
	err = pci_register_driver(&qrnic_driver);
	if (err)
		qrnic_debugfs_exit();
	return err;
}

void qrnic_unregister(void)
{
	pci_unregister_driver(&qrnic_driver);
	qrnic_debugfs_exit();
}
