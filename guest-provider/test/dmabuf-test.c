// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * dmabuf-test.c: tests regions of dma-bufs. Two exporters need no other device:
 * udmabuf (pages of a memfd) and the system heap. The test transfers data in
 * both directions between dma-bufs and ordinary memory. The test needs one
 * adapter and prints TAP.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

#define PAGE 4096u
#define LENGTH (64 * PAGE)
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |             \
		IBV_ACCESS_REMOTE_READ)

/*
 * Base of the adapter's addresses of the buffer, where they do not begin at 0
 */
#define IOVA 0x7000000000ull

struct exported {
	int fd;
	uint8_t *map;
};

static struct exported exported;

/*
 * Exports a udmabuf. Skips the test if the kernel does not have this exporter.
 */
static void export_udmabuf(void)
{
	struct udmabuf_create create = { .size = LENGTH };
	int device = open("/dev/udmabuf", O_RDWR);

	NEED(device >= 0);
	create.memfd = memfd_create("qrnic", MFD_ALLOW_SEALING);
	CHECK(!ftruncate(create.memfd, LENGTH));
	CHECK(!fcntl(create.memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	exported.map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED,
			    create.memfd, 0);
	exported.fd = ioctl(device, UDMABUF_CREATE, &create);
	close(create.memfd);
	close(device);
	CHECK(exported.fd >= 0 && exported.map != MAP_FAILED);
}

static void export_heap(void)
{
	struct dma_heap_allocation_data create = { .len = LENGTH,
						   .fd_flags = O_RDWR };
	int device = open("/dev/dma_heap/system", O_RDWR);

	NEED(device >= 0);
	CHECK(!ioctl(device, DMA_HEAP_IOCTL_ALLOC, &create));
	close(device);
	exported.fd = create.fd;
	exported.map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED,
			    exported.fd, 0);
	CHECK(exported.map != MAP_FAILED);
}

static void unexport(void)
{
	munmap(exported.map, LENGTH);
	close(exported.fd);
}

static void cpu_access(uint64_t flags)
{
	struct dma_buf_sync sync = { flags | DMA_BUF_SYNC_RW };

	CHECK(!ioctl(exported.fd, DMA_BUF_IOCTL_SYNC, &sync));
}

static void transfer(struct ibv_qp *qp, struct ibv_cq *done,
		     enum ibv_wr_opcode opcode, struct ibv_sge sge,
		     uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { remote, rkey },
	}, *bad;
	struct ibv_wc wc;

	CHECK(!ibv_post_send(qp, &wr, &bad));
	CHECK(poll_one(done, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

/*
 * Writes and reads the region, once as the peer's memory and once as the local
 * buffer. The argument place is the offset of the part in the dma-buf, and base
 * is its address for the adapter.
 */
static void move(struct ibv_mr *region, size_t place, size_t length,
		 uint64_t base)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	uint8_t *part = exported.map + place;
	struct ibv_sge ours = sge_of(0, length), theirs = sge_of(HALF, length);
	struct ibv_sge local = { base, length, region->lkey };
	struct pair p;

	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));

	fill(0, length, place + 1);
	transfer(p.qp[0], p.send_cq, IBV_WR_RDMA_WRITE, ours, base,
		 region->rkey);
	cpu_access(DMA_BUF_SYNC_START);
	CHECK(!memcmp(part, buffer, length));
	memset(part, 0x5a, length);
	part[length - 1] = place;
	cpu_access(DMA_BUF_SYNC_END);
	transfer(p.qp[0], p.send_cq, IBV_WR_RDMA_READ, theirs, base,
		 region->rkey);
	cpu_access(DMA_BUF_SYNC_START);
	CHECK(!memcmp(part, buffer + HALF, length));
	cpu_access(DMA_BUF_SYNC_END);

	fill(0, length, place + 2);
	transfer(p.qp[1], p.send_cq, IBV_WR_RDMA_READ, local,
		 (uintptr_t)buffer, mr->rkey);
	cpu_access(DMA_BUF_SYNC_START);
	CHECK(!memcmp(part, buffer, length));
	cpu_access(DMA_BUF_SYNC_END);
	memset(buffer + HALF, 0, length);
	transfer(p.qp[1], p.send_cq, IBV_WR_RDMA_WRITE, local,
		 (uintptr_t)buffer + HALF, mr->rkey);
	CHECK(!memcmp(buffer, buffer + HALF, length));
	CHECK(!pair_free(&p));
}

/*
 * Tests parts of the buffer, at addresses that are equal to their offsets and
 * at other addresses.
 */
static void regions(void)
{
	static const struct {
		uint64_t offset, length, iova;
	} part[] = {
		{ 0, LENGTH, 0 },
		{ 0, LENGTH, IOVA },
		{ PAGE, LENGTH - PAGE, IOVA },
		{ 3 * PAGE, 5 * PAGE, IOVA + 7 * PAGE },
		{ 100, 3000, 100 },
		{ 2 * PAGE + 100, 3 * PAGE, IOVA + 100 },
		{ LENGTH - 1, 1, IOVA + PAGE - 1 },
	};
	struct ibv_mr *region;
	uint8_t before, after;
	size_t i;

	for (i = 0; i < sizeof(part) / sizeof(*part); i++) {
		size_t end = part[i].offset + part[i].length;

		memset(exported.map, 0xee, LENGTH);
		region = ibv_reg_dmabuf_mr(pd, part[i].offset, part[i].length,
					   part[i].iova, exported.fd, RIGHTS);
		CHECK(region);
		CHECK(region->length == part[i].length);
		move(region, part[i].offset, part[i].length, part[i].iova);
		CHECK(!ibv_dereg_mr(region));
		before = part[i].offset ? exported.map[part[i].offset - 1] :
					  0xee;
		after = end < LENGTH ? exported.map[end] : 0xee;
		CHECK(before == 0xee && after == 0xee);
	}
}

