/*
 * qrnic engine: asynchronous events, the fatal state, and the work budget of
 * received frames
 *
 * Any layer and the device may report an event or a fatal error. After a fatal
 * error the engine ignores doorbells, frames and timers until it is reset. The
 * device calls qrnic_engine_take_frames() before it passes frames to the
 * engine, and stops when qrnic_engine_frames_taken() returns true.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/core/core.h"

void qrnic_event_async(QrnicEngine *e, uint8_t type, uint8_t subtype,
                       uint32_t object, uint32_t data)
{
    QrnicEqe eqe = {
        .type = type, .subtype = subtype, .object = object, .data = data,
    };

    trace_qrnic_event_async(e->config.name, qrnic_event_name(type), subtype,
                            object, data);
    e->event(e, &eqe);
}

void qrnic_fatal(QrnicEngine *e, enum qrnic_health cause, uint32_t info)
{
    if (e->fatal) {
        return;
    }
    trace_qrnic_fatal(e->config.name, qrnic_health_name(cause), info);
    e->fatal = true;
    qrnic_event_async(e, QRNIC_EVENT_DEVICE_FATAL, 0, 0, cause);
    e->env.fatal(e->env.opaque, cause, info);
}

QrnicActivity *qrnic_engine_activity(QrnicEngine *e)
{
    return &e->activity;
}

bool qrnic_is_fatal(QrnicEngine *e)
{
    return e->fatal;
}

void qrnic_engine_take_frames(QrnicEngine *e)
{
    qrnic_budget_renew(e);
}

bool qrnic_engine_frames_taken(const QrnicEngine *e)
{
    return qrnic_budget_spent(e);
}
