/*
 * qrnic engine, layer qp: queue pairs of all types
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * This header declares the object QrnicQp, the table of operations of a type of
 * queue pair (QrnicQpOps), and the output of a queue pair (QrnicOutput). The
 * functions declared here create and reset queue pairs, change their state, and
 * flush them.
 *
 * The commands of device/commands.c create, modify and destroy a queue pair.
 * The scheduler (sched/) calls QrnicQpOps.transmit, and the demultiplexer of
 * transport/ calls QrnicQpOps.receive. The files of transport/ fill in one
 * QrnicQpOps for each type and register the table once, in the init of their
 * layer.
 *
 * qp_send.h declares the send queue and the packets, qp_receive.h the receive
 * queue, qp_rate.h the rate, and qp_wait.h the waits for scheduler, context and
 * pages. InfiniBand specification, 10.3.1: states of a queue pair.
 */

#ifndef QRNIC_ENGINE_QP_H
#define QRNIC_ENGINE_QP_H

#include "engine/fabric/fabric.h"
#include "engine/queue/queue.h"

/* State of the transports; the headers of transport/ define the structures. */
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
 * Scheduler list that holds a queue pair. The scheduler serves the queue pairs
 * of each list round robin.
 */
typedef enum QrnicReadyList {
    /* no list: the queue pair waits for work, a response or a timer */
    QRNIC_LIST_NONE,
    /* the queue pair has work that can be done at once */
    QRNIC_LIST_READY,
    /* the queue pair waits until the wire accepts a frame */
    QRNIC_LIST_WIRE,
    /* the queue pair waits for room in the loopback queue */
    QRNIC_LIST_LOOPBACK,
    QRNIC_LISTS
} QrnicReadyList;

/*
 * Direction in which a queue pair waits for a page: its own send WQEs, or what
 * it receives. The value is the low bit of the number of a page fault.
 */
typedef enum QrnicSide {
    QRNIC_SIDE_SEND,
    QRNIC_SIDE_RECV,
    QRNIC_SIDES
} QrnicSide;

/*
 * Output of a queue pair: the operations that send its packets, either on the
 * wire or as encapsulated packets of a carrier QP
 */
typedef struct QrnicOutput {
    /*
     * The port sends and receives the packets. Queue pairs with this output
     * have a path, and their rate can be limited.
     */
    bool is_wire;
    /*
     * Operations behind qrnic_path_wait(), qrnic_packet_open(),
     * qrnic_packet_send()
     */
    QrnicReadyList (*wait)(QrnicEngine *e, QrnicQp *qp);
    uint8_t *(*open)(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                     uint32_t payload_len);
    void (*send)(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                 uint8_t *payload, uint32_t payload_len);
    /*
     * Returns true if the peer can have no request that needs a response yet,
     * because the output has not delivered it. NULL: packets leave the device
     * at once.
     */
    bool (*has_unsent)(QrnicEngine *e, QrnicQp *qp);
    /*
     * Returns the least time in ns of all transmissions of a request together,
     * because the output itself may need this time to deliver the response.
     * NULL: the timer of the queue pair is used as it is.
     */
    int64_t (*patience)(const QrnicQp *qp);
} QrnicOutput;

/* Output to the wire (path.c), which each queue pair has after its creation */
extern const QrnicOutput qrnic_wire_output;

/*
 * Hold time of an SQ with an event index (work_queue.c): the SQ stays awake
 * without work, so that software needs no doorbell
 */
typedef struct QrnicHold {
    QrnicTimer timer;           /* reads the record at the end of the time */
    int64_t slept;              /* time when the SQ fell asleep */
    uint8_t doubt;              /* doorbells until another hold is tried */
    bool pays;                  /* the next hold seems to save doorbells */
    bool found;                 /* the work was found without a doorbell */
    bool over;                  /* the timer has expired, without work since */
} QrnicHold;

