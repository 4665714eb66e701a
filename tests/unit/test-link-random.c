/*
 * Two ends of link retransmission on a wire that loses, repeats, reorders and
 * corrupts, in virtual time. Each port receives every frame once and in order.
 *
 * QRNIC_SEED=n runs only that seed; QRNIC_ROUNDS=n runs that many of each.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "link/frame.h"
#include "link/link.h"

#define US 1000ll
#define MS 1000000ll
#define LATENCY (2 * US)
#define FRAMES 2000

typedef struct Weather {
    const char *name;
    unsigned loss, repeat, reorder, corrupt;    /* In parts of a thousand */
    unsigned room;              /* Frames until the wire is busy; 0: never */
    /* Parts of a thousand: the port accepts no frame */
    unsigned port;
    unsigned rounds;
} Weather;

typedef struct Frame {
    int64_t time;
    uint64_t order;
    unsigned to;
    size_t len;
    uint8_t data[];
} Frame;

typedef struct World World;
typedef struct End {
    World *world;
    QrnicLink *link;
    unsigned id;
    bool kicked, waits, agreed;
    unsigned burst;
    int64_t deadline, wire_ready, port_ready;
    uint32_t sent, received;    /* Serial numbers of the next frames */
    uint32_t skipped;
    uint64_t plain, transmitted;
    uint64_t count[QRNIC_LINK_NUM_COUNTS];
} End;

struct World {
    const Weather *weather;
    GRand *rand;
    int64_t now;
    uint64_t frames;
    GPtrArray *wire;
    End end[2];
    bool may_skip;              /* An end began a new session */
};

static bool chance(World *w, unsigned thousandths)
{
    return thousandths && g_rand_int_range(w->rand, 0, 1000) < thousandths;
}

static gint frame_compare(gconstpointer a, gconstpointer b)
{
    const Frame *f = *(Frame * const *)a, *g = *(Frame * const *)b;

    if (f->time != g->time) {
        return f->time < g->time ? -1 : 1;
    }
    return f->order < g->order ? -1 : 1;
}

static void wire_put(World *w, unsigned to, const uint8_t *frame, size_t len,
                     int64_t delay)
{
    Frame *f = g_malloc(sizeof(*f) + len);

    *f = (Frame) { w->now + delay, w->frames++, to, len };
    memcpy(f->data, frame, len);
    if (chance(w, w->weather->corrupt)) {
        f->data[g_rand_int_range(w->rand, 0, len)] ^=
            g_rand_int_range(w->rand, 1, 256);
    }
    g_ptr_array_add(w->wire, f);
    g_ptr_array_sort(w->wire, frame_compare);
}

static bool env_send(void *opaque, const uint8_t *frame, size_t len)
{
    End *e = opaque;
    World *w = e->world;
    const Weather *k = w->weather;

    g_assert_cmpint(e->wire_ready, ==, QRNIC_LINK_NEVER);
    e->transmitted++;
    if (!chance(w, k->loss)) {
        int64_t extra = chance(w, k->reorder) ?
                        g_rand_int_range(w->rand, 1, 20 * US) : 0;

        wire_put(w, !e->id, frame, len, LATENCY + extra);
        if (chance(w, k->repeat)) {
            wire_put(w, !e->id, frame, len, LATENCY +
                     g_rand_int_range(w->rand, 0, 20 * US));
        }
    }
    if (k->room && ++e->burst == k->room) {
        e->burst = 0;
        e->wire_ready = w->now + g_rand_int_range(w->rand, 1, 10 * US);
        return false;
    }
    return true;
}

static size_t make(uint8_t *frame, unsigned from, uint32_t serial)
{
    /* Some frames have the maximum length. */
    size_t len = serial % 97 ? 20 + serial * 7919 % 1500 :
                 QRNIC_LINK_PAYLOAD_MAX;

    memset(frame, 2 + serial % 251, len);
    frame[5] = from;
    stl_be_p(frame + 14, serial);
    return len;
}

static void env_deliver(void *opaque, const uint8_t *frame, size_t len)
{
    static uint8_t expected[QRNIC_LINK_PAYLOAD_MAX];
    End *e = opaque;
    uint32_t serial;

    /* A corrupted first HELLO is an ordinary frame. */
    if (qrnic_link_kind(frame, len) == QRNIC_LINK_DAMAGED && !e->agreed) {
        return;
    }
    g_assert_cmpuint(len, >=, 18);
    serial = ldl_be_p(frame + 14);
    g_assert_cmpmem(frame, len, expected, make(expected, !e->id, serial));
    if (e->world->may_skip) {
        g_assert_cmpuint(serial, >=, e->received);
        e->skipped += serial - e->received;
    } else {
        g_assert_cmpuint(serial, ==, e->received);
    }
    e->received = serial + 1;
    if (chance(e->world, e->world->weather->port)) {
        e->port_ready = e->world->now +
                        g_rand_int_range(e->world->rand, 1, 30 * US);
    }
}

