/*
 * qrnic-switch: frames between the cables of several ends, some of which send
 * invalid data, stop or die
 *
 * Programmer's Reference, chapter Switch.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "cable-peer.h"
#include "driver.h"

#define PORTS 3
#define SLOTS 64                /* Number of slots of cable_hello() */
#define FRAME 9082
#define EVERYBODY 0xffffffu     /* Station number of the broadcast address */
/*
 * Option with a time that is longer than a test, so that a port never stops
 * waiting for another
 */
#define PATIENT "--patience=600000"

typedef struct Net {
    char *dir, *path[PORTS];
    GPid pid;
    int out;                    /* Output of the program */
    CablePeer *port[PORTS];
} Net;

static const char *program(void)
{
    return getenv("QRNIC_SWITCH") ?: "hw/rdma/qrnic/switch/qrnic-switch";
}

/* The next functions start and stop the switch program. */

/* Kills the switch with a failing test, so that no process remains. */
static void die_with_test(gpointer data)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void net_run(Net *n, const char *option)
{
    const char *argv[] = {
        program(), n->path[0], n->path[1], n->path[2], option, NULL,
    };
    GError *error = NULL;

    g_spawn_async_with_pipes(NULL, (char **)argv, NULL,
                             G_SPAWN_DO_NOT_REAP_CHILD, die_with_test, NULL,
                             &n->pid, NULL, &n->out, NULL, &error);
    g_assert_no_error(error);
}

/* Returns the status line of each port, each with its newline. */
static char *net_lines(Net *n)
{
    GString *text = g_string_new(NULL);
    unsigned lines = 0;

    kill(n->pid, SIGUSR1);
    while (lines < PORTS) {
        struct pollfd p = { .fd = n->out, .events = POLLIN };
        char byte;

        g_assert_cmpint(poll(&p, 1, PATIENCE_US / 1000), ==, 1);
        g_assert_cmpint(read(n->out, &byte, 1), ==, 1);
        g_string_append_c(text, byte);
        lines += byte == '\n';
    }
    return g_string_free(text, false);
}

static uint64_t net_counter(Net *n, unsigned port, const char *name)
{
    g_autofree char *lines = net_lines(n);
    g_autofree char *key = g_strdup_printf(" %s=", name);
    const char *at = lines;

    for (unsigned i = 0; i < port; i++) {
        at = strchr(at, '\n') + 1;
    }
    at = strstr(at, key);
    g_assert_nonnull(at);
    return g_ascii_strtoull(at + strlen(key), NULL, 10);
}

/*
 * Connects a port, and waits until the switch reports the link, because it
 * sends nothing to a port without link.
 */
static void net_plug(Net *n, unsigned port)
{
    g_autofree char *up = g_strdup_printf("port=%u link=up", port + 1);

    n->port[port] = cable_peer_connect(cable_path_join(n->path[port]),
                                       port % 2);
    WAIT_UNTIL(({ g_autofree char *lines = net_lines(n);
                  strstr(lines, up); }),
               "the link of port %u does not come up", port + 1);
}

static void net_unplug(Net *n, unsigned port)
{
    cable_peer_free(n->port[port]);
    n->port[port] = NULL;
}

static Net *net_start(const char *option)
{
    Net *n = g_new0(Net, 1);

    n->dir = g_dir_make_tmp("qrnic-switch-XXXXXX", NULL);
    for (unsigned i = 0; i < PORTS; i++) {
        n->path[i] = g_strdup_printf("%s/%u", n->dir, i + 1);
    }
    net_run(n, option);
    for (unsigned i = 0; i < PORTS; i++) {
        net_plug(n, i);
    }
    return n;
}

/*
 * Ends the switch by SIGTERM, as a user does. Asserts that it removes its files
 * and prints its counters.
 */
static void net_stop(Net *n)
{
    int status;

    kill(n->pid, SIGTERM);
    g_assert_cmpint(waitpid(n->pid, &status, 0), ==, n->pid);
    g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (unsigned i = 0; i < PORTS; i++) {
        if (n->port[i]) {
            net_unplug(n, i);
        }
        g_free(n->path[i]);
    }
    close(n->out);
    g_assert_cmpint(rmdir(n->dir), ==, 0);
    g_free(n->dir);
    g_free(n);
}

/* Writes the Ethernet address of a station, or the broadcast address. */

