// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * order-test.c: tests the order of stores and the use of locks in libqrnic, on
 * any processor and without an adapter. The test includes files of the library,
 * and replaces the kernel with functions. Other functions replace barriers and
 * doorbells, and record them. Prints TAP.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Replacements for util/udma_barrier.h and util/mmio.h */
#define __UTIL_UDMA_BARRIER_H
#define __UTIL_MMIO_H
enum barrier { STORES, LOADS, WC_START, WC_FLUSH, FULL };
static void barrier(enum barrier kind);
static void mmio(const void *address, uint64_t value);
#define udma_to_device_barrier() barrier(STORES)
#define udma_ordering_write_barrier() barrier(STORES)
#define udma_from_device_barrier() barrier(LOADS)
#define mmio_wc_start() barrier(WC_START)
#define mmio_flush_writes() barrier(WC_FLUSH)
#define mmio_write64_le(address, value) mmio(address, le64toh(value))
#define mmio_write64(address, value) mmio(address, value)

/* Counts locks */
static int counted_lock(pthread_spinlock_t *lock);
#define pthread_spin_lock(lock) counted_lock(lock)

#include <ccan/array_size.h>

#include "../qrnic.h"

/* Executes the barrier of the library; test_full_barrier() reads its code. */
static void __attribute__((noinline, noipa)) full_barrier(void)
{
	qrnic_full_barrier();
}

/* Replacement for the barrier in the files below */
#define qrnic_full_barrier() barrier(FULL)

#include "../wqe.c"
#include "../post.c"
#include "../batch.c"
#include "../post_ex.c"
#include "../poll.c"
#include "../completion.c"
#include "../cq.c"
#include "../qp.c"
#include "../tags.c"
#undef pthread_spin_lock

