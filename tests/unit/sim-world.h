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

/* The environment of a node's engine */
QrnicEnv sim_env(SimNode *n);
/* Retransmission by the link, between the engine and the wire */
void sim_link_new(SimNode *n, const QrnicConfig *c);
/* Of one time, who comes first is run first; after what nodes do then. */
void sim_at(Sim *s, int64_t time, void (*run)(void *data), void *data);
/* A frame is there; it is freed when it has been received. */
void sim_deliver(Sim *s, SimFrame *f);

#endif
