/*
 * What comes first in time: a binary heap. Of one time, the smaller order
 * comes first, so that a run is the same each time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_HEAP_H
#define QRNIC_TEST_HEAP_H

typedef struct HeapItem {
    int64_t time;
    uint64_t order;
    void (*run)(void *data);    /* or NULL, where all are of one kind */
    void *data;
} HeapItem;

typedef struct Heap {
    HeapItem *item;
    size_t len, room;
} Heap;

void heap_push(Heap *h, HeapItem item);
HeapItem heap_pop(Heap *h);     /* it is not empty */
void heap_free(Heap *h);        /* not what its items point to */

static inline int64_t heap_time(const Heap *h)
{
    return h->len ? h->item[0].time : INT64_MAX;
}

#endif
