/*
 * qrnic qtest: the peer on a cable; see cable-peer.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "qemu/memfd.h"
#include <poll.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "driver.h"
#include "cable-peer.h"

#define SLOTS 64
#define FRAME 9082

QrnicCableMessage cable_hello(uint64_t nonce)
{
    return (QrnicCableMessage) {
        .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_HELLO,
        .version_min = 1, .version = 1, .slots = SLOTS, .max_frame = FRAME,
        .nonce = nonce, .text = "qtest",
    };
}

void cable_message_send(int fd, const QrnicCableMessage *m, int descriptor)
{
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = "";
    struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    qrnic_cable_message_pack(bytes, m);
    if (descriptor >= 0) {
        struct cmsghdr *head;

        msg.msg_control = control;
        msg.msg_controllen = sizeof(control);
        head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    }
    g_assert_cmpint(sendmsg(fd, &msg, MSG_NOSIGNAL), ==, iov.iov_len);
}

static void await_readable(int fd, const char *what)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    if (poll(&p, 1, PATIENCE_US / 1000) != 1) {
        g_error("the device's end of the cable sends no %s", what);
    }
}

QrnicCableMessage cable_message_expect(int fd, unsigned type, int *descriptor)
{
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES] = { 0 };
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof(control),
    };
    struct cmsghdr *head;
    QrnicCableMessage m;
    ssize_t len;

    await_readable(fd, "message");
    len = recvmsg(fd, &msg, 0);
    /*
     * ECONNRESET only reports that the device closed with unread messages, so
     * read again.
     */
    if (len < 0 && errno == ECONNRESET) {
        len = recvmsg(fd, &msg, 0);
    }
    g_assert_cmpint(len, ==, sizeof(bytes));
    qrnic_cable_message_unpack(&m, bytes);
    g_assert_cmphex(m.magic, ==, QRNIC_CABLE_MAGIC);
    g_assert_cmpuint(m.type, ==, type);
    head = CMSG_FIRSTHDR(&msg);
    g_assert_cmpint(!head, ==, !descriptor);
    if (head) {
        memcpy(descriptor, CMSG_DATA(head), sizeof(int));
    }
    return m;
}

void cable_expect_end(int fd)
{
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];
    ssize_t len;

    /* WAKE messages can precede the end of the stream. */
    do {
        await_readable(fd, "end");
        len = recv(fd, bytes, sizeof(bytes), 0);
    } while (len == 8);
    g_assert_cmpint(len, <=, 0);
}

int cable_memory_new(size_t bytes, unsigned seals)
{
    int fd = memfd_create("cable", MFD_ALLOW_SEALING | MFD_CLOEXEC);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, bytes), ==, 0);
    g_assert_cmpint(fcntl(fd, F_ADD_SEALS, seals), ==, 0);
    return fd;
}

static size_t direction_bytes(uint32_t slots, uint32_t stride)
{
    return ROUND_UP(QRNIC_CABLE_CONTROL_SIZE + (size_t)slots * stride, 4096);
}

CablePeer *cable_peer_map(int fd, const QrnicCableMessage *m, int memory,
                          bool first)
{
    CablePeer *p = g_new0(CablePeer, 1);
    size_t half = direction_bytes(m->slots, m->stride);

    p->fd = fd;
    p->slots = m->slots;
    p->stride = m->stride;
    p->max_frame = m->max_frame;
    p->bytes = 2 * half;
    p->memory = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory,
                     0);
    g_assert(p->memory != MAP_FAILED);
    close(memory);
    p->out = p->memory + (first ? 0 : half);
    p->in = p->memory + (first ? half : 0);
    if (!first) {
        QrnicCableMessage ready = {
            .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_READY,
        };

        cable_message_send(fd, &ready, -1);
    }
    return p;
}

CablePeer *cable_peer_connect(int fd, bool makes_memory)
{
    QrnicCableMessage m = cable_hello(makes_memory ? UINT64_MAX : 0);
    uint32_t lines = DIV_ROUND_UP(QRNIC_CABLE_SLOT_BYTES + FRAME,
                                  QRNIC_CABLE_LINE);
    int memory;

    cable_message_send(fd, &m, -1);
    m = cable_message_expect(fd, QRNIC_CABLE_HELLO, NULL);
    if (makes_memory) {
        m = (QrnicCableMessage) {
            .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_MEMORY,
            .version = 1, .slots = SLOTS, .max_frame = FRAME,
            .stride = (lines + !(lines % 2)) * QRNIC_CABLE_LINE,
        };
        memory = cable_memory_new(2 * direction_bytes(m.slots, m.stride),
                                  F_SEAL_SHRINK);
        cable_message_send(fd, &m, memory);
        cable_message_expect(fd, QRNIC_CABLE_READY, NULL);
    } else {
        m = cable_message_expect(fd, QRNIC_CABLE_MEMORY, &memory);
        g_assert_cmpuint(m.slots, ==, SLOTS);
    }
    return cable_peer_map(fd, &m, memory, makes_memory);
}

