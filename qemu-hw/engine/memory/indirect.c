/*
 * qrnic engine: indirect keys, which consist of pieces of other keys
 *
 * CREATE_MKEY reserves max_pieces pieces. A WQE then defines the pieces:
 * local_operation.c calls qrnic_indirect_check(), reads the list of pieces, and
 * calls qrnic_indirect_register(). An access calls qrnic_piece_find(). The
 * pieces exist while the key is valid. Manual, chapter "Indirect keys".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/memory.h"

/* Piece; end is its end within a repetition */
typedef struct Piece {
    uint64_t address, length, stride, end;
    uint32_t key;
} Piece;

struct QrnicPieces {
    uint64_t period;            /* bytes of a repetition */
    uint32_t count;
    Piece piece[];
};

bool qrnic_pieces_reserve(QrnicEngine *e, uint32_t count)
{
    if (count > QRNIC_MAX_ALL_PIECES - e->memory->pieces_reserved) {
        return false;
    }
    e->memory->pieces_reserved += count;
    return true;
}

void qrnic_pieces_release(QrnicEngine *e, QrnicMkey *k)
{
    e->memory->pieces_reserved -= k->ctx.max_pieces;
    g_free(k->pieces);
    k->pieces = NULL;
}

void qrnic_pieces_cleanup(QrnicEngine *e)
{
    const QrnicTable *t = &e->memory->mkeys;

    for (uint32_t n = t->first; n < t->limit; n++) {
        QrnicMkey *k = t->slot[n];

        if (k) {
            qrnic_pieces_release(e, k);
        }
    }
}

/*
 * Decodes the list of pieces. *length receives the length of the key. Returns
 * NULL and sets *why if the list is invalid.
 */
static QrnicPieces *pieces_decode(const QrnicIndirectSeg *s,
                                  const uint8_t *list, uint32_t count,
                                  uint64_t *length, enum qrnic_syndrome *why)
{
    g_autofree QrnicPieces *p = g_malloc(sizeof(*p) +
                                         count * sizeof(p->piece[0]));

    p->period = 0;
    p->count = count;
    *why = QRNIC_SYN_PIECES;
    for (uint32_t i = 0; i < count; i++) {
        QrnicPiece in;

        if (!qrnic_piece_unpack(&in, list + i * QRNIC_PIECE_BYTES) ||
            !in.length) {
            return NULL;
        }
        /*
         * The length of a piece is limited, so that the sum of all pieces
         * cannot overflow. A longer piece exceeds the maximum in any case.
         */
        p->period += MIN(in.length, QRNIC_MAX_MR_SIZE + 1);
        p->piece[i] = (Piece) {
            .address = in.address, .length = in.length,
            .stride = in.stride, .end = p->period, .key = in.key,
        };
    }
    *why = QRNIC_SYN_KEY_RANGE;
    if (p->period > QRNIC_MAX_MR_SIZE / s->repeat) {
        return NULL;
    }
    *length = p->period * s->repeat;
    if (s->start + (*length - 1) < s->start) {
        return NULL;
    }
    return g_steal_pointer(&p);
}

enum qrnic_syndrome qrnic_indirect_check(QrnicEngine *e,
                                         const QrnicKeyUser *user,
                                         const QrnicIndirectSeg *s,
                                         uint64_t bytes)
{
    const QrnicMkey *k = qrnic_mkey_get(e, s->key >> 8);
    const bool atomics = e->config.capabilities & QRNIC_CAP_ATOMIC;

    if (!k) {
        return QRNIC_SYN_KEY_INVALID;
    }
    if (k->ctx.pd != user->pd) {
        return QRNIC_SYN_KEY_PD;
    }
    if (k->ctx.type != QRNIC_MKEY_INDIRECT) {
        return QRNIC_SYN_KEY_TYPE;
    }
    if (k->valid) {
        return QRNIC_SYN_KEY_BOUND;
    }
    if ((s->access & ~(QRNIC_ACCESS_LOCAL_WRITE | QRNIC_REMOTE_RIGHTS)) ||
        (s->access & QRNIC_ACCESS_REMOTE_ATOMIC && !atomics) ||
        !qrnic_access_allowed(s->access, s->access)) {
        return QRNIC_SYN_KEY_ACCESS;
    }
    if (!bytes || bytes % QRNIC_PIECE_BYTES || !s->repeat ||
        bytes / QRNIC_PIECE_BYTES > k->ctx.max_pieces) {
        return QRNIC_SYN_PIECES;
    }
    return QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_indirect_register(QrnicEngine *e,
                                            const QrnicIndirectSeg *s,
                                            const uint8_t *list,
                                            uint64_t bytes)
{
    QrnicMkey *k = qrnic_mkey_get(e, s->key >> 8);
    enum qrnic_syndrome why;
    uint64_t length;

    k->pieces = pieces_decode(s, list, bytes / QRNIC_PIECE_BYTES, &length,
                              &why);
    if (!k->pieces) {
        return why;
    }
    k->ctx.variant = s->key & 0xff;
    k->ctx.access = s->access;
    k->ctx.start = s->start;
    k->ctx.length = length;
    k->valid = true;
    qrnic_add(e, QRNIC_COUNTER_INDIRECT_REGISTRATIONS, 1);
    trace_qrnic_indirect_register(e->config.name, k->index, k->ctx.variant,
                                  k->pieces->count, s->repeat, s->start,
                                  length, s->access);
    return QRNIC_SYN_NONE;
}

uint32_t qrnic_piece_find(const QrnicMkey *k, uint64_t *addr, uint64_t *length)
{
    const QrnicPieces *p = k->pieces;
    uint64_t offset = *addr - k->ctx.start;
    uint64_t round = offset / p->period;
    uint32_t first = 0, last = p->count - 1;
    const Piece *found;

    offset %= p->period;
    while (first < last) {      /* first piece with end > offset */
        uint32_t middle = first + (last - first) / 2;

        if (p->piece[middle].end > offset) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    found = &p->piece[first];
    *length = found->end - offset;
    *addr = found->address + round * found->stride +
            (found->length - *length);
    return found->key;
}
