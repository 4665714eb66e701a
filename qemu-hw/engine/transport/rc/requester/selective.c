/*
 * qrnic engine, transport: selective repeat of the requester
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Records which PSNs of the window have arrived and which are lost, so that
 * only lost packets are retransmitted. Each transmission has a running number.
 * A packet is lost if it has not arrived but a packet that was sent after it
 * has. So a lost retransmission is detected without a timer.
 *
 * send.c calls qrnic_selective_sent() for each packet and
 * qrnic_selective_skip() before it chooses one. responses.c reports ACKs and
 * SACKs, recovery.c timeouts. A SACK reports the arrived PSNs and the newest
 * transmission. r->selective holds the state of each PSN between calls. Manual,
 * chapter Selective repeat.
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

/* Returns the number of sent PSNs in the window. */
static uint32_t in_window(const QrnicRequester *r)
{
    return MIN(qrnic_psn_distance(r->una, r->sent_psn), QRNIC_WINDOW);
}

/* Returns the message with this PSN, which has been sent. */
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
        /*
         * An answer could belong to either of the two transmissions, so the
         * time until the answer would not be a round trip.
         */
        s->timed = false;
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

/* Records that the transmission with this running number has arrived. */
static void note(QrnicSelective *s, uint32_t order)
{
    if ((int32_t)(order - s->newest) > 0) {
        s->newest = order;
    }
}

/*
 * Records that a PSN has arrived. The transmission that arrived is unknown, so
 * the first one is assumed, because none is older.
 */
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
    /*
     * Three bits of the number distinguish only the last transmission. For
     * another one the first transmission is assumed, because it is not newer.
     */
    note(s, (s->times[place] & 7) == t->latest_transmission ? s->sent[place] :
                                                             s->first[place]);
}

/* Updates the smoothed round trip as TCP does (RFC 6298). */
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
        /*
         * A later PSN inside a read will use this place without a transmission
         * of its own, so the place gets the newest number.
         */
        s->sent[psn % QRNIC_WINDOW] = s->newest;
        s->first[psn % QRNIC_WINDOW] = s->newest;
    }
}

/*
 * Marks all reads of the window as lost, because their responses may be lost
 * although the requests have arrived.
 */
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

        /*
         * The oldest packet is lost in any case, because the responder may have
         * dropped it with an RNR NAK after buffering it.
         */
        if (i == 0 || s->state[place] == QRNIC_PSN_IN_FLIGHT) {
            s->state[place] = QRNIC_PSN_LOST;
        }
    }
    lose_reads(r);
}

/*
 * Returns true if the packet at the cursor was sent before and needs no
 * retransmission.
 */
static bool is_skipped(const QrnicRequester *r, const QrnicMessage *p)
{
    const QrnicSelective *s = r->selective;
    uint32_t flying = qrnic_psn_distance(r->una, r->cursor_psn);

    /*
     * A cursor inside a read requests the rest of the response, so the packet
     * is sent.
     */
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

/* Finds the first lost PSN. Returns false if none is lost. */
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

/*
 * Marks packets of the message as lost that were sent before an arrived packet.
 * Returns true if there are any.
 */
static bool lose_passed(QrnicRequester *r, const QrnicMessage *p)
{
    QrnicSelective *s = r->selective;
    bool rd = qrnic_wqe_is_rd(p->opcode), any = false;
    int32_t count = in_window(r);
    int32_t first = qrnic_psn_diff(p->first_psn, r->una);
    /*
     * The request of a read is one packet. If the response has begun, the first
     * PSN is before una.
     */
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
    /* A response counts if it answers the same request or a later one. */
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
    /*
     * The last packet is retransmitted, too, because an ACK behind a lost
     * response has no effect.
     */
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
        /*
         * A lost read stays lost although its request has arrived, because its
         * response may be missing.
         */
        if (s->state[place] != QRNIC_PSN_LOST ||
            !qrnic_wqe_is_rd(qrnic_message_at(r, n)->opcode)) {
            s->state[place] = QRNIC_PSN_ARRIVED;
        }
    }
    /*
     * The responder may have buffered this packet before, and dropped it later,
     * so its earlier arrival no longer counts.
     */
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

/*
 * Returns when the timer must expire. Each probe waits twice as long as the
 * previous one.
 */
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
        psn = r->una;           /* missing part of the response */
    } else if (qrnic_wqe_is_rd(message_with(r, psn)->opcode)) {
        psn = message_with(r, psn)->first_psn;
    }
    /*
     * The state of a read that begins beyond the window is unknown, so the
     * oldest packet is the probe.
     */
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
