/*
 * qrnic engine: the requester of a reliable connection: private to its folder
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_REQUESTER_H
#define QRNIC_ENGINE_REQUESTER_H

#include "engine/transport/rc/rc.h"

/* Messages in flight; a power of two. */
#define QRNIC_MESSAGES           256u
/* Messages of a chunk, which is allocated while one of them is in flight. */
#define QRNIC_MESSAGE_CHUNK     32u
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
typedef struct QrnicMessage {
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
    const QrnicMessageSource *source;   /* NULL: the send queue */
    void *object;               /* of the source */
} QrnicMessage;
QEMU_BUILD_BUG_ON(sizeof(QrnicMessage) > 64);

/* selective.c: what is known of the PSNs from una on, of one window */
typedef struct QrnicSelective {
    uint32_t order;             /* running number of transmissions */
    uint32_t newest;            /* the last one that is known to have come */
    uint32_t sent[QRNIC_WINDOW];        /* that of each PSN, by PSN */
    uint32_t first[QRNIC_WINDOW];       /* the same, when it was new */
    uint8_t times[QRNIC_WINDOW];        /* which transmission that was */
    enum {
        QRNIC_PSN_IN_FLIGHT,
        QRNIC_PSN_LOST,         /* to be retransmitted */
        QRNIC_PSN_ARRIVED,      /* buffered by the responder */
    } state[QRNIC_WINDOW];
    bool beyond;                /* all PSNs beyond the window are lost, too */

    /* A lost tail has no later packet that shows it, so a probe is sent. */
    bool timed;                 /* a round trip is measured: sent at: */
    uint32_t timed_psn;         /* is answered when una is beyond this */
    int64_t timed_at;
    int64_t round_trip, deviation;      /* smoothed, ns; 0: not known */
    bool counted;               /* of retry_cnt one was taken: */
    int64_t counted_at;
    uint32_t probes;            /* since there was news */
    int64_t expires;            /* the transport timer */
} QrnicSelective;

/*
 * state.c: why the requester sends nothing, a bit for each cause. Only the
 * event of a cause removes its bit. state.c describes them.
 */
enum {
    QRNIC_BLOCKED_RNR = 1 << 0,
    QRNIC_BLOCKED_PAGE = 1 << 1,
    QRNIC_BLOCKED_CONNECTION = 1 << 2,
    QRNIC_BLOCKED_WINDOW = 1 << 3,
    QRNIC_BLOCKED_PROBE = 1 << 4,       /* packets, not local operations */
    QRNIC_BLOCKED_ERROR = 1 << 5,       /* new messages, not retransmissions */
};

/* Nothing happens in a step of the requester. */
#define QRNIC_BLOCKED_STEP \
    (QRNIC_BLOCKED_RNR | QRNIC_BLOCKED_PAGE | QRNIC_BLOCKED_CONNECTION)

typedef enum QrnicRecovery {
    QRNIC_RECOVERY_NONE,
    QRNIC_RECOVERY_BEGUN,
    QRNIC_RECOVERY_RESPONSE_DROPPED,
} QrnicRecovery;

typedef enum QrnicConnect {
    QRNIC_CONNECT_NONE,
    QRNIC_CONNECT_DUE,
    QRNIC_CONNECT_SENT,
} QrnicConnect;

struct QrnicRequester {
    /* The ring of messages; NULL: no message of the chunk is in flight */
    QrnicMessage *chunk[QRNIC_MESSAGES / QRNIC_MESSAGE_CHUNK];
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
    bool credit_limited;        /* by: */
    uint32_t receives_limit;    /* last receive-consuming message allowed */

    uint8_t blocked;            /* QRNIC_BLOCKED_* */
    uint8_t recovery;           /* enum QrnicRecovery */
    uint8_t connect;            /* enum QrnicConnect */
    uint8_t retries, rnr_retries;       /* left */
    QrnicSelective *selective;  /* NULL: without QPO_SELECTIVE_REPEAT */
    int64_t deadline;           /* of retransmission or RNR wait */
    uint32_t wire_epoch;        /* when it expired and the wire was busy */
    /* rendezvous.c: reads and FINs to send that are not in the ring yet */
    QTAILQ_HEAD(, QrnicTag) reads, fins;
};

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

static inline QrnicMessage *qrnic_message_at(QrnicRequester *r, uint32_t n)
{
    return &r->chunk[n % QRNIC_MESSAGES / QRNIC_MESSAGE_CHUNK]
                    [n % QRNIC_MESSAGE_CHUNK];
}

static inline uint32_t qrnic_message_end(const QrnicMessage *p)
{
    return qrnic_psn_add(p->first_psn, p->packets);
}

