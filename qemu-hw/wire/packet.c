/*
 * qrnic wire: RoCE packets, parsed and built
 *
 * The transport layer calls the functions of packet.h; nothing is kept between
 * calls. Parsing and building walk the extension headers in the same order,
 * which the flags of the opcode define. InfiniBand specification, chapter 9,
 * and annexes A16 (RoCE v1) and A17 (RoCE v2).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "wire/packet.h"

#define IPV4_DF         0x4000
#define DEFAULT_HOPS    64

static const uint8_t ipv4_prefix[12] = { [10] = 0xff, [11] = 0xff };

bool qrnic_gid_is_ipv4(const uint8_t gid[16])
{
    return memcmp(gid, ipv4_prefix, sizeof(ipv4_prefix)) == 0;
}

/* Returns the sum of the 16-bit words of the header, not folded. */
static uint32_t ipv4_sum(const uint8_t *ip)
{
    uint32_t sum = 0;

    for (unsigned i = 0; i < QRNIC_IPV4_LEN; i += 2) {
        sum += lduw_be_p(ip + i);
    }
    return sum;
}

static uint16_t ipv4_fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/*
 * Returns the length from the BTH to the ICRC of RoCE v1, or 0 if lengths
 * contradict.
 */
static size_t v1_length(const QrnicHeaders *h)
{
    size_t len = h->ip_total ? h->ip_total - h->ip_len : 0;

    return h->protocol == QRNIC_GRH_NEXT_BTH &&
           len >= QRNIC_BTH_LEN + QRNIC_ICRC_LEN ? len : 0;
}

/*
 * Returns the length from the BTH to the ICRC of RoCE v2. Returns 0 if lengths
 * contradict, or for options or a fragment, because RoCE v2 has neither
 * (A17.3.1.2).
 */
static size_t v2_length(const QrnicHeaders *h)
{
    const uint8_t *ip = h->frame + h->ip;

    if (h->protocol != QRNIC_IP_PROTOCOL_UDP || !h->l4_len ||
        h->l4_len != h->ip_total - h->ip_len ||
        h->l4_len < QRNIC_UDP_LEN + QRNIC_BTH_LEN + QRNIC_ICRC_LEN) {
        return 0;
    }
    if (h->network == QRNIC_NET_IPV4 &&
        (h->ip_len != QRNIC_IPV4_LEN || ipv4_fold(ipv4_sum(ip)) != 0xffff)) {
        return 0;
    }
    return h->l4_len - QRNIC_UDP_LEN;
}

static void parse_bth(QrnicTransport *t, const uint8_t *bth)
{
    t->opcode = bth[0];
    t->solicited = bth[1] >> 7;
    t->pkey = lduw_be_p(bth + 2);
    t->fecn = bth[4] >> 7;
    t->becn = bth[4] >> 6 & 1;
    t->dest_qpn = ldl_be_p(bth + 4) & 0xffffff;
    t->ack_req = bth[8] >> 7;
    t->mark = bth[8] & QRNIC_MARKS;
    t->psn = ldl_be_p(bth + 8) & QRNIC_PSN_MASK;
}

/*
 * Headers before a RETH. A function of its own parses them, because few packets
 * have any.
 */
#define HDR_LEADING (QRNIC_HDR_XRCETH | QRNIC_HDR_DCETH | QRNIC_HDR_CARRIER | \
                     QRNIC_HDR_CONNECT | QRNIC_HDR_CNAK | QRNIC_HDR_CNP | \
                     QRNIC_HDR_DETH | QRNIC_HDR_FETH)

