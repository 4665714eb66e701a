/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * tags.h: shared by the tests of tag matching. The objects are an SRQ with a
 * tag list, queue pairs that use it, entries, messages of both protocols, and
 * completions. Each test creates these objects first and destroys them last.
 */
#ifndef QRNIC_TAGS_H
#define QRNIC_TAGS_H

#include <infiniband/tm_types.h>

#include "test.h"

#define QPS 4
#define DEPTH 12		/* outstanding messages of a queue pair */
#define FINS (2 * DEPTH)
#define MESSAGES 10000u
#define WQES 128u
#define WQE_SIZE 4096u
#define SLOTS 16
#define SLOT_SIZE 32768u
#define ROOMS (24u << 20)
#define GUARD 16
#define NONE UINT32_MAX

struct header {
	struct ibv_tmh tag;
	struct ibv_rvh rendezvous;
};

/*
 * Memory that the adapter reads and writes, except the data of eager messages,
 * which is in buffer
 */
struct area {
	struct header header[MESSAGES];
	struct header fin[QPS][FINS];
	uint8_t wqe[WQES][WQE_SIZE];
	uint8_t slot[SLOTS][SLOT_SIZE];
	uint8_t room[ROOMS];
};

struct message {
	uint64_t tag;
	uint32_t source, length, kind, sequence, next, wrong_key;
	int qp, slot;
	bool rendezvous, finished;
	uint8_t *copy;		/* copy of an unexpected message */
};

enum entry_state { UNUSED, LISTED, CANCELED, SPOKEN_FOR, MATCHED, DONE, GONE };

struct entry {
	uint64_t tag, mask;
	size_t at;
	uint32_t room, handle, message, kind, next;
	int pieces;
	enum entry_state state;
};

struct completion {
	uint64_t wr_id, tag;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t flags, length, number, qp_num, syndrome;
};

static struct area *area;
static struct ibv_mr *area_mr;
static struct ibv_cq_ex *cq;
static struct ibv_cq *send_cq, *fin_cq;
static struct ibv_srq *srq;
static struct ibv_qp *from[QPS], *to[QPS];
static struct message message[MESSAGES];
static struct entry entry[2 * MESSAGES];
static uint32_t random_seed = 1;

static inline uint32_t random_below(uint32_t bound)
{
	random_seed = random_seed * 1103515245 + 12345;
	return (random_seed >> 4) % bound;
}

static inline struct ibv_sge of_area(const void *at, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)at, length, area_mr->lkey };
}

static inline void wqe_post(uint32_t number)
{
	struct ibv_sge sge = of_area(area->wqe[number], WQE_SIZE);
	struct ibv_recv_wr wr = { number, NULL, &sge, 1 }, *bad;

	CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
}

static inline void fin_post(int qp, uint32_t number)
{
	struct ibv_sge sge = of_area(&area->fin[qp][number],
				     sizeof(struct header));
	struct ibv_recv_wr wr = { qp * FINS + number, NULL, &sge, 1 }, *bad;

	CHECK(!ibv_post_recv(from[qp], &wr, &bad));
}

static inline struct ibv_srq_init_attr_ex srq_attr(uint32_t tags, uint32_t ops)
{
	return (struct ibv_srq_init_attr_ex){
		.attr = { .max_wr = WQES, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.cq = cq ? ibv_cq_ex_to_cq(cq) : NULL,
		.tm_cap = { tags, ops },
	};
}

static inline void qp_make(int i)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = send_cq, .recv_cq = fin_cq, .qp_type = IBV_QPT_RC,
		.cap = { 4 * DEPTH, FINS, 2, 1, sizeof(struct header) },
	};
	uint32_t j;

	from[i] = ibv_create_qp(pd, &attr);
	attr.srq = srq;
	to[i] = ibv_create_qp(pd, &attr);
	CHECK(from[i] && to[i]);
	CHECK(!to_init(to[i]) && !to_rtr(to[i], from[i]->qp_num) &&
	      !to_rts(to[i]));
	CHECK(!to_init(from[i]) && !to_rtr(from[i], to[i]->qp_num) &&
	      !to_rts(from[i]));
	for (j = 0; j < FINS; j++)
		fin_post(i, j);
}

static inline void make(uint32_t tags, uint32_t ops)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 8192,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM |
			    IBV_WC_EX_WITH_TM_INFO,
	};
	struct ibv_srq_init_attr_ex attr;
	uint32_t i;

	NEED(capabilities & QRNIC_CAP_TAG_MATCHING);
	for (i = 0; i < MESSAGES; i++)
		free(message[i].copy);
	memset(message, 0, sizeof(message));
	memset(entry, 0, sizeof(entry));
	if (!area) {
		CHECK(!posix_memalign((void **)&area, 4096, sizeof(*area)));
		area_mr = ibv_reg_mr(pd, area, sizeof(*area),
				     IBV_ACCESS_LOCAL_WRITE | remote_rights());
		CHECK(area_mr);
		fill(0, BUFFER_SIZE, 7);
	}
	memset(area->room, 0xee, sizeof(area->room));
	cq = ibv_create_cq_ex(context, &cq_attr);
	send_cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
	fin_cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
	CHECK(cq && send_cq && fin_cq);
	attr = srq_attr(tags, ops);
	srq = ibv_create_srq_ex(context, &attr);
	CHECK(srq);
	for (i = 0; i < QPS; i++)
		qp_make(i);
	for (i = 0; i < WQES; i++)
		wqe_post(i);
}

