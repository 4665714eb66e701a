/*
 * qrnic: address translation services of the device (property shared-virtual)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * pci.c creates the capabilities PASID and ATS at realize. The engine requests
 * translations, which this file requests from the IOMMU of the machine. Before
 * the first request for a PASID, this file registers a notifier, through which
 * the IOMMU reports invalidations of that PASID. So the engine holds no
 * translation without a notifier. With the property page-requests the device
 * also has the capability PRI, and the engine sends page requests while the
 * guest has enabled it. QEMU has the necessary functions from 10.2 on
 * (compat.h). Manual, chapter "Shared virtual addressing".
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "qemu/rcu.h"
#include "qapi/error.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "trace.h"
#include "compat.h"
#include "device/device.h"

#define PAGE_4K 0x1000ull

/*
 * Width of the PASIDs of the device. The IOMMU keeps an address space of the
 * host for each PASID, so a guest must not use too many.
 */
#define PASID_WIDTH 12

/* PASID whose invalidations and page responses the IOMMU reports */
typedef struct QrnicPasid {
    QrnicDevice *d;
    uint32_t pasid;
    IOMMUNotifier notifier;
    IOMMUPRINotifier responses;
} QrnicPasid;

/* Returns false if the IOMMU of the machine reports no invalidations. */
static bool iommu_notifies(void)
{
    Object *iommu = object_resolve_path_type("", "x86-iommu-device", NULL);

    return !iommu || object_property_get_bool(iommu, "device-iotlb", NULL);
}

bool qrnic_translation_init(QrnicDevice *d, Error **errp)
{
    PCIDevice *pci = PCI_DEVICE(d);
    IOMMUNotifier probe;

    if (d->page_requests && !d->shared_virtual) {
        error_setg(errp, "qrnic: property 'page-requests' requires "
                   "'shared-virtual'");
        return false;
    }
    if (!d->shared_virtual) {
        return true;
    }
    if (!QRNIC_QEMU_HAS_ATS) {
        error_setg(errp, "qrnic: property 'shared-virtual' requires QEMU 10.2 "
                   "or newer");
        return false;
    }
    if (pci_iommu_init_iotlb_notifier(pci, &probe, NULL, NULL) ||
        !iommu_notifies()) {
        error_setg(errp, "qrnic: property 'shared-virtual' requires an IOMMU "
                   "with address translation services, before the device: "
                   "'-device intel-iommu,x-scalable-mode=on,x-flts=on,"
                   "device-iotlb=on'");
        return false;
    }
    pcie_pasid_init(pci, QRNIC_PCI_PASID_OFFSET, PASID_WIDTH, false, false);
    pcie_ats_init(pci, QRNIC_PCI_ATS_OFFSET, true);
    if (d->page_requests) {
        pcie_pri_init(pci, QRNIC_PCI_PRI_OFFSET, d->page_requests, true);
    }
    d->pasids = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    return true;
}

static void invalidated(IOMMUNotifier *n, IOMMUTLBEntry *entry)
{
    QrnicPasid *p = container_of(n, QrnicPasid, notifier);

    qrnic_engine_invalidate(p->d->engine, p->pasid, entry->iova,
                            entry->iova + entry->addr_mask);
}

static bool enabled(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);

    return d->pasids && pcie_pasid_enabled(pci) && pcie_ats_enabled(pci);
}

/* Returns how many page requests may be outstanding. */
static uint32_t pri_limit(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);

    return !enabled(d) || !pcie_pri_enabled(pci) || d->page_failed ? 0 :
           MIN(pcie_pri_get_req_alloc(pci), d->page_requests);
}

/* Updates the bit Stopped, which the guest polls. */
static void pri_stopped_set(QrnicDevice *d)
{
    uint8_t *status = PCI_DEVICE(d)->config + QRNIC_PCI_PRI_OFFSET +
                      PCI_PRI_STATUS;
    bool stopped = !pri_limit(d) &&
                   !qrnic_engine_page_requests_outstanding(d->engine);

    pci_set_word(status, (pci_get_word(status) & ~PCI_PRI_STATUS_STOPPED) |
                         (stopped ? PCI_PRI_STATUS_STOPPED : 0));
}

