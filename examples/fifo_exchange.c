// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fifo_exchange.c: shows how collective libraries such as NCCL move data. The
 * receiver announces a buffer: it writes address and rkey into a FIFO in the
 * memory of the sender. The sender polls this memory with its CPU and writes
 * the payload to the address. Then it sends an empty RDMA write with immediate
 * data. This write consumes a receive WQE of the receiver, and its completion
 * reports that the payload is there.
 *
 *   fifo_exchange -d DEVICE -g GID-INDEX [-n MESSAGES]                         receives
 *   fifo_exchange -d DEVICE -g GID-INDEX [-n MESSAGES] [--adaptive] SERVER     sends
 *
 *   receiver                                     sender
 *      | -- RDMA write {address, rkey, serial} --> | FIFO entry, polled
 *      | <-- RDMA write: the payload ------------- |
 *      | <-- RDMA write with immediate: its size - |
 *   completion of a receive WQE
 *
 * Up to DEPTH messages are outstanding, so no end waits for a reply before it
 * uses the adapter. The receiver checks every byte.
 *
 * With --adaptive the sender requests adaptive routing, and the receiver
 * agrees. The option is in force if both adapters support it. Packets of
 * writes, and whole writes, may then overtake each other. But the last write
 * with immediate data still completes only when all earlier data is there. As
 * in NCCL, messages up to THRESHOLD bytes are then sent as one write with
 * immediate data, because several paths help only long messages.
 */
#include <getopt.h>
#include <stdatomic.h>

#include <infiniband/qrnicdv.h>

#include "peer.h"

#define TCP_PORT "18602"
#define DEPTH 8
#define LARGEST (1 << 20)
#define THRESHOLD 8192

/*
 * Announcement of a buffer by the receiver. The serial number is last, because
 * adapters write the bytes of a packet in ascending order, which NCCL also
 * relies on. Serial numbers begin at 1, because the memory is 0 at first.
 */
struct announcement {
	uint64_t address;
	uint32_t rkey;
	uint32_t size;
	uint64_t reserved[5];
	_Atomic uint64_t serial;
};

struct exchange {
	struct peer peer;
	int messages;
	bool adaptive;
	uint64_t sent;			/* serial numbers, over all sizes */
	/* written: completed announcements */
	uint64_t announced, written, received;
	/* sender: polled FIFO; receiver: source of its entries */
	struct ibv_mr *fifo;
	struct ibv_mr *buffers;		/* DEPTH messages of LARGEST bytes */
	uint32_t max_inline;
};

static const uint32_t sizes[] = { 8, 1000, 4096, 65536, LARGEST };

static char *buffer_of(struct exchange *ex, uint64_t serial)
{
	return (char *)ex->buffers->addr + serial % DEPTH * LARGEST;
}

/* Returns bytes that differ for each message. */
static uint32_t pattern(uint64_t serial, uint32_t at)
{
	return (serial * 2654435761u) ^ (at * 40503u);
}

static void fill(char *buffer, uint64_t serial, uint32_t size)
{
	uint32_t at;

	for (at = 0; at < size; at++)
		buffer[at] = pattern(serial, at / 4) >> at % 4 * 8;
}

static bool right(const char *buffer, uint64_t serial, uint32_t size)
{
	uint32_t at;

	for (at = 0; at < size; at++) {
		if (buffer[at] != (char)(pattern(serial, at / 4) >> at % 4 * 8))
			return false;
	}
	return true;
}

/* Posts a receive WQE of the receiver. */

static void post_receive(struct exchange *ex)
{
	/* The WQE has no memory, because the payload comes by RDMA writes */
	struct ibv_recv_wr *bad, wr = {};

	errno = ibv_post_recv(ex->peer.qp, &wr, &bad);
	check(!errno, "cannot post a receive");
}

