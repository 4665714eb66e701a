#!/bin/bash
# One of several pairs of guests that write at the same time; tools/bench sets the second of the start (START). Prints
# "TOTAL MiB/s".
# SPDX-License-Identifier: GPL-2.0-or-later
set -u

set -- timeout 60 ib_write_bw -s 65536 -t 32 -D 10 -f 2 -d "$RDMA0" -x "$(gid_index "$RDMA0" 4)" -F
if [ "$GUEST" = 1 ]; then
    "$@" >server.log 2>&1 &
    wait_for_port 18515
fi
barrier listening
if [ "$GUEST" = 2 ]; then
    # A pair that starts late measures nothing, because it would have the machine for itself.
    [ "$(date +%s)" -lt "$START" ] || { echo "NOTE the guests were up too late to measure together"; exit 0; }
    while [ "$(date +%s)" -lt "$START" ]; do
        sleep 0.1
    done
    "$@" guest1 >client.log 2>&1
    awk '$1 == 65536 { print "TOTAL " $4; n++ } END { if (!n) print "NOTE " $0 }' client.log
fi
wait
