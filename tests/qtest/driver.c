/*
 * qrnic qtest: a driver for the device, as small as a driver can be
 *
 * Follows the initialisation sequence of the Programmer's Reference. See
 * driver.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <poll.h>
#include "qobject/qdict.h"
#include "cable-peer.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

/* Round trips through the main loop after which no work is pending */
#define SETTLE_ROUNDS 32
#define MEMORY_START 0x00200000
#define MEMORY_END 0x07000000

/* Address of configuration space in memory, as firmware would choose it */
#define MCH_PCIEXBAR 0x60
#define ECAM 0xb0000000u

uint64_t memory_alloc(Device *d, size_t size, size_t align)
{
    uint64_t address = QEMU_ALIGN_UP(d->free, align);

    d->free = address + size;
    g_assert_cmphex(d->free, <=, MEMORY_END);
    qtest_memset(d->qts, address, 0, size);
    return address;
}

uint32_t reg_read(Device *d, unsigned offset)
{
    return qpci_io_readl(d->pci, d->control, offset);
}

/*
 * Waits until the device has received all writes, and its main loop has run
 * once more. Inside QEMU both are true after each write. The reply of a read
 * follows the writes in the process's socket.
 */
static void deliver(Device *d)
{
    if (d->home != d->qts) {
        qpci_config_readl(d->pci, PCI_VENDOR_ID);
        for (int i = 0; i < 2; i++) {
            qtest_qmp_assert_success(d->home, "{'execute': 'query-status'}");
        }
    }
}

void reg_write(Device *d, unsigned offset, uint32_t value)
{
    qpci_io_writel(d->pci, d->control, offset, value);
    deliver(d);
}

void doorbell(Device *d, uint32_t page, unsigned offset, uint32_t number,
              uint32_t index, unsigned wqebbs)
{
    QrnicDoorbell db = { .number = number, .index = index, .wqebbs = wqebbs };
    uint8_t raw[QRNIC_DOORBELL_BYTES];

    qrnic_doorbell_pack(raw, &db);
    qpci_io_writeq(d->pci, d->doorbells, page * QRNIC_DB_PAGE_SIZE + offset,
                   ldq_le_p(raw));
    deliver(d);
}

#define PORT_DEVFN QPCI_DEVFN(6, 0)
/*
 * The first bus behind the port, in the notation of a PC's configuration space
 */
#define BEHIND_PORT_DEVFN 0x100

/* A port with a slot that is controlled by its own registers, not by ACPI */
#define PORT_OPTIONS \
    "-global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off " \
    "-device pcie-root-port,id=above,bus=pcie.0,addr=06.0"

/* Opens the port's windows, because a port forwards only addresses in them. */
static void port_open(QPCIBus *bus)
{
    QPCIDevice *port = qpci_device_find(bus, PORT_DEVFN);

    g_assert_nonnull(port);
    qpci_device_enable(port);
    qpci_config_writeb(port, PCI_SECONDARY_BUS, 1);
    qpci_config_writeb(port, PCI_SUBORDINATE_BUS, 1);
    qpci_config_writew(port, PCI_MEMORY_BASE, 0xe000);
    qpci_config_writew(port, PCI_MEMORY_LIMIT, 0xefff);
    g_free(port);
}

/* Returns true if the tests run over a cable; see tests/README.md. */
static bool wire_is_cable(void)
{
    return !g_strcmp0(getenv("QRNIC_TEST_WIRE"), "cable");
}

bool in_process(void)
{
    return getenv("QRNIC_TEST_DEVICE_QEMU");
}

const char *device_qemu(void)
{
    return getenv(in_process() ? "QRNIC_TEST_DEVICE_QEMU" :
                  "QTEST_QEMU_BINARY");
}

/*
 * Starts the QEMU that has the device. QEMU 10.0 and later versions have
 * different functions for a QEMU of another variable, so that this function
 * exchanges the variable.
 */
static QTestState *start_device_qemu(const char *arguments)
{
    g_autofree char *guests = g_strdup(getenv("QTEST_QEMU_BINARY"));
    QTestState *qts;

    g_setenv("QTEST_QEMU_BINARY", device_qemu(), true);
    qts = qtest_init(arguments);
    g_setenv("QTEST_QEMU_BINARY", guests, true);
    return qts;
}

bool skip_in_process(const char *reason)
{
    if (in_process()) {
        g_test_skip(reason);
    }
    return in_process();
}

void clock_step(Device *d, int64_t ns)
{
    deliver(d);
    qtest_clock_step(d->home, ns);
}

bool cable_link(Device *d)
{
    QDict *rsp = qtest_qmp(d->home, "{'execute': 'qom-get', 'arguments': {"
                           "'path': '/objects/cable', 'property': 'link'}}");
    bool up = qdict_get_bool(rsp, "return");

    qobject_unref(rsp);
    return up;
}

void vm_stop(Device *d)
{
    qtest_qmp_assert_success(d->home, "{'execute': 'stop'}");
}

void stop_at(Device *d, const char *kinds)
{
    deliver(d);
    qtest_qmp_assert_success(d->home, "{'execute': 'qom-set', 'arguments': {"
                             "'path': '/machine/peripheral/qrnic', "
                             "'property': 'stop-at', 'value': %s}}", kinds);
}

