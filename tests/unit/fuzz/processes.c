/*
 * The processes of the fuzzer: page tables, page requests, and invalidations,
 * which also arrive in operations of the environment
 *
 * A translated address contains the time of the translation, its size and its
 * right to write. translated() asserts that an access obeys them, and that no
 * invalidation followed. fuzz_processes_check() asserts the same of the cache.
 * main.c calls each operation of fuzz_process_ops. See fuzz.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/memory/shared_virtual.h"
#include "fuzz.h"

#define PASID 7                 /* PASID of the first process */
#define LARGE_SHIFT 16          /* log2 of FUZZ_PAGES * FUZZ_PAGE */

/* Parts of a translated address */
#define IN_MEMORY 0x0fffffffull
#define WRITABLE (1ull << 28)
#define LARGE (1ull << 29)
#define TIME_SHIFT 30

QEMU_BUILD_BUG_ON(1u << LARGE_SHIFT != FUZZ_PAGES * FUZZ_PAGE);

static uint64_t memory_of(const FuzzNode *f, unsigned process)
{
    return f->processes + process * FUZZ_PAGES * FUZZ_PAGE;
}

static bool page_is_large(const FuzzProcess *p)
{
    for (unsigned i = 0; i < FUZZ_PAGES; i++) {
        if (p->page[i].state != p->page[0].state) {
            return false;
        }
    }
    return p->large;
}

/* Asserts that no invalidation of the pages followed a translation. */
static void expect_valid(const FuzzNode *f, uint64_t addr)
{
    const uint64_t offset = (addr & IN_MEMORY) - f->processes;
    const unsigned count = addr & LARGE ? FUZZ_PAGES : 1;
    const unsigned first = offset / FUZZ_PAGE / count * count;
    const uint32_t time = addr >> TIME_SHIFT;

    g_assert_cmpuint(first, <, FUZZ_PROCESSES * FUZZ_PAGES);
    for (unsigned i = first; i < first + count; i++) {
        g_assert_cmpuint(f->process[i / FUZZ_PAGES].page[i % FUZZ_PAGES]
                         .invalidated, <=, time);
    }
}

void fuzz_processes_check(FuzzNode *f)
{
    /* The first capability requires the second. */
    const uint64_t needed = QRNIC_CAP_SHARED_VIRTUAL | QRNIC_CAP_ON_DEMAND;
    QrnicTranslated t;

    if (needed & ~f->world->options.capabilities) {
        return;
    }
    for (unsigned i = 0; i < FUZZ_PROCESSES * FUZZ_PAGES; i++) {
        const unsigned process = i / FUZZ_PAGES, page = i % FUZZ_PAGES;
        const uint64_t addr = FUZZ_ADDRESS + page * FUZZ_PAGE;

        if (qrnic_atc_find(f->n->engine, PASID + process, addr, false, &t)) {
            uint64_t at = memory_of(f, process);

            at += t.page_shift == LARGE_SHIFT ? 0 : page * FUZZ_PAGE;
            g_assert_cmphex(t.address & IN_MEMORY, ==, at);
            g_assert_true(!t.writable == !(t.address & WRITABLE));
            expect_valid(f, t.address);
        }
    }
}

/*
 * Invalidations
 */

/* Invalidates pages of a process, or of all processes if it is -1. */
static void invalidate(FuzzNode *f, int process, unsigned first,
                       unsigned count, bool whole)
{
    const uint64_t from = FUZZ_ADDRESS + first * FUZZ_PAGE;

    f->process_time++;
    for (unsigned i = 0; i < FUZZ_PROCESSES; i++) {
        if (process >= 0 && process != i) {
            continue;
        }
        for (unsigned k = 0; k < FUZZ_PAGES; k++) {
            if (whole || (k >= first && k < first + count)) {
                f->process[i].page[k].invalidated = f->process_time;
            }
        }
    }
    qrnic_engine_invalidate(f->n->engine,
                            process < 0 ? QRNIC_PASID_ALL : PASID + process,
                            whole ? 0 : from, whole ? UINT64_MAX :
                            from + count * FUZZ_PAGE - 1);
    fuzz_processes_check(f);
}

/* Takes away pages, or rights, or nothing; then invalidates the pages. */
static void pages_change(FuzzNode *f, const FuzzChange *c)
{
    FuzzProcess *p = &f->process[c->process];
    unsigned first = c->first % FUZZ_PAGES;
    unsigned count = 1 + c->count % (FUZZ_PAGES - first);

    for (unsigned i = first; i < first + count; i++) {
        if (c->state < FUZZ_PAGE_STATES) {
            p->page[i].state = c->state;
        }
    }
    switch (c->scope) {
    case 0:
        invalidate(f, -1, 0, 0, true);
        break;
    case 1:
        invalidate(f, c->process, 0, 0, true);
        break;
    case 2:
        invalidate(f, -1, first, count, false);
        break;
    default:
        invalidate(f, c->process, first, count, false);
    }
}

/* Called in operations of the environment. Executes a change if it is due. */
static void operation(FuzzNode *f)
{
    if (f->change_in && !--f->change_in) {
        f->change_in = f->change.again;
        pages_change(f, &f->change);
    }
}

