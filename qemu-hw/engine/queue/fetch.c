/*
 * qrnic engine: buffers for WQEs fetched ahead
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/queue/queue.h"

uint8_t *qrnic_fetch_get(QrnicEngine *e, QrnicWorkQueue *wq)
{
    QrnicQueues *q = e->queue;

    if (!wq->fetch) {
        if (q->fetch_count == QRNIC_MAX_FETCH) {
            qrnic_fetch_put(e, QTAILQ_FIRST(&q->fetches)->owner);
        }
        wq->fetch = qrnic_buffer_get(e, sizeof(*wq->fetch));
        wq->fetch->owner = wq;
        QTAILQ_INSERT_TAIL(&q->fetches, wq->fetch, next);
        q->fetch_count++;
    }
    return wq->fetch->raw;
}

void qrnic_fetch_put(QrnicEngine *e, QrnicWorkQueue *wq)
{
    wq->fetched_count = 0;
    if (wq->fetch) {
        QTAILQ_REMOVE(&e->queue->fetches, wq->fetch, next);
        e->queue->fetch_count--;
        qrnic_buffer_put(e, wq->fetch, sizeof(*wq->fetch));
        wq->fetch = NULL;
    }
}
