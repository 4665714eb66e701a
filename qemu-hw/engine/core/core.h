/*
 * qrnic engine, layer core: tables of objects, buffers, counters, timers,
 * events, the fatal state, and the work budget
 *
 * Every other layer of the engine uses this one, and it uses none of them. A
 * layer is a QrnicFloor. sched/engine.c calls init of all layers when an engine
 * is created, and process and pending in each run. Later it calls reset when
 * the device is reset, and cleanup when the engine is freed. QrnicEngine has
 * one pointer per layer (memory, queue, ...). Only the header of that layer
 * defines the structure behind the pointer.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_CORE_H
#define QRNIC_ENGINE_CORE_H

#include "qemu/queue.h"
#include "engine/engine.h"

/* Results of commands: success with a value, and failure */
static inline QrnicResult qrnic_ok(uint32_t value)
{
    return (QrnicResult) { QRNIC_ST_OK, value, 0 };
}

static inline QrnicResult qrnic_refuse(enum qrnic_cmd_status status,
                                       uint32_t syndrome)
{
    return (QrnicResult) { status, 0, syndrome };
}

/* Syndrome of BAD_OBJECT if the object of the command itself does not exist */
#define QRNIC_OBJECT_OF_ENTRY UINT32_MAX

/*
 * Table of objects; an object's number is its index. A command creates each
 * object. Code finds the object by number again in each run, because a command
 * may destroy the object between two runs.
 */
typedef struct QrnicTable {
    /*
     * slot has a pointer for each number, or NULL. Numbers below first are
     * reserved and are not counted in used. The search for a free number begins
     * at hint.
     */
    void **slot;
    uint32_t limit, used, first, hint;
} QrnicTable;

/**
 * qrnic_table_init:
 * @t: the table to initialize
 * @first: the lowest number that qrnic_table_insert() may return
 * @limit: the size of the table; all numbers are below it
 */
void qrnic_table_init(QrnicTable *t, uint32_t first, uint32_t limit);
/**
 * qrnic_table_cleanup:
 * @t: the table
 *
 * Frees the memory of the table, but not the objects.
 */
void qrnic_table_cleanup(QrnicTable *t);
/**
 * qrnic_table_free_objects:
 * @t: the table
 *
 * Frees the objects with g_free(), and then the memory of the table.
 */
void qrnic_table_free_objects(QrnicTable *t);
/**
 * qrnic_table_insert:
 * @t: the table
 * @object: the object to insert
 * @number: receives the number of the object
 *
 * Chooses the next free number in cyclic order, so that the number of a
 * destroyed object is not reused soon.
 *
 * Returns: true, or false if the table is full
 */
bool qrnic_table_insert(QrnicTable *t, void *object, uint32_t *number);
/**
 * qrnic_table_insert_at:
 * @t: the table
 * @object: the object to insert
 * @number: a free number below the first of qrnic_table_init()
 *
 * Inserts an object that has a number defined by the specification, such as a
 * QP1.
 */
void qrnic_table_insert_at(QrnicTable *t, void *object, uint32_t number);
/**
 * qrnic_table_remove:
 * @t: the table
 * @number: number of the object
 *
 * Returns: the removed object, or NULL if there is none of this number
 */
void *qrnic_table_remove(QrnicTable *t, uint32_t number);
/* Returns the object, or NULL if there is none of this number. */
static inline void *qrnic_table_get(const QrnicTable *t, uint32_t number)
{
    return number < t->limit ? t->slot[number] : NULL;
}

/*
 * Deadline of an object, which contains this structure. qrnic_engine_timer()
 * calls fire once when the deadline has passed.
 */
typedef struct QrnicTimer {
    int64_t deadline;           /* QRNIC_DEADLINE_NEVER: not set */
    uint32_t heap_index;
    void (*fire)(QrnicEngine *e, struct QrnicTimer *t);
} QrnicTimer;

/**
 * qrnic_timer_init:
 * @t: the timer
 * @fire: called when the deadline has passed; the timer is not set then
 */
void qrnic_timer_init(QrnicTimer *t,
                      void (*fire)(QrnicEngine *e, QrnicTimer *t));
/**
 * qrnic_timer_set:
 * @e: the engine
 * @t: the timer
 * @deadline: time of qrnic_now() in ns; QRNIC_DEADLINE_NEVER cancels the timer
 *
 * Sets the deadline, and replaces an earlier setting. All timers of an engine
 * share one timer of the environment.
 */
