/*
 * qrnic qtest: a driver for the device, as small as one can be
 *
 * What a test needs between the bus and an object of verbs. Nothing waits for
 * wall-clock time: conditions are polled, virtual time is stepped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_DRIVER_H
#define QRNIC_QTEST_DRIVER_H

#include "qemu/bswap.h"
#include "qemu/timer.h"
#include "libqtest.h"
#include "libqos/pci.h"
#include "libqos/pci-pc.h"
#include "hw/rdma/qrnic/qrnic_hw.h"
#include "wire-peer.h"

#define VECTORS 8
#define OUR_IP4 "\x0a\x00\x00\x01"
#define PEER_IP4 "\x0a\x00\x00\x02"
#define OUR_MAC "\x52\x54\x00\x12\x34\x56"
#define PEER_MAC "\x02\x00\x00\x00\x00\x02"
#define PEER_QPN 0x123456u
#define SQ_PSN 0x001001u        /* the device's first PSN */
#define RQ_PSN 0xfffffeu        /* the peer's first PSN: wraps early */

/* Long enough for a loaded machine; only a failing test waits for it. */
#define PATIENCE_US (20 * G_USEC_PER_SEC)

/* Conditions are polled; each look is a round trip through the main loop. */
#define WAIT_UNTIL(condition, ...) do { \
        int64_t end_ = g_get_monotonic_time() + PATIENCE_US; \
        while (!(condition)) { \
            if (g_get_monotonic_time() > end_) { \
                g_error(__VA_ARGS__); \
            } \
        } \
    } while (0)

typedef struct Device {
    QTestState *qts;
    QPCIBus *bus;
    QPCIDevice *pci;
    int devfn;
    QPCIBar control, doorbells;
    uint64_t doorbells_size;
    int wire;                   /* the peer's end */
    struct CablePeer *cable;    /* or this one */
    uint64_t free;              /* first unused byte of guest memory */
    uint64_t cmd_ring;
    unsigned cmd_log_size;
    uint32_t cmd_producer;
    uint64_t msi[VECTORS];      /* where each vector's message lands */
} Device;

/* Guest memory, zeroed. */
uint64_t memory_alloc(Device *d, size_t size, size_t align);

/* properties: as behind "-device qrnic,", or "" */
Device *device_start(const char *properties);
/* Without command queue, MSI-X and backend options: for the first steps. */
Device *device_start_bare(const char *properties, bool backend);
/* backend: with a wire of ours; port: behind a port of PCIe */
Device *device_start_on(const char *properties, bool backend, bool port);
void device_stop(Device *d);
void device_enable_commands(Device *d, unsigned log_size);

/* Bus address of configuration space; devfn: with the bus above bit 7 */
uint64_t config_address(Device *d, int devfn, unsigned offset);
/* Of the port of rig_start_behind_port() */
uint64_t slot_control_address(Device *d);
/* Where the message of a vector goes, and what it writes */
void message_set(Device *d, unsigned vector, uint64_t address, uint32_t data);

uint32_t reg_read(Device *d, unsigned offset);
void reg_write(Device *d, unsigned offset, uint32_t value);
void doorbell(Device *d, uint32_t page, unsigned offset, uint32_t number,
              uint32_t index, unsigned wqebbs);

/* Messages that a vector has sent since the last call: 0 or 1. */
bool interrupt_taken(Device *d, unsigned vector);
/* Waits until the vector has sent one, and takes it. */
void interrupt_wait(Device *d, unsigned vector);

/* Hands one command over; where its entry is. */
uint64_t command_begin(Device *d, QrnicCmdEntry entry);
/* Runs one command; the entry as the device wrote it back. */
QrnicCmdEntry command_raw(Device *d, QrnicCmdEntry entry);
QrnicCmdEntry command(Device *d, unsigned opcode, uint32_t object,
                      const void *in, uint32_t in_len, void *out,
                      uint32_t out_len);
