#!/usr/bin/env bash
# What learning adds to a hot start: events, bytes and time.
#
# Usage: bench/overhead.sh [ROUNDS] [-- CMD…]      (root; default 40 rounds of
# python3 importing modules). Arms in random order inside each round:
#   bare      the program by itself
#   through   headstart run --no-learn --no-replay
#   learning  headstart run --no-replay
#   full      headstart run
# Prints medians, and for each arm the median of the differences to bare.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=40
if [ $# -gt 0 ] && [ "$1" != -- ]; then rounds=$1; shift; fi
[ "${1:-}" = -- ] && shift
[ $# -gt 0 ] || set -- python3 -c 'import json, ssl, email, asyncio, sqlite3'
headstart=target/release/headstart
[ -x "$headstart" ] || cargo build --release
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export HEADSTART_PACKS=$work

now() { echo "${EPOCHREALTIME/./}"; }
arm() {
  case $1 in
    bare) "${@:2}" ;;
    through) "$headstart" run -q --no-learn --no-replay -- "${@:2}" ;;
    learning) "$headstart" run -q --no-replay --json "$work/figures" -- "${@:2}" ;;
    full) "$headstart" run -q -- "${@:2}" ;;
  esac > /dev/null
}
arms=(bare through learning full)
for a in "${arms[@]}"; do arm "$a" "$@"; done
for ((i = 0; i < rounds; i++)); do
  for a in $(shuf -e "${arms[@]}"); do
    # The kernel removes an earlier start's trace instance in the background.
    while compgen -G '/sys/kernel/tracing/instances/headstart-*' > /dev/null; do :; done
    before=$(now); arm "$a" "$@"; after=$(now)
    echo $((after - before)) >> "$work/$a.us"
  done
done
median() { sort -n | awk '{v[NR]=$1} END {print (v[int((NR+1)/2)]+v[int(NR/2)+1])/2}'; }
printf '%-9s %12s %16s\n' arm 'median ms' 'more than bare ms'
for a in "${arms[@]}"; do
  m=$(median < "$work/$a.us")
  d=$(paste "$work/$a.us" "$work/bare.us" | awk '{print $1-$2}' | median)
  awk -v a="$a" -v m="$m" -v d="$d" 'BEGIN {printf "%-9s %12.2f %16.2f\n", a, m/1000, d/1000}'
done
grep -E '"(events|lost_events|exec_after_us|learn_us|resolve_us|pack_bytes)"' "$work/figures" | tr -d ' ,"'
echo "rounds:$rounds kernel:$(uname -r)"
