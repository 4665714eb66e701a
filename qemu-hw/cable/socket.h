/*
 * qrnic cable: the socket, by which two ends find each other
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_SOCKET_H
#define QRNIC_CABLE_SOCKET_H

#include "qrnic_hw.h"

/*
 * Where two ends meet that were given the same path. The first one listens; it
 * holds a lock on a file beside the socket, which ends with the process, so
 * that a socket that was left behind is known to be one.
 */
typedef struct QrnicMeeting {
    char *path;
    int lock, listener;         /* -1: another end listens */
    bool bound;                 /* the socket at the path is ours */
} QrnicMeeting;

typedef enum QrnicMeet {
    QRNIC_MEET_LISTENING,
    QRNIC_MEET_CONNECTED,       /* *fd is the connection */
    QRNIC_MEET_LATER,           /* the other end is just coming or going */
    QRNIC_MEET_FAILED,          /* *errp */
} QrnicMeet;

/*
 * Runs a function in a detached thread. Returns false if no thread can be
 * started.
 */
bool qrnic_cable_thread(void *(*run)(void *opaque), void *opaque);
/*
 * Closes a socket in a thread, because unread messages of a peer can delay
 * this. If no thread can be started, the socket stays open.
 */
void qrnic_cable_close_elsewhere(int fd);

void qrnic_meeting_init(QrnicMeeting *m, const char *path);
bool qrnic_meeting_path_check(const char *path, Error **errp);
QrnicMeet qrnic_meeting_go(QrnicMeeting *m, int *fd, Error **errp);
/* A connection, or -1 when there is none after all */
int qrnic_meeting_accept(QrnicMeeting *m);
/* Removes the socket if it is ours. */
void qrnic_meeting_leave(QrnicMeeting *m);

/* Not one of these waits. descriptor: -1, or goes with the message. */
bool qrnic_cable_message_send(int fd, const QrnicCableMessage *message,
                              int descriptor);
/* False: the connection is broken. A wake-up that finds no room is not lost. */
bool qrnic_cable_wake_send(int fd);

typedef enum QrnicReceived {
    QRNIC_RECEIVED_NOTHING,
    QRNIC_RECEIVED_MESSAGE,
    QRNIC_RECEIVED_END,         /* the other end is gone */
    QRNIC_RECEIVED_WRONG,       /* this is no message */
} QrnicReceived;

/*
 * Receives one message. A peer can delay this call, and the close of the
 * descriptor, as long as it likes. So only detached threads may call it.
 *
 * @descriptor: -1, or the descriptor that came with the message
 */
QrnicReceived qrnic_cable_message_receive(int fd, QrnicCableMessage *message,
                                          int *descriptor);

/* The fd is a connected socket of the right type. */
bool qrnic_cable_socket_check(int fd, Error **errp);

#endif
