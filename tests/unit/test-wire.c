/*
 * Wire formats: packets compared with vectors of other origin, round trips,
 * invalid frames, and the CRC implementations compared with each other
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "vectors.h"

static QrnicHeaders headers;     /* Headers of the last parsed packet */

static QrnicParse parse_as(QrnicPacket *p, const uint8_t *frame, size_t len,
                           QrnicIcrcCover cover)
{
    headers = qrnic_headers_walk(frame, len);
    return qrnic_packet_parse(p, &headers, cover);
}

static QrnicParse parse(QrnicPacket *p, const uint8_t *frame, size_t len)
{
    return parse_as(p, frame, len, QRNIC_ICRC_STANDARD);
}

static const QrnicNetwork networks[] = {
    QRNIC_NET_IPV4, QRNIC_NET_IPV6, QRNIC_NET_GRH
};

static QrnicPathSpec spec_make(QrnicNetwork network, bool vlan)
{
    static const uint8_t from6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 };
    static const uint8_t from4[16] = {
        [10] = 0xff, [11] = 0xff, [12] = 192, [13] = 0, [14] = 2, [15] = 1
    };
    QrnicPathSpec s = {
        .dmac = { 2, 0, 0, 0, 0, 2 },
        .smac = { 2, 0, 0, 0, 0, 1 },
        .vlan = vlan ? 100 : -1,
        .priority = 3,
        .traffic_class = 0x68,
        .hop_limit = 64,
        .flow_label = 0x12345,
        .udp_sport = 0xc123,
    };

    s.v1 = network == QRNIC_NET_GRH;
    memcpy(s.sgid, network == QRNIC_NET_IPV4 ? from4 : from6, 16);
    memcpy(s.dgid, s.sgid, 16);
    s.dgid[15] = 2;
    return s;
}

static size_t build(uint8_t *frame, const QrnicPathSpec *s,
                    const QrnicTransport *t, const void *data, uint32_t len)
{
    QrnicPath path;
    uint8_t *payload;

    qrnic_path_init(&path, s);
    payload = qrnic_packet_begin(&path, frame, t, len);
    if (len) {
        memcpy(payload, data, len);
    }
    return qrnic_packet_finish(&path, frame, payload, len);
}

static const QrnicTransport write_only = {
    .opcode = QRNIC_OP_RC_WRITE_ONLY, .ack_req = true, .pkey = 0xffff,
    .dest_qpn = 0x123456, .psn = 0xabcdef, .va = 0x1122334455667788,
    .rkey = 0xcafe01, .dma_len = 13,
};

static const QrnicTransport ack = {
    .opcode = QRNIC_OP_RC_ACK, .pkey = 0xffff, .dest_qpn = 0x654321,
    .psn = 5, .syndrome = 0x1f, .msn = 0x42,
};

