/*
 * qrnic engine: shared connections: the packets of members, on their way into
 * the carrier that they share
 *
 * A member hands over a packet where another queue pair sends a frame; here it
 * stays until the carrier's window takes it, and then until the other end has
 * it. Manual, chapter Shared connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp.h"

struct QrnicCarriage {
    void (*schedule)(QrnicEngine *e, QrnicQp *qp);
    QTAILQ_HEAD(, QrnicQp) members;
    /* Of these, who found no room: the one that has waited longest is first */
    QTAILQ_HEAD(, QrnicQp) waiting;
    uint64_t waits;             /* how often one began to */
    QrnicQp *failing;           /* in ERR: the next member to tell; or NULL */
    QTAILQ_HEAD(, QrnicCarried) queue;
    uint32_t queued;            /* in the queue */
    uint32_t kept;              /* the same, and under way */
    QrnicCarried *built;        /* opened, and not sent yet */
};

void qrnic_carriage_init(QrnicEngine *e, QrnicQp *carrier,
                         void (*schedule)(QrnicEngine *e, QrnicQp *qp))
{
    QrnicCarriage *c = g_new0(QrnicCarriage, 1);

    c->schedule = schedule;
    QTAILQ_INIT(&c->members);
    QTAILQ_INIT(&c->waiting);
    QTAILQ_INIT(&c->queue);
    carrier->carriage = c;
}

static size_t carried_size(const QrnicCarried *p)
{
    return sizeof(*p) + p->room;
}

static void carried_put(QrnicEngine *e, QrnicCarried *p)
{
    qrnic_buffer_put(e, p, carried_size(p));
}

/* The member does not hear what becomes of it. */
static void disown(QrnicCarried *p)
{
    if (p->member) {
        QLIST_REMOVE(p, of_member);
        p->member = NULL;
    }
}

void qrnic_carried_free(QrnicEngine *e, QrnicCarried *p)
{
    disown(p);
    p->carriage->kept--;
    e->pairs->carried_bytes -= carried_size(p);
    carried_put(e, p);
}

static void built_drop(QrnicEngine *e, QrnicCarriage *c)
{
    if (c->built) {
        carried_put(e, c->built);
        c->built = NULL;
    }
}

static void wait_end(QrnicQp *member)
{
    if (QTAILQ_IN_USE(member, next_waiting)) {
        QTAILQ_REMOVE(&member->carrier->carriage->waiting, member,
                      next_waiting);
    }
}

void qrnic_member_join(QrnicQp *member, QrnicQp *carrier)
{
    member->carrier = carrier;
    QTAILQ_INSERT_TAIL(&carrier->carriage->members, member, next_member);
}

void qrnic_member_leave(QrnicQp *member)
{
    QrnicCarriage *c;

    if (!member->carrier) {
        return;
    }
    c = member->carrier->carriage;
    if (c->failing == member) {
        c->failing = QTAILQ_NEXT(member, next_member);
    }
    while (!QLIST_EMPTY(&member->carried)) {
        disown(QLIST_FIRST(&member->carried));
    }
    wait_end(member);
    member->waits_since = 0;
    QTAILQ_REMOVE(&c->members, member, next_member);
    member->carrier = NULL;
}

bool qrnic_carriage_has_members(const QrnicQp *qp)
{
    return qp->carriage && !QTAILQ_EMPTY(&qp->carriage->members);
}

void qrnic_carriage_free(QrnicEngine *e, QrnicQp *carrier)
{
    QrnicCarriage *c = carrier->carriage;

    if (!c) {
        return;
    }
    /* In a reset of the device all go, in the order of their numbers. */
    while (!QTAILQ_EMPTY(&c->members)) {
        qrnic_member_leave(QTAILQ_FIRST(&c->members));
    }
    qrnic_carriage_drop(e, carrier);
    g_free(c);
    carrier->carriage = NULL;
}

void qrnic_carriage_drop(QrnicEngine *e, QrnicQp *carrier)
{
    QrnicCarried *p;

    while ((p = qrnic_carriage_next(carrier))) {
        qrnic_carried_free(e, p);
    }
    built_drop(e, carrier->carriage);
}

/* One packet of each carrier has room in any case, so that it goes on. */
static bool has_room(const QrnicEngine *e, const QrnicCarriage *c)
{
    return !c->kept || (c->queued < QRNIC_CARRIER_QUEUE &&
                        e->pairs->carried_bytes < QRNIC_MAX_CARRIED);
}

/* Who has much to send must not take the room before those that wait for it. */
static bool is_its_turn(const QrnicCarriage *c, const QrnicQp *member)
{
    const QrnicQp *first = QTAILQ_FIRST(&c->waiting);

    return !first || first == member ||
           (member->waits_since && member->waits_since < first->waits_since);
}

