/*
 * The states of requester and responder: each pair of causes that block a
 * requester, and each pair of pending replies, in each order. The test calls
 * the functions of packets, of the timer and of software's answers to page
 * faults, and counts the sent packets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/rc/requester/requester.h"
#include "engine/transport/rc/responder/responder.h"
#include "pager.h"

#define PSN_A 0x123456u
#define ABSENT (PAGES - 1)
#define LENGTH 100

typedef struct World {
    Pager *w;
    QrnicEngine *e;             /* Engine of the tested side */
    QrnicQp *qp;
    unsigned from;              /* Node of the engine */
    bool silent;                /* Loses all packets */
    unsigned sent;              /* Packets of the node */
    unsigned posted;
    GString *replies;           /* A letter for each reply */
} World;

static char letter_of(const QrnicPacket *p)
{
    switch (p->t.opcode & QRNIC_OPERATION_MASK) {
    case QRNIC_OP_RC_SACK:
        return 'S';
    case QRNIC_OP_RC_READ_RESPONSE_ONLY:
        return 'D';
    case QRNIC_OP_RC_ACK:
        return (p->t.syndrome & QRNIC_AETH_TYPE_MASK) == QRNIC_AETH_ACK ? 'A' :
               (p->t.syndrome & QRNIC_AETH_TYPE_MASK) == QRNIC_AETH_RNR ? 'R' :
                                                                          'N';
    default:
        return '?';
    }
}

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    World *w = opaque;
    QrnicPacket p;

    if (from == w->from) {
        w->sent++;
        g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
        g_string_append_c(w->replies, letter_of(&p));
    }
    return !w->silent;
}

static World *world_new(unsigned from, uint8_t options)
{
    World *w = g_new0(World, 1);
    SimConnect c = sim_connect_default();

    c.timeout = 14;
    c.rd_atomic = 1;
    c.psn_a = PSN_A;
    c.options = options;
    w->w = pager_new(1, 1, &c);
    w->from = from;
    w->e = w->w->sim->node[from].engine;
    w->qp = qrnic_qp_get(w->e, w->w->qp[from]->number);
    w->silent = true;
    w->replies = g_string_new(NULL);
    for (unsigned i = 0; i < ABSENT; i++) {
        page_bring(w->w->region[0], i, true);
        page_bring(w->w->region[1], i, true);
    }
    w->w->sim->tap = tap;
    w->w->sim->tap_opaque = w;
    return w;
}

static void world_free(World *w)
{
    pager_free(w->w);
    g_string_free(w->replies, true);
    g_free(w);
}

static void pass(World *w)
{
    sim_run(w->w->sim, w->w->sim->now + 100 * SIM_US);
}

/*
 * The requester
 */

#define CAUSES 6
#define HARD (QRNIC_BLOCKED_RNR | QRNIC_BLOCKED_PAGE | \
              QRNIC_BLOCKED_CONNECTION | QRNIC_BLOCKED_PROBE)

typedef enum Event {
    TIMER, PAGED_IN, CONNECTED, CREDITS, PROGRESS, EVENTS
} Event;

static void post_one(World *w, uint8_t opcode, unsigned page)
{
    pager_post(w->w, opcode, page * PAGE, 0, LENGTH);
    w->posted++;
}

static void answer(World *w, uint8_t opcode, uint32_t psn, uint8_t syndrome)
{
    static uint8_t data[LENGTH];
    const QrnicPacket p = {
        .t = { .opcode = opcode, .psn = psn, .syndrome = syndrome },
        .info = qrnic_opcode_info(opcode), .payload = data,
        .payload_len = opcode == QRNIC_OP_RC_ACK ? 0 : LENGTH,
    };

    qrnic_requester_receive(w->e, w->qp, &p);
}

/*
 * With a page fault, the oldest message is a read whose response meets an
 * absent page. With a full window, it is a read, and the next one must wait for
 * its response. Otherwise there are writes.
 */
static World *requester_new(uint8_t causes)
{
    World *w = world_new(0, 0);
    bool page = causes & QRNIC_BLOCKED_PAGE;
    bool window = causes & QRNIC_BLOCKED_WINDOW;

    post_one(w, page || window ? QRNIC_WQE_RDMA_READ : QRNIC_WQE_RDMA_WRITE,
             page ? ABSENT : 0);
    post_one(w, window ? QRNIC_WQE_RDMA_READ : QRNIC_WQE_RDMA_WRITE, 1);
    pass(w);
    g_assert_cmphex(w->qp->requester->blocked, ==,
                    causes & QRNIC_BLOCKED_WINDOW);
    return w;
}

