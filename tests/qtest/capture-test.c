/*
 * qrnic qtest: captures of bus and wire
 *
 * Each test starts a device with the property capture, lets it work, ends QEMU
 * and compares the packets of the file. Programmer's Reference, chapter
 * Captures; PCI Express Base Specification, 2.2 (headers of TLPs).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/socket.h>
#include <sys/un.h>
#include "qobject/qdict.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

#define DEVICE_ID 0x28          /* 00:05.0 */
#define MRD 0x00
#define MWR 0x40
#define CFGRD 0x04
#define CFGWR 0x44
#define CPL 0x0a
#define CPLD 0x4a
#define FETCH_ADD 0x4c
#define COMPARE_SWAP 0x4e
#define LONG_ADDRESS 0x20
#define UR 1
#define WIRE 0
#define BUS 1
#define SLOT_OFF (PCI_EXP_SLTCTL_PWR_OFF | PCI_EXP_SLTCTL_PWR_IND_OFF)

typedef struct Packet {
    unsigned interface;
    uint64_t ns;
    bool sent;
    const uint8_t *data;
    uint32_t len;
    const char *comment;        /* "" for none */
} Packet;

typedef struct Capture {
    char *dir, *path;
    char *bytes;
    GArray *packets;
    unsigned interfaces;
} Capture;

/* The next packets that a test expects */
typedef struct Reader {
    Capture *c;
    unsigned at;
} Reader;

static Capture *capture_new(void)
{
    Capture *c = g_new0(Capture, 1);

    c->dir = g_dir_make_tmp("qrnic-capture-XXXXXX", NULL);
    c->path = g_strconcat(c->dir, "/c.pcapng", NULL);
    c->packets = g_array_new(false, false, sizeof(Packet));
    return c;
}

static void capture_free(Capture *c)
{
    for (unsigned i = 0; i < c->packets->len; i++) {
        g_free((char *)g_array_index(c->packets, Packet, i).comment);
    }
    unlink(c->path);
    rmdir(c->dir);
    g_array_free(c->packets, true);
    g_free(c->bytes);
    g_free(c->path);
    g_free(c->dir);
    g_free(c);
}

/*
 * Starts a rig with a capture. more: further properties, with a comma first;
 * attr: of the queue pair, or NULL
 */
static Capture *capture_rig_with(Rig *r, const char *more,
                                 const QrnicQpAttr *attr)
{
    Capture *c = capture_new();
    g_autofree char *properties = g_strdup_printf("capture=%s%s", c->path,
                                                  more);

    rig_start(r, properties, attr);
    return c;
}

static Capture *capture_rig(Rig *r, const char *more)
{
    return capture_rig_with(r, more, NULL);
}

static void packet_read(Capture *c, const char *block, uint32_t len)
{
    uint32_t captured = ldl_he_p(block + 20);
    Packet p = {
        .interface = ldl_he_p(block + 8), .len = captured,
        .ns = (uint64_t)ldl_he_p(block + 12) << 32 |
              (uint32_t)ldl_he_p(block + 16),
        .data = (const uint8_t *)block + 28,
    };
    const char *option = block + 28 + ROUND_UP(captured, 4);

    g_assert_cmpuint(p.interface, <, c->interfaces);
    g_assert_cmpuint(captured, ==, ldl_he_p(block + 24));
    while (lduw_he_p(option)) {
        uint16_t code = lduw_he_p(option), size = lduw_he_p(option + 2);

        g_assert_cmpuint(option + 4 + size - block, <, len);
        if (code == 1) {
            p.comment = g_strndup(option + 4, size);
        } else if (code == 2) {
            p.sent = ldl_he_p(option + 4) == 2;
        }
        option += 4 + ROUND_UP(size, 4);
    }
    p.comment = p.comment ?: g_strdup("");
    g_array_append_val(c->packets, p);
}

/* Returns the description of an interface, which zeros follow, or NULL. */
static const char *interface_description(const char *block)
{
    for (const char *o = block + 16; lduw_he_p(o);
         o += 4 + ROUND_UP(lduw_he_p(o + 2), 4)) {
        if (lduw_he_p(o) == 3) {
            return o + 4;
        }
    }
    return NULL;
}

