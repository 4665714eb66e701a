/*
 * qrnic engine, layer queue: doorbell pages, CQs, EQs, rings of work queues,
 * WQEs, shared receive queues, and tag lists
 *
 * Commands create the objects. Queue pairs read WQEs through ring.c and wqe.c,
 * and complete them with qrnic_cq_push(). The run loop calls
 * qrnic_tags_process(), qrnic_eqs_process() and qrnic_cq_move_process() in each
 * round. The layer reaches higher layers only through the function pointers in
 * QrnicQueues.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QUEUE_H
#define QRNIC_ENGINE_QUEUE_H

#include "engine/memory/memory.h"

/*
 * Queue that is rung through a doorbell page; a part of the QP, CQ or tag list
 */
typedef struct QrnicDbQueue {
    enum { QRNIC_DB_QUEUE_QP, QRNIC_DB_QUEUE_CQ, QRNIC_DB_QUEUE_TAGS } kind;
    QTAILQ_ENTRY(QrnicDbQueue) next;
} QrnicDbQueue;

typedef struct QrnicDbPage {
    uint32_t users;             /* queues with this page */
    QrnicProcess process;       /* owner of the page; unused for page 0 */
    QTAILQ_HEAD(, QrnicDbQueue) queues;
    /* Doorbells of the page in the FIFO, and those among them before a loss */
    uint32_t waiting, before_loss;
    /* a doorbell was lost; its recovery has not begun */
    bool lost;
    bool recovering;            /* in the list of recovering pages */
    bool recover_again;         /* repeat the recovery after its end */
    /* next queue that the recovery checks */
    QrnicDbQueue *recover;
    QTAILQ_ENTRY(QrnicDbPage) next;
    /* bitmap of the 8-byte words that were written */
    uint32_t window_valid;
    uint8_t window[QRNIC_DB_WINDOW_SIZE];
} QrnicDbPage;

/**
 * qrnic_db_page_new:
 *
 * Returns: a doorbell page without queues
 */
QrnicDbPage *qrnic_db_page_new(void);
/**
 * qrnic_db_page_process:
 * @e: the engine
 * @number: number of an allocated page
 *
 * Returns: the process that owns the page, or NULL for the page of the kernel.
 * The pointer is valid while a queue or a key of the process uses the page.
 */
QrnicProcess *qrnic_db_page_process(QrnicEngine *e, uint32_t number);
/**
 * qrnic_db_page_join:
 * @e: the engine
 * @number: number of an allocated page
 * @q: a queue that is created
 *
 * Adds a queue to a page. The page cannot be freed while it has queues.
 */
void qrnic_db_page_join(QrnicEngine *e, uint32_t number, QrnicDbQueue *q);
/**
 * qrnic_db_page_leave:
 * @e: the engine
 * @number: number of the page
 * @q: a queue that is destroyed
 *
 * Removes a queue from its page.
 */
void qrnic_db_page_leave(QrnicEngine *e, uint32_t number, QrnicDbQueue *q);

/* XRC domain */
typedef struct QrnicXrcd {
    uint32_t number;
    uint32_t users;             /* SRQs and XRC targets */
} QrnicXrcd;

/* Event queue */
typedef struct QrnicEq {
    uint32_t number;
    QrnicEqCtx ctx;
    QrnicPages ring;
    uint32_t producer, consumer;
    /* index up to which event_taken has processed EQEs */
    uint32_t taken;
    uint32_t users;
    bool armed, failed;
    /* in the list of EQs whose "taken" is behind "consumer" */
    bool untaken;
    QTAILQ_ENTRY(QrnicEq) next;
    uint32_t cqn[];             /* CQ of each EQE; 0 for any other event */
} QrnicEq;

/**
 * qrnic_eq_init:
 * @e: the engine
 *
 * Registers this layer as the receiver of asynchronous events.
 */
void qrnic_eq_init(QrnicEngine *e);
/**
 * qrnic_async_has_room:
 * @e: the engine
 *
 * Checks for room for the events of which there may be any number. These events
 * use only half of the EQ, so that other events find room. The engine runs
 * again when software consumes events.
 *
 * Returns: true if such an event can be written now
 */
