#!/bin/busybox sh
# What a virtual machine does instead of a boot: starts a program from a modelled disk,
# whose device is the argument. /rig/program starts it behind the words that it is
# given, /pack is its pack. The kernel's command line has
#
#     starts.job=learn     learns its pack
#     starts.job=layout    lays the file system out for the pack
#     starts.job=starts    replays the pack and starts the program, cold each time
#     starts.plan          first, what `layout plan` predicts
#     starts.count=N       how many times
#     starts.machine=N     means nothing; another number shifts its scheduling
#
# What it leaves for the host is in /headstart-starts on the disk. The first start of a
# machine waits until the kernel has random numbers.
root=$1
disk=/disk/root
left=$disk/headstart-starts
word() { sed -n "s/.*$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
say() { echo "starts: $*" >/dev/kmsg; }
fail() {
    echo "starts: failed: $1"
    poweroff -f
    sleep 60
}
mount -t tracefs tracefs /sys/kernel/tracing
mkdir -p /dev/shm /packs $disk
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
cp /bin/busybox /rig/busybox
export HEADSTART_PACKS=/packs
pack=/packs/program.pack
for file in pack pack.last; do
    if [ -e /$file ]; then cp /$file /packs/program.$file; fi
done

# The device below has no queue in which requests are merged; a loop device has.
insmod /modules/loop.ko || fail "module loop"
# By its path, since busybox has one of the same name.
/bin/losetup --direct-io=on /dev/loop0 "$root" || fail "no loop device"
echo 0 >/sys/block/loop0/queue/rotational
echo 128 >/sys/block/loop0/queue/read_ahead_kb
up() { mount -t ext4 -o noatime /dev/loop0 $disk || fail "no file system"; }
down() {
    local tries=600
    # Helpers learn after the program. A process that is left has a copy of the mount, which keeps the cache.
    while pidof headstart >/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "headstart does not end"
        sleep 0.1
    done
    umount $disk || fail "the file system is busy"
    while [ -e /sys/fs/ext4/loop0 ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "a process of the program is left"
        sleep 0.1
    done
}
cold() {
    down
    echo 3 >/proc/sys/vm/drop_caches
    up
}
program() { sh /rig/program "$@" >/dev/null 2>&1; }
# Whether the start is learned.
learn() {
    program headstart run --always --pack $pack --json /packs/figures.json --force -- || fail "the program"
    grep -q '"learned": {' /packs/figures.json
}
# An event of one kind, with its status and what the disk had served before and after.
timed() {
    local kind=$1 status
    shift
    cold
    say "$kind begins $(dmsetup status root | sed 's/.* slow //')"
    "$@"
    status=$?
    say "$kind ends $status"
    say "$kind read $(dmsetup status root | sed 's/.* slow //')"
}
replay() { headstart replay --quiet --wait $pack; }
started() { program headstart run --no-learn --pack $pack --; }

up
case $(word starts.job) in
learn)
    program env
    cold
    program headstart record --quiet --exact --for 2min --pack $pack -- || fail "no start is recorded"
    for _ in 1 2 3; do
        cold
        learn
    done
    # One whose files are in memory, from which starts are predicted.
    for _ in 1 2 3 4 5; do
        cold
        replay || fail "no replay"
        learn && break
    done || fail "no start is learned from memory"
    ;;
layout)
    headstart doctor --reprobe >/dev/null
    headstart layout apply --force --on $disk $pack >/packs/layout.log 2>&1 &&
        headstart layout release $disk >>/packs/layout.log 2>&1 || fail "no layout: $(tail -n 3 /packs/layout.log | tr '\n' ' ')"
    ;;
starts)
    headstart doctor --reprobe >/dev/null
    grep -qw starts.plan /proc/cmdline &&
        echo "starts: plan $(headstart layout plan --json --on $disk $pack | tr -d ' \n')"
    count=$(word starts.count)
    while [ "$count" -gt 0 ]; do
        timed replay replay
        timed start started
        count=$((count - 1))
    done
    ;;
*) fail "no job" ;;
esac
if [ "$(word starts.job)" != starts ]; then
    mkdir -p $left && cp $pack $pack.last $left || fail "nothing can be left for the host"
fi
dmesg | grep 'starts: '
down
echo "starts: done"
