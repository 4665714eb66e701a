/*
 * qrnic engine: reliable connections: a requester and a responder, which share
 * a queue pair and nothing else. InfiniBand specification, chapter 9.7.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_RC_H
#define QRNIC_ENGINE_RC_H

#include "engine/transport/transport.h"
#include "engine/transport/rc/reliability.h"

/* Messages under way; a power of two. */
#define QRNIC_PENDING           256u
/* So many share a piece of memory, which is there while one is under way. */
#define QRNIC_PENDING_CHUNK     32u
/* PSNs sent and not acknowledged, reads aside. */
#define QRNIC_WINDOW            256u
/* Within a message every such packet asks for an acknowledgement. */
#define QRNIC_ACK_INTERVAL      64u

/* What a read, atomic or flush needs until its response has come. */
typedef struct QrnicInitiated {
    uint64_t va, swap_add, compare;
    uint32_t pd;                /* of its data segments */
    uint32_t rkey;
    QrnicFlushSeg flush;
    uint32_t srqn;              /* XRC */
    uint32_t asked;             /* selective: when last, in transmissions */
    uint8_t asked_transmission; /* and which one that was */
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE + 1];
} QrnicInitiated;

/*
 * A message of the send queue from when it is taken to when it is complete. It
 * is no longer than a cache line: many queue pairs have many of them.
 */
typedef struct QrnicPending {
    uint32_t index, wqebbs;
    uint8_t opcode, flags;
    uint8_t status, syndrome;   /* status: it failed here, complete it so */
    bool executed;              /* a local operation, which has no PSN */
    bool adaptive;              /* a write whose packets take any path */
    uint32_t first_psn;
    uint32_t packets;           /* PSNs that it takes */
    uint32_t length;
    uint32_t ssn;               /* send sequence number */
    /* Running numbers, this message included (9.7.7.2 credits; fences). */
    uint32_t receives;          /* messages that take a receive WQE */
    uint32_t rd_number;         /* reads and atomics */
    QrnicInitiated *initiated;  /* of these; else NULL */
    QrnicTag *tag;              /* of a rendezvous: read or fin; else NULL */
    QrnicCarried *carried;      /* of a carrier, which has nothing else */
} QrnicPending;
QEMU_BUILD_BUG_ON(sizeof(QrnicPending) > 64);

/*
 * reorder.c: packets that arrived out of order, in the window that begins with
 * the expected PSN
 */
typedef struct QrnicHeld {
    QrnicTransport t;
    const QrnicOpcodeInfo *info;
    bool placed;                /* its payload is in memory, and not here */
    uint32_t payload_len;
    uint8_t payload[];
} QrnicHeld;

typedef struct QrnicHold {
    QrnicQp *qp;
    QTAILQ_ENTRY(QrnicHold) next;       /* by the power of two of bytes */
    size_t bytes;               /* buffered, of packets not yet executed */
    int64_t progress_at;        /* when the expected PSN changed last */
    uint32_t count;             /* one at least: else there is no such thing */
    QrnicHeld *at[QRNIC_WINDOW];        /* by PSN */
} QrnicHold;

/* selective.c: what is known of the PSNs from una on, of one window */
typedef struct QrnicSelective {
    uint32_t order;             /* running number of transmissions */
    uint32_t newest;            /* the last one that is known to have come */
    uint32_t sent[QRNIC_WINDOW];        /* that of each PSN, by PSN */
    uint32_t first[QRNIC_WINDOW];       /* the same, when it was new */
    uint8_t times[QRNIC_WINDOW];        /* which transmission that was */
    enum {
        QRNIC_PSN_UNDER_WAY,
        QRNIC_PSN_LOST,         /* to be sent again */
        QRNIC_PSN_ARRIVED,      /* not to be: the other end keeps it */
    } state[QRNIC_WINDOW];
    bool beyond;                /* what is beyond the window is lost, too */

    /* Nothing behind the tail tells that it is lost, so it is tried again */
    bool timed;                 /* a round trip is: what was sent at: */
    uint32_t timed_psn;         /* is answered when una is beyond this */
    int64_t timed_at;
    int64_t round_trip, deviation;      /* smoothed, ns; 0: not known */
    bool counted;               /* of retry_cnt one was taken: */
    int64_t counted_at;
    uint32_t probes;            /* since there was news */
    int64_t expires;            /* the transport timer */
} QrnicSelective;

