/*
 * qrnic engine: operations of send queues on keys, of which nothing is sent
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp.h"

/*
 * The list of pieces is the data of the WQE. *reported: it cannot be read, and
 * who tried has said so.
 */
static enum qrnic_syndrome register_indirect(QrnicEngine *e, QrnicQp *qp,
                                             const QrnicSendWqe *wqe,
                                             bool *reported)
{
    enum qrnic_syndrome syndrome = qrnic_indirect_check(e, &qp->keys,
                                                        &wqe->indirect,
                                                        wqe->length);
    g_autofree uint8_t *list = NULL;

    if (syndrome) {
        return syndrome;
    }
    list = g_malloc(wqe->length);
    syndrome = qrnic_gather_part(e, qp, wqe, 0, list, wqe->length);
    *reported = syndrome && syndrome != QRNIC_SYN_PAGE_FAULT;
    return syndrome ?: qrnic_indirect_register(e, &wqe->indirect, list,
                                               wqe->length);
}

bool qrnic_local_operation(QrnicEngine *e, QrnicQp *qp,
                           const QrnicSendWqe *wqe, uint8_t *syndrome)
{
    bool reported = false;
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
        *syndrome = register_indirect(e, qp, wqe, &reported);
        break;
    default:
        key = wqe->imm;
        *syndrome = qrnic_local_invalidate(e, &qp->keys, key);
        break;
    }
    trace_qrnic_local_operation(e->config.name, qp->number, wqe->index,
                                qrnic_wqe_opcode_name(wqe->opcode), key,
                                qrnic_syndrome_name(*syndrome));
    if (qrnic_page_fault(e, qp, QRNIC_SIDE_SEND, *syndrome)) {
        return false;
    }
    if (*syndrome && !reported) {
        qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, "SQ", qp->number,
                          "index %" PRIu32 ": %s of key 0x%" PRIx32 ": %s",
                          wqe->index, qrnic_wqe_opcode_name(wqe->opcode), key,
                          qrnic_syndrome_name(*syndrome));
    }
    return true;
}