QDict *stop_event(Device *d)
{
    QDict *rsp = qtest_qmp(d->home, "{'execute': 'qom-get', 'arguments': {"
                           "'path': '/machine/peripheral/qrnic', "
                           "'property': 'stopped'}}");
    QDict *event = qdict_get_qdict(rsp, "return");

    g_assert_nonnull(event);
    qobject_ref(event);
    qobject_unref(rsp);
    return event;
}

/* Returns true, and the event, if the device is stopped. */
static bool is_stopped(Device *d, QDict **event)
{
    *event = stop_event(d);
    if (qdict_size(*event)) {
        return true;
    }
    qobject_unref(*event);
    return false;
}

QDict *stop_wait(Device *d, const char *kind)
{
    QDict *event;

    WAIT_UNTIL(is_stopped(d, &event), "no stop at %s", kind);
    g_assert_cmpstr(qdict_get_str(event, "kind"), ==, kind);
    return event;
}

void stop_continue(Device *d)
{
    qtest_qmp_assert_success(d->home, "{'execute': 'qom-set', 'arguments': {"
                             "'path': '/machine/peripheral/qrnic', "
                             "'property': 'continue', 'value': true}}");
    /* The device continues in the next run of the main loop. */
    settle(d);
}

void stop_none(Device *d)
{
    QDict *event = NULL;
    int64_t end = g_get_monotonic_time() + PATIENCE_US;

    while (is_stopped(d, &event)) {
        qobject_unref(event);
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
}

void vm_continue(Device *d)
{
    /* Writes of the test while the VM was stopped come before its work. */
    deliver(d);
    qtest_qmp_assert_success(d->home, "{'execute': 'cont'}");
}

void wire_cut(Device *d, bool cut)
{
    qtest_qmp_assert_success(d->home, d->cable ?
        "{'execute': 'qom-set', 'arguments': {'path': '/objects/cable', "
        "'property': 'cut', 'value': %i}}" :
        "{'execute': 'set_link', 'arguments': {'name': 'wire', 'up': %i}}",
        d->cable ? cut : !cut);
}

#define MACHINE "-nodefaults -m 128 -display none "
#define SHARED_MEMORY \
    "-object memory-backend-memfd,id=memory,size=128M,share=on " \
    "-machine q35,memory-backend=memory "

const char *machine_options;

void machine_start(Device *d, const char *wire, int wire_fd, bool port,
                   const char *properties)
{
    const char *ports = port ? PORT_OPTIONS : "";
    g_autofree char *arguments = NULL;

    if (!in_process()) {
        d->qts = qtest_initf("-machine q35 " MACHINE "%s %s %s "
                             "-device qrnic,id=qrnic,%s%s",
                             machine_options ? machine_options : "", wire,
                             ports,
                             port ? "bus=above" : "bus=pcie.0,addr=05.0",
                             properties);
        d->home = d->qts;
        close(wire_fd);
        return;
    }
    d->folder = g_dir_make_tmp("qrnic-XXXXXX", NULL);
    g_assert_nonnull(d->folder);
    arguments = g_strdup_printf("-machine qrnic-process,socket=%s/device "
                                "-nodefaults %s "
                                "-device qrnic,id=qrnic,bus=pcie.0%s",
                                d->folder, wire, properties);
    d->home = start_device_qemu(arguments);
    /* The other QEMU must not inherit the socket, and so keep it open. */
    close(wire_fd);
    d->qts = qtest_initf(MACHINE SHARED_MEMORY "%s -device '{\"driver\": "
                         "\"vfio-user-pci\", \"id\": \"qrnic\", %s, "
                         "\"socket\": {\"type\": \"unix\", "
                         "\"path\": \"%s/device\"}}'", ports,
                         port ? "\"bus\": \"above\"" :
                         "\"bus\": \"pcie.0\", \"addr\": \"05.0\"",
                         d->folder);
}

void machine_stop(Device *d)
{
    qtest_quit(d->qts);
    if (d->home != d->qts) {
        qtest_quit(d->home);
        rmdir(d->folder);
        g_free(d->folder);
    }
}

static Device *device_launch(const char *properties, bool backend, bool port)
{
    Device *d = g_new0(Device, 1);
    g_autofree char *wire = NULL, *all = NULL;
    bool cable = backend && wire_is_cable();
    int pair[2];

    g_assert_cmpint(socketpair(AF_UNIX, cable ? SOCK_SEQPACKET : SOCK_DGRAM, 0,
                               pair), ==, 0);
    d->wire = pair[0];
    wire = !backend ? g_strdup("") :
        g_strdup_printf(cable ? "-object qrnic-cable,id=cable,fd=%d" :
                        "-netdev dgram,id=wire,local.type=fd,local.str=%d",
                        pair[1]);
    all = g_strdup_printf("%s%s%s", !backend ? "" : cable ? ",cable=cable" :
                          ",netdev=wire", properties[0] ? "," : "",
                          properties);
    machine_start(d, wire, pair[1], port, all);
    if (cable) {
        d->cable = cable_peer_connect(d->wire, strlen(properties) % 2);
        WAIT_UNTIL(cable_link(d), "the cable does not come up");
    }
    d->bus = qpci_new_pc(d->qts, NULL);
    if (port) {
        port_open(d->bus);
    }
    d->devfn = port ? BEHIND_PORT_DEVFN : QPCI_DEVFN(5, 0);
    d->pci = qpci_device_find(d->bus, d->devfn);
    g_assert_nonnull(d->pci);
    g_assert_cmphex(qpci_config_readl(d->pci, PCI_VENDOR_ID), ==,
                    QRNIC_PCI_DEVICE_ID << 16 | QRNIC_PCI_VENDOR_ID);
    qpci_device_enable(d->pci);
    d->control = qpci_iomap(d->pci, QRNIC_BAR_CONTROL, NULL);
    d->doorbells = qpci_iomap(d->pci, QRNIC_BAR_DOORBELL, &d->doorbells_size);
    d->free = MEMORY_START;
    return d;
}

Device *device_start_bare(const char *properties, bool backend)
{
    return device_launch(properties, backend, false);
}

uint64_t config_address(Device *d, int devfn, unsigned offset)
{
    QPCIDevice *host = qpci_device_find(d->bus, 0);

    g_assert_nonnull(host);
    qpci_config_writel(host, MCH_PCIEXBAR + 4, 0);
    qpci_config_writel(host, MCH_PCIEXBAR, ECAM | 1);
    g_free(host);
    return ECAM + ((uint64_t)devfn << 12) + offset;
}

uint64_t slot_control_address(Device *d)
{
    QPCIDevice *port = qpci_device_find(d->bus, PORT_DEVFN);
    uint8_t exp = qpci_find_capability(port, PCI_CAP_ID_EXP, 0);

    g_free(port);
    return config_address(d, PORT_DEVFN, exp + PCI_EXP_SLTCTL);
}

void message_set(Device *d, unsigned vector, uint64_t address, uint32_t data)
{
    uint64_t entry = d->pci->msix_table_off + vector * PCI_MSIX_ENTRY_SIZE;

    qpci_io_writel(d->pci, d->pci->msix_table_bar,
                   entry + PCI_MSIX_ENTRY_LOWER_ADDR, address);
    qpci_io_writel(d->pci, d->pci->msix_table_bar,
                   entry + PCI_MSIX_ENTRY_UPPER_ADDR, address >> 32);
    qpci_io_writel(d->pci, d->pci->msix_table_bar,
                   entry + PCI_MSIX_ENTRY_DATA, data);
}

/* Enables MSI-X. The message of a vector writes its number + 1 to memory. */
static void enable_msix(Device *d)
{
    qpci_msix_enable(d->pci);
    for (unsigned i = 0; i < VECTORS; i++) {
        uint64_t entry = d->pci->msix_table_off + i * PCI_MSIX_ENTRY_SIZE;

        d->msi[i] = memory_alloc(d, 4, 4);
        message_set(d, i, d->msi[i], i + 1);
        qpci_io_writel(d->pci, d->pci->msix_table_bar,
                       entry + PCI_MSIX_ENTRY_VECTOR_CTRL, 0);
    }
}

void device_enable_commands(Device *d, unsigned log_size)
{
    d->cmd_log_size = log_size;
    d->cmd_producer = 0;
    d->cmd_ring = memory_alloc(d, QRNIC_CMD_ENTRY_SIZE << log_size, 64);
    reg_write(d, QRNIC_REG_CMD_BASE_LO, d->cmd_ring);
    reg_write(d, QRNIC_REG_CMD_BASE_HI, d->cmd_ring >> 32);
    reg_write(d, QRNIC_REG_CMD_SIZE, log_size);
    reg_write(d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_CMD_ENABLE_MASK);
    g_assert_cmphex(reg_read(d, QRNIC_REG_STATUS) &
                    QRNIC_REG_STATUS_CMD_ENABLED_MASK, !=, 0);
}

static Device *device_prepare(Device *d)
{
    g_assert_cmphex(reg_read(d, QRNIC_REG_ID), ==, QRNIC_ID_MAGIC);
    enable_msix(d);
    device_enable_commands(d, 3);
    return d;
}

Device *device_start_on(const char *properties, bool backend, bool port)
{
    return device_prepare(device_launch(properties, backend, port));
}

Device *device_start(const char *properties)
{
    return device_start_on(properties, true, false);
}

void device_refused(const char *properties, const char *text)
{
    g_autofree char *command = NULL, *err = NULL, *out = NULL;
    int status;

    command = g_strdup_printf("sh -c \"%s -machine %s,accel=qtest -nodefaults "
                              "-display none -device qrnic,%s\"",
                              device_qemu(), in_process() ?
                              "qrnic-process,socket=/dev/null" : "q35",
                              properties);
    g_assert_true(g_spawn_command_line_sync(command, &out, &err, &status,
                                            NULL));
    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, 1);
    g_assert_nonnull(strstr(err, text));
    g_assert_true(strchr(err, '\n') == err + strlen(err) - 1);
}

