/*
 * qrnic engine, floor queue: rings and their records, work queue elements,
 * shared receive queues, completion and event queues, doorbell pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QUEUE_H
#define QRNIC_ENGINE_QUEUE_H

#include "engine/memory/memory.h"

/* db_page.c: what is rung through a page */
typedef struct QrnicDbQueue {
    enum { QRNIC_DB_QUEUE_QP, QRNIC_DB_QUEUE_CQ, QRNIC_DB_QUEUE_TAGS } kind;
    QTAILQ_ENTRY(QrnicDbQueue) next;
} QrnicDbQueue;

typedef struct QrnicDbPage {
    uint32_t users;             /* queues that name this page */
    QTAILQ_HEAD(, QrnicDbQueue) queues;
    /* Its messages in the FIFO; of these, before a loss is seen to */
    uint32_t waiting, before_loss;
    bool lost;                  /* one, and that is not seen to yet */
    bool recovering;            /* in the list of those whose queues are */
    bool recover_again;         /* looked at; this one is next: */
    QrnicDbQueue *recover;
    QTAILQ_ENTRY(QrnicDbPage) next;
    uint32_t window_valid;      /* bitmap of 8-byte words written */
    uint8_t window[QRNIC_DB_WINDOW_SIZE];
} QrnicDbPage;

QrnicDbPage *qrnic_db_page_new(void);
void qrnic_db_page_join(QrnicEngine *e, uint32_t number, QrnicDbQueue *q);
void qrnic_db_page_leave(QrnicEngine *e, uint32_t number, QrnicDbQueue *q);

/* xrc.c: XRC domain */
typedef struct QrnicXrcd {
    uint32_t number;
    uint32_t users;             /* SRQs and targets */
} QrnicXrcd;

/* eq.c */
typedef struct QrnicEq {
    uint32_t number;
    QrnicEqCtx ctx;
    QrnicPages ring;
    uint32_t producer, consumer;
    uint32_t taken;             /* up to here the CQs know of the consumer */
    uint32_t users;
    bool armed, failed;
    bool untaken;               /* in the list of those where taken is behind */
    QTAILQ_ENTRY(QrnicEq) next;
    uint32_t cqn[];             /* CQ of each EQE, 0: another event */
} QrnicEq;

void qrnic_eq_init(QrnicEngine *e);
/*
 * For events that there may be any number of: half of the EQ is left to those
 * that cannot wait. Whoever waits is kicked when software has consumed some.
 */
bool qrnic_async_has_room(const QrnicEngine *e);
/* One for each vector, and one for page faults, which can share a vector */
static inline uint32_t qrnic_max_eq(const QrnicEngine *e)
{
    return e->config.vectors +
           !!(e->config.capabilities & QRNIC_CAP_ON_DEMAND);
}
/* There is an EQ for page faults; it has room for one more. */
bool qrnic_fault_eq_exists(const QrnicEngine *e);
bool qrnic_fault_eq_has_room(const QrnicEngine *e);
/* Writes EVENT_PAGE_FAULT: there must be room. */
void qrnic_fault_eq_push(QrnicEngine *e, uint32_t number, uint32_t sequence);
void qrnic_eq_push(QrnicEngine *e, QrnicEq *eq, QrnicEqe *eqe);
/*
 * EQ doorbell. The index counts at once; CQs that owe an event because of it
 * write it at once or, if they may be many, from qrnic_eqs_process().
 */
void qrnic_eq_doorbell(QrnicEngine *e, const QrnicEqDoorbell *in);
bool qrnic_eqs_pending(const QrnicEngine *e);
void qrnic_eqs_process(QrnicEngine *e);