static bool env_takes(void *opaque)
{
    return ((End *)opaque)->port_ready == QRNIC_LINK_NEVER;
}

static void env_ready(void *opaque)
{
    End *e = opaque;

    g_assert_true(e->waits);
    e->waits = false;
}

static void env_changed(void *opaque, bool agreed)
{
    ((End *)opaque)->agreed = agreed;
}

static void env_kick(void *opaque)
{
    ((End *)opaque)->kicked = true;
}

static int64_t env_clock_ns(void *opaque)
{
    return ((End *)opaque)->world->now;
}

static void env_timer_arm(void *opaque, int64_t deadline_ns)
{
    ((End *)opaque)->deadline = deadline_ns;
}

static uint32_t env_random(void *opaque)
{
    /* The number is near the end of the number range in half of the cases. */
    uint32_t n = g_rand_int(((End *)opaque)->world->rand);

    return n & 1 ? n | 0xffffff00 : n;
}

static void env_count(void *opaque, enum qrnic_link_count which, uint64_t n)
{
    ((End *)opaque)->count[which] += n;
}

static World *world_new(const Weather *k, uint32_t seed)
{
    World *w = g_new0(World, 1);

    w->weather = k;
    w->rand = g_rand_new_with_seed(seed);
    w->wire = g_ptr_array_new_with_free_func(g_free);
    for (unsigned i = 0; i < 2; i++) {
        End *e = &w->end[i];
        QrnicLinkConfig config = qrnic_link_config_default();
        const QrnicLinkEnv env = {
            .opaque = e, .send = env_send, .deliver = env_deliver,
            .takes = env_takes, .ready = env_ready, .changed = env_changed,
            .kick = env_kick, .clock_ns = env_clock_ns,
            .timer_arm = env_timer_arm, .random = env_random,
            .count = env_count,
        };

        config.name = i ? "B" : "A";
        config.mac[5] = i;
        config.window = g_rand_int_range(w->rand, 4, 300);
        config.room = g_rand_int_range(w->rand, 1 << 14, 1 << 20);
        *e = (End) {
            .world = w, .id = i, .link = qrnic_link_new(&config, &env),
            .deadline = QRNIC_LINK_NEVER, .wire_ready = QRNIC_LINK_NEVER,
            .port_ready = QRNIC_LINK_NEVER,
        };
        qrnic_link_set_up(e->link, true);
    }
    return w;
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < 2; i++) {
        qrnic_link_free(w->end[i].link);
    }
    g_ptr_array_free(w->wire, true);
    g_rand_free(w->rand);
    g_free(w);
}

static void frames_arrive(World *w)
{
    while (w->wire->len && ((Frame *)w->wire->pdata[0])->time <= w->now) {
        g_autofree Frame *f = NULL;
        End *to = &w->end[((Frame *)w->wire->pdata[0])->to];

        if (!qrnic_link_takes(to->link)) {
            /* The port is busy, so the wire tries again a little later. */
            g_assert_cmpint(to->port_ready, >, w->now);
            ((Frame *)w->wire->pdata[0])->time = to->port_ready;
            g_ptr_array_sort(w->wire, frame_compare);
            continue;
        }
        f = g_ptr_array_steal_index(w->wire, 0);
        qrnic_link_receive(to->link, f->data, f->len);
    }
}

static void end_events(World *w, End *e)
{
    if (e->wire_ready <= w->now) {
        e->wire_ready = QRNIC_LINK_NEVER;
        qrnic_link_wire_ready(e->link);
    }
    if (e->deadline <= w->now) {
        e->deadline = QRNIC_LINK_NEVER;
        qrnic_link_timer(e->link);
    }
    while (e->kicked) {
        e->kicked = false;
        qrnic_link_run(e->link);
    }
}

static int64_t world_step(World *w)
{
    int64_t next = QRNIC_LINK_NEVER;

    for (unsigned i = 0; i < 2; i++) {
        if (w->end[i].port_ready <= w->now) {
            w->end[i].port_ready = QRNIC_LINK_NEVER;
            qrnic_link_takes(w->end[i].link);
        }
    }
    frames_arrive(w);
    for (unsigned i = 0; i < 2; i++) {
        End *e = &w->end[i];

        end_events(w, e);
        next = MIN(next, MIN(e->port_ready, MIN(e->wire_ready, e->deadline)));
    }
    if (w->wire->len) {
        next = MIN(next, ((Frame *)w->wire->pdata[0])->time);
    }
    return next;
}

