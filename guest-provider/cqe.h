/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * cqe.h: translates a CQE into the terms of verbs (manual, "Completion and
 * events").
 *
 * The callers are poll.c and completion.c, under the lock of the CQ, after the
 * barrier behind the phase bit.
 */
#ifndef QRNIC_PROVIDER_CQE_H
#define QRNIC_PROVIDER_CQE_H

#include <ccan/array_size.h>

#include "qrnic.h"

/*
 * Returns the verbs status of a CQE. Values that the library does not know
 * become IBV_WC_GENERAL_ERR.
 */
static inline enum ibv_wc_status cqe_status(const struct qrnic_cqe *cqe)
{
	static const uint8_t status[] = {
		[QRNIC_WC_SUCCESS] = IBV_WC_SUCCESS,
		[QRNIC_WC_LOC_LEN_ERR] = IBV_WC_LOC_LEN_ERR,
		[QRNIC_WC_LOC_QP_OP_ERR] = IBV_WC_LOC_QP_OP_ERR,
		[3] = IBV_WC_GENERAL_ERR,
		[QRNIC_WC_LOC_PROT_ERR] = IBV_WC_LOC_PROT_ERR,
		[QRNIC_WC_WR_FLUSH_ERR] = IBV_WC_WR_FLUSH_ERR,
		[QRNIC_WC_MW_BIND_ERR] = IBV_WC_MW_BIND_ERR,
		[QRNIC_WC_BAD_RESP_ERR] = IBV_WC_BAD_RESP_ERR,
		[QRNIC_WC_LOC_ACCESS_ERR] = IBV_WC_LOC_ACCESS_ERR,
		[QRNIC_WC_REM_INV_REQ_ERR] = IBV_WC_REM_INV_REQ_ERR,
		[QRNIC_WC_REM_ACCESS_ERR] = IBV_WC_REM_ACCESS_ERR,
		[QRNIC_WC_REM_OP_ERR] = IBV_WC_REM_OP_ERR,
		[QRNIC_WC_RETRY_EXC_ERR] = IBV_WC_RETRY_EXC_ERR,
		[QRNIC_WC_RNR_RETRY_EXC_ERR] = IBV_WC_RNR_RETRY_EXC_ERR,
		[14 ... QRNIC_WC_TM_ERR - 1] = IBV_WC_GENERAL_ERR,
		[QRNIC_WC_TM_ERR] = IBV_WC_TM_ERR,
		[QRNIC_WC_TM_RNDV_INCOMPLETE] = IBV_WC_TM_RNDV_INCOMPLETE,
	};
	uint32_t value = FIELD_GET(QRNIC_CQE_STATUS_MASK, le32toh(cqe->control));

	return value < ARRAY_SIZE(status) ? status[value] : IBV_WC_GENERAL_ERR;
}

static inline bool cqe_is_receive(const struct qrnic_cqe *cqe)
{
	return le32toh(cqe->control) &
	       FIELD_PREP(QRNIC_CQE_OPCODE_MASK, QRNIC_CQE_RECV);
}

static inline enum ibv_wc_opcode cqe_opcode(const struct qrnic_cqe *cqe)
{
	/*
	 * A CQE with an error has only bit 7 of the opcode, so the default case
	 * returns IBV_WC_SEND or IBV_WC_RECV.
	 */
	switch (FIELD_GET(QRNIC_CQE_OPCODE_MASK, le32toh(cqe->control))) {
	case QRNIC_CQE_RDMA_WRITE:
		return IBV_WC_RDMA_WRITE;
	case QRNIC_CQE_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case QRNIC_CQE_ATOMIC_CMP_SWAP:
		return IBV_WC_COMP_SWAP;
	case QRNIC_CQE_ATOMIC_FETCH_ADD:
		return IBV_WC_FETCH_ADD;
	case QRNIC_CQE_ATOMIC_WRITE:
		return IBV_WC_ATOMIC_WRITE;
	case QRNIC_CQE_FLUSH:
		return IBV_WC_FLUSH;
	case QRNIC_CQE_BIND_MW:
		return IBV_WC_BIND_MW;
	case QRNIC_CQE_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case QRNIC_CQE_REG_INDIRECT:
	case QRNIC_CQE_REG_MR:
		return QRNICDV_WC_REG_MKEY;
	case QRNIC_CQE_TAG_ADD:
		return IBV_WC_TM_ADD;
	case QRNIC_CQE_TAG_DEL:
		return IBV_WC_TM_DEL;
	case QRNIC_CQE_TAG_SYNC:
		return IBV_WC_TM_SYNC;
	case QRNIC_CQE_TAG_RECV:
	case QRNIC_CQE_TAG_UNEXPECTED:
		/*
		 * Matched and unexpected messages differ in wc_flags only,
		 * because verbs has one opcode for both.
		 */
		return IBV_WC_TM_RECV;
	case QRNIC_CQE_TAG_NO_TAG:
		return IBV_WC_TM_NO_TAG;
	case QRNIC_CQE_RECV_RDMA_WITH_IMM:
		return IBV_WC_RECV_RDMA_WITH_IMM;
	default:
		return cqe_is_receive(cqe) ? IBV_WC_RECV : IBV_WC_SEND;
	}
}

static inline unsigned int cqe_wc_flags(const struct qrnic_cqe *cqe)
{
	const uint32_t checked = QRNIC_CQEF_L3_CSUM_OK | QRNIC_CQEF_L4_CSUM_OK;
	uint32_t flags = FIELD_GET(QRNIC_CQE_FLAGS_MASK, le32toh(cqe->control));
	unsigned int wc_flags = 0;

	if (flags & QRNIC_CQEF_IMM)
		wc_flags |= IBV_WC_WITH_IMM;
	if (flags & QRNIC_CQEF_INV)
		wc_flags |= IBV_WC_WITH_INV;
	if (flags & QRNIC_CQEF_GRH)
		wc_flags |= IBV_WC_GRH;
	if ((flags & checked) == checked)
		wc_flags |= IBV_WC_IP_CSUM_OK;
	if (cqe->tagged & QRNIC_CQET_MATCH)
		wc_flags |= IBV_WC_TM_MATCH;
	if (cqe->tagged & QRNIC_CQET_DATA_VALID)
		wc_flags |= IBV_WC_TM_DATA_VALID;
	if (cqe->tagged & QRNIC_CQET_SYNC_REQ)
		wc_flags |= IBV_WC_TM_SYNC_REQ;
	return wc_flags;
}

/*
 * Returns immediate data in network order, or the invalidated key in host
 * order.
 */
static inline __be32 cqe_imm_or_key(const struct qrnic_cqe *cqe)
{
	if (le32toh(cqe->control) &
	    FIELD_PREP(QRNIC_CQE_FLAGS_MASK, QRNIC_CQEF_INV))
		return (__force __be32)be32toh(cqe->imm);
	return cqe->imm;
}

/*
 * Returns the kind of the packet, because Ethernet has no service level. Other
 * RoCE adapters report the same values, and programs that must distinguish IPv4
 * and IPv6 (UCX) need them. The value is 8 | 2 for IPv4, 8 | 1 for IPv6, and 0
 * for RoCE v1.
 */
static inline uint8_t cqe_sl(const struct qrnic_cqe *cqe)
{
	/*
	 * The CQE of a match has the tag in these bytes, so there is no network
	 */
	if (cqe->tagged & QRNIC_CQET_MATCH)
		return 0;
	switch (cqe->network) {
	case QRNIC_NETWORK_IPV4:
		return 8 | 2;
	case QRNIC_NETWORK_IPV6:
		return 8 | 1;
	default:
		return 0;
	}
}

static inline uint32_t cqe_src_qp(const struct qrnic_cqe *cqe)
{
	return cqe->tagged & QRNIC_CQET_MATCH ? 0 : le32toh(cqe->src_qpn);
}

#endif /* QRNIC_PROVIDER_CQE_H */
