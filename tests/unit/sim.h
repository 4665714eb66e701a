/*
 * A simulated world for the engine: guest memories, a wire that loses, repeats,
 * reorders and corrupts frames, virtual time, and a small driver. A seed
 * determines the whole run.
 *
 * A test creates a world (sim_new()), makes objects at its nodes, and connects
 * queue pairs. Then it posts work, runs the world (sim_run()), and polls
 * completions.
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

#define SIM_NODES 2             /* Default number of nodes */
#define SIM_VFS 2               /* Virtual functions of CAP_SRIOV */
#define SIM_US 1000ll
#define SIM_MS 1000000ll

typedef struct Sim Sim;

typedef struct SimFrame {
    int64_t time;
    uint64_t order;             /* Order among frames of one time */
    unsigned to;
    bool beyond;                /* Left the link; is on the rest of the path */
    size_t len;
    /*
     * State of the network (net.h): next frame of a queue, device, and ingress
     * port
     */
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
    uint8_t *memory;            /* Byte 0 is bus address 0 */
    uint64_t memory_size, allocated;
    uint8_t *device_memory;
    uint64_t device_memory_size;
    uint64_t broken_from, broken_to;    /* Range in which DMA fails */
    /*
     * The page tables of processes, or NULL; address of the result: in memory.
     * Opaque is for the owner of the function.
     */
    QrnicTranslate (*translate)(SimNode *n, uint32_t pasid, uint64_t addr,
                                bool write, QrnicTranslated *result);
    void *translate_opaque;
    /* Accepts or rejects page requests, or NULL: rejects all */
    bool (*page_request)(SimNode *n, uint32_t pasid, uint64_t addr, bool write,
                         uint16_t group, bool last);
    /*
     * Called before each access to a translated address, or NULL. Returns the
     * address in memory.
     */
    uint64_t (*translated)(SimNode *n, uint64_t addr, size_t len, bool write);
    /* Called behind each read of the device, as a racing CPU; or NULL */
    void (*after_read)(SimNode *n, uint64_t addr, size_t len);
    /* Called behind each write of the device; or NULL */
    void (*after_write)(SimNode *n, uint64_t addr, size_t len);
    char name[16];
    bool kicked, blocked, listed;
    unsigned kicks, runs;       /* Calls of kick(), and runs of the engine */
    /* Accesses to memory so far; one for each 4 KiB */
    uint64_t accesses;
    /* The most sim_work() of one call of the engine */
    uint64_t longest;
    bool may_fail;              /* The test expects a fatal error */
    int64_t deadline, wire_ready, queued;
    /* SimFrame: frames that the engine does not accept yet */
    GQueue inbox;
    unsigned burst;             /* Frames since the wire was ready */
    uint32_t pd, cq_eq, cq_eq_consumer;
    uint32_t db_page;           /* Doorbell page of new queues */
    bool event_index;           /* New queue pairs have QPF_EVENT_INDEX */
    QrnicStreamAttr stream;     /* Stream attributes of new RQs and SRQs */
    uint64_t cq_eq_ring;
    struct {
        uint32_t number, consumer, log_size;
        uint64_t ring;
    } async;
    unsigned notified;
    uint64_t contexts;          /* Address of the context memory; 0: none */
    bool context_bare;
    QrnicGidEntry gid;
    QrnicVfCtx vf[SIM_VFS];     /* Input of the last SET_VF, with CAP_SRIOV */
    /* Link retransmission between engine and wire, or NULL */
    QrnicLink *link;
    bool link_kicked;
    int64_t link_deadline;
    GQueue link_under_way;      /* GBytes, to the peer's engine */
    uint64_t link_count[QRNIC_LINK_NUM_COUNTS];
};

struct Sim {
    int64_t now;
    GRand *rand;
    uint32_t seed;
    unsigned nodes;
    SimNode *node;
    GPtrArray *kicked, *waiting;    /* SimNode; waiting: those with an inbox */
    /* SimFrame by delivery time; SimNode by its next event; other events */
    Heap wire, due, later;
    uint64_t frames, events;
    /* Faults of the wire, in parts of a thousand */
    unsigned loss, repeat, reorder, corrupt;
    int64_t latency;
    int64_t behind;             /* Delay behind the link; link only */
    unsigned wire_room;         /* Frames until the wire blocks; 0: never */
    bool forged;                /* The link receives frames that no node sent */
    int64_t wire_pause;         /* Time for which the wire blocks */
    /* Called for each sent frame. Returns false to drop the frame. */
    bool (*tap)(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque);
    void *tap_opaque;
    /* Returns true if a switch on the path marks the frame (CE) with ECT. */
    bool (*marks)(Sim *s, unsigned from, const uint8_t *frame, size_t len);
    /*
     * Replaces the wire: send() of the engine. After false it calls
     * sim_block().
     */
    bool (*send)(Sim *s, SimNode *from, const uint8_t *frame, size_t len);
    void *network;
    /* SHA-256 of all sent frames, or NULL: see sim_packets_begin() */
    GChecksum *packets;
    uint64_t packets_hashed;
};

