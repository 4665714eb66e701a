/*
 * qrnic qtest: shared virtual addressing with the IOMMU of QEMU
 *
 * The test is the driver of intel-iommu. Ordinary addresses are passed through,
 * and one PASID has a page table (VT-d specification 4.1, scalable mode).
 * QEMU has the necessary functions from 10.2 on; before, only the rejection of
 * the property is tested. Programmer's Reference, chapter Shared virtual
 * addressing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

#define QEMU_SERIES \
    (QEMU_VERSION_MAJOR * 100 + QEMU_VERSION_MINOR + (QEMU_VERSION_MICRO >= 50))
#define QEMU_HAS_ATS (QEMU_SERIES >= 1002)

/*
 * QEMU 10.2 rejects x-pasid-mode=on together with device-iotlb=on. The former
 * only reports PASIDs in a register of the IOMMU, which this test ignores.
 */
#define IOMMU "-device intel-iommu,x-scalable-mode=on,x-flts=on," \
              "device-iotlb=on,aw-bits=48 "

#define PAGE 4096u
#define PAGES 4u
#define START 0x1000ull         /* address of the users of the key */
#define VA 0x7f0000000000ull
#define PASID 7u
#define DEVFN QPCI_DEVFN(5, 0)
#define FAULT_VECTOR 2

/* Extended capabilities of the device */
#define PASID_CAP 0x1d0
#define ATS_CAP 0x1e0
#define PRI_CAP 0x1f0

/* Registers and bits of the IOMMU */
#define DMAR 0xfed90000ull
#define DMAR_ECAP 0x10
#define DMAR_GCMD 0x18
#define DMAR_RTADDR 0x20
#define DMAR_IQT 0x88
#define DMAR_IQA 0x90
#define DMAR_PQH 0xc0
#define DMAR_PQT 0xc8
#define DMAR_PQA 0xd0
#define DMAR_PRS 0xdc
#define ECAP_PRS (1ull << 29)
#define PRS_PPR 1u              /* Pending Page Request */
#define PRS_PRO 2u              /* Page Request Overflow */
#define GCMD_TE (1u << 31)
#define GCMD_SRTP (1u << 30)
#define GCMD_QIE (1u << 26)
#define INVALIDATE_PIOTLB 6ull
#define INVALIDATE_DEVICE_PIOTLB 8ull
#define PAGE_GROUP_RESPONSE 9ull

/* Response codes of a group of page requests */
#define RESPONSE_SUCCESS 0u
#define RESPONSE_INVALID 1u
#define RESPONSE_FAILURE 15u

/* Flags of an entry of the page table */
#define PTE_PRESENT 1ull
#define PTE_WRITE 2ull
#define PTE_USER 4ull
#define PTE_READ (PTE_PRESENT | PTE_USER)
#define PTE_ALL (PTE_READ | PTE_WRITE)

/* The rig, the IOMMU, and a process with a region */
typedef struct Process {
    Rig r;
    Eq eq;
    uint64_t queue;             /* of invalidations */
    unsigned tail;
    uint64_t table;             /* entries of the region's pages */
    uint64_t pages;             /* memory that software uses as pages */
    uint64_t requests;          /* queue of page requests */
    unsigned head;              /* next page request */
    uint32_t key, sequence;
} Process;

static void put(Process *x, uint64_t table, unsigned index, uint64_t value)
{
    qtest_writeq(x->r.d->qts, table + 8 * index, value);
}

static uint64_t table_new(Process *x)
{
    uint64_t table = memory_alloc(x->r.d, PAGE, PAGE);

    qtest_memset(x->r.d->qts, table, 0, PAGE);
    return table;
}

/* Makes the page table of the process, up to the entries of its region. */
static uint64_t page_table_new(Process *x)
{
    uint64_t top = table_new(x), table = top;

    for (unsigned level = 3; level; level--) {
        uint64_t next = table_new(x);

        put(x, table, VA >> (12 + 9 * level) & 511, next | PTE_ALL);
        table = next;
    }
    x->table = table;
    return top;
}

