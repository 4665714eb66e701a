/*
 * qrnic engine, transport: members of a carrier QP, and their queued packets
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A member is an RC queue pair whose output is a carrier QP in place of the
 * wire. Requester and responder of the member call member_wait(), member_open()
 * and member_send() through qp->out. The packet is encapsulated and queued
 * here. The file carrier.c dequeues the packet when the window has room, and
 * frees it after its acknowledgement.
 *
 * A member that finds no room waits in a list, in the order in which members
 * began to wait. Manual, chapter Shared connections.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/shared/shared_private.h"

static size_t packet_size(const QrnicEncapsulated *p)
{
    return sizeof(*p) + p->room;
}

static void packet_put(QrnicEngine *e, QrnicEncapsulated *p)
{
    qrnic_buffer_put(e, p, packet_size(p));
}

/*
 * Removes the packet from the list of its member, which may be freed before it.
 */
static void disown(QrnicEncapsulated *p)
{
    if (p->member) {
        QLIST_REMOVE(p, of_member);
        p->member->requests -= p->request;
        p->member = NULL;
    }
}

void qrnic_encapsulated_free(QrnicEngine *e, QrnicEncapsulated *p)
{
    disown(p);
    p->carrier->kept--;
    e->qps->encapsulated_bytes -= packet_size(p);
    packet_put(e, p);
}

/*
 * Returns true if the peer has a request of the latest transmission whose
 * response would be progress.
 */
static bool is_delivered(const QrnicMember *m)
{
    return m->delivered &&
           qrnic_psn_diff(m->delivered_psn,
                          qrnic_requester_oldest_psn(m->qp)) >= 0;
}

void qrnic_encapsulated_acknowledged(QrnicEngine *e, QrnicEncapsulated *p)
{
    QrnicMember *m = p->asks ? p->member : NULL;
    uint32_t psn = p->last_psn;
    /*
     * The ACK of an earlier transmission arrives late, after the transport
     * timer has expired. The time of the latest transmission has not begun.
     */
    bool latest = m && p->transmission == m->transmission;

    qrnic_encapsulated_free(e, p);
    if (!latest || qrnic_psn_diff(psn, qrnic_requester_oldest_psn(m->qp)) < 0) {
        return;
    }
    /*
     * The timer restarts, because otherwise the peer's carrier would lack the
     * time that this carrier needed. Later requests do not restart the timer,
     * so that it expires if the peer never responds.
     */
    if (!is_delivered(m)) {
        m->delivered = true;
        m->delivered_psn = psn;
        qrnic_requester_delivered(e, m->qp);
    } else if (qrnic_psn_diff(psn, m->delivered_psn) > 0) {
        m->delivered_psn = psn;
    }
}

static void open_packet_drop(QrnicEngine *e, QrnicCarrier *c)
{
    if (c->open_packet) {
        packet_put(e, c->open_packet);
        c->open_packet = NULL;
    }
}

static void wait_end(QrnicMember *m)
{
    if (QTAILQ_IN_USE(m, next_waiting)) {
        QTAILQ_REMOVE(&m->carrier->waiting, m, next_waiting);
    }
}

static void member_leave(QrnicMember *m)
{
    QrnicCarrier *c = m->carrier;

    if (c->failing == m) {
        c->failing = QTAILQ_NEXT(m, next);
    }
    while (!QLIST_EMPTY(&m->packets)) {
        disown(QLIST_FIRST(&m->packets));
    }
    wait_end(m);
    QTAILQ_REMOVE(&c->members, m, next);
    m->qp->member = NULL;
    m->qp->out = &qrnic_wire_output;
    g_free(m);
}

void qrnic_member_leave(QrnicQp *qp)
{
    if (qp->member) {
        member_leave(qp->member);
    }
}

void qrnic_member_reset(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->member) {
        member_leave(qp->member);
        qrnic_context_again(e, qp);
    }
}

void qrnic_carrier_init(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->carrier) {
        qrnic_carrier_queue_clear(e, qp->carrier);
        return;
    }
    qp->carrier = g_new0(QrnicCarrier, 1);
    qp->carrier->qp = qp;
    QTAILQ_INIT(&qp->carrier->members);
    QTAILQ_INIT(&qp->carrier->waiting);
    QTAILQ_INIT(&qp->carrier->queue);
}

void qrnic_carrier_free(QrnicEngine *e, QrnicQp *qp)
{
    QrnicCarrier *c = qp->carrier;

    /* A reset of the device frees carrier QPs before their members. */
    while (!QTAILQ_EMPTY(&c->members)) {
        member_leave(QTAILQ_FIRST(&c->members));
    }
    qrnic_carrier_queue_clear(e, c);
    g_free(c);
    qp->carrier = NULL;
}

bool qrnic_carrier_in_use(const QrnicQp *qp)
{
    return !QTAILQ_EMPTY(&qp->carrier->members);
}

