#!/bin/sh
# Prefetches, in the background, what the machine in $NEWROOT is about to touch. Run by
# dracut as a pre-pivot hook, in its shell: nothing here may fail or wait.

if ! getargbool 1 headstart; then
    info "headstart: off"
elif [ -d "${NEWROOT:-/sysroot}/var/lib/headstart/boot" ] \
    || [ -d "${NEWROOT:-/sysroot}/usr/lib/headstart/boot" ] \
    || [ -L "${NEWROOT:-/sysroot}/etc/systemd/system/sysinit.target.wants/headstart-boot-record.service" ]; then
    # Without packs it reads the program that is to record this boot.
    # It goes into the background when it has changed to the root directory, or is ended
    # after a second.
    timeout 1 headstart boot replay --root "${NEWROOT:-/sysroot}" || :
fi
