/*
 * qrnic qtest: functions of all tests with crafted frames; see crafted.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted.h"

/*
 * Returns true for counters of transport and link, without those of sent bytes
 * and packets.
 */
static bool is_watched(unsigned which)
{
    return (which >= QRNIC_COUNTER_TX_INNER &&
            which <= QRNIC_COUNTER_RX_DROP_INNER) ||
           (which >= QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS &&
            which <= QRNIC_COUNTER_TX_DROP_LINK) ||
           g_str_has_prefix(qrnic_counter_name(which), "link_") ||
           which == QRNIC_COUNTER_GUEST_ERRORS;
}

static void counters_read(Crafted *c, uint64_t *table)
{
    command_ok(c->r.d, QRNIC_CMD_QUERY_COUNTERS, 0, NULL, 0, table,
               QRNIC_NUM_COUNTERS * sizeof(*table));
    for (unsigned i = 0; i < QRNIC_NUM_COUNTERS; i++) {
        le64_to_cpus(&table[i]);
    }
}

static char *changes(Crafted *c, const uint64_t *now)
{
    GString *s = g_string_new(NULL);

    for (unsigned i = 0; i < QRNIC_NUM_COUNTERS; i++) {
        uint64_t n = now[i] - c->counters[i];

        if (!n || !is_watched(i)) {
            continue;
        }
        g_string_append_printf(s, "%s%s", s->len ? " " : "",
                               qrnic_counter_name(i));
        if (n > 1) {
            g_string_append_printf(s, "=%" PRIu64, n);
        }
    }
    return g_string_free(s, false);
}

void crafted_counted(Crafted *c, const char *want)
{
    int64_t end = g_get_monotonic_time() + PATIENCE_US;
    uint64_t now[QRNIC_NUM_COUNTERS];

    for (;;) {
        g_autofree char *got = NULL;

        settle(c->r.d);
        counters_read(c, now);
        got = changes(c, now);
        if (!strcmp(got, want)) {
            break;
        }
        /* A counter above the expected value cannot become right again. */
        if (strlen(got) > strlen(want) || g_get_monotonic_time() > end) {
            g_assert_cmpstr(got, ==, want);
        }
    }
    memcpy(c->counters, now, sizeof(now));
}

void crafted_start(Crafted *c, const char *properties, const QrnicQpAttr *attr)
{
    uint64_t below, above;

    memset(c, 0, sizeof(*c));
    rig_start(&c->r, properties, attr);
    c->options = attr ? attr->options : 0;
    below = memory_alloc(c->r.d, CRAFTED_GUARD, 4096);
    mr_create(c->r.d, &c->mr, c->r.pd, CRAFTED_START, CRAFTED_BYTES,
              ALL_RIGHTS);
    above = memory_alloc(c->r.d, CRAFTED_GUARD, 4096);
    g_assert_cmphex(c->mr.memory, ==, below + CRAFTED_GUARD);
    g_assert_cmphex(c->mr.memory, ==, above - CRAFTED_BYTES);
    memset(c->image, 0xee, sizeof(c->image));
    qtest_memwrite(c->r.d->qts, below, c->image, sizeof(c->image));
    counters_read(c, c->counters);
}

void crafted_stop(Crafted *c)
{
    rig_stop(&c->r);
}

void crafted_wrote(Crafted *c, uint64_t offset, uint8_t byte, uint32_t length)
{
    g_assert_cmpuint(offset + length, <=, CRAFTED_BYTES);
    memset(c->image + CRAFTED_GUARD + offset, byte, length);
}

void crafted_memory(Crafted *c)
{
    uint8_t got[sizeof(c->image)];

    qtest_memread(c->r.d->qts, c->mr.memory - CRAFTED_GUARD, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), c->image, sizeof(c->image));
}

void crafted_quiet(Crafted *c)
{
    QrnicCqe cqe;
    QrnicEqe eqe;

    wire_silent(c->r.d);
    crafted_memory(c);
    g_assert_false(cq_poll(c->r.d, &c->r.send_cq, &cqe));
    g_assert_false(cq_poll(c->r.d, &c->r.recv_cq, &cqe));
    g_assert_false(eq_poll(c->r.d, &c->r.async, &eqe));
}

void crafted_state(Crafted *c, uint8_t state)
{
    QrnicQpAttr attr;

    qp_query(c->r.d, &c->r.qp, &attr);
    g_assert_cmpstr(qrnic_qp_state_name(attr.state), ==,
                    qrnic_qp_state_name(state));
}

static uint8_t option_marks(const Crafted *c)
{
    return (c->options & QRNIC_QPO_SELECTIVE_REPEAT ? MARK_SELECTIVE : 0) |
           (c->options & QRNIC_QPO_ADAPTIVE_ROUTING ? MARK_PLACES : 0);
}

PeerPacket crafted_packet(const Crafted *c, uint8_t opcode, uint32_t psn)
{
    PeerPacket p = peer_packet(&c->r.qp, opcode, psn);

    p.mark = option_marks(c);
    return p;
}

PeerPacket crafted_answer(Crafted *c)
{
    static uint8_t frame[PEER_FRAME_MAX];
    size_t len = wire_receive(c->r.d, frame);
    PeerPacket p;

    peer_decode(frame, len, &p);
    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmphex(p.mark & (MARK_SELECTIVE | MARK_PLACES), ==,
                    option_marks(c));
    return p;
}

/* Length of a write of the correct peer; the memory has room for many */
#define HONEST_LENGTH 64

static void write_send(Crafted *c, uint32_t psn, unsigned n)
{
    PeerPacket p = crafted_packet(c, RC_WRITE_ONLY, psn);
    uint8_t data[HONEST_LENGTH];

    memset(data, 0x10 + n, sizeof(data));
    if (c->options & QRNIC_QPO_ADAPTIVE_ROUTING) {
        p.mark |= MARK_ALONE;
    }
    p.va = c->mr.start + CRAFTED_HONEST + n * HONEST_LENGTH;
    p.rkey = c->mr.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    p.ack_request = true;
    peer_send(c->r.d, &p);
}

void crafted_honest_write(Crafted *c, uint32_t psn, unsigned n)
{
    crafted_wrote(c, CRAFTED_HONEST + n * HONEST_LENGTH, 0x10 + n,
                  HONEST_LENGTH);
    write_send(c, psn, n);
}

void crafted_dead(Crafted *c, unsigned event)
{
    QrnicEqe eqe;

    eq_wait(c->r.d, &c->r.async, &eqe);
    g_assert_cmpstr(qrnic_event_name(eqe.type), ==, qrnic_event_name(event));
    g_assert_cmphex(eqe.object, ==, c->r.qp.number);
    crafted_state(c, QRNIC_QPS_ERR);
    /* The queue pair in ERR drops packets, and memory stays as it is. */
    counters_read(c, c->counters);
    write_send(c, 0, 0);
    crafted_counted(c, "rx_drop_qp_state");
    crafted_quiet(c);
}

void crafted_honest(Crafted *c, uint32_t psn, unsigned n)
{
    PeerPacket p;

    crafted_honest_write(c, psn, n);
    p = crafted_answer(c);
    g_assert_cmphex(p.opcode, ==, RC_ACK);
    g_assert_cmphex(p.syndrome >> 5, ==, 0);
    g_assert_cmphex(p.psn, ==, psn & 0xffffff);
    crafted_memory(c);
}