static void address(uint8_t *at, uint32_t station)
{
    memset(at, 0xff, 6);
    if (station != EVERYBODY) {
        const uint8_t bytes[6] = {
            2, 0, 0, station >> 16, station >> 8, station,
        };

        memcpy(at, bytes, 6);
    }
}

static size_t frame_make(uint8_t *frame, uint32_t to, uint32_t from,
                         uint32_t number)
{
    size_t len = 18 + number * 977 % (FRAME - 17);

    memset(frame, number, len);
    address(frame, to);
    address(frame + 6, from);
    stw_be_p(frame + 12, 0x88b5);
    stl_be_p(frame + 14, number);
    return len;
}

static void net_send(Net *n, unsigned port, uint32_t to, uint32_t from,
                     uint32_t number)
{
    uint8_t frame[FRAME];

    cable_peer_send(n->port[port], frame,
                    frame_make(frame, to, from, number));
}

static void net_expect(Net *n, unsigned port, uint32_t to, uint32_t from,
                       uint32_t number)
{
    uint8_t frame[FRAME], expected[FRAME];
    size_t len = cable_peer_receive(n->port[port], frame, sizeof(frame));

    g_assert_cmpmem(frame, len, expected,
                    frame_make(expected, to, from, number));
}

/* Sends a frame from each port, so that the switch learns all addresses. */
static void net_introduce(Net *n)
{
    for (unsigned i = 0; i < PORTS; i++) {
        net_send(n, i, EVERYBODY, i, 0);
        for (unsigned j = 0; j < PORTS; j++) {
            if (j != i) {
                net_expect(n, j, EVERYBODY, i, 0);
            }
        }
    }
}

/* The tests begin here. */

/*
 * Tests that a frame to an unknown address is flooded, and that a frame to a
 * known address is not.
 */
static void test_learn(void)
{
    Net *n = net_start(NULL);

    net_send(n, 0, 1, 0, 100);
    net_expect(n, 1, 1, 0, 100);
    net_expect(n, 2, 1, 0, 100);
    net_send(n, 1, 0, 1, 101);
    net_expect(n, 0, 0, 1, 101);
    net_send(n, 0, 1, 0, 102);
    net_expect(n, 1, 1, 0, 102);
    /*
     * Port 3 receives this frame next, so it received neither of the two
     * others.
     */
    net_send(n, 1, EVERYBODY, 1, 103);
    net_expect(n, 0, EVERYBODY, 1, 103);
    net_expect(n, 2, EVERYBODY, 1, 103);
    g_assert_cmpuint(net_counter(n, 0, "in"), ==, 2);
    g_assert_cmpuint(net_counter(n, 0, "out"), ==, 2);
    g_assert_cmpuint(net_counter(n, 0, "flooded"), ==, 1);
    g_assert_cmpuint(net_counter(n, 1, "flooded"), ==, 1);
    g_assert_cmpuint(net_counter(n, 2, "out"), ==, 2);
    g_assert_cmpuint(net_counter(n, 0, "addresses"), ==, 1);
    g_assert_cmpuint(net_counter(n, 2, "addresses"), ==, 0);
    net_stop(n);
}

/* Tests that a frame is never sent back to its own port. */
static void test_no_hairpin(void)
{
    Net *n = net_start(NULL);

    net_introduce(n);
    net_send(n, 0, 0, 0, 1);
    net_send(n, 0, 0, 7, 2);
    net_send(n, 0, EVERYBODY, 0, 3);
    net_expect(n, 1, EVERYBODY, 0, 3);
    net_send(n, 1, 0, 1, 4);
    net_expect(n, 0, 0, 1, 4);
    g_assert_cmpuint(net_counter(n, 0, "own"), ==, 2);
    g_assert_false(cable_peer_pending(n->port[0]));
    net_stop(n);
}

/*
 * Frames to the addresses of link protocols are not forwarded (IEEE 802.1Q,
 * table 8-1).
 */