/* Enters a state by its own event: a packet, if a packet causes it. */
static uint8_t enter(World *w, uint8_t cause, uint8_t blocked)
{
    QrnicRequester *r = w->qp->requester;
    uint32_t dest_qpn = w->qp->attr.dest_qpn;

    switch (cause) {
    case QRNIC_BLOCKED_RNR:
        answer(w, QRNIC_OP_RC_ACK, r->una, QRNIC_AETH_RNR | 12);
        g_assert_cmphex(r->cursor_psn, ==, r->una);
        /* The rewind to una clears the others. */
        blocked &= ~(QRNIC_BLOCKED_WINDOW | QRNIC_BLOCKED_PROBE);
        break;
    case QRNIC_BLOCKED_PAGE:
        answer(w, QRNIC_OP_RC_READ_RESPONSE_ONLY, r->una, 0);
        g_assert_cmpint(r->recovery, ==, QRNIC_RECOVERY_RESPONSE_DROPPED);
        break;
    case QRNIC_BLOCKED_CONNECTION:
        w->qp->attr.dest_qpn = 0;
        qrnic_requester_suspend(w->e, w->qp);
        w->qp->attr.dest_qpn = dest_qpn;
        break;
    case QRNIC_BLOCKED_WINDOW:
        return blocked;         /* Entered by requester_new() */
    default:
        qrnic_requester_block(w->e, w->qp, cause);
        break;
    }
    return blocked | cause;
}

/* Returns what an event leaves of the causes. */
static uint8_t after(Event event, uint8_t blocked)
{
    const uint8_t answered = QRNIC_BLOCKED_WINDOW | QRNIC_BLOCKED_PROBE;

    switch (event) {
    case TIMER:
        return blocked & QRNIC_BLOCKED_RNR ? blocked & ~QRNIC_BLOCKED_RNR :
               blocked & QRNIC_BLOCKED_PAGE ? blocked : blocked & ~answered;
    case PAGED_IN:
        return blocked & QRNIC_BLOCKED_PAGE ?
               blocked & ~(QRNIC_BLOCKED_PAGE | answered) : blocked;
    case CONNECTED:
        return blocked & ~QRNIC_BLOCKED_CONNECTION;
    case CREDITS:
        return blocked & ~QRNIC_BLOCKED_WINDOW;
    default:
        /* The oldest PSN is that of the read, whose response was dropped. */
        return blocked & QRNIC_BLOCKED_PAGE ? blocked : blocked & ~answered;
    }
}

static void fire(World *w, Event event)
{
    QrnicRequester *r = w->qp->requester;
    uint32_t number;

    switch (event) {
    case TIMER:
        if (r->deadline != QRNIC_DEADLINE_NEVER) {
            w->w->sim->now = MAX(w->w->sim->now, r->deadline);
            w->qp->ops->timer(w->e, w->qp);
        }
        break;
    case PAGED_IN:
        if (r->blocked & QRNIC_BLOCKED_PAGE) {
            g_assert_true(fault_next(w->w, 0, &number));
            g_assert_true(fault_answer(w->w, 0, number));
        }
        break;
    case CONNECTED:
        qrnic_requester_continue(w->e, w->qp);
        break;
    case CREDITS:
        answer(w, QRNIC_OP_RC_ACK, qrnic_psn_add(r->una, -1),
               QRNIC_AETH_ACK | QRNIC_CREDITS_INVALID);
        break;
    default:
        answer(w, r->rd_taken == r->rd_done ? QRNIC_OP_RC_ACK :
                                              QRNIC_OP_RC_READ_RESPONSE_ONLY,
               r->una, QRNIC_AETH_ACK | QRNIC_CREDITS_INVALID);
        break;
    }
}

static bool is_full(const QrnicRequester *r)
{
    return r->rd_taken - r->rd_done > 1 && r->cursor_psn != r->una;
}

/*
 * Checks the causes, and that a run of the engine sends nothing while one holds
 * and something when the last one has been left. Only WINDOW may be entered in
 * this run: by a step. After an error no WQE is taken.
 */