static void check_vector(const uint8_t *vector, size_t vector_len,
                         QrnicNetwork network, bool vlan,
                         const QrnicTransport *t, const void *data,
                         uint32_t len)
{
    QrnicPathSpec s = spec_make(network, vlan), back;
    uint8_t frame[1024];
    QrnicPath other_end;
    QrnicPacket p;
    size_t n = build(frame, &s, t, data, len);

    g_assert_cmpmem(frame, n, vector, vector_len);
    g_assert_cmpint(parse(&p, vector, vector_len), ==,
                    QRNIC_PARSE_OK);
    g_assert_cmpint(p.t.opcode, ==, t->opcode);
    g_assert_cmpint(p.t.ack_req, ==, t->ack_req);
    g_assert_cmphex(p.t.dest_qpn, ==, t->dest_qpn);
    g_assert_cmphex(p.t.psn, ==, t->psn);
    if (p.info->flags & QRNIC_HDR_DETH) {
        g_assert_cmphex(p.t.qkey, ==, t->qkey);
        g_assert_cmphex(p.t.src_qpn, ==, t->src_qpn);
    }
    if (p.info->flags & QRNIC_HDR_IMM) {
        g_assert_cmphex(p.t.imm, ==, t->imm);
    }
    g_assert_cmpint(p.h->vlan, ==, s.vlan);
    g_assert_cmpint(p.h->network, ==, network);
    g_assert_cmphex(p.h->traffic_class, ==, 0x68);
    g_assert_cmpint(p.h->hop_limit, ==, 64);
    g_assert_cmphex(p.h->sport, ==, network == QRNIC_NET_GRH ? 0 : 0xc123);
    g_assert_cmpmem(p.payload, p.payload_len, data, len);

    back = s;
    memcpy(back.sgid, s.dgid, 16);
    memcpy(back.dgid, s.sgid, 16);
    memcpy(back.smac, s.dmac, 6);
    memcpy(back.dmac, s.smac, 6);
    qrnic_path_init(&other_end, &back);
    g_assert_true(qrnic_path_matches(&other_end, &p));
    back.dgid[15] ^= 4;
    qrnic_path_init(&other_end, &back);
    g_assert_false(qrnic_path_matches(&other_end, &p));
    back.dgid[15] ^= 4;
    back.sgid[15] ^= 4;
    qrnic_path_init(&other_end, &back);
    g_assert_false(qrnic_path_matches(&other_end, &p));
    back.sgid[15] ^= 4;
    back.vlan = 7;
    qrnic_path_init(&other_end, &back);
    g_assert_false(qrnic_path_matches(&other_end, &p));
    back.vlan = s.vlan;
    back.v1 = !s.v1;
    qrnic_path_init(&other_end, &back);
    g_assert_false(qrnic_path_matches(&other_end, &p));
    back.v1 = s.v1;
    back.smac[5] ^= 4;
    qrnic_path_init(&other_end, &back);
    g_assert_false(qrnic_path_matches(&other_end, &p));
}

static void test_vectors(void)
{
    QrnicTransport middle = {
        .opcode = QRNIC_OP_RC_SEND_MIDDLE, .pkey = 0xffff, .dest_qpn = 0x77,
        .psn = 0xffffff,
    };
    QrnicTransport datagram = {
        .opcode = QRNIC_OP_UD_SEND_ONLY, .pkey = 0xffff, .dest_qpn = 1,
        .psn = 7, .qkey = 0x80010000, .src_qpn = 0xabcdef,
    };
    uint8_t data[256];

    for (int i = 0; i < 256; i++) {
        data[i] = i * 7 + 3;
    }
    check_vector(write_ipv4, sizeof(write_ipv4), QRNIC_NET_IPV4, false,
                 &write_only, "hello, world!", 13);
    check_vector(write_ipv6, sizeof(write_ipv6), QRNIC_NET_IPV6, false,
                 &write_only, "hello, world!", 13);
    check_vector(ack_ipv4_vlan, sizeof(ack_ipv4_vlan), QRNIC_NET_IPV4, true,
                 &ack, "", 0);
    check_vector(ack_ipv6_vlan, sizeof(ack_ipv6_vlan), QRNIC_NET_IPV6, true,
                 &ack, "", 0);
    check_vector(send_middle_ipv4, sizeof(send_middle_ipv4), QRNIC_NET_IPV4,
                 false, &middle, data, 256);
    for (int i = 0; i < 256; i++) {
        data[i] = i ^ 0x5a;
    }
    check_vector(datagram_ipv4_vlan, sizeof(datagram_ipv4_vlan), QRNIC_NET_IPV4,
                 true, &datagram, data, 256);
    datagram.opcode = QRNIC_OP_UD_SEND_ONLY_IMM;
    datagram.dest_qpn = 0xffffff;
    datagram.psn = 0x10;
    datagram.imm = 0xd1d2d3d4;
    check_vector(datagram_imm_ipv6, sizeof(datagram_imm_ipv6), QRNIC_NET_IPV6,
                 false, &datagram, "hello, group!", 13);
    check_vector(datagram_imm_v1, sizeof(datagram_imm_v1), QRNIC_NET_GRH, false,
                 &datagram, "hello, group!", 13);
    check_vector(write_v1, sizeof(write_v1), QRNIC_NET_GRH, false, &write_only,
                 "hello, world!", 13);
    check_vector(ack_v1_vlan, sizeof(ack_v1_vlan), QRNIC_NET_GRH, true, &ack,
                 "", 0);
}

