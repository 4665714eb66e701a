/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ethernet.h: the Ethernet function: a netdev over raw packet queue pairs.
 * Private to qrnic.ko.
 *
 * The netdev has channels, each with a queue pair, a transmit ring, a receive
 * ring, and a CQ for each direction. The file netdev.c has the operations for
 * the core and the network stack, and reopen.c opens and closes all queues. The
 * file queues.c opens and closes the channels; transmit.c and receive.c have
 * their NAPI polls.
 *
 * Most functions are called under RTNL, which protects the shape and the
 * existence of the queues. A transmit ring is written under the lock of its
 * netdev queue. A NAPI poll owns the consumer side of a CQ.
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

/* Default size of the transmit ring, in basic blocks */
#define QRNIC_TX_DEFAULT 1024
/* Default size of the receive ring, in receive WQEs */
#define QRNIC_RX_DEFAULT 512
#define QRNIC_QUEUE_MIN 64
#define QRNIC_QUEUE_MAX 4096

/* Limit on channels, because more do not speed up any guest of an emulator */
#define QRNIC_MAX_CHANNELS 8
#define QRNIC_RSS_ENTRIES BIT(QRNIC_RSS_MAX_LOG_SIZE)
#define QRNIC_RSS_KEY_SIZE sizeof_field(struct qrnic_rss_ctx, key)
#define QRNIC_RSS_TCP (QRNIC_RSS_SRC_PORT_TCP | QRNIC_RSS_DST_PORT_TCP)
#define QRNIC_RSS_UDP (QRNIC_RSS_SRC_PORT_UDP | QRNIC_RSS_DST_PORT_UDP)

#define QRNIC_SEGMENTS_PER_WQEBB (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)
/*
 * Buffers of a receive WQE, which is one block: a control segment and up to
 * three buffers
 */
#define QRNIC_RX_PAGES (QRNIC_SEGMENTS_PER_WQEBB - 1)
/*
 * Free bytes before a received frame, for headers that forwarding, tunnels and
 * XDP add
 */
#define QRNIC_RX_HEADROOM (XDP_PACKET_HEADROOM + NET_IP_ALIGN)
/*
 * Bytes of a frame in its first page, which also has room for skb_shared_info
 */
#define QRNIC_RX_FIRST (PAGE_SIZE - QRNIC_RX_HEADROOM - \
			SKB_DATA_ALIGN(sizeof(struct skb_shared_info)))

struct ethtool_rxfh_fields;
struct qrnic_eth;
struct qrnic_channel;

/* CQ of one direction of a channel; the NAPI poll owns its consumer side */
struct qrnic_eth_cq {
	struct qrnic_cq cq;
	struct qrnic_channel *channel;
	bool transmit;		/* true for the CQ of the transmit ring */
	struct napi_struct napi;
	struct qrnic_ring ring;
	u32 log_size;
	u32 consumer;
	/* Sequence number of the last request for an event */
	u32 sequence;
	bool adaptive;		/* true if DIM chooses the moderation */
	u16 events;		/* number of events that DIM knows of */
	struct dim dim;
};

/* Interrupt moderation, as ethtool -C sets it; under RTNL */
struct qrnic_eth_moderation {
	bool adaptive;
	/*
	 * Time that a completion may wait for its event, in microseconds; 0
	 * disables moderation
	 */
	u16 usecs;
	/* CQEs that may wait for their event; 0 for no limit */
	u16 frames;
};

/*
 * Statistics of one direction of a channel; written by its NAPI poll, read in
 * any context
 */
struct qrnic_eth_stats {
	u64_stats_t packets;
	u64_stats_t bytes;
	u64_stats_t dropped;
	u64_stats_t errors;
	u64_stats_t multicast;
	struct u64_stats_sync sync;
};

/* Statistics of one direction of a channel at one time */
struct qrnic_eth_totals {
	u64 packets;
	u64 bytes;
	u64 dropped;
	u64 errors;
	u64 multicast;
};

/*
 * Frames that the device dropped before they reached a receive ring, counted
 * since the netdev exists; written by the work item
 */
