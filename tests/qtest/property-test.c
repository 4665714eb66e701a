/*
 * qrnic qtest: the device's properties and the forms of QEMU's command line
 *
 * If a property is out of bounds, QEMU ends with one line that names the
 * property. Programmer's Reference, chapters Properties and PCI.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qobject/qdict.h"
#include "qobject/qnum.h"
#include "qemu/cutils.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"
#include "qemu/units.h"

typedef struct Refused {
    const char *properties, *names;
} Refused;

/* The first value beyond each bound of spec/properties.rst */
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
    { "translation-cache=65537", "translation-cache" },
    { "page-requests=513", "page-requests" },
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
    "translation-cache=0", "translation-cache=65536",
};

static void test_refused(const void *data)
{
    const Refused *c = data;

    device_refused(c->properties, c->names);
}

/* Tests that the device has the accepted value, not a clipped one. */
static void test_accepted(const void *data)
{
    const char *property = data;
    g_auto(GStrv) words = g_strsplit(property, "=", 2);
    g_autofree char *option = g_strdup_printf(",%s", property);
    uint64_t wanted = 0, found;
    Device d = { };
    QDict *rsp;

    g_assert_cmpint(qemu_strtosz(words[1], NULL, &wanted), ==, 0);
    machine_start(&d, "", -1, false, option);
    rsp = qtest_qmp(d.home, "{'execute': 'qom-get', 'arguments': {'path': "
                    "'/machine/peripheral/qrnic', 'property': %s}}", words[0]);
    found = qnum_get_uint(qobject_to(QNum, qdict_get(rsp, "return")));
    g_assert_cmpuint(found, ==, wanted);
    qobject_unref(rsp);
    machine_stop(&d);
}

typedef struct ShortForm {
    const char *options;
    unsigned adapters, vectors;
    bool has_link;
    const char *mac;            /* Or NULL */
} ShortForm;

static const ShortForm short_forms[] = {
    { "-device qrnic", 1, 8, false },
    { "-device qrnic,vectors=0", 1, 8, false },
    { "-netdev user,id=n -device qrnic,netdev=n", 1, 8, true },
    { "-nic user,model=qrnic", 1, 8, true },
    { "-nic user,model=qrnic,mac=52:54:00:aa:bb:cc", 1, 8, true,
      "\x52\x54\x00\xaa\xbb\xcc" },
    { "-nic hubport,hubid=1,model=qrnic", 1, 8, true },
    { "-nic socket,udp=127.0.0.1:9,localaddr=127.0.0.1:0,model=qrnic",
      1, 8, true },
    { "-nic user,model=qrnic -nic user,model=qrnic", 2, 8, true },
    { "-net nic,model=qrnic -net user", 1, 8, true },
    { "-net nic,model=qrnic,vectors=0 -net user", 1, 8, true },
    { "-net nic,model=qrnic,vectors=5,macaddr=52:54:00:aa:bb:cc -net user",
      1, 5, true, "\x52\x54\x00\xaa\xbb\xcc" },
};

static void check_adapter(QPCIDevice *pci, const ShortForm *form)
{
    QPCIBar bar;
    uint8_t mac[8];

    qpci_device_enable(pci);
    bar = qpci_iomap(pci, QRNIC_BAR_CONTROL, NULL);
    g_assert_cmphex(qpci_io_readl(pci, bar, QRNIC_REG_ID), ==, QRNIC_ID_MAGIC);
    g_assert_cmpuint(qpci_io_readl(pci, bar, QRNIC_REG_VECTORS), ==,
                     form->vectors);
    g_assert_cmpuint(!!(qpci_io_readl(pci, bar, QRNIC_REG_STATUS) &
                        QRNIC_REG_STATUS_LINK_MASK), ==, form->has_link);
    stl_le_p(mac, qpci_io_readl(pci, bar, QRNIC_REG_MAC_LO));
    stl_le_p(mac + 4, qpci_io_readl(pci, bar, QRNIC_REG_MAC_HI));
    if (form->mac) {
        g_assert_cmpmem(mac, 6, form->mac, 6);
    }
}