/*
 * Tests that every opcode with every length modulo 4 returns the encoded
 * values.
 */
static void test_round_trip(void)
{
    uint8_t frame[1024], data[300];
    QrnicPacket p;

    for (int i = 0; i < 300; i++) {
        data[i] = i * 13;
    }
    for (unsigned op = 0; op < QRNIC_OP_COUNT; op++) {
        uint32_t flags = qrnic_opcode_info(op)->flags;
        uint32_t most = flags & QRNIC_OPF_PAYLOAD ? 9 : 1;

        if (!(flags & QRNIC_OPF_DEFINED)) {
            continue;
        }
        for (uint32_t len = 0; len < most; len++) {
            for (int kind = 0; kind < 6; kind++) {
                QrnicPathSpec s = spec_make(networks[kind % 3], kind >= 3);
                QrnicTransport t = {
                    .opcode = op, .solicited = op & 1, .ack_req = op & 2,
                    .pkey = 0x7fff, .dest_qpn = 0xfedcba, .psn = 0x800000 + op,
                    .va = 0x8182838485868788, .rkey = 0x91929394,
                    .dma_len = 0x80000000, .swap_add = 0xa1a2a3a4a5a6a7a8,
                    .compare = 0xb1b2b3b4b5b6b7b8, .syndrome = 0x6c,
                    .msn = 0xfffffe, .original = 0xc1c2c3c4c5c6c7c8,
                    .imm = 0xd1d2d3d4, .inv_key = 0xe1e2e3e4,
                    .qkey = 0xf1f2f3f4, .src_qpn = 0x818283,
                    .flush_type = 0xa, .flush_level = 1,
                    .mark = 0x55, .missing_psn = 0xa0b0c0, .arrived = data + 1,
                    .latest_psn = 0xb0c0d0, .latest_transmission = 5,
                };
                size_t n = build(frame, &s, &t, data, len);

                g_assert_cmpint(parse(&p, frame, n), ==,
                                QRNIC_PARSE_OK);
                g_assert_cmpint(p.frame_len, ==, n);
                g_assert_cmpint(p.t.solicited, ==, t.solicited);
                g_assert_cmpint(p.t.ack_req, ==, t.ack_req);
                g_assert_cmphex(p.t.pkey, ==, t.pkey);
                g_assert_cmphex(p.t.psn, ==, t.psn);
                g_assert_cmphex(p.t.mark, ==, t.mark);
                if (flags & QRNIC_HDR_SACK) {
                    g_assert_cmphex(p.t.missing_psn, ==, t.missing_psn);
                    g_assert_cmphex(p.t.latest_psn, ==, t.latest_psn);
                    g_assert_cmphex(p.t.latest_transmission, ==,
                                    t.latest_transmission);
                    g_assert_cmpmem(p.t.arrived, QRNIC_SACK_BYTES, t.arrived,
                                    QRNIC_SACK_BYTES);
                }
                if (flags & QRNIC_HDR_DETH) {
                    g_assert_cmphex(p.t.qkey, ==, t.qkey);
                    g_assert_cmphex(p.t.src_qpn, ==, t.src_qpn);
                }
                if (flags & (QRNIC_HDR_RETH | QRNIC_HDR_ATOMIC_ETH)) {
                    g_assert_cmphex(p.t.va, ==, t.va);
                    g_assert_cmphex(p.t.rkey, ==, t.rkey);
                }
                if (flags & QRNIC_HDR_RETH) {
                    g_assert_cmphex(p.t.dma_len, ==, t.dma_len);
                }
                if (flags & QRNIC_HDR_FETH) {
                    g_assert_cmphex(p.t.flush_type, ==, t.flush_type);
                    g_assert_cmphex(p.t.flush_level, ==, t.flush_level);
                }
                if (flags & QRNIC_HDR_ATOMIC_ETH) {
                    g_assert_cmphex(p.t.swap_add, ==, t.swap_add);
                    g_assert_cmphex(p.t.compare, ==, t.compare);
                }
                if (flags & QRNIC_HDR_AETH) {
                    g_assert_cmphex(p.t.syndrome, ==, t.syndrome);
                    g_assert_cmphex(p.t.msn, ==, t.msn);
                }
                if (flags & QRNIC_HDR_ATOMIC_ACK) {
                    g_assert_cmphex(p.t.original, ==, t.original);
                }
                if (flags & QRNIC_HDR_IMM) {
                    g_assert_cmphex(p.t.imm, ==, t.imm);
                }
                if (flags & QRNIC_HDR_IETH) {
                    g_assert_cmphex(p.t.inv_key, ==, t.inv_key);
                }
                g_assert_cmpmem(p.payload, p.payload_len, data, len);

                /* Ethernet may pad a short frame. */
                memset(frame + n, 0, 46);
                g_assert_cmpint(parse(&p, frame, n + 46), ==,
                                QRNIC_PARSE_OK);
                g_assert_cmpint(p.payload_len, ==, len);
            }
        }
    }
}

