/*
 * qrnic-watch: one message between two devices, for tools/watch
 *
 * Starts two QEMUs that a wire joins, and connects a queue pair of each with
 * the other. Then it posts one operation and handles its completions, as a
 * driver would. The devices write their trace events to DIRECTORY/sender.trace
 * and DIRECTORY/receiver.trace. Captures of bus and wire are in
 * DIRECTORY/sender.pcapng and DIRECTORY/receiver.pcapng. This program prints
 * the steps of the two drivers, a line each: TIME sender|receiver STEP TEXT.
 * The step "begin" is the first after the preparations.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "driver.h"

#define SENDER_PSN 0x001001u
#define RECEIVER_PSN 0x002001u
#define QKEY 0x11223344u
#define GRH_BYTES 40u
#define BUFFER_BYTES 0x10000u
#define START 0x10000000ull
#define ADDEND 5u

typedef struct End {
    const char *name;
    const char *ip4, *mac;
    Device *d;
    Eq eq;
    Cq cq;
    Mr mr;
    Qp qp;
    uint32_t pd, page;
} End;

typedef struct Operation {
    const char *name;
    unsigned opcode;            /* Opcode of the send WQE */
    bool datagram, receives;
    uint32_t length;            /* 0: any length */
} Operation;

static const Operation operations[] = {
    { "send", QRNIC_WQE_SEND, false, true, 0 },
    { "write", QRNIC_WQE_RDMA_WRITE, false, false, 0 },
    { "write-imm", QRNIC_WQE_RDMA_WRITE_IMM, false, true, 0 },
    { "read", QRNIC_WQE_RDMA_READ, false, false, 0 },
    { "atomic", QRNIC_WQE_ATOMIC_FETCH_ADD, false, false, 8 },
    { "ud-send", QRNIC_WQE_SEND, true, true, 0 },
};

