/*
 * Operations of the fuzzer on the wire: replayed, changed and invented frames
 *
 * main.c calls each operation of fuzz_frame_ops with the parameters of a
 * record. See fuzz.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "fuzz.h"
#include "fuzz-contract.h"

#define TCP_HEADER 20
#define UDP_HEADER 8

static void inject(FuzzWorld *w, unsigned to, const uint8_t *frame, size_t len)
{
    SimNode *n = &w->sim->node[to];

    if (n->link ? qrnic_link_takes(n->link) :
                  qrnic_engine_can_receive(n->engine)) {
        sim_inject(w->sim, to, frame, len);
    }
}

/* Repeats an earlier frame, unchanged or with bytes of the input. */
static void op_replay(FuzzNode *f, Bytes *b)
{
    FuzzWorld *w = f->world;
    const uint8_t back = take8(b), how = take8(b);
    uint8_t frame[FUZZ_FRAME_MAX];
    unsigned i;
    size_t len;

    if (!w->kept_count) {
        return;
    }
    i = (w->kept_next - 1 - back % w->kept_count) % FUZZ_KEPT;
    len = w->kept[i].len;
    memcpy(frame, w->kept[i].data, len);
    if (how & 1) {
        fuzz_break(frame, MIN(len, 100), b);
    }
    if (how & 2) {
        len = MIN(len, 14 + take8(b));
    }
    inject(w, how & 4 ? !w->kept[i].to : w->kept[i].to, frame, len);
}

/* Changes some members of the transport headers. */
static void transport_break(QrnicTransport *t, Bytes *b)
{
    const uint8_t which = take8(b);
    const uint32_t n = fuzz_number(b);

    switch (which % 20) {
    case 0:
        t->psn = (t->psn + n) & QRNIC_PSN_MASK;
        break;
    case 1:
        t->opcode = fuzz_contract_packets[
            n % ARRAY_SIZE(fuzz_contract_packets)];
        break;
    case 2:
        t->mark = n & QRNIC_MARKS;
        break;
    case 3:
        t->rkey = n;
        break;
    case 4:
        t->va += n;
        break;
    case 5:
        t->dma_len = n;
        break;
    case 6:
        t->syndrome = n;
        break;
    case 7:
        t->msn = n & 0xffffff;
        break;
    case 8:
        t->missing_psn = (t->missing_psn + n) & QRNIC_PSN_MASK;
        break;
    case 9:
        t->latest_psn = (t->latest_psn + n) & QRNIC_PSN_MASK;
        t->latest_transmission = n & 7;
        break;
    case 10:
        t->src_qpn = n & 0xffffff;
        break;
    case 11:
        t->connection = (t->connection + n) & 0xffffff;
        break;
    case 12:
        t->access_key ^= n;
        break;
    case 13:
        t->path_mtu = n;
        t->rd_atomic = n >> 8;
        break;
    case 14:
        t->srqn = n & 0xffffff;
        break;
    case 15:
        t->inv_key = n;
        break;
    case 16:
        t->flush_type = n;
        t->flush_level = n >> 8;
        break;
    case 17:
        t->fecn = n & 1;
        t->becn = n & 2;
        t->solicited = n & 4;
        t->ack_req = n & 8;
        break;
    case 18:
        t->qkey = n;
        break;
    default:
        t->dest_qpn = n & 0xffffff;
    }
}

static QrnicPathSpec path_to(FuzzWorld *w, unsigned to, unsigned kind)
{
    FuzzNode *f = &w->node[to];
    QrnicPathSpec s = sim_path_to(&f->qp[kind].q,
                                  &w->node[!to].qp[kind].q);

    s.v1 = w->roce_v1;
    s.hop_limit = 64;
    s.traffic_class = w->connect.traffic_class;
    return s;
}

static void packet_send(FuzzWorld *w, unsigned to, unsigned kind,
                        const QrnicTransport *t, const uint8_t *payload,
                        uint32_t payload_len)
{
    const QrnicPathSpec spec = path_to(w, to, kind);
    uint8_t frame[FUZZ_FRAME_MAX], *p;
    QrnicPath path;

    payload_len = MIN(payload_len, 8192);
    qrnic_path_init(&path, &spec);
    p = qrnic_packet_begin(&path, frame, t, payload_len);
    if (payload) {
        memcpy(p, payload, payload_len);
    } else {
        memset(p, 0x5a, payload_len);
    }
    inject(w, to, frame, qrnic_packet_finish(&path, frame, p, payload_len));
}

