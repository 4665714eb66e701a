/*
 * A network between simulated nodes; see net.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/host-utils.h"
#include "net.h"
#include "sim-world.h"

#define PS_PER_NS 1000
#define PS_PER_S 1000000000000ull
#define PAUSE_BYTES (NET_FRAME_MIN + NET_OVERHEAD)

static NetDevice *device_at(Net *net, unsigned id)
{
    return &g_array_index(net->device, NetDevice, id);
}

/*
 * Returns the next random number of SplitMix64. The network has its own
 * generator, so that it does not change the random numbers of other parts.
 */
static uint64_t random_next(Net *net)
{
    uint64_t z = net->random += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static bool chance(Net *net, uint32_t millionths)
{
    return millionths && random_next(net) % NET_MILLION < millionths;
}

static void trace(Net *net, uint64_t what)
{
    net->trace = (net->trace ^ what) * 0x100000001b3;
    net->trace = (net->trace ^ (uint64_t)net->sim->now) * 0x100000001b3;
    net->trace ^= net->trace >> 29;
}

static int64_t duration_ps(const NetPort *p, uint64_t bytes)
{
    return bytes * 8 * (PS_PER_S / 1000) / (p->link.rate / 1000);
}

static int64_t ns_of(int64_t ps)
{
    return DIV_ROUND_UP(ps, PS_PER_NS);
}

/* Links */

static bool is_down(const NetLoss *l, int64_t now)
{
    if (l->down_to <= l->down_from || now < l->down_from) {
        return false;
    }
    now -= l->down_from;
    return (l->period ? now % l->period : now) < l->down_to - l->down_from;
}

static bool is_lost(NetPort *p)
{
    const NetLoss *l = &p->link.loss;

    if (is_down(l, p->net->sim->now)) {
        return true;
    }
    if (l->to_bad && chance(p->net, p->bad ? l->to_good : l->to_bad)) {
        p->bad = !p->bad;
    }
    return chance(p->net, p->bad ? l->loss_bad : l->loss);
}

/*
 * Priority flow control: the bytes of a frame count against its ingress port
 * while the frame is in the switch.
 */

static void port_kick(NetPort *p);

typedef struct NetPause {
    NetPort *port;
    uint8_t priority;
    bool pause;
} NetPause;

static void pause_arrives(void *opaque)
{
    g_autofree NetPause *a = opaque;
    NetPort *p = a->port;
    int64_t now = p->net->sim->now;

    if (a->pause) {
        p->count.paused++;
        p->queue[a->priority].since = now;
    } else {
        p->count.resumed++;
        p->count.paused_ns += now - p->queue[a->priority].since;
    }
    p->queue[a->priority].paused = a->pause;
    trace(p->net, p->id << 4 | a->priority << 1 | a->pause);
    port_kick(p);
}

/* Sends a pause before all queued frames, but after the frame being sent. */
static void pause_send(NetPort *p, unsigned priority, bool pause)
{
    Sim *s = p->net->sim;
    NetPort *back = p->back;
    NetPause *a = g_new(NetPause, 1);

    *a = (NetPause) { p, priority, pause };
    p->queue[priority].stopped = pause;
    back->free_ps = MAX(back->free_ps, s->now * PS_PER_NS) +
                    duration_ps(back, PAUSE_BYTES);
    sim_at(s, ns_of(back->free_ps) + back->link.delay, pause_arrives, a);
}

static bool is_lossless(const Net *net, unsigned priority)
{
    return net->o.xoff && (net->o.pfc >> priority & 1);
}

/* Returns false if the frame exceeds the headroom of the pause. */
static bool input_take(NetPort *came, const SimFrame *f)
{
    const NetOptions *o = &came->net->o;
    uint64_t held = came->queue[f->priority].held + f->wire_bytes;

    if (held > o->xoff + o->headroom) {
        return false;
    }
    came->queue[f->priority].held = held;
    if (held > o->xoff && !came->queue[f->priority].stopped) {
        pause_send(came, f->priority, true);
    }
    return true;
}

static void input_leave(NetPort *came, const SimFrame *f)
{
    uint64_t held = came->queue[f->priority].held -= f->wire_bytes;

    if (held <= came->net->o.xon && came->queue[f->priority].stopped) {
        pause_send(came, f->priority, false);
    }
}

/* Ports */

static void frame_arrives(void *opaque);

static void node_goes_on(Net *net, const NetPort *p)
{
    SimNode *n = &net->sim->node[p->from];

    if (p->from < net->sim->nodes && n->blocked &&
        n->wire_ready == QRNIC_DEADLINE_NEVER && p->queued < NET_NODE_QUEUE) {
        sim_block(n, net->sim->now);
    }
}

static void port_free(void *opaque)
{
    NetPort *p = opaque;

    p->scheduled = false;
    port_kick(p);
}

static SimFrame *port_take(NetPort *p)
{
    for (int i = NET_PRIORITIES - 1; i >= 0; i--) {
        SimFrame *f = p->queue[i].first;

        if (f && !p->queue[i].paused) {
            p->queue[i].first = f->next;
            p->queue[i].bytes -= f->wire_bytes;
            p->queued -= f->wire_bytes;
            return f;
        }
    }
    return NULL;
}

/* Sends all frames that can be sent now, and schedules the next one. */
static void port_kick(NetPort *p)
{
    Net *net = p->net;
    Sim *s = net->sim;

    while (p->queued && !p->scheduled) {
        SimFrame *f;

        if (p->free_ps > s->now * PS_PER_NS) {
            p->scheduled = true;
            sim_at(s, ns_of(p->free_ps), port_free, p);
            break;
        }
        f = port_take(p);
        if (!f) {
            break;
        }
        /* An event is up to 1 ns late; the link must not count as idle then. */
        if (p->free_ps <= (s->now - 1) * PS_PER_NS) {
            p->free_ps = s->now * PS_PER_NS;
        }
        p->free_ps += duration_ps(p, f->wire_bytes);
        p->count.frames++;
        p->count.bytes += f->wire_bytes;
        if (f->came && is_lossless(net, f->priority)) {
            input_leave(f->came, f);
        }
        if (is_lost(p)) {
            p->count.lost++;
            net->gone.lost++;
            trace(net, p->id);
            g_free(f);
        } else {
            f->at = p;
            sim_at(s, ns_of(p->free_ps) + p->link.delay, frame_arrives, f);
        }
    }
    node_goes_on(net, p);
}

static bool is_marked(Net *net, uint64_t depth)
{
    const NetOptions *o = &net->o;

    if (!o->kmax || depth <= o->kmin) {
        return false;
    }
    return depth >= o->kmax ||
           chance(net, o->max_mark * (depth - o->kmin) / (o->kmax - o->kmin));
}

/* Queues a frame. came: its ingress port, or NULL for a frame of the node. */
static void port_put(NetPort *p, SimFrame *f, NetPort *came)
{
    Net *net = p->net;
    uint64_t depth = p->queue[f->priority].bytes;
    bool fits = !came ? true : is_lossless(net, f->priority) ?
                input_take(came, f) : depth + f->wire_bytes <= p->link.queue;

    if (!fits) {
        p->count.dropped++;
        net->gone.dropped++;
        trace(net, p->id);
        g_free(f);
        return;
    }
    if (came && is_marked(net, depth) && net_mark(f)) {
        p->count.marked++;
        net->gone.marked++;
    }
    f->came = came;
    f->next = NULL;
    if (p->queue[f->priority].first) {
        p->queue[f->priority].last->next = f;
    } else {
        p->queue[f->priority].first = f;
    }
    p->queue[f->priority].last = f;
    p->queue[f->priority].bytes += f->wire_bytes;
    p->queued += f->wire_bytes;
    p->count.deepest = MAX(p->count.deepest, p->queued);
    port_kick(p);
}

/* Devices */

static unsigned ways_count(const NetWays *w)
{
    unsigned count = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(w->word); i++) {
        count += ctpop64(w->word[i]);
    }
    return count;
}

