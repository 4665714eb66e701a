// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * module.c: entry points of qrnic.ko, which consists of the core (core/) and
 * the Ethernet function (ethernet/). The function is passed to the core, which
 * calls it for each adapter.
 */
#include "core/core.h"
#include "ethernet/ethernet.h"

static int __init qrnic_init(void)
{
	return qrnic_register(&qrnic_eth_function);
}

static void __exit qrnic_exit(void)
{
	qrnic_unregister();
}

module_init(qrnic_init);
module_exit(qrnic_exit);

MODULE_DESCRIPTION("qrnic RDMA network adapter: core and Ethernet");
MODULE_LICENSE("Dual BSD/GPL");
