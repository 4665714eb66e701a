/*
 * qrnic switch: forwards frames between the cables of its ports
 *
 * main.c creates one switch and prints its counters; everything else happens in
 * callbacks of the main loop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_SWITCH_FORWARD_H
#define QRNIC_SWITCH_FORWARD_H

#define QRNIC_SWITCH_PORTS 64

typedef struct QrnicSwitchOptions {
    char **paths;               /* path of each port's cable */
    unsigned ports;
    const char *slots;          /* property of the cables; NULL: its default */
    const char *capture;        /* path of the capture, or NULL */
    int64_t age_ms;
    int64_t patience_ms;        /* maximum wait for a full port */
} QrnicSwitchOptions;

typedef struct QrnicSwitch QrnicSwitch;

/**
 * qrnic_switch_new:
 * @options: options and paths; the paths must live as long as the switch
 * @errp: receives the error
 *
 * Returns: a switch whose ports are at their meetings, or NULL with *@errp set
 */
QrnicSwitch *qrnic_switch_new(const QrnicSwitchOptions *options, Error **errp);
/**
 * qrnic_switch_print:
 * @s: the switch
 * @to: output
 *
 * Prints the counters, one line for each port.
 */
void qrnic_switch_print(const QrnicSwitch *s, FILE *to);
/**
 * qrnic_switch_free:
 * @s: the switch
 *
 * Disconnects all ports and removes their sockets.
 */
void qrnic_switch_free(QrnicSwitch *s);

#endif
