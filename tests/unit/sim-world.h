/*
 * What the simulated world offers its own parts: the driver (sim.c) and what
 * is between the nodes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_SIM_WORLD_H
#define QRNIC_TEST_SIM_WORLD_H

#include "sim.h"

/* Memory that is zero, and costs nothing before it is touched */
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

/* The environment of a node's engine */
QrnicEnv sim_env(SimNode *n);
/* Retransmission by the link, between the engine and the wire */
void sim_link_new(SimNode *n, const QrnicConfig *c);
/* Of one time, who comes first is run first; after what nodes do then. */
void sim_at(Sim *s, int64_t time, void (*run)(void *data), void *data);
/* A frame is there; it is freed when it has been received. */
void sim_deliver(Sim *s, SimFrame *f);

#endif
