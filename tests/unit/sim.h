/*
 * A simulated world for the engine: guest memories, a wire that loses,
 * repeats, reorders and corrupts frames, virtual time, and a small driver.
 * Everything is deterministic for a seed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_SIM_H
#define QRNIC_TEST_SIM_H

#include "qemu/osdep.h"
#include "engine/engine.h"
#include "link/link.h"
#include "wire/packet.h"
#include "heap.h"

#define SIM_NODES 2             /* where nobody says otherwise */
#define SIM_US 1000ll
#define SIM_MS 1000000ll

typedef struct Sim Sim;

typedef struct SimFrame {
    int64_t time;
    uint64_t order;             /* among frames of one time */
    unsigned to;
    bool beyond;                /* it left the link, and goes on behind it */
    size_t len;
    /* In a network: what is behind it, where it came from; see net.h */
    struct SimFrame *next;
    void *at, *came;
    uint32_t hash, wire_bytes;
    uint8_t priority, ip, bth;  /* ip, bth: offsets; 0: none */
    bool adaptive;
    uint8_t data[];
} SimFrame;

typedef struct SimNode SimNode;
struct SimNode {
    Sim *sim;
    unsigned id;
    QrnicEngine *engine;
    uint8_t *memory;            /* bus address 0 is its first byte */
    uint64_t memory_size, allocated;
    uint8_t *device_memory;
    uint64_t device_memory_size;
    uint64_t broken_from, broken_to;    /* DMA to here fails */
    /* What a CPU does right behind a read of the device; or NULL */
    void (*after_read)(SimNode *n, uint64_t addr, size_t len);
    char name[16];
    bool kicked, blocked, listed;
    unsigned kicks, runs;       /* of the engine */
    uint64_t accesses;          /* to memory, so far; one for each 4 KiB */
    uint64_t longest;           /* turn of the engine: most of sim_work() */
    bool may_fail;              /* the fatal state is no failure of the test */
    int64_t deadline, wire_ready, queued;
    GQueue inbox;               /* SimFrame; those that it does not take yet */
    unsigned burst;             /* frames since the wire was ready */
    uint32_t pd, cq_eq, cq_eq_consumer;
    uint32_t db_page;           /* of queues that are made; so is: */
    QrnicStreamAttr stream;     /* of RQs and SRQs */
    uint64_t cq_eq_ring;
    struct {
        uint32_t number, consumer, log_size;
        uint64_t ring;
    } async;
    unsigned notified;
    uint64_t contexts;          /* where their memory is; 0: none was given */
    bool context_bare;
    QrnicGidEntry gid;
    /* Between the engine and the wire; NULL: nothing is */
    QrnicLink *link;
    bool link_kicked;
    int64_t link_deadline;
    GQueue link_under_way;      /* GBytes, to the other end's engine */
    uint64_t link_count[QRNIC_LINK_NUM_COUNTS];
};

struct Sim {
    int64_t now;
    GRand *rand;
    uint32_t seed;
    unsigned nodes;
    SimNode *node;
    GPtrArray *kicked, *waiting;    /* SimNode; waiting: with an inbox */
    /* SimFrame by delivery; SimNode by what it waits for; others */
    Heap wire, due, later;
    uint64_t frames, events;
    /* the wire; probabilities in parts of a thousand */
    unsigned loss, repeat, reorder, corrupt;
    int64_t latency;
    int64_t behind;             /* of the way from the link on; link only */
    unsigned wire_room;         /* frames before it blocks; 0: endless */
    bool forged;                /* a link may get frames that no node sent */
    int64_t wire_pause;         /* how long */
    /* Sees each frame as sent; false: it is lost. */
    bool (*tap)(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque);
    void *tap_opaque;
    /* True: a switch on the way marks it (CE), if it has ECT. */
    bool (*marks)(Sim *s, unsigned from, const uint8_t *frame, size_t len);
    /* In place of the wire; as the engine's. False: then comes sim_block(). */
    bool (*send)(Sim *s, SimNode *from, const uint8_t *frame, size_t len);
    void *network;
    /* Of all frames sent, or NULL: see sim_packets_begin() */
    GChecksum *packets;
    uint64_t packets_hashed;
};

