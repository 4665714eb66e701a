// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * main.c: probe and removal of the auxiliary device, and the attributes and
 * operations of the ib_device that represents it.
 *
 * The core adds the auxiliary device at each start of the adapter and deletes
 * it at each stop, so also around a recovery. The driver registers a new
 * ib_device at probe. At removal the RDMA core destroys all objects, and
 * detaches processes that have the device open.
 */
#include <linux/auxiliary_bus.h>
#include <linux/module.h>

#include "memory.h"
#include "odp.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "verbs.h"

static_assert(sizeof(struct qrnic_alloc_ucontext_resp) % 8 == 0);
static_assert(sizeof(struct qrnic_create_cq_req) % 8 == 0);
static_assert(sizeof(struct qrnic_create_qp_req) % 8 == 0);
static_assert(sizeof(struct qrnic_create_srq_req) % 8 == 0);
static_assert(sizeof(struct qrnic_modify_qp_req) % 8 == 0);
static_assert(sizeof(struct qrnic_resize_cq_req) % 8 == 0);
static_assert(sizeof(struct qrnic_resize_srq_req) % 8 == 0);

/* Sets the attributes that depend on capabilities. */
static void qrnic_ib_query_optional(struct qrnic_ib_dev *dev,
				    struct ib_device_attr *attr)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;

	if (qrnic_ib_cap(dev, QRNIC_CAP_UD)) {
		attr->kernel_cap_flags |= IBK_BLOCK_MULTICAST_LOOPBACK;
		attr->max_mcast_grp = caps->max_multicast;
		attr->max_mcast_qp_attach = caps->max_multicast;
		attr->max_total_mcast_qp_attach = caps->max_multicast;
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_SRQ)) {
		attr->max_srq = caps->max_srq;
		attr->max_srq_wr = caps->max_srq_wr;
		attr->max_srq_sge = caps->max_sge;
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_SRQ_RESIZE))
		attr->device_cap_flags |= IB_DEVICE_SRQ_RESIZE;
	if (qrnic_ib_cap(dev, QRNIC_CAP_XRC))
		attr->device_cap_flags |= IB_DEVICE_XRC;
	if (qrnic_ib_cap(dev, QRNIC_CAP_TAG_MATCHING)) {
		attr->tm_caps.max_rndv_hdr_size = QRNIC_MAX_RENDEZVOUS;
		/*
		 * The last handle is never used, see qrnic_tag_list_prepare(),
		 * so one tag less is available.
		 */
		attr->tm_caps.max_num_tags = QRNIC_MAX_TAGS - 1;
		attr->tm_caps.max_ops = QRNIC_MAX_TAG_OPS;
		attr->tm_caps.max_sge = caps->max_sge;
		attr->tm_caps.flags = IB_TM_CAP_RNDV_RC;
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_MW)) {
		attr->device_cap_flags |= IB_DEVICE_MEM_WINDOW |
					  IB_DEVICE_MEM_WINDOW_TYPE_2B;
		attr->max_mw = caps->max_mkey;
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_CQ_MODERATION)) {
		attr->cq_caps.max_cq_moderation_count = caps->max_cq_count;
		attr->cq_caps.max_cq_moderation_period = caps->max_cq_period;
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_FLOW)) {
		attr->device_cap_flags |= IB_DEVICE_MANAGED_FLOW_STEERING;
		attr->max_raw_ethy_qp = caps->max_qp;
		if (qrnic_ib_cap(dev, QRNIC_CAP_ETH_VLAN))
			attr->raw_packet_caps |= IB_RAW_PACKET_CAP_CVLAN_STRIPPING;
		if (qrnic_ib_cap(dev, QRNIC_CAP_SCATTER_FCS))
			attr->raw_packet_caps |= IB_RAW_PACKET_CAP_SCATTER_FCS;
		if (qrnic_ib_cap(dev, QRNIC_CAP_ETH_CSUM)) {
			attr->device_cap_flags |= IB_DEVICE_RAW_IP_CSUM;
			attr->raw_packet_caps |= IB_RAW_PACKET_CAP_IP_CSUM;
		}
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_RSS)) {
		attr->max_wq_type_rq = caps->max_qp;
		attr->rss_caps.supported_qpts = BIT(IB_QPT_RAW_PACKET);
		attr->rss_caps.max_rwq_indirection_tables = caps->max_rss;
		attr->rss_caps.max_rwq_indirection_table_size =
			BIT(QRNIC_RSS_MAX_LOG_SIZE);
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_ATOMIC_WRITE))
		attr->device_cap_flags |= IB_DEVICE_ATOMIC_WRITE;
	if (qrnic_ib_cap(dev, QRNIC_CAP_FLUSH))
		attr->device_cap_flags |= IB_DEVICE_FLUSH_GLOBAL;
	if (qrnic_on_demand(dev))
		attr->kernel_cap_flags |= IBK_ON_DEMAND_PAGING;
	qrnic_odp_caps(dev, &attr->odp_caps);
	if (qrnic_ib_cap(dev, QRNIC_CAP_DEVICE_MEMORY))
		attr->max_dm_size = caps->max_dm_size;
	if (qrnic_ib_cap(dev, QRNIC_CAP_FAST_REG)) {
		attr->device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
		attr->max_fast_reg_page_list_len = QRNIC_FAST_REG_MAX_PAGES;
	}
}

