/*
 * qrnic engine, layer qp: local operations of send queues
 *
 * Executes WQEs that change keys and send nothing: bind, register, and
 * invalidate. Requester and qrnic_transmit() call qrnic_local_operation() when
 * the WQE is next in order. An indirect key has a list of pieces, read in
 * parts. The parts are kept in qp->piece_list until the operation is done or
 * the WQE is dropped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

/*
 * Bytes of a list that are read in one step. The number is small, because each
 * byte may lie in its own piece of memory.
 */
#define LIST_PART 512

/* List of pieces of the WQE with this index; done bytes have been read */
struct QrnicPieceList {
    uint32_t index, length, done;
    uint8_t data[];
};

void qrnic_piece_list_drop(QrnicQp *qp)
{
    g_clear_pointer(&qp->piece_list, g_free);
}

static QrnicPieceList *piece_list_of(QrnicQp *qp, const QrnicSendWqe *wqe)
{
    QrnicPieceList *list = qp->piece_list;

    if (!list || list->index != wqe->index || list->length != wqe->length) {
        qrnic_piece_list_drop(qp);
        list = g_malloc(sizeof(*list) + wqe->length);
        list->index = wqe->index;
        list->length = wqe->length;
        list->done = 0;
        qp->piece_list = list;
    }
    return list;
}

/*
 * Registers an indirect key. The data of the WQE is the list of pieces. Returns
 * QRNIC_LOCAL_MORE if the work budget is spent before the list is read. Sets
 * *reported if qrnic_gather_part() has already reported the error.
 */
static QrnicLocal register_indirect(QrnicEngine *e, QrnicQp *qp,
                                    const QrnicSendWqe *wqe,
                                    uint8_t *syndrome, bool *reported,
                                    QrnicFault *fault)
{
    QrnicPieceList *list;
    uint32_t before;

    *syndrome = qrnic_indirect_check(e, &qp->keys, &wqe->indirect, wqe->length);
    if (*syndrome) {
        return QRNIC_LOCAL_DONE;
    }
    list = piece_list_of(qp, wqe);
    before = list->done;
    while (list->done < list->length) {
        uint32_t n = MIN(LIST_PART, list->length - list->done);

        /*
         * The first part is read without a check of the budget, because
         * responses of the same queue pair may spend the budget of each
         * quantum.
         */
        if (list->done != before && qrnic_budget_spent(e)) {
            return QRNIC_LOCAL_MORE;
        }
        *syndrome = qrnic_gather_part(e, qp, wqe, list->done,
                                      list->data + list->done, n, fault);
        if (*syndrome) {
            *reported = *syndrome != QRNIC_SYN_PAGE_FAULT;
            return QRNIC_LOCAL_DONE;
        }
        list->done += n;
    }
    *syndrome = qrnic_indirect_register(e, &wqe->indirect, list->data,
                                        list->length);
    return QRNIC_LOCAL_DONE;
}

QrnicLocal qrnic_local_operation(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicSendWqe *wqe, uint8_t *syndrome)
{
    bool reported = false;
    QrnicFault fault;
    uint32_t key;

    switch (wqe->opcode) {
    case QRNIC_WQE_BIND_MW:
        key = wqe->bind.key;
        *syndrome = qrnic_window_bind(e, &qp->keys, &wqe->bind);
        break;
    case QRNIC_WQE_REG_MR:
        key = wqe->reg.key;
        *syndrome = qrnic_region_register(e, &qp->keys, &wqe->reg);
        break;
    case QRNIC_WQE_REG_INDIRECT:
        key = wqe->indirect.key;
        if (register_indirect(e, qp, wqe, syndrome, &reported, &fault) ==
            QRNIC_LOCAL_MORE) {
            return QRNIC_LOCAL_MORE;
        }
        break;
    default:
        key = wqe->imm;
        *syndrome = qrnic_local_invalidate(e, &qp->keys, key);
        break;
    }
    trace_qrnic_local_operation(e->config.name, qp->number, wqe->index,
                                qrnic_wqe_opcode_name(wqe->opcode), key,
                                qrnic_syndrome_name(*syndrome));
    if (qrnic_page_fault(e, qp, QRNIC_SIDE_SEND, *syndrome, &fault)) {
        return QRNIC_LOCAL_WAITS;
    }
    qrnic_piece_list_drop(qp);
    if (*syndrome && !reported) {
        qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, "SQ", qp->number,
                          "WQE at index %" PRIu32 ": %s of key 0x%" PRIx32
                          " fails: %s", wqe->index,
                          qrnic_wqe_opcode_name(wqe->opcode), key,
                          qrnic_syndrome_name(*syndrome));
    }
    return QRNIC_LOCAL_DONE;
}
