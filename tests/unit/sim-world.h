/*
 * The interface between the driver of the simulated world (sim.c) and the parts
 * between the nodes: memory, wire, link and time (sim-world.c), networks
 * (net.c).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_SIM_WORLD_H
#define QRNIC_TEST_SIM_WORLD_H

#include "sim.h"

/* Allocates zeroed memory. Untouched pages use no host memory. */
uint8_t *sim_memory_new(uint64_t size);
void sim_memory_clear(uint8_t *p, uint64_t size);
void sim_memory_free(uint8_t *p, uint64_t size);

/*
 * If QRNIC_SIM_PACKETS=FILE is in the environment, hashes each frame that a
 * node of the world sends, with its time and its node. sim_packets_end()
 * appends one line to FILE: program, number of the world in the program,
 * frames, SHA-256, test. tools/compare-commits compares two such files.
 */
void sim_packets_begin(Sim *s);
void sim_packets_end(Sim *s);

/* Returns the environment of a node's engine. */
QrnicEnv sim_env(SimNode *n);
/* Creates link retransmission between the engine and the wire. */
void sim_link_new(SimNode *n, const QrnicConfig *c);
/*
 * Calls a function at this time, in the order of the calls of sim_at() and
 * after the nodes' work of that time.
 */
void sim_at(Sim *s, int64_t time, void (*run)(void *data), void *data);
/* Delivers a frame, and frees it when the node has received it. */
void sim_deliver(Sim *s, SimFrame *f);

#endif