/* cq.c */
typedef struct QrnicCq {
    uint32_t number;
    QrnicCqCtx ctx;
    QrnicPages ring;
    uint32_t producer, consumer;        /* consumer: as last read */
    uint32_t solicited_producer;        /* producer after the last solicited */
    uint32_t reported_producer; /* producer at the last event, or consumer */
    uint32_t arm_sequence;              /* last one taken */
    enum { QRNIC_CQ_IDLE, QRNIC_CQ_ARMED_SOLICITED, QRNIC_CQ_ARMED } arm;
    /* An EQE is in the EQ; another one is owed when that one is consumed */
    bool event_waits, event_owed;
    bool event_late;            /* in the list of those that owe one now */
    QTAILQ_ENTRY(QrnicCq) next_late;
    uint8_t error;                      /* enum qrnic_cq_error */
    uint32_t users;
    QrnicDbQueue db_queue;
    QrnicCqModeration moderation;
    uint32_t unreported;        /* CQEs since it was armed that deserve one */
    QrnicTimer timer;           /* of the event */
} QrnicCq;

/*
 * Writes a CQE (phase and timestamp are filled in) and its event; data, unless
 * NULL, are the byte_len bytes that go along, or the header of a tagged
 * message. False: the CQ is in error; the caller takes its QP to ERR.
 */
bool qrnic_cq_push(QrnicEngine *e, QrnicCq *cq, QrnicCqe *cqe,
                   const uint8_t *data);
/* CQ arm doorbell, or recovery: read the record */
void qrnic_cq_arm(QrnicEngine *e, QrnicCq *cq);
void qrnic_cq_read_consumer(QrnicEngine *e, QrnicCq *cq);
/* The armed CQ has count more CQEs that deserve an event. */
void qrnic_cq_report(QrnicEngine *e, QrnicCq *cq, uint32_t count);
void qrnic_cq_init(QrnicEngine *e);

/*
 * cq_modify.c: the resize in progress. All slots of the new ring but those of
 * CQEs are written first (live is false), then the CQEs. Nothing else of the
 * device depends on it before its end.
 */
typedef struct QrnicCqMove {
    QrnicCq *cq;                /* NULL: no resize is in progress */
    QrnicTranslation table;     /* of the new ring */
    QrnicPages ring;
    uint32_t log_size;
    uint32_t start;             /* index of the oldest CQE */
    uint32_t index, end;        /* next slot to write, and the one behind */
    bool live;
    QrnicResult result;         /* of the last resize */
} QrnicCqMove;

void qrnic_cq_move_process(QrnicEngine *e);

/* Data segments of a work request, decoded. */
typedef struct QrnicSge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
} QrnicSge;

/* wqe.c: a send WQE, decoded and validated. */
typedef struct QrnicSendWqe {
    uint32_t index;             /* producer index of its first basic block */
    uint32_t wqebbs;
    uint8_t opcode, flags;      /* enum qrnic_wqe_opcode, QRNIC_WQEF_* */
    uint32_t imm;
    uint64_t remote_addr;
    uint32_t rkey;
    uint64_t swap_add, compare;
    QrnicFlushSeg flush;
    uint32_t srqn;              /* XRC; else 0 */
    QrnicEthSeg eth;
    QrnicDatagramSeg datagram;
    QrnicDynamicSeg dynamic;
    QrnicBindSeg bind;
    QrnicRegSeg reg;
    QrnicIndirectSeg indirect;
    uint64_t length;            /* bytes of the message */
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE + 1];
    uint8_t inline_data[QRNIC_MAX_INLINE];
} QrnicSendWqe;

/* An operation on keys, of which nothing is sent */
static inline bool qrnic_is_local_operation(uint8_t opcode)
{
    return opcode == QRNIC_WQE_BIND_MW || opcode == QRNIC_WQE_LOCAL_INV ||
           opcode == QRNIC_WQE_REG_MR || opcode == QRNIC_WQE_REG_INDIRECT;
}

typedef struct QrnicStream QrnicStream;
typedef struct QrnicStreamBuffer QrnicStreamBuffer;
typedef struct QrnicTagList QrnicTagList;

