/*
 * qrnic: captures the transactions of the bus and the frames of the wire
 *
 * The emulated bus has no TLPs, so this file builds those that a PCI Express
 * link would carry for an access. bus.c, registers.c, pci.c, interrupts.c and
 * port.c call it for each access. The comment of a packet states the purpose of
 * the access, and the queue pair, WQE and PSN that the engine works for. See
 * the manual, chapter "Captures".
 *
 * PCI Express Base Specification, 2.2 (TLP headers), 2.3.1.1 (completions).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/notify.h"
#include "hw/pci/msi.h"
#include "hw/pci/pcie.h"
#include "qapi/error.h"
#include "system/system.h"
#include "cable/capture.h"
#include "device/capture.h"
#include "wire/headers.h"
#include "wire/packet.h"

/* Interfaces of the file */
enum { INTERFACE_WIRE, INTERFACE_BUS };

/* Formats and types of TLPs (2.2.1); bit 5 adds 4 bytes of address */
#define TLP_MEMORY_READ 0x00
#define TLP_MEMORY_WRITE 0x40
#define TLP_CONFIG_READ 0x04
#define TLP_CONFIG_WRITE 0x44
#define TLP_COMPLETION 0x0a
#define TLP_COMPLETION_DATA 0x4a
#define TLP_FETCH_ADD 0x4c
#define TLP_COMPARE_SWAP 0x4e
#define TLP_LONG_ADDRESS 0x20

/* Status of a completion */
#define COMPLETION_OK 0
#define COMPLETION_UR 1         /* Unsupported Request */
#define ROOT_COMPLEX 0          /* ID of the requester of MMIO: 00:00.0 */
#define BOUNDARY 4096           /* No request crosses it (2.2.7) */
#define BTH_QPN 4               /* offset of the destination QP in the BTH */
#define COMMENT_BYTES 160

struct QrnicBusCapture {
    QrnicCapture file;
    Notifier exit;              /* QEMU ends without finalizing devices */
    uint8_t tag;                /* of the next request */
    uint32_t qpn;               /* only packets of this queue pair; 0: all */
};

/* A TLP before its header is packed */
typedef struct Tlp {
    uint8_t type;
    bool sent;
    uint16_t requester;
    uint8_t tag;
    uint64_t addr;              /* for a configuration request: the offset */
    size_t len;                 /* bytes of the access, also of a read */
    const void *data;           /* or NULL */
} Tlp;

static uint16_t device_id(QrnicDevice *d)
{
    return pci_requester_id(PCI_DEVICE(d));
}

static unsigned device_control(QrnicDevice *d)
{
    PCIDevice *pci = PCI_DEVICE(d);

    return pci_get_word(pci->config + pci->exp.exp_cap + PCI_EXP_DEVCTL);
}

/* Returns Max_Payload_Size. */
static size_t max_payload(QrnicDevice *d)
{
    return 128u << MIN((device_control(d) & PCI_EXP_DEVCTL_PAYLOAD) >> 5, 5);
}

/* Returns Max_Read_Request_Size. */
static size_t max_read(QrnicDevice *d)
{
    return 128u << MIN((device_control(d) & PCI_EXP_DEVCTL_READRQ) >> 12, 5);
}

/*
 * Writes a TLP. The data begin with zeros up to the offset of the address in a
 * doubleword, because the byte enables count from the doubleword.
 */
static void tlp_write(QrnicDevice *d, const Tlp *t, const char *comment)
{
    QrnicBusCapture *c = d->capture;
    unsigned shift = t->addr & 3;
    uint32_t words = (shift + t->len + 3) / 4;
    uint8_t first = 0xf << shift & 0xf;
    uint8_t last = 0xf >> (3 - (shift + t->len - 1) % 4);
    bool is_long = t->addr >> 32;
    uint8_t head[16] = { 0 }, data[BOUNDARY + 4] = { 0 };
    QrnicCapturePacket packet = {
        .interface = INTERFACE_BUS, .head = head, .data = data,
        .head_len = is_long ? 16 : 12, .len = t->data ? words * 4 : 0,
        .sent = t->sent, .comment = comment,
    };

    if (words == 1) {
        first &= last;
        last = 0;
    }
    head[0] = t->type | (is_long ? TLP_LONG_ADDRESS : 0);
    stw_be_p(head + 2, words & 0x3ff);
    stw_be_p(head + 4, t->requester);
    head[6] = t->tag;
    head[7] = last << 4 | first;
    if ((t->type & 0x1f) == TLP_CONFIG_READ) {
        stw_be_p(head + 8, device_id(d));
        stw_be_p(head + 10, t->addr & 0xffc);
    } else if (is_long) {
        stq_be_p(head + 8, t->addr & ~3ull);
    } else {
        stl_be_p(head + 8, t->addr & ~3u);
    }
    if (t->data) {
        memcpy(data + shift, t->data, t->len);
    }
    qrnic_capture_packet(&c->file, &packet);
}

