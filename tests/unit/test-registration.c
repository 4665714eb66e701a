/*
 * Shared virtual addressing: keys that a process registers with WQEs, and the
 * PASID of its doorbell page
 *
 * The page table of a process is that of the pager. Node 0 has the process that
 * registers, and node 1 is the peer.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pager.h"

/* Creates a world without queue pairs of processes. */
static Pager *world_new(void)
{
    pager_processes = true;
    return pager_new(1, 1, NULL);
}

/* Allocates a doorbell page of the process with this PASID (0: of none). */
static uint32_t page_new(SimNode *n, uint32_t pasid)
{
    QrnicResult result = qrnic_db_page_alloc(n->engine);
    const QrnicPasidCtx in = { pasid };

    g_assert_cmpint(result.status, ==, QRNIC_ST_OK);
    g_assert_cmpint(qrnic_db_page_set_pasid(n->engine, result.value,
                                            &in).status, ==, QRNIC_ST_OK);
    return result.value;
}

static int set_pasid(SimNode *n, uint32_t page, uint32_t pasid)
{
    const QrnicPasidCtx in = { pasid };

    return qrnic_db_page_set_pasid(n->engine, page, &in).status;
}

/* Connects a queue pair of this page at node 0 to one of page 0 at node 1. */
static void qps_of_page(Pager *w, uint32_t page, SimQp *q[2])
{
    w->sim->node[0].db_page = page;
    q[0] = sim_qp_new(&w->sim->node[0], 6, 6, 3, 8);
    w->sim->node[0].db_page = 0;
    q[1] = sim_qp_new(&w->sim->node[1], 6, 6, 3, 8);
    sim_connect(q[0], q[1], NULL);
}

static uint32_t key_new(SimNode *n, uint8_t flags)
{
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_FAST_REG, .flags = flags, .variant = 7, .pd = n->pd,
        .length = BYTES,
    };

    return sim_mkey_ctx(n, &ctx);
}

static void register_range(SimQp *q, const QrnicRegSeg *reg)
{
    const SimWr wr = {
        .opcode = QRNIC_WQE_REG_MR, .flags = QRNIC_WQEF_SIGNALED, .reg = reg,
    };

    sim_post_send(q, &wr);
}