bool qrnic_async_has_room(const QrnicEngine *e);
/*
 * Returns the maximum number of EQs: one per vector, and one for page faults,
 * which can share a vector.
 */
static inline uint32_t qrnic_max_eq(const QrnicEngine *e)
{
    return e->config.vectors +
           !!(e->config.capabilities & QRNIC_CAP_ON_DEMAND);
}
/**
 * qrnic_fault_eq_exists:
 * @e: the engine
 *
 * Returns: true if a usable EQ for page faults exists
 */
bool qrnic_fault_eq_exists(const QrnicEngine *e);
/**
 * qrnic_fault_eq_has_room:
 * @e: the engine
 *
 * Returns: true if the EQ for page faults exists and has room for an event
 */
bool qrnic_fault_eq_has_room(const QrnicEngine *e);
/**
 * qrnic_fault_eq_push:
 * @e: the engine
 * @number: number of the page fault: queue pair and side
 * @sequence: sequence number of the page fault
 *
 * Writes EVENT_PAGE_FAULT. The caller has checked that there is room.
 */
void qrnic_fault_eq_push(QrnicEngine *e, uint32_t number, uint32_t sequence);
/**
 * qrnic_eq_push:
 * @e: the engine
 * @eq: the event queue
 * @eqe: the event; its phase is filled in
 *
 * Writes an event, and sends the interrupt if the EQ is armed. A full EQ is a
 * fatal error.
 */
void qrnic_eq_push(QrnicEngine *e, QrnicEq *eq, QrnicEqe *eqe);
/**
 * qrnic_eq_doorbell:
 * @e: the engine
 * @in: the doorbell
 *
 * Updates the consumer index and arms the EQ. A CQ with a pending event writes
 * its event now, or in qrnic_eqs_process() if there may be many.
 */
void qrnic_eq_doorbell(QrnicEngine *e, const QrnicEqDoorbell *in);
/**
 * qrnic_eqs_pending:
 * @e: the engine
 *
 * Returns: true if qrnic_eqs_process() has work
 */
bool qrnic_eqs_pending(const QrnicEngine *e);
/**
 * qrnic_eqs_process:
 * @e: the engine
 *
 * Processes a limited number of consumed EQEs, and writes late events.
 */
void qrnic_eqs_process(QrnicEngine *e);

/* Completion queue */
typedef struct QrnicCq {
    uint32_t number;
    QrnicCqCtx ctx;
    QrnicPages ring;
    uint32_t producer, consumer;        /* consumer: as last read */
    /* producer after the last solicited CQE */
    uint32_t solicited_producer;
    uint32_t reported_producer; /* producer at the last event, or consumer */
    /* sequence number of the last arm request */
    uint32_t arm_sequence;
    enum { QRNIC_CQ_IDLE, QRNIC_CQ_ARMED_SOLICITED, QRNIC_CQ_ARMED } arm;
    /*
     * An EQE of this CQ is in the EQ; another event is pending until software
     * consumes that EQE
     */
    bool event_waits, event_owed;
    /* in the list of CQs that write an event in late_event */
    bool event_late;
    QTAILQ_ENTRY(QrnicCq) next_late;
    uint8_t error;                      /* enum qrnic_cq_error */
    uint32_t users;
    QrnicDbQueue db_queue;
    QrnicCqModeration moderation;
    /* CQEs since it was armed that cause an event */
    uint32_t unreported;
    QrnicTimer timer;           /* deadline of the event (moderation) */
} QrnicCq;

/**
 * qrnic_cq_push:
 * @e: the engine
 * @cq: the completion queue
 * @cqe: the CQE; phase and timestamp are filled in
 * @data: the byte_len bytes of an inline receive; the header of a tagged
 *   message if cqe->tagged is set; else NULL
 *
 * Writes a CQE and, if the CQ is armed, its event.
 *
 * Returns: true, or false if the CQ is in error; the caller then moves its
 * queue pair to ERR
 */