static inline void unmake(void)
{
	int i;

	for (i = 0; i < QPS; i++)
		CHECK(!ibv_destroy_qp(from[i]) && !ibv_destroy_qp(to[i]));
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	CHECK(!ibv_destroy_cq(send_cq) && !ibv_destroy_cq(fin_cq));
	cq = NULL;
}

static inline bool take(struct completion *c)
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_wc_tm_info info;

	if (ibv_start_poll(cq, &attr))
		return false;
	ibv_wc_read_tm_info(cq, &info);
	*c = (struct completion){
		.wr_id = cq->wr_id,
		.status = cq->status,
		.opcode = ibv_wc_read_opcode(cq),
		.flags = ibv_wc_read_wc_flags(cq),
		.length = ibv_wc_read_byte_len(cq),
		.qp_num = ibv_wc_read_qp_num(cq),
		.syndrome = ibv_wc_read_vendor_err(cq),
		.tag = info.tag,
		.number = info.priv,
	};
	ibv_end_poll(cq);
	return true;
}

static inline struct completion await(void)
{
	uint64_t end = now_ms() + SECONDS * 1000;
	struct completion c;

	while (!take(&c))
		CHECK(now_ms() < end);
	return c;
}

static inline int post_ops(struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad = NULL;
	int err = ibv_post_srq_ops(srq, wr, &bad);

	return err && bad != wr ? -1 : err;
}

/*
 * Adds entry i, whose buffer is behind the buffer of entry i - 1, and whose
 * wr_id is i.
 */
static inline int add_with(uint32_t i, int flags, uint32_t count)
{
	struct entry *e = &entry[i];
	struct ibv_sge sge[8];
	struct ibv_ops_wr wr = {
		.wr_id = i, .opcode = IBV_WR_TAG_ADD, .flags = flags,
		.tm = { .unexpected_cnt = count,
			.add = { .recv_wr_id = i, .sg_list = sge,
				 .num_sge = e->pieces, .tag = e->tag,
				 .mask = e->mask } },
	};
	uint32_t done = 0, length;
	int err, j;

	for (j = 0; j < e->pieces; j++) {
		length = j == e->pieces - 1 ? e->room - done :
					      e->room / e->pieces;
		sge[j] = of_area(area->room + e->at + done, length);
		done += length;
	}
	err = post_ops(&wr);
	if (!err) {
		e->handle = wr.tm.handle;
		e->state = LISTED;
	}
	return err;
}

static inline int add(uint32_t i, int flags)
{
	return add_with(i, flags, 0);
}

static inline int del_with(uint32_t handle, uint64_t wr_id, int flags,
			   uint32_t count)
{
	struct ibv_ops_wr wr = {
		.wr_id = wr_id, .opcode = IBV_WR_TAG_DEL, .flags = flags,
		.tm = { .unexpected_cnt = count, .handle = handle },
	};

	return post_ops(&wr);
}

static inline int del(uint32_t i)
{
	return del_with(entry[i].handle, i, IBV_OPS_SIGNALED, 0);
}

static inline int tell(uint32_t count, int flags)
{
	struct ibv_ops_wr wr = {
		.wr_id = NONE, .opcode = IBV_WR_TAG_SYNC,
		.flags = flags | IBV_OPS_TM_SYNC,
		.tm = { .unexpected_cnt = count },
	};

	return post_ops(&wr);
}

/* Sets up an entry whose buffer is behind the buffer of the previous entry. */
static inline void entry_make(uint32_t i, uint64_t tag, uint64_t mask,
			      uint32_t room, int pieces)
{
	size_t at = i ? entry[i - 1].at + entry[i - 1].room + GUARD : GUARD;

	CHECK(at + room + GUARD <= ROOMS);
	entry[i] = (struct entry){
		.tag = tag & mask, .mask = mask, .at = at, .room = room,
		.pieces = pieces, .message = NONE,
	};
}

static inline void message_make(uint32_t i, uint64_t tag, uint32_t length,
				bool rendezvous)
{
	message[i].tag = tag;
	message[i].length = length;
	message[i].rendezvous = rendezvous;
	message[i].source = random_below(BUFFER_SIZE - length);
	message[i].slot = -1;
}

