/*
 * qrnic engine: its objects, and what its files offer each other
 *
 * Private to engine/. Every object is made by a command and found by number;
 * a pointer to one is never kept across a call out of the engine.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_INTERNAL_H
#define QRNIC_ENGINE_INTERNAL_H

#include "qemu/queue.h"
#include "engine/engine.h"
#include "wire/packet.h"

/* Largest frame: Ethernet header, one tag, MTU, and room for RoCE headers. */
#define QRNIC_FRAME_MAX (18 + 9000 + 64)

/* What a command returns */
static inline QrnicResult qrnic_ok(uint32_t value)
{
    return (QrnicResult) { QRNIC_ST_OK, value, 0 };
}

static inline QrnicResult qrnic_refuse(enum qrnic_cmd_status status,
                                       uint32_t syndrome)
{
    return (QrnicResult) { status, 0, syndrome };
}

/* Syndrome of BAD_OBJECT when it is the object of the command itself */
#define QRNIC_OBJECT_OF_ENTRY UINT32_MAX

/* objects.c: a number is an index into one of these tables. */
typedef struct QrnicTable {
    void **slot;
    uint32_t limit, used, first, hint;
} QrnicTable;

void qrnic_table_init(QrnicTable *t, uint32_t first, uint32_t limit);
void qrnic_table_cleanup(QrnicTable *t);
/* A free number: round robin, so that numbers are not reused soon. */
bool qrnic_table_insert(QrnicTable *t, void *object, uint32_t *number);
/* At a number below the first, which is free */
void qrnic_table_insert_at(QrnicTable *t, void *object, uint32_t number);
void *qrnic_table_remove(QrnicTable *t, uint32_t number);
static inline void *qrnic_table_get(const QrnicTable *t, uint32_t number)
{
    return number < t->limit ? t->slot[number] : NULL;
}

typedef struct QrnicPd {
    uint32_t number;
    uint32_t users;
} QrnicPd;

/* xrc.c: XRC domain */
typedef struct QrnicXrcd {
    uint32_t number;
    uint32_t users;             /* SRQs and targets */
} QrnicXrcd;

/*
 * memory.c: a translation table in guest memory, walked by DMA. The lists read
 * are in a cache that all tables of the device share, so that a guest cannot
 * make it grow without bound.
 */
typedef struct QrnicPages {
    QrnicTranslation desc;
    uint64_t length;            /* bytes that the table describes */
    uint64_t pages;             /* the same in pages; 0 for levels 0 */
    uint64_t id;                /* tag of its lists in the cache */
} QrnicPages;

/* Checks the descriptor for length bytes; on error the offending offset. */
bool qrnic_pages_init(QrnicEngine *e, QrnicPages *p,
                      const QrnicTranslation *desc, uint64_t length,
                      uint32_t *bad_offset);
/* The same for a ring, which begins with a page, and may be read at once. */
bool qrnic_ring_init(QrnicEngine *e, QrnicPages *p,
                     const QrnicTranslation *desc, uint64_t length,
                     uint32_t struct_offset, QrnicResult *error);
/*
 * Bus address of byte offset of the described memory, and how many bytes from
 * there are contiguous. False: the table could not be read.
 */
bool qrnic_pages_translate(QrnicEngine *e, QrnicPages *p, uint64_t offset,
                           uint64_t *addr, uint64_t *contiguous);
bool qrnic_pages_read(QrnicEngine *e, QrnicPages *p, uint64_t offset,
                      void *buf, size_t len);
bool qrnic_pages_write(QrnicEngine *e, QrnicPages *p, uint64_t offset,
                       const void *buf, size_t len);

/* device_memory.c */
typedef struct QrnicDm {
    uint32_t number;
    uint32_t users;             /* keys */
    QrnicDmCtx ctx;
} QrnicDm;

typedef struct QrnicMkey {
    uint32_t index;
    QrnicMkeyCtx ctx;           /* of a window, of a fast registration: now */
    QrnicPages pages;
    bool valid;
    uint64_t max_length;        /* fast registration */
    uint32_t region;            /* window: index of the region */
    uint64_t region_addr;       /* and where in it it begins */
    uint32_t qpn;               /* window type 2: bound by */
    uint32_t windows;           /* region: windows bound to it */
    QrnicDm *dm;                /* region of device memory: what it lies in */
} QrnicMkey;

