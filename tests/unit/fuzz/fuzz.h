/*
 * A fuzzer of the engine without QEMU: two engines on a simulated wire (sim.h)
 *
 * main.c is the libFuzzer target. An input is a header and a sequence of
 * records. From the header world.c builds two devices with connected queue
 * pairs of every type. A record of FUZZ_RECORD bytes is an operation and its
 * parameters. Each operation of the tables in work.c, control.c and frames.c
 * is valid by default; some of its parameters select members to break. An
 * input of random bytes therefore reaches connected queue pairs, and every
 * mutation of a record leaves the records behind it in place.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_FUZZ_H
#define QRNIC_FUZZ_H

#include "qemu/osdep.h"
#include "sim.h"

#define FUZZ_HEADER 32
#define FUZZ_RECORD 24
#define FUZZ_DATA (256u << 10)  /* Bytes of the memory for messages */
#define FUZZ_PAGE 4096u
#define FUZZ_PAGES 16u          /* Pages of a region with a table */
#define FUZZ_PROCESSES 2u       /* Processes with a PASID */
#define FUZZ_ADDRESS 0x550000000000ull  /* Virtual address of their pages */
#define FUZZ_LOG_SRQ 6
#define FUZZ_KEPT 64u           /* Frames that can be repeated */
#define FUZZ_FRAME_MAX 9600u
#define FUZZ_ACCESS_KEY 0x1122334455667788ull

/* Parameters of an operation. Bytes behind the end are 0. */
typedef struct Bytes {
    const uint8_t *at, *end;
} Bytes;

static inline uint8_t take8(Bytes *b)
{
    return b->at < b->end ? *b->at++ : 0;
}

static inline uint16_t take16(Bytes *b)
{
    uint8_t low = take8(b);

    return low | take8(b) << 8;
}

static inline uint32_t take32(Bytes *b)
{
    uint32_t low = take16(b);

    return low | (uint32_t)take16(b) << 16;
}

/* Source of a queue pair's receive WQEs */
typedef enum Receives {
    RECEIVES_NOT, RECEIVES_RQ, RECEIVES_SRQ, RECEIVES_TAGS, RECEIVES_STREAM,
    RECEIVES_INLINE,
} Receives;

/* A queue pair at each of the two nodes, connected with each other */
typedef struct FuzzKind {
    const char *name;
    uint8_t type[2];
    Receives receives;
    uint8_t flags;              /* Flags of qp_ctx */
    bool member;                /* Member of the carrier queue pair */
    bool kernel;                /* Uses doorbell page 0 */
} FuzzKind;

extern const FuzzKind fuzz_kinds[];
extern const unsigned fuzz_num_kinds;

typedef enum FuzzKey {
    KEY_ALL, KEY_DMA, KEY_TABLE, KEY_ON_DEMAND, KEY_READ_ONLY, KEY_FAST_REG,
    KEY_PROCESS_FAST,
    KEY_WINDOW_1, KEY_WINDOW_2, KEY_NULL, KEY_INDIRECT, KEY_INDIRECT_2,
    KEY_DEVICE, KEY_OTHER_PD, KEY_PROCESS, KEY_PROCESS_2, KEY_PROCESS_ODD,
    FUZZ_KEYS,
} FuzzKey;

typedef enum FuzzSrq {
    SRQ_PLAIN, SRQ_TAGS, SRQ_XRC, SRQ_STREAM, FUZZ_SRQS,
} FuzzSrq;

typedef struct FuzzWorld FuzzWorld;

typedef struct FuzzQp {
    SimQp q;
    const FuzzKind *kind;
    QrnicQpCtx ctx;
    bool exists;
    uint32_t psn;               /* PSN of the last frame to it */
} FuzzQp;

typedef enum FuzzPageState {
    FUZZ_PAGE_ABSENT, FUZZ_PAGE_READABLE, FUZZ_PAGE_WRITABLE,
    FUZZ_PAGE_FAILED,           /* The IOMMU rejects requests */
    FUZZ_PAGE_INVALID,          /* The IOMMU returns an invalid page size */
    FUZZ_PAGE_STATES,
} FuzzPageState;

/* Page table of a process: FUZZ_PAGES pages from FUZZ_ADDRESS */
typedef struct FuzzProcess {
    bool large;                 /* One large page if all have one state */
    struct {
        FuzzPageState state;
        uint32_t invalidated;   /* Time of the last invalidation */
    } page[FUZZ_PAGES];
} FuzzProcess;

/* Change of pages, with an invalidation (processes.c) */
typedef struct FuzzChange {
    uint8_t process, scope, first, count;
    uint8_t state;              /* FuzzPageState; from FUZZ_PAGE_STATES: same */
    uint8_t again;              /* Operations until the change is repeated */
} FuzzChange;

typedef struct FuzzNode {
    FuzzWorld *world;
    SimNode *n;
    uint32_t xrcd, other_pd, page, dm, counter_set, page_fault_eq, flow, rss;
    uint64_t data;              /* Memory for messages */
    /* Translation tables, and their pages */
    uint64_t table, demand, pages;
    uint64_t list;              /* List of keys for REG_MR */
    uint32_t key[FUZZ_KEYS];
    uint64_t processes;         /* Memory of the processes */
    FuzzProcess process[FUZZ_PROCESSES];
    uint32_t process_time;      /* Number of invalidations */
    FuzzChange change;          /* Executed in this many operations; 0: never */
    unsigned change_in;
    /* Changes the page of this request for a translation; 0: never */
    FuzzChange request_change;
    unsigned request_change_in;
    /* Page requests: limit, group and PASID of the last one, next rejection */
    uint32_t request_limit, request_pasid;
    uint16_t request_group;
    unsigned reject_in;
    /* Number of requests until a response in the operation, and its kind */
    unsigned respond_in;
    QrnicPageResponse response;
    bool races;                 /* WQEs change behind each read */
    SimSrq srq[FUZZ_SRQS];
    uint16_t srq_next[FUZZ_SRQS][1 << FUZZ_LOG_SRQ];
    struct {
        uint64_t ring, record;
        uint32_t producer;
        SimQp cq;
    } tags;
    FuzzQp *qp;                 /* fuzz_num_kinds elements */
} FuzzNode;