static inline int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags |= IBV_SEND_SIGNALED;
	return ibv_post_send(qp, wr, &bad);
}

/*
 * Sends message i. If it is a rendezvous whose data is in a slot, only the
 * headers are sent.
 */
static inline void message_send(uint32_t i, int qp)
{
	struct message *m = &message[i];
	struct header *h = &area->header[i];
	struct ibv_sge sge[] = {
		of_area(h, m->rendezvous ? sizeof(*h) : sizeof(h->tag)),
		sge_of(m->source, m->length),
	};
	struct ibv_send_wr wr = {
		.wr_id = i, .sg_list = sge, .num_sge = m->rendezvous ? 1 : 2,
		.opcode = IBV_WR_SEND,
	};

	m->qp = qp;
	*h = (struct header){
		.tag.opcode = m->rendezvous ? IBV_TMH_RNDV : IBV_TMH_EAGER,
		.tag.app_ctx = htobe32(i),
		.tag.tag = htobe64(m->tag),
	};
	if (m->rendezvous) {
		if (m->slot >= 0)
			memcpy(area->slot[m->slot], buffer + m->source,
			       m->length);
		h->rendezvous.va = htobe64((uintptr_t)(m->slot < 0 ?
						       buffer + m->source :
						       area->slot[m->slot]));
		h->rendezvous.rkey = htobe32((m->slot < 0 ? mr->rkey :
							    area_mr->rkey) ^
					     m->wrong_key);
		h->rendezvous.len = htobe32(m->length);
	}
	CHECK(!post_send(from[qp], &wr));
}

static inline struct completion expect(enum ibv_wc_opcode opcode,
				       uint64_t wr_id, uint32_t flags)
{
	struct completion c = await();

	if (c.status || c.opcode != opcode || c.wr_id != wr_id ||
	    c.flags != flags)
		printf("# %s, opcode %d instead of %d, number %lld instead of %lld, flags %#x instead of %#x, syndrome %u\n",
		       ibv_wc_status_str(c.status), c.opcode, opcode,
		       (long long)c.wr_id, (long long)wr_id, c.flags, flags,
		       c.syndrome);
	CHECK(!c.status && c.opcode == opcode && c.wr_id == wr_id &&
	      c.flags == flags);
	return c;
}

static inline struct completion expect_error(enum ibv_wc_status status,
					     uint64_t wr_id, uint32_t syndrome)
{
	struct completion c = await();

	if (c.status != status || c.wr_id != wr_id || c.syndrome != syndrome)
		printf("# %s instead of %s, number %lld, syndrome %u\n",
		       ibv_wc_status_str(c.status), ibv_wc_status_str(status),
		       (long long)c.wr_id, c.syndrome);
	CHECK(c.status == status && c.wr_id == wr_id && c.syndrome == syndrome);
	return c;
}

/*
 * Checks that no completion is pending. Completions are in order, so the next
 * one must be that of this operation.
 */
static inline void nothing(uint32_t unexpected)
{
	CHECK(!tell(unexpected, IBV_OPS_SIGNALED));
	expect(IBV_WC_TM_SYNC, NONE, 0);
}

static inline void sent_well(uint32_t i)
{
	struct ibv_wc wc;

	CHECK(poll_one(send_cq, &wc) == 1 && !wc.status && wc.wr_id == i);
}

static inline void expect_data(uint32_t e, uint32_t m)
{
	const uint8_t *room = area->room + entry[e].at;
	uint32_t i;

	CHECK(!memcmp(room, buffer + message[m].source, message[m].length));
	for (i = message[m].length; i < entry[e].room + GUARD; i++)
		CHECK(room[i] == 0xee);
}

/*
 * Checks a FIN message and returns the number of its rendezvous, whose sender
 * may then reuse the memory.
 */
static inline uint32_t fin_taken(const struct ibv_wc *wc)
{
	struct header *fin = &area->fin[0][wc->wr_id], wanted;
	uint32_t i = be32toh(fin->tag.app_ctx);

	CHECK(!wc->status && wc->byte_len == sizeof(*fin) && i < MESSAGES);
	wanted = area->header[i];
	wanted.tag.opcode = IBV_TMH_FIN;
	CHECK(!memcmp(fin, &wanted, sizeof(wanted)));
	CHECK(message[i].rendezvous && !message[i].finished);
	CHECK(wc->qp_num == from[message[i].qp]->qp_num);
	message[i].finished = true;
	if (message[i].slot >= 0)
		memset(area->slot[message[i].slot], 0xdd, SLOT_SIZE);
	fin_post(wc->wr_id / FINS, wc->wr_id % FINS);
	return i;
}

static inline void expect_fin(uint32_t i)
{
	struct ibv_wc wc;

	CHECK(poll_one(fin_cq, &wc) == 1);
	CHECK(fin_taken(&wc) == i);
}

#endif /* QRNIC_TAGS_H */
