/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * verbs.h: the operations of the ib_device. Each of them is in the file of its
 * object. The table in main.c passes them to the RDMA core; no other file calls
 * them. The RDMA core documents arguments, context and errors
 * (rdma/ib_verbs.h).
 */
#ifndef QRNIC_IB_VERBS_H
#define QRNIC_IB_VERBS_H

#include "qrnic_ib.h"

/* port.c */
int qrnic_ib_query_port(struct ib_device *ibdev, u32 port,
			struct ib_port_attr *attr);
int qrnic_ib_get_port_immutable(struct ib_device *ibdev, u32 port,
				struct ib_port_immutable *immutable);
enum rdma_link_layer qrnic_ib_get_link_layer(struct ib_device *ibdev, u32 port);
int qrnic_ib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int qrnic_ib_add_gid(const struct ib_gid_attr *attr, void **context);
int qrnic_ib_del_gid(const struct ib_gid_attr *attr, void **context);

/* event.c */
void qrnic_ib_report_port_event(struct ib_device *ibdev, struct net_device *netdev,
				unsigned long event);

/* uapi.c */
int qrnic_ib_query_ucontext(struct ib_ucontext *ibucontext,
			    struct uverbs_attr_bundle *attrs);

/* ucontext.c */
int qrnic_ib_alloc_ucontext(struct ib_ucontext *ibucontext,
			    struct ib_udata *udata);
void qrnic_ib_dealloc_ucontext(struct ib_ucontext *ibucontext);
void qrnic_ib_disassociate_ucontext(struct ib_ucontext *ibucontext);
int qrnic_ib_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma);
void qrnic_ib_mmap_free(struct rdma_user_mmap_entry *entry);

/* pd_ah.c */
int qrnic_ib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int qrnic_ib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int qrnic_ib_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int qrnic_ib_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int qrnic_ib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		       struct ib_udata *udata);
int qrnic_ib_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int qrnic_ib_destroy_ah(struct ib_ah *ibah, u32 flags);

/* mr.c */
struct ib_mr *qrnic_ib_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *qrnic_ib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				   u64 virt, int access, QRNIC_DMAH_PARAMETER
				   struct ib_udata *udata);
struct ib_mr *qrnic_ib_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
					  u64 length, u64 virt, int fd,
					  int access, QRNIC_DMAH_PARAMETER
					  struct uverbs_attr_bundle *attrs);
struct ib_mr *qrnic_ib_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				 struct ib_dm_mr_attr *attr,
				 struct uverbs_attr_bundle *attrs);
struct ib_mr *qrnic_ib_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				     u64 length, u64 virt, int access,
				     struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *qrnic_ib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
				u32 max_num_sg);
int qrnic_ib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int sg_nents,
		       unsigned int *sg_offset);
int qrnic_ib_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int qrnic_ib_dealloc_mw(struct ib_mw *ibmw);
int qrnic_ib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* device_memory.c */
struct ib_dm *qrnic_ib_alloc_dm(struct ib_device *ibdev,
				struct ib_ucontext *ibucontext,
				struct ib_dm_alloc_attr *attr,
				struct uverbs_attr_bundle *attrs);
int qrnic_ib_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs);

/* cq.c */
int qrnic_ib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		       struct uverbs_attr_bundle *attrs);
int qrnic_ib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int qrnic_ib_resize_cq(struct ib_cq *ibcq, QRNIC_RESIZE_TYPE cqe,
		       struct ib_udata *udata);
int qrnic_ib_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);
int qrnic_ib_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc);
int qrnic_ib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

/* qp.c */
int qrnic_ib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		       struct ib_udata *udata);
int qrnic_ib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int qrnic_ib_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int qrnic_ib_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

/* qp_modify.c */
int qrnic_ib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		       struct ib_udata *udata);
int qrnic_ib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_qp_init_attr *init);

/* wq.c */
struct ib_wq *qrnic_ib_create_wq(struct ib_pd *ibpd, struct ib_wq_init_attr *init,
				 struct ib_udata *udata);
int qrnic_ib_destroy_wq(struct ib_wq *ibwq, struct ib_udata *udata);
int qrnic_ib_modify_wq(struct ib_wq *ibwq, struct ib_wq_attr *attr, u32 mask,
		       struct ib_udata *udata);
int qrnic_ib_create_rwq_ind_table(struct ib_rwq_ind_table *table,
				  struct ib_rwq_ind_table_init_attr *init,
				  struct ib_udata *udata);
int qrnic_ib_destroy_rwq_ind_table(struct ib_rwq_ind_table *table);

/* srq.c */
int qrnic_ib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
			struct ib_udata *udata);
int qrnic_ib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
			enum ib_srq_attr_mask mask, struct ib_udata *udata);
int qrnic_ib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int qrnic_ib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);

/* flow.c */
struct ib_flow *qrnic_ib_create_flow(struct ib_qp *ibqp,
				     struct ib_flow_attr *attr,
				     struct ib_udata *udata);
int qrnic_ib_destroy_flow(struct ib_flow *ibflow);
int qrnic_ib_create_counters(struct ib_counters *ibcounters,
			     struct uverbs_attr_bundle *attrs);
int qrnic_ib_destroy_counters(struct ib_counters *ibcounters);
int qrnic_ib_read_counters(struct ib_counters *ibcounters,
			   struct ib_counters_read_attr *attr,
			   struct uverbs_attr_bundle *attrs);

/* post.c */
int qrnic_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		       const struct ib_send_wr **bad_wr);
int qrnic_ib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			   const struct ib_recv_wr **bad_wr);
int qrnic_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);

/* statistics.c */
struct rdma_hw_stats *qrnic_ib_alloc_device_stats(struct ib_device *ibdev);
struct rdma_hw_stats *qrnic_ib_alloc_port_stats(struct ib_device *ibdev, u32 port);
int qrnic_ib_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			  u32 port, int index);
void qrnic_ib_counter_init(struct rdma_counter *counter);
int qrnic_ib_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *QRNIC_COUNTER_PORT(qp));
int qrnic_ib_counter_unbind_qp(struct ib_qp *QRNIC_COUNTER_PORT(qp));
int qrnic_ib_counter_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *qrnic_ib_counter_alloc_stats(struct rdma_counter *counter);
int qrnic_ib_counter_update_stats(struct rdma_counter *counter);

/* mad.c */
int qrnic_ib_process_mad(struct ib_device *ibdev, int flags, u32 port,
			 const struct ib_wc *wc, const struct ib_grh *grh,
			 const struct ib_mad *in, struct ib_mad *out,
			 size_t *out_size, u16 *out_pkey_index);

/* restrack.c */
int qrnic_ib_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq);
int qrnic_ib_fill_res_cq_raw(struct sk_buff *msg, struct ib_cq *ibcq);
int qrnic_ib_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int qrnic_ib_fill_res_qp_raw(struct sk_buff *msg, struct ib_qp *ibqp);
int qrnic_ib_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq);
int qrnic_ib_fill_res_srq_raw(struct sk_buff *msg, struct ib_srq *ibsrq);
int qrnic_ib_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int qrnic_ib_fill_res_mr_raw(struct sk_buff *msg, struct ib_mr *ibmr);

#endif /* QRNIC_IB_VERBS_H */
