/*
 * qrnic engine: its interface for the device, the unit tests and the fuzzer
 *
 * The engine has the queues, the keys and the transport of the adapter. The
 * engine knows no PCI, BAR, MSI-X or net client, and reaches the world only
 * through QrnicEnv. After qrnic_engine_new(), the device calls functions for
 * doorbells, frames, timers and commands, and qrnic_engine_run() after each
 * kick. Two such calls are never nested. So an operation of QrnicEnv must
 * postpone a call that it needs, except for qrnic_engine_invalidate() and the
 * functions for page requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_ENGINE_H
#define QRNIC_ENGINE_ENGINE_H

#include "engine/env.h"
#include "qrnic_hw.h"
#include "wire/icrc.h"

typedef struct QrnicEngine QrnicEngine;

/*
 * Size of the largest frame: Ethernet header, one tag, MTU, and room for the
 * headers of RoCE
 */
#define QRNIC_FRAME_MAX (18 + 9000 + 64)

/*
 * Maximum number of CQs, so that an EQ of the largest size, 2^16, has room for
 * each CQ twice
 */
#define QRNIC_MAX_CQ (1u << 15)

/* Limits and capabilities, fixed for the life of the engine */
typedef struct QrnicConfig {
    const char *name;           /* for log lines and trace events */
    uint64_t capabilities;      /* QRNIC_CAP_* */
    uint32_t max_qp, max_cq, max_mkey, max_pd, max_gid, max_srq, max_flow;
    uint32_t vectors;           /* also the maximum number of EQs */
    uint32_t db_pages;
    uint32_t doorbell_fifo;
    /*
     * ns in which an SQ with an event index stays awake after its last WQE
     */
    uint32_t doorbell_hold;
    uint32_t max_sge, max_inline, max_rd_atomic;
    uint64_t device_memory;     /* bytes, a multiple of DM_PAGE_SIZE */
    /*
     * With CAP_CONTEXT_CACHE: entries (at least 2), reservation stations (0:
     * all work waits for a fetch), and latency of a fetch in ns
     */
    uint32_t context_cache, context_stations, context_latency;
    /* CAP_SHARED_VIRTUAL: entries of the address translation cache */
    uint32_t translation_cache;
    /*
     * Secret random numbers. The hash function of the cache multiplies page
     * and PASID by these numbers, made odd. So a guest cannot make long chains.
     */
    uint64_t translation_key[2];
    QrnicIcrcCover icrc;
    uint8_t mac[6];
} QrnicConfig;

/* Purpose of a DMA access */
typedef enum QrnicUse {
    QRNIC_USE_DATA,             /* buffers of messages */
    QRNIC_USE_RECORD,           /* record of a work queue */
    QRNIC_USE_CQ_RECORD,
    QRNIC_USE_WQE,
    QRNIC_USE_RECEIVE_WQE,      /* of an RQ or SRQ */
    QRNIC_USE_TAG_OP,           /* operation of a tag list */
    QRNIC_USE_CQE,
    QRNIC_USE_EQE,
    QRNIC_USE_PAGE_LIST,
    QRNIC_USE_CONTEXT,          /* image of a queue pair's context */
    QRNIC_USE_COMMAND,          /* entry of the command ring */
    QRNIC_USE_MAILBOX,          /* input or output of a command */
    QRNIC_NUM_USES
} QrnicUse;

/*
 * Work that the engine does at this moment. The engine only writes it; captures
 * read it.
 */
typedef struct QrnicActivity {
    QrnicUse use;               /* purpose of the next DMA access */
    uint32_t object, index;     /* queue and its index, unless USE_DATA */
    uint32_t qpn;               /* queue pair that works, or 0 */
    uint8_t qp_type;            /* enum qrnic_qp_type, unless qpn is 0 */
    bool has_wqe, has_psn;
    uint32_t wqe;               /* index of the WQE that is sent */
    uint32_t psn;               /* packet that is sent or received */
} QrnicActivity;

/**
 * qrnic_engine_new:
 * @config: limits and capabilities; copied
 * @env: operations of the environment; copied
 *
 * Returns: a new engine, whose link is down
 */
