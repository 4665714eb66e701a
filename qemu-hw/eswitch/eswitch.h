/*
 * qrnic embedded switch: forwards frames between the functions of an adapter
 * and its wire
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Port 0 is the uplink (the wire), port 1 the physical function (PF), and port
 * 2 + i the virtual function (VF) i. The owner creates one switch, configures
 * the ports for the PF, and plugs each port while its function exists. A
 * function sends with qrnic_eswitch_send(), which only queues the frame. All
 * frames are forwarded in qrnic_eswitch_run(). The switch knows no device and
 * no engine, and reaches the world only through QrnicEswitchOps.
 *
 * All functions are called from one thread. qrnic_eswitch_run() is not nested.
 * An operation may call any function except qrnic_eswitch_run() and
 * qrnic_eswitch_free(). Manual, chapter "Virtual functions".
 */

#ifndef QRNIC_ESWITCH_H
#define QRNIC_ESWITCH_H

#define QRNIC_ESWITCH_UPLINK 0
#define QRNIC_ESWITCH_PF 1
#define QRNIC_ESWITCH_VF(i) (2 + (i))
#define QRNIC_ESWITCH_VFS_MAX 63
#define QRNIC_ESWITCH_PORTS_MAX QRNIC_ESWITCH_VF(QRNIC_ESWITCH_VFS_MAX)

#define QRNIC_ESWITCH_NEVER INT64_MAX
/* Limits of a frame, without frame check sequence */
#define QRNIC_ESWITCH_FRAME_MIN 14
#define QRNIC_ESWITCH_FRAME_MAX (18 + 9000 + 64)
/* Maximum number of addresses in the filter of a function */
#define QRNIC_ESWITCH_ADDRESSES 256

/* Result of the operation deliver() */
typedef enum QrnicEswitchDelivery {
    /*
     * The port is busy. The switch buffers the frame, and delivers no frame to
     * this port until qrnic_eswitch_ready() is called.
     */
    QRNIC_ESWITCH_BUSY,
    QRNIC_ESWITCH_DELIVERED,
    /* The function is off: without power or DMA. The frame is dropped. */
    QRNIC_ESWITCH_OFF,
} QrnicEswitchDelivery;

/* Operations of the owner; all are required */
typedef struct QrnicEswitchOps {
    /* Delivers a frame to a port. */
    QrnicEswitchDelivery (*deliver)(void *opaque, unsigned port,
                                    const uint8_t *frame, size_t len);

    /*
     * Notifies a sender, which qrnic_eswitch_send() has stopped, that it may
     * send.
     */
    void (*sender_ready)(void *opaque, unsigned port);

    /* Reports that the link of a function went up or down. */
    void (*link)(void *opaque, unsigned port, bool up);

    /* Returns the virtual time in ns, from any origin. */
    int64_t (*clock_ns)(void *opaque);

    /*
     * Requests a call of qrnic_eswitch_timer() at this time or soon after. Each
     * call replaces the previous deadline; QRNIC_ESWITCH_NEVER cancels it.
     */
    void (*timer_arm)(void *opaque, int64_t deadline_ns);

    /*
     * Requests a call of qrnic_eswitch_run() soon, but not from within this
     * call. The request is not repeated before that run.
     */
    void (*kick)(void *opaque);
} QrnicEswitchOps;

typedef enum QrnicEswitchLink {
    QRNIC_ESWITCH_LINK_AUTO,    /* the link of the uplink */
    QRNIC_ESWITCH_LINK_ENABLE,  /* always up */
    QRNIC_ESWITCH_LINK_DISABLE, /* always down */
} QrnicEswitchLink;

/*
 * Configuration of a function, set by the PF. A VF begins without VLAN, spoof
 * check, trust and limits of its rate. The PF is trusted. The uplink has no
 * configuration.
 */
typedef struct QrnicEswitchConfig {
    /* MAC address of the function; all zero: none */
    uint8_t mac[6];
    /*
     * VLAN ID (1 to 4094) and priority of the tag that the switch inserts when
     * the function sends, and removes when it receives. VLAN 0: the frames are
     * not changed; then the priority is 0, too.
     */
    uint16_t vlan;
    uint8_t priority;
    bool spoof_check;           /* drop frames with another source address */
    bool trust;                 /* permit additional addresses, promiscuous */
    QrnicEswitchLink link;
    /*
     * Rates of the frames that the function sends; 0: none. No command of the
     * device sets a minimum rate yet.
     */
    uint32_t min_mbps, max_mbps;
} QrnicEswitchConfig;

