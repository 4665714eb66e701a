// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * mad.c: performance management agent (InfiniBand specification, 16.1): the
 * counters of the port as PortCounters and PortCountersExtended.
 *
 * The MAD layer calls qrnic_ib_process_mad() for requests from the network, and
 * the RDMA core for sysfs (ports/1/counters). The counters of the device cannot
 * be written, so a write only changes a base that is subtracted. pma_mutex
 * protects the bases.
 */
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>

#include "qrnic_ib.h"
#include "verbs.h"

/*
 * Response time, 4.096 us << 18 or about one second, because a reply needs one
 * command
 */
#define PMA_RESPONSE_TIME 18

/* Counters of the port, in the order of the bits of PortCountersExtended */
enum {
	PMA_XMIT_DATA,
	PMA_RCV_DATA,
	PMA_XMIT_PACKETS,
	PMA_RCV_PACKETS,
	PMA_UNICAST_XMIT_PACKETS,
	PMA_UNICAST_RCV_PACKETS,
	PMA_MULTICAST_XMIT_PACKETS,
	PMA_MULTICAST_RCV_PACKETS,
	/* The next ones are in PortCounters only */
	PMA_EXTENDED_COUNTERS,

	PMA_LINK_DOWNED = PMA_EXTENDED_COUNTERS,
	PMA_RCV_ERRORS,
	PMA_XMIT_DISCARDS,
	PMA_COUNTERS
};

static_assert((int)PMA_COUNTERS == QRNIC_PMA_COUNTERS);

struct pma_values {
	u64 value[PMA_COUNTERS];
};

/*
 * Reads the counters of the port. Counters that an Ethernet port does not have
 * stay 0. Data is counted in words of 32 bits (16.1.3.5).
 */
static int qrnic_pma_query(struct qrnic_ib_dev *dev, struct pma_values *now)
{
	u64 *device;
	int err;

	device = kcalloc(QRNIC_NUM_COUNTERS, sizeof(*device), GFP_KERNEL);
	if (!device)
		return -ENOMEM;
	err = qrnic_cmd_query_counters(dev->qdev, QRNIC_CMD_QUERY_COUNTERS, 0,
				       device);
	if (!err)
		*now = (struct pma_values) { .value = {
			[PMA_XMIT_DATA] =
				device[QRNIC_COUNTER_ROCE_TX_BYTES] / 4,
			[PMA_RCV_DATA] =
				device[QRNIC_COUNTER_ROCE_RX_BYTES] / 4,
			[PMA_XMIT_PACKETS] =
				device[QRNIC_COUNTER_ROCE_TX_PACKETS],
			[PMA_RCV_PACKETS] =
				device[QRNIC_COUNTER_ROCE_RX_PACKETS],
			[PMA_UNICAST_XMIT_PACKETS] =
				device[QRNIC_COUNTER_ROCE_TX_PACKETS] -
				device[QRNIC_COUNTER_ROCE_TX_MULTICAST],
			[PMA_UNICAST_RCV_PACKETS] =
				device[QRNIC_COUNTER_ROCE_RX_PACKETS] -
				device[QRNIC_COUNTER_ROCE_RX_MULTICAST],
			[PMA_MULTICAST_XMIT_PACKETS] =
				device[QRNIC_COUNTER_ROCE_TX_MULTICAST],
			[PMA_MULTICAST_RCV_PACKETS] =
				device[QRNIC_COUNTER_ROCE_RX_MULTICAST],
			[PMA_LINK_DOWNED] = device[QRNIC_COUNTER_LINK_DOWNS],
			[PMA_RCV_ERRORS] =
				device[QRNIC_COUNTER_RX_DROP_ICRC] +
				device[QRNIC_COUNTER_RX_DROP_MALFORMED],
			[PMA_XMIT_DISCARDS] =
				device[QRNIC_COUNTER_TX_DROP_LINK],
		} };
	kfree(device);
	return err;
}

