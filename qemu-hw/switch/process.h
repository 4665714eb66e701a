/*
 * qrnic switch: functions of QEMU that a cable needs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_SWITCH_PROCESS_H
#define QRNIC_SWITCH_PROCESS_H

/**
 * qrnic_process_end:
 *
 * Calls the exit notifiers, so that the cables remove their sockets. Called
 * once before the program ends.
 */
void qrnic_process_end(void);

#endif