static void world_run(World *w, int64_t until)
{
    for (;;) {
        int64_t next = world_step(w);

        if (next > until) {
            w->now = until;
            return;
        }
        w->now = MAX(w->now, next);
    }
}

static void feed(World *w, End *e, unsigned most)
{
    uint8_t frame[QRNIC_LINK_PAYLOAD_MAX];

    while (!e->waits && most--) {
        size_t len = make(frame, e->id, e->sent++);

        e->waits = !qrnic_link_send(e->link, frame, len);
    }
}

static void agree(World *w)
{
    while (!w->end[0].agreed || !w->end[1].agreed) {
        g_assert_cmpint(w->now, <, 100000 * MS);
        world_run(w, w->now + 1 * MS);
    }
}

static void random_run(const Weather *k, uint32_t seed)
{
    World *w = world_new(k, seed);
    int64_t begin;

    g_test_message("%s: seed %u", k->name, seed);
    agree(w);
    begin = w->now;
    while (w->end[0].received < FRAMES || w->end[1].received < FRAMES) {
        g_assert_cmpint(w->now - begin, <, 20000 * MS);
        for (unsigned i = 0; i < 2; i++) {
            End *e = &w->end[i];

            feed(w, e, MIN(g_rand_int_range(w->rand, 0, 40),
                           FRAMES - e->sent));
        }
        world_run(w, w->now + g_rand_int_range(w->rand, 1, 50) * US);
    }
    world_run(w, w->now + 1000 * MS);
    for (unsigned i = 0; i < 2; i++) {
        End *e = &w->end[i];

        g_assert_cmpuint(e->received, ==, FRAMES);
        g_assert_cmpuint(e->count[QRNIC_LINK_RX_FRAMES], ==, FRAMES);
        g_assert_cmpuint(e->count[QRNIC_LINK_TX_FRAMES], ==, FRAMES);
        g_assert_cmpuint(e->count[QRNIC_LINK_TX_LOST], ==, 0);
        g_assert_cmpuint(e->count[QRNIC_LINK_ESTABLISHED], ==, 1);
        if (!k->loss && !k->corrupt && !k->reorder) {
            g_assert_cmpuint(e->count[QRNIC_LINK_RX_GAPS], ==, 0);
        }
        if (k->loss || k->corrupt) {
            g_assert_cmpuint(e->count[QRNIC_LINK_TX_RETRANSMISSIONS], >, 0);
        }
    }
    world_free(w);
}

static const Weather weathers[] = {
    { "calm", .rounds = 4 },
    { "loss-1", .loss = 10, .rounds = 8 },
    { "loss-5", .loss = 50, .rounds = 8 },
    { "loss-10", .loss = 100, .rounds = 8 },
    { "loss-20", .loss = 200, .rounds = 8 },
    { "repeat-20", .repeat = 200, .rounds = 8 },
    { "reorder-5", .reorder = 50, .rounds = 8 },
    { "reorder-20", .reorder = 200, .rounds = 8 },
    { "corrupt-5", .corrupt = 50, .rounds = 8 },
    { "corrupt-20", .corrupt = 200, .rounds = 8 },
    { "busy-wire", .loss = 10, .room = 3, .rounds = 8 },
    { "busy-port", .loss = 10, .port = 100, .rounds = 8 },
    { "all-5", 50, 50, 50, 50, 7, 50, 8 },
    { "all-20", 200, 200, 200, 200, 5, 100, 8 },
};

static void each_round(const Weather *k, void (*run)(const Weather *, uint32_t))
{
    const char *seed = g_getenv("QRNIC_SEED");
    const char *rounds = g_getenv("QRNIC_ROUNDS");
    unsigned n = rounds ? atoi(rounds) : k->rounds;

    if (seed) {
        run(k, g_ascii_strtoull(seed, NULL, 0));
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        run(k, 1000 + i);
    }
}

static void test_weather(gconstpointer opaque)
{
    each_round(opaque, random_run);
}

/*
 * Runs traffic in which each end is stopped, and begins a new session, many
 * times.
 */
