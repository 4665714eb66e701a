/*
 * qrnic qtest: priorities of queue pairs, at the bus and on the wire
 *
 * Programmer's Reference, chapter Priorities.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define QPS 3
#define TURN 16u                /* Packets of one slot */
#define MTU 1024u
#define REMOTE_VA 0x5000ull

/*
 * Three unreliable connections, which wait for no ACK. All packets together are
 * fewer than the slots of a cable, so that no queue pair waits for the wire.
 */
typedef struct Flows {
    Rig r;
    Qp qp[QPS];
    uint32_t packets[QPS];      /* Packets of each message */
} Flows;

static void flows_start(Flows *x, const char *properties,
                        const uint8_t service_level[QPS])
{
    QrnicQpAttr attr = qp_default_attr();

    rig_start(&x->r, properties, NULL);
    for (unsigned i = 0; i < QPS; i++) {
        attr.av.sl = service_level[i];
        qp_create(x->r.d, &x->qp[i], QRNIC_QPT_UC, x->r.pd, x->r.page,
                  &x->r.send_cq, &x->r.recv_cq, 4, 4, 0);
        qp_connect_unreliable(x->r.d, &x->qp[i], &attr);
        /* Two slots, the second one shorter */
        x->packets[i] = TURN + 4;
    }
}

static void priority_set(Flows *x, unsigned i, uint8_t priority)
{
    const QrnicQpAttr attr = {
        .mask = QRNIC_QP_PRIORITY, .priority = priority,
    };

    qp_modify(x->r.d, &x->qp[i], &attr);
}

/*
 * Posts to all queue pairs while the VM is stopped, so that all have work when
 * the device runs.
 */
static void post_all(Flows *x)
{
    vm_stop(x->r.d);
    for (unsigned i = 0; i < QPS; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

        /* The key identifies the queue pair of each packet. */
        wqe_remote(&w, REMOTE_VA, i);
        wqe_data(&w, RIG_MR_START, x->packets[i] * MTU, x->r.mr.key);
        sq_post(x->r.d, &x->qp[i], &w);
    }
    vm_continue(x->r.d);
}

/* Asserts the order of queue pairs, by the first packet of each message. */
static void expect_turns(Flows *x, const uint8_t *who, unsigned turns)
{
    uint32_t sent[QPS] = { 0 };

    for (unsigned t = 0; t < turns; t++) {
        unsigned i = who[t];
        uint32_t packets = x->packets[i];

        for (unsigned n = 0; n < TURN && sent[i] < packets; n++, sent[i]++) {
            uint8_t opcode = sent[i] == 0 ? UC_WRITE_FIRST :
                             sent[i] == packets - 1 ? UC_WRITE_LAST :
                                                      UC_WRITE_MIDDLE;
            PeerPacket p = peer_expect(x->r.d, opcode, SQ_PSN + sent[i]);

            if (opcode == UC_WRITE_FIRST) {
                g_assert_cmphex(p.rkey, ==, i);
            }
        }
    }
    for (unsigned i = 0; i < QPS; i++) {
        g_assert_cmpuint(sent[i], ==, x->packets[i]);
        rig_sent(&x->r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE,
                 QRNIC_SYN_NONE);
    }
    wire_silent(x->r.d);
}

/* With one level, the queue pairs are served round robin. */
static const uint8_t in_a_circle[] = { 0, 1, 2, 0, 1, 2 };
static const uint8_t last_first[] = { 2, 2, 1, 1, 0, 0 };
static const uint8_t same[QPS];

static void test_strict(void)
{
    Flows x;

    flows_start(&x, "", same);
    post_all(&x);
    expect_turns(&x, in_a_circle, 6);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PRIORITY_SLOTS), ==, 0);
    rig_stop(&x.r);

    flows_start(&x, "", same);
    priority_set(&x, 1, QRNIC_PRIORITY_STRICT + 1);
    priority_set(&x, 2, QRNIC_PRIORITY_LEVELS);
    post_all(&x);
    expect_turns(&x, last_first, 6);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PRIORITY_SLOTS), >=, 4);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PRIORITY_RELIEFS), ==, 0);
    rig_stop(&x.r);
}

static void test_service_level(void)
{
    static const uint8_t strict[QPS] = { 0, 8, 15 };
    /*
     * Level 1 has two slots, then level 0 has one slot. Queue pairs of one
     * level alternate.
     */
    static const uint8_t low[QPS] = { 0, 0, 1 };
    static const uint8_t weighted[] = { 2, 2, 0, 2, 1 };
    Flows x;

    flows_start(&x, "", strict);
    post_all(&x);
    expect_turns(&x, last_first, 6);
    rig_stop(&x.r);

    flows_start(&x, "", low);
    x.packets[0] = 14;
    x.packets[1] = 6;
    x.packets[2] = 2 * TURN + 8;
    post_all(&x);
    expect_turns(&x, weighted, 5);
    rig_stop(&x.r);
}

