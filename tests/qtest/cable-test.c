/*
 * qrnic qtest: the cable: the handshake, and a peer that sends invalid data,
 * dies or stops
 *
 * Programmer's Reference, chapter Cable.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "qobject/qdict.h"
#include <sys/socket.h>
#include <sys/un.h>
#include "cable-peer.h"
#include "driver.h"

#define FRAME 1000

/*
 * Starts a device on a cable. The peer is a socket of the test, or connects to
 * a path.
 */
static Device *cable_start(int *fd, const char *path)
{
    Device *d = g_new0(Device, 1);
    g_autofree char *end = NULL, *options = NULL;
    int pair[2] = { -1, -1 };

    if (path) {
        end = g_strdup_printf("path=%s", path);
    } else {
        g_assert_cmpint(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), ==, 0);
        end = g_strdup_printf("fd=%d", pair[1]);
        /*
         * Closes the socket in QEMU, which could otherwise never detect the end
         * of the test.
         */
        qemu_set_cloexec(pair[0]);
        *fd = pair[0];
    }
    options = g_strdup_printf("-object qrnic-cable,id=cable,slots=64,%s", end);
    machine_start(d, options, pair[1], false, ",cable=cable");
    /* Enables bus mastering, because the device accepts no frame without it. */
    d->bus = qpci_new_pc(d->qts, NULL);
    d->pci = qpci_device_find(d->bus, QPCI_DEVFN(5, 0));
    qpci_device_enable(d->pci);
    return d;
}

static void cable_stop(Device *d)
{
    qpci_free_pc(d->bus);
    g_free(d->pci);
    machine_stop(d);
    g_free(d);
}

static void expect_link(Device *d, bool up)
{
    WAIT_UNTIL(cable_link(d) == up, "the cable is not %s", up ? "up" : "down");
}

static void test_agree(const void *makes_memory)
{
    int fd;
    Device *d = cable_start(&fd, NULL);
    CablePeer *p;

    g_assert_false(cable_link(d));
    p = cable_peer_connect(fd, !!makes_memory);
    expect_link(d, true);
    cable_peer_free(p);
    expect_link(d, false);
    cable_stop(d);
}

/* First messages of the peer that establish no cable */

typedef struct BadHello {
    const char *why;
    uint32_t magic, type;
    uint16_t version_min, version;
    uint32_t slots, max_frame;
} BadHello;

static const BadHello bad_hello[] = {
    { "versions", QRNIC_CABLE_MAGIC, QRNIC_CABLE_HELLO, 2, 3, 64, 9082 },
    { "versions", QRNIC_CABLE_MAGIC, QRNIC_CABLE_HELLO, 0, 0, 64, 9082 },
    { "slots", QRNIC_CABLE_MAGIC, QRNIC_CABLE_HELLO, 1, 1, 0, 9082 },
    { "slots", QRNIC_CABLE_MAGIC, QRNIC_CABLE_HELLO, 1, 1, 15, 9082 },
    { "bytes", QRNIC_CABLE_MAGIC, QRNIC_CABLE_HELLO, 1, 1, 64, 65537 },
    { "no message", 0x12345678, QRNIC_CABLE_HELLO, 1, 1, 64, 9082 },
    { "unexpected", QRNIC_CABLE_MAGIC, QRNIC_CABLE_READY, 1, 1, 64, 9082 },
    { "unexpected", QRNIC_CABLE_MAGIC, QRNIC_CABLE_MEMORY, 1, 1, 64, 9082 },
    { "unexpected", QRNIC_CABLE_MAGIC, 77, 1, 1, 64, 9082 },
    { "no message", QRNIC_CABLE_MAGIC, QRNIC_CABLE_WAKE, 1, 1, 64, 9082 },
};

static void expect_refusal(int fd, const char *why)
{
    QrnicCableMessage m = cable_message_expect(fd, QRNIC_CABLE_REFUSE, NULL);

    g_assert_true(memchr(m.text, 0, sizeof(m.text)));
    if (!strstr((char *)m.text, why)) {
        g_error("rejected for \"%s\", expected \"%s\"", m.text, why);
    }
    cable_expect_end(fd);
    close(fd);
}

