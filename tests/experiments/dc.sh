# Measures the contexts of the adapter and the memory of the processes of one node of a parallel job, by the program of
# examples/.
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2153  # capitals come from dc.py
set -e
echo "csv part,way,at,unit,value,how"
for nodes in $NODES; do
    for way in rc xrc dc; do
        node_contexts -d "$RDMA0" -n "$nodes" -p "$PROCESSES" -i "$INITIATORS" -r "$RESPONDERS" "$way" >result
        read -r _ _ _ _ _ _ queue_pairs _ _ contexts _ bytes _ <result
        echo "csv contexts,$way,$nodes,queue_pairs,$queue_pairs,measured"
        echo "csv contexts,$way,$nodes,contexts,$contexts,measured"
        echo "csv contexts,$way,$nodes,bytes,$bytes,measured"
    done
done
