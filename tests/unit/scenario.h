/*
 * A scenario for the simulated network (net.h), in the lines that
 * tools/simulate makes of its YAML. The first word is the kind of the line;
 * others are NAME=NUMBER. All numbers have base units: bytes, bits per second,
 * nanoseconds, parts of a million.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 *   seed N
 *   until NS
 *   sample NS
 *   poll NS
 *   drain NS
 *   trace 1
 *   nodes N
 *   topology NAME N (pair, star, dumbbell, leaf-spine, ring, ring-one-way,
 *            fat-tree)
 *   edge, middle    rate= delay= queue= loss= to_bad= to_good= loss_bad=
 *                   down_from= down_to= period=
 *   link A B        the same of one link, both ways, A and B being devices
 *   watch A B       prints the queue from A to B, at each sample
 *   network         paths= (NetPaths) kmin= kmax= pmax= pfc= xoff= xon=
 *                   headroom=
 *   congestion      members of congestion_ctx
 *   flow NAME       from= to= operation= size= depth= start= stop= pause=
 *                   messages= class= priority= limit= burst= options=
 *                   timeout= mtu=
 *   fault FLOW      psn= transmission= fate= (NetFate) late= answers=
 */

#ifndef QRNIC_TEST_SCENARIO_H
#define QRNIC_TEST_SCENARIO_H

#include "net.h"

typedef enum ScenarioOperation {
    SCENARIO_WRITE, SCENARIO_SEND, SCENARIO_READ,
} ScenarioOperation;

typedef struct ScenarioFlow {
    char name[32];
    uint32_t from, to, operation;
    uint32_t size, depth;       /* Bytes of a message; outstanding messages */
    int64_t start, stop;
    int64_t pause;              /* Random pause before a message, up to this */
    uint64_t messages;          /* 0: until the end of the run */
    uint64_t limit;             /* Bits per second; 0: no rate limit */
    uint32_t burst;             /* Bytes; 0: those of 1 ms at the limit */
    uint8_t traffic_class, priority, options, timeout, mtu;
} ScenarioFlow;

typedef struct ScenarioLink {
    uint32_t a, b;
    NetLink link;
} ScenarioLink;

typedef struct ScenarioFault {
    uint32_t flow;
    bool answers;               /* Selects packets of the flow's receiver */
    NetFault fault;             /* psn is relative to the flow's first */
} ScenarioFault;

typedef struct Scenario {
    uint32_t seed, nodes;
    int64_t until, sample, poll, drain;
    bool trace;
    char topology[16];
    uint32_t size;              /* Size of the topology */
    NetLink edge, middle;
    NetOptions network;
    bool congested;             /* A line "congestion" exists */
    QrnicCongestionCtx congestion;
    GArray *flow;               /* ScenarioFlow */
    GArray *link, *watch;       /* ScenarioLink */
    GArray *fault;              /* ScenarioFault */
} Scenario;

/*
 * Parses a scenario. Returns NULL on error; error is a message with the number
 * of the line.
 */
Scenario *scenario_parse(const char *text, char **error);
void scenario_free(Scenario *s);

#endif
