/*
 * The states of the device: all transitions. Allowed ones must keep the
 * invariants; forbidden ones must abort.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/resource.h>
#include "device/parts.h"

static QrnicDevice *device_new(QrnicDeviceState state, uint32_t flushes)
{
    QrnicDevice *d = g_new0(QrnicDevice, 1);

    d->name = (char *)"device";
    d->state = state;
    d->flushes = flushes;
    return d;
}

/* Returns true if the call aborts, in a process of its own. */
static bool aborts(void (*call)(QrnicDevice *d, int argument), QrnicDevice *d,
                   int argument)
{
    const struct rlimit no_core = { 0, 0 };
    int status;
    pid_t child = fork();

    g_assert_cmpint(child, >=, 0);
    if (!child) {
        setrlimit(RLIMIT_CORE, &no_core);
        /* The message of the assertion is expected. */
        close(STDERR_FILENO);
        call(d, argument);
        _exit(0);
    }
    g_assert_cmpint(waitpid(child, &status, 0), ==, child);
    g_assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* Asserts the invariants of the current state. */
static void check(const QrnicDevice *d)
{
    const bool entered[] = { false, false, true, true, true, false };
    const bool plugged[] = { false, true, true, true, false, false };
    const bool on_bus[] = { false, true, true, false, false, false };

    g_assert_cmpint(d->state, <, QRNIC_DEVICE_STATES);
    g_assert_cmpint(qrnic_is_entered(d), ==, entered[d->state]);
    g_assert_cmpint(qrnic_is_plugged(d), ==, plugged[d->state]);
    g_assert_cmpint(qrnic_on_bus(d), ==, on_bus[d->state]);
    g_assert_false(d->state == QRNIC_DEVICE_ABSENT && d->flushes);
    g_assert_false(d->state == QRNIC_DEVICE_RELEASING && !d->flushes);
}

static void set(QrnicDevice *d, int next)
{
    qrnic_state_set(d, next);
}

/*
 * Tests each transition, without a flush and within one. '1' marks a transition
 * that is allowed only without a flush, 'F' only within one.
 */
static void test_pairs(void)
{
    static const char *const allowed[QRNIC_DEVICE_STATES] = {
        /* to:                      A I E R U L */
        [QRNIC_DEVICE_ABSENT] =        ".*....",
        [QRNIC_DEVICE_IDLE] =          "1.*..F",
        [QRNIC_DEVICE_ENTERED] =       ".*.**.",
        [QRNIC_DEVICE_RESET_PENDING] = ".*..*.",
        [QRNIC_DEVICE_UNPLUGGED] =     "1....F",
        [QRNIC_DEVICE_RELEASING] =     "1.....",
    };

    for (unsigned flushes = 0; flushes < 2; flushes++) {
        for (unsigned from = 0; from < QRNIC_DEVICE_STATES; from++) {
            for (unsigned to = 0; to < QRNIC_DEVICE_STATES; to++) {
                QrnicDevice *d = device_new(from, flushes);
                char rule = allowed[from][to];
                bool good = rule == '*' || rule == (flushes ? 'F' : '1');

                g_assert_cmpint(aborts(set, d, to), ==, !good);
                if (good) {
                    qrnic_state_set(d, to);
                    g_assert_cmpint(d->state, ==, to);
                    check(d);
                }
                g_free(d);
            }
        }
    }
}

/* Performs each operation of the life in each state. */
static void operate(QrnicDevice *d, int operation)
{
    switch (operation) {
    case 0:
        qrnic_state_plug(d);
        return;
    case 1:
        qrnic_state_leave(d);
        return;
    case 2:
        qrnic_state_unplug(d);
        return;
    case 3:
        qrnic_state_flush_begin(d);
        return;
    case 4:
        qrnic_state_flush_end(d);
        return;
    case 5:
        qrnic_kicks_defer(d);
        return;
    default:
        g_assert_not_reached();
    }
}

static void test_operations(void)
{
    static const char *const allowed[] = {
        /* In: AIERUL */
        /* Plug */         "*.....",
        /* Leave */        "..***.",
        /* Unplug */       ".***..",
        /* Flush begins */ ".*....",
        /* Flush ends */   ".****F",
        /* Defer kicks */  "..***.",
    };

    for (unsigned i = 0; i < ARRAY_SIZE(allowed); i++) {
        for (unsigned state = 0; state < QRNIC_DEVICE_STATES; state++) {
            QrnicDevice *d = device_new(state,
                                        state != QRNIC_DEVICE_ABSENT);

            g_assert_cmpint(aborts(operate, d, i), ==,
                            allowed[i][state] == '.');
            if (allowed[i][state] != '.') {
                operate(d, i);
                check(d);
            }
            g_free(d);
        }
    }
}

/*
 * Tests that one caller enters, and that a reset waits until the device is
 * left.
 */
static void test_reset(void)
{
    QrnicDevice *d = device_new(QRNIC_DEVICE_ABSENT, 0);

    g_assert_false(qrnic_state_enter(d));
    qrnic_state_plug(d);
    g_assert_true(qrnic_state_reset(d));
    g_assert_true(qrnic_state_enter(d));
    g_assert_false(qrnic_state_enter(d));
    g_assert_false(qrnic_state_reset(d));
    g_assert_false(qrnic_state_reset(d));
    g_assert_false(qrnic_on_bus(d));
    g_assert_cmpint(qrnic_state_leave(d), ==, QRNIC_DEVICE_RESET_PENDING);
    g_assert_true(qrnic_on_bus(d));
    g_assert_true(qrnic_state_reset(d));
    g_free(d);
}

/*
 * Tests that the wire is released once: at once, on leaving, or at the end of a
 * flush.
 */
static void test_unplug(void)
{
    for (unsigned how = 0; how < 8; how++) {
        bool entered = how & 1, flush = how & 2, reset = how & 4;
        QrnicDevice *d = device_new(QRNIC_DEVICE_IDLE, 0);
        unsigned released = 0;

        if (flush) {
            qrnic_state_flush_begin(d);
        }
        if (entered) {
            g_assert_true(qrnic_state_enter(d));
        }
        if (reset) {
            g_assert_cmpint(qrnic_state_reset(d), ==, !entered);
        }
        released += qrnic_state_unplug(d);
        g_assert_cmpuint(released, ==, !entered && !flush);
        g_assert_false(qrnic_is_plugged(d));
        g_assert_false(qrnic_state_enter(d));
        if (entered) {
            qrnic_state_leave(d);
            released += d->state == QRNIC_DEVICE_ABSENT;
            g_assert_cmpuint(released, ==, !flush);
        }
        if (flush) {
            released += qrnic_state_flush_end(d);
        }
        g_assert_cmpuint(released, ==, 1);
        g_assert_cmpint(d->state, ==, QRNIC_DEVICE_ABSENT);
        g_free(d);
    }
}

static void test_kicks(void)
{
    QrnicDevice *d = device_new(QRNIC_DEVICE_ENTERED, 0);

    g_assert_false(qrnic_kicks_note(d));
    qrnic_kicks_defer(d);
    g_assert_true(aborts(operate, d, 5));
    g_assert_false(qrnic_kicks_resume(d));
    qrnic_kicks_defer(d);
    g_assert_true(qrnic_kicks_note(d));
    g_assert_true(qrnic_kicks_note(d));
    g_assert_true(qrnic_kicks_resume(d));
    g_assert_false(qrnic_kicks_note(d));
    g_free(d);
}

static void command_set(QrnicDevice *d, int next)
{
    qrnic_command_state_set(d, next);
}

static void test_commands(void)
{
    static const char *const allowed[] = {
        [QRNIC_COMMANDS_OFF] =        ".*.",
        [QRNIC_COMMANDS_READY] =      "*.*",
        [QRNIC_COMMANDS_UNFINISHED] = "**.",
    };

    for (unsigned from = 0; from < QRNIC_COMMAND_STATES; from++) {
        for (unsigned to = 0; to < QRNIC_COMMAND_STATES; to++) {
            QrnicDevice *d = device_new(QRNIC_DEVICE_ENTERED, 0);

            d->cmd.state = from;
            g_assert_cmpint(aborts(command_set, d, to), ==,
                            allowed[from][to] == '.');
            if (allowed[from][to] != '.') {
                qrnic_command_state_set(d, to);
                g_assert_cmpint(d->cmd.state, ==, to);
            }
            g_free(d);
        }
    }
}

static void take(QrnicDevice *d, int bit)
{
    qrnic_pending_take(d, bit);
}

/* Tests each pair of requests: no request hides or clears another. */
static void test_pending(void)
{
    QrnicDevice *d = device_new(QRNIC_DEVICE_IDLE, 0);

    for (uint32_t a = 1; a < QRNIC_PENDING_ALL; a <<= 1) {
        for (uint32_t b = 1; b < QRNIC_PENDING_ALL; b <<= 1) {
            qrnic_pending_add(d, a);
            qrnic_pending_add(d, b);
            g_assert_cmphex(d->pending, ==, a | b);
            g_assert_true(qrnic_pending_take(d, a));
            g_assert_cmphex(d->pending, ==, b & ~a);
            g_assert_cmpint(qrnic_pending_take(d, b), ==, a != b);
            g_assert_cmphex(d->pending, ==, 0);
        }
    }
    g_assert_true(aborts(take, d, 0));
    g_assert_true(aborts(take, d, 3));
    g_assert_true(aborts(take, d, QRNIC_PENDING_ALL + 1));
    g_free(d);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/states/pairs", test_pairs);
    g_test_add_func("/states/operations", test_operations);
    g_test_add_func("/states/reset", test_reset);
    g_test_add_func("/states/unplug", test_unplug);
    g_test_add_func("/states/kicks", test_kicks);
    g_test_add_func("/states/commands", test_commands);
    g_test_add_func("/states/pending", test_pending);
    return g_test_run();
}
