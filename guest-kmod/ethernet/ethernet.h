/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ethernet.h: the Ethernet function: a netdev over raw packet queue pairs, its
 * channels, with a CQ for each direction. Private to qrnic.ko.
 */
#ifndef QRNIC_ETHERNET_H
#define QRNIC_ETHERNET_H

#include <linux/bpf.h>
#include <linux/dim.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/if_vlan.h>
#include <linux/u64_stats_sync.h>
#include <net/page_pool/helpers.h>
#include <net/xdp.h>

#include "core/core.h"

#define QRNIC_TX_DEFAULT 1024	/* basic blocks */
#define QRNIC_RX_DEFAULT 512	/* receive WQEs */
#define QRNIC_QUEUE_MIN 64
#define QRNIC_QUEUE_MAX 4096

#define QRNIC_MAX_CHANNELS 8	/* more help no guest that emulation can run */
#define QRNIC_RSS_ENTRIES BIT(QRNIC_RSS_MAX_LOG_SIZE)
#define QRNIC_RSS_KEY_SIZE sizeof_field(struct qrnic_rss_ctx, key)
#define QRNIC_RSS_TCP (QRNIC_RSS_SRC_PORT_TCP | QRNIC_RSS_DST_PORT_TCP)
#define QRNIC_RSS_UDP (QRNIC_RSS_SRC_PORT_UDP | QRNIC_RSS_DST_PORT_UDP)

#define QRNIC_SEGMENTS_PER_WQEBB (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)
/* A receive WQE is one block: its control segment and up to three buffers. */
#define QRNIC_RX_PAGES (QRNIC_SEGMENTS_PER_WQEBB - 1)
/* For headers that forwarding, tunnels and XDP put in front */
#define QRNIC_RX_HEADROOM (XDP_PACKET_HEADROOM + NET_IP_ALIGN)
#define QRNIC_RX_FIRST (PAGE_SIZE - QRNIC_RX_HEADROOM - \
			SKB_DATA_ALIGN(sizeof(struct skb_shared_info)))

struct ethtool_rxfh_fields;
struct qrnic_eth;
struct qrnic_channel;

struct qrnic_eth_cq {
	struct qrnic_cq cq;
	struct qrnic_channel *channel;
	bool transmit;		/* its direction */
	struct napi_struct napi;
	struct qrnic_ring ring;
	u32 log_size;
	u32 consumer;
	u32 sequence;		/* of the last request to be notified */
	bool adaptive;		/* DIM chooses the moderation */
	u16 events;		/* that DIM knows of */
	struct dim dim;
};

/* As ethtool -C has it */
struct qrnic_eth_moderation {
	bool adaptive;
	u16 usecs;
	u16 frames;		/* 0: no limit of frames */
};

struct qrnic_eth_stats {
	u64_stats_t packets;
	u64_stats_t bytes;
	u64_stats_t dropped;
	u64_stats_t errors;
	u64_stats_t multicast;
	struct u64_stats_sync sync;
};

/* What they are at one time */
struct qrnic_eth_totals {
	u64 packets;
	u64 bytes;
	u64 dropped;
	u64 errors;
	u64 multicast;
};

/* Frames that only the device has seen, since the netdev exists */
struct qrnic_eth_drops {
	u64_stats_t no_queue;
	u64_stats_t too_long;
	struct u64_stats_sync sync;
	u64 seen_no_queue;	/* the device's counters when last queried */
	u64 seen_too_long;
	struct delayed_work work;
};

/* What is in a basic block of the SQ: at the first one of a WQE */
struct qrnic_tx_slot {
	struct sk_buff *skb;	/* or: */
	struct xdp_frame *frame;
	unsigned int bytes;	/* on the wire */
	u32 packets;
	u8 wqebbs;
	u8 buffers;
};

/*
 * What is mapped for a data segment. Not read from the ring, which the device can
 * write.
 */
struct qrnic_tx_buffer {
	dma_addr_t address;
	unsigned int length;
};

/* A CQE at least this often, so that buffers come back while a batch goes on */
#define QRNIC_TX_SIGNAL_INTERVAL 16

