/*
 * qrnic engine, transport: private header of the requester of a reliable
 * connection
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The requester sends the messages of the send queue, and completes them when
 * responses arrive. Only files of this folder and rc/connection.c include this
 * header. rc.h declares the functions for other files.
 *
 * The scheduler calls qrnic_requester_step() (send.c), the demultiplexer
 * qrnic_requester_receive() (responses.c), and the timer of the queue pair
 * qrnic_requester_timer() (recovery.c). Between calls QrnicRequester holds a
 * ring of messages in flight and the cursor, which is the next message and PSN
 * to send. The file state.c describes the states. InfiniBand specification,
 * 9.7.
 */

#ifndef QRNIC_ENGINE_REQUESTER_H
#define QRNIC_ENGINE_REQUESTER_H

#include "engine/transport/rc/rc.h"

/* Largest number of messages in flight; a power of two */
#define QRNIC_MESSAGES           256u
/*
 * Messages of a chunk, which is allocated only while one of its messages is in
 * flight, because most queue pairs are idle
 */
#define QRNIC_MESSAGE_CHUNK     32u
/* Number of packets of a message after which one requests an ACK */
#define QRNIC_ACK_INTERVAL      64u

/* Members of a read, atomic or flush, kept until its response has arrived */
typedef struct QrnicInitiated {
    uint64_t va, swap_add, compare;
    uint32_t pd;                /* PD of its data segments */
    uint32_t rkey;
    QrnicFlushSeg flush;
    uint32_t srqn;              /* XRC */
    /*
     * selective repeat: running number of the last transmission of the request
     */
    uint32_t asked;
    uint8_t asked_transmission; /* how often the request was sent before */
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE + 1];
} QrnicInitiated;

/*
 * Message of the send queue, from its WQE until its completion. The structure
 * fits into a cache line, because many queue pairs have many messages.
 */
typedef struct QrnicMessage {
    uint32_t index, wqebbs;
    uint8_t opcode, flags;
    /* status: local failure, to complete in order */
    uint8_t status, syndrome;
    bool executed;              /* local operation done; it has no PSN */
    bool adaptive;              /* write whose packets may take any path */
    uint32_t first_psn;
    uint32_t packets;           /* number of its PSNs */
    uint32_t length;
    uint32_t ssn;               /* send sequence number */
    /*
     * Running numbers that include this message, for credits (9.7.7.2) and
     * fences
     */
    uint32_t receives;          /* messages that consume a receive WQE */
    uint32_t rd_number;         /* reads and atomics */
    QrnicInitiated *initiated;  /* reads, atomics and flushes; else NULL */
    const QrnicMessageSource *source;   /* NULL: the send queue */
    void *object;               /* object of the source */
} QrnicMessage;
QEMU_BUILD_BUG_ON(sizeof(QrnicMessage) > 64);

/*
 * State of selective repeat (selective.c) for the PSNs of one window from una
 * on
 */
typedef struct QrnicSelective {
    uint32_t order;             /* number of the last transmission */
    uint32_t newest;            /* newest transmission known to have arrived */
    /* last transmission of each PSN, indexed by PSN */
    uint32_t sent[QRNIC_WINDOW];
    uint32_t first[QRNIC_WINDOW];       /* first transmission of each PSN */
    uint8_t times[QRNIC_WINDOW];        /* retransmissions of each PSN */
    enum {
        QRNIC_PSN_IN_FLIGHT,
        QRNIC_PSN_LOST,         /* lost: needs a retransmission */
        QRNIC_PSN_ARRIVED,      /* buffered by the responder */
    } state[QRNIC_WINDOW];
    bool beyond;                /* all PSNs beyond the window are lost, too */

    /*
     * Members of the probe, which detects the loss of the last packet, because
     * no later packet can reveal that loss
     */
    bool timed;                 /* round trip being measured, from timed_at */
    uint32_t timed_psn;         /* measurement ends when una exceeds this PSN */
    int64_t timed_at;
    int64_t round_trip, deviation;      /* smoothed, in ns; 0: unknown */
    bool counted;               /* retry consumed at counted_at */
    int64_t counted_at;
    uint32_t probes;            /* probes since the last progress */
    int64_t expires;            /* expiry of the transport timer */
} QrnicSelective;

/*
 * Causes that stop the requester, one bit each. Only the event that ends a
 * cause removes its bit. See state.c.
 */
enum {
    QRNIC_BLOCKED_RNR = 1 << 0,
    QRNIC_BLOCKED_PAGE = 1 << 1,
    QRNIC_BLOCKED_CONNECTION = 1 << 2,
    QRNIC_BLOCKED_WINDOW = 1 << 3,
    /* packets wait, local operations do not */
    QRNIC_BLOCKED_PROBE = 1 << 4,
    /* new messages wait, retransmissions do not */
    QRNIC_BLOCKED_ERROR = 1 << 5,
};

