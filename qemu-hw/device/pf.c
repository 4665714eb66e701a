/*
 * qrnic: the physical function: type qrnic
 *
 * pf_realize() checks the properties and creates the parts of the device in the
 * order of their dependencies. The virtual functions are created last, because
 * they use the configuration of the physical function and its switch. At unplug
 * they are destroyed first. Manual, chapters "PCI" and "Virtual functions".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "hw/pci/pci.h"
#include "hw/pci/pci_bridge.h"
#include "hw/pci/pci_bus.h"
#include "hw/pci/pcie.h"
#include "hw/pci/pcie_sriov.h"
#include "compat.h"
#include "device/capture.h"
#include "device/faces.h"
#include "device/sriov/sriov.h"

/* Offset in the configuration space */
#define ECAP_SERIAL 0x150

/*
 * Warns if the BARs of one type exceed the window of the port above, which the
 * running guest has already set. The BARs of virtual functions count, too.
 */
static void check_window_of(QrnicPf *pf, PCIDevice *port, uint8_t type)
{
    PCIDevice *pci = PCI_DEVICE(pf);
    bool prefetchable = type & PCI_BASE_ADDRESS_MEM_PREFETCH;
    uint64_t base = pci_bridge_get_base(port, type);
    uint64_t limit = pci_bridge_get_limit(port, type);
    uint64_t window = limit > base ? limit - base + 1 : 0;
    uint64_t needed = pf->vfs ? qrnic_sriov_window(pf, prefetchable) : 0;

    for (unsigned i = 0; i < PCI_NUM_REGIONS; i++) {
        if ((pci->io_regions[i].type & PCI_BASE_ADDRESS_MEM_PREFETCH) == type) {
            needed += pci->io_regions[i].size;
        }
    }
    if (window < needed) {
        warn_report("qrnic '%s': properties %s require %" PRIu64 " KiB of "
                    "%s address space, but its port has a window of "
                    "%" PRIu64 " KiB: set %s=%" PRIu64 "M of the "
                    "pcie-root-port", pf->parent_obj.name,
                    prefetchable ? "'doorbell-pages', 'device-memory-size' and "
                    "'vfs'" : "'vfs'", needed / KiB,
                    prefetchable ? "prefetchable" : "non-prefetchable",
                    window / KiB,
                    prefetchable ? "pref64-reserve" : "mem-reserve",
                    pow2ceil(DIV_ROUND_UP(needed, MiB)));
    }
}

/*
 * Checks both windows of the port above. An empty port has windows of 2 MiB, in
 * which the defaults fit. A device that is present from the start needs no
 * check, because the firmware makes the windows large enough. Without virtual
 * functions, the non-prefetchable BARs fit in any window.
 */
static void check_window(QrnicPf *pf)
{
    PCIDevice *port = pci_bridge_get_device(pci_get_bus(PCI_DEVICE(pf)));

    if (!DEVICE(pf)->hotplugged || !port ||
        !(pci_get_word(port->config + PCI_COMMAND) & PCI_COMMAND_MEMORY)) {
        return;
    }
    check_window_of(pf, port, PCI_BASE_ADDRESS_MEM_PREFETCH);
    if (pf->vfs) {
        check_window_of(pf, port, 0);
    }
}

static void pf_realize(PCIDevice *pci, Error **errp)
{
    QrnicPf *pf = QRNIC(pci);
    QrnicDevice *d = &pf->parent_obj;
    DeviceState *dev = DEVICE(pci);

    if (!qrnic_properties_check(pf, errp) ||
        !qrnic_function_capabilities(d, errp)) {
        return;
    }
    qemu_macaddr_default_if_unset(&pf->conf.macaddr);
    pcie_dev_ser_num_init(pci, ECAP_SERIAL, qrnic_eui64(pf->conf.macaddr.a));
    d->name = dev->id ? g_strdup(dev->id) :
              g_strdup_printf("%s.%x", pci_get_bus(pci)->qbus.name,
                              pci->devfn);
    qrnic_config_fill(pf);
    if (!qrnic_capture_start(d, pf->capture_path, pf->capture_qp, errp) ||
        !qrnic_function_bars(d, errp) ||
        (pf->cable && !qrnic_cable_plug(pf, errp))) {
        qrnic_function_undo(d);
        return;
    }
    qrnic_function_plug(d);
    if (pf->vfs) {
        qrnic_sriov_start(pf);
    } else if (!pf->cable) {
        qrnic_net_init(pf);
    }
    qrnic_function_start(d);
    check_window(pf);
    if (pf->vfs && !qrnic_sriov_create_vfs(pf, errp)) {
        qrnic_function_exit(d);
    }
}

static void pf_exit(PCIDevice *pci)
{
    QrnicPf *pf = QRNIC(pci);

    /* The virtual functions use the wire of the physical function. */
    pcie_sriov_pf_exit(pci);
    qrnic_function_exit(&pf->parent_obj);
}

static void pf_finalize(Object *obj)
{
    qrnic_sriov_unref(QRNIC_FUNCTION(obj)->sriov);
}

static void pf_class_init(ObjectClass *klass, QrnicClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(klass);

    k->realize = pf_realize;
    k->exit = pf_exit;
    k->device_id = QRNIC_PCI_DEVICE_ID;
    dc->desc = "RoCE RDMA adapter that exists only in QEMU";
    qrnic_properties_add(klass);
}

static const TypeInfo pf_info = {
    .name = TYPE_QRNIC,
    .parent = TYPE_QRNIC_FUNCTION,
    .instance_size = sizeof(QrnicPf),
    .instance_finalize = pf_finalize,
    .class_init = pf_class_init,
};

static void pf_register(void)
{
    type_register_static(&pf_info);
}

type_init(pf_register)