/*
 * Writes a completion, whose requester and tag are those of its request.
 * remaining: the Byte Count
 */
static void completion_write(QrnicDevice *d, const Tlp *request,
                             unsigned status, uint64_t addr, const void *buf,
                             size_t len, size_t remaining, const char *comment)
{
    unsigned shift = addr & 3;
    uint32_t words = buf ? (shift + len + 3) / 4 : 0;
    bool read = request->type == TLP_MEMORY_READ;
    uint8_t head[12] = { buf ? TLP_COMPLETION_DATA : TLP_COMPLETION };
    uint8_t data[BOUNDARY + 4] = { 0 };
    QrnicCapturePacket packet = {
        .interface = INTERFACE_BUS, .head = head, .head_len = sizeof(head),
        .data = data, .len = words * 4, .sent = !request->sent,
        .comment = comment,
    };

    stw_be_p(head + 2, words & 0x3ff);
    stw_be_p(head + 4, request->sent ? ROOT_COMPLEX : device_id(d));
    stw_be_p(head + 6, status << 13 | (remaining & 0xfff));
    stw_be_p(head + 8, request->requester);
    head[10] = request->tag;
    /*
     * Lower Address and Byte Count depend on the access only in completions of
     * memory reads. Otherwise the caller passes the Byte Count of the
     * specification, and Lower Address is 0 (2.2.9).
     */
    head[11] = read ? addr & 0x7f : 0;
    if (buf) {
        memcpy(data + shift, buf, len);
    }
    qrnic_capture_packet(&d->capture->file, &packet);
}

/* Comments */

static const char *const use_names[QRNIC_NUM_USES] = {
    [QRNIC_USE_DATA] = "data",
    [QRNIC_USE_RECORD] = "record",
    [QRNIC_USE_CQ_RECORD] = "cq-record",
    [QRNIC_USE_WQE] = "wqe",
    [QRNIC_USE_RECEIVE_WQE] = "receive-wqe",
    [QRNIC_USE_TAG_OP] = "tag-op",
    [QRNIC_USE_CQE] = "cqe",
    [QRNIC_USE_EQE] = "eqe",
    [QRNIC_USE_PAGE_LIST] = "page-list",
    [QRNIC_USE_CONTEXT] = "context",
    [QRNIC_USE_COMMAND] = "command",
    [QRNIC_USE_MAILBOX] = "mailbox",
};

const char *qrnic_capture_use_name(QrnicUse use)
{
    return use_names[use];
}

static size_t work_comment(const QrnicActivity *a, char *text, size_t room)
{
    size_t at = 0;

    if (a->qpn) {
        at += snprintf(text + at, room - at, " qp=%" PRIu32 " type=%u", a->qpn,
                       a->qp_type);
    }
    if (a->qpn && a->has_wqe) {
        at += snprintf(text + at, room - at, " wqe=%" PRIu32, a->wqe);
    }
    if (a->qpn && a->has_psn) {
        at += snprintf(text + at, room - at, " psn=%" PRIu32, a->psn);
    }
    return at;
}

/*
 * Writes the comment of a request of a DMA access: its purpose, the current
 * work, and its part if the access needs several requests.
 */
static void dma_comment(const QrnicActivity *a, size_t len, size_t from,
                        size_t n, char *text)
{
    size_t at = snprintf(text, COMMENT_BYTES, "use=%s", use_names[a->use]);

    if (a->use != QRNIC_USE_DATA) {
        at += snprintf(text + at, COMMENT_BYTES - at,
                       " object=%" PRIu32 " index=%" PRIu32, a->object,
                       a->index);
    }
    if (n < len) {
        at += snprintf(text + at, COMMENT_BYTES - at, " from=%zu of=%zu", from,
                       len);
    }
    work_comment(a, text + at, COMMENT_BYTES - at);
}

/* Returns true if the filter accepts work for this queue pair. */
static bool accepts(const QrnicDevice *d, uint32_t qpn)
{
    return !d->capture->qpn || d->capture->qpn == qpn;
}

/*
 * Returns the queue pair of a write to a doorbell page, or 0 for a doorbell of
 * another queue.
 */