void cable_peer_free(CablePeer *p)
{
    munmap(p->memory, p->bytes);
    close(p->fd);
    g_free(p);
}

uint32_t *cable_index(uint8_t *direction, unsigned offset)
{
    return (uint32_t *)(direction + offset);
}

#define INDEX(direction, name) \
    cable_index(direction, QRNIC_CABLE_CONTROL_##name##_OFFSET)

/*
 * Sends WAKE. The device may have closed the socket already, so errors are
 * ignored.
 */
void cable_peer_wake(CablePeer *p)
{
    const QrnicCableMessage m = {
        .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_WAKE,
    };
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];

    qrnic_cable_message_pack(bytes, &m);
    if (send(p->fd, bytes, 8, MSG_NOSIGNAL | MSG_DONTWAIT) != 8) {
        g_assert_true(errno == EPIPE || errno == EAGAIN ||
                      errno == ECONNRESET);
    }
}

static uint8_t *slot(CablePeer *p, uint8_t *direction, uint32_t index)
{
    return direction + QRNIC_CABLE_CONTROL_SIZE + index % p->slots * p->stride;
}

bool cable_peer_room(CablePeer *p)
{
    return p->produced - qatomic_load_acquire(INDEX(p->out, CONSUMED)) <
           p->slots;
}

void cable_peer_send(CablePeer *p, const uint8_t *frame, size_t len)
{
    uint8_t *at = slot(p, p->out, p->produced);

    WAIT_UNTIL(cable_peer_room(p), "no frame is taken from the cable");
    stl_le_p(at + QRNIC_CABLE_SLOT_LENGTH_OFFSET, len);
    memcpy(at + QRNIC_CABLE_SLOT_BYTES, frame, len);
    qatomic_store_release(INDEX(p->out, PRODUCED), ++p->produced);
    /*
     * The barrier orders the index before the read of the wake request.
     * Otherwise both ends could wait.
     */
    smp_mb();
    if (qatomic_read(INDEX(p->out, WAKE_AT)) == p->produced - 1) {
        cable_peer_wake(p);
    }
}

bool cable_peer_pending(CablePeer *p)
{
    return qatomic_load_acquire(INDEX(p->in, PRODUCED)) != p->consumed;
}

size_t cable_peer_receive(CablePeer *p, uint8_t *frame, size_t room)
{
    uint8_t *at = slot(p, p->in, p->consumed);
    uint32_t len;

    WAIT_UNTIL(cable_peer_pending(p), "the device sends no frame");
    len = ldl_le_p(at + QRNIC_CABLE_SLOT_LENGTH_OFFSET);
    g_assert_cmpuint(len, <=, room);
    memcpy(frame, at + QRNIC_CABLE_SLOT_BYTES, len);
    /*
     * Overwrites the slot, because the device must not trust bytes in memory
     * that it wrote before.
     */
    memset(at, 0xee, p->stride);
    qatomic_store_release(INDEX(p->in, CONSUMED), ++p->consumed);
    /*
     * The barrier orders the index before the read of the wake request.
     * Otherwise both ends could wait.
     */
    smp_mb();
    if (qatomic_read(INDEX(p->in, ROOM_AT)) == p->consumed - 1) {
        cable_peer_wake(p);
    }
    return len;
}

/* Paths */

char *cable_path_new(char **dir)
{
    *dir = g_dir_make_tmp("qrnic-cable-XXXXXX", NULL);
    g_assert_nonnull(*dir);
    return g_strdup_printf("%s/c", *dir);
}

void cable_path_free(char *dir, char *path)
{
    g_autofree char *lock = g_strconcat(path, ".lock", NULL);

    unlink(path);
    unlink(lock);
    rmdir(dir);
    g_free(dir);
    g_free(path);
}