/* Returns a port of the set by its index, which must exist. */
static unsigned ways_at(const NetWays *w, unsigned which)
{
    for (unsigned i = 0; i < ARRAY_SIZE(w->word); i++) {
        uint64_t word = w->word[i];

        for (; word; word &= word - 1) {
            if (!which--) {
                return i * 64 + ctz64(word);
            }
        }
    }
    g_assert_not_reached();
}

static NetPort *path_choose(Net *net, unsigned id, const SimFrame *f)
{
    NetDevice *d = device_at(net, id);
    const NetWays *ways = f->to < net->sim->nodes ? &d->route[f->to] : NULL;
    unsigned count = ways ? ways_count(ways) : 0, which;

    if (!count) {
        return NULL;
    }
    if (net->o.paths == NET_PATHS_SPRAY ||
        (net->o.paths == NET_PATHS_ADAPTIVE && f->adaptive)) {
        which = count == 1 ? 0 : random_next(net) % count;
    } else {
        /*
         * The switch is part of the hash, because otherwise all switches would
         * choose the same index.
         */
        uint64_t hash = (f->hash + id * 0x9e3779b1ull) * 0xd6e8feb86659fd93;

        which = (hash >> 32) % count;
    }
    return d->port[ways_at(ways, which)];
}

static void frame_arrives(void *opaque)
{
    SimFrame *f = opaque;
    NetPort *came = f->at, *next;
    Net *net = came->net;

    net->hops++;
    if (came->to < net->sim->nodes) {
        net->delivered++;
        trace(net, (uint64_t)came->id << 32 | f->order);
        if (net->sink && !net->sink(net, f, net->sink_opaque)) {
            g_free(f);
        } else {
            sim_deliver(net->sim, f);
        }
        return;
    }
    next = path_choose(net, came->to, f);
    if (next) {
        port_put(next, f, came);
    } else {
        net->unrouted++;
        g_free(f);
    }
}

