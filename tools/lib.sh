# shellcheck shell=bash
# Shared by the shell scripts of tools/ and tests/: paths, messages for progress and failure, locks, scratch folders,
# and access to Debian's archive.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Use: . "$(dirname "$(readlink -f "$0")")/lib.sh"
#
# Progress goes to stdout, as one line for each step with its time. A failure is exactly one line on stderr with the
# remedy, and exit status 1.

# shellcheck disable=SC2034  # for the scripts that include this file
QRNIC_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# qrnic_writable FOLDER: returns success if the folder can be made and written.
qrnic_writable() { mkdir -p "$1" 2>/dev/null && [ -w "$1" ]; }

# qrnic_find_cache: sets QRNIC_CACHE. If no variable names the cache and the home folder cannot be written, QRNIC_CACHE is
# exported, and names a folder in TMPDIR, /tmp or /dev/shm. A folder in a shared place must belong to this user,
# because another user's folder could change under the tools. cache_dir() of guestlib/host.py has the same rules.
qrnic_find_cache() {
    local base own=qrnic-$UID
    [ -z "${XDG_CACHE_HOME:-}" ] || QRNIC_CACHE=${QRNIC_CACHE:-$XDG_CACHE_HOME/qrnic}
    [ -z "${QRNIC_CACHE:-}" ] || return 0
    if [ -d "${HOME:-}" ] && qrnic_writable "$HOME/.cache/qrnic"; then
        QRNIC_CACHE=$HOME/.cache/qrnic
        return 0
    fi
    for base in "${TMPDIR:-/tmp}" /tmp /dev/shm; do
        mkdir -m 700 "$base/$own" 2>/dev/null || true
        if [ -d "$base/$own" ] && [ ! -L "$base/$own" ] && [ -O "$base/$own" ] && [ -w "$base/$own" ]; then
            export QRNIC_CACHE=$base/$own
            return 0
        fi
    done
    QRNIC_CACHE=${HOME:-/nonexistent}/.cache/qrnic
}
qrnic_find_cache
QRNIC_SRC=$QRNIC_CACHE/src
QRNIC_BUILD=$QRNIC_CACHE/build
QRNIC_LOGS=$QRNIC_CACHE/log
# shellcheck disable=SC2034  # for the scripts that include this file
QRNIC_JOBS=${QRNIC_JOBS:-$(nproc 2>/dev/null || echo 2)}
QRNIC_SUITE=${QRNIC_SUITE:-trixie}
# An installed tree (tools/install tree) has this folder with built parts. The tools of such a tree build, fetch and
# install nothing, and write only to the cache.
qrnic_prebuilt=$QRNIC_ROOT/prebuilt
# Space for QEMU's source and build, with a reserve
# shellcheck disable=SC2034  # for the scripts that include this file
QEMU_MIB=1000
qrnic_folders=("$QRNIC_LOGS")
[ -d "$qrnic_prebuilt" ] || qrnic_folders+=("$QRNIC_SRC" "$QRNIC_BUILD")
# A script that needs no cache in an installed tree sets qrnic_cache=optional before.
[ "${qrnic_cache:-}" = optional ] && [ -d "$qrnic_prebuilt" ] ||
    { mkdir -p "${qrnic_folders[@]}" && [ -w "$QRNIC_CACHE" ] && [ -w "$QRNIC_LOGS" ]; } 2>/dev/null ||
    { echo "${0##*/}: cannot write to $QRNIC_CACHE: set XDG_CACHE_HOME to a writable directory" >&2; exit 1; }
# In a container with a read-only root, programs need another folder for temporary files.
if [ ! -w "${TMPDIR:-/tmp}" ] && qrnic_writable "$QRNIC_CACHE/tmp"; then
    export TMPDIR=$QRNIC_CACHE/tmp
fi

