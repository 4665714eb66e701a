/*
 * qrnic link: received frames, delivered in order or buffered out of order
 *
 * Numbers are compared modulo 2^32. Frames from "expected" to "ack" have
 * arrived but are not delivered, because the port above was busy. Frames from
 * "ack" to "top" have partly arrived.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "link/arrival.h"

static QrnicLinkBuffered *slot_at(const QrnicLinkArrival *a, uint32_t number)
{
    return &a->slot[number & a->mask];
}

void qrnic_link_arrival_init(QrnicLinkArrival *a, uint32_t window)
{
    uint32_t slots = pow2ceil(window);

    *a = (QrnicLinkArrival) {
        .slot = g_new0(QrnicLinkBuffered, slots),
        .mask = slots - 1, .window = window,
    };
}

void qrnic_link_arrival_cleanup(QrnicLinkArrival *a)
{
    qrnic_link_arrival_reset(a, 0);
    g_free(a->slot);
}

void qrnic_link_arrival_reset(QrnicLinkArrival *a, uint32_t number)
{
    for (uint32_t i = 0; i <= a->mask; i++) {
        g_free(a->slot[i].frame);
        a->slot[i].frame = NULL;
    }
    a->expected = a->ack = a->top = number;
}

QrnicLinkArrived qrnic_link_arrival_put(QrnicLinkArrival *a, uint32_t number,
                                        const uint8_t *frame, size_t len,
                                        bool *gap)
{
    QrnicLinkBuffered *h = slot_at(a, number);

    *gap = false;
    if ((int32_t)(number - a->ack) < 0) {
        return QRNIC_LINK_DUPLICATE;
    }
    if (number - a->expected >= a->window) {
        return QRNIC_LINK_BEYOND;
    }
    if (h->frame) {
        return QRNIC_LINK_DUPLICATE;
    }
    *gap = (int32_t)(number - a->top) > 0;
    if ((int32_t)(number + 1 - a->top) > 0) {
        a->top = number + 1;
    }
    if (number == a->expected && a->top == number + 1) {
        a->expected = a->ack = number + 1;
        return QRNIC_LINK_NEXT;
    }
    *h = (QrnicLinkBuffered) { g_memdup2(frame, len), len };
    while (a->ack != a->top && slot_at(a, a->ack)->frame) {
        a->ack++;
    }
    return QRNIC_LINK_HELD;
}

uint64_t qrnic_link_arrival_map(const QrnicLinkArrival *a)
{
    uint32_t behind = a->top - a->ack;
    uint64_t map = 0;

    for (uint32_t i = 1; i < MIN(behind, 65); i++) {
        if (slot_at(a, a->ack + i)->frame) {
            map |= 1ull << (i - 1);
        }
    }
    return map;
}

bool qrnic_link_arrival_waits(const QrnicLinkArrival *a)
{
    return a->expected != a->ack;
}

uint8_t *qrnic_link_arrival_take(QrnicLinkArrival *a, size_t *len)
{
    QrnicLinkBuffered *h = slot_at(a, a->expected++);
    uint8_t *frame = h->frame;

    *len = h->length;
    h->frame = NULL;
    return frame;
}
