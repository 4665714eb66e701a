/*
 * qrnic process: the device as a process of its own, behind vfio-user
 *
 * machine.c owns the machine type, which is a PCI Express bus with one qrnic.
 * server.c accepts VMMs at a socket, and check.c validates their messages.
 * dma.c and irq.c execute requests with file descriptors (fds.c): the VMM's
 * memory and eventfds. server.c executes accesses to BARs, and libvfio-user
 * the rest; vmm.c serves its calls (configuration space, reset). All functions
 * run in the main loop, and none of them waits for the VMM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_PROCESS_H
#define QRNIC_PROCESS_H

#include "hw/pci/pci_device.h"
#include "compat.h"
#include "libvfio-user.h"

/*
 * Differences of libvfio-user 0.2, which QEMU 11.1 uses. The flags of a message
 * are one number there, and bit fields in version 0.1. Version 0.2 does not
 * know the command VFIO_USER_DIRTY_PAGES.
 */
#if LIB_VFIO_USER_MINOR >= 2
#define QRNIC_REPLY_FLAGS(failed) \
    (VFIO_USER_F_TYPE_REPLY | ((failed) ? VFIO_USER_F_ERROR : 0))
#define qrnic_message_type(header) ((header)->flags & VFIO_USER_F_TYPE_MASK)
#define qrnic_message_no_reply(header) ((header)->flags & VFIO_USER_F_NO_REPLY)
#define qrnic_message_error(header) ((header)->flags & VFIO_USER_F_ERROR)
#define VFIO_USER_DIRTY_PAGES 14
#else
#define QRNIC_REPLY_FLAGS(failed) \
    { .type = VFIO_USER_F_TYPE_REPLY, .error = !!(failed) }
#define qrnic_message_type(header) ((header)->flags.type)
#define qrnic_message_no_reply(header) ((header)->flags.no_reply)
#define qrnic_message_error(header) ((header)->flags.error)
#endif

#define TYPE_QRNIC_PROCESS MACHINE_TYPE_NAME("qrnic-process")
OBJECT_DECLARE_SIMPLE_TYPE(QrnicProcess, QRNIC_PROCESS)

typedef struct QrnicServer QrnicServer;

/* File descriptors that a message may have (SCM_MAX_FD of Linux) */
#define QRNIC_FDS_MAX 253

/* The descriptors of a message; -1 replaces a removed descriptor */
typedef struct QrnicFds {
    unsigned count;
    int fd[QRNIC_FDS_MAX];
} QrnicFds;

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

/* The eventfds of the VMM */
typedef struct QrnicIrqs {
    unsigned vectors;
    int *eventfds;              /* -1 for a vector without eventfd */
    /* Vectors that were sent while the VMM had no eventfd for them */
    unsigned long *unsent;
    unsigned long aio;          /* context of the kernel's AIO */
    int file;                   /* empty file that AIO reads */
} QrnicIrqs;

/* A BAR as an address space, because the BAR itself may be unmapped */
typedef struct QrnicWindow {
    AddressSpace as;
    MemoryRegion root, alias;
} QrnicWindow;

struct QrnicProcess {
    MachineState parent_obj;

    char *socket;
    bool map_memory;
    PCIBus *bus;
    PCIDevice *pci;
    MemoryRegion pci_memory, pci_io;
    QrnicDma dma;
    QrnicIrqs irqs;
    QrnicWindow windows[PCI_NUM_REGIONS];

    /* The libvfio-user context of the VMM, or NULL */
    vfu_ctx_t *context;
    /* File of the device memory of this VMM, or -1 */
    int memory_fd;
    bool complained_share;

    QrnicServer *server;
    Notifier ready;
};

/* fds.c */

/* The threads that close objects of VMMs */
typedef enum QrnicCloser {
    QRNIC_CLOSER_VMM,           /* descriptors of the VMM in service */
    QRNIC_CLOSER_REJECTED,      /* connections of rejected VMMs */
    QRNIC_CLOSER_MEMORY,        /* mappings of all VMMs */
    QRNIC_CLOSERS,
} QrnicCloser;

