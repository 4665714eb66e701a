/*
 * qrnic-switch: joins the cables of several qrnic devices, as an Ethernet
 * switch does
 *
 * main() parses the options, creates the switch (forward.c) and runs QEMU's
 * main loop until a signal ends the program. The counters are printed at the
 * end, and on SIGUSR1.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <getopt.h>
#include <sys/signalfd.h>
#include "qemu-version.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "crypto/random.h"
#include "trace/control.h"
#include "qrnic_hw.h"
#include "cable/socket.h"
#include "switch/forward.h"
#include "switch/process.h"

#define DEFAULT_AGE_MS 300000
#define DEFAULT_PATIENCE_MS 50
/* More than a year; milliseconds cannot overflow */
#define MAX_TIME 100000000

static const char usage[] =
"usage: qrnic-switch [option...] PATH PATH...\n"
"\n"
"Joins the cables at these sockets, one per port, as a learning Ethernet\n"
"switch:\n"
"  qrnic-switch /tmp/me/a /tmp/me/b /tmp/me/c\n"
"  qemu-system-x86_64 ... -object qrnic-cable,id=c0,path=/tmp/me/a \\\n"
"      -device qrnic,cable=c0,...\n"
"The programs can start in any order, and each end may disconnect and return.\n"
"\n"
"  --age SECONDS    forget an address after this time without frames\n"
"                   (default 300)\n"
"  --capture FILE   write all received frames as pcapng; one interface per port\n"
"  --patience MS    maximum wait for a full port; later frames for that port\n"
"                   are dropped (default 50; 0: no wait)\n"
"  --slots N        maximum of frames in each direction of a cable, a power of\n"
"                   two from 16 to 4096 (default 256; the lower number of both\n"
"                   ends is used)\n"
"  --stats SECONDS  print the counters at this interval; SIGUSR1 prints them now\n"
"  --trace PATTERN  print matching trace events (qrnic_*) to stderr\n"
"  --version, --help\n"
"\n"
"SIGTERM or Ctrl-C ends the program; it prints the counters and removes the\n"
"sockets. The exit status is 0 then, or 1 if the program cannot start; a line\n"
"on stderr gives the reason.\n";

typedef struct Program {
    QrnicSwitchOptions options;
    QrnicSwitch *forwarding;
    int signals;
    int64_t stats_ms;           /* 0: never */
    QEMUTimer *timer;
    bool ended;
} Program;

static void print(Program *p)
{
    qrnic_switch_print(p->forwarding, stdout);
    fflush(stdout);
}

static void stats_timer(void *opaque)
{
    Program *p = opaque;

    print(p);
    timer_mod(p->timer, qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + p->stats_ms);
}

static void got_signal(void *opaque)
{
    Program *p = opaque;
    struct signalfd_siginfo info;

    if (RETRY_ON_EINTR(read(p->signals, &info, sizeof(info))) !=
        sizeof(info)) {
        return;
    }
    if (info.ssi_signo == SIGUSR1) {
        print(p);
    } else {
        p->ended = true;
    }
}

/*
 * Blocks the signals, so that the main loop receives them through a descriptor.
 */
static bool take_signals(Program *p)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    p->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (p->signals < 0) {
        error_report("cannot receive signals: %s", strerror(errno));
    }
    return p->signals >= 0;
}

/* Parses a time; unit is its unit in milliseconds. */
static bool time_of(const char *option, const char *text, unsigned unit,
                    uint64_t least, int64_t *ms)
{
    uint64_t time;

    if (!g_ascii_isdigit(*text) || parse_uint_full(text, 10, &time) ||
        time < least || time > MAX_TIME) {
        error_report("--%s %s: give it in %s, from %" PRIu64 " to %u", option,
                     text, unit == 1 ? "milliseconds" : "seconds", least,
                     MAX_TIME);
        return false;
    }
    *ms = time * unit;
    return true;
}

/*
 * Checks a path at the start, because a cable would repeat the failure forever.
 */
static bool path_usable(const char *path)
{
    g_autofree char *directory = g_path_get_dirname(path);
    Error *err = NULL;
    struct stat st;

    if (!qrnic_meeting_path_check(path, &err)) {
        error_report_err(err);
        return false;
    }
    if (access(directory, W_OK | X_OK)) {
        error_report("%s: no socket can be made in '%s': %s", path, directory,
                     strerror(errno));
        return false;
    }
    if (!lstat(path, &st) && !S_ISSOCK(st.st_mode)) {
        error_report("%s exists, but is no socket", path);
        return false;
    }
    return true;
}

