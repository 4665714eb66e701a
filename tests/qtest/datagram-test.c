/*
 * qrnic qtest: unreliable datagrams, and the general services interface
 *
 * Asserts exact frames of the device, and sends crafted frames. Programmer's
 * Reference, chapter Datagrams; InfiniBand specification, 9.8.3.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define QKEY 0x11223344u
#define QKEY_PRIVILEGED 0x80000000u
#define GRH 40
#define VLAN_IP4 "\x0a\x00\x00\x03"

static const uint8_t our_ip6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 };
static const uint8_t peer_ip6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 2 };

/* Entries of the GID table: source or destination of a datagram */
enum { GID_IP4, GID_IP6, GID_VLAN };

/* Replaces r->qp by a UD queue pair in RTS. */
static void ud_start(Rig *r)
{
    uint8_t gid[16];

    rig_start(r, "", NULL);
    gid_set(r->d, GID_IP6, our_ip6, -1);
    gid_of_ip4(gid, VLAN_IP4);
    gid_set(r->d, GID_VLAN, gid, 7);
    qp_create(r->d, &r->qp, QRNIC_QPT_UD, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 5, 3, 0);
    qp_start_datagram(r->d, &r->qp, QKEY);
}

static QrnicCmdEntry create(Rig *r, unsigned type, uint32_t page,
                            uint8_t flags)
{
    uint64_t ring = memory_alloc(r->d, QRNIC_WQEBB_SIZE << 3, 4096);
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx = {
        .type = type, .pd = r->pd, .db_page = page, .flags = flags,
        .send_cq = r->send_cq.number, .recv_cq = r->recv_cq.number,
        .sq_log_size = 3, .rq_log_size = 3, .sq = contiguous(ring),
        .rq = contiguous(ring), .sq_record = ring, .rq_record = ring,
    };

    qrnic_qp_ctx_pack(raw, &ctx);
    return command(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0);
}

static void expect_status(QrnicCmdEntry entry, unsigned status,
                          uint32_t syndrome)
{
    g_assert_cmpstr(qrnic_cmd_status_name(entry.status), ==,
                    qrnic_cmd_status_name(status));
    g_assert_cmphex(entry.syndrome, ==, syndrome);
}

static void expect_state(Rig *r, unsigned state)
{
    QrnicQpAttr a;

    qp_query(r->d, &r->qp, &a);
    g_assert_cmpstr(qrnic_qp_state_name(a.state), ==,
                    qrnic_qp_state_name(state));
}

static void modify_fails(Rig *r, uint32_t mask, unsigned state,
                         unsigned status, uint32_t syndrome)
{
    uint8_t raw[QRNIC_QP_ATTR_BYTES];
    QrnicQpAttr attr = { .mask = mask | QRNIC_QP_STATE, .state = state };

    attr.port = mask & QRNIC_QP_PORT ? 1 : 0;
    qrnic_qp_attr_pack(raw, &attr);
    command_fails(r->d, QRNIC_CMD_MODIFY_QP, r->qp.number, raw, sizeof(raw),
                  NULL, 0, status, syndrome);
}

static void modify(Rig *r, uint32_t mask, unsigned state)
{
    QrnicQpAttr attr = { .mask = mask | QRNIC_QP_STATE, .state = state };

    attr.port = mask & QRNIC_QP_PORT ? 1 : 0;
    attr.qkey = mask & QRNIC_QP_QKEY ? QKEY : 0;
    attr.sq_psn = mask & QRNIC_QP_SQ_PSN ? SQ_PSN : 0;
    attr.sq_drained_notify = mask & QRNIC_QP_EN_SQD_ASYNC_NOTIFY ? 1 : 0;
    qp_modify(r->d, &r->qp, &attr);
}

/* Tests the number and the doorbell page of QP1. A second QP1 is rejected. */
static void test_gsi_create(void)
{
    QrnicCmdEntry entry;
    Rig r;

    rig_start(&r, "", NULL);
    g_assert_cmpuint(r.qp.number, >, QRNIC_GSI_QPN);
    expect_status(create(&r, QRNIC_QPT_GSI, r.page, 0), QRNIC_ST_BAD_PARAM,
                  QRNIC_QP_CTX_DB_PAGE_OFFSET);
    expect_status(create(&r, QRNIC_QPT_GSI, 0, QRNIC_QPF_NO_MULTICAST_LOOPBACK),
                  QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_FLAGS_OFFSET);
    for (int i = 0; i < 2; i++) {
        entry = create(&r, QRNIC_QPT_GSI, 0, 0);
        expect_status(entry, QRNIC_ST_OK, 0);
        g_assert_cmpuint(entry.result, ==, QRNIC_GSI_QPN);
        expect_status(create(&r, QRNIC_QPT_GSI, 0, 0), QRNIC_ST_BUSY,
                      QRNIC_QP_CTX_TYPE_OFFSET);
        entry = create(&r, QRNIC_QPT_UD, 0, 0);
        expect_status(entry, QRNIC_ST_OK, 0);
        g_assert_cmpuint(entry.result, >, QRNIC_GSI_QPN);
        command_ok(r.d, QRNIC_CMD_DESTROY_QP, QRNIC_GSI_QPN, NULL, 0, NULL, 0);
    }
    rig_stop(&r);
}

