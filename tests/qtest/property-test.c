/*
 * qrnic qtest: properties of the device that QEMU must refuse
 *
 * Each gets one line that names the property, and QEMU ends with an error.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qobject/qdict.h"
#include "driver.h"

typedef struct Refused {
    const char *properties, *names;
} Refused;

static const Refused refused[] = {
    { "vectors=1", "vectors" }, { "vectors=65", "vectors" },
    { "doorbell-pages=1", "doorbell-pages" },
    { "doorbell-pages=1000", "doorbell-pages" },
    { "doorbell-fifo=0", "doorbell-fifo" },
    { "doorbell-fifo=5000", "doorbell-fifo" },
    { "max-qp=0", "max-qp" }, { "max-qp=20000000", "max-qp" },
    { "max-cq=0", "max-cq" }, { "max-cq=32769", "max-cq" },
    { "max-mkey=0", "max-mkey" },
    { "max-mkey=16777217", "max-mkey" }, { "max-pd=0", "max-pd" },
    { "max-gid=0", "max-gid" }, { "max-srq=0", "max-srq" },
    { "max-flow=0", "max-flow" }, { "max-flow=65537", "max-flow" },
    { "max-sge=0", "max-sge" },
    { "max-sge=31", "max-sge" }, { "max-inline=257", "max-inline" },
    { "max-rd-atomic=300", "max-rd-atomic" },
    { "device-memory-size=2K", "device-memory-size" },
    { "device-memory-size=12K", "device-memory-size" },
    { "device-memory-size=512M", "device-memory-size" },
    { "colour=red", "colour" },
    { "mac=hello", "mac" }, { "netdev=nowhere", "netdev" },
};

static void test_refused(const void *data)
{
    const Refused *c = data;
    g_autofree char *command = NULL, *err = NULL, *out = NULL;
    int status;

    command = g_strdup_printf("sh -c \"%s -machine q35,accel=qtest -nodefaults "
                              "-display none -device qrnic,%s\"",
                              getenv("QTEST_QEMU_BINARY"), c->properties);
    g_assert_true(g_spawn_command_line_sync(command, &out, &err, &status,
                                            NULL));
    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, 1);
    g_assert_nonnull(strstr(err, c->names));
    /* one line */
    g_assert_true(strchr(err, '\n') == err + strlen(err) - 1);
}

/* Everything the device keeps state of is in one process: no migration yet. */
static void test_not_migratable(void)
{
    Device *d = device_start("");
    QDict *rsp = qtest_qmp(d->qts, "{'execute': 'migrate', 'arguments': "
                           "{'uri': 'exec:cat > /dev/null'}}");

    g_assert_true(qdict_haskey(rsp, "error"));
    qobject_unref(rsp);
    device_stop(d);
}

void add_property_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(refused); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/property/%s",
                                                refused[i].properties);

        qtest_add_data_func(path, &refused[i], test_refused);
    }
    qtest_add_func("qrnic/property/not-migratable", test_not_migratable);
}