struct qrnic_tx {
	struct qrnic_eth_cq cq;
	struct qrnic_ring ring;
	struct qrnic_tx_slot *slots;
	struct qrnic_tx_buffer *buffers;	/* one for each segment of the ring */
	u32 log_size;
	u32 last;		/* index of the WQE posted last */
	u32 operation;		/* what its control segment says */
	u32 unsignaled;		/* WQEs since the last signaled one */
	u32 rung;		/* producer index that the device knows */
	u32 producer;		/* written by transmit, read by NAPI */
	u32 clean;		/* written by NAPI, read by transmit */
	struct qrnic_eth_stats stats;
};

struct qrnic_rx_slot {
	struct page *page[QRNIC_RX_PAGES];
};

/* What the present poll received last, and frames that were joined to it */
struct qrnic_train {
	struct sk_buff *skb;	/* NULL: none */
	u16 frames;
	/* Of the first frame, once there is a second: */
	u16 segment;		/* bytes of TCP data */
	u8 network;		/* bytes of the IP header */
	u8 header;		/* bytes before the data */
	bool push;		/* the last one has PSH */
	bool last;		/* nothing can be joined any more */
};

struct qrnic_rx {
	struct qrnic_eth_cq cq;
	struct qrnic_ring ring;
	struct qrnic_rx_slot *slots;
	struct page_pool *pool;
	u32 log_size;
	unsigned int pages;	/* buffers of each receive WQE */
	u32 producer;
	u32 consumer;
	struct xdp_rxq_info xdp_rxq;
	u64 xdp_drop;		/* frames of which a program said so, or that failed */
	u64 xdp_tx;
	u64 xdp_redirect;
	struct qrnic_train train;
	u64 gro_hw_packets;	/* of several frames each */
	u64 gro_hw_frames;
	struct qrnic_eth_stats stats;
};

/*
 * A queue pair, a ring for each direction, on one completion vector. The structure
 * and its statistics stay as long as the netdev, the queues from open to close.
 */
struct qrnic_channel {
	struct qrnic_eth *eth;
	unsigned int index;	/* of the netdev's queues, too */
	u32 qpn;
	struct qrnic_tx tx;
	struct qrnic_rx rx;
};

/* What new queues are made by; under RTNL */
struct qrnic_eth_shape {
	unsigned int channels;
	u32 tx_blocks;
	u32 rx_wqes;
};

/* Which frames are received, into what */
struct qrnic_eth_filter {
	u32 object;		/* QP, or RSS table; 0: no frames */
	bool rss;
	bool vlan_strip;
	bool coalesce;
};

/* How frames are spread over the channels; as ethtool -x and -n have it */
struct qrnic_eth_rss {
	u32 hash;		/* QRNIC_RSS_* */
	u8 key[QRNIC_RSS_KEY_SIZE];
	u8 channel[QRNIC_RSS_ENTRIES];
};

struct qrnic_eth {
	struct qrnic_core *core;
	struct net_device *netdev;
	u32 pdn;
	u32 mkey_index;
	__le32 lkey;
	bool open;		/* the queues exist; under RTNL */
	bool up;		/* the carrier is the port's; under port_mutex */
	struct qrnic_eth_shape shape;
	struct delayed_work reset_work;
	unsigned long failed;	/* bit 0: these queues wait for reset_work */
	u64 resets;
	struct qrnic_eth_moderation rx_moderation;
	struct qrnic_eth_moderation tx_moderation;

	struct mutex filter_lock;	/* filter, and what the device has of it */
	struct qrnic_eth_filter filter;
	struct work_struct filter_work;

	struct qrnic_eth_rss rss;
	u32 rss_table;		/* of several channels; 0: none */

	struct qrnic_eth_drops drops;
	struct notifier_block dcb_notifier;
	struct bpf_prog *prog;	/* written under RTNL, read by NAPI */
	unsigned int max_channels;
	struct qrnic_channel channels[] __counted_by(max_channels);
};

/* netdev.c, for the core */
extern const struct qrnic_function_ops qrnic_eth_function;

/* reopen.c; under RTNL or before the netdev is registered, but for the carrier */
void qrnic_eth_reopen_init(struct qrnic_eth *eth);
void qrnic_eth_link_update(struct qrnic_eth *eth);
void qrnic_eth_set_up(struct qrnic_eth *eth, bool up);
int qrnic_eth_port(struct qrnic_eth *eth, u32 mtu, bool up);
int qrnic_eth_open(struct net_device *netdev);
int qrnic_eth_stop(struct net_device *netdev);
int qrnic_eth_change_mtu(struct net_device *netdev, int mtu);
int qrnic_eth_reshape(struct qrnic_eth *eth, const struct qrnic_eth_shape *shape);

