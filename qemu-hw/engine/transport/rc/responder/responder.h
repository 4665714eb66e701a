/*
 * qrnic engine: the responder of a reliable connection: private to its folder
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_RESPONDER_H
#define QRNIC_ENGINE_RESPONDER_H

#include "engine/transport/rc/rc.h"

/*
 * reorder.c: packets that arrived out of order, in the window that begins with
 * the expected PSN
 */
typedef struct QrnicBuffered {
    QrnicTransport t;
    const QrnicOpcodeInfo *info;
    bool placed;                /* its payload is in memory, and not here */
    uint32_t payload_len;
    uint8_t payload[];
} QrnicBuffered;

typedef struct QrnicReorder {
    QrnicQp *qp;
    QTAILQ_ENTRY(QrnicReorder) next;    /* by the power of two of bytes */
    size_t bytes;               /* buffered, of packets not yet executed */
    int64_t progress_at;        /* when the expected PSN changed last */
    uint32_t count;             /* one at least: else there is no such thing */
    QrnicBuffered *at[QRNIC_WINDOW];    /* by PSN */
} QrnicReorder;

/*
 * A request kept for repetition (9.7.5.1.2). Atomic writes and flushes are
 * answered as reads of no bytes are (A19).
 */
typedef struct QrnicResource {
    bool valid, atomic;
    uint8_t opcode;
    uint8_t transmission;       /* of the request answered now */
    bool pending;               /* responses are still to be sent */
    bool repeated;              /* they have been sent once before */
    uint8_t syndrome;           /* AETH: credits and MSN, as the request */
    uint32_t msn;               /* left them (9.7.7.1) */
    uint32_t first_psn, last_psn;
    uint32_t srqn;              /* XRC */
    uint32_t rkey;
    uint32_t next_psn;          /* of the next response, whichever it is */
    uint64_t va;
    union {
        uint64_t original;      /* atomic: the answer */
        struct {
            uint32_t length;
            uint32_t start_psn; /* of the request answered now */
        };
    };
} QrnicResource;

/*
 * reply.c: pending replies, in the order in which they go, and what they wait
 * for. Responses to RDMA READs and atomics go between RNR and NAK.
 */
enum {
    QRNIC_REPLY_SACK = 1 << 0,  /* but a NAK goes before it */
    QRNIC_REPLY_RNR = 1 << 1,   /* of the response that waits for a page */
    QRNIC_REPLY_NAK = 1 << 2,
    QRNIC_REPLY_ACK = 1 << 3,
    QRNIC_REPLY_PAGE = 1 << 4,  /* the oldest response waits for a page */
    QRNIC_REPLY_CREDITS = 1 << 5,       /* an ACK, when a WQE is posted */
};

typedef enum QrnicResponderState {
    QRNIC_IN_SEQUENCE,
    QRNIC_RETRY_REQUESTED,
    QRNIC_FATAL_NAK_PENDING,
    QRNIC_FATAL_NAK_SENT,
} QrnicResponderState;

/* What each packet looks at comes first; see QrnicQp. */
struct QrnicResponder {
    uint32_t epsn;              /* PSN expected */
    uint32_t msn;
    QrnicInbound in;
    uint32_t srqn;              /* XRC target: of the message; else 0 */

    QrnicReorder *reorder;         /* NULL: nothing is buffered */
    uint8_t state;              /* enum QrnicResponderState */
    uint8_t latest_transmission;        /* of the last request that arrived: */
    uint32_t latest_psn;
    int64_t gap_deadline;       /* adaptive: when a gap is reported; 0: none */
    bool more;                  /* of a write in packets that stand alone */

    uint8_t replies;            /* QRNIC_REPLY_* */
    uint8_t nak;                /* syndrome */
    uint32_t ack_psn;
    uint32_t dropped_psn;       /* the furthest one dropped beyond the gap */

    /* max_dest_rd_atomic of them, from the first read or atomic on */
    uint32_t responses_pending;
    QrnicResource *resource;
    uint32_t resource_count;
    uint32_t resource_next;     /* entry for the next read or atomic */

    uint64_t adaptive_len;      /* bytes so far, where there are more */
    int64_t rnr_until;          /* RNR NAK: end of the wait of the requester */
    uint8_t event, event_subtype;       /* with the fatal NAK; 0: none */
    uint32_t nak_psn;           /* of the fatal NAK that was sent */
    int64_t nak_deadline;       /* of the fatal NAK */
    uint32_t wire_epoch;        /* when it was last looked at */
    QrnicConnectionTimes times;
};

