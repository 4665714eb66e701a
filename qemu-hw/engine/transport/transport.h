/*
 * qrnic engine, floor transport: what each type of queue pair does with
 * messages and packets, and which packet is whose
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_TRANSPORT_H
#define QRNIC_ENGINE_TRANSPORT_H

#include "engine/qp/qp_receive.h"
#include "engine/qp/qp_send.h"
#include "engine/qp/qp_wait.h"

/* Of what it sends; the number of an operation is the same in each service. */
static inline uint8_t qrnic_qp_service(const QrnicQp *qp)
{
    return qp->ops->service;
}

/* The top bit tells full from limited membership (10.9.3). */
static inline bool qrnic_pkey_matches(const QrnicPacket *p)
{
    return !((p->t.pkey ^ QRNIC_PKEY_DEFAULT) & 0x7fff);
}

extern const QrnicQpOps qrnic_rc_ops, qrnic_carrier_ops,
    qrnic_xrc_initiator_ops, qrnic_xrc_target_ops,
    qrnic_dynamic_initiator_ops, qrnic_dynamic_target_ops, qrnic_uc_ops,
    qrnic_ud_ops, qrnic_gsi_ops, qrnic_raw_packet_ops;

/* wqe_shape.c */
QrnicWqeShape qrnic_rc_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode);
QrnicWqeShape qrnic_xrc_shape(const QrnicEngine *e, const QrnicQp *qp,
                              uint8_t opcode);
QrnicWqeShape qrnic_dynamic_shape(const QrnicEngine *e, const QrnicQp *qp,
                                  uint8_t opcode);
QrnicWqeShape qrnic_uc_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode);
QrnicWqeShape qrnic_ud_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode);
QrnicWqeShape qrnic_raw_packet_shape(const QrnicEngine *e, const QrnicQp *qp,
                                     uint8_t opcode);

/*
 * inbound.c: a message that arrives on a connection, reliable or not
 */
typedef struct QrnicInbound {
    enum { QRNIC_IDLE, QRNIC_IN_SEND, QRNIC_IN_WRITE } message;
    QrnicRecvWqe *recv;         /* taken and not completed; else NULL */
    bool inlined;               /* its data goes into the CQE */
    uint64_t va;                /* of a write, as its RETH has it */
    uint32_t rkey, dma_len;
    uint64_t received;          /* bytes of the message so far */
} QrnicInbound;

typedef enum QrnicPlaced {
    QRNIC_PLACED_OK,
    QRNIC_PLACED_TOO_LONG,      /* for the receive WQE, which is still held */
    QRNIC_PLACED_FAILED,        /* its memory: completed so */
    QRNIC_PLACED_ABSENT,        /* a page is; the receive WQE is still held */
} QrnicPlaced;

/* A request, the first one: the other end has reached RTS (9.9.1.1). */
void qrnic_inbound_arrived(QrnicEngine *e, QrnicQp *qp);
/* Packets but the last carry the path MTU, only an "only" may be empty. */
bool qrnic_inbound_length_ok(const QrnicQp *qp, const QrnicPacket *pkt);
/* Takes a receive WQE; TAKE_ERROR: it was bad, and is completed so. */
QrnicTake qrnic_inbound_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);
/* Completes the receive WQE with an error. */
void qrnic_inbound_fail(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                        uint8_t opcode, uint8_t status, uint8_t syndrome);
/* The one of a message cut short, as flushed; false: there is none. */
bool qrnic_inbound_flush(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);
/* As if the receive WQE, of which there is one, had not been taken */
void qrnic_inbound_give_back(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);
/* Gives it back to its SRQ, if it is of one. */
void qrnic_inbound_cleanup(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);

/* The CQE of the message that this packet ends */
QrnicCqe qrnic_inbound_cqe(const QrnicQp *qp, const QrnicInbound *in,
                           const QrnicPacket *pkt, uint8_t opcode);

/* A send: the WQE is taken, begin, the data of each packet, end completes. */
void qrnic_inbound_send_begin(QrnicInbound *in);
QrnicPlaced qrnic_inbound_send(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt, QrnicFault *fault);
void qrnic_inbound_send_end(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                            const QrnicPacket *pkt);

/* What the other end may do with a key; pd: that the key must be of */
enum qrnic_syndrome qrnic_inbound_check(QrnicEngine *e, QrnicQp *qp,
                                        uint32_t pd, uint32_t rkey,
                                        uint64_t va, uint64_t len,
                                        uint8_t access, QrnicMkey **k);

/* A write: RETH, the data of each packet, which fits, the end */
enum qrnic_syndrome qrnic_inbound_write_begin(QrnicEngine *e, QrnicQp *qp,
                                              QrnicInbound *in,
                                              const QrnicPacket *pkt,
                                              uint32_t pd);
bool qrnic_inbound_write_fits(const QrnicInbound *in, const QrnicPacket *pkt);
/* QRNIC_SYN_DMA: memory failed; else the key is not, or not any more, right */
enum qrnic_syndrome qrnic_inbound_write(QrnicEngine *e, QrnicQp *qp,
                                        QrnicInbound *in,
                                        const QrnicPacket *pkt, uint32_t pd,
                                        QrnicFault *fault);
/* Completes the receive WQE that immediate data takes. */
void qrnic_inbound_write_end(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                             const QrnicPacket *pkt);

/* ud.c: a packet for this UD or GSI queue pair, which can receive */
void qrnic_datagram_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);

