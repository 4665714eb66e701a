/*
 * qrnic qtest: virtual functions: capability, BARs, resets, and the path
 * between functions
 *
 * The test is the driver of all functions. The BARs of the virtual functions
 * are set through the SR-IOV capability, because virtual functions have no
 * such registers. PCI Express Base Specification 5.0, chapter 9; Programmer's
 * Reference, chapter Virtual functions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

#define ARI 0x160
#define SRIOV 0x170
#define VFS 4

/* Addresses of the BARs of virtual function 0, below those of libqos */
#define VF_CONTROL 0xd0000000u
#define VF_MSIX 0xd0100000u
#define VF_DOORBELLS 0xd0200000u
#define VF_MEMORY 0xd0400000u

/* Value that a read returns at an address without BAR */
#define NO_BAR 0

/* Memory of the machine from which virtual function i allocates */
#define VF_FREE(i) (0x03000000 + (i) * 0x00800000)

static uint32_t extended(Device *pf, unsigned devfn, unsigned offset)
{
    return qtest_readl(pf->qts, config_address(pf, devfn, offset));
}

static void sriov_writel(Device *pf, unsigned offset, uint32_t value)
{
    qtest_writel(pf->qts, config_address(pf, pf->devfn, SRIOV + offset), value);
}

static void sriov_writew(Device *pf, unsigned offset, uint16_t value)
{
    qtest_writew(pf->qts, config_address(pf, pf->devfn, SRIOV + offset), value);
}

/* Returns the physical function, or NULL if the test is skipped. */
static Device *pf_start(void)
{
    if (skip_in_process("vfio-user has no virtual functions")) {
        return NULL;
    }
    if (!g_strcmp0(g_getenv("QRNIC_TEST_WIRE"), "cable")) {
        g_test_skip("a cable excludes virtual functions");
        return NULL;
    }
    return device_start("vfs=4,mac=52:54:00:12:34:56");
}

static void vfs_enable(Device *pf, unsigned count)
{
    sriov_writel(pf, PCI_SRIOV_BAR, VF_CONTROL);
    sriov_writel(pf, PCI_SRIOV_BAR + 4 * QRNIC_BAR_MSIX, VF_MSIX);
    sriov_writel(pf, PCI_SRIOV_BAR + 4 * QRNIC_BAR_DOORBELL, VF_DOORBELLS);
    sriov_writel(pf, PCI_SRIOV_BAR + 4 * QRNIC_BAR_MEMORY, VF_MEMORY);
    sriov_writew(pf, PCI_SRIOV_NUM_VF, count);
    sriov_writew(pf, PCI_SRIOV_CTRL, PCI_SRIOV_CTRL_VFE | PCI_SRIOV_CTRL_MSE);
}

static QPCIBar bar_of(uint64_t first, uint64_t size, unsigned number)
{
    return (QPCIBar) { .addr = first + number * size, .is_io = false };
}

