/*
 * qrnic engine: storage: tables of objects, and buffers
 *
 * All layers use it. An object's number is its index in a table. A buffer is
 * memory that an object needs only while its work is in flight. So an idle
 * queue pair has no buffer. Buffers are sorted into classes by size. Each class
 * keeps up to KEPT free buffers, because a busy queue pair gets and frees
 * buffers all the time.
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

/*
 * Free buffers that a class keeps. With the address sanitizer a class keeps no
 * buffer, because the sanitizer detects a use after free only in freed memory.
 */
#ifdef QEMU_SANITIZE_ADDRESS
#define KEPT 0
#else
#define KEPT 32
#endif

static QrnicBufferClass *class_of(QrnicEngine *e, size_t size)
{
    unsigned i = (size - 1) / QRNIC_BUFFER_STEP;

    assert(size && i < ARRAY_SIZE(e->buffers));
    return &e->buffers[i];
}

void *qrnic_buffer_get(QrnicEngine *e, size_t size)
{
    QrnicBufferClass *c = class_of(e, size);
    void *buffer = c->first;

    if (!buffer) {
        return g_malloc(QEMU_ALIGN_UP(size, QRNIC_BUFFER_STEP));
    }
    /*
     * A free buffer begins with the address of the next free buffer, so that
     * the list needs no memory.
     */
    memcpy(&c->first, buffer, sizeof(c->first));
    c->count--;
    return buffer;
}

void qrnic_buffer_put(QrnicEngine *e, void *buffer, size_t size)
{
    QrnicBufferClass *c = class_of(e, size);

    if (!buffer) {
        return;
    }
    if (c->count == KEPT) {
        g_free(buffer);
        return;
    }
    memcpy(buffer, &c->first, sizeof(c->first));
    c->first = buffer;
    c->count++;
}

void qrnic_buffers_cleanup(QrnicEngine *e)
{
    for (unsigned i = 0; i < ARRAY_SIZE(e->buffers); i++) {
        QrnicBufferClass *c = &e->buffers[i];

        while (c->count) {
            g_free(qrnic_buffer_get(e, (i + 1) * QRNIC_BUFFER_STEP));
        }
    }
}
