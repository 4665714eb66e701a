/*
 * qrnic engine: the requester of a reliable connection: what of it has arrived
 * out of order, and what was lost, and is sent again
 *
 * Transmissions have running numbers. Whatever was sent before something that
 * has arrived, and has not arrived itself, is lost; so a packet that is lost
 * once more is known to be when what was sent after it has arrived. The other
 * end tells what has arrived by SACKs. See "Selective repeat" in the manual.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/rc.h"

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

void qrnic_selective_sent(QrnicEngine *e, QrnicRequester *r, bool asks)
{
    QrnicSelective *s = r->selective;
    uint32_t place = r->cursor_psn % QRNIC_WINDOW;

    if (!s) {
        return;
    }
    if (r->cursor_psn != r->sent_psn) {
        s->timed = false;       /* the answer may be to either transmission */
    } else if (asks && !s->timed) {
        s->timed = true;
        s->timed_psn = r->cursor_psn;
        s->timed_at = qrnic_now(e);
    }
    if (qrnic_psn_distance(r->una, r->cursor_psn) < QRNIC_WINDOW) {
        s->sent[place] = ++s->order;
        s->at[place] = qrnic_now(e);
        if (r->cursor_psn == r->sent_psn) {
            s->first[place] = s->order;
        }
        s->state[place] = QRNIC_PSN_UNDER_WAY;
    }
}

/*
 * This PSN has arrived. Which transmission of it, is not said; but one that was
 * sent less than a round trip ago cannot be what is told of now.
 */
static void note(QrnicEngine *e, QrnicSelective *s, uint32_t psn)
{
    uint32_t place = psn % QRNIC_WINDOW;
    bool last = s->least && qrnic_now(e) - s->at[place] >= s->least;
    uint32_t sent = last ? s->sent[place] : s->first[place];

    if ((int32_t)(sent - s->newest) > 0) {
        s->newest = sent;
    }
}

/* As TCP does it (RFC 6298) */
static void measured(QrnicSelective *s, int64_t ns)
{
    s->timed = false;
    ns = MAX(ns, 1);
    s->least = s->least ? MIN(s->least, ns) : ns;
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

    if (!s) {
        return;
    }
    s->probes = 0;
    if (s->timed && qrnic_psn_distance(r->una, s->timed_psn) < count) {
        measured(s, qrnic_now(e) - s->timed_at);
    }
    for (uint32_t i = 0; i < MIN(count, QRNIC_WINDOW); i++) {
        uint32_t psn = qrnic_psn_add(r->una, i);

        note(e, s, psn);
        s->state[psn % QRNIC_WINDOW] = QRNIC_PSN_UNDER_WAY;
        /* Inside of a read nothing was sent at this PSN. */
        s->sent[psn % QRNIC_WINDOW] = s->newest;
        s->first[psn % QRNIC_WINDOW] = s->newest;
    }
}

void qrnic_selective_lose_all(QrnicRequester *r)
{
    QrnicSelective *s = r->selective;

    if (!s) {
        return;
    }
    s->timed = false;
    s->probes = 0;
    for (uint32_t i = 0; i < in_window(r); i++) {
        uint32_t place = qrnic_psn_add(r->una, i) % QRNIC_WINDOW;

        /* The oldest may have been kept, and then refused for now. */
        if (i == 0 || s->state[place] == QRNIC_PSN_UNDER_WAY) {
            s->state[place] = QRNIC_PSN_LOST;
        }
    }
    /* A response may be what was lost, not the request. */
    for (uint32_t n = r->tail; n != r->head; n++) {
        const QrnicPending *p = qrnic_pending_at(r, n);

        if (qrnic_wqe_is_rd(p->opcode) && p->packets &&
            qrnic_psn_distance(r->una, p->first_psn) < in_window(r)) {
            s->state[p->first_psn % QRNIC_WINDOW] = QRNIC_PSN_LOST;
        }
    }
    s->beyond = true;
}

/* The packet at the cursor, which was sent before, is not to be sent again. */
static bool is_skipped(const QrnicRequester *r, const QrnicPending *p)
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
        const QrnicPending *p = qrnic_pending_at(r, r->cursor);
        uint32_t end = qrnic_pending_end(p);

        if (!p->packets || !is_skipped(r, p)) {
            return;
        }
        r->cursor_psn = qrnic_wqe_is_rd(p->opcode) ? end :
                        qrnic_psn_add(r->cursor_psn, 1);
        if (r->cursor_psn == end) {
            r->cursor++;
        }
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

