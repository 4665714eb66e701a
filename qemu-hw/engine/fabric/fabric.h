/*
 * qrnic engine, floor fabric: the port, GIDs, which frames are for the
 * transport, multicast groups, the way out and back in of frames
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_FABRIC_H
#define QRNIC_ENGINE_FABRIC_H

#include "engine/core/core.h"
#include "wire/packet.h"

/* port.c: enum qrnic_path_mtu that the present MTU carries */
uint8_t qrnic_port_path_mtu(const QrnicEngine *e);
void qrnic_port_reset(QrnicEngine *e);

/* gid.c */
const QrnicGidEntry *qrnic_gid_get(QrnicEngine *e, uint32_t index);
/* IPv6 ff00::/8, and IPv4 224.0.0.0/4 as a GID */
bool qrnic_gid_is_multicast(const uint8_t *gid);
/* RoCE v1 reaches all from anywhere, v2 those of the same IP version. */
bool qrnic_gid_reaches(const QrnicGidEntry *from, const uint8_t *dgid);
/* True if an entry of this version of RoCE has this VLAN (-1: none). */
bool qrnic_vlan_is_ours(QrnicEngine *e, int vlan, bool v1);
/* and of this GID (16 bytes) */
bool qrnic_gid_is_ours(QrnicEngine *e, const uint8_t *dgid, int vlan, bool v1);
void qrnic_gids_reset(QrnicEngine *e);

/* gid.c: RoCE v1, or UDP to port 4791, to a GID and MAC of ours */
bool qrnic_frame_is_roce(QrnicEngine *e, const QrnicHeaders *h);
/* What goes there would be one for us; vlan: 0 or less: in none. */
bool qrnic_destination_is_ours(QrnicEngine *e, const uint8_t *dmac,
                               const uint8_t *dgid, int vlan, bool v1);

/* group.c: which queue pairs are in which multicast groups, by number */
typedef struct QrnicAttachment {
    uint8_t gid[16];
    uint32_t qpn;
    uint64_t serial;            /* of all that there ever were; ascending */
} QrnicAttachment;

bool qrnic_group_is_ours(const QrnicEngine *e, const uint8_t *gid);
bool qrnic_group_has(const QrnicEngine *e, const uint8_t *gid, uint32_t qpn);
/* False: there is no room. */
bool qrnic_group_join(QrnicEngine *e, const uint8_t *gid, uint32_t qpn);
/* gid NULL: all groups */
void qrnic_group_leave(QrnicEngine *e, const uint8_t *gid, uint32_t qpn);
/* Where those behind this one begin; serial 0: all */
uint32_t qrnic_group_behind(const QrnicEngine *e, uint64_t serial);
/* The next member from *at on, which is then behind it; 0: there is none. */
uint32_t qrnic_group_next(const QrnicEngine *e, const uint8_t *gid,
                          uint32_t *at);

/* frame.c */
typedef struct QrnicLoopbackFrame {
    QTAILQ_ENTRY(QrnicLoopbackFrame) next;
    QrnicHeaders headers;
    size_t room;
    uint8_t data[];
} QrnicLoopbackFrame;

/*
 * Where a packet of the transport goes. ours: it comes back in; it goes to the
 * wire, too, if it is for a group (multicast).
 */
typedef struct QrnicRoceTo {
    bool v1, ours, multicast;
} QrnicRoceTo;

/* A packet of the transport that is being built */
typedef struct QrnicBuild {
    QrnicRoceTo to;
    uint8_t *frame;
    /* Where it only goes to ourselves; else NULL, in the staging frame */
    QrnicLoopbackFrame *ours;
} QrnicBuild;

/* The wire takes no frame now. */
bool qrnic_wire_busy(const QrnicEngine *e);
/* So many frames are on the way to ourselves that senders have to wait. */
bool qrnic_loopback_full(const QrnicEngine *e);
/*
 * Busy, and not ready once since the last look, of which *epoch reminds. A
 * wire that stands still for a whole period of waiting is like one that loses
 * all; one that takes a frame now and then is only slow.
 */
bool qrnic_wire_stands_still(const QrnicEngine *e, uint32_t *epoch);
/*
 * Where the frame of a packet is to be built, of room bytes. One that is not
 * sent may be left.
 */
uint8_t *qrnic_roce_place(QrnicEngine *e, const QrnicRoceTo *to, size_t room);
/* Nobody but ourselves will see it. */
bool qrnic_roce_is_private(const QrnicEngine *e);
/* Sends it: len bytes. */
void qrnic_roce_send(QrnicEngine *e, size_t len);
/* Sends any other frame, which goes to the wire. */
void qrnic_frame_send(QrnicEngine *e, const QrnicHeaders *h);
/* There are some that can be delivered now. */
bool qrnic_loopback_moves(const QrnicEngine *e);
#define QRNIC_LOOPBACK_PORTION 16
void qrnic_loopback_deliver(QrnicEngine *e, unsigned budget);
void qrnic_loopback_drop(QrnicEngine *e);

/*
 * What is done with frames, by the floor that knows of transports
 */
typedef struct QrnicReceivers {
    /* Of whom qrnic_frame_is_roce() says so: how many got it */
    unsigned (*roce)(QrnicEngine *e, const QrnicHeaders *h, bool loopback);
    /* Any other frame */
    void (*ethernet)(QrnicEngine *e, const QrnicHeaders *h);
    /*
     * Each frame that comes or goes, before anything else is done with it;
     * only called while fabric->sniffers is not 0
     */
    void (*sniff)(QrnicEngine *e, const QrnicHeaders *h);
} QrnicReceivers;

typedef struct QrnicFabric {
    const QrnicReceivers *receivers;
    uint32_t sniffers;          /* as the receivers count them */
    bool link_up, link_agreed;
    QrnicPortCtx port;
    QrnicGidEntry *gids;
    uint64_t gids_epoch;        /* how often the table changed; not 0 */
    uint32_t gids_end;          /* no valid entry from here on */
    uint8_t (*macs)[6];         /* the different source MACs of all entries */
    uint32_t num_macs;
    QrnicAttachment attachment[QRNIC_MAX_MULTICAST];
    uint32_t attachment_count;
    uint64_t attachment_serial;
    bool delivering;            /* a frame to a group: no other one is taken */
    bool suspended;             /* no frame is taken until a context arrives */
    bool wire_first;            /* none of our own until the end of this run */
    bool wire_busy;
    uint32_t wire_epoch;        /* how often it became ready */
    /* frames to ourselves, delivered by qrnic_engine_run, never recursively */
    QTAILQ_HEAD(, QrnicLoopbackFrame) loopback;
    uint32_t loopback_count;
    QrnicBuild build;
    uint8_t frame[QRNIC_FRAME_MAX];     /* transmit staging */
} QrnicFabric;

extern const QrnicFloor qrnic_fabric_floor;

#endif
