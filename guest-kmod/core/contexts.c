// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * contexts.c: memory for the images of contexts, of a device with a context cache
 * (manual, Context cache).
 */
#include "core/core.h"

/* Of an honest device with the most queue pairs: 64 MiB */
#define QRNIC_CONTEXT_IMAGES_MAX (QRNIC_OBJECTS_MAX + 2)

/*
 * The device need not be trusted: it gets what the contract lets it ask for, or
 * nothing. It works without, with as many connections as its cache has room for.
 */
static size_t qrnic_contexts_bytes(struct qrnic_core *core)
{
	struct qrnic_context_attr attr;
	u32 images;

	if (qrnic_cmd_query(&core->dev, QRNIC_CMD_QUERY_CONTEXTS, 0, &attr,
			    sizeof(attr)))
		return 0;
	images = le32_to_cpu(attr.images);
	if (le32_to_cpu(attr.image_size) != QRNIC_CONTEXT_IMAGE_SIZE || !images ||
	    images > QRNIC_CONTEXT_IMAGES_MAX)
		return 0;
	return (size_t)images * QRNIC_CONTEXT_IMAGE_SIZE;
}

static int qrnic_contexts_give(struct qrnic_core *core, size_t bytes)
{
	struct qrnic_context_memory memory = { .length = cpu_to_le64(bytes) };
	int err;

	err = qrnic_ring_alloc(&core->dev, &core->contexts, bytes);
	if (err)
		return err;
	memory.memory = core->contexts.hw;
	err = qrnic_cmd_set(&core->dev, QRNIC_CMD_SET_CONTEXTS, 0, &memory,
			    sizeof(memory));
	/* One that has not answered may have it all the same: it goes by reset. */
	if (err && err != -ETIMEDOUT)
		qrnic_contexts_stop(core);
	return err;
}

void qrnic_contexts_start(struct qrnic_core *core)
{
	size_t bytes;
	int err = -EPROTO;

	if (!(core->dev.caps.capabilities & QRNIC_CAP_CONTEXT_CACHE))
		return;
	bytes = qrnic_contexts_bytes(core);
	if (bytes)
		err = qrnic_contexts_give(core, bytes);
	if (err)
		dev_warn(&core->dev.pdev->dev,
			 "no context memory (error %d): few connections\n", err);
}

void qrnic_contexts_stop(struct qrnic_core *core)
{
	qrnic_ring_free(&core->dev, &core->contexts);
}