static void test_bad_hello(const void *data)
{
    const BadHello *bad = data;
    QrnicCableMessage m = cable_hello(0);
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];
    int fd;
    Device *d = cable_start(&fd, NULL);

    cable_message_expect(fd, QRNIC_CABLE_HELLO, NULL);
    m.magic = bad->magic;
    m.type = bad->type;
    m.version_min = bad->version_min;
    m.version = bad->version;
    m.slots = bad->slots;
    m.max_frame = bad->max_frame;
    qrnic_cable_message_pack(bytes, &m);
    g_assert_cmpint(send(fd, bytes, sizeof(bytes), 0), ==, sizeof(bytes));
    expect_refusal(fd, bad->why);
    g_assert_false(cable_link(d));
    cable_stop(d);
}

/* Memory that differs from the agreement, or that the peer could shrink */
typedef struct BadMemory {
    int slots, frame, stride, bytes;    /* Differences from the right values */
    unsigned seals;
    bool no_descriptor;
    const char *why;
} BadMemory;

static const BadMemory bad_memory[] = {
    { .slots = 1, .seals = F_SEAL_SHRINK, .why = "not as agreed" },
    { .slots = -64, .seals = F_SEAL_SHRINK, .why = "not as agreed" },
    { .slots = 64, .seals = F_SEAL_SHRINK, .why = "not as agreed" },
    { .frame = -1, .seals = F_SEAL_SHRINK, .why = "not as agreed" },
    { .frame = 65536, .seals = F_SEAL_SHRINK, .why = "not as agreed" },
    { .stride = -64, .seals = F_SEAL_SHRINK, .why = "not as agreed" },
    { .stride = 1, .seals = F_SEAL_SHRINK, .why = "not as agreed" },
    { .bytes = -4096, .seals = F_SEAL_SHRINK, .why = "sealed" },
    { .bytes = 4096, .seals = F_SEAL_SHRINK, .why = "sealed" },
    { .seals = 0, .why = "sealed" },
    { .seals = F_SEAL_GROW, .why = "sealed" },
    { .seals = F_SEAL_SHRINK, .no_descriptor = true, .why = "sealed" },
};

static void test_bad_memory(const void *data)
{
    const BadMemory *bad = data;
    QrnicCableMessage m = cable_hello(UINT64_MAX);
    uint32_t stride = (DIV_ROUND_UP(16 + 9082, 64) | 1) * 64;
    size_t half = ROUND_UP(4096 + 64 * (size_t)stride, 4096);
    int fd, memory;
    Device *d = cable_start(&fd, NULL);

    cable_message_send(fd, &m, -1);
    cable_message_expect(fd, QRNIC_CABLE_HELLO, NULL);
    m = (QrnicCableMessage) {
        .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_MEMORY, .version = 1,
        .slots = 64 + bad->slots, .max_frame = 9082 + bad->frame,
        .stride = stride + bad->stride,
    };
    memory = cable_memory_new(2 * half + bad->bytes, bad->seals);
    cable_message_send(fd, &m, bad->no_descriptor ? -1 : memory);
    close(memory);
    expect_refusal(fd, bad->why);
    g_assert_false(cable_link(d));
    cable_stop(d);
}

/* Invalid values in shared memory, after the handshake */

typedef struct Lie {
    const char *name;
    unsigned offset;
    uint32_t value;
    bool length;                /* Length that the next slot announces */
} Lie;

static const Lie lies[] = {
    { "produced-too-far", QRNIC_CABLE_CONTROL_PRODUCED_OFFSET, 65 },
    { "produced-back", QRNIC_CABLE_CONTROL_PRODUCED_OFFSET, UINT32_MAX },
    { "length-0", 0, 0, true },
    { "length-short", 0, 13, true },
    { "length-long", 0, 9083, true },
    { "length-huge", 0, UINT32_MAX, true },
};

