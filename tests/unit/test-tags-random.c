/*
 * Tag matching with random traffic. The test is the message passing library,
 * follows the manual, and detects messages that overtook others.
 *
 * QRNIC_SEED=n runs only that seed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "tags-world.h"

/*
 * Random traffic. The test is a library that receives by tag. A receive
 * consumes an unexpected message, or becomes an entry of the device. If an
 * unexpected message matches a receive in the device, the library removes that
 * entry.
 */
#define RECEIVES 400

typedef struct Receive {
    uint64_t tag, mask;
    uint32_t handle, len, number;       /* Number of the message */
    enum { FREE, POSTED, MATCHED, TAKEN_BACK, DONE } state;
} Receive;

typedef struct Message {
    unsigned peer;
    uint64_t tag;
    uint32_t len;
    bool rndv, fin;
    int receive;                /* Or -1 */
    bool here;                  /* Unexpected, and received by software */
} Message;

typedef struct Library {
    World *w;
    Receive receive[RECEIVES];
    Message message[RECEIVES];
    unsigned receives, messages, done, fins;
    int of_handle[TAGS];        /* Receive, or -1 */
    GQueue *unexpected;         /* Messages + 1, in order */
    uint32_t count;
    unsigned taken_back, sync_wanted;
} Library;

static bool matches(const Receive *r, const Message *m)
{
    return (m->tag & r->mask) == r->tag;
}

static void finish(Library *l, int receive, uint32_t number)
{
    Receive *r = &l->receive[receive];
    Message *m = &l->message[number];

    g_assert_cmpint(m->receive, ==, -1);
    g_assert_true(matches(r, m));
    m->receive = receive;
    r->number = number;
    r->state = DONE;
    l->done++;
}

/* Returns false if no handle is free. */
static bool receive_next(Library *l)
{
    static const uint64_t mask[] = { ALL, ALL, ALL, 6, 0 };
    World *w = l->w;
    int i = l->receives;
    Receive *r = &l->receive[i];
    uint32_t handle = 0;

    while (handle < TAGS && l->of_handle[handle] >= 0) {
        handle++;
    }
    if (handle == TAGS) {
        return false;
    }
    r->mask = mask[g_rand_int_range(w->sim->rand, 0, ARRAY_SIZE(mask))];
    r->tag = g_rand_int_range(w->sim->rand, 0, 8) & r->mask;
    l->receives++;
    for (GList *n = l->unexpected->head; n; n = n->next) {
        uint32_t number = GPOINTER_TO_UINT(n->data) - 1;

        if (matches(r, &l->message[number])) {
            g_queue_delete_link(l->unexpected, n);
            finish(l, i, number);
            return true;
        }
    }
    r->state = POSTED;
    r->handle = handle;
    l->of_handle[handle] = i;
    entry_post(w, g_rand_boolean(w->sim->rand) ?
               with_count(add_op(handle, r->tag, r->mask), l->count) :
               add_op(handle, r->tag, r->mask), BUFFER);
    return true;
}

static void send_next(Library *l)
{
    World *w = l->w;
    GRand *rand = w->sim->rand;
    Message *m = &l->message[l->messages];

    m->peer = g_rand_int_range(rand, 0, w->peers);
    m->tag = g_rand_int_range(rand, 0, 8);
    m->rndv = g_rand_int_range(rand, 0, 3) == 0;
    m->receive = -1;
    m->len = g_rand_boolean(rand) ? g_rand_int_range(rand, 0, 200) :
             g_rand_int_range(rand, 0, BUFFER - HEADER);
    g_assert_cmpint(w->sent, ==, l->messages++);
    if (m->rndv) {
        send_rndv(w, m->peer, m->tag, m->len);
    } else {
        send_eager(w, m->peer, m->tag, m->len);
    }
}

/*
 * Handles an unexpected message. If the message matches a receive of the
 * device, software's match is the earlier one.
 */
