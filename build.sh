#!/bin/sh
# Builds the command as it is installed: target/release/headstart, statically linked, so that it
# starts soon and works in any initramfs.
#
# musl is the C library where rustup has its target or gets it: glibc's start executes cpuid
# several times, which takes tens of microseconds each in a virtual machine. Elsewhere it is the
# static library of the host. Flags for the program alone: with those of a whole build cargo would
# link procedural macros statically too, and they can't be. Arguments are passed on to cargo.
set -eu
cd "$(dirname "$(readlink -f "$0")")"
PATH=$PATH:$HOME/.cargo/bin

host=$(rustc -vV | sed -n 's/^host: //p')
musl=$(echo "$host" | sed 's/-gnu/-musl/')
target=${CARGO_TARGET_DIR:-target}
has_musl() { [ -d "$(rustc --print sysroot)/lib/rustlib/$musl/lib" ]; }
if ! has_musl && command -v rustup >/dev/null; then
    timeout 120 rustup target add "$musl" || true
fi
if has_musl; then
    cargo build --release --locked -p headstart-cli --bin headstart --target "$musl" "$@"
    mkdir -p "$target/release"
    # Not in place: the one of before may be running.
    cp "$target/$musl/release/headstart" "$target/release/headstart.new"
    mv "$target/release/headstart.new" "$target/release/headstart"
else
    echo "build.sh: Rust has no target $musl here; linking with the host's static C library" >&2
    cargo rustc --release --locked -p headstart-cli --bin headstart "$@" -- -C target-feature=+crt-static
fi