static void iommu_write(Process *x, unsigned offset, uint64_t value)
{
    qtest_writeq(x->r.d->qts, DMAR + offset, value);
}

static void iommu_command(Process *x, uint32_t value)
{
    qtest_writel(x->r.d->qts, DMAR + DMAR_GCMD, value);
}

/* Configures the IOMMU: pass-through without PASID, and a table for PASID. */
static void iommu_start(Process *x)
{
    uint64_t root = table_new(x), contexts = table_new(x);
    uint64_t directory = table_new(x), pasids = table_new(x);
    uint64_t context = contexts + DEVFN * 32, entry = pasids + PASID * 64;

    put(x, root, 0, contexts | 1);
    /* Present, device TLB, PASID, page requests */
    put(x, context, 0, directory | 1 | 1 << 2 | 1 << 3 | 1 << 4);
    put(x, directory, 0, pasids | 1);
    /* Entry 0 is that of requests without PASID: pass-through, 48 bits. */
    put(x, pasids, 0, 1 | 2 << 2 | 4 << 6);
    put(x, pasids, 1, 1);
    put(x, entry, 0, 1 | 2 << 2 | 1 << 6);
    put(x, entry, 1, 2);
    put(x, entry, 2, page_table_new(x));

    x->queue = table_new(x);
    iommu_write(x, DMAR_RTADDR, root | 1 << 10);
    iommu_command(x, GCMD_SRTP);
    iommu_write(x, DMAR_IQA, x->queue | 1 << 11);
    iommu_command(x, GCMD_QIE);
    iommu_command(x, GCMD_QIE | GCMD_TE);
}

/* Executes one descriptor of the invalidation queue. */
static void iommu_invalidate(Process *x, uint64_t lo, uint64_t hi)
{
    put(x, x->queue + 32 * x->tail, 0, lo);
    put(x, x->queue + 32 * x->tail, 1, hi);
    put(x, x->queue + 32 * x->tail, 2, 0);
    put(x, x->queue + 32 * x->tail, 3, 0);
    x->tail++;
    iommu_write(x, DMAR_IQT, 32 * x->tail);
}

/* Invalidates a page in the IOMMU and then in the device. */
static void page_invalidate(Process *x, unsigned page)
{
    iommu_invalidate(x, INVALIDATE_PIOTLB | 2 << 4 | 2 << 16 |
                        (uint64_t)PASID << 32, 0);
    iommu_invalidate(x, INVALIDATE_DEVICE_PIOTLB | DEVFN << 16 |
                        (uint64_t)PASID << 32, VA + page * PAGE);
}

static void page_set(Process *x, unsigned page, uint64_t entry)
{
    put(x, x->table, (VA >> 12 & 511) + page, entry);
}

/* Writes the control registers of both capabilities. */
static void capabilities_enable(Process *x, bool pasid, bool ats)
{
    Device *d = x->r.d;

    qtest_writew(d->qts, config_address(d, DEVFN, PASID_CAP + PCI_PASID_CTRL),
                 pasid ? PCI_PASID_CTRL_ENABLE : 0);
    qtest_writew(d->qts, config_address(d, DEVFN, ATS_CAP + PCI_ATS_CTRL),
                 ats ? PCI_ATS_CTRL_ENABLE : 0);
}

static void process_start_with(Process *x, const char *properties)
{
    *x = (Process) { 0 };
    machine_options = IOMMU;
    rig_start(&x->r, properties, NULL);
    machine_options = NULL;
    eq_create(x->r.d, &x->eq, QRNIC_EQ_PAGE_FAULT, FAULT_VECTOR, 4);
    eq_arm(x->r.d, &x->eq);
    x->pages = memory_alloc(x->r.d, PAGES * PAGE, PAGE);
    for (unsigned i = 0; i < PAGES; i++) {
        qtest_memset(x->r.d->qts, x->pages + i * PAGE, 0x11 * (i + 1), PAGE);
    }
    iommu_start(x);
    x->key = rig_key_create(&x->r, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_PASID,
        .access = ALL_RIGHTS, .variant = 9, .pd = x->r.pd, .start = START,
        .length = PAGES * PAGE, .table.root = VA, .pasid = PASID,
    });
}

