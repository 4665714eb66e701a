/*
 * qrnic engine: tables of objects
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/core/core.h"

void qrnic_table_init(QrnicTable *t, uint32_t first, uint32_t limit)
{
    t->slot = g_new0(void *, limit);
    t->limit = limit;
    t->first = first;
    t->used = 0;
    t->hint = first;
}

void qrnic_table_cleanup(QrnicTable *t)
{
    g_free(t->slot);
    memset(t, 0, sizeof(*t));
}

bool qrnic_table_insert(QrnicTable *t, void *object, uint32_t *number)
{
    uint32_t n;

    if (t->used >= t->limit - t->first) {
        return false;
    }
    for (n = t->hint; t->slot[n]; ) {
        n = n + 1 < t->limit ? n + 1 : t->first;
    }
    t->slot[n] = object;
    t->used++;
    t->hint = n + 1 < t->limit ? n + 1 : t->first;
    *number = n;
    return true;
}

void qrnic_table_insert_at(QrnicTable *t, void *object, uint32_t number)
{
    assert(number < t->first && !t->slot[number]);
    t->slot[number] = object;
}

void *qrnic_table_remove(QrnicTable *t, uint32_t number)
{
    void *object = qrnic_table_get(t, number);

    if (object) {
        t->slot[number] = NULL;
        t->used -= number >= t->first;
    }
    return object;
}

void qrnic_table_free_objects(QrnicTable *t)
{
    for (uint32_t n = 0; n < t->limit; n++) {
        g_free(t->slot[n]);
    }
    qrnic_table_cleanup(t);
}
