/*
 * qrnic engine: the requester of a reliable connection: what of it has arrived
 * out of order, and what was lost, and is sent again
 *
 * Transmissions have running numbers. Whatever was sent before something that
 * has arrived, and has not arrived itself, is lost; so a packet that is lost
 * once more is known to be when what was sent after it has arrived. The other
 * end tells what has arrived by SACKs, and names the transmission that came
 * last. See "Selective repeat" in the manual.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/requester/requester.h"

void qrnic_selective_start(QrnicQp *qp)
{
    if (qp->attr.options & QRNIC_QPO_SELECTIVE_REPEAT) {
        qp->requester->selective = g_new0(QrnicSelective, 1);
    }
}

/* How many PSNs of the window have been sent */
static uint32_t in_window(const QrnicRequester *r)
{
    return MIN(qrnic_psn_distance(r->una, r->sent_psn), QRNIC_WINDOW);
}

/* The message that has this PSN, which has been sent */
static QrnicMessage *message_with(QrnicRequester *r, uint32_t psn)
{
    uint32_t n = r->tail;

    while (qrnic_psn_distance(qrnic_message_at(r, n)->first_psn, psn) >=
           qrnic_message_at(r, n)->packets) {
        n++;
    }
    return qrnic_message_at(r, n);
}

uint8_t qrnic_selective_transmission(const QrnicRequester *r,
                                     const QrnicMessage *p)
{
    if (r->cursor_psn == r->sent_psn) {
        return 0;
    }
    return 1 + (qrnic_wqe_is_rd(p->opcode) ? p->initiated->asked_transmission :
                r->selective->times[r->cursor_psn % QRNIC_WINDOW]);
}

void qrnic_selective_sent(QrnicEngine *e, QrnicRequester *r, QrnicMessage *p,
                          bool asks)
{
    QrnicSelective *s = r->selective;
    uint32_t place = r->cursor_psn % QRNIC_WINDOW;
    uint8_t transmission = qrnic_selective_transmission(r, p);

    s->order++;
    if (p->initiated) {
        p->initiated->asked = s->order;
        p->initiated->asked_transmission = transmission;
    }
    if (r->cursor_psn != r->sent_psn) {
        s->timed = false;       /* the answer may be to either transmission */
    } else if (asks && !s->timed) {
        s->timed = true;
        s->timed_psn = r->cursor_psn;
        s->timed_at = qrnic_now(e);
    }
    if (qrnic_psn_distance(r->una, r->cursor_psn) < QRNIC_WINDOW) {
        s->sent[place] = s->order;
        s->times[place] = transmission;
        if (r->cursor_psn == r->sent_psn) {
            s->first[place] = s->order;
        }
        s->state[place] = QRNIC_PSN_IN_FLIGHT;
    }
}

/* The transmission with this running number has arrived. */
static void note(QrnicSelective *s, uint32_t order)
{
    if ((int32_t)(order - s->newest) > 0) {
        s->newest = order;
    }
}

/* Which transmission of it came, is not said: not one before the first. */
static void note_psn(QrnicSelective *s, uint32_t psn)
{
    note(s, s->first[psn % QRNIC_WINDOW]);
}

void qrnic_selective_named(QrnicRequester *r, const QrnicTransport *t)
{
    QrnicSelective *s = r->selective;
    uint32_t place = t->latest_psn % QRNIC_WINDOW;

    if (qrnic_psn_distance(r->una, t->latest_psn) >= in_window(r)) {
        return;
    }
    /* One between the first and the last is not told from the first. */
    note(s, (s->times[place] & 7) == t->latest_transmission ? s->sent[place] :
                                                             s->first[place]);
}

/* As TCP does it (RFC 6298) */
static void measured(QrnicSelective *s, int64_t ns)
{
    s->timed = false;
    ns = MAX(ns, 1);
    if (!s->round_trip) {
        s->round_trip = ns;
        s->deviation = ns / 2;
        return;
    }
    s->deviation += (ABS(s->round_trip - ns) - s->deviation) / 4;
    s->round_trip = MAX(s->round_trip + (ns - s->round_trip) / 8, 1);
}

void qrnic_selective_acknowledged(QrnicEngine *e, QrnicRequester *r,
                                  uint32_t una)
{
    QrnicSelective *s = r->selective;
    uint32_t count = qrnic_psn_distance(r->una, una);

    s->probes = 0;
    s->counted = false;
    if (s->timed && qrnic_psn_distance(r->una, s->timed_psn) < count) {
        measured(s, qrnic_now(e) - s->timed_at);
    }
    for (uint32_t i = 0; i < MIN(count, QRNIC_WINDOW); i++) {
        uint32_t psn = qrnic_psn_add(r->una, i);

        note_psn(s, psn);
        s->state[psn % QRNIC_WINDOW] = QRNIC_PSN_IN_FLIGHT;
        /* Inside of a read nothing was sent at this PSN. */
        s->sent[psn % QRNIC_WINDOW] = s->newest;
        s->first[psn % QRNIC_WINDOW] = s->newest;
    }
}