int cable_path_connect(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    g_assert_cmpuint(strlen(path), <, sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    WAIT_UNTIL(!connect(fd, (struct sockaddr *)&address, sizeof(address)),
               "no process listens at %s", path);
    return fd;
}

int cable_path_join(const char *path)
{
    int64_t end = g_get_monotonic_time() + PATIENCE_US;

    for (;;) {
        uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES] = { 0 };
        int fd = cable_path_connect(path);
        QrnicCableMessage m;

        await_readable(fd, "message");
        if (recv(fd, bytes, sizeof(bytes), MSG_PEEK) == sizeof(bytes)) {
            qrnic_cable_message_unpack(&m, bytes);
            if (m.type == QRNIC_CABLE_HELLO) {
                return fd;
            }
        }
        close(fd);
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        g_usleep(200);
    }
}

/* Sends and receives frames in the child process until the test kills it. */

static void G_NORETURN victim(const char *path, const uint8_t *frames,
                              size_t len, unsigned count, int up)
{
    uint8_t frame[FRAME];
    CablePeer *p = cable_peer_connect(cable_path_join(path),
                                      getpid() % 2);
    unsigned next = 0;

    if (write(up, "u", 1) != 1) {
        _exit(1);
    }
    for (;;) {
        if (cable_peer_room(p)) {
            cable_peer_send(p, frames + len * (next++ % count), len);
        } else if (cable_peer_pending(p)) {
            cable_peer_receive(p, frame, sizeof(frame));
        } else {
            sched_yield();
        }
    }
}

pid_t cable_victim_start(const char *path, const uint8_t *frames, size_t len,
                         unsigned count)
{
    int up[2];
    pid_t pid;
    char byte;

    g_assert_cmpint(pipe(up), ==, 0);
    pid = fork();
    g_assert_cmpint(pid, >=, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(up[0]);
        victim(path, frames, len, count, up[1]);
    }
    close(up[1]);
    await_readable(up[0], "sign of life of the one to be killed");
    g_assert_cmpint(read(up[0], &byte, 1), ==, 1);
    close(up[0]);
    return pid;
}

void cable_victim_kill(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    /* Asserts that the process ran until SIGKILL. */
    g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Descriptors that close slowly */

#define LINGER_S 600
/* The most descriptors of one message (Linux: SCM_MAX_FD) */
#define MAX_DESCRIPTORS 253
#define DISTINCT 4

struct CableAttack {
    pid_t pid;
    int listener;
};

CableAttack *cable_attack_new(pid_t pid)
{
    CableAttack *a = g_new0(CableAttack, 1);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int small = 4096;

    a->pid = pid;
    a->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint(a->listener, >=, 0);
    g_assert_cmpint(setsockopt(a->listener, SOL_SOCKET, SO_RCVBUF, &small,
                               sizeof(small)), ==, 0);
    g_assert_cmpint(bind(a->listener, (struct sockaddr *)&address,
                         sizeof(address)), ==, 0);
    g_assert_cmpint(listen(a->listener, 1024), ==, 0);
    return a;
}

void cable_attack_free(CableAttack *a)
{
    /* Resets all connections, because none was accepted. */
    close(a->listener);
    g_free(a);
}

static int lingering_socket(CableAttack *a)
{
    const struct linger linger = { .l_onoff = 1, .l_linger = LINGER_S };
    static const uint8_t data[16384];
    struct sockaddr_in address;
    socklen_t len = sizeof(address);
    int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(getsockname(a->listener, (struct sockaddr *)&address, &len),
                    ==, 0);
    g_assert_cmpint(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small,
                               sizeof(small)), ==, 0);
    g_assert_cmpint(connect(fd, (struct sockaddr *)&address, len), ==, 0);
    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0) {
        continue;
    }
    g_assert_cmpint(errno, ==, EAGAIN);
    g_assert_cmpint(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger,
                               sizeof(linger)), ==, 0);
    return fd;
}

bool cable_attack_send(CableAttack *a, int fd, const void *bytes, size_t len,
                       unsigned count)
{
    char control[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))]
        __attribute__((aligned(8))) = "";
    struct iovec iov = { .iov_base = (void *)bytes, .iov_len = len };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = CMSG_SPACE(count * sizeof(int)),
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    int fds[DISTINCT];
    siginfo_t info;
    ssize_t sent;
    int error;

    g_assert_cmpuint(count, <=, MAX_DESCRIPTORS);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (unsigned i = 0; i < DISTINCT; i++) {
        fds[i] = lingering_socket(a);
    }
    for (unsigned i = 0; i < count; i++) {
        memcpy(CMSG_DATA(head) + i * sizeof(int), &fds[i % DISTINCT],
               sizeof(int));
    }
    /*
     * The receiver stops here so that it closes its copies after this process
     * does.
     */
    kill(a->pid, SIGSTOP);
    g_assert_cmpint(waitid(P_PID, a->pid, &info, WSTOPPED), ==, 0);
    sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    error = errno;
    for (unsigned i = 0; i < DISTINCT; i++) {
        const struct linger none = { 0 };

        /*
         * The socket has no SO_LINGER, so that this process does not block when
         * it closes the last copy.
         */
        if (sent < 0 || i >= count) {
            setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        }
        close(fds[i]);
    }
    kill(a->pid, SIGCONT);
    if (sent < 0 && error == EPERM) {
        return false;
    }
    if (sent < 0) {
        g_assert_true(error == EPIPE || error == EAGAIN || error == ECONNRESET);
    } else {
        g_assert_cmpint(sent, ==, len);
    }
    return true;
}