static int qrnic_ib_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
				 struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibdev);
	const struct qrnic_caps *caps = &dev->qdev->caps;
	struct pci_dev *pdev = dev->qdev->pdev;
	int err;

	err = qrnic_udata_none(udata);
	if (err)
		return err;

	memset(attr, 0, sizeof(*attr));
	attr->sys_image_guid = caps->node_guid;
	attr->vendor_id = pdev->vendor;
	attr->vendor_part_id = pdev->device;
	attr->hw_ver = pdev->revision;
	attr->max_mr_size = caps->max_mr_size;
	attr->page_size_cap = GENMASK(QRNIC_PAGE_SHIFT_MAX, QRNIC_PAGE_SHIFT_MIN);
	attr->device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD |
				 IB_DEVICE_PORT_ACTIVE_EVENT |
				 IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_RC_RNR_NAK_GEN;
	attr->max_qp = caps->max_qp;
	attr->max_qp_wr = qrnic_ib_max_qp_wr(caps);
	attr->max_send_sge = caps->max_sge;
	attr->max_recv_sge = caps->max_sge;
	attr->max_sge_rd = caps->max_sge;
	attr->max_cq = caps->max_cq;
	attr->max_cqe = caps->max_cqe;
	attr->max_mr = caps->max_mkey;
	attr->max_pd = caps->max_pd;
	attr->max_qp_rd_atom = caps->max_rd_atomic;
	attr->max_qp_init_rd_atom = caps->max_rd_atomic;
	attr->max_res_rd_atom = caps->max_rd_atomic * caps->max_qp;
	if (qrnic_ib_cap(dev, QRNIC_CAP_ATOMIC_GLOB))
		attr->atomic_cap = IB_ATOMIC_GLOB;
	else if (qrnic_ib_cap(dev, QRNIC_CAP_ATOMIC))
		attr->atomic_cap = IB_ATOMIC_HCA;
	/*
	 * Address handles are no objects of the device, so there is no limit.
	 * The number is small, so that programs that add one to it do not
	 * overflow.
	 */
	attr->max_ah = SZ_1M;
	attr->max_pkeys = 1;
	qrnic_ib_query_optional(dev, attr);
	attr->local_ca_ack_delay = caps->ack_delay;
	if (qrnic_ib_cap(dev, QRNIC_CAP_TIMESTAMP)) {
		attr->hca_core_clock = caps->clock_khz;
		attr->timestamp_mask = U64_MAX;
	}
	return 0;
}