/*
 * Returns the value since the last write. Counters of less than 64 bits stop at
 * their largest value (16.1.3.5).
 */
static u64 qrnic_pma_get(const struct pma_values *now, const u64 *base, int counter,
			 u64 max)
{
	return min(now->value[counter] - base[counter], max);
}

static void qrnic_pma_get_counters(const struct pma_values *now, const u64 *base,
				   struct ib_pma_portcounters *p)
{
	p->link_downed_counter = qrnic_pma_get(now, base, PMA_LINK_DOWNED, U8_MAX);
	p->port_rcv_errors =
		cpu_to_be16(qrnic_pma_get(now, base, PMA_RCV_ERRORS, U16_MAX));
	p->port_xmit_discards =
		cpu_to_be16(qrnic_pma_get(now, base, PMA_XMIT_DISCARDS, U16_MAX));
	p->port_xmit_data =
		cpu_to_be32(qrnic_pma_get(now, base, PMA_XMIT_DATA, U32_MAX));
	p->port_rcv_data =
		cpu_to_be32(qrnic_pma_get(now, base, PMA_RCV_DATA, U32_MAX));
	p->port_xmit_packets =
		cpu_to_be32(qrnic_pma_get(now, base, PMA_XMIT_PACKETS, U32_MAX));
	p->port_rcv_packets =
		cpu_to_be32(qrnic_pma_get(now, base, PMA_RCV_PACKETS, U32_MAX));
}

/*
 * Returns the first counter of PortCountersExtended. The others follow it in
 * the order of their bits.
 */
static __be64 *qrnic_pma_extended(struct ib_pma_portcounters_ext *p)
{
	return (void *)p + offsetof(struct ib_pma_portcounters_ext,
				    port_xmit_data);
}

static void qrnic_pma_get_extended(const struct pma_values *now, const u64 *base,
				   struct ib_pma_portcounters_ext *p)
{
	__be64 *counters = qrnic_pma_extended(p);
	int i;

	for (i = 0; i < PMA_EXTENDED_COUNTERS; i++)
		counters[i] = cpu_to_be64(qrnic_pma_get(now, base, i, U64_MAX));
}

/*
 * Sets a selected counter to a value by changing its base, because the counter
 * of the device cannot be written.
 */
static void qrnic_pma_set(const struct pma_values *now, u64 *base, int counter,
			  bool selected, u64 value)
{
	if (selected)
		base[counter] = now->value[counter] - value;
}

static void qrnic_pma_set_counters(const struct pma_values *now, u64 *base,
				   const struct ib_pma_portcounters *p)
{
	__be16 select = p->counter_select;

	qrnic_pma_set(now, base, PMA_LINK_DOWNED,
		      !!(select & IB_PMA_SEL_LINK_DOWNED), p->link_downed_counter);
	qrnic_pma_set(now, base, PMA_RCV_ERRORS,
		      !!(select & IB_PMA_SEL_PORT_RCV_ERRORS),
		      be16_to_cpu(p->port_rcv_errors));
	qrnic_pma_set(now, base, PMA_XMIT_DISCARDS,
		      !!(select & IB_PMA_SEL_PORT_XMIT_DISCARDS),
		      be16_to_cpu(p->port_xmit_discards));
	qrnic_pma_set(now, base, PMA_XMIT_DATA,
		      !!(select & IB_PMA_SEL_PORT_XMIT_DATA),
		      be32_to_cpu(p->port_xmit_data));
	qrnic_pma_set(now, base, PMA_RCV_DATA, !!(select & IB_PMA_SEL_PORT_RCV_DATA),
		      be32_to_cpu(p->port_rcv_data));
	qrnic_pma_set(now, base, PMA_XMIT_PACKETS,
		      !!(select & IB_PMA_SEL_PORT_XMIT_PACKETS),
		      be32_to_cpu(p->port_xmit_packets));
	qrnic_pma_set(now, base, PMA_RCV_PACKETS,
		      !!(select & IB_PMA_SEL_PORT_RCV_PACKETS),
		      be32_to_cpu(p->port_rcv_packets));
}