bool cable_attack_message(CableAttack *a, int fd, const QrnicCableMessage *m,
                          unsigned count)
{
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];

    qrnic_cable_message_pack(bytes, m);
    return cable_attack_send(a, fd, bytes, m->type == QRNIC_CABLE_WAKE ? 8 :
                             sizeof(bytes), count);
}

bool cable_all_read(int fd)
{
    int bytes = 0;

    g_assert_cmpint(ioctl(fd, SIOCOUTQ, &bytes), ==, 0);
    return bytes == 0;
}

/* Resources of a process */

Possessions possessions_of(pid_t pid)
{
    g_autofree char *fds = g_strdup_printf("/proc/%d/fd", pid);
    g_autofree char *maps = g_strdup_printf("/proc/%d/maps", pid);
    g_autofree char *status = g_strdup_printf("/proc/%d/status", pid);
    g_autofree char *text = NULL, *about = NULL;
    GDir *dir = g_dir_open(fds, 0, NULL);
    Possessions p = { 0 };

    g_assert_nonnull(dir);
    while (g_dir_read_name(dir)) {
        p.descriptors++;
    }
    g_dir_close(dir);
    g_assert_true(g_file_get_contents(maps, &text, NULL, NULL));
    for (const char *at = text; (at = strchr(at, '\n')); at++) {
        p.mappings++;
    }
    g_assert_true(g_file_get_contents(status, &about, NULL, NULL));
    p.kib = g_ascii_strtoull(strstr(about, "VmRSS:") + 6, NULL, 10);
    return p;
}

/*
 * Tolerated growth of memory, which is less than a page for each of a thousand
 * ends
 */
#define NOISE_KIB 2048
/*
 * Tolerated number of new mappings: stacks and heaps of threads that the C
 * library keeps for reuse
 */
#define NOISE_MAPPINGS 16

void possessions_check(pid_t pid, const Possessions *before)
{
    Possessions now;

    /*
     * The test waits, because the process frees the resources of the last end
     * later.
     */
    WAIT_UNTIL((now = possessions_of(pid)).descriptors <= before->descriptors &&
               now.mappings <= before->mappings + NOISE_MAPPINGS,
               "%u descriptors and %u mappings, before %u and %u",
               now.descriptors, now.mappings, before->descriptors,
               before->mappings);
    g_test_message("memory: %lu KiB, before %lu", now.kib, before->kib);
    g_assert_cmpuint(now.kib, <=, before->kib + NOISE_KIB);
}

static void send_empty(int fd, unsigned descriptors)
{
    char control[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))]
        __attribute__((aligned(8))) = "";
    struct iovec iov = { .iov_base = control };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = CMSG_SPACE(descriptors * sizeof(int)),
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    g_assert_cmpint(null, >=, 0);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    for (unsigned i = 0; i < descriptors; i++) {
        memcpy(CMSG_DATA(head) + i * sizeof(int), &null, sizeof(int));
    }
    g_assert_cmpint(sendmsg(fd, &msg, MSG_NOSIGNAL), ==, 0);
    close(null);
}

void cable_empty_attack(pid_t pid, const char *path)
{
    /*
     * The test tries three small counts, because the kernel rounds the space
     * for descriptors up, and two counts fit into the space for one.
     */
    static const unsigned counts[] = { 1, 2, 3, MAX_DESCRIPTORS };
    unsigned before = 0, now;

    for (unsigned i = 0; i < 32; i++) {
        int fd = cable_path_join(path);

        if (i == 0) {
            before = possessions_of(pid).descriptors;
        }
        cable_message_expect(fd, QRNIC_CABLE_HELLO, NULL);
        send_empty(fd, counts[i % ARRAY_SIZE(counts)]);
        cable_expect_end(fd);
        close(fd);
    }
    WAIT_UNTIL((now = possessions_of(pid).descriptors) <= before,
               "the process has %u descriptors, before it had %u", now, before);
}
