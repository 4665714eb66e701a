# shellcheck shell=bash source=tests/guest/tap.sh
# For the jobs that run librdmacm's tools between two guests; comes after tap.sh.
# SPDX-License-Identifier: GPL-2.0-or-later

# Prefix of each command: "ip netns exec NAME", or nothing
inside=

# shellcheck disable=SC2086  # a command and its arguments
listening() { $inside rdma resource show cm_id | grep -q 'state LISTEN'; }

# tool NAME READY SERVER CLIENT [endless]: guest 1 runs SERVER, and guest 2 runs CLIENT once READY succeeds on guest
# 1. An endless server is stopped when the client has ended.
tool() {
    # shellcheck disable=SC2154  # tap.sh sets the variable tests
    local name=$1 ready=$2 status=0 server number=$tests
    # shellcheck disable=SC2086  # the variables hold a command and its arguments, which must be split
    if [ "$GUEST" = 1 ]; then
        QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT timeout "$TRY_TIMEOUT" $inside bash -c "$3" >tool.log 2>&1 &
        server=$!
        wait_until 20 $ready || status=98
        barrier "up-$number"
        barrier "done-$number"
        if [ "${5:-}" = endless ]; then
            kill $server 2>/dev/null || status=97
            wait $server
        else
            wait $server || status=$?
        fi
    else
        barrier "up-$number"
        QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT timeout "$TRY_TIMEOUT" $inside bash -c "$4" >tool.log 2>&1 || status=$?
        barrier "done-$number"
    fi
    [ $status = 0 ] || show tool.log
    together $status "$name"
}