static void test_lie(const void *data)
{
    const Lie *lie = data;
    int fd;
    Device *d = cable_start(&fd, NULL);
    CablePeer *p = cable_peer_connect(fd, false);

    expect_link(d, true);
    if (lie->length) {
        stl_le_p(p->out + QRNIC_CABLE_CONTROL_SIZE, lie->value);
        qatomic_store_release(
            cable_index(p->out, QRNIC_CABLE_CONTROL_PRODUCED_OFFSET), 1);
    } else {
        qatomic_store_release(cable_index(p->out, lie->offset), lie->value);
    }
    cable_peer_wake(p);
    cable_message_expect(fd, QRNIC_CABLE_REFUSE, NULL);
    cable_expect_end(fd);
    expect_link(d, false);
    cable_peer_free(p);
    cable_stop(d);
}

/*
 * Tests of a peer that overwrites the memory into which the device writes its
 * frames
 */

#define MESSAGE 3000            /* Three packets */
#define TIMEOUT_NS (4 * (4096ll << 14) + 100000)

typedef struct Spoiler {
    CablePeer *peer;
    bool stop;
} Spoiler;

static void spoil(CablePeer *p)
{
    memset(p->in + QRNIC_CABLE_CONTROL_SIZE, 0xee,
           (size_t)p->slots * p->stride);
}

static void *spoil_always(void *opaque)
{
    Spoiler *s = opaque;

    while (!qatomic_read(&s->stop)) {
        spoil(s->peer);
    }
    return NULL;
}

/* Starts a rig on a cable, on every wire of the suite. */
static void rig_start_cable(Rig *r)
{
    g_autofree char *before = g_strdup(g_getenv("QRNIC_TEST_WIRE"));

    g_setenv("QRNIC_TEST_WIRE", "cable", true);
    rig_start(r, "", NULL);
    if (before) {
        g_setenv("QRNIC_TEST_WIRE", before, true);
    } else {
        g_unsetenv("QRNIC_TEST_WIRE");
    }
}

/*
 * Tests a peer that overwrites frames in shared memory while the device writes
 * them. The peer can corrupt these frames only, and the device retransmits
 * them.
 */
static void test_spoiled(const void *always)
{
    const uint8_t opcode[] = { RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST };
    uint8_t data[MESSAGE];
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    Spoiler s = { 0 };
    GThread *thread = NULL;
    QrnicCqe cqe;
    Rig r;

    rig_start_cable(&r);
    rig_fill(&r, 0, data, sizeof(data), 5);
    s.peer = r.d->cable;
    if (always) {
        thread = g_thread_new("spoiler", spoil_always, &s);
    }
    wqe_data(&w, r.mr.start, sizeof(data), r.mr.key);
    sq_post(r.d, &r.qp, &w);
    for (unsigned round = 0; round < 2; round++) {
        settle(r.d);
        spoil(s.peer);
        for (unsigned i = 0; i < ARRAY_SIZE(opcode); i++) {
            uint32_t taken = s.peer->consumed + 1;

            /*
             * Consumes the slot without its length, because the length may be
             * corrupt.
             */
            g_assert_true(wire_pending(r.d));
            s.peer->consumed = taken;
            qatomic_store_release(cable_index(s.peer->in,
                                      QRNIC_CABLE_CONTROL_CONSUMED_OFFSET),
                                  taken);
        }
        g_assert_false(wire_pending(r.d));
        if (round == 0) {
            clock_step(r.d, TIMEOUT_NS);
        }
    }
    if (thread) {
        qatomic_set(&s.stop, true);
        g_thread_join(thread);
    }
    clock_step(r.d, TIMEOUT_NS);
    for (unsigned i = 0; i < ARRAY_SIZE(opcode); i++) {
        PeerPacket p = peer_expect(r.d, opcode[i], SQ_PSN + i);

        g_assert_cmpmem(p.payload, p.length, data + 1024 * i,
                        MIN(1024, MESSAGE - 1024 * i));
    }
    peer_ack(r.d, &r.qp, SQ_PSN + 2, AETH_ACK | 31, 1);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_true(cable_link(r.d));
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Tests that WAKE messages without reason, as many as the socket holds, have no
 * effect.
 */
static void test_wake_flood(void)
{
    int fd;
    Device *d = cable_start(&fd, NULL);
    CablePeer *p = cable_peer_connect(fd, true);

    expect_link(d, true);
    for (unsigned i = 0; i < 20000; i++) {
        cable_peer_wake(p);
    }
    g_assert_true(cable_link(d));
    cable_peer_free(p);
    expect_link(d, false);
    cable_stop(d);
}

/* The next tests connect both ends by a path. */

/*
 * Tests that a third end receives the reason of its rejection, and that the
 * other two ends continue.
 */
static void test_third(void)
{
    char *dir, *path = cable_path_new(&dir);
    Device *d = cable_start(NULL, path);
    CablePeer *p = cable_peer_connect(cable_path_connect(path), true);
    QrnicCableMessage hello = cable_hello(1);
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];
    int fd;

    expect_link(d, true);
    expect_refusal(cable_path_connect(path), "two ends");
    /* This third end sends a message, which the device drops unread. */
    fd = cable_path_connect(path);
    qrnic_cable_message_pack(bytes, &hello);
    /* The send may fail, because the end may be rejected before. */
    send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    expect_refusal(fd, "two ends");
    g_assert_true(cable_link(d));
    cable_peer_free(p);
    cable_stop(d);
    cable_path_free(dir, path);
}

