/*
 * qrnic: the command queue: ring, mailboxes, and completion
 *
 * registers.c enables the queue and passes doorbells; work.c calls
 * qrnic_command_run(). A command is fetched from the ring and executed by the
 * engine (commands.c), and its entry is written back. Some commands continue in
 * the engine after their function has returned; their reply waits in state
 * UNFINISHED. The DMA of a command may reach a register of this device and
 * disable the queue; then the command gets no reply. So each enable of the
 * queue increments "generation". Manual, chapter "Commands".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "device/parts.h"

static bool command_dma(QrnicDevice *d, uint64_t addr, void *buf, size_t len,
                        bool write, QrnicUse use)
{
    QrnicActivity *activity = qrnic_engine_activity(d->engine);
    bool ok;

    activity->use = use;
    activity->object = 0;
    activity->index = d->cmd.consumer;
    qrnic_count(d->engine, write ? QRNIC_COUNTER_DMA_WRITES :
                                   QRNIC_COUNTER_DMA_READS, 1);
    qrnic_count(d->engine, write ? QRNIC_COUNTER_DMA_WRITE_BYTES :
                                   QRNIC_COUNTER_DMA_READ_BYTES, len);
    ok = write ? qrnic_bus_write(d, addr, buf, len) :
                 qrnic_bus_read(d, addr, buf, len);
    activity->use = QRNIC_USE_DATA;
    if (!ok) {
        qrnic_count(d->engine, QRNIC_COUNTER_DMA_ERRORS, 1);
        qrnic_guest_error(d->engine, QRNIC_GE_DMA_FAILED, "command",
                          d->cmd.consumer, "%s of %zu bytes at 0x%" PRIx64,
                          write ? "write" : "read", len, addr);
    }
    return ok;
}

void qrnic_command_enable(QrnicDevice *d, uint64_t base, uint32_t log_size)
{
    d->cmd = (QrnicCommandQueue) {
        .base = base, .log_size = log_size,
        .generation = d->cmd.generation + 1,
    };
    qrnic_command_state_set(d, QRNIC_COMMANDS_READY);
    trace_qrnic_command_queue(d->name, true, base, log_size);
}

void qrnic_command_disable(QrnicDevice *d)
{
    if (qrnic_command_enabled(d)) {
        qrnic_command_state_set(d, QRNIC_COMMANDS_OFF);
        /*
         * No reply will be written, so software may reuse the new ring at once.
         */
        qrnic_cq_resize_cancel(d->engine);
        trace_qrnic_command_queue(d->name, false, d->cmd.base,
                                  d->cmd.log_size);
    }
}

void qrnic_command_reset(QrnicDevice *d)
{
    if (qrnic_command_enabled(d)) {
        qrnic_command_state_set(d, QRNIC_COMMANDS_OFF);
    }
    d->cmd = (QrnicCommandQueue) { 0 };
}

bool qrnic_command_enabled(const QrnicDevice *d)
{
    return d->cmd.state != QRNIC_COMMANDS_OFF;
}

bool qrnic_command_doorbell(QrnicDevice *d, uint32_t producer)
{
    QrnicCommandQueue *q = &d->cmd;

    trace_qrnic_command_doorbell(d->name, producer, q->consumer);
    if (!qrnic_command_enabled(d)) {
        qrnic_guest_error(d->engine, QRNIC_GE_COMMAND_RING, "command",
                          producer, "the command queue is not enabled");
        return false;
    }
    if (producer - q->consumer > 1u << q->log_size ||
        producer - q->consumer < q->producer - q->consumer) {
        qrnic_guest_error(d->engine, QRNIC_GE_COMMAND_RING, "command",
                          producer, "producer index is not in %" PRIu32
                          " to %" PRIu32, q->producer,
                          q->consumer + (1u << q->log_size));
        return false;
    }
    q->producer = producer;
    return true;
}

static uint32_t event_slot(uint32_t value)
{
    return value & QRNIC_REG_CMD_EVENT_SLOT_MASK;
}

static uint16_t event_token(uint32_t value)
{
    return value >> ctz32(QRNIC_REG_CMD_EVENT_TOKEN_MASK);
}

