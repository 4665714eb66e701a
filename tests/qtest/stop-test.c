/*
 * qrnic qtest: slow motion: the device stops at events, and continues
 *
 * The tests select kinds of events by the property stop-at, and read the event
 * from the property stopped. Programmer's Reference, chapter Captures, section
 * Slow motion.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qobject/qbool.h"
#include "qobject/qdict.h"
#include "qobject/qstring.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

#define OFFSET 3                /* of the message in the region */
#define LENGTH 101              /* of the message */
#define SLOT_OFF (PCI_EXP_SLTCTL_PWR_OFF | PCI_EXP_SLTCTL_PWR_IND_OFF)

static void post_send(Rig *r)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_data(&w, r->mr.start + OFFSET, LENGTH, r->mr.key);
    sq_post(r->d, &r->qp, &w);
}

static void post_nop(Rig *r)
{
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

    sq_post(r->d, &r->qp, &w);
}

static void post_recv(Rig *r)
{
    rq_post(r->d, &r->qp, &(QrnicDataSeg) {
        .address = RIG_MR_START, .length = 64, .lkey = r->mr.key,
    }, 1);
}

/* Sends a message of the peer with AckReq. */
static void peer_sends(Rig *r, unsigned number)
{
    PeerPacket p = peer_packet(&r->qp, RC_SEND_ONLY, RQ_PSN + number);

    p.ack_request = true;
    peer_send(r->d, &p);
}

/* Returns a counter, which needs no command. */
static uint64_t counter_now(Device *d, const char *name)
{
    QDict *rsp = qtest_qmp(d->home, "{'execute': 'qom-get', 'arguments': {"
                           "'path': '/machine/peripheral/qrnic', "
                           "'property': 'counters'}}");
    uint64_t value = qdict_get_int(qdict_get_qdict(rsp, "return"), name);

    qobject_unref(rsp);
    return value;
}

/* Returns the message of the error of a write to a property, or NULL. */
static char *set_error(Device *d, const char *property, QObject *value)
{
    QDict *rsp = qtest_qmp(d->home, "{'execute': 'qom-set', 'arguments': {"
                           "'path': '/machine/peripheral/qrnic', "
                           "'property': %s, 'value': %p}}", property, value);
    QDict *error = qdict_get_qdict(rsp, "error");
    char *text = error ? g_strdup(qdict_get_str(error, "desc")) : NULL;

    qobject_unref(rsp);
    return text;
}

/* Asserts that a write to stop-at is rejected with this text. */
static void kinds_rejected(Device *d, const char *kinds, const char *text)
{
    g_autofree char *error = set_error(d, "stop-at",
                                       QOBJECT(qstring_from_str(kinds)));

    g_assert_nonnull(error);
    if (!strstr(error, text)) {
        g_error("'%s' is not in '%s'", text, error);
    }
}

/* Asserts the value of stop-at. */
static void kinds_are(Device *d, const char *kinds)
{
    QDict *rsp = qtest_qmp(d->home, "{'execute': 'qom-get', 'arguments': {"
                           "'path': '/machine/peripheral/qrnic', "
                           "'property': 'stop-at'}}");

    g_assert_cmpstr(qdict_get_str(rsp, "return"), ==, kinds);
    qobject_unref(rsp);
}

/* Asserts that the device is not stopped when all its work is done. */
static void runs(Device *d)
{
    QDict *event;

    settle(d);
    event = stop_event(d);
    g_assert_cmpuint(qdict_size(event), ==, 0);
    qobject_unref(event);
}

static void expect_number(QDict *event, const char *member, uint64_t value)
{
    if (!qdict_haskey(event, member) ||
        qdict_get_int(event, member) != value) {
        g_error("%s of the event %s is %" PRId64 ", not %" PRIu64, member,
                qdict_get_str(event, "kind"),
                qdict_get_try_int(event, member, -1), value);
    }
}

/* Waits for a stop, asserts a member, and frees the event. */
static void expect_stop(Device *d, const char *kind, const char *member,
                        uint64_t value)
{
    QDict *event = stop_wait(d, kind);

    if (member) {
        expect_number(event, member, value);
    }
    qobject_unref(event);
}

/* Asserts the current stop, and continues. */
static void pass(Device *d, const char *kind, const char *member,
                 uint64_t value)
{
    expect_stop(d, kind, member, value);
    stop_continue(d);
}