static void test_one_hop(void)
{
    Net *n = net_start(NULL);
    uint8_t frame[FRAME];

    net_introduce(n);
    for (unsigned i = 0; i < 16; i++) {
        size_t len = frame_make(frame, EVERYBODY, 0, i);

        memcpy(frame, "\x01\x80\xc2\x00\x00", 5);
        frame[5] = i;
        cable_peer_send(n->port[0], frame, len);
    }
    /* The other ports receive this frame next. */
    net_send(n, 0, EVERYBODY, 0, 3);
    net_expect(n, 1, EVERYBODY, 0, 3);
    net_expect(n, 2, EVERYBODY, 0, 3);
    g_assert_cmpuint(net_counter(n, 0, "own"), ==, 16);
    net_stop(n);
}

/* Tests that the addresses of a port are forgotten when its end goes. */
static void test_unplug(void)
{
    Net *n = net_start(NULL);

    net_introduce(n);
    net_unplug(n, 1);
    WAIT_UNTIL(net_counter(n, 1, "addresses") == 0, "still known");
    net_send(n, 0, 1, 0, 5);
    net_expect(n, 2, 1, 0, 5);
    /* The station has moved to port 3, and its address moves at once. */
    net_send(n, 2, 0, 1, 6);
    net_expect(n, 0, 0, 1, 6);
    net_plug(n, 1);
    net_send(n, 0, 1, 0, 7);
    net_expect(n, 2, 1, 0, 7);
    net_send(n, 0, EVERYBODY, 0, 8);
    net_expect(n, 1, EVERYBODY, 0, 8);
    g_assert_cmpuint(net_counter(n, 1, "links"), ==, 2);
    net_stop(n);
}

/*
 * Tests that a port cannot take over an address that is in use at another port.
 */
static void test_contested(void)
{
    Net *n = net_start(NULL);

    net_introduce(n);
    for (uint32_t i = 0; i < 100; i++) {
        net_send(n, 1, 0, 1, i);
        net_expect(n, 0, 0, 1, i);
        net_send(n, 2, 0, 1, i);
        net_expect(n, 0, 0, 1, i);
        net_send(n, 0, 1, 0, i);
        net_expect(n, 1, 1, 0, i);
    }
    g_assert_cmpuint(net_counter(n, 2, "contested"), ==, 100);
    net_stop(n);
}

/*
 * Tests that invented addresses of one port cannot replace addresses of other
 * ports.
 */
static void test_inventions(void)
{
    Net *n = net_start(NULL);
    uint8_t frame[FRAME];

    net_introduce(n);
    for (uint32_t i = 0; i < 50000; i++) {
        net_send(n, 2, 2, 0x100000 + i, i);
    }
    WAIT_UNTIL(net_counter(n, 2, "in") == 50001, "not all of them came");
    g_assert_cmpuint(net_counter(n, 2, "addresses"), ==, 4096 / PORTS);
    g_assert_cmpuint(net_counter(n, 1, "addresses"), ==, 1);
    /*
     * The invented addresses replaced the port's own one, so its frames were
     * flooded. Consumes these.
     */
    while (cable_peer_pending(n->port[1])) {
        cable_peer_receive(n->port[1], frame, sizeof(frame));
    }
    net_send(n, 0, 1, 0, 1);
    net_expect(n, 1, 1, 0, 1);
    g_assert_cmpuint(net_counter(n, 0, "flooded"), ==, 1);
    net_stop(n);
}

/*
 * Tests a port whose end consumes nothing. A sender to this port waits once and
 * then loses frames. Other senders and broadcasts do not wait.
 */
static void test_slow(void)
{
    Net *n = net_start("--patience=1000");

    net_introduce(n);
    for (uint32_t i = 0; i < 500; i++) {
        net_send(n, 0, 2, 0, i);
        net_send(n, 0, 1, 0, i);
        net_expect(n, 1, 1, 0, i);
        net_send(n, 1, EVERYBODY, 1, i);
        net_expect(n, 0, EVERYBODY, 1, i);
    }
    g_assert_cmpuint(net_counter(n, 2, "full"), ==, 1000 - SLOTS);
    g_assert_cmpuint(net_counter(n, 0, "waits"), ==, 1);
    g_assert_cmpuint(net_counter(n, 1, "waits"), ==, 0);
    /* The buffered frames are in order, and later frames arrive after them. */
    for (uint32_t i = 0; i < SLOTS / 2; i++) {
        net_expect(n, 2, 2, 0, i);
        net_expect(n, 2, EVERYBODY, 1, i);
    }
    net_send(n, 0, 2, 0, 1000);
    net_expect(n, 2, 2, 0, 1000);
    net_stop(n);
}

