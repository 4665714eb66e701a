// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * buffer.c: memory of queues and doorbell records, which the kernel pins and the
 * device reads and writes by DMA.
 */
#include <errno.h>
#include <sys/mman.h>


#include "qrnic.h"

int qrnic_buffer_alloc(struct qrnic_context *ctx, struct qrnic_buffer *buf,
		       size_t length)
{
	length = align(length, ctx->page_size);
	/* Fresh pages are zero, as the manual wants rings and records to be */
	buf->addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf->addr == MAP_FAILED) {
		buf->addr = NULL;
		return ENOMEM;
	}
	/*
	 * After a fork the first write would give this process a new page while
	 * the device keeps the old one.
	 */
	if (ibv_dontfork_range(buf->addr, length)) {
		munmap(buf->addr, length);
		buf->addr = NULL;
		return ENOMEM;
	}
	buf->length = length;
	return 0;
}

void qrnic_buffer_free(struct qrnic_buffer *buf)
{
	if (!buf->addr)
		return;
	ibv_dofork_range(buf->addr, buf->length);
	munmap(buf->addr, buf->length);
	buf->addr = NULL;
}