static void unexpected(Library *l, uint32_t number)
{
    World *w = l->w;
    Message *m = &l->message[number];

    l->count++;
    m->here = true;
    for (unsigned i = 0; i < l->receives; i++) {
        Receive *r = &l->receive[i];

        if (r->state == POSTED && matches(r, m)) {
            r->state = TAKEN_BACK;
            r->number = number;
            l->taken_back++;
            op_post(w, with_count(del_op(r->handle), l->count), NULL, 0);
            return;
        }
    }
    g_queue_push_tail(l->unexpected, GUINT_TO_POINTER(number + 1));
    op_post(w, sync_op(l->count), NULL, 0);
}

static void of_wqe(Library *l, const QrnicCqe *c)
{
    World *w = l->w;
    uint8_t *p = w->b->memory + w->wqes + c->index * BUFFER;
    uint32_t number = ldl_be_p(p + 4);
    const Message *m = &l->message[number];

    g_assert_cmphex(c->opcode, ==, QRNIC_CQE_TAG_UNEXPECTED);
    g_assert_cmpint(number, <, l->messages);
    g_assert_cmpint(c->byte_len, ==, m->rndv ? HEADERS + 20 : HEADER + m->len);
    g_assert_cmpmem(p, c->byte_len, source_of(w, number), c->byte_len);
    l->sync_wanted += !!(c->tagged & SYNC);
    sim_srq_slot_free(w->srq, c->index);
    post_wqe(w);
    unexpected(l, number);
}

static void of_entry(Library *l, const QrnicCqe *c)
{
    World *w = l->w;
    int i = l->of_handle[c->index];
    Receive *r = &l->receive[i];
    uint32_t number = r->number;
    const Message *m;

    g_assert_cmpint(i, >=, 0);
    if (c->tagged & MATCH) {
        uint64_t tag;

        g_assert_cmpint(r->state, ==, POSTED);
        r->state = MATCHED;
        polled_tag(w, &tag, &number);
        g_assert_cmpint(number, <, l->messages);
        r->number = number;
        g_assert_cmphex(tag, ==, l->message[number].tag);
    }
    m = &l->message[number];
    g_assert_cmpint(r->state, ==, MATCHED);
    if (c->tagged & VALID) {
        g_assert_cmpint(c->byte_len, ==, m->len);
        g_assert_cmpmem(w->b->memory + entry_at(w, c->index), m->len,
                        m->rndv ? data_of(w, number) :
                        source_of(w, number) + HEADER, m->len);
        l->of_handle[c->index] = -1;
        finish(l, i, number);
    }
}

static void of_operation(Library *l, const QrnicCqe *c)
{
    QrnicTagOp op;

    qrnic_tag_op_unpack(&op, l->w->b->memory + l->w->ring +
                        (c->index % (1 << LOG_OPS)) * (QRNIC_WQEBB_SIZE << 1));
    g_assert_cmpint(op.index, ==, c->index);
    if (op.opcode == QRNIC_WQE_TAG_DEL) {
        int i = l->of_handle[op.handle];

        g_assert_cmpint(l->receive[i].state, ==, TAKEN_BACK);
        l->of_handle[op.handle] = -1;
        finish(l, i, l->receive[i].number);
    }
}

