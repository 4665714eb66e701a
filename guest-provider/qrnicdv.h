/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnicdv.h: the public header of the direct verbs of libqrnic.
 *
 * The direct verbs create objects that no ordinary verb can create. Programs
 * can also get the rings, doorbell records and doorbell pages of their queues,
 * so that they can drive the hardware themselves.
 *
 * Programs include this header and call the functions in any thread. A function
 * that gets an object of another provider fails with EOPNOTSUPP and changes
 * nothing. The overview is qrnicdv(7), and each function has its own manual
 * page. The layouts of WQEs, CQEs, doorbell records and doorbells are in
 * qrnicdv_hw.h and in the Programmer's Reference.
 */
#ifndef QRNICDV_H
#define QRNICDV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <infiniband/qrnicdv_hw.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Each structure that may grow begins with comp_mask, and its size is an
 * argument of the call. A program passes the size of the structure that it was
 * compiled with, and sets unused members to 0.
 *
 * A call that fills in a structure writes no more bytes than this size. In a
 * structure that the program fills in, comp_mask has a bit for each valid
 * optional member, and bytes beyond the size count as 0. Structures inside
 * other structures never grow. See qrnicdv(7).
 */

/**
 * enum qrnicdv_res_type - resource_type of the allocators of a parent domain
 * @QRNICDV_RES_TYPE_CQ: ring and doorbell record of a completion queue
 * @QRNICDV_RES_TYPE_QP: rings and doorbell records of a queue pair
 * @QRNICDV_RES_TYPE_SRQ: ring and doorbell record of an SRQ
 *
 * See ibv_alloc_parent_domain(3).
 */
enum qrnicdv_res_type {
	QRNICDV_RES_TYPE_CQ = 1,
	QRNICDV_RES_TYPE_QP = 2,
	QRNICDV_RES_TYPE_SRQ = 3,
};

enum qrnicdv_context_flags {
	/* the device can use the virtual addresses of the process */
	QRNICDV_CONTEXT_SHARED_VIRTUAL = 1 << 0,
};

/**
 * struct qrnicdv_context_attr - attributes of a context
 */
struct qrnicdv_context_attr {
	uint64_t comp_mask;	/* valid optional members; none is defined: 0 */
	uint32_t flags;		/* enum qrnicdv_context_flags */
	uint32_t reserved;	/* 0 */
};

/**
 * struct qrnicdv_device_attr - limits and capabilities of a device
 */
struct qrnicdv_device_attr {
	uint64_t comp_mask;
	uint64_t capabilities;	/* bits QRNIC_CAP_* */
	uint32_t max_wqebb;	/* basic blocks of a send queue */
	uint32_t max_recv;	/* WQEs of a receive queue */
	uint32_t max_cqe;	/* CQEs of a completion queue */
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;	/* bytes of inline data */
	/* frequency of the clock of CQE timestamps, in kHz */
	uint32_t clock_khz;
	uint32_t db_number;	/* number of the doorbell page */
	void *db_page;		/* doorbell page; must not be read */
};

/**
 * struct qrnicdv_wq - a work queue of a queue pair
 *
 * An entry of a send queue is a basic block of 64 bytes. An entry of a receive
 * queue is a WQE.
 */
struct qrnicdv_wq {
	void *ring;
	struct qrnic_queue_record *record;
	uint32_t size;		/* entries in the ring, a power of two */
	uint32_t stride;	/* bytes of an entry */
	uint32_t producer;	/* entries posted so far, modulo 2^32 */
	uint32_t consumer;	/* entries whose completion was polled */
};

/* Bits of comp_mask of struct qrnicdv_qp */
enum qrnicdv_qp_mask {
	QRNICDV_QP_MAX_INL_RECV = 1 << 0,
};

/**
 * struct qrnicdv_qp - queues of a queue pair
 *
 * All members of @sq or @rq are 0 if the queue pair does not have this queue.
 */
struct qrnicdv_qp {
	uint64_t comp_mask;
	uint32_t qpn;
	/* longest message received into the CQE, in bytes */
	uint32_t max_inl_recv;
	void *db_page;
	struct qrnicdv_wq sq;
	struct qrnicdv_wq rq;
};

/**
 * struct qrnicdv_cq - ring of a completion queue
 */
