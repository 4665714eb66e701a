/*
 * qrnic: the properties of the device
 *
 * pf.c adds the properties to the class of the physical function. When a device
 * is realized, pf.c checks them with qrnic_properties_check() and then calls
 * qrnic_config_fill() for the configuration of the engine. Each function has
 * the properties that report its state (qrnic_reports_add()). Manual, chapter
 * "Properties".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/guest-random.h"
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
static bool check_values(QrnicPf *pf, Error **errp)
{
    const QrnicConfig *c = &pf->parent_obj.config;
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
        { "page-requests", pf->parent_obj.page_requests, 0,
          QRNIC_PAGE_GROUPS },
        { "context-stations", c->context_stations, 0, 1024 },
        { "context-latency", c->context_latency, 0, 1000000000 },
        { "vfs", pf->vfs, 0, QRNIC_MAX_VFS },
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
    if (pf->icrc && strcmp(pf->icrc, "standard") &&
        strcmp(pf->icrc, "transport") && strcmp(pf->icrc, "soft-roce")) {
        error_setg(errp, "qrnic: property 'icrc' is '%s', must be 'standard', "
                   "'transport' or 'soft-roce'", pf->icrc);
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
    if (pf->cable && pf->conf.peers.ncs[0]) {
        error_setg(errp, "qrnic: properties 'cable' and 'netdev' exclude each "
                   "other");
        return false;
    }
    if (pf->vfs && pf->cable) {
        error_setg(errp, "qrnic: properties 'vfs' and 'cable' exclude each "
                   "other");
        return false;
    }
    if (pf->vfs && pf->link_retransmission) {
        error_setg(errp, "qrnic: properties 'vfs' and 'link-retransmission' "
                   "exclude each other");
        return false;
    }
    if (pf->conf.macaddr.a[0] & 1) {
        error_setg(errp, "qrnic: property 'mac' is a multicast address");
        return false;
    }
    if (!pci_bus_is_express(pci_get_bus(PCI_DEVICE(pf)))) {
        error_setg(errp, "qrnic requires a PCI Express bus: "
                   "use '-machine q35' or a PCI Express port");
        return false;
    }
    return true;
}

bool qrnic_properties_check(QrnicPf *pf, Error **errp)
{
    QrnicConfig *c = &pf->parent_obj.config;

    /*
     * 0 means the default, because QEMU's options -nic and -net nic set
     * "vectors" to 0.
     */
    if (!c->vectors) {
        c->vectors = DEFAULT_VECTORS;
    }
    return check_values(pf, errp);
}