void device_stop(Device *d)
{
    qpci_free_pc(d->bus);
    g_free(d->pci);
    machine_stop(d);
    if (d->cable) {
        cable_peer_free(d->cable);
    } else {
        close(d->wire);
    }
    g_free(d);
}

bool interrupt_taken(Device *d, unsigned vector)
{
    uint32_t message = qtest_readl(d->qts, d->msi[vector]);

    if (!message) {
        return false;
    }
    g_assert_cmphex(message, ==, vector + 1);
    qtest_writel(d->qts, d->msi[vector], 0);
    return true;
}

void interrupt_wait(Device *d, unsigned vector)
{
    WAIT_UNTIL(interrupt_taken(d, vector), "no interrupt on vector %u", vector);
}

void settle(Device *d)
{
    for (int i = 0; i < SETTLE_ROUNDS; i++) {
        reg_read(d, QRNIC_REG_ID);
    }
}

uint64_t command_begin(Device *d, QrnicCmdEntry entry)
{
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];
    uint64_t slot = d->cmd_ring + QRNIC_CMD_ENTRY_SIZE *
                    (d->cmd_producer & ((1u << d->cmd_log_size) - 1));

    qrnic_cmd_entry_pack(raw, &entry);
    qtest_memwrite(d->qts, slot, raw, sizeof(raw));
    reg_write(d, QRNIC_REG_CMD_DOORBELL, ++d->cmd_producer);
    return slot;
}

