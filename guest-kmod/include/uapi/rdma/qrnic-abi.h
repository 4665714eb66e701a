/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * qrnic-abi.h: what qrnic_ib.ko and libqrnic say to each other through uverbs.
 * Grows by members at the end and bits of comp_mask; both sides accept shorter
 * and longer structures.
 */
#ifndef QRNIC_ABI_USER_H
#define QRNIC_ABI_USER_H

#include <linux/types.h>

#define QRNIC_ABI_VERSION 1

/* One private value of our own, far from those that rdma_driver_id gives out */
#define QRNIC_DRIVER_ID 0x51524e43

struct qrnic_alloc_ucontext_req {
	__aligned_u64 comp_mask;
};

/* db_offset is for mmap of db_length bytes: the doorbell page of the context */
struct qrnic_alloc_ucontext_resp {
	__aligned_u64 comp_mask;
	__aligned_u64 capabilities;
	__aligned_u64 db_offset;
	__u32 db_length;
	__u32 db_page;
	__u32 max_wqebb;
	__u32 max_recv;
	__u32 max_cqe;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline;
	__u32 clock_khz;
	__u32 reserved;
};

struct qrnic_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

/*
 * The buffer holds the ring (2^log_size CQEs) from its start, page aligned, and
 * the cq_record at record_offset.
 */
struct qrnic_create_cq_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 record_offset;
	__u32 log_size;
};

struct qrnic_create_cq_resp {
	__aligned_u64 comp_mask;
	__u32 cqn;
	__u32 reserved;
};

/*
 * The buffer holds the SQ from its start and the RQ from rq_offset, both page
 * aligned, and the two queue_records. sq_log_size counts basic blocks,
 * rq_log_size WQEs of 2^rq_log_stride basic blocks.
 */
struct qrnic_create_qp_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 rq_offset;
	__u32 sq_record_offset;
	__u32 rq_record_offset;
	__u8 sq_log_size;
	__u8 rq_log_size;
	__u8 rq_log_stride;
	__u8 reserved;
};

struct qrnic_create_qp_resp {
	__aligned_u64 comp_mask;
	__u32 qpn;
	__u32 reserved;
};

#endif /* QRNIC_ABI_USER_H */
