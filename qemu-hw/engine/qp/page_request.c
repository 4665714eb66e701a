/*
 * qrnic engine, layer qp: page requests to the IOMMU (PRI)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * page_fault.c calls qrnic_page_request() for an absent page of a process. This
 * file sends one group of page requests for each page fault. The IOMMU may
 * respond at any time, also inside an operation of the environment. So the
 * response is only stored, and page_fault.c processes it in the phase REPORTS.
 * A group is in use from its first request until its response is processed. The
 * page fault may end earlier, because the queue pair is destroyed. Then the
 * sequence number of the group matches no page fault. Manual, chapter "Shared
 * virtual addressing"; PCIe, 10.4.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

#define PAGE_SHIFT 12

/*
 * Maximum number of pages of a group. The number is small, so that one long
 * message cannot use up the limit of page requests of all queue pairs.
 */
#define GROUP_PAGES 8

typedef struct PageGroup {
    bool used, answered;
    QrnicPageAnswerKind answer;
    uint32_t pasid, pages;
    uint32_t number, sequence;  /* of the page fault */
} PageGroup;

struct QrnicPageRequests {
    uint32_t limit;             /* 0: the device sends no page requests */
    uint32_t outstanding;       /* page requests without response */
    unsigned used, answered;    /* numbers of such groups */
    unsigned next;              /* group at which the search begins */
    PageGroup group[QRNIC_PAGE_GROUPS];
};

void qrnic_page_requests_init(QrnicEngine *e)
{
    e->qps->requests = g_new0(QrnicPageRequests, 1);
}

void qrnic_page_requests_cleanup(QrnicEngine *e)
{
    g_free(e->qps->requests);
}

bool qrnic_page_requests_pending(const QrnicEngine *e)
{
    return e->qps->requests->answered;
}

/* Returns the number of a free group. The caller knows that one is free. */
static unsigned group_find(QrnicPageRequests *r)
{
    unsigned number;

    do {
        number = r->next;
        r->next = (r->next + 1) % QRNIC_PAGE_GROUPS;
    } while (r->group[number].used);
    return number;
}

static void group_answer(QrnicPageRequests *r, PageGroup *g,
                         QrnicPageAnswerKind answer)
{
    g->answered = true;
    g->answer = answer;
    r->outstanding -= g->pages;
    r->answered++;
}

static void group_free(QrnicPageRequests *r, PageGroup *g)
{
    g->used = false;
    r->used--;
}

bool qrnic_page_request(QrnicEngine *e, uint32_t number,
                        const QrnicPageFault *at, uint64_t absent)
{
    const bool write = at->flags & QRNIC_PAGE_FAULT_WRITE;
    const uint64_t first = (at->address + absent) >> PAGE_SHIFT;
    const uint64_t last = (at->address + at->length - 1) >> PAGE_SHIFT;
    QrnicPageRequests *r = e->qps->requests;
    unsigned index, i;
    PageGroup *g;

    if (r->outstanding >= r->limit || r->used == QRNIC_PAGE_GROUPS) {
        return false;
    }
    index = group_find(r);
    g = &r->group[index];
    *g = (PageGroup) {
        .used = true, .pasid = at->pasid, .number = number,
        .sequence = at->sequence,
        .pages = MIN(MIN(last - first + 1, GROUP_PAGES),
                     r->limit - r->outstanding),
    };
    r->used++;
    r->outstanding += g->pages;
    qrnic_budget_charge(e, g->pages);
    for (i = 0; i < g->pages; i++) {
        const uint64_t addr = (first + i) << PAGE_SHIFT;
        const bool is_last = i == g->pages - 1;
        const bool accepted = e->env.page_request(e->env.opaque, at->pasid,
                                                  addr, write, index, is_last);

        trace_qrnic_page_request(e->config.name, index, at->pasid, addr, write,
                                 is_last, accepted);
        if (!accepted) {
            qrnic_add(e, QRNIC_COUNTER_PAGE_REQUESTS_REJECTED, 1);
            break;
        }
        qrnic_add(e, QRNIC_COUNTER_PAGE_REQUESTS, 1);
    }
    /*
     * A response may have arrived in the operation above. The answer is then
     * processed, also if a later request of the group was not accepted.
     */
    if (i < g->pages && !g->answered) {
        r->outstanding -= g->pages;
        group_free(r, g);
        return false;
    }
    return true;
}

