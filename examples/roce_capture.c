// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * roce_capture.c: writes every frame that the adapter sends and receives,
 * including RoCE frames, to standard output in pcap format. The kernel never
 * sees RDMA traffic, so tcpdump on the network interface cannot show it. The
 * program creates a flow rule of type sniffer, by which the adapter copies the
 * frames. This needs CAP_NET_RAW.
 *
 *   roce_capture -d DEVICE [-n FRAMES] | tcpdump -n -r -
 *
 * The program ends after FRAMES frames or with Ctrl-C, and prints the number of
 * frames.
 */
#include <getopt.h>
#include <poll.h>
#include <signal.h>

#include "peer.h"

#define RECEIVES 512
/* Longest frame: jumbo frame with VLAN tag and RoCE headers */
#define ROOM 9216

#define PCAP_MAGIC_NS 0xa1b23c4du
#define PCAP_LINK_ETHERNET 1

struct pcap_file {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t zone, accuracy, longest, link;
};

struct pcap_frame {
	uint32_t seconds, nanoseconds, captured, length;
};

struct capture {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buffer;
	unsigned long frames, wanted;
};

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

/* Posts slot i of the buffer for one frame. */
static void post(struct capture *capture, uint64_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)capture->buffer + slot * ROOM,
		.length = ROOM,
		.lkey = capture->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(capture->qp, &wr, &bad);
	check(!errno, "cannot post a receive");
}

/*
 * Moves the queue pair to RTS. The transitions need only the port, because a
 * raw packet queue pair has no peer.
 */
static void start_receiving(struct capture *capture)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT_NUM };
	uint64_t slot;

	errno = ibv_modify_qp(capture->qp, &attr, IBV_QP_STATE | IBV_QP_PORT);
	check(!errno, "cannot move to INIT");
	for (slot = 0; slot < RECEIVES; slot++)
		post(capture, slot);
	attr.qp_state = IBV_QPS_RTR;
	errno = ibv_modify_qp(capture->qp, &attr, IBV_QP_STATE);
	check(!errno, "cannot move to RTR");
}

static void make_objects(struct capture *capture)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = RECEIVES, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RAW_PACKET,
	};

	capture->pd = ibv_alloc_pd(capture->context);
	check(capture->pd, "cannot create a PD");
	capture->channel = ibv_create_comp_channel(capture->context);
	check(capture->channel, "cannot create a completion channel");
	capture->cq = ibv_create_cq(capture->context, RECEIVES, NULL, capture->channel, 0);
	check(capture->cq, "cannot create a CQ");
	capture->buffer = aligned_alloc(4096, RECEIVES * ROOM);
	check(capture->buffer, "no memory");
	capture->mr = ibv_reg_mr(capture->pd, capture->buffer, RECEIVES * ROOM, IBV_ACCESS_LOCAL_WRITE);
	check(capture->mr, "cannot register memory");
	attr.send_cq = attr.recv_cq = capture->cq;
	capture->qp = ibv_create_qp(capture->pd, &attr);
	check(capture->qp, "cannot create a raw packet queue pair");
}

static void write_frame(struct capture *capture, const struct ibv_wc *wc)
{
	struct pcap_frame header = { .captured = wc->byte_len, .length = wc->byte_len };
	struct timespec now;

	check(wc->status == IBV_WC_SUCCESS, ibv_wc_status_str(wc->status));
	clock_gettime(CLOCK_REALTIME, &now);
	header.seconds = now.tv_sec;
	header.nanoseconds = now.tv_nsec;
	fwrite(&header, sizeof(header), 1, stdout);
	fwrite(capture->buffer + wc->wr_id * ROOM, wc->byte_len, 1, stdout);
	capture->frames++;
	post(capture, wc->wr_id);
}

static bool enough(const struct capture *capture)
{
	return stopped || (capture->wanted && capture->frames >= capture->wanted);
}

/*
 * Writes all received frames. The CQ is polled again after the request for an
 * event, because earlier frames cause no event.
 */
static void write_frames(struct capture *capture)
{
	struct ibv_wc wc;
	int n;

	while (!enough(capture) && (n = ibv_poll_cq(capture->cq, 1, &wc))) {
		check(n > 0, "cannot poll the CQ");
		write_frame(capture, &wc);
	}
	check(!fflush(stdout), "standard output");
}

static void run(struct capture *capture)
{
	struct pollfd event = { .fd = capture->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	while (!enough(capture)) {
		errno = ibv_req_notify_cq(capture->cq, 0);
		check(!errno, "cannot request an event");
		write_frames(capture);
		/*
		 * The wait has a timeout, because a signal may come just before
		 * it
		 */
		while (!enough(capture) && poll(&event, 1, 200) <= 0)
			continue;
		if (enough(capture))
			break;
		check(!ibv_get_cq_event(capture->channel, &cq, &context), "no event");
		ibv_ack_cq_events(cq, 1);
		write_frames(capture);
	}
}

int main(int argc, char **argv)
{
	struct pcap_file file = {
		.magic = PCAP_MAGIC_NS, .major = 2, .minor = 4, .longest = ROOM, .link = PCAP_LINK_ETHERNET,
	};
	struct ibv_flow_attr sniffer = {
		.type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(sniffer), .port = PORT_NUM,
	};
	struct capture capture = { 0 };
	const char *name = NULL;
	struct peer peer = { 0 };
	struct ibv_flow *flow;
	int option;

	while ((option = getopt(argc, argv, "d:n:")) != -1) {
		if (option == 'd') {
			name = optarg;
		} else if (option == 'n') {
			capture.wanted = strtoul(optarg, NULL, 0);
		} else {
			return usage("roce_capture [-d DEVICE] [-n FRAMES]");
		}
	}
	peer_open(&peer, name);
	capture.context = peer.context;
	make_objects(&capture);
	start_receiving(&capture);
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	fwrite(&file, sizeof(file), 1, stdout);
	check(!fflush(stdout), "standard output");

	/*
	 * The adapter copies frames from now on, so the queue is ready before
	 */
	flow = ibv_create_flow(capture.qp, &sniffer);
	check(flow, "cannot create a sniffer");
	fprintf(stderr, "capturing\n");
	run(&capture);
	fprintf(stderr, "%lu frames\n", capture.frames);

	check(!ibv_destroy_flow(flow), "cannot end the sniffer");
	check(!ibv_destroy_qp(capture.qp), "cannot destroy the queue pair");
	return 0;
}
