/*
 * A little operating system that brings pages when the device asks, and takes
 * them away when it likes. What it takes away it keeps elsewhere and
 * overwrites, so whoever uses a page too long is found out.
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

/* A region, and what is known of its pages */
typedef struct Region {
    SimNode *node;
    uint64_t start;             /* as users of the key say it */
    unsigned levels;
    uint64_t root, list[LISTS], lists;
    uint64_t memory;            /* where its pages are when they are there */
    uint8_t elsewhere[BYTES];   /* and when they are not */
    bool present[PAGES], writable[PAGES];
    uint32_t key;
    bool read_only, gone;       /* nobody may write; nothing is there */
} Region;

/* Two connected queue pairs, each with a region; who brings their pages */
typedef struct Pager {
    Sim *sim;
    SimQp *qp[2];
    Region *region[2];
    uint32_t eq[2], consumer[2];
    uint64_t ring[2];
    unsigned faults[2];
} Pager;

/* levels: of the tables; o: NULL or as of sim_new() */
Pager *pager_new_with(uint32_t seed, unsigned levels, const SimConnect *c,
                      const SimOptions *o);
Pager *pager_new(uint32_t seed, unsigned levels, const SimConnect *c);
void pager_free(Pager *w);
/* Until nothing happens any more; meanwhile: while something does, or NULL */
void pager_run(Pager *w, void (*meanwhile)(Pager *w));
/* Posts at end 0, with offsets in the regions of both ends. */
void pager_post(Pager *w, uint8_t opcode, uint64_t offset,
                uint64_t remote_offset, uint32_t len);
/* Posts at end 1. */
void pager_receive(Pager *w, uint64_t offset, uint32_t len);

QrnicEngine *engine_of(const Region *r);
/* What its key was made with */
QrnicMkeyCtx region_ctx(const Region *r);
/* Where the entry of a page is; makes the lists on the way there. */
uint8_t *entry_of(Region *r, unsigned page);
/* Where a page is when it is there */
uint8_t *memory_of(const Region *r, unsigned page);
/* All that is in the region now; takes all of it away. */
const uint8_t *content_of(Region *r);
void page_bring(Region *r, unsigned page, bool write);
void page_take_away(Region *r, unsigned page, unsigned count);

/* The next page fault that a node was told of */
bool fault_next(Pager *w, unsigned id, uint32_t *number);
/* False: nothing waits for this one any more. */
bool fault_answer(Pager *w, unsigned id, uint32_t number);
/* Returns the status. */
int fault_resume(QrnicEngine *e, uint32_t number, uint32_t sequence);

#endif
