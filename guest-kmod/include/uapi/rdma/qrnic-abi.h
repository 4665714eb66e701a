/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * qrnic-abi.h: what qrnic_ib.ko and libqrnic say to each other through uverbs.
 * Grows by members at the end and bits of comp_mask; both sides accept shorter
 * and longer structures.
 */
#ifndef QRNIC_ABI_USER_H
#define QRNIC_ABI_USER_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

#define QRNIC_ABI_VERSION 1

/* One private value of our own, far from those that rdma_driver_id gives out */
#define QRNIC_DRIVER_ID 0x51524e43

struct qrnic_alloc_ucontext_req {
	__aligned_u64 comp_mask;
};

/*
 * db_offset is for mmap of db_length bytes: the doorbell page of the context.
 * QRNIC_UCONTEXT_SMALL_QUEUES in comp_mask: what is page aligned below may as well
 * begin at any multiple of 64 bytes, if the ring lies in one page. So small queues
 * can share a page.
 */
enum qrnic_alloc_ucontext_resp_mask {
	QRNIC_UCONTEXT_SMALL_QUEUES = 1 << 0,
};

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
	__u32 max_srq_wr;
};

struct qrnic_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

/*
 * The buffer holds the ring (2^log_size CQEs) from its start, page aligned, and
 * the cq_record at record_offset. Buffers of queues are longer than their rings by
 * 64 KiB at most.
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
 * The buffer holds the new ring (2^log_size CQEs) from its start, page aligned
 * and zeroed. The cq_record stays where it was: the buffer of create_cq is kept
 * until the CQ is destroyed, those of earlier resizes are free afterwards.
 */
struct qrnic_resize_cq_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 log_size;
	__u32 reserved;
};

/*
 * How a streaming receive queue uses its buffers, as in the contract: with
 * QRNIC_CAP_STREAMING_RECV, and the bit of comp_mask of the request.
 */
struct qrnic_stream {
	__u32 max_message;
	__u16 max_messages;
	__u8 log_align;
	__u8 reserved;
};

/*
 * driver_type of a QP of type IB_QPT_DRIVER; 0 for other types. An initiator
 * or a target of dynamic connections needs QRNIC_CAP_DYNAMIC. The carrier of a
 * shared connection needs QRNIC_CAP_SHARED_CONNECTION.
 */
enum qrnic_driver_type {
	QRNIC_DRIVER_TYPE_DC_INITIATOR = 1,
	QRNIC_DRIVER_TYPE_DC_TARGET = 2,
	QRNIC_DRIVER_TYPE_CARRIER = 3,
};

/* As in the contract; all 0 unless driver_type is one of the first two */
struct qrnic_dynamic {
	__aligned_u64 access_key;
	__u16 responders;
	__u8 idle;
	__u8 flags;
	__u32 reserved;
};

/*
 * For a carrier all members but driver_type are 0. The response has the
 * carrier's key, which the kernel chooses and which its members must present.
 *
 * The buffer holds the SQ from its start and the RQ from rq_offset, both page
 * aligned, and the two queue_records. sq_log_size counts basic blocks,
 * rq_log_size WQEs of 2^rq_log_stride basic blocks. With an SRQ, or if it is an XRC
 * or dynamic initiator, there is no RQ and the four members that begin with rq_ are 0. An
 * XRC target has no queue, and all members are 0. For a dynamic target all
 * members but driver_type and dynamic are 0. db_page, if comp_mask says that
 * it is there, is the number of a doorbell page of QRNIC_METHOD_DB_PAGE_ALLOC
 * that takes the QP's doorbells; else the page of the context does.
 * max_recv_inline is the length of messages that come in the CQE, whose
 * poller, a thread of the process that creates the QP, copies them to the
 * buffers; 0 without QRNIC_CAP_INLINE_RECV.
 */
enum qrnic_create_qp_mask {
	QRNIC_CREATE_QP_DB_PAGE = 1 << 0,
	QRNIC_CREATE_QP_STREAM = 1 << 1,
};

struct qrnic_create_qp_req {
	__aligned_u64 comp_mask;
	__u32 driver_type;
	__u32 reserved;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 rq_offset;
	__u32 sq_record_offset;
	__u32 rq_record_offset;
	__u8 sq_log_size;
	__u8 rq_log_size;
	__u8 rq_log_stride;
	__u8 max_recv_inline;
	__u32 db_page;
	__u32 reserved2;
	struct qrnic_stream stream;
	struct qrnic_dynamic dynamic;
};

