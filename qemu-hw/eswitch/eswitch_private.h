/*
 * qrnic embedded switch: its structures, and the functions between its files
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * A frame passes these files in this order: schedule.c queues the frame at its
 * sender, and selects the sender that is served next. route.c checks the frame
 * and finds its receivers. delivery.c queues the frame at the receivers, and
 * delivers it. eswitch.c contains the functions for the PF. Each file calls
 * only files before it in this order: delivery.c, route.c, schedule.c,
 * eswitch.c.
 *
 * These conditions hold between calls:
 * - A port that is not plugged has no queued frame and an empty filter.
 * - A busy port has received no frame since its last qrnic_eswitch_ready().
 * - A frame has one reference (users) for each queue in which it is.
 * - A sender that waits in an inbox has frames.
 */

#ifndef QRNIC_ESWITCH_PRIVATE_H
#define QRNIC_ESWITCH_PRIVATE_H

#include "qemu/host-utils.h"
#include "qemu/queue.h"
#include "eswitch/eswitch.h"
#include "switch/rules.h"

#define MS 1000000ll

/* Offsets and sizes in a frame */
#define QRNIC_ESWITCH_SOURCE 6
#define QRNIC_ESWITCH_TYPE 12
#define QRNIC_ESWITCH_TCI 14
#define QRNIC_ESWITCH_TAG 4
#define QRNIC_ESWITCH_TAGGED_MIN (QRNIC_ESWITCH_FRAME_MIN + QRNIC_ESWITCH_TAG)
#define QRNIC_ESWITCH_TYPE_VLAN 0x8100
#define QRNIC_ESWITCH_TYPE_SERVICE 0x88a8
#define QRNIC_ESWITCH_BROADCAST 0xffffffffffffull

/*
 * Longest time that a sender waits for the full queue of a function, and the
 * time for which that function is slow afterwards. Manual, chapter "Virtual
 * functions".
 */
#define QRNIC_ESWITCH_PATIENCE_NS (10 * MS)
#define QRNIC_ESWITCH_SLOW_NS (1000 * MS)
/*
 * Both times for the uplink. A backend may pause longer than a function, and is
 * not hostile, so the uplink is slow only until its queue has room.
 */
#define QRNIC_ESWITCH_UPLINK_PATIENCE_NS (100 * MS)
#define QRNIC_ESWITCH_UPLINK_SLOW_NS (INT64_MAX / 2)
/*
 * Longest time by which a run advances the time of waiting. A host that stops
 * all processes would otherwise make each full function slow.
 */
#define QRNIC_ESWITCH_STEP_NS (QRNIC_ESWITCH_PATIENCE_NS / 4)

typedef struct QrnicEswitchFrame {
    unsigned users;             /* references of queues and callers */
    unsigned len;
    uint8_t *data;              /* first byte, in room */
    uint8_t room[];             /* room for a tag, and the frame */
} QrnicEswitchFrame;

/* Queue of frames; its memory grows with the number of frames */
typedef struct QrnicEswitchQueue {
    QrnicEswitchFrame **slot;
    unsigned size, head, count; /* size: a power of 2, or 0 */
    size_t bytes;
} QrnicEswitchQueue;

/*
 * A receiver has two queues, for frames of the wire and for frames of the
 * functions, because neither may take the room of the other.
 */
typedef enum QrnicEswitchClass {
    QRNIC_ESWITCH_OF_WIRE,
    QRNIC_ESWITCH_OF_FUNCTIONS,
    QRNIC_ESWITCH_NUM_CLASSES
} QrnicEswitchClass;

typedef struct QrnicEswitchPort QrnicEswitchPort;

/*
 * One class of a receiver. Senders whose first frame needs room here wait in
 * the order in which they came. So none of them can take all the room.
 */
typedef struct QrnicEswitchInbox {
    QrnicEswitchQueue queue;
    QrnicPatience patience;
    /* time that the wire has waited since window_start, while it was shared */
    int64_t wire_waited, window_start;
    QTAILQ_HEAD(, QrnicEswitchPort) waiting;
} QrnicEswitchInbox;

struct QrnicEswitchPort {
    unsigned number;
    bool plugged;
    QrnicEswitchConfig config;
    uint64_t mac;               /* config.mac; see qrnic_eswitch_key() */
    uint64_t count[QRNIC_ESWITCH_NUM_COUNTS];