struct QrnicQp {
    uint32_t number;
    /* enum qrnic_qp_type, for QUERY_QP and the context image */
    uint8_t type;
    const QrnicQpOps *ops;      /* operations of the type */
    uint8_t state;              /* enum qrnic_qp_state */
    bool sq_draining;
    QrnicPd *pd;                /* NULL: target of an XRC connection */
    /* NULL: the type has no such queue (XRC) */
    QrnicCq *send_cq, *recv_cq;
    /* SRQ that replaces the RQ; else NULL */
    QrnicSrq *srq;
    QrnicXrcd *xrcd;            /* domain of an XRC target; else NULL */
    bool last_wqe_reported;
    /* event that waits for room in the EQ; 0: none */
    uint8_t owed_event, owed_subtype;
    QrnicKeyUser keys;
    uint32_t rss_entries;       /* entries in RSS tables with this queue pair */
    QrnicCounterSet *counters;  /* counter set; NULL: device counters only */
    uint32_t db_page;
    QrnicDbQueue db_queue;
    QrnicQpCtx ctx;
    QrnicQpAttr attr;           /* attributes of the last MODIFY_QP */
    QrnicWorkQueue sq, rq;
    QrnicPath path;             /* headers that all its packets share */
    uint8_t traffic_class;      /* traffic class of the address vector */
    uint32_t congestion_epoch;  /* value of QrnicQps when path was set */
    /* path is loopback; valid for the GID table with epoch path_epoch */
    bool path_ours;
    uint64_t path_epoch;
    bool comm_established;
    uint8_t peer_options;       /* QRNIC_QPO_* that the peer has used */
    /*
     * MODIFY_QP has left SQE while posted WQEs were not yet flushed. WQEs
     * before sq_flush_end are flushed.
     */
    bool sq_flush_owed;
    uint32_t sq_flush_end;
    uint32_t datagram_psn;      /* PSN of the next datagram */
    uint64_t retransmissions;   /* retransmitted packets since the creation */
    QrnicSendWqe *under_way;    /* transmit.c: WQE sent in part; else NULL */
    QrnicRequester *requester;  /* RC, XRC and dynamic types only */
    QrnicResponder *responder;  /* RC, XRC and dynamic types only */

    /*
     * The members below are in two cache lines because each packet reads them.
     * Thousands of whole queue pairs would not fit into the cache of the CPU.
     * Rarely used members follow.
     */
    QrnicQp *target;            /* target that owns this responder; else NULL */
    uint32_t connection;        /* number of the dynamic connection */
    const QrnicOutput *out;
    QrnicCarrier *carrier;      /* shared/: state of a carrier QP; else NULL */
    QrnicMember *member;        /* shared/: state of a member; else NULL */
    QrnicCongestion *congestion;        /* NULL: highest rate */
    void *type_state;           /* private state of the type */
    QrnicWait *wait[QRNIC_SIDES];       /* page_fault.c; NULL: no wait */
    /* context.c; NULL: context always in the device */
    QrnicContext *context;
    bool context_counted;       /* context.c: counted in QrnicContexts */
    /* Members of the scheduler, set by ready.c */
    uint8_t ready_list;         /* enum QrnicReadyList */
    uint8_t level;              /* priority level */
    /* SQ doorbell rung; the scheduler reads the record later */
    bool sq_rung;
    /* work_queue.c: with event index, a doorbell announces the next WQE */
    bool sq_asleep;
    QrnicHold hold;
    QTAILQ_ENTRY(QrnicQp) next;
    QrnicTimer timer;
    /* Members of rate/pace.c */
    QrnicTimer pace_timer;
    int64_t pace_full;          /* time when the token bucket is full again */

    QrnicPieceList *piece_list; /* local_operation.c; else NULL */
    QrnicSegmentation *segmentation;    /* raw packet in segments; else NULL */
    /* coalesce.c: expected TCP frame; else NULL */
    QrnicContinuation *continuation;
    /* list of responders of a target, in RTS */
    QLIST_ENTRY(QrnicQp) next_peer;
    /* Timer of rate/reaction.c */
    QrnicTimer congestion_timer;
    /* Members of rate/notification.c: a CNP is pending */
    bool cnp_owed;
    int64_t cnp_next;           /* earliest time of the next CNP */
    QTAILQ_ENTRY(QrnicQp) next_cnp;
};

/*
 * Transition of a type, with the attributes (QRNIC_QP_*) that the transition
 * requires and allows. The transitions to RESET and ERR are common to all types
 * and have no entry. Manual, chapter on queue pairs.
 */
typedef struct QrnicTransition {
    uint8_t from, to;
    /* STATE and CUR_STATE are always allowed */
    uint32_t required, optional;
} QrnicTransition;