/* Causes that stop each step of the requester */
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
    /* Ring of messages; a chunk is NULL if none of its messages is in flight */
    QrnicMessage *chunk[QRNIC_MESSAGES / QRNIC_MESSAGE_CHUNK];
    uint32_t tail, head;        /* oldest incomplete; next free */
    uint32_t cursor;            /* message that is sent next */
    uint32_t cursor_psn;        /* PSN that is sent next */
    uint32_t next_psn;          /* first PSN without a message */
    uint32_t sent_psn;          /* highest PSN ever sent, plus 1 */
    uint32_t una;               /* lowest unacknowledged PSN */
    /*
     * Last sent PSN that requests an answer, plus 1; una if no answer is
     * pending
     */
    uint32_t asked_psn;

    QrnicSendWqe *wqe;          /* decoded WQE, or NULL */
    uint32_t wqe_message;       /* ring number of the message of wqe */

    uint32_t rd_taken, rd_done; /* running numbers of reads and atomics */

    uint32_t ssn, ssn_done;
    uint32_t receives_taken, receives_done;
    bool credit_limited;        /* limited by credits, up to receives_limit */
    /* last message that may consume a receive WQE */
    uint32_t receives_limit;

    uint8_t blocked;            /* QRNIC_BLOCKED_* */
    uint8_t recovery;           /* enum QrnicRecovery */
    uint8_t connect;            /* enum QrnicConnect */
    uint8_t retries, rnr_retries;       /* remaining retries */
    QrnicSelective *selective;  /* NULL: no QPO_SELECTIVE_REPEAT */
    int64_t deadline;           /* end of transport timer or RNR wait */
    uint32_t wire_epoch;        /* state of qrnic_path_stands_still() */
    /* Reads and FINs of rendezvous.c that are not in the ring yet */
    QTAILQ_HEAD(, QrnicTag) reads, fins;
};

static inline bool qrnic_wqe_is_atomic(uint8_t opcode)
{
    return opcode == QRNIC_WQE_ATOMIC_CMP_SWAP ||
           opcode == QRNIC_WQE_ATOMIC_FETCH_ADD;
}

/*
 * Returns true for operations answered by a read response without payload
 * (A19).
 */
static inline bool qrnic_wqe_is_write_or_flush(uint8_t opcode)
{
    return opcode == QRNIC_WQE_ATOMIC_WRITE || opcode == QRNIC_WQE_FLUSH;
}

/*
 * Returns true for operations whose response is more than an ACK, such as reads
 * and atomics.
 */
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
 * The cursor. Only the functions below change cursor, cursor_psn, next_psn,
 * sent_psn and una. Between calls una <= cursor_psn <= sent_psn <= next_psn, in
 * the order of PSNs. The member cursor is the message of cursor_psn, or a local
 * operation before that message, because local operations have no PSN.
 */

static inline void qrnic_cursor_start(QrnicRequester *r, uint32_t psn)
{
    r->cursor_psn = r->next_psn = r->sent_psn = r->una = psn;
    r->asked_psn = psn;
}

/*
 * Appends the message of qrnic_message_new() to the ring and assigns its PSNs.
 */
static inline void qrnic_cursor_append(QrnicRequester *r, QrnicMessage *p)
{
    p->first_psn = r->next_psn;
    r->next_psn = qrnic_message_end(p);
    r->head++;
}

/* Moves the cursor behind a sent packet that uses psns PSNs. */
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

/* Moves the cursor over PSNs that need no retransmission. */
static inline void qrnic_cursor_skip(QrnicRequester *r, const QrnicMessage *p,
                                     uint32_t psns)
{
    r->cursor_psn = qrnic_psn_add(r->cursor_psn, psns);
    if (r->cursor_psn == qrnic_message_end(p)) {
        r->cursor++;
    }
}

/* Moves the cursor behind a finished local operation. */
static inline void qrnic_cursor_executed(QrnicRequester *r)
{
    r->cursor++;
}

/* Moves the cursor behind the oldest message, which is complete. */
static inline void qrnic_cursor_complete(QrnicRequester *r,
                                         const QrnicMessage *p)
{
    if (r->cursor == r->tail) {
        r->cursor++;
        r->cursor_psn = qrnic_message_end(p);
    }
}

/*
 * Moves the cursor up to una, because acknowledged PSNs are never
 * retransmitted.
 */
static inline void qrnic_cursor_catch_up(QrnicRequester *r)
{
    if (qrnic_psn_diff(r->una, r->cursor_psn) > 0) {
        r->cursor_psn = r->una;
    }
}

/*
 * Moves una to psn. Neither psn nor asked_psn is ahead of una by more than half
 * of all PSNs, so that distances from una can be compared.
 */
static inline void qrnic_cursor_acknowledged(QrnicRequester *r, uint32_t psn)
{
    if (qrnic_psn_distance(r->una, r->asked_psn) <
        qrnic_psn_distance(r->una, psn)) {
        r->asked_psn = psn;
    }
    r->una = psn;
}

/* Moves the cursor back to the oldest unacknowledged PSN (go-back-N). */
static inline void qrnic_cursor_rewind(QrnicRequester *r)
{
    r->cursor = r->tail;
    r->cursor_psn = r->asked_psn = r->una;
}