const char *qrnic_command_event(QrnicDevice *d, uint32_t value,
                                enum qrnic_guest_error *rule, bool *done)
{
    QrnicCommandQueue *q = &d->cmd;
    uint32_t slot = event_slot(value);
    uint32_t mask = (1u << q->log_size) - 1;
    bool waits = ((slot - q->consumer) & mask) < q->producer - q->consumer;

    if (value & ~(QRNIC_REG_CMD_EVENT_SLOT_MASK |
                  QRNIC_REG_CMD_EVENT_TOKEN_MASK)) {
        return "reserved bits are set";
    }
    *rule = QRNIC_GE_COMMAND_RING;
    if (!qrnic_command_enabled(d)) {
        return "the command queue is not enabled";
    }
    if (slot > mask) {
        return "the ring has no such slot";
    }
    trace_qrnic_command_event(d->name, slot, event_token(value), waits);
    if (waits) {
        set_bit(slot, q->wanted);
    }
    *done = !waits;
    return NULL;
}

void qrnic_command_event_send(QrnicDevice *d, uint32_t value)
{
    qrnic_event_async(d->engine, QRNIC_EVENT_COMMAND, 0, event_slot(value),
                      event_token(value));
}

/* Returns true if the command may take longer than a few microseconds. */
static bool command_is_long(QrnicDevice *d, const QrnicCmdEntry *entry)
{
    switch (entry->opcode) {
    /*
     * These commands move 16 KiB or clear 1 MiB, which is enough for one run.
     */
    case QRNIC_CMD_RESIZE_CQ:
    case QRNIC_CMD_ALLOC_DM:
    case QRNIC_CMD_FREE_DM:
    /* All flow rules must be searched. */
    case QRNIC_CMD_CREATE_FLOW:
    case QRNIC_CMD_DESTROY_FLOW:
    /*
     * All queue pairs must be searched, because any of them may be receiving
     * into the SRQ (XRC).
     */
    case QRNIC_CMD_DESTROY_SRQ:
        return true;
    case QRNIC_CMD_DESTROY_QP:
        return qrnic_qp_is_entangled(d->engine, entry->object);
    default:
        return false;
    }
}

/*
 * Checks the entry, reads the input, executes the command, and writes the
 * output.
 */
static QrnicResult command_execute(QrnicDevice *d, const QrnicCmdEntry *entry,
                                   bool reserved_ok, QrnicCommandData *data)
{
    const QrnicCommand *c = qrnic_command_find(entry->opcode);
    const QrnicResult bad_in = { QRNIC_ST_BAD_INPUT_LENGTH };
    const QrnicResult bad_out = { QRNIC_ST_BAD_OUTPUT_LENGTH };
    const QrnicResult dma = { QRNIC_ST_DMA };
    QrnicResult result;

    if (qrnic_is_fatal(d->engine)) {
        return (QrnicResult) { QRNIC_ST_FATAL };
    }
    if (!c) {
        return (QrnicResult) { QRNIC_ST_BAD_OPCODE };
    }
    if (!reserved_ok || entry->status || entry->result || entry->syndrome ||
        (entry->object && !c->has_object)) {
        return (QrnicResult) { QRNIC_ST_RESERVED };
    }
    if (entry->in_len != c->in_len) {
        return bad_in;
    }
    if (entry->out_len > QRNIC_CMD_MAX_MAILBOX ||
        (entry->out_len < c->out_len &&
         entry->opcode != QRNIC_CMD_QUERY_COUNTERS &&
         entry->opcode != QRNIC_CMD_QUERY_COUNTER_SET)) {
        return bad_out;
    }
    if (entry->in_len && entry->in_addr % 8) {
        return (QrnicResult) { QRNIC_ST_BAD_PARAM, 0,
                               QRNIC_CMD_ENTRY_IN_ADDR_OFFSET };
    }
    if (c->out_len && entry->out_addr % 8) {
        return (QrnicResult) { QRNIC_ST_BAD_PARAM, 0,
                               QRNIC_CMD_ENTRY_OUT_ADDR_OFFSET };
    }
    if (c->in_len && !command_dma(d, entry->in_addr, data->in, c->in_len,
                                  false, QRNIC_USE_MAILBOX)) {
        return dma;
    }
    data->object = entry->object;
    data->out_len = MIN(entry->out_len, c->out_len);
    result = c->run(d->engine, data);
    if (result.status == QRNIC_ST_OK && data->out_len &&
        !command_dma(d, entry->out_addr, data->out, data->out_len, true,
                     QRNIC_USE_MAILBOX)) {
        return dma;
    }
    return result;
}