static void expect_blocked(World *w, uint8_t before, uint8_t blocked)
{
    bool full = is_full(w->qp->requester);
    QrnicRequester *r = w->qp->requester;
    uint32_t sent = w->sent, next_psn = r->next_psn;

    g_assert_cmphex(r->blocked, ==, blocked);
    pass(w);
    if (blocked & HARD || (blocked & QRNIC_BLOCKED_WINDOW && full)) {
        g_assert_cmpuint(w->sent, ==, sent);
        g_assert_cmphex(r->blocked & ~QRNIC_BLOCKED_WINDOW, ==,
                        blocked & ~QRNIC_BLOCKED_WINDOW);
    } else if (blocked & QRNIC_BLOCKED_ERROR) {
        g_assert_cmphex(r->next_psn, ==, next_psn);
    } else if (before && !full) {
        g_assert_cmpuint(w->sent, >, sent);
    }
}

/*
 * Opens the wire: all messages complete, except those behind a failed message.
 * The responder has not received the packets that the test acknowledged.
 */
static void expect_nothing_lost(World *w)
{
    QrnicRequester *r = w->qp->requester;
    QrnicQp *peer = qrnic_qp_get(w->w->sim->node[1].engine,
                                 w->w->qp[1]->number);
    unsigned count = w->posted - !!(r->blocked & QRNIC_BLOCKED_ERROR);

    peer->responder->epsn = r->una;
    w->silent = false;
    pager_run(w->w, NULL);
    for (unsigned i = 0; i < count; i++) {
        expect_status(w->w->qp[0], QRNIC_WC_SUCCESS);
    }
    expect_no_cqe(w->w->qp[0]);
    g_assert_cmphex(r->blocked & ~QRNIC_BLOCKED_ERROR, ==, 0);
    g_assert_cmphex(r->una, ==, r->next_psn);
    g_assert_cmpuint(r->tail, ==, r->head);
}

static World *both_entered(uint8_t a, uint8_t b, uint8_t *blocked)
{
    World *w = requester_new(a | b);

    *blocked = (a | b) & QRNIC_BLOCKED_WINDOW;
    *blocked = enter(w, a, *blocked);
    g_assert_cmphex(w->qp->requester->blocked, ==, *blocked);
    *blocked = enter(w, b, *blocked);
    post_one(w, QRNIC_WQE_RDMA_WRITE, 2);
    expect_blocked(w, *blocked, *blocked);
    *blocked = w->qp->requester->blocked;
    return w;
}

static Event event_of(uint8_t cause)
{
    return cause == QRNIC_BLOCKED_RNR ? TIMER :
           cause == QRNIC_BLOCKED_PAGE ? PAGED_IN :
           cause == QRNIC_BLOCKED_CONNECTION ? CONNECTED : PROGRESS;
}

static void leave(World *w, uint8_t cause, uint8_t *blocked)
{
    uint8_t before = *blocked;

    if (cause == QRNIC_BLOCKED_ERROR) {
        return;
    }
    *blocked = after(event_of(cause), before);
    fire(w, event_of(cause));
    expect_blocked(w, before, *blocked);
    *blocked = w->qp->requester->blocked;
}

/*
 * Tests that each cause is left by its own event, in both orders, and nothing
 * is lost.
 */
static void test_blocked_pairs(void)
{
    for (unsigned i = 0; i < CAUSES * CAUSES * 2; i++) {
        uint8_t a = 1 << i / 2 % CAUSES, b = 1 << i / 2 / CAUSES, blocked;
        World *w;

        if (a == b) {
            continue;
        }
        w = both_entered(a, b, &blocked);
        leave(w, i % 2 ? a : b, &blocked);
        leave(w, i % 2 ? b : a, &blocked);
        g_assert_cmphex(blocked & (a | b) & HARD, ==, 0);
        expect_nothing_lost(w);
        world_free(w);
    }
}

/* Tests that no event removes a cause that is not its own. */
static void test_foreign_events(void)
{
    for (unsigned i = 0; i < CAUSES * CAUSES * EVENTS; i++) {
        uint8_t a = 1 << i / EVENTS % CAUSES, b = 1 << i / EVENTS / CAUSES;
        Event event = i % EVENTS;
        uint8_t blocked;
        World *w;

        if (a == b) {
            continue;
        }
        w = both_entered(a, b, &blocked);
        fire(w, event);
        expect_blocked(w, blocked, after(event, blocked));
        world_free(w);
    }
}

/*
 * The responder
 */

static void request(World *w, uint8_t opcode, uint32_t psn, uint32_t len)
{
    const Region *region = w->w->region[1];
    const QrnicPacket p = {
        .t = {
            .opcode = opcode, .psn = psn, .va = region->start,
            .rkey = region->key, .dma_len = len, .ack_req = true,
        },
        .info = qrnic_opcode_info(opcode),
    };

    qrnic_responder_receive(w->e, w->qp, &p);
}

