// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ah.c: address handles. No operation of this library takes one yet (that is for
 * datagrams); the kernel driver keeps and checks them.
 */
#include <errno.h>
#include <stdlib.h>

#include "qrnic.h"
#include "abi.h"

struct ibv_ah *qrnic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ib_uverbs_create_ah_resp resp = {};
	struct ibv_ah *ah;
	int err;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;

	err = ibv_cmd_create_ah(pd, ah, attr, &resp, sizeof(resp));
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}
	return ah;
}

int qrnic_destroy_ah(struct ibv_ah *ah)
{
	int err = ibv_cmd_destroy_ah(ah);

	if (err)
		return err;
	free(ah);
	return 0;
}
