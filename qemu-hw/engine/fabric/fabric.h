/*
 * qrnic engine, layer fabric: the port, the GID table, multicast groups, and
 * frames
 *
 * Frames leave through qrnic_roce_place() and qrnic_roce_send(), or
 * qrnic_frame_send(). Frames arrive through qrnic_engine_receive(), which
 * passes them to the functions that the transport layer registered
 * (QrnicReceivers). A packet to a GID of this device is looped back: it is
 * queued and delivered later in the run.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_FABRIC_H
#define QRNIC_ENGINE_FABRIC_H

#include "engine/core/core.h"
#include "wire/packet.h"

/**
 * qrnic_port_path_mtu:
 * @e: the engine
 *
 * Returns: the largest path MTU (enum qrnic_path_mtu) that fits into the MTU of
 * the port
 */
uint8_t qrnic_port_path_mtu(const QrnicEngine *e);
/**
 * qrnic_port_reset:
 * @e: the engine
 *
 * Restores the default MTU and the administrative state "up".
 */
void qrnic_port_reset(QrnicEngine *e);

/**
 * qrnic_gid_get:
 * @e: the engine
 * @index: index in the GID table; may be out of range
 *
 * Returns: the entry, or NULL if it is not valid
 */
const QrnicGidEntry *qrnic_gid_get(QrnicEngine *e, uint32_t index);
/**
 * qrnic_gid_is_multicast:
 * @gid: 16 bytes
 *
 * Returns: true for IPv6 ff00::/8 and for IPv4 224.0.0.0/4 mapped to a GID
 */
bool qrnic_gid_is_multicast(const uint8_t *gid);
/**
 * qrnic_gid_reaches:
 * @from: entry of the source GID
 * @dgid: destination GID, 16 bytes
 *
 * Returns: true if a packet from @from can be sent to @dgid. RoCE v2 requires
 * the same version of IP on both sides; RoCE v1 has no such restriction.
 */
bool qrnic_gid_reaches(const QrnicGidEntry *from, const uint8_t *dgid);
/**
 * qrnic_vlan_is_ours:
 * @e: the engine
 * @vlan: VLAN ID, or -1 for none
 * @v1: true for RoCE v1, false for RoCE v2
 *
 * Returns: true if a valid entry of the GID table has this VLAN and this
 * version
 */
bool qrnic_vlan_is_ours(QrnicEngine *e, int vlan, bool v1);
/**
 * qrnic_gid_is_ours:
 * @e: the engine
 * @dgid: destination GID, 16 bytes
 * @vlan: VLAN ID, or -1 for none
 * @v1: true for RoCE v1, false for RoCE v2
 *
 * Returns: true if a valid entry of the GID table has this GID, VLAN and
 * version
 */
bool qrnic_gid_is_ours(QrnicEngine *e, const uint8_t *dgid, int vlan, bool v1);
/**
 * qrnic_gids_reset:
 * @e: the engine
 *
 * Clears the GID table.
 */
void qrnic_gids_reset(QrnicEngine *e);

/**
 * qrnic_frame_is_roce:
 * @e: the engine
 * @h: headers of a received frame
 *
 * Returns: true if the frame is RoCE (v1, or UDP port 4791) and is addressed to
 * this device, by MAC address and GID
 */
bool qrnic_frame_is_roce(QrnicEngine *e, const QrnicHeaders *h);
/**
 * qrnic_destination_is_ours:
 * @e: the engine
 * @dmac: destination MAC address
 * @dgid: destination GID, 16 bytes
 * @vlan: VLAN ID; 0 or less for none
 * @v1: true for RoCE v1, false for RoCE v2
 *
 * Returns: true if this device would receive a packet to that destination, so
 * that the packet must be looped back
 */
bool qrnic_destination_is_ours(QrnicEngine *e, const uint8_t *dmac,
                               const uint8_t *dgid, int vlan, bool v1);

/* Membership of a queue pair in a multicast group */
typedef struct QrnicAttachment {
    uint8_t gid[16];
    uint32_t qpn;
    uint64_t serial;            /* ascending; never reused */
} QrnicAttachment;

