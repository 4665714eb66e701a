/*
 * qrnic engine, floor qp: queue pairs, whatever their type: objects, states,
 * completion, flush, path, pace, payload
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_H
#define QRNIC_ENGINE_QP_H

#include "engine/fabric/fabric.h"
#include "engine/queue/queue.h"

/* Transport state; the transports say what is in them. */
typedef struct QrnicRequester QrnicRequester;
typedef struct QrnicResponder QrnicResponder;
typedef struct QrnicPieceList QrnicPieceList;
typedef struct QrnicSegmentation QrnicSegmentation;
typedef struct QrnicContinuation QrnicContinuation;

typedef struct QrnicCongestion QrnicCongestion;
typedef struct QrnicCarrier QrnicCarrier;
typedef struct QrnicMember QrnicMember;
typedef struct QrnicWait QrnicWait;
typedef struct QrnicContext QrnicContext;
typedef struct QrnicContexts QrnicContexts;

typedef struct QrnicQp QrnicQp;
typedef struct QrnicQpOps QrnicQpOps;

/*
 * What a queue pair had its turn for, and so which list it is in now: the
 * scheduler goes through each of them round robin.
 */
typedef enum QrnicTurn {
    QRNIC_TURN_DONE,            /* waits for work, an answer, a timer */
    QRNIC_TURN_MORE,            /* it could go on at once */
    QRNIC_TURN_WIRE,            /* when the wire takes a frame */
    QRNIC_TURN_LOOPBACK,        /* when frames to ourselves have been taken */
    QRNIC_TURNS
} QrnicTurn;

/* Where it can wait for a page; the low bit of a page fault's number */
typedef enum QrnicSide {
    QRNIC_SIDE_SEND,
    QRNIC_SIDE_RECV,
    QRNIC_SIDES
} QrnicSide;

/*
 * The output of a queue pair: operations by which it sends packets on the wire,
 * or by way of another queue pair
 */
typedef struct QrnicOutput {
    /*
     * The port sends and receives the packets, so that they have a path and the
     * queue pair has a rate.
     */
    bool is_wire;
    /* See qrnic_path_wait(), qrnic_packet_open(), qrnic_packet_send(). */
    QrnicTurn (*wait)(QrnicEngine *e, QrnicQp *qp);
    uint8_t *(*open)(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                     uint32_t payload_len);
    void (*send)(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                 uint8_t *payload, uint32_t payload_len);
    /* Returns true if a sent packet may not have left; NULL: it never does. */
    bool (*has_unsent)(const QrnicQp *qp);
} QrnicOutput;

/* path.c: the output of each queue pair from its creation */
extern const QrnicOutput qrnic_wire_output;

struct QrnicQp {
    uint32_t number;
    uint8_t type;               /* enum qrnic_qp_type, for those who ask */
    const QrnicQpOps *ops;      /* what that means */
    uint8_t state;              /* enum qrnic_qp_state */
    bool sq_draining;
    QrnicPd *pd;                /* NULL: XRC target */
    /* NULL: it has no such queue (XRC) */
    QrnicCq *send_cq, *recv_cq;
    QrnicSrq *srq;              /* NULL: it has an RQ of its own, or none */
    QrnicXrcd *xrcd;            /* XRC target */
    bool last_wqe_reported;
    uint8_t owed_event, owed_subtype;   /* when the asynchronous EQ has room */
    QrnicKeyUser keys;
    uint32_t rss_entries;       /* of tables that name it */
    QrnicCounterSet *counters;  /* NULL: none but the device's */
    uint32_t db_page;
    QrnicDbQueue db_queue;
    QrnicQpCtx ctx;
    QrnicQpAttr attr;           /* as last set by MODIFY_QP */
    QrnicWorkQueue sq, rq;
    QrnicPath path;             /* headers that every packet of it shares */
    uint8_t traffic_class;      /* as the address vector has it */
    uint32_t congestion_epoch;  /* when the path got its ECN bits */
    bool path_ours;             /* it leads back, as of this GID table: */
    uint64_t path_epoch;
    bool comm_established;
    uint8_t peer_options;       /* QRNIC_QPO_*: which its packets have shown */
    /* SQE was left before all was flushed that was posted: up to here. */
    bool sq_flush_owed;
    uint32_t sq_flush_end;
    uint32_t datagram_psn;      /* of the next one sent */
    QrnicSendWqe *under_way;    /* transmit.c: not all sent; else NULL */
    QrnicRequester *requester;  /* RC and XRC only */
    QrnicResponder *responder;  /* RC and XRC only */

