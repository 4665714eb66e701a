/*
 * A binary heap that returns the earliest item. Of items with one time, the one
 * with the smaller order comes first, so that each run of a test is the same.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_HEAP_H
#define QRNIC_TEST_HEAP_H

typedef struct HeapItem {
    int64_t time;
    uint64_t order;
    void (*run)(void *data);    /* Or NULL, if all items are of one kind */
    void *data;
} HeapItem;

typedef struct Heap {
    HeapItem *item;
    size_t len, room;
} Heap;

void heap_push(Heap *h, HeapItem item);
HeapItem heap_pop(Heap *h);     /* The heap is not empty */
void heap_free(Heap *h);        /* Keeps the data of the items */

static inline int64_t heap_time(const Heap *h)
{
    return h->len ? h->item[0].time : INT64_MAX;
}

#endif
