# A job for two guests, which runs a program in both. The program is the server in guest 1 and the client in guest 2.
# The last argument of the client is the name of its server.
#
#   tools/guest --guests 2 examples/two-guests.sh hello_verbs
#
#   tools/guest --guests 2 -- examples/two-guests.sh fifo_exchange -n 100
#
#   tools/guest --guests 2 --file my_program:/usr/local/bin/my_program examples/two-guests.sh my_program
#
#   tools/guest --guests 2 --pcap caps -- examples/two-guests.sh ibv_rc_pingpong -g 1
#
# The program must listen at a TCP port until its peer connects. This is true for all examples with a SERVER, for
# perftest, and for the programs of libibverbs. RDMA0 is the adapter, and GUEST is the number of this guest.
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
program=${1:?give the program and its arguments}
shift

# listens PID: returns success if the process listens at a TCP port or has ended.
listens() { ss -Hltnp | grep -q "pid=$1," || ! kill -0 "$1"; }

if [ "$GUEST" = 1 ]; then
    "$program" -d "$RDMA0" "$@" &
    server=$!
    wait_until 60 listens $server || { echo "two-guests: $program does not listen" >&2; exit 1; }
    barrier listening
    wait $server
else
    barrier listening
    "$program" -d "$RDMA0" "$@" guest1
fi
