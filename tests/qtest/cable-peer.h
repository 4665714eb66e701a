/*
 * qrnic qtest: the other end of a cable
 *
 * Written from the manual alone; it shares nothing with the device's end but
 * the contract's offsets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_PEER_H
#define QRNIC_CABLE_PEER_H

#include "hw/rdma/qrnic/qrnic_hw.h"

typedef struct CablePeer {
    int fd;
    uint8_t *memory;
    size_t bytes;
    uint32_t slots, stride, max_frame;
    uint8_t *out, *in;          /* the two directions */
    uint32_t produced, consumed;
} CablePeer;

/* A path in a directory of its own, and the end of both */
char *cable_path_new(char **dir);
void cable_path_free(char *dir, char *path);
/* Waits until somebody listens there. */
int cable_path_connect(const char *path);
/*
 * As a new end, which is refused as long as the one before it is not yet known
 * to be gone.
 */
int cable_path_join(const char *path);

/*
 * A process of its own that is the end at a path, from when this returns until
 * it is killed: it sends `count` frames of `len` bytes, again and again, and
 * takes what comes.
 */
pid_t cable_victim_start(const char *path, const uint8_t *frames, size_t len,
                         unsigned count);
void cable_victim_kill(pid_t pid);

/*
 * Descriptors that take longer to close than any test: TCP sockets that linger
 * over data which is never received. They can be closed after the attack is
 * freed.
 */
typedef struct CableAttack CableAttack;

/* pid: of the receiver, a child of this process */
CableAttack *cable_attack_new(pid_t pid);
void cable_attack_free(CableAttack *a);
/*
 * Sends bytes with `count` descriptors, at most 253, of which nobody else has a
 * copy. Returns false if the kernel refuses to send descriptors.
 */
bool cable_attack_send(CableAttack *a, int fd, const void *bytes, size_t len,
                       unsigned count);
bool cable_attack_message(CableAttack *a, int fd, const QrnicCableMessage *m,
                          unsigned count);
/*
 * Joins the path of process pid many times, each time with one empty message
 * that brings descriptors. Asserts that the process keeps none of them.
 */
void cable_empty_attack(pid_t pid, const char *path);
/* Returns true if all messages of this end have been received or dropped. */
bool cable_all_read(int fd);

/* What a process has that an end which came and went could have left */
typedef struct Possessions {
    unsigned descriptors, mappings;
    unsigned long kib;          /* of memory in use */
} Possessions;

Possessions possessions_of(pid_t pid);
/* Asserts that it has no more than before. */
void possessions_check(pid_t pid, const Possessions *before);

/* A hello that agrees with everything; nonce decides who makes the memory. */
QrnicCableMessage cable_hello(uint64_t nonce);

void cable_message_send(int fd, const QrnicCableMessage *m, int descriptor);
/* Waits for one; asserts its type. *descriptor may be NULL. */
QrnicCableMessage cable_message_expect(int fd, unsigned type, int *descriptor);
/* Waits until the other end has hung up. */
void cable_expect_end(int fd);

/* Sealed memory of that many bytes */
int cable_memory_new(size_t bytes, unsigned seals);

/* Everything up to the moment when the cable is up at this end. */
CablePeer *cable_peer_connect(int fd, bool makes_memory);
/* From MEMORY on; first: our frames are in the first half. */
CablePeer *cable_peer_map(int fd, const QrnicCableMessage *memory,
                          int descriptor, bool first);
void cable_peer_free(CablePeer *p);

/* The member of a direction's control */
uint32_t *cable_index(uint8_t *direction, unsigned offset);
void cable_peer_wake(CablePeer *p);
bool cable_peer_room(CablePeer *p);
void cable_peer_send(CablePeer *p, const uint8_t *frame, size_t len);
bool cable_peer_pending(CablePeer *p);
/* Waits for a frame and takes it. */
size_t cable_peer_receive(CablePeer *p, uint8_t *frame, size_t room);

#endif