struct qrnic_eth_drops {
	u64_stats_t no_queue;
	u64_stats_t too_long;
	struct u64_stats_sync sync;
	/* Counters of the device when the work item last read them */
	u64 seen_no_queue;
	u64 seen_too_long;
	struct delayed_work work;
};

/* Frame of a send WQE, in the slot of its first basic block */
struct qrnic_tx_slot {
	struct sk_buff *skb;	/* skb or frame is set, the other is NULL */
	struct xdp_frame *frame;
	/* Bytes on the wire, counting the headers of all segments */
	unsigned int bytes;
	/* Number of frames on the wire */
	u32 packets;
	/* Number of basic blocks of the WQE */
	u8 wqebbs;
	/* Number of mapped buffers */
	u8 buffers;
};

/*
 * DMA mapping of a data segment. The driver does not read it from the ring,
 * because a device that is not trusted can write there.
 */
struct qrnic_tx_buffer {
	dma_addr_t address;
	unsigned int length;
};

/*
 * Maximum number of WQEs without a CQE, so that buffers are freed during a long
 * batch
 */
#define QRNIC_TX_SIGNAL_INTERVAL 16

/*
 * Transmit ring. The lock of the netdev queue protects the producer side; the
 * NAPI poll owns clean.
 */
struct qrnic_tx {
	struct qrnic_eth_cq cq;
	struct qrnic_ring ring;
	struct qrnic_tx_slot *slots;
	/* One for each segment of the ring */
	struct qrnic_tx_buffer *buffers;
	u32 log_size;
	u32 last;		/* index of the newest WQE */
	/* Control word of the newest WQE, because the ring is not trusted */
	u32 operation;
	u32 unsignaled;		/* number of WQEs since the last signaled one */
	u32 rung;		/* producer index that the device knows */
	/*
	 * Index behind the newest WQE, in basic blocks; written by transmit,
	 * read by NAPI
	 */
	u32 producer;
	/*
	 * Index of the oldest WQE without completion; written by NAPI, read by
	 * transmit
	 */
	u32 clean;
	struct qrnic_eth_stats stats;
};

/* Buffers of a receive WQE; NULL if the page has been passed on */
struct qrnic_rx_slot {
	struct page *page[QRNIC_RX_PAGES];
};

/* Train: TCP segments that one poll joins to one skb (coalesce.c) */
struct qrnic_train {
	/* Skb of the first frame; NULL if there is no train */
	struct sk_buff *skb;
	/* Number of frames in the train */
	u16 frames;
	/* The members below are valid once there is a second frame. */
	u16 segment;		/* bytes of TCP data in the first frame */
	u8 network;		/* bytes of the IP header */
	u8 header;		/* bytes before the TCP data */
	bool push;		/* true if the last frame has the flag PSH */
	bool last;		/* true if no frame can be joined any more */
};

/* Receive ring; the NAPI poll owns all members while the queues are open */
struct qrnic_rx {
	struct qrnic_eth_cq cq;
	struct qrnic_ring ring;
	struct qrnic_rx_slot *slots;
	struct page_pool *pool;
	u32 log_size;
	unsigned int pages;	/* number of buffers of each receive WQE */
	/* Index behind the newest posted WQE */
	u32 producer;
	/* Index of the WQE that the next frame uses */
	u32 consumer;
	struct xdp_rxq_info xdp_rxq;
	/* Frames that an XDP program dropped, or that failed there */
	u64 xdp_drop;
	u64 xdp_tx;
	u64 xdp_redirect;
	struct qrnic_train train;
	/* Trains of two or more frames that were passed to the stack */
	u64 gro_hw_packets;
	/* Frames in these trains */
	u64 gro_hw_frames;
	struct qrnic_eth_stats stats;
};

/*
 * Channel: a queue pair with a ring for each direction, on one completion
 * vector. The structure and its statistics exist as long as the netdev; the
 * queues exist from open to close.
 */
