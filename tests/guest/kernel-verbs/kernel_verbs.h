/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kernel_verbs.h: the objects that every test of this module uses, and common
 * steps. The module tests verbs of the kernel between two QPs of one device.
 * The file connected.c has the list of the tests and runs them in order when
 * the module is loaded. Each test leaves the objects usable for the next one.
 */
#ifndef KERNEL_VERBS_H
#define KERNEL_VERBS_H

#define pr_fmt(fmt) "kernel_verbs: " fmt

#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define PORT 1
#define MAX_WR 16
#define MAX_SGE 6
#define MAX_INLINE 200
#define BUFFER_SIZE 65536

/* End of a connection, with a buffer of its own; RC if it is zeroed */
struct end {
	enum ib_qp_type type;
	struct ib_srq *srq;
	/* Size of each queue in requests; 0 means MAX_WR */
	int max_wr;
	struct ib_qp *qp;
	u8 *buffer;
	u64 dma;
	struct completion event;
	enum ib_event_type event_type;
};

struct test {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_mr *mr;	/* region of all memory with all rights */
	struct ib_cq *cq;	/* CQ of both ends */
	int cqe;
	atomic_t completion_events;
	struct completion cq_event;
	struct end a;
	struct end b;
	int failures;
};

#define EXPECT(test, condition) ({						\
	bool _ok = (condition);							\
	if (!_ok) {								\
		pr_err("%s:%d: not true: %s\n", __func__, __LINE__, #condition); \
		(test)->failures++;						\
	}									\
	_ok;									\
})

extern int gid_index;

/* connected.c: RC, and steps that other files use */
int end_create(struct test *test, struct end *end);
void end_destroy(struct test *test, struct end *end);
int end_to_init(struct end *end);
int end_connect(struct test *test, struct end *end, struct end *peer);
int end_to(struct end *end, enum ib_qp_state state);
bool poll_one(struct test *test, struct ib_wc *wc);
bool quiet(struct test *test);
struct ib_sge sge_of(struct test *test, struct end *end, u32 offset, u32 length);
int recv(struct test *test, struct end *end, u64 id, u32 offset, u32 length);
void fill(u8 *at, size_t length, u8 seed);
bool filled(const u8 *at, size_t length, u8 seed);
void reconnect(struct test *test);
bool poll_of(struct test *test, u64 wr_id, struct ib_wc *wc);
struct ib_rdma_wr rdma(struct test *test, enum ib_wr_opcode opcode,
		       struct ib_sge *sge, u32 remote, u64 id);

/* memory.c: fast registration */
void test_fast_registration(struct test *test);
void test_fast_registration_limits(struct test *test);

/* shared.c: shared receive queues */
void test_srq(struct test *test);

/* datagram.c: UD and UC */
void test_datagram(struct test *test);
void test_unreliable(struct test *test);

/* untrusted.c: invalid CQEs */
void test_untrusted(struct test *test);
void doorbell_group(struct test *test, u32 count);

#endif /* KERNEL_VERBS_H */