struct QrnicRequester {
    /* A ring of messages in pieces; NULL: no message is there */
    QrnicPending *chunk[QRNIC_PENDING / QRNIC_PENDING_CHUNK];
    uint32_t tail, head;        /* oldest incomplete; next free */
    uint32_t cursor;            /* message to send from */
    uint32_t cursor_psn;        /* next PSN to send */
    uint32_t next_psn;          /* first PSN that no message has */
    uint32_t sent_psn;          /* one above the highest PSN ever sent */
    uint32_t una;               /* lowest PSN not acknowledged */
    /* One above the last PSN sent that asks for an answer; una: none is due */
    uint32_t asked_psn;

    QrnicSendWqe *wqe;          /* NULL, or that of: */
    uint32_t wqe_message;       /* the message with this number in the ring */

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
    /*
     * Dynamic connections: nothing may go; CONNECT has no answer yet; it goes
     * before anything else
     */
    bool held, connecting, connect_due;
    bool response_dropped;      /* its memory is absent: ask for it again */
    uint8_t retries, rnr_retries;       /* left */
    QrnicSelective *selective;  /* NULL: without QPO_SELECTIVE_REPEAT */
    int64_t deadline;           /* of retransmission or RNR wait */
    uint32_t wire_epoch;        /* when it expired and the wire was busy */
    /* rendezvous.c: to be read, and to be told; not in the ring yet */
    QTAILQ_HEAD(, QrnicTag) reads, fins;
};

/*
 * A request kept for repetition (9.7.5.1.2). Atomic writes and flushes are
 * answered as reads of no bytes are (A19).
 */
typedef struct QrnicReplay {
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
} QrnicReplay;

/* What each packet looks at comes first; see QrnicQp. */
struct QrnicResponder {
    uint32_t epsn;              /* PSN expected */
    uint32_t msn;
    QrnicInbound in;
    uint32_t srqn;              /* XRC target: of the message; else 0 */

    QrnicHold *hold;            /* NULL: nothing came ahead and was kept */
    bool sack_owed;
    uint8_t latest_transmission;        /* of the request that came last: */
    uint32_t latest_psn;
    int64_t gap_deadline;       /* adaptive: when a gap is told of; 0: none */
    bool placed;                /* the packet whose turn it is came ahead */
    bool more;                  /* of a write in packets that stand alone */

    bool ack_owed;
    bool nak_owed;
    uint8_t nak;                /* syndrome */
    bool gap;                   /* NAKed, and the packet has not come yet */
    bool dead;                  /* fatal NAK owed: nothing is taken now */
    bool low_credit;            /* advertised none: tell when there is more */
    bool response_waits;        /* for a page; all that is owed is behind it */
    bool patience_owed;         /* but this: it was asked for once more */
    uint32_t ack_psn;
    uint32_t dropped_psn;       /* the furthest one dropped beyond the gap */

    /* max_dest_rd_atomic of them, from the first read or atomic on */
    uint32_t replay_pending;
    QrnicReplay *replay;
    uint32_t replay_count;
    uint32_t replay_next;       /* entry for the next read or atomic */

    uint64_t adaptive_len;      /* bytes so far, where there are more */
    int64_t rnr_until;          /* RNR NAK: nobody comes back before that */
    uint8_t event, event_subtype;       /* with the fatal NAK; 0: none */
    bool nak_gone;              /* the fatal NAK, of: */
    uint32_t nak_psn;
    int64_t nak_deadline;       /* of the fatal NAK */
    uint32_t wire_epoch;        /* when it was last looked at */
    int64_t used;               /* dynamic connections: last packet came */
    int64_t made_at;            /* dynamic connections: CONNECT was accepted */
};