static void process_start(Process *x)
{
    process_start_with(x, "shared-virtual=on");
}

static void post_write(Process *x, uint64_t offset, uint32_t length)
{
    rig_post_write(&x->r, x->key, START + offset, length);
}

/* Asserts the next page fault, and that it names the process. */
static void expect_fault(Process *x, unsigned side, uint64_t offset,
                         uint64_t length, uint32_t flags)
{
    uint8_t raw[QRNIC_PAGE_FAULT_BYTES];
    QrnicPageFault f;
    QrnicEqe e;

    interrupt_wait(x->r.d, FAULT_VECTOR);
    eq_wait(x->r.d, &x->eq, &e);
    eq_arm(x->r.d, &x->eq);
    g_assert_cmphex(e.object, ==, x->r.qp.number << 1 | side);
    command_ok(x->r.d, QRNIC_CMD_QUERY_PAGE_FAULT, e.object, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_page_fault_unpack(&f, raw));
    g_assert_cmphex(f.flags, ==, flags | QRNIC_PAGE_FAULT_PASID);
    g_assert_cmpuint(f.pasid, ==, PASID);
    g_assert_cmphex(f.address, ==, VA + offset);
    g_assert_cmpuint(f.length, ==, length);
    x->sequence = f.sequence;
}

static void resume(Process *x, unsigned side)
{
    fault_answer(x->r.d, QRNIC_CMD_RESUME_PAGE_FAULT,
                 x->r.qp.number << 1 | side, x->sequence);
}

/*
 * Tests that a send reads the pages of the process, from the cache, and from
 * another page after an invalidation.
 */
static void test_send(void)
{
    Process x;
    Device *d;

    process_start(&x);
    d = x.r.d;
    capabilities_enable(&x, true, true);
    page_set(&x, 1, x.pages | PTE_READ);
    post_write(&x, PAGE + 100, 200);
    rig_expect_write(&x.r, SQ_PSN, 0x11, 200);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_ATC_MISSES), ==, 1);
    post_write(&x, PAGE + 100, 200);
    rig_expect_write(&x.r, SQ_PSN + 1, 0x11, 200);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_ATC_MISSES), ==, 1);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_ATC_HITS), ==, 1);

    page_set(&x, 1, (x.pages + PAGE) | PTE_READ);
    page_invalidate(&x, 1);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_ATC_INVALIDATIONS_PAGES), ==, 1);
    post_write(&x, PAGE + 100, 200);
    rig_expect_write(&x.r, SQ_PSN + 2, 0x22, 200);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_ATC_MISSES), ==, 2);
    rig_stop(&x.r);
}

/* Tests that a send waits for an absent page, which software pages in. */
static void test_absent(void)
{
    Process x;

    process_start(&x);
    capabilities_enable(&x, true, true);
    post_write(&x, 2 * PAGE + 8, 100);
    expect_fault(&x, 0, 2 * PAGE + 8, 100, 0);
    wire_silent(x.r.d);
    page_set(&x, 2, (x.pages + 2 * PAGE) | PTE_READ);
    resume(&x, 0);
    rig_expect_write(&x.r, SQ_PSN, 0x33, 100);
    rig_stop(&x.r);
}

/*
 * Tests that a write of the peer reaches the memory of the process, but no page
 * that the process may only read.
 */
