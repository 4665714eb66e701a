/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * memory.h: memory regions, windows and keys, device memory, and memory of processes,
 * as the files of qrnic_ib.ko that create such objects see them.
 */
#ifndef QRNIC_IB_MEMORY_H
#define QRNIC_IB_MEMORY_H

#include "qrnic_ib.h"

/* An indirect key, which is no ib_mr */
struct qrnic_ib_mkey {
	struct ib_pd *ibpd;
	u32 index;
};

struct qrnic_ib_mr {
	struct ib_mr ibmr;
	u64 start;
	u32 index;
	u32 address_space;		/* 0: at start, the CPU has other memory */
	u8 access;
	u8 page_shift;			/* 0: DMA region */
	bool zero_based;

	/* user */
	struct ib_umem *umem;
	struct qrnic_table table;
	struct qrnic_ib_odp *odp;	/* on demand; then these two are not used */

	/* fast registration; the device reads pages while the key is valid */
	__le64 *pages;
	dma_addr_t pages_dma;
	u32 max_pages;
	u32 num_pages;
};

struct qrnic_ib_dm {
	struct ib_dm ibdm;
	struct qrnic_ib_map map;
	u32 number;
	u64 offset;			/* in the device memory */
};

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

/* mkey.c */
u8 qrnic_mkey_variant(struct qrnic_ib_dev *dev);
int qrnic_access_rights(struct qrnic_ib_dev *dev, int access);
int qrnic_mkey_create(struct qrnic_ib_pd *pd, struct qrnic_mkey_ctx *context,
		      u32 *index, u32 *key);
int qrnic_mr_key_create(struct qrnic_ib_mr *mr, struct qrnic_mkey_ctx *context);
struct qrnic_ib_mkey *qrnic_indirect_create(struct ib_pd *ibpd, u32 max_pieces,
					    u32 *key);
void qrnic_indirect_destroy(struct qrnic_ib_mkey *mkey);

/* udata.c */
int qrnic_udata_none(struct ib_udata *udata);
struct ib_umem *qrnic_queue_umem_get(struct qrnic_ib_dev *dev, u64 address,
				     u64 length, u64 rings);
int qrnic_queue_table(struct qrnic_ib_dev *dev, struct qrnic_table *table,
		      struct ib_umem *umem, u64 offset, u64 length);
int qrnic_queue_record(struct ib_umem *umem, u32 offset, dma_addr_t *address);
struct ib_umem *qrnic_queue_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
				u64 ring, u32 record_offset,
				struct qrnic_table *table, dma_addr_t *record);

/* user_memory.c */
void qrnic_user_memory_init(struct qrnic_ib_dev *dev);
/* Returns -EOPNOTSUPP, with a message, if the kernel copies all DMA. */
int qrnic_user_memory_check(struct qrnic_ib_dev *dev);
/* Pins memory as ib_umem_get() does; -EOPNOTSUPP if the device would access a copy. */
struct ib_umem *qrnic_umem_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
			       int access);
/* Returns -EOPNOTSUPP, with a message, if the device would access a copy. */
int qrnic_umem_check(struct qrnic_ib_dev *dev, const struct ib_umem *umem);
bool qrnic_dma_may_be_copied(struct qrnic_ib_dev *dev);
bool qrnic_dma_address_is_copied(struct qrnic_ib_dev *dev, dma_addr_t address);
/* Logs the reason, at a limited rate. Returns -EOPNOTSUPP. */
int qrnic_copied_error(struct qrnic_ib_dev *dev);
int qrnic_address_space_get(struct qrnic_ib_dev *dev, u32 *number);
void qrnic_address_space_put(struct qrnic_ib_dev *dev, u32 number);

/* mr.c */
int qrnic_pd_null_key(struct qrnic_ib_pd *pd, u32 *key);
void qrnic_pd_null_key_destroy(struct qrnic_ib_pd *pd);
struct qrnic_translation qrnic_mr_pages(const struct qrnic_ib_mr *mr);

/* device_memory.c */
int qrnic_dm_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma,
		  struct qrnic_ib_map *map);
void qrnic_dm_mmap_free(struct qrnic_ib_map *map);

#endif /* QRNIC_IB_MEMORY_H */
