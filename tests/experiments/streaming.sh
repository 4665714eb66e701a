# Sends the same messages to an ordinary and to a streaming receive queue, by the program of examples/.
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
set -e
device=/sys/class/infiniband/$RDMA0
# The pause is necessary because the kernel returns values that it has read in the last 10 ms.
count_of() { sleep 0.1; cat "$device/$1"; }

# Column memory has the bytes of used buffers, and column unused those of them that no message occupies.
echo "csv longest,way,messages,bytes,memory,unused,wqes"
for mix in 1 3 5 7 10; do
    # A message of the mix has 96 * (2^mix - 1) / mix bytes on average.
    count=$((TOTAL * mix / (96 * ((1 << mix) - 1))))
    for way in streaming ordinary; do
        option=
        [ "$way" = streaming ] || option=-o
        before=$(count_of ports/1/hw_counters/recv_wqes) unused=$(count_of hw_counters/stream_unused_bytes)
        stream_receive -d "$RDMA0" -n "$count" -m "$mix" $option >result &
        receiver=$!
        until ss -ltn | grep -q ':18602 '; do
            kill -0 "$receiver" || wait "$receiver"     # with its reason, and its status
            sleep 0.1
        done
        stream_receive -d "$RDMA0" -n "$count" -m "$mix" localhost
        wait "$receiver"
        read -r messages _ bytes _ buffers _ _ size _ <result
        wqes=$(($(count_of ports/1/hw_counters/recv_wqes) - before)) unused=$(($(count_of hw_counters/stream_unused_bytes) - unused))
        [ "$way" = streaming ] || unused=$((buffers * size - bytes))
        echo "csv $((64 << mix)),$way,$messages,$bytes,$((buffers * size)),$unused,$wqes"
    done
done