/*
 * Tests that a frame is not lost at a port whose end has just consumed all
 * frames. The switch is stopped meanwhile, so that the report of the room and
 * the frame wait together. Both ports send, because one of the two events is
 * the first.
 */
static void test_drained(void)
{
    Net *n = net_start("--patience=1");
    uint8_t frame[FRAME];
    int64_t start;

    net_introduce(n);
    for (uint32_t i = 0; i < SLOTS + 1; i++) {
        net_send(n, 2, EVERYBODY, 2, i);
    }
    WAIT_UNTIL(net_counter(n, 1, "full") == 1, "the port does not become full");
    start = g_get_monotonic_time();
    g_assert_cmpint(kill(n->pid, SIGSTOP), ==, 0);
    for (unsigned i = 0; i < 2; i++) {
        while (cable_peer_pending(n->port[i])) {
            cable_peer_receive(n->port[i], frame, sizeof(frame));
        }
    }
    /* The patience has ended, so that a frame for a full port is dropped. */
    WAIT_UNTIL(g_get_monotonic_time() > start + 2000, "no time passes");
    net_send(n, 0, 1, 0, 1);
    net_send(n, 1, 0, 1, 1);
    g_assert_cmpint(kill(n->pid, SIGCONT), ==, 0);
    net_expect(n, 1, 1, 0, 1);
    net_expect(n, 0, 0, 1, 1);
    net_stop(n);
}

/*
 * Tests that between ports that consume their frames, no frame is lost or
 * reordered.
 */
static void test_lossless(void)
{
    Net *n = net_start(PATIENT);
    uint32_t sent[2] = { 0 }, taken[2] = { 0 };

    net_introduce(n);
    while (taken[0] < 50000 || taken[1] < 50000) {
        for (unsigned from = 0; from < 2; from++) {
            /* Sends in bursts, so that all rings are full often. */
            while (sent[from] < 50000 && cable_peer_room(n->port[from])) {
                net_send(n, from, 2, from, sent[from]++);
            }
        }
        for (unsigned i = 0; i < SLOTS && cable_peer_pending(n->port[2]); i++) {
            uint8_t frame[FRAME], expected[FRAME];
            size_t len = cable_peer_receive(n->port[2], frame, sizeof(frame));
            unsigned from = frame[11];

            g_assert_cmpuint(from, <, 2);
            g_assert_cmpmem(frame, len, expected,
                            frame_make(expected, 2, from, taken[from]));
            taken[from]++;
        }
    }
    g_assert_cmpuint(net_counter(n, 2, "full"), ==, 0);
    g_assert_cmpuint(net_counter(n, 0, "waits"), >, 0);
    net_stop(n);
}

/* Tests that two ports that send at the full rate get equal shares. */
static void test_fair(void)
{
    Net *n = net_start(PATIENT);
    uint8_t frame[FRAME];
    uint32_t taken[2] = { 0 };

    net_introduce(n);
    for (uint32_t total = 0; total < 20000; total++) {
        for (unsigned from = 0; from < 2; from++) {
            while (cable_peer_room(n->port[from])) {
                net_send(n, from, 2, from, 1);
            }
        }
        cable_peer_receive(n->port[2], frame, sizeof(frame));
        taken[frame[11]]++;
    }
    g_test_message("%u and %u", taken[0], taken[1]);
    g_assert_cmpuint(MIN(taken[0], taken[1]), >, 20000 * 2 / 5);
    net_stop(n);
}

/* Asserts a rejection. WAKE messages may precede it. */
static void expect_refusal(int fd)
{
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];
    QrnicCableMessage m;
    ssize_t len;

    /*
     * ECONNRESET only reports that the switch closed with unread messages, so
     * read again.
     */
    do {
        len = recv(fd, bytes, sizeof(bytes), 0);
    } while (len == 8 || (len < 0 && errno == ECONNRESET));
    g_assert_cmpint(len, ==, sizeof(bytes));
    qrnic_cable_message_unpack(&m, bytes);
    g_assert_cmpuint(m.type, ==, QRNIC_CABLE_REFUSE);
}

/*
 * Tests that invalid counters and lengths end the cable on which they arrive,
 * and have no effect on other cables.
 */