/* Tests that The ICRC excludes exactly the fields that a router may change. */
static void test_icrc_cover(void)
{
    static const struct {
        const uint8_t *vector;
        size_t len, bth;
    } of[] = {
        [QRNIC_NET_IPV4] = { write_ipv4, sizeof(write_ipv4), 14 + 20 + 8 },
        [QRNIC_NET_IPV6] = { write_ipv6, sizeof(write_ipv6), 14 + 40 + 8 },
        [QRNIC_NET_GRH] = { write_v1, sizeof(write_v1), 14 + 40 },
    };

    for (unsigned n = 0; n < ARRAY_SIZE(networks); n++) {
        bool ipv4 = networks[n] == QRNIC_NET_IPV4;
        bool v1 = networks[n] == QRNIC_NET_GRH;
        size_t len = of[networks[n]].len, bth = of[networks[n]].bth;
        uint8_t frame[256];
        QrnicPacket p;

        for (size_t i = 14; i < len; i++) {
            QrnicParse result;
            bool variant = ipv4 ?
                           i == 15 || i == 14 + 8 || i == 24 || i == 25 :
                           (i >= 14 && i <= 17) || i == 14 + 7;

            variant = variant || (!v1 && (i == bth - 2 || i == bth - 1)) ||
                      i == bth + 4;
            memcpy(frame, of[networks[n]].vector, len);
            frame[i] ^= 0x01;
            if (ipv4 && i < 34 && i != 24 && i != 25) {
                uint32_t sum = 0;

                stw_be_p(frame + 24, 0);
                for (int w = 14; w < 34; w += 2) {
                    sum += lduw_be_p(frame + w);
                }
                sum = (sum & 0xffff) + (sum >> 16);
                stw_be_p(frame + 24, ~((sum & 0xffff) + (sum >> 16)));
            }
            result = parse(&p, frame, len);
            if (!variant || (ipv4 && (i == 24 || i == 25))) {
                g_assert_cmpint(result, !=, QRNIC_PARSE_OK);
            } else {
                g_assert_cmpint(result, ==, QRNIC_PARSE_OK);
            }
        }
    }
}

/*
 * Tests the cover for networks that rewrite headers. Any change before the BTH
 * passes, any change behind it does not, and the two covers are distinguished.
 */
