/*
 * qrnic engine: which of the levels of priority that are ready has the next
 * turn. Manual, chapter Priorities.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/sched/sched.h"

static unsigned highest_of(uint32_t levels)
{
    return 31 - clz32(levels);
}

/* Each 16th turn: the others that wait, from the highest to the lowest. */
static unsigned strict(QrnicSched *s, uint32_t levels, bool *relief)
{
    unsigned highest = highest_of(levels);
    uint32_t others = levels & ~(1u << highest), below;

    if (++s->passed < QRNIC_STARVATION_TURNS) {
        return highest;
    }
    s->passed = 0;
    below = others & ((1u << s->relieved) - 1);
    s->relieved = highest_of(below ? below : others);
    *relief = true;
    return s->relieved;
}

/* The highest that has turns left of its 2^level; then all have them anew. */
static unsigned weighted(QrnicSched *s, uint32_t levels)
{
    for (;;) {
        for (int level = QRNIC_PRIORITY_STRICT - 1; level >= 0; level--) {
            if (levels >> level & 1 && s->turns[level]) {
                s->turns[level]--;
                return level;
            }
        }
        for (unsigned level = 0; level < QRNIC_PRIORITY_STRICT; level++) {
            s->turns[level] = 1u << level;
        }
    }
}

unsigned qrnic_priority_next(QrnicEngine *e, uint32_t levels)
{
    QrnicSched *s = e->sched;
    bool relief = false;
    unsigned level;

    /*
     * Alone, perhaps for a moment: others may wait for the wire. So their turns
     * are still counted.
     */
    if (!(levels & (levels - 1))) {
        return ctz32(levels);
    }
    level = levels >> QRNIC_PRIORITY_STRICT ? strict(s, levels, &relief) :
                                              weighted(s, levels);
    trace_qrnic_priority(e->config.name, levels, level, relief);
    qrnic_add(e, QRNIC_COUNTER_PRIORITY_TURNS, 1);
    qrnic_add(e, QRNIC_COUNTER_PRIORITY_RELIEFS, relief);
    return level;
}
