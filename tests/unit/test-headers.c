/*
 * The walk over the headers of a frame: frames of each kind, truncated at each
 * byte, and with wrong lengths
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "wire/headers.h"

#include <sys/mman.h>

/*
 * The bytes of each frame in wire order: addresses, [tags,] type, IP, ports,
 * ...
 */
#define MACS "020000000002 020000000001 "
#define TAG_100 "8100 6064 "
#define TAG_0 "8100 a000 "
#define TAG_SERVICE "88a8 0007 "
#define IPV4 "0800 "
#define IPV6 "86dd "
#define ADDRESSES_4 "c0000201 c0000202 "
#define ADDRESSES_6 \
    "20010db8000000000000000000000001 20010db8000000000000000000000002 "
#define PORTS "c123 12b7 "
#define UDP_4 PORTS "000c 0000 64617461 "
#define TCP_4 PORTS "00000001 00000002 5010 0100 0000 0000 64617461 "

typedef struct Good {
    const char *name;
    const char *hex;
    size_t len;
    int vlan;
    unsigned tags_len, ethertype;
    bool tagged;
    uint16_t tci;
    QrnicNetwork network;
    size_t ip, ip_len, ip_total;
    unsigned protocol, traffic_class, hop_limit;
    uint32_t flow_label;
    bool fragment;
    size_t l4, l4_len;
} Good;

#define NO_TAG .vlan = -1

static const Good good[] = {
    {
        "udp-ipv4",
        MACS IPV4 "4568 0020 0001 4000 4011 0000 " ADDRESSES_4 UDP_4,
        46, NO_TAG, .ethertype = 0x0800, .network = QRNIC_NET_IPV4,
        .ip = 14, .ip_len = 20, .ip_total = 32, .protocol = 17,
        .traffic_class = 0x68, .hop_limit = 64, .l4 = 34, .l4_len = 12,
    }, {
        /* This frame has IP options, and link padding behind the packet. */
        "tcp-ipv4-options-vlan",
        MACS TAG_100 IPV4 "4700 0034 0001 0000 3f06 0000 " ADDRESSES_4
        "0101010101010100 " TCP_4 "eeee",
        72, .vlan = 100, .tags_len = 4, .ethertype = 0x0800, .tagged = true,
        .tci = 0x6064, .network = QRNIC_NET_IPV4, .ip = 18, .ip_len = 28,
        .ip_total = 52, .protocol = 6, .hop_limit = 63, .l4 = 46, .l4_len = 24,
    }, {
        "udp-ipv6",
        MACS IPV6 "66812345 000c 1105 " ADDRESSES_6 UDP_4,
        66, NO_TAG, .ethertype = 0x86dd, .network = QRNIC_NET_IPV6,
        .ip = 14, .ip_len = 40, .ip_total = 52, .protocol = 17,
        .traffic_class = 0x68, .hop_limit = 5, .flow_label = 0x12345,
        .l4 = 54, .l4_len = 12,
    }, {
        /* A GRH has the fields of an IPv6 header, and no ports behind it. */
        "roce-v1",
        MACS "8915 " "66812345 000c 1b05 " ADDRESSES_6 UDP_4,
        66, NO_TAG, .ethertype = 0x8915, .network = QRNIC_NET_GRH,
        .ip = 14, .ip_len = 40, .ip_total = 52, .protocol = 0x1b,
        .traffic_class = 0x68, .hop_limit = 5, .flow_label = 0x12345,
    }, {
        "tcp-ipv6-priority",
        MACS TAG_0 IPV6 "60000000 0018 0605 " ADDRESSES_6 TCP_4,
        82, .vlan = -1, .tags_len = 4, .ethertype = 0x86dd, .tagged = true,
        .tci = 0xa000, .network = QRNIC_NET_IPV6, .ip = 18, .ip_len = 40,
        .ip_total = 64, .protocol = 6, .hop_limit = 5, .l4 = 58, .l4_len = 24,
    }, {
        /* The device does not parse headers behind a service tag, */
        "two-tags",
        MACS TAG_SERVICE TAG_100 IPV4 "4500 0020 0001 4000 4011 0000 "
        ADDRESSES_4 UDP_4,
        54, NO_TAG, .tags_len = 8, .ethertype = 0x88a8,
    }, {
        /*
         * nor behind a second tag. A third tag does not extend the allowed
         * length.
         */
        "three-tags",
        MACS TAG_100 TAG_100 TAG_100 IPV4 "4500 0020 0001 4000 4011 0000 "
        ADDRESSES_4 UDP_4,
        58, .vlan = 100, .tags_len = 8, .ethertype = 0x8100, .tagged = true,
        .tci = 0x6064,
    }, {
        "arp",
        MACS "0806 0001 0800 0604 ",
        20, NO_TAG, .ethertype = 0x0806,
    }, {
        "icmp",
        MACS IPV4 "4500 001c 0001 0000 4001 0000 " ADDRESSES_4
        "0800 0000 0001 0001",
        42, NO_TAG, .ethertype = 0x0800, .network = QRNIC_NET_IPV4,
        .ip = 14, .ip_len = 20, .ip_total = 28, .protocol = 1, .hop_limit = 64,
    }, {
        "first-fragment",
        MACS IPV4 "4500 0020 0001 2000 4011 0000 " ADDRESSES_4 UDP_4,
        46, NO_TAG, .ethertype = 0x0800, .network = QRNIC_NET_IPV4,
        .ip = 14, .ip_len = 20, .ip_total = 32, .protocol = 17,
        .hop_limit = 64, .fragment = true,
    }, {
        "last-fragment",
        MACS IPV4 "4500 0020 0001 0001 4011 0000 " ADDRESSES_4 UDP_4,
        46, NO_TAG, .ethertype = 0x0800, .network = QRNIC_NET_IPV4,
        .ip = 14, .ip_len = 20, .ip_total = 32, .protocol = 17,
        .hop_limit = 64, .fragment = true,
    }, {
        "ipv6-fragment",
        MACS IPV6 "60000000 0014 2c05 " ADDRESSES_6
        "11 00 0001 00000009 " UDP_4,
        74, NO_TAG, .ethertype = 0x86dd, .network = QRNIC_NET_IPV6,
        .ip = 14, .ip_len = 40, .ip_total = 60, .protocol = 44,
        .hop_limit = 5,
    },
};

