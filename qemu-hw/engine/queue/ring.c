/*
 * qrnic engine: rings of work queues: doorbell records, slots, and buffers for
 * prefetched WQEs
 *
 * SQs and RQs (qp/work_queue.c), SRQs and tag lists use these functions. The
 * caller first reads the record for the producer index, and then slots of the
 * ring. Prefetched slots stay in a buffer until they are consumed or another
 * queue takes the buffer over. The device has at most QRNIC_MAX_FETCH such
 * buffers. CQs and EQs write their entries by qrnic_entry_write().
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

static uint32_t slot_size(const QrnicWorkQueue *wq)
{
    return QRNIC_WQEBB_SIZE << wq->log_stride;
}

bool qrnic_slots_read(QrnicEngine *e, QrnicWorkQueue *wq, QrnicUse use,
                      const char *queue, uint32_t number, uint32_t index,
                      uint32_t count, uint8_t *buf)
{
    uint32_t size = 1u << wq->log_size;
    bool failed = false;

    qrnic_add(e, QRNIC_COUNTER_WQEBB_FETCHED, count << wq->log_stride);
    trace_qrnic_wqe_fetch(e->config.name, number, queue, index, count);
    while (count && !failed) {
        uint32_t slot = index & (size - 1);
        uint32_t n = MIN(count, size - slot);

        n = MIN(n, QRNIC_WQE_FETCH_WQEBB >> wq->log_stride);
        qrnic_add(e, QRNIC_COUNTER_WQE_FETCHES, 1);
        qrnic_use(e, use, number, index);
        failed = qrnic_pages_read(e, &wq->ring, (uint64_t)slot * slot_size(wq),
                                  buf, n * slot_size(wq));
        buf += n * slot_size(wq);
        index += n;
        count -= n;
    }
    qrnic_use_end(e);
    return !failed;
}

void qrnic_record_read(QrnicEngine *e, QrnicWorkQueue *wq, const char *queue,
                       uint32_t number, uint32_t done, uint32_t room)
{
    uint8_t raw[QRNIC_QUEUE_RECORD_BYTES];
    QrnicQueueRecord record;
    bool ok;

    /*
     * A bad record is reported only once. The next dequeued WQE completes with
     * its syndrome.
     */
    if (wq->bad_record) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RECORD_READS, 1);
    qrnic_use(e, QRNIC_USE_RECORD, number, wq->producer);
    ok = qrnic_dma_read(e, wq->record, raw, sizeof(raw));
    qrnic_use_end(e);
    if (!ok) {
        wq->bad_record = QRNIC_SYN_WQE_FETCH;
        return;
    }
    qrnic_queue_record_unpack(&record, raw);
    /* The guest can write the event index, so the device never uses it. */
    if (record.event && !wq->has_event) {
        qrnic_guest_error(e, QRNIC_GE_RECORD_VALUE, queue, number,
                          "reserved bits of the record are set");
        wq->bad_record = QRNIC_SYN_PRODUCER;
        return;
    }
    trace_qrnic_queue_record(e->config.name, number, queue,
                             record.producer, wq->producer, wq->consumer);
    if (record.producer - done > room ||
        record.producer - done < wq->producer - done) {
        qrnic_guest_error(e, QRNIC_GE_RECORD_VALUE, queue, number,
                          "producer index %" PRIu32 " is not in %" PRIu32
                          " to %" PRIu32, record.producer, wq->producer,
                          done + room);
        wq->bad_record = QRNIC_SYN_PRODUCER;
        return;
    }
    wq->producer = record.producer;
}

void qrnic_event_write(QrnicEngine *e, QrnicWorkQueue *wq, uint32_t number)
{
    uint8_t raw[sizeof(uint32_t)];
    bool ok;

    qrnic_st_le32(raw, wq->producer);
    qrnic_add(e, QRNIC_COUNTER_EVENT_WRITES, 1);
    qrnic_use(e, QRNIC_USE_RECORD, number, wq->producer);
    ok = qrnic_dma_write(e, wq->record + QRNIC_QUEUE_RECORD_EVENT_OFFSET, raw,
                         sizeof(raw));
    qrnic_use_end(e);
    trace_qrnic_event_write(e->config.name, number, wq->producer, ok);
    if (!ok) {
        wq->bad_record = QRNIC_SYN_WQE_FETCH;
    }
}

bool qrnic_entry_write(QrnicEngine *e, QrnicPages *ring, uint32_t slot,
                       const uint8_t *raw, size_t size, QrnicUse use,
                       uint32_t number, uint32_t index)
{
    const size_t control = size - QRNIC_CONTROL_WORD;
    uint64_t addr, contiguous;
    bool ok;

    qrnic_use(e, use, number, index);
    ok = !qrnic_pages_translate(e, ring, (uint64_t)slot * size, true, &addr,
                                &contiguous) &&
         qrnic_dma_write(e, addr, raw, control) &&
         qrnic_dma_write(e, addr + control, raw + control, QRNIC_CONTROL_WORD);
    qrnic_use_end(e);
    return ok;
}

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
