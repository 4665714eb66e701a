/*
 * Runs a scenario (scenario.h) from standard input: engines, as they are in the
 * device, on a simulated network, in virtual time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Prints lines of words, which tools/simulate reads.
 *
 *   rate NS FLOW BYTES          completed since the sample before
 *   queue NS FROM TO BYTES PAUSED   watched ports; PAUSED: bit mask
 *   packet NS sent|arrived FROM TO DEST_QPN OPCODE PSN ACK_REQUEST MARKS
 *          SYNDROME ECN BYTES   with "trace 1"
 *   qp FLOW FROM_QPN TO_QPN PSN
 *   flow NAME BYTES MESSAGES ERRORS INTACT P50 P99 MOST GAP LAST
 *          times in ns: of messages, the longest without one, the last one
 *   port FROM TO FRAMES BYTES DROPPED LOST MARKED PAUSED RESUMED PAUSED_NS
 *          DEEPEST LEFT
 *   node NUMBER RETRANSMISSIONS TIMEOUTS PROBES NAKS SACKS HELD
 *          OUT_OF_SEQUENCE MARKED CNPS_SENT CNPS_HANDLED
 *   total FRAMES HOPS DELIVERED DROPPED LOST MARKED UNROUTED UNDER_WAY NS
 *          TRACE
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "qemu/bswap.h"
#include <math.h>
#include "scenario.h"
#include "pair.h"

#define STAMP_EACH 512          /* Bytes between numbers in a message */
#define FIRST_PSN 0x100000
#define TIMES_KEPT 100000u      /* Latencies stored for a flow */

typedef struct Flow {
    const ScenarioFlow *is;
    SimQp *from, *to;
    uint64_t from_at, to_at;    /* depth messages each */
    uint32_t from_key, to_key;
    uint64_t posted, done, errors, told;
    int64_t next, last, gap;
    int64_t *began;             /* By place */
    GArray *took;               /* int64_t */
} Flow;

typedef struct World {
    const Scenario *s;
    Sim *sim;
    Net *net;
    Flow *flow;
    uint64_t frames;
} World;

/* Construction */

