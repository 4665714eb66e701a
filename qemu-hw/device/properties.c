/*
 * qrnic: the properties of the device
 *
 * pci.c adds the properties to the class. When a device is realized, pci.c
 * checks them with qrnic_properties_check() and then calls qrnic_config_fill()
 * for the configuration of the engine. Manual, chapter "Properties".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "hw/pci/pci.h"
#include "hw/pci/pci_bus.h"
#include "compat.h"
#include "device/faces.h"

#define DEVICE_MEMORY_MAX (256u << 20)

#define DEFAULT_VECTORS 8

static bool check_range(const char *name, uint32_t value, uint32_t min,
                        uint32_t max, Error **errp)
{
    if (value < min || value > max) {
        error_setg(errp, "qrnic: property '%s' is %" PRIu32
                   ", must be %" PRIu32 " to %" PRIu32, name, value, min, max);
        return false;
    }
    return true;
}

/* Returns true, or false with *errp set if a property has an invalid value. */
static bool check_values(QrnicDevice *d, Error **errp)
{
    const QrnicConfig *c = &d->config;
    const struct { const char *name; uint32_t value, min, max; } range[] = {
        { "vectors", c->vectors, 2, QRNIC_MSIX_MAX_VECTORS },
        { "doorbell-pages", c->db_pages, 2, 65536 },
        { "doorbell-fifo", c->doorbell_fifo, 1, 4096 },
        { "doorbell-hold", c->doorbell_hold, 0, 1000000 },
        { "max-qp", c->max_qp, 1, 1 << 20 },
        /*
         * The maximum is limited, because an EQ must have room for an event of
         * each CQ.
         */
        { "max-cq", c->max_cq, 1, QRNIC_MAX_CQ },
        { "max-mkey", c->max_mkey, 1, 1 << 20 },
        { "max-pd", c->max_pd, 1, 1 << 16 },
        { "max-gid", c->max_gid, 1, 1024 },
        { "max-srq", c->max_srq, 1, 1 << 20 },
        { "max-flow", c->max_flow, 1, 1 << 16 },
        { "max-sge", c->max_sge, 1, QRNIC_MAX_SGE },
        { "max-inline", c->max_inline, 0, QRNIC_MAX_INLINE },
        { "max-rd-atomic", c->max_rd_atomic, 0, 128 },
        { "context-cache", c->context_cache, 0, 1 << 20 },
        { "translation-cache", c->translation_cache, 0, 1 << 16 },
        { "context-stations", c->context_stations, 0, 1024 },
        { "context-latency", c->context_latency, 0, 1000000000 },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(range); i++) {
        if (!check_range(range[i].name, range[i].value, range[i].min,
                         range[i].max, errp)) {
            return false;
        }
    }
    /*
     * At least 2 entries are required, because an entry is in use while the
     * next one is fetched.
     */
    if (c->context_cache == 1) {
        error_setg(errp, "qrnic: property 'context-cache' is 1, must be 0 or "
                   "at least 2");
        return false;
    }
    if (d->icrc && strcmp(d->icrc, "standard") &&
        strcmp(d->icrc, "transport") && strcmp(d->icrc, "soft-roce")) {
        error_setg(errp, "qrnic: property 'icrc' is '%s', must be 'standard', "
                   "'transport' or 'soft-roce'", d->icrc);
        return false;
    }
    if (!is_power_of_2(c->db_pages)) {
        error_setg(errp, "qrnic: property 'doorbell-pages' is %" PRIu32
                   ", must be a power of two", c->db_pages);
        return false;
    }
    if (c->device_memory &&
        (!is_power_of_2(c->device_memory) ||
         c->device_memory < QRNIC_DM_PAGE_SIZE ||
         c->device_memory > DEVICE_MEMORY_MAX)) {
        error_setg(errp, "qrnic: property 'device-memory-size' is %" PRIu64
                   ", must be 0 or a power of two from %u to %u",
                   c->device_memory, QRNIC_DM_PAGE_SIZE, DEVICE_MEMORY_MAX);
        return false;
    }
    if (d->cable && d->conf.peers.ncs[0]) {
        error_setg(errp, "qrnic: properties 'cable' and 'netdev' exclude each "
                   "other");
        return false;
    }
    if (d->conf.macaddr.a[0] & 1) {
        error_setg(errp, "qrnic: property 'mac' is a multicast address");
        return false;
    }
    if (!pci_bus_is_express(pci_get_bus(PCI_DEVICE(d)))) {
        error_setg(errp, "qrnic requires a PCI Express bus: "
                   "use '-machine q35' or a PCI Express port");
        return false;
    }
    return true;
}