/* Asserts success; returns the number of the created object. */
uint32_t command_ok(Device *d, unsigned opcode, uint32_t object,
                    const void *in, uint32_t in_len, void *out,
                    uint32_t out_len);
/* Asserts this status and syndrome. */
void command_fails(Device *d, unsigned opcode, uint32_t object,
                   const void *in, uint32_t in_len, void *out,
                   uint32_t out_len, unsigned status, uint32_t syndrome);
uint64_t counter(Device *d, enum qrnic_counter which);
/* Waits until the counter has this value; fails with its name if it never. */
void counter_wait(Device *d, enum qrnic_counter which, uint64_t value);
/* Lets the device do all that is pending: nothing more comes afterwards. */
void settle(Device *d);

typedef struct Eq {
    uint32_t number, log_size, consumer;
    uint64_t ring;
} Eq;

typedef struct Cq {
    uint32_t number, log_size, consumer, page, sequence;
    uint64_t ring, record;
} Cq;

typedef struct Qp {
    uint32_t number, page;
    unsigned sq_log_size, rq_log_size, rq_log_stride;
    uint64_t sq, rq, sq_record, rq_record;
    uint32_t sq_producer, rq_producer;
    Cq *send_cq, *recv_cq;
} Qp;

void eq_create(Device *d, Eq *eq, unsigned type, unsigned vector,
               unsigned log_size);
void eq_arm(Device *d, Eq *eq);
/* True and taken, if there is one. */
bool eq_poll(Device *d, Eq *eq, QrnicEqe *out);
void eq_wait(Device *d, Eq *eq, QrnicEqe *out);

/* RESUME_PAGE_FAULT or REFUSE_PAGE_FAULT; sequence: data of its event */
void fault_answer(Device *d, unsigned opcode, uint32_t number,
                  uint32_t sequence);

void cq_create(Device *d, Cq *cq, const Eq *eq, uint32_t page,
               unsigned log_size);
void cq_arm(Device *d, Cq *cq, bool solicited);
bool cq_poll(Device *d, Cq *cq, QrnicCqe *out);
void cq_wait(Device *d, Cq *cq, QrnicCqe *out);

typedef struct Mr {
    uint32_t key, index;
    uint64_t start, length;     /* as the user of the key says it */
    uint64_t memory;            /* where it really is: contiguous */
} Mr;

/* Contiguous memory, translation of level 0. */
void mr_create(Device *d, Mr *mr, uint32_t pd, uint64_t start, uint64_t length,
               uint8_t access);

/* An entry with the device's own MAC address; vlan: -1, or the VLAN. */
void gid_set(Device *d, uint32_t index, const uint8_t *gid, int vlan);
/* ::ffff:a.b.c.d */
void gid_of_ip4(uint8_t *gid, const void *ip4);

/* Level-0 translation of contiguous memory. */
QrnicTranslation contiguous(uint64_t address);

void qp_create(Device *d, Qp *qp, unsigned type, uint32_t pd, uint32_t page,
               Cq *send_cq, Cq *recv_cq, unsigned sq_log_size,
               unsigned rq_log_size, unsigned rq_log_stride);
/* flags: qp_flags */
void qp_create_flags(Device *d, Qp *qp, unsigned type, uint32_t pd,
                     uint32_t page, Cq *send_cq, Cq *recv_cq,
                     unsigned sq_log_size, unsigned rq_log_size,
                     unsigned rq_log_stride, uint8_t flags);
/* Without an RQ */
void qp_create_srq(Device *d, Qp *qp, unsigned type, uint32_t pd,
                   uint32_t page, Cq *send_cq, Cq *recv_cq,
                   unsigned sq_log_size, uint32_t srqn);
