/*
 * qrnic engine, floor core: tables of objects, counters, timers, the fatal
 * state
 *
 * The ground that every other floor stands on. What a floor keeps for the
 * device is a structure that only its own header shows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_CORE_H
#define QRNIC_ENGINE_CORE_H

#include "qemu/queue.h"
#include "engine/engine.h"

/* What a command returns */
static inline QrnicResult qrnic_ok(uint32_t value)
{
    return (QrnicResult) { QRNIC_ST_OK, value, 0 };
}

static inline QrnicResult qrnic_refuse(enum qrnic_cmd_status status,
                                       uint32_t syndrome)
{
    return (QrnicResult) { status, 0, syndrome };
}

/* Syndrome of BAD_OBJECT when it is the object of the command itself */
#define QRNIC_OBJECT_OF_ENTRY UINT32_MAX

/*
 * storage.c: a number is an index into a table of objects. Every object is made
 * by a command and found by number; a pointer to one is never kept across a
 * call out of the engine.
 */
typedef struct QrnicTable {
    void **slot;
    uint32_t limit, used, first, hint;
} QrnicTable;

void qrnic_table_init(QrnicTable *t, uint32_t first, uint32_t limit);
void qrnic_table_cleanup(QrnicTable *t);
/* The same, with the objects that are in it */
void qrnic_table_free_objects(QrnicTable *t);
/* A free number: round robin, so that numbers are not reused soon. */
bool qrnic_table_insert(QrnicTable *t, void *object, uint32_t *number);
/* At a number below the first, which is free */
void qrnic_table_insert_at(QrnicTable *t, void *object, uint32_t number);
void *qrnic_table_remove(QrnicTable *t, uint32_t number);
static inline void *qrnic_table_get(const QrnicTable *t, uint32_t number)
{
    return number < t->limit ? t->slot[number] : NULL;
}

/* timer.c: what is done at a time; the structure is in that of an object. */
typedef struct QrnicTimer {
    int64_t deadline;           /* QRNIC_DEADLINE_NEVER: none */
    uint32_t heap_index;
    void (*fire)(QrnicEngine *e, struct QrnicTimer *t);
} QrnicTimer;

void qrnic_timer_init(QrnicTimer *t,
                      void (*fire)(QrnicEngine *e, QrnicTimer *t));
/* The heap of deadlines, which share one timer of the environment */
void qrnic_timer_set(QrnicEngine *e, QrnicTimer *t, int64_t deadline);
/* Sets the timer, unless it is due before that time */
void qrnic_timer_advance(QrnicEngine *e, QrnicTimer *t, int64_t deadline);
void qrnic_timer_cancel(QrnicEngine *e, QrnicTimer *t);
/* Cancels all timers, and the environment's. */
void qrnic_timers_reset(QrnicEngine *e);

/*
 * One round of the run loop has these phases, in this order. In each phase the
 * floors work from the highest to the lowest.
 */
typedef enum QrnicPhase {
    QRNIC_PHASE_REQUESTS,       /* doorbells, tag operations, clearing memory */
    QRNIC_PHASE_FRAMES,         /* frames that are in the device */
    QRNIC_PHASE_REPORTS,        /* failures, page faults, congestion */
    QRNIC_PHASE_SEND,           /* queue pairs that are scheduled */
    QRNIC_PHASES
} QrnicPhase;

/*
 * A floor of the engine. init, reset and cleanup are its life; reset restores
 * the state after init, except for what belongs to the backend, and the floors
 * above have been reset by then. The other operations are its work; NULL: it
 * has none.
 */
typedef struct QrnicFloor {
    void (*init)(QrnicEngine *e);
    void (*reset)(QrnicEngine *e);
    void (*cleanup)(QrnicEngine *e);
    /* Returns true if a further round has work for the floor. */
    bool (*pending)(QrnicEngine *e);
    /* Does a limited amount of work; called in each round of a run. */
    void (*process[QRNIC_PHASES])(QrnicEngine *e);
    /* Called once at the end of each run */
    void (*finish)(QrnicEngine *e);
} QrnicFloor;

extern const QrnicFloor qrnic_core_floor;