/*
 * Writes the reply into the entry. Returns false if the ring is unusable; the
 * device is then in the fatal state.
 */
static bool command_answer(QrnicDevice *d, uint64_t addr, QrnicCmdEntry *entry,
                           const QrnicResult *result)
{
    const size_t from = QRNIC_CMD_ENTRY_RESULT_OFFSET;
    const size_t control = QRNIC_CMD_ENTRY_CONTROL_OFFSET;
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];

    entry->result = result->value;
    entry->syndrome = result->syndrome;
    entry->status = result->status;
    entry->owner = 0;
    qrnic_cmd_entry_pack(raw, entry);
    /*
     * The control word is written last and alone, because its owner bit passes
     * the entry to software.
     */
    if (!command_dma(d, addr + from, raw + from, control - from, true,
                     QRNIC_USE_COMMAND) ||
        !command_dma(d, addr + control, raw + control, sizeof(raw) - control,
                     true, QRNIC_USE_COMMAND)) {
        qrnic_fatal(d->engine, QRNIC_HEALTH_CMD_DMA, 0);
        return false;
    }
    return true;
}

/*
 * Drops the remaining commands, whose entries belong to software again, and
 * their requested events.
 */
static void command_stop(QrnicCommandQueue *q)
{
    q->producer = q->consumer;
    bitmap_zero(q->wanted, 1u << q->log_size);
}

/* Completes a command. Returns false if the run must stop. */
static bool command_finish(QrnicDevice *d, uint64_t addr, QrnicCmdEntry *entry,
                           const QrnicResult *result)
{
    QrnicCommandQueue *q = &d->cmd;
    uint32_t index = q->consumer & ((1u << q->log_size) - 1);
    uint32_t generation = q->generation;
    bool wanted = test_and_clear_bit(index, q->wanted) || entry->event;
    bool answered, same;

    trace_qrnic_command_end(d->name, q->consumer,
                            qrnic_cmd_opcode_name(entry->opcode), result->value,
                            qrnic_cmd_status_name(result->status),
                            result->syndrome);
    qrnic_count(d->engine, QRNIC_COUNTER_COMMANDS, 1);
    if (result->status != QRNIC_ST_OK) {
        qrnic_count(d->engine, QRNIC_COUNTER_COMMANDS_FAILED, 1);
        qrnic_guest_error(d->engine, QRNIC_GE_COMMAND_FAILED, "command",
                          q->consumer, "%s (0x%x): status %s, syndrome 0x%"
                          PRIx32, qrnic_cmd_opcode_name(entry->opcode),
                          entry->opcode, qrnic_cmd_status_name(result->status),
                          result->syndrome);
    }
    /*
     * A stop waits for the new consumer index, because software that sees the
     * reply may use the slot again.
     */
    qrnic_stop_hold(d, true);
    answered = command_answer(d, addr, entry, result);
    same = q->generation == generation;
    if (answered && same) {
        q->consumer++;
    }
    qrnic_stop_hold(d, false);
    if (!answered) {
        command_stop(q);
        return false;
    }
    if (same && wanted) {
        qrnic_event_async(d->engine, QRNIC_EVENT_COMMAND, 0, index,
                          entry->token);
    }
    return true;
}