/* Reads the file, whose last block must be complete. */
static void capture_read(Capture *c)
{
    static const uint16_t links[] = { 1, 147 };
    g_autofree char *version = g_strdup_printf("qrnic hardware interface %u.%u",
                                               QRNIC_HW_VERSION_MAJOR,
                                               QRNIC_HW_VERSION_MINOR);
    uint64_t before = 0;
    gsize size;

    g_assert_true(g_file_get_contents(c->path, &c->bytes, &size, NULL));
    for (gsize at = 0, len; at < size; at += len) {
        const char *block = c->bytes + at;
        uint32_t type = ldl_he_p(block);

        len = ldl_he_p(block + 4);
        g_assert_cmpuint(len, <=, size - at);
        g_assert_cmpuint(ldl_he_p(block + len - 4), ==, len);
        if (type == 1) {
            g_assert_cmpuint(c->interfaces, <, ARRAY_SIZE(links));
            g_assert_cmpuint(lduw_he_p(block + 8), ==, links[c->interfaces]);
            g_assert_cmpstr(interface_description(block), ==, version);
            c->interfaces++;
        } else if (type == 6) {
            packet_read(c, block, len);
        } else {
            g_assert_cmphex(type, ==, at ? 5 : 0x0a0d0d0a);
        }
    }
    g_assert_cmpuint(c->interfaces, ==, ARRAY_SIZE(links));
    for (unsigned i = 0; i < c->packets->len; i++) {
        g_assert_cmpuint(g_array_index(c->packets, Packet, i).ns, >=, before);
        before = g_array_index(c->packets, Packet, i).ns;
    }
}

static const Packet *packet_at(Capture *c, unsigned i)
{
    g_assert_cmpuint(i, <, c->packets->len);
    return &g_array_index(c->packets, Packet, i);
}

/* Returns the next packet whose comment begins with text, or NULL. */
static const Packet *find(Reader *r, const char *text)
{
    while (r->at < r->c->packets->len) {
        const Packet *p = packet_at(r->c, r->at++);

        if (g_str_has_prefix(p->comment, text)) {
            return p;
        }
    }
    return NULL;
}

/* Returns the next packet of the wire or of the device's requests. */
static const Packet *next(Reader *r)
{
    const Packet *p;

    do {
        p = packet_at(r->c, r->at++);
    } while (p->interface == BUS && (g_str_has_prefix(p->comment, "bar=") ||
                                     g_str_has_prefix(p->comment, "config")));
    return p;
}

static const Packet *next_use(Reader *r, const char *comment)
{
    const Packet *p = next(r);

    if (!g_str_has_prefix(p->comment, comment)) {
        g_error("'%s' expected, '%s' found", comment, p->comment);
    }
    return p;
}

static bool has_data(const Packet *p)
{
    return p->data[0] & 0x40;
}

/*
 * Asserts the header of a request: type, length, byte enables, requester and
 * address. Returns its tag.
 */
static uint8_t expect_request(const Packet *p, uint8_t type, uint64_t addr,
                              size_t len, uint16_t requester)
{
    bool is_long = addr >> 32;
    uint8_t enables = 0;
    unsigned shift = addr & 3, words = (shift + len + 3) / 4;

    g_assert_cmpuint(p->interface, ==, BUS);
    g_assert_cmphex(p->data[0], ==, type | (is_long ? LONG_ADDRESS : 0));
    g_assert_cmpuint(p->len, ==, (is_long ? 16 : 12) +
                     (has_data(p) ? words * 4 : 0));
    g_assert_cmphex(lduw_be_p(p->data + 2), ==, words & 0x3ff);
    g_assert_cmphex(lduw_be_p(p->data + 4), ==, requester);
    g_assert_cmphex(is_long ? ldq_be_p(p->data + 8) :
                    (uint32_t)ldl_be_p(p->data + 8), ==, addr & ~3ull);
    /* Each enabled byte of the first and the last doubleword, one by one */
    for (unsigned i = 0; i < 4; i++) {
        if (i >= shift && i < shift + len) {
            enables |= 1 << i;
        }
        if (words > 1 && (words - 1) * 4 + i < shift + len) {
            enables |= 0x10 << i;
        }
    }
    g_assert_cmphex(p->data[7], ==, enables);
    return p->data[6];
}

/* Asserts a completion with data, and returns the data. */
static const uint8_t *expect_completion(const Packet *p, uint8_t tag,
                                        uint64_t addr, size_t len,
                                        size_t remaining)
{
    g_assert_cmphex(p->data[0], ==, CPLD);
    g_assert_false(p->sent);
    g_assert_cmpuint(lduw_be_p(p->data + 2) * 4, ==,
                     ROUND_UP((addr & 3) + len, 4));
    g_assert_cmpuint(p->len, ==, 12 + ROUND_UP((addr & 3) + len, 4));
    g_assert_cmphex(lduw_be_p(p->data + 4), ==, 0);
    g_assert_cmphex(lduw_be_p(p->data + 6), ==, remaining & 0xfff);
    g_assert_cmphex(lduw_be_p(p->data + 8), ==, DEVICE_ID);
    g_assert_cmphex(p->data[10], ==, tag);
    g_assert_cmphex(p->data[11], ==, addr & 0x7f);
    return p->data + 12 + (addr & 3);
}

/*
 * Asserts the requests of a DMA access and the completions of a read, and
 * compares the data. The sizes are those of Device Control.
 */
