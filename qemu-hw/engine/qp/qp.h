/*
 * qrnic engine, floor qp: queue pairs of all types: the object, the operations
 * of a type, life and states
 *
 * qp_send.h and qp_receive.h have the queues, packets and payload; qp_rate.h
 * the rate; qp_wait.h the waits for scheduler, context and pages.
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
 * The list that a queue pair is in after it has been scheduled: the
 * scheduler goes through each of them round robin.
 */
typedef enum QrnicReadyList {
    QRNIC_LIST_NONE,            /* waits for work, an answer, a timer */
    QRNIC_LIST_READY,            /* it could go on at once */
    QRNIC_LIST_WIRE,            /* when the wire takes a frame */
    QRNIC_LIST_LOOPBACK,        /* when frames to ourselves have been taken */
    QRNIC_LISTS
} QrnicReadyList;

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
    QrnicReadyList (*wait)(QrnicEngine *e, QrnicQp *qp);
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
    uint8_t ready_list;         /* enum QrnicReadyList */
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
    QrnicReadyList (*transmit)(QrnicEngine *e, QrnicQp *qp, unsigned budget);
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

/*
 * qp.c: life
 */

/* QrnicQpOps.create_check of a type that has no queues */
QrnicResult qrnic_qp_no_queues_check(QrnicEngine *e, const QrnicQpCtx *in);
/*
 * Creates a queue pair of a target that no command finds. Returns NULL if no
 * number is left.
 */
QrnicQp *qrnic_responder_qp_new(QrnicEngine *e, QrnicQp *target,
                                const QrnicQpOps *ops);
void qrnic_responder_qp_free(QrnicEngine *e, QrnicQp *qp);

/*
 * modify.c: states and attributes
 */

/* To the state after creation */
void qrnic_qp_reset(QrnicEngine *e, QrnicQp *qp);
/* Checks an address vector of one peer. Names its first wrong member. */
QrnicResult qrnic_av_check(QrnicEngine *e, const QrnicAddressVector *av);
/* Returns true if the state allows to receive a request, or a response. */
bool qrnic_qp_receives(const QrnicQp *qp, bool response);

/*
 * error.c: states that the device enters by itself
 */

/* To ERR: stops, reports event (0: none), flushes both queues as they fill. */
void qrnic_qp_error(QrnicEngine *e, QrnicQp *qp, uint8_t event,
                    uint8_t subtype);
/* If SQD and no send WQE is in flight, reports that the SQ is drained. */
void qrnic_qp_check_drained(QrnicEngine *e, QrnicQp *qp);

/* flush.c: flushes posted WQEs in ERR. Returns false if all are flushed. */
bool qrnic_qp_flush(QrnicEngine *e, QrnicQp *qp, unsigned budget);

/* Returns the source number in packets of a datagram queue pair. */
static inline uint32_t qrnic_qp_source(const QrnicQp *qp)
{
    return qp->ctx.flags & QRNIC_QPF_SOURCE_QPN ? qp->ctx.source_qpn :
                                                  qp->number;
}
/* Returns the queue pair that software knows, and whose counters count. */
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
/* Returns the SRQ that it receives into now; NULL: its RQ. */
static inline QrnicSrq *qrnic_qp_srq(QrnicEngine *e, const QrnicQp *qp)
{
    return qp->ops->srq ? qp->ops->srq(e, qp) : qp->srq;
}
static inline uint32_t qrnic_qp_mtu(const QrnicQp *qp)
{
    return 128u << qp->attr.path_mtu;
}

#define QRNIC_QP_TYPES 16
#define QRNIC_REORDER_LISTS 32

typedef struct QrnicQps {
    const QrnicQpOps *ops[QRNIC_QP_TYPES];      /* by enum qrnic_qp_type */
    QrnicTable table;
    QrnicContexts *contexts;    /* NULL: no cache */
    const struct QrnicContextUsers *context_users;
    /* By QrnicReadyList and level; ready: a bit for each nonempty list */
    QTAILQ_HEAD(, QrnicQp) list[QRNIC_LISTS][QRNIC_PRIORITY_LEVELS];
    uint32_t ready[QRNIC_LISTS];
    uint64_t gids_epoch;        /* of the GID table when the lists were made */
    uint32_t errors_at, errors_left;    /* entries to see to after an error */
    QTAILQ_HEAD(, QrnicWait) faults_owed;       /* the EQ had no room */
    uint32_t fault_sequence;    /* of the last page fault */
    QrnicCongestionCtx congestion;
    uint32_t congestion_epoch;  /* how often that was set; not 0 */
    QTAILQ_HEAD(, QrnicQp) cnps_owed;
    size_t encapsulated_bytes;  /* packets in carrier QPs; MAX_INNER_BYTES */
    size_t buffered_bytes;      /* buffered out of order; MAX_REORDER */
    size_t executed_bytes;      /* of these, executed; MAX_REORDER / 2 */
    /* Connections, by the power of two of the bytes that each buffers */
    QTAILQ_HEAD(, QrnicReorder) reorders[QRNIC_REORDER_LISTS];
    uint32_t num_reorders;         /* connections in these lists */
} QrnicQps;

extern const QrnicFloor qrnic_qp_floor;

static inline QrnicQp *qrnic_qp_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->qps->table, number);
}

/* Returns the queue pair of a number from outside, which names no responder. */
static inline QrnicQp *qrnic_qp_find(QrnicEngine *e, uint32_t number)
{
    QrnicQp *qp = qrnic_qp_get(e, number);

    return qp && !qp->target ? qp : NULL;
}

#endif
