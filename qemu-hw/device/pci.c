/*
 * qrnic: the PCI Express function: the parts that the physical function and a
 * virtual function have in common
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * At realize, the file of the type (pf.c, sriov/vf.c) fills in d->config. Then
 * it calls qrnic_function_capabilities(), qrnic_function_bars() and
 * qrnic_function_plug(), sets d->wire, and calls qrnic_function_start().
 * qrnic_function_exit() destroys the parts at unplug. The engine and the port
 * stay until device_finalize(), because an operation of the engine may cause
 * the unplug. After realize, QEMU calls the reset, config_write() and
 * run_state_changed(); all other calls reach the other files of the device.
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "migration/vmstate.h"
#include "system/runstate.h"
#include "trace.h"
#include "compat.h"
#include "device/capture.h"
#include "device/faces.h"
#include "device/parts.h"

/* Offsets in the configuration space; QRNIC_PCI_PM_OFFSET is in device.h */
#define CAP_EXPRESS 0x50
#define CAP_MSIX 0x90
#define ECAP_AER 0x100

/*
 * Runs the device. A nested call is possible here, because QEMU's guard of a
 * bottom half only traces such calls.
 */
static void device_bh(void *opaque)
{
    qrnic_work(opaque);
}

/*
 * Max_Payload_Size and Max_Read_Request_Size have no effect on the emulated
 * bus, but captures divide requests by them.
 */
#define SIZES (PCI_EXP_DEVCTL_PAYLOAD | PCI_EXP_DEVCTL_READRQ)
#define PAYLOAD_512B 2          /* Max_Payload_Size Supported */

static void sizes_set(PCIDevice *pci, uint16_t sizes)
{
    uint8_t *control = pci->config + pci->exp.exp_cap + PCI_EXP_DEVCTL;

    pci_set_word(control, (pci_get_word(control) & ~SIZES) | sizes);
}

static void device_reset_hold(Object *obj, ResetType type)
{
    sizes_set(PCI_DEVICE(obj), PCI_EXP_DEVCTL_READRQ_512B);
    qrnic_translation_reset(QRNIC_FUNCTION(obj));
    qrnic_device_reset(QRNIC_FUNCTION(obj));
}

/* Handles a Function Level Reset, which keeps Max_Payload_Size. */
static void flr_write(PCIDevice *pci, uint32_t addr, uint32_t value, int len)
{
    const uint8_t *control = pci->config + pci->exp.exp_cap + PCI_EXP_DEVCTL;
    uint16_t payload = pci_get_word(control) & PCI_EXP_DEVCTL_PAYLOAD;
    uint16_t reads;

    pcie_cap_flr_write_config(pci, addr, value, len);
    reads = pci_get_word(control) & PCI_EXP_DEVCTL_READRQ;
    sizes_set(pci, payload | reads);
}

static void config_write(PCIDevice *pci, uint32_t addr, uint32_t value,
                         int len)
{
    QrnicDevice *d = QRNIC_FUNCTION(pci);
    bool was_master = qrnic_bus_master(d), was_asleep = qrnic_asleep(d);

    if (d->capture) {
        qrnic_capture_config(d, addr, len, value, true);
    }
    pci_default_write_config(pci, addr, value, len);
    flr_write(pci, addr, value, len);
    pcie_aer_write_config(pci, addr, value, len);
    qrnic_translation_configured(d);
    if (was_asleep != qrnic_asleep(d)) {
        trace_qrnic_power(d->name, was_asleep ? "D0" : "D3hot");
    }
    /*
     * Continues pending work, because frames are accepted or dropped from now
     * on.
     */
    if (was_master != qrnic_bus_master(d) ||
        was_asleep != qrnic_asleep(d)) {
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        qrnic_kick(d);
    }
}

static uint32_t config_read(PCIDevice *pci, uint32_t addr, int len)
{
    QrnicDevice *d = QRNIC_FUNCTION(pci);
    uint32_t value;

    qrnic_translation_status(d);
    value = pci_default_read_config(pci, addr, len);
    if (d->capture) {
        qrnic_capture_config(d, addr, len, value, false);
    }
    return value;
}

/*
 * Stops the device while the VM is stopped, because its RAM is saved or
 * inspected during that time.
 */
static void run_state_changed(void *opaque, bool running, RunState state)
{
    QrnicDevice *d = opaque;

    trace_qrnic_run_state(d->name, running);
    d->vm_running = running;
    if (running) {
        qrnic_kick(d);
    }
}

/* Realize and unrealize */

/*
 * Creates the power management capability. The device keeps its whole state in
 * D3hot.
 */
static bool pm_init(PCIDevice *pci, Error **errp)
{
    const unsigned pm = QRNIC_PCI_PM_OFFSET;

    if (pci_pm_init(pci, pm, errp) < 0) {
        return false;
    }
    pci_set_word(pci->config + pm + PCI_PM_PMC, PCI_PM_CAP_VER_1_2);
    pci_set_word(pci->config + pm + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET);
    pci_set_word(pci->wmask + pm + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK);
    return true;
}

