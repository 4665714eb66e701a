/*
 * A pager for the simulator: pages in when the device reports a page fault, and
 * invalidates pages at any time. The content of an invalidated page moves
 * elsewhere and its memory is overwritten, so that a test detects a late
 * access.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_PAGER_H
#define QRNIC_TEST_PAGER_H

#include "pair.h"

#define PAGE 4096u
#define PAGES 64u
#define BYTES (PAGES * PAGE)
#define LISTS 40u
#define FAULT_LOG_SIZE 4

/* A region, and the state of its pages */
typedef struct Region {
    SimNode *node;
    uint64_t start;             /* Address as the users of the key see it */
    /* Region of a process, or 0: PASID, and virtual address */
    uint32_t pasid;
    uint64_t address;
    unsigned levels;
    uint64_t root, list[LISTS], lists;
    uint64_t memory;            /* Memory of present pages */
    uint8_t elsewhere[BYTES];   /* Content of absent pages */
    bool present[PAGES], writable[PAGES];
    uint32_t key;
    bool read_only, gone;       /* Without write permission; without any page */
} Region;

/* Two connected queue pairs, each with a region, and their pager */
typedef struct Pager {
    Sim *sim;
    SimQp *qp[2];
    Region *region[2];
    uint32_t eq[2], consumer[2];
    uint64_t ring[2];
    unsigned faults[2];
} Pager;

/* Regions of the next worlds are in processes, and have no tables. */
extern bool pager_processes;
/* Creates the world. levels: of the tables; o: NULL, or as for sim_new(). */
Pager *pager_new_with(uint32_t seed, unsigned levels, const SimConnect *c,
                      const SimOptions *o);
Pager *pager_new(uint32_t seed, unsigned levels, const SimConnect *c);
void pager_free(Pager *w);
/* Runs until all work is done. meanwhile: called between the steps, or NULL. */
void pager_run(Pager *w, void (*meanwhile)(Pager *w));
/* Posts a request at node 0. The offsets are in the regions of both nodes. */
void pager_post(Pager *w, uint8_t opcode, uint64_t offset,
                uint64_t remote_offset, uint32_t len);
/* Posts a receive WQE at node 1. */
void pager_receive(Pager *w, uint64_t offset, uint32_t len);

QrnicEngine *engine_of(const Region *r);
/* Returns the context with which the region's key was created. */
QrnicMkeyCtx region_ctx(const Region *r);
/* Returns the entry of a page, and makes the lists that lead to it. */
uint8_t *entry_of(Region *r, unsigned page);
/* Returns the memory of a page. */
uint8_t *memory_of(const Region *r, unsigned page);
/* Returns the content of the region, and invalidates all its pages. */
const uint8_t *content_of(Region *r);
void page_bring(Region *r, unsigned page, bool write);
void page_take_away(Region *r, unsigned page, unsigned count);

/* Returns the address that a page fault reports for this offset. */
uint64_t fault_address(const Region *r, uint64_t offset);
/* Returns the flags that a page fault reports. */
uint32_t fault_flags(const Region *r, bool write);
/* Returns the next page fault that was reported to a node. */
bool fault_next(Pager *w, unsigned id, uint32_t *number);
/* Returns false if the page fault is not outstanding. */
bool fault_answer(Pager *w, unsigned id, uint32_t number);
/* Returns the status. */
int fault_resume(QrnicEngine *e, uint32_t number, uint32_t sequence);

#endif