static void test_liar(void)
{
    Net *n = net_start(NULL);
    uint32_t number = 0;

    net_introduce(n);
    for (unsigned i = 0; i < 40; i++) {
        CablePeer *liar = n->port[2];
        unsigned what = i % 4;

        if (what < 2) {
            stl_le_p(liar->out + QRNIC_CABLE_CONTROL_SIZE +
                     liar->produced % SLOTS * liar->stride,
                     what ? 13 : UINT32_MAX);
            qatomic_store_release(
                cable_index(liar->out, QRNIC_CABLE_CONTROL_PRODUCED_OFFSET),
                liar->produced + 1);
        } else if (what == 2) {
            qatomic_store_release(
                cable_index(liar->out, QRNIC_CABLE_CONTROL_PRODUCED_OFFSET),
                liar->produced + SLOTS + 1);
        } else {
            /*
             * The switch detects the invalid index when the ring would be full.
             */
            qatomic_store_release(
                cable_index(liar->in, QRNIC_CABLE_CONTROL_CONSUMED_OFFSET),
                12345);
            for (unsigned k = 0; k < SLOTS; k++) {
                net_send(n, 0, EVERYBODY, 0, number);
                net_expect(n, 1, EVERYBODY, 0, number++);
            }
        }
        cable_peer_wake(liar);
        expect_refusal(liar->fd);
        net_unplug(n, 2);
        net_send(n, 0, 1, 0, number);
        net_expect(n, 1, 1, 0, number++);
        net_plug(n, 2);
    }
    g_assert_cmpuint(net_counter(n, 2, "links"), ==, 41);
    g_assert_cmpuint(net_counter(n, 0, "links"), ==, 1);
    g_assert_cmpuint(net_counter(n, 1, "full"), ==, 0);
    net_stop(n);
}

/*
 * Tests that a frame which is too long for every port is lost, and that the
 * frames behind it are not.
 */
static void test_too_long(void)
{
    Net *n = net_start(NULL);
    QrnicCableMessage hello = cable_hello(0), memory;
    int fd, descriptor;

    net_introduce(n);
    net_unplug(n, 2);
    fd = cable_path_join(n->path[2]);
    hello.max_frame = 65536;
    cable_message_send(fd, &hello, -1);
    cable_message_expect(fd, QRNIC_CABLE_HELLO, NULL);
    memory = cable_message_expect(fd, QRNIC_CABLE_MEMORY, &descriptor);
    g_assert_cmpuint(memory.max_frame, ==, 65536);
    n->port[2] = cable_peer_map(fd, &memory, descriptor, false);
    for (uint32_t i = 0; i < 10; i++) {
        g_autofree uint8_t *frame = g_malloc0(65536);
        size_t len = frame_make(frame, EVERYBODY, 2, i);

        cable_peer_send(n->port[2], frame, i % 2 ? 9083 + 6000 * i : len);
    }
    for (uint32_t i = 0; i < 10; i += 2) {
        net_expect(n, 0, EVERYBODY, 2, i);
        net_expect(n, 1, EVERYBODY, 2, i);
    }
    g_assert_cmpuint(net_counter(n, 2, "long"), ==, 5);
    net_stop(n);
}

/*
 * An end is killed many times with frames in flight. Frames between the other
 * ports are not lost, and the switch keeps no resource.
 */
#define DEATHS 1000

static void talk(Net *n, unsigned from, unsigned to, uint32_t number)
{
    uint8_t frame[FRAME], expected[FRAME];
    size_t len;

    net_send(n, from, to, from, number);
    /* The test skips frames from and for the third port. */
    do {
        len = cable_peer_receive(n->port[to], frame, sizeof(frame));
    } while (frame[11] == 2 || frame[5] != to);
    g_assert_cmpmem(frame, len, expected,
                    frame_make(expected, to, from, number));
}

