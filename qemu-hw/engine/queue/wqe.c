/*
 * qrnic engine: decoding and validation of WQEs
 *
 * qp/work_queue.c calls these functions for the SQ and the RQ, srq.c for SRQs,
 * and tags.c for data segments. The transport layer describes each opcode by
 * its shape (QrnicWqeShape). Nothing is kept between calls. An invalid WQE is
 * reported as a guest error, and completes with the returned status and
 * syndrome. Manual, chapter "Work queues and WQEs".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/queue/queue.h"

static QrnicTake refuse(QrnicEngine *e, uint32_t number,
                               const char *queue, uint32_t index,
                               uint8_t syndrome, uint8_t *status,
                               uint8_t *out_syndrome, const char *rule)
{
    *status = syndrome == QRNIC_SYN_WQE_LENGTH ? QRNIC_WC_LOC_LEN_ERR :
                                                 QRNIC_WC_LOC_QP_OP_ERR;
    *out_syndrome = syndrome;
    qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, queue, number,
                      "WQE at index %" PRIu32 ": %s", index, rule);
    return QRNIC_TAKE_ERROR;
}

bool qrnic_data_segs_decode(const uint8_t *p, unsigned count, QrnicSge *sge,
                            uint32_t *num_sge, uint64_t *length)
{
    *num_sge = 0;
    *length = 0;
    for (unsigned i = 0; i < count; i++, p += QRNIC_SEGMENT_SIZE) {
        QrnicDataSeg seg;

        qrnic_data_seg_unpack(&seg, p);
        if (seg.length > QRNIC_MAX_MSG_SIZE) {
            return false;
        }
        if (seg.length) {
            sge[(*num_sge)++] = (QrnicSge) {
                .addr = seg.address, .length = seg.length, .lkey = seg.lkey,
            };
            *length += seg.length;
        }
    }
    return *length <= QRNIC_MAX_MSG_SIZE;
}

static uint32_t ctrl_wqebbs(const QrnicSqCtrl *ctrl)
{
    return DIV_ROUND_UP(ctrl->segments * QRNIC_SEGMENT_SIZE, QRNIC_WQEBB_SIZE);
}

static bool size_possible(const QrnicSqCtrl *ctrl, uint32_t raw_wqebbs)
{
    return ctrl->segments &&
           ctrl_wqebbs(ctrl) <= MIN(raw_wqebbs, QRNIC_WQE_MAX_WQEBB);
}

/*
 * Returns NULL if the control segment is valid, else the text of the violated
 * rule.
 */
static const char *check_ctrl(QrnicEngine *e, const QrnicSqCtrl *ctrl,
                              const QrnicWqeShape *shape, uint32_t raw_wqebbs,
                              uint32_t index, bool reserved_ok,
                              uint8_t *syndrome)
{
    uint32_t wqebbs = ctrl_wqebbs(ctrl);

    *syndrome = QRNIC_SYN_WQE_INDEX;
    if (ctrl->index != index) {
        return "its index does not match its slot";
    }
    *syndrome = QRNIC_SYN_WQE_RESERVED;
    if (!reserved_ok) {
        return "reserved bits are set";
    }
    *syndrome = QRNIC_SYN_WQE_SIZE;
    if (!ctrl->segments || wqebbs > QRNIC_WQE_MAX_WQEBB) {
        return "the number of segments is out of range";
    }
    if (wqebbs > raw_wqebbs) {
        return "the WQE ends beyond the producer index";
    }
    *syndrome = QRNIC_SYN_WQE_OPCODE;
    if (!shape->known) {
        return "the opcode is unknown or not for this queue pair";
    }
    *syndrome = QRNIC_SYN_WQE_RESERVED;
    if (ctrl->imm && !shape->imm) {
        return "immediate data is set, but the opcode has none";
    }
    if (ctrl->inline_length && !(ctrl->flags & QRNIC_WQEF_INLINE)) {
        return "an inline length is set without inline data";
    }
    if ((ctrl->flags & QRNIC_WQEF_INLINE) &&
        (!shape->can_inline ||
         !(e->config.capabilities & QRNIC_CAP_INLINE_SEND))) {
        return "inline data is not supported for this opcode";
    }
    return NULL;
}

static const char *decode_eth(QrnicEngine *e, const uint8_t *p,
                              QrnicEthSeg *out)
{
    const struct { uint16_t flag; uint64_t cap; } needs[] = {
        { QRNIC_ETHF_CSUM, QRNIC_CAP_ETH_CSUM },
        { QRNIC_ETHF_VLAN, QRNIC_CAP_ETH_VLAN },
        { QRNIC_ETHF_IP_CSUM, QRNIC_CAP_ETH_CSUM },
        { QRNIC_ETHF_IP_CSUM, QRNIC_CAP_FLOW },
        { QRNIC_ETHF_TSO, QRNIC_CAP_ETH_TSO },
    };
    const uint16_t sums = QRNIC_ETHF_CSUM | QRNIC_ETHF_IP_CSUM |
                          QRNIC_ETHF_TSO;

    if (!qrnic_eth_seg_unpack(out, p)) {
        return "reserved bits are set in the Ethernet segment";
    }
    for (unsigned i = 0; i < ARRAY_SIZE(needs); i++) {
        if ((out->flags & needs[i].flag) &&
            !(e->config.capabilities & needs[i].cap)) {
            return "an offload is not supported by the device";
        }
    }
    if (ctpop16(out->flags & sums) > 1) {
        return "more than one checksum offload is requested";
    }
    if (!(out->flags & QRNIC_ETHF_TSO) && (out->mss || out->header_length)) {
        return "mss or header_length is set without segmentation";
    }
    return NULL;
}

