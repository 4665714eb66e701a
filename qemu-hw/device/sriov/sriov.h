/*
 * qrnic: virtual functions (SR-IOV): the functions of an adapter, and the
 * embedded switch between them
 *
 * With the property vfs, pf.c calls the functions below. The physical function
 * owns the switch (qemu-hw/eswitch/), whose uplink is the network backend.
 * Port 1 is the physical function, and port 2 + i is the virtual function i.
 * QrnicSriov exists as long as one of the functions. Manual, chapter "Virtual
 * functions".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_SRIOV_H
#define QRNIC_DEVICE_SRIOV_H

#include "device/faces.h"
#include "eswitch/eswitch.h"

/* Type of a virtual function (vf.c) */
#define TYPE_QRNIC_VF "qrnic-vf"

/* Offset of the ARI capability in the configuration space of each function */
#define QRNIC_PCI_ARI_OFFSET 0x160

typedef struct QrnicSriov {
    QrnicPf *pf;
    unsigned references;        /* functions that exist */
    QrnicEswitch *eswitch;
    char *name;
    /* Functions by port; NULL before plug and after unplug */
    QrnicDevice *function[QRNIC_ESWITCH_PORTS_MAX];

    QEMUBH *bh;                 /* runs the switch; NULL after unplug */
    QEMUTimer *timer;           /* rate limits of the switch */
    bool running;               /* the bottom half runs */
    bool again;                 /* another run was requested meanwhile */
    bool timer_due;

    bool backend_full;          /* the backend accepts no frame now */
    bool backend_stopped;       /* the switch accepts no frame of the backend */
    /* the backend may deliver the frames that it buffers */
    bool backend_flush;
} QrnicSriov;

/* sriov.c: called by pf.c and vf.c */

/**
 * qrnic_sriov_start:
 * @pf: the physical function, plugged
 *
 * Creates the switch, connects the backend to it, and sets the wire of the
 * physical function.
 */
void qrnic_sriov_start(QrnicPf *pf);
/**
 * qrnic_sriov_create_vfs:
 * @pf: the physical function, started
 * @errp: receives the error
 *
 * Creates the SR-IOV capability and all virtual functions, which are disabled.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_sriov_create_vfs(QrnicPf *pf, Error **errp);
/**
 * qrnic_sriov_config_vf:
 * @s: the functions
 * @number: number of the virtual function
 * @c: receives the configuration
 *
 * Divides the resources of the physical function. The member name is NULL.
 */
void qrnic_sriov_config_vf(const QrnicSriov *s, unsigned number,
                           QrnicConfig *c);
/**
 * qrnic_sriov_window:
 * @pf: the physical function, started
 * @prefetchable: true: BARs 2 and 4, false: BARs 0 and 1
 *
 * Returns: the address space of the BARs of all virtual functions, in bytes
 */
uint64_t qrnic_sriov_window(const QrnicPf *pf, bool prefetchable);
/* admin.c: called by the physical function, for virtual functions */

/**
 * qrnic_sriov_mac_derive:
 * @s: the functions
 * @number: number of the virtual function
 * @mac: receives the default address
 *
 * Derives the address of a virtual function from the address of the physical
 * function: locally administered, and different for each virtual function.
 */
void qrnic_sriov_mac_derive(const QrnicSriov *s, unsigned number, uint8_t *mac);
/**
 * qrnic_sriov_vf_set:
 * @d: the physical function
 * @number: number of the virtual function
 * @in: the input
 *
 * Executes SET_VF.
 *
 * Returns: the result of the command
 */
QrnicResult qrnic_sriov_vf_set(QrnicDevice *d, uint32_t number,
                               const QrnicVfCtx *in);
/**
 * qrnic_sriov_vf_query:
 * @d: the physical function
 * @number: number of the virtual function
 * @out: receives the output
 *
 * Executes QUERY_VF.
 *
 * Returns: the result of the command
 */
QrnicResult qrnic_sriov_vf_query(QrnicDevice *d, uint32_t number,
                                 QrnicVfAttr *out);

/* wire.c: the wire of a function, a port of the switch */

/**
 * qrnic_sriov_attach:
 * @s: the functions
 * @d: a function, plugged
 * @port: its port of the switch
 *
 * Sets the wire of the function.
 */
void qrnic_sriov_attach(QrnicSriov *s, QrnicDevice *d, unsigned port);
/**
 * qrnic_sriov_new:
 * @pf: the physical function
 *
 * Returns: a structure with a switch, which no function uses yet
 */
QrnicSriov *qrnic_sriov_new(QrnicPf *pf);
/**
 * qrnic_sriov_unref:
 * @s: the functions, or NULL
 *
 * Frees @s when the last function no longer exists.
 */
void qrnic_sriov_unref(QrnicSriov *s);

/* uplink.c: the uplink of the switch, a network backend of QEMU */

/**
 * qrnic_uplink_init:
 * @s: the functions; their switch exists
 *
 * Creates the net client.
 */
void qrnic_uplink_init(QrnicSriov *s);
/**
 * qrnic_uplink_send:
 * @s: the functions
 * @frame: the frame
 * @len: its size in bytes
 *
 * Sends a frame to the backend.
 *
 * Returns: false if the backend is busy and has not accepted the frame
 */
bool qrnic_uplink_send(QrnicSriov *s, const uint8_t *frame, size_t len);
/**
 * qrnic_uplink_flush:
 * @s: the functions
 *
 * Lets the backend deliver the frames that it buffers.
 */
void qrnic_uplink_flush(QrnicSriov *s);
/**
 * qrnic_uplink_detach:
 * @s: the functions
 *
 * Deletes the net client later.
 */
void qrnic_uplink_detach(QrnicSriov *s);

#endif