static void test_deaths(void)
{
    Net *n = net_start(PATIENT);
    uint8_t frames[3][1000], rest[FRAME];
    Possessions before;
    uint32_t number = 0;

    net_introduce(n);
    net_unplug(n, 2);
    for (unsigned i = 0; i < 3; i++) {
        memset(frames[i], 0, sizeof(frames[i]));
        address(frames[i], i == 2 ? EVERYBODY : i);
        address(frames[i] + 6, 2);
    }
    for (unsigned i = 0; i < DEATHS; i++) {
        pid_t pid = cable_victim_start(n->path[2], frames[0],
                                       sizeof(frames[0]), 3);

        for (unsigned k = 0; k <= i % 10; k++) {
            talk(n, 0, 1, number++);
            talk(n, 1, 0, number++);
            /* The destination of this frame is the end that dies. */
            net_send(n, 0, 2, 0, number);
        }
        cable_victim_kill(pid);
        if (i == DEATHS / 10) {
            before = possessions_of(n->pid);
        }
    }
    for (unsigned port = 0; port < 2; port++) {
        while (cable_peer_pending(n->port[port])) {
            cable_peer_receive(n->port[port], rest, sizeof(rest));
        }
    }
    possessions_check(n->pid, &before);
    g_assert_cmpuint(net_counter(n, 2, "links"), ==, DEATHS + 1);
    g_assert_cmpuint(net_counter(n, 0, "links"), ==, 1);
    net_stop(n);
}

/*
 * Descriptors that take very long to close, at port 3: with a first message, as
 * a third end, and in the queue of a listener. Ports 1 and 2 continue, and the
 * switch ends at once.
 */
#define BOUND_US (5 * G_USEC_PER_SEC)
#define ATTACKERS 24

static void test_descriptors(void)
{
    Net *n = net_start(PATIENT);
    CableAttack *attack = cable_attack_new(n->pid);
    QrnicCableMessage hello = cable_hello(1);
    int fd[ATTACKERS];
    int64_t longest = 0, start;
    uint32_t number = 0;

    net_introduce(n);
    net_unplug(n, 2);
    fd[0] = cable_path_join(n->path[2]);
    g_assert_true(cable_attack_message(attack, fd[0], &hello, 4));
    for (unsigned i = 1; i < ATTACKERS; i++) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        strcpy(address.sun_path, n->path[2]);
        fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
                       0);
        /*
         * The connect may fail, because the queue of unaccepted connections is
         * short.
         */
        if (!connect(fd[i], (struct sockaddr *)&address, sizeof(address))) {
            cable_attack_message(attack, fd[i], &hello, i % 2 ? 253 : 1);
        }
        start = g_get_monotonic_time();
        for (unsigned k = 0; k < 100; k++) {
            talk(n, 0, 1, number++);
            talk(n, 1, 0, number++);
        }
        longest = MAX(longest, g_get_monotonic_time() - start);
    }
    WAIT_UNTIL(cable_all_read(fd[0]), "the message was not read");
    g_test_message("longest time of 200 frames: %" PRId64 " us", longest);
    g_assert_cmpint(longest, <, BOUND_US);
    start = g_get_monotonic_time();
    net_stop(n);
    g_assert_cmpint(g_get_monotonic_time() - start, <, BOUND_US);
    cable_attack_free(attack);
    for (unsigned i = 0; i < ATTACKERS; i++) {
        close(fd[i]);
    }
}

/* Descriptors with empty messages are closed too. */
static void test_leak(void)
{
    Net *n = net_start(PATIENT);

    net_unplug(n, 2);
    cable_empty_attack(n->pid, n->path[2]);
    net_stop(n);
}

/*
 * An end that consumes each frame at once, and so can send without a pause.
 * Every port gets its share.
 */
typedef struct Endless {
    CablePeer *peer;
    bool stop;
} Endless;

static void *endless_thread(void *opaque)
{
    Endless *e = opaque;
    uint8_t *out = e->peer->out;

    while (!qatomic_read(&e->stop)) {
        qatomic_store_release(
            cable_index(out, QRNIC_CABLE_CONTROL_PRODUCED_OFFSET),
            qatomic_load_acquire(
                cable_index(out, QRNIC_CABLE_CONTROL_CONSUMED_OFFSET)) + SLOTS);
    }
    return NULL;
}