bool qrnic_cq_push(QrnicEngine *e, QrnicCq *cq, QrnicCqe *cqe,
                   const uint8_t *data);
/**
 * qrnic_cq_arm:
 * @e: the engine
 * @cq: the completion queue
 *
 * Reads the record after a doorbell or in a recovery. Arms the CQ if the record
 * has a new request.
 */
void qrnic_cq_arm(QrnicEngine *e, QrnicCq *cq);
/**
 * qrnic_cq_read_consumer:
 * @e: the engine
 * @cq: the completion queue
 *
 * Updates the consumer index from the record. Sets cq->error if the record is
 * unreadable.
 */
void qrnic_cq_read_consumer(QrnicEngine *e, QrnicCq *cq);
/**
 * qrnic_cq_report:
 * @e: the engine
 * @cq: an armed completion queue
 * @count: number of further CQEs that cause an event
 *
 * Writes the event, or delays it as the moderation requires.
 */
void qrnic_cq_report(QrnicEngine *e, QrnicCq *cq, uint32_t count);
/**
 * qrnic_cq_init:
 * @e: the engine
 *
 * Registers the functions that eq.c calls for CQs.
 */
void qrnic_cq_init(QrnicEngine *e);

/*
 * Resize in progress. First all slots of the new ring without a CQE are written
 * (live is false), then the CQEs. Until its end the device uses only the old
 * ring, so that the resize can be cancelled at any time.
 */
typedef struct QrnicCqMove {
    QrnicCq *cq;                /* NULL if no resize is in progress */
    QrnicTranslation table;     /* descriptor of the new ring */
    QrnicPages ring;
    uint32_t log_size;
    uint32_t start;             /* index of the oldest CQE */
    /* next index to write, and the index behind the last */
    uint32_t index, end;
    bool live;
    QrnicResult result;         /* result of the last resize */
} QrnicCqMove;

/**
 * qrnic_cq_move_process:
 * @e: the engine
 *
 * Continues the resize in progress, if any, by a limited number of slots.
 */
void qrnic_cq_move_process(QrnicEngine *e);

/* Decoded data segment of a WQE */
typedef struct QrnicSge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
} QrnicSge;

/* Send WQE, decoded and validated */
typedef struct QrnicSendWqe {
    uint32_t index;             /* producer index of its first basic block */
    uint32_t wqebbs;
    uint8_t opcode, flags;      /* enum qrnic_wqe_opcode, QRNIC_WQEF_* */
    uint32_t imm;
    uint64_t remote_addr;
    uint32_t rkey;
    uint64_t swap_add, compare;
    QrnicFlushSeg flush;
    uint32_t srqn;              /* XRC: number of the SRQ; else 0 */
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

/* Returns true for an operation on keys, which sends no packet. */
static inline bool qrnic_is_local_operation(uint8_t opcode)
{
    return opcode == QRNIC_WQE_BIND_MW || opcode == QRNIC_WQE_LOCAL_INV ||
           opcode == QRNIC_WQE_REG_MR || opcode == QRNIC_WQE_REG_INDIRECT;
}

typedef struct QrnicStream QrnicStream;
typedef struct QrnicStreamBuffer QrnicStreamBuffer;
typedef struct QrnicTagList QrnicTagList;

/*
 * Entry of a tag list. The list owns the entry until a message matches it. Then
 * the queue pair that receives the message owns it.
 */
typedef struct QrnicTag {
    /* NULL after the handle was returned to software */
    QrnicTagList *list;
    uint32_t handle;
    bool posted;                /* in the list, and can be matched */
    bool solicited;             /* the rendezvous requests a solicited CQE */
    bool rendezvous;            /* header also has an ibv_rvh */
    uint8_t header[QRNIC_RENDEZVOUS_SIZE];
    QTAILQ_ENTRY(QrnicTag) next;
    uint64_t length;
    uint32_t num_sge;
    QrnicSge sge[];
} QrnicTag;

/*
 * Receive WQE, or the tag entry or streaming buffer that replaces it for a
 * message
 */
typedef struct QrnicRecvWqe {
    uint32_t index;             /* in an SRQ: the slot */
    uint32_t pd;                /* protection domain of its keys */
    uint32_t srqn;              /* 0 for a WQE of an RQ */
    QrnicStream *stream;        /* streaming queue of the WQE, or NULL */
    QrnicStreamBuffer *buffer;  /* NULL if the WQE is invalid */
    uint32_t offset;            /* start of the message in the buffer */
    /* matched tag entry that is used as the WQE, or NULL */
    QrnicTag *tag;
    uint8_t tag_opcode;         /* SRQ with a tag list: enum qrnic_cqe_opcode */
    uint64_t length;            /* bytes available for the message */
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE];
} QrnicRecvWqe;