/* Software keeps the free slots in a chain: posts at its head. */
typedef struct SimSrq {
    SimNode *node;
    uint32_t number, log_size, log_stride;
    uint64_t ring, record;
    uint32_t producer, head, tail;
    uint16_t *next;             /* of each slot */
} SimSrq;

typedef struct SimQp {
    SimNode *node;
    SimSrq *srq;                /* or NULL */
    uint32_t number, cq, db_page;
    uint64_t sq, rq, sq_record, rq_record;
    uint32_t sq_log, rq_log, rq_log_stride;
    uint32_t sq_producer, rq_producer;
    uint64_t cq_ring, cq_record;
    uint32_t cq_log, cq_consumer, cq_arm;
} SimQp;

typedef struct SimSge {
    uint64_t addr;
    uint32_t length, key;
} SimSge;

typedef struct SimWr {
    uint8_t opcode, flags;
    uint32_t imm;
    uint64_t remote;
    uint32_t rkey;
    uint64_t swap_add, compare;
    const SimSge *sge;
    unsigned num_sge;
    const QrnicBindSeg *bind;
    const QrnicRegSeg *reg;
    const QrnicIndirectSeg *indirect;
    const QrnicDatagramSeg *datagram;
    const QrnicDynamicSeg *dynamic;
    const QrnicXrcSeg *xrc;
    const QrnicFlushSeg *flush;
    const QrnicEthSeg *eth;
    const void *inline_data;
    uint32_t inline_length;
} SimWr;

typedef struct SimConnect {
    uint8_t path_mtu, timeout, retry_cnt, rnr_retry, min_rnr_timer;
    uint8_t rd_atomic, max_dest_rd_atomic;
    uint32_t psn_a, psn_b;
    uint8_t traffic_class;
    uint8_t options;            /* of both ends, but for: */
    bool only_a, only_b;
    SimQp *carrier_a, *carrier_b;       /* of members; else NULL */
} SimConnect;

typedef struct SimOptions {
    unsigned nodes;             /* 0: 2; the wire is between 0 and 1, 2 and 3 */
    bool ipv6, vlan, loopback;
    bool atomic_hca;            /* without CAP_ATOMIC_GLOB */
    uint32_t max_rd_atomic;     /* of the device; 0: 16 */
    uint32_t doorbell_fifo;     /* 0: 128 */
    uint64_t memory;            /* bytes; 0: 32 MiB */
    /* 0: not many */
    uint32_t max_qp, max_cq, max_srq, max_mkey, max_flow;
    uint32_t vectors, db_pages; /* 0: 4, 8 */
    uint64_t device_memory;     /* bytes; 0: 16 pages */
    /* 0: none; of both nodes, or of node 0; bare: without memory for it */
    uint32_t context_cache, context_stations, context_latency;
    bool contexts_of_one, context_bare;
    bool link_retransmission;
    uint64_t capabilities;      /* 0: those that the unit tests use */
    bool may_fail;              /* of all nodes */
} SimOptions;

Sim *sim_new(uint32_t seed, const SimOptions *options);
void sim_free(Sim *s);
/* Back to nothing, as by a reset of the device; what was created is gone. */
void sim_reset(SimNode *n);
/* Until nothing happens any more, or this time. False: time ran out. */
bool sim_run(Sim *s, int64_t until);
/* What a tap sees; without the headers below the transport's (p->h) */
QrnicParse sim_parse(QrnicPacket *p, const uint8_t *frame, size_t len);
/* No frame is taken from the node before that time. */
void sim_block(SimNode *n, int64_t until);
/*
 * Returns the memory accesses and keys entered by the device so far. A turn (a
 * call into the engine) may do at most SIM_TURN_WORK of them, because the main
 * loop of QEMU waits for each turn. sim_run() checks every turn.
 */
#define SIM_TURN_WORK 32768
uint64_t sim_work(const SimNode *n);
/* Takes the next frame off the wire, NULL if it is empty; to be freed */
SimFrame *sim_wire_take(Sim *s);
/* Delivers to a node what a peer might have sent. */
void sim_inject(Sim *s, unsigned to, const uint8_t *frame, size_t len);

uint64_t sim_alloc(SimNode *n, uint64_t size);
uint64_t sim_counter(SimNode *n, enum qrnic_counter c);
uint32_t sim_mkey(SimNode *n, uint64_t addr, uint64_t length, uint8_t access);
uint32_t sim_mkey_ctx(SimNode *n, const QrnicMkeyCtx *ctx);

