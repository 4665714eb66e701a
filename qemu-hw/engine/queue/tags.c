/*
 * qrnic engine: tag lists of shared receive queues
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Software posts operations (add, delete, sync) in a ring and rings a doorbell;
 * the run loop executes them in qrnic_tags_process(). The responder calls
 * qrnic_tag_match() for each tagged message. A matched entry belongs to the
 * queue pair until qrnic_tag_done() or qrnic_tag_abandon().
 *
 * A new entry may match only when software knows all unexpected messages,
 * because one of them may already match the entry. So the entries from put_by
 * to the end of the list are not used while "reported" is behind "unexpected".
 * Manual, chapter "Tag matching".
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/queue/queue.h"

/* Comparisons that cost as much as an access to a piece of an indirect key */
#define COMPARED_PER_PIECE 8

/*
 * Slot of a handle. The slots form a circular list, of which the slot behind
 * the last handle is the head.
 */
typedef struct QrnicTagSlot {
    uint64_t tag, mask;
    uint32_t next, before;
    QrnicTag *entry;            /* NULL: the handle is free */
} QrnicTagSlot;

struct QrnicTagList {
    QrnicSrq *srq;
    QrnicTagListCtx ctx;
    QrnicWorkQueue ops;
    QrnicDbQueue db_queue;
    QrnicTagSlot *slot;
    uint32_t put_by;            /* first unused entry; the head if none */
    uint32_t unexpected;        /* number of unexpected messages */
    uint32_t reported;          /* number that software has confirmed */
    uint8_t error;              /* enum qrnic_syndrome: execute no operation */
    bool rung;                  /* read the record before the next operation */
    bool ready;                 /* in the list of tag lists with work */
    QTAILQ_ENTRY(QrnicTagList) next;
    QTAILQ_HEAD(, QrnicTag) dropped;    /* entries to complete as flushed */
};

static uint32_t head_of(const QrnicTagList *l)
{
    return l->ctx.max_tags;
}

static void link_last(QrnicTagList *l, uint32_t n)
{
    QrnicTagSlot *head = &l->slot[head_of(l)], *s = &l->slot[n];

    s->next = head_of(l);
    s->before = head->before;
    l->slot[head->before].next = n;
    head->before = n;
}

static void tag_unlink(QrnicTagList *l, uint32_t n)
{
    QrnicTagSlot *s = &l->slot[n];

    l->slot[s->before].next = s->next;
    l->slot[s->next].before = s->before;
    if (l->put_by == n) {
        l->put_by = s->next;
    }
    s->entry->posted = false;
}

static bool in_step(const QrnicTagList *l)
{
    return l->reported == l->unexpected;
}

static void use_all_if_in_step(QrnicEngine *e, QrnicTagList *l)
{
    if (in_step(l) && l->put_by != head_of(l)) {
        trace_qrnic_tag_in_step(e->config.name, l->srq->number, l->unexpected,
                                l->put_by);
        l->put_by = head_of(l);
    }
}

static void make_ready(QrnicEngine *e, QrnicTagList *l)
{
    if (!l->ready) {
        l->ready = true;
        QTAILQ_INSERT_TAIL(&e->queue->tag_lists, l, next);
    }
    qrnic_wake(e);
}

/*
 * Sets the list in error, because no operation can report this error. No
 * operation is executed from now on.
 */
static void list_fail(QrnicEngine *e, QrnicTagList *l, uint8_t syndrome)
{
    if (l->error) {
        return;
    }
    trace_qrnic_tag_list_error(e->config.name, l->srq->number, l->ops.consumer,
                               qrnic_syndrome_name(syndrome));
    l->error = syndrome;
    qrnic_event_async(e, QRNIC_EVENT_SRQ_ERROR, syndrome, l->srq->number, 0);
}

QrnicCq *qrnic_tag_list_cq(QrnicEngine *e, const QrnicTagList *l)
{
    return qrnic_cq_get(e, l->ctx.cq);
}

/* Messages */