/* Result of an attempt to dequeue a WQE */
typedef enum QrnicTake {
    QRNIC_TAKE_OK,
    QRNIC_TAKE_EMPTY,           /* no WQE is posted */
    /* invalid; *status and *syndrome have the reason */
    QRNIC_TAKE_ERROR,
    /* the SRQ is in error; there is nothing to complete */
    QRNIC_TAKE_BROKEN,
} QrnicTake;

/* Members of a send WQE that its opcode requires or permits */
typedef struct QrnicWqeShape {
    bool known;
    bool xrc, dynamic;          /* segments after the control segment */
    bool remote, atomic, eth;
    bool bind, reg, indirect, datagram, flush;
    bool imm;
    bool can_inline;
    bool data;                  /* data segments are permitted */
} QrnicWqeShape;

/**
 * qrnic_send_wqe_decode:
 * @e: the engine
 * @number: number of the queue pair
 * @shape: shape of the opcode for this type of queue pair
 * @raw: the basic blocks
 * @raw_wqebbs: number of blocks in @raw
 * @index: producer index of the first block
 * @out: receives the WQE; wqebbs is valid after an error, too, if the size is
 *   known
 * @status: receives the status of the CQE after an error
 * @syndrome: receives the syndrome of the CQE after an error
 *
 * Decodes and validates a send WQE. An invalid WQE is reported as a guest
 * error.
 *
 * Returns: QRNIC_TAKE_OK or QRNIC_TAKE_ERROR
 */
QrnicTake qrnic_send_wqe_decode(QrnicEngine *e, uint32_t number,
                                const QrnicWqeShape *shape, const uint8_t *raw,
                                uint32_t raw_wqebbs, uint32_t index,
                                QrnicSendWqe *out, uint8_t *status,
                                uint8_t *syndrome);
/**
 * qrnic_data_segs_decode:
 * @p: the first data segment
 * @count: number of segments
 * @sge: receives the segments, without those of length 0
 * @num_sge: receives their number
 * @length: receives the sum of their lengths
 *
 * Returns: true, or false if the message is longer than MAX_MSG_SIZE
 */
bool qrnic_data_segs_decode(const uint8_t *p, unsigned count, QrnicSge *sge,
                            uint32_t *num_sge, uint64_t *length);
/**
 * qrnic_recv_wqe_decode:
 * @e: the engine
 * @queue: name of the queue for messages
 * @number: number of the queue pair or SRQ
 * @log_stride: log2 of the blocks of a WQE
 * @index: index (RQ) or slot (SRQ) that the WQE must have
 * @next_limit: limit of the next slot in the WQE; 1 if it has none
 * @raw: the WQE
 * @out: receives the WQE
 * @next: receives the next slot
 * @status: receives the status of the CQE after an error
 * @syndrome: receives the syndrome of the CQE after an error
 *
 * Decodes and validates a receive WQE. An invalid WQE is reported as a guest
 * error. After SYN_WQE_LENGTH, the index and the next slot are valid.
 *
 * Returns: QRNIC_TAKE_OK or QRNIC_TAKE_ERROR
 */
QrnicTake qrnic_recv_wqe_decode(QrnicEngine *e, const char *queue,
                                uint32_t number, uint8_t log_stride,
                                uint32_t index, uint32_t next_limit,
                                const uint8_t *raw, QrnicRecvWqe *out,
                                uint32_t *next, uint8_t *status,
                                uint8_t *syndrome);

