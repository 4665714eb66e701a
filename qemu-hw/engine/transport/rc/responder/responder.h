/*
 * qrnic engine, transport: private header of the responder of a reliable
 * connection
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The responder executes the requests of the peer in the order of their PSNs
 * and sends replies. Only files of this folder and rc/connection.c include this
 * header. rc.h declares the functions for other files.
 *
 * The demultiplexer calls qrnic_responder_receive() (sequence.c), which
 * compares the PSN and then executes (execute.c), buffers (reorder.c), repeats
 * (resources.c) or drops the request. Replies become pending in reply.c, and
 * qrnic_responder_step() sends them when the scheduler serves the queue pair.
 * InfiniBand specification, 9.7.
 */

#ifndef QRNIC_ENGINE_RESPONDER_H
#define QRNIC_ENGINE_RESPONDER_H

#include "engine/transport/rc/rc.h"

/*
 * Packets out of order (reorder.c), in the window that begins with the expected
 * PSN
 */
typedef struct QrnicBuffered {
    QrnicTransport t;
    const QrnicOpcodeInfo *info;
    bool placed;                /* payload written to memory; not stored here */
    uint32_t payload_len;
    uint8_t payload[];
} QrnicBuffered;

typedef struct QrnicReorder {
    QrnicQp *qp;
    QTAILQ_ENTRY(QrnicReorder) next;    /* list by the power of two of bytes */
    size_t bytes;               /* bytes of packets not executed yet */
    int64_t progress_at;        /* last change of the expected PSN */
    uint32_t count;             /* buffered packets, at least 1 */
    QrnicBuffered *at[QRNIC_WINDOW];    /* indexed by PSN */
} QrnicReorder;

/*
 * Responder resource: a read or atomic whose response can be repeated
 * (9.7.5.1.2). Atomic writes and flushes have a response like an empty read
 * (A19).
 */
typedef struct QrnicResource {
    bool valid, atomic;
    uint8_t opcode;
    uint8_t transmission;       /* transmission number of the current request */
    bool pending;               /* responses remain to be sent */
    bool repeated;              /* response was sent before */
    /* credits for the AETH at the time of the request */
    uint8_t syndrome;
    uint32_t msn;               /* MSN for the AETH (9.7.7.1) */
    uint32_t first_psn, last_psn;
    uint32_t srqn;              /* XRC */
    uint32_t rkey;
    uint32_t next_psn;          /* PSN of the next response */
    uint64_t va;
    union {
        uint64_t original;      /* original value of an atomic */
        struct {
            uint32_t length;
            uint32_t start_psn; /* first PSN of the current request */
        };
    };
} QrnicResource;

/*
 * Pending replies (reply.c), in the order in which they are sent, and
 * conditions for which they wait. Responses to reads and atomics are sent
 * between RNR and NAK.
 */
enum {
    QRNIC_REPLY_SACK = 1 << 0,  /* sent first, but after a pending NAK */
    /* RNR NAK of a response that waits for a page */
    QRNIC_REPLY_RNR = 1 << 1,
    QRNIC_REPLY_NAK = 1 << 2,
    QRNIC_REPLY_ACK = 1 << 3,
    QRNIC_REPLY_PAGE = 1 << 4,  /* the oldest response waits for a page */
    /* an ACK follows when a WQE is posted */
    QRNIC_REPLY_CREDITS = 1 << 5,
};

typedef enum QrnicResponderState {
    QRNIC_IN_SEQUENCE,
    QRNIC_RETRY_REQUESTED,
    QRNIC_FATAL_NAK_PENDING,
    QRNIC_FATAL_NAK_SENT,
} QrnicResponderState;

/* Members that each packet reads come first. See QrnicQp. */
struct QrnicResponder {
    uint32_t epsn;              /* expected PSN */
    uint32_t msn;
    QrnicInbound in;
    uint32_t srqn;              /* XRC target: SRQ of the message; else 0 */

    QrnicReorder *reorder;         /* NULL: no packet is buffered */
    uint8_t state;              /* enum QrnicResponderState */
    /* transmission number of the last request */
    uint8_t latest_transmission;
    uint32_t latest_psn;
    /* adaptive: time when a missing PSN is reported; 0: none */
    int64_t gap_deadline;
    bool more;                  /* adaptive: packets of the write follow */

    uint8_t replies;            /* QRNIC_REPLY_* */
    uint8_t nak;                /* AETH syndrome of the NAK */
    uint32_t ack_psn;
    /* highest PSN dropped behind the expected PSN */
    uint32_t dropped_psn;