struct qrnicdv_cq {
	uint64_t comp_mask;
	uint32_t cqn;
	uint32_t size;		/* CQEs in the ring, a power of two */
	uint32_t consumer;	/* CQEs consumed so far, modulo 2^32 */
	/* sequence number of the last request for an event */
	uint32_t arm_sequence;
	struct qrnic_cqe *ring;
	struct qrnic_cq_record *record;
	void *db_page;
};

/**
 * struct qrnicdv_stream_attr - attributes of a streaming receive queue
 *
 * Each buffer of such a queue receives many messages. See
 * qrnicdv_create_srq(3).
 */
struct qrnicdv_stream_attr {
	uint32_t max_message;	/* longest message in bytes; UD: with GRH */
	/* maximum number of messages per buffer, 1 to 65535 */
	uint32_t max_messages;
	/* alignment of messages in bytes: 0 or a power of two */
	uint32_t align;
	uint32_t reserved;	/* 0 */
};

/*
 * Priority of a queue pair: the service level of its address vector, or a level
 * from 0 to QRNIC_PRIORITY_LEVELS - 1. See qrnicdv_modify_priority(3).
 */
#define QRNICDV_PRIORITY_SL 0u
#define QRNICDV_PRIORITY(level) ((level) + 1u)

struct qrnicdv_priority {
	uint64_t comp_mask;	/* valid optional members; none is defined: 0 */
	uint32_t priority;	/* priority that the device has */
	/* resulting level, 0 to QRNIC_PRIORITY_LEVELS - 1 */
	uint32_t level;
};

/**
 * enum qrnicdv_dc_type - kind of a queue pair of dynamic connections
 *
 * The queue pair has the type IBV_QPT_DRIVER. See qrnicdv_wr_set_dc_addr(3).
 */
enum qrnicdv_dc_type {
	QRNICDV_DCTYPE_DCT = 1,		/* target */
	QRNICDV_DCTYPE_DCI,		/* initiator */
};

enum qrnicdv_dc_flags {
	/* for a target: its initiators receive the flag by ECE */
	QRNICDV_DC_FULL_HANDSHAKE = 1 << 0,
};

struct qrnicdv_dc_attr {
	uint32_t dc_type;	/* enum qrnicdv_dc_type */
	uint32_t flags;		/* enum qrnicdv_dc_flags */
	/*
	 * DCI: idle time before it disconnects, 4.096 us * 2^idle; 0 means 12
	 */
	uint32_t idle;
	/* DCT: maximum number of connections at a time; 0 means 16 */
	uint32_t responders;
	uint64_t dct_access_key;
};

/**
 * struct qrnicdv_carrier_attr - attributes of a carrier or of its member
 *
 * A carrier is an end of a shared connection and has the type IBV_QPT_DRIVER. A
 * member is an RC queue pair. See qrnicdv_create_qp(3).
 */
struct qrnicdv_carrier_attr {
	/* key of the carrier; creating a carrier: 0 before, the key after */
	uint64_t key;
	/* member: queue pair number of its carrier; carrier: 0 */
	uint32_t number;
	uint32_t reserved;	/* 0 */
};

/* Bits of comp_mask of struct qrnicdv_qp_init_attr */
enum qrnicdv_qp_init_attr_mask {
	QRNICDV_QP_INIT_ATTR_STREAM = 1 << 0,
	QRNICDV_QP_INIT_ATTR_PRIORITY = 1 << 1,
	QRNICDV_QP_INIT_ATTR_DC = 1 << 2,
	QRNICDV_QP_INIT_ATTR_CARRIER = 1 << 3,
	QRNICDV_QP_INIT_ATTR_OPTIONS = 1 << 4,
};

/**
 * struct qrnicdv_qp_init_attr - attributes besides those of ibv_create_qp_ex()
 *
 * The members from stream to options are optional. Each of them must be 0 if
 * its bit in comp_mask is not set.
 */
struct qrnicdv_qp_init_attr {
	uint64_t comp_mask;	/* bits QRNICDV_QP_INIT_ATTR_* */
	/* requested and then granted: longest message received into the CQE */
	uint32_t max_inl_recv;
	uint32_t reserved;	/* 0 */
	struct qrnicdv_stream_attr stream;
	uint32_t priority;	/* set at each transition from RTR to RTS */
	uint32_t reserved2;	/* 0 */
	struct qrnicdv_dc_attr dc;
	struct qrnicdv_carrier_attr carrier;
	uint32_t options;	/* bits QRNIC_QPO_* of the connection */
	uint32_t reserved3;	/* 0 */
};