/*
 * The cursor: only these functions change cursor, cursor_psn, next_psn,
 * sent_psn and una. Between calls, una is not above cursor_psn, cursor_psn not
 * above sent_psn, and sent_psn not above next_psn; cursor is the message of
 * cursor_psn, or a local operation, which has no PSN, before it.
 */

static inline void qrnic_cursor_start(QrnicRequester *r, uint32_t psn)
{
    r->cursor_psn = r->next_psn = r->sent_psn = r->una = psn;
    r->asked_psn = psn;
}

/* Adds the message of qrnic_message_new(), whose packets are known, at head. */
static inline void qrnic_cursor_append(QrnicRequester *r, QrnicMessage *p)
{
    p->first_psn = r->next_psn;
    r->next_psn = qrnic_message_end(p);
    r->head++;
}

/* A packet of the message at the cursor has been sent: it takes psns PSNs. */
static inline void qrnic_cursor_sent(QrnicRequester *r, const QrnicMessage *p,
                                     uint32_t psns)
{
    uint32_t next = qrnic_psn_add(r->cursor_psn, psns);

    if (r->cursor_psn == r->sent_psn ||
        qrnic_psn_distance(r->una, next) >
        qrnic_psn_distance(r->una, r->sent_psn)) {
        r->sent_psn = next;
    }
    r->cursor_psn = next;
    if (next == qrnic_message_end(p)) {
        r->cursor++;
    }
}

/* Skips PSNs of the message at the cursor, which have been sent before. */
static inline void qrnic_cursor_skip(QrnicRequester *r, const QrnicMessage *p,
                                     uint32_t psns)
{
    r->cursor_psn = qrnic_psn_add(r->cursor_psn, psns);
    if (r->cursor_psn == qrnic_message_end(p)) {
        r->cursor++;
    }
}

/* The local operation at the cursor is done. */
static inline void qrnic_cursor_executed(QrnicRequester *r)
{
    r->cursor++;
}

/* The oldest message is complete: the cursor leaves it. */
static inline void qrnic_cursor_complete(QrnicRequester *r,
                                         const QrnicMessage *p)
{
    if (r->cursor == r->tail) {
        r->cursor++;
        r->cursor_psn = qrnic_message_end(p);
    }
}

/* All before una is acknowledged: the cursor is not before it. */
static inline void qrnic_cursor_catch_up(QrnicRequester *r)
{
    if (qrnic_psn_diff(r->una, r->cursor_psn) > 0) {
        r->cursor_psn = r->una;
    }
}

/*
 * All before psn is acknowledged. Seen from the old una, psn and asked_psn are
 * ahead by no more than half of all PSNs.
 */
static inline void qrnic_cursor_acknowledged(QrnicRequester *r, uint32_t psn)
{
    if (qrnic_psn_distance(r->una, r->asked_psn) <
        qrnic_psn_distance(r->una, psn)) {
        r->asked_psn = psn;
    }
    r->una = psn;
}

/* Go-back-N: to the oldest PSN that is not acknowledged */
static inline void qrnic_cursor_rewind(QrnicRequester *r)
{
    r->cursor = r->tail;
    r->cursor_psn = r->asked_psn = r->una;
}

/* Selective repeat: back to psn. Does nothing if the cursor is before it. */
static inline void qrnic_cursor_back(QrnicRequester *r, uint32_t psn)
{
    uint32_t n = r->tail;

    if (qrnic_psn_distance(r->una, psn) >=
        qrnic_psn_distance(r->una, r->cursor_psn)) {
        return;
    }
    while (qrnic_psn_distance(qrnic_message_at(r, n)->first_psn, psn) >=
           qrnic_message_at(r, n)->packets) {
        n++;
    }
    r->cursor = n;
    r->cursor_psn = psn;
}

/* state.c: the states and their transitions */
void qrnic_requester_block(QrnicEngine *e, QrnicQp *qp, uint8_t cause);
void qrnic_requester_unblocked(QrnicEngine *e, QrnicQp *qp, uint8_t causes);
void qrnic_requester_recovery_changed(QrnicEngine *e, QrnicQp *qp,
                                      QrnicRecovery to);
void qrnic_requester_connect_set(QrnicEngine *e, QrnicQp *qp, QrnicConnect to);

static inline void qrnic_requester_unblock(QrnicEngine *e, QrnicQp *qp,
                                           uint8_t causes)
{
    if (qp->requester->blocked & causes) {
        qrnic_requester_unblocked(e, qp, causes);
    }
}

static inline void qrnic_requester_recovery_set(QrnicEngine *e, QrnicQp *qp,
                                                QrnicRecovery to)
{
    if (qp->requester->recovery != to) {
        qrnic_requester_recovery_changed(e, qp, to);
    }
}

/*
 * Returns true if the access has met an absent page. The requester is blocked
 * until software has answered the page fault.
 */
