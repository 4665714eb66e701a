/*
 * A binary heap; see heap.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "heap.h"

#define ROOM_FIRST 64

static bool before(const HeapItem *a, const HeapItem *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

void heap_push(Heap *h, HeapItem item)
{
    size_t at = h->len++;

    if (h->len > h->room) {
        h->room = h->room ? 2 * h->room : ROOM_FIRST;
        h->item = g_renew(HeapItem, h->item, h->room);
    }
    while (at && before(&item, &h->item[(at - 1) / 2])) {
        h->item[at] = h->item[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->item[at] = item;
}

HeapItem heap_pop(Heap *h)
{
    HeapItem first = h->item[0], last;
    size_t at = 0, child;

    g_assert_cmpuint(h->len, >, 0);
    last = h->item[--h->len];
    while ((child = 2 * at + 1) < h->len) {
        if (child + 1 < h->len &&
            before(&h->item[child + 1], &h->item[child])) {
            child++;
        }
        if (!before(&h->item[child], &last)) {
            break;
        }
        h->item[at] = h->item[child];
        at = child;
    }
    h->item[at] = last;
    return first;
}

void heap_free(Heap *h)
{
    g_free(h->item);
    *h = (Heap) { 0 };
}
