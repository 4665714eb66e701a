// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * flow.c: flow rules of raw packet queue pairs, and their counters. The rule of
 * verbs is a list of layers; the device needs one match over the whole frame
 * (manual, Flow steering). The RDMA core serialises creation and destruction of
 * a rule. The device checks rules against each other.
 */
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/slab.h>

#include "memory.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "verbs.h"

static_assert((int)IB_FLOW_ATTR_NORMAL == QRNIC_FLOW_NORMAL);
static_assert((int)IB_FLOW_ATTR_ALL_DEFAULT == QRNIC_FLOW_ALL_DEFAULT);
static_assert((int)IB_FLOW_ATTR_MC_DEFAULT == QRNIC_FLOW_MC_DEFAULT);
static_assert((int)IB_FLOW_ATTR_SNIFFER == QRNIC_FLOW_SNIFFER);

/* Flow rule */
struct qrnic_ib_flow {
	struct ib_flow ibflow;
	u32 number;
};

/*
 * Sets value and mask of a member. Bits of the value outside of the mask are
 * cleared, because the device rejects them.
 */
static void qrnic_bits_set(void *value, void *mask, const void *layer_value,
			   const void *layer_mask, size_t len)
{
	const u8 *from = layer_value, *bits = layer_mask;
	u8 *to = value, *to_mask = mask;
	size_t i;

	for (i = 0; i < len; i++) {
		to[i] = from[i] & bits[i];
		to_mask[i] = bits[i];
	}
}

/*
 * Requires the Ethernet type that a layer above implies. Returns -EINVAL if the
 * rule has another one.
 */
static int qrnic_ethertype_imply(struct qrnic_flow_ctx *context, u16 type)
{
	__be16 wanted = cpu_to_be16(type);

	if ((context->value.ethertype ^ wanted) & context->mask.ethertype)
		return -EINVAL;
	context->value.ethertype = wanted;
	context->mask.ethertype = cpu_to_be16(0xffff);
	return 0;
}

static int qrnic_protocol_imply(struct qrnic_flow_ctx *context, u8 protocol)
{
	if ((context->value.protocol ^ protocol) & context->mask.protocol)
		return -EINVAL;
	context->value.protocol = protocol;
	context->mask.protocol = 0xff;
	return 0;
}

static void qrnic_ethernet_fill(struct qrnic_flow_ctx *context,
				const struct ib_flow_spec_eth *spec)
{
	struct qrnic_flow_match *value = &context->value, *mask = &context->mask;

	qrnic_bits_set(value->dmac, mask->dmac, spec->val.dst_mac,
		       spec->mask.dst_mac, sizeof(value->dmac));
	qrnic_bits_set(value->smac, mask->smac, spec->val.src_mac,
		       spec->mask.src_mac, sizeof(value->smac));
	qrnic_bits_set(&value->ethertype, &mask->ethertype, &spec->val.ether_type,
		       &spec->mask.ether_type, sizeof(value->ethertype));
	qrnic_bits_set(&value->vlan_tci, &mask->vlan_tci, &spec->val.vlan_tag,
		       &spec->mask.vlan_tag, sizeof(value->vlan_tci));
}

static int qrnic_ipv4_fill(struct qrnic_flow_ctx *context,
			   const struct ib_flow_spec_ipv4 *spec)
{
	struct qrnic_flow_match *value = &context->value, *mask = &context->mask;

	if (spec->mask.flags)
		return -EOPNOTSUPP;
	/*
	 * The device matches IPv4 addresses as IPv6 addresses ::ffff:a.b.c.d,
	 * so they are the last bytes.
	 */
	qrnic_bits_set(&value->sip[12], &mask->sip[12], &spec->val.src_ip,
		       &spec->mask.src_ip, sizeof(spec->val.src_ip));
	qrnic_bits_set(&value->dip[12], &mask->dip[12], &spec->val.dst_ip,
		       &spec->mask.dst_ip, sizeof(spec->val.dst_ip));
	value->protocol = spec->val.proto & spec->mask.proto;
	mask->protocol = spec->mask.proto;
	value->traffic_class = spec->val.tos & spec->mask.tos;
	mask->traffic_class = spec->mask.tos;
	value->hop_limit = spec->val.ttl & spec->mask.ttl;
	mask->hop_limit = spec->mask.ttl;
	return qrnic_ethertype_imply(context, ETH_P_IP);
}

