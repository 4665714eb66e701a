# Measures registrations and first accesses by the program of examples/.
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
set -e
on_demand -d "$RDMA0" -m "$LARGEST" -n "$PAGES"