/* Starts a rig whose CQ and EQ are armed. */
static void armed_rig(Rig *r, const char *properties)
{
    rig_start(r, properties, NULL);
    eq_arm(r->d, &r->eq);
    cq_arm(r->d, &r->send_cq, false);
    settle(r->d);
}

/* Receives the SEND, acknowledges it, and consumes its CQE. */
static void complete(Rig *r, unsigned number)
{
    peer_expect(r->d, RC_SEND_ONLY, SQ_PSN + number);
    peer_ack(r->d, &r->qp, SQ_PSN + number, AETH_ACK, number + 1);
    rig_sent(r, QRNIC_WC_SUCCESS, QRNIC_WQE_SEND, 0);
}

/*
 * Tests each event of a SEND in its order, and that no later event has happened
 * at any stop.
 */
static void test_order(void)
{
    QrnicCqe cqe;
    QrnicEqe eqe;
    QDict *event;
    Device *d;
    Rig r;

    armed_rig(&r, "");
    d = r.d;
    stop_at(d, "any");
    kinds_are(d, "any");
    post_send(&r);
    event = stop_wait(d, "doorbell");
    expect_number(event, "offset", r.page * QRNIC_DB_PAGE_SIZE + QRNIC_DB_SQ);
    expect_number(event, "number", 1);
    expect_number(event, "length", 8);
    g_assert_cmpint(g_ascii_strtoull(qdict_get_str(event, "data"), NULL, 16)
                    >> 56, ==, r.qp.number);
    qobject_unref(event);
    g_assert_cmpuint(counter_now(d, "doorbells"), >, 0);
    stop_continue(d);

    event = stop_wait(d, "record");
    expect_number(event, "address", r.qp.sq_record);
    expect_number(event, "object", r.qp.number);
    expect_number(event, "number", 2);
    g_assert_false(qdict_get_bool(event, "write"));
    qobject_unref(event);
    stop_continue(d);

    event = stop_wait(d, "wqe");
    expect_number(event, "address", r.qp.sq);
    expect_number(event, "index", 0);
    expect_number(event, "length", QRNIC_WQEBB_SIZE);
    expect_number(event, "qp", r.qp.number);
    g_assert_cmpuint(strlen(qdict_get_str(event, "data")), ==,
                     2 * QRNIC_WQEBB_SIZE);
    qobject_unref(event);
    stop_continue(d);

    event = stop_wait(d, "data");
    expect_number(event, "address", r.mr.memory + OFFSET);
    expect_number(event, "length", LENGTH);
    expect_number(event, "wqe", 0);
    g_assert_false(qdict_haskey(event, "object"));
    qobject_unref(event);
    wire_silent(d);
    stop_continue(d);

    event = stop_wait(d, "frame-sent");
    expect_number(event, "psn", SQ_PSN);
    expect_number(event, "wqe", 0);
    g_assert_false(qdict_haskey(event, "address"));
    qobject_unref(event);
    peer_expect(d, RC_SEND_ONLY, SQ_PSN);
    stop_continue(d);
    runs(d);
    peer_ack(d, &r.qp, SQ_PSN, AETH_ACK, 1);

    expect_stop(d, "frame-received", NULL, 0);
    g_assert_false(cq_poll(d, &r.send_cq, &cqe));
    stop_continue(d);
    event = stop_wait(d, "cqe");
    expect_number(event, "address", r.send_cq.ring);
    expect_number(event, "length", QRNIC_CQE_SIZE);
    g_assert_true(qdict_get_bool(event, "write"));
    qobject_unref(event);
    g_assert_false(eq_poll(d, &r.eq, &eqe));
    cq_wait(d, &r.send_cq, &cqe);
    stop_continue(d);
    event = stop_wait(d, "eqe");
    expect_number(event, "length", QRNIC_EQE_SIZE);
    qobject_unref(event);
    g_assert_false(interrupt_taken(d, 1));
    eq_wait(d, &r.eq, &eqe);
    stop_continue(d);
    /* The driver has consumed the EQE, and has rung for that. */
    pass(d, "doorbell", "offset", QRNIC_DB_EQ);
    expect_stop(d, "interrupt", "vector", 1);
    interrupt_wait(d, 1);
    stop_continue(d);
    runs(d);
    rig_stop(&r);
}