/* Bits of comp_mask of struct qrnicdv_srq_init_attr */
enum qrnicdv_srq_init_attr_mask {
	QRNICDV_SRQ_INIT_ATTR_STREAM = 1 << 0,
};

/**
 * struct qrnicdv_srq_init_attr - additional attributes of an SRQ
 *
 * The other attributes are those of ibv_create_srq_ex().
 */
struct qrnicdv_srq_init_attr {
	uint64_t comp_mask;
	struct qrnicdv_stream_attr stream;
};

/* Result of qrnicdv_wc_read_stream() */
enum qrnicdv_wc_stream_flags {
	QRNICDV_WC_STREAM_USED = 1 << 0,	/* the buffer is used up */
};

/**
 * qrnicdv_is_supported() - check if a device is a qrnic adapter
 * @device: device of ibv_get_device_list()
 *
 * Returns: true if @device is a qrnic adapter.
 */
bool qrnicdv_is_supported(struct ibv_device *device);

/**
 * qrnicdv_open_device() - open a device with attributes of this adapter
 * @device: device of ibv_get_device_list()
 * @attr: attributes
 * @attr_size: sizeof(*attr)
 *
 * With QRNICDV_CONTEXT_SHARED_VIRTUAL work requests can register the memory of
 * the process; see qrnicdv_wr_reg_process(). Other processes, including children
 * after fork(), cannot import the context or create queue pairs in it.
 *
 * Returns: the context, or NULL and sets errno. EOPNOTSUPP: the adapter, the
 * kernel, the IOMMU or this library does not support an attribute. EINVAL:
 * @attr_size is too small. ENOSPC: the IOMMU supports no further process. Other
 * errors are those of ibv_open_device().
 */
struct ibv_context *qrnicdv_open_device(struct ibv_device *device,
					struct qrnicdv_context_attr *attr,
					size_t attr_size);

/**
 * qrnicdv_create_qp() - create a queue pair with attributes of this adapter
 * @context: context of the device
 * @attr: attributes as for ibv_create_qp_ex()
 * @dv_attr: additional attributes; max_inl_recv and carrier.key are results
 * @dv_attr_size: sizeof(*dv_attr)
 *
 * Returns: the queue pair, or NULL and sets errno. EOPNOTSUPP: the adapter, the
 * type of the queue pair or this library does not support an attribute. EINVAL:
 * an attribute is out of range, or @dv_attr_size is too small. Other errors are
 * those of ibv_create_qp_ex().
 */
struct ibv_qp *qrnicdv_create_qp(struct ibv_context *context,
				 struct ibv_qp_init_attr_ex *attr,
				 struct qrnicdv_qp_init_attr *dv_attr,
				 size_t dv_attr_size);

/**
 * qrnicdv_modify_priority() - set the priority of a queue pair
 * @qp: queue pair in state RTS with a send queue
 * @priority: QRNICDV_PRIORITY_SL or QRNICDV_PRIORITY(level)
 *
 * The queue pair keeps the priority when it goes to RESET and back to RTS.
 *
 * Returns: 0 or an errno value. EOPNOTSUPP: the adapter has no priorities, or
 * @qp has no send queue. EINVAL: @qp is not in RTS, or @priority is out of
 * range.
 */
int qrnicdv_modify_priority(struct ibv_qp *qp, uint32_t priority);

/**
 * qrnicdv_query_priority() - query priority and level of a queue pair
 * @qp: queue pair
 * @attr: result
 * @attr_size: sizeof(*attr)
 *
 * Returns: 0 or an errno value. EOPNOTSUPP: the adapter has no priorities, or
 * @qp has no send queue. EINVAL: @attr_size is less than 8.
 */
int qrnicdv_query_priority(struct ibv_qp *qp, struct qrnicdv_priority *attr,
			   size_t attr_size);

/**
 * qrnicdv_wr_set_dc_addr() - set the address of a work request
 * @qp: initiator of dynamic connections
 * @ah: address handle of the node of the target
 * @target: queue pair number of the target, 24 bits
 * @access_key: access key of the target
 *
 * The program calls this function after it has added the work request, between
 * ibv_wr_start() and ibv_wr_complete(). The call may be before or after the
 * data setters.
 *
 * Returns: 0 or EINVAL, which ibv_wr_complete() returns, too. The causes are an
 * invalid argument, and a work request that sends no packet.
 */