void qp_modify(Device *d, const Qp *qp, const QrnicQpAttr *attr);
void qp_query(Device *d, const Qp *qp, QrnicQpAttr *attr);
/* From RESET as a connection to the peer; attr: what differs, or NULL. */
void qp_to_rtr(Device *d, Qp *qp, const QrnicQpAttr *attr);
void qp_connect(Device *d, Qp *qp, const QrnicQpAttr *attr);
/* The same of UC, which has fewer attributes */
void qp_connect_unreliable(Device *d, const Qp *qp, const QrnicQpAttr *attr);
/* RESET to RTS, for UD and GSI */
void qp_start_datagram(Device *d, const Qp *qp, uint32_t qkey);
/* The attributes qp_connect uses. */
QrnicQpAttr qp_default_attr(void);

/* A send WQE under construction. */
typedef struct Wqe {
    uint8_t bytes[QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE];
    unsigned segments;
    QrnicSqCtrl ctrl;
} Wqe;

Wqe wqe_begin(unsigned opcode, unsigned flags);
void wqe_remote(Wqe *w, uint64_t address, uint32_t rkey);
void wqe_xrc(Wqe *w, uint32_t srqn);
void wqe_atomic(Wqe *w, uint64_t swap_add, uint64_t compare);
void wqe_flush(Wqe *w, const QrnicFlushSeg *flush);
void wqe_eth(Wqe *w, const QrnicEthSeg *eth);
void wqe_datagram(Wqe *w, const QrnicDatagramSeg *datagram);
void wqe_dynamic(Wqe *w, const QrnicDynamicSeg *dynamic);
void wqe_bind(Wqe *w, const QrnicBindSeg *bind);
void wqe_reg(Wqe *w, const QrnicRegSeg *reg);
void wqe_data(Wqe *w, uint64_t address, uint32_t length, uint32_t lkey);
void wqe_inline(Wqe *w, const void *data, uint32_t length);
unsigned wqe_wqebbs(const Wqe *w);
/* Writes it into the ring; nothing else. */
void sq_write(Device *d, Qp *qp, Wqe *w);
/* Writes the software doorbell. */
void sq_publish(Device *d, const Qp *qp);
void sq_ring(Device *d, const Qp *qp);
/* All three. */
void sq_post(Device *d, Qp *qp, Wqe *w);
/* Ring, record, window and direct doorbell. */
void sq_post_direct(Device *d, Qp *qp, Wqe *w);
/* One receive WQE of data segments; count 0 is allowed. */
void rq_write(Device *d, Qp *qp, const QrnicDataSeg *sge, unsigned count);
void rq_post(Device *d, Qp *qp, const QrnicDataSeg *sge, unsigned count);

/* Raw frames, and packets of the peer with the addresses of qp_connect. */
void wire_send(Device *d, const uint8_t *frame, size_t len);
/* Length of the next frame from the device; waits for it. */
size_t wire_receive(Device *d, uint8_t *frame);
bool wire_pending(Device *d);
/* Stopped, the device does nothing, but takes doorbells. */
void vm_stop(Device *d);
void vm_continue(Device *d);
/* Bytes of the shortest frame that the wire carries */
size_t wire_shortest(const Device *d);
/* The backend's link, at the device's end */
void wire_cut(Device *d, bool cut);
/* With the object "cable": its other end is there. */
bool cable_link(Device *d);
/* Asserts that the device has sent nothing. */
void wire_silent(Device *d);
PeerPacket peer_packet(const Qp *qp, uint8_t opcode, uint32_t psn);
void peer_send(Device *d, const PeerPacket *p);
/* Next packet of the device, with this opcode and PSN; payload is static. */
PeerPacket peer_expect(Device *d, uint8_t opcode, uint32_t psn);
/* The same of a queue pair with options, whose packets have this mark */
PeerPacket peer_expect_marked(Device *d, uint8_t opcode, uint32_t psn,
                              uint8_t mark);
/* Asserts that the device's next frame is this packet, in each byte. */
void peer_expect_frame(Device *d, const PeerPacket *p);
void peer_ack(Device *d, const Qp *qp, uint32_t psn, uint8_t syndrome,
              uint32_t msn);