#define QRNIC_REMOTE_RIGHTS (QRNIC_ACCESS_REMOTE_WRITE | \
                             QRNIC_ACCESS_REMOTE_READ | \
                             QRNIC_ACCESS_REMOTE_ATOMIC)

/*
 * FEATURES M2: index and variant, PD, range, access; in this order. A right
 * of REMOTE_RIGHTS makes it a remote access, by this queue pair (else 0).
 */
enum qrnic_syndrome qrnic_memory_check_qp(QrnicEngine *e, uint32_t key,
                                          uint32_t pd, uint32_t qpn,
                                          uint64_t addr, uint64_t len,
                                          uint8_t access, QrnicMkey **mkey);
static inline enum qrnic_syndrome
qrnic_memory_check(QrnicEngine *e, uint32_t key, uint32_t pd, uint64_t addr,
                   uint64_t len, uint8_t access, QrnicMkey **mkey)
{
    return qrnic_memory_check_qp(e, key, pd, 0, addr, len, access, mkey);
}
/* After a check; false: DMA failed. addr is the key user's address. */
bool qrnic_memory_read(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                       void *buf, size_t len);
bool qrnic_memory_write(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                        const void *buf, size_t len);
/* Fills in op->original; addr is a multiple of 8. */
bool qrnic_memory_atomic(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                         QrnicAtomic *op);

/* device_memory.c: what a key of its type says, and accesses by such a key */
QrnicResult qrnic_dm_key_check(QrnicEngine *e, const QrnicMkeyCtx *in,
                               QrnicDm **dm);
void qrnic_dm_read(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                   void *buf, size_t len);
void qrnic_dm_write(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                    const void *buf, size_t len);
/* As one access of the host; false: it cannot, and nothing was done. */
bool qrnic_dm_atomic(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                     QrnicAtomic *op);

/* DMA with counting; every access of the engine goes through these two. */
bool qrnic_dma_read(QrnicEngine *e, uint64_t addr, void *buf, size_t len);
bool qrnic_dma_write(QrnicEngine *e, uint64_t addr, const void *buf,
                     size_t len);

/* timer.c: a deadline of a queue pair, or of a CQ */
typedef struct QrnicTimer {
    int64_t deadline;           /* QRNIC_DEADLINE_NEVER: none */
    uint32_t heap_index;
    bool of_cq, of_pace;        /* neither: the QP's own */
} QrnicTimer;

typedef struct QrnicEq {
    uint32_t number;
    QrnicEqCtx ctx;
    QrnicPages ring;
    uint32_t producer, consumer;
    uint32_t users;
    bool armed;
    uint32_t cqn[];             /* CQ of each EQE, 0: another event */
} QrnicEq;

void qrnic_eq_push(QrnicEngine *e, QrnicEq *eq, QrnicEqe *eqe);
/* cq.c: software has consumed the EQE of this CQ. */
void qrnic_cq_event_taken(QrnicEngine *e, uint32_t cqn);

typedef struct QrnicCq QrnicCq;
struct QrnicCq {
    uint32_t number;
    QrnicCqCtx ctx;
    QrnicPages ring;
    uint32_t producer, consumer;        /* consumer: as last read */
    uint32_t solicited_producer;        /* producer after the last solicited */
    uint32_t arm_sequence;              /* last one taken */
    enum { QRNIC_CQ_IDLE, QRNIC_CQ_ARMED_SOLICITED, QRNIC_CQ_ARMED } arm;
    /* An EQE is in the EQ; another one is owed when that one is consumed */
    bool event_waits, event_owed;
    uint8_t error;                      /* enum qrnic_cq_error */
    uint32_t users;
    /* cq_modify.c */
    QrnicCqModeration moderation;
    uint32_t unreported;        /* CQEs since it was armed that deserve one */
    QrnicTimer timer;           /* of the event */
};

/* cq.c */
void qrnic_cq_report_now(QrnicEngine *e, QrnicCq *cq);
void qrnic_cq_read_consumer(QrnicEngine *e, QrnicCq *cq);
/* cq_modify.c: when an event is due, and what was due is done */
void qrnic_cq_report(QrnicEngine *e, QrnicCq *cq, uint32_t count);
void qrnic_cq_reported(QrnicEngine *e, QrnicCq *cq);