static const uint8_t *parse_leading(QrnicTransport *t, uint32_t flags,
                                    const uint8_t *h)
{
    if (flags & QRNIC_HDR_XRCETH) {
        t->srqn = ldl_be_p(h) & 0xffffff;
        h += 4;
    }
    if (flags & QRNIC_HDR_DCETH) {
        t->src_qpn = ldl_be_p(h) & 0xffffff;
        t->connection = ldl_be_p(h + 4) & 0xffffff;
        h += 8;
    }
    if (flags & QRNIC_HDR_CARRIER) {
        t->src_qpn = ldl_be_p(h) & 0xffffff;
        h += 4;
    }
    if (flags & QRNIC_HDR_CONNECT) {
        t->access_key = ldq_be_p(h);
        t->path_mtu = h[8];
        t->rd_atomic = h[9];
        h += 12;
    }
    if (flags & QRNIC_HDR_CNAK) {
        t->reason = h[0];
        h += 4;
    }
    if (flags & QRNIC_HDR_CNP) {
        t->cnp_reserved = ldq_be_p(h) | ldq_be_p(h + 8);
        h += 16;
    }
    if (flags & QRNIC_HDR_DETH) {
        t->qkey = ldl_be_p(h);
        t->src_qpn = ldl_be_p(h + 4) & 0xffffff;
        h += 8;
    }
    if (flags & QRNIC_HDR_FETH) {
        t->flush_type = h[3] & 0xf;
        t->flush_level = h[3] >> 4 & 3;
        h += 4;
    }
    return h;
}

static void parse_extensions(QrnicTransport *t, uint32_t flags,
                             const uint8_t *h)
{
    t->srqn = 0;
    if (flags & HDR_LEADING) {
        h = parse_leading(t, flags, h);
    }
    if (flags & QRNIC_HDR_RETH) {
        t->va = ldq_be_p(h);
        t->rkey = ldl_be_p(h + 8);
        t->dma_len = ldl_be_p(h + 12);
        h += 16;
    }
    if (flags & QRNIC_HDR_ATOMIC_ETH) {
        t->va = ldq_be_p(h);
        t->rkey = ldl_be_p(h + 8);
        t->swap_add = ldq_be_p(h + 12);
        t->compare = ldq_be_p(h + 20);
        h += 28;
    }
    if (flags & QRNIC_HDR_AETH) {
        t->syndrome = h[0];
        t->msn = ldl_be_p(h) & 0xffffff;
        h += 4;
    }
    if (flags & QRNIC_HDR_SACK) {
        t->missing_psn = ldl_be_p(h) & QRNIC_PSN_MASK;
        t->latest_transmission = h[4] & 7;
        t->latest_psn = ldl_be_p(h + 4) & QRNIC_PSN_MASK;
        t->arrived = h + 8;
        h += 8 + QRNIC_SACK_BYTES;
    }
    if (flags & QRNIC_HDR_ATOMIC_ACK) {
        t->original = ldq_be_p(h);
        h += 8;
    }
    if (flags & QRNIC_HDR_IMM) {
        t->imm = ldl_be_p(h);
        h += 4;
    }
    if (flags & QRNIC_HDR_IETH) {
        t->inv_key = ldl_be_p(h);
    }
}

static const uint8_t *bth_of(const QrnicHeaders *h)
{
    return h->frame + h->ip + h->ip_len +
           (h->network == QRNIC_NET_GRH ? 0 : QRNIC_UDP_LEN);
}

/* Returns the length from the BTH to the ICRC, or 0 if lengths contradict. */
static size_t transport_length(const QrnicHeaders *h)
{
    return h->network == QRNIC_NET_GRH ? v1_length(h) : v2_length(h);
}

/* Parses "left" bytes, from the BTH up to the ICRC. */
static inline QrnicParse parse_from_bth(QrnicPacket *p, const uint8_t *bth,
                                        size_t left)
{
    unsigned pad;

    parse_bth(&p->t, bth);
    p->info = qrnic_opcode_info(p->t.opcode);
    if (!(p->info->flags & QRNIC_OPF_DEFINED)) {
        return QRNIC_PARSE_OPCODE;
    }
    pad = bth[1] >> 4 & 3;
    if (bth[1] & 0xf || left < p->info->header_len + pad || left % 4) {
        return QRNIC_PARSE_MALFORMED;
    }
    parse_extensions(&p->t, p->info->flags, bth + QRNIC_BTH_LEN);
    p->payload = bth + p->info->header_len;
    p->payload_len = left - p->info->header_len - pad;
    if (p->payload_len + pad && !(p->info->flags & QRNIC_OPF_PAYLOAD)) {
        return QRNIC_PARSE_MALFORMED;
    }
    return QRNIC_PARSE_OK;
}

