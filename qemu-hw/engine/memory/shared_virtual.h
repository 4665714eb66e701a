/*
 * qrnic engine, layer memory: shared virtual addressing
 *
 * A key with MKEYF_PASID covers virtual addresses of a process, which the IOMMU
 * translates. The address translation cache (translation_cache.c) keeps the
 * translations that the environment returned. Accesses (shared_virtual.c) look
 * up each page in the cache, or request its translation. Only the other files
 * of memory/ use this header. Manual, chapter "Shared virtual addressing".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_SHARED_VIRTUAL_H
#define QRNIC_ENGINE_SHARED_VIRTUAL_H

#include "engine/memory/memory.h"

/**
 * qrnic_atc_init:
 * @e: the engine
 *
 * Creates the cache, or none without CAP_SHARED_VIRTUAL.
 */
void qrnic_atc_init(QrnicEngine *e);
/**
 * qrnic_atc_cleanup:
 * @e: the engine
 */
void qrnic_atc_cleanup(QrnicEngine *e);
/**
 * qrnic_atc_drop:
 * @e: the engine
 *
 * Drops all translations, at a reset, without counting an invalidation.
 */
void qrnic_atc_drop(QrnicEngine *e);
/**
 * qrnic_atc_find:
 * @e: the engine
 * @pasid: PASID of the process
 * @addr: virtual address
 * @write: true if the access writes
 * @t: receives the translation
 *
 * Returns: true, or false if the cache has no translation with this right
 */
bool qrnic_atc_find(QrnicEngine *e, uint32_t pasid, uint64_t addr, bool write,
                    QrnicTranslated *t);
/**
 * qrnic_atc_insert:
 * @e: the engine
 * @pasid: PASID of the process
 * @addr: virtual address in the page
 * @t: the translation, which may replace one of the same page
 */
void qrnic_atc_insert(QrnicEngine *e, uint32_t pasid, uint64_t addr,
                      const QrnicTranslated *t);
/**
 * qrnic_atc_chain:
 * @key: odd multipliers
 * @pasid: PASID of the process
 * @shift: log2 of the page size
 * @page: virtual address >> @shift
 * @bits: log2 of the number of hash chains, at most 32
 *
 * Returns: the number of the hash chain in which the entry of the page is
 */
uint32_t qrnic_atc_chain(const uint64_t key[2], uint32_t pasid, unsigned shift,
                         uint64_t page, unsigned bits);
/**
 * qrnic_atc_invalidations:
 * @e: the engine
 *
 * Returns: the number of invalidations so far. If the number changes during a
 * request, the translation of the request may be outdated.
 */
uint64_t qrnic_atc_invalidations(const QrnicEngine *e);

/**
 * qrnic_process_check:
 * @e: the engine
 * @in: context of a new key of type MR with MKEYF_PASID
 *
 * Returns: the result of the command that creates the key
 */
QrnicResult qrnic_process_check(QrnicEngine *e, const QrnicMkeyCtx *in);
/**
 * qrnic_process_range_check:
 * @e: the engine
 * @range: virtual addresses, in the form of a table
 * @length: number of bytes
 * @bad_offset: receives the offset of the invalid member of @range
 *
 * Returns: true if the range is valid
 */
bool qrnic_process_range_check(QrnicEngine *e, const QrnicTranslation *range,
                               uint64_t length, uint32_t *bad_offset);
/**
 * qrnic_process_address:
 * @k: a valid key with MKEYF_PASID
 * @addr: address that the key's user names, in the range of the key
 *
 * Returns: the virtual address
 */
static inline uint64_t qrnic_process_address(const QrnicMkey *k, uint64_t addr)
{
    return addr - k->ctx.start + k->ctx.table.root;
}
/**
 * qrnic_process_translate:
 * @e: the engine
 * @k: a valid key with MKEYF_PASID
 * @addr: address that the key's user names, in the range of the key
 * @write: true if the access writes
 * @to: receives the translated address
 * @contiguous: receives the number of bytes from there to the end of the page
 *
 * A translated address is valid until the next operation of QrnicEnv, because
 * an invalidation may come in any operation. Only qrnic_translated_read(),
 * qrnic_translated_write() and translated_atomic accept such an address.
 *
 * Returns: SYN_NONE; SYN_PAGE_FAULT if the page is absent, or read-only for a
 * write; or SYN_DMA if the IOMMU has rejected the request
 */
enum qrnic_syndrome qrnic_process_translate(QrnicEngine *e, const QrnicMkey *k,
                                            uint64_t addr, bool write,
                                            uint64_t *to,
                                            uint64_t *contiguous);
/**
 * qrnic_process_read:
 * @e: the engine
 * @k: a valid key with MKEYF_PASID
 * @addr: address that the key's user names, in the range of the key
 * @buf: receives the data
 * @len: number of bytes
 * @absent: receives the offset of the byte whose translation failed
 *
 * Returns: as qrnic_process_translate(), and SYN_DMA if the DMA failed. If an
 * error is returned, a part may have been read.
 */
enum qrnic_syndrome qrnic_process_read(QrnicEngine *e, const QrnicMkey *k,
                                       uint64_t addr, void *buf, size_t len,
                                       uint64_t *absent);
/**
 * qrnic_process_write:
 * @e: the engine
 * @k: a valid key with MKEYF_PASID
 * @addr: address that the key's user names, in the range of the key
 * @buf: the data
 * @len: number of bytes
 * @absent: receives the offset of the byte whose translation failed
 *
 * Returns: as qrnic_process_read()
 */
enum qrnic_syndrome qrnic_process_write(QrnicEngine *e, const QrnicMkey *k,
                                        uint64_t addr, const void *buf,
                                        size_t len, uint64_t *absent);

#endif
