/*
 * The embedded switch with random frames, against a second implementation of
 * its rules; and with busy ports, resets and hostile senders
 *
 * The model asks for each port if it receives a frame, as the manual describes
 * it (chapter "Virtual functions"). QRNIC_SEED=n runs only that seed;
 * QRNIC_ROUNDS=n runs that many of each test.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "eswitch-world.h"

#define FILTER 6
#define STEPS 3000
/* Frames of this size have a number; a tag changes no size across it. */
#define NUMBERED 50

typedef struct Model {
    bool plugged, promiscuous, all_multicast;
    QrnicEswitchConfig config;
    unsigned count;
    uint8_t filter[FILTER][6];
} Model;

typedef struct Test {
    World *w;
    GRand *rand;
    bool wire;
    Model port[PORTS];
    /* Second test: numbers of frames */
    uint64_t sent[PORTS];
    uint32_t serial[PORTS];
    uint32_t seen[PORTS][PORTS];    /* last frame, by sender and receiver */
} Test;

static unsigned below(Test *t, unsigned n)
{
    return g_rand_int_range(t->rand, 0, n);
}

static unsigned ports(const Test *t)
{
    return VF(t->w->vfs);
}

/* The model */

static bool same(const uint8_t *a, const uint8_t *b)
{
    return !memcmp(a, b, 6);
}

static bool is_zero(const uint8_t *address)
{
    static const uint8_t zero[6];

    return same(address, zero);
}

static bool in_filter(const Model *m, const uint8_t *address)
{
    for (unsigned i = 0; i < m->count; i++) {
        if (same(m->filter[i], address)) {
            return true;
        }
    }
    return false;
}

static bool model_up(const Test *t, unsigned port)
{
    const Model *m = &t->port[port];

    if (!m->plugged) {
        return false;
    }
    if (port == UPLINK || m->config.link == QRNIC_ESWITCH_LINK_AUTO) {
        return t->wire;
    }
    return m->config.link == QRNIC_ESWITCH_LINK_ENABLE;
}

static bool model_is_mine(const Model *m, const uint8_t *address)
{
    return !is_zero(address) && (same(m->config.mac, address) ||
                                 (m->config.trust && in_filter(m, address)));
}

/* Returns the reason for which the sender's frame is dropped, or TX_FRAMES. */
static QrnicEswitchCount model_check(const Test *t, unsigned from,
                                     const Frame *f)
{
    const Model *m = &t->port[from];

    if (!model_up(t, from)) {
        return QRNIC_ESWITCH_TX_DROP_LINK;
    }
    if (f->len < 14) {
        return QRNIC_ESWITCH_TX_DROP_RUNT;
    }
    if (f->len > 9082) {
        return QRNIC_ESWITCH_TX_DROP_GIANT;
    }
    if (f->data[6] % 2) {
        return QRNIC_ESWITCH_TX_DROP_SOURCE;
    }
    if (m->config.spoof_check && !model_is_mine(m, f->data + 6)) {
        return QRNIC_ESWITCH_TX_DROP_SPOOF;
    }
    if (m->config.vlan) {
        unsigned type = f->data[12] << 8 | f->data[13];

        if (type == 0x8100 || type == 0x88a8) {
            return QRNIC_ESWITCH_TX_DROP_TAGGED;
        }
        if (f->len > 9078) {
            return QRNIC_ESWITCH_TX_DROP_GIANT;
        }
    }
    return QRNIC_ESWITCH_TX_FRAMES;
}

static unsigned model_vlan(const Test *t, unsigned from, const Frame *f)
{
    if (t->port[from].config.vlan) {
        return t->port[from].config.vlan;
    }
    if (f->len >= 18 && f->data[12] == 0x81 && f->data[13] == 0) {
        return (f->data[14] & 15) << 8 | f->data[15];
    }
    return 0;
}

static bool model_is_one_hop(const uint8_t *a)
{
    return a[0] == 1 && a[1] == 0x80 && a[2] == 0xc2 && !a[3] && !a[4] &&
           a[5] < 16;
}

/* Returns true if a function could receive frames to a unicast address. */
static bool model_owns(const Test *t, unsigned port, const uint8_t *to)
{
    for (unsigned i = PF; i < ports(t); i++) {
        const Model *m = &t->port[i];

        if (m->plugged && !is_zero(to) && same(m->config.mac, to)) {
            return i == port;
        }
    }
    return t->port[port].plugged && model_is_mine(&t->port[port], to);
}