struct qrnic_create_qp_resp {
	__aligned_u64 comp_mask;
	__u32 qpn;
	__u32 reserved;
	__aligned_u64 carrier_key;	/* of a carrier: not 0; else 0 */
};

/*
 * What modify_qp takes with IB_QP_RATE_LIMIT: bytes of a burst and of a typical
 * packet, or 0. Without that attribute they must be 0. priority, if comp_mask says that
 * it is there, is that of the contract: 0, or one more than the level. Only a QP that
 * is, or comes, in RTS takes it. options, likewise, are those of the connection, of the
 * contract; only an RC QP, a carrier or a dynamic initiator on its way to RTR takes them.
 * carrier is the number of a carrier of any process, whose member an RC QP becomes on its
 * way to RTR, and carrier_key the key that it was made with; -EACCES if there is none. With
 * SHARE in place of CARRIER it becomes a member of a carrier of the driver, and carrier is
 * what the accepting end has answered (QRNIC_METHOD_QP_SHARE), at both ends: -EADDRNOTAVAIL
 * if the carrier leads elsewhere, and -ENOTCONN if it has failed.
 */
enum qrnic_modify_qp_mask {
	QRNIC_MODIFY_QP_PRIORITY = 1 << 0,
	QRNIC_MODIFY_QP_OPTIONS = 1 << 1,
	QRNIC_MODIFY_QP_CARRIER = 1 << 2,
	QRNIC_MODIFY_QP_SHARE = 1 << 3,
};

struct qrnic_modify_qp_req {
	__u32 comp_mask;
	__u32 max_burst_sz;
	__u16 typical_pkt_sz;
	__u16 reserved;
	__u8 priority;
	__u8 options;
	__u8 reserved2[2];
	__aligned_u64 carrier_key;
	__u32 carrier;
	__u32 reserved3;
};

/*
 * The buffer holds the ring, 2^log_size slots of 2^log_stride basic blocks, from
 * its start, page aligned, and the queue_record at record_offset. One slot less
 * can be posted at once; this is what max_wr of the SRQ says.
 */
enum qrnic_create_srq_mask {
	QRNIC_CREATE_SRQ_STREAM = 1 << 0,
	QRNIC_CREATE_SRQ_TAGS = 1 << 1,
};

/*
 * The operations of a tag list have a buffer of their own, laid out as that of an SRQ:
 * with IB_SRQT_TM, and the bit of comp_mask.
 */
struct qrnic_tag_ring {
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 record_offset;
	__u8 log_size;
	__u8 log_stride;
	__u16 reserved;
};

struct qrnic_create_srq_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 record_offset;
	__u8 log_size;
	__u8 log_stride;
	__u16 reserved;
	struct qrnic_stream stream;
	struct qrnic_tag_ring tags;
};

struct qrnic_create_srq_resp {
	__aligned_u64 comp_mask;
	__u32 srqn;
	__u32 reserved;
};

/*
 * What modify_srq takes with IB_SRQ_MAX_WR: the buffer holds the new ring, 2^log_size
 * slots of the size that they have, from its start, page aligned, with all that is
 * posted in the slots that it has. The record stays where it was, as in
 * qrnic_resize_cq_req. Without that attribute there must be nothing here.
 */
struct qrnic_resize_srq_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 log_size;
	__u32 reserved;
};

/*
 * A receive work queue: the buffer holds the ring, 2^log_size WQEs of 2^log_stride
 * basic blocks, from its start, page aligned, and the queue_record at
 * record_offset.
 */
struct qrnic_create_wq_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 record_offset;
	__u8 log_size;
	__u8 log_stride;
	__u16 reserved;
};

/* Of create_qp with an indirection table, in place of qrnic_create_qp_req */
enum qrnic_rss_function {
	QRNIC_RSS_TOEPLITZ = 1,
};

/* fields is made of the bits of rss_hash, which are those of the verbs. */
struct qrnic_create_rss_req {
	__aligned_u64 comp_mask;
	__aligned_u64 fields;
	__u8 key[40];
	__u8 function;
	__u8 key_length;
	__u8 reserved[6];
};

/*
 * av is the address_vector of the datagram segment: the kernel has resolved the
 * destination's MAC address, and the hop limit of the route. No member is of 64
 * bits, because the core's part of the answer has 4 bytes.
 */
struct qrnic_create_ah_resp {
	__u32 comp_mask;
	__u8 av[32];
};

/*
 * What UVERBS_METHOD_COUNTERS_READ gives, a __u64 each: of all frames that flow rules
 * with these counters took. As many as there is room for; those that the kernel does not
 * know are 0.
 */
