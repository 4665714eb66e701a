// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * memory.c: memory regions and memory windows. The kernel driver does the work,
 * and libibverbs calls this file through the operations of qrnic.c. Windows are
 * bound by WQEs; see post.c. No lock is held.
 */
#include <errno.h>
#include <stdlib.h>

#include "commands.h"
#include "qrnic.h"

struct ibv_mr *qrnic_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			    uint64_t iova, int access)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	struct verbs_mr *vmr;
	int err;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	err = ibv_cmd_reg_mr(pd, addr, length, iova, access, vmr, &cmd,
			     sizeof(cmd), &resp, sizeof(resp));
	if (err) {
		free(vmr);
		errno = err;
		return NULL;
	}
	return &vmr->ibv_mr;
}

struct ibv_mr *qrnic_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				   size_t length, uint64_t iova, int fd,
				   int access)
{
	struct verbs_mr *vmr;
	int err;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	err = ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, vmr,
				    NULL);
	if (err) {
		free(vmr);
		errno = err;
		return NULL;
	}
	return &vmr->ibv_mr;
}

int qrnic_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd,
		   void *addr, size_t length, int access)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct ibv_rereg_mr cmd;

	/*
	 * A null region cannot be changed, because all null regions of the PD
	 * share its key
	 */
	if (vmr->mr_type == IBV_MR_TYPE_NULL_MR)
		return EINVAL;
	return ibv_cmd_rereg_mr(vmr, flags, addr, length, (uintptr_t)addr,
				access, pd, &cmd, sizeof(cmd), &resp,
				sizeof(resp));
}

/*
 * Returns a null region. All null regions of a PD have the same key, because
 * they do not differ.
 */
struct ibv_mr *qrnic_alloc_null_mr(struct ibv_pd *ibpd)
{
	struct qrnic_pd *pd = to_qrnic_pd(ibpd);
	struct verbs_mr *vmr;
	uint32_t key;
	int err;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	err = qrnic_pd_null_key(ibpd, &key);
	if (err) {
		free(vmr);
		errno = err;
		return NULL;
	}
	vmr->mr_type = IBV_MR_TYPE_NULL_MR;
	vmr->ibv_mr.context = ibpd->context;
	vmr->ibv_mr.pd = ibpd;
	vmr->ibv_mr.length = SIZE_MAX;
	vmr->ibv_mr.lkey = key;
	atomic_fetch_add(&pd->users, 1);
	return &vmr->ibv_mr;
}

int qrnic_dereg_mr(struct verbs_mr *vmr)
{
	int err;

	if (vmr->mr_type == IBV_MR_TYPE_NULL_MR) {
		atomic_fetch_sub(&to_qrnic_pd(vmr->ibv_mr.pd)->users, 1);
	} else {
		err = ibv_cmd_dereg_mr(vmr);
		if (err)
			return err;
	}
	free(vmr);
	return 0;
}

struct ibv_mr *qrnic_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct verbs_mr *vmr;
	int err;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	err = ibv_cmd_query_mr(pd, vmr, handle);
	if (err) {
		free(vmr);
		errno = err;
		return NULL;
	}
	return &vmr->ibv_mr;
}

/*
 * Frees only the local object. The region exists until the exporting process
 * deregisters it.
 */
void qrnic_unimport_mr(struct ibv_mr *mr)
{
	free(verbs_get_mr(mr));
}

struct ibv_mw *qrnic_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp resp;
	struct ibv_alloc_mw cmd;
	struct ibv_mw *mw;
	int err;

	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;

	err = ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp,
			       sizeof(resp));
	if (err) {
		free(mw);
		errno = err;
		return NULL;
	}
	return mw;
}

int qrnic_dealloc_mw(struct ibv_mw *mw)
{
	int err = ibv_cmd_dealloc_mw(mw);

	if (err)
		return err;
	free(mw);
	return 0;
}