int qrnicdv_wr_set_dc_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah,
			   uint32_t target, uint64_t access_key);

/* Kind of a key that work requests register */
enum qrnicdv_mkey_kind {
	QRNICDV_MKEY_INDIRECT,		/* pieces of other keys */
	QRNICDV_MKEY_PROCESS,		/* memory of the process */
};

/**
 * struct qrnicdv_mkey_init_attr - attributes of an indirect or process key
 */
struct qrnicdv_mkey_init_attr {
	uint64_t comp_mask;	/* valid optional members; none is defined: 0 */
	struct ibv_pd *pd;
	/* indirect key: 1 to QRNIC_MAX_PIECES; process key: 0 */
	uint32_t max_pieces;
	uint32_t kind;		/* enum qrnicdv_mkey_kind */
};

/**
 * struct qrnicdv_mkey - an indirect or process key
 *
 * Both members always have the same value.
 */
struct qrnicdv_mkey {
	uint32_t lkey;
	uint32_t rkey;
};

/**
 * struct qrnicdv_piece - a piece of an indirect key
 *
 * The piece is length bytes of the key lkey. In repetition i, the piece begins
 * at addr + i * stride, modulo 2^64.
 */
struct qrnicdv_piece {
	uint32_t lkey;
	uint32_t reserved;	/* 0 */
	uint64_t addr;
	uint64_t length;
	uint64_t stride;
};

enum qrnicdv_mkey_flags {
	/* changes the variant, so earlier values of the key become invalid */
	QRNICDV_MKEY_NEW_VARIANT = 1 << 0,
};

/**
 * struct qrnicdv_mkey_layout - pieces of an indirect key
 *
 * The range of the key consists of the list of pieces, repeated.
 */
struct qrnicdv_mkey_layout {
	uint64_t comp_mask;	/* valid optional members; none is defined: 0 */
	uint64_t start;		/* address of the first byte of the key */
	/* IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_* */
	uint32_t access;
	/* repetitions of the list of pieces, at least 1 */
	uint32_t repeat;
	uint32_t num_pieces;	/* 1 to max_pieces */
	uint32_t flags;		/* enum qrnicdv_mkey_flags */
	const struct qrnicdv_piece *pieces;
};

/**
 * qrnicdv_create_mkey() - create an indirect or process key
 * @attr: attributes
 * @attr_size: sizeof(*attr)
 *
 * The key is invalid until qrnicdv_wr_reg_mkey() or qrnicdv_wr_reg_process()
 * registers it.
 *
 * Returns: the key, or NULL and sets errno. EOPNOTSUPP: the adapter, the context
 * or this library does not support the kind or an attribute. EINVAL: @attr_size
 * is too small, the protection domain is NULL, or max_pieces is out of range.
 * ENOMEM: the device has no space for the key or the pieces.
 */
struct qrnicdv_mkey *qrnicdv_create_mkey(struct qrnicdv_mkey_init_attr *attr,
					 size_t attr_size);

/**
 * qrnicdv_destroy_mkey() - destroy an indirect or process key
 * @mkey: the key, valid or invalid
 *
 * The program first waits for the completion of all work requests that use the
 * key.
 *
 * Returns: 0 or an errno value. After an error the key still exists.
 */
int qrnicdv_destroy_mkey(struct qrnicdv_mkey *mkey);

/**
 * qrnicdv_wr_reg_mkey() - add a work request that registers an indirect key
 * @qp: RC, UC or XRC send queue pair
 * @mkey: invalid key
 * @layout: address range, rights and pieces; copied by the call
 * @layout_size: sizeof(*layout)
 *
 * The program calls this function between ibv_wr_start() and ibv_wr_complete().
 *
 * Returns: 0 or an errno value, which ibv_wr_complete() returns, too. EINVAL:
 * an argument is invalid. EBUSY: an earlier registration still uses the buffer
 * of the key. EOPNOTSUPP: the queue pair or the adapter does not support
 * indirect keys. If the send queue is full, only ibv_wr_complete() fails, with
 * ENOMEM.
 */
int qrnicdv_wr_reg_mkey(struct ibv_qp_ex *qp, struct qrnicdv_mkey *mkey,
			const struct qrnicdv_mkey_layout *layout,
			size_t layout_size);

