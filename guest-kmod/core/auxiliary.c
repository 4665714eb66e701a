// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * auxiliary.c: the auxiliary device, by which the RDMA part finds the adapter.
 */
#include <linux/idr.h>

#include "core/core.h"

static DEFINE_IDA(qrnic_ida);

static void qrnic_auxdev_release(struct device *device)
{
	struct qrnic_auxdev *auxdev =
		container_of(device, struct qrnic_auxdev, adev.dev);

	ida_free(&qrnic_ida, auxdev->adev.id);
	kfree(auxdev);
}

int qrnic_auxdev_add(struct qrnic_core *core)
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

	/* From here on qrnic_auxdev_release() frees the memory and the number. */
	err = auxiliary_device_add(&auxdev->adev);
	if (err) {
		auxiliary_device_uninit(&auxdev->adev);
		return err;
	}
	/*
	 * auxiliary_device_add() succeeds also when the probe of a loaded driver has
	 * failed. The probe has returned, because the driver does not let the bus probe
	 * asynchronously, whatever the user sets (driver_async_probe=, async_probe).
	 */
	err = auxdev->error;
	if (err) {
		auxiliary_device_delete(&auxdev->adev);
		auxiliary_device_uninit(&auxdev->adev);
		return err;
	}
	core->auxdev = auxdev;
	return 0;
}

void qrnic_auxdev_del(struct qrnic_core *core)
{
	struct qrnic_auxdev *auxdev = core->auxdev;

	if (!auxdev)
		return;
	core->auxdev = NULL;
	auxiliary_device_delete(&auxdev->adev);
	auxiliary_device_uninit(&auxdev->adev);
}