QrnicTag *qrnic_tag_match(QrnicEngine *e, QrnicTagList *l, uint64_t tag)
{
    uint32_t n = l->slot[head_of(l)].next, compared = 0;

    while (n != l->put_by) {
        const QrnicTagSlot *s = &l->slot[n];

        compared++;
        if ((tag & s->mask) == s->tag) {
            break;
        }
        n = s->next;
    }
    qrnic_add(e, QRNIC_COUNTER_TAG_COMPARED, compared);
    qrnic_budget_charge(e, compared / COMPARED_PER_PIECE);
    if (n == l->put_by) {
        return NULL;
    }
    tag_unlink(l, n);
    qrnic_add(e, QRNIC_COUNTER_TAG_MATCHES, 1);
    trace_qrnic_tag_match(e->config.name, l->srq->number, tag, n, compared);
    return l->slot[n].entry;
}

void qrnic_tag_unexpected(QrnicEngine *e, QrnicTagList *l, uint64_t tag)
{
    l->unexpected++;
    qrnic_add(e, QRNIC_COUNTER_TAG_UNEXPECTED, 1);
    trace_qrnic_tag_unexpected(e->config.name, l->srq->number, tag,
                               l->unexpected, l->reported);
}

void qrnic_tag_expected_after_all(QrnicEngine *e, QrnicTagList *l)
{
    l->unexpected--;
    use_all_if_in_step(e, l);
}

uint8_t qrnic_tag_sync_wanted(const QrnicTagList *l)
{
    return l->put_by != head_of(l) ? QRNIC_CQET_SYNC_REQ : 0;
}

void qrnic_tag_done(QrnicEngine *e, QrnicTag *t)
{
    t->list->slot[t->handle].entry = NULL;
    t->list = NULL;
}

void qrnic_tag_abandon(QrnicEngine *e, QrnicTag *t)
{
    QTAILQ_INSERT_TAIL(&t->list->dropped, t, next);
    make_ready(e, t->list);
}

/* Operations */

/* Writes a CQE. Returns false if the CQ is in error. */
static bool complete(QrnicEngine *e, QrnicTagList *l, QrnicCqe *cqe)
{
    cqe->srqn = l->srq->number;
    trace_qrnic_tag_complete(e->config.name, cqe->srqn, l->ctx.cq, cqe->index,
                             cqe->opcode, cqe->tagged,
                             qrnic_wc_status_name(cqe->status));
    if (!qrnic_cq_push(e, qrnic_tag_list_cq(e, l), cqe, NULL)) {
        list_fail(e, l, QRNIC_SYN_CQ_ERROR);
        return false;
    }
    return true;
}

static bool refuse(QrnicEngine *e, const QrnicTagList *l, const QrnicTagOp *op,
                   enum qrnic_guest_error rule, uint8_t syndrome,
                   const char *why, QrnicCqe *cqe)
{
    qrnic_guest_error(e, rule, "tag list", l->srq->number,
                      "operation at index %" PRIu32 ": %s", op->index, why);
    cqe->status = syndrome == QRNIC_SYN_WQE_LENGTH ? QRNIC_WC_LOC_LEN_ERR :
                                                     QRNIC_WC_LOC_QP_OP_ERR;
    cqe->syndrome = syndrome;
    return false;
}