static uint32_t doorbell_qpn(unsigned bar, uint64_t offset, unsigned len,
                             uint64_t value)
{
    uint8_t raw[QRNIC_DOORBELL_BYTES];
    QrnicDoorbell doorbell;

    offset %= QRNIC_DB_PAGE_SIZE;
    if (bar != QRNIC_BAR_DOORBELL || len != sizeof(raw) ||
        (offset != QRNIC_DB_SQ && offset != QRNIC_DB_RQ &&
         offset != QRNIC_DB_DIRECT)) {
        return 0;
    }
    stq_le_p(raw, value);
    qrnic_doorbell_unpack(&doorbell, raw);
    return doorbell.number;
}

/* Returns the destination queue pair of a RoCE frame, or 0 for other frames. */
static uint32_t frame_qpn(const uint8_t *frame, size_t len)
{
    QrnicHeaders h = qrnic_headers_walk(frame, len);
    size_t bth = h.network == QRNIC_NET_GRH ? h.ip + QRNIC_GRH_LEN :
                 h.l4 && h.protocol == QRNIC_IP_PROTOCOL_UDP &&
                 h.dport == QRNIC_ROCE_UDP_PORT ? h.l4 + QRNIC_UDP_LEN : 0;

    return bth && bth + BTH_QPN + 4 <= len ?
           ldl_be_p(frame + bth + BTH_QPN) & 0xffffff : 0;
}

/* Requests of the guest */

static void request_of_guest(QrnicDevice *d, Tlp *t, uint64_t value, bool write,
                             const char *comment)
{
    bool config = t->type == TLP_CONFIG_READ || t->type == TLP_CONFIG_WRITE;
    uint8_t raw[8];

    stq_le_p(raw, value);
    t->requester = ROOT_COMPLEX;
    t->tag = d->capture->tag++;
    t->data = write ? raw : NULL;
    tlp_write(d, t, comment);
    if (!write) {
        completion_write(d, t, COMPLETION_OK, t->addr, raw, t->len,
                         config ? 4 : t->len, comment);
    } else if (config) {
        completion_write(d, t, COMPLETION_OK, 0, NULL, 0, 4, comment);
    }
}

void qrnic_capture_config(QrnicDevice *d, uint32_t addr, unsigned len,
                          uint32_t value, bool write)
{
    Tlp t = {
        .type = write ? TLP_CONFIG_WRITE : TLP_CONFIG_READ, .addr = addr,
        .len = len,
    };
    char comment[COMMENT_BYTES];

    if (accepts(d, 0)) {
        snprintf(comment, sizeof(comment), "config offset=0x%" PRIx32, addr);
        request_of_guest(d, &t, value, write, comment);
    }
}

void qrnic_capture_mmio(QrnicDevice *d, unsigned bar, uint64_t offset,
                        unsigned len, uint64_t value, bool write)
{
    pcibus_t base = pci_get_bar_addr(PCI_DEVICE(d), bar);
    Tlp t = {
        .type = write ? TLP_MEMORY_WRITE : TLP_MEMORY_READ,
        /* A VMM may access a BAR that it has not mapped for the device. */
        .addr = (base == PCI_BAR_UNMAPPED ? 0 : base) + offset, .len = len,
    };
    char comment[COMMENT_BYTES];

    if (accepts(d, write ? doorbell_qpn(bar, offset, len, value) : 0)) {
        snprintf(comment, sizeof(comment), "bar=%u offset=0x%" PRIx64, bar,
                 offset);
        request_of_guest(d, &t, value, write, comment);
    }
}

/* Requests of the device */

static Tlp request_of_device(QrnicDevice *d, uint8_t type, uint64_t addr,
                             size_t len, const void *data)
{
    return (Tlp) {
        .type = type, .sent = true, .requester = device_id(d),
        .tag = d->capture->tag++, .addr = addr, .len = len, .data = data,
    };
}

/* Returns the bytes up to the next multiple of "size", at most len. */
static size_t part(uint64_t addr, size_t len, size_t size)
{
    return MIN(len, size - addr % size);
}

static void read_write(QrnicDevice *d, uint64_t addr, const uint8_t *buf,
                       size_t len, bool ok, const char *comment)
{
    Tlp t = request_of_device(d, TLP_MEMORY_READ, addr, len, NULL);

    tlp_write(d, &t, comment);
    if (!ok) {
        completion_write(d, &t, COMPLETION_UR, addr, NULL, 0, len, comment);
        return;
    }
    while (len) {
        size_t n = part(addr, len, max_payload(d));

        completion_write(d, &t, COMPLETION_OK, addr, buf, n, len, comment);
        addr += n;
        buf += n;
        len -= n;
    }
}