qrnic_name=${0##*/}

note() { printf '%s: %s\n' "$qrnic_name" "$*"; }
warn() { printf '%s: warning: %s\n' "$qrnic_name" "$*" >&2; }
die() { printf '%s: %s\n' "$qrnic_name" "$*" >&2; exit 1; }

# --- installed tree -------------------------------------------------------------------

# installed: returns success if this is an installed tree.
installed() { [ -d "$qrnic_prebuilt" ]; }

# prebuilt NAME: prints the folder of a built part (qemu or image) of an installed tree. Fails if it is absent.
prebuilt() { [ -d "$qrnic_prebuilt/$1" ] && printf '%s\n' "$qrnic_prebuilt/$1"; }

# qrnic_version: prints the version of the source tree: the one of the hardware contract, and the commit if there is git.
qrnic_version() {
    local commit
    commit=$(git -C "$QRNIC_ROOT" log -1 --format=+git%cd.%h --date=format:%Y%m%d 2>/dev/null) || commit=
    sed -nE 's/^version: \{major: ([0-9]+), minor: ([0-9]+)\}$/\1.\2/p' "$QRNIC_ROOT/spec/qrnic-hw.yaml" | tr -d '\n'
    printf '%s\n' "$commit"
}

# need_sources TEXT: ends the script in an installed tree. TEXT names the action that needs the source tree.
need_sources() {
    ! installed || die "$1 needs the source tree of qrnic, which is not installed: clone the repository and run it there"
}

# --- steps ----------------------------------------------------------------------------

# run_step TEXT COMMAND...: runs the command with its output in a log file, and prints TEXT and the time in seconds. If
# the command fails, one line has the likely cause and the path of the log. The command may be a function; it runs in a
# subshell. The log is $QRNIC_LOGS/<script>-<text>.log.
run_step() {
    local text=$1 log start rc cause
    shift
    log=$QRNIC_LOGS/$qrnic_name-$(printf '%s' "$text" | tr -cs 'A-Za-z0-9._\n' '-').log
    start=$SECONDS
    printf '%s: %s ... ' "$qrnic_name" "$text"
    # The command runs in a subshell, because errexit has no effect inside "command || ...".
    set +e
    (
        set -e
        qrnic_own_cleanup
        "$@"
    ) >"$log" 2>&1 </dev/null
    rc=$?
    set -e
    if [ "$rc" = 0 ]; then
        printf '%d s\n' $((SECONDS - start))
        return 0
    fi
    printf 'failed\n'
    cause=$(failure_cause "$log")
    die "$text failed: ${cause:-exit status $rc} (log: $log)"
}

# failure_cause LOG: prints the line of a log that is most likely the reason of the failure.
failure_cause() {
    local cause
    cause=$(tail -n 1 "$1" | grep -a "^$qrnic_name: " | sed "s/^$qrnic_name: //; s/ (log: [^)]*)\$//") ||
    cause=$(grep -aE '^E: |[Ee]rror: |ERROR|[Ff]atal|[Cc]annot|[Uu]nable' "$1" | head -n 1) ||
    cause=$(tail -n 1 "$1")
    printf '%s\n' "${cause:0:220}"
}

# --- clean-up -------------------------------------------------------------------------

# at_exit COMMAND: executes the command (by eval) when the script ends, also after a signal. Commands run in reverse
# order. Subshells execute none of them.
qrnic_cleanup=()
at_exit() { qrnic_cleanup+=("$1"); }
qrnic_run_cleanup() {
    local status=$? i
    [ "$BASHPID" = "$qrnic_cleanup_shell" ] || return "$status"
    for ((i = ${#qrnic_cleanup[@]} - 1; i >= 0; i--)); do
        eval "${qrnic_cleanup[i]}" || true
    done
    return "$status"
}
# qrnic_own_cleanup: gives this shell its own list of commands. A subshell that makes scratch folders calls it first;
# the main shell calls it below.
qrnic_own_cleanup() {
    qrnic_cleanup=()
    qrnic_cleanup_shell=$BASHPID
    trap qrnic_run_cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}
qrnic_own_cleanup

# scratch_dir VARIABLE [PARENT]: makes a folder that is removed when the script ends. The folder is in the cache, so
# that a finished result is renamed into place in one step.
scratch_dir() {
    local qrnic_parent=${2:-$QRNIC_CACHE/tmp} qrnic_dir
    mkdir -p "$qrnic_parent"
    qrnic_dir=$(mktemp -d "$qrnic_parent/.$qrnic_name.XXXXXX") || die "cannot make a directory in $qrnic_parent"
    at_exit "chmod -R u+w '$qrnic_dir' 2>/dev/null; rm -rf '$qrnic_dir'"
    printf -v "$1" '%s' "$qrnic_dir"
}

# need_space MIB TEXT: ends the script unless the cache's file system has this much space. TEXT names the action that
# needs it.
need_space() {
    local free
    free=$(df -P -BM "$QRNIC_CACHE" 2>/dev/null | awk 'END { sub(/M$/, "", $4); print $4 }') || true
    [[ $free = *[!0-9]* || -z $free || $free -ge $1 ]] ||
        die "$2 needs $1 MiB, but $QRNIC_CACHE has $free MiB: free some, or set XDG_CACHE_HOME to a directory with more"
}

# lock NAME: holds the lock of this name until the script ends. Prints a line if it waits.
lock() {
    local file=$QRNIC_CACHE/lock/$1 fd
    mkdir -p "${file%/*}"
    exec {fd}>"$file"
    flock -n "$fd" && return 0
    note "waiting for another qrnic build ($1)"
    flock "$fd"
}

# --- host -----------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

# as_root COMMAND...: executes the command as root, directly or by sudo -n. The status is 77 if neither is possible.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 77
    fi
}

# hash_of PATH...: prints one short hash of the names and contents of files and folders.
hash_of() {
    (
        for path in "$@"; do
            if [ -d "$path" ]; then
                (cd "$path" && find . -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0r sha256sum)
            elif [ -e "$path" ]; then
                sha256sum <"$path"
            else
                printf '%s\n' "$path"
            fi
        done
    ) | sha256sum | cut -c1-12
}

# --- Debian's archive -----------------------------------------------------------------

# debian_mirror: prints the mirror of this machine's apt configuration. QRNIC_MIRROR overrides it, and is necessary on
# systems other than Debian.
debian_mirror() {
    local uri=${QRNIC_MIRROR:-}
    if [ -z "$uri" ] && have apt-get; then
        # shellcheck disable=SC2016  # the names are for apt to expand
        uri=$(apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
              awk -F'|' '$2 ~ /-(security|updates|backports)/ { next }
                         $3 == "Debian" || $1 ~ /\/debian\/?$/ { print $1; exit }')
    fi
    [ -n "$uri" ] ||
        die "no Debian mirror in this machine's apt configuration: set QRNIC_MIRROR to the URL of one"
    printf '%s\n' "${uri%/}"
}

# debian_keyring: prints the path of a keyring with the archive's keys. All signatures are checked against it.
debian_keyring() {
    local ring
    for ring in "${QRNIC_KEYRING:-}" /usr/share/keyrings/debian-archive-keyring.gpg \
                /usr/share/keyrings/debian-archive-keyring.pgp; do
        if [ -n "$ring" ] && [ -r "$ring" ]; then
            printf '%s\n' "$ring"
            return 0
        fi
    done
    die "Debian's archive keyring is missing: install debian-archive-keyring or set QRNIC_KEYRING"
}

# archive_reachable: succeeds if the archive answers. Otherwise prints the reason in one line. Tests that need the archive
# are skipped then.
archive_reachable() {
    local mirror url helper=/usr/lib/apt/apt-helper log=$QRNIC_LOGS/archive-reachable.log file
    mirror=$(debian_mirror 2>&1) || { printf '%s\n' "${mirror#"$qrnic_name: "}"; return 1; }
    url=$mirror/dists/$QRNIC_SUITE/Release
    [ -x "$helper" ] || return 0
    mkdir -p "$QRNIC_CACHE/tmp"
    file=$(mktemp "$QRNIC_CACHE/tmp/release.XXXXXX")
    at_exit "rm -f '$file'"
    "$helper" -o Acquire::Retries=2 -o Acquire::http::Timeout=30 download-file "$url" "$file" >"$log" 2>&1 </dev/null ||
        { printf 'Debian'"'"'s archive does not answer at %s\n' "$mirror"; return 1; }
}

# apt_private SUITES: fills the array APT_PRIVATE with options for apt-get and apt-cache. The options select folders in
# the cache and these suites (one word with spaces between them), and none of the machine's sources. The signed index is
# fetched if it is older than a day.
apt_private() {
    local suite=$1 name=${1// /+} dir mirror keyring log
    dir=$QRNIC_CACHE/apt/$name
    log=$QRNIC_LOGS/apt-$name.log
    have apt-get || die "apt-get is missing: on a system that is not Debian set QEMU_SRC to an unpacked source tree"
    mirror=$(debian_mirror) || exit 1
    keyring=$(debian_keyring) || exit 1
    lock "apt-$name"
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/etc/preferences.d"
    printf 'Types: deb deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
        "$mirror" "$suite" "$keyring" >"$dir/debian.sources.new"
    cmp -s "$dir/debian.sources.new" "$dir/debian.sources" || rm -f "$dir/fresh"
    mv "$dir/debian.sources.new" "$dir/debian.sources"
    APT_PRIVATE=(-qq -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache"
                 -o "Dir::State::status=/dev/null"
                 -o "Dir::Etc::SourceList=$dir/debian.sources" -o "Dir::Etc::SourceParts=/dev/null"
                 -o "Dir::Etc::Preferences=/dev/null" -o "Dir::Etc::PreferencesParts=$dir/etc/preferences.d"
                 -o "Acquire::Languages=none" -o "Acquire::Retries=3" -o "Acquire::http::Timeout=30"
                 -o "APT::Sandbox::User=$(id -un)" -o "APT::Get::AllowUnauthenticated=false")
    [ -n "$(find "$dir/fresh" -mtime -1 2>/dev/null)" ] && return 0
    rm -f "$dir/fresh"
    if ! apt-get "${APT_PRIVATE[@]}" -o APT::Update::Error-Mode=any update >"$log" 2>&1 </dev/null; then
        if grep -qE 'NO_PUBKEY|not signed|EXPKEYSIG|signatures' "$log"; then
            die "the signature of Debian's $suite cannot be checked with $keyring: update debian-archive-keyring"
        fi
        die "cannot fetch the package index of $suite: $(grep -m1 -E '^(E|W|Err)' "$log" | cut -c1-160) (log: $log)"
    fi
    touch "$dir/fresh"
}

# --- versions -------------------------------------------------------------------------

# version_at_least VERSION MINIMUM: succeeds if the version is the minimum or newer.
version_at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# warn_untested NAME VERSION TESTED: warns if the version belongs to a newer series than the newest tested series.
warn_untested() {
    local series
    series=$(grep -oE '^[0-9]+\.[0-9]+' <<<"$2") || series=$2
    version_at_least "$3" "$series" ||
        warn "$1 $2 is newer than $3, the newest series that qrnic was tested with; it is tried"
}

# archive_query COMMAND SUITE...: executes the command once for each suite, with the array APT_PRIVATE for the suite.
# Prints the lines of the command with the name of the suite behind each. A suite that the archive lacks is skipped with
# a warning. Every archive has the first suite, so without it the network or the mirror has failed. Then the status is
# 1, and stderr has the reason in one line.
archive_query() {
    local command=$1 first=$2 suite error lines
    shift
    for suite; do
        error=$QRNIC_CACHE/tmp/$qrnic_name-$BASHPID.error
        mkdir -p "${error%/*}"
        if lines=$({ apt_private "$suite" && "$command"; } 2>"$error"); then
            rm -f "$error"
            [ -z "$lines" ] || printf '%s\n' "${lines//$'\n'/ $suite$'\n'} $suite"
            continue
        fi
        lines=$(head -n 1 "$error")
        rm -f "$error"
        if [ "$suite" = "$first" ]; then
            printf '%s\n' "$lines" >&2
            return 1
        fi
        warn "the suite $suite is skipped: ${lines#"$qrnic_name: "}"
    done
}

# archive_sources PACKAGE SUITE...: prints "UPSTREAM DEBIAN SUITE" for each version of a source package, the newest
# first. UPSTREAM is the upstream part of the Debian version: 1:10.0.13+ds-0+deb13u1 has 10.0.13.
archive_sources() {
    local qrnic_package=$1 found
    shift
    found=$(archive_query qrnic_list_sources "$@") || return
    awk '{ upstream = $1; sub(/^[0-9]+:/, "", upstream); sub(/[-+~].*/, "", upstream); print upstream, $0 }' <<<"$found" |
        awk 'NF == 3' | sort -s -k1,1Vr | awk '!seen[$1, $2]++'
}
# A suite without the package is no error.
qrnic_list_sources() {
    { apt-cache "${APT_PRIVATE[@]}" showsrc "$qrnic_package" 2>/dev/null || true; } | awk '/^Version:/ { print $2 }' | sort -u
}

# newest_choice NAME [VALUE]: stores the version that "newest" stands for, or prints the stored version. Without VALUE
# the status is 1 if no version is stored. If the stored version is older than a day, it is printed and the status is 2.
newest_choice() {
    local file=$QRNIC_SRC/newest-$1
    if [ $# = 2 ]; then
        printf '%s\n' "$2" >"$file.new" && mv "$file.new" "$file"
        return
    fi
    [ -s "$file" ] || return 1
    cat "$file"
    [ -n "$(find "$file" -mtime -1)" ] || return 2
}

# take_first IT COMMAND...: takes the first version that COMMAND lists, one "VERSION PACKAGE SUITE" a line, and that
# source_suits accepts. A version that is not here is fetched in a step. If that fails, the version is reported ("... but
# IT cannot be fetched"), and the next version is tried. The function must not be called in a condition, because errexit
# has no effect there. These variables are set:
#   taken            the version, or empty
#   take_reason      the last error, or empty
#   take_unreadable  the error of COMMAND, or empty
#   take_seen        the listed versions of all calls
#
# The script defines these functions, which are called with VERSION and PACKAGE:
#   source_name     prints the name for messages; a name that could not be fetched is not tried again
#   source_suits    succeeds if the version may be taken
#   source_is_here  succeeds if nothing must be fetched
#   source_fetch    fetches it; SUITE is a third argument
take_seen=
take_failed=$'\n'
take_reason=
take_first() {
    # The names are long, because the functions of the script see them in place of its own.
    local it=$1 qrnic_version qrnic_package qrnic_suite qrnic_text status candidates message
    shift
    message=$QRNIC_CACHE/tmp/$qrnic_name-$BASHPID.message
    mkdir -p "${message%/*}"
    at_exit "rm -f '$message'"
    taken=
    take_unreadable=
    candidates=$("$@" 2>"$message") || take_unreadable=$(head -n 1 "$message")
    if [ -n "$take_unreadable" ]; then
        take_reason=$take_unreadable
        return 0
    fi
    cat "$message" >&2
    while read -r qrnic_version qrnic_package qrnic_suite; do
        [ -n "$qrnic_version" ] || continue
        [[ " $take_seen " = *" $qrnic_version "* ]] || take_seen+=" $qrnic_version"
        qrnic_text=$(source_name "$qrnic_version" "$qrnic_package")
        [[ $take_failed != *$'\n'"$qrnic_text"$'\n'* ]] || continue
        source_suits "$qrnic_version" "$qrnic_package" || continue
        if source_is_here "$qrnic_version" "$qrnic_package"; then
            taken=$qrnic_version
            return 0
        fi
        set +e
        (run_step "fetching $qrnic_text" source_fetch "$qrnic_version" "$qrnic_package" "$qrnic_suite") 2>"$message"
        status=$?
        set -e
        if [ "$status" = 0 ]; then
            taken=$qrnic_version
            return 0
        fi
        [ "$status" = 1 ] || exit "$status"
        take_failed+=$qrnic_text$'\n'
        take_reason=$(head -n 1 "$message")
        note "$qrnic_text is in the index of $qrnic_suite, but $it cannot be fetched; trying the next version"
    done <<<"$candidates"
}

# take_newest KEY NAME OLD IT COMMAND...: like take_first, for "newest", and stores the version with newest_choice KEY. If
# no version can be taken, OLD is taken with a warning. OLD is the choice of an earlier day, or empty.
take_newest() {
    local key=$1 name=$2 old=$3
    shift 3
    note "looking for the newest $name"
    take_first "$@"
    if [ -n "$taken" ]; then
        newest_choice "$key" "$taken"
    elif [ -n "$old" ]; then
        warn "the newest $name cannot be looked up, $old is used: ${take_reason#"$qrnic_name: "}"
        taken=$old
    fi
}
