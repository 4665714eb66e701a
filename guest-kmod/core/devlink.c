// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * devlink.c: the devlink instance of the adapter: "devlink dev info" shows its
 * identity, "devlink dev reload" resets it, and "devlink health" shows and
 * recovers a failure.
 *
 * pci.c allocates the instance, whose private part is struct qrnic_core, first
 * and frees it last. The end of probe registers the instance. Every recovery
 * holds the lock of the instance, so no recovery begins during a reload.
 */
#include <linux/ethtool.h>
#include <net/devlink.h>

#include "core/core.h"

static struct qrnic_core *qrnic_core_of_reporter(struct devlink_health_reporter *reporter)
{
	return devlink_health_reporter_priv(reporter);
}

static int qrnic_devlink_info_get(struct devlink *devlink,
				  struct devlink_info_req *req,
				  struct netlink_ext_ack *extack)
{
	struct qrnic_core *core = devlink_priv(devlink);
	struct pci_dev *pdev = core->dev.pdev;
	u32 version = core->dev.caps.hw_version;
	u64 serial = pci_get_dsn(pdev);
	char text[32];
	int err;

	/* A virtual function has no serial number. */
	if (serial) {
		snprintf(text, sizeof(text), "%016llx", serial);
		err = devlink_info_serial_number_put(req, text);
		if (err)
			return err;
	}
	snprintf(text, sizeof(text), "%04x:%04x", pdev->vendor, pdev->device);
	err = devlink_info_version_fixed_put(req,
					     DEVLINK_INFO_VERSION_GENERIC_ASIC_ID,
					     text);
	if (err)
		return err;
	snprintf(text, sizeof(text), "%u", pdev->revision);
	err = devlink_info_version_fixed_put(req,
					     DEVLINK_INFO_VERSION_GENERIC_ASIC_REV,
					     text);
	if (err)
		return err;
	snprintf(text, sizeof(text), "%u.%u",
		 (u32)FIELD_GET(QRNIC_REG_VERSION_MAJOR_MASK, version),
		 (u32)FIELD_GET(QRNIC_REG_VERSION_MINOR_MASK, version));
	/*
	 * The version is that of the interface of the device, because the
	 * device has no firmware.
	 */
	return devlink_info_version_running_put(req,
						DEVLINK_INFO_VERSION_GENERIC_FW_MGMT_API,
						text);
}

/*
 * Stops the adapter for a reload. The caller holds the lock of the devlink
 * instance. A recovery may be waiting for that lock, so this function must not
 * wait for the recovery. Once the recovery has the lock, it finds the adapter
 * up and ends.
 */
static int qrnic_devlink_reload_down(struct devlink *devlink, bool netns_change,
				     enum devlink_reload_action action,
				     enum devlink_reload_limit limit,
				     struct netlink_ext_ack *extack)
{
	struct qrnic_core *core = devlink_priv(devlink);

	if (netns_change) {
		NL_SET_ERR_MSG_MOD(extack, "the adapter cannot change its namespace");
		return -EOPNOTSUPP;
	}
	qrnic_recovery_suspend(core);
	qrnic_suspend(core);
	return 0;
}

static int qrnic_devlink_reload_up(struct devlink *devlink,
				   enum devlink_reload_action action,
				   enum devlink_reload_limit limit,
				   u32 *actions_performed,
				   struct netlink_ext_ack *extack)
{
	struct qrnic_core *core = devlink_priv(devlink);
	int err = qrnic_up(core);

	if (err)
		return err;
	*actions_performed = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT);
	return 0;
}

static const struct devlink_ops qrnic_devlink_ops = {
	.info_get = qrnic_devlink_info_get,
	.reload_actions = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT),
	.reload_down = qrnic_devlink_reload_down,
	.reload_up = qrnic_devlink_reload_up,
};

/* Writes the registers and the reason of a failure into the message. */
static void qrnic_health_put(struct qrnic_core *core, struct devlink_fmsg *fmsg,
			     const struct qrnic_crash *crash)
{
	const char *cause = qrnic_health_cause(crash->health);

	if (crash->why)
		devlink_fmsg_string_pair_put(fmsg, "reason", crash->why);
	devlink_fmsg_u32_pair_put(fmsg, "status", crash->status);
	devlink_fmsg_string_pair_put(fmsg, "health", cause);
	devlink_fmsg_u32_pair_put(fmsg, "health_info", crash->info);
	devlink_fmsg_u32_pair_put(fmsg, "late_command_events",
				  atomic_read(&core->late_command_events));
}

/*
 * Writes the counters other than 0 into the message, because most of them count
 * errors.
 */