/*
 * Number of buffers for prefetched blocks. The number is limited, because a
 * guest must not use unlimited memory. If all buffers are in use, a queue
 * without a buffer gets the oldest one, and the previous owner fetches its
 * blocks again.
 */
#define QRNIC_MAX_FETCH 128

typedef struct QrnicWorkQueue QrnicWorkQueue;
typedef struct QrnicFetch {
    QTAILQ_ENTRY(QrnicFetch) next;
    QrnicWorkQueue *owner;
    uint8_t raw[QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE];
} QrnicFetch;

/* Ring of a work queue, its record, and prefetched blocks */
struct QrnicWorkQueue {
    QrnicPages ring;
    uint64_t record;
    uint8_t log_size;           /* SQ: basic blocks; RQ: WQEs */
    uint8_t log_stride;         /* RQ: basic blocks of a WQE; SQ: 0 */
    uint32_t producer;          /* as last read from the record */
    uint32_t consumer;          /* index of the next WQE to fetch */
    /* SQ: slots before this index belong to software */
    uint32_t completed;
    /* prefetched blocks: first index, count */
    uint32_t fetched, fetched_count;
    QrnicFetch *fetch;          /* buffer of the prefetched blocks, or NULL */
    /* enum qrnic_syndrome; reported for the next WQE */
    uint8_t bad_record;
    uint32_t taken;             /* WQEs consumed since the last hold */
    /* SQ with QPF_EVENT_INDEX: word 1 of the record is the event index */
    bool has_event;
    QrnicStream *stream;        /* state of a streaming RQ or SRQ, else NULL */
};

/**
 * qrnic_fetch_get:
 * @e: the engine
 * @wq: the work queue
 *
 * Returns: the buffer for prefetched blocks, allocated if the queue has none
 */
uint8_t *qrnic_fetch_get(QrnicEngine *e, QrnicWorkQueue *wq);
/**
 * qrnic_fetch_put:
 * @e: the engine
 * @wq: the work queue
 *
 * Discards the prefetched blocks and frees the buffer.
 */
void qrnic_fetch_put(QrnicEngine *e, QrnicWorkQueue *wq);

/**
 * qrnic_record_read:
 * @e: the engine
 * @wq: the work queue
 * @queue: name of the queue for messages
 * @number: number of the queue pair or SRQ
 * @done: index up to which slots are free
 * @room: number of slots that software may use
 *
 * Reads the doorbell record. The producer index must not decrease, and must not
 * exceed @done + @room. Sets wq->bad_record if the record is unreadable or
 * invalid.
 */
void qrnic_record_read(QrnicEngine *e, QrnicWorkQueue *wq, const char *queue,
                       uint32_t number, uint32_t done, uint32_t room);
/**
 * qrnic_event_write:
 * @e: the engine
 * @wq: the SQ, which has an event index
 * @number: number of the queue pair
 *
 * Writes the known producer index as the event index, so that software rings
 * the doorbell for the next WQE. Software may have posted that WQE before it
 * could read the index, so the caller must read the record again. Sets
 * wq->bad_record if the record is not writable.
 */
void qrnic_event_write(QrnicEngine *e, QrnicWorkQueue *wq, uint32_t number);
/**
 * qrnic_slots_read:
 * @e: the engine
 * @wq: the work queue
 * @use: purpose of the DMA
 * @queue: name of the queue for messages
 * @number: number of the queue pair or SRQ
 * @index: index of the first slot
 * @count: number of slots
 * @buf: receives the slots
 *
 * Reads slots of the ring, in two parts if they wrap around.
 *
 * Returns: true, or false if the ring is unreadable
 */
bool qrnic_slots_read(QrnicEngine *e, QrnicWorkQueue *wq, QrnicUse use,
                      const char *queue, uint32_t number, uint32_t index,
                      uint32_t count, uint8_t *buf);