static void test_transitions(void)
{
    const uint32_t init = QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_QKEY;
    QrnicQpAttr attr;
    QrnicEqe eqe;
    Rig r;

    rig_start(&r, "", NULL);
    qp_create(r.d, &r.qp, QRNIC_QPT_UD, r.pd, r.page, &r.send_cq, &r.recv_cq,
              3, 3, 0);
    modify_fails(&r, init & ~QRNIC_QP_QKEY, QRNIC_QPS_INIT,
                 QRNIC_ST_BAD_ATTR, QRNIC_QP_QKEY);
    modify_fails(&r, init & ~QRNIC_QP_PORT, QRNIC_QPS_INIT,
                 QRNIC_ST_BAD_ATTR, QRNIC_QP_PORT);
    modify_fails(&r, init | QRNIC_QP_ACCESS_FLAGS, QRNIC_QPS_INIT,
                 QRNIC_ST_BAD_ATTR, QRNIC_QP_ACCESS_FLAGS);
    modify_fails(&r, init, QRNIC_QPS_RTR, QRNIC_ST_BAD_STATE, 0);
    modify(&r, init, QRNIC_QPS_INIT);
    modify(&r, init, QRNIC_QPS_INIT);
    modify_fails(&r, 0, QRNIC_QPS_RTS, QRNIC_ST_BAD_STATE, 0);
    modify_fails(&r, QRNIC_QP_AV, QRNIC_QPS_RTR, QRNIC_ST_BAD_ATTR,
                 QRNIC_QP_AV);
    modify(&r, QRNIC_QP_PKEY_INDEX | QRNIC_QP_QKEY, QRNIC_QPS_RTR);
    modify_fails(&r, 0, QRNIC_QPS_RTS, QRNIC_ST_BAD_ATTR, QRNIC_QP_SQ_PSN);
    modify_fails(&r, QRNIC_QP_SQ_PSN | QRNIC_QP_TIMEOUT, QRNIC_QPS_RTS,
                 QRNIC_ST_BAD_ATTR, QRNIC_QP_TIMEOUT);
    modify(&r, QRNIC_QP_SQ_PSN, QRNIC_QPS_RTS);
    modify(&r, QRNIC_QP_QKEY, QRNIC_QPS_RTS);
    qp_query(r.d, &r.qp, &attr);
    g_assert_cmpuint(attr.state, ==, QRNIC_QPS_RTS);
    g_assert_cmpuint(attr.qp_type, ==, QRNIC_QPT_UD);
    g_assert_cmphex(attr.qkey, ==, QKEY);
    g_assert_cmphex(attr.sq_psn, ==, SQ_PSN);
    /* Only an error enters SQE (InfiniBand specification, 10.3.1.6). */
    modify_fails(&r, 0, QRNIC_QPS_SQE, QRNIC_ST_BAD_STATE, 0);
    modify(&r, QRNIC_QP_EN_SQD_ASYNC_NOTIFY, QRNIC_QPS_SQD);
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmpuint(eqe.type, ==, QRNIC_EVENT_SQ_DRAINED);
    g_assert_cmpuint(eqe.object, ==, r.qp.number);
    modify_fails(&r, QRNIC_QP_PORT, QRNIC_QPS_SQD, QRNIC_ST_BAD_ATTR,
                 QRNIC_QP_PORT);
    modify(&r, QRNIC_QP_PKEY_INDEX | QRNIC_QP_QKEY, QRNIC_QPS_SQD);
    modify(&r, 0, QRNIC_QPS_RTS);
    modify(&r, 0, QRNIC_QPS_ERR);
    modify_fails(&r, 0, QRNIC_QPS_RTS, QRNIC_ST_BAD_STATE, 0);
    modify(&r, 0, QRNIC_QPS_RESET);
    modify(&r, init, QRNIC_QPS_INIT);
    rig_stop(&r);
}

/* The next tests check sends. */

/* Returns the datagram segment to the peer's queue pair from this GID entry. */
static QrnicDatagramSeg to_peer(unsigned sgid_index)
{
    QrnicDatagramSeg s = {
        .av = {
            .sgid_index = sgid_index, .udp_sport = 0xc777, .hop_limit = 33,
            .traffic_class = 0x28, .flow_label = 0x54321, .sl = 5,
        },
        .dest_qpn = PEER_QPN, .qkey = 0x55667788,
    };

    if (sgid_index == GID_IP6) {
        memcpy(s.av.dgid, peer_ip6, 16);
    } else {
        gid_of_ip4(s.av.dgid, PEER_IP4);
    }
    memcpy(s.av.dmac, PEER_MAC, 6);
    return s;
}