/* Responses may be what was lost, not the requests. */
static void lose_reads(QrnicRequester *r)
{
    QrnicSelective *s = r->selective;

    for (uint32_t n = r->tail; n != r->head; n++) {
        const QrnicMessage *p = qrnic_message_at(r, n);

        if (qrnic_wqe_is_rd(p->opcode) && p->packets &&
            qrnic_psn_distance(r->una, p->first_psn) < in_window(r)) {
            s->state[p->first_psn % QRNIC_WINDOW] = QRNIC_PSN_LOST;
        }
    }
    s->beyond = true;
}

void qrnic_selective_lose_all(QrnicRequester *r)
{
    QrnicSelective *s = r->selective;

    if (!s) {
        return;
    }
    s->probes = 0;
    for (uint32_t i = 0; i < in_window(r); i++) {
        uint32_t place = qrnic_psn_add(r->una, i) % QRNIC_WINDOW;

        /* The oldest may have been kept, and then refused for now. */
        if (i == 0 || s->state[place] == QRNIC_PSN_IN_FLIGHT) {
            s->state[place] = QRNIC_PSN_LOST;
        }
    }
    lose_reads(r);
}

/* The packet at the cursor, which was sent before, is not to be sent again. */
static bool is_skipped(const QrnicRequester *r, const QrnicMessage *p)
{
    const QrnicSelective *s = r->selective;
    uint32_t flying = qrnic_psn_distance(r->una, r->cursor_psn);

    /* The rest of a read is asked for by who moved the cursor there. */
    if (qrnic_wqe_is_rd(p->opcode) && r->cursor_psn != p->first_psn) {
        return false;
    }
    return flying < QRNIC_WINDOW ?
           s->state[r->cursor_psn % QRNIC_WINDOW] != QRNIC_PSN_LOST :
           !s->beyond;
}

void qrnic_selective_skip(QrnicRequester *r)
{
    QrnicSelective *s = r->selective;

    while (r->cursor != r->head && r->cursor_psn != r->sent_psn) {
        const QrnicMessage *p = qrnic_message_at(r, r->cursor);

        if (!p->packets || !is_skipped(r, p)) {
            return;
        }
        qrnic_cursor_skip(r, p, qrnic_wqe_is_rd(p->opcode) ?
                                qrnic_psn_distance(r->cursor_psn,
                                                   qrnic_message_end(p)) : 1);
    }
    if (r->cursor_psn == r->sent_psn) {
        s->beyond = false;
    }
}

/* The first PSN that is to be sent again; false: there is none. */
static bool first_lost(const QrnicRequester *r, uint32_t *psn)
{
    for (uint32_t i = 0; i < in_window(r); i++) {
        *psn = qrnic_psn_add(r->una, i);
        if (r->selective->state[*psn % QRNIC_WINDOW] == QRNIC_PSN_LOST) {
            return true;
        }
    }
    return false;
}

/* What of the message was sent before something that has arrived is lost. */
static bool lose_passed(QrnicRequester *r, const QrnicMessage *p)
{
    QrnicSelective *s = r->selective;
    bool rd = qrnic_wqe_is_rd(p->opcode), any = false;
    int32_t count = in_window(r);
    int32_t first = qrnic_psn_diff(p->first_psn, r->una);
    /* The request of a read is one packet, whose response may have begun. */
    int32_t end = first + (rd ? 1 : (int32_t)p->packets);

    for (int32_t i = MAX(first, 0); p->packets && i < MIN(end, count); i++) {
        uint32_t place = qrnic_psn_add(r->una, i) % QRNIC_WINDOW;

        if (s->state[place] == QRNIC_PSN_IN_FLIGHT &&
            (int32_t)(s->newest - s->sent[place]) > 0) {
            s->state[place] = QRNIC_PSN_LOST;
            any = true;
        }
    }
    return any;
}

bool qrnic_selective_is_passed(QrnicRequester *r, const QrnicPacket *pkt)
{
    const QrnicSelective *s = r->selective;
    uint32_t psn = pkt->t.psn;
    uint32_t asked = message_with(r, r->una)->initiated->asked;
    const QrnicMessage *p;

    if (qrnic_psn_distance(r->una, psn) >=
        qrnic_psn_distance(r->una, r->sent_psn)) {
        return false;
    }
    p = message_with(r, psn);
    if (!qrnic_wqe_is_rd(p->opcode)) {
        return qrnic_psn_distance(r->una, psn) < QRNIC_WINDOW &&
               (int32_t)(s->first[psn % QRNIC_WINDOW] - asked) > 0;
    }
    /* A response: of the same request, or of one that went later? */
    return pkt->info->flags & QRNIC_OPF_RESPONSE &&
           QRNIC_MARKED_TRANSMISSION(pkt->t.mark) ==
           (p->initiated->asked_transmission & 7) &&
           (int32_t)(p->initiated->asked - asked) >= 0;
}