/*
 * Decodes the segments between the control segment and the data segments.
 * Returns the text of the violated rule, or NULL.
 */
static const char *decode_headers(QrnicEngine *e, const uint8_t **p,
                                  const QrnicWqeShape *shape, QrnicSendWqe *out)
{
    out->srqn = 0;
    if (shape->xrc) {
        QrnicXrcSeg seg;

        if (!qrnic_xrc_seg_unpack(&seg, *p) || seg.srqn > 0xffffff) {
            return "reserved bits are set in the XRC segment";
        }
        out->srqn = seg.srqn;
        *p += QRNIC_SEGMENT_SIZE;
    }
    if (shape->dynamic) {
        if (!qrnic_dynamic_seg_unpack(&out->dynamic, *p) ||
            out->dynamic.target > 0xffffff) {
            return "reserved bits are set in the address segment";
        }
        *p += QRNIC_DYNAMIC_SEG_BYTES;
    }
    if (shape->remote) {
        QrnicRemoteSeg seg;

        if (!qrnic_remote_seg_unpack(&seg, *p)) {
            return "reserved bits are set in the remote address segment";
        }
        out->remote_addr = seg.address;
        out->rkey = seg.rkey;
        *p += QRNIC_SEGMENT_SIZE;
    }
    if (shape->atomic) {
        QrnicAtomicSeg seg;

        qrnic_atomic_seg_unpack(&seg, *p);
        out->swap_add = seg.swap_add;
        out->compare = seg.compare;
        *p += QRNIC_SEGMENT_SIZE;
        if (seg.compare && out->opcode != QRNIC_WQE_ATOMIC_CMP_SWAP) {
            return "a compare value without compare and swap";
        }
    }
    if (shape->flush) {
        if (!qrnic_flush_seg_unpack(&out->flush, *p) || !out->flush.type ||
            out->flush.level > QRNIC_FLUSH_MR) {
            return "the flush segment has reserved bits or no placement";
        }
        *p += QRNIC_SEGMENT_SIZE;
    }
    if (shape->datagram) {
        if (!qrnic_datagram_seg_unpack(&out->datagram, *p)) {
            return "reserved bits are set in the datagram segment";
        }
        *p += QRNIC_DATAGRAM_SEG_BYTES;
    }
    if (shape->bind) {
        if (!qrnic_bind_seg_unpack(&out->bind, *p)) {
            return "reserved bits are set in the bind segment";
        }
        *p += QRNIC_BIND_SEG_BYTES;
    }
    if (shape->reg) {
        if (!qrnic_reg_seg_unpack(&out->reg, *p)) {
            return "reserved bits are set in the registration segment";
        }
        *p += QRNIC_REG_SEG_BYTES;
    }
    if (shape->indirect) {
        if (!qrnic_indirect_seg_unpack(&out->indirect, *p)) {
            return "reserved bits are set in the segment of an indirect key";
        }
        *p += QRNIC_INDIRECT_SEG_BYTES;
    }
    if (shape->eth) {
        const char *rule = decode_eth(e, *p, &out->eth);

        if (rule) {
            return rule;
        }
        *p += QRNIC_SEGMENT_SIZE;
    }
    return NULL;
}