#define QRNIC_MAX_COUNTER_SET 1024

/* counters.c */
typedef struct QrnicCounterSet {
    uint32_t number;
    uint32_t users, rules;      /* queue pairs; flow rules */
    uint64_t counter[QRNIC_NUM_COUNTERS];
} QrnicCounterSet;

QrnicCounterSet *qrnic_counter_set_get(QrnicEngine *e, uint32_t number);

/*
 * storage.c: what an object needs only while something is in flight. Not
 * cleared; by size, in steps, up to the largest.
 */
#define QRNIC_BUFFER_STEP 64
#define QRNIC_BUFFER_MAX 4608

typedef struct QrnicBufferClass {
    void *first;                /* of those that are free */
    uint32_t count;
} QrnicBufferClass;

void *qrnic_buffer_get(QrnicEngine *e, size_t size);
/* NULL: nothing is done. size: as it was got */
void qrnic_buffer_put(QrnicEngine *e, void *buffer, size_t size);
void qrnic_buffers_cleanup(QrnicEngine *e);

struct QrnicEngine {
    QrnicConfig config;
    QrnicEnv env;
    uint64_t counter[QRNIC_NUM_COUNTERS];
    QrnicTable counter_sets;
    QrnicCounterSet *charged;   /* of whom work is done for; NULL: of none */
    uint64_t in_sets[QRNIC_NUM_COUNTERS];       /* all that any set has got */
    bool fatal;
    bool awake;                 /* qrnic_engine_run() is on, or will be soon */
    /* event.c: writes an event into the asynchronous EQ, if there is one */
    void (*event)(QrnicEngine *e, QrnicEqe *eqe);

    QrnicTimer **heap;          /* timer.c */
    uint32_t heap_count, heap_room;
    int64_t armed_deadline;

    QrnicBufferClass buffers[QRNIC_BUFFER_MAX / QRNIC_BUFFER_STEP];

    uint64_t work;              /* units done: see qrnic_budget_spent() */
    uint64_t work_limit;        /* the budget of this run ends there */

    struct QrnicRounds *rounds; /* engine.c: the operations of a round */

    /* What the floors above keep */
    struct QrnicMemory *memory;
    struct QrnicQueues *queue;
    struct QrnicFabric *fabric;
    struct QrnicQps *qps;
    struct QrnicTransports *transport;
    struct QrnicSched *sched;
};

static inline void qrnic_add(QrnicEngine *e, enum qrnic_counter c, uint64_t n)
{
    e->counter[c] += n;
    if (e->charged) {
        e->charged->counter[c] += n;
        e->in_sets[c] += n;
    }
}

/*
 * From now on work counts in this set, or in none (NULL). Returns the set
 * before, which the caller sets again when that work is done.
 */
static inline QrnicCounterSet *qrnic_charge_to(QrnicEngine *e,
                                               QrnicCounterSet *set)
{
    QrnicCounterSet *before = e->charged;

    e->charged = set;
    return before;
}

/*
 * There is something to do. Once said is enough until it is looked for, and
 * who looks for it does so again before leaving.
 */
static inline void qrnic_wake(QrnicEngine *e)
{
    if (!e->awake) {
        e->awake = true;
        e->env.kick(e->env.opaque);
    }
}

/*
 * The work budget of a run. A packet is one unit of work, but it may access
 * many pieces of indirect keys, and each access enters up to MAX_KEY_DEPTH
 * keys. So each key entered by a piece is charged, and other work of the same
 * size charges as many units. No run of the engine begins another packet when
 * its budget is spent.
 */
#define QRNIC_WORK_PER_RUN 8192

static inline void qrnic_budget_renew(QrnicEngine *e)
{
    e->work_limit = e->work + QRNIC_WORK_PER_RUN;
}

static inline bool qrnic_budget_spent(const QrnicEngine *e)
{
    return e->work >= e->work_limit;
}

static inline void qrnic_budget_charge(QrnicEngine *e, uint32_t units)
{
    e->work += units;
}

static inline int64_t qrnic_now(QrnicEngine *e)
{
    return e->env.clock_ns(e->env.opaque);
}

#endif