static void expect_access(Reader *r, const char *comment, uint64_t addr,
                          const uint8_t *data, size_t len, bool write,
                          size_t payload, size_t read)
{
    while (len) {
        /* The limits count whole doublewords (2.2.2). */
        size_t n = MIN(MIN(len, 4096 - addr % 4096),
                       (write ? payload : read) - addr % 4);
        const Packet *p = next_use(r, comment);
        uint8_t tag = expect_request(p, write ? MWR : MRD, addr, n, DEVICE_ID);
        size_t rest = write ? 0 : n;

        g_assert_true(p->sent);
        if (write) {
            g_assert_cmpmem(p->data + 12 + addr % 4, n, data, n);
        }
        for (uint64_t at = addr; rest; ) {
            size_t part = MIN(rest, payload - at % payload);

            p = next_use(r, comment);
            g_assert_cmpmem(expect_completion(p, tag, at, part, rest), part,
                            data + (at - addr), part);
            at += part;
            rest -= part;
        }
        addr += n;
        data += n;
        len -= n;
    }
}

static void post_send(Rig *r, Qp *qp, uint64_t offset, uint32_t len)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_data(&w, r->mr.start + offset, len, r->mr.key);
    sq_post(r->d, qp, &w);
}

/*
 * Tests a send with doorbell record: all its packets in order, with their
 * headers.
 *
 * stop: a kind of event at which the device stops meanwhile, or NULL
 */
static void test_send(const void *stop)
{
    const uint32_t len = 101;
    uint8_t data[128], record[QRNIC_QUEUE_RECORD_BYTES] = { 1 };
    uint64_t cqe, doorbell_addr, message;
    const Packet *p;
    Reader reader;
    QrnicCqe done;
    Capture *c;
    Rig r;

    c = capture_rig(&r, "");
    rig_fill(&r, 3, data, len, 5);
    eq_arm(r.d, &r.eq);
    cq_arm(r.d, &r.send_cq, false);
    settle(r.d);
    stop_at(r.d, stop ?: "none");
    post_send(&r, &r.qp, 3, len);
    if (stop) {
        qobject_unref(stop_wait(r.d, stop));
        stop_at(r.d, "none");
    }
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK, 1);
    cq_wait(r.d, &r.send_cq, &done);
    interrupt_wait(r.d, 1);
    doorbell_addr = r.d->doorbells.addr + r.page * QRNIC_DB_PAGE_SIZE;
    message = r.d->msi[1];
    rig_stop(&r);

    capture_read(c);
    reader = (Reader) { c };
    do {
        p = find(&reader, "bar=2");
        g_assert_nonnull(p);
    } while ((ldl_be_p(p->data + 8) & 0xfff) != QRNIC_DB_SQ);
    expect_request(p, MWR, doorbell_addr, 8, 0);
    g_assert_false(p->sent);
    expect_access(&reader, "use=record", r.qp.sq_record, record,
                  sizeof(record), false, 128, 512);
    p = next_use(&reader, "use=wqe");
    expect_request(p, MRD, r.qp.sq, QRNIC_WQEBB_SIZE, DEVICE_ID);
    g_assert_nonnull(strstr(p->comment, " index=0"));
    p = next_use(&reader, "use=wqe");
    g_assert_cmphex(p->data[12], ==, QRNIC_WQE_SEND);
    expect_access(&reader, "use=data", r.mr.memory + 3, data, len, false, 128,
                  512);
    p = next(&reader);
    g_assert_cmpuint(p->interface, ==, WIRE);
    g_assert_true(p->sent);
    g_assert_nonnull(strstr(p->comment, " wqe=0 psn=4097"));
    g_assert_cmpmem(p->data + p->len - 4 - ROUND_UP(len, 4), len, data, len);
    p = next(&reader);
    g_assert_cmpuint(p->interface, ==, WIRE);
    g_assert_false(p->sent);
    cqe = r.send_cq.ring;
    p = next_use(&reader, "use=cqe");
    expect_request(p, MWR, cqe, QRNIC_CQE_CONTROL_OFFSET, DEVICE_ID);
    p = next_use(&reader, "use=cqe");
    expect_request(p, MWR, cqe + QRNIC_CQE_CONTROL_OFFSET, 4, DEVICE_ID);
    p = next_use(&reader, "use=eqe");
    expect_request(p, MWR, r.eq.ring, QRNIC_EQE_CONTROL_OFFSET, DEVICE_ID);
    p = next_use(&reader, "use=eqe");
    expect_request(p, MWR, r.eq.ring + QRNIC_EQE_CONTROL_OFFSET, 4, DEVICE_ID);
    p = next_use(&reader, "interrupt vector=1");
    expect_request(p, MWR, message, 4, DEVICE_ID);
    g_assert_cmpuint(ldl_le_p(p->data + 12), ==, 2);
    capture_free(c);
}

static uint8_t express(Rig *r)
{
    return qpci_find_capability(r->d->pci, PCI_CAP_ID_EXP, 0);
}

