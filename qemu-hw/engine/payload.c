/*
 * qrnic engine: data of messages of one packet: datagrams and Ethernet frames
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/internal.h"

static void key_refused(QrnicEngine *e, QrnicQp *qp, const char *queue,
                        const QrnicSge *sge, uint8_t syndrome)
{
    qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, queue, qp->number,
                      "key 0x%" PRIx32 " for %" PRIu32 " bytes at 0x%" PRIx64
                      ": %s", sge->lkey, sge->length, sge->addr,
                      qrnic_syndrome_name(syndrome));
}

bool qrnic_gather(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                  uint8_t *buf, uint8_t *status, uint8_t *syndrome)
{
    if (wqe->flags & QRNIC_WQEF_INLINE) {
        memcpy(buf, wqe->inline_data, wqe->length);
        return true;
    }
    for (uint32_t i = 0; i < wqe->num_sge; i++) {
        const QrnicSge *sge = &wqe->sge[i];
        QrnicMkey *k;

        *status = QRNIC_WC_LOC_PROT_ERR;
        *syndrome = qrnic_memory_check(e, sge->lkey, qp->pd->number,
                                       sge->addr, sge->length, 0, &k);
        if (*syndrome != QRNIC_SYN_NONE) {
            key_refused(e, qp, "SQ", sge, *syndrome);
            return false;
        }
        if (!qrnic_memory_read(e, k, sge->addr, buf, sge->length)) {
            *syndrome = QRNIC_SYN_DMA;
            return false;
        }
        buf += sge->length;
    }
    return true;
}

bool qrnic_scatter(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                   const struct iovec *piece, QrnicCqe *cqe)
{
    unsigned p = 0;
    size_t done = 0;

    for (uint32_t i = 0; i < wqe->num_sge && p < 2; i++) {
        const QrnicSge *sge = &wqe->sge[i];
        uint32_t used = 0;
        QrnicMkey *k;

        cqe->status = QRNIC_WC_LOC_PROT_ERR;
        cqe->syndrome = qrnic_memory_check(e, sge->lkey, wqe->pd, sge->addr,
                                           sge->length,
                                           QRNIC_ACCESS_LOCAL_WRITE, &k);
        if (cqe->syndrome != QRNIC_SYN_NONE) {
            key_refused(e, qp, "RQ", sge, cqe->syndrome);
            return false;
        }
        while (p < 2 && used < sge->length) {
            size_t n = MIN(sge->length - used, piece[p].iov_len - done);

            if (!qrnic_memory_write(e, k, sge->addr + used,
                                    (uint8_t *)piece[p].iov_base + done, n)) {
                cqe->syndrome = QRNIC_SYN_DMA;
                return false;
            }
            used += n;
            done += n;
            if (done == piece[p].iov_len) {
                p++;
                done = 0;
            }
        }
    }
    cqe->status = QRNIC_WC_SUCCESS;
    cqe->syndrome = QRNIC_SYN_NONE;
    return true;
}
