/*
 * qrnic cable: a thread that reads the socket of a connection
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_READER_H
#define QRNIC_CABLE_READER_H

#include "qrnic_hw.h"
#include "cable/socket.h"

/*
 * Owner of a connection and its memory. Only the reader's thread receives from
 * the connection, closes it, and unmaps its memory, because a peer can delay
 * each of these calls. The main loop may send.
 *
 * The main loop calls, in this order, qrnic_reader_new(), qrnic_reader_start(),
 * qrnic_reader_take() whenever its callback runs, and qrnic_reader_end() once.
 * Then it calls qrnic_reader_done() until it returns true, or
 * qrnic_reader_abandon(). qrnic_reader_end() is also permitted for a reader
 * that was never started.
 */
typedef struct QrnicReader QrnicReader;

/**
 * qrnic_reader_new:
 * @news: runs in the main loop when qrnic_reader_take() has a result
 * @opaque: argument of @news
 *
 * Starts a thread without a connection. A connection may be accepted only after
 * this has succeeded, because only the thread may close it.
 *
 * Returns: the reader, or NULL if no thread can be started
 */
QrnicReader *qrnic_reader_new(void (*news)(void *opaque), void *opaque);
/**
 * qrnic_reader_start:
 * @r: the reader
 * @fd: the connection
 * @max_slots: largest ring whose memory is mapped
 *
 * Passes a connection to the thread.
 */
void qrnic_reader_start(QrnicReader *r, int fd, uint32_t max_slots);

/* Message of the peer, or its hang-up */
typedef struct QrnicNews {
    QrnicReceived received;
    bool woken;                 /* the peer has sent WAKE since the last call */
    /* valid with QRNIC_RECEIVED_MESSAGE; never WAKE */
    QrnicCableMessage message;
    void *memory;               /* mapped file of a MEMORY message, or NULL */
} QrnicNews;

/**
 * qrnic_reader_take:
 * @r: the reader
 * @news: receives the message, or QRNIC_RECEIVED_NOTHING
 *
 * Consumes the message, so that the thread can report the next one.
 */
void qrnic_reader_take(QrnicReader *r, QrnicNews *news);

/**
 * qrnic_reader_fd:
 * @r: the reader
 *
 * Returns: the connection, to which the main loop may send until
 * qrnic_reader_end()
 */
int qrnic_reader_fd(const QrnicReader *r);
/**
 * qrnic_reader_hung_up:
 * @r: the reader
 *
 * Returns: true if the peer has closed the connection
 */
bool qrnic_reader_hung_up(const QrnicReader *r);

/**
 * qrnic_reader_refuse_descriptors:
 * @r: the reader
 *
 * Rejects further descriptors if the kernel can (Linux 6.16), so that a peer
 * fails to send them. Called when no further MEMORY is expected.
 */
void qrnic_reader_refuse_descriptors(QrnicReader *r);

/**
 * qrnic_reader_relax:
 * @r: the reader
 *
 * Lets the thread wait for a millisecond before it reads. Called when the main
 * loop polls the connection itself and a message is most likely a WAKE.
 * Otherwise the thread would run for every WAKE.
 */
void qrnic_reader_relax(QrnicReader *r);

/**
 * qrnic_reader_own_memory:
 * @r: the reader
 * @memory: memory that this end has mapped
 * @bytes: its size
 *
 * Makes the thread unmap the memory at its end.
 */
void qrnic_reader_own_memory(QrnicReader *r, void *memory, size_t bytes);

/**
 * qrnic_reader_end:
 * @r: the reader
 *
 * Hangs up. The thread closes the connection as soon as the peer permits.
 */
void qrnic_reader_end(QrnicReader *r);
/**
 * qrnic_reader_done:
 * @r: the reader, after qrnic_reader_end()
 *
 * Returns: true, and frees the reader, if its thread has ended
 */
bool qrnic_reader_done(QrnicReader *r);
/**
 * qrnic_reader_abandon:
 * @r: the reader, after qrnic_reader_end()
 *
 * Leaves it to the thread to free the reader.
 */
void qrnic_reader_abandon(QrnicReader *r);

/**
 * qrnic_cable_memory_map:
 * @fd: a sealed file of the peer or of this end
 * @bytes: expected size
 *
 * Maps the file. A file that could still shrink is rejected, because an access
 * behind its end would kill the process.
 *
 * Returns: the memory, or NULL if the file is not usable or differs in size
 */
void *qrnic_cable_memory_map(int fd, size_t bytes);

#endif