enum qrnic_flow_counter {
	QRNIC_FLOW_PACKETS,
	QRNIC_FLOW_BYTES,
};

/* What the driver adds to the methods of UVERBS_OBJECT_DEVICE */
enum qrnic_device_methods {
	QRNIC_METHOD_QUERY_CLOCK = (1U << UVERBS_ID_NS_SHIFT),
};

/* The clock of the timestamps in CQEs, now: a __u64 that counts at clock_khz */
enum qrnic_query_clock_attrs {
	QRNIC_ATTR_QUERY_CLOCK_VALUE = (1U << UVERBS_ID_NS_SHIFT),
};

/* To UVERBS_METHOD_QUERY_CONTEXT: a struct qrnic_alloc_ucontext_resp, for import */
enum qrnic_query_context_attrs {
	QRNIC_ATTR_QUERY_CONTEXT_RESP = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * Of UVERBS_OBJECT_PD, for import and for null regions. The null key is optional
 * in the request: the PD's one key of a null region, made at the first question
 * and destroyed with the PD.
 */
enum qrnic_pd_methods {
	QRNIC_METHOD_PD_QUERY = (1U << UVERBS_ID_NS_SHIFT),
};

enum qrnic_pd_query_attrs {
	QRNIC_ATTR_PD_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_PD_QUERY_PDN,	/* __u32 */
	QRNIC_ATTR_PD_QUERY_NULL_KEY,	/* __u32 */
};

/*
 * Of UVERBS_OBJECT_DM, for the process that made it and for import: OFFSET is for
 * mmap of LENGTH bytes, rounded up to pages. Both are __u64.
 */
enum qrnic_dm_methods {
	QRNIC_METHOD_DM_QUERY = (1U << UVERBS_ID_NS_SHIFT),
};

enum qrnic_dm_query_attrs {
	QRNIC_ATTR_DM_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_DM_QUERY_OFFSET,
	QRNIC_ATTR_DM_QUERY_LENGTH,
};

enum qrnic_qp_methods {
	QRNIC_METHOD_QP_QUERY_PRIORITY = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_METHOD_QP_SHARE,
};

/*
 * Of a QP, as the device has them, __u32 both: PRIORITY as in qrnic_modify_qp_req; LEVEL is
 * what the QP's turns go by.
 */
enum qrnic_qp_query_priority_attrs {
	QRNIC_ATTR_QP_QUERY_PRIORITY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_QP_QUERY_PRIORITY_PRIORITY,
	QRNIC_ATTR_QP_QUERY_PRIORITY_LEVEL,
};

/*
 * Of an RC QP in RESET or INIT: options of ECE, __u32. WANTED are those of QRNIC_QPO_ that
 * the connection would have, or the offer of the other end, with QRNIC_ECE_SHARE_OFFER;
 * AGREED is what this end then offers, or answers.
 */
enum qrnic_qp_share_attrs {
	QRNIC_ATTR_QP_SHARE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_QP_SHARE_WANTED,
	QRNIC_ATTR_QP_SHARE_AGREED,
};

enum qrnic_objects {
	QRNIC_OBJECT_DB_PAGE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_OBJECT_MKEY,
};

/* More doorbell pages of a context; to be freed after the queues that use them */
enum qrnic_db_page_methods {
	QRNIC_METHOD_DB_PAGE_ALLOC = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_METHOD_DB_PAGE_FREE,
};

/* As in qrnic_alloc_ucontext_resp: OFFSET is a __u64, LENGTH and NUMBER __u32 */
enum qrnic_db_page_alloc_attrs {
	QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_DB_PAGE_ALLOC_OFFSET,
	QRNIC_ATTR_DB_PAGE_ALLOC_LENGTH,
	QRNIC_ATTR_DB_PAGE_ALLOC_NUMBER,
};

enum qrnic_db_page_free_attrs {
	QRNIC_ATTR_DB_PAGE_FREE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

/* Indirect keys of a PD, which work requests make valid and invalid */
enum qrnic_mkey_methods {
	QRNIC_METHOD_MKEY_CREATE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_METHOD_MKEY_DESTROY,
};

/* MAX_PIECES and KEY are __u32; KEY has the index of the key and its first variant */
enum qrnic_mkey_create_attrs {
	QRNIC_ATTR_MKEY_CREATE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_MKEY_CREATE_PD,
	QRNIC_ATTR_MKEY_CREATE_MAX_PIECES,
	QRNIC_ATTR_MKEY_CREATE_KEY,
};

enum qrnic_mkey_destroy_attrs {
	QRNIC_ATTR_MKEY_DESTROY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

#endif /* QRNIC_ABI_USER_H */
