/*
 * qrnic qtest: the bounds of the device's properties
 *
 * Beyond them QEMU ends with one line that names the property.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qobject/qdict.h"
#include "qobject/qnum.h"
#include "qemu/cutils.h"
#include "driver.h"

typedef struct Refused {
    const char *properties, *names;
} Refused;

/* The first value beyond each bound: spec/properties.rst */
static const Refused refused[] = {
    { "vectors=1", "vectors" }, { "vectors=65", "vectors" },
    { "doorbell-pages=1", "doorbell-pages" },
    { "doorbell-pages=3", "doorbell-pages" },
    { "doorbell-pages=131072", "doorbell-pages" },
    { "ioeventfd=on,doorbell-pages=256", "doorbell-pages" },
    { "doorbell-fifo=0", "doorbell-fifo" },
    { "doorbell-fifo=4097", "doorbell-fifo" },
    { "max-qp=0", "max-qp" }, { "max-qp=1048577", "max-qp" },
    { "max-cq=0", "max-cq" }, { "max-cq=32769", "max-cq" },
    { "max-mkey=0", "max-mkey" }, { "max-mkey=1048577", "max-mkey" },
    { "max-pd=0", "max-pd" }, { "max-pd=65537", "max-pd" },
    { "max-gid=0", "max-gid" }, { "max-gid=1025", "max-gid" },
    { "max-srq=0", "max-srq" }, { "max-srq=1048577", "max-srq" },
    { "max-flow=0", "max-flow" }, { "max-flow=65537", "max-flow" },
    { "max-sge=0", "max-sge" }, { "max-sge=31", "max-sge" },
    { "max-inline=257", "max-inline" },
    { "max-rd-atomic=129", "max-rd-atomic" },
    { "device-memory-size=2K", "device-memory-size" },
    { "device-memory-size=12K", "device-memory-size" },
    { "device-memory-size=512M", "device-memory-size" },
    { "colour=red", "colour" },
    { "mac=hello", "mac" }, { "netdev=nowhere", "netdev" },
};

/* The last value within each bound */
static const char *const accepted[] = {
    "vectors=2", "vectors=64", "doorbell-pages=2", "doorbell-pages=65536",
    "doorbell-fifo=1", "doorbell-fifo=4096", "max-qp=1", "max-qp=1048576",
    "max-cq=1", "max-cq=32768", "max-mkey=1", "max-mkey=1048576",
    "max-pd=1", "max-pd=65536", "max-gid=1", "max-gid=1024",
    "max-srq=1", "max-srq=1048576", "max-flow=1", "max-flow=65536",
    "max-sge=1", "max-sge=30", "max-inline=0", "max-inline=256",
    "max-rd-atomic=0", "max-rd-atomic=128", "device-memory-size=0",
    "device-memory-size=4K", "device-memory-size=256M",
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

/* What is accepted is also what the device has: a value is not clipped. */
static void test_accepted(const void *data)
{
    const char *property = data;
    g_auto(GStrv) words = g_strsplit(property, "=", 2);
    uint64_t wanted = 0, found;
    QTestState *qts;
    QDict *rsp;

    g_assert_cmpint(qemu_strtosz(words[1], NULL, &wanted), ==, 0);
    qts = qtest_initf("-machine q35 -nodefaults -display none "
                      "-device qrnic,id=nic,%s", property);
    rsp = qtest_qmp(qts, "{'execute': 'qom-get', 'arguments': {'path': "
                    "'/machine/peripheral/nic', 'property': %s}}", words[0]);
    found = qnum_get_uint(qobject_to(QNum, qdict_get(rsp, "return")));
    g_assert_cmpuint(found, ==, wanted);
    qobject_unref(rsp);
    qtest_quit(qts);
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
    for (unsigned i = 0; i < ARRAY_SIZE(accepted); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/property/%s",
                                                accepted[i]);

        qtest_add_data_func(path, accepted[i], test_accepted);
    }
    qtest_add_func("qrnic/property/not-migratable", test_not_migratable);
}
