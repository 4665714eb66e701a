/*
 * qrnic qtest: encoder and decoder of RoCE frames
 *
 * Works byte by byte, and computes the ICRC bit by bit, so that each line can
 * be compared with the specification. InfiniBand specification, chapter 9, 8.3
 * (GRH) and annexes A16 and A17.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "wire-peer.h"

#define ROCE_UDP_PORT 4791
#define ROCE_V1_TYPE 0x8915
#define GRH_BYTES 40
#define GRH_NEXT_BTH 0x1b

static uint8_t *put(uint8_t *p, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        p[i] = value >> (8 * (bytes - 1 - i));
    }
    return p + bytes;
}

static uint64_t get(const uint8_t **p, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++) {
        value = value << 8 | (*p)[i];
    }
    *p += bytes;
    return value;
}

bool peer_has_deth(uint8_t opcode)
{
    return opcode == UD_SEND_ONLY || opcode == UD_SEND_ONLY_IMM;
}

/* Returns true for requests of XRC. */
bool peer_has_xrceth(uint8_t opcode)
{
    return opcode >= XRC(RC_SEND_FIRST) && opcode <= XRC(RC_SEND_ONLY_INV) &&
           !(opcode >= XRC(RC_READ_FIRST) && opcode <= XRC(RC_ATOMIC_ACK));
}

bool peer_has_dceth(uint8_t opcode)
{
    return opcode >= DC(0) && opcode <= DC_DISCONNECT;
}

/* Returns the opcode of RC with the headers of this opcode. */
static uint8_t without_xrc(uint8_t opcode)
{
    return opcode >> 5 == XRC(0) >> 5 || opcode >> 5 == DC(0) >> 5 ||
           opcode > ENCAPSULATED ? opcode & 0x1f : opcode;
}

bool peer_has_reth(uint8_t opcode)
{
    opcode = without_xrc(opcode);
    return opcode == RC_WRITE_FIRST || opcode == RC_WRITE_ONLY ||
           opcode == RC_WRITE_ONLY_IMM || opcode == RC_READ_REQUEST ||
           opcode == RC_FLUSH || opcode == RC_ATOMIC_WRITE ||
           opcode == UC_WRITE_FIRST || opcode == UC_WRITE_ONLY ||
           opcode == UC_WRITE_ONLY_IMM;
}

bool peer_has_aeth(uint8_t opcode)
{
    opcode = without_xrc(opcode);
    return opcode == RC_READ_FIRST || opcode == RC_READ_LAST ||
           opcode == RC_READ_ONLY || opcode == RC_ACK ||
           opcode == RC_ATOMIC_ACK || opcode == RC_SACK;
}

bool peer_has_imm(uint8_t opcode)
{
    opcode = without_xrc(opcode);
    return opcode == RC_SEND_LAST_IMM || opcode == RC_SEND_ONLY_IMM ||
           opcode == RC_WRITE_LAST_IMM || opcode == RC_WRITE_ONLY_IMM ||
           opcode == RC_SEND_LAST_INV || opcode == RC_SEND_ONLY_INV ||
           opcode == UC_SEND_LAST_IMM || opcode == UC_SEND_ONLY_IMM ||
           opcode == UC_WRITE_LAST_IMM || opcode == UC_WRITE_ONLY_IMM ||
           opcode == UD_SEND_ONLY_IMM;
}

bool peer_is_atomic(uint8_t opcode)
{
    opcode = without_xrc(opcode);
    return opcode == RC_CMP_SWAP || opcode == RC_FETCH_ADD;
}

static uint32_t crc32_bit(uint32_t crc, const uint8_t *p, size_t len)
{
    while (len--) {
        crc ^= *p++;
        for (int i = 0; i < 8; i++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
        }
    }
    return crc;
}

/* Computes the ICRC of RoCE v2. Variant fields count as ones (A17.3.3). */
static uint32_t icrc(const uint8_t *ip, bool ipv6, size_t bytes)
{
    static const uint8_t ones[8] = { [0 ... 7] = 0xff };
    size_t ip_len = ipv6 ? 40 : 20;
    uint8_t *copy = g_memdup2(ip, bytes);
    uint32_t crc;

    if (ipv6) {
        copy[0] |= 0x0f;
        memset(copy + 1, 0xff, 3);
        copy[7] = 0xff;
    } else {
        copy[1] = 0xff;
        copy[8] = 0xff;
        copy[10] = copy[11] = 0xff;
    }
    copy[ip_len + 6] = copy[ip_len + 7] = 0xff;
    copy[ip_len + 8 + 4] = 0xff;
    crc = crc32_bit(0xffffffff, ones, sizeof(ones));
    crc = ~crc32_bit(crc, copy, bytes);
    g_free(copy);
    return crc;
}

