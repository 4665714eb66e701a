/*
 * qrnic: doorbells that arrive as events (ioeventfd)
 *
 * With the property ioeventfd, KVM handles a doorbell write inside the kernel
 * and signals an event for its page. An event has no value, so the engine
 * checks all queues of the page; their records have the producer indexes. The
 * main loop calls page_rung(), and the bottom half calls
 * qrnic_doorbell_events_process(). Pages with an event are in "rung" between
 * the two calls.
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

/*
 * Maximum number of pages, because each page needs a descriptor and slows down
 * each mapping of the BAR
 */
#define MAX_PAGES 128

/*
 * Doorbells that need no value. All others have a value that matters, or a
 * whole WQE.
 */
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
    bool plugged;               /* registered in the BAR of the doorbells */
} QrnicDoorbellEvents;

static void page_rung(EventNotifier *notifier)
{
    PageEvent *event = container_of(notifier, PageEvent, notifier);
    QrnicDevice *d = event->device;

    /*
     * The bottom half then handles all events of this iteration of the main
     * loop at once.
     */
    if (event_notifier_test_and_clear(notifier)) {
        set_bit(event - d->events->page, d->events->rung);
        qrnic_kick(d);
    }
}

/*
 * Collects events that the main loop has not handled yet, because older
 * doorbells must come before a command.
 */
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

    /*
     * d->events is read in each iteration, because reporting a guest error may
     * unplug the device.
     */
    while ((events = d->events) &&
           !bitmap_empty(events->rung, events->pages)) {
        unsigned page = find_first_bit(events->rung, events->pages);

        clear_bit(page, events->rung);
        qrnic_doorbell_event(d->engine, page);
    }
}

/* Drops the events, because they were sent to the device before the reset. */
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
