/*
 * qrnic qtest: an SRQ with a tag list, and a queue pair that uses it
 *
 * Owns the SRQ, its ring of tag operations and one connection. The test is the
 * library that adds entries, and the peer that sends messages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_TAG_LIST_H
#define QRNIC_QTEST_TAG_LIST_H

#include "driver.h"

#define TAGS 8u
#define OPS_LOG 3
/* Log2 of the slots of an operation, which has up to six segments */
#define STRIDE_LOG 1
#define WQES_LOG 3
#define TAG_BUFFER 4096u        /* Bytes of an entry or a WQE */
#define ALL_BITS UINT64_MAX
#define PEER_MTU 1024u

#define ENTRY QRNIC_CQET_ENTRY
#define MATCH QRNIC_CQET_MATCH
#define VALID QRNIC_CQET_DATA_VALID
#define SYNC_REQ QRNIC_CQET_SYNC_REQ

/* Kinds of messages; the first byte of the tag header */
enum { NO_TAG, RENDEZVOUS, FIN, EAGER };

typedef struct Tags {
    Rig r;
    Cq cq;                      /* CQ of the tag list */
    Qp qp;
    uint32_t srqn, wqes, ops;   /* Producer indices */
    uint64_t srq_ring, srq_record, ring, record;
    uint32_t psn, other_psn;    /* Next PSN of the peer for qp and for r.qp */
    uint32_t messages;
    uint8_t message[8192];      /* The last message with its headers */
} Tags;

/* Starts the device with an empty tag list and an SRQ without WQEs. */
void tags_start(Tags *x, const char *properties);
/* Creates the objects again after a reset. */
void tags_start_again(Tags *x);
void tags_stop(Tags *x);

uint32_t tags_srq_create(Tags *x, QrnicSrqCtx ctx);
QrnicTagListCtx tags_list_ctx(Tags *x);
void tags_list_refused(Tags *x, uint32_t srqn, const QrnicTagListCtx *ctx,
                       unsigned status, uint32_t syndrome);
void tags_list_create(Tags *x, uint32_t srqn, const QrnicTagListCtx *ctx);
/* Creates another queue pair of the SRQ, connected like x->qp. */
void tags_qp_create(Tags *x, Qp *qp);

/* Posts the next WQE. Slot n has a buffer of its own. */
void tags_post_wqe(Tags *x);
/* Returns the offset of the buffer of a WQE or a handle in the rig's region. */
uint64_t tags_wqe_at(uint32_t slot);
uint64_t tags_entry_at(uint32_t handle);

QrnicTagOp tag_add(uint32_t handle, uint64_t tag, uint64_t mask);
QrnicTagOp tag_del(uint32_t handle);
QrnicTagOp tag_sync(uint32_t unexpected);
/*
 * Writes an operation into the ring, and the producer index, without a
 * doorbell. op.index is relative to the right index.
 */
void tags_write(Tags *x, QrnicTagOp op, const QrnicDataSeg *seg,
                unsigned count);
void tags_ring(Tags *x);
/* Writes an operation and rings the doorbell. */
void tags_post(Tags *x, QrnicTagOp op, const QrnicDataSeg *seg,
               unsigned count);
/* Adds an entry of two segments with length bytes in all, without a CQE. */
void tags_add(Tags *x, uint32_t handle, uint64_t tag, uint64_t mask,
              uint32_t length);

/* Makes x->message: header and len bytes of payload. */
void tags_message(Tags *x, uint8_t kind, uint64_t tag, uint32_t len);
/* Makes x->message a rendezvous request of 32 bytes for these bytes. */
void tags_rendezvous(Tags *x, uint64_t tag, uint64_t va, uint32_t rkey,
                     uint32_t len);
/* Sends len bytes of x->message to the SRQ's queue pair. */
void tags_send(Tags *x, uint32_t len);
void tags_expect_ack(Tags *x);
void tags_expect_nak(Tags *x, uint8_t syndrome);
/* Sends a message of one packet and asserts its ACK. */
void tags_eager(Tags *x, uint64_t tag, uint32_t len);

/* Returns the next CQE of the tag list's CQ. */
QrnicCqe tags_cqe(Tags *x, unsigned status, unsigned opcode, uint8_t tagged);
void tags_no_cqe(Tags *x);
void tags_expect_op(Tags *x, unsigned opcode, uint8_t sync);
/* Asserts a match. raw: 64 bytes for the CQE, or NULL. */
void tags_expect_match(Tags *x, uint32_t handle, uint8_t valid,
                       unsigned status, uint32_t byte_len, uint8_t *raw);
void tags_expect_entry(Tags *x, uint32_t handle, uint8_t valid,
                       unsigned status, unsigned syndrome, uint32_t byte_len);
/* Asserts that this WQE has all of x->message, of len bytes. */
void tags_expect_wqe(Tags *x, unsigned opcode, uint8_t sync, uint32_t slot,
                     uint32_t len);
/*
 * Asserts that the entry's buffer has the payload of x->message and no other
 * byte changed.
 */
void tags_expect_data(Tags *x, uint32_t handle, uint32_t len);

/* Asserts that the rig's own queue pair and the tag list still work. */
void tags_others_live(Tags *x);
void tags_expect_event(Tags *x, unsigned type, unsigned subtype,
                       uint32_t object);
void tags_expect_state(Tags *x, const Qp *qp, unsigned state);
/* Returns a packet that the device must send, without opcode and payload. */
PeerPacket tags_from_us(uint32_t psn);

#endif