static bool paths_usable(const QrnicSwitchOptions *o)
{
    if (o->ports < 2 || o->ports > QRNIC_SWITCH_PORTS) {
        error_report("give 2 to %u paths, one for each port (see --help)",
                     QRNIC_SWITCH_PORTS);
        return false;
    }
    for (unsigned i = 0; i < o->ports; i++) {
        if (!path_usable(o->paths[i])) {
            return false;
        }
        for (unsigned j = 0; j < i; j++) {
            if (!strcmp(o->paths[i], o->paths[j])) {
                error_report("%s is given twice", o->paths[i]);
                return false;
            }
        }
    }
    return true;
}

typedef enum Parsed { PARSED_RUN, PARSED_DONE, PARSED_WRONG } Parsed;

static Parsed parse(Program *p, int argc, char **argv)
{
    static const struct option options[] = {
        { "age", required_argument, NULL, 'a' },
        { "capture", required_argument, NULL, 'c' },
        { "patience", required_argument, NULL, 'p' },
        { "slots", required_argument, NULL, 'n' },
        { "stats", required_argument, NULL, 's' },
        { "trace", required_argument, NULL, 'T' },
        { "version", no_argument, NULL, 'V' },
        { "help", no_argument, NULL, 'h' },
        { },
    };
    QrnicSwitchOptions *o = &p->options;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
        switch (option) {
        case 'a':
            if (!time_of("age", optarg, 1000, 1, &o->age_ms)) {
                return PARSED_WRONG;
            }
            break;
        case 'c':
            o->capture = optarg;
            break;
        case 'p':
            if (!time_of("patience", optarg, 1, 0, &o->patience_ms)) {
                return PARSED_WRONG;
            }
            break;
        case 'n':
            o->slots = optarg;
            break;
        case 's':
            if (!time_of("stats", optarg, 1000, 1, &p->stats_ms)) {
                return PARSED_WRONG;
            }
            break;
        case 'T':
            trace_enable_events(optarg);
            break;
        case 'V':
            printf("qrnic-switch: version %u of the cable, QEMU %s\n",
                   QRNIC_CABLE_VERSION, QEMU_FULL_VERSION);
            return PARSED_DONE;
        case 'h':
            fputs(usage, stdout);
            return PARSED_DONE;
        default:
            return PARSED_WRONG;
        }
    }
    o->paths = argv + optind;
    o->ports = argc - optind;
    return paths_usable(o) ? PARSED_RUN : PARSED_WRONG;
}

static bool start(Program *p)
{
    Error *err = NULL;

    if (!take_signals(p)) {
        return false;
    }
    if (qemu_init_main_loop(&err) || qcrypto_random_init(&err)) {
        error_report_err(err);
        return false;
    }
    p->forwarding = qrnic_switch_new(&p->options, &err);
    if (!p->forwarding) {
        error_report_err(err);
        return false;
    }
    qemu_set_fd_handler(p->signals, got_signal, NULL, p);
    if (p->stats_ms) {
        p->timer = timer_new_ms(QEMU_CLOCK_REALTIME, stats_timer, p);
        timer_mod(p->timer,
                  qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + p->stats_ms);
    }
    return true;
}

int main(int argc, char **argv)
{
    Program p = {
        .options = {
            .age_ms = DEFAULT_AGE_MS, .patience_ms = DEFAULT_PATIENCE_MS,
        },
        .signals = -1,
    };

    error_init(argv[0]);
    module_call_init(MODULE_INIT_TRACE);
    trace_init_backends();
    switch (parse(&p, argc, argv)) {
    case PARSED_RUN:
        break;
    case PARSED_DONE:
        return EXIT_SUCCESS;
    case PARSED_WRONG:
        return EXIT_FAILURE;
    }
    module_call_init(MODULE_INIT_QOM);
    if (!start(&p)) {
        qrnic_process_end();
        return EXIT_FAILURE;
    }
    while (!p.ended) {
        main_loop_wait(false);
    }
    print(&p);
    timer_free(p.timer);
    qemu_set_fd_handler(p.signals, NULL, NULL, NULL);
    close(p.signals);
    qrnic_switch_free(p.forwarding);
    qrnic_process_end();
    return EXIT_SUCCESS;
}
