// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * congestion.c: the parameters of congestion control (manual, Congestion
 * control). Each parameter is a file in
 * /sys/kernel/debug/qrnic/PCI-ADDRESS/cc_params. Users of mlx5_ib know the
 * names of the files and of the directory.
 *
 * pci.c adds the files in probe and removes them in remove. A reset of the
 * device sets the default values again. Therefore each start of the device
 * calls qrnic_congestion_restore(), which restores the parameters that a user
 * has written. core->lock protects core->congestion.
 */
#include <linux/debugfs.h>

#include "core/core.h"

#define QRNIC_CC_RATE_MAX (QRNIC_MAX_RATE_LIMIT / 1000)	/* Mbit/s */
#define QRNIC_CC_PERIOD_MAX 131071			/* microseconds */

/* Parameter of congestion control, and its range */
struct qrnic_cc_param {
	const char *name;
	u8 offset;	/* offset in struct qrnic_congestion_ctx */
	u8 bytes;
	/* Mask if the parameter is a bit of flags; otherwise 0 */
	u8 flag;
	u32 least;
	u32 most;
};

#define QRNIC_CC_MEMBER(member, bytes, least, most) \
	{ #member, offsetof(struct qrnic_congestion_ctx, member), bytes, 0, least, most }
#define QRNIC_CC_FLAG(name, flag) \
	{ name, offsetof(struct qrnic_congestion_ctx, flags), 1, \
	  QRNIC_CONGESTION_##flag, 0, 1 }

static const struct qrnic_cc_param qrnic_cc_params[] = {
	QRNIC_CC_FLAG("np_enable", NP),
	QRNIC_CC_FLAG("rp_enable", RP),
	QRNIC_CC_FLAG("ect_enable", ECT),
	QRNIC_CC_FLAG("rp_clamp_tgt_rate", CLAMP_TGT_RATE),
	QRNIC_CC_FLAG("rp_clamp_tgt_rate_ati", CLAMP_TGT_RATE_ATI),
	QRNIC_CC_FLAG("np_cnp_prio_mode", CNP_PRIO_FLOW),
	QRNIC_CC_MEMBER(np_cnp_dscp, 1, 0, 63),
	QRNIC_CC_MEMBER(np_cnp_prio, 1, 0, 7),
	QRNIC_CC_MEMBER(np_min_time_between_cnps, 2, 0, 4095),
	QRNIC_CC_MEMBER(rp_threshold, 1, 1, 31),
	QRNIC_CC_MEMBER(rp_min_dec_fac, 1, 0, 100),
	QRNIC_CC_MEMBER(rp_gd, 1, 10, 11),
	QRNIC_CC_MEMBER(rp_dce_tcp_g, 2, 0, 1023),
	QRNIC_CC_MEMBER(rp_initial_alpha_value, 2, 1, 1023),
	QRNIC_CC_MEMBER(rp_dce_tcp_rtt, 4, 1, QRNIC_CC_PERIOD_MAX),
	QRNIC_CC_MEMBER(rp_time_reset, 4, 1, QRNIC_CC_PERIOD_MAX),
	QRNIC_CC_MEMBER(rp_byte_reset, 4, 1, U32_MAX),
	QRNIC_CC_MEMBER(rp_rate_reduce_monitor_period, 4, 1, QRNIC_CC_PERIOD_MAX),
	QRNIC_CC_MEMBER(rp_ai_rate, 4, 1, QRNIC_CC_RATE_MAX),
	QRNIC_CC_MEMBER(rp_hai_rate, 4, 1, QRNIC_CC_RATE_MAX),
	QRNIC_CC_MEMBER(rp_min_rate, 4, 1, QRNIC_CC_RATE_MAX),
	QRNIC_CC_MEMBER(rp_max_rate, 4, 0, QRNIC_CC_RATE_MAX),
	QRNIC_CC_MEMBER(rp_rate_to_set_on_first_cnp, 4, 0, QRNIC_CC_RATE_MAX),
};

static_assert(ARRAY_SIZE(qrnic_cc_params) == QRNIC_CC_PARAMS);
static_assert(QRNIC_CC_PARAMS <= 32);		/* the bit mask has 32 bits */

/* Directory of all adapters */
static struct dentry *qrnic_debugfs;

static u32 qrnic_cc_get(const struct qrnic_congestion_ctx *ctx,
			const struct qrnic_cc_param *param)
{
	const void *member = (const u8 *)ctx + param->offset;

	if (param->flag)
		return !!(ctx->flags & param->flag);
	switch (param->bytes) {
	case 1:
		return *(const u8 *)member;
	case 2:
		return le16_to_cpup(member);
	default:
		return le32_to_cpup(member);
	}
}

static void qrnic_cc_put(struct qrnic_congestion_ctx *ctx,
			 const struct qrnic_cc_param *param, u32 value)
{
	void *member = (u8 *)ctx + param->offset;

	if (param->flag) {
		ctx->flags &= ~param->flag;
		if (value)
			ctx->flags |= param->flag;
		return;
	}
	switch (param->bytes) {
	case 1:
		*(u8 *)member = value;
		break;
	case 2:
		*(__le16 *)member = cpu_to_le16(value);
		break;
	default:
		*(__le32 *)member = cpu_to_le32(value);
		break;
	}
}

static int qrnic_cc_query(struct qrnic_core *core, struct qrnic_congestion_ctx *ctx)
{
	if (!(core->dev.caps.capabilities & QRNIC_CAP_CONGESTION_CONTROL))
		return -EOPNOTSUPP;
	return qrnic_cmd_query(&core->dev, QRNIC_CMD_QUERY_CONGESTION, 0, ctx,
			       sizeof(*ctx));
}

static int qrnic_cc_set(struct qrnic_core *core, const struct qrnic_congestion_ctx *ctx)
{
	return qrnic_cmd_set(&core->dev, QRNIC_CMD_SET_CONGESTION, 0, ctx,
			     sizeof(*ctx));
}

/*
 * Restores the parameters that a user has written. Called before there are
 * queue pairs. A failure is only logged, because the adapter works with other
 * values, too.
 */
void qrnic_congestion_restore(struct qrnic_core *core)
{
	struct qrnic_congestion *cc = &core->congestion;
	struct qrnic_congestion_ctx ctx;
	unsigned int i;
	int err;

	if (!cc->wanted)
		return;
	err = qrnic_cc_query(core, &ctx);
	if (!err) {
		for (i = 0; i < QRNIC_CC_PARAMS; i++)
			if (cc->wanted & BIT(i))
				qrnic_cc_put(&ctx, &qrnic_cc_params[i],
					     cc->values[i]);
		err = qrnic_cc_set(core, &ctx);
	}
	if (err)
		dev_warn(&core->dev.pdev->dev,
			 "congestion control parameters not restored: error %d\n", err);
}

/*
 * Takes core->lock if the adapter is up. Returns 0, -ENODEV if the adapter is
 * down, or -EINTR after a signal. A signal must end the wait, because a stop of
 * the adapter may hold the lock until all users of RDMA are gone.
 */
static int qrnic_cc_lock(struct qrnic_core *core)
{
	int err = mutex_lock_interruptible(&core->lock);

	if (err)
		return err;
	if (core->level == QRNIC_DOWN) {
		mutex_unlock(&core->lock);
		return -ENODEV;
	}
	return 0;
}

static int qrnic_cc_read(void *data, u64 *value)
{
	const struct qrnic_cc_file *file = data;
	struct qrnic_congestion_ctx ctx;
	int err;

	err = qrnic_cc_lock(file->core);
	if (err)
		return err;
	err = qrnic_cc_query(file->core, &ctx);
	mutex_unlock(&file->core->lock);
	if (!err)
		*value = qrnic_cc_get(&ctx, &qrnic_cc_params[file->index]);
	return err;
}

/*
 * Sets a parameter in the device, and records it for
 * qrnic_congestion_restore(). Called under core->lock.
 */
static int qrnic_cc_change(struct qrnic_core *core, unsigned int index, u32 value)
{
	struct qrnic_congestion *cc = &core->congestion;
	struct qrnic_congestion_ctx ctx;
	u32 highest;
	int err;

	err = qrnic_cc_query(core, &ctx);
	if (err)
		return err;
	qrnic_cc_put(&ctx, &qrnic_cc_params[index], value);
	highest = le32_to_cpu(ctx.rp_max_rate);
	if (highest && highest < le32_to_cpu(ctx.rp_min_rate))
		return -ERANGE;
	err = qrnic_cc_set(core, &ctx);
	if (err)
		return err;
	cc->values[index] = value;
	cc->wanted |= BIT(index);
	return 0;
}

static int qrnic_cc_write(void *data, u64 value)
{
	const struct qrnic_cc_file *file = data;
	const struct qrnic_cc_param *param = &qrnic_cc_params[file->index];
	int err;

	if (value < param->least || value > param->most)
		return -ERANGE;
	err = qrnic_cc_lock(file->core);
	if (err)
		return err;
	err = qrnic_cc_change(file->core, file->index, value);
	mutex_unlock(&file->core->lock);
	return err;
}

DEFINE_DEBUGFS_ATTRIBUTE(qrnic_cc_fops, qrnic_cc_read, qrnic_cc_write, "%llu\n");

/* Creates the directory of the adapter and its files. */
void qrnic_debugfs_add(struct qrnic_core *core)
{
	struct qrnic_congestion *cc = &core->congestion;
	struct dentry *params;
	unsigned int i;

	core->debugfs = debugfs_create_dir(pci_name(core->dev.pdev), qrnic_debugfs);
	debugfs_create_u32("command_poll_us", 0600, core->debugfs, &core->cmd.poll_us);
	if (!(core->dev.caps.capabilities & QRNIC_CAP_CONGESTION_CONTROL))
		return;
	params = debugfs_create_dir("cc_params", core->debugfs);
	for (i = 0; i < QRNIC_CC_PARAMS; i++) {
		cc->files[i].core = core;
		cc->files[i].index = i;
		debugfs_create_file_unsafe(qrnic_cc_params[i].name, 0600, params,
					   &cc->files[i], &qrnic_cc_fops);
	}
}

/*
 * Removes the files, and waits for their readers and writers. Called without
 * core->lock, because they take it.
 */
void qrnic_debugfs_del(struct qrnic_core *core)
{
	debugfs_remove_recursive(core->debugfs);
}

void qrnic_debugfs_init(void)
{
	qrnic_debugfs = debugfs_create_dir(KBUILD_MODNAME, NULL);
}

void qrnic_debugfs_exit(void)
{
	debugfs_remove_recursive(qrnic_debugfs);
}
