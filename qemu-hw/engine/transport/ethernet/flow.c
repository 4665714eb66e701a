/*
 * qrnic engine, layer transport: flow rules
 *
 * Flow rules select the raw packet queue pairs that receive a frame, besides
 * the Ethernet function. Commands create and destroy rules. For each frame
 * raw_packet.c requests sniffers, and then the first matching normal rule. A
 * default rule comes last, if the receive filter has not accepted the frame.
 * Between calls e->transport->flow holds all rules in the order of their
 * priority. Manual, chapter on flow rules.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"

/*
 * Largest number of sniffers. The limit is low, because the copies for sniffers
 * are not charged to the work budget.
 */
#define MAX_SNIFFERS 16

/* The 64 bytes of a flow_match, in the layout of the contract */
typedef union MatchBytes {
    uint8_t byte[QRNIC_FLOW_MATCH_BYTES];
    uint64_t word[QRNIC_FLOW_MATCH_BYTES / 8];
} MatchBytes;

typedef struct QrnicFlow {
    uint32_t number;
    /* number of a queue pair; of an RSS table if rss is set */
    uint32_t qpn;
    bool rss;
    uint8_t type;               /* enum qrnic_flow_type */
    uint16_t priority;
    QrnicCounterSet *counters;  /* counter set, or NULL */
    MatchBytes value, mask;
} QrnicFlow;

/* Fields of a frame; present has ones for the fields that the frame has */
typedef struct FrameFields {
    MatchBytes value, present;
} FrameFields;

static void field_set(FrameFields *f, unsigned offset, const void *value,
                      size_t len)
{
    memcpy(f->value.byte + offset, value, len);
    memset(f->present.byte + offset, 0xff, len);
}

static void field_set_be16(FrameFields *f, unsigned offset, unsigned value)
{
    uint8_t raw[2];

    qrnic_st_be16(raw, value);
    field_set(f, offset, raw, sizeof(raw));
}

static void field_set_u8(FrameFields *f, unsigned offset, uint8_t value)
{
    field_set(f, offset, &value, sizeof(value));
}

/* Extracts the fields of a frame, which must have an Ethernet header. */
static void fields_of(FrameFields *f, const QrnicHeaders *h)
{
    memset(f, 0, sizeof(*f));
    field_set(f, QRNIC_FLOW_MATCH_DMAC_OFFSET, h->frame, 6);
    field_set(f, QRNIC_FLOW_MATCH_SMAC_OFFSET, h->frame + 6, 6);
    if (h->tagged) {
        field_set_be16(f, QRNIC_FLOW_MATCH_VLAN_TCI_OFFSET, h->tci);
    }
    field_set_be16(f, QRNIC_FLOW_MATCH_ETHERTYPE_OFFSET, h->ethertype);
    if (!qrnic_headers_have_ip(h)) {
        return;
    }
    field_set(f, QRNIC_FLOW_MATCH_SIP_OFFSET, h->sgid, 16);
    field_set(f, QRNIC_FLOW_MATCH_DIP_OFFSET, h->dgid, 16);
    field_set_u8(f, QRNIC_FLOW_MATCH_PROTOCOL_OFFSET, h->protocol);
    field_set_u8(f, QRNIC_FLOW_MATCH_TRAFFIC_CLASS_OFFSET, h->traffic_class);
    field_set_u8(f, QRNIC_FLOW_MATCH_HOP_LIMIT_OFFSET, h->hop_limit);
    if (h->network == QRNIC_NET_IPV6) {
        qrnic_st_be32(f->value.byte + QRNIC_FLOW_MATCH_FLOW_LABEL_OFFSET,
                      h->flow_label);
        qrnic_st_be32(f->present.byte + QRNIC_FLOW_MATCH_FLOW_LABEL_OFFSET,
                      0xfffff);
    }
    if (h->l4) {
        field_set_be16(f, QRNIC_FLOW_MATCH_SPORT_OFFSET, h->sport);
        field_set_be16(f, QRNIC_FLOW_MATCH_DPORT_OFFSET, h->dport);
    }
}

static bool matches(const QrnicFlow *flow, const FrameFields *f)
{
    for (unsigned i = 0; i < ARRAY_SIZE(flow->mask.word); i++) {
        uint64_t differs = (flow->value.word[i] ^ f->value.word[i]) |
                           ~f->present.word[i];

        if (differs & flow->mask.word[i]) {
            return false;
        }
    }
    return true;
}

