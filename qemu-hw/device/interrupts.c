/*
 * qrnic: interrupts (MSI-X)
 *
 * pci.c creates the vectors at realize. The engine sends an interrupt through
 * qrnic_notify(). MSI-X keeps the state of masked and pending vectors.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/pci/msi.h"
#include "hw/pci/msix.h"
#include "trace.h"
#include "device/parts.h"

bool qrnic_interrupts_init(QrnicDevice *d, uint8_t cap_offset, Error **errp)
{
    PCIDevice *pci = PCI_DEVICE(d);

    memory_region_init(&d->bar_msix, OBJECT(d), "qrnic-msix",
                       QRNIC_BAR_MSIX_SIZE);
    if (msix_init(pci, d->config.vectors, &d->bar_msix, QRNIC_BAR_MSIX, 0,
                  &d->bar_msix, QRNIC_BAR_MSIX, QRNIC_MSIX_PBA_OFFSET,
                  cap_offset, errp) < 0) {
        return false;
    }
    /*
     * All vectors are marked as used, because msix_notify() ignores unused
     * vectors.
     */
    for (unsigned v = 0; v < d->config.vectors; v++) {
        msix_vector_use(pci, v);
    }
    pci_register_bar(pci, QRNIC_BAR_MSIX, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &d->bar_msix);
    return true;
}

void qrnic_interrupts_cleanup(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);

    msix_unuse_all_vectors(pci);
    msix_uninit(pci, &d->bar_msix, &d->bar_msix);
}

void qrnic_notify(QrnicDevice *d, unsigned vector)
{
    PCIDevice *pci = PCI_DEVICE(d);
    bool masked;

    if (!qrnic_on_bus(d) || !msix_enabled(pci)) {
        trace_qrnic_interrupt(d->name, vector, "MSI-X is off");
        return;
    }
    masked = msix_is_masked(pci, vector);
    if (masked) {
        trace_qrnic_interrupt(d->name, vector, "masked");
    } else {
        if (d->capture) {
            MSIMessage message = msix_get_message(pci, vector);

            qrnic_capture_message(d, vector, message.address, message.data);
        }
        trace_qrnic_interrupt(d->name, vector, "sent");
        qrnic_count(d->engine, QRNIC_COUNTER_INTERRUPTS, 1);
    }
    msix_notify(pci, vector);
    if (d->stop_at && !masked) {
        qrnic_stop_interrupt(d, vector);
    }
}
