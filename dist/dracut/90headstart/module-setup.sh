#!/bin/bash
# shellcheck disable=SC2154 # dracut sets moddir and dracutsysrootdir.
# Puts headstart into an initramfs made by dracut: copy the directory 90headstart to
# /usr/lib/dracut/modules.d, and make the initramfs anew with `dracut --force`.
#
# The packs stay in the root file system: they are read there once it is mounted.

check() {
    require_binaries headstart || return 1
    return 0
}

depends() {
    return 0
}

install() {
    inst_multiple headstart
    # The last moment before the machine's own init takes over.
    inst_hook pre-pivot 10 "$moddir/headstart.sh"
}