/* Result of qrnic_eswitch_configure() */
typedef enum QrnicEswitchResult {
    QRNIC_ESWITCH_OK,
    QRNIC_ESWITCH_BAD_PORT,     /* no function has this port */
    QRNIC_ESWITCH_BAD_MAC,      /* a group address */
    QRNIC_ESWITCH_MAC_IN_USE,   /* the address of another function */
    QRNIC_ESWITCH_BAD_VLAN,
    QRNIC_ESWITCH_BAD_PRIORITY, /* above 7, or without VLAN */
    QRNIC_ESWITCH_BAD_LINK,
    QRNIC_ESWITCH_BAD_RATE,     /* the minimum is above the maximum */
} QrnicEswitchResult;

/*
 * Receive filter of a function, which the function itself sets. Each function
 * also receives the frames to config.mac, and broadcast frames. The switch
 * ignores promiscuous, and unicast addresses, while the function is not
 * trusted.
 */
typedef struct QrnicEswitchFilter {
    bool promiscuous;           /* frames of the uplink that have no receiver */
    bool all_multicast;
    unsigned count;             /* number of addresses, unicast and multicast */
    const uint8_t (*addresses)[6];
} QrnicEswitchFilter;

/*
 * Counters of a port, in frames unless the name has another unit. TX counts
 * frames that the port sends, RX counts frames that it receives.
 */
typedef enum QrnicEswitchCount {
    QRNIC_ESWITCH_TX_FRAMES,    /* forwarded to at least one port */
    QRNIC_ESWITCH_TX_BYTES,
    QRNIC_ESWITCH_TX_MULTICAST,
    QRNIC_ESWITCH_TX_BROADCAST,
    QRNIC_ESWITCH_RX_FRAMES,    /* delivered */
    QRNIC_ESWITCH_RX_BYTES,
    QRNIC_ESWITCH_RX_MULTICAST,
    QRNIC_ESWITCH_RX_BROADCAST,
    QRNIC_ESWITCH_TX_DROP_LINK,     /* the link of the sender is down */
    QRNIC_ESWITCH_TX_DROP_RUNT,     /* shorter than an Ethernet header */
    QRNIC_ESWITCH_TX_DROP_GIANT,    /* longer than supported */
    QRNIC_ESWITCH_TX_DROP_SOURCE,   /* source address is a group address */
    QRNIC_ESWITCH_TX_DROP_SPOOF,    /* source address of another station */
    QRNIC_ESWITCH_TX_DROP_TAGGED,   /* tagged, but the switch inserts the tag */
    QRNIC_ESWITCH_TX_DROP_RESERVED, /* to an address for one hop only */
    QRNIC_ESWITCH_TX_DROP_OWN,      /* to an address of the sender */
    QRNIC_ESWITCH_TX_DROP_NOBODY,   /* no port receives it */
    QRNIC_ESWITCH_TX_DROP_FULL,     /* the queue of the sender is full */
    QRNIC_ESWITCH_TX_DROP_RESET,    /* queued when the function was reset */
    QRNIC_ESWITCH_RX_DROP_LINK,     /* the link of the receiver is down */
    QRNIC_ESWITCH_RX_DROP_VLAN,     /* to its address in another VLAN */
    QRNIC_ESWITCH_RX_DROP_OFF,      /* the receiver is off */
    QRNIC_ESWITCH_RX_DROP_FULL,     /* the queue of the receiver is full */
    QRNIC_ESWITCH_RX_DROP_RESET,    /* queued when the function was reset */
    QRNIC_ESWITCH_NUM_COUNTS
} QrnicEswitchCount;

typedef struct QrnicEswitch QrnicEswitch;

/**
 * qrnic_eswitch_new:
 * @name: id of the adapter, for trace events; must live as long as the switch
 * @vfs: number of VFs, at most QRNIC_ESWITCH_VFS_MAX
 * @ops: operations of the owner; copied
 * @opaque: argument of the operations
 *
 * Returns: a switch whose ports are not plugged, and whose wire is down
 */
QrnicEswitch *qrnic_eswitch_new(const char *name, unsigned vfs,
                                const QrnicEswitchOps *ops, void *opaque);
/**
 * qrnic_eswitch_free:
 * @sw: the switch
 *
 * Drops all frames and frees the switch. Calls no operation.
 */
void qrnic_eswitch_free(QrnicEswitch *sw);

