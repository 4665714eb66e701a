/*
 * The event index of send queues: doorbells that software may skip, races
 * between software and device, and the states of a queue pair
 *
 * The engine runs in one thread. Software that runs at the same time is
 * simulated by steps behind DMA accesses of the device. Programmer's Reference,
 * chapter Doorbells, section Event index.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define BYTES 8

static Pair *world;             /* World of the running test */
static uint64_t accesses;       /* Accesses to the record of side A */

static uint32_t event_of(SimQp *q)
{
    return ldl_le_p(q->node->memory + q->sq_record +
                    QRNIC_QUEUE_RECORD_EVENT_OFFSET);
}

static void event_set(SimQp *q, uint32_t event)
{
    stl_le_p(q->node->memory + q->sq_record + QRNIC_QUEUE_RECORD_EVENT_OFFSET,
             event);
}

static uint64_t doorbells(void)
{
    return sim_counter(world->a.qp->node, QRNIC_COUNTER_DOORBELLS);
}

static uint64_t event_writes(void)
{
    return sim_counter(world->a.qp->node, QRNIC_COUNTER_EVENT_WRITES);
}

/* Replaces the queue pairs of a new world by ones with an event index. */
static void begin(uint32_t seed, const SimOptions *o)
{
    const SimConnect none = { 0 };
    PairEnd *end[2];

    world = pair_new(seed, o, &none);
    end[0] = &world->a;
    end[1] = &world->b;
    for (unsigned i = 0; i < 2; i++) {
        SimNode *n = end[i]->qp->node;

        sim_qp_free(end[i]->qp);
        n->event_index = true;
        end[i]->qp = sim_qp_new(n, 6, 6, 3, 10);
    }
    sim_connect(world->a.qp, world->b.qp, NULL);
    g_assert_true(sim_run(world->sim, INT64_MAX));
}

static void end(void)
{
    pair_free(world);
    world = NULL;
}

static void settle(void)
{
    g_assert_true(sim_run(world->sim, INT64_MAX));
}

/* Writes the WQE and the record, and neither reads the event nor rings. */
static void post_quiet(PairEnd *from, PairEnd *to)
{
    SimSge sge = { from->addr, BYTES, from->key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = to->addr, .rkey = to->key,
    };

    sim_post_send_quiet(from->qp, &wr);
}

static void post_write(void)
{
    post(&world->a, &world->b, QRNIC_WQE_RDMA_WRITE, 0, 0, BYTES);
}

static unsigned completed(uint8_t status)
{
    unsigned count = 0;
    QrnicCqe c;

    while (sim_poll(world->a.qp, &c)) {
        g_assert_cmpstr(qrnic_wc_status_name(c.status), ==,
                        qrnic_wc_status_name(status));
        count++;
    }
    return count;
}

/* Tests that WQEs need one doorbell for each time that the SQ was asleep. */
static void test_one_doorbell(void)
{
    uint64_t before;

    begin(1, NULL);
    before = doorbells();
    for (unsigned i = 0; i < 10; i++) {
        post_write();
    }
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 10);
    g_assert_cmpuint(doorbells() - before, ==, 1);
    g_assert_cmpuint(event_of(world->a.qp), ==, 10);
    g_assert_cmpuint(event_writes(), ==, 1);
    /* The SQ is asleep: requests of the peer cause no write. */
    post(&world->b, &world->a, QRNIC_WQE_RDMA_READ, 0, 0, BYTES);
    settle();
    expect_status(world->b.qp, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(event_writes(), ==, 1);
    post_write();
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 1);
    g_assert_cmpuint(doorbells() - before, ==, 2);
    g_assert_cmpuint(event_of(world->a.qp), ==, 11);
    end();
}

/* Software posts at the worst time: it read the event before the write. */
static void posts_after_event(SimNode *n, uint64_t addr, size_t len)
{
    if (addr == world->a.qp->sq_record + QRNIC_QUEUE_RECORD_EVENT_OFFSET) {
        g_assert_cmpuint(len, ==, 4);
        n->after_write = NULL;
        post_quiet(&world->a, &world->b);
    }
}

/*
 * Tests that no wake-up is lost if software posts between the write of the
 * event index and the next read of the record.
 */
static void test_lost_wakeup(void)
{
    uint64_t before;

    begin(2, NULL);
    before = doorbells();
    world->a.qp->node->after_write = posts_after_event;
    post_write();
    settle();
    g_assert_null(world->a.qp->node->after_write);
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 2);
    g_assert_cmpuint(doorbells() - before, ==, 1);
    g_assert_cmpuint(event_of(world->a.qp), ==, 2);
    end();
}