/* Fetches and executes a command. Returns false if the run must stop. */
static bool command_next(QrnicDevice *d, QrnicCommandData *data)
{
    QrnicCommandQueue *q = &d->cmd;
    uint32_t index = q->consumer & ((1u << q->log_size) - 1);
    uint32_t generation = q->generation;
    uint64_t addr = q->base + (uint64_t)index * QRNIC_CMD_ENTRY_SIZE;
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];
    QrnicCmdEntry entry;
    QrnicResult result;
    bool reserved_ok;

    if (!command_dma(d, addr, raw, sizeof(raw), false, QRNIC_USE_COMMAND)) {
        command_stop(q);
        qrnic_fatal(d->engine, QRNIC_HEALTH_CMD_DMA, 0);
        return false;
    }
    reserved_ok = qrnic_cmd_entry_unpack(&entry, raw);
    if (!entry.owner) {
        qrnic_guest_error(d->engine, QRNIC_GE_COMMAND_RING, "command",
                          q->consumer, "the owner bit of the entry is 0");
        /*
         * The entry still belongs to software, which may pass it to the device
         * later and ring again.
         */
        command_stop(q);
        return false;
    }
    data->long_work = command_is_long(d, &entry);
    if (data->long_work && data->short_only) {
        return false;
    }
    trace_qrnic_command_begin(d->name, q->consumer,
                              qrnic_cmd_opcode_name(entry.opcode),
                              entry.object, entry.token);
    result = command_execute(d, &entry, reserved_ok, data);
    if (entry.opcode == QRNIC_CMD_RESIZE_CQ && result.status == QRNIC_ST_OK &&
        (!qrnic_command_enabled(d) || q->generation != generation)) {
        /*
         * The DMA of the command may have disabled the queue before the resize
         * began.
         */
        qrnic_cq_resize_cancel(d->engine);
        result = qrnic_cq_resize_result(d->engine);
    }
    if (q->generation != generation) {
        /*
         * The queue was disabled or reset meanwhile, so the command gets no
         * reply.
         */
        qrnic_count(d->engine, QRNIC_COUNTER_COMMANDS, 1);
        return true;
    }
    if (qrnic_command_unfinished(d->engine)) {
        /* The DMA of the command may have disabled the queue. */
        if (qrnic_command_enabled(d)) {
            qrnic_command_state_set(d, QRNIC_COMMANDS_UNFINISHED);
            q->reply_addr = addr;
            q->reply_entry = entry;
            q->reply = result;
        }
        return true;
    }
    return command_finish(d, addr, &entry, &result);
}

/*
 * Writes the reply of a command that the engine has finished. Returns false if
 * the run must stop.
 */
static bool command_reply(QrnicDevice *d)
{
    QrnicCommandQueue *q = &d->cmd;
    QrnicCmdEntry entry = q->reply_entry;
    QrnicResult result = q->reply;

    if (qrnic_is_fatal(d->engine)) {
        result = (QrnicResult) { QRNIC_ST_FATAL };
    } else if (entry.opcode == QRNIC_CMD_RESIZE_CQ) {
        result = qrnic_cq_resize_result(d->engine);
    }
    qrnic_command_state_set(d, QRNIC_COMMANDS_READY);
    return command_finish(d, q->reply_addr, &entry, &result);
}

bool qrnic_command_pending(const QrnicDevice *d)
{
    return qrnic_command_enabled(d) && d->cmd.producer != d->cmd.consumer;
}

bool qrnic_command_run(QrnicDevice *d, unsigned budget, bool short_only)
{
    QrnicCommandQueue *q = &d->cmd;
    g_autofree QrnicCommandData *data = NULL;

    while (qrnic_command_pending(d) && qrnic_on_bus(d)) {
        if (!budget-- || (qrnic_command_unfinished(d->engine) &&
                          !qrnic_is_fatal(d->engine))) {
            return true;
        }
        if (q->state == QRNIC_COMMANDS_UNFINISHED) {
            if (!command_reply(d)) {
                break;
            }
            continue;
        }
        if (!data) {
            data = g_new(QrnicCommandData, 1);
            data->short_only = short_only;
        }
        data->long_work = false;
        if (!command_next(d, data)) {
            return data->long_work && short_only;
        }
        if (data->long_work) {
            return qrnic_command_pending(d);
        }
    }
    return false;
}