static void test_receive(void)
{
    uint8_t data[100], got[100];
    PeerPacket p, answer;
    Process x;

    process_start(&x);
    capabilities_enable(&x, true, true);
    memset(data, 0x5a, sizeof(data));
    p = peer_packet(&x.r.qp, RC_WRITE_ONLY, RQ_PSN);
    p.va = START + 3 * PAGE + 8;
    p.rkey = x.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    p.ack_request = true;
    page_set(&x, 3, (x.pages + PAGE) | PTE_READ);
    peer_send(x.r.d, &p);
    expect_fault(&x, 1, 3 * PAGE + 8, sizeof(data), QRNIC_PAGE_FAULT_WRITE);
    answer = peer_expect(x.r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(answer.syndrome & 0xe0, ==, AETH_RNR_NAK);
    page_set(&x, 3, (x.pages + PAGE) | PTE_ALL);
    resume(&x, 1);
    peer_send(x.r.d, &p);
    answer = peer_expect(x.r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(answer.syndrome & 0xe0, ==, AETH_ACK);
    qtest_memread(x.r.d->qts, x.pages + PAGE + 8, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    rig_stop(&x.r);
}

/*
 * Tests that a device whose capabilities are not enabled requests no
 * translation, and uses no earlier one.
 */
static void disabled(bool pasid, bool ats)
{
    QrnicCqe c;
    Process x;

    process_start(&x);
    page_set(&x, 0, x.pages | PTE_ALL);
    capabilities_enable(&x, true, true);
    post_write(&x, 0, 100);
    rig_expect_write(&x.r, SQ_PSN, 0x11, 100);
    capabilities_enable(&x, pasid, ats);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_ATC_INVALIDATIONS_ALL), ==,
                     1);
    peer_ack(x.r.d, &x.r.qp, SQ_PSN, AETH_ACK | 31, 1);
    cq_wait(x.r.d, &x.r.send_cq, &c);
    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    post_write(&x, 0, 100);
    rig_sent(&x.r, QRNIC_WC_LOC_PROT_ERR, 0, QRNIC_SYN_DMA);
    rig_stop(&x.r);
}

static void test_disabled(void)
{
    disabled(false, true);
    disabled(true, false);
}

/* Tests a PASID for which the device is too narrow. */
static void test_wide_pasid(void)
{
    Process x;

    process_start(&x);
    capabilities_enable(&x, true, true);
    x.key = rig_key_create(&x.r, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_PASID,
        .access = ALL_RIGHTS, .variant = 9, .pd = x.r.pd, .start = START,
        .length = PAGES * PAGE, .table.root = VA, .pasid = 1 << 12,
    });
    post_write(&x, 0, 100);
    rig_sent(&x.r, QRNIC_WC_LOC_PROT_ERR, 0, QRNIC_SYN_DMA);
    rig_stop(&x.r);
}

