"""The Debian that is booted: a root image, and the kernel kit that goes with it.

One image serves both rigs: the container's and the virtual machine's. It has booted
once, so that what only a first boot does is done. The kit is what a virtual machine
needs: kernel, modules, headers and a busybox, all of one mirror and one day.
"""

import hashlib
import inspect
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lib.image import build, inside, suite, unmount
from lib.run import Trouble, run

from rig import container

SIZE = "2G"
BASE = ("ca-certificates", "systemd", "systemd-sysv", "udev", "dbus", "kmod", "dmsetup")
SERVICES = ("network-manager", "nginx", "cups", "avahi-daemon", "openssh-server", "rsyslog")
# What would start at some time of the day and not with the boot.
TIMERS = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
          "e2scrub_all.timer", "fstrim.timer", "logrotate.timer", "man-db.timer")

# What a boot did, said once it is over: a container's console loses its last lines.
REPORT = r"""#!/bin/sh
# Says when the boot reached what, and turns the machine off.
state=$(systemctl is-system-running --wait)
out=/dev/console
if [ -d /run/boot-report ]; then out=/run/boot-report/report; fi
for part in /etc/boot-report.d/*; do
    [ -x "$part" ] && "$part" </dev/null >/dev/console 2>&1
done
{
    echo "boot-report begin"
    echo "state=$state"
    systemctl show --property=UserspaceTimestampMonotonic --property=FinishTimestampMonotonic
    for unit in sysinit.target basic.target multi-user.target; do
        echo "$unit=$(systemctl show --value --property=ActiveEnterTimestampMonotonic $unit)"
    done
    echo "disk=$(dmsetup status root 2>/dev/null)"
    systemctl --failed --plain --no-legend | while read -r unit _; do echo "failed=$unit"; done
    echo "boot-report end"
} >"$out"
if grep -qw boot-report=fast /proc/cmdline; then
    exec systemctl poweroff --force --force
fi
exec systemctl poweroff
"""
REPORT_UNIT = """[Unit]
Description=Report of this boot
DefaultDependencies=no
After=multi-user.target

[Service]
ExecStart=/usr/local/sbin/boot-report
"""

# Kernels before 6.3 know no trace_instance=, so a release with an older one gets a
# newer one from its backports.
BACKPORTS = ("bookworm",)
FETCH = r"""
archive=$(sed -n 's/^deb \([^ ]*\) .*/\1/p' /etc/apt/sources.list | head -n 1)
if [ -n "$BACKPORTS" ]; then
    echo "deb $archive $BACKPORTS main" >/etc/apt/sources.list.d/kernel.list
fi
apt-get update --quiet
mkdir /tmp/kit && cd /tmp/kit
depends() { apt-cache show "$1" | sed -n '/^Depends:/{s/^Depends: //;s/, /\n/g;p;q}' | cut -d' ' -f1; }
meta() { apt-cache madison "$1" | { [ -z "$BACKPORTS" ] && cat || grep "$BACKPORTS/"; } | awk 'NR == 1 { print $3 }'; }
image=$(depends "linux-image-cloud-amd64=$(meta linux-image-cloud-amd64)" | grep ^linux-image-)
release=${image#linux-image-}
headers=$(depends "linux-headers-$release" | grep -e '^linux-headers-.*-common$' -e ^linux-kbuild-)
apt-get download --quiet "$image" "linux-headers-$release" $headers busybox-static
for deb in *.deb; do dpkg-deb -x "$deb" . && rm "$deb"; done
echo "$release" >release
for file in /usr/sbin/dmsetup $(ldd /usr/sbin/dmsetup | grep -o '/[^ ]*'); do
    mkdir -p "initramfs${file%/*}" && cp -L "$file" "initramfs$file"
done
rm -rf /etc/apt/sources.list.d/kernel.list /var/lib/apt/lists/*
"""


@dataclass(frozen=True)
class Guest:
    """A guest in the cache: the root image, and the directory of the kit."""

    image: Path
    kit: Path


def key():
    """Names a guest by what is in it and how it is made."""
    recipe = [suite(), SIZE, *BASE, *SERVICES, *TIMERS, REPORT, REPORT_UNIT, *BACKPORTS, FETCH]
    recipe += map(inspect.getsource, (install, settle, keep_kit, build))
    return hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:12]


def guest(cache, tell):
    """The guest; built unless it is in the cache."""
    image, kit = cache / f"boot-{key()}.img", cache / f"boot-{key()}.kit"
    if not (image.exists() and kit.exists()):
        shutil.rmtree(kit, ignore_errors=True)
        draft = cache / f"draft-{os.getpid()}.kit"
        try:
            build(image, SIZE, lambda root: install(root, draft, tell), tell)
            draft.rename(kit)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return Guest(image, kit)


def install(root, kit, tell):
    """Installs the guest in a directory, and its kit in another."""
    tell(f"image: debootstrap {suite()}")
    run("debootstrap", "--variant=minbase", f"--include={','.join(BASE)}", suite(), root)
    for kind, point in (("proc", "proc"), ("sysfs", "sys"), ("tmpfs", "tmp")):
        run("mount", "-t", kind, kind, root / point)
    run("mount", "--bind", "/dev", root / "dev")
    # No service is started here, and packages bring no recommended ones.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    tell(f"image: {' '.join(SERVICES)}")
    inside(root, "apt-get update --quiet\napt-get install --yes --quiet --no-install-recommends "
           + " ".join(SERVICES))
    policy.unlink()
    tell("image: kernel")
    backports = f"{suite()}-backports" if suite() in BACKPORTS else ""
    inside(root, f"BACKPORTS={backports}\n{FETCH}\napt-get clean")
    keep_kit(root, kit)
    report = root / "usr/local/sbin/boot-report"
    report.write_text(REPORT)
    report.chmod(0o755)
    (root / "etc/systemd/system/boot-report.service").write_text(REPORT_UNIT)
    (root / "etc/hostname").write_text("guest\n")
    (root / "etc/fstab").write_text("/dev/root / ext4 noatime 0 0\n")
    inside(root, "systemctl add-wants multi-user.target boot-report.service\n"
           f"systemctl mask {' '.join(TIMERS)}\npasswd --delete root")
    for point in ("tmp", "dev", "sys", "proc"):
        unmount(root / point)
    tell("image: first boots")
    settle(root)
    run("sync", "--file-system", root)


def keep_kit(root, kit):
    """Moves the kernel's modules to where the guest has them, and the rest to the kit."""
    fetched = root / "tmp/kit"
    release = (fetched / "release").read_text().strip()
    modules = next((fetched / way / release for way in ("usr/lib/modules", "lib/modules")
                    if (fetched / way / release).exists()), None)
    if modules is None:
        raise Trouble(f"the package of Linux {release} holds no modules")
    (root / "usr/lib/modules").mkdir(exist_ok=True)
    run("cp", "--archive", modules, root / "usr/lib/modules" / release)
    inside(root, f"depmod {release}")
    run("cp", "--archive", fetched, kit)


def settle(root):
    """Boots it twice, so that nothing is left that only a first boot does."""
    for _ in range(2):
        report = container.boot(root)
        if report.failed:
            raise Trouble(f"in the image these units fail: {' '.join(report.failed)}")