QrnicCmdEntry command_raw(Device *d, QrnicCmdEntry entry)
{
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];
    uint64_t slot = command_begin(d, entry);

    WAIT_UNTIL(!(qtest_readl(d->qts, slot + QRNIC_CMD_ENTRY_CONTROL_OFFSET) >>
                 31),
               "command 0x%x does not complete", entry.opcode);
    qtest_memread(d->qts, slot, raw, sizeof(raw));
    g_assert_true(qrnic_cmd_entry_unpack(&entry, raw));
    return entry;
}

QrnicCmdEntry command(Device *d, unsigned opcode, uint32_t object,
                      const void *in, uint32_t in_len, void *out,
                      uint32_t out_len)
{
    static uint16_t token;
    uint64_t before = d->free;
    QrnicCmdEntry entry = {
        .opcode = opcode, .token = ++token, .object = object,
        .in_len = in_len, .out_len = out_len, .owner = 1,
    };

    if (in_len) {
        entry.in_addr = memory_alloc(d, in_len, 8);
        qtest_memwrite(d->qts, entry.in_addr, in, in_len);
    }
    if (out_len) {
        entry.out_addr = memory_alloc(d, out_len, 8);
    }
    entry = command_raw(d, entry);
    g_assert_cmphex(entry.token, ==, token);
    if (out_len && out) {
        qtest_memread(d->qts, entry.out_addr, out, out_len);
    }
    d->free = before;
    return entry;
}

uint32_t command_ok(Device *d, unsigned opcode, uint32_t object,
                    const void *in, uint32_t in_len, void *out,
                    uint32_t out_len)
{
    QrnicCmdEntry entry = command(d, opcode, object, in, in_len, out, out_len);

    if (entry.status != QRNIC_ST_OK) {
        g_error("%s: %s, syndrome 0x%x", qrnic_cmd_opcode_name(opcode),
                qrnic_cmd_status_name(entry.status), entry.syndrome);
    }
    return entry.result;
}

void command_fails(Device *d, unsigned opcode, uint32_t object,
                   const void *in, uint32_t in_len, void *out,
                   uint32_t out_len, unsigned status, uint32_t syndrome)
{
    QrnicCmdEntry entry = command(d, opcode, object, in, in_len, out, out_len);

    g_assert_cmpstr(qrnic_cmd_status_name(entry.status), ==,
                    qrnic_cmd_status_name(status));
    g_assert_cmphex(entry.syndrome, ==, syndrome);
    g_assert_cmphex(entry.result, ==, 0);
}

uint64_t counter(Device *d, enum qrnic_counter which)
{
    uint64_t table[QRNIC_NUM_COUNTERS];

    command_ok(d, QRNIC_CMD_QUERY_COUNTERS, 0, NULL, 0, table, sizeof(table));
    return le64_to_cpu(table[which]);
}

void counter_wait(Device *d, enum qrnic_counter which, uint64_t value)
{
    WAIT_UNTIL(counter(d, which) == value, "counter %s is %" PRIu64
               ", not %" PRIu64, qrnic_counter_name(which), counter(d, which),
               value);
}

QrnicTranslation contiguous(uint64_t address)
{
    return (QrnicTranslation) { .root = address };
}

void eq_create(Device *d, Eq *eq, unsigned type, unsigned vector,
               unsigned log_size)
{
    uint8_t raw[QRNIC_EQ_CTX_BYTES];
    QrnicEqCtx ctx = { .type = type, .log_size = log_size, .vector = vector };

    eq->log_size = log_size;
    eq->consumer = 0;
    eq->ring = memory_alloc(d, QRNIC_EQE_SIZE << log_size, 4096);
    ctx.ring = contiguous(eq->ring);
    qrnic_eq_ctx_pack(raw, &ctx);
    eq->number = command_ok(d, QRNIC_CMD_CREATE_EQ, 0, raw, sizeof(raw),
                            NULL, 0);
}

static void eq_doorbell(Device *d, Eq *eq, bool arm)
{
    QrnicEqDoorbell db = {
        .number = eq->number, .arm = arm, .index = eq->consumer,
    };
    uint8_t raw[QRNIC_EQ_DOORBELL_BYTES];

    qrnic_eq_doorbell_pack(raw, &db);
    qpci_io_writeq(d->pci, d->doorbells, QRNIC_DB_EQ, ldq_le_p(raw));
}

void eq_arm(Device *d, Eq *eq)
{
    eq_doorbell(d, eq, true);
}

/*
 * Reads an entry of a ring. Returns true if its phase bit is valid: 1 in the
 * first pass.
 */
static bool ring_entry(Device *d, uint64_t ring, unsigned log_size,
                       uint32_t consumer, unsigned size, uint8_t *raw)
{
    uint32_t mask = (1u << log_size) - 1;
    uint64_t at = ring + (uint64_t)(consumer & mask) * size;
    uint32_t control = qtest_readl(d->qts, at + size - 4);

    if (control >> 31 == (consumer >> log_size & 1)) {
        return false;
    }
    qtest_memread(d->qts, at, raw, size);
    return true;
}