static void key_invalidate(Pager *w, SimQp *q, uint32_t key)
{
    const SimWr wr = {
        .opcode = QRNIC_WQE_LOCAL_INV, .flags = QRNIC_WQEF_SIGNALED, .imm = key,
    };

    sim_post_send(q, &wr);
    pager_run(w, NULL);
    expect_cqe(q, QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
}

/* Returns the PASID of a key. */
static uint32_t pasid_of(SimNode *n, uint32_t key)
{
    QrnicMkeyCtx ctx;

    g_assert_cmpint(qrnic_mkey_query(n->engine, key >> 8, &ctx).status, ==,
                    QRNIC_ST_OK);
    return ctx.pasid;
}

/*
 * Tests that a process registers its memory, uses the key locally and remotely,
 * with absent pages, and registers other memory with the same key.
 */
static void test_register(void)
{
    Pager *w = world_new();
    Region *r = w->region[0];
    SimNode *n = r->node;
    QrnicRegSeg reg;
    SimQp *q[2];
    SimSge sge;
    SimWr wr;

    qps_of_page(w, page_new(n, r->pasid), q);
    r->key = key_new(n, QRNIC_MKEYF_PASID);
    reg = (QrnicRegSeg) {
        .key = r->key, .access = ACCESS_ALL, .start = r->start + PAGE,
        .length = 2 * PAGE, .table.root = r->address + PAGE,
    };
    sge = (SimSge) { r->start + 2 * PAGE - 40, 100, r->key };
    wr = (SimWr) {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->region[1]->start,
        .rkey = w->region[1]->key,
    };
    g_assert_cmpuint(pasid_of(n, r->key), ==, 0);
    register_range(q[0], &reg);
    sim_post_send(q[0], &wr);
    pager_run(w, NULL);
    expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
    expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(pasid_of(n, r->key), ==, r->pasid);
    g_assert_cmpuint(w->faults[0], ==, 1);
    g_assert_cmpmem(memory_of(w->region[1], 0), 100,
                    memory_of(r, 2) - 40, 100);

    /* The peer writes to the last byte, and not beyond. */
    sge = (SimSge) { w->region[1]->start, 8, w->region[1]->key };
    wr.remote = r->start + 3 * PAGE - 8;
    wr.rkey = r->key;
    sim_post_send(q[1], &wr);
    pager_run(w, NULL);
    expect_cqe(q[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(memory_of(r, 2) + PAGE - 8, 8, memory_of(w->region[1], 0),
                    8);

    key_invalidate(w, q[0], r->key);
    g_assert_cmpuint(pasid_of(n, r->key), ==, 0);
    r->key++;
    reg = (QrnicRegSeg) {
        .key = r->key, .access = QRNIC_ACCESS_REMOTE_READ, .start = 0,
        .length = BYTES, .table.root = r->address,
    };
    register_range(q[0], &reg);
    pager_run(w, NULL);
    expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
    wr.opcode = QRNIC_WQE_RDMA_READ;
    wr.remote = 9 * PAGE;
    wr.rkey = r->key;
    sim_post_send(q[1], &wr);
    pager_run(w, NULL);
    expect_cqe(q[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(memory_of(w->region[1], 0), 8, memory_of(r, 9), 8);
    wr.opcode = QRNIC_WQE_RDMA_WRITE;
    sim_post_send(q[1], &wr);
    pager_run(w, NULL);
    expect_status(q[1], QRNIC_WC_REM_ACCESS_ERR);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_FAST_REGISTRATIONS), ==, 2);
    sim_qp_free(q[0]);
    sim_qp_free(q[1]);
    pager_free(w);
}

/* Asserts that a registration through this page fails. */
static void register_fails(Pager *w, uint32_t page, const QrnicRegSeg *reg,
                           uint8_t status, uint8_t syndrome)
{
    SimQp *q[2];

    qps_of_page(w, page, q);
    register_range(q[0], reg);
    pager_run(w, NULL);
    g_assert_cmpuint(expect_status(q[0], status).syndrome, ==, syndrome);
    g_assert_cmpuint(pasid_of(w->region[0]->node, reg->key), ==, 0);
    sim_qp_free(q[0]);
    sim_qp_free(q[1]);
}

/* Tests registrations that a process, and the kernel, must not do. */
static void test_register_refused(void)
{
    Pager *w = world_new();
    Region *r = w->region[0];
    SimNode *n = r->node;
    uint32_t page = page_new(n, r->pasid), none = page_new(n, 0);
    uint32_t other = page_new(n, r->pasid + 1);
    uint32_t plain = key_new(n, 0);
    const QrnicRegSeg good = {
        .key = key_new(n, QRNIC_MKEYF_PASID), .access = ACCESS_ALL,
        .start = r->start, .length = PAGE, .table.root = r->address,
    };
    SimSge sge = { r->start, 100, good.key };
    const SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->region[1]->start,
        .rkey = w->region[1]->key,
    };
    QrnicRegSeg bad = good;
    SimQp *q[2];

    register_fails(w, none, &good, QRNIC_WC_LOC_QP_OP_ERR,
                   QRNIC_SYN_WQE_OPCODE);
    /* The kernel has no PASID, and a process has no bus addresses. */
    register_fails(w, 0, &good, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_TYPE);
    bad.key = plain;
    bad.table.root = r->memory;
    register_fails(w, page, &bad, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_TYPE);
    bad = good;
    bad.table.levels = 1;
    bad.table.page_shift = 12;
    register_fails(w, page, &bad, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_RANGE);
    bad = good;
    bad.table.root = -(uint64_t)100;
    register_fails(w, page, &bad, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_RANGE);
    bad = good;
    bad.length = BYTES + 1;
    register_fails(w, page, &bad, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_RANGE);
    bad = good;
    bad.access |= QRNIC_ACCESS_MW_BIND;
    register_fails(w, page, &bad, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_ACCESS);

    /* A key that is valid already */
    qps_of_page(w, page, q);
    register_range(q[0], &good);
    register_range(q[0], &good);
    pager_run(w, NULL);
    expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
    g_assert_cmpuint(expect_status(q[0], QRNIC_WC_MW_BIND_ERR).syndrome, ==,
                     QRNIC_SYN_KEY_BOUND);
    sim_qp_free(q[0]);
    sim_qp_free(q[1]);
    g_assert_cmpint(set_pasid(n, page, 0), ==, QRNIC_ST_BUSY);
    qps_of_page(w, page, q);
    key_invalidate(w, q[0], good.key);
    g_assert_cmpint(set_pasid(n, page, 0), ==, QRNIC_ST_OK);
    sim_qp_free(q[0]);
    sim_qp_free(q[1]);

    /*
     * Through the page of another process, the WQE names the memory of that
     * process. That process has no page table in this test.
     */
    qps_of_page(w, other, q);
    register_range(q[0], &good);
    sim_post_send(q[0], &wr);
    pager_run(w, NULL);
    expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
    g_assert_cmpuint(pasid_of(n, good.key), ==, r->pasid + 1);
    g_assert_cmpuint(expect_status(q[0], QRNIC_WC_LOC_PROT_ERR).syndrome, ==,
                     QRNIC_SYN_DMA);
    sim_qp_free(q[0]);
    sim_qp_free(q[1]);
    pager_free(w);
}

/* Tests that a page without PASID registers nothing by a WQE that waited. */
static void test_pasid_cleared(void)
{
    Pager *w = world_new();
    Region *r = w->region[0];
    SimNode *n = r->node;
    uint32_t page = page_new(n, r->pasid);
    const QrnicRegSeg reg = {
        .key = key_new(n, QRNIC_MKEYF_PASID), .access = ACCESS_ALL,
        .start = r->start, .length = PAGE, .table.root = r->address,
    };
    SimSge sge = { r->start, 100, r->key };
    const SimWr read = {
        .opcode = QRNIC_WQE_RDMA_READ, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->region[1]->start,
        .rkey = w->region[1]->key,
    };
    const SimWr fenced = {
        .opcode = QRNIC_WQE_REG_MR,
        .flags = QRNIC_WQEF_SIGNALED | QRNIC_WQEF_FENCE, .reg = &reg,
    };
    SimQp *q[2];

    qps_of_page(w, page, q);
    sim_post_send(q[0], &read);
    sim_post_send(q[0], &fenced);
    /* The fenced WQE has been read, and the responder waits for its page. */
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_SEND_WQES), ==, 2);
    g_assert_cmpint(set_pasid(n, page, 0), ==, QRNIC_ST_OK);
    pager_run(w, NULL);
    expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpuint(expect_status(q[0], QRNIC_WC_MW_BIND_ERR).syndrome, ==,
                     QRNIC_SYN_WQE_OPCODE);
    sim_qp_free(q[0]);
    sim_qp_free(q[1]);
    pager_free(w);
}

