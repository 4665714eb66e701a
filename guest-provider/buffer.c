// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * buffer.c: memory of queues and doorbell records. The kernel pins this memory,
 * and the device reads and writes it by DMA.
 *
 * Files that create or resize queues call this file. Memory comes from the
 * allocator of a parent domain, from a slab if it is small, or from mmap(). The
 * mutex of the slabs is held only in this file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "qrnic.h"

/*
 * Allocates with the allocator of the parent domain. Returns false if there is
 * no allocator, or if the allocator requests the default.
 */
static bool alloc_from_user(struct qrnic_context *ctx, struct qrnic_buffer *buf,
			    size_t length, struct qrnic_pd *pd,
			    uint64_t resource_type)
{
	void *addr;

	if (!pd || !pd->alloc)
		return false;
	addr = pd->alloc(&pd->pd, pd->pd_context, length, ctx->page_size,
			 resource_type);
	if (addr == IBV_ALLOCATOR_USE_DEFAULT)
		return false;
	buf->addr = addr;
	if (addr) {
		memset(addr, 0, length);
		buf->pd = pd;
		buf->resource_type = resource_type;
	}
	return true;
}

/* Maps pages. New pages are zero, as the manual requires of rings. */
static int alloc_pages(void **addr, size_t length)
{
	void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return ENOMEM;
	/*
	 * After a fork, the first write would give this process a new page
	 * while the device still uses the old page. So the child does not get
	 * the pages.
	 */
	if (ibv_dontfork_range(pages, length)) {
		munmap(pages, length);
		return ENOMEM;
	}
	*addr = pages;
	return 0;
}

static void free_pages(void *addr, size_t length)
{
	ibv_dofork_range(addr, length);
	munmap(addr, length);
}

/*
 * A slab consists of pages that small buffers of one size share. Freed buffers
 * are reused, because mapping, faulting in and unmapping pages is the most
 * expensive part of creating a queue pair.
 */
#define SLAB_LENGTH	(64u << 10)
#define SLAB_WORDS	(SLAB_LENGTH >> QRNIC_SLAB_SHIFT >> 6)

struct qrnic_slab {
	struct list_node entry;
	struct qrnic_context *ctx;
	void *addr;
	unsigned int size;
	unsigned int parts;
	unsigned int taken;
	/* Buffers that are in use, and buffers that were ever used */
	uint64_t used[SLAB_WORDS];
	uint64_t dirty[SLAB_WORDS];
};

void qrnic_slabs_init(struct qrnic_slabs *slabs)
{
	unsigned int i;

	pthread_mutex_init(&slabs->mutex, NULL);
	list_head_init(&slabs->full);
	for (i = 0; i < QRNIC_SLAB_SIZES; i++)
		list_head_init(&slabs->room[i]);
}

static void slab_free(struct qrnic_slab *slab)
{
	list_del(&slab->entry);
	free_pages(slab->addr, SLAB_LENGTH);
	free(slab);
}

static void slab_list_free(struct list_head *slabs)
{
	struct qrnic_slab *slab, *next;

	list_for_each_safe(slabs, slab, next, entry)
		slab_free(slab);
}

void qrnic_slabs_destroy(struct qrnic_slabs *slabs)
{
	unsigned int i;

	slab_list_free(&slabs->full);
	for (i = 0; i < QRNIC_SLAB_SIZES; i++)
		slab_list_free(&slabs->room[i]);
	pthread_mutex_destroy(&slabs->mutex);
}

static struct qrnic_slab *slab_new(struct qrnic_context *ctx, unsigned int size)
{
	struct qrnic_slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return NULL;
	if (alloc_pages(&slab->addr, SLAB_LENGTH)) {
		free(slab);
		return NULL;
	}
	slab->ctx = ctx;
	slab->size = size;
	slab->parts = SLAB_LENGTH >> (QRNIC_SLAB_SHIFT + size);
	list_add(&ctx->slabs.room[size], &slab->entry);
	return slab;
}

/*
 * Returns a zeroed buffer of a slab with space. Only used buffers need
 * clearing, because new pages are zero.
 */