bool eq_poll(Device *d, Eq *eq, QrnicEqe *out)
{
    uint8_t raw[QRNIC_EQE_SIZE];

    if (!ring_entry(d, eq->ring, eq->log_size, eq->consumer, sizeof(raw),
                    raw)) {
        return false;
    }
    eq->consumer++;
    eq_doorbell(d, eq, false);
    g_assert_true(qrnic_eqe_unpack(out, raw));
    return true;
}

void eq_wait(Device *d, Eq *eq, QrnicEqe *out)
{
    WAIT_UNTIL(eq_poll(d, eq, out), "no EQE in EQ %u", eq->number);
}

void fault_answer(Device *d, unsigned opcode, uint32_t number,
                  uint32_t sequence)
{
    QrnicFaultAnswer answer = { .sequence = sequence };
    uint8_t raw[QRNIC_FAULT_ANSWER_BYTES];

    qrnic_fault_answer_pack(raw, &answer);
    command_ok(d, opcode, number, raw, sizeof(raw), NULL, 0);
}

void cq_create(Device *d, Cq *cq, const Eq *eq, uint32_t page,
               unsigned log_size)
{
    uint8_t raw[QRNIC_CQ_CTX_BYTES];
    QrnicCqCtx ctx = {
        .eqn = eq->number, .db_page = page, .log_size = log_size,
    };

    *cq = (Cq) { .log_size = log_size, .page = page };
    cq->ring = memory_alloc(d, QRNIC_CQE_SIZE << log_size, 4096);
    cq->record = memory_alloc(d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx.ring = contiguous(cq->ring);
    ctx.record = cq->record;
    qrnic_cq_ctx_pack(raw, &ctx);
    cq->number = command_ok(d, QRNIC_CMD_CREATE_CQ, 0, raw, sizeof(raw),
                            NULL, 0);
}

void cq_arm(Device *d, Cq *cq, bool solicited)
{
    QrnicCqRecord record = {
        .consumer = cq->consumer, .sequence = ++cq->sequence,
        .solicited = solicited,
    };
    uint8_t raw[QRNIC_CQ_RECORD_BYTES];

    qrnic_cq_record_pack(raw, &record);
    qtest_memwrite(d->qts, cq->record, raw, sizeof(raw));
    doorbell(d, cq->page, QRNIC_DB_CQ_ARM, cq->number, cq->consumer, 0);
}

bool cq_poll(Device *d, Cq *cq, QrnicCqe *out)
{
    uint8_t raw[QRNIC_CQE_SIZE];

    if (!ring_entry(d, cq->ring, cq->log_size, cq->consumer, sizeof(raw),
                    raw)) {
        return false;
    }
    qtest_writel(d->qts, cq->record, ++cq->consumer);
    g_assert_true(qrnic_cqe_unpack(out, raw));
    return true;
}

void cq_wait(Device *d, Cq *cq, QrnicCqe *out)
{
    WAIT_UNTIL(cq_poll(d, cq, out), "no CQE in CQ %u", cq->number);
}

void mr_create(Device *d, Mr *mr, uint32_t pd, uint64_t start, uint64_t length,
               uint8_t access)
{
    static uint8_t variant = 0x5a;
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = access, .variant = ++variant,
        .pd = pd, .start = start, .length = length,
    };

    mr->start = start;
    mr->length = length;
    mr->memory = memory_alloc(d, length, 4096);
    ctx.table = contiguous(mr->memory);
    qrnic_mkey_ctx_pack(raw, &ctx);
    mr->index = command_ok(d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw),
                           NULL, 0);
    mr->key = mr->index << 8 | variant;
}

void qp_create_flags(Device *d, Qp *qp, unsigned type, uint32_t pd,
                     uint32_t page, Cq *send_cq, Cq *recv_cq,
                     unsigned sq_log_size, unsigned rq_log_size,
                     unsigned rq_log_stride, uint8_t flags)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx = {
        .type = type, .pd = pd, .db_page = page,
        .send_cq = send_cq->number, .recv_cq = recv_cq->number,
        .sq_log_size = sq_log_size, .rq_log_size = rq_log_size,
        .rq_log_stride = rq_log_stride, .flags = flags,
    };

    *qp = (Qp) {
        .page = page, .send_cq = send_cq, .recv_cq = recv_cq,
        .sq_log_size = sq_log_size, .rq_log_size = rq_log_size,
        .rq_log_stride = rq_log_stride,
    };
    qp->sq = memory_alloc(d, QRNIC_WQEBB_SIZE << sq_log_size, 4096);
    qp->rq = memory_alloc(d, QRNIC_WQEBB_SIZE << (rq_log_size + rq_log_stride),
                         4096);
    qp->sq_record = memory_alloc(d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    qp->rq_record = memory_alloc(d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx.sq = contiguous(qp->sq);
    ctx.rq = contiguous(qp->rq);
    ctx.sq_record = qp->sq_record;
    ctx.rq_record = qp->rq_record;
    qrnic_qp_ctx_pack(raw, &ctx);
    qp->number = command_ok(d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw),
                            NULL, 0);
}

void qp_create(Device *d, Qp *qp, unsigned type, uint32_t pd, uint32_t page,
               Cq *send_cq, Cq *recv_cq, unsigned sq_log_size,
               unsigned rq_log_size, unsigned rq_log_stride)
{
    qp_create_flags(d, qp, type, pd, page, send_cq, recv_cq, sq_log_size,
                    rq_log_size, rq_log_stride, 0);
}