/* The last word of a CQE or EQE, which has the phase bit */
#define QRNIC_CONTROL_WORD 4
QEMU_BUILD_BUG_ON(QRNIC_CQE_CONTROL_OFFSET !=
                  QRNIC_CQE_SIZE - QRNIC_CONTROL_WORD);
QEMU_BUILD_BUG_ON(QRNIC_EQE_CONTROL_OFFSET !=
                  QRNIC_EQE_SIZE - QRNIC_CONTROL_WORD);
/**
 * qrnic_entry_write:
 * @e: the engine
 * @ring: the ring of a CQ or EQ
 * @slot: number of the slot
 * @raw: the CQE or EQE
 * @size: its size in bytes
 * @use: purpose of the DMA
 * @number: number of the queue
 * @index: producer index of the entry
 *
 * Writes an entry. The control word is written last and alone, because its
 * phase bit passes the entry to software.
 *
 * Returns: true, or false if the ring is unreadable or not writable
 */
bool qrnic_entry_write(QrnicEngine *e, QrnicPages *ring, uint32_t slot,
                       const uint8_t *raw, size_t size, QrnicUse use,
                       uint32_t number, uint32_t index);

/* Returns true if the attributes describe a streaming queue. */
static inline bool qrnic_is_stream(const QrnicStreamAttr *attr)
{
    return attr->max_message;
}
/**
 * qrnic_stream_check:
 * @e: the engine
 * @in: attributes of a new queue, streaming or not
 * @offset: offset of the attributes in the input of the command
 *
 * Returns: the result of the command
 */
QrnicResult qrnic_stream_check(QrnicEngine *e, const QrnicStreamAttr *in,
                               uint32_t offset);
/**
 * qrnic_stream_new:
 * @attr: attributes that qrnic_stream_check() accepted
 * @queue: name of the queue for messages
 * @number: number of the queue pair or SRQ
 *
 * Returns: the state of a streaming queue, or NULL for any other queue. The
 * functions below accept this NULL.
 */
QrnicStream *qrnic_stream_new(const QrnicStreamAttr *attr, const char *queue,
                              uint32_t number);
/**
 * qrnic_stream_free:
 * @s: the streaming queue, or NULL
 *
 * Frees the queue and its buffers.
 */
void qrnic_stream_free(QrnicStream *s);
/**
 * qrnic_stream_clear:
 * @s: the streaming queue, or NULL
 *
 * Frees all buffers.
 */
void qrnic_stream_clear(QrnicStream *s);
/**
 * qrnic_stream_begin:
 * @e: the engine
 * @s: the streaming queue
 * @out: receives the WQE of the buffer, and the place in it
 *
 * Finds a place for a message in the open buffer. The message must later call
 * one of qrnic_stream_end(), qrnic_stream_fail() and qrnic_stream_give_back().
 *
 * Returns: true, or false if the message needs another WQE
 */
bool qrnic_stream_begin(QrnicEngine *e, QrnicStream *s, QrnicRecvWqe *out);
/**
 * qrnic_stream_open:
 * @e: the engine
 * @s: the streaming queue
 * @wqe: the next WQE of the queue; receives the place of the message
 *
 * Opens the buffer of a WQE and begins a message in it.
 */
void qrnic_stream_open(QrnicEngine *e, QrnicStream *s, QrnicRecvWqe *wqe);
/**
 * qrnic_stream_give_back:
 * @e: the engine
 * @wqe: the place of a message that was dropped
 *
 * Returns the place, so that the next message uses it.
 */
void qrnic_stream_give_back(QrnicEngine *e, const QrnicRecvWqe *wqe);
/**
 * qrnic_stream_end:
 * @e: the engine
 * @wqe: the place of a complete message; a WQE of any other queue is ignored
 * @bytes: size of the message
 * @cqe: the CQE of the message; offset, stream and messages are filled in
 */
void qrnic_stream_end(QrnicEngine *e, const QrnicRecvWqe *wqe, uint64_t bytes,
                      QrnicCqe *cqe);
/**
 * qrnic_stream_fail:
 * @e: the engine
 * @wqe: the place of a message that failed; a WQE of any other queue is ignored
 * @cqe: the CQE of the message; offset, stream and messages are filled in
 */