/*
 * Writes a CQE (phase and timestamp are filled in) and its event; data, unless
 * NULL, are the byte_len bytes that go along. False: the CQ is in error; the
 * caller takes its QP to ERR.
 */
bool qrnic_cq_push(QrnicEngine *e, QrnicCq *cq, QrnicCqe *cqe,
                   const uint8_t *data);

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
    QrnicBindSeg bind;
    QrnicRegSeg reg;
    uint64_t length;            /* bytes of the message */
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE + 1];
    uint8_t inline_data[QRNIC_MAX_INLINE];
} QrnicSendWqe;

typedef struct QrnicRecvWqe {
    uint32_t index;             /* SRQ: slot */
    uint32_t pd;                /* of its keys */
    uint32_t srqn;              /* 0: from the RQ */
    uint64_t length;
    uint32_t num_sge;
    QrnicSge sge[QRNIC_MAX_SGE];
} QrnicRecvWqe;

typedef enum QrnicTake {
    QRNIC_TAKE_OK,
    QRNIC_TAKE_EMPTY,           /* nothing posted */
    QRNIC_TAKE_ERROR,           /* *status and *syndrome say why */
    QRNIC_TAKE_BROKEN,          /* the SRQ gives no more; nothing to complete */
} QrnicTake;

/* queue.c: the ring of a work queue, its record, and blocks fetched ahead. */
typedef struct QrnicWorkQueue {
    QrnicPages ring;
    uint64_t record;
    uint8_t log_size;           /* SQ: basic blocks; RQ: WQEs */
    uint8_t log_stride;         /* RQ: basic blocks of a WQE; SQ: 0 */
    uint32_t producer;          /* as last read from the record */
    uint32_t consumer;          /* next to fetch */
    uint32_t completed;         /* SQ: up to here the slots are software's */
    uint32_t fetched, fetched_count;    /* blocks cached: first, how many */
    uint8_t cache[QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE];
    bool direct;                /* cache came by direct WQE */
    uint8_t bad_record;         /* enum qrnic_syndrome; the next take says so */
} QrnicWorkQueue;

/* srq.c */
typedef struct QrnicSrq {
    uint32_t number;
    QrnicSrqCtx ctx;
    QrnicWorkQueue rq;          /* consumer: WQEs taken out of the ring */
    uint32_t slot;              /* of the next WQE */
    uint32_t ahead;             /* slots from there that are in the cache */
    GQueue returned;            /* QrnicRecvWqe: taken and given back */
    uint8_t error;              /* enum qrnic_syndrome: gives no more */
    uint32_t users;
} QrnicSrq;

typedef struct QrnicQp QrnicQp;

/* window.c: operations of send queues on keys, of which nothing is sent */
static inline bool qrnic_is_local_operation(uint8_t opcode)
{
    return opcode == QRNIC_WQE_BIND_MW || opcode == QRNIC_WQE_LOCAL_INV ||
           opcode == QRNIC_WQE_REG_MR;
}

/* Executes one; what is not SYN_NONE goes with MW_BIND_ERR. */
enum qrnic_syndrome qrnic_local_operation(QrnicEngine *e, QrnicQp *qp,
                                          const QrnicSendWqe *wqe);
/* For a send with invalidate, whose key must be of this PD */
enum qrnic_syndrome qrnic_remote_invalidate(QrnicEngine *e, QrnicQp *qp,
                                            uint32_t pd, uint32_t key);
/* A key is about to go, or to be replaced. */
void qrnic_window_unbind(QrnicEngine *e, QrnicMkey *k);
/* A queue pair is about to go: with it the windows that it alone uses. */
void qrnic_windows_qp_destroyed(QrnicEngine *e, QrnicQp *qp);

/*
 * Next send WQE, without taking it further than the software doorbell says.
 * Advances sq.consumer on OK, and on ERROR (by one block). Fetches in batches.
 */
