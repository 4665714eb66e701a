/*
 * qrnic engine, transport: rights of the peer to memory
 *
 * execute.c calls these functions before each access of a request, and reply.c
 * again for each packet of a read response. No state is kept. For XRC the PD is
 * that of the SRQ which the request names (A14).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"

/*
 * Returns the PD of valid keys: that of the queue pair, or that of the SRQ for
 * an XRC target (A14).
 */
uint32_t qrnic_remote_pd(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn)
{
    const QrnicSrq *srq;

    if (qp->pd) {
        return qp->pd->number;
    }
    srq = qrnic_xrc_srq(e, qp, srqn);
    return srq ? srq->ctx.pd : 0;       /* no key belongs to PD 0 */
}

void qrnic_remote_trace(QrnicEngine *e, const QrnicQp *qp, uint32_t rkey,
                        uint64_t va, uint64_t len, enum qrnic_syndrome syndrome)
{
    if (syndrome) {
        trace_qrnic_responder_key(e->config.name, qp->number, rkey, va, len,
                                  qrnic_syndrome_name(syndrome));
    }
}

enum qrnic_syndrome qrnic_remote_check(QrnicEngine *e, QrnicQp *qp,
                                       uint32_t srqn, uint32_t rkey,
                                       uint64_t va, uint64_t len,
                                       uint8_t access, QrnicMkey **k)
{
    uint32_t pd = qrnic_remote_pd(e, qp, srqn);
    enum qrnic_syndrome syndrome = qrnic_inbound_check(e, qp, pd, rkey, va, len,
                                                       access, k);

    qrnic_remote_trace(e, qp, rkey, va, len, syndrome);
    return syndrome;
}
