/*
 * A pager for the simulator; see pager.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pager.h"

#define GARBAGE 0xdb

bool pager_processes;

QrnicEngine *engine_of(const Region *r)
{
    return r->node->engine;
}

/* The table */

static uint64_t list_new(Region *r)
{
    g_assert_cmpuint(r->lists, <, LISTS);
    memset(r->node->memory + r->list[r->lists], 0, PAGE);
    return r->list[r->lists++];
}

uint8_t *entry_of(Region *r, unsigned page)
{
    uint64_t number = page, list = r->root;
    uint8_t *e;

    for (unsigned height = r->levels - 1; ; height--) {
        unsigned i = number >> (9 * height) & 511;

        e = r->node->memory + list + 8 * i;
        if (!height) {
            return e;
        }
        if (!ldq_le_p(e)) {
            stq_le_p(e, list_new(r) | QRNIC_PAGE_PRESENT);
        }
        list = ldq_le_p(e) & ~(uint64_t)(PAGE - 1);
    }
}

uint8_t *memory_of(const Region *r, unsigned page)
{
    return r->node->memory + r->memory + page * PAGE;
}

void page_bring(Region *r, unsigned page, bool write)
{
    if (!r->present[page]) {
        memcpy(memory_of(r, page), r->elsewhere + page * PAGE, PAGE);
    }
    r->present[page] = true;
    r->writable[page] |= write;
    if (r->pasid) {
        return;
    }
    stq_le_p(entry_of(r, page), (r->memory + page * PAGE) | QRNIC_PAGE_PRESENT |
             (r->writable[page] ? QRNIC_PAGE_WRITABLE : 0));
}

void page_take_away(Region *r, unsigned page, unsigned count)
{
    const QrnicPageRange range = {
        .start = r->start + page * PAGE, .length = count * PAGE,
    };

    for (unsigned i = page; i < page + count && !r->pasid; i++) {
        stq_le_p(entry_of(r, i), 0);
    }
    if (r->pasid) {
        uint64_t first = r->address + page * PAGE;

        qrnic_engine_invalidate(engine_of(r), r->pasid, first,
                                first + (count * PAGE - 1));
    } else {
        g_assert_cmpint(qrnic_mkey_invalidate_pages(engine_of(r), r->key >> 8,
                                                    &range).status, ==,
                        QRNIC_ST_OK);
    }
    for (unsigned i = page; i < page + count; i++) {
        if (r->present[i]) {
            memcpy(r->elsewhere + i * PAGE, memory_of(r, i), PAGE);
        }
        memset(memory_of(r, i), GARBAGE, PAGE);
        r->present[i] = r->writable[i] = false;
    }
}

/* The page table of the region's process */
static QrnicTranslate translate(SimNode *n, uint32_t pasid, uint64_t addr,
                                bool write, QrnicTranslated *result)
{
    const Region *r = n->translate_opaque;
    uint64_t page = (addr - r->address) / PAGE;

    if (pasid != r->pasid) {
        return QRNIC_TRANSLATE_FAILED;
    }
    if (page >= PAGES || !r->present[page]) {
        return QRNIC_TRANSLATE_ABSENT;
    }
    *result = (QrnicTranslated) {
        .address = r->memory + page * PAGE, .page_shift = 12,
        .writable = r->writable[page],
    };
    return QRNIC_TRANSLATE_OK;
}

const uint8_t *content_of(Region *r)
{
    page_take_away(r, 0, PAGES);
    return r->elsewhere;
}

QrnicMkeyCtx region_ctx(const Region *r)
{
    if (r->pasid) {
        return (QrnicMkeyCtx) {
            .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_PASID,
            .access = ACCESS_ALL | QRNIC_ACCESS_MW_BIND, .variant = 3,
            .pd = r->node->pd, .start = r->start, .length = BYTES,
            .table.root = r->address, .pasid = r->pasid,
        };
    }
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = ACCESS_ALL | QRNIC_ACCESS_MW_BIND, .variant = 3,
        .pd = r->node->pd, .start = r->start, .length = BYTES,
        .table = { .root = r->root, .levels = r->levels, .page_shift = 12 },
    };
}

static Region *region_new(Sim *s, SimNode *n, unsigned levels)
{
    Region *r = g_new0(Region, 1);
    QrnicMkeyCtx ctx;

    r->node = n;
    r->levels = levels;
    r->start = 0x7f0000000000;
    if (pager_processes) {
        r->pasid = 7 + n->id;
        r->address = 0x550000000000;
        n->translate = translate;
        n->translate_opaque = r;
    }
    r->memory = sim_alloc(n, BYTES);
    for (unsigned i = 0; i < LISTS; i++) {
        r->list[i] = sim_alloc(n, PAGE);
    }
    r->root = list_new(r);
    for (unsigned i = 0; i < BYTES; i++) {
        r->elsewhere[i] = g_rand_int(s->rand);
    }
    memset(n->memory + r->memory, GARBAGE, BYTES);
    ctx = region_ctx(r);
    r->key = sim_mkey_ctx(n, &ctx);
    return r;
}

/* The pager */

static void fault_eq_new(Pager *w, unsigned id)
{
    SimNode *n = &w->sim->node[id];
    QrnicEqCtx ctx = {
        .type = QRNIC_EQ_PAGE_FAULT, .log_size = FAULT_LOG_SIZE, .vector = 2,
        .ring.root = sim_alloc(n, QRNIC_EQE_SIZE << FAULT_LOG_SIZE),
    };
    QrnicResult result = qrnic_eq_create(n->engine, &ctx);

    g_assert_cmpint(result.status, ==, QRNIC_ST_OK);
    w->eq[id] = result.value;
    w->ring[id] = ctx.ring.root;
}