static int refused(uint64_t offset, size_t length, uint64_t iova, int fd,
		   int access)
{
	struct ibv_mr *region = ibv_reg_dmabuf_mr(pd, offset, length, iova, fd,
						  access);

	return region ? ibv_dereg_mr(region) : errno;
}

/*
 * Calls the kernel directly, because libibverbs rejects this call for dma-bufs.
 */
static int raw_rereg(struct ibv_mr *region, int flags, int access)
{
	struct ib_uverbs_rereg_mr_resp resp = {};
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_rereg_mr cmd;
	} request = {
		{ IB_USER_VERBS_CMD_REREG_MR, sizeof(request) / 4,
		  sizeof(resp) / 4 },
		{ .response = (uintptr_t)&resp, .mr_handle = region->handle,
		  .flags = flags, .start = (uintptr_t)buffer, .length = PAGE,
		  .hca_va = (uintptr_t)buffer, .access_flags = access },
	};

	if (write(context->cmd_fd, &request, sizeof(request)) !=
	    sizeof(request))
		return errno;
	return resp.rkey == region->rkey ? 0 : EPROTO;
}

static void errors(void)
{
	int plain = memfd_create("no-dma-buf", 0), fd = exported.fd;
	struct ibv_mr *region;

	CHECK(!refused(0, LENGTH, 0, fd, RIGHTS));
	CHECK(refused(0, LENGTH, 0, -1, RIGHTS) == EBADF);
	CHECK(refused(0, LENGTH, 0, plain, RIGHTS) == EINVAL);
	CHECK(refused(0, 0, 0, fd, RIGHTS) == EINVAL);
	CHECK(refused(0, LENGTH + 1, 0, fd, RIGHTS) == EINVAL);
	CHECK(refused(LENGTH, PAGE, 0, fd, RIGHTS) == EINVAL);
	CHECK(refused(PAGE, LENGTH, 0, fd, RIGHTS) == EINVAL);
	CHECK(refused(-(uint64_t)PAGE, 2 * PAGE, 0, fd, RIGHTS) == EINVAL);
	CHECK(refused(0, PAGE, 8, fd, RIGHTS) == EINVAL);
	CHECK(refused(0, PAGE, 0, fd, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
	CHECK(refused(0, PAGE, 0, fd, IBV_ACCESS_ON_DEMAND) == EINVAL);

	/*
	 * The call fails, because libibverbs supports ibv_rereg_mr() only for
	 * memory with an address
	 */
	region = ibv_reg_dmabuf_mr(pd, 0, LENGTH, 0, fd, RIGHTS);
	CHECK(region);
	CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(!ibv_dereg_mr(region));
	/*
	 * The rights can be changed, but not the memory, because a dma-buf has
	 * no other
	 */
	region = ibv_reg_dmabuf_mr(pd, 0, LENGTH, 0, fd, 0);
	CHECK(region);
	CHECK(raw_rereg(region, IBV_REREG_MR_CHANGE_TRANSLATION |
			IBV_REREG_MR_CHANGE_ACCESS, RIGHTS) == EOPNOTSUPP);
	CHECK(raw_rereg(region, IBV_REREG_MR_CHANGE_ACCESS,
			IBV_ACCESS_REMOTE_WRITE) == EINVAL);
	CHECK(!raw_rereg(region, IBV_REREG_MR_CHANGE_ACCESS, RIGHTS));
	move(region, 0, LENGTH, 0);
	CHECK(!ibv_dereg_mr(region));
	close(plain);
}

/*
 * Tests that the region keeps the memory after the file of the exporter is
 * closed.
 */
static void outlived(void)
{
	struct ibv_mr *region = ibv_reg_dmabuf_mr(pd, 0, LENGTH, IOVA,
						  exported.fd, RIGHTS);
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct pair p;

	CHECK(region);
	unexport();
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	fill(0, LENGTH, 77);
	transfer(p.qp[0], p.send_cq, IBV_WR_RDMA_WRITE, sge_of(0, LENGTH), IOVA,
		 region->rkey);
	transfer(p.qp[0], p.send_cq, IBV_WR_RDMA_READ, sge_of(HALF, LENGTH),
		 IOVA, region->rkey);
	CHECK(!memcmp(buffer, buffer + HALF, LENGTH));
	CHECK(!pair_free(&p) && !ibv_dereg_mr(region));
}

static void test_udmabuf(void)
{
	export_udmabuf();
	regions();
	unexport();
}

static void test_heap(void)
{
	export_heap();
	regions();
	unexport();
}

static void test_errors(void)
{
	export_udmabuf();
	errors();
	unexport();
}

static void test_outlived(void)
{
	export_heap();
	outlived();
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no qrnic adapter is usable\n");
		return 1;
	}
	run("a udmabuf", test_udmabuf);
	run("a dma-buf of the system's heap", test_heap);
	run("errors of dma-bufs", test_errors);
	run("a dma-buf whose file is closed", test_outlived);
	return tear_down();
}