    /* Receive filter: sorted addresses, see qrnic_eswitch_key() */
    bool promiscuous, all_multicast;
    unsigned addresses;
    uint64_t *address;

    /* As sender */
    QrnicEswitchQueue tx;
    bool stopped;               /* until ops.sender_ready() */
    bool resumes;               /* a part of its quantum is left */
    int64_t deficit;            /* work that the port may cause now */
    QrnicEswitchInbox *waits;   /* inbox without room, or NULL */
    QTAILQ_ENTRY(QrnicEswitchPort) next_waiting;
    int64_t wait_until;         /* end of its wait, or QRNIC_ESWITCH_NEVER */
    int64_t charged_at;         /* end of the wait that was charged already */
    /* Token bucket: time at which it is full, and remainder of a division */
    int64_t full_at;
    uint32_t rest;

    /* As receiver, by class */
    QrnicEswitchInbox rx[QRNIC_ESWITCH_NUM_CLASSES];
    unsigned next;              /* class that is served next */
    bool busy;
    int64_t wire_at;            /* time after its last unicast of the wire */
    uint32_t readies;           /* number of calls of qrnic_eswitch_ready() */
    uint32_t resets;            /* number of resets */
};

struct QrnicEswitch {
    const char *name;
    QrnicEswitchOps ops;
    void *opaque;
    unsigned count;             /* number of ports */
    bool wire;                  /* the link of the wire is up */
    bool kicked;
    unsigned next;              /* function that is served next */
    uint32_t top_mbps;          /* highest minimum rate of a plugged function */
    int64_t run_ns;             /* time of the last run */
    int64_t waited_ns;          /* time of waiting; see QRNIC_ESWITCH_STEP_NS */
    int64_t armed;              /* deadline of the timer */
    QrnicEswitchPort port[QRNIC_ESWITCH_PORTS_MAX];
};

/* Receivers of a frame */
typedef struct QrnicEswitchRoute {
    uint64_t functions;         /* bit n: port n + 1 */
    bool uplink;
    /* without receivers: the reason, and the port of the address or NULL */
    QrnicEswitchCount drop;
    QrnicEswitchPort *owner;
} QrnicEswitchRoute;

static inline uint64_t qrnic_eswitch_bit(const QrnicEswitchPort *p)
{
    return 1ull << (p->number - QRNIC_ESWITCH_PF);
}

/* Returns the first function of a set that is not empty. */
static inline QrnicEswitchPort *qrnic_eswitch_first(QrnicEswitch *sw,
                                                    uint64_t functions)
{
    return &sw->port[QRNIC_ESWITCH_PF + ctz64(functions)];
}

static inline bool qrnic_eswitch_is_uplink(const QrnicEswitchPort *p)
{
    return p->number == QRNIC_ESWITCH_UPLINK;
}

/* Returns an address as a number. */
static inline uint64_t qrnic_eswitch_key(const uint8_t *address)
{
    uint64_t key = 0;

    for (unsigned i = 0; i < 6; i++) {
        key = key << 8 | address[i];
    }
    return key;
}

/* Returns true if the link of the port is up. */
static inline bool qrnic_eswitch_is_up(const QrnicEswitch *sw,
                                       const QrnicEswitchPort *p)
{
    if (!p->plugged || qrnic_eswitch_is_uplink(p)) {
        return p->plugged && sw->wire;
    }
    return p->config.link == QRNIC_ESWITCH_LINK_ENABLE ||
           (p->config.link == QRNIC_ESWITCH_LINK_AUTO && sw->wire);
}

/* delivery.c */

/**
 * qrnic_eswitch_vlan:
 * @frame: a frame of at least QRNIC_ESWITCH_FRAME_MIN bytes
 * @len: its size in bytes
 *
 * Returns: the VLAN ID of the outer tag (type 0x8100); 0: none
 */
uint16_t qrnic_eswitch_vlan(const uint8_t *frame, size_t len);
/**
 * qrnic_eswitch_drop:
 * @sw: the switch
 * @p: the port to which the drop is counted
 * @which: the reason
 * @len: size of the frame
 *
 * Counts and traces a dropped frame.
 */