QrnicTake qrnic_sq_take(QrnicEngine *e, QrnicQp *qp, QrnicSendWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/*
 * The WQE that begins at index again (retransmission): read from guest memory,
 * where it must still be, as its slot was not completed.
 */
QrnicTake qrnic_sq_refetch(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                           QrnicSendWqe *out, uint8_t *status,
                           uint8_t *syndrome);
/* True if a WQE may be there: cached producer, or record when reread is set. */
bool qrnic_sq_pending(QrnicEngine *e, QrnicQp *qp, bool reread);
QrnicTake qrnic_rq_take(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/* The WQE taken last stays so: few may be left. */
void qrnic_rq_taken(QrnicEngine *e, QrnicQp *qp);
/* Receive WQEs posted and not taken, as last read; for credits. */
uint32_t qrnic_rq_posted(QrnicEngine *e, QrnicQp *qp, bool reread);
/* As if the WQE taken last had not been; the next taker gets it. */
void qrnic_rq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe);
/* srq.c: what these two do if the WQEs come from an SRQ */
void qrnic_srq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe);
QrnicTake qrnic_srq_take(QrnicEngine *e, QrnicSrq *srq, QrnicRecvWqe *out,
                         uint8_t *status, uint8_t *syndrome);
void qrnic_srq_check_limit(QrnicEngine *e, QrnicSrq *srq);
void qrnic_srq_free(QrnicSrq *srq);
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
/* decode only; cqe-ready status on error. In wqe.c */
QrnicTake qrnic_send_wqe_decode(QrnicEngine *e, QrnicQp *qp, const uint8_t *raw,
                                uint32_t raw_wqebbs, uint32_t index,
                                QrnicSendWqe *out, uint8_t *status,
                                uint8_t *syndrome);
/* next: what the WQE says of it, which must be less than next_limit */
QrnicTake qrnic_recv_wqe_decode(QrnicEngine *e, const char *queue,
                                uint32_t number, uint8_t log_stride,
                                uint32_t index, uint32_t next_limit,
                                const uint8_t *raw, QrnicRecvWqe *out,
                                uint32_t *next, uint8_t *status,
                                uint8_t *syndrome);

/* Transport state; transport.h says what is in them (requester, responder). */
typedef struct QrnicRequester QrnicRequester;
typedef struct QrnicResponder QrnicResponder;
typedef struct QrnicUnreliable QrnicUnreliable;

struct QrnicQp {
    uint32_t number;
    uint8_t type;               /* enum qrnic_qp_type */
    uint8_t state;              /* enum qrnic_qp_state */
    bool sq_draining;
    QrnicPd *pd;                /* NULL: XRC target */
    /* NULL: it has no such queue (XRC) */
    QrnicCq *send_cq, *recv_cq;
    QrnicSrq *srq;              /* NULL: it has an RQ of its own, or none */
    QrnicXrcd *xrcd;            /* XRC target */
    bool last_wqe_reported;
    uint32_t windows;           /* type 2, bound by it */
    uint32_t db_page;
    QrnicQpCtx ctx;
    QrnicQpAttr attr;           /* as last set by MODIFY_QP */
    QrnicWorkQueue sq, rq;
    QrnicPath path;             /* headers that every packet of it shares */
    bool comm_established;
    /* SQE was left before all was flushed that was posted: up to here. */
    bool sq_flush_owed;
    uint32_t sq_flush_end;
    uint32_t datagram_psn;      /* of the next one sent */
    QrnicRequester *requester;  /* RC and XRC only */
    QrnicResponder *responder;  /* RC and XRC only */
    QrnicUnreliable *unreliable;        /* UC only */
    /* scheduler.c */
    bool scheduled;
    bool sq_rung;               /* read the record of the SQ when taken up */
    QTAILQ_ENTRY(QrnicQp) next;
    QrnicTimer timer;
    /* pace.c */
    QrnicTimer pace_timer;
    int64_t pace_full;          /* when all that was sent is paid for */
};

/*
 * What a type of queue pair does. transmit sends at most budget packets and
 * returns true if it could go on at once; false if it waits (for work, an
 * answer, a timer): whatever ends the wait calls qrnic_schedule().
 * It must stop when qrnic_wire_busy().
 */
typedef struct QrnicQpOps {
    bool (*transmit)(QrnicEngine *e, QrnicQp *qp, unsigned budget);
    void (*timer)(QrnicEngine *e, QrnicQp *qp);
    void (*receive_doorbell)(QrnicEngine *e, QrnicQp *qp);
} QrnicQpOps;