void qrnic_carrier_queue_clear(QrnicEngine *e, QrnicCarrier *c)
{
    QrnicEncapsulated *p;

    while ((p = qrnic_carrier_dequeue(c))) {
        qrnic_encapsulated_free(e, p);
    }
    open_packet_drop(e, c);
}

/*
 * Returns true if a packet can be queued. Each carrier QP has room for at least
 * one packet, so that it makes progress.
 */
static bool has_room(const QrnicEngine *e, const QrnicCarrier *c)
{
    return !c->kept || (c->queued < QRNIC_CARRIER_QUEUE &&
                        e->qps->encapsulated_bytes < QRNIC_MAX_INNER_BYTES);
}

/*
 * Returns true if no other member has waited longer. Otherwise a member with
 * much to send would use the room before the members that wait for it.
 */
static bool is_first(const QrnicCarrier *c, const QrnicMember *m)
{
    const QrnicMember *first = QTAILQ_FIRST(&c->waiting);

    return !first || first == m ||
           (m->waits_since && m->waits_since < first->waits_since);
}

/*
 * Appends the member to the waiting list. A member that was woken but found no
 * room keeps its place in the order.
 */
static void wait_begin(QrnicCarrier *c, QrnicMember *m)
{
    QrnicMember *later = NULL;

    if (!m->waits_since) {
        m->waits_since = ++c->waits;
    } else {
        QTAILQ_FOREACH(later, &c->waiting, next_waiting) {
            if (later->waits_since > m->waits_since) {
                break;
            }
        }
    }
    if (later) {
        QTAILQ_INSERT_BEFORE(later, m, next_waiting);
    } else {
        QTAILQ_INSERT_TAIL(&c->waiting, m, next_waiting);
    }
}

void qrnic_carrier_error_entered(QrnicEngine *e, QrnicQp *qp)
{
    qp->carrier->failing = QTAILQ_FIRST(&qp->carrier->members);
    if (qp->carrier->failing) {
        qrnic_schedule(e, qp);
    }
}

QrnicMember *qrnic_carrier_next_failing(QrnicCarrier *c)
{
    QrnicMember *m = c->failing;

    if (m) {
        c->failing = QTAILQ_NEXT(m, next);
    }
    return m;
}

static QrnicReadyList member_wait(QrnicEngine *e, QrnicQp *qp)
{
    QrnicMember *m = qp->member;
    QrnicCarrier *c = m->carrier;

    if (c->qp->state == QRNIC_QPS_ERR) {
        /*
         * A failure that has begun is not restarted, because it would begin
         * with members that have failed already.
         */
        if (!c->failing) {
            qrnic_carrier_error_entered(e, c->qp);
        }
    } else if (c->qp->state == QRNIC_QPS_RTS && has_room(e, c) &&
               is_first(c, m)) {
        return QRNIC_LIST_READY;
    }
    if (!QTAILQ_IN_USE(m, next_waiting)) {
        wait_begin(c, m);
    }
    return QRNIC_LIST_NONE;
}

void qrnic_carrier_wake(QrnicEngine *e, QrnicQp *qp)
{
    QrnicCarrier *c = qp->carrier;
    uint32_t room = QRNIC_CARRIER_QUEUE - c->queued;

    if (qp->state != QRNIC_QPS_RTS || !has_room(e, c)) {
        return;
    }
    while (room-- && !QTAILQ_EMPTY(&c->waiting)) {
        QrnicMember *m = QTAILQ_FIRST(&c->waiting);

        wait_end(m);
        qrnic_schedule(e, m->qp);
    }
    /*
     * Woken members may have nothing to send, so the carrier QP wakes others
     * later.
     */
    if (!QTAILQ_EMPTY(&c->waiting)) {
        qrnic_schedule(e, qp);
    }
}

static void enqueue(QrnicEngine *e, QrnicCarrier *c, QrnicEncapsulated *p)
{
    QTAILQ_INSERT_TAIL(&c->queue, p, next);
    c->queued++;
    c->kept++;
    e->qps->encapsulated_bytes += packet_size(p);
    qrnic_schedule(e, c->qp);
}

void qrnic_carrier_introduce(QrnicEngine *e, QrnicCarrier *c)
{
    QrnicEncapsulated *p = qrnic_buffer_get(e, sizeof(*p));

    p->carrier = c;
    p->room = p->len = 0;
    p->member = NULL;
    p->request = p->asks = false;
    p->last_psn = p->transmission = 0;
    enqueue(e, c, p);
}

static uint8_t *member_open(QrnicEngine *e, QrnicQp *qp,
                            const QrnicTransport *t, uint32_t payload_len)
{
    QrnicCarrier *c = qp->member->carrier;
    uint32_t room = QRNIC_TRANSPORT_HEADER_MAX + payload_len + 3;
    QrnicEncapsulated *p = qrnic_buffer_get(e, sizeof(*p) + room);

    open_packet_drop(e, c);
    c->open_packet = p;
    p->carrier = c;
    p->room = room;
    return qrnic_packet_begin_inner(p->data, t, payload_len);
}

