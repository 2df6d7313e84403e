"""A user who logs in as soon as that can be: what is put into a guest for it, and when the
session was there. Boots nothing."""

import re

from lib.run import run

USER = "somebody"
# What is written to when the session has started all that it starts. Opening it waits for
# the other end, so neither has to look again and again.
DONE = "/run/boot-rig-login"
SAYS = "boot-rig: the session is there"
# A getty of the console without a password. PAM notifies logind, as in any login.
GETTY = f"""[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin {USER} --keep-baud 115200 - $TERM
"""
# Programs that nothing else of the boot uses, as a desktop starts such.
PROFILE = f"""nmcli --version
gs -q -dNODISPLAY -dBATCH -dNOPAUSE -c quit
pdftotext -v
openssl version -a
btrfs --version
apt-cache stats
ssh -V
tar --version
ps --version
lpstat -r
echo >{DONE}
"""
# The first part of the report: the machine is turned off after it. The lock is the recorder's
# for as long as it records and learns, and it does that until the session is quiet. The
# kernel's log has times in microseconds.
SCRIPT = f"""#!/bin/sh
read -r _ <{DONE}
echo "{SAYS}" >/dev/kmsg
dmesg | grep "{SAYS}"
lock=/run/headstart/record.lock
[ ! -e $lock ] || flock $lock true
loginctl --no-legend list-sessions
"""


def install(root):
    """Lets a user log in, in a guest's root directory."""
    run("chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    for path, text in (
        ("etc/systemd/system/serial-getty@ttyS0.service.d/login.conf", GETTY),
        ("etc/tmpfiles.d/boot-rig-login.conf", f"p {DONE} 0622 root root\n"),
        (f"home/{USER}/.profile", f"{{ {PROFILE}}} >/dev/null 2>&1\n"),
    ):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    script = root / "etc/boot-report.d/0-login"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    script.chmod(0o755)


def session_us(console):
    """When the session had started all, in microseconds after the kernel's start; None when
    nobody logged in."""
    said = re.search(rf"\[ *(\d+)\.(\d{{6}})\] {SAYS}", console)
    return said and int(said[1]) * 1_000_000 + int(said[2])