void qp_create_srq(Device *d, Qp *qp, unsigned type, uint32_t pd,
                   uint32_t page, Cq *send_cq, Cq *recv_cq,
                   unsigned sq_log_size, uint32_t srqn)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx = {
        .type = type, .pd = pd, .db_page = page, .send_cq = send_cq->number,
        .recv_cq = recv_cq->number, .sq_log_size = sq_log_size, .srq = srqn,
    };

    *qp = (Qp) {
        .page = page, .send_cq = send_cq, .recv_cq = recv_cq,
        .sq_log_size = sq_log_size,
    };
    qp->sq = memory_alloc(d, QRNIC_WQEBB_SIZE << sq_log_size, 4096);
    qp->sq_record = memory_alloc(d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx.sq = contiguous(qp->sq);
    ctx.sq_record = qp->sq_record;
    qrnic_qp_ctx_pack(raw, &ctx);
    qp->number = command_ok(d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw),
                            NULL, 0);
}

void qp_modify(Device *d, const Qp *qp, const QrnicQpAttr *attr)
{
    uint8_t raw[QRNIC_QP_ATTR_BYTES];

    qrnic_qp_attr_pack(raw, attr);
    command_ok(d, QRNIC_CMD_MODIFY_QP, qp->number, raw, sizeof(raw), NULL, 0);
}

void qp_query(Device *d, const Qp *qp, QrnicQpAttr *attr)
{
    uint8_t raw[QRNIC_QP_ATTR_BYTES];

    command_ok(d, QRNIC_CMD_QUERY_QP, qp->number, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_qp_attr_unpack(attr, raw));
}

QrnicQpAttr qp_default_attr(void)
{
    QrnicQpAttr attr = {
        .path_mtu = QRNIC_MTU_1024,
        .access = QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ |
                  QRNIC_ACCESS_REMOTE_ATOMIC,
        .timeout = 14, .retry_cnt = 2, .rnr_retry = 2, .min_rnr_timer = 12,
        .max_rd_atomic = 4, .max_dest_rd_atomic = 4, .port = 1,
        .dest_qpn = PEER_QPN, .sq_psn = SQ_PSN, .rq_psn = RQ_PSN,
    };

    attr.av.dgid[10] = attr.av.dgid[11] = 0xff;
    memcpy(attr.av.dgid + 12, PEER_IP4, 4);
    memcpy(attr.av.dmac, PEER_MAC, 6);
    attr.av.hop_limit = 33;
    attr.av.traffic_class = 0x28;
    attr.av.udp_sport = 0xc777;
    return attr;
}

void qp_to_rtr(Device *d, Qp *qp, const QrnicQpAttr *attr)
{
    QrnicQpAttr all = attr ? *attr : qp_default_attr();
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = all.port, .access = all.access,
    };

    qp_modify(d, qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
                QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN |
                QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER,
        .state = QRNIC_QPS_RTR, .av = all.av, .path_mtu = all.path_mtu,
        .dest_qpn = all.dest_qpn, .rq_psn = all.rq_psn,
        .max_dest_rd_atomic = all.max_dest_rd_atomic,
        .min_rnr_timer = all.min_rnr_timer,
        .options = all.options, .carrier = all.carrier,
    };
    step.mask |= all.options ? QRNIC_QP_OPTIONS : 0;
    step.mask |= all.carrier ? QRNIC_QP_CARRIER : 0;
    qp_modify(d, qp, &step);
}

void qp_connect(Device *d, Qp *qp, const QrnicQpAttr *attr)
{
    QrnicQpAttr all = attr ? *attr : qp_default_attr();
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT |
                QRNIC_QP_RNR_RETRY | QRNIC_QP_SQ_PSN | QRNIC_QP_MAX_RD_ATOMIC,
        .state = QRNIC_QPS_RTS, .timeout = all.timeout,
        .retry_cnt = all.retry_cnt, .rnr_retry = all.rnr_retry,
        .sq_psn = all.sq_psn, .max_rd_atomic = all.max_rd_atomic,
    };

    qp_to_rtr(d, qp, attr);
    qp_modify(d, qp, &step);
}

void qp_connect_unreliable(Device *d, const Qp *qp, const QrnicQpAttr *attr)
{
    QrnicQpAttr all = attr ? *attr : qp_default_attr();
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = 1,
        .access = QRNIC_ACCESS_REMOTE_WRITE,
    };

    qp_modify(d, qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
                QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN,
        .state = QRNIC_QPS_RTR, .av = all.av, .path_mtu = all.path_mtu,
        .dest_qpn = all.dest_qpn, .rq_psn = all.rq_psn,
    };
    qp_modify(d, qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_SQ_PSN, .state = QRNIC_QPS_RTS,
        .sq_psn = SQ_PSN,
    };
    qp_modify(d, qp, &step);
}

void qp_start_datagram(Device *d, const Qp *qp, uint32_t qkey)
{
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_QKEY,
        .state = QRNIC_QPS_INIT, .port = 1, .qkey = qkey,
    };

    qp_modify(d, qp, &step);
    step = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTR };
    qp_modify(d, qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_SQ_PSN, .state = QRNIC_QPS_RTS,
        .sq_psn = SQ_PSN,
    };
    qp_modify(d, qp, &step);
}

Wqe wqe_begin(unsigned opcode, unsigned flags)
{
    return (Wqe) {
        .segments = 1,
        .ctrl = { .opcode = opcode, .flags = flags },
    };
}