/* Back, never forward: what is there has not been sent. */
static void cursor_set(QrnicRequester *r, uint32_t psn)
{
    uint32_t n = r->tail;

    if (qrnic_psn_distance(r->una, psn) >=
        qrnic_psn_distance(r->una, r->cursor_psn)) {
        return;
    }
    while (qrnic_psn_distance(qrnic_pending_at(r, n)->first_psn, psn) >=
           qrnic_pending_at(r, n)->packets) {
        n++;
    }
    r->cursor = n;
    r->cursor_psn = psn;
}

/* What of the message was sent before something that has arrived is lost. */
static bool lose_passed(QrnicRequester *r, const QrnicPending *p)
{
    QrnicSelective *s = r->selective;
    bool rd = qrnic_wqe_is_rd(p->opcode), any = false;
    int32_t count = in_window(r);
    int32_t first = qrnic_psn_diff(p->first_psn, r->una);
    /* The request of a read is one packet, whose response may have begun. */
    int32_t end = first + (rd ? 1 : (int32_t)p->packets);

    for (int32_t i = MAX(first, 0); p->packets && i < MIN(end, count); i++) {
        uint32_t place = qrnic_psn_add(r->una, i) % QRNIC_WINDOW;

        if (s->state[place] == QRNIC_PSN_UNDER_WAY &&
            (int32_t)(s->newest - s->sent[place]) > 0) {
            s->state[place] = QRNIC_PSN_LOST;
            any = true;
        }
    }
    return any;
}

bool qrnic_selective_arrived(QrnicEngine *e, QrnicRequester *r,
                             uint32_t missing, const uint8_t *arrived)
{
    QrnicSelective *s = r->selective;
    uint32_t before = qrnic_psn_distance(r->una, missing);
    uint32_t psn;
    bool any = false;

    for (uint32_t i = 0; i < in_window(r); i++) {
        uint32_t bit = i - before;
        bool there = i < before || (bit > 0 && bit < QRNIC_WINDOW &&
                                    arrived[bit / 8] & 0x80 >> bit % 8);

        psn = qrnic_psn_add(r->una, i);
        if (there && s->state[psn % QRNIC_WINDOW] != QRNIC_PSN_ARRIVED) {
            s->state[psn % QRNIC_WINDOW] = QRNIC_PSN_ARRIVED;
            note(e, s, psn);
        }
    }
    /* It may have been kept, and been dropped when it was its turn. */
    if (before < in_window(r) &&
        s->state[missing % QRNIC_WINDOW] == QRNIC_PSN_ARRIVED) {
        s->state[missing % QRNIC_WINDOW] = QRNIC_PSN_UNDER_WAY;
    }
    for (uint32_t n = r->tail; n != r->head; n++) {
        any |= lose_passed(r, qrnic_pending_at(r, n));
    }
    if (any && first_lost(r, &psn)) {
        s->probes = 0;
        cursor_set(r, psn);
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
    uint32_t psn = qrnic_psn_add(r->sent_psn, -1), n = r->tail;

    s->probes++;
    trace_qrnic_requester_probe(e->config.name, qp->number, r->una, psn,
                                s->probes);
    qrnic_add(e, QRNIC_COUNTER_PROBES, 1);
    /* Of a read that is the request, or one for the rest of it. */
    while (qrnic_psn_distance(qrnic_pending_at(r, n)->first_psn, psn) >=
           qrnic_pending_at(r, n)->packets) {
        n++;
    }
    if (qrnic_wqe_is_rd(qrnic_pending_at(r, n)->opcode)) {
        psn = n == r->tail && qrnic_psn_diff(
                  r->una, qrnic_pending_at(r, n)->first_psn) > 0 ?
              r->una : qrnic_pending_at(r, n)->first_psn;
    }
    if (qrnic_psn_distance(r->una, psn) < QRNIC_WINDOW) {
        s->state[psn % QRNIC_WINDOW] = QRNIC_PSN_LOST;
    }
    cursor_set(r, psn);
    r->stalled = false;
    qrnic_schedule(e, qp);
}