/* Enables memory, DMA, MSI-X and commands of a virtual function. */
static void vf_prepare(Device *vf)
{
    QPCIDevice *pci = vf->pci;
    uint8_t msix = qpci_find_capability(pci, PCI_CAP_ID_MSIX, 0);

    qpci_config_writew(pci, PCI_COMMAND,
                       PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    qpci_config_writew(pci, msix + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE);
    for (unsigned i = 0; i < VECTORS; i++) {
        vf->msi[i] = memory_alloc(vf, 4, 4);
        message_set(vf, i, vf->msi[i], i + 1);
        qpci_io_writel(pci, pci->msix_table_bar,
                       i * PCI_MSIX_ENTRY_SIZE + PCI_MSIX_ENTRY_VECTOR_CTRL, 0);
    }
    device_enable_commands(vf, 3);
}

/* Opens an enabled virtual function. */
static Device *vf_open(Device *pf, unsigned number)
{
    Device *vf = g_new0(Device, 1);
    QPCIDevice *pci = g_new0(QPCIDevice, 1);
    uint32_t pages = 256 / VFS;

    *vf = (Device) {
        .qts = pf->qts, .home = pf->home, .bus = pf->bus, .wire = pf->wire,
        .pci = pci, .devfn = pf->devfn + 1 + number,
        .control = bar_of(VF_CONTROL, QRNIC_BAR_CONTROL_SIZE, number),
        .doorbells = bar_of(VF_DOORBELLS, pages * QRNIC_DB_PAGE_SIZE, number),
        .doorbells_size = pages * QRNIC_DB_PAGE_SIZE,
        .free = VF_FREE(number),
    };
    *pci = (QPCIDevice) {
        .bus = pf->bus, .devfn = vf->devfn, .msix_enabled = true,
        .msix_table_bar = bar_of(VF_MSIX, QRNIC_BAR_MSIX_SIZE, number),
    };
    vf_prepare(vf);
    return vf;
}

static void vf_close(Device *vf)
{
    g_free(vf->pci);
    g_free(vf);
}

/* Capability of the default: extended capabilities end with AER and DSN. */
static void test_absent(void)
{
    Device *d;

    if (skip_in_process("vfio-user passes no extended capability on")) {
        return;
    }
    d = device_start("");
    g_assert_cmphex(extended(d, d->devfn, 0x150) >> 20, ==, 0);
    g_assert_cmphex(extended(d, d->devfn, ARI), ==, 0);
    g_assert_cmphex(extended(d, d->devfn, SRIOV), ==, 0);
    device_stop(d);
}

/* Tests each register of the capability (9.3.3). */
static void test_capability(void)
{
    Device *pf = pf_start();
    const struct { unsigned offset; uint32_t value; } expected[] = {
        { 0x00, 0x00010010 },   /* ID 0x10, version 1, the last one */
        { 0x04, 0 },            /* no migration */
        { 0x08, 0 },            /* control, status */
        { 0x0c, VFS << 16 | VFS },      /* InitialVFs, TotalVFs */
        { 0x10, 0 },            /* NumVFs, Function Dependency Link */
        { 0x14, 1 << 16 | 1 },  /* First VF Offset, VF Stride */
        { 0x18, QRNIC_PCI_VF_DEVICE_ID << 16 },
        { 0x1c, 0x553 },        /* Supported Page Sizes */
        { 0x20, 1 },            /* System Page Size: 4 KiB */
        { 0x24, 0 }, { 0x28, 0 },       /* 32-bit BARs 0 and 1 */
        { 0x2c, 0xc }, { 0x30, 0 },     /* 64-bit prefetchable BAR 2 */
        { 0x34, 0xc }, { 0x38, 0 },     /* 64-bit prefetchable BAR 4 */
        { 0x3c, 0 },            /* VF Migration State Array */
    };

    if (!pf) {
        return;
    }
    g_assert_cmphex(extended(pf, pf->devfn, ARI), ==, SRIOV << 20 | 0x1000e);
    for (unsigned i = 0; i < ARRAY_SIZE(expected); i++) {
        g_assert_cmphex(extended(pf, pf->devfn, SRIOV + expected[i].offset), ==,
                        expected[i].value);
    }
    sriov_writel(pf, PCI_SRIOV_BAR, 0xffffffff);
    sriov_writel(pf, PCI_SRIOV_BAR + 4, 0xffffffff);
    sriov_writel(pf, PCI_SRIOV_BAR + 8, 0xffffffff);
    sriov_writel(pf, PCI_SRIOV_BAR + 16, 0xffffffff);
    g_assert_cmphex(extended(pf, pf->devfn, SRIOV + 0x24), ==,
                    -QRNIC_BAR_CONTROL_SIZE);
    g_assert_cmphex(extended(pf, pf->devfn, SRIOV + 0x28), ==,
                    -QRNIC_BAR_MSIX_SIZE);
    g_assert_cmphex(extended(pf, pf->devfn, SRIOV + 0x2c), ==,
                    -(256 / VFS * QRNIC_DB_PAGE_SIZE) | 0xc);
    g_assert_cmphex(extended(pf, pf->devfn, SRIOV + 0x34), ==,
                    -((1u << 20) / VFS) | 0xc);
    device_stop(pf);
}

static void expect_mac(Device *d, uint8_t first)
{
    g_assert_cmphex(reg_read(d, QRNIC_REG_MAC_LO), ==, 0x12005400 | first);
    g_assert_cmphex(reg_read(d, QRNIC_REG_MAC_HI), ==, 0x5634);
}

/* Returns the capability bits of the function, and its limits. */
static QrnicDeviceAttr device_query(Device *d)
{
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES];
    QrnicDeviceAttr attr;

    command_ok(d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    qrnic_device_attr_unpack(&attr, raw);
    return attr;
}

/* Tests that the functions exist while VF Enable is 1, each with its BARs. */
static void test_enable(void)
{
    Device *pf = pf_start(), *vf[VFS];
    QrnicDeviceAttr of_pf, of_vf;

    if (!pf) {
        return;
    }
    g_assert_cmphex(extended(pf, pf->devfn + 1, 0), ==, 0xffffffff);
    vfs_enable(pf, 3);
    of_pf = device_query(pf);
    g_assert_true(of_pf.capabilities & QRNIC_CAP_SRIOV);
    g_assert_false(of_pf.capabilities & QRNIC_CAP_VF);
    expect_mac(pf, 0x52);
    for (unsigned i = 0; i < 3; i++) {
        vf[i] = vf_open(pf, i);
        g_assert_cmphex(reg_read(vf[i], QRNIC_REG_ID), ==, QRNIC_ID_MAGIC);
        g_assert_cmpuint(reg_read(vf[i], QRNIC_REG_DB_PAGES), ==, 256 / VFS);
        g_assert_cmpuint(reg_read(vf[i], QRNIC_REG_VECTORS), ==, VECTORS);
        expect_mac(vf[i], 0x52 ^ (i + 1) << 2);
        of_vf = device_query(vf[i]);
        g_assert_cmphex(of_vf.capabilities, ==,
                        (of_pf.capabilities & ~(uint64_t)QRNIC_CAP_SRIOV) |
                        QRNIC_CAP_VF);
        g_assert_cmpuint(of_vf.max_qp, ==, of_pf.max_qp / VFS);
        g_assert_cmpuint(of_vf.max_dm_size, ==, of_pf.max_dm_size / VFS);
    }
    /* The fourth function is not enabled. */
    g_assert_cmphex(extended(pf, pf->devfn + 4, 0), ==, 0xffffffff);
    g_assert_cmphex(qtest_readl(pf->qts, VF_CONTROL +
                                3 * QRNIC_BAR_CONTROL_SIZE), ==, NO_BAR);
    sriov_writew(pf, PCI_SRIOV_CTRL, 0);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmphex(extended(pf, vf[i]->devfn, 0), ==, 0xffffffff);
        g_assert_cmphex(reg_read(vf[i], QRNIC_REG_ID), ==, NO_BAR);
        vf_close(vf[i]);
    }
    expect_mac(pf, 0x52);
    device_stop(pf);
}