/*
 * Counts a frame in the counter set of its rule. The device counters stay
 * unchanged, because they are the sum of the sets of queue pairs and of the
 * events in no set.
 */
static void count_frame(QrnicFlow *flow, const QrnicHeaders *h)
{
    if (flow->counters) {
        flow->counters->counter[QRNIC_COUNTER_FLOW_RX_PACKETS]++;
        flow->counters->counter[QRNIC_COUNTER_FLOW_RX_BYTES] += h->len;
    }
}

/*
 * Returns the first rule from *i on that has this type, matches the frame, and
 * whose queue pair can receive. For other types than normal f is NULL, because
 * only normal rules compare fields.
 */
static QrnicFlow *next_rule(QrnicEngine *e, uint32_t *i, uint8_t type,
                            const QrnicHeaders *h, const FrameFields *f,
                            const QrnicQp *except, QrnicQp **qp)
{
    while (*i < e->transport->num_flows) {
        QrnicFlow *flow = e->transport->flow[(*i)++];
        QrnicRssHash hash;

        if (flow->type != type || (f && !matches(flow, f))) {
            continue;
        }
        *qp = qrnic_qp_get(e, flow->rss ?
                              qrnic_rss_qpn(e, flow->qpn, h, &hash) :
                              flow->qpn);
        if (*qp != except && qrnic_qp_receives(*qp, false)) {
            return flow;
        }
    }
    return NULL;
}

static QrnicQp *first_receiver(QrnicEngine *e, uint8_t type,
                               const QrnicHeaders *h, const FrameFields *f,
                               const QrnicQp *except)
{
    uint32_t i = 0;
    QrnicQp *qp;
    QrnicFlow *flow = next_rule(e, &i, type, h, f, except, &qp);

    if (!flow) {
        return NULL;
    }
    count_frame(flow, h);
    trace_qrnic_flow_match(e->config.name, flow->number, qp->number,
                           qrnic_flow_type_name(flow->type), h->len);
    return qp;
}

QrnicQp *qrnic_flow_sniffer(QrnicEngine *e, const QrnicHeaders *h, uint32_t *i)
{
    QrnicQp *qp;
    QrnicFlow *flow = next_rule(e, i, QRNIC_FLOW_SNIFFER, h, NULL, NULL, &qp);

    if (!flow) {
        return NULL;
    }
    count_frame(flow, h);
    return qp;
}

QrnicQp *qrnic_flow_normal(QrnicEngine *e, const QrnicQp *except,
                           const QrnicHeaders *h)
{
    FrameFields fields;

    if (!e->transport->num_flows) {
        return NULL;
    }
    fields_of(&fields, h);
    return first_receiver(e, QRNIC_FLOW_NORMAL, h, &fields, except);
}

QrnicQp *qrnic_flow_default(QrnicEngine *e, const QrnicQp *except,
                            const QrnicHeaders *h)
{
    QrnicQp *qp = NULL;

    if (h->frame[0] & 1) {
        qp = first_receiver(e, QRNIC_FLOW_MC_DEFAULT, h, NULL, except);
    }
    return qp ? qp : first_receiver(e, QRNIC_FLOW_ALL_DEFAULT, h, NULL, except);
}

static QrnicResult match_check(const QrnicFlowCtx *in, const MatchBytes *value,
                               const MatchBytes *mask)
{
    for (unsigned i = 0; i < QRNIC_FLOW_MATCH_BYTES; i++) {
        if (value->byte[i] & ~mask->byte[i]) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_FLOW_CTX_VALUE_OFFSET + i);
        }
        if (in->type != QRNIC_FLOW_NORMAL && mask->byte[i]) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_FLOW_CTX_MASK_OFFSET + i);
        }
    }
    return qrnic_ok(0);
}

/*
 * Checks the counter set of a rule. A set belongs either to queue pairs or to
 * rules, because a frame would otherwise count twice in it.
 */
static QrnicResult counters_check(QrnicEngine *e, const QrnicFlowCtx *in)
{
    QrnicCounterSet *set = qrnic_counter_set_get(e, in->counter_set);

    if (!in->counter_set) {
        return qrnic_ok(0);
    }
    if (!(e->config.capabilities & QRNIC_CAP_COUNTER_SETS)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_FLOW_CTX_COUNTER_SET_OFFSET);
    }
    if (!set) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT,
                            QRNIC_FLOW_CTX_COUNTER_SET_OFFSET);
    }
    if (set->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    return qrnic_ok(0);
}

