/*
 * qrnic engine: completion queues
 *
 * Queue pairs and tag lists write CQEs with qrnic_cq_push(). Software consumes
 * them without the device, and writes its consumer index and arm requests into
 * the record of the CQ. After an arm request it rings a doorbell, which leads
 * to qrnic_cq_arm(). An armed CQ writes one event into its EQ. The device reads
 * the consumer index when the ring seems full, at an arm request, and for
 * RESIZE_CQ. After an overflow or a DMA error the CQ stays in error, and its
 * queue pairs move to ERR. InfiniBand specification, 11.4.2.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/queue/queue.h"

static uint32_t cq_size(const QrnicCq *cq)
{
    return 1u << cq->ctx.log_size;
}

static void cq_fail(QrnicEngine *e, QrnicCq *cq, enum qrnic_cq_error error)
{
    if (cq->error) {
        return;
    }
    trace_qrnic_cq_error(e->config.name, cq->number,
                         qrnic_cq_error_name(error));
    cq->error = error;
    /*
     * The queue pairs move to ERR later in the run, because the caller may work
     * for one of them.
     */
    e->queue->cq_failed = true;
    qrnic_wake(e);
    qrnic_event_async(e, QRNIC_EVENT_CQ_ERROR, error, cq->number, 0);
}

/* Sets the consumer index: CQEs before it are consumed or overwritten. */
static void consumer_set(QrnicCq *cq, uint32_t consumer)
{
    cq->consumer = consumer;
    /*
     * Both indexes must follow, because after 2^31 further CQEs they would
     * compare as later than the consumer index.
     */
    if ((int32_t)(cq->solicited_producer - consumer) < 0) {
        cq->solicited_producer = consumer;
    }
    if ((int32_t)(cq->reported_producer - consumer) < 0) {
        cq->reported_producer = consumer;
    }
}

/*
 * Reads the record and updates the consumer index. Returns false, and sets the
 * CQ in error, if the record is unreadable. An invalid index is reported and
 * ignored.
 */
static bool cq_read_record(QrnicEngine *e, QrnicCq *cq, QrnicCqRecord *record)
{
    uint8_t raw[QRNIC_CQ_RECORD_BYTES];
    bool ok;

    qrnic_add(e, QRNIC_COUNTER_RECORD_READS, 1);
    qrnic_use(e, QRNIC_USE_CQ_RECORD, cq->number, cq->consumer);
    ok = qrnic_dma_read(e, cq->ctx.record, raw, sizeof(raw));
    qrnic_use_end(e);
    if (!ok) {
        cq_fail(e, cq, QRNIC_CQERR_DMA);
        return false;
    }
    qrnic_cq_record_unpack(record, raw);
    trace_qrnic_cq_record(e->config.name, cq->number, record->consumer,
                          record->sequence, record->solicited, cq->producer);
    if (cq->ctx.flags & QRNIC_CQF_IGNORE_OVERRUN &&
        (int32_t)(record->consumer - cq->consumer) < 0) {
        /*
         * The CQ has overwritten CQEs that software has not consumed. The
         * oldest remaining CQE counts as the next one, so the index of software
         * is too old.
         */
        return true;
    }
    if (record->consumer - cq->consumer > cq->producer - cq->consumer) {
        qrnic_guest_error(e, QRNIC_GE_CQ_CONSUMER, "CQ", cq->number,
                          "consumer index %" PRIu32 " is not in %" PRIu32
                          " to %" PRIu32, record->consumer, cq->consumer,
                          cq->producer);
    } else {
        consumer_set(cq, record->consumer);
    }
    return true;
}

static void late_remove(QrnicEngine *e, QrnicCq *cq)
{
    if (cq->event_late) {
        cq->event_late = false;
        QTAILQ_REMOVE(&e->queue->late, cq, next_late);
    }
}

static void reported(QrnicEngine *e, QrnicCq *cq)
{
    cq->unreported = 0;
    qrnic_timer_cancel(e, &cq->timer);
}