/* Parses a packet; left is the result of transport_length(). */
static QrnicParse parse_transport(QrnicPacket *p, const QrnicHeaders *h,
                                  size_t left)
{
    p->h = h;
    p->frame_len = h->ip + h->ip_total;
    return parse_from_bth(p, bth_of(h), left - QRNIC_ICRC_LEN);
}

QrnicParse qrnic_packet_parse_inner(QrnicPacket *p, const QrnicPacket *outer)
{
    if (outer->payload_len < QRNIC_BTH_LEN) {
        return QRNIC_PARSE_MALFORMED;
    }
    p->h = outer->h;
    p->frame_len = outer->payload_len;
    return parse_from_bth(p, outer->payload, outer->payload_len);
}

QrnicParse qrnic_packet_parse_unchecked(QrnicPacket *p, const QrnicHeaders *h)
{
    size_t left = transport_length(h);

    return left ? parse_transport(p, h, left) : QRNIC_PARSE_MALFORMED;
}

QrnicParse qrnic_packet_parse(QrnicPacket *p, const QrnicHeaders *h,
                              QrnicIcrcCover icrc)
{
    const uint8_t *ip = h->frame + h->ip;
    size_t left = transport_length(h);
    size_t icrc_at = h->ip_total - QRNIC_ICRC_LEN;

    if (!left) {
        return QRNIC_PARSE_MALFORMED;
    }
    if ((uint32_t)ldl_le_p(ip + icrc_at) !=
        qrnic_icrc(icrc, ip, icrc_at, h->network)) {
        return QRNIC_PARSE_ICRC;
    }
    return parse_transport(p, h, left);
}

static QrnicNetwork network_of(const QrnicPathSpec *spec)
{
    if (spec->v1) {
        return QRNIC_NET_GRH;
    }
    return qrnic_gid_is_ipv4(spec->dgid) ? QRNIC_NET_IPV4 : QRNIC_NET_IPV6;
}

void qrnic_path_init(QrnicPath *path, const QrnicPathSpec *spec)
{
    static const uint16_t ethertype[] = {
        [QRNIC_NET_IPV4] = QRNIC_ETHERTYPE_IPV4,
        [QRNIC_NET_IPV6] = QRNIC_ETHERTYPE_IPV6,
        [QRNIC_NET_GRH] = QRNIC_ETHERTYPE_ROCE_V1,
    };
    uint8_t *h = path->header;
    uint8_t hops = spec->hop_limit ? spec->hop_limit : DEFAULT_HOPS;
    bool v1 = spec->v1;

    memset(path, 0, sizeof(*path));
    path->spec = *spec;
    path->network = network_of(spec);
    memcpy(h, spec->dmac, 6);
    memcpy(h + 6, spec->smac, 6);
    h += 12;
    if (spec->vlan >= 0) {
        stw_be_p(h, QRNIC_ETHERTYPE_VLAN);
        stw_be_p(h + 2, (spec->priority & 7) << 13 | spec->vlan);
        h += QRNIC_VLAN_LEN;
    }
    stw_be_p(h, ethertype[path->network]);
    h += 2;
    path->ip_offset = h - path->header;
    if (path->network != QRNIC_NET_IPV4) {
        stl_be_p(h, 6u << 28 | spec->traffic_class << 20 |
                    (spec->flow_label & 0xfffff));
        h[6] = v1 ? QRNIC_GRH_NEXT_BTH : QRNIC_IP_PROTOCOL_UDP;
        h[7] = hops;
        memcpy(h + 8, spec->sgid, 16);
        memcpy(h + 24, spec->dgid, 16);
        h += QRNIC_IPV6_LEN;
    } else {
        h[0] = 0x45;
        h[1] = spec->traffic_class;
        stw_be_p(h + 6, IPV4_DF);
        h[8] = hops;
        h[9] = QRNIC_IP_PROTOCOL_UDP;
        memcpy(h + 12, spec->sgid + 12, 4);
        memcpy(h + 16, spec->dgid + 12, 4);
        path->ip_sum = ipv4_sum(h);
        h += QRNIC_IPV4_LEN;
    }
    if (!v1) {
        stw_be_p(h, spec->udp_sport);
        stw_be_p(h + 2, QRNIC_ROCE_UDP_PORT);
        h += QRNIC_UDP_LEN;
    }
    path->header_len = h - path->header;
}