static void test_icrc_transport(void)
{
    for (unsigned kind = 0; kind < 6; kind++) {
        QrnicNetwork network = networks[kind % 3];
        QrnicPathSpec s = spec_make(network, kind >= 3);
        size_t ip = kind >= 3 ? 18 : 14;
        size_t bth = ip + (network == QRNIC_NET_IPV4 ? 20 : 40) +
                     (network == QRNIC_NET_GRH ? 0 : 8);
        QrnicTransport t = {
            .opcode = QRNIC_OP_RC_SEND_ONLY, .pkey = 0xffff, .dest_qpn = 0x1234,
        };
        uint8_t payload[5] = "hello", frame[256] = { 0 };
        QrnicPacket p;
        size_t len;

        s.icrc = QRNIC_ICRC_TRANSPORT;
        len = build(frame, &s, &t, payload, sizeof(payload));
        g_assert_cmpint(parse(&p, frame, len), ==, QRNIC_PARSE_ICRC);
        for (size_t i = 0; i < len; i++) {
            QrnicParse result;

            if (i == bth + 4) {
                continue;       /* FECN, BECN: in neither cover */
            }
            frame[i] ^= 0x10;
            result = parse_as(&p, frame, len, QRNIC_ICRC_TRANSPORT);
            if (i >= bth) {
                g_assert_cmpint(result, ==, QRNIC_PARSE_ICRC);
            } else {
                g_assert_cmpint(result, !=, QRNIC_PARSE_ICRC);
            }
            frame[i] ^= 0x10;
        }
        g_assert_cmpint(parse_as(&p, frame, len, QRNIC_ICRC_TRANSPORT), ==,
                        QRNIC_PARSE_OK);
    }
}

/* A flush that Soft-RoCE of Linux 6.12 sent, recorded on the wire */
static const uint8_t soft_roce_flush[] = {
    0x52, 0x54, 0x00, 0x77, 0x01, 0x00, 0x52, 0x54, 0x00, 0x77, 0x02,
    0x00, 0x08, 0x00, 0x45, 0x00, 0x00, 0x40, 0x4c, 0x03, 0x40, 0x00,
    0x40, 0x11, 0xda, 0x0d, 0x0a, 0x4d, 0x00, 0x02, 0x0a, 0x4d, 0x00,
    0x01, 0xc0, 0x33, 0x12, 0xb7, 0x00, 0x2c, 0x00, 0x00, 0x1c, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x03, 0x80, 0xff, 0xff, 0xfa, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x1e, 0x8d, 0xc0, 0x00,
    0x00, 0x00, 0x03, 0x02, 0x00, 0x00, 0x23, 0x28, 0x47, 0x79, 0xd9,
    0x0e,
};

/*
 * Tests that the ICRC of this packet differs from the standard, and that of all
 * others does not.
 */
static void test_icrc_soft_roce(void)
{
    QrnicPacket p;

    g_assert_cmpint(parse(&p, soft_roce_flush, sizeof(soft_roce_flush)), ==,
                    QRNIC_PARSE_ICRC);
    g_assert_cmpint(parse_as(&p, soft_roce_flush, sizeof(soft_roce_flush),
                             QRNIC_ICRC_SOFT_ROCE), ==,
                    QRNIC_PARSE_OK);
    g_assert_cmphex(p.t.opcode, ==, QRNIC_OP_RC_FLUSH);
    g_assert_cmphex(p.t.va, ==, 0x1e8dc000);
    g_assert_cmphex(p.t.rkey, ==, 0x302);
    g_assert_cmpuint(p.t.dma_len, ==, 9000);
    g_assert_cmphex(p.t.flush_type, ==, 1);
    g_assert_cmphex(p.t.flush_level, ==, 0);
    g_assert_cmpint(parse_as(&p, write_ipv4, sizeof(write_ipv4),
                             QRNIC_ICRC_SOFT_ROCE), ==,
                    QRNIC_PARSE_OK);
}