QrnicTake qrnic_send_wqe_decode(QrnicEngine *e, uint32_t number,
                                const QrnicWqeShape *shape, const uint8_t *raw,
                                uint32_t raw_wqebbs, uint32_t index,
                                QrnicSendWqe *out, uint8_t *status,
                                uint8_t *syndrome)
{
    const uint8_t *p = raw + QRNIC_SEGMENT_SIZE;
    unsigned fixed, rest;
    QrnicSqCtrl ctrl;
    const char *rule;
    bool reserved_ok;
    uint8_t syn;

    reserved_ok = qrnic_sq_ctrl_unpack(&ctrl, raw);
    rule = check_ctrl(e, &ctrl, shape, raw_wqebbs, index, reserved_ok, &syn);
    /*
     * The size of the WQE may be known although another member is invalid. Then
     * the WQE after it can still be found.
     */
    if (!rule || (syn != QRNIC_SYN_WQE_INDEX && syn != QRNIC_SYN_WQE_SIZE &&
                  size_possible(&ctrl, raw_wqebbs))) {
        out->wqebbs = ctrl_wqebbs(&ctrl);
    }
    if (rule) {
        return refuse(e, number, "SQ", index, syn, status, syndrome, rule);
    }
    out->index = index;
    out->opcode = ctrl.opcode;
    out->flags = ctrl.flags;
    out->imm = ctrl.imm;
    out->num_sge = 0;
    out->length = 0;

    fixed = 1 + shape->xrc + shape->remote + shape->atomic + shape->flush +
            shape->eth +
            (shape->dynamic ? QRNIC_DYNAMIC_SEG_BYTES / QRNIC_SEGMENT_SIZE :
                              0) +
            (shape->datagram ? QRNIC_DATAGRAM_SEG_BYTES / QRNIC_SEGMENT_SIZE :
                              0) +
            (shape->bind ? QRNIC_BIND_SEG_BYTES / QRNIC_SEGMENT_SIZE : 0) +
            (shape->reg ? QRNIC_REG_SEG_BYTES / QRNIC_SEGMENT_SIZE : 0) +
            (shape->indirect ? QRNIC_INDIRECT_SEG_BYTES / QRNIC_SEGMENT_SIZE :
                               0);
    if (ctrl.segments < fixed) {
        return refuse(e, number, "SQ", index, QRNIC_SYN_WQE_SIZE, status,
                      syndrome, "segments that the opcode needs are missing");
    }
    rest = ctrl.segments - fixed;
    rule = decode_headers(e, &p, shape, out);
    if (rule) {
        return refuse(e, number, "SQ", index, QRNIC_SYN_WQE_RESERVED, status,
                      syndrome, rule);
    }
    if (ctrl.flags & QRNIC_WQEF_INLINE) {
        if (ctrl.inline_length > e->config.max_inline ||
            rest != DIV_ROUND_UP(ctrl.inline_length, QRNIC_SEGMENT_SIZE)) {
            return refuse(e, number, "SQ", index, QRNIC_SYN_WQE_SIZE, status,
                          syndrome, "the inline length does not fit");
        }
        out->length = ctrl.inline_length;
        memcpy(out->inline_data, p, ctrl.inline_length);
    } else if (rest > (shape->data ? e->config.max_sge : 0)) {
        return refuse(e, number, "SQ", index, QRNIC_SYN_WQE_SIZE, status,
                      syndrome, "too many data segments");
    } else if (!qrnic_data_segs_decode(p, rest, out->sge, &out->num_sge,
                                       &out->length)) {
        return refuse(e, number, "SQ", index, QRNIC_SYN_WQE_LENGTH, status,
                      syndrome, "the message is too long");
    }
    if (out->opcode == QRNIC_WQE_ATOMIC_WRITE) {
        out->length = 8;        /* the value, in its segment */
    } else if (shape->atomic && rest != 1) {
        return refuse(e, number, "SQ", index, QRNIC_SYN_WQE_SIZE, status,
                      syndrome, "an atomic has one data segment");
    } else if (shape->atomic && out->length != 8) {
        return refuse(e, number, "SQ", index, QRNIC_SYN_WQE_LENGTH, status,
                      syndrome, "the data segment of an atomic has 8 bytes");
    }
    trace_qrnic_send_wqe(e->config.name, number, index, out->wqebbs,
                         qrnic_wqe_opcode_name(out->opcode), out->flags,
                         out->num_sge, out->length);
    return QRNIC_TAKE_OK;
}

QrnicTake qrnic_recv_wqe_decode(QrnicEngine *e, const char *queue,
                                uint32_t number, uint8_t log_stride,
                                uint32_t index, uint32_t next_limit,
                                const uint8_t *raw, QrnicRecvWqe *out,
                                uint32_t *next, uint8_t *status,
                                uint8_t *syndrome)
{
    uint32_t room = ((QRNIC_WQEBB_SIZE << log_stride) /
                     QRNIC_SEGMENT_SIZE) - 1;
    QrnicRecvCtrl ctrl;
    bool reserved_ok = qrnic_recv_ctrl_unpack(&ctrl, raw);

    if (ctrl.index != index) {
        return refuse(e, number, queue, index, QRNIC_SYN_WQE_INDEX,
                      status, syndrome,
                             "its index does not match its slot");
    }
    if (!reserved_ok || ctrl.next >= next_limit) {
        return refuse(e, number, queue, index, QRNIC_SYN_WQE_RESERVED,
                             status, syndrome, "reserved bits are set, or the "
                             "next slot is invalid");
    }
    if (ctrl.data_segments > MIN(room, e->config.max_sge)) {
        return refuse(e, number, queue, index, QRNIC_SYN_WQE_SIZE,
                             status, syndrome, "too many data segments");
    }
    /*
     * From here on the index of the WQE and the next slot are known, although
     * the WQE may be invalid.
     */
    out->index = index;
    *next = ctrl.next;
    if (!qrnic_data_segs_decode(raw + QRNIC_SEGMENT_SIZE, ctrl.data_segments,
                                out->sge, &out->num_sge, &out->length)) {
        return refuse(e, number, queue, index, QRNIC_SYN_WQE_LENGTH,
                             status, syndrome, "the buffer is too long");
    }
    trace_qrnic_recv_wqe(e->config.name, number, queue, index, out->num_sge,
                         out->length);
    return QRNIC_TAKE_OK;
}
