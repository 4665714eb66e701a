// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * completion.c: fields of a completion that the extended interface reads
 * between ibv_start_poll() and ibv_end_poll(), and the pair of clocks for
 * wall-clock timestamps.
 *
 * The polling thread calls the read functions, with the lock of the CQ, and
 * current is its CQE. The clocks are read without the lock, because the lock is
 * a spinlock and reading the clock is a system call.
 */
#include <errno.h>
#include <time.h>

#include <ccan/minmax.h>

#include "cq.h"
#include "cqe.h"

/* Minimum time in nanoseconds between two reads of the clock pair */
#define QRNIC_WALLCLOCK_AGE_NS 100000000u
/*
 * A pair is used for ten times as long as reading it took, so that polling does
 * not spend its time on a slow clock.
 */
#define QRNIC_WALLCLOCK_SHARE 10u
/*
 * Upper limit of the time for which a pair is used. The limit is needed because
 * a process that was stopped during the reads measures a long time.
 */
#define QRNIC_WALLCLOCK_KEEP_NS 10000000000ull
/*
 * Longest time between two wall-clock reads. If it was longer, another program
 * ran between them.
 */
#define QRNIC_WALLCLOCK_READ_NS 50000u
#define QRNIC_WALLCLOCK_TRIES 8

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/*
 * Reads both clocks if the last pair is old, because the clocks drift apart. A
 * pair is used for many polls, because each read is a system call. The device
 * clock is read between two reads of the wall clock, so the closest of several
 * pairs is used. Returns true if clocks is new.
 */
bool qrnic_clocks_read(struct qrnic_cq *cq, struct qrnic_clocks *clocks)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	uint64_t before, after, last, keep, device, shortest = UINT64_MAX;
	int i;

	last = atomic_load_explicit(&cq->read_ns, memory_order_relaxed);
	if (last && clock_ns(CLOCK_REALTIME) - last <
	    atomic_load_explicit(&cq->keep_ns, memory_order_relaxed))
		return false;
	for (i = 0; i < QRNIC_WALLCLOCK_TRIES; i++) {
		before = clock_ns(CLOCK_REALTIME);
		if (qrnic_read_clock(cq->vcq.cq.context, &device))
			break;
		after = clock_ns(CLOCK_REALTIME);
		/* A pair is invalid if the wall clock was set back meanwhile */
		if (after >= before && after - before < shortest) {
			shortest = after - before;
			clocks->device = device;
			clocks->wall_ns = before + shortest / 2;
		}
		if (shortest <= QRNIC_WALLCLOCK_READ_NS)
			break;
	}
	keep = QRNIC_WALLCLOCK_SHARE * (clock_ns(CLOCK_MONOTONIC) - start);
	keep = max_t(uint64_t, keep, QRNIC_WALLCLOCK_AGE_NS);
	clocks->keep_ns = min_t(uint64_t, keep, QRNIC_WALLCLOCK_KEEP_NS);
	clocks->read_ns = clock_ns(CLOCK_REALTIME);
	return shortest < UINT64_MAX;
}

static enum ibv_wc_opcode qrnic_read_opcode(struct ibv_cq_ex *ibcq)
{
	return cqe_opcode(to_qrnic_cq_ex(ibcq)->current);
}

static uint32_t qrnic_read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_qrnic_cq_ex(ibcq)->current->syndrome);
}

static uint32_t qrnic_read_byte_len(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_qrnic_cq_ex(ibcq)->current->byte_len);
}

static __be32 qrnic_read_imm_data(struct ibv_cq_ex *ibcq)
{
	return cqe_imm_or_key(to_qrnic_cq_ex(ibcq)->current);
}

static uint32_t qrnic_read_qp_num(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_qrnic_cq_ex(ibcq)->current->qpn);
}

static unsigned int qrnic_read_wc_flags(struct ibv_cq_ex *ibcq)
{
	return cqe_wc_flags(to_qrnic_cq_ex(ibcq)->current);
}

static uint64_t qrnic_read_completion_ts(struct ibv_cq_ex *ibcq)
{
	return le64toh(to_qrnic_cq_ex(ibcq)->current->timestamp);
}

static uint64_t qrnic_read_wallclock(struct ibv_cq_ex *ibcq)
{
	struct qrnic_cq *cq = to_qrnic_cq_ex(ibcq);
	struct qrnic_context *ctx = to_qrnic_context(cq->vcq.cq.context);
	int64_t ticks = le64toh(cq->current->timestamp) - cq->clocks.device;

	/*
	 * The product is computed after the division, so that it overflows only
	 * after 292 years at 1 GHz
	 */
	return cq->clocks.wall_ns + ticks / ctx->clock_khz * 1000000 +
	       ticks % ctx->clock_khz * 1000000 / ctx->clock_khz;
}

static uint32_t qrnic_read_src_qp(struct ibv_cq_ex *ibcq)
{
	return cqe_src_qp(to_qrnic_cq_ex(ibcq)->current);
}

static uint8_t qrnic_read_sl(struct ibv_cq_ex *ibcq)
{
	return cqe_sl(to_qrnic_cq_ex(ibcq)->current);
}

static uint16_t qrnic_read_cvlan(struct ibv_cq_ex *ibcq)
{
	return le16toh(to_qrnic_cq_ex(ibcq)->current->vlan_tci);
}

/* Returns tag and priv of a match, and zeros for other completions. */
static void qrnic_read_tm_info(struct ibv_cq_ex *ibcq,
			       struct ibv_wc_tm_info *info)
{
	const struct qrnic_cqe *cqe = to_qrnic_cq_ex(ibcq)->current;
	const struct qrnic_cqe_tag *tag = (const void *)cqe;
	bool match = cqe->tagged & QRNIC_CQET_MATCH;

	info->tag = match ? le64toh(tag->tag) : 0;
	info->priv = match ? le32toh(tag->app_ctx) : 0;
}

/* Returns 0, because Ethernet has no LIDs. */
static uint32_t qrnic_read_slid(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint8_t qrnic_read_dlid_path_bits(struct ibv_cq_ex *ibcq)
{
	return 0;
}

void qrnic_cq_set_read_ops(struct qrnic_cq *qcq, uint64_t wc_flags)
{
	struct ibv_cq_ex *cq = &qcq->vcq.cq_ex;

	cq->read_opcode = qrnic_read_opcode;
	cq->read_vendor_err = qrnic_read_vendor_err;
	cq->read_wc_flags = qrnic_read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq->read_byte_len = qrnic_read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		cq->read_imm_data = qrnic_read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq->read_qp_num = qrnic_read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq->read_src_qp = qrnic_read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq->read_slid = qrnic_read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq->read_sl = qrnic_read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq->read_dlid_path_bits = qrnic_read_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_CVLAN)
		cq->read_cvlan = qrnic_read_cvlan;
	if (wc_flags & IBV_WC_EX_WITH_TM_INFO)
		cq->read_tm_info = qrnic_read_tm_info;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq->read_completion_ts = qrnic_read_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
		cq->read_completion_wallclock_ns = qrnic_read_wallclock;
		qcq->wallclock = true;
	}
}