    /*
     * What each packet looks at, in two cache lines, and behind it what few
     * do: what thousands of queue pairs have is in no cache.
     */
    QrnicQp *target;            /* whose responder it is; else NULL */
    uint32_t connection;        /* dynamic connections: number of this one */
    const QrnicOutput *out;
    QrnicCarrier *carrier;      /* shared/: of a carrier QP; else NULL */
    QrnicMember *member;        /* shared/: of a member; else NULL */
    QrnicCongestion *congestion;        /* NULL: it has the highest rate */
    void *type_state;           /* only files of the type know what it is */
    QrnicWait *wait[QRNIC_SIDES];       /* page_fault.c; NULL: for nothing */
    QrnicContext *context;      /* context.c; NULL: always in the device */
    bool context_counted;       /* context.c: there is room for its context */
    /* scheduler.c */
    uint8_t turn;               /* enum QrnicTurn */
    uint8_t level;              /* of priority */
    bool sq_rung;               /* read the record of the SQ when taken up */
    QTAILQ_ENTRY(QrnicQp) next;
    QrnicTimer timer;
    /* rate/pace.c */
    QrnicTimer pace_timer;
    int64_t pace_full;          /* when all that was sent is paid for */

    QrnicPieceList *piece_list; /* local_operation.c; else NULL */
    QrnicSegmentation *segmentation;    /* raw packet, under way; else NULL */
    QrnicContinuation *continuation;    /* of the last frame; NULL: none */
    QLIST_ENTRY(QrnicQp) next_peer;     /* of those of a target, in RTS */
    /* rate/reaction.c */
    QrnicTimer congestion_timer;
    /* notification.c */
    bool cnp_owed;
    int64_t cnp_next;           /* none is sent before */
    QTAILQ_ENTRY(QrnicQp) next_cnp;
};

/*
 * The transitions of a type besides those to RESET and ERR, with the attributes
 * (QRNIC_QP_*) that each requires and allows; see QP states in the manual
 */
typedef struct QrnicTransition {
    uint8_t from, to;
    uint32_t required, optional;        /* besides STATE and CUR_STATE */
} QrnicTransition;

typedef struct QrnicStates QrnicStates;
struct QrnicStates {
    const QrnicTransition *transition;
    size_t count;
    const QrnicStates *others;  /* that it shares with other types; or NULL */
};

/*
 * What a type of queue pair is and does; a function that is NULL does nothing.
 * Types differ by this table, and nowhere else.
 */
struct QrnicQpOps {
    uint64_t capability;        /* QRNIC_CAP_* that it needs */
    uint8_t flags;              /* QRNIC_QPF_* that it may have */
    uint8_t fixed_number;       /* the kernel's only one, with this number */
    int16_t service;            /* of its packets; -1: it has none */
    bool has_sq, has_rq;        /* an SRQ may stand for the RQ: */
    bool may_share;
    bool may_inline;            /* received data in CQEs */
    bool may_match_tags;        /* its SRQ may have a tag list */
    bool may_stream;            /* many messages into a buffer of the RQ */
    bool of_domain;             /* an XRC domain */
    bool no_requests, no_responses;     /* that it could receive */
    bool no_recv_wqes;          /* requests consume no receive WQEs */
    bool is_datagram;           /* the address is in each WQE */
    bool takes_frames;          /* whole ones, by the filter and flow rules */
    bool answers_any;           /* its packets come from anywhere */
    bool sends_no_cnp;          /* although its rate follows CNPs */
    bool has_sqe;               /* a failed send leads there, not to ERR */
    const QrnicStates *states;
    uint8_t options;            /* QRNIC_QPO_* that a connection may request */
    QrnicWqeShape (*shape)(const QrnicEngine *e, const QrnicQp *qp,
                           uint8_t opcode);