/* Tests every form of the command line that creates QEMU's other adapters. */
static void test_short_form(const void *data)
{
    const ShortForm *form = data;
    QTestState *qts;
    QPCIBus *bus;
    unsigned found = 0;

    if (skip_in_process("the option creates a device in the machine")) {
        return;
    }
    qts = qtest_initf("-machine q35 -nodefaults -display none %s",
                      form->options);
    bus = qpci_new_pc(qts, NULL);
    for (unsigned slot = 0; slot < 32; slot++) {
        QPCIDevice *pci = qpci_device_find(bus, QPCI_DEVFN(slot, 0));

        if (pci && qpci_config_readl(pci, PCI_VENDOR_ID) ==
                   (QRNIC_PCI_DEVICE_ID << 16 | QRNIC_PCI_VENDOR_ID)) {
            check_adapter(pci, form);
            found++;
        }
        g_free(pci);
    }
    g_assert_cmpuint(found, ==, form->adapters);
    qpci_free_pc(bus);
    qtest_quit(qts);
}

/* Defaults that software relies on, without any property */
static void test_defaults(void)
{
    Device *d = device_start("");
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES];
    QrnicDeviceAttr attr;

    command_ok(d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    qrnic_device_attr_unpack(&attr, raw);
    g_assert_cmpuint(attr.max_gid, ==, 256);
    g_assert_cmpuint(attr.max_dm_size, ==, MiB);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_DB_PAGES), ==, 256);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_VECTORS), ==, 8);
    device_stop(d);
}

/* Sizes and types of all BARs, measured as a guest's software does */

typedef struct Bar {
    uint64_t size;
    bool wide, prefetchable;
} Bar;

static Bar bar_of(Device *d, unsigned number)
{
    unsigned at = PCI_BASE_ADDRESS_0 + 4 * number;
    uint32_t low, high = UINT32_MAX;
    Bar bar;

    qpci_config_writel(d->pci, at, UINT32_MAX);
    low = qpci_config_readl(d->pci, at);
    g_assert_false(low & PCI_BASE_ADDRESS_SPACE_IO);
    bar.wide = (low & PCI_BASE_ADDRESS_MEM_TYPE_MASK) ==
               PCI_BASE_ADDRESS_MEM_TYPE_64;
    bar.prefetchable = low & PCI_BASE_ADDRESS_MEM_PREFETCH;
    if (bar.wide) {
        qpci_config_writel(d->pci, at + 4, UINT32_MAX);
        high = qpci_config_readl(d->pci, at + 4);
    }
    low &= PCI_BASE_ADDRESS_MEM_MASK;
    bar.size = low ? -((uint64_t)high << 32 | low) : 0;
    return bar;
}

static void check_bars(const char *properties, uint64_t doorbells,
                       uint64_t memory)
{
    const struct { unsigned number; Bar bar; } expected[] = {
        { QRNIC_BAR_CONTROL, { QRNIC_BAR_CONTROL_SIZE } },
        { QRNIC_BAR_MSIX, { QRNIC_BAR_MSIX_SIZE } },
        { QRNIC_BAR_DOORBELL, { doorbells, true, true } },
        { QRNIC_BAR_MEMORY, { memory, memory > 0, memory > 0 } },
    };
    Device *d = device_start_bare(properties, false);
    uint64_t total[2] = { };
    unsigned slots = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(expected); i++) {
        Bar bar = bar_of(d, expected[i].number);

        g_assert_cmphex(bar.size, ==, expected[i].bar.size);
        g_assert_cmpint(bar.wide, ==, expected[i].bar.wide);
        g_assert_cmpint(bar.prefetchable, ==, expected[i].bar.prefetchable);
        total[bar.prefetchable] += bar.size;
        slots += bar.size ? 1 + bar.wide : 0;
    }
    /* The device has no other BAR. */
    g_assert_cmpuint(slots, ==, memory ? 6 : 4);
    if (!properties[0]) {
        /* The space that firmware and Linux reserve for an empty root port */
        g_assert_cmphex(total[0], <=, 2 * MiB);
        g_assert_cmphex(total[1], <=, 2 * MiB);
    }
    device_stop(d);
}

static void test_bars(void)
{
    check_bars("", MiB, MiB);
    check_bars("device-memory-size=256M,doorbell-pages=1024", 4 * MiB,
               256 * MiB);
    check_bars("cap-dm=off", MiB, 0);
}

#define SPARE_DEVFN QPCI_DEVFN(7, 0)

typedef struct HotPlug {
    const char *name;
    uint32_t window;            /* Prefetchable space in MiB */
    bool enabled;               /* True if the guest enables the window */
    uint32_t doorbell_pages;
    uint32_t vfs;
    const char *advice;         /* Expected advice, or NULL: no warning */
} HotPlug;

