#!/bin/sh
# Runs every fuzz target for some seconds (3 by default), from the
# committed seeds, and fails when one crashes. Needs a stable Rust toolchain and
# a C++ compiler, no cargo-fuzz: the flags are those that it passes.
#
# What a run finds lies in artifacts/TARGET. With a target as second argument
# only that is run, and what it learns stays in corpus/TARGET. For 10 seconds or
# less nothing is optimised: that would take longer than it saves.
set -eu
cd "$(dirname "$0")"
seconds=${1:-3}
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${2:-$(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2)}
profile=smoke
units=16
if [ "$seconds" -gt 10 ]; then
    profile=release
    units=1
fi

# With --target they reach neither build scripts nor procedural macros.
RUSTFLAGS="--cfg fuzzing -Ccodegen-units=$units -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares"
export RUSTFLAGS
cargo build --profile "$profile" --bins --target "$host"

corpus=corpus
if [ $# -lt 2 ]; then
    corpus=$(mktemp -d)
    trap 'rm -rf "$corpus"' EXIT
fi
export host seconds corpus profile
# Each has a CPU of its own.
# shellcheck disable=SC2016 # Expanded by the shell that xargs starts.
printf '%s\n' $targets | xargs -P "$(nproc)" -I TARGET sh -c '
    mkdir -p "$corpus/TARGET" artifacts/TARGET
    if "target/$host/$profile/TARGET" "$corpus/TARGET" seeds/TARGET \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix=artifacts/TARGET/ -print_final_stats=1 >artifacts/TARGET.log 2>&1; then
        echo "TARGET: $(sed -n "s/^stat::number_of_executed_units: *//p" artifacts/TARGET.log) runs"
    else
        tail -n 40 artifacts/TARGET.log
        echo "failed: TARGET" >&2
        exit 1
    fi'