/* rig.c: everything of an ordinary test, one RC QP connected to the peer. */
typedef struct Rig {
    Device *d;
    Eq async, eq;
    uint32_t pd, page;
    Cq send_cq, recv_cq;
    Mr mr;                      /* 64 KiB, all rights, start 0x10000000 */
    Qp qp;
} Rig;

#define RIG_MR_START 0x10000000ull
#define RIG_MR_LENGTH 0x10000ull
#define ALL_RIGHTS (QRNIC_ACCESS_LOCAL_WRITE | QRNIC_ACCESS_REMOTE_WRITE | \
                    QRNIC_ACCESS_REMOTE_READ | QRNIC_ACCESS_REMOTE_ATOMIC)

/* properties with "netdev=" or "cable=": on a wire of the test's own */
void rig_start(Rig *r, const char *properties, const QrnicQpAttr *attr);
/* Behind a port, from which it can be unplugged; the device's id is qrnic. */
void rig_start_behind_port(Rig *r, const char *properties);
/* Its objects once more, after a reset; the device takes commands. */
void rig_start_again(Rig *r);
void rig_stop(Rig *r);
/* Fills memory of the MR with a pattern and returns a copy; or reads it. */
void rig_fill(Rig *r, uint64_t offset, uint8_t *copy, size_t length,
              uint32_t seed);
void rig_read(Rig *r, uint64_t offset, uint8_t *out, size_t length);
/*
 * The other end writes a packet of the path MTU with this byte all over to the
 * MR: the message, which it is as a whole, and the marks of the packet
 */
#define RIG_PACKET 1024u
void rig_write_from_peer(Rig *r, uint32_t psn, uint64_t offset, uint8_t byte,
                         uint8_t mark, bool ack_request);
/* So many bytes of the MR are this one. */
void rig_expect_byte(Rig *r, uint64_t offset, uint8_t byte);
/* Makes a key of the rig's PD, and returns it. */
uint32_t rig_key_create(const Rig *r, QrnicMkeyCtx ctx);
/* Waits for the next CQE of the send CQ. opcode: only of a success */
void rig_sent(Rig *r, unsigned status, unsigned opcode, unsigned syndrome);

/* Registration of the tests by topic. */
void add_register_tests(void);
void add_command_tests(void);
void add_queue_tests(void);
void add_doorbell_event_tests(void);
void add_requester_tests(void);
void add_responder_tests(void);
void add_memory_tests(void);
void add_ethernet_tests(void);
void add_segment_tests(void);
void add_coalesce_tests(void);
void add_flow_tests(void);
void add_datagram_tests(void);
void add_multicast_tests(void);
void add_srq_tests(void);
void add_unreliable_tests(void);
void add_key_tests(void);
void add_device_memory_tests(void);
void add_on_demand_tests(void);
void add_indirect_tests(void);
void add_streaming_tests(void);
void add_tag_tests(void);
void add_tag_error_tests(void);
void add_context_tests(void);
void add_priority_tests(void);
void add_selective_tests(void);
void add_adaptive_tests(void);
void add_congestion_tests(void);
void add_flush_tests(void);
void add_completion_tests(void);
void add_property_tests(void);
void add_reentry_tests(void);
void add_power_tests(void);
void add_xrc_tests(void);
void add_dynamic_tests(void);
void add_flags_tests(void);
void add_rss_tests(void);
void add_counter_set_tests(void);
void add_roce_v1_tests(void);
void add_cable_tests(void);
void add_cable_attack_tests(void);
void add_link_tests(void);
void add_crafted_ahead_tests(void);
void add_crafted_replay_tests(void);
void add_crafted_sack_tests(void);
void add_crafted_cnp_tests(void);
void add_crafted_shared_tests(void);
void add_crafted_carrier_tests(void);
void add_crafted_learn_tests(void);
void add_crafted_link_tests(void);

#endif
