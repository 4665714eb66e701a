// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * resource_costs.c: measures the control path. The program either registers
 * memory, whose pages of 4 KiB are already present, or creates and destroys
 * queue pairs. The output is the time of each part.
 *
 *   resource_costs -d DEVICE -m MIB      "registered MIB MiB: N ms, deregistered: N ms"
 *   resource_costs -d DEVICE -q COUNT    "created COUNT queue pairs: N ms, destroyed: N ms"
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <infiniband/verbs.h>

static void fail(const char *what)
{
	fprintf(stderr, "resource_costs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i]; i++) {
		if (!name || !strcmp(ibv_get_device_name(list[i]), name)) {
			context = ibv_open_device(list[i]);
			break;
		}
	}
	if (!context)
		fail("no such RDMA device");
	ibv_free_device_list(list);
	return context;
}

static void memory(struct ibv_pd *pd, size_t mib)
{
	size_t length = mib << 20;
	double start, registered;
	struct ibv_mr *mr;
	void *area;

	area = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		fail("mmap");
	/* With huge pages, 512 pages would be one entry */
	madvise(area, length, MADV_NOHUGEPAGE);
	memset(area, 1, length);
	start = milliseconds();
	mr = ibv_reg_mr(pd, area, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		fail("ibv_reg_mr");
	registered = milliseconds();
	if (ibv_dereg_mr(mr))
		fail("ibv_dereg_mr");
	printf("registered %zu MiB: %.1f ms, deregistered: %.1f ms\n", mib, registered - start,
	       milliseconds() - registered);
}

static void queue_pairs(struct ibv_pd *pd, int count)
{
	struct ibv_qp **qps = calloc(count, sizeof(*qps));
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	double start, created;
	int i;

	attr.send_cq = attr.recv_cq = ibv_create_cq(pd->context, 16, NULL, NULL, 0);
	if (!qps || !attr.send_cq)
		fail("ibv_create_cq");
	start = milliseconds();
	for (i = 0; i < count; i++) {
		qps[i] = ibv_create_qp(pd, &attr);
		if (!qps[i]) {
			fprintf(stderr, "resource_costs: queue pair %d of %d: %s\n", i + 1, count, strerror(errno));
			exit(1);
		}
	}
	created = milliseconds();
	for (i = 0; i < count; i++) {
		if (ibv_destroy_qp(qps[i]))
			fail("ibv_destroy_qp");
	}
	printf("created %d queue pairs: %.1f ms, destroyed: %.1f ms\n", count, created - start, milliseconds() - created);
	ibv_destroy_cq(attr.send_cq);
	free(qps);
}

int main(int argc, char *argv[])
{
	const char *device = NULL;
	struct ibv_context *context;
	struct ibv_pd *pd;
	int option, mib = 0, count = 0;

	while ((option = getopt(argc, argv, "d:m:q:")) != -1) {
		if (option == 'd')
			device = optarg;
		else if (option == 'm')
			mib = atoi(optarg);
		else if (option == 'q')
			count = atoi(optarg);
		else
			mib = count = -1;
	}
	if (mib <= 0 && count <= 0) {
		fprintf(stderr, "usage: resource_costs [-d DEVICE] -m MIB | -q COUNT\n");
		return 2;
	}
	context = open_device(device);
	pd = ibv_alloc_pd(context);
	if (!pd)
		fail("ibv_alloc_pd");
	if (mib > 0)
		memory(pd, mib);
	if (count > 0)
		queue_pairs(pd, count);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	return 0;
}