/*
 * tags.c: an entry of a tag list. It is the list's until a message has matched
 * it, and then the queue pair's that got the message.
 */
typedef struct QrnicTag {
    QrnicTagList *list;         /* NULL: the handle is not its own any more */
    uint32_t handle;
    bool posted;                /* in the list, and can be matched */
    bool solicited;             /* the sender of the rendezvous asked for it */
    bool rendezvous;            /* with these headers: */
    uint8_t header[QRNIC_RENDEZVOUS_SIZE];
    QTAILQ_ENTRY(QrnicTag) next;
    uint64_t length;
    uint32_t num_sge;
    QrnicSge sge[];
} QrnicTag;

typedef struct QrnicRecvWqe {
    uint32_t index;             /* SRQ: slot */
    uint32_t pd;                /* of its keys */
    uint32_t srqn;              /* 0: from the RQ */
    QrnicStream *stream;        /* of a streaming queue, or NULL: */
    QrnicStreamBuffer *buffer;  /* NULL: the WQE is bad */
    uint32_t offset;            /* in the buffer: the message begins here */
    QrnicTag *tag;              /* not a WQE but this entry's; or NULL */
    uint8_t tag_opcode;         /* SRQ with a tag list: enum qrnic_cqe_opcode */
    uint64_t length;            /* that there is for the message */
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE];
} QrnicRecvWqe;

typedef enum QrnicTake {
    QRNIC_TAKE_OK,
    QRNIC_TAKE_EMPTY,           /* nothing posted */
    QRNIC_TAKE_ERROR,           /* *status and *syndrome say why */
    QRNIC_TAKE_BROKEN,          /* the SRQ gives no more; nothing to complete */
} QrnicTake;

/* What an opcode asks for, of a send WQE */
typedef struct QrnicWqeShape {
    bool known;
    bool xrc, dynamic;          /* segments behind the control segment */
    bool remote, atomic, eth;
    bool bind, reg, indirect, datagram, flush;
    bool imm;
    bool can_inline;
    bool data;                  /* data segments allowed */
} QrnicWqeShape;

/* decode only; cqe-ready status on error. */
QrnicTake qrnic_send_wqe_decode(QrnicEngine *e, uint32_t number,
                                const QrnicWqeShape *shape, const uint8_t *raw,
                                uint32_t raw_wqebbs, uint32_t index,
                                QrnicSendWqe *out, uint8_t *status,
                                uint8_t *syndrome);
/* Data segments from p on; empty ones are left out. False: too long. */
bool qrnic_data_segs_decode(const uint8_t *p, unsigned count, QrnicSge *sge,
                            uint32_t *num_sge, uint64_t *length);
/* next: what the WQE says of it, which must be less than next_limit */
QrnicTake qrnic_recv_wqe_decode(QrnicEngine *e, const char *queue,
                                uint32_t number, uint8_t log_stride,
                                uint32_t index, uint32_t next_limit,
                                const uint8_t *raw, QrnicRecvWqe *out,
                                uint32_t *next, uint8_t *status,
                                uint8_t *syndrome);

/*
 * ring.c: a buffer for blocks fetched ahead. There is a bounded number of
 * them: the queue that got its own first loses it to one that has none, and
 * fetches again what it had not taken by then.
 */
#define QRNIC_MAX_FETCH 128

typedef struct QrnicWorkQueue QrnicWorkQueue;
typedef struct QrnicFetch {
    QTAILQ_ENTRY(QrnicFetch) next;
    QrnicWorkQueue *owner;
    uint8_t raw[QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE];
} QrnicFetch;