extern const QrnicQpOps qrnic_rc_ops;           /* requester.c */
extern const QrnicQpOps qrnic_unreliable_ops;   /* unreliable.c */
extern const QrnicQpOps qrnic_datagram_ops;     /* datagram.c */
extern const QrnicQpOps qrnic_raw_packet_ops;   /* ethernet.c */
const QrnicQpOps *qrnic_qp_ops(const QrnicQp *qp);      /* qp.c */

/*
 * pace.c. True: it may not send now because of its rate limit, and is scheduled
 * again when it may.
 */
bool qrnic_pace_wait(QrnicEngine *e, QrnicQp *qp);
/* Its SQ has sent a frame. */
void qrnic_pace_charge(QrnicEngine *e, QrnicQp *qp, size_t len);
/* It waits no more, and begins as if it had not sent anything. */
void qrnic_pace_restart(QrnicEngine *e, QrnicQp *qp);

/* scheduler.c: round robin over the queue pairs that have something to do. */
void qrnic_schedule(QrnicEngine *e, QrnicQp *qp);
void qrnic_unschedule(QrnicEngine *e, QrnicQp *qp);
/* The wire takes no frame now; transmit is called again when it does. */
bool qrnic_wire_busy(QrnicEngine *e);
/*
 * Busy, and not ready once since the last look, of which *epoch reminds. A
 * wire that stands still for a whole period of waiting is like one that loses
 * all; one that takes a frame now and then is only slow.
 */
bool qrnic_wire_stands_still(const QrnicEngine *e, uint32_t *epoch);
/* A queue pair has something to do for which it needs no wire. */
bool qrnic_wireless_work(QrnicEngine *e);
/* steering.c */
/* A UDP datagram to port 4791 and to a GID and MAC of ours. */
bool qrnic_frame_is_roce(QrnicEngine *e, const uint8_t *frame, size_t len);

/* Sends a frame built in place: to the wire, or back in if it is for us. */
void qrnic_frame_send(QrnicEngine *e, const uint8_t *frame, size_t len,
                      bool roce);

/* timer.c: all deadlines on one timer of the environment */
void qrnic_timer_set(QrnicEngine *e, QrnicTimer *t, int64_t deadline);
/* Sets it, unless it is due before that anyway */
void qrnic_timer_advance(QrnicEngine *e, QrnicTimer *t, int64_t deadline);
void qrnic_timer_cancel(QrnicEngine *e, QrnicTimer *t);
/* None is left, and the environment's is off. */
void qrnic_timers_reset(QrnicEngine *e);

/* qp.c */
/* Frees it with all it holds, but leaves the counts of other objects alone. */
void qrnic_qp_free(QrnicEngine *e, QrnicQp *qp);
/* To ERR: stop, report (event 0: none), flush both queues as they fill. */
void qrnic_qp_error(QrnicEngine *e, QrnicQp *qp, uint8_t event,
                    uint8_t subtype);
/* Completes a WQE of the SQ / RQ; takes the QP to ERR if the CQ refuses. */
void qrnic_complete_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                         uint8_t status, uint8_t syndrome, uint32_t byte_len);
void qrnic_complete_recv(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe);
/* The same with the data that software takes to the buffers */
void qrnic_complete_recv_inline(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                                const uint8_t *data);
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
static inline bool qrnic_qp_is_datagram(const QrnicQp *qp)
{
    return qp->type == QRNIC_QPT_UD || qp->type == QRNIC_QPT_GSI;
}
/* Its two halves are requester.c and responder.c. */
static inline bool qrnic_qp_is_reliable(const QrnicQp *qp)
{
    return qp->type == QRNIC_QPT_RC || qp->type == QRNIC_QPT_XRC_INI ||
           qp->type == QRNIC_QPT_XRC_TGT;
}
static inline bool qrnic_qp_has_sq(const QrnicQp *qp)
{
    return qp->type != QRNIC_QPT_XRC_TGT;
}
static inline bool qrnic_qp_has_rq(const QrnicQp *qp)
{
    return !qp->srq && qp->type != QRNIC_QPT_XRC_INI &&
           qp->type != QRNIC_QPT_XRC_TGT;
}
/* Called by a scheduled QP in ERR: flushes what is posted. False: all done. */
bool qrnic_qp_flush(QrnicEngine *e, QrnicQp *qp, unsigned budget);

