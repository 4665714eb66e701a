/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* compat.h: what Linux calls differently for an Ethernet interface; see Kbuild */
#ifndef QRNIC_ETHERNET_COMPAT_H
#define QRNIC_ETHERNET_COMPAT_H

#include <linux/types.h>

/*
 * Since 6.17, and 6.12.117, there are operations for what goes into the hash of RSS,
 * before it was get_rxnfc and set_rxnfc.
 */
#ifdef QRNIC_HAS_RXFH_FIELDS
#define QRNIC_OP_GET_RXFH_FIELDS(function) .get_rxfh_fields = (function),
#define QRNIC_OP_SET_RXFH_FIELDS(function) .set_rxfh_fields = (function),
#else
struct ethtool_rxfh_fields {
	u32 data;
	u32 flow_type;
};

#define QRNIC_OP_GET_RXFH_FIELDS(...)
#define QRNIC_OP_SET_RXFH_FIELDS(...)
#endif

/* Since 7.0 there is one for the number of rings, which get_rxnfc told before. */
#ifdef QRNIC_HAS_RX_RING_COUNT
#define QRNIC_OP_GET_RX_RING_COUNT(function) .get_rx_ring_count = (function),
#else
#define QRNIC_OP_GET_RX_RING_COUNT(...)
#endif

#endif /* QRNIC_ETHERNET_COMPAT_H */
