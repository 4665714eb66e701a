/*
 * qrnic engine, layer transport: init, reset and cleanup of the layer
 *
 * Registers all types of queue pairs and the receivers of frames, and allocates
 * QrnicTransports. The engine calls the operations in this table (see
 * core/core.h). A new type of queue pair needs one line in transport_init().
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "wire/icrc.h"
#include "engine/transport/transport.h"

static const QrnicReceivers receivers = {
    .roce = qrnic_roce_receive,
    .ethernet = qrnic_ethernet_receive,
    .sniff = qrnic_ethernet_sniff,
};

static void transport_init(QrnicEngine *e)
{
    e->fabric->receivers = &receivers;
    qrnic_qp_type_register(e, QRNIC_QPT_RC, &qrnic_rc_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_CARRIER, &qrnic_carrier_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_UC, &qrnic_uc_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_UD, &qrnic_ud_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_GSI, &qrnic_gsi_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_XRC_INI, &qrnic_xrc_initiator_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_XRC_TGT, &qrnic_xrc_target_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_DC_INI, &qrnic_dynamic_initiator_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_DC_TGT, &qrnic_dynamic_target_ops);
    qrnic_qp_type_register(e, QRNIC_QPT_RAW_PACKET, &qrnic_raw_packet_ops);
    e->queue->srq_gone = qrnic_xrc_srq_destroyed;
    e->transport = g_new0(QrnicTransports, 1);
    /*
     * The first call chooses the implementation of the CRC, so that no packet
     * is delayed.
     */
    qrnic_crc32(QRNIC_CRC32_INIT, NULL, 0);
    e->transport->flow = g_new0(struct QrnicFlow *, e->config.max_flow);
    qrnic_table_init(&e->transport->flows, 1, e->config.max_flow + 1);
    qrnic_table_init(&e->transport->rss, 1, e->config.max_flow + 1);
}

static void transport_reset(QrnicEngine *e)
{
    QrnicTransports *t = e->transport;

    qrnic_multicast_drop_rest(e);
    memset(&t->rx_filter, 0, sizeof(t->rx_filter));
    t->num_flows = e->fabric->sniffers = 0;
    qrnic_table_free_objects(&t->flows);
    qrnic_table_init(&t->flows, 1, e->config.max_flow + 1);
    qrnic_table_free_objects(&t->rss);
    qrnic_table_init(&t->rss, 1, e->config.max_flow + 1);
}

static void transport_cleanup(QrnicEngine *e)
{
    qrnic_multicast_drop_rest(e);
    qrnic_table_free_objects(&e->transport->flows);
    qrnic_table_free_objects(&e->transport->rss);
    g_free(e->transport->flow);
    g_free(e->transport);
}

static bool transport_pending(QrnicEngine *e)
{
    return qrnic_multicast_pending(e);
}

const QrnicFloor qrnic_transport_floor = {
    .init = transport_init,
    .reset = transport_reset,
    .cleanup = transport_cleanup,
    .pending = transport_pending,
    .process[QRNIC_PHASE_FRAMES] = qrnic_multicast_process,
};