/**
 * qrnic_group_is_ours:
 * @e: the engine
 * @gid: multicast GID, 16 bytes
 *
 * Returns: true if any queue pair is attached to the group
 */
bool qrnic_group_is_ours(const QrnicEngine *e, const uint8_t *gid);
/**
 * qrnic_group_has:
 * @e: the engine
 * @gid: multicast GID, 16 bytes
 * @qpn: number of a queue pair
 *
 * Returns: true if the queue pair is attached to the group
 */
bool qrnic_group_has(const QrnicEngine *e, const uint8_t *gid, uint32_t qpn);
/**
 * qrnic_group_join:
 * @e: the engine
 * @gid: multicast GID, 16 bytes
 * @qpn: number of a queue pair that is not attached to the group
 *
 * Returns: true, or false if the table is full
 */
bool qrnic_group_join(QrnicEngine *e, const uint8_t *gid, uint32_t qpn);
/**
 * qrnic_group_leave:
 * @e: the engine
 * @gid: multicast GID, 16 bytes; NULL for all groups
 * @qpn: number of a queue pair
 *
 * Detaches the queue pair from the group.
 */
void qrnic_group_leave(QrnicEngine *e, const uint8_t *gid, uint32_t qpn);
/**
 * qrnic_group_behind:
 * @e: the engine
 * @serial: serial number of the last attachment that was served; 0 for none
 *
 * Finds the place at which a delivery to a group continues, although
 * attachments may have changed since its last part.
 *
 * Returns: index of the first attachment with a higher serial number
 */
uint32_t qrnic_group_behind(const QrnicEngine *e, uint64_t serial);
/**
 * qrnic_group_next:
 * @e: the engine
 * @gid: multicast GID, 16 bytes
 * @at: index from which to search; receives the index behind the result
 *
 * Returns: number of the next queue pair of the group, or 0 at the end
 */
uint32_t qrnic_group_next(const QrnicEngine *e, const uint8_t *gid,
                          uint32_t *at);

/* Looped back frame that is not yet delivered */
typedef struct QrnicLoopbackFrame {
    QTAILQ_ENTRY(QrnicLoopbackFrame) next;
    QrnicHeaders headers;
    size_t room;
    uint8_t data[];
} QrnicLoopbackFrame;

/*
 * Destination of a packet of the transport. A packet is looped back if its
 * destination is this device (ours). A multicast packet is sent to the wire,
 * too.
 */
typedef struct QrnicRoceTo {
    bool v1, ours, multicast;
} QrnicRoceTo;

/* Packet of the transport that is being built */
typedef struct QrnicBuild {
    QrnicRoceTo to;
    uint8_t *frame;
    /*
     * Frame of a packet that is only looped back. NULL if the packet is built
     * in the staging frame.
     */
    QrnicLoopbackFrame *ours;
} QrnicBuild;

/**
 * qrnic_wire_busy:
 * @e: the engine
 *
 * Returns: true if the wire accepts no frame now and senders must wait
 */
bool qrnic_wire_busy(const QrnicEngine *e);
/**
 * qrnic_loopback_full:
 * @e: the engine
 *
 * Returns: true if so many looped back frames are queued that senders must wait
 */
bool qrnic_loopback_full(const QrnicEngine *e);
/**
 * qrnic_wire_stands_still:
 * @e: the engine
 * @epoch: value of the previous call; receives the present value
 *
 * Distinguishes a wire that stands still from a slow wire, which accepts a
 * frame now and then. A wire that stands still for a whole timeout is treated
 * like a wire that loses all frames.
 *
 * Returns: true if the wire is busy and has not become ready since the previous
 * call
 */
bool qrnic_wire_stands_still(const QrnicEngine *e, uint32_t *epoch);
/**
 * qrnic_roce_place:
 * @e: the engine
 * @to: destination of the packet
 * @room: maximum size of the frame in bytes
 *
 * Begins a packet. The caller builds the frame at the returned address and then
 * calls qrnic_roce_send(). A frame that is not sent needs no further call.
 *
 * Returns: the memory for the frame
 */