/*
 * Computes the ICRC of RoCE v1. The LRH and the fields that a router may change
 * count as ones (7.8.1 and A16.4).
 */
static uint32_t icrc_v1(const uint8_t *grh, size_t bytes)
{
    uint8_t *copy = g_malloc(8 + bytes);
    uint32_t crc;

    memset(copy, 0xff, 8);
    memcpy(copy + 8, grh, bytes);
    copy[8] |= 0x0f;                            /* TClass, FlowLabel */
    copy[9] = copy[10] = copy[11] = 0xff;
    copy[8 + 7] = 0xff;                         /* HopLmt */
    copy[8 + GRH_BYTES + 4] = 0xff;             /* resv8a */
    crc = ~crc32_bit(0xffffffff, copy, 8 + bytes);
    g_free(copy);
    return crc;
}

static uint16_t ip_checksum(const uint8_t *p)
{
    uint32_t sum = 0;

    for (int i = 0; i < 20; i += 2) {
        sum += p[i] << 8 | p[i + 1];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

static uint8_t *put_transport(uint8_t *w, const PeerPacket *p)
{
    unsigned pad = p->pad ? p->pad : -p->length & 3;

    w = put(w, p->opcode, 1);
    w = put(w, p->solicited << 7 | 1 << 6 | pad << 4 | p->tver, 1);
    w = put(w, p->pkey ? p->pkey : 0xffff, 2);
    w = put(w, p->dest_qpn | (uint32_t)p->notify << 24, 4);
    w = put(w, (uint32_t)p->ack_request << 31 | p->mark << 24 | p->psn, 4);
    if (peer_has_xrceth(p->opcode)) {
        w = put(w, p->xrceth, 4);
    }
    if (peer_has_dceth(p->opcode)) {
        w = put(w, p->dceth[0], 4);
        w = put(w, p->dceth[1], 4);
    }
    if (p->opcode == DC_CONNECT) {
        w = put(w, p->access_key, 8);
        w = put(w, p->parameters, 4);
    } else if (p->opcode == DC_CNAK) {
        w = put(w, p->reason, 4);
    }
    if (peer_has_deth(p->opcode)) {
        w = put(w, p->qkey, 4);
        w = put(w, p->src_qpn, 4);
    }
    if (p->opcode == RC_FLUSH) {
        w = put(w, p->feth, 4);
    }
    if (peer_has_reth(p->opcode)) {
        w = put(w, p->va, 8);
        w = put(w, p->rkey, 4);
        w = put(w, p->dma_length, 4);
    }
    if (peer_is_atomic(p->opcode)) {
        w = put(w, p->va, 8);
        w = put(w, p->rkey, 4);
        w = put(w, p->swap_add, 8);
        w = put(w, p->compare, 8);
    }
    if (peer_has_aeth(p->opcode)) {
        w = put(w, (uint32_t)p->syndrome << 24 | p->msn, 4);
    }
    if (without_xrc(p->opcode) == RC_ATOMIC_ACK) {
        w = put(w, p->original, 8);
    }
    if (peer_has_imm(p->opcode)) {
        w = put(w, p->imm, 4);
    }
    if (p->length) {
        memcpy(w, p->payload, p->length);
    }
    w += p->length;
    return put(w, 0, pad);
}

static uint8_t *put_ip(uint8_t *w, const PeerPacket *p, size_t udp_len)
{
    uint8_t *ip = w;

    if (p->ipv6) {
        w = put(w, 6u << 28 | (uint32_t)p->tos << 20 | p->flow_label, 4);
        w = put(w, udp_len, 2);
        w = put(w, 17, 1);
        w = put(w, p->ttl ? p->ttl : 64, 1);
        memcpy(w, p->sip, 16);
        memcpy(w + 16, p->dip, 16);
        return w + 32;
    }
    w = put(w, 0x45, 1);
    w = put(w, p->tos, 1);
    w = put(w, 20 + udp_len, 2);
    w = put(w, 0x4000, 4);
    w = put(w, p->ttl ? p->ttl : 64, 1);
    w = put(w, 17, 1);
    w = put(w, 0, 2);
    memcpy(w, p->sip, 4);
    memcpy(w + 4, p->dip, 4);
    put(ip + 10, ip_checksum(ip), 2);
    return w + 8;
}

static uint8_t *put_grh(uint8_t *w, const PeerPacket *p, size_t payload_len)
{
    w = put(w, 6u << 28 | (uint32_t)p->tos << 20 | p->flow_label, 4);
    w = put(w, payload_len + p->udp_length_delta, 2);
    w = put(w, p->next_header ? p->next_header : GRH_NEXT_BTH, 1);
    w = put(w, p->ttl ? p->ttl : 64, 1);
    memcpy(w, p->sip, 16);
    memcpy(w + 16, p->dip, 16);
    return w + 32;
}

size_t peer_encode_inner(const PeerPacket *p, uint8_t *bytes)
{
    return put_transport(bytes, p) - bytes;
}

size_t peer_encode(const PeerPacket *p, uint8_t *frame)
{
    uint8_t transport[PEER_FRAME_MAX];
    size_t transport_len = put_transport(transport, p) - transport;
    size_t udp_len = 8 + transport_len + 4;
    uint8_t *w = frame, *ip;
    uint32_t crc;

    memcpy(w, p->dmac, 6);
    memcpy(w + 6, p->smac, 6);
    w += 12;
    if (p->vlan >= 0) {
        w = put(w, 0x8100, 2);
        w = put(w, p->vlan, 2);
    }
    w = put(w, p->v1 ? ROCE_V1_TYPE : p->ipv6 ? 0x86dd : 0x0800, 2);
    ip = w;
    if (p->v1) {
        w = put_grh(w, p, transport_len + 4);
    } else {
        w = put_ip(w, p, udp_len);
        w = put(w, p->sport ? p->sport : 0xc123, 2);
        w = put(w, ROCE_UDP_PORT, 2);
        w = put(w, udp_len + p->udp_length_delta, 2);
        w = put(w, 0, 2);
    }
    memcpy(w, transport, transport_len);
    w += transport_len;
    crc = (p->v1 ? icrc_v1(ip, w - ip) : icrc(ip, p->ipv6, w - ip)) ^
          p->icrc_flip;
    for (int i = 0; i < 4; i++) {
        *w++ = crc >> 8 * i;
    }
    return w - frame;
}

static void get_transport(const uint8_t *r, const uint8_t *end, PeerPacket *p)
{
    uint8_t flags;
    uint32_t word;

    p->opcode = get(&r, 1);
    flags = get(&r, 1);
    p->solicited = flags >> 7;
    p->pad = flags >> 4 & 3;
    p->tver = flags & 15;
    p->pkey = get(&r, 2);
    p->notify = get(&r, 1);
    g_assert_cmphex(p->notify & 0x3f, ==, 0);
    p->dest_qpn = get(&r, 3);
    word = get(&r, 4);
    p->ack_request = word >> 31;
    p->mark = word >> 24 & 0x7f;
    p->psn = word & 0xffffff;
    if (peer_has_xrceth(p->opcode)) {
        p->xrceth = get(&r, 4);
    }
    if (peer_has_dceth(p->opcode)) {
        p->dceth[0] = get(&r, 4);
        p->dceth[1] = get(&r, 4);
    }
    if (p->opcode == DC_CONNECT) {
        p->access_key = get(&r, 8);
        p->parameters = get(&r, 4);
    } else if (p->opcode == DC_CNAK) {
        p->reason = get(&r, 4);
    }
    if (peer_has_deth(p->opcode)) {
        p->qkey = get(&r, 4);
        p->src_qpn = get(&r, 4);
        g_assert_cmphex(p->src_qpn >> 24, ==, 0);
    }
    if (p->opcode == RC_FLUSH) {
        p->feth = get(&r, 4);
    }
    if (peer_has_reth(p->opcode)) {
        p->va = get(&r, 8);
        p->rkey = get(&r, 4);
        p->dma_length = get(&r, 4);
    }
    if (peer_is_atomic(p->opcode)) {
        p->va = get(&r, 8);
        p->rkey = get(&r, 4);
        p->swap_add = get(&r, 8);
        p->compare = get(&r, 8);
    }
    if (peer_has_aeth(p->opcode)) {
        p->syndrome = get(&r, 1);
        p->msn = get(&r, 3);
    }
    if (without_xrc(p->opcode) == RC_ATOMIC_ACK) {
        p->original = get(&r, 8);
    }
    if (peer_has_imm(p->opcode)) {
        p->imm = get(&r, 4);
    }
    g_assert(r + p->pad <= end);
    p->payload = r;
    p->length = end - r - p->pad;
}

void peer_decode_inner(const uint8_t *bytes, size_t len, PeerPacket *p)
{
    memset(p, 0, sizeof(*p));
    g_assert_cmpuint(len, >=, 12);
    g_assert_cmpuint(len % 4, ==, 0);
    get_transport(bytes, bytes + len, p);
}

static uint32_t get_crc(const uint8_t *p)
{
    return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

static void decode_v1(const uint8_t *grh, const uint8_t *frame_end,
                      PeerPacket *p)
{
    const uint8_t *r = grh, *end;
    uint32_t word = get(&r, 4);
    uint16_t payload_len = get(&r, 2);

    p->v1 = true;
    g_assert_cmpuint(word >> 28, ==, 6);
    p->tos = word >> 20;
    p->flow_label = word & 0xfffff;
    g_assert_cmpuint(get(&r, 1), ==, GRH_NEXT_BTH);
    p->ttl = get(&r, 1);
    memcpy(p->sip, r, 16);
    memcpy(p->dip, r + 16, 16);
    r += 32;
    g_assert_cmpuint(payload_len, >=, 12 + 4);
    end = r + payload_len - 4;
    g_assert(end + 4 <= frame_end);
    g_assert_cmphex(get_crc(end), ==, icrc_v1(grh, end - grh));
    get_transport(r, end, p);
}

void peer_decode(const uint8_t *frame, size_t len, PeerPacket *p)
{
    const uint8_t *r = frame, *ip, *end;
    uint16_t type, udp_len, ip_len;

    memset(p, 0, sizeof(*p));
    g_assert_cmpuint(len, >=, 14 + 20 + 8 + 12 + 4);
    memcpy(p->dmac, r, 6);
    memcpy(p->smac, r + 6, 6);
    r += 12;
    p->vlan = -1;
    type = get(&r, 2);
    if (type == 0x8100) {
        p->vlan = get(&r, 2);
        type = get(&r, 2);
    }
    ip = r;
    if (type == ROCE_V1_TYPE) {
        decode_v1(ip, frame + len, p);
        return;
    }
    if (type == 0x86dd) {
        uint32_t word = get(&r, 4);

        p->ipv6 = true;
        g_assert_cmpuint(word >> 28, ==, 6);
        p->tos = word >> 20;
        p->flow_label = word & 0xfffff;
        ip_len = get(&r, 2);
        g_assert_cmpuint(get(&r, 1), ==, 17);
        p->ttl = get(&r, 1);
        memcpy(p->sip, r, 16);
        memcpy(p->dip, r + 16, 16);
        r += 32;
    } else {
        g_assert_cmphex(type, ==, 0x0800);
        g_assert_cmphex(get(&r, 1), ==, 0x45);
        p->tos = get(&r, 1);
        ip_len = get(&r, 2) - 20;
        get(&r, 4);
        p->ttl = get(&r, 1);
        g_assert_cmpuint(get(&r, 1), ==, 17);
        get(&r, 2);
        g_assert_cmphex(ip_checksum(ip), ==, 0);
        memcpy(p->sip, r, 4);
        memcpy(p->dip, r + 4, 4);
        r += 8;
    }
    p->sport = get(&r, 2);
    g_assert_cmpuint(get(&r, 2), ==, ROCE_UDP_PORT);
    udp_len = get(&r, 2);
    g_assert_cmpuint(udp_len, ==, ip_len);
    g_assert_cmphex(get(&r, 2), ==, 0);
    end = r + udp_len - 8 - 4;
    g_assert(end + 4 <= frame + len);
    g_assert_cmphex(get_crc(end), ==, icrc(ip, p->ipv6, end - ip));
    get_transport(r, end, p);
}