static void announce(struct exchange *ex, uint32_t size)
{
	uint64_t serial = ++ex->announced;
	struct announcement *entry = (struct announcement *)ex->fifo->addr + serial % DEPTH;
	struct ibv_sge sge = {
		.addr = (uintptr_t)entry,
		.length = sizeof(*entry),
		.lkey = ex->fifo->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = serial,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = ex->peer.remote.address + serial % DEPTH * sizeof(*entry),
			.rkey = ex->peer.remote.rkey,
		},
	};

	if (ex->max_inline >= sizeof(*entry))
		wr.send_flags |= IBV_SEND_INLINE;
	memset(buffer_of(ex, serial), 0, size);
	entry->address = (uintptr_t)buffer_of(ex, serial);
	entry->rkey = ex->buffers->rkey;
	entry->size = size;
	atomic_store_explicit(&entry->serial, serial, memory_order_release);
	errno = ibv_post_send(ex->peer.qp, &wr, &bad);
	check(!errno, "cannot announce a buffer");
}

/*
 * Polls one completion, and checks the message if there is one. A slot of the
 * FIFO may be reused when its last write is complete. Otherwise a
 * retransmission of this write could overwrite its successor.
 */
static void take(struct exchange *ex, uint32_t size)
{
	struct ibv_wc wc = peer_complete(&ex->peer);

	if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
		ex->written = wc.wr_id;
		return;
	}
	ex->received++;
	check(wc.wc_flags & IBV_WC_WITH_IMM, "a completion has no immediate data");
	if (be32toh(wc.imm_data) != size || !right(buffer_of(ex, ex->received), ex->received, size)) {
		fprintf(stderr, "message %llu of %u bytes is wrong (immediate data: %u)\n",
			(unsigned long long)ex->received, size, be32toh(wc.imm_data));
		exit(1);
	}
	post_receive(ex);
}

static void receive_all(struct exchange *ex, uint32_t size)
{
	uint64_t end = ex->received + ex->messages;

	while (ex->received < end) {
		while (ex->announced < end && ex->announced - ex->received < DEPTH &&
		       ex->announced - ex->written < DEPTH)
			announce(ex, size);
		take(ex, size);
	}
}

/* Sends one message. */

static void send_one(struct exchange *ex, uint32_t size)
{
	uint64_t serial = ++ex->sent;
	struct announcement *entry = (struct announcement *)ex->fifo->addr + serial % DEPTH;
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer_of(ex, serial),
		.length = size,
		.lkey = ex->buffers->lkey,
	};
	bool alone = ex->adaptive && size <= THRESHOLD;
	struct ibv_send_wr *bad, notice = {
		.wr_id = serial,
		.sg_list = &sge,
		.num_sge = alone,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(size),
	};
	struct ibv_send_wr payload = {
		.next = &notice,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
	};

	fill(buffer_of(ex, serial), serial, size);
	while (atomic_load_explicit(&entry->serial, memory_order_acquire) != serial)
		;
	check(entry->size == size, "the announced size is wrong");
	payload.wr.rdma.remote_addr = entry->address;
	payload.wr.rdma.rkey = entry->rkey;
	notice.wr.rdma = payload.wr.rdma;
	errno = ibv_post_send(ex->peer.qp, alone ? &notice : &payload, &bad);
	check(!errno, "cannot post the writes");
}

static void send_all(struct exchange *ex, uint32_t size)
{
	double start = microseconds(), time;
	int i, done = 0;

	for (i = 0; i < ex->messages; i++) {
		/* A buffer may be reused when the write from it is complete */
		if (i - done == DEPTH) {
			peer_complete(&ex->peer);
			done++;
		}
		send_one(ex, size);
	}
	while (done++ < ex->messages)
		peer_complete(&ex->peer);
	time = microseconds() - start;
	printf("%10u %10d %14.1f %14.2f\n", size, ex->messages, time / ex->messages,
	       (double)size * ex->messages / time);
}

/*
 * Returns the ECE options of this end, or none if the adapter has no options.
 */
static struct ibv_ece options_of(struct exchange *ex)
{
	struct ibv_ece ece = {};

	if (ibv_query_ece(ex->peer.qp, &ece))
		memset(&ece, 0, sizeof(ece));
	return ece;
}

static void send_options(struct exchange *ex, struct ibv_ece ece)
{
	check(fprintf(ex->peer.tcp, "%x %x\n", ece.vendor_id, ece.options) > 0,
	      "cannot send to the peer");
}

