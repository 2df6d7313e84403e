#!/usr/bin/env bash
# Shows on this machine what headstart does. It builds headstart, makes a small
# ext4 image with a real program in it, and starts that program cold, learned,
# prefetched and hot. Cold means that the image was just mounted. Nothing is
# left behind, and nothing of the machine's own caches or packs is touched.

set -Eeuo pipefail
export LC_ALL=C

usage() {
    cat <<'TEXT'
Usage: ./demo.sh [--quick] [--rounds N] [--program python3|perl]

  --quick      two rounds instead of five
  --rounds N   this many rounds; each has four starts
  --program P  start this program instead of the first that is installed
TEXT
}

rounds=5
program=
while (($#)); do
    case $1 in
        --quick) rounds=2 ;;
        --rounds) rounds=${2-} && shift ;;
        --program) program=${2-} && shift ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
    shift || { usage >&2 && exit 2; }
done
[[ $rounds =~ ^[1-9][0-9]?$ && $program =~ ^(python3|perl)?$ ]] || { usage >&2 && exit 2; }

stop() { # STATUS WORDS…
    local status=$1
    shift
    trap - ERR
    echo "demo.sh: $*" >&2
    exit "$status"
}
has() { command -v "$1" >/dev/null 2>&1; }

trap 'stop 1 "line $LINENO failed: $BASH_COMMAND"' ERR
PATH=$PATH:/usr/sbin:/sbin # which su does not set
((EUID == 0)) || stop 4 "needs root, because it mounts an image and records kernel events: sudo ./demo.sh"
for tool in mkfs.ext4:e2fsprogs losetup:mount mount:mount umount:mount blockdev:util-linux \
    fallocate:util-linux ldd:libc-bin chroot:coreutils; do
    has "${tool%:*}" || stop 1 "${tool%:*} is missing: apt-get install ${tool#*:}"
done
cd "$(dirname "$(readlink -f "$0")")"
shopt -s globstar nullglob

# --- what is left behind: nothing ---------------------------------------------

work='' mount='' loop='' readahead='' tracefs=''
clean_up() {
    trap - ERR
    set +e
    if [[ -n $mount ]] && mountpoint -q "$mount"; then
        unmount || umount -l "$mount"
    fi
    # A loop device keeps the setting for its next user.
    [[ -n $readahead ]] && blockdev --setra "$readahead" "$loop"
    if [[ -n $work ]]; then
        # Also one that was attached when Ctrl-C came.
        losetup --noheadings --output NAME --associated "$work/image" | xargs -r losetup -d
        rm -rf "$work"
    fi
    [[ $tracefs == ours ]] && settle && umount /sys/kernel/tracing
}
trap clean_up EXIT
for signal in HUP:129 INT:130 PIPE:141 TERM:143; do
    # shellcheck disable=SC2064 # The status is known now.
    trap "exit ${signal#*:}" "${signal%:*}"
done

# A virus scanner or a desktop may look into a new mount for a moment.
unmount() {
    local try
    for try in {1..50}; do
        umount "$mount" 2>/dev/null && return 0 # as a trap has another status
        sleep 0.1
    done
    return 1
}

