/*
 * qrnic cable: a file of the frames that pass an end, as pcapng
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_CAPTURE_H
#define QRNIC_CABLE_CAPTURE_H

/*
 * The file may be a pipe, or on a slow file system. So frames are queued, and
 * a thread writes them; the main loop never waits for the file.
 */
typedef struct QrnicCaptureWriter QrnicCaptureWriter;

typedef struct QrnicCapture {
    int fd;                     /* -1: there is none */
    unsigned interface;         /* of the frames that come next, from 0 */
    QrnicCaptureWriter *writer; /* from the first frame on; owns the file */
} QrnicCapture;

/* Makes the file, or empties it. name: of the interface, in the file */
bool qrnic_capture_open(QrnicCapture *capture, const char *path,
                        const char *name, Error **errp);
/* One more interface in the same file; the first is there from the start. */
bool qrnic_capture_interface(QrnicCapture *capture, const char *name,
                             Error **errp);
/*
 * Queues one frame, with the time of day. If 64 MiB are queued, the frame is
 * lost; the end of the file has the number of lost frames.
 */
void qrnic_capture_frame(QrnicCapture *capture, const uint8_t *frame,
                         size_t len, bool sent);
/* Waits for the last frames to be written, for two seconds at most. */
void qrnic_capture_close(QrnicCapture *capture);

#endif