static void take_options(struct exchange *ex)
{
	struct ibv_ece ece = {};
	char line[32];

	check(fgets(line, sizeof(line), ex->peer.tcp), "the peer has closed the TCP connection");
	check(sscanf(line, "%x %x", &ece.vendor_id, &ece.options) == 2,
	      "the peer has sent invalid data");
	/*
	 * The peer has no options, but libibverbs accepts this only with the
	 * vendor of this end
	 */
	if (!ece.vendor_id)
		ece.vendor_id = options_of(ex).vendor_id;
	ibv_set_ece(ex->peer.qp, &ece);
}

/*
 * Creates a queue pair whose program accepts writes in any order, because the
 * receiver reads only complete messages. Without support of the adapter, the
 * queue pair is an ordinary one.
 */
static struct ibv_qp *make_adaptive(struct peer *peer, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = peer->pd,
	};
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_OPTIONS,
		.options = QRNIC_QPO_ADAPTIVE_ROUTING,
	};
	struct ibv_qp *qp = qrnicdv_create_qp(peer->context, &attr_ex, &dv, sizeof(dv));

	if (!qp)
		return errno == EOPNOTSUPP ? ibv_create_qp(peer->pd, attr) : NULL;
	attr->cap = attr_ex.cap;
	return qp;
}

/*
 * Agrees on options by ECE, before the queue pairs are connected. The sender
 * offers, and the receiver answers with the options that its adapter supports.
 */
static void agree(struct exchange *ex, bool sender)
{
	struct ibv_ece ece;

	if (sender)
		send_options(ex, options_of(ex));
	take_options(ex);
	if (!sender)
		send_options(ex, options_of(ex));
	ece = options_of(ex);
	printf("adaptive routing: %s\n", ece.vendor_id == QRNIC_ECE_VENDOR_ID &&
	       ece.options & QRNIC_QPO_ADAPTIVE_ROUTING ? "yes" : "no");
}

static void run(struct exchange *ex, const char *name, const char *server)
{
	struct ibv_qp_cap cap = {
		.max_send_wr = 2 * DEPTH, .max_recv_wr = DEPTH,
		.max_send_sge = 1, .max_recv_sge = 1,
		.max_inline_data = sizeof(struct announcement),
	};
	struct peer *peer = &ex->peer;
	size_t i;

	peer_open(peer, name);
	ex->fifo = peer_memory(peer, DEPTH * sizeof(struct announcement));
	ex->buffers = peer_memory(peer, (size_t)DEPTH * LARGEST);
	/* The receiver always agrees, because the sender decides */
	if (ex->adaptive || !server)
		peer->make_qp = make_adaptive;
	peer_queues(peer, &cap);
	ex->max_inline = cap.max_inline_data;
	peer_tcp(peer, server, TCP_PORT);
	peer_exchange(peer, ex->fifo);
	agree(ex, server);
	peer_connect(peer);
	for (i = 0; !server && i < DEPTH; i++)
		post_receive(ex);
	peer_meet(peer);

	if (server)
		printf("%10s %10s %14s %14s\n", "bytes", "messages", "us/message", "MB/s");
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (server)
			send_all(ex, sizes[i]);
		else
			receive_all(ex, sizes[i]);
		peer_meet(peer);
	}
	if (!server)
		printf("%llu messages, all bytes are correct\n", (unsigned long long)ex->received);

	peer_free(ex->fifo);
	peer_free(ex->buffers);
	peer_close(peer);
}

int main(int argc, char **argv)
{
	static const struct option words[] = { { "adaptive", no_argument, NULL, 'a' }, {} };
	struct exchange ex = { .messages = 20, .peer.gid_index = PEER_GID_V2 };
	const char *name = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "d:g:n:", words, NULL)) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'g')
			ex.peer.gid_index = atoi(optarg);
		else if (option == 'n')
			ex.messages = atoi(optarg);
		else if (option == 'a')
			ex.adaptive = true;
		else
			ex.messages = 0;
	}
	if (ex.messages < 1) {
		fprintf(stderr, "usage: fifo_exchange [-d DEVICE] [-g GID-INDEX] [-n MESSAGES] [--adaptive] [SERVER]\n");
		return 2;
	}
	run(&ex, name, argv[optind]);
	return 0;
}