static void sizes_set(Rig *r, unsigned payload, unsigned read)
{
    qpci_config_writew(r->d->pci, express(r) + PCI_EXP_DEVCTL,
                       payload << 5 | read << 12);
}

/*
 * Tests the division of reads and writes at 4 KiB and at the sizes of Device
 * Control. Addresses and lengths are no multiples of 4.
 */
static void test_division(const void *sizes)
{
    unsigned payload = GPOINTER_TO_UINT(sizes) & 7;
    unsigned read = GPOINTER_TO_UINT(sizes) >> 3;
    const uint64_t offset = 4096 - 77;
    const uint32_t len = 1021;
    uint8_t data[1024], written[RIG_PACKET];
    g_autofree char *psn = NULL;
    const Packet *p;
    QrnicCqe done;
    Reader reader;
    Capture *c;
    Rig r;

    c = capture_rig(&r, "");
    sizes_set(&r, payload, read);
    rig_fill(&r, offset, data, len, 7);
    post_send(&r, &r.qp, offset, len);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK, 1);
    cq_wait(r.d, &r.send_cq, &done);
    rig_write_from_peer(&r, RQ_PSN, offset + 1, 0x5a, 0, true);
    peer_expect(r.d, RC_ACK, RQ_PSN);
    rig_stop(&r);

    capture_read(c);
    reader = (Reader) { c };
    g_assert_nonnull(find(&reader, "use=data"));
    reader.at--;
    expect_access(&reader, "use=data", r.mr.memory + offset, data, len, false,
                  128 << payload, 128 << read);
    g_assert_nonnull(find(&reader, "use=data"));
    reader.at--;
    memset(written, 0x5a, sizeof(written));
    expect_access(&reader, "use=data", r.mr.memory + offset + 1, written,
                  sizeof(written), true, 128 << payload, 128 << read);
    /* A response has the PSN of its request, and no send WQE. */
    do {
        p = next(&reader);
    } while (p->interface == BUS);
    g_assert_true(p->sent);
    psn = g_strdup_printf(" psn=%u", RQ_PSN);
    g_assert_nonnull(strstr(p->comment, psn));
    g_assert_null(strstr(p->comment, "wqe="));
    capture_free(c);
}

/*
 * Tests that Device Control supports no Max_Payload_Size that is not in Device
 * Capabilities, and that FLR keeps Max_Payload_Size only (PCIe, 6.6.2).
 */
static void test_sizes(void)
{
    uint16_t sizes;
    uint8_t exp;
    Rig r;

    rig_start(&r, "", NULL);
    exp = express(&r);
    sizes = qpci_config_readw(r.d->pci, exp + PCI_EXP_DEVCTL);
    g_assert_cmphex(sizes & PCI_EXP_DEVCTL_PAYLOAD, ==, 0);
    g_assert_cmphex(sizes & PCI_EXP_DEVCTL_READRQ, ==,
                    PCI_EXP_DEVCTL_READRQ_512B);
    g_assert_cmphex(qpci_config_readl(r.d->pci, exp + PCI_EXP_DEVCAP) &
                    PCI_EXP_DEVCAP_PAYLOAD, ==, 2);
    sizes_set(&r, 1, 5);
    qpci_config_writew(r.d->pci, exp + PCI_EXP_DEVCTL,
                       1 << 5 | 5 << 12 | PCI_EXP_DEVCTL_BCR_FLR);
    sizes = qpci_config_readw(r.d->pci, exp + PCI_EXP_DEVCTL);
    g_assert_cmphex(sizes & PCI_EXP_DEVCTL_PAYLOAD, ==, 1 << 5);
    g_assert_cmphex(sizes & PCI_EXP_DEVCTL_READRQ, ==,
                    PCI_EXP_DEVCTL_READRQ_512B);
    rig_stop(&r);
}

/* Tests a read above 4 GiB, where no memory is: a long header, and UR. */
static void test_failed_read(void)
{
    const uint64_t nowhere = 0x123456789000;
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = ALL_RIGHTS, .variant = 0x11,
        .start = 0x40000, .length = 4096, .table = contiguous(nowhere),
    };
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    const Packet *p;
    Reader reader;
    QrnicCqe done;
    uint8_t tag;
    Capture *c;
    Rig r;

    c = capture_rig(&r, "");
    wqe_data(&w, ctx.start + 6, 5, rig_key_create(&r, ctx));
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &done);
    g_assert_cmpuint(done.status, !=, QRNIC_WC_SUCCESS);
    rig_stop(&r);

    capture_read(c);
    reader = (Reader) { c };
    p = find(&reader, "use=data");
    g_assert_nonnull(p);
    tag = expect_request(p, MRD, nowhere + 6, 5, DEVICE_ID);
    p = next_use(&reader, "use=data");
    g_assert_cmphex(p->data[0], ==, CPL);
    g_assert_cmpuint(p->len, ==, 12);
    g_assert_cmphex(lduw_be_p(p->data + 6), ==, UR << 13 | 5);
    g_assert_cmphex(p->data[10], ==, tag);
    capture_free(c);
}