/* Kinds of events, and the operation that causes each of them once */
enum { SEND, RECEIVE, ARM, COMMAND };
static const struct { const char *kinds; unsigned operation; } kinds[] = {
    { "doorbell", SEND }, { "record", SEND }, { "wqe", SEND }, { "data", SEND },
    { "frame-sent", SEND }, { "frame-received", SEND }, { "cqe", SEND },
    { "eqe", SEND }, { "interrupt", SEND }, { "receive-wqe", RECEIVE },
    { "cq-record", ARM }, { "command", COMMAND }, { "mailbox", COMMAND },
};

/* Tests that the device stops at the selected kind only. */
static void test_kinds(void)
{
    unsigned sent = 0, received = 0;
    Device *d;
    Rig r;

    rig_start(&r, "", NULL);
    d = r.d;
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        QrnicCmdEntry query = {
            .opcode = QRNIC_CMD_QUERY_DEVICE, .owner = 1,
            .out_len = QRNIC_DEVICE_ATTR_BYTES,
        };
        QrnicCqe cqe;
        QrnicEqe eqe;

        if (kinds[i].operation == SEND) {
            eq_arm(d, &r.eq);
            cq_arm(d, &r.send_cq, false);
        } else if (kinds[i].operation == RECEIVE) {
            post_recv(&r);
        }
        settle(d);
        stop_at(d, kinds[i].kinds);
        kinds_are(d, kinds[i].kinds);
        switch (kinds[i].operation) {
        case SEND:
            post_send(&r);
            if (i < 4) {
                pass(d, kinds[i].kinds, NULL, 0);
            }
            peer_expect(d, RC_SEND_ONLY, SQ_PSN + sent);
            if (i == 4) {
                pass(d, kinds[i].kinds, NULL, 0);
            }
            peer_ack(d, &r.qp, SQ_PSN + sent, AETH_ACK, sent + 1);
            if (i > 4) {
                pass(d, kinds[i].kinds, NULL, 0);
            }
            rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_SEND, 0);
            if (i == 0) {
                /* The driver rings again when it consumes the EQE. */
                stop_at(d, "none");
            }
            eq_wait(d, &r.eq, &eqe);
            interrupt_wait(d, 1);
            sent++;
            break;
        case RECEIVE:
            peer_sends(&r, received);
            pass(d, kinds[i].kinds, "object", r.qp.number);
            peer_expect(d, RC_ACK, RQ_PSN + received);
            cq_wait(d, &r.recv_cq, &cqe);
            received++;
            break;
        case ARM:
            cq_arm(d, &r.send_cq, false);
            pass(d, kinds[i].kinds, "object", r.send_cq.number);
            break;
        default:
            query.out_addr = memory_alloc(d, QRNIC_DEVICE_ATTR_BYTES, 8);
            command_begin(d, query);
            pass(d, kinds[i].kinds, NULL, 0);
            if (!strcmp(kinds[i].kinds, "command")) {
                /* The second event is the reply: one event with two writes. */
                pass(d, "command", "length", QRNIC_CMD_ENTRY_BYTES -
                     QRNIC_CMD_ENTRY_RESULT_OFFSET);
            }
        }
        runs(d);
    }
    stop_at(d, "none");
    kinds_are(d, "none");
    post_send(&r);
    complete(&r, sent);
    rig_stop(&r);
}

/* Tests a list of kinds, and the names of groups. */
static void test_lists(void)
{
    Device *d;
    Rig r;

    rig_start(&r, "stop-at=interrupt", NULL);
    d = r.d;
    kinds_are(d, "interrupt");
    stop_at(d, "frame");
    kinds_are(d, "frame-sent frame-received");
    stop_at(d, "dma");
    kinds_are(d, "data record cq-record wqe receive-wqe tag-op cqe eqe "
              "page-list context command mailbox");
    stop_at(d, "wqe cqe");
    kinds_are(d, "wqe cqe");
    post_send(&r);
    pass(d, "wqe", NULL, 0);
    peer_expect(d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(d, &r.qp, SQ_PSN, AETH_ACK, 1);
    pass(d, "cqe", NULL, 0);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_SEND, 0);
    /* The kinds of the next event may change in a stop. */
    post_send(&r);
    expect_stop(d, "wqe", NULL, 0);
    stop_at(d, "frame-received");
    stop_continue(d);
    peer_expect(d, RC_SEND_ONLY, SQ_PSN + 1);
    peer_ack(d, &r.qp, SQ_PSN + 1, AETH_ACK, 2);
    expect_stop(d, "frame-received", NULL, 0);
    stop_at(d, "none");
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_SEND, 0);
    rig_stop(&r);
}