/*
 * Software that runs at the same time. Each access of the device is followed by
 * some steps: a WQE and the record, then the decision. A doorbell is rung when
 * the engine returns, because a call of the engine cannot be nested.
 */
typedef struct Software {
    unsigned left;              /* WQEs to post */
    unsigned outstanding;
    bool undecided;             /* A WQE is posted; the event is not read */
    bool rings;                 /* A doorbell is on its way to the device */
} Software;

static Software software;

static void software_step(void)
{
    Sim *s = world->sim;

    if (software.undecided) {
        software.rings |= sim_sq_decide(world->a.qp);
        software.undecided = false;
    } else if (software.left && software.outstanding < 16 &&
               !g_rand_int_range(s->rand, 0, 3)) {
        post_quiet(&world->a, &world->b);
        software.left--;
        software.outstanding++;
        software.undecided = true;
    }
}

static void software_runs(SimNode *n, uint64_t addr, size_t len)
{
    unsigned steps = g_rand_int_range(world->sim->rand, 0, 4);

    accesses += addr >= world->a.qp->sq_record &&
                addr < world->a.qp->sq_record + QRNIC_RECORD_SIZE;
    while (steps--) {
        software_step();
    }
}

/*
 * Tests random interleavings. A WQE that waits without a doorbell, and without
 * the device awake, ends the loop with WQEs outstanding.
 */
static void test_interleaved(gconstpointer data)
{
    const SimOptions o = {
        .doorbell_fifo = GPOINTER_TO_UINT(data) % 2 ? 1 : 0,
        .doorbell_hold = GPOINTER_TO_UINT(data) % 4 / 2 * 50000,
    };
    const unsigned total = 400;
    uint64_t before;
    SimNode *n;

    begin(GPOINTER_TO_UINT(data), &o);
    n = world->a.qp->node;
    before = doorbells();
    software = (Software) { .left = total };
    accesses = 0;
    n->after_read = n->after_write = software_runs;
    while (software.left || software.outstanding) {
        unsigned done;

        software_step();
        if (software.undecided) {
            software_step();
        }
        if (software.rings && g_rand_boolean(world->sim->rand)) {
            software.rings = false;
            sim_ring(n, n->db_page, QRNIC_DB_SQ, world->a.qp->number,
                     world->a.qp->sq_producer);
        }
        settle();
        done = completed(QRNIC_WC_SUCCESS);
        software.outstanding -= done;
        /* The device has stopped, so no WQE with a doorbell is left. */
        g_assert_true(!software.outstanding || software.rings ||
                      software.undecided);
    }
    g_assert_cmpuint(accesses, >, 0);
    g_assert_cmpuint(doorbells() - before, <, total);
    n->after_read = n->after_write = NULL;
    end();
}

/* Tests that a flush finds WQEs that were posted without a doorbell. */
static void test_flush(void)
{
    const QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };
    uint64_t before;

    begin(4, NULL);
    g_assert_cmpint(sim_modify(world->a.qp, &err).status, ==, QRNIC_ST_OK);
    settle();
    before = doorbells();
    post_write();
    post_write();
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_WR_FLUSH_ERR), ==, 2);
    g_assert_cmpuint(doorbells() - before, ==, 1);
    world->a.qp->node->after_write = posts_after_event;
    post_write();
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_WR_FLUSH_ERR), ==, 2);
    g_assert_cmpuint(doorbells() - before, ==, 2);
    g_assert_cmpuint(event_of(world->a.qp), ==, 4);
    end();
}

/* Tests that WQEs posted in SQD, with one doorbell, are sent later in RTS. */
static void test_drain(void)
{
    QrnicQpAttr attr = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_SQD };
    uint64_t before;

    begin(5, NULL);
    before = doorbells();
    g_assert_cmpint(sim_modify(world->a.qp, &attr).status, ==, QRNIC_ST_OK);
    settle();
    for (unsigned i = 0; i < 5; i++) {
        post_write();
        settle();
    }
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 0);
    g_assert_cmpuint(doorbells() - before, ==, 1);
    attr.state = QRNIC_QPS_RTS;
    g_assert_cmpint(sim_modify(world->a.qp, &attr).status, ==, QRNIC_ST_OK);
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 5);
    g_assert_cmpuint(event_of(world->a.qp), ==, 5);
    end();
}