/*
 * Tests a path at which a regular file exists. The file must stay, because it
 * may belong to another program, and so there is no cable.
 */
static void test_foreign_file(void)
{
    char *dir, *path = cable_path_new(&dir);
    g_autofree char *text = NULL;
    Device *d;

    g_assert_true(g_file_set_contents(path, "precious", -1, NULL));
    d = cable_start(NULL, path);
    g_assert_false(cable_link(d));
    cable_stop(d);
    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_cmpstr(text, ==, "precious");
    cable_path_free(dir, path);
}

/* Tests that an end removes its files at the path when it ends. */
static void test_removes(void)
{
    char *dir, *path = cable_path_new(&dir);
    g_autofree char *lock = g_strconcat(path, ".lock", NULL);
    Device *d = cable_start(NULL, path);

    g_assert_cmpint(access(path, F_OK), ==, 0);
    g_assert_cmpint(access(lock, F_OK), ==, 0);
    cable_stop(d);
    g_assert_cmpint(access(path, F_OK), !=, 0);
    g_assert_cmpint(access(lock, F_OK), !=, 0);
    cable_path_free(dir, path);
}

/*
 * Properties of the object cannot change after its creation, because the cable
 * already uses them.
 */
static void test_fixed(void)
{
    int fd;
    Device *d = cable_start(&fd, NULL);

    qobject_unref(qtest_qmp_assert_failure_ref(d->home,
        "{'execute': 'qom-set', 'arguments': {'path': '/objects/cable', "
        "'property': 'path', 'value': '/tmp/x'}}"));
    close(fd);
    cable_stop(d);
}

/*
 * The next tests kill a peer many times with frames in flight in both
 * directions.
 */
#define DEATHS 300
#define DEATHS_FULL 1000

static void test_deaths(void)
{
    unsigned deaths = getenv("QRNIC_FULL") ? DEATHS_FULL : DEATHS;
    char *dir, *path = cable_path_new(&dir);
    g_autofree char *properties =
        g_strdup_printf("cable=cable -object qrnic-cable,id=cable,path=%s",
                        path);
    uint8_t frame[FRAME];
    Possessions before;
    PeerPacket request;
    QrnicEqe event;
    size_t len;
    pid_t qemu;
    Rig r;

    rig_start(&r, properties, NULL);
    qemu = qtest_pid(r.d->home);
    /*
     * The peer sends a duplicate request, because the device answers each
     * duplicate.
     */
    request = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN - 1);
    request.ack_request = true;
    len = peer_encode(&request, frame);
    for (unsigned i = 0; i < deaths; i++) {
        uint64_t answers = counter(r.d, QRNIC_COUNTER_ROCE_TX_PACKETS);
        pid_t pid = cable_victim_start(path, frame, len, 1);

        WAIT_UNTIL(counter(r.d, QRNIC_COUNTER_ROCE_TX_PACKETS) >
                   answers + i % 50,
                   "the device does not answer the victim of round %u", i);
        cable_victim_kill(pid);
        /* Consumes the events of the link's changes. */
        while (eq_poll(r.d, &r.async, &event)) {
            g_assert_cmpuint(event.type, !=, QRNIC_EVENT_DEVICE_FATAL);
        }
        eq_arm(r.d, &r.async);
        if (i == deaths / 10) {
            before = possessions_of(qemu);
        }
    }
    expect_link(r.d, false);
    possessions_check(qemu, &before);
    /* The connection still works with a new peer. */
    r.d->cable = cable_peer_connect(cable_path_join(path), true);
    peer_send(r.d, &request);
    peer_expect(r.d, RC_ACK, RQ_PSN - 1);
    cable_peer_free(r.d->cable);
    r.d->cable = NULL;
    rig_stop(&r);
    cable_path_free(dir, path);
}