/* gid.c */
const QrnicGidEntry *qrnic_gid_get(QrnicEngine *e, uint32_t index);
/* IPv6 ff00::/8, and IPv4 224.0.0.0/4 as a GID */
bool qrnic_gid_is_multicast(const uint8_t *gid);
/* True if dgid (16 bytes) is an entry with this VLAN (-1: untagged). */
bool qrnic_gid_is_ours(QrnicEngine *e, const uint8_t *dgid, int vlan);
/* True if some entry has this VLAN: the device is in it. */
bool qrnic_vlan_is_ours(QrnicEngine *e, int vlan);

/* port.c: enum qrnic_path_mtu that the present MTU carries */
uint8_t qrnic_port_path_mtu(const QrnicEngine *e);

/* payload.c: len bytes of a message from offset on, which are there */
enum qrnic_syndrome qrnic_gather_part(QrnicEngine *e, QrnicQp *qp,
                                      const QrnicSendWqe *wqe, uint64_t offset,
                                      uint8_t *to, uint32_t len);
enum qrnic_syndrome qrnic_scatter_part(QrnicEngine *e, QrnicQp *qp,
                                       const QrnicRecvWqe *wqe, uint64_t offset,
                                       const uint8_t *from, uint32_t len);
/*
 * A packet of a send, which the WQE has room for. *inlined: its data is to go
 * into the CQE in place of the buffers.
 */
enum qrnic_syndrome qrnic_scatter_packet(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicRecvWqe *wqe,
                                         uint64_t offset,
                                         const QrnicPacket *p, bool *inlined);
/* Messages of one packet. On failure *status and *syndrome. */
/* Copies the data of the WQE to buf. Its length has been checked. */
bool qrnic_gather(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                  uint8_t *buf, uint8_t *status, uint8_t *syndrome);
/* Writes two pieces, one behind the other, to the buffers; sets cqe->status. */
bool qrnic_scatter(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                   const struct iovec *piece, QrnicCqe *cqe);

/* datagram.c: a packet for this UD or GSI queue pair, which can receive */
void qrnic_datagram_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);

/* unreliable.c: state of UC */
void qrnic_unreliable_init(QrnicEngine *e, QrnicQp *qp);  /* create, RESET */
void qrnic_unreliable_cleanup(QrnicEngine *e, QrnicQp *qp);
void qrnic_unreliable_start_receive(QrnicQp *qp);
void qrnic_unreliable_start_send(QrnicQp *qp);
uint32_t qrnic_unreliable_next_psn(const QrnicQp *qp);
uint32_t qrnic_unreliable_expected_psn(const QrnicQp *qp);
bool qrnic_unreliable_idle(const QrnicQp *qp);
void qrnic_unreliable_receive(QrnicEngine *e, QrnicQp *qp,
                              const QrnicPacket *p);
/* Completes as flushed what was under way; false: nothing is. */
bool qrnic_unreliable_flush_one(QrnicEngine *e, QrnicQp *qp);

/* multicast.c */
typedef struct QrnicAttachment {
    uint8_t gid[16];
    uint32_t qpn;
} QrnicAttachment;

#define QRNIC_MAX_MULTICAST 1024
bool qrnic_multicast_is_ours(QrnicEngine *e, const uint8_t *gid);
/* Returns how many queue pairs it was delivered to. */
unsigned qrnic_multicast_receive(QrnicEngine *e, const QrnicPacket *p,
                                 bool loopback);
void qrnic_multicast_qp_destroyed(QrnicEngine *e, const QrnicQp *qp);

/* requester.c / responder.c, entered with a parsed and checked packet. */
void qrnic_rc_init(QrnicEngine *e, QrnicQp *qp);        /* create, and RESET */
void qrnic_rc_cleanup(QrnicEngine *e, QrnicQp *qp);
void qrnic_rc_start_receive(QrnicEngine *e, QrnicQp *qp);       /* to RTR */
void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp);          /* to RTS */
void qrnic_requester_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
void qrnic_responder_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);

