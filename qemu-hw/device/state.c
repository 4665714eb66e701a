/*
 * qrnic: the states of the device
 *
 * Each change of a state is one call of this file, which asserts that the
 * change is allowed and traces it. The life of the device is changed by work.c
 * and pci.c, the kicks by work.c and engine_env.c, and the command queue by
 * command_queue.c. All pairs of states are tried by tests/unit/test-states.c.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "device/device.h"

/*
 * Life of the device (QrnicDeviceState). Each arrow is a function of this file.
 *
 *   ABSENT ---plug--> IDLE ---enter--> ENTERED ---leave--> IDLE
 *                                      ENTERED ---reset--> RESET_PENDING
 *                                RESET_PENDING ---leave--> IDLE
 *   IDLE ---unplug--> ABSENT, or RELEASING in a flush ---flush ends--> ABSENT
 *   ENTERED, RESET_PENDING ---unplug--> UNPLUGGED
 *   UNPLUGGED ---leave--> ABSENT, or RELEASING in a flush
 *
 * ABSENT         Begins with the object, and when the wire is released. Holds:
 *                no bottom half, no wire in use; qrnic_enter() fails. Left by
 *                plug.
 * IDLE           Begins with plug, and when the device is left. Holds: frames
 *                and interrupts are sent, and DMA is allowed; no caller uses
 *                the engine. Left by enter and by unplug.
 * ENTERED        Begins with enter. Only one caller at a time can enter.
 *                Holds: the caller alone uses the engine and the command
 *                queue; other requests are pending bits. Left by leave, and by
 *                a reset or an unplug caused by a DMA, frame or MSI-X of this
 *                run.
 * RESET_PENDING  Begins with a reset of an entered device. Holds: as ENTERED,
 *                but DMA fails, and frames and interrupts are dropped. Left by
 *                leave, whose caller then resets the device, and by unplug.
 * UNPLUGGED      Begins when an entered device is unplugged. Holds: no bottom
 *                half; as RESET_PENDING for the caller. Left by leave.
 * RELEASING      Begins when a device is unplugged or left while its wire
 *                delivers buffered frames (flushes > 0). Holds: only the flush
 *                uses the wire. Left when the flush ends.
 *
 * Kicks of the engine (QrnicKicks). A kick is a request for a run.
 *
 * SCHEDULED      A kick schedules the bottom half. Left by defer.
 * DEFERRED       The caller runs the engine soon anyway, so that a kick is only
 *                recorded. Left by a kick, and by resume.
 * NOTED          The engine has requested a run. Left by resume.
 *
 * State of the command queue (QrnicCommandState).
 *
 * OFF            Begins with a reset, and when software disables the queue.
 *                Holds: no command is fetched. Left by enable.
 * READY          Begins when software enables the queue, and when a command is
 *                completed. Holds: no reply is pending. Left by disable, reset,
 *                and a command whose work the engine has not finished.
 * UNFINISHED     Begins with such a command. Holds: the members reply_* belong
 *                to this command, and no other command is fetched. Left when
 *                the engine has finished the work, by disable and by reset.
 */

#define BIT_OF(state) (1u << (state))

static const char *const state_names[] = {
    [QRNIC_DEVICE_ABSENT] = "absent",
    [QRNIC_DEVICE_IDLE] = "idle",
    [QRNIC_DEVICE_ENTERED] = "entered",
    [QRNIC_DEVICE_RESET_PENDING] = "reset pending",
    [QRNIC_DEVICE_UNPLUGGED] = "unplugged",
    [QRNIC_DEVICE_RELEASING] = "releasing",
};

/* Permitted next states of each state */
static const uint8_t state_next[] = {
    [QRNIC_DEVICE_ABSENT] = BIT_OF(QRNIC_DEVICE_IDLE),
    [QRNIC_DEVICE_IDLE] = BIT_OF(QRNIC_DEVICE_ENTERED) |
                          BIT_OF(QRNIC_DEVICE_RELEASING) |
                          BIT_OF(QRNIC_DEVICE_ABSENT),
    [QRNIC_DEVICE_ENTERED] = BIT_OF(QRNIC_DEVICE_IDLE) |
                             BIT_OF(QRNIC_DEVICE_RESET_PENDING) |
                             BIT_OF(QRNIC_DEVICE_UNPLUGGED),
    [QRNIC_DEVICE_RESET_PENDING] = BIT_OF(QRNIC_DEVICE_IDLE) |
                                   BIT_OF(QRNIC_DEVICE_UNPLUGGED),
    [QRNIC_DEVICE_UNPLUGGED] = BIT_OF(QRNIC_DEVICE_RELEASING) |
                               BIT_OF(QRNIC_DEVICE_ABSENT),
    [QRNIC_DEVICE_RELEASING] = BIT_OF(QRNIC_DEVICE_ABSENT),
};