static void atomic_from_peer(Rig *r, uint8_t opcode, uint32_t psn,
                             uint64_t swap_add, uint64_t compare)
{
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.va = r->mr.start + 256;
    p.rkey = r->mr.key;
    p.swap_add = swap_add;
    p.compare = compare;
    peer_send(r->d, &p);
    peer_expect(r->d, RC_ATOMIC_ACK, psn);
}

static void test_atomics(void)
{
    const Packet *p;
    Reader reader;
    uint8_t tag;
    Capture *c;
    Rig r;

    c = capture_rig(&r, "");
    qtest_writeq(r.d->qts, r.mr.memory + 256, 100);
    atomic_from_peer(&r, RC_FETCH_ADD, RQ_PSN, 5, 0);
    atomic_from_peer(&r, RC_CMP_SWAP, RQ_PSN + 1, 7, 105);
    rig_stop(&r);

    capture_read(c);
    reader = (Reader) { c };
    p = find(&reader, "use=data");
    g_assert_nonnull(p);
    tag = expect_request(p, FETCH_ADD, r.mr.memory + 256, 8, DEVICE_ID);
    g_assert_cmpuint(ldq_le_p(p->data + 12), ==, 5);
    p = next_use(&reader, "use=data");
    g_assert_cmpuint(ldq_le_p(expect_completion(p, tag, 0, 8, 8)), ==, 100);
    p = find(&reader, "use=data");
    g_assert_nonnull(p);
    tag = expect_request(p, COMPARE_SWAP, r.mr.memory + 256, 16, DEVICE_ID);
    g_assert_cmpuint(ldq_le_p(p->data + 12), ==, 105);
    g_assert_cmpuint(ldq_le_p(p->data + 20), ==, 7);
    p = next_use(&reader, "use=data");
    g_assert_cmpuint(ldq_le_p(expect_completion(p, tag, 0, 8, 8)), ==, 105);
    capture_free(c);
}

/*
 * Asserts the Byte Count 4 and Lower Address 0 of a completion of a
 * configuration request (PCI Express Base Specification, 2.2.9).
 */
static void expect_config_completion(const Packet *p, uint8_t type)
{
    g_assert_cmphex(p->data[0], ==, type);
    g_assert_true(p->sent);
    g_assert_cmphex(lduw_be_p(p->data + 6), ==, 4);
    g_assert_cmphex(p->data[11], ==, 0);
}

/* Tests configuration requests and reads of registers. */
static void test_guest_accesses(void)
{
    const Packet *p;
    Reader reader;
    uint64_t addr;
    uint8_t tag;
    Capture *c;
    Rig r;

    c = capture_rig(&r, "");
    addr = r.d->control.addr + QRNIC_REG_SCRATCH;
    qpci_config_writeb(r.d->pci, PCI_INTERRUPT_LINE, 0x5a);
    g_assert_cmphex(qpci_config_readb(r.d->pci, PCI_INTERRUPT_LINE), ==, 0x5a);
    qpci_config_readb(r.d->pci, PCI_INTERRUPT_PIN);
    reg_write(r.d, QRNIC_REG_SCRATCH, 0x600dda7a);
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_SCRATCH), ==, 0x600dda7a);
    rig_stop(&r);

    capture_read(c);
    reader = (Reader) { c };
    do {
        p = find(&reader, "config offset=0x3c");
        g_assert_nonnull(p);
    } while (p->data[0] != CFGWR);
    g_assert_cmphex(lduw_be_p(p->data + 8), ==, DEVICE_ID);
    g_assert_cmphex(lduw_be_p(p->data + 10), ==, 0x3c);
    g_assert_cmphex(p->data[7], ==, 0x01);
    g_assert_cmphex(p->data[12], ==, 0x5a);
    tag = p->data[6];
    p = find(&reader, "config offset=0x3c");
    expect_config_completion(p, CPL);
    g_assert_cmphex(p->data[10], ==, tag);
    p = find(&reader, "config offset=0x3c");
    g_assert_cmphex(p->data[0], ==, CFGRD);
    p = find(&reader, "config offset=0x3c");
    expect_config_completion(p, CPLD);
    g_assert_cmphex(p->data[12], ==, 0x5a);
    /* The bytes of this access are not the first ones of their doubleword. */
    p = find(&reader, "config offset=0x3d");
    g_assert_nonnull(p);
    g_assert_cmphex(p->data[0], ==, CFGRD);
    g_assert_cmphex(p->data[7], ==, 0x02);
    expect_config_completion(find(&reader, "config offset=0x3d"), CPLD);
    p = find(&reader, "bar=0 offset=0x34");
    g_assert_nonnull(p);
    expect_request(p, MWR, addr, 4, 0);
    g_assert_cmphex(ldl_le_p(p->data + 12), ==, 0x600dda7a);
    p = find(&reader, "bar=0 offset=0x34");
    tag = expect_request(p, MRD, addr, 4, 0);
    p = find(&reader, "bar=0 offset=0x34");
    g_assert_cmphex(p->data[0], ==, CPLD);
    g_assert_cmphex(p->data[10], ==, tag);
    g_assert_cmphex(lduw_be_p(p->data + 4), ==, DEVICE_ID);
    g_assert_cmphex(ldl_le_p(p->data + 12), ==, 0x600dda7a);
    capture_free(c);
}

