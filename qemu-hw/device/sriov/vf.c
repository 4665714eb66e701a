/*
 * qrnic: a virtual function: type qrnic-vf
 *
 * QEMU realizes the virtual functions together with their physical function
 * (sriov.c). A virtual function has the same registers, commands, doorbells,
 * interrupts and engine as the physical function. The wire is a port of the
 * embedded switch (wire.c). All DMA of the engine has the requester ID of the
 * virtual function.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/module.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "hw/pci/pcie_sriov.h"
#include "compat.h"
#include "device/sriov/sriov.h"

typedef struct QrnicVf {
    QrnicDevice parent_obj;
} QrnicVf;

static void vf_realize(PCIDevice *pci, Error **errp)
{
    QrnicDevice *d = QRNIC_FUNCTION(pci);
    QrnicDevice *pf = QRNIC_FUNCTION(pcie_sriov_get_pf(pci));
    unsigned number = pcie_sriov_vf_number(pci);

    qrnic_sriov_config_vf(pf->sriov, number, &d->config);
    d->ioeventfd = pf->ioeventfd;
    if (!qrnic_function_capabilities(d, errp)) {
        return;
    }
    d->name = g_strdup_printf("%s.vf%u", pf->name, number);
    d->config.name = d->name;
    if (!qrnic_function_bars(d, errp)) {
        qrnic_function_undo(d);
        return;
    }
    pcie_ari_init(pci, QRNIC_PCI_ARI_OFFSET);
    qrnic_function_plug(d);
    qrnic_sriov_attach(pf->sriov, d, QRNIC_ESWITCH_VF(number));
    qrnic_function_start(d);
}

/*
 * Removes the port of a function that a reset of the bus has disabled. QEMU
 * resets the virtual functions first, and disables them in the reset of the
 * physical function, without a further reset.
 */
static void vf_reset_exit(Object *obj, ResetType type)
{
    QrnicDevice *d = QRNIC_FUNCTION(obj);

    if (d->sriov && !PCI_DEVICE(obj)->enabled) {
        qrnic_eswitch_unplug(d->sriov->eswitch, d->port);
    }
}

static void vf_finalize(Object *obj)
{
    qrnic_sriov_unref(QRNIC_FUNCTION(obj)->sriov);
}

static void vf_class_init(ObjectClass *klass, QrnicClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(klass);

    k->realize = vf_realize;
    RESETTABLE_CLASS(klass)->phases.exit = vf_reset_exit;
    k->device_id = QRNIC_PCI_VF_DEVICE_ID;
    dc->desc = "virtual function of a qrnic";
    dc->user_creatable = false;
}

static const TypeInfo vf_info = {
    .name = TYPE_QRNIC_VF,
    .parent = TYPE_QRNIC_FUNCTION,
    .instance_size = sizeof(QrnicVf),
    .instance_finalize = vf_finalize,
    .class_init = vf_class_init,
};

static void vf_register(void)
{
    type_register_static(&vf_info);
}

type_init(vf_register)
