/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * qrnic-abi.h: the interface between qrnic_ib.ko and libqrnic through uverbs:
 * requests and responses of verbs, and methods that the driver adds.
 *
 * Structures grow by members at the end and by bits of comp_mask. Both sides
 * accept shorter and longer structures. The kernel fills missing members with
 * zeros, and rejects unknown members that are not 0. Reserved members must be
 * 0. The manual (contract) describes the members that it shares with the
 * device.
 */
#ifndef QRNIC_ABI_USER_H
#define QRNIC_ABI_USER_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

#define QRNIC_ABI_VERSION 1

/* Private value, far from those in enum rdma_driver_id */
#define QRNIC_DRIVER_ID 0x51524e43

/*
 * Request of alloc_context; optional.
 *
 * SHARED_VIRTUAL: the context shares the virtual addresses of the process with
 * the device, through the IOMMU. If this is not available, the bit is 0 in
 * comp_mask of the response. Only the process that creates the context can map
 * its doorbell pages and create its queue pairs; other processes get EPERM.
 */
enum qrnic_alloc_ucontext_req_mask {
	QRNIC_UCONTEXT_REQ_SHARED_VIRTUAL = 1 << 0,
};

struct qrnic_alloc_ucontext_req {
	__aligned_u64 comp_mask;
};

/*
 * Response of alloc_context. A process maps its doorbell page, db_length bytes,
 * at db_offset.
 *
 * With QRNIC_UCONTEXT_SMALL_QUEUES in comp_mask, a ring within one page need
 * not be page aligned. Instead, such a ring may begin at any multiple of 64
 * bytes. So small queues can share a page.
 */
enum qrnic_alloc_ucontext_resp_mask {
	QRNIC_UCONTEXT_SMALL_QUEUES = 1 << 0,
	QRNIC_UCONTEXT_SHARED_VIRTUAL = 1 << 1,
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

/* Response of alloc_pd */
struct qrnic_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

/*
 * Request of create_cq. The buffer contains the ring (2^log_size CQEs) at its
 * start, page aligned, and the cq_record at record_offset. Buffers of queues
 * are at most 64 KiB longer than their rings.
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
 * Request of resize_cq. The buffer contains the new ring (2^log_size CQEs) at
 * its start, page aligned and zeroed. The cq_record stays in the buffer of
 * create_cq, which must exist until the CQ is destroyed. Buffers of earlier
 * resizes may be freed afterwards.
 */
struct qrnic_resize_cq_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 log_size;
	__u32 reserved;
};

/*
 * Attributes of a streaming receive queue, as in the contract. Requires
 * QRNIC_CAP_STREAMING_RECV, and the bit in comp_mask of the request.
 */
struct qrnic_stream {
	__u32 max_message;
	__u16 max_messages;
	__u8 log_align;
	__u8 reserved;
};

/*
 * Kinds of a QP of type IB_QPT_DRIVER; 0 for other types. An initiator or a
 * target of dynamic connections requires QRNIC_CAP_DYNAMIC. The carrier of a
 * shared connection requires QRNIC_CAP_SHARED_CONNECTION.
 */
enum qrnic_driver_type {
	QRNIC_DRIVER_TYPE_DC_INITIATOR = 1,
	QRNIC_DRIVER_TYPE_DC_TARGET = 2,
	QRNIC_DRIVER_TYPE_CARRIER = 3,
};

/*
 * Attributes of dynamic connections, as in the contract. All members are 0
 * unless driver_type is one of the first two.
 */
struct qrnic_dynamic {
	__aligned_u64 access_key;
	__u16 responders;
	__u8 idle;
	__u8 flags;
	__u32 reserved;
};

/*
 * Request of create_qp. For a carrier all members but driver_type are 0. The
 * response contains the carrier's key, which the kernel chooses and which new
 * members must present.
 *
 * The buffer contains the SQ at its start and the RQ at rq_offset, both page
 * aligned, and the two queue_records. The member sq_log_size counts basic
 * blocks; rq_log_size counts WQEs of 2^rq_log_stride basic blocks. With an SRQ,
 * and for an XRC or dynamic initiator, there is no RQ, and the four members
 * that begin with rq_ are 0. An XRC target has no queue, and all members are 0.
 * For a dynamic target all members but driver_type and dynamic are 0.
 *
 * With QRNIC_CREATE_QP_DB_PAGE, db_page is the number of a page from
 * QRNIC_METHOD_DB_PAGE_ALLOC for the doorbells of the QP. Otherwise the QP uses
 * the page of the context.
 *
 * With QRNIC_CREATE_QP_EVENT_INDEX, which requires QRNIC_CAP_EVENT_INDEX, the
 * device writes an event index into the record of the SQ. The process then
 * stores only the producer index, by 32 bits. After a change to RESET, which
 * the process waits for, it stores 0 to both members.
 *
 * Messages of at most max_recv_inline bytes are received into the CQE. The
 * poller, a thread of the process that creates the QP, copies them to the
 * buffers. The value is 0 without QRNIC_CAP_INLINE_RECV.
 */
