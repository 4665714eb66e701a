// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * buffer.c: memory of queues and doorbell records, which the kernel pins and the
 * device reads and writes by DMA.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "qrnic.h"

/*
 * Takes memory from the allocator of the parent domain; false if there is none, or if
 * it wants the default
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

/* Fresh pages are zero, as the manual wants rings to be */
static int alloc_pages(void **addr, size_t length)
{
	void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return ENOMEM;
	/*
	 * After a fork the first write would give this process a new page while
	 * the device keeps the old one.
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
 * The pool: to map, to fault in and to unmap pages costs more than all else of a queue
 * pair, so small buffers of one size share pages, and are taken again.
 */
#define CHUNK_LENGTH	(64u << 10)
#define CHUNK_WORDS	(CHUNK_LENGTH >> QRNIC_POOL_SHIFT >> 6)

struct qrnic_chunk {
	struct list_node entry;
	struct qrnic_context *ctx;
	void *addr;
	unsigned int size;
	unsigned int parts;
	unsigned int taken;
	/* Parts that are taken now, and those that ever were */
	uint64_t used[CHUNK_WORDS];
	uint64_t dirty[CHUNK_WORDS];
};

void qrnic_pool_init(struct qrnic_pool *pool)
{
	unsigned int i;

	pthread_mutex_init(&pool->mutex, NULL);
	list_head_init(&pool->full);
	for (i = 0; i < QRNIC_POOL_SIZES; i++)
		list_head_init(&pool->room[i]);
}

static void chunk_free(struct qrnic_chunk *chunk)
{
	list_del(&chunk->entry);
	free_pages(chunk->addr, CHUNK_LENGTH);
	free(chunk);
}

static void chunks_free(struct list_head *chunks)
{
	struct qrnic_chunk *chunk, *next;

	list_for_each_safe(chunks, chunk, next, entry)
		chunk_free(chunk);
}

void qrnic_pool_destroy(struct qrnic_pool *pool)
{
	unsigned int i;

	chunks_free(&pool->full);
	for (i = 0; i < QRNIC_POOL_SIZES; i++)
		chunks_free(&pool->room[i]);
	pthread_mutex_destroy(&pool->mutex);
}

static struct qrnic_chunk *chunk_new(struct qrnic_context *ctx, unsigned int size)
{
	struct qrnic_chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return NULL;
	if (alloc_pages(&chunk->addr, CHUNK_LENGTH)) {
		free(chunk);
		return NULL;
	}
	chunk->ctx = ctx;
	chunk->size = size;
	chunk->parts = CHUNK_LENGTH >> (QRNIC_POOL_SHIFT + size);
	list_add(&ctx->pool.room[size], &chunk->entry);
	return chunk;
}

/* Of a chunk that has room; zeroed */
static void *chunk_take(struct qrnic_chunk *chunk)
{
	size_t length = (size_t)1 << (QRNIC_POOL_SHIFT + chunk->size);
	unsigned int word = 0, part;
	uint64_t bit;
	void *addr;

	while (!~chunk->used[word])
		word++;
	part = word * 64 + __builtin_ctzll(~chunk->used[word]);
	bit = (uint64_t)1 << (part % 64);
	addr = chunk->addr + part * length;
	if (chunk->dirty[word] & bit)
		memset(addr, 0, length);
	chunk->used[word] |= bit;
	chunk->dirty[word] |= bit;
	if (++chunk->taken == chunk->parts) {
		list_del(&chunk->entry);
		list_add(&chunk->ctx->pool.full, &chunk->entry);
	}
	return addr;
}

static bool pool_alloc(struct qrnic_context *ctx, struct qrnic_buffer *buf,
		       size_t length)
{
	struct qrnic_pool *pool = &ctx->pool;
	struct qrnic_chunk *chunk;
	unsigned int size = 0;

	while (size < QRNIC_POOL_SIZES && length > (size_t)1 << (QRNIC_POOL_SHIFT + size))
		size++;
	if (!ctx->small_queues || size == QRNIC_POOL_SIZES)
		return false;

	pthread_mutex_lock(&pool->mutex);
	chunk = list_top(&pool->room[size], struct qrnic_chunk, entry);
	if (!chunk)
		chunk = chunk_new(ctx, size);
	if (chunk) {
		buf->addr = chunk_take(chunk);
		buf->length = (size_t)1 << (QRNIC_POOL_SHIFT + size);
		buf->chunk = chunk;
	}
	pthread_mutex_unlock(&pool->mutex);
	return chunk;
}

/* An empty chunk stays if it is the only one of its size that has room. */
static void pool_free(struct qrnic_buffer *buf)
{
	struct qrnic_chunk *chunk = buf->chunk;
	struct qrnic_pool *pool = &chunk->ctx->pool;
	struct list_head *room = &pool->room[chunk->size];
	unsigned int part = (buf->addr - chunk->addr) >>
			    (QRNIC_POOL_SHIFT + chunk->size);

	pthread_mutex_lock(&pool->mutex);
	if (chunk->taken == chunk->parts) {
		list_del(&chunk->entry);
		list_add(room, &chunk->entry);
	}
	chunk->used[part / 64] &= ~((uint64_t)1 << (part % 64));
	if (--chunk->taken == 0 &&
	    (list_top(room, struct qrnic_chunk, entry) != chunk ||
	     list_tail(room, struct qrnic_chunk, entry) != chunk))
		chunk_free(chunk);
	pthread_mutex_unlock(&pool->mutex);
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
	} else if (pool_alloc(ctx, buf, length)) {
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
	if (buf->chunk) {
		pool_free(buf);
	} else if (pd) {
		ibv_dofork_range(buf->addr, buf->length);
		pd->free(&pd->pd, pd->pd_context, buf->addr,
			 buf->resource_type);
	} else {
		free_pages(buf->addr, buf->length);
	}
	memset(buf, 0, sizeof(*buf));
}