/* The next CQE, if there is one */
static inline bool qrnic_eth_cq_next(struct qrnic_eth_cq *cq, struct qrnic_cqe *copy)
{
	return qrnic_cqe_take(&cq->ring, cq->consumer, cq->log_size, copy);
}

/* rss.c; under RTNL */
void qrnic_eth_rss_init(struct qrnic_eth *eth);
/* The number of channels is another one. */
void qrnic_eth_rss_spread(struct qrnic_eth *eth);
/* Of queues that are open: the table of several channels */
int qrnic_eth_rss_open(struct qrnic_eth *eth);
void qrnic_eth_rss_close(struct qrnic_eth *eth);
bool qrnic_eth_can_spread(const struct qrnic_core *core);
u32 qrnic_get_rxfh_indir_size(struct net_device *netdev);
u32 qrnic_get_rxfh_key_size(struct net_device *netdev);
int qrnic_get_rxfh(struct net_device *netdev, struct ethtool_rxfh_param *rxfh);
int qrnic_set_rxfh(struct net_device *netdev, struct ethtool_rxfh_param *rxfh,
		   struct netlink_ext_ack *extack);
int qrnic_get_rxnfc(struct net_device *netdev, struct ethtool_rxnfc *info,
		    u32 *rules);
int qrnic_set_rxnfc(struct net_device *netdev, struct ethtool_rxnfc *info);
u32 qrnic_get_rx_ring_count(struct net_device *netdev);
int qrnic_get_rxfh_fields(struct net_device *netdev,
			  struct ethtool_rxfh_fields *fields);
int qrnic_set_rxfh_fields(struct net_device *netdev,
			  const struct ethtool_rxfh_fields *fields,
			  struct netlink_ext_ack *extack);

/* queues.c; under RTNL, or before the netdev is registered */
unsigned int qrnic_eth_max_channels(struct qrnic_core *core);
int qrnic_eth_channels_init(struct qrnic_eth *eth);
void qrnic_eth_channels_set_xps(struct qrnic_eth *eth);
int qrnic_eth_shape_set(struct qrnic_eth *eth, const struct qrnic_eth_shape *shape);
int qrnic_eth_queues_open(struct qrnic_eth *eth);
void qrnic_eth_queues_close(struct qrnic_eth *eth);

/* cq.c; qrnic_eth_fail() is called in any context */
void qrnic_eth_fail(struct qrnic_eth *eth);
int qrnic_eth_cq_open(struct qrnic_channel *channel, struct qrnic_eth_cq *cq,
		      u32 entries, const struct qrnic_eth_moderation *moderation);
void qrnic_eth_cq_close(struct qrnic_eth_cq *cq);
void qrnic_eth_cq_complete(struct qrnic_eth_cq *cq, int done);

/* moderation.c */
bool qrnic_eth_can_moderate(const struct qrnic_eth *eth);
void qrnic_eth_moderation_open(struct qrnic_eth_cq *cq,
			       const struct qrnic_eth_moderation *moderation);
void qrnic_eth_moderation_close(struct qrnic_eth_cq *cq);
int qrnic_eth_moderation_set(struct qrnic_eth_cq *cq,
			     const struct qrnic_eth_moderation *moderation);
void qrnic_eth_moderation_sample(struct qrnic_eth_cq *cq,
				 const struct qrnic_eth_stats *stats);

/* filter.c: which frames are received */
void qrnic_eth_filter_init(struct qrnic_eth *eth);
/* The old one stays if it fails, but for one that receives nothing. */
int qrnic_eth_filter_set(struct qrnic_eth *eth,
			 const struct qrnic_eth_filter *filter);

/* statistics.c */
extern const struct netdev_stat_ops qrnic_stat_ops;
struct qrnic_eth_totals qrnic_eth_stats_read(const struct qrnic_eth_stats *stats);
int qrnic_get_sset_count(struct net_device *netdev, int set);
void qrnic_get_strings(struct net_device *netdev, u32 set, u8 *data);
void qrnic_get_ethtool_stats(struct net_device *netdev,
			     struct ethtool_stats *stats, u64 *data);
void qrnic_eth_get_stats64(struct net_device *netdev,
			   struct rtnl_link_stats64 *stats);
