/*
 * qrnic engine: operations of send queues on keys, of which nothing is sent
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp.h"

enum qrnic_syndrome qrnic_local_operation(QrnicEngine *e, QrnicQp *qp,
                                          const QrnicSendWqe *wqe)
{
    enum qrnic_syndrome syndrome;
    uint32_t key;

    switch (wqe->opcode) {
    case QRNIC_WQE_BIND_MW:
        key = wqe->bind.key;
        syndrome = qrnic_window_bind(e, &qp->keys, &wqe->bind);
        break;
    case QRNIC_WQE_REG_MR:
        key = wqe->reg.key;
        syndrome = qrnic_region_register(e, &qp->keys, &wqe->reg);
        break;
    default:
        key = wqe->imm;
        syndrome = qrnic_local_invalidate(e, &qp->keys, key);
        break;
    }
    trace_qrnic_local_operation(e->config.name, qp->number, wqe->index,
                                qrnic_wqe_opcode_name(wqe->opcode), key,
                                qrnic_syndrome_name(syndrome));
    if (syndrome) {
        qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, "SQ", qp->number,
                          "index %" PRIu32 ": %s of key 0x%" PRIx32 ": %s",
                          wqe->index, qrnic_wqe_opcode_name(wqe->opcode), key,
                          qrnic_syndrome_name(syndrome));
    }
    return syndrome;
}