/* An SRQ. Software chains its free slots, and posts at the head. */
typedef struct SimSrq {
    SimNode *node;
    uint32_t number, log_size, log_stride;
    uint64_t ring, record;
    uint32_t producer, head, tail;
    uint16_t *next;             /* Next slot of each slot */
} SimSrq;

typedef struct SimQp {
    SimNode *node;
    SimSrq *srq;                /* Or NULL */
    uint32_t number, cq, db_page;
    uint64_t sq, rq, sq_record, rq_record;
    uint32_t sq_log, rq_log, rq_log_stride;
    uint32_t sq_producer, rq_producer;
    bool event_index;
    /* Producer index for which software last decided on a doorbell */
    uint32_t sq_decided;
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
    uint8_t options;            /* Default options of both queue pairs */
    bool only_a, only_b;
    SimQp *carrier_a, *carrier_b;       /* Of members; otherwise NULL */
} SimConnect;

typedef struct SimOptions {
    unsigned nodes;             /* 0: 2; wires are between 0 and 1, 2 and 3 */
    bool ipv6, vlan, loopback;
    bool atomic_hca;            /* Without CAP_ATOMIC_GLOB */
    uint32_t max_rd_atomic;     /* Limit of the device; 0: 16 */
    uint32_t doorbell_fifo;     /* 0: 128 */
    uint32_t doorbell_hold;     /* ns */
    uint64_t memory;            /* Bytes; 0: 32 MiB */
    /* 0: a small number */
    uint32_t max_qp, max_cq, max_srq, max_mkey, max_flow;
    uint32_t vectors, db_pages; /* 0: 4, 8 */
    uint64_t device_memory;     /* Bytes; 0: 16 pages */
    uint32_t translation_cache; /* Entries; 0: 64 */
    bool no_translation_cache;
    /*
     * Context cache of both nodes, or of node 0 only. Entries 0: no cache;
     * bare: no context memory.
     */
    uint32_t context_cache, context_stations, context_latency;
    bool contexts_of_one, context_bare;
    bool link_retransmission;
    uint64_t capabilities;      /* 0: the default of the unit tests */
    bool may_fail;              /* No node's fatal error fails the test */
} SimOptions;

Sim *sim_new(uint32_t seed, const SimOptions *options);
void sim_free(Sim *s);
/* Resets the device of a node. All its objects are gone. */
void sim_reset(SimNode *n);
/*
 * Runs until all work is done, or until this time. Returns false if the time
 * ran out.
 */
bool sim_run(Sim *s, int64_t until);
/* Parses a frame of a tap, without the headers below the transport (p->h). */
QrnicParse sim_parse(QrnicPacket *p, const uint8_t *frame, size_t len);
/* Blocks the node's wire until that time. */
void sim_block(SimNode *n, int64_t until);
/*
 * Returns the memory accesses and keys entered by the device so far. One call
 * into the engine may do at most SIM_TURN_WORK of them, because the main loop
 * of QEMU waits for the call. sim_run() checks every call.
 */
#define SIM_TURN_WORK 32768
uint64_t sim_work(const SimNode *n);
/*
 * Removes the next frame from the wire, or returns NULL. The caller frees it.
 */
SimFrame *sim_wire_take(Sim *s);
/* Delivers a frame to a node, as if a peer had sent it. */
void sim_inject(Sim *s, unsigned to, const uint8_t *frame, size_t len);

uint64_t sim_alloc(SimNode *n, uint64_t size);
uint64_t sim_counter(SimNode *n, enum qrnic_counter c);
uint32_t sim_mkey(SimNode *n, uint64_t addr, uint64_t length, uint8_t access);
uint32_t sim_mkey_ctx(SimNode *n, const QrnicMkeyCtx *ctx);

SimQp *sim_qp_new(SimNode *n, unsigned sq_log, unsigned rq_log,
                  unsigned rq_log_stride, unsigned cq_log);
