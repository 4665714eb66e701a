// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * stream_receive.c: compares a streaming receive queue with an ordinary one. If
 * messages have 64 bytes to 64 KiB, an ordinary queue needs a buffer of 64 KiB
 * for each. A streaming receive queue places many messages into one large
 * buffer, one behind the other. The program receives the same mix in both ways
 * and prints the costs.
 *
 *   stream_receive [-d DEVICE] [-g GID-INDEX] [-n MESSAGES] [-m MIX] [-o]   receives
 *   stream_receive [-d DEVICE] [-g GID-INDEX] [-n MESSAGES] [-m MIX] SERVER sends
 *
 * With -o each message has its own buffer. The option -m is the number of
 * powers of two in the mix, from 64 bytes on, 1 to 10.
 */
#include <endian.h>
#include <getopt.h>

#include <infiniband/qrnicdv.h>

#include "peer.h"

#define TCP_PORT "18602"
#define SMALLEST 64u
#define LONGEST 65536u
#define MEMORY (4u << 20)
#define LARGE (1u << 20)	/* a buffer for many messages */
#define SENDS 8

struct receiver {
	struct peer *peer;
	struct ibv_cq_ex *cq;
	struct ibv_mr *mr;
	uint32_t buffer_size;
	unsigned long messages, bytes, buffers;
};

static unsigned int mix = 10;

/* Returns a random length; each power of two is equally likely. */
static uint32_t length_of(uint32_t message)
{
	uint32_t hash = message * 2654435761u >> 8, least = SMALLEST << hash % mix;

	return least + (hash >> 4) % (least + 1);
}

static uint8_t pattern(uint32_t message, uint32_t at)
{
	return message * 151 + at * 7 + (at >> 8) * 13;
}

/* Posts a buffer, whose number is its wr_id. */
static void post_buffer(struct receiver *r, uint64_t number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->mr->addr + number * r->buffer_size,
		.length = r->buffer_size,
		.lkey = r->mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = { number, NULL, &sge, 1 };

	errno = ibv_post_recv(r->peer->qp, &wr, &bad);
	check(!errno, "cannot post a receive");
}

/* Checks the current message of the CQ. */
static void received(struct receiver *r)
{
	uint32_t length = ibv_wc_read_byte_len(r->cq), at, offset, flags, message;
	const uint8_t *data;

	check(r->cq->status == IBV_WC_SUCCESS, "a message failed");
	flags = qrnicdv_wc_read_stream(r->cq, &offset);
	message = be32toh(ibv_wc_read_imm_data(r->cq));
	data = (uint8_t *)r->mr->addr + r->cq->wr_id * r->buffer_size + offset;
	check(message == r->messages && length == length_of(message), "an unexpected message has arrived");
	for (at = 0; at < length; at++)
		check(data[at] == pattern(message, at), "a byte is wrong");
	r->messages++;
	r->bytes += length;
	/*
	 * Only a used-up buffer is reused, because otherwise more messages may
	 * follow in the buffer
	 */
	if (flags & QRNICDV_WC_STREAM_USED) {
		r->buffers++;
		post_buffer(r, r->cq->wr_id);
	}
}

static void make_queue(struct receiver *r, bool ordinary)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4096,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM,
	};
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_STREAM,
		.stream = { .max_message = LONGEST, .max_messages = 20000, .align = 64 },
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { 1, MEMORY / r->buffer_size, 1, 1, 0 },
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = r->peer->pd,
	};

	r->cq = ibv_create_cq_ex(r->peer->context, &cq_attr);
	check(r->cq, "cannot create a CQ");
	r->peer->cq = attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(r->cq);
	r->peer->qp = ordinary ? ibv_create_qp_ex(r->peer->context, &attr) :
		      qrnicdv_create_qp(r->peer->context, &attr, &dv, sizeof(dv));
	check(r->peer->qp, "cannot create a QP");
	r->peer->local.qp_num = r->peer->qp->qp_num;
}

static void receive(struct peer *peer, unsigned long count, bool ordinary)
{
	struct receiver r = { .peer = peer, .buffer_size = ordinary ? LONGEST : LARGE };
	struct ibv_poll_cq_attr poll = { 0 };
	uint64_t number;

	make_queue(&r, ordinary);
	r.mr = peer_memory(peer, MEMORY);
	peer_tcp(peer, NULL, TCP_PORT);
	peer_exchange(peer, r.mr);
	peer_connect(peer);
	for (number = 0; number < MEMORY / r.buffer_size; number++)
		post_buffer(&r, number);
	peer_meet(peer);
	while (r.messages < count) {
		if (ibv_start_poll(r.cq, &poll))
			continue;
		do {
			received(&r);
		} while (!ibv_next_poll(r.cq));
		ibv_end_poll(r.cq);
	}
	printf("%lu messages, %lu bytes, %lu buffers of %u bytes used up\n",
	       r.messages, r.bytes, r.buffers, r.buffer_size);
	peer_meet(peer);
	peer_close(peer);
	peer_free(r.mr);
}

static void send_all(struct peer *peer, unsigned long count, const char *server)
{
	struct ibv_qp_cap cap = { .max_send_wr = SENDS, .max_send_sge = 1 };
	struct ibv_mr *mr = peer_memory(peer, SENDS * 2 * LONGEST);
	unsigned long done = 0, sent = 0, at;

	peer_queues(peer, &cap);
	peer_tcp(peer, server, TCP_PORT);
	peer_exchange(peer, mr);
	peer_connect(peer);
	peer_meet(peer);
	while (done < count) {
		uint8_t *data = (uint8_t *)mr->addr + sent % SENDS * LONGEST;
		struct ibv_sge sge = { (uintptr_t)data, length_of(sent), mr->lkey };
		struct ibv_send_wr *bad, wr = {
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
			.send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(sent),
		};

		if (sent == count || sent - done == SENDS) {
			peer_complete(peer);
			done++;
			continue;
		}
		for (at = 0; at < sge.length; at++)
			data[at] = pattern(sent, at);
		errno = ibv_post_send(peer->qp, &wr, &bad);
		check(!errno, "cannot post");
		sent++;
	}
	peer_meet(peer);
	peer_close(peer);
}

int main(int argc, char **argv)
{
	struct peer peer = { .gid_index = PEER_GID_V2 };
	unsigned long count = 1000;
	const char *name = NULL;
	bool ordinary = false;
	int option;

	while ((option = getopt(argc, argv, "d:g:n:m:o")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'g')
			peer.gid_index = atoi(optarg);
		else if (option == 'n')
			count = strtoul(optarg, NULL, 0);
		else if (option == 'm')
			mix = atoi(optarg);
		else if (option == 'o')
			ordinary = true;
		else
			mix = 0;
	}
	if (mix < 1 || mix > 10)
		return usage("stream_receive [-d DEVICE] [-g GID-INDEX] [-n MESSAGES] [-m MIX (1-10)] [-o] [SERVER]");
	peer_open(&peer, name);
	if (argv[optind])
		send_all(&peer, count, argv[optind]);
	else
		receive(&peer, count, ordinary);
	return 0;
}