/* Returns the expected packet, without its payload. */
static PeerPacket from_us(const Rig *r, unsigned sgid_index, uint32_t psn)
{
    PeerPacket p = {
        .vlan = sgid_index == GID_VLAN ? 5 << 13 | 7 : -1,
        .ipv6 = sgid_index == GID_IP6, .tos = 0x28, .ttl = 33,
        .sport = 0xc777, .opcode = UD_SEND_ONLY, .dest_qpn = PEER_QPN,
        .psn = psn & 0xffffff, .qkey = 0x55667788, .src_qpn = r->qp.number,
    };

    memcpy(p.dmac, PEER_MAC, 6);
    memcpy(p.smac, OUR_MAC, 6);
    if (p.ipv6) {
        p.flow_label = 0x54321;
        memcpy(p.sip, our_ip6, 16);
        memcpy(p.dip, peer_ip6, 16);
    } else {
        memcpy(p.sip, sgid_index == GID_VLAN ? VLAN_IP4 : OUR_IP4, 4);
        memcpy(p.dip, PEER_IP4, 4);
    }
    return p;
}

static void expect_cqe(Rig *r, uint32_t index, unsigned status,
                       unsigned syndrome)
{
    QrnicCqe cqe;

    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpuint(cqe.index, ==, index);
    g_assert_cmphex(cqe.qpn, ==, r->qp.number);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
    if (status == QRNIC_WC_SUCCESS) {
        g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_SEND);
    }
}

static Wqe send_wqe(Rig *r, const QrnicDatagramSeg *to, uint32_t length)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_datagram(&w, to);
    if (length) {
        wqe_data(&w, r->mr.start, length, r->mr.key);
    }
    return w;
}

/* Asserts each byte of the frames, for every option of a WQE. */
static void check_send(unsigned sgid_index)
{
    static const uint32_t lengths[] = { 0, 1, 6, 200, 1023, 1024 };
    QrnicDatagramSeg to = to_peer(sgid_index);
    uint8_t data[1024];
    uint32_t psn = SQ_PSN, at = 0;
    Rig r;

    ud_start(&r);
    rig_fill(&r, 0, data, sizeof(data), 41);
    for (unsigned i = 0; i < ARRAY_SIZE(lengths) * 8; i++) {
        bool imm = i & 1, solicited = i & 2, in_wqe = i & 4;
        uint32_t length = lengths[i / 8];
        Wqe w = wqe_begin(imm ? QRNIC_WQE_SEND_IMM : QRNIC_WQE_SEND,
                          QRNIC_WQEF_SIGNALED |
                          (solicited ? QRNIC_WQEF_SOLICITED : 0));
        PeerPacket p = from_us(&r, sgid_index, psn++);

        if (in_wqe && length > QRNIC_MAX_INLINE) {
            length = QRNIC_MAX_INLINE;
        }
        p.solicited = solicited;
        p.payload = data;
        p.length = length;
        wqe_datagram(&w, &to);
        if (imm) {
            p.opcode = UD_SEND_ONLY_IMM;
            p.imm = w.ctrl.imm = 0xa1b2c3d4 + i;
        }
        if (in_wqe) {
            wqe_inline(&w, data, length);
        } else if (length) {
            wqe_data(&w, r.mr.start, length - length / 3, r.mr.key);
            wqe_data(&w, r.mr.start + length - length / 3, length / 3,
                     r.mr.key);
        }
        sq_post(r.d, &r.qp, &w);
        peer_expect_frame(r.d, &p);
        expect_cqe(&r, at, QRNIC_WC_SUCCESS, QRNIC_SYN_NONE);
        at += wqe_wqebbs(&w);
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_DATAGRAM), ==,
                     psn - SQ_PSN);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    rig_stop(&r);
}

static void test_send_ipv4(void)
{
    check_send(GID_IP4);
}

static void test_send_ipv6(void)
{
    check_send(GID_IP6);
}

static void test_send_vlan(void)
{
    check_send(GID_VLAN);
}

/*
 * Tests that bit 31 of the Q_Key selects the queue pair's current Q_Key
 * (10.2.5).
 */
static void test_send_qkey(void)
{
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_QKEY, .state = QRNIC_QPS_RTS,
        .qkey = 0x80070605,
    };
    QrnicDatagramSeg to = to_peer(GID_IP4);
    Rig r;
    Wqe w;

    ud_start(&r);
    to.qkey = QKEY_PRIVILEGED | 0x123;
    w = send_wqe(&r, &to, 8);
    sq_post(r.d, &r.qp, &w);
    g_assert_cmphex(peer_expect(r.d, UD_SEND_ONLY, SQ_PSN).qkey, ==, QKEY);
    qp_modify(r.d, &r.qp, &attr);
    w = send_wqe(&r, &to, 8);
    sq_post(r.d, &r.qp, &w);
    g_assert_cmphex(peer_expect(r.d, UD_SEND_ONLY, SQ_PSN + 1).qkey, ==,
                    0x80070605);
    rig_stop(&r);
}

/*
 * Tests that the PSN wraps, and that the device chooses a source port if the
 * WQE has none (A17.9.2).
 */
static void test_send_psn(void)
{
    QrnicDatagramSeg to = to_peer(GID_IP4);
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_SQ_PSN, .state = QRNIC_QPS_RTS,
        .sq_psn = 0xfffffe,
    };
    PeerPacket p;
    Rig r;
    Wqe w;

    ud_start(&r);
    modify(&r, 0, QRNIC_QPS_RESET);
    modify(&r, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_QKEY,
           QRNIC_QPS_INIT);
    modify(&r, 0, QRNIC_QPS_RTR);
    qp_modify(r.d, &r.qp, &attr);
    to.av.udp_sport = 0;
    for (int i = 0; i < 4; i++) {
        w = send_wqe(&r, &to, i);
        sq_post(r.d, &r.qp, &w);
        p = peer_expect(r.d, UD_SEND_ONLY, 0xfffffe + i);
        g_assert_cmphex(p.sport, >=, 0xc000);
    }
    rig_stop(&r);
}