#define FRAME_MAX 96

static void frame_of(const Good *g, uint8_t frame[FRAME_MAX])
{
    size_t len = 0;

    for (const char *p = g->hex; *p; p++) {
        if (*p != ' ') {
            g_assert_cmpuint(len, <, FRAME_MAX);
            frame[len++] = g_ascii_xdigit_value(p[0]) << 4 |
                           g_ascii_xdigit_value(p[1]);
            p++;
        }
    }
    g_assert_cmpuint(len, ==, g->len);
}

/*
 * A buffer that ends at the end of mapped memory, so that a read behind it
 * faults.
 */
static uint8_t *edge;

static QrnicHeaders walk_at_edge(const uint8_t *frame, size_t len)
{
    uint8_t *at = edge - len;
    QrnicHeaders h;

    memcpy(at, frame, len);
    h = qrnic_headers_walk(at, len);
    g_assert_true(h.frame == at);
    g_assert_cmpuint(h.len, ==, len);
    return h;
}

static void check_addresses(const QrnicHeaders *h)
{
    static const uint8_t none[16];
    static const uint8_t v4[16] = {
        [10] = 0xff, [11] = 0xff, [12] = 0xc0, [14] = 2, [15] = 1
    };
    static const uint8_t v6[16] = { 0x20, 1, 0x0d, 0xb8, [15] = 1 };
    uint8_t want[16];

    memcpy(want, h->network == QRNIC_NET_NONE ? none :
                 h->network == QRNIC_NET_IPV4 ? v4 : v6, 16);
    g_assert_cmpmem(h->sgid, 16, want, 16);
    want[15] = want[15] ? 2 : 0;
    g_assert_cmpmem(h->dgid, 16, want, 16);
}