    /* CREATE_QP: in place of what is checked of all types */
    QrnicResult (*create_check)(QrnicEngine *e, const QrnicQpCtx *in);
    /* CREATE_QP of who may have dynamic_attr */
    bool (*dynamic_check)(const QrnicDynamicAttr *in);
    void (*init)(QrnicEngine *e, QrnicQp *qp);  /* created, and to RESET */
    /* It has its number; false: not enough is there for what it needs. */
    bool (*created)(QrnicEngine *e, QrnicQp *qp);
    void (*cleanup)(QrnicEngine *e, QrnicQp *qp);
    void (*destroyed)(QrnicEngine *e, QrnicQp *qp);     /* it is about to go */
    /* Returns true if others need it: it cannot be destroyed now. */
    bool (*in_use)(const QrnicQp *qp);
    /* So many reads and atomics can be kept without losing one not answered. */
    bool (*can_keep)(const QrnicQp *qp, uint32_t count);
    /* A transition, in addition to what is checked of all types */
    QrnicResult (*modify_check)(QrnicEngine *e, const QrnicQp *qp,
                                const QrnicQpAttr *in, uint8_t to);
    /* A transition from this state, or attributes set */
    void (*entered)(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                    const QrnicQpAttr *in);
    void (*query)(const QrnicQp *qp, QrnicQpAttr *out);
    /*
     * Of types whose contexts are cached: the numbers that change with each
     * packet, 8 at most, for the image
     */
    void (*context)(const QrnicQp *qp, uint32_t *word);

    /*
     * Sends at most budget packets. Where it says that it is done, whatever
     * ends the wait calls qrnic_schedule(). It must ask qrnic_path_wait() or
     * qrnic_address_wait() before each packet.
     */
    QrnicTurn (*transmit)(QrnicEngine *e, QrnicQp *qp, unsigned budget);
    /*
     * Of types whose transmit is qrnic_transmit(): sends what may go now of a
     * WQE. True: that was all, or it failed; *status and *syndrome say so.
     */
    bool (*send)(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                 uint8_t *status, uint8_t *syndrome);
    /*
     * Of types whose WQEs have an address: a connection leads there, or will.
     * False: not before others are done; the WQE comes again.
     */
    bool (*reach)(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe);
    bool (*is_idle)(const QrnicQp *qp);         /* no send WQE is under way */
    void (*timer)(QrnicEngine *e, QrnicQp *qp);
    /* A page that was waited for is there, or will never be. */
    void (*resume)(QrnicEngine *e, QrnicQp *qp, QrnicSide side);
    void (*receive_doorbell)(QrnicEngine *e, QrnicQp *qp);
    /* A packet that it can receive now */
    void (*receive)(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
    /* Adds to the CQE of a message that is received, if it is not NULL. */
    void (*recv_cqe)(const QrnicQp *qp, QrnicCqe *cqe);
    QrnicSrq *(*srq)(QrnicEngine *e, const QrnicQp *qp);
    /* In place of going to ERR */
    void (*failed)(QrnicEngine *e, QrnicQp *qp);
    /* It is in ERR since now. */
    void (*error_entered)(QrnicEngine *e, QrnicQp *qp);

    /*
     * Appends the next message to the ring of the requester; false: there is
     * none now. NULL: the requester consumes the next WQE of the SQ.
     */
    bool (*message_take)(QrnicEngine *e, QrnicQp *qp);
    /* The requester has completed messages. */
    void (*messages_done)(QrnicEngine *e, QrnicQp *qp);

    /*
     * In ERR: completes as flushed what was under way, before what was only
     * posted to the SQ, and before what was only posted to the RQ. False:
     * nothing is.
     */
    bool (*flush_send)(QrnicEngine *e, QrnicQp *qp);
    bool (*flush_receive)(QrnicEngine *e, QrnicQp *qp);
};

/* From init of the floor that knows types */
void qrnic_qp_type_register(QrnicEngine *e, uint8_t type,
                            const QrnicQpOps *ops);

/* transmit.c: of types that wait for no answer */
QrnicTurn qrnic_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget);
/* flush.c: the WQE that is not all sent is forgotten. */
void qrnic_transmit_drop(QrnicEngine *e, QrnicQp *qp);
/* In ERR: completes it as flushed. False: there is none. */
bool qrnic_transmit_flush(QrnicEngine *e, QrnicQp *qp);