typedef struct QrnicStates QrnicStates;
struct QrnicStates {
    const QrnicTransition *transition;
    size_t count;
    const QrnicStates *others;  /* table shared with other types; or NULL */
};

/*
 * Operations and properties of a type of queue pair. An operation that is NULL
 * does nothing. Code outside the type reads this table, so that a new type
 * needs no change elsewhere.
 */
struct QrnicQpOps {
    uint64_t capability;        /* QRNIC_CAP_* that the type needs */
    /* QRNIC_QPF_* that the type allows; EVENT_INDEX is allowed with has_sq */
    uint8_t flags;
    /*
     * number of the only queue pair of this type, which only the kernel may
     * create; 0: any number
     */
    uint8_t fixed_number;
    int16_t service;            /* transport service in its opcodes; -1: none */
    /* Queues of the type; an SRQ may replace the RQ if may_share */
    bool has_sq, has_rq;
    bool may_share;
    bool may_inline;            /* CQEs can hold received data */
    bool may_match_tags;        /* SRQ can have a tag list */
    bool may_stream;            /* RQ buffers can hold many messages */
    bool of_domain;             /* XRC domain required */
    /*
     * Requests (responses) to this type are dropped, because the type expects
     * none
     */
    bool no_requests, no_responses;
    bool no_recv_wqes;          /* no request consumes a receive WQE */
    bool is_datagram;           /* address in each WQE */
    /* Ethernet frames, by filter and flow rules */
    bool takes_frames;
    bool answers_any;           /* packets of any peer are received */
    /* no CNP is sent, although the type has a rate */
    bool sends_no_cnp;
    bool has_sqe;               /* state after a failed send: SQE, not ERR */
    const QrnicStates *states;
    uint8_t options;            /* QRNIC_QPO_* that MODIFY_QP can set */
    QrnicWqeShape (*shape)(const QrnicEngine *e, const QrnicQp *qp,
                           uint8_t opcode);

    /*
     * Checks the input of CREATE_QP, in place of the checks common to all
     * types.
     */
    QrnicResult (*create_check)(QrnicEngine *e, const QrnicQpCtx *in);
    /* Checks dynamic_attr of CREATE_QP. NULL: dynamic_attr must be zero. */
    bool (*dynamic_check)(const QrnicDynamicAttr *in);
    /* Enters RESET, after creation too */
    void (*init)(QrnicEngine *e, QrnicQp *qp);
    /*
     * Completes the creation, after the queue pair has got its number. Returns
     * false if the numbers of queue pairs are exhausted.
     */
    bool (*created)(QrnicEngine *e, QrnicQp *qp);
    void (*cleanup)(QrnicEngine *e, QrnicQp *qp);
    void (*destroyed)(QrnicEngine *e, QrnicQp *qp);     /* before destruction */
    /*
     * Returns true if other objects depend on the queue pair, so that
     * DESTROY_QP must fail.
     */
    bool (*in_use)(const QrnicQp *qp);
    /*
     * Returns true if count resources are enough for all reads and atomics
     * without a complete response.
     */
    bool (*can_keep)(const QrnicQp *qp, uint32_t count);
    /* Checks a transition after the checks common to all types. */
    QrnicResult (*modify_check)(QrnicEngine *e, const QrnicQp *qp,
                                const QrnicQpAttr *in, uint8_t to);
    /*
     * Runs after a transition from state from, or after a change of attributes.
     */
    void (*entered)(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                    const QrnicQpAttr *in);
    void (*query)(const QrnicQp *qp, QrnicQpAttr *out);
    /*
     * Writes up to 8 numbers that change with each packet to the context image.
     * Types without this operation have no cached context.
     */
    void (*context)(const QrnicQp *qp, uint32_t *word);