/* Tests that capture-qp keeps the packets of one queue pair only. */
static void test_filter(void)
{
    g_autofree char *more = NULL, *mark = NULL;
    unsigned frames = 0, doorbells = 0, others = 0;
    QrnicCqe done;
    Capture *c;
    Qp other;
    Rig r;

    /* The numbers of queue pairs are the same in each run. */
    rig_start(&r, "", NULL);
    more = g_strdup_printf(",capture-qp=%u", r.qp.number);
    mark = g_strdup_printf(" qp=%u ", r.qp.number);
    rig_stop(&r);
    c = capture_rig(&r, more);
    qp_create(r.d, &other, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              5, 3, 0);
    qp_connect(r.d, &other, NULL);
    post_send(&r, &other, 0, 64);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &other, SQ_PSN, AETH_ACK, 1);
    cq_wait(r.d, &r.send_cq, &done);
    post_send(&r, &r.qp, 0, 64);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK, 1);
    cq_wait(r.d, &r.send_cq, &done);
    rig_stop(&r);

    capture_read(c);
    for (unsigned i = 0; i < c->packets->len; i++) {
        const Packet *p = packet_at(c, i);

        if (p->interface == WIRE) {
            frames++;
        } else if (g_str_has_prefix(p->comment, "bar=2")) {
            doorbells++;
            g_assert_cmpuint(ldl_le_p(p->data + p->len - 8) & 0xffffff, ==,
                             r.qp.number);
        } else {
            g_assert_true(strstr(p->comment, mark));
            others++;
        }
    }
    g_assert_cmpuint(doorbells, ==, 1);
    g_assert_cmpuint(frames, ==, 2);
    g_assert_cmpuint(others, >=, 8);
    capture_free(c);
}

/*
 * Tests that the file is complete after a message has reset the device in the
 * middle of its work.
 */
static void test_reset(void)
{
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    Reader reader;
    Capture *c;
    Rig r;

    c = capture_rig(&r, "");
    message_set(r.d, 1, config_address(r.d, r.d->devfn,
                                       express(&r) + PCI_EXP_DEVCTL),
                PCI_EXP_DEVCTL_BCR_FLR);
    eq_arm(r.d, &r.eq);
    cq_arm(r.d, &r.send_cq, false);
    sq_post(r.d, &r.qp, &w);
    WAIT_UNTIL(!(qpci_config_readw(r.d->pci, PCI_COMMAND) &
                 PCI_COMMAND_MASTER), "the message resets nothing");
    rig_stop(&r);

    capture_read(c);
    reader = (Reader) { c };
    g_assert_nonnull(find(&reader, "interrupt vector=1"));
    /* The work after the reset belongs to no queue pair. */
    while (reader.at < c->packets->len) {
        g_assert_null(strstr(packet_at(c, reader.at++)->comment, "qp="));
    }
    capture_free(c);
}

/* Tests that the file is complete when the device is gone. */
static void test_unplug(void)
{
    g_autofree char *properties = NULL;
    Capture *c = capture_new();
    unsigned packets;
    Reader reader;
    Rig r;

    properties = g_strdup_printf("capture=%s", c->path);
    rig_start_behind_port(&r, properties);
    post_send(&r, &r.qp, 0, 64);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    qtest_writew(r.d->qts, slot_control_address(r.d), SLOT_OFF);
    qtest_qmp_eventwait(r.d->qts, "DEVICE_DELETED");
    capture_read(c);
    reader = (Reader) { c };
    g_assert_nonnull(find(&reader, "use=wqe"));
    packets = c->packets->len;
    g_assert_cmpuint(packets, >, 20);
    rig_stop(&r);
    capture_free(c);
}

/*
 * Charts of the manual: tools/capture-charts draws each capture. The variable
 * QRNIC_CHARTS names the folder that keeps the files.
 */

#define REMOTE_VA 0x7f0000001000ull
#define REMOTE_KEY 0x1234
#define MTU 1024                /* path MTU of the rig */
#define AETH_NONE 0xff          /* no packet of the device */

