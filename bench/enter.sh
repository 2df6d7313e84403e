#!/bin/sh
# Starts a program in a root directory, with mounts that no one else sees:
#
#     busybox unshare --mount --propagation private busybox sh enter.sh ROOT CMD…
#
# /proc, /sys and /dev are the machine's; /tmp and /dev/shm are empty and in memory.
# The mounts end with the program's last process. A busybox in memory does it all,
# so that nothing of the machine's own disk takes part in a start.
set -e
busybox=${0%/*}/busybox
root=$1
shift
"$busybox" mount -t proc proc "$root/proc"
"$busybox" mount -t sysfs sysfs "$root/sys"
"$busybox" mount --bind /dev "$root/dev"
"$busybox" mount -t tmpfs tmpfs "$root/dev/shm"
"$busybox" mount -t tmpfs tmpfs "$root/tmp"
exec "$busybox" env -i HOME=/tmp LC_ALL=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin \
    "$busybox" chroot "$root" "$@"
