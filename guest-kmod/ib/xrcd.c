// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * xrcd.c: XRC domains. Their SRQs are in srq.c, initiators and targets in qp.c.
 */
#include "qrnic_ib.h"

int qrnic_ib_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibxrcd->device);
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_XRC))
		return -EOPNOTSUPP;
	err = qrnic_udata_none(udata);
	if (err)
		return err;

	return qrnic_cmd_create(dev->qdev, QRNIC_CMD_ALLOC_XRCD, NULL, 0,
				&to_qrnic_xrcd(ibxrcd)->xrcdn);
}

int qrnic_ib_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibxrcd->device);

	qrnic_destroy(dev, QRNIC_CMD_FREE_XRCD, to_qrnic_xrcd(ibxrcd)->xrcdn);
	return 0;
}
