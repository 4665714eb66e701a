/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * compat.h: the differences between the versions of rdma-core that libqrnic
 * builds with (56.1 and 65.0), and nothing else.
 */
#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

#include <infiniband/driver.h>

/*
 * The private ABI of 56.1 has number 34. Later ones follow the version of
 * rdma-core; 65 takes memory and file descriptors of the caller along.
 */
#if IBVERBS_PABI_VERSION > 34
#define QRNIC_COMPAT_NULL NULL,
#else
#define QRNIC_COMPAT_NULL
#endif

static inline int qrnic_cmd_get_context(struct verbs_context *context,
					struct ibv_get_context *cmd,
					size_t cmd_size,
					struct ib_uverbs_get_context_resp *resp,
					size_t resp_size)
{
	return ibv_cmd_get_context(context, cmd, cmd_size, QRNIC_COMPAT_NULL
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
	return ibv_cmd_create_cq_ex(context, attr, QRNIC_COMPAT_NULL
				    cq, cmd, cmd_size, resp, resp_size, 0);
}

#undef QRNIC_COMPAT_NULL

/*
 * What 65 has more: the speed of a port; and that a parent domain may allow memory
 * outside a confidential guest's protection, which we have no need of.
 */
#if IBVERBS_PABI_VERSION > 34
#define QRNIC_HAVE_PORT_SPEED 1
#define QRNIC_COMPAT_DOMAIN_ALLOWS \
	IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC
#else
#define QRNIC_COMPAT_DOMAIN_ALLOWS 0
#endif

static inline int
qrnic_cmd_create_qp_ex2(struct ibv_context *context, struct verbs_qp *qp,
			struct ibv_qp_init_attr_ex *attr,
			struct ibv_create_qp_ex *cmd, size_t cmd_size,
			struct ib_uverbs_ex_create_qp_resp *resp,
			size_t resp_size)
{
#if IBVERBS_PABI_VERSION > 34
	return ibv_cmd_create_qp_ex2(context, qp, attr, cmd, cmd_size, resp,
				     resp_size, NULL);
#else
	return ibv_cmd_create_qp_ex2(context, qp, attr, cmd, cmd_size, resp,
				     resp_size);
#endif
}

#endif /* QRNIC_COMPAT_H */