static void qrnic_counters_put(struct qrnic_core *core, struct devlink_fmsg *fmsg)
{
	static const char names[][ETH_GSTRING_LEN] = {
#define QRNIC_COUNTER_NAME(name, ...) { #name },
		QRNIC_COUNTER_LIST(QRNIC_COUNTER_NAME)
#undef QRNIC_COUNTER_NAME
	};
	u64 *values;
	int i;

	values = kcalloc(QRNIC_NUM_COUNTERS, sizeof(*values), GFP_KERNEL);
	if (!values)
		return;
	if (!qrnic_cmd_query_counters(&core->dev, QRNIC_CMD_QUERY_COUNTERS, 0,
				      values)) {
		devlink_fmsg_pair_nest_start(fmsg, "counters");
		devlink_fmsg_obj_nest_start(fmsg);
		for (i = 0; i < QRNIC_NUM_COUNTERS; i++)
			if (values[i])
				devlink_fmsg_u64_pair_put(fmsg, names[i],
							  values[i]);
		devlink_fmsg_obj_nest_end(fmsg);
		devlink_fmsg_pair_nest_end(fmsg);
	}
	kfree(values);
}

/*
 * Writes the dump of the reporter. With context, after a failure, it has the
 * registers from before the reset, which has cleared the counters. Without
 * context, on request of a user, it has the present registers and counters.
 */
static int qrnic_health_dump(struct devlink_health_reporter *reporter,
			     struct devlink_fmsg *fmsg, void *context,
			     struct netlink_ext_ack *extack)
{
	struct qrnic_core *core = qrnic_core_of_reporter(reporter);
	struct qrnic_crash crash;

	if (context || !qrnic_healthy(&core->dev)) {
		spin_lock_irq(&core->fatal_lock);
		crash = core->crash;
		spin_unlock_irq(&core->fatal_lock);
		qrnic_health_put(core, fmsg, &crash);
		return 0;
	}
	mutex_lock(&core->lock);
	if (core->level != QRNIC_DOWN) {
		qrnic_crash_read(core, &crash);
		crash.why = NULL;
		qrnic_health_put(core, fmsg, &crash);
		qrnic_counters_put(core, fmsg);
	}
	mutex_unlock(&core->lock);
	return 0;
}

static int qrnic_health_diagnose(struct devlink_health_reporter *reporter,
				 struct devlink_fmsg *fmsg,
				 struct netlink_ext_ack *extack)
{
	struct qrnic_core *core = qrnic_core_of_reporter(reporter);

	devlink_fmsg_bool_pair_put(fmsg, "fatal", !qrnic_healthy(&core->dev));
	devlink_fmsg_bool_pair_put(fmsg, "up", READ_ONCE(core->level) != QRNIC_DOWN);
	return 0;
}

static int qrnic_health_recover(struct devlink_health_reporter *reporter,
				void *context, struct netlink_ext_ack *extack)
{
	struct qrnic_core *core = qrnic_core_of_reporter(reporter);

	/*
	 * Without context a user has requested the recovery, so it may be
	 * rejected.
	 */
	return context ? qrnic_recover(core) : qrnic_recover_ordered(core);
}

static const struct devlink_health_reporter_ops qrnic_health_ops = {
	.name = "fw_fatal",
	.recover = qrnic_health_recover,
	.dump = qrnic_health_dump,
	.diagnose = qrnic_health_diagnose,
};

/*
 * Allocates the structure of the adapter, as the private part of a devlink
 * instance. Returns NULL on failure.
 */
struct qrnic_core *qrnic_devlink_alloc(struct pci_dev *pdev)
{
	struct qrnic_core *core;
	struct devlink *devlink;

	devlink = devlink_alloc(&qrnic_devlink_ops, sizeof(*core), &pdev->dev);
	if (!devlink)
		return NULL;
	core = devlink_priv(devlink);
	core->reporter = QRNIC_HEALTH_REPORTER_CREATE(devlink, &qrnic_health_ops,
						      core);
	if (IS_ERR(core->reporter)) {
		devlink_free(devlink);
		return NULL;
	}
	return core;
}

void qrnic_devlink_free(struct qrnic_core *core)
{
	struct devlink *devlink = priv_to_devlink(core);

	devlink_health_reporter_destroy(core->reporter);
	devlink_free(devlink);
}

/*
 * Registers the instance. From here on users may reload and recover the
 * adapter.
 */
void qrnic_devlink_register(struct qrnic_core *core)
{
	devlink_register(priv_to_devlink(core));
}

/*
 * Unregisters the instance. Called with recovery disabled, because a recovery
 * reports to the instance.
 */
void qrnic_devlink_unregister(struct qrnic_core *core)
{
	devlink_unregister(priv_to_devlink(core));
}
