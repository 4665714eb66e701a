/*
 * A world for tests of the embedded switch: frames, ports that record what they
 * receive or are busy, and virtual time
 *
 * A port receives frames until its room is used up; then it is busy until
 * world_room(). Frames of other sizes than 64 bytes are built by frame_new().
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_ESWITCH_WORLD_H
#define QRNIC_TEST_ESWITCH_WORLD_H

#include "eswitch/eswitch.h"

#define UPLINK QRNIC_ESWITCH_UPLINK
#define PF QRNIC_ESWITCH_PF
#define VF(i) QRNIC_ESWITCH_VF(i)
#define PORTS QRNIC_ESWITCH_PORTS_MAX
#define MS 1000000ll
#define UNLIMITED UINT_MAX
#define TYPE 0x0800

/* Addresses: of functions, of a station behind the wire, and of groups */
#define ADDRESS(port) (0x020000000000ull + (port))
#define STATION 0x025500000000ull
#define GROUP 0x01005e000000ull
#define BROADCAST 0xffffffffffffull

typedef struct Frame {
    size_t len;
    uint8_t data[];
} Frame;

typedef struct World World;
struct World {
    QrnicEswitch *sw;
    unsigned vfs;
    int64_t now, deadline;
    bool kicked, running;
    uint64_t runs, deliveries;      /* numbers of calls */
    unsigned most;                  /* deliveries of the longest run */
    GQueue received[PORTS];         /* of Frame */
    uint64_t frames[PORTS], bytes[PORTS];
    bool keep;                      /* record the frames, not only numbers */
    unsigned room[PORTS];           /* frames until the port is busy */
    bool busy[PORTS];
    bool off[PORTS];                /* the port drops all frames */
    unsigned readies[PORTS], links[PORTS];
    bool up[PORTS];
    /*
     * Called inside each delivery, unless NULL. Returns false to reject the
     * frame although the port is not busy.
     */
    bool (*inside)(World *w, unsigned port);
};

/* Creates a switch whose ports are plugged and whose wire is up. */
World *world_new(unsigned vfs);
void world_free(World *w);
/* Executes one run, if it is requested. */
void world_run_once(World *w);
/* Executes the requested runs, until no run is requested. */
void world_run(World *w);
/* Lets time pass, with all timers and runs. */
void world_pass(World *w, int64_t ns);
/* Lets a port receive more frames. */
void world_room(World *w, unsigned port, unsigned frames);

/* Builds a frame; tci -1: no tag. Bytes behind the headers are fill, ... */
Frame *frame_new(uint64_t to, uint64_t from, int tci, size_t len, uint8_t fill);
/* Sends a frame and frees it. */
bool send_frame(World *w, unsigned port, Frame *f);
/* Sends a frame of 64 bytes without tag, and executes the runs. */
void send_now(World *w, unsigned port, uint64_t to, uint64_t from);
/* Checks that the next frame of a port is this frame, and frees both. */
void expect(World *w, unsigned port, Frame *f);
/* Checks that exactly these ports have received one frame each. */
void expect_ports(World *w, uint64_t functions, bool uplink);
/* Checks that no port has received a further frame. */
void expect_nothing(World *w);

static inline uint64_t bit(unsigned port)
{
    return 1ull << (port - PF);
}

static inline uint64_t count(const World *w, unsigned port,
                             QrnicEswitchCount which)
{
    return qrnic_eswitch_count(w->sw, port, which);
}

/* Returns the configuration of a port, for a change. */
static inline QrnicEswitchConfig config_of(const World *w, unsigned port)
{
    return *qrnic_eswitch_config(w->sw, port);
}

void configure(World *w, unsigned port, QrnicEswitchConfig config);
void set_vlan(World *w, unsigned port, uint16_t vlan, uint8_t priority);
void set_trust(World *w, unsigned port, bool trust);
void set_spoof_check(World *w, unsigned port, bool check);
void set_rate(World *w, unsigned port, uint32_t max_mbps);
void set_min_rate(World *w, unsigned port, uint32_t min_mbps);
void set_link(World *w, unsigned port, QrnicEswitchLink link);
/* Sets a filter with up to two addresses; 0: none. */
void set_filter(World *w, unsigned port, bool promiscuous, uint64_t first,
                uint64_t second);
void put_address(uint8_t *at, uint64_t address);

#endif