static void peer_message(Rig *r, const char *text)
{
    PeerPacket p = peer_packet(&r->qp, UD_SEND_ONLY, 5);

    p.qkey = QKEY;
    p.src_qpn = PEER_QPN;
    p.payload = (const uint8_t *)text;
    p.length = strlen(text);
    peer_send(r->d, &p);
}

static void post_recv(Rig *r, uint64_t offset, uint32_t length)
{
    QrnicDataSeg sge = {
        .address = r->mr.start + offset, .length = length, .lkey = r->mr.key,
    };

    rq_post(r->d, &r->qp, &sge, 1);
}

/* Asserts that the next receive WQE has the GRH and the peer's text. */
static QrnicCqe received(Rig *r, uint32_t index, uint64_t offset,
                         const char *text)
{
    char got[1024];
    QrnicCqe cqe;

    cq_wait(r->d, &r->recv_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "SUCCESS");
    g_assert_cmpuint(cqe.index, ==, index);
    g_assert_cmphex(cqe.qpn, ==, r->qp.number);
    g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_RECV);
    g_assert_cmpuint(cqe.byte_len, ==, GRH + strlen(text));
    rig_read(r, offset + GRH, (uint8_t *)got, strlen(text));
    g_assert_cmpmem(got, strlen(text), text, strlen(text));
    return cqe;
}

/*
 * Tests that a message that is too long moves the queue pair to SQE. Later WQEs
 * are flushed, receiving continues, and MODIFY_QP enables sending.
 */
static void test_sqe(void)
{
    QrnicDatagramSeg to = to_peer(GID_IP4);
    uint32_t at[5];
    Rig r;
    Wqe w;

    ud_start(&r);
    post_recv(&r, 4096, 1024);
    for (int i = 0; i < 4; i++) {
        at[i] = r.qp.sq_producer;
        w = send_wqe(&r, &to, i == 1 ? 1025 : 1024);
        if (i == 2) {
            w.ctrl.flags = 0;   /* Errors are reported anyway */
        }
        sq_write(r.d, &r.qp, &w);
    }
    sq_publish(r.d, &r.qp);
    sq_ring(r.d, &r.qp);
    g_assert_cmpuint(peer_expect(r.d, UD_SEND_ONLY, SQ_PSN).length, ==, 1024);
    expect_cqe(&r, at[0], QRNIC_WC_SUCCESS, QRNIC_SYN_NONE);
    expect_cqe(&r, at[1], QRNIC_WC_LOC_LEN_ERR, QRNIC_SYN_WQE_LENGTH);
    expect_cqe(&r, at[2], QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE);
    expect_cqe(&r, at[3], QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE);
    expect_state(&r, QRNIC_QPS_SQE);
    at[4] = r.qp.sq_producer;
    w = send_wqe(&r, &to, 4);
    sq_post(r.d, &r.qp, &w);
    expect_cqe(&r, at[4], QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE);
    wire_silent(r.d);
    peer_message(&r, "in SQE");
    received(&r, 0, 4096, "in SQE");
    modify_fails(&r, 0, QRNIC_QPS_SQD, QRNIC_ST_BAD_STATE, 0);
    modify(&r, QRNIC_QP_QKEY, QRNIC_QPS_RTS);
    w = send_wqe(&r, &to, 4);
    sq_post(r.d, &r.qp, &w);
    peer_expect(r.d, UD_SEND_ONLY, SQ_PSN + 1);
    expect_cqe(&r, r.qp.sq_producer - wqe_wqebbs(&w), QRNIC_WC_SUCCESS,
               QRNIC_SYN_NONE);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_DATAGRAM), ==, 2);
    rig_stop(&r);
}

/* Posts a WQE that is rejected, and moves the queue pair to RTS. */
static void refused(Rig *r, Wqe *w, unsigned status, unsigned syndrome)
{
    uint32_t at = r->qp.sq_producer;

    sq_post(r->d, &r->qp, w);
    expect_cqe(r, at, status, syndrome);
    expect_state(r, QRNIC_QPS_SQE);
    modify(r, 0, QRNIC_QPS_RTS);
}

/*
 * Tests that the device rejects send WQEs with invalid destination addresses.
 */