/* checksum.c: ones-complement sum of big-endian words, not complemented */
uint16_t qrnic_checksum_add(const uint8_t *p, size_t len);
void qrnic_checksum_store(uint8_t *at, uint16_t sum);
/*
 * Of an Ethernet frame, its header complete: sets the CQE flags of what is
 * right, and returns true if something is wrong; or writes all of them.
 */
bool qrnic_checksums_bad(const uint8_t *frame, size_t len, uint8_t *flags);
void qrnic_checksums_fill(uint8_t *frame, size_t len);

/* flow.c */
/* The queue pair whose rule takes the frame; except, if not NULL, has none. */
QrnicQp *qrnic_flow_normal(QrnicEngine *e, const QrnicQp *except,
                           const uint8_t *frame, size_t len);
QrnicQp *qrnic_flow_default(QrnicEngine *e, const QrnicQp *except,
                            const uint8_t *frame, size_t len);
/* Copies for the sniffers */
void qrnic_flow_sniff(QrnicEngine *e, const uint8_t *frame, size_t len);
void qrnic_flow_qp_destroyed(QrnicEngine *e, const QrnicQp *qp);

/* xrc.c */
/* What it receives from now; NULL: its RQ */
QrnicSrq *qrnic_qp_srq(QrnicEngine *e, const QrnicQp *qp);
/* The SRQ of this number, if the target may receive into it; else NULL */
QrnicSrq *qrnic_xrc_srq(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn);
/* An XRC SRQ is about to go: what was received into it goes nowhere now. */
void qrnic_xrc_srq_destroyed(QrnicEngine *e, const QrnicSrq *srq);
/* The CQ of an XRC SRQ that has a WQE under way */
QrnicCq *qrnic_xrc_recv_cq(QrnicEngine *e, uint32_t srqn);
/* CREATE_QP of a target; CREATE_SRQ: what it says of XRC */
QrnicResult qrnic_xrc_target_check(QrnicEngine *e, const QrnicQpCtx *in);
QrnicResult qrnic_xrc_srq_check(QrnicEngine *e, const QrnicSrqCtx *in);

/* ethernet.c: a frame that is not for the transport. */
void qrnic_ethernet_receive(QrnicEngine *e, const uint8_t *frame, size_t len);
/* A copy of any frame, for a raw packet QP that can receive */
void qrnic_ethernet_copy(QrnicEngine *e, QrnicQp *qp, const uint8_t *frame,
                         size_t len);
/* A raw packet QP is about to be freed. */
void qrnic_ethernet_qp_destroyed(QrnicEngine *e, QrnicQp *qp);

/*
 * roce.c: UDP port 4791 addressed to a GID of ours: parse, ICRC, steer.
 * *deliveries is set if it was for a group: how many have got it.
 */
void qrnic_roce_receive(QrnicEngine *e, const uint8_t *frame, size_t len,
                        bool loopback, unsigned *deliveries);

/* doorbell.c */
typedef struct QrnicDoorbellMessage {
    uint32_t page;
    uint16_t offset;            /* QRNIC_DB_* */
    uint8_t wqebbs;             /* direct: blocks in wqe */
    uint32_t number;
    uint32_t index;
    uint8_t wqe[QRNIC_DB_WINDOW_SIZE];
} QrnicDoorbellMessage;

typedef struct QrnicDbPage {
    uint32_t users;             /* queues that name this page */
    uint32_t window_valid;      /* bitmap of 8-byte words written */
    uint8_t window[QRNIC_DB_WINDOW_SIZE];
} QrnicDbPage;

/* Takes messages out of the FIFO; after a loss rereads every record. */
void qrnic_doorbells_process(QrnicEngine *e, unsigned budget);
bool qrnic_doorbells_pending(QrnicEngine *e);

/* What the device offers beyond what a property can lower */
#define QRNIC_MAX_QP_WQEBB (1u << 15)
#define QRNIC_MAX_QP_RECV (1u << 15)
#define QRNIC_MAX_SRQ_WR ((1u << 15) - 1)
#define QRNIC_MAX_XRCD 4096
#define QRNIC_MAX_CQE (1u << 20)
#define QRNIC_MAX_EQE (1u << 16)
#define QRNIC_MAX_MR_SIZE (1ull << 46)