/* One function with the objects of a connection */
typedef struct Function {
    Device *d;
    uint32_t pd, page;
    Eq eq;
    Cq cq;
    Mr mr;
    Qp qp;
    uint8_t mac[6], gid[16];
} Function;

static void function_start(Function *f, Device *d, uint8_t host)
{
    const uint8_t ip4[] = { 10, 0, 0, host };
    uint8_t raw[QRNIC_GID_ENTRY_BYTES];
    QrnicGidEntry entry = { .flags = QRNIC_GID_VALID };

    f->d = d;
    eq_create(d, &f->eq, QRNIC_EQ_COMPLETION, 1, 4);
    f->pd = command_ok(d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
    f->page = command_ok(d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
    cq_create(d, &f->cq, &f->eq, f->page, 4);
    mr_create(d, &f->mr, f->pd, RIG_MR_START, 0x4000, ALL_RIGHTS);
    qp_create(d, &f->qp, QRNIC_QPT_RC, f->pd, f->page, &f->cq, &f->cq, 4, 3, 0);
    stl_le_p(f->mac, reg_read(d, QRNIC_REG_MAC_LO));
    stw_le_p(f->mac + 4, reg_read(d, QRNIC_REG_MAC_HI));
    gid_of_ip4(f->gid, ip4);
    memcpy(entry.gid, f->gid, 16);
    memcpy(entry.mac, f->mac, 6);
    qrnic_gid_entry_pack(raw, &entry);
    command_ok(d, QRNIC_CMD_SET_GID, 0, raw, sizeof(raw), NULL, 0);
}

static void function_connect(Function *f, const Function *peer)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.rq_psn = attr.sq_psn;
    attr.dest_qpn = peer->qp.number;
    memcpy(attr.av.dmac, peer->mac, 6);
    memcpy(attr.av.dgid, peer->gid, 16);
    qp_connect(f->d, &f->qp, &attr);
}

/* Writes data of one function into the memory of the other one. */
static void transfer(Function *from, Function *to, uint32_t seed)
{
    const uint32_t length = 5000;
    g_autofree uint8_t *data = g_malloc(length), *got = g_malloc(length);
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);
    QrnicCqe cqe;

    for (unsigned i = 0; i < length; i++) {
        data[i] = i * seed >> 3;
    }
    qtest_memwrite(from->d->qts, from->mr.memory, data, length);
    wqe_remote(&w, to->mr.start + 0x2000, to->mr.key);
    wqe_data(&w, from->mr.start, length, from->mr.key);
    sq_post(from->d, &from->qp, &w);
    cq_wait(from->d, &from->cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "SUCCESS");
    qtest_memread(to->d->qts, to->mr.memory + 0x2000, got, length);
    g_assert_cmpmem(got, length, data, length);
}

/* Tests the path between virtual functions, and to the physical function. */
static void test_traffic(void)
{
    Device *pf = pf_start();
    Function f[3];

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    function_start(&f[0], pf, 1);
    function_start(&f[1], vf_open(pf, 0), 2);
    function_start(&f[2], vf_open(pf, 3), 3);
    function_connect(&f[1], &f[2]);
    function_connect(&f[2], &f[1]);
    transfer(&f[1], &f[2], 7);
    transfer(&f[2], &f[1], 11);
    g_assert_cmpuint(counter(pf, QRNIC_COUNTER_ROCE_RX_PACKETS), ==, 0);
    /* The frames do not leave the adapter. */
    wire_silent(pf);
    qp_modify(f[1].d, &f[1].qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    });
    f[1].qp.sq_producer = 0;
    function_connect(&f[1], &f[0]);
    function_connect(&f[0], &f[1]);
    transfer(&f[0], &f[1], 13);
    g_assert_cmpuint(counter(f[1].d, QRNIC_COUNTER_RX_WRITE), ==, 2);
    vf_close(f[1].d);
    vf_close(f[2].d);
    device_stop(pf);
}

/*
 * Tests that a doorbell of one function has no effect on a queue pair with the
 * same number in another function.
 */