bool qrnic_properties_check(QrnicDevice *d, Error **errp)
{
    /*
     * 0 means the default, because QEMU's options -nic and -net nic set
     * "vectors" to 0.
     */
    if (!d->config.vectors) {
        d->config.vectors = DEFAULT_VECTORS;
    }
    return check_values(d, errp);
}

void qrnic_config_fill(QrnicDevice *d)
{
    QrnicConfig *c = &d->config;
    const struct { bool on; uint64_t bit; } cap[] = {
        { true, QRNIC_CAP_RC },
        { d->cap_atomic, QRNIC_CAP_ATOMIC },
        { d->cap_direct_wqe, QRNIC_CAP_DIRECT_WQE },
        { d->cap_inline_send, QRNIC_CAP_INLINE_SEND },
        { d->cap_timestamp, QRNIC_CAP_TIMESTAMP },
        { d->cap_eth_csum, QRNIC_CAP_ETH_CSUM },
        { d->cap_eth_vlan, QRNIC_CAP_ETH_VLAN },
        { d->cap_eth_csum && d->cap_eth_tso, QRNIC_CAP_ETH_TSO },
        { d->cap_eth_csum && d->cap_eth_rx_coalesce,
          QRNIC_CAP_ETH_RX_COALESCE },
        { d->cap_on_demand, QRNIC_CAP_ON_DEMAND },
        { d->cap_indirect_mkey, QRNIC_CAP_INDIRECT_MKEY },
        { d->cap_streaming_recv, QRNIC_CAP_STREAMING_RECV },
        { d->cap_srq && d->cap_tag_matching, QRNIC_CAP_TAG_MATCHING },
        { d->cap_priority, QRNIC_CAP_PRIORITY },
        { d->cap_selective_repeat, QRNIC_CAP_SELECTIVE_REPEAT },
        { d->cap_adaptive_routing, QRNIC_CAP_ADAPTIVE_ROUTING },
        { d->cap_shared_connection, QRNIC_CAP_SHARED_CONNECTION },
        { d->cap_congestion_control, QRNIC_CAP_CONGESTION_CONTROL },
        { d->cap_event_index && c->doorbell_hold, QRNIC_CAP_EVENT_INDEX },
        { d->cap_context_cache && c->context_cache,
          QRNIC_CAP_CONTEXT_CACHE },
        { d->cap_ud, QRNIC_CAP_UD },
        { d->cap_uc, QRNIC_CAP_UC },
        { d->cap_srq, QRNIC_CAP_SRQ },
        { d->cap_srq && d->cap_xrc, QRNIC_CAP_XRC },
        { d->cap_srq && d->cap_dynamic, QRNIC_CAP_DYNAMIC },
        { d->cap_srq && d->cap_srq_resize, QRNIC_CAP_SRQ_RESIZE },
        { d->cap_mw, QRNIC_CAP_MW },
        { d->cap_fast_reg, QRNIC_CAP_FAST_REG },
        { d->cap_cq_resize, QRNIC_CAP_CQ_RESIZE },
        { d->cap_cq_moderation, QRNIC_CAP_CQ_MODERATION },
        { d->cap_flow, QRNIC_CAP_FLOW },
        { d->cap_cq_ignore_overrun, QRNIC_CAP_CQ_IGNORE_OVERRUN },
        { d->cap_scatter_fcs, QRNIC_CAP_SCATTER_FCS },
        { d->cap_source_qpn, QRNIC_CAP_SOURCE_QPN },
        { d->cap_flow && d->cap_rss, QRNIC_CAP_RSS },
        { d->cap_flow && d->cap_rss && d->cap_eth_rss, QRNIC_CAP_ETH_RSS },
        { d->cap_dm && c->device_memory, QRNIC_CAP_DEVICE_MEMORY },
        { d->cap_atomic_write, QRNIC_CAP_ATOMIC_WRITE },
        { d->cap_flush, QRNIC_CAP_FLUSH },
        { d->cap_inline_recv, QRNIC_CAP_INLINE_RECV },
        { d->cap_rate_limit, QRNIC_CAP_RATE_LIMIT },
        { d->cap_counter_sets, QRNIC_CAP_COUNTER_SETS },
        { d->cap_roce_v1, QRNIC_CAP_ROCE_V1 },
        { d->cap_command_event, QRNIC_CAP_COMMAND_EVENT },
        { d->link_retransmission, QRNIC_CAP_LINK_RETRANSMISSION },
        { d->shared_virtual, QRNIC_CAP_SHARED_VIRTUAL },
#ifdef QRNIC_HOST_ATOMIC64
        { d->cap_atomic && d->cap_atomic_glob, QRNIC_CAP_ATOMIC_GLOB },
#endif
    };

    c->capabilities = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(cap); i++) {
        c->capabilities |= cap[i].on ? cap[i].bit : 0;
    }
    if (d->icrc && !strcmp(d->icrc, "transport")) {
        c->icrc = QRNIC_ICRC_TRANSPORT;
    } else if (d->icrc && !strcmp(d->icrc, "soft-roce")) {
        c->icrc = QRNIC_ICRC_SOFT_ROCE;
    }
    c->name = d->name;
    memcpy(c->mac, d->conf.macaddr.a, sizeof(c->mac));
}

