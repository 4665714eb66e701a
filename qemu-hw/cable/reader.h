/*
 * qrnic cable: a thread that reads the socket of one connection
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_READER_H
#define QRNIC_CABLE_READER_H

#include "qrnic_hw.h"
#include "cable/socket.h"

/*
 * Owns one connection and its memory. Only the reader's thread receives from
 * the connection, closes it, and unmaps its memory, because a peer can make
 * each of these calls last as long as it likes. The main loop may send.
 *
 * The main loop calls, in this order: qrnic_reader_new(), qrnic_reader_start(),
 * qrnic_reader_take() whenever its callback runs, qrnic_reader_end() once, then
 * qrnic_reader_done() until it returns true or qrnic_reader_abandon().
 * qrnic_reader_end() is also allowed for a reader that was never started.
 */
typedef struct QrnicReader QrnicReader;

/*
 * Starts a thread without a connection. A connection may be accepted only
 * after this has succeeded, because only the thread may close it.
 *
 * @news: runs in the main loop when qrnic_reader_take() has a result
 *
 * Returns NULL if no thread can be started.
 */
QrnicReader *qrnic_reader_new(void (*news)(void *opaque), void *opaque);
/*
 * Hands over a connection.
 *
 * @max_slots: largest ring of which the memory is mapped
 */
void qrnic_reader_start(QrnicReader *r, int fd, uint32_t max_slots);

/* A message of the peer, or its hang-up */
typedef struct QrnicNews {
    QrnicReceived received;
    bool woken;                 /* the peer has sent WAKE since the last call */
    QrnicCableMessage message;  /* with QRNIC_RECEIVED_MESSAGE; never WAKE */
    void *memory;               /* MEMORY: the mapped file, or NULL */
} QrnicNews;

void qrnic_reader_take(QrnicReader *r, QrnicNews *news);

/* The connection, to send to it until qrnic_reader_end() */
int qrnic_reader_fd(const QrnicReader *r);
/* Returns true if the peer has closed the connection. */
bool qrnic_reader_hung_up(const QrnicReader *r);

/*
 * Rejects further descriptors, where the kernel can do so (Linux 6.16): a peer
 * then fails to send them. Called when no MEMORY is expected any more.
 */
void qrnic_reader_refuse_descriptors(QrnicReader *r);

/*
 * Lets the thread wait for a millisecond before it reads. Called when the main
 * loop watches the connection itself and a message is most likely a WAKE.
 * Otherwise the thread would run for every WAKE.
 */
void qrnic_reader_relax(QrnicReader *r);

/* Makes the reader unmap the bytes at its end. */
void qrnic_reader_own_memory(QrnicReader *r, void *memory, size_t bytes);

/* Hangs up. The thread closes the connection whenever that is possible. */
void qrnic_reader_end(QrnicReader *r);
/*
 * Returns true, and frees the reader, if its thread has ended. Called after
 * qrnic_reader_end().
 */
bool qrnic_reader_done(QrnicReader *r);
/*
 * Leaves it to the thread to free the reader. Called after qrnic_reader_end().
 */
void qrnic_reader_abandon(QrnicReader *r);

/*
 * Maps a sealed file of a peer, or one of this end.
 *
 * Returns NULL if its maker could still shrink the file, or if the size
 * differs.
 */
void *qrnic_cable_memory_map(int fd, size_t bytes);

#endif
