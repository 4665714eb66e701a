/*
 * qrnic engine, layer qp: functions that only files of this folder call
 *
 * The functions are grouped by the file that defines them. Other layers include
 * qp.h, qp_send.h, qp_receive.h, qp_rate.h or qp_wait.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_PRIVATE_H
#define QRNIC_ENGINE_QP_PRIVATE_H

#include "engine/qp/qp_rate.h"
#include "engine/qp/qp_receive.h"
#include "engine/qp/qp_send.h"
#include "engine/qp/qp_wait.h"

/*
 * qp.c: frees the queue pair. The caller updates use counts of other objects.
 */
void qrnic_qp_free(QrnicEngine *e, QrnicQp *qp);

/* ready.c: scheduler lists */

void qrnic_ready_init(QrnicQp *qp);
/* Schedules the queue pair before all others of its priority level. */
void qrnic_schedule_first(QrnicEngine *e, QrnicQp *qp);

/* error.c: states that the device enters on its own */

/* Takes the queue pairs that report to a CQ in error to ERR. */
void qrnic_qp_errors_process(QrnicEngine *e);
bool qrnic_qp_errors_pending(const QrnicEngine *e);
/* Takes a UC, UD or GSI queue pair to SQE, because a send has failed. */
void qrnic_qp_send_error(QrnicEngine *e, QrnicQp *qp);
/* Returns true if no send WQE is in flight. */
static inline bool qrnic_send_idle(const QrnicQp *qp)
{
    return !qp->under_way && (!qp->ops->is_idle || qp->ops->is_idle(qp));
}

/* flush.c: flush of work queues */

/* Frees the WQE that is sent in part, without a completion. */
void qrnic_transmit_drop(QrnicEngine *e, QrnicQp *qp);
/*
 * Completes the next WQE of the SQ as flushed. Returns false if the SQ is
 * empty.
 */
bool qrnic_sq_flush_one(QrnicEngine *e, QrnicQp *qp);
/*
 * Marks all posted WQEs of the SQ to be flushed, for the transition from SQE to
 * RTS.
 */
void qrnic_sq_flush_rest(QrnicEngine *e, QrnicQp *qp);
/* Returns true if the next WQE of the SQ must be flushed in any state. */
static inline bool qrnic_sq_flush_is_owed(const QrnicQp *qp)
{
    return qp->sq_flush_owed &&
           (int32_t)(qp->sq_flush_end - qp->sq.consumer) > 0;
}
/*
 * Returns true if a UC, UD or GSI queue pair must flush now instead of sending.
 */
bool qrnic_sq_flush_due(QrnicQp *qp);
/* Returns true if requests consume receive WQEs, of the RQ or of an SRQ. */
static inline bool qrnic_qp_takes_wqes(const QrnicQp *qp)
{
    return !qp->ops->no_recv_wqes;
}

/* local_operation.c: frees the list of pieces that is read in part. */
void qrnic_piece_list_drop(QrnicQp *qp);

/* path.c: sends a CNP to the peer. */
void qrnic_notification_send(QrnicEngine *e, QrnicQp *qp);

/* rate/: rate limit and congestion control */