void qrnic_eswitch_drop(QrnicEswitch *sw, QrnicEswitchPort *p,
                        QrnicEswitchCount which, size_t len);
/**
 * qrnic_eswitch_kick:
 * @sw: the switch
 *
 * Requests a run.
 */
void qrnic_eswitch_kick(QrnicEswitch *sw);

/**
 * qrnic_eswitch_frame_new:
 * @frame: the frame
 * @len: its size in bytes
 *
 * Returns: a copy with one reference, and with room for a tag
 */
QrnicEswitchFrame *qrnic_eswitch_frame_new(const uint8_t *frame, size_t len);
/**
 * qrnic_eswitch_frame_put:
 * @f: the frame
 *
 * Releases a reference. The last release frees the frame.
 */
void qrnic_eswitch_frame_put(QrnicEswitchFrame *f);

/**
 * qrnic_eswitch_queue_first:
 * @q: a queue that is not empty
 *
 * Returns: the first frame, which stays in the queue
 */
QrnicEswitchFrame *qrnic_eswitch_queue_first(const QrnicEswitchQueue *q);
/**
 * qrnic_eswitch_queue_push:
 * @q: the queue
 * @f: a frame, whose reference passes to the queue
 */
void qrnic_eswitch_queue_push(QrnicEswitchQueue *q, QrnicEswitchFrame *f);
/**
 * qrnic_eswitch_queue_pop:
 * @q: a queue that is not empty
 *
 * Returns: the first frame, whose reference passes to the caller
 */
QrnicEswitchFrame *qrnic_eswitch_queue_pop(QrnicEswitchQueue *q);
/**
 * qrnic_eswitch_queue_drop:
 * @sw: the switch
 * @p: the port of the queue
 * @q: the queue
 * @which: the reason
 *
 * Drops all frames and frees the memory of the queue.
 */
void qrnic_eswitch_queue_drop(QrnicEswitch *sw, QrnicEswitchPort *p,
                              QrnicEswitchQueue *q, QrnicEswitchCount which);

/**
 * qrnic_eswitch_is_full:
 * @sw: the switch
 * @to: a receiver
 * @class: the queue
 *
 * Returns: true if the queue has no room. After a queue was full, it has room
 * when a quarter of it is free.
 */
bool qrnic_eswitch_is_full(const QrnicEswitch *sw, QrnicEswitchPort *to,
                           QrnicEswitchClass class);
/**
 * qrnic_eswitch_forward:
 * @sw: the switch
 * @to: a receiver
 * @f: the frame
 * @class: class of the sender
 *
 * Queues the frame at the receiver, or drops it if the queue has no room.
 * Delivers the first frame of the receiver, unless the receiver is busy.
 */
void qrnic_eswitch_forward(QrnicEswitch *sw, QrnicEswitchPort *to,
                           QrnicEswitchFrame *f, QrnicEswitchClass class);
/**
 * qrnic_eswitch_deliver:
 * @sw: the switch
 * @to: a receiver
 *
 * Delivers or drops the first frame of the receiver. The classes are
 * served alternately.
 *
 * Returns: the size of the frame, or 0 if the receiver is busy or has no frame
 */
size_t qrnic_eswitch_deliver(QrnicEswitch *sw, QrnicEswitchPort *to);

/* route.c */

/**
 * qrnic_eswitch_route:
 * @sw: the switch
 * @from: the sender
 * @f: the frame
 *
 * Checks the frame and finds its receivers. Changes nothing, so that a frame
 * may wait and be routed again.
 *
 * Returns: the receivers
 */
QrnicEswitchRoute qrnic_eswitch_route(QrnicEswitch *sw, QrnicEswitchPort *from,
                                      const QrnicEswitchFrame *f);

/* schedule.c */

/**
 * qrnic_eswitch_sender_reset:
 * @p: a port that is reset
 *
 * Drops the state of the port as a sender, except that of its rate. Otherwise
 * a function could exceed its rate by resetting itself.
 */
void qrnic_eswitch_sender_reset(QrnicEswitchPort *p);
/**
 * qrnic_eswitch_shares_changed:
 * @sw: the switch
 *
 * Finds the highest minimum rate of the plugged functions, from which their
 * shares follow. eswitch.c calls this function after each change of a port.
 */
void qrnic_eswitch_shares_changed(QrnicEswitch *sw);

#endif