/* Tests RESET and a second life, and that a destroyed SQ is not accessed. */
static void test_reset(void)
{
    const QrnicQpAttr reset = { .mask = QRNIC_QP_STATE };
    uint64_t record;
    SimNode *n;
    SimQp *q;

    begin(6, NULL);
    for (unsigned i = 0; i < 3; i++) {
        post_write();
    }
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 3);
    q = world->a.qp;
    g_assert_cmpint(sim_modify(q, &reset).status, ==, QRNIC_ST_OK);
    g_assert_cmpint(sim_modify(world->b.qp, &reset).status, ==, QRNIC_ST_OK);
    settle();
    /* RESET does not write the record. */
    g_assert_cmpuint(event_of(q), ==, 3);
    q->sq_producer = q->sq_decided = 0;
    stq_le_p(q->node->memory + q->sq_record, 0);
    sim_connect(q, world->b.qp, NULL);
    post_write();
    post_write();
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 2);
    g_assert_cmpuint(event_of(q), ==, 2);
    event_set(q, 0xdead);
    post_write();
    /* The record outlives the queue pair, but the simulated one does not. */
    n = q->node;
    record = q->sq_record;
    sim_qp_free(q);
    settle();
    g_assert_cmpuint(ldl_le_p(n->memory + record +
                              QRNIC_QUEUE_RECORD_EVENT_OFFSET), ==, 0xdead);
    world->a.qp = sim_qp_new(n, 6, 6, 3, 10);
    end();
}

/* Makes the record unreadable after the device has consumed a WQE. */
static void breaks_record(SimNode *n, uint64_t addr, size_t len)
{
    uint64_t record = world->a.qp->sq_record;

    if (addr >= world->a.addr && addr < world->a.addr + PAIR_BYTES) {
        n->after_read = NULL;
        n->broken_from = record;
        n->broken_to = record + QRNIC_RECORD_SIZE;
    }
}

/* Tests a record that is not writable: an error in RTS, ignored in ERR. */
static void test_unwritable(void)
{
    QrnicCqe c;
    SimNode *n;

    begin(7, NULL);
    n = world->a.qp->node;
    n->after_read = breaks_record;
    post_write();
    settle();
    expect_status(world->a.qp, QRNIC_WC_SUCCESS);
    g_assert_true(sim_poll(world->a.qp, &c));
    g_assert_cmpint(c.status, ==, QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_WQE_FETCH);
    g_assert_cmpuint(event_of(world->a.qp), ==, 0);
    expect_state(world->a.qp, QRNIC_QPS_ERR);
    /* The SQ is flushed again when its doorbell is rung. */
    n->broken_to = n->broken_from = 0;
    post_write();
    sim_ring_sq(world->a.qp);
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_WR_FLUSH_ERR), ==, 1);
    g_assert_cmpuint(event_of(world->a.qp), ==, 2);
    end();
}

/* Writes random words in place of the event index. */
static void lies(SimNode *n, uint64_t addr, size_t len)
{
    event_set(world->a.qp, g_rand_int(world->sim->rand));
}

/*
 * Tests that a wrong event index delays only WQEs of this SQ, until the next
 * doorbell.
 */
static void test_lies(void)
{
    begin(8, NULL);
    world->a.qp->node->after_write = world->a.qp->node->after_read = lies;
    for (unsigned i = 0; i < 50; i++) {
        event_set(world->a.qp, g_rand_int(world->sim->rand));
        post_write();
        settle();
        post(&world->b, &world->a, QRNIC_WQE_RDMA_WRITE, 0, 0, BYTES);
        settle();
        expect_status(world->b.qp, QRNIC_WC_SUCCESS);
        if (i % 8 == 7) {
            sim_ring_sq(world->a.qp);
            settle();
        }
    }
    sim_ring_sq(world->a.qp);
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 50);
    expect_state(world->a.qp, QRNIC_QPS_RTS);
    end();
}