QrnicEngine *qrnic_engine_new(const QrnicConfig *config, const QrnicEnv *env);
/**
 * qrnic_engine_free:
 * @e: the engine, or NULL
 *
 * Frees the engine and all its objects. No operation of QrnicEnv may call this
 * function, because the engine is in use then.
 */
void qrnic_engine_free(QrnicEngine *e);
/**
 * qrnic_engine_reset:
 * @e: the engine
 *
 * Destroys all objects, clears counters, timers and the fatal state, and begins
 * to clear the device memory. The link state stays.
 */
void qrnic_engine_reset(QrnicEngine *e);

/**
 * qrnic_engine_set_mac:
 * @e: the engine, which is being reset
 * @mac: the new permanent MAC address, 6 bytes
 */
void qrnic_engine_set_mac(QrnicEngine *e, const uint8_t *mac);

/**
 * qrnic_engine_activity:
 * @e: the engine
 *
 * Returns: the current work of the engine
 */
QrnicActivity *qrnic_engine_activity(QrnicEngine *e);

/*
 * Number of rounds in a run of the bottom half. A high number reduces the cost
 * of scheduling a run. A low number keeps a run well below a millisecond, so
 * that the main loop can serve other devices.
 */
#define QRNIC_RUN_ROUNDS 4
/**
 * qrnic_engine_run:
 * @e: the engine
 * @rounds: maximum number of rounds
 *
 * Does the pending work, after the operation kick() has requested it. If work
 * remains after the last round, kick() is called again. Each run delivers some
 * looped back frames, so that a short message to this device and its response
 * need only one run.
 */
void qrnic_engine_run(QrnicEngine *e, unsigned rounds);
/**
 * qrnic_engine_timer:
 * @e: the engine
 *
 * Fires the timers that are due, when the timer of timer_arm() has expired.
 */
void qrnic_engine_timer(QrnicEngine *e);
/**
 * qrnic_engine_wire_ready:
 * @e: the engine
 *
 * Reports that a busy wire accepts frames again.
 */
void qrnic_engine_wire_ready(QrnicEngine *e);
/**
 * qrnic_engine_can_receive:
 * @e: the engine
 *
 * Returns: true if the engine accepts a frame now; else it accepts one after a
 * run, or after several runs
 */
bool qrnic_engine_can_receive(const QrnicEngine *e);
/**
 * qrnic_engine_take_frames:
 * @e: the engine
 *
 * Begins a series of calls of qrnic_engine_receive(). The caller ends the
 * series when qrnic_engine_frames_taken() returns true.
 */
void qrnic_engine_take_frames(QrnicEngine *e);
/**
 * qrnic_engine_frames_taken:
 * @e: the engine
 *
 * Returns: true if the series has used up its work budget, so that further
 * frames must wait for the next run
 */
bool qrnic_engine_frames_taken(const QrnicEngine *e);
/**
 * qrnic_engine_suspended:
 * @e: the engine
 *
 * Returns: true if the engine accepts no frame until a context is fetched; then
 * it calls kick()
 */
bool qrnic_engine_suspended(const QrnicEngine *e);
/**
 * qrnic_engine_receive:
 * @e: the engine
 * @frame: the frame, without FCS
 * @len: its size in bytes
 *
 * Processes a received frame. A frame is dropped if the port is not active.
 */
void qrnic_engine_receive(QrnicEngine *e, const uint8_t *frame, size_t len);
/**
 * qrnic_engine_set_link:
 * @e: the engine
 * @up: link state of the backend
 *
 * Updates the link, and reports PORT_UP or PORT_DOWN if the state of the port
 * changes.
 */
void qrnic_engine_set_link(QrnicEngine *e, bool up);
/**
 * qrnic_engine_set_link_agreed:
 * @e: the engine
 * @agreed: true if both ends of the link have agreed on link retransmission
 *
 * Updates the state that QUERY_PORT returns.
 */
void qrnic_engine_set_link_agreed(QrnicEngine *e, bool agreed);
/**
 * qrnic_engine_port_active:
 * @e: the engine
 *
 * Returns: true if the port can send and receive
 */
