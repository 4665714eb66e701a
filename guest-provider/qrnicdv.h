/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnicdv.h: direct verbs of qrnic: where the rings, records and doorbells of
 * verbs objects are, for programs that drive the hardware themselves. See
 * qrnicdv(7); the layouts are in qrnicdv_hw.h and in the Programmer's Reference.
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
 * Every structure that may grow begins with comp_mask, and its size is an argument of the
 * call. A program passes the size of the structure that it was compiled with,
 * and sets unused members to 0. A call that fills a structure in writes no
 * more than this size. In a structure that a program fills in, comp_mask names
 * the valid optional members, and bytes behind the size count as 0. Structures
 * within others never grow. See qrnicdv(7).
 */

/*
 * The resource_type that the allocators of a parent domain are called with
 * (ibv_alloc_parent_domain(3))
 */
enum qrnicdv_res_type {
	QRNICDV_RES_TYPE_CQ = 1,
	QRNICDV_RES_TYPE_QP = 2,
	QRNICDV_RES_TYPE_SRQ = 3,
};

struct qrnicdv_device_attr {
	uint64_t comp_mask;
	uint64_t capabilities;	/* QRNIC_CAP_... */
	uint32_t max_wqebb;	/* basic blocks of an SQ */
	uint32_t max_recv;	/* WQEs of an RQ */
	uint32_t max_cqe;	/* CQEs of a CQ */
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;	/* bytes */
	uint32_t clock_khz;	/* of timestamps in CQEs */
	uint32_t db_number;	/* number of the doorbell page */
	void *db_page;		/* the doorbell page; write only */
};

/* A work queue: SQ in basic blocks, RQ in WQEs */
struct qrnicdv_wq {
	void *ring;
	struct qrnic_queue_record *record;
	uint32_t size;		/* entries, a power of two */
	uint32_t stride;	/* bytes of an entry */
	uint32_t producer;	/* entries posted so far, modulo 2^32 */
	uint32_t consumer;	/* entries known to be completed */
};

/* comp_mask of struct qrnicdv_qp */
enum qrnicdv_qp_mask {
	QRNICDV_QP_MAX_INL_RECV = 1 << 0,
};

struct qrnicdv_qp {
	uint64_t comp_mask;
	uint32_t qpn;
	uint32_t max_inl_recv;	/* bytes received into the CQE; 0: none ever are */
	void *db_page;
	struct qrnicdv_wq sq;
	struct qrnicdv_wq rq;
};

struct qrnicdv_cq {
	uint64_t comp_mask;
	uint32_t cqn;
	uint32_t size;		/* CQEs, a power of two */
	uint32_t consumer;	/* CQEs consumed so far, modulo 2^32 */
	uint32_t arm_sequence;	/* of the last request for an event */
	struct qrnic_cqe *ring;
	struct qrnic_cq_record *record;
	void *db_page;
};

/*
 * A streaming receive queue, whose buffers take many messages each. See
 * qrnicdv_create_srq(3).
 */
struct qrnicdv_stream_attr {
	uint32_t max_message;	/* bytes of the longest one, of UD with the GRH */
	uint32_t max_messages;	/* in a buffer, at most 65535 */
	uint32_t align;		/* of messages in a buffer: a power of two, or 0 */
	uint32_t reserved;	/* 0 */
};

/*
 * The priority of a queue pair: the service level of its address vector, or a level from
 * 0 to QRNIC_PRIORITY_LEVELS - 1. See qrnicdv_modify_priority(3).
 */
#define QRNICDV_PRIORITY_SL 0u
#define QRNICDV_PRIORITY(level) ((level) + 1u)

struct qrnicdv_priority {
	uint64_t comp_mask;	/* later members that are valid; none yet: 0 */
	uint32_t priority;	/* as it was set, if the device has it already */
	uint32_t level;		/* that follows from it */
};

/*
 * An end of dynamic connections: a queue pair of type IBV_QPT_DRIVER. See
 * qrnicdv_wr_set_dc_addr(3).
 */
enum qrnicdv_dc_type {
	QRNICDV_DCTYPE_DCT = 1,		/* target */
	QRNICDV_DCTYPE_DCI,		/* initiator */
};

enum qrnicdv_dc_flags {
	QRNICDV_DC_FULL_HANDSHAKE = 1 << 0,	/* target: of whoever takes its options */
};

struct qrnicdv_dc_attr {
	uint32_t dc_type;	/* enum qrnicdv_dc_type */
	uint32_t flags;		/* enum qrnicdv_dc_flags */
	uint32_t idle;		/* DCI: disconnects after 4.096 us * 2^idle; 0: default */
	uint32_t responders;	/* DCT: connections at a time; 0: default */
	uint64_t dct_access_key;
};

/*
 * Shared connections: a carrier, which is a queue pair of type IBV_QPT_DRIVER, or what an
 * RC queue pair is a member of. See qrnicdv_create_qp(3).
 */
struct qrnicdv_carrier_attr {
	uint64_t key;		/* of the carrier; 0 to create one, and then set to its key */
	uint32_t number;	/* member: the carrier's queue pair number; else 0 */
	uint32_t reserved;	/* 0 */
};

