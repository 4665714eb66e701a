/*
 * The world around the engines: memories, wire and time; see sim-world.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <glib/gstdio.h>
#include "qemu/bswap.h"
#include <sys/mman.h>
#include "engine/memory/memory.h"
#include "sim.h"
#include "sim-world.h"

#define RUNS_MAX 25000000ull    /* Of each node */

/* Memory. Untouched pages use no host memory. */

uint8_t *sim_memory_new(uint64_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    g_assert_true(p != MAP_FAILED);
    return p;
}

void sim_memory_clear(uint8_t *p, uint64_t size)
{
    g_assert_cmpint(madvise(p, size, MADV_DONTNEED), ==, 0);
}

void sim_memory_free(uint8_t *p, uint64_t size)
{
    g_assert_cmpint(munmap(p, size), ==, 0);
}

/* The environment of the engine */

static bool in_memory(SimNode *n, uint64_t addr, size_t len)
{
    n->accesses += 1 + len / 4096;
    if (addr > n->memory_size || len > n->memory_size - addr) {
        return false;
    }
    return addr >= n->broken_to || addr + len <= n->broken_from;
}

static bool env_dma_read(void *opaque, uint64_t addr, void *buf, size_t len)
{
    SimNode *n = opaque;

    if (!in_memory(n, addr, len)) {
        return false;
    }
    memcpy(buf, n->memory + addr, len);
    if (n->after_read) {
        n->after_read(n, addr, len);
    }
    return true;
}

static bool env_dma_write(void *opaque, uint64_t addr, const void *buf,
                          size_t len)
{
    SimNode *n = opaque;

    if (!in_memory(n, addr, len)) {
        return false;
    }
    memcpy(n->memory + addr, buf, len);
    if (n->after_write) {
        n->after_write(n, addr, len);
    }
    return true;
}

static bool apply(uint8_t *at, QrnicAtomic *op)
{
    op->original = ldq_le_p(at);
    if (!op->compare_swap) {
        stq_le_p(at, op->original + op->swap_add);
    } else if (op->original == op->compare) {
        stq_le_p(at, op->swap_add);
    }
    return true;
}

static bool env_dma_atomic(void *opaque, uint64_t addr, QrnicAtomic *op)
{
    SimNode *n = opaque;

    g_assert_cmpuint(addr % 8, ==, 0);
    return in_memory(n, addr, 8) && apply(n->memory + addr, op);
}

/*
 * Added to translated addresses, so that a test detects an access of the wrong
 * kind: such an address lies outside of the memory.
 */
#define TRANSLATED (1ull << 62)

static QrnicTranslate env_translate(void *opaque, uint32_t pasid,
                                    uint64_t addr, bool write,
                                    QrnicTranslated *result)
{
    SimNode *n = opaque;
    QrnicTranslate done;

    n->accesses++;
    if (!n->translate) {
        return QRNIC_TRANSLATE_FAILED;
    }
    done = n->translate(n, pasid, addr, write, result);
    result->address += TRANSLATED;
    return done;
}

static bool env_page_request(void *opaque, uint32_t pasid, uint64_t addr,
                             bool write, uint16_t group, bool last)
{
    SimNode *n = opaque;

    return n->page_request &&
           n->page_request(n, pasid, addr, write, group, last);
}

/* Returns the address in memory of a translated address. */
static uint64_t memory_at(SimNode *n, uint64_t addr, size_t len, bool write)
{
    addr -= TRANSLATED;
    return n->translated ? n->translated(n, addr, len, write) : addr;
}

static bool env_translated_read(void *opaque, uint64_t addr, void *buf,
                                size_t len)
{
    return env_dma_read(opaque, memory_at(opaque, addr, len, false), buf, len);
}

static bool env_translated_write(void *opaque, uint64_t addr, const void *buf,
                                 size_t len)
{
    return env_dma_write(opaque, memory_at(opaque, addr, len, true), buf, len);
}

static bool env_translated_atomic(void *opaque, uint64_t addr, QrnicAtomic *op)
{
    return env_dma_atomic(opaque, memory_at(opaque, addr, 8, true), op);
}

static bool env_dm_atomic(void *opaque, uint64_t offset, QrnicAtomic *op)
{
    SimNode *n = opaque;

    g_assert_cmpuint(offset % 8, ==, 0);
    g_assert_cmpuint(offset + 8, <=, n->device_memory_size);
    return apply(n->device_memory + offset, op);
}

static void env_dm_read(void *opaque, uint64_t offset, void *buf, size_t len)
{
    SimNode *n = opaque;

    n->accesses += 1 + len / 4096;
    g_assert_cmpuint(offset + len, <=, n->device_memory_size);
    memcpy(buf, n->device_memory + offset, len);
}

