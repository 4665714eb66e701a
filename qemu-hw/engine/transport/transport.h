/*
 * qrnic engine, layer transport: types of queue pairs, and received packets
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each file below transport/ implements a type of queue pair or a part of one.
 * The types are tables, QrnicQpOps, which floor.c registers. The layer fabric
 * calls qrnic_roce_receive() for a RoCE frame, which finds the queue pair and
 * calls its receive operation, and qrnic_ethernet_receive() for any other
 * frame. This header declares the functions that several folders use: messages
 * that arrive (inbound.c), datagrams, multicast, XRC, and Ethernet.
 * QrnicTransports is the state for the whole device.
 */

#ifndef QRNIC_ENGINE_TRANSPORT_H
#define QRNIC_ENGINE_TRANSPORT_H

#include "engine/qp/qp_receive.h"
#include "engine/qp/qp_send.h"
#include "engine/qp/qp_wait.h"

/*
 * Returns the transport service of the opcodes that the queue pair sends. An
 * operation has the same number in each service.
 */
static inline uint8_t qrnic_qp_service(const QrnicQp *qp)
{
    return qp->ops->service;
}

/*
 * Returns true if the pkey is the default one. The top bit only distinguishes
 * full and limited membership (10.9.3).
 */
static inline bool qrnic_pkey_matches(const QrnicPacket *p)
{
    return !((p->t.pkey ^ QRNIC_PKEY_DEFAULT) & 0x7fff);
}

extern const QrnicQpOps qrnic_rc_ops, qrnic_carrier_ops,
    qrnic_xrc_initiator_ops, qrnic_xrc_target_ops,
    qrnic_dynamic_initiator_ops, qrnic_dynamic_target_ops, qrnic_uc_ops,
    qrnic_ud_ops, qrnic_gsi_ops, qrnic_raw_packet_ops;

/*
 * wqe_shape.c: each function returns the segments of a send WQE with this
 * opcode; known is false if the type or the device lacks the opcode
 */
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

/* Message that arrives on a connection, reliable or unreliable (inbound.c) */
typedef struct QrnicInbound {
    enum { QRNIC_IDLE, QRNIC_IN_SEND, QRNIC_IN_WRITE } message;
    QrnicRecvWqe *recv;         /* consumed, but not completed; else NULL */
    bool inlined;               /* data goes into the CQE */
    uint64_t va;                /* address of a write, as in its RETH */
    uint32_t rkey, dma_len;
    uint64_t received;          /* bytes of the message so far */
} QrnicInbound;

typedef enum QrnicPlaced {
    QRNIC_PLACED_OK,
    QRNIC_PLACED_TOO_LONG,      /* exceeds the receive WQE, which is kept */
    QRNIC_PLACED_FAILED,        /* memory error; the WQE is completed */
    QRNIC_PLACED_ABSENT,        /* page absent; the WQE is kept */
} QrnicPlaced;

/*
 * Reports the event COMM_EST at the first request in RTR, because the peer has
 * reached RTS (9.9.1.1).
 */
void qrnic_inbound_arrived(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns true if the payload length is valid. All packets except the last have
 * the path MTU. Only a message of one packet may be empty.
 */
bool qrnic_inbound_length_ok(const QrnicQp *qp, const QrnicPacket *pkt);
/**
 * qrnic_inbound_take:
 * @e: engine
 * @qp: queue pair
 * @in: message; in->recv is the WQE after success
 *
 * Consumes a receive WQE for a message.
 *
 * Returns: QRNIC_TAKE_OK; QRNIC_TAKE_EMPTY if none is posted; QRNIC_TAKE_ERROR
 * if the WQE was invalid and has been completed; QRNIC_TAKE_BROKEN if the SRQ
 * is in error
 */
QrnicTake qrnic_inbound_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);
/**
 * qrnic_inbound_fail:
 * @e: engine
 * @qp: queue pair
 * @in: message with a receive WQE
 * @opcode: opcode of the CQE
 * @status: completion status
 * @syndrome: reason of the error
 *
 * Completes the receive WQE with an error. The caller decides on the state of
 * the queue pair.
 */
void qrnic_inbound_fail(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                        uint8_t opcode, uint8_t status, uint8_t syndrome);
/*
 * Completes the receive WQE of an unfinished message as flushed. Returns false
 * if there is none, or if only a place in a streaming buffer was returned.
 */
bool qrnic_inbound_flush(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);
/*
 * Returns the WQE to its queue, as if the WQE had not been consumed. in->recv
 * must exist.
 */
void qrnic_inbound_give_back(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);
/*
 * Frees the message. A WQE of an SRQ returns to the SRQ, because other queue
 * pairs can use it.
 */
void qrnic_inbound_cleanup(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in);

/* Returns the CQE for the message that this packet ends. */
QrnicCqe qrnic_inbound_cqe(const QrnicQp *qp, const QrnicInbound *in,
                           const QrnicPacket *pkt, uint8_t opcode);