void qrnic_config_fill(QrnicPf *pf)
{
    QrnicConfig *c = &pf->parent_obj.config;
    const struct { bool on; uint64_t bit; } cap[] = {
        { true, QRNIC_CAP_RC },
        { pf->cap_atomic, QRNIC_CAP_ATOMIC },
        { pf->cap_direct_wqe, QRNIC_CAP_DIRECT_WQE },
        { pf->cap_inline_send, QRNIC_CAP_INLINE_SEND },
        { pf->cap_timestamp, QRNIC_CAP_TIMESTAMP },
        { pf->cap_eth_csum, QRNIC_CAP_ETH_CSUM },
        { pf->cap_eth_vlan, QRNIC_CAP_ETH_VLAN },
        { pf->cap_eth_csum && pf->cap_eth_tso, QRNIC_CAP_ETH_TSO },
        { pf->cap_eth_csum && pf->cap_eth_rx_coalesce,
          QRNIC_CAP_ETH_RX_COALESCE },
        { pf->cap_on_demand, QRNIC_CAP_ON_DEMAND },
        { pf->cap_indirect_mkey, QRNIC_CAP_INDIRECT_MKEY },
        { pf->cap_streaming_recv, QRNIC_CAP_STREAMING_RECV },
        { pf->cap_srq && pf->cap_tag_matching, QRNIC_CAP_TAG_MATCHING },
        { pf->cap_priority, QRNIC_CAP_PRIORITY },
        { pf->cap_selective_repeat, QRNIC_CAP_SELECTIVE_REPEAT },
        { pf->cap_adaptive_routing, QRNIC_CAP_ADAPTIVE_ROUTING },
        { pf->cap_shared_connection, QRNIC_CAP_SHARED_CONNECTION },
        { pf->cap_congestion_control, QRNIC_CAP_CONGESTION_CONTROL },
        { pf->cap_event_index && c->doorbell_hold, QRNIC_CAP_EVENT_INDEX },
        { pf->cap_context_cache && c->context_cache,
          QRNIC_CAP_CONTEXT_CACHE },
        { pf->cap_ud, QRNIC_CAP_UD },
        { pf->cap_uc, QRNIC_CAP_UC },
        { pf->cap_srq, QRNIC_CAP_SRQ },
        { pf->cap_srq && pf->cap_xrc, QRNIC_CAP_XRC },
        { pf->cap_srq && pf->cap_dynamic, QRNIC_CAP_DYNAMIC },
        { pf->cap_srq && pf->cap_srq_resize, QRNIC_CAP_SRQ_RESIZE },
        { pf->cap_mw, QRNIC_CAP_MW },
        { pf->cap_fast_reg, QRNIC_CAP_FAST_REG },
        { pf->cap_cq_resize, QRNIC_CAP_CQ_RESIZE },
        { pf->cap_cq_moderation, QRNIC_CAP_CQ_MODERATION },
        { pf->cap_flow, QRNIC_CAP_FLOW },
        { pf->cap_cq_ignore_overrun, QRNIC_CAP_CQ_IGNORE_OVERRUN },
        { pf->cap_scatter_fcs, QRNIC_CAP_SCATTER_FCS },
        { pf->cap_source_qpn, QRNIC_CAP_SOURCE_QPN },
        { pf->cap_flow && pf->cap_rss, QRNIC_CAP_RSS },
        { pf->cap_flow && pf->cap_rss && pf->cap_eth_rss, QRNIC_CAP_ETH_RSS },
        { pf->cap_dm && c->device_memory, QRNIC_CAP_DEVICE_MEMORY },
        { pf->cap_atomic_write, QRNIC_CAP_ATOMIC_WRITE },
        { pf->cap_flush, QRNIC_CAP_FLUSH },
        { pf->cap_inline_recv, QRNIC_CAP_INLINE_RECV },
        { pf->cap_rate_limit, QRNIC_CAP_RATE_LIMIT },
        { pf->cap_counter_sets, QRNIC_CAP_COUNTER_SETS },
        { pf->cap_roce_v1, QRNIC_CAP_ROCE_V1 },
        { pf->cap_command_event, QRNIC_CAP_COMMAND_EVENT },
        { pf->link_retransmission, QRNIC_CAP_LINK_RETRANSMISSION },
        { pf->parent_obj.shared_virtual, QRNIC_CAP_SHARED_VIRTUAL },
        { pf->vfs, QRNIC_CAP_SRIOV },
#ifdef QRNIC_HOST_ATOMIC64
        { pf->cap_atomic && pf->cap_atomic_glob, QRNIC_CAP_ATOMIC_GLOB },
#endif
    };

    c->capabilities = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(cap); i++) {
        c->capabilities |= cap[i].on ? cap[i].bit : 0;
    }
    if (pf->icrc && !strcmp(pf->icrc, "transport")) {
        c->icrc = QRNIC_ICRC_TRANSPORT;
    } else if (pf->icrc && !strcmp(pf->icrc, "soft-roce")) {
        c->icrc = QRNIC_ICRC_SOFT_ROCE;
    }
    qemu_guest_getrandom_nofail(c->translation_key, sizeof(c->translation_key));
    c->name = pf->parent_obj.name;
    memcpy(c->mac, pf->conf.macaddr.a, sizeof(c->mac));
}

static void counters_get(Object *obj, Visitor *v, const char *name,
                         void *opaque, Error **errp)
{
    QrnicDevice *d = QRNIC_FUNCTION(obj);

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
    QrnicDevice *d = QRNIC_FUNCTION(obj);
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
    QrnicDevice *d = QRNIC_FUNCTION(obj);

    if (qrnic_stop_set(d, value, errp)) {
        qrnic_kick(d);
    }
}

static char *stop_at_get(Object *obj, Error **errp)
{
    return qrnic_stop_get(QRNIC_FUNCTION(obj));
}

static void stopped_get(Object *obj, Visitor *v, const char *name, void *opaque,
                        Error **errp)
{
    qrnic_stop_visit(QRNIC_FUNCTION(obj), v, name, errp);
}