bool qrnic_engine_port_active(const QrnicEngine *e);

/* All PASIDs of the device */
#define QRNIC_PASID_ALL UINT32_MAX

/**
 * qrnic_engine_invalidate:
 * @e: the engine
 * @pasid: PASID of a process, or QRNIC_PASID_ALL
 * @first: first virtual address of the range
 * @last: last virtual address of the range
 *
 * Drops the translations of all pages that the range overlaps (PCIe, 10.3).
 * After the return no DMA uses an older translation. Any operation of QrnicEnv
 * may call this function, because an invalidation must not wait for the end of
 * a run.
 */
void qrnic_engine_invalidate(QrnicEngine *e, uint32_t pasid, uint64_t first,
                             uint64_t last);

/* Number of groups of page requests; an index has 9 bits (PCIe, 10.4) */
#define QRNIC_PAGE_GROUPS 512

/* Response of the operating system to a group of page requests */
typedef enum QrnicPageResponse {
    QRNIC_PAGE_RESPONSE_SUCCESS,    /* the device repeats the access */
    QRNIC_PAGE_RESPONSE_INVALID,    /* the process has no such page or right */
    QRNIC_PAGE_RESPONSE_FAILURE,    /* the IOMMU processes no request now */
} QrnicPageResponse;

/**
 * qrnic_engine_page_requests_limit:
 * @e: the engine
 * @limit: maximum number of outstanding page requests; 0: none may be sent
 *
 * Sets the limit. The initial limit is 0, and a reset of the engine does not
 * change the limit. With limit 0 the engine reports page faults of processes by
 * events.
 */
void qrnic_engine_page_requests_limit(QrnicEngine *e, uint32_t limit);
/**
 * qrnic_engine_page_requests_outstanding:
 * @e: the engine
 *
 * Returns: the number of page requests without response
 */
uint32_t qrnic_engine_page_requests_outstanding(const QrnicEngine *e);
/**
 * qrnic_engine_page_requests_reset:
 * @e: the engine
 *
 * Forgets all outstanding page requests. The accesses that wait for them are
 * repeated.
 */
void qrnic_engine_page_requests_reset(QrnicEngine *e);
/**
 * qrnic_engine_page_response:
 * @e: the engine
 * @pasid: PASID of the response
 * @group: index of the group
 * @response: kind of the response
 *
 * Stores the response for the next run. A failure ends all groups, and sets the
 * limit to 0.
 *
 * Returns: true, or false if no such group is outstanding
 */
bool qrnic_engine_page_response(QrnicEngine *e, uint32_t pasid, uint16_t group,
                                QrnicPageResponse response);

/**
 * qrnic_doorbell_write:
 * @e: the engine
 * @page: number of the doorbell page
 * @offset: offset in the page
 * @size: size of the access in bytes
 * @value: written value, in host order
 *
 * Handles a write of the guest to a doorbell page. An invalid write is reported
 * as a guest error.
 */
void qrnic_doorbell_write(QrnicEngine *e, uint32_t page, unsigned offset,
                          unsigned size, uint64_t value);
/**
 * qrnic_doorbell_write_nested:
 * @e: the engine
 * @page: number of the doorbell page
 * @offset: offset in the page, but not that of EQs
 * @size: size of the access in bytes
 * @value: written value, in host order
 *
 * Acts as qrnic_doorbell_write(), while an operation of the environment is in
 * progress. This is possible because such a doorbell only enters the FIFO.
 */
void qrnic_doorbell_write_nested(QrnicEngine *e, uint32_t page, unsigned offset,
                                 unsigned size, uint64_t value);
/**
 * qrnic_doorbell_event:
 * @e: the engine
 * @page: number of the doorbell page
 *
 * Handles a write to a doorbell page of which only the page is known. All
 * queues of the page are checked.
 */
void qrnic_doorbell_event(QrnicEngine *e, uint32_t page);
/**
 * qrnic_doorbells_pending:
 * @e: the engine
 *
 * Returns: true if doorbells wait to be processed by a run
 */
