"""Builds the root image that the workloads are started from, and keeps it.

The image is an ext4 file system on which everything is installed in place, as on
a disk that is in use: files lie where the file system put them.
"""

import contextlib
import hashlib
import inspect
import os
import shutil
import time
from pathlib import Path

from lib import workloads
from lib.run import Trouble, mounted_under, run

BASE = ("busybox-static", "ca-certificates", "python3")
SIZE = "10G"
BUILDING = "DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin"


def suite():
    """The Debian release of this machine, which the image gets too."""
    with contextlib.suppress(OSError):
        for line in Path("/etc/os-release").read_text().splitlines():
            if line.startswith("VERSION_CODENAME="):
                return line.split("=")[1].strip('"')
    return "bookworm"


def key(chosen):
    """Names an image by what is in it and how it is made."""
    recipe = [suite(), SIZE, BUILDING, *BASE, *map(inspect.getsource, (install, inside))]
    recipe += [repr((w.name, w.packages, w.prepare)) for w in chosen]
    return hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:12]


def image(cache, chosen, tell):
    """An image with these workloads, or with all; built unless it is in the cache."""
    for held in (workloads.WORKLOADS, chosen):
        path = cache / f"root-{key(held)}.img"
        if path.exists():
            return path
    build(path, SIZE, lambda root: install(root, chosen, tell), tell)
    return path


def build(path, size, fill, tell):
    """Builds an ext4 image of that size: `fill` gets the directory of its root."""
    for tool in ("debootstrap", "mkfs.ext4", "losetup", "fstrim"):
        if not shutil.which(tool):
            raise Trouble(f"{tool} is missing; apt-get install debootstrap e2fsprogs util-linux")
    cache = path.parent
    cache.mkdir(parents=True, exist_ok=True)
    draft, root = cache / f"draft-{os.getpid()}.img", cache / f"root-{os.getpid()}"
    began = time.monotonic()
    try:
        root.mkdir()
        run("truncate", "--size", size, draft)
        # Nothing is left for the kernel to initialise while we measure.
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", draft)
        run("mount", "-o", "loop,noatime", draft, root)
        fill(root)
        run("fstrim", root)
        unmount(root)
        draft.rename(path)
    finally:
        unmount(root)
        draft.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            root.rmdir()
    tell(f"image: built in {time.monotonic() - began:.0f} s: {path}")


def unmount(root):
    """Unmounts all that is mounted at and below a directory."""
    for point in mounted_under(root):
        run("umount", point)


def install(root, chosen, tell):
    """Installs and prepares the workloads in a directory."""
    tell(f"image: debootstrap {suite()}")
    run("debootstrap", "--variant=minbase", f"--include={','.join(BASE)}", suite(), root)
    for kind in ("proc", "sysfs"):
        run("mount", "-t", kind, kind, root / {"sysfs": "sys"}.get(kind, kind))
    run("mount", "--bind", "/dev", root / "dev")
    run("mount", "-t", "tmpfs", "tmpfs", root / "tmp")
    packages = sorted({p for w in chosen for p in w.packages} - set(BASE))
    if packages:
        # No service is started here, and packages bring no recommended ones.
        (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
        (root / "etc/apt/apt.conf.d/no-terminal").write_text('Dpkg::Use-Pty "0";\n')
        inside(root, "apt-get update --quiet")
        for workload in chosen:
            tell(f"image: {workload.name}: {' '.join(workload.packages)}")
            inside(root, "apt-get install --yes --quiet --no-install-recommends "
                   + " ".join(workload.packages))
            inside(root, workload.prepare)
        inside(root, "apt-get clean; rm -rf /var/lib/apt/lists/*")
    else:
        for workload in chosen:
            inside(root, workload.prepare)
    run("sync", "--file-system", root)


def inside(root, script):
    """Runs a shell script in the image, with the network of this machine."""
    if not script:
        return
    # What the machine needs to reach the network: names, proxies, certificates.
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists(file):
            shutil.copyfile(file, root / "tmp" / os.path.basename(file))
    shutil.copyfile(root / "tmp/resolv.conf", root / "etc/resolv.conf")
    kept = [f"{k}={v}" for k, v in os.environ.items() if k.lower().endswith("_proxy")]
    settings = BUILDING.split() + kept + ["PIP_CERT=/tmp/ca-certificates.crt"]
    # What it prints tells why it failed, if it does.
    script = f"exec >&2\n{script}"
    run("chroot", root, "/usr/bin/env", "-i", *settings, "/bin/sh", "-e", "-c", script)