/* checksum.c: ones-complement sum of big-endian words, not complemented */
uint16_t qrnic_checksum_add(const uint8_t *p, size_t len);
void qrnic_checksum_store(uint8_t *at, uint16_t sum);
/*
 * Of a frame: sets the CQE flags of what is right, and returns true if
 * something is wrong; or writes all of them, into the frame of h.
 */
bool qrnic_checksums_bad(const QrnicHeaders *h, uint8_t *flags);
void qrnic_checksums_fill(const QrnicHeaders *h, uint8_t *frame);

/* flow.c */
/* The queue pair whose rule takes the frame; except, if not NULL, has none. */
QrnicQp *qrnic_flow_normal(QrnicEngine *e, const QrnicQp *except,
                           const QrnicHeaders *h);
QrnicQp *qrnic_flow_default(QrnicEngine *e, const QrnicQp *except,
                            const QrnicHeaders *h);
/* The next sniffer from rule *i on, which begins with 0; NULL: there is none */
QrnicQp *qrnic_flow_sniffer(QrnicEngine *e, const QrnicHeaders *h, uint32_t *i);
void qrnic_flow_qp_destroyed(QrnicEngine *e, const QrnicQp *qp);

/* xrc.c */
/* What a target receives from now */
QrnicSrq *qrnic_xrc_target_srq(QrnicEngine *e, const QrnicQp *qp);
/* The SRQ of this number, if the target may receive into it; else NULL */
QrnicSrq *qrnic_xrc_srq(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn);
/* An XRC SRQ is about to go: what was received into it goes nowhere now. */
void qrnic_xrc_srq_destroyed(QrnicEngine *e, const QrnicSrq *srq);
/* CREATE_QP of a target */
QrnicResult qrnic_xrc_target_check(QrnicEngine *e, const QrnicQpCtx *in);

/*
 * multicast.c: returns how many queue pairs it was delivered to. Where there
 * are many, the others get it from qrnic_multicast_process().
 */
unsigned qrnic_multicast_receive(QrnicEngine *e, const QrnicPacket *p,
                                 bool loopback);
bool qrnic_multicast_pending(const QrnicEngine *e);
void qrnic_multicast_process(QrnicEngine *e);
void qrnic_multicast_drop_rest(QrnicEngine *e);

/* raw_packet.c: a frame that is not for the transport. */
void qrnic_ethernet_receive(QrnicEngine *e, const QrnicHeaders *h);
/* The longest frame that the port takes, with the tags of this one */
static inline size_t qrnic_ethernet_longest(const QrnicEngine *e,
                                            const QrnicHeaders *h)
{
    return e->fabric->port.mtu + QRNIC_ETH_LEN + h->tags_len;
}
/* Copies of any frame for the sniffers */
void qrnic_ethernet_sniff(QrnicEngine *e, const QrnicHeaders *h);

/*
 * demultiplex.c: UDP port 4791 addressed to a GID of ours: parse, ICRC, whose.
 * Returns how many have got it, if it was for a group.
 */
unsigned qrnic_roce_receive(QrnicEngine *e, const QrnicHeaders *h,
                            bool loopback);

/* segment.c: a WQE with ETHF_TSO */
typedef enum QrnicSegment {
    QRNIC_SEGMENT_FAILED,       /* *status and *syndrome say why */
    QRNIC_SEGMENT_MORE,         /* another one follows */
    QRNIC_SEGMENT_LAST,
} QrnicSegment;

/* Makes the next frame of it, but for the tag of ETHF_VLAN, and walks it. */
QrnicSegment qrnic_segmentation_next(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicSendWqe *wqe, uint8_t *frame,
                                     QrnicHeaders *h, uint8_t *status,
                                     uint8_t *syndrome);
/* What is left of it is not sent. */
void qrnic_segmentation_drop(QrnicEngine *e, QrnicQp *qp);

/*
 * coalesce.c: a frame that is about to be completed, with the CQE flags of its
 * checksums. Returns the bytes of its headers if it continues the one before in
 * this queue, else 0.
 */
unsigned qrnic_coalesce(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                        uint8_t flags);
/* No frame continues the last one. */
void qrnic_coalesce_drop(QrnicEngine *e, QrnicQp *qp);

/* rss.c */
typedef struct QrnicRss QrnicRss;

typedef struct QrnicRssHash {
    uint32_t value;
    uint8_t of;                 /* QRNIC_RSS_*: what was hashed */
} QrnicRssHash;

/* The queue pair of the table that a frame with these headers goes to */
uint32_t qrnic_rss_qpn(QrnicEngine *e, uint32_t number, const QrnicHeaders *h,
                       QrnicRssHash *hash);
/* Something leads to the table (1), or not any more (-1). False: no table */
bool qrnic_rss_hold(QrnicEngine *e, uint32_t number, int n);

/* A frame that not all of its group have got */
typedef struct QrnicMulticastRest {
    bool loopback;
    uint64_t after;             /* attachments up to this one have */
    QrnicHeaders headers;
    uint8_t data[];
} QrnicMulticastRest;

typedef struct QrnicTransports {
    QrnicMulticastRest *multicast_rest; /* NULL: there is none */
    QrnicRxFilter rx_filter;
    QrnicTable flows, rss;
    struct QrnicFlow **flow;            /* in the order in which they match */
    uint32_t num_flows;
    uint64_t connection;        /* the last dynamic one; number mod 2^24 */
} QrnicTransports;

extern const QrnicFloor qrnic_transport_floor;

#endif