/* One page list of a translation table, or the used part of it */
typedef struct QrnicPageList {
    uint64_t id;                /* QrnicPages.id; 0: empty */
    uint64_t index;             /* which list of the table */
    uint64_t *entry;
} QrnicPageList;

#define QRNIC_PAGE_LIST_CACHE 4096      /* lists: 16 MiB when all are full */

typedef struct QrnicLoopbackFrame {
    size_t len;
    uint8_t data[];
} QrnicLoopbackFrame;

struct QrnicEngine {
    QrnicConfig config;
    QrnicEnv env;
    uint64_t counter[QRNIC_NUM_COUNTERS];
    bool fatal;
    bool link_up;
    QrnicPortCtx port;

    QrnicTable pds, eqs, cqs, mkeys, qps, srqs, xrcds, db_pages, flows, dms;
    unsigned long *dm_pages;    /* bitmap of those that are somebody's */
    QrnicEq *async_eq;
    QrnicGidEntry *gids;
    uint32_t gids_end;          /* no valid entry from here on */
    uint8_t (*macs)[6];         /* the different source MACs of all entries */
    uint32_t num_macs;

    QrnicPageList *page_lists;  /* direct mapped by id and index */
    uint64_t next_pages_id;

    QrnicDoorbellMessage *fifo;
    uint32_t fifo_head, fifo_count;
    bool fifo_lost;
    uint32_t fifo_before_loss;  /* messages to take out before the recovery */
    bool recover_again;         /* lost one more while this went on: */
    bool recovering;            /* rereading records, these are next: */
    uint32_t recover_qp, recover_cq;
    bool cq_failed;             /* a CQ went into error: see to its QPs */

    QTAILQ_HEAD(, QrnicQp) active;
    bool wire_busy;
    uint32_t wire_epoch;        /* how often it became ready */

    QrnicTimer **heap;          /* timer.c */
    uint32_t heap_count, heap_room;
    int64_t armed_deadline;

    /* frames to ourselves, delivered by qrnic_engine_run, never recursively */
    GQueue loopback;

    QrnicRxFilter rx_filter;
    struct QrnicFlow **flow;            /* in the order in which they match */
    uint32_t num_flows, num_sniffers;
    QrnicAttachment attachment[QRNIC_MAX_MULTICAST];
    uint32_t attachment_count;
    uint8_t frame[QRNIC_FRAME_MAX];     /* transmit staging */
};

/* objects.c, memory.c, ...: for engine.c at reset */
void qrnic_objects_init(QrnicEngine *e);
void qrnic_objects_reset(QrnicEngine *e);
void qrnic_dm_init(QrnicEngine *e);
void qrnic_dm_cleanup(QrnicEngine *e);
void qrnic_dm_reset(QrnicEngine *e);
void qrnic_page_lists_drop(QrnicEngine *e);
void qrnic_doorbells_reset(QrnicEngine *e);
void qrnic_gids_reset(QrnicEngine *e);
void qrnic_loopback_drop(QrnicEngine *e);
void qrnic_port_reset(QrnicEngine *e);

/* eq.c: EQ doorbell, which takes effect at once */
void qrnic_eq_doorbell(QrnicEngine *e, const QrnicEqDoorbell *in);
/* cq.c: CQ arm doorbell, or recovery: read the record */
void qrnic_cq_arm(QrnicEngine *e, QrnicCq *cq);
/* After CQ errors: their queue pairs to ERR. */
void qrnic_cq_errors_process(QrnicEngine *e);
/* queue.c: the WQE of a direct doorbell; false: fetch it as usual */
bool qrnic_sq_direct(QrnicEngine *e, QrnicQp *qp,
                     const QrnicDoorbellMessage *m);
void qrnic_loopback_deliver(QrnicEngine *e, unsigned budget);
void qrnic_scheduler_run(QrnicEngine *e, unsigned budget);

static inline void qrnic_add(QrnicEngine *e, enum qrnic_counter c, uint64_t n)
{
    e->counter[c] += n;
}

static inline int64_t qrnic_now(QrnicEngine *e)
{
    return e->env.clock_ns(e->env.opaque);
}

#endif