/*
 * Called in a request for a translation. Executes a change of the requested
 * page if one is due, because a change of any page rarely meets it.
 */
static void request_operation(FuzzNode *f, unsigned process, uint64_t page)
{
    FuzzChange c = f->request_change;

    if (page < FUZZ_PAGES && f->request_change_in && !--f->request_change_in) {
        f->request_change_in = c.again;
        c.process = process;
        c.first = page;
        pages_change(f, &c);
    }
    operation(f);
}

/*
 * The environment
 */

static QrnicTranslate translate(SimNode *n, uint32_t pasid, uint64_t addr,
                                bool write, QrnicTranslated *result)
{
    FuzzNode *f = n->translate_opaque;
    const uint64_t page = (addr - FUZZ_ADDRESS) / FUZZ_PAGE;
    const unsigned process = pasid - PASID;
    FuzzPageState state = FUZZ_PAGE_ABSENT;
    bool large = false;

    if (process >= FUZZ_PROCESSES) {
        return QRNIC_TRANSLATE_FAILED;
    }
    if (page < FUZZ_PAGES) {
        state = f->process[process].page[page].state;
        large = page_is_large(&f->process[process]);
    }
    if (process) {
        state = state == FUZZ_PAGE_WRITABLE ? FUZZ_PAGE_READABLE : state;
    }
    *result = (QrnicTranslated) {
        .address = memory_of(f, process) + (large ? 0 : page * FUZZ_PAGE),
        .page_shift = large ? LARGE_SHIFT : QRNIC_PAGE_SHIFT_MIN,
        .writable = state == FUZZ_PAGE_WRITABLE,
    };
    result->address |= (large ? LARGE : 0) |
                       (result->writable ? WRITABLE : 0) |
                       (uint64_t)f->process_time << TIME_SHIFT;
    /* The engine discards the result if the change invalidates the page. */
    request_operation(f, process, page);
    switch (state) {
    case FUZZ_PAGE_ABSENT:
        return QRNIC_TRANSLATE_ABSENT;
    case FUZZ_PAGE_FAILED:
        return QRNIC_TRANSLATE_FAILED;
    case FUZZ_PAGE_INVALID:
        result->page_shift = QRNIC_PAGE_SHIFT_MIN - 1;
        return QRNIC_TRANSLATE_OK;
    default:
        return QRNIC_TRANSLATE_OK;
    }
}

/* Asserts that an access may use a translation. Returns its real address. */
static uint64_t translated(SimNode *n, uint64_t addr, size_t len, bool write)
{
    FuzzNode *f = n->translate_opaque;
    const uint64_t at = addr & IN_MEMORY, offset = at - f->processes;
    const uint64_t size = addr & LARGE ? 1u << LARGE_SHIFT : FUZZ_PAGE;

    g_assert_cmpuint(offset % size + len, <=, size);
    g_assert_true(!write || addr & WRITABLE);
    expect_valid(f, addr);
    return at;
}

static void after_write(SimNode *n, uint64_t addr, size_t len)
{
    operation(n->translate_opaque);
}

/* Changes a WQE as a CPU could, right after the device has read it. */
static void after_read(SimNode *n, uint64_t addr, size_t len)
{
    FuzzNode *f = n->translate_opaque;

    if (f->races && len >= QRNIC_WQEBB_SIZE) {
        n->memory[addr + len / 2] ^= 0x11;
        n->memory[addr + 4] ^= 1;
    }
    operation(f);
}

/*
 * Accepts or rejects a page request, and may respond to its group at once.
 * Asserts that the device does not exceed its limit.
 */
static bool page_request(SimNode *n, uint32_t pasid, uint64_t addr, bool write,
                         uint16_t group, bool last)
{
    FuzzNode *f = n->translate_opaque;
    QrnicEngine *e = n->engine;

    g_assert_cmpuint(group, <, QRNIC_PAGE_GROUPS);
    g_assert_cmpuint(addr % FUZZ_PAGE, ==, 0);
    g_assert_cmpuint(qrnic_engine_page_requests_outstanding(e), <=,
                     f->request_limit);
    f->request_group = group;
    f->request_pasid = pasid;
    operation(f);
    if (f->respond_in && !--f->respond_in) {
        qrnic_engine_page_response(e, pasid, group, f->response);
    }
    return !f->reject_in || --f->reject_in;
}

/*
 * Set-up, called by world.c
 */

QrnicMkeyCtx fuzz_process_key(unsigned process, uint8_t access, uint64_t start)
{
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_PASID, .access = access,
        .start = start, .length = FUZZ_PAGES * FUZZ_PAGE,
        .table.root = FUZZ_ADDRESS, .pasid = PASID + process,
    };
}