/* Tests the bytes of both capabilities, and that a reset disables them. */
static void test_capabilities(void)
{
    uint8_t exp;
    Process x;
    Device *d;

    process_start(&x);
    d = x.r.d;
    g_assert_cmphex(qtest_readl(d->qts, config_address(d, DEVFN, PASID_CAP)) &
                    0xfffff, ==, 1 << 16 | PCI_EXT_CAP_ID_PASID);
    g_assert_cmphex(qtest_readw(d->qts, config_address(d, DEVFN, PASID_CAP +
                                                       PCI_PASID_CAP)), ==,
                    12 << 8);
    g_assert_cmphex(qtest_readl(d->qts, config_address(d, DEVFN, ATS_CAP)) &
                    0xfffff, ==, 1 << 16 | PCI_EXT_CAP_ID_ATS);
    g_assert_cmphex(qtest_readw(d->qts, config_address(d, DEVFN, ATS_CAP +
                                                       PCI_ATS_CAP)), ==,
                    PCI_ATS_CAP_PAGE_ALIGNED);
    page_set(&x, 0, x.pages | PTE_ALL);
    capabilities_enable(&x, true, true);
    post_write(&x, 0, 100);
    rig_expect_write(&x.r, SQ_PSN, 0x11, 100);
    exp = qpci_find_capability(d->pci, PCI_CAP_ID_EXP, 0);
    qpci_config_writew(d->pci, exp + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
    g_assert_cmphex(qtest_readw(d->qts, config_address(d, DEVFN, PASID_CAP +
                                                       PCI_PASID_CTRL)), ==, 0);
    g_assert_cmphex(qtest_readw(d->qts, config_address(d, DEVFN, ATS_CAP +
                                                       PCI_ATS_CTRL)), ==, 0);
    /* An invalidation after the reset reaches a device without notifiers. */
    page_invalidate(&x, 0);
    rig_stop(&x.r);
}

/*
 * Page requests
 */

static uint64_t pri_register(Process *x, unsigned offset)
{
    return config_address(x->r.d, DEVFN, PRI_CAP + offset);
}

static unsigned pri_status(Process *x)
{
    return qtest_readw(x->r.d->qts, pri_register(x, PCI_PRI_STATUS));
}

static void pri_control(Process *x, unsigned value)
{
    qtest_writew(x->r.d->qts, pri_register(x, PCI_PRI_CTRL), value);
}

/*
 * Starts a device with at most 8 page requests, and enables them. Returns false
 * if the IOMMU has no page requests, and then the test ends.
 */
static bool requests_start(Process *x, bool required)
{
    process_start_with(x, "shared-virtual=on,page-requests=8");
    capabilities_enable(x, true, true);
    qtest_writel(x->r.d->qts, pri_register(x, PCI_PRI_ALLOC_REQ), 32);
    pri_control(x, PCI_PRI_CTRL_ENABLE);
    if (qtest_readq(x->r.d->qts, DMAR + DMAR_ECAP) & ECAP_PRS) {
        x->requests = table_new(x);
        iommu_write(x, DMAR_PQA, x->requests);
    } else if (required) {
        g_test_skip("the IOMMU of this QEMU has no page requests "
                    "(tests/guest/iommu/build-qemu)");
        rig_stop(&x->r);
        return false;
    }
    return true;
}

/* Asserts the next page request. Returns its group. */
static unsigned expect_request(Process *x, unsigned page, bool write, bool last)
{
    QTestState *qts = x->r.d->qts;
    const uint64_t at = x->requests + 32 * x->head++;
    uint64_t hi;

    while (qtest_readq(qts, DMAR + DMAR_PQT) < 32 * x->head) {
        qtest_clock_step(qts, 1000);
    }
    /* Type, PASID present, requester, PASID */
    g_assert_cmphex(qtest_readq(qts, at), ==, 1 | 1 << 8 | DEVFN << 16 |
                                              (uint64_t)PASID << 32);
    hi = qtest_readq(qts, at + 8);
    g_assert_cmphex(hi & ~0xff8ull, ==, (VA + page * PAGE) | 1 | write << 1 |
                                        last << 2);
    g_assert_cmphex(qtest_readl(qts, DMAR + DMAR_PRS), ==, PRS_PPR);
    return hi >> 3 & 0x1ff;
}

static void respond(Process *x, unsigned group, unsigned code)
{
    iommu_invalidate(x, PAGE_GROUP_RESPONSE | 1 << 4 | code << 12 |
                        DEVFN << 16 | (uint64_t)PASID << 32, group << 3);
}

/* Tests a send whose pages the IOMMU pages in, and its counters. */
static void test_request(void)
{
    unsigned group;
    Process x;
    Device *d;

    if (!requests_start(&x, true)) {
        return;
    }
    d = x.r.d;
    post_write(&x, 2 * PAGE - 50, 100);
    group = expect_request(&x, 1, false, false);
    g_assert_cmpuint(expect_request(&x, 2, false, true), ==, group);
    wire_silent(d);
    page_set(&x, 1, (x.pages + 2 * PAGE) | PTE_READ);
    page_set(&x, 2, (x.pages + 2 * PAGE) | PTE_READ);
    respond(&x, group, RESPONSE_SUCCESS);
    rig_expect_write(&x.r, SQ_PSN, 0x33, 100);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_PAGE_REQUESTS), ==, 2);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_PAGE_RESPONSES_SUCCESS), ==, 1);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_PAGE_FAULTS), ==, 1);
    g_assert_cmphex(pri_status(&x), ==, PCI_PRI_STATUS_PASID);

    /* The group is answered already, so a second response is unexpected. */
    respond(&x, group, RESPONSE_FAILURE);
    g_assert_cmphex(pri_status(&x), ==,
                    PCI_PRI_STATUS_PASID | PCI_PRI_STATUS_UPRGI);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_PAGE_RESPONSES_UNEXPECTED), ==,
                     1);
    qtest_writew(d->qts, pri_register(&x, PCI_PRI_STATUS),
                 PCI_PRI_STATUS_UPRGI);
    g_assert_cmphex(pri_status(&x), ==, PCI_PRI_STATUS_PASID);
    rig_stop(&x.r);
}

