/*
 * qrnic: the table of commands
 *
 * command_queue.c finds a command by its opcode and calls its function with the
 * decoded entry. The function decodes the input, calls the engine (engine.h)
 * and encodes the output. A new command needs a line in the contract
 * (spec/qrnic-hw.yaml), a function of the engine, and a handle_* function here.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "device/parts.h"

#define RESERVED ((QrnicResult) { QRNIC_ST_RESERVED })

/* Commands without input and output, on the device or on an object */
#define PLAIN(name, function)                                           \
    static QrnicResult handle_##name(QrnicEngine *e, QrnicCommandData *data) \
    {                                                                   \
        return function(e);                                             \
    }

#define PLAIN_OBJECT(name, function)                                    \
    static QrnicResult handle_##name(QrnicEngine *e, QrnicCommandData *data) \
    {                                                                   \
        return function(e, data->object);                               \
    }

/* Commands with input only */
#define INPUT(name, function, Type, type)                               \
    static QrnicResult handle_##name(QrnicEngine *e, QrnicCommandData *data) \
    {                                                                   \
        Type in;                                                        \
                                                                        \
        if (!qrnic_##type##_unpack(&in, data->in)) {                    \
            return RESERVED;                                            \
        }                                                               \
        return function(e, &in);                                        \
    }

#define INPUT_OBJECT(name, function, Type, type)                        \
    static QrnicResult handle_##name(QrnicEngine *e, QrnicCommandData *data) \
    {                                                                   \
        Type in;                                                        \
                                                                        \
        if (!qrnic_##type##_unpack(&in, data->in)) {                    \
            return RESERVED;                                            \
        }                                                               \
        return function(e, data->object, &in);                          \
    }

/* Commands with output only */
#define OUTPUT(name, function, Type, type)                              \
    static QrnicResult handle_##name(QrnicEngine *e, QrnicCommandData *data) \
    {                                                                   \
        Type out = { 0 };                                               \
        QrnicResult result = function(e, &out);                         \
                                                                        \
        qrnic_##type##_pack(data->out, &out);                           \
        return result;                                                  \
    }

#define OUTPUT_OBJECT(name, function, Type, type)                       \
    static QrnicResult handle_##name(QrnicEngine *e, QrnicCommandData *data) \
    {                                                                   \
        Type out = { 0 };                                               \
        QrnicResult result = function(e, data->object, &out);           \
                                                                        \
        qrnic_##type##_pack(data->out, &out);                           \
        return result;                                                  \
    }

static QrnicResult handle_nop(QrnicEngine *e, QrnicCommandData *data)
{
    return (QrnicResult) { QRNIC_ST_OK };
}

/* Writes as many counters as the output has room for. */
static void put_counters(QrnicCommandData *data, const uint64_t *counter)
{
    uint32_t n = data->out_len / 8;

    for (uint32_t i = 0; i < n; i++) {
        qrnic_st_le64(data->out + 8 * i, counter[i]);
    }
    data->out_len = 8 * n;
}

static QrnicResult handle_query_counters(QrnicEngine *e,
                                         QrnicCommandData *data)
{
    put_counters(data, qrnic_counters(e));
    return (QrnicResult) { QRNIC_ST_OK };
}

static QrnicResult handle_query_counter_set(QrnicEngine *e,
                                            QrnicCommandData *data)
{
    uint64_t counter[QRNIC_NUM_COUNTERS];
    QrnicResult result = qrnic_counter_set_query(e, data->object, counter);

    if (result.status == QRNIC_ST_OK) {
        put_counters(data, counter);
    }
    return result;
}

OUTPUT(query_device, qrnic_device_query, QrnicDeviceAttr, device_attr)
OUTPUT(query_port, qrnic_port_query, QrnicPortAttr, port_attr)
INPUT(modify_port, qrnic_port_modify, QrnicPortCtx, port_ctx)
INPUT_OBJECT(set_vf, qrnic_vf_set, QrnicVfCtx, vf_ctx)
OUTPUT_OBJECT(query_vf, qrnic_vf_query, QrnicVfAttr, vf_attr)
INPUT(set_congestion, qrnic_congestion_set, QrnicCongestionCtx, congestion_ctx)
OUTPUT(query_congestion, qrnic_congestion_query, QrnicCongestionCtx,
       congestion_ctx)