static void *slab_get(struct qrnic_slab *slab)
{
	size_t length = (size_t)1 << (QRNIC_SLAB_SHIFT + slab->size);
	unsigned int word = 0, part;
	uint64_t bit;
	void *addr;

	while (!~slab->used[word])
		word++;
	part = word * 64 + __builtin_ctzll(~slab->used[word]);
	bit = (uint64_t)1 << (part % 64);
	addr = slab->addr + part * length;
	if (slab->dirty[word] & bit)
		memset(addr, 0, length);
	slab->used[word] |= bit;
	slab->dirty[word] |= bit;
	if (++slab->taken == slab->parts) {
		list_del(&slab->entry);
		list_add(&slab->ctx->slabs.full, &slab->entry);
	}
	return addr;
}

static bool slabs_alloc(struct qrnic_context *ctx, struct qrnic_buffer *buf,
		       size_t length)
{
	struct qrnic_slabs *slabs = &ctx->slabs;
	struct qrnic_slab *slab;
	unsigned int size = 0;

	while (size < QRNIC_SLAB_SIZES && length > (size_t)1 << (QRNIC_SLAB_SHIFT + size))
		size++;
	if (!ctx->small_queues || size == QRNIC_SLAB_SIZES)
		return false;

	pthread_mutex_lock(&slabs->mutex);
	slab = list_top(&slabs->room[size], struct qrnic_slab, entry);
	if (!slab)
		slab = slab_new(ctx, size);
	if (slab) {
		buf->addr = slab_get(slab);
		buf->length = (size_t)1 << (QRNIC_SLAB_SHIFT + size);
		buf->slab = slab;
	}
	pthread_mutex_unlock(&slabs->mutex);
	return slab;
}

/*
 * Frees a buffer. An empty slab is freed unless it is the only slab of its size
 * with space. Otherwise a program that creates and destroys one queue pair
 * would map pages each time.
 */
static void slabs_free(struct qrnic_buffer *buf)
{
	struct qrnic_slab *slab = buf->slab;
	struct qrnic_slabs *slabs = &slab->ctx->slabs;
	struct list_head *room = &slabs->room[slab->size];
	unsigned int part = (buf->addr - slab->addr) >>
			    (QRNIC_SLAB_SHIFT + slab->size);

	pthread_mutex_lock(&slabs->mutex);
	if (slab->taken == slab->parts) {
		list_del(&slab->entry);
		list_add(room, &slab->entry);
	}
	slab->used[part / 64] &= ~((uint64_t)1 << (part % 64));
	if (--slab->taken == 0 &&
	    (list_top(room, struct qrnic_slab, entry) != slab ||
	     list_tail(room, struct qrnic_slab, entry) != slab))
		slab_free(slab);
	pthread_mutex_unlock(&slabs->mutex);
}

int qrnic_buffer_alloc(struct qrnic_context *ctx, struct qrnic_buffer *buf,
		       size_t length, struct qrnic_pd *pd,
		       uint64_t resource_type)
{
	size_t whole = align(length, ctx->page_size);

	memset(buf, 0, sizeof(*buf));
	if (alloc_from_user(ctx, buf, whole, pd, resource_type)) {
		if (!buf->addr)
			return ENOMEM;
		if (ibv_dontfork_range(buf->addr, whole)) {
			pd->free(&pd->pd, pd->pd_context, buf->addr,
				 resource_type);
			memset(buf, 0, sizeof(*buf));
			return ENOMEM;
		}
	} else if (slabs_alloc(ctx, buf, length)) {
		return 0;
	} else if (alloc_pages(&buf->addr, whole)) {
		return ENOMEM;
	}
	buf->length = whole;
	return 0;
}

void qrnic_buffer_free(struct qrnic_buffer *buf)
{
	struct qrnic_pd *pd = buf->pd;

	if (!buf->addr)
		return;
	if (buf->slab) {
		slabs_free(buf);
	} else if (pd) {
		ibv_dofork_range(buf->addr, buf->length);
		pd->free(&pd->pd, pd->pd_context, buf->addr,
			 buf->resource_type);
	} else {
		free_pages(buf->addr, buf->length);
	}
	memset(buf, 0, sizeof(*buf));
}