void qrnic_timer_set(QrnicEngine *e, QrnicTimer *t, int64_t deadline);
/**
 * qrnic_timer_advance:
 * @e: the engine
 * @t: the timer
 * @deadline: time of qrnic_now() in ns
 *
 * Sets the timer, unless its deadline is already earlier.
 */
void qrnic_timer_advance(QrnicEngine *e, QrnicTimer *t, int64_t deadline);
/**
 * qrnic_timer_cancel:
 * @e: the engine
 * @t: the timer; may be unset
 */
void qrnic_timer_cancel(QrnicEngine *e, QrnicTimer *t);
/**
 * qrnic_timers_reset:
 * @e: the engine
 *
 * Cancels all timers of the engine and the timer of the environment.
 */
void qrnic_timers_reset(QrnicEngine *e);

/*
 * Phases of a round of the run loop, in their order. In each phase the layers
 * work from the highest to the lowest.
 */
typedef enum QrnicPhase {
    /* doorbells, tag operations, clearing of device memory */
    QRNIC_PHASE_REQUESTS,
    /*
     * looped back frames, multicast frames for the remaining queue pairs of
     * their group, frames buffered for a context fetch
     */
    QRNIC_PHASE_FRAMES,
    /* failures, page faults, congestion notifications */
    QRNIC_PHASE_REPORTS,
    QRNIC_PHASE_SEND,           /* ready queue pairs */
    QRNIC_PHASES
} QrnicPhase;

/*
 * Operations of a layer, or NULL. All layers are initialized from the lowest to
 * the highest, and reset or cleaned up in the opposite order. The operation
 * reset restores the state after init, except for the state of the backend
 * (link and busy wire).
 */
typedef struct QrnicFloor {
    void (*init)(QrnicEngine *e);
    void (*reset)(QrnicEngine *e);
    void (*cleanup)(QrnicEngine *e);
    /* Returns true if the layer has work for a further round. */
    bool (*pending)(QrnicEngine *e);
    /* Does a limited amount of work; called in each round of a run. */
    void (*process[QRNIC_PHASES])(QrnicEngine *e);
    /* Ends a run; called once after its last round. */
    void (*finish)(QrnicEngine *e);
} QrnicFloor;

extern const QrnicFloor qrnic_core_floor;

#define QRNIC_MAX_COUNTER_SET 1024

/* Counters of the queue pairs and flow rules that are bound to the set */
typedef struct QrnicCounterSet {
    uint32_t number;
    uint32_t users, rules;      /* bound queue pairs; bound flow rules */
    uint64_t counter[QRNIC_NUM_COUNTERS];
} QrnicCounterSet;

/**
 * qrnic_counter_set_get:
 * @e: the engine
 * @number: number of the set
 *
 * Returns: the counter set, or NULL if there is none of this number
 */
QrnicCounterSet *qrnic_counter_set_get(QrnicEngine *e, uint32_t number);

/*
 * Sizes of buffers: multiples of the step up to the maximum. A buffer is memory
 * that an object needs only while work is in flight.
 */
#define QRNIC_BUFFER_STEP 64
#define QRNIC_BUFFER_MAX 4608

typedef struct QrnicBufferClass {
    void *first;                /* list of free buffers */
    uint32_t count;
} QrnicBufferClass;

/**
 * qrnic_buffer_get:
 * @e: the engine
 * @size: 1 to QRNIC_BUFFER_MAX bytes
 *
 * Returns: a buffer whose content is undefined; never NULL
 */
void *qrnic_buffer_get(QrnicEngine *e, size_t size);
/**
 * qrnic_buffer_put:
 * @e: the engine
 * @buffer: the buffer to free, or NULL
 * @size: the size that was passed to qrnic_buffer_get()
 */
void qrnic_buffer_put(QrnicEngine *e, void *buffer, size_t size);
/**
 * qrnic_buffers_cleanup:
 * @e: the engine
 *
 * Frees the buffers that are kept for reuse.
 */
void qrnic_buffers_cleanup(QrnicEngine *e);

