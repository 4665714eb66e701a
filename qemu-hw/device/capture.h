/*
 * qrnic: captures the transactions of the bus and the frames of the wire
 *
 * With the property capture, the device writes a pcapng file with two
 * interfaces. The wire has Ethernet frames, and the bus has TLPs of PCI Express
 * (link type USER0). Each call below writes one transaction. Callers test
 * d->capture first, because it is NULL without the property.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_CAPTURE_H
#define QRNIC_DEVICE_CAPTURE_H

#include "device/device.h"

/**
 * qrnic_capture_start:
 * @d: the device; its name is set
 * @path: the property capture, or NULL
 * @qpn: the property capture-qp
 * @errp: receives the error
 *
 * Opens the file of the property capture, if there is one.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_capture_start(QrnicDevice *d, const char *path, uint32_t qpn,
                         Error **errp);
/**
 * qrnic_capture_use_name:
 * @use: purpose of a DMA access
 *
 * Returns: its name in comments and events
 */
const char *qrnic_capture_use_name(QrnicUse use);
/**
 * qrnic_capture_stop:
 * @d: the device
 *
 * Closes the file, if there is one.
 */
void qrnic_capture_stop(QrnicDevice *d);
/**
 * qrnic_capture_config:
 * @d: the device
 * @addr: offset in the configuration space
 * @len: number of bytes, 1 to 4
 * @value: value that is read or written
 * @write: true for a write
 *
 * Writes a configuration request and its completion.
 */
void qrnic_capture_config(QrnicDevice *d, uint32_t addr, unsigned len,
                          uint32_t value, bool write);
/**
 * qrnic_capture_mmio:
 * @d: the device
 * @bar: number of the BAR
 * @offset: offset in the BAR
 * @len: number of bytes, 1 to 8
 * @value: value that is read or written
 * @write: true for a write
 *
 * Writes a memory request of the guest, and the completion of a read.
 */
void qrnic_capture_mmio(QrnicDevice *d, unsigned bar, uint64_t offset,
                        unsigned len, uint64_t value, bool write);
/**
 * qrnic_capture_dma:
 * @d: the device
 * @addr: bus address
 * @buf: data that were read or written
 * @len: number of bytes
 * @write: true for a write
 * @ok: false if the access failed
 *
 * Writes the memory requests of a DMA access, divided as Max_Payload_Size and
 * Max_Read_Request_Size demand, and the completions of reads.
 */
void qrnic_capture_dma(QrnicDevice *d, uint64_t addr, const void *buf,
                       size_t len, bool write, bool ok);
/**
 * qrnic_capture_atomic:
 * @d: the device
 * @addr: bus address, a multiple of 8
 * @op: the operation with its original value
 *
 * Writes an AtomicOp request and its completion.
 */
void qrnic_capture_atomic(QrnicDevice *d, uint64_t addr, const QrnicAtomic *op);
/**
 * qrnic_capture_message:
 * @d: the device
 * @vector: number of the MSI-X vector
 * @addr: address of its message
 * @data: data of its message
 *
 * Writes the memory request of an interrupt.
 */
void qrnic_capture_message(QrnicDevice *d, unsigned vector, uint64_t addr,
                           uint32_t data);
/**
 * qrnic_capture_wire:
 * @d: the device
 * @frame: the frame
 * @len: number of bytes
 * @sent: true for a sent frame, false for a received one
 *
 * Writes a frame of the wire.
 */
void qrnic_capture_wire(QrnicDevice *d, const uint8_t *frame, size_t len,
                        bool sent);

#endif
