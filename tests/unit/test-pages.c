/*
 * Translation tables: accesses to the lists, and hits of the cache
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/memory/memory.h"
#include "sim.h"

#define PAGE 4096
/*
 * With direct mapping, half of SOME tables would share a cache entry with
 * another table. With the cache's associativity, no table shares with many.
 */
#define SOME 2500
#define MANY (3 * QRNIC_PAGE_LIST_CACHE)

typedef struct Tables {
    Sim *sim;
    SimNode *node;
    QrnicPages table[MANY];
} Tables;

/* Returns the address of the only page of a table. */
static uint64_t page_of(unsigned i)
{
    return (uint64_t)(i + 1) * PAGE;
}

static Tables *tables_new(unsigned count)
{
    Tables *t = g_new0(Tables, 1);
    uint64_t lists;

    t->sim = sim_new(32, NULL);
    t->node = &t->sim->node[0];
    lists = sim_alloc(t->node, count * 8);
    for (unsigned i = 0; i < count; i++) {
        QrnicTranslation desc = {
            .root = lists + i * 8, .levels = 1, .page_shift = 12,
        };
        uint32_t bad;

        stq_le_p(t->node->memory + desc.root, page_of(i));
        g_assert_true(qrnic_pages_init(t->node->engine, &t->table[i], &desc,
                                       PAGE, false, &bad));
    }
    return t;
}

static void tables_free(Tables *t)
{
    sim_free(t->sim);
    g_free(t);
}

static void look_up(Tables *t, unsigned i)
{
    uint64_t addr, contiguous;

    g_assert_cmpint(qrnic_pages_translate(t->node->engine, &t->table[i], 8,
                                          false, &addr, &contiguous), ==,
                    QRNIC_SYN_NONE);
    g_assert_cmphex(addr, ==, page_of(i) + 8);
    g_assert_cmpuint(contiguous, ==, PAGE - 8);
}

static uint64_t reads(Tables *t)
{
    return sim_counter(t->node, QRNIC_COUNTER_MTT_READS);
}

/* Tables whose lists map to one place of the cache all stay cached. */
static void test_meet(void)
{
    Tables *t = tables_new(SOME);

    for (unsigned k = 0; k < 3; k++) {
        for (unsigned i = 0; i < SOME; i++) {
            look_up(t, i);
        }
        g_assert_cmpuint(reads(t), ==, SOME);
    }
    tables_free(t);
}

/*
 * Tests that a list in use stays cached while many others are used, because the
 * least recently used entry is replaced. Each table finds its own list.
 */
static void test_hot(void)
{
    Tables *t = tables_new(MANY);

    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 1; i < MANY; i++) {
            look_up(t, 0);
            look_up(t, i);
        }
    }
    g_assert_cmpuint(reads(t), >=, MANY);
    g_assert_cmpuint(reads(t), <=, 1 + 2 * (MANY - 1));
    for (unsigned i = 1; i < MANY; i++) {
        uint64_t before = reads(t);

        look_up(t, 0);
        g_assert_cmpuint(reads(t), ==, before);
        look_up(t, i);
    }
    tables_free(t);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pages/meet", test_meet);
    g_test_add_func("/pages/hot", test_hot);
    return g_test_run();
}
