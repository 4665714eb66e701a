/*
 * qrnic: the states of the device (state.c)
 *
 * state.c describes each state, and work.c is the main caller.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_STATE_H
#define QRNIC_DEVICE_STATE_H

typedef struct QrnicDevice QrnicDevice;

/* Life of the device; see state.c */
typedef enum QrnicDeviceState {
    QRNIC_DEVICE_ABSENT,
    QRNIC_DEVICE_IDLE,
    QRNIC_DEVICE_ENTERED,
    QRNIC_DEVICE_RESET_PENDING,
    QRNIC_DEVICE_UNPLUGGED,
    QRNIC_DEVICE_RELEASING,
    QRNIC_DEVICE_STATES
} QrnicDeviceState;

/* Effect of a kick of the engine; see state.c */
typedef enum QrnicKicks {
    QRNIC_KICKS_SCHEDULED, QRNIC_KICKS_DEFERRED, QRNIC_KICKS_NOTED,
} QrnicKicks;

/* State of the command queue; see state.c */
typedef enum QrnicCommandState {
    QRNIC_COMMANDS_OFF, QRNIC_COMMANDS_READY, QRNIC_COMMANDS_UNFINISHED,
    QRNIC_COMMAND_STATES
} QrnicCommandState;

/* Requests that work.c handles when the device is next entered or left */
typedef enum QrnicPending {
    /* the bottom half found the device entered */
    QRNIC_PENDING_WORK = 1 << 0,
    QRNIC_PENDING_RECEIVE = 1 << 1,     /* the wire buffers frames */
    QRNIC_PENDING_TIMER = 1 << 2,       /* the timer of the engine expired */
    QRNIC_PENDING_LINK = 1 << 3,        /* the link state of the wire changed */
    QRNIC_PENDING_WIRE = 1 << 4,        /* the wire accepts frames again */
    QRNIC_PENDING_LINK_TIMER = 1 << 5,  /* the timer of the link expired */
    QRNIC_PENDING_LINK_RUN = 1 << 6,    /* the link has work */
    QRNIC_PENDING_WIRE_TIMER = 1 << 7,  /* the timer of a busy wire expired */
    QRNIC_PENDING_ALL = (1 << 8) - 1,
} QrnicPending;

/**
 * qrnic_state_set:
 * @d: the device
 * @next: the new state
 *
 * Changes the state. Asserts that the change is allowed.
 */
void qrnic_state_set(QrnicDevice *d, QrnicDeviceState next);
/**
 * qrnic_state_plug:
 * @d: the device
 *
 * Begins the life of a device that is realized.
 */
void qrnic_state_plug(QrnicDevice *d);
/**
 * qrnic_state_enter:
 * @d: the device
 *
 * Returns: true, or false if the device is already entered or not plugged
 */
bool qrnic_state_enter(QrnicDevice *d);
/**
 * qrnic_state_leave:
 * @d: the device
 *
 * Leaves the device. If the new state is ABSENT, the caller releases the wire.
 *
 * Returns: the previous state; after RESET_PENDING the caller resets the device
 */
QrnicDeviceState qrnic_state_leave(QrnicDevice *d);
/**
 * qrnic_state_reset:
 * @d: the device
 *
 * Returns: true if the caller resets the device now, or false if the reset is
 * pending until the device is left
 */
bool qrnic_state_reset(QrnicDevice *d);
/**
 * qrnic_state_unplug:
 * @d: the device
 *
 * Returns: true if the caller releases the wire now
 */
bool qrnic_state_unplug(QrnicDevice *d);
/**
 * qrnic_state_flush_begin:
 * @d: the device
 *
 * Counts a delivery of frames that the wire buffers. work.c calls this function
 * before the delivery, so that an unplug inside does not release the wire.
 */
void qrnic_state_flush_begin(QrnicDevice *d);
/**
 * qrnic_state_flush_end:
 * @d: the device
 *
 * Ends a delivery. work.c calls this function after each delivery.
 *
 * Returns: true if the caller releases the wire now
 */
bool qrnic_state_flush_end(QrnicDevice *d);

/**
 * qrnic_kicks_defer:
 * @d: the device
 *
 * Records kicks of the engine until qrnic_kicks_resume(), because the caller
 * runs the engine anyway.
 */
void qrnic_kicks_defer(QrnicDevice *d);
/**
 * qrnic_kicks_note:
 * @d: the device
 *
 * Returns: true if the kick is recorded, or false if the caller schedules a run
 */
bool qrnic_kicks_note(QrnicDevice *d);
/**
 * qrnic_kicks_resume:
 * @d: the device
 *
 * Returns: true if the engine was kicked since qrnic_kicks_defer()
 */
bool qrnic_kicks_resume(QrnicDevice *d);

/**
 * qrnic_command_state_set:
 * @d: the device
 * @next: the new state of the command queue
 *
 * Changes the state. Asserts that the change is allowed.
 */
void qrnic_command_state_set(QrnicDevice *d, QrnicCommandState next);

/**
 * qrnic_pending_add:
 * @d: the device
 * @bit: the request
 *
 * Records a request.
 */
void qrnic_pending_add(QrnicDevice *d, QrnicPending bit);
/**
 * qrnic_pending_take:
 * @d: the device
 * @bit: the request
 *
 * Clears a request.
 *
 * Returns: true if it was recorded
 */
bool qrnic_pending_take(QrnicDevice *d, QrnicPending bit);

#endif