struct FuzzWorld {
    Sim *sim;
    SimOptions options;
    SimConnect connect;         /* Attributes of the connections */
    QrnicStreamAttr stream;
    uint8_t recv_inline, dynamic_idle, dynamic_responders, dynamic_flags;
    uint32_t rate_limit;
    uint8_t priority, qp_options;
    bool roce_v1, verified, coalesces;
    bool registers;             /* The doorbell page has a PASID */
    uint8_t large_pages;        /* Bit for each process */
    uint32_t made;              /* A bit for each kind that is set up */
    FuzzNode node[2];
    struct {
        size_t len;
        uint8_t data[FUZZ_FRAME_MAX];
        uint8_t to;
    } kept[FUZZ_KEPT];
    unsigned kept_next, kept_count;
    uint8_t marks;              /* One frame of this many is marked (CE) */
    unsigned marked;
    unsigned cut;               /* Number of frames to lose next */
};

typedef struct FuzzOp {
    const char *name;
    void (*run)(FuzzNode *f, Bytes *b);
    /* Frequency, relative to the shares of the others */
    uint8_t share;
} FuzzOp;

/* The operations of each file; the tables end with a NULL name. */
extern const FuzzOp fuzz_work_ops[], fuzz_control_ops[], fuzz_frame_ops[];
extern const FuzzOp fuzz_process_ops[];

/* The functions that libFuzzer calls (main.c). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                               unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size,
                                 const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_out,
                                 unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* Returns true if each operation is printed (main.c). */
bool fuzz_shows(void);

/*
 * Posts receive WQEs of a new queue pair, and of SRQs and the tag list
 * (work.c).
 */
void fuzz_receives_post(FuzzNode *f, unsigned kind);
void fuzz_shared_post(FuzzNode *f);

/* world.c */
FuzzWorld *fuzz_world_new(Bytes *header);
void fuzz_world_free(FuzzWorld *w);
/* Resets the device of a node and makes its objects again. */
void fuzz_node_reset(FuzzNode *f);
/*
 * Executes a command as command_queue.c does: with the lengths of the contract,
 * not in the fatal state, and device memory is cleared before this returns.
 */
QrnicResult fuzz_command(SimNode *n, uint16_t opcode, uint32_t object,
                         const uint8_t *in, uint8_t *out);
uint32_t fuzz_value(QrnicResult r);
/* Waits until the device memory is cleared that a command or reset left. */
void fuzz_clear(SimNode *n);
/* Returns GID and MAC address of a multicast group. */
void fuzz_group(const FuzzNode *f, uint8_t number, uint8_t gid[16],
                uint8_t mac[6]);
/*
 * Creates a queue pair, and moves it to RTS or to the last state of its type.
 */
void fuzz_qp_create(FuzzNode *f, unsigned kind);
void fuzz_qp_connect(FuzzNode *f, unsigned kind);
/* Returns the attributes of a mask, with valid values for the queue pair. */
QrnicQpAttr fuzz_attr(FuzzNode *f, unsigned kind, uint32_t mask,
                      uint8_t state);
/* Returns the mask of a step, or 0 if the type has no such step. */
uint32_t fuzz_step_mask(const FuzzQp *q, uint8_t state);
/* Returns the queue pair of this kind at the other node; never NULL. */
FuzzQp *fuzz_peer(FuzzNode *f, unsigned kind);
/* Returns an existing queue pair of the node, or NULL. */
FuzzQp *fuzz_qp_any(FuzzNode *f, Bytes *b, unsigned *kind);

/* processes.c: makes the page tables of a node, before its keys. */
void fuzz_processes_make(FuzzNode *f);
/* Removes the functions of processes.c from the environment. */
void fuzz_processes_end(FuzzNode *f);
/* Asserts that each translation in the device's cache is valid. */
void fuzz_processes_check(FuzzNode *f);
/* Returns the context of a key for all pages of a process. */
QrnicMkeyCtx fuzz_process_key(unsigned process, uint8_t access, uint64_t start);
/* Makes the pages of a range present, as after a page fault. */
void fuzz_process_page_in(FuzzNode *f, uint32_t pasid, uint64_t address,
                          uint64_t length, bool writable);

/* Installs the tap that records frames, and may lose or mark them (run.c). */
void fuzz_wire_begin(FuzzWorld *w);
/* Runs the simulation for this time, and consumes completions and events. */
void fuzz_run(FuzzWorld *w, int64_t ns);
void fuzz_consume(FuzzNode *f, bool arm);
/*
 * Resets both devices. A new connection must work then, because a reset leaves
 * no earlier state. Afterwards the world can only be freed.
 */
void fuzz_world_verify(FuzzWorld *w);

/* Changes up to 3 members of a valid structure (control.c). */
void fuzz_break(uint8_t *raw, size_t len, Bytes *b);
/* Returns a small number, a limit, or a random number. */
uint32_t fuzz_number(Bytes *b);

#endif
