/*
 * qrnic qtest: a driver for the device, as small as a driver can be
 *
 * Owns the path from the bus to the objects of verbs: registers, commands,
 * queues, keys, queue pairs and the peer's frames. A test starts a device (or a
 * whole rig: rig_start()), creates objects, posts work and compares frames and
 * completions. No function waits for wall-clock time: conditions are polled and
 * virtual time is stepped, so that the load of the machine cannot change a
 * result.
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
#define SQ_PSN 0x001001u        /* The device's first PSN */
#define RQ_PSN 0xfffffeu        /* The peer's first PSN: wraps early */

/*
 * The time limit of all waits. The limit is long because a loaded machine is
 * slow; only a failing test uses all of it.
 */
#define PATIENCE_US (20 * G_USEC_PER_SEC)

/* Polls a condition. Each poll is a round trip through QEMU's main loop. */
#define WAIT_UNTIL(condition, ...) do { \
        int64_t end_ = g_get_monotonic_time() + PATIENCE_US; \
        while (!(condition)) { \
            if (g_get_monotonic_time() > end_) { \
                g_error(__VA_ARGS__); \
            } \
        } \
    } while (0)

typedef struct Device {
    QTestState *qts;            /* The machine, which runs the driver */
    QTestState *home;           /* The QEMU that contains the device */
    /* Folder of the process's socket; NULL inside QEMU */
    char *folder;
    QPCIBus *bus;
    QPCIDevice *pci;
    int devfn;
    QPCIBar control, doorbells;
    uint64_t doorbells_size;
    int wire;                   /* The peer's socket */
    struct CablePeer *cable;    /* The peer, on a cable */
    uint64_t free;              /* The first unused byte of guest memory */
    uint64_t cmd_ring;
    unsigned cmd_log_size;
    uint32_t cmd_producer;
    uint64_t msi[VECTORS];      /* Address of each vector's message */
} Device;

/* Allocates guest memory and fills it with zeros. */
uint64_t memory_alloc(Device *d, size_t size, size_t align);

/* Starts a device. properties: the text behind "-device qrnic,", or "". */
Device *device_start(const char *properties);
/* Starts a device without command queue, MSI-X and backend options. */
Device *device_start_bare(const char *properties, bool backend);
/*
 * Starts a device. backend: the wire leads to the test; port: the device is
 * behind a PCIe port.
 */
Device *device_start_on(const char *properties, bool backend, bool port);
void device_stop(Device *d);
/* Asserts that QEMU rejects these properties by one line with the text. */
void device_refused(const char *properties, const char *text);
/*
 * Returns true if the device runs in a process of its own
 * (QRNIC_TEST_DEVICE_QEMU names its QEMU), so that d->qts has no qrnic.
 */
bool in_process(void);
/* Returns the program that contains the device. */
const char *device_qemu(void);
/*
 * Options of the machine before the device, such as an IOMMU; or NULL. Not with
 * a device in a process.
 */
extern const char *machine_options;
/*
 * Starts a machine with the device, in one QEMU or in two. Sets d->qts and
 * d->home.
 *
 * @wire: options of the device's wire
 * @wire_fd: a socket that these options name, or -1. The test closes it.
 * @port: the device is behind a PCIe port
 * @properties: properties of the device, each behind a comma
 */
void machine_start(Device *d, const char *wire, int wire_fd, bool port,
                   const char *properties);
void machine_stop(Device *d);
/* Skips the test and returns true if the device runs in a process. */
bool skip_in_process(const char *reason);
/* Advances the device's virtual time, after all writes of the driver. */
void clock_step(Device *d, int64_t ns);
void device_enable_commands(Device *d, unsigned log_size);

/*
 * Returns the bus address of configuration space. devfn: bits 8 and above are
 * the bus.
 */
uint64_t config_address(Device *d, int devfn, unsigned offset);
/*
 * Returns the address of Slot Control of the port of rig_start_behind_port().
 */
uint64_t slot_control_address(Device *d);
/* Sets address and data of the message of a vector. */
void message_set(Device *d, unsigned vector, uint64_t address, uint32_t data);

uint32_t reg_read(Device *d, unsigned offset);
void reg_write(Device *d, unsigned offset, uint32_t value);
void doorbell(Device *d, uint32_t page, unsigned offset, uint32_t number,
              uint32_t index, unsigned wqebbs);

/* Returns true if the vector has sent a message since the last call. */
bool interrupt_taken(Device *d, unsigned vector);
/* Waits until the vector has sent a message, and clears it. */
void interrupt_wait(Device *d, unsigned vector);

/* Hands one command over. Returns the address of its entry. */
uint64_t command_begin(Device *d, QrnicCmdEntry entry);
/* Runs one command. Returns its entry as the device wrote it back. */
QrnicCmdEntry command_raw(Device *d, QrnicCmdEntry entry);
QrnicCmdEntry command(Device *d, unsigned opcode, uint32_t object,
                      const void *in, uint32_t in_len, void *out,
                      uint32_t out_len);