void qrnic_state_set(QrnicDevice *d, QrnicDeviceState next)
{
    assert(next < QRNIC_DEVICE_STATES && d->state < QRNIC_DEVICE_STATES);
    assert(state_next[d->state] & BIT_OF(next));
    assert(next != QRNIC_DEVICE_RELEASING || d->flushes);
    assert(next != QRNIC_DEVICE_ABSENT || !d->flushes);
    trace_qrnic_state(d->name, state_names[d->state], state_names[next]);
    d->state = next;
}

void qrnic_state_plug(QrnicDevice *d)
{
    assert(d->state == QRNIC_DEVICE_ABSENT);
    qrnic_state_set(d, QRNIC_DEVICE_IDLE);
}

bool qrnic_state_enter(QrnicDevice *d)
{
    if (d->state != QRNIC_DEVICE_IDLE) {
        return false;
    }
    qrnic_state_set(d, QRNIC_DEVICE_ENTERED);
    return true;
}

static QrnicDeviceState state_released(const QrnicDevice *d)
{
    return d->flushes ? QRNIC_DEVICE_RELEASING : QRNIC_DEVICE_ABSENT;
}

QrnicDeviceState qrnic_state_leave(QrnicDevice *d)
{
    QrnicDeviceState before = d->state;

    assert(qrnic_is_entered(d));
    qrnic_state_set(d, before == QRNIC_DEVICE_UNPLUGGED ? state_released(d) :
                                                          QRNIC_DEVICE_IDLE);
    return before;
}

bool qrnic_state_reset(QrnicDevice *d)
{
    if (d->state == QRNIC_DEVICE_ENTERED) {
        qrnic_state_set(d, QRNIC_DEVICE_RESET_PENDING);
    }
    return !qrnic_is_entered(d);
}

bool qrnic_state_unplug(QrnicDevice *d)
{
    qrnic_state_set(d, qrnic_is_entered(d) ? QRNIC_DEVICE_UNPLUGGED :
                                             state_released(d));
    return d->state == QRNIC_DEVICE_ABSENT;
}

void qrnic_state_flush_begin(QrnicDevice *d)
{
    assert(d->state == QRNIC_DEVICE_IDLE);
    d->flushes++;
}

bool qrnic_state_flush_end(QrnicDevice *d)
{
    assert(d->flushes);
    if (--d->flushes || d->state != QRNIC_DEVICE_RELEASING) {
        return false;
    }
    qrnic_state_set(d, QRNIC_DEVICE_ABSENT);
    return true;
}

void qrnic_kicks_defer(QrnicDevice *d)
{
    assert(d->kicks == QRNIC_KICKS_SCHEDULED && qrnic_is_entered(d));
    d->kicks = QRNIC_KICKS_DEFERRED;
}

bool qrnic_kicks_note(QrnicDevice *d)
{
    if (d->kicks == QRNIC_KICKS_SCHEDULED) {
        return false;
    }
    d->kicks = QRNIC_KICKS_NOTED;
    return true;
}

bool qrnic_kicks_resume(QrnicDevice *d)
{
    bool noted = d->kicks == QRNIC_KICKS_NOTED;

    assert(d->kicks != QRNIC_KICKS_SCHEDULED);
    d->kicks = QRNIC_KICKS_SCHEDULED;
    trace_qrnic_kicks(d->name, noted);
    return noted;
}

static const char *const command_state_names[] = {
    [QRNIC_COMMANDS_OFF] = "off",
    [QRNIC_COMMANDS_READY] = "ready",
    [QRNIC_COMMANDS_UNFINISHED] = "unfinished",
};

void qrnic_command_state_set(QrnicDevice *d, QrnicCommandState next)
{
    assert(next < QRNIC_COMMAND_STATES && next != d->cmd.state);
    /* Only an enabled queue can have an unfinished command. */
    assert(next != QRNIC_COMMANDS_UNFINISHED ||
           d->cmd.state == QRNIC_COMMANDS_READY);
    trace_qrnic_command_state(d->name, command_state_names[d->cmd.state],
                              command_state_names[next]);
    d->cmd.state = next;
}

static const char *pending_name(QrnicPending bit)
{
    static const char *const names[] = {
        "work", "receive", "timer", "link change", "wire ready", "link timer",
        "link run", "wire timer",
    };

    return names[ctz32(bit)];
}

void qrnic_pending_add(QrnicDevice *d, QrnicPending bit)
{
    assert(is_power_of_2(bit) && !(bit & ~QRNIC_PENDING_ALL));
    if (!(d->pending & bit)) {
        trace_qrnic_pending(d->name, pending_name(bit), d->pending);
        d->pending |= bit;
    }
}

bool qrnic_pending_take(QrnicDevice *d, QrnicPending bit)
{
    bool was = d->pending & bit;

    assert(is_power_of_2(bit) && !(bit & ~QRNIC_PENDING_ALL));
    d->pending &= ~bit;
    return was;
}