/*
 * Writes the event of a CQ, or makes it pending. A CQ has at most one EQE in
 * its EQ, because a process may arm CQs faster than the driver consumes EQEs.
 * Otherwise it could overflow the EQ, which other processes share.
 */
static void cq_event(QrnicEngine *e, QrnicCq *cq)
{
    QrnicEq *eq = qrnic_eq_get(e, cq->ctx.eqn);
    QrnicEqe eqe = {
        .type = QRNIC_EVENT_COMPLETION, .object = cq->number,
    };

    reported(e, cq);
    cq->reported_producer = cq->producer;
    cq->arm = QRNIC_CQ_IDLE;
    cq->event_owed = cq->event_waits;
    late_remove(e, cq);
    if (!cq->event_waits) {
        cq->event_waits = true;
        qrnic_eq_push(e, eq, &eqe);
    }
}

void qrnic_cq_report(QrnicEngine *e, QrnicCq *cq, uint32_t count)
{
    cq->unreported += count;
    if (cq->unreported && cq->unreported >= cq->moderation.count) {
        cq_event(e, cq);
    } else if (cq->unreported && cq->moderation.period &&
               cq->timer.deadline == QRNIC_DEADLINE_NEVER) {
        qrnic_timer_set(e, &cq->timer, qrnic_now(e) +
                        cq->moderation.period * SCALE_US);
    }
}

void qrnic_cq_read_consumer(QrnicEngine *e, QrnicCq *cq)
{
    QrnicCqRecord record;

    cq_read_record(e, cq, &record);
}

static void event_taken(QrnicEngine *e, uint32_t cqn, bool late)
{
    QrnicCq *cq = qrnic_cq_get(e, cqn);

    if (!cq) {
        return;
    }
    cq->event_waits = false;
    if (cq->event_owed && !late) {
        cq_event(e, cq);
    } else if (cq->event_owed && !cq->event_late) {
        cq->event_late = true;
        QTAILQ_INSERT_TAIL(&e->queue->late, cq, next_late);
    }
}

static void late_event(QrnicEngine *e)
{
    cq_event(e, QTAILQ_FIRST(&e->queue->late));
}

void qrnic_cq_init(QrnicEngine *e)
{
    e->queue->event_taken = event_taken;
    e->queue->late_event = late_event;
}

void qrnic_cq_arm(QrnicEngine *e, QrnicCq *cq)
{
    QrnicCqRecord record;
    uint32_t producer, pending = 0;

    if (cq->error || !cq_read_record(e, cq, &record) ||
        record.sequence == cq->arm_sequence) {
        return;
    }
    cq->arm_sequence = record.sequence;
    /*
     * An arm request for any CQE includes solicited CQEs, so it remains in
     * force (IB 11.4.2.2).
     */
    if (!record.solicited) {
        cq->arm = QRNIC_CQ_ARMED;
    } else if (cq->arm == QRNIC_CQ_IDLE) {
        cq->arm = QRNIC_CQ_ARMED_SOLICITED;
    }
    /*
     * CQEs that software had not consumed at the request count as new, because
     * software may have seen an empty queue. CQEs that already caused an event
     * do not count. For solicited CQEs only the index of the last one is known,
     * so all CQEs up to it count.
     */
    producer = cq->arm == QRNIC_CQ_ARMED ? cq->producer :
               cq->solicited_producer;
    if ((int32_t)(producer - cq->reported_producer) > 0) {
        pending = producer - cq->reported_producer;
    }
    trace_qrnic_cq_arm(e->config.name, cq->number, record.sequence,
                       record.solicited, pending);
    if (pending) {
        cq->unreported = 0;
        qrnic_cq_report(e, cq, pending);
    } else {
        reported(e, cq);
    }
}

