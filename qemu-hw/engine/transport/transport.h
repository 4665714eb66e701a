/*
 * qrnic engine, floor transport: what each type of queue pair does with
 * messages and packets, and which packet is whose
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_TRANSPORT_H
#define QRNIC_ENGINE_TRANSPORT_H

#include "engine/qp/qp.h"
#include "engine/transport/reliability.h"

/*
 * The two halves of a reliable connection: InfiniBand specification, chapter
 * 9.7.
 */

/* Messages under way; a power of two. */
#define QRNIC_PENDING           256u
/* PSNs sent and not acknowledged, reads aside. */
#define QRNIC_WINDOW            256u
/* Within a message every such packet asks for an acknowledgement. */
#define QRNIC_ACK_INTERVAL      64u

/* A message of the send queue from when it is taken to when it is complete. */
typedef struct QrnicPending {
    uint32_t index, wqebbs;
    uint8_t opcode, flags;
    uint8_t status, syndrome;   /* status: it failed here, complete it so */
    bool executed;              /* a local operation, which has no PSN */
    uint32_t first_psn;
    uint32_t packets;           /* PSNs that it takes */
    uint32_t length;
    uint32_t ssn;               /* send sequence number */
    /* Running numbers, this message included (9.7.7.2 credits; fences). */
    uint32_t receives;          /* messages that take a receive WQE */
    uint32_t rd_number;         /* reads and atomics */
} QrnicPending;

/* What a read, atomic or flush needs until its response has come. */
typedef struct QrnicInitiated {
    uint64_t va, swap_add, compare;
    uint32_t rkey;
    QrnicFlushSeg flush;
    uint32_t srqn;              /* XRC */
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE + 1];
} QrnicInitiated;

struct QrnicRequester {
    QrnicPending ring[QRNIC_PENDING];
    uint32_t tail, head;        /* oldest incomplete; next free */
    uint32_t cursor;            /* message to send from */
    uint32_t cursor_psn;        /* next PSN to send */
    uint32_t next_psn;          /* first PSN that no message has */
    uint32_t sent_psn;          /* one above the highest PSN ever sent */
    uint32_t una;               /* lowest PSN not acknowledged */
    /* One above the last PSN sent that asks for an answer; una: none is due */
    uint32_t asked_psn;

    QrnicSendWqe wqe;           /* the one at the cursor, if it is loaded */
    bool wqe_loaded;
    uint32_t wqe_message;       /* its number in the ring */

    QrnicInitiated *initiated;  /* one more than max_rd_atomic */
    uint32_t initiated_count;
    uint32_t rd_taken, rd_done; /* running numbers */

    uint32_t ssn, ssn_done;
    uint32_t receives_taken, receives_done;
    bool credit_limited;
    uint32_t receives_limit;    /* last receive-consuming message allowed */
    bool probing;               /* sent without credit, answer awaited */

    bool stopped;               /* no further WQE is taken: a local error */
    bool stalled;               /* an answer must come before sending */
    bool recovering;            /* an implied NAK has been acted upon */
    bool rnr_wait;
    uint8_t retries, rnr_retries;       /* left */
    int64_t deadline;           /* of retransmission or RNR wait */
    uint32_t wire_epoch;        /* when it expired and the wire was busy */
};

/*
 * A request kept for repetition (9.7.5.1.2). Atomic writes and flushes are
 * answered as reads of no bytes are (A19).
 */
typedef struct QrnicReplay {
    bool valid, atomic;
    uint8_t opcode;
    bool pending;               /* responses are still to be sent */
    bool repeated;              /* they have been sent once before */
    uint32_t first_psn, last_psn;
    uint32_t next_psn;          /* of the next response */
    uint32_t start_psn;         /* of the request answered now */
    uint64_t va;
    uint32_t rkey, length;
    uint32_t srqn;              /* XRC */
    uint64_t original;
    uint8_t syndrome;           /* AETH: credits and MSN, as the request */
    uint32_t msn;               /* left them (9.7.7.1) */
} QrnicReplay;

struct QrnicResponder {
    uint32_t epsn;              /* PSN expected */
    uint32_t msn;
    enum { QRNIC_IDLE, QRNIC_IN_SEND, QRNIC_IN_WRITE } message;
    bool recv_valid;            /* recv is taken and not completed */
    QrnicRecvWqe recv;
    uint32_t srqn;              /* XRC target: of the message; else 0 */
    uint64_t va;
    uint32_t rkey, dma_len;
    uint64_t received;          /* bytes of the message so far */

    bool ack_owed;
    uint32_t ack_psn;
    bool nak_owed;
    uint8_t nak;                /* syndrome */
    int64_t rnr_until;          /* RNR NAK: nobody comes back before that */
    bool gap;                   /* NAKed, and the packet has not come yet */
    uint32_t dropped_psn;       /* the furthest one dropped beyond the gap */
    bool dead;                  /* fatal NAK owed: nothing is taken now */
    uint8_t event, event_subtype;       /* with the fatal NAK; 0: none */
    int64_t nak_deadline;       /* of the fatal NAK */
    uint32_t wire_epoch;        /* when it was last looked at */
    bool low_credit;            /* advertised none: tell when there is more */

    QrnicReplay *replay;
    uint32_t replay_count;
    uint32_t replay_next;       /* entry for the next read or atomic */
    uint32_t replay_pending;
};