static const HotPlug hot_plugs[] = {
    { "default", 2, true, 256, 0, NULL },
    { "too-many-pages", 2, true, 512, 0, "pref64-reserve=4M" },
    { "enough-reserved", 4, true, 512, 0, NULL },
    { "no-window", 0, true, 256, 0, "pref64-reserve=2M" },
    { "before-firmware", 2, false, 512, 0, NULL },
    /* Each function has 128 KiB in BAR 2, and in BAR 4. */
    { "functions", 2, true, 256, 7, "pref64-reserve=4M" },
    { "functions-fit", 4, true, 256, 7, NULL },
    /* Each of 64 functions has 80 KiB in BARs 0 and 1. */
    { "many-functions", 16, true, 256, 63, "mem-reserve=8M" },
};

/* Tests a device that is plugged into a port whose window is too small. */
static void test_hot_plug(const void *data)
{
    const HotPlug *c = data;
    g_autofree char *file = NULL, *said = NULL;
    QTestState *qts;
    QPCIBus *bus;
    QPCIDevice *port;
    int fd;

    if (skip_in_process("the device has no port of its own to warn of")) {
        return;
    }
    fd = g_file_open_tmp("qrnic-warning-XXXXXX", &file, NULL);
    g_assert_cmpint(fd, >=, 0);
    close(fd);
    qts = qtest_initf("-machine q35 -nodefaults -display none -device "
                      "pcie-root-port,id=spare,bus=pcie.0,addr=07.0,chassis=9 "
                      "2>%s", file);
    bus = qpci_new_pc(qts, NULL);
    port = qpci_device_find(bus, SPARE_DEVFN);
    g_assert_nonnull(port);
    if (c->enabled) {
        qpci_device_enable(port);
    }
    /* The window is at 0xe0000000. Without a window, base is above limit. */
    qpci_config_writew(port, PCI_PREF_MEMORY_BASE, c->window ? 0xe000 : 0xfff0);
    qpci_config_writew(port, PCI_PREF_MEMORY_LIMIT,
                       c->window ? 0xe000 + (c->window - 1) * 16 : 0);
    /* The other window has 2 MiB, as firmware and Linux reserve. */
    qpci_config_writew(port, PCI_MEMORY_BASE, 0xd000);
    qpci_config_writew(port, PCI_MEMORY_LIMIT, 0xd010);
    qtest_qmp_assert_success(qts, "{'execute': 'device_add', 'arguments': "
                             "{'driver': 'qrnic', 'id': 'late', 'bus': "
                             "'spare', 'doorbell-pages': %u, 'vfs': %u}}",
                             c->doorbell_pages, c->vfs);
    g_free(port);
    qpci_free_pc(bus);
    qtest_quit(qts);
    g_assert_true(g_file_get_contents(file, &said, NULL, NULL));
    unlink(file);
    if (c->advice) {
        g_assert_nonnull(strstr(said, "warning: qrnic 'late': "));
        g_assert_nonnull(strstr(said, c->advice));
        g_assert_true(strchr(said, '\n') == said + strlen(said) - 1);
    } else {
        g_assert_cmpstr(said, ==, "");
    }
}

/*
 * Tests that migration is rejected, because the device's state is in one
 * process.
 */
static void test_not_migratable(void)
{
    Device *d;
    QDict *rsp;

    if (skip_in_process("QEMU 11.1 does not reject it for vfio-user-pci")) {
        return;
    }
    d = device_start("");
    rsp = qtest_qmp(d->qts, "{'execute': 'migrate', 'arguments': "
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
    for (unsigned i = 0; i < ARRAY_SIZE(short_forms); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/property/form/%s",
                                                short_forms[i].options);

        /*
         * Slashes and blanks are replaced, because they would divide the test's
         * path.
         */
        g_strdelimit(path + strlen("qrnic/property/form/"), "/ :", '_');
        qtest_add_data_func(path, &short_forms[i], test_short_form);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(hot_plugs); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/property/hot-plug/%s",
                                                hot_plugs[i].name);

        qtest_add_data_func(path, &hot_plugs[i], test_hot_plug);
    }
    qtest_add_func("qrnic/property/bars", test_bars);
    qtest_add_func("qrnic/property/defaults", test_defaults);
    qtest_add_func("qrnic/property/not-migratable", test_not_migratable);
}