/* The ring of a work queue, its record, and blocks fetched ahead. */
struct QrnicWorkQueue {
    QrnicPages ring;
    uint64_t record;
    uint8_t log_size;           /* SQ: basic blocks; RQ: WQEs */
    uint8_t log_stride;         /* RQ: basic blocks of a WQE; SQ: 0 */
    uint32_t producer;          /* as last read from the record */
    uint32_t consumer;          /* next to fetch */
    uint32_t completed;         /* SQ: up to here the slots are software's */
    uint32_t fetched, fetched_count;    /* blocks cached: first, how many */
    QrnicFetch *fetch;          /* they are here; NULL: there are none */
    uint8_t bad_record;         /* enum qrnic_syndrome; the next take says so */
    QrnicStream *stream;        /* of a streaming RQ or SRQ; else NULL */
};

/* The buffer of a queue, which gets one if it has none */
uint8_t *qrnic_fetch_get(QrnicEngine *e, QrnicWorkQueue *wq);
/* Nothing is cached any more. */
void qrnic_fetch_put(QrnicEngine *e, QrnicWorkQueue *wq);

/*
 * Reads the record of a queue. What it says must lie between what it said
 * before and room slots beyond those that are done.
 */
void qrnic_record_read(QrnicEngine *e, QrnicWorkQueue *wq, const char *queue,
                       uint32_t number, uint32_t done, uint32_t room);
/* Reads count slots from index on, in two pieces where the ring ends. */
bool qrnic_slots_read(QrnicEngine *e, QrnicWorkQueue *wq, const char *queue,
                      uint32_t number, uint32_t index, uint32_t count,
                      uint8_t *buf);

/*
 * stream.c: the buffers of a streaming queue. A receive WQE that is one's own
 * is a place in a buffer, which end, fail or give_back gets rid of.
 */
static inline bool qrnic_is_stream(const QrnicStreamAttr *attr)
{
    return attr->max_message;
}
/* offset: of the attributes in the input of the command */
QrnicResult qrnic_stream_check(QrnicEngine *e, const QrnicStreamAttr *in,
                               uint32_t offset);
/* NULL: the queue is not streaming, which the next ones know, too. */
QrnicStream *qrnic_stream_new(const QrnicStreamAttr *attr, const char *queue,
                              uint32_t number);
void qrnic_stream_free(QrnicStream *s);
/* Forgets all buffers. */
void qrnic_stream_clear(QrnicStream *s);
/* A place for a message; false: it needs another WQE. */
bool qrnic_stream_begin(QrnicEngine *e, QrnicStream *s, QrnicRecvWqe *out);
/* The WQE that has been taken is the open buffer now, in which it begins. */
void qrnic_stream_open(QrnicEngine *e, QrnicStream *s, QrnicRecvWqe *wqe);
/* The next message gets the place. */
void qrnic_stream_give_back(QrnicEngine *e, const QrnicRecvWqe *wqe);
/* What the CQE of the message says; nothing if the queue is not streaming */
void qrnic_stream_end(QrnicEngine *e, const QrnicRecvWqe *wqe, uint64_t bytes,
                      QrnicCqe *cqe);
void qrnic_stream_fail(QrnicEngine *e, const QrnicRecvWqe *wqe, QrnicCqe *cqe);
/* The same of an RQ, whose buffer is gone by this */
void qrnic_stream_flush(QrnicEngine *e, const QrnicRecvWqe *wqe, QrnicCqe *cqe);