static void cqe_put_data(QrnicEngine *e, uint8_t *raw, const QrnicCqe *cqe,
                         const uint8_t *data)
{
    const uint32_t room = sizeof_field(QrnicCqeInline, data);
    uint8_t *to = raw + QRNIC_CQE_INLINE_DATA_OFFSET;
    uint8_t *more = raw + QRNIC_CQE_INLINE_MORE_DATA_OFFSET;
    uint32_t n = MIN(cqe->byte_len, room);

    memset(to, 0, room);
    memset(more, 0, sizeof_field(QrnicCqeInline, more_data));
    memcpy(to, data, n);
    memcpy(more, data + n, cqe->byte_len - n);
    qrnic_add(e, QRNIC_COUNTER_INLINE_CQES, 1);
}

/*
 * Writes tag and app_ctx of a tagged message into the members that otherwise
 * only datagrams use.
 */
static void cqe_put_tag(uint8_t *raw, const uint8_t *header)
{
    qrnic_st_le64(raw + QRNIC_CQE_TAG_TAG_OFFSET, ldq_be_p(header + 8));
    qrnic_st_le32(raw + QRNIC_CQE_TAG_APP_CTX_OFFSET, ldl_be_p(header + 4));
}

/*
 * Returns the syndrome for a CQE. For a CQE, a key of another protection domain
 * looks like a missing key, because a process must not find out which keys
 * exist. Traces and guest errors distinguish both cases.
 */
static uint8_t visible_syndrome(uint8_t syndrome)
{
    switch (syndrome) {
    case QRNIC_SYN_KEY_PD:
        return QRNIC_SYN_KEY_INVALID;
    case QRNIC_SYN_CHILD_PD:
        return QRNIC_SYN_CHILD_INVALID;
    default:
        return syndrome;
    }
}

bool qrnic_cq_push(QrnicEngine *e, QrnicCq *cq, QrnicCqe *cqe,
                   const uint8_t *data)
{
    uint8_t raw[QRNIC_CQE_BYTES];
    uint32_t slot = cq->producer & (cq_size(cq) - 1);
    bool solicited;

    if (cq->error) {
        return false;
    }
    if (cq->producer - cq->consumer == cq_size(cq) &&
        cq->ctx.flags & QRNIC_CQF_IGNORE_OVERRUN) {
        /* Overwrites the oldest CQE, even if software has not consumed it. */
        consumer_set(cq, cq->consumer + 1);
    } else if (cq->producer - cq->consumer == cq_size(cq)) {
        QrnicCqRecord record;

        if (!cq_read_record(e, cq, &record)) {
            return false;
        }
        if (cq->producer - cq->consumer == cq_size(cq)) {
            qrnic_add(e, QRNIC_COUNTER_CQ_OVERRUNS, 1);
            qrnic_guest_error(e, QRNIC_GE_CQ_OVERRUN, "CQ", cq->number,
                              "full at producer index %" PRIu32
                              " with a CQE of QP %" PRIu32, cq->producer,
                              cqe->qpn);
            cq_fail(e, cq, QRNIC_CQERR_OVERRUN);
            return false;
        }
    }
    cqe->syndrome = visible_syndrome(cqe->syndrome);
    cqe->phase = !((cq->producer >> cq->ctx.log_size) & 1);
    cqe->timestamp = e->config.capabilities & QRNIC_CAP_TIMESTAMP ?
                     qrnic_now(e) : 0;
    qrnic_cqe_pack(raw, cqe);
    if (data && cqe->tagged) {
        cqe_put_tag(raw, data);
    } else if (data) {
        cqe_put_data(e, raw, cqe, data);
    }
    if (!qrnic_entry_write(e, &cq->ring, slot, raw, QRNIC_CQE_SIZE,
                           QRNIC_USE_CQE, cq->number, cq->producer)) {
        cq_fail(e, cq, QRNIC_CQERR_DMA);
        return false;
    }
    cq->producer++;
    qrnic_add(e, QRNIC_COUNTER_CQES, 1);
    trace_qrnic_cq_push(e->config.name, cq->number, cq->producer - 1,
                        cqe->qpn, cqe->index, cqe->opcode,
                        qrnic_wc_status_name(cqe->status), cqe->syndrome,
                        cqe->byte_len, cqe->flags);

    solicited = cqe->status != QRNIC_WC_SUCCESS ||
                (cqe->flags & QRNIC_CQEF_SOLICITED);
    if (solicited) {
        cq->solicited_producer = cq->producer;
    }
    if (cq->arm == QRNIC_CQ_ARMED ||
        (cq->arm == QRNIC_CQ_ARMED_SOLICITED && solicited)) {
        qrnic_cq_report(e, cq, 1);
    }
    return true;
}

