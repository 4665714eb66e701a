/*
 * qrnic cable: the sockets by which two ends find each other and exchange
 * messages
 *
 * cable.c calls these functions in the main loop, except for
 * qrnic_cable_message_receive(). None of those calls can be delayed by a peer.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_SOCKET_H
#define QRNIC_CABLE_SOCKET_H

#include "qrnic_hw.h"

/*
 * Meeting of two ends that have the same path. The first end listens, and locks
 * a file beside the socket. The lock ends with the process, so a socket without
 * a locked file was left behind by an earlier process.
 */
typedef struct QrnicMeeting {
    char *path;
    int type;                   /* of the socket: SOCK_SEQPACKET, SOCK_STREAM */
    int lock, listener;         /* -1: another end listens */
    /* this end has created the socket at the path */
    bool bound;
} QrnicMeeting;

typedef enum QrnicMeet {
    QRNIC_MEET_LISTENING,
    QRNIC_MEET_CONNECTED,       /* *fd is the connection */
    QRNIC_MEET_LATER,           /* the peer is starting or ending: try again */
    QRNIC_MEET_FAILED,          /* *errp has the reason */
} QrnicMeet;

/**
 * qrnic_cable_thread:
 * @run: the function
 * @opaque: its argument
 *
 * Runs a function in a detached thread.
 *
 * Returns: true, or false if no thread can be started
 */
bool qrnic_cable_thread(void *(*run)(void *opaque), void *opaque);
/**
 * qrnic_cable_close_elsewhere:
 * @fd: a socket
 *
 * Closes a socket in a thread, because unread messages of the peer can delay
 * the close. If no thread can be started, the socket stays open.
 */
void qrnic_cable_close_elsewhere(int fd);

/**
 * qrnic_meeting_init:
 * @m: the meeting to initialize
 * @path: path of the socket; copied
 *
 * The socket has the type SOCK_SEQPACKET if the caller does not change it.
 */
void qrnic_meeting_init(QrnicMeeting *m, const char *path);
/**
 * qrnic_meeting_path_check:
 * @path: path of a socket
 * @errp: receives the error
 *
 * Returns: true, or false with *@errp set if the path is too long
 */
bool qrnic_meeting_path_check(const char *path, Error **errp);
/**
 * qrnic_meeting_go:
 * @m: the meeting
 * @fd: receives the connection
 * @errp: receives the error
 *
 * Listens at the path, or connects to the end that listens.
 *
 * Returns: any value of QrnicMeet
 */
QrnicMeet qrnic_meeting_go(QrnicMeeting *m, int *fd, Error **errp);
/**
 * qrnic_meeting_accept:
 * @m: the meeting
 *
 * Returns: a connection, or -1 with errno set if there is none
 */
int qrnic_meeting_accept(QrnicMeeting *m);
/**
 * qrnic_meeting_leave:
 * @m: the meeting
 *
 * Stops listening. Removes the socket if this end has created it.
 */
void qrnic_meeting_leave(QrnicMeeting *m);

/**
 * qrnic_cable_message_send:
 * @fd: the connection
 * @message: the message
 * @descriptor: a descriptor to send with the message, or -1
 *
 * Sends a message, and never waits.
 *
 * Returns: true, or false if the message was not sent
 */
bool qrnic_cable_message_send(int fd, const QrnicCableMessage *message,
                              int descriptor);
/**
 * qrnic_cable_wake_send:
 * @fd: the connection
 *
 * Sends WAKE. If the socket is full, no WAKE is needed, because the peer has
 * unread messages.
 *
 * Returns: true, or false if the connection is broken
 */
bool qrnic_cable_wake_send(int fd);

typedef enum QrnicReceived {
    QRNIC_RECEIVED_NOTHING,
    QRNIC_RECEIVED_MESSAGE,
    QRNIC_RECEIVED_END,         /* the peer has hung up */
    QRNIC_RECEIVED_WRONG,       /* invalid message */
} QrnicReceived;

/**
 * qrnic_cable_message_receive:
 * @fd: the connection
 * @message: receives the message
 * @descriptor: receives the descriptor that came with the message, or -1
 *
 * Receives one message. A peer can delay this call, and the close of the
 * descriptor, as long as it likes. So only detached threads may call it.
 *
 * Returns: any value of QrnicReceived
 */
QrnicReceived qrnic_cable_message_receive(int fd, QrnicCableMessage *message,
                                          int *descriptor);

/**
 * qrnic_cable_socket_check:
 * @fd: a descriptor
 * @errp: receives the error
 *
 * Returns: true, or false with *@errp set if it is not a socket of AF_UNIX and
 * SOCK_SEQPACKET
 */
bool qrnic_cable_socket_check(int fd, Error **errp);

#endif