bool fault_next(Pager *w, unsigned id, uint32_t *number)
{
    SimNode *n = &w->sim->node[id];
    uint32_t at = w->consumer[id];
    QrnicEqDoorbell d = { .number = w->eq[id] };
    uint8_t raw[8];
    QrnicEqe e;

    qrnic_eqe_unpack(&e, n->memory + w->ring[id] +
                     (at & ((1 << FAULT_LOG_SIZE) - 1)) * QRNIC_EQE_SIZE);
    if (!w->eq[id] || e.phase == (at >> FAULT_LOG_SIZE & 1)) {
        return false;
    }
    g_assert_cmpint(e.type, ==, QRNIC_EVENT_PAGE_FAULT);
    *number = e.object;
    d.index = ++w->consumer[id];
    qrnic_eq_doorbell_pack(raw, &d);
    qrnic_doorbell_write(n->engine, 0, QRNIC_DB_EQ, 8, ldq_le_p(raw));
    w->faults[id]++;
    return true;
}

uint64_t fault_address(const Region *r, uint64_t offset)
{
    return (r->pasid ? r->address : r->start) + offset;
}

uint32_t fault_flags(const Region *r, bool write)
{
    return (write ? QRNIC_PAGE_FAULT_WRITE : 0) |
           (r->pasid ? QRNIC_PAGE_FAULT_PASID : 0);
}

int fault_resume(QrnicEngine *e, uint32_t number, uint32_t sequence)
{
    QrnicFaultAnswer in = { sequence };

    return qrnic_page_fault_resume(e, number, &in).status;
}

bool fault_answer(Pager *w, unsigned id, uint32_t number)
{
    QrnicEngine *e = w->sim->node[id].engine;
    Region *r = w->region[id];
    uint64_t first, last;
    QrnicPageFault f;
    bool write;

    if (qrnic_page_fault_query(e, number, &f).status != QRNIC_ST_OK) {
        return false;
    }
    write = f.flags & QRNIC_PAGE_FAULT_WRITE;
    g_assert_cmphex(f.flags, ==, fault_flags(r, write));
    g_assert_cmpuint(f.pasid, ==, r->pasid);
    g_assert_cmphex(f.key, ==, r->key >> 8);
    f.address -= fault_address(r, 0);
    g_assert_cmphex(f.address, <, BYTES);
    g_assert_cmpuint(f.length, >, 0);
    if (r->gone || (write && r->read_only)) {
        qrnic_page_fault_refuse(e, number,
                                &(QrnicFaultAnswer) { f.sequence });
        return true;
    }
    first = f.address / PAGE;
    last = MIN((f.address + f.length - 1) / PAGE, PAGES - 1);
    for (uint64_t i = first; i <= last; i++) {
        page_bring(r, i, write);
    }
    g_assert_cmpint(fault_resume(e, number, f.sequence), ==, QRNIC_ST_OK);
    return true;
}

/* Runs the world for 50 us at a time, and then the pager. */
void pager_run(Pager *w, void (*meanwhile)(Pager *w))
{
    for (unsigned idle = 0, turns = 0; idle < 100; turns++) {
        bool quiet = sim_run(w->sim, w->sim->now + 50 * SIM_US);
        uint32_t number;

        g_assert_cmpuint(turns, <, 4000000);
        for (unsigned id = 0; id < SIM_NODES; id++) {
            while (fault_next(w, id, &number)) {
                fault_answer(w, id, number);
                quiet = false;
            }
        }
        if (meanwhile && !quiet) {
            meanwhile(w);
        }
        idle = quiet ? idle + 1 : 0;
    }
}

Pager *pager_new_with(uint32_t seed, unsigned levels, const SimConnect *c,
                      const SimOptions *o)
{
    Pager *w = g_new0(Pager, 1);

    w->sim = sim_new(seed, o);
    for (unsigned id = 0; id < SIM_NODES; id++) {
        w->qp[id] = sim_qp_new(&w->sim->node[id], 8, 8, 3, 10);
        w->region[id] = region_new(w->sim, &w->sim->node[id], levels);
        fault_eq_new(w, id);
    }
    sim_connect(w->qp[0], w->qp[1], c);
    return w;
}

Pager *pager_new(uint32_t seed, unsigned levels, const SimConnect *c)
{
    return pager_new_with(seed, levels, c, NULL);
}

void pager_free(Pager *w)
{
    for (unsigned id = 0; id < SIM_NODES; id++) {
        sim_qp_free(w->qp[id]);
        g_free(w->region[id]);
    }
    sim_free(w->sim);
    g_free(w);
}

void pager_post(Pager *w, uint8_t opcode, uint64_t offset,
                uint64_t remote_offset, uint32_t len)
{
    SimSge sge = { w->region[0]->start + offset, len, w->region[0]->key };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .remote = w->region[1]->start + remote_offset,
        .rkey = w->region[1]->key, .swap_add = 1,
    };

    sim_post_send(w->qp[0], &wr);
}

void pager_receive(Pager *w, uint64_t offset, uint32_t len)
{
    SimSge sge = { w->region[1]->start + offset, len, w->region[1]->key };

    sim_post_recv(w->qp[1], &sge, 1);
}
