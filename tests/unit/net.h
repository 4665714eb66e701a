/*
 * A network between the nodes of a simulated world (sim.h). Links with a rate
 * and a delay, and switches with output queues replace the wire. The network
 * has several paths, ECN marks, pauses, loss, and faults of single packets.
 *
 * A device is a node (with the node's number) or a switch. A link is two ports,
 * one for each direction. A port has an output queue for each priority, and
 * sends the highest priority first.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_NET_H
#define QRNIC_TEST_NET_H

#include "sim.h"

#define NET_PRIORITIES 8
/* Bytes of a frame on the wire only: preamble, FCS, inter-frame gap */
#define NET_OVERHEAD 24
#define NET_FRAME_MIN 60
#define NET_MILLION 1000000u
#define NET_SWITCH_PORTS 256
#define NET_NODE_QUEUE 16384    /* Bytes that a node may queue */
#define NET_BTH_ADAPTIVE 0x02   /* In byte 8 of the BTH */

typedef struct Net Net;
typedef struct NetPort NetPort;

typedef enum NetPaths {
    NET_PATHS_HASH,             /* One path for each flow */
    NET_PATHS_SPRAY,            /* One path for each packet */
    NET_PATHS_ADAPTIVE,         /* One path for each marked packet */
} NetPaths;

/* Loss of a link. Probabilities are in parts of a million. */
typedef struct NetLoss {
    uint32_t loss;              /* In the good state */
    /* Gilbert-Elliott: transitions to the bad state and back, at each frame */
    uint32_t to_bad, to_good, loss_bad;
    /* Down between two times, and again in each period, if any */
    int64_t down_from, down_to, period;
} NetLoss;

typedef struct NetLink {
    uint64_t rate;              /* Bits per second */
    int64_t delay;              /* ns */
    uint64_t queue;             /* Bytes of each queue of a switch port */
    NetLoss loss;
} NetLink;

typedef struct NetOptions {
    NetPaths paths;
    /*
     * ECN marks by bytes of a queue: max_mark at kmax, all above. kmax 0: none
     */
    uint64_t kmin, kmax;
    uint32_t max_mark;          /* Parts of a million */
    /* Priority flow control, by bytes of an ingress port; xoff 0: none */
    uint8_t pfc;                /* Bit mask of priorities */
    uint64_t xoff, xon, headroom;
} NetOptions;

typedef enum NetFate {
    NET_FATE_LOST, NET_FATE_MARKED, NET_FATE_CORRUPTED, NET_FATE_LATE,
} NetFate;

/* A fault of one packet as it leaves its node */
typedef struct NetFault {
    unsigned to;                /* Node */
    uint32_t dest_qpn, psn;
    unsigned transmission;      /* 1: the first */
    NetFate fate;
    int64_t late;               /* ns */
    unsigned seen;              /* Matching packets so far */
} NetFault;

typedef struct NetCounters {
    uint64_t frames, bytes;     /* Sent; bytes with NET_OVERHEAD */
    uint64_t dropped;           /* The queue was full */
    uint64_t lost;              /* Lost by the link */
    uint64_t marked;            /* Newly marked */
    uint64_t paused, resumed;   /* Pause and resume frames received */
    int64_t paused_ns;          /* Of finished pauses; see net_paused_ns() */
    uint64_t deepest;           /* Maximum of bytes in all queues */
} NetCounters;

struct NetPort {
    Net *net;
    unsigned id, from, to;      /* Devices */
    NetPort *back;              /* The other direction */
    NetLink link;
    struct {
        SimFrame *first, *last;
        uint64_t bytes;
        bool paused;            /* Paused by the neighbour */
        int64_t since;
        uint64_t held;          /* Bytes in the switch that came by this port */
        bool stopped;           /* The neighbour is paused */
    } queue[NET_PRIORITIES];
    uint64_t queued;            /* Bytes in all queues */
    int64_t free_ps;            /* Time when the last bit is sent */
    bool scheduled, bad;
    NetCounters count;
};

/* Set of ports of a switch: a bit each */
typedef struct NetWays {
    uint64_t word[NET_SWITCH_PORTS / 64];
} NetWays;

typedef struct NetDevice {
    NetPort *port[NET_SWITCH_PORTS];
    unsigned ports;
    NetWays *route;             /* Routes of a switch, by node */
} NetDevice;

struct Net {
    Sim *sim;
    NetOptions o;
    GArray *device;             /* NetDevice; nodes first */
    GPtrArray *port;            /* NetPort */
    GArray *fault;              /* NetFault */
    uint64_t random, trace;     /* trace: equal for equal runs */
    uint64_t sent, delivered, unrouted, hops;
    /* Totals: dropped, marked; lost includes faults */
    NetCounters gone;
    /* Called for each arriving frame. Returns false to drop the frame. */
    bool (*sink)(Net *net, const SimFrame *f, void *opaque);
    void *sink_opaque;
};

Net *net_new(Sim *s, const NetOptions *o);
/* Frees the network, before sim_free(). Runs net_check(). */
void net_free(Net *net);
unsigned net_switch_add(Net *net);
/* Returns the port from a to b. */
NetPort *net_link(Net *net, unsigned a, unsigned b, const NetLink *link);
/* Computes all routes. Called after the last link. */
void net_route(Net *net);
void net_fault_add(Net *net, const NetFault *fault);
/* Returns the number of frames in queues, on links, or delayed. */
uint64_t net_under_way(Net *net);
/*
 * Asserts that each sent frame is delivered, lost, or in flight, and that the
 * byte counts of queues and ingress ports are right.
 */
void net_check(Net *net);
/* Returns the paused time of all priorities, current pauses included. */
int64_t net_paused_ns(const NetPort *p);
/* Sends a frame of a node. */
bool net_send(Sim *s, SimNode *from, const uint8_t *frame, size_t len);

/* Topologies over all nodes, with their routes. edge: links of nodes */
void net_pair(Net *net, const NetLink *edge);
unsigned net_star(Net *net, const NetLink *edge);
/*
 * Connects two switches. The first half of the nodes is at the first switch.
 * Returns the port to the other switch.
 */
NetPort *net_dumbbell(Net *net, const NetLink *edge, const NetLink *middle);
/*
 * Connects as many paths as there are spines. The first half of the nodes is at
 * the first switch, the others at the second. The spines come next in the
 * numbers; each has a link to both switches.
 */
void net_leaf_spine(Net *net, unsigned spines, const NetLink *edge,
                    const NetLink *middle);
/*
 * Connects the switches in a ring. Node i is at switch i modulo the number of
 * switches. If one_way is true, all frames go clockwise, even if the other
 * direction is shorter.
 */
void net_ring(Net *net, unsigned switches, bool one_way, const NetLink *edge,
              const NetLink *middle);
/*
 * Builds a fat tree of k pods. Each pod has k/2 switches for nodes and k/2
 * above them. k * k / 4 switches are on top.
 */
void net_fat_tree(Net *net, unsigned k, const NetLink *edge,
                  const NetLink *middle);

/* Parses the headers of f, and sets the members that the switches use. */
void net_classify(SimFrame *f);
/* Marks a frame. Returns false if it has no ECT or is marked already. */
bool net_mark(SimFrame *f);

#endif