static void restart_run(const Weather *k, uint32_t seed)
{
    World *w = world_new(k, seed);
    unsigned restarts = 0;

    w->may_skip = true;
    agree(w);
    for (unsigned i = 0; i < 400; i++) {
        if (!g_rand_int_range(w->rand, 0, 20)) {
            End *e = &w->end[g_rand_int_range(w->rand, 0, 2)];

            qrnic_link_reset(e->link);
            restarts++;
        }
        feed(w, &w->end[0], 20);
        feed(w, &w->end[1], 20);
        world_run(w, w->now + g_rand_int_range(w->rand, 1, 3000) * US);
    }
    g_assert_cmpuint(restarts, >, 5);
    agree(w);
    world_run(w, w->now + 5000 * MS);
    g_assert_true(w->end[0].agreed && w->end[1].agreed);
    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpuint(w->end[i].skipped, <, w->end[!i].sent);
    }
    /* Frames from here on must arrive. */
    for (unsigned i = 0; i < 2; i++) {
        w->end[i].received = w->end[!i].sent;
    }
    w->may_skip = false;
    for (unsigned i = 0; i < 100; i++) {
        feed(w, &w->end[0], 20);
        feed(w, &w->end[1], 20);
        world_run(w, w->now + 100 * US);
    }
    world_run(w, w->now + 1000 * MS);
    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpuint(w->end[i].received, ==, w->end[!i].sent);
    }
    world_free(w);
}

static void test_restarts(gconstpointer opaque)
{
    each_round(opaque, restart_run);
}

static const Weather restarts[] = {
    { "calm", .rounds = 30 },
    { "loss-5", .loss = 50, .rounds = 30 },
    { "loss-20", .loss = 200, .rounds = 30 },
};

/*
 * Tests that a wire with 1 percent loss keeps nearly its full rate. Little more
 * than the lost frames is retransmitted, and no frame waits for a timer.
 */
static void test_economy(void)
{
    static const Weather k = { "economy", .loss = 10 };
    World *w = world_new(&k, 3);
    End *a = &w->end[0];
    uint64_t again, sent;

    agree(w);
    for (unsigned i = 0; i < 20000; i++) {
        feed(w, a, 1);
        world_run(w, w->now + 300);
    }
    world_run(w, w->now + 100 * MS);
    again = a->count[QRNIC_LINK_TX_RETRANSMISSIONS];
    sent = a->count[QRNIC_LINK_TX_FRAMES];
    g_assert_cmpuint(sent, ==, 20000);
    g_assert_cmpuint(w->end[1].received, ==, sent);
    g_test_message("%" PRIu64 " of %" PRIu64 " sent again, %" PRIu64
                   " timeouts", again, sent, a->count[QRNIC_LINK_TX_TIMEOUTS]);
    g_assert_cmpuint(again, >, sent / 200);
    g_assert_cmpuint(again, <, sent / 80);
    g_assert_cmpuint(a->count[QRNIC_LINK_TX_TIMEOUTS], <=, 2);
    world_free(w);
}

/*
 * Tests a peer without link retransmission, which receives all frames, and
 * HELLOs. Otherwise qrnic could not talk to other adapters.
 */
static void test_standard_end(void)
{
    static const Weather k = { "standard" };
    World *w = world_new(&k, 5);
    End *a = &w->end[0], *b = &w->end[1];
    unsigned hellos = 0, plain = 0;

    qrnic_link_set_up(b->link, false);
    for (unsigned i = 0; i < 1000; i++) {
        uint8_t frame[QRNIC_LINK_PAYLOAD_MAX];
        size_t len = make(frame, 0, plain);

        feed(w, a, 1);
        for (; w->wire->len; g_ptr_array_remove_index(w->wire, 0)) {
            const Frame *f = w->wire->pdata[0];

            if (f->to == 0) {
                continue;
            }
            if (qrnic_link_kind(f->data, f->len) == QRNIC_LINK_OURS) {
                g_assert_cmpint(f->data[15], ==, QRNIC_LINK_HELLO);
                hellos++;
            } else {
                g_assert_cmpmem(f->data, f->len, frame, len);
                plain++;
            }
        }
        while (world_step(w) <= w->now + 10 * MS && !w->wire->len) {
            w->now = MAX(w->now, a->deadline);
        }
        w->now += 10 * MS;
    }
    g_assert_cmpuint(plain, ==, 1000);
    g_assert_cmpuint(hellos, <=, 14);
    world_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(weathers); i++) {
        g_autofree char *path = g_strdup_printf("/link/random/%s",
                                                weathers[i].name);

        g_test_add_data_func(path, &weathers[i], test_weather);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(restarts); i++) {
        g_autofree char *path = g_strdup_printf("/link/restarts/%s",
                                                restarts[i].name);

        g_test_add_data_func(path, &restarts[i], test_restarts);
    }
    g_test_add_func("/link/economy", test_economy);
    g_test_add_func("/link/standard-end", test_standard_end);
    return g_test_run();
}