uint8_t *qrnic_roce_place(QrnicEngine *e, const QrnicRoceTo *to, size_t room);
/**
 * qrnic_roce_is_private:
 * @e: the engine
 *
 * Returns: true if only this device will see the packet being built
 */
bool qrnic_roce_is_private(const QrnicEngine *e);
/**
 * qrnic_roce_send:
 * @e: the engine
 * @len: size of the frame in bytes
 *
 * Sends the packet of the last qrnic_roce_place(), or drops it and counts the
 * drop if the port is not active.
 */
void qrnic_roce_send(QrnicEngine *e, size_t len);
/**
 * qrnic_frame_send:
 * @e: the engine
 * @h: headers of the frame
 *
 * Sends a frame that is no packet of the transport, so it is never looped back.
 */
void qrnic_frame_send(QrnicEngine *e, const QrnicHeaders *h);
/**
 * qrnic_loopback_moves:
 * @e: the engine
 *
 * Returns: true if a looped back frame can be delivered now
 */
bool qrnic_loopback_moves(const QrnicEngine *e);
/*
 * Looped back frames that one call delivers, because a frame may use much of
 * the work budget
 */
#define QRNIC_LOOPBACK_PORTION 16
/**
 * qrnic_loopback_deliver:
 * @e: the engine
 * @budget: maximum number of deliveries; a multicast frame counts once for
 *   each receiver
 *
 * Delivers looped back frames in their order.
 */
void qrnic_loopback_deliver(QrnicEngine *e, unsigned budget);
/**
 * qrnic_loopback_drop:
 * @e: the engine
 *
 * Drops all looped back frames and the packet being built.
 */
void qrnic_loopback_drop(QrnicEngine *e);

/* Functions that receive frames, registered by the transport layer */
typedef struct QrnicReceivers {
    /*
     * Receives a frame for which qrnic_frame_is_roce() returns true. Returns
     * the number of queue pairs that received it.
     */
    unsigned (*roce)(QrnicEngine *e, const QrnicHeaders *h, bool loopback);
    /* Receives any other frame. */
    void (*ethernet)(QrnicEngine *e, const QrnicHeaders *h);
    /*
     * Passes a received or sent frame to the sniffers, before any other
     * processing. Called only while fabric->sniffers is not 0.
     */
    void (*sniff)(QrnicEngine *e, const QrnicHeaders *h);
} QrnicReceivers;

typedef struct QrnicFabric {
    const QrnicReceivers *receivers;
    /* count of sniffers, maintained by the transport layer */
    uint32_t sniffers;
    bool link_up, link_agreed;
    QrnicPortCtx port;
    QrnicGidEntry *gids;
    /* incremented with each change of the table; never 0 */
    uint64_t gids_epoch;
    uint32_t gids_end;          /* index behind the last valid entry */
    /* distinct source MAC addresses of all entries */
    uint8_t (*macs)[6];
    uint32_t num_macs;
    QrnicAttachment attachment[QRNIC_MAX_MULTICAST];
    uint32_t attachment_count;
    uint64_t attachment_serial;
    /* a multicast frame is partly delivered: accept no other frame */
    bool delivering;
    bool suspended;             /* accept no frame until a context is fetched */
    /* frames of the wire go first until this run ends */
    bool wire_first;
    bool wire_busy;
    uint32_t wire_epoch;        /* incremented when the wire becomes ready */
    /*
     * Looped back frames. qrnic_engine_run() delivers them later, because the
     * delivery within a send would be a recursion.
     */
    QTAILQ_HEAD(, QrnicLoopbackFrame) loopback;
    uint32_t loopback_count;
    QrnicBuild build;
    /* staging frame of the packet being built */
    uint8_t frame[QRNIC_FRAME_MAX];
} QrnicFabric;

extern const QrnicFloor qrnic_fabric_floor;

#endif
