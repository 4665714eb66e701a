/*
 * qrnic qtest: the peer on a cable
 *
 * Owns one end of a cable: its socket, and its mapping of the shared memory.
 * The code is written from the manual and shares only the contract's offsets
 * with the device, because an error in common code would be invisible. The file
 * also has attacks on the socket, and counts the resources of a process.
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
    uint8_t *out, *in;          /* The two directions */
    uint32_t produced, consumed;
} CablePeer;

/* Makes a path in a new directory, and removes both. */
char *cable_path_new(char **dir);
void cable_path_free(char *dir, char *path);
/* Connects to a path. Waits until a process listens there. */
int cable_path_connect(const char *path);
/*
 * Connects as a new end. The listener rejects an end until it has noticed that
 * the previous one is gone, so this function repeats the attempt.
 */
int cable_path_join(const char *path);

/*
 * Starts a process that is the end at a path, and returns when its cable is up.
 * The process sends `count` frames of `len` bytes in a loop, and consumes
 * received frames, until it is killed.
 */
pid_t cable_victim_start(const char *path, const uint8_t *frames, size_t len,
                         unsigned count);
void cable_victim_kill(pid_t pid);

/*
 * Descriptors that take longer to close than any test: TCP sockets with
 * SO_LINGER and data that the receiver never reads. After the attack is freed,
 * the descriptors close quickly.
 */
typedef struct CableAttack CableAttack;

/* Creates an attack. pid: the receiver, a child of this process. */
CableAttack *cable_attack_new(pid_t pid);
void cable_attack_free(CableAttack *a);
/*
 * Sends bytes with `count` descriptors, at most 253. The receiver has the only
 * copy of each, so that its close() is the last. Returns false if the kernel
 * rejects the descriptors.
 */
bool cable_attack_send(CableAttack *a, int fd, const void *bytes, size_t len,
                       unsigned count);
bool cable_attack_message(CableAttack *a, int fd, const QrnicCableMessage *m,
                          unsigned count);
/*
 * Joins the path of process pid many times, each time with one empty message
 * and descriptors. Asserts that the process keeps none of the descriptors.
 */
void cable_empty_attack(pid_t pid, const char *path);
/* Returns true if all messages of this end have been received or dropped. */
bool cable_all_read(int fd);

/* Resources of a process that an end could leak */
typedef struct Possessions {
    unsigned descriptors, mappings;
    unsigned long kib;          /* Memory in use */
} Possessions;

Possessions possessions_of(pid_t pid);
/* Asserts that a process has no more resources than before. */
void possessions_check(pid_t pid, const Possessions *before);

/*
 * Returns a HELLO that agrees with everything. The end with the higher nonce
 * makes the memory.
 */
QrnicCableMessage cable_hello(uint64_t nonce);

void cable_message_send(int fd, const QrnicCableMessage *m, int descriptor);
/* Waits for a message and asserts its type. descriptor: may be NULL. */
QrnicCableMessage cable_message_expect(int fd, unsigned type, int *descriptor);
/* Waits until the device has closed the socket. */
void cable_expect_end(int fd);

/* Creates sealed memory of that many bytes. */
int cable_memory_new(size_t bytes, unsigned seals);

/* Performs the whole handshake. Returns when the cable is up at this end. */
CablePeer *cable_peer_connect(int fd, bool makes_memory);
/*
 * Performs the handshake from MEMORY on. first: this end sends in the first
 * half.
 */
CablePeer *cable_peer_map(int fd, const QrnicCableMessage *memory,
                          int descriptor, bool first);
void cable_peer_free(CablePeer *p);

/* Returns the address of an index of a direction. */
uint32_t *cable_index(uint8_t *direction, unsigned offset);
void cable_peer_wake(CablePeer *p);
bool cable_peer_room(CablePeer *p);
void cable_peer_send(CablePeer *p, const uint8_t *frame, size_t len);
bool cable_peer_pending(CablePeer *p);
/* Waits for a frame, consumes it and returns its length. */
size_t cable_peer_receive(CablePeer *p, uint8_t *frame, size_t room);

#endif