static void test_address(void)
{
    uint64_t errors;
    Rig r;
    Wqe w;

    ud_start(&r);
    for (int i = 0; i < 13; i++) {
        QrnicDatagramSeg to = to_peer(GID_IP4);

        switch (i) {
        case 0:
            memset(to.av.dgid, 0, 16);
            break;
        case 1:
            to.av.sgid_index = 9;       /* Empty */
            break;
        case 2:
            to.av.sgid_index = 0xffff;  /* No such entry */
            break;
        case 3:
            to.av.sgid_index = GID_IP6;
            break;
        case 4:
            to = to_peer(GID_IP6);
            to.av.sgid_index = GID_IP4;
            break;
        case 5:
            to.av.udp_sport = 0xbfff;
            break;
        case 6:
            memset(to.av.dmac, 0, 6);
            break;
        case 7:
            to.av.dmac[0] |= 1;
            break;
        case 8:
            to.dest_qpn = QRNIC_MULTICAST_QPN;
            break;
        case 9:
            to.dest_qpn |= 1u << 24;
            break;
        case 10:                        /* MAC and number of the peer */
            gid_of_ip4(to.av.dgid, "\xe0\x00\x00\x05");
            break;
        case 11:
            gid_of_ip4(to.av.dgid, "\xe0\x00\x00\x05");
            to.dest_qpn = QRNIC_MULTICAST_QPN;
            break;
        case 12:
            gid_of_ip4(to.av.dgid, "\xe0\x00\x00\x05");
            memcpy(to.av.dmac, "\x01\x00\x5e\x00\x00\x05", 6);
            break;
        }
        w = send_wqe(&r, &to, 16);
        errors = counter(r.d, QRNIC_COUNTER_GE_WQE_MALFORMED);
        refused(&r, &w, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_ADDRESS);
        g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_WQE_MALFORMED), ==,
                         errors + 1);
    }
    wire_silent(r.d);
    rig_stop(&r);
}

/* Tests other errors in a WQE. Each moves the queue pair to SQE. */
static void test_wqe(void)
{
    QrnicDatagramSeg to = to_peer(GID_IP4);
    Rig r;
    Wqe w;

    ud_start(&r);
    w = send_wqe(&r, &to, 16);
    w.bytes[QRNIC_SEGMENT_SIZE + QRNIC_DATAGRAM_SEG_RSVD0_OFFSET] = 1;
    refused(&r, &w, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_RESERVED);
    w = wqe_begin(QRNIC_WQE_RDMA_WRITE, 0);
    wqe_remote(&w, 0x1000, 0x100);
    refused(&r, &w, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_OPCODE);
    w = wqe_begin(QRNIC_WQE_SEND, 0);
    wqe_data(&w, r.mr.start, 16, r.mr.key);
    refused(&r, &w, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_SIZE);
    w = wqe_begin(QRNIC_WQE_SEND, 0);
    wqe_datagram(&w, &to);
    wqe_data(&w, r.mr.start + r.mr.length - 8, 16, r.mr.key);
    refused(&r, &w, QRNIC_WC_LOC_PROT_ERR, QRNIC_SYN_KEY_RANGE);
    wire_silent(r.d);
    w = send_wqe(&r, &to, 16);
    sq_post(r.d, &r.qp, &w);
    peer_expect(r.d, UD_SEND_ONLY, SQ_PSN);
    rig_stop(&r);
}

/* The next tests check receives. */

typedef struct Arrival {
    unsigned gid;               /* Destination GID entry */
    int tci;                    /* -1: untagged */
    bool imm, solicited;
    uint32_t length;
} Arrival;

static void check_arrival(Rig *r, const Arrival *a, uint32_t index)
{
    PeerPacket p = peer_packet(&r->qp, a->imm ? UD_SEND_ONLY_IMM :
                               UD_SEND_ONLY, 0x700000 + index);
    uint8_t frame[PEER_FRAME_MAX], got[2048], data[1024], grh[GRH] = { 0 };
    size_t ip = a->tci < 0 ? 14 : 18, len;
    QrnicCqe cqe;

    for (uint32_t i = 0; i < a->length; i++) {
        data[i] = i * 3 + index;
    }
    p.vlan = a->tci;
    p.tos = 0x6c;
    p.ttl = 17;
    p.solicited = a->solicited;
    p.qkey = QKEY;
    p.src_qpn = 0xabcdef;
    p.imm = 0x99887766;
    p.payload = data;
    p.length = a->length;
    if (a->gid == GID_IP6) {
        p.ipv6 = true;
        p.flow_label = 0x98765;
        memcpy(p.sip, peer_ip6, 16);
        memcpy(p.dip, our_ip6, 16);
    } else if (a->gid == GID_VLAN) {
        memcpy(p.dip, VLAN_IP4, 4);
    }
    len = peer_encode(&p, frame);
    if (p.ipv6) {
        memcpy(grh, frame + ip, 40);
    } else {
        memcpy(grh + 20, frame + ip, 20);
    }
    /*
     * Fills the buffer, because the device must write zeros of the GRH over it.
     */
    rig_fill(r, 0, got, sizeof(got), 77);
    post_recv(r, 0, 2048);
    wire_send(r->d, frame, len);
    cq_wait(r->d, &r->recv_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "SUCCESS");
    g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_RECV);
    g_assert_cmphex(cqe.flags, ==, QRNIC_CQEF_GRH |
                    (a->imm ? QRNIC_CQEF_IMM : 0) |
                    (a->solicited ? QRNIC_CQEF_SOLICITED : 0) |
                    (a->gid == GID_VLAN ? QRNIC_CQEF_VLAN : 0));
    g_assert_cmpuint(cqe.byte_len, ==, GRH + a->length);
    g_assert_cmphex(cqe.imm, ==, a->imm ? 0x99887766 : 0);
    g_assert_cmpuint(cqe.index, ==, index);
    g_assert_cmphex(cqe.qpn, ==, r->qp.number);
    g_assert_cmphex(cqe.src_qpn, ==, 0xabcdef);
    g_assert_cmphex(cqe.srqn, ==, 0);
    g_assert_cmpmem(cqe.smac, 6, PEER_MAC, 6);
    g_assert_cmpuint(cqe.network, ==, p.ipv6 ? QRNIC_NETWORK_IPV6 :
                     QRNIC_NETWORK_IPV4);
    g_assert_cmpuint(cqe.sl, ==, a->tci < 0 ? 0 : a->tci >> 13);
    g_assert_cmphex(cqe.vlan_tci, ==, a->gid == GID_VLAN ? a->tci : 0);
    rig_read(r, 0, got, GRH + a->length);
    g_assert_cmpmem(got, GRH, grh, GRH);
    g_assert_cmpmem(got + GRH, a->length, data, a->length);
}