/* What all packets of a connection say of it */
static inline QrnicTransport qrnic_connection_transport(const QrnicQp *qp,
                                                        uint8_t opcode,
                                                        uint32_t psn)
{
    return (QrnicTransport) {
        .opcode = opcode | qrnic_qp_service(qp),
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = qp->attr.dest_qpn,
        .psn = psn,
        .mark = (qp->attr.options & QRNIC_QPO_SELECTIVE_REPEAT ?
                 QRNIC_MARK_SELECTIVE : 0) |
                (qp->attr.options & QRNIC_QPO_ADAPTIVE_ROUTING ?
                 QRNIC_MARK_PLACES : 0),
        .src_qpn = qp->target ? qp->target->number : qp->number,
        .connection = qp->connection,
    };
}

/*
 * The requester
 */

static inline bool qrnic_wqe_is_atomic(uint8_t opcode)
{
    return opcode == QRNIC_WQE_ATOMIC_CMP_SWAP ||
           opcode == QRNIC_WQE_ATOMIC_FETCH_ADD;
}

/* Answered by a read response of no bytes (A19) */
static inline bool qrnic_wqe_is_write_or_flush(uint8_t opcode)
{
    return opcode == QRNIC_WQE_ATOMIC_WRITE || opcode == QRNIC_WQE_FLUSH;
}

/* Reads, atomics and the like: answered by more than an ACK. */
static inline bool qrnic_wqe_is_rd(uint8_t opcode)
{
    return opcode == QRNIC_WQE_RDMA_READ || qrnic_wqe_is_atomic(opcode) ||
           qrnic_wqe_is_write_or_flush(opcode);
}

static inline QrnicPending *qrnic_pending_at(QrnicRequester *r, uint32_t n)
{
    return &r->chunk[n % QRNIC_PENDING / QRNIC_PENDING_CHUNK]
                    [n % QRNIC_PENDING_CHUNK];
}

static inline uint32_t qrnic_pending_end(const QrnicPending *p)
{
    return qrnic_psn_add(p->first_psn, p->packets);
}

static inline bool qrnic_requester_may_run(const QrnicQp *qp)
{
    return qp->state == QRNIC_QPS_RTS || qp->state == QRNIC_QPS_SQD;
}

/* reorder.c. One of the window. False: it is not kept, as there is no room. */
bool qrnic_hold_put(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                    bool placed);
/*
 * Returns true if there is room for another packet of a member that is executed
 * out of order.
 */
bool qrnic_hold_may_execute(const QrnicEngine *e);
/* Compares a packet with the buffered one, which must be there. */
void qrnic_hold_compare(QrnicEngine *e, const QrnicQp *qp,
                        const QrnicPacket *pkt);
static inline bool qrnic_hold_has(const QrnicHold *h, uint32_t psn)
{
    return h && h->at[psn % QRNIC_WINDOW];
}
/* It is the caller's, who gives it back; NULL: it is not there. */
QrnicHeld *qrnic_hold_take(QrnicEngine *e, QrnicQp *qp, uint32_t psn);
void qrnic_held_free(QrnicEngine *e, QrnicHeld *p);
/* So many from this PSN on are not wanted any more. */
void qrnic_hold_drop(QrnicEngine *e, QrnicQp *qp, uint32_t psn, uint32_t count);
void qrnic_hold_cleanup(QrnicEngine *e, QrnicQp *qp);
/* Drops the packets of a connection that has made no progress for too long. */
void qrnic_hold_timer(QrnicEngine *e, QrnicQp *qp);
/* What a SACK says of the window */
void qrnic_hold_tell(const QrnicHold *h, uint32_t expected,
                     uint8_t arrived[QRNIC_SACK_BYTES]);

/*
 * rendezvous.c: the entry is one whose data is to be read as long as it has
 * its list, and then one whose sender is to be told.
 */