/* tags.c: list operations, of all lists in turn */
bool qrnic_tags_pending(const QrnicEngine *e);
void qrnic_tags_process(QrnicEngine *e, unsigned budget);
void qrnic_tag_list_doorbell(QrnicEngine *e, QrnicTagList *l);
QrnicTagList *qrnic_tag_list_of(QrnicDbQueue *q);
/* Of all that completes for the SRQ */
QrnicCq *qrnic_tag_list_cq(QrnicEngine *e, const QrnicTagList *l);
/* Takes the first entry that matches out of the list; NULL: none does. */
QrnicTag *qrnic_tag_match(QrnicEngine *e, QrnicTagList *l, uint64_t tag);
/* A message that matched none has got a WQE; or was cut short after that. */
void qrnic_tag_unexpected(QrnicEngine *e, QrnicTagList *l, uint64_t tag);
void qrnic_tag_expected_after_all(QrnicEngine *e, QrnicTagList *l);
/* QRNIC_CQET_SYNC_REQ if the CQE of an unexpected message is to ask for it */
uint8_t qrnic_tag_sync_wanted(const QrnicTagList *l);
/* Its handle is software's when the CQE that follows is written. */
void qrnic_tag_done(QrnicEngine *e, QrnicTag *t);
/* The list completes it as flushed, and frees it. */
void qrnic_tag_abandon(QrnicEngine *e, QrnicTag *t);
void qrnic_tag_list_free(QrnicTagList *l);
/* The SRQ is about to go, and the list with it. */
void qrnic_tag_list_gone(QrnicEngine *e, QrnicTagList *l);

/* srq.c */
typedef struct QrnicSrq {
    uint32_t number;
    QrnicSrqCtx ctx;
    QrnicWorkQueue rq;          /* consumer: WQEs taken out of the ring */
    uint32_t slot;              /* of the next WQE */
    uint32_t ahead;             /* slots from there that are in the cache */
    GArray *returned;           /* uint16_t: slots given back; or NULL */
    uint8_t error;              /* enum qrnic_syndrome: gives no more */
    uint32_t users;
    QrnicTagList *tags;         /* or NULL */
} QrnicSrq;

void qrnic_srq_give_back(QrnicEngine *e, uint32_t qpn, const QrnicRecvWqe *wqe);
QrnicTake qrnic_srq_take(QrnicEngine *e, QrnicSrq *srq, QrnicRecvWqe *out,
                         uint8_t *status, uint8_t *syndrome);
void qrnic_srq_check_limit(QrnicEngine *e, QrnicSrq *srq);
void qrnic_srq_free(QrnicEngine *e, QrnicSrq *srq);
/* The CQ of an SRQ that has its own; NULL: completions are in the QP's */
QrnicCq *qrnic_srq_cq(QrnicEngine *e, uint32_t srqn);

typedef struct QrnicQueues {
    QrnicTable db_pages, eqs, cqs, srqs, xrcds;
    QTAILQ_HEAD(, QrnicFetch) fetches;  /* the oldest first */
    uint32_t fetch_count;
    QrnicEq *async_eq, *fault_eq;       /* NULL: there is none */
    QTAILQ_HEAD(, QrnicDbPage) recovering;
    QTAILQ_HEAD(, QrnicEq) untaken;
    QTAILQ_HEAD(, QrnicCq) late;
    /*
     * What CQs do when software has consumed the EQE of one. If it owes another
     * one, it writes that now, or is late with it until late_event() writes
     * that of one.
     */
    void (*event_taken)(QrnicEngine *e, uint32_t cqn, bool late);
    void (*late_event)(QrnicEngine *e);
    QTAILQ_HEAD(, QrnicTagList) tag_lists;      /* with work to do */
    uint32_t all_tags;          /* entries that lists may have, in all */
    QrnicCqMove move;
    bool cq_failed;             /* a CQ went into error: see to its QPs */
    /* An XRC SRQ is about to go: what was received into it goes nowhere now. */
    void (*srq_gone)(QrnicEngine *e, const QrnicSrq *srq);
    void (*fault_eq_gone)(QrnicEngine *e);
} QrnicQueues;

extern const QrnicFloor qrnic_queue_floor;

static inline QrnicDbPage *qrnic_db_page_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->queue->db_pages, number);
}

static inline QrnicEq *qrnic_eq_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->queue->eqs, number);
}

static inline QrnicCq *qrnic_cq_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->queue->cqs, number);
}

static inline QrnicSrq *qrnic_srq_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->queue->srqs, number);
}

static inline QrnicXrcd *qrnic_xrcd_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->queue->xrcds, number);
}

#endif