/**
 * qrnic_fds_init:
 * @errp: receives the error
 *
 * Starts the threads. Called once.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_fds_init(Error **errp);
/**
 * qrnic_fds_renew:
 *
 * Prepares a thread for a new VMM. If the thread of the former VMM has not
 * closed all its descriptors, that thread continues, and the new VMM gets
 * another one.
 *
 * Returns: true, or false if too many threads or descriptors wait, or no thread
 * can be started
 */
bool qrnic_fds_renew(void);
/**
 * qrnic_fd_close:
 * @fd: a descriptor of the VMM
 *
 * Lets the thread close a descriptor, because close() may wait.
 */
void qrnic_fd_close(int fd);
/**
 * qrnic_connection_close:
 * @fd: a connection
 * @who: QRNIC_CLOSER_VMM or QRNIC_CLOSER_REJECTED
 *
 * Disconnects a VMM at once by shutdown(). The thread may close the connection
 * late, because the close of an earlier descriptor, or of a descriptor in an
 * unread message, may wait.
 */
void qrnic_connection_close(int fd, QrnicCloser who);
/**
 * qrnic_mapping_close:
 * @mapping: memory that nothing accesses any more
 * @size: number of bytes
 *
 * Lets a thread unmap the memory, because the kernel needs a long time for many
 * pages. The thread removes few pages at a time, because the main loop cannot
 * map memory meanwhile.
 */
void qrnic_mapping_close(void *mapping, size_t size);
/**
 * qrnic_fds_wait:
 * @limit_ms: maximum time in ms
 *
 * Waits until the thread of the VMM has closed all descriptors, before the
 * process ends.
 */
void qrnic_fds_wait(int64_t limit_ms);
/**
 * qrnic_fds_closing:
 * @who: the thread
 *
 * Returns: the number of objects that the thread has not closed yet
 */
unsigned qrnic_fds_closing(QrnicCloser who);
/**
 * qrnic_fds_close:
 * @fds: the descriptors
 *
 * Lets the thread close all descriptors that were not taken.
 */
void qrnic_fds_close(QrnicFds *fds);
/**
 * qrnic_fds_take:
 * @fds: the descriptors
 * @i: index of the descriptor in @fds
 *
 * Returns: the descriptor, which the caller then owns
 */
int qrnic_fds_take(QrnicFds *fds, unsigned i);
/**
 * qrnic_fds_peek:
 * @socket: a connection
 * @buf: receives a copy of the bytes
 * @len: maximum number of bytes
 * @descriptors: set to true if descriptors were sent with some of the bytes
 *
 * Copies the next bytes, which stay in the socket, without a wait.
 *
 * Returns: the number of bytes; 0 at the end of the connection; or -1 with
 * errno set
 */
ssize_t qrnic_fds_peek(int socket, void *buf, size_t len, bool *descriptors);
/**
 * qrnic_fds_receive:
 * @socket: a connection
 * @buf: receives the bytes
 * @len: maximum number of bytes
 * @fds: descriptors that arrive are appended
 *
 * Receives bytes without a wait.
 *
 * Returns: the number of bytes; 0 at the end of the connection; or -1 with
 * errno set, to EMSGSIZE if descriptors were lost
 */
ssize_t qrnic_fds_receive(int socket, void *buf, size_t len, QrnicFds *fds);
/**
 * qrnic_fd_is_memory:
 * @fd: a descriptor of any kind
 *
 * Returns: true if the file consists of memory (memfd, tmpfs or hugetlbfs)
 */
bool qrnic_fd_is_memory(int fd);
/**
 * qrnic_fd_is_eventfd:
 * @fd: a descriptor of any kind
 *
 * Returns: true if the descriptor is an eventfd
 */
bool qrnic_fd_is_eventfd(int fd);

/* irq.c */