static void cq_timer(QrnicEngine *e, QrnicTimer *t)
{
    cq_event(e, container_of(t, QrnicCq, timer));
}

static QrnicResult cq_check(QrnicEngine *e, const QrnicCqCtx *in)
{
    QrnicEq *eq = qrnic_eq_get(e, in->eqn);

    if (!eq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_CQ_CTX_EQN_OFFSET);
    }
    if (eq->ctx.type != QRNIC_EQ_COMPLETION) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_EQN_OFFSET);
    }
    if (!qrnic_db_page_get(e, in->db_page)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_CQ_CTX_DB_PAGE_OFFSET);
    }
    if (in->log_size >= 32 || 1u << in->log_size > QRNIC_MAX_CQE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_LOG_SIZE_OFFSET);
    }
    if (in->record % QRNIC_RECORD_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_RECORD_OFFSET);
    }
    if (in->producer) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_PRODUCER_OFFSET);
    }
    if (in->error) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_ERROR_OFFSET);
    }
    if (in->flags & QRNIC_CQF_IGNORE_OVERRUN &&
        !(e->config.capabilities & QRNIC_CAP_CQ_IGNORE_OVERRUN)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, QRNIC_CQ_CTX_FLAGS_OFFSET);
    }
    return qrnic_ok(0);
}

QrnicResult qrnic_cq_create(QrnicEngine *e, const QrnicCqCtx *in)
{
    QrnicResult result = cq_check(e, in);
    QrnicPages ring;
    QrnicCq *cq;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_ring_init(e, &ring, &in->ring,
                         (uint64_t)QRNIC_CQE_SIZE << in->log_size,
                         QRNIC_CQ_CTX_RING_OFFSET, &result)) {
        return result;
    }
    cq = g_new0(QrnicCq, 1);
    cq->ctx = *in;
    cq->ring = ring;
    qrnic_timer_init(&cq->timer, cq_timer);
    if (!qrnic_table_insert(&e->queue->cqs, cq, &cq->number)) {
        g_free(cq);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    qrnic_eq_get(e, in->eqn)->users++;
    cq->db_queue.kind = QRNIC_DB_QUEUE_CQ;
    qrnic_db_page_join(e, in->db_page, &cq->db_queue);
    trace_qrnic_cq_create(e->config.name, cq->number, in->eqn, in->db_page,
                          in->log_size, in->record);
    return qrnic_ok(cq->number);
}

QrnicResult qrnic_cq_destroy(QrnicEngine *e, uint32_t cqn)
{
    QrnicCq *cq = qrnic_cq_get(e, cqn);

    if (!cq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (cq->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_cq_destroy(e->config.name, cqn);
    reported(e, cq);
    late_remove(e, cq);
    qrnic_table_remove(&e->queue->cqs, cqn);
    qrnic_eq_get(e, cq->ctx.eqn)->users--;
    qrnic_db_page_leave(e, cq->ctx.db_page, &cq->db_queue);
    g_free(cq);
    return qrnic_ok(0);
}

QrnicResult qrnic_cq_query(QrnicEngine *e, uint32_t cqn, QrnicCqCtx *out)
{
    QrnicCq *cq = qrnic_cq_get(e, cqn);

    if (!cq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    *out = cq->ctx;
    out->producer = cq->producer;
    out->error = cq->error;
    return qrnic_ok(0);
}
