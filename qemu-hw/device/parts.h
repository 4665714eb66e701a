/*
 * qrnic: the parts of the device: interrupts, commands, doorbell events, and
 * the port
 *
 * Each part uses the bus and the engine. work.c above them calls them in the
 * right order. The device must be entered when a function below is called,
 * unless its comment states "not entered".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_PARTS_H
#define QRNIC_DEVICE_PARTS_H

#include "device/capture.h"
#include "device/device.h"
#include "device/stop.h"

/**
 * qrnic_interrupts_init:
 * @d: the device
 * @cap_offset: offset of the MSI-X capability
 * @errp: receives the error
 *
 * Creates the MSI-X capability and its BAR. Not entered.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_interrupts_init(QrnicDevice *d, uint8_t cap_offset, Error **errp);
/**
 * qrnic_interrupts_cleanup:
 * @d: the device
 *
 * Destroys the MSI-X capability. Not entered.
 */
void qrnic_interrupts_cleanup(QrnicDevice *d);
/**
 * qrnic_notify:
 * @d: the device
 * @vector: number of the vector
 *
 * Sends the interrupt of a vector. A masked interrupt stays pending in MSI-X.
 */
void qrnic_notify(QrnicDevice *d, unsigned vector);

/* Data of a command that is being executed */
typedef struct QrnicCommandData {
    uint32_t object;
    uint8_t in[QRNIC_CMD_MAX_MAILBOX];
    uint8_t out[QRNIC_CMD_MAX_MAILBOX];
    uint32_t out_len;           /* room for the output; then its length */
    bool long_work;             /* later commands wait for the next run */
    bool short_only;            /* do not begin a long command */
} QrnicCommandData;

/* Entry of the table of commands (commands.c) */
typedef struct QrnicCommand {
    uint16_t opcode;
    uint32_t in_len, out_len;
    bool has_object;            /* the entry of the ring names an object */
    QrnicResult (*run)(QrnicEngine *e, QrnicCommandData *data);
} QrnicCommand;

/**
 * qrnic_command_find:
 * @opcode: opcode of the entry
 *
 * Returns: the command, or NULL if there is none with this opcode
 */
const QrnicCommand *qrnic_command_find(uint16_t opcode);

/**
 * qrnic_command_enable:
 * @d: the device
 * @base: bus address of the ring
 * @log_size: log2 of the number of entries
 *
 * Enables the command queue. Not entered.
 */
void qrnic_command_enable(QrnicDevice *d, uint64_t base, uint32_t log_size);
/**
 * qrnic_command_disable:
 * @d: the device
 *
 * Disables the command queue. A command in execution gets no reply. Not
 * entered.
 */
void qrnic_command_disable(QrnicDevice *d);
/**
 * qrnic_command_reset:
 * @d: the device
 *
 * Disables the command queue in a reset. Not entered.
 */
void qrnic_command_reset(QrnicDevice *d);
/**
 * qrnic_command_enabled:
 * @d: the device
 *
 * Returns: true if the command queue is enabled. Not entered.
 */
bool qrnic_command_enabled(const QrnicDevice *d);
/**
 * qrnic_command_doorbell:
 * @d: the device
 * @producer: new producer index
 *
 * Handles the doorbell of the command queue. Not entered.
 *
 * Returns: true if the caller must run commands
 */
bool qrnic_command_doorbell(QrnicDevice *d, uint32_t producer);
/**
 * qrnic_command_event:
 * @d: the device
 * @value: value written to CMD_EVENT: slot and token
 * @rule: receives the guest error
 * @done: set if the command has already ended
 *
 * Requests an event for the end of a command. If @done is set, the caller
 * enters the device and calls qrnic_command_event_send() with @value. Not
 * entered.
 *
 * Returns: NULL, or the text of the error
 */
const char *qrnic_command_event(QrnicDevice *d, uint32_t value,
                                enum qrnic_guest_error *rule, bool *done);
/**
 * qrnic_command_pending:
 * @d: the device
 *
 * Returns: true if a command may be pending. Not entered.
 */
bool qrnic_command_pending(const QrnicDevice *d);
/**
 * qrnic_command_event_send:
 * @d: the device
 * @value: value written to CMD_EVENT
 *
 * Writes the event of a command that has ended.
 */