static bool op_check(QrnicEngine *e, const QrnicTagList *l,
                     const QrnicTagOp *op, bool reserved_ok, QrnicCqe *cqe)
{
    const uint32_t room = ((QRNIC_WQEBB_SIZE << l->ops.log_stride) -
                           QRNIC_TAG_OP_BYTES) / QRNIC_SEGMENT_SIZE;
    bool add = op->opcode == QRNIC_WQE_TAG_ADD;
    bool sync = op->opcode == QRNIC_WQE_TAG_SYNC;

    if (!add && !sync && op->opcode != QRNIC_WQE_TAG_DEL) {
        return refuse(e, l, op, QRNIC_GE_WQE_MALFORMED, QRNIC_SYN_WQE_OPCODE,
                      "the opcode is invalid in a tag list", cqe);
    }
    if (!reserved_ok || (sync && op->handle) ||
        (!add && (op->data_segments || op->tag || op->mask)) ||
        (op->unexpected && !(op->flags & QRNIC_TAGF_SYNC))) {
        return refuse(e, l, op, QRNIC_GE_WQE_MALFORMED, QRNIC_SYN_WQE_RESERVED,
                      "a member that this opcode does not use is not 0", cqe);
    }
    if (op->data_segments > MIN(room, e->config.max_sge)) {
        return refuse(e, l, op, QRNIC_GE_WQE_MALFORMED, QRNIC_SYN_WQE_SIZE,
                      "too many data segments", cqe);
    }
    if (!sync && (op->handle >= l->ctx.max_tags ||
                  (add && l->slot[op->handle].entry))) {
        return refuse(e, l, op, QRNIC_GE_TAG_OPERATION, QRNIC_SYN_TAG_HANDLE,
                      "the handle is out of range, or in use", cqe);
    }
    if (op->flags & QRNIC_TAGF_SYNC &&
        op->unexpected - l->reported > l->unexpected - l->reported) {
        return refuse(e, l, op, QRNIC_GE_TAG_OPERATION, QRNIC_SYN_TAG_COUNT,
                      "the count of unexpected messages is too high, or lower "
                      "than before", cqe);
    }
    return true;
}

static bool tag_add(QrnicEngine *e, QrnicTagList *l, const QrnicTagOp *op,
                    const uint8_t *raw, QrnicCqe *cqe)
{
    QrnicSge sge[QRNIC_MAX_SGE];
    QrnicTagSlot *s = &l->slot[op->handle];
    uint32_t num_sge;
    uint64_t length;
    QrnicTag *t;

    if (!qrnic_data_segs_decode(raw + QRNIC_TAG_OP_BYTES, op->data_segments,
                                sge, &num_sge, &length)) {
        return refuse(e, l, op, QRNIC_GE_WQE_MALFORMED, QRNIC_SYN_WQE_LENGTH,
                      "the buffer is too long", cqe);
    }
    t = g_malloc0(sizeof(*t) + num_sge * sizeof(sge[0]));
    t->list = l;
    t->handle = op->handle;
    t->posted = true;
    t->length = length;
    t->num_sge = num_sge;
    memcpy(t->sge, sge, num_sge * sizeof(sge[0]));
    s->tag = op->tag;
    s->mask = op->mask;
    s->entry = t;
    link_last(l, op->handle);
    if (l->put_by == head_of(l) && !in_step(l)) {
        l->put_by = op->handle;
    }
    return true;
}

static void tag_del(QrnicTagList *l, const QrnicTagOp *op, QrnicCqe *cqe)
{
    QrnicTagSlot *s = &l->slot[op->handle];

    if (!s->entry || !s->entry->posted) {
        cqe->status = QRNIC_WC_TM_ERR;
        cqe->syndrome = QRNIC_SYN_TAG_HANDLE;
        return;
    }
    tag_unlink(l, op->handle);
    g_free(s->entry);
    s->entry = NULL;
}

static void count_take(QrnicEngine *e, QrnicTagList *l, const QrnicTagOp *op)
{
    if (op->flags & QRNIC_TAGF_SYNC) {
        l->reported = op->unexpected;
    }
}