static void qrnic_pma_set_extended(const struct pma_values *now, u64 *base,
				   struct ib_pma_portcounters_ext *p)
{
	const __be64 *counters = qrnic_pma_extended(p);
	u16 select = be16_to_cpu(p->counter_select);
	int i;

	for (i = 0; i < PMA_EXTENDED_COUNTERS; i++)
		qrnic_pma_set(now, base, i, select & BIT(i),
			      be64_to_cpu(counters[i]));
}

/*
 * Writes the attribute ClassPortInfo. Returns a status of the common MAD header
 * (13.4.7).
 */
static __be16 qrnic_pma_class_port_info(struct ib_pma_mad *out)
{
	struct ib_class_port_info *info = (void *)out->data;

	if (out->mad_hdr.method != IB_MGMT_METHOD_GET)
		return cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);
	memset(info, 0, sizeof(*info));
	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = 1;
	info->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH;
	ib_set_cpi_resp_time(info, PMA_RESPONSE_TIME);
	return 0;
}

/*
 * Reads or writes the counters. The two attributes have separate counters
 * (16.1.4.11), so there are two bases. Returns a status of the MAD header.
 */
static __be16 qrnic_pma_counters(struct qrnic_ib_dev *dev, bool extended,
				 struct ib_pma_mad *out)
{
	/* In both attributes the second byte is PortSelect. */
	u64 *base = dev->pma_base[extended];
	struct pma_values now;
	void *data = out->data;

	if (out->data[1] != QRNIC_IB_PORT)
		return cpu_to_be16(IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE);
	mutex_lock(&dev->pma_mutex);
	if (qrnic_pma_query(dev, &now)) {
		mutex_unlock(&dev->pma_mutex);
		return cpu_to_be16(IB_MGMT_MAD_STATUS_BUSY);
	}
	if (out->mad_hdr.method == IB_MGMT_METHOD_SET) {
		if (extended)
			qrnic_pma_set_extended(&now, base, data);
		else
			qrnic_pma_set_counters(&now, base, data);
	}
	memset(out->data, 0, sizeof(out->data));
	out->data[1] = QRNIC_IB_PORT;
	if (extended)
		qrnic_pma_get_extended(&now, base, data);
	else
		qrnic_pma_get_counters(&now, base, data);
	mutex_unlock(&dev->pma_mutex);
	return 0;
}

static __be16 qrnic_pma_answer(struct qrnic_ib_dev *dev, struct ib_pma_mad *out)
{
	const struct ib_mad_hdr *hdr = &out->mad_hdr;

	if (hdr->class_version != 1)
		return cpu_to_be16(IB_MGMT_MAD_STATUS_BAD_VERSION);
	switch (hdr->attr_id) {
	case IB_PMA_CLASS_PORT_INFO:
		return qrnic_pma_class_port_info(out);
	case IB_PMA_PORT_COUNTERS:
		return qrnic_pma_counters(dev, false, out);
	case IB_PMA_PORT_COUNTERS_EXT:
		return qrnic_pma_counters(dev, true, out);
	default:
		return cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);
	}
}

/*
 * Replies to performance management requests. Other MADs are passed to the
 * agents of the MAD layer.
 */
int qrnic_ib_process_mad(struct ib_device *ibdev, int flags, u32 port,
			 const struct ib_wc *wc, const struct ib_grh *grh,
			 const struct ib_mad *in, struct ib_mad *out,
			 size_t *out_size, u16 *out_pkey_index)
{
	if (in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT ||
	    (in->mad_hdr.method != IB_MGMT_METHOD_GET &&
	     in->mad_hdr.method != IB_MGMT_METHOD_SET))
		return IB_MAD_RESULT_SUCCESS;

	*out = *in;
	out->mad_hdr.status = qrnic_pma_answer(to_qrnic_dev(ibdev),
					       (struct ib_pma_mad *)out);
	out->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}