/* Returns the node of a MAC address. MAC addresses are those of node_init(). */
static unsigned node_of_mac(const Net *net, const uint8_t *mac)
{
    static const uint8_t prefix[4] = { 2 };
    unsigned number = lduw_be_p(mac + 4) - 1;

    return memcmp(mac, prefix, sizeof(prefix)) ? net->sim->nodes : number;
}

static void frame_late(void *opaque)
{
    SimFrame *f = opaque;

    port_put(f->at, f, NULL);
}

static bool is_meant(NetFault *a, const SimFrame *f)
{
    return a->to == f->to &&
           a->dest_qpn == (ldl_be_p(f->data + f->bth + 4) & 0xffffff) &&
           a->psn == (ldl_be_p(f->data + f->bth + 8) & 0xffffff) &&
           ++a->seen == a->transmission;
}

/* Returns the fault for this frame, or NULL. All matching faults count it. */
static NetFault *fault_find(Net *net, const SimFrame *f)
{
    NetFault *found = NULL;

    for (unsigned i = 0; f->bth && i < net->fault->len; i++) {
        NetFault *a = &g_array_index(net->fault, NetFault, i);

        found = is_meant(a, f) ? a : found;
    }
    return found;
}

/* Returns false if the frame is lost or delayed. */
static bool fault_apply(Net *net, SimFrame *f)
{
    const NetFault *a = fault_find(net, f);

    if (!a) {
        return true;
    }
    switch (a->fate) {
    case NET_FATE_LOST:
        net->gone.lost++;
        g_free(f);
        return false;
    case NET_FATE_MARKED:
        net->gone.marked += net_mark(f);
        break;
    case NET_FATE_CORRUPTED:
        f->data[f->len - 1] ^= 1;
        break;
    case NET_FATE_LATE:
        sim_at(net->sim, net->sim->now + a->late, frame_late, f);
        return false;
    }
    return true;
}

bool net_send(Sim *s, SimNode *from, const uint8_t *frame, size_t len)
{
    Net *net = s->network;
    NetPort *p = device_at(net, from->id)->port[0];
    SimFrame *f;

    if (s->tap && !s->tap(s, from->id, frame, len, s->tap_opaque)) {
        return true;
    }
    net->sent++;
    f = g_malloc0(sizeof(*f) + len);
    f->time = s->now;
    f->order = s->frames++;
    f->len = len;
    f->at = p;
    memcpy(f->data, frame, len);
    f->to = len < QRNIC_ETH_LEN ? s->nodes : node_of_mac(net, frame);
    net_classify(f);
    if (!net->fault->len || fault_apply(net, f)) {
        port_put(p, f, NULL);
    }
    if (p->queued >= NET_NODE_QUEUE) {
        sim_block(from, QRNIC_DEADLINE_NEVER);
        return false;
    }
    return true;
}

void net_fault_add(Net *net, const NetFault *fault)
{
    g_array_append_val(net->fault, *fault);
}

/* Counters */

uint64_t net_under_way(Net *net)
{
    const Heap *later = &net->sim->later;
    uint64_t count = 0;

    for (size_t i = 0; i < later->len; i++) {
        count += later->item[i].run == frame_arrives ||
                 later->item[i].run == frame_late;
    }
    for (unsigned i = 0; i < net->port->len; i++) {
        const NetPort *p = net->port->pdata[i];

        for (unsigned k = 0; k < NET_PRIORITIES; k++) {
            for (SimFrame *f = p->queue[k].first; f; f = f->next) {
                count++;
            }
        }
    }
    return count;
}

