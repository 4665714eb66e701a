/*
 * qrnic qtest: a peer of a cable that sends descriptors which take very long to
 * close
 *
 * Programmer's Reference, chapter Cable: no peer can block the main loop. The
 * attacker sends descriptors with each message and at each time. Each test then
 * checks that QEMU answers and that a correct peer gets the cable. The device
 * can be unplugged, and QEMU can end, while the descriptors of the attack are
 * still being closed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "hw/pci/pci_regs.h"
#include "qobject/qdict.h"
#include "cable-peer.h"
#include "driver.h"

/*
 * Time limit in which QEMU must answer. A loaded machine delays QEMU by less
 * than this, a successful attack by minutes.
 */
#define BOUND_US (5 * G_USEC_PER_SEC)
#define ATTACK_US (G_USEC_PER_SEC / 2)
/* Number of connections, which exceeds the threads of a cable */
#define MANY 24

typedef struct Attacked {
    Device *d;
    char *dir, *path;
    CableAttack *attack;
} Attacked;

static void attacked_start(Attacked *t)
{
    g_autofree char *options = NULL;

    t->d = g_new0(Device, 1);
    t->path = cable_path_new(&t->dir);
    options = g_strdup_printf("-object qrnic-cable,id=cable,slots=64,path=%s",
                              t->path);
    machine_start(t->d, options, -1, true, ",cable=cable");
    t->d->bus = qpci_new_pc(t->d->qts, NULL);
    t->attack = cable_attack_new(qtest_pid(t->d->home));
}

/* Asserts that QEMU answers quickly for some time. */
static void expect_answers(Attacked *t)
{
    int64_t end = g_get_monotonic_time() + ATTACK_US, longest = 0, now;

    do {
        int64_t start = g_get_monotonic_time();

        cable_link(t->d);
        qtest_readb(t->d->qts, 0);
        now = g_get_monotonic_time();
        longest = MAX(longest, now - start);
    } while (now < end);
    g_test_message("longest answer: %" PRId64 " us", longest);
    g_assert_cmpint(longest, <, BOUND_US);
}

static void unplug(Attacked *t)
{
    QPCIDevice *port = qpci_device_find(t->d->bus, QPCI_DEVFN(6, 0));
    uint8_t exp = qpci_find_capability(port, PCI_CAP_ID_EXP, 0);

    qpci_config_writew(port, exp + PCI_EXP_SLTCTL, PCI_EXP_SLTCTL_PWR_OFF |
                       PCI_EXP_SLTCTL_PWR_IND_OFF);
    g_free(port);
    qtest_qmp_eventwait(t->d->qts, "DEVICE_DELETED");
    qtest_qmp_assert_success(t->d->qts, "{'execute': 'object-del', "
                             "'arguments': {'id': 'cable'}}");
}

static void attacked_stop(Attacked *t, bool unplugged)
{
    int64_t start = g_get_monotonic_time();

    /* QEMU 11.1 aborts if a vfio-user-pci is unplugged. */
    if (unplugged && !in_process()) {
        unplug(t);
    }
    qpci_free_pc(t->d->bus);
    machine_stop(t->d);
    g_assert_cmpint(g_get_monotonic_time() - start, <, BOUND_US);
    cable_attack_free(t->attack);
    cable_path_free(t->dir, t->path);
    g_free(t->d);
}

static void expect_up(Attacked *t, bool up)
{
    WAIT_UNTIL(cable_link(t->d) == up, "the cable is not %s",
               up ? "up" : "down");
}

static QrnicCableMessage message_of(unsigned type)
{
    return (QrnicCableMessage) { .magic = QRNIC_CABLE_MAGIC, .type = type };
}

/* Returns a MEMORY message that is valid except for its descriptor. */
static QrnicCableMessage memory_of(void)
{
    QrnicCableMessage m = message_of(QRNIC_CABLE_MEMORY);

    m.version = 1;
    m.slots = 64;
    m.max_frame = 9082;
    m.stride = (DIV_ROUND_UP(16 + 9082, 64) | 1) * 64;
    return m;
}

/*
 * The next functions attack by messages. Each function returns the attacker's
 * connection.
 */

typedef struct Case {
    const char *name;
    int (*attack)(Attacked *t, unsigned count);
    bool read;          /* The device reads the descriptors */
} Case;

static int greet(Attacked *t, uint64_t nonce)
{
    QrnicCableMessage m = cable_hello(nonce);
    int fd = cable_path_join(t->path);

    cable_message_send(fd, &m, -1);
    cable_message_expect(fd, QRNIC_CABLE_HELLO, NULL);
    return fd;
}

static int with_hello(Attacked *t, unsigned count)
{
    QrnicCableMessage m = cable_hello(UINT64_MAX);
    int fd = cable_path_join(t->path);

    g_assert_true(cable_attack_message(t->attack, fd, &m, count));
    return fd;
}

static int with_memory(Attacked *t, unsigned count)
{
    QrnicCableMessage m = memory_of();
    int fd = greet(t, UINT64_MAX);

    g_assert_true(cable_attack_message(t->attack, fd, &m, count));
    return fd;
}

