/*
 * qrnic qtest: an SRQ with a tag list, and a queue pair that uses it
 *
 * The test is the library that adds entries, and the peer that sends to it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_TAG_LIST_H
#define QRNIC_QTEST_TAG_LIST_H

#include "driver.h"

#define TAGS 8u
#define OPS_LOG 3
#define STRIDE_LOG 1            /* an operation has up to six segments */
#define WQES_LOG 3
#define TAG_BUFFER 4096u        /* of an entry or a WQE */
#define ALL_BITS UINT64_MAX
#define PEER_MTU 1024u

#define ENTRY QRNIC_CQET_ENTRY
#define MATCH QRNIC_CQET_MATCH
#define VALID QRNIC_CQET_DATA_VALID
#define SYNC_REQ QRNIC_CQET_SYNC_REQ

/* Kinds of messages, by the first byte of their headers */
enum { NO_TAG, RENDEZVOUS, FIN, EAGER };

typedef struct Tags {
    Rig r;
    Cq cq;                      /* of the list */
    Qp qp;
    uint32_t srqn, wqes, ops;   /* producers */
    uint64_t srq_ring, srq_record, ring, record;
    uint32_t psn, other_psn;    /* next one of the peer, for qp and r.qp */
    uint32_t messages;
    uint8_t message[8192];      /* the last one, with its headers */
} Tags;

/* With a list; no WQE and no entry is there. */
void tags_start(Tags *x, const char *properties);
/* The objects once more, after a reset; the device takes commands. */
void tags_start_again(Tags *x);
void tags_stop(Tags *x);

uint32_t tags_srq_create(Tags *x, QrnicSrqCtx ctx);
QrnicTagListCtx tags_list_ctx(Tags *x);
void tags_list_refused(Tags *x, uint32_t srqn, const QrnicTagListCtx *ctx,
                       unsigned status, uint32_t syndrome);
void tags_list_create(Tags *x, uint32_t srqn, const QrnicTagListCtx *ctx);
/* One more queue pair of the SRQ, connected as x->qp */
void tags_qp_create(Tags *x, Qp *qp);

/* Into slot n of the WQEs, which has a place of its own */
void tags_post_wqe(Tags *x);
/* Where it is, or a handle, in the memory of the rig */
uint64_t tags_wqe_at(uint32_t slot);
uint64_t tags_entry_at(uint32_t handle);

QrnicTagOp tag_add(uint32_t handle, uint64_t tag, uint64_t mask);
QrnicTagOp tag_del(uint32_t handle);
QrnicTagOp tag_sync(uint32_t unexpected);
/* Into the ring and the record, as it is but for its index; no doorbell */
void tags_write(Tags *x, QrnicTagOp op, const QrnicDataSeg *seg,
                unsigned count);
void tags_ring(Tags *x);
/* Both */
void tags_post(Tags *x, QrnicTagOp op, const QrnicDataSeg *seg,
               unsigned count);
/* An entry of two segments, length bytes in all; no CQE */
void tags_add(Tags *x, uint32_t handle, uint64_t tag, uint64_t mask,
              uint32_t length);

/* x->message is made: the header, and len bytes behind it. */
void tags_message(Tags *x, uint8_t kind, uint64_t tag, uint32_t len);
/* A rendezvous for these bytes; 32 bytes in all */
void tags_rendezvous(Tags *x, uint64_t tag, uint64_t va, uint32_t rkey,
                     uint32_t len);
/* So many bytes of x->message are sent to this queue pair of the SRQ. */
void tags_send(Tags *x, uint32_t len);
void tags_expect_ack(Tags *x);
void tags_expect_nak(Tags *x, uint8_t syndrome);
/* A message of one packet, and its ACK */
void tags_eager(Tags *x, uint64_t tag, uint32_t len);

/* What completes in the CQ of the list */
QrnicCqe tags_cqe(Tags *x, unsigned status, unsigned opcode, uint8_t tagged);
void tags_no_cqe(Tags *x);
void tags_expect_op(Tags *x, unsigned opcode, uint8_t sync);
/* raw: 64 bytes, or NULL */
void tags_expect_match(Tags *x, uint32_t handle, uint8_t valid,
                       unsigned status, uint32_t byte_len, uint8_t *raw);
void tags_expect_entry(Tags *x, uint32_t handle, uint8_t valid,
                       unsigned status, unsigned syndrome, uint32_t byte_len);
/* x->message, of len bytes, is in this WQE, whole. */
void tags_expect_wqe(Tags *x, unsigned opcode, uint8_t sync, uint32_t slot,
                     uint32_t len);
/* What was behind its header is in the entry's buffer, and no more. */
void tags_expect_data(Tags *x, uint32_t handle, uint32_t len);

/* The rig's own queue pair, and the list, do what they always did. */
void tags_others_live(Tags *x);
void tags_expect_event(Tags *x, unsigned type, unsigned subtype,
                       uint32_t object);
void tags_expect_state(Tags *x, const Qp *qp, unsigned state);
/* A packet that the device must send, but for opcode and payload */
PeerPacket tags_from_us(uint32_t psn);

#endif