struct QrnicEngine {
    QrnicConfig config;
    QrnicEnv env;
    uint64_t counter[QRNIC_NUM_COUNTERS];
    QrnicTable counter_sets;
    QrnicCounterSet *charged;   /* set in which work counts now, or NULL */
    /* sum over all sets that ever existed */
    uint64_t in_sets[QRNIC_NUM_COUNTERS];
    QrnicActivity activity;
    bool fatal;
    bool awake;                 /* a run is requested or in progress */
    /*
     * Writes an event into the asynchronous EQ; set by queue/floor.c, because
     * this layer must not call a higher one.
     */
    void (*event)(QrnicEngine *e, QrnicEqe *eqe);

    QrnicTimer **heap;          /* see timer.c */
    uint32_t heap_count, heap_room;
    int64_t armed_deadline;

    QrnicBufferClass buffers[QRNIC_BUFFER_MAX / QRNIC_BUFFER_STEP];

    uint64_t work;              /* units of work since the engine was created */
    /* the budget of this run is spent at this value of work */
    uint64_t work_limit;

    /* operations of the layers, in the order of a round */
    struct QrnicRounds *rounds;

    /* State of the other layers */
    struct QrnicMemory *memory;
    struct QrnicQueues *queue;
    struct QrnicFabric *fabric;
    struct QrnicQps *qps;
    struct QrnicTransports *transport;
    struct QrnicSched *sched;
};

/*
 * Begins work for a queue pair, or ends it (qpn 0). Only captures use the
 * activity. The engine always writes it, because it knows nothing of captures.
 */
static inline void qrnic_work_for(QrnicEngine *e, uint32_t qpn,
                                  uint8_t qp_type)
{
    e->activity.qpn = qpn;
    e->activity.qp_type = qp_type;
    e->activity.has_wqe = e->activity.has_psn = false;
}

static inline void qrnic_work_wqe(QrnicEngine *e, uint32_t index)
{
    e->activity.wqe = index;
    e->activity.has_wqe = true;
}

static inline void qrnic_work_psn(QrnicEngine *e, uint32_t psn)
{
    e->activity.psn = psn;
    e->activity.has_psn = true;
}

/* Sets the purpose of the next DMA accesses. */
static inline void qrnic_use(QrnicEngine *e, QrnicUse use, uint32_t object,
                             uint32_t index)
{
    e->activity.use = use;
    e->activity.object = object;
    e->activity.index = index;
}

static inline void qrnic_use_end(QrnicEngine *e)
{
    e->activity.use = QRNIC_USE_DATA;
}

/* Adds to a counter of the device and of the charged counter set. */
static inline void qrnic_add(QrnicEngine *e, enum qrnic_counter c, uint64_t n)
{
    e->counter[c] += n;
    if (e->charged) {
        e->charged->counter[c] += n;
        e->in_sets[c] += n;
    }
}

/*
 * Charges the work from now on to a counter set, or to none (NULL). Returns the
 * previous set. The caller charges to that set again at the end of its work,
 * because calls may be nested.
 */
static inline QrnicCounterSet *qrnic_charge_to(QrnicEngine *e,
                                               QrnicCounterSet *set)
{
    QrnicCounterSet *before = e->charged;

    e->charged = set;
    return before;
}

/*
 * Requests a run of the engine. Repeated requests are ignored until the engine
 * runs. The run loop checks for new work before it returns.
 */
static inline void qrnic_wake(QrnicEngine *e)
{
    if (!e->awake) {
        e->awake = true;
        e->env.kick(e->env.opaque);
    }
}

/*
 * Work budget of a run. A packet is one unit of work, but a packet may access
 * many pieces of indirect keys. Each access enters up to MAX_KEY_DEPTH keys, so
 * each entered key is charged as a unit. Any other work of the same size is
 * charged in the same way. A run begins no further packet when its budget is
 * spent, so that it does not block QEMU's main loop.
 */
#define QRNIC_WORK_PER_RUN 8192

/* Begins a new budget, at the begin of a run or of a series of frames. */
static inline void qrnic_budget_renew(QrnicEngine *e)
{
    e->work_limit = e->work + QRNIC_WORK_PER_RUN;
}

/* Returns true if the run must begin no further packet. */
static inline bool qrnic_budget_spent(const QrnicEngine *e)
{
    return e->work >= e->work_limit;
}

/* Charges units of work to the budget of the run. */
static inline void qrnic_budget_charge(QrnicEngine *e, uint32_t units)
{
    e->work += units;
}

/* Returns the virtual time in ns. */
static inline int64_t qrnic_now(QrnicEngine *e)
{
    return e->env.clock_ns(e->env.opaque);
}

#endif