/*
 * Runs a command and asserts success. Returns the number of the created object.
 */
uint32_t command_ok(Device *d, unsigned opcode, uint32_t object,
                    const void *in, uint32_t in_len, void *out,
                    uint32_t out_len);
/* Runs a command and asserts this status and syndrome. */
void command_fails(Device *d, unsigned opcode, uint32_t object,
                   const void *in, uint32_t in_len, void *out,
                   uint32_t out_len, unsigned status, uint32_t syndrome);
uint64_t counter(Device *d, enum qrnic_counter which);
/* Waits until the counter has this value; fails with the counter's name. */
void counter_wait(Device *d, enum qrnic_counter which, uint64_t value);
/*
 * Waits until the device has finished all pending work, so that silence after
 * it is meaningful.
 */
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
/* Returns true and the next EQE if there is an EQE. */
bool eq_poll(Device *d, Eq *eq, QrnicEqe *out);
void eq_wait(Device *d, Eq *eq, QrnicEqe *out);

/* Runs RESUME_PAGE_FAULT or REFUSE_PAGE_FAULT. sequence: data of the event. */
void fault_answer(Device *d, unsigned opcode, uint32_t number,
                  uint32_t sequence);

void cq_create(Device *d, Cq *cq, const Eq *eq, uint32_t page,
               unsigned log_size);
void cq_arm(Device *d, Cq *cq, bool solicited);
bool cq_poll(Device *d, Cq *cq, QrnicCqe *out);
void cq_wait(Device *d, Cq *cq, QrnicCqe *out);

typedef struct Mr {
    uint32_t key, index;
    /* Address range as the users of the key see it */
    uint64_t start, length;
    uint64_t memory;            /* Address in guest memory; contiguous */
} Mr;

/* Creates a region of contiguous memory with a translation of level 0. */
void mr_create(Device *d, Mr *mr, uint32_t pd, uint64_t start, uint64_t length,
               uint8_t access);

/* Writes a GID entry with the device's MAC address. vlan: -1 for none. */
void gid_set(Device *d, uint32_t index, const uint8_t *gid, int vlan);
/* Makes the GID ::ffff:a.b.c.d. */
void gid_of_ip4(uint8_t *gid, const void *ip4);

/* Returns the level-0 translation of contiguous memory. */
QrnicTranslation contiguous(uint64_t address);

void qp_create(Device *d, Qp *qp, unsigned type, uint32_t pd, uint32_t page,
               Cq *send_cq, Cq *recv_cq, unsigned sq_log_size,
               unsigned rq_log_size, unsigned rq_log_stride);
/* Creates a queue pair with these qp_flags. */
void qp_create_flags(Device *d, Qp *qp, unsigned type, uint32_t pd,
                     uint32_t page, Cq *send_cq, Cq *recv_cq,
                     unsigned sq_log_size, unsigned rq_log_size,
                     unsigned rq_log_stride, uint8_t flags);
/* Creates a queue pair that receives from an SRQ instead of an RQ. */
void qp_create_srq(Device *d, Qp *qp, unsigned type, uint32_t pd,
                   uint32_t page, Cq *send_cq, Cq *recv_cq,
                   unsigned sq_log_size, uint32_t srqn);
void qp_modify(Device *d, const Qp *qp, const QrnicQpAttr *attr);
void qp_query(Device *d, const Qp *qp, QrnicQpAttr *attr);
/*
 * Moves a queue pair from RESET to RTR, connected to the peer. attr: replaces
 * the attributes of qp_default_attr(), or NULL.
 */
void qp_to_rtr(Device *d, Qp *qp, const QrnicQpAttr *attr);
void qp_connect(Device *d, Qp *qp, const QrnicQpAttr *attr);
/* Connects a UC queue pair, which has fewer attributes. */
void qp_connect_unreliable(Device *d, const Qp *qp, const QrnicQpAttr *attr);
/* Moves a UD or GSI queue pair from RESET to RTS. */
void qp_start_datagram(Device *d, const Qp *qp, uint32_t qkey);
/* Returns the attributes that qp_connect() uses. */
QrnicQpAttr qp_default_attr(void);

/* A send WQE under construction */
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
/* Writes the WQE into the ring without a doorbell. */
void sq_write(Device *d, Qp *qp, Wqe *w);
/* Writes the doorbell record. */
void sq_publish(Device *d, const Qp *qp);
void sq_ring(Device *d, const Qp *qp);
/* Writes the WQE into the ring, writes the doorbell record, rings. */
void sq_post(Device *d, Qp *qp, Wqe *w);
/* Posts a direct WQE: ring, doorbell record, window and direct doorbell. */
void sq_post_direct(Device *d, Qp *qp, Wqe *w);
/* Writes one receive WQE. count: number of data segments, 0 is allowed. */
void rq_write(Device *d, Qp *qp, const QrnicDataSeg *sge, unsigned count);
void rq_post(Device *d, Qp *qp, const QrnicDataSeg *sge, unsigned count);

