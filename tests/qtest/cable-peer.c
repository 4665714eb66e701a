/*
 * qrnic qtest: the other end of a cable
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "qemu/memfd.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
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
    /* It did not read all before it closed. */
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

    /* Wake-ups may come before it. */
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

CablePeer *cable_peer_connect(int fd, bool makes_memory)
{
    CablePeer *p = g_new0(CablePeer, 1);
    QrnicCableMessage m = cable_hello(makes_memory ? UINT64_MAX : 0);
    size_t half;
    int memory;

    p->fd = fd;
    cable_message_send(fd, &m, -1);
    m = cable_message_expect(fd, QRNIC_CABLE_HELLO, NULL);
    if (makes_memory) {
        uint32_t lines = DIV_ROUND_UP(QRNIC_CABLE_SLOT_BYTES + FRAME,
                                      QRNIC_CABLE_LINE);

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
    p->slots = m.slots;
    p->stride = m.stride;
    p->max_frame = m.max_frame;
    half = direction_bytes(m.slots, m.stride);
    p->bytes = 2 * half;
    p->memory = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory,
                     0);
    g_assert(p->memory != MAP_FAILED);
    close(memory);
    p->out = p->memory + (makes_memory ? 0 : half);
    p->in = p->memory + (makes_memory ? half : 0);
    if (!makes_memory) {
        m = (QrnicCableMessage) {
            .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_READY,
        };
        cable_message_send(fd, &m, -1);
    }
    return p;
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

/* The device may be gone, or know already. */
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

void cable_peer_send(CablePeer *p, const uint8_t *frame, size_t len)
{
    uint8_t *at = slot(p, p->out, p->produced);

    WAIT_UNTIL(p->produced - qatomic_load_acquire(INDEX(p->out, CONSUMED)) <
               p->slots, "the device takes no frame from the cable");
    stl_le_p(at + QRNIC_CABLE_SLOT_LENGTH_OFFSET, len);
    memcpy(at + QRNIC_CABLE_SLOT_BYTES, frame, len);
    qatomic_store_release(INDEX(p->out, PRODUCED), ++p->produced);
    /* The wish is read after the index is there. */
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
    qatomic_store_release(INDEX(p->in, CONSUMED), ++p->consumed);
    /* The wish is read after the index is there. */
    smp_mb();
    if (qatomic_read(INDEX(p->in, ROOM_AT)) == p->consumed - 1) {
        cable_peer_wake(p);
    }
    return len;
}