/*
 * Tests the GRH and the data of received datagrams, and all members of the CQE
 * that describe the sender.
 */
static void test_receive(void)
{
    static const Arrival arrivals[] = {
        { GID_IP4, -1, false, false, 64 },
        { GID_IP4, -1, true, true, 0 },
        { GID_IP4, 0x6000, false, true, 5 },    /* Priority only */
        { GID_IP6, -1, true, false, 1024 },
        { GID_IP6, 0xe000, false, false, 1 },
        { GID_VLAN, 0xa007, true, true, 333 },
        { GID_VLAN, 0x0007, false, false, 0 },
    };
    Rig r;

    ud_start(&r);
    for (unsigned i = 0; i < ARRAY_SIZE(arrivals); i++) {
        check_arrival(&r, &arrivals[i], i);
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_DATAGRAM), ==,
                     ARRAY_SIZE(arrivals));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_MULTICAST), ==, 0);
    rig_stop(&r);
}

/* Buffers that end within the GRH and within the data */
static void test_receive_scatter(void)
{
    uint8_t got[64];
    QrnicDataSeg sge[3];
    Rig r;

    ud_start(&r);
    sge[0] = (QrnicDataSeg) { r.mr.start, 33, r.mr.key };
    sge[1] = (QrnicDataSeg) { r.mr.start + 4096, 12, r.mr.key };
    sge[2] = (QrnicDataSeg) { r.mr.start + 8192, 100, r.mr.key };
    rq_post(r.d, &r.qp, sge, 3);
    peer_message(&r, "hello, world");
    cq_wait(r.d, &r.recv_cq, &(QrnicCqe) { 0 });
    rig_read(&r, 20, got, 1);
    g_assert_cmphex(got[0], ==, 0x45);
    rig_read(&r, 4096, got, 12);
    g_assert_cmpmem(got + 3, 4, OUR_IP4, 4);
    g_assert_cmpmem(got + 7, 5, "hello", 5);
    rig_read(&r, 8192, got, 7);
    g_assert_cmpmem(got, 7, ", world", 7);
    rig_stop(&r);
}

/* Tests that UD queue pairs of one device use loopback, not the wire. */
static void test_loopback(void)
{
    QrnicDatagramSeg to = to_peer(GID_IP6);
    uint32_t sender;
    QrnicCqe cqe;
    Rig r;
    Wqe w;
    Qp qp;

    ud_start(&r);
    qp = r.qp;
    sender = r.qp.number;
    qp_create(r.d, &r.qp, QRNIC_QPT_UD, r.pd, r.page, &r.send_cq, &r.recv_cq,
              3, 3, 0);
    qp_start_datagram(r.d, &r.qp, 0x777);
    post_recv(&r, 1024, 256);
    qtest_memwrite(r.d->qts, r.mr.memory, "to myself", 9);
    memcpy(to.av.dgid, our_ip6, 16);
    memcpy(to.av.dmac, OUR_MAC, 6);
    to.dest_qpn = r.qp.number;
    to.qkey = 0x777;
    w = send_wqe(&r, &to, 9);
    sq_post(r.d, &qp, &w);
    cqe = received(&r, 0, 1024, "to myself");
    g_assert_cmphex(cqe.src_qpn, ==, sender);
    g_assert_cmpmem(cqe.smac, 6, OUR_MAC, 6);
    g_assert_cmpuint(cqe.network, ==, QRNIC_NETWORK_IPV6);
    wire_silent(r.d);
    rig_stop(&r);
}