/* Tests the checks of SET_PASID, and each event that ends a registration. */
static void test_set_pasid(void)
{
    Pager *w = world_new();
    Region *r = w->region[0];
    SimNode *n = r->node;
    uint32_t page = page_new(n, r->pasid);
    QrnicRegSeg reg = {
        .access = ACCESS_ALL, .start = r->start, .length = PAGE,
        .table.root = r->address,
    };
    SimSge to = { r->start, 100, r->key };
    SimWr wr = { .opcode = QRNIC_WQE_SEND_INV, .flags = QRNIC_WQEF_SIGNALED };
    SimQp *q[2];

    g_assert_cmpint(set_pasid(n, 0, 1), ==, QRNIC_ST_BAD_OBJECT);
    g_assert_cmpint(set_pasid(n, page + 1, 1), ==, QRNIC_ST_BAD_OBJECT);
    g_assert_cmpint(set_pasid(n, 0xffffff, 1), ==, QRNIC_ST_BAD_OBJECT);
    g_assert_cmpint(set_pasid(n, page, QRNIC_MAX_PASID + 1), ==,
                    QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(set_pasid(n, page, QRNIC_MAX_PASID), ==, QRNIC_ST_OK);
    g_assert_cmpint(set_pasid(n, page, r->pasid), ==, QRNIC_ST_OK);

    for (unsigned i = 0; i < 3; i++) {
        reg.key = key_new(n, QRNIC_MKEYF_PASID);
        qps_of_page(w, page, q);
        register_range(q[0], &reg);
        pager_run(w, NULL);
        expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
        g_assert_cmpint(set_pasid(n, page, 0), ==, QRNIC_ST_BUSY);
        g_assert_cmpint(set_pasid(n, page, r->pasid), ==, QRNIC_ST_BUSY);
        if (i == 0) {
            key_invalidate(w, q[0], reg.key);
        } else if (i == 1) {
            sim_post_recv(q[0], &to, 1);
            wr.imm = reg.key;
            sim_post_send(q[1], &wr);
            pager_run(w, NULL);
            expect_cqe(q[1], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        }
        sim_qp_free(q[0]);
        sim_qp_free(q[1]);
        if (i == 2) {
            /* The key remains after its queue pair. */
            g_assert_cmpint(set_pasid(n, page, 0), ==, QRNIC_ST_BUSY);
            g_assert_cmpint(qrnic_db_page_free(n->engine, page).status, ==,
                            QRNIC_ST_BUSY);
            g_assert_cmpint(qrnic_mkey_destroy(n->engine, reg.key >> 8).status,
                            ==, QRNIC_ST_OK);
        }
        g_assert_cmpint(set_pasid(n, page, r->pasid), ==, QRNIC_ST_OK);
    }
    g_assert_cmpint(qrnic_db_page_free(n->engine, page).status, ==,
                    QRNIC_ST_OK);
    g_assert_cmpint(set_pasid(n, page, 1), ==, QRNIC_ST_BAD_OBJECT);
    pager_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/shared-virtual/register", test_register);
    g_test_add_func("/shared-virtual/register-refused",
                    test_register_refused);
    g_test_add_func("/shared-virtual/pasid-cleared", test_pasid_cleared);
    g_test_add_func("/shared-virtual/set-pasid", test_set_pasid);
    return g_test_run();
}
