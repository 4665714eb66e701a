/*
 * qrnic qtest: functions of all tests with frames to carriers; see
 * crafted-shared.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted-shared.h"

static void carrier_create(Shared *s, Qp *carrier)
{
    const QrnicQpCtx ctx = { .type = QRNIC_QPT_CARRIER };
    uint8_t raw[QRNIC_QP_CTX_BYTES];

    qrnic_qp_ctx_pack(raw, &ctx);
    carrier->number = command_ok(s->c.r.d, QRNIC_CMD_CREATE_QP, 0, raw,
                                 sizeof(raw), NULL, 0);
}

QrnicQpAttr carrier_attr(uint32_t dest_qpn, uint8_t options)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.dest_qpn = dest_qpn;
    attr.options = options;
    attr.sq_psn = CARRIER_SQ_PSN;
    attr.rq_psn = CARRIER_RQ_PSN;
    return attr;
}

void carrier_to_rtr(Shared *s, Qp *carrier, const QrnicQpAttr *attr)
{
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT,
        .state = QRNIC_QPS_INIT, .port = attr->port,
    };

    qp_modify(s->c.r.d, carrier, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
                QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN | QRNIC_QP_OPTIONS,
        .state = QRNIC_QPS_RTR, .av = attr->av, .path_mtu = attr->path_mtu,
        .dest_qpn = attr->dest_qpn, .rq_psn = attr->rq_psn,
        .options = attr->options,
    };
    qp_modify(s->c.r.d, carrier, &step);
}

void carrier_to_rts(Shared *s, Qp *carrier, const QrnicQpAttr *attr)
{
    const QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT |
                QRNIC_QP_SQ_PSN,
        .state = QRNIC_QPS_RTS, .timeout = attr->timeout,
        .retry_cnt = attr->retry_cnt, .sq_psn = attr->sq_psn,
    };

    qp_modify(s->c.r.d, carrier, &step);
}

static void member_connect(Shared *s, unsigned m, bool rtr_only)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.dest_qpn = PEER_MEMBER(m);
    attr.sq_psn = MEMBER_SQ_PSN(m);
    attr.rq_psn = MEMBER_RQ_PSN(m);
    attr.carrier = (m == ELSEWHERE ? &s->other : &s->carrier)->number;
    if (rtr_only) {
        qp_to_rtr(s->c.r.d, &s->member[m], &attr);
    } else {
        qp_connect(s->c.r.d, &s->member[m], &attr);
    }
}

void member_enter(Shared *s, unsigned m, uint8_t state)
{
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE, .state = state == QRNIC_QPS_ERR ?
                                         QRNIC_QPS_ERR : QRNIC_QPS_RESET,
    };

    qp_modify(s->c.r.d, &s->member[m], &step);
    if (state == QRNIC_QPS_INIT) {
        step = (QrnicQpAttr) {
            .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                    QRNIC_QP_ACCESS_FLAGS,
            .state = QRNIC_QPS_INIT, .port = 1,
            .access = QRNIC_ACCESS_REMOTE_WRITE,
        };
        qp_modify(s->c.r.d, &s->member[m], &step);
    } else if (state == QRNIC_QPS_RTR || state == QRNIC_QPS_RTS) {
        member_connect(s, m, state == QRNIC_QPS_RTR);
    }
}

void shared_expect_state(Shared *s, const Qp *qp, uint8_t state)
{
    QrnicQpAttr attr;

    qp_query(s->c.r.d, qp, &attr);
    g_assert_cmpstr(qrnic_qp_state_name(attr.state), ==,
                    qrnic_qp_state_name(state));
}

static void start(Shared *s, uint8_t options)
{
    const QrnicQpAttr attr = carrier_attr(PEER_OTHER, options);
    Rig *r = &s->c.r;

    memset(s, 0, sizeof(*s));
    crafted_start(&s->c, "", NULL);
    s->options = options;
    s->psn = CARRIER_RQ_PSN;
    s->sent = CARRIER_SQ_PSN;
    carrier_create(s, &s->carrier);
    carrier_create(s, &s->other);
    for (unsigned m = 0; m < MEMBERS; m++) {
        qp_create(r->d, &s->member[m], QRNIC_QPT_RC, r->pd, r->page,
                  &r->send_cq, &r->recv_cq, 5, 3, 0);
    }
    carrier_to_rtr(s, &s->other, &attr);
    carrier_to_rts(s, &s->other, &attr);
    member_connect(s, ELSEWHERE, false);
}

void shared_start_alone(Shared *s)
{
    start(s, 0);
    crafted_counted(&s->c, "");
}

void shared_join(Shared *s)
{
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        member_connect(s, m, false);
    }
}

void shared_start(Shared *s, uint8_t options)
{
    const QrnicQpAttr attr = carrier_attr(PEER_CARRIER, options);

    start(s, options);
    carrier_to_rtr(s, &s->carrier, &attr);
    carrier_to_rts(s, &s->carrier, &attr);
    shared_join(s);
    crafted_counted(&s->c, "");
}

void shared_stop(Shared *s)
{
    crafted_stop(&s->c);
}

PeerPacket member_packet(const Shared *s, unsigned m, uint8_t opcode,
                         uint32_t psn)
{
    return peer_packet(&s->member[m], opcode, psn);
}

static PeerPacket write_of(Shared *s, unsigned m, uint32_t psn,
                           uint64_t offset, uint8_t byte)
{
    static uint8_t data[HONEST];
    PeerPacket p = member_packet(s, m, RC_WRITE_ONLY, psn);

    memset(data, byte, sizeof(data));
    p.va = s->c.mr.start + offset;
    p.rkey = s->c.mr.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    p.ack_request = true;
    return p;
}

PeerPacket member_write(Shared *s, unsigned m, uint32_t psn, unsigned n)
{
    return write_of(s, m, psn, CRAFTED_HONEST + n * HONEST, 0x10 + n);
}

PeerPacket member_forgery(Shared *s, unsigned m)
{
    return write_of(s, m, AT(MEMBER_RQ_PSN(m), s->written[m]), 0,
                    CRAFTED_BYTE);
}

static PeerPacket to_carrier(const Shared *s, uint8_t opcode, uint32_t psn)
{
    PeerPacket p = peer_packet(&s->carrier, opcode, psn);

    p.mark = s->options & QRNIC_QPO_SELECTIVE_REPEAT ? MARK_SELECTIVE : 0;
    return p;
}

PeerPacket shared_introduction(Shared *s, uint32_t psn)
{
    PeerPacket p = to_carrier(s, ENCAPSULATED, psn);

    stl_be_p(s->bytes, PEER_CARRIER);
    p.payload = s->bytes;
    p.length = WORD;
    p.ack_request = true;
    return p;
}

PeerPacket shared_carry(Shared *s, const PeerPacket *inner, uint32_t psn)
{
    PeerPacket p = shared_introduction(s, psn);

    g_assert_cmpuint(inner->length, <=, INNER_MAX - 64);
    p.length += peer_encode_inner(inner, s->bytes + WORD);
    return p;
}

void shared_send(Shared *s, const PeerPacket *inner, uint32_t psn)
{
    const PeerPacket p = shared_carry(s, inner, psn);

    peer_send(s->c.r.d, &p);
}

void shared_write(Shared *s, unsigned m, uint32_t psn, unsigned n)
{
    const PeerPacket p = member_write(s, m, AT(MEMBER_RQ_PSN(m),
                                               s->written[m]++), n);

    crafted_wrote(&s->c, CRAFTED_HONEST + n * HONEST, 0x10 + n, HONEST);
    shared_send(s, &p, psn);
}

/* Removes a frame from the queue of early frames. Returns its length. */
static size_t early_take(Shared *s, unsigned i, uint8_t *frame)
{
    size_t len = s->early[i].len;

    memcpy(frame, s->early[i].bytes, len);
    memmove(&s->early[i], &s->early[i + 1],
            (--s->num_early - i) * sizeof(s->early[0]));
    return len;
}

