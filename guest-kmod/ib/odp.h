/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * odp.h: regions on demand (paging on demand), as the other files of
 * qrnic_ib.ko use them. The part of the RDMA core is optional. Without it the
 * functions below do nothing, and the registration of a region on demand fails
 * with -EOPNOTSUPP.
 */
#ifndef QRNIC_ODP_H
#define QRNIC_ODP_H

#include "qrnic_ib.h"

struct qrnic_ib_mr;
struct qrnic_ib_odp;
struct qrnic_ib_qp;

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
int qrnic_odp_init(struct qrnic_ib_dev *dev);
void qrnic_odp_cleanup(struct qrnic_ib_dev *dev);
int qrnic_odp_budget_get(struct qrnic_ib_ucontext *ucontext);
void qrnic_odp_budget_put(struct qrnic_ib_ucontext *ucontext);
u32 qrnic_odp_lists(const struct qrnic_ib_odp *odp);
void qrnic_odp_caps(struct qrnic_ib_dev *dev, struct ib_odp_caps *caps);
void qrnic_odp_qp_init(struct qrnic_ib_qp *qp);
void qrnic_odp_event(struct qrnic_ib_dev *dev, u32 number);
struct ib_mr *qrnic_odp_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt,
				    int access);
int qrnic_odp_dereg(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr);
int qrnic_ib_advise_mr(struct ib_pd *ibpd, enum ib_uverbs_advise_mr_advice advice,
		       u32 flags, struct ib_sge *sges, u32 count,
		       struct uverbs_attr_bundle *attrs);
int qrnic_ib_fill_stat_mr(struct sk_buff *msg, struct ib_mr *ibmr);
#else
static inline int qrnic_odp_init(struct qrnic_ib_dev *dev)
{
	return 0;
}

static inline void qrnic_odp_cleanup(struct qrnic_ib_dev *dev)
{
}

static inline int qrnic_odp_budget_get(struct qrnic_ib_ucontext *ucontext)
{
	return 0;
}

static inline void qrnic_odp_budget_put(struct qrnic_ib_ucontext *ucontext)
{
}

static inline u32 qrnic_odp_lists(const struct qrnic_ib_odp *odp)
{
	return 0;
}

static inline void qrnic_odp_caps(struct qrnic_ib_dev *dev, struct ib_odp_caps *caps)
{
}

static inline void qrnic_odp_qp_init(struct qrnic_ib_qp *qp)
{
}

static inline void qrnic_odp_event(struct qrnic_ib_dev *dev, u32 number)
{
}

static inline struct ib_mr *qrnic_odp_reg_user_mr(struct ib_pd *ibpd, u64 start,
						  u64 length, u64 virt, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static inline int qrnic_odp_dereg(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr)
{
	return 0;
}

static inline int qrnic_ib_advise_mr(struct ib_pd *ibpd,
				     enum ib_uverbs_advise_mr_advice advice, u32 flags,
				     struct ib_sge *sges, u32 count,
				     struct uverbs_attr_bundle *attrs)
{
	return -EOPNOTSUPP;
}

static inline int qrnic_ib_fill_stat_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	return 0;
}
#endif

#endif /* QRNIC_ODP_H */