void qrnic_stream_fail(QrnicEngine *e, const QrnicRecvWqe *wqe, QrnicCqe *cqe);
/**
 * qrnic_stream_flush:
 * @e: the engine
 * @wqe: open buffer or WQE of an RQ that is flushed
 * @cqe: the CQE of the flush; stream and messages are filled in
 *
 * Completes the CQE of a flush. The open buffer of the RQ is freed.
 */
void qrnic_stream_flush(QrnicEngine *e, const QrnicRecvWqe *wqe, QrnicCqe *cqe);

/**
 * qrnic_tags_pending:
 * @e: the engine
 *
 * Returns: true if a tag list has work
 */
bool qrnic_tags_pending(const QrnicEngine *e);
/**
 * qrnic_tags_process:
 * @e: the engine
 * @budget: maximum number of operations
 *
 * Executes operations of all tag lists, round robin, and flushes abandoned
 * entries.
 */
void qrnic_tags_process(QrnicEngine *e, unsigned budget);
/**
 * qrnic_tag_list_doorbell:
 * @e: the engine
 * @l: the tag list
 *
 * Schedules the list, which then reads its record.
 */
void qrnic_tag_list_doorbell(QrnicEngine *e, QrnicTagList *l);
/**
 * qrnic_tag_list_of:
 * @q: queue of the kind QRNIC_DB_QUEUE_TAGS
 *
 * Returns: the tag list that contains @q
 */
QrnicTagList *qrnic_tag_list_of(QrnicDbQueue *q);
/**
 * qrnic_tag_list_cq:
 * @e: the engine
 * @l: the tag list
 *
 * Returns: the CQ of the list, in which all work of its SRQ completes
 */
QrnicCq *qrnic_tag_list_cq(QrnicEngine *e, const QrnicTagList *l);
/**
 * qrnic_tag_match:
 * @e: the engine
 * @l: the tag list
 * @tag: tag of a message
 *
 * Removes the first entry that matches from the list. The caller owns the
 * entry.
 *
 * Returns: the entry, or NULL if none matches
 */
QrnicTag *qrnic_tag_match(QrnicEngine *e, QrnicTagList *l, uint64_t tag);
/**
 * qrnic_tag_unexpected:
 * @e: the engine
 * @l: the tag list
 * @tag: tag of a message
 *
 * Counts a message that matched no entry and was given a WQE.
 */
void qrnic_tag_unexpected(QrnicEngine *e, QrnicTagList *l, uint64_t tag);
/**
 * qrnic_tag_expected_after_all:
 * @e: the engine
 * @l: the tag list
 *
 * Undoes qrnic_tag_unexpected() for a message that software will not see.
 */
void qrnic_tag_expected_after_all(QrnicEngine *e, QrnicTagList *l);
/**
 * qrnic_tag_sync_wanted:
 * @l: the tag list
 *
 * Returns: QRNIC_CQET_SYNC_REQ if the CQE of an unexpected message must request
 * a WQE_TAG_SYNC, else 0
 */
uint8_t qrnic_tag_sync_wanted(const QrnicTagList *l);
/**
 * qrnic_tag_done:
 * @e: the engine
 * @t: entry that a message has matched
 *
 * Returns the handle to software, which learns this from the CQE that the
 * caller writes next.
 */
void qrnic_tag_done(QrnicEngine *e, QrnicTag *t);
/**
 * qrnic_tag_abandon:
 * @e: the engine
 * @t: entry that a message has matched, and that the queue pair cannot complete
 *
 * Passes the entry back to the list, which completes it as flushed and frees
 * it.
 */
void qrnic_tag_abandon(QrnicEngine *e, QrnicTag *t);
/**
 * qrnic_tag_list_free:
 * @l: the tag list, or NULL
 *
 * Frees the list and its entries.
 */
void qrnic_tag_list_free(QrnicTagList *l);
/**
 * qrnic_tag_list_gone:
 * @e: the engine
 * @l: tag list of an SRQ that is destroyed, or NULL
 *
 * Removes the list from all objects that refer to it.
 */