/* Executes an operation. Returns false if the list is in error. */
static bool execute(QrnicEngine *e, QrnicTagList *l, const uint8_t *raw)
{
    QrnicTagOp op;
    bool reserved_ok = qrnic_tag_op_unpack(&op, raw);
    QrnicCqe cqe = {
        .index = l->ops.consumer, .opcode = op.opcode & ~QRNIC_CQE_RECV,
        .tagged = QRNIC_CQET_OPERATION,
    };

    if (op.index != l->ops.consumer) {
        qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "tag list",
                          l->srq->number, "operation at index %" PRIu32
                          ": its index does not match its slot",
                          l->ops.consumer);
        list_fail(e, l, QRNIC_SYN_WQE_INDEX);
        return false;
    }
    l->ops.consumer++;
    qrnic_add(e, QRNIC_COUNTER_TAG_OPS, 1);
    trace_qrnic_tag_op(e->config.name, l->srq->number, op.index,
                       qrnic_wqe_opcode_name(op.opcode), op.flags, op.handle,
                       op.tag, op.mask, op.unexpected);
    if (op_check(e, l, &op, reserved_ok, &cqe) &&
        (op.opcode != QRNIC_WQE_TAG_ADD || tag_add(e, l, &op, raw, &cqe))) {
        count_take(e, l, &op);
        if (op.opcode == QRNIC_WQE_TAG_DEL) {
            tag_del(l, &op, &cqe);
        }
        use_all_if_in_step(e, l);
    }
    if (!in_step(l)) {
        cqe.tagged |= QRNIC_CQET_SYNC_REQ;
    }
    return !(op.flags & QRNIC_TAGF_SIGNALED ||
             cqe.status != QRNIC_WC_SUCCESS) || complete(e, l, &cqe);
}

/*
 * Flushes a matched entry whose queue pair was reset or destroyed. Returns
 * false if there is none.
 */
static bool flush_one(QrnicEngine *e, QrnicTagList *l)
{
    QrnicTag *t = QTAILQ_FIRST(&l->dropped);
    QrnicCqe cqe;

    if (!t) {
        return false;
    }
    cqe = (QrnicCqe) {
        .index = t->handle, .opcode = QRNIC_CQE_TAG_RECV,
        .tagged = QRNIC_CQET_ENTRY, .status = QRNIC_WC_WR_FLUSH_ERR,
    };
    QTAILQ_REMOVE(&l->dropped, t, next);
    qrnic_tag_done(e, t);
    g_free(t);
    complete(e, l, &cqe);
    return true;
}

/*
 * Executes the operations that a single read of the ring returns. Returns their
 * number.
 */
static unsigned operations(QrnicEngine *e, QrnicTagList *l)
{
    uint8_t raw[QRNIC_WQE_FETCH_WQEBB * QRNIC_WQEBB_SIZE];
    uint32_t size = QRNIC_WQEBB_SIZE << l->ops.log_stride;
    uint32_t count;

    if (l->rung && !l->error) {
        l->rung = false;
        qrnic_record_read(e, &l->ops, "tag list", l->srq->number,
                          l->ops.consumer, 1u << l->ops.log_size);
        if (l->ops.bad_record) {
            list_fail(e, l, l->ops.bad_record);
        }
    }
    count = l->error ? 0 : MIN(l->ops.producer - l->ops.consumer,
                               sizeof(raw) / size);
    if (count && !qrnic_slots_read(e, &l->ops, QRNIC_USE_TAG_OP, "tag list",
                                   l->srq->number, l->ops.consumer, count,
                                   raw)) {
        list_fail(e, l, QRNIC_SYN_WQE_FETCH);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!execute(e, l, raw + i * size)) {
            return i + 1;
        }
    }
    return count;
}

static bool has_work(const QrnicTagList *l)
{
    return !QTAILQ_EMPTY(&l->dropped) ||
           (!l->error && (l->rung || l->ops.producer != l->ops.consumer));
}

bool qrnic_tags_pending(const QrnicEngine *e)
{
    return !QTAILQ_EMPTY(&e->queue->tag_lists);
}

void qrnic_tags_process(QrnicEngine *e, unsigned budget)
{
    while (budget && qrnic_tags_pending(e)) {
        QrnicTagList *l = QTAILQ_FIRST(&e->queue->tag_lists);
        unsigned done = flush_one(e, l) ? 1 : operations(e, l);

        QTAILQ_REMOVE(&e->queue->tag_lists, l, next);
        l->ready = has_work(l);
        if (l->ready) {
            QTAILQ_INSERT_TAIL(&e->queue->tag_lists, l, next);
        }
        budget -= MIN(budget, MAX(done, 1));
    }
}