/* Returns true if a function receives a frame, unless by promiscuous mode. */
static bool model_receives(const Test *t, unsigned from, unsigned port,
                           const Frame *f)
{
    static const uint8_t everybody[6] = { 255, 255, 255, 255, 255, 255 };
    const Model *m = &t->port[port];
    unsigned vlan = model_vlan(t, from, f);

    if (!m->plugged || port == from ||
        (m->config.vlan && m->config.vlan != vlan)) {
        return false;
    }
    if (model_is_one_hop(f->data)) {
        return from == UPLINK && port == PF;
    }
    if (same(f->data, everybody)) {
        return true;
    }
    if (f->data[0] % 2) {
        return m->all_multicast || in_filter(m, f->data);
    }
    return model_owns(t, port, f->data);
}

/*
 * Fills in the receivers of a frame. Returns TX_FRAMES, or the reason for which
 * the frame is dropped.
 */
static QrnicEswitchCount model_route(const Test *t, unsigned from,
                                     const Frame *f, bool *to)
{
    QrnicEswitchCount result = model_check(t, from, f);
    bool any = false, unicast = f->len && f->data[0] % 2 == 0;

    memset(to, 0, PORTS * sizeof(*to));
    if (result != QRNIC_ESWITCH_TX_FRAMES) {
        return result;
    }
    for (unsigned i = PF; i < ports(t); i++) {
        to[i] = model_receives(t, from, i, f);
        any |= to[i];
    }
    if (model_is_one_hop(f->data)) {
        to[UPLINK] = from == PF;
        return any || from == PF ? QRNIC_ESWITCH_TX_FRAMES :
               QRNIC_ESWITCH_TX_DROP_RESERVED;
    }
    if (from != UPLINK) {
        if (unicast && !any && model_owns(t, from, f->data)) {
            return QRNIC_ESWITCH_TX_DROP_OWN;
        }
        to[UPLINK] = !unicast || !any;
        return QRNIC_ESWITCH_TX_FRAMES;
    }
    for (unsigned i = PF; unicast && !any && i < ports(t); i++) {
        const Model *m = &t->port[i];

        to[i] = m->plugged && m->promiscuous && m->config.trust &&
                (!m->config.vlan || m->config.vlan == model_vlan(t, from, f));
    }
    for (unsigned i = PF; i < ports(t); i++) {
        any |= to[i];
    }
    return any ? QRNIC_ESWITCH_TX_FRAMES : QRNIC_ESWITCH_TX_DROP_NOBODY;
}

/* Returns the frame that a port receives, by its VLAN and the sender's. */
static Frame *model_frame(const Test *t, unsigned from, unsigned port,
                          const Frame *f)
{
    const QrnicEswitchConfig *c = &t->port[from].config;
    const Frame *end = f;
    Frame *with = NULL, *without = NULL, *result;

    if (c->vlan) {
        with = g_malloc0(sizeof(Frame) + f->len + 4);
        with->len = f->len + 4;
        memcpy(with->data, f->data, 12);
        with->data[12] = 0x81;
        with->data[14] = c->priority << 5 | c->vlan >> 8;
        with->data[15] = c->vlan;
        memcpy(with->data + 16, f->data + 12, f->len - 12);
        end = with;
    }
    if (t->port[port].config.vlan) {
        without = g_malloc0(sizeof(Frame) + end->len);
        without->len = end->len - 4;
        memcpy(without->data, end->data, 12);
        memcpy(without->data + 12, end->data + 16, end->len - 16);
        end = without;
    }
    result = g_memdup2(end, sizeof(Frame) + end->len);
    g_free(with);
    g_free(without);
    return result;
}

/* Random frames and configurations, of few values so that they often match */

static uint64_t random_address(Test *t)
{
    switch (below(t, 12)) {
    case 0:
        return BROADCAST;
    case 1:
    case 2:
        return GROUP + below(t, 4);
    case 3:
        return STATION + below(t, 4);
    case 4:
        return 0x0180c2000000ull + below(t, 18);
    case 5:
        return below(t, 2) ? 0 : g_rand_int(t->rand) | 0x1000000000000ull;
    default:
        return ADDRESS(PF + below(t, ports(t) - 1));
    }
}

static Frame *random_frame(Test *t, unsigned from)
{
    static const uint16_t types[] = { 0x8100, 0x8100, 0x88a8, 0x0806, 0x86dd };
    unsigned len = below(t, 3) ? 60 + below(t, 1500) :
                   below(t, 2) ? below(t, 40) : 9060 + below(t, 40);
    uint64_t source = from && below(t, 4) ? ADDRESS(from) : random_address(t);
    Frame *f = frame_new(random_address(t), source,
                         below(t, 2) ? -1 : (int)below(t, 4), MAX(len, 18),
                         below(t, 256));

    f->len = len;
    if (below(t, 8) == 0) {
        stw_be_p(f->data + 12, types[below(t, ARRAY_SIZE(types))]);
    }
    if (below(t, 50) == 0) {
        for (unsigned i = 0; i < len; i++) {
            f->data[i] = g_rand_int(t->rand);
        }
    }
    return f;
}

