/*
 * The world of all tests of tag matching: an SRQ with a tag list, and up to
 * three peers that send to it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_TAGS_WORLD_H
#define QRNIC_TEST_TAGS_WORLD_H

#include "pair.h"

#define MOST_PEERS 3
#define LOG_SLOTS 5
#define LOG_OPS 6
#define TAGS 64
#define BUFFER 4096u            /* Bytes of an entry, a WQE and a message */
#define WQES (1u << LOG_SLOTS)
#define MESSAGES 256u           /* Places for messages at the sender */
#define FIN_WQES 32u
#define HEADER QRNIC_TAG_HEADER_SIZE
#define HEADERS QRNIC_RENDEZVOUS_SIZE
#define ALL (~0ull)

#define ENTRY QRNIC_CQET_ENTRY
#define MATCH QRNIC_CQET_MATCH
#define VALID QRNIC_CQET_DATA_VALID
#define SYNC QRNIC_CQET_SYNC_REQ

enum { NO_TAG, RNDV, FIN, EAGER };

typedef struct World {
    Sim *sim;
    SimNode *a, *b;             /* Sender, receiver */
    SimSrq *srq;
    /* Only the CQ, which is that of the list, is used */
    SimQp *cq;
    uint64_t ring, record;
    uint32_t max_tags;
    uint32_t producer;          /* Of operations */
    unsigned peers;
    SimQp *from[MOST_PEERS], *to[MOST_PEERS];
    uint64_t source, data, fins, entries, wqes;
    uint32_t source_key, data_key, fin_key, entry_key, wqe_key;
    uint32_t sent;
    unsigned gap, seen;         /* Packets to lose, and packets so far */
    uint8_t mtu;
} World;

World *world_bare(uint32_t seed, unsigned peers, const SimOptions *o);
/* Creates the connected world, with WQEs for messages and for FINs. */
World *world_new(uint32_t seed, unsigned peers);
World *world_of(uint32_t seed, unsigned peers, const SimOptions *o);
/* Creates a world with one peer on the same node. */
World *world_local(uint32_t seed, uint32_t max_tags);
void world_free(World *w);
/* Runs until all work is done. */
void settle(World *w);
/* Returns a counter of the receiver. */
uint64_t counted(World *w, enum qrnic_counter c);
void peer_connect(World *w, unsigned i);
QrnicTagListCtx list_ctx(World *w);
void post_wqe(World *w);
void post_fin(World *w, unsigned i);
/* Returns the buffer of a WQE of the sender's RQ. */
uint64_t fin_at(const World *w, unsigned i, uint32_t index);

/* Software */

/* Writes an operation into ring and record, without a doorbell. */
void op_write(World *w, const QrnicTagOp *op, const SimSge *sge,
              unsigned num_sge);
void list_ring(World *w);
/* Writes an operation and rings. Returns the index. */
uint32_t op_post(World *w, QrnicTagOp op, const SimSge *sge,
                 unsigned num_sge);
QrnicTagOp add_op(uint32_t handle, uint64_t tag, uint64_t mask);
QrnicTagOp del_op(uint32_t handle);
QrnicTagOp sync_op(uint32_t unexpected);
QrnicTagOp with_count(QrnicTagOp op, uint32_t unexpected);
uint64_t entry_at(const World *w, uint32_t handle);
/* Posts an entry of two segments; the first has an odd length. */
void entry_post(World *w, QrnicTagOp op, uint32_t len);
void add(World *w, uint32_t handle, uint64_t tag, uint64_t mask);
uint8_t *source_of(const World *w, uint32_t number);
uint8_t *data_of(const World *w, uint32_t number);
/* Sends the bytes at the place of the next message. Returns its number. */
uint32_t send_raw(World *w, unsigned i, uint32_t len, uint8_t flags);
/* Sends an eager message. len: bytes behind the header. */
uint32_t send_eager(World *w, unsigned i, uint64_t tag, uint32_t len);
/* Writes the headers at the place of the next message. */
void rndv_put(World *w, uint64_t tag, uint32_t key, uint32_t len);
uint32_t send_rndv(World *w, unsigned i, uint64_t tag, uint32_t len);

/* Expectations */

QrnicCqe next_cqe(World *w);
void expect_nothing(World *w);
void expect_op(World *w, uint8_t opcode, uint8_t status,
               uint8_t syndrome, uint8_t sync);
/* Returns tag and number of a message from a CQE with MATCH. */
void polled_tag(World *w, uint64_t *tag, uint32_t *number);
QrnicCqe expect_entry(World *w, uint32_t handle, uint8_t tagged,
                      uint8_t status, uint32_t len);
void expect_match(World *w, uint32_t handle, uint8_t tagged,
                  uint8_t status, uint32_t len, uint32_t number);
void expect_eager_data(World *w, uint32_t handle, uint32_t number,
                       uint32_t len);
/* Asserts an eager message of one packet, or a rendezvous. */
void expect_eager(World *w, uint32_t handle, uint32_t number,
                  uint32_t len);
void expect_rndv(World *w, uint32_t handle, uint32_t number,
                 uint32_t len);
/* Asserts the sender's completion of the message, and the FIN. */
void expect_sent(World *w, unsigned i);
void expect_fin(World *w, unsigned i, uint32_t number);
/* Asserts a message in a WQE, and posts the slot again. */
void expect_wqe(World *w, uint8_t opcode, uint8_t tagged,
                uint32_t number, uint32_t len);
void expect_unexpected(World *w, uint8_t tagged, uint32_t number,
                       uint32_t len);

#endif