static void step(const End *e, const char *name, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

static void step(const End *e, const char *name, const char *format, ...)
{
    int64_t now = g_get_real_time();
    g_autofree char *text = NULL;
    va_list list;

    va_start(list, format);
    text = g_strdup_vprintf(format, list);
    va_end(list);
    printf("%" PRId64 ".%06d %s %s %s\n", now / G_USEC_PER_SEC,
           (int)(now % G_USEC_PER_SEC), e->name, name, text);
}

static void address_set(End *e)
{
    QrnicGidEntry entry = { .flags = QRNIC_GID_VALID };
    uint8_t raw[QRNIC_GID_ENTRY_BYTES];

    gid_of_ip4(entry.gid, e->ip4);
    memcpy(entry.mac, e->mac, 6);
    qrnic_gid_entry_pack(raw, &entry);
    command_ok(e->d, QRNIC_CMD_SET_GID, 0, raw, sizeof(raw), NULL, 0);
}

/*
 * Starts one device. unused: number of queue pairs to create first, so that the
 * numbers of both sides differ.
 *
 * socket: of a QMP server, or NULL
 */
static void end_start(End *e, const char *directory, int wire,
                      const Operation *op, unsigned unused, const char *socket)
{
    g_autofree char *qmp = socket ?
        g_strdup_printf("-qmp unix:%s,server=on,wait=off", socket) : NULL;
    g_autofree char *properties = g_strdup_printf(
        "mac=%02x:%02x:%02x:%02x:%02x:%02x,netdev=wire,capture=%s/%s.pcapng "
        "-netdev dgram,id=wire,local.type=fd,local.str=%d "
        "-msg timestamp=on -D %s/%s.trace -trace qrnic_* %s",
        (uint8_t)e->mac[0], (uint8_t)e->mac[1], (uint8_t)e->mac[2],
        (uint8_t)e->mac[3], (uint8_t)e->mac[4], (uint8_t)e->mac[5], directory,
        e->name, wire,
        directory, e->name, qmp ?: "");

    e->d = device_start_on(properties, false, false);
    eq_create(e->d, &e->eq, QRNIC_EQ_COMPLETION, 1, 4);
    e->pd = command_ok(e->d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
    e->page = command_ok(e->d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
    cq_create(e->d, &e->cq, &e->eq, e->page, 4);
    mr_create(e->d, &e->mr, e->pd, START, BUFFER_BYTES, ALL_RIGHTS);
    address_set(e);
    do {
        qp_create(e->d, &e->qp, op->datagram ? QRNIC_QPT_UD : QRNIC_QPT_RC,
                  e->pd, e->page, &e->cq, &e->cq, 4, 2, 1);
    } while (unused--);
}

static void address_to(QrnicAddressVector *av, const End *to)
{
    gid_of_ip4(av->dgid, to->ip4);
    memcpy(av->dmac, to->mac, 6);
}

static void end_connect(End *e, const End *to, const Operation *op,
                        uint32_t sq_psn, uint32_t rq_psn)
{
    QrnicQpAttr attr = qp_default_attr();

    if (op->datagram) {
        qp_start_datagram(e->d, &e->qp, QKEY);
    } else {
        attr.dest_qpn = to->qp.number;
        attr.sq_psn = sq_psn;
        attr.rq_psn = rq_psn;
        address_to(&attr.av, to);
        qp_connect(e->d, &e->qp, &attr);
    }
    eq_arm(e->d, &e->eq);
    cq_arm(e->d, &e->cq, false);
}

static void receive_post(End *e, const Operation *op, uint32_t length)
{
    QrnicDataSeg sge = {
        .address = e->mr.start, .lkey = e->mr.key,
        .length = length + (op->datagram ? GRH_BYTES : 0),
    };

    rq_post(e->d, &e->qp, &sge, 1);
    settle(e->d);
}

static void post(End *e, const End *to, const Operation *op, uint32_t length)
{
    Wqe w = wqe_begin(op->opcode, QRNIC_WQEF_SIGNALED);
    QrnicDatagramSeg datagram = { .dest_qpn = to->qp.number, .qkey = QKEY };

    if (op->datagram) {
        datagram.av.hop_limit = 64;
        address_to(&datagram.av, to);
        wqe_datagram(&w, &datagram);
    } else if (op->opcode != QRNIC_WQE_SEND) {
        wqe_remote(&w, to->mr.start, to->mr.key);
    }
    if (op->opcode == QRNIC_WQE_ATOMIC_FETCH_ADD) {
        wqe_atomic(&w, ADDEND, 0);
    } else if (op->opcode == QRNIC_WQE_RDMA_WRITE_IMM) {
        w.ctrl.imm = 0x600dda7a;
    }
    wqe_data(&w, e->mr.start, length, e->mr.key);
    step(e, "write-wqe", "slot=%u qp=%u", e->qp.sq_producer, e->qp.number);
    sq_write(e->d, &e->qp, &w);
    step(e, "write-record", "producer=%u", e->qp.sq_producer);
    sq_publish(e->d, &e->qp);
    step(e, "ring", "page=%u offset=0x%x", e->qp.page, QRNIC_DB_SQ);
    sq_ring(e->d, &e->qp);
}

/* Handles the interrupt as a driver does. */
static void complete(End *e)
{
    QrnicEqe eqe;
    QrnicCqe cqe;

    interrupt_wait(e->d, 1);
    step(e, "interrupt", "vector=1");
    eq_wait(e->d, &e->eq, &eqe);
    step(e, "read-eqe", "eq=%u cq=%u", e->eq.number, eqe.object);
    g_assert_cmpuint(eqe.object, ==, e->cq.number);
    cq_wait(e->d, &e->cq, &cqe);
    step(e, "read-cqe", "cq=%u qp=%u status=%s", e->cq.number, cqe.qpn,
         qrnic_wc_status_name(cqe.status));
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(QRNIC_WC_SUCCESS));
    g_assert_cmpuint(cqe.qpn, ==, e->qp.number);
}

static void fill(End *e, uint8_t *data, uint32_t length, uint8_t seed)
{
    for (uint32_t i = 0; i < length; i++) {
        data[i] = i * 7 + seed;
    }
    qtest_memwrite(e->d->qts, e->mr.memory, data, length);
}

int main(int argc, char **argv)
{
    static uint8_t ours[BUFFER_BYTES], theirs[BUFFER_BYTES], got[BUFFER_BYTES];
    End a = { .name = "sender", .ip4 = OUR_IP4, .mac = OUR_MAC };
    End b = { .name = "receiver", .ip4 = PEER_IP4, .mac = PEER_MAC };
    const Operation *op = NULL;
    unsigned int length = 0;
    uint32_t skip;
    End *end;
    int pair[2];

    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: qrnic-watch OPERATION LENGTH DIRECTORY "
                "[SOCKET]; tools/watch runs it\n");
        return 2;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(operations); i++) {
        if (!strcmp(operations[i].name, argv[1])) {
            op = &operations[i];
        }
    }
    skip = op && op->datagram ? GRH_BYTES : 0;
    if (!op || qemu_strtoui(argv[2], NULL, 10, &length) || !length ||
        length > BUFFER_BYTES - skip) {
        fprintf(stderr, "qrnic-watch: no such operation or length\n");
        return 2;
    }
    length = op->length ?: length;
    setlinebuf(stdout);
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), ==, 0);
    end_start(&a, argv[3], pair[0], op, 0, argv[4]);
    end_start(&b, argv[3], pair[1], op, 2, NULL);
    end_connect(&a, &b, op, SENDER_PSN, RECEIVER_PSN);
    end_connect(&b, &a, op, RECEIVER_PSN, SENDER_PSN);
    fill(&a, ours, length, 1);
    fill(&b, theirs, length, 101);
    if (op->receives) {
        receive_post(&b, op, length);
    }
    settle(a.d);

    step(&a, "begin", "qp=%u key=0x%x memory=0x%" PRIx64 " sq=0x%" PRIx64
         " record=0x%" PRIx64 " cq=0x%" PRIx64 " eq=0x%" PRIx64, a.qp.number,
         a.mr.key, a.mr.memory, a.qp.sq, a.qp.sq_record, a.cq.ring, a.eq.ring);
    step(&b, "begin", "qp=%u key=0x%x memory=0x%" PRIx64 " rq=0x%" PRIx64
         " record=0x%" PRIx64 " cq=0x%" PRIx64 " eq=0x%" PRIx64, b.qp.number,
         b.mr.key, b.mr.memory, b.qp.rq, b.qp.rq_record, b.cq.ring, b.eq.ring);
    if (argv[4]) {
        /* The device waits at its first event until a QMP client continues. */
        stop_at(a.d, "doorbell");
    }
    post(&a, &b, op, length);
    if (op->receives) {
        complete(&b);
    }
    complete(&a);
    step(&a, "end", "length=%u", length);

    /* The test compares the buffer that the operation has written. */
    end = op->opcode == QRNIC_WQE_RDMA_READ ||
          op->opcode == QRNIC_WQE_ATOMIC_FETCH_ADD ? &a : &b;
    qtest_memread(end->d->qts, end->mr.memory + skip, got, length);
    g_assert_cmpmem(got, length, end == &a ? theirs : ours, length);
    device_stop(a.d);
    device_stop(b.d);
    return 0;
}