static void continue_set(Object *obj, bool value, Error **errp)
{
    QrnicDevice *d = QRNIC_FUNCTION(obj);

    if (!value) {
        error_setg(errp, "qrnic: property 'continue' accepts only true");
    } else if (qrnic_stop_continue(d, errp)) {
        qrnic_kick(d);
    }
}

static const Property device_properties[] = {
    DEFINE_NIC_PROPERTIES(QrnicPf, conf),
    DEFINE_PROP_LINK("cable", QrnicPf, cable, TYPE_QRNIC_CABLE, QrnicCable *),
    DEFINE_PROP_UINT32("vectors", QrnicPf, parent_obj.config.vectors,
                       DEFAULT_VECTORS),
    DEFINE_PROP_UINT32("doorbell-pages", QrnicPf, parent_obj.config.db_pages,
                       256),
    DEFINE_PROP_UINT32("doorbell-fifo", QrnicPf,
                       parent_obj.config.doorbell_fifo, 256),
    DEFINE_PROP_BOOL("ioeventfd", QrnicPf, parent_obj.ioeventfd, false),
    DEFINE_PROP_BOOL("link-retransmission", QrnicPf, link_retransmission,
                     false),
    DEFINE_PROP_BOOL("shared-virtual", QrnicPf, parent_obj.shared_virtual,
                     false),
    DEFINE_PROP_UINT32("translation-cache", QrnicPf,
                       parent_obj.config.translation_cache, 1024),
    DEFINE_PROP_UINT32("page-requests", QrnicPf, parent_obj.page_requests, 0),
    DEFINE_PROP_UINT32("vfs", QrnicPf, vfs, 0),
    DEFINE_PROP_STRING("capture", QrnicPf, capture_path),
    DEFINE_PROP_UINT32("capture-qp", QrnicPf, capture_qp, 0),
    DEFINE_PROP_UINT32("max-qp", QrnicPf, parent_obj.config.max_qp, 16384),
    DEFINE_PROP_UINT32("max-cq", QrnicPf, parent_obj.config.max_cq, 16384),
    DEFINE_PROP_UINT32("max-mkey", QrnicPf, parent_obj.config.max_mkey, 65536),
    DEFINE_PROP_UINT32("max-pd", QrnicPf, parent_obj.config.max_pd, 4096),
    DEFINE_PROP_UINT32("max-gid", QrnicPf, parent_obj.config.max_gid, 256),
    DEFINE_PROP_UINT32("max-srq", QrnicPf, parent_obj.config.max_srq, 8192),
    DEFINE_PROP_UINT32("max-flow", QrnicPf, parent_obj.config.max_flow, 1024),
    DEFINE_PROP_UINT32("max-sge", QrnicPf, parent_obj.config.max_sge,
                       QRNIC_MAX_SGE),
    DEFINE_PROP_UINT32("max-inline", QrnicPf, parent_obj.config.max_inline,
                       QRNIC_MAX_INLINE),
    DEFINE_PROP_UINT32("max-rd-atomic", QrnicPf,
                       parent_obj.config.max_rd_atomic, 16),
    DEFINE_PROP_SIZE("device-memory-size", QrnicPf,
                     parent_obj.config.device_memory, 1 << 20),
    DEFINE_PROP_UINT32("doorbell-hold", QrnicPf,
                       parent_obj.config.doorbell_hold, 0),
    DEFINE_PROP_UINT32("context-cache", QrnicPf,
                       parent_obj.config.context_cache, 0),
    DEFINE_PROP_UINT32("context-stations", QrnicPf,
                       parent_obj.config.context_stations, 16),
    DEFINE_PROP_UINT32("context-latency", QrnicPf,
                       parent_obj.config.context_latency, 1000),
    DEFINE_PROP_STRING("icrc", QrnicPf, icrc),
    DEFINE_PROP_BOOL("cap-atomic", QrnicPf, cap_atomic, true),
    DEFINE_PROP_BOOL("cap-direct-wqe", QrnicPf, cap_direct_wqe, true),
    DEFINE_PROP_BOOL("cap-inline-send", QrnicPf, cap_inline_send, true),
    DEFINE_PROP_BOOL("cap-timestamp", QrnicPf, cap_timestamp, true),
    DEFINE_PROP_BOOL("cap-eth-csum", QrnicPf, cap_eth_csum, true),
    DEFINE_PROP_BOOL("cap-eth-vlan", QrnicPf, cap_eth_vlan, true),
    DEFINE_PROP_BOOL("cap-eth-tso", QrnicPf, cap_eth_tso, true),
    DEFINE_PROP_BOOL("cap-eth-rx-coalesce", QrnicPf, cap_eth_rx_coalesce, true),
    DEFINE_PROP_BOOL("cap-on-demand", QrnicPf, cap_on_demand, true),
    DEFINE_PROP_BOOL("cap-indirect-mkey", QrnicPf, cap_indirect_mkey, true),
    DEFINE_PROP_BOOL("cap-streaming-recv", QrnicPf, cap_streaming_recv, true),
    DEFINE_PROP_BOOL("cap-tag-matching", QrnicPf, cap_tag_matching, true),
    DEFINE_PROP_BOOL("cap-context-cache", QrnicPf, cap_context_cache, true),
    DEFINE_PROP_BOOL("cap-dynamic", QrnicPf, cap_dynamic, true),
    DEFINE_PROP_BOOL("cap-priority", QrnicPf, cap_priority, true),
    DEFINE_PROP_BOOL("cap-selective-repeat", QrnicPf, cap_selective_repeat,
                     true),
    DEFINE_PROP_BOOL("cap-adaptive-routing", QrnicPf, cap_adaptive_routing,
                     true),
    DEFINE_PROP_BOOL("cap-shared-connection", QrnicPf, cap_shared_connection,
                     true),
    DEFINE_PROP_BOOL("cap-congestion-control", QrnicPf, cap_congestion_control,
                     true),
    DEFINE_PROP_BOOL("cap-event-index", QrnicPf, cap_event_index, true),
    DEFINE_PROP_BOOL("cap-ud", QrnicPf, cap_ud, true),
    DEFINE_PROP_BOOL("cap-uc", QrnicPf, cap_uc, true),
    DEFINE_PROP_BOOL("cap-srq", QrnicPf, cap_srq, true),
    DEFINE_PROP_BOOL("cap-srq-resize", QrnicPf, cap_srq_resize, true),
    DEFINE_PROP_BOOL("cap-xrc", QrnicPf, cap_xrc, true),
    DEFINE_PROP_BOOL("cap-mw", QrnicPf, cap_mw, true),
    DEFINE_PROP_BOOL("cap-fast-reg", QrnicPf, cap_fast_reg, true),
    DEFINE_PROP_BOOL("cap-cq-resize", QrnicPf, cap_cq_resize, true),
    DEFINE_PROP_BOOL("cap-cq-moderation", QrnicPf, cap_cq_moderation, true),
    DEFINE_PROP_BOOL("cap-flow", QrnicPf, cap_flow, true),
    DEFINE_PROP_BOOL("cap-cq-ignore-overrun", QrnicPf, cap_cq_ignore_overrun,
                     true),
    DEFINE_PROP_BOOL("cap-scatter-fcs", QrnicPf, cap_scatter_fcs, true),
    DEFINE_PROP_BOOL("cap-source-qpn", QrnicPf, cap_source_qpn, true),
    DEFINE_PROP_BOOL("cap-rss", QrnicPf, cap_rss, true),
    DEFINE_PROP_BOOL("cap-eth-rss", QrnicPf, cap_eth_rss, true),
    DEFINE_PROP_BOOL("cap-dm", QrnicPf, cap_dm, true),
    DEFINE_PROP_BOOL("cap-atomic-write", QrnicPf, cap_atomic_write, true),
    DEFINE_PROP_BOOL("cap-flush", QrnicPf, cap_flush, true),
    DEFINE_PROP_BOOL("cap-inline-recv", QrnicPf, cap_inline_recv, true),
    DEFINE_PROP_BOOL("cap-rate-limit", QrnicPf, cap_rate_limit, true),
    DEFINE_PROP_BOOL("cap-counter-sets", QrnicPf, cap_counter_sets, true),
    DEFINE_PROP_BOOL("cap-roce-v1", QrnicPf, cap_roce_v1, true),
    DEFINE_PROP_BOOL("cap-command-event", QrnicPf, cap_command_event, true),
    DEFINE_PROP_BOOL("cap-atomic-glob", QrnicPf, cap_atomic_glob, true),
};

void qrnic_properties_add(ObjectClass *klass)
{
    device_class_set_props(DEVICE_CLASS(klass), device_properties);
}

void qrnic_reports_add(ObjectClass *klass)
{
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
