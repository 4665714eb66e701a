# shellcheck shell=bash
# Shared by the guest tools, which source it after lib.sh. The file has the paths of the guest's roots, builds and images in
# the cache, and functions that use the build root.
# SPDX-License-Identifier: GPL-2.0-or-later

# shellcheck disable=SC2034  # used by the scripts that source this file
guest_dir=$QRNIC_CACHE/guest
build_root=$guest_dir/build
run_root=$guest_dir/run
# QRNIC_LINUX (for example 7.2) is the series of another kernel than the suite's, or "newest". The modules and the image
# of that kernel have folders of their own.
QRNIC_LINUX=${QRNIC_LINUX:-}
qrnic_oldest_linux=6.12
case $QRNIC_LINUX in
    newest)
        ! installed || need_sources "another kernel (QRNIC_LINUX)"
        QRNIC_LINUX=$("$QRNIC_ROOT/tools/guest-root" --print newest) || exit 1
        export QRNIC_LINUX ;;
    *[!0-9.]*) die "QRNIC_LINUX=$QRNIC_LINUX is not a number like 7.2, and not newest" ;;
    ?*) version_at_least "$QRNIC_LINUX" "$qrnic_oldest_linux" ||
            die "Linux $QRNIC_LINUX is not supported: the driver uses functions that Linux $qrnic_oldest_linux has (QRNIC_LINUX=newest)" ;;
esac
guest_image=$guest_dir/image${QRNIC_LINUX:+-$QRNIC_LINUX}
if installed; then
    [ -z "$QRNIC_LINUX" ] || need_sources "another kernel (QRNIC_LINUX)"
    guest_image=$QRNIC_ROOT/prebuilt/image
fi

# Space for the roots, builds and images of guests, with a reserve
GUEST_MIB=1800

# Builds are inside the build root, so that a new root starts with clean builds.
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

# guest_kernel_file VERSION: prints the path of the compressed kernel. Since 7.2 Debian has it in the folder of the
# modules.
guest_kernel_file() {
    local file
    for file in "$build_root/boot/vmlinuz-$1" "$build_root/usr/lib/modules/$1/vmlinuz"; do
        [ ! -e "$file" ] || { echo "$file"; return; }
    done
    die "no image of Linux $1 in the build root"
}

# add_to_build_root PACKAGE...: installs packages and their dependencies. The root does not have them from the
# beginning, because few builds need them.
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

# rdma_core_version: prints the upstream version of the guest's libibverbs. The provider is built from the same version,
# because its entry point has a private ABI version.
rdma_core_version() {
    awk '$1 == "Package:" { p = $2 } $1 == "Version:" && p == "libibverbs1" { sub(/-[^-]*$/, "", $2); print $2; exit }' \
        "$run_root/var/lib/dpkg/status"
}

# in_build_root COMMAND...: executes the command in the build root, as root or through a user namespace. The cache's
# guest folder is at /mnt. /dev is read-only, because scripts of packages would change the modes of the host's device files.
in_build_root() {
    local map=()
    [ "$(id -u)" = 0 ] || map=(--map-root-user)
    # shellcheck disable=SC2016
    unshare "${map[@]}" --mount sh -ec '
        root=$1; guest=$2; shift 2
        mount --rbind /dev "$root/dev"
        mount -o remount,ro,bind "$root/dev"
        mount --rbind /proc "$root/proc"
        mount --bind "$guest" "$root/mnt"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            TERM="${TERM:-dumb}" chroot "$root" "$@"' sh "$build_root" "$guest_dir" "$@"
}

# sync_tree FROM TO: copies the files whose contents differ, and removes files that FROM no longer has. A copy has the
# time of the copying, because make and ninja rebuild only objects that are older than their source. An object may be
# newer than an edit that it does not contain: edits may be made during a build, or come from older commits.
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
