/*
 * qrnic qtest: the rig of an ordinary test: one RC queue pair that is connected
 * to the peer. See driver.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

/* Memory of the peer that the device writes; the peer ignores both values. */
#define PEER_VA 0x5000ull
#define PEER_KEY 0xabcdef12u

static void objects_create(Rig *r, uint8_t access, const QrnicQpAttr *attr)
{
    Device *d = r->d;
    uint8_t gid[16];

    eq_create(d, &r->async, QRNIC_EQ_ASYNC, 0, 4);
    eq_create(d, &r->eq, QRNIC_EQ_COMPLETION, 1, 4);
    r->pd = command_ok(d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
    r->page = command_ok(d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
    cq_create(d, &r->send_cq, &r->eq, r->page, 6);
    cq_create(d, &r->recv_cq, &r->eq, r->page, 6);
    mr_create(d, &r->mr, r->pd, RIG_MR_START, RIG_MR_LENGTH, access);
    gid_of_ip4(gid, OUR_IP4);
    gid_set(d, 0, gid, -1);
    qp_create(d, &r->qp, QRNIC_QPT_RC, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 5, 3, 0);
    if (attr && attr->path_mtu > QRNIC_MTU_1024) {
        const QrnicPortCtx jumbo = {
            .mtu = QRNIC_MAX_MTU, .flags = QRNIC_PORTF_ADMIN_UP,
        };
        uint8_t raw[QRNIC_PORT_CTX_BYTES];

        qrnic_port_ctx_pack(raw, &jumbo);
        command_ok(d, QRNIC_CMD_MODIFY_PORT, 0, raw, sizeof(raw), NULL, 0);
    }
    qp_connect(d, &r->qp, attr);
}

static void rig_launch(Rig *r, const char *properties, bool port,
                       const QrnicQpAttr *attr)
{
    g_autofree char *all = g_strdup_printf("mac=52:54:00:12:34:56%s%s",
                                           properties[0] ? "," : "",
                                           properties);
    bool backend = !strstr(properties, "netdev=") &&
                   !strstr(properties, "cable=");

    r->d = device_start_on(all, backend, port);
    objects_create(r, strstr(properties, "cap-atomic=off") ?
                   ALL_RIGHTS & ~QRNIC_ACCESS_REMOTE_ATOMIC : ALL_RIGHTS, attr);
}

void rig_start_again(Rig *r)
{
    objects_create(r, ALL_RIGHTS, NULL);
}

void rig_start(Rig *r, const char *properties, const QrnicQpAttr *attr)
{
    rig_launch(r, properties, false, attr);
}

void rig_start_behind_port(Rig *r, const char *properties)
{
    rig_launch(r, properties, true, NULL);
}

void rig_stop(Rig *r)
{
    device_stop(r->d);
}

void rig_fill(Rig *r, uint64_t offset, uint8_t *copy, size_t length,
              uint32_t seed)
{
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525 + 1013904223;
        copy[i] = seed >> 24;
    }
    qtest_memwrite(r->d->qts, r->mr.memory + offset, copy, length);
}

void rig_read(Rig *r, uint64_t offset, uint8_t *out, size_t length)
{
    qtest_memread(r->d->qts, r->mr.memory + offset, out, length);
}

void rig_write_from_peer(Rig *r, uint32_t psn, uint64_t offset, uint8_t byte,
                         uint8_t mark, bool ack_request)
{
    PeerPacket p = peer_packet(&r->qp, RC_WRITE_ONLY, psn);
    uint8_t data[RIG_PACKET];

    memset(data, byte, sizeof(data));
    p.mark = mark;
    p.va = r->mr.start + offset;
    p.rkey = r->mr.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    p.ack_request = ack_request;
    peer_send(r->d, &p);
}

void rig_expect_byte(Rig *r, uint64_t offset, uint8_t byte)
{
    uint8_t got[RIG_PACKET], want[RIG_PACKET];

    rig_read(r, offset, got, sizeof(got));
    memset(want, byte, sizeof(want));
    g_assert_cmpmem(got, sizeof(got), want, sizeof(want));
}

uint32_t rig_key_create(const Rig *r, QrnicMkeyCtx ctx)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];

    ctx.pd = r->pd;
    qrnic_mkey_ctx_pack(raw, &ctx);
    return command_ok(r->d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL,
                      0) << 8 | ctx.variant;
}

void rig_post_write(Rig *r, uint32_t key, uint64_t address, uint32_t length)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, PEER_VA, PEER_KEY);
    wqe_data(&w, address, length, key);
    sq_post(r->d, &r->qp, &w);
}

void rig_expect_write(Rig *r, uint32_t psn, uint8_t byte, size_t length)
{
    PeerPacket p = peer_expect(r->d, RC_WRITE_ONLY, psn);

    g_assert_cmpuint(p.length, ==, length);
    for (size_t i = 0; i < length; i++) {
        g_assert_cmphex(p.payload[i], ==, byte);
    }
}

void rig_sent(Rig *r, unsigned status, unsigned opcode, unsigned syndrome)
{
    QrnicCqe cqe;

    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    if (status == QRNIC_WC_SUCCESS) {
        g_assert_cmphex(cqe.opcode, ==, opcode);
    }
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
}