void qrnic_capture_dma(QrnicDevice *d, uint64_t addr, const void *buf,
                       size_t len, bool write, bool ok)
{
    const QrnicActivity *a = qrnic_engine_activity(d->engine);
    size_t n;

    if (!accepts(d, a->qpn)) {
        return;
    }
    for (size_t from = 0; from < len; from += n) {
        const uint8_t *at = (const uint8_t *)buf + from;
        char comment[COMMENT_BYTES];

        /* The limits count whole doublewords. */
        n = MIN(part(addr + from, len - from, BOUNDARY),
                (write ? max_payload(d) : max_read(d)) - (addr + from) % 4);
        dma_comment(a, len, from, n, comment);
        if (write) {
            Tlp t = request_of_device(d, TLP_MEMORY_WRITE, addr + from, n, at);

            tlp_write(d, &t, comment);
        } else {
            read_write(d, addr + from, at, n, ok, comment);
        }
    }
}

void qrnic_capture_atomic(QrnicDevice *d, uint64_t addr, const QrnicAtomic *op)
{
    const QrnicActivity *a = qrnic_engine_activity(d->engine);
    uint8_t operands[16], original[8];
    char comment[COMMENT_BYTES];
    Tlp t = request_of_device(d, op->compare_swap ? TLP_COMPARE_SWAP :
                                                    TLP_FETCH_ADD,
                              addr, op->compare_swap ? 16 : 8, operands);

    if (!accepts(d, a->qpn)) {
        return;
    }
    stq_le_p(operands, op->compare_swap ? op->compare : op->swap_add);
    stq_le_p(operands + 8, op->swap_add);
    stq_le_p(original, op->original);
    dma_comment(a, t.len, 0, t.len, comment);
    tlp_write(d, &t, comment);
    /* The lower address of an AtomicOp completion is 0 (2.2.9). */
    completion_write(d, &t, COMPLETION_OK, 0, original, 8, 8, comment);
}

void qrnic_capture_message(QrnicDevice *d, unsigned vector, uint64_t addr,
                           uint32_t data)
{
    uint8_t raw[4];
    char comment[COMMENT_BYTES];
    Tlp t = request_of_device(d, TLP_MEMORY_WRITE, addr, sizeof(raw), raw);

    if (accepts(d, qrnic_engine_activity(d->engine)->qpn)) {
        stl_le_p(raw, data);
        snprintf(comment, sizeof(comment), "interrupt vector=%u", vector);
        tlp_write(d, &t, comment);
    }
}

void qrnic_capture_wire(QrnicDevice *d, const uint8_t *frame, size_t len,
                        bool sent)
{
    const QrnicActivity *a = qrnic_engine_activity(d->engine);
    char comment[COMMENT_BYTES];
    size_t text = 0;
    QrnicCapturePacket packet = {
        .interface = INTERFACE_WIRE, .data = frame, .len = len, .sent = sent,
    };

    if (!accepts(d, sent ? a->qpn : frame_qpn(frame, len))) {
        return;
    }
    if (sent) {
        text = work_comment(a, comment, sizeof(comment));
    }
    packet.comment = text ? comment + 1 : NULL;
    qrnic_capture_packet(&d->capture->file, &packet);
}

/* Start and stop */

/* Writes the queued packets before QEMU ends. */
static void capture_exit(Notifier *notifier, void *opaque)
{
    QrnicBusCapture *c = container_of(notifier, QrnicBusCapture, exit);

    qrnic_capture_close(&c->file);
}

bool qrnic_capture_start(QrnicDevice *d, const char *path, uint32_t qpn,
                         Error **errp)
{
    g_autofree char *wire = g_strconcat(d->name, "-wire", NULL);
    g_autofree char *bus = g_strconcat(d->name, "-bus", NULL);
    QrnicBusCapture *c;

    if (!path) {
        if (qpn) {
            error_setg(errp, "qrnic: property 'capture-qp' requires 'capture'");
            return false;
        }
        return true;
    }
    c = g_new0(QrnicBusCapture, 1);
    c->qpn = qpn;
    if (!qrnic_capture_open(&c->file, path, wire, errp) ||
        !qrnic_capture_interface(&c->file, bus, QRNIC_CAPTURE_USER0, errp)) {
        g_free(c);
        return false;
    }
    c->exit.notify = capture_exit;
    qemu_add_exit_notifier(&c->exit);
    d->capture = c;
    return true;
}

void qrnic_capture_stop(QrnicDevice *d)
{
    if (d->capture) {
        qemu_remove_exit_notifier(&d->capture->exit);
        qrnic_capture_close(&d->capture->file);
        g_free(d->capture);
        d->capture = NULL;
    }
}
