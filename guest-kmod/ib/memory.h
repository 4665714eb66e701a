/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * memory.h: memory regions, windows and keys, device memory, and pinned memory
 * of processes. Included by the files of qrnic_ib.ko that create such objects.
 */
#ifndef QRNIC_IB_MEMORY_H
#define QRNIC_IB_MEMORY_H

#include "qrnic_ib.h"

/*
 * Indirect key, or key of process memory. Work requests of the process make it
 * valid. The key has a PD, but is no ib_mr.
 */
struct qrnic_ib_mkey {
	struct ib_pd *ibpd;
	u32 index;
};

/*
 * Memory region. The RDMA core serialises its registration, re-registration and
 * deregistration.
 */
struct qrnic_ib_mr {
	struct ib_mr ibmr;
	/* First address of the region, as users of the key name it */
	u64 start;
	/* Index of the key; the key is index << 8 | variant */
	u32 index;
	/*
	 * Number of the address space if the process has this memory at start;
	 * otherwise 0
	 */
	u32 address_space;
	u8 access;
	/* log2 of the page size; 0 for a DMA region */
	u8 page_shift;
	bool zero_based;

	/* Region of user space only */
	struct ib_umem *umem;
	struct qrnic_table table;
	/*
	 * State of a region on demand, otherwise NULL; if set, umem and table
	 * are not used
	 */
	struct qrnic_ib_odp *odp;

	/*
	 * Fast registration only: the page list, which the device reads while
	 * the key is valid
	 */
	__le64 *pages;
	dma_addr_t pages_dma;
	u32 max_pages;
	u32 num_pages;
};

/* Device memory of a process */
struct qrnic_ib_dm {
	struct ib_dm ibdm;
	struct qrnic_ib_map map;
	u32 number;
	/* Offset in the device memory, in bytes */
	u64 offset;
};

/* Memory window */
struct qrnic_ib_mw {
	struct ib_mw ibmw;
	u32 index;
};

static inline struct qrnic_ib_mr *to_qrnic_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct qrnic_ib_mr, ibmr);
}

static inline struct qrnic_ib_dm *to_qrnic_dm(struct ib_dm *ibdm)
{
	return container_of(ibdm, struct qrnic_ib_dm, ibdm);
}

static inline struct qrnic_ib_mw *to_qrnic_mw(struct ib_mw *ibmw)
{
	return container_of(ibmw, struct qrnic_ib_mw, ibmw);
}

/* mkey.c: memory keys */
u8 qrnic_mkey_variant(struct qrnic_ib_dev *dev);
int qrnic_access_rights(struct qrnic_ib_dev *dev, int access);
int qrnic_mkey_create(struct qrnic_ib_pd *pd, struct qrnic_mkey_ctx *context,
		      u32 *index, u32 *key);
int qrnic_mr_key_create(struct qrnic_ib_mr *mr, struct qrnic_mkey_ctx *context);
struct qrnic_ib_mkey *qrnic_indirect_create(struct ib_pd *ibpd, u32 max_pieces,
					    u32 *key);
struct qrnic_ib_mkey *qrnic_process_mkey_create(struct qrnic_ib_ucontext *ucontext,
						struct ib_pd *ibpd, u32 *key);
void qrnic_user_mkey_destroy(struct qrnic_ib_mkey *mkey);

/* udata.c: requests of user space, and memory of user queues */
int qrnic_udata_none(struct ib_udata *udata);
struct ib_umem *qrnic_queue_umem_get(struct qrnic_ib_dev *dev, u64 address,
				     u64 length, u64 rings);
int qrnic_queue_table(struct qrnic_ib_dev *dev, struct qrnic_table *table,
		      struct ib_umem *umem, u64 offset, u64 length);
int qrnic_queue_record(struct ib_umem *umem, u32 offset, dma_addr_t *address);
struct ib_umem *qrnic_queue_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
				u64 ring, u32 record_offset,
				struct qrnic_table *table, dma_addr_t *record);

/* user_memory.c: pinned memory and address spaces of processes */
void qrnic_user_memory_init(struct qrnic_ib_dev *dev);
/* Returns -EOPNOTSUPP and logs it, if the kernel copies all DMA. */
int qrnic_user_memory_check(struct qrnic_ib_dev *dev);
/*
 * Pins memory as ib_umem_get() does. Returns -EOPNOTSUPP if the device would
 * access a copy.
 */
struct ib_umem *qrnic_umem_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
			       int access);
/* Returns -EOPNOTSUPP and logs it, if the device would access a copy. */
int qrnic_umem_check(struct qrnic_ib_dev *dev, const struct ib_umem *umem);
bool qrnic_dma_may_be_copied(struct qrnic_ib_dev *dev);
bool qrnic_dma_address_is_copied(struct qrnic_ib_dev *dev, dma_addr_t address);
/* Logs at a limited rate that DMA would be copied. Returns -EOPNOTSUPP. */
int qrnic_copied_error(struct qrnic_ib_dev *dev);
int qrnic_address_space_get(struct qrnic_ib_dev *dev, u32 *number);
void qrnic_address_space_put(struct qrnic_ib_dev *dev, u32 number);

/* mr.c: null regions, and pages of a fast registration */
int qrnic_pd_null_key(struct qrnic_ib_pd *pd, u32 *key);
void qrnic_pd_null_key_destroy(struct qrnic_ib_pd *pd);
struct qrnic_translation qrnic_mr_pages(const struct qrnic_ib_mr *mr);

/* device_memory.c: mappings of device memory */
int qrnic_dm_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma,
		  struct qrnic_ib_map *map);
void qrnic_dm_mmap_free(struct qrnic_ib_map *map);

#endif /* QRNIC_IB_MEMORY_H */