static const struct ib_device_ops qrnic_ib_device_ops = {
	.owner = THIS_MODULE,
	.driver_id = (enum rdma_driver_id)QRNIC_DRIVER_ID,
	.uverbs_abi_ver = QRNIC_ABI_VERSION,
	QRNIC_ROBUST_UDATA

	.add_gid = qrnic_ib_add_gid,
	.advise_mr = qrnic_ib_advise_mr,
	.alloc_dm = qrnic_ib_alloc_dm,
	.alloc_mr = qrnic_ib_alloc_mr,
	.alloc_mw = qrnic_ib_alloc_mw,
	.alloc_pd = qrnic_ib_alloc_pd,
	.alloc_ucontext = qrnic_ib_alloc_ucontext,
	.alloc_xrcd = qrnic_ib_alloc_xrcd,
	.attach_mcast = qrnic_ib_attach_mcast,
	.counter_alloc_stats = qrnic_ib_counter_alloc_stats,
	.counter_bind_qp = qrnic_ib_counter_bind_qp,
	.counter_dealloc = qrnic_ib_counter_dealloc,
	.counter_unbind_qp = qrnic_ib_counter_unbind_qp,
	.counter_update_stats = qrnic_ib_counter_update_stats,
	.create_ah = qrnic_ib_create_ah,
	.create_counters = qrnic_ib_create_counters,
	.create_cq = qrnic_ib_create_cq,
	.create_flow = qrnic_ib_create_flow,
	.create_qp = qrnic_ib_create_qp,
	.create_rwq_ind_table = qrnic_ib_create_rwq_ind_table,
	.create_srq = qrnic_ib_create_srq,
	.create_wq = qrnic_ib_create_wq,
	.create_user_ah = qrnic_ib_create_ah,
	.dealloc_dm = qrnic_ib_dealloc_dm,
	.dealloc_mw = qrnic_ib_dealloc_mw,
	.dealloc_pd = qrnic_ib_dealloc_pd,
	.dealloc_ucontext = qrnic_ib_dealloc_ucontext,
	.dealloc_xrcd = qrnic_ib_dealloc_xrcd,
	.del_gid = qrnic_ib_del_gid,
	.dereg_mr = qrnic_ib_dereg_mr,
	.destroy_ah = qrnic_ib_destroy_ah,
	.destroy_rwq_ind_table = qrnic_ib_destroy_rwq_ind_table,
	.destroy_wq = qrnic_ib_destroy_wq,
	.destroy_counters = qrnic_ib_destroy_counters,
	.destroy_cq = qrnic_ib_destroy_cq,
	.destroy_flow = qrnic_ib_destroy_flow,
	.destroy_qp = qrnic_ib_destroy_qp,
	.destroy_srq = qrnic_ib_destroy_srq,
	.detach_mcast = qrnic_ib_detach_mcast,
	.disassociate_ucontext = qrnic_ib_disassociate_ucontext,
	.fill_res_cq_entry = qrnic_ib_fill_res_cq,
	.fill_res_cq_entry_raw = qrnic_ib_fill_res_cq_raw,
	.fill_res_mr_entry = qrnic_ib_fill_res_mr,
	.fill_res_mr_entry_raw = qrnic_ib_fill_res_mr_raw,
	.fill_res_qp_entry = qrnic_ib_fill_res_qp,
	.fill_res_qp_entry_raw = qrnic_ib_fill_res_qp_raw,
	.fill_res_srq_entry = qrnic_ib_fill_res_srq,
	.fill_res_srq_entry_raw = qrnic_ib_fill_res_srq_raw,
	.fill_stat_mr_entry = qrnic_ib_fill_stat_mr,
	.get_dma_mr = qrnic_ib_get_dma_mr,
	.get_link_layer = qrnic_ib_get_link_layer,
	.get_port_immutable = qrnic_ib_get_port_immutable,
	.map_mr_sg = qrnic_ib_map_mr_sg,
	.mmap = qrnic_ib_mmap,
	.mmap_free = qrnic_ib_mmap_free,
	.modify_cq = qrnic_ib_modify_cq,
	.modify_qp = qrnic_ib_modify_qp,
	.modify_srq = qrnic_ib_modify_srq,
	.modify_wq = qrnic_ib_modify_wq,
	.poll_cq = qrnic_ib_poll_cq,
	.post_recv = qrnic_ib_post_recv,
	.post_send = qrnic_ib_post_send,
	.post_srq_recv = qrnic_ib_post_srq_recv,
	.process_mad = qrnic_ib_process_mad,
	.query_ah = qrnic_ib_query_ah,
	.query_device = qrnic_ib_query_device,
	.query_pkey = qrnic_ib_query_pkey,
	.query_port = qrnic_ib_query_port,
	.query_qp = qrnic_ib_query_qp,
	.query_srq = qrnic_ib_query_srq,
	.query_ucontext = qrnic_ib_query_ucontext,
	.read_counters = qrnic_ib_read_counters,
	.reg_dm_mr = qrnic_ib_reg_dm_mr,
	.reg_user_mr = qrnic_ib_reg_user_mr,
	.reg_user_mr_dmabuf = qrnic_ib_reg_user_mr_dmabuf,
	.req_notify_cq = qrnic_ib_req_notify_cq,
	.rereg_user_mr = qrnic_ib_rereg_user_mr,
	QRNIC_OP_COUNTER_INIT(qrnic_ib_counter_init)
	QRNIC_OP_CREATE_USER_CQ(qrnic_ib_create_cq)
	QRNIC_OP_RESIZE_CQ(qrnic_ib_resize_cq)
	QRNIC_OP_REPORT_PORT_EVENT(qrnic_ib_report_port_event)

	INIT_RDMA_OBJ_SIZE(ib_ah, qrnic_ib_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_counters, qrnic_ib_counters, ibcounters),
	INIT_RDMA_OBJ_SIZE(ib_cq, qrnic_ib_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_mw, qrnic_ib_mw, ibmw),
	INIT_RDMA_OBJ_SIZE(ib_pd, qrnic_ib_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, qrnic_ib_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_rwq_ind_table, qrnic_ib_rwq_ind_table, ib_table),
	INIT_RDMA_OBJ_SIZE(ib_srq, qrnic_ib_srq, ibsrq),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, qrnic_ib_ucontext, ibucontext),
	INIT_RDMA_OBJ_SIZE(ib_xrcd, qrnic_ib_xrcd, ibxrcd),
	QRNIC_COUNTER_OBJ_SIZE(qrnic_ib_counter, counter)
};