/* comp_mask of struct qrnicdv_qp_init_attr */
enum qrnicdv_qp_init_attr_mask {
	QRNICDV_QP_INIT_ATTR_STREAM = 1 << 0,
	QRNICDV_QP_INIT_ATTR_PRIORITY = 1 << 1,
	QRNICDV_QP_INIT_ATTR_DC = 1 << 2,
	QRNICDV_QP_INIT_ATTR_CARRIER = 1 << 3,
	QRNICDV_QP_INIT_ATTR_OPTIONS = 1 << 4,
};

/* In addition to those of ibv_create_qp_ex() */
struct qrnicdv_qp_init_attr {
	uint64_t comp_mask;	/* later members that are valid */
	uint32_t max_inl_recv;	/* bytes received into the CQE; set to what it is */
	uint32_t reserved;	/* 0 */
	struct qrnicdv_stream_attr stream;
	uint32_t priority;	/* from each transition from RTR to RTS on */
	uint32_t reserved2;	/* 0 */
	struct qrnicdv_dc_attr dc;
	struct qrnicdv_carrier_attr carrier;
	uint32_t options;	/* QRNIC_QPO_* of the connection, from the beginning */
	uint32_t reserved3;	/* 0 */
};

/* comp_mask of struct qrnicdv_srq_init_attr */
enum qrnicdv_srq_init_attr_mask {
	QRNICDV_SRQ_INIT_ATTR_STREAM = 1 << 0,
};

/* In addition to those of ibv_create_srq_ex() */
struct qrnicdv_srq_init_attr {
	uint64_t comp_mask;
	struct qrnicdv_stream_attr stream;
};

/* What qrnicdv_wc_read_stream() returns */
enum qrnicdv_wc_stream_flags {
	QRNICDV_WC_STREAM_USED = 1 << 0,	/* nothing more comes into the buffer */
};

bool qrnicdv_is_supported(struct ibv_device *device);

struct ibv_qp *qrnicdv_create_qp(struct ibv_context *context,
				 struct ibv_qp_init_attr_ex *attr,
				 struct qrnicdv_qp_init_attr *dv_attr,
				 size_t dv_attr_size);

/* Of a queue pair in RTS; it stays when the QP goes to RESET and comes back */
int qrnicdv_modify_priority(struct ibv_qp *qp, uint32_t priority);

int qrnicdv_query_priority(struct ibv_qp *qp, struct qrnicdv_priority *attr,
			   size_t attr_size);

/* Between ibv_wr_start() and ibv_wr_complete(): where the work request leads */
int qrnicdv_wr_set_dc_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah,
			   uint32_t target, uint64_t access_key);

/* What qrnicdv_create_mkey() makes a key for */
struct qrnicdv_mkey_init_attr {
	uint64_t comp_mask;	/* later members that are valid; none yet: 0 */
	struct ibv_pd *pd;
	uint32_t max_pieces;	/* 1 to QRNIC_MAX_PIECES */
	uint32_t reserved;	/* 0 */
};

/* An indirect key. Both keys are the same. */
struct qrnicdv_mkey {
	uint32_t lkey;
	uint32_t rkey;
};

/*
 * A piece: length bytes at addr of another key; in repetition i at
 * addr + i * stride, modulo 2^64
 */
struct qrnicdv_piece {
	uint32_t lkey;
	uint32_t reserved;	/* 0 */
	uint64_t addr;
	uint64_t length;
	uint64_t stride;
};

enum qrnicdv_mkey_flags {
	QRNICDV_MKEY_NEW_VARIANT = 1 << 0,	/* earlier values of the key become invalid */
};

/* What a key is made of: the pieces one behind the other, gone through repeat times */
struct qrnicdv_mkey_layout {
	uint64_t comp_mask;	/* later members that are valid; none yet: 0 */
	uint64_t start;		/* address of the key's first byte */
	uint32_t access;	/* IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_... */
	uint32_t repeat;	/* at least 1 */
	uint32_t num_pieces;	/* 1 to max_pieces */
	uint32_t flags;		/* enum qrnicdv_mkey_flags */
	const struct qrnicdv_piece *pieces;
};

struct qrnicdv_mkey *qrnicdv_create_mkey(struct qrnicdv_mkey_init_attr *attr,
					 size_t attr_size);

int qrnicdv_destroy_mkey(struct qrnicdv_mkey *mkey);

/* Between ibv_wr_start() and ibv_wr_complete() */
int qrnicdv_wr_reg_mkey(struct ibv_qp_ex *qp, struct qrnicdv_mkey *mkey,
			const struct qrnicdv_mkey_layout *layout,
			size_t layout_size);

/* The opcode of its completion */
#define QRNICDV_WC_REG_MKEY IBV_WC_DRIVER1

struct ibv_srq *qrnicdv_create_srq(struct ibv_context *context,
				   struct ibv_srq_init_attr_ex *attr,
				   struct qrnicdv_srq_init_attr *dv_attr,
				   size_t dv_attr_size);

/* Of the completion that cq stands on, between ibv_start_poll() and ibv_end_poll() */
uint32_t qrnicdv_wc_read_stream(struct ibv_cq_ex *cq, uint32_t *offset);

int qrnicdv_query_device(struct ibv_context *context,
			 struct qrnicdv_device_attr *attr, size_t attr_size);

int qrnicdv_query_qp(struct ibv_qp *qp, struct qrnicdv_qp *attr,
		     size_t attr_size);

int qrnicdv_query_cq(struct ibv_cq *cq, struct qrnicdv_cq *attr,
		     size_t attr_size);

#ifdef __cplusplus
}
#endif

#endif /* QRNICDV_H */