enum qrnic_create_qp_mask {
	QRNIC_CREATE_QP_DB_PAGE = 1 << 0,
	QRNIC_CREATE_QP_STREAM = 1 << 1,
	QRNIC_CREATE_QP_EVENT_INDEX = 1 << 2,
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
	/* key of a carrier, never 0; 0 for other QPs */
	__aligned_u64 carrier_key;
};

/*
 * Request of modify_qp.
 *
 * With IB_QP_RATE_LIMIT, max_burst_sz and typical_pkt_sz are the bytes of a
 * burst and of a typical packet, or 0. Otherwise they must be 0.
 *
 * PRIORITY: priority has the value of qp_attr.priority of the device: 0, or the
 * level plus 1. Accepted if the QP is in RTS or moves there.
 *
 * OPTIONS: options has the bits QRNIC_QPO_* of the connection. Accepted if
 * an RC QP, a carrier or a dynamic initiator moves to RTR.
 *
 * CARRIER: an RC QP that moves to RTR becomes a member of a carrier of any
 * process. The carrier has the number carrier and the key carrier_key. If there
 * is none, the error is EACCES.
 *
 * SHARE: the QP becomes a member of a carrier of the driver. At both ends
 * carrier is the reply of the accepting end (QRNIC_METHOD_QP_SHARE). The error
 * is EADDRNOTAVAIL if the carrier has another path, and ENOTCONN if it has
 * failed.
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
 * Request of create_srq. The buffer contains the ring at its start, page
 * aligned, and the queue_record at record_offset. The ring has 2^log_size slots
 * of 2^log_stride basic blocks. One slot always stays free, so max_wr of the
 * SRQ is one less.
 */
enum qrnic_create_srq_mask {
	QRNIC_CREATE_SRQ_STREAM = 1 << 0,
	QRNIC_CREATE_SRQ_TAGS = 1 << 1,
};

/*
 * Operations of a tag list, in a buffer of the same layout as that of an SRQ.
 * Requires IB_SRQT_TM, and the bit in comp_mask.
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
 * Request of modify_srq with IB_SRQ_MAX_WR. The buffer contains the new ring at
 * its start, page aligned: 2^log_size slots of the same size as before. The
 * process has copied all posted WQEs to the same slots. The record stays in the
 * buffer of create_srq, as in qrnic_resize_cq_req. Without IB_SRQ_MAX_WR there
 * must be no request.
 */
struct qrnic_resize_srq_req {
	__aligned_u64 comp_mask;
	__aligned_u64 buf_addr;
	__aligned_u64 buf_length;
	__u32 log_size;
	__u32 reserved;
};

/*
 * Request of create_wq, a receive work queue. The buffer contains the ring at
 * its start, page aligned, and the queue_record at record_offset. The ring has
 * 2^log_size WQEs of 2^log_stride basic blocks.
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

/* Hash functions for RSS */
enum qrnic_rss_function {
	QRNIC_RSS_TOEPLITZ = 1,
};

/*
 * Request of create_qp with an indirection table, in place of
 * qrnic_create_qp_req. The bits of fields are those of rss_hash in the
 * contract, which are those of verbs.
 */
struct qrnic_create_rss_req {
	__aligned_u64 comp_mask;
	__aligned_u64 fields;
	__u8 key[40];
	__u8 function;
	__u8 key_length;
	__u8 reserved[6];
};

/*
 * Response of create_ah. av is the address_vector of the datagram segment. The
 * kernel has resolved the MAC address of the destination, and the hop limit of
 * the route. No member has 64 bits, because the part of the RDMA core in the
 * response has 4 bytes.
 */
struct qrnic_create_ah_resp {
	__u32 comp_mask;
	__u8 av[32];
};

/*
 * Counters that UVERBS_METHOD_COUNTERS_READ returns, a __u64 each. The counters
 * count all frames that flow rules with these counters received. The kernel
 * writes as many as fit; unknown ones are 0.
 */
enum qrnic_flow_counter {
	QRNIC_FLOW_PACKETS,
	QRNIC_FLOW_BYTES,
};