/*
 * Tests that the attribute overrides the service level, and QUERY_QP returns
 * it, so that software need not change the path.
 */
static void test_attribute(void)
{
    static const uint8_t first[QPS] = { 15, 8, 0 };
    static const uint8_t levels[QPS] = { 1, 9, 16 };
    const QrnicQpAttr to_reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    QrnicQpAttr attr;
    Flows x;

    flows_start(&x, "", first);
    for (unsigned i = 0; i < QPS; i++) {
        qp_query(x.r.d, &x.qp[i], &attr);
        g_assert_cmpuint(attr.priority, ==, 0);
        g_assert_cmpuint(attr.av.sl, ==, first[i]);
        priority_set(&x, i, levels[i]);
        qp_query(x.r.d, &x.qp[i], &attr);
        g_assert_cmpuint(attr.priority, ==, levels[i]);
    }
    post_all(&x);
    expect_turns(&x, last_first, 6);

    /* The queue pair uses the service level again. */
    priority_set(&x, 0, 0);
    qp_query(x.r.d, &x.qp[0], &attr);
    g_assert_cmpuint(attr.priority, ==, 0);
    qp_modify(x.r.d, &x.qp[2], &to_reset);
    qp_query(x.r.d, &x.qp[2], &attr);
    g_assert_cmpuint(attr.priority, ==, 0);
    rig_stop(&x.r);
}

static void refused(Rig *r, const Qp *qp, QrnicQpAttr attr, unsigned status,
                    uint32_t syndrome)
{
    uint8_t raw[QRNIC_QP_ATTR_BYTES];

    qrnic_qp_attr_pack(raw, &attr);
    command_fails(r->d, QRNIC_CMD_MODIFY_QP, qp->number, raw, sizeof(raw),
                  NULL, 0, status, syndrome);
}

/*
 * Tests that the device rejects an invalid priority and keeps the level. Each
 * rule is broken once.
 */
static void test_refused(void)
{
    QrnicQpAttr attr;
    Flows x;
    Qp qp;

    flows_start(&x, "", same);
    priority_set(&x, 1, 9);
    priority_set(&x, 2, 16);
    /* An invalid level */
    refused(&x.r, &x.qp[2], (QrnicQpAttr) {
        .mask = QRNIC_QP_PRIORITY, .priority = QRNIC_PRIORITY_LEVELS + 1,
    }, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PRIORITY_OFFSET);
    refused(&x.r, &x.qp[2], (QrnicQpAttr) {
        .mask = QRNIC_QP_PRIORITY, .priority = UINT8_MAX,
    }, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PRIORITY_OFFSET);
    /* A level without its bit in the mask */
    refused(&x.r, &x.qp[2], (QrnicQpAttr) { .priority = 1 },
            QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PRIORITY_OFFSET);
    /*
     * The attribute is invalid in a move to SQD, and for a queue pair in RESET.
     */
    refused(&x.r, &x.qp[2], (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PRIORITY, .priority = 1,
        .state = QRNIC_QPS_SQD,
    }, QRNIC_ST_BAD_ATTR, QRNIC_QP_PRIORITY);
    qp_create(x.r.d, &qp, QRNIC_QPT_UC, x.r.pd, x.r.page, &x.r.send_cq,
              &x.r.recv_cq, 4, 4, 0);
    refused(&x.r, &qp, (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_PRIORITY,
        .state = QRNIC_QPS_INIT, .port = 1, .priority = 1,
    }, QRNIC_ST_BAD_ATTR, QRNIC_QP_PRIORITY);
    qp_query(x.r.d, &x.qp[2], &attr);
    g_assert_cmpuint(attr.priority, ==, 16);
    g_assert_cmpuint(attr.state, ==, QRNIC_QPS_RTS);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_COMMANDS_FAILED), ==, 5);
    post_all(&x);
    expect_turns(&x, last_first, 6);
    rig_stop(&x.r);
}

/*
 * Tests that without the capability all queue pairs have the same level for all
 * service levels.
 */
static void test_capability(void)
{
    static const uint8_t level[QPS] = { 0, 8, 15 };
    Flows x;

    flows_start(&x, "cap-priority=off", level);
    refused(&x.r, &x.qp[0], (QrnicQpAttr) {
        .mask = QRNIC_QP_PRIORITY, .priority = 1,
    }, QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_ATTR_PRIORITY_OFFSET);
    post_all(&x);
    expect_turns(&x, in_a_circle, 6);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PRIORITY_SLOTS), ==, 0);
    rig_stop(&x.r);
}

void add_priority_tests(void)
{
    qtest_add_func("qrnic/priority/strict", test_strict);
    qtest_add_func("qrnic/priority/service-level", test_service_level);
    qtest_add_func("qrnic/priority/attribute", test_attribute);
    qtest_add_func("qrnic/priority/refused", test_refused);
    qtest_add_func("qrnic/priority/capability", test_capability);
}