static PeerPacket next_frame(Shared *s, bool inner)
{
    static uint8_t frame[PEER_FRAME_MAX];
    PeerPacket p;

    for (unsigned i = 0;; i++) {
        size_t len;

        g_assert_cmpuint(i, <, ARRAY_SIZE(s->early));
        if (i == s->num_early) {
            s->early[i].len = wire_receive(s->c.r.d, s->early[i].bytes);
            s->num_early++;
        }
        peer_decode(s->early[i].bytes, s->early[i].len, &p);
        if ((p.opcode == ENCAPSULATED) == inner) {
            len = early_take(s, i, frame);
            peer_decode(frame, len, &p);
            break;
        }
    }
    g_assert_cmphex(p.dest_qpn, ==, PEER_CARRIER);
    g_assert_cmphex(p.pkey, ==, 0xffff);
    g_assert_cmphex(p.mark & 0x0f, ==,
                    s->options & QRNIC_QPO_SELECTIVE_REPEAT ?
                    MARK_SELECTIVE : 0);
    return p;
}

void shared_expect_answer(Shared *s, uint8_t opcode, uint8_t syndrome,
                          uint32_t psn)
{
    const PeerPacket p = next_frame(s, false);

    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.psn, ==, psn & 0xffffff);
    g_assert_cmphex(p.syndrome, ==, syndrome);
}

void shared_expect_ack(Shared *s, uint32_t psn)
{
    shared_expect_answer(s, CARRIER_ACK, AETH_ACK | 31, psn);
}

void shared_expect_sack(Shared *s)
{
    shared_expect_answer(s, CARRIER_SACK, AETH_ACK | 31, AT(s->psn, -1));
}