void qrnic_rendezvous_init(QrnicRequester *r);
void qrnic_rendezvous_cleanup(QrnicRequester *r);
uint32_t qrnic_rendezvous_length(const QrnicTag *t);
void qrnic_rendezvous_trace(QrnicEngine *e, const QrnicQp *qp,
                            const QrnicTag *t, const char *what);
/* It has matched: read its data. */
void qrnic_rendezvous_ask(QrnicEngine *e, QrnicQp *qp, QrnicTag *t);
bool qrnic_rendezvous_waits(const QrnicRequester *r);
/* The next one, which is the caller's; NULL: there is none */
QrnicTag *qrnic_rendezvous_next(QrnicRequester *r);
/* What is to be sent for it, as if software had posted it */
void qrnic_rendezvous_wqe(const QrnicTag *t, QrnicSendWqe *w);
/* That has been acknowledged, or failed. */
void qrnic_rendezvous_done(QrnicEngine *e, QrnicQp *qp, QrnicTag *t,
                           uint8_t status, uint8_t syndrome);
/* One that is not in the ring, as flushed; false: there is none. */
bool qrnic_rendezvous_flush_one(QrnicEngine *e, QrnicQp *qp);
/* Their queue pair goes: the list completes them. */
void qrnic_rendezvous_abandon(QrnicEngine *e, QrnicQp *qp);

/*
 * connection.c: responses and requests by turns, or what else these functions send,
 * at most one packet each; NULL: there are none.
 */
typedef bool QrnicStep(QrnicEngine *e, QrnicQp *qp);
QrnicTurn qrnic_reliable_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget,
                                  QrnicStep *respond, QrnicStep *request);
void qrnic_reliable_cleanup(QrnicEngine *e, QrnicQp *qp);

/* ring.c */
void qrnic_requester_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_requester_cleanup(QrnicEngine *e, QrnicQp *qp);
void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp);          /* to RTS */
void qrnic_requester_attr_changed(QrnicEngine *e, QrnicQp *qp);
bool qrnic_requester_idle(const QrnicQp *qp);
uint32_t qrnic_requester_next_psn(const QrnicQp *qp);
/* A message, cleared, at the head of the ring, which has room; not yet there */
QrnicPending *qrnic_pending_new(QrnicEngine *e, QrnicRequester *r);
/* Of the WQE that the requester holds nothing more is to be sent. */
void qrnic_requester_wqe_drop(QrnicEngine *e, QrnicRequester *r);
/* Completes what is acknowledged, in order. */
void qrnic_requester_retire(QrnicEngine *e, QrnicQp *qp);
/* The message at the tail failed: an error completion, and ERR (9.9.2.1). */
void qrnic_requester_fail(QrnicEngine *e, QrnicQp *qp, uint8_t status,
                          uint8_t syndrome);
/* The messages under way as flushed; false: none is left. */
bool qrnic_requester_flush_one(QrnicEngine *e, QrnicQp *qp);

/* recovery.c */
/*
 * Restarts the transport timer if packets wait for an answer (9.7.6.1.3), or
 * to be sent again by a wire that may stand still.
 */