static uint8_t *wqe_segment(Wqe *w)
{
    g_assert_cmpuint((w->segments + 1) * QRNIC_SEGMENT_SIZE, <=,
                     sizeof(w->bytes));
    return w->bytes + w->segments++ * QRNIC_SEGMENT_SIZE;
}

void wqe_remote(Wqe *w, uint64_t address, uint32_t rkey)
{
    QrnicRemoteSeg seg = { .address = address, .rkey = rkey };

    qrnic_remote_seg_pack(wqe_segment(w), &seg);
}

void wqe_xrc(Wqe *w, uint32_t srqn)
{
    QrnicXrcSeg seg = { .srqn = srqn };

    qrnic_xrc_seg_pack(wqe_segment(w), &seg);
}

void wqe_atomic(Wqe *w, uint64_t swap_add, uint64_t compare)
{
    QrnicAtomicSeg seg = { .swap_add = swap_add, .compare = compare };

    qrnic_atomic_seg_pack(wqe_segment(w), &seg);
}

void wqe_flush(Wqe *w, const QrnicFlushSeg *flush)
{
    qrnic_flush_seg_pack(wqe_segment(w), flush);
}

void wqe_eth(Wqe *w, const QrnicEthSeg *eth)
{
    qrnic_eth_seg_pack(wqe_segment(w), eth);
}

void wqe_datagram(Wqe *w, const QrnicDatagramSeg *datagram)
{
    qrnic_datagram_seg_pack(w->bytes + w->segments * QRNIC_SEGMENT_SIZE,
                            datagram);
    w->segments += QRNIC_DATAGRAM_SEG_BYTES / QRNIC_SEGMENT_SIZE;
}

void wqe_dynamic(Wqe *w, const QrnicDynamicSeg *dynamic)
{
    qrnic_dynamic_seg_pack(w->bytes + w->segments * QRNIC_SEGMENT_SIZE,
                           dynamic);
    w->segments += QRNIC_DYNAMIC_SEG_BYTES / QRNIC_SEGMENT_SIZE;
}

void wqe_bind(Wqe *w, const QrnicBindSeg *bind)
{
    qrnic_bind_seg_pack(w->bytes + w->segments * QRNIC_SEGMENT_SIZE, bind);
    w->segments += QRNIC_BIND_SEG_BYTES / QRNIC_SEGMENT_SIZE;
}

void wqe_reg(Wqe *w, const QrnicRegSeg *reg)
{
    qrnic_reg_seg_pack(w->bytes + w->segments * QRNIC_SEGMENT_SIZE, reg);
    w->segments += QRNIC_REG_SEG_BYTES / QRNIC_SEGMENT_SIZE;
}

void wqe_data(Wqe *w, uint64_t address, uint32_t length, uint32_t lkey)
{
    QrnicDataSeg seg = { .address = address, .length = length, .lkey = lkey };

    qrnic_data_seg_pack(wqe_segment(w), &seg);
}

void wqe_inline(Wqe *w, const void *data, uint32_t length)
{
    uint8_t *at = w->bytes + w->segments * QRNIC_SEGMENT_SIZE;

    memcpy(at, data, length);
    w->segments += DIV_ROUND_UP(length, QRNIC_SEGMENT_SIZE);
    w->ctrl.flags |= QRNIC_WQEF_INLINE;
    w->ctrl.inline_length = length;
}

unsigned wqe_wqebbs(const Wqe *w)
{
    return DIV_ROUND_UP(w->segments * QRNIC_SEGMENT_SIZE, QRNIC_WQEBB_SIZE);
}

void sq_write(Device *d, Qp *qp, Wqe *w)
{
    uint32_t mask = (1u << qp->sq_log_size) - 1;

    w->ctrl.segments = w->segments;
    w->ctrl.index = qp->sq_producer;
    qrnic_sq_ctrl_pack(w->bytes, &w->ctrl);
    for (unsigned i = 0; i < wqe_wqebbs(w); i++) {
        qtest_memwrite(d->qts,
                       qp->sq + (qp->sq_producer++ & mask) * QRNIC_WQEBB_SIZE,
                       w->bytes + i * QRNIC_WQEBB_SIZE, QRNIC_WQEBB_SIZE);
    }
}

void sq_publish(Device *d, const Qp *qp)
{
    qtest_writel(d->qts, qp->sq_record, qp->sq_producer);
}

void sq_ring(Device *d, const Qp *qp)
{
    doorbell(d, qp->page, QRNIC_DB_SQ, qp->number, qp->sq_producer, 0);
}

void sq_post(Device *d, Qp *qp, Wqe *w)
{
    sq_write(d, qp, w);
    sq_publish(d, qp);
    sq_ring(d, qp);
}

void sq_post_direct(Device *d, Qp *qp, Wqe *w)
{
    unsigned bytes = wqe_wqebbs(w) * QRNIC_WQEBB_SIZE;

    g_assert_cmpuint(bytes, <=, QRNIC_DB_WINDOW_SIZE);
    sq_write(d, qp, w);
    sq_publish(d, qp);
    for (unsigned i = 0; i < bytes; i += 8) {
        qpci_io_writeq(d->pci, d->doorbells,
                       qp->page * QRNIC_DB_PAGE_SIZE + QRNIC_DB_WINDOW + i,
                       ldq_le_p(w->bytes + i));
    }
    doorbell(d, qp->page, QRNIC_DB_DIRECT, qp->number, qp->sq_producer,
             wqe_wqebbs(w));
}