static void env_dm_write(void *opaque, uint64_t offset, const void *buf,
                         size_t len)
{
    SimNode *n = opaque;

    n->accesses += 1 + len / 4096;
    g_assert_cmpuint(offset + len, <=, n->device_memory_size);
    memcpy(n->device_memory + offset, buf, len);
}

static void env_notify(void *opaque, unsigned vector)
{
    ((SimNode *)opaque)->notified++;
}

static int64_t env_clock_ns(void *opaque)
{
    return ((SimNode *)opaque)->sim->now;
}

static int64_t node_time(const SimNode *n)
{
    return MIN(MIN(n->deadline, n->link_deadline),
               n->blocked ? n->wire_ready : QRNIC_DEADLINE_NEVER);
}

/*
 * Queues a node for its next event. An earlier entry stays in the queue, and is
 * checked when it is due.
 */
static void node_queue(SimNode *n)
{
    int64_t time = node_time(n);

    if (time < n->queued) {
        n->queued = time;
        heap_push(&n->sim->due, (HeapItem) {
            .time = time, .order = n->id, .data = n,
        });
    }
}

static void env_timer_arm(void *opaque, int64_t deadline_ns)
{
    SimNode *n = opaque;

    n->deadline = deadline_ns;
    node_queue(n);
}

static void node_list(SimNode *n)
{
    if (!n->listed) {
        n->listed = true;
        g_ptr_array_add(n->sim->kicked, n);
    }
}

static void env_kick(void *opaque)
{
    SimNode *n = opaque;

    n->kicked = true;
    n->kicks++;
    node_list(n);
}

static void env_fatal(void *opaque, unsigned cause, uint32_t info)
{
    if (!((SimNode *)opaque)->may_fail) {
        g_error("fatal state: cause %u info %u", cause, info);
    }
}

static QrnicResult env_vf_set(void *opaque, uint32_t number,
                              const QrnicVfCtx *in)
{
    SimNode *n = opaque;

    if (number >= SIM_VFS) {
        return (QrnicResult) { QRNIC_ST_BAD_OBJECT };
    }
    n->vf[number] = *in;
    return (QrnicResult) { QRNIC_ST_OK };
}

static QrnicResult env_vf_query(void *opaque, uint32_t number, QrnicVfAttr *out)
{
    const QrnicVfCtx *vf = &((SimNode *)opaque)->vf[number % SIM_VFS];

    if (number >= SIM_VFS) {
        return (QrnicResult) { QRNIC_ST_BAD_OBJECT };
    }
    *out = (QrnicVfAttr) {
        .vlan = vf->vlan, .priority = vf->priority, .flags = vf->flags,
        .link = vf->link, .max_rate = vf->max_rate,
    };
    memcpy(out->mac, vf->mac, sizeof(out->mac));
    return (QrnicResult) { QRNIC_ST_OK };
}

static bool chance(Sim *s, unsigned thousandths)
{
    return thousandths && g_rand_int_range(s->rand, 0, 1000) < thousandths;
}

/*
 * Sets CE as a switch does, and corrects the IPv4 checksum, which covers the
 * field.
 */
