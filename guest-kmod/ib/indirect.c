// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * indirect.c: indirect keys, which a process makes of pieces of its other keys by
 * work requests (manual, Keys of keys). The driver makes the key, and sees to it that
 * it goes before its PD does.
 */
#include "qrnic_ib.h"

struct qrnic_ib_mkey *qrnic_indirect_create(struct ib_pd *ibpd, u32 max_pieces,
					    u32 *key)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = {
		.type = QRNIC_MKEY_INDIRECT,
		.max_pieces = cpu_to_le32(max_pieces),
	};
	struct qrnic_ib_mkey *mkey;
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_INDIRECT_MKEY))
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_pieces || max_pieces > QRNIC_MAX_PIECES)
		return ERR_PTR(-EINVAL);

	mkey = kzalloc(sizeof(*mkey), GFP_KERNEL);
	if (!mkey)
		return ERR_PTR(-ENOMEM);

	err = qrnic_mkey_create(to_qrnic_pd(ibpd), &context, &mkey->index, key);
	if (err) {
		kfree(mkey);
		return ERR_PTR(err);
	}
	mkey->ibpd = ibpd;
	atomic_inc(&ibpd->usecnt);
	return mkey;
}

void qrnic_indirect_destroy(struct qrnic_ib_mkey *mkey)
{
	qrnic_destroy(to_qrnic_dev(mkey->ibpd->device), QRNIC_CMD_DESTROY_MKEY,
		      mkey->index);
	atomic_dec(&mkey->ibpd->usecnt);
	kfree(mkey);
}
