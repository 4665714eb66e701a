/*
 * qrnic process: the device as a process of its own, behind vfio-user
 *
 * machine.c owns the machine type, which is a PCI Express bus with one qrnic.
 * server.c accepts VMMs at a socket, and check.c validates their messages.
 * vmm.c translates the calls of libvfio-user into accesses to the device. dma.c
 * maps the VMM's memory. All functions run in the main loop, and none of them
 * waits for the VMM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_PROCESS_H
#define QRNIC_PROCESS_H

#include "hw/pci/pci_device.h"
#include "compat.h"
#include "libvfio-user.h"

#define TYPE_QRNIC_PROCESS MACHINE_TYPE_NAME("qrnic-process")
OBJECT_DECLARE_SIMPLE_TYPE(QrnicProcess, QRNIC_PROCESS)

typedef struct QrnicServer QrnicServer;

/* The memory of the VMM, as the device reaches it by DMA */
typedef struct QrnicDma {
    AddressSpace as;
    MemoryRegion root;
    GPtrArray *regions;         /* QrnicDmaRegion, in order of arrival */
    /* Bytes of all regions that are mapped into this process */
    uint64_t mapped;
    /* Bytes of removed regions whose bitmaps QEMU may still hold */
    uint64_t released;
    /* Host addresses that contain all these regions, if released is not 0 */
    uintptr_t released_low, released_high;
} QrnicDma;

/* A BAR as an address space, because the BAR itself may be unmapped */
typedef struct QrnicWindow {
    AddressSpace as;
    MemoryRegion root, alias;
} QrnicWindow;

struct QrnicProcess {
    MachineState parent_obj;

    char *socket;
    PCIBus *bus;
    PCIDevice *pci;
    MemoryRegion pci_memory, pci_io;
    QrnicDma dma;
    QrnicWindow windows[PCI_NUM_REGIONS];

    /* The libvfio-user context of the VMM, or NULL */
    vfu_ctx_t *context;
    /* First error that libvfio-user has logged for the message in progress */
    char *reason;
    /* Vectors that were sent while the VMM had no eventfd for them */
    unsigned long *unsent;
    bool complained_share;

    QrnicServer *server;
    Notifier ready;
};

/* dma.c */

/**
 * qrnic_dma_init:
 * @dma: the memory to initialize, without regions
 * @owner: the object that contains @dma
 */
void qrnic_dma_init(QrnicDma *dma, Object *owner);
/**
 * qrnic_dma_add:
 * @dma: the memory
 * @info: the region; one without a mapping is only recorded
 *
 * Adds a region of the VMM's memory.
 */
void qrnic_dma_add(QrnicDma *dma, const vfu_dma_info_t *info);
/**
 * qrnic_dma_remove:
 * @dma: the memory
 * @info: the region; ignored if it is unknown
 *
 * Removes a region before libvfio-user unmaps it.
 */
void qrnic_dma_remove(QrnicDma *dma, const vfu_dma_info_t *info);
/**
 * qrnic_dma_find:
 * @dma: the memory
 * @base: first address
 * @size: number of bytes
 *
 * Returns: true if exactly this region was added
 */
bool qrnic_dma_find(const QrnicDma *dma, uint64_t base, uint64_t size);
/**
 * qrnic_window_init:
 * @w: the window to initialize
 * @owner: the object that contains @w
 * @bar: the memory region of the BAR
 */
void qrnic_window_init(QrnicWindow *w, Object *owner, MemoryRegion *bar);
/**
 * qrnic_window_access:
 * @w: the window
 * @offset: offset in the BAR
 * @buf: the bytes to write, or the buffer for the bytes read
 * @len: number of bytes; an access of 1, 2, 4 or 8 bytes stays one access
 * @is_write: the direction
 *
 * Returns: true, or false if the device rejects the access
 */
bool qrnic_window_access(QrnicWindow *w, uint64_t offset, void *buf, size_t len,
                         bool is_write);

/* vmm.c */

/**
 * qrnic_vmm_new:
 * @p: the process, without a context
 * @path: path of the private socket that libvfio-user shall listen at
 * @errp: receives the error
 *
 * Creates the libvfio-user context for the next VMM.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_vmm_new(QrnicProcess *p, const char *path, Error **errp);
/**
 * qrnic_vmm_free:
 * @p: the process
 *
 * Resets the device, and then removes all memory of the VMM and the context.
 */
void qrnic_vmm_free(QrnicProcess *p);
/**
 * qrnic_vmm_resend:
 * @p: the process
 *
 * Sends the interrupts again that had no eventfd. The server calls it after the
 * VMM has set eventfds.
 */
void qrnic_vmm_resend(QrnicProcess *p);
/**
 * qrnic_vmm_init:
 * @p: the process with its device
 * @errp: receives the error
 *
 * Prepares BARs and interrupts of the device. Called once at start.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_vmm_init(QrnicProcess *p, Error **errp);

/* check.c */

/* Size in bytes of the largest message that is accepted */
#define QRNIC_MESSAGE_MAX (64 * 1024)

/**
 * qrnic_message_check:
 * @dma: the VMM's memory
 * @socket: the VMM's connection, whose next message is @message
 * @message: a complete message with its header
 *
 * Validates the fields that libvfio-user uses without a check of its own.
 *
 * Returns: NULL, or the reason for which the VMM is disconnected
 */
const char *qrnic_message_check(const QrnicDma *dma, int socket,
                                const void *message);

/* server.c */

/**
 * qrnic_server_start:
 * @p: the process
 * @errp: receives the error
 *
 * Listens at the socket.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_server_start(QrnicProcess *p, Error **errp);

#endif