bool qrnic_doorbells_pending(const QrnicEngine *e);

/**
 * qrnic_command_unfinished:
 * @e: the engine
 *
 * Returns: true while the work of the last command continues: device memory is
 * cleared, or a CQ is resized. No other command may be executed meanwhile.
 */
bool qrnic_command_unfinished(const QrnicEngine *e);
/**
 * qrnic_engine_ready:
 * @e: the engine
 *
 * Returns: false while device memory is cleared after a reset, because the CPU
 * must not see its old content
 */
bool qrnic_engine_ready(const QrnicEngine *e);
/**
 * qrnic_cq_resize_result:
 * @e: the engine
 *
 * Returns: the result of the last RESIZE_CQ, when it is no longer unfinished
 */
QrnicResult qrnic_cq_resize_result(const QrnicEngine *e);
/**
 * qrnic_cq_resize_cancel:
 * @e: the engine
 *
 * Cancels an unfinished RESIZE_CQ, so that the new ring is no longer written.
 * The CQ keeps its old ring.
 */
void qrnic_cq_resize_cancel(QrnicEngine *e);

/*
 * Commands. Each function executes the command of its name. The number or index
 * names the object. The argument "in" is the decoded input, and "out" receives
 * the output. The result has the status, the syndrome of an error, and the
 * number of a created object. The manual lists the checks and the errors of
 * each command in their order.
 */
QrnicResult qrnic_device_query(QrnicEngine *e, QrnicDeviceAttr *out);
/* number: of the virtual function, from 0 on */
QrnicResult qrnic_vf_set(QrnicEngine *e, uint32_t number, const QrnicVfCtx *in);
QrnicResult qrnic_vf_query(QrnicEngine *e, uint32_t number, QrnicVfAttr *out);
QrnicResult qrnic_port_query(QrnicEngine *e, QrnicPortAttr *out);
QrnicResult qrnic_port_modify(QrnicEngine *e, const QrnicPortCtx *in);
QrnicResult qrnic_congestion_set(QrnicEngine *e, const QrnicCongestionCtx *in);
QrnicResult qrnic_congestion_query(QrnicEngine *e, QrnicCongestionCtx *out);
QrnicResult qrnic_db_page_alloc(QrnicEngine *e);
QrnicResult qrnic_db_page_free(QrnicEngine *e, uint32_t page);
QrnicResult qrnic_db_page_set_pasid(QrnicEngine *e, uint32_t page,
                                    const QrnicPasidCtx *in);
QrnicResult qrnic_pd_alloc(QrnicEngine *e);
QrnicResult qrnic_pd_free(QrnicEngine *e, uint32_t pdn);
QrnicResult qrnic_eq_create(QrnicEngine *e, const QrnicEqCtx *in);
QrnicResult qrnic_eq_destroy(QrnicEngine *e, uint32_t eqn);
QrnicResult qrnic_eq_query(QrnicEngine *e, uint32_t eqn, QrnicEqCtx *out);
QrnicResult qrnic_cq_create(QrnicEngine *e, const QrnicCqCtx *in);
QrnicResult qrnic_cq_destroy(QrnicEngine *e, uint32_t cqn);
QrnicResult qrnic_cq_resize(QrnicEngine *e, uint32_t cqn,
                            const QrnicCqResize *in);
QrnicResult qrnic_cq_modify(QrnicEngine *e, uint32_t cqn,
                            const QrnicCqModeration *in);
QrnicResult qrnic_cq_query(QrnicEngine *e, uint32_t cqn, QrnicCqCtx *out);
QrnicResult qrnic_mkey_create(QrnicEngine *e, const QrnicMkeyCtx *in);
QrnicResult qrnic_mkey_modify(QrnicEngine *e, uint32_t index,
                              const QrnicMkeyCtx *in);
QrnicResult qrnic_mkey_destroy(QrnicEngine *e, uint32_t index);
QrnicResult qrnic_mkey_query(QrnicEngine *e, uint32_t index,
                             QrnicMkeyCtx *out);
QrnicResult qrnic_mkey_invalidate_pages(QrnicEngine *e, uint32_t index,
                                        const QrnicPageRange *in);