/* Computes the ICRC byte by byte as A16.4 and A17.3.3 define it. */
static uint32_t icrc_by_definition(QrnicIcrcCover cover, const uint8_t *ip,
                                   size_t len, QrnicNetwork network)
{
    static const uint8_t variant4[] = { 1, 8, 10, 11 };
    static const uint8_t variant6[] = { 1, 2, 3, 7 };
    const bool v4 = network == QRNIC_NET_IPV4;
    const size_t udp = v4 ? 20 : 40;
    const size_t bth = udp + (network == QRNIC_NET_GRH ? 0 : 8);
    g_autofree uint8_t *whole = g_malloc(8 + len);
    uint8_t *copy = whole + 8;

    memset(whole, 0xff, 8);
    memcpy(copy, ip, len);
    for (unsigned i = 0; i < ARRAY_SIZE(variant4); i++) {
        copy[v4 ? variant4[i] : variant6[i]] = 0xff;
    }
    copy[0] |= v4 ? 0 : 0xf;
    if (bth != udp) {
        copy[udp + 6] = copy[udp + 7] = 0xff;
    }
    copy[bth + 4] = 0xff;
    return cover == QRNIC_ICRC_TRANSPORT ?
           ~qrnic_crc32_bytewise(QRNIC_CRC32_INIT, copy + bth, len - bth) :
           ~qrnic_crc32_bytewise(QRNIC_CRC32_INIT, whole, 8 + len);
}

static void test_icrc_lengths(void)
{
    uint8_t ip[400];

    for (unsigned i = 0; i < sizeof(ip); i++) {
        ip[i] = i * 37 + 11;
    }
    for (unsigned kind = 0; kind < 6; kind++) {
        const QrnicNetwork network = networks[kind % 3];
        const QrnicIcrcCover cover = kind < 3 ? QRNIC_ICRC_STANDARD :
                                                QRNIC_ICRC_TRANSPORT;
        const size_t head = (network == QRNIC_NET_IPV4 ? 20 : 40) +
                            (network == QRNIC_NET_GRH ? 0 : 8) + 12;

        for (size_t len = head; len <= sizeof(ip); len++) {
            g_assert_cmphex(qrnic_icrc(cover, ip, len, network), ==,
                            icrc_by_definition(cover, ip, len, network));
        }
    }
}

/*
 * Tests that the buffers for packets have room for the longest headers.
 * Otherwise a packet could overflow its buffer.
 */
static void test_header_lengths(void)
{
    unsigned longest = 0;

    for (unsigned opcode = 0; opcode < 256; opcode++) {
        longest = MAX(longest, qrnic_opcode_info(opcode)->header_len);
    }
    g_assert_cmpuint(longest, ==, QRNIC_TRANSPORT_HEADER_MAX);
}

/*
 * Tests that a packet without an ICRC check equals the others except for its
 * ICRC.
 */
static void test_unchecked(void)
{
    for (unsigned kind = 0; kind < 6; kind++) {
        QrnicPathSpec s = spec_make(networks[kind % 3], kind >= 3);
        QrnicTransport t = {
            .opcode = QRNIC_OP_RC_WRITE_ONLY, .pkey = 0xffff,
            .dest_qpn = 0x1234, .dma_len = 5,
        };
        uint8_t data[5] = "hello", frame[256], checked[256] = { 0 };
        uint8_t *payload;
        QrnicHeaders h;
        QrnicPath path;
        QrnicPacket p;
        size_t len = build(checked, &s, &t, data, sizeof(data));

        qrnic_path_init(&path, &s);
        memset(frame, 0xee, sizeof(frame));
        payload = qrnic_packet_begin(&path, frame, &t, sizeof(data));
        memcpy(payload, data, sizeof(data));
        g_assert_cmpuint(qrnic_packet_finish_unchecked(frame, payload,
                                                       sizeof(data)), ==, len);
        g_assert_cmpmem(frame, len - 4, checked, len - 4);
        g_assert_cmphex(ldl_le_p(frame + len - 4), ==, 0);
        g_assert_cmpint(parse(&p, frame, len), ==, QRNIC_PARSE_ICRC);
        h = qrnic_headers_walk(frame, len);
        g_assert_cmpint(qrnic_packet_parse_unchecked(&p, &h), ==,
                        QRNIC_PARSE_OK);
        g_assert_cmpmem(p.payload, p.payload_len, data, sizeof(data));
        /* Everything else is checked. */
        h = qrnic_headers_walk(frame, len - 1);
        g_assert_cmpint(qrnic_packet_parse_unchecked(&p, &h), ==,
                        QRNIC_PARSE_MALFORMED);
    }
}