static inline bool qrnic_requester_page_fault(QrnicEngine *e, QrnicQp *qp,
                                              enum qrnic_syndrome syndrome,
                                              const QrnicFault *fault)
{
    if (syndrome != QRNIC_SYN_PAGE_FAULT ||
        !qrnic_page_fault(e, qp, QRNIC_SIDE_SEND, syndrome, fault)) {
        return false;
    }
    qrnic_requester_block(e, qp, QRNIC_BLOCKED_PAGE);
    return true;
}

/*
 * rendezvous.c: while an entry has its tag list, its data must be read; then
 * a FIN must be sent to the sender.
 */
void qrnic_rendezvous_init(QrnicRequester *r);
void qrnic_rendezvous_cleanup(QrnicRequester *r);
bool qrnic_rendezvous_waits(const QrnicRequester *r);
/* The next one, which is the caller's; NULL: there is none */
QrnicTag *qrnic_rendezvous_next(QrnicRequester *r);
/* The source of their messages; the object is the entry. */
extern const QrnicMessageSource qrnic_rendezvous_source;
/* One that is not in the ring, as flushed; false: there is none. */
bool qrnic_rendezvous_flush_one(QrnicEngine *e, QrnicQp *qp);
/* Their queue pair goes: the list completes them. */
void qrnic_rendezvous_abandon(QrnicEngine *e, QrnicQp *qp);

/* ring.c */
void qrnic_requester_cleanup(QrnicEngine *e, QrnicQp *qp);
/* A message, cleared, at the head of the ring, which has room; not yet there */
QrnicMessage *qrnic_message_new(QrnicEngine *e, QrnicRequester *r);
/* Drops the current WQE, of which all packets have been sent. */
void qrnic_requester_wqe_drop(QrnicEngine *e, QrnicRequester *r);
/* Completes what is acknowledged, in order. */
void qrnic_requester_retire(QrnicEngine *e, QrnicQp *qp);

/* recovery.c */
/*
 * Restarts the transport timer if packets wait for an answer (9.7.6.1.3), or
 * to be sent again by a wire that may stand still.
 */
void qrnic_requester_deadline(QrnicEngine *e, QrnicQp *qp);
void qrnic_requester_retry(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
/* Without going back. False: that was once too often, the queue pair fails. */
bool qrnic_requester_retry_count(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
/*
 * The responder is not ready: retransmits in ns. Returns false if it has waited
 * too often: the queue pair has failed with this syndrome.
 */
bool qrnic_requester_rnr_wait(QrnicEngine *e, QrnicQp *qp, int64_t ns,
                              uint8_t syndrome);
/* An answer shows that those to an earlier read were lost (9.7.5.1.3). */
void qrnic_requester_implied_nak(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt);

/*
 * selective.c: of a requester that has it; what is sent again is found by the
 * cursor, which goes back, and then over what need not be
 */
void qrnic_selective_start(QrnicQp *qp);
/* Which transmission of what is at the cursor the next one is, modulo 256 */
uint8_t qrnic_selective_transmission(const QrnicRequester *r,
                                     const QrnicMessage *p);
/* It, of this message, has been sent, and asks for an answer or not. */
void qrnic_selective_sent(QrnicEngine *e, QrnicRequester *r, QrnicMessage *p,
                          bool asks);
/* una goes on to there. */
void qrnic_selective_acknowledged(QrnicEngine *e, QrnicRequester *r,
                                  uint32_t una);
/* All that has not arrived is to be sent again: the cursor is at una. */
void qrnic_selective_lose_all(QrnicRequester *r);
/* Moves the cursor to what is to be sent next. */
void qrnic_selective_skip(QrnicRequester *r);
/* Returns when to check for a lost tail before the timer expires. */
int64_t qrnic_selective_wait(QrnicEngine *e, QrnicRequester *r,
                             int64_t expires);
/* How long it is worth while to wait for an answer; 0: not known */
int64_t qrnic_selective_patience(const QrnicSelective *s);
/* Before it expired: sends the last packet again. */
void qrnic_selective_probe(QrnicEngine *e, QrnicQp *qp);
/* A SACK names the transmission that came last; una is as before it. */
void qrnic_selective_named(QrnicRequester *r, const QrnicTransport *t);
/*
 * Processes a SACK whose missing PSN has been sent. Returns true if a PSN is
 * lost; the cursor is then at the first lost PSN.
 */
bool qrnic_selective_arrived(QrnicRequester *r, const QrnicTransport *t);
/*
 * The oldest request without an answer is a read. Its response is lost, if this
 * answer is to what was sent after it was asked for last.
 */
bool qrnic_selective_is_passed(QrnicRequester *r, const QrnicPacket *pkt);
/* Requests the oldest read again, and all reads behind it. */
void qrnic_selective_ask(QrnicEngine *e, QrnicQp *qp);

#endif