/*
 * The number of a page fault is (queue pair << 1), plus 1 on the receive side.
 */
QrnicResult qrnic_page_fault_query(QrnicEngine *e, uint32_t number,
                                   QrnicPageFault *out);
QrnicResult qrnic_page_fault_resume(QrnicEngine *e, uint32_t number,
                                    const QrnicFaultAnswer *in);
QrnicResult qrnic_page_fault_refuse(QrnicEngine *e, uint32_t number,
                                    const QrnicFaultAnswer *in);
QrnicResult qrnic_qp_create(QrnicEngine *e, const QrnicQpCtx *in);
QrnicResult qrnic_qp_modify(QrnicEngine *e, uint32_t qpn,
                            const QrnicQpAttr *in);
QrnicResult qrnic_qp_query(QrnicEngine *e, uint32_t qpn, QrnicQpAttr *out);
QrnicResult qrnic_qp_destroy(QrnicEngine *e, uint32_t qpn);
/* State of a queue pair for the property queue-pairs */
typedef struct QrnicQpReport {
    uint32_t number;
    uint8_t type;               /* enum qrnic_qp_type */
    uint8_t state;              /* enum qrnic_qp_state */
    uint8_t level;              /* priority level */
    uint32_t dest_qpn;          /* queue pair of the peer; else 0 */
    /* SQ in basic blocks: posted, fetched and completed (modulo 2^32) */
    uint32_t sq_producer, sq_fetched, sq_completed;
    uint32_t rq_producer, rq_consumer;  /* RQ in WQEs; 0 without an RQ */
    uint64_t retransmissions;   /* retransmitted packets since the creation */
} QrnicQpReport;
/**
 * qrnic_qp_report:
 * @e: the engine
 * @from: lowest number
 * @out: receives the state of the queue pair with the lowest number from @from
 *     on. Responders of targets are internal and are skipped.
 *
 * Changes no state, counter or context cache. The producers are those that the
 * device has last read from the doorbell records.
 *
 * Returns: false if there is no such queue pair
 */
bool qrnic_qp_report(QrnicEngine *e, uint32_t from, QrnicQpReport *out);
/*
 * Returns true if DESTROY_QP must search windows or flow rules, which takes
 * long.
 */
bool qrnic_qp_is_entangled(QrnicEngine *e, uint32_t qpn);
QrnicResult qrnic_context_memory_set(QrnicEngine *e,
                                     const QrnicContextMemory *in);
QrnicResult qrnic_context_memory_query(QrnicEngine *e, QrnicContextAttr *out);
QrnicResult qrnic_srq_create(QrnicEngine *e, const QrnicSrqCtx *in);
QrnicResult qrnic_srq_modify(QrnicEngine *e, uint32_t srqn,
                             const QrnicSrqLimit *in);
QrnicResult qrnic_srq_resize(QrnicEngine *e, uint32_t srqn,
                             const QrnicSrqResize *in);
QrnicResult qrnic_tag_list_create(QrnicEngine *e, uint32_t srqn,
                                  const QrnicTagListCtx *in);
QrnicResult qrnic_srq_query(QrnicEngine *e, uint32_t srqn, QrnicSrqCtx *out);
QrnicResult qrnic_srq_destroy(QrnicEngine *e, uint32_t srqn);
QrnicResult qrnic_xrcd_alloc(QrnicEngine *e);
QrnicResult qrnic_xrcd_free(QrnicEngine *e, uint32_t number);
QrnicResult qrnic_gid_set(QrnicEngine *e, uint32_t index,
                          const QrnicGidEntry *in);
QrnicResult qrnic_gid_clear(QrnicEngine *e, uint32_t index);
QrnicResult qrnic_gid_query(QrnicEngine *e, uint32_t index,
                            QrnicGidEntry *out);
QrnicResult qrnic_multicast_attach(QrnicEngine *e, uint32_t qpn,
                                   const QrnicMulticast *in);
QrnicResult qrnic_multicast_detach(QrnicEngine *e, uint32_t qpn,
                                   const QrnicMulticast *in);