static void random_config(Test *t, unsigned port)
{
    Model *m = &t->port[port];
    QrnicEswitchConfig c = {
        .vlan = below(t, 2) ? below(t, 4) : 0,
        .spoof_check = below(t, 2),
        .trust = below(t, 2),
        .link = below(t, 4) ? QRNIC_ESWITCH_LINK_AUTO : below(t, 4),
    };

    c.priority = c.vlan ? below(t, 8) : 0;
    if (below(t, 8)) {
        put_address(c.mac, below(t, 8) ? ADDRESS(port) : random_address(t));
    }
    if (qrnic_eswitch_configure(t->w->sw, port, &c) == QRNIC_ESWITCH_OK) {
        m->config = c;
    }
    g_assert_cmpmem(&m->config, sizeof(c),
                    qrnic_eswitch_config(t->w->sw, port), sizeof(c));
}

static void random_filter(Test *t, unsigned port)
{
    Model *m = &t->port[port];
    QrnicEswitchFilter filter = { .addresses = m->filter };

    m->promiscuous = filter.promiscuous = below(t, 4) == 0;
    m->all_multicast = filter.all_multicast = below(t, 4) == 0;
    m->count = filter.count = below(t, FILTER + 1);
    for (unsigned i = 0; i < m->count; i++) {
        put_address(m->filter[i], random_address(t));
    }
    g_assert_true(qrnic_eswitch_set_filter(t->w->sw, port, &filter));
}

static void random_change(Test *t)
{
    unsigned port = below(t, ports(t));
    Model *m = &t->port[port];

    switch (below(t, 8)) {
    case 0:
        t->wire = below(t, 4);
        qrnic_eswitch_set_wire(t->w->sw, t->wire);
        break;
    case 1:
        m->plugged = below(t, 4);
        if (m->plugged) {
            qrnic_eswitch_plug(t->w->sw, port);
            break;
        }
        qrnic_eswitch_unplug(t->w->sw, port);
        t->w->busy[port] = false;
        m->promiscuous = m->all_multicast = false;
        m->count = 0;
        break;
    case 2:
    case 3:
    case 4:
        if (port != UPLINK) {
            random_config(t, port);
        }
        break;
    default:
        if (port != UPLINK && m->plugged) {
            random_filter(t, port);
        }
        break;
    }
}

static Test *test_new(uint32_t seed, unsigned vfs)
{
    Test *t = g_new0(Test, 1);

    t->rand = g_rand_new_with_seed(seed);
    t->w = world_new(vfs);
    t->wire = true;
    for (unsigned i = 0; i < ports(t); i++) {
        t->port[i].plugged = true;
        t->port[i].config = *qrnic_eswitch_config(t->w->sw, i);
    }
    return t;
}

static void test_free(Test *t)
{
    world_free(t->w);
    g_rand_free(t->rand);
    g_free(t);
}

/* Sends a frame and compares the result with that of the model. */
static void step_exact(Test *t)
{
    unsigned from = below(t, ports(t));
    Frame *f = random_frame(t, from);
    bool to[PORTS];
    QrnicEswitchCount result = model_route(t, from, f, to);
    uint64_t before = count(t->w, from, result);

    g_assert_true(qrnic_eswitch_send(t->w->sw, from, f->data, f->len));
    world_run(t->w);
    g_assert_cmpuint(count(t->w, from, result), ==, before + 1);
    for (unsigned i = 0; i < ports(t); i++) {
        if (to[i] && model_up(t, i)) {
            expect(t->w, i, model_frame(t, from, i, f));
        }
        g_assert_cmpuint(t->w->received[i].length, ==, 0);
    }
    g_free(f);
}

static void run_exact(uint32_t seed)
{
    static const unsigned vfs[] = { 0, 1, 3, 8, 63 };
    Test *t = test_new(seed, vfs[seed % ARRAY_SIZE(vfs)]);

    for (unsigned i = 0; i < STEPS; i++) {
        if (below(t, 4) == 0) {
            random_change(t);
            world_run(t->w);
        }
        step_exact(t);
    }
    test_free(t);
}

/* Busy ports and hostile senders */