/**
 * qrnic_inbound_send:
 * @e: engine
 * @qp: queue pair
 * @in: message, after qrnic_inbound_take() and qrnic_inbound_send_begin()
 * @pkt: packet of a send
 * @fault: access that has met an absent page
 *
 * Writes the payload of a packet to the receive WQE. After the last packet the
 * caller calls qrnic_inbound_send_end(), which completes the WQE.
 *
 * Returns: QRNIC_PLACED_OK, or QRNIC_PLACED_FAILED if the WQE was completed
 * with an error. QRNIC_PLACED_TOO_LONG and QRNIC_PLACED_ABSENT keep the WQE.
 * With QRNIC_PLACED_ABSENT a part of the payload may be written.
 */
void qrnic_inbound_send_begin(QrnicInbound *in);
QrnicPlaced qrnic_inbound_send(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt, QrnicFault *fault);
void qrnic_inbound_send_end(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                            const QrnicPacket *pkt);

/**
 * qrnic_inbound_check:
 * @e: engine
 * @qp: queue pair; its access rights are checked first
 * @pd: PD that the key must belong to
 * @rkey: key of the request
 * @va: address of the request
 * @len: length of the request
 * @access: right that the request needs
 * @k: the key, after success
 *
 * Checks the right of the peer to access memory.
 *
 * Returns: SYN_NONE, or the reason to reject the request
 */
enum qrnic_syndrome qrnic_inbound_check(QrnicEngine *e, QrnicQp *qp,
                                        uint32_t pd, uint32_t rkey,
                                        uint64_t va, uint64_t len,
                                        uint8_t access, QrnicMkey **k);

/*
 * The three parts of a write: begin checks the RETH, write copies the payload
 * of each packet, and end completes the message. The function
 * qrnic_inbound_write_fits() compares the payload with the length in the RETH:
 * only the last packet may and must reach it.
 */
enum qrnic_syndrome qrnic_inbound_write_begin(QrnicEngine *e, QrnicQp *qp,
                                              QrnicInbound *in,
                                              const QrnicPacket *pkt,
                                              uint32_t pd);
bool qrnic_inbound_write_fits(const QrnicInbound *in, const QrnicPacket *pkt);
/*
 * Writes the payload of a packet. Returns SYN_NONE, SYN_DMA if the memory
 * failed, SYN_PAGE_FAULT with *fault, or the reason why the key is not valid
 * any more.
 */
enum qrnic_syndrome qrnic_inbound_write(QrnicEngine *e, QrnicQp *qp,
                                        QrnicInbound *in,
                                        const QrnicPacket *pkt, uint32_t pd,
                                        QrnicFault *fault);
/* Ends a write. Completes the receive WQE that immediate data has consumed. */
void qrnic_inbound_write_end(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                             const QrnicPacket *pkt);

/*
 * Receives a datagram for a UD or GSI queue pair whose state allows it (ud.c).
 */
void qrnic_datagram_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);

/*
 * checksum.c: the ones' complement sum of big-endian 16-bit words. The second
 * function stores its complement at this place.
 */
uint16_t qrnic_checksum_add(const uint8_t *p, size_t len);
void qrnic_checksum_store(uint8_t *at, uint16_t sum);
/*
 * The first function sets the CQE flags of all correct checksums in a frame,
 * and returns true if one is wrong. The second writes all checksums into the
 * frame of h.
 */
bool qrnic_checksums_bad(const QrnicHeaders *h, uint8_t *flags);
void qrnic_checksums_fill(const QrnicHeaders *h, uint8_t *frame);

/* flow.c: flow rules */
/*
 * Each function returns the queue pair whose rule of this type matches the
 * frame, or NULL. The queue pair except, which has sent the frame, is skipped.
 */
QrnicQp *qrnic_flow_normal(QrnicEngine *e, const QrnicQp *except,
                           const QrnicHeaders *h);
QrnicQp *qrnic_flow_default(QrnicEngine *e, const QrnicQp *except,
                            const QrnicHeaders *h);
/*
 * Returns the next sniffer, from rule *i on, which begins with 0; NULL: no
 * other.
 */
QrnicQp *qrnic_flow_sniffer(QrnicEngine *e, const QrnicHeaders *h, uint32_t *i);
void qrnic_flow_qp_destroyed(QrnicEngine *e, const QrnicQp *qp);

/* xrc.c: SRQs of XRC domains */
/* Returns the SRQ of the current message of an XRC target, or NULL. */
QrnicSrq *qrnic_xrc_target_srq(QrnicEngine *e, const QrnicQp *qp);
/*
 * Returns the SRQ with this number if it belongs to the domain of the target;
 * else NULL.
 */
QrnicSrq *qrnic_xrc_srq(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn);
/*
 * Ends the use of an SRQ by all XRC targets, because the SRQ is about to be
 * destroyed.
 */
void qrnic_xrc_srq_destroyed(QrnicEngine *e, const QrnicSrq *srq);
/* Checks CREATE_QP of an XRC target. */
QrnicResult qrnic_xrc_target_check(QrnicEngine *e, const QrnicQpCtx *in);