/**
 * struct qrnicdv_process_layout - memory of a process key
 */
struct qrnicdv_process_layout {
	uint64_t comp_mask;	/* valid optional members; none is defined: 0 */
	uint64_t start;		/* address of the first byte of the key */
	void *addr;		/* first byte in the memory of the process */
	uint64_t length;	/* bytes, at least 1 */
	/* IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_* */
	uint32_t access;
	uint32_t flags;		/* enum qrnicdv_mkey_flags */
};

/**
 * qrnicdv_wr_reg_process() - add a work request that registers process memory
 * @qp: RC, UC or XRC send queue pair
 * @mkey: invalid process key
 * @layout: memory, address and rights; copied by the call
 * @layout_size: sizeof(*layout)
 *
 * The program calls this function between ibv_wr_start() and ibv_wr_complete().
 * Neither the call nor its execution accesses the memory, which need not exist
 * until it is accessed.
 *
 * Returns: 0 or an errno value, which ibv_wr_complete() returns, too. EINVAL:
 * an argument is invalid. EOPNOTSUPP: the queue pair or its context does not
 * support process keys. If the send queue is full, only ibv_wr_complete()
 * fails, with ENOMEM.
 */
int qrnicdv_wr_reg_process(struct ibv_qp_ex *qp, struct qrnicdv_mkey *mkey,
			   const struct qrnicdv_process_layout *layout,
			   size_t layout_size);

/*
 * Opcode of the completion of qrnicdv_wr_reg_mkey() and qrnicdv_wr_reg_process()
 */
#define QRNICDV_WC_REG_MKEY IBV_WC_DRIVER1

/**
 * qrnicdv_create_srq() - create a streaming SRQ
 * @context: context of the device
 * @attr: attributes as for ibv_create_srq_ex()
 * @dv_attr: additional attributes
 * @dv_attr_size: sizeof(*dv_attr)
 *
 * Returns: the SRQ, or NULL and sets errno. EOPNOTSUPP: the adapter or this
 * library does not support an attribute. EINVAL: an attribute is out of range,
 * or @dv_attr_size is too small. Other errors are those of ibv_create_srq_ex().
 */
struct ibv_srq *qrnicdv_create_srq(struct ibv_context *context,
				   struct ibv_srq_init_attr_ex *attr,
				   struct qrnicdv_srq_init_attr *dv_attr,
				   size_t dv_attr_size);

/**
 * qrnicdv_wc_read_stream() - return the place of a message in its buffer
 * @cq: completion queue, between ibv_start_poll() and ibv_end_poll()
 * @offset: result: offset of the message in its buffer, in bytes
 *
 * Returns: QRNICDV_WC_STREAM_USED if the buffer is used up, otherwise 0.
 */
uint32_t qrnicdv_wc_read_stream(struct ibv_cq_ex *cq, uint32_t *offset);

/**
 * qrnicdv_query_device() - query limits, capabilities and doorbell page
 * @context: context of the device
 * @attr: result
 * @attr_size: sizeof(*attr)
 *
 * Returns: 0 or an errno value. EOPNOTSUPP: another provider. EINVAL: @attr_size
 * is less than 8.
 */
int qrnicdv_query_device(struct ibv_context *context,
			 struct qrnicdv_device_attr *attr, size_t attr_size);

/**
 * qrnicdv_query_qp() - query rings, doorbell records and indices of a QP
 * @qp: queue pair
 * @attr: result
 * @attr_size: sizeof(*attr)
 *
 * Returns: 0 or an errno value. EOPNOTSUPP: another provider. EINVAL: @attr_size
 * is less than 8.
 */
int qrnicdv_query_qp(struct ibv_qp *qp, struct qrnicdv_qp *attr,
		     size_t attr_size);

/**
 * qrnicdv_query_cq() - query ring, doorbell record and indices of a CQ
 * @cq: completion queue
 * @attr: result
 * @attr_size: sizeof(*attr)
 *
 * Returns: 0 or an errno value. EOPNOTSUPP: another provider. EINVAL: @attr_size
 * is less than 8.
 */
int qrnicdv_query_cq(struct ibv_cq *cq, struct qrnicdv_cq *attr,
		     size_t attr_size);

#ifdef __cplusplus
}
#endif

#endif /* QRNICDV_H */