/* Tests that an invalid datagram is counted and has no other effect. */
static void test_receive_drop(void)
{
    PeerPacket p;
    QrnicCqe cqe;
    Rig r;
    Qp rc;

    ud_start(&r);
    /* No receive WQE is posted. */
    peer_message(&r, "nowhere to go");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_NO_WQE, 1);
    post_recv(&r, 0, GRH + 10);
    /* The Q_Key is wrong, and then that of QP1. */
    p = peer_packet(&r.qp, UD_SEND_ONLY, 0);
    p.qkey = QKEY ^ 1;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_QKEY, 1);
    p.qkey = QRNIC_GSI_QKEY;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_QKEY, 2);
    /* The P_Key is wrong. */
    p.qkey = QKEY;
    p.pkey = 0x1234;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_PKEY, 1);
    /*
     * The message is longer than the buffers, by a byte and then by its GRH.
     * The WQE stays.
     */
    peer_message(&r, "11 bytes...");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_LENGTH, 1);
    peer_message(&r, "These are fifty bytes, which without GRH would fit");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_LENGTH, 2);
    /*
     * The packet belongs to another transport service, for both types of queue
     * pairs.
     */
    p = peer_packet(&r.qp, RC_SEND_ONLY, 0);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 1);
    qp_create(r.d, &rc, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              3, 3, 0);
    qp_connect(r.d, &rc, NULL);
    p = peer_packet(&rc, UD_SEND_ONLY, RQ_PSN);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 2);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    peer_message(&r, "10 bytes..");
    received(&r, 0, 0, "10 bytes..");
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_DATAGRAM), ==, 1);
    expect_state(&r, QRNIC_QPS_RTS);
    wire_silent(r.d);
    rig_stop(&r);
}

/* Tests that a queue pair receives in RTR, RTS and SQD, and not before RTR. */
static void test_receive_states(void)
{
    Rig r;

    ud_start(&r);
    modify(&r, 0, QRNIC_QPS_RESET);
    r.qp.rq_producer = r.qp.sq_producer = 0;
    qtest_writel(r.d->qts, r.qp.rq_record, 0);
    peer_message(&r, "in RESET");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_QP_STATE, 1);
    modify(&r, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_QKEY,
           QRNIC_QPS_INIT);
    for (int i = 0; i < 3; i++) {
        post_recv(&r, 1024 * i, 256);
    }
    peer_message(&r, "in INIT");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_QP_STATE, 2);
    modify(&r, 0, QRNIC_QPS_RTR);
    peer_message(&r, "in RTR");
    received(&r, 0, 0, "in RTR");
    modify(&r, QRNIC_QP_SQ_PSN, QRNIC_QPS_RTS);
    modify(&r, 0, QRNIC_QPS_SQD);
    peer_message(&r, "in SQD");
    received(&r, 1, 1024, "in SQD");
    modify(&r, 0, QRNIC_QPS_ERR);
    {
        QrnicCqe cqe;

        cq_wait(r.d, &r.recv_cq, &cqe);
        g_assert_cmpuint(cqe.index, ==, 2);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
    }
    peer_message(&r, "in ERR");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_QP_STATE, 3);
    rig_stop(&r);
}

static void srq_post(Rig *r, uint64_t ring, uint64_t record, uint32_t srqn,
                     uint32_t slot, uint32_t length)
{
    uint8_t raw[QRNIC_WQEBB_SIZE] = { 0 };
    QrnicRecvCtrl ctrl = {
        .data_segments = 1, .index = slot, .next = slot + 1,
    };
    QrnicDataSeg seg = { r->mr.start + 1024 * slot, length, r->mr.key };

    qrnic_recv_ctrl_pack(raw, &ctrl);
    qrnic_data_seg_pack(raw + QRNIC_SEGMENT_SIZE, &seg);
    qtest_memwrite(r->d->qts, ring + slot * sizeof(raw), raw, sizeof(raw));
    qtest_writel(r->d->qts, record, slot + 1);
    doorbell(r->d, r->page, QRNIC_DB_SRQ, srqn, slot + 1, 0);
}

/*
 * Tests that a WQE of an SRQ which is too short for one message receives the
 * next message.
 */
static void test_receive_srq(void)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];
    QrnicSrqCtx ctx = { .log_size = 2 };
    uint64_t ring, record;
    uint32_t srqn;
    Rig r;

    ud_start(&r);
    ring = memory_alloc(r.d, QRNIC_WQEBB_SIZE << 2, 4096);
    record = memory_alloc(r.d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx.pd = r.pd;
    ctx.db_page = r.page;
    ctx.ring = contiguous(ring);
    ctx.record = record;
    qrnic_srq_ctx_pack(raw, &ctx);
    srqn = command_ok(r.d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw), NULL, 0);
    qp_create_srq(r.d, &r.qp, QRNIC_QPT_UD, r.pd, r.page, &r.send_cq,
                  &r.recv_cq, 4, srqn);
    qp_start_datagram(r.d, &r.qp, QKEY);
    peer_message(&r, "too early");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_NO_WQE, 1);
    srq_post(&r, ring, record, srqn, 0, GRH + 5);
    srq_post(&r, ring, record, srqn, 1, 256);
    peer_message(&r, "too long");
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_LENGTH, 1);
    peer_message(&r, "right");
    g_assert_cmpuint(received(&r, 0, 0, "right").srqn, ==, srqn);
    peer_message(&r, "and more");
    g_assert_cmpuint(received(&r, 1, 1024, "and more").srqn, ==, srqn);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RECV_WQES), ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_SRQ_WQES), ==, 2);
    rig_stop(&r);
}

/*
 * Tests that an invalid key of the receive buffer moves the queue pair to ERR
 * and flushes the rest.
 */
