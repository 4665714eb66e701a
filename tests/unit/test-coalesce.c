/*
 * Continued TCP segments, with random input. The frames that are marked as
 * continued can be rebuilt, byte by byte, from the first frame and their data.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/transport.h"
#include "sim.h"

#define FRAME_MAX 512
#define ROUNDS 200000
#define PSH 0x08
#define ACK 0x10

typedef struct Frame {
    uint8_t bytes[FRAME_MAX];
    size_t len;
    unsigned ip, tcp, header;   /* Offsets: IP, TCP, data */
    bool ipv6;
} Frame;

/* State of a stream's sender */
typedef struct Stream {
    GRand *rand;
    Frame like;                 /* Headers of the frames */
    uint32_t sequence, mss;
    uint16_t identification;
} Stream;

static uint32_t sum_of(uint32_t sum, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        sum += i & 1 ? p[i] : p[i] << 8;
    }
    return sum;
}

static uint16_t sum_end(uint32_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return ~sum;
}

/* Writes lengths and checksums of a frame. */
static void finish(Frame *f)
{
    uint8_t *ip = f->bytes + f->ip, *tcp = f->bytes + f->tcp;
    uint32_t segment = f->len - f->tcp, sum;

    stw_be_p(tcp + 16, 0);
    if (f->ipv6) {
        stw_be_p(ip + 4, segment);
        sum = sum_of(segment + 6, ip + 8, 32);
    } else {
        stw_be_p(ip + 2, 20 + segment);
        stw_be_p(ip + 10, 0);
        stw_be_p(ip + 10, sum_end(sum_of(0, ip, 20)));
        sum = sum_of(segment + 6, ip + 12, 8);
    }
    stw_be_p(tcp + 16, sum_end(sum_of(sum, tcp, segment)));
}

static void stream_begin(Stream *s)
{
    Frame *f = &s->like;
    bool tag = g_rand_boolean(s->rand);
    unsigned options = 4 * g_rand_int_range(s->rand, 0, 11);

    for (unsigned i = 0; i < FRAME_MAX; i++) {
        f->bytes[i] = g_rand_int(s->rand);
    }
    f->ipv6 = g_rand_boolean(s->rand);
    f->ip = tag ? 18 : 14;
    f->tcp = f->ip + (f->ipv6 ? 40 : 20);
    f->header = f->tcp + 20 + options;
    stw_be_p(f->bytes + 12, 0x8100);
    stw_be_p(f->bytes + f->ip - 2, f->ipv6 ? 0x86dd : 0x0800);
    f->bytes[f->ip] = f->ipv6 ? 0x60 : 0x45;
    if (f->ipv6) {
        f->bytes[f->ip + 6] = 6;
    } else {
        stw_be_p(f->bytes + f->ip + 6, 0x4000);
        f->bytes[f->ip + 9] = 6;
    }
    f->bytes[f->tcp + 12] = (20 + options) / 4 << 4;
    s->sequence = g_rand_int(s->rand);
    s->identification = g_rand_int(s->rand);
    s->mss = g_rand_int_range(s->rand, 1, FRAME_MAX - f->header);
}

static bool seldom(Stream *s, unsigned of)
{
    return g_rand_int_range(s->rand, 0, of) == 0;
}

static Frame stream_next(Stream *s)
{
    Frame f = s->like;
    uint32_t data = s->mss;

    if (seldom(s, 20)) {
        data = g_rand_int_range(s->rand, 0, FRAME_MAX - f.header);
    }
    f.len = f.header + data;
    for (size_t i = f.header; i < f.len; i++) {
        f.bytes[i] = g_rand_int(s->rand);
    }
    if (seldom(s, 50)) {
        s->sequence += s->mss;
    }
    if (seldom(s, 50)) {
        s->identification++;
    }
    stl_be_p(f.bytes + f.tcp + 4, s->sequence);
    if (!f.ipv6) {
        stw_be_p(f.bytes + f.ip + 4, s->identification);
    }
    f.bytes[f.tcp + 13] = ACK | (seldom(s, 20) ? PSH : 0);
    if (seldom(s, 10)) {
        f.bytes[g_rand_int_range(s->rand, 0, f.header)] ^=
            1 << g_rand_int_range(s->rand, 0, 8);
    }
    finish(&f);
    if (seldom(s, 50)) {
        f.bytes[g_rand_int_range(s->rand, 0, f.len)] ^= 1;
    }
    if (seldom(s, 50)) {
        f.len += g_rand_int_range(s->rand, 0, FRAME_MAX - f.len + 1);
    }
    s->sequence += data;
    s->identification++;
    return f;
}