/* Tests that invalid values have no effect and a clear error. */
static void test_invalid(void)
{
    g_autofree char *early = NULL, *late = NULL, *no = NULL;
    Rig r;

    device_refused("stop-at=colour", "no kind 'colour'");
    rig_start(&r, "", NULL);
    stop_at(r.d, "eqe");
    kinds_rejected(r.d, "wqe colour", "no kind 'colour'");
    kinds_rejected(r.d, "wqe  cqe", "no kind ''");
    kinds_rejected(r.d, "wqe none", "no kind 'none'");
    kinds_rejected(r.d, "", "is empty");
    kinds_are(r.d, "eqe");
    early = set_error(r.d, "continue", QOBJECT(qbool_from_bool(true)));
    g_assert_cmpstr(early, ==, "qrnic: the device is not stopped");
    stop_at(r.d, "wqe");
    post_send(&r);
    expect_stop(r.d, "wqe", NULL, 0);
    no = set_error(r.d, "continue", QOBJECT(qbool_from_bool(false)));
    g_assert_nonnull(strstr(no, "only true"));
    late = set_error(r.d, "stopped", QOBJECT(qbool_from_bool(false)));
    g_assert_nonnull(late);
    expect_stop(r.d, "wqe", NULL, 0);
    stop_at(r.d, "none");
    complete(&r, 0);
    rig_stop(&r);
}

/*
 * Tests that the clock of the device stands still in a stop: no timeout
 * expires, but after the stop the timers continue.
 */
static void test_clock(void)
{
    uint64_t time;
    Device *d;
    Rig r;

    rig_start(&r, "", NULL);
    d = r.d;
    stop_at(d, "frame-sent");
    post_send(&r);
    expect_stop(d, "frame-sent", NULL, 0);
    peer_expect(d, RC_SEND_ONLY, SQ_PSN);
    time = reg_read(d, QRNIC_REG_TIME_LO);
    clock_step(d, 10 * NANOSECONDS_PER_SECOND);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_TIME_LO), ==, time);
    stop_at(d, "none");
    wire_silent(d);
    g_assert_cmpuint(counter_now(d, "timeouts"), ==, 0);
    /* The ACK timeout of the rig is 67 ms. */
    clock_step(d, 60 * SCALE_MS);
    wire_silent(d);
    clock_step(d, 8 * SCALE_MS);
    peer_expect(d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpuint(counter_now(d, "timeouts"), ==, 1);
    peer_ack(d, &r.qp, SQ_PSN, AETH_ACK, 1);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_SEND, 0);
    rig_stop(&r);
}

/*
 * Tests a flood of doorbells in a stop: more than the FIFO has room for. The
 * device loses doorbells but no work.
 */
static void test_flood(void)
{
    const unsigned nops = 20, rings = 40;
    uint64_t errors;
    QrnicCqe cqe;
    Device *d;
    Rig r;

    rig_start(&r, "doorbell-fifo=16", NULL);
    d = r.d;
    errors = counter_now(d, "guest_errors");
    stop_at(d, "wqe");
    post_nop(&r);
    expect_stop(d, "wqe", "index", 0);
    for (unsigned i = 0; i < nops; i++) {
        post_nop(&r);
    }
    for (unsigned i = 0; i < rings; i++) {
        sq_ring(d, &r.qp);
        g_assert_cmphex(reg_read(d, QRNIC_REG_ID), ==, QRNIC_ID_MAGIC);
    }
    g_assert_cmpuint(counter_now(d, "doorbells_dropped"), >, rings / 2);
    g_assert_false(cq_poll(d, &r.send_cq, &cqe));
    expect_stop(d, "wqe", "index", 0);
    stop_at(d, "none");
    for (unsigned i = 0; i < nops + 1; i++) {
        rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_NOP, 0);
    }
    runs(d);
    g_assert_cmpuint(counter_now(d, "guest_errors"), ==, errors);
    rig_stop(&r);
}