static void test_receive_key(void)
{
    QrnicDataSeg sge;
    QrnicCqe cqe;
    Rig r;

    ud_start(&r);
    sge = (QrnicDataSeg) { r.mr.start, 256, r.mr.key ^ 1 };
    rq_post(r.d, &r.qp, &sge, 1);
    post_recv(&r, 0, 256);
    peer_message(&r, "hello");
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.index, ==, 0);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "LOC_PROT_ERR");
    g_assert_cmpuint(cqe.syndrome, !=, QRNIC_SYN_NONE);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.index, ==, 1);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
    expect_state(&r, QRNIC_QPS_ERR);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_DATAGRAM), ==, 0);
    rig_stop(&r);
}

/* Tests that QP1 uses its fixed Q_Key for sending and receiving. */
static void test_gsi(void)
{
    QrnicDatagramSeg to = to_peer(GID_IP4);
    PeerPacket p;
    QrnicCqe cqe;
    Rig r;
    Wqe w;

    ud_start(&r);
    qp_create(r.d, &r.qp, QRNIC_QPT_GSI, r.pd, 0, &r.send_cq, &r.recv_cq, 3,
              3, 0);
    g_assert_cmpuint(r.qp.number, ==, QRNIC_GSI_QPN);
    modify(&r, QRNIC_QP_PKEY_INDEX | QRNIC_QP_QKEY, QRNIC_QPS_INIT);
    modify(&r, 0, QRNIC_QPS_RTR);
    modify(&r, QRNIC_QP_SQ_PSN, QRNIC_QPS_RTS);
    to.dest_qpn = QRNIC_GSI_QPN;
    to.qkey = QRNIC_GSI_QKEY;
    w = send_wqe(&r, &to, 256);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, UD_SEND_ONLY, SQ_PSN);
    g_assert_cmphex(p.dest_qpn, ==, QRNIC_GSI_QPN);
    g_assert_cmphex(p.src_qpn, ==, QRNIC_GSI_QPN);
    g_assert_cmphex(p.qkey, ==, QRNIC_GSI_QKEY);
    post_recv(&r, 0, 512);
    p = peer_packet(&r.qp, UD_SEND_ONLY, 0);
    p.qkey = QKEY;              /* The value of QP_QKEY */
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_QKEY, 1);
    p.qkey = QRNIC_GSI_QKEY;
    p.src_qpn = QRNIC_GSI_QPN;
    peer_send(r.d, &p);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(cqe.src_qpn, ==, QRNIC_GSI_QPN);
    g_assert_cmpuint(cqe.byte_len, ==, GRH);
    rig_stop(&r);
}

/* Tests a device without the capability UD. */
static void test_off(void)
{
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES], group[QRNIC_MULTICAST_BYTES];
    QrnicMulticast in = { .gid = { 0xff, 0x0e, [15] = 1 } };
    QrnicDeviceAttr attr;
    Rig r;

    rig_start(&r, "cap-ud=off", NULL);
    command_ok(r.d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_device_attr_unpack(&attr, raw));
    g_assert_cmphex(attr.capabilities & QRNIC_CAP_UD, ==, 0);
    g_assert_cmpuint(attr.max_multicast, ==, 0);
    expect_status(create(&r, QRNIC_QPT_UD, 0, 0), QRNIC_ST_NOT_SUPPORTED,
                  QRNIC_QP_CTX_TYPE_OFFSET);
    expect_status(create(&r, QRNIC_QPT_GSI, 0, 0), QRNIC_ST_NOT_SUPPORTED,
                  QRNIC_QP_CTX_TYPE_OFFSET);
    qrnic_multicast_pack(group, &in);
    command_fails(r.d, QRNIC_CMD_ATTACH_MULTICAST, r.qp.number, group,
                  sizeof(group), NULL, 0, QRNIC_ST_NOT_SUPPORTED, 0);
    rig_stop(&r);
}

void add_datagram_tests(void)
{
    qtest_add_func("qrnic/datagram/gsi-create", test_gsi_create);
    qtest_add_func("qrnic/datagram/transitions", test_transitions);
    qtest_add_func("qrnic/datagram/send-ipv4", test_send_ipv4);
    qtest_add_func("qrnic/datagram/send-ipv6", test_send_ipv6);
    qtest_add_func("qrnic/datagram/send-vlan", test_send_vlan);
    qtest_add_func("qrnic/datagram/send-qkey", test_send_qkey);
    qtest_add_func("qrnic/datagram/send-psn", test_send_psn);
    qtest_add_func("qrnic/datagram/sqe", test_sqe);
    qtest_add_func("qrnic/datagram/address", test_address);
    qtest_add_func("qrnic/datagram/wqe", test_wqe);
    qtest_add_func("qrnic/datagram/receive", test_receive);
    qtest_add_func("qrnic/datagram/receive-scatter", test_receive_scatter);
    qtest_add_func("qrnic/datagram/receive-drop", test_receive_drop);
    qtest_add_func("qrnic/datagram/receive-states", test_receive_states);
    qtest_add_func("qrnic/datagram/receive-srq", test_receive_srq);
    qtest_add_func("qrnic/datagram/receive-key", test_receive_key);
    qtest_add_func("qrnic/datagram/loopback", test_loopback);
    qtest_add_func("qrnic/datagram/gsi", test_gsi);
    qtest_add_func("qrnic/datagram/off", test_off);
}
