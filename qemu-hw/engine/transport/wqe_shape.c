/*
 * qrnic engine, layer transport: send WQEs of each type of queue pair
 *
 * Each type names one of these functions in QrnicQpOps.shape. Before a WQE is
 * decoded, work_queue.c calls it to learn if the opcode exists and which
 * segments it has. The functions have no state. Manual, chapter on WQEs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/transport.h"

/* Capabilities with keys that a peer or a WQE can invalidate */
#define CAP_INVALIDATE (QRNIC_CAP_MW | QRNIC_CAP_FAST_REG | \
                        QRNIC_CAP_INDIRECT_MKEY)

/* Returns the shape of operations that RC, UC and XRC have in common. */
static QrnicWqeShape connected(const QrnicEngine *e, const QrnicQp *qp,
                               uint8_t opcode)
{
    const uint64_t caps = e->config.capabilities;
    bool fast_reg = caps & QRNIC_CAP_FAST_REG;

    switch (opcode) {
    case QRNIC_WQE_SEND:
    case QRNIC_WQE_SEND_IMM:
        return (QrnicWqeShape) {
            .known = true, .can_inline = true, .data = true,
            .imm = opcode == QRNIC_WQE_SEND_IMM,
        };
    case QRNIC_WQE_RDMA_WRITE:
    case QRNIC_WQE_RDMA_WRITE_IMM:
        return (QrnicWqeShape) {
            .known = true, .can_inline = true, .data = true, .remote = true,
            .imm = opcode == QRNIC_WQE_RDMA_WRITE_IMM,
        };
    case QRNIC_WQE_LOCAL_INV:
        return (QrnicWqeShape) { .known = caps & CAP_INVALIDATE, .imm = true };
    case QRNIC_WQE_BIND_MW:
        return (QrnicWqeShape) { .known = caps & QRNIC_CAP_MW, .bind = true };
    case QRNIC_WQE_REG_MR:
        return (QrnicWqeShape) { .known = fast_reg &&
                                          qrnic_key_registers(&qp->keys),
                                 .reg = true };
    case QRNIC_WQE_REG_INDIRECT:
        return (QrnicWqeShape) { .known = caps & QRNIC_CAP_INDIRECT_MKEY,
                                 .indirect = true, .can_inline = true,
                                 .data = true };
    default:
        return (QrnicWqeShape) { .known = false };
    }
}

/*
 * Returns the shape of operations of reliable types: reads, atomics and sends
 * with invalidate are added to those of connected().
 */
static QrnicWqeShape reliable(const QrnicEngine *e, const QrnicQp *qp,
                              uint8_t opcode)
{
    const uint64_t caps = e->config.capabilities;

    switch (opcode) {
    case QRNIC_WQE_RDMA_READ:
        return (QrnicWqeShape) { .known = true, .remote = true, .data = true };
    case QRNIC_WQE_ATOMIC_CMP_SWAP:
    case QRNIC_WQE_ATOMIC_FETCH_ADD:
        return (QrnicWqeShape) { .known = caps & QRNIC_CAP_ATOMIC,
                                 .remote = true, .atomic = true,
                                 .data = true };
    case QRNIC_WQE_SEND_INV:
        return (QrnicWqeShape) {
            .known = caps & CAP_INVALIDATE,
            .can_inline = true, .data = true, .imm = true,
        };
    default:
        return connected(e, qp, opcode);
    }
}

QrnicWqeShape qrnic_rc_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode)
{
    const uint64_t caps = e->config.capabilities;

    switch (opcode) {
    case QRNIC_WQE_ATOMIC_WRITE:
        return (QrnicWqeShape) { .known = caps & QRNIC_CAP_ATOMIC_WRITE,
                                 .remote = true, .atomic = true };
    case QRNIC_WQE_FLUSH:
        return (QrnicWqeShape) { .known = caps & QRNIC_CAP_FLUSH,
                                 .remote = true, .flush = true };
    default:
        return reliable(e, qp, opcode);
    }
}

QrnicWqeShape qrnic_xrc_shape(const QrnicEngine *e, const QrnicQp *qp,
                              uint8_t opcode)
{
    QrnicWqeShape shape = reliable(e, qp, opcode);

    shape.xrc = !qrnic_is_local_operation(opcode);
    return shape;
}

QrnicWqeShape qrnic_dynamic_shape(const QrnicEngine *e, const QrnicQp *qp,
                                  uint8_t opcode)
{
    QrnicWqeShape shape = qrnic_rc_shape(e, qp, opcode);

    shape.dynamic = !qrnic_is_local_operation(opcode);
    return shape;
}

QrnicWqeShape qrnic_uc_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode)
{
    return connected(e, qp, opcode);
}

QrnicWqeShape qrnic_ud_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode)
{
    return (QrnicWqeShape) {
        .known = opcode == QRNIC_WQE_SEND || opcode == QRNIC_WQE_SEND_IMM,
        .datagram = true, .can_inline = true, .data = true,
        .imm = opcode == QRNIC_WQE_SEND_IMM,
    };
}

QrnicWqeShape qrnic_raw_packet_shape(const QrnicEngine *e, const QrnicQp *qp,
                                     uint8_t opcode)
{
    return (QrnicWqeShape) { .known = opcode == QRNIC_WQE_SEND, .eth = true,
                             .can_inline = true, .data = true };
}