static void pend(World *w, char reply)
{
    QrnicResponder *r = w->qp->responder;
    uint32_t psn;

    switch (reply) {
    case 'S':
        qrnic_reply_sack(w->e, w->qp);
        break;
    case 'N':                   /* A packet behind a sequence gap */
        request(w, QRNIC_OP_RC_WRITE_ONLY, qrnic_psn_add(r->epsn, 5), 0);
        break;
    case 'A':                   /* A duplicate */
        request(w, QRNIC_OP_RC_WRITE_ONLY, qrnic_psn_add(r->epsn, -1), 0);
        break;
    case 'D':                   /* A read */
        request(w, QRNIC_OP_RC_READ_REQUEST, r->epsn, LENGTH);
        break;
    case 'W':                   /* A read whose response waits for a page */
        request(w, QRNIC_OP_RC_READ_REQUEST, r->epsn, LENGTH);
        if (r->responses_pending) {
            r->replies |= QRNIC_REPLY_PAGE;
        }
        break;
    case 'd':                   /* A duplicate of the newest read */
        request(w, QRNIC_OP_RC_READ_REQUEST, qrnic_psn_add(r->epsn, -1),
                LENGTH);
        break;
    case 'R':                   /* W, and a duplicate of the waiting read */
        psn = r->epsn;
        pend(w, 'W');
        if (r->responses_pending) {
            psn = qrnic_resource_first(r)->first_psn;
        }
        request(w, QRNIC_OP_RC_READ_REQUEST, psn, LENGTH);
        break;
    case 'F':                   /* A request that is rejected */
        request(w, QRNIC_OP_RC_WRITE_LAST, r->epsn, 0);
        break;
    }
}

/* Events, and the replies in order; | means that the page is present */
static const char *const orders[][2] = {
    { "SN", "NS" }, { "NS", "NS" },
    { "SA", "S" }, { "AS", "S" },
    { "SD", "SD" }, { "DS", "SD" },
    { "SR", "SR|D" }, { "RS", "SR|D" },
    { "SF", "N" }, { "FS", "N" },
    { "NA", "N" }, { "AN", "N" },
    { "ND", "DN" }, { "DN", "DN" },
    { "NR", "R|DN" }, { "RN", "R|DN" },
    { "NF", "N" }, { "FN", "N" },
    { "AD", "D" }, { "DA", "DA" },
    { "AR", "R|D" }, { "RA", "R|DA" },
    { "AF", "N" }, { "FA", "N" },
    { "DR", "R|DD" }, { "RD", "R|DD" },
    { "DF", "DN" }, { "FD", "N" },
    { "RF", "R|DN" }, { "FR", "N" },
    /* A failed responder drops the duplicate: no RNR NAK is pending. */
    { "WFR", "|DN" },
    /* A duplicate of a read that does not wait for a page: no RNR NAK. */
    { "Dd", "D" }, { "WDd", "|DD" },
};

static void test_reply_pairs(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(orders); i++) {
        World *w = world_new(1, QRNIC_QPO_SELECTIVE_REPEAT);
        QrnicResponder *r = w->qp->responder;

        for (const char *event = orders[i][0]; *event; event++) {
            pend(w, *event);
        }
        g_assert_cmpstr(w->replies->str, ==, "");
        pass(w);
        if (strchr(orders[i][1], '|')) {
            g_string_append_c(w->replies, '|');
            qrnic_responder_resume(w->e, w->qp);
            qrnic_schedule(w->e, w->qp);
            pass(w);
        }
        g_test_message("%s", orders[i][0]);
        g_assert_cmpstr(w->replies->str, ==, orders[i][1]);
        if (strchr(orders[i][0], 'F')) {
            g_assert_cmpint(r->state, ==, QRNIC_FATAL_NAK_SENT);
            g_assert_cmpint(w->qp->state, ==, QRNIC_QPS_ERR);
        } else {
            g_assert_cmphex(r->replies & ~QRNIC_REPLY_CREDITS, ==, 0);
            g_assert_cmpuint(r->responses_pending, ==, 0);
            g_assert_cmpint(r->state, ==, strchr(orders[i][0], 'N') ?
                                          QRNIC_RETRY_REQUESTED :
                                          QRNIC_IN_SEQUENCE);
        }
        world_free(w);
    }
}

