/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * commands.h: commands to the driver (qrnic_ib.ko), which are uverbs commands
 * followed by structures of qrnic-abi.h. The files that create objects use
 * them.
 *
 * The versions of rdma-core that libqrnic supports (56 to 65) have different
 * functions for some commands. The inline functions below have the same
 * arguments for all versions. CMakeLists.txt checks the headers for each
 * difference, and writes qrnic-features.h.
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

/* Argument since version 57: file descriptors of the caller */
#ifdef QRNIC_HAVE_CONTEXT_FDS
#define QRNIC_COMPAT_FDS NULL,
#else
#define QRNIC_COMPAT_FDS
#endif

/* Argument since version 59: memory of the caller for the CQ */
#ifdef QRNIC_HAVE_CQ_MEMORY
#define QRNIC_COMPAT_MEMORY NULL,
#else
#define QRNIC_COMPAT_MEMORY
#endif

/*
 * Flag since version 64: a parent domain may use unprotected memory of a
 * confidential guest. The flag has no effect here, because the library needs no
 * such memory.
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
	/* The argument since version 64 is for attributes of the provider. */
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