/*
 * Checks the byte counts of a port, and adds its queues to the counts of their
 * ingress ports.
 */
static void queues_check(const NetPort *p, uint64_t *held)
{
    uint64_t all = 0;

    for (unsigned k = 0; k < NET_PRIORITIES; k++) {
        uint64_t bytes = 0;

        for (SimFrame *f = p->queue[k].first; f; f = f->next) {
            bytes += f->wire_bytes;
            if (f->came && is_lossless(p->net, k)) {
                const NetPort *came = f->came;

                held[came->id * NET_PRIORITIES + k] += f->wire_bytes;
            }
        }
        g_assert_cmpuint(p->queue[k].bytes, ==, bytes);
        all += bytes;
    }
    g_assert_cmpuint(p->queued, ==, all);
}

void net_check(Net *net)
{
    g_autofree uint64_t *held = g_new0(uint64_t,
                                       net->port->len * NET_PRIORITIES);

    g_assert_cmpuint(net->sent, ==, net->delivered + net->gone.dropped +
                     net->gone.lost + net->unrouted + net_under_way(net));
    for (unsigned i = 0; i < net->port->len; i++) {
        queues_check(net->port->pdata[i], held);
    }
    for (unsigned i = 0; i < net->port->len; i++) {
        const NetPort *p = net->port->pdata[i];

        for (unsigned k = 0; k < NET_PRIORITIES; k++) {
            g_assert_cmpuint(p->queue[k].held, ==,
                             held[i * NET_PRIORITIES + k]);
        }
    }
}

int64_t net_paused_ns(const NetPort *p)
{
    int64_t ns = p->count.paused_ns;

    for (unsigned k = 0; k < NET_PRIORITIES; k++) {
        ns += p->queue[k].paused ? p->net->sim->now - p->queue[k].since : 0;
    }
    return ns;
}

/* Construction */

Net *net_new(Sim *s, const NetOptions *o)
{
    Net *net = g_new0(Net, 1);

    net->sim = s;
    net->o = *o;
    net->random = s->seed;
    net->device = g_array_new(false, true, sizeof(NetDevice));
    g_array_set_size(net->device, s->nodes);
    net->port = g_ptr_array_new_with_free_func(g_free);
    net->fault = g_array_new(false, true, sizeof(NetFault));
    s->network = net;
    s->send = net_send;
    return net;
}

void net_free(Net *net)
{
    Heap *later = &net->sim->later;

    net_check(net);
    /* Frames and pauses in flight */
    for (size_t i = 0; i < later->len; i++) {
        if (later->item[i].run != port_free) {
            g_free(later->item[i].data);
        }
    }
    later->len = 0;
    net->sim->send = NULL;
    for (unsigned i = 0; i < net->port->len; i++) {
        NetPort *p = net->port->pdata[i];

        for (unsigned k = 0; k < NET_PRIORITIES; k++) {
            while (p->queue[k].first) {
                SimFrame *f = p->queue[k].first;

                p->queue[k].first = f->next;
                g_free(f);
            }
        }
    }
    for (unsigned i = 0; i < net->device->len; i++) {
        g_free(device_at(net, i)->route);
    }
    g_array_free(net->device, true);
    g_array_free(net->fault, true);
    g_ptr_array_free(net->port, true);
    g_free(net);
}

unsigned net_switch_add(Net *net)
{
    g_array_set_size(net->device, net->device->len + 1);
    return net->device->len - 1;
}

static NetPort *port_new(Net *net, unsigned from, unsigned to,
                         const NetLink *link)
{
    NetPort *p = g_new0(NetPort, 1);
    NetDevice *d = device_at(net, from);

    g_assert_cmpuint(d->ports, <,
                     from < net->sim->nodes ? 1 : NET_SWITCH_PORTS);
    g_assert_cmpuint(link->rate, >=, 1000);
    p->net = net;
    p->id = net->port->len;
    p->from = from;
    p->to = to;
    p->link = *link;
    d->port[d->ports++] = p;
    g_ptr_array_add(net->port, p);
    return p;
}

NetPort *net_link(Net *net, unsigned a, unsigned b, const NetLink *link)
{
    NetPort *p = port_new(net, a, b, link), *back = port_new(net, b, a, link);

    p->back = back;
    back->back = p;
    return p;
}