static int with_bad_memory(Attacked *t, unsigned count)
{
    QrnicCableMessage m = memory_of();
    int fd = greet(t, UINT64_MAX);

    m.slots = 1;
    g_assert_true(cable_attack_message(t->attack, fd, &m, count));
    return fd;
}

/*
 * Attacks with READY. The attacker has nonce 0, so the device creates the
 * memory. The device may already have set SO_PASSRIGHTS to 0, so that the
 * kernel rejects the descriptors.
 */
static int with_ready(Attacked *t, unsigned count)
{
    QrnicCableMessage m = message_of(QRNIC_CABLE_READY);
    int fd = greet(t, 0), memory;

    cable_message_expect(fd, QRNIC_CABLE_MEMORY, &memory);
    close(memory);
    cable_attack_message(t->attack, fd, &m, count);
    return fd;
}

static int with_wake(Attacked *t, unsigned count)
{
    QrnicCableMessage m = message_of(QRNIC_CABLE_WAKE);
    CablePeer *p = cable_peer_connect(cable_path_join(t->path), true);
    int fd = dup(p->fd);

    expect_up(t, true);
    for (unsigned i = 0; i < 4; i++) {
        cable_attack_message(t->attack, fd, &m, count);
    }
    cable_peer_free(p);
    return fd;
}

/*
 * Attacks with WAKE directly after MEMORY, before the device can set
 * SO_PASSRIGHTS to 0.
 */
static int with_early_wake(Attacked *t, unsigned count)
{
    QrnicCableMessage hello = cable_hello(UINT64_MAX), m = memory_of();
    QrnicCableMessage wake = message_of(QRNIC_CABLE_WAKE);
    size_t half = ROUND_UP(4096 + 64 * (size_t)m.stride, 4096);
    int memory = cable_memory_new(2 * half, F_SEAL_SHRINK);
    int fd = cable_path_join(t->path);

    cable_message_send(fd, &hello, -1);
    cable_message_send(fd, &m, memory);
    cable_attack_message(t->attack, fd, &wake, count);
    close(memory);
    return fd;
}

static int with_refusal(Attacked *t, unsigned count)
{
    QrnicCableMessage m = message_of(QRNIC_CABLE_REFUSE);
    int fd = greet(t, UINT64_MAX);

    g_assert_true(cable_attack_message(t->attack, fd, &m, count));
    return fd;
}

static int with_nonsense(Attacked *t, unsigned count)
{
    int fd = greet(t, UINT64_MAX);

    g_assert_true(cable_attack_send(t->attack, fd, "nonsense", 9, count));
    return fd;
}

static int with_empty(Attacked *t, unsigned count)
{
    int fd = greet(t, UINT64_MAX);

    g_assert_true(cable_attack_send(t->attack, fd, "", 0, count));
    return fd;
}

static int with_unknown_type(Attacked *t, unsigned count)
{
    QrnicCableMessage m = message_of(77);
    int fd = greet(t, UINT64_MAX);

    g_assert_true(cable_attack_message(t->attack, fd, &m, count));
    return fd;
}

static const Case cases[] = {
    { "hello", with_hello, true },
    { "memory", with_memory, true },
    { "bad-memory", with_bad_memory, true },
    { "ready", with_ready },
    { "wake", with_wake },
    { "early-wake", with_early_wake },
    { "refuse", with_refusal, true },
    { "nonsense", with_nonsense, true },
    { "empty", with_empty, true },
    { "unknown-type", with_unknown_type, true },
};

/*
 * The counts are one descriptor, more descriptors than a receiver has room for,
 * and the maximum.
 */
static const unsigned counts[] = { 1, 4, 253 };

static void test_case(const void *data)
{
    const Case *c = data;

    for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
        CablePeer *honest;
        Attacked t;
        int fd;

        attacked_start(&t);
        fd = c->attack(&t, counts[i]);
        if (c->read) {
            WAIT_UNTIL(cable_all_read(fd), "the message was not read");
        }
        expect_answers(&t);
        close(fd);
        /*
         * The cable is free again, although the attacker's thread is still
         * blocked.
         */
        honest = cable_peer_connect(cable_path_join(t.path), i % 2);
        expect_up(&t, true);
        expect_answers(&t);
        cable_peer_free(honest);
        expect_up(&t, false);
        attacked_stop(&t, i % 2);
    }
}

/*
 * Tests more third ends than the cable has threads. All their messages are
 * dropped unread. If the device is unplugged, the last ends are not even
 * accepted.
 */
