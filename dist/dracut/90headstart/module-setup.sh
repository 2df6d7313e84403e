#!/bin/bash
# shellcheck disable=SC2154 # dracut sets moddir and dracutsysrootdir.
# Puts headstart into an initramfs made by dracut: copy the directory 90headstart to
# /usr/lib/dracut/modules.d, and regenerate the initramfs with `dracut --force`.
#
# The packs stay in the root file system: they are read there once it is mounted.

check() {
    require_binaries headstart timeout || return 1
    return 0
}

depends() {
    return 0
}

install() {
    inst_multiple headstart timeout
    # The last hook before the switch to the machine's own init.
    inst_hook pre-pivot 10 "$moddir/headstart.sh"
}