/* Checks the result for a valid frame of which only len bytes exist. */
static void check(const QrnicHeaders *h, const Good *want, size_t len)
{
    bool tagged = want->tagged && len >= 18;
    bool network = want->network && len >= want->ip + want->ip_len;
    bool l4 = want->l4 && len >= want->l4 + 4;
    bool whole = network && len >= want->ip + want->ip_total;
    unsigned tags = len < 18 ? 0 : MIN(want->tags_len, (len - 14) / 4 * 4);

    g_assert_cmpint(h->ethernet, ==, len >= 14);
    g_assert_cmpint(h->tagged, ==, tagged);
    g_assert_cmphex(h->tci, ==, tagged ? want->tci : 0);
    g_assert_cmpint(h->vlan, ==, tagged ? want->vlan : -1);
    g_assert_cmpuint(h->tags_len, ==, tags);
    g_assert_cmphex(h->ethertype, ==, len < 14 ? 0 :
                    want->tagged && !tagged ? 0x8100 : want->ethertype);
    g_assert_cmpint(h->network, ==, network ? want->network : QRNIC_NET_NONE);
    g_assert_cmpuint(h->ip, ==, network ? want->ip : 0);
    g_assert_cmpuint(h->ip_len, ==, network ? want->ip_len : 0);
    g_assert_cmpuint(h->ip_total, ==, whole ? want->ip_total : 0);
    g_assert_cmpuint(h->protocol, ==, network ? want->protocol : 0);
    g_assert_cmphex(h->traffic_class, ==, network ? want->traffic_class : 0);
    g_assert_cmpuint(h->hop_limit, ==, network ? want->hop_limit : 0);
    g_assert_cmphex(h->flow_label, ==, network ? want->flow_label : 0);
    g_assert_cmpint(h->fragment, ==, network && want->fragment);
    g_assert_cmpuint(h->l4, ==, l4 ? want->l4 : 0);
    g_assert_cmphex(h->sport, ==, l4 ? 0xc123 : 0);
    g_assert_cmphex(h->dport, ==, l4 ? 4791 : 0);
    g_assert_cmpuint(h->l4_len, ==, whole ? want->l4_len : 0);
    check_addresses(h);
}

static void test_good(const void *opaque)
{
    const Good *want = opaque;
    uint8_t frame[FRAME_MAX];
    QrnicHeaders h;

    frame_of(want, frame);
    h = walk_at_edge(frame, want->len);
    check(&h, want, want->len);
}

static void test_cut(const void *opaque)
{
    const Good *want = opaque;
    uint8_t frame[FRAME_MAX];
    QrnicHeaders h;

    frame_of(want, frame);
    for (size_t len = 0; len < want->len; len++) {
        h = walk_at_edge(frame, len);
        check(&h, want, len);
    }
}

/* A valid frame with one wrong field */
typedef struct Lie {
    const char *of;
    size_t at;
    uint8_t bytes[2];
    QrnicNetwork network;
    size_t ip_total, l4, l4_len;
} Lie;

static const Lie lies[] = {
    /* The version contradicts the Ethernet type. */
    { "udp-ipv4", 14, { 0x65, 0 }, QRNIC_NET_NONE },
    { "udp-ipv6", 14, { 0x45, 0 }, QRNIC_NET_NONE },
    /* The IPv4 header is too short, or longer than the frame. */
    { "udp-ipv4", 14, { 0x44, 0 }, QRNIC_NET_NONE },
    { "udp-ipv4", 14, { 0x49, 0 }, QRNIC_NET_NONE },
    /* The IPv4 header ends with the frame, so there are no ports. */
    { "udp-ipv4", 14, { 0x48, 0 }, QRNIC_NET_IPV4, 32 },
    /* The packet is longer than the frame, or shorter than its header. */
    { "udp-ipv4", 16, { 0, 33 }, QRNIC_NET_IPV4, 0, 34 },
    { "udp-ipv4", 16, { 0xff, 0xff }, QRNIC_NET_IPV4, 0, 34 },
    { "udp-ipv4", 16, { 0, 19 }, QRNIC_NET_IPV4, 0, 34 },
    { "udp-ipv4", 16, { 0, 0 }, QRNIC_NET_IPV4, 0, 34 },
    { "tcp-ipv4-options-vlan", 20, { 0, 27 }, QRNIC_NET_IPV4, 0, 46 },
    { "udp-ipv6", 18, { 0, 13 }, QRNIC_NET_IPV6, 0, 54 },
    { "udp-ipv6", 18, { 0xff, 0xff }, QRNIC_NET_IPV6, 0, 54 },
    { "roce-v1", 18, { 0, 13 }, QRNIC_NET_GRH },
    { "roce-v1", 14, { 0x45, 0 }, QRNIC_NET_NONE },
    /* A GRH is never followed by UDP, for all values of next header. */
    { "roce-v1", 20, { 17, 5 }, QRNIC_NET_GRH, 52 },
    /* The packet ends inside the UDP or TCP header. */
    { "udp-ipv4", 16, { 0, 20 }, QRNIC_NET_IPV4, 20, 34 },
    { "udp-ipv4", 16, { 0, 27 }, QRNIC_NET_IPV4, 27, 34 },
    { "udp-ipv6", 18, { 0, 0 }, QRNIC_NET_IPV6, 40, 54 },
    { "udp-ipv6", 18, { 0, 7 }, QRNIC_NET_IPV6, 47, 54 },
    { "tcp-ipv4-options-vlan", 20, { 0, 47 }, QRNIC_NET_IPV4, 47, 46 },
    { "tcp-ipv4-options-vlan", 20, { 0, 48 }, QRNIC_NET_IPV4, 48, 46, 20 },
    { "tcp-ipv6-priority", 22, { 0, 19 }, QRNIC_NET_IPV6, 59, 58 },
    /* The datagram is longer than the packet, or shorter than its header. */
    { "udp-ipv4", 38, { 0, 13 }, QRNIC_NET_IPV4, 32, 34 },
    { "udp-ipv4", 38, { 0xff, 0xff }, QRNIC_NET_IPV4, 32, 34 },
    { "udp-ipv4", 38, { 0, 7 }, QRNIC_NET_IPV4, 32, 34 },
    { "udp-ipv4", 38, { 0, 0 }, QRNIC_NET_IPV4, 32, 34 },
    { "udp-ipv4", 38, { 0, 8 }, QRNIC_NET_IPV4, 32, 34, 8 },
    { "udp-ipv6", 58, { 0, 13 }, QRNIC_NET_IPV6, 52, 54 },
    { "udp-ipv6", 58, { 0, 11 }, QRNIC_NET_IPV6, 52, 54, 11 },
};

