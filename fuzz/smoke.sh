#!/bin/sh
# Runs every fuzz target for some seconds (3 by default), from the
# committed seeds, and fails when one crashes. Needs a stable Rust toolchain and
# a C++ compiler, no cargo-fuzz: the flags are those that it passes.
#
# What a run finds lies in artifacts/TARGET. With a target as second argument
# only that is run, and what it learns stays in corpus/TARGET.
set -eu
cd "$(dirname "$0")"
seconds=${1:-3}
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${2:-$(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2)}

# With --target they reach neither build scripts nor procedural macros.
RUSTFLAGS="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares"
export RUSTFLAGS
cargo build --release --bins --target "$host"

corpus=corpus
if [ $# -lt 2 ]; then
    corpus=$(mktemp -d)
    trap 'rm -rf "$corpus"' EXIT
fi
failed=
for target in $targets; do
    mkdir -p "$corpus/$target" "artifacts/$target"
    log="artifacts/$target.log"
    if "target/$host/release/$target" "$corpus/$target" "seeds/$target" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 > "$log" 2>&1; then
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs"
    else
        failed="$failed $target"
        tail -n 40 "$log"
    fi
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
