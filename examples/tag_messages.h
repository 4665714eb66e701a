/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * tag_messages.h: the sender of tag_matching.c, and tag matching in software.
 * The software needs receive buffers, a list of buffers that wait for a tag,
 * and a copy. For a rendezvous it needs a read and a message at the end.
 */
#ifndef EXAMPLES_TAG_MESSAGES_H
#define EXAMPLES_TAG_MESSAGES_H

#include <endian.h>

#include <infiniband/tm_types.h>

#include "peer.h"

/* messages of a round; each tag once, in another order than the buffers */
#define MESSAGES 128u
#define LOOKED_AT 0xffffffffull	/* compared bits of a tag */

struct header {
	struct ibv_tmh tag;
	struct ibv_rvh data;
};

/* A buffer that waits for a tag, as software needs it */
struct waiting {
	uint64_t tag, mask;
	uint8_t *buffer;
	struct waiting *next;
};

static struct peer to = { .gid_index = PEER_GID_V2 }, from;
static struct ibv_srq *srq;
/* buffers of messages; receive buffers */
static struct ibv_mr *data, *messages;
static uint32_t size = 64;
static bool rendezvous;
static struct waiting *pool, *list, **list_end = &list;

/* Posts a receive buffer. */
static void post_receive(uint64_t number)
{
	uint32_t room = sizeof(struct header) + size;
	struct ibv_sge sge = { (uintptr_t)messages->addr + number * room, room, messages->lkey };
	struct ibv_recv_wr *bad, wr = { number, NULL, &sge, 1 };

	errno = ibv_post_srq_recv(srq, &wr, &bad);
	check(!errno, "cannot post a receive");
}

static void list_append(uint64_t tag, uint64_t mask, uint8_t *buffer)
{
	pool[tag] = (struct waiting){ tag, mask, buffer, NULL };
	*list_end = &pool[tag];
	list_end = &pool[tag].next;
}

/*
 * Chain of work requests: reads of rendezvous data, and messages that report
 * their end. All are posted together.
 */
static struct ibv_send_wr chain[2 * MESSAGES];
static struct ibv_sge pieces[2 * MESSAGES];
static uint32_t chained;

static void read_and_tell(uint64_t number, struct header *header, uint8_t *buffer)
{
	struct ibv_send_wr *read = &chain[chained], *end = read + 1;
	struct ibv_sge *sge = &pieces[chained];

	sge[0] = (struct ibv_sge){ (uintptr_t)buffer, be32toh(header->data.len), data->lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)header, sizeof(*header), messages->lkey };
	*read = (struct ibv_send_wr){
		.next = end, .sg_list = &sge[0], .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { be64toh(header->data.va), be32toh(header->data.rkey) },
	};
	*end = (struct ibv_send_wr){
		.wr_id = number, .sg_list = &sge[1], .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED,
	};
	if (chained)
		read[-1].next = read;
	chained += 2;
	header->tag.opcode = IBV_TMH_FIN;
}

static void post_chain(void)
{
	struct ibv_send_wr *bad;

	errno = chained ? ibv_post_send(to.qp, chain, &bad) : 0;
	check(!errno, "cannot post reads");
	chained = 0;
}

/*
 * Finds the first buffer in the list with the tag of a message, and moves the
 * data into it.
 */
static void match(uint64_t number)
{
	struct header *header = (struct header *)((uint8_t *)messages->addr +
						  number * (sizeof(*header) + size));
	uint64_t tag = be64toh(header->tag.tag);
	struct waiting **at = &list, *found;

	while (*at && (tag & (*at)->mask) != (*at)->tag)
		at = &(*at)->next;
	found = *at;
	check(found, "no buffer matches a message");
	*at = found->next;
	if (!*at)
		list_end = at;
	if (rendezvous)
		read_and_tell(number, header, found->buffer);
	else
		memcpy(found->buffer, &header->data, size);
}

/*
 * Sends each tag once. The message at the end of a rendezvous arrives as a
 * receive.
 */
static void send_all(struct ibv_mr *source)
{
	uint8_t *bytes = (uint8_t *)source->addr + 2 * MESSAGES * sizeof(struct header);
	struct header *h = source->addr;
	struct ibv_send_wr *bad;
	struct ibv_recv_wr *bad_recv;
	uint32_t i, tag;

	for (i = 0; i < MESSAGES; i++, h++) {
		struct ibv_sge end = { (uintptr_t)(h + MESSAGES), sizeof(*h), source->lkey };
		struct ibv_recv_wr recv = { .sg_list = &end, .num_sge = 1 };
		struct ibv_sge sge[] = { { (uintptr_t)h, sizeof(h->tag), source->lkey },
					 { 0, size, source->lkey } };
		struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 2, .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED };

		tag = i * 77 % MESSAGES;
		sge[1].addr = (uintptr_t)bytes + tag * size;
		h->tag = (struct ibv_tmh){ .opcode = IBV_TMH_EAGER, .tag = htobe64(tag) };
		if (rendezvous) {
			h->tag.opcode = IBV_TMH_RNDV;
			h->data = (struct ibv_rvh){ htobe64(sge[1].addr), htobe32(source->rkey),
						    htobe32(size) };
			sge[0].length = sizeof(*h);
			wr.num_sge = 1;
			errno = ibv_post_recv(from.qp, &recv, &bad_recv);
			check(!errno, "cannot post a receive");
		}
		errno = ibv_post_send(from.qp, &wr, &bad);
		check(!errno, "cannot post a message");
	}
}

#endif