/* Reports an error that only the network or the device can detect. */
static void G_NORETURN G_GNUC_PRINTF(1, 2) wrong(const char *format, ...)
{
    va_list ap;

    fputs("qrnic-simulate: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(2);
}

static void parameters_set(World *w)
{
    for (unsigned i = 0; w->s->congested && i < w->sim->nodes; i++) {
        QrnicResult r = qrnic_congestion_set(w->sim->node[i].engine,
                                             &w->s->congestion);

        if (r.status != QRNIC_ST_OK) {
            wrong("congestion: the device rejects the member at %u",
                  (unsigned)r.value);
        }
    }
}

static NetPort *port_find(World *w, const ScenarioLink *l)
{
    for (unsigned i = 0; i < w->net->port->len; i++) {
        NetPort *p = w->net->port->pdata[i];

        if (p->from == l->a && p->to == l->b) {
            return p;
        }
    }
    wrong("there is no link between %u and %u", l->a, l->b);
}

static void network_build(World *w)
{
    const Scenario *s = w->s;
    const char *t = s->topology;

    w->net = net_new(w->sim, &s->network);
    if (!strcmp(t, "pair")) {
        net_pair(w->net, &s->edge);
    } else if (!strcmp(t, "star")) {
        net_star(w->net, &s->edge);
    } else if (!strcmp(t, "dumbbell")) {
        net_dumbbell(w->net, &s->edge, &s->middle);
    } else if (!strcmp(t, "ring") || !strcmp(t, "ring-one-way")) {
        net_ring(w->net, s->size, t[4], &s->edge, &s->middle);
    } else if (!strcmp(t, "leaf-spine")) {
        net_leaf_spine(w->net, s->size, &s->edge, &s->middle);
    } else {
        net_fat_tree(w->net, s->size, &s->edge, &s->middle);
    }
    for (unsigned i = 0; i < s->link->len; i++) {
        const ScenarioLink *l = &g_array_index(s->link, ScenarioLink, i);
        NetPort *p = port_find(w, l);

        p->link = p->back->link = l->link;
    }
}

static unsigned log_up(uint32_t n)
{
    return 32 - clz32(MAX(n, 2) - 1);
}

static void flow_build(World *w, Flow *f, const ScenarioFlow *is)
{
    SimNode *from = &w->sim->node[is->from], *to = &w->sim->node[is->to];
    uint64_t bytes = (uint64_t)is->size * is->depth;
    SimConnect c = sim_connect_default();
    unsigned log = MAX(log_up(is->depth), 3) + 1;
    QrnicQpAttr attr;

    f->is = is;
    f->from = sim_qp_new(from, log, 4, 0, log);
    f->to = sim_qp_new(to, 4, log, 0, log);
    f->from_at = sim_alloc(from, bytes);
    f->to_at = sim_alloc(to, bytes);
    f->from_key = sim_mkey(from, f->from_at, bytes, ACCESS_ALL);
    f->to_key = sim_mkey(to, f->to_at, bytes, ACCESS_ALL);
    f->began = g_new0(int64_t, is->depth);
    f->took = g_array_new(false, false, sizeof(int64_t));
    f->next = f->last = is->start;
    c.path_mtu = is->mtu;
    c.timeout = is->timeout;
    c.options = is->options;
    c.traffic_class = is->traffic_class;
    c.psn_a = c.psn_b = FIRST_PSN;
    sim_connect(f->from, f->to, &c);
    attr = (QrnicQpAttr) {
        .mask = (is->priority ? QRNIC_QP_PRIORITY : 0) |
                (is->limit ? QRNIC_QP_RATE_LIMIT : 0),
        .priority = is->priority, .rate_limit = is->limit / 1000,
        .max_burst_sz = is->limit ? is->burst : 0,
    };
    if (attr.mask) {
        g_assert_cmpint(sim_modify(f->from, &attr).status, ==, QRNIC_ST_OK);
    }
    printf("qp %s %u %u %u\n", is->name, f->from->number, f->to->number,
           FIRST_PSN);
}

static void fault_add(World *w, const ScenarioFault *f)
{
    const Flow *flow = &w->flow[f->flow];
    NetFault fault = f->fault;

    fault.to = (f->answers ? flow->from : flow->to)->node->id;
    fault.dest_qpn = (f->answers ? flow->from : flow->to)->number;
    fault.psn = (FIRST_PSN + fault.psn) & QRNIC_PSN_MASK;
    net_fault_add(w->net, &fault);
}

/* Returns the options for the node with the most memory and queue pairs. */
static SimOptions options(const Scenario *s)
{
    g_autofree uint64_t *bytes = g_new0(uint64_t, s->nodes);
    g_autofree uint32_t *flows = g_new0(uint32_t, s->nodes);
    SimOptions o = { .nodes = s->nodes, .doorbell_fifo = 65536 };
    uint64_t most_bytes = 0;
    uint32_t most = 0;

    for (unsigned i = 0; i < s->flow->len; i++) {
        const ScenarioFlow *f = &g_array_index(s->flow, ScenarioFlow, i);
        uint32_t ends[] = { f->from, f->to };

        for (unsigned k = 0; k < 2; k++) {
            bytes[ends[k]] += (uint64_t)f->size * f->depth + 0x40000;
            flows[ends[k]]++;
            most_bytes = MAX(most_bytes, bytes[ends[k]]);
            most = MAX(most, flows[ends[k]]);
        }
    }
    o.memory = most_bytes + (8 << 20);
    o.max_qp = o.max_cq = most + 8;
    o.max_mkey = most + 8;
    return o;
}

/* Traffic */

/* Writes the message's number into the message, at regular distances. */
static void stamp(uint8_t *at, uint32_t size, uint64_t number)
{
    for (uint32_t i = 0; i + 8 <= size; i += STAMP_EACH) {
        stq_le_p(at + i, number + i);
    }
}

static void flow_post(World *w, Flow *f)
{
    static const uint8_t opcode[] = {
        QRNIC_WQE_RDMA_WRITE, QRNIC_WQE_SEND, QRNIC_WQE_RDMA_READ,
    };
    const ScenarioFlow *is = f->is;
    uint64_t place = f->posted % is->depth * is->size;
    SimSge sge = { f->from_at + place, is->size, f->from_key };
    SimWr wr = {
        .opcode = opcode[is->operation], .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = f->to_at + place,
        .rkey = f->to_key,
    };
    bool reads = is->operation == SCENARIO_READ;

    stamp(reads ? f->to->node->memory + f->to_at + place :
                  f->from->node->memory + f->from_at + place,
          is->size, f->posted);
    if (is->operation == SCENARIO_SEND) {
        SimSge to = { f->to_at + place, is->size, f->to_key };

        sim_post_recv(f->to, &to, 1);
    }
    f->began[f->posted++ % is->depth] = w->sim->now;
    sim_post_send(f->from, &wr);
}

static void flow_completed(World *w, Flow *f, const QrnicCqe *c)
{
    int64_t at = c->timestamp;
    int64_t took = at - f->began[f->done % f->is->depth];

    if (c->status != QRNIC_WC_SUCCESS) {
        f->errors++;
        return;
    }
    f->gap = MAX(f->gap, at - f->last);
    f->last = at;
    if (f->took->len < TIMES_KEPT) {
        g_array_append_val(f->took, took);
    } else {
        /*
         * Reservoir sampling: each message is kept with the same probability.
         */
        uint64_t i = g_rand_double(w->sim->rand) * f->done;

        if (i < TIMES_KEPT) {
            g_array_index(f->took, int64_t, i) = took;
        }
    }
    f->done++;
    if (f->is->pause) {
        f->next = w->sim->now + f->is->pause *
                                g_rand_double(w->sim->rand);
    }
}

static bool flow_may_post(const World *w, const Flow *f)
{
    const ScenarioFlow *is = f->is;

    return !f->errors && w->sim->now >= f->next && w->sim->now < is->stop &&
           f->posted - f->done < is->depth &&
           (!is->messages || f->posted < is->messages);
}

static void flow_run(World *w, Flow *f, bool post)
{
    QrnicCqe c;

    while (sim_poll(f->from, &c)) {
        flow_completed(w, f, &c);
    }
    while (f->is->operation == SCENARIO_SEND && sim_poll(f->to, &c)) {
        f->errors += c.status != QRNIC_WC_SUCCESS;
    }
    while (post && flow_may_post(w, f)) {
        flow_post(w, f);
    }
}

/* Returns true if each place has the whole of its last message. */
static bool is_intact(const Flow *f)
{
    const ScenarioFlow *is = f->is;
    const uint8_t *from = f->from->node->memory + f->from_at;
    const uint8_t *to = f->to->node->memory + f->to_at;

    return !f->errors && f->done == f->posted &&
           !memcmp(from, to, (size_t)is->size * MIN(f->done, is->depth));
}

/* Output */

/*
 * Returns the node of a MAC address. MAC addresses end in the number of the
 * node, from 1 on.
 */
static unsigned node_of(const uint8_t *mac)
{
    return lduw_be_p(mac + 4) - 1;
}

static bool see(Sim *sim, const uint8_t *frame, size_t len, const char *what)
{
    const QrnicHeaders h = qrnic_headers_walk(frame, len);
    QrnicPacket p;

    if (sim_parse(&p, frame, len) == QRNIC_PARSE_OK) {
        printf("packet %" PRId64 " %s %u %u %u %u %u %u %u %u %u %zu\n",
               sim->now, what, node_of(frame + 6), node_of(frame),
               p.t.dest_qpn, p.t.opcode, p.t.psn, p.t.ack_req, p.t.mark,
               p.t.syndrome, h.traffic_class & 3, len);
    }
    return true;
}

static bool sent(Sim *sim, unsigned from, const uint8_t *frame, size_t len,
                 void *opaque)
{
    World *w = opaque;

    w->frames++;
    return !w->s->trace || see(sim, frame, len, "sent");
}

static bool arrived(Net *net, const SimFrame *f, void *opaque)
{
    return see(net->sim, f->data, f->len, "arrived");
}

static void sample(World *w)
{
    for (unsigned i = 0; i < w->s->flow->len; i++) {
        Flow *f = &w->flow[i];

        printf("rate %" PRId64 " %s %" PRIu64 "\n", w->sim->now, f->is->name,
               (f->done - f->told) * f->is->size);
        f->told = f->done;
    }
    for (unsigned i = 0; i < w->s->watch->len; i++) {
        const NetPort *p = port_find(w, &g_array_index(w->s->watch,
                                                       ScenarioLink, i));
        unsigned paused = 0;

        for (unsigned k = 0; k < NET_PRIORITIES; k++) {
            paused |= p->queue[k].paused << k;
        }
        printf("queue %" PRId64 " %u %u %" PRIu64 " %u\n", w->sim->now, p->from,
               p->to, p->queued, paused);
    }
}

static int compare(gconstpointer a, gconstpointer b)
{
    int64_t d = *(const int64_t *)a - *(const int64_t *)b;

    return (d > 0) - (d < 0);
}

static void flow_tell(Flow *f)
{
    int64_t p50 = 0, p99 = 0, most = 0;

    if (f->took->len) {
        g_array_sort(f->took, compare);
        p50 = g_array_index(f->took, int64_t, f->took->len / 2);
        p99 = g_array_index(f->took, int64_t, f->took->len * 99 / 100);
        most = g_array_index(f->took, int64_t, f->took->len - 1);
    }
    printf("flow %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %" PRId64 " %" PRId64
           " %" PRId64 " %" PRId64 " %" PRId64 "\n", f->is->name,
           f->done * f->is->size, f->done, f->errors, is_intact(f), p50, p99,
           most, f->gap, f->last);
}

static void port_tell(const NetPort *p)
{
    const NetCounters *c = &p->count;

    printf("port %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
           " %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRIu64 " %" PRIu64 "\n",
           p->from, p->to, c->frames, c->bytes, c->dropped, c->lost, c->marked,
           c->paused, c->resumed, net_paused_ns(p), c->deepest, p->queued);
}

static void node_tell(SimNode *n)
{
    static const enum qrnic_counter counters[] = {
        QRNIC_COUNTER_RETRANSMISSIONS, QRNIC_COUNTER_TIMEOUTS,
        QRNIC_COUNTER_PROBES,
        QRNIC_COUNTER_TX_NAK_SEQUENCE, QRNIC_COUNTER_TX_SACK,
        QRNIC_COUNTER_BUFFERED_PACKETS, QRNIC_COUNTER_OUT_OF_SEQUENCE,
        QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS,
        QRNIC_COUNTER_NP_CNP_SENT, QRNIC_COUNTER_RP_CNP_HANDLED,
    };

    printf("node %u", n->id);
    for (unsigned i = 0; i < ARRAY_SIZE(counters); i++) {
        printf(" %" PRIu64, sim_counter(n, counters[i]));
    }
    printf("\n");
}

static void tell(World *w)
{
    Net *net = w->net;

    for (unsigned i = 0; i < w->s->flow->len; i++) {
        flow_tell(&w->flow[i]);
    }
    for (unsigned i = 0; i < net->port->len; i++) {
        port_tell(net->port->pdata[i]);
    }
    for (unsigned i = 0; i < w->sim->nodes; i++) {
        node_tell(&w->sim->node[i]);
    }
    printf("total %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
           " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %016" PRIx64 "\n",
           w->frames, net->hops, net->delivered, net->gone.dropped,
           net->gone.lost, net->gone.marked, net->unrouted, net_under_way(net),
           w->sim->now, net->trace);
}

/* Execution */

static bool flows_run(World *w, bool post)
{
    bool under_way = false;

    for (unsigned i = 0; i < w->s->flow->len; i++) {
        Flow *f = &w->flow[i];

        flow_run(w, f, post);
        under_way |= !f->errors && f->done < f->posted;
    }
    return under_way;
}

/* Advances the time, even if no event is due until then. */
static void go_on(World *w, int64_t until)
{
    sim_run(w->sim, until);
    w->sim->now = MAX(w->sim->now, until);
}

static void run(World *w)
{
    const Scenario *s = w->s;
    int64_t next = 0;

    while (w->sim->now < s->until) {
        flows_run(w, true);
        if (w->sim->now >= next) {
            sample(w);
            fflush(stdout);
            next += s->sample;
        }
        go_on(w, MIN(w->sim->now + s->poll, s->until));
    }
    flows_run(w, false);
    sample(w);
    while (flows_run(w, false) && w->sim->now < s->until + s->drain) {
        go_on(w, w->sim->now + s->poll);
    }
}

static World *world_new(const Scenario *s)
{
    SimOptions o = options(s);
    World *w = g_new0(World, 1);

    w->s = s;
    w->sim = sim_new(s->seed, &o);
    network_build(w);
    parameters_set(w);
    w->flow = g_new0(Flow, s->flow->len);
    for (unsigned i = 0; i < s->flow->len; i++) {
        flow_build(w, &w->flow[i], &g_array_index(s->flow, ScenarioFlow, i));
    }
    for (unsigned i = 0; i < s->fault->len; i++) {
        fault_add(w, &g_array_index(s->fault, ScenarioFault, i));
    }
    w->sim->tap = sent;
    w->sim->tap_opaque = w;
    if (s->trace) {
        w->net->sink = arrived;
    }
    return w;
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < w->s->flow->len; i++) {
        Flow *f = &w->flow[i];

        sim_qp_free(f->from);
        sim_qp_free(f->to);
        g_free(f->began);
        g_array_free(f->took, true);
    }
    net_free(w->net);
    sim_free(w->sim);
    g_free(w->flow);
    g_free(w);
}

static char *read_all(void)
{
    GString *text = g_string_new(NULL);
    char part[4096];
    size_t got;

    while ((got = fread(part, 1, sizeof(part), stdin)) > 0) {
        g_string_append_len(text, part, got);
    }
    return g_string_free(text, false);
}

int main(int argc, char **argv)
{
    g_autofree char *text = read_all(), *error = NULL;
    Scenario *s = scenario_parse(text, &error);
    World *w;

    if (!s) {
        wrong("%s", error);
    }
    w = world_new(s);
    run(w);
    tell(w);
    world_free(w);
    scenario_free(s);
    return 0;
}