static void test_endless(void)
{
    Net *n = net_start(PATIENT);
    Endless e = { .peer = n->port[2] };
    uint32_t number = 0;
    GThread *thread;

    net_introduce(n);
    for (unsigned i = 0; i < SLOTS; i++) {
        uint8_t *slot = e.peer->out + QRNIC_CABLE_CONTROL_SIZE +
                        i * e.peer->stride;

        stl_le_p(slot + QRNIC_CABLE_SLOT_LENGTH_OFFSET, 60);
        address(slot + QRNIC_CABLE_SLOT_BYTES, 2);
        address(slot + QRNIC_CABLE_SLOT_BYTES + 6, 2);
    }
    thread = g_thread_new("endless", endless_thread, &e);
    WAIT_UNTIL(({ cable_peer_wake(e.peer);
                  talk(n, 0, 1, number);
                  talk(n, 1, 0, number);
                  ++number % 100 == 0 && net_counter(n, 2, "own") > 10000; }),
               "the endless one has no turn");
    qatomic_set(&e.stop, true);
    g_thread_join(thread);
    net_stop(n);
}

/*
 * Tests that the idle switch only waits for events. The kernel's count of its
 * runs shows that the process never ran.
 */
static void test_idle(void)
{
    Net *n = net_start(NULL);
    g_autofree char *path = g_strdup_printf("/proc/%d/schedstat", n->pid);
    g_autofree char *before = NULL, *after = NULL;

    net_introduce(n);
    g_free(net_lines(n));
    g_usleep(100000);
    g_assert_true(g_file_get_contents(path, &before, NULL, NULL));
    g_usleep(500000);
    g_assert_true(g_file_get_contents(path, &after, NULL, NULL));
    g_assert_cmpstr(after, ==, before);
    net_stop(n);
}

/* Files of a killed switch do not prevent the start of another one. */
static void test_killed(void)
{
    Net *n = net_start(NULL);

    net_introduce(n);
    kill(n->pid, SIGKILL);
    waitpid(n->pid, NULL, 0);
    close(n->out);
    for (unsigned i = 0; i < PORTS; i++) {
        cable_expect_end(n->port[i]->fd);
        net_unplug(n, i);
    }
    net_run(n, NULL);
    for (unsigned i = 0; i < PORTS; i++) {
        net_plug(n, i);
    }
    net_introduce(n);
    net_stop(n);
}

/*
 * Tests that each frame is captured once, at the interface of its ingress port.
 */
static void test_capture(void)
{
    g_autofree char *dir = g_dir_make_tmp("qrnic-switch-XXXXXX", NULL);
    g_autofree char *path = g_strconcat(dir, "/c.pcapng", NULL);
    g_autofree char *option = g_strconcat("--capture=", path, NULL);
    g_autofree char *data = NULL;
    unsigned interfaces = 0, frames = 0;
    Net *n = net_start(option);
    gsize size;

    net_introduce(n);
    net_stop(n);
    g_assert_true(g_file_get_contents(path, &data, &size, NULL));
    for (gsize at = 0, len; at < size; at += len) {
        uint32_t type = ldl_he_p(data + at);

        len = ldl_he_p(data + at + 4);
        g_assert_cmpuint(len, <=, size - at);
        if (type == 1) {
            interfaces++;
            /* The option if_tsresol behind the name: times are in ns. */
            g_assert_cmphex(ldl_he_p(data + at + len - 16), ==, 9 | 1 << 16);
            g_assert_cmphex(data[at + len - 12], ==, 9);
        }
        if (type == 6) {
            uint8_t frame[FRAME];

            g_assert_cmpuint(ldl_he_p(data + at + 8), ==, frames);
            g_assert_cmpmem(data + at + 28, ldl_he_p(data + at + 20), frame,
                            frame_make(frame, EVERYBODY, frames, 0));
            frames++;
        }
    }
    g_assert_cmpuint(interfaces, ==, PORTS);
    g_assert_cmpuint(frames, ==, PORTS);
    unlink(path);
    rmdir(dir);
}

/*
 * Tests that a reader of the capture that stops reading does not stop the
 * switch.
 */
static void test_capture_blocked(void)
{
    g_autofree char *dir = g_dir_make_tmp("qrnic-switch-XXXXXX", NULL);
    g_autofree char *path = g_strconcat(dir, "/fifo", NULL);
    g_autofree char *option = g_strconcat("--capture=", path, NULL);
    int64_t start, longest = 0;
    uint32_t number = 0;
    Net *n;
    int fd;

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    g_assert_cmpint(fd, >=, 0);
    n = net_start(option);
    net_introduce(n);
    for (unsigned i = 0; i < 20; i++) {
        start = g_get_monotonic_time();
        for (unsigned k = 0; k < 50; k++) {
            talk(n, 0, 1, number++);
            talk(n, 1, 0, number++);
        }
        longest = MAX(longest, g_get_monotonic_time() - start);
    }
    g_test_message("longest time of 100 frames: %" PRId64 " us", longest);
    g_assert_cmpint(longest, <, BOUND_US);
    start = g_get_monotonic_time();
    net_stop(n);
    g_assert_cmpint(g_get_monotonic_time() - start, <, BOUND_US);
    close(fd);
    unlink(path);
    rmdir(dir);
}