static void counters_get(Object *obj, Visitor *v, const char *name,
                         void *opaque, Error **errp)
{
    QrnicDevice *d = QRNIC(obj);

    if (!visit_start_struct(v, name, NULL, 0, errp)) {
        return;
    }
    for (unsigned i = 0; i < QRNIC_NUM_COUNTERS; i++) {
        uint64_t value = d->engine ? qrnic_counters(d->engine)[i] : 0;

        if (!visit_type_uint64(v, qrnic_counter_name(i), &value, errp)) {
            break;
        }
    }
    visit_end_struct(v, NULL);
}

/*
 * Maximum number of queue pairs that the property lists, so that one read
 * stops the main loop for at most some milliseconds
 */
#define QUEUE_PAIRS_LISTED 1024

/* Returns false with *errp set if the visitor fails. */
static bool visit_queue_pair(Visitor *v, const QrnicQpReport *r, Error **errp)
{
    const struct { const char *name; uint64_t value; } member[] = {
        { "number", r->number },
        { "level", r->level },
        { "dest-qpn", r->dest_qpn },
        { "sq-producer", r->sq_producer },
        { "sq-fetched", r->sq_fetched },
        { "sq-completed", r->sq_completed },
        { "rq-producer", r->rq_producer },
        { "rq-consumer", r->rq_consumer },
        { "retransmissions", r->retransmissions },
    };
    char *type = (char *)qrnic_qp_type_name(r->type);
    char *state = (char *)qrnic_qp_state_name(r->state);
    bool ok;

    if (!visit_start_struct(v, NULL, NULL, 0, errp)) {
        return false;
    }
    ok = visit_type_str(v, "type", &type, errp) &&
         visit_type_str(v, "state", &state, errp);
    for (unsigned i = 0; ok && i < ARRAY_SIZE(member); i++) {
        uint64_t value = member[i].value;

        ok = visit_type_uint64(v, member[i].name, &value, errp);
    }
    visit_end_struct(v, NULL);
    return ok;
}

static void queue_pairs_get(Object *obj, Visitor *v, const char *name,
                            void *opaque, Error **errp)
{
    QrnicDevice *d = QRNIC(obj);
    QrnicQpReport r;
    uint32_t from = 0;

    if (!visit_start_list(v, name, NULL, 0, errp)) {
        return;
    }
    for (unsigned i = 0; d->engine && i < QUEUE_PAIRS_LISTED &&
                         qrnic_qp_report(d->engine, from, &r); i++) {
        if (!visit_queue_pair(v, &r, errp)) {
            break;
        }
        from = r.number + 1;
    }
    visit_end_list(v, NULL);
}

static void stop_at_set(Object *obj, const char *value, Error **errp)
{
    QrnicDevice *d = QRNIC(obj);

    if (qrnic_stop_set(d, value, errp)) {
        qrnic_kick(d);
    }
}

static char *stop_at_get(Object *obj, Error **errp)
{
    return qrnic_stop_get(QRNIC(obj));
}

static void stopped_get(Object *obj, Visitor *v, const char *name, void *opaque,
                        Error **errp)
{
    qrnic_stop_visit(QRNIC(obj), v, name, errp);
}

static void continue_set(Object *obj, bool value, Error **errp)
{
    QrnicDevice *d = QRNIC(obj);

    if (!value) {
        error_setg(errp, "qrnic: property 'continue' accepts only true");
    } else if (qrnic_stop_continue(d, errp)) {
        qrnic_kick(d);
    }
}