/**
 * qrnic_eswitch_plug:
 * @sw: the switch
 * @port: any port
 *
 * Begins to forward frames from and to the port, unless it is plugged already.
 */
void qrnic_eswitch_plug(QrnicEswitch *sw, unsigned port);
/**
 * qrnic_eswitch_unplug:
 * @sw: the switch
 * @port: any port
 *
 * Resets the port (qrnic_eswitch_reset_port()), and ends its traffic. Frames to
 * its address then go to the uplink. The configuration of the PF is kept.
 */
void qrnic_eswitch_unplug(QrnicEswitch *sw, unsigned port);
/**
 * qrnic_eswitch_reset_port:
 * @sw: the switch
 * @port: a port whose function is reset
 *
 * Drops all frames in the queues of the port, and clears its receive filter.
 * Frames that the port has sent may still be in the queues of other ports. A
 * stopped sender may send at once. A busy port is no longer busy. The switch
 * keeps the configuration, the counters, the token bucket of the rate, and the
 * fact that the port is slow.
 */
void qrnic_eswitch_reset_port(QrnicEswitch *sw, unsigned port);
/**
 * qrnic_eswitch_set_wire:
 * @sw: the switch
 * @up: true if the link of the wire is up
 *
 * Reports changes of the link of the uplink.
 */
void qrnic_eswitch_set_wire(QrnicEswitch *sw, bool up);
/**
 * qrnic_eswitch_link:
 * @sw: the switch
 * @port: any port
 *
 * Returns: true if the link of the port is up
 */
bool qrnic_eswitch_link(const QrnicEswitch *sw, unsigned port);

/**
 * qrnic_eswitch_send:
 * @sw: the switch
 * @port: the sender
 * @frame: the frame, without FCS; copied
 * @len: its size in bytes
 *
 * Queues a frame. The frame may be dropped, then or later, and is counted.
 *
 * Returns: false if the sender must stop until ops.sender_ready()
 */
bool qrnic_eswitch_send(QrnicEswitch *sw, unsigned port, const uint8_t *frame,
                        size_t len);
/**
 * qrnic_eswitch_ready:
 * @sw: the switch
 * @port: a receiver that was busy
 *
 * Reports that the port accepts frames again.
 */
void qrnic_eswitch_ready(QrnicEswitch *sw, unsigned port);
/**
 * qrnic_eswitch_run:
 * @sw: the switch
 *
 * Forwards queued frames, up to a work budget. Requests another run if frames
 * remain that need not wait.
 */
void qrnic_eswitch_run(QrnicEswitch *sw);
/**
 * qrnic_eswitch_timer:
 * @sw: the switch
 *
 * Requests a run, in which waiting senders are served. The owner calls this
 * function when the deadline of ops.timer_arm() has passed.
 */
void qrnic_eswitch_timer(QrnicEswitch *sw);

/**
 * qrnic_eswitch_configure:
 * @sw: the switch
 * @port: a function, plugged or not
 * @config: the new configuration, which replaces the previous one
 *
 * Frames that are queued already are forwarded by the new configuration.
 *
 * Returns: QRNIC_ESWITCH_OK, or the reason why nothing was changed
 */
QrnicEswitchResult qrnic_eswitch_configure(QrnicEswitch *sw, unsigned port,
                                           const QrnicEswitchConfig *config);
/**
 * qrnic_eswitch_config:
 * @sw: the switch
 * @port: a function
 *
 * Returns: its configuration
 */
const QrnicEswitchConfig *qrnic_eswitch_config(const QrnicEswitch *sw,
                                               unsigned port);
/**
 * qrnic_eswitch_set_filter:
 * @sw: the switch
 * @port: a function
 * @filter: the new receive filter, which replaces the previous one; copied
 *
 * Returns: false if the filter has more than QRNIC_ESWITCH_ADDRESSES addresses;
 * then nothing was changed
 */
bool qrnic_eswitch_set_filter(QrnicEswitch *sw, unsigned port,
                              const QrnicEswitchFilter *filter);

/**
 * qrnic_eswitch_count:
 * @sw: the switch
 * @port: any port
 * @which: the counter
 *
 * Returns: the value of the counter
 */
uint64_t qrnic_eswitch_count(const QrnicEswitch *sw, unsigned port,
                             QrnicEswitchCount which);
/**
 * qrnic_eswitch_count_name:
 * @which: the counter
 *
 * Returns: its name, for example "tx_drop_spoof"
 */
const char *qrnic_eswitch_count_name(QrnicEswitchCount which);

#endif
