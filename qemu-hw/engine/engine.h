/*
 * qrnic engine: the interface to the faces above it
 *
 * Queues, keys and transport of the adapter. Knows no PCI, no BAR, no MSI-X
 * and no net client; it reaches the world through QrnicEnv.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_ENGINE_H
#define QRNIC_ENGINE_ENGINE_H

#include "engine/env.h"
#include "qrnic_hw.h"
#include "wire/icrc.h"

typedef struct QrnicEngine QrnicEngine;

/* Largest frame: Ethernet header, one tag, MTU, and room for RoCE headers. */
#define QRNIC_FRAME_MAX (18 + 9000 + 64)

/* An EQ of the largest size, 2^16, has room for each CQ twice. */
#define QRNIC_MAX_CQ (1u << 15)

/* Limits and capabilities, fixed for the life of the engine. */
typedef struct QrnicConfig {
    const char *name;           /* for log lines and trace events */
    uint64_t capabilities;      /* QRNIC_CAP_* */
    uint32_t max_qp, max_cq, max_mkey, max_pd, max_gid, max_srq, max_flow;
    uint32_t vectors;           /* also the most EQs */
    uint32_t db_pages;
    uint32_t doorbell_fifo;
    uint32_t max_sge, max_inline, max_rd_atomic;
    uint64_t device_memory;     /* bytes, a multiple of DM_PAGE_SIZE */
    /* With CAP_CONTEXT_CACHE: entries, 2 at least; 0 stations: in order; ns */
    uint32_t context_cache, context_stations, context_latency;
    QrnicIcrcCover icrc;
    uint8_t mac[6];
} QrnicConfig;

/* What a refused command reports. */
typedef struct QrnicResult {
    uint8_t status;             /* enum qrnic_cmd_status */
    uint32_t value;             /* number of a created object */
    uint32_t syndrome;
} QrnicResult;

QrnicEngine *qrnic_engine_new(const QrnicConfig *config, const QrnicEnv *env);
void qrnic_engine_free(QrnicEngine *e);
/* Back to nothing: objects, queues, timers, counters. */
void qrnic_engine_reset(QrnicEngine *e);

/* Work: calls that the environment makes. None re-enters another. */
/*
 * rounds: the most that is done now; for what is left kick() is called. So many
 * that the cost of getting here does not count, so few that the main loop gets
 * its turn in well under a millisecond. Some frames to ourselves are taken in
 * any case, enough for a short message and its answer.
 */
#define QRNIC_RUN_ROUNDS 4
void qrnic_engine_run(QrnicEngine *e, unsigned rounds);
void qrnic_engine_timer(QrnicEngine *e);
void qrnic_engine_wire_ready(QrnicEngine *e);
/* False: not before it has been run, perhaps several times. */
bool qrnic_engine_can_receive(const QrnicEngine *e);
/*
 * Who has many frames begins with the first, and ends with the second: a frame
 * may be so much work that the others have to wait for the next turn.
 */
void qrnic_engine_take_frames(QrnicEngine *e);
bool qrnic_engine_frames_taken(const QrnicEngine *e);
/* No frame is taken before a time has come; then kick() is called. */
bool qrnic_engine_suspended(const QrnicEngine *e);
void qrnic_engine_receive(QrnicEngine *e, const uint8_t *frame, size_t len);
/* Link of the backend. Writes PORT_UP/PORT_DOWN when the port changes. */
void qrnic_engine_set_link(QrnicEngine *e, bool up);
/* Below, frames are sent again that were lost: what QUERY_PORT tells of it. */
void qrnic_engine_set_link_agreed(QrnicEngine *e, bool agreed);
bool qrnic_engine_port_active(const QrnicEngine *e);

/* Doorbell pages; values in host order. */
void qrnic_doorbell_write(QrnicEngine *e, uint32_t page, unsigned offset,
                          unsigned size, uint64_t value);
/* A doorbell of some queue of the page, it is not known which */
void qrnic_doorbell_event(QrnicEngine *e, uint32_t page);
/* Some were rung that have not been looked at. */
bool qrnic_doorbells_pending(const QrnicEngine *e);

/*
 * Returns true while device memory is being cleared or a CQ is being resized
 * for the last command: its completion is pending, and no other command may be
 * executed. Not ready: device memory is being cleared for a reset, and the CPU
 * must not see it.
 */
bool qrnic_command_unfinished(const QrnicEngine *e);
bool qrnic_engine_ready(const QrnicEngine *e);
/* Returns the result of the last RESIZE_CQ when that is no longer unfinished */
QrnicResult qrnic_cq_resize_result(const QrnicEngine *e);
/*
 * Cancels an unfinished RESIZE_CQ, so that nothing more is written to the new
 * ring: the CQ keeps its old one.
 */
void qrnic_cq_resize_cancel(QrnicEngine *e);

/* Commands, one function each; the contract names the fields. */
QrnicResult qrnic_device_query(QrnicEngine *e, QrnicDeviceAttr *out);
QrnicResult qrnic_port_query(QrnicEngine *e, QrnicPortAttr *out);
QrnicResult qrnic_port_modify(QrnicEngine *e, const QrnicPortCtx *in);
QrnicResult qrnic_congestion_set(QrnicEngine *e, const QrnicCongestionCtx *in);
QrnicResult qrnic_congestion_query(QrnicEngine *e, QrnicCongestionCtx *out);
QrnicResult qrnic_db_page_alloc(QrnicEngine *e);
QrnicResult qrnic_db_page_free(QrnicEngine *e, uint32_t page);
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
/* A page fault: number of the queue pair << 1, plus 1 where it receives */
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
/* Windows or flow rules may have to be looked for when it is destroyed. */
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
/* QRNIC_NUM_COUNTERS of them; number 0: what is in no set */
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

/* EUI-64 of a MAC address */
uint64_t qrnic_eui64(const uint8_t *mac);

/* Events and counters that the faces add to. */
void qrnic_event_async(QrnicEngine *e, uint8_t type, uint8_t subtype,
                       uint32_t object, uint32_t data);
const uint64_t *qrnic_counters(QrnicEngine *e); /* QRNIC_NUM_COUNTERS */
void qrnic_count(QrnicEngine *e, enum qrnic_counter which, uint64_t n);
void qrnic_guest_error(QrnicEngine *e, enum qrnic_guest_error rule,
                       const char *queue, uint32_t number,
                       const char *fmt, ...) G_GNUC_PRINTF(5, 6);
void qrnic_fatal(QrnicEngine *e, enum qrnic_health cause, uint32_t info);
bool qrnic_is_fatal(QrnicEngine *e);

#endif