    /*
     * Sends up to budget packets and returns the list in which to wait. After
     * QRNIC_LIST_NONE, the event that ends the wait calls qrnic_schedule().
     * Calls qrnic_path_wait() or qrnic_address_wait() before each packet,
     * because a blocked wire must not lose packets.
     */
    QrnicReadyList (*transmit)(QrnicEngine *e, QrnicQp *qp, unsigned budget);
    /*
     * Sends packets of a WQE, for types whose transmit is qrnic_transmit().
     * Returns true if the WQE is complete or has failed; *status and *syndrome
     * have the result. Returns false if packets remain.
     */
    bool (*send)(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                 uint8_t *status, uint8_t *syndrome);
    /*
     * Directs the connection to the address in a WQE. Returns false if earlier
     * messages must finish first; the WQE is then fetched again later.
     */
    bool (*reach)(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe);
    bool (*is_idle)(const QrnicQp *qp);         /* no send WQE is in flight */
    void (*timer)(QrnicEngine *e, QrnicQp *qp);
    /*
     * Continues after a page fault, because software has paged the page in or
     * has rejected the fault.
     */
    void (*resume)(QrnicEngine *e, QrnicQp *qp, QrnicSide side);
    void (*receive_doorbell)(QrnicEngine *e, QrnicQp *qp);
    /*
     * Receives a packet that the demultiplexer has validated for this queue
     * pair.
     */
    void (*receive)(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
    /* Adds members of the type to the CQE of a received message. */
    void (*recv_cqe)(const QrnicQp *qp, QrnicCqe *cqe);
    QrnicSrq *(*srq)(QrnicEngine *e, const QrnicQp *qp);
    /* Fails the queue pair in place of the transition to ERR. */
    void (*failed)(QrnicEngine *e, QrnicQp *qp);
    /* Runs after the transition to ERR. */
    void (*error_entered)(QrnicEngine *e, QrnicQp *qp);

    /*
     * Appends the next message to the ring of the requester. Returns false if
     * there is none. NULL: the requester consumes the next WQE of the SQ.
     */
    bool (*message_take)(QrnicEngine *e, QrnicQp *qp);
    /* Runs after the requester has completed messages. */
    void (*messages_done)(QrnicEngine *e, QrnicQp *qp);

    /*
     * Both complete one outstanding message as flushed, in state ERR, and
     * return false if there is none. The first one runs before WQEs of the SQ
     * are flushed, the second before those of the RQ.
     */
    bool (*flush_send)(QrnicEngine *e, QrnicQp *qp);
    bool (*flush_receive)(QrnicEngine *e, QrnicQp *qp);
};

/**
 * qrnic_qp_type_register:
 * @e: engine
 * @type: enum qrnic_qp_type, below QRNIC_QP_TYPES
 * @ops: operations of the type; must remain valid
 *
 * Registers a type of queue pair. Called from init of the layer that defines
 * the type.
 */
void qrnic_qp_type_register(QrnicEngine *e, uint8_t type,
                            const QrnicQpOps *ops);

/* qp.c: creation and destruction */

/**
 * qrnic_qp_no_queues_check:
 * @e: engine
 * @in: input of CREATE_QP
 *
 * Checks CREATE_QP for types without queues (QrnicQpOps.create_check).
 *
 * Returns: ST_OK; ST_BAD_PARAM with the offset of the first member that
 * describes a queue
 */
QrnicResult qrnic_qp_no_queues_check(QrnicEngine *e, const QrnicQpCtx *in);
/**
 * qrnic_responder_qp_new:
 * @e: engine
 * @target: target of dynamic connections that owns the new queue pair
 * @ops: operations of the responder
 *
 * Creates a responder of a target. Commands cannot name the responder, because
 * it is internal to the target.
 *
 * Returns: the queue pair in RESET; NULL if all numbers are in use
 */
QrnicQp *qrnic_responder_qp_new(QrnicEngine *e, QrnicQp *target,
                                const QrnicQpOps *ops);
void qrnic_responder_qp_free(QrnicEngine *e, QrnicQp *qp);

/* modify.c: states and attributes */

/**
 * qrnic_qp_reset:
 * @e: engine
 * @qp: queue pair
 *
 * Restores the state after creation: clears queues, attributes, timers and
 * waits.
 */
void qrnic_qp_reset(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_av_check:
 * @e: engine
 * @av: address vector of one peer
 *
 * Checks the address vector of a connection. A multicast address is invalid,
 * because a connection has exactly one peer.
 *
 * Returns: ST_OK; ST_BAD_PARAM with the offset of the first invalid member
 */
QrnicResult qrnic_av_check(QrnicEngine *e, const QrnicAddressVector *av);
/**
 * qrnic_qp_receives:
 * @qp: queue pair
 * @response: true for a response, false for a request
 *
 * Returns: true if the state allows to receive such a packet
 */
bool qrnic_qp_receives(const QrnicQp *qp, bool response);

/* error.c: states that the device enters on its own */

/**
 * qrnic_qp_error:
 * @e: engine
 * @qp: queue pair
 * @event: asynchronous event to report; 0: none
 * @subtype: subtype of the event
 *
 * Takes the queue pair to ERR: stops all timers and waits, and schedules the
 * flush of both queues. The event waits if the asynchronous EQ is full. Does
 * nothing if the state is ERR already.
 */
void qrnic_qp_error(QrnicEngine *e, QrnicQp *qp, uint8_t event,
                    uint8_t subtype);
/**
 * qrnic_qp_check_drained:
 * @e: engine
 * @qp: queue pair
 *
 * Reports that the SQ is drained, if the state is SQD and no send WQE is in
 * flight. Transmit operations call this function when they cannot send any
 * more.
 */
void qrnic_qp_check_drained(QrnicEngine *e, QrnicQp *qp);

/**
 * qrnic_qp_flush:
 * @e: engine
 * @qp: queue pair in ERR
 * @budget: largest number of WQEs to flush
 *
 * Completes posted WQEs as flushed: outstanding sends, SQ, outstanding
 * receives, RQ.
 *
 * Returns: true if the budget is spent; false if all WQEs are flushed
 */
bool qrnic_qp_flush(QrnicEngine *e, QrnicQp *qp, unsigned budget);

/* Returns the source number in the packets of a datagram queue pair. */
static inline uint32_t qrnic_qp_source(const QrnicQp *qp)
{
    return qp->ctx.flags & QRNIC_QPF_SOURCE_QPN ? qp->ctx.source_qpn :
                                                  qp->number;
}
/*
 * Returns the queue pair that software created: the target of a responder, or
 * qp itself. The counter set of that queue pair counts.
 */
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
/* Returns the SRQ whose WQEs received messages consume; NULL: the RQ. */
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
    /* indexed by enum qrnic_qp_type */
    const QrnicQpOps *ops[QRNIC_QP_TYPES];
    QrnicTable table;
    QrnicContexts *contexts;    /* NULL: the device has no context cache */
    const struct QrnicContextUsers *context_users;
    /*
     * Lists of the scheduler, by QrnicReadyList and level. Each word of ready
     * has a bit for each level whose list has entries.
     */
    QTAILQ_HEAD(, QrnicQp) list[QRNIC_LISTS][QRNIC_PRIORITY_LEVELS];
    uint32_t ready[QRNIC_LISTS];
    /* epoch of the GID table at the last check of the lists */
    uint64_t gids_epoch;
    /* error.c: next entry, and entries left to check */
    uint32_t errors_at, errors_left;
    /* page faults whose events wait for room in the EQ */
    QTAILQ_HEAD(, QrnicWait) faults_owed;
    struct QrnicPageRequests *requests;     /* page_request.c */
    uint32_t fault_sequence;    /* sequence number of the last page fault */
    QrnicCongestionCtx congestion;
    uint32_t congestion_epoch;  /* counts changes of congestion, from 1 */
    QTAILQ_HEAD(, QrnicQp) cnps_owed;
    /* packets in carrier QPs; limit MAX_INNER_BYTES */
    size_t encapsulated_bytes;
    size_t buffered_bytes;      /* buffered out of order; limit MAX_REORDER */
    /*
     * bytes of executed packets, part of buffered_bytes; limit MAX_REORDER / 2
     */
    size_t executed_bytes;
    /*
     * Reorder buffers, by the power of two of their bytes, to find the largest
     * one
     */
    QTAILQ_HEAD(, QrnicReorder) reorders[QRNIC_REORDER_LISTS];
    uint32_t num_reorders;         /* reorder buffers in these lists */
} QrnicQps;

extern const QrnicFloor qrnic_qp_floor;

static inline QrnicQp *qrnic_qp_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->qps->table, number);
}

/*
 * Returns the queue pair with a number that a packet or a command names.
 * Returns NULL for a responder of a target, because responders are internal.
 */
static inline QrnicQp *qrnic_qp_find(QrnicEngine *e, uint32_t number)
{
    QrnicQp *qp = qrnic_qp_get(e, number);

    return qp && !qp->target ? qp : NULL;
}

#endif