static void responded(IOMMUPRINotifier *n, IOMMUPRIResponse *response)
{
    static const QrnicPageResponse kind[] = {
        [IOMMU_PRI_RESP_SUCCESS] = QRNIC_PAGE_RESPONSE_SUCCESS,
        [IOMMU_PRI_RESP_INVALID_REQUEST] = QRNIC_PAGE_RESPONSE_INVALID,
        [IOMMU_PRI_RESP_FAILURE] = QRNIC_PAGE_RESPONSE_FAILURE,
    };
    QrnicPasid *p = container_of(n, QrnicPasid, responses);
    QrnicDevice *d = p->d;
    bool expected = qrnic_engine_page_response(d->engine, p->pasid,
                                               response->prgi,
                                               kind[response->response_code]);
    bool failed = expected &&
                  response->response_code == IOMMU_PRI_RESP_FAILURE;

    if (!expected || failed) {
        pci_word_test_and_set_mask(PCI_DEVICE(d)->config +
                                   QRNIC_PCI_PRI_OFFSET + PCI_PRI_STATUS,
                                   failed ? PCI_PRI_STATUS_RF :
                                            PCI_PRI_STATUS_UPRGI);
    }
    d->page_failed |= failed;
    pri_stopped_set(d);
}

/* Returns true if invalidations of the PASID are reported to the device. */
static bool pasid_watch(QrnicDevice *d, uint32_t pasid)
{
    PCIDevice *pci = PCI_DEVICE(d);
    QrnicPasid *p;

    if (g_hash_table_contains(d->pasids, GUINT_TO_POINTER(pasid))) {
        return true;
    }
    p = g_new0(QrnicPasid, 1);
    p->d = d;
    p->pasid = pasid;
    pci_iommu_init_iotlb_notifier(pci, &p->notifier, invalidated, p);
    if (pci_iommu_register_iotlb_notifier(pci, pasid, &p->notifier)) {
        g_free(p);
        return false;
    }
    g_hash_table_insert(d->pasids, GUINT_TO_POINTER(pasid), p);
    trace_qrnic_pasid_watch(d->name, pasid);
    return true;
}

/*
 * Registers the notifier for responses to page requests of a watched PASID.
 * QEMU rejects that while the device is no bus master, so it is done before the
 * first request. Returns false if it failed.
 */
static bool responses_watch(QrnicDevice *d, uint32_t pasid)
{
    QrnicPasid *p = g_hash_table_lookup(d->pasids, GUINT_TO_POINTER(pasid));

    if (!p->responses.notify &&
        !pci_pri_register_notifier(PCI_DEVICE(d), pasid, &p->responses)) {
        p->responses.notify = responded;
    }
    return p->responses.notify;
}

/*
 * Ends the notifiers of all PASIDs. QEMU removes a notifier only while the
 * PASID capability is enabled, which the guest may have disabled already.
 */
static void pasids_forget(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);
    uint8_t *control = pci->config + QRNIC_PCI_PASID_OFFSET + PCI_PASID_CTRL;
    uint16_t before = pci_get_word(control);
    GHashTableIter i;
    gpointer p;

    pci_set_word(control, before | PCI_PASID_CTRL_ENABLE);
    g_hash_table_iter_init(&i, d->pasids);
    while (g_hash_table_iter_next(&i, NULL, &p)) {
        QrnicPasid *pasid = p;

        pci_iommu_unregister_iotlb_notifier(pci, pasid->pasid,
                                            &pasid->notifier);
        if (d->page_requests) {
            pci_pri_unregister_notifier(pci, pasid->pasid);
        }
        g_hash_table_iter_remove(&i);
    }
    pci_set_word(control, before);
}

