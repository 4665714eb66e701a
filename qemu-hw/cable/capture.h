/*
 * qrnic: captures packets in a pcapng file
 *
 * Cables, qrnic-switch and the bus capture of the device (device/capture.c) use
 * it. The file may be a pipe, or on a slow file system. So packets are queued
 * and a thread writes them; the main loop never waits for the file.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_CAPTURE_H
#define QRNIC_CABLE_CAPTURE_H

/* Thread that writes the file */
typedef struct QrnicCaptureWriter QrnicCaptureWriter;

typedef struct QrnicCapture {
    int fd;                     /* -1 without a file */
    unsigned interface;         /* interface of the next frame, from 0 */
    QrnicCaptureWriter *writer; /* from the first frame on; owns the file */
} QrnicCapture;

/* Link types of interfaces, from the registry of libpcap */
#define QRNIC_CAPTURE_ETHERNET 1
#define QRNIC_CAPTURE_USER0 147

/*
 * Packet of a capture: a header, whose size is a multiple of 4, and data that
 * follow it
 */
typedef struct QrnicCapturePacket {
    unsigned interface;
    const void *head, *data;
    size_t head_len, len;
    bool sent;                  /* else received */
    const char *comment;        /* or NULL */
} QrnicCapturePacket;

/**
 * qrnic_capture_open:
 * @capture: receives the capture
 * @path: path of the file, which is created or truncated
 * @name: name of the first interface in the file, which has Ethernet frames
 * @errp: receives the error
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_capture_open(QrnicCapture *capture, const char *path,
                        const char *name, Error **errp);
/**
 * qrnic_capture_interface:
 * @capture: the capture
 * @name: name of the interface in the file
 * @link: link type of its packets
 * @errp: receives the error
 *
 * Adds a further interface to the file, before the first packet.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_capture_interface(QrnicCapture *capture, const char *name,
                             uint16_t link, Error **errp);
/**
 * qrnic_capture_packet:
 * @capture: the capture
 * @packet: the packet; copied
 *
 * Queues a packet with the time of day in ns. If 64 MiB are queued, the packet
 * is lost. The end of the file has the number of lost packets.
 */
void qrnic_capture_packet(QrnicCapture *capture,
                          const QrnicCapturePacket *packet);
/**
 * qrnic_capture_frame:
 * @capture: the capture
 * @frame: the frame; copied
 * @len: its size in bytes
 * @sent: true for a sent frame, false for a received one
 *
 * Queues a frame of interface @capture->interface like qrnic_capture_packet().
 */
void qrnic_capture_frame(QrnicCapture *capture, const uint8_t *frame,
                         size_t len, bool sent);
/**
 * qrnic_capture_close:
 * @capture: the capture
 *
 * Waits up to two seconds until the last frames are written, and closes the
 * file.
 */
void qrnic_capture_close(QrnicCapture *capture);

#endif
