/*
 * qrnic engine, layer sched: its operations (QrnicFloor)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/sched/sched.h"

/* Doorbells and slots in a round */
#define DOORBELLS 64
#define QUANTA 4
/* Rounds at the end of a run for looped back frames, and slots in each */
#define LOOPBACK_ROUNDS 3
#define LOOPBACK_QUANTA 2

static void sched_init(QrnicEngine *e)
{
    e->sched = g_new0(QrnicSched, 1);
    e->sched->fifo = g_new0(QrnicDoorbellMessage, e->config.doorbell_fifo);
}

static void sched_reset(QrnicEngine *e)
{
    qrnic_doorbells_reset(e);
    memset(e->sched->slots, 0, sizeof(e->sched->slots));
    e->sched->passed = e->sched->relieved = 0;
}

static void sched_cleanup(QrnicEngine *e)
{
    g_free(e->sched->fifo);
    g_free(e->sched);
}

static bool sched_pending(QrnicEngine *e)
{
    return qrnic_doorbells_pending(e) || qrnic_scheduler_pending(e);
}

static void sched_requests(QrnicEngine *e)
{
    qrnic_doorbells_process(e, DOORBELLS);
}

static void sched_send(QrnicEngine *e)
{
    qrnic_scheduler_run(e, QUANTA);
}

/*
 * Delivers the request of a short message to this device, and its response, in
 * the same run. The amount of work is small, so that a doorbell is not delayed
 * by the work of other queue pairs.
 */
static void sched_finish(QrnicEngine *e)
{
    for (unsigned i = 0; i < LOOPBACK_ROUNDS && !e->fatal &&
         qrnic_loopback_moves(e); i++) {
        if (!qrnic_budget_spent(e)) {
            qrnic_loopback_deliver(e, QRNIC_LOOPBACK_PORTION);
        }
        qrnic_scheduler_run(e, LOOPBACK_QUANTA);
    }
}

const QrnicFloor qrnic_sched_floor = {
    .init = sched_init,
    .reset = sched_reset,
    .cleanup = sched_cleanup,
    .pending = sched_pending,
    .process[QRNIC_PHASE_REQUESTS] = sched_requests,
    .process[QRNIC_PHASE_SEND] = sched_send,
    .finish = sched_finish,
};