void rq_write(Device *d, Qp *qp, const QrnicDataSeg *sge, unsigned count)
{
    uint8_t raw[QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE] = { 0 };
    unsigned stride = QRNIC_WQEBB_SIZE << qp->rq_log_stride;
    QrnicRecvCtrl ctrl = { .data_segments = count, .index = qp->rq_producer };
    uint32_t slot = qp->rq_producer++ & ((1u << qp->rq_log_size) - 1);

    g_assert_cmpuint((count + 1) * QRNIC_SEGMENT_SIZE, <=, stride);
    qrnic_recv_ctrl_pack(raw, &ctrl);
    for (unsigned i = 0; i < count; i++) {
        qrnic_data_seg_pack(raw + (i + 1) * QRNIC_SEGMENT_SIZE, &sge[i]);
    }
    qtest_memwrite(d->qts, qp->rq + slot * stride, raw, stride);
    qtest_writel(d->qts, qp->rq_record, qp->rq_producer);
}

void rq_post(Device *d, Qp *qp, const QrnicDataSeg *sge, unsigned count)
{
    rq_write(d, qp, sge, count);
    doorbell(d, qp->page, QRNIC_DB_RQ, qp->number, qp->rq_producer, 0);
}

void wire_send(Device *d, const uint8_t *frame, size_t len)
{
    if (d->cable) {
        cable_peer_send(d->cable, frame, len);
        return;
    }
    g_assert_cmpint(send(d->wire, frame, len, 0), ==, len);
}

size_t wire_shortest(const Device *d)
{
    return d->cable ? 14 : 1;
}

bool wire_pending(Device *d)
{
    struct pollfd p = { .fd = d->wire, .events = POLLIN };

    return d->cable ? cable_peer_pending(d->cable) : poll(&p, 1, 0) == 1;
}

size_t wire_receive(Device *d, uint8_t *frame)
{
    struct pollfd p = { .fd = d->wire, .events = POLLIN };
    ssize_t len;

    if (d->cable) {
        return cable_peer_receive(d->cable, frame, PEER_FRAME_MAX);
    }
    if (poll(&p, 1, PATIENCE_US / 1000) != 1) {
        g_error("the device sends no frame");
    }
    len = recv(d->wire, frame, PEER_FRAME_MAX, 0);
    g_assert_cmpint(len, >, 0);
    return len;
}

void wire_silent(Device *d)
{
    settle(d);
    g_assert_false(wire_pending(d));
}

PeerPacket peer_packet(const Qp *qp, uint8_t opcode, uint32_t psn)
{
    PeerPacket p = {
        .vlan = -1, .opcode = opcode, .dest_qpn = qp->number,
        .psn = psn & 0xffffff,
    };

    memcpy(p.dmac, OUR_MAC, 6);
    memcpy(p.smac, PEER_MAC, 6);
    memcpy(p.sip, PEER_IP4, 4);
    memcpy(p.dip, OUR_IP4, 4);
    return p;
}

void peer_send(Device *d, const PeerPacket *p)
{
    uint8_t frame[PEER_FRAME_MAX];

    wire_send(d, frame, peer_encode(p, frame));
}

PeerPacket peer_expect_marked(Device *d, uint8_t opcode, uint32_t psn,
                              uint8_t mark)
{
    static uint8_t frame[PEER_FRAME_MAX];
    size_t len = wire_receive(d, frame);
    PeerPacket p;

    peer_decode(frame, len, &p);
    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.psn, ==, psn & 0xffffff);
    g_assert_cmphex(p.pkey, ==, 0xffff);
    g_assert_cmpuint(p.tver, ==, 0);
    g_assert_cmphex(p.mark, ==, mark);
    return p;
}

PeerPacket peer_expect(Device *d, uint8_t opcode, uint32_t psn)
{
    return peer_expect_marked(d, opcode, psn, 0);
}

void peer_expect_frame(Device *d, const PeerPacket *p)
{
    uint8_t got[PEER_FRAME_MAX], want[PEER_FRAME_MAX];
    size_t len = wire_receive(d, got);
    PeerPacket decoded;

    peer_decode(got, len, &decoded);
    g_assert_cmphex(decoded.opcode, ==, p->opcode);
    g_assert_cmpmem(got, len, want, peer_encode(p, want));
}

void peer_ack(Device *d, const Qp *qp, uint32_t psn, uint8_t syndrome,
              uint32_t msn)
{
    PeerPacket p = peer_packet(qp, RC_ACK, psn);

    p.syndrome = syndrome;
    p.msn = msn;
    peer_send(d, &p);
}

void gid_of_ip4(uint8_t *gid, const void *ip4)
{
    memset(gid, 0, 10);
    gid[10] = gid[11] = 0xff;
    memcpy(gid + 12, ip4, 4);
}

void gid_set(Device *d, uint32_t index, const uint8_t *gid, int vlan)
{
    uint8_t raw[QRNIC_GID_ENTRY_BYTES];
    QrnicGidEntry entry = { .flags = QRNIC_GID_VALID };

    memcpy(entry.gid, gid, 16);
    memcpy(entry.mac, OUR_MAC, 6);
    if (vlan >= 0) {
        entry.flags |= QRNIC_GID_VLAN;
        entry.vlan_id = vlan;
    }
    qrnic_gid_entry_pack(raw, &entry);
    command_ok(d, QRNIC_CMD_SET_GID, index, raw, sizeof(raw), NULL, 0);
}