struct qrnic_channel {
	struct qrnic_eth *eth;
	unsigned int index;	/* index of its netdev queues, too */
	/* Number of the queue pair; 0 while there is none */
	u32 qpn;
	struct qrnic_tx tx;
	struct qrnic_rx rx;
};

/* Shape of the queues that are opened next; under RTNL */
struct qrnic_eth_shape {
	unsigned int channels;
	/* Size of each transmit ring, in basic blocks */
	u32 tx_blocks;
	/* Size of each receive ring, in receive WQEs */
	u32 rx_wqes;
};

/*
 * Receive filter: the destination of received frames, and how they are changed;
 * under filter_lock
 */
struct qrnic_eth_filter {
	/* Number of a QP or an RSS table; 0 if no frames are received */
	u32 object;
	/* True if object is the number of an RSS table */
	bool rss;
	/* True if the device removes VLAN tags */
	bool vlan_strip;
	/* True if the device marks TCP segments that continue the one before */
	bool coalesce;
};

/*
 * Distribution of received frames over the channels, as ethtool -x and -n show
 * it; under RTNL
 */
struct qrnic_eth_rss {
	u32 hash;		/* fields that are hashed (QRNIC_RSS_*) */
	u8 key[QRNIC_RSS_KEY_SIZE];
	/* Channel of each entry of the table */
	u8 channel[QRNIC_RSS_ENTRIES];
};

/* Ethernet function of an adapter; the private part of the netdev */
struct qrnic_eth {
	struct qrnic_core *core;
	struct net_device *netdev;
	/* Protection domain and memory key of all queues; written under RTNL */
	u32 pdn;
	u32 mkey_index;
	__le32 lkey;
	bool open;		/* true while the queues exist; under RTNL */
	/* True while the carrier follows the port; under port_mutex */
	bool up;
	struct qrnic_eth_shape shape;
	struct delayed_work reset_work;
	/* Bit 0: reset_work must replace the present queues */
	unsigned long failed;
	/* Number of times that reset_work has replaced queues */
	u64 resets;
	struct qrnic_eth_moderation rx_moderation;
	struct qrnic_eth_moderation tx_moderation;

	/* Protects filter, and its copy in the device */
	struct mutex filter_lock;
	struct qrnic_eth_filter filter;
	struct work_struct filter_work;

	struct qrnic_eth_rss rss;
	/*
	 * Number of the RSS table, if there are several channels; otherwise 0
	 */
	u32 rss_table;

	struct qrnic_eth_drops drops;
	struct notifier_block dcb_notifier;
	/* XDP program; written under RTNL, read by NAPI */
	struct bpf_prog *prog;
	unsigned int max_channels;
	struct qrnic_channel channels[] __counted_by(max_channels);
};

/* netdev.c: the operations that the core calls */
extern const struct qrnic_function_ops qrnic_eth_function;

/*
 * reopen.c: called under RTNL, or before the netdev is registered.
 * qrnic_eth_link_update() is called under port_mutex instead.
 */
void qrnic_eth_reopen_init(struct qrnic_eth *eth);
void qrnic_eth_link_update(struct qrnic_eth *eth);
void qrnic_eth_set_up(struct qrnic_eth *eth, bool up);
int qrnic_eth_port(struct qrnic_eth *eth, u32 mtu, bool up);
int qrnic_eth_open(struct net_device *netdev);
int qrnic_eth_stop(struct net_device *netdev);
int qrnic_eth_change_mtu(struct net_device *netdev, int mtu);
int qrnic_eth_reshape(struct qrnic_eth *eth, const struct qrnic_eth_shape *shape);

/*
 * Copies the next CQE. Returns false if there is none. Called from the NAPI
 * poll.
 */
static inline bool qrnic_eth_cq_next(struct qrnic_eth_cq *cq, struct qrnic_cqe *copy)
{
	return qrnic_cqe_take(&cq->ring, cq->consumer, cq->log_size, copy);
}

/* rss.c: called under RTNL */
void qrnic_eth_rss_init(struct qrnic_eth *eth);
/*
 * Distributes frames over a changed number of channels, unless the user has set
 * the table
 */
