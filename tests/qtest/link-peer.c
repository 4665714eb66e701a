/*
 * qrnic qtest: the peer of link retransmission; see link-peer.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "link-peer.h"

#define MS 1000000ll

/* Computes the CRC of a frame, without the CRC field, bit by bit. */
static uint32_t link_crc(const uint8_t *frame, size_t length)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < LINK_HEADERS + length; i++) {
        if (i >= 42 && i < LINK_HEADERS) {
            continue;
        }
        crc ^= frame[i];
        for (unsigned bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        }
    }
    return ~crc;
}

bool link_is_frame(const uint8_t *frame)
{
    return !memcmp(frame, LINK_ADDRESS, 6) && lduw_be_p(frame + 12) == 0x88b5;
}

LinkFrame link_decode(const uint8_t *frame, size_t len)
{
    LinkFrame f = {
        .type = frame[15], .session = ldl_be_p(frame + 18),
        .heard = ldl_be_p(frame + 22), .number = ldl_be_p(frame + 26),
        .ack = ldl_be_p(frame + 30), .map = ldq_be_p(frame + 34),
        .payload = frame + LINK_HEADERS, .length = lduw_be_p(frame + 16),
    };

    g_assert_true(link_is_frame(frame));
    g_assert_cmpmem(frame + 6, 6, OUR_MAC, 6);
    g_assert_cmpint(frame[14], ==, 1);
    g_assert_cmpuint(len, ==, MAX(LINK_HEADERS + f.length, 60));
    g_assert_cmphex((uint32_t)ldl_be_p(frame + 42), ==,
                    link_crc(frame, f.length));
    return f;
}

void link_seal(uint8_t *frame, size_t length)
{
    stl_be_p(frame + 42, link_crc(frame, length));
}

size_t link_encode(const LinkFrame *f, uint8_t *frame)
{
    memset(frame, 0, 60);
    memcpy(frame, LINK_ADDRESS PEER_MAC "\x88\xb5\x01", 15);
    frame[15] = f->type;
    stw_be_p(frame + 16, f->length);
    stl_be_p(frame + 18, f->session);
    stl_be_p(frame + 22, f->heard);
    stl_be_p(frame + 26, f->number);
    stl_be_p(frame + 30, f->ack);
    stq_be_p(frame + 34, f->map);
    if (f->length) {
        memcpy(frame + LINK_HEADERS, f->payload, f->length);
    }
    link_seal(frame, f->length);
    return MAX(LINK_HEADERS + f->length, 60);
}

static void link_send(LinkEnd *e, const LinkFrame *f, uint32_t flip)
{
    uint8_t frame[PEER_FRAME_MAX];
    size_t len = link_encode(f, frame);

    stl_be_p(frame + 42, ldl_be_p(frame + 42) ^ flip);
    wire_send(e->r.d, frame, len);
}

void link_hello(LinkEnd *e, uint32_t heard)
{
    const LinkFrame f = {
        .type = LINK_HELLO, .session = LINK_PEER, .heard = heard, .number = 64,
    };

    link_send(e, &f, 0);
}

void link_control(LinkEnd *e, unsigned type, uint32_t count, uint64_t map)
{
    const LinkFrame f = {
        .type = type, .session = LINK_PEER, .heard = e->session,
        .ack = e->session + count, .map = map,
    };

    link_send(e, &f, 0);
}

void link_data(LinkEnd *e, uint32_t n, uint32_t count, const PeerPacket *p,
               uint32_t flip)
{
    uint8_t payload[PEER_FRAME_MAX];
    const LinkFrame f = {
        .type = LINK_DATA, .session = LINK_PEER, .heard = e->session,
        .number = LINK_PEER + n, .ack = e->session + count,
        .payload = payload, .length = peer_encode(p, payload),
    };

    link_send(e, &f, flip);
}

LinkFrame link_expect(LinkEnd *e, unsigned type)
{
    static uint8_t frame[PEER_FRAME_MAX];
    LinkFrame f = link_decode(frame, wire_receive(e->r.d, frame));

    g_assert_cmpint(f.type, ==, type);
    if (type != LINK_HELLO) {
        g_assert_cmphex(f.session, ==, e->session);
        g_assert_cmphex(f.heard, ==, LINK_PEER);
    }
    return f;
}

void link_expect_data(LinkEnd *e, uint32_t n, uint8_t opcode, uint32_t psn)
{
    LinkFrame f = link_expect(e, LINK_DATA);
    PeerPacket p;

    g_assert_cmphex(f.number, ==, e->session + n);
    peer_decode(f.payload, f.length, &p);
    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.psn, ==, psn);
}

uint8_t link_state(Device *d)
{
    uint8_t raw[QRNIC_PORT_ATTR_BYTES];
    QrnicPortAttr a;

    command_ok(d, QRNIC_CMD_QUERY_PORT, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_port_attr_unpack(&a, raw));
    return a.link;
}

uint32_t link_session_of(Device *d)
{
    uint8_t frame[PEER_FRAME_MAX];
    uint32_t session = 0;

    clock_step(d, 20 * MS);
    WAIT_UNTIL(counter(d, QRNIC_COUNTER_LINK_TX_HELLOS) >= 1,
               "the device sends no HELLO");
    settle(d);
    while (wire_pending(d)) {
        LinkFrame f = link_decode(frame, wire_receive(d, frame));

        g_assert_cmpint(f.type, ==, LINK_HELLO);
        g_assert_cmphex(f.heard, ==, 0);
        g_assert_cmpuint(f.number, ==, 256);
        session = f.session;
    }
    g_assert_cmphex(session, !=, 0);
    return session;
}

void link_agree(LinkEnd *e)
{
    LinkFrame f;

    e->session = link_session_of(e->r.d);
    g_assert_cmphex(link_state(e->r.d), ==, 0);
    link_hello(e, e->session);
    f = link_expect(e, LINK_ACK);
    g_assert_cmphex(f.ack, ==, LINK_PEER);
    g_assert_cmphex(f.map, ==, 0);
    g_assert_cmphex(link_state(e->r.d), ==, QRNIC_PORTL_RETRANSMISSION);
    g_assert_cmpuint(counter(e->r.d, QRNIC_COUNTER_LINK_ESTABLISHED), ==, 1);
}

void link_end_start(LinkEnd *e)
{
    *e = (LinkEnd) { 0 };
    rig_start(&e->r, "link-retransmission=on", NULL);
    link_agree(e);
}