PeerPacket shared_next_inner(Shared *s, PeerPacket *outer)
{
    PeerPacket p = { 0 };

    *outer = next_frame(s, true);
    g_assert_cmphex(outer->psn, ==, s->sent);
    s->sent = AT(s->sent, 1);
    g_assert_cmpuint(outer->length, >=, WORD);
    g_assert_cmphex(ldl_be_p(outer->payload), ==, s->carrier.number);
    if (outer->length > WORD) {
        peer_decode_inner(outer->payload + WORD, outer->length - WORD, &p);
    }
    return p;
}

PeerPacket shared_expect_inner(Shared *s, unsigned m, uint8_t opcode,
                                 uint32_t psn)
{
    PeerPacket outer;
    const PeerPacket p = shared_next_inner(s, &outer);

    g_assert_cmpuint(outer.length, >, WORD);
    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.dest_qpn, ==, PEER_MEMBER(m));
    g_assert_cmphex(p.psn, ==, psn & 0xffffff);
    g_assert_cmphex(p.pkey, ==, 0xffff);
    g_assert_cmphex(p.mark, ==, 0);
    return p;
}

PeerPacket shared_answer(const Shared *s, uint8_t opcode, uint32_t psn,
                         uint8_t syndrome)
{
    PeerPacket p = to_carrier(s, opcode, psn);

    p.syndrome = syndrome;
    return p;
}

void shared_ack(Shared *s)
{
    const PeerPacket p = shared_answer(s, CARRIER_ACK, AT(s->sent, -1),
                                       AETH_ACK | 31);

    peer_send(s->c.r.d, &p);
}

PeerPacket shared_sack(Shared *s, uint32_t missing, uint8_t arrived)
{
    PeerPacket p = shared_answer(s, CARRIER_SACK,
                                 AT(CARRIER_SQ_PSN, (int)missing - 1),
                                 AETH_ACK | 31);

    memset(s->bytes, 0, SACK_BYTES);
    stl_be_p(s->bytes, AT(CARRIER_SQ_PSN, missing));
    s->bytes[8] = arrived;
    p.payload = s->bytes;
    p.length = SACK_BYTES;
    return p;
}

void wrong_source(Shared *s, PeerPacket *p)
{
    p->sip[3] ^= 0x40;
}

void wrong_vlan(Shared *s, PeerPacket *p)
{
    p->vlan = 0;
    wrong_source(s, p);
}

void wrong_icrc(Shared *s, PeerPacket *p)
{
    p->icrc_flip = 0x80000000;
}

void wrong_pkey(Shared *s, PeerPacket *p)
{
    p->pkey = 0x1234;
}

void shared_quiet(Shared *s, const char *counted)
{
    crafted_counted(&s->c, counted);
    crafted_quiet(&s->c);
    g_assert_cmpuint(s->num_early, ==, 0);
}

void shared_works(Shared *s, unsigned n)
{
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        shared_write(s, m, s->psn, n + m);
        shared_expect_ack(s, s->psn);
        shared_expect_inner(s, m, RC_ACK, AT(MEMBER_RQ_PSN(m),
                                               s->written[m] - 1));
        shared_ack(s);
        s->psn = AT(s->psn, 1);
        shared_quiet(s, "tx_inner rx_inner rx_write tx_ack=2 rx_ack");
    }
}

void member_post(Shared *s, unsigned m, uint8_t opcode, uint32_t length)
{
    Wqe w = wqe_begin(opcode, QRNIC_WQEF_SIGNALED);

    if (opcode != QRNIC_WQE_SEND) {
        wqe_remote(&w, 0x5000, 0x77);
    }
    wqe_data(&w, s->c.mr.start, length, s->c.mr.key);
    sq_post(s->c.r.d, &s->member[m], &w);
}

void member_answer(Shared *s, unsigned m, uint32_t psn, uint8_t syndrome,
                   uint32_t carrier_psn)
{
    PeerPacket p = member_packet(s, m, RC_ACK, psn);

    p.syndrome = syndrome;
    shared_send(s, &p, carrier_psn);
}

void member_completed(Shared *s, unsigned m, unsigned status, unsigned opcode,
                      unsigned syndrome)
{
    QrnicCqe cqe;

    cq_wait(s->c.r.d, &s->c.r.send_cq, &cqe);
    g_assert_cmphex(cqe.qpn, ==, s->member[m].number);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
    if (status == QRNIC_WC_SUCCESS) {
        g_assert_cmphex(cqe.opcode, ==, opcode);
    }
}

void shared_expect_event(Shared *s, unsigned event, const Qp *qp)
{
    QrnicEqe eqe;

    eq_wait(s->c.r.d, &s->c.r.async, &eqe);
    g_assert_cmpstr(qrnic_event_name(eqe.type), ==, qrnic_event_name(event));
    g_assert_cmphex(eqe.object, ==, qp->number);
}

void shared_add(const char *rule, const char *suffix,
                void (*test)(const void *opaque), const void *opaque)
{
    g_autofree char *path = g_strdup_printf("qrnic/crafted/shared/%s%s", rule,
                                            suffix);

    qtest_add_data_func(path, opaque, test);
}