#define CHECK(condition)                                                       \
	((condition) ? (void)0 : check_failed(__func__, __LINE__, #condition))
#define RING 32

static jmp_buf test_end;
static int tests, failures;
static void (*on_barrier)(enum barrier kind);
static void (*on_mmio)(size_t offset, uint64_t value);
static int (*on_resize)(void *ring);
static int clock_reads, slow_clock_reads, failing_clock_read;

static struct ibv_device device;
static struct qrnic_context ctx;
static struct qrnic_cq cq;
static struct qrnic_qp qp, successor;
static struct qrnic_srq srqs[2];
static int srq_locks, taken_back;
static struct qrnic_cqe ring[RING], new_ring[2 * RING];
static struct qrnic_cq_record cq_record;
static struct qrnic_queue_record sq_record, rq_record;
static uint8_t sq_ring[8 * QRNIC_WQEBB_SIZE], sq_blocks[8];
static uint32_t sq_number[8];
static uint8_t rq_ring[8 * QRNIC_WQEBB_SIZE], page[QRNIC_DB_PAGE_SIZE];
static uint64_t wr_ids[8], successor_wr_ids[8];

static void __attribute__((noreturn))
check_failed(const char *function, int line, const char *condition)
{
	printf("# %s:%d: %s\n", function, line, condition);
	longjmp(test_end, 1);
}

static void barrier(enum barrier kind)
{
	if (kind == FULL)
		__sync_synchronize();
	if (on_barrier)
		on_barrier(kind);
}

static void mmio(const void *address, uint64_t value)
{
	if (on_mmio)
		on_mmio((const uint8_t *)address - page, value);
}

/* Functions that the included files need from other files */
void qrnic_ring_doorbell(const struct qrnic_db *db, uint32_t offset,
			 uint32_t number, uint32_t index)
{
	mmio((uint8_t *)db->page + offset, number | (uint64_t)index << 32);
}

bool qrnic_is_device(struct ibv_device *device)
{
	return true;
}

static bool is_locked(struct qrnic_lock *lock);

static int complaints;

void __verbs_log(struct verbs_context *context, uint32_t level,
		 const char *format, ...)
{
	/*
	 * A message may take long, so no other thread may wait for a spinlock
	 * meanwhile
	 */
	complaints += is_locked(&cq.lock) ? 1000 : 1;
}

/*
 * Replaces the clock of the device. The first slow_clock_reads reads return 20
 * ms late. From read failing_clock_read on, if it is not 0, reads fail.
 */
int qrnic_read_clock(struct ibv_context *context, uint64_t *clock)
{
	struct timespec pause = { .tv_nsec = 20000000 };

	CHECK(!is_locked(&cq.lock));
	*clock = ++clock_reads;
	if (failing_clock_read && clock_reads >= failing_clock_read)
		return EIO;
	if (clock_reads <= slow_clock_reads)
		nanosleep(&pause, NULL);
	return 0;
}

int ibv_cmd_resize_cq(struct ibv_cq *ibcq, int cqe, struct ibv_resize_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_resize_cq_resp *resp,
		      size_t resp_size)
{
	return on_resize(new_ring);
}

int qrnic_buffer_alloc(struct qrnic_context *context, struct qrnic_buffer *buf,
		       size_t length, struct qrnic_pd *pd, uint64_t resource_type)
{
	CHECK(length == sizeof(new_ring));
	*buf = (struct qrnic_buffer){ .addr = new_ring, .length = length };
	return 0;
}

void qrnic_buffer_free(struct qrnic_buffer *buf)
{
}

struct qrnic_pd *qrnic_pd_use(struct ibv_pd *ibpd)
{
	return NULL;
}

void qrnic_pd_unuse(struct qrnic_pd *pd)
{
}

static bool is_locked(struct qrnic_lock *lock)
{
	if (pthread_spin_trylock(&lock->spin))
		return true;
	pthread_spin_unlock(&lock->spin);
	return false;
}

static int counted_lock(pthread_spinlock_t *lock)
{
	srq_locks += lock == &srqs[0].lock.spin || lock == &srqs[1].lock.spin;
	return pthread_spin_lock(lock);
}

static struct qrnic_srq *other_srq(struct qrnic_srq *srq)
{
	return srq == &srqs[0] ? &srqs[1] : &srqs[0];
}

uint64_t qrnic_srq_take_back(struct qrnic_srq *srq, uint32_t slot)
{
	CHECK(is_locked(&srq->lock) && !is_locked(&other_srq(srq)->lock));
	taken_back++;
	return slot;
}

const union qrnic_segment *qrnic_srq_wqe(const struct qrnic_srq *srq,
					 uint32_t slot)
{
	CHECK(is_locked((struct qrnic_lock *)&srq->lock));
	return (const void *)rq_ring;
}

static void wq_init(struct qrnic_wq *wq, void *wq_ring,
		    struct qrnic_queue_record *record)
{
	memset(record, 0, sizeof(*record));
	*wq = (struct qrnic_wq){
		.ring = wq_ring, .record = record, .size = 8, .max_sge = 3,
		.wr_id = wr_ids,
	};
	qrnic_lock_init(&wq->lock, true);
}

static void start(void)
{
	on_barrier = NULL;
	on_mmio = NULL;
	free(ctx.qp_table[0]);
	memset(&ctx, 0, sizeof(ctx));
	memset(&cq, 0, sizeof(cq));
	memset(&qp, 0, sizeof(qp));
	memset(ring, 0, sizeof(ring));
	memset(new_ring, 0, sizeof(new_ring));
	memset(&cq_record, 0, sizeof(cq_record));
	ctx.capabilities = QRNIC_CAP_ALL;
	ctx.max_cqe = 4 * RING;
	ctx.clock_khz = 1000;
	ctx.db.page = page;
	ctx.db.direct_wqe = true;
	qrnic_lock_init(&ctx.db.window_lock, true);
	pthread_mutex_init(&ctx.qp_mutex, NULL);
	ctx.vctx.context.device = &device;
	cq.vcq.cq.context = &ctx.vctx.context;
	cq.ring = ring;
	cq.log_size = 5;
	cq.record = &cq_record;
	cq.batch = QRNIC_POLL_BATCH;
	list_head_init(&cq.srqs);
	qrnic_lock_init(&cq.lock, true);
	qrnic_lock_init(&cq.arm_lock, true);
	pthread_mutex_init(&cq.resize_mutex, NULL);
	qp.ctx = &ctx;
	qp.db = &ctx.db;
	qp.vqp.qp.qp_num = 7;
	qp.vqp.qp.qp_type = IBV_QPT_RC;
	qp.vqp.qp.state = IBV_QPS_RTS;
	qp.vqp.qp.send_cq = &cq.vcq.cq;
	qp.vqp.qp.recv_cq = &cq.vcq.cq;
	qp.has_sq = true;
	qp.has_rq = true;
	qp.max_inline = 64;
	qp.rq_stride_shift = QRNIC_WQEBB_SHIFT;
	qp.sq_blocks = sq_blocks;
	qp.sq_number = sq_number;
	qp.max_send_wr = 8;
	wq_init(&qp.sq, sq_ring, &sq_record);
	wq_init(&qp.rq, rq_ring, &rq_record);
	qrnic_lock_init(&srqs[0].lock, true);
	qrnic_lock_init(&srqs[1].lock, true);
	successor = qp;
	successor.sq.wr_id = successor_wr_ids;
	CHECK(!qrnic_qp_table_add(&ctx, &qp));
}

static void put_cqe(struct qrnic_cqe *to, uint32_t qpn, uint8_t opcode,
		    uint8_t flags)
{
	*to = (struct qrnic_cqe){
		.qpn = htole32(qpn),
		.control = htole32(
			FIELD_PREP(QRNIC_CQE_PHASE_MASK, 1) |
			FIELD_PREP(QRNIC_CQE_OPCODE_MASK, opcode) |
			FIELD_PREP(QRNIC_CQE_FLAGS_MASK, flags)),
	};
}

/* True if a store barrier was between the data and the consumer index */
static bool between;

static void look_at_zeros(enum barrier kind)
{
	const struct qrnic_cqe_inline *in = (const void *)ring;

	if (kind == STORES && !in->data[0] && !cq_record.consumer)
		between = true;
}

static void test_zeroed(void)
{
	struct qrnic_cqe_inline *in = (void *)ring;
	union qrnic_segment *wqe = (void *)rq_ring;
	uint8_t data[8] = {};
	struct ibv_wc wc;

	put_cqe(ring, 7, QRNIC_CQE_RECV, QRNIC_CQEF_INLINE);
	in->byte_len = htole32(8);
	memset(in->data, 0x77, sizeof(in->data));
	wqe->recv = (struct qrnic_recv_ctrl){ .data_segments = htole32(1) };
	qrnic_set_data(&wqe[1].data, (uintptr_t)data, 8, 0);
	between = false;
	on_barrier = look_at_zeros;
	CHECK(qrnic_poll_cq(&cq.vcq.cq, 1, &wc) == 1);
	CHECK(data[7] == 0x77 && !in->data[0]);
	CHECK(cq_record.consumer == htole32(1) && between);
}

static void look_at_moved(enum barrier kind)
{
	if (kind == STORES && ring[1].qpn == htole32(9) && !cq_record.consumer)
		between = true;
}

static void test_moved(void)
{
	put_cqe(&ring[0], 9, QRNIC_CQE_SEND, 0);
	put_cqe(&ring[1], 7, QRNIC_CQE_SEND, 0);
	between = false;
	on_barrier = look_at_moved;
	qrnic_cq_clean(&cq, &qp);
	CHECK(cq_record.consumer == htole32(1) && between);
}

static void test_arm_in_poll(void)
{
	struct ibv_poll_cq_attr attr = {};

	qrnic_cq_set_poll_ops(&cq, 0);
	sq_blocks[0] = 1;
	put_cqe(&ring[0], 7, QRNIC_CQE_SEND, 0);
	CHECK(!ibv_start_poll(&cq.vcq.cq_ex, &attr));
	/* The alarm ends the program if the call waits for its own lock */
	alarm(20);
	CHECK(!qrnic_req_notify_cq(&cq.vcq.cq, 0));
	alarm(0);
	CHECK(cq_record.arm == htole32(1) && !cq_record.consumer);
	ibv_end_poll(&cq.vcq.cq_ex);
	CHECK(cq_record.consumer == htole32(1));
}

static void test_wallclock(void)
{
	struct ibv_poll_cq_attr attr = {};

	qrnic_cq_set_poll_ops(&cq,
			      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	sq_blocks[0] = 1;
	put_cqe(&ring[0], 7, QRNIC_CQE_SEND, 0);
	clock_reads = 0;
	CHECK(!ibv_start_poll(&cq.vcq.cq_ex, &attr));
	CHECK(cq.clocks.device >= 1 && cq.clocks.device <= clock_reads);
	ring[0].timestamp = htole64(cq.clocks.device + 1000);
	CHECK(ibv_wc_read_completion_wallclock_ns(&cq.vcq.cq_ex) ==
	      cq.clocks.wall_ns + 1000000);
	ibv_end_poll(&cq.vcq.cq_ex);
}

/*
 * Tests that the closest of several pairs is used, and that the number of reads
 * is limited.
 */
static void test_slow_clock(void)
{
	struct ibv_poll_cq_attr attr = {};

	qrnic_cq_set_poll_ops(&cq,
			      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	clock_reads = 0;
	slow_clock_reads = 2;
	CHECK(ibv_start_poll(&cq.vcq.cq_ex, &attr) == ENOENT);
	CHECK(clock_reads > 2 && cq.clocks.device > 2);
	cq.read_ns = 0;
	clock_reads = 0;
	slow_clock_reads = INT_MAX;
	CHECK(ibv_start_poll(&cq.vcq.cq_ex, &attr) == ENOENT);
	CHECK(clock_reads == 8 && cq.clocks.device <= 8);
	/*
	 * The clock is not read at each poll, because a pair is kept for most
	 * of the time
	 */
	CHECK(ibv_start_poll(&cq.vcq.cq_ex, &attr) == ENOENT && clock_reads == 8);
	CHECK(cq.keep_ns >= 8 * 20 * 1000000ull * 9 && cq.keep_ns <= 10000000000ull);
	slow_clock_reads = 0;
}

/*
 * Tests a device clock that cannot be read. If the first read fails, there is
 * no pair. If the second read fails, the pair of the first read is used.
 */
static void test_failing_clock(void)
{
	struct ibv_poll_cq_attr attr = {};

	qrnic_cq_set_poll_ops(&cq,
			      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	clock_reads = 0;
	failing_clock_read = 1;
	CHECK(ibv_start_poll(&cq.vcq.cq_ex, &attr) == ENOENT && !cq.read_ns);
	clock_reads = 0;
	failing_clock_read = 2;
	slow_clock_reads = 1;
	CHECK(ibv_start_poll(&cq.vcq.cq_ex, &attr) == ENOENT);
	CHECK(clock_reads == 2 && cq.clocks.device == 1);
	CHECK(cq.read_ns >= cq.clocks.wall_ns &&
	      cq.read_ns - cq.clocks.wall_ns < 1000000000);
	CHECK(cq.keep_ns >= 100000000 && cq.keep_ns < 10000000000ull);
	failing_clock_read = slow_clock_reads = 0;
}

static int polled;
static struct ibv_wc poller_wc;

static void *poll_meanwhile(void *arg)
{
	polled = qrnic_poll_cq(&cq.vcq.cq, 1, &poller_wc);
	return NULL;
}

static pthread_t poller;

/*
 * Resizes the CQ as the device does. The CQE is in the new ring, and the old
 * ring has invalid contents.
 */
static int resize_with_poller(void *to)
{
	CHECK(!is_locked(&cq.lock) && cq.resizing);
	CHECK(!pthread_create(&poller, NULL, poll_meanwhile, NULL));
	put_cqe(&ring[0], 12345, QRNIC_CQE_SEND, 0);
	put_cqe(to, 7, QRNIC_CQE_SEND, 0);
	return 0;
}

static void test_resize(void)
{
	sq_blocks[0] = 1;
	wr_ids[0] = 99;
	put_cqe(&ring[0], 7, QRNIC_CQE_SEND, 0);
	on_resize = resize_with_poller;
	alarm(20);
	CHECK(!qrnic_resize_cq(&cq.vcq.cq, 2 * RING));
	pthread_join(poller, NULL);
	alarm(0);
	CHECK(polled == 1 && poller_wc.qp_num == 7 && poller_wc.wr_id == 99);
	CHECK(cq.ring == new_ring && !cq.resizing);
}

/*
 * Recorded events in order: doorbells (S, D), stores to the window (w),
 * barriers (b), fences (f), full barriers (F)
 */
static char trace[200];

static void trace_barrier(enum barrier kind)
{
	static const char letter[] = { 'b', 'l', 'f', 'f', 'F' };

	if (kind == WC_START || kind == FULL)
		CHECK(sq_record.producer == htole32(qp.sq.producer));
	strncat(trace, &letter[kind], 1);
}

static void trace_mmio(size_t offset, uint64_t value)
{
	const char *letter = offset >= QRNIC_DB_WINDOW ? "w" :
			     offset == QRNIC_DB_DIRECT ? "D" : "S";

	strcat(trace, letter);
}

static int post(unsigned int flags, unsigned int number)
{
	struct ibv_sge sge = { (uintptr_t)trace, 8, 1 };
	struct ibv_send_wr wr[2] = {
		{ .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		  .send_flags = flags, .next = number > 1 ? &wr[1] : NULL },
		{ .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
	}, *bad;

	*trace = 0;
	return qrnic_post_send(&qp.vqp.qp, wr, &bad);
}

/*
 * Tests that there are fences around each doorbell under the lock, because the
 * page is write-combining.
 */
static void test_doorbells(void)
{
	on_barrier = trace_barrier;
	on_mmio = trace_mmio;
	CHECK(!post(0, 1));
	CHECK(!strcmp(trace, "bfwwwwwwwwfDf"));
	CHECK(!post(0, 2));
	CHECK(!strcmp(trace, "bfSf"));
	ctx.db.direct_wqe = false;
	atomic_store(&qp.sq.consumer, qp.sq.producer);
	CHECK(!post(0, 1));
	CHECK(!strcmp(trace, "bfSf"));
	on_barrier = NULL;
	*trace = 0;
	CHECK(!qrnic_req_notify_cq(&cq.vcq.cq, 0));
	CHECK(!strcmp(trace, "S"));
}

/* Tests the rule for event indices, also where the counters wrap around. */
static void test_event_rule(void)
{
	static const struct {
		uint32_t event, old, producer;
		bool needed;
	} rules[] = {
		/* A new queue, whose device has consumed nothing */
		{ 0, 0, 1, true }, { 0, 0, 9, true },
		/* The device stopped at the first or the last new block */
		{ 5, 5, 6, true }, { 5, 5, 8, true }, { 7, 5, 8, true },
		/* The device has not stopped since earlier blocks */
		{ 4, 5, 6, false }, { 0, 5, 8, false }, { 4, 5, 8, false },
		/* The device has already consumed the new blocks */
		{ 8, 5, 8, false }, { 9, 5, 8, false },
		{ UINT32_MAX, UINT32_MAX, 0, true },
		{ UINT32_MAX, UINT32_MAX, 8, true },
		{ 0, UINT32_MAX, 1, true }, { 1, UINT32_MAX, 1, false },
		{ UINT32_MAX - 1, UINT32_MAX, 8, false },
		{ UINT32_MAX, 0, 1, false }, { UINT32_MAX, 0, 9, false },
		{ 1u << 31, 0, 1, false }, { 1u << 31, 1u << 31, 1u << 31, false },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rules); i++)
		CHECK(qrnic_doorbell_needed(rules[i].event, rules[i].old,
					    rules[i].producer) ==
		      rules[i].needed);
}

/* Event index that the device writes immediately before the full barrier */
static uint32_t late_event;

static void write_event(enum barrier kind)
{
	trace_barrier(kind);
	if (kind == FULL)
		sq_record.event = htole32(late_event);
}

/*
 * Tests that the event index is read after the producer index is written. A
 * doorbell or a direct WQE is written only if the device needs it. The
 * record has two members, so the producer index is a store of 32 bits.
 */
static void test_event_index(void)
{
	qp.event_index = true;
	on_barrier = write_event;
	on_mmio = trace_mmio;
	late_event = 0;
	CHECK(!post(0, 1));
	CHECK(!strcmp(trace, "bFfwwwwwwwwfDf"));
	/* The device does not stop, and the queue is not idle */
	CHECK(!post(0, 2));
	CHECK(!strcmp(trace, "bF") && sq_record.producer == htole32(3));
	CHECK(!sq_record.event);
	/* The device does not stop, but the queue is idle */
	atomic_store(&qp.sq.consumer, qp.sq.producer);
	atomic_store(&qp.sq_retired, qp.sq_posted);
	CHECK(!post(0, 1));
	CHECK(!strcmp(trace, "bF"));
	/* The device stops at the first new WQE, and at the second */
	late_event = 4;
	CHECK(!post(0, 2));
	CHECK(!strcmp(trace, "bFfSf"));
	late_event = 7;
	CHECK(!post(0, 2));
	CHECK(!strcmp(trace, "bFfSf"));
	qrnic_wq_reset(&qp.sq);
	CHECK(!sq_record.producer && !sq_record.event);
}

#define EVENT_POSTS 300000u

static atomic_uint doorbells;
/* Posts that failed because the queue was full */
static atomic_uint refusals;
static atomic_bool poster_done;

static void count_doorbell(size_t offset, uint64_t value)
{
	atomic_fetch_add(&doorbells, 1);
}

static void *post_events(void *arg)
{
	struct ibv_sge sge = { (uintptr_t)trace, 8, 1 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND }, *bad;
	unsigned int i = 0;

	while (i < EVENT_POSTS && !atomic_load(&poster_done)) {
		if (!qrnic_post_send(&qp.vqp.qp, &wr, &bad))
			i++;
		else
			atomic_fetch_add(&refusals, 1);
	}
	atomic_store(&poster_done, true);
	return NULL;
}

/*
 * A thread posts, and this thread is the device. As the manual describes, this
 * thread writes the event index, reads the record again, and then waits for a
 * doorbell. A doorbell is lost if the poster has ended meanwhile, or has begun
 * another post of which the full queue has no space.
 */
static void test_event_race(void)
{
	uint32_t consumer = 0, producer, seen, full, slept = 0;
	pthread_t thread;
	bool lost;

	qp.event_index = true;
	ctx.db.direct_wqe = false;
	on_mmio = count_doorbell;
	atomic_store(&doorbells, 0);
	atomic_store(&poster_done, false);
	CHECK(!pthread_create(&thread, NULL, post_events, NULL));
	while (consumer != EVENT_POSTS) {
		seen = atomic_load(&doorbells);
		producer = le32toh(__atomic_load_n(&sq_record.producer,
						   __ATOMIC_ACQUIRE));
		if (producer != consumer) {
			consumer = producer;
			atomic_store(&qp.sq_retired, consumer);
			atomic_store(&qp.sq.consumer, consumer);
			continue;
		}
		__atomic_store_n(&sq_record.event, htole32(consumer),
				 __ATOMIC_RELAXED);
		__sync_synchronize();
		if (le32toh(__atomic_load_n(&sq_record.producer,
					    __ATOMIC_ACQUIRE)) != consumer)
			continue;
		slept++;
		full = atomic_load(&refusals);
		do {
			sched_yield();
			/*
			 * The first of two failed posts may have begun before
			 * the device released the blocks.
			 */
			lost = atomic_load(&poster_done) ||
			       atomic_load(&refusals) - full > 1;
		} while (atomic_load(&doorbells) == seen && !lost);
		if (atomic_load(&doorbells) == seen)
			break;
	}
	atomic_store(&poster_done, true);
	pthread_join(thread, NULL);
	printf("# %u WQEs, %u doorbells, the device slept %u times\n",
	       consumer, atomic_load(&doorbells), slept);
	CHECK(consumer == EVENT_POSTS);
}

/* Operations of a tag list, as they are at each barrier */
static struct qrnic_tag_op tag_ring[4 * QRNIC_WQEBB_SIZE /
				    sizeof(struct qrnic_tag_op)];
static struct qrnic_queue_record tag_record;
static uint32_t tag_records[2];

static void look_at_operation(enum barrier kind)
{
	trace_barrier(kind);
	CHECK(is_locked(&srqs[0].lock));
	CHECK(tag_ring[0].opcode == QRNIC_WQE_TAG_ADD);
	if (kind == STORES)
		tag_records[0] = le32toh(tag_record.producer);
	if (kind == WC_START)
		tag_records[1] = le32toh(tag_record.producer);
}

/*
 * Tests the order of operation, record and doorbell, and that completions
 * release their slots.
 */
static void test_tags(void)
{
	static struct tag_entry entries[2];
	static struct tag_op ops[4];
	struct qrnic_tags list = {
		.buf = { .addr = tag_ring, .length = sizeof(tag_ring) },
		.record = &tag_record, .slots = 4, .max_tags = 2,
		.entry = entries, .op = ops,
	};
	struct ibv_ops_wr wr = {
		.wr_id = 5, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED,
		.tm.add = { .recv_wr_id = 6, .tag = 1, .mask = 1 },
	}, *bad;
	struct qrnic_cqe cqe = { .tagged = QRNIC_CQET_OPERATION };
	uint64_t wr_id = 0;

	entries[0].next = 1;
	entries[1].next = 2;
	srqs[0].ctx = &ctx;
	srqs[0].tags = &list;
	on_barrier = look_at_operation;
	on_mmio = trace_mmio;
	*trace = 0;
	CHECK(!qrnic_post_srq_ops(&srqs[0].vsrq.srq, &wr, &bad));
	srqs[0].tags = NULL;
	CHECK(!strcmp(trace, "bfSf") && !is_locked(&srqs[0].lock));
	CHECK(tag_records[0] == 0 && tag_records[1] == 1);

	CHECK(qrnic_tags_retire(&list, &cqe, &wr_id) && wr_id == 5);
	CHECK(!qrnic_tags_retire(&list, &cqe, &wr_id) && list.free == 1);
	cqe.tagged = QRNIC_CQET_ENTRY | QRNIC_CQET_DATA_VALID;
	CHECK(qrnic_tags_retire(&list, &cqe, &wr_id) && wr_id == 6);
	CHECK(!qrnic_tags_retire(&list, &cqe, &wr_id) && list.free == 0);
}

static int payload(int first, int second)
{
	struct ibv_qp_ex *ex = &qp.vqp.qp_ex;
	struct ibv_sge sge[3] = { { 4096, 8, 1 }, { 8192, 8, 1 }, { 0, 8, 1 } };
	int calls[2] = { first, second }, i;

	ibv_wr_start(ex);
	ibv_wr_send(ex);
	for (i = 0; i < 2; i++) {
		if (calls[i] > 0)
			ibv_wr_set_sge_list(ex, calls[i], sge);
		else
			ibv_wr_set_inline_data(ex, trace, -calls[i]);
	}
	return ibv_wr_complete(ex);
}

static void test_payload(void)
{
	CHECK(!qrnic_qp_set_wr_ops(&qp, IBV_QPT_RC, IBV_QP_EX_WITH_SEND));
	CHECK(payload(1, -8) == EINVAL);
	CHECK(payload(-8, 1) == EINVAL);
	CHECK(payload(0, 1) == EINVAL);
	CHECK(payload(2, 2) == EINVAL);
	CHECK(payload(-60, -5) == EINVAL);
	CHECK(!qp.sq.producer);
	CHECK(!payload(1, 2));
	CHECK(!payload(-60, -4));
	CHECK(qp.sq.producer == 1 + 2);
}

static struct ibv_wc take_one(void)
{
	struct ibv_wc wc;

	CHECK(qrnic_poll_cq(&cq.vcq.cq, 1, &wc) == 1);
	return wc;
}

static void test_last_qp(void)
{
	int i;

	wr_ids[0] = 1;
	successor_wr_ids[0] = 2;
	for (i = 0; i < 4; i++)
		put_cqe(&ring[i], 7, QRNIC_CQE_SEND, 0);
	CHECK(take_one().wr_id == 1);
	/*
	 * No program can do this. The table has another queue pair, so a new
	 * lookup would be noticed
	 */
	CHECK(!qp_table_set(&ctx, 7, &successor));
	CHECK(take_one().wr_id == 1);
	qrnic_cq_forget(&cq, &successor);
	CHECK(take_one().wr_id == 1);
	qrnic_cq_forget(&cq, &qp);
	CHECK(take_one().wr_id == 2);
}

static int taken_of(uint8_t opcode)
{
	struct ibv_wc wc;

	put_cqe(&ring[cq.consumer], 7, opcode, 0);
	complaints = 0;
	return qrnic_poll_cq(&cq.vcq.cq, 1, &wc) - complaints;
}

/*
 * Tests a CQE for a queue of another CQ. The CQE must be dropped, because the
 * polling thread does not have the lock of that CQ.
 */
static void test_queue_of_other_cq(void)
{
	static struct qrnic_cq other;

	CHECK(taken_of(QRNIC_CQE_SEND) == 1 && taken_of(QRNIC_CQE_RECV) == 1);
	qp.vqp.qp.send_cq = &other.vcq.cq;
	CHECK(taken_of(QRNIC_CQE_SEND) == -1 && taken_of(QRNIC_CQE_RECV) == 1);
	qp.vqp.qp.send_cq = &cq.vcq.cq;
	qp.vqp.qp.recv_cq = &other.vcq.cq;
	CHECK(taken_of(QRNIC_CQE_SEND) == 1 && taken_of(QRNIC_CQE_RECV) == -1);
	qrnic_cq_forget(&cq, &qp);
	qp.vqp.qp.send_cq = &other.vcq.cq;
	CHECK(taken_of(QRNIC_CQE_SEND) == -1 && taken_of(QRNIC_CQE_RECV) == -1);
	CHECK(!cq.last_qp);
}

/*
 * Tests a CQ with IGNORE_OVERRUN. Each check covers one CQE, because the device
 * may overwrite the next one.
 */
static void test_overrun(void)
{
	struct ibv_poll_cq_attr attr = {};
	int i;

	qrnic_cq_set_poll_ops(&cq, 0);
	cq.batch = 1;
	for (i = 0; i < 3; i++)
		put_cqe(&ring[i], 7, QRNIC_CQE_SEND, 0);
	CHECK(!ibv_start_poll(&cq.vcq.cq_ex, &attr));
	CHECK(!ibv_next_poll(&cq.vcq.cq_ex));
	ring[2].control ^= htole32(QRNIC_CQE_PHASE_MASK);
	CHECK(ibv_next_poll(&cq.vcq.cq_ex) == ENOENT);
	ibv_end_poll(&cq.vcq.cq_ex);
}

/*
 * Tests a queue pair whose number the kernel has given to another before its
 * destroy command returned.
 */
static void test_successor(void)
{
	wr_ids[0] = 1;
	successor_wr_ids[0] = 2;
	put_cqe(&ring[0], 7, QRNIC_CQE_SEND, 0);
	CHECK(take_one().wr_id == 1);
	CHECK(!qrnic_qp_table_add(&ctx, &successor));
	put_cqe(&ring[1], 7, QRNIC_CQE_SEND, 0);
	CHECK(take_one().wr_id == 2);
	qrnic_qp_table_remove(&ctx, &qp);
	put_cqe(&ring[2], 7, QRNIC_CQE_SEND, 0);
	CHECK(take_one().wr_id == 2);
}

/*
 * Tests a completion that comes after the destruction. The completion must be
 * dropped, because the device is not trusted.
 */
static void test_destroyed(void)
{
	struct ibv_wc wc;

	put_cqe(&ring[0], 7, QRNIC_CQE_SEND, 0);
	take_one();
	qrnic_qp_table_remove(&ctx, &qp);
	put_cqe(&ring[1], 7, QRNIC_CQE_SEND, 0);
	complaints = 0;
	CHECK(!qrnic_poll_cq(&cq.vcq.cq, 1, &wc) && complaints == 1);
	CHECK(cq_record.consumer == htole32(2));
}

/*
 * Fills in the contents of CQEs at a barrier, because a processor may read them
 * before their phases.
 */
static void fill_in(enum barrier kind)
{
	int i, there = 0;

	if (kind != LOADS)
		return;
	for (i = 0; i < RING && ring[i].control; i++, there++)
		ring[i].qpn = htole32(7);
	/* The device writes the next CQE meanwhile */
	if (there < 3)
		put_cqe(&ring[there], 12345, QRNIC_CQE_SEND, 0);
}

static void test_phases_first(void)
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_wc wc[8];
	int i;

	qrnic_cq_set_poll_ops(&cq, 0);
	complaints = 0;
	put_cqe(&ring[0], 12345, QRNIC_CQE_SEND, 0);
	on_barrier = fill_in;
	CHECK(qrnic_poll_cq(&cq.vcq.cq, 8, wc) == 3 && !complaints);
	for (i = 0; i < 3; i++)
		CHECK(wc[i].qp_num == 7);
	memset(ring, 0, sizeof(ring));
	cq.consumer = 0;
	put_cqe(&ring[0], 12345, QRNIC_CQE_SEND, 0);
	CHECK(!ibv_start_poll(&cq.vcq.cq_ex, &attr));
	CHECK(!ibv_next_poll(&cq.vcq.cq_ex) && !ibv_next_poll(&cq.vcq.cq_ex));
	CHECK(ibv_next_poll(&cq.vcq.cq_ex) == ENOENT && !complaints);
	ibv_end_poll(&cq.vcq.cq_ex);
}

static void put_receives(int number, uint8_t flags)
{
	int i;

	for (i = 0; i < number; i++) {
		put_cqe(&ring[i], 7, QRNIC_CQE_RECV, flags);
		ring[i].index = htole32(i);
	}
	srq_locks = taken_back = 0;
}

static bool srqs_free(void)
{
	return !is_locked(&srqs[0].lock) && !is_locked(&srqs[1].lock);
}

static void test_srq_batch(void)
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_wc wc[RING];

	qrnic_cq_set_poll_ops(&cq, 0);
	qp.srq = &srqs[0];
	put_receives(RING, QRNIC_CQEF_INLINE);
	CHECK(qrnic_poll_cq(&cq.vcq.cq, 12, wc) == 12);
	CHECK(srq_locks == 1 && taken_back == 12 && srqs_free());
	CHECK(wc[11].wr_id == 11);
	/*
	 * A long poll releases the lock, so that posting threads do not wait
	 * for all of it
	 */
	CHECK(qrnic_poll_cq(&cq.vcq.cq, RING, wc) == RING - 12);
	CHECK(srq_locks == 3 && taken_back == RING && srqs_free());
	cq.consumer = 0;
	put_receives(3, 0);
	put_cqe(&ring[3], 7, QRNIC_CQE_RECV, 0);
	ring[3].control ^= htole32(QRNIC_CQE_PHASE_MASK);
	/* The program posts the WQE between two completions of a poll */
	CHECK(!ibv_start_poll(&cq.vcq.cq_ex, &attr) && srqs_free());
	CHECK(!ibv_next_poll(&cq.vcq.cq_ex) && srqs_free() && taken_back == 2);
	CHECK(!ibv_next_poll(&cq.vcq.cq_ex) && srqs_free() && taken_back == 3);
	CHECK(ibv_next_poll(&cq.vcq.cq_ex) == ENOENT && srqs_free());
	ibv_end_poll(&cq.vcq.cq_ex);
}

static void test_two_srqs(void)
{
	struct ibv_wc wc[8];
	int i;

	qp.srq = &srqs[0];
	successor.srq = &srqs[1];
	successor.vqp.qp.qp_num = 8;
	CHECK(!qrnic_qp_table_add(&ctx, &successor));
	put_receives(8, 0);
	for (i = 0; i < 8; i++)
		ring[i].qpn = htole32(7 + i / 2 % 2);
	CHECK(qrnic_poll_cq(&cq.vcq.cq, 8, wc) == 8);
	CHECK(srq_locks == 4 && taken_back == 8 && srqs_free());
	cq.consumer = 0;
	srq_locks = taken_back = 0;
	qrnic_cq_clean(&cq, &qp);
	CHECK(srq_locks == 1 && taken_back == 4 && srqs_free());
}

/*
 * QEMU emulates MFENCE as a barrier in any guest, but an instruction with a
 * LOCK prefix only in guests with several processors.
 */
static void test_full_barrier(void)
{
#ifdef __x86_64__
	static const uint8_t mfence[] = { 0x0f, 0xae, 0xf0 };

	CHECK(memmem((void *)full_barrier, 16, mfence, sizeof(mfence)));
#endif
	full_barrier();
}

static void run(const char *name, void (*test)(void))
{
	bool failed = setjmp(test_end);

	if (!failed) {
		start();
		test();
	}
	failures += failed;
	printf("%sok %d - order: %s\n", failed ? "not " : "", ++tests, name);
	fflush(stdout);
}

int main(void)
{
	run("CQEs are zeroed before their slots are released", test_zeroed);
	run("CQEs are moved before their slots are released", test_moved);
	run("an event is requested between start and end of a poll",
	    test_arm_in_poll);
	run("the clock is read without the lock", test_wallclock);
	run("the closest of several slow clock readings is used", test_slow_clock);
	run("a failing clock keeps the last pair", test_failing_clock);
	run("no thread spins while a CQ is resized", test_resize);
	run("doorbells in a write-combining page", test_doorbells);
	run("the rule for event indices", test_event_rule);
	run("doorbells of a queue with an event index", test_event_index);
	run("no doorbell is lost if the device goes to sleep", test_event_race);
	run("the full barrier is MFENCE on x86", test_full_barrier);
	run("operations of a tag list, and their completions",
	    test_tags);
	run("a WQE has SGEs or inline data", test_payload);
	run("the QP of the last completion is remembered", test_last_qp);
	run("a CQE of a queue of another CQ is dropped", test_queue_of_other_cq);
	run("one CQE at a time is polled if the CQ may overrun", test_overrun);
	run("the last QP is replaced by its successor", test_successor);
	run("the last QP is destroyed", test_destroyed);
	run("CQEs are read after all of their phases", test_phases_first);
	run("the lock of an SRQ is taken once for a batch", test_srq_batch);
	run("at most one SRQ is locked", test_two_srqs);
	printf("1..%d\n", tests);
	return failures ? 1 : 0;
}