/* ready.c: it has something to do, as far as is known. */
void qrnic_schedule(QrnicEngine *e, QrnicQp *qp);
/* The same, before all others */
void qrnic_schedule_first(QrnicEngine *e, QrnicQp *qp);
void qrnic_ready_init(QrnicQp *qp);
void qrnic_unschedule(QrnicEngine *e, QrnicQp *qp);
/* After its turn, which ended so */
void qrnic_schedule_again(QrnicEngine *e, QrnicQp *qp, QrnicTurn turn);
/* The levels of those of this list that may have their turn now, a bit each */
uint32_t qrnic_ready_levels(QrnicEngine *e, QrnicTurn list);
/* Of such a level */
QrnicQp *qrnic_first_ready(QrnicEngine *e, QrnicTurn list, unsigned level);
/* By its priority, or else its service level */
void qrnic_level_set(QrnicEngine *e, QrnicQp *qp);

/*
 * work_queue.c
 * Next send WQE, without taking it further than the software doorbell says.
 * Advances sq.consumer on OK, and on ERROR (by one block). Fetches in batches.
 */
QrnicTake qrnic_sq_take(QrnicEngine *e, QrnicQp *qp, QrnicSendWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/* As if the WQE taken last had not been, and nothing was decided of it. */
void qrnic_sq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe);
/*
 * The WQE that begins at index again (retransmission): read from guest memory,
 * where it must still be, as its slot was not completed.
 */
QrnicTake qrnic_sq_refetch(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                           QrnicSendWqe *out, uint8_t *status,
                           uint8_t *syndrome);
/* True if a WQE may be there: cached producer, or record when reread is set. */
bool qrnic_sq_pending(QrnicEngine *e, QrnicQp *qp, bool reread);
/*
 * The WQE of a direct doorbell, of so many blocks, behind which the producer
 * index is this; false: fetch it as usual
 */
bool qrnic_sq_direct(QrnicEngine *e, QrnicQp *qp, const uint8_t *wqe,
                     uint32_t wqebbs, uint32_t producer);
QrnicTake qrnic_rq_take(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/*
 * The same for a message that may go on: the WQE stays in a buffer until it is
 * dropped. NULL after QRNIC_TAKE_EMPTY and QRNIC_TAKE_BROKEN.
 */
QrnicTake qrnic_rq_take_kept(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe **wqe,
                             uint8_t *status, uint8_t *syndrome);
void qrnic_recv_wqe_drop(QrnicEngine *e, QrnicRecvWqe **wqe);
/* The WQE taken last stays so: few may be left. */
void qrnic_rq_taken(QrnicEngine *e, QrnicQp *qp);
/* Receive WQEs posted and not taken, as last read; for credits. */
uint32_t qrnic_rq_posted(QrnicEngine *e, QrnicQp *qp, bool reread);
/* As if the WQE taken last had not been; the next taker gets it. */
void qrnic_rq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe);

/*
 * rate/reaction.c: reduces the rate of a queue pair when a CNP for it arrives,
 * if the port is a reaction point.
 */
void qrnic_congestion_notified(QrnicEngine *e, QrnicQp *qp);
/* The timer of it; afterwards it may be able to send. */
void qrnic_congestion_expired(QrnicEngine *e, QrnicQp *qp);
/* It may send at that time; INT64_MIN: always */
int64_t qrnic_congestion_until(const QrnicQp *qp);
/* It has sent a frame. */
void qrnic_congestion_charge(QrnicEngine *e, QrnicQp *qp, size_t len);
/* It has the highest rate. */
void qrnic_congestion_drop(QrnicEngine *e, QrnicQp *qp);
/* One of QRNIC_CONGESTION_* is on. */
bool qrnic_congestion_has(const QrnicEngine *e, uint8_t flag);
/* congestion_parameters.c: to the reset values */
void qrnic_congestion_init(QrnicEngine *e);

/*
 * notification.c: congestion was experienced on its way, and the port is a
 * notification point
 */