/* Repeats an earlier packet with other headers and a valid ICRC. */
static void op_alter(FuzzNode *f, Bytes *b)
{
    FuzzWorld *w = f->world;
    const uint8_t back = take8(b), how = take8(b);
    uint8_t bits[QRNIC_SACK_BYTES];
    QrnicPacket p;
    uint32_t len;
    unsigned i;

    if (!w->kept_count) {
        return;
    }
    i = (w->kept_next - 1 - back % w->kept_count) % FUZZ_KEPT;
    if (sim_parse(&p, w->kept[i].data, w->kept[i].len) != QRNIC_PARSE_OK) {
        return;
    }
    for (unsigned k = 0; k < QRNIC_SACK_BYTES; k++) {
        bits[k] = p.info->flags & QRNIC_HDR_SACK ? p.t.arrived[k] : how;
    }
    for (unsigned k = 0; k <= how % 3; k++) {
        transport_break(&p.t, b);
    }
    if (how & 0x10) {
        fuzz_break(bits, sizeof(bits), b);
    }
    p.t.arrived = bits;
    len = how & 0x20 ? take16(b) % 1100 : p.payload_len;
    packet_send(w, w->kept[i].to, 0, &p.t, len <= p.payload_len ? p.payload :
                                          NULL, len);
}

/* Sends a packet that the peer's requester or responder could send next. */
static void op_packet(FuzzNode *f, Bytes *b)
{
    static const uint8_t service[] = {
        [QRNIC_QPT_RC] = QRNIC_SERVICE_RC, [QRNIC_QPT_UC] = QRNIC_SERVICE_UC,
        [QRNIC_QPT_UD] = QRNIC_SERVICE_UD, [QRNIC_QPT_GSI] = QRNIC_SERVICE_UD,
        [QRNIC_QPT_XRC_INI] = QRNIC_SERVICE_XRC,
        [QRNIC_QPT_XRC_TGT] = QRNIC_SERVICE_XRC,
        [QRNIC_QPT_DC_INI] = QRNIC_SERVICE_DC,
        [QRNIC_QPT_DC_TGT] = QRNIC_SERVICE_DC,
        [QRNIC_QPT_CARRIER] = QRNIC_SERVICE_CARRIER, [31] = 0,
    };
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);
    const uint8_t operation = take8(b), how = take8(b), delta = take8(b);
    FuzzNode *from = &f->world->node[!f->n->id];
    uint8_t bits[QRNIC_SACK_BYTES];
    QrnicTransport t;

    if (!q) {
        return;
    }
    memset(bits, operation, sizeof(bits));
    t = (QrnicTransport) {
        .opcode = service[q->ctx.type & 31] | (operation & 31),
        .pkey = QRNIC_PKEY_DEFAULT, .dest_qpn = q->q.number,
        .psn = (q->psn + (int8_t)delta) & QRNIC_PSN_MASK,
        .ack_req = how & 1, .mark = how & 2 ? take8(b) & QRNIC_MARKS : 0,
        .src_qpn = from->qp[kind].q.number, .qkey = 0x11111111,
        .srqn = f->srq[SRQ_XRC].number, .connection = 1,
        .access_key = FUZZ_ACCESS_KEY, .path_mtu = f->world->connect.path_mtu,
        .rd_atomic = 1, .va = f->data, .rkey = f->key[KEY_ALL],
        .dma_len = how & 4 ? 2000 : 100, .syndrome = how >> 3,
        .msn = take8(b), .missing_psn = q->psn, .arrived = bits,
        .latest_psn = q->psn, .flush_type = 1,
    };
    if (operation >= 0xf0) {
        t.opcode = QRNIC_OP_CNP;
        t.becn = true;
    }
    if (q->ctx.type == QRNIC_QPT_DC_TGT && operation & 0x80) {
        t.opcode = QRNIC_OP_DC_CONNECT | (operation & 3);
    }
    if (how & 0x80) {
        transport_break(&t, b);
    }
    packet_send(f->world, f->n->id, kind, &t, NULL, take16(b) % 1100);
}

/* Sends an ENCAPSULATED packet. Any part of it may be wrong. */
static void op_inner(FuzzNode *f, Bytes *b)
{
    FuzzNode *from = &f->world->node[!f->n->id];
    const uint8_t which = take8(b), how = take8(b), operation = take8(b);
    unsigned member = 0, carrier = 0;
    uint8_t inner[2200], bits[QRNIC_SACK_BYTES], *payload;
    QrnicTransport t, outer;
    uint32_t len = take8(b);

    for (unsigned i = 0; i < fuzz_num_kinds; i++) {
        if (f->qp[i].kind->member && (!member || which & 1)) {
            member = i;
        } else if (f->qp[i].ctx.type == QRNIC_QPT_CARRIER) {
            carrier = i;
        }
    }
    if (!f->qp[member].exists || !f->qp[carrier].exists) {
        return;
    }
    memset(bits, operation, sizeof(bits));
    t = (QrnicTransport) {
        .opcode = operation & 31, .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = f->qp[member].q.number, .va = f->data,
        .psn = (f->qp[member].psn + (int8_t)take8(b)) & QRNIC_PSN_MASK,
        .rkey = f->key[KEY_ALL], .dma_len = len, .syndrome = how,
        .msn = take8(b), .missing_psn = f->qp[member].psn, .arrived = bits,
    };
    outer = (QrnicTransport) {
        .opcode = QRNIC_OP_ENCAPSULATED, .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = f->qp[carrier].q.number,
        .src_qpn = from->qp[which & 2 ? carrier : member].q.number,
        .psn = (f->qp[carrier].psn + 1 + (which >> 4)) & QRNIC_PSN_MASK,
        .ack_req = true, .mark = how & 1 ? QRNIC_MARK_SELECTIVE : 0,
    };
    if (which & 8) {
        transport_break(how & 2 ? &t : &outer, b);
    }
    memset(inner, 0, sizeof(inner));
    payload = qrnic_packet_begin_inner(inner, &t, len);
    memset(payload, 0xa5, len);
    packet_send(f->world, f->n->id, carrier, &outer, inner,
                qrnic_packet_finish_inner(inner, payload, len));
}

