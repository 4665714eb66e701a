/*
 * qrnic engine, layer qp: payload between WQEs and packets
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Copies data from the buffers of send WQEs to packets (gather), and from
 * packets to the buffers of receive WQEs (scatter). Each segment is checked
 * with its lkey. Transports call these functions for each packet. No state
 * remains between calls, because the caller passes the offset in the message.
 * An absent page is reported as SYN_PAGE_FAULT with a QrnicFault that covers
 * the rest of the segment.
 */

#include "qemu/osdep.h"
#include "engine/qp/qp_private.h"

static void key_refused(QrnicEngine *e, QrnicQp *qp, const char *queue,
                        const QrnicSge *sge, uint8_t syndrome)
{
    qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, queue, qp->number,
                      "key 0x%" PRIx32 " does not allow access to %" PRIu32
                      " bytes at 0x%" PRIx64 ": %s", sge->lkey, sge->length,
                      sge->addr, qrnic_syndrome_name(syndrome));
}

enum qrnic_syndrome qrnic_gather_part(QrnicEngine *e, QrnicQp *qp,
                                      const QrnicSendWqe *wqe, uint64_t offset,
                                      uint8_t *to, uint32_t len,
                                      QrnicFault *fault)
{
    if (wqe->flags & QRNIC_WQEF_INLINE) {
        memcpy(to, wqe->inline_data + offset, len);
        return QRNIC_SYN_NONE;
    }
    for (uint32_t i = 0; len && i < wqe->num_sge; i++) {
        const QrnicSge *sge = &wqe->sge[i];
        enum qrnic_syndrome syndrome;
        uint32_t n;
        QrnicMkey *k;

        if (offset >= sge->length) {
            offset -= sge->length;
            continue;
        }
        n = MIN(len, sge->length - offset);
        syndrome = qrnic_memory_check(e, sge->lkey, qp->pd->number,
                                      sge->addr + offset, n, 0, &k);
        if (syndrome) {
            key_refused(e, qp, "SQ", sge, syndrome);
            return syndrome;
        }
        syndrome = qrnic_memory_read(e, k, sge->addr + offset, to, n,
                                     fault);
        if (syndrome) {
            return qrnic_fault_extend(fault, syndrome, sge->length - offset);
        }
        to += n;
        len -= n;
        offset = 0;
    }
    return QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_scatter_part(QrnicEngine *e, QrnicQp *qp,
                                       const QrnicRecvWqe *wqe, uint64_t offset,
                                       const uint8_t *from, uint32_t len,
                                       QrnicFault *fault)
{
    offset += wqe->offset;      /* offset in the buffer */
    for (uint32_t i = 0; len && i < wqe->num_sge; i++) {
        const QrnicSge *sge = &wqe->sge[i];
        enum qrnic_syndrome syndrome;
        uint32_t n;
        QrnicMkey *k;

        if (offset >= sge->length) {
            offset -= sge->length;
            continue;
        }
        n = MIN(len, sge->length - offset);
        syndrome = qrnic_memory_check(e, sge->lkey, wqe->pd, sge->addr + offset,
                                      n, QRNIC_ACCESS_LOCAL_WRITE, &k);
        if (syndrome) {
            key_refused(e, qp, "RQ", sge, syndrome);
            return syndrome;
        }
        syndrome = qrnic_memory_write(e, k, sge->addr + offset, from, n,
                                      fault);
        if (syndrome) {
            return qrnic_fault_extend(fault, syndrome, sge->length - offset);
        }
        from += n;
        len -= n;
        offset = 0;
    }
    return QRNIC_SYN_NONE;
}

/*
 * Returns true if the CQE may hold the data: all buffers are in the address
 * space of the process that polls. Otherwise qrnic_scatter_part() writes the
 * data and reports invalid keys.
 */
static bool fits_cqe(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                     uint32_t len)
{
    if (!len || len > qp->ctx.max_recv_inline) {
        return false;
    }
    for (uint32_t i = 0; len && i < wqe->num_sge; i++) {
        const QrnicSge *sge = &wqe->sge[i];
        uint32_t n = MIN(len, sge->length);
        QrnicMkey *k;

        if (n && (qrnic_memory_check(e, sge->lkey, wqe->pd, sge->addr, n,
                                     QRNIC_ACCESS_LOCAL_WRITE, &k) ||
                  k->ctx.address_space != qp->ctx.address_space)) {
            return false;
        }
        len -= n;
    }
    return true;
}

enum qrnic_syndrome qrnic_scatter_packet(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicRecvWqe *wqe,
                                         uint64_t offset,
                                         const QrnicPacket *p, bool *inlined,
                                         QrnicFault *fault)
{
    const uint32_t only = QRNIC_OPF_START | QRNIC_OPF_END;

    *inlined = (p->info->flags & only) == only &&
               fits_cqe(e, qp, wqe, p->payload_len);
    return *inlined ? QRNIC_SYN_NONE :
                      qrnic_scatter_part(e, qp, wqe, offset, p->payload,
                                         p->payload_len, fault);
}

bool qrnic_gather(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                  uint8_t *buf, uint8_t *status, uint8_t *syndrome,
                  QrnicFault *fault)
{
    *syndrome = qrnic_gather_part(e, qp, wqe, 0, buf, wqe->length, fault);
    if (*syndrome) {
        *status = QRNIC_WC_LOC_PROT_ERR;
    }
    return !*syndrome;
}

bool qrnic_scatter(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                   const struct iovec *piece, unsigned pieces, QrnicCqe *cqe,
                   QrnicFault *fault)
{
    uint32_t skip = wqe->offset;
    unsigned p = 0;
    size_t done = 0;

    for (uint32_t i = 0; i < wqe->num_sge && p < pieces; i++) {
        const QrnicSge *sge = &wqe->sge[i];
        uint32_t used = MIN(skip, sge->length);
        QrnicMkey *k;

        skip -= used;
        cqe->status = QRNIC_WC_LOC_PROT_ERR;
        while (p < pieces && used < sge->length) {
            size_t n = MIN(sge->length - used, piece[p].iov_len - done);

            if (done == piece[p].iov_len) {
                p++;
                done = 0;
                continue;
            }
            /*
             * Only written bytes are checked, because segments may be longer
             * than the message.
             */
            cqe->syndrome = qrnic_memory_check(e, sge->lkey, wqe->pd,
                                               sge->addr + used, n,
                                               QRNIC_ACCESS_LOCAL_WRITE, &k);
            if (cqe->syndrome != QRNIC_SYN_NONE) {
                key_refused(e, qp, "RQ", sge, cqe->syndrome);
                return false;
            }
            cqe->syndrome = qrnic_memory_write(e, k, sge->addr + used,
                                               (uint8_t *)piece[p].iov_base +
                                               done, n, fault);
            if (cqe->syndrome != QRNIC_SYN_NONE) {
                qrnic_fault_extend(fault, cqe->syndrome, sge->length - used);
                return false;
            }
            used += n;
            done += n;
        }
    }
    cqe->status = QRNIC_WC_SUCCESS;
    cqe->syndrome = QRNIC_SYN_NONE;
    return true;
}