QrnicResult qrnic_dm_alloc(QrnicEngine *e, const QrnicDmCtx *in);
QrnicResult qrnic_dm_free(QrnicEngine *e, uint32_t number);
QrnicResult qrnic_dm_query(QrnicEngine *e, uint32_t number, QrnicDmCtx *out);
QrnicResult qrnic_counter_set_alloc(QrnicEngine *e);
QrnicResult qrnic_counter_set_free(QrnicEngine *e, uint32_t number);
/* out receives QRNIC_NUM_COUNTERS values. Set 0 is all work outside of sets. */
QrnicResult qrnic_counter_set_query(QrnicEngine *e, uint32_t number,
                                    uint64_t *out);
QrnicResult qrnic_counter_set_bind(QrnicEngine *e, uint32_t qpn,
                                   const QrnicCounterBind *in);
QrnicResult qrnic_rx_filter_set(QrnicEngine *e, const QrnicRxFilter *in);
QrnicResult qrnic_flow_create(QrnicEngine *e, uint32_t qpn,
                              const QrnicFlowCtx *in);
QrnicResult qrnic_flow_destroy(QrnicEngine *e, uint32_t number);
QrnicResult qrnic_rss_create(QrnicEngine *e, const QrnicRssCtx *in);
QrnicResult qrnic_rss_destroy(QrnicEngine *e, uint32_t number);

/**
 * qrnic_eui64:
 * @mac: MAC address, 6 bytes
 *
 * Returns: the EUI-64 of the MAC address
 */
uint64_t qrnic_eui64(const uint8_t *mac);

/**
 * qrnic_event_async:
 * @e: the engine
 * @type: enum qrnic_event
 * @subtype: reason, depending on the type
 * @object: number of the object
 * @data: data, depending on the type
 *
 * Writes an event into the asynchronous EQ. Without such an EQ the event is
 * lost.
 */
void qrnic_event_async(QrnicEngine *e, uint8_t type, uint8_t subtype,
                       uint32_t object, uint32_t data);
/**
 * qrnic_counters:
 * @e: the engine
 *
 * Returns: the counters of the device, QRNIC_NUM_COUNTERS values
 */
const uint64_t *qrnic_counters(QrnicEngine *e);
/**
 * qrnic_count:
 * @e: the engine
 * @which: the counter
 * @n: number to add
 */
void qrnic_count(QrnicEngine *e, enum qrnic_counter which, uint64_t n);
/**
 * qrnic_guest_error:
 * @e: the engine
 * @rule: violated rule
 * @queue: kind of the object, such as "SQ"
 * @number: number of the object
 * @fmt: text without a final period, as for printf()
 *
 * Reports a violation of the contract by the guest. The violation is counted
 * and traced, and logged if -d guest_errors is set.
 */
void qrnic_guest_error(QrnicEngine *e, enum qrnic_guest_error rule,
                       const char *queue, uint32_t number,
                       const char *fmt, ...) G_GNUC_PRINTF(5, 6);
/**
 * qrnic_guest_error_at:
 * @e: the engine
 * @rule: violated rule
 * @place: kind of the place, such as "register"
 * @offset: offset of the place; the report has it in hexadecimal
 * @fmt: text without a final period, as for printf()
 *
 * Reports a violation as qrnic_guest_error() does, for an object that the
 * manual names by its offset.
 */
void qrnic_guest_error_at(QrnicEngine *e, enum qrnic_guest_error rule,
                          const char *place, uint64_t offset,
                          const char *fmt, ...) G_GNUC_PRINTF(5, 6);
/**
 * qrnic_fatal:
 * @e: the engine
 * @cause: cause for the register HEALTH
 * @info: details for the register HEALTH_INFO
 *
 * Moves the engine to the fatal state, in which only a reset has an effect.
 * Calls in the fatal state are ignored.
 */
void qrnic_fatal(QrnicEngine *e, enum qrnic_health cause, uint32_t info);
/**
 * qrnic_is_fatal:
 * @e: the engine
 *
 * Returns: true in the fatal state
 */
bool qrnic_is_fatal(QrnicEngine *e);

#endif