void qrnic_requester_deadline(QrnicEngine *e, QrnicQp *qp);
void qrnic_requester_retry(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
/* Without going back. False: that was once too often, the queue pair fails. */
bool qrnic_requester_retry_count(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
/* The receiver is not ready: it is sent to again in so many ns. */
void qrnic_requester_rnr_wait(QrnicEngine *e, QrnicQp *qp, int64_t ns);
/* A page that it waited for is there, or will never be. */
void qrnic_requester_resume(QrnicEngine *e, QrnicQp *qp);
/* An answer shows that those to an earlier read were lost (9.7.5.1.3). */
void qrnic_requester_implied_nak(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt);
void qrnic_requester_timer(QrnicEngine *e, QrnicQp *qp);

/*
 * selective.c: of a requester that has it; what is sent again is found by the
 * cursor, which goes back, and then over what need not be
 */
void qrnic_selective_start(QrnicQp *qp);
/* Which transmission of what is at the cursor the next one is, modulo 256 */
uint8_t qrnic_selective_transmission(const QrnicRequester *r,
                                     const QrnicPending *p);
/* It, of this message, has been sent, and asks for an answer or not. */
void qrnic_selective_sent(QrnicEngine *e, QrnicRequester *r, QrnicPending *p,
                          bool asks);
/* una goes on to there. */
void qrnic_selective_acknowledged(QrnicEngine *e, QrnicRequester *r,
                                  uint32_t una);
/* All that has not arrived is to be sent again: the cursor is at una. */
void qrnic_selective_lose_all(QrnicRequester *r);
/* Moves the cursor to what is to be sent next. */
void qrnic_selective_skip(QrnicRequester *r);
/* It waits for an answer until then: when to look before that */
int64_t qrnic_selective_wait(QrnicEngine *e, QrnicRequester *r,
                             int64_t expires);
/* How long it is worth while to wait for an answer; 0: not known */
int64_t qrnic_selective_patience(const QrnicSelective *s);
/* Before it expired: sends the last packet again. */
void qrnic_selective_probe(QrnicEngine *e, QrnicQp *qp);
/* A SACK names the transmission that came last; una is as before it. */
void qrnic_selective_named(QrnicRequester *r, const QrnicTransport *t);
/*
 * What a SACK says, whose missing PSN has been sent. True: it says that
 * something is lost, and the cursor is at the first such PSN.
 */
bool qrnic_selective_arrived(QrnicRequester *r, const QrnicTransport *t);
/*
 * The oldest request without an answer is a read. Its response is lost, if this
 * answer is to what was sent after it was asked for last.
 */
bool qrnic_selective_is_passed(QrnicRequester *r, const QrnicPacket *pkt);
/* It is asked for again, and with it all reads behind. */
void qrnic_selective_ask(QrnicEngine *e, QrnicQp *qp);

/*
 * carrier.c: a carrier is a connection whose messages are packets of its
 * members, which are connections without a path of their own
 */
QrnicResult qrnic_carrier_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                       const QrnicQpAttr *in, uint8_t to);
QrnicResult qrnic_member_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                      const QrnicQpAttr *in, uint8_t to);
/* To RTR: it becomes one, if it has a carrier. */
void qrnic_member_entered(QrnicEngine *e, QrnicQp *qp);
void qrnic_member_carrier_failed(QrnicEngine *e, QrnicQp *qp,
                                 uint8_t syndrome);
/* Before that of the connection */
void qrnic_carrier_init(QrnicEngine *e, QrnicQp *qp);
/* After it */
void qrnic_carrier_start_send(QrnicEngine *e, QrnicQp *qp);
/* A carried packet comes from the carrier that this one is connected to. */
bool qrnic_carrier_accepts(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
/* The next packet that waits becomes the message at the cursor. */
bool qrnic_carried_take(QrnicEngine *e, QrnicQp *qp);
/* In ERR: a packet, then a member; false: none is left. */
bool qrnic_carrier_flush_one(QrnicEngine *e, QrnicQp *qp);
/*
 * What this packet carries may be handed over although an earlier one is
 * missing, which may be of the same member, or not.
 */
bool qrnic_carried_is_next(QrnicEngine *e, QrnicQp *carrier,
                           const QrnicPacket *outer);
/* It is, to the member. What is wrong with it is nobody else's matter. */
void qrnic_carried_receive(QrnicEngine *e, QrnicQp *carrier,
                           const QrnicPacket *outer);

/* send.c: at most one packet; false: nothing to do, or it must wait. */
bool qrnic_requester_step(QrnicEngine *e, QrnicQp *qp);

/* responses.c: a response, parsed and checked */
void qrnic_requester_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);

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

/* replay.c */
/* The oldest of those that are to be answered; there is one. */
QrnicReplay *qrnic_replay_first(QrnicResponder *r);
/* It has been answered. */
void qrnic_replay_finish(QrnicResponder *r, QrnicReplay *x);
/* A request that was answered before comes again. */
void qrnic_replay_repeat(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);
/* max_dest_rd_atomic may have changed: the newest are kept. */
void qrnic_responder_attr_changed(QrnicEngine *e, QrnicQp *qp);
/* So many reads and atomics can be kept without losing one not answered. */
bool qrnic_responder_can_keep(const QrnicQp *qp, uint32_t count);

