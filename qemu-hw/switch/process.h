/*
 * qrnic switch: what a cable asks of the process that it is in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_SWITCH_PROCESS_H
#define QRNIC_SWITCH_PROCESS_H

/* Whoever wanted to hear of the end does now. */
void qrnic_process_end(void);

#endif