/* Sends a numbered frame. Hostile senders ignore the order to stop. */
static void send_numbered(Test *t, unsigned from)
{
    Frame *f = random_frame(t, from);

    if (f->len >= NUMBERED) {
        stw_be_p(f->data + f->len - 6, from);
        stl_be_p(f->data + f->len - 4, ++t->serial[from]);
    }
    t->sent[from]++;
    send_frame(t->w, from, f);
}

/* Checks that the frames of each sender arrive in order, and not twice. */
static void check_order(Test *t)
{
    for (unsigned i = 0; i < ports(t); i++) {
        Frame *f;

        while ((f = g_queue_pop_head(&t->w->received[i]))) {
            if (f->len >= NUMBERED) {
                unsigned from = lduw_be_p(f->data + f->len - 6);
                uint32_t serial = ldl_be_p(f->data + f->len - 4);

                g_assert_cmpuint(from, <, ports(t));
                g_assert_cmpuint(from, !=, i);
                g_assert_cmpuint(serial, >, t->seen[from][i]);
                t->seen[from][i] = serial;
            }
            g_free(f);
        }
    }
}

/* Checks that each frame was forwarded or is in one counter of drops. */
static void check_counts(Test *t)
{
    for (unsigned i = 0; i < ports(t); i++) {
        uint64_t sum = count(t->w, i, QRNIC_ESWITCH_TX_FRAMES);

        for (unsigned which = QRNIC_ESWITCH_TX_DROP_LINK;
             which <= QRNIC_ESWITCH_TX_DROP_RESET; which++) {
            sum += count(t->w, i, which);
        }
        g_assert_cmpuint(sum, ==, t->sent[i]);
        g_assert_cmpuint(count(t->w, i, QRNIC_ESWITCH_RX_FRAMES), ==,
                         t->w->frames[i]);
        g_assert_cmpuint(count(t->w, i, QRNIC_ESWITCH_RX_BYTES), ==,
                         t->w->bytes[i]);
    }
}

static void step_hostile(Test *t)
{
    unsigned port = below(t, ports(t));

    switch (below(t, 12)) {
    case 0:
        world_room(t->w, port, below(t, 3) ? below(t, 50) : 0);
        break;
    case 1:
        world_room(t->w, port, UNLIMITED);
        break;
    case 2:
        world_pass(t->w, below(t, 5 * MS));
        break;
    case 3:
        if (below(t, 4) == 0) {
            qrnic_eswitch_reset_port(t->w->sw, port);
            t->port[port].count = 0;
            t->w->busy[port] = false;
        }
        break;
    case 4:
        random_change(t);
        break;
    case 5:
        if (port != UPLINK) {
            set_rate(t->w, port, below(t, 2) * below(t, 10000));
            t->port[port].config = *qrnic_eswitch_config(t->w->sw, port);
        }
        break;
    default:
        for (unsigned n = below(t, 200); n; n--) {
            send_numbered(t, port);
        }
        break;
    }
    if (below(t, 2)) {
        world_run_once(t->w);
    }
    check_order(t);
}

static void run_hostile(uint32_t seed)
{
    static const unsigned vfs[] = { 1, 3, 8, 63 };
    Test *t = test_new(seed, vfs[seed % ARRAY_SIZE(vfs)]);

    for (unsigned i = 0; i < STEPS / 10; i++) {
        step_hostile(t);
    }
    /* No frame stays behind when all ports receive and no rate limits. */
    for (unsigned i = 0; i < ports(t); i++) {
        t->w->busy[i] = false;
        t->w->room[i] = UNLIMITED;
        qrnic_eswitch_ready(t->w->sw, i);
        if (i != UPLINK) {
            set_rate(t->w, i, 0);
        }
    }
    world_run(t->w);
    check_order(t);
    check_counts(t);
    test_free(t);
}

static void run_rounds(void (*run)(uint32_t seed), unsigned rounds)
{
    const char *seed = g_getenv("QRNIC_SEED"), *n = g_getenv("QRNIC_ROUNDS");

    if (seed) {
        run(g_ascii_strtoull(seed, NULL, 0));
        return;
    }
    rounds = n ? g_ascii_strtoull(n, NULL, 0) : rounds;
    for (unsigned i = 0; i < rounds; i++) {
        g_test_message("seed %u", i);
        run(i);
    }
}

static void test_exact(void)
{
    run_rounds(run_exact, 40);
}

static void test_hostile(void)
{
    run_rounds(run_hostile, 40);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/eswitch/random/exact", test_exact);
    g_test_add_func("/eswitch/random/hostile", test_hostile);
    return g_test_run();
}