bool qrnic_path_matches(const QrnicPath *path, const QrnicPacket *p)
{
    const QrnicHeaders *h = p->h;

    return path->network == h->network &&
           path->spec.vlan == h->vlan &&
           memcmp(path->spec.dgid, h->sgid, 16) == 0 &&
           memcmp(path->spec.sgid, h->dgid, 16) == 0 &&
           memcmp(path->spec.smac, h->frame, 6) == 0;
}

static uint8_t *build_leading(uint8_t *h, uint32_t flags,
                              const QrnicTransport *t)
{
    if (flags & QRNIC_HDR_XRCETH) {
        stl_be_p(h, t->srqn & 0xffffff);
        h += 4;
    }
    if (flags & QRNIC_HDR_DCETH) {
        stl_be_p(h, t->src_qpn & 0xffffff);
        stl_be_p(h + 4, t->connection & 0xffffff);
        h += 8;
    }
    if (flags & QRNIC_HDR_CARRIER) {
        stl_be_p(h, t->src_qpn & 0xffffff);
        h += 4;
    }
    if (flags & QRNIC_HDR_CONNECT) {
        stq_be_p(h, t->access_key);
        stl_be_p(h + 8, (uint32_t)t->path_mtu << 24 | t->rd_atomic << 16);
        h += 12;
    }
    if (flags & QRNIC_HDR_CNAK) {
        stl_be_p(h, (uint32_t)t->reason << 24);
        h += 4;
    }
    if (flags & QRNIC_HDR_CNP) {
        memset(h, 0, 16);
        h += 16;
    }
    if (flags & QRNIC_HDR_DETH) {
        stl_be_p(h, t->qkey);
        stl_be_p(h + 4, t->src_qpn & 0xffffff);
        h += 8;
    }
    if (flags & QRNIC_HDR_FETH) {
        stl_be_p(h, (t->flush_level & 3) << 4 | (t->flush_type & 0xf));
        h += 4;
    }
    return h;
}

static uint8_t *build_extensions(uint8_t *h, uint32_t flags,
                                 const QrnicTransport *t)
{
    if (flags & HDR_LEADING) {
        h = build_leading(h, flags, t);
    }
    if (flags & QRNIC_HDR_RETH) {
        stq_be_p(h, t->va);
        stl_be_p(h + 8, t->rkey);
        stl_be_p(h + 12, t->dma_len);
        h += 16;
    }
    if (flags & QRNIC_HDR_ATOMIC_ETH) {
        stq_be_p(h, t->va);
        stl_be_p(h + 8, t->rkey);
        stq_be_p(h + 12, t->swap_add);
        stq_be_p(h + 20, t->compare);
        h += 28;
    }
    if (flags & QRNIC_HDR_AETH) {
        stl_be_p(h, (uint32_t)t->syndrome << 24 | (t->msn & 0xffffff));
        h += 4;
    }
    if (flags & QRNIC_HDR_SACK) {
        stl_be_p(h, t->missing_psn & QRNIC_PSN_MASK);
        stl_be_p(h + 4, t->latest_transmission << 24 |
                        (t->latest_psn & QRNIC_PSN_MASK));
        memcpy(h + 8, t->arrived, QRNIC_SACK_BYTES);
        h += 8 + QRNIC_SACK_BYTES;
    }
    if (flags & QRNIC_HDR_ATOMIC_ACK) {
        stq_be_p(h, t->original);
        h += 8;
    }
    if (flags & QRNIC_HDR_IMM) {
        stl_be_p(h, t->imm);
        h += 4;
    }
    if (flags & QRNIC_HDR_IETH) {
        stl_be_p(h, t->inv_key);
        h += 4;
    }
    return h;
}

