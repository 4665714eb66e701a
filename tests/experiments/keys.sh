# Runs strided keys, lists and packing, and a transposition, by the programs of examples/.
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
set -e
strided_keys -d "$RDMA0" -n "$ROUNDS" -m "$LARGEST"
# The second heading is removed, because the columns are the same.
transpose -d "$RDMA0" -n "$ROUNDS" -m "$MATRIX" >transpose.csv
tail -n +2 transpose.csv
