/*
 * qrnic engine: DMA, the one door to guest memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/memory.h"

bool qrnic_dma_read(QrnicEngine *e, uint64_t addr, void *buf, size_t len)
{
    if (!len) {
        return true;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_READS, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_READ_BYTES, len);
    trace_qrnic_dma_read(e->config.name, addr, len);
    if (e->env.dma_read(e->env.opaque, addr, buf, len)) {
        return true;
    }
    memset(buf, 0, len);
    qrnic_add(e, QRNIC_COUNTER_DMA_ERRORS, 1);
    qrnic_guest_error(e, QRNIC_GE_DMA_FAILED, "DMA", 0,
                      "read of %zu bytes at 0x%" PRIx64, len, addr);
    return false;
}

bool qrnic_dma_write(QrnicEngine *e, uint64_t addr, const void *buf,
                     size_t len)
{
    if (!len) {
        return true;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITES, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITE_BYTES, len);
    trace_qrnic_dma_write(e->config.name, addr, len);
    if (e->env.dma_write(e->env.opaque, addr, buf, len)) {
        return true;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_ERRORS, 1);
    qrnic_guest_error(e, QRNIC_GE_DMA_FAILED, "DMA", 0,
                      "write of %zu bytes at 0x%" PRIx64, len, addr);
    return false;
}
