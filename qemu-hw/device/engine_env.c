/*
 * qrnic: the operations of the engine's environment (engine/env.h) in QEMU
 *
 * qrnic_engine_plug() creates the engine with this table when the device is
 * realized. The engine calls the operations only while the device is entered
 * (work.c), or reset. Each operation passes the call to bus.c, port.c,
 * interrupts.c or state.c.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "device/faces.h"
#include "device/parts.h"

static bool env_dma_read(void *opaque, uint64_t addr, void *buf, size_t len)
{
    return qrnic_bus_read(opaque, addr, buf, len);
}

static bool env_dma_write(void *opaque, uint64_t addr, const void *buf,
                          size_t len)
{
    return qrnic_bus_write(opaque, addr, buf, len);
}

static bool env_dma_atomic(void *opaque, uint64_t addr, QrnicAtomic *op)
{
    return qrnic_bus_atomic(opaque, addr, op);
}

static QrnicTranslate env_translate(void *opaque, uint32_t pasid,
                                    uint64_t addr, bool write,
                                    QrnicTranslated *result)
{
    return qrnic_translate(opaque, pasid, addr, write, result);
}

static bool env_page_request(void *opaque, uint32_t pasid, uint64_t addr,
                             bool write, uint16_t group, bool last)
{
    return qrnic_page_request_send(opaque, pasid, addr, write, group, last);
}

static bool env_translated_read(void *opaque, uint64_t addr, void *buf,
                                size_t len)
{
    return qrnic_bus_read_translated(opaque, addr, buf, len);
}

static bool env_translated_write(void *opaque, uint64_t addr, const void *buf,
                                 size_t len)
{
    return qrnic_bus_write_translated(opaque, addr, buf, len);
}

static bool env_translated_atomic(void *opaque, uint64_t addr, QrnicAtomic *op)
{
    return qrnic_bus_atomic_translated(opaque, addr, op);
}

static void env_dm_read(void *opaque, uint64_t offset, void *buf, size_t len)
{
    QrnicDevice *d = opaque;

    memcpy(buf, memory_region_get_ram_ptr(&d->bar_memory) + offset, len);
}

static void env_dm_write(void *opaque, uint64_t offset, const void *buf,
                         size_t len)
{
    QrnicDevice *d = opaque;

    memcpy(memory_region_get_ram_ptr(&d->bar_memory) + offset, buf, len);
    memory_region_set_dirty(&d->bar_memory, offset, len);
}

static bool env_dm_atomic(void *opaque, uint64_t offset, QrnicAtomic *op)
{
    QrnicDevice *d = opaque;
    uint8_t *ram = memory_region_get_ram_ptr(&d->bar_memory);

    if (!qrnic_host_atomic((uint64_t *)(ram + offset), op)) {
        return false;
    }
    memory_region_set_dirty(&d->bar_memory, offset, sizeof(uint64_t));
    return true;
}

static bool env_send(void *opaque, const uint8_t *frame, size_t len)
{
    QrnicDevice *d = opaque;

    return !qrnic_on_bus(d) || qrnic_port_send(d, frame, len);
}

static void env_notify(void *opaque, unsigned vector)
{
    qrnic_notify(opaque, vector);
}

static int64_t env_clock_ns(void *opaque)
{
    return qrnic_clock_ns(opaque);
}

static int64_t env_real_time_ns(void *opaque)
{
    return g_get_real_time() * SCALE_US;
}

static void env_timer_arm(void *opaque, int64_t deadline_ns)
{
    QrnicDevice *d = opaque;

    if (deadline_ns == QRNIC_DEADLINE_NEVER) {
        timer_del(d->timer);
    } else {
        qrnic_timer_arm(d, d->timer, deadline_ns);
    }
}

static void env_kick(void *opaque)
{
    QrnicDevice *d = opaque;

    if (!qrnic_kicks_note(d)) {
        qrnic_kick(d);
    }
}

static void env_filter(void *opaque, const QrnicRxFilter *filter)
{
    QrnicDevice *d = opaque;

    if (d->wire->filter) {
        d->wire->filter(d, filter);
    }
}

static QrnicResult env_vf_set(void *opaque, uint32_t number,
                              const QrnicVfCtx *in)
{
    QrnicDevice *d = opaque;

    return d->wire->vf_set(d, number, in);
}

static QrnicResult env_vf_query(void *opaque, uint32_t number, QrnicVfAttr *out)
{
    QrnicDevice *d = opaque;

    return d->wire->vf_query(d, number, out);
}

static void env_fatal(void *opaque, unsigned cause, uint32_t info)
{
    QrnicDevice *d = opaque;

    d->regs.health = cause;
    d->regs.health_info = info;
}

static void timer_fired(void *opaque)
{
    QrnicDevice *d = opaque;

    qrnic_pending_add(d, QRNIC_PENDING_TIMER);
    qrnic_kick(d);
}

void qrnic_engine_plug(QrnicDevice *d)
{
    const QrnicEnv env = {
        .opaque = d,
        .dma_read = env_dma_read,
        .dma_write = env_dma_write,
        .dma_atomic = env_dma_atomic,
        .translate = d->shared_virtual ? env_translate : NULL,
        .page_request = env_page_request,
        .translated_read = env_translated_read,
        .translated_write = env_translated_write,
        .translated_atomic = env_translated_atomic,
        .dm_read = env_dm_read,
        .dm_write = env_dm_write,
        .dm_atomic = env_dm_atomic,
        .send = env_send,
        .notify = env_notify,
        .clock_ns = env_clock_ns,
        .real_time_ns = env_real_time_ns,
        .timer_arm = env_timer_arm,
        .kick = env_kick,
        .filter = env_filter,
        .vf_set = env_vf_set,
        .vf_query = env_vf_query,
        .fatal = env_fatal,
    };

    d->timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, timer_fired, d);
    d->engine = qrnic_engine_new(&d->config, &env);
}
