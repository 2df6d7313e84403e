#!/bin/sh
# Makes the seed of ext4_trees: a small ext4 with a file in so many pieces that a block holds its extents.
# Needs e2fsprogs, and no root.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
image=$work/image
# Holes between the blocks make extents of one block each.
for block in 0 2 4 6 8 10; do
    printf x | dd of="$work/file" bs=1024 seek="$block" conv=notrunc status=none
done
mkfs.ext4 -q -b 1024 -I 128 -N 16 -O ^has_journal,^resize_inode,^metadata_csum -E nodiscard -m 0 "$image" 64
debugfs -w -R "write $work/file file" "$image" >/dev/null 2>&1
debugfs -R "ex file" "$image" 2>/dev/null | tail -n +2 >&2
mkdir -p seeds/ext4_trees
cp "$image" seeds/ext4_trees/small