static void mark(uint8_t *frame, size_t len)
{
    const QrnicHeaders h = qrnic_headers_walk(frame, len);
    uint8_t *ip = frame + h.ip;
    uint32_t sum = 0;

    if (!qrnic_headers_have_ip(&h) || !(h.traffic_class & QRNIC_ECN_MASK)) {
        return;
    }
    if (h.network == QRNIC_NET_IPV6) {
        ip[1] |= QRNIC_ECN_CE << 4;
        return;
    }
    ip[1] |= QRNIC_ECN_CE;
    stw_be_p(ip + QRNIC_IPV4_CHECKSUM, 0);
    for (unsigned i = 0; i < QRNIC_IPV4_LEN; i += 2) {
        sum += lduw_be_p(ip + i);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    stw_be_p(ip + QRNIC_IPV4_CHECKSUM, ~(sum + (sum >> 16)));
}

static SimFrame *frame_new(Sim *s, unsigned to, const uint8_t *frame,
                           size_t len, int64_t delay)
{
    SimFrame *f = g_malloc(sizeof(*f) + len);

    *f = (SimFrame) {
        .time = s->now + delay, .order = s->frames++, .to = to, .len = len,
    };
    memcpy(f->data, frame, len);
    heap_push(&s->wire, (HeapItem) {
        .time = f->time, .order = f->order, .data = f,
    });
    return f;
}

static void wire_put(Sim *s, unsigned to, const uint8_t *frame, size_t len,
                     int64_t delay)
{
    SimFrame *f = frame_new(s, to, frame, len, delay);

    if (!s->node[to].link && s->marks && s->marks(s, to ^ 1, frame, len)) {
        mark(f->data, len);
    }
    if (chance(s, s->corrupt)) {
        f->data[g_rand_int_range(s->rand, 0, len)] ^=
            1 << g_rand_int_range(s->rand, 0, 8);
    }
}

/* The hash of the packets */

void sim_packets_begin(Sim *s)
{
    if (g_getenv("QRNIC_SIM_PACKETS")) {
        s->packets = g_checksum_new(G_CHECKSUM_SHA256);
    }
}

void sim_packets_end(Sim *s)
{
    static unsigned worlds;
    g_autofree char *line = NULL;
    int fd;

    if (!s->packets) {
        return;
    }
    G_GNUC_BEGIN_IGNORE_DEPRECATIONS
    line = g_strdup_printf("%s %u %" PRIu64 " %s %s\n",
                           program_invocation_short_name, worlds++,
                           s->packets_hashed,
                           g_checksum_get_string(s->packets),
                           g_test_get_path());
    G_GNUC_END_IGNORE_DEPRECATIONS
    fd = g_open(g_getenv("QRNIC_SIM_PACKETS"), O_WRONLY | O_APPEND | O_CREAT,
                0666);
    g_assert_cmpint(fd, >=, 0);
    /*
     * The line is appended by one write, because other programs append at the
     * same time.
     */
    g_assert_cmpint(write(fd, line, strlen(line)), ==, strlen(line));
    close(fd);
    g_checksum_free(s->packets);
}

static void packets_add(Sim *s, unsigned from, const uint8_t *frame, size_t len)
{
    const uint64_t head[] = { s->now, from, len };

    s->packets_hashed++;
    g_checksum_update(s->packets, (const uint8_t *)head, sizeof(head));
    g_checksum_update(s->packets, frame, len);
}

void sim_block(SimNode *n, int64_t until)
{
    n->blocked = true;
    n->wire_ready = until;
    node_queue(n);
}

static bool wire_send(void *opaque, const uint8_t *frame, size_t len)
{
    SimNode *n = opaque;
    Sim *s = n->sim;
    unsigned to = n->id ^ 1;

    g_assert_false(n->blocked);
    if (s->packets) {
        packets_add(s, n->id, frame, len);
    }
    if (s->send) {
        return s->send(s, n, frame, len);
    }
    g_assert_cmpuint(to, <, s->nodes);
    if ((!s->tap || s->tap(s, n->id, frame, len, s->tap_opaque)) &&
        !chance(s, s->loss)) {
        int64_t extra = chance(s, s->reorder) ?
                        g_rand_int_range(s->rand, 1, 20 * SIM_US) : 0;

        wire_put(s, to, frame, len, s->latency + extra);
        if (chance(s, s->repeat)) {
            wire_put(s, to, frame, len, s->latency +
                     g_rand_int_range(s->rand, 0, 20 * SIM_US));
        }
    }
    if (s->wire_room && ++n->burst == s->wire_room) {
        sim_block(n, s->now + s->wire_pause);
        return false;
    }
    return true;
}

static bool env_send(void *opaque, const uint8_t *frame, size_t len)
{
    SimNode *n = opaque;

    if (!n->link) {
        return wire_send(n, frame, len);
    }
    g_queue_push_tail(&n->link_under_way, g_bytes_new(frame, len));
    return qrnic_link_send(n->link, frame, len);
}

/* The environment of the link */

/* Asserts that each frame is delivered once, in order and unchanged. */
static void link_deliver(void *opaque, const uint8_t *frame, size_t len)
{
    SimNode *n = opaque, *from = &n->sim->node[n->id ^ 1];
    GBytes *sent = g_queue_pop_head(&from->link_under_way);
    g_autofree uint8_t *marked = NULL;

    if (!n->sim->forged) {
        g_assert_nonnull(sent);
        g_assert_cmpmem(frame, len, g_bytes_get_data(sent, NULL),
                        g_bytes_get_size(sent));
    }
    if (sent) {
        g_bytes_unref(sent);
    }
    /* The switch is behind the link, so it marks the frame inside. */
    if (n->sim->marks && n->sim->marks(n->sim, from->id, frame, len)) {
        frame = marked = g_memdup2(frame, len);
        mark(marked, len);
    }
    if (n->sim->behind) {
        frame_new(n->sim, n->id, frame, len, n->sim->behind)->beyond = true;
    } else {
        qrnic_engine_receive(n->engine, frame, len);
    }
}

static bool link_takes(void *opaque)
{
    return qrnic_engine_can_receive(((SimNode *)opaque)->engine);
}

static void link_ready(void *opaque)
{
    qrnic_engine_wire_ready(((SimNode *)opaque)->engine);
}

static void link_changed(void *opaque, bool agreed)
{
}

static void link_kick(void *opaque)
{
    SimNode *n = opaque;

    n->link_kicked = true;
    node_list(n);
}

static void link_timer_arm(void *opaque, int64_t deadline_ns)
{
    SimNode *n = opaque;

    n->link_deadline = deadline_ns;
    node_queue(n);
}

static uint32_t link_random(void *opaque)
{
    return g_rand_int(((SimNode *)opaque)->sim->rand);
}

static void link_count(void *opaque, enum qrnic_link_count which, uint64_t n)
{
    ((SimNode *)opaque)->link_count[which] += n;
}

void sim_link_new(SimNode *n, const QrnicConfig *c)
{
    QrnicLinkConfig config = qrnic_link_config_default();
    const QrnicLinkEnv env = {
        .opaque = n, .send = wire_send, .deliver = link_deliver,
        .takes = link_takes, .ready = link_ready, .changed = link_changed,
        .kick = link_kick, .clock_ns = env_clock_ns,
        .timer_arm = link_timer_arm, .random = link_random,
        .count = link_count,
    };

    config.name = c->name;
    memcpy(config.mac, c->mac, sizeof(config.mac));
    n->link = qrnic_link_new(&config, &env);
    qrnic_link_set_up(n->link, true);
}

static bool node_takes(SimNode *n, const SimFrame *f)
{
    return n->link && !f->beyond ? qrnic_link_takes(n->link) :
                                   qrnic_engine_can_receive(n->engine);
}

QrnicParse sim_parse(QrnicPacket *p, const uint8_t *frame, size_t len)
{
    const QrnicHeaders h = qrnic_headers_walk(frame, len);
    QrnicParse result = qrnic_packet_parse(p, &h, QRNIC_ICRC_STANDARD);

    p->h = NULL;
    return result;
}

uint64_t sim_work(const SimNode *n)
{
    return n->accesses + n->engine->work;
}

/* Records the work of one call. before: sim_work() at its start. */
static void turn_ended(SimNode *n, uint64_t before)
{
    n->longest = MAX(n->longest, sim_work(n) - before);
    g_assert_cmpuint(n->longest, <=, SIM_TURN_WORK);
}

void sim_inject(Sim *s, unsigned to, const uint8_t *frame, size_t len)
{
    SimNode *n = &s->node[to];
    uint64_t before = sim_work(n);

    if (n->link) {
        qrnic_link_receive(n->link, frame, len);
    } else {
        qrnic_engine_receive(n->engine, frame, len);
    }
    turn_ended(n, before);
}

QrnicEnv sim_env(SimNode *n)
{
    return (QrnicEnv) {
        .opaque = n, .dma_read = env_dma_read, .dma_write = env_dma_write,
        .dma_atomic = env_dma_atomic, .dm_atomic = env_dm_atomic,
        .translate = env_translate, .page_request = env_page_request,
        .translated_read = env_translated_read,
        .translated_write = env_translated_write,
        .translated_atomic = env_translated_atomic,
        .dm_read = env_dm_read, .dm_write = env_dm_write,
        .send = env_send, .notify = env_notify, .clock_ns = env_clock_ns,
        .timer_arm = env_timer_arm, .kick = env_kick,
        .vf_set = env_vf_set, .vf_query = env_vf_query,
        .fatal = env_fatal,
    };
}

/* Time */

void sim_at(Sim *s, int64_t time, void (*run)(void *data), void *data)
{
    heap_push(&s->later, (HeapItem) {
        .time = time, .order = s->events++, .run = run, .data = data,
    });
}

/* Runs the nodes in the order of their kicks, later kicks included. */
static uint64_t run_kicked(Sim *s)
{
    uint64_t runs = 0, before;

    for (unsigned i = 0; i < s->kicked->len; i++) {
        SimNode *n = s->kicked->pdata[i];

        n->listed = false;
        g_assert_cmpuint(runs++, <, RUNS_MAX);
        if (n->kicked) {
            n->kicked = false;
            n->runs++;
            before = sim_work(n);
            qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
            turn_ended(n, before);
        }
        if (n->link_kicked) {
            n->link_kicked = false;
            qrnic_link_run(n->link);
        }
        /* The link delivers frames that the engine did not accept before. */
        if (n->link) {
            qrnic_link_takes(n->link);
        }
    }
    g_ptr_array_set_size(s->kicked, 0);
    return runs;
}

/* Returns the time of the next node. Outdated entries are moved or removed. */
static int64_t due_time(Sim *s)
{
    while (s->due.len) {
        HeapItem first = s->due.item[0];
        SimNode *n = first.data;

        if (first.time == n->queued && first.time == node_time(n)) {
            return first.time;
        }
        heap_pop(&s->due);
        if (first.time == n->queued) {
            n->queued = QRNIC_DEADLINE_NEVER;
            node_queue(n);
        }
    }
    return QRNIC_DEADLINE_NEVER;
}

static int64_t next_event(Sim *s)
{
    /* A suspended frame depends on another event. */
    for (unsigned i = 0; i < s->waiting->len; i++) {
        SimNode *n = s->waiting->pdata[i];

        if (!qrnic_engine_suspended(n->engine)) {
            return s->now;
        }
    }
    return MIN(due_time(s), MIN(heap_time(&s->later), heap_time(&s->wire)));
}

/* Runs the nodes that are due now, without those that become due meanwhile. */
static void nodes_of_now(Sim *s)
{
    g_autoptr(GPtrArray) due = g_ptr_array_new();

    while (heap_time(&s->due) <= s->now) {
        HeapItem item = heap_pop(&s->due);
        SimNode *n = item.data;

        if (item.time == n->queued) {
            n->queued = QRNIC_DEADLINE_NEVER;
            g_ptr_array_add(due, n);
        }
    }
    for (unsigned i = 0; i < due->len; i++) {
        SimNode *n = due->pdata[i];

        if (n->blocked && n->wire_ready <= s->now) {
            n->blocked = false;
            n->burst = 0;
            if (n->link) {
                qrnic_link_wire_ready(n->link);
            } else {
                qrnic_engine_wire_ready(n->engine);
            }
        }
        if (n->link_deadline <= s->now) {
            n->link_deadline = QRNIC_LINK_NEVER;
            qrnic_link_timer(n->link);
        }
        if (n->deadline <= s->now) {
            uint64_t before = sim_work(n);

            n->deadline = QRNIC_DEADLINE_NEVER;
            qrnic_engine_timer(n->engine);
            turn_ended(n, before);
        }
        node_queue(n);
    }
}

/* Delivers the frame and frees it. */
static void node_give(SimNode *n, SimFrame *f)
{
    if (f->beyond) {
        qrnic_engine_receive(n->engine, f->data, f->len);
    } else {
        sim_inject(n->sim, n->id, f->data, f->len);
    }
    g_free(f);
}

void sim_deliver(Sim *s, SimFrame *f)
{
    SimNode *n = &s->node[f->to];

    if (n->inbox.length || !node_takes(n, f)) {
        if (!n->inbox.length) {
            g_ptr_array_add(s->waiting, n);
        }
        g_queue_push_tail(&n->inbox, f);
        return;
    }
    node_give(n, f);
}

static void inboxes_of_now(Sim *s)
{
    for (unsigned i = 0; i < s->waiting->len; ) {
        SimNode *n = s->waiting->pdata[i];

        while (n->inbox.length &&
               node_takes(n, g_queue_peek_head(&n->inbox))) {
            node_give(n, g_queue_pop_head(&n->inbox));
        }
        if (n->inbox.length) {
            i++;
        } else {
            g_ptr_array_remove_index(s->waiting, i);
        }
    }
}

SimFrame *sim_wire_take(Sim *s)
{
    SimFrame *f = NULL;

    if (s->waiting->len) {
        SimNode *n = s->waiting->pdata[0];

        f = g_queue_pop_head(&n->inbox);
        if (!n->inbox.length) {
            g_ptr_array_remove_index(s->waiting, 0);
        }
    } else if (s->wire.len) {
        f = heap_pop(&s->wire).data;
    }
    return f;
}

bool sim_run(Sim *s, int64_t until)
{
    for (uint64_t runs = 0; runs < RUNS_MAX * s->nodes; runs++) {
        int64_t next;

        runs += run_kicked(s);
        next = next_event(s);
        if (next == QRNIC_DEADLINE_NEVER) {
            return true;
        }
        if (next > until) {
            s->now = until;
            return false;
        }
        s->now = MAX(s->now, next);
        nodes_of_now(s);
        while (heap_time(&s->later) <= s->now) {
            HeapItem item = heap_pop(&s->later);

            item.run(item.data);
        }
        inboxes_of_now(s);
        while (heap_time(&s->wire) <= s->now) {
            sim_deliver(s, heap_pop(&s->wire).data);
        }
    }
    g_assert_not_reached();
}