/* Increases the rate because the timer of the reaction point has expired. */
void qrnic_congestion_expired(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns the time from which congestion control allows to send; INT64_MIN:
 * always.
 */
int64_t qrnic_congestion_until(const QrnicQp *qp);
/* Charges a sent frame of len bytes to the bucket of the reaction point. */
void qrnic_congestion_charge(QrnicEngine *e, QrnicQp *qp, size_t len);
/* Restores the highest rate and frees the state of the reaction point. */
void qrnic_congestion_drop(QrnicEngine *e, QrnicQp *qp);
/* Sets the parameters of congestion control to their reset values. */
void qrnic_congestion_init(QrnicEngine *e);
/* Drops the pending CNP of the queue pair. */
void qrnic_notification_drop(QrnicEngine *e, QrnicQp *qp);
/* Drops the pending CNPs of all queue pairs. */
void qrnic_notifications_forget(QrnicEngine *e);
bool qrnic_notifications_pending(const QrnicEngine *e);
void qrnic_notifications_process(QrnicEngine *e);
/* Stops the wait for the rate limit and clears the bucket. */
void qrnic_pace_restart(QrnicEngine *e, QrnicQp *qp);

/* context.c: context cache */

/*
 * Operations of files that themselves call context.c. Direct calls from
 * context.c would make a cycle, so it calls these operations through pointers.
 */
typedef struct QrnicContextUsers {
    /* Takes the queue pair to ERR, because its image in memory is invalid. */
    void (*failed)(QrnicEngine *e, QrnicQp *qp, uint8_t event, uint8_t subtype);
    /*
     * Schedules the queue pair first, because the miss has cost it its quantum.
     */
    void (*ready)(QrnicEngine *e, QrnicQp *qp);
    void (*schedule)(QrnicEngine *e, QrnicQp *qp);
} QrnicContextUsers;

bool qrnic_context_timer(QrnicEngine *e, QrnicQp *qp);
/* Fetches the context at once, because a command or an error cannot wait. */
void qrnic_context_now(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns true if the context is being fetched. The queue pair is then
 * scheduled at the end of the fetch.
 */
bool qrnic_context_waits(QrnicQp *qp);
/*
 * Returns ST_OK if the device has room for one more context of this type, or
 * ST_NO_RESOURCE.
 */
QrnicResult qrnic_context_room(QrnicEngine *e, const QrnicQpOps *ops);
void qrnic_context_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_context_free(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns true if buffered frames can be delivered. These frames remain because
 * the work budget of the last run was spent.
 */
bool qrnic_contexts_pending(const QrnicEngine *e);
void qrnic_contexts_process(QrnicEngine *e);
void qrnic_contexts_init(QrnicEngine *e);
void qrnic_contexts_cleanup(QrnicEngine *e);

/* page_fault.c: page faults of queue pairs */

/*
 * Rejects all page faults, because the EQ for page faults was destroyed. The
 * layer queue calls this function through a pointer.
 */
void qrnic_page_faults_orphaned(QrnicEngine *e);
/* Returns true if an event is pending, and the EQ has room for it. */
bool qrnic_page_faults_pending(const QrnicEngine *e);
void qrnic_page_faults_process(QrnicEngine *e);
/* Processes the answers to page requests. */
void qrnic_page_answers_process(QrnicEngine *e);
/* Ends the waits of the queue pair for pages, without an answer of software. */
void qrnic_page_faults_drop(QrnicEngine *e, QrnicQp *qp);

/* page_request.c: page requests for page faults of processes */

typedef struct QrnicPageRequests QrnicPageRequests;

void qrnic_page_requests_init(QrnicEngine *e);
void qrnic_page_requests_cleanup(QrnicEngine *e);
/**
 * qrnic_page_request:
 * @e: engine
 * @number: number of the page fault
 * @at: the page fault, with a PASID
 * @absent: bytes from the address of the page fault to the absent page
 *
 * Sends a group of page requests for the absent page and the next pages. The
 * response to the group ends the page fault, or has it reported by an event.
 *
 * Returns: true, or false if the device may send no request now, or if the
 * IOMMU did not accept the requests
 */
bool qrnic_page_request(QrnicEngine *e, uint32_t number,
                        const QrnicPageFault *at, uint64_t absent);
/* Returns true if responses wait to be processed. */
bool qrnic_page_requests_pending(const QrnicEngine *e);
typedef enum QrnicPageAnswerKind {
    QRNIC_PAGE_ANSWER_RESUME,   /* repeat the access */
    QRNIC_PAGE_ANSWER_REJECT,   /* reject the access */
    QRNIC_PAGE_ANSWER_EVENT,    /* report the page fault by an event */
} QrnicPageAnswerKind;
/* Answer to the page requests of a page fault, which may have ended before */
typedef struct QrnicPageAnswer {
    uint32_t number, sequence;
    QrnicPageAnswerKind kind;
} QrnicPageAnswer;
/* Dequeues the next answer. Returns false if no answer is stored. */
bool qrnic_page_request_answer(QrnicEngine *e, QrnicPageAnswer *answer);

#endif