void qrnic_tag_list_gone(QrnicEngine *e, QrnicTagList *l);

/* Shared receive queue */
typedef struct QrnicSrq {
    uint32_t number;
    QrnicSrqCtx ctx;
    /* consumer: count of WQEs taken out of the ring */
    QrnicWorkQueue rq;
    uint32_t slot;              /* slot of the next WQE */
    uint32_t ahead;             /* prefetched slots from there on */
    GArray *returned;           /* uint16_t: returned slots; or NULL */
    /* enum qrnic_syndrome: no WQE is dequeued any more */
    uint8_t error;
    uint32_t users;
    QrnicTagList *tags;         /* or NULL */
} QrnicSrq;

/**
 * qrnic_srq_give_back:
 * @e: the engine
 * @qpn: number of the queue pair
 * @wqe: WQE of the SRQ that the queue pair did not use
 *
 * Returns the WQE, which is dequeued again before all others.
 */
void qrnic_srq_give_back(QrnicEngine *e, uint32_t qpn, const QrnicRecvWqe *wqe);
/**
 * qrnic_srq_take:
 * @e: the engine
 * @srq: the shared receive queue
 * @out: receives the WQE
 * @status: receives the status of the CQE after QRNIC_TAKE_ERROR
 * @syndrome: receives the syndrome of the CQE after QRNIC_TAKE_ERROR
 *
 * Returns: any value of QrnicTake
 */
QrnicTake qrnic_srq_take(QrnicEngine *e, QrnicSrq *srq, QrnicRecvWqe *out,
                         uint8_t *status, uint8_t *syndrome);
/**
 * qrnic_srq_check_limit:
 * @e: the engine
 * @srq: the shared receive queue
 *
 * Writes EVENT_SRQ_LIMIT if fewer WQEs than the limit are posted.
 */
void qrnic_srq_check_limit(QrnicEngine *e, QrnicSrq *srq);
/**
 * qrnic_srq_free:
 * @e: the engine
 * @srq: the shared receive queue
 *
 * Frees the memory of the SRQ, in a reset too.
 */
void qrnic_srq_free(QrnicEngine *e, QrnicSrq *srq);
/**
 * qrnic_srq_cq:
 * @e: the engine
 * @srqn: number of an SRQ, or 0
 *
 * Returns: the CQ of the SRQ (XRC, tag list), or NULL if it uses the CQ of the
 * queue pair
 */
QrnicCq *qrnic_srq_cq(QrnicEngine *e, uint32_t srqn);

typedef struct QrnicQueues {
    QrnicTable db_pages, eqs, cqs, srqs, xrcds;
    QTAILQ_HEAD(, QrnicFetch) fetches;  /* oldest first */
    uint32_t fetch_count;
    QrnicEq *async_eq, *fault_eq;       /* NULL if there is none */
    QTAILQ_HEAD(, QrnicDbPage) recovering;
    QTAILQ_HEAD(, QrnicEq) untaken;
    QTAILQ_HEAD(, QrnicCq) late;
    /*
     * Functions of cq.c that eq.c calls when software has consumed the EQE of a
     * CQ. If the CQ has a pending event, event_taken writes the event, or marks
     * it as late. Later late_event writes the event of a late CQ. Direct calls
     * would form a circle, because cq.c calls eq.c.
     */
    void (*event_taken)(QrnicEngine *e, uint32_t cqn, bool late);
    void (*late_event)(QrnicEngine *e);
    QTAILQ_HEAD(, QrnicTagList) tag_lists;      /* lists with work */
    uint32_t all_tags;          /* sum of max_tags over all lists */
    QrnicCqMove move;
    bool cq_failed;             /* a CQ is in error: fail its QPs */
    /*
     * Function that is called before an XRC SRQ is destroyed, so that a message
     * being received into it is dropped
     */
    void (*srq_gone)(QrnicEngine *e, const QrnicSrq *srq);
    /* Function that is called after the EQ for page faults was destroyed */
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