/*
 * The next tests check the command line. The switch reports each error in one
 * line.
 */

typedef struct Line {
    const char *name, *argv[4], *said;
    int status;
} Line;

#define LONG_PATH \
    "/tmp/0123456789012345678901234567890123456789012345678901234567890123" \
    "4567890123456789012345678901234567890123456789"

/* Paths that do not exist */
#define PATH_A "/tmp/qrnic-switch-test-a"
#define PATH_B "/tmp/qrnic-switch-test-b"

static const Line lines[] = {
    { "help", { "--help" }, "usage: qrnic-switch", 0 },
    { "version", { "--version" }, "version 1 of the cable", 0 },
    { "no-path", { NULL }, "2 to 64 paths", 1 },
    { "one-path", { PATH_A }, "2 to 64 paths", 1 },
    { "twice", { PATH_A, PATH_A }, "twice", 1 },
    { "long", { PATH_A, LONG_PATH }, "longer than the 107 bytes", 1 },
    { "no-directory", { PATH_A, "/nonexistent/b" }, "/nonexistent", 1 },
    { "file", { PATH_A, "/etc/passwd" }, "no socket", 1 },
    { "option", { "--frobnicate" }, "frobnicate", 1 },
    { "slots", { "--slots=17", PATH_A, PATH_B }, "power of two", 1 },
    { "slots-word", { "--slots=x", PATH_A, PATH_B }, "slots", 1 },
    { "age", { "--age=0", PATH_A, PATH_B }, "--age 0", 1 },
    { "stats", { "--stats=often", PATH_A, PATH_B }, "--stats often", 1 },
    { "patience", { "--patience=-1", PATH_A, PATH_B }, "--patience", 1 },
    { "capture", { "--capture=/nonexistent/c", PATH_A, PATH_B },
      "/nonexistent/c", 1 },
};

static void test_line(const void *data)
{
    const Line *line = data;
    const char *argv[] = {
        program(), line->argv[0], line->argv[1], line->argv[2], NULL,
    };
    g_autofree char *out = NULL, *err = NULL;
    int status;

    g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, 0, NULL, NULL, &out,
                               &err, &status, NULL));
    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, line->status);
    if (!strstr(line->status ? err : out, line->said)) {
        g_error("said: %s%s", out, err);
    }
    g_assert_cmpstr(line->status ? out : err, ==, "");
    if (line->status) {
        g_assert_true(strchr(err, '\n') == err + strlen(err) - 1);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(lines); i++) {
        g_autofree char *name = g_strdup_printf("/switch/line/%s",
                                                lines[i].name);

        g_test_add_data_func(name, &lines[i], test_line);
    }
    g_test_add_func("/switch/learn", test_learn);
    g_test_add_func("/switch/no-hairpin", test_no_hairpin);
    g_test_add_func("/switch/one-hop", test_one_hop);
    g_test_add_func("/switch/unplug", test_unplug);
    g_test_add_func("/switch/contested", test_contested);
    g_test_add_func("/switch/inventions", test_inventions);
    g_test_add_func("/switch/slow", test_slow);
    g_test_add_func("/switch/drained", test_drained);
    g_test_add_func("/switch/lossless", test_lossless);
    g_test_add_func("/switch/fair", test_fair);
    g_test_add_func("/switch/liar", test_liar);
    g_test_add_func("/switch/too-long", test_too_long);
    g_test_add_func("/switch/deaths", test_deaths);
    g_test_add_func("/switch/descriptors", test_descriptors);
    g_test_add_func("/switch/leak", test_leak);
    g_test_add_func("/switch/endless", test_endless);
    g_test_add_func("/switch/idle", test_idle);
    g_test_add_func("/switch/killed", test_killed);
    g_test_add_func("/switch/capture", test_capture);
    g_test_add_func("/switch/capture-blocked", test_capture_blocked);
    return g_test_run();
}
