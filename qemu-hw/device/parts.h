/*
 * qrnic: the parts of the device: interrupts, commands, doorbell events, port
 *
 * Each part uses the bus and the engine, and knows nothing of work.c, which
 * runs them. The functions below are called while the device is entered,
 * except those that say otherwise.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_PARTS_H
#define QRNIC_DEVICE_PARTS_H

#include "device/device.h"

/* interrupts.c: MSI-X */
bool qrnic_interrupts_init(QrnicDevice *d, uint8_t cap_offset, Error **errp);
void qrnic_interrupts_cleanup(QrnicDevice *d);
void qrnic_notify(QrnicDevice *d, unsigned vector);

/* commands.c: the table of commands */
typedef struct QrnicCommandData {
    uint32_t object;
    uint8_t in[QRNIC_CMD_MAX_MAILBOX];
    uint8_t out[QRNIC_CMD_MAX_MAILBOX];
    uint32_t out_len;           /* room; then the length written */
    bool long_work;             /* the commands behind it wait for a run */
    bool short_only;            /* no long work now */
} QrnicCommandData;

typedef struct QrnicCommand {
    uint16_t opcode;
    uint32_t in_len, out_len;
    bool has_object;            /* the entry names an object */
    QrnicResult (*run)(QrnicEngine *e, QrnicCommandData *data);
} QrnicCommand;

/* Returns NULL if there is no such command. */
const QrnicCommand *qrnic_command_find(uint16_t opcode);

/* command_queue.c: the ring, mailboxes, completion. Not entered: */
void qrnic_command_enable(QrnicDevice *d, uint64_t base, uint32_t log_size);
void qrnic_command_disable(QrnicDevice *d);
void qrnic_command_reset(QrnicDevice *d);
bool qrnic_command_enabled(const QrnicDevice *d);
/* Moves the producer index. True: commands are pending, run them. */
bool qrnic_command_doorbell(QrnicDevice *d, uint32_t producer);
/*
 * Handles a write to CMD_EVENT. Returns NULL, or the reason of an error, whose
 * guest error is in *rule. *done: the command has ended; the caller enters the
 * device and calls qrnic_command_event_send() with the same value.
 */
const char *qrnic_command_event(QrnicDevice *d, uint32_t value,
                                enum qrnic_guest_error *rule, bool *done);
/* Returns true if a command may be pending. */
bool qrnic_command_pending(const QrnicDevice *d);
/* Entered: */
void qrnic_command_event_send(QrnicDevice *d, uint32_t value);
/* Executes pending commands, up to a long one. True: more are pending. */
bool qrnic_command_run(QrnicDevice *d, unsigned budget, bool short_only);

/* doorbell_events.c: doorbells that come as events (ioeventfd). Not entered: */
bool qrnic_doorbell_events_init(QrnicDevice *d, Error **errp);
void qrnic_doorbell_events_cleanup(QrnicDevice *d);
/*
 * Reads the events that the main loop has not read yet. Returns true if events
 * are pending.
 */
bool qrnic_doorbell_events_collect(QrnicDevice *d);
/* Drops all events, because they are older than the reset. */
void qrnic_doorbell_events_reset(QrnicDevice *d);
/* Entered: executes pending events. */
void qrnic_doorbell_events_process(QrnicDevice *d);

/*
 * port.c: between the engine and d->wire, with or without retransmission by
 * the link. Not entered: init, can_receive, stop, cleanup.
 */
void qrnic_port_init(QrnicDevice *d);
/* Cancels the timer; the port is used until its cleanup. */
void qrnic_port_stop(QrnicDevice *d);
void qrnic_port_cleanup(QrnicDevice *d);
bool qrnic_port_can_receive(const QrnicDevice *d);
void qrnic_port_set_link(QrnicDevice *d, bool up);
void qrnic_port_link_reset(QrnicDevice *d);
/* Sends a frame, as the operation send of QrnicEnv. */
bool qrnic_port_send(QrnicDevice *d, const uint8_t *frame, size_t len);
void qrnic_port_wire_ready(QrnicDevice *d);
void qrnic_port_receive(QrnicDevice *d, const uint8_t *frame, size_t len);
/* Gives buffered frames to the engine until it takes no more. */
void qrnic_port_deliver(QrnicDevice *d);
/* Returns true if frames are buffered that the engine can take now. */
bool qrnic_port_has_frames(QrnicDevice *d);
/* Returns true if the link needs no run. */
bool qrnic_port_idle(const QrnicDevice *d);
/* Runs the link: its timer, its acknowledgements. */
void qrnic_port_work(QrnicDevice *d);

#endif