static QrnicResult create_check(QrnicEngine *e, uint32_t qpn,
                                const QrnicFlowCtx *in)
{
    bool rss = in->flags & QRNIC_FLOWF_RSS;
    QrnicQp *qp = rss ? NULL : qrnic_qp_get(e, qpn);

    if (!(e->config.capabilities & QRNIC_CAP_FLOW) ||
        (rss && !(e->config.capabilities & QRNIC_CAP_RSS))) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (rss ? !qrnic_rss_hold(e, qpn, 0) : !qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (qp && !qp->ops->takes_frames) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (rss && in->type == QRNIC_FLOW_SNIFFER) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_FLOW_CTX_FLAGS_OFFSET);
    }
    if (in->type > QRNIC_FLOW_SNIFFER) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_FLOW_CTX_TYPE_OFFSET);
    }
    return counters_check(e, in);
}

/* Inserts the rule behind all rules with the same or a lower priority value. */
static void order_insert(QrnicEngine *e, QrnicFlow *flow)
{
    uint32_t i = e->transport->num_flows++;

    for (; i && e->transport->flow[i - 1]->priority > flow->priority; i--) {
        e->transport->flow[i] = e->transport->flow[i - 1];
    }
    e->transport->flow[i] = flow;
    e->fabric->sniffers += flow->type == QRNIC_FLOW_SNIFFER;
}

static void order_remove(QrnicEngine *e, QrnicFlow *flow)
{
    uint32_t i = 0;

    while (e->transport->flow[i] != flow) {
        i++;
    }
    for (e->transport->num_flows--; i < e->transport->num_flows; i++) {
        e->transport->flow[i] = e->transport->flow[i + 1];
    }
    e->fabric->sniffers -= flow->type == QRNIC_FLOW_SNIFFER;
}

QrnicResult qrnic_flow_create(QrnicEngine *e, uint32_t qpn,
                              const QrnicFlowCtx *in)
{
    QrnicResult result = create_check(e, qpn, in);
    MatchBytes value, mask;
    QrnicFlow *flow;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    qrnic_flow_match_pack(value.byte, &in->value);
    qrnic_flow_match_pack(mask.byte, &in->mask);
    result = match_check(in, &value, &mask);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (in->type == QRNIC_FLOW_SNIFFER &&
        e->fabric->sniffers == MAX_SNIFFERS) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    flow = g_new0(QrnicFlow, 1);
    flow->qpn = qpn;
    flow->rss = in->flags & QRNIC_FLOWF_RSS;
    flow->type = in->type;
    flow->priority = in->priority;
    flow->counters = qrnic_counter_set_get(e, in->counter_set);
    flow->value = value;
    flow->mask = mask;
    if (!qrnic_table_insert(&e->transport->flows, flow, &flow->number)) {
        g_free(flow);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    order_insert(e, flow);
    if (flow->counters) {
        flow->counters->rules++;
    }
    if (flow->rss) {
        qrnic_rss_hold(e, qpn, 1);
    }
    trace_qrnic_flow_create(e->config.name, flow->number, qpn,
                            qrnic_flow_type_name(flow->type), flow->priority,
                            in->counter_set);
    return qrnic_ok(flow->number);
}

static void flow_remove(QrnicEngine *e, QrnicFlow *flow)
{
    trace_qrnic_flow_destroy(e->config.name, flow->number, flow->qpn);
    order_remove(e, flow);
    if (flow->counters) {
        flow->counters->rules--;
    }
    if (flow->rss) {
        qrnic_rss_hold(e, flow->qpn, -1);
    }
    g_free(qrnic_table_remove(&e->transport->flows, flow->number));
}

QrnicResult qrnic_flow_destroy(QrnicEngine *e, uint32_t number)
{
    QrnicFlow *flow = qrnic_table_get(&e->transport->flows, number);

    if (!flow) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    flow_remove(e, flow);
    return qrnic_ok(0);
}

void qrnic_flow_qp_destroyed(QrnicEngine *e, const QrnicQp *qp)
{
    for (uint32_t i = e->transport->num_flows; i-- > 0; ) {
        if (!e->transport->flow[i]->rss &&
            e->transport->flow[i]->qpn == qp->number) {
            flow_remove(e, e->transport->flow[i]);
        }
    }
}
