/*
 * qrnic engine: buffers for what is under way
 *
 * A queue pair that does nothing holds none of them, and one that sends or
 * receives takes and returns them all the time: so a few of each size stay
 * for the next one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/core/core.h"

/* With the sanitizer each one is freed, so that a use behind that shows. */
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
    /* A free one begins with the address of the next. */
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
