/*
 * qrnic switch: frames from the cable of one port to those of others
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_SWITCH_FORWARD_H
#define QRNIC_SWITCH_FORWARD_H

#define QRNIC_SWITCH_PORTS 64

typedef struct QrnicSwitchOptions {
    char **paths;               /* of the cables, one for each port */
    unsigned ports;
    const char *slots;          /* the cables' property; NULL: its default */
    const char *capture;        /* NULL: none */
    int64_t age_ms;
    int64_t patience_ms;        /* so long others wait for a full port */
} QrnicSwitchOptions;

typedef struct QrnicSwitch QrnicSwitch;

QrnicSwitch *qrnic_switch_new(const QrnicSwitchOptions *options, Error **errp);
/* One line for each port */
void qrnic_switch_print(const QrnicSwitch *s, FILE *to);
/* Nothing is left at the paths. */
void qrnic_switch_free(QrnicSwitch *s);

#endif
