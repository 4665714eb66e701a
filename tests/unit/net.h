/*
 * A network between the nodes of a simulated world (sim.h), in place of its
 * wire: links with a rate and a delay, switches with output queues, several
 * paths, marks, pauses, loss, and faults that befall one packet.
 *
 * A device is a node (its number is that of the node) or a switch. A link is
 * two ports, one for each direction; a port is an output queue for each
 * priority, and what sends from them: the highest priority first.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_NET_H
#define QRNIC_TEST_NET_H

#include "sim.h"

#define NET_PRIORITIES 8
/* Of a frame, on the wire only: preamble, FCS, gap */
#define NET_OVERHEAD 24
#define NET_FRAME_MIN 60
#define NET_MILLION 1000000u
#define NET_SWITCH_PORTS 256
#define NET_NODE_QUEUE 16384    /* bytes that a node may send ahead */
#define NET_BTH_ADAPTIVE 0x02   /* in byte 8 of the BTH */

typedef struct Net Net;
typedef struct NetPort NetPort;

typedef enum NetPaths {
    NET_PATHS_HASH,             /* one for each flow */
    NET_PATHS_SPRAY,            /* one for each packet */
    NET_PATHS_ADAPTIVE,         /* the same, of packets that are marked so */
} NetPaths;

/* Probabilities are in parts of a million. */
typedef struct NetLoss {
    uint32_t loss;              /* in the good state */
    /* Gilbert-Elliott: from good to bad and back, at each frame */
    uint32_t to_bad, to_good, loss_bad;
    /* Down from the one time to the other; and again each period, if any */
    int64_t down_from, down_to, period;
} NetLoss;

typedef struct NetLink {
    uint64_t rate;              /* bits per second */
    int64_t delay;              /* ns */
    uint64_t queue;             /* bytes of each queue of a switch's port */
    NetLoss loss;
} NetLink;

typedef struct NetOptions {
    NetPaths paths;
    /* Of a queue, in bytes; max_mark at kmax, all above. kmax 0: no marks */
    uint64_t kmin, kmax;
    uint32_t max_mark;          /* parts of a million */
    /* Priority flow control: which; bytes of an input; xoff 0: none */
    uint8_t pfc;                /* bit mask of priorities */
    uint64_t xoff, xon, headroom;
} NetOptions;

typedef enum NetFate {
    NET_FATE_LOST, NET_FATE_MARKED, NET_FATE_CORRUPTED, NET_FATE_LATE,
} NetFate;

/* What befalls one packet as it leaves its node */
typedef struct NetFault {
    unsigned to;                /* node */
    uint32_t dest_qpn, psn;
    unsigned transmission;      /* 1: the first */
    NetFate fate;
    int64_t late;               /* ns */
    unsigned seen;              /* so many have been */
} NetFault;

typedef struct NetCounters {
    uint64_t frames, bytes;     /* sent; bytes with NET_OVERHEAD */
    uint64_t dropped;           /* the queue was full */
    uint64_t lost;              /* by the link */
    uint64_t marked;            /* that had no mark before */
    uint64_t paused, resumed;   /* this port was told to */
    int64_t paused_ns;          /* of pauses that ended; net_paused_ns() */
    uint64_t deepest;           /* bytes of all its queues */
} NetCounters;

struct NetPort {
    Net *net;
    unsigned id, from, to;      /* devices */
    NetPort *back;              /* the other direction */
    NetLink link;
    struct {
        SimFrame *first, *last;
        uint64_t bytes;
        bool paused;            /* by the other end */
        int64_t since;
        uint64_t held;          /* of what came by this port, bytes there */
        bool stopped;           /* the other end has told to stop */
    } queue[NET_PRIORITIES];
    uint64_t queued;            /* bytes of all */
    int64_t free_ps;            /* the last bit is out */
    bool scheduled, bad;
    NetCounters count;
};

/* Ports of a switch: a bit each */
typedef struct NetWays {
    uint64_t word[NET_SWITCH_PORTS / 64];
} NetWays;

typedef struct NetDevice {
    NetPort *port[NET_SWITCH_PORTS];
    unsigned ports;
    NetWays *route;             /* of a switch: by node */
} NetDevice;

struct Net {
    Sim *sim;
    NetOptions o;
    GArray *device;             /* NetDevice; nodes first */
    GPtrArray *port;            /* NetPort */
    GArray *fault;              /* NetFault */
    uint64_t random, trace;     /* trace: the same for the same run */
    uint64_t sent, delivered, unrouted, hops;
    /* Of all ports: dropped, marked; lost, also by faults */
    NetCounters gone;
    /* Sees what arrives; false: the node does not get it. */
    bool (*sink)(Net *net, const SimFrame *f, void *opaque);
    void *sink_opaque;
};

Net *net_new(Sim *s, const NetOptions *o);
/* Before sim_free(); each frame and byte must be somewhere: net_check() */
void net_free(Net *net);
unsigned net_switch_add(Net *net);
/* Returns the port from a to b. */
NetPort *net_link(Net *net, unsigned a, unsigned b, const NetLink *link);
/* After all links */
void net_route(Net *net);
void net_fault_add(Net *net, const NetFault *fault);
/* In queues, on links, or late */
uint64_t net_under_way(Net *net);
/*
 * What was sent is delivered, gone, or under way; queues, and what counts
 * against inputs, have the bytes of their frames.
 */
void net_check(Net *net);
/* Of all priorities; with pauses that last */
int64_t net_paused_ns(const NetPort *p);
/* As a node sends */
bool net_send(Sim *s, SimNode *from, const uint8_t *frame, size_t len);

/*
 * Topologies, over all nodes, with their routes. edge: of nodes
 */
void net_pair(Net *net, const NetLink *edge);
unsigned net_star(Net *net, const NetLink *edge);
/* The first half of the nodes at one end; returns the port to the other. */
NetPort *net_dumbbell(Net *net, const NetLink *edge, const NetLink *middle);
/*
 * As many ways as there are spines: the first half of the nodes at the first
 * switch, the others at the second; each spine, which come next, has a link to
 * both.
 */
void net_leaf_spine(Net *net, unsigned spines, const NetLink *edge,
                    const NetLink *middle);
/*
 * Node i at switch i modulo the number of switches. One way: clockwise,
 * whatever is shorter
 */
void net_ring(Net *net, unsigned switches, bool one_way, const NetLink *edge,
              const NetLink *middle);
/* k pods, each of k/2 switches for nodes and as many above; k * k / 4 on top */
void net_fat_tree(Net *net, unsigned k, const NetLink *edge,
                  const NetLink *middle);

/* Where headers are, and what of them the network looks at */
void net_classify(SimFrame *f);
/* False: it is not capable of ECN, or has the mark. */
bool net_mark(SimFrame *f);

#endif
