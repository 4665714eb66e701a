/*
 * The libFuzzer target: see fuzz.h; tools/fuzz-engine builds and runs it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "fuzz.h"
#include "fuzz-contract.h"

#define SETTLE (50 * SIM_MS)
/* Number of values of a record's first byte that run the simulation */
#define RUN_SHARE 64

static const FuzzOp *const tables[] = {
    fuzz_work_ops, fuzz_control_ops, fuzz_frame_ops, fuzz_process_ops,
};

/*
 * Returns the operation at a number, if each operation occupies as many numbers
 * as its share.
 */
static const FuzzOp *op_at(unsigned number, unsigned *total)
{
    *total = 0;
    for (unsigned t = 0; t < ARRAY_SIZE(tables); t++) {
        for (const FuzzOp *o = tables[t]; o->name; o++) {
            *total += o->share;
            if (*total > number) {
                return o;
            }
        }
    }
    return NULL;
}

/* Returns the operation for a record's first byte. */
static const FuzzOp *op_find(unsigned which)
{
    unsigned total;

    op_at(UINT_MAX, &total);
    return op_at(which * total / (256 - RUN_SHARE), &total);
}

/*
 * Returns true if FUZZ_SHOW is set: the world and each operation are printed.
 */
bool fuzz_shows(void)
{
    static int show = -1;

    if (show < 0) {
        show = g_getenv("FUZZ_SHOW") != NULL;
    }
    return show;
}

static void world_show(FuzzWorld *w)
{
    for (unsigned i = 0; i < 2; i++) {
        FuzzNode *f = &w->node[i];

        for (unsigned k = 0; k < fuzz_num_kinds; k++) {
            QrnicQpAttr a = { 0 };

            if (f->qp[k].exists) {
                qrnic_qp_query(f->n->engine, f->qp[k].q.number, &a);
            }
            fprintf(stderr, "%s: %s: queue pair %u, %s\n", f->n->name,
                    fuzz_kinds[k].name, f->qp[k].q.number,
                    f->qp[k].exists ? qrnic_qp_state_name(a.state) : "none");
        }
        for (unsigned k = 0; k < FUZZ_KEYS; k++) {
            fprintf(stderr, "%s: key %u: 0x%x\n", f->n->name, k, f->key[k]);
        }
        for (unsigned k = 0; k < FUZZ_SRQS; k++) {
            fprintf(stderr, "%s: SRQ %u: %u\n", f->n->name, k,
                    f->srq[k].number);
        }
    }
}

static void record_show(FuzzWorld *w, const FuzzNode *f, const char *name)
{
    if (fuzz_shows()) {
        fprintf(stderr, "%" PRId64 " ns: %s: %s\n", w->sim->now, f->n->name,
                name);
    }
}

/*
 * Executes the records, and runs the simulation for the work that they begin.
 */
static void records_run(FuzzWorld *w, Bytes in)
{
    while (in.end - in.at >= FUZZ_RECORD) {
        Bytes b = { in.at, in.at + FUZZ_RECORD };
        const uint8_t which = take8(&b), node = take8(&b);
        FuzzNode *f = &w->node[node & 1];

        if (which < RUN_SHARE) {
            record_show(w, f, "time");
            fuzz_run(w, 1000ll << which % 16);
            fuzz_consume(&w->node[0], which & 16);
            fuzz_consume(&w->node[1], which & 16);
        } else {
            record_show(w, f, op_find(which - RUN_SHARE)->name);
            op_find(which - RUN_SHARE)->run(f, &b);
        }
        in.at += FUZZ_RECORD;
    }
    fuzz_run(w, SETTLE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Bytes header = { data, data + MIN(size, FUZZ_HEADER) };
    FuzzWorld *w;

    if (size < FUZZ_HEADER) {
        return -1;
    }
    w = fuzz_world_new(&header);
    if (fuzz_shows()) {
        world_show(w);
    }
    records_run(w, (Bytes) { data + FUZZ_HEADER, data + size });
    if (w->verified) {
        fuzz_world_verify(w);
    }
    fuzz_world_free(w);
    return 0;
}

/*
 * Mutations keep the offsets of records, because an inserted byte would change
 * all records behind it.
 */

static uint32_t draw(unsigned int *seed)
{
    /*
     * A Weyl sequence with the finalizer of MurmurHash3, so that all bits are
     * mixed.
     */
    uint32_t x = *seed += 0x9e3779b9u;

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static void record_new(uint8_t *at, unsigned int *seed)
{
    for (unsigned i = 0; i < FUZZ_RECORD; i++) {
        at[i] = draw(seed);
    }
}

static size_t mutate_part(uint8_t *at, size_t len)
{
    const size_t n = LLVMFuzzerMutate(at, len, len);

    memset(at + n, 0, len - n);
    return len;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                               unsigned int seed)
{
    const unsigned most = (max_size - FUZZ_HEADER) / FUZZ_RECORD;
    unsigned count, at, other;
    uint8_t *first = data + FUZZ_HEADER;

    if (max_size < FUZZ_HEADER + 2 * FUZZ_RECORD) {
        return size;
    }
    if (size < FUZZ_HEADER) {
        memset(data + size, 0, FUZZ_HEADER - size);
        size = FUZZ_HEADER;
    }
    count = (size - FUZZ_HEADER) / FUZZ_RECORD;
    at = count ? draw(&seed) % count : 0;
    other = count ? draw(&seed) % count : 0;
    switch (draw(&seed) % 16) {
    case 0:
        mutate_part(data, FUZZ_HEADER);
        break;
    case 1:
    case 2:
        if (count > 1) {
            memmove(first + at * FUZZ_RECORD, first + (at + 1) * FUZZ_RECORD,
                    (count - at - 1) * FUZZ_RECORD);
            count--;
        }
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        if (count < most) {
            memmove(first + (at + 1) * FUZZ_RECORD, first + at * FUZZ_RECORD,
                    (count - at) * FUZZ_RECORD);
            record_new(first + at * FUZZ_RECORD, &seed);
            count++;
        }
        break;
    case 7:
        if (count) {
            memmove(first + at * FUZZ_RECORD, first + other * FUZZ_RECORD,
                    FUZZ_RECORD);
        }
        break;
    case 8:
        /* Repeats the rest, because a repeated operation finds other states. */
        other = MIN(count - at, most - count);
        memmove(first + count * FUZZ_RECORD, first + at * FUZZ_RECORD,
                other * FUZZ_RECORD);
        count += other;
        break;
    default:
        if (count) {
            mutate_part(first + at * FUZZ_RECORD, FUZZ_RECORD);
        }
    }
    return FUZZ_HEADER + count * FUZZ_RECORD;
}

/*
 * Combines the header and the first records of one input with records of the
 * other.
 */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size,
                                 const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_out,
                                 unsigned int seed)
{
    size_t head, skip, tail;

    if (a_size < FUZZ_HEADER || b_size < FUZZ_HEADER || max_out < a_size) {
        return 0;
    }
    head = (a_size - FUZZ_HEADER) / FUZZ_RECORD;
    head = FUZZ_HEADER + draw(&seed) % (head + 1) * FUZZ_RECORD;
    skip = (b_size - FUZZ_HEADER) / FUZZ_RECORD;
    skip = FUZZ_HEADER + draw(&seed) % (skip + 1) * FUZZ_RECORD;
    tail = MIN(b_size - skip, max_out - head);
    tail -= tail % FUZZ_RECORD;
    memcpy(out, a, head);
    memcpy(out + head, b + skip, tail);
    return head + tail;
}