/* Returns the number of CQEs of the list. */
static unsigned poll_all(Library *l)
{
    World *w = l->w;
    uint32_t before = w->cq->cq_consumer;
    QrnicCqe c;

    while (sim_poll(w->cq, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        if (c.tagged & QRNIC_CQET_OPERATION) {
            of_operation(l, &c);
        } else if (c.tagged & ENTRY) {
            of_entry(l, &c);
        } else {
            of_wqe(l, &c);
        }
    }
    for (unsigned i = 0; i < w->peers; i++) {
        while (sim_poll(w->from[i], &c)) {
            g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
            if (c.opcode == QRNIC_CQE_RECV) {
                const uint8_t *fin = w->a->memory + fin_at(w, i, c.index);
                Message *m = &l->message[ldl_be_p(fin + 4)];

                g_assert_cmpint(fin[0], ==, FIN);
                g_assert_true(m->rndv && !m->fin && !m->here);
                m->fin = true;
                l->fins++;
                post_fin(w, i);
            }
        }
    }
    return w->cq->cq_consumer - before;
}

/*
 * Asserts that of two messages of a sender the first one matched the earlier
 * receive, among the receives that match both.
 */
static void nobody_overtook(Library *l)
{
    for (unsigned a = 0; a < l->messages; a++) {
        for (unsigned b = a + 1; b < l->messages; b++) {
            const Message *first = &l->message[a], *second = &l->message[b];

            g_assert_false(first->peer == second->peer &&
                           second->receive >= 0 &&
                           (first->receive < 0 ||
                            first->receive > second->receive) &&
                           matches(&l->receive[second->receive], first));
        }
    }
}

static void random_traffic(uint32_t seed, const SimOptions *o)
{
    Library *l = g_new0(Library, 1);
    World *w = l->w = world_of(seed, MOST_PEERS, o);
    GRand *rand = w->sim->rand;
    bool quiet;

    memset(l->of_handle, 0xff, sizeof(l->of_handle));
    l->unexpected = g_queue_new();
    if (seed % 4) {
        w->sim->loss = 20;
        w->sim->repeat = 20;
        w->sim->reorder = 30;
    }
    while (l->messages < MESSAGES || l->receives < RECEIVES) {
        unsigned what = g_rand_int_range(rand, 0, 8);

        if (what < 3 && l->messages < MESSAGES) {
            send_next(l);
        } else if (what < 6 && l->receives < RECEIVES &&
                   l->receives < l->messages + 40) {
            receive_next(l);
        } else if (l->messages == MESSAGES && l->receives > MESSAGES) {
            break;
        }
        if (what == 6) {
            sim_run(w->sim, w->sim->now +
                    g_rand_int_range(rand, 0, 30 * SIM_US));
        }
        /* Polls, because the ring of operations must not overrun. */
        if (what == 7 || w->producer % 16 == 15) {
            sim_run(w->sim, w->sim->now + 2 * SIM_US);
            poll_all(l);
        }
    }
    /* Polls often, because senders retry a limited number of times. */
    do {
        quiet = sim_run(w->sim, w->sim->now + 100 * SIM_US);
    } while (poll_all(l) || !quiet);
    nobody_overtook(l);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RENDEZVOUS), ==, l->fins);
    for (unsigned i = 0; i < l->messages; i++) {
        g_assert_true(l->message[i].receive >= 0 || l->message[i].here);
        g_assert_true(!l->message[i].rndv ||
                      l->message[i].fin != l->message[i].here);
    }
    g_assert_cmpint(l->done, >, MESSAGES / 2);
    g_assert_true(!o || counted(w, QRNIC_COUNTER_CONTEXT_MISSES));
    g_test_message("seed %u: %u done, %u unexpected, %u taken back, %u fins, "
                   "%u asked for", seed, l->done, l->count, l->taken_back,
                   l->fins, l->sync_wanted);
    g_queue_free(l->unexpected);
    world_free(w);
    g_free(l);
}

static void test_random(void)
{
    const char *only = g_getenv("QRNIC_SEED");

    if (only) {
        random_traffic(atoi(only), NULL);
        return;
    }
    for (uint32_t seed = 1; seed <= 60; seed++) {
        random_traffic(seed, NULL);
    }
}

/*
 * Tests a cache that has room for one of three queue pairs, while the others
 * match too.
 */
static void test_contexts(void)
{
    for (uint32_t seed = 1; seed <= 16; seed++) {
        const SimOptions o = {
            .context_cache = 1 + seed % 2, .context_stations = seed / 2 % 2 * 4,
            .context_latency = 300,
        };

        random_traffic(seed, &o);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tags/random", test_random);
    g_test_add_func("/tags/contexts", test_contexts);
    return g_test_run();
}