/**
 * qrnic_irq_init:
 * @irqs: the interrupts to initialize
 * @vectors: number of vectors
 * @errp: receives the error
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_irq_init(QrnicIrqs *irqs, unsigned vectors, Error **errp);
/**
 * qrnic_irq_send:
 * @irqs: the interrupts
 * @vector: number of the vector
 *
 * Signals the eventfd of a vector. Without eventfd, the vector is recorded.
 */
void qrnic_irq_send(QrnicIrqs *irqs, unsigned vector);
/**
 * qrnic_irq_forget:
 * @irqs: the interrupts
 *
 * Discards the recorded vectors.
 */
void qrnic_irq_forget(QrnicIrqs *irqs);
/**
 * qrnic_irq_clear:
 * @irqs: the interrupts
 *
 * Removes all eventfds, and discards the recorded vectors.
 */
void qrnic_irq_clear(QrnicIrqs *irqs);
/**
 * qrnic_irq_set:
 * @irqs: the interrupts
 * @pci: the device
 * @set: the request
 * @bools: one byte for each vector of a request with VFIO_IRQ_SET_DATA_BOOL
 * @len: number of bytes of @bools
 * @fds: eventfds of the request; those that are used are taken
 *
 * Executes SET_IRQS, and then sends recorded vectors.
 *
 * Returns: 0, or a negative errno
 */
int qrnic_irq_set(QrnicIrqs *irqs, PCIDevice *pci,
                  const struct vfio_irq_set *set, const uint8_t *bools,
                  size_t len, QrnicFds *fds);

/* dma.c */

/* Regions that a VMM may have at a time */
#define QRNIC_DMA_REGIONS 512

/**
 * qrnic_dma_init:
 * @dma: the memory to initialize, without regions
 * @owner: the object that contains @dma
 */
void qrnic_dma_init(QrnicDma *dma, Object *owner);
/**
 * qrnic_dma_map:
 * @dma: the memory
 * @map: the request, which qrnic_message_check() has accepted
 * @fd: file of the region, or -1 if the VMM does not share it; not consumed
 *
 * Adds a region of the VMM's memory. A region without file is only recorded.
 *
 * Returns: 0, or a negative errno; -ENOSPC if QRNIC_DMA_REGIONS regions exist
 */
int qrnic_dma_map(QrnicDma *dma, const struct vfio_user_dma_map *map, int fd);
/**
 * qrnic_dma_unmap:
 * @dma: the memory
 * @unmap: the request
 *
 * Removes one region, or all regions.
 *
 * Returns: 0, or a negative errno
 */
int qrnic_dma_unmap(QrnicDma *dma, const struct vfio_user_dma_unmap *unmap);
/**
 * qrnic_dma_clear:
 * @dma: the memory
 *
 * Removes all regions.
 */
void qrnic_dma_clear(QrnicDma *dma);
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
 * Resets the device, and then removes the context and all memory and eventfds
 * of the VMM. Ignores the members that are not set.
 */
void qrnic_vmm_free(QrnicProcess *p);
/**
 * qrnic_vmm_machine_reset:
 * @p: the process
 *
 * Unmasks the vectors, which a reset of the machine masks.
 */
void qrnic_vmm_machine_reset(QrnicProcess *p);
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
/* Number of bytes of the largest access to a region */
#define QRNIC_ACCESS_MAX (QRNIC_MESSAGE_MAX / 2)

/**
 * qrnic_message_check:
 * @dma: the VMM's memory
 * @fds: the descriptors of the message
 * @message: a complete message with its header
 *
 * Validates a message before it is executed.
 *
 * Returns: NULL, or the reason for which the VMM is disconnected
 */
const char *qrnic_message_check(const QrnicDma *dma, const QrnicFds *fds,
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
/**
 * qrnic_server_warn:
 * @s: the server
 * @format: one line, in the form of printf()
 *
 * Reports a fault of a VMM. Some lines are suppressed if there are many,
 * because a VMM could otherwise fill the log.
 */
void G_GNUC_PRINTF(2, 3) qrnic_server_warn(QrnicServer *s, const char *format,
                                           ...);

#endif