static bool express_init(PCIDevice *pci, Error **errp)
{
    if (pcie_endpoint_cap_init(pci, CAP_EXPRESS) < 0) {
        error_setg(errp, "qrnic: no room for the PCI Express capability");
        return false;
    }
    pcie_cap_flr_init(pci);
    pcie_cap_deverr_init(pci);
    pci_long_test_and_set_mask(pci->config + CAP_EXPRESS + PCI_EXP_DEVCAP,
                               PAYLOAD_512B);
    pci_word_test_and_set_mask(pci->wmask + CAP_EXPRESS + PCI_EXP_DEVCTL,
                               SIZES);
    sizes_set(pci, PCI_EXP_DEVCTL_READRQ_512B);
    if (pcie_aer_init(pci, PCI_ERR_VER, ECAP_AER, PCI_ERR_SIZEOF, errp) < 0) {
        pcie_cap_exit(pci);
        return false;
    }
    return true;
}

bool qrnic_function_capabilities(QrnicDevice *d, Error **errp)
{
    PCIDevice *pci = PCI_DEVICE(d);

    if (!pm_init(pci, errp) || !express_init(pci, errp)) {
        return false;
    }
    if (!qrnic_translation_init(d, errp) ||
        !qrnic_interrupts_init(d, CAP_MSIX, errp)) {
        qrnic_translation_cleanup(d);
        pcie_aer_exit(pci);
        pcie_cap_exit(pci);
        return false;
    }
    return true;
}

void qrnic_function_undo(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);

    qrnic_capture_stop(d);
    qrnic_doorbell_events_cleanup(d);
    g_free(d->name);
    d->name = NULL;
    qrnic_interrupts_cleanup(d);
    qrnic_translation_cleanup(d);
    pcie_aer_exit(pci);
    pcie_cap_exit(pci);
}

bool qrnic_function_bars(QrnicDevice *d, Error **errp)
{
    return qrnic_mmio_init(d, errp) && qrnic_doorbell_events_init(d, errp);
}

void qrnic_function_plug(QrnicDevice *d)
{
    d->bh = qemu_bh_new_guarded(device_bh, d,
                                &DEVICE(d)->mem_reentrancy_guard);
    qrnic_state_plug(d);
    qrnic_engine_plug(d);
    qrnic_port_init(d);
}

void qrnic_function_start(QrnicDevice *d)
{
    qrnic_port_set_link(d, d->wire->link(d));
    d->vm_running = runstate_is_live(runstate_get());
    d->run_state = qrnic_add_vm_change_state_handler(DEVICE(d),
                                                     run_state_changed, d);
    trace_qrnic_realize(d->name, d->config.capabilities, d->config.vectors,
                        d->config.db_pages, d->config.doorbell_fifo);
}

/*
 * Destroys all parts except the engine and the port, because the call may come
 * from within the engine.
 */
void qrnic_function_exit(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);

    trace_qrnic_unrealize(d->name);
    qemu_del_vm_change_state_handler(d->run_state);
    qemu_bh_delete(d->bh);
    qrnic_unplug(d);
    qrnic_doorbell_events_cleanup(d);
    timer_del(d->timer);
    qrnic_port_stop(d);
    qrnic_interrupts_cleanup(d);
    qrnic_translation_cleanup(d);
    pcie_aer_exit(pci);
    pcie_cap_exit(pci);
}

static void device_exit(PCIDevice *pci)
{
    qrnic_function_exit(QRNIC_FUNCTION(pci));
}

static void device_finalize(Object *obj)
{
    QrnicDevice *d = QRNIC_FUNCTION(obj);

    qrnic_port_cleanup(d);
    qrnic_engine_free(d->engine);
    qrnic_capture_stop(d);
    timer_free(d->timer);
    qrnic_stop_cleanup(d);
    g_free(d->name);
}

/* Type */

static const VMStateDescription device_vmstate = {
    .name = TYPE_QRNIC_FUNCTION,
    .unmigratable = 1,
};

static void device_class_init(ObjectClass *klass, QrnicClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(klass);
    ResettableClass *rc = RESETTABLE_CLASS(klass);

    k->exit = device_exit;
    k->config_read = config_read;
    k->config_write = config_write;
    k->vendor_id = QRNIC_PCI_VENDOR_ID;
    k->revision = QRNIC_PCI_REVISION;
    k->class_id = QRNIC_PCI_CLASS >> 8;
    rc->phases.hold = device_reset_hold;
    dc->vmsd = &device_vmstate;
    qrnic_reports_add(klass);
    set_bit(DEVICE_CATEGORY_NETWORK, dc->categories);
}

static const TypeInfo device_info = {
    .name = TYPE_QRNIC_FUNCTION,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(QrnicDevice),
    .instance_finalize = device_finalize,
    .abstract = true,
    .class_init = device_class_init,
    .interfaces = (QrnicInterfaceInfo[]) {
        { INTERFACE_PCIE_DEVICE },
        { }
    },
};

static void device_register(void)
{
    type_register_static(&device_info);
}

type_init(device_register)
