// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * module.c: qrnic.ko: the core, and the Ethernet part that registers with it.
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
