/*
 * qrnic link: retransmission between the two ends of one wire, below RoCE
 *
 * Between the port above, which has whole Ethernet frames, and the wire, which
 * loses some. Two ends that agree number their frames and repeat what is lost,
 * so that the port has each once and in order; any other end has the frames as
 * ever, and a greeting now and then. Knows no device, no engine and no net
 * client; it reaches the world through QrnicLinkEnv.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_LINK_H
#define QRNIC_LINK_LINK_H

#define QRNIC_LINK_NEVER INT64_MAX
#define QRNIC_LINK_WINDOW_MAX 1024

enum qrnic_link_count {
    QRNIC_LINK_TX_FRAMES,       /* DATA, each once */
    QRNIC_LINK_TX_RETRANSMISSIONS,
    QRNIC_LINK_TX_TIMEOUTS,
    QRNIC_LINK_TX_LOST,         /* not acknowledged when a connection ended */
    QRNIC_LINK_TX_REFUSED,      /* too long, or looks like a link frame */
    QRNIC_LINK_TX_HELLOS,
    QRNIC_LINK_RX_FRAMES,       /* handed up */
    QRNIC_LINK_RX_GAPS,
    QRNIC_LINK_RX_DUPLICATES,
    QRNIC_LINK_RX_CRC_ERRORS,
    QRNIC_LINK_RX_MALFORMED,
    QRNIC_LINK_RX_STALE,        /* of no connection, or of another */
    QRNIC_LINK_ESTABLISHED,
    QRNIC_LINK_NUM_COUNTS
};

typedef struct QrnicLinkEnv {
    void *opaque;

    /*
     * To the wire. Takes the frame in any case; false means that no further
     * one can be taken until qrnic_link_wire_ready() is called.
     */
    bool (*send)(void *opaque, const uint8_t *frame, size_t len);

    /* To the port above; and whether that can take one now. */
    void (*deliver)(void *opaque, const uint8_t *frame, size_t len);
    bool (*takes)(void *opaque);

    /* The port above, which was told to wait, may send again. */
    void (*ready)(void *opaque);

    /* The two ends have agreed, or do no more. */
    void (*changed)(void *opaque, bool agreed);

    /* Call qrnic_link_run() soon, from a clean stack. */
    void (*kick)(void *opaque);

    int64_t (*clock_ns)(void *opaque);

    /* Call qrnic_link_timer() at this time or soon after; as in QrnicEnv. */
    void (*timer_arm)(void *opaque, int64_t deadline_ns);

    uint32_t (*random)(void *opaque);
    void (*count)(void *opaque, enum qrnic_link_count which, uint64_t n);
} QrnicLinkEnv;

typedef struct QrnicLinkConfig {
    const char *name;           /* for trace events */
    uint8_t mac[6];
    uint32_t window;            /* frames on the way, a few round trips' */
    size_t room;                /* and their bytes */
    uint32_t ack_frames;        /* so many without an acknowledgement */
    int64_t ack_ns;             /* or for so long */
    int64_t wait_first_ns;      /* for one, while no round trip is known */
    int64_t wait_min_ns, wait_max_ns;
    uint32_t retries;           /* timeouts in a row; then the end is gone */
    int64_t hello_gap_ns;       /* between two of them, at least */
    int64_t hello_first_ns, hello_max_ns;       /* unasked: doubles */
    int64_t crowd_ns;           /* plain frames after a third end was heard */
} QrnicLinkConfig;

typedef struct QrnicLink QrnicLink;

QrnicLinkConfig qrnic_link_config_default(void);
QrnicLink *qrnic_link_new(const QrnicLinkConfig *config,
                          const QrnicLinkEnv *env);
void qrnic_link_free(QrnicLink *l);
/* What is under way is lost, the other end is told. */
void qrnic_link_reset(QrnicLink *l);

/* Of the wire. Down is back to nothing. It begins so. */
void qrnic_link_set_up(QrnicLink *l, bool up);
bool qrnic_link_agreed(const QrnicLink *l);

/*
 * A frame of the port above, which is taken in any case; false: no further one
 * until env.ready().
 */
bool qrnic_link_send(QrnicLink *l, const uint8_t *frame, size_t len);

/*
 * A frame of the wire. Only when qrnic_link_takes() says so, which first hands
 * up what waited for the port above.
 */
bool qrnic_link_takes(QrnicLink *l);
/* Some wait for the port above. */
bool qrnic_link_holds(const QrnicLink *l);
void qrnic_link_receive(QrnicLink *l, const uint8_t *frame, size_t len);

void qrnic_link_wire_ready(QrnicLink *l);
void qrnic_link_run(QrnicLink *l);
void qrnic_link_timer(QrnicLink *l);

#endif