/* Tests that an error response fails the access, and its status bits. */
static void request_failed(unsigned code)
{
    const bool failed = code == RESPONSE_FAILURE;
    Process x;

    if (!requests_start(&x, true)) {
        return;
    }
    post_write(&x, 8, 100);
    respond(&x, expect_request(&x, 0, false, true), code);
    rig_sent(&x.r, QRNIC_WC_LOC_PROT_ERR, 0, QRNIC_SYN_PAGE_FAULT);
    g_assert_cmphex(pri_status(&x), ==, PCI_PRI_STATUS_PASID |
                    (failed ? PCI_PRI_STATUS_RF | PCI_PRI_STATUS_STOPPED : 0));
    g_assert_cmpuint(counter(x.r.d, failed ?
                             QRNIC_COUNTER_PAGE_RESPONSES_FAILURE :
                             QRNIC_COUNTER_PAGE_RESPONSES_INVALID), ==, 1);
    rig_stop(&x.r);
}

static void test_request_failed(void)
{
    request_failed(RESPONSE_INVALID);
    request_failed(RESPONSE_FAILURE);
}

/* Tests that Stopped is set only after the last response, and Reset. */
static void test_request_stopped(void)
{
    unsigned group;
    Process x;

    if (!requests_start(&x, true)) {
        return;
    }
    post_write(&x, 8, 100);
    group = expect_request(&x, 0, false, true);
    pri_control(&x, 0);
    g_assert_cmphex(pri_status(&x), ==, PCI_PRI_STATUS_PASID);
    /* The page is still absent. The device reports it by an event now. */
    respond(&x, group, RESPONSE_SUCCESS);
    g_assert_cmphex(pri_status(&x), ==,
                    PCI_PRI_STATUS_PASID | PCI_PRI_STATUS_STOPPED);
    expect_fault(&x, 0, 8, 100, 0);

    pri_control(&x, PCI_PRI_CTRL_ENABLE);
    resume(&x, 0);
    group = expect_request(&x, 0, false, true);
    pri_control(&x, PCI_PRI_CTRL_RESET);
    g_assert_cmphex(qtest_readw(x.r.d->qts, pri_register(&x, PCI_PRI_CTRL)),
                    ==, 0);
    g_assert_cmphex(pri_status(&x), ==,
                    PCI_PRI_STATUS_PASID | PCI_PRI_STATUS_STOPPED);
    expect_fault(&x, 0, 8, 100, 0);
    page_set(&x, 0, x.pages | PTE_READ);
    resume(&x, 0);
    rig_expect_write(&x.r, SQ_PSN, 0x11, 100);
    rig_stop(&x.r);
}

/*
 * Tests page requests that the IOMMU does not accept, because its queue is full
 * or because it has none. The device then reports page faults by events.
 */