QrnicTranslate qrnic_translate(QrnicDevice *d, uint32_t pasid, uint64_t addr,
                               bool write, QrnicTranslated *result)
{
    IOMMUTLBEntry entry = { 0 };
    uint32_t errors = 0;

    RCU_READ_LOCK_GUARD();
    if (!qrnic_on_bus(d) || !enabled(d) || pasid >> PASID_WIDTH ||
        !pasid_watch(d, pasid) ||
        pci_ats_request_translation(PCI_DEVICE(d), pasid, false, false,
                                    addr & ~(PAGE_4K - 1), PAGE_4K, !write,
                                    &entry, 1, &errors) != 1 ||
        !entry.target_as) {
        return QRNIC_TRANSLATE_FAILED;
    }
    /* Without any right the IOMMU found no page that the process may access. */
    if (!(entry.perm & IOMMU_RO)) {
        return QRNIC_TRANSLATE_ABSENT;
    }
    d->translated_as = entry.target_as;
    *result = (QrnicTranslated) {
        .address = entry.translated_addr & ~entry.addr_mask,
        .page_shift = ctz64(~entry.addr_mask),
        .writable = entry.perm & IOMMU_WO,
    };
    return QRNIC_TRANSLATE_OK;
}

bool qrnic_page_request_send(QrnicDevice *d, uint32_t pasid, uint64_t addr,
                             bool write, uint16_t group, bool last)
{
    /* The IOMMU responds through the notifier of the PASID. */
    return qrnic_on_bus(d) && enabled(d) && !(pasid >> PASID_WIDTH) &&
           pasid_watch(d, pasid) && responses_watch(d, pasid) &&
           !pci_pri_request_page(PCI_DEVICE(d), pasid, false, false, addr, last,
                                 group, true, write);
}

/* Handles Enable, Reset and Outstanding Page Request Allocation of PRI. */
static void pri_configured(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);
    uint8_t *cap = pci->config + QRNIC_PCI_PRI_OFFSET;
    uint16_t control = pci_get_word(cap + PCI_PRI_CTRL);

    if (!(control & PCI_PRI_CTRL_ENABLE)) {
        d->page_failed = false;
        if (control & PCI_PRI_CTRL_RESET) {
            qrnic_engine_page_requests_reset(d->engine);
        }
    }
    /* Reset reads as 0. */
    pci_set_word(cap + PCI_PRI_CTRL, control & ~PCI_PRI_CTRL_RESET);
    qrnic_engine_page_requests_limit(d->engine, pri_limit(d));
    pri_stopped_set(d);
}

void qrnic_translation_status(QrnicDevice *d)
{
    if (d->pasids && d->page_requests) {
        pri_stopped_set(d);
    }
}

/* Drops all translations when the guest disables one of the capabilities. */
void qrnic_translation_configured(QrnicDevice *d)
{
    bool on = enabled(d);

    if (d->pasids && d->page_requests) {
        pri_configured(d);
    }

    if (d->translation_on && !on) {
        qrnic_engine_invalidate(d->engine, QRNIC_PASID_ALL, 0, UINT64_MAX);
    }
    d->translation_on = on;
}

void qrnic_translation_reset(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);

    if (!d->pasids) {
        return;
    }
    pasids_forget(d);
    pci_set_word(pci->config + QRNIC_PCI_PASID_OFFSET + PCI_PASID_CTRL, 0);
    pci_set_word(pci->config + QRNIC_PCI_ATS_OFFSET + PCI_ATS_CTRL, 0);
    if (d->page_requests) {
        pci_set_word(pci->config + QRNIC_PCI_PRI_OFFSET + PCI_PRI_CTRL,
                     PCI_PRI_CTRL_RESET);
        pci_set_word(pci->config + QRNIC_PCI_PRI_OFFSET + PCI_PRI_STATUS,
                     PCI_PRI_STATUS_PASID);
        pci_set_long(pci->config + QRNIC_PCI_PRI_OFFSET + PCI_PRI_ALLOC_REQ, 0);
        pri_configured(d);
    }
    d->translation_on = false;
}

void qrnic_translation_cleanup(QrnicDevice *d)
{
    if (d->pasids) {
        pasids_forget(d);
        g_hash_table_destroy(d->pasids);
        d->pasids = NULL;
    }
}