    /*
     * Ring of max_dest_rd_atomic entries, allocated at the first read or atomic
     */
    uint32_t responses_pending;
    QrnicResource *resource;
    uint32_t resource_count;
    uint32_t resource_next;     /* entry of the next read or atomic */

    uint64_t adaptive_len;      /* adaptive: bytes of the current write */
    /* time when the wait requested by the last RNR NAK ends */
    int64_t rnr_until;
    uint8_t event, event_subtype;       /* event with the fatal NAK; 0: none */
    uint32_t nak_psn;           /* PSN of the fatal NAK */
    /* time when the NAK stops waiting for the wire */
    int64_t nak_deadline;
    uint32_t wire_epoch;        /* state of qrnic_path_stands_still() */
    QrnicConnectionTimes times;
};

/*
 * reorder.c: buffers a packet of the window. Returns false if there is no room.
 */
bool qrnic_reorder_put(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                       bool placed);
/*
 * Returns true if there is room for the header of another member packet that is
 * executed out of order.
 */
bool qrnic_reorder_may_execute(const QrnicEngine *e);
/* Compares a packet with the buffered one of the same PSN, which must exist. */
void qrnic_reorder_compare(QrnicEngine *e, const QrnicQp *qp,
                           const QrnicPacket *pkt);
static inline bool qrnic_reorder_has(const QrnicReorder *h, uint32_t psn)
{
    return h && h->at[psn % QRNIC_WINDOW];
}
/*
 * Removes a packet from the reorder buffer. The caller must free the packet.
 * Returns NULL if no packet with this PSN is buffered.
 */
QrnicBuffered *qrnic_reorder_take(QrnicEngine *e, QrnicQp *qp, uint32_t psn);
void qrnic_buffered_free(QrnicEngine *e, QrnicBuffered *p);
/* Drops the buffered packets with count PSNs, the first of which is psn. */
void qrnic_reorder_drop(QrnicEngine *e, QrnicQp *qp, uint32_t psn,
                        uint32_t count);
void qrnic_reorder_cleanup(QrnicEngine *e, QrnicQp *qp);
/* Drops the packets of a connection that has made no progress for too long. */
void qrnic_reorder_timer(QrnicEngine *e, QrnicQp *qp);
/* Writes the bits of a SACK: which PSNs of the window are buffered. */
void qrnic_reorder_tell(const QrnicReorder *h, uint32_t expected,
                        uint8_t arrived[QRNIC_SACK_BYTES]);

/*
 * The files of the responder, in the order of calls: each file calls only files
 * listed before it.
 */

/* rkey.c: rights of the peer */
/*
 * Returns the PD that keys of the peer must belong to. srqn is the SRQ that an
 * XRC request names.
 */
uint32_t qrnic_remote_pd(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn);
enum qrnic_syndrome qrnic_remote_check(QrnicEngine *e, QrnicQp *qp,
                                       uint32_t srqn, uint32_t rkey,
                                       uint64_t va, uint64_t len,
                                       uint8_t access, QrnicMkey **k);
/* Traces a rejected key. Does nothing if the syndrome is SYN_NONE. */
void qrnic_remote_trace(QrnicEngine *e, const QrnicQp *qp, uint32_t rkey,
                        uint64_t va, uint64_t len,
                        enum qrnic_syndrome syndrome);

/* resources.c: responder resources and the life of the responder */
/* Returns the oldest resource with a pending response, which must exist. */
QrnicResource *qrnic_resource_first(QrnicResponder *r);
/* Records that the response is complete. */
void qrnic_resource_finish(QrnicResponder *r, QrnicResource *x);
/*
 * Repeats the response to a retransmitted request. Returns true if this
 * response waits for a page.
 */
bool qrnic_resource_repeat(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);
/*
 * Resizes the ring of resources to max_dest_rd_atomic. The newest ones are
 * kept.
 */