/* Writes BTH and extension headers. Returns the address of the payload. */
static inline uint8_t *build_transport(uint8_t *bth, const QrnicTransport *t,
                                       uint32_t flags, unsigned pad)
{
    bth[0] = t->opcode;
    /*
     * MigReq is set, because the path is never in another migration state
     * (17.2.8).
     */
    bth[1] = (t->solicited ? 0x80 : 0) | 0x40 | pad << 4;
    stw_be_p(bth + 2, t->pkey);
    stl_be_p(bth + 4, (t->fecn ? 1u << 31 : 0) | (t->becn ? 1u << 30 : 0) |
                      (t->dest_qpn & 0xffffff));
    stl_be_p(bth + 8, (t->ack_req ? 1u << 31 : 0) | t->mark << 24 |
                      (t->psn & QRNIC_PSN_MASK));
    return build_extensions(bth + QRNIC_BTH_LEN, flags, t);
}

uint8_t *qrnic_packet_begin(const QrnicPath *path, uint8_t *frame,
                            const QrnicTransport *t, uint32_t payload_len)
{
    const QrnicOpcodeInfo *info = qrnic_opcode_info(t->opcode);
    uint8_t *ip = frame + path->ip_offset;
    uint8_t *bth = frame + path->header_len;
    unsigned pad = -payload_len & 3;
    uint16_t len = info->header_len + payload_len + pad + QRNIC_ICRC_LEN;

    /*
     * The whole array is copied, because a copy of constant length needs only a
     * few instructions.
     */
    memcpy(frame, path->header, sizeof(path->header));
    if (path->network != QRNIC_NET_GRH) {
        len += QRNIC_UDP_LEN;
        stw_be_p(bth - QRNIC_UDP_LEN + 4, len);
    }
    if (path->network != QRNIC_NET_IPV4) {
        stw_be_p(ip + 4, len);
    } else {
        uint16_t total = QRNIC_IPV4_LEN + len;

        stw_be_p(ip + 2, total);
        stw_be_p(ip + 10, ~ipv4_fold(path->ip_sum + total));
    }
    return build_transport(bth, t, info->flags, pad);
}

static uint8_t *pad(uint8_t *payload, uint32_t payload_len)
{
    uint8_t *end = payload + payload_len;

    while ((end - payload) & 3) {
        *end++ = 0;
    }
    return end;
}

size_t qrnic_packet_finish(const QrnicPath *path, uint8_t *frame,
                           uint8_t *payload, uint32_t payload_len)
{
    uint8_t *end = pad(payload, payload_len);
    const uint8_t *ip = frame + path->ip_offset;

    stl_le_p(end, qrnic_icrc(path->spec.icrc, ip, end - ip, path->network));
    return end + QRNIC_ICRC_LEN - frame;
}

size_t qrnic_packet_finish_unchecked(uint8_t *frame, uint8_t *payload,
                                     uint32_t payload_len)
{
    uint8_t *end = pad(payload, payload_len);

    stl_le_p(end, 0);
    return end + QRNIC_ICRC_LEN - frame;
}

uint8_t *qrnic_packet_begin_inner(uint8_t *inner, const QrnicTransport *t,
                                    uint32_t payload_len)
{
    return build_transport(inner, t, qrnic_opcode_info(t->opcode)->flags,
                           -payload_len & 3);
}

size_t qrnic_packet_finish_inner(const uint8_t *inner, uint8_t *payload,
                                   uint32_t payload_len)
{
    return pad(payload, payload_len) - inner;
}