bool qrnic_mark_counts(const QrnicEngine *e, const QrnicPacket *p);
static inline bool qrnic_packet_is_marked(const QrnicEngine *e,
                                          const QrnicPacket *p)
{
    return (p->h->traffic_class & QRNIC_ECN_MASK) == QRNIC_ECN_CE &&
           qrnic_mark_counts(e, p);
}
/* Such a packet has come for it. */
void qrnic_notification_owe(QrnicEngine *e, QrnicQp *qp);
void qrnic_notification_drop(QrnicEngine *e, QrnicQp *qp);
/* None is owed any more. */
void qrnic_notifications_forget(QrnicEngine *e);
bool qrnic_notifications_pending(const QrnicEngine *e);
void qrnic_notifications_process(QrnicEngine *e);

/* rate/pace.c */
/*
 * True: it may not send now because of its rate limit, or of congestion, and
 * is scheduled again when it may.
 */
bool qrnic_pace_ask(QrnicEngine *e, QrnicQp *qp);
/* The same for responses to reads, which have no limit but congestion */
bool qrnic_pace_response_wait(QrnicEngine *e, QrnicQp *qp);
static inline bool qrnic_pace_is_limited(const QrnicQp *qp)
{
    return qp->attr.rate_limit || qp->congestion;
}
/* qrnic_pace_ask(), whose answer is nearly always known */
static inline bool qrnic_pace_wait(QrnicEngine *e, QrnicQp *qp)
{
    return (qrnic_pace_is_limited(qp) ||
            qp->pace_timer.deadline != QRNIC_DEADLINE_NEVER) &&
           qrnic_pace_ask(e, qp);
}
/* Its SQ has sent a frame. */
void qrnic_pace_charge(QrnicEngine *e, QrnicQp *qp, size_t len);
/* It waits no more, and begins as if it had not sent anything. */
void qrnic_pace_restart(QrnicEngine *e, QrnicQp *qp);

/*
 * What context.c tells: an image was wrong; the turn that a miss has cost may
 * be; somebody wants a turn, as others do.
 */
typedef struct QrnicContextUsers {
    void (*failed)(QrnicEngine *e, QrnicQp *qp, uint8_t event, uint8_t subtype);
    void (*turn)(QrnicEngine *e, QrnicQp *qp);
    void (*schedule)(QrnicEngine *e, QrnicQp *qp);
} QrnicContextUsers;

/*
 * context.c: before work on a queue pair, one of these. True: it may be done.
 * False: it is done when the context is there.
 */
bool qrnic_context_turn(QrnicEngine *e, QrnicQp *qp);
bool qrnic_context_timer(QrnicEngine *e, QrnicQp *qp);
bool qrnic_context_doorbell(QrnicEngine *e, QrnicQp *qp);
/* A frame for it; false: it comes again, or is dropped */
bool qrnic_context_receive(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                           bool loopback);
/* For a command, or an error: fetched at once. */
void qrnic_context_now(QrnicEngine *e, QrnicQp *qp);
bool qrnic_context_is_in(const QrnicQp *qp);
/* It gets its turn when its context is there. */
bool qrnic_context_waits(QrnicQp *qp);
/* The turn is over: its context may go. */
void qrnic_context_turn_done(QrnicEngine *e, QrnicQp *qp);
/* In order, and one is being fetched: nothing is issued. */
bool qrnic_contexts_stand_still(const QrnicEngine *e);
/* Frames may go for which the last run of the engine had no time. */
bool qrnic_contexts_pending(const QrnicEngine *e);
void qrnic_contexts_process(QrnicEngine *e);
/* One more of this type */
QrnicResult qrnic_context_room(QrnicEngine *e, const QrnicQpOps *ops);
void qrnic_context_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_context_free(QrnicEngine *e, QrnicQp *qp);
/* That of a member, which has none; there is room for it until it leaves. */
void qrnic_context_away(QrnicEngine *e, QrnicQp *qp);
void qrnic_context_again(QrnicEngine *e, QrnicQp *qp);
/* After it is free or away: others may go on. */
void qrnic_context_gone(QrnicEngine *e);
void qrnic_contexts_init(QrnicEngine *e);
void qrnic_contexts_cleanup(QrnicEngine *e);

