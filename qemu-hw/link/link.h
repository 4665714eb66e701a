/*
 * qrnic link: retransmission between the two ends of a wire, below RoCE
 *
 * The link is between a port, which sends whole Ethernet frames, and a wire
 * that loses some. Two ends that agree on it number their frames and retransmit
 * lost frames. So each frame is delivered once and in order. Any other peer
 * receives plain frames, and a HELLO now and then. The link knows no device,
 * engine or net client, and reaches the world only through QrnicLinkEnv. All
 * functions are called from one thread and are not nested.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_LINK_H
#define QRNIC_LINK_LINK_H

#define QRNIC_LINK_NEVER INT64_MAX
#define QRNIC_LINK_WINDOW_MAX 1024

/* Counters, in the order of the device's counters from LINK_TX_FRAMES on */
enum qrnic_link_count {
    QRNIC_LINK_TX_FRAMES,       /* DATA, without retransmissions */
    QRNIC_LINK_TX_RETRANSMISSIONS,
    QRNIC_LINK_TX_TIMEOUTS,
    QRNIC_LINK_TX_LOST,         /* not acknowledged when a connection ended */
    QRNIC_LINK_TX_REFUSED,      /* too long, or a link frame of the guest */
    QRNIC_LINK_TX_HELLOS,
    QRNIC_LINK_RX_FRAMES,       /* delivered */
    QRNIC_LINK_RX_GAPS,
    QRNIC_LINK_RX_DUPLICATES,
    QRNIC_LINK_RX_CRC_ERRORS,
    QRNIC_LINK_RX_MALFORMED,
    QRNIC_LINK_RX_STALE,        /* of another connection, or of none */
    QRNIC_LINK_ESTABLISHED,
    QRNIC_LINK_NUM_COUNTS
};

/* Environment of the link */
typedef struct QrnicLinkEnv {
    void *opaque;

    /*
     * Sends a frame to the wire, which always accepts it. Returns false if the
     * wire is busy; then no frame is sent until qrnic_link_wire_ready() is
     * called.
     */
    bool (*send)(void *opaque, const uint8_t *frame, size_t len);

    /*
     * Delivers a frame to the port. takes() returns true if the port can accept
     * a frame now.
     */
    void (*deliver)(void *opaque, const uint8_t *frame, size_t len);
    bool (*takes)(void *opaque);

    /*
     * Notifies the port, which qrnic_link_send() has made wait, that it may
     * send.
     */
    void (*ready)(void *opaque);

    /* Reports that both ends agree on retransmission, or no longer do. */
    void (*changed)(void *opaque, bool agreed);

    /*
     * Requests a call of qrnic_link_run() soon, but not from within this call.
     */
    void (*kick)(void *opaque);

    /* Returns the virtual time in ns. */
    int64_t (*clock_ns)(void *opaque);

    /*
     * Requests a call of qrnic_link_timer() at this time or soon after, as in
     * QrnicEnv. QRNIC_LINK_NEVER cancels the request.
     */
    void (*timer_arm)(void *opaque, int64_t deadline_ns);

    /* Returns a random number. */
    uint32_t (*random)(void *opaque);
    /* Adds n to a counter. */
    void (*count)(void *opaque, enum qrnic_link_count which, uint64_t n);
} QrnicLinkEnv;

typedef struct QrnicLinkConfig {
    const char *name;           /* for trace events */
    uint8_t mac[6];
    uint32_t window;            /* maximum number of frames in flight */
    size_t room;                /* maximum number of bytes in flight */
    uint32_t ack_frames;        /* frames that cause an acknowledgement */
    int64_t ack_ns;             /* or time until an acknowledgement */
    /* first timeout, before a round trip is measured */
    int64_t wait_first_ns;
    int64_t wait_min_ns, wait_max_ns;
    /* consecutive timeouts until the peer is considered gone */
    uint32_t retries;
    int64_t hello_gap_ns;       /* minimum time between two HELLOs */
    /* interval of unsolicited HELLOs; it doubles up to the maximum */
    int64_t hello_first_ns, hello_max_ns;
    /* time with plain frames after a third end was detected */
    int64_t crowd_ns;
} QrnicLinkConfig;

typedef struct QrnicLink QrnicLink;

/**
 * qrnic_link_config_default:
 *
 * Returns: the default configuration, without name and MAC address
 */
QrnicLinkConfig qrnic_link_config_default(void);
/**
 * qrnic_link_new:
 * @config: the configuration; copied
 * @env: the environment; copied
 *
 * Returns: a new link, whose wire is down
 */
QrnicLink *qrnic_link_new(const QrnicLinkConfig *config,
                          const QrnicLinkEnv *env);
/**
 * qrnic_link_free:
 * @l: the link, or NULL
 */
void qrnic_link_free(QrnicLink *l);
/**
 * qrnic_link_reset:
 * @l: the link
 *
 * Drops all frames in flight and begins a new session, of which the peer is
 * informed by a HELLO.
 */
void qrnic_link_reset(QrnicLink *l);

/**
 * qrnic_link_set_up:
 * @l: the link
 * @up: state of the wire
 *
 * Reports the state of the wire. A wire that goes down ends the connection and
 * drops all frames.
 */
void qrnic_link_set_up(QrnicLink *l, bool up);
/**
 * qrnic_link_agreed:
 * @l: the link
 *
 * Returns: true if both ends have agreed on retransmission
 */
bool qrnic_link_agreed(const QrnicLink *l);

/**
 * qrnic_link_send:
 * @l: the link
 * @frame: a frame of the port
 * @len: its size in bytes
 *
 * Sends a frame of the port, which is always accepted.
 *
 * Returns: false if the port must send no further frame until env.ready() is
 * called
 */
bool qrnic_link_send(QrnicLink *l, const uint8_t *frame, size_t len);

/**
 * qrnic_link_takes:
 * @l: the link
 *
 * Delivers buffered frames that are in order, as long as the port accepts them.
 *
 * Returns: true if all are delivered, so that qrnic_link_receive() may be
 * called
 */
bool qrnic_link_takes(QrnicLink *l);
/**
 * qrnic_link_holds:
 * @l: the link
 *
 * Returns: true if frames are buffered that wait only for the port
 */
bool qrnic_link_holds(const QrnicLink *l);
/**
 * qrnic_link_receive:
 * @l: the link; qrnic_link_holds() returns false
 * @frame: a frame of the wire
 * @len: its size in bytes
 *
 * Processes a received frame.
 */
void qrnic_link_receive(QrnicLink *l, const uint8_t *frame, size_t len);

/**
 * qrnic_link_wire_ready:
 * @l: the link
 *
 * Reports that a busy wire accepts frames again.
 */
void qrnic_link_wire_ready(QrnicLink *l);
/**
 * qrnic_link_run:
 * @l: the link
 *
 * Sends pending frames, after env.kick().
 */
void qrnic_link_run(QrnicLink *l);
/**
 * qrnic_link_timer:
 * @l: the link
 *
 * Handles the timers that are due, after env.timer_arm().
 */
void qrnic_link_timer(QrnicLink *l);

#endif