void fuzz_processes_make(FuzzNode *f)
{
    const uint64_t size = FUZZ_PAGES * FUZZ_PAGE;
    const uint64_t at = sim_alloc(f->n, (FUZZ_PROCESSES + 1) * size);
    uint8_t raw[QRNIC_PASID_CTX_BYTES];
    const QrnicPasidCtx pasid = { .pasid = PASID };

    f->processes = QEMU_ALIGN_UP(at, size);
    f->change_in = f->request_change_in = 0;
    f->n->translate_opaque = f;
    f->n->translate = translate;
    f->n->translated = translated;
    f->n->page_request = page_request;
    f->request_limit = f->reject_in = f->respond_in = 0;
    f->n->after_read = after_read;
    f->n->after_write = after_write;
    /* A device without an earlier translation, after a reset too. */
    f->process_time++;
    for (unsigned i = 0; i < FUZZ_PROCESSES; i++) {
        FuzzProcess *p = &f->process[i];

        p->large = f->world->large_pages >> i & 1;
        for (unsigned k = 0; k < FUZZ_PAGES; k++) {
            p->page[k].invalidated = f->process_time;
            /* One of 16 pages is absent at first, and one is read-only. */
            p->page[k].state = p->large || k % 16 < 14 ? FUZZ_PAGE_WRITABLE :
                               k & 1 ? FUZZ_PAGE_ABSENT : FUZZ_PAGE_READABLE;
        }
    }
    if (f->world->registers) {
        qrnic_pasid_ctx_pack(raw, &pasid);
        fuzz_command(f->n, QRNIC_CMD_SET_PASID, f->page, raw, NULL);
    }
}

void fuzz_processes_end(FuzzNode *f)
{
    f->n->after_read = f->n->after_write = NULL;
    f->n->translate = NULL;
    f->n->translated = NULL;
    f->n->page_request = NULL;
}

void fuzz_process_page_in(FuzzNode *f, uint32_t pasid, uint64_t address,
                          uint64_t length, bool writable)
{
    const unsigned process = pasid - PASID;

    for (unsigned i = 0; process < FUZZ_PROCESSES && i < FUZZ_PAGES; i++) {
        const uint64_t start = FUZZ_ADDRESS + i * FUZZ_PAGE;
        FuzzPageState *state = &f->process[process].page[i].state;

        /* No invalidation follows, because a right is not taken away. */
        if (address < start + FUZZ_PAGE && address + length > start &&
            *state != FUZZ_PAGE_WRITABLE) {
            *state = writable ? FUZZ_PAGE_WRITABLE : FUZZ_PAGE_READABLE;
        }
    }
}

/*
 * Operations
 */

static FuzzChange change_of(Bytes *b)
{
    const uint8_t how = take8(b), pages = take8(b), again = take8(b);

    return (FuzzChange) {
        .process = how & 1, .scope = how >> 1 & 7, .state = how >> 4,
        .first = pages & 15, .count = pages >> 4,
        .again = again & 3 ? 0 : 1 + (again >> 2),
    };
}

/* Changes pages now. */
static void op_pages(FuzzNode *f, Bytes *b)
{
    const FuzzChange c = change_of(b);

    pages_change(f, &c);
}

/* Changes pages in a later operation of the environment, once or often. */
static void op_pages_later(FuzzNode *f, Bytes *b)
{
    f->change = change_of(b);
    f->change_in = 1 + take8(b) % 64;
}

/* Changes the page of a later request for a translation, once or often. */
static void op_pages_request(FuzzNode *f, Bytes *b)
{
    f->request_change = change_of(b);
    f->request_change_in = 1 + take8(b) % 4;
}

/* Pages in, with small or large pages. */
static void op_pages_in(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b), count = take8(b);

    fuzz_process_page_in(f, PASID + (how & 1),
                         FUZZ_ADDRESS + (how >> 4) * FUZZ_PAGE,
                         (1 + count % 16) * FUZZ_PAGE, how & 2);
    f->process[how & 1].large = how & 4;
}

/* Sets the limit of page requests, and what happens to the next ones. */
static void op_page_limit(FuzzNode *f, Bytes *b)
{
    static const uint32_t limits[] = { 0, 1, 8, 512 };
    const uint8_t how = take8(b), when = take8(b);

    f->request_limit = limits[how & 3];
    f->reject_in = how >> 4 & 7;
    f->respond_in = when & 7;
    f->response = when % 3;
    qrnic_engine_page_requests_limit(f->n->engine, f->request_limit);
}

/* Responds to the last group or to another one, or forgets all groups. */
static void op_page_response(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b), other = take8(b);

    if (how & 1) {
        qrnic_engine_page_response(f->n->engine, how & 2 ? PASID + (how >> 7) :
                                   f->request_pasid, how & 4 ? other :
                                   f->request_group, (how >> 3) % 3);
    } else {
        f->request_limit = 0;
        qrnic_engine_page_requests_limit(f->n->engine, 0);
        qrnic_engine_page_requests_reset(f->n->engine);
    }
}

const FuzzOp fuzz_process_ops[] = {
    { "pages", op_pages, 5 },
    { "pages-later", op_pages_later, 5 },
    { "pages-request", op_pages_request, 5 },
    { "pages-in", op_pages_in, 4 },
    { "page-limit", op_page_limit, 4 },
    { "page-response", op_page_response, 6 },
    { NULL },
};