/* The counters of the device for ip -s link */
void qrnic_eth_drops_init(struct qrnic_eth *eth);
void qrnic_eth_drops_start(struct qrnic_eth *eth);
void qrnic_eth_drops_stop(struct qrnic_eth *eth);

/* transmit.c */
int qrnic_tx_alloc(struct qrnic_channel *channel);
void qrnic_tx_release(struct qrnic_channel *channel);
netdev_tx_t qrnic_eth_transmit(struct sk_buff *skb, struct net_device *netdev);
netdev_features_t qrnic_eth_features_check(struct sk_buff *skb,
					   struct net_device *netdev,
					   netdev_features_t features);
/* These two under the lock of the transmit queue. False: not now, or never */
bool qrnic_tx_post_frame(struct qrnic_channel *channel, struct xdp_frame *frame);
/* Hands over what was posted. */
void qrnic_tx_ring(struct qrnic_channel *channel);
int qrnic_tx_poll(struct napi_struct *napi, int budget);

/* buffers.c */
int qrnic_rx_alloc(struct qrnic_channel *channel);
void qrnic_rx_release(struct qrnic_channel *channel);
unsigned int qrnic_rx_pages(unsigned int mtu);
unsigned int qrnic_rx_max_mtu(unsigned int pages);
void qrnic_rx_add_rest(struct qrnic_rx *rx, struct qrnic_rx_slot *slot,
		       struct sk_buff *skb, u32 length);
int qrnic_rx_fill(struct qrnic_channel *channel, gfp_t gfp);

/* receive.c */
int qrnic_rx_poll(struct napi_struct *napi, int budget);

/* coalesce.c */
/* Joins the frame to the train, if it may be. */
bool qrnic_train_join(struct qrnic_channel *channel, struct qrnic_rx_slot *slot,
		      const struct qrnic_cqe *cqe, u32 length);
/* The skb goes to the stack when the train ends. There is no other train now. */
void qrnic_train_begin(struct qrnic_channel *channel, struct sk_buff *skb,
		       const struct bpf_prog *prog);
void qrnic_train_end(struct qrnic_rx *rx);

/* xdp.c */
u32 qrnic_xdp_run(struct qrnic_channel *channel, struct bpf_prog *prog,
		  struct xdp_buff *xdp, struct page *page);
void qrnic_xdp_flush(struct qrnic_channel *channel, bool tx, bool redirect);
int qrnic_xdp_xmit(struct net_device *netdev, int n, struct xdp_frame **frames,
		   u32 flags);
int qrnic_xdp_bpf(struct net_device *netdev, struct netdev_bpf *bpf);

/* dcb.c: around the time that the netdev is registered, and not under RTNL */
#if IS_ENABLED(CONFIG_DCB)
int qrnic_dcb_init(struct qrnic_eth *eth);
void qrnic_dcb_exit(struct qrnic_eth *eth);
#else
static inline int qrnic_dcb_init(struct qrnic_eth *eth)
{
	return 0;
}

static inline void qrnic_dcb_exit(struct qrnic_eth *eth)
{
}
#endif

/* ethtool.c */
extern const struct ethtool_ops qrnic_ethtool_ops;

/* The one that a processor sends through; several may have the same. */
static inline unsigned int qrnic_channel_of_cpu(const struct qrnic_eth *eth,
						unsigned int cpu)
{
	return cpu % READ_ONCE(eth->shape.channels);
}

static inline struct qrnic_rx_slot *qrnic_rx_slot(const struct qrnic_rx *rx, u32 index)
{
	return &rx->slots[index & ((1u << rx->log_size) - 1)];
}

/* Buffers that a frame of this length takes */
static inline unsigned int qrnic_rx_pages_of(u32 length)
{
	return length <= QRNIC_RX_FIRST ? 1 :
	       1 + DIV_ROUND_UP(length - QRNIC_RX_FIRST, PAGE_SIZE);
}

/* The netdev's queue of the same index */
static inline struct netdev_queue *qrnic_channel_txq(const struct qrnic_channel *channel)
{
	return netdev_get_tx_queue(channel->eth->netdev, channel->index);
}

static inline u32 qrnic_tx_room(const struct qrnic_tx *tx)
{
	return (1u << tx->log_size) -
	       (READ_ONCE(tx->producer) - READ_ONCE(tx->clean));
}

#endif /* QRNIC_ETHERNET_H */