static int qrnic_ipv6_fill(struct qrnic_flow_ctx *context,
			   const struct ib_flow_spec_ipv6 *spec)
{
	struct qrnic_flow_match *value = &context->value, *mask = &context->mask;

	qrnic_bits_set(value->sip, mask->sip, spec->val.src_ip, spec->mask.src_ip,
		       sizeof(value->sip));
	qrnic_bits_set(value->dip, mask->dip, spec->val.dst_ip, spec->mask.dst_ip,
		       sizeof(value->dip));
	value->flow_label = spec->val.flow_label & spec->mask.flow_label;
	mask->flow_label = spec->mask.flow_label;
	value->protocol = spec->val.next_hdr & spec->mask.next_hdr;
	mask->protocol = spec->mask.next_hdr;
	value->traffic_class = spec->val.traffic_class &
			       spec->mask.traffic_class;
	mask->traffic_class = spec->mask.traffic_class;
	value->hop_limit = spec->val.hop_limit & spec->mask.hop_limit;
	mask->hop_limit = spec->mask.hop_limit;
	return qrnic_ethertype_imply(context, ETH_P_IPV6);
}

static int qrnic_transport_fill(struct qrnic_flow_ctx *context,
				const struct ib_flow_spec_tcp_udp *spec)
{
	struct qrnic_flow_match *value = &context->value, *mask = &context->mask;

	value->sport = spec->val.src_port & spec->mask.src_port;
	mask->sport = spec->mask.src_port;
	value->dport = spec->val.dst_port & spec->mask.dst_port;
	mask->dport = spec->mask.dst_port;
	return qrnic_protocol_imply(context, spec->type == IB_FLOW_SPEC_TCP ?
					       IPPROTO_TCP : IPPROTO_UDP);
}

/* Layers of a rule; each may occur once, in this order */
enum flow_layer {
	LAYER_NONE,
	LAYER_ETHERNET,
	LAYER_IP,
	LAYER_TRANSPORT,
};

static int qrnic_count_fill(struct qrnic_flow_ctx *context,
			    const struct ib_flow_spec_action_count *spec)
{
	if (context->counter_set)
		return -EINVAL;
	context->counter_set = cpu_to_le32(to_qrnic_counters(spec->counters)->set);
	return 0;
}

static int qrnic_spec_fill(struct qrnic_flow_ctx *context,
			   const union ib_flow_spec *spec, enum flow_layer *last)
{
	enum flow_layer layer;
	int err = 0;

	/*
	 * A counter may stand anywhere among the layers, because its position
	 * has no meaning.
	 */
	if (spec->type == IB_FLOW_SPEC_ACTION_COUNT)
		return qrnic_count_fill(context, &spec->flow_count);
	/*
	 * Rules of a type other than NORMAL accept no layers, because their
	 * type defines the match.
	 */
	if (context->type != QRNIC_FLOW_NORMAL)
		return -EINVAL;
	switch (spec->type) {
	case IB_FLOW_SPEC_ETH:
		layer = LAYER_ETHERNET;
		qrnic_ethernet_fill(context, &spec->eth);
		break;
	case IB_FLOW_SPEC_IPV4:
		layer = LAYER_IP;
		err = qrnic_ipv4_fill(context, &spec->ipv4);
		break;
	case IB_FLOW_SPEC_IPV6:
		layer = LAYER_IP;
		err = qrnic_ipv6_fill(context, &spec->ipv6);
		break;
	case IB_FLOW_SPEC_TCP:
	case IB_FLOW_SPEC_UDP:
		layer = LAYER_TRANSPORT;
		err = qrnic_transport_fill(context, &spec->tcp_udp);
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (layer <= *last)
		return -EINVAL;
	*last = layer;
	return err;
}

static int qrnic_context_fill(struct qrnic_flow_ctx *context,
			      const struct ib_flow_attr *attr)
{
	const void *spec = attr->flows;
	enum flow_layer last = LAYER_NONE;
	int i, err;

	/*
	 * Rejected, because the device supports neither
	 * IB_FLOW_ATTR_FLAGS_DONT_TRAP nor rules for sent frames.
	 */
	if (attr->flags)
		return -EOPNOTSUPP;
	if (attr->type > IB_FLOW_ATTR_SNIFFER)
		return -EOPNOTSUPP;

	context->type = attr->type;
	context->priority = cpu_to_le16(attr->priority);
	for (i = 0; i < attr->num_of_specs; i++) {
		err = qrnic_spec_fill(context, spec, &last);
		if (err)
			return err;
		spec += ((const union ib_flow_spec *)spec)->size;
	}
	return 0;
}

/*
 * Creates a rule. The RDMA core has checked the port, and that the process may
 * receive frames of others.
 */
struct ib_flow *qrnic_ib_create_flow(struct ib_qp *ibqp,
				     struct ib_flow_attr *attr,
				     struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	u32 rss = to_qrnic_qp(ibqp)->rss;
	struct qrnic_flow_ctx context = {};
	struct qrnic_cmd command = {
		.opcode = QRNIC_CMD_CREATE_FLOW,
		.object = rss ?: ibqp->qp_num,
		.in = &context,
		.in_len = sizeof(context),
	};
	struct qrnic_ib_flow *flow;
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_FLOW) ||
	    ibqp->qp_type != IB_QPT_RAW_PACKET)
		return ERR_PTR(-EOPNOTSUPP);
	err = qrnic_udata_none(udata);
	if (err)
		return ERR_PTR(err);
	err = qrnic_context_fill(&context, attr);
	if (err)
		return ERR_PTR(err);

	flow = kzalloc(sizeof(*flow), GFP_KERNEL);
	if (!flow)
		return ERR_PTR(-ENOMEM);
	if (rss)
		context.flags = QRNIC_FLOWF_RSS;
	err = qrnic_cmd_exec(dev->qdev, &command);
	if (err) {
		kfree(flow);
		return ERR_PTR(err);
	}
	flow->number = command.result;
	return &flow->ibflow;
}