/* reply.c */
void qrnic_owe_ack(QrnicEngine *e, QrnicQp *qp, uint32_t psn);
/* A NAK of the expected PSN */
void qrnic_owe_nak(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
/*
 * The request is refused for good: when the NAK has gone, the queue pair goes
 * to ERR. event: 0 if a receive completion tells. Always false.
 */
bool qrnic_refuse_request(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome,
                          uint8_t event, uint8_t event_subtype);
bool qrnic_refuse_invalid(QrnicEngine *e, QrnicQp *qp);
/* RNR NAK: the requester shall come again. Always false. */
bool qrnic_refuse_now(QrnicEngine *e, QrnicQp *qp);
bool qrnic_refuse_until_page(QrnicEngine *e, QrnicQp *qp);
bool qrnic_refuse_access(QrnicEngine *e, QrnicQp *qp);
bool qrnic_refuse_operation(QrnicEngine *e, QrnicQp *qp);
/* The syndrome of an ACK that goes now */
uint8_t qrnic_credits_now(QrnicEngine *e, QrnicQp *qp);
/* At most one packet; false: nothing to do. */
bool qrnic_responder_step(QrnicEngine *e, QrnicQp *qp);
/* The page that the response waits for has come, or never will. */
void qrnic_responder_resume(QrnicResponder *r);
void qrnic_responder_timer(QrnicEngine *e, QrnicQp *qp);

/*
 * tagged.c: a send to an SRQ with a tag list. It consumes a receive WQE, as
 * without a list, or an entry of the list: recv->tag.
 */
QrnicTake qrnic_tagged_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                            const QrnicPacket *pkt);
QrnicPlaced qrnic_tagged_place(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt);
/* Its data is placed: completes, where there is something to tell. */
void qrnic_tagged_placed(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                         const QrnicPacket *pkt);
/* The queue pair goes: the list completes the entry under way. */
void qrnic_tagged_abandon(QrnicEngine *e, QrnicInbound *in);

/*
 * execute.c: the expected request, which may follow the one before. *psns: how
 * many PSNs it takes, if not 1. False: it was not executed, an answer is owed,
 * and it stays expected.
 */
bool qrnic_responder_execute(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, uint32_t *psns);
/* A packet of a write that stands alone, where both ends have the option */
static inline bool qrnic_is_adaptive(const QrnicQp *qp, const QrnicPacket *pkt)
{
    return qp->attr.options & QRNIC_QPO_ADAPTIVE_ROUTING &&
           pkt->t.mark & QRNIC_MARK_PLACES &&
           pkt->t.mark & QRNIC_MARK_ADAPTIVE &&
           pkt->info->flags & QRNIC_OPF_WRITE;
}
/* One that came ahead: true if its payload is where it belongs now. */
bool qrnic_responder_place(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt);

/* sequence.c */
void qrnic_rc_start_receive(QrnicEngine *e, QrnicQp *qp);       /* to RTR */
/* A request, parsed and checked */
void qrnic_responder_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
/* A gap that has not filled by itself is told of. */
void qrnic_responder_gap_timer(QrnicEngine *e, QrnicQp *qp);
/* Executes one request that came ahead and was kept; false: there is none. */
bool qrnic_responder_go_on(QrnicEngine *e, QrnicQp *qp);
/*
 * In ERR: completes with flush status the receive WQE of a message cut short,
 * and forgets what came ahead.
 */
bool qrnic_responder_flush_one(QrnicEngine *e, QrnicQp *qp);
uint32_t qrnic_responder_expected_psn(const QrnicQp *qp);
/* The receive queue has more; in ERR: to flush. */
void qrnic_responder_doorbell(QrnicEngine *e, QrnicQp *qp);

#endif
