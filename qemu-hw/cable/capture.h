/*
 * qrnic cable: a file of the frames that pass an end, as pcapng
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_CAPTURE_H
#define QRNIC_CABLE_CAPTURE_H

typedef struct QrnicCapture {
    int fd;                     /* -1: there is none */
    unsigned interface;         /* of the frames that come next, from 0 */
} QrnicCapture;

/* Makes the file, or empties it. name: of the interface, in the file */
bool qrnic_capture_open(QrnicCapture *capture, const char *path,
                        const char *name, Error **errp);
/* One more interface in the same file; the first is there from the start. */
bool qrnic_capture_interface(QrnicCapture *capture, const char *name,
                             Error **errp);
/* One frame, with the time of day; a file that cannot be written is closed. */
void qrnic_capture_frame(QrnicCapture *capture, const uint8_t *frame,
                         size_t len, bool sent);
void qrnic_capture_close(QrnicCapture *capture);

#endif