static Capture *chart_begin(Rig *r)
{
    Capture *c = capture_rig(r, "");

    eq_arm(r->d, &r->eq);
    cq_arm(r->d, &r->send_cq, false);
    settle(r->d);
    return c;
}

/* Ends a chart with the success of its WQE, and with its interrupt if event. */
static void chart_end(Rig *r, Capture *c, Cq *cq, bool event,
                      const char *name)
{
    const char *folder = g_getenv("QRNIC_CHARTS");
    QrnicCqe cqe;
    QrnicEqe eqe;

    cq_wait(r->d, cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    if (event) {
        interrupt_wait(r->d, 1);
        eq_wait(r->d, &r->eq, &eqe);
    }
    rig_stop(r);
    capture_read(c);
    if (folder) {
        g_autofree char *path = g_strdup_printf("%s/%s.pcapng", folder, name);
        gsize size;

        g_free(c->bytes);
        g_assert_true(g_file_get_contents(c->path, &c->bytes, &size, NULL));
        g_assert_true(g_file_set_contents(path, c->bytes, size, NULL));
    }
    capture_free(c);
}

static void chart_post(Rig *r, unsigned opcode, uint32_t len)
{
    Wqe w = wqe_begin(opcode, QRNIC_WQEF_SIGNALED);

    if (opcode != QRNIC_WQE_SEND) {
        wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    }
    wqe_data(&w, r->mr.start, len, r->mr.key);
    sq_post(r->d, &r->qp, &w);
}

static void chart_response(Rig *r, unsigned opcode, uint32_t psn)
{
    static const uint8_t data[MTU];
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.payload = data;
    p.length = MTU;
    p.syndrome = AETH_ACK | 31;
    p.msn = 1;
    peer_send(r->d, &p);
}

static void chart_send(void)
{
    Capture *c;
    Rig r;

    c = chart_begin(&r);
    chart_post(&r, QRNIC_WQE_SEND, 256);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    chart_end(&r, c, &r.send_cq, true, "rc-send");
}

static void chart_read(void)
{
    Capture *c;
    Rig r;

    c = chart_begin(&r);
    chart_post(&r, QRNIC_WQE_RDMA_READ, 2 * MTU);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN);
    chart_response(&r, RC_READ_FIRST, SQ_PSN);
    chart_response(&r, RC_READ_LAST, SQ_PSN + 1);
    chart_end(&r, c, &r.send_cq, true, "rdma-read");
}

/* The peer misses the second packet of a write, and answers the third one. */
static void chart_lost_packet(void)
{
    Capture *c;
    Rig r;

    c = chart_begin(&r);
    chart_post(&r, QRNIC_WQE_RDMA_WRITE, 3 * MTU);
    peer_expect(r.d, RC_WRITE_FIRST, SQ_PSN);
    peer_expect(r.d, RC_WRITE_MIDDLE, SQ_PSN + 1);
    peer_expect(r.d, RC_WRITE_LAST, SQ_PSN + 2);
    peer_ack(r.d, &r.qp, SQ_PSN + 1, AETH_NAK_SEQUENCE, 0);
    peer_expect(r.d, RC_WRITE_MIDDLE, SQ_PSN + 1);
    peer_expect(r.d, RC_WRITE_LAST, SQ_PSN + 2);
    peer_ack(r.d, &r.qp, SQ_PSN + 2, AETH_ACK | 31, 1);
    chart_end(&r, c, &r.send_cq, true, "lost-packet");
}

/* The second response to a read is lost, so the third one arrives early. */
static void chart_lost_response(void)
{
    Capture *c;
    Rig r;

    c = chart_begin(&r);
    chart_post(&r, QRNIC_WQE_RDMA_READ, 3 * MTU);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN);
    chart_response(&r, RC_READ_FIRST, SQ_PSN);
    chart_response(&r, RC_READ_LAST, SQ_PSN + 2);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN + 1);
    chart_response(&r, RC_READ_FIRST, SQ_PSN + 1);
    chart_response(&r, RC_READ_LAST, SQ_PSN + 2);
    chart_end(&r, c, &r.send_cq, true, "lost-response");
}

static void chart_send_to_device(Rig *r, uint32_t psn, uint8_t syndrome)
{
    static const uint8_t data[256];
    PeerPacket p = peer_packet(&r->qp, RC_SEND_ONLY, psn);

    p.payload = data;
    p.length = sizeof(data);
    p.ack_request = true;
    peer_send(r->d, &p);
    if (syndrome != AETH_NONE) {
        p = peer_expect(r->d, RC_ACK, psn);
        g_assert_cmphex(p.syndrome & 0x60, ==, syndrome);
    }
}

/*
 * The peer sends two messages before software posts receive WQEs. The second
 * message is out of order, because the first one was not accepted.
 */