SimQp *sim_qp_new(SimNode *n, unsigned sq_log, unsigned rq_log,
                  unsigned rq_log_stride, unsigned cq_log);
/* The same without an RQ */
SimQp *sim_qp_new_srq(SimNode *n, unsigned sq_log, SimSrq *srq,
                      unsigned cq_log);
/* Unreliable connections; srq or NULL */
SimQp *sim_uc_new(SimNode *n, SimSrq *srq);
/* Receives into the CQE, in the address space 1; srq or NULL */
SimQp *sim_inline_new(SimNode *n, uint8_t type, SimSrq *srq,
                      uint8_t max_recv_inline);
/* UD and GSI, in RTS; srq or NULL */
SimQp *sim_datagram_new(SimNode *n, uint8_t type, SimSrq *srq, uint32_t qkey);
/* Dynamic connections: a target, or without SRQ an initiator; in RESET */
SimQp *sim_dynamic_new(SimNode *n, SimSrq *srq, const QrnicDynamicAttr *attr);
/* To RTR or RTS, with what of these its type has */
void sim_dynamic_start(SimQp *q, const SimConnect *c);
QrnicDynamicSeg sim_dynamic_to(SimQp *target, uint64_t access_key);
/* The datagram segment that reaches a queue pair */
QrnicDatagramSeg sim_datagram_to(SimQp *to, uint32_t qkey);
void sim_uc_connect(SimQp *a, SimQp *b);
/* The ends of shared connections; what of *c members have, they have not. */
SimQp *sim_carrier_new(SimNode *n);
void sim_carrier_connect(SimQp *a, SimQp *b, const SimConnect *c);
/* The steps of it for one end, which is a (first) or b */
void sim_carrier_to_rtr(SimQp *q, SimQp *peer, const SimConnect *c, bool first);
void sim_carrier_to_rts(SimQp *q, const SimConnect *c, bool first);
void sim_carrier_free(SimQp *q);
void sim_qp_free(SimQp *q);
SimSrq *sim_srq_new(SimNode *n, unsigned log_size, unsigned log_stride);
void sim_srq_free(SimSrq *s);
/* Returns the slot. */
uint32_t sim_post_srq(SimSrq *s, const SimSge *sge, unsigned num_sge);
/* A completed slot is software's again. */
void sim_srq_slot_free(SimSrq *s, uint32_t slot);
QrnicResult sim_modify(SimQp *q, const QrnicQpAttr *attr);
/* What sim_connect sets; change before each step as the test wants. */
QrnicQpAttr sim_attr_init(void);
QrnicQpAttr sim_attr_rtr(SimQp *q, SimQp *peer);
QrnicQpAttr sim_attr_rts(void);
/* The same without what carriers do not have */
QrnicQpAttr sim_attr_of_carrier(QrnicQpAttr a);
SimConnect sim_connect_default(void);
void sim_connect(SimQp *a, SimQp *b, const SimConnect *c);
QrnicQpAttr sim_query(SimQp *q);

void sim_post_send(SimQp *q, const SimWr *wr);
void sim_post_send_quiet(SimQp *q, const SimWr *wr);    /* no doorbell */
void sim_ring_sq(SimQp *q);
/* A doorbell (QRNIC_DB_*) through any page */
void sim_ring(SimNode *n, uint32_t page, unsigned offset, uint32_t number,
              uint32_t index);
void sim_post_recv(SimQp *q, const SimSge *sge, unsigned num_sge);
void sim_post_recv_quiet(SimQp *q, const SimSge *sge, unsigned num_sge);
void sim_ring_rq(SimQp *q);
bool sim_poll(SimQp *q, QrnicCqe *out);
/* The CQE that was polled last, as one with data */
QrnicCqeInline sim_polled_inline(SimQp *q);
/* Asks for an event at the next CQE; how many events of CQs came */
void sim_cq_arm(SimQp *q);
unsigned sim_cq_events(SimNode *n);
bool sim_poll_event(SimNode *n, QrnicEqe *out);

/* Headers of packets from peer to q, as the peer would send them. */
QrnicPathSpec sim_path_to(SimQp *q, SimQp *peer);

#endif
