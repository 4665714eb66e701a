/*
 * qrnic process: the machine type "qrnic-process"
 *
 * The machine has a PCI Express root bus, and neither processors nor RAM.
 * machine_init() creates the bus before -device puts a qrnic on it. When QEMU
 * has created all devices, machine_ready() starts the server. The bus has an
 * address space of its own for DMA, which is the VMM's memory (dma.c).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/module.h"
#include "qapi/error.h"
#include "hw/pci/msi.h"
#include "hw/pci/pci_bus.h"
#include "hw/pci/pci_host.h"
#include "hw/pci/pcie_host.h"
#include "system/reset.h"
#include "system/system.h"
#include "compat.h"
#include "process/process.h"

#define TYPE_QRNIC_PROCESS_HOST "qrnic-process-pcihost"

static const char *root_bus_path(PCIHostState *bridge, PCIBus *bus)
{
    return "0000:00";
}

static void host_realize(DeviceState *dev, Error **errp)
{
    QrnicProcess *p = QRNIC_PROCESS(current_machine);

    p->bus = pci_root_bus_new(dev, "pcie.0", &p->pci_memory, &p->pci_io, 0,
                              TYPE_PCIE_BUS);
    PCI_HOST_BRIDGE(dev)->bus = p->bus;
}

static void host_class_init(ObjectClass *klass, QrnicClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);

    PCI_HOST_BRIDGE_CLASS(klass)->root_bus_path = root_bus_path;
    dc->realize = host_realize;
    dc->user_creatable = false;
    dc->fw_name = "pci";
}

static AddressSpace *dma_space(PCIBus *bus, void *opaque, int devfn)
{
    QrnicProcess *p = opaque;

    return &p->dma.as;
}

static const PCIIOMMUOps iommu_ops = {
    .get_address_space = dma_space,
};

/*
 * The bus has one INTx line without effect, because qrnic has only MSI-X. QEMU
 * requires the line when the guest sets or clears PCI_COMMAND_INTX_DISABLE.
 */
static int map_irq(PCIDevice *pci, int pin)
{
    return 0;
}

static void set_irq(void *opaque, int irq, int level)
{
}

static void count_device(PCIBus *bus, PCIDevice *pci, void *opaque)
{
    unsigned *count = opaque;

    ++*count;
}

static void machine_ready(Notifier *notifier, void *data)
{
    QrnicProcess *p = container_of(notifier, QrnicProcess, ready);
    unsigned count = 0;

    pci_for_each_device_under_bus(p->bus, count_device, &count);
    for (unsigned i = 0; i < PCI_DEVFN_MAX && !p->pci; i++) {
        p->pci = p->bus->devices[i];
    }
    if (p->pci && object_dynamic_cast(OBJECT(p->pci), "qrnic") &&
        object_property_get_uint(OBJECT(p->pci), "vfs", &error_abort)) {
        error_setg(&error_fatal, "qrnic-process: vfio-user has no virtual "
                   "functions: give no property vfs");
        return;
    }
    if (count != 1 || !object_dynamic_cast(OBJECT(p->pci), "qrnic")) {
        error_setg(&error_fatal, "qrnic-process: the machine serves exactly "
                   "one device of the type qrnic, and has %u %s: give one "
                   "-device qrnic", count,
                   count == 1 ? "of another type" : "devices");
        return;
    }
    if (qrnic_vmm_init(p, &error_fatal)) {
        qrnic_server_start(p, &error_fatal);
    }
}

static void machine_init(MachineState *machine)
{
    QrnicProcess *p = QRNIC_PROCESS(machine);
    DeviceState *host;

    if (!p->socket) {
        error_setg(&error_fatal, "qrnic-process: the machine requires the path "
                   "of a socket: give -M qrnic-process,socket=PATH");
        return;
    }
    /* The BARs have no address here, because the VMM places them. */
    memory_region_init(&p->pci_memory, OBJECT(p), "pci-memory", UINT64_MAX);
    memory_region_init(&p->pci_io, OBJECT(p), "pci-io", 64 * 1024);
    qrnic_dma_init(&p->dma, OBJECT(p));

    host = qdev_new(TYPE_QRNIC_PROCESS_HOST);
    object_property_add_child(OBJECT(p), "pcihost", OBJECT(host));
    sysbus_realize_and_unref(SYS_BUS_DEVICE(host), &error_fatal);
    pci_setup_iommu(p->bus, &iommu_ops, p);
    pci_bus_irqs(p->bus, set_irq, p, 1);
    pci_bus_map_irqs(p->bus, map_irq);
    /* msix_init() fails without it. */
    msi_nonbroken = true;

    p->ready.notify = machine_ready;
    qemu_add_machine_init_done_notifier(&p->ready);
}

/*
 * Resets the machine, and then unmasks the vectors. The reset masks them,
 * because the device does not know that a VMM emulates the MSI-X table.
 */
static void machine_reset(MachineState *machine, ResetType type)
{
    qemu_devices_reset(type);
    qrnic_vmm_machine_reset(QRNIC_PROCESS(machine));
}

static char *get_socket(Object *obj, Error **errp)
{
    return g_strdup(QRNIC_PROCESS(obj)->socket);
}

static void set_socket(Object *obj, const char *value, Error **errp)
{
    QrnicProcess *p = QRNIC_PROCESS(obj);

    if (p->server) {
        error_setg(errp, "the socket cannot change while it is in use");
        return;
    }
    g_free(p->socket);
    p->socket = g_strdup(value);
}

static bool get_map_memory(Object *obj, Error **errp)
{
    return QRNIC_PROCESS(obj)->map_memory;
}

static void set_map_memory(Object *obj, bool value, Error **errp)
{
    if (QRNIC_PROCESS(obj)->server) {
        error_setg(errp, "map-memory cannot change while the socket is in use");
        return;
    }
    QRNIC_PROCESS(obj)->map_memory = value;
}

static void machine_class_init(ObjectClass *klass, QrnicClassData *data)
{
    MachineClass *mc = MACHINE_CLASS(klass);

    mc->desc = "serves one qrnic to a VMM by vfio-user";
    mc->init = machine_init;
    mc->reset = machine_reset;
    mc->max_cpus = 1;
    mc->default_ram_size = 0;
    mc->no_serial = 1;
    mc->no_parallel = 1;
    mc->no_floppy = 1;
    mc->no_cdrom = 1;
    object_class_property_add_str(klass, "socket", get_socket, set_socket);
    object_class_property_set_description(klass, "socket",
        "Path of the socket at which VMMs connect");
    object_class_property_add_bool(klass, "map-memory", get_map_memory,
                                   set_map_memory);
    object_class_property_set_description(klass, "map-memory",
        "Offer device memory for mapping; QEMU then waits for the reply to "
        "each write of a register or doorbell");
}

static const TypeInfo machine_types[] = {
    {
        .name = TYPE_QRNIC_PROCESS,
        .parent = TYPE_MACHINE,
        .instance_size = sizeof(QrnicProcess),
        .class_init = machine_class_init,
    },
    {
        .name = TYPE_QRNIC_PROCESS_HOST,
        .parent = TYPE_PCIE_HOST_BRIDGE,
        .instance_size = sizeof(PCIExpressHost),
        .class_init = host_class_init,
    },
};

DEFINE_TYPES(machine_types)
