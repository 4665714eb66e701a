// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * pd_ah.c: protection domains, XRC domains, address handles, and the address
 * vectors of address handles and connected QPs. The RDMA core serialises the
 * calls for each object.
 */
#include <rdma/ib_addr.h>

#include "memory.h"
#include "qrnic_ib.h"
#include "verbs.h"

static_assert(sizeof_field(struct qrnic_create_ah_resp, av) ==
	      sizeof(struct qrnic_address_vector));

int qrnic_ib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_alloc_pd_resp response = {};
	struct qrnic_ib_pd *pd = to_qrnic_pd(ibpd);
	int err;

	err = ib_is_udata_in_empty(udata);
	if (err)
		return err;

	mutex_init(&pd->null_mutex);
	err = qrnic_cmd_create(dev->qdev, QRNIC_CMD_ALLOC_PD, NULL, 0,
			       &pd->pdn);
	if (err)
		return err;

	if (udata) {
		response.pdn = pd->pdn;
		err = ib_respond_udata(udata, response);
		if (err)
			goto err_free;
	}
	return 0;

err_free:
	qrnic_cmd_destroy(dev->qdev, QRNIC_CMD_FREE_PD, pd->pdn);
	return err;
}

int qrnic_ib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_ib_pd *pd = to_qrnic_pd(ibpd);

	qrnic_pd_null_key_destroy(pd);
	qrnic_destroy(dev, QRNIC_CMD_FREE_PD, pd->pdn);
	return 0;
}

int qrnic_ib_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibxrcd->device);
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_XRC))
		return -EOPNOTSUPP;
	err = qrnic_udata_none(udata);
	if (err)
		return err;

	return qrnic_cmd_create(dev->qdev, QRNIC_CMD_ALLOC_XRCD, NULL, 0,
				&to_qrnic_xrcd(ibxrcd)->xrcdn);
}

int qrnic_ib_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibxrcd->device);

	qrnic_destroy(dev, QRNIC_CMD_FREE_XRCD, to_qrnic_xrcd(ibxrcd)->xrcdn);
	return 0;
}

/*
 * Returns the service level that the caller requests. If that is 0, returns the
 * priority that the administrator has set for the DSCP. Packets of RoCE v1 have
 * no DSCP, so the second rule is for RoCE v2 only.
 */
static u8 qrnic_av_service_level(struct qrnic_ib_dev *dev,
				 const struct rdma_ah_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	u8 sl = rdma_ah_get_sl(attr) & 0xf;

	if (sl || grh->sgid_attr->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP)
		return sl;
	return qrnic_dscp_priority(dev->qdev, grh->traffic_class);
}

/*
 * Fills the address vector of the device. The RDMA core has resolved the MAC
 * address of the destination. The GID entry has the version of RoCE, the VLAN
 * and the source MAC address. The device computes the UDP source port from flow
 * label and QP numbers, as rdma_get_udp_sport() does. Returns 0 or -EINVAL.
 */
int qrnic_av_fill(struct qrnic_ib_dev *dev, struct qrnic_address_vector *av,
		  const struct rdma_ah_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);

	if (attr->type != RDMA_AH_ATTR_TYPE_ROCE ||
	    !(rdma_ah_get_ah_flags(attr) & IB_AH_GRH))
		return -EINVAL;

	memset(av, 0, sizeof(*av));
	memcpy(av->dgid, grh->dgid.raw, sizeof(av->dgid));
	av->sgid_index = cpu_to_le16(grh->sgid_index);
	memcpy(av->dmac, attr->roce.dmac, sizeof(av->dmac));
	av->traffic_class = grh->traffic_class;
	av->hop_limit = grh->hop_limit;
	av->flow = cpu_to_le32(FIELD_PREP(QRNIC_ADDRESS_VECTOR_FLOW_LABEL_MASK,
					  grh->flow_label & 0xfffff) |
			       FIELD_PREP(QRNIC_ADDRESS_VECTOR_SL_MASK,
					  qrnic_av_service_level(dev, attr)));
	return 0;
}

/*
 * Reads attributes from the address vector of the device. The argument sl is
 * the level that the caller requested, because the level of the device may
 * differ from it.
 */
void qrnic_av_read(struct ib_device *ibdev, const struct qrnic_address_vector *av,
		   u8 sl, struct rdma_ah_attr *attr)
{
	u32 flow = le32_to_cpu(av->flow);

	attr->type = rdma_ah_find_type(ibdev, QRNIC_IB_PORT);
	rdma_ah_set_sl(attr, sl);
	rdma_ah_set_port_num(attr, QRNIC_IB_PORT);
	rdma_ah_set_ah_flags(attr, IB_AH_GRH);
	rdma_ah_set_grh(attr, NULL,
			FIELD_GET(QRNIC_ADDRESS_VECTOR_FLOW_LABEL_MASK, flow),
			le16_to_cpu(av->sgid_index), av->hop_limit,
			av->traffic_class);
	memcpy(attr->grh.dgid.raw, av->dgid, sizeof(attr->grh.dgid.raw));
	memcpy(attr->roce.dmac, av->dmac, sizeof(attr->roce.dmac));
}

/*
 * Creates an address handle of the kernel or of a process. Send WQEs of
 * datagram QPs contain the address vector, so the device needs no command.
 * Therefore the kernel may call this function in atomic context.
 */
int qrnic_ib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		       struct ib_udata *udata)
{
	struct qrnic_ib_ah *ah = to_qrnic_ah(ibah);
	struct qrnic_create_ah_resp response = {};
	int err;

	err = ib_is_udata_in_empty(udata);
	if (err)
		return err;
	err = qrnic_av_fill(to_qrnic_dev(ibah->device), &ah->av, init->ah_attr);
	if (err)
		return err;
	ah->sl = rdma_ah_get_sl(init->ah_attr) & 0xf;
	if (!udata)
		return 0;

	memcpy(response.av, &ah->av, sizeof(response.av));
	return ib_respond_udata(udata, response);
}

int qrnic_ib_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	struct qrnic_ib_ah *ah = to_qrnic_ah(ibah);

	memset(attr, 0, sizeof(*attr));
	qrnic_av_read(ibah->device, &ah->av, ah->sl, attr);
	return 0;
}

int qrnic_ib_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	return 0;
}
