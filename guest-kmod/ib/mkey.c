// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * mkey.c: creates memory keys for all kinds of memory: rights, variant, the
 * command (manual, Memory keys). Also has the keys that work requests make
 * valid. The pieces of an indirect key are parts of other keys (manual, Indirect
 * keys). Keys of process memory need no pinned page (manual, Shared virtual
 * addressing). The callers are mr.c, odp.c and uapi.c; the RDMA core serialises
 * the calls for one object.
 */
#include <linux/random.h>

#include "memory.h"
#include "qrnic_ib.h"

static_assert(IB_ACCESS_LOCAL_WRITE == QRNIC_ACCESS_LOCAL_WRITE);
static_assert(IB_ACCESS_REMOTE_WRITE == QRNIC_ACCESS_REMOTE_WRITE);
static_assert(IB_ACCESS_REMOTE_READ == QRNIC_ACCESS_REMOTE_READ);
static_assert(IB_ACCESS_REMOTE_ATOMIC == QRNIC_ACCESS_REMOTE_ATOMIC);
static_assert(IB_ACCESS_MW_BIND == QRNIC_ACCESS_MW_BIND);

/*
 * Returns the rights of the device for access flags of verbs, or -EOPNOTSUPP.
 */
int qrnic_access_rights(struct qrnic_ib_dev *dev, int access)
{
	u8 rights;

	access &= ~(IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB | IB_ZERO_BASED);
	rights = qrnic_rights_of_access(access);
	if (qrnic_access_of_rights(rights) != access)
		return -EOPNOTSUPP;
	if (access & IB_ACCESS_MW_BIND && !qrnic_ib_cap(dev, QRNIC_CAP_MW))
		return -EOPNOTSUPP;
	if (access & IB_ACCESS_FLUSH_GLOBAL && !qrnic_ib_cap(dev, QRNIC_CAP_FLUSH))
		return -EOPNOTSUPP;
	return rights;
}

/*
 * Returns the variant of a new key. The variant is random, so that keys cannot
 * be guessed. Also the variant differs from the last one, so that a destroyed
 * key is invalid even if its index is used again.
 */
u8 qrnic_mkey_variant(struct qrnic_ib_dev *dev)
{
	return atomic_add_return(get_random_u32_inclusive(1, U8_MAX),
				 &dev->next_variant);
}

/*
 * Creates a key of a PD. The caller has set all members of the context but
 * variant and pd. Returns 0 and sets *index and *key, or returns a negative
 * errno.
 */
int qrnic_mkey_create(struct qrnic_ib_pd *pd, struct qrnic_mkey_ctx *context,
		      u32 *index, u32 *key)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(pd->ibpd.device);
	int err;

	context->variant = qrnic_mkey_variant(dev);
	context->pd = cpu_to_le32(pd->pdn);
	err = qrnic_create_24_bits(dev, QRNIC_CMD_CREATE_MKEY,
				   QRNIC_CMD_DESTROY_MKEY, context,
				   sizeof(*context), index);
	if (!err)
		*key = *index << 8 | context->variant;
	return err;
}

/*
 * Creates the key of an MR. The caller has set the other members of the MR and
 * of the context. Returns 0 or a negative errno.
 */
int qrnic_mr_key_create(struct qrnic_ib_mr *mr, struct qrnic_mkey_ctx *context)
{
	int err;

	context->access = mr->access;
	err = qrnic_mkey_create(to_qrnic_pd(mr->ibmr.pd), context, &mr->index,
				&mr->ibmr.lkey);
	if (!err)
		mr->ibmr.rkey = mr->ibmr.lkey;
	return err;
}

/* Creates a key that work requests make valid. Returns it or an ERR_PTR(). */
static struct qrnic_ib_mkey *qrnic_user_mkey_new(struct ib_pd *ibpd,
						 struct qrnic_mkey_ctx *context,
						 u32 *key)
{
	struct qrnic_ib_mkey *mkey;
	int err;

	mkey = kzalloc(sizeof(*mkey), GFP_KERNEL);
	if (!mkey)
		return ERR_PTR(-ENOMEM);

	err = qrnic_mkey_create(to_qrnic_pd(ibpd), context, &mkey->index, key);
	if (err) {
		kfree(mkey);
		return ERR_PTR(err);
	}
	/* The PD counts the key, so that the PD cannot be freed before it. */
	mkey->ibpd = ibpd;
	atomic_inc(&ibpd->usecnt);
	return mkey;
}

/*
 * Creates an indirect key, whose pieces the process defines by work requests.
 */
struct qrnic_ib_mkey *qrnic_indirect_create(struct ib_pd *ibpd, u32 max_pieces,
					    u32 *key)
{
	struct qrnic_mkey_ctx context = {
		.type = QRNIC_MKEY_INDIRECT,
		.max_pieces = cpu_to_le32(max_pieces),
	};

	if (!qrnic_ib_cap(to_qrnic_dev(ibpd->device), QRNIC_CAP_INDIRECT_MKEY))
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_pieces || max_pieces > QRNIC_MAX_PIECES)
		return ERR_PTR(-EINVAL);
	return qrnic_user_mkey_new(ibpd, &context, key);
}

/*
 * Creates a key of process memory. Work requests of the process define its
 * range. The device takes the PASID from the doorbell page of their queue pair.
 */
struct qrnic_ib_mkey *qrnic_process_mkey_create(struct qrnic_ib_ucontext *ucontext,
						struct ib_pd *ibpd, u32 *key)
{
	struct qrnic_mkey_ctx context = {
		.type = QRNIC_MKEY_FAST_REG,
		.flags = QRNIC_MKEYF_PASID,
		.length = cpu_to_le64(QRNIC_MAX_PROCESS_SIZE),
	};

	if (!ucontext->process)
		return ERR_PTR(-EOPNOTSUPP);
	return qrnic_user_mkey_new(ibpd, &context, key);
}

/* Destroys a key that work requests make valid. */
void qrnic_user_mkey_destroy(struct qrnic_ib_mkey *mkey)
{
	qrnic_destroy(to_qrnic_dev(mkey->ibpd->device), QRNIC_CMD_DESTROY_MKEY,
		      mkey->index);
	atomic_dec(&mkey->ibpd->usecnt);
	kfree(mkey);
}