static void chart_rnr(void)
{
    QrnicQpAttr attr = qp_default_attr();
    QrnicDataSeg sge;
    Capture *c;
    Rig r;

    attr.rq_psn = 10;
    c = capture_rig_with(&r, "", &attr);
    sge = (QrnicDataSeg) {
        .address = r.mr.start, .length = MTU, .lkey = r.mr.key,
    };
    chart_send_to_device(&r, 10, AETH_RNR_NAK);
    chart_send_to_device(&r, 11, AETH_NONE);
    settle(r.d);
    wire_silent(r.d);
    rq_write(r.d, &r.qp, &sge, 1);
    rq_post(r.d, &r.qp, &sge, 1);
    /* This ACK has the credits of the new receive WQEs. */
    peer_expect(r.d, RC_ACK, 9);
    chart_send_to_device(&r, 10, AETH_ACK);
    chart_send_to_device(&r, 11, AETH_ACK);
    chart_end(&r, c, &r.recv_cq, false, "rnr");
}

/* The CQE is there before software requests an event. */
static void chart_arming_race(void)
{
    QrnicCqe none;
    Capture *c;
    Rig r;

    c = capture_rig(&r, "");
    eq_arm(r.d, &r.eq);
    g_assert_false(cq_poll(r.d, &r.send_cq, &none));
    chart_post(&r, QRNIC_WQE_SEND, 256);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    settle(r.d);
    cq_arm(r.d, &r.send_cq, false);
    chart_end(&r, c, &r.send_cq, true, "arming-race");
}

typedef struct Refused {
    const char *name, *properties, *message;
} Refused;

static const Refused refused[] = {
    { "folder", "capture=/nowhere/c.pcapng", "/nowhere/c.pcapng" },
    { "device-node", "capture=/dev/full", "'/dev/full' is neither" },
    { "filter", "capture-qp=1", "requires 'capture'" },
};

/*
 * Tests that a FIFO without a reader and a socket are rejected. An open of the
 * FIFO for writing would wait until a program reads it.
 */
static void test_refused_types(void)
{
    g_autofree char *dir = g_dir_make_tmp("qrnic-capture-XXXXXX", NULL);
    g_autofree char *path = g_strconcat(dir, "/c", NULL);
    g_autofree char *properties = g_strconcat("capture=", path, NULL);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    device_refused(properties, "no program reads the FIFO");
    unlink(path);
    g_strlcpy(address.sun_path, path, sizeof(address.sun_path));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&address, sizeof(address)), ==,
                    0);
    device_refused(properties, "is neither a regular file nor a FIFO");
    close(fd);
    unlink(path);
    rmdir(dir);
}

static void test_refused(const void *data)
{
    const Refused *c = data;

    device_refused(c->properties, c->message);
}

/*
 * Adds the tests of the contents. A process does not know its number on the
 * VMM's bus, nor the messages of MSI-X, so its capture has other values.
 */
static void add_content_tests(void)
{
    qtest_add_data_func("qrnic/capture/send", NULL, test_send);
    qtest_add_data_func("qrnic/capture/send-with-stop", "data", test_send);
    /* Max_Payload_Size, and Max_Read_Request_Size in units of 8 */
    qtest_add_data_func("qrnic/capture/division/128-128",
                        GUINT_TO_POINTER(0 | 0 << 3), test_division);
    qtest_add_data_func("qrnic/capture/division/256-128",
                        GUINT_TO_POINTER(1 | 0 << 3), test_division);
    qtest_add_data_func("qrnic/capture/division/512-4096",
                        GUINT_TO_POINTER(2 | 5 << 3), test_division);
    qtest_add_func("qrnic/capture/sizes", test_sizes);
    qtest_add_func("qrnic/capture/failed-read", test_failed_read);
    qtest_add_func("qrnic/capture/atomics", test_atomics);
    qtest_add_func("qrnic/capture/guest-accesses", test_guest_accesses);
    qtest_add_func("qrnic/capture/filter", test_filter);
    qtest_add_func("qrnic/capture/reset", test_reset);
    qtest_add_func("qrnic/capture/unplug", test_unplug);
    qtest_add_func("qrnic/capture/chart/rc-send", chart_send);
    qtest_add_func("qrnic/capture/chart/rdma-read", chart_read);
    qtest_add_func("qrnic/capture/chart/lost-packet", chart_lost_packet);
    qtest_add_func("qrnic/capture/chart/lost-response", chart_lost_response);
    qtest_add_func("qrnic/capture/chart/rnr", chart_rnr);
    qtest_add_func("qrnic/capture/chart/arming-race", chart_arming_race);
}

void add_capture_tests(void)
{
    if (!in_process()) {
        add_content_tests();
    }
    qtest_add_func("qrnic/capture/refused/types", test_refused_types);
    for (unsigned i = 0; i < ARRAY_SIZE(refused); i++) {
        g_autofree char *path = g_strconcat("qrnic/capture/refused/",
                                            refused[i].name, NULL);

        qtest_add_data_func(path, &refused[i], test_refused);
    }
}