void qrnic_eth_rss_spread(struct qrnic_eth *eth);
/*
 * Creates and destroys the table of open queues, if there are several channels
 */
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

/* queues.c: called under RTNL, or before the netdev is registered */
unsigned int qrnic_eth_max_channels(struct qrnic_core *core);
int qrnic_eth_channels_init(struct qrnic_eth *eth);
void qrnic_eth_channels_set_xps(struct qrnic_eth *eth);
int qrnic_eth_shape_set(struct qrnic_eth *eth, const struct qrnic_eth_shape *shape);
int qrnic_eth_queues_open(struct qrnic_eth *eth);
void qrnic_eth_queues_close(struct qrnic_eth *eth);

/* cq.c: qrnic_eth_fail() is called in any context */
void qrnic_eth_fail(struct qrnic_eth *eth);
int qrnic_eth_cq_open(struct qrnic_channel *channel, struct qrnic_eth_cq *cq,
		      u32 entries, const struct qrnic_eth_moderation *moderation);
void qrnic_eth_cq_close(struct qrnic_eth_cq *cq);
void qrnic_eth_cq_complete(struct qrnic_eth_cq *cq, int done);

/* moderation.c: interrupt moderation of a CQ */
bool qrnic_eth_can_moderate(const struct qrnic_eth *eth);
void qrnic_eth_moderation_open(struct qrnic_eth_cq *cq,
			       const struct qrnic_eth_moderation *moderation);
void qrnic_eth_moderation_close(struct qrnic_eth_cq *cq);
int qrnic_eth_moderation_set(struct qrnic_eth_cq *cq,
			     const struct qrnic_eth_moderation *moderation);
void qrnic_eth_moderation_sample(struct qrnic_eth_cq *cq,
				 const struct qrnic_eth_stats *stats);

/* filter.c: the receive filter */
void qrnic_eth_filter_init(struct qrnic_eth *eth);
/*
 * Sets the filter. On failure the former filter stays, unless the new one
 * receives nothing.
 */
int qrnic_eth_filter_set(struct qrnic_eth *eth,
			 const struct qrnic_eth_filter *filter);

/* statistics.c: statistics of the netdev and the device */
extern const struct netdev_stat_ops qrnic_stat_ops;
struct qrnic_eth_totals qrnic_eth_stats_read(const struct qrnic_eth_stats *stats);
int qrnic_get_sset_count(struct net_device *netdev, int set);
void qrnic_get_strings(struct net_device *netdev, u32 set, u8 *data);
void qrnic_get_ethtool_stats(struct net_device *netdev,
			     struct ethtool_stats *stats, u64 *data);
void qrnic_eth_get_stats64(struct net_device *netdev,
			   struct rtnl_link_stats64 *stats);
/* Reads counters of the device once a second, for ip -s link */
void qrnic_eth_drops_init(struct qrnic_eth *eth);
void qrnic_eth_drops_start(struct qrnic_eth *eth);
void qrnic_eth_drops_stop(struct qrnic_eth *eth);

/* transmit.c: the transmit ring */
int qrnic_tx_alloc(struct qrnic_channel *channel);
void qrnic_tx_release(struct qrnic_channel *channel);
netdev_tx_t qrnic_eth_transmit(struct sk_buff *skb, struct net_device *netdev);
netdev_features_t qrnic_eth_features_check(struct sk_buff *skb,
					   struct net_device *netdev,
					   netdev_features_t features);
/*
 * Posts an XDP frame. Returns false if it was not posted. This function and the
 * next one are called under the lock of the transmit queue.
 */
bool qrnic_tx_post_frame(struct qrnic_channel *channel, struct xdp_frame *frame);
/* Rings the doorbell for all WQEs that were posted. */
void qrnic_tx_ring(struct qrnic_channel *channel);
int qrnic_tx_poll(struct napi_struct *napi, int budget);

/* buffers.c: the receive ring and its buffers */
int qrnic_rx_alloc(struct qrnic_channel *channel);
void qrnic_rx_release(struct qrnic_channel *channel);
unsigned int qrnic_rx_pages(unsigned int mtu);
unsigned int qrnic_rx_max_mtu(unsigned int pages);
void qrnic_rx_add_rest(struct qrnic_rx *rx, struct qrnic_rx_slot *slot,
		       struct sk_buff *skb, u32 length);
