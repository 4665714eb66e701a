/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * commands.h: the commands to qrnic_ib.ko, which are those of uverbs with the structures
 * of qrnic-abi.h behind them, and the functions that send them, where the versions of
 * rdma-core that libqrnic builds with (56 to 65) differ. CMakeLists.txt looks each
 * difference up in the headers, and writes the results to qrnic-features.h.
 */
#ifndef QRNIC_COMMANDS_H
#define QRNIC_COMMANDS_H

#include <infiniband/driver.h>
#include <infiniband/kern-abi.h>
#include <kernel-abi/qrnic-abi.h>
#include <qrnic-features.h>
#include <rdma/qrnic-abi.h>

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

/* From 57 on a context may be created with file descriptors of the caller */
#ifdef QRNIC_HAVE_CONTEXT_FDS
#define QRNIC_COMPAT_FDS NULL,
#else
#define QRNIC_COMPAT_FDS
#endif

/* From 59 on a CQ may be created in memory of the caller */
#ifdef QRNIC_HAVE_CQ_MEMORY
#define QRNIC_COMPAT_MEMORY NULL,
#else
#define QRNIC_COMPAT_MEMORY
#endif

/*
 * From 64 on a parent domain may allow memory outside a confidential guest's protection,
 * which the library does not need.
 */
#ifdef QRNIC_HAVE_UNPROTECTED_DOMAINS
#define QRNIC_COMPAT_DOMAIN_ALLOWS \
	IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC
#else
#define QRNIC_COMPAT_DOMAIN_ALLOWS 0
#endif

static inline int qrnic_cmd_get_context(struct verbs_context *context,
					struct ibv_get_context *cmd,
					size_t cmd_size,
					struct ib_uverbs_get_context_resp *resp,
					size_t resp_size)
{
	return ibv_cmd_get_context(context, cmd, cmd_size, QRNIC_COMPAT_FDS
				   resp, resp_size);
}

static inline int
qrnic_cmd_create_cq_ex(struct ibv_context *context,
		       const struct ibv_cq_init_attr_ex *attr,
		       struct verbs_cq *cq, struct ibv_create_cq_ex *cmd,
		       size_t cmd_size,
		       struct ib_uverbs_ex_create_cq_resp *resp,
		       size_t resp_size)
{
	return ibv_cmd_create_cq_ex(context, attr, QRNIC_COMPAT_MEMORY
				    cq, cmd, cmd_size, resp, resp_size, 0);
}

static inline int
qrnic_cmd_create_qp_ex2(struct ibv_context *context, struct verbs_qp *qp,
			struct ibv_qp_init_attr_ex *attr,
			struct ibv_create_qp_ex *cmd, size_t cmd_size,
			struct ib_uverbs_ex_create_qp_resp *resp,
			size_t resp_size)
{
#ifdef QRNIC_HAVE_QP_ATTRIBUTES
	/* From 64 on a QP may be created with attributes of the provider's own. */
	return ibv_cmd_create_qp_ex2(context, qp, attr, cmd, cmd_size, resp,
				     resp_size, NULL);
#else
	return ibv_cmd_create_qp_ex2(context, qp, attr, cmd, cmd_size, resp,
				     resp_size);
#endif
}

#undef QRNIC_COMPAT_FDS
#undef QRNIC_COMPAT_MEMORY

#endif /* QRNIC_COMMANDS_H */