/*
 * Tests that the expected request ends RETRY_REQUESTED, but not before a
 * pending NAK.
 */
static void test_retry_ends(void)
{
    for (unsigned sent = 0; sent < 2; sent++) {
        World *w = world_new(1, 0);
        QrnicResponder *r = w->qp->responder;
        uint32_t first = r->epsn;

        request(w, QRNIC_OP_RC_WRITE_ONLY, qrnic_psn_add(first, 1), 0);
        g_assert_cmpint(r->state, ==, QRNIC_RETRY_REQUESTED);
        if (sent) {
            pass(w);
            g_assert_cmpstr(w->replies->str, ==, "N");
        }
        request(w, QRNIC_OP_RC_WRITE_ONLY, first, 0);
        /* Only the NAK reports the dropped packet behind the sequence gap. */
        g_assert_cmpint(r->state, ==, sent ? QRNIC_IN_SEQUENCE :
                                             QRNIC_RETRY_REQUESTED);
        request(w, QRNIC_OP_RC_WRITE_ONLY, qrnic_psn_add(first, 1), 0);
        g_assert_cmpint(r->state, ==, QRNIC_IN_SEQUENCE);
        pass(w);
        g_assert_cmpstr(w->replies->str, ==, sent ? "NA" : "A");
        world_free(w);
    }
}

/*
 * Tests a responder of a dynamic target that fails while it executes a SEND,
 * because the CQ cannot be written. The NAK stays pending and is sent, and the
 * SEND is not acknowledged.
 */
static void test_dynamic_fails(void)
{
    QrnicDynamicAttr at = { .access_key = 1, .responders = 1 };
    QrnicDynamicAttr from = { .idle = 18 };
    World w = { .from = 1, .replies = g_string_new(NULL) };
    SimOptions options = { 0 };
    Sim *sim = sim_new(7, &options);
    SimSrq *srq = sim_srq_new(&sim->node[1], 2, 0);
    SimQp *target = sim_dynamic_new(&sim->node[1], srq, &at);
    SimQp *initiator = sim_dynamic_new(&sim->node[0], NULL, &from);
    QrnicDynamicSeg to = sim_dynamic_to(target, at.access_key);
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .dynamic = &to,
    };
    QrnicPacket p = {
        .t = { .opcode = QRNIC_OP_RC_SEND_ONLY, .ack_req = true },
        .info = qrnic_opcode_info(QRNIC_OP_RC_SEND_ONLY),
    };
    QrnicResponder *r;

    sim_dynamic_start(target, NULL);
    sim_dynamic_start(initiator, NULL);
    sim_post_srq(srq, NULL, 0);
    sim_post_srq(srq, NULL, 0);
    sim_post_send(initiator, &wr);
    sim_run(sim, sim->now + SIM_MS);
    expect_status(initiator, QRNIC_WC_SUCCESS);

    w.e = sim->node[1].engine;
    w.qp = qrnic_qp_get(w.e, target->number + 1);
    r = w.qp->responder;
    g_assert_cmpint(r->state, ==, QRNIC_IN_SEQUENCE);
    sim->tap = tap;
    sim->tap_opaque = &w;
    sim->node[1].broken_from = target->cq_ring;
    sim->node[1].broken_to = target->cq_ring + PAGE;
    p.t.psn = r->epsn;
    qrnic_responder_receive(w.e, w.qp, &p);
    g_assert_cmpint(r->state, ==, QRNIC_FATAL_NAK_PENDING);
    g_assert_cmphex(r->nak, ==, QRNIC_NAK_OPERATION);
    g_assert_cmphex(r->replies & (QRNIC_REPLY_NAK | QRNIC_REPLY_ACK), ==,
                    QRNIC_REPLY_NAK);
    sim_run(sim, sim->now + 100 * SIM_US);
    g_assert_cmpstr(w.replies->str, ==, "N");

    g_string_free(w.replies, true);
    sim_qp_free(initiator);
    sim_qp_free(target);
    sim_srq_free(srq);
    sim_free(sim);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rc-states/blocked/pairs", test_blocked_pairs);
    g_test_add_func("/rc-states/blocked/foreign-events", test_foreign_events);
    g_test_add_func("/rc-states/replies/pairs", test_reply_pairs);
    g_test_add_func("/rc-states/replies/retry-ends", test_retry_ends);
    g_test_add_func("/rc-states/replies/dynamic-fails", test_dynamic_fails);
    return g_test_run();
}
