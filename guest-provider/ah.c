// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ah.c: address handles. The kernel driver resolves and checks the address; what
 * a datagram's WQE needs of it is kept here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qrnic.h"
#include "abi.h"

struct ibv_ah *qrnic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct qrnic_create_ah_cmd_resp resp = {};
	struct qrnic_ah *ah;
	int err;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;

	err = ibv_cmd_create_ah(pd, &ah->ah, attr, &resp.ibv_resp,
				sizeof(resp));
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}
	static_assert(sizeof(ah->av) == sizeof(resp.av), "address vector");
	memcpy(&ah->av, resp.av, sizeof(ah->av));
	return &ah->ah;
}

int qrnic_destroy_ah(struct ibv_ah *ibah)
{
	int err = ibv_cmd_destroy_ah(ibah);

	if (err)
		return err;
	free(to_qrnic_ah(ibah));
	return 0;
}
