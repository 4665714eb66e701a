// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * device_memory.c: memory of the adapter that is mapped into the process
 * (manual, "Device memory"), and its regions. libibverbs calls this file
 * through the operations of qrnic.c. The program calls the copy functions. No
 * lock is held, because the memory belongs to the program.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/cmd_ioctl.h>
#include <util/mmio.h>

#include "commands.h"
#include "qrnic.h"

struct qrnic_dm {
	struct verbs_dm vdm;
	void *map;
	size_t map_length;
	/* Size that the program requested, in bytes */
	uint64_t length;
};

QRNIC_TO(dm, vdm.dm)

/*
 * Alignment of offsets and lengths, as with other adapters, so that programs
 * are portable
 */
#define DM_ACCESS_ALIGN 4

static bool dm_access_valid(const struct qrnic_dm *dm, uint64_t offset,
			    size_t length, int *err)
{
	if (offset > dm->length || length > dm->length - offset)
		*err = EFAULT;
	else if (offset % DM_ACCESS_ALIGN || length % DM_ACCESS_ALIGN)
		*err = EINVAL;
	else
		*err = 0;
	return !*err;
}

/*
 * The next two functions access the mapping by 4 bytes and by words of the CPU.
 * If a VMM emulates device memory, KVM cannot execute the wider accesses of
 * memcpy(), and the program would get SIGILL. KVM cannot execute the
 * instructions of the floating-point unit either, by which a CPU of 32 bits
 * accesses 8 bytes at once. Address and length are multiples of
 * DM_ACCESS_ALIGN.
 */
static void dm_write(uint8_t *to, const uint8_t *from, size_t length)
{
	size_t step;

	for (; length; to += step, from += step, length -= step) {
		unsigned long word;
		uint32_t value32;

		if (length >= sizeof(word) &&
		    !((uintptr_t)to % sizeof(word))) {
			step = sizeof(word);
			memcpy(&word, from, step);
			atomic_store_explicit((_Atomic(unsigned long) *)to, word,
					      memory_order_relaxed);
		} else {
			step = sizeof(value32);
			memcpy(&value32, from, step);
			atomic_store_explicit((_Atomic(uint32_t) *)to, value32,
					      memory_order_relaxed);
		}
	}
}

static void dm_read(uint8_t *to, const uint8_t *from, size_t length)
{
	size_t step;

	for (; length; to += step, from += step, length -= step) {
		unsigned long word;
		uint32_t value32;

		if (length >= sizeof(word) &&
		    !((uintptr_t)from % sizeof(word))) {
			step = sizeof(word);
			word = atomic_load_explicit(
				(_Atomic(unsigned long) *)from,
				memory_order_relaxed);
			memcpy(to, &word, step);
		} else {
			step = sizeof(value32);
			value32 = atomic_load_explicit(
				(_Atomic(uint32_t) *)from, memory_order_relaxed);
			memcpy(to, &value32, step);
		}
	}
}

static int dm_copy_to(struct ibv_dm *ibdm, uint64_t offset, const void *from,
		      size_t length)
{
	struct qrnic_dm *dm = to_qrnic_dm(ibdm);
	int err;

	if (!dm_access_valid(dm, offset, length, &err))
		return err;
	dm_write((uint8_t *)dm->map + offset, from, length);
	/*
	 * The mapping is write-combining. So the copy is flushed here, because
	 * otherwise a doorbell of any thread could overtake it.
	 */
	mmio_flush_writes();
	return 0;
}

static int dm_copy_from(void *to, struct ibv_dm *ibdm, uint64_t offset,
			size_t length)
{
	struct qrnic_dm *dm = to_qrnic_dm(ibdm);
	int err;

	if (!dm_access_valid(dm, offset, length, &err))
		return err;
	dm_read(to, (const uint8_t *)dm->map + offset, length);
	return 0;
}

static int dm_query(struct ibv_context *context, uint32_t handle,
		    uint64_t *offset, uint64_t *length)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DM, QRNIC_METHOD_DM_QUERY, 3);

	fill_attr_in_obj(cmd, QRNIC_ATTR_DM_QUERY_HANDLE, handle);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_DM_QUERY_OFFSET, offset);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_DM_QUERY_LENGTH, length);
	return execute_ioctl(context, cmd);
}

/* Maps the memory of a new or imported object and sets its members. */
static int dm_start(struct ibv_context *context, struct qrnic_dm *dm,
		    uint32_t handle)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	uint64_t offset, length;
	void *map;
	int err;

	err = dm_query(context, handle, &offset, &length);
	if (err)
		return err == EPROTONOSUPPORT ? EOPNOTSUPP : err;

	dm->length = length;
	dm->map_length = align(length, ctx->page_size);
	map = mmap(NULL, dm->map_length, PROT_READ | PROT_WRITE, MAP_SHARED,
		   context->cmd_fd, offset);
	if (map == MAP_FAILED)
		return errno;

	dm->map = map;
	dm->vdm.handle = handle;
	dm->vdm.dm.handle = handle;
	dm->vdm.dm.comp_mask = IBV_DM_MASK_HANDLE;
	dm->vdm.dm.context = context;
	dm->vdm.dm.memcpy_to_dm = dm_copy_to;
	dm->vdm.dm.memcpy_from_dm = dm_copy_from;
	return 0;
}

struct ibv_dm *qrnic_alloc_dm(struct ibv_context *context,
			      struct ibv_alloc_dm_attr *attr)
{
	struct qrnic_dm *dm;
	int err;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;

	err = ibv_cmd_alloc_dm(context, attr, &dm->vdm, NULL);
	if (err)
		goto err_free;
	err = dm_start(context, dm, dm->vdm.handle);
	if (err)
		goto err_kernel;
	return &dm->vdm.dm;

err_kernel:
	ibv_cmd_free_dm(&dm->vdm);
err_free:
	free(dm);
	errno = err;
	return NULL;
}

int qrnic_free_dm(struct ibv_dm *ibdm)
{
	struct qrnic_dm *dm = to_qrnic_dm(ibdm);
	int err = ibv_cmd_free_dm(&dm->vdm);

	if (err)
		return err;
	munmap(dm->map, dm->map_length);
	free(dm);
	return 0;
}

struct ibv_dm *qrnic_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct qrnic_dm *dm;
	int err;

	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;

	err = dm_start(context, dm, handle);
	if (err) {
		free(dm);
		errno = err;
		return NULL;
	}
	return &dm->vdm.dm;
}

/*
 * Frees only the local object. The memory exists until the exporting process
 * frees it.
 */
void qrnic_unimport_dm(struct ibv_dm *ibdm)
{
	struct qrnic_dm *dm = to_qrnic_dm(ibdm);

	munmap(dm->map, dm->map_length);
	free(dm);
}

struct ibv_mr *qrnic_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm,
			       uint64_t offset, size_t length,
			       unsigned int access)
{
	struct verbs_mr *vmr;
	int err;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	err = ibv_cmd_reg_dm_mr(pd, &to_qrnic_dm(ibdm)->vdm, offset, length,
				access, vmr, NULL);
	if (err) {
		free(vmr);
		errno = err;
		return NULL;
	}
	return &vmr->ibv_mr;
}