/* reorder.c. One of the window. False: it is not kept, as there is no room. */
bool qrnic_reorder_put(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                       bool placed);
/*
 * Returns true if there is room for another packet of a member that is executed
 * out of order.
 */
bool qrnic_reorder_may_execute(const QrnicEngine *e);
/* Compares a packet with the buffered one, which must be there. */
void qrnic_reorder_compare(QrnicEngine *e, const QrnicQp *qp,
                           const QrnicPacket *pkt);
static inline bool qrnic_reorder_has(const QrnicReorder *h, uint32_t psn)
{
    return h && h->at[psn % QRNIC_WINDOW];
}
/* Removes a packet, which the caller frees. Returns NULL if it is missing. */
QrnicBuffered *qrnic_reorder_take(QrnicEngine *e, QrnicQp *qp, uint32_t psn);
void qrnic_buffered_free(QrnicEngine *e, QrnicBuffered *p);
/* Drops so many packets from this PSN on. */
void qrnic_reorder_drop(QrnicEngine *e, QrnicQp *qp, uint32_t psn,
                        uint32_t count);
void qrnic_reorder_cleanup(QrnicEngine *e, QrnicQp *qp);
/* Drops the packets of a connection that has made no progress for too long. */
void qrnic_reorder_timer(QrnicEngine *e, QrnicQp *qp);
/* What a SACK says of the window */
void qrnic_reorder_tell(const QrnicReorder *h, uint32_t expected,
                        uint8_t arrived[QRNIC_SACK_BYTES]);

/*
 * The responder: each of these files uses only those before it.
 */

/* rkey.c */
/* The PD that keys must be of; srqn: XRC, of the request */
uint32_t qrnic_remote_pd(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn);
enum qrnic_syndrome qrnic_remote_check(QrnicEngine *e, QrnicQp *qp,
                                       uint32_t srqn, uint32_t rkey,
                                       uint64_t va, uint64_t len,
                                       uint8_t access, QrnicMkey **k);
/* Nothing if syndrome is none */
void qrnic_remote_trace(QrnicEngine *e, const QrnicQp *qp, uint32_t rkey,
                        uint64_t va, uint64_t len,
                        enum qrnic_syndrome syndrome);

/* resources.c */
/* The oldest of those that are to be answered; there is one. */
QrnicResource *qrnic_resource_first(QrnicResponder *r);
/* It has been answered. */
void qrnic_resource_finish(QrnicResponder *r, QrnicResource *x);
/*
 * Answers a retransmitted request again. Returns true if it is the request
 * whose response waits for a page.
 */
bool qrnic_resource_repeat(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);
/* max_dest_rd_atomic may have changed: the newest are kept. */
void qrnic_responder_attr_changed(QrnicEngine *e, QrnicQp *qp);
/* So many reads and atomics can be kept without losing one not answered. */
bool qrnic_responder_can_keep(const QrnicQp *qp, uint32_t count);

