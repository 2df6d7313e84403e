#!/usr/bin/env bash
# All checks of the project in one command: ./check.sh
#
# As root it installs the tools they need. The first check that fails ends it,
# with the end of its output and its name. Where root or a tool is lacking, tests say why
# they are skipped; with CI set they fail instead.

set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin
shopt -s nullglob

has() { command -v "$1" >/dev/null 2>&1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# What failed and why, without the output of what passed.
failures() {
    awk '/^failures:$/ { failed = 1 } failed; /^test result:/ { failed = 0 }' "$log"
    tail -n 60 "$log"
}
check() { # NAME COMMAND…
    local name=$1 from=$SECONDS
    shift
    if [[ -t 1 ]]; then printf '…       %s' "$name"; fi
    if ! "$@" >"$log" 2>&1; then
        if [[ -t 1 ]]; then printf '\r\e[K'; fi
        failures
        echo "FAILED  $name: $*"
        exit 1
    fi
    if [[ -t 1 ]]; then printf '\r\e[K'; fi
    echo "ok      $name ($((SECONDS - from)) s)"
}
skip() { # NAME WHY
    echo "skipped $1: $2"
    [[ -z ${CI-} ]] || exit 1
}

# --- tools --------------------------------------------------------------------

# The tools of the tests and their Debian packages.
tools=(cc:gcc g++:g++ mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs
    losetup:mount fincore:util-linux strace:strace /usr/bin/python3:python3
    debootstrap:debootstrap systemd-nspawn:systemd-container zstd:zstd make:make
    qemu-system-x86_64:qemu-system-x86 vmtouch:vmtouch dbus-run-session:dbus gdbus:libglib2.0-bin
    dpkg-deb:dpkg rpmbuild:rpm pacman-conf:pacman-package-manager)
if grep -qw f2fs /proc/filesystems || modprobe --quiet --dry-run f2fs 2>/dev/null; then
    tools+=(mkfs.f2fs:f2fs-tools)
fi
packages=()
for tool in "${tools[@]}"; do
    has "${tool%:*}" || packages+=("${tool#*:}")
done
install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update || return
    local package known=()
    # Not every release has each: the tests that want it are skipped then.
    for package in "${packages[@]}"; do
        if apt-cache show "$package" &>/dev/null; then known+=("$package"); fi
    done
    apt-get install --yes --no-install-recommends libc6-dev libelf1 "${known[@]}"
}
if ((${#packages[@]})); then
    if ((EUID == 0)) && has apt-get; then
        check "install ${packages[*]}" install
    else
        skip tools "install ${packages[*]}, or start this as root"
    fi
fi
has cargo || { echo "FAILED  tools: install Rust, see https://rustup.rs" && exit 1; }
for tool in rustfmt clippy; do
    cargo "${tool/rustfmt/fmt}" --version &>/dev/null || check "install $tool" rustup component add "$tool"
done

# --- checks -------------------------------------------------------------------

scripts=(*.sh .ci/run bench/*.sh fixtures/*/*.sh fuzz/*.sh dist/dracut/*/*.sh
    dist/initramfs-tools/hooks/* dist/initramfs-tools/scripts/*/*)
syntax() {
    local script
    for script in "${scripts[@]}" dist/completions/headstart.bash; do
        bash -n "$script" || return
    done
}
docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }
tests() { cargo test --workspace --locked --no-fail-fast -- --show-output; }

check "format" cargo fmt --all --check
check "script syntax" syntax
if has shellcheck; then check "shellcheck" shellcheck --severity=warning "${scripts[@]}"; fi
check "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
check "documentation" docs
check "tables of performance.md" bench/tables.py --check
check "man pages and completions" cargo test --locked -p headstart-cli --bin headstart generated
check "tests" tests
echo "        $(grep -c '^test .* \.\.\. ok$' "$log") tests passed"
sed -n 's/^skipped: //p' "$log" | sort | uniq -c | while read -r times why; do
    echo "        skipped, $times x: $why"
done
if [[ -e fuzz/smoke.sh ]]; then check "fuzzing, 2 s for each target" fuzz/smoke.sh 2; fi
check "release build" cargo static
if ((EUID == 0)); then
    check "demo" ./demo.sh --quick
    tail -n 2 "$log" | sed 's/^/        /'
    if [[ -e /dev/fuse ]] && losetup --find >/dev/null 2>&1; then
        check "benchmark, python on two disks" bench/standing.py --smoke
        check "boots of a container, on two disks" bench/boot/container.py --smoke
    else
        skip benchmark "it needs /dev/fuse and loop devices"
    fi
    check "two boots in virtual time" bench/boot/virtual.py --smoke
    tail -n 2 "$log" | sed 's/^/        /'
else
    skip demo "it needs root"
    skip benchmark "it needs root"
fi
echo "All checks passed in $SECONDS s."