int qrnic_ib_destroy_flow(struct ib_flow *ibflow)
{
	struct qrnic_ib_flow *flow = container_of(ibflow, struct qrnic_ib_flow,
						  ibflow);
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibflow->device);

	qrnic_destroy(dev, QRNIC_CMD_DESTROY_FLOW, flow->number);
	kfree(flow);
	return 0;
}

/* Allocates cleared counters, which count while a rule uses them. */
int qrnic_ib_create_counters(struct ib_counters *ibcounters,
			     struct uverbs_attr_bundle *attrs)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcounters->device);

	if (!qrnic_ib_cap(dev, QRNIC_CAP_COUNTER_SETS) ||
	    !qrnic_ib_cap(dev, QRNIC_CAP_FLOW))
		return -EOPNOTSUPP;
	return qrnic_cmd_create(dev->qdev, QRNIC_CMD_ALLOC_COUNTER_SET, NULL, 0,
				&to_qrnic_counters(ibcounters)->set);
}

int qrnic_ib_destroy_counters(struct ib_counters *ibcounters)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcounters->device);

	qrnic_destroy(dev, QRNIC_CMD_FREE_COUNTER_SET,
		      to_qrnic_counters(ibcounters)->set);
	return 0;
}

/*
 * Returns the counters in the order of enum qrnic_flow_counter. The process
 * knows their position in its own array.
 */
int qrnic_ib_read_counters(struct ib_counters *ibcounters,
			   struct ib_counters_read_attr *attr,
			   struct uverbs_attr_bundle *attrs)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibcounters->device);
	u64 *values;
	int err;

	values = kcalloc(QRNIC_NUM_COUNTERS, sizeof(*values), GFP_KERNEL);
	if (!values)
		return -ENOMEM;

	err = qrnic_cmd_query_counters(dev->qdev, QRNIC_CMD_QUERY_COUNTER_SET,
				       to_qrnic_counters(ibcounters)->set, values);
	if (attr->ncounters > QRNIC_FLOW_PACKETS)
		attr->counters_buff[QRNIC_FLOW_PACKETS] =
			values[QRNIC_COUNTER_FLOW_RX_PACKETS];
	if (attr->ncounters > QRNIC_FLOW_BYTES)
		attr->counters_buff[QRNIC_FLOW_BYTES] =
			values[QRNIC_COUNTER_FLOW_RX_BYTES];
	kfree(values);
	return err;
}
