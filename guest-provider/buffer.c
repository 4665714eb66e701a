// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * buffer.c: memory of queues and doorbell records, which the kernel pins and the
 * device reads and writes by DMA.
 */
#include <errno.h>
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

static void give_back(struct qrnic_buffer *buf)
{
	struct qrnic_pd *pd = buf->pd;

	if (pd)
		pd->free(&pd->pd, pd->pd_context, buf->addr,
			 buf->resource_type);
	else
		munmap(buf->addr, buf->length);
	memset(buf, 0, sizeof(*buf));
}

int qrnic_buffer_alloc(struct qrnic_context *ctx, struct qrnic_buffer *buf,
		       size_t length, struct qrnic_pd *pd,
		       uint64_t resource_type)
{
	memset(buf, 0, sizeof(*buf));
	length = align(length, ctx->page_size);
	if (!alloc_from_user(ctx, buf, length, pd, resource_type)) {
		/* Fresh pages are zero, as the manual wants rings to be */
		buf->addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (buf->addr == MAP_FAILED)
			buf->addr = NULL;
	}
	if (!buf->addr)
		return ENOMEM;
	buf->length = length;
	/*
	 * After a fork the first write would give this process a new page while
	 * the device keeps the old one.
	 */
	if (ibv_dontfork_range(buf->addr, length)) {
		give_back(buf);
		return ENOMEM;
	}
	return 0;
}

void qrnic_buffer_free(struct qrnic_buffer *buf)
{
	if (!buf->addr)
		return;
	ibv_dofork_range(buf->addr, buf->length);
	give_back(buf);
}
