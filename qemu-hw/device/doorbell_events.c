/*
 * qrnic: doorbells that come as events (ioeventfd): KVM takes the write of a
 * guest's processor without leaving the kernel. An event has no value and says
 * the page only, so all queues of the page are looked at; their records say
 * the rest.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/event_notifier.h"
#include "qemu/main-loop.h"
#include "trace.h"
#include "device/parts.h"

/* A descriptor each, and to map or unmap the BAR takes a while for each. */
#define MAX_PAGES 128

/* The others say more than "look": a value that counts, or a whole WQE */
static const unsigned offsets[] = { QRNIC_DB_SQ, QRNIC_DB_CQ_ARM };

typedef struct PageEvent {
    QrnicDevice *device;
    EventNotifier notifier;
} PageEvent;

typedef struct QrnicDoorbellEvents {
    unsigned pages;
    PageEvent page[MAX_PAGES];
    GPollFD poll[MAX_PAGES];
    DECLARE_BITMAP(rung, MAX_PAGES);
    bool plugged;               /* into the doorbells' BAR */
} QrnicDoorbellEvents;

static void page_rung(EventNotifier *notifier)
{
    PageEvent *event = container_of(notifier, PageEvent, notifier);
    QrnicDevice *d = event->device;

    /* One turn of the device for all that this pass of the main loop finds */
    if (event_notifier_test_and_clear(notifier)) {
        set_bit(event - d->events->page, d->events->rung);
        qrnic_kick(d);
    }
}

/* Also those that the main loop has not come to */
bool qrnic_doorbell_events_collect(QrnicDevice *d)
{
    QrnicDoorbellEvents *events = d->events;

    if (!events) {
        return false;
    }
    if (g_poll(events->poll, events->pages, 0) > 0) {
        for (unsigned i = 0; i < events->pages; i++) {
            if (events->poll[i].revents &&
                event_notifier_test_and_clear(&events->page[i].notifier)) {
                set_bit(i, events->rung);
            }
        }
    }
    return !bitmap_empty(events->rung, events->pages);
}

void qrnic_doorbell_events_process(QrnicDevice *d)
{
    QrnicDoorbellEvents *events;

    /* What is told of a wrong one may unplug the device. */
    while ((events = d->events) &&
           !bitmap_empty(events->rung, events->pages)) {
        unsigned page = find_first_bit(events->rung, events->pages);

        clear_bit(page, events->rung);
        qrnic_doorbell_event(d->engine, page);
    }
}

/* Those of a device that was reset are nobody's. */
void qrnic_doorbell_events_reset(QrnicDevice *d)
{
    if (qrnic_doorbell_events_collect(d)) {
        bitmap_zero(d->events->rung, d->events->pages);
    }
}

static void doorbells_plug(QrnicDevice *d,
                           void (*plug)(MemoryRegion *mr, hwaddr addr,
                                        unsigned size, bool match_data,
                                        uint64_t data, EventNotifier *e))
{
    memory_region_transaction_begin();
    for (unsigned i = 0; i < d->events->pages; i++) {
        for (unsigned j = 0; j < ARRAY_SIZE(offsets); j++) {
            plug(&d->bar_doorbell, i * QRNIC_DB_PAGE_SIZE + offsets[j],
                 QRNIC_DOORBELL_BYTES, false, 0, &d->events->page[i].notifier);
        }
    }
    memory_region_transaction_commit();
}

bool qrnic_doorbell_events_init(QrnicDevice *d, Error **errp)
{
    uint32_t pages = d->config.db_pages;
    QrnicDoorbellEvents *events;
    int err;

    if (!d->ioeventfd) {
        return true;
    }
    if (pages > MAX_PAGES) {
        error_setg(errp, "qrnic: property 'doorbell-pages' is %" PRIu32
                   ", must be 2 to %u with 'ioeventfd'", pages, MAX_PAGES);
        return false;
    }
    events = d->events = g_new0(QrnicDoorbellEvents, 1);
    for (; events->pages < pages; events->pages++) {
        PageEvent *event = &events->page[events->pages];

        err = event_notifier_init(&event->notifier, 0);
        if (err) {
            error_setg_errno(errp, -err, "qrnic: no event for doorbell page %u",
                             events->pages);
            qrnic_doorbell_events_cleanup(d);
            return false;
        }
        event->device = d;
        events->poll[events->pages] = (GPollFD) {
            .fd = event_notifier_get_fd(&event->notifier), .events = G_IO_IN,
        };
        event_notifier_set_handler(&event->notifier, page_rung);
    }
    doorbells_plug(d, memory_region_add_eventfd);
    events->plugged = true;
    return true;
}

void qrnic_doorbell_events_cleanup(QrnicDevice *d)
{
    QrnicDoorbellEvents *events = d->events;

    if (!events) {
        return;
    }
    if (events->plugged) {
        doorbells_plug(d, memory_region_del_eventfd);
    }
    d->events = NULL;
    for (unsigned i = 0; i < events->pages; i++) {
        event_notifier_set_handler(&events->page[i].notifier, NULL);
        event_notifier_cleanup(&events->page[i].notifier);
    }
    g_free(events);
}