static void test_request_rejected(void)
{
    Process x;
    Device *d;

    requests_start(&x, false);
    d = x.r.d;
    if (x.requests) {
        iommu_write(&x, DMAR_PQH, 32);
    }
    post_write(&x, 2 * PAGE + 8, 100);
    expect_fault(&x, 0, 2 * PAGE + 8, 100, 0);
    if (x.requests) {
        g_assert_cmphex(qtest_readl(d->qts, DMAR + DMAR_PRS), ==, PRS_PRO);
    }
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_PAGE_REQUESTS_REJECTED), ==, 1);
    page_set(&x, 2, (x.pages + 2 * PAGE) | PTE_READ);
    resume(&x, 0);
    rig_expect_write(&x.r, SQ_PSN, 0x33, 100);
    rig_stop(&x.r);
}

/* Tests the bytes of the capability, and that a reset disables it. */
static void test_request_capability(void)
{
    uint8_t exp;
    Process x;
    Device *d;

    requests_start(&x, false);
    d = x.r.d;
    g_assert_cmphex(qtest_readl(d->qts, pri_register(&x, 0)) & 0xfffff, ==,
                    1 << 16 | PCI_EXT_CAP_ID_PRI);
    g_assert_cmphex(qtest_readl(d->qts, pri_register(&x, PCI_PRI_MAX_REQ)), ==,
                    8);
    g_assert_cmphex(qtest_readl(d->qts, pri_register(&x, PCI_PRI_ALLOC_REQ)),
                    ==, 32);
    g_assert_cmphex(qtest_readl(d->qts, pri_register(&x, PCI_PRI_CTRL)), ==,
                    (uint32_t)PCI_PRI_STATUS_PASID << 16 | PCI_PRI_CTRL_ENABLE);
    exp = qpci_find_capability(d->pci, PCI_CAP_ID_EXP, 0);
    qpci_config_writew(d->pci, exp + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
    g_assert_cmphex(qtest_readl(d->qts, pri_register(&x, PCI_PRI_CTRL)), ==,
                    (uint32_t)(PCI_PRI_STATUS_PASID | PCI_PRI_STATUS_STOPPED)
                    << 16);
    g_assert_cmphex(qtest_readl(d->qts, pri_register(&x, PCI_PRI_ALLOC_REQ)),
                    ==, 0);
    rig_stop(&x.r);
}

/* Tests the property without a suitable IOMMU. */
static void test_refused(void)
{
    device_refused("shared-virtual=on", QEMU_HAS_ATS ?
                   "'shared-virtual' requires an IOMMU" :
                   "'shared-virtual' requires QEMU 10.2 or newer");
    device_refused("page-requests=8",
                   "'page-requests' requires 'shared-virtual'");
}

void add_shared_virtual_tests(void)
{
    qtest_add_func("qrnic/shared-virtual/refused", test_refused);
    /* The IOMMU and the device are in one process. */
    if (!QEMU_HAS_ATS || in_process()) {
        return;
    }
    qtest_add_func("qrnic/shared-virtual/send", test_send);
    qtest_add_func("qrnic/shared-virtual/absent", test_absent);
    qtest_add_func("qrnic/shared-virtual/receive", test_receive);
    qtest_add_func("qrnic/shared-virtual/disabled", test_disabled);
    qtest_add_func("qrnic/shared-virtual/wide-pasid", test_wide_pasid);
    qtest_add_func("qrnic/shared-virtual/capabilities", test_capabilities);
    qtest_add_func("qrnic/shared-virtual/request", test_request);
    qtest_add_func("qrnic/shared-virtual/request-failed", test_request_failed);
    qtest_add_func("qrnic/shared-virtual/request-stopped",
                   test_request_stopped);
    qtest_add_func("qrnic/shared-virtual/request-rejected",
                   test_request_rejected);
    qtest_add_func("qrnic/shared-virtual/request-capability",
                   test_request_capability);
}