bool qrnic_page_request_answer(QrnicEngine *e, QrnicPageAnswer *answer)
{
    QrnicPageRequests *r = e->qps->requests;

    for (unsigned i = 0; r->answered && i < QRNIC_PAGE_GROUPS; i++) {
        PageGroup *g = &r->group[i];

        if (g->used && g->answered) {
            *answer = (QrnicPageAnswer) {
                .number = g->number, .sequence = g->sequence,
                .kind = g->answer,
            };
            r->answered--;
            group_free(r, g);
            return true;
        }
    }
    return false;
}

/*
 * Functions for the environment, which also calls them in its operations
 */

void qrnic_engine_page_requests_limit(QrnicEngine *e, uint32_t limit)
{
    if (e->qps->requests->limit != limit) {
        e->qps->requests->limit = limit;
        qrnic_wake(e);
    }
}

uint32_t qrnic_engine_page_requests_outstanding(const QrnicEngine *e)
{
    return e->qps->requests->outstanding;
}

/* Answers all groups without response. */
static void groups_answer(QrnicEngine *e, QrnicPageAnswerKind answer)
{
    QrnicPageRequests *r = e->qps->requests;

    for (unsigned i = 0; i < QRNIC_PAGE_GROUPS; i++) {
        PageGroup *g = &r->group[i];

        if (g->used && !g->answered) {
            group_answer(r, g, answer);
        }
    }
    if (r->answered) {
        qrnic_wake(e);
    }
}

void qrnic_engine_page_requests_reset(QrnicEngine *e)
{
    groups_answer(e, QRNIC_PAGE_ANSWER_RESUME);
}

bool qrnic_engine_page_response(QrnicEngine *e, uint32_t pasid, uint16_t group,
                                QrnicPageResponse response)
{
    QrnicPageRequests *r = e->qps->requests;
    PageGroup *g = &r->group[group % QRNIC_PAGE_GROUPS];
    QrnicCounterSet *before = qrnic_charge_to(e, NULL);
    bool expected = group < QRNIC_PAGE_GROUPS && g->used && !g->answered &&
                    g->pasid == pasid;

    trace_qrnic_page_response(e->config.name, group, pasid, response, expected);
    if (!expected) {
        qrnic_add(e, QRNIC_COUNTER_PAGE_RESPONSES_UNEXPECTED, 1);
    } else if (response == QRNIC_PAGE_RESPONSE_SUCCESS) {
        qrnic_add(e, QRNIC_COUNTER_PAGE_RESPONSES_SUCCESS, 1);
        group_answer(r, g, QRNIC_PAGE_ANSWER_RESUME);
        qrnic_wake(e);
    } else if (response == QRNIC_PAGE_RESPONSE_INVALID) {
        qrnic_add(e, QRNIC_COUNTER_PAGE_RESPONSES_INVALID, 1);
        /*
         * The access may not need all pages of the group, for example if the
         * buffer is longer than the message. So only software can reject it.
         */
        group_answer(r, g, g->pages > 1 ? QRNIC_PAGE_ANSWER_EVENT :
                                          QRNIC_PAGE_ANSWER_REJECT);
        qrnic_wake(e);
    } else {
        /* The IOMMU answers no further group. */
        qrnic_add(e, QRNIC_COUNTER_PAGE_RESPONSES_FAILURE, 1);
        r->limit = 0;
        groups_answer(e, QRNIC_PAGE_ANSWER_REJECT);
    }
    qrnic_charge_to(e, before);
    return expected;
}