/* Sends a raw frame to the device. */
void wire_send(Device *d, const uint8_t *frame, size_t len);
/* Waits for the next frame of the device. Returns its length. */
size_t wire_receive(Device *d, uint8_t *frame);
bool wire_pending(Device *d);
/* Stops the VM. A stopped device accepts doorbells and does no work. */
void vm_stop(Device *d);
void vm_continue(Device *d);
/* Selects the events at which the device stops (property stop-at). */
void stop_at(Device *d, const char *kinds);
/* Returns the event at which the device is stopped; empty if it runs. */
QDict *stop_event(Device *d);
/* Waits until the device stops, and asserts the kind of the event. */
QDict *stop_wait(Device *d, const char *kind);
void stop_continue(Device *d);
/* Waits until the device is not stopped. */
void stop_none(Device *d);
/* Returns the length of the shortest frame that the wire carries. */
size_t wire_shortest(const Device *d);
/* Sets the link state of the backend on the device's side. */
void wire_cut(Device *d, bool cut);
/* Returns true if the device is on a cable with a peer. */
bool cable_link(Device *d);
/* Asserts that the device has sent no frame. */
void wire_silent(Device *d);
PeerPacket peer_packet(const Qp *qp, uint8_t opcode, uint32_t psn);
void peer_send(Device *d, const PeerPacket *p);
/*
 * Returns the next packet of the device and asserts its opcode and PSN. The
 * payload is valid until the next call.
 */
PeerPacket peer_expect(Device *d, uint8_t opcode, uint32_t psn);
/* Acts as peer_expect(), for a queue pair with options. mark: of the packet. */
PeerPacket peer_expect_marked(Device *d, uint8_t opcode, uint32_t psn,
                              uint8_t mark);
/* Asserts that each byte of the device's next frame is as in this packet. */
void peer_expect_frame(Device *d, const PeerPacket *p);
void peer_ack(Device *d, const Qp *qp, uint32_t psn, uint8_t syndrome,
              uint32_t msn);

/* The state of an ordinary test: one RC queue pair, connected to the peer */
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

/*
 * Starts a rig. properties: with "netdev=" or "cable=" the test owns the wire.
 */
void rig_start(Rig *r, const char *properties, const QrnicQpAttr *attr);
/*
 * Starts a rig behind a port, so that the device can be unplugged. The device's
 * id is "qrnic".
 */
void rig_start_behind_port(Rig *r, const char *properties);
/* Creates the objects of the rig again after a reset. */
void rig_start_again(Rig *r);
void rig_stop(Rig *r);
/* Fills memory of the region with a pattern, and returns a copy. */
void rig_fill(Rig *r, uint64_t offset, uint8_t *copy, size_t length,
              uint32_t seed);
void rig_read(Rig *r, uint64_t offset, uint8_t *out, size_t length);
/*
 * Sends a write of one packet from the peer to the region. All RIG_PACKET
 * bytes, which is the path MTU, are `byte`. mark: marks of the BTH.
 */
#define RIG_PACKET 1024u
void rig_write_from_peer(Rig *r, uint32_t psn, uint64_t offset, uint8_t byte,
                         uint8_t mark, bool ack_request);
/* Asserts that RIG_PACKET bytes of the region are `byte`. */
void rig_expect_byte(Rig *r, uint64_t offset, uint8_t byte);
/* Creates a key in the rig's PD. Returns the key. */
uint32_t rig_key_create(const Rig *r, QrnicMkeyCtx ctx);
/* Posts an RDMA write of data of the device's side to memory of the peer. */
void rig_post_write(Rig *r, uint32_t key, uint64_t address, uint32_t length);
/*
 * Asserts that the next packet of the device is a whole RDMA write. All bytes
 * of its payload are `byte`.
 */
void rig_expect_write(Rig *r, uint32_t psn, uint8_t byte, size_t length);
/* Waits for the next CQE of the send CQ. opcode: compared only on success. */
void rig_sent(Rig *r, unsigned status, unsigned opcode, unsigned syndrome);

/* Registers the tests of one topic. */
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
void add_shared_virtual_tests(void);
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
void add_sriov_tests(void);
void add_xrc_tests(void);
void add_dynamic_tests(void);
void add_flags_tests(void);
void add_rss_tests(void);
void add_counter_set_tests(void);
void add_roce_v1_tests(void);
void add_capture_tests(void);
void add_stop_tests(void);
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