/*
 * Returns frame n of the joined frame, as a sender would segment it. offset: of
 * its data.
 */
static Frame cut(const Frame *first, uint32_t n, uint32_t offset,
                 const Frame *data)
{
    Frame f = *first;
    uint8_t *tcp = f.bytes + f.tcp;

    f.len = data->len;
    memcpy(f.bytes + f.header, data->bytes + f.header, f.len - f.header);
    stl_be_p(tcp + 4, ldl_be_p(tcp + 4) + offset);
    tcp[13] |= data->bytes[f.tcp + 13] & PSH;
    if (!f.ipv6) {
        uint8_t *id = f.bytes + f.ip + 4;

        stw_be_p(id, lduw_be_p(id) + n);
    }
    finish(&f);
    return f;
}

static unsigned flags_and_join(QrnicEngine *e, QrnicQp *qp, const Frame *f)
{
    QrnicHeaders h = qrnic_headers_walk(f->bytes, f->len);
    uint8_t flags = 0;

    qrnic_checksums_bad(&h, &flags);
    return qrnic_coalesce(e, qp, &h, flags);
}

static void test_reversible(void)
{
    Sim *sim = sim_new(1, &(SimOptions) { 0 });
    QrnicEngine *e = sim->node[0].engine;
    Stream s = { .rand = g_rand_new_with_seed(1) };
    unsigned n = 0, joined = 0, longest = 0;
    uint32_t offset = 0;
    QrnicQp qp = { 0 };
    Frame first = { 0 };

    stream_begin(&s);
    for (unsigned i = 0; i < ROUNDS; i++) {
        Frame f = stream_next(&s);
        unsigned header = flags_and_join(e, &qp, &f);

        if (header) {
            Frame again;

            g_assert_cmpuint(header, ==, first.header);
            /* All frames before it are full, and none has PSH. */
            g_assert_cmpuint(offset, ==, ++n * (first.len - header));
            g_assert_cmpuint(f.len, <=, first.len);
            g_assert_cmpuint(f.len, >, header);
            again = cut(&first, n, offset, &f);
            g_assert_cmpmem(f.bytes, f.len, again.bytes, again.len);
            joined++;
            longest = MAX(longest, n);
        } else {
            first = f;
            n = offset = 0;
        }
        offset += f.len - f.header;
        if (f.bytes[f.tcp + 13] & PSH) {
            offset = UINT32_MAX;        /* No frame may follow */
        }
        if (seldom(&s, 30)) {
            stream_begin(&s);
        }
    }
    g_assert_cmpuint(joined, >, ROUNDS / 4);
    g_assert_cmpuint(longest, >, 10);
    g_test_message("%u of %u continue another, at most %u in a row", joined,
                   ROUNDS, longest);
    qrnic_coalesce_drop(e, &qp);
    g_assert_null(qp.continuation);
    g_rand_free(s.rand);
    sim_free(sim);
}

/*
 * Tests that a stream without errors is joined as a whole, also where its
 * numbers wrap.
 */
static void test_endless(void)
{
    Sim *sim = sim_new(1, &(SimOptions) { 0 });
    QrnicEngine *e = sim->node[0].engine;
    Stream s = { .rand = g_rand_new_with_seed(2) };
    QrnicQp qp = { 0 };
    Frame f;

    do {
        stream_begin(&s);
    } while (s.like.ipv6);
    f = s.like;
    f.len = FRAME_MAX;
    f.bytes[f.tcp + 13] = ACK;
    for (unsigned i = 0; i < ROUNDS; i++) {
        stl_be_p(f.bytes + f.tcp + 4, i * (FRAME_MAX - f.header) - 1000000);
        stw_be_p(f.bytes + f.ip + 4, i);
        finish(&f);
        g_assert_cmpuint(flags_and_join(e, &qp, &f), ==, i ? f.header : 0);
    }
    qrnic_coalesce_drop(e, &qp);
    g_rand_free(s.rand);
    sim_free(sim);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/coalesce/reversible", test_reversible);
    g_test_add_func("/coalesce/endless", test_endless);
    return g_test_run();
}
