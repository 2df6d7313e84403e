#!/bin/bash
# shellcheck disable=SC2154 # dracut sets moddir.
# Puts the modelled disk into an initramfs of dracut.
check() { return 0; }
depends() { echo dm; }
installkernel() { hostonly='' instmods nfit nd_pmem dm-mod dm-slow; }
install() {
    inst_multiple dmsetup sed tr cat grep sleep modprobe
    inst_simple /usr/local/lib/boot-rig/disk /sbin/boot-rig-disk
    # udev runs, and knows no device yet.
    inst_hook pre-trigger 10 "$moddir/pre-trigger.sh"
}
