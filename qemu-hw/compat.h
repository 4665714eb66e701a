/*
 * qrnic: differences between QEMU 10.0 and later versions
 *
 * device/, cable/ and process/ use the names of this file, so that the same
 * sources compile with all supported versions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

/*
 * Series of this QEMU as major * 100 + minor. A development version (micro
 * version from 50 on) has the API of the next series, for example 11.0.92
 * that of 11.1.
 */
#define QRNIC_QEMU_SERIES \
    (QEMU_VERSION_MAJOR * 100 + QEMU_VERSION_MINOR + (QEMU_VERSION_MICRO >= 50))

/* QEMU 11.0 moved these headers to hw/core. */
#if QRNIC_QEMU_SERIES >= 1100
#include "hw/core/boards.h"
#include "hw/core/qdev-properties.h"
#include "hw/core/resettable.h"
#include "hw/core/sysbus.h"
#else
#include "hw/boards.h"
#include "hw/qdev-properties.h"
#include "hw/resettable.h"
#include "hw/sysbus.h"
#endif

/* Class data and lists of interfaces became const in QEMU 10.1. */
#if QRNIC_QEMU_SERIES >= 1001
typedef const void QrnicClassData;
typedef const InterfaceInfo QrnicInterfaceInfo;
#else
typedef void QrnicClassData;
typedef InterfaceInfo QrnicInterfaceInfo;
#endif

/* QEMU 10.1 added a second handler, which may report a failure. */
#if QRNIC_QEMU_SERIES >= 1001
#define qrnic_add_vm_change_state_handler(dev, handler, opaque) \
    qdev_add_vm_change_state_handler(dev, handler, NULL, opaque)
#else
#define qrnic_add_vm_change_state_handler(dev, handler, opaque) \
    qdev_add_vm_change_state_handler(dev, handler, opaque)
#endif

/*
 * QEMU 10.2 added address translation services for devices. Before, no device
 * has the property shared-virtual, so the replacements are never executed.
 */
#if QRNIC_QEMU_SERIES >= 1002
#define QRNIC_QEMU_HAS_ATS true
#else
#define QRNIC_QEMU_HAS_ATS false
static inline void pcie_pasid_init(PCIDevice *dev, uint16_t offset,
                                   uint8_t width, bool execute, bool privileged)
{
    g_assert_not_reached();
}

static inline bool pcie_pasid_enabled(const PCIDevice *dev)
{
    return false;
}

static inline bool pcie_ats_enabled(const PCIDevice *dev)
{
    return false;
}

typedef enum {
    IOMMU_PRI_RESP_SUCCESS,
    IOMMU_PRI_RESP_INVALID_REQUEST,
    IOMMU_PRI_RESP_FAILURE,
} IOMMUPRIResponseCode;

typedef struct {
    IOMMUPRIResponseCode response_code;
    uint16_t prgi;
} IOMMUPRIResponse;

typedef struct IOMMUPRINotifier {
    void (*notify)(struct IOMMUPRINotifier *notifier,
                   IOMMUPRIResponse *response);
} IOMMUPRINotifier;

static inline void pcie_pri_init(PCIDevice *dev, uint16_t offset,
                                 uint32_t capacity, bool pasid_in_response)
{
    g_assert_not_reached();
}

static inline bool pcie_pri_enabled(const PCIDevice *dev)
{
    return false;
}

static inline uint32_t pcie_pri_get_req_alloc(const PCIDevice *dev)
{
    return 0;
}

static inline int pci_pri_request_page(PCIDevice *dev, uint32_t pasid,
                                       bool privileged, bool execute,
                                       uint64_t addr, bool last, uint16_t group,
                                       bool read, bool write)
{
    return -ENODEV;
}

static inline int pci_pri_register_notifier(PCIDevice *dev, uint32_t pasid,
                                            IOMMUPRINotifier *notifier)
{
    return -ENODEV;
}

static inline void pci_pri_unregister_notifier(PCIDevice *dev, uint32_t pasid)
{
}

static inline int pci_iommu_init_iotlb_notifier(PCIDevice *dev, void *notifier,
                                                void *function, void *opaque)
{
    return -ENODEV;
}

static inline int pci_iommu_register_iotlb_notifier(PCIDevice *dev,
                                                    uint32_t pasid,
                                                    void *notifier)
{
    return -ENODEV;
}

static inline int pci_iommu_unregister_iotlb_notifier(PCIDevice *dev,
                                                      uint32_t pasid,
                                                      void *notifier)
{
    return -ENODEV;
}

static inline ssize_t
pci_ats_request_translation(PCIDevice *dev, uint32_t pasid, bool privileged,
                            bool execute, uint64_t addr, size_t length,
                            bool no_write, void *result, size_t count,
                            uint32_t *errors)
{
    return -ENODEV;
}
#endif

/*
 * QEMU 11.0 removed hosts of 32 bits, and with them this symbol of its
 * configuration: all hosts have atomic operations of 64 bits.
 */
#if defined(CONFIG_ATOMIC64) || QRNIC_QEMU_SERIES >= 1100
#define QRNIC_HOST_ATOMIC64
#endif

/*
 * QEMU 11.1 replaced the handler can_be_deleted() by prepare_delete(), which
 * reports its reason. QRNIC_DEFINE_PREPARE_DELETE() follows the definition of
 * such a handler, and qrnic_set_prepare_delete() sets it.
 */
#if QRNIC_QEMU_SERIES >= 1101
#define QRNIC_DEFINE_PREPARE_DELETE(handler)
#define qrnic_set_prepare_delete(uc, handler) \
    ((uc)->prepare_delete = (handler))
#else
#define QRNIC_DEFINE_PREPARE_DELETE(handler) \
    static bool handler##_without_reason(UserCreatable *uc) \
    { \
        return handler(uc, NULL); \
    }
#define qrnic_set_prepare_delete(uc, handler) \
    ((uc)->can_be_deleted = handler##_without_reason)
#endif

#endif