/*
 * The operations of statistics are in a separate table, which is set only if
 * the driver can read the counters. Otherwise the registration of the device
 * would fail, because the RDMA core reads the statistics.
 */
static const struct ib_device_ops qrnic_ib_statistics_ops = {
	.alloc_hw_device_stats = qrnic_ib_alloc_device_stats,
	.alloc_hw_port_stats = qrnic_ib_alloc_port_stats,
	.get_hw_stats = qrnic_ib_get_hw_stats,
};

static void qrnic_ib_device_init(struct qrnic_ib_dev *dev, struct qrnic_dev *qdev)
{
	dev->qdev = qdev;
	xa_init_flags(&dev->qps, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->srqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->wqs, XA_FLAGS_LOCK_IRQ);
	qrnic_sharing_init(dev);
	spin_lock_init(&dev->numbers_lock);
	INIT_LIST_HEAD(&dev->retired_numbers);
	init_waitqueue_head(&dev->number_released);
	mutex_init(&dev->address_space_mutex);
	hash_init(dev->address_space_mms);
	xa_init_flags(&dev->address_spaces, XA_FLAGS_ALLOC1);
	mutex_init(&dev->port_mutex);
	mutex_init(&dev->pma_mutex);
	INIT_WORK(&dev->flush_work, qrnic_flush_work);
	dev->stopping = true;
	qrnic_user_memory_init(dev);
	qrnic_db_pages_init(dev);

	ib_set_device_ops(&dev->ibdev, &qrnic_ib_device_ops);
	if (qrnic_counters_known(qdev))
		ib_set_device_ops(&dev->ibdev, &qrnic_ib_statistics_ops);
	if (IS_ENABLED(CONFIG_INFINIBAND_USER_ACCESS))
		dev->ibdev.driver_def = qrnic_uapi_definitions;
	dev->ibdev.node_type = RDMA_NODE_IB_CA;
	dev->ibdev.phys_port_cnt = 1;
	/*
	 * The RDMA core adapts the moderation of kernel CQs to their traffic,
	 * unless "rdma dev set" disables this.
	 */
	dev->ibdev.use_cq_dim = qrnic_ib_cap(dev, QRNIC_CAP_CQ_MODERATION);
	dev->ibdev.num_comp_vectors = qrnic_num_vectors(qdev);
	dev->ibdev.node_guid = qdev->caps.node_guid;
	/*
	 * The parent is the PCI device instead of the auxiliary one, because
	 * the libraries of user space search for it.
	 */
	dev->ibdev.dev.parent = qrnic_dma_device(qdev);
}