/* page_fault.c */
/*
 * Returns true if the access of this side has met an absent page: the side
 * waits for it, and is scheduled when software has answered. Returns false if
 * the syndrome is another one, or software has rejected the page, or no EQ
 * takes page faults.
 */
bool qrnic_page_fault_wait(QrnicEngine *e, QrnicQp *qp, QrnicSide side,
                           const QrnicFault *fault);
static inline bool qrnic_page_fault(QrnicEngine *e, QrnicQp *qp, QrnicSide side,
                                    enum qrnic_syndrome syndrome,
                                    const QrnicFault *fault)
{
    return syndrome == QRNIC_SYN_PAGE_FAULT &&
           qrnic_page_fault_wait(e, qp, side, fault);
}
bool qrnic_page_fault_waits(const QrnicQp *qp, QrnicSide side);
/* The hook of floor queue: there is no EQ of page faults any more. */
void qrnic_page_faults_orphaned(QrnicEngine *e);
/* It waits for nothing any more. */
void qrnic_page_faults_drop(QrnicEngine *e, QrnicQp *qp);
/* Events that the EQ has room for now, and had not before */
bool qrnic_page_faults_pending(const QrnicEngine *e);
void qrnic_page_faults_process(QrnicEngine *e);

/* qp.c */
/* create_check of a type without queues and all that belongs to them */
QrnicResult qrnic_qp_no_queues_check(QrnicEngine *e, const QrnicQpCtx *in);
/* A queue pair that no command finds, of a target. NULL: no number is left. */
QrnicQp *qrnic_responder_qp_new(QrnicEngine *e, QrnicQp *target,
                                const QrnicQpOps *ops);
void qrnic_responder_qp_free(QrnicEngine *e, QrnicQp *qp);
/* modify.c: nothing of what it did is left. */
void qrnic_qp_reset(QrnicEngine *e, QrnicQp *qp);
/* An address vector of one other end; its first wrong member */
QrnicResult qrnic_av_check(QrnicEngine *e, const QrnicAddressVector *av);
/* Frees it with all it holds, but leaves the counts of other objects alone. */
void qrnic_qp_free(QrnicEngine *e, QrnicQp *qp);
/* To ERR: stop, report (event 0: none), flush both queues as they fill. */
void qrnic_qp_error(QrnicEngine *e, QrnicQp *qp, uint8_t event,
                    uint8_t subtype);
/* Completes a WQE of the SQ / RQ; takes the QP to ERR if the CQ refuses. */
void qrnic_complete_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                         uint8_t status, uint8_t syndrome, uint32_t byte_len);
/* A WQE of the SQ that is known only by what was kept of it */
void qrnic_complete_sq(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                       uint32_t wqebbs, uint8_t opcode, uint8_t flags,
                       uint8_t status, uint8_t syndrome, uint32_t byte_len);