PLAIN(alloc_db_page, qrnic_db_page_alloc)
PLAIN_OBJECT(free_db_page, qrnic_db_page_free)
PLAIN(alloc_pd, qrnic_pd_alloc)
PLAIN_OBJECT(free_pd, qrnic_pd_free)
INPUT_OBJECT(set_pasid, qrnic_db_page_set_pasid, QrnicPasidCtx, pasid_ctx)
INPUT(create_eq, qrnic_eq_create, QrnicEqCtx, eq_ctx)
PLAIN_OBJECT(destroy_eq, qrnic_eq_destroy)
OUTPUT_OBJECT(query_eq, qrnic_eq_query, QrnicEqCtx, eq_ctx)
INPUT(create_cq, qrnic_cq_create, QrnicCqCtx, cq_ctx)
PLAIN_OBJECT(destroy_cq, qrnic_cq_destroy)
OUTPUT_OBJECT(query_cq, qrnic_cq_query, QrnicCqCtx, cq_ctx)
INPUT_OBJECT(resize_cq, qrnic_cq_resize, QrnicCqResize, cq_resize)
INPUT_OBJECT(modify_cq, qrnic_cq_modify, QrnicCqModeration, cq_moderation)
INPUT(create_mkey, qrnic_mkey_create, QrnicMkeyCtx, mkey_ctx)
PLAIN_OBJECT(destroy_mkey, qrnic_mkey_destroy)
OUTPUT_OBJECT(query_mkey, qrnic_mkey_query, QrnicMkeyCtx, mkey_ctx)
INPUT_OBJECT(modify_mkey, qrnic_mkey_modify, QrnicMkeyCtx, mkey_ctx)
INPUT_OBJECT(invalidate_pages, qrnic_mkey_invalidate_pages, QrnicPageRange,
             page_range)
OUTPUT_OBJECT(query_page_fault, qrnic_page_fault_query, QrnicPageFault,
              page_fault)
INPUT_OBJECT(resume_page_fault, qrnic_page_fault_resume, QrnicFaultAnswer,
             fault_answer)
INPUT_OBJECT(refuse_page_fault, qrnic_page_fault_refuse, QrnicFaultAnswer,
             fault_answer)
INPUT(create_qp, qrnic_qp_create, QrnicQpCtx, qp_ctx)
INPUT_OBJECT(modify_qp, qrnic_qp_modify, QrnicQpAttr, qp_attr)
OUTPUT_OBJECT(query_qp, qrnic_qp_query, QrnicQpAttr, qp_attr)
PLAIN_OBJECT(destroy_qp, qrnic_qp_destroy)
INPUT(set_contexts, qrnic_context_memory_set, QrnicContextMemory,
      context_memory)
OUTPUT(query_contexts, qrnic_context_memory_query, QrnicContextAttr,
       context_attr)
INPUT(create_srq, qrnic_srq_create, QrnicSrqCtx, srq_ctx)
INPUT_OBJECT(modify_srq, qrnic_srq_modify, QrnicSrqLimit, srq_limit)
INPUT_OBJECT(resize_srq, qrnic_srq_resize, QrnicSrqResize, srq_resize)
INPUT_OBJECT(create_tag_list, qrnic_tag_list_create, QrnicTagListCtx,
             tag_list_ctx)
OUTPUT_OBJECT(query_srq, qrnic_srq_query, QrnicSrqCtx, srq_ctx)
PLAIN_OBJECT(destroy_srq, qrnic_srq_destroy)
PLAIN(alloc_xrcd, qrnic_xrcd_alloc)
PLAIN_OBJECT(free_xrcd, qrnic_xrcd_free)
INPUT_OBJECT(set_gid, qrnic_gid_set, QrnicGidEntry, gid_entry)
PLAIN_OBJECT(clear_gid, qrnic_gid_clear)
OUTPUT_OBJECT(query_gid, qrnic_gid_query, QrnicGidEntry, gid_entry)
INPUT_OBJECT(attach_multicast, qrnic_multicast_attach, QrnicMulticast,
             multicast)
INPUT_OBJECT(detach_multicast, qrnic_multicast_detach, QrnicMulticast,
             multicast)
INPUT(alloc_dm, qrnic_dm_alloc, QrnicDmCtx, dm_ctx)
PLAIN_OBJECT(free_dm, qrnic_dm_free)
OUTPUT_OBJECT(query_dm, qrnic_dm_query, QrnicDmCtx, dm_ctx)
INPUT(set_rx_filter, qrnic_rx_filter_set, QrnicRxFilter, rx_filter)
INPUT_OBJECT(create_flow, qrnic_flow_create, QrnicFlowCtx, flow_ctx)
PLAIN_OBJECT(destroy_flow, qrnic_flow_destroy)
INPUT(create_rss, qrnic_rss_create, QrnicRssCtx, rss_ctx)
PLAIN_OBJECT(destroy_rss, qrnic_rss_destroy)
PLAIN(alloc_counter_set, qrnic_counter_set_alloc)
PLAIN_OBJECT(free_counter_set, qrnic_counter_set_free)
INPUT_OBJECT(bind_counter_set, qrnic_counter_set_bind, QrnicCounterBind,
             counter_bind)

const QrnicCommand *qrnic_command_find(uint16_t opcode)
{
#define ENTRY(NAME, name, in_bytes, out_bytes, about_object) {          \
        .opcode = QRNIC_CMD_##NAME, .in_len = in_bytes,                 \
        .out_len = out_bytes, .has_object = about_object,               \
        .run = handle_##name },
    static const QrnicCommand commands[] = { QRNIC_COMMAND_LIST(ENTRY) };
#undef ENTRY

    for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
        if (commands[i].opcode == opcode) {
            return &commands[i];
        }
    }
    return NULL;
}