static int qrnic_ib_device_start(struct auxiliary_device *adev)
{
	struct qrnic_dev *qdev = qrnic_dev_of_aux(adev);
	struct qrnic_ib_dev *dev;
	int err;

	dev = ib_alloc_device(qrnic_ib_dev, ibdev);
	if (!dev)
		return -ENOMEM;

	qrnic_ib_device_init(dev, qdev);
	err = qrnic_odp_init(dev);
	if (err)
		goto err_dealloc;
	qrnic_process_init(dev);
	err = ib_device_set_netdev(&dev->ibdev, qdev->netdev, QRNIC_IB_PORT);
	if (err)
		goto err_process;

	err = qrnic_ib_events_start(dev);
	if (err)
		goto err_process;

	/*
	 * No limit on segments, so that all contiguous pages become one
	 * segment.
	 */
	dma_set_max_seg_size(qrnic_dma_device(qdev), UINT_MAX);
	auxiliary_set_drvdata(adev, dev);
	err = ib_register_device(&dev->ibdev, "qrnic%d", qrnic_dma_device(qdev));
	if (err)
		goto err_events;

	err = qrnic_ib_port_events_start(dev);
	if (err)
		goto err_unregister;
	return 0;

err_unregister:
	ib_unregister_device(&dev->ibdev);
err_events:
	qrnic_ib_events_stop(dev);
	cancel_work_sync(&dev->flush_work);
	qrnic_db_pages_cleanup(dev);
err_process:
	qrnic_process_cleanup(dev);
	qrnic_odp_cleanup(dev);
err_dealloc:
	ib_dealloc_device(&dev->ibdev);
	return err;
}

static int qrnic_ib_probe(struct auxiliary_device *adev,
			  const struct auxiliary_device_id *id)
{
	int err = qrnic_ib_device_start(adev);

	qrnic_aux_probed(adev, err);
	return err;
}

/*
 * Unregisters the device. The RDMA core detaches processes that have the device
 * open, and destroys their objects. The events are stopped afterwards, because
 * the destruction still needs commands and events.
 */
static void qrnic_ib_remove(struct auxiliary_device *adev)
{
	struct qrnic_ib_dev *dev = auxiliary_get_drvdata(adev);

	qrnic_ib_port_events_stop(dev);
	ib_unregister_device(&dev->ibdev);
	qrnic_ib_events_stop(dev);
	cancel_work_sync(&dev->flush_work);
	qrnic_db_pages_cleanup(dev);
	qrnic_process_cleanup(dev);
	qrnic_odp_cleanup(dev);
	WARN_ON(!xa_empty(&dev->qps));
	WARN_ON(!xa_empty(&dev->srqs));
	WARN_ON(!xa_empty(&dev->wqs));
	WARN_ON(!list_empty(&dev->shares));
	WARN_ON(!xa_empty(&dev->address_spaces));
	ib_dealloc_device(&dev->ibdev);
}

static const struct auxiliary_device_id qrnic_ib_id_table[] = {
	{ .name = QRNIC_AUX_MATCH_RDMA },
	{}
};
MODULE_DEVICE_TABLE(auxiliary, qrnic_ib_id_table);

/*
 * Probed synchronously, because qrnic_auxdev_add() checks the result as soon as
 * the device is added.
 */
static struct auxiliary_driver qrnic_ib_driver = {
	.name = "rdma",
	.driver.probe_type = PROBE_FORCE_SYNCHRONOUS,
	.probe = qrnic_ib_probe,
	.remove = qrnic_ib_remove,
	.id_table = qrnic_ib_id_table,
};
module_auxiliary_driver(qrnic_ib_driver);

MODULE_DESCRIPTION("RDMA device of the qrnic network adapter");
MODULE_LICENSE("Dual BSD/GPL");
QRNIC_IMPORT_NS();