/*
 * Moves the cursor back to psn (selective repeat). Does nothing if the cursor
 * is before psn.
 */
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
 * Returns true if the access has met an absent page. The requester is then
 * blocked until software answers the page fault.
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
 * rendezvous.c: reads of message data and FIN messages. An entry in reads still
 * has its tag list; an entry in fins has left the list.
 */
void qrnic_rendezvous_init(QrnicRequester *r);
void qrnic_rendezvous_cleanup(QrnicRequester *r);
bool qrnic_rendezvous_waits(const QrnicRequester *r);
/*
 * Removes and returns the next entry; NULL if there is none. The caller owns
 * it.
 */
QrnicTag *qrnic_rendezvous_next(QrnicRequester *r);
/* Source of the messages of rendezvous.c; the object is the entry. */
extern const QrnicMessageSource qrnic_rendezvous_source;
/*
 * Completes an entry that is not in the ring as flushed. Returns false if there
 * is none.
 */
bool qrnic_rendezvous_flush_one(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns reads that are not complete to the tag list, because the queue pair
 * is reset or destroyed. The tag list completes them.
 */
void qrnic_rendezvous_abandon(QrnicEngine *e, QrnicQp *qp);

/* ring.c: ring of messages */
void qrnic_requester_cleanup(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns a cleared message for the head of the ring, which must have room. The
 * caller appends the message with qrnic_cursor_append().
 */
QrnicMessage *qrnic_message_new(QrnicEngine *e, QrnicRequester *r);
/* Frees the decoded WQE. */
void qrnic_requester_wqe_drop(QrnicEngine *e, QrnicRequester *r);
/*
 * Completes all acknowledged messages in the order of the queue. Fails the
 * queue pair if the oldest message has failed.
 */
void qrnic_requester_retire(QrnicEngine *e, QrnicQp *qp);

/* recovery.c: timeouts and retransmission */
/*
 * Restarts the transport timer if packets wait for an answer (9.7.6.1.3), or
 * for a blocked wire.
 */
void qrnic_requester_deadline(QrnicEngine *e, QrnicQp *qp);
void qrnic_requester_retry(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
/*
 * Consumes a retry without moving the cursor. Returns false if no retry was
 * left, so that the queue pair has failed.
 */
bool qrnic_requester_retry_count(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome);
/*
 * Blocks the requester for ns, because the responder is not ready, and
 * retransmits then. Returns false if no RNR retry was left, so that the queue
 * pair has failed with this syndrome.
 */
bool qrnic_requester_rnr_wait(QrnicEngine *e, QrnicQp *qp, int64_t ns,
                              uint8_t syndrome);
/*
 * Retransmits a read, because a later answer shows that its response is lost
 * (9.7.5.1.3).
 */
void qrnic_requester_implied_nak(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt);

/*
 * selective.c: selective repeat. The cursor moves back to a lost PSN, and then
 * over PSNs that need no retransmission.
 */
void qrnic_selective_start(QrnicQp *qp);
/* Returns the transmission number of the packet at the cursor, modulo 256. */
uint8_t qrnic_selective_transmission(const QrnicRequester *r,
                                     const QrnicMessage *p);
/*
 * Records that the packet at the cursor, of message p, is sent; asks is true if
 * it requests an answer.
 */
void qrnic_selective_sent(QrnicEngine *e, QrnicRequester *r, QrnicMessage *p,
                          bool asks);
/* Records that all PSNs before una are acknowledged. */
void qrnic_selective_acknowledged(QrnicEngine *e, QrnicRequester *r,
                                  uint32_t una);
/* Marks all PSNs without known arrival as lost. The cursor is at una. */
void qrnic_selective_lose_all(QrnicRequester *r);
/* Moves the cursor to the next PSN that must be sent. */
void qrnic_selective_skip(QrnicRequester *r);
/* Returns the time to check for a lost last packet, at most expires. */
int64_t qrnic_selective_wait(QrnicEngine *e, QrnicRequester *r,
                             int64_t expires);
/* Returns how long an answer may take before a probe is sent; 0: unknown. */
int64_t qrnic_selective_patience(const QrnicSelective *s);
/*
 * Retransmits the last packet, or the request of a missing response, as a
 * probe.
 */
void qrnic_selective_probe(QrnicEngine *e, QrnicQp *qp);
/* Records the transmission that a SACK names. Called before una changes. */
void qrnic_selective_named(QrnicRequester *r, const QrnicTransport *t);
/*
 * Processes a SACK whose missing PSN has been sent. Returns true if a PSN is
 * lost; the cursor is then at the first lost PSN.
 */
bool qrnic_selective_arrived(QrnicRequester *r, const QrnicTransport *t);
/*
 * Returns true if the response of the oldest message, a read, is lost. This is
 * so if the answer belongs to a transmission after the last request for that
 * response.
 */
bool qrnic_selective_is_passed(QrnicRequester *r, const QrnicPacket *pkt);
/* Requests the oldest read and all later reads again. */
void qrnic_selective_ask(QrnicEngine *e, QrnicQp *qp);

#endif