/*
 * Starts a device that may be killed. libqtest would report that as an error.
 */
static GPid victim_start(const char *path)
{
    g_autofree char *object = g_strdup_printf("qrnic-cable,id=cable,path=%s",
                                              path);
    const char *argv[] = {
        device_qemu(), "-machine", "q35", "-nodefaults", "-S",
        "-m", "128", "-display", "none", "-accel", "qtest",
        "-object", object, "-device", "qrnic,cable=cable", NULL,
    };
    GError *error = NULL;
    GPid pid;

    g_spawn_async(NULL, (char **)argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL,
                  NULL, &pid, &error);
    g_assert_no_error(error);
    return pid;
}

static void victim_kill(GPid pid)
{
    kill(pid, SIGKILL);
    g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

/*
 * Tests a socket file that a killed process has left. A device starts to listen
 * at its path, and the next process connects to the device.
 */
static void test_stale(void)
{
    char *dir, *path = cable_path_new(&dir);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    GPid listens, connects;
    Device *d;

    strcpy(address.sun_path, path);
    g_assert_cmpint(bind(fd, (struct sockaddr *)&address, sizeof(address)), ==,
                    0);
    close(fd);
    d = cable_start(NULL, path);
    connects = victim_start(path);
    expect_link(d, true);
    victim_kill(connects);
    expect_link(d, false);
    cable_stop(d);

    listens = victim_start(path);
    WAIT_UNTIL(!access(path, F_OK), "no process listens at %s", path);
    d = cable_start(NULL, path);
    expect_link(d, true);
    /* The listening end is killed, so the device listens from now on. */
    victim_kill(listens);
    expect_link(d, false);
    connects = victim_start(path);
    expect_link(d, true);
    victim_kill(connects);
    expect_link(d, false);
    cable_stop(d);
    cable_path_free(dir, path);
}

void add_cable_tests(void)
{
    qtest_add_data_func("qrnic/cable/agree/device-makes-memory", NULL,
                        test_agree);
    qtest_add_data_func("qrnic/cable/agree/peer-makes-memory", (void *)1,
                        test_agree);
    for (unsigned i = 0; i < ARRAY_SIZE(bad_hello); i++) {
        g_autofree char *name = g_strdup_printf("qrnic/cable/bad-hello/%u", i);

        qtest_add_data_func(name, &bad_hello[i], test_bad_hello);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(bad_memory); i++) {
        g_autofree char *name = g_strdup_printf("qrnic/cable/bad-memory/%u", i);

        qtest_add_data_func(name, &bad_memory[i], test_bad_memory);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
        g_autofree char *name = g_strdup_printf("qrnic/cable/lie/%s",
                                                lies[i].name);

        qtest_add_data_func(name, &lies[i], test_lie);
    }
    qtest_add_data_func("qrnic/cable/spoiled/before-taken", NULL,
                        test_spoiled);
    qtest_add_data_func("qrnic/cable/spoiled/always", (void *)1, test_spoiled);
    qtest_add_func("qrnic/cable/wake-flood", test_wake_flood);
    qtest_add_func("qrnic/cable/third", test_third);
    qtest_add_func("qrnic/cable/foreign-file", test_foreign_file);
    qtest_add_func("qrnic/cable/removes", test_removes);
    qtest_add_func("qrnic/cable/fixed", test_fixed);
    qtest_add_func("qrnic/cable/deaths", test_deaths);
    qtest_add_func("qrnic/cable/stale", test_stale);
}