/* Who was woken in vain is one of the first again. */
static void wait_begin(QrnicCarriage *c, QrnicQp *member)
{
    QrnicQp *later = NULL;

    if (!member->waits_since) {
        member->waits_since = ++c->waits;
    } else {
        QTAILQ_FOREACH(later, &c->waiting, next_waiting) {
            if (later->waits_since > member->waits_since) {
                break;
            }
        }
    }
    if (later) {
        QTAILQ_INSERT_BEFORE(later, member, next_waiting);
    } else {
        QTAILQ_INSERT_TAIL(&c->waiting, member, next_waiting);
    }
}

QrnicTurn qrnic_member_wait(QrnicEngine *e, QrnicQp *member)
{
    QrnicQp *carrier = member->carrier;
    QrnicCarriage *c = carrier->carriage;

    if (carrier->state == QRNIC_QPS_ERR) {
        /* Those who are told already, are not told from the first one on. */
        if (!c->failing) {
            qrnic_carriage_fail(e, carrier);
        }
    } else if (carrier->state == QRNIC_QPS_RTS && has_room(e, c) &&
               is_its_turn(c, member)) {
        return QRNIC_TURN_MORE;
    }
    if (!QTAILQ_IN_USE(member, next_waiting)) {
        wait_begin(c, member);
    }
    return QRNIC_TURN_DONE;
}

void qrnic_carriage_wake(QrnicEngine *e, QrnicQp *carrier)
{
    QrnicCarriage *c = carrier->carriage;
    uint32_t room = QRNIC_CARRIER_QUEUE - c->queued;

    if (carrier->state != QRNIC_QPS_RTS || !has_room(e, c)) {
        return;
    }
    while (room-- && !QTAILQ_EMPTY(&c->waiting)) {
        QrnicQp *member = QTAILQ_FIRST(&c->waiting);

        wait_end(member);
        c->schedule(e, member);
    }
    /* They may have nothing to send any more; then others have their turn. */
    if (!QTAILQ_EMPTY(&c->waiting)) {
        c->schedule(e, carrier);
    }
}

void qrnic_carriage_fail(QrnicEngine *e, QrnicQp *carrier)
{
    carrier->carriage->failing = QTAILQ_FIRST(&carrier->carriage->members);
    if (carrier->carriage->failing) {
        carrier->carriage->schedule(e, carrier);
    }
}

QrnicQp *qrnic_carriage_failing(QrnicQp *carrier)
{
    QrnicQp *member = carrier->carriage->failing;

    if (member) {
        carrier->carriage->failing = QTAILQ_NEXT(member, next_member);
    }
    return member;
}

static void enqueue(QrnicEngine *e, QrnicQp *carrier, QrnicCarried *p)
{
    QrnicCarriage *c = carrier->carriage;

    QTAILQ_INSERT_TAIL(&c->queue, p, next);
    c->queued++;
    c->kept++;
    e->pairs->carried_bytes += carried_size(p);
    c->schedule(e, carrier);
}

void qrnic_carriage_introduce(QrnicEngine *e, QrnicQp *carrier)
{
    QrnicCarried *p = qrnic_buffer_get(e, sizeof(*p));

    p->carriage = carrier->carriage;
    p->room = p->len = 0;
    p->member = NULL;
    enqueue(e, carrier, p);
}

uint8_t *qrnic_member_open(QrnicEngine *e, QrnicQp *member,
                           const QrnicTransport *t, uint32_t payload_len)
{
    QrnicCarriage *c = member->carrier->carriage;
    uint32_t room = QRNIC_TRANSPORT_HEADER_MAX + payload_len + 3;
    QrnicCarried *p = qrnic_buffer_get(e, sizeof(*p) + room);

    built_drop(e, c);
    c->built = p;
    p->carriage = c;
    p->room = room;
    return qrnic_packet_begin_carried(p->data, t, payload_len);
}

void qrnic_member_send(QrnicEngine *e, QrnicQp *member,
                       const QrnicTransport *t, uint8_t *payload,
                       uint32_t payload_len)
{
    QrnicQp *carrier = member->carrier;
    QrnicCarriage *c = carrier->carriage;
    QrnicCarried *p = c->built;

    c->built = NULL;
    p->len = qrnic_packet_finish_carried(p->data, payload, payload_len);
    p->member = member;
    wait_end(member);
    member->waits_since = 0;
    QLIST_INSERT_HEAD(&member->carried, p, of_member);
    trace_qrnic_carriage_put(e->config.name, carrier->number, member->number,
                             t->psn, qrnic_opcode_info(t->opcode)->name,
                             payload_len, c->queued);
    enqueue(e, carrier, p);
}

bool qrnic_carriage_waits(const QrnicQp *carrier)
{
    return carrier->carriage->queued;
}

QrnicCarried *qrnic_carriage_next(QrnicQp *carrier)
{
    QrnicCarriage *c = carrier->carriage;
    QrnicCarried *p = QTAILQ_FIRST(&c->queue);

    if (p) {
        QTAILQ_REMOVE(&c->queue, p, next);
        c->queued--;
    }
    return p;
}
