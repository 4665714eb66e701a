/*
 * qrnic: the virtual functions of an adapter: their capability, their BARs, and
 * their share of the resources
 *
 * At realize, pf.c calls qrnic_sriov_start() and qrnic_sriov_create_vfs(). QEMU
 * then realizes all virtual functions (vf.c), which stay until the physical
 * function is unplugged. Software enables and disables them by the SR-IOV
 * capability, which QEMU emulates.
 *
 * PCI Express Base Specification 5.0, chapter 9.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "hw/pci/pcie_sriov.h"
#include "device/sriov/sriov.h"

/* Offset of the SR-IOV capability in the configuration space */
#define ECAP_SRIOV 0x170

/*
 * First VF Offset and VF Stride. Virtual functions follow the physical function
 * directly, so that 7 of them fit into a slot of the root bus.
 */
#define VF_OFFSET 1
#define VF_STRIDE 1

/*
 * Returns the share of a virtual function, an equal part of the resource. The
 * minimum is the number that one driver needs, and the physical function has.
 */
static uint32_t share(uint32_t all, unsigned vfs, uint32_t needed)
{
    return MAX(all / vfs, MIN(all, needed));
}

/* Returns the share of a resource whose size is a power of two. */
static uint64_t share_pow2(uint64_t all, unsigned vfs, uint64_t needed)
{
    return MAX(pow2floor(all / vfs), MIN(all, needed));
}

void qrnic_sriov_config_vf(const QrnicSriov *s, unsigned number,
                           QrnicConfig *c)
{
    unsigned vfs = s->pf->vfs;

    *c = s->pf->parent_obj.config;
    c->name = NULL;
    c->capabilities &= ~(uint64_t)(QRNIC_CAP_SRIOV | QRNIC_CAP_SHARED_VIRTUAL);
    c->capabilities |= QRNIC_CAP_VF;
    c->max_qp = share(c->max_qp, vfs, 64);
    c->max_cq = share(c->max_cq, vfs, 64);
    c->max_mkey = share(c->max_mkey, vfs, 256);
    c->max_pd = share(c->max_pd, vfs, 32);
    c->max_gid = share(c->max_gid, vfs, 32);
    c->max_srq = share(c->max_srq, vfs, 32);
    c->max_flow = share(c->max_flow, vfs, 32);
    c->db_pages = share_pow2(c->db_pages, vfs, 32);
    if (c->device_memory) {
        c->device_memory = share_pow2(c->device_memory, vfs,
                                      QRNIC_DM_PAGE_SIZE);
    }
    if (c->context_cache) {
        c->context_cache = share(c->context_cache, vfs, 2);
    }
    qrnic_sriov_mac_derive(s, number, c->mac);
}

void qrnic_sriov_start(QrnicPf *pf)
{
    QrnicSriov *s = qrnic_sriov_new(pf);

    qrnic_uplink_init(s);
    qrnic_sriov_attach(s, &pf->parent_obj, QRNIC_ESWITCH_PF);
}

static void vf_bars_init(PCIDevice *pci, const QrnicConfig *c)
{
    const uint8_t memory = PCI_BASE_ADDRESS_SPACE_MEMORY;
    const uint8_t prefetchable = memory | PCI_BASE_ADDRESS_MEM_TYPE_64 |
                                 PCI_BASE_ADDRESS_MEM_PREFETCH;

    pcie_sriov_pf_init_vf_bar(pci, QRNIC_BAR_CONTROL, memory,
                              QRNIC_BAR_CONTROL_SIZE);
    pcie_sriov_pf_init_vf_bar(pci, QRNIC_BAR_MSIX, memory, QRNIC_BAR_MSIX_SIZE);
    pcie_sriov_pf_init_vf_bar(pci, QRNIC_BAR_DOORBELL, prefetchable,
                              (uint64_t)c->db_pages * QRNIC_DB_PAGE_SIZE);
    if (c->capabilities & QRNIC_CAP_DEVICE_MEMORY) {
        pcie_sriov_pf_init_vf_bar(pci, QRNIC_BAR_MEMORY, prefetchable,
                                  c->device_memory);
    }
}

uint64_t qrnic_sriov_window(const QrnicPf *pf, bool prefetchable)
{
    uint64_t bytes = QRNIC_BAR_CONTROL_SIZE + QRNIC_BAR_MSIX_SIZE;
    QrnicConfig c;

    if (prefetchable) {
        qrnic_sriov_config_vf(pf->parent_obj.sriov, 0, &c);
        bytes = (uint64_t)c.db_pages * QRNIC_DB_PAGE_SIZE;
        if (c.capabilities & QRNIC_CAP_DEVICE_MEMORY) {
            bytes += c.device_memory;
        }
    }
    return bytes * pf->vfs;
}

bool qrnic_sriov_create_vfs(QrnicPf *pf, Error **errp)
{
    PCIDevice *pci = PCI_DEVICE(pf);
    QrnicConfig config;

    pcie_ari_init(pci, QRNIC_PCI_ARI_OFFSET);
    if (!pcie_sriov_pf_init(pci, ECAP_SRIOV, TYPE_QRNIC_VF,
                            QRNIC_PCI_VF_DEVICE_ID, pf->vfs, pf->vfs,
                            VF_OFFSET, VF_STRIDE, errp)) {
        return false;
    }
    qrnic_sriov_config_vf(pf->parent_obj.sriov, 0, &config);
    vf_bars_init(pci, &config);
    return true;
}