/* Creates a queue pair that receives from an SRQ. */
SimQp *sim_qp_new_srq(SimNode *n, unsigned sq_log, SimSrq *srq,
                      unsigned cq_log);
/* Creates a UC queue pair. srq: or NULL. */
SimQp *sim_uc_new(SimNode *n, SimSrq *srq);
/*
 * Creates a queue pair that receives into the CQE, in address space 1. srq: or
 * NULL.
 */
SimQp *sim_inline_new(SimNode *n, uint8_t type, SimSrq *srq,
                      uint8_t max_recv_inline);
/* Creates a UD or GSI queue pair in RTS. srq: or NULL. */
SimQp *sim_datagram_new(SimNode *n, uint8_t type, SimSrq *srq, uint32_t qkey);
/* Creates a dynamic target, or without SRQ an initiator, in RESET. */
SimQp *sim_dynamic_new(SimNode *n, SimSrq *srq, const QrnicDynamicAttr *attr);
/* Moves a dynamic queue pair to RTR or RTS, with the attributes of its type. */
void sim_dynamic_start(SimQp *q, const SimConnect *c);
QrnicDynamicSeg sim_dynamic_to(SimQp *target, uint64_t access_key);
/* Returns the datagram segment that addresses a queue pair. */
QrnicDatagramSeg sim_datagram_to(SimQp *to, uint32_t qkey);
void sim_uc_connect(SimQp *a, SimQp *b);
/*
 * Creates, connects and frees carriers of shared connections. The carrier has
 * the attributes of *c that members do not have.
 */
SimQp *sim_carrier_new(SimNode *n);
void sim_carrier_connect(SimQp *a, SimQp *b, const SimConnect *c);
/*
 * Moves the carrier q to RTR or RTS, as sim_carrier_connect(a, b, c) does. If
 * first is true, q is a. Otherwise q is b.
 */
void sim_carrier_to_rtr(SimQp *q, SimQp *peer, const SimConnect *c, bool first);
void sim_carrier_to_rts(SimQp *q, const SimConnect *c, bool first);
void sim_carrier_free(SimQp *q);
void sim_qp_free(SimQp *q);
SimSrq *sim_srq_new(SimNode *n, unsigned log_size, unsigned log_stride);
void sim_srq_free(SimSrq *s);
/* Returns the slot. */
uint32_t sim_post_srq(SimSrq *s, const SimSge *sge, unsigned num_sge);
/* Frees a completed slot. */
void sim_srq_slot_free(SimSrq *s, uint32_t slot);
QrnicResult sim_modify(SimQp *q, const QrnicQpAttr *attr);
/* Returns the attributes that sim_connect() uses in each step. */
QrnicQpAttr sim_attr_init(void);
QrnicQpAttr sim_attr_rtr(SimQp *q, SimQp *peer);
QrnicQpAttr sim_attr_rts(void);
/* Returns the attributes without those that carriers do not have. */
QrnicQpAttr sim_attr_of_carrier(QrnicQpAttr a);
SimConnect sim_connect_default(void);
void sim_connect(SimQp *a, SimQp *b, const SimConnect *c);
QrnicQpAttr sim_query(SimQp *q);

/* Rings the doorbell, with an event index only if necessary. */
void sim_post_send(SimQp *q, const SimWr *wr);
/* Returns true if the event index requires a doorbell for the posted WQEs. */
bool sim_sq_decide(SimQp *q);
void sim_post_send_quiet(SimQp *q, const SimWr *wr);    /* Without a doorbell */
void sim_ring_sq(SimQp *q);
/* Rings a doorbell (QRNIC_DB_*) through any page. */
void sim_ring(SimNode *n, uint32_t page, unsigned offset, uint32_t number,
              uint32_t index);
void sim_post_recv(SimQp *q, const SimSge *sge, unsigned num_sge);
void sim_post_recv_quiet(SimQp *q, const SimSge *sge, unsigned num_sge);
void sim_ring_rq(SimQp *q);
bool sim_poll(SimQp *q, QrnicCqe *out);
/* Returns the last polled CQE as a CQE with inline data. */
QrnicCqeInline sim_polled_inline(SimQp *q);
/* Requests an event at the next CQE; returns the number of CQ events so far. */
void sim_cq_arm(SimQp *q);
unsigned sim_cq_events(SimNode *n);
bool sim_poll_event(SimNode *n, QrnicEqe *out);

/* Returns the headers of packets from peer to q. */
QrnicPathSpec sim_path_to(SimQp *q, SimQp *peer);

#endif