void qrnic_responder_attr_changed(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns true if count resources hold all requests without a complete
 * response.
 */
bool qrnic_responder_can_keep(const QrnicQp *qp, uint32_t count);

/* reply.c: states and pending replies */
void qrnic_reply_ack(QrnicEngine *e, QrnicQp *qp, uint32_t psn);
/*
 * Requests a retransmission from the expected PSN on, by a NAK or an RNR NAK.
 */
void qrnic_reply_nak(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
void qrnic_reply_sack(QrnicEngine *e, QrnicQp *qp);
/* Answers a repeated request for the response that waits for a page. */
void qrnic_reply_rnr(QrnicEngine *e, QrnicQp *qp);
/* Records that an RNR NAK has reported that no receive WQE is posted. */
void qrnic_reply_credits(QrnicEngine *e, QrnicQp *qp);
/* Sends the fatal NAK again, because the previous one may be lost. */
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
 * Rejects the request: after the NAK is sent, the queue pair goes to ERR. The
 * event is 0 if a receive completion reports the error. Always returns false.
 */
bool qrnic_refuse_request(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome,
                          uint8_t event, uint8_t event_subtype);
bool qrnic_refuse_invalid(QrnicEngine *e, QrnicQp *qp);
bool qrnic_refuse_access(QrnicEngine *e, QrnicQp *qp);
bool qrnic_refuse_operation(QrnicEngine *e, QrnicQp *qp);
/* Returns the AETH syndrome of an ACK with the current credits. */
uint8_t qrnic_credits_now(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns the RNR timer for an absent page. The timer is at least 0.96 ms,
 * because a requester that retries too early would keep software busy.
 */
uint8_t qrnic_rnr_page_timer(const QrnicQp *qp);
void qrnic_responder_timer(QrnicEngine *e, QrnicQp *qp);

/*
 * tagged.c: sends to an SRQ with a tag list. This send consumes an entry of the
 * list (recv->tag) or a receive WQE.
 */
QrnicTake qrnic_tagged_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                            const QrnicPacket *pkt);
QrnicPlaced qrnic_tagged_place(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt, QrnicFault *fault);
/*
 * Posts a CQE for the first and the last packet of a message after the payload
 * of the packet is in memory.
 */
void qrnic_tagged_placed(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                         const QrnicPacket *pkt);
/*
 * Returns the entry to the tag list, which completes it. Called before the
 * queue pair is freed.
 */
void qrnic_tagged_abandon(QrnicEngine *e, QrnicInbound *in);

/* rnr.c: decisions on RNR NAKs */
/*
 * Consumes a receive WQE, or an entry of a tag list. Returns false if none is
 * posted or the WQE is invalid; a NAK is then pending.
 */
bool qrnic_rnr_take_wqe(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);
/*
 * Returns true if the packet has met an absent page; an RNR NAK is then
 * pending. The retransmitted packet overwrites the data that was written.
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
/*
 * Returns true if a packet out of sequence needs another NAK, because the time
 * of the RNR NAK has passed.
 */
bool qrnic_rnr_is_over(QrnicEngine *e, const QrnicResponder *r, uint32_t psn);

/**
 * qrnic_responder_execute:
 * @e: engine
 * @qp: queue pair
 * @pkt: expected request, whose opcode may follow the previous one
 * @placed: true if its payload is in memory already
 * @psns: number of its PSNs; set only if not 1
 *
 * Executes a request (execute.c).
 *
 * Returns: true if executed; false if a reply is pending and the request stays
 * expected
 */
bool qrnic_responder_execute(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, bool placed,
                             uint32_t *psns);
/*
 * Returns true for a packet of an adaptive write, which has its own address and
 * length. Both ends must have the option.
 */
static inline bool qrnic_is_adaptive(const QrnicQp *qp, const QrnicPacket *pkt)
{
    return qp->attr.options & QRNIC_QPO_ADAPTIVE_ROUTING &&
           pkt->t.mark & QRNIC_MARK_PLACES &&
           pkt->t.mark & QRNIC_MARK_ADAPTIVE &&
           pkt->info->flags & QRNIC_OPF_WRITE;
}
/*
 * Writes the payload of a packet out of order to memory. Returns true on
 * success.
 */
bool qrnic_responder_place(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);

/* sequence.c: order of requests */
/* Reports a sequence gap that adaptive routing has not filled in time. */
void qrnic_responder_gap_timer(QrnicEngine *e, QrnicQp *qp);
/*
 * Executes one buffered packet. Returns false if the expected one is not
 * buffered.
 */
bool qrnic_responder_go_on(QrnicEngine *e, QrnicQp *qp);
/*
 * Completes the receive WQE of an unfinished message as flushed, and drops
 * buffered packets, in ERR. Returns false if there is no such WQE.
 */
bool qrnic_responder_flush_one(QrnicEngine *e, QrnicQp *qp);
/*
 * Sends new credits, because software has posted receive WQEs. In ERR schedules
 * the flush.
 */
void qrnic_responder_doorbell(QrnicEngine *e, QrnicQp *qp);

#endif