static const Property device_properties[] = {
    DEFINE_NIC_PROPERTIES(QrnicDevice, conf),
    DEFINE_PROP_LINK("cable", QrnicDevice, cable, TYPE_QRNIC_CABLE,
                     QrnicCable *),
    DEFINE_PROP_UINT32("vectors", QrnicDevice, config.vectors,
                       DEFAULT_VECTORS),
    DEFINE_PROP_UINT32("doorbell-pages", QrnicDevice, config.db_pages, 256),
    DEFINE_PROP_UINT32("doorbell-fifo", QrnicDevice, config.doorbell_fifo,
                       256),
    DEFINE_PROP_BOOL("ioeventfd", QrnicDevice, ioeventfd, false),
    DEFINE_PROP_BOOL("link-retransmission", QrnicDevice, link_retransmission,
                     false),
    DEFINE_PROP_BOOL("shared-virtual", QrnicDevice, shared_virtual, false),
    DEFINE_PROP_UINT32("translation-cache", QrnicDevice,
                       config.translation_cache, 1024),
    DEFINE_PROP_STRING("capture", QrnicDevice, capture_path),
    DEFINE_PROP_UINT32("capture-qp", QrnicDevice, capture_qp, 0),
    DEFINE_PROP_UINT32("max-qp", QrnicDevice, config.max_qp, 16384),
    DEFINE_PROP_UINT32("max-cq", QrnicDevice, config.max_cq, 16384),
    DEFINE_PROP_UINT32("max-mkey", QrnicDevice, config.max_mkey, 65536),
    DEFINE_PROP_UINT32("max-pd", QrnicDevice, config.max_pd, 4096),
    DEFINE_PROP_UINT32("max-gid", QrnicDevice, config.max_gid, 256),
    DEFINE_PROP_UINT32("max-srq", QrnicDevice, config.max_srq, 8192),
    DEFINE_PROP_UINT32("max-flow", QrnicDevice, config.max_flow, 1024),
    DEFINE_PROP_UINT32("max-sge", QrnicDevice, config.max_sge, QRNIC_MAX_SGE),
    DEFINE_PROP_UINT32("max-inline", QrnicDevice, config.max_inline,
                       QRNIC_MAX_INLINE),
    DEFINE_PROP_UINT32("max-rd-atomic", QrnicDevice, config.max_rd_atomic, 16),
    DEFINE_PROP_SIZE("device-memory-size", QrnicDevice, config.device_memory,
                     1 << 20),
    DEFINE_PROP_UINT32("doorbell-hold", QrnicDevice, config.doorbell_hold, 0),
    DEFINE_PROP_UINT32("context-cache", QrnicDevice, config.context_cache, 0),
    DEFINE_PROP_UINT32("context-stations", QrnicDevice,
                       config.context_stations, 16),
    DEFINE_PROP_UINT32("context-latency", QrnicDevice, config.context_latency,
                       1000),
    DEFINE_PROP_STRING("icrc", QrnicDevice, icrc),
    DEFINE_PROP_BOOL("cap-atomic", QrnicDevice, cap_atomic, true),
    DEFINE_PROP_BOOL("cap-direct-wqe", QrnicDevice, cap_direct_wqe, true),
    DEFINE_PROP_BOOL("cap-inline-send", QrnicDevice, cap_inline_send, true),
    DEFINE_PROP_BOOL("cap-timestamp", QrnicDevice, cap_timestamp, true),
    DEFINE_PROP_BOOL("cap-eth-csum", QrnicDevice, cap_eth_csum, true),
    DEFINE_PROP_BOOL("cap-eth-vlan", QrnicDevice, cap_eth_vlan, true),
    DEFINE_PROP_BOOL("cap-eth-tso", QrnicDevice, cap_eth_tso, true),
    DEFINE_PROP_BOOL("cap-eth-rx-coalesce", QrnicDevice, cap_eth_rx_coalesce,
                     true),
    DEFINE_PROP_BOOL("cap-on-demand", QrnicDevice, cap_on_demand, true),
    DEFINE_PROP_BOOL("cap-indirect-mkey", QrnicDevice, cap_indirect_mkey,
                     true),
    DEFINE_PROP_BOOL("cap-streaming-recv", QrnicDevice, cap_streaming_recv,
                     true),
    DEFINE_PROP_BOOL("cap-tag-matching", QrnicDevice, cap_tag_matching, true),
    DEFINE_PROP_BOOL("cap-context-cache", QrnicDevice, cap_context_cache,
                     true),
    DEFINE_PROP_BOOL("cap-dynamic", QrnicDevice, cap_dynamic, true),
    DEFINE_PROP_BOOL("cap-priority", QrnicDevice, cap_priority, true),
    DEFINE_PROP_BOOL("cap-selective-repeat", QrnicDevice, cap_selective_repeat,
                     true),
    DEFINE_PROP_BOOL("cap-adaptive-routing", QrnicDevice, cap_adaptive_routing,
                     true),
    DEFINE_PROP_BOOL("cap-shared-connection", QrnicDevice,
                     cap_shared_connection, true),
    DEFINE_PROP_BOOL("cap-congestion-control", QrnicDevice,
                     cap_congestion_control, true),
    DEFINE_PROP_BOOL("cap-event-index", QrnicDevice, cap_event_index, true),
    DEFINE_PROP_BOOL("cap-ud", QrnicDevice, cap_ud, true),
    DEFINE_PROP_BOOL("cap-uc", QrnicDevice, cap_uc, true),
    DEFINE_PROP_BOOL("cap-srq", QrnicDevice, cap_srq, true),
    DEFINE_PROP_BOOL("cap-srq-resize", QrnicDevice, cap_srq_resize, true),
    DEFINE_PROP_BOOL("cap-xrc", QrnicDevice, cap_xrc, true),
    DEFINE_PROP_BOOL("cap-mw", QrnicDevice, cap_mw, true),
    DEFINE_PROP_BOOL("cap-fast-reg", QrnicDevice, cap_fast_reg, true),
    DEFINE_PROP_BOOL("cap-cq-resize", QrnicDevice, cap_cq_resize, true),
    DEFINE_PROP_BOOL("cap-cq-moderation", QrnicDevice, cap_cq_moderation, true),
    DEFINE_PROP_BOOL("cap-flow", QrnicDevice, cap_flow, true),
    DEFINE_PROP_BOOL("cap-cq-ignore-overrun", QrnicDevice,
                     cap_cq_ignore_overrun, true),
    DEFINE_PROP_BOOL("cap-scatter-fcs", QrnicDevice, cap_scatter_fcs, true),
    DEFINE_PROP_BOOL("cap-source-qpn", QrnicDevice, cap_source_qpn, true),
    DEFINE_PROP_BOOL("cap-rss", QrnicDevice, cap_rss, true),
    DEFINE_PROP_BOOL("cap-eth-rss", QrnicDevice, cap_eth_rss, true),
    DEFINE_PROP_BOOL("cap-dm", QrnicDevice, cap_dm, true),
    DEFINE_PROP_BOOL("cap-atomic-write", QrnicDevice, cap_atomic_write, true),
    DEFINE_PROP_BOOL("cap-flush", QrnicDevice, cap_flush, true),
    DEFINE_PROP_BOOL("cap-inline-recv", QrnicDevice, cap_inline_recv, true),
    DEFINE_PROP_BOOL("cap-rate-limit", QrnicDevice, cap_rate_limit, true),
    DEFINE_PROP_BOOL("cap-counter-sets", QrnicDevice, cap_counter_sets, true),
    DEFINE_PROP_BOOL("cap-roce-v1", QrnicDevice, cap_roce_v1, true),
    DEFINE_PROP_BOOL("cap-command-event", QrnicDevice, cap_command_event, true),
    DEFINE_PROP_BOOL("cap-atomic-glob", QrnicDevice, cap_atomic_glob, true),
};

void qrnic_properties_add(ObjectClass *klass)
{
    device_class_set_props(DEVICE_CLASS(klass), device_properties);
    object_class_property_add(klass, "counters", "struct", counters_get, NULL,
                              NULL, NULL);
    object_class_property_set_description(klass, "counters",
        "All counters; see the chapter Counters of the manual");
    object_class_property_add(klass, "queue-pairs", "list", queue_pairs_get,
                              NULL, NULL, NULL);
    object_class_property_set_description(klass, "queue-pairs",
        "State of the queue pairs; see the chapter Counters of the manual");
    object_class_property_add_str(klass, "stop-at", stop_at_get, stop_at_set);
    object_class_property_set_description(klass, "stop-at",
        "Kinds of events at which the device stops; see the chapter Captures "
        "of the manual");
    object_class_property_add(klass, "stopped", "struct", stopped_get, NULL,
                              NULL, NULL);
    object_class_property_set_description(klass, "stopped",
        "Event at which the device is stopped, or empty");
    object_class_property_add_bool(klass, "continue", NULL, continue_set);
    object_class_property_set_description(klass, "continue",
        "Write true: the stopped device continues up to the next event");
}