/* Doorbells of a stop are the next events, each with its index. */
static void test_doorbells_later(void)
{
    Device *d;
    Rig r;

    rig_start(&r, "", NULL);
    d = r.d;
    stop_at(d, "doorbell");
    for (unsigned i = 1; i <= 3; i++) {
        post_nop(&r);
    }
    for (unsigned i = 1; i <= 3; i++) {
        QDict *event = stop_wait(d, "doorbell");
        g_autofree char *index = g_strdup_printf("%02x000000", i);

        expect_number(event, "number", i);
        g_assert_cmpstr(qdict_get_str(event, "data") + 8, ==, index);
        qobject_unref(event);
        g_assert_cmpuint(counter_now(d, "cqes"), ==, 0);
        stop_continue(d);
    }
    for (unsigned i = 1; i <= 3; i++) {
        rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_NOP, 0);
    }
    runs(d);
    rig_stop(&r);
}

/*
 * Software sees an EQE in a stop, consumes it and arms the EQ. Tests that the
 * doorbell has its effect after the stop.
 */
static void test_eq_doorbell(void)
{
    QrnicEqe eqe;
    Device *d;
    Rig r;

    armed_rig(&r, "");
    d = r.d;
    stop_at(d, "eqe");
    post_nop(&r);
    expect_stop(d, "eqe", NULL, 0);
    eq_wait(d, &r.eq, &eqe);
    eq_arm(d, &r.eq);
    settle(d);
    g_assert_false(interrupt_taken(d, 1));
    stop_continue(d);
    interrupt_wait(d, 1);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_NOP, 0);
    g_assert_cmpuint(counter_now(d, "guest_errors"), ==, 0);
    /* The EQ is armed: the next event interrupts. */
    stop_at(d, "none");
    cq_arm(d, &r.send_cq, false);
    post_nop(&r);
    interrupt_wait(d, 1);
    rig_stop(&r);
}

/*
 * Software sees the reply of a command in a stop. Tests that software may use
 * the slot again, and that the event it requests arrives after the stop.
 */
static void test_command(void)
{
    QrnicCmdEntry nop = { .opcode = QRNIC_CMD_NOP, .owner = 1 };
    uint32_t slots, last;
    QrnicEqe eqe;
    Device *d;
    Rig r;

    rig_start(&r, "", NULL);
    d = r.d;
    slots = 1u << d->cmd_log_size;
    stop_at(d, "command");
    last = d->cmd_producer & (slots - 1);
    command_begin(d, nop);
    pass(d, "command", "length", QRNIC_CMD_ENTRY_BYTES);
    expect_stop(d, "command", NULL, 0);
    reg_write(d, QRNIC_REG_CMD_EVENT, last);
    for (unsigned i = 0; i < slots; i++) {
        command_begin(d, nop);
    }
    g_assert_false(eq_poll(d, &r.async, &eqe));
    stop_at(d, "none");
    WAIT_UNTIL(reg_read(d, QRNIC_REG_CMD_CONSUMER) == d->cmd_producer,
               "commands do not complete");
    eq_wait(d, &r.async, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_COMMAND);
    g_assert_cmpuint(eqe.object, ==, last);
    g_assert_cmpuint(counter_now(d, "guest_errors"), ==, 0);
    rig_stop(&r);
}

/* The command queue is disabled in the middle of a command. */
static void test_disable(void)
{
    QrnicCmdEntry nop = { .opcode = QRNIC_CMD_NOP, .owner = 1 };
    Device *d;
    Rig r;

    rig_start(&r, "", NULL);
    d = r.d;
    stop_at(d, "command");
    command_begin(d, nop);
    expect_stop(d, "command", NULL, 0);
    reg_write(d, QRNIC_REG_CONTROL, 0);
    runs(d);
    stop_at(d, "none");
    device_enable_commands(d, 3);
    g_assert_cmphex(command_raw(d, nop).status, ==, QRNIC_ST_OK);
    rig_stop(&r);
}

/* Frames of a stop wait, and are processed in their order. */
static void test_frames_wait(void)
{
    const unsigned frames = 5;
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    for (unsigned i = 0; i < frames; i++) {
        post_recv(&r);
    }
    settle(r.d);
    stop_at(r.d, "receive-wqe");
    for (unsigned i = 0; i < frames; i++) {
        peer_sends(&r, i);
    }
    expect_stop(r.d, "receive-wqe", NULL, 0);
    wire_silent(r.d);
    g_assert_cmpuint(counter_now(r.d, "roce_rx_packets"), ==, 1);
    stop_at(r.d, "frame-received");
    stop_continue(r.d);
    for (unsigned i = 1; i < frames; i++) {
        if (!r.d->cable) {
            peer_expect(r.d, RC_ACK, RQ_PSN + i - 1);
        }
        expect_stop(r.d, "frame-received", NULL, 0);
        wire_silent(r.d);
        stop_continue(r.d);
    }
    /* All frames of a cable are received before the response to the last. */
    peer_expect(r.d, RC_ACK, RQ_PSN + frames - 1);
    for (unsigned i = 0; i < frames; i++) {
        cq_wait(r.d, &r.recv_cq, &cqe);
        g_assert_cmphex(cqe.status, ==, QRNIC_WC_SUCCESS);
    }
    runs(r.d);
    rig_stop(&r);
}