void qrnic_complete_recv(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe);
/* The same with the data that software takes to the buffers */
void qrnic_complete_recv_inline(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                                const uint8_t *data);
/* A match, with what the header says, which begins the message */
void qrnic_complete_tagged(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                           const uint8_t *header);
/* After CQ errors: their queue pairs to ERR. */
void qrnic_qp_errors_process(QrnicEngine *e);
bool qrnic_qp_errors_pending(const QrnicEngine *e);
/* UC, UD and GSI: a send failed; to SQE. */
void qrnic_qp_send_error(QrnicEngine *e, QrnicQp *qp);
/* Completes the next WQE of the SQ as flushed; false: there is none. */
bool qrnic_sq_flush_one(QrnicEngine *e, QrnicQp *qp);
/* From SQE to RTS: what has been posted by now is still flushed. */
void qrnic_sq_flush_rest(QrnicEngine *e, QrnicQp *qp);
/* The next WQE of the SQ is one to flush, in whichever state. */
static inline bool qrnic_sq_flush_is_owed(const QrnicQp *qp)
{
    return qp->sq_flush_owed &&
           (int32_t)(qp->sq_flush_end - qp->sq.consumer) > 0;
}
/* UC, UD and GSI: flush now, and send nothing */
bool qrnic_sq_flush_due(QrnicQp *qp);
/* The number in the packets of a datagram queue pair, which others answer */
static inline uint32_t qrnic_qp_source(const QrnicQp *qp)
{
    return qp->ctx.flags & QRNIC_QPF_SOURCE_QPN ? qp->ctx.source_qpn :
                                                  qp->number;
}
/* The one that software knows, and that counts for it */
static inline QrnicQp *qrnic_qp_known(const QrnicQp *qp)
{
    return qp->target ? qp->target : (QrnicQp *)qp;
}
static inline bool qrnic_qp_has_sq(const QrnicQp *qp)
{
    return qp->ops->has_sq && !(qp->ctx.flags & QRNIC_QPF_RECEIVE_ONLY);
}
static inline bool qrnic_qp_has_rq(const QrnicQp *qp)
{
    return !qp->srq && qp->ops->has_rq;
}
/* Requests that it receives take receive WQEs, whoever posted them. */
static inline bool qrnic_qp_takes_wqes(const QrnicQp *qp)
{
    return !qp->ops->no_recv_wqes;
}
/* Each receive WQE is a message that it can take, and nobody else can. */
static inline bool qrnic_qp_has_credits(const QrnicQp *qp)
{
    return qrnic_qp_has_rq(qp) && !qp->rq.stream;
}
/* What it receives from now; NULL: its RQ */
static inline QrnicSrq *qrnic_qp_srq(QrnicEngine *e, const QrnicQp *qp)
{
    return qp->ops->srq ? qp->ops->srq(e, qp) : qp->srq;
}
/* Called by a scheduled QP in ERR: flushes what is posted. False: all done. */
bool qrnic_qp_flush(QrnicEngine *e, QrnicQp *qp, unsigned budget);
/*
 * local_operation.c: what is not SYN_NONE goes with MW_BIND_ERR. Unless it is
 * done, the caller calls again with the same WQE: when the page is there, or in
 * the next turn, because the work of this one is spent.
 */
typedef enum QrnicLocal {
    QRNIC_LOCAL_DONE, QRNIC_LOCAL_WAITS, QRNIC_LOCAL_MORE,
} QrnicLocal;

QrnicLocal qrnic_local_operation(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicSendWqe *wqe, uint8_t *syndrome);
/* Frees the list of pieces that was read in part, if there is one */
void qrnic_piece_list_drop(QrnicQp *qp);
/* Its state lets it take a request, or a response. */
bool qrnic_qp_receives(const QrnicQp *qp, bool response);
/* No send WQE is under way. */
static inline bool qrnic_send_idle(const QrnicQp *qp)
{
    return !qp->under_way && (!qp->ops->is_idle || qp->ops->is_idle(qp));
}
/* SQD, and nothing under way any more: tell. */
void qrnic_qp_check_drained(QrnicEngine *e, QrnicQp *qp);

static inline uint32_t qrnic_qp_mtu(const QrnicQp *qp)
{
    return 128u << qp->attr.path_mtu;
}

/* Source ports of RoCE v2: A17.9.2 */
#define QRNIC_UDP_SPORT_MIN 0xc000u

/* 0, or with RoCE v2 one of them */
static inline bool qrnic_udp_sport_is_valid(const QrnicGidEntry *from,
                                            const QrnicAddressVector *av)
{
    return !av->udp_sport || (av->udp_sport >= QRNIC_UDP_SPORT_MIN &&
                              !(from->flags & QRNIC_GID_ROCE_V1));
}

/* The headers of what it sends next; the source GID must be valid. */
void qrnic_path_set(QrnicEngine *e, QrnicQp *qp, const QrnicAddressVector *av,
                    uint32_t dest_qpn);
/*
 * What a packet has to wait for: one of its path, or one to this address.
 * TURN_MORE: nothing.
 */
static inline QrnicTurn qrnic_path_wait(QrnicEngine *e, QrnicQp *qp)
{
    return qp->out->wait(e, qp);
}
QrnicTurn qrnic_address_wait(QrnicEngine *e, const QrnicAddressVector *av);
/* It waits for the wire, which stands still: see qrnic_wire_stands_still() */
bool qrnic_path_stands_still(QrnicEngine *e, QrnicQp *qp, uint32_t *epoch);
/*
 * A packet, in two steps: returns where its payload goes, and sends it when
 * that is there. One that is not sent may be left.
 */