# The kernel takes up to a tenth of a second to remove the trace buffers of a
# start that has ended, and would let the next one wait for that.
settle() {
    local try instance pid
    for try in {1..20}; do
        for instance in /sys/kernel/tracing/instances/headstart-*; do
            pid=${instance#*/headstart-}
            # Those of others who are recording are no concern of ours.
            [[ -e /proc/${pid%%-*} ]] || { sleep 0.05 && continue 2; }
        done
        return 0
    done
}

# --- headstart ----------------------------------------------------------------

target=${CARGO_TARGET_DIR:-$PWD/target}
build() {
    local command quiet=--quiet
    if [[ -t 2 ]]; then quiet=''; fi
    printf -v command 'cd %q && CARGO_TARGET_DIR=%q ./build.sh %s' "$PWD" "$target" "$quiet"
    # Under sudo, Rust and the checkout are the user's.
    if [[ ${SUDO_USER:-root} != root ]] && runuser -l "$SUDO_USER" -c 'command -v cargo' &>/dev/null; then
        runuser -l "$SUDO_USER" -c "$command"
    else
        PATH=$PATH:$HOME/.cargo/bin
        has cargo || stop 1 "cargo is missing: install Rust, see https://rustup.rs"
        bash -c "$command"
    fi
}
echo "Building headstart …"
build || {
    has cc || stop 1 "headstart could not be built: Rust needs a C compiler to link, apt-get install gcc libc6-dev"
    stop 1 "headstart could not be built, see above"
}
headstart=$target/release/headstart

# --- a program to start -------------------------------------------------------

# Sets `start`, the command in the image, `what`, its description, and `parts`,
# the files and directories that it needs in addition to shared libraries. Fails when
# the program is not there.
choose_python3() {
    local python modules module names=()
    # Debian's own, not one that a version manager put before it.
    python=$(readlink -e /usr/bin/python3) || return
    local lib=/usr/lib/${python##*/}
    [[ -d $lib ]] || return
    modules=(argparse asyncio base64 bz2 calendar configparser csv ctypes datetime decimal
        difflib email.message hashlib html.parser http.client http.server inspect json
        logging lzma multiprocessing pathlib pickle shutil sqlite3 ssl statistics tarfile
        unittest urllib.request uuid xml.etree.ElementTree zipfile)
    # A minimal installation lacks some.
    for module in "${modules[@]}"; do
        ((${#names[@]} < 30)) && "$python" -I -S -c "import $module" 2>/dev/null && names+=("$module")
    done
    local IFS=,
    start=("$python" -I -S -c "import ${names[*]}")
    what="${python##*/} importing ${#names[@]} modules of its standard library"
    parts=("$python" "$lib")
}
choose_perl() {
    local perl modules module names=() lib
    perl=$(readlink -e /usr/bin/perl) || return
    modules=(Carp Cwd Data::Dumper Digest::SHA Encode Errno Fcntl File::Basename File::Copy
        File::Find File::Spec File::Temp Getopt::Long HTTP::Tiny Hash::Util IO::File
        IO::Select IO::Socket::INET IO::Socket::UNIX IPC::Open3 JSON::PP List::Util Math::BigInt
        POSIX Scalar::Util Socket Storable Text::ParseWords Text::Wrap Tie::RefHash Time::HiRes)
    for module in "${modules[@]}"; do
        "$perl" "-M$module" -e 1 2>/dev/null && names+=("-M$module")
    done
    start=("$perl" "${names[@]}" -e 1)
    what="perl loading ${#names[@]} modules"
    parts=("$perl")
    while read -r lib; do
        [[ $lib == /usr/* && $lib != /usr/local/* && -d $lib ]] || continue
        parts+=("$lib")
        # Debian's are links to the directory of the exact version.
        if [[ -L $lib ]]; then parts+=("$(readlink -e "$lib")"); fi
    done < <("$perl" -e 'print join("\n", @INC), "\n"')
}
start=() what='' parts=()
for name in ${program:-python3 perl}; do
    "choose_$name" && break
done
((${#start[@]})) || stop 1 "there is no program to start: apt-get install ${program:-python3}"

# The shared libraries of an ELF file, as the loader finds them.
libraries() {
    local line
    while read -r line; do
        if [[ $line =~ ^([^ ]+ => )?(/[^ ]+)\ \( ]]; then echo "${BASH_REMATCH[2]}"; fi
    done < <(ldd "$@" 2>/dev/null || true)
}
objects=()
for part in "${parts[@]}"; do
    if [[ -d $part ]]; then objects+=("$part"/**/*.so); else objects+=("$part"); fi
done
mapfile -t shared < <(libraries "${objects[@]}" | sort -u)

# --- an image with it, on a disk ----------------------------------------------

size=$(du -cslLk "${parts[@]}" "${shared[@]}" | tail -n 1)
size=$((${size%%[^0-9]*} * 5 / 4 / 1024 + 48)) # MiB, with room for the file system
for dir in "$target" /var/tmp /tmp; do
    kind=$(stat -f -c %T "$dir" 2>/dev/null) || continue
    # In memory there is nothing to prefetch.
    [[ $kind == tmpfs || $kind == ramfs ]] && continue
    free=$(df --output=avail -B 1M "$dir" | tail -n 1)
    if ((free > size + 64)); then
        work=$(mktemp -d "$dir/headstart-demo.XXXXXX")
        break
    fi
done
[[ -n $work ]] || stop 1 "needs $((size + 64)) MiB on a disk, and neither $target nor /var/tmp nor /tmp has that free"

mountpoint -q /sys/kernel/tracing || tracefs=ours
image=$work/image mount=$work/mount
export HEADSTART_PACKS=$work/packs
mkdir "$mount"
echo "Making an ext4 image of $size MiB with ${start[0]##*/} in it …"
fallocate -l "${size}M" "$image" 2>/dev/null || truncate -s "${size}M" "$image"
mkfs.ext4 -q -F -b 4096 -m 0 -E lazy_itable_init=0,lazy_journal_init=0 "$image"
loop=$(losetup --find --show "$image" 2>/dev/null) ||
    stop 5 "no loop device is available here; in a container, it takes --privileged"
name=${loop##*/}
readahead=$(blockdev --getra "$loop")
blockdev --setra 256 "$loop" # sectors: 128 KiB, the kernel's default for a disk
losetup --direct-io=on "$loop" 2>/dev/null || true
direct=$(<"/sys/block/$name/loop/dio")
mount "$loop" "$mount" || stop 5 "the image can't be mounted here"
(cd / && cp -a --parents dev/null "${parts[@]#/}" "$mount" && cp -L --parents "${shared[@]#/}" "$mount") ||
    stop 1 "the program could not be copied into the image, see above"
sync -f "$mount"

# --- starts -------------------------------------------------------------------

# Drops all of the image from the page cache.
make_cold() {
    unmount || stop 1 "the image is in use by another program"
    local try
    # A mount namespace that was made meanwhile has a copy of the mount.
    for try in {1..100}; do
        [[ -e /sys/fs/ext4/$name ]] || break
        ((try < 100)) || stop 1 "another mount namespace holds the image, so it can't be made cold; start again when no container is being started"
        sleep 0.1
    done
    blockdev --flushbufs "$loop"
    [[ $direct == 1 ]] || "$headstart" evict --quiet "$image"
    # Read-only: nothing is written, so nothing but reading is measured.
    mount -o ro "$loop" "$mount"
    settle
}

declare -A times faults bytes requests

# The number of a figure of the last start.
figure() {
    local line
    while read -r line; do
        [[ $line =~ ^\"$1\":\ ([0-9.]+) ]] && echo "${BASH_REMATCH[1]}" && return
    done <"$work/figures"
    stop 1 "headstart reported no $1"
}

# What was read from the loop device: requests and sectors.
device_reads() {
    local stat try
    for try in {1..100}; do
        read -r -a stat <"/sys/block/$name/stat"
        # Requests that are still under way count when they are done.
        ((stat[8] == 0)) && break
        sleep 0.05
    done
    echo "${stat[0]} ${stat[2]}"
}

launch() { # OPTIONS OF headstart run…
    "$headstart" run --json "$work/figures" "$@" -- chroot "$mount" "${start[@]}" >/dev/null ||
        stop 1 "the program failed in the image: ${start[*]}"
}

measure() { # STATE OPTIONS…
    local state=$1 before after us
    shift
    read -r -a before <<<"$(device_reads)"
    launch "$@"
    read -r -a after <<<"$(device_reads)"
    # From the start of headstart to the end of the program.
    printf -v us '%.0f' "$(figure wall_ms)e3"
    times[$state]+=$((us + $(figure exec_after_us)))$'\n'
    faults[$state]+=$(figure major_faults)$'\n'
    requests[$state]+=$((after[0] - before[0]))$'\n'
    bytes[$state]+=$(((after[1] - before[1]) * 512))$'\n'
}

echo
echo "The run summaries of a first start and of a second, both cold:"
make_cold
launch --no-learn --no-replay # brings in what is not in the image, as chroot
make_cold
launch --verbose
compgen -G "$HEADSTART_PACKS/*.pack" >/dev/null ||
    stop 1 "headstart could not learn here, see above; $headstart doctor tells more"
make_cold
launch --verbose

echo
terminal() { if [[ -t 2 ]]; then printf '\r%s\e[K' "$1" >&2; fi; }
for ((round = 1; round <= rounds; round++)); do
    terminal "round $round of $rounds"
    make_cold
    measure cold --no-learn --no-replay
    measure hot --no-learn --no-replay
    rm -f "$HEADSTART_PACKS"/*.pack
    make_cold
    measure learned
    make_cold
    measure prefetched
done
terminal ''

# --- what came of it ----------------------------------------------------------

quantile() { # N K NUMBERS: N/K of them, sorted; 1 2 is the median
    local n=$1 k=$2 sorted last
    mapfile -t sorted < <(sort -n <<<"${3%$'\n'}")
    last=$((${#sorted[@]} - 1))
    echo $(((sorted[last * n / k] + sorted[(last * n + k - 1) / k]) / 2))
}
ms() { # MICROSECONDS
    if (($1 < 99950)); then printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); else printf '%d' $((($1 + 500) / 1000)); fi
}
mib() { printf '%d.%d MiB' $(($1 / 1048576)) $(($1 % 1048576 * 10 / 1048576)); }

io="direct I/O"
[[ $direct == 1 ]] || io="no direct I/O; the image is evicted before cold starts"
echo "$what; ext4 on a loop device ($io), readahead 128 KiB;"
echo "$rounds rounds; every start but the hot one follows umount and mount."
echo
row() { printf '%-12s %10s %19s %14s %11s %9s\n' "$@"; }
row START MEDIAN "LEAST TO MOST" "MAJOR FAULTS" READ REQUESTS
declare -A median
for state in cold learned prefetched hot; do
    median[$state]=$(quantile 1 2 "${times[$state]}")
    least=$(quantile 0 1 "${times[$state]}") most=$(quantile 1 1 "${times[$state]}")
    row "$state" "$(ms "${median[$state]}") ms" "$(ms "$least") to $(ms "$most") ms" \
        "$(quantile 1 2 "${faults[$state]}")" "$(mib "$(quantile 1 2 "${bytes[$state]}")")" \
        "$(quantile 1 2 "${requests[$state]}")"
done
cat <<'TEXT'

cold        headstart only starts the program and takes the time
learned     headstart run, for the first time: it also records which pages are touched
prefetched  headstart run, for the second time: it prefetches these pages, and records
hot         like cold, with everything in the page cache
Times are from the start of headstart to the end of the program; the rest are medians.

TEXT

cold=${median[cold]} ahead=${median[prefetched]} hot=${median[hot]}
room=$((cold - hot)) gain=$((cold - ahead))
mapfile -t colds <<<"${times[cold]}"
mapfile -t aheads <<<"${times[prefetched]}"
won=0
for ((round = 0; round < rounds; round++)); do
    ((aheads[round] >= colds[round])) || ((++won))
done
hint=
[[ $(</proc/cpuinfo) == *hypervisor* ]] &&
    hint=" This is a virtual machine, whose host may have the image in memory."
if ((room * 10 < cold)); then
    echo "This disk is fast: a cold start takes only $(ms "$room") ms longer than a hot one, so there is" \
        "little for headstart to gain.$hint"
elif ((gain <= 0)); then
    echo "On this disk headstart did not help: the start took $(ms "$((-gain))") ms longer than a cold one.$hint"
else
    echo "With headstart a cold start took $((gain * 100 / cold)) % less time: $(ms "$ahead") ms instead of $(ms "$cold") ms." \
        "That is $((gain * 100 / room)) % of what a hot cache would have saved."
    if ((won == rounds)); then
        echo "All $rounds rounds agree."
    else
        echo "But only $won of $rounds rounds agree; more rounds are more precise (--rounds $((rounds * 4)))."
    fi
fi