/* Tests that a reset ends the stop, and the device is as after any reset. */
static void test_reset(void)
{
    QrnicCqe cqe;
    Device *d;
    Rig r;

    rig_start(&r, "", NULL);
    d = r.d;
    stop_at(d, "wqe eqe");
    post_send(&r);
    expect_stop(d, "wqe", NULL, 0);
    reg_write(d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    runs(d);
    wire_silent(d);
    g_assert_cmphex(reg_read(d, QRNIC_REG_CONTROL), ==, 0);
    g_assert_false(cq_poll(d, &r.send_cq, &cqe));
    kinds_are(d, "wqe eqe");
    WAIT_UNTIL(reg_read(d, QRNIC_REG_STATUS) & QRNIC_REG_STATUS_READY_MASK,
               "the device does not become ready");
    device_enable_commands(d, 3);
    rig_start_again(&r);
    post_send(&r);
    pass(d, "wqe", NULL, 0);
    complete(&r, 0);
    rig_stop(&r);
}

/* Tests that a process completes its work when the VMM ends in a stop. */
static void vmm_ends(Rig *r)
{
    qtest_quit(r->d->qts);
    stop_none(r->d);
    rmdir(r->d->folder);
    g_free(r->d->folder);
    r->d->qts = r->d->home;
    rig_stop(r);
}

/* A function-level reset and a reset of the system end the stop, too. */
static void test_other_resets(void)
{
    Device *d;
    uint8_t exp;
    Rig r;

    rig_start(&r, "", NULL);
    d = r.d;
    stop_at(d, "data");
    post_send(&r);
    expect_stop(d, "data", NULL, 0);
    exp = qpci_find_capability(d->pci, PCI_CAP_ID_EXP, 0);
    qpci_config_writew(d->pci, exp + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
    qpci_config_readl(d->pci, PCI_VENDOR_ID);
    stop_none(d);
    wire_silent(d);
    rig_stop(&r);

    rig_start(&r, "", NULL);
    stop_at(r.d, "data");
    post_send(&r);
    expect_stop(r.d, "data", NULL, 0);
    qtest_qmp_assert_success(r.d->home, "{'execute': 'system_reset'}");
    qtest_qmp_eventwait(r.d->home, "RESET");
    stop_none(r.d);
    rig_stop(&r);
    if (in_process()) {
        rig_start(&r, "", NULL);
        stop_at(r.d, "data");
        post_send(&r);
        expect_stop(r.d, "data", NULL, 0);
        vmm_ends(&r);
    }
}

/* Tests that the device can be unplugged in a stop, in any part of its work. */
static void test_unplug(const void *kind)
{
    uint8_t frame[64] = OUR_MAC PEER_MAC "\x08\x00";
    Rig r;

    if (skip_in_process("QEMU 11.1 aborts if vfio-user-pci is unplugged")) {
        return;
    }
    rig_start_behind_port(&r, "");
    stop_at(r.d, kind);
    post_send(&r);
    if (!strcmp(kind, "frame-received")) {
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
        peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK, 1);
    }
    expect_stop(r.d, kind, NULL, 0);
    qtest_writew(r.d->qts, slot_control_address(r.d), SLOT_OFF);
    qtest_qmp_eventwait(r.d->qts, "DEVICE_DELETED");
    g_assert_cmphex(qpci_config_readl(r.d->pci, PCI_VENDOR_ID), ==,
                    UINT32_MAX);
    wire_send(r.d, frame, sizeof(frame));
    clock_step(r.d, NANOSECONDS_PER_SECOND);
    rig_stop(&r);
}

/* A stop lasts as long as the VM is stopped, even if a continuation waits. */
static void test_vm_stopped(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    stop_at(r.d, "wqe");
    post_send(&r);
    expect_stop(r.d, "wqe", NULL, 0);
    vm_stop(r.d);
    stop_continue(r.d);
    wire_silent(r.d);
    expect_stop(r.d, "wqe", NULL, 0);
    vm_continue(r.d);
    complete(&r, 0);
    runs(r.d);
    rig_stop(&r);
}

/*
 * Tests that a doorbell is obeyed if it comes after the request to continue.
 * Both then have one run of the device, because the VM is stopped meanwhile.
 */
static void test_doorbell_joins(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    post_recv(&r);
    settle(r.d);
    stop_at(r.d, "frame-received");
    peer_sends(&r, 0);
    expect_stop(r.d, "frame-received", NULL, 0);
    vm_stop(r.d);
    stop_continue(r.d);
    post_send(&r);
    vm_continue(r.d);
    peer_expect(r.d, RC_ACK, RQ_PSN);
    stop_at(r.d, "none");
    complete(&r, 0);
    rig_stop(&r);
}

/* Migration is rejected in a stop, as at any time. */
static void test_migration(void)
{
    QDict *rsp;
    Rig r;

    rig_start(&r, "", NULL);
    stop_at(r.d, "wqe");
    post_send(&r);
    expect_stop(r.d, "wqe", NULL, 0);
    rsp = qtest_qmp(r.d->home, "{'execute': 'migrate', 'arguments': {"
                    "'uri': 'exec:cat >/dev/null'}}");
    g_assert_true(qdict_haskey(rsp, "error"));
    qobject_unref(rsp);
    stop_at(r.d, "none");
    complete(&r, 0);
    rig_stop(&r);
}

/* Tests that a second device works while the first one is stopped. */
static void test_two(void)
{
    QrnicCmdEntry nop = { .opcode = QRNIC_CMD_NOP, .owner = 1 };
    Device other;
    Rig r;

    if (skip_in_process("a process has one device")) {
        return;
    }
    rig_start(&r, "stop-at=none -device qrnic,id=other,bus=pcie.0,addr=06.0",
              NULL);
    stop_at(r.d, "wqe");
    post_send(&r);
    expect_stop(r.d, "wqe", NULL, 0);
    other = *r.d;
    other.pci = qpci_device_find(r.d->bus, QPCI_DEVFN(6, 0));
    g_assert_nonnull(other.pci);
    qpci_device_enable(other.pci);
    other.control = qpci_iomap(other.pci, QRNIC_BAR_CONTROL, NULL);
    device_enable_commands(&other, 3);
    for (unsigned i = 0; i < 20; i++) {
        g_assert_cmphex(command_raw(&other, nop).status, ==, QRNIC_ST_OK);
    }
    r.d->free = other.free;
    expect_stop(r.d, "wqe", NULL, 0);
    stop_at(r.d, "none");
    complete(&r, 0);
    g_free(other.pci);
    rig_stop(&r);
}

void add_stop_tests(void)
{
    qtest_add_func("qrnic/stop/order", test_order);
    qtest_add_func("qrnic/stop/kinds", test_kinds);
    qtest_add_func("qrnic/stop/lists", test_lists);
    qtest_add_func("qrnic/stop/invalid", test_invalid);
    qtest_add_func("qrnic/stop/clock", test_clock);
    qtest_add_func("qrnic/stop/doorbell-flood", test_flood);
    qtest_add_func("qrnic/stop/doorbells-later", test_doorbells_later);
    qtest_add_func("qrnic/stop/eq-doorbell", test_eq_doorbell);
    qtest_add_func("qrnic/stop/command", test_command);
    qtest_add_func("qrnic/stop/disable-commands", test_disable);
    qtest_add_func("qrnic/stop/frames-wait", test_frames_wait);
    qtest_add_func("qrnic/stop/reset", test_reset);
    qtest_add_func("qrnic/stop/other-resets", test_other_resets);
    qtest_add_data_func("qrnic/stop/unplug-in-work", "data", test_unplug);
    qtest_add_data_func("qrnic/stop/unplug-in-doorbell", "doorbell",
                        test_unplug);
    qtest_add_data_func("qrnic/stop/unplug-in-receive", "frame-received",
                        test_unplug);
    qtest_add_func("qrnic/stop/vm-stopped", test_vm_stopped);
    qtest_add_func("qrnic/stop/doorbell-joins", test_doorbell_joins);
    qtest_add_func("qrnic/stop/migration", test_migration);
    qtest_add_func("qrnic/stop/two-devices", test_two);
}