/* Methods that the driver adds to UVERBS_OBJECT_DEVICE */
enum qrnic_device_methods {
	QRNIC_METHOD_QUERY_CLOCK = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * Returns the present value of the clock of timestamps in CQEs, a __u64 that
 * counts at clock_khz.
 */
enum qrnic_query_clock_attrs {
	QRNIC_ATTR_QUERY_CLOCK_VALUE = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * Attribute of UVERBS_METHOD_QUERY_CONTEXT for a process that imports a
 * context: a struct qrnic_alloc_ucontext_resp
 */
enum qrnic_query_context_attrs {
	QRNIC_ATTR_QUERY_CONTEXT_RESP = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * Method of UVERBS_OBJECT_PD, for a process that imports a PD, and for null
 * regions. The null key is optional in the request. A PD has only one null
 * region: the first request creates it, and the end of the PD destroys it.
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
 * Method of UVERBS_OBJECT_DM, for the process that allocated the memory and for
 * a process that imports it. A process maps LENGTH bytes, rounded up to pages,
 * at OFFSET. Both are __u64.
 */
enum qrnic_dm_methods {
	QRNIC_METHOD_DM_QUERY = (1U << UVERBS_ID_NS_SHIFT),
};

enum qrnic_dm_query_attrs {
	QRNIC_ATTR_DM_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_DM_QUERY_OFFSET,
	QRNIC_ATTR_DM_QUERY_LENGTH,
};

/* Methods that the driver adds to UVERBS_OBJECT_QP */
enum qrnic_qp_methods {
	QRNIC_METHOD_QP_QUERY_PRIORITY = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_METHOD_QP_SHARE,
};

/*
 * Returns the priority of a QP in the device. PRIORITY has the value of
 * priority in qrnic_modify_qp_req. LEVEL is the level by which the device
 * schedules the QP. Both attributes are __u32.
 */
enum qrnic_qp_query_priority_attrs {
	QRNIC_ATTR_QP_QUERY_PRIORITY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_QP_QUERY_PRIORITY_PRIORITY,
	QRNIC_ATTR_QP_QUERY_PRIORITY_LEVEL,
};

/*
 * Agrees on a shared connection for an RC QP in RESET or INIT. Both attributes
 * are options of ECE, each a __u32. QRNIC_ATTR_QP_SHARE_WANTED contains the
 * options QRNIC_QPO_* for the connection, or, with QRNIC_ECE_SHARE_OFFER, the
 * connection request of the peer. QRNIC_ATTR_QP_SHARE_AGREED is the request
 * that this end sends, or its reply.
 */
enum qrnic_qp_share_attrs {
	QRNIC_ATTR_QP_SHARE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_QP_SHARE_WANTED,
	QRNIC_ATTR_QP_SHARE_AGREED,
};

/* Types of object that the driver adds */
enum qrnic_objects {
	QRNIC_OBJECT_DB_PAGE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_OBJECT_MKEY,
};

/*
 * Methods for more doorbell pages of a context; a page is freed after the
 * queues that use it
 */
enum qrnic_db_page_methods {
	QRNIC_METHOD_DB_PAGE_ALLOC = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_METHOD_DB_PAGE_FREE,
};

/*
 * Members as in qrnic_alloc_ucontext_resp: OFFSET is a __u64; LENGTH and NUMBER
 * are __u32
 */
enum qrnic_db_page_alloc_attrs {
	QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_DB_PAGE_ALLOC_OFFSET,
	QRNIC_ATTR_DB_PAGE_ALLOC_LENGTH,
	QRNIC_ATTR_DB_PAGE_ALLOC_NUMBER,
};

enum qrnic_db_page_free_attrs {
	QRNIC_ATTR_DB_PAGE_FREE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * Methods for keys of a PD that work requests make valid and invalid: indirect
 * keys, and keys of process memory
 */
enum qrnic_mkey_methods {
	QRNIC_METHOD_MKEY_CREATE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_METHOD_MKEY_DESTROY,
};

enum qrnic_mkey_kind {
	QRNIC_MKEY_KIND_INDIRECT,
	QRNIC_MKEY_KIND_PROCESS,
};

/*
 * MAX_PIECES, KEY and KIND are __u32. KEY contains the index of the key and its
 * first variant. KIND is optional, an enum qrnic_mkey_kind, by default an
 * indirect key. A key of process memory requires a context with
 * QRNIC_UCONTEXT_SHARED_VIRTUAL, and MAX_PIECES is 0.
 */
enum qrnic_mkey_create_attrs {
	QRNIC_ATTR_MKEY_CREATE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	QRNIC_ATTR_MKEY_CREATE_PD,
	QRNIC_ATTR_MKEY_CREATE_MAX_PIECES,
	QRNIC_ATTR_MKEY_CREATE_KEY,
	QRNIC_ATTR_MKEY_CREATE_KIND,
};

enum qrnic_mkey_destroy_attrs {
	QRNIC_ATTR_MKEY_DESTROY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

#endif /* QRNIC_ABI_USER_H */