static void test_lies(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
        const Lie *lie = &lies[i];
        const Good *was = good;
        uint8_t frame[FRAME_MAX];
        QrnicHeaders h;

        while (strcmp(was->name, lie->of)) {
            was++;
        }
        frame_of(was, frame);
        frame[lie->at] = lie->bytes[0];
        /* The byte behind version and header length is another field. */
        if (lie->at != 14) {
            frame[lie->at + 1] = lie->bytes[1];
        }
        h = walk_at_edge(frame, was->len);
        g_assert_cmpint(h.network, ==, lie->network);
        g_assert_cmpuint(h.ip_total, ==, lie->ip_total);
        g_assert_cmpuint(h.l4, ==, lie->l4);
        g_assert_cmpuint(h.l4_len, ==, lie->l4_len);
        check_addresses(&h);
    }
}

/*
 * Tests that all results lie inside the frame for random bytes, because the
 * parser reads frames of any sender.
 */
static void test_random(void)
{
    uint8_t frame[160], begins[FRAME_MAX];
    QrnicHeaders h;

    for (unsigned i = 0; i < 200000; i++) {
        const Good *was = &good[i % ARRAY_SIZE(good)];
        size_t len = g_test_rand_int_range(0, sizeof(frame));

        for (size_t k = 0; k < len; k++) {
            frame[k] = g_test_rand_int();
        }
        /*
         * The frame begins with valid headers, so that each branch is reached.
         */
        frame_of(was, begins);
        memcpy(frame, begins, MIN(MIN(len, was->len), 14 + i % 40));
        h = walk_at_edge(frame, len);
        g_assert_cmpuint(h.ip + h.ip_len, <=, len);
        g_assert_cmpuint(h.ip + h.ip_total, <=, len);
        g_assert_true(!h.ip_total || h.ip_total >= h.ip_len);
        g_assert_true(!h.l4 || (h.l4 == h.ip + h.ip_len && h.l4 + 4 <= len));
        g_assert_true(!h.l4_len ||
                      h.l4 + h.l4_len <= h.ip + h.ip_total);
    }
}

int main(int argc, char **argv)
{
    size_t page = qemu_real_host_page_size();
    uint8_t *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    g_assert_true(two != MAP_FAILED);
    g_assert_cmpint(mprotect(two + page, page, PROT_NONE), ==, 0);
    edge = two + page;
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
        g_autofree char *whole = g_strdup_printf("/headers/good/%s",
                                                 good[i].name);
        g_autofree char *cut = g_strdup_printf("/headers/cut/%s",
                                               good[i].name);

        g_test_add_data_func(whole, &good[i], test_good);
        g_test_add_data_func(cut, &good[i], test_cut);
    }
    g_test_add_func("/headers/lies", test_lies);
    g_test_add_func("/headers/random", test_random);
    return g_test_run();
}