static void member_send(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                        uint8_t *payload, uint32_t payload_len)
{
    QrnicMember *m = qp->member;
    QrnicCarrier *c = m->carrier;
    QrnicEncapsulated *p = c->open_packet;
    const QrnicOpcodeInfo *info = qrnic_opcode_info(t->opcode);

    p->request = !(info->flags & QRNIC_OPF_RESPONSE);
    p->asks = p->request && t->ack_req;
    p->last_psn = t->psn;
    if (p->request) {
        qrnic_pace_charge(e, qp, payload_len);
        m->requests++;
        if (t->opcode == QRNIC_OP_RC_READ_REQUEST) {
            p->last_psn = qrnic_psn_add(t->psn, qrnic_psn_count(t->dma_len,
                                        qrnic_qp_mtu(qp)) - 1);
        }
        /* Another transmission needs a delivery and a time of its own. */
        if (t->psn == qrnic_requester_oldest_psn(qp)) {
            m->delivered = false;
            m->transmission++;
        }
    }
    p->transmission = m->transmission;
    c->open_packet = NULL;
    p->len = qrnic_packet_finish_inner(p->data, payload, payload_len);
    p->member = m;
    wait_end(m);
    m->waits_since = 0;
    QLIST_INSERT_HEAD(&m->packets, p, of_member);
    trace_qrnic_member_send(e->config.name, c->qp->number, qp->number, t->psn,
                            info->name, payload_len, c->queued);
    enqueue(e, c, p);
}

/*
 * Returns true if no request is delivered yet. Packets of the responder are
 * ignored. Otherwise a member that responds all the time would never notice
 * that its peer does not respond.
 */
static bool member_has_unsent(QrnicEngine *e, QrnicQp *qp)
{
    return !is_delivered(qp->member) &&
           (qp->member->requests ||
            qrnic_path_wait(e, qp) != QRNIC_LIST_READY);
}

/*
 * The peer has the response in its carrier, which retransmits the response as
 * often as this carrier would. One more timeout lets a carrier that fails
 * report its error first.
 */
static int64_t member_patience(const QrnicQp *qp)
{
    const QrnicQpAttr *carrier = &qp->member->carrier->qp->attr;

    return qrnic_ack_timeout_ns(carrier->timeout) * (carrier->retry_cnt + 2);
}

static const QrnicOutput member_output = {
    .wait = member_wait,
    .open = member_open,
    .send = member_send,
    .has_unsent = member_has_unsent,
    .patience = member_patience,
};

QrnicEncapsulated *qrnic_carrier_dequeue(QrnicCarrier *c)
{
    QrnicEncapsulated *p = QTAILQ_FIRST(&c->queue);

    if (p) {
        QTAILQ_REMOVE(&c->queue, p, next);
        c->queued--;
    }
    return p;
}

QrnicResult qrnic_member_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                      const QrnicQpAttr *in, uint8_t to)
{
    const QrnicQp *carrier;

    if (!(in->mask & QRNIC_QP_CARRIER)) {
        return qrnic_ok(0);
    }
    carrier = qrnic_qp_find(e, in->carrier);
    if (!carrier || !carrier->carrier) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT,
                            QRNIC_QP_ATTR_CARRIER_OFFSET);
    }
    if (carrier->state != QRNIC_QPS_RTR && carrier->state != QRNIC_QPS_RTS) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (in->path_mtu > carrier->attr.path_mtu) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PATH_MTU_OFFSET);
    }
    return in->options ? qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                      QRNIC_QP_ATTR_OPTIONS_OFFSET) :
                         qrnic_ok(0);
}

void qrnic_member_entered(QrnicEngine *e, QrnicQp *qp)
{
    QrnicMember *m;

    if (!qp->attr.carrier || qp->member) {
        return;
    }
    m = g_new0(QrnicMember, 1);
    m->qp = qp;
    m->carrier = qrnic_qp_find(e, qp->attr.carrier)->carrier;
    QTAILQ_INSERT_TAIL(&m->carrier->members, m, next);
    qp->member = m;
    qp->out = &member_output;
    /* The context leaves the cache, because members have no cached contexts. */
    qrnic_context_away(e, qp);
    qrnic_context_gone(e);
    trace_qrnic_member_join(e->config.name, qp->attr.carrier, qp->number);
}

void qrnic_member_carrier_failed(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    if (qp->state != QRNIC_QPS_RTR && !qrnic_requester_may_run(qp)) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_MEMBERS_FAILED, 1);
    if (!qrnic_requester_idle(qp)) {
        qrnic_requester_fail(e, qp, QRNIC_WC_RETRY_EXC_ERR, syndrome);
    } else {
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_RETRY_EXC_ERR);
    }
}