static inline uint8_t *qrnic_packet_open(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicTransport *t,
                                         uint32_t payload_len)
{
    return qp->out->open(e, qp, t, payload_len);
}

static inline void qrnic_packet_send(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicTransport *t, uint8_t *payload,
                                     uint32_t payload_len)
{
    qp->out->send(e, qp, t, payload, payload_len);
}
/* A CNP to the other end of its connection */
void qrnic_notification_send(QrnicEngine *e, QrnicQp *qp);

/* payload.c: len bytes of a message from offset on, which are there */
enum qrnic_syndrome qrnic_gather_part(QrnicEngine *e, QrnicQp *qp,
                                      const QrnicSendWqe *wqe, uint64_t offset,
                                      uint8_t *to, uint32_t len,
                                      QrnicFault *fault);
enum qrnic_syndrome qrnic_scatter_part(QrnicEngine *e, QrnicQp *qp,
                                       const QrnicRecvWqe *wqe, uint64_t offset,
                                       const uint8_t *from, uint32_t len,
                                       QrnicFault *fault);
/*
 * A packet of a send, which the WQE has room for. *inlined: its data is to go
 * into the CQE in place of the buffers.
 */
enum qrnic_syndrome qrnic_scatter_packet(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicRecvWqe *wqe,
                                         uint64_t offset,
                                         const QrnicPacket *p, bool *inlined,
                                         QrnicFault *fault);
/* Messages of one packet. On failure *status and *syndrome. */
/* Copies the data of the WQE to buf. Its length has been checked. */
bool qrnic_gather(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                  uint8_t *buf, uint8_t *status, uint8_t *syndrome,
                  QrnicFault *fault);
/* Writes the pieces, one behind the other, to the buffers; sets cqe->status. */
bool qrnic_scatter(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                   const struct iovec *piece, unsigned pieces, QrnicCqe *cqe,
                   QrnicFault *fault);

#define QRNIC_QP_TYPES 16
#define QRNIC_HOLD_LISTS 32

typedef struct QrnicPairs {
    const QrnicQpOps *ops[QRNIC_QP_TYPES];      /* by enum qrnic_qp_type */
    QrnicTable qps;
    QrnicContexts *contexts;    /* NULL: no cache */
    const QrnicContextUsers *context_users;
    /* by enum QrnicTurn and level; ready: a bit for each that is not empty */
    QTAILQ_HEAD(, QrnicQp) list[QRNIC_TURNS][QRNIC_PRIORITY_LEVELS];
    uint32_t ready[QRNIC_TURNS];
    uint64_t gids_epoch;        /* of the GID table when the lists were made */
    uint32_t errors_at, errors_left;    /* entries to see to after an error */
    QTAILQ_HEAD(, QrnicWait) faults_owed;       /* the EQ had no room */
    uint32_t fault_sequence;    /* of the last page fault */
    QrnicCongestionCtx congestion;
    uint32_t congestion_epoch;  /* how often that was set; not 0 */
    QTAILQ_HEAD(, QrnicQp) cnps_owed;
    size_t encapsulated_bytes;  /* packets in carrier QPs; MAX_INNER_BYTES */
    size_t held_bytes;          /* buffered out of order; MAX_HELD */
    size_t executed_bytes;      /* of these, already executed; MAX_HELD / 2 */
    /* Connections, by the power of two of the bytes that each buffers */
    QTAILQ_HEAD(, QrnicHold) holds[QRNIC_HOLD_LISTS];
    uint32_t num_holds;         /* connections in these lists */
} QrnicPairs;

extern const QrnicFloor qrnic_qp_floor;

static inline QrnicQp *qrnic_qp_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->pairs->qps, number);
}

/* For who names one from outside: responders of targets have no name there. */
static inline QrnicQp *qrnic_qp_find(QrnicEngine *e, uint32_t number)
{
    QrnicQp *qp = qrnic_qp_get(e, number);

    return qp && !qp->target ? qp : NULL;
}

#endif