/* reply.c */
void qrnic_reply_ack(QrnicEngine *e, QrnicQp *qp, uint32_t psn);
/* Requests a retry from the expected PSN on: a NAK, or an RNR NAK. */
void qrnic_reply_nak(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
void qrnic_reply_sack(QrnicEngine *e, QrnicQp *qp);
/* The peer asks again for the response that waits for a page. */
void qrnic_reply_rnr(QrnicEngine *e, QrnicQp *qp);
/* An RNR NAK has reported that no receive WQE is posted. */
void qrnic_reply_credits(QrnicEngine *e, QrnicQp *qp);
/* Sends the fatal NAK again, because the one before may be lost. */
void qrnic_reply_fatal_again(QrnicEngine *e, QrnicQp *qp);
void qrnic_replies_cancelled(QrnicEngine *e, QrnicQp *qp, uint8_t replies);
static inline void qrnic_replies_cancel(QrnicEngine *e, QrnicQp *qp,
                                        uint8_t replies)
{
    if (qp->responder->replies & replies) {
        qrnic_replies_cancelled(e, qp, replies);
    }
}
void qrnic_responder_state_changed(QrnicEngine *e, QrnicQp *qp,
                                   QrnicResponderState to);
static inline void qrnic_responder_state_set(QrnicEngine *e, QrnicQp *qp,
                                             QrnicResponderState to)
{
    if (qp->responder->state != to) {
        qrnic_responder_state_changed(e, qp, to);
    }
}
/* Returns true if a fatal NAK is pending or sent: no request is executed. */
static inline bool qrnic_responder_has_failed(const QrnicResponder *r)
{
    return r->state >= QRNIC_FATAL_NAK_PENDING;
}
/*
 * Rejects the request: after the NAK is sent, the queue pair goes to ERR.
 * event: 0 if a receive completion reports the error. Always returns false.
 */
bool qrnic_refuse_request(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome,
                          uint8_t event, uint8_t event_subtype);
bool qrnic_refuse_invalid(QrnicEngine *e, QrnicQp *qp);
bool qrnic_refuse_access(QrnicEngine *e, QrnicQp *qp);
bool qrnic_refuse_operation(QrnicEngine *e, QrnicQp *qp);
/* The syndrome of an ACK that goes now */
uint8_t qrnic_credits_now(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns the RNR timer of an absent page. It is not shorter than a page takes,
 * because a requester that retries all the time would keep software busy.
 */
uint8_t qrnic_rnr_page_timer(const QrnicQp *qp);
void qrnic_responder_timer(QrnicEngine *e, QrnicQp *qp);

/*
 * tagged.c: a send to an SRQ with a tag list. It consumes a receive WQE, as
 * without a list, or an entry of the list: recv->tag.
 */
QrnicTake qrnic_tagged_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                            const QrnicPacket *pkt);
QrnicPlaced qrnic_tagged_place(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt, QrnicFault *fault);
/* Its data is placed: completes, where there is something to tell. */
void qrnic_tagged_placed(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                         const QrnicPacket *pkt);
/* Called before the queue pair is freed: the list completes its entry. */
void qrnic_tagged_abandon(QrnicEngine *e, QrnicInbound *in);

/* rnr.c */
/*
 * Consumes a receive WQE, or an entry of a tag list for a send. Returns false
 * if there is none, or it is bad: a NAK is pending.
 */
bool qrnic_rnr_take_wqe(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);
/*
 * Returns true if the packet has met an absent page: an RNR NAK is pending.
 * Data that has been written is written again when it is retransmitted.
 */
bool qrnic_rnr_page_fault(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                          enum qrnic_syndrome syndrome,
                          const QrnicFault *fault);
static inline bool qrnic_rnr_wait_for_page(QrnicEngine *e, QrnicQp *qp,
                                           const QrnicPacket *pkt,
                                           enum qrnic_syndrome syndrome,
                                           const QrnicFault *fault)
{
    return syndrome == QRNIC_SYN_PAGE_FAULT &&
           qrnic_rnr_page_fault(e, qp, pkt, syndrome, fault);
}
/* Returns true if a packet out of sequence needs a NAK of its own again. */
bool qrnic_rnr_is_over(QrnicEngine *e, const QrnicResponder *r, uint32_t psn);

/*
 * execute.c: executes the expected request, whose opcode may follow the one
 * before. placed: its payload is in memory already. *psns: the number of PSNs
 * that it takes, if not 1. Returns false if it was not executed: a reply is
 * pending, and the request stays expected.
 */
bool qrnic_responder_execute(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, bool placed,
                             uint32_t *psns);
/* A packet of a write that stands alone, where both ends have the option */
static inline bool qrnic_is_adaptive(const QrnicQp *qp, const QrnicPacket *pkt)
{
    return qp->attr.options & QRNIC_QPO_ADAPTIVE_ROUTING &&
           pkt->t.mark & QRNIC_MARK_PLACES &&
           pkt->t.mark & QRNIC_MARK_ADAPTIVE &&
           pkt->info->flags & QRNIC_OPF_WRITE;
}
/* Returns true if the payload of an early packet is placed in memory. */
bool qrnic_responder_place(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);

/* sequence.c */
/* Reports a gap that has not filled by itself. */
void qrnic_responder_gap_timer(QrnicEngine *e, QrnicQp *qp);
/* Executes one request that came ahead and was kept; false: there is none. */
bool qrnic_responder_go_on(QrnicEngine *e, QrnicQp *qp);
/*
 * In ERR: completes with flush status the receive WQE of a message cut short,
 * and forgets what came ahead.
 */
bool qrnic_responder_flush_one(QrnicEngine *e, QrnicQp *qp);
/* The receive queue has more; in ERR: to flush. */
void qrnic_responder_doorbell(QrnicEngine *e, QrnicQp *qp);

#endif