static void test_doorbell(void)
{
    Device *pf = pf_start(), *vf;
    Function a, b;
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    QrnicCqe cqe;

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    vf = vf_open(pf, 0);
    function_start(&a, pf, 1);
    a.qp.sq_producer = 0;
    qp_connect(pf, &a.qp, NULL);
    sq_write(pf, &a.qp, &w);
    sq_publish(pf, &a.qp);
    /* The virtual function has no such page, and then no such queue pair. */
    doorbell(vf, a.page, QRNIC_DB_SQ, a.qp.number, a.qp.sq_producer, 0);
    counter_wait(vf, QRNIC_COUNTER_GE_DOORBELL_PAGE, 1);
    b.page = command_ok(vf, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
    g_assert_cmpuint(b.page, ==, a.page);
    doorbell(vf, a.page, QRNIC_DB_SQ, a.qp.number, a.qp.sq_producer, 0);
    counter_wait(vf, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 1);
    settle(pf);
    g_assert_false(cq_poll(pf, &a.cq, &cqe));
    g_assert_cmpuint(counter(pf, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    sq_ring(pf, &a.qp);
    cq_wait(pf, &a.cq, &cqe);
    vf_close(vf);
    device_stop(pf);
}

/* Tests that the reset of a virtual function affects no other function. */
static void test_flr(void)
{
    Device *pf = pf_start();
    Function f[2];
    uint8_t exp;

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    function_start(&f[0], vf_open(pf, 0), 1);
    function_start(&f[1], vf_open(pf, 1), 2);
    function_connect(&f[0], &f[1]);
    function_connect(&f[1], &f[0]);
    transfer(&f[0], &f[1], 3);
    reg_write(pf, QRNIC_REG_SCRATCH, 0x11111111);
    reg_write(f[0].d, QRNIC_REG_SCRATCH, 0x22222222);
    reg_write(f[1].d, QRNIC_REG_SCRATCH, 0x33333333);

    exp = qpci_find_capability(f[1].d->pci, PCI_CAP_ID_EXP, 0);
    qpci_config_writew(f[1].d->pci, exp + PCI_EXP_DEVCTL,
                       PCI_EXP_DEVCTL_BCR_FLR);
    g_assert_cmphex(qpci_config_readw(f[1].d->pci, PCI_COMMAND), ==, 0);
    g_assert_cmphex(reg_read(f[1].d, QRNIC_REG_ID), ==, NO_BAR);
    g_assert_cmphex(reg_read(pf, QRNIC_REG_SCRATCH), ==, 0x11111111);
    g_assert_cmphex(reg_read(f[0].d, QRNIC_REG_SCRATCH), ==, 0x22222222);
    g_assert_cmphex(reg_read(f[0].d, QRNIC_REG_STATUS) &
                    QRNIC_REG_STATUS_CMD_ENABLED_MASK, !=, 0);

    vf_prepare(f[1].d);
    g_assert_cmphex(reg_read(f[1].d, QRNIC_REG_SCRATCH), ==, 0);
    g_assert_cmpuint(counter(f[1].d, QRNIC_COUNTER_RX_WRITE), ==, 0);
    /* Both ends connect again, and the traffic continues. */
    function_start(&f[1], f[1].d, 2);
    qp_modify(f[0].d, &f[0].qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    });
    f[0].qp.sq_producer = 0;
    function_connect(&f[0], &f[1]);
    function_connect(&f[1], &f[0]);
    transfer(&f[1], &f[0], 5);
    vf_close(f[0].d);
    vf_close(f[1].d);
    device_stop(pf);
}

static QrnicVfAttr vf_query(Device *pf, uint32_t number)
{
    uint8_t raw[QRNIC_VF_ATTR_BYTES];
    QrnicVfAttr attr;

    command_ok(pf, QRNIC_CMD_QUERY_VF, number, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_vf_attr_unpack(&attr, raw));
    return attr;
}

static void vf_set(Device *pf, uint32_t number, const QrnicVfCtx *ctx)
{
    uint8_t raw[QRNIC_VF_CTX_BYTES];

    qrnic_vf_ctx_pack(raw, ctx);
    command_ok(pf, QRNIC_CMD_SET_VF, number, raw, sizeof(raw), NULL, 0);
}

static void vf_set_fails(Device *d, uint32_t number, const QrnicVfCtx *ctx,
                         unsigned status, uint32_t syndrome)
{
    uint8_t raw[QRNIC_VF_CTX_BYTES];

    qrnic_vf_ctx_pack(raw, ctx);
    command_fails(d, QRNIC_CMD_SET_VF, number, raw, sizeof(raw), NULL, 0,
                  status, syndrome);
}

/* Tests that each member returns as it was set, and each check. */
static void test_config(void)
{
    Device *pf = pf_start(), *vf;
    const QrnicVfCtx set = {
        .mac = { 2, 1, 2, 3, 4, 5 }, .vlan = 100, .priority = 5,
        .flags = QRNIC_VFF_SPOOF_CHECK | QRNIC_VFF_TRUST,
        .link = QRNIC_VF_LINK_ENABLE, .max_rate = 200,
    };
    QrnicVfCtx bad = set;
    QrnicVfAttr attr;

    if (!pf) {
        return;
    }
    attr = vf_query(pf, 1);
    g_assert_cmpmem(attr.mac, 6, "\x5a\x54\x00\x12\x34\x56", 6);
    g_assert_cmpuint(attr.flags | attr.vlan | attr.priority | attr.max_rate, ==,
                     0);
    g_assert_cmpuint(attr.link, ==, QRNIC_VF_LINK_AUTO);
    g_assert_false(attr.state & QRNIC_VFS_ENABLED);
    vf_set(pf, 1, &set);
    vfs_enable(pf, VFS);
    vf = vf_open(pf, 1);
    attr = vf_query(pf, 1);
    g_assert_cmpmem(attr.mac, 6, set.mac, 6);
    g_assert_cmpuint(attr.vlan, ==, set.vlan);
    g_assert_cmpuint(attr.priority, ==, set.priority);
    g_assert_cmpuint(attr.flags, ==, set.flags);
    g_assert_cmpuint(attr.link, ==, set.link);
    g_assert_cmpuint(attr.max_rate, ==, set.max_rate);
    g_assert_cmpuint(attr.state, ==, QRNIC_VFS_ENABLED | QRNIC_VFS_LINK_UP);
    g_assert_cmphex(reg_read(vf, QRNIC_REG_MAC_LO), ==, 0x03020102);

    /* A new address is that of the function after its reset. */
    vf_set(pf, 1, &(QrnicVfCtx) { .link = QRNIC_VF_LINK_AUTO });
    g_assert_cmphex(reg_read(vf, QRNIC_REG_MAC_LO), ==, 0x03020102);
    reg_write(vf, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    expect_mac(vf, 0x5a);
    device_enable_commands(vf, 3);

    bad.mac[0] = 1;
    vf_set_fails(pf, 0, &bad, QRNIC_ST_BAD_PARAM, QRNIC_VF_CTX_MAC_OFFSET);
    memcpy(bad.mac, OUR_MAC, 6);
    vf_set_fails(pf, 0, &bad, QRNIC_ST_BAD_PARAM, QRNIC_VF_CTX_MAC_OFFSET);
    bad = set;
    bad.vlan = 4095;
    vf_set_fails(pf, 0, &bad, QRNIC_ST_BAD_PARAM, QRNIC_VF_CTX_VLAN_OFFSET);
    bad = set;
    bad.vlan = 0;
    vf_set_fails(pf, 0, &bad, QRNIC_ST_BAD_PARAM, QRNIC_VF_CTX_PRIORITY_OFFSET);
    bad = set;
    bad.link = 3;
    vf_set_fails(pf, 0, &bad, QRNIC_ST_BAD_PARAM, QRNIC_VF_CTX_LINK_OFFSET);
    vf_set_fails(pf, VFS, &set, QRNIC_ST_BAD_OBJECT, 0xffffffff);
    /* Only the physical function configures. */
    vf_set_fails(vf, 0, &set, QRNIC_ST_NOT_SUPPORTED, 0);
    command_fails(vf, QRNIC_CMD_QUERY_VF, 0, NULL, 0, NULL, QRNIC_VF_ATTR_BYTES,
                  QRNIC_ST_NOT_SUPPORTED, 0);
    command_fails(pf, QRNIC_CMD_QUERY_VF, VFS, NULL, 0, NULL,
                  QRNIC_VF_ATTR_BYTES, QRNIC_ST_BAD_OBJECT, 0xffffffff);
    vf_close(vf);
    device_stop(pf);
}

static void post_write(Function *f, uint32_t length)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, 0x1000, 0x100);
    wqe_data(&w, f->mr.start, length, f->mr.key);
    sq_post(f->d, &f->qp, &w);
}

/* Tests that a function that the switch has stopped sends after its reset. */
static void test_reset_stopped(void)
{
    Device *pf = pf_start(), *vf;
    uint8_t frame[9200];
    size_t len;
    Function f;

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    vf = vf_open(pf, 0);
    function_start(&f, vf, 1);
    qp_connect(vf, &f.qp, NULL);
    vf_set(pf, 0, &(QrnicVfCtx) { .max_rate = 1 });
    /* More frames than the queue to the switch has room for */
    for (unsigned i = 0; i < 8; i++) {
        post_write(&f, 0x4000);
    }
    settle(vf);
    reg_write(vf, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    WAIT_UNTIL(reg_read(vf, QRNIC_REG_STATUS) & QRNIC_REG_STATUS_READY_MASK,
               "the function does not become ready");
    clock_step(vf, 5ll * NANOSECONDS_PER_SECOND);
    device_enable_commands(vf, 3);
    vf_set(pf, 0, &(QrnicVfCtx) { 0 });
    function_start(&f, vf, 1);
    qp_connect(vf, &f.qp, NULL);
    post_write(&f, 64);
    do {
        len = wire_receive(pf, frame);
    } while (len > 1024);
    g_assert_cmpmem(frame + 6, 6, f.mac, 6);
    g_assert_cmpuint(counter(vf, QRNIC_COUNTER_TX_DROP_LINK), ==, 0);
    vf_close(vf);
    device_stop(pf);
}

/* Resets the machine, and prepares the physical function again. */
static void machine_reset(Device *pf)
{
    uint32_t bar[6];

    for (unsigned i = 0; i < 6; i++) {
        bar[i] = qpci_config_readl(pf->pci, PCI_BASE_ADDRESS_0 + 4 * i);
    }
    qtest_qmp_assert_success(pf->home, "{'execute': 'system_reset'}");
    qtest_qmp_eventwait(pf->home, "RESET");
    for (unsigned i = 0; i < 6; i++) {
        qpci_config_writel(pf->pci, PCI_BASE_ADDRESS_0 + 4 * i, bar[i]);
    }
    vf_prepare(pf);
}

/*
 * Tests that a function that a reset of the machine has disabled receives no
 * frames: frames to its address go to the wire.
 */
static void test_reset_machine(void)
{
    Device *pf = pf_start(), *vf;
    QrnicQpAttr attr = qp_default_attr();
    uint8_t frame[9200], mac[6];
    Function f;

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    vf = vf_open(pf, 2);
    stl_le_p(mac, reg_read(vf, QRNIC_REG_MAC_LO));
    stw_le_p(mac + 4, reg_read(vf, QRNIC_REG_MAC_HI));
    g_assert_true(vf_query(pf, 2).state & QRNIC_VFS_ENABLED);
    machine_reset(pf);
    g_assert_false(vf_query(pf, 2).state & QRNIC_VFS_ENABLED);
    function_start(&f, pf, 1);
    memcpy(attr.av.dmac, mac, 6);
    qp_connect(pf, &f.qp, &attr);
    post_write(&f, 64);
    wire_receive(pf, frame);
    g_assert_cmpmem(frame, 6, mac, 6);
    vf_close(vf);
    device_stop(pf);
}

/* Tests that frames for a function without bus mastering count as dropped. */
static void test_no_master(void)
{
    Device *pf = pf_start(), *vf;
    QrnicVfAttr attr;
    Function f[2];

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    vf = vf_open(pf, 1);
    function_start(&f[0], pf, 1);
    function_start(&f[1], vf, 2);
    function_connect(&f[0], &f[1]);
    qpci_config_writew(vf->pci, PCI_COMMAND, PCI_COMMAND_MEMORY);
    post_write(&f[0], 64);
    settle(pf);
    attr = vf_query(pf, 1);
    g_assert_cmpuint(attr.rx_frames, ==, 0);
    g_assert_cmpuint(attr.rx_bytes, ==, 0);
    g_assert_cmpuint(attr.rx_dropped, ==, 1);
    vf_close(vf);
    device_stop(pf);
}

/* Tests that the switch applies VLAN and link of SET_VF, and counts. */
static void test_applied(void)
{
    Device *pf = pf_start();
    uint8_t frame[9200];
    QrnicVfAttr attr;
    Function f;

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    function_start(&f, vf_open(pf, 0), 1);
    qp_connect(f.d, &f.qp, NULL);
    vf_set(pf, 0, &(QrnicVfCtx) { .vlan = 100, .priority = 5 });
    post_write(&f, 64);
    wire_receive(pf, frame);
    g_assert_cmpmem(frame, 6, PEER_MAC, 6);
    g_assert_cmpmem(frame + 6, 6, f.mac, 6);
    g_assert_cmphex(lduw_be_p(frame + 12), ==, 0x8100);
    g_assert_cmphex(lduw_be_p(frame + 14), ==, 5 << 13 | 100);
    attr = vf_query(pf, 0);
    g_assert_cmpuint(attr.tx_frames, ==, 1);
    g_assert_cmpuint(attr.tx_dropped, ==, 0);

    vf_set(pf, 0, &(QrnicVfCtx) { .link = QRNIC_VF_LINK_DISABLE });
    settle(f.d);
    g_assert_false(vf_query(pf, 0).state & QRNIC_VFS_LINK_UP);
    g_assert_false(reg_read(f.d, QRNIC_REG_STATUS) &
                   QRNIC_REG_STATUS_LINK_MASK);
    g_assert_true(reg_read(pf, QRNIC_REG_STATUS) & QRNIC_REG_STATUS_LINK_MASK);
    vf_close(f.d);
    device_stop(pf);
}

/* Hostile virtual functions */

/* Another address for the BARs of virtual functions */
#define VF_MOVED 0xd8000000u
#define HOSTILE_STEPS 600
#define HOSTILE_MEMORY 0x10000

/* Returns a number below a limit, the same one in each run. */
static uint32_t any(GRand *rand, uint32_t limit)
{
    return g_rand_int_range(rand, 0, limit);
}

/* Returns the bus address of a register of a virtual function. */
static uint64_t vf_register(unsigned number, unsigned offset)
{
    return VF_CONTROL + number * QRNIC_BAR_CONTROL_SIZE + offset;
}

static void vf_reset(Device *pf, unsigned devfn)
{
    uint8_t exp = qpci_find_capability(pf->pci, PCI_CAP_ID_EXP, 0);

    qtest_writew(pf->qts, config_address(pf, devfn, exp + PCI_EXP_DEVCTL),
                 PCI_EXP_DEVCTL_BCR_FLR);
}

/* Fills memory of a virtual function with commands of all kinds. */
static void hostile_fill(Device *pf, GRand *rand, unsigned number)
{
    g_autofree uint8_t *raw = g_malloc(HOSTILE_MEMORY);

    for (unsigned i = 0; i < HOSTILE_MEMORY; i += QRNIC_CMD_ENTRY_BYTES) {
        QrnicCmdEntry entry = {
            .opcode = any(rand, 0x60), .object = any(rand, VFS), .owner = 1,
            .in_addr = VF_FREE(number) + any(rand, HOSTILE_MEMORY),
            .in_len = any(rand, 256),
            .out_addr = VF_FREE(number) + any(rand, HOSTILE_MEMORY),
            .out_len = any(rand, 256),
        };

        qrnic_cmd_entry_pack(raw + i, &entry);
    }
    qtest_memwrite(pf->qts, VF_FREE(number), raw, HOSTILE_MEMORY);
}

/*
 * Lets a virtual function execute commands after a reset, which ends a fatal
 * state. Returns the number of completed commands.
 */
static unsigned hostile_commands(Device *pf, GRand *rand, unsigned number)
{
    const struct { unsigned offset; uint32_t value; } writes[] = {
        { QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK },
        { QRNIC_REG_CMD_BASE_LO, VF_FREE(number) + any(rand, 16) * 0x1000 },
        { QRNIC_REG_CMD_BASE_HI, 0 },
        { QRNIC_REG_CMD_SIZE, 3 },
        { QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_CMD_ENABLE_MASK },
        { QRNIC_REG_CMD_DOORBELL, 8 },
    };
    uint32_t done;

    qtest_writew(pf->qts, config_address(pf, pf->devfn + 1 + number,
                                         PCI_COMMAND),
                 PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    for (unsigned i = 0; i < ARRAY_SIZE(writes); i++) {
        qtest_writel(pf->qts, vf_register(number, writes[i].offset),
                     writes[i].value);
    }
    done = qtest_readl(pf->qts, vf_register(number, QRNIC_REG_CMD_CONSUMER));
    /* A disabled function reads as all ones. */
    return done == UINT32_MAX ? 0 : done;
}

/*
 * Performs a random access to a BAR of a virtual function, to its configuration
 * space, or to the SR-IOV capability. Addresses of command queues and mailboxes
 * are in the memory of the virtual function or beyond the memory of the
 * machine. Returns the number of completed commands.
 */
static unsigned hostile_step(Device *pf, GRand *rand)
{
    static const uint16_t commands[] = {
        0, PCI_COMMAND_MEMORY, PCI_COMMAND_MASTER,
        PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER,
        PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER,
    };
    unsigned number = any(rand, VFS), devfn = pf->devfn + 1 + number;
    uint32_t value = VF_FREE(number) + any(rand, HOSTILE_MEMORY);
    uint32_t pages = 256 / VFS * QRNIC_DB_PAGE_SIZE;
    QTestState *qts = pf->qts;

    switch (any(rand, 32)) {
    case 0 ... 7:
        qtest_writel(qts, vf_register(number, 4 * any(rand, 32)),
                     any(rand, 2) ? value : value & 0xf);
        break;
    case 8 ... 12:
        qtest_writeq(qts, VF_DOORBELLS + number * pages + 8 * any(rand, 512),
                     (uint64_t)g_rand_int(rand) << 32 | any(rand, 256));
        break;
    case 13 ... 15:
        qtest_writel(qts, VF_MSIX + number * QRNIC_BAR_MSIX_SIZE +
                     4 * any(rand, 64), any(rand, 2) ? value : 0);
        break;
    case 16 ... 19:
        qtest_writew(qts, config_address(pf, devfn, PCI_COMMAND),
                     commands[any(rand, ARRAY_SIZE(commands))]);
        break;
    case 20 ... 27:
        return hostile_commands(pf, rand, number);
    case 28:
        vf_reset(pf, devfn);
        break;
    case 29:
        sriov_writew(pf, PCI_SRIOV_NUM_VF, any(rand, 2 * VFS));
        break;
    case 30:
        sriov_writew(pf, PCI_SRIOV_CTRL, any(rand, 2) * PCI_SRIOV_CTRL_VFE);
        sriov_writew(pf, PCI_SRIOV_NUM_VF, VFS);
        sriov_writew(pf, PCI_SRIOV_CTRL,
                     PCI_SRIOV_CTRL_VFE | PCI_SRIOV_CTRL_MSE);
        break;
    case 31:
        sriov_writel(pf, PCI_SRIOV_BAR, VF_MOVED);
        qtest_readl(qts, VF_MOVED + number * QRNIC_BAR_CONTROL_SIZE);
        sriov_writel(pf, PCI_SRIOV_BAR, VF_CONTROL);
        break;
    }
    return 0;
}

/*
 * Tests that hostile virtual functions change nothing of the physical function,
 * and that a virtual function works after them.
 */
static void test_hostile(void)
{
    Device *pf = pf_start(), *vf;
    g_autoptr(GRand) rand = g_rand_new_with_seed(1);
    g_autofree uint8_t *before = g_malloc(0x4000), *after = g_malloc(0x4000);
    unsigned commands = 0;
    Function f, of_vf;
    QrnicVfAttr attr;

    if (!pf) {
        return;
    }
    for (unsigned i = 0; i < VFS; i++) {
        hostile_fill(pf, rand, i);
    }
    function_start(&f, pf, 1);
    reg_write(pf, QRNIC_REG_SCRATCH, 0x11111111);
    for (unsigned i = 0; i < 0x4000; i++) {
        before[i] = i * 7 >> 2;
    }
    qtest_memwrite(pf->qts, f.mr.memory, before, 0x4000);
    vfs_enable(pf, VFS);
    for (unsigned i = 0; i < HOSTILE_STEPS; i++) {
        commands += hostile_step(pf, rand);
        if (i % 16 == 0) {
            g_assert_cmphex(reg_read(pf, QRNIC_REG_SCRATCH), ==, 0x11111111);
        }
    }
    g_test_message("%u commands", commands);
    g_assert_cmpuint(commands, >, 100);
    settle(pf);
    qtest_memread(pf->qts, f.mr.memory, after, 0x4000);
    g_assert_cmpmem(before, 0x4000, after, 0x4000);
    expect_mac(pf, 0x52);
    g_assert_cmpuint(counter(pf, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    attr = vf_query(pf, 1);
    g_assert_cmpmem(attr.mac, 6, "\x5a\x54\x00\x12\x34\x56", 6);
    g_assert_cmpuint(attr.flags | attr.vlan | attr.max_rate, ==, 0);

    sriov_writew(pf, PCI_SRIOV_CTRL, 0);
    qtest_memset(pf->qts, VF_FREE(1), 0, HOSTILE_MEMORY);
    vfs_enable(pf, VFS);
    vf = vf_open(pf, 1);
    function_start(&of_vf, vf, 2);
    function_connect(&f, &of_vf);
    function_connect(&of_vf, &f);
    transfer(&f, &of_vf, 17);
    transfer(&of_vf, &f, 19);
    vf_close(vf);
    device_stop(pf);
}

/* Tests that the spoof check drops RDMA frames with a forged address. */
static void test_spoofed(void)
{
    Device *pf = pf_start(), *vf;
    uint8_t raw[QRNIC_GID_ENTRY_BYTES];
    QrnicGidEntry entry = { .flags = QRNIC_GID_VALID };
    QrnicVfAttr attr;
    Function f;

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    vf_set(pf, 0, &(QrnicVfCtx) { .flags = QRNIC_VFF_SPOOF_CHECK });
    vf = vf_open(pf, 0);
    function_start(&f, vf, 1);
    memcpy(entry.gid, f.gid, 16);
    memcpy(entry.mac, OUR_MAC, 6);
    qrnic_gid_entry_pack(raw, &entry);
    command_ok(vf, QRNIC_CMD_SET_GID, 0, raw, sizeof(raw), NULL, 0);
    qp_connect(vf, &f.qp, NULL);
    post_write(&f, 64);
    settle(vf);
    wire_silent(pf);
    attr = vf_query(pf, 0);
    g_assert_cmpuint(attr.tx_spoofed, ==, 1);
    g_assert_cmpuint(attr.tx_frames, ==, 0);
    vf_close(vf);
    device_stop(pf);
}

/*
 * Tests that a function that is disabled while it waits for an acknowledgement
 * sends no frame, completion or interrupt afterwards.
 */
static void test_disabled_silent(void)
{
    Device *pf = pf_start(), *vf;
    uint8_t frame[9200];
    QrnicCqe cqe;
    Function f;

    if (!pf) {
        return;
    }
    vfs_enable(pf, VFS);
    vf = vf_open(pf, 0);
    function_start(&f, vf, 1);
    qp_connect(vf, &f.qp, NULL);
    eq_arm(vf, &f.eq);
    cq_arm(vf, &f.cq, false);
    post_write(&f, 64);
    wire_receive(pf, frame);
    sriov_writew(pf, PCI_SRIOV_CTRL, 0);
    clock_step(pf, 60ll * NANOSECONDS_PER_SECOND);
    settle(pf);
    wire_silent(pf);
    g_assert_false(cq_poll(vf, &f.cq, &cqe));
    g_assert_false(interrupt_taken(vf, 1));
    vf_close(vf);
    device_stop(pf);
}

/* Tests the errors of the property. */
static void test_refused(void)
{
    if (in_process()) {
        device_refused("vfs=1", "no virtual functions");
        return;
    }
    device_refused("vfs=64", "vfs");
    device_refused("vfs=1,link-retransmission=on", "exclude");
}

void add_sriov_tests(void)
{
    qtest_add_func("qrnic/sriov/absent", test_absent);
    qtest_add_func("qrnic/sriov/capability", test_capability);
    qtest_add_func("qrnic/sriov/enable", test_enable);
    qtest_add_func("qrnic/sriov/traffic", test_traffic);
    qtest_add_func("qrnic/sriov/doorbell", test_doorbell);
    qtest_add_func("qrnic/sriov/flr", test_flr);
    qtest_add_func("qrnic/sriov/config", test_config);
    qtest_add_func("qrnic/sriov/applied", test_applied);
    qtest_add_func("qrnic/sriov/reset-stopped", test_reset_stopped);
    qtest_add_func("qrnic/sriov/reset-machine", test_reset_machine);
    qtest_add_func("qrnic/sriov/no-master", test_no_master);
    qtest_add_func("qrnic/sriov/hostile", test_hostile);
    qtest_add_func("qrnic/sriov/spoofed", test_spoofed);
    qtest_add_func("qrnic/sriov/disabled-silent", test_disabled_silent);
    qtest_add_func("qrnic/sriov/refused", test_refused);
}
