/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * abi.h: the commands to qrnic_ib.ko, that is those of uverbs with the parts of
 * qrnic-abi.h behind them.
 */
#ifndef QRNIC_PROVIDER_ABI_H
#define QRNIC_PROVIDER_ABI_H

#include <infiniband/kern-abi.h>
#include <rdma/qrnic-abi.h>
#include <kernel-abi/qrnic-abi.h>

DECLARE_DRV_CMD(qrnic_get_context, IB_USER_VERBS_CMD_GET_CONTEXT,
		qrnic_alloc_ucontext_req, qrnic_alloc_ucontext_resp);
DECLARE_DRV_CMD(qrnic_alloc_pd_cmd, IB_USER_VERBS_CMD_ALLOC_PD, empty,
		qrnic_alloc_pd_resp);
DECLARE_DRV_CMD(qrnic_create_cq_cmd, IB_USER_VERBS_EX_CMD_CREATE_CQ,
		qrnic_create_cq_req, qrnic_create_cq_resp);
DECLARE_DRV_CMD(qrnic_resize_cq_cmd, IB_USER_VERBS_CMD_RESIZE_CQ,
		qrnic_resize_cq_req, empty);
DECLARE_DRV_CMD(qrnic_create_srq_cmd, IB_USER_VERBS_CMD_CREATE_SRQ,
		qrnic_create_srq_req, qrnic_create_srq_resp);
DECLARE_DRV_CMD(qrnic_create_xsrq_cmd, IB_USER_VERBS_CMD_CREATE_XSRQ,
		qrnic_create_srq_req, qrnic_create_srq_resp);
DECLARE_DRV_CMD(qrnic_resize_srq_cmd, IB_USER_VERBS_CMD_MODIFY_SRQ,
		qrnic_resize_srq_req, empty);
DECLARE_DRV_CMD(qrnic_create_ah_cmd, IB_USER_VERBS_CMD_CREATE_AH, empty,
		qrnic_create_ah_resp);
DECLARE_DRV_CMD(qrnic_create_qp_cmd, IB_USER_VERBS_EX_CMD_CREATE_QP,
		qrnic_create_qp_req, qrnic_create_qp_resp);

DECLARE_DRV_CMD(qrnic_create_rss_cmd, IB_USER_VERBS_EX_CMD_CREATE_QP,
		qrnic_create_rss_req, empty);
DECLARE_DRV_CMD(qrnic_create_wq_cmd, IB_USER_VERBS_EX_CMD_CREATE_WQ,
		qrnic_create_wq_req, empty);

DECLARE_DRV_CMD(qrnic_modify_qp_cmd, IB_USER_VERBS_EX_CMD_MODIFY_QP,
		qrnic_modify_qp_req, empty);

#endif /* QRNIC_PROVIDER_ABI_H */