/**
 * qrnic_multicast_receive:
 * @e: engine
 * @p: datagram to a multicast group
 * @loopback: true if this device has sent it
 *
 * Delivers a datagram to the queue pairs in its group, up to a limit
 * (multicast.c). Later rounds call qrnic_multicast_process() for the others, so
 * that a large group does not delay the engine.
 *
 * Returns: number of queue pairs that have received it now
 */
unsigned qrnic_multicast_receive(QrnicEngine *e, const QrnicPacket *p,
                                 bool loopback);
bool qrnic_multicast_pending(const QrnicEngine *e);
void qrnic_multicast_process(QrnicEngine *e);
void qrnic_multicast_drop_rest(QrnicEngine *e);

/**
 * qrnic_ethernet_receive:
 * @e: engine
 * @h: headers of a frame that is not for the RoCE transport
 *
 * Receives a frame by the flow rules and the receive filter, or drops and
 * counts it (raw_packet.c).
 */
void qrnic_ethernet_receive(QrnicEngine *e, const QrnicHeaders *h);
/*
 * Returns the longest frame that the port accepts, with the VLAN tags of this
 * one.
 */
static inline size_t qrnic_ethernet_longest(const QrnicEngine *e,
                                            const QrnicHeaders *h)
{
    return e->fabric->port.mtu + QRNIC_ETH_LEN + h->tags_len;
}
/* Copies a frame to all sniffers. */
void qrnic_ethernet_sniff(QrnicEngine *e, const QrnicHeaders *h);

/**
 * qrnic_roce_receive:
 * @e: engine
 * @h: headers of a RoCE frame to a GID of this device
 * @loopback: true if this device has sent it
 *
 * Parses and validates a packet and passes it to its queue pair
 * (demultiplex.c). Invalid packets are dropped and counted.
 *
 * Returns: number of queue pairs that have received a multicast packet; 1
 * otherwise
 */
unsigned qrnic_roce_receive(QrnicEngine *e, const QrnicHeaders *h,
                            bool loopback);

/* segment.c: TCP segmentation of a WQE with ETHF_TSO */
typedef enum QrnicSegment {
    QRNIC_SEGMENT_FAILED,       /* status and syndrome have the reason */
    QRNIC_SEGMENT_MORE,         /* another frame follows */
    QRNIC_SEGMENT_LAST,
} QrnicSegment;

/*
 * Writes the next frame of the WQE, without the tag of ETHF_VLAN, and its
 * headers.
 */
QrnicSegment qrnic_segmentation_next(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicSendWqe *wqe, uint8_t *frame,
                                     QrnicHeaders *h, uint8_t *status,
                                     uint8_t *syndrome);
/*
 * Frees the state of a segmentation, so that its remaining frames are not sent.
 */
void qrnic_segmentation_drop(QrnicEngine *e, QrnicQp *qp);

/**
 * qrnic_coalesce:
 * @e: engine
 * @qp: queue pair that receives the frame
 * @h: headers of the frame
 * @flags: CQE flags of its checksums
 *
 * Decides if software may join a received TCP frame to the previous one of the
 * queue (coalesce.c).
 *
 * Returns: length of the headers if the frame continues the previous one; else
 * 0
 */
unsigned qrnic_coalesce(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                        uint8_t flags);
/* Forgets the previous frame, so that the next one begins a new sequence. */
void qrnic_coalesce_drop(QrnicEngine *e, QrnicQp *qp);

/* rss.c: receive-side scaling */
typedef struct QrnicRss QrnicRss;

typedef struct QrnicRssHash {
    uint32_t value;
    uint8_t of;                 /* QRNIC_RSS_*: hashed fields */
} QrnicRssHash;

/* Returns the queue pair of an RSS table for a frame with these headers. */
uint32_t qrnic_rss_qpn(QrnicEngine *e, uint32_t number, const QrnicHeaders *h,
                       QrnicRssHash *hash);
/*
 * Adds n users to the table: rules or filters. Returns false if it does not
 * exist.
 */
bool qrnic_rss_hold(QrnicEngine *e, uint32_t number, int n);

/* Multicast frame that some queue pairs of its group have not received yet */
typedef struct QrnicMulticastRest {
    bool loopback;
    /* serial number of the last attachment served */
    uint64_t after;
    QrnicHeaders headers;
    uint8_t data[];
} QrnicMulticastRest;

typedef struct QrnicTransports {
    QrnicMulticastRest *multicast_rest; /* NULL: no frame is unfinished */
    QrnicRxFilter rx_filter;
    QrnicTable flows, rss;
    /* rules in the order of their priority */
    struct QrnicFlow **flow;
    uint32_t num_flows;
    /* number of the last dynamic connection, before modulo 2^24 */
    uint64_t connection;
} QrnicTransports;

extern const QrnicFloor qrnic_transport_floor;

#endif