static void fix_icrc(uint8_t *frame, size_t len, size_t ip,
                     QrnicNetwork network)
{
    stl_le_p(frame + len - 4, qrnic_icrc(QRNIC_ICRC_STANDARD, frame + ip,
                                         len - ip - 4, network));
}

static void test_malformed(void)
{
    uint8_t frame[1600];
    QrnicPacket p;
    size_t len = sizeof(write_ipv4);

    /* The packet is truncated at any length. */
    for (size_t n = 0; n < len; n++) {
        g_assert_cmpint(parse(&p, write_ipv4, n), ==,
                        QRNIC_PARSE_MALFORMED);
    }
    for (size_t n = 0; n < sizeof(write_v1); n++) {
        g_assert_cmpint(parse(&p, write_v1, n), ==, QRNIC_PARSE_MALFORMED);
    }
    for (size_t n = 0; n < sizeof(write_ipv6); n++) {
        g_assert_cmpint(parse(&p, write_ipv6, n), ==,
                        QRNIC_PARSE_MALFORMED);
    }
    /* The header behind a GRH is no BTH. */
    memcpy(frame, write_v1, sizeof(write_v1));
    frame[14 + 6] = QRNIC_IP_PROTOCOL_UDP;
    fix_icrc(frame, sizeof(write_v1), 14, QRNIC_NET_GRH);
    g_assert_cmpint(parse(&p, frame, sizeof(write_v1)), ==,
                    QRNIC_PARSE_MALFORMED);
    /* The transport version is not 0. */
    memcpy(frame, write_ipv4, len);
    frame[43] |= 1;
    fix_icrc(frame, len, 14, QRNIC_NET_IPV4);
    g_assert_cmpint(parse(&p, frame, len), ==,
                    QRNIC_PARSE_MALFORMED);
    /* These opcodes are of other transports. */
    for (int op = 0; op < 256; op++) {
        if (qrnic_opcode_info(op)->flags & QRNIC_OPF_DEFINED) {
            continue;
        }
        memcpy(frame, write_ipv4, len);
        frame[42] = op;
        fix_icrc(frame, len, 14, QRNIC_NET_IPV4);
        g_assert_cmpint(parse(&p, frame, len), ==,
                        QRNIC_PARSE_OPCODE);
        g_assert_cmphex(p.t.dest_qpn, ==, 0x123456);
    }
    /* An opcode without payload has payload. */
    memcpy(frame, write_ipv4, len);
    frame[42] = QRNIC_OP_RC_READ_REQUEST;
    fix_icrc(frame, len, 14, QRNIC_NET_IPV4);
    g_assert_cmpint(parse(&p, frame, len), ==,
                    QRNIC_PARSE_MALFORMED);
    /* The headers are longer than the packet. */
    memcpy(frame, ack_ipv4_vlan, sizeof(ack_ipv4_vlan));
    frame[46] = QRNIC_OP_RC_COMPARE_SWAP;
    fix_icrc(frame, sizeof(ack_ipv4_vlan), 18, QRNIC_NET_IPV4);
    g_assert_cmpint(parse(&p, frame, sizeof(ack_ipv4_vlan)), ==,
                    QRNIC_PARSE_MALFORMED);
    /* Random bytes must have no effect. */
    for (int i = 0; i < 100000; i++) {
        size_t n = g_test_rand_int_range(0, sizeof(frame));

        for (size_t k = 0; k < MIN(n, 80); k++) {
            frame[k] = g_test_rand_int();
        }
        if (i & 1 && n > 60) {
            memcpy(frame, write_ipv4, 24);
        }
        parse(&p, frame, n);
    }
}