void qrnic_command_event_send(QrnicDevice *d, uint32_t value);
/**
 * qrnic_command_run:
 * @d: the device
 * @budget: maximum number of commands
 * @short_only: execute no long command
 *
 * Executes pending commands. A long command is the last one of a run.
 *
 * Returns: true if more commands are pending
 */
bool qrnic_command_run(QrnicDevice *d, unsigned budget, bool short_only);

/**
 * qrnic_doorbell_events_init:
 * @d: the device
 * @errp: receives the error
 *
 * Creates an event (ioeventfd) for each doorbell page, if the property
 * ioeventfd is on. Not entered.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_doorbell_events_init(QrnicDevice *d, Error **errp);
/**
 * qrnic_doorbell_events_cleanup:
 * @d: the device
 *
 * Removes the events. Not entered.
 */
void qrnic_doorbell_events_cleanup(QrnicDevice *d);
/**
 * qrnic_doorbell_events_collect:
 * @d: the device
 *
 * Reads events that the main loop has not read yet. Not entered.
 *
 * Returns: true if events are pending
 */
bool qrnic_doorbell_events_collect(QrnicDevice *d);
/**
 * qrnic_doorbell_events_reset:
 * @d: the device
 *
 * Drops all events in a reset, because they are older than the reset. Not
 * entered.
 */
void qrnic_doorbell_events_reset(QrnicDevice *d);
/**
 * qrnic_doorbell_events_process:
 * @d: the device
 *
 * Passes pending events to the engine.
 */
void qrnic_doorbell_events_process(QrnicDevice *d);

/**
 * qrnic_port_init:
 * @d: the device
 *
 * Creates the timer of a busy wire, and the link state machine if the property
 * link-retransmission is on. Not entered.
 */
void qrnic_port_init(QrnicDevice *d);
/**
 * qrnic_port_stop:
 * @d: the device
 *
 * Cancels the timers at unplug. The link is used until qrnic_port_cleanup().
 * Not entered.
 */
void qrnic_port_stop(QrnicDevice *d);
/**
 * qrnic_port_cleanup:
 * @d: the device
 *
 * Frees the timer and the link state machine. Not entered.
 */
void qrnic_port_cleanup(QrnicDevice *d);
/**
 * qrnic_port_can_receive:
 * @d: the device
 *
 * Returns: true if a frame of the wire can be accepted now. Not entered.
 */
bool qrnic_port_can_receive(const QrnicDevice *d);
/**
 * qrnic_port_set_link:
 * @d: the device
 * @up: link state of the wire
 *
 * Updates the link state.
 */
void qrnic_port_set_link(QrnicDevice *d, bool up);
/**
 * qrnic_port_link_reset:
 * @d: the device
 *
 * Resets the link state machine in a reset of the device. Not entered.
 */
void qrnic_port_link_reset(QrnicDevice *d);
/**
 * qrnic_port_send:
 * @d: the device
 * @frame: the frame
 * @len: its size in bytes
 *
 * Sends a frame to the wire, through link retransmission if it is on.
 *
 * Returns: false if no further frame is accepted until the engine is notified
 */
bool qrnic_port_send(QrnicDevice *d, const uint8_t *frame, size_t len);
/**
 * qrnic_port_wire_ready:
 * @d: the device
 *
 * Reports that the wire accepts frames again.
 */
void qrnic_port_wire_ready(QrnicDevice *d);
/**
 * qrnic_port_receive:
 * @d: the device
 * @frame: the frame
 * @len: its size in bytes
 *
 * Passes a frame of the wire to the engine, through link retransmission if it
 * is on.
 */
void qrnic_port_receive(QrnicDevice *d, const uint8_t *frame, size_t len);
/**
 * qrnic_port_deliver:
 * @d: the device
 *
 * Passes buffered frames of the link to the engine until it accepts no more.
 */
void qrnic_port_deliver(QrnicDevice *d);
/**
 * qrnic_port_has_frames:
 * @d: the device
 *
 * Returns: true if the link buffers frames that the engine accepts now
 */
bool qrnic_port_has_frames(QrnicDevice *d);
/**
 * qrnic_port_idle:
 * @d: the device
 *
 * Returns: true if the link needs no run. Not entered.
 */
bool qrnic_port_idle(const QrnicDevice *d);
/**
 * qrnic_port_work:
 * @d: the device
 *
 * Runs the link: its timer and its acknowledgements.
 */
void qrnic_port_work(QrnicDevice *d);

#endif
