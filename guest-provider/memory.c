// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * memory.c: protection domains and memory regions; the kernel driver does the
 * work.
 */
#include <errno.h>
#include <stdlib.h>

#include "qrnic.h"
#include "abi.h"

struct ibv_pd *qrnic_alloc_pd(struct ibv_context *context)
{
	struct qrnic_alloc_pd_cmd_resp resp = {};
	struct ibv_alloc_pd cmd = {};
	struct qrnic_pd *pd;
	int err;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	err = ibv_cmd_alloc_pd(context, &pd->pd, &cmd, sizeof(cmd),
			       &resp.ibv_resp, sizeof(resp));
	if (err) {
		free(pd);
		errno = err;
		return NULL;
	}
	pd->pdn = resp.pdn;
	return &pd->pd;
}

int qrnic_dealloc_pd(struct ibv_pd *ibpd)
{
	int err = ibv_cmd_dealloc_pd(ibpd);

	if (err)
		return err;
	free(to_qrnic_pd(ibpd));
	return 0;
}

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

int qrnic_dereg_mr(struct verbs_mr *vmr)
{
	int err = ibv_cmd_dereg_mr(vmr);

	if (err)
		return err;
	free(vmr);
	return 0;
}