static void test_crc_agree(void)
{
    uint8_t *data = g_malloc(10000);

    g_test_message("clmul: %d, vpclmul: %d", qrnic_crc32_have_clmul(),
                   qrnic_crc32_have_vpclmul());
    /* The expected value is the check value of CRC-32. */
    g_assert_cmphex(~qrnic_crc32(QRNIC_CRC32_INIT,
                                 (const uint8_t *)"123456789", 9), ==,
                    0xcbf43926);
    for (int i = 0; i < 10000; i++) {
        data[i] = g_test_rand_int();
    }
    for (size_t len = 0; len < 4200; len += len < 900 ? 1 : 37) {
        size_t at = g_test_rand_int_range(0, 64);
        uint32_t start = g_test_rand_int();
        uint32_t crc = qrnic_crc32_bytewise(start, data + at, len);

        g_assert_cmphex(qrnic_crc32_slicing(start, data + at, len), ==, crc);
        g_assert_cmphex(qrnic_crc32(start, data + at, len), ==, crc);
        if (qrnic_crc32_have_clmul()) {
            g_assert_cmphex(qrnic_crc32_clmul(start, data + at, len), ==, crc);
        }
        if (qrnic_crc32_have_vpclmul()) {
            g_assert_cmphex(qrnic_crc32_vpclmul(start, data + at, len), ==,
                            crc);
        }
    }
    g_free(data);
}

/* The result of crc_broken() is wrong for data of this length only. */
static size_t broken_len;

static uint32_t crc_broken(uint32_t crc, const uint8_t *data, size_t len)
{
    crc = qrnic_crc32_bytewise(crc, data, len);
    return len == broken_len ? crc ^ 0x80 : crc;
}

static uint32_t crc_dead(uint32_t crc, const uint8_t *data, size_t len)
{
    return 0;
}

/* Tests that a broken carry-less multiplication is not used. */
static void test_crc_tried(void)
{
    g_assert(qrnic_crc32_choose(crc_dead) == qrnic_crc32_slicing);
    for (broken_len = 0; broken_len < 600; broken_len++) {
        g_assert(qrnic_crc32_choose(crc_broken) == qrnic_crc32_slicing);
    }
    broken_len = SIZE_MAX;
    g_assert(qrnic_crc32_choose(crc_broken) == crc_broken);
    if (qrnic_crc32_have_clmul()) {
        g_assert(qrnic_crc32_choose(qrnic_crc32_clmul) == qrnic_crc32_clmul);
    }
    if (qrnic_crc32_have_vpclmul()) {
        g_assert(qrnic_crc32_choose(qrnic_crc32_vpclmul) ==
                 qrnic_crc32_vpclmul);
    }
}

static bool chosen_before_main;

/* Tests that a process without a device does not try the implementations. */
static void test_crc_first(void)
{
    g_assert_false(chosen_before_main);
    g_assert_cmphex(qrnic_crc32(1, NULL, 0), ==, 1);
    g_assert_true(qrnic_crc32_is_chosen());
}

int main(int argc, char **argv)
{
    chosen_before_main = qrnic_crc32_is_chosen();
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/wire/crc-first", test_crc_first);
    g_test_add_func("/wire/vectors", test_vectors);
    g_test_add_func("/wire/round-trip", test_round_trip);
    g_test_add_func("/wire/icrc-cover", test_icrc_cover);
    g_test_add_func("/wire/icrc-transport", test_icrc_transport);
    g_test_add_func("/wire/icrc-soft-roce", test_icrc_soft_roce);
    g_test_add_func("/wire/icrc-lengths", test_icrc_lengths);
    g_test_add_func("/wire/header-lengths", test_header_lengths);
    g_test_add_func("/wire/unchecked", test_unchecked);
    g_test_add_func("/wire/malformed", test_malformed);
    g_test_add_func("/wire/crc-agree", test_crc_agree);
    g_test_add_func("/wire/crc-tried", test_crc_tried);
    return g_test_run();
}
