/*
 * qrnic engine, floor qp: functions that only this folder calls
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_PRIVATE_H
#define QRNIC_ENGINE_QP_PRIVATE_H

#include "engine/qp/qp_rate.h"
#include "engine/qp/qp_receive.h"
#include "engine/qp/qp_send.h"
#include "engine/qp/qp_wait.h"

/* qp.c: frees the queue pair, but leaves counts of other objects unchanged. */
void qrnic_qp_free(QrnicEngine *e, QrnicQp *qp);

/*
 * ready.c
 */

void qrnic_ready_init(QrnicQp *qp);
/* Schedules the queue pair before all others. */
void qrnic_schedule_first(QrnicEngine *e, QrnicQp *qp);

/*
 * error.c
 */

/* Takes the queue pairs of a CQ in error to ERR. */
void qrnic_qp_errors_process(QrnicEngine *e);
bool qrnic_qp_errors_pending(const QrnicEngine *e);
/* To SQE, of UC, UD and GSI: a send has failed. */
void qrnic_qp_send_error(QrnicEngine *e, QrnicQp *qp);
/* Returns true if no send WQE is in flight. */
static inline bool qrnic_send_idle(const QrnicQp *qp)
{
    return !qp->under_way && (!qp->ops->is_idle || qp->ops->is_idle(qp));
}

/*
 * flush.c
 */

/* Forgets the WQE that is sent in part. */
void qrnic_transmit_drop(QrnicEngine *e, QrnicQp *qp);
/* Completes the next WQE of the SQ as flushed. False: there is none. */
bool qrnic_sq_flush_one(QrnicEngine *e, QrnicQp *qp);
/* From SQE to RTS: WQEs that are posted by now are still flushed. */
void qrnic_sq_flush_rest(QrnicEngine *e, QrnicQp *qp);
/* Returns true if the next WQE of the SQ is flushed in any state. */
static inline bool qrnic_sq_flush_is_owed(const QrnicQp *qp)
{
    return qp->sq_flush_owed &&
           (int32_t)(qp->sq_flush_end - qp->sq.consumer) > 0;
}
/* Returns true if UC, UD or GSI must flush now, and send nothing. */
bool qrnic_sq_flush_due(QrnicQp *qp);
/* Returns true if requests consume receive WQEs, whoever posted them. */
static inline bool qrnic_qp_takes_wqes(const QrnicQp *qp)
{
    return !qp->ops->no_recv_wqes;
}

/* local_operation.c: frees the list of pieces that was read in part. */
void qrnic_piece_list_drop(QrnicQp *qp);

/* path.c: sends a CNP to the peer. */
void qrnic_notification_send(QrnicEngine *e, QrnicQp *qp);

/*
 * rate/
 */

/* Increases the rate when its timer expires. */
void qrnic_congestion_expired(QrnicEngine *e, QrnicQp *qp);
/* Returns the time when it may send; INT64_MIN: always. */
int64_t qrnic_congestion_until(const QrnicQp *qp);
/* Accounts for a frame that it has sent. */
void qrnic_congestion_charge(QrnicEngine *e, QrnicQp *qp, size_t len);
/* Restores the highest rate. */
void qrnic_congestion_drop(QrnicEngine *e, QrnicQp *qp);
/* Sets all parameters to their reset values. */
void qrnic_congestion_init(QrnicEngine *e);
/* Drops the pending CNP, if there is one. */
void qrnic_notification_drop(QrnicEngine *e, QrnicQp *qp);
/* Drops all pending CNPs. */
void qrnic_notifications_forget(QrnicEngine *e);
bool qrnic_notifications_pending(const QrnicEngine *e);
void qrnic_notifications_process(QrnicEngine *e);
/* Ends the wait, and forgets all that was sent. */
void qrnic_pace_restart(QrnicEngine *e, QrnicQp *qp);

/*
 * context.c
 */

/* Operations that context.c calls, because they are in files that call it */
typedef struct QrnicContextUsers {
    /* An image in guest memory is wrong: to ERR. */
    void (*failed)(QrnicEngine *e, QrnicQp *qp, uint8_t event, uint8_t subtype);
    /* Runs the queue pair next, because a miss has cost it its quantum. */
    void (*ready)(QrnicEngine *e, QrnicQp *qp);
    void (*schedule)(QrnicEngine *e, QrnicQp *qp);
} QrnicContextUsers;

bool qrnic_context_timer(QrnicEngine *e, QrnicQp *qp);
/* Fetches the context at once, for a command or an error. */
void qrnic_context_now(QrnicEngine *e, QrnicQp *qp);
/* Returns true if it is scheduled when its context is there. */
bool qrnic_context_waits(QrnicQp *qp);
/* Returns OK if there is room for one more context of this type. */
QrnicResult qrnic_context_room(QrnicEngine *e, const QrnicQpOps *ops);
void qrnic_context_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_context_free(QrnicEngine *e, QrnicQp *qp);
/* Returns true if frames may go for which the last run had no time. */
bool qrnic_contexts_pending(const QrnicEngine *e);
void qrnic_contexts_process(QrnicEngine *e);
void qrnic_contexts_init(QrnicEngine *e);
void qrnic_contexts_cleanup(QrnicEngine *e);

/*
 * page_fault.c
 */

/* The hook of floor queue: the EQ of page faults was destroyed. */
void qrnic_page_faults_orphaned(QrnicEngine *e);
/* Returns true if the EQ has room for events that wait for it. */
bool qrnic_page_faults_pending(const QrnicEngine *e);
void qrnic_page_faults_process(QrnicEngine *e);
/* Ends all waits for pages. */
void qrnic_page_faults_drop(QrnicEngine *e, QrnicQp *qp);

#endif