static void test_third(const void *unplugged)
{
    QrnicCableMessage m = cable_hello(1);
    int fd[MANY];
    CablePeer *honest;
    Attacked t;

    attacked_start(&t);
    honest = cable_peer_connect(cable_path_join(t.path), true);
    expect_up(&t, true);
    for (unsigned i = 0; i < MANY; i++) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        strcpy(address.sun_path, t.path);
        fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
                       0);
        /*
         * EAGAIN is expected, because the queue of unaccepted connections is
         * short.
         */
        if (connect(fd[i], (struct sockaddr *)&address, sizeof(address))) {
            g_assert_cmpint(errno, ==, EAGAIN);
            continue;
        }
        cable_attack_message(t.attack, fd[i], &m, 4);
    }
    expect_answers(&t);
    g_assert_true(cable_link(t.d));
    attacked_stop(&t, !!unplugged);
    for (unsigned i = 0; i < MANY; i++) {
        close(fd[i]);
    }
    cable_peer_free(honest);
}

/*
 * Tests empty messages. recvmsg() returns 0 for them, as at the end of a
 * connection.
 */
static void test_leak(void)
{
    CablePeer *honest;
    Attacked t;

    attacked_start(&t);
    cable_empty_attack(qtest_pid(t.d->home), t.path);
    honest = cable_peer_connect(cable_path_join(t.path), true);
    expect_up(&t, true);
    cable_peer_free(honest);
    attacked_stop(&t, true);
}

/* Returns the CPU time that a process has used, in clock ticks. */
static uint64_t cpu_ticks(pid_t pid)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/stat", pid);
    g_autofree char *text = NULL;
    unsigned long user, kernel;

    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    /*
     * The test parses only the fields behind the name, because the name may
     * contain spaces.
     */
    g_assert_cmpint(sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d "
                           "%*u %*u %*u %*u %*u %lu %lu", &user, &kernel), ==,
                    2);
    return user + kernel;
}

/* Returns the lowest number that is not a descriptor of a process. */
static unsigned lowest_free_descriptor(pid_t pid)
{
    for (unsigned i = 0;; i++) {
        g_autofree char *path = g_strdup_printf("/proc/%d/fd/%u", pid, i);
        g_autofree char *target = g_file_read_link(path, NULL);

        if (!target) {
            return i;
        }
    }
}

/*
 * Tests a peer that connects while QEMU has no free descriptor, with and
 * without an established cable. QEMU must not spin, and must accept the peer
 * once a descriptor is free.
 */
static void test_no_descriptor(void)
{
    const uint64_t second = sysconf(_SC_CLK_TCK);
    CablePeer *honest;
    Attacked t;
    pid_t pid;

    attacked_start(&t);
    pid = qtest_pid(t.d->home);
    for (unsigned up = 0; up < 2; up++) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        struct rlimit old, low;
        uint64_t before, used;

        honest = NULL;
        if (up) {
            honest = cable_peer_connect(cable_path_join(t.path), true);
            expect_up(&t, true);
        }
        g_assert_cmpint(prlimit(pid, RLIMIT_NOFILE, NULL, &old), ==, 0);
        low = old;
        low.rlim_cur = lowest_free_descriptor(pid);
        g_assert_cmpint(prlimit(pid, RLIMIT_NOFILE, &low, NULL), ==, 0);
        strcpy(address.sun_path, t.path);
        g_assert_cmpint(connect(fd, (struct sockaddr *)&address,
                                sizeof(address)), ==, 0);
        before = cpu_ticks(pid);
        g_usleep(2 * G_USEC_PER_SEC);
        used = cpu_ticks(pid) - before;
        g_test_message("%" PRIu64 " of %" PRIu64 " clock ticks", used,
                       2 * second);
        g_assert_cmpuint(used, <, second / 5);
        expect_answers(&t);
        g_assert_cmpint(prlimit(pid, RLIMIT_NOFILE, &old, NULL), ==, 0);
        if (up) {
            cable_message_expect(fd, QRNIC_CABLE_REFUSE, NULL);
            cable_peer_free(honest);
        } else {
            cable_peer_free(cable_peer_connect(fd, true));
        }
        expect_up(&t, false);
        if (up) {
            close(fd);
        }
    }
    attacked_stop(&t, true);
}

/* Tests a peer that sends many messages, and closes before they are read. */
static void test_hangup(void)
{
    QrnicCableMessage m = cable_hello(1);
    CablePeer *honest;
    Attacked t;
    int fd;

    attacked_start(&t);
    fd = cable_path_join(t.path);
    for (unsigned i = 0; i < MANY; i++) {
        cable_attack_message(t.attack, fd, &m, 4);
    }
    close(fd);
    expect_answers(&t);
    honest = cable_peer_connect(cable_path_join(t.path), false);
    expect_up(&t, true);
    cable_peer_free(honest);
    attacked_stop(&t, true);
}

void add_cable_attack_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *name = g_strdup_printf("qrnic/cable-attack/%s",
                                                cases[i].name);

        qtest_add_data_func(name, &cases[i], test_case);
    }
    qtest_add_data_func("qrnic/cable-attack/third", NULL, test_third);
    qtest_add_data_func("qrnic/cable-attack/third-unplug", (void *)1,
                        test_third);
    qtest_add_func("qrnic/cable-attack/hangup", test_hangup);
    qtest_add_func("qrnic/cable-attack/leak", test_leak);
    qtest_add_func("qrnic/cable-attack/no-descriptor", test_no_descriptor);
}
