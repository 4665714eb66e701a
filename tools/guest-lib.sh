# shellcheck shell=bash
# Shared by the guest tools: where the guest's roots, builds and images live in
# the cache, and how a command runs inside the build root. Sourced after lib.sh.
# SPDX-License-Identifier: GPL-2.0-or-later

# shellcheck disable=SC2034  # used by the scripts that source this file
guest_dir=$QRNIC_CACHE/guest
build_root=$guest_dir/build
run_root=$guest_dir/run
# QRNIC_LINUX (7.2, say) is the series of another kernel than the suite's; modules and image for it
# lie beside the others.
QRNIC_LINUX=${QRNIC_LINUX:-}
case $QRNIC_LINUX in
    *[!0-9.]*) die "QRNIC_LINUX=$QRNIC_LINUX is not a number like 7.2" ;;
esac
guest_image=$guest_dir/image${QRNIC_LINUX:+-$QRNIC_LINUX}

# Space for the roots, builds and images of guests, with a reserve
GUEST_MIB=1800

# Builds happen inside the build root: a new root starts with clean builds.
guest_work=$build_root/work
guest_modules=$guest_work/out/modules
[ -z "$QRNIC_LINUX" ] || guest_modules=$guest_work/out-$QRNIC_LINUX/modules

guest_kernel_version() {
    local file
    if [ -n "$QRNIC_LINUX" ]; then
        cat "$build_root/usr/lib/modules/series-$QRNIC_LINUX" 2>/dev/null ||
            die "no Linux $QRNIC_LINUX in the cache: run QRNIC_LINUX=$QRNIC_LINUX tools/guest-root"
        return
    fi
    for file in "$build_root"/boot/vmlinuz-*; do
        [ -e "$file" ] || die "no guest kernel in the cache: run tools/guest-root"
        echo "${file##*/vmlinuz-}"
        return
    done
}

# guest_kernel_file VERSION: the packed kernel. Since 7.2 Debian has it beside the modules.
guest_kernel_file() {
    local file
    for file in "$build_root/boot/vmlinuz-$1" "$build_root/usr/lib/modules/$1/vmlinuz"; do
        [ ! -e "$file" ] || { echo "$file"; return; }
    done
    die "no image of Linux $1 in the build root"
}

# add_to_build_root PACKAGE...: with what they need; for what few builds want, so that the root
# of all others stays small.
add_to_build_root() {
    local debs
    apt_private "$QRNIC_SUITE"
    scratch_dir debs "$guest_work"
    mkdir "$debs/partial"
    apt-get "${APT_PRIVATE[@]}" -o "Dir::State::status=$build_root/var/lib/dpkg/status" \
        -o "Dir::Cache::archives=$debs" -o APT::Install-Recommends=false \
        --download-only -y install "$@"
    # shellcheck disable=SC2016
    in_build_root sh -c 'DEBIAN_FRONTEND=noninteractive dpkg -i "$1"/*.deb' sh "${debs#"$build_root"}"
}

# The upstream version of the guest's own libibverbs: the provider's entry point
# carries a private ABI version that must be that library's.
rdma_core_version() {
    awk '$1 == "Package:" { p = $2 } $1 == "Version:" && p == "libibverbs1" { sub(/-[^-]*$/, "", $2); print $2; exit }' \
        "$run_root/var/lib/dpkg/status"
}

# in_build_root COMMAND...: as root or, through a user namespace, as anybody. The
# cache's guest directory is at /mnt.
in_build_root() {
    local map=()
    [ "$(id -u)" = 0 ] || map=(--map-root-user)
    # shellcheck disable=SC2016
    unshare "${map[@]}" --mount sh -ec '
        root=$1; guest=$2; shift 2
        mount --rbind /dev "$root/dev"
        mount --rbind /proc "$root/proc"
        mount --bind "$guest" "$root/mnt"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            TERM="${TERM:-dumb}" chroot "$root" "$@"' sh "$build_root" "$guest_dir" "$@"
}

# sync_tree FROM TO: copies the files whose contents differ and removes what has gone from
# the source. A copy has the time at which it was made, not the source's: make and ninja
# rebuild what is older than it, also when the source was edited before the end of the build
# that did not see the edit, or is of a commit older than the last build.
sync_tree() {
    mkdir -p "$2"
    local rel
    (cd "$1" && find . -type f ! -name '*.o' ! -name '.*' -printf '%P\n' | LC_ALL=C sort) >"$2/.sources.new"
    if [ -e "$2/.sources" ]; then
        LC_ALL=C comm -13 "$2/.sources.new" "$2/.sources" | while IFS= read -r rel; do rm -f "$2/$rel"; done
    fi
    mv "$2/.sources.new" "$2/.sources"
    while IFS= read -r rel; do
        if ! cmp -s "$1/$rel" "$2/$rel"; then
            mkdir -p "$(dirname "$2/$rel")"
            cp --preserve=mode "$1/$rel" "$2/$rel"
        fi
    done <"$2/.sources"
}