void qrnic_selective_ask(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    QrnicSelective *s = r->selective;
    uint32_t last = qrnic_psn_add(r->sent_psn, -1);

    lose_reads(r);
    s->state[r->una % QRNIC_WINDOW] = QRNIC_PSN_LOST;
    /* What came behind the read has been acknowledged to nobody. */
    if (qrnic_psn_distance(r->una, last) < QRNIC_WINDOW &&
        !qrnic_wqe_is_rd(message_with(r, last)->opcode)) {
        s->state[last % QRNIC_WINDOW] = QRNIC_PSN_LOST;
    }
    qrnic_cursor_back(r, r->una);
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_WINDOW);
    qrnic_schedule(e, qp);
}

bool qrnic_selective_arrived(QrnicRequester *r, const QrnicTransport *t)
{
    QrnicSelective *s = r->selective;
    uint32_t missing = t->missing_psn;
    uint32_t before = qrnic_psn_distance(r->una, missing);
    uint32_t psn, n = r->tail;
    bool any = false;

    for (uint32_t i = 0; i < in_window(r); i++) {
        uint32_t bit = i - before;
        bool there = i < before || t->arrived[bit / 8] & 0x80 >> bit % 8;
        uint32_t place;

        psn = qrnic_psn_add(r->una, i);
        place = psn % QRNIC_WINDOW;
        while (qrnic_psn_distance(qrnic_message_at(r, n)->first_psn, psn) >=
               qrnic_message_at(r, n)->packets) {
            n++;
        }
        if (!there || s->state[place] == QRNIC_PSN_ARRIVED) {
            continue;
        }
        note_psn(s, psn);
        /* A read has come: its response may be what is lost. */
        if (s->state[place] != QRNIC_PSN_LOST ||
            !qrnic_wqe_is_rd(qrnic_message_at(r, n)->opcode)) {
            s->state[place] = QRNIC_PSN_ARRIVED;
        }
    }
    /* It may have been kept, and been dropped when it was its turn. */
    if (before < in_window(r) &&
        s->state[missing % QRNIC_WINDOW] == QRNIC_PSN_ARRIVED) {
        s->state[missing % QRNIC_WINDOW] = QRNIC_PSN_IN_FLIGHT;
    }
    for (n = r->tail; n != r->head; n++) {
        any |= lose_passed(r, qrnic_message_at(r, n));
    }
    if (any && first_lost(r, &psn)) {
        s->probes = 0;
        qrnic_cursor_back(r, psn);
    }
    return any;
}

int64_t qrnic_selective_patience(const QrnicSelective *s)
{
    return MAX(2 * s->round_trip, s->round_trip + 4 * s->deviation);
}

/* Each probe waits twice as long as the one before. */
int64_t qrnic_selective_wait(QrnicEngine *e, QrnicRequester *r, int64_t expires)
{
    QrnicSelective *s = r->selective;
    int64_t wait;

    if (!s) {
        return expires;
    }
    s->expires = expires;
    wait = qrnic_selective_patience(s);
    if (!wait || s->probes > 16) {
        return expires;
    }
    return MIN(expires, qrnic_now(e) + (wait << s->probes));
}

void qrnic_selective_probe(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    QrnicSelective *s = r->selective;
    uint32_t psn = qrnic_psn_add(r->sent_psn, -1);

    if (qrnic_wqe_is_rd(message_with(r, r->una)->opcode)) {
        psn = r->una;           /* what is missing of its response */
    } else if (qrnic_wqe_is_rd(message_with(r, psn)->opcode)) {
        psn = message_with(r, psn)->first_psn;
    }
    /* Of a read that begins beyond the window it is not known what is lost. */
    if (qrnic_psn_distance(r->una, psn) >= QRNIC_WINDOW) {
        psn = r->una;
    }
    s->probes++;
    trace_qrnic_requester_probe(e->config.name, qp->number, r->una, psn,
                                s->probes);
    qrnic_add(e, QRNIC_COUNTER_PROBES, 1);
    s->state[psn % QRNIC_WINDOW] = QRNIC_PSN_LOST;
    qrnic_cursor_back(r, psn);
    /* The probe may be the packet that was sent without credit. */
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_WINDOW | QRNIC_BLOCKED_PROBE);
    qrnic_schedule(e, qp);
}
