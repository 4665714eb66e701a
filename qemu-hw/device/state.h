/*
 * qrnic: the states of the device (state.c)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_STATE_H
#define QRNIC_DEVICE_STATE_H

typedef struct QrnicDevice QrnicDevice;

/* The life of the device; state.c draws it. */
typedef enum QrnicDeviceState {
    QRNIC_DEVICE_ABSENT,
    QRNIC_DEVICE_IDLE,
    QRNIC_DEVICE_ENTERED,
    QRNIC_DEVICE_RESET_PENDING,
    QRNIC_DEVICE_UNPLUGGED,
    QRNIC_DEVICE_RELEASING,
    QRNIC_DEVICE_STATES
} QrnicDeviceState;

/* Effect of a kick of the engine */
typedef enum QrnicKicks {
    QRNIC_KICKS_SCHEDULED, QRNIC_KICKS_DEFERRED, QRNIC_KICKS_NOTED,
} QrnicKicks;

typedef enum QrnicCommandState {
    QRNIC_COMMANDS_OFF, QRNIC_COMMANDS_READY, QRNIC_COMMANDS_UNFINISHED,
    QRNIC_COMMAND_STATES
} QrnicCommandState;

/* Requests that work.c handles when the device is next entered or left */
typedef enum QrnicPending {
    QRNIC_PENDING_WORK = 1 << 0,        /* the bottom half ran meanwhile */
    QRNIC_PENDING_RECEIVE = 1 << 1,     /* the wire buffers frames */
    QRNIC_PENDING_TIMER = 1 << 2,       /* the engine's timer expired */
    QRNIC_PENDING_LINK = 1 << 3,        /* the link of the wire changed */
    QRNIC_PENDING_WIRE = 1 << 4,        /* the wire accepts frames again */
    QRNIC_PENDING_LINK_TIMER = 1 << 5,  /* the timer of link/ expired */
    QRNIC_PENDING_LINK_RUN = 1 << 6,    /* link/ has work */
    QRNIC_PENDING_ALL = (1 << 7) - 1,
} QrnicPending;

/* Changes the state; asserts that the change is allowed. */
void qrnic_state_set(QrnicDevice *d, QrnicDeviceState next);
void qrnic_state_plug(QrnicDevice *d);
/* Returns false if the device is entered already, or not plugged. */
bool qrnic_state_enter(QrnicDevice *d);
/*
 * Returns the state before. RESET_PENDING: the caller resets the device. If the
 * state is ABSENT now, the caller releases the wire.
 */
QrnicDeviceState qrnic_state_leave(QrnicDevice *d);
/* Returns true if the caller resets the device now; else leaving it does. */
bool qrnic_state_reset(QrnicDevice *d);
/* Returns true if the caller releases the wire now. */
bool qrnic_state_unplug(QrnicDevice *d);
void qrnic_state_flush_begin(QrnicDevice *d);
/* Returns true if the caller releases the wire now. */
bool qrnic_state_flush_end(QrnicDevice *d);

/* From now until resume, kicks of the engine are noted. */
void qrnic_kicks_defer(QrnicDevice *d);
/* Returns true if the kick is noted, false if the caller schedules a run. */
bool qrnic_kicks_note(QrnicDevice *d);
/* Returns true if the engine has requested a run meanwhile. */
bool qrnic_kicks_resume(QrnicDevice *d);

void qrnic_command_state_set(QrnicDevice *d, QrnicCommandState next);

void qrnic_pending_add(QrnicDevice *d, QrnicPending bit);
/* Clears the bit; returns true if it was set. */
bool qrnic_pending_take(QrnicDevice *d, QrnicPending bit);

#endif