void qrnic_tag_list_doorbell(QrnicEngine *e, QrnicTagList *l)
{
    l->rung = true;
    make_ready(e, l);
}

QrnicTagList *qrnic_tag_list_of(QrnicDbQueue *q)
{
    return container_of(q, QrnicTagList, db_queue);
}

/* Commands */

static QrnicResult create_check(QrnicEngine *e, const QrnicSrq *srq,
                                const QrnicTagListCtx *in)
{
    if (!(e->config.capabilities & QRNIC_CAP_TAG_MATCHING)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (srq->ctx.xrcd || srq->rq.stream) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_OBJECT_OF_ENTRY);
    }
    if (srq->users || srq->tags) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    if (!qrnic_cq_get(e, in->cq)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_TAG_LIST_CTX_CQ_OFFSET);
    }
    if (!in->max_tags || in->max_tags > QRNIC_MAX_TAGS) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_TAG_LIST_CTX_MAX_TAGS_OFFSET);
    }
    if (in->log_size > ctz32(QRNIC_MAX_TAG_OPS)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_TAG_LIST_CTX_LOG_SIZE_OFFSET);
    }
    if (in->log_stride > QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_TAG_LIST_CTX_LOG_STRIDE_OFFSET);
    }
    if (in->record % QRNIC_RECORD_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_TAG_LIST_CTX_RECORD_OFFSET);
    }
    if (e->queue->all_tags + in->max_tags > QRNIC_MAX_ALL_TAGS) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    return qrnic_ok(0);
}

QrnicResult qrnic_tag_list_create(QrnicEngine *e, uint32_t srqn,
                                  const QrnicTagListCtx *in)
{
    QrnicSrq *srq = qrnic_srq_get(e, srqn);
    QrnicResult result = create_check(e, srq, in);
    QrnicTagList *l;
    QrnicPages ring;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_ring_init(e, &ring, &in->ring, (uint64_t)QRNIC_WQEBB_SIZE <<
                         (in->log_size + in->log_stride),
                         QRNIC_TAG_LIST_CTX_RING_OFFSET, &result)) {
        return result;
    }
    l = g_new0(QrnicTagList, 1);
    l->srq = srq;
    l->ctx = *in;
    l->ops.ring = ring;
    l->ops.record = in->record;
    l->ops.log_size = in->log_size;
    l->ops.log_stride = in->log_stride;
    l->slot = g_new0(QrnicTagSlot, in->max_tags + 1);
    l->put_by = head_of(l);
    l->slot[head_of(l)].next = l->slot[head_of(l)].before = head_of(l);
    QTAILQ_INIT(&l->dropped);
    l->db_queue.kind = QRNIC_DB_QUEUE_TAGS;
    srq->tags = l;
    e->queue->all_tags += in->max_tags;
    qrnic_cq_get(e, in->cq)->users++;
    qrnic_db_page_join(e, srq->ctx.db_page, &l->db_queue);
    trace_qrnic_tag_list_create(e->config.name, srqn, in->cq, in->max_tags,
                                in->log_size, in->log_stride, in->record);
    return qrnic_ok(0);
}

void qrnic_tag_list_free(QrnicTagList *l)
{
    if (!l) {
        return;
    }
    for (uint32_t n = 0; n < l->ctx.max_tags; n++) {
        g_free(l->slot[n].entry);
    }
    g_free(l->slot);
    g_free(l);
}

void qrnic_tag_list_gone(QrnicEngine *e, QrnicTagList *l)
{
    if (!l) {
        return;
    }
    if (l->ready) {
        QTAILQ_REMOVE(&e->queue->tag_lists, l, next);
    }
    e->queue->all_tags -= l->ctx.max_tags;
    qrnic_cq_get(e, l->ctx.cq)->users--;
    qrnic_db_page_leave(e, l->srq->ctx.db_page, &l->db_queue);
}