static uint16_t checksum(const uint8_t *p, size_t len, uint32_t sum)
{
    for (size_t i = 0; i + 1 < len; i += 2) {
        sum += lduw_be_p(p + i);
    }
    sum += len & 1 ? p[len - 1] << 8 : 0;
    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16));
}

/*
 * Computes the checksums of the IPv4 header (RFC 791), and of TCP or UDP (RFC
 * 9293, RFC 768).
 */
static void checksums_fill(uint8_t *ip, unsigned ip_len, unsigned len,
                           bool tcp)
{
    const unsigned addresses = ip_len == 40 ? 32 : 8;
    uint8_t *l4 = ip + ip_len, *at = l4 + (tcp ? 16 : 6);
    uint32_t pseudo = len + (tcp ? 6 : 17);

    if (ip_len == 20) {
        stw_be_p(ip + 10, 0);
        stw_be_p(ip + 10, checksum(ip, ip_len, 0));
    }
    pseudo += (uint16_t)~checksum(l4 - addresses, addresses, 0);
    stw_be_p(at, 0);
    stw_be_p(at, checksum(l4, len, pseudo));
}

/*
 * Sends frames of a TCP or UDP flow, mostly in order, so that the device may
 * coalesce them.
 */
static void op_ethernet(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b), count = 1 + take8(b) % 8;
    const bool tcp = how & 1, ipv6 = how & 2;
    const unsigned ip = ipv6 ? 40 : 20, l4 = tcp ? TCP_HEADER : UDP_HEADER;
    uint32_t sequence = take8(b);
    uint8_t frame[2048] = { 0 };
    unsigned at = 14;

    memcpy(frame, f->n->gid.mac, 6);
    frame[0] |= how & 0x10 ? 1 : 0;
    frame[6] = 2;
    if (how & 4) {
        stw_be_p(frame + 12, 0x8100);
        stw_be_p(frame + 14, 42);
        at = 18;
    }
    stw_be_p(frame + at - 2, ipv6 ? 0x86dd : 0x0800);
    frame[at] = ipv6 ? 0x60 : 0x45;
    frame[at + (ipv6 ? 6 : 9)] = tcp ? 6 : 17;
    frame[at + (ipv6 ? 7 : 8)] = 64;
    for (unsigned i = 0; i < count; i++) {
        const unsigned len = 1 + take8(b) * 4;
        uint8_t *p = frame + at + ip;

        stw_be_p(frame + at + (ipv6 ? 4 : 2), (ipv6 ? 0 : ip) + l4 + len);
        stw_be_p(p, 1000 + (how >> 6));
        stw_be_p(p + 2, 80);
        if (tcp) {
            stl_be_p(p + 4, sequence);
            p[12] = 5 << 4;
            p[13] = 0x10 | (how & 8 && i + 1 == count ? 8 : 0);
        } else {
            stw_be_p(p + 4, l4 + len);
        }
        checksums_fill(frame + at, ip, l4 + len, tcp);
        sequence += how & 0x20 && i == 1 ? len + 1 : len;
        inject(f->world, f->n->id, frame, at + ip + l4 + len);
    }
}

static void op_garbage(FuzzNode *f, Bytes *b)
{
    uint8_t frame[128] = { 0 };
    const size_t len = take8(b) % sizeof(frame);

    memcpy(frame, f->n->gid.mac, 6);
    for (unsigned i = 12; i < len; i++) {
        frame[i] = take8(b);
    }
    inject(f->world, f->n->id, frame, len);
}

const FuzzOp fuzz_frame_ops[] = {
    { "replay", op_replay, 8 },
    { "alter", op_alter, 10 },
    { "packet", op_packet, 12 },
    { "inner", op_inner, 5 },
    { "ethernet", op_ethernet, 6 },
    { "garbage", op_garbage, 2 },
    { NULL },
};