int qrnic_rx_fill(struct qrnic_channel *channel, gfp_t gfp);

/* receive.c: the NAPI poll of the receive CQ */
int qrnic_rx_poll(struct napi_struct *napi, int budget);

/* coalesce.c: joins TCP segments */
/* Joins the frame to the train. Returns false if it cannot be joined. */
bool qrnic_train_join(struct qrnic_channel *channel, struct qrnic_rx_slot *slot,
		      const struct qrnic_cqe *cqe, u32 length);
/*
 * Starts a train with this skb, which is passed to the stack when the train
 * ends. There must be no train.
 */
void qrnic_train_begin(struct qrnic_channel *channel, struct sk_buff *skb,
		       const struct bpf_prog *prog);
void qrnic_train_end(struct qrnic_rx *rx);

/* xdp.c: XDP programs and frames */
u32 qrnic_xdp_run(struct qrnic_channel *channel, struct bpf_prog *prog,
		  struct xdp_buff *xdp, struct page *page);
void qrnic_xdp_flush(struct qrnic_channel *channel, bool tx, bool redirect);
int qrnic_xdp_xmit(struct net_device *netdev, int n, struct xdp_frame **frames,
		   u32 flags);
int qrnic_xdp_bpf(struct net_device *netdev, struct netdev_bpf *bpf);

/*
 * dcb.c: called before the netdev is registered, and after it is unregistered;
 * not under RTNL
 */
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

/* vf.c: configuration of virtual functions, under RTNL */
int qrnic_vf_set_mac(struct net_device *netdev, int vf, u8 *mac);
int qrnic_vf_set_vlan(struct net_device *netdev, int vf, u16 vlan, u8 qos,
		      __be16 protocol);
int qrnic_vf_set_rate(struct net_device *netdev, int vf, int min, int max);
int qrnic_vf_set_spoofchk(struct net_device *netdev, int vf, bool on);
int qrnic_vf_set_trust(struct net_device *netdev, int vf, bool on);
int qrnic_vf_set_link_state(struct net_device *netdev, int vf, int state);
int qrnic_vf_get_config(struct net_device *netdev, int vf,
			struct ifla_vf_info *info);
int qrnic_vf_get_stats(struct net_device *netdev, int vf,
		       struct ifla_vf_stats *stats);

/* ethtool.c: ethtool operations */
extern const struct ethtool_ops qrnic_ethtool_ops;

/*
 * Returns the channel through which a processor sends. Several processors may
 * share a channel.
 */
static inline unsigned int qrnic_channel_of_cpu(const struct qrnic_eth *eth,
						unsigned int cpu)
{
	return cpu % READ_ONCE(eth->shape.channels);
}

/* Returns the slot of a receive WQE. */
static inline struct qrnic_rx_slot *qrnic_rx_slot(const struct qrnic_rx *rx, u32 index)
{
	return &rx->slots[index & ((1u << rx->log_size) - 1)];
}

/* Returns the number of buffers that a frame of this length fills. */
static inline unsigned int qrnic_rx_pages_of(u32 length)
{
	return length <= QRNIC_RX_FIRST ? 1 :
	       1 + DIV_ROUND_UP(length - QRNIC_RX_FIRST, PAGE_SIZE);
}

/*
 * Returns the transmit queue of the netdev with the same index as the channel.
 */
static inline struct netdev_queue *qrnic_channel_txq(const struct qrnic_channel *channel)
{
	return netdev_get_tx_queue(channel->eth->netdev, channel->index);
}

/* Returns the number of free basic blocks of a transmit ring. */
static inline u32 qrnic_tx_room(const struct qrnic_tx *tx)
{
	return (1u << tx->log_size) -
	       (READ_ONCE(tx->producer) - READ_ONCE(tx->clean));
}

#endif /* QRNIC_ETHERNET_H */