/* Tests that without the flag the word is reserved, and never written. */
static void test_without_flag(void)
{
    QrnicCqe c;

    world = pair_new(9, NULL, NULL);
    post_write();
    settle();
    expect_status(world->a.qp, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(event_of(world->a.qp), ==, 0);
    g_assert_cmpuint(sim_counter(world->a.qp->node,
                                 QRNIC_COUNTER_EVENT_WRITES), ==, 0);
    event_set(world->a.qp, 1);
    post_write();
    settle();
    g_assert_true(sim_poll(world->a.qp, &c));
    g_assert_cmpint(c.status, ==, QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_PRODUCER);
    g_assert_cmpuint(event_of(world->a.qp), ==, 1);
    end();
}

#define HOLD 1000000

/* Posts a WQE and runs until its CQE, without the end of the hold time. */
static void write_within_hold(void)
{
    int64_t limit = world->sim->now + HOLD / 2;

    post_write();
    sim_run(world->sim, limit);
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 1);
}

/* Posts two WQEs, of which the second is rung soon after the SQ slept. */
static void hold_begin(void)
{
    uint64_t before = doorbells(), writes = event_writes();

    write_within_hold();
    write_within_hold();
    g_assert_cmpuint(doorbells() - before, ==, 2);
    g_assert_cmpuint(event_writes() - writes, ==, 1);
}

/*
 * Tests that WQEs need no doorbell within the hold time, that the timer finds
 * them, and that the SQ falls asleep afterwards.
 */
static void test_hold(void)
{
    const SimOptions o = { .doorbell_hold = HOLD };
    uint64_t before;

    begin(20, &o);
    hold_begin();
    before = doorbells();
    for (unsigned i = 0; i < 5; i++) {
        post_write();
    }
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 5);
    g_assert_cmpuint(doorbells(), ==, before);
    g_assert_cmpuint(event_writes(), ==, 2);
    g_assert_cmpuint(event_of(world->a.qp), ==, 7);
    /* The SQ is asleep. */
    post_write();
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 1);
    g_assert_cmpuint(doorbells() - before, ==, 1);
    end();
}

/*
 * Tests that a hold that found a single WQE is not repeated for the next 16
 * doorbells.
 */
static void test_hold_single(void)
{
    const SimOptions o = { .doorbell_hold = HOLD };
    uint64_t before, writes;

    begin(24, &o);
    hold_begin();
    before = doorbells();
    post_write();
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_SUCCESS), ==, 1);
    g_assert_cmpuint(doorbells(), ==, before);
    /* The SQ has slept for longer than the hold time. */
    write_within_hold();
    before = doorbells();
    writes = event_writes();
    for (unsigned i = 1; i <= 16; i++) {
        write_within_hold();
        g_assert_cmpuint(doorbells() - before, ==, i);
        g_assert_cmpuint(event_writes() - writes, ==, i);
    }
    /* The next doorbell starts a hold. */
    write_within_hold();
    g_assert_cmpuint(event_writes() - writes, ==, 16);
    end();
}

/* Tests ERR, RESET, the reset of the device and DESTROY_QP within the time. */
static void test_hold_states(void)
{
    const QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };
    const QrnicQpAttr reset = { .mask = QRNIC_QP_STATE };
    const SimOptions o = { .doorbell_hold = HOLD };
    uint64_t before, writes;

    begin(21, &o);
    hold_begin();
    g_assert_cmpint(sim_modify(world->a.qp, &err).status, ==, QRNIC_ST_OK);
    before = doorbells();
    post_write();
    post_write();
    settle();
    g_assert_cmpuint(completed(QRNIC_WC_WR_FLUSH_ERR), ==, 2);
    g_assert_cmpuint(doorbells() - before, <=, 1);
    end();

    begin(22, &o);
    hold_begin();
    writes = event_writes();
    g_assert_cmpint(sim_modify(world->a.qp, &reset).status, ==, QRNIC_ST_OK);
    settle();
    g_assert_cmpuint(event_writes(), ==, writes);
    end();

    begin(23, &o);
    hold_begin();
    end();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/one-doorbell", test_one_doorbell);
    g_test_add_func("/lost-wakeup", test_lost_wakeup);
    for (unsigned i = 0; i < 8; i++) {
        g_autofree char *name = g_strdup_printf("/interleaved/%u", i);

        g_test_add_data_func(name, GUINT_TO_POINTER(i), test_interleaved);
    }
    g_test_add_func("/hold", test_hold);
    g_test_add_func("/hold-single", test_hold_single);
    g_test_add_func("/hold-states", test_hold_states);
    g_test_add_func("/flush", test_flush);
    g_test_add_func("/drain", test_drain);
    g_test_add_func("/reset", test_reset);
    g_test_add_func("/unwritable", test_unwritable);
    g_test_add_func("/lies", test_lies);
    g_test_add_func("/without-flag", test_without_flag);
    return g_test_run();
}