/* Each does at most one packet; false: nothing to do or it must wait. */
bool qrnic_requester_step(QrnicEngine *e, QrnicQp *qp);
bool qrnic_responder_step(QrnicEngine *e, QrnicQp *qp);

/* The requester's messages under way as flushed; false: none is left. */
bool qrnic_requester_flush_one(QrnicEngine *e, QrnicQp *qp);
bool qrnic_requester_idle(const QrnicQp *qp);
uint32_t qrnic_requester_next_psn(const QrnicQp *qp);
void qrnic_requester_timer(QrnicEngine *e, QrnicQp *qp);
void qrnic_requester_attr_changed(QrnicEngine *e, QrnicQp *qp);

/* Completes with flush status the receive WQE of a message cut short. */
bool qrnic_responder_flush_one(QrnicEngine *e, QrnicQp *qp);
uint32_t qrnic_responder_expected_psn(const QrnicQp *qp);
void qrnic_responder_attr_changed(QrnicEngine *e, QrnicQp *qp);
/* So many reads and atomics can be kept without losing one not answered. */
bool qrnic_responder_can_keep(const QrnicQp *qp, uint32_t count);
void qrnic_responder_timer(QrnicEngine *e, QrnicQp *qp);
/* The receive queue has more; in ERR: to flush. */
void qrnic_responder_doorbell(QrnicEngine *e, QrnicQp *qp);

/* Of what it sends; the number of an operation is the same in each service. */
static inline uint8_t qrnic_qp_service(const QrnicQp *qp)
{
    return qp->ops->service;
}

extern const QrnicQpOps qrnic_rc_ops, qrnic_xrc_initiator_ops,
    qrnic_xrc_target_ops, qrnic_uc_ops, qrnic_ud_ops, qrnic_gsi_ops,
    qrnic_raw_packet_ops;

/* wqe_shape.c */
QrnicWqeShape qrnic_rc_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode);
QrnicWqeShape qrnic_xrc_shape(const QrnicEngine *e, const QrnicQp *qp,
                              uint8_t opcode);
QrnicWqeShape qrnic_uc_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode);
QrnicWqeShape qrnic_ud_shape(const QrnicEngine *e, const QrnicQp *qp,
                             uint8_t opcode);
QrnicWqeShape qrnic_raw_packet_shape(const QrnicEngine *e, const QrnicQp *qp,
                                     uint8_t opcode);

/* requester.c / responder.c, entered with a parsed and checked packet. */
void qrnic_rc_start_receive(QrnicEngine *e, QrnicQp *qp);       /* to RTR */
void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp);          /* to RTS */
void qrnic_requester_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
void qrnic_responder_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);

/* ud.c: a packet for this UD or GSI queue pair, which can receive */
void qrnic_datagram_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);

/* checksum.c: ones-complement sum of big-endian words, not complemented */
uint16_t qrnic_checksum_add(const uint8_t *p, size_t len);
void qrnic_checksum_store(uint8_t *at, uint16_t sum);
/*
 * Of an Ethernet frame, its header complete: sets the CQE flags of what is
 * right, and returns true if something is wrong; or writes all of them.
 */
bool qrnic_checksums_bad(const uint8_t *frame, size_t len, uint8_t *flags);
void qrnic_checksums_fill(uint8_t *frame, size_t len);

/* flow.c */
/* The queue pair whose rule takes the frame; except, if not NULL, has none. */
QrnicQp *qrnic_flow_normal(QrnicEngine *e, const QrnicQp *except,
                           const uint8_t *frame, size_t len);
QrnicQp *qrnic_flow_default(QrnicEngine *e, const QrnicQp *except,
                            const uint8_t *frame, size_t len);
/* Copies for the sniffers */
void qrnic_flow_sniff(QrnicEngine *e, const uint8_t *frame, size_t len);
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

/* multicast.c: returns how many queue pairs it was delivered to. */
unsigned qrnic_multicast_receive(QrnicEngine *e, const QrnicPacket *p,
                                 bool loopback);

/* raw_packet.c: a frame that is not for the transport. */
void qrnic_ethernet_receive(QrnicEngine *e, const uint8_t *frame, size_t len);
/* A copy of any frame, for a raw packet QP that can receive */
void qrnic_ethernet_copy(QrnicEngine *e, QrnicQp *qp, const uint8_t *frame,
                         size_t len);

/*
 * demultiplex.c: UDP port 4791 addressed to a GID of ours: parse, ICRC, whose.
 * Returns how many have got it, if it was for a group.
 */
unsigned qrnic_roce_receive(QrnicEngine *e, const uint8_t *frame, size_t len,
                            bool loopback);

/* rss.c */
typedef struct QrnicRss QrnicRss;

/*
 * The queue pair of the table that a frame with these fields, in the layout of
 * flow_match, goes to; present selects the fields that there are.
 */
uint32_t qrnic_rss_qpn(QrnicEngine *e, uint32_t number, const uint8_t *value,
                       const uint8_t *present);
/* A flow rule leads to the table (1), or not any more (-1). False: no table */
bool qrnic_rss_hold(QrnicEngine *e, uint32_t number, int n);

typedef struct QrnicTransports {
    QrnicRxFilter rx_filter;
    QrnicTable flows, rss;
    struct QrnicFlow **flow;            /* in the order in which they match */
    uint32_t num_flows, num_sniffers;
} QrnicTransports;

extern const QrnicFloor qrnic_transport_floor;

#endif
